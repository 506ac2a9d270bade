//! How a step applies a kernel: its inputs are read where they lie, its outputs get their places.
//!
//! The result of an elementwise kernel is written over an input that nothing needs after this step.
//! The plan follows the same rule, so both put the result in the same place.

use onnx_container::{Buffer, ByteSize, DataType, element_count};

use super::places::Places;
use super::runner::{At, Runner, Watch, not_in_memory, slot_of};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::call::{Call, Operand, OutSpec};
use crate::kernel::in_place::{self, Parts};
use crate::kernel::run_cx::{Output, RunCx};
use crate::kernel::{Alias, Kernel};
use crate::memory::Span;
use crate::memory::table::{Entry, Slot, Stored, TensorTable, byte_len, dims};
use crate::numeric::nan::settle;
use crate::program::{Node, ValueId};
use crate::runnable::check_outputs;
use crate::value::Value;

impl Runner {
    /// Applies `kernel` to the inputs of `node`, and returns the entry of each output, `None` where
    /// it is left out.
    pub(super) fn apply(
        &mut self,
        kernel: &dyn Kernel,
        node: &Node,
        at: At<'_>,
        table: &TensorTable,
        watch: &dyn Watch,
    ) -> Result<Vec<Option<Entry>>> {
        let inputs: Vec<Option<&Entry>> = inputs(node, table)?;
        let most = self.memory.limit();
        let call = Call::new(node, self.operands(&inputs)?).within(most);
        let specs = kernel.infer(&call)?;
        check_outputs(node, &specs)?;
        if let Alias::View(i) = kernel.alias(&call)? {
            let entry = inputs.get(i).copied().flatten();
            let entry =
                entry.ok_or_else(|| Error::internal("a view of an input that is left out"))?;
            return Ok(vec![Some(self.view(entry, specs.first())?)]);
        }
        let dies = |i| self.dies(node, at, &inputs, i);
        if let Some((i, parts)) = in_place::place(kernel, &call, &specs, dies) {
            let own = inputs.get(i).copied().flatten().and_then(slot_of);
            self.overwritten = own.map_or(Ok(None), |own| self.kept(own, watch))?;
            return self.write_over(kernel, node, at, &inputs, &specs, (i, &parts));
        }
        let slots = self.place(node, at, &specs)?;
        let spans: Vec<_> = inputs.iter().flatten().filter_map(|entry| slot_of(entry)).collect();
        let reads = spans.iter().map(|slot| slot.span()).collect::<Result<Vec<_>>>()?;
        let writes = slots.iter().flatten().map(Slot::span).collect::<Result<Vec<_>>>()?;
        let values = {
            let (reads, writes) = self.memory.borrow_step(&reads, &writes)?;
            let operands = operands(&inputs, reads.into_iter().map(Some).collect())?;
            let outputs = outputs(&specs, &slots, writes);
            let mut cx = RunCx::new(Call::new(node, operands).within(most), outputs);
            kernel.run(&mut cx).map(|()| cx.into_values())
        };
        if kernel.leaves_nans() {
            self.settle(&slots, &writes)?;
        }
        match values {
            Ok(values) => entries(node, slots, values),
            Err(error) => {
                slots
                    .into_iter()
                    .flatten()
                    .for_each(|slot| self.release(Some(Entry::Tensor(slot))));
                Err(error)
            }
        }
    }

    /// Every NaN that was written to `slots`, which lie at `spans`, becomes the one NaN of its
    /// type.
    fn settle(&mut self, slots: &[Option<Slot>], spans: &[Span]) -> Result<()> {
        let (_, written) = self.memory.borrow_step(&[], spans)?;
        let mut written = slots.iter().flatten().zip(written);
        written.try_for_each(|(slot, bytes)| settle(slot.dtype, bytes))?;
        Ok(())
    }

    /// Whether nothing but this step needs the bytes of input `i`.
    fn dies(&self, node: &Node, at: At<'_>, inputs: &[Option<&Entry>], i: usize) -> bool {
        let dead = at.block.dead_after.get(at.index);
        let value = node.inputs.get(i).copied().flatten();
        let is_last = value.is_some_and(|value| dead.is_some_and(|dead| dead.contains(&value)));
        let slot = inputs.get(i).copied().flatten().and_then(slot_of);
        let span = slot.and_then(|slot| slot.span().ok());
        is_last && span.is_some_and(|span| self.memory.holders(span) == 1)
    }

