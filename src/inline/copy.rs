//! Copies of nodes, with the names of their call, and with bodies in the place of calls.
//!
//! One walk serves every place. In a body, names are read off its slots; in the model's own graphs
//! they stay as written. Calls nest as deep as a model likes, so they are a list of frames; graphs
//! nest as deep as readers take, so they are a recursion with a limit.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::slice;

use super::binding::{Binding, Closure, Value, check_default, is_plain, merged, name_of};
use super::body::{ABSENT, Bodies, Body, Output, Slot, is_reference, sharded};
use super::calls::{graphs, invalid};
use super::context::Context;
use super::names::{self, Numbers, Taken};
use crate::buffer::Buffer;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::tensor_shape_proto::DimensionValue;
use crate::proto::type_proto::Value as Type;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, Str, TensorAnnotation,
    TensorProto, TypeProto, ValueInfoProto,
};

/// How deep graphs may nest. Readers stop at 100 messages in one another, and a graph inside another
/// is three deeper.
const MAX_DEPTH: usize = 32;

/// The names that a fresh one must not equal.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// Of values and nodes.
    pub(super) names: Taken,
    /// Of dimensions.
    pub(super) dimensions: Taken,
}

/// What is made: nodes, and types of the values between them.
#[derive(Default)]
pub(super) struct Copied {
    pub(super) nodes: Vec<NodeProto>,
    pub(super) value_info: Vec<ValueInfoProto>,
}

/// How the names of a copy are found.
enum Names<'m> {
    /// As they stand, but for values that a call only handed on.
    Written(Aliases),
    /// By the slots of a body; both numbers count what was read.
    Slots(Slots<'m>),
}

/// A body's names, and how far its copy is.
struct Slots<'m> {
    body: &'m Body<'m>,
    names: Vec<Str>,
    /// The slots that stand for another value, which a call only handed on.
    aliases: HashSet<Slot>,
    slot: usize,
    node: usize,
    argument: usize,
}

impl<'m> Slots<'m> {
    fn new(body: &'m Body<'m>, names: Vec<Str>) -> Self {
        Self { body, names, aliases: HashSet::new(), slot: 0, node: 0, argument: 0 }
    }

    fn next(&mut self) -> Slot {
        self.slot += 1;
        self.body.slots.get(self.slot - 1).copied().unwrap_or(ABSENT)
    }

    fn at(&self, slot: Slot) -> Str {
        self.names.get(index(slot)).cloned().unwrap_or_default()
    }

    /// Whether the value's name may not change: an output of the function, or of a graph in it.
    fn is_output(&self, slot: Slot) -> bool {
        let local = index(slot).checked_sub(1 + self.body.inputs.len());
        local.is_none_or(|local| local < self.body.computed)
            || self.body.graph_outputs.contains(&slot)
    }
}

/// Names that stand for other values, in the graph where that was decided and those inside.
#[derive(Default)]
struct Aliases {
    values: HashMap<Str, Str>,
    order: Vec<Str>,
    /// The outputs of the graph that is copied: they keep their names.
    outputs: HashSet<Str>,
}

/// Where nodes are copied from.
pub(super) struct Scope<'m> {
    names: Names<'m>,
    binding: Rc<Binding<'m>>,
    /// The call whose body it is; dimensions have its number.
    call: Option<u64>,
}

impl<'m> Scope<'m> {
    /// A graph of the model, or the body of a function that stays.
    pub(super) fn written(binding: Binding<'m>, outputs: impl Iterator<Item = Str>) -> Self {
        let aliases = Aliases { outputs: outputs.collect(), ..Aliases::default() };
        Self { names: Names::Written(aliases), binding: Rc::new(binding), call: None }
    }

    /// Whether nothing has another name than it had.
    pub(super) fn is_unchanged(&self) -> bool {
        matches!(&self.names, Names::Written(aliases) if aliases.values.is_empty())
    }

    /// The values that are not there any more.
    pub(super) fn aliased(&self) -> impl Iterator<Item = &Str> {
        let aliases = match &self.names {
            Names::Written(aliases) => aliases.order.as_slice(),
            Names::Slots(_) => &[],
        };
        aliases.iter()
    }

