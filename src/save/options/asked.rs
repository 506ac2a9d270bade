//! What the options of a save ask for, for crates that save in their own way.

use super::SaveOptions;
use super::weight_files::WeightFiles;

impl SaveOptions {
    /// The [`weight_files`](Self::weight_files) that were asked for.
    pub fn files(&self) -> WeightFiles {
        self.weight_files
    }

    /// Whether [`digests`](Self::digests) were asked for.
    pub fn has_digests(&self) -> bool {
        self.digests
    }

    /// Whether [`checksums`](Self::checksums) were asked for.
    pub fn has_checksums(&self) -> bool {
        self.checksums
    }
}
