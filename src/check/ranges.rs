//! How the tensors of a model use the bytes of a weights file: overlaps, and bytes that none uses.

use std::ops::Range;
use std::path::PathBuf;

use super::finding::{Finding, Findings, Severity};
use super::other_models::OtherModels;
use crate::error::{Error, ErrorKind, Result};

/// A weights file and what of it is used.
#[derive(Debug)]
pub(super) struct UsedFile {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    /// The byte ranges of its tensors, cut at the end of the file.
    pub(super) used: Vec<Range<u64>>,
}

impl UsedFile {
    /// The bytes between and behind the ranges, once these are sorted.
    pub(super) fn unused(&self) -> Vec<Range<u64>> {
        let (mut unused, mut end) = (Vec::new(), 0);
        for range in self.used.iter().cloned().chain(std::iter::once(self.len..self.len)) {
            if range.start > end {
                unused.push(end..range.start);
            }
            end = end.max(range.end);
        }
        unused
    }

    /// Sorts the ranges, and finds those that share some bytes. One inside another is how views of
    /// a tensor are stored; ranges that only cross are a sign of a broken file.
    pub(super) fn overlaps(&mut self, findings: &mut Findings) {
        self.sort();
        let mut last: Option<&Range<u64>> = None;
        for range in &self.used {
            match last {
                Some(before) if range.start < before.end => {
                    let inside = range.end <= before.end;
                    let severity = if inside { Severity::Advice } else { Severity::Error };
                    let how = if inside { "inside" } else { "across the end of" };
                    findings.add(severity, || {
                        let reason = format!(
                            "bytes {range:?} lie {how} those of another tensor, {before:?}"
                        );
                        Error::new(ErrorKind::InvalidModel, reason).with_path(&self.path)
                    });
                    if !inside {
                        last = Some(range);
                    }
                }
                _ => last = Some(range),
            }
        }
    }

    /// Whether there are bytes that no tensor of this model uses, once the ranges are sorted.
    pub(super) fn has_gaps(&self) -> bool {
        self.unused_bytes() > 0
    }

    /// Says that there are bytes that no tensor uses: none of this model, nor of the `others` that
    /// need the file. A range that is not in the file is not believed.
    pub(super) fn gaps(&self, others: Result<OtherModels>) -> Option<Finding> {
        let (used, whose) = match others {
            Ok(others) => {
                let more = others.named().map_or(String::new(), |names| format!(" or of {names}"));
                (others.used, format!("of this model{more}"))
            }
            Err(error) => {
                let unknown = "which other models need this file is not known";
                (Vec::new(), format!("of this model; {unknown}: {error}"))
            }
        };
        let len = self.len;
        // A copy: no digest of this model covers what others use.
        let mut by_all = Self { path: self.path.clone(), len, used: self.used.clone() };
        by_all.used.extend(used.into_iter().filter(|range| range.end <= len));
        by_all.sort();
        let unused = by_all.unused_bytes();
        let reason = format!("{unused} of {len} bytes are used by no tensor {whose}");
        let error = Error::new(ErrorKind::InvalidModel, reason).with_path(&self.path);
        (unused > 0).then_some(Finding { severity: Severity::Advice, error })
    }

    /// The number of the bytes that no range has and that are not padding before an aligned offset.
    fn unused_bytes(&self) -> u64 {
        let alignments = Alignments::of(&self.used);
        let (mut end, mut unused) = (0_u64, 0_u64);
        for range in &self.used {
            let gap = range.start.saturating_sub(end);
            if gap > 0 && gap >= alignments.seen(range) {
                unused = unused.saturating_add(gap);
            }
            end = end.max(range.end);
        }
        unused.saturating_add(self.len.saturating_sub(end))
    }

    /// Puts the ranges into their order, each once.
    pub(super) fn sort(&mut self) {
        self.used.retain(|range| !range.is_empty());
        self.used.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
        self.used.dedup();
    }
}

