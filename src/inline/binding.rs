//! What a call gives to the attributes of a body.
//!
//! A reference in the body takes what the call gives, else the function's default, else it is dropped.
//! A graph that is given is a closure: it sees the names of its caller, wherever it is pasted.

use std::rc::Rc;

use super::body::{Bodies, Body, is_reference};
use super::calls::{graphs, id_of};
use super::scope::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, Str, StringStringEntryProto,
};

/// What the nodes of a body take from the call.
#[derive(Default)]
pub(super) struct Binding<'m> {
    /// The attributes of the call.
    given: Vec<(&'m [u8], Value<'m>)>,
    /// The function that is called; none in a graph of the model.
    function: Option<&'m FunctionProto>,
    /// Whether the body is that of a function that stays, so that its references stay too.
    open: bool,
    /// Remarks of the calls around, the inner one's first.
    pub(super) metadata: Vec<StringStringEntryProto>,
}

/// The value of an attribute.
#[derive(Clone)]
pub(super) enum Value<'m> {
    /// That of this attribute, which holds no graph.
    Plain(&'m AttributeProto),
    /// Graphs, with this attribute's type.
    Graphs(&'m AttributeProto, Rc<[Closure<'m>]>),
    /// What the call of a function that stays will give by this name; it may give none.
    Open { name: &'m Str, attribute: &'m AttributeProto, always: bool },
}

/// A graph, and all that it takes from where it stands.
pub(super) struct Closure<'m> {
    pub(super) graph: &'m GraphProto,
    pub(super) body: &'m Body<'m>,
    /// The values of its free names.
    pub(super) inputs: Vec<Name<'m>>,
    pub(super) binding: Rc<Binding<'m>>,
    /// The call whose body it stands in, which its symbolic dimensions belong to.
    pub(super) call: Option<u64>,
}

impl<'m> Binding<'m> {
    /// That of a function that stays.
    pub(super) fn open(function: &'m FunctionProto) -> Self {
        Self { function: Some(function), open: true, ..Self::default() }
    }

    /// That of a call of `function`.
    pub(super) fn call(
        function: &'m FunctionProto,
        given: Vec<(&'m [u8], Value<'m>)>,
        metadata: Vec<StringStringEntryProto>,
    ) -> Self {
        Self { given, function: Some(function), open: false, metadata }
    }

    /// What an attribute with a reference stands for, in this place; `None` when it is to be dropped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] outside a function.
    pub(super) fn value(
        &self,
        attribute: &'m AttributeProto,
        bodies: &'m Bodies<'m>,
    ) -> Result<Option<Value<'m>>> {
        let Some(name) = &attribute.ref_attr_name else { return Ok(None) };
        let Some(function) = self.function else {
            let reason = format!("an attribute refers to `{name}`, outside of a function");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        };
        let default = function.attribute_proto.iter().find(|default| has_name(default, name));
        if self.open {
            return Ok(Some(Value::Open { name, attribute, always: default.is_some() }));
        }
        let given = self.given.iter().find(|(given, _)| *given == name.as_bytes());
        match (given, default) {
            (Some((_, value)), _) => Ok(Some(value.clone())),
            (None, Some(default)) => Ok(Some(default_value(function, default, bodies))),
            (None, None) => Ok(None),
        }
    }
}

fn has_name(attribute: &AttributeProto, name: &Str) -> bool {
    attribute.name.as_ref() == Some(name)
}

fn default_value<'m>(
    function: &'m FunctionProto,
    default: &'m AttributeProto,
    bodies: &'m Bodies<'m>,
) -> Value<'m> {
    if graphs(default).next().is_none() {
        return Value::Plain(default);
    }
    let closures = graphs(default).filter_map(|graph| {
        let (inputs, binding) =
            (Vec::new(), Rc::new(Binding::call(function, Vec::new(), Vec::new())));
        Some(Closure { graph, body: bodies.argument(graph)?, inputs, binding, call: None })
    });
    Value::Graphs(default, closures.collect())
}

/// A function whose default would be lost: it is called with what a function that stays may not be
/// given, and a reference cannot say what holds then.
pub(super) fn check_default(
    callee: &FunctionProto,
    attribute: &AttributeProto,
    value: &Value<'_>,
) -> Result<()> {
    let Value::Open { name, always: false, .. } = value else { return Ok(()) };
    let defaults = &mut callee.attribute_proto.iter();
    if !defaults.any(|default| default.name == attribute.name) {
        return Ok(());
    }
    let reason = format!(
        "function `{}` cannot be inlined where its attribute takes the optional attribute `{name}` of \
         a function that stays: its default would be lost",
        id_of(callee)
    );
    Err(Error::new(ErrorKind::Unsupported, reason))
}

/// The remarks of `node` and of the calls around it; of one key the inner one's counts.
pub(super) fn merged(
    node: &NodeProto,
    around: &[StringStringEntryProto],
) -> Vec<StringStringEntryProto> {
    let own = &node.metadata_props;
    let outer = around.iter().filter(|entry| own.iter().all(|own| own.key != entry.key));
    own.iter().chain(outer).cloned().collect()
}

/// The name that an attribute of a call gives its value to.
pub(super) fn name_of(attribute: &AttributeProto) -> &[u8] {
    attribute.name.as_ref().map(Str::as_bytes).unwrap_or_default()
}

/// Whether a copy of the attribute is just that: no graph inside, no reference.
pub(super) fn is_plain(attribute: &AttributeProto) -> bool {
    !is_reference(attribute) && graphs(attribute).next().is_none()
}
