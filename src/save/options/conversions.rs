//! What converts to [`SaveOptions`], and what they convert to.

use super::SaveOptions;
use crate::buffer::TensorBufferOptions;
use crate::container::consolidate::ConsolidateOptions;
use crate::save::options::weight_files::WeightFiles;

impl From<WeightFiles> for SaveOptions {
    fn from(weight_files: WeightFiles) -> Self {
        Self { weight_files, ..Self::default() }
    }
}

impl From<TensorBufferOptions> for SaveOptions {
    fn from(buffers: TensorBufferOptions) -> Self {
        Self { buffers, ..Self::default() }
    }
}

impl AsRef<TensorBufferOptions> for SaveOptions {
    fn as_ref(&self) -> &TensorBufferOptions {
        &self.buffers
    }
}

impl From<SaveOptions> for TensorBufferOptions {
    fn from(options: SaveOptions) -> Self {
        options.buffers
    }
}

impl From<SaveOptions> for ConsolidateOptions {
    fn from(options: SaveOptions) -> Self {
        Self::from(options.buffers)
    }
}

impl From<bool> for SaveOptions {
    /// `true` is [`WeightFiles::Packed`], `false` is [`WeightFiles::PerTensor`].
    fn from(one_file: bool) -> Self {
        Self::from(if one_file { WeightFiles::Packed } else { WeightFiles::PerTensor })
    }
}
