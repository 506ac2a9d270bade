//! [Cast](https://onnx.ai/onnx/operators/onnx__Cast.html),
//! [CastLike](https://onnx.ai/onnx/operators/onnx__CastLike.html) and
//! [BitCast](https://onnx.ai/onnx/operators/onnx__BitCast.html).
//!
//! Integers wrap to a narrower type. Numbers of every type, and those in strings, round once to the
//! nearest float, and floats towards zero to an integer; one that is too large for an integer of 8
//! bits or more becomes the nearest one. Numbers of a type in [`narrow`](crate::kernel::narrow) are
//! looked up in a table with the result for every code. A float of the same type stays as it is,
//! but every NaN becomes the one NaN, and an infinity of FLOAT8E5M2 the largest number if it
//! saturates.

use onnx_container_proto::{Buffer, DataType, Element};

use super::loops::map;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::{Rounding, codes, decode, set_codes};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::count;
use crate::numeric::decimal::Stated;
use crate::numeric::nan::OneNan;
use crate::numeric::{Number, for_type};
use crate::program::Attribute;

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("Cast", infer, cast),
    Builtin::new("CastLike", infer_like, cast),
    Builtin::view("BitCast", infer_bits),
];

/// The element type that attribute `name` gives.
pub(super) fn dtype_of(call: &Call<'_>, name: &str) -> Result<DataType> {
    // The first version of Cast has its name.
    if let Some(Attribute::String(text)) = call.node().attributes.get(name) {
        let is_it =
            |dtype: &&DataType| dtype.name().as_bytes() == text && **dtype != DataType::Undefined;
        let dtype = DataType::ALL.iter().find(is_it).copied();
        return dtype.ok_or_else(|| {
            let text = String::from_utf8_lossy(text);
            let reason = format!("attribute `{name}` is `{text}`, which is no element type");
            Error::new(ErrorKind::InvalidModel, reason)
        });
    }
    let number = i32::try_from(call.int(name)?).map_err(|_| {
        let reason = format!("attribute `{name}` is not an element type");
        Error::new(ErrorKind::InvalidModel, reason)
    })?;
    match DataType::try_from(number)? {
        DataType::Undefined => {
            let reason = format!("attribute `{name}` is 0, which is no element type");
            Err(Error::new(ErrorKind::InvalidModel, reason))
        }
        dtype => Ok(dtype),
    }
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Rounding::of(call)?;
    Ok(vec![OutSpec::tensor(dtype_of(call, "to")?, call.shape(0)?)])
}

fn infer_like(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Rounding::of(call)?;
    Ok(vec![OutSpec::tensor(call.dtype(1)?, call.shape(0)?)])
}

/// The bytes are those of the input, so the types need the same width.
fn infer_bits(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (from, to) = (call.dtype(0)?, dtype_of(call, "to")?);
    if from.bit_width().is_none() || from.bit_width() != to.bit_width() {
        let reason = format!("the bits of {from} are not those of {to}");
        return Err(Error::new(ErrorKind::Type, reason));
    }
    Ok(vec![OutSpec::tensor(to, call.shape(0)?)])
}

fn cast(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, to) = (cx.dtype(0)?, cx.out_dtype(0)?);
    if from == to && !is_float(from) {
        return arrange(cx, 0, [Run::Copy { input: 0, from: 0, len: count(&cx.shape(0)?) }]);
    }
    if let Some(decode) = decode(from) {
        return from_codes(cx, to, decode);
    }
    match (from, to) {
        (DataType::String, _) => from_strings(cx, to),
        (_, DataType::String) => to_strings(cx, from),
        (DataType::Bool, _) if decode(to).is_some() => {
            let [zero, one] = [0.0, 1.0].map(Rounding::of(cx)?.encode(to)?);
            set_codes(cx, 0, cx.input::<bool>(0)?.iter().map(|x| if *x { one } else { zero }))
        }
        (DataType::Bool, _) => for_type!(to, numbers, D => {
            map(cx, |x: bool| if x { D::ONE } else { D::ZERO })
        }),
        (_, DataType::Bool) => for_type!(from, numbers, S => map(cx, |x: S| x != S::ZERO)),
        _ if decode(to).is_some() => for_type!(from, numbers, S => to_codes::<S>(cx, to)),
        _ => for_type!(from, numbers, S => for_type!(to, numbers, D => map(cx, convert::<S, D>))),
    }
}

