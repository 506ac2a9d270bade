//! The plan of memory, by the machine.

use std::collections::HashMap;
use std::path::Path;

use onnx_container::{Container, Limits, LoadOptions};
use onnx_container_machine::plan::{
    Barrier, Effort, Plan, PlanOptions, PlannedTensor, plan_program,
};
use onnx_container_machine::{Program, ProgramOptions, Registry, Result};

use crate::options::{MemoryPlan, PlannedBlock};

/// Plans the memory of a run of the model at `path`, which is loaded with `load`. `limits` hold for
/// its program as well. `sizes` says which sizes the symbolic dimensions of the program have.
///
/// # Errors
/// Those of [`Container::load`], [`Program::new`] and [`plan_program`].
pub fn plan_memory(
    path: &Path,
    load: impl Into<LoadOptions>,
    limits: Limits,
    sizes: impl FnOnce(&Program) -> HashMap<String, usize>,
) -> Result<MemoryPlan> {
    let container = Container::load(path, load.into().limits(limits))?;
    let program = Program::new(&container, ProgramOptions::new().limits(limits))?;
    // The messages of many nodes are as large as their plan, and no longer needed.
    drop(container);
    let sizes = sizes(&program);
    plan(&program, &sizes)
}

/// The plan of a run of `program`, whose symbolic dimensions have these `sizes`.
fn plan(program: &Program, sizes: &HashMap<String, usize>) -> Result<MemoryPlan> {
    let options = PlanOptions::new().effort(Effort::Greedy);
    let planned = plan_program(program, &Registry::new(), sizes, options)?;
    let Plan { arena_bytes, lower_bound, naive_sum, peak_step, optimal, .. } = planned.plan;
    let own = planned.tensors.into_iter().filter(|tensor| tensor.shares.is_none());
    let mut sizes: Vec<_> = sizes.iter().map(|(name, size)| format!("{name}={size}")).collect();
    sizes.sort();
    Ok(MemoryPlan {
        arena_bytes,
        lower_bound,
        unshared_bytes: naive_sum,
        peak_step,
        optimal,
        barrier: planned.barrier.as_ref().map(ended),
        sizes,
        blocks: own.map(block).collect(),
    })
}

/// Where the plan ends, in words.
fn ended(Barrier { step, node, op, reason, .. }: &Barrier) -> String {
    let node = if node.is_empty() { String::new() } else { format!(" `{node}`") };
    format!("the plan ends before step {step}, node{node} ({op}): {reason}")
}

fn block(tensor: PlannedTensor) -> PlannedBlock {
    PlannedBlock {
        name: tensor.name,
        offset: tensor.offset,
        bytes: tensor.block.bytes,
        first_step: tensor.block.steps.start,
        end_step: tensor.block.steps.end,
    }
}
