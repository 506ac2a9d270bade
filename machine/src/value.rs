//! Values as a caller has them: tensors, sequences and optionals that own what they hold.
//!
//! In a run, tensors of numbers lie in the memory M. Everything else that ONNX knows (string tensors,
//! sequences, optionals) is a [`Value`] beside it, and so are the inputs and outputs of a run.

use onnx_container::proto::TypeProto;
use onnx_container::proto::type_proto::Value as TypeValue;
use onnx_container::{Buffer, DataType, Tensor};

use crate::error::{Error, ErrorKind, Result};

/// What kind of value stands at an input, output or edge, without dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// A tensor with elements of this type.
    Tensor(DataType),
    /// A sequence of values of one type.
    Sequence(Box<Type>),
    /// A value that may be missing.
    Optional(Box<Type>),
}

impl Type {
    /// The type in a message.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for maps, sparse tensors and opaque types; [`ErrorKind::InvalidModel`]
    /// where an element type is missing.
    pub fn from_proto(proto: &TypeProto) -> Result<Self> {
        let element = |proto: Option<&TypeProto>| -> Result<Box<Self>> {
            let missing = || Error::new(ErrorKind::InvalidModel, "a type has no element type");
            Ok(Box::new(Self::from_proto(proto.ok_or_else(missing)?)?))
        };
        match &proto.value {
            Some(TypeValue::TensorType(tensor)) => {
                Ok(Self::Tensor(DataType::try_from(tensor.elem_type.unwrap_or_default())?))
            }
            Some(TypeValue::SequenceType(sequence)) => {
                Ok(Self::Sequence(element(sequence.elem_type.as_deref())?))
            }
            Some(TypeValue::OptionalType(optional)) => {
                Ok(Self::Optional(element(optional.elem_type.as_deref())?))
            }
            Some(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "maps, sparse tensors and opaque values are not supported",
            )),
            None => Err(Error::new(ErrorKind::InvalidModel, "a type is not set")),
        }
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tensor(dtype) => write!(f, "tensor({dtype})"),
            Self::Sequence(element) => write!(f, "seq({element})"),
            Self::Optional(element) => write!(f, "optional({element})"),
        }
    }
}

/// A value that owns what it holds. Cloning shares the elements of tensors.
///
/// ```
/// use onnx_container_machine::Value;
///
/// let value = Value::from_elements([2, 2], &[1.0_f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(value.tensor()?.as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A tensor of any element type, strings too.
    Tensor(Tensor),
    /// A sequence: the type of its elements, and the elements.
    Sequence(Type, Vec<Value>),
    /// An optional: the type of its element, and the element if there is one.
    Optional(Type, Option<Box<Value>>),
}

impl Value {
    /// A tensor of `elements` in row-major order, which are copied.
    ///
    /// # Errors
    /// When `dims` do not have as many elements.
    pub fn from_elements<T: onnx_container::Element>(
        dims: impl Into<Vec<i64>>,
        elements: &[T],
    ) -> Result<Self> {
        let bytes = Buffer::from(bytemuck::cast_slice::<T, u8>(elements).to_vec());
        Ok(Self::Tensor(Tensor::new(T::DTYPE, dims, bytes)?))
    }

    /// Its type.
    pub fn ty(&self) -> Type {
        match self {
            Self::Tensor(tensor) => Type::Tensor(tensor.dtype()),
            Self::Sequence(element, _) => Type::Sequence(Box::new(element.clone())),
            Self::Optional(element, _) => Type::Optional(Box::new(element.clone())),
        }
    }

    /// The tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Type`] for sequences and optionals.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Self::Tensor(tensor) => Ok(tensor),
            _ => Err(Error::new(ErrorKind::Type, format!("{} is not a tensor", self.ty()))),
        }
    }

    /// The bytes that it takes outside of M: those of its elements, and the fixed size of each string
    /// or value in it.
    pub fn held_bytes(&self) -> u64 {
        let places = |count: usize, each: usize| count.saturating_mul(each) as u64;
        match self {
            Self::Tensor(tensor) => {
                let strings = tensor.strings().unwrap_or_default().len();
                places(strings, size_of::<Buffer>()).saturating_add(tensor.byte_len() as u64)
            }
            Self::Sequence(_, values) => {
                let rank = |value: &Self| value.tensor().map_or(0, |tensor| tensor.dims().len());
                let own = values.iter().map(|value| Self::tensors_bytes(1, rank(value)));
                let held = values.iter().map(Self::held_bytes);
                own.chain(held).fold(0, u64::saturating_add)
            }
            Self::Optional(_, value) => value.as_ref().map_or(0, |value| value.held_bytes()),
        }
    }

    /// The bytes that a sequence of `count` tensors of `rank` dimensions takes beside those of their elements: a place for
    /// each, its dimensions, and what is before its elements.
    pub(crate) fn tensors_bytes(count: usize, rank: usize) -> u64 {
        const HEAD: usize = 64;
        let each = rank.saturating_mul(size_of::<i64>()).saturating_add(size_of::<Self>() + HEAD);
        count.saturating_mul(each) as u64
    }

    /// The length in bytes of all elements in it.
    pub fn byte_len(&self) -> u64 {
        match self {
            Self::Tensor(tensor) => tensor.byte_len() as u64,
            Self::Sequence(_, values) => values.iter().map(Self::byte_len).sum(),
            Self::Optional(_, value) => value.as_ref().map_or(0, |value| value.byte_len()),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}
