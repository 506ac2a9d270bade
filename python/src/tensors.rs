//! Which tensors a container has of some kind, by their unique names.

use onnx_container::traversal::Site;
use onnx_container::{DataType, TensorRef};
use pyo3::prelude::*;

use crate::container::Container;
use crate::looks;

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

/// The tensors, all or those of a part, that have elements that are infinite or not a number.
/// Floats alone are read.
#[pyfunction]
#[pyo3(signature = (container, part = None))]
pub fn not_finite(
    py: Python<'_>,
    container: &Container,
    part: Option<(usize, usize)>,
) -> PyResult<Vec<String>> {
    let is_real = |dtype: DataType| dtype.is_float() || dtype.is_complex();
    let stats = container.read(py, |container| {
        let in_part = looks::part(part)?.map(|part| part.selects(container));
        let is_read = |tensor: &TensorRef<'_>| {
            tensor.dtype().is_ok_and(is_real) && in_part.as_ref().is_none_or(|has| has(tensor))
        };
        container.stats(is_read)
    })?;
    let found = stats.into_iter().filter(|it| it.nan > 0 || it.infinite > 0);
    Ok(found.map(|it| it.name).collect())
}
