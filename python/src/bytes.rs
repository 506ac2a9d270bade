//! [`Bytes`]: shared bytes as a Python object, and the memory of Python objects as shared bytes.
//!
//! The buffer protocol hands out and takes in raw memory, so this file has unsafe code; `dlpack` is the other one.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::slice;

use onnx_container::{Alignment, Buffer, BufferMut, Ownership};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use pyo3::{Borrowed, ffi};

use crate::error::OrRaise;

/// Shared, read-only bytes: of a file that is mapped or was read, or of a Python object. They are freed, or unmapped,
/// with the last object that uses them.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct Bytes(pub Buffer);

#[pymethods]
impl Bytes {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Where the first byte is in memory.
    #[getter]
    fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Who holds the memory: "owned", by this alone; "shared", with others or in a mapped file; "lent", by another object.
    #[getter]
    fn ownership(&self) -> &'static str {
        match self.0.ownership() {
            Ownership::Owned => "owned",
            Ownership::Shared => "shared",
            Ownership::Lent => "lent",
        }
    }

    /// The file and the range of it, in bytes, that is mapped here.
    #[getter]
    fn file_range(&self) -> Option<(std::path::PathBuf, u64, u64)> {
        let found = self.0.file_range()?;
        Some((found.path.to_owned(), found.range.start, found.range.end))
    }

    /// The bytes from `start` to `end`, which share this memory.
    fn slice(&self, start: usize, end: usize) -> PyResult<Self> {
        let part = self.0.slice(start..end);
        part.map(Self).ok_or_else(|| PyValueError::new_err("the range is not within the bytes"))
    }

    /// A copy in memory of its own that may be written to.
    fn writable(&self, py: Python<'_>) -> PyResult<WritableBytes> {
        let copied = py.detach(|| {
            let mut copy = BufferMut::zeroed(self.0.len(), Alignment::CACHE_LINE)?;
            copy.copy_from_slice(&self.0);
            Ok(copy)
        });
        Ok(WritableBytes(copied.or_raise()?))
    }

    pub(crate) unsafe fn __getbuffer__(
        slf: Borrowed<'_, '_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        // SAFETY: `view` comes from the interpreter. The memory stays where it is and as it is while the object lives,
        // which the view keeps alive.
        unsafe { fill(&slf, view, flags, bytes.as_ptr().cast_mut(), bytes.len(), true) }
    }
}

/// Bytes in memory of their own, which may be written to.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct WritableBytes(BufferMut);

#[pymethods]
impl WritableBytes {
    unsafe fn __getbuffer__(
        slf: Borrowed<'_, '_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        // SAFETY: as for `Bytes`. Nothing in Rust reads or writes this memory after it was filled, so those who share
        // the view may write to it as they may to a `bytearray`.
        unsafe { fill(&slf, view, flags, bytes.as_ptr().cast_mut(), bytes.len(), false) }
    }
}

/// Fills `view` with `len` bytes at `start`, which belong to `owner`.
///
/// # Safety
/// `view` is valid or null; the bytes are at `start` as long as `owner` lives, and if they are not `readonly`, may be written
/// to.
unsafe fn fill<T>(
    owner: &Borrowed<'_, '_, T>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    start: *mut u8,
    len: usize,
    readonly: bool,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view is given"));
    }
    let len = isize::try_from(len).map_err(|_| PyBufferError::new_err("too long"))?;
    // SAFETY: the caller's promises; the function takes a reference to the owner.
    let status = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            start.cast(),
            len,
            c_int::from(readonly),
            flags,
        )
    };
    if status == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// The memory that a Python object shows by the buffer protocol.
struct Shown(PyUntypedBuffer);

impl AsRef<[u8]> for Shown {
    fn as_ref(&self) -> &[u8] {
        let start = self.0.buf_ptr().cast_const().cast::<u8>();
        if start.is_null() || self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps this memory in place until the view is released, which this owns, and it is
        // contiguous: see `buffer`. Its contents may be changed by whoever else has the object; documentation asks callers
        // not to, as for every reader that shares an array.
        unsafe { slice::from_raw_parts(start, self.0.len_bytes()) }
    }
}

/// The memory of `object`, which has to be contiguous, without a copy.
pub fn buffer(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    if let Ok(bytes) = object.cast::<Bytes>() {
        return Ok(bytes.get().0.clone());
    }
    // A view has the strides that some objects, such as arrays of ctypes, leave out.
    let view = PyUntypedBuffer::get(PyMemoryView::from(object)?.as_any())?;
    if !view.is_c_contiguous() {
        return Err(PyBufferError::new_err("the memory is not contiguous"));
    }
    Ok(Buffer::from_owner(Shown(view)))
}
