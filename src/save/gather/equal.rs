//! Weights of equal bytes, wherever they lie: found by length, then by a hash, then compared.
//!
//! Weights of different lengths are never read. Of the others the first bytes tell nearly all
//! apart, so that only what is probably equal is read as a whole. Everything is read in pieces
//! where it lies; nothing is copied, except piece by piece from a source that has no buffer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::quality::RandomState;

use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::save::gather::kept::KeptFiles;
use crate::save::gather::overlaps::{inside_others, read_too_often};
use crate::save::gather::weights::{GatheredWeights, Weight, became_shorter, no_weight};
use crate::save::options::SaveOptions;
#[cfg(feature = "safetensors")]
use crate::save::options::weight_files::WeightFiles;
use crate::tensor::initializer::Address;
use crate::util::parallel;

/// More threads than this do not read faster.
const MAX_THREADS: usize = 8;
/// How many bytes are hashed or compared at a time.
const PIECE: u64 = 1 << 20;
/// How many bytes at the beginning of a weight tell it apart from most others.
const FIRST: u64 = 4 << 10;

/// Which weights have equal bytes.
#[derive(Default)]
pub(crate) struct Equal {
    /// For each weight that has an equal one, by its number: the lowest number of those that are
    /// equal to it.
    classes: HashMap<usize, usize>,
    /// The number of weights that were not compared, because their bytes are made when they are
    /// written.
    pub(crate) lazy: usize,
    /// The number of weights that were not compared, because they overlap so much that it would
    /// take too long.
    pub(crate) overlapping: usize,
}

/// Weights with different ones are not equal: the length, and the dtype and dims where these
/// matter.
type Form<'w> = (u64, Option<(DataType, &'w [i64])>);

impl Equal {
    /// Compares the `weights` that are written to files, where `options` ask for that.
    pub(crate) fn find(
        weights: &GatheredWeights<'_>,
        kept: &KeptFiles,
        options: &SaveOptions,
    ) -> Result<Self> {
        if !options.dedup {
            return Ok(Self::default());
        }
        let external = weights.are_external()?;
        let is_kept = |number: usize| kept.ranges.get(number).is_some_and(Option::is_some);
        let numbers = external.iter().enumerate().filter(|(_, external)| **external);
        let numbers = numbers.map(|(number, _)| number).filter(|number| !is_kept(*number));
        let reader = ContentReader { weights: &weights.used, random: RandomState::default() };
        // An entry of a safetensors file has one dtype and shape, and what lies inside another
        // weight has none.
        let entries = makes_entries(options);
        let no_entry =
            if entries { inside_others(reader.several(numbers.clone())) } else { HashSet::new() };
        let (mut places, mut groups) = (Places::default(), BTreeMap::<Form<'_>, Vec<usize>>::new());
        let mut lazy = 0;
        for number in numbers.filter(|number| !no_entry.contains(number)) {
            let weight = reader.weight(number)?;
            if weight.initializer.is_lazy() {
                lazy += 1;
            } else if weight.len > 0 && places.is_new(number, weight) {
                let form = entries.then(|| (weight.initializer.dtype(), weight.initializer.dims()));
                groups.entry((weight.len, form)).or_default().push(number);
            }
        }
        let groups = several(groups.into_values());
        let groups = reader.split_by_hash(groups, FIRST)?;
        let dense = read_too_often(reader.several(groups.iter().flatten().copied()));
        let groups = groups
            .into_iter()
            .map(|group| group.into_iter().filter(|number| !dense.contains(number)).collect());
        let groups = several(groups);
        let groups = reader.split_by_hash(groups, u64::MAX)?;
        let mut classes = reader.compare(&groups)?;
        places.add_to(&mut classes);
        Ok(Self { classes, lazy, overlapping: dense.len() })
    }

    /// The number that stands for all weights with the bytes of weight `number`, if there are
    /// others.
    pub(crate) fn class(&self, number: usize) -> Option<usize> {
        self.classes.get(&number).copied()
    }
}

/// Whether each tensor gets an entry, with its name, in a safetensors file.
#[cfg(feature = "safetensors")]
fn makes_entries(options: &SaveOptions) -> bool {
    options.weight_files == WeightFiles::Safetensors
}

#[cfg(not(feature = "safetensors"))]
fn makes_entries(_: &SaveOptions) -> bool {
    false
}

/// The groups that have more than one member.
fn several(groups: impl Iterator<Item = Vec<usize>>) -> Vec<Vec<usize>> {
    groups.filter(|group| group.len() > 1).collect()
}

/// The places in memory of the weights seen so far: what lies in one place need not be compared.
#[derive(Default)]
struct Places {
    /// By place and length, the first weight there.
    first: HashMap<(Address, u64), usize>,
    /// The other weights, each with the first one.
    others: Vec<(usize, usize)>,
}

impl Places {
    fn is_new(&mut self, number: usize, weight: &Weight<'_>) -> bool {
        let Some(address) = weight.address else { return true };
        let first = *self.first.entry((address, weight.len)).or_insert(number);
        if first != number {
            self.others.push((number, first));
        }
        first == number
    }

