//! The folder of a job beside its model, `.<model>.job-<id>`: what is in it, and how it is made,
//! locked and removed.
//!
//! - `job.json`: the job. It is there first, and says what else may be.
//! - `new/`: the weights files, in their full length from the start.
//! - `receipts/`: one JSON file for each writer that is done, a lock for each, one for all, and the
//!   slices that each writer has begun to write.
//! - `committing`: a commit has begun, and the weights files may be those of the published model:
//!   no process writes to them any more.
//! - `model.onnx`: the model as it will be, with the names and offsets of the weights files. It is
//!   there last: without it the plan did not end.
//!
//! It is no staging folder: nobody holds a lock between the plan and the commit, which may be days
//! apart, so nothing removes it but a commit or `abort`. Both rename it first, to
//! `.<model>.ended-<id>`: that is the end of the job, and anybody may remove what is left.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::{
    Lock, gone, is_absent, is_folder, kind_at, no_link, not_ended, read_text, tried, when_free,
};
use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::{
    ended_job_name, flush_folder, is_of_job, job_name, random, staged_name,
};
use crate::util::cancel;
use crate::util::retry::retried;

/// The lock that writers share, and a commit has alone.
const JOB_LOCK: &str = "job.lock";
/// The end of the name of the list of slices that a writer has begun to write.
const BEGUN: &str = ".slices";
/// How long a writer waits before it tries a lock again, at first and later.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

const GONE: &str = "the job is not there: it was committed or aborted, or its folder was moved";
pub(super) const COMMITTING: &str = "is being committed: wait for that process";
const COMMIT_BEGUN: &str = "a commit of the job has begun: commit it again, or abort it";
pub(super) const HALF_MADE: &str = "the plan of this job did not end: its process was killed, or still runs. Abort \
                         the job and plan it again";

/// The folder of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobFolder {
    path: PathBuf,
}

impl JobFolder {
    /// That of the job `id` of the model `name` in `directory`.
    pub(super) fn of(directory: &Path, name: &str, id: &str) -> Self {
        Self { path: directory.join(job_name(name, id)) }
    }

