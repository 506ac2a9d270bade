//! What a call gives to the attributes of a body.
//!
//! A reference in the body takes what the call gives, else the function's default, else it is dropped.
//! A graph that is given is a closure: it sees the names of its caller, wherever it is pasted.

use std::collections::HashSet;
use std::rc::Rc;

use super::bodies::Bodies;
use super::body::{Body, is_reference};
use super::calls::graphs;
use super::scope::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{AttributeProto, GraphProto, NodeProto, Str, StringStringEntryProto};

/// What the nodes of a body take from the call.
#[derive(Default)]
pub(super) struct Binding<'m> {
    /// The attributes of the call, by name.
    given: Vec<(&'m [u8], Value<'m>)>,
    defaults: Defaults<'m>,
    /// Remarks of the calls around, the inner one's first.
    pub(super) metadata: Vec<StringStringEntryProto>,
}

/// What a reference stands for when the call does not give it.
#[derive(Default)]
enum Defaults<'m> {
    /// There are no references: the nodes are a graph's.
    #[default]
    Graph,
    /// What the function that is called says.
    Call(Option<&'m Body<'m>>),
    /// What the call of a function that stays will say: references stay too.
    Open,
}

/// The value of an attribute.
#[derive(Clone)]
pub(super) enum Value<'m> {
    /// That of this attribute, which holds no graph.
    Plain(&'m AttributeProto),
    /// Graphs, with this attribute's type.
    Graphs(&'m AttributeProto, Rc<[Closure<'m>]>),
    /// What the call of a function that stays will give by this name, or its default; of this
    /// attribute's type.
    Open(&'m Str, &'m AttributeProto),
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
    pub(super) fn open() -> Self {
        Self { defaults: Defaults::Open, ..Self::default() }
    }

    /// That of a call.
    pub(super) fn call(
        body: &'m Body<'m>,
        mut given: Vec<(&'m [u8], Value<'m>)>,
        metadata: Vec<StringStringEntryProto>,
    ) -> Self {
        given.sort_by_key(|(name, _)| *name);
        given.dedup_by_key(|(name, _)| *name);
        Self { given, defaults: Defaults::Call(Some(body)), metadata }
    }

    /// What an attribute with a reference stands for, in this place, which is the body of `call`; `None`
    /// when it is to be dropped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] outside a function.
    pub(super) fn value(
        &self,
        attribute: &'m AttributeProto,
        bodies: &'m Bodies<'m>,
        call: Option<u64>,
    ) -> Result<Option<Value<'m>>> {
        let Some(name) = &attribute.ref_attr_name else { return Ok(None) };
        let body = match &self.defaults {
            Defaults::Graph => {
                let reason = format!("an attribute refers to `{name}`, outside of a function");
                return Err(Error::new(ErrorKind::InvalidModel, reason));
            }
            Defaults::Open => return Ok(Some(Value::Open(name, attribute))),
            Defaults::Call(body) => body,
        };
        let given = self.given.binary_search_by_key(&name.as_bytes(), |(given, _)| given);
        if let Some((_, value)) = given.ok().and_then(|place| self.given.get(place)) {
            return Ok(Some(value.clone()));
        }
        let default = body.and_then(|body| body.defaults.get(name.as_bytes()));
        Ok(default.map(|default| self.default_value(default, bodies, call)))
    }

    /// A default graph sees no names and no attributes of the call, but is part of the body.
    fn default_value(
        &self,
        default: &'m AttributeProto,
        bodies: &'m Bodies<'m>,
        call: Option<u64>,
    ) -> Value<'m> {
        if graphs(default).next().is_none() {
            return Value::Plain(default);
        }
        let (defaults, metadata) = (Defaults::Call(None), self.metadata.clone());
        let binding = Rc::new(Self { defaults, metadata, ..Self::default() });
        let closures = graphs(default).filter_map(|graph| {
            let (inputs, binding) = (Vec::new(), binding.clone());
            Some(Closure { graph, body: bodies.argument(graph)?, inputs, binding, call })
        });
        Value::Graphs(default, closures.collect())
    }
}

/// The remarks of `node` and of the calls around it; of one key the inner one's counts.
pub(super) fn merged(
    node: &NodeProto,
    around: &[StringStringEntryProto],
) -> Vec<StringStringEntryProto> {
    let mut all = node.metadata_props.clone();
    if all.is_empty() {
        all.extend_from_slice(around);
    } else if !around.is_empty() {
        let own: HashSet<_> = node.metadata_props.iter().map(|entry| &entry.key).collect();
        all.extend(around.iter().filter(|entry| !own.contains(&entry.key)).cloned());
    }
    all
}

/// Whether a copy of the attribute is just that: no graph inside, no reference.
pub(super) fn is_plain(attribute: &AttributeProto) -> bool {
    !is_reference(attribute) && graphs(attribute).next().is_none()
}
