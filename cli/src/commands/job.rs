//! `job rewrite|write|status|commit|abort|list`: a model that many processes write together.
//!
//! The work is the library's. Here is how a job is named on the command line, which parts are
//! meant, and what is to be called next.

mod any;
mod doors;
mod folder;
mod list;
mod named;
#[cfg(not(feature = "stores"))]
mod no_store;
mod results;
mod rewrite;
#[cfg(feature = "stores")]
mod store;
mod write;

use std::path::{Path, PathBuf};

use onnx_container::recovery::is_of_job;
use onnx_container::{Error, ErrorKind};
use serde::Serialize;

use self::any::AnyJob;
use self::named::{call_to_write, next_call, told};
use self::results::{Committed, Named, Progress, print_infinite_of_job};
use crate::args::{GivenJob, JobArgs, JobCommand};
use crate::commands::Execute;
use crate::model::save::print_warnings;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy, tidy};
use crate::terminal::stop;

impl Execute for JobArgs {
    fn name(&self) -> &'static str {
        match self.command {
            JobCommand::Rewrite(_) => "job rewrite",
            JobCommand::Write(_) => "job write",
            JobCommand::Status(_) => "job status",
            JobCommand::Commit(_) => "job commit",
            JobCommand::Abort(_) => "job abort",
            JobCommand::List(_) => "job list",
        }
    }

    fn json(&self) -> bool {
        match &self.command {
            JobCommand::Rewrite(args) => args.json,
            JobCommand::Write(args) => args.json,
            JobCommand::Status(args) => args.job.json,
            JobCommand::Commit(args) => args.job.json,
            JobCommand::Abort(args) => args.job.json,
            JobCommand::List(args) => args.json,
        }
    }

    fn models(&self) -> Vec<&Path> {
        match &self.command {
            JobCommand::Rewrite(args) => vec![&args.paths.input],
            _ => Vec::new(),
        }
    }

    fn max_shard_size(&self) -> Option<u64> {
        match &self.command {
            JobCommand::Rewrite(args) => args.layout.max_shard_size,
            _ => None,
        }
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        match &self.command {
            JobCommand::Rewrite(args) => rewrite::run(args, out),
            JobCommand::Write(args) => write::run(args, out),
            JobCommand::Status(args) => status(&args.job, out),
            JobCommand::Commit(args) => commit(&args.job, out),
            JobCommand::Abort(args) => abort(&args.job, out),
            JobCommand::List(args) => list::run(args, out),
        }
    }
}

#[derive(Debug, Serialize)]
struct StatusReport {
    command: &'static str,
    #[serde(flatten)]
    job: Named,
    #[serde(flatten)]
    progress: Progress,
}

/// `job status JOB`: how far it is, and what is missing.
fn status(args: &GivenJob, out: &mut Output) -> Result<Outcome, Failure> {
    let (job, progress) = match doors::open(&args.path) {
        Ok(job) => (job.named(), job.progress()?),
        Err(error) => {
            let (job, committed) = doors::committed_at(&args.path, error)?;
            (job, Progress::of_ended(&committed))
        }
    };
    let complete = progress.complete;
    let report = StatusReport { command: "job status", job, progress };
    if args.json {
        out.json(&report)?;
        return Ok(Outcome::of(complete));
    }
    report.job.print(out)?;
    out.row("written", report.progress.said(&report.job.folder))?;
    if !report.progress.missing.is_empty() {
        out.folded_row("missing", told(&report.progress.missing))?;
    }
    print_infinite_of_job(&report.progress.infinite, out)?;
    if !report.progress.ended {
        out.row("next", next_call(&args.path, &report.progress.missing, complete))?;
    }
    Ok(Outcome::of(complete))
}

#[derive(Debug, Serialize)]
struct CommitReport {
    command: &'static str,
    #[serde(flatten)]
    job: Named,
    #[serde(flatten)]
    committed: Committed,
}

/// `job commit JOB`: puts the model in place, or says that an earlier call has.
fn commit(args: &GivenJob, out: &mut Output) -> Result<Outcome, Failure> {
    let unknown = "whether the job was committed is not known: run `job commit` again";
    let written = |(job, committed): &(Named, Committed)| {
        (!committed.already).then(|| format!("`{}` was written", job.model.display()))
    };
    let (job, committed) = stop::interruptible(unknown, || commit_at(&args.path), written)?;
    let report = CommitReport { command: "job commit", job, committed };
    print_warnings(&report.committed.warnings);
    match args.json {
        true => out.json(&report)?,
        false => report.committed.print(out)?,
    }
    Ok(Outcome::Done)
}

fn commit_at(path: &Path) -> Result<(Named, Committed), Failure> {
    match doors::open(path) {
        Ok(job) => {
            let committed = job.commit().map_err(|error| explained(&*job, path, error))?;
            Ok((job.named(), committed))
        }
        Err(error) => Ok(doors::commit_at(path, error)?),
    }
}

/// Why the job at `path` cannot be committed: the parts that are missing, in place of all of their
/// tensors.
fn explained(job: &dyn AnyJob, path: &Path, error: Error) -> Failure {
    let kind = ErrorKind::MissingTensor;
    if error.kind() != kind || error.each().any(|it| it.kind() != kind) {
        return error.into();
    }
    let missing = job.progress().map(|progress| progress.missing).unwrap_or_default();
    if missing.is_empty() {
        return error.into();
    }
    let are = if missing.len() == 1 { "is" } else { "are" };
    let reason = format!("{} {are} not written", told(&missing));
    let error = Error::new(kind, reason).with_path(job.named().folder);
    Failure::Hinted(error, call_to_write(path, &missing))
}

#[derive(Debug, Serialize)]
struct AbortReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    folder: &'a Path,
}

/// `job abort JOB`: removes its folder.
fn abort(args: &GivenJob, out: &mut Output) -> Result<Outcome, Failure> {
    let name = args.path.file_name().and_then(|name| name.to_str());
    let end = || match name.is_some_and(is_of_job) {
        true => doors::abort_at(&args.path).map(|()| args.path.clone()),
        false => {
            let job = doors::open(&args.path)?;
            let folder = job.named().folder;
            job.abort().map(|()| folder)
        }
    };
    // An abort may also complete a commit that was killed.
    let unknown = "whether the job was aborted is not known: run `job abort` again";
    let removed = |folder: &PathBuf| Some(format!("`{}` was removed", folder.display()));
    let folder = stop::interruptible(unknown, end, removed)?;
    if args.json {
        out.json(&AbortReport { command: "job abort", folder: &folder })?;
    } else {
        out.row("removed", tidy(&folder).display())?;
    }
    Ok(Outcome::Done)
}