    fn slot(&mut self) -> Slot {
        match &mut self.names {
            Names::Written(_) => ABSENT,
            Names::Slots(slots) => slots.next(),
        }
    }

    /// The next name of the copy, which was `written`.
    fn name(&mut self, written: &Str) -> Str {
        match &mut self.names {
            Names::Written(aliases) => aliases.get(written),
            Names::Slots(slots) => {
                let slot = slots.next();
                slots.at(slot)
            }
        }
    }

    fn optional(&mut self, written: Option<&Str>) -> Option<Str> {
        let Some(written) = written else {
            self.slot();
            return None;
        };
        Some(self.name(written))
    }

    /// The next name where a remark may be about a value that is not known: that has none.
    fn known(&mut self, written: Option<&Str>) -> Option<Str> {
        match &mut self.names {
            Names::Written(aliases) => written.map(|name| aliases.get(name)),
            Names::Slots(slots) => match slots.next() {
                ABSENT => None,
                slot => Some(slots.at(slot)),
            },
        }
    }

    /// The names of a call's outputs, with their slots.
    fn outputs(&mut self, written: &[Str]) -> Vec<(Slot, Str)> {
        let mut output = |name: &Str| match &mut self.names {
            Names::Written(aliases) => (ABSENT, aliases.get(name)),
            Names::Slots(slots) => {
                let slot = slots.next();
                (slot, slots.at(slot))
            }
        };
        written.iter().map(&mut output).collect()
    }

    /// Lets `value` stand for what a call gives as `passed`, unless that is an output.
    fn alias(&mut self, passed: &Passed) -> bool {
        match &mut self.names {
            Names::Written(aliases) => aliases.insert(passed),
            Names::Slots(slots) if slots.is_output(passed.slot) => false,
            Names::Slots(slots) => {
                if let Some(name) = slots.names.get_mut(index(passed.slot)) {
                    *name = passed.value.clone();
                }
                slots.aliases.insert(passed.slot);
                true
            }
        }
    }

    fn list(&mut self, written: &[Str]) -> Vec<Str> {
        written.iter().map(|name| self.name(name)).collect()
    }
}

impl Aliases {
    fn get(&self, name: &Str) -> Str {
        if self.values.is_empty() {
            return name.clone();
        }
        self.values.get(name).unwrap_or(name).clone()
    }

    fn insert(&mut self, passed: &Passed) -> bool {
        if self.outputs.contains(&passed.name) {
            return false;
        }
        self.order.push(passed.name.clone());
        self.values.insert(passed.name.clone(), passed.value.clone());
        true
    }
}

/// A value that a body hands on without computing it.
struct Passed {
    value: Str,
    /// The name that the call gives it.
    name: Str,
    /// The slot of that name where the call stands.
    slot: Slot,
}

fn index(slot: Slot) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

/// A body that is being copied.
struct Frame<'m> {
    nodes: slice::Iter<'m, NodeProto>,
    scope: Scope<'m>,
    passed: Vec<Passed>,
    /// Types of the values that its own nodes compute, by their slots.
    value_info: Vec<(Slot, ValueInfoProto)>,
}

/// Makes copies.
pub(super) struct Copier<'m> {
    context: &'m Context<'m>,
    bodies: &'m Bodies<'m>,
    reserved: &'m Reserved,
    pub(super) numbers: Numbers,
    /// How many calls were replaced.
    pub(super) calls: u64,
    /// How many calls had device configurations, which no node takes over.
    pub(super) devices: u64,
    max_nodes: u64,
    /// How many nodes may still be made.
    left: u64,
    /// Whether every type has an Identity.
    identity: bool,
    scratch: Vec<Option<Str>>,
}

impl<'m> Copier<'m> {
    /// `opset` is the version of the ONNX operators where the copies go.
    pub(super) fn new(
        context: &'m Context<'m>,
        bodies: &'m Bodies<'m>,
        reserved: &'m Reserved,
        max_nodes: u64,
        opset: Option<i64>,
    ) -> Self {
        Self {
            context,
            bodies,
            reserved,
            numbers: Numbers::default(),
            calls: 0,
            devices: 0,
            max_nodes,
            left: max_nodes,
            // Of sequences since 14, of optionals since 16.
            identity: opset.is_some_and(|opset| opset >= 16),
            scratch: Vec::new(),
        }
    }

