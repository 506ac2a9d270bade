//! Small changes of the model of a container: names, metadata, initializers that go; and whether
//! operators are there that a change is to leave alone.

use onnx_container::edit::unknown_operators as unknown_in;
use pyo3::prelude::*;

use crate::container::Container;

/// How many places name the value by its new name. `what` is `input`, `output` or `value`.
#[pyfunction]
pub fn rename(
    py: Python<'_>,
    container: &Container,
    from_: &str,
    to: &str,
    what: &str,
) -> PyResult<usize> {
    container.rework(py, |container| match what {
        "input" => container.rename_input(from_, to),
        "output" => container.rename_output(from_, to),
        _ => container.rename(from_, to),
    })
}

/// The keys and values of the model.
#[pyfunction]
pub fn metadata(py: Python<'_>, container: &Container) -> PyResult<Vec<(String, String)>> {
    container.read(py, |container| {
        let entries = container.metadata();
        Ok(entries.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
    })
}

/// Gives `key` the value, whether it was there or not.
#[pyfunction]
pub fn set_metadata(py: Python<'_>, container: &Container, key: &str, value: &str) -> PyResult<()> {
    container.rework(py, |container| container.set_metadata(key, value).map(drop))
}

/// Removes `key`, and returns its value.
#[pyfunction]
pub fn remove_metadata(py: Python<'_>, container: &Container, key: &str) -> PyResult<String> {
    container.rework(py, |container| container.remove_metadata(key))
}

/// Deletes the initializer of this name, and its handle where no other tensor has it. Returns how
/// many places still name its value, which only `used` allows.
#[pyfunction]
pub fn delete_initializer(
    py: Python<'_>,
    container: &Container,
    name: &str,
    used: bool,
) -> PyResult<usize> {
    let deleted = container.rework(py, |container| match used {
        true => container.delete_used_initializer(name),
        false => container.delete_initializer(name),
    });
    Ok(deleted?.uses)
}

/// Those of `names` that are neither a type of operators in the model nor the name of a node.
#[pyfunction]
pub fn unknown_operators(
    py: Python<'_>,
    container: &Container,
    names: Vec<String>,
) -> PyResult<Vec<String>> {
    container.read(py, |container| {
        let unknown = unknown_in(container.model(), names.iter().map(String::as_str))?;
        Ok(unknown.into_iter().map(str::to_owned).collect())
    })
}
