//! One block after the other, each where it fits best among those that lie already.
//!
//! The length of the plan depends on the order. The order by size is the "greedy by size" of
//! Pisarchyk and Lee (2020, arXiv:2001.03288), which reaches the lower bound on most models; no
//! order is the best on all, so the best of five counts.

use std::cmp::Reverse;
use std::ops::Range;

use super::placed::{Placed, PlacedBlocks};
use super::timeline::Timeline;
use super::{Block, end_of};
use crate::error::Result;
use crate::exact::{Exact, OrBug};

/// The orders in which blocks are placed; of two that are equal, the one that is needed first comes
/// first.
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

/// The offsets of the best order; an order whose plan is not longer than `goal` bytes is good
/// enough.
///
/// # Errors
/// Internal ones.
pub fn best_of_all(blocks: &[Block], timeline: &Timeline, goal: u64) -> Result<Vec<u64>> {
    // More sections than that, and blocks, are not in memory.
    let short = |section: usize| u32::try_from(section).unwrap_or(u32::MAX);
    let sections = |block| timeline.sections(block);
    let sections = blocks.iter().map(sections).map(|s| short(s.start)..short(s.end));
    let sections: Vec<_> = sections.collect();
    let mut best: Option<(u64, Vec<u64>)> = None;
    for order in Order::ALL {
        let order = order.sort(blocks, timeline);
        let least = best.as_ref().map_or(u64::MAX, |(least, _)| *least);
        let Some(offsets) = place_all(blocks, &order, &sections, least)? else { continue };
        let end = end_of(blocks, &offsets);
        if end < least {
            best = Some((end, offsets));
        }
        if end <= goal {
            break;
        }
    }
    best.map(|(_, offsets)| offsets).or_bug("no plan in any order")
}

/// The offset of each block when they are placed in `order`, after the fixed ones; nothing when
/// that plan is not shorter than `least` bytes.
fn place_all(
    blocks: &[Block],
    order: &[(usize, &Block)],
    sections: &[Range<u32>],
    least: u64,
) -> Result<Option<Vec<u64>>> {
    let mut offsets: Vec<_> = blocks.iter().map(Block::fixed_offset).collect();
    let mut placed = PlacedBlocks::default();
    for (i, block) in order {
        if let Some(offset) = block.offset {
            let (end, sections) = (offset + block.bytes, sections.at(*i)?.clone());
            placed.insert(Placed { offset, end, sections });
        }
    }
    for (i, block) in order.iter().filter(|(_, block)| block.offset.is_none()) {
        let sections = sections.at(*i)?.clone();
        let offset = placed.best_fit(block, &sections);
        let end = offset + block.bytes;
        if end >= least {
            return Ok(None);
        }
        placed.insert(Placed { offset, end, sections });
        *offsets.at_mut(*i)? = offset;
    }
    Ok(Some(offsets))
}
