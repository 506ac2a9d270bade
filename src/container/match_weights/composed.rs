//! A tensor that is composed of weights: read in pieces, from where the weights are.

use super::convert::{convert, width};
use super::mapping::{Composition, WeightPart};
use super::strided::Strided;
use crate::buffer::Alignment;
use crate::buffer::{Buffer, BufferMut};
use crate::buffers::in_memory;
use crate::dtype::{DataType, element_count};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;
use crate::tensor::source::WeightSource;

/// How many elements are in memory twice at a time.
const BLOCK: usize = 64 << 10;

/// A part of a weight.
#[derive(Clone)]
struct ComposedPart {
    weight: Initializer,
    order: Strided,
    /// How many of its elements come in a row before those of the next part.
    run: usize,
}

/// The elements of parts, as elements of one type.
#[derive(Clone)]
pub(super) struct Composed {
    parts: Vec<ComposedPart>,
    /// How many elements all parts have in a row.
    row: usize,
    dtype: DataType,
    width: usize,
    dims: Vec<i64>,
    len: u64,
}

fn wrong(reason: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, reason)
}

impl Composed {
    /// `composition` as a tensor of this type and these dimensions. `weight` has the weights by
    /// name.
    ///
    /// # Errors
    /// Those of `weight`; [`ErrorKind::Shape`] for a weight of other dimensions,
    /// [`ErrorKind::DataType`] for one that is not cast to this type,
    /// [`ErrorKind::InvalidArgument`] when the parts do not make up the tensor.
    pub(super) fn new<'w>(
        composition: &Composition,
        (dtype, dims): (DataType, &[i64]),
        mut weight: impl FnMut(&str) -> Result<&'w Initializer>,
    ) -> Result<Self> {
        let total = in_memory(element_count(dims)?)?;
        let outer = match composition.parts.len() {
            1 => 1,
            _ => rows(dims, composition.axis)?,
        };
        let mut parts = Vec::with_capacity(composition.parts.len());
        for part in &composition.parts {
            let weight = weight(&part.weight)?.clone();
            fits(part, &weight, dtype)?;
            let order = Strided::of(part)?;
            let run = order.count().checked_div(outer).unwrap_or_default();
            parts.push(ComposedPart { weight, order, run });
        }
        let row = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.run));
        let counts = parts.iter().map(|part| part.order.count());
        let found = counts.fold(0_usize, usize::saturating_add);
        if found != total || row.checked_mul(outer) != Some(total) {
            let reason = format!("its parts have {found} elements, {dims:?} needs {total}");
            return Err(wrong(reason));
        }
        let (dims, len) = (dims.to_vec(), dtype.byte_len(dims)?);
        Ok(Self { parts, row, dtype, width: width(dtype)?, dims, len })
    }

    /// The weight itself, where it is one whole weight in its order and of its type; else what
    /// reads it.
    pub(super) fn initializer(self) -> Result<Initializer> {
        if let [part] = self.parts.as_slice()
            && part.order.is_whole()
            && part.weight.dtype() == self.dtype
        {
            return match part.weight.dims() == self.dims {
                true => Ok(part.weight.clone()),
                false => part.weight.retyped(self.dtype, &self.dims),
            };
        }
        Initializer::from_source(self)
    }

    /// Fills `out` with whole elements, from number `first` on.
    pub(super) fn read(&self, mut first: usize, mut out: &mut [u8]) -> Result<()> {
        let beyond = || Error::internal("elements are beyond the end of a tensor");
        while !out.is_empty() {
            let row = first.checked_div(self.row).ok_or_else(beyond)?;
            let mut within = first % self.row;
            let mut number = 0;
            let part = loop {
                let part = self.parts.get(number).ok_or_else(beyond)?;
                match within.checked_sub(part.run) {
                    Some(rest) => within = rest,
                    None => break part,
                }
                number += 1;
            };
            let count = match self.parts.len() {
                1 => out.len() / self.width,
                _ => (part.run - within).min(out.len() / self.width),
            };
            let (now, later) = out.split_at_mut_checked(count * self.width).ok_or_else(beyond)?;
            part.read(row * part.run + within, (self.dtype, self.width), now)?;
            (first, out) = (first + count, later);
        }
        Ok(())
    }

    /// With the bytes of each weight that is made when it is read, and read in another order, in
    /// memory.
    pub(super) fn resident(&self) -> Result<Self> {
        let mut resident = self.clone();
        for part in resident.parts.iter_mut().filter(|part| part.is_lazy()) {
            let weight = &part.weight;
            part.weight = Tensor::new(weight.dtype(), weight.dims(), weight.to_buffer()?)?.into();
        }
        Ok(resident)
    }
}

