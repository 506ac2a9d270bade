//! Staging folders that killed saves left.
//!
//! A save in progress holds a lock on its staging folder; the lock ends with the process. While no
//! journal names a folder, the files of the old save are all in place, and those in the folder are
//! needed by nobody. A folder of the user that has such a name is not one: a save lists its files
//! in it.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::files::external_data::directory_of;
use crate::files::recovery::journal::Journal;
use crate::files::recovery::lock::FolderLock;
use crate::files::recovery::names::{
    is_journal_name, is_of_ended_job, is_of_job, is_staging_name, may_be_staging_name,
};
use crate::files::recovery::place::OpenFolder;
use crate::files::recovery::staging::{holds_others, is_of_a_save, remove_staged, second_names};
use crate::util::retry::retried;

/// A folder that was changed so little ago may be one that a save is about to lock.
const JUST_NOW: Duration = Duration::from_secs(2);

/// A staging folder that no process uses; it is locked, so that nobody else takes it.
#[derive(Debug)]
pub(super) struct Abandoned {
    pub(super) path: PathBuf,
    _lock: FolderLock,
}

impl Abandoned {
    /// The abandoned folders in `directory`, sorted: those of a model, or all. None where the file
    /// system cannot lock.
    pub(super) fn all(directory: &Path, model_name: Option<&str>) -> Vec<Self> {
        let is_one = |name: &str| match model_name {
            Some(model_name) => is_staging_name(name, model_name),
            None => may_be_staging_name(name),
        };
        let entries = retried(|| std::fs::read_dir(directory)).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| {
            entry.file_type().is_ok_and(|kind| kind.is_dir())
                && entry.file_name().to_str().is_some_and(is_one)
        });
        let mut folders: Vec<_> = folders.map(|entry| entry.path()).collect();
        folders.sort();
        let abandoned = folders.into_iter().filter_map(|path| {
            let lock = FolderLock::if_free(&path)?;
            is_of_a_save(&path).unwrap_or_default().then_some(Self { path, _lock: lock })
        });
        abandoned.collect()
    }

    /// Whether the save got far enough to create `new/` or `old/`. A fresh, empty folder may belong
    /// to a save that has not locked it yet, or that is removing it.
    fn is_begun(&self) -> bool {
        let is_old = || {
            let made = retried(|| self.path.metadata()).and_then(|metadata| metadata.modified());
            made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > JUST_NOW))
        };
        ["old", "new"].iter().any(|part| self.path.join(part).is_dir()) || is_old()
    }

    /// Whether it is one of these names.
    fn is_one_of(&self, names: &HashSet<String>) -> bool {
        self.path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| names.contains(name))
    }

    /// Whether there are files in it that were moved away.
    fn has_moved_files(&self) -> io::Result<bool> {
        let Some(old) = OpenFolder::open(&self.path)?.inside("old")? else { return Ok(false) };
        Ok(second_names(&old, &OpenFolder::open(&directory_of(&self.path))?)?.is_none())
    }

    /// The same; also where that cannot be told.
    fn may_have_moved_files(&self) -> bool {
        self.has_moved_files().unwrap_or(true)
    }

    /// Removes the folder.
    ///
    /// # Errors
    /// When that is not possible, and when there are files in it that were moved away, which no
    /// save of this version leaves without a journal.
    pub(super) fn remove(&self) -> Result<(), Error> {
        let said = "left by a save that was interrupted, and cannot be removed";
        let failed = |error| Error::io(&self.path, error).because(said);
        if self.has_moved_files().map_err(failed)? {
            let reason = "files that a save moved away, and no journal: move them back, or delete this folder";
            let old = self.path.join("old");
            return Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(old));
        }
        match remove_staged(&self.path).map_err(failed)? {
            true => Ok(()),
            false => Err(holds_others(&self.path)),
        }
    }
}

/// Removes the abandoned folders of a model, or of all models, that no journal names. Returns how
/// many, and an error for each that is still there.
pub(super) fn remove_abandoned(directory: &Path, model_name: Option<&str>) -> (usize, Vec<Error>) {
    // Locked before the journals are read: a save that was still running may have written one.
    let left = Abandoned::all(directory, model_name);
    if left.is_empty() {
        return (0, Vec::new());
    }
    // A journal that cannot be read may name any of them.
    let named = match named_by_journals(directory) {
        Ok(named) => named,
        Err(error) => return (0, vec![error]),
    };
    let is_named = |left: &&Abandoned| left.is_one_of(&named);
    let removed: Vec<_> =
        left.iter().filter(|left| !is_named(left)).map(Abandoned::remove).collect();
    let count = removed.iter().filter(|removed| removed.is_ok()).count();
    (count, removed.into_iter().filter_map(Result::err).collect())
}

