//! What a save does so that it can be killed at any instant, and what is done after it was.
//!
//! A save writes its files into a staging folder beside the model, and then puts them in place:
//! `switch`. A journal beside the model says so while it happens: `journal`. A process that finds
//! the journal, and gets the lock under which files are renamed, knows that the save is dead and
//! completes it, or undoes it where new files are damaged. So each load and each save begins with a
//! look for the journal. Staging folders that no journal names hold nothing that anybody needs:
//! `abandoned`.
//!
//! The protocol, call by call, is in docs/safety.md.

mod abandoned;
#[cfg(test)]
mod crash_states;
mod found;
mod journal;
mod lock;
mod names;
mod place;
mod staging;
mod switch;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use abandoned::interrupted_saves;
pub(crate) use abandoned::{LeftState, is_staging_folder, left_by_saves};
pub(crate) use lock::FolderLock;
#[cfg(feature = "jobs")]
pub(crate) use names::{ended_job_name, is_job_id, is_of_ended_job, job_name};
pub use names::{is_left_by_saves, is_of_job};
pub(crate) use names::{is_lock_name, staged_name, staging_prefix};
#[cfg(feature = "jobs")]
pub(crate) use place::in_use;
pub(crate) use staging::StagingFolder;
#[cfg(feature = "jobs")]
pub use staging::new_job_name;
#[cfg(feature = "jobs")]
pub(crate) use staging::random;
pub(crate) use switch::announced::interrupted;
pub(crate) use switch::{Switch, flush_folder};

use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{directory_of, refuse_nul};

use abandoned::remove_abandoned;
use journal::Journal;
use switch::Way;

/// The most links that lead from a path to a model.
const MAX_LINKS: usize = 40;

/// How long a recovery waits for a save that is running.
const PATIENCE: Duration = Duration::from_secs(30);

/// What [`recover`] did.
#[derive(Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Recovery {
    /// The models whose interrupted save was completed: their new files are in place.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub finished: Vec<PathBuf>,
    /// The models whose interrupted save was undone: their old files are in place.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::util::as_text::paths"))]
    pub undone: Vec<PathBuf>,
    /// How many staging folders of saves that had changed nothing were removed.
    pub removed: usize,
    /// What could not be recovered or removed.
    pub errors: Vec<Error>,
}

/// Completes or undoes what saves that were killed left in the folder `path`, and removes their
/// staging folders. Of any other `path`, which is that of a model, does the same for the saves of
/// this model alone.
///
/// Loading a model, and saving to it, does this for that model. Folders of saves that are running
/// are left alone. Where the file system has no locks (some network file systems) a save that is
/// running cannot be told from one that was killed: call this only when none is running there.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let recovery = onnx_container::recovery::recover(folder.path())?;
/// assert!(recovery.finished.is_empty() && recovery.undone.is_empty() && recovery.removed == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::MissingFile`] and [`ErrorKind::Io`] when the folder cannot be listed, and when a
/// save that is running keeps its lock for 30 seconds. [`ErrorKind::MissingFile`] where there is no
/// model, nor what a save left of it. [`ErrorKind::InvalidArgument`] for a path with a NUL byte.
/// Other errors are in [`Recovery::errors`].
pub fn recover(path: impl AsRef<Path>) -> Result<Recovery> {
    let path = path.as_ref();
    refuse_nul(path)?;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut recovery = Recovery::default();
    if path.is_dir() {
        let lock = FolderLock::wait(path, PATIENCE, |_, _| Ok(()))?;
        for (_, recovered) in recover_all(path, None)? {
            recovery.add(recovered);
        }
        recovery.add_removed(remove_abandoned(path, None));
        drop(lock);
        return Ok(recovery);
    }
    let missing = path.metadata().err();
    for path in linked(path) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let directory = directory_of(&path);
        let lock = FolderLock::wait(&directory, PATIENCE, |_, _| Ok(()))?;
        recovery.add(recover_locked(&directory, name));
        recovery.add_removed(remove_abandoned(&directory, Some(name)));
        drop(lock);
    }
    match missing {
        Some(error) if recovery.is_empty() => Err(Error::io(path, error)),
        _ => Ok(recovery),
    }
}

/// Completes or undoes what a save of the model at `path` left that was killed, as loading the
/// model does before it reads. [`Recovery::finished`] or [`Recovery::undone`] then has the path of
/// the model, links resolved.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let recovery = onnx_container::recovery::recover_model(folder.path().join("m.onnx"))?;
/// assert!(recovery.finished.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Changed`] when it cannot be told which files are those of one save,
/// [`ErrorKind::Io`] when files cannot be renamed, [`ErrorKind::InvalidModel`] and
/// [`ErrorKind::UnsafePath`] for a journal that cannot be followed.
pub fn recover_model(path: impl AsRef<Path>) -> Result<Recovery> {
    let mut recovery = Recovery::default();
    recovery.add(Ok(recover_for_reading(path.as_ref())?));
    Ok(recovery)
}

