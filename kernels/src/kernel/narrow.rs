//! Numbers of at most 8 bits for which Rust has no type with arithmetic: integers of 2 and 4 bits,
//! and floats of 4, 6 and 8 bits.
//!
//! A number is a code, one a byte, in the low bits. The value of every code is a `f32`, so tables
//! of 256 values serve what reads them. Rounding is to the nearest value, ties to even.

use std::borrow::Cow;

use microfloat::{
    f4e2m1fn, f6e2m3fn, f6e3m2fn, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu,
};
use onnx_container_proto::DataType;

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::call::Call;
use crate::kernel::run_cx::RunCx;
use crate::numeric::nan::OneNan;
use crate::numeric::rounding::odd_f32;
use crate::numeric::{Number, for_type};

/// The value of a code of `dtype`; `None` for other types.
pub(crate) fn decode(dtype: DataType) -> Option<fn(u8) -> f32> {
    Some(match dtype {
        DataType::Uint2 | DataType::Uint4 => |code| f32::from(code),
        DataType::Int2 => |code| f32::from((code << 6).cast_signed() >> 6),
        DataType::Int4 => |code| f32::from((code << 4).cast_signed() >> 4),
        DataType::Float4E2M1 => |code| f4e2m1fn::from_bits(code).to_f32(),
        DataType::Float6E2M3 => |code| f6e2m3fn::from_bits(code).to_f32(),
        DataType::Float6E3M2 => |code| f6e3m2fn::from_bits(code).to_f32(),
        DataType::Float8E4M3Fn => |code| f8e4m3fn::from_bits(code).to_f32(),
        DataType::Float8E4M3Fnuz => |code| f8e4m3fnuz::from_bits(code).to_f32(),
        DataType::Float8E5M2 => |code| f8e5m2::from_bits(code).to_f32(),
        DataType::Float8E5M2Fnuz => |code| f8e5m2fnuz::from_bits(code).to_f32(),
        DataType::Float8E8M0 => |code| f8e8m0fnu::from_bits(code).to_f32(),
        _ => return None,
    })
}

/// The lowest and highest value of an integer type of less than a byte.
pub(crate) fn bounds(dtype: DataType) -> Option<(f32, f32)> {
    match dtype {
        DataType::Uint2 => Some((0.0, 3.0)),
        DataType::Int2 => Some((-2.0, 1.0)),
        DataType::Uint4 => Some((0.0, 15.0)),
        DataType::Int4 => Some((-8.0, 7.0)),
        _ => None,
    }
}

/// How a number becomes FLOAT8E8M0, a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundMode {
    Up,
    Down,
    /// To the nearest power; from the middle of two, up.
    Nearest,
}

/// What attributes say about a conversion to floats of 8 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounding {
    /// A value out of range becomes the highest or lowest finite one, not an infinity or NaN.
    pub(crate) saturate: bool,
    pub(crate) mode: RoundMode,
}

impl Rounding {
    /// The attributes `saturate` and `round_mode`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when they are of another kind, or the mode is not known.
    pub(crate) fn of(call: &Call<'_>) -> Result<Self> {
        let mode = match call.str_or("round_mode", "up")? {
            "up" => RoundMode::Up,
            "down" => RoundMode::Down,
            "nearest" => RoundMode::Nearest,
            other => {
                let reason = format!("the round_mode `{other}` is not up, down or nearest");
                return Err(Error::new(ErrorKind::InvalidModel, reason));
            }
        };
        Ok(Self { saturate: call.flag("saturate", true)?, mode })
    }

    /// The code of `value` in `dtype`, rounded once; the NaN of a type is its positive one. An
    /// integer type takes the integer part, modulo its width.
    ///
    /// # Errors
    /// [`ErrorKind::Type`] when `dtype` is not one of [`decode`].
    pub(crate) fn encode(self, dtype: DataType) -> Result<impl Fn(f64) -> u8> {
        let nearest: fn(f32) -> u8 = match dtype {
            DataType::Uint2 | DataType::Uint4 | DataType::Int2 | DataType::Int4 => |_| 0,
            DataType::Float4E2M1 => |x| f4e2m1fn::from_f32(x).to_bits(),
            DataType::Float6E2M3 => |x| f6e2m3fn::from_f32(x).to_bits(),
            DataType::Float6E3M2 => |x| f6e3m2fn::from_f32(x).to_bits(),
            DataType::Float8E4M3Fn => e4m3fn,
            DataType::Float8E4M3Fnuz => |x| f8e4m3fnuz::from_f32(x).to_bits(),
            DataType::Float8E5M2 => |x| f8e5m2::from_f32(x).to_bits(),
            DataType::Float8E5M2Fnuz => |x| f8e5m2fnuz::from_f32(x).to_bits(),
            DataType::Float8E8M0 => |_| 0,
            other => return Err(crate::numeric::not_taken(other)),
        };
        let highest = highest(dtype).filter(|_| self.saturate);
        let (nan, value_of) = (nearest(f32::NAN.one_nan()), decode(dtype));
        Ok(move |value: f64| {
            if dtype == DataType::Float8E8M0 {
                return self.power_of_two(value);
            }
            if dtype.is_integer() {
                return u8::from_i128(value.to_i128());
            }
            let value = odd_f32(value).one_nan();
            let code = nearest(highest.map_or(value, |highest| value.clamp(-highest, highest)));
            let is_nan = value_of.is_some_and(|value_of| value_of(code).is_nan());
            if is_nan { nan } else { code }
        })
    }

