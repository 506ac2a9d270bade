//! The plan of a program: which tensors lie in M, from which step to which, and where.
//!
//! A result needs its bytes from the step that writes it to its last use, inner graphs included; an
//! input from the start, an output to the end. A view has no bytes of its own: the tensor that it
//! shows lives as long as the view does, and a tensor that a result is written over lives as long
//! as that result. Weights lie outside of the arena. What is not a tensor of numbers lies outside
//! of M.

use std::collections::HashMap;
use std::ops::Range;

use onnx_container::{Alignment, DataType};

use super::shapes::{Known, Shapes};
use super::{Barrier, Block, Plan, PlanOptions, Row, plan};
use crate::kernels::registry::Registry;
use crate::memory::table::{Entry, TensorTable, byte_len};
use crate::memory::{ALIGNMENT, Memory};
use crate::program::{Program, ValueId};
use crate::value::Type;
use crate::{Error, Result};

/// A tensor of a planned program.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlannedTensor {
    /// The value of the main graph that it is.
    pub value: ValueId,
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DataType,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// The steps at which it is needed itself.
    pub steps: Range<u64>,
    /// Its bytes, and the steps at which it or, unless it is a view, a view of it is needed.
    pub block: Block,
    /// Where it lies in the arena, in bytes.
    pub offset: u64,
    /// The tensor whose bytes it shows, or in whose place it lies once that is needed no longer.
    pub shares: Option<String>,
}

/// Where the tensors of a program lie.
#[derive(Debug)]
#[non_exhaustive]
pub struct ProgramPlan {
    /// The plan of the tensors that have bytes of their own.
    pub plan: Plan,
    /// Every tensor in the arena, views too, by their first step.
    pub tensors: Vec<PlannedTensor>,
    /// The first step that is planned: 0, unless it is the plan of what lies behind a barrier.
    pub first_step: u64,
    /// The number of steps of the program.
    pub steps: u64,
    /// The first node whose outputs have shapes that depend on data; the plan ends before it.
    pub barrier: Option<Barrier>,
}

impl ProgramPlan {
    /// The tensors that have bytes of their own, as files and drawings show them.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let own = self.tensors.iter().filter(|tensor| tensor.shares.is_none());
        own.map(|t| Row { id: &t.name, block: &t.block, offset: t.offset }).collect()
    }
}

/// Plans the main graph of `program`, whose symbolic dimensions have these `sizes`.
///
/// Where the shapes of a node depend on the elements of an input, the plan ends before that node,
/// which [`ProgramPlan::barrier`] names.
///
/// # Errors
/// [`ErrorKind::Input`](crate::ErrorKind::Input) when a dimension of an input has no size, or a
/// size is for none; [`ErrorKind::UnsupportedOp`](crate::ErrorKind::UnsupportedOp) when a node has
/// no kernel; what kernels say of wrong types and shapes.
pub fn plan_program(
    program: &Program,
    registry: &Registry,
    sizes: &HashMap<String, usize>,
    options: PlanOptions,
) -> Result<ProgramPlan> {
    let memory = Memory::new(program.weights.clone(), None);
    let shapes = Shapes::new(program, registry, &memory, sizes)?;
    plan_shapes(program, &shapes, &|_| None, options)
}

/// As [`plan_program`], for inputs of these types and, if they are tensors of numbers, these
/// shapes.
pub(crate) fn plan_bound(
    program: &Program,
    registry: &Registry,
    memory: &Memory,
    inputs: &[(ValueId, Type, Vec<usize>)],
    options: PlanOptions,
) -> Result<ProgramPlan> {
    let shapes = Shapes::bound(program, registry, memory, inputs)?;
    plan_shapes(program, &shapes, &|_| None, options)
}

/// Plans the steps from `start` on, when the values in `table` lie where it says.
pub(crate) fn plan_from_step(
    program: &Program,
    registry: &Registry,
    memory: &Memory,
    table: &TensorTable,
    start: u64,
    options: PlanOptions,
) -> Result<ProgramPlan> {
    let shapes = Shapes::from_step(program, registry, memory, table, start)?;
    let offset = |value| match table.get(value) {
        Some(Entry::Tensor(slot)) => Some(slot.offset),
        _ => None,
    };
    plan_shapes(program, &shapes, &offset, options)
}

