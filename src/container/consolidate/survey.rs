//! Finds the tensors of a model that take part in a consolidation, and the holders of their bytes.
//!
//! The walk over the model is done once, and changes nothing.

use std::collections::HashSet;
use std::mem;

use super::options::ConsolidateOptions;
use crate::buffer::Buffer;
use crate::buffers::in_memory;
use crate::container::{Handle, Initializers};
use crate::dtype::DataType;
use crate::error::{Errors, Result};
use crate::files::external_data::{ExternalData, is_external};
use crate::graph::traversal::{self, Position};
use crate::proto::{ModelProto, TensorProto};
use crate::tensor::Tensor;
use crate::tensor::initializer::Initializer;

/// What holds the bytes of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// The tensor at this position in graph order.
    Inline(Position),
    Handle(Handle),
}

/// Where the bytes of a tensor come from.
#[derive(Debug)]
pub(super) enum TensorSource {
    Bytes(Buffer),
    /// A typed field: a message of the elements alone, empty until they are taken out of the model.
    Typed(Box<TensorProto>),
    /// An initializer whose bytes are not in memory and must be read.
    Read(Initializer),
    /// No source: the bytes are in the new memory.
    Moved,
}

/// A tensor that takes part.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) holder: Holder,
    pub(super) source: TensorSource,
    /// Its length in bytes.
    pub(super) len: usize,
}

/// The tensors that take part, in graph order.
pub(super) struct Survey<'a> {
    options: &'a ConsolidateOptions,
    initializers: &'a Initializers,
    pub(super) members: Vec<Member>,
    /// The handles that were met.
    seen: HashSet<&'a Handle>,
    /// The bytes of tensors that are below the threshold.
    small: Vec<Buffer>,
    errors: Errors,
}

impl<'a> Survey<'a> {
    pub(super) fn of(
        model: &ModelProto,
        initializers: &'a Initializers,
        options: &'a ConsolidateOptions,
    ) -> Result<Self> {
        let (members, seen) = (Vec::new(), HashSet::new());
        let (small, errors) = (Vec::new(), Errors::default());
        let mut survey = Self { options, initializers, members, seen, small, errors };
        for (place, tensor) in traversal::iter(model) {
            let added = match is_external(tensor) {
                true => survey.external(tensor),
                false => survey.inline(place.position, tensor),
            };
            survey.errors.extend(added.err().map(|e| e.with_tensor(place.qualified_name(tensor))));
        }
        match mem::take(&mut survey.errors).join() {
            Some(error) => Err(error),
            None => Ok(survey),
        }
    }

    fn external(&mut self, tensor: &TensorProto) -> Result<()> {
        // Invalid and missing entries are reported by `check`, not here.
        let Ok(entry) = ExternalData::parse(tensor) else { return Ok(()) };
        let found = self.initializers.get_key_value(entry.location.as_str());
        let Some((handle, initializer)) = found else { return Ok(()) };
        if initializer.dtype() == DataType::String || !self.seen.insert(handle) {
            return Ok(());
        }
        let len = in_memory(initializer.byte_len())?;
        let source = match initializer.as_buffer() {
            Some(bytes) => TensorSource::Bytes(bytes),
            None => TensorSource::Read(initializer.clone()),
        };
        self.add(Holder::Handle(handle.clone()), source, len);
        Ok(())
    }

    fn inline(&mut self, position: Position, tensor: &TensorProto) -> Result<()> {
        if tensor.data_type == Some(DataType::String.number()) {
            return Ok(());
        }
        let holder = Holder::Inline(position);
        match tensor.raw_data.as_ref().filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => self.add(holder, TensorSource::Bytes(bytes.clone()), bytes.len()),
            None if self.options.typed_fields => {
                // Converted to see that it is valid, and dropped: keeping all would need too much
                // memory.
                let len = Tensor::try_from(tensor)?.byte_len();
                self.add(holder, TensorSource::Typed(Box::default()), len);
            }
            None => {}
        }
        Ok(())
    }

    fn add(&mut self, holder: Holder, source: TensorSource, len: usize) {
        if len > 0 && self.options.buffers.concerns(len) {
            self.members.push(Member { holder, source, len });
        } else if let TensorSource::Bytes(bytes) = source {
            self.small.push(bytes);
        }
    }

    /// The buffer that already holds all members, aligned, when tensors of the model extend from
    /// its first byte to its last.
    pub(super) fn consolidated(&self) -> Option<Buffer> {
        let TensorSource::Bytes(first) = &self.members.first()?.source else { return None };
        let whole = first.whole_allocation()?;
        let alignment = self.options.buffers.alignment_or_dense();
        let aligned = |bytes: &Buffer| alignment.is_aligned(bytes.as_ptr().addr() as u64);
        let inside = |member: &Member| match &member.source {
            TensorSource::Bytes(bytes) => bytes.same_owner(&whole) && aligned(bytes),
            _ => false,
        };
        if !aligned(&whole) || !self.members.iter().all(inside) {
            return None;
        }
        let large = self.members.iter().filter_map(|member| match &member.source {
            TensorSource::Bytes(bytes) => Some(bytes),
            _ => None,
        });
        let small = self.small.iter().filter(|bytes| !bytes.is_empty() && bytes.same_owner(&whole));
        let ranges: Vec<_> = large.chain(small).map(|bytes| bytes.as_ptr_range()).collect();
        let start = ranges.iter().map(|range| range.start).min()?;
        let end = ranges.iter().map(|range| range.end).max()?;
        ((start..end) == whole.as_ptr_range()).then_some(whole)
    }
}
