//! FLOAT16 widened to FLOAT, many elements at a time: by an instruction of the processor where it
//! has one.
//!
//! Widening is exact, so an instruction gives the bits of [`from_f16`], except those of a NaN.

use half::f16;

use crate::numeric::rounding::from_f16;

/// Writes the value of each element of `halves` to `room`, which is as long. NaNs stay NaNs, of
/// unspecified bits.
#[inline(always)]
pub(crate) fn widen(halves: &[f16], room: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if x86::is_here() {
        return x86::widen(halves, room);
    }
    widen_in_software(halves, room);
}

#[inline(always)]
fn widen_in_software(halves: &[f16], room: &mut [f32]) {
    room.iter_mut().zip(halves).for_each(|(to, half)| *to = from_f16(*half));
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(unsafe_code)] // a call of a function for processors that have F16C

    use std::arch::x86_64::{__m128i, __m256, _mm256_cvtph_ps};

    use half::f16;

    use super::widen_in_software;

    /// The elements that one instruction widens.
    const LANES: usize = 8;

    /// Whether the processor has F16C. Its registers are those of AVX.
    pub(super) fn is_here() -> bool {
        is_x86_feature_detected!("f16c") && is_x86_feature_detected!("avx")
    }

    /// See [`super::widen`]. Only where [`is_here`].
    pub(super) fn widen(halves: &[f16], room: &mut [f32]) {
        assert!(is_here(), "F16C is called where it is");
        // SAFETY: the processor has the features that the function is compiled for.
        unsafe { by_f16c(halves, room) }
    }

    #[target_feature(enable = "avx,f16c")]
    fn by_f16c(halves: &[f16], room: &mut [f32]) {
        let (packed, last) = halves.as_chunks::<LANES>();
        let (wide, last_wide) = room.as_chunks_mut::<LANES>();
        for (packed, wide) in packed.iter().zip(wide) {
            let widened: __m256 = _mm256_cvtph_ps(bytemuck::cast::<_, __m128i>(*packed));
            *wide = bytemuck::cast(widened);
        }
        widen_in_software(last, last_wide);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_that_of_software_at_every_length() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for len in (0..40).chain([all.len()]) {
            for start in [0, 1, 1000, 0x7bf0, 0xfbf0] {
                let halves = if len == all.len() { &all[..] } else { &all[start..start + len] };
                let mut room = vec![1.0; halves.len()];
                widen(halves, &mut room);
                for (half, found) in halves.iter().zip(room) {
                    let expected = from_f16(*half);
                    let both_nan = expected.is_nan() && found.is_nan();
                    assert!(both_nan || found.to_bits() == expected.to_bits(), "{half:?}");
                }
            }
        }
    }
}
