//! Whether a plan is right, decided without any of the code that made it.
//!
//! One walk over the steps keeps the blocks that are needed now, by offset. A block that starts is
//! compared with its two neighbours only: the others are known not to overlap.

use std::collections::BTreeMap;

use super::{Block, refused};
use crate::Result;

/// Checks `offsets` against `blocks` and returns the length of the memory that holds them all, in
/// bytes.
///
/// # Errors
/// [`ErrorKind::Plan`](crate::ErrorKind::Plan) when there are not as many offsets as blocks, when
/// an offset is not aligned or not the fixed one, when a block ends beyond 2^63 bytes, or when two
/// blocks that one step needs share bytes.
pub fn verify(blocks: &[Block], offsets: &[u64]) -> Result<u64> {
    if blocks.len() != offsets.len() {
        return Err(refused(format!("{} blocks have {} offsets", blocks.len(), offsets.len())));
    }
    let mut arena_bytes = 0;
    let mut changes = Vec::with_capacity(2 * blocks.len());
    for (i, (block, offset)) in blocks.iter().zip(offsets).enumerate() {
        let end =
            placed_end(block, *offset).map_err(|reason| refused(format!("block {i} {reason}")))?;
        if !block.is_empty() {
            arena_bytes = end.max(arena_bytes);
            changes.push((block.steps.start, true, *offset, end, i));
            changes.push((block.steps.end, false, *offset, end, i));
        }
    }
    // At a step that is both, the end of one block comes before the start of another.
    changes.sort_unstable();
    let mut live = BTreeMap::new();
    for (step, starts, offset, end, i) in changes {
        if !starts {
            live.remove(&offset);
            continue;
        }
        let below = live.range(..=offset).next_back();
        let above = live.range(offset..).next();
        let other = below
            .filter(|(_, (below_end, _))| *below_end > offset)
            .or_else(|| above.filter(|(above_offset, _)| **above_offset < end));
        if let Some((_, (_, other))) = other {
            return Err(refused(format!("blocks {other} and {i} share bytes at step {step}")));
        }
        live.insert(offset, (end, i));
    }
    Ok(arena_bytes)
}

/// Where `block` ends at `offset`, or what is wrong with it there.
fn placed_end(block: &Block, offset: u64) -> Result<u64, String> {
    if let Some(fixed) = block.offset.filter(|fixed| *fixed != offset) {
        return Err(format!("lies at {offset}, and is fixed at {fixed}"));
    }
    if !block.alignment.is_aligned(offset) {
        return Err(format!("lies at {offset}, no multiple of {}", block.alignment.bytes()));
    }
    let end = offset.checked_add(block.bytes).filter(|end| i64::try_from(*end).is_ok());
    end.ok_or_else(|| "ends beyond 2^63 bytes".to_owned())
}
