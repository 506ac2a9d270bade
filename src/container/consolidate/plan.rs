//! Plans the place of each tensor in the new memory, and moves the bytes.
//!
//! A tensor whose bytes are part of another's is moved with the other. Bytes are taken out of the
//! model before they are moved, so that only the plan holds them and each source can be freed as
//! soon as it is copied. After an error every holder gets its old bytes back.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::mem;

use super::survey::{Holder, Member, TensorSource};
use crate::buffer::Alignment;
use crate::buffer::Buffer;
use crate::buffers::{Cursor, in_memory};
use crate::container::{Handle, Initializers};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::traversal;
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::Tensor;
use crate::util::cancel;

/// The type and shape of an initializer.
type Shape = (DataType, Vec<i64>);

/// Where the bytes of a member go in the new memory.
#[derive(Debug, Clone, Copy)]
struct Destination {
    offset: usize,
    /// The member whose bytes contain those of this one, which is therefore not moved itself.
    enclosing: Option<Enclosing>,
}

/// A member whose bytes contain those of another.
#[derive(Debug, Clone, Copy)]
struct Enclosing {
    index: usize,
    /// The offset in this member's bytes at which those of the other begin.
    start: usize,
}

/// For every member the one that contains its bytes, if any. A part that would not be aligned
/// inside the enclosing member gets a destination of its own, which all members with the same bytes
/// share.
fn enclosing_members(members: &[Member], alignment: Alignment) -> Vec<Option<Enclosing>> {
    let range = |(index, member): (usize, &Member)| match &member.source {
        TensorSource::Bytes(bytes) => Some((bytes.as_ptr().addr(), Reverse(member.len), index)),
        _ => None,
    };
    let mut ranges: Vec<_> = members.iter().enumerate().filter_map(range).collect();
    // Each range comes after those that contain it; equal ranges are in graph order.
    ranges.sort_unstable();
    let mut enclosing = read_once(members);
    // The address, end and index of the member with the highest end, and of the last one placed.
    let (mut outer, mut last) = (None, None);
    for (address, Reverse(len), index) in ranges {
        let end = address.saturating_add(len);
        let fits_in = |range: &(usize, usize, usize)| {
            let (start, range_end, _) = *range;
            end <= range_end && alignment.is_aligned((address - start) as u64)
        };
        let is_same = |range: &(usize, usize, usize)| (range.0, range.1) == (address, end);
        match outer.filter(fits_in).or(last.filter(is_same)) {
            Some((start, _, containing)) => {
                let found = Enclosing { index: containing, start: address - start };
                if let Some(slot) = enclosing.get_mut(index) {
                    *slot = Some(found);
                }
            }
            None => {
                last = Some((address, end, index));
                if outer.is_none_or(|(_, reach, _)| end > reach) {
                    outer = last;
                }
            }
        }
    }
    enclosing
}

/// For every member whose bytes must be read, the first member that reads the same source.
fn read_once(members: &[Member]) -> Vec<Option<Enclosing>> {
    let mut first = HashMap::new();
    let reader = |(index, member): (usize, &Member)| {
        let TensorSource::Read(initializer) = &member.source else { return None };
        let leader = *first.entry((initializer.address()?, member.len)).or_insert(index);
        (leader != index).then_some(Enclosing { index: leader, start: 0 })
    };
    members.iter().enumerate().map(reader).collect()
}

/// The members with their destinations.
pub(super) struct Plan {
    members: Vec<Member>,
    destinations: Vec<Destination>,
    /// The length of the memory.
    pub(super) len: usize,
}

