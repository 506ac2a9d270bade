//! The step transition: read a node's inputs through T, apply its kernel, write its outputs through T.
//!
//! An entry of a table holds its range of M once: a copy of an entry holds it once more, and an entry that
//! is removed gives it back. A value is removed after its last use.

use std::collections::HashMap;
use std::sync::Arc;

use onnx_container::DataType;

use super::control;
use super::places::Places;
use crate::bodies::Body;
use crate::call::{Call, Operand, OutSpec, Output, RunCx};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::{Alias, Kernel, Registry};
use crate::memory::Memory;
use crate::program::{Block, Node, ValueId, block_of};
use crate::table::{Entry, Slot, TensorTable, byte_len};
use crate::value::Value;

/// What a run may use at most.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Limits {
    /// The largest length of the arena in bytes.
    pub memory_bytes: Option<u64>,
    /// The largest number of steps, those of inner blocks included.
    pub steps: Option<u64>,
}

impl Limits {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The arena may have this many bytes.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// A run may take this many steps.
    #[must_use]
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = Some(steps);
        self
    }
}

/// A value that a step read or wrote.
#[derive(Debug, Clone)]
pub struct Touched {
    /// Its name.
    pub name: String,
    /// Where it is: for a tensor the offset, the type and the shape.
    pub entry: Entry,
}

/// What one step did.
#[derive(Debug, Clone)]
pub struct StepRecord {
    /// Where the node is: its index, behind those of the nodes around it: `17/Loop[3]/4`.
    pub path: String,
    /// The name of the node.
    pub node: String,
    /// The operator, with its domain unless that is ONNX's.
    pub op: String,
    /// The version of the operator's domain that the model imports.
    pub version: i64,
    /// The inputs in order, without those that are left out.
    pub reads: Vec<Touched>,
    /// The outputs in order, without those that are left out.
    pub writes: Vec<Touched>,
}

/// What is shown every step, with the memory as the step left it.
pub type Observer<'o> = dyn FnMut(&StepRecord, &Memory) -> Result<()> + 'o;

/// A node to step to: in which block, and the path of the block (empty, or with a `/` at its end).
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'b> {
    pub(crate) block: &'b Block,
    pub(crate) index: usize,
    pub(crate) path: &'b str,
    /// Where the plan of the run puts the values of the block, if it has one.
    pub(crate) places: Option<&'b Places>,
}

/// What all blocks of a run share.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) registry: Registry,
    pub(crate) memory: Memory,
    limits: Limits,
    steps: u64,
}

impl Runner {
    pub(crate) fn new(registry: Registry, memory: Memory, limits: Limits) -> Self {
        Self { registry, memory, limits, steps: 0 }
    }

    /// Forgets the steps and every range of the arena.
    pub(crate) fn restart(&mut self) {
        self.steps = 0;
        self.memory.clear();
    }

    /// Counts one more step, or iteration of a loop.
    pub(crate) fn count_step(&mut self) -> Result<()> {
        self.steps += 1;
        match self.limits.steps {
            Some(limit) if self.steps > limit => {
                let reason = format!("the run takes more than {limit} steps");
                Err(Error::new(ErrorKind::OutOfSteps, reason))
            }
            _ => Ok(()),
        }
    }

    /// The block of `body`, whose constants get addresses.
    pub(crate) fn block(&mut self, body: &Body) -> Result<Block> {
        let imports = HashMap::from([(String::new(), body.version)]);
        block_of(&body.graph, &imports, self.memory.weights_mut())
    }

    /// The error of a node that nothing here can run.
    pub(crate) fn unsupported(&self, node: &Node) -> Option<Error> {
        let known = self.registry.kernel(node).is_some() || control::of(node).is_some();
        (!known).then(|| {
            let version = node.version;
            let reason = format!("there is no kernel for this operator at version {version}");
            Error::new(ErrorKind::UnsupportedOp, reason)
        })
    }

    /// Takes the step of one node.
    pub(crate) fn step(
        &mut self,
        at: At<'_>,
        table: &mut TensorTable,
        observer: &mut Observer<'_>,
    ) -> Result<StepRecord> {
        let node = at.block.nodes.get(at.index);
        let node = node.ok_or_else(|| Error::internal("a step behind the last node"))?;
        let path = format!("{}{}", at.path, at.index);
        self.step_at(node, &path, at, table, observer)
            .map_err(|error| error.at_node(&node.name, node.op()).at_step(path))
    }

