//! What `run`, `trace` and `verify` share: a model as a program, its inputs, and a machine that has
//! them.

pub mod apart;
pub mod inputs;
#[cfg(feature = "ort")]
mod onnxruntime;
pub mod timings;
pub mod values;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use onnx_container::{ByteSize, Container};
use onnx_container_machine::{
    Machine, Memory, Profile, Program, ProgramOptions, Registry, RunLimits, StepRecord, Value,
};
use serde::Serialize;

use self::inputs::Input;
use self::timings::Timings;
#[cfg(feature = "ort")]
use crate::args::is_url;
use crate::args::{EngineArgs, LimitArgs};
use crate::model::place;
use crate::model::reading::Reading;
use crate::terminal::failure::Failure;
use crate::terminal::names;
use crate::terminal::output::count;

/// A model that can be run.
pub struct Model {
    /// Where it was loaded from.
    pub path: PathBuf,
    pub container: Container,
    pub program: Arc<Program>,
}

impl Model {
    /// The model at `path`.
    pub fn load(path: &Path, reading: Reading) -> Result<Self, Failure> {
        Self::new(path, place::fetch(path, reading)?, reading)
    }

    /// The model in `container`, which was loaded from `path`.
    pub fn new(path: &Path, container: Container, reading: Reading) -> Result<Self, Failure> {
        let options = ProgramOptions::new().limits(reading.limits);
        let program = Arc::new(Program::new(&container, options)?);
        Ok(Self { path: path.to_owned(), container, program })
    }

    /// A machine before its first step, with these inputs.
    pub fn machine(
        &self,
        inputs: Vec<Input>,
        profile: Profile,
        limits: &LimitArgs,
    ) -> Result<Machine, Failure> {
        let mut machine = self.unbound(profile, limits);
        bind(&mut machine, inputs)?;
        Ok(machine)
    }

    fn unbound(&self, profile: Profile, limits: &LimitArgs) -> Machine {
        Machine::new(Arc::clone(&self.program), Registry::of(profile), self::limits(limits))
    }
}

/// Binds the inputs, which are not held any more when the machine has placed them in its memory.
fn bind(machine: &mut Machine, inputs: Vec<Input>) -> Result<(), Failure> {
    inputs.into_iter().try_for_each(|input| Ok(machine.bind(&input.name, input.value)?))
}

