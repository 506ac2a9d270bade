//! Functions that tch does not have: reading a tensor's memory in place, the type number of any
//! tensor, and a tensor over memory that it keeps alive.
//!
//! All of it goes through libtorch's stable C functions, whose handle is the `at::Tensor *` that
//! tch wraps. They return an error where tch would panic. The parent module decides which tensors
//! may become initializers, and with which ONNX type.

#![allow(unsafe_code)] // calls of C, and memory that libtorch owns

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::Arc;

use tch::Tensor;
use torch_sys::C_tensor;

use crate::buffer::mmap::PrivateMap;
use crate::buffer::zeroed::in_memory;
use crate::error::{Error, ErrorKind, Result};

/// 0, or a failure that `torch_exception_get_what_without_backtrace` explains on the same thread.
type Status = i32;

type Deleter = extern "C" fn(data: *mut c_void, context: *mut c_void);

// torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h of libtorch 2.13.
unsafe extern "C" {
    fn aoti_torch_get_dtype(tensor: *const C_tensor, dtype: *mut i32) -> Status;
    fn aoti_torch_get_layout(tensor: *const C_tensor, layout: *mut i32) -> Status;
    fn aoti_torch_get_device_type(tensor: *const C_tensor, device: *mut i32) -> Status;
    fn aoti_torch_get_dim(tensor: *const C_tensor, dims: *mut i64) -> Status;
    fn aoti_torch_get_sizes(tensor: *const C_tensor, sizes: *mut *const i64) -> Status;
    fn aoti_torch_get_strides(tensor: *const C_tensor, strides: *mut *const i64) -> Status;
    fn aoti_torch_get_storage_size(tensor: *const C_tensor, bytes: *mut i64) -> Status;
    fn aoti_torch_get_storage_offset(tensor: *const C_tensor, elements: *mut i64) -> Status;
    fn torch_get_const_data_ptr(tensor: *const C_tensor, data: *mut *const c_void) -> Status;
    fn aoti_torch_dtype_element_size(dtype: i32) -> usize;
    safe fn aoti_torch_device_type_cpu() -> i32;
    safe fn aoti_torch_layout_strided() -> i32;
    fn torch_exception_get_what_without_backtrace() -> *const c_char;
    fn torch_from_blob(
        data: *mut c_void,
        ndim: i64,
        sizes: *const i64,
        strides: *const i64,
        storage_offset: i64,
        dtype: i32,
        device_type: i32,
        device_index: i32,
        tensor: *mut *mut C_tensor,
        layout: i32,
        opaque_metadata: *const u8,
        opaque_metadata_size: i64,
        deleter: Deleter,
        deleter_context: *mut c_void,
    ) -> Status;
}

// script.cpp
unsafe extern "C" {
    fn onnx_container_script_tensors(
        path: *const c_char,
        context: *mut c_void,
        each: extern "C" fn(context: *mut c_void, name: *const c_char, tensor: *mut C_tensor),
        failed: extern "C" fn(context: *mut c_void, what: *const c_char),
    );
}

fn check(status: Status) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the call takes nothing and returns null or a C string.
    let what = unsafe { torch_exception_get_what_without_backtrace() };
    if what.is_null() {
        // A function that fails without an exception leaves no text.
        return Err(failure(""));
    }
    // SAFETY: it is a C string that is valid until the next exception of this thread, and `failure`
    // copies it before that.
    Err(failure(&unsafe { CStr::from_ptr(what) }.to_string_lossy()))
}

/// The first line of an error of libtorch, because a C++ stack trace follows it. A TorchScript
/// exception begins with a trace of the script, so the line of the raised exception is added.
pub(super) fn failure(text: &str) -> Error {
    let first = text.lines().next().unwrap_or("no reason given").trim();
    let raised = text.lines().rev().map(str::trim).find(|line| *line != first && is_raised(line));
    let reason = match raised {
        Some(raised) => format!("libtorch: {first}: {raised}"),
        None => format!("libtorch: {first}"),
    };
    Error::new(ErrorKind::Unsupported, reason)
}

