//! Choices by a seed: the generator is SplitMix64.

/// A sequence of choices.
#[derive(Debug)]
pub struct Choices(u64);

/// Numbers at which sizes, indices and axes go wrong.
const NUMBERS: [i64; 18] = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    5,
    8,
    64,
    1000,
    65_536,
    -65_536,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 40,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

impl Choices {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Whether something happens that does so `percent` times of 100.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`.
    pub fn pick<'i, T>(&mut self, items: &'i [T]) -> Option<&'i T> {
        (!items.is_empty()).then(|| &items[self.below(items.len())])
    }

    /// One of `items`, to change it.
    pub fn pick_mut<'i, T>(&mut self, items: &'i mut [T]) -> Option<&'i mut T> {
        (!items.is_empty()).then(|| &mut items[self.below(items.len())])
    }

    /// An integer near `old`, or one at which things go wrong.
    pub fn integer(&mut self, old: i64) -> i64 {
        match self.below(4) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            _ => NUMBERS[self.below(NUMBERS.len())],
        }
    }

    /// A size of a dimension: mostly a small one.
    pub fn size(&mut self) -> i64 {
        if self.chance(90) { self.below(6) as i64 } else { self.integer(2) }
    }

    /// A float, any of them.
    pub fn float(&mut self) -> f32 {
        match self.below(3) {
            0 => self.integer(0) as f32,
            1 => f32::from_bits(self.bits() as u32),
            _ => self.below(1000) as f32 / 250.0 - 2.0,
        }
    }
}
