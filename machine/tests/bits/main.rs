//! The same bits on every processor: the digests of what every operator gives, for numbers of every
//! kind, as they are in `tests/data/bits.tsv`, whatever this program was compiled for and runs on.
//! `scripts/test.sh processors` runs it on several.
//!
//! A line of the table is a case, and for FLOAT, DOUBLE, FLOAT16 and BFLOAT16 the digests of plain
//! and of special inputs, or `-` where the operator does not take them. With
//! `ONNX_CONTAINER_WRITE_BITS=1` the test writes the table.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod cases;
mod defaults;
mod models;

use std::fmt::Write as _;

use onnx_container::DataType;
use onnx_container_machine::{Profile, Value};
use sha2::{Digest as _, Sha256};

use self::cases::{Case, Fill, TYPES, cases};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/bits.tsv");

/// The first digits of the SHA-256 of a tensor.
fn digest(value: &Value) -> String {
    let tensor = value.tensor().unwrap();
    let sha = Sha256::digest(tensor.as_bytes().unwrap_or_default());
    sha.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn line(case: &Case) -> String {
    let mut line = case.name.clone();
    for (dtype, fill) in TYPES.iter().flat_map(|t| [Fill::Plain, Fill::Special].map(|f| (*t, f))) {
        let outputs = case.run(Profile::Strict, &case.inputs(dtype, fill), &[]);
        let digest = outputs.map_or_else(|_| "-".to_owned(), |values| digest(&values[0]));
        write!(line, "\t{digest}").unwrap();
    }
    line
}

#[test]
fn every_operator_gives_the_bits_of_the_table() {
    let found = cases().into_iter().map(|case| line(&case)).chain(models::lines());
    let found = found.collect::<Vec<_>>().join("\n") + "\n";
    if std::env::var_os("ONNX_CONTAINER_WRITE_BITS").is_some() {
        std::fs::write(TABLE, &found).unwrap();
    }
    let expected = std::fs::read_to_string(TABLE).unwrap();
    let differ = found.lines().zip(expected.lines()).filter(|(found, expected)| found != expected);
    let differ: Vec<_> =
        differ.map(|(found, expected)| format!("{found}\nnot {expected}")).collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert_eq!(found.lines().count(), expected.lines().count());
}

#[test]
fn every_case_runs_with_some_type() {
    for case in cases() {
        let line = line(&case);
        let ran = line.split('\t').skip(1).filter(|digest| *digest != "-").count();
        let error = case.run(Profile::Strict, &case.inputs(DataType::Float, Fill::Plain), &[]);
        assert!(ran >= 2, "{line}: {:?}", error.err());
    }
}

/// What is no NaN, or the one NaN of its type.
fn has_one_nan(value: &Value) -> bool {
    let tensor = value.tensor().unwrap();
    let (infinity, one) = match tensor.dtype() {
        DataType::Float | DataType::Complex64 => (0x7f80_0000, 0x7fc0_0000),
        DataType::Double | DataType::Complex128 => (0x7ff0 << 48, 0x7ff8 << 48),
        DataType::Float16 => (0x7c00, 0x7e00),
        DataType::Bfloat16 => (0x7f80, 0x7fc0),
        DataType::Float8E4M3Fn => (0x7e, 0x7f),
        DataType::Float8E5M2 => (0x7c, 0x7e),
        _ => return true,
    };
    let width = match tensor.dtype() {
        DataType::Complex64 => 4,
        DataType::Complex128 => 8,
        other => usize::from(other.bit_width().unwrap() / 8),
    };
    tensor.as_bytes().unwrap_or_default().chunks_exact(width).all(|bytes| {
        let mut all = [0; 8];
        all[..width].copy_from_slice(bytes);
        let (bits, sign) = (u64::from_le_bytes(all), 1 << (8 * width - 1));
        bits & !sign <= infinity || bits == one
    })
}

/// What only moves elements keeps the bits of a NaN.
const MOVING: [&str; 15] = [
    "Trilu",
    "Transpose",
    "Identity",
    "Flatten",
    "Where",
    "Concat",
    "Gather",
    "GatherND",
    "Expand",
    "Tile",
    "Pad",
    "Slice",
    "Compress",
    "TopK",
    "Unique",
];

#[test]
fn what_is_computed_has_one_nan_and_what_is_moved_keeps_its_own() {
    let mut kept = Vec::new();
    for case in cases() {
        for (dtype, profile) in
            TYPES.iter().flat_map(|t| [Profile::Strict, Profile::Fast].map(|p| (*t, p)))
        {
            let inputs = case.inputs(dtype, Fill::Special);
            let Ok(values) = case.run(profile, &inputs, &[]) else { continue };
            let is_moved = MOVING.contains(&&*case.op)
                || case.op.ends_with("Depth")
                || case.op.starts_with("Depth");
            match is_moved {
                false => assert!(has_one_nan(&values[0]), "{} of {dtype}, {profile}", case.name),
                true if !has_one_nan(&values[0]) => kept.push(case.op.clone()),
                true => {}
            }
        }
    }
    kept.sort();
    kept.dedup();
    let missing: Vec<_> = MOVING.iter().filter(|op| !kept.contains(&(**op).to_owned())).collect();
    assert!(missing.is_empty(), "{missing:?} lost the bits of every NaN");
}
