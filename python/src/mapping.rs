//! `WeightMapping`: which weights each tensor of a model is made of.

use onnx_container::edit::{Composition, WeightMapping as Inner};
use pyo3::prelude::*;

use crate::error::OrRaise;

/// Which weights of a checkpoint each tensor of a model is made of, as `Container.match` finds it.
#[derive(Debug)]
#[pyclass(frozen, eq, module = "onnx_container", name = "WeightMapping")]
pub struct WeightMapping(pub Inner);

impl PartialEq for WeightMapping {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

fn names(of: &Composition) -> Vec<String> {
    of.weights().map(str::to_owned).collect()
}

#[pymethods]
impl WeightMapping {
    /// The mapping of a JSON text, such as `to_json` makes.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        Ok(Self(Inner::from_json(text).or_raise()?))
    }

    /// The mapping as JSON, in the form that docs/safetensors.md describes.
    fn to_json(&self) -> PyResult<String> {
        self.0.to_json().or_raise()
    }

    /// The weights that each matched tensor is made of, by its name.
    #[getter]
    fn matched(&self) -> Vec<(String, Vec<String>)> {
        self.0.matched.iter().map(|one| (one.tensor.clone(), names(&one.source))).collect()
    }

    /// Matched tensors whose content other weights have as well, and those.
    #[getter]
    fn ambiguous(&self) -> Vec<(String, Vec<Vec<String>>)> {
        let several = self.0.matched.iter().filter(|one| !one.alternatives.is_empty());
        several
            .map(|one| (one.tensor.clone(), one.alternatives.iter().map(names).collect()))
            .collect()
    }

    /// Tensors whose elements are all equal, which says nothing of their origin.
    #[getter]
    fn uniform(&self) -> Vec<String> {
        self.0.uniform.clone()
    }

    /// Tensors of floats that are made of no weights.
    #[getter]
    fn unmatched(&self) -> Vec<String> {
        self.0.unmatched.clone()
    }

    /// Tensors that are not looked at.
    #[getter]
    fn skipped(&self) -> Vec<String> {
        self.0.skipped.clone()
    }

    /// Weights that no tensor is made of.
    #[getter]
    fn unused(&self) -> Vec<String> {
        self.0.unused.clone()
    }

    /// For copies and pickles.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.get_type().getattr("from_json")?, (slf.get().to_json()?,)))
    }

    fn __repr__(&self) -> String {
        let Inner { matched, uniform, unmatched, unused, .. } = &self.0;
        format!(
            "<WeightMapping: {} matched, {} uniform, {} unmatched, {} weights unused>",
            matched.len(),
            uniform.len(),
            unmatched.len(),
            unused.len()
        )
    }
}
