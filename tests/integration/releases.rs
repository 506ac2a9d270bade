//! A version stands in one place, and packages have the licences in them.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text between `key = "` and the next quotation mark, in the first line that starts with it.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let start = format!("{key} = \"");
    text.lines().find_map(|line| line.strip_prefix(&start)?.split('"').next())
}

/// The folders of the workspace's crates, the library's own first.
fn members(manifest: &str) -> Vec<String> {
    let list = manifest.lines().find(|line| line.starts_with("members = [")).unwrap();
    let names = list.split('"').skip(1).step_by(2).map(|name| format!("{name}/"));
    std::iter::once(String::new()).chain(names).collect()
}

#[test]
fn crates_have_one_version_and_ask_for_each_other_in_it() {
    let manifest = read("Cargo.toml");
    let version = value(&manifest, "version").unwrap();
    let (_, dependencies) = manifest.split_once("[workspace.dependencies]").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    let own: Vec<_> =
        dependencies.lines().filter(|line| line.starts_with("onnx-container")).collect();
    assert!(own.len() > 5, "the manifest is not read in the right place");
    let exact = format!("version = \"={version}\"");
    let others: Vec<_> = own.iter().filter(|line| !line.contains(&exact)).collect();
    assert!(others.is_empty(), "Cargo.toml: run `scripts/release.py version X.Y.Z`: {others:?}");

    for folder in members(&manifest) {
        let name = format!("{folder}Cargo.toml");
        let text = read(&name);
        assert!(text.contains("\nversion.workspace = true\n"), "{name} has a version of its own");
        let of_its_own =
            |line: &&str| line.starts_with("onnx-container") && line.contains("version");
        let found = text.lines().filter(|line| !own.contains(line)).find(of_its_own);
        assert_eq!(found, None, "{name}: the version stands in [workspace.dependencies]");
    }
}

#[test]
fn other_files_have_the_version_of_the_crates() {
    let manifest = read("Cargo.toml");
    let version = value(&manifest, "version").unwrap();
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let text = read(lock);
        let found = text.contains(&format!("name = \"onnx-container\"\nversion = \"{version}\""));
        assert!(found, "{lock}: run `scripts/release.py version {version}`");
    }
    let changes = read("CHANGELOG.md");
    let newest = changes.lines().find(|line| line.starts_with("## ")).unwrap();
    assert_eq!(newest.split(' ').nth(1), Some(version), "CHANGELOG.md starts with {newest}");
    assert!(read("python/pyproject.toml").contains("dynamic = [\"version\"]"));
}

#[test]
fn packages_have_the_licences() {
    for (of, copies) in [
        ("LICENSE-APACHE", ["python/LICENSE-APACHE"]),
        ("LICENSE-MIT", ["python/LICENSE-MIT"]),
        ("report/page/d3-hierarchy.LICENSE", ["python/LICENSE-d3-hierarchy"]),
    ] {
        for copy in copies {
            assert_eq!(read(of), read(copy), "{copy} is a copy of {of}");
        }
    }
}
