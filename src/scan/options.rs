//! How a folder is scanned.

use crate::buffer::MmapChoice;
use crate::load::LoadOptions;

/// How [`scan`](super::scan) looks at a folder. A [`LoadOptions`] and a [`MmapChoice`] convert: by
/// them models are opened whose weights are compared.
///
/// ```
/// use onnx_container::scan::ScanOptions;
///
/// let options = ScanOptions::new().equal(true).min_equal_bytes(1 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct ScanOptions {
    pub(super) load: LoadOptions,
    pub(super) equal: bool,
    pub(super) min_equal_bytes: u64,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { load: LoadOptions::new(), equal: false, min_equal_bytes: 1024 }
    }
}

impl ScanOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether equal weights of different models are found. Weights are read, but only those of
    /// which another model has some of the same length. Default false.
    #[must_use]
    pub fn equal(mut self, equal: bool) -> Self {
        self.equal = equal;
        self
    }

    /// How long weights are that are compared: so many bytes, or more. Default 1 KiB.
    #[must_use]
    pub fn min_equal_bytes(mut self, bytes: u64) -> Self {
        self.min_equal_bytes = bytes;
        self
    }
}

impl From<LoadOptions> for ScanOptions {
    fn from(load: LoadOptions) -> Self {
        Self { load, ..Self::default() }
    }
}

impl From<MmapChoice> for ScanOptions {
    fn from(mmap: MmapChoice) -> Self {
        LoadOptions::from(mmap).into()
    }
}
