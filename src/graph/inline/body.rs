//! A function's body with its names resolved once, so that each call only fills in names of its
//! own.
//!
//! Every name in a function's nodes, at any depth, stands for a *slot*: an input of the function, a
//! value that the body defines, or nothing (the empty name). The innermost scope that has the name
//! decides which. The slots are listed in the order in which a copy of the nodes meets the names,
//! so a copy reads the list from front to back and never looks a name up again.
//!
//! The graph that a call passes as an attribute is a body too: its free names are its inputs.

use std::collections::{HashMap, HashSet};

use super::calls::{Size, size_of_call, size_of_graph, size_of_node};
use super::context::Context;
use super::functions::{
    each_node, graphs, identity_since, is_reference, name_of, sharded, shortened,
};
use super::options::FunctionId;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, Str, ValueInfoProto};

/// A slot's number: 0 is the empty name, then come the inputs, then what the body defines.
pub(super) type NameSlot = u32;

/// The slot of the empty name.
pub(super) const ABSENT: NameSlot = 0;

/// Marks the slots that the body defines until the number of inputs is known: the free names of a
/// graph, which are its inputs, are only found during the walk.
const LOCAL: NameSlot = 1 << 31;

/// A body, ready to be copied.
pub(super) struct Body<'m> {
    /// The names that a call binds: a function's inputs, or the free names of a graph.
    pub(super) inputs: Vec<&'m Str>,
    /// What the body defines, in the order in which its names are made.
    pub(super) locals: Vec<Local<'m>>,
    /// How many locals have the base of an earlier one.
    pub(super) repeats: u64,
    /// How many of the locals are outputs of the function; these come first.
    pub(super) computed: usize,
    /// Where each output of a function comes from, in order.
    pub(super) outputs: Vec<Output>,
    /// The defaults of a function's attributes, by name.
    pub(super) defaults: HashMap<&'m [u8], &'m AttributeProto>,
    /// The slots of all names, in the order of a copy.
    pub(super) slots: Vec<NameSlot>,
    /// For each node, at any depth, in the order of a copy: the function that it calls.
    pub(super) callees: Vec<Option<usize>>,
    /// The graphs that calls pass as attributes, in the order of a copy.
    pub(super) arguments: Vec<Body<'m>>,
    /// Types of values that the function's own nodes compute.
    pub(super) value_info: Vec<(NameSlot, &'m ValueInfoProto)>,
    /// Slots that are outputs of a subgraph, each with [`identity_since`] of its type.
    pub(super) graph_outputs: HashMap<NameSlot, i64>,
    /// The size of a copy, without the bodies of the calls in it.
    pub(super) size: Size,
}

/// A name that the body defines.
pub(super) struct Local<'m> {
    /// The beginning of its fresh names: the name, or the beginning of a very long one.
    pub(super) base: &'m [u8],
    /// The last local before this one with the same base.
    pub(super) earlier: Option<usize>,
}

/// Where an output of a function comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// A node of the body computes it.
    Computed(NameSlot),
    /// It is an input of the function.
    Passed(NameSlot),
    /// Nothing computes it.
    Undefined,
}

impl<'m> Body<'m> {
    /// The body of `function` as `context` inlines it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when a name is not defined where it is used, or twice.
    pub(super) fn of_function(function: &'m FunctionProto, context: &Context<'m>) -> Result<Self> {
        let mut resolver = Resolver::new(context, true);
        let named =
            |error: Error| error.because(&format!("function `{}`", FunctionId::from(function)));
        resolver.function(function).map_err(named)?;
        resolver.body.size = size_of_call(function, context.functions);
        let inputs = function.input.iter().collect();
        resolver.finish(inputs)
    }

    /// The body of a graph that a call passes, whose free names are its inputs.
    ///
    /// # Errors
    /// As [`of_function`](Self::of_function), but every name may come from outside.
    pub(super) fn of_argument(graph: &'m GraphProto, context: &Context<'m>) -> Result<Self> {
        let mut resolver = Resolver::new(context, false);
        resolver.graph(graph)?;
        let size = &mut resolver.body.size;
        *size = size_of_graph(graph);
        each_node(&graph.node, &mut |node| {
            if context.callee(node).is_none() {
                *size = size.plus(size_of_node(node));
            }
        });
        let inputs = std::mem::take(&mut resolver.free);
        resolver.finish(inputs)
    }
}

