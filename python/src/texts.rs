//! Texts of people that stand for something else: sizes and patterns of names, as the command reads
//! them.

use std::collections::HashSet;

use glob::Pattern;
use onnx_container::ByteSize;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The number of bytes that a text says: `1024`, `16K`, `20MB`, `1.5 GB`.
#[pyfunction]
pub fn parse_size(text: &str) -> PyResult<u64> {
    onnx_container_cli::parse_size(text).map_err(PyValueError::new_err)
}

/// A number of bytes as people read it.
#[pyfunction]
pub fn size_text(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// Those of `names` that are one of `patterns` or match it, and the patterns that match none. A
/// pattern that is a name means that name alone, whatever characters it has.
#[pyfunction]
pub fn matching(names: Vec<String>, patterns: Vec<String>) -> PyResult<(Vec<String>, Vec<String>)> {
    let known: HashSet<&str> = names.iter().map(String::as_str).collect();
    let (exact, globs): (Vec<_>, Vec<_>) =
        patterns.into_iter().partition(|pattern| known.contains(pattern.as_str()));
    let exact: HashSet<String> = exact.into_iter().collect();
    let mut globs = globs.iter().map(|text| Glob::new(text)).collect::<PyResult<Vec<_>>>()?;
    let mut found = Vec::new();
    for name in &names {
        let mut is_found = exact.contains(name);
        for glob in &mut globs {
            is_found |= glob.matches(name);
        }
        if is_found {
            found.push(name.clone());
        }
    }
    let idle = globs.into_iter().filter(|glob| !glob.has_matched);
    Ok((found, idle.map(|glob| glob.pattern.to_string()).collect()))
}

/// A pattern, and whether it has matched.
struct Glob {
    pattern: Pattern,
    has_matched: bool,
}

impl Glob {
    fn new(text: &str) -> PyResult<Self> {
        let wrong = |error| PyValueError::new_err(format!("{text:?} is no pattern: {error}"));
        Ok(Self { pattern: Pattern::new(text).map_err(wrong)?, has_matched: false })
    }

    fn matches(&mut self, name: &str) -> bool {
        let is_match = self.pattern.matches(name);
        self.has_matched |= is_match;
        is_match
    }
}
