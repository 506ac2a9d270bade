//! The step transition: read a node's inputs through T, apply its kernel, write its outputs through
//! T.
//!
//! An entry of a table holds its range of M once: a copy of an entry holds it once more, and an
//! entry that is removed gives it back. A value is removed after its last use.

use std::collections::HashMap;
use std::sync::Arc;

use onnx_container::Buffer;

use super::control;
use super::places::Places;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::bodies::Body;
use crate::kernels::registry::Registry;
use crate::memory::table::{Entry, Slot, Stored, TensorTable};
use crate::memory::{Memory, Span};
use crate::program::{Block, Node, ValueId, block_of};
use crate::runnable::check_node;
use crate::value::Value;

/// What a run may use at most.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct RunLimits {
    /// The largest number of bytes of the arena that a run may need, exactly. The same bound
    /// applies, one by one, to what lies outside of the arena: a tensor of strings, a sequence, or
    /// what a loop collects.
    pub memory_bytes: Option<u64>,
    /// The largest number of steps, those of inner blocks included.
    pub steps: Option<u64>,
}

impl RunLimits {
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
#[non_exhaustive]
pub struct Touched {
    /// Its name.
    pub name: String,
    /// Where it is: for a tensor the offset, the type and the shape.
    pub entry: Entry,
    /// The bytes that were read, if the step then wrote its result over them. They are kept only
    /// for an observer.
    pub overwritten: Option<Buffer>,
    /// The number of its content in M, when the step read or wrote it.
    pub(crate) content: Option<u64>,
}

impl Touched {
    /// The value at `entry`, as it is in `memory`.
    pub(crate) fn new(name: &str, entry: &Entry, memory: &Memory) -> Self {
        let span = slot_of(entry).and_then(|slot| slot.span().ok());
        let content = span.and_then(|span| memory.content(span));
        Self { name: name.to_owned(), entry: entry.clone(), overwritten: None, content }
    }

    /// The bytes that were read or written, of a tensor in M.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when they do not lie in `memory`.
    pub fn bytes<'t>(&'t self, memory: &'t Memory) -> Result<Option<&'t [u8]>> {
        match (&self.overwritten, self.entry.stored()) {
            (Some(bytes), _) => Ok(Some(bytes)),
            (None, Stored::Tensor(slot)) => memory.read(slot.span()?).map(Some),
            (None, Stored::Outside(_)) => Ok(None),
        }
    }
}

/// What one step did.
#[derive(Debug, Clone)]
#[non_exhaustive]
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

/// A function that gets the record of every step, with the memory as the step left it.
pub type Observer<'o> = dyn FnMut(&StepRecord, &Memory) -> Result<()> + 'o;

/// Who is shown the steps of a run.
pub(crate) trait Watch {
    /// Whether the record of a step has to have the bytes at `span`, if the step writes over them.
    fn needs(&self, span: Span, memory: &Memory) -> bool;

    /// Gets the record of a step, with the memory as the step left it.
    fn show(&mut self, record: &StepRecord, memory: &Memory) -> Result<()>;
}

/// Nobody is shown the steps.
pub(crate) struct Nobody;

impl Watch for Nobody {
    fn needs(&self, _: Span, _: &Memory) -> bool {
        false
    }

    fn show(&mut self, _: &StepRecord, _: &Memory) -> Result<()> {
        Ok(())
    }
}

/// An observer, of which nothing is known.
pub(crate) struct Shown<'a, 'o>(pub(crate) &'a mut Observer<'o>);

impl Watch for Shown<'_, '_> {
    fn needs(&self, _: Span, _: &Memory) -> bool {
        true
    }

    fn show(&mut self, record: &StepRecord, memory: &Memory) -> Result<()> {
        (self.0)(record, memory)
    }
}

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
    limits: RunLimits,
    steps: u64,
    /// The bytes that the step wrote over, and where.
    pub(super) overwritten: Option<(u64, Buffer)>,
}