/// The index of `slot` among a call's names.
pub(super) fn index(slot: NameSlot) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

fn slot(index: usize) -> NameSlot {
    // `finish` refuses bodies with more names than slots.
    NameSlot::try_from(index).unwrap_or(LOCAL - 1)
}

/// What a name in scope means.
#[derive(Clone, Copy)]
struct Definition {
    slot: NameSlot,
    /// The number of the graph that defines it.
    scope: usize,
}

/// Walks a body in the order of a copy.
struct Resolver<'c, 'm> {
    context: &'c Context<'m>,
    /// Whether a name that nothing defines is an error.
    closed: bool,
    visible: HashMap<&'m [u8], Definition>,
    /// For each definition in scope, what its name meant before: restored at the end of its graph.
    hidden: Vec<(&'m [u8], Option<Definition>)>,
    /// The number of the graph that is being walked.
    scope: usize,
    /// The number of graphs so far.
    scopes: usize,
    free: Vec<&'m Str>,
    last_of: HashMap<&'m [u8], usize>,
    /// The slots of the present graph's outputs, made before the nodes that compute them are
    /// walked.
    reserved: HashMap<&'m [u8], NameSlot>,
    body: Body<'m>,
}

impl<'c, 'm> Resolver<'c, 'm> {
    fn new(context: &'c Context<'m>, closed: bool) -> Self {
        let body = Body {
            inputs: Vec::new(),
            locals: Vec::new(),
            repeats: 0,
            computed: 0,
            outputs: Vec::new(),
            defaults: HashMap::new(),
            slots: Vec::new(),
            callees: Vec::new(),
            arguments: Vec::new(),
            value_info: Vec::new(),
            graph_outputs: HashMap::new(),
            size: Size::default(),
        };
        Self {
            context,
            closed,
            visible: HashMap::new(),
            hidden: Vec::new(),
            scope: 0,
            scopes: 0,
            free: Vec::new(),
            last_of: HashMap::new(),
            reserved: HashMap::new(),
            body,
        }
    }

