//! What the names and attribute references of copied nodes stand for.
//!
//! In the model's own graphs a name stands for itself. In a body it stands for what its slot holds:
//! a name of the caller, or a fresh one. Where the operator set has no Identity for every type, a
//! value that a body passes through becomes an alias: its name replaces the call's name for the
//! output.
//!
//! A reference to an attribute of the function becomes the call's attribute, else the function's
//! default; else the attribute is dropped. A graph that a call passes is a closure: it sees the
//! names of its caller, wherever it is copied to.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::rc::Rc;

use super::bodies::Bodies;
use super::body::{ABSENT, Body, NameSlot, index};
use super::functions::{graphs, identity_since, is_reference};
use super::names::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::ValueInfoProto;
use crate::proto::{AttributeProto, GraphProto, NodeProto, Str, StringStringEntryProto};

/// How the names of a copy are found.
pub(super) enum Names<'m> {
    /// A name stands for itself, unless it has an alias.
    Written(Box<Aliases<'m>>),
    /// Names are looked up by the slots of a body.
    Slots(Slots<'m>),
}

/// A body's names, and how far its copy has got.
pub(super) struct Slots<'m> {
    pub(super) body: &'m Body<'m>,
    pub(super) names: Vec<Name<'m>>,
    /// The slots that stand for another value, which a call passed through.
    pub(super) aliases: Vec<NameSlot>,
    /// For each output that the body computes, its name and slot in the caller, if the call uses
    /// it.
    pub(super) taken: Vec<Option<(Name<'m>, NameSlot)>>,
    slot: usize,
    pub(super) node: usize,
    pub(super) argument: usize,
}

impl<'m> Slots<'m> {
    pub(super) fn new(body: &'m Body<'m>, names: Vec<Name<'m>>) -> Self {
        let (aliases, taken) = (Vec::new(), Vec::new());
        Self { body, names, aliases, taken, slot: 0, node: 0, argument: 0 }
    }

    #[inline]
    pub(super) fn next(&mut self) -> NameSlot {
        self.slot += 1;
        self.body.slots.get(self.slot - 1).copied().unwrap_or(ABSENT)
    }

    #[inline]
    pub(super) fn at(&self, slot: NameSlot) -> Name<'m> {
        self.names.get(index(slot)).copied().unwrap_or(Name::Absent)
    }

    /// Checks that the copy has read exactly the slots of the body: otherwise it has lost operands.
    pub(super) fn check_end(&self) -> Result<()> {
        if self.slot == self.body.slots.len() {
            return Ok(());
        }
        Err(Error::internal("a body was copied in another order than it was resolved in"))
    }

    /// The index of the computed output that has this slot, if any.
    fn computed(&self, slot: NameSlot) -> Option<usize> {
        let local = index(slot).checked_sub(1 + self.body.inputs.len());
        local.filter(|local| *local < self.body.computed)
    }
}

/// Names that stand for other values, in the graph where the alias was made and in its subgraphs.
#[derive(Default)]
pub(super) struct Aliases<'m> {
    values: HashMap<&'m [u8], Name<'m>>,
    order: Vec<&'m [u8]>,
    /// The outputs of the graph that is copied, each with [`identity_since`] of its type. They keep
    /// their names.
    outputs: HashMap<&'m [u8], i64>,
}

impl<'m> Aliases<'m> {
    fn get(&self, name: &'m Str) -> Name<'m> {
        if self.values.is_empty() {
            return Name::Written(name);
        }
        self.values.get(name.as_bytes()).copied().unwrap_or(Name::Written(name))
    }

    fn insert(&mut self, name: Name<'m>, value: Name<'m>) -> PassedAs<'m> {
        let Name::Written(name) = name else { return PassedAs::Output(1) };
        if let Some(since) = self.outputs.get(name.as_bytes()) {
            return PassedAs::Output(*since);
        }
        self.order.push(name.as_bytes());
        self.values.insert(name.as_bytes(), value);
        PassedAs::Aliased
    }
}

/// A value that a body passes through without computing it.
#[derive(Clone, Copy)]
pub(super) struct Passed<'m> {
    /// The slot of the value in the body.
    pub(super) from: NameSlot,
    /// The caller's name for it.
    pub(super) name: Name<'m>,
    /// The slot of that name in the caller.
    pub(super) slot: NameSlot,
}

/// How a value is passed through.
pub(super) enum PassedAs<'m> {
    /// It replaces the caller's name from now on.
    Aliased,
    /// It replaces the caller's name, which the enclosing body passes through in turn.
    On(Passed<'m>),
    /// The caller's name is an output of a graph, whose type has an Identity since this version.
    Output(i64),
}

