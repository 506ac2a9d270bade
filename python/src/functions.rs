//! Functions of the package that need no container.

use std::path::{Path, PathBuf};

use onnx_container::check::{CheckOptions, Finding, Severity};
use onnx_container::proto::{Message, ModelProto};
use onnx_container::save::EncodedFile;
use onnx_container::{DataType, Error, SaveOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::bytes::{Bytes, buffer};
use crate::error::{OrRaise, exception};
use crate::interrupt::detached;
use crate::looks;
use crate::options::{Inline, Load, mapping};
use crate::saved::{inlined, names};

/// Every fault of the model at `path`, which may be a URL: severity and error; and one error for
/// all errors among them. Weights may be read of a part alone.
#[pyfunction]
#[pyo3(signature = (path, load, contents, digests, part = None))]
#[allow(clippy::type_complexity)]
pub fn check_model(
    py: Python<'_>,
    path: PathBuf,
    load: Load,
    contents: bool,
    digests: bool,
    part: Option<(usize, usize)>,
) -> PyResult<(Vec<(&'static str, Py<PyAny>)>, Option<Py<PyAny>>)> {
    let (place, options) = (load.place(path)?, load.options()?);
    let part = looks::part(part).or_raise()?;
    let checks = |load| {
        let checks = CheckOptions::from(load).contents(contents).digests(digests);
        part.into_iter().fold(checks, CheckOptions::part)
    };
    let checked = detached(py, || place.check(options, checks))?;
    let findings = checked.findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => "error",
            _ => "advice",
        };
        (severity, exception(&finding.error).into_value(py).into_any())
    });
    let is_error = |finding: &&Finding| finding.severity == Severity::Error;
    let errors = checked.findings.iter().filter(is_error).map(|finding| finding.error.clone());
    let joined = Error::join(errors).map(|error| exception(&error).into_value(py).into_any());
    Ok((findings.collect(), joined))
}

/// The model, given as bytes, with its local functions in its graphs; and what was done.
#[pyfunction]
pub fn inline_functions<'py>(
    py: Python<'py>,
    model: &Bound<'py, PyAny>,
    options: Inline,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyDict>)> {
    let (bytes, options) = (buffer(model)?, options.options()?);
    let (bytes, report) = detached(py, || {
        let mut model = ModelProto::decode(&bytes)?;
        let report = onnx_container::inline::inline_functions(&mut model, options)?;
        Ok((model.encode_to_vec()?, report))
    })?;
    Ok((PyBytes::new(py, &bytes), inlined(py, &report)?))
}

/// Completes or undoes what saves that were killed left at `path`, and removes the jobs that had
/// ended: the models that were finished and undone, how many staging folders were removed, what
/// failed, and how many folders of jobs were removed.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn recover(
    py: Python<'_>,
    path: PathBuf,
) -> PyResult<(Vec<PathBuf>, Vec<PathBuf>, usize, Vec<String>, usize)> {
    let (done, (jobs, errors)) = detached(py, || {
        let done = onnx_container::recovery::recover(&path)?;
        let beside = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = if path.is_dir() { &path } else { beside.unwrap_or(Path::new(".")) };
        Ok((done, onnx_container::job::remove_ended_jobs(folder)))
    })?;
    let errors = done.errors.iter().chain(&errors).map(ToString::to_string).collect();
    Ok((done.finished, done.undone, done.removed, errors, jobs))
}

/// The model whose external data the file at `path` is, if there is one; another one than `model`,
/// if that is given.
#[pyfunction]
#[pyo3(signature = (path, model = None))]
pub fn model_that_needs(
    py: Python<'_>,
    path: PathBuf,
    model: Option<PathBuf>,
) -> PyResult<Option<PathBuf>> {
    detached(py, || match model {
        Some(model) => onnx_container::save::other_model_that_needs(path, model),
        None => onnx_container::save::model_that_needs(path),
    })
}

/// Writes the encoded `model` to `path`, and files beside or below it: their locations, their bytes
/// in parts, and whether the user named them. Returns warnings.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn save_encoded(
    py: Python<'_>,
    path: PathBuf,
    model: &Bound<'_, PyAny>,
    files: Vec<(String, Vec<Bound<'_, PyAny>>, bool)>,
    sync: bool,
) -> PyResult<Vec<String>> {
    let model = buffer(model)?;
    let names_files = files.iter().any(|(_, _, named)| *named);
    let encoded = |(location, parts, named): (String, Vec<Bound<'_, PyAny>>, bool)| {
        let parts = parts.iter().map(buffer).collect::<PyResult<Vec<_>>>()?;
        Ok(EncodedFile::new(location, parts).replace_unneeded(named))
    };
    let files = files.into_iter().map(encoded).collect::<PyResult<Vec<_>>>()?;
    // Who names files deletes old ones as well.
    let options = SaveOptions::new().sync(sync).remove_superseded(!names_files);
    let warnings =
        detached(py, || onnx_container::save::save_encoded(path, &model, &files, options))?;
    Ok(names(&warnings))
}

/// All bytes of the file at `path`, mapped or read.
#[pyfunction]
#[pyo3(signature = (path, mmap = true))]
pub fn map_file(py: Python<'_>, path: PathBuf, mmap: bool) -> PyResult<Bytes> {
    Ok(Bytes(detached(py, || mapping(mmap).buffer(path))?))
}

/// The element types: number, name in onnx.proto, width in bits where there is one, and name in
/// safetensors files.
#[pyfunction]
pub fn dtype_names() -> Vec<(i32, &'static str, Option<u8>, Option<&'static str>)> {
    let one = |it: &DataType| (it.number(), it.name(), it.bit_width(), it.safetensors_name());
    DataType::ALL.iter().map(one).collect()
}

/// The length in bytes of a tensor.
#[pyfunction]
pub fn byte_len(dtype: i32, dims: Vec<i64>) -> PyResult<u64> {
    DataType::try_from(dtype).and_then(|dtype| dtype.byte_len(&dims)).or_raise()
}

/// Runs the command with these arguments, of which the first one is the name of the program.
/// Returns the exit code.
#[pyfunction]
pub fn run_command(py: Python<'_>, args: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| onnx_container_cli::run_command(args))
}
