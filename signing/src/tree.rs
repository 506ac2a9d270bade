//! The files of a folder, as OpenSSF Model Signing lists them: all regular ones at any depth,
//! except paths that are ignored.

use std::collections::HashSet;
use std::fs::{DirEntry, read_dir};
use std::path::{Path, PathBuf};

use onnx_container::recovery::{is_left_by_saves, is_of_job};
use onnx_container::{Error, ErrorKind, Result};
use onnx_container_files::locations::plain;
use onnx_container_files::unfinished::is_unfinished;

use crate::pair;
use crate::verdict::{Problem, ProblemKind};

/// What is ignored in every folder, at its top.
pub const ALWAYS_IGNORED: [&str; 4] = [".git", ".gitattributes", ".github", ".gitignore"];

/// Paths beneath a folder that are left out, with all that is beneath them.
#[derive(Debug)]
pub struct Ignored(HashSet<String>);

impl Ignored {
    /// What is always ignored, and `more`. A path that leads out of the folder ignores nothing.
    pub fn with<'p>(more: impl IntoIterator<Item = &'p str>) -> Self {
        Self(ALWAYS_IGNORED.into_iter().chain(more).map(plain).collect())
    }

    /// Whether the file at `path` is left out, or a folder that it is in.
    pub fn covers(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        ends.filter_map(|end| path.get(..end)).any(|path| self.0.contains(path))
    }
}

/// What is in a folder.
#[derive(Debug, Default)]
pub struct Tree {
    /// Paths beneath the folder, in the order of their bytes.
    pub files: Vec<String>,
    /// What is neither a folder nor a regular file, or cannot be listed.
    pub problems: Vec<Problem>,
}

/// Lists the files beneath `root`. Links to files count as files when links are followed; links to
/// folders never are.
pub fn list(root: &Path, ignored: &Ignored, follows_links: bool) -> Result<Tree> {
    let (mut tree, mut folders) = (Tree::default(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let entries = match read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if folder.is_empty() => return Err(Error::io(path, error)),
            Err(error) => {
                tree.refuse(&folder, format!("the folder cannot be listed: {error}"));
                continue;
            }
        };
        for entry in entries {
            match entry {
                Ok(entry) => {
                    folders.extend(tree.add(&entry, &folder, ignored, follows_links));
                }
                Err(error) => tree.refuse(&folder, format!("the folder cannot be listed: {error}")),
            }
        }
    }
    tree.files.sort();
    Ok(tree)
}

impl Tree {
    /// Adds an entry of `folder`; the path of a folder, which is to be listed too.
    fn add(
        &mut self,
        entry: &DirEntry,
        folder: &str,
        ignored: &Ignored,
        follows_links: bool,
    ) -> Option<String> {
        let name = entry.file_name();
        let between = if folder.is_empty() { "" } else { "/" };
        let path = format!("{folder}{between}{}", name.to_string_lossy());
        if ignored.0.contains(&path) {
            return None;
        }
        if name.to_str().is_none() {
            self.refuse(&path, "its name is not UTF-8, and cannot be signed".to_owned());
            return None;
        }
        let kind = entry.file_type().and_then(|kind| match kind.is_symlink() {
            true if follows_links => Ok((entry.path().metadata()?.file_type(), true)),
            is_link => Ok((kind, is_link)),
        });
        match kind {
            Ok((kind, true)) if kind.is_dir() => {
                self.refuse(&path, "a link to a folder, which is not followed".to_owned());
            }
            Ok((kind, _)) if kind.is_symlink() => self.refuse(&path, LINK.to_owned()),
            Ok((kind, _)) if kind.is_dir() => return Some(path),
            Ok((kind, _)) if kind.is_file() => self.files.push(path),
            Ok(_) => self.refuse(&path, "a device, pipe or socket".to_owned()),
            Err(error) => self.refuse(&path, error.to_string()),
        }
        None
    }

    fn refuse(&mut self, path: &str, reason: String) {
        self.problems.push(Problem { path: path.to_owned(), kind: ProblemKind::Refused, reason });
    }
}

/// Which files are no part of the model, and are removed again by those who made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temporary {
    /// Those of a save.
    Save,
    /// Those of a signing.
    Signing,
    /// Those of other programs.
    Unfinished,
}

/// Whether the file at `path` beneath `root` is a temporary one, and the folder that `recover`
/// removes it from.
pub fn temporary(root: &Path, path: &str) -> Option<(Temporary, PathBuf)> {
    let mut folder = root.to_path_buf();
    for part in path.split('/') {
        if is_left_by_saves(part) {
            return Some((Temporary::Save, folder));
        }
        if pair::is_staged(part) {
            return Some((Temporary::Signing, folder));
        }
        if is_unfinished(part) {
            return Some((Temporary::Unfinished, folder));
        }
        folder.push(part);
    }
    None
}

/// Refuses a folder with files that saves make and remove again; `next` is what to do after
/// `recover`.
pub fn refuse_leftovers(root: &Path, found: &Tree, next: &str) -> Result<()> {
    let paths = found.files.iter().chain(found.problems.iter().map(|problem| &problem.path));
    let mut temporary = paths.filter_map(|path| self::temporary(root, path));
    let Some((of, folder)) = temporary.find(|(of, _)| *of != Temporary::Signing) else {
        return Ok(());
    };
    let who = if of == Temporary::Save { "an interrupted save" } else { "an interrupted command" };
    let reason =
        format!("has what {who} left: run `onnx-container recover {}`, {next}", folder.display());
    Err(Error::new(ErrorKind::Changed, reason).with_path(folder))
}

/// The folder of the job that the file at `path` beneath `root` is of.
pub fn job_of(root: &Path, path: &str) -> Option<PathBuf> {
    let mut folder = root.to_path_buf();
    let (above, _) = path.rsplit_once('/')?;
    above.split('/').find_map(|part| {
        folder.push(part);
        is_of_job(part).then(|| folder.clone())
    })
}

/// Refuses a folder with a job: what it has there changes with each part, and goes at its end.
pub fn refuse_jobs(root: &Path, found: &Tree) -> Result<()> {
    let Some(folder) = found.files.iter().find_map(|path| job_of(root, path)) else {
        return Ok(());
    };
    let reason = "is a job, whose files go at its end: commit it or abort it, then sign";
    Err(Error::new(ErrorKind::Changed, reason).with_path(folder))
}

/// What is said of a link where none is followed.
pub const LINK: &str = "a symbolic link, and only regular files are signed";

/// Whether there is a link on the way from `root` to the file at `path`.
pub fn has_link(root: &Path, path: &str) -> bool {
    let mut reached = root.to_path_buf();
    path.split('/').any(|part| {
        reached.push(part);
        reached.symlink_metadata().is_ok_and(|found| found.file_type().is_symlink())
    })
}