/// The graph or body that nodes are copied from.
pub(super) struct Scope<'m> {
    pub(super) names: Names<'m>,
    pub(super) binding: Rc<Binding<'m>>,
    /// The call whose body is copied; fresh dimensions have its number.
    pub(super) call: Option<u64>,
}

impl<'m> Scope<'m> {
    /// The scope of a graph of the model, or of the body of a kept function.
    ///
    /// Each of its `outputs` comes with [`identity_since`].
    pub(super) fn written(
        binding: Binding<'m>,
        outputs: impl Iterator<Item = (&'m Str, i64)>,
    ) -> Self {
        let outputs = outputs.map(|(name, since)| (name.as_bytes(), since)).collect();
        let aliases = Aliases { outputs, ..Aliases::default() };
        Self { names: Names::Written(Box::new(aliases)), binding: Rc::new(binding), call: None }
    }

    /// Whether every name stands for itself.
    pub(super) fn is_unchanged(&self) -> bool {
        matches!(&self.names, Names::Written(aliases) if aliases.values.is_empty())
    }

    /// The names that were replaced and are not in the result.
    pub(super) fn aliased(&self) -> impl Iterator<Item = &'m [u8]> {
        let aliases = match &self.names {
            Names::Written(aliases) => aliases.order.as_slice(),
            Names::Slots(_) => &[],
        };
        aliases.iter().copied()
    }

    /// The slot of the next name of the copy.
    pub(super) fn slot(&mut self) -> NameSlot {
        match &mut self.names {
            Names::Written(_) => ABSENT,
            Names::Slots(slots) => slots.next(),
        }
    }

    /// The next name, which was `written`, with its slot.
    #[inline]
    pub(super) fn name_and_slot(&mut self, written: &'m Str) -> (Name<'m>, NameSlot) {
        match &mut self.names {
            Names::Written(aliases) => (aliases.get(written), ABSENT),
            Names::Slots(slots) => {
                let slot = slots.next();
                (slots.at(slot), slot)
            }
        }
    }

    #[inline]
    pub(super) fn name(&mut self, written: &'m Str) -> Name<'m> {
        self.name_and_slot(written).0
    }

    pub(super) fn optional(&mut self, written: Option<&'m Str>) -> Option<Name<'m>> {
        let Some(written) = written else {
            self.slot();
            return None;
        };
        Some(self.name(written))
    }

    /// The next name of an annotation; `None` if the annotated value is unknown.
    pub(super) fn known(&mut self, written: Option<&'m Str>) -> Option<Name<'m>> {
        match &mut self.names {
            Names::Written(aliases) => written.map(|name| aliases.get(name)),
            Names::Slots(slots) => {
                let slot = slots.next();
                Some(slots.at(slot)).filter(|name| !name.is_empty())
            }
        }
    }

    /// The next name of an annotation of a node's operand; unchanged if it names none of the
    /// operands.
    pub(super) fn operand(&mut self, written: Option<&'m Str>) -> Option<Name<'m>> {
        match &mut self.names {
            Names::Written(aliases) => written.map(|name| aliases.get(name)),
            Names::Slots(slots) => match slots.next() {
                ABSENT => written.map(Name::Written),
                slot => Some(slots.at(slot)),
            },
        }
    }

    /// The next name of a value's type; `None` if the value is not in the result.
    pub(super) fn typed(&mut self, written: Option<&'m Str>) -> Option<Name<'m>> {
        match &mut self.names {
            Names::Written(aliases) => {
                let there = written.filter(|name| !aliases.values.contains_key(name.as_bytes()));
                there.map(Name::Written)
            }
            Names::Slots(slots) => match slots.next() {
                slot if slot == ABSENT || slots.aliases.contains(&slot) => None,
                slot => Some(slots.at(slot)),
            },
        }
    }

    /// Replaces the caller's name of `passed` by `value`, unless that name is an output.
    pub(super) fn alias(&mut self, passed: Passed<'m>, value: Name<'m>) -> PassedAs<'m> {
        let slots = match &mut self.names {
            Names::Written(aliases) => return aliases.insert(passed.name, value),
            Names::Slots(slots) => slots,
        };
        if let Some(since) = slots.body.graph_outputs.get(&passed.slot) {
            return PassedAs::Output(*since);
        }
        if let Some(name) = slots.names.get_mut(index(passed.slot)) {
            *name = value;
        }
        slots.aliases.push(passed.slot);
        let taken = slots.computed(passed.slot).and_then(|output| slots.taken.get(output));
        match taken.copied().flatten() {
            Some((name, slot)) => PassedAs::On(Passed { from: passed.slot, name, slot }),
            None => PassedAs::Aliased,
        }
    }

    /// The outputs of the graph that is copied, if it is one of the model's own.
    pub(super) fn outputs(&self) -> HashSet<&'m [u8]> {
        match &self.names {
            Names::Written(aliases) => aliases.outputs.keys().copied().collect(),
            Names::Slots(_) => HashSet::new(),
        }
    }

    /// Enters a subgraph. [`leave`](Self::leave) takes the result to restore the state around it.
    pub(super) fn enter(&mut self, graph: &'m GraphProto) -> Option<Around<'m>> {
        let Names::Written(aliases) = &mut self.names else { return None };
        let own = outputs_of(graph).map(|(name, since)| (name.as_bytes(), since)).collect();
        let outputs = mem::replace(&mut aliases.outputs, own);
        Some(Around { aliases: aliases.order.len(), outputs })
    }

    pub(super) fn leave(&mut self, around: Option<Around<'m>>) {
        let (Names::Written(aliases), Some(around)) = (&mut self.names, around) else { return };
        for name in aliases.order.drain(around.aliases..) {
            aliases.values.remove(name);
        }
        aliases.outputs = around.outputs;
    }
}

/// The state of the graph around, restored at the end of the subgraph.
pub(super) struct Around<'m> {
    aliases: usize,
    outputs: HashMap<&'m [u8], i64>,
}

/// The outputs of a graph, each with [`identity_since`].
pub(super) fn outputs_of(graph: &GraphProto) -> impl Iterator<Item = (&Str, i64)> {
    let since = |output: &'_ ValueInfoProto| identity_since(output.r#type.as_deref());
    graph.output.iter().filter_map(move |output| Some((output.name.as_ref()?, since(output))))
}

/// What the nodes of a body take from the call.
#[derive(Default)]
pub(super) struct Binding<'m> {
    /// The attributes of the call, by name.
    given: Vec<(&'m [u8], Value<'m>)>,
    defaults: Defaults<'m>,
    /// The metadata of the calls around, the innermost call's first.
    pub(super) metadata: Vec<StringStringEntryProto>,
}

/// What a reference stands for when the call does not have the attribute.
#[derive(Default)]
enum Defaults<'m> {
    /// The nodes are those of a graph, which has no references.
    #[default]
    Graph,
    /// The called function's default, if it has one.
    Call(Option<&'m Body<'m>>),
    /// The nodes are those of a kept function: its calls decide, so the reference is kept.
    Open,
}

/// The value of an attribute.
#[derive(Clone)]
pub(super) enum Value<'m> {
    /// The value of this attribute, which holds no graph.
    Plain(&'m AttributeProto),
    /// Graphs, with this attribute's type.
    Graphs(&'m AttributeProto, Rc<[Closure<'m>]>),
    /// A reference to the attribute of this name of a kept function, with the type of this
    /// attribute.
    Open(&'m Str, &'m AttributeProto),
}

