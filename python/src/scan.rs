//! Scans of folders: models, their files, and what no model needs.

use std::path::PathBuf;

use onnx_container::Error;
use onnx_container::scan::{
    Certainty, EqualWeights, FileState, LeftKind, Scan, ScanOptions, ScannedFile, ScannedModel,
    WeightsPlace,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::exception;
use crate::interrupt::detached;
use crate::options::Load;

/// What is below `folder`.
#[pyfunction]
pub fn scan(
    py: Python<'_>,
    folder: PathBuf,
    equal: bool,
    min_equal_bytes: u64,
    load: Load,
) -> PyResult<Bound<'_, PyDict>> {
    let options = ScanOptions::from(load.options()?).equal(equal).min_equal_bytes(min_equal_bytes);
    let found = detached(py, || onnx_container::scan::scan(folder, options))?;
    let report = PyDict::new(py);
    report.set_item("models", listed(&found.models, |it| model(py, it))?)?;
    report.set_item("not_models", exceptions(py, &found.not_models))?;
    report.set_item("dangling", exceptions(py, &found.dangling))?;
    report.set_item("errors", exceptions(py, &found.errors))?;
    set_unneeded(&report, &found)?;
    let equal = found.equal.as_ref().map(|equal| listed(equal, |it| weights(py, it)));
    report.set_item("equal", equal.transpose()?)?;
    report.set_item("files", found.files)?;
    report.set_item("nbytes", found.bytes)?;
    report.set_item("reclaimable", found.reclaimable())?;
    report.set_item("perhaps_reclaimable", found.perhaps_reclaimable())?;
    report.set_item("shareable", found.shareable())?;
    report.set_item("shareable_in_one_folder", found.shareable_in_one_folder())?;
    Ok(report)
}

/// Adds what no model needs.
fn set_unneeded(report: &Bound<'_, PyDict>, found: &Scan) -> PyResult<()> {
    let orphans = found.orphans.iter().map(|it| {
        let certainty = match it.certainty {
            Certainty::Sure => "sure",
            Certainty::Likely => "likely",
            _ => "possible",
        };
        (it.path.clone(), it.bytes, certainty, it.reason.clone())
    });
    report.set_item("orphans", orphans.collect::<Vec<_>>())?;
    let folders = found.without_model.iter().map(|it| (it.path.clone(), it.files, it.bytes));
    report.set_item("without_model", folders.collect::<Vec<_>>())?;
    let left = found.left.iter().map(|it| {
        let kind = match it.kind {
            LeftKind::Unneeded => "unneeded",
            LeftKind::InUse => "in_use",
            LeftKind::Job => "job",
            LeftKind::Committed => "committed",
            _ => "needed",
        };
        (it.path.clone(), it.bytes, kind)
    });
    report.set_item("left", left.collect::<Vec<_>>())
}

fn listed<'py, T>(
    all: &[T],
    one: impl Fn(&T) -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    all.iter().map(one).collect()
}

fn exceptions(py: Python<'_>, errors: &[Error]) -> Vec<Py<PyAny>> {
    errors.iter().map(|error| exception(error).into_value(py).into_any()).collect()
}

fn model<'py>(py: Python<'py>, model: &ScannedModel) -> PyResult<Bound<'py, PyDict>> {
    let file = |file: &ScannedFile| {
        let state = match file.state {
            FileState::Present => "present",
            FileState::CutOff => "cut_off",
            FileState::Missing => "missing",
            FileState::Wrong => "wrong",
            FileState::Stripped => "stripped",
            _ => "refused",
        };
        (file.path.clone(), file.bytes, state, file.reason.clone())
    };
    let dict = PyDict::new(py);
    dict.set_item("path", &model.path)?;
    dict.set_item("nbytes", model.all_bytes())?;
    dict.set_item("model_nbytes", model.bytes)?;
    dict.set_item("files", model.files.iter().map(file).collect::<Vec<_>>())?;
    dict.set_item("link_to", &model.link_to)?;
    dict.set_item("same_file_as", &model.same_file_as)?;
    dict.set_item("is_whole", model.is_whole)?;
    dict.set_item("is_damaged", model.is_damaged)?;
    Ok(dict)
}

fn weights<'py>(py: Python<'py>, equal: &EqualWeights) -> PyResult<Bound<'py, PyDict>> {
    let place = |place: &WeightsPlace| (place.model.clone(), place.tensor.clone());
    let dict = PyDict::new(py);
    dict.set_item("nbytes", equal.bytes)?;
    dict.set_item("copies", equal.copies)?;
    dict.set_item("places", equal.places.iter().map(place).collect::<Vec<_>>())?;
    Ok(dict)
}
