//! Tensors, added up by the parts of their names: `encoder.layers.0.weight` is in `encoder`,
//! `encoder.layers` and `encoder.layers.0`, as files are in folders.

use std::collections::{BTreeMap, HashSet};

use super::tensors::TensorSummary;

/// The tensors whose names begin with the same parts, added up. Parts are separated by `.` and `/`.
///
/// The tensors of the main graph are below the root, those of other graphs below the parts of the
/// path to their graph. The elements of tied tensors are counted where the first of them is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Module {
    /// Its last part; empty for the root.
    pub name: String,
    /// The tensors in it and in all its children.
    pub tensors: usize,
    /// The number of their elements.
    pub parameters: u64,
    /// The bytes of these.
    pub bytes: u64,
    /// What is in it, tensors too: the most bytes first.
    pub children: Vec<Module>,
}

/// The most parts of a name: what comes after is one part.
const MOST_PARTS: usize = 64;

impl Module {
    /// The root of `tensors`.
    pub(super) fn of(tensors: &[TensorSummary]) -> Self {
        let (mut root, mut seen) = (Builder::default(), HashSet::new());
        for tensor in tensors {
            let is_first = tensor.range().is_none_or(|range| seen.insert(range));
            let counted = |number: Option<u64>| number.filter(|_| is_first).unwrap_or_default();
            let (parameters, bytes) = (counted(Some(tensor.parameters)), counted(tensor.bytes));
            root.add(&module_parts(&tensor.qualified_name()), parameters, bytes);
        }
        root.finish(String::new())
    }
}

/// The parts of the `name` of a tensor, which `.` and `/` separate, without empty ones; of a name
/// without any, the name. After 64 parts what is left is one.
///
/// ```
/// use onnx_container::summary::module_parts;
///
/// assert_eq!(module_parts("/encoder/layers.0/weight"), ["encoder", "layers", "0", "weight"]);
/// ```
pub fn module_parts(name: &str) -> Vec<&str> {
    let is_separator = |c| matches!(c, '.' | '/');
    let parts = name.splitn(MOST_PARTS, is_separator).filter(|part| !part.is_empty());
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() { vec![name] } else { parts }
}

/// A module that is being added up.
#[derive(Default)]
struct Builder {
    tensors: usize,
    parameters: u64,
    bytes: u64,
    children: BTreeMap<String, Builder>,
}

impl Builder {
    fn add(&mut self, parts: &[&str], parameters: u64, bytes: u64) {
        let mut module = self;
        module.count(parameters, bytes);
        for part in parts {
            // Looked up first: most parts are known, and need no copy of their name.
            if !module.children.contains_key(*part) {
                module.children.insert((*part).to_owned(), Self::default());
            }
            let Some(child) = module.children.get_mut(*part) else { return };
            child.count(parameters, bytes);
            module = child;
        }
    }

    fn count(&mut self, parameters: u64, bytes: u64) {
        self.tensors += 1;
        self.parameters = self.parameters.saturating_add(parameters);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn finish(self, name: String) -> Module {
        let Self { tensors, parameters, bytes, children } = self;
        let children = children.into_iter().map(|(name, child)| child.finish(name));
        let mut children: Vec<_> = children.collect();
        children.sort_by_key(|child| std::cmp::Reverse(child.bytes));
        Module { name, tensors, parameters, bytes, children }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_dots_and_slashes() {
        for (name, expected) in [
            ("a.b/c", &["a", "b", "c"][..]),
            ("/model/layers.0/w", &["model", "layers", "0", "w"]),
            ("w", &["w"]),
            ("a..b.", &["a", "b"]),
            ("", &[""]),
            ("..", &[".."]),
        ] {
            assert_eq!(module_parts(name), expected, "{name}");
        }
        assert!(module_parts(&"a.".repeat(1000)).len() <= MOST_PARTS);
    }
}