    /// Gives the other weights the classes of the first.
    fn add_to(&self, classes: &mut HashMap<usize, usize>) {
        for (number, first) in &self.others {
            if let Some(class) = classes.get(first).copied() {
                classes.insert(*number, class);
            }
        }
    }
}

struct ContentReader<'w, 'c> {
    weights: &'w [Weight<'c>],
    random: RandomState,
}

impl<'c> ContentReader<'_, 'c> {
    fn weight(&self, number: usize) -> Result<&Weight<'c>> {
        self.weights.get(number).ok_or_else(no_weight)
    }

    /// The weights of these numbers.
    fn several<'s>(
        &'s self,
        numbers: impl Iterator<Item = usize> + Clone,
    ) -> impl Iterator<Item = (usize, &'s Weight<'c>)> + Clone {
        numbers.filter_map(|number| Some((number, self.weights.get(number)?)))
    }

    /// Splits `groups` of weights by the hash of at most `limit` bytes.
    fn split_by_hash(&self, groups: Vec<Vec<usize>>, limit: u64) -> Result<Vec<Vec<usize>>> {
        let numbers: Vec<_> = groups.iter().flatten().copied().collect();
        // The hashes of the pieces of a weight in any order: each contains the offset of its piece.
        let hashes: Vec<_> = numbers.iter().map(|_| AtomicU64::new(0)).collect();
        let all = numbers.iter().zip(&hashes).flat_map(|(number, hash)| {
            let len = self.weight(*number).map_or(0, |weight| weight.len);
            pieces(len.min(limit)).map(move |piece| (*number, hash, piece))
        });
        parallel::for_each(parallel::cores(MAX_THREADS), all, |(number, hash, piece)| {
            let at = piece.start;
            let hashed = self.read(number, piece, |bytes| self.random.hash_one((at, bytes)))?;
            hash.fetch_xor(hashed, Ordering::Relaxed);
            Ok::<_, Error>(())
        })?;
        let mut hashes = hashes.into_iter().map(AtomicU64::into_inner);
        let mut split = Vec::new();
        for group in groups {
            let mut by_hash = BTreeMap::<u64, Vec<usize>>::new();
            for (number, hash) in group.into_iter().zip(hashes.by_ref()) {
                by_hash.entry(hash).or_default().push(number);
            }
            split.extend(several(by_hash.into_values()));
        }
        Ok(split)
    }

    /// Compares the weights of each group with its first. One that differs, although its hash is
    /// the same, stays alone.
    fn compare(&self, groups: &[Vec<usize>]) -> Result<HashMap<usize, usize>> {
        let pairs = groups.iter().filter_map(|group| group.split_first());
        let pairs =
            pairs.flat_map(|(first, others)| others.iter().map(move |other| (*first, *other)));
        let pairs: Vec<_> =
            pairs.map(|(first, other)| (first, other, AtomicBool::new(false))).collect();
        let all = pairs.iter().flat_map(|pair| {
            let len = self.weight(pair.0).map_or(0, |weight| weight.len);
            pieces(len).map(move |piece| (pair, piece))
        });
        parallel::for_each(
            parallel::cores(MAX_THREADS),
            all,
            |((first, other, differ), piece)| {
                if !differ.load(Ordering::Relaxed) && !self.are_equal(*first, *other, piece)? {
                    differ.store(true, Ordering::Relaxed);
                }
                Ok::<_, Error>(())
            },
        )?;
        let equal = pairs.into_iter().filter(|(_, _, differ)| !differ.load(Ordering::Relaxed));
        Ok(equal.flat_map(|(first, other, _)| [(first, first), (other, first)]).collect())
    }

    fn are_equal(&self, one: usize, other: usize, piece: Range<u64>) -> Result<bool> {
        self.read(one, piece.clone(), |bytes| self.read(other, piece, |others| bytes == others))?
    }

    /// Calls `look` with the bytes of a weight in `piece`.
    fn read<T>(
        &self,
        number: usize,
        piece: Range<u64>,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let weight = self.weight(number)?;
        let range = usize::try_from(piece.start).ok().zip(usize::try_from(piece.end).ok());
        let range = range.map(|(start, end)| start..end);
        let named = |error: Error| error.with_tensor(weight.handle.name());
        if let Some(buffer) = weight.initializer.as_buffer() {
            let bytes = range.and_then(|range| buffer.get(range));
            return bytes.map(look).ok_or_else(|| named(became_shorter()));
        }
        let len = usize::try_from(piece.end.saturating_sub(piece.start)).unwrap_or_default();
        let mut bytes = vec![0; len];
        weight.initializer.read_at(piece.start, &mut bytes).map_err(named)?;
        Ok(look(&bytes))
    }
}

