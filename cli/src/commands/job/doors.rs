//! The doors to jobs: which path or URL is of a job in a folder, and which of one in a store.

use std::path::{Path, PathBuf};

use onnx_container::job::{self, Job, Recast};
use onnx_container::{Error, ErrorKind, Result};

use super::any::AnyJob;
use super::folder;
#[cfg(not(feature = "stores"))]
use super::no_store as store;
use super::results::{Committed, Named};
#[cfg(feature = "stores")]
use super::store;
use crate::args::{JobRewriteArgs, is_url};
use crate::terminal::failure::Failure;

/// Refuses options that a model at the place of OUT does not have.
pub fn refuse_options(args: &JobRewriteArgs) -> Result<(), Failure> {
    store::refuse_options(args)
}

/// Plans a rewrite.
pub fn plan(args: &JobRewriteArgs, recast: Option<Recast>) -> Result<Box<dyn AnyJob>, Failure> {
    match is_url(&args.paths.output) {
        true => store::plan(args, recast),
        false => folder::plan(args, recast),
    }
}

/// The job whose folder, or a copy of whose JSON, is at `path`.
pub fn open(path: &Path) -> Result<Box<dyn AnyJob>> {
    match store::open(path)? {
        Some(job) => Ok(job),
        None => Ok(Box::new(Job::open(path)?)),
    }
}

/// Commits the job whose folder was at `path` again: what an earlier commit has put in place.
/// `open` is why it cannot be opened.
pub fn commit_at(path: &Path, open: Error) -> Result<(Named, Committed)> {
    ended_at(path, open, |model| {
        let committed = match is_url(path) {
            true => store::commit_at(path)?,
            false => folder::commit_at(path, model)?,
        };
        Ok(Some(committed))
    })
}

/// What a commit has put in place of the job whose folder was at `path`, of which nothing more is
/// known. `open` is why it cannot be opened.
pub fn committed_at(path: &Path, open: Error) -> Result<(Named, Committed)> {
    ended_at(path, open, |model| match is_url(path) {
        true => store::committed_at(path),
        false => folder::committed_at(path, model),
    })
}

/// What `asked`, which is given the place of the model, knows of the job whose folder was at
/// `path`; else `open`.
fn ended_at(
    path: &Path,
    open: Error,
    asked: impl FnOnce(&Path) -> Result<Option<Committed>>,
) -> Result<(Named, Committed)> {
    let named = Named::of_folder(path).filter(|_| open.kind() == ErrorKind::MissingFile);
    let Some(named) = named else { return Err(open) };
    asked(&named.model)?.map(|committed| (named, committed)).ok_or(open)
}

/// Ends the job whose folder is at `path`, also one whose plan was killed before it described the
/// job.
pub fn abort_at(path: &Path) -> Result<()> {
    match is_url(path) {
        true => store::abort_at(path),
        false => job::abort_job(path),
    }
}

/// The folders of the jobs of the models in `folder`.
pub fn jobs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    match is_url(folder) {
        true => store::jobs_in(folder),
        false => job::jobs_in(folder),
    }
}
