//! Shorter plans than the greedy ones, for as long as there is time.
//!
//! Steps at which no block begins before and ends after divide a program into *parts* that are
//! planned apart; the longest one decides. The search tries whether that part fits a capacity
//! between the largest one that is known to be impossible and the length that it has: a round of
//! attempts, each with one order and a limited number of placements, then the next round with twice
//! as many. That sequence is fixed, so with enough time the answer is too.

mod canonical;

use std::ops::Range;
use std::time::{Duration, Instant};

use canonical::{Answer, BlockToPlace, Limits, Obstacle};

use super::greedy::Order;
use super::timeline::Timeline;
use super::{Block, end_of};
use crate::exact::Exact;
use crate::{Error, Result};

/// The best plan of a search.
#[derive(Debug)]
pub struct FoundPlan {
    /// The offset of each block.
    pub offsets: Vec<u64>,
    /// What no plan is shorter than, in bytes.
    pub least: u64,
}

/// The placements of one attempt in the first round.
const FIRST_PLACEMENTS: u64 = 1024;
/// The last round with more placements than the one before: time is the only limit by then.
const LAST_ROUND: u32 = 50;
/// The most blocks of a part that is searched: the memory that a search takes grows with their
/// square.
pub const LARGEST_PART: usize = 2048;
/// The stack that one placement takes at most, in bytes.
const STACK_OF_PLACEMENT: usize = 4096;

/// Looks for a plan of at most `goal` bytes, for at most `time`. `found` has a plan to begin with,
/// and a length that no plan is shorter than.
///
/// # Errors
/// [`ErrorKind::Container`](crate::ErrorKind::Container) when the system gives no thread.
pub fn search(blocks: &[Block], found: FoundPlan, goal: u64, time: Duration) -> Result<FoundPlan> {
    let now = Instant::now();
    // A deadline beyond the clock is as good as none.
    let deadline = now.checked_add(time).unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
    // Placements are nested as deep as a part has blocks.
    let stack = STACK_OF_PLACEMENT * (LARGEST_PART + 256);
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(stack);
        let found = worker.spawn_scoped(scope, || improved(blocks, found, goal, deadline));
        let found = found.map_err(onnx_container::Error::from)?.join();
        found.map_err(|_| Error::internal("the search of a plan ended in a panic"))
    })
}

fn improved(blocks: &[Block], mut found: FoundPlan, goal: u64, deadline: Instant) -> FoundPlan {
    let mut parts = parts(blocks, &found.offsets, goal);
    while Instant::now() < deadline {
        let longest = parts.iter_mut().max_by_key(|part| part.end);
        match longest.filter(|part| part.end > goal && part.can_improve()) {
            Some(part) => part.improve(goal, deadline),
            None => break,
        }
    }
    for part in &parts {
        found.least = found.least.max(part.least);
        for (i, offset) in part.indices.iter().zip(&part.offsets) {
            found.offsets.debug_set(*i, *offset);
        }
    }
    found
}

/// The parts of `blocks`, with the places that they have in `offsets`.
fn parts(blocks: &[Block], offsets: &[u64], goal: u64) -> Vec<PlanPart> {
    let mut order: Vec<_> = (0..blocks.len()).zip(blocks).zip(offsets).collect();
    order.retain(|((_, block), _)| !block.is_empty());
    order.sort_by_key(|((_, block), _)| block.steps.start);
    let mut parts: Vec<PlanPart> = Vec::new();
    let mut end_step = 0;
    for ((i, block), offset) in order {
        match parts.last_mut() {
            Some(part) if block.steps.start < end_step => part.push(i, block, *offset),
            _ => {
                let mut part = PlanPart::default();
                part.push(i, block, *offset);
                parts.push(part);
            }
        }
        end_step = end_step.max(block.steps.end);
    }
    for part in &mut parts {
        part.end = end_of(&part.blocks, &part.offsets);
        if part.end > goal && part.blocks.len() <= LARGEST_PART {
            part.prepare();
        }
    }
    parts
}

/// Blocks that are planned apart from all others.
#[derive(Debug, Default)]
struct PlanPart {
    /// Their indices in the whole plan.
    indices: Vec<usize>,
    blocks: Vec<Block>,
    /// The best plan so far.
    offsets: Vec<u64>,
    /// Its length, in bytes.
    end: u64,
    /// What no plan is shorter than.
    least: u64,
    obstacles: Vec<Obstacle>,
    /// The blocks that are not fixed, ranked by each order.
    orders: Vec<Vec<BlockToPlace>>,
    rounds: u32,
}

impl PlanPart {
    fn push(&mut self, index: usize, block: &Block, offset: u64) {
        self.indices.push(index);
        self.blocks.push(block.clone());
        self.offsets.push(offset);
    }

    fn can_improve(&self) -> bool {
        self.blocks.len() <= LARGEST_PART && self.least < self.end
    }

    /// Makes the part ready for [`improve`](Self::improve).
    fn prepare(&mut self) {
        let timeline = Timeline::new(&self.blocks);
        self.least = timeline.lower_bound(&self.blocks).0;
        let obstacle = |block: &Block| {
            let Range { start, end } = timeline.sections(block);
            let offset = block.offset?;
            Some(Obstacle { first: start, end, offset, offset_end: offset + block.bytes })
        };
        self.obstacles = self.blocks.iter().filter_map(obstacle).collect();
        self.obstacles.sort_unstable_by_key(|obstacle| obstacle.offset);
        self.orders = Order::ALL.iter().map(|order| self.items(*order, &timeline)).collect();
    }

    /// The blocks that are not fixed, ranked by `order` and sorted by their first section.
    fn items(&self, order: Order, timeline: &Timeline) -> Vec<BlockToPlace> {
        let sorted = order.sort(&self.blocks, timeline);
        let ranked = (0..).zip(&sorted).filter(|(_, (_, block))| block.offset.is_none());
        let item = |(rank, (index, block)): (usize, &(usize, &Block))| {
            let Range { start: first, end } = timeline.sections(block);
            let (index, bytes, alignment) = (*index, block.bytes, block.alignment);
            BlockToPlace { index, first, end, bytes, alignment, lowest: 0, rank }
        };
        let mut items: Vec<_> = ranked.map(item).collect();
        items.sort_by_key(|item| item.first);
        items
    }

    /// One round: for each capacity, an attempt with each order, until one finds a shorter plan.
    fn improve(&mut self, goal: u64, deadline: Instant) {
        let placements = FIRST_PLACEMENTS << self.rounds.min(LAST_ROUND);
        let limits = Limits { placements, deadline };
        for capacity in capacities(self.least.max(goal), self.end) {
            for items in self.orders.clone() {
                if Instant::now() >= deadline {
                    return;
                }
                match canonical::fit(items, &self.obstacles, capacity, limits) {
                    Answer::Fits(places) => return self.accept(&places),
                    Answer::Never => {
                        self.least = capacity + 1;
                        break;
                    }
                    Answer::Unknown => {}
                }
            }
        }
        self.rounds += 1;
    }

    fn accept(&mut self, places: &[(usize, u64)]) {
        for (i, offset) in places {
            self.offsets.debug_set(*i, *offset);
        }
        self.end = end_of(&self.blocks, &self.offsets);
    }
}

/// Capacities to try from `least` to under `end`, the smallest first; each next one halves the
/// distance to `end`.
fn capacities(least: u64, end: u64) -> impl Iterator<Item = u64> {
    let halves = (0..5).map(move |i| end - ((end - least) >> i));
    halves.chain([end - 1]).filter(move |capacity| *capacity < end)
}
