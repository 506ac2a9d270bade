//! `check MODEL`: all findings at once, errors first.

use std::path::Path;

use onnx_container::{Severity, check_model};
use serde::Serialize;

use crate::args::CheckArgs;
use crate::failure::{Failure, Outcome};
use crate::findings::{Findings, Found};
use crate::mapping;
use crate::output::{Output, lossy};

/// Checks the model and prints what was found.
pub fn run(args: &CheckArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let findings = match check_model(&args.model, mapping::choice(&args.map)) {
        Ok(findings) => Findings::from(findings),
        // A script that asked for JSON gets its answer also when there is no model to look at.
        Err(error) if args.json => Found::all(Severity::Error, &error).into_iter().collect(),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        out.json(&Report { command: "check", model: &args.model, findings: &findings })?;
    } else {
        print(args, &findings, out)?;
    }
    Ok(Outcome::of(findings.ok))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
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
