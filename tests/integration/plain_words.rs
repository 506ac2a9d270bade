//! The words of the sources and pages: lines of comments and prose end at column 100, and turns
//! that have to be read twice are not used.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders and pages that are read, below the root of the repository.
const READ: &[&str] = &[
    "build.rs",
    "proto",
    "protocol",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches",
    "cli/src",
    "cli/tests",
    "docs",
    "drivers/src",
    "examples",
    "files",
    "fuzz/fuzz_targets",
    "fuzz/src",
    "kernels",
    "machine/benches",
    "machine/src",
    "machine/tests",
    "python/src",
    "report",
    "signing",
    "src",
    "stores",
    "tests/integration",
    "tests/torch",
];

const WIDTH: usize = 100;

/// Turns, and what to write.
const TURNS: &[(&str, &str)] = &[
    ("but for", "except"),
    ("is none of", "is not one of"),
    ("are none of", "are not"),
    ("whoever", "the noun: the process, the caller"),
    ("has it:", "as X says:"),
    ("as it has it", "as it is there"),
    ("that of which", "a sentence of its own"),
    ("stands behind", "backs"),
];

fn files_in(path: &Path, files: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        files.push(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).unwrap() {
        files_in(&entry.unwrap().path(), files);
    }
}

/// The path of each file below the root, with its text.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    READ.iter().for_each(|path| files_in(&root.join(path), &mut files));
    let is_text = |path: &PathBuf| path.extension().is_some_and(|of| of == "rs" || of == "md");
    let text = |path: PathBuf| {
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    files.into_iter().filter(is_text).map(text).collect()
}

/// The lines of comments in a Rust file, or all lines of a page, with their numbers.
fn prose<'t>(name: &str, text: &'t str) -> Vec<(usize, &'t str)> {
    let is_page = name.ends_with(".md");
    let numbered = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    numbered.filter(|(_, line)| is_page || line.trim_start().starts_with("//")).collect()
}

/// The words of a line without the marks of a comment.
fn words(line: &str) -> &str {
    let line = line.trim_start();
    line.trim_start_matches('/').trim_start_matches('!').trim()
}

/// The lines that are longer than they may be. Code, tables and words that have no room can be
/// longer.
fn too_long(name: &str, text: &str) -> Vec<String> {
    let (mut in_code, mut found) = (false, Vec::new());
    for (number, line) in prose(name, text) {
        let words = words(line);
        in_code ^= words.starts_with("```");
        let has_one_word = words.split_whitespace().count() < 2;
        let is_long = line.chars().count() > WIDTH && !in_code;
        if is_long && !words.starts_with('|') && !has_one_word {
            found.push(format!("{name}:{number}: {} columns", line.chars().count()));
        }
    }
    found
}

/// The forbidden turns in comments, messages and pages.
fn turns(name: &str, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let found = |(turn, better): &(&str, &str)| {
        let is_word = |at: usize| {
            let around = (text[..at].chars().last(), text[at + turn.len()..].chars().next());
            let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
            is_end(around.0) && (turn.ends_with(':') || is_end(around.1))
        };
        let all = text.match_indices(turn).filter(|(at, _)| is_word(*at));
        let line = |at: usize| text[..at].lines().count();
        all.map(|(at, _)| format!("{name}:{}: `{turn}`: write {better}", line(at))).collect()
    };
    TURNS.iter().flat_map(|turn| -> Vec<String> { found(turn) }).collect()
}

#[test]
fn lines_end_at_column_100() {
    let found: Vec<_> = texts().iter().flat_map(|(name, text)| too_long(name, text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    // It looks, and in the right lines.
    let long = "word ".repeat(30);
    assert_eq!(too_long("a.rs", &format!("/// {long}\nlet x = 1; // {long}")).len(), 1);
    assert_eq!(too_long("a.md", &format!("{long}\n| {long}\n```\n{long}\n```")).len(), 1);
}

#[test]
fn turns_that_are_read_twice_are_not_used() {
    let others = texts().into_iter().filter(|(name, _)| !name.ends_with("plain_words.rs"));
    let found: Vec<_> = others.flat_map(|(name, text)| turns(&name, &text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(turns("a", "All but for one, whoever asks.").len(), 2);
    assert_eq!(turns("a", "butter forms").len(), 0);
}

/// Where texts may name what only Rust has: their callers are Rust programs, or give other names.
const OF_RUST: &[&str] = &["proto/src/tensor/initializer/torch.rs", "signing/src/terms.rs"];

/// Texts in the sources that name a type or function of Rust in backticks, such as
/// `` `SaveOptions::digests` ``: users of the command and of Python have no such names.
#[test]
fn texts_name_nothing_that_only_rust_has() {
    let mut found = Vec::new();
    for (name, text) in texts() {
        let is_source = name.contains("src/") && name.ends_with(".rs");
        if !is_source || OF_RUST.contains(&&*name.replace('\\', "/")) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (i, line) in code.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//") || line.contains("#[doc");
            let mut quoted = line.split('`').skip(1).step_by(2);
            if !is_comment && quoted.any(is_rust) {
                found.push(format!("{name}:{}: {}", i + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Whether `text` is a path of Rust that begins with a type.
fn is_rust(text: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let text = text.trim_end_matches("()");
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.contains("::")
        && text.split("::").all(is_name)
}
