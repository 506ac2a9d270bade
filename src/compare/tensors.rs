//! Which tensors of two models are equal, and what became of the others.
//!
//! Tensors are paired by their names. Of a pair the elements are compared only where neither the
//! place of their bytes nor stored digests tell. What is left on both sides is paired by digest.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::path::Path;

use super::elements::{self, Difference, Pair};
use super::side::Side;
use crate::buffer::Buffer;
use crate::container::pieces::Pieces;
use crate::container::tensors::{TensorRef, TensorStorage};
use crate::digest::{self, Digest};
use crate::dtype::DataType;
use crate::error::{Error, Errors, Result};
use crate::files::overlaps;

/// The type, the shape and the length of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TensorForm {
    /// The element type, or the number of an unknown one.
    pub dtype: String,
    /// The dimensions.
    pub shape: Vec<i64>,
    /// The length in bytes; `None` when type and shape give none.
    pub bytes: Option<u64>,
}

/// A tensor that only one of the models has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OneTensor {
    /// Its name.
    pub name: String,
    /// What it is.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub form: TensorForm,
}

/// A tensor that both models have, and that differs.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ChangedTensor {
    /// Its name.
    pub name: String,
    /// What it is in A.
    pub a: TensorForm,
    /// What it is in B.
    pub b: TensorForm,
    /// How far the elements are apart, where that was asked for and type and shape are the same
    /// and the elements are numbers.
    pub difference: Option<Difference>,
}

/// A tensor with one name in A and another in B.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RenamedTensor {
    /// The name in A.
    pub from: String,
    /// The name in B.
    pub to: String,
    /// What it is.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub form: TensorForm,
}

/// A tensor that is stored at one place in A and at another in B.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MovedTensor {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The file in A; `None` where it is in the model or in memory.
    pub from_file: Option<String>,
    /// The first byte there.
    pub from_offset: Option<u64>,
    /// The file in B.
    pub to_file: Option<String>,
    /// The first byte there.
    pub to_offset: Option<u64>,
}

/// What differs in the tensors of two models, A and B.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TensorChanges {
    /// How many are equal and have the same name and place.
    pub equal: usize,
    /// Those that only B has: the largest first, as in the other lists.
    pub added: Vec<OneTensor>,
    /// Those that only A has.
    pub removed: Vec<OneTensor>,
    /// Those with other elements, or of another type or shape: first those whose elements are
    /// farthest apart, where that was asked for.
    pub changed: Vec<ChangedTensor>,
    /// Those with another name and the same content.
    pub renamed: Vec<RenamedTensor>,
    /// Those with the same name and content that are stored at another place. Models that differ in
    /// nothing else are the same.
    pub moved: Vec<MovedTensor>,
    /// How many tensors of one name were compared by the digests that are stored with both models,
    /// which were not verified.
    pub by_digests: usize,
    /// How many bytes of weights were read to know this.
    pub bytes_read: u64,
}

/// Finds what differs in the tensors.
pub(super) fn compare(a: &Side<'_>, b: &Side<'_>, with_differences: bool) -> Result<TensorChanges> {
    let mut found = TensorChanges::default();
    let (index_a, index_b) = (a.container.index(), b.container.index());
    let by_name: HashMap<_, _> = index_b.iter().map(|tensor| (tensor.name(), tensor)).collect();
    let (mut pairs, mut only_a, mut paired) = (Vec::new(), Vec::new(), HashSet::new());
    for tensor in index_a.iter() {
        match by_name.get(tensor.name()) {
            Some(other) => {
                paired.insert(other.name());
                pairs.push((tensor, *other));
            }
            None => only_a.push(tensor),
        }
    }
    let only_b = index_b.iter().filter(|tensor| !paired.contains(tensor.name())).collect();
    Named { a, b, with_differences }.compare(pairs, &mut found)?;
    unnamed([a, b], [only_a, only_b], &mut found)?;
    found.sort();
    Ok(found)
}

