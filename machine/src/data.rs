//! Values as onnx's test data stores them: files with a TensorProto, SequenceProto or OptionalProto.
//!
//! A file does not say which of the three it is; that is known from the type of the input or output.
//! Tensors are the library's. The messages around them are
//! [onnx-data.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx-data.proto), whose few fields are
//! read here.

use onnx_container::proto::{Message, TensorProto};
use onnx_container::{Buffer, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::value::{Type, Value};

// SequenceProto and OptionalProto have the same field numbers.
const ELEM_TYPE: u64 = 2;
const TENSOR: u64 = 3;
const SEQUENCE: u64 = 5;
const OPTIONAL: u64 = 7;

/// The value of type `ty` in `bytes`.
///
/// ```
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
/// [`ErrorKind::Container`] when it is no such message, [`ErrorKind::Type`] when it has another type.
pub fn decode(bytes: &Buffer, ty: &Type) -> Result<Value> {
    match ty {
        Type::Tensor(dtype) => {
            let tensor = Tensor::try_from(&TensorProto::decode(bytes)?)?;
            if tensor.dtype() != *dtype {
                let reason = format!("the tensor is {}, not {dtype}", tensor.dtype());
                return Err(Error::new(ErrorKind::Type, reason));
            }
            Ok(Value::Tensor(tensor))
        }
        Type::Sequence(element) => {
            let values = elements(bytes, element)?;
            Ok(Value::Sequence((**element).clone(), values))
        }
        Type::Optional(element) => {
            let value = elements(bytes, element)?.into_iter().next().map(Box::new);
            Ok(Value::Optional((**element).clone(), value))
        }
    }
}

/// The message of `value`.
///
/// # Errors
/// [`ErrorKind::Container`] when a tensor cannot be encoded.
pub fn encode(value: &Value) -> Result<Vec<u8>> {
    let (element, values): (_, Vec<&Value>) = match value {
        Value::Tensor(tensor) => return Ok(tensor.to_proto("").encode_to_vec()?),
        Value::Sequence(element, values) => (element, values.iter().collect()),
        Value::Optional(element, value) => (element, value.iter().map(|value| &**value).collect()),
    };
    let mut out = Vec::new();
    push_varint(&mut out, ELEM_TYPE << 3);
    push_varint(&mut out, elem_type(element));
    for value in values {
        let bytes = encode(value)?;
        push_varint(&mut out, (field(element) << 3) | 2);
        push_varint(&mut out, bytes.len() as u64);
        out.extend(bytes);
    }
    Ok(out)
}

/// The field that holds elements of type `ty`.
fn field(ty: &Type) -> u64 {
    match ty {
        Type::Tensor(_) => TENSOR,
        Type::Sequence(_) => SEQUENCE,
        Type::Optional(_) => OPTIONAL,
    }
}

/// `SequenceProto.DataType` of elements of type `ty`.
fn elem_type(ty: &Type) -> u64 {
    match ty {
        Type::Tensor(_) => 1,
        Type::Sequence(_) => 3,
        Type::Optional(_) => 5,
    }
}

/// The elements of type `ty` of the SequenceProto or OptionalProto in `bytes`.
fn elements(bytes: &Buffer, ty: &Type) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        match tag & 7 {
            0 => {
                varint(bytes, &mut at)?;
            }
            2 => {
                let len = usize::try_from(varint(bytes, &mut at)?).map_err(|_| malformed(at))?;
                let end = at.checked_add(len).ok_or_else(|| malformed(at))?;
                let payload = bytes.slice(at..end).ok_or_else(|| malformed(at))?;
                if tag >> 3 == field(ty) {
                    values.push(decode(&payload, ty)?);
                }
                at = end;
            }
            _ => return Err(malformed(at)),
        }
    }
    Ok(values)
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or_else(|| malformed(*at))?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed(*at))
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn malformed(at: usize) -> Error {
    let reason = format!("byte {at} is not part of a sequence or optional");
    Error::new(ErrorKind::Container, reason)
}
