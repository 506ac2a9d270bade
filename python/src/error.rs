//! The exception class of the package, and how errors become exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyList;

create_exception!(
    onnx_container,
    Error,
    PyException,
    "What went wrong, with the tensor, file and byte where they are known.\n\n\
     `kind` is a name for programs, such as \"MissingFile\"; `reason` the reason alone; `tensor` (str), `path` (str) and \
     `offset` (int, bytes) are None where they are not known; `related` lists the errors that this one joins."
);

/// The exception for `error`: that of the caller's code where this is its cause.
pub fn exception(error: &onnx_container::Error) -> PyErr {
    Python::attach(|py| {
        let made = made(py, error);
        made.unwrap_or_else(|failed| failed)
    })
}

fn made(py: Python<'_>, error: &onnx_container::Error) -> PyResult<PyErr> {
    let exception = Error::new_err(error.to_string());
    let value = exception.value(py);
    value.setattr("kind", format!("{:?}", error.kind()))?;
    value.setattr("reason", error.reason())?;
    value.setattr("tensor", error.tensor())?;
    value.setattr("path", error.path().map(|path| path.as_os_str()))?;
    value.setattr("offset", error.offset())?;
    let related =
        error.related().iter().map(|error| made(py, error)).collect::<PyResult<Vec<_>>>()?;
    value.setattr("related", PyList::new(py, related.iter().map(|error| error.value(py)))?)?;
    exception.set_cause(py, cause(py, error));
    Ok(exception)
}

/// The exception that code of the caller raised, such as a callable that produces weights.
fn cause(py: Python<'_>, error: &onnx_container::Error) -> Option<PyErr> {
    let source = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    Some(source.get_ref()?.downcast_ref::<PyErr>()?.clone_ref(py))
}

/// A [`Result`](onnx_container::Result) whose error becomes an exception.
pub trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for onnx_container::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(|error| exception(&error))
    }
}
