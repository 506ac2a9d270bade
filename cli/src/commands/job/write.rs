//! `job write JOB K...`: parts of a rewrite.

use std::collections::BTreeSet;

use onnx_container::{Error, ErrorKind};
use serde::Serialize;

use super::any::AnyJob;
use super::doors;
use super::named::{next_call, told};
use super::results::{
    Committed, Named, PartState, Progress, Written, model_now, print_infinite_of_job,
};
use crate::args::JobWriteArgs;
use crate::model::reading;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, count};
use crate::terminal::stop;

#[derive(Debug, Serialize)]
struct WriteReport {
    command: &'static str,
    #[serde(flatten)]
    job: Named,
    written: Vec<Written>,
    bytes: u64,
    missing: Vec<usize>,
    complete: bool,
    /// Told before the commit, which may replace what the numbers came from.
    infinite: Vec<String>,
    /// Whether a commit had ended the job, and whether the model was replaced since.
    committed: bool,
    replaced: bool,
}

/// Writes the parts, and tells what is missing. Of a job that is committed nothing is left to
/// write: a task that runs again after the commit does no harm.
pub fn run(args: &JobWriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let job = match doors::open(&args.job) {
        Ok(job) => job.map_source(reading::map(args.no_mmap)),
        Err(error) => {
            let (named, committed) = doors::committed_at(&args.job, error)?;
            return WriteReport::of_ended(named, &committed).print(args, out);
        }
    };
    let before = if args.all { Some(job.progress()?) } else { None };
    let parts = match &before {
        Some(progress) => progress.missing.clone(),
        None => asked(&*job, args)?,
    };
    let report = match found(write(&*job, &parts), || job.committed())? {
        Found::Written(written) => WriteReport::new(&*job, written, before)?,
        Found::Ended(committed) => WriteReport::of_ended(job.named(), &committed),
    };
    report.print(args, out)
}

/// What became of the parts.
#[derive(Debug)]
enum Found {
    Written(Vec<Written>),
    /// A commit had ended the job.
    Ended(Committed),
}

/// What became of the parts that were `written`; where none was, `committed` is asked why.
fn found(
    written: Result<Vec<Written>, Error>,
    committed: impl FnOnce() -> Result<Option<Committed>, Error>,
) -> Result<Found, Error> {
    match written {
        Ok(written) if !written.is_empty() => Ok(Found::Written(written)),
        none => match (committed(), none) {
            (Ok(Some(committed)), _) => Ok(Found::Ended(committed)),
            (Err(error), Ok(_)) => Err(error),
            // The job may be gone because a commit has ended it.
            (Err(error), Err(first)) if first.kind() == ErrorKind::MissingFile => {
                let what = format!("whether a commit has ended the job cannot be read: {error}");
                Err(first.and(&what))
            }
            (_, none) => none.map(Found::Written),
        },
    }
}

/// Writes the parts of these numbers.
fn write(job: &dyn AnyJob, parts: &[usize]) -> Result<Vec<Written>, Error> {
    let mut written = Vec::new();
    for part in parts {
        let done = job.write(*part).map_err(|error| error.because(&format!("part {part}")))?;
        if done.state == PartState::Written {
            stop::written(format!("part {part} was written"));
        }
        written.push(done);
    }
    Ok(written)
}

impl WriteReport {
    /// The report of the parts `written`; of all that were missing, where the progress `before` is
    /// given. Then receipts are read. Otherwise only their names are listed: many tasks may ask.
    fn new(
        job: &dyn AnyJob,
        written: Vec<Written>,
        before: Option<Progress>,
    ) -> Result<Self, Error> {
        let (missing, complete) = match before {
            Some(before) => {
                let now = if written.is_empty() { before } else { job.progress()? };
                (now.missing, now.complete)
            }
            None => {
                let missing = job.missing()?;
                let complete = missing.is_empty();
                (missing, complete)
            }
        };
        let infinite: BTreeSet<_> = written.iter().flat_map(|it| &it.infinite).cloned().collect();
        Ok(Self {
            command: "job write",
            job: job.named(),
            bytes: written.iter().map(|it| it.bytes).fold(0, u64::saturating_add),
            written,
            complete,
            missing,
            infinite: infinite.into_iter().collect(),
            committed: false,
            replaced: false,
        })
    }

