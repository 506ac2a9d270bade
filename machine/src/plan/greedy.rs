//! One block after the other, each where it fits best among those that lie already.
//!
//! The length of the plan depends on the order. The order by size is the "greedy by size" of Pisarchyk
//! and Lee (2020, arXiv:2001.03288), which reaches the lower bound on most models; no order is the best
//! on all, so the best of five counts.

use std::cmp::Reverse;
use std::ops::Range;

use super::timeline::Timeline;
use super::{Block, end_of};

/// The orders in which blocks are placed; of two that are equal, the one that is needed first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The largest first.
    Size,
    /// The largest product of size and lifetime first.
    Area,
    /// Those that are needed longest first.
    Lifetime,
    /// In the order of the steps that write them, as an allocator does that does not look ahead.
    FirstStep,
    /// Those first that are needed at the steps that need the most bytes.
    Pressure,
}

impl Order {
    pub const ALL: [Self; 5] =
        [Self::Size, Self::Area, Self::Lifetime, Self::FirstStep, Self::Pressure];

    /// The blocks that take a place, with their indices, in this order.
    pub fn sort<'b>(self, blocks: &'b [Block], timeline: &Timeline) -> Vec<(usize, &'b Block)> {
        let pressures = match self {
            Self::Pressure => timeline.pressures(blocks),
            _ => vec![0; blocks.len()],
        };
        let keys = blocks.iter().zip(pressures).map(|(block, pressure)| self.key(block, pressure));
        let mut order: Vec<_> =
            keys.zip(blocks.iter().enumerate()).filter(|(_, (_, b))| !b.is_empty()).collect();
        order.sort_by_key(|(key, _)| *key);
        order.into_iter().map(|(_, block)| block).collect()
    }

    fn key(self, block: &Block, pressure: u64) -> Key {
        let lifetime = block.steps.end - block.steps.start;
        let area = u128::from(block.bytes) * u128::from(lifetime);
        let (first, second) = match self {
            Self::Size => (u128::from(block.bytes), u128::from(lifetime)),
            Self::Area => (area, u128::from(block.bytes)),
            Self::Lifetime => (u128::from(lifetime), u128::from(block.bytes)),
            Self::FirstStep => (u128::from(u64::MAX - block.steps.start), u128::from(block.bytes)),
            Self::Pressure => (u128::from(pressure), area),
        };
        (Reverse(first), Reverse(second), block.steps.start)
    }
}

type Key = (Reverse<u128>, Reverse<u128>, u64);

/// The offsets of the best order; an order whose plan is not longer than `goal` bytes is good enough.
pub fn best_of_all(blocks: &[Block], timeline: &Timeline, goal: u64) -> Vec<u64> {
    let mut best: Option<(u64, Vec<u64>)> = None;
    for order in Order::ALL {
        let offsets = place_all(blocks, &order.sort(blocks, timeline), timeline);
        let end = end_of(blocks, &offsets);
        if best.as_ref().is_none_or(|(least, _)| end < *least) {
            best = Some((end, offsets));
        }
        if end <= goal {
            break;
        }
    }
    best.map(|(_, offsets)| offsets).unwrap_or_default()
}

/// The offset of each block when they are placed in `order`, after the fixed ones.
fn place_all(blocks: &[Block], order: &[(usize, &Block)], timeline: &Timeline) -> Vec<u64> {
    let mut offsets: Vec<_> = blocks.iter().map(|block| block.offset.unwrap_or(0)).collect();
    let mut placed = PlacedBlocks::new(timeline);
    for (block, offset) in order.iter().filter_map(|(_, block)| Some((block, block.offset?))) {
        placed.insert(block, offset);
    }
    for (i, block) in order.iter().filter(|(_, block)| block.offset.is_none()) {
        let best = placed.best_fit(block);
        placed.insert(block, best);
        offsets.get_mut(*i).into_iter().for_each(|offset| *offset = best);
    }
    offsets
}

/// A block that lies somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placed {
    offset: u64,
    end: u64,
    first_step: u64,
    end_step: u64,
}

impl Placed {
    fn is_needed_with(&self, block: &Block) -> bool {
        self.first_step < block.steps.end && block.steps.start < self.end_step
    }
}

/// How many sections a span has.
const SECTIONS_OF_SPAN: usize = 32;
/// The most spans that a short block is needed in.
const SPANS_OF_SHORT: usize = 8;

