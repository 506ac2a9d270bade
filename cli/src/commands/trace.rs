//! `trace MODEL`: what every step of a run read and wrote, as lines of JSON.

mod diff;
mod dump;
mod side;
mod tolerance;

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::SystemTime;

use onnx_container::{Error, ErrorKind};
use onnx_container_files::targets::{self, refusal};
use onnx_container_files::unfinished::Unfinished;
use onnx_container_machine::Machine;
use onnx_container_machine::trace::{TraceOptions, TraceWriter, hex};
use sha2::{Digest as _, Sha256};

use self::dump::Dump;
use crate::args::{TraceArgs, TraceCommand};
use crate::commands::Execute;
use crate::commands::evaluate::Model;
use crate::commands::evaluate::inputs::{self, inputs};
use crate::files::staged::Stoppable;
use crate::model::{needed, place, reading};
use crate::terminal::failure::{COULD_NOT, Failure, Outcome};
use crate::terminal::output::Output;
use crate::terminal::stop;

impl Execute for TraceArgs {
    fn name(&self) -> &'static str {
        if self.diff.is_some() { "trace diff" } else { "trace" }
    }

    /// Whether standard output is one JSON object. A trace is lines of JSON.
    fn json(&self) -> bool {
        self.diff.as_ref().is_some_and(|TraceCommand::Diff(args)| args.json)
    }

    fn models(&self) -> Vec<&Path> {
        self.model.as_deref().into_iter().collect()
    }

    fn code_of_failure(&self) -> u8 {
        if self.diff.is_some() { COULD_NOT } else { 1 }
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Runs and writes the trace, or compares two.
fn run(args: &TraceArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let path = match (&args.diff, &args.model) {
        (Some(TraceCommand::Diff(args)), _) => return diff::run(args, out),
        (None, Some(path)) => path,
        (None, None) => return Err(Failure::Usage("no MODEL".to_owned())),
    };
    let reading = reading::of(&args.read);
    let (model, digest) = with_digest(path, || Model::load(path, reading))?;
    let inputs = inputs(&model.program, &args.inputs, &args.limits)?;
    let options = TraceOptions::new().model(digest).stats(args.stats);
    let mut own: Vec<_> = inputs::files(&inputs).collect();
    if args.output.is_some() || args.dump.is_some() {
        own.extend(needed::files(path, reading)?);
    }
    let refused = args.output.as_ref().and_then(|path| refusal(path, &own, false));
    refused.map_or(Ok(()), Err)?;
    let dump = args.dump.as_ref();
    let dump = dump.map(|folder| Dump::new(folder, args.output.as_deref(), &own)).transpose()?;
    let machine = model.machine(inputs, args.profile.profile.into(), &args.limits)?;
    match (&args.output, dump) {
        (Some(path), dump) => to_file(path, &model, machine, options, dump)?,
        (None, Some(dump)) => {
            let written = write(&model, machine, options, Some(dump), &mut *out);
            if !stop::goes_on() {
                return Err(stop::unwritten(stop::cancelled()).into());
            }
            written?;
            stop::written("the values of all steps were written".to_owned());
        }
        (None, None) => write(&model, machine, options, None, &mut *out)?,
    }
    Ok(Outcome::Done)
}

/// How often a model is loaded again because its file was replaced meanwhile.
const ATTEMPTS: usize = 10;

/// What `load` makes of the file at `path`, and the digest of the same file: it is opened before,
/// and is still the one at `path` afterwards.
fn with_digest<T>(
    path: &Path,
    mut load: impl FnMut() -> Result<T, Failure>,
) -> Result<(T, String), Failure> {
    let failed = |error| Error::io(path, error);
    if let Some(before) = place::bytes_in_store(path)? {
        let loaded = load();
        if place::bytes_in_store(path)?.is_some_and(|now| now[..] == before[..]) {
            return Ok((loaded?, hex(&Sha256::digest(&before))));
        }
        let reason = "the model was replaced while it was read";
        return Err(Error::new(ErrorKind::Changed, reason).with_path(path).into());
    }
    for _ in 0..ATTEMPTS {
        // Opening a pipe would wait for its writer; a load refuses it.
        let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
        let opened = is_file.then(|| File::open(path));
        let Some(Ok(mut file)) = opened else {
            load()?;
            continue;
        };
        let before = Identity::of(&file.metadata().map_err(failed)?);
        let loaded = load();
        let mut hasher = Sha256::new();
        io::copy(&mut file, &mut hasher).map_err(failed)?;
        let after = [file.metadata(), path.metadata()];
        if after.into_iter().all(|now| now.is_ok_and(|now| Identity::of(&now) == before)) {
            return Ok((loaded?, hex(&hasher.finalize())));
        }
    }
    let reason = "is replaced again and again while it is read";
    Err(Error::new(ErrorKind::Changed, reason).with_path(path).into())
}

/// What tells a file from another, and from itself with other bytes.
#[derive(PartialEq, Eq)]
struct Identity {
    len: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        use std::os::unix::fs::MetadataExt;
        Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: (metadata.dev(), metadata.ino()),
        }
    }
}

/// Runs `machine`, which has a program of `model`, and writes the trace to `out`, and its values to
/// `dump`.
fn write(
    model: &Model,
    mut machine: Machine,
    options: TraceOptions,
    dump: Option<Dump>,
    out: impl Write,
) -> Result<(), Failure> {
    let mut trace = TraceWriter::new(out, &model.container, &mut machine, options)?;
    if let Some(dump) = dump {
        trace = trace.dump(move |name, value| dump.write(name, value));
    }
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
    dump: Option<Dump>,
) -> Result<(), Failure> {
    let (file, staged) = Unfinished::new(targets::folder(path))?;
    let stoppable = BufWriter::new(Stoppable(&file));
    let written = write(model, machine, options, dump, stoppable);
    if !stop::goes_on() {
        drop(staged);
        return Err(stop::unwritten(stop::cancelled()).into());
    }
    written?;
    staged.publish(path, false)?;
    stop::written(format!("`{}` was written", path.display()));
    Ok(())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use std::fs;

    use super::*;

    /// A save renames a new file into the place of the old one.
    fn replace(path: &Path, bytes: &str) {
        let new = path.with_extension("new");
        fs::write(&new, bytes).unwrap();
        fs::rename(new, path).unwrap();
    }

    #[test]
    fn the_digest_is_that_of_what_was_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        fs::write(&path, "old").unwrap();
        let mut loads = 0;
        let loaded = with_digest(&path, || {
            loads += 1;
            let read = fs::read(&path).unwrap();
            if loads == 1 {
                replace(&path, "new");
            }
            Ok(read)
        });
        let (read, digest) = loaded.unwrap();
        assert_eq!((read.as_slice(), loads), (&b"new"[..], 2));
        assert_eq!(digest, hex(&Sha256::digest("new")));
    }

    #[test]
    fn a_file_that_is_replaced_all_the_time_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        fs::write(&path, "old").unwrap();
        let failure = with_digest(&path, || {
            replace(&path, "new");
            Ok(())
        });
        assert!(failure.unwrap_err().message().contains("is replaced again and again"));
    }
}
