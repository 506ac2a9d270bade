//! Decides whether the bytes of a decoded message are slices of the input or copies.
//!
//! A message that is decoded without copies keeps its whole input alive. With
//! [`DecodeOptions::no_copy`]`(false)` nothing refers to the input afterwards: a tensor's
//! `raw_data` gets memory that is freed with the tensor, and the many short strings share copies of
//! longer stretches of the input, because an allocation for each would cost more than the strings.

use std::ops::Range;

use super::DecodeOptions;
use crate::buffer::Buffer;
use crate::buffer::alignment::Alignment;
use crate::error::{Error, ErrorKind, Result};

/// When bytes are copied out of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copying {
    Always,
    /// Only if the bytes do not have the requested alignment.
    WhereUnaligned,
    Never,
}

impl DecodeOptions {
    /// Whether each tensor gets memory of its own.
    #[doc(hidden)]
    pub fn copies_all(&self) -> bool {
        self.copying == Copying::Always
    }

    /// The bytes of one tensor, copied if these options require it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the bytes must be aligned but must not be copied; those of
    /// [`BufferMut::zeroed`](crate::BufferMut::zeroed).
    #[doc(hidden)]
    pub fn place(&self, bytes: Buffer) -> Result<Buffer> {
        let alignment = self.buffers.alignment_or_dense();
        let fits = bytes.is_empty()
            || !self.buffers.concerns(bytes.len())
            || alignment.is_aligned(bytes.as_ptr().addr() as u64);
        match self.copying {
            Copying::Always => own_copy(&bytes, alignment),
            _ if fits => Ok(bytes),
            Copying::WhereUnaligned => own_copy(&bytes, alignment),
            Copying::Never => {
                let reason = format!(
                    "the bytes are not aligned to {} and must not be copied (no_copy)",
                    alignment.bytes()
                );
                Err(Error::new(ErrorKind::Unsupported, reason))
            }
        }
    }
}

/// A copy in separate memory, aligned at least for every element type.
fn own_copy(bytes: &Buffer, alignment: Alignment) -> Result<Buffer> {
    if bytes.is_empty() {
        return Ok(Buffer::default());
    }
    Ok(bytes.copied_to(alignment.max(Alignment::CACHE_LINE))?.freeze())
}

/// How much of the input is copied at a time for strings and other short values.
const STRETCH: usize = 16 << 10;

/// Places the values of a message while it is read.
#[derive(Debug, Clone)]
pub(super) struct Placing {
    options: DecodeOptions,
    /// The last stretch that was copied, and where in the input it starts.
    stretch: Buffer,
    start: usize,
}

impl Placing {
    /// `None` if no value has to be copied.
    pub(super) fn new(options: &DecodeOptions) -> Option<Box<Self>> {
        let wanted = options.copying == Copying::Always || options.buffers.alignment.is_some();
        let new = || Self { options: options.clone(), stretch: Buffer::default(), start: 0 };
        wanted.then(|| Box::new(new()))
    }

    /// The bytes in `range` of `input`; `raw_data` tells whether they are those of a tensor. `None`
    /// if the range is not inside the input.
    ///
    /// # Errors
    /// Those of [`DecodeOptions::place`].
    pub(super) fn take(
        &mut self,
        input: &Buffer,
        range: Range<usize>,
        raw_data: bool,
    ) -> Result<Option<Buffer>> {
        let Some(bytes) = input.slice(range.clone()) else { return Ok(None) };
        if raw_data && self.options.buffers.concerns(bytes.span()) {
            return self.options.place(bytes).map(Some);
        }
        match self.options.copying {
            Copying::Always if bytes.span() >= STRETCH => {
                own_copy(&bytes, Alignment::CACHE_LINE).map(Some)
            }
            Copying::Always => Ok(self.in_stretch(input, &range)),
            Copying::WhereUnaligned | Copying::Never => Ok(Some(bytes)),
        }
    }

    /// A slice of a copied stretch of the input.
    fn in_stretch(&mut self, input: &Buffer, range: &Range<usize>) -> Option<Buffer> {
        if let Some(bytes) = self.copied(range) {
            return Some(bytes);
        }
        let end = input.span().min(range.start.checked_add(STRETCH)?);
        self.stretch = Buffer::from(input.get(range.start..end)?);
        self.start = range.start;
        self.copied(range)
    }

    fn copied(&self, range: &Range<usize>) -> Option<Buffer> {
        let start = range.start.checked_sub(self.start)?;
        self.stretch.slice(start..start.checked_add(range.len())?)
    }
}
