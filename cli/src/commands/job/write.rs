//! `job write JOB K...`: parts of a rewrite.

use std::collections::BTreeSet;

use serde::Serialize;

use super::any::AnyJob;
use super::doors;
use super::named::{next_call, told};
use super::results::{Named, PartState, Written, print_infinite};
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
}

/// Writes the parts, and tells what is missing.
pub fn run(args: &JobWriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let job = doors::open(&args.job)?.map_source(reading::map(args.no_mmap));
    let mut written = Vec::new();
    for part in asked(&*job, args)? {
        let done = job.write(part).map_err(|error| error.because(&format!("part {part}")))?;
        if done.state == PartState::Written {
            stop::written(format!("part {part} was written"));
        }
        written.push(done);
    }
    let missing = job.missing()?;
    let infinite: BTreeSet<_> = written.iter().flat_map(|it| &it.infinite).cloned().collect();
    let report = WriteReport {
        command: "job write",
        job: job.named(),
        bytes: written.iter().map(|it| it.bytes).fold(0, u64::saturating_add),
        written,
        complete: missing.is_empty(),
        missing,
        infinite: infinite.into_iter().collect(),
    };
    if args.json {
        out.json(&report)?;
        return Ok(Outcome::Done);
    }
    report.written.iter().try_for_each(|it| it.print(out))?;
    print_empty(&report.written, out)?;
    print_infinite(&report.infinite, out)?;
    if !report.missing.is_empty() {
        out.folded_row("missing", told(&report.missing))?;
    }
    if report.complete {
        out.row("next", next_call(&args.job, &report.missing, true))?;
    }
    Ok(Outcome::Done)
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

/// The parts that are to be written, each once. One that the job has not is refused before any is
/// written.
fn asked(job: &dyn AnyJob, args: &JobWriteArgs) -> Result<Vec<usize>, Failure> {
    if args.all {
        return Ok(job.progress()?.missing);
    }
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
