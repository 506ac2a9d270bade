//! `report MODEL [OTHER] -o FILE`: a page for a browser that shows what is in a model.

use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::{ByteSize, Error, ErrorKind, LoadOptions};
use onnx_container_report::{MemoryPlan, Page, ReportOptions, own_files, report};
use serde::Serialize;

use crate::args::ReportArgs;
use crate::commands::{Execute, different, leftovers};
use crate::files::staged::Staged;
use crate::model::reading::{self, Reading};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Output, lossy, lossy_or_null};
use crate::terminal::stop;

impl Execute for ReportArgs {
    fn name(&self) -> &'static str {
        "report"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        different(&self.model, self.other.as_deref())
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Makes the page and writes it.
fn run(args: &ReportArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let reading = reading::of(&args.read);
    let options = ReportOptions::new(LoadOptions::from(reading)).paths(reading.paths);
    // Before much is read for it.
    check_target(args, &own_files(&args.model, args.other.as_deref(), &options)?)?;
    let options = options.stats(args.stats).plan(plan(args, reading)?);
    let page = report(&args.model, args.other.as_deref(), &options)?;
    write(&page, args).map_err(stop::unwritten)?;
    stop::written(format!("`{}` was written", args.output.display()));
    let bytes = page.html.len() as u64;
    if args.json {
        out.json(&Report::new(args, bytes))?;
    } else {
        out.row("wrote", format_args!("{} ({})", args.output.display(), ByteSize(bytes)))?;
    }
    Ok(Outcome::Done)
}

/// Refuses a file that has to be kept; `own` are those of the models.
fn check_target(args: &ReportArgs, own: &[PathBuf]) -> Result<(), Error> {
    let path = &args.output;
    if Page::is_free(path, own)? || args.force {
        return Ok(());
    }
    let reason = "is there and is not a report: give another name, or --force to replace it";
    Err(Error::new(ErrorKind::AlreadyExists, reason).with_path(path))
}

/// Writes the page, and looks again at what it would replace.
fn write(page: &Page, args: &ReportArgs) -> Result<(), Error> {
    let path = &args.output;
    check_target(args, &page.own)?;
    let html = page.html.as_bytes();
    let write = |file: &mut dyn Write| file.write_all(html).map_err(|e| Error::io(path, e));
    Staged::new(path.clone(), false, write)?.publish(false)
}

/// The plan of memory, if the options ask for it.
#[cfg(feature = "machine")]
fn plan(args: &ReportArgs, reading: Reading) -> Result<Option<MemoryPlan>, Failure> {
    use onnx_container_report::plan_memory;

    use crate::commands::evaluate::{sizes, sizes_of};

    if !args.plan {
        return Ok(None);
    }
    let given = sizes(&args.dim)?;
    let sizes = |program: &_| sizes_of(program, given);
    Ok(Some(plan_memory(&args.model, reading, reading.limits, sizes)?))
}

#[cfg(not(feature = "machine"))]
fn plan(_: &ReportArgs, _: Reading) -> Result<Option<MemoryPlan>, Failure> {
    Ok(None)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    #[serde(serialize_with = "lossy_or_null")]
    other: Option<&'a Path>,
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    bytes: u64,
    warnings: Vec<String>,
}

impl<'a> Report<'a> {
    fn new(args: &'a ReportArgs, bytes: u64) -> Self {
        let (model, other) = (args.model.as_path(), args.other.as_deref());
        let warnings = leftovers::warnings(different(model, other));
        Self { command: "report", model, other, path: &args.output, bytes, warnings }
    }
}
