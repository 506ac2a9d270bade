//! Stage beside the target, then rename: the files of a save appear together or not at all.
//!
//! New files are written into a staging folder in the target's directory. When all are complete,
//! and flushed to the disk where that was requested, they are renamed into place by a switch that
//! anybody can complete after a crash; see `recovery`. When a rename fails, those before it are
//! undone.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::{
    FolderLock, StagingFolder, Switch, flush_folder, recover_all, refuse_journaled, staged_name,
};
use crate::save::options::SaveOptions;
use crate::save::options::statistics::timed;
use crate::save::target::access::{Access, Lost};
use crate::save::target::folder::ModelFolder;
use crate::save::target::listing::Listing;
use crate::util::parallel;
use crate::util::retry::retried;

/// How many new files stay open until they are flushed; others are opened again.
const MOST_OPEN: usize = 8;
/// More threads than this do not flush faster.
const MAX_THREADS: usize = 4;

/// The error of a folder in which no staging folder can be made.
fn cannot_write(folder: &Path, error: io::Error) -> Error {
    let plain = io::Error::from(error.kind());
    Error::io(folder, plain).because("cannot write in this folder")
}

/// A staging folder, with `new` files in it and a place for the `old` ones.
pub(crate) struct Staging {
    directory: PathBuf,
    /// As the caller gave it, for messages.
    directory_given: PathBuf,
    /// Who may read the model that is replaced.
    model_access: Option<Access>,
    /// The first of the new files, still open. Closed before the folder is removed: a network file
    /// system keeps what is open.
    open: Mutex<HashMap<String, File>>,
    folder: StagingFolder,
    names: Vec<String>,
    /// What the list of the folder names. The model is among the first, so that most saves flush
    /// the list once.
    listed: HashSet<String>,
    named_after: String,
    /// The models among them other than the last.
    other_models: Vec<String>,
    /// New files that were not given all of the access to those that they replace.
    not_kept: Mutex<BTreeMap<Lost, Vec<String>>>,
    /// The files in the target's directory before the first of them is written.
    there: Listing,
    /// How long files were written and flushed.
    pub(crate) writing: Duration,
    pub(crate) flushing: Duration,
    /// How long lazy weights were made for them, as the caller tells.
    pub(crate) producing: Duration,
    options: SaveOptions,
}

impl Staging {
    /// A new staging folder in `directory`, named after the model.
    pub(crate) fn new(
        directory_given: &Path,
        model_name: &str,
        options: &SaveOptions,
    ) -> Result<Self> {
        let fail = |e| Error::io(directory_given, e);
        // Absolute: the current directory may change before the files are published.
        let directory = std::path::absolute(directory_given).map_err(fail)?;
        let folder = StagingFolder::new(&directory, model_name)
            .map_err(|error| cannot_write(directory_given, error))?;
        Ok(Self {
            model_access: Access::of(&directory.join(model_name)),
            directory,
            directory_given: directory_given.to_path_buf(),
            folder,
            names: Vec::new(),
            listed: HashSet::new(),
            named_after: model_name.to_owned(),
            other_models: Vec::new(),
            there: Listing::default(),
            not_kept: Mutex::default(),
            open: Mutex::default(),
            writing: Duration::ZERO,
            flushing: Duration::ZERO,
            producing: Duration::ZERO,
            options: options.clone(),
        })
    }

