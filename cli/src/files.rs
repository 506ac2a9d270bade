//! Files that are no models: staged outputs, tensors in other formats, digests of files.

pub(crate) mod sha256;
pub(crate) mod staged;
pub(crate) mod tensor_file;
pub(crate) mod transformers_config;
