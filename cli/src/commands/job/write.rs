//! `job write JOB K...`: parts of a rewrite.

use onnx_container::ByteSize;
use onnx_container::job::{Job, Receipt};
use serde::Serialize;

use super::named::{Named, next_call, told};
use crate::args::JobWriteArgs;
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
}

/// A part that is there now.
#[derive(Debug, Serialize)]
struct Written {
    part: usize,
    tensors: usize,
    bytes: u64,
}

impl Written {
    fn new(part: usize, receipt: &Receipt) -> Self {
        Self { part, tensors: receipt.tensors.len(), bytes: receipt.bytes }
    }

    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let (tensors, bytes) = (count(self.tensors, "tensor"), ByteSize(self.bytes));
        Ok(out.row("wrote", format_args!("part {}: {tensors} ({bytes})", self.part))?)
    }
}

/// Writes the parts, and tells what is missing.
pub fn run(args: &JobWriteArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let job = Job::open(&args.job)?;
    let mut written = Vec::new();
    for part in asked(&job, args)? {
        let receipt = job.write(part).map_err(|error| error.because(&format!("part {part}")))?;
        stop::written(format!("part {part} was written"));
        written.push(Written::new(part, &receipt));
    }
    let missing = job.missing_parts()?;
    let report = WriteReport {
        command: "job write",
        job: Named::new(&job),
        bytes: written.iter().map(|it| it.bytes).fold(0, u64::saturating_add),
        written,
        complete: missing.is_empty(),
        missing,
    };
    if args.json {
        out.json(&report)?;
        return Ok(Outcome::Done);
    }
    report.written.iter().try_for_each(|it| it.print(out))?;
    if !report.missing.is_empty() {
        out.folded_row("missing", told(&report.missing))?;
    }
    if report.complete {
        out.row("next", next_call(&args.job, &report.missing, true))?;
    }
    Ok(Outcome::Done)
}

/// The parts that are to be written, each once. One that the job has not is refused before any is
/// written.
fn asked(job: &Job, args: &JobWriteArgs) -> Result<Vec<usize>, Failure> {
    if args.all {
        return Ok(job.status()?.missing);
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
