//! What knows nothing of ONNX: names, shares of work. Lengths in words, threads and calls of the
//! system are those of the crate below.

#[cfg(feature = "serde")]
pub(crate) mod as_text;
pub(crate) mod did_you_mean;
#[cfg(any(feature = "jobs", feature = "safetensors"))]
pub(crate) mod json_kind;
pub(crate) mod names;
pub(crate) mod prefetch;
pub(crate) mod shares;

pub(crate) use onnx_container_proto::internal::util::{
    byte_size, cancel, file_id, parallel, retry,
};
