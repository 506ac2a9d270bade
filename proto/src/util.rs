//! What knows nothing of ONNX: threads, memory, calls of the system.

pub(crate) mod cancel;
pub(crate) mod parallel;
pub mod process_memory;
pub(crate) mod retry;
