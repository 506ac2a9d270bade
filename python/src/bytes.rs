//! [`Bytes`]: shared bytes as a Python object, and the memory of Python objects as shared bytes.
//!
//! The buffer protocol hands out and takes in raw memory, so this file has unsafe code, as `dlpack`
//! has; `initializer` and `options` each pass one promise of a caller on.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::{ptr, slice};

use onnx_container::buffer::{Ownership, PrivateMap};
use onnx_container::{Alignment, Buffer, BufferMut, DataType};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use pyo3::{Borrowed, ffi};

use crate::error::OrRaise;
use crate::initializer::{Initializer, converted};

/// Shared, read-only bytes: of a file that is mapped or was read, or of a Python object. They are
/// freed, or unmapped, with the last object that uses them.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct Bytes(pub Buffer);

#[pymethods]
impl Bytes {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        let at = match self.file_range() {
            Some((path, start, end)) => {
                format!("mapped from {}, bytes {start} to {end}", path.display())
            }
            None => self.ownership().to_owned(),
        };
        format!("<Bytes: {}, {at}>", onnx_container::ByteSize(self.0.len() as u64))
    }

    /// Where the first byte is in memory.
    #[getter]
    fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Who holds the memory: "owned", by this alone; "shared", with others or in a mapped file;
    /// "lent", by another object.
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
        Ok(WritableBytes(Writable::Copy(copied.or_raise()?)))
    }

    /// As `writable`, by a map of the file that the bytes are in, of which pages are copied when
    /// they are written to; None where there can be no such map.
    fn private_map(&self, py: Python<'_>) -> Option<WritableBytes> {
        let map = py.detach(|| map_again(&self.0))?;
        Some(WritableBytes(Writable::Map(map)))
    }

    pub(crate) unsafe fn __getbuffer__(
        slf: Borrowed<'_, '_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes: &[u8] = &slf.get().0;
        // SAFETY: `view` comes from the interpreter. The memory stays where it is while the object
        // lives, which the view keeps alive: that of a torch storage as long as the caller does not
        // resize it, as documentation asks.
        unsafe { fill(&slf, view, flags, bytes.as_ptr().cast_mut(), bytes.len(), true) }
    }
}

/// Bytes of a mapped file as memory that may be written to, of which pages are copied then; None
/// where there is no such map.
pub fn map_again(bytes: &Buffer) -> Option<PrivateMap> {
    bytes.file_range()?;
    // SAFETY: whatever maps a file here, `Container.load`, `attach`, `from_bytes`, `map_file` and
    // `onnx_container.ir.save`, says in its documentation that no process may truncate the file or
    // write to it while anything made of it is in use.
    unsafe { PrivateMap::new(bytes) }.ok()
}

/// Bytes in memory of their own, which may be written to.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct WritableBytes(Writable);

#[derive(Debug)]
enum Writable {
    Copy(BufferMut),
    Map(PrivateMap),
}

