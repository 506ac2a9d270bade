//! The journals of a switch: one beside each model that it replaces, from before the first rename
//! to after the last one. A reader of a model finds by it what a killed process left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::journal::Journal;
use crate::files::recovery::names::journal_name;
use crate::files::recovery::switch::Switch;
use crate::util::retry::retried;

impl Switch {
    /// Puts the journal beside each model, or leaves none. Files of the staging folder are on the
    /// disk before, where that was asked for.
    pub(crate) fn announce(&self) -> Result<()> {
        let model = self.model().ok_or_else(|| Error::internal("a switch without a model"))?;
        let mut made = Vec::new();
        for name in self.other_models.iter().chain([&model.name]) {
            match self.announce_beside(name) {
                Ok(path) => made.push(path),
                Err(error) => {
                    made.iter().for_each(|path| drop(fs::remove_file(path)));
                    return Err(error);
                }
            }
        }
        // Nothing was renamed yet. A journal that stays all the same is known to be done by its
        // staging folder, which goes.
        self.flush().inspect_err(|_| drop(self.close()))
    }

    /// Puts the journal beside the model `model_name`, and returns its path.
    fn announce_beside(&self, model_name: &str) -> Result<PathBuf> {
        let fail = |error| Error::io(&self.staging, error);
        let name = self.staging.file_name().and_then(|name| name.to_str());
        let staging = name.ok_or_else(|| Error::internal("a staging folder without a name"))?;
        let (staging, inode) = (staging.to_owned(), self.inode()?);
        let journal = Journal { staging, inode, files: self.files.clone() };
        let written = journal.write(&self.staging, self.sync).map_err(fail)?;
        let path = self.journal_path(model_name);
        // Where there are no locks, another save may have left one.
        rename_to_free(&written, &path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => interrupted(&self.directory.path().join(model_name)),
            _ => fail(error),
        })?;
        Ok(path)
    }

    /// Deletes the journals: nobody goes on with this switch.
    pub(crate) fn close(&self) -> Result<()> {
        let model = self.model().map(|model| &model.name);
        for name in self.other_models.iter().chain(model) {
            let path = self.journal_path(name);
            match retried(|| fs::remove_file(&path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let said = "the journal of the save cannot be deleted";
                    return Err(Error::io(path, error).because(said));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn journal_path(&self, model_name: &str) -> PathBuf {
        self.directory.path().join(journal_name(model_name))
    }
}

/// The error for the model at `path`, whose switch somebody else has announced.
pub(crate) fn interrupted(path: &Path) -> Error {
    let reason = "a save of this model is running, or was interrupted: when none is running, `recover` of its folder \
                  completes it";
    Error::new(ErrorKind::Changed, reason).with_path(path)
}

/// Renames a file to a name that is not taken.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match retried(|| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)) {
            // Some file systems do not support this flag. The lock still excludes other saves.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            other => return other.map_err(io::Error::from),
        }
    }
    match retried(|| to.symlink_metadata()) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => retried(|| fs::rename(from, to)),
    }
}
