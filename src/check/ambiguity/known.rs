//! The fields of all messages, by their numbers: the table of `proto`, as a walk over records needs
//! it.

use std::sync::LazyLock;

use crate::proto::MESSAGES;
use crate::wire::{FieldInfo, Label, Wire};

/// A message and its fields.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// By number.
    fields: Vec<Option<Field>>,
}

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) wire: Wire,
    pub(super) is_list: bool,
    /// Whether its numbers, if it has a list of them, are packed.
    pub(super) is_packed: bool,
    /// Whether it is one of alternatives; a message has at most one such choice.
    pub(super) is_alternative: bool,
    /// Whether it has 32 bits, with a sign.
    pub(super) is_narrow: bool,
    /// The message that it holds.
    pub(super) message: Option<usize>,
    /// Whether digests leave it out where a tensor is external.
    pub(super) is_left_out: bool,
    /// Whether it has the entries of which digests leave out stored digests.
    pub(super) is_metadata: bool,
}

static TABLE: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let known = |(name, fields): &(&'static str, &'static [FieldInfo])| {
        let last = fields.iter().map(|field| field.number).max().unwrap_or_default();
        let of = |number| fields.iter().find(|info| info.number == number);
        let by_number = (0..=last).map(|number| Some(Field::of(of(number)?, name)));
        Known { name, fields: by_number.collect() }
    };
    MESSAGES.iter().map(known).collect()
});

impl Known {
    /// The message with this index.
    pub(super) fn at(index: usize) -> Option<&'static Self> {
        TABLE.get(index)
    }

    /// The index of the message called `name`.
    pub(super) fn index(name: &str) -> Option<usize> {
        MESSAGES.iter().position(|(known, _)| *known == name)
    }

    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.get(usize::try_from(number).ok()?)?.as_ref()
    }
}

impl Field {
    fn of(info: &FieldInfo, message: &str) -> Self {
        let wire = match info.kind {
            "int32" | "int64" | "uint64" => Wire::Varint,
            "float" => Wire::Fixed32,
            "double" => Wire::Fixed64,
            _ => Wire::Len,
        };
        Self {
            name: info.name,
            wire,
            is_list: info.label == Label::Repeated,
            is_packed: info.packed,
            is_alternative: info.alternative,
            is_narrow: info.kind == "int32",
            message: Known::index(info.kind),
            is_left_out: (message, info.name) == ("TensorProto", "external_data"),
            is_metadata: matches!(message, "ModelProto" | "TensorProto")
                && info.name == "metadata_props",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_table_is_found_by_its_number() {
        let mut alternatives = Vec::new();
        for (name, fields) in MESSAGES {
            let known = Known::at(Known::index(name).unwrap()).unwrap();
            for info in *fields {
                // A walk keeps which it has seen in 32 bits.
                assert!(info.number < 32);
                let field = known.field(info.number).unwrap();
                assert_eq!((known.name, field.name), (*name, info.name));
                let scalar = ["int32", "int64", "uint64", "float", "double", "string", "bytes"];
                assert_eq!(
                    field.message.is_none(),
                    scalar.contains(&info.kind),
                    "{name} {field:?}"
                );
                if field.is_alternative {
                    alternatives.push(info.name);
                }
            }
            assert!(known.field(0).is_none() && known.field(31).is_none());
        }
        alternatives.sort_unstable();
        let expected = [
            "dim_param",
            "dim_param",
            "dim_value",
            "dim_value",
            "map_type",
            "opaque_type",
            "optional_type",
            "sequence_type",
            "sparse_tensor_type",
            "tensor_type",
        ];
        assert_eq!(alternatives, expected);
    }
}