/// The staging folders that the journals of `directory` name.
fn named_by_journals(directory: &Path) -> Result<HashSet<String>, Error> {
    Journal::all(directory)?
        .map(|(_, journal)| journal.map(|(_, journal)| journal.staging))
        .collect()
}

/// The staging folders beside `model` that interrupted saves of it left and nobody needs, sorted.
/// The files of the model are complete without them: loading completes a save that was interrupted
/// while it replaced files. The next save of the model, and [`recover`](crate::recovery::recover),
/// remove the folders. Those of saves in progress are not listed. Where folders cannot be locked
/// (some network file systems) the list is empty.
///
/// ```
/// let folder = tempfile::tempdir().unwrap();
/// let model = folder.path().join("m.onnx");
/// assert!(onnx_container::recovery::interrupted_saves(&model).is_empty());
/// ```
pub fn interrupted_saves(model: impl AsRef<Path>) -> Vec<PathBuf> {
    let model = model.as_ref();
    let Some(name) = model.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let directory = directory_of(model);
    let left = Abandoned::all(&directory, Some(name));
    let Ok(named) = named_by_journals(&directory) else { return Vec::new() };
    let is_unneeded = |left: &Abandoned| {
        left.is_begun() && !left.is_one_of(&named) && !left.may_have_moved_files()
    };
    left.into_iter().filter(is_unneeded).map(|left| left.path).collect()
}

/// What a save left, or still uses, beside its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeftState {
    /// The journal of a switch that is half done, or a staging folder with files that are needed to
    /// complete or undo it.
    Needed,
    /// A staging folder that a save uses, as far as is known: without locks of the file system
    /// nobody knows that it does not.
    InUse,
    /// A staging folder that nobody needs.
    Unneeded,
    /// The folder of a job, which somebody may go on with.
    Job,
}

/// What the folder `path` of a job is: of one that goes on, or of one that has ended and was not
/// removed to its end.
fn state_of_job(path: &Path) -> Option<LeftState> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match (is_of_job(name), is_of_ended_job(name)) {
        (true, _) => Some(LeftState::Job),
        (_, true) => Some(LeftState::Unneeded),
        _ => None,
    }
}

/// Whether the folder `path` is the staging folder of a save, or may be one, or that of a job.
pub(crate) fn is_staging_folder(path: &Path) -> bool {
    if state_of_job(path).is_some() {
        return true;
    }
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(may_be_staging_name) && is_of_a_save(path).unwrap_or(true)
}

