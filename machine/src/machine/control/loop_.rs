//! [Loop](https://onnx.ai/onnx/operators/onnx__Loop.html): a graph that runs again on its own
//! outputs.
//!
//! The body has the inputs (iteration, condition, carried values) and the outputs (condition,
//! carried values, scanned values); the last of them are stacked over the iterations.

use super::{Frame, condition, stack};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::table::Entry;
use crate::value::Value;

pub(super) fn run(frame: &mut Frame<'_>) -> Result<Vec<Option<Entry>>> {
    let body = frame.block("body")?;
    let trips = frame.value(0)?.map(|value| integer(&value)).transpose()?;
    let mut go_on = frame.input(1).is_none() || frame.condition(1)?;
    let mut carried = frame.inputs_from(2)?;
    let count = carried.len();
    let scanned = body.outputs.len().checked_sub(count + 1);
    let scanned = scanned.ok_or_else(|| too_few(body.outputs.len(), count))?;
    let mut scans: Vec<Vec<Value>> = vec![Vec::new(); scanned];
    let (mut iteration, mut held) = (0_i64, 0);
    while go_on && trips.is_none_or(|trips| iteration < trips) {
        frame.runner.count_step()?;
        let mut inputs = vec![
            frame.runner.put(Value::from_elements([], &[iteration])?)?,
            frame.runner.put(Value::from_elements([], &[go_on])?)?,
        ];
        inputs.append(&mut carried);
        let label = format!("{}[{iteration}]", frame.node.op_type);
        let mut outputs = frame.run(body, inputs, &label)?.into_iter();
        let next = outputs.next().ok_or_else(|| too_few(0, count))?;
        go_on = condition(&frame.take(next)?)?;
        carried = outputs.by_ref().take(count).collect();
        for (scan, entry) in scans.iter_mut().zip(outputs) {
            let value = frame.take(entry)?;
            frame.collect(&mut held, &value)?;
            scan.push(value);
        }
        iteration += 1;
    }
    let mut results: Vec<_> = carried.into_iter().map(Some).collect();
    for (scan, declared) in scans.into_iter().zip(body.outputs.iter().skip(1 + count)) {
        let stacked = stack(&scan, declared)?;
        results.push(Some(frame.runner.put(stacked)?));
    }
    Ok(results)
}

fn integer(value: &Value) -> Result<i64> {
    match value.tensor()?.to_slice::<i64>()?.as_ref() {
        [trips] => Ok(*trips),
        other => {
            let reason = format!("the trip count has {} elements, not one", other.len());
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

fn too_few(outputs: usize, carried: usize) -> Error {
    let reason = format!("its body has {outputs} outputs, and {carried} values are carried");
    Error::new(ErrorKind::InvalidModel, reason)
}