    /// The bytes at `own`, which are about to be written over, if `watch` has to have them; and
    /// where they are.
    fn kept(&self, own: &Slot, watch: &dyn Watch) -> Result<Option<(u64, Buffer)>> {
        let span = own.span()?;
        let keep = || Ok((own.offset, Buffer::from(self.memory.read(span)?.to_vec())));
        watch.needs(span, &self.memory).then(keep).transpose()
    }

    /// Applies `kernel` so that its result is written over input `i`, part by part.
    fn write_over(
        &mut self,
        kernel: &dyn Kernel,
        node: &Node,
        at: At<'_>,
        inputs: &[Option<&Entry>],
        specs: &[OutSpec],
        (i, parts): (usize, &Parts),
    ) -> Result<Vec<Option<Entry>>> {
        let own = inputs.get(i).copied().flatten().and_then(slot_of);
        let own = own.ok_or_else(|| Error::internal("a result in the place of nothing"))?;
        let slot = self.slot_over(node, at, own, specs)?;
        let span = own.span()?;
        let slots = || inputs.iter().map(|entry| entry.and_then(slot_of));
        let is_own = |slot: &Slot| slot.offset == own.offset;
        let same: Vec<_> = slots().map(|slot| slot.is_some_and(is_own)).collect();
        let others = slots().flatten().filter(|slot| !is_own(slot));
        let reads = others.map(Slot::span).collect::<Result<Vec<_>>>()?;
        let (reads, writes) = self.memory.borrow_step(&reads, &[span])?;
        let mut reads = reads.into_iter();
        let bytes = same.iter().zip(slots()).filter(|(_, slot)| slot.is_some());
        let bytes = bytes.map(|(same, _)| if *same { None } else { reads.next() }).collect();
        let call = Call::new(node, operands(inputs, bytes)?);
        let is_same = |j: usize| same.debug_at(j, false);
        for bytes in writes {
            parts.run(kernel, &call, specs, &is_same, bytes)?;
        }
        self.memory.retain(span);
        Ok(vec![Some(Entry::Tensor(slot))])
    }

    /// The slot of a result that is written over `own`, which is where the plan puts it too.
    fn slot_over(&self, node: &Node, at: At<'_>, own: &Slot, specs: &[OutSpec]) -> Result<Slot> {
        let value = node.outputs.first().copied().flatten();
        let (Some(value), [OutSpec::Tensor(dtype, shape)]) = (value, specs) else {
            return Err(Error::internal("a result in place that nobody asked for"));
        };
        let slot = Slot::new(own.offset, *dtype, shape.clone());
        let places = at.places.filter(|places| places.reach(at.index));
        let planned = places.map(|places| places.slot(value, *dtype, shape)).transpose()?;
        match planned.filter(|planned| planned.offset != slot.offset) {
            Some(planned) => {
                let (planned, found) = (planned.offset, slot.offset);
                let reason =
                    format!("the plan has the result at {planned}, its input is at {found}");
                Err(Error::internal(reason))
            }
            None => Ok(slot),
        }
    }

