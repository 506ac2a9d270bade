//! The blocks that lie already, and where a further one fits best among them.
//!
//! They are kept by offset, which is the order in which gaps are found, and once more by time: most
//! tensors of a long program are needed for a few steps, so only the few others of these steps have
//! to be looked at. Where that does not help, all are compared, which compilers turn into a few
//! instructions for many of them: so the sections are in columns of their own.

use std::ops::Range;

use super::Block;
use crate::exact::Exact;

/// A block that lies somewhere: between `offset` and `end`, while `sections` of the timeline last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub offset: u64,
    pub end: u64,
    pub sections: Range<u32>,
}

impl Placed {
    fn is_needed_in(&self, sections: &Range<u32>) -> bool {
        self.sections.start < sections.end && sections.start < self.sections.end
    }
}

/// How many sections a span has.
const SECTIONS_OF_SPAN: u32 = 32;
/// The most spans that a short block is needed in.
const SPANS_OF_SHORT: usize = 8;
/// How many comparisons take as long as one look at a block by time.
const COMPARISONS: usize = 16;
/// How many blocks are compared before those of them that matter are visited.
const COMPARED: usize = 64;

/// The blocks that are placed.
#[derive(Debug, Default)]
pub struct PlacedBlocks {
    /// By offset, as the next two.
    places: Vec<Range<u64>>,
    starts: Vec<u32>,
    ends: Vec<u32>,
    /// For each span of sections, the short blocks that are needed in it.
    short: Vec<Vec<Placed>>,
    /// Those that are needed in more spans.
    long: Vec<Placed>,
}

impl PlacedBlocks {
    pub fn insert(&mut self, placed: Placed) {
        let Placed { offset, end, sections } = placed.clone();
        let at = self.places.partition_point(|other| other.start < offset);
        self.places.insert(at, offset..end);
        self.starts.insert(at, sections.start);
        self.ends.insert(at, sections.end);
        let spans = spans(&sections);
        if spans.len() > SPANS_OF_SHORT {
            self.long.push(placed);
            return;
        }
        if self.short.len() < spans.end {
            self.short.resize(spans.end, Vec::new());
        }
        for span in self.short.debug_part_mut(spans) {
            span.push(placed.clone());
        }
    }

    /// The offset of the smallest gap that holds `block`, which is needed in `sections`, between
    /// the blocks that are needed with it, the lowest of equal gaps; the end of these blocks when
    /// it fits in no gap.
    pub fn best_fit(&self, block: &Block, sections: &Range<u32>) -> u64 {
        let mut gaps = Gaps::new(block);
        match self.few_in(sections) {
            Some(few) => few.into_iter().for_each(|place| gaps.pass(&place)),
            None => self.pass_all(sections, &mut gaps),
        }
        gaps.best()
    }

    /// The places of the blocks that are needed in `sections`, by offset, where they are few; some
    /// more than once.
    fn few_in(&self, sections: &Range<u32>) -> Option<Vec<Range<u64>>> {
        let spans = Some(spans(sections)).filter(|spans| spans.len() <= SPANS_OF_SHORT)?;
        let known = self.short.len();
        let short = self.short.get(spans.start.min(known)..spans.end.min(known))?;
        let count = short.iter().map(Vec::len).sum::<usize>() + self.long.len();
        if count > self.places.len() / COMPARISONS {
            return None;
        }
        let near = short.iter().flatten().chain(&self.long);
        let needed = near.filter(|other| other.is_needed_in(sections));
        let mut few: Vec<_> = needed.map(|other| other.offset..other.end).collect();
        few.sort_unstable_by_key(|place| place.start);
        Some(few)
    }