impl TensorChanges {
    /// Whether the content of both models is the same.
    pub(super) fn are_none(&self) -> bool {
        let lists = [self.added.len(), self.removed.len(), self.changed.len(), self.renamed.len()];
        lists.into_iter().all(|len| len == 0)
    }

    /// Puts the largest change first in each list.
    fn sort(&mut self) {
        self.added.sort_by_key(|tensor| Reverse(tensor.form.bytes));
        self.removed.sort_by_key(|tensor| Reverse(tensor.form.bytes));
        self.renamed.sort_by_key(|tensor| Reverse(tensor.form.bytes));
        self.moved.sort_by_key(|tensor| Reverse(tensor.bytes));
        // What has no number is the largest.
        let apart = |tensor: &ChangedTensor| {
            tensor.difference.and_then(|apart| apart.max_abs).unwrap_or(f64::INFINITY)
        };
        let bytes = |tensor: &ChangedTensor| tensor.a.bytes.max(tensor.b.bytes);
        self.changed
            .sort_by(|x, y| apart(y).total_cmp(&apart(x)).then_with(|| bytes(y).cmp(&bytes(x))));
    }
}

type Tensors<'t, 'c> = (&'t TensorRef<'c>, &'t TensorRef<'c>);

/// Tensors that have a name in both models.
struct Named<'s, 'c> {
    a: &'s Side<'c>,
    b: &'s Side<'c>,
    with_differences: bool,
}

/// What tells whether two tensors are equal.
enum Told<'c> {
    Equal,
    Different,
    /// By the digests that are stored with both.
    ByDigests(bool),
    ByReading(Box<Pair<'c>>),
}

impl<'c> Named<'_, 'c> {
    fn compare(&self, pairs: Vec<Tensors<'_, 'c>>, found: &mut TensorChanges) -> Result<()> {
        let (mut equal, mut changed) = (Vec::new(), Vec::new());
        let (mut unread, mut to_read, mut errors) =
            (Vec::new(), Once::default(), Errors::default());
        for (a, b) in pairs {
            match self.told(a, b) {
                Ok(Told::Equal) => equal.push((a, b)),
                Ok(Told::Different) => changed.push((a, b)),
                Ok(Told::ByDigests(is_equal)) => {
                    found.by_digests += 1;
                    if is_equal { equal.push((a, b)) } else { changed.push((a, b)) }
                }
                Ok(Told::ByReading(pair)) => {
                    unread.push(((a, b), to_read.add(*pair, ())));
                }
                Err(error) => errors.push(error.with_tensor(a.name())),
            }
        }
        if let Some(error) = errors.join() {
            return Err(error);
        }
        let (are_equal, read) = elements::equal(&to_read.pairs)?;
        found.bytes_read += read;
        for (tensors, number) in unread {
            let missing = || Error::internal("a pair that nobody compared");
            let is_equal = are_equal.get(number).ok_or_else(missing)?;
            if *is_equal { equal.push(tensors) } else { changed.push(tensors) }
        }
        for (a, b) in equal {
            match moved(a, b)? {
                Some(moved) => found.moved.push(moved),
                None => found.equal += 1,
            }
        }
        self.add_changed(&changed, found)
    }

    /// Whether `a` and `b` are equal, as far as that is known without reading them.
    fn told(&self, a: &TensorRef<'c>, b: &TensorRef<'c>) -> Result<Told<'c>> {
        if form(a) != form(b) {
            return Ok(Told::Different);
        }
        if strings(a) {
            let equal = a.tensor()? == b.tensor()?;
            return Ok(if equal { Told::Equal } else { Told::Different });
        }
        if let Some((a, b)) = self.a.stored(a).zip(self.b.stored(b)) {
            return Ok(Told::ByDigests(a == b));
        }
        let pair = self.pair(a, b)?;
        let is_one_source = pair.a.range().is_some_and(|range| pair.b.range() == Some(range));
        match pair.a.buffer().zip(pair.b.buffer()) {
            _ if is_one_source => Ok(Told::Equal),
            Some((a, b)) if are_same_bytes(a, b) => Ok(Told::Equal),
            _ => Ok(Told::ByReading(Box::new(pair))),
        }
    }

    fn pair(&self, a: &TensorRef<'c>, b: &TensorRef<'c>) -> Result<Pair<'c>> {
        let a = Pieces::of(self.a.container, a.proto())?;
        Ok(Pair { a, b: Pieces::of(self.b.container, b.proto())? })
    }

    fn add_changed(&self, changed: &[Tensors<'_, 'c>], found: &mut TensorChanges) -> Result<()> {
        let has_difference =
            |(a, b): &&Tensors<'_, 'c>| self.with_differences && form(a) == form(b) && !strings(a);
        let mut pairs = Once::default();
        let numbers = changed.iter().map(|tensors| {
            let (a, b) = tensors;
            let pair = || Ok(pairs.add(self.pair(a, b)?, form(a).dtype));
            has_difference(&tensors).then(pair).transpose()
        });
        let numbers = numbers.collect::<Result<Vec<_>>>()?;
        let differences = elements::differences(&pairs.pairs)?;
        found.bytes_read += pairs.pairs.iter().map(|pair| pair.a.len() + pair.b.len()).sum::<u64>();
        let difference = |number: usize| {
            let missing = || Error::internal("a pair without a difference");
            differences.get(number).copied().ok_or_else(missing)
        };
        for ((a, b), number) in changed.iter().zip(numbers) {
            let (name, difference) = (a.name().to_owned(), number.map(difference).transpose()?);
            found.changed.push(ChangedTensor { name, a: form(a), b: form(b), difference });
        }
        Ok(())
    }
}

