//! The exception class of the package, and how errors become exceptions.

use std::io;
use std::path::Path;

use onnx_container::ErrorKind;
use pyo3::create_exception;
use pyo3::exceptions::{
    PyBaseException, PyException, PyFileExistsError, PyFileNotFoundError, PyIsADirectoryError,
    PyPermissionError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyType};

create_exception!(
    onnx_container,
    Error,
    PyException,
    "What went wrong, with the tensor, file and byte where they are known.\n\n\
     `kind` is a name for programs, such as \"MissingFile\"; `reason` the reason alone; `tensor` (str), `path` (str) and \
     `offset` (int, bytes) are None where they are not known; `related` lists the errors that this one joins."
);

/// The exception for `error`. What ends a program, such as Ctrl-C in a callable that makes weights,
/// goes through as it is.
pub fn exception(error: &onnx_container::Error) -> PyErr {
    Python::attach(|py| match cause(py, error) {
        Some(raised) if !raised.is_instance_of::<PyException>(py) => raised,
        _ => made(py, error).unwrap_or_else(|failed| failed),
    })
}

/// A class of errors that code which came from other libraries catches as one of Python's own.
pub struct Class {
    name: &'static str,
    doc: &'static str,
    /// The number of the system's error.
    errno: i32,
    base: fn(Python<'_>) -> Bound<'_, PyType>,
    made: PyOnceLock<Py<PyType>>,
}

/// All such classes.
pub static CLASSES: [Class; 4] = [
    Class::new(
        "MissingFileError",
        "An `Error` of a file that is not there, or that a failed download left in its place.",
        2,
        |py| py.get_type::<PyFileNotFoundError>(),
    ),
    Class::new("AlreadyExistsError", "An `Error` of a file that must not be replaced.", 17, |py| {
        py.get_type::<PyFileExistsError>()
    }),
    Class::new("IsAFolderError", "An `Error` of a folder where a file should be.", 21, |py| {
        py.get_type::<PyIsADirectoryError>()
    }),
    Class::new(
        "AccessError",
        "An `Error` of a file that this process has no access to.",
        13,
        |py| py.get_type::<PyPermissionError>(),
    ),
];

impl Class {
    const fn new(
        name: &'static str,
        doc: &'static str,
        errno: i32,
        base: fn(Python<'_>) -> Bound<'_, PyType>,
    ) -> Self {
        Self { name, doc, errno, base, made: PyOnceLock::new() }
    }

    /// The name and the class.
    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<(&'static str, &Bound<'py, PyType>)> {
        let make = || {
            let bases = (py.get_type::<Error>(), (self.base)(py));
            let body = PyDict::new(py);
            body.set_item("__module__", "onnx_container")?;
            body.set_item("__doc__", self.doc)?;
            // That of a system's error would write the number and the file name anew.
            body.set_item("__str__", py.get_type::<PyBaseException>().getattr("__str__")?)?;
            let class = py.get_type::<PyType>().call1((self.name, bases, body))?;
            Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
        };
        Ok((self.name, self.made.get_or_try_init(py, make)?.bind(py)))
    }

    /// That of `error`, if there is one.
    fn of(error: &onnx_container::Error) -> Option<&'static Self> {
        let source = std::error::Error::source(error);
        let source = source.and_then(|source| source.downcast_ref::<io::Error>());
        let errno = match (error.kind(), source.map(io::Error::kind)) {
            (ErrorKind::MissingFile, _) => 2,
            (ErrorKind::NotDownloaded, _) if error.path().is_some() => 2,
            (ErrorKind::AlreadyExists, _) if is_about_a_file(error) => 17,
            (_, Some(io::ErrorKind::IsADirectory)) => 21,
            (_, Some(io::ErrorKind::PermissionDenied)) => 13,
            (ErrorKind::Io | ErrorKind::UnsafePath | ErrorKind::InvalidArgument, _)
                if error.path().is_some_and(Path::is_dir) =>
            {
                21
            }
            _ => return None,
        };
        CLASSES.iter().find(|class| class.errno == errno)
    }
}

/// Whether `error`, or one that it joins, names a path.
fn is_about_a_file(error: &onnx_container::Error) -> bool {
    error.path().is_some() || error.related().iter().any(is_about_a_file)
}

/// How many of the errors that one joins its text has; `related` has all.
const MOST_SHOWN: usize = 10;

/// The text of an exception.
fn text(error: &onnx_container::Error) -> String {
    let related = error.related();
    let Some(more) = related.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0) else {
        return error.to_string();
    };
    let few: Vec<_> = related.iter().take(MOST_SHOWN).map(ToString::to_string).collect();
    format!("{}: {}; and {more} more, all in `related`", error.reason(), few.join("; "))
}

fn made(py: Python<'_>, error: &onnx_container::Error) -> PyResult<PyErr> {
    let class = Class::of(error);
    let exception = match class {
        Some(class) => PyErr::from_value(class.get(py)?.1.call1((text(error),))?),
        None => Error::new_err(text(error)),
    };
    let value = exception.value(py);
    if let Some(class) = class {
        // That of the first, where several errors are joined.
        let mut all = std::iter::once(error).chain(error.related());
        let path = all.find_map(onnx_container::Error::path);
        let of_system = PyDict::new(py);
        of_system.set_item("errno", class.errno)?;
        of_system.set_item("strerror", error.reason())?;
        of_system.set_item("filename", path.map(Path::as_os_str))?;
        // Also in the dict, for pickles and copies: errors of the system keep them elsewhere.
        value.getattr("__dict__")?.call_method1("update", (&of_system,))?;
        for (name, one) in of_system.iter() {
            value.setattr(name.cast::<PyString>()?, one)?;
        }
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
