//! How many bytes what calls become takes, counted before the first copy.
//!
//! A call becomes the nodes of its function. What the call itself gives is there once more for each
//! place of the body that asks for it: an attribute for each reference to it, a graph with its
//! nodes and the calls among them, a name for each use. Bodies hand all of this on to other calls,
//! so that the numbers multiply, and a few bytes of a model could become gigabytes. The sums are
//! those of the memory that copies take, and of the names and strings that they are written with.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::calls::{attribute, bytes, entries, info, passed_through};
use super::context::Context;
use super::functions::{LONGEST, graphs, is_reference, name_of};
use crate::error::Result;
use crate::limits::Counter;
use crate::proto::{AttributeProto, FunctionProto, NodeProto, Str};

/// How often each name is asked for.
type Uses<'m> = HashMap<&'m [u8], u64, RandomState>;

/// What some nodes become.
#[derive(Default)]
struct Made<'m> {
    bytes: u64,
    nodes: u64,
    /// References to the attributes of the function that the nodes are in, copies of calls
    /// included.
    attributes: Uses<'m>,
    /// Uses of the function's inputs and outputs; other names are not in the map.
    formals: Uses<'m>,
    /// How many bytes of another name a copy repeats.
    longest: u64,
}

impl<'m> Made<'m> {
    fn add(&mut self, times: u64, bytes: u64) {
        self.bytes = self.bytes.saturating_add(times.saturating_mul(bytes));
    }

    fn refer(&mut self, name: &'m [u8], times: u64) {
        add(self.attributes.entry(name).or_default(), times);
    }

    /// Counts `times` uses of a name that a call binds.
    fn bind(&mut self, name: &Str, times: u64) {
        match self.formals.get_mut(name.as_bytes()) {
            Some(uses) => add(uses, times),
            None => self.add(times, len(name.as_bytes()).min(self.longest)),
        }
    }

    /// Counts `times` uses of a name by a node that is copied.
    fn uses(&mut self, name: &Str, times: u64) {
        if let Some(uses) = self.formals.get_mut(name.as_bytes()) {
            add(uses, times);
        }
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn len(text: &[u8]) -> u64 {
    wide(text.len())
}

/// What the calls of one place become.
pub(super) struct Growth<'p, 'm> {
    context: &'p Context<'m>,
    /// What one call makes, for each function that moves here.
    of_call: HashMap<usize, Made<'m>, RandomState>,
}

impl<'p, 'm> Growth<'p, 'm> {
    /// Takes the functions that `context` moves, each after those that it calls.
    pub(super) fn new(context: &'p Context<'m>, moved: &[usize]) -> Self {
        let mut growth = Self { context, of_call: HashMap::default() };
        for index in moved {
            let Some(function) = context.functions.get(*index) else { continue };
            let made = growth.function(function);
            growth.of_call.insert(*index, made);
        }
        growth
    }

    /// Counts what the calls among `nodes` become, at any depth. The nodes themselves are there
    /// already.
    ///
    /// # Errors
    /// That of the counter.
    pub(super) fn count(&self, nodes: &'m [NodeProto], counter: &mut Counter) -> Result<()> {
        for node in nodes {
            let mut made = Made { longest: u64::MAX, ..Made::default() };
            if self.call(node, 1, &mut made) {
                counter.take(made.bytes)?;
                continue;
            }
            for graph in node.attribute.iter().flat_map(graphs) {
                self.count(&graph.node, counter)?;
            }
        }
        Ok(())
    }

    fn function(&self, function: &'m FunctionProto) -> Made<'m> {
        let formals = function.input.iter().chain(&function.output);
        let formals = formals.map(|name| (name.as_bytes(), 0)).collect();
        let mut made = Made { formals, longest: wide(LONGEST), ..Made::default() };
        self.nodes(&function.node, 1, &mut made);
        for default in &function.attribute_proto {
            let times = made.attributes.get(name_of(default)).copied().unwrap_or_default();
            made.add(times, value(default));
            // A default sees neither names nor attributes of the call.
            let mut inside = Made { longest: wide(LONGEST), ..Made::default() };
            for graph in graphs(default) {
                self.nodes(&graph.node, times, &mut inside);
            }
            made.add(1, inside.bytes);
            add(&mut made.nodes, inside.nodes);
        }
        let identities = passed_through(function);
        let infos = function.value_info.iter().map(info).sum::<usize>();
        made.add(identities, wide(size_of::<NodeProto>() + 2 * size_of::<Str>()));
        made.add(1, wide(infos));
        add(&mut made.nodes, identities);
        for output in &function.output {
            made.uses(output, identities);
        }
        made
    }

    /// Counts `times` copies of `nodes`.
    fn nodes(&self, nodes: &'m [NodeProto], times: u64, made: &mut Made<'m>) {
        for node in nodes.iter().filter(|_| times > 0) {
            made.add(times, own(node));
            if self.call(node, times, made) {
                continue;
            }
            add(&mut made.nodes, times);
            node.input.iter().chain(&node.output).for_each(|name| made.uses(name, times));
            for attribute in &node.attribute {
                if is_reference(attribute) {
                    made.refer(reference(attribute), times);
                }
                for graph in graphs(attribute) {
                    let outputs = graph.output.iter().filter_map(|output| output.name.as_ref());
                    outputs.for_each(|name| made.uses(name, times));
                    self.nodes(&graph.node, times, made);
                }
            }
        }
    }

    /// Counts `times` copies of what `node` calls; whether it is a call.
    fn call(&self, node: &'m NodeProto, times: u64, made: &mut Made<'m>) -> bool {
        let Some(callee) = self.context.callee(node) else { return false };
        let found = self.context.functions.get(callee).zip(self.of_call.get(&callee));
        let Some((function, body)) = found else { return false };
        let nodes = times.saturating_mul(body.nodes);
        made.add(times, body.bytes);
        made.add(nodes, wide(entries(&node.metadata_props)));
        add(&mut made.nodes, nodes);
        let inputs = function.input.iter().zip(&node.input);
        for (formal, name) in inputs.chain(function.output.iter().zip(&node.output)) {
            let uses = body.formals.get(formal.as_bytes()).copied().unwrap_or_default();
            made.bind(name, times.saturating_mul(uses));
        }
        for attribute in &node.attribute {
            let uses = body.attributes.get(name_of(attribute)).copied().unwrap_or_default();
            let times = times.saturating_mul(uses);
            if is_reference(attribute) {
                made.refer(reference(attribute), times);
                continue;
            }
            made.add(times, value(attribute));
            graphs(attribute).for_each(|graph| self.nodes(&graph.node, times, made));
        }
        true
    }
}

/// The name of the attribute that this one refers to.
fn reference(attribute: &AttributeProto) -> &[u8] {
    attribute.ref_attr_name.as_ref().map(Str::as_bytes).unwrap_or_default()
}

/// A node without those in its graphs.
fn own(node: &NodeProto) -> u64 {
    let texts = [&node.op_type, &node.domain].into_iter().flatten();
    let text = texts.map(|text| text.as_bytes().len()).sum::<usize>();
    wide(size_of::<NodeProto>() + bytes(node) + text)
}

/// An attribute that is copied for a reference, with the strings that it shares with its copies in
/// memory.
fn value(of: &AttributeProto) -> u64 {
    let strings = of.s.iter().chain(&of.strings).map(|text| text.len()).sum::<usize>();
    wide(attribute(of) + strings)
}
