//! `run -o DIR`: the outputs as files. Each is written beside its target and renamed.

use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container_machine::{Block, Value};
use tempfile::{Builder, NamedTempFile};

use crate::args::ValueFormat;
use crate::evaluate::values;
use crate::failure::Failure;
use crate::output::count;
use crate::stop;

/// Refuses a format that cannot hold an output as the graph declares it, so that nothing is run in vain.
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

/// Writes the outputs to files in `folder`; the path of each.
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
        file.persist(&path).map_err(|error| Error::io(&path, error.error))?;
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

/// Files that are written and not yet renamed, with their paths; dropping them removes them.
type Staged = Vec<(NamedTempFile, PathBuf)>;

fn stage(
    outputs: &[(String, Value)],
    folder: &Path,
    format: ValueFormat,
) -> Result<Staged, Failure> {
    if format == ValueFormat::Npz {
        let file = temporary(folder)?;
        let path = folder.join("outputs.npz");
        values::write_npz(outputs, file.as_file()).map_err(|failure| failure.about(&path))?;
        return Ok(vec![(file, path)]);
    }
    let npy = format == ValueFormat::Npy;
    let suffix = if npy { "npy" } else { "pb" };
    let one = |(i, (name, value)): (usize, &(String, Value))| {
        if !stop::goes_on() {
            return Err(stop::cancelled().into());
        }
        let path = folder.join(format!("output_{i}.{suffix}"));
        let file = temporary(folder)?;
        values::write(value, npy, &mut file.as_file()).map_err(|failure| match failure {
            Failure::Model(error) => error.with_tensor(name).with_path(&path).into(),
            Failure::Output(error) => Error::io(&path, error).into(),
            other => other,
        })?;
        Ok((file, path))
    };
    outputs.iter().enumerate().map(one).collect()
}

/// A file beside those that will be written, with the mode that the umask gives, as any other new file.
fn temporary(folder: &Path) -> Result<NamedTempFile, Failure> {
    let mut builder = Builder::new();
    builder.prefix(".run-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder).map_err(|error| Error::io(folder, error).into())
}
