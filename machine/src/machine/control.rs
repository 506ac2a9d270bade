//! The operators with graphs inside: they run blocks, where other operators have kernels.
//!
//! A [`Frame`] is what such an operator gets: its inputs as entries, and a way to run a block on
//! entries.

mod body;
mod flex_attention;
mod function;
mod if_;
mod loop_;
mod scan;
mod sequence_map;

use onnx_container::{Buffer, DataType, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::bodies::{self, Composite};
use crate::kernel::call::{Call, Operand};
use crate::machine::runner::{Runner, Watch};
use crate::memory::elements::Elements;
use crate::memory::table::{Entry, Stored, TensorTable, dims};
use crate::numeric::broadcast::count;
use crate::program::{Block, Declared, Dim, Node};
use crate::value::{Type, Value};

/// Runs an operator, and returns the entries of its outputs, `None` where one is left out.
pub(crate) type Control = fn(&mut Frame<'_>) -> Result<Vec<Option<Entry>>>;

/// The function of `node` if its operator runs graphs.
pub(crate) fn of(node: &Node) -> Option<Control> {
    Some(match bodies::of(node)? {
        Composite::FlexAttention => flex_attention::run,
        Composite::FunctionCall => function::run,
        Composite::If => if_::run,
        Composite::Loop => loop_::run,
        Composite::Scan => scan::run,
        Composite::SequenceMap => sequence_map::run,
        Composite::Body(_) => body::run,
    })
}

/// A node with graphs inside that is about to run.
pub(crate) struct Frame<'f> {
    pub(crate) runner: &'f mut Runner,
    pub(crate) node: &'f Node,
    pub(crate) path: &'f str,
    pub(crate) table: &'f TensorTable,
    pub(crate) watch: &'f mut dyn Watch,
}

impl<'f> Frame<'f> {
    /// Input `i`; `None` where it is left out.
    pub(crate) fn input(&self, i: usize) -> Option<&'f Entry> {
        self.table.get(self.node.inputs.get(i).copied()??)
    }

    /// Input `i`, copied out of M.
    pub(crate) fn value(&self, i: usize) -> Result<Option<Value>> {
        self.input(i).map(|entry| self.runner.to_value(entry)).transpose()
    }

    /// Input `i` and all that follow; each is held once more, for the block that gets it.
    pub(crate) fn inputs_from(&mut self, i: usize) -> Result<Vec<Entry>> {
        let inputs: Vec<_> = self
            .node
            .inputs
            .iter()
            .skip(i)
            .flatten()
            .filter_map(|id| self.table.get(*id))
            .collect();
        inputs.iter().try_for_each(|entry| self.runner.retain(entry))?;
        Ok(inputs.into_iter().cloned().collect())
    }

    /// The value of `entry`, whose range of M is given back.
    pub(crate) fn take(&mut self, entry: Entry) -> Result<Value> {
        let value = self.runner.to_value(&entry);
        self.runner.release(Some(entry));
        value
    }

    /// Adds the bytes of `value` to `held`, those that the operator has collected, and checks them
    /// against the budget.
    pub(crate) fn collect(&self, held: &mut u64, value: &Value) -> Result<()> {
        *held = held.saturating_add(value.held_bytes());
        self.runner.memory.check_outside(*held)
    }

    /// Input `i` as a condition: a BOOL with one element.
    pub(crate) fn condition(&self, i: usize) -> Result<bool> {
        let missing = || Error::new(ErrorKind::Input, format!("input {i} is missing"));
        condition(&self.value(i)?.ok_or_else(missing)?)
    }

    /// The graph of attribute `name`.
    pub(crate) fn block(&self, name: &str) -> Result<&'f Block> {
        let block = self.node.attributes.graph(name)?;
        block.map(|block| &**block).ok_or_else(|| {
            Error::new(ErrorKind::InvalidModel, format!("attribute `{name}` is missing"))
        })
    }

    /// The node as a call, with what is known of its inputs.
    pub(crate) fn call(&self) -> Result<Call<'_>> {
        let operand = |i| match self.input(i).map(Entry::stored) {
            None => Ok(Operand::Absent),
            Some(Stored::Outside(value)) => Ok(Operand::Outside(value)),
            Some(Stored::Tensor(slot)) => {
                let bytes = Some(self.runner.memory.read(slot.span()?)?);
                Ok(Operand::Tensor { dtype: slot.dtype, shape: &slot.shape, bytes })
            }
        };
        let operands = (0..self.node.inputs.len()).map(operand).collect::<Result<_>>()?;
        Ok(Call::new(self.node, operands))
    }

    /// Runs `block` on `inputs`, whose ranges of M it takes over, and returns its outputs, whose
    /// ranges the caller has to release. `label` stands in the paths of its steps: `then_branch`,
    /// `Loop[3]`.
    pub(crate) fn run(
        &mut self,
        block: &Block,
        inputs: Vec<Entry>,
        label: &str,
    ) -> Result<Vec<Entry>> {
        let path = format!("{}/{label}/", self.path);
        self.runner.run_block(block, self.table, inputs, &path, self.watch)
    }

    /// As [`run`](Self::run), on values that are copied into M and out of it.
    pub(crate) fn run_on_values(
        &mut self,
        block: &Block,
        inputs: impl IntoIterator<Item = Value>,
        label: &str,
    ) -> Result<Vec<Value>> {
        let inputs = inputs.into_iter().map(|value| self.runner.put(value));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let outputs = self.run(block, inputs, label)?;
        outputs.into_iter().map(|entry| self.take(entry)).collect()
    }
}

/// A condition: a BOOL with one element.
pub(crate) fn condition(value: &Value) -> Result<bool> {
    match value.tensor()?.to_slice::<bool>()?.as_ref() {
        [condition] => Ok(*condition),
        elements => {
            let reason = format!("the condition has {} elements, not one", elements.len());
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

/// The tensors `values`, which have one shape, as one with a first dimension in front. When there
/// are none, the type and the other dimensions are those that the graph declares, and 0 where it
/// does not.
pub(crate) fn stack(values: &[Value], declared: &Declared) -> Result<Value> {
    let Some(first) = values.first() else { return nothing(declared) };
    let (dtype, shape) = (first.tensor()?.dtype(), first.tensor()?.shape());
    let mut elements = Elements::of(first.tensor()?)?.none();
    for value in values {
        let tensor = value.tensor()?;
        if tensor.shape() != shape || tensor.dtype() != dtype {
            let reason = format!("{:?} after {shape:?} cannot be stacked", tensor.shape());
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        elements.extend(&Elements::of(tensor)?, 0, count(&shape))?;
    }
    elements.into_value(dtype, &[&[values.len()], shape.as_slice()].concat())
}

/// A stack of nothing.
fn nothing(declared: &Declared) -> Result<Value> {
    let Some(Type::Tensor(dtype)) = declared.ty else {
        let reason = "an output of no iterations has no declared type";
        return Err(Error::new(ErrorKind::Unsupported, reason));
    };
    let size = |dim: &Dim| if let Dim::Fixed(size) = dim { *size } else { 0 };
    let inner = declared.dims.iter().flatten().map(size);
    let dims = dims(&std::iter::once(0).chain(inner).collect::<Vec<_>>())?;
    Ok(Value::Tensor(match dtype {
        DataType::String => Tensor::from_strings(dims, Vec::new())?,
        dtype => Tensor::new(dtype, dims, Buffer::default())?,
    }))
}
