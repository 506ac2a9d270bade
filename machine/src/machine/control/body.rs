//! Operators that ONNX defines by others: the graph in `bodies` runs in their place.

use super::Frame;
use crate::error::{Error, Result};
use crate::kernel::bodies::{self, Body, Composite};
use crate::memory::WEIGHTS;
use crate::memory::table::Entry;

pub(super) fn run(frame: &mut Frame<'_>) -> Result<Vec<Option<Entry>>> {
    let Some(Composite::Body(build)) = bodies::of(frame.node) else {
        return Err(Error::internal("an operator without a body"));
    };
    let body = build(&frame.call()?)?;
    let inputs = frame.inputs_from(0)?;
    let label = frame.node.op_type.clone();
    let outputs = apply(frame, &body, inputs, &label)?;
    // Outputs that the node leaves out are not in the body's graph either.
    let mut outputs = outputs.into_iter();
    Ok(frame.node.outputs.iter().map(|output| output.and_then(|_| outputs.next())).collect())
}

/// The outputs of the graph of `body` for `inputs`. Its constants are given back, unless an output
/// is one.
pub(super) fn apply(
    frame: &mut Frame<'_>,
    body: &Body,
    inputs: Vec<Entry>,
    label: &str,
) -> Result<Vec<Entry>> {
    let before = frame.runner.memory.weights_mut().byte_len();
    let block = frame.runner.block(body)?;
    let outputs = frame.run(&block, inputs, label)?;
    let is_constant =
        |entry: &Entry| matches!(entry, Entry::Tensor(slot) if slot.offset >= WEIGHTS);
    if !outputs.iter().any(is_constant) {
        frame.runner.memory.weights_mut().truncate(before);
    }
    Ok(outputs)
}
