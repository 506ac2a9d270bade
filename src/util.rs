//! What knows nothing of ONNX: threads, names, lengths in words, calls of the system.

#[cfg(feature = "serde")]
pub(crate) mod as_text;
pub(crate) mod byte_size;
pub(crate) mod cancel;
pub(crate) mod did_you_mean;
pub(crate) mod names;
pub(crate) mod parallel;
pub mod process_memory;
pub(crate) mod retry;
