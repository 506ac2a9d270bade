//! Which tensors are consolidated: [`ConsolidateOptions`].

use crate::buffer::Alignment;
use crate::buffer::TensorBufferOptions;
use crate::wire::DecodeOptions;

/// Which tensors [`consolidate`](fn@crate::edit::consolidate) moves, and how.
/// [`TensorBufferOptions`] convert.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsolidateOptions {
    /// Which tensors take part, and how they are aligned. By default every tensor, at any address.
    pub buffers: TensorBufferOptions,
    /// Whether tensors whose elements are in a typed field (`float_data` and others) take part:
    /// they become `raw_data`.
    pub typed_fields: bool,
}

impl ConsolidateOptions {
    /// The defaults: every tensor that holds bytes, at any address; typed fields are not moved.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves tensors of at least `bytes` bytes; smaller ones are not moved. Default 0.
    #[must_use]
    pub fn raw_data_threshold(mut self, bytes: u64) -> Self {
        self.buffers.raw_data_threshold = bytes;
        self
    }

    /// The alignment of the buffer and of every tensor in it. Default `None`.
    #[must_use]
    pub fn alignment(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.buffers.alignment = alignment.into();
        self
    }

    /// Also moves tensors whose elements are in a typed field; they become `raw_data`. Default
    /// false.
    #[must_use]
    pub fn typed_fields(mut self, typed_fields: bool) -> Self {
        self.typed_fields = typed_fields;
        self
    }
}

impl From<TensorBufferOptions> for ConsolidateOptions {
    fn from(buffers: TensorBufferOptions) -> Self {
        Self { buffers, typed_fields: false }
    }
}

impl From<DecodeOptions> for ConsolidateOptions {
    fn from(options: DecodeOptions) -> Self {
        Self::from(TensorBufferOptions::from(options))
    }
}

impl From<ConsolidateOptions> for TensorBufferOptions {
    fn from(options: ConsolidateOptions) -> Self {
        options.buffers
    }
}

impl AsRef<TensorBufferOptions> for ConsolidateOptions {
    fn as_ref(&self) -> &TensorBufferOptions {
        &self.buffers
    }
}
