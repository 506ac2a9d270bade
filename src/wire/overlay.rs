//! Messages that are written in place of others.
//!
//! A save changes where the external tensors of a model say that their bytes are, and nothing else
//! of it. A clone of the graph for that would cost more than the encoding, so the changes are laid
//! over the model while it is encoded. A message is known by its address, which no message shares
//! with another of its type, and which cannot change while the model is borrowed. Only messages that
//! the table marks as `replaceable` are looked up, and only where there is an overlay.

use std::io;

use super::writer::{Sizes, Writer};

/// Which messages are replaced, and by what.
pub(crate) trait Overlay: Sync {
    /// What is written for the message at `address`, unless it is the message itself.
    fn replacement(&self, address: usize) -> Option<&dyn Replacement>;
}

/// The fields of a message that is written in place of another.
pub(crate) trait Replacement: Sync {
    /// The length of all fields in bytes, counted as [`Message::fields_size`](super::Message) does.
    fn size(&self, sizes: &mut Sizes<'_>) -> u64;

    /// Writes as many bytes as were counted.
    fn write(&self, writer: &mut Writer<'_>) -> io::Result<()>;
}