impl Recovery {
    fn is_empty(&self) -> bool {
        let Self { finished, undone, removed, errors } = self;
        finished.is_empty() && undone.is_empty() && *removed == 0 && errors.is_empty()
    }

    /// Adds how many staging folders were removed, and errors of files of which none was said
    /// before: a journal that cannot be read is one for both the model and the folders that it may
    /// name.
    fn add_removed(&mut self, (removed, errors): (usize, Vec<Error>)) {
        self.removed = self.removed.saturating_add(removed);
        let known: HashSet<_> = self.errors.iter().filter_map(Error::path).collect();
        let is_new = |error: &Error| error.path().is_none_or(|path| !known.contains(path));
        let new: Vec<_> = errors.into_iter().filter(is_new).collect();
        self.errors.extend(new);
    }

    fn add(&mut self, recovered: Result<Option<Recovered>>) {
        match recovered {
            Ok(Some(Recovered { model, finished: true })) => self.finished.push(model),
            Ok(Some(Recovered { model, finished: false })) => self.undone.push(model),
            Ok(None) => {}
            Err(error) => self.errors.push(error),
        }
    }
}

/// A model whose interrupted save was completed or undone.
#[derive(Debug, Clone)]
pub(crate) struct Recovered {
    model: PathBuf,
    finished: bool,
}

impl Recovered {
    /// What the user is told.
    pub(crate) fn warning(&self) -> Error {
        let reason = match self.finished {
            true => {
                "a save of this model was interrupted, and is complete now: these are the new files"
            }
            false => {
                "a save of this model was interrupted, and is undone now: these are the old files"
            }
        };
        Error::new(ErrorKind::Changed, reason).with_path(&self.model)
    }
}

/// Whether there are journals in `directory`, of saves that were killed or are running.
pub(crate) fn may_need_recovery(directory: &Path) -> Result<bool> {
    Ok(!Journal::names(directory)?.is_empty())
}

/// Recovers all models of `directory`, whose lock the caller holds, where there are locks. An error
/// for each that cannot be recovered, and whether it is about the model `name`.
pub(crate) fn recover_all(
    directory: &Path,
    name: Option<&str>,
) -> Result<Vec<(bool, Result<Option<Recovered>>)>> {
    let own = name.map(names::journal_name);
    let recovered = Journal::all(directory)?.map(|(file, journal)| {
        let recovered = journal.and_then(|(name, journal)| complete(journal, directory, &name));
        (own.as_ref() == Some(&file), recovered.map_err(explained))
    });
    Ok(recovered.collect())
}

/// Refuses to save the model `name` with its files `names` to `directory` while a journal there has
/// one of these names: that of a save that could not be completed, or, where there are no locks, of
/// one that may be running.
///
/// # Errors
/// [`ErrorKind::Changed`], and when the directory cannot be listed.
pub(crate) fn refuse_journaled(directory: &Path, name: &str, names: &[String]) -> Result<()> {
    let own = names::journal_name(name);
    for (file, journal) in Journal::all(directory)? {
        if file == own {
            return Err(interrupted(&directory.join(name)));
        }
        let Ok((model, journal)) = journal else { continue };
        let taken: HashSet<_> = journal.files.iter().map(|entry| entry.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| taken.contains(name.as_str())) {
            let also = format!("and `{name}` is one of its files, which is not replaced");
            return Err(interrupted(&directory.join(model)).and(&also));
        }
    }
    Ok(())
}

/// Recovers the model `name` of `directory`, whose lock the caller holds.
pub(crate) fn recover_locked(directory: &Path, name: &str) -> Result<Option<Recovered>> {
    let recovered = match Journal::read(directory, name) {
        Ok(Some(journal)) => complete(journal, directory, name),
        read => read.map(|_| None),
    };
    recovered.map_err(explained)
}

/// The error of a recovery, with what it is about. One of this kind says so itself.
fn explained(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Changed => error,
        _ => error.because("a save of this model was interrupted, and cannot be completed"),
    }
}

/// Recovers the model at `path`, or the one that links lead to from there, for a reader. Does
/// nothing while a save is running, nor where it is not known whether one is.
pub(crate) fn recover_for_reading(path: &Path) -> Result<Option<Recovered>> {
    for path in linked(path) {
        let directory = directory_of(&path);
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && Journal::may_be_there(&directory, name)
            && let Some(lock) = FolderLock::if_free(&directory)
        {
            let recovered = recover_locked(&directory, name);
            drop(lock);
            if !matches!(recovered, Ok(None)) {
                return recovered;
            }
        }
    }
    Ok(None)
}

