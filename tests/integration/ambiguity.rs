//! Every way in which one file can be two models, for every field of every message:
//! `refuse_ambiguous` and `check_model`.

use std::collections::BTreeMap;
use std::fs;

use onnx_container::check::{Severity, check_model, refuse_ambiguous};
use onnx_container::proto::{MESSAGES, Message, ModelProto};
use onnx_container::{Buffer, Container, ErrorKind, MmapChoice};

use crate::support::{floats, graph, model, node};

/// A field of a message, from the table of messages.
#[derive(Clone, Copy)]
struct Field {
    number: u32,
    name: &'static str,
    kind: &'static str,
    is_list: bool,
    is_packed: bool,
    is_alternative: bool,
}

impl Field {
    fn wire(&self) -> u32 {
        match self.kind {
            "int32" | "int64" | "uint64" => 0,
            "double" => 1,
            "float" => 5,
            _ => 2,
        }
    }

    fn is_message(&self) -> bool {
        MESSAGES.iter().any(|(name, _)| *name == self.kind)
    }

    /// A record with some value, in the form that the official library writes.
    fn record(&self) -> Vec<u8> {
        let value: &[u8] = match self.wire() {
            0 => &[1],
            1 => &[0; 8],
            5 => &[0; 4],
            _ => &[],
        };
        if self.is_packed { delimited(self.number, value) } else { self.plain(value) }
    }

    /// The record of one value that is not packed.
    fn plain(&self, value: &[u8]) -> Vec<u8> {
        match self.wire() {
            2 => delimited(self.number, value),
            wire => [varint(self.number << 3 | wire), value.to_vec()].concat(),
        }
    }
}

fn varint(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(u8::try_from(value & 127).unwrap() | 128);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

/// The same number in one byte more.
fn padded(number: u32) -> Vec<u8> {
    let mut bytes = varint(number);
    *bytes.last_mut().unwrap() |= 128;
    bytes.push(0);
    bytes
}

fn delimited(number: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    [varint(number << 3 | 2), varint(len), payload.to_vec()].concat()
}

fn fields(message: &str) -> Vec<Field> {
    let (_, infos) = MESSAGES.iter().find(|(name, _)| *name == message).unwrap();
    let field = |info: &_| {
        // The type of a row has no name outside of the crate.
        let text = format!("{info:?}");
        (text.contains("label: Repeated"), text.contains("alternative: true"))
    };
    let of = infos.iter().map(|info| {
        let (is_list, is_alternative) = field(info);
        let (number, name, kind, is_packed) = (info.number, info.name, info.kind, info.packed);
        Field { number, name, kind, is_list, is_packed, is_alternative }
    });
    of.collect()
}

/// For each message the fields that lead to it from a model.
fn ways() -> BTreeMap<&'static str, Vec<Field>> {
    let mut ways = BTreeMap::from([("ModelProto", vec![])]);
    let mut next = vec!["ModelProto"];
    while let Some(message) = next.pop() {
        for field in fields(message).into_iter().filter(Field::is_message) {
            if !ways.contains_key(field.kind) {
                let way = [&ways[message][..], &[field]].concat();
                ways.insert(field.kind, way);
                next.insert(0, field.kind);
            }
        }
    }
    ways
}

/// The model in which the message at the end of `way` has these records.
fn within(way: &[Field], records: Vec<u8>) -> Vec<u8> {
    way.iter().rev().fold(records, |inner, field| delimited(field.number, &inner))
}

/// What a check of `bytes` says of how they may be read.
fn found(bytes: &[u8]) -> Vec<(Severity, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(&path, bytes).unwrap();
    let checked = check_model(&path, MmapChoice::never()).unwrap();
    let findings =
        checked.findings.iter().filter(|found| found.error.kind() == ErrorKind::Ambiguous);
    let found: Vec<_> = findings.map(|f| (f.severity, f.error.reason().to_owned())).collect();
    let refused = refuse_ambiguous(&path, MmapChoice::never());
    match found.is_empty() {
        true => refused.unwrap(),
        false => assert_eq!(refused.unwrap_err().kind(), ErrorKind::Ambiguous),
    }
    found
}

