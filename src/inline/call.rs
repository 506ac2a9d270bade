//! A call: what it gives to the body that takes its place.

use std::rc::Rc;

use super::binding::{Binding, Closure, Value, is_plain, merged};
use super::body::{Body, Output, Slot, is_reference, name_of, sharded};
use super::calls::{graphs, invalid};
use super::copy::{Copier, Frame, unresolved};
use super::scope::{Name, Names, Passed, Scope, Slots, index};
use super::types::renamed;
use crate::error::{Error, Result};
use crate::proto::{FunctionProto, GraphProto, NodeProto, ValueInfoProto};

/// Values that are handed on; names and slots of computed outputs.
type Given<'m> = (Vec<Passed<'m>>, Vec<Option<(Name<'m>, Slot)>>);

impl<'m> Copier<'m> {
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
        self.spend(body.size)?;
        self.calls += 1;
        self.devices += u64::from(!node.device_configurations.is_empty());

        let mut names = self.names.pop().unwrap_or_default();
        names.clear();
        names.push(Name::Absent);
        names.extend(node.input.iter().map(|input| scope.name(input)));
        names.resize(1 + body.inputs.len(), Name::Absent);
        let (passed, taken) = self.outputs(function, body, &names, node, scope)?;
        // The call's own name and shardings, which nothing takes.
        for _ in 0..1 + sharded(node).count() {
            scope.slot();
        }
        self.fresh.next(body, &self.taken, &mut names);
        let binding = self.binding(callee, body, node, scope)?;
        let value_info = self.types(body, &names);
        let call = Some(self.fresh.call());
        let mut slots = Slots::new(body, names);
        slots.taken = taken;
        let scope = Scope { names: Names::Slots(slots), binding, call };
        Ok(Frame { nodes: function.node.iter(), scope, passed, value_info })
    }

    /// Notes in `taken` what the call calls the values that the body computes. Returns what the body
    /// hands on without computing it, or for a second time; and where there is no Identity for
    /// everything, the names and slots of those that it computes.
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
                    let local = index(*computed).saturating_sub(1 + body.inputs.len());
                    let Some(taken) = self.taken.get_mut(local) else { continue };
                    if taken.is_none() {
                        *taken = Some(name);
                        slots
                            .get_mut(local)
                            .map(|place| *place = Some((name, slot)))
                            .unwrap_or_default();
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

    /// What the call gives to the attributes and remarks of the body.
    fn binding(
        &mut self,
        callee: usize,
        body: &'m Body<'m>,
        node: &'m NodeProto,
        scope: &mut Scope<'m>,
    ) -> Result<Rc<Binding<'m>>> {
        let metadata = merged(node, &scope.binding.metadata);
        if !node.attribute.is_empty() || !metadata.is_empty() {
            self.spend(body.size.remarks(&metadata))?;
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

    /// The types of what the body computes, but for what the call names: the function's type of that
    /// may be wider than the call's.
    fn types(&self, body: &Body<'m>, names: &[Name<'m>]) -> Vec<(Slot, ValueInfoProto)> {
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

/// # Errors
/// When a call has more of them than the function.
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