/// Whether `line` is that of the raised exception, such as `RuntimeError: no such layer`.
fn is_raised(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(class, _)| {
        let is_name = class.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        is_name && (class.ends_with("Error") || class.ends_with("Exception"))
    })
}

/// Queries an integer property of the defined `tensor`.
fn ask<T: Default>(
    tensor: &Tensor,
    question: unsafe extern "C" fn(*const C_tensor, *mut T) -> Status,
) -> Result<T> {
    let mut answer = T::default();
    // SAFETY: the handle is valid while the tensor is borrowed, and every query only writes its
    // result to the given place.
    check(unsafe { question(tensor.as_ptr(), &raw mut answer) })?;
    Ok(answer)
}

/// The number of the element type in `c10::ScalarType`, also for types that tch has no name for.
pub(super) fn scalar_type(tensor: &Tensor) -> Result<i32> {
    ask(tensor, aoti_torch_get_dtype)
}

/// The dimensions; an error for tensors that have none, such as nested ones.
pub(super) fn dims(tensor: &Tensor) -> Result<Vec<i64>> {
    numbers(tensor, aoti_torch_get_sizes)
}

/// The strides of the strided `tensor`, in elements.
pub(super) fn strides(tensor: &Tensor) -> Result<Vec<i64>> {
    numbers(tensor, aoti_torch_get_strides)
}

/// Queries an array of the defined `tensor` with a number for each dimension.
fn numbers(
    tensor: &Tensor,
    question: unsafe extern "C" fn(*const C_tensor, *mut *const i64) -> Status,
) -> Result<Vec<i64>> {
    let dimensions: i64 = ask(tensor, aoti_torch_get_dim)?;
    let mut first = std::ptr::null();
    // SAFETY: the handle is valid, and both queries only write the pointer.
    check(unsafe { question(tensor.as_ptr(), &raw mut first) })?;
    let negative = |_| Error::internal("a tensor of fewer than no dimensions");
    let count = usize::try_from(dimensions).map_err(negative)?;
    if first.is_null() && count > 0 {
        return Err(Error::internal("libtorch has no sizes for a tensor with dimensions"));
    }
    // SAFETY: `first` is the start of the tensor's own array, which has a number for each
    // dimension; nothing is read when there are no dimensions. It is copied before anything can
    // change the tensor.
    Ok((0..count).map(|i| unsafe { *first.add(i) }).collect())
}

/// Whether the elements are in one block of memory, addressed by strides; false for sparse and
/// opaque tensors.
pub(super) fn is_strided(tensor: &Tensor) -> Result<bool> {
    Ok(ask(tensor, aoti_torch_get_layout)? == aoti_torch_layout_strided())
}

pub(super) fn is_on_cpu(tensor: &Tensor) -> Result<bool> {
    Ok(ask(tensor, aoti_torch_get_device_type)? == aoti_torch_device_type_cpu())
}

/// The first bytes of a CPU tensor's memory, read by copy.
///
/// Neither address nor length of the memory is stored: safe code can resize the storage through
/// another handle, which moves it. Both are queried for every read.
pub(super) struct Memory {
    /// A handle owned by this `Memory` alone, on storage that other handles may share.
    tensor: Tensor,
    /// In bytes.
    len: usize,
}

// SAFETY: a shared `Memory` only calls functions that read the tensor and its storage and change
// neither; libtorch allows these at once on several threads. The handle itself never leaves
// `Memory`, so nobody changes it. Other handles may share the storage: changing it on one thread
// while another reads it is a data race between any two calls of tch, which `Memory` neither adds
// nor hides.
unsafe impl Sync for Memory {}

