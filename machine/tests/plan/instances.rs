//! Lists of blocks to plan, the same in every run.

use onnx_container_machine::plan::Block;

/// Numbers that look random: xorshift, with the multiplier of Vigna's xorshift64*.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number under `end`.
    pub fn under(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// The capacity of MiniMalloc's benchmark, in bytes.
pub const CAPACITY: u64 = 1 << 20;

/// The numbers of blocks of MiniMalloc's eleven instances.
pub const HARD_SIZES: [u64; 11] = [154, 203, 220, 244, 276, 308, 340, 372, 400, 430, 454];

/// `count` blocks that fit [`CAPACITY`] and hardly less, hard for greedy orders.
///
/// A rectangle of steps and bytes is cut in two again and again, the larger pieces first; then
/// three pieces in ten lose up to a twentieth of their bytes.
pub fn hard(count: u64, seed: u64) -> Vec<Block> {
    const UNIT: u64 = 1024;
    let mut numbers = Numbers::new(seed);
    let mut pieces = vec![[0, CAPACITY / UNIT, 0, CAPACITY / UNIT]];
    while (pieces.len() as u64) < count {
        let area = |i: usize| (pieces[i][1] - pieces[i][0]) * (pieces[i][3] - pieces[i][2]);
        let some = (0..4).map(|_| numbers.under(pieces.len() as u64) as usize);
        let largest = some.max_by_key(|i| area(*i)).unwrap();
        let side = 2 * numbers.under(2) as usize;
        let [from, to] = [pieces[largest][side], pieces[largest][side + 1]];
        if to - from < 2 {
            continue;
        }
        let cut = from + 1 + numbers.under(to - from - 1);
        let mut other = pieces[largest];
        pieces[largest][side + 1] = cut;
        other[side] = cut;
        pieces.push(other);
    }
    let block = |[first, end, bottom, top]: [u64; 4]| {
        let bytes = top - bottom;
        let less = if numbers.under(10) < 3 { numbers.under(bytes / 20 + 1) } else { 0 };
        Block::new(first * UNIT..end * UNIT, (bytes - less) * UNIT)
    };
    pieces.into_iter().map(block).collect()
}

/// The blocks of a network of `count` steps: each step reads the result before it, every fourth one
/// also an older one.
pub fn network(count: u64, seed: u64) -> Vec<Block> {
    let mut numbers = Numbers::new(seed);
    let mut blocks: Vec<_> =
        (0..count).map(|i| Block::new(i..i + 2, 64 * (1 + numbers.under(4096)))).collect();
    for step in (4..count).step_by(4) {
        let older = (step - 1 - numbers.under(step.min(40))) as usize;
        blocks[older].steps.end = blocks[older].steps.end.max(step + 1);
    }
    blocks
}