    /// Copies `nodes`; calls among them, and those in the bodies of calls, become their bodies.
    pub(super) fn nodes(
        &mut self,
        nodes: &'m [NodeProto],
        scope: &mut Scope<'m>,
        out: &mut Copied,
        depth: usize,
    ) -> Result<()> {
        let mut nodes = nodes.iter();
        let mut frames: Vec<Frame<'m>> = Vec::new();
        loop {
            let (next, inner) = match frames.last_mut() {
                Some(frame) => (frame.nodes.next(), &mut frame.scope),
                None => (nodes.next(), &mut *scope),
            };
            if let Some(node) = next {
                let frame = self.node(node, inner, out, depth)?;
                frames.extend(frame);
            } else if let Some(done) = frames.pop() {
                let caller = frames.last_mut().map_or(&mut *scope, |frame| &mut frame.scope);
                self.hand_on(done, caller, out);
            } else {
                return Ok(());
            }
        }
    }

    /// Copies a node, or opens the body that takes its place.
    fn node(
        &mut self,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
        out: &mut Copied,
        depth: usize,
    ) -> Result<Option<Frame<'m>>> {
        match self.callee(node, scope) {
            Some(callee) => self.call(callee, node, scope).map(Some),
            None => {
                let copy = self.copy(node, scope, depth)?;
                out.nodes.push(copy);
                Ok(None)
            }
        }
    }

    fn callee(&self, node: &NodeProto, scope: &mut Scope<'m>) -> Option<usize> {
        match &mut scope.names {
            Names::Written(_) => self.context.callee(node),
            Names::Slots(Slots { body, node, .. }) => {
                *node += 1;
                body.callees.get(*node - 1).copied().flatten()
            }
        }
    }

    fn copy(
        &mut self,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
        depth: usize,
    ) -> Result<NodeProto> {
        let input = scope.list(&node.input);
        let output = scope.list(&node.output);
        let name = scope.optional(node.name.as_ref());
        let mut more = node.more.clone();
        if !node.device_configurations.is_empty() {
            let mut tensors = sharded(node).map(|tensor| scope.known(tensor)).collect::<Vec<_>>();
            let mut tensors = tensors.iter_mut();
            let devices = more.device_configurations.iter_mut();
            for spec in devices.flat_map(|device| &mut device.sharding_spec) {
                if let Some(Some(tensor)) = tensors.next() {
                    spec.tensor_name = Some(std::mem::take(tensor));
                }
            }
        }
        Ok(NodeProto {
            input,
            output,
            name,
            more,
            op_type: node.op_type.clone(),
            domain: node.domain.clone(),
            attribute: self.attributes(&node.attribute, scope, depth)?,
            metadata_props: merged(node, &scope.binding.metadata),
        })
    }

    fn attributes(
        &mut self,
        attributes: &'m [AttributeProto],
        scope: &mut Scope<'m>,
        depth: usize,
    ) -> Result<Vec<AttributeProto>> {
        let mut copies = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            if is_plain(attribute) {
                copies.push(attribute.clone());
            } else if is_reference(attribute) {
                let value = scope.binding.value(attribute, self.bodies)?;
                let copy = value.map(|value| self.value(attribute, &value, depth)).transpose()?;
                copies.extend(copy);
            } else {
                let inner = graphs(attribute);
                let graphs = inner.map(|graph| self.graph(graph, scope, depth + 1));
                let graphs = graphs.collect::<Result<_>>()?;
                copies.push(with_graphs(attribute, attribute, graphs));
            }
        }
        Ok(copies)
    }

    /// `attribute` with the value that its reference stands for.
    fn value(
        &mut self,
        attribute: &'m AttributeProto,
        value: &Value<'m>,
        depth: usize,
    ) -> Result<AttributeProto> {
        Ok(match value {
            Value::Plain(value) => named(AttributeProto::clone(value), attribute),
            Value::Open { name, attribute: outer, .. } => {
                let mut copy = AttributeProto { r#type: outer.r#type, ..AttributeProto::default() };
                copy.ref_attr_name = Some(Str::clone(name));
                named(copy, attribute)
            }
            Value::Graphs(value, closures) => {
                let graphs = closures.iter().map(|closure| self.paste(closure, depth + 1));
                let graphs = graphs.collect::<Result<_>>()?;
                with_graphs(attribute, value, graphs)
            }
        })
    }

    /// A copy of a graph that a call gave. Its own names are fresh each time, as those of a call are.
    fn paste(&mut self, closure: &Closure<'m>, depth: usize) -> Result<GraphProto> {
        self.spend(closure.body.weight)?;
        self.numbers.next();
        let mut names = vec![Str::default()];
        names.extend_from_slice(&closure.inputs);
        self.fresh(closure.body, &mut names);
        let mut scope = Scope {
            names: Names::Slots(Slots::new(closure.body, names)),
            binding: closure.binding.clone(),
            call: closure.call,
        };
        self.graph(closure.graph, &mut scope, depth)
    }

    /// Copies a graph, in the order in which its names were resolved.
    pub(super) fn graph(
        &mut self,
        graph: &'m GraphProto,
        scope: &mut Scope<'m>,
        depth: usize,
    ) -> Result<GraphProto> {
        if depth > MAX_DEPTH {
            let reason =
                format!("graphs would nest more than {MAX_DEPTH} deep: readers refuse that");
            return Err(Error::new(ErrorKind::TooLarge, reason));
        }
        let around = scope.enter(graph);
        let input = graph.input.iter().map(|info| scope.value_info(info, self.reserved)).collect();
        let initializer = graph.initializer.iter().map(|tensor| scope.tensor(tensor)).collect();
        let sparse: Vec<_> = graph.sparse_initializer.iter().map(|t| scope.sparse(t)).collect();
        let mut inner = Copied { nodes: Vec::with_capacity(graph.node.len()), ..Copied::default() };
        self.nodes(&graph.node, scope, &mut inner, depth)?;
        let output =
            graph.output.iter().map(|info| scope.value_info(info, self.reserved)).collect();
        let value_info =
            graph.value_info.iter().filter_map(|info| scope.known_info(info, self.reserved));
        let value_info =
            value_info.collect::<Vec<_>>().into_iter().chain(inner.value_info).collect();
        let quantization = graph.quantization_annotation.iter();
        let quantization: Vec<_> = quantization.filter_map(|note| scope.annotation(note)).collect();
        scope.leave(around);
        Ok(GraphProto {
            node: inner.nodes,
            name: graph.name.clone(),
            initializer,
            doc_string: graph.doc_string.clone(),
            input,
            output,
            value_info,
            quantization_annotation: if quantization.is_empty() {
                Default::default()
            } else {
                quantization.into()
            },
            sparse_initializer: if sparse.is_empty() { Default::default() } else { sparse.into() },
            metadata_props: graph.metadata_props.clone(),
            unknown: graph.unknown.clone(),
        })
    }

    /// Opens the body of `callee` for the call `node`.
    pub(super) fn call(
        &mut self,
        callee: usize,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
    ) -> Result<Frame<'m>> {
        let found = self.context.functions.get(callee).zip(self.bodies.function(callee));
        let (function, body) = found.ok_or_else(unresolved)?;
        count(function, "inputs", node.input.len(), function.input.len())?;
        count(function, "outputs", node.output.len(), function.output.len())?;
        self.spend(body.weight)?;
        self.numbers.next();
        self.calls += 1;
        self.devices += u64::from(!node.device_configurations.is_empty());
        let mut names = Vec::with_capacity(1 + body.inputs.len() + body.locals.len());
        names.push(Str::default());
        names.extend(node.input.iter().map(|input| scope.name(input)));
        names.resize(1 + body.inputs.len(), Str::default());
        let outputs = scope.outputs(&node.output);
        scope.slot(); // the call's name, which nothing takes
        sharded(node).for_each(|_| drop(scope.slot()));
        let given = self.given(function, node, scope)?;
        let metadata = merged(node, &scope.binding.metadata);
        let passed = self.bind(function, body, &mut names, outputs)?;
        let value_info = self.value_info(body, &names);
        let scope = Scope {
            names: Names::Slots(Slots::new(body, names)),
            binding: Rc::new(Binding::call(function, given, metadata)),
            call: Some(self.numbers.call),
        };
        Ok(Frame { nodes: function.node.iter(), scope, passed, value_info })
    }

    /// The types of what the body computes, but for what the call names: the function's type of that
    /// may be wider than the call's.
    fn value_info(&self, body: &Body<'m>, names: &[Str]) -> Vec<(Slot, ValueInfoProto)> {
        let first = 1 + body.inputs.len();
        let infos = body.value_info.iter().filter(|(slot, _)| {
            let local = index(*slot).checked_sub(first).filter(|local| *local < body.computed);
            !local.is_some_and(|local| self.scratch.get(local).is_some_and(Option::is_some))
        });
        let call = Some(self.numbers.call);
        let renamed = |(slot, info): &(Slot, &ValueInfoProto)| {
            let name = names.get(index(*slot)).cloned();
            (*slot, renamed(info, name, call, &self.reserved.dimensions))
        };
        infos.map(renamed).collect()
    }

    fn spend(&mut self, weight: u64) -> Result<()> {
        self.left = self.left.checked_sub(weight).ok_or_else(|| too_many(None, self.max_nodes))?;
        Ok(())
    }

    /// The attributes that a call gives.
    fn given(
        &mut self,
        function: &'m FunctionProto,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
    ) -> Result<Vec<(&'m [u8], Value<'m>)>> {
        let mut given = Vec::with_capacity(node.attribute.len());
        for attribute in &node.attribute {
            let value = if is_plain(attribute) {
                Some(Value::Plain(attribute))
            } else if is_reference(attribute) {
                scope.binding.value(attribute, self.bodies)?
            } else {
                let closures = graphs(attribute).map(|graph| self.closure(graph, scope));
                Some(Value::Graphs(attribute, closures.collect::<Result<_>>()?))
            };
            let Some(value) = value else { continue };
            check_default(function, attribute, &value)?;
            given.push((name_of(attribute), value));
        }
        Ok(given)
    }

    fn closure(&self, graph: &'m GraphProto, scope: &mut Scope<'m>) -> Result<Closure<'m>> {
        let body = match &mut scope.names {
            Names::Written(_) => self.bodies.argument(graph),
            Names::Slots(Slots { body, argument, .. }) => {
                *argument += 1;
                body.arguments.get(*argument - 1)
            }
        };
        let body = body.ok_or_else(unresolved)?;
        let inputs = body.inputs.iter().map(|name| scope.name(name)).collect();
        let (binding, call) = (scope.binding.clone(), scope.call);
        Ok(Closure { graph, body, inputs, binding, call })
    }

    /// Names what the body defines, after its inputs: by the call's outputs where it takes them,
    /// else by fresh names. Returns what is handed on.
    fn bind(
        &mut self,
        function: &FunctionProto,
        body: &Body<'m>,
        names: &mut Vec<Str>,
        outputs: Vec<(Slot, Str)>,
    ) -> Result<Vec<Passed>> {
        let first = 1 + body.inputs.len();
        self.scratch.clear();
        self.scratch.resize(body.computed, None);
        let mut passed = Vec::new();
        let actuals = body.outputs.iter().zip(outputs).enumerate();
        for (i, (output, (slot, name))) in actuals.filter(|(_, (_, (_, name)))| !name.is_empty()) {
            let value = match output {
                Output::Computed(computed) => {
                    let local = index(*computed).saturating_sub(first);
                    match self.scratch.get_mut(local) {
                        Some(Some(value)) => value.clone(),
                        Some(local) => {
                            *local = Some(name);
                            continue;
                        }
                        None => continue,
                    }
                }
                Output::Passed(input) => names.get(index(*input)).cloned().unwrap_or_default(),
                Output::Undefined => Str::default(),
            };
            if value.is_empty() {
                return Err(undefined(function, i));
            }
            passed.push(Passed { value, name, slot });
        }
        self.fresh(body, names);
        Ok(passed)
    }

    /// Appends the names of the body's locals: those in `scratch`, else fresh ones.
    fn fresh(&mut self, body: &Body<'m>, names: &mut Vec<Str>) {
        let mut text = Vec::new();
        let mut ends = Vec::with_capacity(body.locals.len());
        for (i, local) in body.locals.iter().enumerate() {
            let bound =
                |i: usize| i < body.computed && self.scratch.get(i).is_some_and(Option::is_some);
            if !bound(i) {
                let again = local.earlier.is_some_and(|earlier| !bound(earlier));
                self.numbers.push(local.base.as_bytes(), again, &self.reserved.names, &mut text);
            }
            ends.push(text.len());
        }
        let text = Buffer::from(text);
        let mut start = 0;
        for (i, end) in ends.into_iter().enumerate() {
            let bound = self.scratch.get(i).filter(|_| i < body.computed).cloned().flatten();
            let fresh = || Str::from(text.slice(start..end).unwrap_or_default());
            names.push(bound.unwrap_or_else(fresh));
            start = end;
        }
    }

    /// Ends a body: what it hands on without computing it, and types.
    fn hand_on(&self, done: Frame<'m>, caller: &mut Scope<'m>, out: &mut Copied) {
        if let Names::Slots(slots) = &done.scope.names {
            let infos = done.value_info.into_iter();
            let infos = infos.filter(|(slot, _)| !slots.aliases.contains(slot));
            out.value_info.extend(infos.map(|(_, info)| info));
        }
        for passed in done.passed {
            if self.identity || !caller.alias(&passed) {
                let mut node = NodeProto::new("Identity", [passed.value], [passed.name]);
                node.metadata_props = done.scope.binding.metadata.clone();
                out.nodes.push(node);
            }
        }
    }
}

