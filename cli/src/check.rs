//! `check MODEL`: all findings at once, errors first.

use onnx_container::{Severity, check_model};

use crate::args::CheckArgs;
use crate::failure::{Failure, Outcome};
use crate::findings::{Findings, Found};
use crate::mapping;
use crate::output::Output;

/// Checks the model and prints what was found.
pub fn run(args: &CheckArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let findings = match check_model(&args.model, mapping::choice(&args.map)) {
        Ok(findings) => Findings::from(findings),
        // A script that asked for JSON gets its answer also when there is no model to look at.
        Err(error) if args.json => Found::all(Severity::Error, &error).into_iter().collect(),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        out.json(&findings)?;
    } else {
        print(args, &findings, out)?;
    }
    Ok(Outcome::of(findings.ok))
}

fn print(args: &CheckArgs, findings: &Findings, out: &mut Output) -> Result<(), Failure> {
    for found in &findings.findings {
        out.line(found)?;
    }
    let verdict = if findings.ok { "ok" } else { "not ok" };
    out.line(format_args!("{verdict}: {}: {findings}", args.model.display()))?;
    Ok(())
}
