//! Elements of tensors outside of M, which are taken apart and put together: those of sequences and
//! of the slices of a Scan.
//!
//! In M, the same is done by `arrange`, without copies in between.

use onnx_container_proto::{Buffer, DataType, Tensor};

use crate::error::{Error, Result};
use crate::memory::table::dims;
use crate::value::Value;

/// Elements of one type.
#[derive(Debug, Clone)]
pub enum Elements {
    /// Of `width` bytes each.
    Bytes(usize, Vec<u8>),
    /// Strings.
    Strings(Vec<Buffer>),
    /// Narrower than a byte: one code a byte.
    Codes(Vec<u8>),
}

impl Elements {
    /// A copy of those of `tensor`.
    pub fn of(tensor: &Tensor) -> Result<Self> {
        let none = || Error::internal("a tensor without elements of its type");
        Ok(match tensor.dtype().bit_width() {
            None => Self::Strings(tensor.strings().ok_or_else(none)?.to_vec()),
            Some(bits) if bits < 8 => Self::Codes(tensor.unpack()?),
            Some(bits) => {
                let bytes = tensor.as_bytes().ok_or_else(none)?;
                Self::Bytes(usize::from(bits) / 8, bytes.to_vec())
            }
        })
    }

    /// An empty list of elements of the same type.
    pub fn none(&self) -> Self {
        match self {
            Self::Bytes(width, _) => Self::Bytes(*width, Vec::new()),
            Self::Strings(_) => Self::Strings(Vec::new()),
            Self::Codes(_) => Self::Codes(Vec::new()),
        }
    }

    /// Adds `len` elements of `other` from element `from` on.
    pub fn extend(&mut self, other: &Self, from: usize, len: usize) -> Result<()> {
        let outside = || Error::internal("elements outside of their tensor");
        match (self, other) {
            (Self::Bytes(width, to), Self::Bytes(_, all)) => {
                let part = all.get(from * *width..(from + len) * *width).ok_or_else(outside)?;
                to.extend_from_slice(part);
            }
            (Self::Codes(to), Self::Codes(all)) => {
                to.extend_from_slice(all.get(from..from + len).ok_or_else(outside)?);
            }
            (Self::Strings(to), Self::Strings(all)) => {
                to.extend_from_slice(all.get(from..from + len).ok_or_else(outside)?);
            }
            _ => return Err(Error::internal("elements of two types")),
        }
        Ok(())
    }

    /// Adds `len` elements that are zero, false or empty.
    pub fn extend_zeros(&mut self, len: usize) {
        match self {
            Self::Bytes(width, to) => to.resize(to.len() + len * *width, 0),
            Self::Codes(to) => to.resize(to.len() + len, 0),
            Self::Strings(to) => to.resize(to.len() + len, Buffer::default()),
        }
    }

    /// The tensor of them.
    pub fn into_value(self, dtype: DataType, shape: &[usize]) -> Result<Value> {
        let dims = dims(shape)?;
        Ok(Value::Tensor(match self {
            Self::Bytes(_, bytes) => Tensor::new(dtype, dims, Buffer::from(bytes))?,
            Self::Strings(strings) => Tensor::from_strings(dims, strings)?,
            Self::Codes(codes) => Tensor::pack(dtype, dims, &codes)?,
        }))
    }
}
