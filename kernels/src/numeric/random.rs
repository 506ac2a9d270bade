//! Random numbers by a seed: the Mersenne Twister MT19937, seeded and read as by NumPy's
//! `RandomState`.
//!
//! ONNX leaves the generator open. This one gives, for the same seed, the draws of ONNX's reference
//! evaluator. M. Matsumoto and T. Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998), 3 to 30.

use crate::exact::Exact;
const WORDS: usize = 624;
const MIDDLE: usize = 397;

/// A generator: its words, and which of them is the next.
#[derive(Debug, Clone)]
pub(crate) struct Twister {
    words: [u32; WORDS],
    next: usize,
}

impl Twister {
    /// The generator of `seed`.
    pub(crate) fn new(seed: u32) -> Self {
        let mut words = [seed; WORDS];
        let mut before = seed;
        for (i, word) in (1_u32..).zip(words.iter_mut().skip(1)) {
            before = 1_812_433_253_u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i);
            *word = before;
        }
        Self { words, next: WORDS }
    }

    fn word(&self, i: usize) -> u32 {
        self.words.debug_at(i % WORDS, 0)
    }

    fn twist(&mut self) {
        for i in 0..WORDS {
            let mixed = (self.word(i) & 0x8000_0000) | (self.word(i + 1) & 0x7fff_ffff);
            let odd = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
            let twisted = self.word(i + MIDDLE) ^ (mixed >> 1) ^ odd;
            self.words.debug_set(i, twisted);
        }
        self.next = 0;
    }

    /// 32 random bits.
    pub(crate) fn bits(&mut self) -> u32 {
        if self.next >= WORDS {
            self.twist();
        }
        let mut word = self.word(self.next);
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A number from 0 on and below 1, with 53 random bits.
    pub(crate) fn uniform(&mut self) -> f64 {
        let (high, low) = (self.bits() >> 5, self.bits() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_are_those_of_numpy() {
        // numpy.random.RandomState(seed).uniform(size=3)
        let cases = [
            (0, [0.548_813_503_927_324_8, 0.715_189_366_372_419_5, 0.602_763_376_071_643_9]),
            (42, [0.374_540_118_847_362_5, 0.950_714_306_409_916_2, 0.731_993_941_811_405_1]),
        ];
        for (seed, expected) in cases {
            let mut twister = Twister::new(seed);
            assert_eq!([(); 3].map(|()| twister.uniform()), expected);
        }
    }
}