/// The pieces of `len` bytes.
fn pieces(len: u64) -> impl Iterator<Item = Range<u64>> {
    (0..len.div_ceil(PIECE)).map(move |number| {
        let start = number.saturating_mul(PIECE);
        start..start.saturating_add(PIECE).min(len)
    })
}

#[cfg(test)]
mod tests {
    use ndarray::Array1;

    use super::*;
    use crate::container::Handle;
    use crate::tensor::initializer::Initializer;

    #[test]
    fn weights_of_one_hash_share_nothing_where_a_byte_differs() {
        const LEN: usize = (3 << 20) + 5;
        let bytes = |changed: Option<usize>| {
            let mut bytes = vec![7_u8; LEN];
            changed.into_iter().for_each(|at| bytes[at] = 8);
            Initializer::from(Array1::from(bytes))
        };
        let changes = [None, Some(0), None, Some(2 << 20), Some(LEN - 1), None];
        let handle: Handle = "#w".parse().unwrap();
        let initializers = changes.map(bytes);
        let weight = |initializer| Weight {
            handle: &handle,
            initializer,
            len: LEN as u64,
            address: Initializer::address(initializer),
        };
        let weights: Vec<_> = initializers.iter().map(weight).collect();
        let reader = ContentReader { weights: &weights, random: RandomState::default() };
        let all = vec![(0..weights.len()).collect::<Vec<_>>()];
        let equal = HashMap::from([(0, 0), (2, 0), (5, 0)]);
        assert_eq!(reader.compare(&all).unwrap(), equal);
        assert_eq!(reader.split_by_hash(all.clone(), u64::MAX).unwrap(), [[0, 2, 5]]);
        // Of the first bytes all but one are equal.
        assert_eq!(reader.split_by_hash(all, FIRST).unwrap(), [[0, 2, 3, 4, 5]]);
    }
}
