//! The switch from the files of one save to those of the next, and the same switch after a crash.
//!
//! All new files are in the folder `new` of the staging folder, complete. The journal is put beside
//! the model. Then the old model is moved to `old`, the old weights after it, the new weights are
//! moved into place, and the new model last; so a model that is in place has its own weights at any
//! time. Where no weights are replaced, the new model replaces the old one with one rename. Then
//! what is in the staging folder is deleted, and the journal last.
//!
//! Every step is a rename or the deletion of what nobody needs, and what is done is seen from where
//! the files are: a process that finds the journal and holds the lock of the folder goes on where
//! the switch ended.
//!
//! # Where the files are says it, not how old or long they are
//!
//! Old and new files often have one length, as those of two checkpoints of a model do, and one
//! time, where the clock of the file system is coarser than a save is quick. So neither tells the
//! old file of a name from the new one. This does:
//!
//! | in `new` | in `old` | the file in place is |
//! |---|---|---|
//! | yes | no | the old one: the new one is not moved yet |
//! | no | yes | the new one |
//! | no | no, and it had an old one | the old one: the new one is lost, or was deleted by an undo |
//! | no | no, and it had none | the new one |
//!
//! The third line has an exception: a model that replaces the old one with one rename, since the
//! old one is not kept then. It is the new one where no weights are left in `new`, as they are
//! moved first, unless its mark is that of the old one alone. Where both have one mark and the new
//! model was lost, that is wrong and harms nobody: the weights of such a switch have names of their
//! own, so that each of the two models has its weights.
//!
//! Of two kinds of files, old and new ones, never are both in place: all old files are moved away
//! before a new one is moved into place, and an undo takes all new ones back before it returns the
//! first old one. Deleting begins when all new files are in place. So where every name is taken and
//! nothing is in `new`, all files in place are of one save, and what is in `old` is needed by
//! nobody: the switch is done, whatever their marks are (`is_done`).
//!
//! A power failure may leave both names of a rename (btrfs): then a file in `new` or `old` is the
//! one in place, and counts as not there (`is_second_name`).
//!
//! A file that the switch removes, because the new model does not need it, is an old file without a
//! new one: it is moved to `old`, and what is in its place when all new files are in theirs is not
//! looked at.
//!
//! A switch that only removes, the model too, is in `removal`.
//!
//! The marks in the journal are compared where the table above has said which file it must be. One
//! that is another was put there by a stranger, and nothing is touched.

pub(super) mod announced;
mod removal;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::found::Position;
use crate::files::recovery::journal::{FileKind, Journal, JournalEntry, Mark};
use crate::files::recovery::names::staged_name;
use crate::files::recovery::place::{IN_USE, OpenFolder, RenameTarget, in_use};
use crate::files::recovery::staging::remove_parts;

