//! The options of every operation that places tensor bytes in memory or in a file: which tensors
//! take part, and how their addresses are aligned.
//!
//! The options of parsing, saving and consolidating contain these, so that they mean the same
//! everywhere.

use crate::buffer::alignment::Alignment;

/// Which tensors an operation on tensor bytes concerns, and how it aligns them.
///
/// The options of parsing ([`DecodeOptions`], `LoadOptions`), saving (`SaveOptions`) and
/// consolidating (`ConsolidateOptions`) contain these and convert to them, so that a call that
/// takes `impl Into<TensorBufferOptions>` takes any of them.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::buffer::TensorBufferOptions;
/// use onnx_container::Alignment;
/// use onnx_container::proto::DecodeOptions;
///
/// let options = TensorBufferOptions::new().alignment(Alignment::CACHE_LINE);
/// assert_eq!(options.raw_data_threshold, 0);
/// let decoded = DecodeOptions::from(options);
/// assert_eq!(TensorBufferOptions::from(decoded), options);
/// assert_eq!(TensorBufferOptions::from(DecodeOptions::new()).raw_data_threshold, 1024);
/// ```
///
/// [`DecodeOptions`]: crate::proto::DecodeOptions
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TensorBufferOptions {
    /// A tensor of at least this many bytes takes part.
    pub raw_data_threshold: u64,
    /// The alignment of the tensors' addresses or file offsets; `None` requests none.
    pub alignment: Option<Alignment>,
}

impl TensorBufferOptions {
    /// The defaults: every tensor, at any address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Concerns tensors of at least `bytes` bytes. Default 0.
    #[must_use]
    pub fn raw_data_threshold(mut self, bytes: u64) -> Self {
        self.raw_data_threshold = bytes;
        self
    }

    /// Aligns tensors; `None` requests no alignment. Default `None`.
    #[must_use]
    pub fn alignment(mut self, alignment: impl Into<Option<Alignment>>) -> Self {
        self.alignment = alignment.into();
        self
    }

    /// Whether a tensor of `len` bytes takes part.
    #[doc(hidden)]
    pub fn concerns(&self, len: usize) -> bool {
        u64::try_from(len).is_ok_and(|len| len >= self.raw_data_threshold)
    }

    /// The alignment; [`Alignment::DENSE`] where none was requested.
    #[doc(hidden)]
    pub fn alignment_or_dense(&self) -> Alignment {
        self.alignment.unwrap_or(Alignment::DENSE)
    }
}

impl AsRef<Self> for TensorBufferOptions {
    fn as_ref(&self) -> &Self {
        self
    }
}
