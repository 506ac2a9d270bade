//! The exception class of the package, and how errors become exceptions.

use onnx_container::ErrorKind;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyFileNotFoundError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyType};

create_exception!(
    onnx_container,
    Error,
    PyException,
    "What went wrong, with the tensor, file and byte where they are known.\n\n\
     `kind` is a name for programs, such as \"MissingFile\"; `reason` the reason alone; `tensor` (str), `path` (str) and \
     `offset` (int, bytes) are None where they are not known; `related` lists the errors that this one joins."
);

/// The exception for `error`. What ends a program, such as Ctrl-C in a callable that makes weights, goes through as it is.
pub fn exception(error: &onnx_container::Error) -> PyErr {
    Python::attach(|py| match cause(py, error) {
        Some(raised) if !raised.is_instance_of::<PyException>(py) => raised,
        _ => made(py, error).unwrap_or_else(|failed| failed),
    })
}

/// The class of errors of a file that is not there, which code that came from other libraries catches as `FileNotFoundError`.
pub fn missing_file(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let make = || {
        let bases = (py.get_type::<Error>(), py.get_type::<PyFileNotFoundError>());
        let body = PyDict::new(py);
        body.set_item("__module__", "onnx_container")?;
        body.set_item("__doc__", "An `Error` of a file that is not there.")?;
        let class = py.get_type::<PyType>().call1(("MissingFileError", bases, body))?;
        Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
    };
    Ok(CLASS.get_or_try_init(py, make)?.bind(py))
}

fn made(py: Python<'_>, error: &onnx_container::Error) -> PyResult<PyErr> {
    let exception = match error.kind() {
        ErrorKind::MissingFile => PyErr::from_value(missing_file(py)?.call1((error.to_string(),))?),
        _ => Error::new_err(error.to_string()),
    };
    let value = exception.value(py);
    if error.kind() == ErrorKind::MissingFile {
        value.setattr("errno", 2)?; // ENOENT; with a file name, the text would be another
    }
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
    Some(error.io_error()?.get_ref()?.downcast_ref::<PyErr>()?.clone_ref(py))
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