    /// The code of FLOAT8E8M0: the exponent of a power of two, plus 127. The sign is dropped.
    fn power_of_two(self, value: f64) -> u8 {
        const NAN: u8 = 255;
        let bits = value.abs().to_bits();
        let (exponent, fraction) = (bits >> 52, bits & ((1 << 52) - 1));
        let up = match self.mode {
            RoundMode::Up => fraction > 0,
            RoundMode::Down => false,
            RoundMode::Nearest => fraction >= 1 << 51,
        };
        // The exponent of a `f64` has a bias of 1023.
        match (exponent + u64::from(up)).checked_sub(1023 - 127) {
            _ if value.is_nan() => NAN,
            Some(code @ 0..=254) => {
                let [code, ..] = code.to_le_bytes();
                code
            }
            _ if !self.saturate => NAN,
            Some(_) => 254,
            None => 0,
        }
    }
}

/// The highest finite value of the 8-bit floats that saturate only when they are told to.
fn highest(dtype: DataType) -> Option<f32> {
    match dtype {
        DataType::Float8E4M3Fn => Some(448.0),
        DataType::Float8E4M3Fnuz => Some(240.0),
        DataType::Float8E5M2 | DataType::Float8E5M2Fnuz => Some(57344.0),
        _ => None,
    }
}

/// The middle between 448 and 480, which would be the next value, is a tie and rounds to the even
/// code, 448; `microfloat` treats it as too large.
fn e4m3fn(x: f32) -> u8 {
    let tie = x.abs().to_bits() == 464_f32.to_bits();
    f8e4m3fn::from_f32(if tie { 448_f32.copysign(x) } else { x }).to_bits()
}

/// The codes of input `i`, of a type of [`decode`].
///
/// # Errors
/// Those of [`Call::codes`].
pub(crate) fn codes<'a>(call: &Call<'a>, i: usize) -> Result<Cow<'a, [u8]>> {
    if call.dtype(i)?.bit_width() == Some(8) {
        call.bytes(i).map(Cow::Borrowed)
    } else {
        call.codes(i).map(Cow::Owned)
    }
}

/// Writes output `j`, of a type of [`decode`], from its codes.
///
/// # Errors
/// Those of [`RunCx::set_codes`].
pub(crate) fn set_codes(
    cx: &mut RunCx<'_>,
    j: usize,
    codes: impl Iterator<Item = u8>,
) -> Result<()> {
    if cx.out_dtype(j)?.bit_width() == Some(8) {
        cx.out_bytes(j)?.iter_mut().zip(codes).for_each(|(byte, code)| *byte = code);
        return Ok(());
    }
    cx.set_codes(j, &codes.collect::<Vec<_>>())
}

/// The elements of input `i`, numbers of any type, as `f64`: scales and zero points.
///
/// # Errors
/// [`ErrorKind::Type`] when they are not numbers, and the error that asks for the elements.
pub(crate) fn values(call: &Call<'_>, i: usize) -> Result<Vec<f64>> {
    let dtype = call.dtype(i)?;
    if let Some(decode) = decode(dtype) {
        return Ok(codes(call, i)?.iter().map(|code| f64::from(decode(*code))).collect());
    }
    for_type!(dtype, numbers, T => Ok(call.input::<T>(i)?.iter().map(|x| x.to_f64()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value is the nearest to itself.
    #[test]
    fn codes_and_values_convert_both_ways() {
        for dtype in DataType::ALL {
            let (Some(decode), Some(bits)) = (decode(*dtype), dtype.bit_width()) else { continue };
            let rounding = Rounding { saturate: false, mode: RoundMode::Nearest };
            let encode = rounding.encode(*dtype).unwrap();
            for code in (0..=255_u8).take(1 << bits) {
                let value = decode(code);
                let again = encode(f64::from(value)) & (u8::MAX >> (8 - bits));
                assert!(again == code || value.is_nan(), "{dtype} {code:#x}: {again:#x}");
            }
        }
    }

    #[test]
    fn floats_out_of_range_saturate_or_not() {
        use DataType::{Float4E2M1, Float8E4M3Fn, Float8E4M3Fnuz, Float8E5M2};
        let cases = [
            (Float8E4M3Fn, 464.0, true, 0x7e),
            (Float8E4M3Fn, 464.0, false, 0x7e),
            (Float8E4M3Fn, 465.0, false, 0x7f),
            (Float8E4M3Fn, f64::NEG_INFINITY, true, 0xfe),
            (Float8E4M3Fnuz, 248.0, false, 0x80),
            (Float8E5M2, 61440.0, true, 0x7b),
            (Float8E5M2, 61440.0, false, 0x7c),
            (Float4E2M1, 7.0, false, 7),
            (Float4E2M1, -5.0, true, 14),
        ];
        for (dtype, value, saturate, code) in cases {
            let rounding = Rounding { saturate, mode: RoundMode::Up };
            assert_eq!(rounding.encode(dtype).unwrap()(value), code, "{dtype} {value}");
        }
    }

    #[test]
    fn a_power_of_two_rounds_as_it_is_told() {
        use RoundMode::{Down, Nearest, Up};
        let cases = [
            (1.0, Up, true, 127),
            (1.1, Up, true, 128),
            (1.1, Nearest, true, 127),
            (1.5, Nearest, true, 128),
            (1.9, Down, true, 127),
            (0.0, Up, true, 0),
            (0.0, Nearest, false, 255),
            (f64::from(f32::from_bits(1 << 22)), Up, true, 0),
            (f64::INFINITY, Up, true, 254),
            (f64::INFINITY, Nearest, false, 255),
            (f64::NAN, Up, true, 255),
            (f64::MAX, Nearest, false, 255),
        ];
        for (value, mode, saturate, code) in cases {
            assert_eq!(Rounding { saturate, mode }.power_of_two(value), code, "{value} {mode:?}");
        }
    }
}
