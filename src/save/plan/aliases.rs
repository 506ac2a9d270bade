//! Which weights have their bytes inside those of others, so that they need no place of their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::save::gather::equal::Equal;
use crate::save::gather::weights::Weight;
use crate::save::options::SaveOptions;
use crate::tensor::initializer::Address;

/// A weight whose bytes are those of another, or a part of them.
pub(super) struct Alias {
    /// The number of the other one.
    pub(super) of: usize,
    /// Bytes from the start of the other one.
    pub(super) delta: u64,
}

/// For every weight whose bytes are inside another's, or `equal` to them, the other weight; and the
/// numbers of those that are only equal. A part that would not be aligned there gets no alias and
/// is written again.
pub(super) fn aliases<'c: 'a, 'a>(
    weights: impl Iterator<Item = (usize, &'a Weight<'c>)>,
    equal: &Equal,
    options: &SaveOptions,
) -> (HashMap<usize, Alias>, Vec<usize>) {
    let weights: Vec<_> = weights.collect();
    let mut aliases = in_memory(&weights, options);
    let numbers: Vec<_> = weights.iter().map(|(number, _)| *number).collect();
    let only_equal = add_equal(&mut aliases, &numbers, equal);
    flatten(&mut aliases);
    (aliases, only_equal)
}

/// The weights whose bytes in memory are inside another's.
fn in_memory(weights: &[(usize, &Weight<'_>)], options: &SaveOptions) -> HashMap<usize, Alias> {
    // By address, then the longer first, so that a weight precedes those inside it.
    let mut by_address: BTreeMap<(Address, Reverse<u64>), usize> = BTreeMap::new();
    let mut aliases = HashMap::new();
    for (number, weight) in weights {
        let Some(address) = weight.address else { continue };
        let key = (address, Reverse(weight.len));
        if let Some(of) = by_address.get(&key) {
            aliases.insert(*number, Alias { of: *of, delta: 0 });
        } else {
            by_address.insert(key, *number);
        }
    }
    let mut last: Option<(Address, u64, usize)> = None;
    for ((address, len), number) in by_address {
        let inside = last.and_then(|(start, last_len, of)| {
            let delta = address.bytes_after(start)?;
            (delta.saturating_add(len.0) <= last_len).then_some(Alias { of, delta })
        });
        match inside {
            Some(alias) if options.alignment_of(len.0).is_aligned(alias.delta) => {
                aliases.insert(number, alias);
            }
            Some(_) => {}
            None => last = Some((address, len.0, number)),
        }
    }
    aliases
}

/// Makes weights aliases of one that is equal to them: of one that is inside a longer weight, so
/// that none of them is written, else of the first. Returns the new aliases.
fn add_equal(aliases: &mut HashMap<usize, Alias>, numbers: &[usize], equal: &Equal) -> Vec<usize> {
    let classes = numbers.iter().filter_map(|number| Some((*number, equal.class(*number)?)));
    let mut written = HashMap::new();
    for (number, class) in classes.clone() {
        // An alias of its own class has the same bytes in memory, and is not longer.
        let is_inside = |alias: &Alias| equal.class(alias.of) != Some(class);
        let first = written.entry(class).or_insert((number, false));
        if !first.1 && aliases.get(&number).is_some_and(is_inside) {
            *first = (number, true);
        }
    }
    let mut only_equal = Vec::new();
    for (number, class) in classes {
        let of = written.get(&class).map(|(of, _)| *of).filter(|of| *of != number);
        if let (Some(of), false) = (of, aliases.contains_key(&number)) {
            aliases.insert(number, Alias { of, delta: 0 });
            only_equal.push(number);
        }
    }
    only_equal
}

/// Replaces aliases of aliases by aliases of the weight that is written. There is no circle: an
/// alias is inside a longer weight, or leads to the one of its own length that all others lead to.
fn flatten(aliases: &mut HashMap<usize, Alias>) {
    let written = |alias: &Alias| {
        let Alias { mut of, mut delta } = *alias;
        while let Some(outer) = aliases.get(&of) {
            (of, delta) = (outer.of, delta.saturating_add(outer.delta));
        }
        Alias { of, delta }
    };
    let flat: Vec<_> = aliases.iter().map(|(number, alias)| (*number, written(alias))).collect();
    aliases.extend(flat);
}
