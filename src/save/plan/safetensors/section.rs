//! The offsets of the entries in a safetensors file.
//!
//! The format allows no gap between tensors, and readers want them aligned. So tensors whose length
//! is a multiple of the alignment come first, which aligns them without padding. The remaining gaps
//! are filled by padding entries, or not at all: readers that compare the names in a file with
//! those of a model refuse entries that are not tensors. Without padding every tensor still begins
//! at a multiple of its element's width.

use std::collections::BTreeMap;
use std::ops::Range;

use super::entry::{PlannedEntry, TensorsLikePadding, plain_bytes};
use crate::buffer::Alignment;
use crate::buffers::Cursor;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::safetensors_header::{
    self as header, FORMAT, FORMAT_PT, Header, MAX_HEADER, MAX_KEYS, PADDING,
};
use crate::save::options::SaveOptions;
use crate::save::plan::layout::PlannedFile;

/// The settings that all files of one export share.
pub(super) struct Style<'o> {
    options: &'o SaveOptions,
    metadata: BTreeMap<String, String>,
    /// The prefix of the names of padding, which no tensor in any of the files has; `None` without
    /// padding.
    prefix: Option<String>,
}

impl<'o> Style<'o> {
    pub(super) fn new(
        taken: &TensorsLikePadding,
        metadata: &BTreeMap<String, String>,
        options: &'o SaveOptions,
        padding: bool,
    ) -> Self {
        let mut metadata = metadata.clone();
        metadata.entry(FORMAT.to_owned()).or_insert_with(|| FORMAT_PT.to_owned());
        Self { options, metadata, prefix: padding.then(|| taken.prefix()) }
    }

    /// The alignment of an entry of `len` bytes.
    fn alignment_of(&self, len: u64) -> Alignment {
        match self.prefix {
            Some(_) => self.options.alignment_of(len),
            None => Alignment::DENSE,
        }
    }
}

/// A file with its entries placed.
pub(super) struct LaidOut<'c> {
    pub(super) file: PlannedFile<'c>,
    /// The offset of each entry in the file.
    pub(super) ranges: Vec<Range<u64>>,
    /// The names of the padding entries.
    pub(super) padding: Vec<String>,
}

/// The file `name` with `entries`. Its padding entries are numbered from `first_padding` on.
pub(super) fn lay_out<'c>(
    name: String,
    entries: &[PlannedEntry<'c>],
    style: &Style<'_>,
    first_padding: usize,
) -> Result<LaidOut<'c>> {
    let mut section = Section::new(entries, style, first_padding);
    let mut order: Vec<_> = entries.iter().enumerate().collect();
    order.sort_by_key(|(_, entry)| section.rank(entry.len()));
    let mut placed = Vec::new();
    for (i, entry) in order {
        placed.push((i, section.push(entry)?, entry));
    }
    let (alignment, end) = (section.alignment(), section.cursor.end());
    let padding = std::mem::take(&mut section.padding);
    let header = plain_bytes(section.into_header(entries, &padding)?.to_bytes(alignment)?)?;
    let start = header.initializer.byte_len();
    let len = start.checked_add(end).filter(|len| i64::try_from(*len).is_ok());
    let len =
        len.ok_or_else(|| Error::new(ErrorKind::TooLarge, "more than 2^63 bytes of weights"))?;
    let data = placed.iter().filter_map(|(_, offset, entry)| entry.piece(start + offset));
    let pieces = std::iter::once(header).chain(data).collect();
    placed.sort_unstable_by_key(|(i, ..)| *i);
    let ranges = placed.iter().map(|(_, offset, entry)| {
        let first = start + offset;
        first..first + entry.len()
    });
    let ranges = ranges.collect();
    Ok(LaidOut { file: PlannedFile { name, len, pieces }, ranges, padding })
}

/// The data of one file, being laid out; offsets count from the first byte of data.
struct Section<'s> {
    style: &'s Style<'s>,
    /// Whether an entry is long enough for the greater alignment.
    large: bool,
    cursor: Cursor,
    entries: Vec<header::HeaderEntry>,
    first_padding: usize,
    padding: Vec<String>,
}