/// `path`, where it leads as a link, where that leads, and so on.
pub(crate) fn linked(path: &Path) -> impl Iterator<Item = PathBuf> {
    let follow = |path: &PathBuf| path.read_link().ok().map(|to| directory_of(path).join(to));
    std::iter::successors(Some(path.to_path_buf()), follow).take(MAX_LINKS)
}

/// Whether a save of the model at `path`, or of the one that links lead to, is running or was
/// interrupted, as far as a look without a lock tells.
pub(crate) fn is_journaled(path: &Path) -> bool {
    linked(path).any(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| Journal::may_be_there(&directory_of(&path), name))
    })
}

/// Completes or undoes what a killed save of the model `name` left, as soon as no other save runs
/// in `directory`, and removes what staging folders of it can be removed.
#[cfg(feature = "jobs")]
pub(crate) fn recover_save(directory: &Path, name: &str) -> Result<()> {
    let lock = FolderLock::wait(directory, PATIENCE, |_, _| Ok(()))?;
    let recovered = recover_locked(directory, name);
    drop(remove_abandoned(directory, Some(name)));
    drop(lock);
    recovered.map(drop)
}

/// Removes the staging folders that killed saves of the model `name` left; returns an error for
/// each that is still there.
pub(crate) fn remove_leftovers(directory: &Path, name: &str) -> Vec<Error> {
    remove_abandoned(directory, Some(name)).1
}

/// Completes or undoes the switch of `journal`.
fn complete(journal: Journal, directory: &Path, name: &str) -> Result<Option<Recovered>> {
    let switch = Switch::of_journal(journal, directory)?;
    let finished = go_on(&switch, directory, name).map_err(|error| match error.kind() {
        ErrorKind::Changed => error,
        _ => {
            let by_hand = by_hand(&switch, directory, name);
            error.and(&format!("fix that and the next load or save goes on; or by hand: {by_hand}"))
        }
    })?;
    Ok(finished.map(|finished| Recovered { model: directory.join(name), finished }))
}

/// Completes the switch, `true`, or undoes it, and removes what it leaves.
fn go_on(switch: &Switch, directory: &Path, name: &str) -> Result<Option<bool>> {
    let finished = match switch.way()? {
        Way::Done => None,
        // The save may have been killed before its journal was on the disk. Where a power failure
        // loses the journal alone, nobody knows of the files that were moved.
        Way::Finish => {
            switch.flush()?;
            switch.delete_second_names()?;
            switch.finish()?;
            Some(true)
        }
        Way::Undo => {
            // That a folder cannot be flushed ends nothing here: the old files come first.
            drop(switch.flush());
            switch.delete_second_names()?;
            switch.undo()?;
            Some(false)
        }
        Way::None => return Err(cannot_tell(switch, directory, name)),
    };
    switch.flush()?;
    if finished == Some(false) {
        // The new files are of no use, and must not be put in place when only some of them are
        // left.
        switch.close()?;
        switch.flush()?;
        switch.remove_staging()?;
    } else {
        // While old files are left, the journal says that they are not needed.
        switch.remove_staging()?;
        switch.close()?;
    }
    Ok(finished)
}

fn cannot_tell(switch: &Switch, directory: &Path, name: &str) -> Error {
    let reason = format!("{CHANGED}: {}", by_hand(switch, directory, name));
    Error::new(ErrorKind::Changed, reason).with_path(directory.join(name))
}

/// How the user ends a switch that cannot go on by itself: where the files are, and what is deleted
/// then.
fn by_hand(switch: &Switch, directory: &Path, name: &str) -> String {
    let staging = switch.staging().display();
    let journal = directory.join(names::journal_name(name));
    let journal = journal.display();
    let (new, old) = (format!("new files are in `{staging}/new`"), format!("`{staging}/old`"));
    let found = match switch.has_files() {
        (true, true) => format!("{new}, old ones in {old}"),
        (true, false) => format!("{new}, and no old ones were moved away"),
        (false, true) => format!("old files are in {old}, and no new ones are left"),
        (false, false) => {
            return format!(
                "neither new nor old files are left: if the model and its weights are complete, delete `{journal}`"
            );
        }
    };
    format!("{found}; copy those into place that you want, and delete `{staging}` and `{journal}`")
}

const CHANGED: &str = "a save of this model was interrupted, and its files were changed since then";

