//! Who calls whom: the functions by what a call names them by, and the call graph.
//!
//! A function is the triple of domain, name and overload, so nothing is joined to one string that
//! another triple could equal. Everything here is asked before the model is changed.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::options::FunctionId;
use super::weight;
use crate::error::{Error, ErrorKind, Result};
use crate::opset;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, Str};

/// Domain (that of ONNX is empty), name, overload.
type Id<'m> = (&'m [u8], &'m [u8], &'m [u8]);

/// With more domains than this, a call is looked up without a look at its domain first.
const FEW: usize = 8;

/// The local functions of a model.
pub(super) struct Functions<'m> {
    list: &'m [FunctionProto],
    by_id: HashMap<Id<'m>, usize, RandomState>,
    /// Those of the functions, when they are few.
    domains: Option<Vec<&'m [u8]>>,
}

impl<'m> Functions<'m> {
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when two functions have one id.
    pub(super) fn new(list: &'m [FunctionProto]) -> Result<Self> {
        let mut by_id = HashMap::with_capacity_and_hasher(list.len(), RandomState::default());
        let twice = list.iter().enumerate().filter(|(i, f)| by_id.insert(id(f), *i).is_some());
        let twice = twice.map(|(_, f)| invalid(f, "is there twice")).collect();
        if let Some(error) = Error::join(twice) {
            return Err(error);
        }
        let mut domains: Vec<_> = list.iter().map(|f| id(f).0).collect();
        domains.sort_unstable();
        domains.dedup();
        let domains = Some(domains).filter(|domains| domains.len() <= FEW);
        Ok(Self { list, by_id, domains })
    }

    pub(super) fn get(&self, index: usize) -> Option<&'m FunctionProto> {
        self.list.get(index)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &'m FunctionProto)> {
        self.list.iter().enumerate()
    }

    /// The function that `node` calls, if it is a call.
    pub(super) fn callee(&self, node: &NodeProto) -> Option<usize> {
        let domain = domain_of(node);
        if self.domains.as_ref().is_some_and(|known| !known.contains(&domain)) {
            return None;
        }
        let overload = node.overload.as_deref();
        self.by_id.get(&(domain, bytes(node.op_type.as_ref()), bytes(overload))).copied()
    }
}

fn bytes(text: Option<&Str>) -> &[u8] {
    text.map(Str::as_bytes).unwrap_or_default()
}

/// The domain of a node's operator; that of ONNX is empty.
pub(super) fn domain_of(node: &NodeProto) -> &[u8] {
    opset::normalized(bytes(node.domain.as_ref()))
}

fn id(function: &FunctionProto) -> Id<'_> {
    let domain = opset::normalized(bytes(function.domain.as_ref()));
    (domain, bytes(function.name.as_ref()), bytes(function.overload.as_deref()))
}

/// An error about `function`.
pub(super) fn invalid(function: &FunctionProto, reason: &str) -> Error {
    Error::new(
        ErrorKind::InvalidModel,
        format!("function `{}` {reason}", FunctionId::from(function)),
    )
}

/// The graphs in an attribute.
pub(super) fn graphs(attribute: &AttributeProto) -> impl Iterator<Item = &GraphProto> {
    attribute.g.as_deref().into_iter().chain(&attribute.graphs)
}

/// The graphs in an attribute, to be changed.
pub(super) fn graphs_mut(attribute: &mut AttributeProto) -> impl Iterator<Item = &mut GraphProto> {
    let AttributeProto { g, more, .. } = attribute;
    let more = more.as_deref_mut().into_iter().flat_map(|more| &mut more.graphs);
    g.as_deref_mut().into_iter().chain(more)
}

/// Calls `visit` with every node of `nodes`, at any depth.
pub(super) fn each_node<'n>(nodes: &'n [NodeProto], visit: &mut dyn FnMut(&'n NodeProto)) {
    for node in nodes {
        visit(node);
        for graph in node.attribute.iter().flat_map(graphs) {
            each_node(&graph.node, visit);
        }
    }
}

