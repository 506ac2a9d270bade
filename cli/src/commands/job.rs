//! `job rewrite|write|status|commit|abort|list`: a model that many processes write together.
//!
//! The work is the library's. Here is how a job is named on the command line, which parts are
//! meant, and what is to be called next.

mod list;
mod named;
mod progress;
mod rewrite;
mod write;

use std::path::{Path, PathBuf};

use onnx_container::ByteSize;
use onnx_container::job::{Committed, Job, abort_job};
use onnx_container::recovery::is_of_job;
use serde::Serialize;

use self::named::{File, Named, call_to_write, next_call, told};
use self::progress::Progress;
use crate::args::{GivenJob, JobArgs, JobCommand};
use crate::commands::Execute;
use crate::model::save::links::Links;
use crate::model::save::print_warnings;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy, tidy};
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
    let job = Job::open(&args.path)?;
    let progress = Progress::new(&job, job.status()?);
    let complete = progress.complete;
    let report = StatusReport { command: "job status", job: Named::new(&job), progress };
    if args.json {
        out.json(&report)?;
        return Ok(Outcome::of(complete));
    }
    report.job.print(out)?;
    out.row("written", report.progress.said())?;
    if !report.progress.missing.is_empty() {
        out.folded_row("missing", told(&report.progress.missing))?;
    }
    out.row("next", next_call(&args.path, &report.progress.missing, complete))?;
    Ok(Outcome::of(complete))
}

#[derive(Debug, Serialize)]
struct CommitReport {
    command: &'static str,
    #[serde(flatten)]
    job: Named,
    files: Vec<File>,
    bytes: u64,
    digest: Option<String>,
    removed: Vec<String>,
    left_behind: Vec<String>,
    infinite: Vec<String>,
    warnings: Vec<String>,
}

/// `job commit JOB`: puts the model in place.
fn commit(args: &GivenJob, out: &mut Output) -> Result<Outcome, Failure> {
    let job = Job::open(&args.path)?;
    let links = Links::beside(&job.path());
    let committed = job.commit().map_err(|error| explained(&job, &args.path, error));
    let mut committed = committed?;
    committed.warnings.extend(links.replaced_by(&committed.files, false));
    stop::written(format!("`{}` was written", job.path().display()));
    print_warnings(&committed.warnings);
    let report = CommitReport::new(&job, &committed);
    if args.json {
        out.json(&report)?;
        return Ok(Outcome::Done);
    }
    let (files, bytes) = (count(report.files.len(), "file"), ByteSize(report.bytes));
    out.row("wrote", format_args!("{files} ({bytes})"))?;
    report.files.iter().try_for_each(|file| file.print(out))?;
    if let Some(digest) = &report.digest {
        out.row("digest", digest)?;
    }
    for path in &report.removed {
        out.row("removed", format_args!("{path}, which no model needs"))?;
    }
    for path in &report.left_behind {
        out.row("left", format_args!("{path}: no model needs it any more"))?;
    }
    if !report.infinite.is_empty() {
        let tensors = count(report.infinite.len(), "tensor");
        let advice = "leave them out with --except of `job rewrite`, or cast to bfloat16";
        let said =
            format_args!("{tensors} with numbers beyond the largest of the new type: {advice}");
        out.row("infinite", said)?;
        let mut names = report.infinite.iter();
        names.try_for_each(|name| out.line(format_args!("{:>10}{name}", "")))?;
    }
    Ok(Outcome::Done)
}

impl CommitReport {
    fn new(job: &Job, committed: &Committed) -> Self {
        let texts =
            |paths: &[PathBuf]| paths.iter().map(|path| tidy(path).display().to_string()).collect();
        Self {
            command: "job commit",
            job: Named::new(job),
            files: File::beside(&job.path(), &committed.files),
            bytes: committed.bytes,
            digest: committed.digest.as_ref().map(|digest| digest.to_string()),
            removed: texts(&committed.removed),
            left_behind: texts(&committed.left_behind),
            infinite: committed.infinite.clone(),
            warnings: committed.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Why the job at `path` cannot be committed: the parts that are missing, in place of all of their
/// tensors.
fn explained(job: &Job, path: &Path, error: onnx_container::Error) -> Failure {
    let missing = job.status().map(|status| status.missing).unwrap_or_default();
    if missing.is_empty() || !error.each().all(|it| it.kind() == error.kind()) {
        return error.into();
    }
    let kind = onnx_container::ErrorKind::MissingTensor;
    if error.each().any(|it| it.kind() != kind) {
        return error.into();
    }
    let are = if missing.len() == 1 { "is" } else { "are" };
    let reason = format!("{} {are} not written", told(&missing));
    let error = onnx_container::Error::new(kind, reason).with_path(job.folder());
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
    let folder = match name.is_some_and(is_of_job) {
        true => {
            // Also one whose plan was killed before it described the job.
            abort_job(&args.path)?;
            args.path.clone()
        }
        false => {
            let job = Job::open(&args.path)?;
            let folder = job.folder();
            job.abort()?;
            folder
        }
    };
    stop::written(format!("`{}` was removed", folder.display()));
    if args.json {
        out.json(&AbortReport { command: "job abort", folder: &folder })?;
    } else {
        out.row("removed", tidy(&folder).display())?;
    }
    Ok(Outcome::Done)
}
