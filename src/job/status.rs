//! [`Job::status`] and [`Job::abort`]: how far a job is, and its end without a result.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::commit::committed_job;
use super::description::Job;
use super::disk::kind_at;
use super::folder::{COMMITTING, JobFolder, folders_in, remove_begun};
use super::receipt::part_of;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::directory_of;
use crate::files::recovery::{is_of_job, job_name, recover_save, remove_leftovers};

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobStatus {
    /// The parts that are written.
    pub done: Vec<usize>,
    /// The parts that are not.
    pub missing: Vec<usize>,
    /// The writers of slices that are done.
    pub writers: Vec<String>,
    /// How many bytes are written.
    pub bytes_written: u64,
    /// How many bytes the tensors have.
    pub bytes: u64,
    /// Whether each tensor is written once, so that the job can be committed.
    pub is_complete: bool,
    /// Whether a commit has put the model in place.
    pub is_committed: bool,
    /// Whether that commit has ended the job. Otherwise it was killed before it did, or could not
    /// remove all: [`remove_ended_jobs`](super::remove_ended_jobs) does that.
    pub is_ended: bool,
    /// Whether the model or a weights file was replaced or changed since the job ended.
    pub is_replaced: bool,
    /// The weights, by their old names and in their order, of which finite numbers became infinite
    /// by a cast, as far as the written parts tell; see
    /// [`CastReport::infinite`](crate::edit::CastReport::infinite).
    pub infinite: Vec<String>,
}

impl Job {
    /// How far the job is, by the receipts in its folder; of one that a commit has ended, as
    /// [`committed`](Self::committed) says it.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`](crate::ErrorKind::MissingFile) where the job was aborted, and
    /// where it cannot be told whether it was or was committed; those of reading the receipts.
    pub fn status(&self) -> Result<JobStatus> {
        self.while_there(|| self.found()).or_else(|error| match self.committed() {
            Ok(Some(committed)) => self.ended(committed.replaced),
            Ok(None) => Err(self.unless_gone(error)),
            Err(_) => Err(error),
        })
    }

    /// The status of a job that a commit has ended.
    fn ended(&self, is_replaced: bool) -> Result<JobStatus> {
        let bytes = self.bytes()?;
        Ok(JobStatus {
            done: self.parts().collect(),
            missing: Vec::new(),
            writers: Vec::new(),
            bytes_written: bytes,
            bytes,
            is_complete: true,
            is_committed: true,
            is_ended: true,
            is_replaced,
            infinite: Vec::new(),
        })
    }

    /// How many bytes the tensors have.
    fn bytes(&self) -> Result<u64> {
        let lengths = self.tensors.iter().map(super::description::PlannedTensor::byte_len);
        let lengths: Vec<u64> = lengths.collect::<Result<_>>()?;
        Ok(lengths.iter().fold(0, |sum, len| len.saturating_add(sum)))
    }