/// A graph that a call passes, with the names and attributes of its caller.
pub(super) struct Closure<'m> {
    pub(super) graph: &'m GraphProto,
    pub(super) body: &'m Body<'m>,
    /// The values of the graph's free names.
    pub(super) inputs: Vec<Name<'m>>,
    pub(super) binding: Rc<Binding<'m>>,
    /// The call whose body it is written in; its fresh dimensions have that number.
    pub(super) call: Option<u64>,
}

impl<'m> Binding<'m> {
    /// The binding of a kept function's body.
    pub(super) fn open() -> Self {
        Self { defaults: Defaults::Open, ..Self::default() }
    }

    /// The binding of a call.
    pub(super) fn call(
        body: &'m Body<'m>,
        mut given: Vec<(&'m [u8], Value<'m>)>,
        metadata: Vec<StringStringEntryProto>,
    ) -> Self {
        given.sort_by_key(|(name, _)| *name);
        given.dedup_by_key(|(name, _)| *name);
        Self { given, defaults: Defaults::Call(Some(body)), metadata }
    }

    /// The value of an `attribute` that is a reference, in the body of `call`; `None` when the
    /// attribute is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when the reference is not in a function.
    pub(super) fn value(
        &self,
        attribute: &'m AttributeProto,
        bodies: &'m Bodies<'m>,
        call: Option<u64>,
    ) -> Result<Option<Value<'m>>> {
        let Some(name) = &attribute.ref_attr_name else { return Ok(None) };
        let body = match &self.defaults {
            Defaults::Graph => {
                let reason = format!("an attribute outside of a function refers to `{name}`");
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

    /// The value of a default. A default graph sees no names or attributes of the call; its nodes
    /// get the call's metadata, as those of the body do.
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

/// The metadata of `node` and of the calls around it; for a key that several have, the innermost
/// wins.
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

/// Whether the attribute can be copied unchanged: it holds no graph and is no reference.
pub(super) fn is_plain(attribute: &AttributeProto) -> bool {
    !is_reference(attribute) && graphs(attribute).next().is_none()
}