/// Whether it is a real float type of any width.
fn is_float(dtype: DataType) -> bool {
    use DataType::{Bfloat16, Double, Float, Float16};
    matches!(dtype, Float | Double | Float16 | Bfloat16)
        || (decode(dtype).is_some() && !dtype.is_integer())
}

fn convert<S: Number, D: Number>(x: S) -> D {
    if S::DTYPE.is_integer() { D::from_i128(x.to_i128()) } else { D::from_f64(x.to_f64()) }
}

/// From a type of [`decode`]: the result of every code once, and then of every element.
fn from_codes(cx: &mut RunCx<'_>, to: DataType, decode: fn(u8) -> f32) -> Result<()> {
    let (from, codes) = (cx.dtype(0)?, codes(cx, 0)?);
    let values: [f32; 256] = std::array::from_fn(|code| {
        let [code, ..] = code.to_le_bytes();
        decode(code)
    });
    if to == DataType::String && from.is_integer() {
        let text = |code: &u8| Buffer::from(decode(*code).to_i128().to_string().into_bytes());
        return cx.set_strings(0, codes.iter().map(text).collect());
    }
    if to == DataType::String {
        let encode = Rounding::of(cx)?.encode(from)?;
        let text = |code: &u8| text(f64::from(decode(*code)), |x| encode(x) == *code);
        return cx.set_strings(0, codes.iter().map(text).collect());
    }
    if self::decode(to).is_some() {
        let encode = Rounding::of(cx)?.encode(to)?;
        let table: [u8; 256] = values.map(|value| encode(f64::from(value)));
        return set_codes(cx, 0, codes.iter().map(|code| table.debug_at(usize::from(*code), 0)));
    }
    if to == DataType::Bool {
        let output = cx.output::<bool>(0)?;
        output.iter_mut().zip(&*codes).for_each(|(y, code)| *y = decode(*code) != 0.0);
        return Ok(());
    }
    for_type!(to, numbers, D => {
        // Integers wrap, and their values in the table are floats.
        let convert = |x: f32| match from.is_integer() {
            true => D::from_i128(x.to_i128()),
            false => convert::<f32, D>(x).one_nan(),
        };
        let table: [D; 256] = values.map(convert);
        for (y, code) in cx.output::<D>(0)?.iter_mut().zip(&*codes) {
            *y = table.debug_at(usize::from(*code), D::ZERO);
        }
        Ok(())
    })
}

/// To a type of [`decode`]. An integer keeps its low bits.
fn to_codes<S: Number>(cx: &mut RunCx<'_>, to: DataType) -> Result<()> {
    let (encode, input) = (Rounding::of(cx)?.encode(to)?, cx.input::<S>(0)?);
    if S::DTYPE.is_integer() && to.is_integer() {
        return set_codes(cx, 0, input.iter().map(|x| u8::from_i128(x.to_i128())));
    }
    set_codes(cx, 0, input.iter().map(|x| encode(x.to_odd_f64())))
}

/// The number in a string.
fn stated(string: &Buffer) -> Result<Stated<'_>> {
    // A string that is not UTF-8 is no number either.
    let text = str::from_utf8(string.as_ref()).unwrap_or_default();
    Stated::of(text).ok_or_else(|| {
        Error::new(ErrorKind::Value, format!("the string {:?} is not a number", text.trim()))
    })
}

/// The number in a string as `D`: an integer wraps where it is written as one.
pub(super) fn parse_as<D: Number>(string: &Buffer) -> Result<D> {
    let stated = stated(string)?;
    if D::DTYPE == DataType::Double {
        return Ok(D::from_f64(stated.near()));
    }
    if !D::DTYPE.is_integer() {
        return Ok(D::from_f64(stated.odd()));
    }
    let (low, high) = (D::LOWEST.to_i128(), D::HIGHEST.to_i128());
    let part = stated.integer_part().map(|part| part.clamp(low, high));
    Ok(match stated.as_integer().or(part) {
        Some(integer) => D::from_i128(integer),
        None => D::from_f64(stated.near()),
    })
}

