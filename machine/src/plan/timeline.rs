//! The steps of a plan, reduced to those at which something changes.
//!
//! Between two neighbouring beginnings and ends of blocks nothing changes, so those steps are one
//! *section*. Algorithms count sections: a program has at most twice as many as blocks, however its
//! steps are numbered.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Block;
use crate::exact::{Exact, debug_aligned};

/// The sections of a list of blocks.
#[derive(Debug)]
pub struct Timeline {
    /// The first step of each section, and the end of the last one.
    bounds: Vec<u64>,
}

impl Timeline {
    pub fn new(blocks: &[Block]) -> Self {
        let needed = blocks.iter().filter(|block| !block.is_empty());
        let mut bounds: Vec<_> = needed.flat_map(|b| [b.steps.start, b.steps.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        Self { bounds }
    }

    /// How many sections there are.
    pub fn len(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// The sections in which `block` is needed; none for an empty block.
    pub fn sections(&self, block: &Block) -> Range<usize> {
        if block.is_empty() {
            return 0..0;
        }
        let index = |step: u64| self.bounds.partition_point(|bound| *bound < step);
        index(block.steps.start)..index(block.steps.end)
    }

    /// The bytes that are needed in each section.
    fn needed(&self, blocks: &[Block]) -> Vec<u64> {
        let mut starts = vec![0_u64; self.len() + 1];
        let mut ends = vec![0_u64; self.len() + 1];
        for block in blocks.iter().filter(|block| !block.is_empty()) {
            let sections = self.sections(block);
            let ends_of_steps = [(&mut starts, sections.start), (&mut ends, sections.end)];
            for (sums, section) in ends_of_steps {
                let sum = sums.debug_at(section, 0) + block.bytes;
                sums.debug_set(section, sum);
            }
        }
        let changes = starts.iter().zip(&ends).take(self.len());
        let sums = changes.scan(0_u64, |sum, (started, ended)| {
            *sum = *sum + started - ended;
            Some(*sum)
        });
        sums.collect()
    }

    /// For each block, the most bytes that are needed in one of its sections.
    pub fn pressures(&self, blocks: &[Block]) -> Vec<u64> {
        let most = MostOfRange::new(self.needed(blocks));
        blocks.iter().map(|block| most.of(self.sections(block))).collect()
    }

    /// The least that any plan needs, in bytes, and the first step that needs it.
    ///
    /// Offsets are multiples of the alignment that all blocks have at least. So each block of one
    /// step takes its length rounded up to that alignment, except the one that lies highest.
    pub fn lower_bound(&self, blocks: &[Block]) -> (u64, u64) {
        let needed = || blocks.iter().filter(|block| !block.is_empty());
        let Some(unit) = needed().map(|block| block.alignment).min() else { return (0, 0) };
        let mut changes: Vec<_> = needed()
            .flat_map(|b| {
                let padded = debug_aligned(unit, b.bytes);
                [(b.steps.start, true), (b.steps.end, false)]
                    .map(|(step, starts)| (step, starts, padded, padded - b.bytes))
            })
            .collect();
        // At a step that is both, the end of one block comes before the start of another.
        changes.sort_unstable();
        let (mut live, mut peak) = (Live::default(), (0, 0));
        for (step, starts, padded, padding) in changes {
            live.change(starts, padded, padding);
            if live.least() > peak.0 {
                peak = (live.least(), step);
            }
        }
        let fixed_ends = needed().filter_map(|block| Some(block.offset? + block.bytes));
        (fixed_ends.fold(peak.0, u64::max), peak.1)
    }
}

/// Numbers, and the greatest of any range of them in constant time.
#[derive(Debug)]
struct MostOfRange {
    /// At level l, for each number, the greatest of the 2^l that begin there.
    levels: Vec<Vec<u64>>,
}

impl MostOfRange {
    fn new(numbers: Vec<u64>) -> Self {
        let (mut levels, mut last, mut len) = (Vec::new(), numbers, 1);
        while last.len() > len {
            let later = last.iter().skip(len);
            let next = last.iter().zip(later).map(|(a, b)| *a.max(b)).collect();
            levels.push(std::mem::replace(&mut last, next));
            len *= 2;
        }
        levels.push(last);
        Self { levels }
    }

    /// The greatest number of `range`; 0 when it is empty.
    fn of(&self, range: Range<usize>) -> u64 {
        let Some(level) = range.len().checked_ilog2() else { return 0 };
        let last = range.end - (1 << level);
        let [numbers, ..] = self.levels.debug_part(level as usize..) else { return 0 };
        numbers.debug_at(range.start, 0).max(numbers.debug_at(last, 0))
    }
}

/// The blocks of one step.
#[derive(Debug, Default)]
struct Live {
    /// Their lengths, rounded up.
    padded: u64,
    /// How often each number of bytes was added by rounding up.
    paddings: BTreeMap<u64, usize>,
}

impl Live {
    fn change(&mut self, starts: bool, padded: u64, padding: u64) {
        let count = self.paddings.entry(padding).or_default();
        if starts {
            self.padded += padded;
            *count += 1;
            return;
        }
        self.padded -= padded;
        *count -= 1;
        if *count == 0 {
            self.paddings.remove(&padding);
        }
    }

    /// The least that the blocks need: the one that lies highest is not rounded up.
    fn least(&self) -> u64 {
        self.padded - self.paddings.last_key_value().map_or(0, |(padding, _)| *padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_range_is_that_of_its_numbers() {
        for len in 0..20_u64 {
            let numbers: Vec<_> = (0..len).map(|i| i * 7 % 11).collect();
            let most = MostOfRange::new(numbers.clone());
            for start in 0..=numbers.len() {
                for end in start..=numbers.len() {
                    let expected = numbers[start..end].iter().copied().fold(0, u64::max);
                    assert_eq!(most.of(start..end), expected, "{start}..{end} of {len}");
                }
            }
        }
    }
}
