//! Tensors as DLPack capsules, the exchange format of array libraries:
//! <https://dmlc.github.io/dlpack/latest/>.
//!
//! A consumer of version 1 gets the bytes where they are, marked as read-only: those of a mapped
//! file by a map of their own. One that knows no such mark gets a copy.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use onnx_container::buffer::PrivateMap;
use onnx_container::{Alignment, Buffer, BufferMut, DataType};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::bytes::map_again;
use crate::error::OrRaise;
use crate::initializer::Initializer;

const NAME: &CStr = c"dltensor";
const NAME_VERSIONED: &CStr = c"dltensor_versioned";
/// The version that is written: 1.0.
const VERSION: [u32; 2] = [1, 0];
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;
const CPU: i32 = 1;
/// The bytes of the shortest tensor that is mapped by itself.
const LEAST_MAP: usize = 64 << 10;

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct View {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    dtype: Type,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`, and what its context is.
#[repr(C)]
struct Managed {
    view: View,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    owned: Owned,
}

/// `DLManagedTensorVersioned`, and what its context is.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    view: View,
    owned: Owned,
}

/// What a view points into.
struct Owned {
    dims: Vec<i64>,
    strides: Vec<i64>,
    bytes: Bytes,
}

enum Bytes {
    Shared(Buffer),
    /// The same bytes of a mapped file, which a consumer that ignores the mark may write to: it
    /// changes nothing else, where a write to the container's own map would end the process. torch
    /// is one that does.
    Mapped(PrivateMap),
    Copied(BufferMut),
}

impl Bytes {
    /// The bytes where they are; None where that is a mapped file that cannot be mapped once more.
    fn shared(bytes: &Buffer) -> Option<Self> {
        match bytes.file_range() {
            Some(_) => map_again(bytes).map(Self::Mapped),
            None => Some(Self::Shared(bytes.clone())),
        }
    }

    fn start(&self) -> *mut c_void {
        match self {
            Self::Shared(bytes) => bytes.as_ptr().cast_mut().cast(),
            Self::Mapped(map) => map.as_ptr().cast(),
            Self::Copied(bytes) => bytes.as_ptr().cast_mut().cast(),
        }
    }
}

/// The type codes of DLPack: <https://dmlc.github.io/dlpack/latest/c_api.html>.
fn type_of(dtype: DataType) -> Option<Type> {
    use DataType::*;
    let code = match dtype {
        Int8 | Int16 | Int32 | Int64 | Int4 | Int2 => 0,
        Uint8 | Uint16 | Uint32 | Uint64 | Uint4 | Uint2 => 1,
        Float16 | Float | Double => 2,
        Bfloat16 => 4,
        Complex64 | Complex128 => 5,
        Bool => 6,
        Float8E4M3Fn => 10,
        Float8E4M3Fnuz => 11,
        Float8E5M2 => 12,
        Float8E5M2Fnuz => 13,
        Float8E8M0 => 14,
        Float6E2M3 => 15,
        Float6E3M2 => 16,
        Float4E2M1 => 17,
        _ => return None,
    };
    Some(Type { code, bits: dtype.bit_width()?, lanes: 1 })
}

/// Row-major strides, in elements.
fn strides(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1_i64; dims.len()];
    let mut step = 1_i64;
    for (stride, dim) in strides.iter_mut().zip(dims).rev() {
        *stride = step;
        step = step.saturating_mul((*dim).max(1));
    }
    strides
}

/// A capsule of the elements of `tensor`: of version 1 where it is `versioned`. With `copy` the
/// elements are always copied, or, if it is false, never.
#[pyfunction]
pub fn dlpack(
    py: Python<'_>,
    tensor: &Bound<'_, Initializer>,
    versioned: bool,
    copy: Option<bool>,
) -> PyResult<Py<PyAny>> {
    let initializer = &tensor.get().0;
    let dtype = type_of(initializer.dtype()).ok_or_else(|| {
        PyBufferError::new_err(format!("DLPack has no type for {}", initializer.dtype()))
    })?;
    if !versioned && copy == Some(false) {
        let reason = "read-only elements are shared with consumers of DLPack 1.0 and later only";
        return Err(PyBufferError::new_err(reason));
    }
    let must_copy = !versioned || copy == Some(true);
    let bytes = py.detach(|| {
        let bytes = initializer.to_buffer()?;
        // A map of a few bytes takes more than the bytes, and consumers compute with aligned
        // elements.
        let width = usize::from(dtype.bits / 8).max(1);
        let short = bytes.len() < LEAST_MAP && bytes.file_range().is_some();
        let is_odd = bytes.as_ptr().addr() % width != 0;
        let better_copy = is_odd || copy.is_none() && short;
        let shared = if must_copy || better_copy { None } else { Bytes::shared(&bytes) };
        match shared {
            Some(shared) => Ok(Some(shared)),
            None if copy == Some(false) => Ok(None),
            None => Ok(Some(Bytes::Copied(copied_to_device(&bytes)?))),
        }
    });
    let bytes = bytes.or_raise()?.ok_or_else(|| {
        PyBufferError::new_err(
            "the elements can only be copied: their file was replaced, or they are not aligned in it",
        )
    })?;
    let copied = matches!(bytes, Bytes::Copied(_));
    let dims = initializer.dims().to_vec();
    let owned = Owned { strides: strides(&dims), dims, bytes };
    if versioned { versioned_capsule(py, dtype, owned, copied) } else { capsule(py, dtype, owned) }
}

fn copied_to_device(bytes: &Buffer) -> onnx_container::Result<BufferMut> {
    let bytes: &[u8] = bytes;
    let mut copy = BufferMut::zeroed(bytes.len(), Alignment::DEVICE)?;
    copy.copy_from_slice(bytes);
    Ok(copy)
}

fn view(dtype: Type, owned: &mut Owned) -> PyResult<View> {
    let ndim = i32::try_from(owned.dims.len());
    Ok(View {
        data: owned.bytes.start(),
        device_type: CPU,
        device_id: 0,
        ndim: ndim.map_err(|_| PyBufferError::new_err("too many dimensions"))?,
        dtype,
        shape: owned.dims.as_mut_ptr(),
        strides: owned.strides.as_mut_ptr(),
        byte_offset: 0,
    })
}

fn capsule(py: Python<'_>, dtype: Type, mut owned: Owned) -> PyResult<Py<PyAny>> {
    let view = view(dtype, &mut owned)?;
    let made = Managed { view, context: ptr::null_mut(), deleter: Some(free), owned };
    // SAFETY: the capsule owns the pointer until a consumer renames it, and `abandoned` reads it by
    // its name.
    unsafe { new_capsule(py, Box::into_raw(Box::new(made)).cast(), NAME, abandoned) }
}

fn versioned_capsule(
    py: Python<'_>,
    dtype: Type,
    mut owned: Owned,
    copied: bool,
) -> PyResult<Py<PyAny>> {
    let view = view(dtype, &mut owned)?;
    let flags = if copied { IS_COPIED } else { READ_ONLY };
    let (version, context) = (VERSION, ptr::null_mut());
    let made = Versioned { version, context, deleter: Some(free_versioned), flags, view, owned };
    // SAFETY: as above.
    unsafe {
        let made = Box::into_raw(Box::new(made)).cast();
        new_capsule(py, made, NAME_VERSIONED, abandoned_versioned)
    }
}

/// # Safety
/// `made` is what `destructor` frees.
unsafe fn new_capsule(
    py: Python<'_>,
    made: *mut c_void,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Py<PyAny>> {
    // SAFETY: the pointer is not null, and the name is static.
    unsafe {
        let capsule = ffi::PyCapsule_New(made, name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, capsule).map(Bound::unbind)
    }
}

/// What a consumer calls when it is done.
unsafe extern "C" fn free(made: *mut Managed) {
    // SAFETY: it was made by `Box::into_raw`, and DLPack has its consumer call this once.
    drop(NonNull::new(made).map(|made| unsafe { Box::from_raw(made.as_ptr()) }));
}

unsafe extern "C" fn free_versioned(made: *mut Versioned) {
    // SAFETY: as for `free`.
    drop(NonNull::new(made).map(|made| unsafe { Box::from_raw(made.as_ptr()) }));
}

/// Frees what no consumer took: one that does renames the capsule.
unsafe extern "C" fn abandoned(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with the capsule, which has this name only while nobody
    // took it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            free(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn abandoned_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as for `abandoned`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME_VERSIONED.as_ptr()) != 0 {
            free_versioned(ffi::PyCapsule_GetPointer(capsule, NAME_VERSIONED.as_ptr()).cast());
        }
    }
}
