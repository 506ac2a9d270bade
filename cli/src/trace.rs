//! `trace MODEL`: what every step of a run read and wrote, as lines of JSON.

mod diff;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use onnx_container::Error;
use onnx_container_machine::trace::{TraceOptions, TraceWriter, hex};
use sha2::{Digest as _, Sha256};
use tempfile::Builder;

use crate::args::{LimitArgs, TraceArgs, TraceCommand};
use crate::evaluate::Model;
use crate::evaluate::inputs::{Input, inputs};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::{mapping, stop};

/// Runs and writes the trace, or compares two.
pub fn run(args: &TraceArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let model = match (&args.diff, &args.model) {
        (Some(TraceCommand::Diff(args)), _) => return diff::run(args, out),
        (None, Some(model)) => Model::load(model, mapping::choice(&args.map))?,
        (None, None) => return Err(Failure::Usage("no MODEL".to_owned())),
    };
    let inputs = inputs(&model.program, &args.inputs)?;
    let mut options = options(&model)?.stats(args.stats);
    if let Some(folder) = &args.dump {
        options = options.dump(folder);
    }
    match &args.output {
        Some(path) => to_file(path, &model, &inputs, &args.limits, options)?,
        None => write(&model, &inputs, &args.limits, options, &mut *out)?,
    }
    Ok(Outcome::Done)
}

/// A trace that names the model by the digest of its file.
fn options(model: &Model) -> Result<TraceOptions, Failure> {
    let path = &model.path;
    let mut hasher = Sha256::new();
    let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
    io::copy(&mut file, &mut hasher).map_err(|error| Error::io(path, error))?;
    Ok(TraceOptions::new().model(hex(&hasher.finalize())))
}

/// Runs the model and writes its trace to `out`.
fn write(
    model: &Model,
    inputs: &[Input],
    limits: &LimitArgs,
    options: TraceOptions,
    out: impl Write,
) -> Result<(), Failure> {
    let mut machine = model.machine(inputs, limits)?;
    let mut trace = TraceWriter::new(out, &model.container, &machine, options)?;
    machine.run_with(&mut |step, memory| trace.step(step, memory))?;
    Ok(trace.finish(&machine)?)
}

/// As [`write`], to a file beside `path` that is renamed when it is complete.
fn to_file(
    path: &Path,
    model: &Model,
    inputs: &[Input],
    limits: &LimitArgs,
    options: TraceOptions,
) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut builder = Builder::new();
    builder.prefix(".trace-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let file = builder.tempfile_in(folder).map_err(|error| Error::io(folder, error))?;
    let stoppable = Stoppable(BufWriter::new(file.as_file()));
    let written = write(model, inputs, limits, options, stoppable);
    if !stop::goes_on() {
        drop(file);
        return Err(stop::unwritten(stop::cancelled()).into());
    }
    written?;
    file.persist(path).map_err(|error| Error::io(path, error.error))?;
    stop::written(format!("`{}` was written", path.display()));
    Ok(())
}

/// A file whose writes fail once the command was told to stop, so that it can be removed.
struct Stoppable<W>(W);

impl<W: Write> Write for Stoppable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if stop::goes_on() { self.0.write(bytes) } else { Err(io::Error::other("stopped")) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
