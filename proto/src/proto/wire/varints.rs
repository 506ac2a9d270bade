//! Counts, checks and decodes packed varints, a block at a time.
//!
//! The integers of a tensor are millions of varints. Read one by one, each would wait for the
//! length of the one before. Here the top bits of 64 bytes become one mask, which shows where all
//! varints of the block end and how long they are. Long payloads are split after whole varints, and
//! all cores work on the parts. The use of the numbers, and the errors about malformed ones, are
//! left to [`Packed`](super::Packed).

use std::sync::atomic::{AtomicBool, Ordering};

use super::spread;

/// How many bytes one mask covers.
const BLOCK: usize = 64;
/// The size of a part in bytes; it may be slightly larger.
const PART: usize = 256 << 10;
/// The least number of bytes for which several threads pay off.
const LONG: usize = 4 * PART;
/// The longest varint in bytes.
const LONGEST: usize = 10;
/// The continuation bits of eight bytes.
const TOPS: u64 = 0x8080_8080_8080_8080;

/// The continuation bits of a block, that of the first byte in the lowest bit.
#[inline]
fn continued(block: &[u8; BLOCK]) -> u64 {
    let (words, _) = block.as_chunks();
    words.iter().rev().fold(0, |mask, word| {
        // The product has the eight top bits side by side in its highest byte.
        let tops = (u64::from_le_bytes(*word) & TOPS).wrapping_mul(0x0002_0408_1020_4081);
        mask << 8 | tops >> 56
    })
}

/// How many varints end in `bytes`.
pub(super) fn count(bytes: &[u8]) -> usize {
    // A vector register holds many sums of one byte, and at most 64 ends do not overflow one.
    let ends = |bytes: &[u8]| usize::from(bytes.iter().map(|byte| 1 - (byte >> 7)).sum::<u8>());
    let (blocks, tail) = bytes.as_chunks::<BLOCK>();
    blocks.iter().map(|block| ends(block)).sum::<usize>() + ends(tail)
}

/// Checks the varints. With `alone`, only this thread is used.
///
/// # Errors
/// The position of the first varint that is cut off or too long.
pub(super) fn validate(bytes: &[u8], alone: bool) -> Result<(), usize> {
    if bytes.len() < LONG || alone {
        return validate_part(bytes);
    }
    let sound = AtomicBool::new(true);
    spread::share(parts(bytes), |part| {
        sound.fetch_and(validate_part(part).is_ok(), Ordering::Relaxed);
    });
    if sound.into_inner() { Ok(()) } else { validate_part(bytes) }
}

fn validate_part(bytes: &[u8]) -> Result<(), usize> {
    let (blocks, _) = bytes.as_chunks();
    let mut last = 0;
    let suspect = blocks.iter().position(|block| {
        let mask = continued(block);
        has_ten(mask, std::mem::replace(&mut last, mask))
    });
    let block = suspect.unwrap_or(blocks.len());
    // A varint that is too long or cut off may start in the block before.
    let from = (block * BLOCK).saturating_sub(LONGEST);
    validate_bytes(bytes, from)
}

/// Checks byte by byte; the varints that end before `from` are known to be valid.
fn validate_bytes(bytes: &[u8], from: usize) -> Result<(), usize> {
    debug_assert!(from <= bytes.len(), "a block of the bytes starts there");
    // If `from` were beyond the end, all bytes would be checked.
    let before = bytes.get(..from).unwrap_or_default();
    let mut start = before.iter().rposition(|byte| *byte < 0x80).map_or(0, |end| end + 1);
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        if *byte < 0x80 {
            start = at + 1;
        } else if at - start == LONGEST - 1 {
            return Err(start);
        }
    }
    if start == bytes.len() { Ok(()) } else { Err(start) }
}

/// Whether ten continuation bits in a row end in the block with this `mask`; `last` is the mask of
/// the block before.
#[inline]
fn has_ten(mask: u64, last: u64) -> bool {
    let two = mask & mask >> 1;
    let four = two & two >> 2;
    let inside = four & four >> 4 & two >> 8;
    inside != 0 || last.leading_ones() + mask.trailing_ones() >= 10
}

/// Splits `bytes` into parts of whole varints.
fn parts(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        // Fewer bytes than a part are the last part.
        let beyond = bytes.get(PART - 1..).unwrap_or_default();
        let end = beyond.iter().position(|byte| *byte < 0x80).map_or(bytes.len(), |at| PART + at);
        bytes.split_off(..end).filter(|part| !part.is_empty())
    })
}

