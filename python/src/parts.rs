//! Models without weights, parts of models, and two models as one.

use std::borrow::Cow;

use onnx_container::edit::{AttachOptions, AttachedWeights, MergeOptions, Stripped};
use pyo3::prelude::*;

use crate::container::{Container, kept};
use crate::options::externalizing;

/// How many tensors lost their elements, their bytes, how many small ones stay, their bytes, large
/// ones that stay (name, bytes, reason), and operands of shape inference among the lost ones.
#[allow(clippy::type_complexity)]
#[pyfunction]
pub fn strip(
    py: Python<'_>,
    container: &Container,
    min_bytes: Option<u64>,
) -> PyResult<(usize, u64, usize, u64, Vec<(String, u64, String)>, Vec<String>)> {
    let options = externalizing(min_bytes, false, true);
    let report = container.rework(py, |container| container.strip(options))?;
    let Stripped { stripped, bytes, small, small_bytes, operands, .. } = report;
    Ok((stripped, bytes, small, small_bytes, kept(&report.kept), operands))
}

/// How many tensors have elements again, their bytes, those that differ, those that are unused, and
/// how many were compared with digests.
#[allow(clippy::type_complexity)]
#[pyfunction]
pub fn attach_model(
    py: Python<'_>,
    container: &Container,
    weights: &Container,
    edited: bool,
) -> PyResult<(usize, u64, Vec<String>, Vec<String>, usize)> {
    let (weights, options) = (weights.now(py)?, AttachOptions::new().edited(edited));
    let report = container.rework(py, |container| container.attach_model(&weights, options))?;
    let AttachedWeights { attached, bytes, differing, unused, digests, .. } = report;
    Ok((attached, bytes, differing, unused, digests.tensors))
}

/// The part between the values; without `inputs`, from the inputs that the outputs need. `types`
/// are those of values for which the model declares none.
#[pyfunction]
pub fn extract_model(
    py: Python<'_>,
    container: &Container,
    inputs: Option<Vec<String>>,
    outputs: Vec<String>,
    types: Vec<(String, String)>,
) -> PyResult<Container> {
    let part = container.read(py, |container| {
        let mut container = Cow::Borrowed(container);
        for (name, of) in &types {
            container.to_mut().declare_type(name, of)?;
        }
        match &inputs {
            Some(inputs) => container.extract_model(inputs, &outputs),
            None => container.extract_model_for(&outputs),
        }
    });
    Ok(Container::of(part?))
}

/// The first model and the second after it, with outputs connected to inputs, and
/// inputs of both that are one.
#[pyfunction]
pub fn merge(
    py: Python<'_>,
    first: &Container,
    second: &Container,
    connect: Vec<(String, String)>,
    same_inputs: Vec<(String, String)>,
    prefixes: (String, String),
) -> PyResult<Container> {
    let (second, options) = (second.now(py)?, MergeOptions::new());
    let options = connect.into_iter().fold(options, |it, (from, to)| it.connect(from, to));
    let options = same_inputs.into_iter().fold(options, |it, (one, two)| it.same_input(one, two));
    let options = options.prefixes(prefixes.0, prefixes.1);
    Ok(Container::of(first.read(py, |first| first.merge(&second, options))?))
}