    /// Lists the files that will be created next and published as `names`, the model last.
    pub(crate) fn list<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) -> Result<()> {
        let names: Vec<_> = names.into_iter().map(str::to_owned).collect();
        let staged = names.iter().chain([&self.named_after]).map(|name| staged_name(name));
        let new: Vec<_> =
            staged.map(Cow::into_owned).filter(|name| self.listed.insert(name.clone())).collect();
        if !new.is_empty() {
            self.folder
                .list(&new, self.options.sync)
                .map_err(|error| cannot_write(&self.directory_given, error))?;
        }
        self.there = Listing::of(&self.directory, names.len());
        self.names.extend(names);
        Ok(())
    }

    /// Says which of the files are models, beside the last one.
    pub(crate) fn has_other_models(&mut self, names: Vec<String>) {
        self.other_models = names;
    }

    /// Creates the file that will be published as `name`. It gets the owner, group, mode and list
    /// of the file that it replaces, or else of the replaced model, so that new weights are not
    /// more accessible than the model was. Where neither exists, the umask decides.
    pub(crate) fn create(&self, name: &str) -> Result<NewFile> {
        let staged = self.staged(name);
        let path = self.directory.join(name);
        let fail = |error| Error::io(&staged, error);
        let file = File::create_new(&staged).map_err(fail)?;
        let replaced = self.there.may_have(name).then(|| Access::of(&path)).flatten();
        if let Some(access) = replaced.as_ref().or(self.model_access.as_ref()) {
            let lost = access.give(&file).map_err(fail)?;
            if lost.is_some() {
                let mut not_kept = self.not_kept.lock().unwrap_or_else(PoisonError::into_inner);
                not_kept.entry(lost).or_default().push(name.to_owned());
            }
        }
        if self.options.sync {
            self.keep_open(name, &file);
        }
        Ok(NewFile { file, staged, path })
    }

    /// Gives the file at `source` the name of the staged `name` too; links are not followed.
    ///
    /// # Errors
    /// That of the system, which may have no second names for this file.
    pub(crate) fn link(&self, name: &str, source: &Path) -> io::Result<()> {
        retried(|| std::fs::hard_link(source, self.staged(name)))
    }

    /// A warning for all files that were not given the access to those that they replace.
    fn access_warnings(&self) -> Vec<Error> {
        let not_kept = self.not_kept.lock().unwrap_or_else(PoisonError::into_inner);
        not_kept.iter().map(|(lost, names)| lost.warning(&self.directory_given, names)).collect()
    }

    /// Keeps the file open until it is flushed, if only few are, so that no error of the disk is
    /// missed.
    fn keep_open(&self, name: &str, file: &File) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < MOST_OPEN
            && let Ok(file) = file.try_clone()
        {
            open.insert(name.to_owned(), file);
        }
    }

    /// Where the file that will be published as `name` is now.
    pub(crate) fn staged(&self, name: &str) -> PathBuf {
        self.folder.new_files().join(&*staged_name(name))
    }

    /// Waits until all files are on the disk, where that was requested.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if !self.options.sync {
            return Ok(());
        }
        let open = std::mem::take(&mut self.open).into_inner();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        let mut flushing = self.flushing;
        timed(&mut flushing, || {
            parallel::for_each(parallel::cores(MAX_THREADS), self.names.iter(), |name| {
                let staged = self.staged(name);
                let flushed = match open.get(name) {
                    Some(file) => file.sync_all(),
                    None => open_again(&staged).and_then(|file| file.sync_all()),
                };
                flushed.map_err(|error| Error::io(&staged, error))
            })
        })?;
        self.flushing = flushing;
        Ok(())
    }

    /// Locks the folder and `others`, so that no other save renames files there, and completes or
    /// undoes a save that was killed in the meantime.
    ///
    /// # Errors
    /// Those of the locks and of that save; the staging folder is then removed.
    pub(crate) fn lock(self, mut others: Vec<PathBuf>) -> Result<LockedStaging> {
        others.push(self.directory.clone());
        match self.locks(&others) {
            Ok(locks) => Ok(LockedStaging { staging: self, locks }),
            Err(error) => Err(self.discard(error)),
        }
    }

    fn locks(&self, folders: &[PathBuf]) -> Result<Vec<FolderLock>> {
        if self.options.sync {
            flush_folder(&self.folder.new_files(), &self.directory_given)?;
        }
        let locks = self.options.lock_all(folders)?;
        let model_name = self.model_name()?;
        // Another save may have been killed while this one was writing.
        if locks.iter().all(FolderLock::is_held) {
            for (is_own, recovered) in recover_all(&self.directory, Some(model_name))? {
                if let (true, Err(error)) = (is_own, recovered) {
                    return Err(error);
                }
            }
        }
        refuse_journaled(&self.directory, model_name, &self.names)?;
        Ok(locks)
    }

    /// Why no file is removed: nobody sees what a model needs whose save cannot be completed.
    fn hidden_model(&self) -> Option<Error> {
        let reason = "the save of another model here was interrupted: old weights files stay, which it may need";
        match ModelFolder::new(&self.directory, "").that_may_hide_users() {
            Ok(hides) => hides.map(|hides| {
                let is_own = hides == self.directory;
                let path = if is_own { self.directory_given.clone() } else { hides };
                Error::new(ErrorKind::Changed, reason).with_path(path)
            }),
            Err(error) => Some(error),
        }
    }

    fn model_name(&self) -> Result<&str> {
        let last = self.names.last().ok_or_else(|| Error::internal("a save of no file"))?;
        Ok(last)
    }

    /// The renames that put every file in place and take the files `removed` away.
    fn renames(&self, removed: &[String]) -> Result<Switch> {
        let listing = Listing::of(&self.directory, self.names.len());
        let may_replace = |name: &str| self.options.overwrite && listing.may_have(name);
        let folders = (self.directory.as_path(), self.directory_given.as_path());
        let (staging, sync) = (self.folder.path(), self.options.sync);
        let switch = Switch::new(folders, staging, &self.names, may_replace, sync)?;
        switch.with_other_models(&self.other_models).removing(removed)
    }

    /// Does the renames. The inner error is that of the last flush, after which the new files are
    /// in place.
    fn switch(&self, switch: &Switch) -> Result<Result<()>, Failure> {
        if !switch.is_one_rename() {
            switch.announce().map_err(|error| Failure { error, undone: true })?;
        }
        match switch.finish() {
            Ok(()) => Ok(switch.flush()),
            // A file system over a network may do a rename and say that it failed.
            Err(_) if switch.is_done() => Ok(switch.flush()),
            Err(error) => {
                let undone = switch.undo().and_then(|()| switch.close()).is_ok();
                drop(switch.flush());
                Err(Failure { error, undone })
            }
        }
    }

    /// Removes the staging folder and then the journal: until then, a process that finds it removes
    /// the old files. Returns a warning where that is not possible.
    fn end(mut self, switch: &Switch) -> Option<Error> {
        drop(std::mem::take(&mut self.open));
        let said = "the save is done, but its staging folder cannot be removed";
        let old = if switch.is_one_rename() { Ok(()) } else { switch.remove_staging() };
        if let Err(error) = old {
            self.folder.keep();
            return Some(error.because(said));
        }
        match self.folder.remove() {
            Err(error) => Some(error.because(said)),
            Ok(()) => switch.close().err(),
        }
    }

    /// Removes the staging folder after `error`, which then says so where that is not possible.
    pub(crate) fn discard(mut self, error: Error) -> Error {
        drop(std::mem::take(&mut self.open));
        let path = self.folder.path().to_path_buf();
        match self.folder.remove() {
            Ok(()) => error,
            Err(left) => {
                let reason = format!(
                    "nothing was changed, but the staging folder `{}` cannot be removed ({})",
                    path.display(),
                    left.reason(),
                );
                error.and(&reason)
            }
        }
    }

    /// Keeps the staging folder, which holds files that could not be moved back.
    fn keep(self, error: Error) -> Error {
        let kept = self.folder.keep();
        let reason = format!(
            "the change cannot be undone now: the next process that opens the model completes or undoes it from the files in `{}`",
            kept.display(),
        );
        error.and(&reason)
    }
}

