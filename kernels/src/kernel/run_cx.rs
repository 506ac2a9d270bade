//! [`RunCx`]: one application of an operator that runs, with the outputs to write to.

use std::ops::Deref;

use onnx_container_proto::{Buffer, DataType, Element, Tensor};

use super::call::{Call, OutSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::check_outside;
use crate::memory::table::dims;
use crate::value::Value;

/// A [`Call`] that runs: with the outputs to write to, whose types and shapes are those that the
/// kernel inferred.
#[derive(Debug)]
pub struct RunCx<'a> {
    call: Call<'a>,
    outputs: Vec<Output<'a>>,
}

/// An output to write to.
#[derive(Debug)]
pub struct Output<'a> {
    /// What was inferred.
    pub spec: &'a OutSpec,
    /// The bytes to write to, until the kernel takes them; `None` outside of M and where the output
    /// is left out.
    pub bytes: Option<&'a mut [u8]>,
    /// What the kernel gives for an output outside of M.
    pub value: Option<Value>,
}

impl<'a> Deref for RunCx<'a> {
    type Target = Call<'a>;

    fn deref(&self) -> &Call<'a> {
        &self.call
    }
}

impl<'a> RunCx<'a> {
    /// `call` with `outputs` to write to.
    #[doc(hidden)]
    pub fn new(call: Call<'a>, outputs: Vec<Output<'a>>) -> Self {
        Self { call, outputs }
    }

    /// Whether there may be a sequence of `count` tensors of `rank` dimensions and `bytes` of
    /// elements, asked before it is made.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when it is more than the run may use.
    pub(crate) fn check_sequence(&self, count: usize, rank: usize, bytes: usize) -> Result<()> {
        let len = Value::tensors_bytes(count, rank).saturating_add(bytes as u64);
        self.most().map_or(Ok(()), |most| check_outside(len, most))
    }

    /// The element type of output `j`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the kernel inferred no such tensor. The other methods for
    /// outputs have this error too.
    pub fn out_dtype(&self, j: usize) -> Result<DataType> {
        match self.spec(j)? {
            OutSpec::Tensor(dtype, _) => Ok(*dtype),
            OutSpec::Outside(_) => Err(not_inferred(j)),
        }
    }

    /// The dimensions of output `j`.
    ///
    /// # Errors
    /// As [`out_dtype`](Self::out_dtype).
    pub fn out_shape(&self, j: usize) -> Result<&'a [usize]> {
        match self.spec(j)? {
            OutSpec::Tensor(_, shape) => Ok(shape),
            OutSpec::Outside(_) => Err(not_inferred(j)),
        }
    }

    fn spec(&self, j: usize) -> Result<&'a OutSpec> {
        self.outputs.get(j).map(|output| output.spec).ok_or_else(|| not_inferred(j))
    }

    /// The elements of output `j`, to be written. Their content before is not defined, except that
    /// BOOL elements are false. Each output can be taken once.
    ///
    /// # Errors
    /// As [`out_dtype`](Self::out_dtype), and when the output's type is not `T`, when it is left
    /// out, or when it was taken before.
    pub fn output<T: Element>(&mut self, j: usize) -> Result<&'a mut [T]> {
        if self.out_dtype(j)? != T::DTYPE {
            return Err(not_inferred(j));
        }
        let bytes = self.out_bytes(j)?;
        if bytes.is_empty() {
            return Ok(&mut []);
        }
        if T::DTYPE == DataType::Bool {
            bytes.fill(0);
        }
        bytemuck::checked::try_cast_slice_mut(bytes).map_err(Error::internal)
    }

    /// As [`output`](Self::output); `None` where the output is left out.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub fn output_if<T: Element>(&mut self, j: usize) -> Result<Option<&'a mut [T]>> {
        if self.has_output(j) { self.output(j).map(Some) } else { Ok(None) }
    }

    /// As [`output`](Self::output), without elements where the output is left out.
    pub(crate) fn output_or_empty<T: Element>(&mut self, j: usize) -> Result<&'a mut [T]> {
        Ok(self.output_if(j)?.unwrap_or(&mut []))
    }

    /// The bytes of output `j`, to be written: packed where elements are narrower than a byte. Each
    /// output can be taken once.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub fn out_bytes(&mut self, j: usize) -> Result<&'a mut [u8]> {
        if !self.has_output(j) {
            let reason = format!("output {j} is left out, and the operator always gives it");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        let output = self.outputs.get_mut(j).ok_or_else(|| not_inferred(j))?;
        output.bytes.take().ok_or_else(|| not_inferred(j))
    }

    /// Writes output `j`, whose elements are narrower than a byte, from its codes: one a byte, in
    /// the low bits. Bits above the type's width are ignored.
    ///
    /// # Errors
    /// As [`output`](Self::output), and when there are more or fewer codes than elements.
    pub fn set_codes(&mut self, j: usize, codes: &[u8]) -> Result<()> {
        let (dtype, shape) = (self.out_dtype(j)?, self.out_shape(j)?);
        let mask = dtype.bit_width().filter(|bits| *bits < 8).map_or(0xff, |bits| (1 << bits) - 1);
        let codes: Vec<u8> = codes.iter().map(|code| code & mask).collect();
        let packed = Tensor::pack(dtype, dims(shape)?, &codes)?;
        let bytes = packed.as_bytes().ok_or_else(|| not_inferred(j))?;
        self.out_bytes(j)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Gives output `j`, a tensor of strings.
    ///
    /// # Errors
    /// As [`out_dtype`](Self::out_dtype), and when there are more or fewer strings than elements.
    pub fn set_strings(&mut self, j: usize, strings: Vec<Buffer>) -> Result<()> {
        let dims = dims(self.out_shape(j)?)?;
        self.set(j, Value::Tensor(Tensor::from_strings(dims, strings)?))
    }

    /// Gives output `j`, which lies outside of M.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the kernel inferred another type.
    pub fn set(&mut self, j: usize, value: Value) -> Result<()> {
        let output = self.outputs.get_mut(j).ok_or_else(|| not_inferred(j))?;
        if value.ty() != output.spec.ty() || output.bytes.is_some() {
            return Err(not_inferred(j));
        }
        output.value = Some(value);
        Ok(())
    }

    /// What the kernel gave for each output outside of M.
    #[doc(hidden)]
    pub fn into_values(self) -> Vec<Option<Value>> {
        self.outputs.into_iter().map(|output| output.value).collect()
    }
}
fn not_inferred(j: usize) -> Error {
    Error::internal(format!("output {j} is not the one that was inferred, or it was taken before"))
}
