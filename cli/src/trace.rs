//! `trace MODEL`: what every step of a run read and wrote, as lines of JSON.

mod diff;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container_machine::Machine;
use onnx_container_machine::trace::{TraceOptions, TraceWriter, hex};
use sha2::{Digest as _, Sha256};

use crate::args::{TraceArgs, TraceCommand};
use crate::evaluate::Model;
use crate::evaluate::inputs::{self, inputs};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::staged::{Stoppable, refusal};
use crate::{mapping, needed, staged, stop};

/// Runs and writes the trace, or compares two.
pub fn run(args: &TraceArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let path = match (&args.diff, &args.model) {
        (Some(TraceCommand::Diff(args)), _) => return diff::run(args, out),
        (None, Some(path)) => path,
        (None, None) => return Err(Failure::Usage("no MODEL".to_owned())),
    };
    let map = mapping::choice(&args.map);
    let model = Model::load(path, map)?;
    let inputs = inputs(&model.program, &args.inputs)?;
    let mut options = options(&model)?.stats(args.stats);
    let mut own: Vec<_> = inputs::files(&inputs).collect();
    if args.output.is_some() || args.dump.is_some() {
        own.extend(needed::files(path, map)?);
    }
    let refused = args.output.as_ref().and_then(|path| refusal(path, &own, false));
    refused.map_or(Ok(()), Err)?;
    if let Some(folder) = &args.dump {
        check_dump(folder, &own)?;
        options = options.dump(folder);
    }
    let machine = model.machine(&inputs, args.profile.profile.into(), &args.limits)?;
    match &args.output {
        Some(path) => to_file(path, &model, machine, options)?,
        None => write(&model, machine, options, &mut *out)?,
    }
    Ok(Outcome::Done)
}

/// Refuses a folder in which a file that is read, one of `own`, has the name of one that a dump writes.
fn check_dump(folder: &Path, own: &[PathBuf]) -> Result<(), Error> {
    staged::refuse_file(folder)?;
    let Ok(real) = folder.canonicalize() else { return Ok(()) };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_dumped = |name: &str| {
        let numbers = name.strip_suffix(".pb").and_then(|stem| stem.split_once('_'));
        numbers.is_some_and(|(step, output)| is_digits(step) && is_digits(output))
    };
    let names = own.iter().filter(|path| path.parent() == Some(&real));
    let names = names.filter_map(|path| path.file_name()?.to_str()).filter(|name| is_dumped(name));
    let refusals = names.filter_map(|name| refusal(&folder.join(name), own, false));
    Error::join(refusals.collect()).map_or(Ok(()), Err)
}

/// A trace that names the model by the digest of its file.
fn options(model: &Model) -> Result<TraceOptions, Failure> {
    let path = &model.path;
    let mut hasher = Sha256::new();
    let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
    io::copy(&mut file, &mut hasher).map_err(|error| Error::io(path, error))?;
    Ok(TraceOptions::new().model(hex(&hasher.finalize())))
}

/// Runs `machine`, which has a program of `model`, and writes the trace to `out`.
fn write(
    model: &Model,
    mut machine: Machine,
    options: TraceOptions,
    out: impl Write,
) -> Result<(), Failure> {
    let mut trace = TraceWriter::new(out, &model.container, &machine, options)?;
    let ran = trace.run(&mut machine);
    if let Err(error) = ran {
        trace.flush()?;
        return Err(error.into());
    }
    Ok(trace.finish(&machine)?)
}

/// As [`write`], to a file beside `path` that is renamed when it is complete.
fn to_file(
    path: &Path,
    model: &Model,
    machine: Machine,
    options: TraceOptions,
) -> Result<(), Failure> {
    let file = staged::temporary(staged::folder(path))?;
    let stoppable = BufWriter::new(Stoppable(file.as_file()));
    let written = write(model, machine, options, stoppable);
    if !stop::goes_on() {
        drop(file);
        return Err(stop::unwritten(stop::cancelled()).into());
    }
    written?;
    file.persist(path).map_err(|error| Error::io(path, error.error))?;
    stop::written(format!("`{}` was written", path.display()));
    Ok(())
}
