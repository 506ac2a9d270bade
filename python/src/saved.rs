//! What calls of the library report, as dicts: Python classes give them names and types.

use onnx_container::edit::{CastReport, Filled};
use onnx_container::inline::Inlined;
use onnx_container::save::SavedFile;
use onnx_container::{ErrorKind, Saved};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::error::OrRaise;

/// Which weights of a cast became infinite, as far as they were converted.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct Infinite(Converted);

#[derive(Debug)]
enum Converted {
    Here(CastReport),
    /// The names, of a copy that came from another process.
    Names(Vec<String>),
}

#[pymethods]
impl Infinite {
    #[new]
    fn new(names: Vec<String>) -> Self {
        Self(Converted::Names(names))
    }

    /// The names of the weights, so far.
    fn names(&self) -> Vec<&str> {
        match &self.0 {
            Converted::Here(report) => report.infinite(),
            Converted::Names(names) => names.iter().map(String::as_str).collect(),
        }
    }

    /// A copy knows what is known now.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (Vec<String>,)) {
        let names = slf.get().names().into_iter().map(str::to_owned);
        (slf.get_type(), (names.collect(),))
    }
}

/// How many weights were cast, their bytes before and after, those that were not (name and reason),
/// and what tells which became infinite.
pub type CastFound = (usize, u64, u64, Vec<(String, String)>, Infinite);

/// What a cast did, as a tuple.
pub fn cast_found(report: CastReport) -> CastFound {
    let uncast = report.uncast.iter().map(|it| (it.tensor.clone(), it.reason.to_string()));
    let uncast = uncast.collect();
    let (cast, before, after) = (report.cast, report.bytes_before, report.bytes_after);
    (cast, before, after, uncast, Infinite(Converted::Here(report)))
}

/// A model as a save wrote it, which is encoded when it is asked for.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct SavedModel(Written);

#[derive(Debug)]
enum Written {
    Model(Box<Saved>),
    /// The bytes, of a copy that came from another process.
    Bytes(Vec<u8>),
}

#[pymethods]
impl SavedModel {
    #[new]
    fn new(model: &[u8]) -> Self {
        Self(Written::Bytes(model.to_vec()))
    }

    /// The bytes of the model.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let saved = match &self.0 {
            Written::Model(saved) => saved,
            Written::Bytes(model) => return Ok(PyBytes::new(py, model)),
        };
        let mut model = Vec::new();
        py.detach(|| saved.encode_model(&mut model)).or_raise()?;
        Ok(PyBytes::new(py, &model))
    }

    /// For copies and pickles.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyBytes>,))> {
        Ok((slf.get_type(), (slf.get().encode(slf.py())?,)))
    }
}

/// What a save wrote.
pub fn saved(py: Python<'_>, saved: Saved) -> PyResult<Bound<'_, PyDict>> {
    let report = PyDict::new(py);
    report.set_item("unchanged", saved.unchanged)?;
    report.set_item("files", files(&saved.files))?;
    report.set_item("kept", files(&saved.kept))?;
    report.set_item("nbytes", saved.bytes)?;
    report.set_item("unused", names(&saved.unused))?;
    report.set_item("left_behind", &saved.left_behind)?;
    report.set_item("warnings", names(&saved.warnings))?;
    let missing = saved.warnings.iter().filter(|it| it.kind() == ErrorKind::MissingFile);
    report.set_item("missing", missing.map(ToString::to_string).collect::<Vec<_>>())?;
    report.set_item("inlined", saved.inlined.as_ref().map(|it| inlined(py, it)).transpose()?)?;
    let deduplicated = saved.deduplicated.as_ref().map(|it| (it.tensors, it.bytes));
    report.set_item("deduplicated", deduplicated)?;
    let statistics = PyDict::new(py);
    for (name, time) in [
        ("planning", saved.statistics.planning),
        ("producing", saved.statistics.producing),
        ("writing", saved.statistics.writing),
        ("flushing", saved.statistics.flushing),
        ("publishing", saved.statistics.publishing),
    ] {
        statistics.set_item(name, time.as_secs_f64())?;
    }
    report.set_item("seconds", statistics)?;
    report.set_item("_model", Bound::new(py, SavedModel(Written::Model(Box::new(saved))))?)?;
    Ok(report)
}

/// The names and lengths of `files`.
pub fn files(files: &[SavedFile]) -> Vec<(String, u64)> {
    files.iter().map(|file| (file.name.clone(), file.bytes)).collect()
}

/// The texts of `items`.
pub fn names(items: &[impl ToString]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

/// What an inlining did.
pub fn inlined<'py>(py: Python<'py>, inlined: &Inlined) -> PyResult<Bound<'py, PyDict>> {
    let report = PyDict::new(py);
    report.set_item("calls", inlined.calls)?;
    report.set_item("removed", names(&inlined.removed))?;
    let kept = inlined.kept.iter().map(|kept| (kept.function.to_string(), kept.reason.clone()));
    report.set_item("kept", kept.collect::<Vec<_>>())?;
    report.set_item("imported", inlined.imported.clone())?;
    report.set_item("warnings", names(&inlined.warnings))?;
    Ok(report)
}

/// What a fill did.
pub fn filled<'py>(py: Python<'py>, filled: &Filled) -> PyResult<Bound<'py, PyDict>> {
    let report = PyDict::new(py);
    let sharing = |all: &[onnx_container::edit::Sharing]| {
        all.iter().map(|it| (it.tensor.clone(), it.with.clone())).collect::<Vec<_>>()
    };
    report.set_item("filled", filled.filled)?;
    report.set_item("nbytes", filled.bytes)?;
    report.set_item("unused", &filled.unused)?;
    report.set_item("own", &filled.own)?;
    report.set_item("missing", &filled.missing)?;
    report.set_item("kept", &filled.kept)?;
    report.set_item("idle_rules", names(&filled.idle_rules))?;
    report.set_item("tied", sharing(&filled.tied))?;
    report.set_item("untied", sharing(&filled.untied))?;
    Ok(report)
}