impl Plan {
    pub(super) fn new(mut members: Vec<Member>, alignment: Alignment) -> Result<Self> {
        let enclosing = enclosing_members(&members, alignment);
        let mut cursor = Cursor::default();
        let mut offsets = Vec::with_capacity(members.len());
        for (member, enclosing) in members.iter_mut().zip(&enclosing) {
            let offset = match enclosing {
                None => cursor.place(member.len as u64, alignment)?,
                Some(_) => 0,
            };
            offsets.push(in_memory(offset)?);
            if enclosing.is_some() {
                // The enclosing member has these bytes; a second reference to them would keep them
                // from being freed.
                member.source = TensorSource::Moved;
            }
        }
        let inside = |outer: Enclosing| offsets.get(outer.index)?.checked_add(outer.start);
        let destination = |(own, enclosing): (&usize, Option<Enclosing>)| {
            let offset = enclosing.map_or(Some(*own), inside);
            let offset = offset.ok_or_else(|| Error::internal("a tensor has no place"))?;
            Ok(Destination { offset, enclosing })
        };
        let destinations = offsets.iter().zip(enclosing).map(destination).collect::<Result<_>>()?;
        let len = in_memory(cursor.end())?;
        Ok(Self { members, destinations, len })
    }

    /// How many bytes are read or moved.
    pub(super) fn bytes(&self) -> u64 {
        let here =
            self.members.iter().filter(|member| !matches!(member.source, TensorSource::Moved));
        here.map(|member| member.len as u64).sum()
    }

    /// Reads the sources that are not in memory. The model is not changed yet.
    pub(super) fn read(&mut self, memory: &mut [u8]) -> Result<()> {
        for (member, destination) in self.members.iter_mut().zip(&self.destinations) {
            let (TensorSource::Read(initializer), Holder::Handle(handle)) =
                (&member.source, &member.holder)
            else {
                continue;
            };
            let read = initializer.read_into(place_in(memory, destination.offset, member.len)?);
            read.map_err(|error| error.with_tensor(handle.as_str()))?;
            member.source = TensorSource::Moved;
            cancel::advance(member.len as u64)?;
        }
        Ok(())
    }

    /// Takes the bytes out of all holders, and returns the shapes of initializers.
    pub(super) fn take_out(
        &mut self,
        model: &mut ModelProto,
        initializers: &mut Initializers,
    ) -> HashMap<Handle, Shape> {
        let mut inline = HashMap::new();
        let mut shapes = HashMap::new();
        for member in &mut self.members {
            match &member.holder {
                Holder::Inline(position) => {
                    inline.insert(*position, &mut member.source);
                }
                Holder::Handle(handle) => {
                    let taken = initializers.remove(handle);
                    let shape = taken.map(|taken| (taken.dtype(), taken.dims().to_vec()));
                    shapes.extend(shape.map(|shape| (handle.clone(), shape)));
                }
            }
        }
        for (place, tensor) in traversal::iter_mut(model) {
            match inline.remove(&place.position) {
                Some(TensorSource::Typed(elements)) => **elements = take_elements(tensor),
                Some(_) => tensor.raw_data = None,
                None => {}
            }
        }
        shapes
    }

    /// Moves the bytes of all other members, and frees each source as soon as it is copied. After
    /// an error, members that were not moved still have their source.
    pub(super) fn move_bytes(&mut self, memory: &mut [u8]) -> Result<()> {
        for (member, destination) in self.members.iter_mut().zip(&self.destinations) {
            let mut fill = |bytes: &[u8]| fill(memory, destination.offset, member.len, bytes);
            match &member.source {
                TensorSource::Bytes(bytes) => fill(bytes)?,
                TensorSource::Typed(elements) => {
                    let tensor = Tensor::try_from(&**elements)?;
                    let bytes = tensor.as_bytes();
                    fill(bytes.ok_or_else(|| Error::internal("strings among typed numbers"))?)?;
                }
                TensorSource::Read(_) => {
                    return Err(Error::internal("an initializer was not read"));
                }
                TensorSource::Moved => continue,
            }
            member.source = TensorSource::Moved;
            cancel::advance(member.len as u64)?;
        }
        Ok(())
    }