/// What a dry run of a save to the model `name` is told, where an earlier save was interrupted: it
/// changes nothing.
pub(crate) fn not_recovered(directory: &Path, name: &str) -> Option<Error> {
    let reason = "a save of this model was interrupted, or is running: the next save completes it first, and replaces \
                  what is there then";
    let path = directory.join(name);
    Journal::may_be_there(directory, name)
        .then(|| Error::new(ErrorKind::Changed, reason).with_path(path))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    const STAGING: &str = ".m.onnx.saving-aB3xYz";
    const NAMES: [&str; 3] = ["w1", "w2", "m.onnx"];

    /// Writes a file with the time that all have: the clocks of some file systems are so coarse.
    fn put(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1);
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    /// A folder with the files `old`, and the journal of a switch to new ones, all of one length
    /// and time.
    fn interrupted(old: &[&str]) -> (tempfile::TempDir, Switch) {
        let folder = tempfile::tempdir().unwrap();
        let staging = folder.path().join(STAGING);
        for part in ["old", "new"] {
            fs::create_dir_all(staging.join(part)).unwrap();
        }
        fs::write(staging.join("files"), "onnx-container save 1\0w1\0w2\0m.onnx\0").unwrap();
        old.iter().for_each(|name| put(&folder.path().join(name), "old"));
        NAMES.iter().for_each(|name| put(&staging.join("new").join(name), "new"));
        let names = NAMES.map(str::to_owned);
        let both = (folder.path(), folder.path());
        let switch = Switch::new(both, &staging, &names, |_| true, false).unwrap();
        switch.announce().unwrap();
        (folder, switch)
    }

    /// A model may be moved onto a copy of it that has hard links.
    #[cfg(unix)]
    #[test]
    fn new_files_that_are_hard_links_of_old_ones_are_no_second_names() {
        let last = 2 * NAMES.len();
        for (done, knows_inodes) in (0..=last).flat_map(|done| [(done, true), (done, false)]) {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let staged = |part: &str, name: &str| at(STAGING).join(part).join(name);
            for part in ["old", "new"] {
                fs::create_dir_all(at(STAGING).join(part)).unwrap();
            }
            fs::write(at(STAGING).join("files"), "onnx-container save 1\0w1\0w2\0m.onnx\0")
                .unwrap();
            NAMES.iter().for_each(|name| put(&at(name), "old"));
            ["w1", "w2"].iter().for_each(|w| fs::hard_link(at(w), staged("new", w)).unwrap());
            put(&staged("new", "m.onnx"), "new");
            let names = NAMES.map(str::to_owned);
            let both = (folder.path(), folder.path());
            let switch = Switch::new(both, &at(STAGING), &names, |_| true, false).unwrap();
            switch.announce().unwrap();
            if !knows_inodes {
                // As in a copy of the folder, whose staging folder is another one.
                let journal = fs::read_to_string(at(".m.onnx.switching")).unwrap();
                let mut fields: Vec<_> = journal.split('\0').collect();
                fields[2] = "1";
                fs::write(at(".m.onnx.switching"), fields.join("\0")).unwrap();
            }
            let away = NAMES.iter().rev().map(|name| (at(name), staged("old", name)));
            let into = NAMES.iter().map(|name| (staged("new", name), at(name)));
            let moves = away.chain(into).take(done);
            moves.for_each(|(from, to)| fs::rename(from, to).unwrap());
            let recovery = recover(folder.path()).unwrap();
            assert!(recovery.errors.is_empty() && recovery.undone.is_empty(), "{recovery:?}");
            assert_eq!(recovery.finished.is_empty(), done == last, "after {done}");
            assert_eq!(fs::read_to_string(at("m.onnx")).unwrap(), "new", "after {done}");
        }
    }

    /// The files of the folder; a folder counts as one.
    fn contents(folder: &Path) -> BTreeMap<String, String> {
        let is_lock = |e: &fs::DirEntry| e.file_name().to_str().is_some_and(is_lock_name);
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|e| !is_lock(e));
        let read = |path| fs::read_to_string(path).unwrap_or_else(|_| "a folder".into());
        entries.map(|e| (e.file_name().into_string().unwrap(), read(e.path()))).collect()
    }

    fn all(text: &str, names: &[&str]) -> BTreeMap<String, String> {
        names.iter().map(|name| ((*name).into(), text.into())).collect()
    }

    /// The renames of a switch that replaces `old`, in their order.
    fn renames(folder: &Path, old: &[&str]) -> Vec<(PathBuf, PathBuf)> {
        let (staged, saved) = (folder.join(STAGING).join("new"), folder.join(STAGING).join("old"));
        let moves_away = old.iter().any(|name| *name != "m.onnx");
        let away = NAMES.iter().rev().filter(|name| moves_away && old.contains(name));
        let away = away.map(|name| (folder.join(name), saved.join(name)));
        let into = NAMES.iter().map(|name| (staged.join(name), folder.join(name)));
        away.chain(into).collect()
    }

    const OLD: [&[&str]; 5] = [&[], &["m.onnx"], &["w1"], &["m.onnx", "w2"], &NAMES];

    #[test]
    fn a_switch_that_ends_after_any_rename_is_completed() {
        for old in OLD {
            let count = renames(Path::new(""), old).len();
            for done in 0..=count {
                let (folder, _) = interrupted(old);
                let steps = renames(folder.path(), old);
                steps.iter().take(done).for_each(|(from, to)| fs::rename(from, to).unwrap());
                let recovered = recover_for_reading(&folder.path().join("m.onnx")).unwrap();
                assert_eq!(recovered.is_some_and(|r| r.finished), done < count, "{old:?} {done}");
                assert_eq!(contents(folder.path()), all("new", &NAMES), "{old:?} {done}");
                // What was recovered once is as any other folder.
                let again = recover(folder.path()).unwrap();
                assert!(again.finished.is_empty() && again.errors.is_empty(), "{again:?}");
            }
        }
    }

    #[test]
    fn a_switch_to_damaged_files_is_undone() {
        for old in OLD {
            for done in 0..renames(Path::new(""), old).len() {
                let (folder, _) = interrupted(old);
                let steps = renames(folder.path(), old);
                let moves = |(from, to): &(PathBuf, PathBuf)| fs::rename(from, to).unwrap();
                steps.iter().take(done).for_each(moves);
                // As a power failure cuts off a file that was not flushed.
                fs::write(folder.path().join(STAGING).join("new/m.onnx"), "ne").unwrap();
                let recovery = recover(folder.path()).unwrap();
                assert_eq!(recovery.undone.len(), 1, "{old:?} {done}: {recovery:?}");
                assert_eq!(contents(folder.path()), all("old", old), "{old:?} {done}");
            }
        }
    }

    #[test]
    fn files_that_were_put_there_since_are_not_touched() {
        let (folder, _) = interrupted(&NAMES);
        for name in ["m.onnx", "w1"] {
            fs::write(folder.path().join(name), "somebody's").unwrap();
            let before = contents(folder.path());
            let error = recover_for_reading(&folder.path().join("m.onnx")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Changed);
            assert!(error.to_string().contains(STAGING), "{error}");
            assert_eq!(recover(folder.path()).unwrap().errors.len(), 1);
            assert_eq!(contents(folder.path()), before);
            fs::write(folder.path().join(name), "old").unwrap();
        }
    }

    #[test]
    fn an_error_says_once_where_the_files_are() {
        let (folder, _) = interrupted(&NAMES);
        let path = folder.path().join("m.onnx");
        let said = |found: [bool; 2]| {
            let error = recover_for_reading(&path).unwrap_err().to_string();
            let parts = ["new", "old"].map(|part| format!("{STAGING}/{part}`"));
            assert_eq!(parts.map(|part| error.contains(&part)), found, "{error}");
            assert_eq!(error.matches("was interrupted").count(), 1, "{error}");
            // The model is there or not.
            let read = |_| Err::<(), _>(Error::new(ErrorKind::Shape, "wrong"));
            let read = crate::files::consistent_read::read_one_save(
                &path,
                crate::MmapChoice::never(),
                read,
            );
            let error = read.err().unwrap().to_string();
            assert_eq!(error.matches("was interrupted").count(), 1, "{error}");
            assert_eq!(recover(folder.path()).unwrap().errors.len(), 1);
        };
        fs::write(&path, "somebody's").unwrap();
        said([true, false]);
        fs::rename(folder.path().join("w1"), folder.path().join(STAGING).join("old/w1")).unwrap();
        said([true, true]);
        for name in NAMES {
            fs::remove_file(folder.path().join(STAGING).join("new").join(name)).unwrap();
        }
        said([false, true]);
        fs::remove_file(folder.path().join(STAGING).join("old/w1")).unwrap();
        fs::write(folder.path().join("w2"), "somebody's").unwrap();
        fs::create_dir(folder.path().join("w1")).unwrap();
        said([false, false]);
    }

    #[test]
    fn a_damaged_journal_is_one_error_that_names_the_files() {
        let (folder, _) = interrupted(&NAMES);
        fs::rename(folder.path().join("m.onnx"), folder.path().join(STAGING).join("old/m.onnx"))
            .unwrap();
        let journal = folder.path().join(".m.onnx.switching");
        fs::write(&journal, "cut off").unwrap();
        let before = contents(folder.path());
        for path in [folder.path().to_path_buf(), folder.path().join("m.onnx")] {
            let [error] = &recover(path).unwrap().errors[..] else { panic!("one error") };
            assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidModel, Some(&*journal)));
            for part in ["new", "old"] {
                let place = Path::new(STAGING).join(part).display().to_string() + "`";
                assert!(error.reason().contains(&place), "{error}");
            }
            assert!(!error.reason().contains("is whole"), "{error}");
        }
        // A folder of another model has nothing to do with it.
        let other = folder.path().join(".w.onnx.saving-aB3xYz");
        fs::rename(folder.path().join(STAGING), &other).unwrap();
        let [error] = &recover(folder.path()).unwrap().errors[..] else { panic!("one error") };
        assert!(error.reason().contains("is whole"), "{error}");
        fs::rename(&other, folder.path().join(STAGING)).unwrap();
        assert_eq!(contents(folder.path()), before);
    }

    #[test]
    fn what_a_save_left_of_one_model_is_recovered_by_its_path() {
        let (folder, _) = interrupted(&NAMES);
        let path = folder.path().join("m.onnx");
        fs::remove_file(&path).unwrap();
        for name in [".m.onnx.saving-000000", ".n.onnx.saving-000000"] {
            fs::create_dir_all(folder.path().join(name).join("new")).unwrap();
        }
        fs::rename(folder.path().join("w1"), folder.path().join(STAGING).join("old/w1")).unwrap();
        fs::write(folder.path().join(STAGING).join("old/m.onnx"), "old").unwrap();
        let recovery = recover(&path).unwrap();
        assert_eq!((recovery.finished, recovery.removed), (vec![path.clone()], 1));
        assert!(recovery.errors.is_empty(), "{:?}", recovery.errors);
        let other = all("a folder", &[".n.onnx.saving-000000"]);
        assert_eq!(contents(folder.path()), all("new", &NAMES).into_iter().chain(other).collect());
        assert!(recover(&path).unwrap().is_empty());
        let missing = folder.path().join("none.onnx");
        assert_eq!(recover(missing).unwrap_err().kind(), ErrorKind::MissingFile);
        assert_eq!(recover(folder.path()).unwrap().removed, 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_staging_folder_that_was_never_filled_is_named_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".m.onnx.saving-abcdef");
        fs::create_dir(&left).unwrap();
        let path = folder.path().join("m.onnx");
        let minute = std::time::SystemTime::now() - Duration::from_secs(60);
        fs::File::open(&left).unwrap().set_modified(minute).unwrap();
        assert_eq!(interrupted_saves(&path), [left]);
        assert_eq!(recover(folder.path()).unwrap().removed, 1);
        assert!(interrupted_saves(&path).is_empty());
    }

    #[test]
    fn a_save_that_is_running_is_left_alone() {
        let (folder, _) = interrupted(&NAMES);
        let before = contents(folder.path());
        let lock = FolderLock::if_free(folder.path()).unwrap();
        assert!(recover_for_reading(&folder.path().join("m.onnx")).unwrap().is_none());
        assert_eq!(contents(folder.path()), before);
        drop(lock);
        assert!(recover_for_reading(&folder.path().join("m.onnx")).unwrap().is_some());
    }

    #[test]
    fn many_recover_at_once() {
        let (folder, _) = interrupted(&NAMES);
        let path = folder.path().join("m.onnx");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    recover_for_reading(&path).unwrap();
                    recover(folder.path()).unwrap();
                    assert_eq!(contents(folder.path()), all("new", &NAMES));
                });
            }
        });
    }

    #[cfg(unix)]
    #[test]
    fn a_model_that_is_reached_by_links_is_recovered_where_it_is() {
        let (folder, _) = interrupted(&NAMES);
        let other = tempfile::tempdir().unwrap();
        let (first, second) = (other.path().join("a.onnx"), other.path().join("b.onnx"));
        std::os::unix::fs::symlink(folder.path().join("m.onnx"), &first).unwrap();
        std::os::unix::fs::symlink("a.onnx", &second).unwrap();
        assert!(recover_for_reading(&second).unwrap().is_some());
        assert_eq!(contents(folder.path()), all("new", &NAMES));
    }

    #[cfg(unix)]
    #[test]
    fn links_that_are_replaced_are_old_files() {
        for done in 0..renames(Path::new(""), &NAMES).len() {
            let folder = tempfile::tempdir().unwrap();
            let staging = folder.path().join(STAGING);
            for part in ["old", "new"] {
                fs::create_dir_all(staging.join(part)).unwrap();
            }
            for name in NAMES {
                std::os::unix::fs::symlink("elsewhere", folder.path().join(name)).unwrap();
                fs::write(staging.join("new").join(name), "new").unwrap();
            }
            let both = (folder.path(), folder.path());
            let names = NAMES.map(str::to_owned);
            Switch::new(both, &staging, &names, |_| true, false).unwrap().announce().unwrap();
            let steps = renames(folder.path(), &NAMES);
            steps.iter().take(done).for_each(|(from, to)| fs::rename(from, to).unwrap());
            assert_eq!(recover(folder.path()).unwrap().finished.len(), 1, "{done}");
            assert_eq!(contents(folder.path()), all("new", &NAMES), "{done}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_link_leads_out_of_the_folder() {
        // A journal of a download, and links in place of the folders that it
        // names.
        for (link, moved) in [("new", "m.onnx"), ("old", "w1"), ("", "w2")] {
            let (folder, _) = interrupted(&NAMES);
            let victim = tempfile::tempdir().unwrap();
            for part in ["old", "new"] {
                fs::create_dir(victim.path().join(part)).unwrap();
            }
            let staging = folder.path().join(STAGING);
            let (at, target) = match link {
                "" => (staging.clone(), victim.path().to_path_buf()),
                part => (staging.join(part), victim.path().join(part)),
            };
            for name in NAMES {
                fs::write(victim.path().join("new").join(name), "new").unwrap();
            }
            fs::rename(&at, folder.path().join("away")).unwrap();
            std::os::unix::fs::symlink(&target, &at).unwrap();
            let path = folder.path().join("m.onnx");
            recover_for_reading(&path).unwrap_err();
            assert_eq!(recover(folder.path()).unwrap().errors.len(), 1, "{link}");
            assert_eq!(fs::read_dir(victim.path().join("old")).unwrap().count(), 0, "{link}");
            assert_eq!(fs::read_dir(victim.path().join("new")).unwrap().count(), 3, "{link}");
            assert_eq!(fs::read(folder.path().join(moved)).unwrap(), b"old", "{link}");
        }
    }

    #[test]
    fn a_model_that_was_put_back_does_not_cost_the_old_weights() {
        let (folder, _) = interrupted(&NAMES);
        let steps = renames(folder.path(), &NAMES);
        steps.iter().take(3).for_each(|(from, to)| fs::rename(from, to).unwrap());
        // As a power failure loses what was not flushed.
        for name in NAMES {
            fs::remove_file(folder.path().join(STAGING).join("new").join(name)).unwrap();
        }
        fs::write(folder.path().join("m.onnx"), "from a backup").unwrap();
        let error = recover_for_reading(&folder.path().join("m.onnx")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        let saved = folder.path().join(STAGING).join("old");
        assert_eq!(fs::read_dir(saved).unwrap().count(), NAMES.len());
    }

    #[test]
    fn old_weights_are_not_taken_for_new_ones_that_are_lost() {
        let (folder, _) = interrupted(&NAMES);
        let staging = folder.path().join(STAGING);
        fs::rename(folder.path().join("m.onnx"), staging.join("old/m.onnx")).unwrap();
        fs::remove_file(staging.join("new/w1")).unwrap();
        assert_eq!(recover(folder.path()).unwrap().undone.len(), 1);
        assert_eq!(contents(folder.path()), all("old", &NAMES));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_of_the_same_length_and_time_that_a_stranger_put_there_is_not_moved() {
        let (folder, _) = interrupted(&NAMES);
        let path = folder.path().join("w1");
        // Made before the other is gone, so that it cannot get its inode.
        put(&folder.path().join("other"), "ano");
        fs::rename(folder.path().join("other"), &path).unwrap();
        let error = recover_for_reading(&folder.path().join("m.onnx")).unwrap_err();
        assert_eq!((error.kind(), fs::read(&path).unwrap()), (ErrorKind::Changed, b"ano".to_vec()));
        // In a copy of the folder, or one that is mounted anew, all may have other inodes.
        let journal = folder.path().join(names::journal_name("m.onnx"));
        let text = fs::read_to_string(&journal).unwrap();
        let fields: Vec<_> = text.split('\0').collect();
        fs::write(&journal, text.replacen(&format!("\0{}\0", fields[2]), "\x001\0", 1)).unwrap();
        assert_eq!(recover(folder.path()).unwrap().finished.len(), 1);
        assert_eq!(contents(folder.path()), all("new", &NAMES));
    }

    #[test]
    fn an_error_of_the_system_says_what_to_do() {
        let (folder, _) = interrupted(&NAMES);
        // No file can be moved to what is not there.
        fs::remove_dir(folder.path().join(STAGING).join("old")).unwrap();
        let recovery = recover(folder.path()).unwrap();
        let [error] = &recovery.errors[..] else { panic!("{recovery:?}") };
        let said =
            ["was interrupted, and cannot be completed", STAGING, ".m.onnx.switching", "delete"];
        for said in said {
            assert!(error.to_string().contains(said), "no {said} in {error}");
        }
        assert_eq!(error.to_string().matches("was interrupted").count(), 1, "{error}");
        fs::create_dir(folder.path().join(STAGING).join("old")).unwrap();
        assert_eq!(recover(folder.path()).unwrap().finished.len(), 1);
    }

    #[test]
    fn a_save_does_not_replace_what_an_interrupted_one_needs() {
        let (folder, switch) = interrupted(&NAMES);
        let refused = |model: &str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            refuse_journaled(folder.path(), model, &names).is_err()
        };
        assert!(refused("m.onnx", &[]) && refused("other.onnx", &["w2", "other.onnx"]));
        assert!(!refused("other.onnx", &["w3", "other.onnx"]));
        assert_eq!(switch.announce().unwrap_err().kind(), ErrorKind::Changed);
        switch.close().unwrap();
        assert!(!refused("m.onnx", &NAMES));
    }

    /// Makes a folder with somebody's work at `at`, in place of what is there, and returns its
    /// mark.
    fn make_folder(at: &Path) -> journal::Mark {
        let _ = fs::remove_file(at);
        fs::create_dir_all(at.join("run1")).unwrap();
        fs::write(at.join("run1/thesis"), "work").unwrap();
        let place = place::OpenFolder::open(at.parent().unwrap()).unwrap();
        place.mark(at.file_name().unwrap()).unwrap().unwrap().0
    }

    /// A journal of a download that names a folder, with its length and time.
    #[test]
    fn a_folder_in_the_place_of_a_file_is_neither_moved_nor_removed() {
        for (part, name) in ["", "new", "old"].iter().flat_map(|p| ["w1", "m.onnx"].map(|n| (p, n)))
        {
            for is_new in [true, false] {
                let (folder, switch) = interrupted(&NAMES);
                let staging = folder.path().join(STAGING);
                let of_part =
                    if part.is_empty() { folder.path().to_path_buf() } else { staging.join(part) };
                let mut files = switch.files.clone();
                let mark = make_folder(&of_part.join(name));
                let entry = files.iter_mut().find(|entry| entry.name == name).unwrap();
                if is_new {
                    entry.new = Some(mark);
                    if part.is_empty() {
                        fs::remove_file(staging.join("new").join(name)).unwrap();
                    }
                } else {
                    entry.old = Some(mark);
                }
                let journal = Journal { staging: STAGING.into(), inode: None, files };
                let written = journal.write(&staging, false).unwrap();
                fs::rename(written, folder.path().join(names::journal_name("m.onnx"))).unwrap();
                let before =
                    [folder.path(), &staging.join("old"), &staging.join("new")].map(contents);
                recover_for_reading(&folder.path().join("m.onnx")).unwrap_err();
                let recovery = recover(folder.path()).unwrap();
                assert_eq!(recovery.errors.len(), 1, "{part} {name}: {recovery:?}");
                let after =
                    [folder.path(), &staging.join("old"), &staging.join("new")].map(contents);
                assert_eq!(after, before, "{part} {name}");
                assert!(of_part.join(name).join("run1/thesis").is_file());
            }
        }
    }

    #[test]
    fn what_no_save_put_into_a_staging_folder_stays_in_it() {
        for at in ["results", "new/results", "old/results"] {
            let (folder, _) = interrupted(&NAMES);
            let staging = folder.path().join(STAGING);
            make_folder(&staging.join(at));
            let recovery = recover(folder.path()).unwrap();
            assert_eq!((recovery.finished.len(), recovery.errors.len()), (1, 1), "{recovery:?}");
            let said = recovery.errors[0].to_string();
            assert!(said.contains(STAGING), "{said}");
            assert!(staging.join(at).join("run1/thesis").is_file());
            let mut left = all("new", &NAMES);
            left.insert(STAGING.into(), "a folder".into());
            assert_eq!(contents(folder.path()), left);
        }
    }

    #[test]
    fn what_is_no_journal_is_an_error_and_changes_nothing() {
        let cut = b"onnx-container switch 1\0.m.onnx.saving-aB3xYz\0end\0";
        for text in [&b""[..], b"x", b"\xff\xfe no text", cut] {
            let (folder, _) = interrupted(&NAMES);
            fs::write(folder.path().join(names::journal_name("m.onnx")), text).unwrap();
            let before = contents(folder.path());
            recover_for_reading(&folder.path().join("m.onnx")).unwrap_err();
            assert_ne!(recover(folder.path()).unwrap().errors.len(), 0);
            assert_eq!(contents(folder.path()), before, "{text:?}");
        }
    }
}