/// The largest alignment that common writers use, 64 KiB, which Windows asks for, and the largest
/// one that is believed when several tensors have it: a huge page.
const COMMON: u64 = 64 << 10;
const LARGEST: u64 = 2 << 20;

/// How a file is aligned, told by the offsets in it: a writer may align long tensors more than
/// short ones, but never less.
struct Alignments {
    /// From the longest on: a length, and the alignment that all at least so long have.
    by_len: Vec<(u64, u64)>,
}

impl Alignments {
    /// What the ranges show, which are sorted by their starts; those inside others are views.
    fn of(ranges: &[Range<u64>]) -> Self {
        let mut end = 0;
        let mut starts = Vec::new();
        for range in ranges {
            if range.start >= end {
                starts.push((length(range), range.start));
                end = range.end;
            }
        }
        starts.sort_unstable_by_key(|(len, _)| std::cmp::Reverse(*len));
        let (mut alignment, mut seen) = (LARGEST, 0);
        let by_len = starts.into_iter().map(|(len, start)| {
            if start > 0 {
                seen += 1;
                alignment = alignment.min(1 << start.trailing_zeros());
            }
            // One offset alone may be a multiple of much by chance.
            (len, if seen > 1 { alignment } else { alignment.min(COMMON) })
        });
        Self { by_len: by_len.collect() }
    }

    /// The alignment of all tensors that are at least as long as `range`.
    fn seen(&self, range: &Range<u64>) -> u64 {
        let after = self.by_len.partition_point(|(len, _)| *len >= length(range));
        let last = after.checked_sub(1).and_then(|last| self.by_len.get(last));
        last.map_or(1, |(_, alignment)| *alignment)
    }
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn file(len: u64, used: &[Range<u64>]) -> UsedFile {
        UsedFile { path: "w".into(), len, used: used.to_vec() }
    }

    #[test]
    fn padding_is_no_hole() {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        let cases: &[(u64, &[Range<u64>], u64)] = &[
            (300, &[0..10, 256..300], 0),
            (400, &[0..10, 250..300], 340),
            (10, &[], 10),
            (20, &[0..10, 10..20], 0),
            (30, &[0..10, 10..20], 10),
            // A hole of 64 KiB before an offset that would be aligned by chance.
            (3 * 128 * KIB, &[0..64, 64..64 * KIB, 128 * KIB..3 * 128 * KIB], 64 * KIB),
            // A tensor that is gone from a file whose offsets are multiples of 64.
            (900, &[0..60, 64..100, 512..600, 640..900], 412),
            // Long tensors are at pages, short ones are not.
            (5 * MIB, &[0..100, 128..200, 4096..3 * MIB, 3 * MIB + 4096..5 * MIB], 4096),
            (4 * MIB, &[0..100, 128..200, 4096..2 * MIB, 2 * MIB..4 * MIB], 0),
            // Huge pages, where more than one tensor says so.
            (5 * MIB, &[0..5, 2 * MIB..3 * MIB, 4 * MIB..5 * MIB], 0),
            // A view inside another tensor says nothing of the alignment.
            (2000, &[0..1000, 3..7, 1024..2000], 0),
        ];
        for (len, used, expected) in cases {
            let found = file(*len, used).gaps(Ok(OtherModels::default()));
            let text = format!("{expected} of {len} bytes are used by no tensor of this model");
            let expected = (*expected > 0).then_some(text);
            assert_eq!(found.map(|f| f.error.reason().to_owned()), expected, "{used:?}");
        }
    }

    #[test]
    fn crossing_ranges_are_errors_and_nested_ones_advice() {
        let severities = |used: &[Range<u64>]| -> Vec<_> {
            let mut findings = Findings::new(&Limits::new());
            file(100, used).overlaps(&mut findings);
            findings.kept.iter().map(|finding| finding.severity).collect()
        };
        assert_eq!(severities(&[0..10, 10..20]), []);
        assert_eq!(severities(&[0..10, 2..4, 4..10]), [Severity::Advice, Severity::Advice]);
        assert_eq!(severities(&[0..10, 8..12, 11..13]), [Severity::Error, Severity::Error]);
    }
}
