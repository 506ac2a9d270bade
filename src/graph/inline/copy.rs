//! Copies nodes under the names of their call, with bodies in the place of calls.
//!
//! One walk serves every place. In a body, names are read from its slots; in the model's own graphs
//! they stay as written. The depth of calls has no limit, so the walk keeps them as a stack of
//! frames; graphs may not nest deeper than readers accept, so they are a recursion with that limit.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::rc::Rc;
use std::slice;

use foldhash::fast::RandomState;

use super::bodies::Bodies;
use super::body::{Body, NameSlot, Output, index};
use super::calls::Size;
use super::context::Context;
use super::functions::{graphs, invalid, is_reference, name_of, sharded};
use super::identity::{Identity, no_identity};
use super::names::{Dimensions, Fresh, Name, Taken};
use super::rename::{Renames, renamed};
use super::scope::{
    Binding, Closure, Names, Passed, PassedAs, Scope, Slots, Value, is_plain, merged,
};
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{FunctionProto, GraphProto, NodeProto, ValueInfoProto};
use crate::util::cancel;

/// The names that fresh names must not equal.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    /// Names of values and nodes.
    pub(super) names: Taken,
    /// Names of symbolic dimensions.
    pub(super) dimensions: Dimensions,
}

/// The result of a copy: nodes, and types of the values between them.
#[derive(Default)]
pub(super) struct Copied {
    pub(super) nodes: Vec<NodeProto>,
    pub(super) value_info: Vec<ValueInfoProto>,
    /// Values that get the name of an output.
    pub(super) renames: Renames,
}

/// A body that is being copied.
pub(super) struct Frame<'m> {
    pub(super) nodes: slice::Iter<'m, NodeProto>,
    pub(super) scope: Scope<'m>,
    pub(super) passed: Vec<Passed<'m>>,
    /// Types of the values that its own nodes compute, by their slots.
    pub(super) value_info: Vec<(NameSlot, ValueInfoProto)>,
}

/// Copies nodes to one place.
pub(super) struct Copier<'m> {
    pub(super) context: &'m Context<'m>,
    pub(super) bodies: &'m Bodies<'m>,
    pub(super) reserved: &'m Reserved,
    pub(super) fresh: Fresh<'m>,
    /// How many calls were replaced.
    pub(super) calls: u64,
    /// How many calls had device configurations, which the copies do not get.
    pub(super) devices: u64,
    max_nodes: u64,
    made: Size,
    identity: Identity,
    /// The bindings of calls without attributes and metadata, shared by all such calls of a
    /// function.
    pub(super) bindings: HashMap<usize, Rc<Binding<'m>>, RandomState>,
    /// For the present call, the caller's name for each output.
    pub(super) taken: Vec<Option<Name<'m>>>,
    /// An empty list, kept because the next call reuses its memory.
    frames: Vec<Frame<'m>>,
    /// The name lists of finished calls, kept because later calls reuse their memory.
    pub(super) names: Vec<Vec<Name<'m>>>,
}

