//! What was done to a graph that computes in the new type: nodes that were converted, nodes that
//! were not, and the new nodes that convert a value.

use std::collections::HashSet;

use super::graph::called;
use crate::graph::called_functions::{FunctionKey, key_of, key_of_call};
use crate::proto::{FunctionProto, NodeProto, Str};

#[derive(Default)]
pub(super) struct Computed<'m> {
    /// The local functions of the model.
    functions: HashSet<FunctionKey<'m>>,
    /// How many nodes were converted.
    pub(super) nodes: usize,
    /// The names of the other nodes with values of the old type.
    pub(super) kept: Vec<String>,
    /// How many of those call local functions.
    pub(super) calls: usize,
    /// The outputs of the new `Cast` nodes to the new type.
    pub(super) casts: HashSet<Str>,
}

impl<'m> Computed<'m> {
    /// Nothing yet, in a model with these local functions.
    pub(super) fn with(functions: &'m [FunctionProto]) -> Self {
        Self { functions: functions.iter().map(key_of).collect(), ..Self::default() }
    }

    /// Notes a node that stays as it is.
    pub(super) fn keep(&mut self, node: &NodeProto) {
        self.calls += usize::from(self.functions.contains(&key_of_call(node)));
        self.kept.push(called(node));
    }
}
