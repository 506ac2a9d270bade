//! [`Ambiguity`]: in which field of which message readers differ, how, and where.

use crate::error::{Error, ErrorKind};

/// In which way readers differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// The file begins as another format does.
    Format(&'static str),
    /// Its first field is not a field of a model.
    FirstField,
    /// A field of one value that is there again, which is a message or not.
    Again {
        message: bool,
    },
    /// More than one alternative.
    Alternatives,
    /// A list of numbers that is packed, or not, unlike the format has it.
    Packing {
        packed: bool,
    },
    /// A packed list in several records.
    Pieces,
    /// A known number with another wire type.
    WireType,
    Group,
    /// A number that is padded, or has more bits than 64.
    Padded,
    /// A number of 32 bits that has more.
    Wide,
    /// A field of no version that is known, where digests leave the message out.
    NotCovered,
    /// An entry with the key of stored digests, which digests leave out, that has something else.
    NoDigest,
}

/// Something of a model file that single readers take for something else.
#[derive(Debug, Clone)]
pub(crate) struct Ambiguity {
    pub(super) way: Way,
    pub(super) message: &'static str,
    /// Empty where it is about the whole message.
    pub(super) field: &'static str,
    /// The first byte concerned.
    pub(super) offset: u64,
    /// How often it is in the file.
    pub(super) count: u64,
}

impl Ambiguity {
    pub(super) fn begins_as(format: &'static str) -> Self {
        Self { way: Way::Format(format), message: "", field: "", offset: 0, count: 1 }
    }

    /// Whether some reader is known to see another model, and not only bytes that do not count.
    pub(crate) fn is_certain(&self) -> bool {
        matches!(self.way, Way::Format(_) | Way::Alternatives | Way::Again { message: true })
    }

    /// What it is, with the place in the file.
    pub(crate) fn error(&self) -> Error {
        let Self { message, count, .. } = self;
        let of = match self.field {
            "" => (*message).to_owned(),
            field => format!("`{field}` of {message}"),
        };
        let times = count.saturating_add(1);
        let reason = match self.way {
            Way::Format(format) => {
                format!("it begins as {format} does: a reader that looks at bytes takes it for one")
            }
            Way::FirstField => {
                "it begins with a field that ONNX does not have, as no writer does".into()
            }
            Way::Again { message: true } => format!(
                "{of} is there {times} times: some readers merge them, as protobuf says, others take one"
            ),
            Way::Again { message: false } => format!(
                "{of} is there {times} times: the last one counts, and no digest covers the others"
            ),
            Way::Alternatives => {
                format!("{of} has {times} of its alternatives: readers differ on which counts")
            }
            Way::Packing { packed: true } => {
                format!("{of} is packed, which not every reader knows")
            }
            Way::Packing { packed: false } => {
                format!("{of} is not packed, which not every reader knows")
            }
            Way::Pieces => format!("{of} is in {times} pieces, of which some readers take one"),
            Way::WireType => {
                format!("{of} has a record of another wire type, which some readers decode")
            }
            Way::Group => format!("{of} has a group, which not every reader passes over"),
            Way::Padded => {
                format!(
                    "a number of {of} is not in its shortest form, which not every reader takes"
                )
            }
            Way::Wide => format!("{of} has a number beyond 32 bits, which only some readers cut"),
            Way::NoDigest => {
                format!(
                    "{of} has something else than a digest where one is stored, and no digest covers it"
                )
            }
            Way::NotCovered => {
                format!("{of} has a field that ONNX does not have, and no digest covers it")
            }
        };
        let more = match self.way {
            Way::Again { .. } | Way::Alternatives | Way::Pieces | Way::Format(_) => "".into(),
            _ if *count == 1 => "".into(),
            _ => format!(" ({count} times)"),
        };
        Error::new(ErrorKind::Ambiguous, reason + &more).with_offset(self.offset)
    }
}
