//! The files that the weights of a container are in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use onnx_container::external_data::{ExternalData, is_external, is_handle, is_stripped};
use onnx_container::traversal;
use pyo3::prelude::*;

use crate::container::Container;

/// The files that large initializers are mapped from.
#[pyfunction]
pub fn mapped_files(py: Python<'_>, container: &Container) -> PyResult<BTreeSet<PathBuf>> {
    Ok(mapped(&*container.now(py)?))
}

/// The files that large initializers are mapped from. Most have one, and one after the other.
pub fn mapped(container: &onnx_container::Container) -> BTreeSet<PathBuf> {
    let ranges = container.iter().filter_map(|(_, initializer)| initializer.file_range());
    let mut paths: Vec<&Path> = ranges.map(|range| range.path).collect();
    paths.dedup();
    paths.into_iter().map(Path::to_owned).collect()
}

/// The files that weights were loaded from, mapped or not.
#[pyfunction]
pub fn weights_files(py: Python<'_>, container: &Container) -> PyResult<Vec<PathBuf>> {
    Ok(container.now(py)?.weights_files().to_vec())
}

/// The locations of files that external tensors of the model name, whose weights are not loaded. A
/// tensor with entries that are not valid names none.
#[pyfunction]
pub fn locations(py: Python<'_>, container: &Container) -> PyResult<BTreeSet<String>> {
    let container = container.now(py)?;
    let external = traversal::iter(container.model()).filter(|(_, tensor)| is_external(tensor));
    let named = external.filter_map(|(_, tensor)| ExternalData::parse(tensor).ok());
    let locations = named.map(|entry| entry.location);
    Ok(locations.filter(|it| !is_handle(it) && !is_stripped(it)).collect())
}