/// What a graph around had, to be put back at the end of the graph inside.
struct Around {
    aliases: usize,
    outputs: HashSet<Str>,
}

impl<'m> Scope<'m> {
    fn enter(&mut self, graph: &GraphProto) -> Option<Around> {
        let Names::Written(aliases) = &mut self.names else { return None };
        let own = graph.output.iter().filter_map(|output| output.name.clone()).collect();
        let outputs = std::mem::replace(&mut aliases.outputs, own);
        Some(Around { aliases: aliases.order.len(), outputs })
    }

    fn leave(&mut self, around: Option<Around>) {
        let (Names::Written(aliases), Some(around)) = (&mut self.names, around) else { return };
        for name in aliases.order.drain(around.aliases..) {
            aliases.values.remove(&name);
        }
        aliases.outputs = around.outputs;
    }

    fn value_info(&mut self, info: &ValueInfoProto, reserved: &Reserved) -> ValueInfoProto {
        let name = self.optional(info.name.as_ref());
        renamed(info, name, self.call, &reserved.dimensions)
    }

    /// The type of a value, if the graph still has that value.
    fn known_info(&mut self, info: &ValueInfoProto, reserved: &Reserved) -> Option<ValueInfoProto> {
        let name = match &mut self.names {
            Names::Written(aliases) => {
                info.name.clone().filter(|name| !aliases.values.contains_key(name))
            }
            Names::Slots(slots) => match slots.next() {
                slot if slot == ABSENT || slots.aliases.contains(&slot) => None,
                slot => Some(slots.at(slot)),
            },
        };
        name.map(|name| renamed(info, Some(name), self.call, &reserved.dimensions))
    }

