//! [`PrefixRule`]: the prefix by which the names of weights differ from those of tensors.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::container::Container;
use crate::graph::traversal;

/// A rule for names that makes the name of a tensor of that of weights: the prefix `from` becomes
/// `to`.
///
/// `Display` says it as a hint: `strip_prefix of "model." makes "w" of "model.w"`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixRule {
    /// What the name of the weights begins with; empty where a prefix is put before it.
    pub from: String,
    /// What the name of the tensor begins with instead; empty where a prefix is stripped.
    pub to: String,
    /// Weights that the rule helps.
    pub weights: String,
    /// The tensor that they are for then.
    pub tensor: String,
}

impl fmt::Display for PrefixRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, weights, tensor } = self;
        match to.is_empty() {
            true => write!(f, "strip_prefix of {from:?}")?,
            false => write!(f, "replace_prefix of {from:?} by {to:?}")?,
        }
        write!(f, " makes {tensor:?} of {weights:?}")
    }
}

impl Container {
    /// The prefix rule that turns the name of one of `weights` into that of a tensor, when one name
    /// ends in the other: what
    /// [`FillOptions::replace_prefix`](crate::edit::FillOptions::replace_prefix) may lack.
    pub fn prefix_rule<S: AsRef<str>>(&self, weights: &[S]) -> Option<PrefixRule> {
        let names = traversal::iter(self.model());
        let names: Vec<_> = names.map(|(place, tensor)| place.qualified_name(tensor)).collect();
        rule(weights, &names)
    }
}

/// [`Container::prefix_rule`] for the names of `tensors`.
fn rule<S: AsRef<str>>(weights: &[S], tensors: &[String]) -> Option<PrefixRule> {
    let names: HashSet<&str> = tensors.iter().map(String::as_str).collect();
    let mut ends: HashMap<&str, &str> = HashMap::new();
    for tensor in tensors {
        for (prefix, end) in splits(tensor) {
            let shortest = ends.entry(end).or_insert(prefix);
            *shortest = if prefix.len() < shortest.len() { prefix } else { shortest };
        }
    }
    weights.iter().map(AsRef::as_ref).find_map(|weights| {
        let rule = |from: &str, to: &str, tensor: String| PrefixRule {
            from: from.to_owned(),
            to: to.to_owned(),
            weights: weights.to_owned(),
            tensor,
        };
        let stripped = splits(weights).find(|(_, end)| names.contains(end));
        let strip = stripped.map(|(prefix, end)| rule(prefix, "", end.to_owned()));
        strip.or_else(|| {
            let prefix = ends.get(weights)?;
            Some(rule("", prefix, format!("{prefix}{weights}")))
        })
    })
}

/// The longest name that is looked at for a rule, in bytes: its ends are looked up one by one.
const LONGEST: usize = 1000;

/// `name` cut behind each of its dots and slashes.
fn splits(name: &str) -> impl Iterator<Item = (&str, &str)> {
    let cuts = name.match_indices(['.', '/']).filter(|_| name.len() <= LONGEST);
    cuts.filter_map(|(at, _)| name.split_at_checked(at + 1)).filter(|(_, end)| !end.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(weights: &[&str], tensors: &[&str]) -> Option<String> {
        let owned = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        rule(weights, &owned(tensors)).map(|rule| rule.to_string())
    }

    #[test]
    fn a_prefix_that_makes_names_fit_is_found() {
        let strip = r#"strip_prefix of "model." makes "a.w" of "model.a.w""#;
        let put = r#"replace_prefix of "" by "m/" makes "m/a.w" of "a.w""#;
        assert_eq!(said(&["x", "model.a.w"], &["a.w", "b"]).as_deref(), Some(strip));
        assert_eq!(said(&["x", "a.w"], &["n.m/a.w", "m/a.w"]).as_deref(), Some(put));
        for (weights, tensors) in [("ba.w", "a.w"), ("w.", "w"), ("", "w.")] {
            assert_eq!(said(&[weights], &[tensors]), None, "{weights} {tensors}");
        }
    }

    /// If every name were compared with every other, this would take minutes.
    #[test]
    fn names_without_a_rule_are_looked_at_once() {
        let names = |prefix: &str| {
            let name = |i| format!("{prefix}.{}.layers.{i}.weight", "block.".repeat(8));
            (0..30_000).map(name).collect::<Vec<_>>()
        };
        assert_eq!(rule(&names("a"), &names("b")), None);
    }
}
