//! The weights files: which bytes tensors have, which none has, and which several have.

use std::collections::BTreeMap;
use std::path::Path;

use onnx_container::external_data::Directory;
use onnx_container::{ErrorKind, Result};
use serde::Serialize;

use crate::options::ReportOptions;
use crate::rows::{Range, Row};
use crate::values::{Exact, exact, text};

/// The most gaps and overlaps of a file that are listed.
const MOST_LISTED: usize = 1000;

/// A weights file.
#[derive(Debug, Serialize)]
pub(crate) struct WeightsFile {
    /// As the model names it, in its one form.
    #[serde(serialize_with = "text")]
    pub(crate) location: String,
    /// Its length in bytes; `None` when it cannot be opened.
    bytes: Option<Exact>,
    /// Why it cannot be opened.
    reason: Option<Short>,
    /// Whether it is not there; otherwise one that cannot be opened is refused.
    is_missing: bool,
    /// How many tensors have their elements in it.
    tensors: usize,
    #[serde(flatten)]
    uses: Uses,
}

/// What the bytes of a file are used for.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Uses {
    /// The bytes that tensors have, each once.
    #[serde(serialize_with = "exact")]
    used: u64,
    /// Where the last tensor ends.
    #[serde(serialize_with = "exact")]
    end: u64,
    /// How many tensors have the same range as another one.
    sharing: usize,
    /// The bytes between tensors, before the first and after the last, in all.
    #[serde(serialize_with = "exact")]
    gap_bytes: u64,
    gap_count: usize,
    /// The largest of them.
    gaps: Vec<Part>,
    overlap_count: usize,
    /// Ranges that belong to tensors that do not have the same range.
    overlaps: Vec<Part>,
}

/// The first byte and the length of a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Part(#[serde(serialize_with = "exact")] u64, #[serde(serialize_with = "exact")] u64);

/// A text that is cut when it is written.
#[derive(Debug, Serialize)]
struct Short(#[serde(serialize_with = "text")] String);

/// The files of `rows`, in the order of their names.
pub(crate) fn files(
    rows: &[Row],
    model: &Path,
    options: &ReportOptions,
) -> Result<Vec<WeightsFile>> {
    let mut by_file: BTreeMap<&str, Vec<&Range>> = BTreeMap::new();
    for range in rows.iter().filter_map(|row| row.range.as_ref()) {
        by_file.entry(&range.file).or_default().push(range);
    }
    if by_file.is_empty() {
        return Ok(Vec::new());
    }
    let directory = Directory::of_model(model, options.paths)?;
    let file = |(location, ranges): (&str, Vec<&Range>)| {
        let (bytes, error) = match length(&directory, location) {
            Ok(bytes) => (Some(bytes), None),
            Err(error) => (None, Some(error)),
        };
        let parts = ranges.iter().map(|range| Part(range.offset, range.bytes)).collect();
        WeightsFile {
            location: location.to_owned(),
            bytes: bytes.map(|bytes| Exact(bytes.into())),
            is_missing: error.as_ref().is_some_and(|it| it.kind() == ErrorKind::MissingFile),
            reason: error.map(|error| Short(error.reason().to_owned())),
            tensors: ranges.len(),
            uses: Uses::of(parts, bytes),
        }
    };
    Ok(by_file.into_iter().map(file).collect())
}

fn length(directory: &Directory, location: &str) -> Result<u64> {
    let file = directory.open_file(location)?;
    let metadata = file.metadata();
    let failed = |error| onnx_container::Error::io(directory.join(location), error);
    Ok(metadata.map_err(failed)?.len())
}

impl Uses {
    /// What `parts` are of a file of so many bytes.
    fn of(mut parts: Vec<Part>, bytes: Option<u64>) -> Self {
        parts.retain(|part| part.1 > 0);
        parts.sort_by_key(|part| (part.0, part.1));
        let all = parts.len();
        parts.dedup();
        let mut uses = Self { sharing: all - parts.len(), ..Self::default() };
        for part in parts {
            uses.add(part);
        }
        if let Some(rest) = bytes.and_then(|bytes| bytes.checked_sub(uses.end)) {
            uses.add_gap(Part(uses.end, rest));
        }
        uses.gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.1), gap.0));
        uses.gaps.truncate(MOST_LISTED);
        uses
    }

    /// Adds the next part in the order of offsets.
    fn add(&mut self, Part(offset, bytes): Part) {
        let end = offset.saturating_add(bytes);
        match offset.checked_sub(self.end) {
            Some(gap) => self.add_gap(Part(self.end, gap)),
            None => self.add_overlap(Part(offset, self.end.min(end).saturating_sub(offset))),
        }
        self.used = self.used.saturating_add(end.saturating_sub(self.end.max(offset)));
        self.end = self.end.max(end);
    }

    fn add_gap(&mut self, gap: Part) {
        if gap.1 > 0 {
            self.gap_count += 1;
            self.gap_bytes = self.gap_bytes.saturating_add(gap.1);
            self.gaps.push(gap);
        }
    }

    fn add_overlap(&mut self, overlap: Part) {
        self.overlap_count += 1;
        if self.overlaps.len() < MOST_LISTED {
            self.overlaps.push(overlap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_used_once_or_several_times_or_not() {
        // Parts, the length of the file; used, gaps, overlaps, sharing.
        type Case<'c> =
            (&'c [(u64, u64)], Option<u64>, u64, &'c [(u64, u64)], &'c [(u64, u64)], usize);
        let cases: [Case<'_>; 8] = [
            (&[], Some(0), 0, &[], &[], 0),
            (&[(0, 4), (4, 4)], Some(8), 8, &[], &[], 0),
            (&[(8, 4), (0, 4)], Some(20), 8, &[(12, 8), (4, 4)], &[], 0),
            (&[(4, 4)], None, 4, &[(0, 4)], &[], 0),
            (&[(0, 4), (0, 4)], Some(4), 4, &[], &[], 1),
            (&[(0, 4), (2, 4)], Some(6), 6, &[], &[(2, 2)], 0),
            (&[(0, 8), (2, 2), (8, 0)], Some(8), 8, &[], &[(2, 2)], 0),
            (&[(u64::MAX - 1, 8)], None, 1, &[(0, u64::MAX - 1)], &[], 0),
        ];
        let parts = |all: &[(u64, u64)]| all.iter().map(|it| Part(it.0, it.1)).collect::<Vec<_>>();
        for (given, bytes, used, gaps, overlaps, sharing) in cases {
            let found = Uses::of(parts(given), bytes);
            assert_eq!(found.used, used, "{given:?}");
            assert_eq!((found.gaps, found.gap_count), (parts(gaps), gaps.len()), "{given:?}");
            assert_eq!(found.overlaps, parts(overlaps), "{given:?}");
            assert_eq!(found.sharing, sharing, "{given:?}");
        }
    }
}