/// A payload whose varints are counted; if it is long, in parts for several threads.
pub(crate) struct Counted<'a> {
    parts: Vec<(&'a [u8], usize)>,
    pub(crate) len: usize,
}

impl<'a> Counted<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut parts: Vec<_> = if bytes.len() < LONG || spread::cores() == 1 {
            vec![(bytes, count(bytes))]
        } else {
            parts(bytes).map(|part| (part, 0)).collect()
        };
        if parts.len() > 1 {
            spread::share(parts.iter_mut(), |(part, len)| *len = count(part));
        }
        let len = parts.iter().map(|(_, len)| len).sum();
        Self { parts, len }
    }

    /// Writes `element` of each varint to `slots`. The second value of `element` is whether the
    /// number fits its type; the result is whether all fit. `None` if there are not as many varints
    /// as slots, or one is malformed.
    pub(super) fn decode<E: Send>(
        self,
        mut slots: &mut [E],
        element: impl Fn(u64) -> (E, bool) + Sync,
    ) -> Option<bool> {
        if slots.len() != self.len {
            return None;
        }
        if let [(bytes, _)] = *self.parts {
            return Decoder::new(bytes, element).run(slots);
        }
        let job = |(part, len)| Some((part, slots.split_off_mut(..len)?));
        let jobs: Vec<_> = self.parts.into_iter().map(job).collect::<Option<_>>()?;
        let (sound, fits) = (AtomicBool::new(true), AtomicBool::new(true));
        spread::share(jobs.into_iter(), |(part, slots)| {
            let done = Decoder::new(part, &element).run(slots);
            sound.fetch_and(done.is_some(), Ordering::Relaxed);
            // For a malformed part `fits` does not matter: the result is `None`.
            fits.fetch_and(done.unwrap_or_default(), Ordering::Relaxed);
        });
        sound.into_inner().then_some(fits.into_inner())
    }
}

/// Reads the varints of a part in one thread.
struct Decoder<'a, F> {
    bytes: &'a [u8],
    element: F,
    /// Where the next varint starts.
    start: usize,
    /// Where the next block starts.
    at: usize,
    /// The mask of the block before.
    last: u64,
    fits: bool,
}

impl<'a, F> Decoder<'a, F> {
    fn new(bytes: &'a [u8], element: F) -> Self {
        Self { bytes, element, start: 0, at: 0, last: 0, fits: true }
    }

    /// Fills the slots, as [`Counted::decode`] documents.
    fn run<E>(mut self, mut slots: &mut [E]) -> Option<bool>
    where
        F: Fn(u64) -> (E, bool),
    {
        let (blocks, tail) = self.bytes.as_chunks();
        for block in blocks {
            let mask = continued(block);
            let here = slots.split_off_mut(..mask.count_zeros() as usize)?;
            self.block(block, mask, here)?;
        }
        for end in (self.at + 1..).zip(tail).filter(|(_, byte)| **byte < 0x80).map(|(end, _)| end) {
            let slot = slots.split_off_first_mut().filter(|_| end - self.start <= LONGEST)?;
            let number = any_len(self.bytes, self.start);
            self.put(slot, number);
            self.start = end;
        }
        (self.start == self.bytes.len() && slots.is_empty()).then_some(self.fits)
    }

    #[inline(always)]
    fn put<E>(&mut self, slot: &mut E, number: u64)
    where
        F: Fn(u64) -> (E, bool),
    {
        let (element, fits) = (self.element)(number);
        *slot = element;
        self.fits &= fits;
    }

    /// Reads the varints that end in a block.
    #[inline(always)]
    fn block<E>(&mut self, block: &[u8; BLOCK], mask: u64, slots: &mut [E]) -> Option<()>
    where
        F: Fn(u64) -> (E, bool),
    {
        // The bytes before which at least 1, 2, 3 and 4 bytes of the same varint come.
        let [one, two, three, four] = [1, 2, 3, 4].map(|n| mask << n | self.last >> (64 - n));
        if mask | one == 0 {
            for (slot, byte) in slots.iter_mut().zip(block) {
                self.put(slot, u64::from(*byte));
            }
            self.start += BLOCK;
        } else if one & two == 0 && self.at > 0 {
            self.each(mask, slots, |bytes, _, end| up_to_two(bytes, end));
        } else if one & two & three & four == 0 {
            self.each(mask, slots, |bytes, start, _| up_to_four(bytes, start));
        } else if has_ten(mask, self.last) {
            return None;
        } else {
            self.each(mask, slots, |bytes, start, _| any_len(bytes, start));
        }
        self.at += BLOCK;
        self.last = mask;
        Some(())
    }

