//! Whether a commit has put the files of a job in place, and [`remove_ended_jobs`]: what is left of
//! jobs that have ended is removed.

use std::path::Path;

use super::description::Job;
use super::disk::kind_at;
use super::folder::{JobFolder, folders_in, remove_ended};
use super::source::RewriteSource;
use super::stamp::sha256;
use crate::buffer::{Buffer, MmapChoice};
use crate::error::{Error, ErrorKind, Result};
use crate::files::recovery::{is_of_ended_job, is_of_job};
use crate::graph::stored_digests::remove_digests;
use crate::proto::{Message, ModelProto};
use crate::save::file_ids;
use crate::wire::DecodeOptions;

impl Job {
    /// Ends the job: its folder is removed with all that is in it.
    pub(super) fn remove_folder(&self) -> Result<()> {
        let names = self.files.iter().map(|file| file.name.as_str());
        self.job_folder().end(names, self.publishing.sync)
    }

    /// Whether the weights file of this index is in place, under another name.
    pub(super) fn is_linked(&self, number: usize) -> bool {
        let Some(file) = self.files.get(number) else { return false };
        let staged = self.staged_file(number).and_then(|staged| file_ids(&staged));
        let there = file_ids(&self.directory.join(&file.name));
        staged.ok().zip(there.ok()).is_some_and(|(staged, there)| staged == there)
    }

    /// Whether a weights file in place is one of the job, under another name.
    pub(super) fn is_published(&self) -> bool {
        (0..self.files.len()).any(|number| self.is_linked(number))
    }

    /// Whether a commit has put all in place, and was killed before it ended the job.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn is_committed(&self) -> Result<bool> {
        let is_there = self.job_folder().is_committing()?
            && (0..self.files.len()).all(|number| self.is_linked(number));
        Ok(is_there && self.is_model_planned()?.unwrap_or(false))
    }

    /// Whether the model in place is that of the plan, perhaps with digests; `None` for what is no
    /// model.
    pub(super) fn is_model_planned(&self) -> Result<Option<bool>> {
        let found = match MmapChoice::never().buffer(self.path()) {
            Err(error) if error.kind() == ErrorKind::MissingFile => return Ok(None),
            found => found?,
        };
        let Ok(mut model) = self.decoded(&found) else { return Ok(None) };
        remove_digests(&mut model);
        Ok(Some(sha256(&model.encode_to_vec()?) == self.model))
    }

    /// A model within the limits of the source.
    pub(super) fn decoded(&self, encoded: &Buffer) -> Result<ModelProto> {
        let limits = self.source.as_ref().map(RewriteSource::limits).unwrap_or_default();
        ModelProto::decode_with(encoded, &DecodeOptions::new().limits(limits))
    }
}

/// Removes the folders in `directory` of jobs that have ended, by a commit or an abort that was
/// killed when all was done but this. Returns how many, and an error for each that is still there.
///
/// A job also has ended where its commit was killed when the model and the weights files were in
/// place, each as a second name of a file of the job.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let (removed, errors) = onnx_container::job::remove_ended_jobs(folder.path());
/// assert!(removed == 0 && errors.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn remove_ended_jobs(directory: impl AsRef<Path>) -> (usize, Vec<Error>) {
    remove_jobs(directory.as_ref(), |_| true)
}

/// The same for a plan. A committed job stays where nothing but its folder tells a commit again
/// that it is committed: nobody has asked to remove it.
pub(super) fn remove_marked_jobs(directory: &Path) {
    // What cannot be removed is left to the next one.
    drop(remove_jobs(directory, |job| job.found_by_mark().is_ok_and(|found| found.is_some())));
}

fn remove_jobs(directory: &Path, may_go: impl Fn(&Job) -> bool) -> (usize, Vec<Error>) {
    let found = folders_in(directory, is_of_job)
        .and_then(|open| Ok((open, folders_in(directory, is_of_ended_job)?)));
    let (open, ended) = match found {
        Ok(found) => found,
        Err(error) => return (0, vec![Error::io(directory, error)]),
    };
    let ended = ended.iter().map(|path| remove_ended(path).map(|()| true));
    let results = open.iter().map(|path| remove_committed(path, &may_go)).chain(ended);
    let (removed, kept): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
    let removed = removed.into_iter().filter(|result| *result.as_ref().unwrap_or(&false));
    (removed.count(), kept.into_iter().filter_map(Result::err).collect())
}

/// Whether a commit has put all of the job in place whose folder is at `folder`, and was killed
/// before it removed that. Unlike [`Job::status`] this reads no receipt.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// assert!(!onnx_container::job::is_committed(folder.path().join(".m.onnx.job-aB3xYz"))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Where a commit has begun, those of [`Job::open`]; those of the disk.
pub fn is_committed(folder: impl AsRef<Path>) -> Result<bool> {
    let folder = folder.as_ref();
    // Most jobs go on: they are not read.
    if !JobFolder::at(folder).is_committing()? {
        return Ok(false);
    }
    match Job::open(folder) {
        // It has ended meanwhile.
        Err(_) if kind_at(folder)?.is_none() => Ok(false),
        job => job?.is_committed(),
    }
}

/// The job whose folder is at `path`, if a commit of it has begun.
fn committing(path: &Path) -> Option<Job> {
    // Most jobs go on: they are neither read nor locked.
    let has_begun = JobFolder::at(path).is_committing().unwrap_or(false);
    // What cannot be opened stays, as a job that goes on: nobody knows what it is.
    has_begun.then(|| Job::open(path).ok()).flatten()
}

/// Ends the job whose folder is at `path` if it is committed and `may_go`. Whether it did.
fn remove_committed(path: &Path, may_go: impl Fn(&Job) -> bool) -> Result<bool> {
    let Some(job) = committing(path) else { return Ok(false) };
    // A commit that still runs has the lock, and ends the job itself.
    let Ok(lock) = job.job_folder().lock_to_end() else { return Ok(false) };
    if !job.is_committed().unwrap_or(false) || !may_go(&job) {
        return Ok(false);
    }
    drop(lock);
    match job.remove_folder() {
        // Another process was faster.
        Err(_) if job.job_folder().is_removed() => Ok(true),
        removed => removed.map(|()| true),
    }
}
