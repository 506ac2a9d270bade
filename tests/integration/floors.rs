//! The order of the house: a file of the library uses only what stands above it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The modules from the ground up, as docs/design.md prints them.
const FLOORS: &[&str] = &[
    "error",
    "dtype",
    "placement",
    "opset",
    "buffer",
    "mmap",
    "wire",
    "proto",
    "tensor",
    "traversal",
    "inline",
    "external_data",
    "names",
    "safetensors_header",
    "operands",
    "initializer",
    "container",
    "externalize",
    "find",
    "fill",
    "replace",
    "load",
    "save",
    "safetensors",
    "check",
];

/// The modules that the source `text` of a module uses, by `crate::`.
fn used(text: &str) -> Vec<String> {
    let code: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let words = code.split("crate::").skip(1).map(|rest| {
        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    });
    words.filter(|word| word.chars().next().is_some_and(char::is_lowercase)).collect()
}

fn sources(folder: &Path, module: &str, all: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let name = if module.is_empty() { stem } else { module.to_owned() };
        if path.is_dir() {
            sources(&path, &name, all);
        } else if path.extension().is_some_and(|e| e == "rs") && name != "lib" {
            all.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_file_uses_only_what_stands_above_it() {
    let floor: HashMap<&str, usize> = FLOORS.iter().enumerate().map(|(i, m)| (*m, i)).collect();
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut all);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (module, text) in &all {
        // Tests may look up.
        let code = text.split("#[cfg(test)]").next().unwrap();
        let own = floor.get(module.as_str()).unwrap_or_else(|| panic!("`{module}` has no floor"));
        for other in used(code) {
            if let Some(other_floor) = floor.get(other.as_str()) {
                seen += 1;
                if other_floor > own {
                    wrong.push(format!("{module} uses {other}"));
                }
            }
        }
    }
    assert!(seen > 50, "only {seen} uses found: the test looks in the wrong place");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_design_page_prints_these_floors() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/design.md");
    let page = fs::read_to_string(page).unwrap();
    let block = page.split_once("```floors\n").unwrap().1.split_once("```").unwrap().0;
    let printed: Vec<_> = block.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(printed, FLOORS);
}
