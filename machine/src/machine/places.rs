//! Where the plan of a run puts each value of the main graph.
//!
//! A plan is made when the inputs are placed, from the types and shapes of the inputs, and again
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
    /// Plans the run and places the inputs: copies the elements of the bound values to where the
    /// plan has them in M. The first step does it, so only what looks at the plan, the table or M
    /// before that step has to call it. It does nothing when the inputs are placed already. If one
    /// more input is bound afterwards, all are placed again.
    ///
    /// # Errors
    /// [`ErrorKind::Input`] when an input is missing; [`ErrorKind::OutOfMemory`] with the name of
    /// the value for which M has no room.
    pub fn place_inputs(&mut self) -> Result<()> {
        if self.is_placed {
            return Ok(());
        }
        self.check_inputs()?;
        let values = self.bound_values()?;
        let len = self.plan_run(&values)?;
        self.runner.memory.clear_for(len)?;
        for (id, value) in values {
            let place = self.places.last().map(|places| (places, id));
            let entry = self.runner.put_at(value, place);
            let entry = entry.map_err(|error| error.with_value(self.program.main.name(id)))?;
            self.table.set(id, entry);
        }
        self.is_placed = true;
        Ok(())
    }

    /// The inputs that are bound, in the order of the graph.
    fn bound_values(&self) -> Result<Vec<(ValueId, Value)>> {
        let inputs = self.program.main.inputs.iter().map(|input| input.value);
        let bound = inputs.filter(|input| self.bound.contains(input));
        let entries = bound.filter_map(|input| Some((input, self.table.get(input)?)));
        entries.map(|(input, entry)| Ok((input, self.runner.to_value(entry)?))).collect()
    }

    /// Plans the run on `inputs`, and returns the length of the plan, 0 if there is none.
    fn plan_run(&mut self, inputs: &[(ValueId, Value)]) -> Result<u64> {
        (self.places, self.is_unplanned) = (Vec::new(), false);
        let Some(options) = self.planning else { return Ok(0) };
        let facts: Vec<_> = inputs.iter().map(facts).collect();
        let plan = plan_bound(&self.program, self.registry(), self.memory(), &facts, options);
        self.keep(plan)
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