    fn tensor(&mut self, tensor: &TensorProto) -> TensorProto {
        TensorProto { name: self.optional(tensor.name.as_ref()), ..tensor.clone() }
    }

    fn sparse(&mut self, tensor: &SparseTensorProto) -> SparseTensorProto {
        let mut copy = tensor.clone();
        let written = tensor.values.as_ref().and_then(|values| values.name.as_ref());
        let name = self.optional(written);
        if let Some(values) = &mut copy.values {
            values.name = name;
        }
        copy
    }

    fn annotation(&mut self, annotation: &TensorAnnotation) -> Option<TensorAnnotation> {
        let tensor = self.known(annotation.tensor_name.as_ref());
        let mut copy = TensorAnnotation { tensor_name: tensor, ..annotation.clone() };
        copy.quant_parameter_tensor_names.retain_mut(|entry| {
            entry.value = self.known(entry.value.as_ref());
            entry.value.is_some()
        });
        copy.tensor_name.is_some().then_some(copy)
    }
}

/// A copy under another name; its symbolic dimensions become those of the call whose body it is from.
fn renamed(
    info: &ValueInfoProto,
    name: Option<Str>,
    call: Option<u64>,
    taken: &Taken,
) -> ValueInfoProto {
    let mut copy = ValueInfoProto { name, ..info.clone() };
    if let (Some(call), Some(r#type)) = (call, &mut copy.r#type) {
        dimensions(r#type, &mut |dimension| *dimension = names::dimension(dimension, call, taken));
    }
    copy
}

/// Calls `visit` with every symbolic dimension of a type.
pub(super) fn dimensions(r#type: &mut TypeProto, visit: &mut dyn FnMut(&mut Str)) {
    let shape = match &mut r#type.value {
        Some(Type::TensorType(tensor)) => tensor.shape.as_deref_mut(),
        Some(Type::SparseTensorType(tensor)) => tensor.shape.as_deref_mut(),
        Some(Type::SequenceType(list)) => return inner(&mut list.elem_type, visit),
        Some(Type::OptionalType(optional)) => return inner(&mut optional.elem_type, visit),
        Some(Type::MapType(map)) => return inner(&mut map.value_type, visit),
        Some(Type::OpaqueType(_)) | None => None,
    };
    for dimension in shape.into_iter().flat_map(|shape| &mut shape.dim) {
        if let Some(DimensionValue::DimParam(name)) = &mut dimension.value
            && !name.is_empty()
        {
            visit(name);
        }
    }
}

fn inner(r#type: &mut Option<Box<TypeProto>>, visit: &mut dyn FnMut(&mut Str)) {
    if let Some(inner) = r#type {
        dimensions(inner, visit);
    }
}