    fn finish(self, inputs: Vec<&'m Str>) -> Result<Body<'m>> {
        let Self { mut body, .. } = self;
        if 1 + inputs.len() + body.locals.len() >= index(LOCAL) {
            return Err(Error::new(ErrorKind::TooLarge, "a body defines 2^31 names or more"));
        }
        let first = slot(1 + inputs.len());
        let settle = |slot: NameSlot| if slot >= LOCAL { slot - LOCAL + first } else { slot };
        body.slots.iter_mut().for_each(|slot| *slot = settle(*slot));
        body.value_info.iter_mut().for_each(|(slot, _)| *slot = settle(*slot));
        let outputs = body.graph_outputs.into_iter();
        body.graph_outputs = outputs.map(|(slot, since)| (settle(slot), since)).collect();
        for output in &mut body.outputs {
            if let Output::Computed(slot) | Output::Passed(slot) = output {
                *slot = settle(*slot);
            }
        }
        body.inputs = inputs;
        Ok(body)
    }

    fn function(&mut self, function: &'m FunctionProto) -> Result<()> {
        let defaults = function.attribute_proto.iter();
        self.body.defaults = defaults.map(|default| (name_of(default), default)).collect();
        for (i, input) in function.input.iter().enumerate() {
            self.define(input, slot(1 + i))?;
        }
        self.reserve(&function.node, function.output.iter());
        self.body.computed = self.body.locals.len();
        self.nodes(&function.node)?;
        for output in &function.output {
            let place = match self.visible.get(output.as_bytes()) {
                Some(found) if found.slot >= LOCAL => Output::Computed(found.slot),
                Some(found) => Output::Passed(found.slot),
                None => Output::Undefined,
            };
            self.body.outputs.push(place);
        }
        let mut seen = HashSet::new();
        for info in &function.value_info {
            let local = info.name.as_ref().and_then(|name| self.visible.get(name.as_bytes()));
            if let Some(Definition { slot, .. }) = local
                && *slot >= LOCAL
                && seen.insert(*slot)
            {
                self.body.value_info.push((*slot, info));
            }
        }
        Ok(())
    }

    /// Makes slots for those `outputs` that `nodes` compute.
    fn reserve(&mut self, nodes: &'m [NodeProto], outputs: impl Iterator<Item = &'m Str>) {
        let computed: HashSet<&[u8]> =
            nodes.iter().flat_map(|node| &node.output).map(Str::as_bytes).collect();
        let outputs = outputs.filter(|output| !output.is_empty());
        for output in outputs.filter(|output| computed.contains(output.as_bytes())) {
            if !self.reserved.contains_key(output.as_bytes()) {
                let slot = self.local(output);
                self.reserved.insert(output.as_bytes(), slot);
            }
        }
    }

    /// A new slot for something that the body defines.
    fn local(&mut self, name: &'m Str) -> NameSlot {
        let base = shortened(name.as_bytes());
        let index = self.body.locals.len();
        let earlier = self.last_of.insert(base, index);
        self.body.repeats += u64::from(earlier.is_some());
        self.body.locals.push(Local { base, earlier });
        LOCAL | slot(index)
    }

    /// Puts a name in scope.
    fn define(&mut self, name: &'m Str, slot: NameSlot) -> Result<()> {
        let binding = Definition { slot, scope: self.scope };
        let before = self.visible.insert(name.as_bytes(), binding);
        if before.is_some_and(|before| before.scope == self.scope) {
            return Err(broken(format!("`{name}` is defined twice")));
        }
        self.hidden.push((name.as_bytes(), before));
        Ok(())
    }

    fn resolve(&mut self, name: &'m Str) -> Result<NameSlot> {
        if name.is_empty() {
            return Ok(ABSENT);
        }
        if let Some(binding) = self.visible.get(name.as_bytes()) {
            return Ok(binding.slot);
        }
        if self.closed {
            return Err(broken(format!("`{name}` is used and not defined before")));
        }
        self.free.push(name);
        let slot = slot(self.free.len());
        self.visible.insert(name.as_bytes(), Definition { slot, scope: usize::MAX });
        Ok(slot)
    }

    fn push(&mut self, slot: NameSlot) {
        self.body.slots.push(slot);
    }

    fn nodes(&mut self, nodes: &'m [NodeProto]) -> Result<()> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    /// Resolves a node in the order of a copy: inputs, outputs, name, sharded tensors, then the
    /// graphs in attributes.
    fn node(&mut self, node: &'m NodeProto) -> Result<()> {
        let callee = self.context.callee(node);
        self.body.callees.push(callee);
        let start = self.body.slots.len();
        for input in &node.input {
            let slot = self.resolve(input)?;
            self.push(slot);
        }
        // The name's local is made before those of the outputs, and its slot is listed after
        // theirs. The name of a call is not used, but onnx's inliner makes one for it too, and this
        // keeps the numbers of second attempts equal to onnx's.
        let named = node.name.as_ref().filter(|name| !name.is_empty());
        let name_slot = named.map_or(ABSENT, |name| self.local(name));
        let mut defined = Vec::with_capacity(node.output.len());
        for output in &node.output {
            let slot = self.output(output);
            defined.push(slot);
            self.push(slot);
        }
        self.push(name_slot);
        self.shardings(node, start);
        for attribute in &node.attribute {
            self.attribute(attribute, callee.is_some())?;
        }
        // A node's own outputs are not visible in its graphs.
        let outputs = node.output.iter().zip(defined).filter(|(output, _)| !output.is_empty());
        outputs.into_iter().try_for_each(|(output, slot)| self.define(output, slot))
    }

    fn output(&mut self, output: &'m Str) -> NameSlot {
        if output.is_empty() {
            return ABSENT;
        }
        let reserved = self.reserved.get(output.as_bytes()).copied();
        reserved.unwrap_or_else(|| self.local(output))
    }

    /// Resolves the tensors of the node's shardings: each is one of its inputs or outputs, whose
    /// slots are listed from `start` on.
    fn shardings(&mut self, node: &'m NodeProto, start: usize) {
        if node.device_configurations.is_empty() {
            return;
        }
        let own_slots = self.body.slots.get(start..).unwrap_or_default().iter().copied();
        let slot_of: HashMap<_, _> = node.input.iter().chain(&node.output).zip(own_slots).collect();
        let resolved = sharded(node).map(|tensor| tensor.and_then(|tensor| slot_of.get(tensor)));
        self.body.slots.extend(resolved.map(|slot| slot.copied().unwrap_or(ABSENT)));
    }

    fn attribute(&mut self, attribute: &'m AttributeProto, argument: bool) -> Result<()> {
        if is_reference(attribute) {
            return Ok(());
        }
        for graph in graphs(attribute) {
            if argument { self.argument(graph)? } else { self.subgraph(graph)? }
        }
        Ok(())
    }

    /// Resolves a graph that a call passes: its free names are names of this body.
    fn argument(&mut self, graph: &'m GraphProto) -> Result<()> {
        let body = Body::of_argument(graph, self.context)?;
        for name in &body.inputs {
            let slot = self.resolve(name)?;
            self.push(slot);
        }
        self.body.arguments.push(body);
        Ok(())
    }

    fn subgraph(&mut self, graph: &'m GraphProto) -> Result<()> {
        let outer = (self.scope, self.hidden.len(), std::mem::take(&mut self.reserved));
        self.scopes += 1;
        self.scope = self.scopes;
        self.graph(graph)?;
        while self.hidden.len() > outer.1 {
            if let Some((name, before)) = self.hidden.pop() {
                match before {
                    Some(binding) => self.visible.insert(name, binding),
                    None => self.visible.remove(name),
                };
            }
        }
        (self.scope, self.reserved) = (outer.0, outer.2);
        Ok(())
    }

    /// Resolves a graph in the order of a copy: inputs, initializers, sparse initializers, nodes,
    /// outputs, types, quantization annotations.
    fn graph(&mut self, graph: &'m GraphProto) -> Result<()> {
        for input in &graph.input {
            self.start(input.name.as_ref())?;
        }
        for tensor in &graph.initializer {
            self.start(tensor.name.as_ref())?;
        }
        for tensor in &graph.sparse_initializer {
            self.start(tensor.values.as_ref().and_then(|values| values.name.as_ref()))?;
        }
        self.reserve(&graph.node, graph.output.iter().filter_map(|output| output.name.as_ref()));
        self.nodes(&graph.node)?;
        for output in &graph.output {
            let slot = output.name.as_ref().map_or(Ok(ABSENT), |name| self.resolve(name))?;
            self.body.graph_outputs.insert(slot, identity_since(output.r#type.as_deref()));
            self.push(slot);
        }
        self.annotations(graph);
        Ok(())
    }

    /// Resolves an input or initializer of the graph. An input and an initializer of one name are
    /// one value.
    fn start(&mut self, name: Option<&'m Str>) -> Result<()> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            self.push(ABSENT);
            return Ok(());
        };
        let own = self.own(name);
        let slot = own.unwrap_or_else(|| self.local(name));
        self.push(slot);
        if own.is_some() { Ok(()) } else { self.define(name, slot) }
    }

    /// The slot of `name`, if the present graph itself defines it.
    fn own(&self, name: &Str) -> Option<NameSlot> {
        let binding = self.visible.get(name.as_bytes());
        binding.filter(|binding| binding.scope == self.scope).map(|binding| binding.slot)
    }

    /// Resolves types and quantization annotations. A name that is unknown here has no slot.
    fn annotations(&mut self, graph: &'m GraphProto) {
        for info in &graph.value_info {
            let slot = info.name.as_ref().and_then(|name| self.own(name));
            self.push(slot.unwrap_or(ABSENT));
        }
        for annotation in &graph.quantization_annotation {
            let parameters = annotation.quant_parameter_tensor_names.iter();
            let names = parameters.map(|entry| entry.value.as_ref());
            for name in [annotation.tensor_name.as_ref()].into_iter().chain(names) {
                let binding = name.and_then(|name| self.visible.get(name.as_bytes()));
                let slot = binding.map_or(ABSENT, |binding| binding.slot);
                self.push(slot);
            }
        }
    }
}

fn broken(reason: String) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}
