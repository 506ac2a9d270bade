//! Values as a caller has them: tensors, sequences, optionals and maps that own what they hold.
//!
//! In a run, tensors of numbers lie in the memory M. Everything else that ONNX knows (string
//! tensors, sequences, optionals, maps) is a [`Value`] beside it, and so are the inputs and outputs
//! of a run.

pub mod compare;
pub mod data;

mod map;

use onnx_container_proto::proto::TypeProto;
use onnx_container_proto::proto::type_proto::Value as TypeValue;
use onnx_container_proto::{Buffer, DataType, Tensor};

pub use self::map::Map;
use crate::error::{Error, ErrorKind, Result};

/// What kind of value stands at an input, output or edge, without dimensions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// A tensor with elements of this type.
    Tensor(DataType),
    /// A sequence of values of one type.
    Sequence(Box<Type>),
    /// A value that may be missing.
    Optional(Box<Type>),
    /// A map from keys of the first type to elements of the second.
    Map(DataType, DataType),
}

impl Type {
    /// The type in a message.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for sparse tensors, opaque types and maps to other values than
    /// elements; [`ErrorKind::Type`] for maps with keys that are not INT64 or STRING;
    /// [`ErrorKind::InvalidModel`] where an element type is missing.
    pub fn from_proto(proto: &TypeProto) -> Result<Self> {
        let element = |proto: Option<&TypeProto>| -> Result<Box<Self>> {
            let missing = || Error::new(ErrorKind::InvalidModel, "a type has no element type");
            Ok(Box::new(Self::from_proto(proto.ok_or_else(missing)?)?))
        };
        match &proto.value {
            Some(TypeValue::TensorType(tensor)) => {
                Ok(Self::Tensor(element_type(tensor.elem_type)?))
            }
            Some(TypeValue::SequenceType(sequence)) => {
                Ok(Self::Sequence(element(sequence.elem_type.as_deref())?))
            }
            Some(TypeValue::OptionalType(optional)) => {
                Ok(Self::Optional(element(optional.elem_type.as_deref())?))
            }
            Some(TypeValue::MapType(map)) => {
                let key = element_type(map.key_type)?;
                let Self::Tensor(value) = *element(map.value_type.as_deref())? else {
                    let reason = "maps to other values than elements of tensors are not supported";
                    return Err(Error::new(ErrorKind::Unsupported, reason));
                };
                map::check_types(key, value)?;
                Ok(Self::Map(key, value))
            }
            Some(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "sparse tensors and opaque values are not supported",
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
            Self::Map(key, value) => write!(f, "map({key},tensor({value}))"),
        }
    }
}

/// A value that owns what it holds. Cloning shares the elements of tensors.
///
/// ```
/// # use onnx_container_kernels as onnx_container_machine;
/// use onnx_container_machine::Value;
///
/// let value = Value::from_elements([2, 2], &[1.0_f32, 2.0, 3.0, 4.0])?;
/// assert_eq!(value.tensor()?.as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A tensor of any element type, strings too.
    Tensor(Tensor),
    /// A sequence: the type of its elements, and the elements.
    Sequence(Type, Vec<Value>),
    /// An optional: the type of its element, and the element if there is one.
    Optional(Type, Option<Box<Value>>),
    /// A map from keys to elements.
    Map(Map),
}

impl Value {
    /// A tensor of `elements` in row-major order, which are copied.
    ///
    /// # Errors
    /// When `dims` do not have as many elements.
    pub fn from_elements<T: onnx_container_proto::Element>(
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
            Self::Map(map) => Type::Map(map.keys().dtype(), map.values().dtype()),
        }
    }

    /// The tensor.
    ///
    /// # Errors
    /// [`ErrorKind::Type`] for sequences, optionals and maps.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Self::Tensor(tensor) => Ok(tensor),
            _ => Err(Error::new(ErrorKind::Type, format!("{} is not a tensor", self.ty()))),
        }
    }

    /// The bytes that it takes outside of M: those of its elements, and the fixed size of each
    /// string or value in it.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Self::Tensor(tensor) => held_by(tensor),
            Self::Sequence(_, values) => {
                let rank = |value: &Self| value.tensor().map_or(0, |tensor| tensor.dims().len());
                let own = values.iter().map(|value| Self::tensors_bytes(1, rank(value)));
                let held = values.iter().map(Self::held_bytes);
                own.chain(held).fold(0, u64::saturating_add)
            }
            Self::Optional(_, value) => value.as_ref().map_or(0, |value| value.held_bytes()),
            // Maps may share their keys, and each counts them.
            Self::Map(map) => [map.keys(), map.values()]
                .map(held_by)
                .into_iter()
                .fold(Self::tensors_bytes(2, 1), u64::saturating_add),
        }
    }

    /// The bytes that a sequence of `count` tensors of `rank` dimensions takes beside those of
    /// their elements: a place for each, its dimensions, and what is before its elements.
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
            Self::Map(map) => (map.keys().byte_len() + map.values().byte_len()) as u64,
        }
    }
}

/// The element type of this number; one that is not written is 0, which stands for none.
fn element_type(number: Option<i32>) -> Result<DataType> {
    Ok(DataType::try_from(number.unwrap_or(0))?)
}

/// The bytes of the elements of `tensor`, and the fixed size of each string.
fn held_by(tensor: &Tensor) -> u64 {
    let strings = tensor.strings().map_or(0, <[Buffer]>::len);
    let places = strings.saturating_mul(size_of::<Buffer>()) as u64;
    places.saturating_add(tensor.byte_len() as u64)
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}
