//! The staging folder of a save: how it is made, and how it is removed by the save itself or by
//! a process that finds it later.
//!
//! What is in it belongs to a save beyond doubt: the list `files` in it names every file before it
//! is made. So a folder of the user that has such a name, or a file that the user put into one, is
//! never deleted; a second name in `old` of a file in place is.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::journal::{FileKind, IN_STAGING};
use crate::files::recovery::lock::FolderLock;
use crate::files::recovery::names::{RANDOM, staging_prefix};
use crate::files::recovery::place::OpenFolder;
use crate::util::retry::retried;

/// The name of the list in the staging folder.
const LIST: &str = "files";
/// The first field of the list. The names of the files follow, and each field ends with NUL.
const HEADER: &[u8] = b"onnx-container save 1\0";
/// The longest list, in bytes, that is read.
const LONGEST: u64 = 64 << 20;
/// How many names are tried before something else is wrong.
const MOST_NAMES: usize = 1000;

/// The staging folder of a running save; dropping it removes it.
#[derive(Debug)]
pub(crate) struct StagingFolder {
    path: PathBuf,
    /// Says that the folder is in use.
    lock: Option<FolderLock>,
    is_there: bool,
}

impl StagingFolder {
    /// Makes a folder for a save of the model in `directory`, with the folders for its files.
    pub(crate) fn new(directory: &Path, model_name: &str) -> io::Result<Self> {
        for _ in 0..MOST_NAMES {
            let path = directory.join(format!("{}{}", staging_prefix(model_name), random()));
            match retried(|| make_private(&path)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Another save may have removed the folder before it was locked.
            if let Some(lock) = FolderLock::of_new(&path) {
                let folder = Self { path, lock: Some(lock), is_there: true };
                folder.fill()?;
                return Ok(folder);
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn fill(&self) -> io::Result<()> {
        File::create_new(self.path.join(LIST))?.write_all(HEADER)?;
        [self.new_files(), self.old_files()]
            .iter()
            .try_for_each(|path| retried(|| fs::create_dir(path)))
    }

    /// Adds the names of files that are about to be made to the list, on the disk if `sync`: a list
    /// that a power failure takes would leave files that nobody knows to be those of a save.
    pub(crate) fn list(&self, names: &[String], sync: bool) -> io::Result<()> {
        let mut text = Vec::new();
        for name in names {
            text.extend_from_slice(name.as_bytes());
            text.push(0);
        }
        let mut list = File::options().append(true).open(self.path.join(LIST))?;
        list.write_all(&text)?;
        if sync {
            list.sync_all()?;
            OpenFolder::open(&self.path)?.flush()?;
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the new files.
    pub(crate) fn new_files(&self) -> PathBuf {
        self.path.join("new")
    }

    /// The folder that old files are moved to.
    pub(crate) fn old_files(&self) -> PathBuf {
        self.path.join("old")
    }

    /// Removes the folder with the new files in it.
    ///
    /// # Errors
    /// When that is not possible, or something else is in it.
    pub(crate) fn remove(mut self) -> Result<()> {
        self.is_there = false;
        match remove_staged(&self.path) {
            Ok(true) => Ok(()),
            Ok(false) => Err(holds_others(&self.path)),
            Err(error) => Err(Error::io(&self.path, error)),
        }
    }

    /// Leaves the folder where it is, for the process that continues the switch.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.is_there = false;
        self.path.clone()
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        if self.is_there {
            drop(remove_staged(&self.path));
        }
        drop(self.lock.take());
    }
}

/// The error for a folder that is not removed.
pub(super) fn holds_others(path: &Path) -> Error {
    let reason = "looks like the staging folder of a save, but holds what no save put there: move that away, or \
                  delete this folder";
    Error::new(ErrorKind::AlreadyExists, reason).with_path(path)
}

/// Removes the staging folder `path` with the files that a save put there. Whether it is gone:
/// nothing is removed where anything else is in it.
pub(super) fn remove_staged(path: &Path) -> io::Result<bool> {
    let Some((parent, name)) = path.parent().zip(path.file_name()) else { return Ok(false) };
    let (parent, name) = (OpenFolder::open(parent)?, name.to_string_lossy());
    let Some(folder) = parent.inside(&name)? else { return Ok(true) };
    let Some(listed) = listed(&folder)? else { return Ok(false) };
    // An error where a link has its name.
    let old = folder.inside("old")?;
    let second = old.as_ref().map(|old| second_names(old, &parent)).transpose()?;
    if matches!(second, Some(None)) {
        return Ok(false);
    }
    if let Some(new) = folder.inside("new")? {
        let files = new.names()?;
        let is_staged = |name: &OsString| {
            let is_file = matches!(new.mark(name)?, None | Some((_, FileKind::File)));
            Ok(is_file && listed.contains(name))
        };
        let are_staged: io::Result<Vec<bool>> = files.iter().map(is_staged).collect();
        if are_staged?.contains(&false) {
            return Ok(false);
        }
        files.iter().try_for_each(|name| new.delete(name))?;
    }
    if let Some((old, names)) = old.zip(second.flatten()) {
        names.iter().try_for_each(|name| old.delete(name))?;
    }
    remove_parts(&folder)?;
    parent.remove_empty(&name)
}

/// The names in the folder `old` of a staging folder, each a second name of a file in `place`, the
/// folder of the model: a power failure after an undo may leave such. `None` where anything else is
/// in it.
pub(super) fn second_names(
    old: &OpenFolder,
    place: &OpenFolder,
) -> io::Result<Option<Vec<OsString>>> {
    let names = old.names()?;
    for name in &names {
        if old.same_inode(name, (place, name))?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(names))
}

/// Removes what a save makes in its staging `folder` besides the files of the model: its own
/// folders, where they are empty.
pub(super) fn remove_parts(folder: &OpenFolder) -> io::Result<()> {
    let mut are_gone = true;
    for part in ["new", "old"] {
        are_gone &= folder.remove_empty(part)?;
    }
    // The list goes last: while anything is left, it says whose folder it is.
    are_gone = are_gone && holds_only_parts(folder)?;
    for file in [IN_STAGING, LIST].iter().filter(|_| are_gone) {
        if folder.mark(file)?.is_some_and(|(_, kind)| kind == FileKind::File) {
            folder.delete(file)?;
        }
    }
    Ok(())
}

/// Whether a save made the folder `path`: its list is there, or nothing is yet, as when a save is
/// killed that begins.
pub(super) fn is_of_a_save(path: &Path) -> io::Result<bool> {
    let folder = OpenFolder::open(path)?;
    let text = list_of(&folder)?;
    if text.starts_with(HEADER) {
        return Ok(true);
    }
    let mut is_empty = holds_only_parts(&folder)? && parse(&text).is_some();
    for part in ["new", "old"] {
        let part = folder.inside(part)?;
        is_empty &= part.map_or(Ok(true), |part| part.names().map(|names| names.is_empty()))?;
    }
    Ok(is_empty)
}

/// The files that the save of a staging folder made, by its list; `None` where anything is in the
/// folder that no save makes.
fn listed(folder: &OpenFolder) -> io::Result<Option<HashSet<OsString>>> {
    Ok(if holds_only_parts(folder)? { parse(&list_of(folder)?) } else { None })
}

/// Whether nothing is in the folder but what a save makes there.
fn holds_only_parts(folder: &OpenFolder) -> io::Result<bool> {
    let is_part = |name: &OsString| ["new", "old", LIST, IN_STAGING].iter().any(|p| name == p);
    let is_file = |name| -> io::Result<bool> {
        Ok(folder.mark(name)?.is_none_or(|(_, kind)| kind == FileKind::File))
    };
    Ok(folder.names()?.iter().all(is_part) && is_file(LIST)? && is_file(IN_STAGING)?)
}

/// The text of the list; none where there is no such file, or where a power failure left its length
/// alone, which is read as zeros.
fn list_of(folder: &OpenFolder) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    if folder.mark(LIST)?.is_some_and(|(_, kind)| kind == FileKind::File) {
        File::open(folder.path().join(LIST))?.take(LONGEST).read_to_end(&mut text)?;
    }
    if text.iter().all(|byte| *byte == 0) {
        text.clear();
    }
    Ok(text)
}

/// The names of a list. What was cut off at its end is no name: a file is made when its name is
/// there.
fn parse(text: &[u8]) -> Option<HashSet<OsString>> {
    let Some(names) = text.strip_prefix(HEADER) else {
        return HEADER.starts_with(text).then(HashSet::new);
    };
    let whole =
        names.split_inclusive(|byte| *byte == 0).filter_map(|name| name.strip_suffix(b"\0"));
    Some(whole.filter_map(|name| std::str::from_utf8(name).ok()).map(OsString::from).collect())
}

/// Letters and digits, other ones each time.
pub(crate) fn random() -> String {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // Each state has keys of its own.
    let mut number = RandomState::new().hash_one(std::process::id());
    let letter = |_| {
        let letter = usize::try_from(number % 62).ok().and_then(|letter| LETTERS.get(letter));
        number /= 62;
        letter.copied().map_or('0', char::from)
    };
    (0..RANDOM).map(letter).collect()
}

/// A name for the folder of a new job of this model, beside it, with an id that no other is likely
/// to have: for jobs whose folders are not in a file system.
///
/// ```
/// use onnx_container::recovery::{is_of_job, new_job_name};
///
/// let name = new_job_name("m.onnx");
/// assert!(is_of_job(&name) && name.starts_with(".m.onnx.job-"));
/// ```
#[cfg(feature = "jobs")]
pub fn new_job_name(model_name: &str) -> String {
    super::names::job_name(model_name, &random())
}

/// Makes a folder that only its owner may enter until its files are in place.
fn make_private(path: &Path) -> io::Result<()> {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(names: &[&str]) -> (tempfile::TempDir, StagingFolder) {
        let folder = tempfile::tempdir().unwrap();
        let staging = StagingFolder::new(folder.path(), "m.onnx").unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        staging.list(&names, false).unwrap();
        names.iter().for_each(|name| fs::write(staging.new_files().join(name), "new").unwrap());
        (folder, staging)
    }

    fn is_empty(folder: &Path) -> bool {
        fs::read_dir(folder).unwrap().next().is_none()
    }

    #[test]
    fn a_folder_is_removed_with_the_files_that_it_lists() {
        let (folder, staging) = made(&["w", "m.onnx"]);
        staging.remove().unwrap();
        assert!(is_empty(folder.path()));
        let (folder, staging) = made(&["w"]);
        drop(staging);
        assert!(is_empty(folder.path()));
        let (_folder, staging) = made(&["w"]);
        let kept = staging.keep();
        assert!(kept.join("new/w").is_file());
        assert!(remove_staged(&kept).unwrap() && !kept.exists());
    }

    #[test]
    fn what_is_not_listed_stays_with_all_that_is() {
        for other in ["new/notes", "notes", "old/notes"] {
            let (_folder, staging) = made(&["w"]);
            fs::write(staging.path().join(other), "the user's").unwrap();
            let path = staging.path().to_path_buf();
            let error = staging.remove().unwrap_err();
            assert!(error.reason().contains("holds what no save put there"), "{error}");
            assert_eq!(fs::read_to_string(path.join(other)).unwrap(), "the user's");
            assert!(path.join("new/w").exists());
        }
    }

    #[test]
    fn a_list_that_is_cut_off_names_what_was_made() {
        let whole = [HEADER, b"w\0m.onnx\0"].concat();
        for end in 0..=whole.len() {
            let names = parse(&whole[..end]).unwrap();
            let expected = match end.checked_sub(HEADER.len()) {
                None | Some(0..=1) => 0,
                Some(2..=8) => 1,
                Some(_) => 2,
            };
            assert_eq!(names.len(), expected, "{end}: {names:?}");
        }
        for other in [&b"x"[..], b"onnx-container save 2\0w\0", b"my files"] {
            assert_eq!(parse(other), None);
        }
    }

    #[test]
    fn names_differ() {
        let names: HashSet<_> = (0..100).map(|_| random()).collect();
        assert_eq!(names.len(), 100);
        assert!(names.iter().all(|name| name.len() == RANDOM));
    }
}