/// The value of an attribute under the name of another.
fn named(mut value: AttributeProto, target: &AttributeProto) -> AttributeProto {
    value.name.clone_from(&target.name);
    if value.doc_string != target.doc_string {
        value.doc_string.clone_from(&target.doc_string);
    }
    value
}

/// The attribute `value` with these graphs for its own, under the name of `target`.
fn with_graphs(
    target: &AttributeProto,
    value: &AttributeProto,
    mut graphs: Vec<GraphProto>,
) -> AttributeProto {
    let rest = graphs.split_off(usize::from(value.g.is_some()).min(graphs.len()));
    let g = graphs.pop().map(Box::new);
    let mut copy = AttributeProto { g, r#type: value.r#type, ..AttributeProto::default() };
    if !rest.is_empty() {
        copy.graphs = rest;
    }
    if !value.unknown.is_empty() {
        copy.unknown = value.unknown.clone();
    }
    named(copy, target)
}

/// # Errors
/// [`ErrorKind::InvalidModel`] when a call has more of them than the function.
fn count(function: &FunctionProto, what: &str, given: usize, wanted: usize) -> Result<()> {
    if given <= wanted {
        return Ok(());
    }
    Err(invalid(function, &format!("has {wanted} {what} and is called with {given}")))
}

fn undefined(function: &FunctionProto, output: usize) -> Error {
    let name = function.output.get(output).cloned().unwrap_or_default();
    invalid(function, &format!("does not give its output `{name}`, which a call takes"))
}

/// The error of a body that is not there: never, as bodies are resolved before.
fn unresolved() -> Error {
    Error::new(ErrorKind::InvalidModel, "a body was not resolved")
}

/// The error of a model that would grow over its limit.
pub(super) fn too_many(nodes: Option<u64>, max: u64) -> Error {
    let nodes = match nodes {
        Some(u64::MAX) => "2^64 nodes or more".to_owned(),
        Some(nodes) => format!("{nodes} nodes"),
        None => "more nodes".to_owned(),
    };
    let reason = format!("the inlined model would have {nodes}: `max_nodes` allows {max}");
    Error::new(ErrorKind::TooLarge, reason)
}
