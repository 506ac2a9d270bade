//! Where each tensor of a program lies in M: from the steps between which it is needed to its
//! offset.
//!
//! Nothing here knows operators or reads tensors: lengths in bytes and step numbers go in, offsets
//! come out. The orders of `greedy` answer in milliseconds; `search` goes on for as long as it is
//! given. Whatever they find is checked by [`verify`], which shares no code with them, before it is
//! returned. Which tensors there are, and which of them share their bytes, is left to the program.

mod csv;
mod greedy;
mod placed;
mod search;
pub(crate) mod shapes;
mod svg;
mod tensors;
mod timeline;
mod verify;

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

use onnx_container::Alignment;

pub use csv::{Named, read_csv, write_csv};
use search::FoundPlan;
pub use shapes::Barrier;
pub use svg::draw_svg;
pub use tensors::{PlannedTensor, ProgramPlan, plan_program};
pub(crate) use tensors::{plan_bound, plan_from_step};
use timeline::Timeline;
pub use verify::verify;

use crate::exact::debug_aligned;
use crate::{Error, ErrorKind, Result};

/// A range of bytes in M that is needed from one step of a program to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Block {
    /// The steps at which the bytes are needed. Like every Rust range it ends before its end: what
    /// step 3 writes and step 7 reads last has `3..8`. MiniMalloc calls the two `lower` and
    /// `upper`.
    pub steps: Range<u64>,
    /// The length in bytes.
    pub bytes: u64,
    /// What the offset is a multiple of.
    pub alignment: Alignment,
    /// Where the block lies already, in bytes; `None` for one that is to be placed.
    pub offset: Option<u64>,
}

impl Block {
    /// A block of `bytes` that may lie anywhere.
    pub fn new(steps: Range<u64>, bytes: u64) -> Self {
        Self { steps, bytes, alignment: Alignment::DENSE, offset: None }
    }

    /// The same block at a multiple of `alignment`.
    #[must_use]
    pub fn aligned(self, alignment: Alignment) -> Self {
        Self { alignment, ..self }
    }

    /// The same block at `offset`, in bytes.
    #[must_use]
    pub fn fixed_at(self, offset: u64) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// Where the block is fixed; 0, where one without bytes or steps lies, if it is not.
    fn fixed_offset(&self) -> u64 {
        self.offset.unwrap_or(0)
    }

    /// Whether the block takes no place: it has no bytes, or no step needs them.
    fn is_empty(&self) -> bool {
        self.bytes == 0 || self.steps.is_empty()
    }

    /// The smallest multiple of the block's alignment that is at least `offset`. It fits 63 bits,
    /// because [`check`] bounds the sum of all blocks.
    fn align_up(&self, offset: u64) -> u64 {
        debug_aligned(self.alignment, offset)
    }
}

/// A block of a plan as files show it.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// What it is called: the name of a tensor, or its id in the file that it comes from.
    pub id: &'a str,
    /// What was planned.
    pub block: &'a Block,
    /// Where it lies, in bytes.
    pub offset: u64,
}

/// How much work a plan is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Effort {
    /// The best of five greedy orders: milliseconds for thousands of blocks.
    #[default]
    Greedy,
    /// The best of the greedy orders, then a branch and bound that starts from it, for at most this
    /// long.
    ///
    /// The search is one fixed sequence of attempts; the clock only says how far it gets. It ends
    /// early when the plan has the length of the lower bound or fits the
    /// [capacity](PlanOptions::capacity), or when it is shown that no shorter plan exists. More
    /// than 2,048 blocks whose lifetimes are connected by overlaps keep the greedy plan.
    Search(Duration),
}

/// What is asked of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct PlanOptions {
    effort: Effort,
    capacity: u64,
}

impl PlanOptions {
    /// The greedy orders, and no capacity.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much work the plan is worth; [`Effort::Greedy`] by default.
    pub fn effort(self, effort: Effort) -> Self {
        Self { effort, ..self }
    }

    /// A search ends as soon as its plan fits `bytes`. Default: 0, it goes on to the shortest plan.
    pub fn capacity(self, bytes: u64) -> Self {
        Self { capacity: bytes, ..self }
    }
}

