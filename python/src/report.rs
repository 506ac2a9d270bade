//! The page of a model, as the command `report` writes it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use onnx_container::{Container, Error, ErrorKind, LoadOptions, Result};
use onnx_container_machine::{Program, ProgramOptions};
use onnx_container_report::{MemoryPlan, ReportOptions, plan_memory};
use pyo3::prelude::*;

use crate::interrupt::detached;
use crate::options::Load;

/// Writes the page of the model at `path` to `output`, and returns its length in bytes. With
/// `plan`, which has the sizes of dimensions, the plan of memory is a part of it.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // each is an option of Python
pub fn report(
    py: Python<'_>,
    path: PathBuf,
    output: PathBuf,
    other: Option<PathBuf>,
    load: Load,
    stats: bool,
    plan: Option<HashMap<String, usize>>,
    overwrite: bool,
) -> PyResult<usize> {
    let (policy, load) = (load.policy()?, load.options()?);
    detached(py, || {
        let plan = plan.map(|sizes| planned(&path, &load, &sizes)).transpose()?;
        let options = ReportOptions::new(load).paths(policy).stats(stats).plan(plan);
        let page = onnx_container_report::report(&path, other.as_deref(), &options)?;
        page.save(&output, overwrite)?;
        Ok(page.html.len())
    })
}

/// The plan of the model at `path`.
fn planned(path: &Path, load: &LoadOptions, sizes: &HashMap<String, usize>) -> Result<MemoryPlan> {
    let container = Container::load(path, load.clone())?;
    let program = Program::new(&container, ProgramOptions::new());
    program.and_then(|program| plan_memory(&program, sizes)).map_err(|error| {
        match error.container_error() {
            Some(source) => source.clone(),
            None => Error::new(ErrorKind::InvalidArgument, error.to_string()).with_path(path),
        }
    })
}