    /// Fills the slots with `number` of the bytes and the start and end of each varint.
    #[inline(always)]
    fn each<E>(&mut self, mask: u64, slots: &mut [E], number: impl Fn(&[u8], usize, usize) -> u64)
    where
        F: Fn(u64) -> (E, bool),
    {
        // Local copies are kept in registers; through `self`, each number would wait for the one
        // before.
        let (bytes, at) = (self.bytes, self.at);
        let (mut start, mut fits, mut ends) = (self.start, self.fits, !mask);
        for slot in slots {
            let end = at + ends.trailing_zeros() as usize + 1;
            let (element, fit) = (self.element)(number(bytes, start, end));
            *slot = element;
            fits &= fit;
            start = end;
            ends &= ends.wrapping_sub(1);
        }
        (self.start, self.fits) = (start, fits);
    }
}

/// The `N` bytes from `start` on, if there are as many.
#[inline(always)]
fn array<const N: usize>(bytes: &[u8], start: usize) -> Option<[u8; N]> {
    bytes.get(start..)?.first_chunk().copied()
}

/// The eight bytes from `start` on, with zeros for those beyond the end.
#[inline(always)]
fn word(bytes: &[u8], start: usize) -> u64 {
    array(bytes, start).map_or_else(|| short_word(bytes, start), u64::from_le_bytes)
}

