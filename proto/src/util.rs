//! What knows nothing of ONNX: lengths in words, threads, memory, calls of the system.

pub(crate) mod byte_size;
pub(crate) mod cancel;
pub(crate) mod file_id;
pub(crate) mod parallel;
pub mod process_memory;
pub(crate) mod retry;
