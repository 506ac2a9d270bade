//! Attributes that are left out have the defaults of the schema of the version, as the table that
//! `scripts/make_opset.py` generates from onnx's schemas has them.

use std::collections::BTreeSet;

use onnx_container::DataType;
use onnx_container::proto::AttributeProto;
use onnx_container_machine::{Profile, Value};

use super::cases::{Case, Fill, cases};

const TABLE: &str = include_str!("../../../src/graph/opset/defaults.rs");

/// How many defaults of how many versions some case has covered.
const COVERED: usize = 214;

/// An operator of a domain, the version of its schema, and the defaults of its attributes.
struct Entry<'t> {
    domain: &'t str,
    name: &'t str,
    since: i64,
    attributes: Vec<(String, AttributeProto)>,
}

fn table() -> Vec<Entry<'static>> {
    let lines = TABLE.lines().map(str::trim).filter(|line| line.starts_with("Defaults {"));
    let entry = |line: &'static str| {
        let (head, attributes) = line.split_once("attributes: &[")?;
        let (attributes, _) = attributes.rsplit_once("] }")?;
        let words: Vec<_> = head.split('"').collect();
        let since = words.get(4)?.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        // So that only names follow this.
        let attributes = attributes.replace("String(\"", "String('");
        let attributes = attributes.split("(\"").skip(1).filter_map(attribute).collect();
        Some(Entry { domain: words.get(1)?, name: words.get(3)?, since, attributes })
    };
    lines.map(|line| entry(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// `name", Kind(value))`, and what is behind it. Lists and tensors are as good as left out.
fn attribute(text: &str) -> Option<(String, AttributeProto)> {
    let (name, value) = text.split_once("\", ")?;
    let (kind, value) = value.split_once('(')?;
    let value = value.split_once(')')?.0;
    let attribute = match kind {
        "Int" => AttributeProto::int(name, value.parse::<i64>().ok()?),
        "Float" => {
            let bits = u32::from_str_radix(value.trim_start_matches("0x"), 16).ok()?;
            AttributeProto::float(name, f32::from_bits(bits))
        }
        "String" => AttributeProto::string(name, value.trim_matches(['\'', '"'])),
        _ => return None,
    };
    Some((name.to_owned(), attribute))
}

/// The output of the case at a version, with one more attribute, if it runs.
fn run(case: &Case, more: &[AttributeProto]) -> Result<Value, String> {
    let inputs = case.inputs(DataType::Float, Fill::Plain);
    let outputs = case.run(Profile::Strict, &inputs, more);
    outputs.map(|mut outputs| outputs.remove(0)).map_err(|error| error.to_string())
}

#[test]
fn a_default_that_is_written_out_changes_nothing() {
    let (table, cases) = (table(), cases());
    assert!(table.len() > 200, "{} operators and versions", table.len());
    let mut covered = BTreeSet::new();
    for entry in &table {
        let of_operator =
            cases.iter().filter(|case| case.op == entry.name && case.domain == entry.domain);
        for case in of_operator {
            let case = Case { version: entry.since, ..case.clone() };
            // Before version 11 the bounds of Clip are attributes, and it has one input.
            let is_other = case.op == "Clip" && case.version < 11 && case.inputs.len() > 1;
            let Ok(without) = run(&case, &[]) else { continue };
            if is_other {
                continue;
            }
            let is_set = |name: &str| {
                case.attributes.iter().any(|own| own.name.as_ref().is_some_and(|own| *own == name))
            };
            for (name, default) in entry.attributes.iter().filter(|(name, _)| !is_set(name)) {
                let with = run(&case, std::slice::from_ref(default));
                let what = format!("{}-{}, {name}", entry.name, entry.since);
                assert_eq!(with.as_ref(), Ok(&without), "{what}: {}", case.name);
                covered.insert(what);
            }
        }
    }
    assert!(covered.len() >= COVERED, "{} are covered: {covered:?}", covered.len());
}