impl<'m> Copier<'m> {
    /// `opset` is the version of the ONNX operators in the place.
    pub(super) fn new(
        context: &'m Context<'m>,
        bodies: &'m Bodies<'m>,
        reserved: &'m Reserved,
        fresh: Fresh<'m>,
        max_nodes: u64,
        opset: Option<i64>,
    ) -> Self {
        Self {
            context,
            bodies,
            reserved,
            fresh,
            calls: 0,
            devices: 0,
            max_nodes,
            made: Size::default(),
            identity: Identity::of(context, opset),
            bindings: HashMap::default(),
            taken: Vec::new(),
            frames: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Whether an Identity can pass through a value of any type.
    pub(super) fn has_identity(&self) -> bool {
        self.identity == Identity::Every
    }

    pub(super) fn inlines(&self, callee: usize) -> bool {
        self.context.decision.inlines(callee)
    }

    /// Copies `nodes`; calls among them, and those in the bodies of calls, become their bodies.
    pub(super) fn nodes(
        &mut self,
        nodes: &'m [NodeProto],
        scope: &mut Scope<'m>,
        out: &mut Copied,
        depth: usize,
    ) -> Result<()> {
        for node in nodes {
            match self.callee(node, scope) {
                Some(callee) => self.splice(callee, node, scope, out, depth)?,
                None => self.copy(node, scope, out, depth)?,
            }
        }
        Ok(())
    }

    /// Copies the body of `callee` for the call `node`, with the bodies of the calls in it.
    pub(super) fn splice(
        &mut self,
        callee: usize,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
        out: &mut Copied,
        depth: usize,
    ) -> Result<()> {
        let mut frames = mem::take(&mut self.frames);
        let result = self.call(callee, node, scope).and_then(|frame| {
            frames.push(frame);
            self.run(&mut frames, scope, out, depth)
        });
        // Drops the last frame first, also on errors: a frame may hold the only reference to what
        // the frame before it holds, so dropping the list from the front would recurse once per
        // frame.
        while frames.pop().is_some() {}
        self.frames = frames;
        result
    }

    /// Copies what is in `frames` until none is left.
    fn run(
        &mut self,
        frames: &mut Vec<Frame<'m>>,
        scope: &mut Scope<'m>,
        out: &mut Copied,
        depth: usize,
    ) -> Result<()> {
        while let Some(frame) = frames.last_mut() {
            let Some(node) = frame.nodes.next() else {
                let Some(done) = frames.pop() else { break };
                match frames.last_mut() {
                    Some(caller) => {
                        let more = self.finish(done, &mut caller.scope, out)?;
                        caller.passed.extend(more);
                    }
                    None => drop(self.finish(done, scope, out)?),
                }
                continue;
            };
            match self.callee(node, &mut frame.scope) {
                Some(callee) => {
                    let frame = self.call(callee, node, &mut frame.scope)?;
                    frames.push(frame);
                }
                None => self.copy(node, &mut frame.scope, out, depth)?,
            }
        }
        Ok(())
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
        out: &mut Copied,
        depth: usize,
    ) -> Result<()> {
        let input = node.input.iter().map(|name| self.fresh.text(scope.name(name))).collect();
        let output = node.output.iter().map(|name| self.fresh.text(scope.name(name))).collect();
        let name = self.optional(node.name.as_ref(), scope);
        let mut more = node.more.clone();
        if !node.device_configurations.is_empty() {
            let names: Vec<_> = sharded(node).map(|tensor| scope.operand(tensor)).collect();
            let mut tensors = names.into_iter();
            for device in &mut more.device_configurations {
                device.sharding_spec.retain_mut(|spec| {
                    let tensor = tensors.next().flatten();
                    // A sharding of an input that the call leaves out is dropped.
                    let absent = tensor.is_some_and(Name::is_empty) && spec.tensor_name.is_some();
                    spec.tensor_name = tensor.map(|name| self.fresh.text(name));
                    !absent
                });
            }
        }
        let attribute = self.attributes(&node.attribute, scope, depth)?;
        let metadata_props = merged(node, &scope.binding.metadata);
        let mut copy = NodeProto::default();
        (copy.input, copy.output, copy.name) = (input, output, name);
        (copy.op_type, copy.domain) = (node.op_type.clone(), node.domain.clone());
        (copy.attribute, copy.metadata_props, copy.more) = (attribute, metadata_props, more);
        out.nodes.push(copy);
        Ok(())
    }

    /// Counts what is about to be made, and checks the limit. The graphs that calls pass are
    /// counted only here: the sizes that are known before the first copy do not include them.
    pub(super) fn spend(&mut self, size: Size) -> Result<()> {
        self.made = self.made.plus(size);
        let over = self.made.in_nodes() > self.max_nodes;
        if over { Err(too_many(None, self.max_nodes)) } else { Ok(()) }
    }

    /// Finishes a body: adds Identities, or aliases, for the values that it passes through, and the
    /// types. Returns the values that the enclosing body passes through as a consequence.
    fn finish(
        &mut self,
        done: Frame<'m>,
        caller: &mut Scope<'m>,
        out: &mut Copied,
    ) -> Result<Vec<Passed<'m>>> {
        let mut on = Vec::new();
        let Names::Slots(slots) = done.scope.names else { return Ok(on) };
        slots.check_end()?;
        for passed in done.passed {
            let value = slots.at(passed.from);
            let outcome = match self.identity {
                Identity::Every => PassedAs::Output(1),
                Identity::Since(_) => caller.alias(passed, value),
            };
            match outcome {
                PassedAs::Aliased => {}
                PassedAs::On(passed) => on.push(passed),
                PassedAs::Output(since) => {
                    let (value, name) = (self.fresh.text(value), self.fresh.text(passed.name));
                    if self.identity.has(since) {
                        let mut node = NodeProto::new("Identity", [value], [name]);
                        node.metadata_props.clone_from(&done.scope.binding.metadata);
                        out.nodes.push(node);
                    } else if since == 1 || out.renames.insert(value, name).is_some() {
                        return Err(no_identity());
                    }
                }
            }
        }
        let gone: HashSet<_> = slots.aliases.into_iter().collect();
        let infos = done.value_info.into_iter().filter(|(slot, _)| !gone.contains(slot));
        out.value_info.extend(infos.map(|(_, info)| info));
        self.names.push(slots.names);
        Ok(on)
    }
}

/// The error of a body that was not resolved before the first copy.
pub(super) fn unresolved() -> Error {
    Error::internal("a function's body was not resolved")
}

/// The error of a model that would grow over `max`, to `size` if that is known.
pub(super) fn too_many(size: Option<Size>, max: u64) -> Error {
    let what = match size {
        Some(Size { nodes: u64::MAX, .. }) => "2^64 nodes or more".to_owned(),
        Some(Size { nodes, .. }) if nodes > max => format!("{nodes} nodes"),
        Some(Size { calls, .. }) if calls > max => format!("{calls} calls"),
        Some(size) => format!("copies as large as {} nodes", size.in_nodes()),
        None => "more nodes".to_owned(),
    };
    let reason = format!("the inlined model would have {what}: `max_nodes` allows {max}");
    Error::new(ErrorKind::TooLarge, reason)
}

/// Values that are passed through; names and slots of computed outputs.
type Given<'m> = (Vec<Passed<'m>>, Vec<Option<(Name<'m>, NameSlot)>>);

impl<'m> Copier<'m> {
    /// Opens the body of `callee` for the call `node`.
    pub(super) fn call(
        &mut self,
        callee: usize,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
    ) -> Result<Frame<'m>> {
        cancel::check()?;
        let found = self.context.functions.get(callee).zip(self.bodies.function(callee));
        let (function, body) = found.ok_or_else(unresolved)?;
        count(function, "inputs", node.input.len(), function.input.len())?;
        count(function, "outputs", node.output.len(), function.output.len())?;
        self.spend(body.size)?;
        self.calls += 1;
        self.devices += u64::from(!node.device_configurations.is_empty());

        let mut names = self.names.pop().unwrap_or_default();
        names.clear();
        names.push(Name::Absent);
        names.extend(node.input.iter().map(|input| scope.name(input)));
        names.resize(1 + body.inputs.len(), Name::Absent);
        let (passed, taken) = self.outputs(function, body, &names, node, scope)?;
        // The slots of the call's own name and shardings are read and dropped.
        for _ in 0..1 + sharded(node).count() {
            scope.slot();
        }
        self.fresh.next(body, &self.taken, &mut names);
        check_names(body, &names)?;
        let binding = self.binding(callee, body, node, scope)?;
        let value_info = self.types(body, &names);
        let call = Some(self.fresh.call());
        let mut slots = Slots::new(body, names);
        slots.taken = taken;
        let scope = Scope { names: Names::Slots(slots), binding, call };
        Ok(Frame { nodes: function.node.iter(), scope, passed, value_info })
    }

    /// Writes the caller's name for each output that the body computes to `self.taken`. Returns the
    /// outputs that the body passes through, or that repeat an earlier one; and where not every
    /// type has an Identity, the names and slots of the computed outputs.
    fn outputs(
        &mut self,
        function: &FunctionProto,
        body: &Body<'m>,
        inputs: &[Name<'m>],
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
    ) -> Result<Given<'m>> {
        self.taken.clear();
        self.taken.resize(body.computed, None);
        let (mut passed, mut slots) = (Vec::new(), Vec::new());
        if !self.has_identity() {
            slots.resize(body.computed, None);
        }
        for (i, (output, written)) in body.outputs.iter().zip(&node.output).enumerate() {
            let (name, slot) = scope.name_and_slot(written);
            if name.is_empty() {
                continue;
            }
            let from = match output {
                Output::Computed(computed) => {
                    let local = index(*computed).checked_sub(1 + body.inputs.len());
                    let taken = local.and_then(|local| Some((local, self.taken.get_mut(local)?)));
                    let (local, taken) =
                        taken.ok_or_else(|| Error::internal("an output that no body computes"))?;
                    if taken.is_none() {
                        *taken = Some(name);
                        if let Some(place) = slots.get_mut(local) {
                            *place = Some((name, slot));
                        }
                        continue;
                    }
                    *computed
                }
                Output::Passed(input)
                    if inputs.get(index(*input)).is_some_and(|n| !n.is_empty()) =>
                {
                    *input
                }
                Output::Passed(_) | Output::Undefined => return Err(undefined(function, i)),
            };
            passed.push(Passed { from, name, slot });
        }
        Ok((passed, slots))
    }

    /// The attributes and metadata that the call gives to the nodes of the body.
    fn binding(
        &mut self,
        callee: usize,
        body: &'m Body<'m>,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
    ) -> Result<Rc<Binding<'m>>> {
        let metadata = merged(node, &scope.binding.metadata);
        if !node.attribute.is_empty() || !metadata.is_empty() {
            self.spend(body.size.metadata(&metadata))?;
            let given = self.given(node, scope)?;
            return Ok(Rc::new(Binding::call(body, given, metadata)));
        }
        let empty = || Rc::new(Binding::call(body, Vec::new(), Vec::new()));
        Ok(self.bindings.entry(callee).or_insert_with(empty).clone())
    }

