//! A save never replaces the weights files that its container was filled from.
//!
//! These files are the user's checkpoint. They are protected even where the save names one of them,
//! and even where no initializer refers to them any more, such as the index of several shards, or a
//! shard whose weights were all replaced.

use std::path::Path;

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::save::target::SavedFile;
use crate::util::file_id::{self, FileId};

/// Refuses to write `files` into `directory` where one of them would replace a file that
/// `container` was filled from, under any of its names.
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
    Error::join(refused).map_or(Ok(()), Err)
}

/// Identifies the file at `path`, also under another name, through a link, or in another case.
/// `None` where there is no file.
fn identity(path: &Path) -> Option<FileId> {
    file_id::at(path).ok()
}
