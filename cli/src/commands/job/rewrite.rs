//! `job rewrite IN OUT`: the plan of a rewrite, as JSON for the processes that write.

use std::collections::HashSet;
use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use onnx_container::edit::ExternalizeOptions;
use onnx_container::job::{Job, JobOptions, Recast, jobs_of};
use onnx_container::{
    ByteSize, Container, Error, ErrorKind, LoadOptions, MAX_PROTOBUF, SaveOptions, WeightFiles,
};
use onnx_container_files::targets::{self, refusal};
use onnx_container_files::unfinished::Unfinished;
use serde::Serialize;

use super::named::{File, Named, call_to_write};
use crate::args::{JobRewriteArgs, OldFiles, TargetArgs, is_url};
use crate::commands::{cast, leftovers};
use crate::model::save::print_warnings;
use crate::model::{kept_name, needed, reading, save};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count, lossy_or_null};
use crate::terminal::stop;

/// Plans, and prints the job or what it is.
pub fn run(args: &JobRewriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let (input, output) = (&args.paths.input, &args.paths.output);
    if is_url(input) {
        let reason = "a job reads IN from a folder; `pack URL OUT` copies a model from a store";
        return Err(Failure::Usage(reason.to_owned()));
    }
    save::refuse_weights(output, None)?;
    if let Some(path) = &args.job {
        let own = needed::files(input, reading::unmapped())?;
        refusal(path, &own, false).map_or(Ok(()), Err)?;
    }
    let recast = recast(args)?;
    let job = Job::rewrite(input, output, recast, options(args))
        .map_err(|error| save::refused(error, output, &target(args)))?;
    if let Some(path) = &args.job
        && let Err(error) = write(path, &job)
    {
        // Nobody could go on with it.
        drop(job.abort());
        return Err(error);
    }
    stop::written(format!("the job `{}` was planned", job.folder().display()));
    print(args, &job, out)
}

/// Prints the job where a program reads it, else what it is.
fn print(args: &JobRewriteArgs, job: &Job, out: &mut Output) -> Result<Outcome, Failure> {
    let others = other_jobs(job);
    print_warnings(&others);
    let report = RewriteReport::new(args, job, &others);
    if args.json {
        out.json(&report)?;
    } else if args.job.is_none() && !stdout().is_terminal() {
        out.write_all(job.to_json()?.as_bytes())?;
        out.write_all(b"\n")?;
    } else {
        report.print(args, out)?;
    }
    Ok(Outcome::Done)
}

/// A warning for each other job of the model: the first that is committed makes the others useless.
fn other_jobs(job: &Job) -> Vec<Error> {
    let found = jobs_of(job.path()).unwrap_or_default().into_iter();
    let others = found.filter(|folder| *folder != job.folder());
    let warning = |folder: PathBuf| {
        let reason = "is another job of this model: the one that is committed first is the only one \
                      that can be; `onnx-container job abort` ends one that nobody needs";
        Error::new(ErrorKind::AlreadyExists, reason).with_path(folder)
    };
    others.map(warning).collect()
}

/// Writes the job to a file beside `path` that is renamed when it is complete.
fn write(path: &Path, job: &Job) -> Result<(), Failure> {
    let (mut file, staged) = Unfinished::new(targets::folder(path))?;
    let json = job.to_json()? + "\n";
    file.write_all(json.as_bytes()).map_err(|error| Error::io(path, error))?;
    Ok(staged.publish(path, false)?)
}

/// The layout, as `pack` and `split` have it.
fn options(args: &JobRewriteArgs) -> JobOptions {
    let moving = ExternalizeOptions::new().min_bytes(args.moving.min_bytes);
    let save = saving(args).keep_placement(false);
    let save = save.max_model_bytes((!args.allow_over_2gib).then_some(MAX_PROTOBUF));
    let options = JobOptions::from(args.parts).save(save);
    options.externalize(moving.all_tensors(args.moving.all_tensors))
}

fn saving(args: &JobRewriteArgs) -> SaveOptions {
    let target = target(args);
    if args.per_tensor {
        return save::options(WeightFiles::PerTensor, None, &target);
    }
    let packed = save::packed(&args.layout, &target);
    kept_name::kept(packed, &args.layout, &args.paths.output, reading::unmapped())
}

/// The options as other commands that write have them.
fn target(args: &JobRewriteArgs) -> TargetArgs {
    let OldFiles { keep_old, delete_old } = args.old;
    TargetArgs {
        dry_run: false,
        no_clobber: args.no_clobber,
        old: OldFiles { keep_old, delete_old },
        no_sync: args.no_sync,
        no_direct_io: false,
        timings: false,
        digests: args.digests,
        ignore_stored_digests: false,
        checksums: false,
        allow_over_2gib: args.allow_over_2gib,
    }
}

/// The type to cast to, and the weights that keep theirs.
fn recast(args: &JobRewriteArgs) -> Result<Option<Recast>, Failure> {
    let Some(to) = args.cast else { return Ok(None) };
    let recast = Recast::new(to.into()).keep_io(args.keep_io);
    Ok(Some(recast.except(excepted(args)?)))
}

/// The names of the tensors that match a pattern of `--except`.
fn excepted(args: &JobRewriteArgs) -> Result<HashSet<String>, Failure> {
    if args.except.is_empty() {
        return Ok(HashSet::new());
    }
    let input = &args.paths.input;
    let container = Container::load(input, LoadOptions::new().weights(false))?;
    cast::excepted(&container, &args.except, input)
}

#[derive(Debug, Serialize)]
struct RewriteReport {
    command: &'static str,
    #[serde(flatten)]
    job: Named,
    /// The file that the job was written to.
    #[serde(serialize_with = "lossy_or_null")]
    output: Option<PathBuf>,
    parts: usize,
    tensors: usize,
    files: Vec<File>,
    bytes: u64,
    warnings: Vec<String>,
}

impl RewriteReport {
    fn new(args: &JobRewriteArgs, job: &Job, others: &[Error]) -> Self {
        let files = File::beside(&job.path(), &job.files());
        Self {
            command: "job rewrite",
            job: Named::new(job),
            output: args.job.clone(),
            parts: job.parts().len(),
            tensors: job.tensors().len(),
            bytes: files.iter().map(|file| file.bytes).fold(0, u64::saturating_add),
            files,
            warnings: leftovers::warnings([args.paths.input.as_path()])
                .into_iter()
                .chain(others.iter().map(ToString::to_string))
                .collect(),
        }
    }

    fn print(&self, args: &JobRewriteArgs, out: &mut Output) -> Result<(), Failure> {
        self.job.print(out)?;
        let (parts, tensors) = (count(self.parts, "part"), count(self.tensors, "tensor"));
        out.row("parts", format_args!("{parts} of {tensors}"))?;
        let (files, bytes) = (count(self.files.len(), "file"), ByteSize(self.bytes));
        out.row("files", format_args!("{files} of weights ({bytes})"))?;
        self.files.iter().try_for_each(|file| file.print(out))?;
        let job = args.job.clone().unwrap_or_else(|| self.job.folder().to_path_buf());
        let parts: Vec<_> = (0..self.parts).collect();
        out.row("next", call_to_write(&job, &parts))?;
        Ok(())
    }
}
