//! Where the plan of a run puts each value of the main graph.
//!
//! A plan is made when the last input is bound, from the types and shapes of the inputs. A step is held to
//! it: a tensor of another type or shape than planned is an error, never a tensor in a wrong place.

use onnx_container::DataType;

use super::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{ProgramPlan, plan_bound};
use crate::program::ValueId;
use crate::table::Slot;
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
                *place = Some(Slot { offset, dtype, shape: shape.clone() });
            });
        }
        Self { plan, slots }
    }

    /// Whether the outputs of node `index` are planned.
    pub(super) fn reach(&self, index: usize) -> bool {
        self.plan.barrier.as_ref().is_none_or(|barrier| (index as u64) < barrier.step)
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
    /// Plans the run if every input is there that has to be, and puts the inputs in their places.
    pub(super) fn settle(&mut self) -> Result<()> {
        let Some(options) = self.planning.filter(|_| self.check_inputs().is_ok()) else {
            return Ok(());
        };
        let mut values: Vec<(ValueId, Value)> = Vec::new();
        for input in self.program.main.inputs.iter().map(|input| input.value) {
            if self.bound.contains(&input)
                && let Some(entry) = self.table.get(input)
            {
                values.push((input, self.runner.to_value(entry)?));
            }
        }
        let facts: Vec<_> = values.iter().map(facts).collect();
        self.places = match plan_bound(&self.program, self.registry(), &facts, options) {
            Ok(plan) if self.memory().may_have(plan.plan.arena_bytes) => {
                Some(Places::new(plan, self.program.main.names.len()))
            }
            Err(error) if error.kind() == ErrorKind::Internal => return Err(error),
            // The run says which node is wrong, or that the memory does not suffice.
            Ok(_) | Err(_) => None,
        };
        let len = self.places.as_ref().map_or(0, |places| places.plan.plan.arena_bytes);
        self.runner.memory.clear_for(len)?;
        for (id, value) in values {
            let place = self.places.as_ref().map(|places| (places, id));
            let entry = self.runner.put_at(value, place)?;
            self.table.set(id, entry);
        }
        Ok(())
    }
}

/// What a plan needs to know of an input.
fn facts((id, value): &(ValueId, Value)) -> (ValueId, Type, Vec<usize>) {
    let shape = if let Value::Tensor(tensor) = value { tensor.shape() } else { Vec::new() };
    (*id, value.ty(), shape)
}
