//! The files of weights that a container was filled from are not replaced by a save of it.
//!
//! They are somebody's checkpoint, whatever name a save was asked to write, and also where no initializer
//! lies in them any more: the index of several shards, a shard whose weights were all replaced.

use std::path::Path;

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::save::target::SavedFile;

/// Refuses to write `files` into `directory` where one of them would take the place of a file that
/// `container` was filled from, by whatever name.
pub(crate) fn refuse_attached(
    container: &Container,
    directory: &Path,
    files: &[SavedFile],
) -> Result<()> {
    let attached: Vec<_> = container.attached.iter().filter_map(|path| identity(path)).collect();
    if attached.is_empty() {
        return Ok(());
    }
    let paths = files.iter().map(|file| directory.join(&file.name));
    let read = paths.filter(|path| identity(path).is_some_and(|id| attached.contains(&id)));
    let refused = read.map(|path| {
        let reason = "the weights were read from this file: it is not replaced, name another one";
        Error::new(ErrorKind::AlreadyExists, reason).with_path(path)
    });
    Error::join(refused.collect()).map_or(Ok(()), Err)
}

/// What tells the file at `path` from every other: also by another name, through a link, or in another
/// case. `None` where there is no file.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// What tells the file at `path` from every other. `None` where there is no file.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<std::path::PathBuf> {
    path.canonicalize().ok()
}