    /// That of a job that is committed.
    fn of_ended(job: Named, committed: &Committed) -> Self {
        Self {
            command: "job write",
            job,
            written: Vec::new(),
            bytes: 0,
            missing: Vec::new(),
            complete: true,
            infinite: Vec::new(),
            committed: true,
            replaced: committed.replaced,
        }
    }

    fn print(&self, args: &JobWriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
        if args.json {
            out.json(self)?;
            return Ok(Outcome::Done);
        }
        if self.committed {
            let now = model_now(self.replaced);
            out.row(
                "found",
                format_args!("the job was committed: {now}; nothing is left to write"),
            )?;
            return Ok(Outcome::Done);
        }
        self.written.iter().try_for_each(|it| it.print(out))?;
        print_empty(&self.written, out)?;
        print_infinite_of_job(&self.infinite, out)?;
        if !self.missing.is_empty() {
            out.folded_row("missing", told(&self.missing))?;
        } else if !self.complete {
            out.row("missing", "slices, which programs write that have the weights")?;
        }
        if self.complete {
            out.row("next", next_call(&args.job, &self.missing, true))?;
        }
        Ok(Outcome::Done)
    }
}

/// Says which of the parts that were asked for have no bytes.
fn print_empty(parts: &[Written], out: &mut Output) -> Result<(), Failure> {
    let empty = parts.iter().filter(|it| it.state == PartState::Empty).map(|it| it.part);
    let empty: Vec<_> = empty.collect();
    if empty.is_empty() {
        return Ok(());
    }
    let parts = count(empty.len(), "part");
    Ok(out.folded_row("empty", format_args!("{parts} without bytes: {}", told(&empty)))?)
}

/// The parts of these numbers, each once. One that the job has not is refused before any is
/// written.
fn asked(job: &dyn AnyJob, args: &JobWriteArgs) -> Result<Vec<usize>, Failure> {
    let mut parts = Vec::new();
    for range in &args.parts {
        if !job.has_part(*range.end()) {
            // The library says which there are.
            job.write(*range.end())?;
        }
        parts.extend(range.clone());
    }
    parts.sort_unstable();
    parts.dedup();
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_was_written_the_end_of_the_job_says_why() {
        type Given<T> = fn() -> Result<T, Error>;
        let part: Given<Vec<Written>> = || Ok(vec![Written::new(0, 1, 4, true, Vec::new())]);
        let none: Given<Vec<Written>> = || Ok(Vec::new());
        let gone: Given<Vec<Written>> = || Err(Error::new(ErrorKind::MissingFile, "gone"));
        let first: Given<Vec<Written>> = || Err(Error::new(ErrorKind::Io, "first"));
        let ended: Given<Option<Committed>> = || Ok(Some(Committed::default()));
        let goes_on: Given<Option<Committed>> = || Ok(None);
        let second: Given<Option<Committed>> = || Err(Error::new(ErrorKind::Io, "second"));
        for (number, (written, committed, expected)) in [
            (part, second, Ok(Some(1))),
            (none, ended, Ok(None)),
            (none, goes_on, Ok(Some(0))),
            (none, second, Err("second")),
            (gone, ended, Ok(None)),
            (gone, goes_on, Err("gone")),
            (gone, second, Err("gone; whether a commit has ended the job cannot be read: second")),
            (first, ended, Ok(None)),
            (first, goes_on, Err("first")),
            (first, second, Err("first")),
        ]
        .into_iter()
        .enumerate()
        {
            let told = match found(written(), committed) {
                Ok(Found::Written(written)) => Ok(Some(written.len())),
                Ok(Found::Ended(_)) => Ok(None),
                Err(error) => Err(error.reason().to_owned()),
            };
            assert_eq!(told, expected.map_err(str::to_owned), "{number}");
        }
    }
}
