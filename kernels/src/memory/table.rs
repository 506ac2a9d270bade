//! T: where each value of a program is while it runs, from its name to (offset, dtype, shape).
//!
//! Tensors are contiguous, without strides, as in the definition. What has no place in M (tensors
//! of strings, sequences, optionals, maps) is held by the table itself. The bytes are left to the
//! memory.

use std::collections::HashMap;
use std::sync::Arc;

use onnx_container_proto::internal::dtype::element_count;
use onnx_container_proto::{Buffer, DataType, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Frozen, Memory, Span};
use crate::value::{Type, Value};

/// A tensor in M.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The address of its first byte.
    pub offset: u64,
    /// The element type. Elements narrower than a byte are packed as in `raw_data`.
    pub dtype: DataType,
    /// The dimensions; empty for a scalar.
    pub shape: Vec<usize>,
}

impl Slot {
    /// A tensor at `offset`.
    #[doc(hidden)]
    pub fn new(offset: u64, dtype: DataType, shape: Vec<usize>) -> Self {
        Self { offset, dtype, shape }
    }

    /// Its range of M.
    ///
    /// # Errors
    /// When the shape has more bytes than fit 63 bits.
    pub fn span(&self) -> Result<Span> {
        Ok(Span { offset: self.offset, len: byte_len(self.dtype, &self.shape)? })
    }
}

/// The length in bytes of a tensor with `shape`.
///
/// # Errors
/// [`ErrorKind::Shape`] when it does not fit 63 bits.
pub fn byte_len(dtype: DataType, shape: &[usize]) -> Result<u64> {
    Ok(dtype.byte_len(&dims(shape)?)?)
}

/// The largest product of the other dimensions of a tensor that has no elements because one
/// dimension is 0. No bytes stand behind these, so a few bytes of a model could ask for any number
/// of slices, rows or steps.
const MOST_EMPTY: usize = 1 << 26;

/// `shape` as the integers of a message.
///
/// # Errors
/// [`ErrorKind::Shape`] when the shape has more elements than fit 63 bits, or has none and other
/// dimensions whose product is above 2^26.
pub fn dims(shape: &[usize]) -> Result<Vec<i64>> {
    let dims: Option<Vec<i64>> = shape.iter().map(|dim| i64::try_from(*dim).ok()).collect();
    let valid = dims.filter(|dims| element_count(dims).is_ok() && !is_vast_and_empty(shape));
    valid.ok_or_else(|| Error::new(ErrorKind::Shape, format!("shape {shape:?} is too large")))
}

fn is_vast_and_empty(shape: &[usize]) -> bool {
    let others = shape.iter().filter(|dim| **dim > 0);
    let product = others.fold(1_usize, |product, dim| product.saturating_mul(*dim));
    product > MOST_EMPTY && shape.contains(&0)
}

/// What the table knows of a value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Entry {
    /// A tensor of numbers in M.
    Tensor(Slot),
    /// A tensor of strings, a sequence, an optional or a map, which lies outside of M.
    Outside(Value),
}

/// All that an [`Entry`] can be, for those that have to handle each of it.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'e> {
    /// A tensor of numbers in M.
    Tensor(&'e Slot),
    /// A value outside of M.
    Outside(&'e Value),
}

impl Entry {
    /// Where the value is.
    #[doc(hidden)]
    pub fn stored(&self) -> Stored<'_> {
        match self {
            Self::Tensor(slot) => Stored::Tensor(slot),
            Self::Outside(value) => Stored::Outside(value),
        }
    }

    /// The type of the value.
    pub fn ty(&self) -> Type {
        match self {
            Self::Tensor(slot) => Type::Tensor(slot.dtype),
            Self::Outside(value) => value.ty(),
        }
    }

    /// The value, with a copy of its bytes in `memory`.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when they do not lie there.
    pub fn to_value(&self, memory: &Memory) -> Result<Value> {
        match self {
            Self::Tensor(slot) => {
                let bytes = Buffer::from(memory.read(slot.span()?)?.to_vec());
                Ok(Tensor::new(slot.dtype, dims(&slot.shape)?, bytes)?.into())
            }
            Self::Outside(value) => Ok(value.clone()),
        }
    }

    /// The value, which shares its bytes with `memory`.
    #[doc(hidden)]
    pub fn value_in(&self, memory: &Frozen) -> Result<Value> {
        match self {
            Self::Tensor(slot) => {
                let bytes = memory.slice(slot.span()?)?;
                Ok(Tensor::new(slot.dtype, dims(&slot.shape)?, bytes)?.into())
            }
            Self::Outside(value) => Ok(value.clone()),
        }
    }
}

/// A value of one block: a graph input, a constant, or an output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(u32);

impl ValueId {
    /// The value with this number.
    ///
    /// Numbers above `u32::MAX` stand for no value.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Its number, from 0: its place in [`Block::names`](crate::Block::names).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// T: the entries of one program or block, by value.
#[derive(Debug, Clone)]
pub struct TensorTable {
    names: Arc<[String]>,
    entries: Vec<Option<Entry>>,
}

impl TensorTable {
    /// A table without entries for the values with these names.
    pub fn new(names: Arc<[String]>) -> Self {
        let entries = vec![None; names.len()];
        Self { names, entries }
    }

    /// The entry of a value; `None` before it is computed and after its last use.
    pub fn get(&self, value: ValueId) -> Option<&Entry> {
        self.entries.get(value.index())?.as_ref()
    }

    /// Sets the entry of a value, and returns the one that it had.
    pub fn set(&mut self, value: ValueId, entry: Entry) -> Option<Entry> {
        self.entries.get_mut(value.index())?.replace(entry)
    }

    /// Removes the entry of a value, and returns it.
    pub fn remove(&mut self, value: ValueId) -> Option<Entry> {
        self.entries.get_mut(value.index())?.take()
    }

    /// The name of a value.
    pub fn name(&self, value: ValueId) -> &str {
        self.names.get(value.index()).map_or("", String::as_str)
    }

    /// Every entry with its value and name, in the order of the values.
    pub fn iter(&self) -> impl Iterator<Item = (ValueId, &str, &Entry)> {
        let named = self.names.iter().zip(&self.entries).enumerate();
        named.filter_map(|(i, (name, entry))| {
            Some((ValueId::new(i), name.as_str(), entry.as_ref()?))
        })
    }

    /// Every entry by name.
    pub fn by_name(&self) -> HashMap<&str, &Entry> {
        self.iter().map(|(_, name, entry)| (name, entry)).collect()
    }
}
