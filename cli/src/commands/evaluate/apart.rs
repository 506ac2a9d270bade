//! How far the outputs of two runs are apart, also of models in different float types.

use std::io;

use onnx_container::{DataType, Tensor};
use onnx_container_machine::compare::{Distance, distance};
use onnx_container_machine::{Type, Value};
use serde::Serialize;

use super::Model;
use crate::terminal::failure::Failure;
use crate::terminal::output::{Number, Output, short_name};

/// How far an output is from the one that it is compared with.
#[derive(Debug, Clone, Serialize)]
pub struct Apart {
    pub output: String,
    /// `None` in JSON where it is infinite.
    pub max_abs: f64,
    /// Relative to the element that it is compared with.
    pub max_rel: f64,
    /// How many elements are not equal.
    pub differing: usize,
    pub elements: usize,
}

impl Apart {
    pub fn new(output: &str, apart: &Distance) -> Self {
        let Distance { elements, differing, max_abs, max_rel, .. } = *apart;
        Self { output: output.to_owned(), max_abs, max_rel, differing, elements }
    }

    /// How far `found` is from `expected`; `None` where they are no tensors of one shape.
    pub fn of(output: &str, found: &Value, expected: &Value) -> Result<Option<Self>, Failure> {
        let apart = match widened(found, expected)? {
            Some((found, expected)) => distance(&found, &expected)?,
            None => distance(found, expected)?,
        };
        Ok(apart.map(|apart| Self::new(output, &apart)))
    }

    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        let Self { output, max_abs, max_rel, differing, elements } = self;
        let output = short_name(output);
        if *differing == 0 {
            return out.prose_row("largest", format_args!("{output}: all elements are equal"));
        }
        let (max_abs, max_rel) = (Number(*max_abs), Number(*max_rel));
        let text = format!(
            "{output}: elements differ by at most {max_abs} (relative: {max_rel}), {differing} of {elements}"
        );
        out.prose_row("largest", text)
    }
}

/// Both values as numbers of 32 bits, or of 64 if one of them is DOUBLE, where they are tensors of
/// different float types.
pub fn widened(a: &Value, b: &Value) -> Result<Option<(Value, Value)>, Failure> {
    match (a, b) {
        (Value::Tensor(a), Value::Tensor(b))
            if a.dtype() != b.dtype() && is_float(a.dtype()) && is_float(b.dtype()) =>
        {
            let is_double = [a, b].iter().any(|tensor| tensor.dtype() == DataType::Double);
            let widest = if is_double { DataType::Double } else { DataType::Float };
            let wide = |tensor| Ok::<_, Failure>(Value::Tensor(converted(tensor, widest)?));
            Ok(Some((wide(a)?, wide(b)?)))
        }
        _ => Ok(None),
    }
}

/// `value` in the float type that `model` declares for the input `name`.
pub fn as_declared(model: &Model, name: &str, value: Value) -> Result<Value, Failure> {
    match (&value, declared(model, name)) {
        (Value::Tensor(tensor), Some(wanted))
            if wanted != tensor.dtype() && is_float(wanted) && is_float(tensor.dtype()) =>
        {
            Ok(Value::Tensor(converted(tensor, wanted)?))
        }
        _ => Ok(value),
    }
}

/// The element type that `model` declares for the input `name`.
pub fn declared(model: &Model, name: &str) -> Option<DataType> {
    let main = &model.program.main;
    let declared = main.inputs.iter().find(|input| main.name(input.value) == name);
    match declared.and_then(|input| input.ty.as_ref()) {
        Some(Type::Tensor(dtype)) => Some(*dtype),
        _ => None,
    }
}

/// Whether it is one of the types that are compared as numbers.
pub fn is_float(dtype: DataType) -> bool {
    use DataType::{Bfloat16, Double, Float, Float16};
    matches!(dtype, Double | Float | Float16 | Bfloat16)
}

/// `tensor` in the float type `to`, rounded once.
pub fn converted(tensor: &Tensor, to: DataType) -> Result<Tensor, Failure> {
    use DataType::{Bfloat16, Double, Float16};
    if tensor.dtype() == to {
        return Ok(tensor.clone());
    }
    let singles = tensor.to_f32()?;
    if tensor.dtype() != Double || !matches!(to, Float16 | Bfloat16) {
        return Ok(Tensor::from_f32(to, tensor.dims(), &singles)?);
    }
    let exact = tensor.to_slice::<f64>()?;
    let pairs = exact.iter().zip(singles.iter());
    let odd: Vec<_> = pairs.map(|(exact, nearest)| rounded_to_odd(*exact, *nearest)).collect();
    Ok(Tensor::from_f32(to, tensor.dims(), &odd)?)
}

/// The neighbour of `exact` whose last bit is set, where `exact` is not its `nearest` number of 32
/// bits. A type of 16 bits then gets what rounding `exact` itself gives.
fn rounded_to_odd(exact: f64, nearest: f32) -> f32 {
    let widened = f64::from(nearest);
    if exact.is_nan() || widened.to_bits() == exact.to_bits() {
        return nearest;
    }
    let is_above = u32::from(widened.abs() > exact.abs());
    f32::from_bits((nearest.to_bits() - is_above) | 1)
}
