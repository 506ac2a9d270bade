//! One walk over the records of a model, which looks at tags, lengths and numbers. Payloads are
//! passed over.

use std::collections::BTreeMap;

use super::found::{Ambiguity, Way};
use super::known::{Field, Known};
use crate::graph::stored_digests::hides_in_digest;
use crate::limits::{Limit, Limits};
use crate::wire::Wire;

/// What of the model in `bytes` readers differ on, in the order of the first bytes concerned;
/// `None` where it is no message.
pub(super) fn model(bytes: &[u8], limits: &Limits) -> Option<Vec<Ambiguity>> {
    let levels = limits.get(Limit::Nesting).and_then(|most| u32::try_from(most).ok());
    // The model itself is no level of nesting.
    let levels = levels.unwrap_or(u32::MAX).saturating_add(1);
    let mut scan = Scan { bytes, at: 0, levels, found: BTreeMap::new() };
    scan.message(Known::index("ModelProto")?, bytes.len(), false)?;
    let mut found: Vec<_> = scan.found.into_values().collect();
    found.sort_by_key(|found| found.offset);
    Some(found)
}

struct Scan<'b> {
    bytes: &'b [u8],
    /// The next byte.
    at: usize,
    /// How many more levels messages may nest.
    levels: u32,
    found: BTreeMap<(&'static str, &'static str, Way), Ambiguity>,
}

/// A number of the wire, and whether it is in its only form.
struct Number {
    value: u64,
    is_shortest: bool,
}

/// What was seen of a message.
#[derive(Default)]
struct Seen {
    /// The numbers of its fields, each a bit.
    fields: u32,
    /// Whether one of its alternatives was.
    alternative: bool,
}

