//! What `scan` found in a folder: models, and what commands left.

use std::path::PathBuf;

use onnx_container::scan::Scan;
use onnx_container_files::unfinished;

/// What is in a folder.
pub struct Scanned {
    pub scan: Scan,
    /// Files of commands that were killed and wrote something else than models.
    pub unfinished: Vec<Unfinished>,
}

/// A file that a command which was killed left.
pub struct Unfinished {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Scanned {
    /// With what commands left in the folders of `scan`.
    pub fn new(scan: Scan) -> Self {
        let left = scan.folders.iter().flat_map(|folder| unfinished::abandoned(folder));
        let sized = |path: PathBuf| {
            let bytes = path.symlink_metadata().map_or(0, |metadata| metadata.len());
            Unfinished { path, bytes }
        };
        let unfinished = left.map(sized).collect();
        Self { scan, unfinished }
    }

    /// The bytes of what nobody needs.
    pub fn reclaimable_bytes(&self) -> u64 {
        let unfinished = self.unfinished.iter().map(|file| file.bytes);
        unfinished.fold(self.scan.reclaimable(), u64::saturating_add)
    }
}
