//! What names stand for where nodes are copied from.
//!
//! In the model's own graphs a name stands for itself. In a body it stands for what its slot holds: what
//! the call gave, or a fresh name. Where an operator set has no Identity for every type, a value that
//! a body only hands on takes the place of the name that the call gave it.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::rc::Rc;

use super::binding::Binding;
use super::body::{ABSENT, Body, Slot};
use super::rename::identity_since;
use crate::proto::{GraphProto, Str, ValueInfoProto};

/// A name that a copy will have. It is made a string only there, so that it can be passed on freely.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name<'m> {
    Absent,
    /// As the model has it.
    Written(&'m Str),
    /// Fresh: a part of a text.
    Fresh {
        text: u32,
        start: usize,
        end: usize,
    },
}

impl Name<'_> {
    pub(super) fn is_empty(self) -> bool {
        match self {
            Self::Absent => true,
            Self::Written(name) => name.is_empty(),
            Self::Fresh { .. } => false,
        }
    }
}

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

    /// The next name where a remark may be about a value that is not known: that has none.
    pub(super) fn known(&mut self, written: Option<&'m Str>) -> Option<Name<'m>> {
        match &mut self.names {
            Names::Written(aliases) => written.map(|name| aliases.get(name)),
            Names::Slots(slots) => {
                let slot = slots.next();
                Some(slots.at(slot)).filter(|name| !name.is_empty())
            }
        }
    }

    /// The next name where a remark is about one of a node's operands; as written if it is about none.
    pub(super) fn operand(&mut self, written: Option<&'m Str>) -> Option<Name<'m>> {
        match &mut self.names {
            Names::Written(aliases) => written.map(|name| aliases.get(name)),
            Names::Slots(slots) => match slots.next() {
                ABSENT => written.map(Name::Written),
                slot => Some(slots.at(slot)),
            },
        }
    }

    /// The next name where a type may be about a value that is not there any more: that has none.
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

pub(super) fn index(slot: Slot) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}