/// The blocks that are placed, by offset, and once more by time: most tensors are needed for a few steps,
/// so only the few others of these steps have to be compared with them.
#[derive(Debug)]
struct PlacedBlocks<'t> {
    timeline: &'t Timeline,
    by_offset: Vec<Placed>,
    /// For each span of sections, the short blocks that are needed in it.
    short: Vec<Vec<Placed>>,
    /// Those that are needed in more spans.
    long: Vec<Placed>,
}

impl<'t> PlacedBlocks<'t> {
    fn new(timeline: &'t Timeline) -> Self {
        let short = vec![Vec::new(); timeline.len().div_ceil(SECTIONS_OF_SPAN)];
        Self { timeline, by_offset: Vec::new(), short, long: Vec::new() }
    }

    fn insert(&mut self, block: &Block, offset: u64) {
        let (first_step, end_step) = (block.steps.start, block.steps.end);
        let placed = Placed { offset, end: offset + block.bytes, first_step, end_step };
        let at = self.by_offset.partition_point(|other| other.offset < offset);
        self.by_offset.insert(at, placed);
        let spans = self.spans(block);
        if spans.len() > SPANS_OF_SHORT {
            self.long.push(placed);
        } else {
            self.short.get_mut(spans).into_iter().flatten().for_each(|span| span.push(placed));
        }
    }

    /// The spans in which `block` is needed.
    fn spans(&self, block: &Block) -> Range<usize> {
        let sections = self.timeline.sections(block);
        sections.start / SECTIONS_OF_SPAN..sections.end.div_ceil(SECTIONS_OF_SPAN)
    }

    /// The offset of the smallest gap that holds `block` between the blocks that are needed with it, the
    /// lowest of equal gaps; the end of these blocks when it fits in no gap.
    fn best_fit(&self, block: &Block) -> u64 {
        match self.needed_with(block) {
            Some(few) => best_gap(block, few.iter()),
            None => {
                let all = self.by_offset.iter();
                best_gap(block, all.filter(|other| other.is_needed_with(block)))
            }
        }
    }

    /// The blocks that are needed with `block`, by offset, where they are few; some more than once.
    fn needed_with(&self, block: &Block) -> Option<Vec<Placed>> {
        let spans = Some(self.spans(block)).filter(|spans| spans.len() <= SPANS_OF_SHORT)?;
        let short = self.short.get(spans)?;
        let count = short.iter().map(Vec::len).sum::<usize>() + self.long.len();
        if count > self.by_offset.len() / 4 {
            return None;
        }
        let near = short.iter().flatten().chain(&self.long);
        let mut few: Vec<_> = near.filter(|other| other.is_needed_with(block)).copied().collect();
        few.sort_unstable_by_key(|other| other.offset);
        Some(few)
    }
}

/// Where `block` fits best between `others`, which are sorted by offset.
fn best_gap<'p>(block: &Block, others: impl Iterator<Item = &'p Placed>) -> u64 {
    let mut best: Option<(u64, u64)> = None;
    let mut top = 0;
    for other in others {
        if other.offset >= top + block.bytes {
            let (start, gap) = (block.align_up(top), other.offset - top);
            if start + block.bytes <= other.offset && best.is_none_or(|(least, _)| gap < least) {
                best = Some((gap, start));
            }
        }
        top = top.max(other.end);
    }
    best.map_or_else(|| block.align_up(top), |(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_with_a_block_is_found_by_time() {
        let mut number = 1_u64;
        let mut random = |end: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (number >> 33) % end
        };
        let blocks: Vec<_> = (0..600_u64)
            .map(|i| {
                let steps = if i % 50 == 0 { random(500) } else { 1 + random(6) };
                Block::new(i..i + steps, 1 + random(100))
            })
            .collect();
        let timeline = Timeline::new(&blocks);
        let mut placed = PlacedBlocks::new(&timeline);
        let mut found = 0;
        for block in blocks.iter().filter(|block| !block.is_empty()) {
            let scanned: Vec<_> =
                placed.by_offset.iter().filter(|other| other.is_needed_with(block)).collect();
            let best = best_gap(block, scanned.iter().copied());
            if let Some(few) = placed.needed_with(block) {
                assert!(scanned.iter().all(|other| few.contains(other)));
                assert!(few.iter().all(|other| scanned.contains(&other)));
                found += 1;
            }
            assert_eq!(placed.best_fit(block), best);
            placed.insert(block, best);
        }
        assert!(found > 100, "only {found} blocks have few beside them");
    }
}
