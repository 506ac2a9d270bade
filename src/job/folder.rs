//! The folder of a job beside its model, `.<model>.job-<id>`: what is in it, and how it is made,
//! locked and removed.
//!
//! - `job.json`: the job.
//! - `model.onnx`: the model as it will be, with the names and offsets of the weights files.
//! - `new/`: the weights files, in their full length from the start.
//! - `receipts/`: one JSON file for each writer that is done, and a lock for each part.
//!
//! It is no staging folder: nobody holds a lock between the plan and the commit, which may be days
//! apart, so nothing removes it but a commit or `abort`.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::{flush_folder, job_name, staged_name};
use crate::util::retry::retried;

/// The longest JSON file of a job, in bytes, that is read.
const LONGEST: u64 = 1 << 30;

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

    /// Makes the folder and those in it. Only its owner may enter it until the model is in place.
    pub(super) fn create(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        retried(|| builder.create(&self.path))?;
        [self.new_files(), self.receipts()].iter().try_for_each(|it| retried(|| fs::create_dir(it)))
    }

    pub(super) fn json(&self) -> PathBuf {
        self.path.join("job.json")
    }

    pub(super) fn model(&self) -> PathBuf {
        self.path.join("model.onnx")
    }

    fn new_files(&self) -> PathBuf {
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
    pub(super) fn check(&self) -> Result<()> {
        let is_there = retried(|| fs::symlink_metadata(&self.path)).is_ok_and(|it| it.is_dir());
        if is_there {
            return Ok(());
        }
        let reason = "the job is not there: it was committed or aborted, or its folder was moved";
        Err(Error::new(ErrorKind::MissingFile, reason).with_path(&self.path))
    }

    /// Writes `name` of the folder so that it is there whole or not at all.
    pub(super) fn put(&self, path: &Path, bytes: &[u8], sync: bool) -> Result<()> {
        let fail = |error| Error::io(path, error);
        // Two writers of one receipt write files of their own.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        write().and_then(|()| retried(|| fs::rename(&new, path))).map_err(fail)?;
        match path.parent().filter(|_| sync) {
            Some(parent) => flush_folder(parent, &self.path),
            None => Ok(()),
        }
    }

    /// Stores the receipt of a writer.
    pub(super) fn put_receipt(&self, writer: &str, json: &str, sync: bool) -> Result<()> {
        self.put(&self.receipt(writer), json.as_bytes(), sync)
    }

    /// The receipt of a writer, where it is there.
    pub(super) fn stored_receipt(&self, writer: &str) -> Result<Option<String>> {
        match read_text(&self.receipt(writer)) {
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
        let fail = |error| Error::io(self.receipts(), error);
        let mut writers = Vec::new();
        for entry in fs::read_dir(self.receipts()).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            writers
                .extend(name.to_str().and_then(|it| it.strip_suffix(".json")).map(str::to_owned));
        }
        writers.sort_unstable();
        Ok(writers)
    }

    /// Waits until no other process writes what `writer` writes. A file system without locks gives
    /// none.
    pub(super) fn lock(&self, writer: &str) -> Result<Option<File>> {
        let file = self.lock_file(writer)?;
        Ok(file.lock().is_ok().then_some(file))
    }

    /// Refuses while a process writes what `writer` writes; keeps it from beginning while the lock
    /// is held.
    pub(super) fn lock_or_refuse(&self, writer: &str) -> Result<Option<File>> {
        let file = self.lock_file(writer)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => {
                let reason = format!("{writer} is being written: wait for it, or end its process");
                Err(Error::new(ErrorKind::Changed, reason).with_path(&self.path))
            }
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    fn lock_file(&self, writer: &str) -> Result<File> {
        self.check()?;
        let path = self.receipts().join(format!("{writer}.lock"));
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        opened.map_err(|error| Error::io(path, error))
    }

    /// Removes the folder with the weights files `names` and what jobs put there.
    ///
    /// # Errors
    /// Where anything else is in it, or it cannot be removed.
    pub(super) fn remove<'n>(&self, names: impl Iterator<Item = &'n str>) -> Result<()> {
        let removed = self.remove_files(names);
        match removed {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                let reason = "holds what no job put there: move that away, or delete this folder";
                Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(&self.path))
            }
            removed => removed.map_err(|error| Error::io(&self.path, error)),
        }
    }

    fn remove_files<'n>(&self, names: impl Iterator<Item = &'n str>) -> io::Result<()> {
        for name in names {
            gone(fs::remove_file(self.data(name)))?;
        }
        gone(fs::remove_dir(self.new_files()))?;
        if self.receipts().is_dir() {
            for entry in fs::read_dir(self.receipts())? {
                let path = entry?.path();
                let is_own = |it: &std::ffi::OsStr| it == "json" || it == "lock" || it == "new";
                if path.extension().is_some_and(is_own) {
                    gone(fs::remove_file(path))?;
                }
            }
        }
        gone(fs::remove_dir(self.receipts()))?;
        // The description goes last: while anything is left, it says whose folder it is.
        gone(fs::remove_file(self.model()))?;
        if fs::read_dir(&self.path)?.filter_map(Result::ok).any(|it| it.path() != self.json()) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        gone(fs::remove_file(self.json()))?;
        gone(fs::remove_dir(&self.path))
    }
}

/// The text of a file of a job.
pub(super) fn read_text(path: &Path) -> Result<String> {
    use std::io::Read;
    let fail = |error| Error::io(path, error);
    let file = File::open(path).map_err(fail)?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

/// What is not there is removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