/// The product of the dimensions before `axis`.
fn rows(dims: &[i64], axis: usize) -> Result<usize> {
    let before = dims.get(..axis).filter(|_| axis < dims.len());
    let before = before.ok_or_else(|| wrong(format!("{dims:?} have no axis {axis}")))?;
    in_memory(element_count(before)?)
}

/// Checks that `weight` is the one that `part` speaks of.
fn fits(part: &WeightPart, weight: &Initializer, dtype: DataType) -> Result<()> {
    if weight.dims() != part.dims {
        let reason = format!(
            "weights `{}` have the shape {:?}, those that were matched {:?}",
            part.weight,
            weight.dims(),
            part.dims
        );
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    if !super::convert::is_cast(weight.dtype(), dtype) {
        let reason =
            format!("weights `{}` are {}, the model declares {dtype}", part.weight, weight.dtype());
        return Err(Error::new(ErrorKind::DataType, reason));
    }
    Ok(())
}

impl ComposedPart {
    fn is_lazy(&self) -> bool {
        let in_order = self.order.run().is_some();
        self.weight.as_buffer().is_none() && (!in_order || self.weight.is_lazy())
    }

    fn read(&self, first: usize, (to, to_width): (DataType, usize), out: &mut [u8]) -> Result<()> {
        let from = self.weight.dtype();
        if from == to {
            return self.read_own(first, to_width, out);
        }
        let own = width(from)?;
        let mut input = vec![0; BLOCK.min(out.len() / to_width) * own];
        for (block, out) in out.chunks_mut(BLOCK * to_width).enumerate() {
            let input = input.get_mut(..out.len() / to_width * own);
            let input = input.ok_or_else(|| Error::internal("a block is too short"))?;
            self.read_own(first + block * BLOCK, own, input)?;
            convert(from, to, input, out)?;
        }
        Ok(())
    }

    /// Reads elements of the weight's own type.
    fn read_own(&self, first: usize, width: usize, out: &mut [u8]) -> Result<()> {
        match (self.weight.as_buffer(), self.order.run()) {
            (Some(bytes), _) => self.order.read(&bytes, width, first, out),
            (None, Some(start)) => {
                let first = start as u64 + first as u64;
                self.weight.read_at(first * width as u64, out)
            }
            (None, None) => self.order.read(&self.weight.to_buffer()?, width, first, out),
        }
    }
}

impl WeightSource for Composed {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.len
    }

    /// Lazy where a weight is made as a whole, so that it is made once and not for each piece.
    fn is_lazy(&self) -> bool {
        self.parts.iter().any(ComposedPart::is_lazy)
    }

    fn to_buffer(&self) -> Result<Buffer> {
        let len = in_memory(self.len)?;
        let mut out = BufferMut::zeroed(len, Alignment::CACHE_LINE)?;
        self.resident()?.read(0, &mut out)?;
        Ok(out.freeze())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let offset = in_memory(offset)?;
        let (mut first, mut skip) = (offset / self.width, offset % self.width);
        if skip == 0 && out.len().is_multiple_of(self.width) {
            return self.read(first, out);
        }
        // A read may begin and end within an element.
        let (mut block, mut out) = (Vec::new(), out);
        while !out.is_empty() {
            let count = (skip + out.len()).div_ceil(self.width).min(BLOCK);
            block.resize(count * self.width, 0);
            self.read(first, &mut block)?;
            let part = block.get(skip..).unwrap_or_default();
            let (now, later) = out.split_at_mut(part.len().min(out.len()));
            now.iter_mut().zip(part).for_each(|(out, byte)| *out = *byte);
            (first, skip, out) = (first + count, 0, later);
        }
        Ok(())
    }
}
