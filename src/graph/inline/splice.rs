//! The new nodes of a graph of the model: unchanged nodes, and bodies in the place of calls.
//!
//! The model is not touched while bodies are copied, so an error leaves it unchanged. The new list
//! has an empty place for each node that does not change; these nodes move there at the end.

use std::collections::HashSet;
use std::mem;
use std::ops::Range;

use super::calls::{Size, size_of_node};
use super::copy::{Copied, Copier};
use super::functions::{Functions, graphs};
use super::rename;
use super::scope::Scope;
use crate::error::{Error, Result};
use crate::proto::{NodeProto, ValueInfoProto};

/// What becomes of a list of nodes.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) list: Vec<Step>,
    /// The functions that the nodes call, at any depth, once for each call.
    pub(super) callees: Vec<usize>,
    /// The size of the nodes at any depth, without calls.
    pub(super) size: Size,
}

/// What becomes of the next nodes.
pub(super) enum Step {
    /// The nodes of this range do not change.
    Keep(Range<usize>),
    /// The node at the first index is a call of the function with the second index.
    Call(usize, usize),
    /// The node at this index holds this many calls.
    Copy(usize, usize),
}

impl Steps {
    pub(super) fn new(nodes: &[NodeProto], functions: &Functions<'_>) -> Self {
        let mut steps = Self::default();
        for (i, node) in nodes.iter().enumerate() {
            let before = steps.callees.len();
            let callee = steps.scan(node, functions);
            let calls = steps.callees.len() - before;
            if let (Some(callee), 1) = (callee, calls) {
                steps.list.push(Step::Call(i, callee));
            } else if calls > 0 {
                steps.list.push(Step::Copy(i, calls));
            } else if let Some(Step::Keep(run)) = steps.list.last_mut() {
                run.end = i + 1;
            } else {
                steps.list.push(Step::Keep(i..i + 1));
            }
        }
        steps
    }

    /// Whether there is no call.
    pub(super) fn is_empty(&self) -> bool {
        self.callees.is_empty()
    }

    /// Counts a node and those inside it. Returns the function that the node itself calls, if any.
    fn scan(&mut self, node: &NodeProto, functions: &Functions<'_>) -> Option<usize> {
        let callee = functions.callee(node);
        match callee {
            Some(callee) => self.callees.push(callee),
            None => self.size = self.size.plus(size_of_node(node)),
        }
        for graph in node.attribute.iter().flat_map(graphs) {
            for node in &graph.node {
                self.scan(node, functions);
            }
        }
        callee
    }
}

fn out_of_list() -> Error {
    Error::internal("a step is about nodes that are not in its list")
}

/// New nodes, with places for the nodes that do not change.
#[derive(Default)]
pub(super) struct Spliced {
    pub(super) copied: Copied,
    /// Ranges of unchanged nodes in the old list, each with the index of its first place in the new
    /// list.
    moves: Vec<(Range<usize>, usize)>,
    /// Names that are not in the result, because a call passed the value through under its other
    /// name.
    gone: HashSet<Vec<u8>>,
}

impl Spliced {
    /// An empty list with room for about `len` nodes.
    pub(super) fn with_room(len: u64) -> Self {
        let mut spliced = Self::default();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // If there is not that much memory, the list grows as it is filled.
        let _ = spliced.copied.nodes.try_reserve(len);
        spliced
    }

    /// Takes the `steps` over `nodes`, which are in `scope`; the result has about `len` nodes.
    pub(super) fn new<'m>(
        nodes: &'m [NodeProto],
        steps: &[Step],
        scope: &mut Scope<'m>,
        copier: &mut Copier<'m>,
        len: u64,
    ) -> Result<Self> {
        let mut spliced = Self::with_room(len);
        for step in steps {
            let run = match step {
                Step::Keep(run) if scope.is_unchanged() => {
                    spliced.leave_place(run);
                    continue;
                }
                Step::Call(index, callee) if copier.inlines(*callee) => {
                    let node = nodes.get(*index).ok_or_else(out_of_list)?;
                    copier.splice(*callee, node, scope, &mut spliced.copied, 0)?;
                    continue;
                }
                Step::Keep(run) => run.clone(),
                Step::Copy(index, _) | Step::Call(index, _) => *index..*index + 1,
            };
            let nodes = nodes.get(run).ok_or_else(out_of_list)?;
            copier.nodes(nodes, scope, &mut spliced.copied, 0)?;
        }
        spliced.gone = scope.aliased().map(<[u8]>::to_vec).collect();
        let renames = &spliced.copied.renames;
        if renames.is_empty() {
            return Ok(spliced);
        }
        spliced.gone.extend(renames.keys().map(|value| value.as_bytes().to_vec()));
        let kept = steps.iter().filter_map(|step| match step {
            Step::Keep(run) => nodes.get(run.clone()),
            Step::Call(..) | Step::Copy(..) => None,
        });
        let computed = kept.flatten().chain(&spliced.copied.nodes).flat_map(|node| &node.output);
        rename::check(renames, computed, &scope.outputs())?;
        Ok(spliced)
    }

    fn leave_place(&mut self, run: &Range<usize>) {
        let nodes = &mut self.copied.nodes;
        self.moves.push((run.clone(), nodes.len()));
        nodes.resize_with(nodes.len() + run.len(), NodeProto::default);
    }

    /// Appends the result for the nodes that follow.
    pub(super) fn append(&mut self, mut later: Self) {
        let start = self.copied.nodes.len();
        self.moves.extend(later.moves.into_iter().map(|(old, new)| (old, start + new)));
        self.copied.nodes.append(&mut later.copied.nodes);
        self.copied.value_info.append(&mut later.copied.value_info);
        self.gone.extend(later.gone);
    }

    /// Replaces `nodes` by the new ones, and adds the types of what these compute to `types`.
    pub(super) fn apply(mut self, nodes: &mut Vec<NodeProto>, types: &mut Vec<ValueInfoProto>) {
        for (old, new) in self.moves {
            let places = self.copied.nodes.get_mut(new..new + old.len()).unwrap_or_default();
            let old = nodes.get_mut(old).unwrap_or_default();
            // A bug here would leave empty nodes in the graph.
            assert_eq!(old.len(), places.len(), "every unchanged node has its place");
            old.iter_mut().zip(places).for_each(|(old, place)| mem::swap(old, place));
        }
        *nodes = self.copied.nodes;
        rename::apply(&self.copied.renames, nodes);
        if !self.gone.is_empty() {
            types.retain(|info| {
                info.name.as_ref().is_none_or(|name| !self.gone.contains(name.as_bytes()))
            });
        }
        types.append(&mut self.copied.value_info);
    }
}
