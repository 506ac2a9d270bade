//! What names stand for where nodes are copied from.
//!
//! In the model's own graphs a name stands for itself. In a body it stands for what its slot holds: what
//! the call gave, or a fresh name. Where an operator set has no Identity for every type, a value that
//! a body only hands on takes the place of the name that the call gave it.
//!
//! An attribute of a body that refers to one of the call takes what the call gives, else the function's default, else
//! it is dropped. A graph that is given is a closure: it sees the names of its caller, wherever it is pasted.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::rc::Rc;

use super::body::{ABSENT, Bodies, Body, Slot, index};
use super::functions::{graphs, identity_since, is_reference};
use super::names::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::ValueInfoProto;
use crate::proto::{AttributeProto, GraphProto, NodeProto, Str, StringStringEntryProto};

/// How the names of a copy are found.
pub(super) enum Names<'m> {
    /// As they stand, but for values that a call only handed on.
    Written(Box<Aliases<'m>>),
    /// By the slots of a body.
    Slots(Slots<'m>),
}

/// A body's names, and how far its copy is.
pub(super) struct Slots<'m> {
    pub(super) body: &'m Body<'m>,
    pub(super) names: Vec<Name<'m>>,
    /// The slots that stand for another value, which a call only handed on.
    pub(super) aliases: Vec<Slot>,
    /// What the call takes of the values that the body computes: its name and slot there.
    pub(super) taken: Vec<Option<(Name<'m>, Slot)>>,
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
    pub(super) fn next(&mut self) -> Slot {
        self.slot += 1;
        self.body.slots.get(self.slot - 1).copied().unwrap_or(ABSENT)
    }

    #[inline]
    pub(super) fn at(&self, slot: Slot) -> Name<'m> {
        self.names.get(index(slot)).copied().unwrap_or(Name::Absent)
    }

    /// Sees that the copy has read every slot, and none that is not there: it would have lost operands.
    pub(super) fn check_end(&self) -> Result<()> {
        if self.slot == self.body.slots.len() {
            return Ok(());
        }
        Err(Error::internal("a body was copied in another order than it was resolved in"))
    }

    /// Which output of the function is computed in this slot, if any.
    fn computed(&self, slot: Slot) -> Option<usize> {
        let local = index(slot).checked_sub(1 + self.body.inputs.len());
        local.filter(|local| *local < self.body.computed)
    }
}

/// Names that stand for other values, in the graph where that was decided and those inside.
#[derive(Default)]
pub(super) struct Aliases<'m> {
    values: HashMap<&'m [u8], Name<'m>>,
    order: Vec<&'m [u8]>,
    /// The outputs of the graph that is copied, which keep their names, with [`identity_since`].
    outputs: HashMap<&'m [u8], i64>,
}

impl<'m> Aliases<'m> {
    fn get(&self, name: &'m Str) -> Name<'m> {
        if self.values.is_empty() {
            return Name::Written(name);
        }
        self.values.get(name.as_bytes()).copied().unwrap_or(Name::Written(name))
    }

    fn insert(&mut self, name: Name<'m>, value: Name<'m>) -> Handed<'m> {
        let Name::Written(name) = name else { return Handed::Output(1) };
        if let Some(since) = self.outputs.get(name.as_bytes()) {
            return Handed::Output(*since);
        }
        self.order.push(name.as_bytes());
        self.values.insert(name.as_bytes(), value);
        Handed::Aliased
    }
}

/// A value that a body hands on without computing it.
#[derive(Clone, Copy)]
pub(super) struct Passed<'m> {
    /// The slot of the value in the body.
    pub(super) from: Slot,
    /// The name that the call gives it.
    pub(super) name: Name<'m>,
    /// The slot of that name where the call stands.
    pub(super) slot: Slot,
}

/// What became of a value that is handed on.
pub(super) enum Handed<'m> {
    /// It stands for the name from now on.
    Aliased,
    /// It does, and the name is what the body around hands on.
    On(Passed<'m>),
    /// The name is that of an output of a graph; its type has an Identity since this version.
    Output(i64),
}

/// Where nodes are copied from.
pub(super) struct Scope<'m> {
    pub(super) names: Names<'m>,
    pub(super) binding: Rc<Binding<'m>>,
    /// The call whose body it is; dimensions have its number.
    pub(super) call: Option<u64>,
}

impl<'m> Scope<'m> {
    /// A graph of the model, or the body of a function that stays.
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

    /// Whether nothing has another name than it had.
    pub(super) fn is_unchanged(&self) -> bool {
        matches!(&self.names, Names::Written(aliases) if aliases.values.is_empty())
    }

    /// The values that are not there any more.
    pub(super) fn aliased(&self) -> impl Iterator<Item = &'m [u8]> {
        let aliases = match &self.names {
            Names::Written(aliases) => aliases.order.as_slice(),
            Names::Slots(_) => &[],
        };
        aliases.iter().copied()
    }

    /// The slot of the next name of the copy.
    pub(super) fn slot(&mut self) -> Slot {
        match &mut self.names {
            Names::Written(_) => ABSENT,
            Names::Slots(slots) => slots.next(),
        }
    }

    /// The next name, which was `written`, with its slot.
    #[inline]
    pub(super) fn name_and_slot(&mut self, written: &'m Str) -> (Name<'m>, Slot) {
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

    /// The next name of an annotation of a node's operand; as written if it is about none of them.
    pub(super) fn operand(&mut self, written: Option<&'m Str>) -> Option<Name<'m>> {
        match &mut self.names {
            Names::Written(aliases) => written.map(|name| aliases.get(name)),
            Names::Slots(slots) => match slots.next() {
                ABSENT => written.map(Name::Written),
                slot => Some(slots.at(slot)),
            },
        }
    }

    /// The next name of a type; `None` if the value is not there any more.
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

    /// Lets `value` stand for what a call gives under another name, unless that is an output.
    pub(super) fn alias(&mut self, passed: Passed<'m>, value: Name<'m>) -> Handed<'m> {
        let slots = match &mut self.names {
            Names::Written(aliases) => return aliases.insert(passed.name, value),
            Names::Slots(slots) => slots,
        };
        if let Some(since) = slots.body.graph_outputs.get(&passed.slot) {
            return Handed::Output(*since);
        }
        if let Some(name) = slots.names.get_mut(index(passed.slot)) {
            *name = value;
        }
        slots.aliases.push(passed.slot);
        let taken = slots.computed(passed.slot).and_then(|output| slots.taken.get(output));
        match taken.copied().flatten() {
            Some((name, slot)) => Handed::On(Passed { from: passed.slot, name, slot }),
            None => Handed::Aliased,
        }
    }

    /// The outputs of the graph that is copied, when it is one of the model's own.
    pub(super) fn outputs(&self) -> HashSet<&'m [u8]> {
        match &self.names {
            Names::Written(aliases) => aliases.outputs.keys().copied().collect(),
            Names::Slots(_) => HashSet::new(),
        }
    }

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

/// What a graph around had, to be put back at the end of the graph inside.
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
    /// The metadata of the calls around, the inner one's first.
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

/// The metadata of `node` and of the calls around it; of one key the inner one's counts.
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
