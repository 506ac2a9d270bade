//! The page of a model, as the command `report` writes it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use onnx_container::{Error, ErrorKind, Limits, LoadOptions, Result};
use onnx_container_report::{MemoryPlan, Page, ReportOptions, own_files, plan_memory};
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
    let (policy, limits, load) = (load.policy()?, load.limits()?, load.options()?);
    detached(py, || {
        let options = ReportOptions::new(load.clone()).paths(policy).stats(stats);
        // Before much is read for it.
        Page::check_target(&output, &own_files(&path, other.as_deref(), &options)?, overwrite)?;
        let plan = plan.map(|sizes| planned(&path, load, limits, sizes)).transpose()?;
        let page = onnx_container_report::report(&path, other.as_deref(), &options.plan(plan))?;
        page.save(&output, overwrite)?;
        Ok(page.html.len())
    })
}

/// The plan of the model at `path`.
fn planned(
    path: &Path,
    load: LoadOptions,
    limits: Limits,
    sizes: HashMap<String, usize>,
) -> Result<MemoryPlan> {
    plan_memory(path, load, limits, |_| sizes).map_err(|error| match error.container_error() {
        Some(source) => source.clone().with_path(path),
        None => Error::new(ErrorKind::InvalidArgument, error.to_string()).with_path(path),
    })
}