impl Runner {
    pub(crate) fn new(registry: Registry, memory: Memory, limits: RunLimits) -> Self {
        Self { registry, memory, limits, steps: 0, overwritten: None }
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

    /// Takes the step of one node.
    pub(crate) fn step(
        &mut self,
        at: At<'_>,
        table: &mut TensorTable,
        watch: &mut dyn Watch,
    ) -> Result<StepRecord> {
        let node = at.block.nodes.get(at.index);
        let node = node.ok_or_else(|| Error::internal("a step behind the last node"))?;
        let path = format!("{}{}", at.path, at.index);
        self.step_at(node, &path, at, table, watch)
            .map_err(|error| error.at_node(&node.name, node.op()).at_step(path))
    }

    fn step_at(
        &mut self,
        node: &Node,
        path: &str,
        at: At<'_>,
        table: &mut TensorTable,
        watch: &mut dyn Watch,
    ) -> Result<StepRecord> {
        self.count_step()?;
        if !self.registry.is_users(node) {
            let input = |i: usize| table.get(node.inputs.get(i).copied()??);
            node.check_types(|i| input(i).map(Entry::ty))?;
        }
        let mut reads = touched(at.block, table, &self.memory, &node.inputs);
        let entries = match self.registry.kernel(node) {
            Some(kernel) => {
                let kernel = Arc::clone(kernel);
                self.apply(&*kernel, node, at, table, watch)?
            }
            None => match control::of(node) {
                Some(run) => run(&mut control::Frame { runner: self, node, path, table, watch })?,
                None => {
                    check_node(node, &self.registry)?;
                    return Err(Error::internal("a kernel is known and is not there"));
                }
            },
        };
        for entry in entries.iter().flatten() {
            if let Entry::Outside(value) = entry {
                self.memory.check_outside(value.held_bytes())?;
            }
        }
        if let Some((offset, bytes)) = self.overwritten.take() {
            let is_it = |read: &&mut Touched| matches!(&read.entry, Entry::Tensor(slot) if slot.offset == offset);
            reads.iter_mut().filter(is_it).for_each(|read| read.overwritten = Some(bytes.clone()));
        }
        node.check_outputs(entries.len())?;
        for (j, entry) in entries.into_iter().enumerate() {
            let replaced = match (node.outputs.get(j).copied().flatten(), entry) {
                (Some(output), Some(entry)) => table.set(output, entry),
                (None, unused) => unused,
                (Some(_), None) => {
                    return Err(Error::internal("a kernel gave no value for an output"));
                }
            };
            self.release(replaced);
        }
        let writes = touched(at.block, table, &self.memory, &node.outputs);
        let record = StepRecord {
            path: path.to_owned(),
            node: node.name.clone(),
            op: node.op(),
            version: node.version,
            reads,
            writes,
        };
        watch.show(&record, &self.memory)?;
        for value in at.block.dead_after.get(at.index).into_iter().flatten() {
            let entry = table.remove(*value);
            self.release(entry);
        }
        Ok(record)
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
        let tensor = if let Value::Tensor(tensor) = &value { Some(tensor) } else { None };
        let bytes = tensor.and_then(|tensor| Some((tensor, tensor.as_bytes()?)));
        let Some((tensor, bytes)) = bytes else {
            self.memory.check_outside(value.held_bytes())?;
            return Ok(Entry::Outside(value));
        };
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

    /// Runs `block` on `inputs`, whose ranges it takes over, with its captures from `outer`.
    /// Returns its outputs, whose ranges the caller has to release.
    pub(crate) fn run_block(
        &mut self,
        block: &Block,
        outer: &TensorTable,
        inputs: Vec<Entry>,
        path: &str,
        watch: &mut dyn Watch,
    ) -> Result<Vec<Entry>> {
        let mut table = TensorTable::new(block.names.clone());
        let result = self.fill(block, outer, inputs, &mut table).and_then(|()| {
            for index in 0..block.nodes.len() {
                self.step(At { block, index, path, places: None }, &mut table, watch)?;
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

pub(super) fn slot_of(entry: &Entry) -> Option<&Slot> {
    match entry.stored() {
        Stored::Tensor(slot) => Some(slot),
        Stored::Outside(_) => None,
    }
}

pub(super) fn not_in_memory(table: &TensorTable, value: ValueId) -> Error {
    Error::internal("a value is used that is not in memory").with_value(table.name(value))
}

/// The values in `ids` with their entries.
fn touched(
    block: &Block,
    table: &TensorTable,
    memory: &Memory,
    ids: &[Option<ValueId>],
) -> Vec<Touched> {
    let touched = |id: ValueId| Some(Touched::new(block.name(id), table.get(id)?, memory));
    ids.iter().flatten().filter_map(|id| touched(*id)).collect()
}
