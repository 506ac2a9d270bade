//! The bytes of one tensor, in pieces, wherever they are: what goes through all weights once asks
//! for them here.
//!
//! What is in memory or mapped is lent. What is in another source is read into memory of its own,
//! one piece at a time. What has no bytes before it is asked for, elements in typed fields or those
//! of a closure, is one piece.

use std::ops::Range;

use crate::buffer::{Buffer, BufferMut};
use crate::buffers::in_memory;
use crate::container::Container;
use crate::dtype::{DataType, element_count};
use crate::error::{Error, Result};
use crate::files::external_data::{is_external, refuse_unknown_keys};
use crate::files::overlaps;
use crate::proto::TensorProto;
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;

/// The bytes of one tensor that has no strings.
#[derive(Debug)]
pub(crate) struct Pieces<'c> {
    place: Place<'c>,
    dtype: DataType,
    /// The number of elements.
    elements: u64,
    /// The number of bytes.
    len: u64,
}

#[derive(Debug)]
enum Place<'c> {
    /// In memory, or mapped.
    Here(Buffer),
    /// In a source that reads them in parts.
    Parts(&'c Initializer),
    /// Made all at once.
    Whole(&'c Container, &'c TensorProto),
}

impl<'c> Pieces<'c> {
    /// Those of `proto`, a tensor of `container`. Nothing is read.
    ///
    /// # Errors
    /// Those of [`Container::resolve`] for the message.
    pub(crate) fn of(container: &'c Container, proto: &'c TensorProto) -> Result<Self> {
        let dtype = DataType::try_from(proto.data_type.unwrap_or_default())?;
        let len = dtype.byte_len(&proto.dims)?;
        let place = place(container, proto)?;
        if let Place::Here(bytes) = &place
            && bytes.span() as u64 != len
        {
            return Err(Error::internal("a tensor was resolved with another length"));
        }
        Ok(Self { place, dtype, elements: element_count(&proto.dims)?, len })
    }

    /// Those of `tensor`, which has these `bytes`.
    pub(crate) fn of_tensor(tensor: &Tensor, bytes: &Buffer) -> Self {
        let place = Place::Here(bytes.clone());
        let elements = tensor.element_count() as u64;
        Self { place, dtype: tensor.dtype(), elements, len: bytes.span() as u64 }
    }

    /// The element type.
    pub(crate) fn dtype(&self) -> DataType {
        self.dtype
    }

    /// The bytes, where they are in memory or mapped.
    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        match &self.place {
            Place::Here(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number of elements.
    pub(crate) fn elements(&self) -> u64 {
        self.elements
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The ranges to ask for: of `size` bytes each, except the last; or all at once.
    pub(crate) fn ranges(&self, size: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let (len, size) = match self.place {
            Place::Whole(..) => (self.len, self.len.max(1)),
            _ => (self.len, size.max(1)),
        };
        let starts = (0..len.div_ceil(size)).map(move |number| number.saturating_mul(size));
        starts.map(move |start| start..start.saturating_add(size).min(len))
    }

    /// What tells whether two tensors have the same bytes without reading them: the source, the
    /// first byte there, and the length. `None` where it cannot be told.
    pub(crate) fn range(&self) -> Option<overlaps::Range> {
        match &self.place {
            Place::Here(bytes) if self.len > 0 => {
                Some((None, bytes.as_ptr().addr() as u64, self.len))
            }
            Place::Parts(initializer) => {
                let (source, start) = initializer.address()?.parts();
                Some((source, start, self.len))
            }
            _ => None,
        }
    }

    /// The bytes `range`, which is one of [`ranges`](Self::ranges), as a tensor of one dimension.
    ///
    /// # Errors
    /// Those of the source.
    pub(crate) fn piece(&self, range: &Range<u64>) -> Result<Tensor> {
        let beyond = || Error::internal("a piece beyond its tensor");
        let bytes = match &self.place {
            Place::Here(bytes) => {
                let span = in_memory(range.start)?..in_memory(range.end)?;
                bytes.slice(span).ok_or_else(beyond)?
            }
            Place::Parts(initializer) => {
                let len = in_memory(range.end.checked_sub(range.start).ok_or_else(beyond)?)?;
                let mut part = BufferMut::zeroed(len, crate::Alignment::CACHE_LINE)?;
                initializer.read_at(range.start, &mut part)?;
                part.freeze()
            }
            Place::Whole(container, proto) => {
                let tensor = container.resolve(proto)?;
                tensor.buffer().ok_or_else(beyond)?.clone()
            }
        };
        Tensor::new(self.dtype, [self.elements_in(range)?], bytes)
    }

    /// The number of elements in `range`.
    fn elements_in(&self, range: &Range<u64>) -> Result<i64> {
        let bits = self.dtype.bit_width().map_or(8, u64::from);
        let at = |byte: u64| match byte == self.len {
            true => self.elements,
            false => byte.saturating_mul(8) / bits,
        };
        let before = if range.start == 0 { 0 } else { at(range.start) };
        let elements = i64::try_from(at(range.end).saturating_sub(before));
        elements.map_err(|_| Error::internal("more elements than bits"))
    }
}

fn place<'c>(container: &'c Container, proto: &'c TensorProto) -> Result<Place<'c>> {
    if is_external(proto) {
        refuse_unknown_keys(proto)?;
        let (_, initializer) = container.initializer_of(proto)?;
        return Ok(match initializer.as_buffer() {
            Some(bytes) => Place::Here(bytes),
            None if initializer.is_lazy() => Place::Whole(container, proto),
            None => Place::Parts(initializer),
        });
    }
    if proto.raw_data.as_ref().is_none_or(|raw| raw.is_empty()) {
        return Ok(Place::Whole(container, proto));
    }
    let tensor = Tensor::try_from(proto)?;
    let whole = Place::Whole(container, proto);
    Ok(tensor.buffer().map_or(whole, |bytes| Place::Here(bytes.clone())))
}
