//! Whether blocks fit a capacity: a depth-first search over canonical plans.
//!
//! A plan is *canonical* when no block can be moved to a lower offset. Every plan can be pushed
//! down to a canonical one that is not longer, so it is enough to try those, and each of them is
//! made by placing its blocks in the order of their offsets, each as low as those before it allow.
//! This is the idea of MiniMalloc (Moffitt, ASPLOS 2023), as are these three:
//!
//! - The block that is placed next lies lower than the end that any other block could have:
//!   otherwise that block would fit below it, and the plan would not be canonical.
//! - Nothing is placed any more below the lowest offset that one of a section's blocks can have.
//!   That floor and the bytes still to be placed in the section must fit the capacity.
//! - Blocks that no step needs together with others are searched apart.

use std::time::Instant;

use onnx_container::Alignment;

use crate::exact::{Exact, debug_aligned};

/// A block that is to be placed. Lengths are in bytes, sections are those of the part.
#[derive(Debug, Clone, Copy)]
pub struct BlockToPlace {
    /// Its index among the blocks of the plan.
    pub index: usize,
    pub first: usize,
    pub end: usize,
    pub bytes: u64,
    pub alignment: Alignment,
    /// The lowest offset that the blocks placed so far leave for it.
    pub lowest: u64,
    /// Of two blocks that could have the same offset, the one of lower rank is tried first.
    pub rank: usize,
}

/// A block that lies already, and stays there.
#[derive(Debug, Clone, Copy)]
pub struct Obstacle {
    pub first: usize,
    pub end: usize,
    pub offset: u64,
    pub offset_end: u64,
}

/// What an attempt found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A plan: the index of each block, and its offset.
    Fits(Vec<(usize, u64)>),
    /// There is no such plan.
    Never,
    /// The allowed work is done, and the question is still open.
    Unknown,
}

/// How much an attempt may do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The number of blocks that it may place, over and over.
    pub placements: u64,
    /// When it is too late to go on.
    pub deadline: Instant,
}

/// Whether `items` fit `capacity` beside `obstacles`, which are sorted by offset.
pub fn fit(
    items: Vec<BlockToPlace>,
    obstacles: &[Obstacle],
    capacity: u64,
    limits: Limits,
) -> Answer {
    let sections = items.iter().map(|item| item.end).fold(0, usize::max);
    let mut attempt = Attempt {
        obstacles,
        capacity,
        limits,
        sections: vec![Section::EMPTY; sections],
        placed: Vec::with_capacity(items.len()),
    };
    let items = items.into_iter().map(|item| attempt.raised(item, 0)).collect();
    match attempt.solve_each(items, None) {
        Verdict::Solved => Answer::Fits(attempt.placed),
        Verdict::Hopeless => Answer::Never,
        Verdict::Stopped => Answer::Unknown,
    }
}

/// The offset and the rank of the block that was placed last; `None` before the first.
type LastPlaced = Option<(u64, usize)>;

/// How the search of a component ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Solved,
    Hopeless,
    Stopped,
}

/// What must still be placed in one section.
#[derive(Debug, Clone, Copy)]
struct Section {
    /// The lowest offset that one of its blocks can have.
    floor: u64,
    /// The bytes of all of them.
    bytes: u64,
}

impl Section {
    const EMPTY: Self = Self { floor: u64::MAX, bytes: 0 };

    fn fits(self, capacity: u64) -> bool {
        self.bytes == 0 || self.floor.saturating_add(self.bytes) <= capacity
    }
}

struct Attempt<'o> {
    obstacles: &'o [Obstacle],
    capacity: u64,
    limits: Limits,
    /// Memory for `is_possible`, which is used again and again.
    sections: Vec<Section>,
    /// The blocks on the way from the root to here, and those of the components that are solved.
    placed: Vec<(usize, u64)>,
}