    /// Shows `gaps` the blocks that are needed in `sections`, by offset.
    fn pass_all(&self, sections: &Range<u32>, gaps: &mut Gaps<'_>) {
        let mut is_needed = [0; COMPARED];
        let columns = self.starts.chunks(COMPARED).zip(self.ends.chunks(COMPARED));
        for ((starts, ends), places) in columns.zip(self.places.chunks(COMPARED)) {
            for ((is_needed, start), end) in is_needed.iter_mut().zip(starts).zip(ends) {
                *is_needed = u8::from((*start < sections.end) & (sections.start < *end));
            }
            let mut left = packed(&is_needed);
            while let Some(place) = places.get(left.trailing_zeros() as usize) {
                gaps.pass(place);
                left &= left.wrapping_sub(1);
            }
        }
    }
}

/// The number whose bit i is that of byte i, each of which is 0 or 1.
fn packed(bits: &[u8; COMPARED]) -> u64 {
    let (eights, _) = bits.as_chunks::<8>();
    // The product has the bit of byte i at bit 56 + i, and nothing is carried there.
    let pack =
        |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    eights.iter().rev().fold(0, |packed, eight| packed << 8 | pack(eight))
}

/// The spans that `sections` are in.
fn spans(sections: &Range<u32>) -> Range<usize> {
    let span = |section: u32| section as usize;
    span(sections.start / SECTIONS_OF_SPAN)..span(sections.end.div_ceil(SECTIONS_OF_SPAN))
}

/// The gaps between blocks that are passed from the lowest offset to the highest.
#[derive(Debug)]
struct Gaps<'b> {
    block: &'b Block,
    /// The end of the blocks that were passed.
    top: u64,
    /// Where the block lies in the smallest gap that holds it.
    best: Option<u64>,
    /// How many bytes that gap has more than the block.
    spare: u64,
}

impl<'b> Gaps<'b> {
    fn new(block: &'b Block) -> Self {
        Self { block, top: 0, best: None, spare: u64::MAX / 2 }
    }

    fn pass(&mut self, place: &Range<u64>) {
        // One comparison for both, whether the gap is long enough and whether it is the smallest:
        // the difference of one that is not long enough has its highest bit set, which no length
        // has.
        let spare = place.start.wrapping_sub(self.top + self.block.bytes);
        if spare < self.spare {
            let start = self.block.align_up(self.top);
            if start + self.block.bytes <= place.start {
                (self.best, self.spare) = (Some(start), spare);
            }
        }
        self.top = place.end.max(self.top);
    }

    fn best(&self) -> u64 {
        self.best.unwrap_or_else(|| self.block.align_up(self.top))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_by_time_is_the_fit_among_all() {
        let mut number = 1_u64;
        let mut random = |end: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (number >> 33) % end
        };
        let (mut placed, mut list) = (PlacedBlocks::default(), Vec::<Placed>::new());
        let mut found = 0;
        for i in 0..3000_u32 {
            let steps = if i % 500 == 0 { random(2000) } else { random(6) };
            let sections = i..i + 1 + u32::try_from(steps).unwrap();
            let block = Block::new(0..1, 1 + random(100));
            let needed = list.iter().filter(|other| other.is_needed_in(&sections));
            let mut scanned: Vec<_> = needed.map(|other| other.offset..other.end).collect();
            scanned.sort_by_key(|place| (place.start, place.end));
            let mut gaps = Gaps::new(&block);
            scanned.iter().for_each(|place| gaps.pass(place));
            if let Some(mut few) = placed.few_in(&sections) {
                few.sort_by_key(|place| (place.start, place.end));
                few.dedup();
                assert_eq!(few, scanned);
                found += 1;
            }
            assert_eq!(placed.best_fit(&block, &sections), gaps.best());
            let mut all = Gaps::new(&block);
            placed.pass_all(&sections, &mut all);
            assert_eq!(all.best(), gaps.best());
            let offset = gaps.best();
            let new = Placed { offset, end: offset + block.bytes, sections };
            placed.insert(new.clone());
            list.push(new);
        }
        assert!(found > 1000, "only {found} blocks have few beside them");
    }
}
