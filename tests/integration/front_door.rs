//! The names at the root of the crate: what callers may rely on, and a newcomer reads first.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every name at the root. A change of this list is a change of the interface: CHANGELOG.md says
/// so.
const NAMES: &[&str] = &[
    "Alignment",
    "Buffer",
    "BufferMut",
    "Cancel",
    "Container",
    "DataType",
    "Element",
    "Error",
    "ErrorKind",
    "Handle",
    "Initializer",
    "Limits",
    "LoadOptions",
    "MmapChoice",
    "Outline",
    "Part",
    "Result",
    "SaveOptions",
    "Saved",
    "Tensor",
    "TensorIndex",
    "TensorRef",
    "TensorStorage",
    "WeightFiles",
    "WeightSource",
    "buffer",
    "bytes",
    "check",
    "compare",
    "digest",
    "edit",
    "external_data",
    "graph",
    "guide",
    "half",
    "inline",
    "job",
    "load",
    "microfloat",
    "model_files",
    "ndarray",
    "num_complex",
    "proto",
    "recovery",
    "safetensors",
    "save",
    "scan",
    "stats",
    "summary",
    "torch",
    "traversal",
];

/// The names that `lib.rs` declares or hands out, without those that are hidden.
fn names(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut hidden = false;
    let mut lines = source.lines().filter(|line| !line.starts_with("//"));
    while let Some(line) = lines.next() {
        let Some(item) = line.strip_prefix("pub ") else {
            hidden = line.starts_with("#[") && (hidden || line.contains("doc(hidden)"));
            continue;
        };
        let mut item = item.to_owned();
        while item.starts_with("use ") && !item.ends_with(';') {
            item += lines.next().unwrap();
        }
        if !std::mem::take(&mut hidden) {
            names.extend(names_of(&item));
        }
    }
    names
}

/// The names of one item: `mod name`, or `use path::{name, name}`.
fn names_of(item: &str) -> Vec<String> {
    let parts = item.trim_end_matches([';', '{', ' ']).split([',', '{', '}']);
    let last = |part: &str| part.rsplit([':', ' ']).next().unwrap().to_owned();
    parts.map(|part| last(part.trim())).filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_root_has_these_names() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let found = names(&fs::read_to_string(source).unwrap());
    let listed: BTreeSet<_> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_form_of_name_is_found() {
    let source = "pub mod a;\nmod b;\npub use x::{C,\n    y::D};\n#[doc(hidden)]\npub use x::E;\n\
                  #[cfg(unix)]\npub use z::F;\npub mod g {\n    pub use x::H;\n}\n";
    assert_eq!(names(source), ["C", "D", "F", "a", "g"].map(str::to_owned).into());
}