/// Where every block lies, and how good that is. All lengths are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The offset of each block, in the order of the blocks.
    pub offsets: Vec<u64>,
    /// N: the length of the memory that holds all blocks.
    pub arena_bytes: u64,
    /// The least that any plan can need: what is needed at the peak step, every block but one
    /// rounded up to the alignment that all have.
    pub lower_bound: u64,
    /// What the blocks would need if none shared its bytes with another; never less than the lower
    /// bound.
    pub naive_sum: u64,
    /// The first step of those that need the most.
    pub peak_step: u64,
    /// Whether it is shown that no shorter plan exists.
    pub optimal: bool,
}

/// Gives every block its offset.
///
/// Blocks that are needed at the same step never share a byte. Blocks with no bytes, or that no
/// step needs, lie at 0 unless they are fixed elsewhere.
///
/// ```
/// use onnx_container_machine::plan::{Block, PlanOptions, plan};
///
/// // Step 0 writes a, step 1 reads a and writes b, step 2 reads b and writes c.
/// let blocks = [Block::new(0..2, 400), Block::new(1..3, 100), Block::new(2..3, 300)];
/// let plan = plan(&blocks, PlanOptions::new())?;
/// assert_eq!(plan.offsets, [0, 400, 0]); // a is not needed any more when c is written
/// assert_eq!((plan.arena_bytes, plan.lower_bound, plan.naive_sum), (500, 500, 800));
/// assert_eq!(plan.peak_step, 1);
/// # Ok::<(), onnx_container_machine::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Plan`] when the steps of a block end before they begin, when fixed blocks overlap
/// or are not aligned, or when all blocks together are longer than 2^63 bytes.
pub fn plan(blocks: &[Block], options: PlanOptions) -> Result<Plan> {
    check(blocks)?;
    let timeline = Timeline::new(blocks);
    let (lower_bound, peak_step) = timeline.lower_bound(blocks);
    let naive_sum = unshared(blocks).max(lower_bound);
    let goal = lower_bound.max(options.capacity);
    let offsets = greedy::best_of_all(blocks, &timeline, goal)?;
    let greedy = FoundPlan { offsets, least: lower_bound };
    let found = match options.effort {
        Effort::Greedy => greedy,
        Effort::Search(time) => search::search(blocks, greedy, goal, time)?,
    };
    let arena_bytes = verify(blocks, &found.offsets)
        .map_err(|error| Error::internal(format_args!("the planner made a wrong plan: {error}")))?;
    let (offsets, optimal) = (found.offsets, arena_bytes <= found.least);
    Ok(Plan { offsets, arena_bytes, lower_bound, naive_sum, peak_step, optimal })
}

/// Checks that blocks can be planned: no sum of their lengths and offsets overflows.
fn check(blocks: &[Block]) -> Result<()> {
    let mut furthest = 0_u64;
    for (i, block) in blocks.iter().enumerate() {
        if block.steps.end < block.steps.start {
            let Range { start, end } = block.steps;
            return Err(refused(format!("block {i} is needed from step {start} to step {end}")));
        }
        let padded = block.bytes.checked_add(block.alignment.bytes());
        let reach = padded.and_then(|bytes| bytes.checked_add(block.fixed_offset()));
        let end = reach.and_then(|reach| furthest.checked_add(reach));
        furthest = end
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| refused("the blocks are longer than 2^63 bytes".to_owned()))?;
    }
    let fixed: Vec<_> = blocks.iter().filter(|block| block.offset.is_some()).cloned().collect();
    let offsets: Vec<_> = fixed.iter().filter_map(|block| block.offset).collect();
    verify(&fixed, &offsets).map(|_| ())
}

/// The length of all blocks one behind the other, those of larger alignment first. Of each
/// alignment the block with the most padding comes last, because a block of a smaller alignment can
/// begin in that padding.
fn unshared(blocks: &[Block]) -> u64 {
    let padding = |block: &Block| block.align_up(block.bytes) - block.bytes;
    let mut row: Vec<_> = blocks.iter().filter(|block| block.bytes > 0).collect();
    row.sort_unstable_by_key(|block| (Reverse(block.alignment), padding(block)));
    row.into_iter().fold(0, |end, block| block.align_up(end) + block.bytes)
}

/// The length of the memory that holds `blocks` at `offsets`.
fn end_of(blocks: &[Block], offsets: &[u64]) -> u64 {
    let places = blocks.iter().zip(offsets).filter(|(block, _)| !block.is_empty());
    places.map(|(block, offset)| offset + block.bytes).fold(0, u64::max)
}

/// An error about blocks that cannot be planned.
fn refused(reason: String) -> Error {
    Error::new(ErrorKind::Plan, reason)
}