    fn given(
        &mut self,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
    ) -> Result<Vec<(&'m [u8], Value<'m>)>> {
        let mut given = Vec::with_capacity(node.attribute.len());
        for attribute in &node.attribute {
            let value = if is_plain(attribute) {
                Some(Value::Plain(attribute))
            } else if is_reference(attribute) {
                scope.binding.value(attribute, self.bodies, scope.call)?
            } else {
                let closures = graphs(attribute).map(|graph| self.closure(graph, scope));
                Some(Value::Graphs(attribute, closures.collect::<Result<_>>()?))
            };
            let Some(value) = value else { continue };
            given.push((name_of(attribute), value));
        }
        Ok(given)
    }

    fn closure(&self, graph: &'m GraphProto, scope: &mut Scope<'m>) -> Result<Closure<'m>> {
        let resolved = match &mut scope.names {
            Names::Written(_) => self.bodies.argument(graph),
            Names::Slots(Slots { body, argument, .. }) => {
                *argument += 1;
                body.arguments.get(*argument - 1)
            }
        };
        let body = resolved.ok_or_else(unresolved)?;
        let inputs = body.inputs.iter().map(|name| scope.name(name)).collect();
        let (binding, call) = (scope.binding.clone(), scope.call);
        Ok(Closure { graph, body, inputs, binding, call })
    }

    /// The types of the values that the body computes, except those that are outputs of the call:
    /// for an output the function's type may be wider than the caller's.
    fn types(&self, body: &Body<'m>, names: &[Name<'m>]) -> Vec<(NameSlot, ValueInfoProto)> {
        let own = body.value_info.iter().filter(|(slot, _)| {
            let local = index(*slot).saturating_sub(1 + body.inputs.len());
            self.taken.get(local).copied().flatten().is_none()
        });
        let renamed = |(slot, info): &(_, &ValueInfoProto)| {
            let name = names.get(index(*slot)).map(|name| self.fresh.text(*name));
            let call = Some(self.fresh.call());
            (*slot, renamed(info, name, call, &self.reserved.dimensions))
        };
        own.map(renamed).collect()
    }
}

/// Checks that `names` has one name for each slot of `body`: with too few, operands would be lost.
pub(super) fn check_names(body: &Body<'_>, names: &[Name<'_>]) -> Result<()> {
    if names.len() == 1 + body.inputs.len() + body.locals.len() {
        return Ok(());
    }
    Err(Error::internal("a call has another number of names than the body of its function"))
}

/// Checks the number of a call's inputs or outputs.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when the call has more than the function.
fn count(function: &FunctionProto, what: &str, given: usize, wanted: usize) -> Result<()> {
    if given <= wanted {
        return Ok(());
    }
    Err(invalid(function, &format!("has {wanted} {what} and is called with {given}")))
}

fn undefined(function: &FunctionProto, output: usize) -> Error {
    let name = function.output.get(output).cloned().unwrap_or_default();
    invalid(function, &format!("does not define its output `{name}`, which a call uses"))
}
