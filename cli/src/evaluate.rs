//! What `run`, `trace` and `verify` share: a model as a program, its inputs, and a machine that has them.

pub mod inputs;
#[cfg(feature = "ort")]
mod onnxruntime;
pub mod values;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onnx_container::{ByteSize, Container, LoadOptions, MmapChoice};
use onnx_container_machine::{Limits, Machine, Program, ProgramOptions, Registry, Value};
use serde::Serialize;

use self::inputs::Input;
use crate::args::{EngineArgs, LimitArgs};
use crate::failure::Failure;
use crate::output::count;

/// A model that can be run.
pub struct Model {
    pub path: PathBuf,
    pub container: Container,
    pub program: Arc<Program>,
}

impl Model {
    /// The model at `path`.
    pub fn load(path: &Path, map: MmapChoice) -> Result<Self, Failure> {
        Self::new(path, Container::load(path, LoadOptions::from(map))?)
    }

    /// The model in `container`, which was loaded from `path`.
    pub fn new(path: &Path, container: Container) -> Result<Self, Failure> {
        let program = Arc::new(Program::new(&container, ProgramOptions::new())?);
        Ok(Self { path: path.to_owned(), container, program })
    }

    /// A machine before its first step, with these inputs.
    pub fn machine(&self, inputs: &[Input], limits: &LimitArgs) -> Result<Machine, Failure> {
        let mut machine =
            Machine::new(Arc::clone(&self.program), Registry::new(), self::limits(limits));
        for input in inputs {
            machine.bind(&input.name, input.value.clone())?;
        }
        Ok(machine)
    }
}

/// What a run gave.
pub struct Ran {
    /// The outputs by name.
    pub outputs: Vec<(String, Value)>,
    /// What the machine needed for it; `None` for onnxruntime, which does not tell.
    pub effort: Option<Effort>,
}

/// What a run of the machine needed.
pub struct Effort {
    pub steps: u64,
    /// The bytes of memory in use at most, weights not counted.
    pub memory_bytes: u64,
}

impl Model {
    /// Runs the model by the engine that was asked for.
    pub fn run(
        &self,
        inputs: &[Input],
        engine: &EngineArgs,
        limits: &LimitArgs,
    ) -> Result<Ran, Failure> {
        if let Some(name) = engine.witness() {
            return self.run_by_witness(name, inputs, engine, limits);
        }
        let mut machine = self.machine(inputs, limits)?;
        let mut steps = 0_u64;
        let outputs = machine.run_with(&mut |_, _| {
            steps += 1;
            Ok(())
        })?;
        let memory_bytes = machine.memory().high_water();
        Ok(Ran { outputs, effort: Some(Effort { steps, memory_bytes }) })
    }

    #[cfg(feature = "ort")]
    fn run_by_witness(
        &self,
        name: &str,
        inputs: &[Input],
        engine: &EngineArgs,
        limits: &LimitArgs,
    ) -> Result<Ran, Failure> {
        if limits.max_memory.is_some() || limits.max_steps.is_some() {
            let message = format!("--max-memory and --max-steps do not limit {name}");
            return Err(Failure::Usage(message));
        }
        Ok(Ran { outputs: onnxruntime::run(&self.path, inputs, engine)?, effort: None })
    }

    #[cfg(not(feature = "ort"))]
    fn run_by_witness(
        &self,
        name: &str,
        _: &[Input],
        _: &EngineArgs,
        _: &LimitArgs,
    ) -> Result<Ran, Failure> {
        Err(Failure::Refused(format!("this command was built without {name}")))
    }
}

/// The nodes of a model that depend on weights alone and have no step, in numbers.
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
        let verb = if self.nodes == 1 { "depends" } else { "depend" };
        write!(f, "{nodes} that {verb} on weights alone, {}", ByteSize(self.bytes))
    }
}

fn limits(args: &LimitArgs) -> Limits {
    let limits = args.max_memory.map_or(Limits::new(), |n| Limits::new().memory_bytes(n));
    args.max_steps.map_or(limits, |n| limits.steps(n))
}
