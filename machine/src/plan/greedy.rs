//! One block after the other, each where it fits best among those that lie already.
//!
//! The order decides. By size is the "greedy by size" of Pisarchyk and Lee (2020, arXiv:2001.03288),
//! which reaches the lower bound on most models; no order is the best on all, so the best of five counts.

use std::cmp::Reverse;

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
    /// Those first that are needed when the most is needed.
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
        let offsets = place_all(blocks, &order.sort(blocks, timeline));
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
pub fn place_all(blocks: &[Block], order: &[(usize, &Block)]) -> Vec<u64> {
    let mut offsets: Vec<_> = blocks.iter().map(|block| block.offset.unwrap_or(0)).collect();
    let fixed = blocks.iter().filter(|block| !block.is_empty());
    let mut placed: Vec<_> =
        fixed.filter_map(|block| Some(Placed::new(block, block.offset?))).collect();
    placed.sort_unstable_by_key(|other| other.offset);
    for (i, block) in order.iter().filter(|(_, block)| block.offset.is_none()) {
        let place = Placed::new(block, best_fit(block, &placed));
        let at = placed.partition_point(|other| other.offset < place.offset);
        offsets.get_mut(*i).into_iter().for_each(|offset| *offset = place.offset);
        placed.insert(at, place);
    }
    offsets
}

/// A block that lies somewhere.
#[derive(Debug)]
struct Placed {
    offset: u64,
    end: u64,
    first_step: u64,
    end_step: u64,
}

impl Placed {
    fn new(block: &Block, offset: u64) -> Self {
        let (first_step, end_step) = (block.steps.start, block.steps.end);
        Self { offset, end: offset + block.bytes, first_step, end_step }
    }
}

/// The lowest of the smallest gaps that hold `block` between those of `placed` that are needed with it;
/// their end, when it fits in no gap. `placed` is sorted by offset.
fn best_fit(block: &Block, placed: &[Placed]) -> u64 {
    let (first_step, end_step) = (block.steps.start, block.steps.end);
    let mut best: Option<(u64, u64)> = None;
    let mut top = 0;
    for other in placed {
        if other.first_step >= end_step || first_step >= other.end_step {
            continue;
        }
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