    /// The folder at `path`, or that of the `job.json` at `path`.
    pub(super) fn at(path: &Path) -> Self {
        let is_json = path.file_name().is_some_and(|name| name == "job.json");
        let parent = path.parent().filter(|_| is_json && !path.is_dir());
        Self { path: parent.unwrap_or(path).to_path_buf() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the model and the id of the job; `None` where the folder is called otherwise, or
    /// where the name of the model was too long for it.
    pub(super) fn names(&self) -> Option<(&str, &str)> {
        let name = self.path.file_name()?.to_str()?;
        let (model, id) = name.strip_prefix('.')?.rsplit_once(".job-")?;
        (is_of_job(name) && job_name(model, id) == name).then_some((model, id))
    }

    /// Makes the folder, still empty. Only its owner may enter it until the model is in place.
    pub(super) fn create(&self) -> io::Result<()> {
        #[cfg_attr(not(unix), allow(unused_mut))]
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        retried(|| builder.create(&self.path))
    }

    /// Makes the folders in it.
    pub(super) fn create_parts(&self) -> Result<()> {
        [self.new_files(), self.receipts()]
            .iter()
            .try_for_each(|it| retried(|| fs::create_dir(it)).map_err(|e| Error::io(it, e)))
    }

    pub(super) fn json(&self) -> PathBuf {
        self.path.join("job.json")
    }

    pub(super) fn model(&self) -> PathBuf {
        self.path.join("model.onnx")
    }

    pub(super) fn new_files(&self) -> PathBuf {
        self.path.join("new")
    }

    /// Where the weights file `name` is until the commit.
    pub(super) fn data(&self, name: &str) -> PathBuf {
        self.new_files().join(&*staged_name(name))
    }

    pub(super) fn receipts(&self) -> PathBuf {
        self.path.join("receipts")
    }

    fn receipt(&self, writer: &str) -> PathBuf {
        self.receipts().join(format!("{writer}.json"))
    }

    /// Refuses a job that is not there.
    pub(super) fn check_there(&self) -> Result<()> {
        match kind_at(&self.path)? {
            Some(kind) if kind.is_dir() => Ok(()),
            _ => Err(Error::new(ErrorKind::MissingFile, GONE).with_path(&self.path)),
        }
    }

    /// Refuses a job that is not there whole: its model is written last.
    pub(super) fn check(&self) -> Result<()> {
        self.check_there()?;
        // What is not there may have gone with the whole folder meanwhile.
        self.check_inside().or_else(|error| self.check_there().and(Err(error)))
    }

    fn check_inside(&self) -> Result<()> {
        let wrong = |kind, reason| Err(Error::new(kind, reason).with_path(&self.path));
        if !kind_at(&self.model())?.is_some_and(|kind| kind.is_file()) {
            return wrong(ErrorKind::MissingFile, HALF_MADE);
        }
        if !is_folder(&self.new_files())? || !is_folder(&self.receipts())? {
            return wrong(ErrorKind::Changed, "a folder of the job is gone, or a link");
        }
        Ok(())
    }

    /// Writes `name` of the folder so that it is there whole or not at all.
    pub(super) fn put(&self, path: &Path, bytes: &[u8], sync: bool) -> Result<()> {
        let fail = |error| Error::io(path, error);
        // Two writers of one receipt, on two machines too, write files of their own.
        let new = path.with_extension(format!("{}.new", random()));
        let write = || {
            let mut file = File::create_new(&new)?;
            file.write_all(bytes)?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        if let Err(error) = write().and_then(|()| retried(|| fs::rename(&new, path))) {
            drop(fs::remove_file(&new));
            return Err(fail(error));
        }
        match path.parent().filter(|_| sync) {
            Some(parent) => flush_folder(parent, &self.path),
            None => Ok(()),
        }
    }

    fn mark(&self) -> PathBuf {
        self.path.join("committing")
    }

    /// Notes that a commit begins, after which the weights files may be those of the model. Whether
    /// no earlier one has noted it.
    pub(super) fn mark_commit(&self, sync: bool) -> Result<bool> {
        let is_new = kind_at(&self.mark())?.is_none();
        self.put(&self.mark(), b"", sync).map(|()| is_new)
    }

    /// Whether a commit has begun.
    pub(super) fn is_committing(&self) -> Result<bool> {
        Ok(kind_at(&self.mark())?.is_some())
    }

    /// Takes the note back: no weights file is that of a model.
    pub(super) fn unmark_commit(&self) -> Result<()> {
        gone(fs::remove_file(self.mark())).map_err(|error| Error::io(self.mark(), error))
    }

    /// Refuses to write where a commit has begun.
    pub(super) fn refuse_commit(&self) -> Result<()> {
        match self.is_committing()? {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Changed, COMMIT_BEGUN).with_path(&self.path)),
        }
    }

    /// Where the list of the slices that a writer has begun to write is.
    pub(super) fn begun(&self, writer: &str) -> PathBuf {
        self.receipts().join(format!("{writer}{BEGUN}"))
    }

    /// The writers that have such a list.
    pub(super) fn slice_writers(&self) -> Result<Vec<String>> {
        self.names_of_receipts(BEGUN)
    }

    /// Stores the receipt of a writer.
    pub(super) fn put_receipt(&self, writer: &str, json: &str, sync: bool) -> Result<()> {
        self.put(&self.receipt(writer), json.as_bytes(), sync)
    }

    /// The receipt of a writer, where it is there.
    pub(super) fn stored_receipt(&self, writer: &str) -> Result<Option<String>> {
        match read_text(&self.receipt(writer), false) {
            Err(error) if error.kind() == ErrorKind::MissingFile => Ok(None),
            read => read.map(Some),
        }
    }

    /// Removes the receipt of a writer.
    pub(super) fn forget(&self, writer: &str) -> Result<()> {
        let path = self.receipt(writer);
        gone(fs::remove_file(&path)).map_err(|error| Error::io(path, error))
    }

    /// The names of the writers whose receipts are there, in their order.
    pub(super) fn writers(&self) -> Result<Vec<String>> {
        self.names_of_receipts(".json")
    }

    /// The names of the files that end so among the receipts, without that end, in their order.
    fn names_of_receipts(&self, end: &str) -> Result<Vec<String>> {
        let fail = |error| Error::io(self.receipts(), error);
        let mut writers = Vec::new();
        for entry in fs::read_dir(self.receipts()).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            writers.extend(name.to_str().and_then(|it| it.strip_suffix(end)).map(str::to_owned));
        }
        writers.sort_unstable();
        Ok(writers)
    }

