//! [`Job::status`] and [`Job::abort`]: how far a job is, and its end without a result.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::description::Job;
use super::folder::JobFolder;
use super::receipt::part_of;
use crate::error::{Error, Result};
use crate::files::recovery::is_of_job;

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
}

impl Job {
    /// How far the job is, by the receipts in its folder.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`](crate::ErrorKind::MissingFile) where the job was committed or
    /// aborted, and those of reading the receipts.
    pub fn status(&self) -> Result<JobStatus> {
        self.job_folder().check()?;
        let receipts = self.receipts()?;
        let mut done: Vec<_> = receipts.iter().filter_map(|it| part_of(&it.writer)).collect();
        done.sort_unstable();
        let missing = self.parts().filter(|part| done.binary_search(part).is_err()).collect();
        let slices = receipts.iter().filter(|it| part_of(&it.writer).is_none());
        let lengths = self.tensors.iter().map(super::description::PlannedTensor::byte_len);
        let lengths: Vec<u64> = lengths.collect::<Result<_>>()?;
        Ok(JobStatus {
            writers: slices.map(|it| it.writer.clone()).collect(),
            bytes_written: receipts.iter().fold(0, |sum, it| it.bytes.saturating_add(sum)),
            bytes: lengths.iter().fold(0, |sum, len| len.saturating_add(sum)),
            done,
            missing,
        })
    }

    /// Ends the job: its folder is removed with all that was written.
    ///
    /// # Errors
    /// [`ErrorKind::MissingFile`](crate::ErrorKind::MissingFile) where the job was committed or
    /// aborted, [`ErrorKind::AlreadyExists`](crate::ErrorKind::AlreadyExists) where something else
    /// is in the folder, and those of the disk.
    pub fn abort(self) -> Result<()> {
        self.job_folder().check()?;
        self.remove_folder()
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
    let fail = |error| Error::io(directory, error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let is_named = path.file_name().and_then(|name| name.to_str()).is_some_and(is_of_job);
        if is_named && JobFolder::at(&path).json().is_file() {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}