impl Memory {
    /// The first `len` bytes of `tensor`, counted from its first element.
    pub(super) fn new(tensor: &Tensor, len: u64) -> Result<Self> {
        if !is_on_cpu(tensor)? {
            return Err(failure("the tensor is not on the CPU"));
        }
        let tensor = tensor.f_detach().map_err(|error| failure(&error.to_string()))?;
        let len = in_memory(len)?;
        let memory = Self { tensor, len };
        memory.start()?;
        Ok(memory)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The current address of the bytes; the pointer is not null, and valid for `len` bytes until
    /// the storage is resized. `None` when there are no bytes.
    fn start(&self) -> Result<Option<*const u8>> {
        if self.len == 0 {
            return Ok(None);
        }
        let data: *const c_void = {
            let mut data = std::ptr::null();
            // SAFETY: the handle is valid, and the call only writes the pointer.
            check(unsafe { torch_get_const_data_ptr(self.tensor.as_ptr(), &raw mut data) })?;
            data
        };
        if data.is_null() || self.room()? < self.len as u64 {
            let reason = "the tensor's storage became shorter than the tensor";
            return Err(Error::new(ErrorKind::OutOfBounds, reason));
        }
        Ok(Some(data.cast()))
    }

    /// The bytes of the storage from the tensor's first element on; 0 where that is beyond the end.
    fn room(&self) -> Result<u64> {
        let storage: i64 = ask(&self.tensor, aoti_torch_get_storage_size)?;
        let offset: i64 = ask(&self.tensor, aoti_torch_get_storage_offset)?;
        // SAFETY: the type is one that libtorch itself named, so it has a size.
        let width = unsafe { aoti_torch_dtype_element_size(scalar_type(&self.tensor)?) };
        let before = i64::try_from(width).ok().and_then(|width| offset.checked_mul(width));
        let before = before
            .ok_or_else(|| Error::internal("a tensor begins beyond 2^63 bytes of storage"))?;
        // A negative length means that the storage was cut before the tensor's first element.
        Ok(u64::try_from(storage.saturating_sub(before)).unwrap_or(0))
    }

    /// The address of the first byte, when there are bytes. `None` also for a storage that became
    /// too short, which the next read reports.
    pub(super) fn address(&self) -> Option<usize> {
        Some(self.start().ok().flatten()?.addr())
    }

    /// Copies the bytes from `offset` on to `out`; `false` when there are too few bytes.
    pub(super) fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<bool> {
        let end = offset.checked_add(out.len());
        if end.is_none_or(|end| end > self.len) {
            return Ok(false);
        }
        if let Some(start) = self.start()?.filter(|_| !out.is_empty()) {
            // SAFETY: `offset + out.len()` is at most `len`, and `start` is valid for that many
            // bytes. `out` is borrowed exclusively, so it is not part of the tensor's memory. No
            // reference to that memory is made: a write to it through another handle tears these
            // bytes.
            unsafe { std::ptr::copy(start.add(offset), out.as_mut_ptr(), out.len()) };
        }
        Ok(true)
    }
}

impl fmt::Debug for Memory {
    /// Does not use the tensor's own `Debug`: that reads elements, through calls that may write.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A tensor over the bytes of `map`, which lives as long as the tensor's storage.
///
/// The dimensions have to describe exactly the bytes in `map`, and the map has to be aligned for
/// the type.
pub(super) fn over_map(map: PrivateMap, dims: &[i64], scalar_type: i32) -> Result<Tensor> {
    let strides = row_major(dims)?;
    let ndim = i64::try_from(dims.len());
    let ndim = ndim.map_err(|_| Error::new(ErrorKind::Shape, "too many dimensions"))?;
    let data = map.as_ptr().cast();
    // After a failure libtorch has run the deleter in some cases and not in others; the reference
    // count tells which.
    let map = Arc::new(map);
    let context = Arc::into_raw(map.clone());
    let mut tensor = std::ptr::null_mut();
    // SAFETY: `sizes` and `strides` have `ndim` entries and do not overflow (libtorch would end the
    // process). The memory is writable, private, and owned by `context`, which the deleter drops
    // once. A CPU device has no index, which is -1.
    let status = unsafe {
        torch_from_blob(
            data,
            ndim,
            dims.as_ptr(),
            strides.as_ptr(),
            0,
            scalar_type,
            aoti_torch_device_type_cpu(),
            -1,
            &raw mut tensor,
            aoti_torch_layout_strided(),
            std::ptr::null(),
            0,
            drop_map,
            context.cast_mut().cast(),
        )
    };
    if let Err(error) = check(status) {
        if Arc::strong_count(&map) > 1 {
            // SAFETY: the deleter did not run, so the count that `into_raw` gave away is still
            // ours.
            drop(unsafe { Arc::from_raw(context) });
        }
        return Err(error);
    }
    // SAFETY: after a success the handle is a new tensor that only this function owns.
    Ok(unsafe { Tensor::from_ptr(tensor) })
}

/// Runs when the last tensor on the map is dropped, on any thread.
extern "C" fn drop_map(_data: *mut c_void, context: *mut c_void) {
    // SAFETY: `context` came from `Arc::into_raw` in `over_map`, and libtorch calls this once.
    drop(unsafe { Arc::from_raw(context.cast_const().cast::<PrivateMap>()) });
}

/// The strides of `dims` in row-major order, in elements. Their bytes fit 63 bits for every type.
pub(super) fn row_major(dims: &[i64]) -> Result<Vec<i64>> {
    const WIDEST: i64 = 16;
    let mut strides = vec![1; dims.len()];
    let mut stride = 1_i64;
    for (dim, place) in dims.iter().zip(&mut strides).rev() {
        *place = stride;
        let next = stride.checked_mul((*dim).max(1)).filter(|_| *dim >= 0);
        stride = next.filter(|next| next.checked_mul(WIDEST).is_some()).ok_or_else(|| {
            Error::new(ErrorKind::Shape, format!("shape {dims:?} is too large for libtorch"))
        })?;
    }
    Ok(strides)
}

/// The result of the C++ code that reads a TorchScript file.
#[derive(Default)]
struct Script {
    tensors: Vec<(String, Tensor)>,
    failure: Option<String>,
}

/// The parameters and then the buffers of the TorchScript module in the file `path`.
pub(super) fn script_tensors(path: &CStr) -> Result<Vec<(String, Tensor)>> {
    let mut script = Script::default();
    // SAFETY: the path is a C string, and the context is the `Script` that both callbacks ask for,
    // borrowed by nobody else until the call is over.
    unsafe {
        let context = (&raw mut script).cast();
        onnx_container_script_tensors(path.as_ptr(), context, add_tensor, note_failure);
    }
    match script.failure {
        Some(what) => Err(failure(&what)),
        None => Ok(script.tensors),
    }
}

extern "C" fn add_tensor(context: *mut c_void, name: *const c_char, tensor: *mut C_tensor) {
    // SAFETY: `script_tensors` passes a `Script` that it does not access meanwhile; the name is a C
    // string for this call, and the tensor is new and given away.
    let (script, name, tensor) =
        unsafe { (&mut *context.cast::<Script>(), CStr::from_ptr(name), Tensor::from_ptr(tensor)) };
    script.tensors.push((name.to_string_lossy().into_owned(), tensor));
}

extern "C" fn note_failure(context: *mut c_void, what: *const c_char) {
    // SAFETY: as in `add_tensor`.
    let (script, what) = unsafe { (&mut *context.cast::<Script>(), CStr::from_ptr(what)) };
    script.failure = Some(what.to_string_lossy().into_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_what_was_raised() {
        let script = "The following operation failed in the TorchScript interpreter.\n\
            Traceback of TorchScript, serialized code (most recent call last):\n  File \"m.py\", line 3, \
            in __setstate__\n    raise Exception(x)\n    ~~~~~~~ <--- HERE\nRuntimeError: made for 2 layers\n";
        let cases = [
            ("", "libtorch: no reason given"),
            (
                "bad magic\nException raised from f at a.cpp:1 (most recent call first):\nframe #0",
                "libtorch: bad magic",
            ),
            (
                script,
                "libtorch: The following operation failed in the TorchScript interpreter.: \
                 RuntimeError: made for 2 layers",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(failure(text).to_string(), message);
        }
    }
}