#[test]
fn every_field_is_looked_at_in_every_message() {
    let ways = ways();
    assert_eq!(ways.len(), MESSAGES.len(), "every message is in a model");
    let (mut fine, mut refused) = (0, 0);
    for (message, way) in &ways {
        for field in fields(message) {
            let once = field.record();
            let bytes = within(way, once.clone());
            assert!(found(&bytes).is_empty(), "{message}.{}", field.name);
            fine += 1;
            let tag = field.number << 3 | if field.is_packed { 2 } else { field.wire() };
            let rest = &once[varint(tag).len()..];
            let twice = [&once[..], &once].concat();
            let (is_number, group) = (field.wire() != 2, field.number << 3 | 3);
            let mut cases = vec![
                ("a padded tag", [padded(tag), rest.to_vec()].concat(), true),
                ("a group", [once.clone(), varint(group), varint(group + 1)].concat(), true),
                ("twice", twice, !field.is_list || field.is_packed),
            ];
            if tag & 7 == 2 {
                let len = padded(u32::try_from(rest.len() - 1).unwrap());
                let bytes = [varint(tag), len, rest[1..].to_vec()].concat();
                cases.push(("a padded length", bytes, true));
            }
            if field.is_list && is_number {
                let value = &once[once.len() - rest.len() + usize::from(field.is_packed)..];
                let other = match field.is_packed {
                    true => field.plain(value),
                    false => delimited(field.number, value),
                };
                cases.push(("packed or not", other, true));
            }
            if field.wire() == 0 {
                let other = match field.is_packed {
                    true => delimited(field.number, &padded(1)),
                    false => field.plain(&padded(1)),
                };
                cases.push(("a padded value", other, true));
            }
            if field.kind == "int32" && !field.is_packed {
                cases.push(("more than 32 bits", field.plain(&[255, 255, 255, 255, 15]), true));
            }
            // A number where a payload is, and the other way round.
            if !field.is_list {
                let wrong = if is_number { 2 } else { 0 };
                let other = [varint(field.number << 3 | wrong), vec![0]].concat();
                cases.push(("another wire type", [once.clone(), other].concat(), true));
            }
            for (what, records, is_refused) in cases {
                let bytes = within(way, records);
                // What other readers make of it is of interest where this one takes it.
                ModelProto::decode(&Buffer::from(bytes.clone())).unwrap();
                let found = found(&bytes);
                assert_eq!(!found.is_empty(), is_refused, "{message}.{}, {what}", field.name);
                refused += usize::from(is_refused);
            }
        }
        for (one, other) in alternatives(message) {
            let found = found(&within(way, [one.record(), other.record()].concat()));
            assert_eq!(found.len(), 1, "{message}: {} and {}", one.name, other.name);
            assert_eq!(found[0].0, Severity::Error);
            refused += 1;
        }
    }
    assert!(fine == 134 && refused > 600, "{fine} {refused}");
}

/// Each pair of alternatives of a message.
fn alternatives(message: &str) -> Vec<(Field, Field)> {
    let all: Vec<_> = fields(message).into_iter().filter(|field| field.is_alternative).collect();
    all.iter().flat_map(|one| all.iter().map(|other| (*one, *other))).collect()
}

#[test]
fn what_is_certainly_another_model_for_some_reader_is_an_error() {
    let graph = delimited(7, b"");
    for (bytes, severity, reason) in [
        ([&graph[..], &graph].concat(), Severity::Error, "some readers merge them"),
        (b"\x12\x06\0\0ORTM".to_vec(), Severity::Error, "an ONNX Runtime .ort file"),
        (b"\x08\x01\x08\x02".to_vec(), Severity::Advice, "no digest covers the others"),
        (b"\x08\x81\x00".to_vec(), Severity::Advice, "not in its shortest form"),
    ] {
        let found = found(&bytes);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == severity && found[0].1.contains(reason), "{found:?}");
    }
    let many = [&b"\x08\x01"[..]; 5000].concat();
    assert_eq!(found(&many).len(), 1);
}

/// What is written here has one reading.
#[test]
fn what_is_saved_has_one_reading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let weights = vec![floats("w", 0, 600), floats("v", 0, 2)];
    let model = model(graph(weights, vec![node("Add", &["w", "v"], &["y"], vec![])]));
    let container = Container::new(model.clone());
    for externally in [true, false] {
        container.save(&path, externally).unwrap();
        refuse_ambiguous(&path, MmapChoice::never()).unwrap();
    }
    fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
    refuse_ambiguous(&path, MmapChoice::never()).unwrap();
    let gone = refuse_ambiguous(folder.path().join("gone"), MmapChoice::never()).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::MissingFile);
}