    fn step_at(
        &mut self,
        node: &Node,
        path: &str,
        at: At<'_>,
        table: &mut TensorTable,
        observer: &mut Observer<'_>,
    ) -> Result<StepRecord> {
        self.count_step()?;
        let reads = touched(at.block, table, &node.inputs);
        let entries = match self.registry.kernel(node) {
            Some(kernel) => {
                let kernel = Arc::clone(kernel);
                self.apply(&*kernel, node, at, table)?
            }
            None => match control::of(node) {
                Some(run) => {
                    run(&mut control::Frame { runner: self, node, path, table, observer })?
                }
                None => {
                    return Err(self
                        .unsupported(node)
                        .unwrap_or_else(|| Error::internal("a lookup")));
                }
            },
        };
        for (output, entry) in node.outputs.iter().zip(entries) {
            let replaced = match (output, entry) {
                (Some(output), Some(entry)) => table.set(*output, entry),
                (None, unused) => unused,
                (Some(_), None) => return Err(Error::internal("an output that nobody gave")),
            };
            self.release(replaced);
        }
        let writes = touched(at.block, table, &node.outputs);
        let record = StepRecord {
            path: path.to_owned(),
            node: node.name.clone(),
            op: node.op(),
            version: node.version,
            reads,
            writes,
        };
        observer(&record, &self.memory)?;
        for value in at.block.dead_after.get(at.index).into_iter().flatten() {
            let entry = table.remove(*value);
            self.release(entry);
        }
        Ok(record)
    }

    /// Applies `kernel` to the inputs of `node`; the entry of each output, `None` where it is left out.
    fn apply(
        &mut self,
        kernel: &dyn Kernel,
        node: &Node,
        at: At<'_>,
        table: &TensorTable,
    ) -> Result<Vec<Option<Entry>>> {
        let inputs: Vec<Option<&Entry>> = inputs(node, table)?;
        let call = Call::new(node, self.operands(&inputs)?);
        let specs = kernel.infer(&call)?;
        if let Alias::View(i) = kernel.alias(&call)? {
            let entry = inputs.get(i).copied().flatten();
            let entry =
                entry.ok_or_else(|| Error::internal("a view of an input that is left out"))?;
            return Ok(vec![Some(self.view(entry, specs.first())?)]);
        }
        let slots = self.place(node, at, &specs)?;
        let spans: Vec<_> = inputs.iter().flatten().filter_map(|entry| slot_of(entry)).collect();
        let reads = spans.iter().map(|slot| slot.span()).collect::<Result<Vec<_>>>()?;
        let writes = slots.iter().flatten().map(Slot::span).collect::<Result<Vec<_>>>()?;
        let values = {
            let (reads, writes) = self.memory.borrow_step(&reads, &writes)?;
            let operands = operands(&inputs, reads)?;
            let mut cx = RunCx::new(Call::new(node, operands), outputs(&specs, &slots, writes));
            kernel.run(&mut cx).map(|()| cx.into_values())
        };
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

    /// What is known of the inputs, which lie in M.
    fn operands<'a>(&'a self, inputs: &[Option<&'a Entry>]) -> Result<Vec<Operand<'a>>> {
        let bytes = inputs.iter().flatten().filter_map(|entry| slot_of(entry));
        let bytes = bytes.map(|slot| self.memory.read(slot.span()?)).collect::<Result<_>>()?;
        operands(inputs, bytes)
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
                _ => None,
            });
        }
        Ok(slots)
    }

    /// A slot for `value`, held once: where `places` has it, or else by best fit.
    fn slot(
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
        Ok(Slot { offset: span.offset, dtype, shape: shape.to_vec() })
    }

    /// `entry` with the shape in `spec`, on the same bytes.
    fn view(&mut self, entry: &Entry, spec: Option<&OutSpec>) -> Result<Entry> {
        let view = match (entry, spec) {
            (Entry::Tensor(slot), Some(OutSpec::Tensor(dtype, shape))) => {
                if byte_len(*dtype, shape)? != slot.span()?.len {
                    return Err(Error::internal("a view of another length"));
                }
                Entry::Tensor(Slot { offset: slot.offset, dtype: *dtype, shape: shape.clone() })
            }
            (Entry::Outside(Value::Tensor(tensor)), Some(OutSpec::Tensor(_, shape))) => {
                let strings = tensor.strings().unwrap_or_default().to_vec();
                let dims = crate::table::dims(shape)?;
                Entry::Outside(onnx_container::Tensor::from_strings(dims, strings)?.into())
            }
            (Entry::Outside(value), Some(OutSpec::Outside(_))) => Entry::Outside(value.clone()),
            _ => return Err(Error::internal("a view of another kind")),
        };
        self.retain(&view)?;
        Ok(view)
    }

    /// The entry of `value`, whose elements are copied into M where they have a place there.
    pub(crate) fn put(&mut self, value: Value) -> Result<Entry> {
        self.put_at(value, None)
    }

    /// As [`put`](Self::put), to where a plan puts the value of this id.
    pub(super) fn put_at(
        &mut self,
        value: Value,
        place: Option<(&Places, ValueId)>,
    ) -> Result<Entry> {
        let Value::Tensor(tensor) = &value else { return Ok(Entry::Outside(value)) };
        let Some(bytes) = tensor.as_bytes() else { return Ok(Entry::Outside(value)) };
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let id = place.map_or(ValueId::new(usize::MAX), |(_, id)| id);
        let slot = self.slot(place.map(|(places, _)| places), id, dtype, &shape)?;
        self.memory.write(slot.span()?, bytes)?;
        Ok(Entry::Tensor(slot))
    }

    /// Holds the range of `entry` once more.
    pub(crate) fn retain(&mut self, entry: &Entry) -> Result<()> {
        if let Entry::Tensor(slot) = entry {
            self.memory.retain(slot.span()?);
        }
        Ok(())
    }

    /// Gives back the range of an entry that is in no table any more.
    pub(crate) fn release(&mut self, entry: Option<Entry>) {
        if let Some(Entry::Tensor(slot)) = entry
            && let Ok(span) = slot.span()
        {
            self.memory.release(span);
        }
    }

    /// Runs `block` on `inputs`, whose ranges it takes over, with its captures from `outer`; its outputs,
    /// whose ranges are the caller's.
    pub(crate) fn run_block(
        &mut self,
        block: &Block,
        outer: &TensorTable,
        inputs: Vec<Entry>,
        path: &str,
        observer: &mut Observer<'_>,
    ) -> Result<Vec<Entry>> {
        let mut table = TensorTable::new(block.names.clone());
        let result = self.fill(block, outer, inputs, &mut table).and_then(|()| {
            for index in 0..block.nodes.len() {
                self.step(At { block, index, path, places: None }, &mut table, observer)?;
            }
            self.block_outputs(block, &table)
        });
        let values: Vec<_> = table.iter().map(|(value, _, _)| value).collect();
        for value in values {
            let entry = table.remove(value);
            self.release(entry);
        }
        result
    }

    /// Sets constants, captures and inputs of a block that is about to run.
    fn fill(
        &mut self,
        block: &Block,
        outer: &TensorTable,
        inputs: Vec<Entry>,
        table: &mut TensorTable,
    ) -> Result<()> {
        for (value, entry) in &block.constants {
            table.set(*value, entry.clone());
        }
        for (outside, inside) in &block.captures {
            let entry = outer.get(*outside).ok_or_else(|| not_in_memory(outer, *outside))?.clone();
            self.retain(&entry)?;
            table.set(*inside, entry);
        }
        if inputs.len() != block.inputs.len() {
            let (expected, found) = (block.inputs.len(), inputs.len());
            let reason = format!("its graph has {expected} inputs, the operator gives it {found}");
            inputs.into_iter().for_each(|entry| self.release(Some(entry)));
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
        for (declared, entry) in block.inputs.iter().zip(inputs) {
            let replaced = table.set(declared.value, entry);
            self.release(replaced);
        }
        Ok(())
    }

    fn block_outputs(&mut self, block: &Block, table: &TensorTable) -> Result<Vec<Entry>> {
        let mut outputs = Vec::with_capacity(block.outputs.len());
        for output in &block.outputs {
            let entry =
                table.get(output.value).ok_or_else(|| not_in_memory(table, output.value))?;
            self.retain(entry)?;
            outputs.push(entry.clone());
        }
        Ok(outputs)
    }
}

