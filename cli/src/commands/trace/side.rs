//! One side of `trace diff`: a trace, or a model that is traced.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container_machine::trace::{Trace, TraceOptions};
use onnx_container_machine::{Profile, Value};

use super::{with_digest, write};
use crate::args::{TraceDiffArgs, is_url};
use crate::commands::evaluate::Model;
use crate::commands::evaluate::apart::as_declared;
use crate::commands::evaluate::inputs::{Input, inputs};
use crate::model::reading;
use crate::terminal::failure::Failure;

/// A model that runs, and its inputs.
pub struct Running {
    pub model: Model,
    pub inputs: Vec<Input>,
    digest: String,
    path: PathBuf,
}

impl Running {
    /// The model with the inputs that `args` say.
    fn new(opened: Opened, args: &TraceDiffArgs) -> Result<Self, Failure> {
        let Opened { model, digest, path } = opened;
        let inputs = inputs(&model.program, &args.inputs, &args.limits)?;
        Ok(Self { model, inputs, digest, path })
    }

    /// Models with the same inputs, each in its own types: what `args` say of those of A, with no
    /// more bits than both have.
    fn alike(a: Opened, b: Opened, args: &TraceDiffArgs) -> Result<[Self; 2], Failure> {
        let mut a = Self::new(a, args)?;
        let Opened { model, digest, path } = b;
        let of_b = in_types_of(&model, &a.inputs)?;
        a.inputs = in_types_of(&a.model, &of_b)?;
        let inputs = in_types_of(&model, &a.inputs)?;
        Ok([a, Self { model, inputs, digest, path }])
    }

    /// The run of the model.
    fn traced(self, args: &TraceDiffArgs) -> Result<Side, Failure> {
        let Self { model, inputs, digest, .. } = &self;
        let mut lines = Vec::new();
        let machine = model.machine(inputs.clone(), Profile::Strict, &args.limits)?;
        write(model, machine, TraceOptions::new().model(digest.clone()), None, &mut lines)?;
        Ok(Side { trace: Trace::read(&lines[..])?, model: Some(self) })
    }

    /// The values of the inputs, in the order of the graph.
    pub fn values(&self) -> Vec<Value> {
        self.inputs.iter().map(|input| input.value.clone()).collect()
    }

    /// The path of the model, as people read it.
    pub fn shown(&self) -> impl Display {
        self.path.display()
    }
}

/// A trace, and its model if this command made the trace.
pub struct Side {
    pub trace: Trace,
    pub model: Option<Running>,
}

/// A model that was loaded.
struct Opened {
    model: Model,
    digest: String,
    path: PathBuf,
}

impl Opened {
    fn new(path: &Path, args: &TraceDiffArgs) -> Result<Self, Failure> {
        let load = || Model::load(path, reading::of(&args.read));
        let (model, digest) = with_digest(path, load)?;
        Ok(Self { model, digest, path: path.to_path_buf() })
    }
}

impl Side {
    /// Both sides. With a tolerance both are models, and B gets the inputs of A.
    pub fn both(args: &TraceDiffArgs) -> Result<[Self; 2], Failure> {
        let (a, b) = (read_trace(&args.a)?, read_trace(&args.b)?);
        if !args.has_tolerance() {
            return Ok([Self::of(a, &args.a, args)?, Self::of(b, &args.b, args)?]);
        }
        if a.is_some() || b.is_some() {
            let reason = "--rtol and --atol compare the values of models, which are run: a trace \
                          has digests alone";
            return Err(Failure::Usage(reason.to_owned()));
        }
        let [a, b] = [&args.a, &args.b].map(|path| Opened::new(path, args));
        let [a, b] = Running::alike(a?, b?, args)?;
        Ok([a.traced(args)?, b.traced(args)?])
    }

    /// The `trace`, or that of the model at `path`.
    fn of(trace: Option<Trace>, path: &Path, args: &TraceDiffArgs) -> Result<Self, Failure> {
        match trace {
            Some(trace) => Ok(Self { trace, model: None }),
            None => Running::new(Opened::new(path, args)?, args)?.traced(args),
        }
    }

    /// Output `output` of step `step`, if the model can be run again or the output was dumped.
    pub fn value(
        &self,
        step: usize,
        output: usize,
        dump: Option<&Path>,
        args: &TraceDiffArgs,
    ) -> Result<Option<Value>, Failure> {
        if let Some(folder) = dump {
            return Ok(self.trace.dumped(folder, step, output)?);
        }
        let Some(Running { model, inputs, .. }) = &self.model else { return Ok(None) };
        let mut machine = model.machine(inputs.clone(), Profile::Strict, &args.limits)?;
        let (mut done, mut found) = (0, None);
        while found.is_none() {
            let went_on = machine.step_with(&mut |record, memory| {
                if done == step {
                    let written = record.writes.get(output);
                    found = written.map(|value| value.entry.to_value(memory)).transpose()?;
                }
                done += 1;
                Ok(())
            })?;
            if went_on.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

/// The trace at `path`; `None` where that is a model.
fn read_trace(path: &Path) -> Result<Option<Trace>, Failure> {
    if is_url(path) {
        return Ok(None);
    }
    let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
    let mut first = [0];
    let read = file.read(&mut first).map_err(|error| Error::io(path, error))?;
    // No message of a model begins with a brace.
    if read > 0 && first != *b"{" {
        return Ok(None);
    }
    let lines = first.get(..read).unwrap_or_default().chain(BufReader::new(file));
    Ok(Some(Trace::read(lines).map_err(|error| Failure::from(error).about(path))?))
}

/// The inputs in the float types that `model` declares for them.
fn in_types_of(model: &Model, inputs: &[Input]) -> Result<Vec<Input>, Failure> {
    let one = |input: Input| {
        let value = as_declared(model, &input.name, input.value)?;
        Ok(Input { value, ..input })
    };
    inputs.iter().cloned().map(one).collect()
}