/// A switch from the files of a folder to those of a staging folder in it.
#[derive(Debug)]
pub(crate) struct Switch {
    directory: OpenFolder,
    /// The directory as the caller gave it, for messages.
    shown: PathBuf,
    staging: PathBuf,
    /// The staging folder; `None` where it is gone.
    folder: Option<OpenFolder>,
    /// The folder of the new files; `None` where it is gone.
    new: Option<OpenFolder>,
    /// The folder that old files are moved to; `None` where it is gone.
    old: Option<OpenFolder>,
    /// The folders below the directory that files of the switch are in, by their paths from there;
    /// `None` where one is gone.
    below: BTreeMap<String, Option<OpenFolder>>,
    pub(super) files: Vec<JournalEntry>,
    /// The models among the files other than the last.
    other_models: Vec<String>,
    sync: bool,
    /// Whether the switch was interrupted: some of its renames may be done.
    resumed: bool,
    /// Whether the inodes of the journal are those of now.
    knows_inodes: bool,
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
    /// The switch to the files `names` in the folder `new` of `staging`, the model last. `is_there`
    /// says which of them may replace a file of `directory`; `shown` is the directory in messages.
    pub(crate) fn new(
        (directory, shown): (&Path, &Path),
        staging: &Path,
        names: &[String],
        is_there: impl Fn(&str) -> bool,
        sync: bool,
    ) -> Result<Self> {
        let name = staging.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::internal("a staging folder without a name"))?;
        let mut switch = Self::open((directory, shown), name, sync, false)?;
        let mut files = Vec::with_capacity(names.len());
        switch.below = switch.open_below(names.iter().map(String::as_str))?;
        for name in names {
            let staged = staged_name(name);
            let gone =
                || Error::io(staging.join("new").join(&*staged), io::ErrorKind::NotFound.into());
            let (new, _) = switch.mark(switch.new.as_ref(), &staged)?.ok_or_else(gone)?;
            let entry = JournalEntry { name: name.clone(), new: Some(new), old: None };
            let in_place = || switch.mark(switch.place_of(&entry), entry.place().1);
            let old = is_there(name).then(in_place).transpose()?.flatten();
            if old.is_some_and(|(_, kind)| !kind.is_replaceable()) {
                let reason = "neither a file nor a link: it is not replaced";
                let path = switch.shown.join(name);
                return Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(path));
            }
            files.push(JournalEntry { old: old.map(|(mark, _)| mark), ..entry });
        }
        switch.files = files;
        Ok(switch)
    }

    /// The switch of several models: `names` are those other than the last file. A reader of any of
    /// them finds a journal beside it.
    pub(crate) fn with_other_models(self, names: &[String]) -> Self {
        Self { other_models: names.to_vec(), ..self }
    }

    /// The switch that removes the files `names` of its directory too, which the new model does not
    /// need.
    pub(crate) fn removing(mut self, names: &[String]) -> Result<Self> {
        for name in names {
            let found = self.mark(Some(&self.directory), name)?;
            if let Some((mark, _)) = found.filter(|(_, kind)| kind.is_replaceable()) {
                let entry = JournalEntry { name: name.clone(), new: None, old: Some(mark) };
                // Before the models, which come last: they are taken away first, and put back last.
                let weights = self.weights().len().saturating_sub(self.other_models.len());
                self.files.insert(weights, entry);
            }
        }
        Ok(self)
    }

    /// The switch of a journal in `directory`. What it renames is flushed to the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where links or files are in the place of the staging folder or of those in
    /// it.
    pub(super) fn of_journal(journal: Journal, directory: &Path) -> Result<Self> {
        let switch = Self::open((directory, directory), &journal.staging, true, true)?;
        let knows_inodes = journal.inode.is_some() && journal.inode == switch.inode()?;
        let below = switch.open_below(journal.files.iter().map(|entry| entry.name.as_str()))?;
        let other_models = journal.other_models(directory)?;
        Ok(Self { files: journal.files, other_models, below, knows_inodes, ..switch })
    }

    fn open(
        (directory, shown): (&Path, &Path),
        staging: &str,
        sync: bool,
        resumed: bool,
    ) -> Result<Self> {
        let path = directory.join(staging);
        let failed = |error| Error::io(&path, error);
        let directory = OpenFolder::open(directory).map_err(|error| Error::io(shown, error))?;
        let folder = directory.inside(staging).map_err(failed)?;
        let part = |name| match &folder {
            Some(folder) => folder.inside(name).map_err(failed),
            None => Ok(None),
        };
        let (new, old) = (part("new")?, part("old")?);
        let (shown, files, below) = (shown.to_path_buf(), Vec::new(), BTreeMap::new());
        let other_models = Vec::new();
        let knows_inodes = false;
        Ok(Self {
            directory,
            shown,
            staging: path,
            folder,
            new,
            old,
            below,
            files,
            other_models,
            sync,
            resumed,
            knows_inodes,
        })
    }

    /// The folders below the directory that files called `names` are in.
    fn open_below<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<BTreeMap<String, Option<OpenFolder>>> {
        let folders: BTreeSet<&str> =
            names.filter_map(|name| Some(name.rsplit_once('/')?.0)).collect();
        let open = |folder: &str| {
            let place = self.directory.beneath(folder);
            let fail = |error| Error::io(self.shown.join(folder), error);
            Ok((folder.to_owned(), place.map_err(fail)?))
        };
        folders.into_iter().map(open).collect()
    }

    /// The folder that a file of the switch is put into; `None` where it is gone.
    fn place_of(&self, entry: &JournalEntry) -> Option<&OpenFolder> {
        match entry.place().0 {
            None => Some(&self.directory),
            Some(folder) => self.below.get(folder)?.as_ref(),
        }
    }

    /// The inode of the staging folder.
    fn inode(&self) -> Result<Option<u64>> {
        let inode = self.folder.as_ref().map(OpenFolder::inode).transpose();
        Ok(inode.map_err(|error| Error::io(&self.staging, error))?.flatten())
    }

    /// Whether one rename is the whole switch, so that nobody ever has to complete it.
    pub(crate) fn is_one_rename(&self) -> bool {
        self.files.len() == 1
    }

    fn model(&self) -> Option<&JournalEntry> {
        self.files.last()
    }

    fn weights(&self) -> &[JournalEntry] {
        self.files.split_last().map_or(&[], |(_, weights)| weights)
    }

    /// Whether new files are in the staging folder, and whether old ones are.
    pub(super) fn has_files(&self) -> (bool, bool) {
        let any = |place: Option<&OpenFolder>| {
            place.is_some_and(|place| place.names().is_ok_and(|names| !names.is_empty()))
        };
        (any(self.new.as_ref()), any(self.old.as_ref()))
    }

    pub(super) fn staging(&self) -> &Path {
        &self.staging
    }

    /// Removes the files of this switch from the staging folder, and then the folder, which stays
    /// where anything else is in it. Where it is gone, that is on the disk before anybody deletes
    /// the journal.
    pub(crate) fn remove_staging(&self) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let failed = |error| Error::io(&self.staging, error);
        for entry in &self.files {
            for part in [&self.new, &self.old].into_iter().flatten() {
                let staged = entry.staged();
                part.delete(&*staged).map_err(|error| {
                    let (said, path) = (in_use(&error), part.path().join(&*staged));
                    let error = Error::io(path, error);
                    if let Some(said) = said { error.because(said) } else { error }
                })?;
            }
        }
        self.refuse_used()?;
        remove_parts(folder).map_err(failed)?;
        let name = self.staging.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::internal("a staging folder without a name"))?;
        self.directory.remove_empty(name).map_err(failed)?;
        // Where a disk cannot do that, a power failure may bring back old files, of which nobody
        // knows that they are.
        drop(self.flush());
        Ok(())
    }

    /// An error where a file that was deleted is there all the same: Windows may delete one that is
    /// in use only when nobody uses it any more.
    fn refuse_used(&self) -> Result<()> {
        for entry in self.files.iter().filter(|_| cfg!(windows)) {
            for part in [&self.new, &self.old].into_iter().flatten() {
                if self.mark(Some(part), &entry.staged())?.is_some() {
                    let path = part.path().join(&*entry.staged());
                    return Err(Error::io(path, io::ErrorKind::ResourceBusy.into()).because(IN_USE));
                }
            }
        }
        Ok(())
    }

    fn mark(&self, place: Option<&OpenFolder>, name: &str) -> Result<Option<(Mark, FileKind)>> {
        let Some(place) = place else { return Ok(None) };
        place.mark(name).map_err(|error| Error::io(place.path().join(name), error))
    }

    /// Does the renames that are left, in the order that is stated above.
    pub(crate) fn finish(&self) -> Result<()> {
        let replaces_weights = self.replaces_weights();
        if replaces_weights {
            // The model first.
            for entry in self.files.iter().rev().filter(|entry| entry.old.is_some()) {
                // A file that is only to be removed stays where it is by now: since the switch was
                // interrupted, other models may have come to need it.
                if self.resumed && entry.new.is_none() {
                    continue;
                }
                if self.found(entry)?.position == Position::Old {
                    self.take_away(entry, self.old.as_ref())?;
                }
            }
            // First where they are now: no old file is lost between the two.
            self.flush_old()?;
            self.flush()?;
        }
        // Weights are on the disk before the first model that needs them.
        let number = self.weights().len().saturating_sub(self.other_models.len());
        let (weights, models) = self.weights().split_at_checked(number).unwrap_or_default();
        let put = |entry: &JournalEntry| match entry.new {
            Some(_) => self.put_in_place(entry, RenameTarget::Free),
            None => Ok(()),
        };
        weights.iter().try_for_each(put)?;
        if !weights.is_empty() {
            self.flush()?;
        }
        models.iter().try_for_each(put)?;
        let Some(model) = self.model() else { return Ok(()) };
        let replaces = !replaces_weights
            && model.old.is_some()
            && self.found(model)?.position == Position::Old;
        self.put_in_place(model, if replaces { RenameTarget::Replaced } else { RenameTarget::Free })
    }

    fn put_in_place(&self, entry: &JournalEntry, target: RenameTarget) -> Result<()> {
        if self.resumed && self.found(entry)?.position == Position::New {
            return Ok(());
        }
        self.put(entry, self.new.as_ref(), target)
    }

    /// Whether all new files are in place.
    pub(crate) fn is_done(&self) -> bool {
        self.way().is_ok_and(|way| way == Way::Done)
    }

    fn replaces_weights(&self) -> bool {
        self.weights().iter().any(|entry| entry.old.is_some())
    }

    /// Whether the last rename is the one that replaces the old model, which is not kept.
    fn replaces_model(&self) -> bool {
        !self.replaces_weights() && self.model().is_some_and(|model| model.old.is_some())
    }

    /// Moves the new files back to the staging folder, the model first, and then the old ones into
    /// place, the model last. The new model is deleted, so that a process that continues this
    /// switch undoes it too; but not where it would have replaced the old one with one rename,
    /// since one that is gone may have done so.
    ///
    /// # Errors
    /// When a file cannot be renamed. That a folder cannot be flushed ends nothing here: the old
    /// files come first.
    pub(crate) fn undo(&self) -> Result<()> {
        for (number, entry) in self.files.iter().enumerate().rev() {
            if self.found(entry)?.position == Position::New {
                self.take_away(entry, self.new.as_ref())?;
            }
            let is_deleted = self.is_last(number) && !self.replaces_model();
            if let Some(new) = self.new.as_ref().filter(|_| is_deleted) {
                new.delete(&*entry.staged()).map_err(|error| self.error(entry, error))?;
            }
        }
        drop(self.flush());
        for (number, entry) in self.files.iter().enumerate() {
            if !self.found(entry)?.saved {
                continue;
            }
            if self.is_last(number) {
                drop(self.flush());
            }
            self.put(entry, self.old.as_ref(), RenameTarget::Free)?;
        }
        drop(self.flush());
        // A disk may have the names in `old` too, and without the journal nobody knows that.
        drop(self.flush_old());
        Ok(())
    }

    fn is_last(&self, number: usize) -> bool {
        number.saturating_add(1) == self.files.len()
    }

    /// Moves the file of `entry` from a folder of the staging folder into its place.
    fn put(
        &self,
        entry: &JournalEntry,
        from: Option<&OpenFolder>,
        target: RenameTarget,
    ) -> Result<()> {
        let renamed = match from.zip(self.place_of(entry)) {
            Some((from, to)) => from.rename(&entry.staged(), (to, entry.place().1), target),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        renamed.map_err(|error| self.error(entry, error))
    }

    /// Moves the file that is in the place of `entry` to a folder of the staging folder.
    fn take_away(&self, entry: &JournalEntry, to: Option<&OpenFolder>) -> Result<()> {
        let renamed = match self.place_of(entry).zip(to) {
            Some((from, to)) => {
                from.rename(entry.place().1, (to, &*entry.staged()), RenameTarget::Free)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        };
        renamed.map_err(|error| self.error(entry, error))
    }

    fn error(&self, entry: &JournalEntry, error: io::Error) -> Error {
        let shown = self.shown.join(&entry.name);
        if let Some(said) = in_use(&error) {
            return Error::io(shown, error).because(said);
        }
        match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let reason = "exists already: it was made while the save was running";
                Error::new(ErrorKind::AlreadyExists, reason).with_path(shown)
            }
            io::ErrorKind::CrossesDevices => Error::io(shown, error).because(
                "this folder is on another file system than the model, so files cannot be moved there: save \
                 the weights beside the model, or make the folder a part of the model's file system",
            ),
            io::ErrorKind::PermissionDenied => Error::io(shown, error).because(
                "cannot be replaced: it may belong to another user, and in a folder that all users share \
                 only the owner may move a file",
            ),
            _ => Error::io(shown, error),
        }
    }

    /// Makes the renames before it durable, where that was asked for and the file system supports
    /// it.
    pub(crate) fn flush(&self) -> Result<()> {
        if !self.sync {
            return Ok(());
        }
        // The models first: where both names of renames may be on the disk, one that is taken away
        // must not be there when its weights are not.
        self.directory.flush().map_err(|error| Error::io(&self.shown, error))?;
        for below in self.below.values().flatten() {
            below.flush().map_err(|error| Error::io(below.path(), error))?;
        }
        Ok(())
    }

    fn flush_staging(&self) -> Result<()> {
        let folder = self.folder.as_ref().filter(|_| self.sync);
        folder.map_or(Ok(()), |it| it.flush().map_err(|error| Error::io(it.path(), error)))
    }

    fn flush_old(&self) -> Result<()> {
        let old = self.old.as_ref().filter(|_| self.sync);
        old.map_or(Ok(()), |old| old.flush().map_err(|error| Error::io(old.path(), error)))
    }
}

/// Flushes the entries of a folder to the disk, where the file system can.
pub(crate) fn flush_folder(folder: &Path, shown: &Path) -> Result<()> {
    OpenFolder::open(folder)
        .and_then(|folder| folder.flush())
        .map_err(|error| Error::io(shown, error))
}
