//! Calls of local functions that are not inlined: the graph of the function runs in their place.

use std::collections::HashSet;

use super::Frame;
use crate::error::Result;
use crate::memory::table::Entry;
use crate::program::FUNCTION_BODY;

pub(super) fn run(frame: &mut Frame<'_>) -> Result<Vec<Option<Entry>>> {
    let block = frame.block(FUNCTION_BODY)?;
    // The graph has one input for each value, however often the call has it.
    let mut seen = HashSet::new();
    let values = frame.node.inputs.iter().flatten().filter(|value| seen.insert(**value));
    let inputs: Vec<_> = values.filter_map(|value| frame.table.get(*value)).cloned().collect();
    inputs.iter().try_for_each(|entry| frame.runner.retain(entry))?;
    let label = frame.node.op_type.clone();
    let mut outputs = frame.run(block, inputs, &label)?.into_iter();
    Ok(frame.node.outputs.iter().map(|output| output.and_then(|_| outputs.next())).collect())
}
