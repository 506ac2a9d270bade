//! Values as onnx's test data stores them: files with a TensorProto, SequenceProto, OptionalProto
//! or MapProto.
//!
//! A file does not say which of these it is; that is known from the type of the input or output.
//! What is read has to be a message of that kind: other fields, and elements of another kind than
//! the type has, are refused. A SequenceProto of one element and an OptionalProto of it are the
//! same bytes. Tensors are the library's. The messages around them are
//! [onnx-data.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx-data.proto), whose few fields
//! are read here.

mod map;
mod records;

use std::io::Write;

use onnx_container_proto::proto::{Message, TensorProto};
use onnx_container_proto::{Buffer, DataType, Tensor};

use self::records::{malformed, payload, push_varint, record, varint};
use crate::error::{Error, ErrorKind, Result};
use crate::value::{Map, Type, Value};

// SequenceProto and OptionalProto have the same field numbers.
const NAME: u64 = 1;
const ELEM_TYPE: u64 = 2;
const TENSOR: u64 = 3;
const SPARSE_TENSOR: u64 = 4;
const SEQUENCE: u64 = 5;
const MAP: u64 = 6;
const OPTIONAL: u64 = 7;

/// The field of a TensorProto that has its elements here.
const RAW_DATA: u64 = 9;

/// The kinds of elements, by `SequenceProto.DataType`, with their fields.
const KINDS: [(&str, u64); 5] = [
    ("tensors", TENSOR),
    ("sparse tensors", SPARSE_TENSOR),
    ("sequences", SEQUENCE),
    ("maps", MAP),
    ("optionals", OPTIONAL),
];

/// The value of type `ty` in `bytes`.
///
/// ```
/// # use onnx_container_kernels as onnx_container_machine;
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::{Buffer, DataType};
/// use onnx_container_machine::{Type, Value, data};
///
/// let element = Value::from_elements([2], &[1_i64, 2])?;
/// let sequence = Value::Sequence(element.ty(), vec![element.clone(), element]);
/// let bytes = data::encode(&sequence)?;
/// assert_eq!(data::decode(&Buffer::from(bytes), &sequence.ty())?, sequence);
/// # Ok::<(), onnx_container_machine::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Container`] when it is no such message, [`ErrorKind::Type`] when it is one of
/// another kind or type.
pub fn decode(bytes: &Buffer, ty: &Type) -> Result<Value> {
    let decoded = match ty {
        Type::Tensor(dtype) => return tensor_of(bytes, *dtype).map(Value::Tensor),
        Type::Sequence(element) => {
            elements(bytes, element).map(|values| Value::Sequence((**element).clone(), values))
        }
        Type::Optional(element) => elements(bytes, element).and_then(|values| one(element, values)),
        Type::Map(key, value) => map_of(bytes, *key, *value).map(Value::Map),
    };
    decoded.map_err(|error| match tensor(bytes) {
        Ok(tensor) => Error::new(
            ErrorKind::Type,
            format!("it holds a tensor of {}, not {ty}", tensor.dtype()),
        ),
        Err(_) => error,
    })
}

fn tensor(bytes: &Buffer) -> Result<Tensor> {
    Ok(Tensor::try_from(&TensorProto::decode(bytes)?)?)
}

/// The tensor in `bytes`, of elements of type `dtype`.
fn tensor_of(bytes: &Buffer, dtype: DataType) -> Result<Tensor> {
    let tensor = tensor(bytes).map_err(|error| match list(bytes) {
        Ok(list) if !bytes.is_empty() => {
            let what = list.kind().map_or(String::new(), |kind| format!(" of {kind}"));
            let reason = format!("it holds a sequence or an optional{what}, not tensor({dtype})");
            Error::new(ErrorKind::Type, reason)
        }
        _ => error,
    })?;
    if tensor.dtype() != dtype {
        let reason = format!("the tensor is {}, not {dtype}", tensor.dtype());
        return Err(Error::new(ErrorKind::Type, reason));
    }
    Ok(tensor)
}

/// The map from `key` to `value` in `bytes`.
fn map_of(bytes: &Buffer, key: DataType, value: DataType) -> Result<Map> {
    let (keys, values) = map::decode(bytes, key)?;
    let values = elements(&values, &Type::Tensor(value))?;
    Map::new(keys, map::joined(&values, value)?)
}

/// The optional of what is at most one of `values`.
fn one(element: &Type, values: Vec<Value>) -> Result<Value> {
    let count = values.len();
    let mut values = values.into_iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(Value::Optional(element.clone(), value.map(Box::new))),
        _ => {
            let reason =
                format!("it holds a sequence of {count} elements, not optional({element})");
            Err(Error::new(ErrorKind::Type, reason))
        }
    }
}

/// The message of `value`.
///
/// # Errors
/// [`ErrorKind::Container`] when a tensor cannot be encoded.
pub fn encode(value: &Value) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    write(value, &mut out)?;
    Ok(out)
}