impl Scan<'_> {
    /// Walks over the message with this index, up to `end`. `left_out` says that no digest covers
    /// what is not known of it.
    fn message(&mut self, index: usize, end: usize, left_out: bool) -> Option<()> {
        self.levels = self.levels.checked_sub(1)?;
        let (known, mut seen) = (Known::at(index)?, Seen::default());
        while self.at < end {
            let start = self.at;
            let tag = self.number(end)?;
            self.note_form(&tag, known, "", start);
            let (number, wire) = split(tag.value)?;
            match known.field(number) {
                Some(field) => {
                    self.record(known, (field, number), wire, (start, end), &mut seen)?;
                }
                None => {
                    if start == 0 {
                        self.note(Way::FirstField, known, "", start);
                    }
                    if left_out {
                        self.note(Way::NotCovered, known, "", start);
                    }
                    self.unknown(known, number, wire, (start, end))?;
                }
            }
        }
        self.levels += 1;
        (self.at == end).then_some(())
    }

    /// Walks over the value of a known field, in a record between these bytes.
    fn record(
        &mut self,
        known: &'static Known,
        (field, number): (&'static Field, u32),
        wire: Wire,
        (start, end): (usize, usize),
        seen: &mut Seen,
    ) -> Option<()> {
        let is_number = field.wire != Wire::Len;
        let as_packed = field.is_list && is_number && wire == Wire::Len;
        if wire != field.wire && !as_packed {
            self.note(Way::WireType, known, field.name, start);
            return self.unknown(known, number, wire, (start, end));
        }
        self.note_again(known, (field, number), as_packed, start, seen);
        if field.is_list && is_number && as_packed != field.is_packed {
            self.note(Way::Packing { packed: as_packed }, known, field.name, start);
        }
        match wire {
            Wire::Varint => self.value(known, field, end),
            Wire::Fixed32 => self.advance(4, end),
            Wire::Fixed64 => self.advance(8, end),
            Wire::Len => {
                let end = self.length(known, field.name, end)?;
                if field.is_metadata && self.bytes.get(self.at..end).is_some_and(hides_in_digest) {
                    self.note(Way::NoDigest, known, field.name, start);
                }
                match field.message {
                    Some(message) => self.message(message, end, field.is_left_out),
                    None if as_packed && field.wire == Wire::Varint => {
                        while self.at < end {
                            self.value(known, field, end)?;
                        }
                        Some(())
                    }
                    None => self.advance(end.checked_sub(self.at)?, end),
                }
            }
            Wire::StartGroup | Wire::EndGroup => None,
        }
    }

    /// Notes a field that is there again and must not be.
    fn note_again(
        &mut self,
        known: &'static Known,
        (field, number): (&'static Field, u32),
        as_packed: bool,
        start: usize,
        seen: &mut Seen,
    ) {
        let bit = 1_u32.checked_shl(number).unwrap_or_default();
        let again = seen.fields & bit != 0;
        seen.fields |= bit;
        if field.is_alternative {
            if std::mem::replace(&mut seen.alternative, true) {
                self.note(Way::Alternatives, known, "", start);
            }
        } else if again && !field.is_list {
            self.note(Way::Again { message: field.message.is_some() }, known, field.name, start);
        } else if again && as_packed {
            self.note(Way::Pieces, known, field.name, start);
        }
    }

    /// Walks over the value of a record that is of no known field.
    fn unknown(
        &mut self,
        known: &'static Known,
        number: u32,
        wire: Wire,
        (start, end): (usize, usize),
    ) -> Option<()> {
        match wire {
            Wire::Varint => self.number(end).map(drop),
            Wire::Fixed32 => self.advance(4, end),
            Wire::Fixed64 => self.advance(8, end),
            Wire::Len => {
                let end = self.length(known, "", end)?;
                self.advance(end.checked_sub(self.at)?, end)
            }
            Wire::StartGroup => {
                self.note(Way::Group, known, "", start);
                self.group(known, number, end)
            }
            Wire::EndGroup => None,
        }
    }

    /// Walks to the end of the group of the field with this number.
    fn group(&mut self, known: &'static Known, number: u32, end: usize) -> Option<()> {
        self.levels = self.levels.checked_sub(1)?;
        loop {
            let start = self.at;
            let (inner, wire) = split_in_group(self.number(end)?.value)?;
            if wire == Wire::EndGroup {
                self.levels += 1;
                return (inner == number).then_some(());
            }
            self.unknown(known, inner, wire, (start, end))?;
        }
    }

    /// A value of a number in `field`.
    fn value(&mut self, known: &'static Known, field: &'static Field, end: usize) -> Option<()> {
        let start = self.at;
        let number = self.number(end)?;
        self.note_form(&number, known, field.name, start);
        if field.is_narrow && i32::try_from(number.value.cast_signed()).is_err() {
            self.note(Way::Wide, known, field.name, start);
        }
        Some(())
    }

    /// The end of the payload whose length is next.
    fn length(&mut self, known: &'static Known, field: &'static str, end: usize) -> Option<usize> {
        let start = self.at;
        let length = self.number(end)?;
        self.note_form(&length, known, field, start);
        let inner = self.at.checked_add(usize::try_from(length.value).ok()?)?;
        (inner <= end).then_some(inner)
    }

    fn number(&mut self, end: usize) -> Option<Number> {
        let rest = self.bytes.get(self.at..end)?;
        let mut value = 0_u64;
        for (place, byte) in (0_u32..10).zip(rest) {
            value |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or_default();
            self.at += 1;
            if *byte < 0x80 {
                // The tenth byte has room for one bit.
                let is_shortest = place == 0 || *byte != 0 && (place < 9 || *byte == 1);
                return Some(Number { value, is_shortest });
            }
        }
        None
    }

    fn advance(&mut self, len: usize, end: usize) -> Option<()> {
        self.at = self.at.checked_add(len).filter(|at| *at <= end)?;
        Some(())
    }

    fn note_form(&mut self, number: &Number, known: &Known, field: &'static str, at: usize) {
        if !number.is_shortest {
            self.note(Way::Padded, known, field, at);
        }
    }

    fn note(&mut self, way: Way, known: &Known, field: &'static str, at: usize) {
        let offset = u64::try_from(at).unwrap_or(u64::MAX);
        let message = known.name;
        let new = || Ambiguity { way, message, field, offset, count: 0 };
        let found = self.found.entry((message, field, way)).or_insert_with(new);
        found.count = found.count.saturating_add(1);
    }
}

/// The number of a field and the wire type in a tag.
fn split(tag: u64) -> Option<(u32, Wire)> {
    split_in_group(tag).filter(|(number, _)| *number > 0)
}

fn split_in_group(tag: u64) -> Option<(u32, Wire)> {
    let wire = match tag & 7 {
        0 => Wire::Varint,
        1 => Wire::Fixed64,
        2 => Wire::Len,
        3 => Wire::StartGroup,
        4 => Wire::EndGroup,
        5 => Wire::Fixed32,
        _ => return None,
    };
    Some((u32::try_from(tag >> 3).ok()?, wire))
}
