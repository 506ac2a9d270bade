//! `run --expect DIR`: the outputs, compared with those in files.

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container_machine::Value;
use onnx_container_machine::compare::{Tolerance, difference};
use serde::Serialize;

use crate::args::RunArgs;
use crate::evaluate::values;
use crate::failure::Failure;
use crate::output::{Number, Output, count, short_name};

/// How the outputs compare with those that were expected.
#[derive(Debug, Serialize)]
pub struct Expected {
    pub ok: bool,
    rtol: f64,
    atol: f64,
    /// Outputs that are as expected.
    same: usize,
    differences: Vec<Difference>,
}

#[derive(Debug, Serialize)]
struct Difference {
    output: String,
    reason: String,
}

/// The files that the outputs will be compared with, as absolute paths. Their folder is not that of `-o`, so
/// that no later run takes outputs for what was expected.
pub fn files(args: &RunArgs, outputs: usize) -> Result<Vec<PathBuf>, Failure> {
    let Some(folder) = &args.expect else { return Ok(Vec::new()) };
    let real = folder.canonicalize().map_err(|error| Error::io(folder, error))?;
    if args.output.as_ref().is_some_and(|output| output.canonicalize().is_ok_and(|o| o == real)) {
        return Err(Failure::Usage(format!(
            "-o and --expect are the same folder, `{}`: the outputs would replace what is expected",
            folder.display()
        )));
    }
    let files = (0..outputs).filter_map(|i| values::find(folder, "output", i)?.canonicalize().ok());
    Ok(files.collect())
}

/// Compares `outputs` with the files in `folder`, which have to exist for all of them.
pub fn compare(
    outputs: &[(String, Value)],
    folder: &Path,
    args: &RunArgs,
) -> Result<Expected, Failure> {
    let RunArgs { rtol, atol, .. } = *args;
    values::must_be_folder(folder)?;
    let mut differences = Vec::new();
    for (i, (name, found)) in outputs.iter().enumerate() {
        let Some(path) = values::find(folder, "output", i) else {
            let folder = folder.display();
            return Err(Failure::Refused(format!(
                "`{folder}`: has neither output_{i}.pb nor output_{i}.npy nor outputs.npz, which `{name}` is compared with"
            )));
        };
        let reason = match values::read(&path, name, Some(&found.ty())) {
            Ok(expected) => difference(found, &expected, Tolerance { rtol, atol })?,
            Err(failure) if failure.is_about_type() => Some(failure.message()),
            Err(failure) => return Err(failure),
        };
        differences.extend(reason.map(|reason| Difference { output: name.clone(), reason }));
    }
    let same = outputs.len() - differences.len();
    Ok(Expected { ok: differences.is_empty(), rtol, atol, same, differences })
}

impl Expected {
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { rtol, atol, .. } = self;
        let all = self.same + self.differences.len();
        let same = match self.same {
            same if same == all => count(all, "output"),
            same => format!("{same} of {}", count(all, "output")),
        };
        let verb = if all == 1 { "is" } else { "are" };
        let (rtol, atol) = (Number(*rtol), Number(*atol));
        out.line(format_args!("compared  {same} {verb} as expected (rtol {rtol}, atol {atol})"))?;
        for Difference { output, reason } in &self.differences {
            out.prose("differs   ", format_args!("{}: {reason}", short_name(output)))?;
        }
        Ok(())
    }
}