#[cold]
fn short_word(bytes: &[u8], start: usize) -> u64 {
    // `start` may be beyond the end: then all bytes are zeros.
    let rest = bytes.get(start..).unwrap_or_default();
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// The first varint of a word, with zeros for the bytes after it.
#[inline(always)]
fn first(word: u64) -> u64 {
    let stops = !word & TOPS;
    word & (stops ^ stops.wrapping_sub(1))
}

/// The varint of one or two bytes that ends before `end`, of which at least two bytes exist before
/// it.
#[inline(always)]
fn up_to_two(bytes: &[u8], end: usize) -> u64 {
    debug_assert!((2..=bytes.len()).contains(&end), "a varint ends inside the bytes");
    let [low, high] = array(bytes, end - 2).unwrap_or_default();
    let two = u64::from(high) << 7 | u64::from(low & 0x7f);
    if low >= 0x80 { two } else { u64::from(high) }
}

/// The varint of at most four bytes that starts at `start`.
#[inline(always)]
fn up_to_four(bytes: &[u8], start: usize) -> u64 {
    let word = first(word(bytes, start));
    let pairs = word & 0x007f_007f | (word & 0x7f00_7f00) >> 1;
    pairs & 0x3fff | (pairs & 0x3fff_0000) >> 2
}

/// The varint of at most ten bytes that starts at `start`; bits above the 64th are dropped. All
/// lengths take the same path: where lengths alternate, the processor would mispredict a branch.
#[inline(always)]
fn any_len(bytes: &[u8], start: usize) -> u64 {
    let word = word(bytes, start);
    let rest = match array(bytes, start + 8) {
        Some(rest) => u64::from(u16::from_le_bytes(rest)),
        None => short_word(bytes, start + 8),
    };
    // The ninth byte has seven bits and the tenth one. The mask removes both if the varint ends
    // before.
    let high = rest & 0x7f | rest >> 1 & rest & 0x80;
    let has_ninth = u64::from(word & TOPS == TOPS).wrapping_neg();
    squeeze(first(word)) | high << 56 & has_ninth
}

/// The lower seven bits of each of eight bytes, side by side.
#[inline(always)]
fn squeeze(word: u64) -> u64 {
    let pairs = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    fours & 0x0fff_ffff | fours >> 32 << 28
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::writer::push_varint;
    use super::*;

    fn encoded(numbers: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| push_varint(&mut bytes, *number));
        bytes
    }

    fn decoded(bytes: &[u8], len: usize) -> Option<Vec<u64>> {
        let mut slots = vec![0; len];
        Counted::new(bytes).decode(&mut slots, |number| (number, true)).map(|_| slots)
    }

    /// `count` numbers whose varints have `lens` bytes, in a cycle.
    fn of_lens(lens: &[u32], count: usize) -> Vec<u64> {
        let of_len = |len: &u32| u64::MAX >> (64 - (7 * len).min(64));
        lens.iter().cycle().map(of_len).take(count).collect()
    }

    /// What [`validate`] must return, found byte by byte.
    fn slowly(bytes: &[u8]) -> Result<(), usize> {
        validate_bytes(bytes, 0)
    }

    #[test]
    fn varints_of_every_two_lengths_are_decoded() {
        for a in 1..=10 {
            for b in 1..=10 {
                for lens in [&[a, b][..], &[a, a, b], &[1, a, b, 1, 1], &[a; 13]] {
                    let numbers = of_lens(lens, 500);
                    let bytes = encoded(&numbers);
                    assert_eq!(count(&bytes), 500);
                    assert_eq!(validate(&bytes, false), Ok(()));
                    assert_eq!(decoded(&bytes, 500), Some(numbers), "{lens:?}");
                }
            }
        }
    }

    #[test]
    fn long_payloads_are_decoded_in_parts() {
        for lens in [&[1][..], &[1, 2], &[2, 1, 3, 10, 5], &[10]] {
            let numbers = of_lens(lens, LONG + 5);
            let bytes = encoded(&numbers);
            assert_eq!(count(&bytes), numbers.len());
            assert_eq!(validate(&bytes, false), Ok(()));
            assert_eq!(decoded(&bytes, numbers.len()), Some(numbers), "{lens:?}");
        }
    }

    #[test]
    fn overlong_varints_are_decoded_and_bits_above_the_64th_are_dropped() {
        let cases: &[(&[u8], u64)] = &[
            (&[0x80, 0], 0),
            (&[0x81, 0x80, 0x80, 0], 1),
            (&[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 1),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], u64::MAX),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02], 0),
        ];
        for (bytes, number) in cases {
            for times in [1, 7, 100] {
                let bytes = bytes.repeat(times);
                assert_eq!(decoded(&bytes, times), Some(vec![*number; times]), "{bytes:?}");
            }
        }
    }

    #[test]
    fn malformed_varints_are_found() {
        for before in (0..200).chain([LONG - 3, LONG + PART - 5]) {
            for wrong in [&[0x80; 10][..], &[0xff; 11], &[0x80], &[0x80; 9]] {
                for tail in [0, 1, 80] {
                    let tail = if wrong.len() < 10 { 0 } else { tail };
                    let bytes = [&vec![1; before], wrong, &vec![1; tail]].concat();
                    assert_eq!(validate(&bytes, false), Err(before));
                    assert_eq!(validate(&bytes, true), Err(before));
                    assert_eq!(decoded(&bytes, count(&bytes)), None);
                }
            }
        }
    }

    #[test]
    fn another_number_of_slots_than_varints_is_refused() {
        for len in [0, 1, 63, 64, 65, LONG, LONG + 1] {
            let bytes = vec![1; len];
            assert_eq!(decoded(&bytes, len), Some(vec![1; len]));
            assert_eq!(decoded(&bytes, len + 1), None);
            if len > 0 {
                assert_eq!(decoded(&bytes, len - 1), None);
            }
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_reported() {
        for (len, at) in [(1, 0), (100, 99), (3 * LONG, LONG)] {
            let mut bytes = vec![1; len];
            let mut slots = vec![0; len];
            let element = |number| (number, number < 2);
            assert_eq!(Counted::new(&bytes).decode(&mut slots, element), Some(true));
            bytes[at] = 2;
            assert_eq!(Counted::new(&bytes).decode(&mut slots, element), Some(false));
        }
    }

    proptest! {
        #[test]
        fn encoded_numbers_are_decoded_unchanged(numbers in vec((any::<u64>(), 0_u32..64), 0..400)) {
            let numbers: Vec<_> = numbers.iter().map(|(bits, shift)| bits >> shift).collect();
            let bytes = encoded(&numbers);
            prop_assert_eq!(validate(&bytes, false), Ok(()));
            prop_assert_eq!(decoded(&bytes, numbers.len()), Some(numbers));
        }

        #[test]
        fn any_bytes_are_validated_as_byte_by_byte(
            bytes in vec(prop_oneof![5 => 0x80_u8.., 1 => any::<u8>()], 0..400),
        ) {
            let sound = validate(&bytes, false);
            prop_assert_eq!(sound, slowly(&bytes));
            prop_assert_eq!(decoded(&bytes, count(&bytes)).is_some(), sound.is_ok());
        }
    }
}
