//! Which weights have their bytes inside those of others, so that they need no place of their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::initializer::Address;
use crate::save::options::SaveOptions;
use crate::save::weights::Weight;

/// A weight whose bytes are those of another, or a part of them.
pub(super) struct Alias {
    /// The number of the other one.
    pub(super) of: usize,
    /// Bytes from the start of the other one.
    pub(super) delta: u64,
}

/// For every weight whose bytes are inside another's, the other weight. A part that would not be
/// aligned there gets no alias and is written again.
pub(super) fn aliases<'c: 'a, 'a>(
    weights: impl Iterator<Item = (usize, &'a Weight<'c>)>,
    options: &SaveOptions,
) -> HashMap<usize, Alias> {
    // By address, then the longer first, so that a weight precedes those inside it.
    let mut by_address: BTreeMap<(Address, Reverse<u64>), usize> = BTreeMap::new();
    let mut aliases = HashMap::new();
    for (number, weight) in weights {
        let Some(address) = weight.address else { continue };
        let key = (address, Reverse(weight.len));
        if let Some(of) = by_address.get(&key) {
            aliases.insert(number, Alias { of: *of, delta: 0 });
        } else {
            by_address.insert(key, number);
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
    flatten(&mut aliases);
    aliases
}

/// Replaces aliases of aliases by aliases of the first weight.
fn flatten(aliases: &mut HashMap<usize, Alias>) {
    let nested = aliases.iter().filter_map(|(number, inner)| {
        let outer = aliases.get(&inner.of)?;
        let delta = outer.delta.saturating_add(inner.delta);
        Some((*number, Alias { of: outer.of, delta }))
    });
    let flat: Vec<_> = nested.collect();
    aliases.extend(flat);
}