#[pymethods]
impl WritableBytes {
    unsafe fn __getbuffer__(
        slf: Borrowed<'_, '_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let (start, len) = match &slf.get().0 {
            Writable::Copy(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            Writable::Map(map) => (map.as_ptr(), map.len()),
        };
        // SAFETY: as for `Bytes`. Nothing in Rust reads or writes this memory after it was filled,
        // so those who share the view may write to it as they may to a `bytearray`.
        unsafe { fill(&slf, view, flags, start, len, false) }
    }
}

/// Elements of a type that the buffer protocol has, with their shape.
#[derive(Debug)]
#[pyclass(frozen, module = "onnx_container._core")]
pub struct Elements {
    bytes: Buffer,
    /// What it takes in bytes, by type and shape.
    len: usize,
    format: &'static CStr,
    width: usize,
    shape: Vec<isize>,
    /// In bytes.
    strides: Vec<isize>,
}

impl Elements {
    /// The elements in `bytes`, which are asked for when the protocol has their type.
    pub fn new(
        dtype: DataType,
        dims: &[i64],
        bytes: impl FnOnce() -> PyResult<Bytes>,
    ) -> PyResult<Self> {
        let (format, width) = format_of(dtype).ok_or_else(|| {
            PyBufferError::new_err(format!(
                "the buffer protocol has no type for {dtype}: use `raw` for the packed bytes, or `numpy()`"
            ))
        })?;
        let too_long = |_| PyBufferError::new_err("too long");
        let shape: Vec<isize> = dims
            .iter()
            .map(|dim| isize::try_from(*dim))
            .collect::<Result<_, _>>()
            .map_err(too_long)?;
        let mut strides = vec![0; shape.len()];
        let mut step = isize::try_from(width).map_err(|_| PyBufferError::new_err("too long"))?;
        for (stride, dim) in strides.iter_mut().zip(&shape).rev() {
            *stride = step;
            step = step.saturating_mul((*dim).max(1));
        }
        let len = usize::try_from(dtype.byte_len(dims).or_raise()?).map_err(too_long)?;
        Ok(Self { bytes: bytes()?.0, len, format, width, shape, strides })
    }
}

/// How the module `struct`, and numpy for complex numbers, name a type; and the bytes of one
/// element.
fn format_of(dtype: DataType) -> Option<(&'static CStr, usize)> {
    Some(match dtype {
        DataType::Bool => (c"?", 1),
        DataType::Int8 => (c"b", 1),
        DataType::Uint8 => (c"B", 1),
        DataType::Int16 => (c"h", 2),
        DataType::Uint16 => (c"H", 2),
        DataType::Int32 => (c"i", 4),
        DataType::Uint32 => (c"I", 4),
        DataType::Int64 => (c"q", 8),
        DataType::Uint64 => (c"Q", 8),
        DataType::Float16 => (c"e", 2),
        DataType::Float => (c"f", 4),
        DataType::Double => (c"d", 8),
        DataType::Complex64 => (c"Zf", 8),
        DataType::Complex128 => (c"Zd", 16),
        _ => return None,
    })
}

#[pymethods]
impl Elements {
    pub(crate) unsafe fn __getbuffer__(
        slf: Borrowed<'_, '_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let shown = slf.get();
        let has = |flag: c_int| flags & flag == flag;
        let is_column_major = shown.shape.iter().filter(|dim| **dim > 1).count() <= 1;
        if has(ffi::PyBUF_F_CONTIGUOUS) && !has(ffi::PyBUF_ANY_CONTIGUOUS) && !is_column_major {
            return Err(PyBufferError::new_err("the elements are in row-major order"));
        }
        let bytes: &[u8] = &shown.bytes;
        if bytes.len() != shown.len {
            return Err(PyBufferError::new_err("the memory became shorter while it was in use"));
        }
        let ndim = c_int::try_from(shown.shape.len());
        let ndim = ndim.map_err(|_| PyBufferError::new_err("too many dimensions"))?;
        // SAFETY: as for `Bytes`; the view keeps the object, and with it the shape and the strides,
        // which nothing changes.
        unsafe { fill(&slf, view, flags, bytes.as_ptr().cast_mut(), bytes.len(), true)? };
        // Who asks for no shape has bytes, as the call above says.
        if !has(ffi::PyBUF_ND) {
            return Ok(());
        }
        // SAFETY: the call above filled the view, so it is valid.
        let view = unsafe { &mut *view };
        let pointer = |wanted: bool, list: &[isize]| match wanted && !list.is_empty() {
            true => list.as_ptr().cast_mut(),
            false => ptr::null_mut(),
        };
        view.ndim = ndim;
        view.itemsize = shown.width.cast_signed();
        view.shape = pointer(true, &shown.shape);
        view.strides = pointer(has(ffi::PyBUF_STRIDES), &shown.strides);
        if has(ffi::PyBUF_FORMAT) {
            view.format = shown.format.as_ptr().cast_mut();
        }
        Ok(())
    }
}

/// Fills `view` with `len` bytes at `start`, which belong to `owner`.
///
/// # Safety
/// `view` is valid or null; the bytes are at `start` as long as `owner` lives, and if they are not
/// `readonly`, may be written to.
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
        // SAFETY: the exporter keeps this memory in place until the view is released, which this
        // owns, and it is contiguous: see `buffer`. Its contents may be changed by others who have
        // the object; documentation asks callers not to, as for every reader that shares an array.
        unsafe { slice::from_raw_parts(start, self.0.len_bytes()) }
    }
}

/// The memory of a torch tensor on the CPU.
struct Torch {
    /// torch's `UntypedStorage`, which the memory belongs to.
    storage: Py<PyAny>,
    /// Where the storage was and how long it was, in bytes, when the tensor was given.
    whole: (usize, usize),
    start: usize,
    len: usize,
}

impl Torch {
    /// Whether the storage still has its memory: torch frees it when a storage is resized, or moved
    /// to shared memory.
    fn is_there(&self) -> bool {
        let found = Python::try_attach(|py| {
            let storage = self.storage.bind(py);
            let now = (storage.call_method0("data_ptr"), storage.call_method0("nbytes"));
            let number = |found: PyResult<Bound<'_, PyAny>>| found?.extract::<usize>();
            (number(now.0).ok(), number(now.1).ok()) == (Some(self.whole.0), Some(self.whole.1))
        });
        found.unwrap_or(false)
    }
}

