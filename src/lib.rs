//! A container for large ONNX models.
#![deny(missing_docs)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("onnx-container needs 64-bit offsets in memory: large models do not fit 32 bits");

mod buffer;
mod dtype;
mod error;
mod initializer;
mod mmap;
mod placement;
pub mod proto;
mod tensor;
mod wire;

pub use buffer::{Buffer, BufferMut, FileRange};
pub use dtype::{DataType, Element, element_count};
pub use error::{Error, ErrorKind, Result};
pub use initializer::{ArrayInitializer, Initializer, ProtoInitializer};
pub use mmap::MmapChoice;
pub use placement::Alignment;
pub use tensor::Tensor;
