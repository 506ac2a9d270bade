//! Moves, copies and removals of models with their weights files.

use std::path::PathBuf;

use onnx_container::SaveOptions;
use onnx_container::model_files::{
    FileOptions, KeptFile, Transferred, copy_model, move_model, remove_model, share_weights,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::interrupt::detached;
use crate::options::Load;
use crate::saved::names;

/// What is done beside the model, which `load` is about.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Files {
    dry_run: bool,
    overwrite: bool,
    sync: bool,
}

impl Files {
    fn options(self, load: Load) -> PyResult<FileOptions> {
        let save = SaveOptions::new().overwrite(self.overwrite).sync(self.sync);
        let save = save.remove_superseded(true);
        Ok(FileOptions::new().load(load.options()?).save(save).dry_run(self.dry_run))
    }
}

/// Moves the model at `source`, or copies it.
#[pyfunction]
pub fn transfer(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    moves: bool,
    load: Load,
    options: Files,
) -> PyResult<Bound<'_, PyDict>> {
    let options = options.options(load)?;
    let done = detached(py, || match moves {
        true => move_model(source, target, options),
        false => copy_model(source, target, options),
    })?;
    let Transferred { files, kept, superseded, warnings, .. } = done;
    let files = files.into_iter().map(|file| (file.to, file.bytes)).collect();
    report(py, files, kept, superseded, &names(&warnings))
}

/// Removes the model at `path`.
#[pyfunction]
pub fn remove(
    py: Python<'_>,
    path: PathBuf,
    load: Load,
    options: Files,
) -> PyResult<Bound<'_, PyDict>> {
    let options = options.options(load)?;
    let done = detached(py, || remove_model(path, options))?;
    let files = done.removed.into_iter().map(|file| (file.path, file.bytes)).collect();
    report(py, files, done.kept, Vec::new(), &names(&done.warnings))
}

/// Puts the weights of the models at `paths` into one file, equal ones once.
#[pyfunction]
pub fn share<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    data_name: Option<String>,
    delete_old: bool,
    load: Load,
    options: Files,
) -> PyResult<Bound<'py, PyDict>> {
    let dry_run = options.dry_run;
    let save = SaveOptions::new().sync(options.sync).remove_left_behind(delete_old);
    let options = FileOptions::new().load(load.options()?).save(save).dry_run(dry_run);
    let done = detached(py, || share_weights(&paths, data_name.as_deref(), options))?;
    let report = PyDict::new(py);
    let files: Vec<_> = done.files.iter().map(|file| (file.name.clone(), file.bytes)).collect();
    report.set_item("files", files)?;
    report.set_item("deduplicated", (done.deduplicated.tensors, done.deduplicated.bytes))?;
    report.set_item("removed", done.removed)?;
    report.set_item("left_behind", done.left_behind)?;
    report.set_item("warnings", names(&done.warnings))?;
    Ok(report)
}

fn report<'py>(
    py: Python<'py>,
    files: Vec<(PathBuf, u64)>,
    kept: Vec<KeptFile>,
    superseded: Vec<PathBuf>,
    warnings: &[String],
) -> PyResult<Bound<'py, PyDict>> {
    let report = PyDict::new(py);
    report.set_item("files", files)?;
    let kept: Vec<_> = kept.into_iter().map(|file| (file.path, file.needed_by)).collect();
    report.set_item("kept", kept)?;
    report.set_item("superseded", superseded)?;
    report.set_item("warnings", warnings)?;
    Ok(report)
}