/// Pairs of tensors, of which those that are tied in both models are read once together.
struct Once<'c, K> {
    pairs: Vec<Pair<'c>>,
    /// Their numbers, by their places and how they are read.
    numbers: HashMap<(overlaps::Range, overlaps::Range, K), usize>,
}

impl<K> Default for Once<'_, K> {
    fn default() -> Self {
        Self { pairs: Vec::new(), numbers: HashMap::new() }
    }
}

impl<'c, K: Eq + Hash> Once<'c, K> {
    /// The number of `pair`, which is read as `how` says.
    fn add(&mut self, pair: Pair<'c>, how: K) -> usize {
        let new = self.pairs.len();
        let places = pair.places();
        let number = places.map_or(new, |(a, b)| *self.numbers.entry((a, b, how)).or_insert(new));
        if number == new {
            self.pairs.push(pair);
        }
        number
    }
}

impl Side<'_> {
    /// The digest that is stored with `tensor`.
    fn stored(&self, tensor: &TensorRef<'_>) -> Option<Digest> {
        self.digests.get(&tensor.place().position.index()).copied()
    }
}

fn strings(tensor: &TensorRef<'_>) -> bool {
    tensor.dtype().is_ok_and(|dtype| dtype == DataType::String)
}

fn form(tensor: &TensorRef<'_>) -> TensorForm {
    let number = || tensor.proto().data_type.unwrap_or_default().to_string();
    let dtype = tensor.dtype().map_or_else(|_| number(), |dtype| dtype.to_string());
    TensorForm { dtype, shape: tensor.dims().to_vec(), bytes: tensor.byte_len().ok() }
}

/// Whether both are the same bytes of one file.
fn are_same_bytes(a: &Buffer, b: &Buffer) -> bool {
    let Some(((place_a, file_a), (place_b, file_b))) = a.source().zip(b.source()) else {
        return false;
    };
    let are_mapped = a.file_range().is_some() && b.file_range().is_some();
    let is_one_file = match are_mapped {
        true => file_a.has_the_bytes_of(file_b),
        false => file_a == file_b && a.is_settled() && b.is_settled(),
    };
    is_one_file && place_a.range == place_b.range
}

