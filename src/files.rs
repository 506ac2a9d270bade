//! Files of models and weights: locations and links, what a file is, locks, and saves that were
//! killed.

pub(crate) mod consistent_read;
pub mod external_data;
pub(crate) mod file_format;
pub(crate) mod file_source;
pub(crate) mod folder_files;
pub(crate) mod model_files;
pub(crate) mod overlaps;
pub(crate) mod recovery;
#[cfg(feature = "safetensors")]
pub(crate) mod safetensors_header;
