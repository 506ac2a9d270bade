//! Rounding of an `f32` to every narrower float type, as numpy and `ml_dtypes` round.
//!
//! The nearest value is taken, and of two at the same distance the one with the even code;
//! subnormals are kept. The types differ in what they have beyond their largest value and for NaN:
//! see [`Limits`]. Whatever narrows floats in this crate does it here, so that it is done in one
//! way.

use half::{bf16, f16};

use crate::dtype::DataType;

/// `value` as FLOAT16. A NaN stays one of its sign; its payload is not promised.
pub fn to_f16(value: f32) -> f16 {
    f16::from_f32(value)
}

/// `value` as BFLOAT16. Every NaN of one sign becomes the same.
pub fn to_bf16(value: f32) -> bf16 {
    if value.is_nan() { bf16::NAN.copysign(sign_of(value)) } else { bf16::from_f32(value) }
}

fn sign_of(value: f32) -> bf16 {
    if value.is_sign_negative() { bf16::NEG_ONE } else { bf16::ONE }
}

/// A float type of 8 bits or fewer.
#[derive(Debug, Clone, Copy)]
pub enum SmallFloat {
    /// A sign, an exponent and a mantissa.
    Signed {
        /// The number of mantissa bits.
        mantissa: u8,
        /// What is subtracted from the exponent bits.
        bias: i32,
        /// What the type has beyond its finite values.
        limits: Limits,
    },
    /// FLOAT8E8M0: an exponent alone.
    Exponent,
}

/// What a type has beyond its finite values.
#[derive(Debug, Clone, Copy)]
pub enum Limits {
    /// Infinity, NaN, and a zero of each sign.
    Infinity { largest: u8, infinity: u8, nan: u8 },
    /// NaN and a zero of each sign; what is too large becomes NaN.
    Nan { largest: u8, nan: u8 },
    /// One NaN, in the place of the negative zero; what is too large becomes NaN.
    OneNan,
    /// Only finite values: what is too large becomes the largest one, and NaN becomes a zero of the
    /// other sign.
    Finite { largest: u8 },
}

impl SmallFloat {
    /// The rules of `dtype`, if it is such a type.
    pub fn of(dtype: DataType) -> Option<Self> {
        let signed = |mantissa, bias, limits| Some(Self::Signed { mantissa, bias, limits });
        match dtype {
            DataType::Float8E4M3Fn => signed(3, 7, Limits::Nan { largest: 0x7e, nan: 0x7f }),
            DataType::Float8E4M3Fnuz => signed(3, 8, Limits::OneNan),
            DataType::Float8E5M2 => {
                signed(2, 15, Limits::Infinity { largest: 0x7b, infinity: 0x7c, nan: 0x7e })
            }
            DataType::Float8E5M2Fnuz => signed(2, 16, Limits::OneNan),
            DataType::Float8E8M0 => Some(Self::Exponent),
            DataType::Float4E2M1 => signed(1, 1, Limits::Finite { largest: 0x07 }),
            DataType::Float6E2M3 => signed(3, 1, Limits::Finite { largest: 0x1f }),
            DataType::Float6E3M2 => signed(2, 3, Limits::Finite { largest: 0x1f }),
            _ => None,
        }
    }

    /// The code of the value that `value` is rounded to.
    pub fn code(self, value: f32) -> u8 {
        match self {
            Self::Signed { mantissa, bias, limits } => {
                limits.code(value, magnitude(value, mantissa, bias))
            }
            Self::Exponent => exponent(value),
        }
    }
}

impl Limits {
    /// The code of `value`, whose rounded magnitude has the code `magnitude`; `None` where that has
    /// too many bits.
    fn code(self, value: f32, magnitude: Option<u8>) -> u8 {
        let up_to = |largest: u8| magnitude.filter(|code| *code <= largest && value.is_finite());
        match self {
            Self::Infinity { nan, .. } if value.is_nan() => signed(value, nan),
            Self::Infinity { largest, infinity, .. } => {
                signed(value, up_to(largest).unwrap_or(infinity))
            }
            Self::Nan { largest, nan } => signed(value, up_to(largest).unwrap_or(nan)),
            Self::OneNan => match up_to(0x7f) {
                Some(0) => 0,
                Some(code) => signed(value, code),
                None => 0x80,
            },
            // ml_dtypes has no code for NaN here and takes the zero of the other sign.
            Self::Finite { largest } if value.is_nan() => zero(-value, largest),
            Self::Finite { largest } => zero(value, largest) | up_to(largest).unwrap_or(largest),
        }
    }
}

/// `code`, a magnitude of seven bits, with the sign of `value`.
fn signed(value: f32, code: u8) -> u8 {
    code | zero(value, 0x7f)
}

/// The zero with the sign of `value` in a type whose largest value has the code `largest`.
fn zero(value: f32, largest: u8) -> u8 {
    if value.is_sign_negative() { largest + 1 } else { 0 }
}

/// The code of the magnitude of `value`, rounded to the nearest even one, as if the type had no
/// largest value; `None` where that is more than 8 bits.
fn magnitude(value: f32, mantissa: u8, bias: i32) -> Option<u8> {
    let bits = value.abs().to_bits().cast_signed();
    // The value is `significand * 2^(exponent - 23)`.
    let (significand, exponent) = match bits >> 23 {
        0 => (bits, -126),
        biased => ((bits & 0x7f_ffff) | 0x80_0000, biased - 127),
    };
    let at_least = exponent.max(1 - bias);
    let dropped = at_least - exponent + 23 - i32::from(mantissa);
    let code = ((at_least + bias - 1) << mantissa) + shifted(significand, dropped);
    u8::try_from(code).ok()
}

/// `significand`, which has 24 bits, without its `dropped` lowest bits, of which there is at least
/// one, rounded to the nearest even number.
fn shifted(significand: i32, dropped: i32) -> i32 {
    if dropped > 25 {
        return 0;
    }
    let (half, odd) = (1 << (dropped - 1), significand >> dropped & 1);
    (significand + half - 1 + odd) >> dropped
}

/// The nearest power of two as FLOAT8E8M0, of two the larger one. The type has neither zero nor
/// negative numbers; they become NaN, as infinity does.
fn exponent(value: f32) -> u8 {
    const NAN: u8 = 0xff;
    /// Halfway between the two least powers, which are below the normal numbers of `f32`.
    const SECOND: u32 = 0x60_0000;
    match value.to_bits() {
        1..SECOND => 0,
        bits @ SECOND..0x7f80_0000 => {
            u8::try_from((bits.max(0x80_0000) + 0x40_0000) >> 23).unwrap_or(NAN)
        }
        _ => NAN,
    }
}
