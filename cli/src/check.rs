//! `check MODEL`: lists all findings, errors first.

use std::path::Path;

#[cfg(feature = "machine")]
use onnx_container::Container;
use onnx_container::{CheckOptions, Error, ErrorKind, Severity, check_model, interrupted_saves};
use serde::Serialize;

use crate::args::CheckArgs;
use crate::failure::{Failure, JsonError, Outcome};
use crate::findings::{Findings, Found};
use crate::leftovers::INTERRUPTED;
use crate::mapping;
use crate::output::{Output, lossy};

/// Checks the model and prints what was found.
pub fn run(args: &CheckArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let mut failed = None;
    // This reads few bytes: those of BOOL tensors, and the last byte of tensors with narrower
    // elements.
    let options = CheckOptions::from(mapping::choice(&args.map)).contents(true);
    let findings = match check_model(&args.model, options) {
        Ok(checked) => {
            let found = checked.findings.iter();
            let found = found.flat_map(|found| Found::all(found.severity, &found.error));
            // Errors come first.
            not_runnable(args).into_iter().chain(found).collect()
        }
        // With --json the findings are printed also when the model cannot be read.
        Err(error) if args.json => {
            failed = Some(JsonError::from(&error));
            unreadable(&error, &args.model)
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        let report =
            Report { command: "check", model: &args.model, error: failed, findings: &findings };
        out.json(&report)?;
    } else {
        print(args, &findings, out)?;
    }
    Ok(Outcome::of(findings.ok))
}

/// The nodes that cannot run, if the options ask for them.
#[cfg(feature = "machine")]
fn not_runnable(args: &CheckArgs) -> Vec<Found> {
    use onnx_container_machine::{Limits, Machine, Program, ProgramOptions, Registry};
    if !args.runnable {
        return Vec::new();
    }
    // A model that cannot be loaded is a finding of the check itself.
    let Ok(container) = Container::load(&args.model, mapping::choice(&args.map)) else {
        return Vec::new();
    };
    let checked = Program::new(&container, ProgramOptions::new())
        .and_then(|program| Machine::new(program, Registry::new(), Limits::new()).check_runnable());
    checked.err().map(|error| Found::of_machine(&error)).unwrap_or_default()
}

#[cfg(not(feature = "machine"))]
fn not_runnable(_args: &CheckArgs) -> Vec<Found> {
    Vec::new()
}

/// The findings for a `model` that cannot be read: the error, and what interrupted saves left beside it.
fn unreadable(error: &Error, model: &Path) -> Findings {
    let left = interrupted_saves(model).into_iter().flat_map(|path| {
        let error = Error::new(ErrorKind::Changed, INTERRUPTED).with_path(path);
        Found::all(Severity::Advice, &error)
    });
    Found::all(Severity::Error, error).into_iter().chain(left).collect()
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    /// Why the model cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonError>,
    #[serde(flatten)]
    findings: &'a Findings,
}

fn print(args: &CheckArgs, findings: &Findings, out: &mut Output) -> Result<(), Failure> {
    for found in &findings.findings {
        out.line(found)?;
    }
    let verdict = if findings.ok { "ok" } else { "not ok" };
    out.line(format_args!("{verdict}: {}: {findings}", args.model.display()))?;
    Ok(())
}