/// What was put in place.
#[derive(Debug)]
pub(crate) struct Published {
    /// The names of the files that were removed.
    pub(crate) removed: Vec<String>,
    pub(crate) warnings: Vec<Error>,
    /// The locks under which the files were put in place.
    pub(crate) locks: Vec<FolderLock>,
}

/// A staging folder, and the locks of every folder that its save concerns.
pub(crate) struct LockedStaging {
    staging: Staging,
    locks: Vec<FolderLock>,
}

impl LockedStaging {
    /// Puts every file in place, the model last, and removes the files `removed`, which nothing
    /// needs then. Returns warnings: a staging folder that cannot be removed, and access to the old
    /// files that the new ones do not give.
    ///
    /// # Errors
    /// The old files are then in place and the staging folder is removed, with two exceptions:
    /// where the last flush fails the new files are in place, and where renames cannot be undone
    /// the next process that opens the model completes or undoes them.
    pub(crate) fn publish(self, mut removed: Vec<String>) -> Result<Published> {
        let mut warnings = Vec::new();
        if !removed.is_empty()
            && let Some(hidden) = self.staging.hidden_model()
        {
            removed.clear();
            warnings.push(hidden);
        }
        let switch = match self.staging.renames(&removed) {
            Ok(switch) => switch,
            Err(error) => return Err(self.discard(error)),
        };
        let Self { staging, locks } = self;
        warnings.extend(staging.access_warnings());
        let result = match staging.switch(&switch) {
            Ok(flushed) => {
                warnings.extend(staging.end(&switch));
                let done = flushed.map_err(|error| {
                    error.because("the new files are in place, and may not be on the disk yet")
                });
                done.map(|()| Published { removed, warnings, locks: Vec::new() })
            }
            Err(Failure { error, undone: true }) => Err(staging.discard(error)),
            Err(Failure { error, undone: false }) => Err(staging.keep(error)),
        };
        // Until the staging folder is removed the files belong to this save.
        result.map(|published| Published { locks, ..published })
    }

