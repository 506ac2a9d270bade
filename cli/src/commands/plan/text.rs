//! What `plan` prints for people.

use std::io;

use onnx_container::ByteSize;
use onnx_container_machine::plan::Plan;

use super::{Planned, Tensor};
use crate::args::PlanArgs;
use crate::terminal::output::{Output, count, short_name};

/// Prints the lengths of the plan, then the largest tensors.
pub fn print(planned: &Planned, args: &PlanArgs, out: &mut Output) -> io::Result<()> {
    let Plan { arena_bytes, lower_bound, naive_sum, peak_step, optimal, .. } = planned.plan;
    let label = if args.model.is_some() { "model      " } else { "list       " };
    out.line(format_args!("{label} {}", planned.source.display()))?;
    let shown = match &planned.barrier {
        Some(barrier) => format!(" at least: of the steps before step {}", barrier.step),
        None if optimal => ", the least possible".to_owned(),
        None => String::new(),
    };
    out.line(format_args!("memory      {}{shown}", bytes(arena_bytes)))?;
    out.line(format_args!("lower bound {}", bytes(lower_bound)))?;
    out.line(format_args!("unshared    {}", bytes(naive_sum)))?;
    let op = planned.nodes.as_ref().and_then(|nodes| nodes.get(usize::try_from(peak_step).ok()?));
    let op = op.map(|op| format!(" ({op})")).unwrap_or_default();
    out.line(format_args!("peak        step {peak_step}{op}"))?;
    let views = planned.tensors.iter().filter(|tensor| tensor.shares.is_some()).count();
    let what = if planned.nodes.is_some() { "tensor" } else { "block" };
    let sharing = if views > 0 {
        format!(", {views} of them sharing the bytes of another")
    } else {
        String::new()
    };
    out.line(format_args!("planned     {}{sharing}", count(planned.tensors.len(), what)))?;
    if let Some(folded) = planned.folded.filter(|folded| folded.nodes > 0) {
        out.line(format_args!("folded      {folded}"))?;
    }
    tensors(planned, args.top, out)
}

fn tensors(planned: &Planned, top: usize, out: &mut Output) -> io::Result<()> {
    let mut largest: Vec<_> =
        planned.tensors.iter().filter(|tensor| tensor.shares.is_none()).collect();
    largest.sort_by_key(|tensor| (std::cmp::Reverse(tensor.block.bytes), tensor.offset));
    let shown = if top == 0 { largest.len() } else { top.min(largest.len()) };
    if shown == 0 {
        return Ok(());
    }
    out.line("")?;
    out.line(format_args!("{:>8}  {:>14}  {:>13}  NAME", "SIZE", "OFFSET", "STEPS"))?;
    for tensor in largest.iter().take(shown) {
        row(tensor, out)?;
    }
    if shown < largest.len() {
        out.line(format_args!("{:>8}  {} more: --top 0", "", largest.len() - shown))?;
    }
    Ok(())
}

/// Where a line continues that a name makes too long, in characters.
const INDENT: usize = 14;

fn row(tensor: &Tensor, out: &mut Output) -> io::Result<()> {
    let steps = &tensor.block.steps;
    let steps = match steps.end.checked_sub(1).filter(|last| *last >= steps.start) {
        Some(last) => format!("{} to {last}", steps.start),
        None => "none".to_owned(),
    };
    let kind = match (&tensor.dtype, &tensor.shape) {
        (Some(dtype), Some(shape)) => format!("{dtype} {shape:?}"),
        _ => String::new(),
    };
    let (size, offset) = (ByteSize(tensor.block.bytes), tensor.offset);
    let start = format!("{size:>8}  {offset:>14}  {steps:>13}  ");
    out.wrapped(start, [short_name(&tensor.name), kind], "  ", INDENT)
}

fn bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", ByteSize(bytes))
}
