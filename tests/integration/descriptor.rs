//! The table of messages is the one of onnx.proto, field by field.
//!
//! `tests/data/onnx_fields.tsv` is what `scripts/dump_descriptor.py` says of the onnx package.

use std::collections::BTreeSet;

use onnx_container::proto::MESSAGES;

#[test]
fn every_field_is_as_in_onnx_proto() {
    let dump = include_str!("../data/onnx_fields.tsv");
    let rows = dump.lines().filter(|line| !line.starts_with('#'));
    let theirs: BTreeSet<String> = rows
        .map(|row| {
            let [message, number, name, kind, label, packed] =
                row.split('\t').collect::<Vec<_>>()[..]
            else {
                panic!("six columns: {row}");
            };
            format!("{message} {number} {name} {kind} {label} {packed}")
        })
        .collect();
    let ours: BTreeSet<String> = MESSAGES
        .iter()
        .flat_map(|(message, fields)| fields.iter().map(move |field| (message, field)))
        .map(|(message, field)| {
            // Enums are stored as their numbers.
            let enumeration = field.last.map(|last| format!("enum 0..={last}"));
            let kind = enumeration.unwrap_or_else(|| field.kind.to_owned());
            let label = format!("{:?}", field.label).to_lowercase();
            let (number, packed) = (field.number, u8::from(field.packed));
            format!("{message} {number} {} {kind} {label} {packed}", field.name)
        })
        .collect();
    let differences: Vec<_> = theirs.symmetric_difference(&ours).collect();
    assert!(differences.is_empty(), "{differences:#?}");
    assert_eq!((MESSAGES.len(), ours.len()), (28, 134));
}

#[test]
fn fields_stand_in_the_order_of_their_numbers() {
    for (message, fields) in MESSAGES {
        assert!(fields.is_sorted_by(|a, b| a.number < b.number), "{message}");
        assert!(fields.iter().all(|field| !field.name.starts_with("r#")), "{message}");
    }
}
