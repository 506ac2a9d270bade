//! Weights whose fingerprints add up to that of a tensor: it may be joined of them.
//!
//! Runs of weights whose names differ only in their numbers, in the order of the numbers, of any
//! length (experts of a layer); any two weights; any three of one module (its projections), or of
//! few weights.

use std::collections::HashMap;

use super::fingerprint::Fingerprint;
use super::survey::{CountedTensor, OfType};

/// With at most this many weights, any three of them are tried.
const FEW: usize = 128;
/// At most this many weights of one module are tried by threes.
const MODULE: usize = 64;
/// At most this many sets are returned.
const MOST: usize = 64;

/// Weights of one pattern in the order of their numbers, with the sum of those before each, and
/// after all.
struct Family {
    numbers: Vec<usize>,
    sums: Vec<Fingerprint>,
    /// The places of each sum.
    places: HashMap<Fingerprint, Vec<usize>>,
}

/// The weights as elements of one type, arranged to find sums among them.
pub(super) struct Sums<'s> {
    of_type: &'s OfType,
    families: Vec<Family>,
    modules: Vec<Vec<usize>>,
}

/// A name in which each number is `#`, and the numbers. Numbers of many digits count by their
/// length first.
fn pattern(name: &str) -> (String, Vec<(usize, &str)>) {
    let (mut text, mut numbers) = (String::new(), Vec::new());
    let mut rest = name;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, digits) = rest.split_at(at);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let (number, after) = digits.split_at(end);
        text.push_str(before);
        text.push('#');
        let number = number.trim_start_matches('0');
        numbers.push((number.len(), number));
        rest = after;
    }
    text.push_str(rest);
    (text, numbers)
}

/// The module that a weight belongs to: its name without the last two parts, of
/// `layers.0.attn.q.weight` `layers.0.attn`.
fn module(name: &str) -> &str {
    let without = |name: &'_ str| name.rfind(['.', '/']).map_or(0, |at| at);
    let parent = name.get(..without(name)).unwrap_or_default();
    parent.get(..without(parent)).unwrap_or_default()
}

impl<'s> Sums<'s> {
    pub(super) fn new(weights: &[CountedTensor], of_type: &'s OfType) -> Self {
        let known = || {
            let numbered = weights.iter().enumerate();
            numbered.filter(|(number, _)| of_type.seen.get(*number).copied().flatten().is_some())
        };
        let (mut families, mut modules) =
            (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (number, weight) in known() {
            let (text, numbers) = pattern(&weight.name);
            families.entry((text, weight.weights.dims())).or_default().push((numbers, number));
            modules.entry(module(&weight.name)).or_default().push(number);
        }
        let few: Vec<_> = known().map(|(number, _)| number).collect();
        let mut modules: Vec<_> = match few.len() <= FEW {
            true => vec![few],
            false => modules.into_values().filter(|module| module.len() <= MODULE).collect(),
        };
        modules.sort_unstable();
        let mut families: Vec<_> = families
            .into_values()
            .filter(|members| members.len() > 1)
            .map(|mut members| {
                members.sort_unstable();
                Family::new(members.into_iter().map(|(_, number)| number).collect(), of_type)
            })
            .collect();
        families.sort_unstable_by(|a, b| a.numbers.cmp(&b.numbers));
        Self { of_type, families, modules }
    }

    /// Sets of at least two weights whose fingerprints add up to `wanted`. Those of runs are in
    /// their order, of the others any order is possible.
    pub(super) fn of(&self, wanted: Fingerprint) -> Vec<(Vec<usize>, bool)> {
        let mut sets = Vec::new();
        self.families.iter().for_each(|family| family.runs(wanted, &mut sets));
        self.pairs(wanted, &mut sets);
        self.modules.iter().for_each(|module| self.threes(module, wanted, &mut sets));
        sets.truncate(MOST);
        sets
    }

    fn seen(&self, number: usize) -> Option<Fingerprint> {
        self.of_type.seen.get(number).copied().flatten()
    }

    /// The weights with this fingerprint and a number greater than `above`.
    fn above(&self, wanted: Fingerprint, above: usize) -> impl Iterator<Item = usize> {
        let found = self.of_type.by_fingerprint.get(&wanted).into_iter().flatten().copied();
        found.filter(move |number| *number > above)
    }

    fn pairs(&self, wanted: Fingerprint, sets: &mut Vec<(Vec<usize>, bool)>) {
        for (number, seen) in self.of_type.seen.iter().enumerate() {
            let Some(seen) = seen.filter(|seen| seen.count > 0 && seen.count < wanted.count) else {
                continue;
            };
            for other in self.above(wanted - seen, number) {
                if sets.len() < MOST {
                    sets.push((vec![number, other], false));
                }
            }
        }
    }

    fn threes(&self, module: &[usize], wanted: Fingerprint, sets: &mut Vec<(Vec<usize>, bool)>) {
        for (at, one) in module.iter().enumerate() {
            for two in module.iter().skip(at + 1) {
                let (Some(first), Some(second)) = (self.seen(*one), self.seen(*two)) else {
                    continue;
                };
                let sum = first + second;
                if first.count == 0 || second.count == 0 || sum.count >= wanted.count {
                    continue;
                }
                for three in self.above(wanted - sum, *two) {
                    if sets.len() < MOST {
                        sets.push((vec![*one, *two, three], false));
                    }
                }
            }
        }
    }
}

impl Family {
    fn new(numbers: Vec<usize>, of_type: &OfType) -> Self {
        let mut sum = Fingerprint::default();
        let mut sums = vec![sum];
        for number in &numbers {
            sum += of_type.seen.get(*number).copied().flatten().unwrap_or_default();
            sums.push(sum);
        }
        let mut places: HashMap<_, Vec<_>> = HashMap::new();
        for (place, sum) in sums.iter().enumerate() {
            places.entry(*sum).or_default().push(place);
        }
        Self { numbers, sums, places }
    }

    /// The runs of at least two weights with the sum `wanted`.
    fn runs(&self, wanted: Fingerprint, sets: &mut Vec<(Vec<usize>, bool)>) {
        for (end, sum) in self.sums.iter().enumerate() {
            for start in self.places.get(&(*sum - wanted)).into_iter().flatten() {
                // Of two, the search for pairs tries both orders.
                if end > start + 2 && sets.len() < MOST {
                    let run = self.numbers.get(*start..end).unwrap_or_default().to_vec();
                    sets.push((run, true));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_in_their_order() {
        let mut names = ["e.10.w", "e.9.w", "e.010.w", "e.2.w"];
        names.sort_by_key(|name| pattern(name).1);
        assert_eq!(names[..2], ["e.2.w", "e.9.w"]);
        assert_eq!(pattern("layers.0.experts.12.w1").0, "layers.#.experts.#.w#");
        assert_eq!(module("layers.0.attn.q_proj.weight"), "layers.0.attn");
        assert_eq!([module("q.weight"), module("w")], ["", ""]);
    }
}