/// Where a tensor is stored, if that is another place in each model.
fn moved(a: &TensorRef<'_>, b: &TensorRef<'_>) -> Result<Option<MovedTensor>> {
    // Nothing is told of a place that is not known.
    let Some((from, to)) = place(a)?.zip(place(b)?) else { return Ok(None) };
    if from == to || a.dims().contains(&0) {
        return Ok(None);
    }
    let ((from_file, from_offset), (to_file, to_offset)) = (from.unzip(), to.unzip());
    let bytes = a.byte_len()?;
    let name = a.name().to_owned();
    Ok(Some(MovedTensor { name, bytes, from_file, from_offset, to_file, to_offset }))
}

/// The name of the file of a tensor, and the first byte there: `Some(None)` in the model and in
/// memory, `None` where a source has the elements that does not say where.
fn place(tensor: &TensorRef<'_>) -> Result<Option<Option<(String, u64)>>> {
    let in_memory = match tensor.storage()? {
        TensorStorage::Inline => return Ok(Some(None)),
        TensorStorage::Handle { initializer, .. } => initializer.as_buffer().is_some(),
        TensorStorage::File { .. } => true,
    };
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let place = tensor.file_range()?;
    let place = place.and_then(|(path, range)| Some((name(&path)?, range.start)));
    Ok((in_memory || place.is_some()).then_some(place))
}

/// Pairs the tensors that have no name in the other model by their content.
fn unnamed<'c>(
    [a, b]: [&Side<'c>; 2],
    [only_a, only_b]: [Vec<&TensorRef<'c>>; 2],
    found: &mut TensorChanges,
) -> Result<()> {
    let forms = |tensors: &[&TensorRef<'_>]| -> HashSet<_> {
        tensors.iter().map(|tensor| form(tensor)).collect()
    };
    let (forms_a, forms_b) = (forms(&only_a), forms(&only_b));
    let digests_a = digests(a, &only_a, &forms_b, found)?;
    let mut by_digest: HashMap<Digest, Vec<&TensorRef<'c>>> = HashMap::new();
    for (tensor, digest) in only_a.iter().zip(digests_a) {
        match digest {
            Some(digest) => by_digest.entry(digest).or_default().push(tensor),
            None => found.removed.push(one(tensor)),
        }
    }
    // Taken from the end: the first of equal ones is the counterpart of the first.
    by_digest.values_mut().for_each(|tensors| tensors.reverse());
    let digests_b = digests(b, &only_b, &forms_a, found)?;
    for (tensor, digest) in only_b.iter().zip(digests_b) {
        let from = digest.and_then(|digest| by_digest.get_mut(&digest)?.pop());
        match from {
            Some(from) => found.renamed.push(RenamedTensor {
                from: from.name().to_owned(),
                to: tensor.name().to_owned(),
                form: form(tensor),
            }),
            None => found.added.push(one(tensor)),
        }
    }
    found.removed.extend(by_digest.into_values().flatten().map(one));
    Ok(())
}

fn one(tensor: &TensorRef<'_>) -> OneTensor {
    OneTensor { name: tensor.name().to_owned(), form: form(tensor) }
}

/// The digests of those of `tensors` that have one of `forms`: others have no counterpart.
fn digests<'c>(
    side: &Side<'c>,
    tensors: &[&TensorRef<'c>],
    forms: &HashSet<TensorForm>,
    found: &mut TensorChanges,
) -> Result<Vec<Option<Digest>>> {
    let is_asked =
        |tensor: &&&TensorRef<'_>| side.stored(tensor).is_none() && forms.contains(&form(tensor));
    let asked: Vec<_> = tensors.iter().filter(is_asked).map(|tensor| tensor.proto()).collect();
    let bytes = tensors.iter().filter(is_asked).filter_map(|tensor| tensor.byte_len().ok());
    found.bytes_read += bytes.sum::<u64>();
    let mut made = digest::of_some(side.container, &asked)?.into_iter();
    let digest = |tensor: &&TensorRef<'c>| match side.stored(tensor) {
        Some(stored) => Ok(Some(stored)),
        None if !is_asked(&tensor) => Ok(None),
        None => made.next().map(Some).ok_or_else(|| Error::internal("a tensor without a digest")),
    };
    tensors.iter().map(digest).collect()
}