    /// What is known of the inputs, which lie in M.
    fn operands<'a>(&'a self, inputs: &[Option<&'a Entry>]) -> Result<Vec<Operand<'a>>> {
        let bytes = inputs.iter().flatten().filter_map(|entry| slot_of(entry));
        let bytes = bytes.map(|slot| self.memory.read(slot.span()?).map(Some));
        operands(inputs, bytes.collect::<Result<_>>()?)
    }

    /// A slot in M for each output that is a tensor of numbers and is asked for.
    fn place(&mut self, node: &Node, at: At<'_>, specs: &[OutSpec]) -> Result<Vec<Option<Slot>>> {
        let places = at.places.filter(|places| places.reach(at.index));
        let mut slots = Vec::with_capacity(specs.len());
        for (j, spec) in specs.iter().enumerate() {
            let wanted = node.outputs.get(j).copied().flatten();
            slots.push(match (spec, wanted) {
                (OutSpec::Tensor(dtype, shape), Some(value)) if dtype.bit_width().is_some() => {
                    Some(self.slot(places, value, *dtype, shape)?)
                }
                (OutSpec::Tensor(_, shape), Some(_)) => {
                    self.check_strings(shape)?;
                    None
                }
                _ => None,
            });
        }
        Ok(slots)
    }

    /// Whether there is memory for the strings of a tensor of `shape`, however long they are.
    fn check_strings(&self, shape: &[usize]) -> Result<()> {
        let count = element_count(&dims(shape)?)?;
        let bytes = count.saturating_mul(size_of::<Buffer>() as u64);
        self.memory.check_outside(bytes)?;
        let count = usize::try_from(count).map_err(Error::internal)?;
        // An allocation that fails would end the process where the strings are made.
        Vec::<Buffer>::new().try_reserve_exact(count).map_err(|_| {
            let reason = format!("there is no memory for the {} of its strings", ByteSize(bytes));
            Error::new(ErrorKind::OutOfMemory, reason)
        })
    }

    /// A slot for `value`, held once: where `places` has it, or else by best fit.
    pub(super) fn slot(
        &mut self,
        places: Option<&Places>,
        value: ValueId,
        dtype: DataType,
        shape: &[usize],
    ) -> Result<Slot> {
        if let Some(places) = places {
            let slot = places.slot(value, dtype, shape)?;
            self.memory.reserve(slot.span()?)?;
            return Ok(slot.clone());
        }
        let span = self.memory.allocate(byte_len(dtype, shape)?)?;
        Ok(Slot::new(span.offset, dtype, shape.to_vec()))
    }

    /// `entry` with the shape in `spec`, on the same bytes.
    fn view(&mut self, entry: &Entry, spec: Option<&OutSpec>) -> Result<Entry> {
        let view = match (entry, spec) {
            (Entry::Tensor(slot), Some(OutSpec::Tensor(dtype, shape))) => {
                if byte_len(*dtype, shape)? != slot.span()?.len {
                    return Err(Error::internal("a view of another length"));
                }
                Entry::Tensor(Slot::new(slot.offset, *dtype, shape.clone()))
            }
            (Entry::Outside(Value::Tensor(tensor)), Some(OutSpec::Tensor(_, shape))) => {
                let none = || Error::internal("a tensor of numbers outside of M");
                let strings = tensor.strings().ok_or_else(none)?.to_vec();
                let dims = crate::memory::table::dims(shape)?;
                Entry::Outside(onnx_container::Tensor::from_strings(dims, strings)?.into())
            }
            (Entry::Outside(value), Some(OutSpec::Outside(_))) => Entry::Outside(value.clone()),
            _ => return Err(Error::internal("a view of another kind")),
        };
        self.retain(&view)?;
        Ok(view)
    }
}

/// The entries of the inputs of `node`, `None` where one is left out.
fn inputs<'t>(node: &Node, table: &'t TensorTable) -> Result<Vec<Option<&'t Entry>>> {
    let entry = |value: &Option<ValueId>| {
        let entry = |value| table.get(value).ok_or_else(|| not_in_memory(table, value));
        value.map(entry).transpose()
    };
    node.inputs.iter().map(entry).collect()
}

/// The inputs as operands; `bytes` are those of the tensors in M, in order, as far as they can be
/// read.
fn operands<'a>(
    inputs: &[Option<&'a Entry>],
    bytes: Vec<Option<&'a [u8]>>,
) -> Result<Vec<Operand<'a>>> {
    let mut bytes = bytes.into_iter();
    let operand = |entry: &Option<&'a Entry>| {
        Ok(match entry.map(Entry::stored) {
            None => Operand::Absent,
            Some(Stored::Outside(value)) => Operand::Outside(value),
            Some(Stored::Tensor(Slot { dtype, shape, .. })) => {
                let bytes =
                    bytes.next().ok_or_else(|| Error::internal("an input without bytes"))?;
                Operand::Tensor { dtype: *dtype, shape, bytes }
            }
        })
    };
    inputs.iter().map(operand).collect()
}

/// The outputs that a kernel writes; `bytes` are those of the slots, in order.
fn outputs<'a>(
    specs: &'a [OutSpec],
    slots: &[Option<Slot>],
    bytes: Vec<&'a mut [u8]>,
) -> Vec<Output<'a>> {
    let mut bytes = bytes.into_iter();
    let each = specs.iter().zip(slots);
    let output = |(spec, slot): (&'a OutSpec, &Option<Slot>)| {
        let bytes = slot.as_ref().and_then(|_| bytes.next());
        Output { spec, bytes, value: None }
    };
    each.map(output).collect()
}

/// The entry of each output of `node`: its slot, or the value that its kernel gave.
fn entries(
    node: &Node,
    slots: Vec<Option<Slot>>,
    values: Vec<Option<Value>>,
) -> Result<Vec<Option<Entry>>> {
    let given = slots.into_iter().zip(values);
    let mut given =
        given.map(|(slot, value)| slot.map(Entry::Tensor).or_else(|| value.map(Entry::Outside)));
    let entry = |output: &Option<ValueId>| match (output, given.next().flatten()) {
        (Some(_), None) => Err(Error::internal("its kernel gives too few outputs")),
        (_, entry) => Ok(entry),
    };
    node.outputs.iter().map(entry).collect()
}
