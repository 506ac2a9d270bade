//! What a step is granted: slices to read and slices to write, none of which overlaps one to write.

use super::span::{ALIGNMENT, Span, outside, slice, to_usize};
use super::{Granted, Memory};
use crate::error::{Error, Result};

impl Memory {
    /// The bytes of the ranges in `reads`, and those of `writes` to write to, in their order.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal) when a range does not lie in one piece
    /// of M, when one of `writes` is not aligned, is a weight, or overlaps another of `writes` or
    /// one of `reads`.
    pub fn borrow_step(&mut self, reads: &[Span], writes: &[Span]) -> Result<Granted<'_>> {
        let order = check_writes(reads, writes)?;
        order.iter().for_each(|(_, span)| self.renumber(*span));
        let mut written: Vec<&mut [u8]> = writes.iter().map(|_| <&mut [u8]>::default()).collect();
        let mut readable: Vec<(u64, &[u8])> = Vec::new();
        let mut order = order.into_iter().peekable();
        for segment in &mut self.segments {
            let (mut start, mut rest) = (segment.offset, &mut segment.bytes[..]);
            let end = start + rest.len() as u64;
            while let Some((i, span)) = order.next_if(|(_, span)| span.end() <= end) {
                let gap = to_usize(span.offset.checked_sub(start).ok_or_else(|| outside(span))?)?;
                let split = gap.checked_add(to_usize(span.len)?).filter(|len| *len <= rest.len());
                let (head, tail) = rest.split_at_mut(split.ok_or_else(|| outside(span))?);
                let (before, target) = head.split_at_mut(gap);
                readable.push((start, before));
                *written.get_mut(i).ok_or_else(|| outside(span))? = target;
                (start, rest) = (span.end(), tail);
            }
            readable.push((start, rest));
        }
        if let Some((_, span)) = order.next() {
            return Err(outside(span));
        }
        let weights = &self.weights;
        let read = |span: &Span| match *span {
            Span { len: 0, .. } => Ok(&[][..]),
            span if span.is_weight() => weights.read(span),
            span => {
                let after = readable.partition_point(|(offset, _)| *offset <= span.offset);
                let found = after.checked_sub(1).and_then(|i| readable.get(i));
                let (offset, bytes) = found.ok_or_else(|| outside(span))?;
                slice(bytes, span, *offset)
            }
        };
        Ok((reads.iter().map(read).collect::<Result<_>>()?, written))
    }
}

/// The ranges of `writes` that are not empty, by address, each with its index, after checking them.
fn check_writes(reads: &[Span], writes: &[Span]) -> Result<Vec<(usize, Span)>> {
    let mut order: Vec<_> = writes.iter().copied().enumerate().filter(|(_, s)| s.len > 0).collect();
    order.sort_by_key(|(_, span)| *span);
    for (i, (_, span)) in order.iter().enumerate() {
        let next = order.get(i + 1).is_some_and(|(_, next)| span.overlaps(*next));
        if next || reads.iter().any(|read| span.overlaps(*read)) {
            return Err(Error::internal("a range that is written overlaps another of its step"));
        }
        if span.is_weight() || span.offset % ALIGNMENT != 0 {
            return Err(Error::internal("a range that is written is a weight or not aligned"));
        }
    }
    Ok(order)
}
