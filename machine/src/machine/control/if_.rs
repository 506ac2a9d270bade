//! [If](https://onnx.ai/onnx/operators/onnx__If.html): one of two graphs, which have no inputs.

use super::Frame;
use crate::error::Result;
use crate::memory::table::Entry;

pub(super) fn run(frame: &mut Frame<'_>) -> Result<Vec<Option<Entry>>> {
    let branch = if frame.condition(0)? { "then_branch" } else { "else_branch" };
    let outputs = frame.run(frame.block(branch)?, Vec::new(), branch)?;
    Ok(outputs.into_iter().map(Some).collect())
}