fn plan_shapes(
    program: &Program,
    shapes: &Shapes<'_>,
    offset: &dyn Fn(ValueId) -> Option<u64>,
    options: PlanOptions,
) -> Result<ProgramPlan> {
    let lifetimes = lifetimes(program, shapes, offset);
    let own = lifetimes.iter().filter(|lifetime| lifetime.owner == lifetime.value);
    let blocks = own.clone().map(Lifetime::block).collect::<Result<Vec<_>>>()?;
    let plan = plan(&blocks, options)?;
    let offsets: HashMap<_, _> =
        own.map(|own| own.value).zip(plan.offsets.iter().copied()).collect();
    let tensor = |lifetime: &Lifetime<'_>| {
        let offset = offsets.get(&lifetime.owner).copied();
        let is_view = lifetime.owner != lifetime.value;
        Ok(PlannedTensor {
            value: lifetime.value,
            name: program.main.name(lifetime.value).to_owned(),
            dtype: lifetime.dtype,
            shape: lifetime.shape.to_vec(),
            steps: lifetime.steps.clone(),
            block: lifetime.block()?,
            offset: offset.ok_or_else(|| Error::internal("a view of nothing"))?,
            shares: is_view.then(|| program.main.name(lifetime.owner).to_owned()),
        })
    };
    let tensors = lifetimes.iter().map(tensor).collect::<Result<_>>()?;
    let steps = program.main.nodes.len() as u64;
    let (first_step, barrier) = (shapes.start, shapes.barrier.clone());
    Ok(ProgramPlan { plan, tensors, first_step, steps, barrier })
}

/// A tensor in the arena, and when it is needed.
#[derive(Debug)]
struct Lifetime<'s> {
    value: ValueId,
    /// The value whose bytes it has: itself, unless it is a view or is written over an input.
    owner: ValueId,
    dtype: DataType,
    shape: &'s [usize],
    /// Where it lies already.
    offset: Option<u64>,
    /// The steps that need it.
    steps: Range<u64>,
    /// The end of the steps that need it or, unless it is a view, a view of it.
    end_of_bytes: u64,
}

impl Lifetime<'_> {
    fn block(&self) -> Result<Block> {
        let bytes = byte_len(self.dtype, self.shape)?;
        let steps = self.steps.start..self.end_of_bytes;
        let offset = self.offset.filter(|_| bytes > 0);
        Ok(Block { offset, ..Block::new(steps, bytes).aligned(Alignment::new(ALIGNMENT)?) })
    }
}

/// The tensors of a program that lie in the arena, by their first step.
fn lifetimes<'s>(
    program: &Program,
    shapes: &'s Shapes<'_>,
    offset: &dyn Fn(ValueId) -> Option<u64>,
) -> Vec<Lifetime<'s>> {
    let main = &program.main;
    let steps = main.nodes.len() as u64;
    let start = shapes.start;
    // The node of the barrier still reads its inputs, so its step counts.
    let end = shapes.barrier.as_ref().map_or(steps, |barrier| barrier.step + 1).max(start + 1);
    let dead = (1..end).zip(&main.dead_after);
    let ends: HashMap<_, _> =
        dead.flat_map(|(end, values)| values.iter().map(move |value| (*value, end))).collect();
    let given = shapes.given.iter().map(|value| (start, *value));
    let outputs = (0..)
        .zip(&main.nodes)
        .skip_while(|(step, _)| *step < start)
        .flat_map(|(step, node)| node.outputs.iter().flatten().map(move |value| (step, *value)));
    let lifetime = |(first, value)| {
        let Some(Known::Tensor { dtype, shape, .. }) = shapes.get(value) else { return None };
        // A value that no step needs last stays until the end.
        let (owner, end) = (shapes.owner(value), ends.get(&value).copied().unwrap_or(end));
        let (dtype, steps) = (*dtype, first..end);
        let offset = if first == start { offset(value) } else { None };
        Some(Lifetime { value, owner, dtype, shape, offset, steps, end_of_bytes: end })
    };
    let lifetimes = given.chain(outputs).filter_map(lifetime);
    keep_bytes(lifetimes.filter(|lifetime| !shapes.is_weight(lifetime.owner)).collect())
}

/// The bytes of a tensor live as long as its views.
fn keep_bytes(mut lifetimes: Vec<Lifetime<'_>>) -> Vec<Lifetime<'_>> {
    let mut last: HashMap<ValueId, u64> = HashMap::new();
    for lifetime in &lifetimes {
        let end = last.entry(lifetime.owner).or_default();
        *end = lifetime.steps.end.max(*end);
    }
    for lifetime in lifetimes.iter_mut().filter(|lifetime| lifetime.owner == lifetime.value) {
        last.get(&lifetime.value).into_iter().for_each(|end| lifetime.end_of_bytes = *end);
    }
    lifetimes
}