impl<'s> Section<'s> {
    fn new(entries: &[PlannedEntry<'_>], style: &'s Style<'s>, first_padding: usize) -> Self {
        let large = entries.iter().any(|entry| entry.len() > SaveOptions::LARGE);
        let (cursor, entries, padding) = (Cursor::default(), Vec::new(), Vec::new());
        Self { style, large, cursor, entries, first_padding, padding }
    }

    /// The alignment that the first byte of data needs.
    fn alignment(&self) -> Alignment {
        self.style.options.alignment_of(if self.large { u64::MAX } else { 0 })
    }

    /// The sort key of entries of `len` bytes. With padding, this order needs the least of it.
    /// Without padding, it aligns the most entries: the length with the greatest power of two as a
    /// factor comes first.
    fn rank(&self, len: u64) -> u32 {
        const PAGE_BITS: u32 = 12;
        if len == 0 {
            u32::MAX // at the end, where nothing has to be aligned after it
        } else if self.style.prefix.is_none() {
            PAGE_BITS - len.trailing_zeros().min(PAGE_BITS)
        } else if self.large && self.alignment().is_aligned(len) {
            0
        } else if len > SaveOptions::LARGE {
            1
        } else if self.style.options.alignment_of(0).is_aligned(len) {
            2
        } else {
            3
        }
    }

    /// Places `entry`, after padding where its alignment needs some.
    fn push(&mut self, entry: &PlannedEntry<'_>) -> Result<u64> {
        let (end, len) = (self.cursor.end(), entry.len());
        let offset = match len {
            0 => end,
            _ => self.cursor.place(len, self.style.alignment_of(len))?,
        };
        if offset > end {
            self.pad(end..offset)?;
        }
        let (dtype, dims) = entry.stored()?;
        let (name, range) = (entry.name.clone(), offset..self.cursor.end());
        self.entries.push(header::HeaderEntry { name, dtype, dims, range });
        Ok(offset)
    }

    fn pad(&mut self, range: Range<u64>) -> Result<()> {
        let prefix = self.style.prefix.as_ref();
        let prefix = prefix.ok_or_else(|| Error::internal("a gap in a file without padding"))?;
        let name = format!("{prefix}{}", self.first_padding + self.padding.len());
        let len = i64::try_from(range.end - range.start);
        let len = len.map_err(|_| Error::internal("2^63 bytes of padding"))?;
        let (dtype, dims) = (DataType::Uint8, vec![len]);
        self.padding.push(name.clone());
        self.entries.push(header::HeaderEntry { name, dtype, dims, range });
        Ok(())
    }

    fn into_header(self, entries: &[PlannedEntry<'_>], padding: &[String]) -> Result<Header> {
        check_ties(entries)?;
        let mut metadata = self.style.metadata.clone();
        if let Some(prefix) = self.style.prefix.as_ref().filter(|_| !padding.is_empty()) {
            metadata.insert(PADDING.to_owned(), prefix.clone());
        }
        for entry in entries {
            let tied = entry.tied.iter().map(|tied| (tied.clone(), entry.name.clone()));
            metadata.extend(tied);
        }
        check_count(metadata.len(), "metadata")?;
        Ok(Header { metadata, entries: self.entries })
    }
}

/// Refuses tied names that do not fit any header, before the name of their entry is repeated for
/// each.
fn check_ties(entries: &[PlannedEntry<'_>]) -> Result<()> {
    let lens = entries.iter().map(|entry| {
        let tied = entry.tied.iter().map(|tied| tied.len().saturating_add(entry.name.len()));
        tied.fold(0, usize::saturating_add)
    });
    if lens.fold(0, usize::saturating_add) > MAX_HEADER {
        let reason =
            format!("the names of tied tensors are longer than a header of {MAX_HEADER} bytes");
        return Err(Error::new(ErrorKind::TooLarge, reason));
    }
    Ok(())
}

/// Refuses to write more keys than this crate reads.
pub(super) fn check_count(keys: usize, what: &str) -> Result<()> {
    if keys <= MAX_KEYS {
        return Ok(());
    }
    let reason = format!("{what} of {keys} keys: {MAX_KEYS} are the most");
    Err(Error::new(ErrorKind::TooLarge, reason))
}