/// Calls `visit` with every node of a function, those in the defaults of its attributes included.
pub(super) fn each_node_of<'n>(function: &'n FunctionProto, visit: &mut dyn FnMut(&'n NodeProto)) {
    each_node(&function.node, visit);
    for graph in function.attribute_proto.iter().flat_map(graphs) {
        each_node(&graph.node, visit);
    }
}

/// The call graph.
pub(super) struct Calls {
    /// Of each function, whom it calls, once for each call.
    callees: Vec<Vec<usize>>,
    /// Of each function, how many nodes it has itself.
    weights: Vec<u64>,
}

impl Calls {
    pub(super) fn new(functions: &Functions<'_>) -> Self {
        let mut calls = Self { callees: Vec::new(), weights: Vec::new() };
        for (_, function) in functions.iter() {
            let mut callees = Vec::new();
            each_node_of(function, &mut |node| callees.extend(functions.callee(node)));
            calls.weights.push(weight::of_function(function, functions));
            calls.callees.push(callees);
        }
        calls
    }

    /// Whom a function calls, once for each call.
    pub(super) fn callees(&self, function: usize) -> &[usize] {
        self.callees.get(function).map(Vec::as_slice).unwrap_or_default()
    }

    /// The functions in an order in which each stands behind those that it calls.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`], with the cycle, when a function calls itself.
    pub(super) fn order(&self, functions: &Functions<'_>) -> Result<Vec<usize>> {
        let mut order = Vec::with_capacity(self.callees.len());
        let mut seen = vec![false; self.callees.len()];
        // The functions on the way, each with its next call. Depth is the model's to choose, so
        // the way is a list and not a recursion.
        let mut way: Vec<(usize, usize)> = Vec::new();
        let mut on_way = vec![false; self.callees.len()];
        for root in 0..self.callees.len() {
            enter(root, &mut seen, &mut on_way, &mut way);
            while let Some((function, next)) = way.last_mut() {
                match self.callees(*function).get(*next) {
                    Some(callee) => {
                        *next += 1;
                        if on_way.get(*callee) == Some(&true) {
                            return Err(recursion(functions, &way, *callee));
                        }
                        enter(*callee, &mut seen, &mut on_way, &mut way);
                    }
                    None => {
                        let done = *function;
                        order.push(done);
                        on_way.get_mut(done).map(|on| *on = false).unwrap_or_default();
                        way.pop();
                    }
                }
            }
        }
        Ok(order)
    }

    /// How many nodes a function has itself, without those of whom it calls.
    pub(super) fn weight(&self, function: usize) -> u64 {
        self.weights.get(function).copied().unwrap_or_default()
    }
}

fn enter(function: usize, seen: &mut [bool], on_way: &mut [bool], way: &mut Vec<(usize, usize)>) {
    let fresh = seen.get_mut(function).is_some_and(|seen| !std::mem::replace(seen, true));
    if fresh {
        way.push((function, 0));
        on_way.get_mut(function).map(|on| *on = true).unwrap_or_default();
    }
}

/// The error that prints the cycle: the functions from `first` on, and `first` again.
fn recursion(functions: &Functions<'_>, way: &[(usize, usize)], first: usize) -> Error {
    let cycle = way.iter().map(|(function, _)| *function).skip_while(|f| *f != first);
    let names = cycle.chain([first]).filter_map(|f| functions.get(f));
    let names: Vec<_> = names.map(|function| FunctionId::from(function).to_string()).collect();
    let reason = format!("functions call themselves: {}", shortened(&names).join(" -> "));
    Error::new(ErrorKind::InvalidModel, reason)
}

/// A long cycle's beginning and end.
fn shortened(names: &[String]) -> Vec<String> {
    const SHOWN: usize = 8;
    match (names.get(..SHOWN), names.get(names.len().saturating_sub(SHOWN)..)) {
        (Some(head), Some(tail)) if names.len() > 2 * SHOWN => {
            let more = format!("... {} more ...", names.len() - 2 * SHOWN);
            [head, &[more], tail].concat()
        }
        _ => names.to_vec(),
    }
}
