//! [SequenceMap](https://onnx.ai/onnx/operators/onnx__SequenceMap.html): a graph that runs on each
//! element of a sequence.
//!
//! A further input that is a sequence gives one element each time too; a tensor is given whole.

use super::Frame;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::table::Entry;
use crate::program::Declared;
use crate::value::{Type, Value};

pub(super) fn run(frame: &mut Frame<'_>) -> Result<Vec<Option<Entry>>> {
    let body = frame.block("body")?;
    let inputs = (0..frame.node.inputs.len()).map(|i| frame.value(i));
    let inputs: Vec<Value> = inputs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    let len = length(&inputs)?;
    let mut results: Vec<Vec<Value>> = vec![Vec::new(); body.outputs.len()];
    let mut held = 0;
    for i in 0..len {
        frame.runner.count_step()?;
        let element = |value: &Value| match value {
            Value::Sequence(_, values) => values.get(i).cloned(),
            other => Some(other.clone()),
        };
        let elements: Vec<_> = inputs.iter().filter_map(element).collect();
        let label = format!("{}[{i}]", frame.node.op_type);
        let outputs = frame.run_on_values(body, elements, &label)?;
        for (result, value) in results.iter_mut().zip(outputs) {
            frame.collect(&mut held, &value)?;
            result.push(value);
        }
    }
    let sequences = results.into_iter().zip(&body.outputs);
    sequences
        .map(|(values, declared)| Ok(Some(Entry::Outside(sequence(values, declared)?))))
        .collect()
}

/// The number of elements of all sequences, the first of which is input 0.
fn length(inputs: &[Value]) -> Result<usize> {
    let len = match inputs.first() {
        Some(Value::Sequence(_, values)) => values.len(),
        _ => return Err(Error::new(ErrorKind::Type, "input 0 is not a sequence")),
    };
    let differs = |value: &&Value| matches!(value, Value::Sequence(_, other) if other.len() != len);
    match inputs.iter().find(differs) {
        Some(_) => {
            let reason =
                format!("a sequence has another length than input 0, which has {len} elements");
            Err(Error::new(ErrorKind::Shape, reason))
        }
        None => Ok(len),
    }
}

/// A sequence of `values`; one of none has the type that the body declares.
fn sequence(values: Vec<Value>, declared: &Declared) -> Result<Value> {
    let ty: Option<Type> = values.first().map(Value::ty).or_else(|| declared.ty.clone());
    let ty = ty.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "an output of no elements has no declared type")
    })?;
    Ok(Value::Sequence(ty, values))
}
