//! MapProto: the keys, and a SequenceProto of a scalar for each.

use onnx_container_proto::{Buffer, DataType, Tensor};

use super::records::{malformed, payload, push_varint, record, varint};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::OrBug;
use crate::numeric::broadcast::each_of;
use crate::value::Value;

const NAME: u64 = 1;
const KEY_TYPE: u64 = 2;
const KEYS: u64 = 3;
const STRING_KEYS: u64 = 4;
const VALUES: u64 = 5;

/// The keys, of type `key`, of the map in `bytes`, and the SequenceProto of its values.
pub(super) fn decode(bytes: &Buffer, key: DataType) -> Result<(Tensor, Buffer)> {
    let (mut key_type, mut values) = (None, None);
    let (mut integers, mut strings) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < bytes.len() {
        let tag = varint(bytes, &mut at)?;
        match (tag >> 3, tag & 7) {
            (KEY_TYPE, 0) => key_type = Some(varint(bytes, &mut at)?),
            (KEYS, 0) => integers.push(varint(bytes, &mut at)?.cast_signed()),
            (KEYS, 2) => {
                let (packed, mut at) = (payload(bytes, &mut at)?, 0);
                while at < packed.len() {
                    integers.push(varint(&packed, &mut at)?.cast_signed());
                }
            }
            (STRING_KEYS, 2) => strings.push(payload(bytes, &mut at)?),
            (VALUES, 2) if values.is_none() => values = Some(payload(bytes, &mut at)?),
            (NAME, 2) => {
                payload(bytes, &mut at)?;
            }
            _ => return Err(malformed(at)),
        }
    }
    let found = key_type.and_then(|number| DataType::try_from(i32::try_from(number).ok()?).ok());
    let is_other = if key == DataType::String { !integers.is_empty() } else { !strings.is_empty() };
    if found != Some(key) || is_other {
        let found = found.map_or("another type".to_owned(), |found| found.to_string());
        let reason = format!("it holds a map with keys of {found}, not of {key}");
        return Err(Error::new(ErrorKind::Type, reason));
    }
    let keys = match key {
        DataType::String => Tensor::from_strings([dim(strings.len())?], strings)?,
        _ => Value::from_elements([dim(integers.len())?], &integers)?.tensor()?.clone(),
    };
    Ok((keys, values.unwrap_or_default())) // a sequence that is not written has no elements
}

fn dim(len: usize) -> Result<i64> {
    i64::try_from(len).map_err(Error::internal)
}

/// The vector of what are tensors of one element.
pub(super) fn joined(values: &[Value], dtype: DataType) -> Result<Tensor> {
    let (mut bytes, mut strings) = (Vec::new(), Vec::new());
    for value in values {
        let tensor = value.tensor()?;
        if tensor.shape().iter().product::<usize>() != 1 {
            let reason =
                format!("a value of a map has the shape {:?}, not one element", tensor.dims());
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        match tensor.strings() {
            Some(own) => strings.extend_from_slice(own),
            None => bytes.extend_from_slice(tensor.as_bytes().or_bug("numbers without bytes")?),
        }
    }
    let dims = [dim(values.len())?];
    Ok(match dtype {
        DataType::String => Tensor::from_strings(dims, strings)?,
        _ => Tensor::new(dtype, dims, Buffer::from(bytes))?,
    })
}

/// The message of a map with these keys, whose values are in `sequence`.
pub(super) fn encode(keys: &Tensor, sequence: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    push_varint(&mut out, KEY_TYPE << 3);
    let key_type = keys.dtype().number();
    push_varint(&mut out, u64::try_from(key_type).map_err(Error::internal)?);
    match keys.strings() {
        Some(strings) => {
            for key in strings {
                out.extend(record(STRING_KEYS, key.len()));
                out.extend_from_slice(key);
            }
        }
        None => {
            for key in keys.to_slice::<i64>()?.iter() {
                push_varint(&mut out, KEYS << 3);
                push_varint(&mut out, key.cast_unsigned());
            }
        }
    }
    out.extend(record(VALUES, sequence.len()));
    out.extend_from_slice(sequence);
    Ok(out)
}

/// Each element of a vector as a tensor.
pub(super) fn scalars(tensor: &Tensor) -> Result<Vec<Value>> {
    if let Some(strings) = tensor.strings() {
        let scalar = |string: &Buffer| Tensor::from_strings([], vec![string.clone()]);
        return strings.iter().map(|string| Ok(Value::Tensor(scalar(string)?))).collect();
    }
    let bytes = tensor.as_bytes().or_bug("numbers without bytes")?;
    let count = tensor.shape().iter().product::<usize>();
    let width = each_of(bytes.len(), count).max(1);
    let scalar = |element: &[u8]| Tensor::new(tensor.dtype(), [], Buffer::from(element.to_vec()));
    bytes.chunks(width).map(|element| Ok(Value::Tensor(scalar(element)?))).collect()
}
