//! One application of an operator, as its kernel sees it: the node and what is known of its inputs.
//!
//! The same [`Call`] is used to infer (where the elements of inputs may not be known yet) and to
//! run. Asking for elements that are not known is an error that says which input is needed: a plan
//! then ends there, and a step, which knows all elements, never sees it.

use onnx_container_proto::{Buffer, DataType, Element, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::table::dims;
use crate::program::Node;
use crate::value::{Type, Value};

/// An input of a node.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Operand<'a> {
    /// An optional input that is left out.
    Absent,
    /// A tensor of numbers.
    Tensor {
        /// The element type.
        dtype: DataType,
        /// The dimensions.
        shape: &'a [usize],
        /// The elements, packed as in `raw_data`; `None` where they are not known yet.
        bytes: Option<&'a [u8]>,
    },
    /// A tensor of strings, a sequence, an optional or a map.
    Outside(&'a Value),
    /// A value of which only the type is known.
    Unknown(&'a Type),
}

/// What a kernel says of one of its outputs before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutSpec {
    /// A tensor; one of strings too.
    Tensor(DataType, Vec<usize>),
    /// A sequence, an optional or a map.
    Outside(Type),
}

impl OutSpec {
    /// A tensor of this type and shape.
    pub fn tensor(dtype: DataType, shape: impl Into<Vec<usize>>) -> Self {
        Self::Tensor(dtype, shape.into())
    }

    /// The element type, if it is a tensor.
    pub(crate) fn dtype(&self) -> Option<DataType> {
        match self {
            Self::Tensor(dtype, _) => Some(*dtype),
            Self::Outside(_) => None,
        }
    }

    /// The type of the output.
    #[doc(hidden)]
    pub fn ty(&self) -> Type {
        match self {
            Self::Tensor(dtype, _) => Type::Tensor(*dtype),
            Self::Outside(ty) => ty.clone(),
        }
    }
}

/// A node with its inputs.
///
/// Inputs and outputs are numbered from 0 as in the operator's text. What borrows from a call lives
/// as long as the step (`'a`), so inputs can be read while outputs are written.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    node: &'a Node,
    inputs: Vec<Operand<'a>>,
    most: Option<u64>,
}

impl<'a> Call<'a> {
    /// `node` applied to `inputs`.
    pub fn new(node: &'a Node, inputs: Vec<Operand<'a>>) -> Self {
        Self { node, inputs, most: None }
    }

    /// The same, in a run that may use `most` bytes.
    #[doc(hidden)]
    pub fn within(self, most: u64) -> Self {
        Self { most: Some(most), ..self }
    }

    /// How many bytes the kernel may use beside its inputs, if the run says it.
    pub(crate) fn most(&self) -> Option<u64> {
        self.most
    }

    /// The node.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// The version of the operator's domain that the model imports: `cx.version() >= 13` is how a
    /// kernel tells versions of its operator apart.
    pub fn version(&self) -> i64 {
        self.node.version
    }

    /// The number of inputs that are written in the node, absent ones included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs that are written in the node, absent ones included.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether input `i` is there.
    pub fn has_input(&self, i: usize) -> bool {
        !matches!(self.operand(i), Operand::Absent)
    }

    /// Whether output `j` is asked for.
    pub fn has_output(&self, j: usize) -> bool {
        self.node.outputs.get(j).is_some_and(Option::is_some)
    }