impl Attempt<'_> {
    /// Places `items`, whose lifetimes are connected and which are sorted by their first section.
    /// Nothing is placed before `last`.
    fn solve(&mut self, items: Vec<BlockToPlace>, last: LastPlaced) -> Verdict {
        if self.is_over() {
            return Verdict::Stopped;
        }
        if !self.is_possible(&items, last) {
            return Verdict::Hopeless;
        }
        let before = self.placed.len();
        for next in candidates(&items, last) {
            self.placed.push((next.index, next.lowest));
            let rest = items.iter().filter(|item| item.index != next.index);
            let rest = rest.map(|item| self.above(*item, &next)).collect();
            match self.solve_each(rest, next.place()) {
                Verdict::Hopeless => self.placed.truncate(before),
                verdict => return verdict,
            }
        }
        Verdict::Hopeless
    }

    /// Solves each connected component of `items`.
    fn solve_each(&mut self, items: Vec<BlockToPlace>, last: LastPlaced) -> Verdict {
        for component in components(items) {
            match self.solve(component, last) {
                Verdict::Solved => {}
                verdict => return verdict,
            }
        }
        Verdict::Solved
    }

    /// Counts one placement, and returns whether it was the last one that is allowed.
    fn is_over(&mut self) -> bool {
        let left = self.limits.placements.saturating_sub(1);
        self.limits.placements = left;
        left == 0 || (left.is_multiple_of(1024) && Instant::now() >= self.limits.deadline)
    }

    /// `item` after `placed` was placed.
    fn above(&self, item: BlockToPlace, placed: &BlockToPlace) -> BlockToPlace {
        if item.first < placed.end && placed.first < item.end {
            self.raised(item, placed.lowest + placed.bytes)
        } else {
            item
        }
    }

    /// `item`, not lower than `offset`.
    fn raised(&self, mut item: BlockToPlace, offset: u64) -> BlockToPlace {
        let aligned = |offset| debug_aligned(item.alignment, offset);
        let mut lowest = item.lowest.max(aligned(offset));
        for obstacle in self.obstacles {
            let is_in_time = item.first < obstacle.end && obstacle.first < item.end;
            if is_in_time && lowest < obstacle.offset_end && obstacle.offset < lowest + item.bytes {
                lowest = aligned(obstacle.offset_end);
            }
        }
        item.lowest = lowest;
        item
    }

    /// Whether the bytes that are to be placed in each section fit above its floor.
    fn is_possible(&mut self, items: &[BlockToPlace], last: LastPlaced) -> bool {
        let first = items.first().map_or(0, |item| item.first);
        let end = items.iter().map(|item| item.end).fold(0, usize::max);
        let smallest = items.iter().map(|item| item.bytes).fold(u64::MAX, u64::min);
        let Some(sections) = self.sections.get_mut(first..end) else { return false };
        sections.fill(Section::EMPTY);
        for item in items {
            // A block that should have come before the last one rests on one that comes after it.
            let floor = match last {
                Some((offset, _)) if item.place() <= last => item.lowest.max(offset + smallest),
                _ => item.lowest,
            };
            if floor + item.bytes > self.capacity {
                return false;
            }
            let range = item.first - first..item.end - first;
            for section in sections.debug_part_mut(range) {
                section.floor = section.floor.min(floor);
                section.bytes += item.bytes;
            }
        }
        sections.iter().all(|section| section.fits(self.capacity))
    }
}

impl BlockToPlace {
    fn place(&self) -> LastPlaced {
        Some((self.lowest, self.rank))
    }
}

/// What can be placed next, the most promising first.
fn candidates(items: &[BlockToPlace], last: LastPlaced) -> Vec<BlockToPlace> {
    let window = items.iter().map(|item| item.lowest + item.bytes).fold(u64::MAX, u64::min);
    let is_next = |item: &&BlockToPlace| item.lowest < window && item.place() > last;
    let mut candidates: Vec<_> = items.iter().filter(is_next).copied().collect();
    candidates.sort_unstable_by_key(BlockToPlace::place);
    candidates
}

/// `items`, which are sorted by their first section, in groups that no section has in common.
fn components(items: Vec<BlockToPlace>) -> Vec<Vec<BlockToPlace>> {
    let mut components: Vec<Vec<BlockToPlace>> = Vec::new();
    let mut end = 0;
    for item in items {
        match components.last_mut().filter(|_| item.first < end) {
            Some(component) => component.push(item),
            None => components.push(vec![item]),
        }
        end = item.end.max(end);
    }
    components
}
