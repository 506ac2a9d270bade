//! The operators with graphs inside: they run blocks, where other operators have kernels.
//!
//! A [`Frame`] is what such an operator gets: its inputs as entries, and a way to run a block on entries.

mod if_;

use crate::error::{Error, ErrorKind, Result};
use crate::machine::runner::{Observer, Runner};
use crate::program::{Block, Node};
use crate::table::{Entry, TensorTable};
use crate::value::Value;

/// Runs an operator; the entries of its outputs, `None` where one is left out.
pub(crate) type Control = fn(&mut Frame<'_, '_>) -> Result<Vec<Option<Entry>>>;

/// The function of `node` if its operator has graphs inside.
pub(crate) fn of(node: &Node) -> Option<Control> {
    match (node.domain.as_str(), node.op_type.as_str()) {
        ("", "If") => Some(if_::run),
        _ => None,
    }
}

/// A node with graphs inside that is about to run.
pub(crate) struct Frame<'f, 'o> {
    pub(crate) runner: &'f mut Runner,
    pub(crate) node: &'f Node,
    pub(crate) path: &'f str,
    pub(crate) table: &'f TensorTable,
    pub(crate) observer: &'f mut Observer<'o>,
}

impl<'f> Frame<'f, '_> {
    /// Input `i`; `None` where it is left out.
    pub(crate) fn input(&self, i: usize) -> Option<&'f Entry> {
        self.table.get(self.node.inputs.get(i).copied()??)
    }

    /// Input `i`, copied out of M.
    pub(crate) fn value(&self, i: usize) -> Result<Option<Value>> {
        self.input(i).map(|entry| self.runner.to_value(entry)).transpose()
    }

    /// Input `i` as a condition: a BOOL with one element.
    pub(crate) fn condition(&self, i: usize) -> Result<bool> {
        let missing = || Error::new(ErrorKind::Input, format!("input {i} is missing"));
        let value = self.value(i)?.ok_or_else(missing)?;
        match value.tensor()?.to_slice::<bool>()?.as_ref() {
            [condition] => Ok(*condition),
            elements => {
                let reason = format!("the condition has {} elements, not one", elements.len());
                Err(Error::new(ErrorKind::Shape, reason))
            }
        }
    }

    /// The graph of attribute `name`.
    pub(crate) fn block(&self, name: &str) -> Result<&'f Block> {
        let block = self.node.attributes.graph(name)?;
        block.map(|block| &**block).ok_or_else(|| {
            Error::new(ErrorKind::InvalidModel, format!("attribute `{name}` is missing"))
        })
    }

    /// Runs `block` on `inputs`, whose ranges of M it takes over; its outputs, whose ranges are the
    /// caller's. `label` stands in the paths of its steps: `then_branch`, `Loop[3]`.
    pub(crate) fn run(
        &mut self,
        block: &Block,
        inputs: Vec<Entry>,
        label: &str,
    ) -> Result<Vec<Entry>> {
        let path = format!("{}/{label}/", self.path);
        self.runner.run_block(block, self.table, inputs, &path, self.observer)
    }
}