    /// Waits until no other process writes what `writer` writes. A file system without locks gives
    /// none.
    pub(super) fn lock(&self, writer: &str) -> Result<Option<File>> {
        self.locked(&format!("{writer}.lock"), File::try_lock)
    }

    /// Refuses while another process writes what `writer` writes.
    pub(super) fn lock_or_refuse_writer(&self, writer: &str) -> Result<Option<File>> {
        let reason =
            format!("{writer} is being written by another process: wait for it, or end it");
        self.lock_or_refuse(&format!("{writer}.lock"), File::try_lock, &reason)
    }

    /// Waits until no process commits the job, and keeps others from it: writers hold this.
    pub(super) fn lock_to_write(&self) -> Result<Option<File>> {
        self.locked(JOB_LOCK, File::try_lock_shared)
    }

    /// Refuses while a process writes or commits, and keeps others from it.
    pub(super) fn lock_to_commit(&self) -> Result<Option<File>> {
        self.lock_or_refuse(
            JOB_LOCK,
            File::try_lock,
            "is being written or committed: wait for that process",
        )
    }

    /// Refuses while a process commits the job.
    pub(super) fn lock_to_end(&self) -> Result<Option<File>> {
        self.lock_or_refuse(JOB_LOCK, File::try_lock_shared, COMMITTING)
    }

    /// Tries until the lock is there, so that a signal or a [cancel](crate::Cancel) ends the wait.
    fn locked(&self, name: &str, lock: Lock) -> Result<Option<File>> {
        self.check()?;
        let file = self.lock_file(name)?;
        let mut pause = SHORTEST_PAUSE;
        let fail = |error| Error::io(&self.path, error);
        while let Some(is_locked) = tried(&file, lock).map_err(fail)? {
            if is_locked {
                // The job may have ended meanwhile.
                self.check()?;
                return Ok(Some(file));
            }
            cancel::check()?;
            std::thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
        Ok(None)
    }

    fn lock_or_refuse(&self, name: &str, lock: Lock, reason: &str) -> Result<Option<File>> {
        let file = self.lock_file(name)?;
        match tried(&file, lock).map_err(|error| Error::io(&self.path, error))? {
            // The job may have ended meanwhile.
            Some(true) => self.check().map(|()| Some(file)),
            Some(false) => Err(Error::new(ErrorKind::Changed, reason).with_path(&self.path)),
            None => Ok(None),
        }
    }

    fn lock_file(&self, name: &str) -> Result<File> {
        let path = self.receipts().join(name);
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        // Where the job has ended meanwhile, that is said.
        let fail = |error| self.check().err().unwrap_or_else(|| Error::io(path.clone(), error));
        no_link(&mut options).open(&path).map_err(fail)
    }

    /// Ends the job, whose weights files are `names`: from one instant on it is no job any more,
    /// and then its folder is removed.
    ///
    /// # Errors
    /// Where anything else is in it, or it cannot be removed.
    pub(super) fn end<'n>(&self, names: impl Iterator<Item = &'n str>, sync: bool) -> Result<()> {
        let fail = |error| not_ended(&self.path, error);
        let names: HashSet<_> = names.map(|name| staged_name(name).into_owned()).collect();
        if when_free(|| self.holds_others(&names)).map_err(fail)? {
            let reason = "holds what no job put there: move that away, or delete this folder";
            return Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(&self.path));
        }
        let ended = self.ended();
        let ended =
            ended.ok_or_else(|| Error::internal("a job whose folder has no name of one"))?;
        when_free(|| fs::rename(&self.path, &ended)).map_err(fail)?;
        if let Some(parent) = ended.parent().filter(|_| sync) {
            flush_folder(parent, parent)?;
        }
        remove_ended(&ended)
    }

    /// What the folder is called from the end of the job on.
    fn ended(&self) -> Option<PathBuf> {
        let name = self.path.file_name()?.to_str()?;
        Some(self.path.with_file_name(ended_job_name(name)?))
    }

    /// Removes what the end of the job has left where it was killed; says whether there was any.
    /// Others may do the same at once.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub(super) fn remove_left(&self) -> Result<bool> {
        let Some(ended) = self.ended() else { return Ok(false) };
        match kind_at(&ended)? {
            Some(_) => remove_ended(&ended).map(|()| true),
            None => Ok(false),
        }
    }

    /// Whether nothing of the job is left, under either name.
    pub(super) fn is_removed(&self) -> bool {
        let is_gone = |path: &Path| matches!(kind_at(path), Ok(None));
        is_gone(&self.path) && self.ended().is_some_and(|ended| is_gone(&ended))
    }

    /// Whether anything is in the folder that no job puts there.
    fn holds_others(&self, names: &HashSet<String>) -> io::Result<bool> {
        let is_part = |name: &str| ["new", "receipts"].contains(&name);
        let is_own =
            |name: &str| ["job.json", "model.onnx", "committing"].contains(&name) || is_new(name);
        let is_of_writer =
            |name: &str| [".json", ".lock", BEGUN, ".new"].iter().any(|end| name.ends_with(end));
        Ok(has_other(&self.path, |name, is_folder| match is_folder {
            true => is_part(name),
            false => is_own(name),
        })? || has_other(&self.new_files(), |name, is_folder| {
            !is_folder && names.contains(name)
        })? || has_other(&self.receipts(), |name, is_folder| !is_folder && is_of_writer(name))?)
    }
}

