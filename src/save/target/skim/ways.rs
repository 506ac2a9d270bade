//! Which fields of which messages can hold the entries of external tensors.

use std::sync::LazyLock;

use crate::proto::{MESSAGES, Message, ModelProto, StringStringEntryProto, TensorProto};
use crate::wire::FieldInfo;

/// What a field of a message can contain.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child {
    /// A message that may hold tensors, by its number in the table.
    Message(usize),
    /// An entry of a tensor's external data.
    Entry,
}

/// For each message of the table, the fields that can contain an entry, by their numbers.
pub(super) struct Ways {
    pub(super) model: usize,
    pub(super) tensor: usize,
    children: Vec<Vec<Option<Child>>>,
    pub(super) key: u64,
    pub(super) value: u64,
}

pub(super) static WAYS: LazyLock<Ways> = LazyLock::new(Ways::new);

impl Ways {
    fn new() -> Self {
        let index = |kind: &str| MESSAGES.iter().position(|(name, _)| *name == kind);
        let mut holds: Vec<_> =
            MESSAGES.iter().map(|(name, _)| *name == TensorProto::NAME).collect();
        let holds_kind = |holds: &[bool], kind: &str| {
            index(kind).filter(|at| holds.get(*at).is_some_and(|holds| *holds))
        };
        // A message with a field that can contain tensors can contain tensors itself.
        for _ in MESSAGES {
            let again = MESSAGES.iter().map(|(name, fields)| {
                *name == TensorProto::NAME
                    || fields.iter().any(|field| holds_kind(&holds, field.kind).is_some())
            });
            holds = again.collect();
        }
        let children = MESSAGES.iter().map(|(name, fields)| {
            by_number(fields, |field| match *name == TensorProto::NAME {
                true => (field.name == "external_data").then_some(Child::Entry),
                false => holds_kind(&holds, field.kind).map(Child::Message),
            })
        });
        let number = |name: &str| {
            let field = StringStringEntryProto::FIELDS.iter().find(|field| field.name == name);
            field.map_or(u64::MAX, |field| u64::from(field.number))
        };
        Self {
            model: index(ModelProto::NAME).unwrap_or(usize::MAX),
            tensor: index(TensorProto::NAME).unwrap_or(usize::MAX),
            children: children.collect(),
            key: number("key"),
            value: number("value"),
        }
    }

    pub(super) fn child(&self, message: usize, number: u64) -> Option<Child> {
        let number = usize::try_from(number).ok()?;
        *self.children.get(message)?.get(number)?
    }
}

/// The result of `child` for each field, indexed by the number of the field.
fn by_number(
    fields: &[FieldInfo],
    child: impl Fn(&FieldInfo) -> Option<Child>,
) -> Vec<Option<Child>> {
    let mut children = Vec::new();
    for field in fields {
        let number = usize::try_from(field.number).unwrap_or(0);
        children.resize(children.len().max(number + 1), None);
        if let Some(slot) = children.get_mut(number) {
            *slot = child(field);
        }
    }
    children
}
