//! The switch from the files of one save to those of the next, and the same switch after a crash.
//!
//! All new files are in the folder `new` of the staging folder, complete. The journal is put beside the model. Then
//! the old model is moved to `old`, the old weights after it, the new weights are moved into place, and the
//! new model last; so a model that is in place has its own weights at any time. Where no weights are replaced, the
//! new model replaces the old one with one rename. Then the journal is deleted, and the staging folder with it.
//!
//! Every step is a rename or the deletion of what nobody needs, and what is done is seen from where the files
//! are: whoever finds the journal and holds the lock of the folder goes on where the switch ended.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::recovery::journal::{Entry, Journal, Mark};
use crate::recovery::names::journal_name;

/// A staging folder beside the model.
#[derive(Debug)]
pub(crate) struct Switch {
    directory: PathBuf,
    /// The directory as the caller gave it, for messages.
    shown: PathBuf,
    staging: PathBuf,
    files: Vec<Entry>,
    sync: bool,
    /// Whether the switch was interrupted: some of its renames may be done.
    resumed: bool,
}

/// Which file has the name of one that the switch puts in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    Old,
    New,
    /// One that the switch does not know.
    Other,
}

/// Where the files of an entry are.
#[derive(Debug, Clone, Copy)]
struct Found {
    place: Place,
    /// Whether the new file is still in the staging folder, and has its length.
    staged: bool,
    /// Whether something is in the staging folder in place of the new file.
    damaged: bool,
    /// Whether the old file was moved to the staging folder.
    saved: bool,
}

/// What can be done with an interrupted switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// All files are in place.
    Done,
    Finish,
    Undo,
    /// Files that the switch does not know are in the way, or some that it needs are gone.
    None,
}

impl Switch {
    /// The switch to the files `names` in the folder `new` of `staging`, the model last. `is_there` says which of them
    /// may replace a file of `directory`; `shown` is the directory in messages.
    pub(crate) fn new(
        (directory, shown): (&Path, &Path),
        staging: &Path,
        names: &[String],
        is_there: impl Fn(&str) -> bool,
        sync: bool,
    ) -> Result<Self> {
        let mut files = Vec::with_capacity(names.len());
        for name in names {
            let staged = staging.join("new").join(name);
            let mark = |path: &Path| Mark::of(path).map_err(|error| Error::io(path, error));
            let gone = || Error::io(&staged, io::ErrorKind::NotFound.into());
            let new = mark(&staged)?.ok_or_else(gone)?;
            let old = is_there(name).then(|| mark(&directory.join(name))).transpose()?.flatten();
            files.push(Entry { name: name.clone(), new, old });
        }
        let (directory, shown) = (directory.to_path_buf(), shown.to_path_buf());
        Ok(Self { directory, shown, staging: staging.to_path_buf(), files, sync, resumed: false })
    }

    /// The switch of a journal in `directory`. What it renames is flushed to the disk.
    pub(super) fn of_journal(journal: Journal, directory: &Path) -> Self {
        let staging = directory.join(&journal.staging);
        let (directory, shown) = (directory.to_path_buf(), directory.to_path_buf());
        Self { directory, shown, staging, files: journal.files, sync: true, resumed: true }
    }

    /// Whether one rename is the whole switch, so that nobody ever has to complete it.
    pub(crate) fn is_one_rename(&self) -> bool {
        self.files.len() == 1
    }

    /// Puts the journal beside the model. Files of the staging folder are on the disk before, where that was asked for.
    pub(crate) fn announce(&self) -> Result<()> {
        let fail = |error| Error::io(&self.staging, error);
        let model = self.model().ok_or_else(|| Error::internal("a switch without a model"))?;
        let name = self.staging.file_name().and_then(|name| name.to_str());
        let staging = name.ok_or_else(|| Error::internal("a staging folder without a name"))?;
        let journal = Journal { staging: staging.to_owned(), files: self.files.clone() };
        let written = journal.write(&self.staging, self.sync).map_err(fail)?;
        fs::rename(written, self.journal_path(&model.name)).map_err(fail)?;
        self.flush()
    }

