//! What `run`, `trace` and `verify` share: a model as a program, its inputs, and a machine that has them.

pub mod inputs;
pub mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onnx_container::{Container, LoadOptions, MmapChoice};
use onnx_container_machine::{Limits, Machine, Program, ProgramOptions, Registry};

use self::inputs::Input;
use crate::args::LimitArgs;
use crate::failure::Failure;

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

fn limits(args: &LimitArgs) -> Limits {
    let limits = args.max_memory.map_or(Limits::new(), |n| Limits::new().memory_bytes(n));
    args.max_steps.map_or(limits, |n| limits.steps(n))
}
