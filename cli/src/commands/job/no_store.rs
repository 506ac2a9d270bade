//! In a build that reaches no store: the arguments refuse URLs, so that none comes here.

use std::path::{Path, PathBuf};

use onnx_container::job::Recast;
use onnx_container::{Error, Result};

use super::any::AnyJob;
use super::results::Committed;
use crate::args::JobRewriteArgs;
use crate::terminal::failure::Failure;

fn without<T>() -> Result<T> {
    Err(Error::internal("a URL in a build that reaches no store"))
}

pub fn open(_: &Path) -> Result<Option<Box<dyn AnyJob>>> {
    Ok(None)
}

pub fn abort_at(_: &Path) -> Result<()> {
    without()
}

pub fn commit_at(_: &Path) -> Result<Committed> {
    without()
}

pub fn committed_at(_: &Path) -> Result<Option<Committed>> {
    without()
}

pub fn jobs_in(_: &Path) -> Result<Vec<PathBuf>> {
    without()
}

pub fn refuse_options(_: &JobRewriteArgs) -> Result<(), Failure> {
    Ok(())
}

pub fn plan(_: &JobRewriteArgs, _: Option<Recast>) -> Result<Box<dyn AnyJob>, Failure> {
    Ok(without()?)
}
