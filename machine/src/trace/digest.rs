//! The SHA-256 of values: of the bytes of a tensor as they lie in M, and of what has no bytes
//! there.
//!
//! A tensor of strings is the strings in order, each with its length before it as 8 little-endian
//! bytes. A sequence or an optional is its elements in order, each as one line of JSON:
//! `{"dt":..,"sh":..,"sha":..}`. A map is a sequence of its keys in ascending order and its values,
//! both vectors.

use onnx_container::Tensor;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::TracedValue;
use crate::error::{Error, Result};
use crate::machine::Touched;
use crate::memory::table::Stored;
use crate::value::{Type, Value};

/// `digest` in lower-case hexadecimal digits.
pub fn hex(digest: &[u8]) -> String {
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// The value that a step read or wrote; `sha` is the digest of its bytes, if it lies in M.
pub(super) fn traced(touched: &Touched, sha: String) -> Result<TracedValue> {
    let name = touched.name.clone();
    match touched.entry.stored() {
        Stored::Tensor(slot) => {
            let shape = slot.shape.iter().map(|dim| *dim as u64).collect();
            let (offset, dtype) = (Some(slot.offset), slot.dtype.to_string());
            Ok(TracedValue { name, offset, dtype, shape: Some(shape), sha })
        }
        Stored::Outside(value) => of_value(name, value),
    }
}

/// The value, which has no place in M.
pub(super) fn of_value(name: String, value: &Value) -> Result<TracedValue> {
    let (dtype, shape) = match value {
        Value::Tensor(tensor) => {
            let shape = tensor.shape().iter().map(|dim| *dim as u64).collect();
            (tensor.dtype().to_string(), Some(shape))
        }
        value => (value.ty().to_string(), None),
    };
    Ok(TracedValue { name, offset: None, dtype, shape, sha: sha(value)? })
}

fn sha(value: &Value) -> Result<String> {
    let mut hasher = Sha256::new();
    match value {
        Value::Tensor(tensor) => tensor_into(tensor, &mut hasher),
        Value::Sequence(_, elements) => {
            elements.iter().try_for_each(|element| element_into(element, &mut hasher))?;
        }
        Value::Optional(_, element) => {
            element.iter().try_for_each(|element| element_into(element, &mut hasher))?;
        }
        Value::Map(map) => {
            let both = [map.keys(), map.values()].map(|tensor| Value::Tensor(tensor.clone()));
            both.iter().try_for_each(|element| element_into(element, &mut hasher))?;
        }
        other => {
            return Err(Error::internal(format!("{} has no digest", other.ty())));
        }
    }
    Ok(hex(&hasher.finalize()))
}

fn tensor_into(tensor: &Tensor, hasher: &mut Sha256) {
    if let Some(bytes) = tensor.as_bytes() {
        hasher.update(bytes);
    }
    for string in tensor.strings().into_iter().flatten() {
        hasher.update((string.len() as u64).to_le_bytes());
        hasher.update(&string[..]);
    }
}

/// An element of a sequence or optional, as it is digested.
#[derive(Serialize)]
struct Element {
    dt: String,
    sh: Option<Vec<u64>>,
    sha: String,
}

fn element_into(element: &Value, hasher: &mut Sha256) -> Result<()> {
    let TracedValue { dtype: dt, shape: sh, sha, .. } = of_value(String::new(), element)?;
    let line = serde_json::to_vec(&Element { dt, sh, sha });
    hasher.update(line.map_err(|error| Error::internal(error.to_string()))?);
    hasher.update(b"\n");
    Ok(())
}

/// The type that `dt` of a trace names, of a tensor.
pub(super) fn tensor_type(dt: &str) -> Option<Type> {
    let known = onnx_container::DataType::ALL.iter().find(|dtype| dtype.to_string() == dt);
    known.map(|dtype| Type::Tensor(*dtype))
}
