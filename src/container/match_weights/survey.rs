//! What is known of the tensors and weights before any two of them are compared: their
//! fingerprints.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use super::convert::{convert, is_cast, is_matched, width};
use super::fingerprint::{Fingerprint, Seen};
use crate::buffers::in_memory;
use crate::dtype::{DataType, element_count};
use crate::error::{Error, Result};
use crate::tensor::initializer::Initializer;
use crate::util::parallel;

/// How many bytes a thread takes at a time.
const PIECE: u64 = 16 << 20;
/// How many bytes of a source are read at a time, and how many elements are converted.
const BLOCK: usize = 256 << 10;

/// A tensor or a weight, with the number of its elements.
pub(super) struct CountedTensor {
    pub(super) name: String,
    pub(super) weights: Initializer,
    pub(super) count: u64,
}

impl CountedTensor {
    pub(super) fn new(name: String, weights: Initializer) -> Result<Self> {
        let count = element_count(weights.dims())?;
        Ok(Self { name, weights, count })
    }
}

/// The weights as elements of one type.
pub(super) struct OfType {
    /// By number; `None` for weights that are never elements of this type.
    pub(super) seen: Vec<Option<Fingerprint>>,
    /// The numbers of the weights with a fingerprint.
    pub(super) by_fingerprint: HashMap<Fingerprint, Vec<usize>>,
}

/// Elements to be looked at.
struct Piece<'i> {
    item: &'i CountedTensor,
    dtype: DataType,
    /// In elements.
    first: u64,
    count: u64,
    /// Where what was seen goes.
    slot: usize,
}

/// What is seen of the elements of each of `items`, on all cores.
fn look(items: &[(&CountedTensor, DataType)]) -> Result<Vec<Seen>> {
    let mut pieces = Vec::new();
    for (slot, (item, dtype)) in items.iter().enumerate() {
        let own = width(item.weights.dtype())? as u64;
        // What is made as a whole is made once.
        let step = if item.weights.is_lazy() { item.count.max(1) } else { PIECE / own };
        let mut first = 0;
        while first < item.count {
            let count = step.min(item.count - first);
            pieces.push(Piece { item, dtype: *dtype, first, count, slot });
            first += count;
        }
    }
    let seen = Mutex::new(vec![Seen::default(); items.len()]);
    let threads = parallel::cores(pieces.len());
    parallel::for_each(threads, pieces.into_iter(), |piece| {
        let found = piece.seen().map_err(|error| error.with_tensor(piece.item.name.as_str()))?;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = seen.get_mut(piece.slot) {
            *seen += found;
        }
        Ok::<_, Error>(())
    })?;
    Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Piece<'_> {
    fn seen(&self) -> Result<Seen> {
        let weights = &self.item.weights;
        let own = width(weights.dtype())?;
        let bytes = match (weights.as_buffer(), weights.is_lazy()) {
            (Some(bytes), _) => Some(bytes),
            (None, true) => Some(weights.to_buffer()?),
            (None, false) => None,
        };
        let (mut read, mut converted) = (Vec::new(), Vec::new());
        let mut seen = Seen::default();
        let end = in_memory(self.first + self.count)?;
        let mut first = in_memory(self.first)?;
        while first < end {
            let count = (end - first).min(BLOCK / own);
            let input = match &bytes {
                Some(bytes) => bytes.get(first * own..(first + count) * own).unwrap_or_default(),
                None => {
                    read.resize(count * own, 0);
                    weights.read_at(first as u64 * own as u64, &mut read)?;
                    &read
                }
            };
            seen += self.of(input, &mut converted)?;
            first += count;
        }
        Ok(seen)
    }

    fn of(&self, input: &[u8], converted: &mut Vec<u8>) -> Result<Seen> {
        let from = self.item.weights.dtype();
        let to = width(self.dtype)?;
        if from == self.dtype {
            return Ok(Seen::of(input, to));
        }
        converted.resize(input.len() / width(from)? * to, 0);
        convert(from, self.dtype, input, converted)?;
        Ok(Seen::of(converted, to))
    }
}

/// What is seen of the elements of each of `tensors`.
pub(super) fn of_tensors(tensors: &[CountedTensor]) -> Result<Vec<Seen>> {
    let items: Vec<_> = tensors.iter().map(|item| (item, item.weights.dtype())).collect();
    look(&items)
}

/// The fingerprints of `weights` as elements of each of `types`.
pub(super) fn of_weights(
    weights: &[CountedTensor],
    types: &BTreeSet<DataType>,
) -> Result<HashMap<DataType, OfType>> {
    let (mut items, mut places) = (Vec::new(), Vec::new());
    for (number, weight) in weights.iter().enumerate() {
        let from = weight.weights.dtype();
        for dtype in types.iter().filter(|to| is_matched(from) && is_cast(from, **to)) {
            items.push((weight, *dtype));
            places.push((number, *dtype));
        }
    }
    let seen = look(&items)?;
    let empty = || OfType { seen: vec![None; weights.len()], by_fingerprint: HashMap::new() };
    let mut found: HashMap<_, _> = types.iter().map(|dtype| (*dtype, empty())).collect();
    for ((number, dtype), seen) in places.into_iter().zip(seen) {
        let Some(of_type) = found.get_mut(&dtype) else { continue };
        if let Some(place) = of_type.seen.get_mut(number) {
            *place = Some(seen.fingerprint);
        }
        of_type.by_fingerprint.entry(seen.fingerprint).or_default().push(number);
    }
    Ok(found)
}
