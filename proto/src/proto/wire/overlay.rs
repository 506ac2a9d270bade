//! Messages that are written in place of others.
//!
//! A save changes only the places that the external tensors of a model name. A clone of the graph
//! for that would cost more than the encoding, so the changes are applied as an overlay while the
//! model is encoded. A message is identified by its address, which no other message of its type
//! has, and which cannot change while the model is borrowed. Only messages that the table marks as
//! `replaceable` are looked up, and only where there is an overlay.

use std::any::Any;
use std::io;

use super::writer::{Sizes, Writer};

/// Which messages are replaced, and by what.
pub trait Overlay: Sync {
    /// The replacement of the message at `address`; `None` where the message itself is written.
    fn replacement(&self, address: usize) -> Option<&dyn Replacement>;
}

/// The fields of a message that is written in place of another, `original`. What both have in
/// common need not be kept by the replacement.
pub trait Replacement: Sync {
    /// The length of all fields in bytes, counted as [`Message::fields_size`](super::Message) does.
    fn size(&self, original: &dyn Any, sizes: &mut Sizes<'_>) -> u64;

    /// Writes the fields: exactly as many bytes as `size` counts.
    fn write(&self, original: &dyn Any, writer: &mut Writer<'_>) -> io::Result<()>;
}
