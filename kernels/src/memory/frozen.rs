//! M after a run, which nothing writes to any more: values are ranges of it, and not copied out of
//! it.

use onnx_container_proto::Buffer;

use super::span::{Span, outside, to_usize};
use super::weights::Weights;
use crate::error::Result;

/// The arena and the weights as shared bytes.
#[derive(Debug)]
pub struct Frozen {
    /// The segments with their offsets, in their order.
    segments: Vec<(u64, Buffer)>,
    weights: Weights,
}

impl Frozen {
    /// The arena, as segments with their offsets in their order, and the weights.
    pub(super) fn new(segments: Vec<(u64, Buffer)>, weights: Weights) -> Self {
        Self { segments, weights }
    }

    /// The bytes of `span`, which keep all of their segment.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when it does not lie in M.
    pub(crate) fn slice(&self, span: Span) -> Result<Buffer> {
        if span.len == 0 {
            return Ok(Buffer::default());
        }
        if span.is_weight() {
            return self.weights.share(span);
        }
        let after = self.segments.partition_point(|(offset, _)| *offset <= span.offset);
        let found = after.checked_sub(1).and_then(|i| self.segments.get(i));
        let (offset, bytes) = found.ok_or_else(|| outside(span))?;
        let (from, to) = (to_usize(span.offset - offset)?, to_usize(span.end() - offset)?);
        bytes.slice(from..to).ok_or_else(|| outside(span))
    }
}
