//! `run --expect DIR`: the outputs, compared with those in files.

use std::io;
use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container_machine::Value;
use onnx_container_machine::compare::{Tolerance, difference, distance};
use serde::Serialize;

use crate::args::RunArgs;
use crate::commands::evaluate::apart::Apart;
use crate::commands::evaluate::values::{self, Read, Wanted};
use crate::terminal::failure::Failure;
use crate::terminal::output::{Number, Output, count, short_name};

/// How the outputs compare with those that were expected.
#[derive(Debug, Serialize)]
pub struct Expected {
    pub ok: bool,
    rtol: f64,
    atol: f64,
    /// Outputs that are as expected.
    same: usize,
    /// The largest difference of any element of a tensor; `None` where there is none to compare.
    largest: Option<Apart>,
    /// The largest difference of each output that is compared as a tensor.
    outputs: Vec<Apart>,
    differences: Vec<Difference>,
}

#[derive(Debug, Serialize)]
struct Difference {
    output: String,
    reason: String,
}

/// Refuses a file where the model has several outputs, or none.
pub fn check(args: &RunArgs, outputs: usize) -> Result<(), Failure> {
    match args.expect.as_deref().filter(|path| path.is_file()) {
        Some(path) if outputs != 1 => Err(Failure::Usage(format!(
            "--expect `{}` is a file, and the model has {}: give a folder with a file for each",
            path.display(),
            count(outputs, "output")
        ))),
        _ => Ok(()),
    }
}

/// The files that the outputs will be compared with, as absolute paths. Their folder is not that of
/// `-o`, so that no later run takes outputs for what was expected.
pub fn files<'n>(
    args: &RunArgs,
    outputs: impl Iterator<Item = &'n str>,
) -> Result<Vec<PathBuf>, Failure> {
    let Some(folder) = &args.expect else { return Ok(Vec::new()) };
    let real = folder.canonicalize().map_err(|error| Error::io(folder, error))?;
    if args.output.as_ref().is_some_and(|output| output.canonicalize().is_ok_and(|o| o == real)) {
        return Err(Failure::Usage(format!(
            "-o and --expect are the same folder, `{}`: the outputs would replace what is expected",
            folder.display()
        )));
    }
    if folder.is_file() {
        return Ok(vec![real]);
    }
    let file = |(i, name)| values::find_named(folder, "output", i, name)?.canonicalize().ok();
    Ok(outputs.enumerate().filter_map(file).collect())
}

/// Compares `outputs` with the files in `folder`, which have to exist for all of them; or one
/// output with the file `folder`.
pub fn compare(
    outputs: &[(String, Value)],
    folder: &Path,
    args: &RunArgs,
) -> Result<Expected, Failure> {
    let RunArgs { rtol, atol, .. } = *args;
    let file = folder.is_file().then_some(folder);
    if file.is_none() {
        values::must_be_folder(folder)?;
    }
    let (mut differences, mut compared) = (Vec::new(), Vec::<Apart>::new());
    for (i, (name, found)) in outputs.iter().enumerate() {
        let found_file = || values::find_named(folder, "output", i, name);
        let Some(path) = file.map(Path::to_path_buf).or_else(found_file) else {
            let folder = folder.display();
            return Err(Failure::Refused(format!(
                "`{folder}`: has none of output_{i}.pb, output_{i}.npy, {name}.npy, {name}.pb and outputs.npz, which `{name}` is compared with"
            )));
        };
        let reason = match values::read(&path, name, &Wanted::like(found)) {
            Ok(Read::Value(expected)) => {
                let apart = distance(found, &expected)?;
                compared.extend(apart.map(|apart| Apart::new(name, &apart)));
                difference(found, &expected, Tolerance { rtol, atol })?
            }
            Ok(Read::OtherShape(expected)) => {
                let found = found.tensor().map(|tensor| tensor.dims().to_vec())?;
                Some(format!("the shape is {found:?}, not {expected:?}"))
            }
            Err(failure) if failure.is_about_type() => Some(failure.message()),
            Err(failure) => return Err(failure),
        };
        differences.extend(reason.map(|reason| Difference { output: name.clone(), reason }));
    }
    let same = outputs.len() - differences.len();
    let ok = differences.is_empty();
    let largest = largest(&compared).cloned();
    Ok(Expected { ok, rtol, atol, same, largest, outputs: compared, differences })
}

/// The one that is farthest from what was expected; of equal ones the first.
fn largest(outputs: &[Apart]) -> Option<&Apart> {
    outputs.iter().reduce(|known, one| if one.max_abs > known.max_abs { one } else { known })
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
        out.row("compared", format_args!("{same} {verb} as expected (rtol {rtol}, atol {atol})"))?;
        self.outputs.iter().try_for_each(|one| one.print(out))?;
        for Difference { output, reason } in &self.differences {
            out.prose_row("differs", format_args!("{}: {reason}", short_name(output)))?;
        }
        Ok(())
    }
}
