//! A container for large ONNX models.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("onnx-container needs 64-bit offsets in memory: large models do not fit 32 bits");

mod buffer;
mod check;
mod container;
mod dtype;
mod error;
pub mod external_data;
mod initializer;
mod load;
mod mmap;
mod operands;
mod placement;
pub mod proto;
mod save;
mod tensor;
pub mod traversal;
mod wire;

pub use buffer::{Buffer, BufferMut, FileRange};
pub use check::{Finding, MAX_PROTOBUF, Severity, check_model};
pub use container::{Container, ExternalizeOptions, Externalized, Handle, KeepReason, Kept};
pub use dtype::{DataType, Element, element_count};
pub use error::{Error, ErrorKind, Result};
pub use initializer::{ArrayInitializer, Initializer, ProtoInitializer};
pub use load::LoadOptions;
pub use mmap::MmapChoice;
pub use operands::{ShapeOperands, ShapeUse};
pub use placement::Alignment;
pub use save::{Parts, Progress, SaveOptions, Saved, SavedFile, WeightFiles};
pub use tensor::Tensor;
