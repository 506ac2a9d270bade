//! Which tensors a container has of some kind, by their unique names.

use onnx_container::traversal::Site;
use onnx_container::{DataType, TensorRef};
use pyo3::prelude::*;

use crate::container::Container;

/// The initializers of all graphs.
#[pyfunction]
pub fn initializers(py: Python<'_>, container: &Container) -> PyResult<Vec<String>> {
    let is_initializer = |tensor: &TensorRef<'_>| tensor.place().site == Site::Initializer;
    container.read(py, |container| {
        let index = container.index();
        let found = index.iter().filter(|tensor| is_initializer(tensor));
        Ok(found.map(|tensor| tensor.name().to_owned()).collect())
    })
}

/// The tensors that have elements that are infinite or not a number. Floats alone are read.
#[pyfunction]
pub fn not_finite(py: Python<'_>, container: &Container) -> PyResult<Vec<String>> {
    let is_real = |dtype: DataType| dtype.is_float() || dtype.is_complex();
    let is_read = |tensor: &TensorRef<'_>| tensor.dtype().is_ok_and(is_real);
    let stats = container.read(py, |container| container.stats(is_read))?;
    let found = stats.into_iter().filter(|it| it.nan > 0 || it.infinite > 0);
    Ok(found.map(|it| it.name).collect())
}