    /// Gives every holder its bytes: those in `buffer`, or the old ones where they were not moved.
    pub(super) fn put_back(
        self,
        buffer: &Buffer,
        model: &mut ModelProto,
        initializers: &mut Initializers,
        mut shapes: HashMap<Handle, Shape>,
    ) -> Result<()> {
        let mut inline = HashMap::new();
        for (member, destination) in self.members.iter().zip(&self.destinations) {
            let placed = self.placed(member, destination, buffer)?;
            match (&member.holder, placed) {
                (Holder::Inline(position), placed) => {
                    inline.insert(*position, placed);
                }
                (Holder::Handle(handle), Placed::Bytes(bytes)) => {
                    let shape = shapes.remove(handle);
                    let gone = || Error::internal("an initializer is gone");
                    let (dtype, dims) = shape.ok_or_else(gone)?;
                    initializers.insert(handle.clone(), Tensor::new(dtype, dims, bytes)?.into());
                }
                (Holder::Handle(_), Placed::Typed(_)) => {
                    return Err(Error::internal("an initializer with typed fields"));
                }
            }
        }
        for (place, tensor) in traversal::iter_mut(model) {
            match inline.remove(&place.position) {
                Some(Placed::Bytes(bytes)) => tensor.raw_data = Some(bytes),
                Some(Placed::Typed(elements)) => give_elements(*elements, tensor),
                None => {}
            }
        }
        Ok(())
    }

    /// The bytes or elements for the holder of `member`.
    fn placed(
        &self,
        member: &Member,
        destination: &Destination,
        buffer: &Buffer,
    ) -> Result<Placed> {
        let outer = |enclosing: Enclosing| {
            let member = self.members.get(enclosing.index)?;
            Some((&member.source, enclosing.start))
        };
        let enclosing = destination.enclosing.and_then(outer);
        let (source, start) = enclosing.unwrap_or((&member.source, 0));
        let slice =
            |whole: &Buffer, start: usize| whole.slice(start..start.checked_add(member.len)?);
        let bytes = match source {
            TensorSource::Moved => slice(buffer, destination.offset),
            TensorSource::Bytes(bytes) => slice(bytes, start),
            TensorSource::Typed(elements) => return Ok(Placed::Typed(elements.clone())),
            TensorSource::Read(_) => None,
        };
        bytes.map(Placed::Bytes).ok_or_else(|| Error::internal("a tensor has lost its bytes"))
    }
}

/// The bytes or elements that a tensor gets at the end.
enum Placed {
    Bytes(Buffer),
    Typed(Box<TensorProto>),
}

/// Copies `bytes` to `offset` in the memory, after a check that there are still `len` of them.
fn fill(memory: &mut [u8], offset: usize, len: usize, bytes: &[u8]) -> Result<()> {
    if bytes.len() != len {
        let reason = format!("an owner lent {len} bytes, of which {} are left", bytes.len());
        return Err(Error::new(ErrorKind::OutOfBounds, reason));
    }
    place_in(memory, offset, len)?.copy_from_slice(bytes);
    Ok(())
}

fn place_in(memory: &mut [u8], offset: usize, len: usize) -> Result<&mut [u8]> {
    let place = offset.checked_add(len).and_then(|end| memory.get_mut(offset..end));
    place.ok_or_else(|| Error::internal("a tensor is placed beyond the end of the new memory"))
}

/// Moves the elements of `tensor` to a message of their own.
fn take_elements(tensor: &mut TensorProto) -> TensorProto {
    let mut elements = TensorProto::default();
    elements.dims.clone_from(&tensor.dims);
    elements.data_type = tensor.data_type;
    elements.float_data = mem::take(&mut tensor.float_data);
    elements.int32_data = mem::take(&mut tensor.int32_data);
    elements.int64_data = mem::take(&mut tensor.int64_data);
    elements.double_data = mem::take(&mut tensor.double_data);
    elements.uint64_data = mem::take(&mut tensor.uint64_data);
    elements
}

/// Gives `tensor` its elements back.
fn give_elements(elements: TensorProto, tensor: &mut TensorProto) {
    let TensorProto { float_data, int32_data, int64_data, double_data, uint64_data, .. } = elements;
    (tensor.float_data, tensor.int32_data, tensor.int64_data) =
        (float_data, int32_data, int64_data);
    (tensor.double_data, tensor.uint64_data) = (double_data, uint64_data);
}
