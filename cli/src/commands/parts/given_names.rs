//! Names of values as they are given: lists with commas, and pairs with `=`. A name may have either
//! character, so the values of the models tell where a text is split.

use std::collections::HashSet;

use onnx_container::Container;
use onnx_container::proto::{GraphProto, ValueInfoProto};

/// The names of the values of a main graph.
pub struct Values(HashSet<String>);

impl Values {
    /// Those of its inputs, initializers and nodes.
    pub fn of(container: &Container) -> Self {
        let Some(graph) = graph(container) else { return Self(HashSet::new()) };
        let sparse = graph.sparse_initializer.iter().filter_map(|one| one.values.as_deref());
        let tensors = graph.initializer.iter().chain(sparse).filter_map(|one| one.name.as_ref());
        let results = graph.node.iter().flat_map(|node| &node.output);
        let named = tensors.chain(results).map(ToString::to_string);
        Self(named.chain(names(&graph.input)).collect())
    }

    /// The names in `texts`, each of which is a name or several with commas between them. The
    /// longest name that there is comes first.
    pub fn split(&self, texts: &[String]) -> Vec<String> {
        texts.iter().flat_map(|text| self.split_one(text)).collect()
    }

    fn split_one(&self, text: &str) -> Vec<String> {
        let (mut found, mut rest) = (Vec::new(), Some(text));
        while let Some(text) = rest {
            let (name, after) = self.first(text);
            found.push(name.to_owned());
            rest = after;
        }
        found
    }

    /// The longest beginning of `text` that is a name and ends at a comma, or what is before the
    /// first comma; and what comes after it.
    fn first<'t>(&self, text: &'t str) -> (&'t str, Option<&'t str>) {
        if self.0.contains(text) {
            return (text, None);
        }
        let mut splits = text.rmatch_indices(',').filter_map(|(at, _)| text.split_at_checked(at));
        let named = splits.find(|(name, _)| self.0.contains(*name));
        let first = named.map(|(name, after)| (name, after.strip_prefix(',')));
        first
            .or_else(|| text.split_once(',').map(|(name, after)| (name, Some(after))))
            .unwrap_or((text, None))
    }
}

/// The two names in each of `texts`, which have a `=` between them: of `of_a` and `of_b` where some
/// split gives such, else split at the first `=`.
pub fn pairs(
    texts: &[String],
    of_a: &[ValueInfoProto],
    of_b: &[ValueInfoProto],
) -> Vec<(String, String)> {
    let (of_a, of_b) = (names(of_a), names(of_b));
    let is_there = |all: &[String], name: &str| all.iter().any(|other| other == name);
    let pair = |text: &String| {
        let splits = text.match_indices('=').filter_map(|(at, _)| text.split_at_checked(at));
        let mut splits = splits.filter_map(|(from, to)| Some((from, to.strip_prefix('=')?)));
        let named = splits.clone().find(|(from, to)| is_there(&of_a, from) && is_there(&of_b, to));
        let (from, to) = named.or_else(|| splits.next())?;
        Some((from.to_owned(), to.to_owned()))
    };
    texts.iter().filter_map(pair).collect()
}

/// The main graph.
pub fn graph(container: &Container) -> Option<&GraphProto> {
    container.model().graph.as_deref()
}

/// The names of values.
pub fn names(infos: &[ValueInfoProto]) -> Vec<String> {
    infos.iter().filter_map(|info| Some(info.name.as_ref()?.to_string())).collect()
}