    /// Removes the staging folder after `error`, as [`Staging::discard`] does, and unlocks.
    pub(crate) fn discard(self, error: Error) -> Error {
        let Self { staging, locks } = self;
        let error = staging.discard(error);
        drop(locks);
        error
    }
}

/// The error of a failed switch, and whether what was done before it is undone.
struct Failure {
    error: Error,
    undone: bool,
}

/// Opens a file to flush it. Some systems flush only what is open for writing, and the file may
/// have taken the permissions of a read-only one.
fn open_again(path: &Path) -> io::Result<File> {
    File::options().write(true).open(path).or_else(|_| File::open(path))
}

/// A file that was created in a staging folder.
pub(crate) struct NewFile {
    pub(crate) file: File,
    /// Where it is.
    pub(crate) staged: PathBuf,
    /// Where it will be, for messages.
    pub(crate) path: PathBuf,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(name: &str, staging: &mut Staging) {
        use std::io::Write;
        staging.list([name]).unwrap();
        staging.create(name).unwrap().file.write_all(b"new").unwrap();
        staging.flush().unwrap();
    }

    /// A folder with an old model and its weights, and the new ones staged.
    fn replacing(sync: bool) -> (tempfile::TempDir, Staging) {
        let dir = tempfile::tempdir().unwrap();
        let options = SaveOptions::new().sync(sync);
        let mut staging = Staging::new(dir.path(), "m.onnx", &options).unwrap();
        for name in ["m.onnx.data", "m.onnx"] {
            fs::write(dir.path().join(name), "old").unwrap();
            write(name, &mut staging);
        }
        (dir, staging)
    }

    fn listing(dir: &Path) -> Vec<(String, String)> {
        let read = |entry: io::Result<fs::DirEntry>| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap_or_else(|_| "(folder)".into()))
        };
        let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(read).collect();
        all.sort();
        all
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn files_are_replaced_together() {
        let (dir, staging) = replacing(true);
        assert!(staging.lock(Vec::new()).unwrap().publish(Vec::new()).unwrap().warnings.is_empty());
        assert_eq!(listing(dir.path()), pairs(&[("m.onnx", "new"), ("m.onnx.data", "new")]));
    }

    #[test]
    fn a_rename_that_fails_undoes_the_others() {
        let (dir, staging) = replacing(false);
        // The staged model disappears: the last rename fails.
        fs::remove_file(staging.folder.new_files().join("m.onnx")).unwrap();
        let error = staging.lock(Vec::new()).unwrap().publish(Vec::new()).unwrap_err();
        assert!(error.path().unwrap().ends_with("m.onnx"), "{error}");
        assert_eq!(listing(dir.path()), pairs(&[("m.onnx", "old"), ("m.onnx.data", "old")]));
    }

    #[test]
    fn staging_that_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut staging = Staging::new(dir.path(), "m.onnx", &SaveOptions::new()).unwrap();
        write("m.onnx", &mut staging);
        drop(staging);
        assert_eq!(listing(dir.path()), pairs(&[]));
    }
}
