//! Asks the processor for memory before it is needed: its only unsafe code.
//!
//! A processor notices by itself that memory is read from its start to its end, and reads ahead,
//! but only while it waits for that memory. A pass that computes with one piece for long before it
//! touches the next one then takes the time of both.
#![allow(unsafe_code)] // an instruction that has a pointer as its operand

/// The bytes that a processor reads at once.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for the bytes that are `distance` bytes behind those of `elements`, and as many. Where
/// nothing is, or the processor has no such instruction, this does nothing.
#[inline(always)]
pub(crate) fn behind<T>(elements: &[T], distance: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(elements)).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = elements.as_ptr().cast::<i8>().wrapping_add(distance).wrapping_add(line);
        // SAFETY: the instruction is a hint, part of every x86-64. It reads nothing that a program
        // can see and faults at no address, so that the pointer may point anywhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (elements, distance);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_asked_for() {
        let elements = [7_u16; 1000];
        for distance in [0, 1, 4096, usize::MAX, usize::MAX / 2] {
            behind(&elements, distance);
            behind(&elements[..0], distance);
        }
        assert_eq!(elements, [7; 1000]);
    }
}