    /// What `read` finds in the folder, unless a commit or an abort removes it meanwhile.
    fn while_there<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        self.job_folder().check()?;
        let found = read();
        self.job_folder().check()?;
        found
    }

    fn found(&self) -> Result<JobStatus> {
        let receipts = self.of_this_job(self.receipts()?)?;
        let mut done: Vec<_> = receipts.iter().filter_map(|it| part_of(&it.writer)).collect();
        done.sort_unstable();
        let missing = self.needed_parts().filter(|it| done.binary_search(it).is_err()).collect();
        let slices = receipts.iter().filter(|it| part_of(&it.writer).is_none());
        let infinite: BTreeSet<_> = receipts.iter().flat_map(|it| &it.infinite).cloned().collect();
        Ok(JobStatus {
            is_complete: self.check_complete(&receipts).is_ok()
                && self.check_begun(&receipts).is_ok(),
            is_committed: self.is_committed()?,
            is_ended: false,
            is_replaced: false,
            writers: slices.map(|it| it.writer.clone()).collect(),
            bytes_written: receipts.iter().fold(0, |sum, it| it.bytes.saturating_add(sum)),
            bytes: self.bytes()?,
            done,
            missing,
            infinite: infinite.into_iter().collect(),
        })
    }

    /// The parts without a receipt. Unlike [`status`](Self::status) this reads none, so each of
    /// many writers may ask: a part whose receipt was damaged is not among them.
    ///
    /// # Errors
    /// Those of [`status`](Self::status).
    pub fn missing_parts(&self) -> Result<Vec<usize>> {
        let writers = match self.while_there(|| self.job_folder().writers()) {
            Ok(writers) => writers,
            Err(error) => match self.committed() {
                Ok(Some(_)) => return Ok(Vec::new()),
                Ok(None) => return Err(self.unless_gone(error)),
                Err(_) => return Err(error),
            },
        };
        let done: HashSet<_> = writers.iter().filter_map(|it| part_of(it)).collect();
        Ok(self.needed_parts().filter(|part| !done.contains(part)).collect())
    }

    /// The parts that have to be written: none where no tensor is in a weights file.
    fn needed_parts(&self) -> std::ops::Range<usize> {
        if self.tensors.is_empty() { 0..0 } else { self.parts() }
    }

    /// Ends the job: its folder is removed with all that was written.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`](crate::ErrorKind::MissingFile) where the job was committed or
    /// aborted (where an abort was killed and has left files, they are removed, which is no error),
    /// [`ErrorKind::AlreadyExists`](crate::ErrorKind::AlreadyExists) where something else is in the
    /// folder, [`ErrorKind::Changed`](crate::ErrorKind::Changed) where a commit that was killed had
    /// come so far that its model is in place (the job is then ended); where such a commit can be
    /// neither completed nor undone, those of [`recover_model`](crate::recovery::recover_model),
    /// and the job is still there; those of the disk.
    pub fn abort(self) -> Result<()> {
        self.abort_open().map_err(|error| self.unless_gone(error))
    }

    fn abort_open(&self) -> Result<()> {
        let folder = self.job_folder();
        if let Err(error) = folder.check_there() {
            let is_committed =
                || Ok(self.marked()?.is_some() || self.is_model_planned()? == Some(true));
            return removed_before(&folder, is_committed, error);
        }
        // Kept to the end of the job, so that no commit begins.
        let lock = match folder.check().and_then(|()| folder.lock_to_end()) {
            Err(error) if error.reason() == COMMITTING => return Err(error),
            // Of a job that is not whole there is nothing to commit.
            lock => lock.ok().flatten(),
        };
        let has_begun = folder.is_committing()?;
        if has_begun {
            // Otherwise a load may put the model in place when the job is gone.
            recover_save(&self.directory, &self.name)?;
        } else {
            // A commit that was killed before it began may have left links of the weights files,
            // which would keep their space. What stays is found by `recover`.
            drop(remove_leftovers(&self.directory, &self.name));
        }
        let is_published = has_begun && self.has_published();
        // Windows renames no folder of which a file is open.
        let lock = lock.filter(|_| !cfg!(windows));
        self.remove_folder()?;
        drop(lock);
        if !is_published {
            return Ok(());
        }
        let reason = "a commit of the job had put its model in place: the job is ended, and what is \
                      at this path stays";
        Err(Error::new(ErrorKind::Changed, reason).with_path(self.path()))
    }
}

/// The folders of jobs in `directory`, in the order of their names: of models there that somebody
/// plans to replace, or has given up.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// assert!(onnx_container::job::jobs_in(folder.path())?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) where the folder cannot be listed.
pub fn jobs_in(directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let directory = directory.as_ref();
    folders_in(directory, is_of_job).map_err(|error| Error::io(directory, error))
}

/// As [`jobs_in`], of the model at `path` alone.
///
/// # Errors
/// Those of [`jobs_in`].
pub fn jobs_of(path: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let path = path.as_ref();
    let Some(model) = path.file_name().and_then(|name| name.to_str()) else {
        return Ok(Vec::new());
    };
    let is_of_model = |folder: &PathBuf| {
        let name = folder.file_name().and_then(|name| name.to_str());
        let id = name.and_then(|name| name.rsplit_once(".job-"));
        id.is_some_and(|(_, id)| name == Some(&*job_name(model, id)))
    };
    let mut jobs = jobs_in(directory_of(path))?;
    jobs.retain(is_of_model);
    Ok(jobs)
}

/// Ends the job whose folder is at `folder`, as [`Job::abort`] does; also one whose plan was killed
/// before it described the job.
///
/// # Errors
/// Those of [`Job::open`] and [`Job::abort`].
pub fn abort_job(folder: impl AsRef<Path>) -> Result<()> {
    let folder = folder.as_ref();
    let name = folder.file_name().and_then(|name| name.to_str());
    let is_there = name.is_some_and(is_of_job) && JobFolder::at(folder).check_there().is_ok();
    if is_there && kind_at(&JobFolder::at(folder).json())?.is_none() {
        return remove_begun(folder);
    }
    match Job::open(folder) {
        Ok(job) => job.abort(),
        Err(error) if name.is_some_and(is_of_job) && kind_at(folder)?.is_none() => {
            let is_committed = || Ok(committed_job(folder)?.is_some());
            removed_before(&JobFolder::at(folder), is_committed, error)
        }
        Err(error) => Err(error),
    }
}

/// Removes what is left of a job that has ended: where an abort that was killed has left it, the
/// job is aborted now; else `gone`.
fn removed_before(
    folder: &JobFolder,
    is_committed: impl FnOnce() -> Result<bool>,
    gone: Error,
) -> Result<()> {
    match folder.remove_left()? && !is_committed()? {
        true => Ok(()),
        false => Err(gone),
    }
}
