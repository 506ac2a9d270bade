//! The search for the weights that one tensor is made of. Fingerprints say what is worth a look;
//! what is returned was compared with the tensor, all of it.

use std::collections::HashMap;

use super::composed::Composed;
use super::forms::{of_slice, of_whole, orders};
use super::mapping::{Composition, WeightPart, WeightSlice};
use super::strided::Strided;
use super::sums::Sums;
use super::survey::{CountedTensor, OfType};
use crate::buffers::in_memory;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;

/// How many bytes are compared at first, which tells nearly all that are not equal, and then at a
/// time.
const FIRST: usize = 1 << 10;
const BLOCK: usize = 256 << 10;
/// At most this many weights with one fingerprint, and this many compositions of one tensor, are
/// looked at: tensors with so many twins are told by no content.
const MOST: usize = 16;
/// How many elements of a slice are looked at to find where it begins.
const SAMPLE: usize = 32;
/// At most so many places of one weight where a slice may begin are compared.
const STARTS: usize = 256;

/// All weights, as a search sees them.
pub(super) struct SearchedWeights<'s> {
    pub(super) items: &'s [CountedTensor],
    pub(super) by_name: &'s HashMap<String, usize>,
    pub(super) of_type: &'s OfType,
    pub(super) sums: &'s Sums<'s>,
}

/// A search for one tensor.
pub(super) struct Search<'s> {
    weights: &'s SearchedWeights<'s>,
    tensor: CountedTensor,
    /// Weights that are made when they are read, once they were.
    resident: HashMap<usize, Initializer>,
}

/// The bytes of `weights` in memory, where they would have to be made for every read.
fn resident(weights: &Initializer) -> Result<Initializer> {
    match weights.as_buffer() {
        Some(_) => Ok(weights.clone()),
        None => Ok(Tensor::new(weights.dtype(), weights.dims(), weights.to_buffer()?)?.into()),
    }
}

/// Whether both have the same elements, by their number.
fn equal(one: &Composed, other: &Composed, count: usize, width: usize) -> Result<bool> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let (mut first, mut block) = (0, FIRST / width);
    while first < count {
        let now = block.min(count - first);
        left.resize(now * width, 0);
        right.resize(now * width, 0);
        one.read(first, &mut left)?;
        other.read(first, &mut right)?;
        if left != right {
            return Ok(false);
        }
        (first, block) = (first + now, BLOCK / width);
    }
    Ok(true)
}

impl<'s> Search<'s> {
    pub(super) fn new(weights: &'s SearchedWeights<'s>, tensor: &CountedTensor) -> Result<Self> {
        let bytes = resident(&tensor.weights)?;
        let tensor = CountedTensor::new(tensor.name.clone(), bytes)?;
        Ok(Self { weights, tensor, resident: HashMap::new() })
    }

    fn dtype(&self) -> DataType {
        self.tensor.weights.dtype()
    }

    fn dims(&self) -> Vec<i64> {
        self.tensor.weights.dims().to_vec()
    }