    /// Input `i` as it is.
    pub fn operand(&self, i: usize) -> Operand<'a> {
        // An input at the end may be left out by not writing it.
        self.inputs.get(i).copied().unwrap_or(Operand::Absent)
    }

    /// The element type of input `i`, a tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] when it is left out, [`ErrorKind::Type`] when it is not a tensor.
    pub fn dtype(&self, i: usize) -> Result<DataType> {
        match self.operand(i) {
            Operand::Tensor { dtype, .. } => Ok(dtype),
            Operand::Outside(Value::Tensor(tensor)) => Ok(tensor.dtype()),
            Operand::Unknown(Type::Tensor(dtype)) => Ok(*dtype),
            operand => Err(self.unexpected(i, operand, "a tensor")),
        }
    }

    /// The dimensions of input `i`, a tensor.
    ///
    /// # Errors
    /// As [`dtype`](Self::dtype).
    pub fn shape(&self, i: usize) -> Result<Vec<usize>> {
        match self.operand(i) {
            Operand::Tensor { shape, .. } => Ok(shape.to_vec()),
            Operand::Outside(Value::Tensor(tensor)) => Ok(tensor.shape()),
            Operand::Unknown(Type::Tensor(_)) => Err(needs_value(i)),
            operand => Err(self.unexpected(i, operand, "a tensor")),
        }
    }

    /// The number of dimensions of input `i`, a tensor.
    ///
    /// # Errors
    /// As [`dtype`](Self::dtype).
    pub fn rank(&self, i: usize) -> Result<usize> {
        Ok(self.shape(i)?.len())
    }

    /// The elements of input `i` in row-major order.
    ///
    /// # Errors
    /// As [`dtype`](Self::dtype), and [`ErrorKind::Type`] when they are not `T`. Before the step
    /// runs, the error that asks for the elements.
    pub fn input<T: Element>(&self, i: usize) -> Result<&'a [T]> {
        let found = self.dtype(i)?;
        if found != T::DTYPE {
            return Err(self.wrong_type(i, &format!("{found}, not {}", T::DTYPE)));
        }
        elements(self.bytes(i)?)
    }

    /// The elements of input `i`, or `None` where it is left out.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn input_if<T: Element>(&self, i: usize) -> Result<Option<&'a [T]>> {
        if self.has_input(i) { self.input(i).map(Some) } else { Ok(None) }
    }

    /// The single element of input `i`, a scalar or a tensor with one element.
    ///
    /// # Errors
    /// As [`input`](Self::input), and [`ErrorKind::Shape`] when there is another number of
    /// elements.
    pub fn scalar<T: Element>(&self, i: usize) -> Result<T> {
        match self.input::<T>(i)? {
            [element] => Ok(*element),
            elements => {
                let reason = format!("input {i} has {} elements, not one", elements.len());
                Err(Error::new(ErrorKind::Shape, reason))
            }
        }
    }

    /// The elements of input `i`, integers of 32 or 64 bits: axes, shapes, indices.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn integers(&self, i: usize) -> Result<Vec<i64>> {
        match self.dtype(i)? {
            DataType::Int32 => Ok(self.input::<i32>(i)?.iter().copied().map(i64::from).collect()),
            _ => Ok(self.input::<i64>(i)?.to_vec()),
        }
    }

    /// The elements of input `i` as they lie in M: packed where they are narrower than a byte.
    ///
    /// # Errors
    /// As [`dtype`](Self::dtype), and the error that asks for the elements.
    pub fn bytes(&self, i: usize) -> Result<&'a [u8]> {
        match self.operand(i) {
            Operand::Tensor { bytes: Some(bytes), .. } => Ok(bytes),
            Operand::Tensor { bytes: None, .. } => Err(needs_value(i)),
            Operand::Unknown(Type::Tensor(dtype)) if dtype.bit_width().is_some() => {
                Err(needs_value(i))
            }
            operand => Err(self.unexpected(i, operand, "a tensor of numbers")),
        }
    }

    /// The codes of input `i`, whose elements are narrower than a byte: one code a byte, in the low
    /// bits.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and [`ErrorKind::Type`] for wider elements.
    pub fn codes(&self, i: usize) -> Result<Vec<u8>> {
        let bytes = Buffer::from(self.bytes(i)?.to_vec());
        Ok(Tensor::new(self.dtype(i)?, dims(&self.shape(i)?)?, bytes)?.unpack()?)
    }

    /// The strings of input `i`.
    ///
    /// # Errors
    /// [`ErrorKind::Type`] when it is not a tensor of strings, and the error that asks for the
    /// elements.
    pub fn strings(&self, i: usize) -> Result<&'a [Buffer]> {
        let strings = match self.outside(i)? {
            Value::Tensor(tensor) => tensor.strings(),
            _ => None,
        };
        strings.ok_or_else(|| self.unexpected(i, self.operand(i), "a tensor of strings"))
    }

    /// Input `i` that lies outside of M: a tensor of strings, a sequence, an optional or a map.
    ///
    /// # Errors
    /// [`ErrorKind::Type`] when it is a tensor of numbers, [`ErrorKind::Input`] when it is left
    /// out, and the error that asks for the elements.
    pub fn outside(&self, i: usize) -> Result<&'a Value> {
        match self.operand(i) {
            Operand::Outside(value) => Ok(value),
            Operand::Unknown(_) => Err(needs_value(i)),
            operand => Err(self.unexpected(i, operand, "a value outside of the memory")),
        }
    }

    /// The type of input `i`; `None` where it is left out.
    pub fn ty(&self, i: usize) -> Option<Type> {
        match self.operand(i) {
            Operand::Absent => None,
            Operand::Tensor { dtype, .. } => Some(Type::Tensor(dtype)),
            Operand::Outside(value) => Some(value.ty()),
            Operand::Unknown(ty) => Some(ty.clone()),
        }
    }

    /// Input `i`, of any type, as a value of its own. The elements of a tensor in M are copied.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] when it is left out, and the error that asks for the elements.
    pub fn to_value(&self, i: usize) -> Result<Value> {
        match self.operand(i) {
            Operand::Tensor { dtype, shape, .. } => {
                let bytes = Buffer::from(self.bytes(i)?.to_vec());
                Ok(Value::Tensor(Tensor::new(dtype, dims(shape)?, bytes)?))
            }
            _ => self.outside(i).cloned(),
        }
    }

    /// The integer attribute `name`, or `default` where it is not set.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when it is of another kind. The other methods for attributes
    /// have this error too.
    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        self.node.attributes.int_or(name, default)
    }

    /// The integer attribute `name` as a truth value, or `default` where it is not set.
    ///
    /// # Errors
    /// As [`int_or`](Self::int_or).
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int_or(name, i64::from(default))? != 0)
    }

    /// The float attribute `name`, or `default` where it is not set.
    ///
    /// # Errors
    /// As [`int_or`](Self::int_or).
    pub fn float_or(&self, name: &str, default: f32) -> Result<f32> {
        self.node.attributes.float_or(name, default)
    }

    /// The string attribute `name`, or `default` where it is not set.
    ///
    /// # Errors
    /// As [`int_or`](Self::int_or), and when it is not UTF-8.
    pub fn str_or(&self, name: &str, default: &'a str) -> Result<&'a str> {
        let Some(bytes) = self.node.attributes.bytes(name)? else { return Ok(default) };
        std::str::from_utf8(bytes).map_err(|_| {
            let reason = format!("attribute `{name}` is not UTF-8");
            Error::new(ErrorKind::InvalidModel, reason)
        })
    }

    /// The integers of attribute `name`; `None` where it is not set.
    ///
    /// # Errors
    /// As [`int_or`](Self::int_or).
    pub fn ints(&self, name: &str) -> Result<Option<&'a [i64]>> {
        self.node.attributes.ints(name)
    }

    /// The integers of attribute `name`, or `default` where it is not set.
    pub(crate) fn ints_or(&self, name: &str, default: &'a [i64]) -> Result<&'a [i64]> {
        self.node.attributes.ints_or(name, default)
    }

    /// The dimensions of the first `count` inputs, to be shown in an error: without any where an
    /// input is left out.
    pub(crate) fn shown_shapes(&self, count: usize) -> Vec<Vec<usize>> {
        (0..count).map(|i| self.shape(i).unwrap_or_default()).collect()
    }

    /// As [`ints_or_input`](Self::ints_or_input), by default none.
    pub(crate) fn ints_or_input_or_empty(&self, name: &str, i: usize) -> Result<Vec<i64>> {
        Ok(self.ints_or_input(name, i)?.unwrap_or_default())
    }

    /// The elements of input `i`, or `default` where it is left out.
    pub(crate) fn input_or<'d, T: Element>(&self, i: usize, default: &'d [T]) -> Result<&'d [T]>
    where
        'a: 'd,
    {
        Ok(self.input_if(i)?.unwrap_or(default))
    }

    /// The integer attribute `name`, which the operator needs.
    ///
    /// # Errors
    /// As [`int_or`](Self::int_or), and when it is not set.
    pub fn int(&self, name: &str) -> Result<i64> {
        self.node.attributes.int(name)?.ok_or_else(|| {
            let reason = format!("attribute `{name}` is missing");
            Error::new(ErrorKind::InvalidModel, reason)
        })
    }

    /// Axes, which are an attribute in early versions of an operator and input `i` later; `None`
    /// where neither is there.
    ///
    /// # Errors
    /// As [`ints`](Self::ints) and [`integers`](Self::integers).
    pub fn ints_or_input(&self, name: &str, i: usize) -> Result<Option<Vec<i64>>> {
        match self.ints(name)? {
            Some(ints) => Ok(Some(ints.to_vec())),
            None if self.has_input(i) => self.integers(i).map(Some),
            None => Ok(None),
        }
    }

    /// The error of a type that the operator, or this kernel, does not take at input `i`.
    pub fn wrong_type(&self, i: usize, found: &str) -> Error {
        Error::new(ErrorKind::Type, format!("input {i} is {found}"))
    }

    /// The error of a part of the operator that this kernel does not have: an attribute or input.
    pub(crate) fn no_kernel(&self, what: &str) -> Error {
        let reason = format!("there is no kernel for this operator with {what}");
        Error::new(ErrorKind::UnsupportedOp, reason)
    }

    fn unexpected(&self, i: usize, operand: Operand<'_>, expected: &str) -> Error {
        match operand {
            Operand::Absent => Error::new(ErrorKind::Input, format!("input {i} is missing")),
            _ => {
                let ty = self.ty(i).map_or_else(|| "missing".to_owned(), |ty| ty.to_string());
                self.wrong_type(i, &format!("{ty}, not {expected}"))
            }
        }
    }
}

/// The error that asks for the elements of input `i`.
pub(crate) fn needs_value(i: usize) -> Error {
    Error::new(ErrorKind::NeedsValue(i), format!("the elements of input {i} are not known yet"))
}

fn elements<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    if bytes.is_empty() {
        return Ok(&[]); // an empty slice may have any address
    }
    bytemuck::checked::try_cast_slice(bytes).map_err(|error| {
        Error::new(ErrorKind::Value, format!("the elements are not {}: {error}", T::DTYPE))
    })
}
