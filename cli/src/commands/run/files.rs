//! `run -o DIR`: the outputs as files. Each is written beside its target and renamed.

use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container_files::targets::refusals;
use onnx_container_files::unfinished::Unfinished;
use onnx_container_machine::{Block, Value};

use crate::args::ValueFormat;
use crate::commands::evaluate::values;
use crate::files::staged;
use crate::terminal::failure::Failure;
use crate::terminal::output::count;
use crate::terminal::stop;

/// Refuses a format that cannot hold an output as the graph declares it, so that nothing is run in
/// vain.
pub fn check(main: &Block, format: ValueFormat) -> Result<(), Failure> {
    if format == ValueFormat::Pb {
        return Ok(());
    }
    main.outputs.iter().try_for_each(|output| match &output.ty {
        Some(ty) => values::check_array(ty)
            .map_err(|error| error.with_tensor(main.name(output.value)).into()),
        None => Ok(()),
    })
}

/// Refuses a folder where a file that is read would be replaced: one of the `model`, or one of the
/// `values` that the run is given. `outputs` is the number of outputs.
pub fn check_targets(
    folder: &Path,
    format: ValueFormat,
    outputs: usize,
    model: &[PathBuf],
    values: &[PathBuf],
) -> Result<(), Failure> {
    staged::refuse_file(folder)?;
    if !folder.exists() {
        return Ok(());
    }
    let paths: Vec<_> = (0..outputs).map(|i| path(folder, format, i)).collect();
    let is_value = |path: &&PathBuf| path.canonicalize().is_ok_and(|real| values.contains(&real));
    if let Some(path) = paths.iter().find(is_value) {
        let path = path.display();
        return Err(Failure::Usage(format!(
            "`{path}` is read by this run and would be replaced: choose another folder for -o"
        )));
    }
    Ok(refusals(paths.iter().map(PathBuf::as_path), model, false)?)
}

/// The file of output `i`: one npz file has all of them.
fn path(folder: &Path, format: ValueFormat, i: usize) -> PathBuf {
    folder.join(match format {
        ValueFormat::Npy => format!("output_{i}.npy"),
        ValueFormat::Pb => format!("output_{i}.pb"),
        ValueFormat::Npz => "outputs.npz".to_owned(),
    })
}

/// Writes the outputs to files in `folder`, and returns the path of each.
pub fn write(
    outputs: &[(String, Value)],
    folder: &Path,
    format: ValueFormat,
) -> Result<Vec<Option<String>>, Failure> {
    fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
    let staged = stage(outputs, folder, format).map_err(|failure| match failure {
        Failure::Model(error) => Failure::Model(stop::unwritten(error)),
        other => other,
    })?;
    let mut paths = Vec::new();
    let files = staged.len();
    for (file, path) in staged {
        file.publish(&path, false)?;
        paths.push(Some(path.display().to_string()));
    }
    stop::written(format!(
        "{} {} written",
        count(files, "file"),
        if files == 1 { "was" } else { "were" }
    ));
    // One npz file has all of them.
    let last = paths.last().cloned().flatten();
    paths.resize(outputs.len(), last);
    Ok(paths)
}

/// Files that are written and not yet renamed, with their paths; dropping them removes them. They
/// are not open: a model may have more outputs than a process may have open files.
type Staged = Vec<(Unfinished, PathBuf)>;

fn stage(
    outputs: &[(String, Value)],
    folder: &Path,
    format: ValueFormat,
) -> Result<Staged, Failure> {
    if format == ValueFormat::Npz {
        let (file, staged) = Unfinished::new(folder)?;
        let path = path(folder, format, 0);
        values::write_npz(outputs, &file).map_err(|failure| failure.about(&path))?;
        return Ok(vec![(staged, path)]);
    }
    let npy = format == ValueFormat::Npy;
    let one = |(i, (name, value)): (usize, &(String, Value))| {
        if !stop::goes_on() {
            return Err(stop::cancelled().into());
        }
        let path = path(folder, format, i);
        let (file, staged) = Unfinished::new(folder)?;
        values::write(value, npy, &mut &file).map_err(|failure| match failure {
            Failure::Model(error) => error.with_tensor(name).with_path(&path).into(),
            Failure::Output(error) => Error::io(&path, error).into(),
            other => other,
        })?;
        Ok((staged, path))
    };
    outputs.iter().enumerate().map(one).collect()
}