/// Whether a file of this name is one that was not written to its end.
fn is_new(name: &str) -> bool {
    name.ends_with(".new")
}

/// Whether anything is in `folder` that is not own, told by its name and whether it is a folder. A
/// folder that is not there is empty.
fn has_other(folder: &Path, is_own: impl Fn(&str, bool) -> bool) -> io::Result<bool> {
    let entries = match retried(|| fs::read_dir(folder)) {
        Err(error) if is_absent(&error) => return Ok(false),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (name, is_folder) = (entry.file_name(), entry.file_type()?.is_dir());
        if !name.to_str().is_some_and(|name| is_own(name, is_folder)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The folders in `directory` whose names `is_one` says are those of jobs, in their order.
pub(super) fn folders_in(directory: &Path, is_one: fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in retried(|| fs::read_dir(directory))? {
        let entry = entry?;
        let is_named = entry.file_name().to_str().is_some_and(is_one);
        if is_named && entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes the folder of a job that has ended. Others may do the same at once.
///
/// # Errors
/// Where it cannot be removed.
pub(super) fn remove_ended(path: &Path) -> Result<()> {
    let parts = [path.join("new"), path.join("receipts"), path.to_path_buf()];
    // A link is removed, and what it leads to stays.
    let remove = |part: &PathBuf| {
        let removed = match is_folder(part)? {
            true => remove_files(part).and_then(|()| gone(when_free(|| fs::remove_dir(part)))),
            false => gone(when_free(|| fs::remove_file(part))),
        };
        removed.map_err(|error| not_ended(path, error))
    };
    parts.iter().try_for_each(remove)
}

/// Removes the files in `folder`, if it is there.
fn remove_files(folder: &Path) -> io::Result<()> {
    let entries = match when_free(|| fs::read_dir(folder)) {
        Err(error) if is_absent(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            gone(when_free(|| fs::remove_file(entry.path())))?;
        }
    }
    Ok(())
}

/// Removes the folder at `path` of a job of which nothing is made but the folder.
///
/// # Errors
/// Where anything is in it.
pub(super) fn remove_begun(path: &Path) -> Result<()> {
    let fail = |error| Error::io(path, error);
    if has_other(path, |name, is_folder| !is_folder && is_new(name)).map_err(fail)? {
        let reason = "has no job.json, and holds what no job put there: move that away, or delete this folder";
        return Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(path));
    }
    remove_ended(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_removed_when_it_is_there_under_neither_name() {
        let directory = tempfile::tempdir().unwrap();
        let job = JobFolder::of(directory.path(), "m.onnx", "aB3xYz");
        assert!(job.is_removed());
        for name in [".m.onnx.job-aB3xYz", ".m.onnx.ended-aB3xYz"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            assert!(!job.is_removed(), "{name}");
            fs::remove_dir(directory.path().join(name)).unwrap();
        }
        // A model with a long name has a shorter one there.
        let job = JobFolder::of(directory.path(), &"n".repeat(90), "aB3xYz");
        assert!(job.is_removed());
    }
}