impl AsRef<[u8]> for Torch {
    /// No bytes where the memory is gone, so that who reads them has an error.
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 || !self.is_there() {
            return &[];
        }
        // SAFETY: `torch_memory` held the range to the storage, which this keeps, and which still
        // has the memory. As for arrays, others may write to it; documentation asks callers not to,
        // nor to resize it while the bytes are in use.
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(self.start), self.len) }
    }
}

/// The `len` bytes at the address `start`, which are in the torch `storage`.
#[pyfunction]
pub fn torch_memory(storage: &Bound<'_, PyAny>, start: usize, len: usize) -> PyResult<Bytes> {
    let number = |name: &str| storage.call_method0(name)?.extract::<usize>();
    let whole = (number("data_ptr")?, number("nbytes")?);
    let ends = (start.checked_add(len), whole.0.checked_add(whole.1));
    if start < whole.0 || !matches!(ends, (Some(end), Some(of_storage)) if end <= of_storage) {
        return Err(PyValueError::new_err("the tensor is not within its storage"));
    }
    let storage = storage.clone().unbind();
    Ok(Bytes(Buffer::from_owner(Torch { storage, whole, start, len })))
}

/// The memory of `object`, which has to be contiguous, without a copy.
pub fn buffer(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    if let Ok(bytes) = object.cast::<Bytes>() {
        return Ok(bytes.get().0.clone());
    }
    if let Ok(initializer) = object.cast::<Initializer>() {
        return Ok(initializer.get().bytes(object.py())?.0);
    }
    // A view has the strides that some objects, such as arrays of ctypes, leave out.
    let view = PyMemoryView::from(object)?;
    if view.getattr(intern!(object.py(), "ndim"))?.extract::<usize>()? == 0 {
        // One element, of which there is no view that has a shape.
        return buffer(&view.call_method0(intern!(object.py(), "tobytes"))?);
    }
    let found = row_major(view.as_any())?;
    found.ok_or_else(|| PyBufferError::new_err("the memory is not contiguous"))
}

/// The memory of `object`, which has the packed, little-endian elements of a tensor of `dtype`:
/// bytes (of any format of one byte for numbers or characters), an array or a number of this type,
/// or, for types that the buffer protocol does not have, of unsigned integers as wide.
pub fn packed(object: &Bound<'_, PyAny>, dtype: DataType) -> PyResult<Buffer> {
    if let Ok(given) = object.cast::<Initializer>() {
        let given = given.get();
        return match given.0.dtype() == dtype {
            true => Ok(given.bytes(object.py())?.0),
            false => Err(other_elements(&given.0.dtype().to_string(), dtype)),
        };
    }
    if object.is_instance_of::<Bytes>() {
        return buffer(object);
    }
    let view = match PyMemoryView::from(object) {
        Ok(view) => view,
        // numpy shows no array of the types that ml_dtypes adds to it.
        Err(_) if object.hasattr(intern!(object.py(), "dtype"))? => {
            return packed(converted(object)?.as_any(), dtype);
        }
        Err(error) => return Err(error),
    };
    let format: String = view.getattr(intern!(object.py(), "format"))?.extract()?;
    let item_size: usize = view.getattr(intern!(object.py(), "itemsize"))?.extract()?;
    // The order of bytes means nothing in one byte.
    let orders: &[char] =
        if item_size == 1 { &['@', '=', '<', '|', '>', '!'] } else { &['@', '=', '<', '|'] };
    let letter = format.trim_start_matches(orders);
    let fits = match format_of(dtype) {
        _ if matches!(letter, "B" | "b" | "c") => true,
        Some((known, width)) => {
            item_size == width && any_width(&known.to_string_lossy()) == any_width(letter)
        }
        None => letter == "H" && dtype.byte_len(&[1]).is_ok_and(|bytes| bytes == 2),
    };
    if fits {
        buffer(object)
    } else {
        Err(other_elements(&format!("elements of format {format}"), dtype))
    }
}

/// The format of integers, whatever their width: `long` has four bytes or eight.
fn any_width(format: &str) -> &str {
    match format {
        "i" | "l" | "q" | "n" => "q",
        "I" | "L" | "Q" | "N" => "Q",
        other => other,
    }
}

fn other_elements(given: &str, dtype: DataType) -> PyErr {
    PyTypeError::new_err(format!(
        "{given} cannot be the packed bytes of {dtype}: convert them first, or give their bytes"
    ))
}

/// The memory of `object`, such as an array, without a copy; None where its elements are not in
/// row-major order without gaps.
pub fn row_major(object: &Bound<'_, PyAny>) -> PyResult<Option<Buffer>> {
    let view = PyUntypedBuffer::get(object)?;
    Ok(view.is_c_contiguous().then(|| Buffer::from_owner(Shown(view))))
}