/// Refuses options of an engine that does not run.
pub fn check_engine(args: &EngineArgs) -> Result<(), Failure> {
    if args.has_idle_options() {
        let message = "--ort-library and --ort-unoptimized are for --with ort";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(())
}

/// What a run gave.
pub struct Ran {
    /// The outputs by name.
    pub outputs: Vec<(String, Value)>,
    /// What the machine needed for it; `None` for onnxruntime, which does not tell.
    pub effort: Option<Effort>,
    pub timings: Timings,
}

/// What a run of the machine needed.
pub struct Effort {
    pub steps: u64,
    /// The bytes of memory in use at most, weights not counted.
    pub memory_bytes: u64,
}

impl Model {
    /// Runs the model several times by the engine that was asked for, and returns the outputs of
    /// the last run.
    pub fn run(
        &self,
        mut inputs: Vec<Input>,
        times: u32,
        (engine, profile): (&EngineArgs, Profile),
        limits: &LimitArgs,
    ) -> Result<Ran, Failure> {
        if let Some(name) = engine.witness() {
            if profile != Profile::Strict {
                let message = format!("--profile is for the machine, not for {name}");
                return Err(Failure::Usage(message));
            }
            return self.run_by_witness(name, &inputs, times, engine, limits);
        }
        let mut machine = self.unbound(profile, limits);
        let (mut timings, mut steps) = (Timings::default(), 0);
        for left in (0..times).rev() {
            let next = if left > 0 { inputs.clone() } else { Vec::new() };
            steps = run_once(&mut machine, std::mem::replace(&mut inputs, next), &mut timings)?;
            if left > 0 {
                machine.reset();
            }
        }
        let effort = Effort { steps, memory_bytes: machine.memory().high_water() };
        Ok(Ran { outputs: machine.into_outputs()?, effort: Some(effort), timings })
    }

    #[cfg(feature = "ort")]
    fn run_by_witness(
        &self,
        name: &str,
        inputs: &[Input],
        times: u32,
        engine: &EngineArgs,
        limits: &LimitArgs,
    ) -> Result<Ran, Failure> {
        if is_url(&self.path) {
            let path = self.path.display();
            let message = format!("{name} reads files: `pack {path} OUT` copies the model to one");
            return Err(Failure::Usage(message));
        }
        if limits.max_memory.is_some() || limits.max_steps.is_some() {
            let message = format!("--max-memory and --max-steps do not limit {name}");
            return Err(Failure::Usage(message));
        }
        let mut timings = Timings::default();
        let outputs = onnxruntime::run(&self.path, inputs, times, engine, &mut timings)?;
        Ok(Ran { outputs, effort: None, timings })
    }

    #[cfg(not(feature = "ort"))]
    fn run_by_witness(
        &self,
        name: &str,
        _: &[Input],
        _: u32,
        _: &EngineArgs,
        _: &LimitArgs,
    ) -> Result<Ran, Failure> {
        Err(Failure::Refused(format!("this command was built without {name}")))
    }
}

/// Binds `inputs`, takes every step and adds the times to `timings`. Returns the number of steps.
fn run_once(
    machine: &mut Machine,
    inputs: Vec<Input>,
    timings: &mut Timings,
) -> Result<u64, Failure> {
    let start = Instant::now();
    bind(machine, inputs)?;
    // Planning is part of the run, not of its first step.
    machine.place_inputs()?;
    let (mut steps, mut before) = (0_u64, Instant::now());
    let mut observe = |step: &StepRecord, _: &Memory| {
        let now = Instant::now();
        timings.add_step(&step.op, now - before);
        (steps, before) = (steps + 1, now);
        Ok(())
    };
    while machine.step_with(&mut observe)?.is_some() {}
    timings.end_run(start);
    Ok(steps)
}

/// How many nodes of a model have no step, because they depend on weights alone or are left out.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FoldedNodes {
    pub nodes: usize,
    /// The bytes of their results.
    pub bytes: u64,
}

impl FoldedNodes {
    pub fn of(program: &Program) -> Self {
        let folded = program.folded();
        Self { nodes: folded.len(), bytes: folded.iter().map(|folded| folded.bytes).sum() }
    }
}

impl fmt::Display for FoldedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = count(self.nodes, "node");
        write!(
            f,
            "{nodes} (computed from weights, or left out), {} of results",
            ByteSize(self.bytes)
        )
    }
}

/// The sizes that `--dim` gives to dimensions, each once.
pub fn sizes(dims: &[(String, usize)]) -> Result<HashMap<String, usize>, Failure> {
    let mut sizes = HashMap::new();
    for (name, size) in dims {
        if sizes.insert(name.clone(), *size).is_some() {
            return Err(Failure::Usage(format!("--dim gives `{name}` twice")));
        }
    }
    Ok(sizes)
}

/// `sizes` by the names that the dimensions of `program` have: a name that none has is read with
/// its escapes, so that a name can be given as it is shown.
pub fn sizes_of(program: &Program, sizes: HashMap<String, usize>) -> HashMap<String, usize> {
    let open = program.open_dimensions();
    let meant = |name: String| {
        let read =
            names::unescaped(&name).filter(|read| !open.contains(&name) && open.contains(read));
        read.unwrap_or(name)
    };
    sizes.into_iter().map(|(name, size)| (meant(name), size)).collect()
}

fn limits(args: &LimitArgs) -> RunLimits {
    let limits = args.max_memory.map_or(RunLimits::new(), |n| RunLimits::new().memory_bytes(n));
    args.max_steps.map_or(limits, |n| limits.steps(n))
}
