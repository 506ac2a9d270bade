//! Signatures of models, by the crate `onnx-container-signing`.

use std::path::PathBuf;

use onnx_container_signing::{FilesVerdict, Signed, Verdict};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::interrupt::interruptible_by;
use crate::options::{Sign, Verify};
use crate::saved::names;

/// Signs the model, or the files of the folder, and returns what was written.
#[pyfunction]
pub fn sign(py: Python<'_>, path: PathBuf, options: Sign) -> PyResult<Bound<'_, PyDict>> {
    let (options, cancel, raised) = options.options()?;
    let signed = interruptible_by(py, &cancel, || onnx_container_signing::sign(&path, &options))?;
    report(py, raised.or(signed)?)
}

fn report(py: Python<'_>, signed: Signed) -> PyResult<Bound<'_, PyDict>> {
    let report = PyDict::new(py);
    let content = signed.content.as_ref();
    report.set_item("signature", &signed.signature)?;
    report.set_item("content_signature", content.map(|content| &content.signature))?;
    report.set_item("files", &signed.files)?;
    report.set_item("digest", content.map(|content| content.digest.to_string()))?;
    report.set_item("key", &signed.key)?;
    report.set_item("curve", signed.curve)?;
    report.set_item("unsigned_files", signed.unsigned_files)?;
    report.set_item("nameless_files", signed.nameless_files)?;
    report.set_item("warnings", names(&signed.warnings))?;
    Ok(report)
}

/// Verifies that the model, or the folder, is the signed one, and returns by what.
#[pyfunction]
pub fn verify_signature(
    py: Python<'_>,
    path: PathBuf,
    options: Verify,
) -> PyResult<Bound<'_, PyDict>> {
    let (options, cancel, raised) = options.options()?;
    let verified =
        interruptible_by(py, &cancel, || onnx_container_signing::verify(&path, &options))?;
    verdict(py, &raised.or(verified)?)
}

fn verdict<'py>(py: Python<'py>, verdict: &Verdict) -> PyResult<Bound<'py, PyDict>> {
    let report = PyDict::new(py);
    let (files, content) = (verdict.files.as_ref(), verdict.content.as_ref());
    report.set_item("by_files", files.is_some_and(|files| files.as_signed))?;
    let by_content = content.is_some_and(|content| content.as_signed == Some(true));
    report.set_item("by_content", by_content)?;
    report.set_item("signature", files.map(|files| &files.signature))?;
    report.set_item("content_signature", content.map(|content| &content.signature))?;
    report.set_item("digest", content.and_then(|content| content.digest.as_ref()))?;
    report.set_item("signed_model", content.map(|content| &content.signed_model))?;
    report.set_item("key", &verdict.key)?;
    report.set_item("curve", verdict.curve)?;
    report.set_item("differing", files.map(differing).unwrap_or_default())?;
    report.set_item("left_out", files.map(|files| files.left_out.clone()).unwrap_or_default())?;
    report.set_item("ambiguous", content.and_then(|content| content.ambiguous.as_ref()))?;
    Ok(report)
}

/// Path, kind and reason of each file that is not as it was signed.
fn differing(files: &FilesVerdict) -> Vec<(String, &'static str, String)> {
    let problems = files.problems.iter();
    problems.map(|found| (found.path.clone(), found.kind.name(), found.reason.clone())).collect()
}
