//! `job rewrite IN OUT`: the plan of a rewrite, as JSON for the processes that write.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};

use onnx_container::edit::CastOptions;
use onnx_container::job::Recast;
use onnx_container::{Error, ErrorKind, LoadOptions};
use onnx_container_files::targets::{self, refusal};
use onnx_container_files::unfinished::Unfinished;
use serde::Serialize;

use super::any::AnyJob;
use super::doors;
use super::named::call_to_write;
use super::results::{Layout, Named};
use crate::args::{JobRewriteArgs, is_url};
use crate::commands::cast::casting::{Casting, Told};
use crate::commands::{cast, leftovers};
use crate::model::save::print_warnings;
use crate::model::{needed, place, reading};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy_or_null, print_on_stderr};
use crate::terminal::shell::quoted;
use crate::terminal::stop;

/// Plans, and prints the job or what it is.
pub fn run(args: &JobRewriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let unknown = "whether a job was planned is not known: `job list` shows the jobs of a folder, \
                   and `job abort` ends one";
    let job = stop::interruptible(unknown, || plan_and_write(args), |job| Some(planned(&**job)))?;
    print(args, &*job, out)
}

fn planned(job: &dyn AnyJob) -> String {
    format!("the job `{}` was planned", job.named().folder.display())
}

/// Plans the job, and writes it where it is asked for.
fn plan_and_write(args: &JobRewriteArgs) -> Result<Box<dyn AnyJob>, Failure> {
    let job = plan(args)?;
    if let Some(path) = &args.job
        && let Err(error) = write(path, &*job)
    {
        // Nobody could go on with it.
        drop(job.abort());
        return Err(error);
    }
    Ok(job)
}

fn plan(args: &JobRewriteArgs) -> Result<Box<dyn AnyJob>, Failure> {
    let input = &args.paths.input;
    doors::refuse_options(args)?;
    if is_url(input) && !is_url(&args.paths.output) {
        let (url, copy) = (input.display().to_string(), input.file_name().unwrap_or_default());
        let (url, copy) = (quoted(&url), quoted(&copy.to_string_lossy()));
        let reason = format!(
            "a job whose source is in a store writes to a store: give a URL as OUT, or copy the \
             model to a folder first, by `onnx-container pack {url} {copy}`"
        );
        return Err(Failure::Usage(reason));
    }
    if let Some(path) = args.job.as_ref().filter(|_| !is_url(input)) {
        let own = needed::files(input, reading::mapping(&args.trust, args.no_mmap))?;
        refusal(path, &own, false).map_or(Ok(()), Err)?;
    }
    doors::plan(args, recast(args)?)
}

/// Prints the job where a program reads it, else what it is.
fn print(args: &JobRewriteArgs, job: &dyn AnyJob, out: &mut Output) -> Result<Outcome, Failure> {
    let others = other_jobs(job);
    print_warnings(&others);
    let report = RewriteReport::new(args, job, &others);
    if args.json {
        out.json(&report)?;
    } else if args.job.is_none() && !stdout().is_terminal() {
        // Standard output goes to a program.
        report.warn_of_infinite();
        out.write_all(job.to_json()?.as_bytes())?;
        out.write_all(b"\n")?;
    } else {
        report.print(args, out)?;
    }
    Ok(Outcome::Done)
}

/// A warning for each other job of the model: the first that is committed makes the others useless.
fn other_jobs(job: &dyn AnyJob) -> Vec<Error> {
    let warning = |folder: PathBuf| {
        let reason = "is another job of this model: the one that is committed first is the only one \
                      that can be; `onnx-container job abort` ends one that nobody needs";
        Error::new(ErrorKind::AlreadyExists, reason).with_path(folder)
    };
    job.others().into_iter().map(warning).collect()
}

/// Refuses `path` for the job where the model will be, or one of its weights files.
fn refuse_own(path: &Path, job: &dyn AnyJob) -> Result<(), Failure> {
    let place = |path: &Path| {
        Some((targets::folder(path).canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    let files = job.layout().files.into_iter().map(|file| file.path);
    let mut own = files.chain([job.named().model]).filter_map(|file| place(&file));
    match place(path) {
        Some(found) if own.any(|file| file == found) => {
            let reason = "the job will put its model or weights there: name another file";
            Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(path).into())
        }
        _ => Ok(()),
    }
}

/// Writes the job to a file beside `path` that is renamed when it is complete.
fn write(path: &Path, job: &dyn AnyJob) -> Result<(), Failure> {
    refuse_own(path, job)?;
    let (mut file, staged) = Unfinished::new(targets::folder(path))?;
    let json = job.to_json()? + "\n";
    file.write_all(json.as_bytes()).map_err(|error| Error::io(path, error))?;
    Ok(staged.publish(path, false)?)
}

/// The type to cast to, and the operators and weights that keep theirs.
fn recast(args: &JobRewriteArgs) -> Result<Option<Recast>, Failure> {
    let Some(to) = args.cast else { return Ok(None) };
    let recast = Recast::new(to.into()).keep_io(args.keep_io).keep_ops(args.keep_op.clone());
    if args.except.is_empty() && args.keep_op.is_empty() {
        return Ok(Some(recast));
    }
    let input = &args.paths.input;
    let reading = reading::mapping(&args.trust, args.no_mmap);
    let container = place::load(input, LoadOptions::from(reading).weights(false))?;
    cast::refuse_unknown_operators(&container, &args.keep_op)?;
    Ok(Some(recast.except(cast::excepted(&container, &args.except, input)?)))
}

/// What the cast does, as `cast` tells it.
fn casting(args: &JobRewriteArgs, job: &dyn AnyJob) -> Option<Casting> {
    let (to, report) = args.cast.zip(job.cast())?;
    Some(Casting::new(to.into(), CastOptions::MIN_BYTES, report.clone(), Told::Planned))
}

#[derive(Debug, Serialize)]
struct RewriteReport {
    command: &'static str,
    #[serde(flatten)]
    job: Named,
    /// The file that the job was written to.
    #[serde(serialize_with = "lossy_or_null")]
    output: Option<PathBuf>,
    cast: Option<Casting>,
    #[serde(flatten)]
    layout: Layout,
    warnings: Vec<String>,
}

impl RewriteReport {
    fn new(args: &JobRewriteArgs, job: &dyn AnyJob, others: &[Error]) -> Self {
        Self {
            command: "job rewrite",
            job: job.named(),
            output: args.job.clone(),
            cast: casting(args, job),
            layout: job.layout(),
            warnings: leftovers::warnings([args.paths.input.as_path()])
                .into_iter()
                .chain(others.iter().map(ToString::to_string))
                .collect(),
        }
    }

    /// Prints the warning of numbers that became infinite on standard error.
    fn warn_of_infinite(&self) {
        if let Some(said) = self.cast.as_ref().and_then(Casting::infinite_so_far) {
            print_on_stderr(format_args!("warning: {said}"));
        }
    }

    fn print(&self, args: &JobRewriteArgs, out: &mut Output) -> Result<(), Failure> {
        self.job.print(out)?;
        self.cast.iter().try_for_each(|cast| cast.print(out))?;
        self.layout.print(out)?;
        let job = args.job.as_ref().unwrap_or(&self.job.folder);
        let parts: Vec<_> = (0..self.layout.parts).collect();
        out.row("next", call_to_write(job, &parts))?;
        Ok(())
    }
}