    fn item(&self, number: usize) -> Result<&'s CountedTensor> {
        self.weights.items.get(number).ok_or_else(|| Error::internal("a weight is missing"))
    }

    /// The weight called `name`.
    fn weight(&mut self, name: &str) -> Result<()> {
        let number =
            *self.weights.by_name.get(name).ok_or_else(|| Error::internal("no such weight"))?;
        if let std::collections::hash_map::Entry::Vacant(place) = self.resident.entry(number) {
            let item = self.weights.items.get(number);
            let item = item.ok_or_else(|| Error::internal("a weight is missing"))?;
            place.insert(resident(&item.weights)?);
        }
        Ok(())
    }

    /// `composition` as a tensor of this type and these dimensions.
    fn composed(&mut self, composition: &Composition, dims: &[i64]) -> Result<Composed> {
        for part in &composition.parts {
            self.weight(&part.weight)?;
        }
        let (dtype, by_name) = (self.dtype(), self.weights.by_name);
        Composed::new(composition, (dtype, dims), |name| {
            let number = by_name.get(name);
            let found = number.and_then(|number| self.resident.get(number));
            found.ok_or_else(|| Error::internal("a weight was not read"))
        })
    }

    /// Whether the tensor, or the part of it that `slice` is, has the elements of `part`.
    fn is(&mut self, part: &WeightPart, slice: Option<WeightSlice>) -> Result<bool> {
        let mut own = WeightPart::whole("", self.tensor.weights.dims());
        own.slice = slice;
        if let Some(slice) = slice
            && let Some(dim) = own.shape.get_mut(slice.axis)
        {
            *dim = slice.len;
        }
        let dims = own.shape.clone();
        let candidate = self.composed(&Composition::of(part.clone()), &dims)?;
        let tensor = &self.tensor.weights;
        let own = Composed::new(&Composition::of(own), (self.dtype(), &dims), |_| Ok(tensor))?;
        let count = in_memory(crate::dtype::element_count(&dims)?)?;
        equal(&candidate, &own, count, super::convert::width(self.dtype())?)
    }

    /// The weight that has the name of the tensor and its elements, as they are.
    pub(super) fn of_own_name(&mut self, names: &[&str]) -> Result<Option<Composition>> {
        for name in names {
            let Some(number) = self.weights.by_name.get(*name).copied() else { continue };
            let item = self.item(number)?;
            let known = self.weights.of_type.seen.get(number).copied().flatten().is_some();
            if known && item.weights.dims() == self.tensor.weights.dims() {
                let part = WeightPart::whole(name, item.weights.dims());
                if self.is(&part, None)? {
                    return Ok(Some(Composition::of(part)));
                }
            }
        }
        Ok(None)
    }

    /// Every composition that is found, the likeliest first.
    pub(super) fn run(
        &mut self,
        fingerprint: super::fingerprint::Fingerprint,
    ) -> Result<Vec<Composition>> {
        let mut found = self.whole(fingerprint)?;
        if found.is_empty() {
            found = self.joined(fingerprint)?;
        }
        if found.is_empty() {
            found = self.sliced()?;
        }
        Ok(found)
    }

    /// The forms of a weight that are the tensor, or a part of it.
    fn forms(
        &mut self,
        number: usize,
        dims: &[i64],
        slice: Option<WeightSlice>,
    ) -> Result<Vec<WeightPart>> {
        let item = self.item(number)?;
        let (mut found, mut known) = (Vec::new(), Vec::new());
        for form in of_whole(&item.name, item.weights.dims(), dims) {
            let order = Strided::of(&form)?;
            if !known.contains(&order) {
                if self.is(&form, slice)? {
                    found.push(form);
                }
                known.push(order);
            }
        }
        Ok(found)
    }

    fn whole(&mut self, fingerprint: super::fingerprint::Fingerprint) -> Result<Vec<Composition>> {
        let twins = self.weights.of_type.by_fingerprint.get(&fingerprint).into_iter().flatten();
        let dims = self.dims();
        let mut found = Vec::new();
        for number in twins.take(MOST) {
            found.extend(self.forms(*number, &dims, None)?);
        }
        // As it is before another order, whatever the names are.
        found.sort_by_key(|form| (!form.is_in_order(), form.dims != dims));
        Ok(found.into_iter().map(Composition::of).collect())
    }

    fn joined(&mut self, fingerprint: super::fingerprint::Fingerprint) -> Result<Vec<Composition>> {
        let dims = self.dims();
        let mut found = Vec::new();
        for (set, ordered) in self.weights.sums.of(fingerprint) {
            let all = if ordered { vec![(0..set.len()).collect()] } else { orders(set.len()) };
            for order in all {
                let set: Vec<_> = order.iter().filter_map(|at| set.get(*at).copied()).collect();
                for axis in 0..dims.len() {
                    if found.len() < MOST {
                        found.extend(self.along(&set, axis, &dims)?);
                    }
                }
            }
        }
        Ok(found)
    }

    /// The weights `set` joined along `axis`, if they are the tensor; with each other form of one
    /// of them.
    fn along(&mut self, set: &[usize], axis: usize, dims: &[i64]) -> Result<Vec<Composition>> {
        let total = i64::try_from(self.tensor.count).map_err(Error::internal)?;
        let dim = dims.get(axis).copied().unwrap_or_default();
        // How many elements one index of the axis has.
        let Some(each) = total.checked_div(dim) else { return Ok(Vec::new()) };
        let (mut start, mut parts) = (0, Vec::new());
        for number in set {
            let count = i64::try_from(self.item(*number)?.count).map_err(Error::internal)?;
            let len = count.checked_div(each).unwrap_or_default();
            if len == 0 || len * each != count {
                return Ok(Vec::new());
            }
            let mut part = dims.to_vec();
            if let Some(place) = part.get_mut(axis) {
                *place = len;
            }
            let forms = self.forms(*number, &part, Some(WeightSlice { axis, start, len }))?;
            if forms.is_empty() {
                return Ok(Vec::new());
            }
            parts.push(forms);
            start += len;
        }
        let first: Option<Vec<_>> = parts.iter().map(|forms| forms.first().cloned()).collect();
        let first = Composition { axis, parts: first.unwrap_or_default() };
        let others = parts.iter().enumerate().flat_map(|(place, forms)| {
            let first = &first;
            forms.iter().skip(1).map(move |form| {
                let mut other = first.clone();
                if let Some(part) = other.parts.get_mut(place) {
                    *part = form.clone();
                }
                other
            })
        });
        let others: Vec<_> = others.collect();
        Ok([first].into_iter().chain(others).collect())
    }

    fn sliced(&mut self) -> Result<Vec<Composition>> {
        let dims = self.dims();
        let mut found = Vec::new();
        for (number, item) in self.weights.items.iter().enumerate() {
            let known = self.weights.of_type.seen.get(number).copied().flatten().is_some();
            if !known || item.count <= self.tensor.count || found.len() >= MOST {
                continue;
            }
            for form in of_slice(&item.name, item.weights.dims(), &dims) {
                for start in self.starts(&form)? {
                    let mut form = form.clone();
                    form.slice = form.slice.map(|slice| WeightSlice { start, ..slice });
                    if self.is(&form, None)? {
                        found.push(Composition::of(form));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Where in the weight the slice `form` may begin: where a few elements along its axis are
    /// those of the tensor.
    fn starts(&mut self, form: &WeightPart) -> Result<Vec<i64>> {
        let Some(slice) = form.slice else { return Ok(Vec::new()) };
        let width = super::convert::width(self.dtype())?;
        let axis = form.permutation.iter().position(|from| *from == slice.axis);
        let own =
            line(&WeightPart::whole("", self.tensor.weights.dims()), axis.unwrap_or_default());
        let tensor = &self.tensor.weights;
        let (dtype, dims) = (self.dtype(), own.permuted());
        let own = Composed::new(&Composition::of(own), (dtype, &dims), |_| Ok(tensor))?;
        let count = usize::try_from(slice.len).unwrap_or(SAMPLE).min(SAMPLE);
        let mut wanted = vec![0; count * width];
        own.read(0, &mut wanted)?;
        let along = line(&WeightPart::whole(&form.weight, &form.dims), slice.axis);
        let dims = along.permuted();
        let all = form.dims.get(slice.axis).and_then(|dim| usize::try_from(*dim).ok());
        let mut there = vec![0; all.unwrap_or_default() * width];
        self.composed(&Composition::of(along), &dims)?.read(0, &mut there)?;
        let last = form.dims.get(slice.axis).copied().unwrap_or_default() - slice.len;
        let windows = (0..=last).zip(there.windows(wanted.len().max(1)).step_by(width));
        let equal = windows.filter(|(_, window)| *window == wanted).map(|(start, _)| start);
        Ok(equal.take(STARTS).collect())
    }
}

/// `part` with `axis` as the last one: its first elements are those along this axis.
fn line(part: &WeightPart, axis: usize) -> WeightPart {
    let others = (0..part.shape.len()).filter(|other| *other != axis);
    WeightPart { permutation: others.chain([axis]).collect(), ..part.clone() }
}