/// The number in a string as a code of `to`, a type of [`decode`]. An integer keeps its low bits.
fn parse_code(string: &Buffer, to: DataType, encode: impl Fn(f64) -> u8) -> Result<u8> {
    let stated = stated(string)?;
    let integer = stated.integer_part().filter(|_| to.is_integer());
    Ok(integer.map_or_else(|| encode(stated.odd()), u8::from_i128))
}

fn from_strings(cx: &mut RunCx<'_>, to: DataType) -> Result<()> {
    let strings = cx.strings(0)?;
    if decode(to).is_some() {
        let encode = Rounding::of(cx)?.encode(to)?;
        let codes = strings.iter().map(|string| parse_code(string, to, &encode));
        return set_codes(cx, 0, codes.collect::<Result<Vec<_>>>()?.into_iter());
    }
    if to == DataType::Bool {
        for (y, string) in cx.output::<bool>(0)?.iter_mut().zip(strings) {
            *y = stated(string)?.odd() != 0.0;
        }
        return Ok(());
    }
    for_type!(to, numbers, D => {
        for (y, string) in cx.output::<D>(0)?.iter_mut().zip(strings) {
            *y = parse_as::<D>(string)?.one_nan();
        }
        Ok(())
    })
}

fn to_strings(cx: &mut RunCx<'_>, from: DataType) -> Result<()> {
    if from == DataType::Bool {
        let word = |x: &bool| Buffer::from(if *x { b"True".to_vec() } else { b"False".to_vec() });
        return cx.set_strings(0, cx.input::<bool>(0)?.iter().map(word).collect());
    }
    for_type!(from, numbers, S => {
        let of_integer = |x: &S| Buffer::from(x.to_i128().to_string().into_bytes());
        let of_float = |x: &S| text(x.to_f64(), |y| S::from_f64(y) == *x);
        let input = cx.input::<S>(0)?;
        let strings = match S::DTYPE.is_integer() {
            true => input.iter().map(of_integer).collect(),
            false => input.iter().map(of_float).collect(),
        };
        cx.set_strings(0, strings)
    })
}

/// A float as NumPy writes it, but always without an exponent: with as few digits as the value
/// needs (`same` says whether a number is still the value), and a digit behind the point.
fn text(value: f64, same: impl Fn(f64) -> bool) -> Buffer {
    if !value.is_finite() {
        let text = value.to_string().to_ascii_lowercase();
        return Buffer::from(text.into_bytes());
    }
    let shorter = |digits: usize| format!("{value:.digits$e}").parse::<f64>().ok();
    // A float that no fewer digits give is written in full.
    let shortest = (0..17).filter_map(shorter).find(|short| same(*short)).unwrap_or(value);
    let digits = shortest.to_string();
    let text = if digits.contains('.') { digits } else { digits + ".0" };
    Buffer::from(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    fn written<T: Number>(value: T) -> String {
        let buffer = text(value.to_f64(), |y| T::from_f64(y) == value);
        String::from_utf8(buffer.to_vec()).unwrap()
    }

    #[test]
    fn floats_are_written_with_the_digits_that_they_need() {
        assert_eq!(written(0.1_f32), "0.1");
        assert_eq!(written(0.1_f64 + 0.2), "0.30000000000000004");
        assert_eq!(written(f16::from_f32(0.1)), "0.1");
        assert_eq!(written(-3.0_f32), "-3.0");
        assert_eq!(written(1e-7_f32), "0.0000001");
        assert_eq!(written(f32::NEG_INFINITY), "-inf");
        assert_eq!(written(f64::NAN), "nan");
    }

    #[test]
    fn strings_are_read_as_integers() {
        fn read<D: Number>(text: &str) -> Option<D> {
            parse_as(&Buffer::from(text.as_bytes().to_vec())).ok()
        }
        assert_eq!(read("9007199254740993"), Some(9_007_199_254_740_993_i64));
        assert_eq!(read("9007199254740993.5"), Some(9_007_199_254_740_993_i64));
        assert_eq!(read(" 300 "), Some(44_u8));
        assert_eq!(read("300.5"), Some(255_u8));
        assert_eq!(read("-inf"), Some(i32::MIN));
        assert_eq!(read("nan"), Some(0_i16));
        assert_eq!(read::<i8>("one"), None);
    }
}