/// Writes the message of `value`; the elements of a tensor are not copied.
///
/// # Errors
/// As [`encode`], and when `out` fails.
pub fn write(value: &Value, out: &mut dyn Write) -> Result<()> {
    let (element, values): (_, Vec<&Value>) = match value {
        Value::Tensor(tensor) => return Ok(tensor.to_proto("").encode(&mut { out })?),
        Value::Sequence(element, values) => (element, values.iter().collect()),
        Value::Optional(element, value) => (element, value.iter().map(|value| &**value).collect()),
        Value::Map(map) => {
            let values = map.values();
            let values = Value::Sequence(Type::Tensor(values.dtype()), map::scalars(values)?);
            return written(out.write_all(&map::encode(map.keys(), &encode(&values)?)?));
        }
    };
    let mut head = Vec::new();
    push_varint(&mut head, ELEM_TYPE << 3);
    push_varint(&mut head, elem_type(element));
    written(out.write_all(&head))?;
    for value in values {
        let bytes = encode(value)?;
        written(out.write_all(&record(field(element), bytes.len())))?;
        written(out.write_all(&bytes))?;
    }
    Ok(())
}

/// As [`write`](fn@write), of a tensor of numbers whose elements are `bytes`.
///
/// # Errors
/// As [`write`](fn@write).
#[doc(hidden)]
pub fn write_tensor(
    dtype: DataType,
    dims: Vec<i64>,
    bytes: &[u8],
    out: &mut dyn Write,
) -> Result<()> {
    let mut head = TensorProto::default();
    (head.dims, head.data_type) = (dims, Some(dtype.into()));
    head.encode(&mut { &mut *out })?;
    written(out.write_all(&record(RAW_DATA, bytes.len())))?;
    written(out.write_all(bytes))
}

fn written(result: std::io::Result<()>) -> Result<()> {
    result.map_err(|error| {
        onnx_container_proto::Error::new(onnx_container_proto::ErrorKind::Io, error.to_string())
            .into()
    })
}

/// The field that holds elements of type `ty`.
fn field(ty: &Type) -> u64 {
    match ty {
        Type::Tensor(_) => TENSOR,
        Type::Sequence(_) => SEQUENCE,
        Type::Optional(_) => OPTIONAL,
        Type::Map(..) => MAP,
    }
}

/// `SequenceProto.DataType` of elements of type `ty`.
fn elem_type(ty: &Type) -> u64 {
    match ty {
        Type::Tensor(_) => 1,
        Type::Sequence(_) => 3,
        Type::Map(..) => 4,
        Type::Optional(_) => 5,
    }
}

/// A SequenceProto or OptionalProto whose elements are not decoded yet.
#[derive(Default)]
struct List {
    /// 0 where it is not set.
    elem_type: u64,
    /// The field that each element is in, and its message.
    elements: Vec<(u64, Buffer)>,
}

impl List {
    /// What its elements are, if it says so.
    fn kind(&self) -> Option<&'static str> {
        let index = usize::try_from(self.elem_type).ok()?.checked_sub(1)?;
        KINDS.get(index).map(|(name, _)| *name)
    }
}

/// The elements of type `ty` of the SequenceProto or OptionalProto in `bytes`.
fn elements(bytes: &Buffer, ty: &Type) -> Result<Vec<Value>> {
    let list = list(bytes)?;
    let is_undefined = list.elem_type == 0 && list.elements.is_empty();
    let is_other = |(number, _): &&(u64, Buffer)| *number != field(ty);
    let other = list.elements.iter().find(is_other);
    if (list.elem_type == elem_type(ty) || is_undefined) && other.is_none() {
        return list.elements.iter().map(|(_, payload)| decode(payload, ty)).collect();
    }
    let found = match (list.kind(), other) {
        (Some(kind), _) if list.elem_type != elem_type(ty) => kind,
        (_, Some((number, _))) => {
            KINDS.iter().find(|(_, field)| field == number).map_or("others", |(kind, _)| *kind)
        }
        _ => "elements without a type",
    };
    Err(Error::new(ErrorKind::Type, format!("it holds {found}, not {ty}")))
}

/// The fields of a SequenceProto or OptionalProto.
fn list(bytes: &Buffer) -> Result<List> {
    let (mut list, mut at) = (List::default(), 0);
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        match (tag >> 3, tag & 7) {
            (ELEM_TYPE, 0) => {
                list.elem_type = varint(bytes, &mut at)?;
                if list.elem_type > KINDS.len() as u64 {
                    return Err(malformed(at));
                }
            }
            (NAME, 2) => {
                payload(bytes, &mut at)?;
            }
            (number @ TENSOR..=OPTIONAL, 2) => {
                list.elements.push((number, payload(bytes, &mut at)?));
            }
            _ => return Err(malformed(at)),
        }
    }
    Ok(list)
}