    /// Deletes the journal: nobody goes on with this switch.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(model) = self.model() else { return Ok(()) };
        let path = self.journal_path(&model.name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(path, error).because("the journal of the save cannot be deleted"))
            }
            _ => Ok(()),
        }
    }

    fn model(&self) -> Option<&Entry> {
        self.files.last()
    }

    fn weights(&self) -> &[Entry] {
        self.files.split_last().map_or(&[], |(_, weights)| weights)
    }

    fn journal_path(&self, model_name: &str) -> PathBuf {
        self.directory.join(journal_name(model_name))
    }

    pub(super) fn staging(&self) -> &Path {
        &self.staging
    }

    fn staged(&self, entry: &Entry) -> PathBuf {
        self.staging.join("new").join(&entry.name)
    }

    fn saved(&self, entry: &Entry) -> PathBuf {
        self.staging.join("old").join(&entry.name)
    }

    fn target(&self, entry: &Entry) -> PathBuf {
        self.directory.join(&entry.name)
    }

    /// Does the renames that are left, in the order that is stated above.
    pub(crate) fn finish(&self) -> Result<()> {
        let replaces_weights = self.weights().iter().any(|entry| entry.old.is_some());
        if replaces_weights {
            // The model first.
            for entry in self.files.iter().rev().filter(|entry| entry.old.is_some()) {
                if self.found(entry)?.place == Place::Old {
                    self.rename(&self.target(entry), &self.saved(entry), entry)?;
                }
            }
            self.flush()?;
        }
        for entry in self.weights() {
            self.put_in_place(entry, rename_to_free)?;
        }
        if !self.weights().is_empty() {
            self.flush()?;
        }
        let Some(model) = self.model() else { return Ok(()) };
        let replaces =
            !replaces_weights && model.old.is_some() && self.found(model)?.place == Place::Old;
        self.put_in_place(model, if replaces { fs::rename } else { rename_to_free })
    }

    fn put_in_place(
        &self,
        entry: &Entry,
        rename: impl FnOnce(PathBuf, PathBuf) -> io::Result<()>,
    ) -> Result<()> {
        match rename(self.staged(entry), self.target(entry)) {
            // It is there already.
            Err(error) if self.resumed && error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.map_err(|error| self.error(entry, error)),
        }
    }

    /// Moves the new files back to the staging folder, the model first, and then the old ones into place, the
    /// model last.
    pub(crate) fn undo(&self) -> Result<()> {
        for entry in self.files.iter().rev() {
            if self.found(entry)?.place == Place::New {
                self.rename(&self.target(entry), &self.staged(entry), entry)?;
            }
        }
        self.flush()?;
        for (number, entry) in self.files.iter().enumerate() {
            if !self.found(entry)?.saved {
                continue;
            }
            if number.saturating_add(1) == self.files.len() {
                self.flush()?;
            }
            self.rename(&self.saved(entry), &self.target(entry), entry)?;
        }
        self.flush()
    }

    /// What can be done now.
    pub(super) fn way(&self) -> Result<Way> {
        let all = self.files.iter().map(|entry| Ok((entry, self.found(entry)?)));
        let all: Vec<_> = all.collect::<Result<_>>()?;
        let is_staged = |(_, found): &(_, Found)| found.staged || found.damaged;
        let model_is_there = all.last().is_some_and(|(_, model)| model.place != Place::Free);
        if !all.iter().any(is_staged)
            && (model_is_there || !all.iter().any(|(_, found)| found.saved))
        {
            return Ok(Way::Done);
        }
        let goes_on = |(_, found): &(_, Found)| match found.place {
            Place::New => !found.damaged,
            Place::Free | Place::Old => found.staged,
            Place::Other => false,
        };
        let goes_back = |(entry, found): &(&Entry, Found)| match found.place {
            Place::Old => true,
            Place::New | Place::Free => entry.old.is_none() || found.saved,
            Place::Other => false,
        };
        Ok(if all.iter().all(goes_on) {
            Way::Finish
        } else if all.iter().all(goes_back) {
            Way::Undo
        } else {
            Way::None
        })
    }

    fn found(&self, entry: &Entry) -> Result<Found> {
        let mark = |path: PathBuf| Mark::of(&path).map_err(|error| Error::io(path, error));
        let staged = mark(self.staged(entry))?;
        let is_whole = staged.is_some_and(|mark| mark.len == entry.new.len);
        let place = match mark(self.target(entry))? {
            None => Place::Free,
            // A file that was moved to its place keeps its mark.
            Some(mark) if staged.is_none() && mark == entry.new => Place::New,
            Some(mark) if entry.old == Some(mark) => Place::Old,
            Some(_) => Place::Other,
        };
        let saved = entry.old.is_some() && mark(self.saved(entry))?.is_some();
        Ok(Found { place, staged: is_whole, damaged: staged.is_some() && !is_whole, saved })
    }

    fn rename(&self, from: &Path, to: &Path, entry: &Entry) -> Result<()> {
        rename_to_free(from, to).map_err(|error| self.error(entry, error))
    }

    fn error(&self, entry: &Entry, error: io::Error) -> Error {
        let shown = self.shown.join(&entry.name);
        match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let reason = "exists already: it was made while the save was running";
                Error::new(ErrorKind::AlreadyExists, reason).with_path(shown)
            }
            io::ErrorKind::PermissionDenied => Error::io(shown, error).because(
                "cannot be replaced: it may belong to another user, and in a folder that all users share \
                 only the owner may move a file",
            ),
            _ => Error::io(shown, error),
        }
    }

    /// Makes the renames before it durable, where that was asked for and the file system supports it.
    #[cfg(unix)]
    pub(crate) fn flush(&self) -> Result<()> {
        if self.sync { flush_folder(&self.directory, &self.shown) } else { Ok(()) }
    }

    /// Windows cannot open or flush a directory, and needs no flush.
    #[cfg(not(unix))]
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Flushes the entries of a folder to the disk.
#[cfg(unix)]
pub(crate) fn flush_folder(folder: &Path, shown: &Path) -> Result<()> {
    let unknown = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(error) if !unknown.contains(&error.kind()) => Err(Error::io(shown, error)),
        _ => Ok(()),
    }
}

/// Renames a file to a name that is not taken.
fn rename_to_free(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Some file systems do not support this flag. The lock still excludes other saves.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            other => return other.map_err(io::Error::from),
        }
    }
    match to.symlink_metadata() {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}