fn slot_of(entry: &Entry) -> Option<&Slot> {
    match entry {
        Entry::Tensor(slot) => Some(slot),
        Entry::Outside(_) => None,
    }
}

fn not_in_memory(table: &TensorTable, value: ValueId) -> Error {
    Error::internal("a value is used that is not in memory").with_value(table.name(value))
}

/// The entries of the inputs of `node`, `None` where one is left out.
fn inputs<'t>(node: &Node, table: &'t TensorTable) -> Result<Vec<Option<&'t Entry>>> {
    let entry = |value: &Option<ValueId>| {
        let entry = |value| table.get(value).ok_or_else(|| not_in_memory(table, value));
        value.map(entry).transpose()
    };
    node.inputs.iter().map(entry).collect()
}

/// The inputs as operands; `bytes` are those of the tensors in M, in order.
fn operands<'a>(inputs: &[Option<&'a Entry>], bytes: Vec<&'a [u8]>) -> Result<Vec<Operand<'a>>> {
    let mut bytes = bytes.into_iter();
    let operand = |entry: &Option<&'a Entry>| {
        Ok(match entry {
            None => Operand::Absent,
            Some(Entry::Outside(value)) => Operand::Outside(value),
            Some(Entry::Tensor(Slot { dtype, shape, .. })) => {
                let bytes =
                    bytes.next().ok_or_else(|| Error::internal("an input without bytes"))?;
                Operand::Tensor { dtype: *dtype, shape, bytes: Some(bytes) }
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

/// The values in `ids` with their entries.
fn touched(block: &Block, table: &TensorTable, ids: &[Option<ValueId>]) -> Vec<Touched> {
    let touched = |value: ValueId| {
        Some(Touched { name: block.name(value).to_owned(), entry: table.get(value)?.clone() })
    };
    ids.iter().flatten().filter_map(|value| touched(*value)).collect()
}
