//! Values for the inputs of a model: small shapes, any elements.

use onnx_container::{Buffer, DataType, Tensor};
use onnx_container_machine::{Declared, Dim, Map, Type, Value};

use crate::Choices;

/// The most bytes of an input.
const BYTES: usize = 1 << 14;

/// A value of the type that is declared; `None` for a type without values here.
pub fn value_for(declared: &Declared, choices: &mut Choices) -> Option<Value> {
    let dims = declared.dims.as_deref().unwrap_or_default();
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size,
        // All symbols have one size, so they agree.
        Dim::Symbol(_) | Dim::Unknown => 2,
    };
    let shape: Vec<_> = dims.iter().map(size).collect();
    value(declared.ty.as_ref().unwrap_or(&Type::Tensor(DataType::Float)), &shape, choices)
}

fn value(ty: &Type, shape: &[usize], choices: &mut Choices) -> Option<Value> {
    Some(match ty {
        Type::Tensor(dtype) => Value::Tensor(tensor(*dtype, shape, choices)?),
        Type::Sequence(element) => {
            let values = (0..choices.below(4)).map(|_| value(element, shape, choices));
            Value::Sequence((**element).clone(), values.collect::<Option<_>>()?)
        }
        Type::Optional(element) => {
            let some = choices.chance(70).then(|| value(element, shape, choices).map(Box::new));
            Value::Optional((**element).clone(), some.flatten())
        }
        Type::Map(key, value) => {
            let [keys, values] = [key, value].map(|dtype| tensor(*dtype, &[2], choices));
            Value::Map(Map::new(keys?, values?).ok()?)
        }
        _ => return None,
    })
}

fn tensor(dtype: DataType, shape: &[usize], choices: &mut Choices) -> Option<Tensor> {
    let dims: Vec<i64> = shape.iter().map(|dim| i64::try_from(*dim).ok()).collect::<Option<_>>()?;
    let count = usize::try_from(onnx_container::element_count(&dims).ok()?).ok()?;
    if dtype == DataType::String {
        let string = |choices: &mut Choices| {
            Buffer::from(["", "a", "b c", "ä", "12"][choices.below(5)].as_bytes())
        };
        let count = Some(count).filter(|count| *count <= BYTES / 16)?;
        return Tensor::from_strings(dims, (0..count).map(|_| string(choices)).collect()).ok();
    }
    let len = usize::try_from(dtype.byte_len(&dims).ok()?).ok().filter(|len| *len <= BYTES)?;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        match dtype {
            DataType::Bool => bytes.push(u8::from(choices.chance(50))),
            DataType::Float => bytes.extend(choices.float().to_le_bytes()),
            DataType::Double => bytes.extend(f64::from(choices.float()).to_le_bytes()),
            DataType::Int64 => bytes.extend(choices.size().to_le_bytes()),
            DataType::Int32 => bytes.extend((choices.size() as i32).to_le_bytes()),
            _ => bytes.extend(choices.bits().to_le_bytes()),
        }
    }
    bytes.truncate(len);
    Tensor::new(dtype, dims, Buffer::from(bytes)).ok()
}