/// What saves left in `directory`, sorted by path; nothing is changed.
///
/// # Errors
/// When the directory cannot be listed.
pub(crate) fn left_by_saves(directory: &Path) -> Result<Vec<(PathBuf, LeftState)>, Error> {
    // Locked while the journals are read: a save that was still running may have written one.
    let free = Abandoned::all(directory, None);
    let named = named_by_journals(directory).ok();
    let failed = |error| Error::io(directory, error);
    let mut left = Vec::new();
    for entry in retried(|| std::fs::read_dir(directory)).map_err(failed)?.flatten() {
        let path = entry.path();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(is_journal_name) {
            left.push((path, LeftState::Needed));
        } else if let Some(state) = state_of_job(&path).filter(|_| !is_file) {
            left.push((path, state));
        } else if !is_file && is_staging_folder(&path) {
            let state = match (free.iter().find(|free| free.path == path), &named) {
                (_, None) => LeftState::Needed,
                (Some(free), Some(named))
                    if free.is_one_of(named) || free.may_have_moved_files() =>
                {
                    LeftState::Needed
                }
                (Some(free), _) if free.is_begun() => LeftState::Unneeded,
                _ => LeftState::InUse,
            };
            left.push((path, state));
        }
    }
    left.sort();
    Ok(left)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::files::recovery::staging::StagingFolder;

    /// A folder or a file of the user may have a name that a save could give.
    #[test]
    fn what_only_looks_like_a_staging_folder_is_not_removed() {
        for file in ["new/notes.txt", "new/m.onnx", "notes", "files"] {
            for model_name in [None, Some("m.onnx")] {
                let folder = tempfile::tempdir().unwrap();
                let own = folder.path().join(".m.onnx.saving-backup");
                for part in ["new", "old"] {
                    fs::create_dir_all(own.join(part)).unwrap();
                }
                fs::write(own.join(file), "mine").unwrap();
                let (removed, errors) = remove_abandoned(folder.path(), model_name);
                assert_eq!((removed, errors.len()), (0, 0), "{file}");
                assert_eq!(fs::read_to_string(own.join(file)).unwrap(), "mine");
            }
        }
    }

    #[test]
    fn a_folder_that_was_made_just_now_is_no_interrupted_save() {
        let folder = tempfile::tempdir().unwrap();
        let (model, staging) =
            (folder.path().join("m.onnx"), folder.path().join(".m.onnx.saving-aB3xYz"));
        fs::create_dir(&staging).unwrap();
        assert!(interrupted_saves(&model).is_empty());
        fs::create_dir(staging.join("new")).unwrap();
        assert_eq!(interrupted_saves(&model), [staging]);
    }

    #[test]
    fn what_saves_left_is_told_by_what_it_is_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let begun = StagingFolder::new(folder.path(), "a.onnx").unwrap().keep();
        let used = StagingFolder::new(folder.path(), "b.onnx").unwrap();
        let moved = StagingFolder::new(folder.path(), "c.onnx").unwrap().keep();
        fs::write(moved.join("old/c.onnx"), "old").unwrap();
        for name in [".f.onnx.job-aB3xYz", ".f.onnx.ended-aB3xYz"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at(".g.onnx.job-aB3xYz"), "no folder").unwrap();
        fs::create_dir(at(".d.onnx.saving-backup")).unwrap();
        fs::write(at(".d.onnx.saving-backup/notes"), "mine").unwrap();
        let state = |path: &Path| {
            let left = left_by_saves(folder.path()).unwrap();
            left.into_iter().find(|(left, _)| left == path).map(|(_, state)| state)
        };
        assert_eq!(state(&begun), Some(LeftState::Unneeded));
        assert_eq!(state(used.path()), Some(LeftState::InUse));
        assert_eq!(state(&moved), Some(LeftState::Needed));
        assert_eq!(state(&at(".d.onnx.saving-backup")), None);
        assert_eq!(state(&at(".f.onnx.job-aB3xYz")), Some(LeftState::Job));
        assert_eq!(state(&at(".f.onnx.ended-aB3xYz")), Some(LeftState::Unneeded));
        assert_eq!(state(&at(".g.onnx.job-aB3xYz")), None);
        // A journal that cannot be read may name any of them.
        fs::write(at(".e.onnx.switching"), "no journal").unwrap();
        assert_eq!(state(&at(".e.onnx.switching")), Some(LeftState::Needed));
        assert_eq!(state(&begun), Some(LeftState::Needed));
    }

    #[test]
    fn what_was_moved_away_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let old = StagingFolder::new(folder.path(), "m.onnx").unwrap().keep().join("old");
        fs::write(old.join("m.onnx"), "old").unwrap();
        let (removed, errors) = remove_abandoned(folder.path(), Some("m.onnx"));
        assert_eq!((removed, errors.len()), (0, 1));
        fs::remove_file(old.join("m.onnx")).unwrap();
        assert_eq!(remove_abandoned(folder.path(), None).0, 1);
        assert!(!old.exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_second_name_of_a_file_in_place_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let staging = StagingFolder::new(folder.path(), "m.onnx").unwrap().keep();
        let (old, place) = (staging.join("old/m.onnx"), folder.path().join("m.onnx"));
        fs::write(&place, "old").unwrap();
        fs::write(&old, "old").unwrap();
        assert_eq!(remove_abandoned(folder.path(), None).0, 0);
        fs::remove_file(&old).unwrap();
        fs::hard_link(&place, &old).unwrap();
        assert_eq!(interrupted_saves(&place), std::slice::from_ref(&staging));
        assert_eq!(remove_abandoned(folder.path(), None).0, 1);
        assert!(!staging.exists() && fs::read_to_string(&place).unwrap() == "old");
    }

    #[test]
    fn what_no_save_puts_there_is_not_removed() {
        let paths = ["new/results/run1", "old/results/run1", "results/run1", "new/m.onnx/run1"];
        for path in paths.map(Path::new) {
            let folder = tempfile::tempdir().unwrap();
            let made = StagingFolder::new(folder.path(), "m.onnx").unwrap();
            made.list(&["m.onnx.data".to_owned(), "m.onnx".to_owned()], false).unwrap();
            let staging = made.keep();
            fs::write(staging.join("new/m.onnx.data"), "staged").unwrap();
            fs::create_dir_all(staging.join(path)).unwrap();
            fs::write(staging.join(path).join("thesis"), "work").unwrap();
            let (removed, errors) = remove_abandoned(folder.path(), None);
            assert_eq!((removed, errors.len()), (0, 1), "{path:?}");
            assert!(staging.join(path).join("thesis").is_file());
            assert!(staging.join("new/m.onnx.data").is_file());
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_link_in_it_is_followed() {
        let (folder, victim) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(victim.path().join("file"), "").unwrap();
        let staging = folder.path().join(".m.onnx.saving-aB3xYz");
        for part in ["new", "old", "journal", "new/link"] {
            fs::create_dir_all(staging.join("new")).unwrap();
            let _ = fs::remove_dir(staging.join(part));
            std::os::unix::fs::symlink(victim.path(), staging.join(part)).unwrap();
            remove_abandoned(folder.path(), None);
            assert!(victim.path().join("file").is_file(), "{part}");
            fs::remove_dir_all(&staging).or_else(|_| fs::create_dir(&staging)).unwrap();
        }
    }
}
