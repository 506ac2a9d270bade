//! Where the plan of a run puts each value of the main graph.
//!
//! A plan is made when the last input is bound, from the types and shapes of the inputs, and again
//! behind each node whose shapes depend on data, with what is in memory then. Every step is checked
//! against the plan: a tensor of another type or shape than planned is an error, never a tensor in
//! a wrong place.

use onnx_container::DataType;

use super::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::registry::Registry;
use crate::memory::table::Slot;
use crate::plan::{ProgramPlan, plan_bound, plan_from_step};
use crate::program::ValueId;
use crate::value::{Type, Value};

/// The plan of a run, by value.
#[derive(Debug)]
pub(crate) struct Places {
    pub(super) plan: ProgramPlan,
    slots: Vec<Option<Slot>>,
}

impl Places {
    /// The places in `plan` for a block of so many `values`.
    fn new(plan: ProgramPlan, values: usize) -> Self {
        let mut slots = vec![None; values];
        for tensor in &plan.tensors {
            let (offset, dtype, shape) = (tensor.offset, tensor.dtype, tensor.shape.clone());
            let place = slots.get_mut(tensor.value.index());
            place.into_iter().for_each(|place| {
                *place = Some(Slot::new(offset, dtype, shape.clone()));
            });
        }
        Self { plan, slots }
    }

    /// Whether the outputs of node `index` are planned.
    pub(super) fn reach(&self, index: usize) -> bool {
        let (index, plan) = (index as u64, &self.plan);
        index >= plan.first_step && plan.barrier.as_ref().is_none_or(|barrier| index < barrier.step)
    }

    /// The place of `value`, which has to have the type and shape that were planned.
    pub(super) fn slot(&self, value: ValueId, dtype: DataType, shape: &[usize]) -> Result<&Slot> {
        let slot = self.slots.get(value.index()).and_then(Option::as_ref);
        let slot = slot.ok_or_else(|| Error::internal("a tensor that is not in the plan"))?;
        if slot.dtype != dtype || slot.shape != shape {
            let (planned, shape_of_plan) = (slot.dtype, &slot.shape);
            return Err(Error::internal(format!(
                "the plan has {planned} {shape_of_plan:?}, the step gives {dtype} {shape:?}"
            )));
        }
        Ok(slot)
    }
}

impl Machine {
    /// Plans the run, when every input is there that has to be, and puts the inputs in their
    /// places.
    pub(super) fn settle(&mut self) -> Result<()> {
        let Some(options) = self.planning else { return Ok(()) };
        (self.places, self.is_unplanned) = (Vec::new(), false);
        let mut values: Vec<(ValueId, Value)> = Vec::new();
        for input in self.program.main.inputs.iter().map(|input| input.value) {
            if self.bound.contains(&input)
                && let Some(entry) = self.table.get(input)
            {
                values.push((input, self.runner.to_value(entry)?));
            }
        }
        let facts: Vec<_> = values.iter().map(facts).collect();
        let plan = plan_bound(&self.program, self.registry(), self.memory(), &facts, options);
        let len = self.keep(plan)?;
        self.runner.memory.clear_for(len)?;
        for (id, value) in values {
            let place = self.places.last().map(|places| (places, id));
            // The table's own copy is not held while there is another one in M.
            self.table.remove(id);
            let entry = self.runner.put_at(value, place);
            let entry = entry.map_err(|error| error.with_value(self.program.main.name(id)))?;
            self.table.set(id, entry);
        }
        Ok(())
    }

    /// Plans the steps from the next one on, when the previous plan ended there because the next
    /// step is a barrier. Nodes with graphs inside run without a plan.
    pub(super) fn plan_on(&mut self) -> Result<()> {
        let Some(options) = self.planning.filter(|_| !self.places.is_empty()) else {
            return Ok(());
        };
        let has_kernel = |registry: &Registry| {
            self.program.main.nodes.get(self.pc).is_some_and(|node| registry.kernel(node).is_some())
        };
        let is_planned = self.places.last().is_some_and(|places| places.reach(self.pc));
        if self.is_unplanned || is_planned || !has_kernel(self.registry()) {
            return Ok(());
        }
        let (memory, start) = (self.memory(), self.pc as u64);
        let plan =
            plan_from_step(&self.program, self.registry(), memory, &self.table, start, options);
        let len = self.keep(plan)?;
        self.runner.memory.join(len)
    }

    /// Follows `plan` from here on, and returns its length. If it failed or is too long, the rest
    /// of the run has no plan, and the length is 0.
    fn keep(&mut self, plan: Result<ProgramPlan>) -> Result<u64> {
        match plan {
            Ok(plan) if self.runner.memory.admits(plan.plan.arena_bytes) => {
                let len = plan.plan.arena_bytes;
                self.places.push(Places::new(plan, self.program.main.names.len()));
                Ok(len)
            }
            Err(error) if error.kind() == ErrorKind::Internal => Err(error),
            // The run itself reports which node is wrong, or that the memory does not suffice.
            Ok(_) | Err(_) => {
                self.is_unplanned = true;
                Ok(0)
            }
        }
    }
}

/// What a plan needs to know of an input.
fn facts((id, value): &(ValueId, Value)) -> (ValueId, Type, Vec<usize>) {
    let shape = if let Value::Tensor(tensor) = value { tensor.shape() } else { Vec::new() };
    (*id, value.ty(), shape)
}
