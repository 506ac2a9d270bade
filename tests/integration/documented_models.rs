//! Programs in the documentation make models that readers open: a copy of one makes no refused
//! file.

use std::fs;
use std::path::{Path, PathBuf};

/// The programs in a page or in the comments of a source: what is between fences.
fn programs(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    if path.parent().is_some_and(|folder| folder.ends_with("examples")) {
        return vec![text];
    }
    let lines = text.lines().map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///")).unwrap_or(line)
    });
    let lines: Vec<_> = lines.collect();
    let parts = lines.split(|line| line.trim_start().starts_with("```"));
    parts.skip(1).step_by(2).map(|part| part.join("\n")).collect()
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = |folder: &str, end: &str| {
        let entries = fs::read_dir(root.join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|e| e == end)).collect::<Vec<_>>()
    };
    let mut pages = vec![root.join("README.md"), root.join("src/lib.rs")];
    pages.extend(files("docs", "md"));
    pages.extend(files("examples", "rs"));
    pages
}

#[test]
fn every_program_that_makes_a_model_and_saves_it_gives_it_an_operator_set() {
    let mut seen = 0;
    for page in pages() {
        for program in programs(&page) {
            if program.contains("ModelProto::new(") && program.contains(".save(") {
                seen += 1;
                assert!(
                    program.contains(".with_operator_set(") && !program.contains("ir_version"),
                    "{}: this program saves a model that no reader opens:\n{program}",
                    page.display()
                );
            }
        }
    }
    assert!(seen >= 6, "{seen} programs were found");
}
