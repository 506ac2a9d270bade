//! Cast between every two types: rounded once, by the definition of the types.
//!
//! The nearest number is looked for among all numbers of the target, whose values are those of
//! mantissa and exponent.

use std::cmp::Ordering;

use onnx_container::proto::AttributeProto;
use onnx_container::{Buffer, DataType, Tensor};
use onnx_container_machine::Value;

use crate::support::{output, output_of};

use DataType::{
    Bfloat16, Bool, Double, Float, Float4E2M1, Float6E2M3, Float6E3M2, Float8E4M3Fn,
    Float8E4M3Fnuz, Float8E5M2, Float8E5M2Fnuz, Float16, Int2, Int4, Int8, Int16, Int32, Int64,
    Uint2, Uint4, Uint8, Uint16, Uint32, Uint64,
};

/// A float type of at most 16 bits: its mantissa, bias and highest finite code, what is beyond, its
/// NaN, and whether `saturate` is about it. Where there is no infinity and no NaN, what is beyond
/// is the highest number.
struct Narrow {
    dtype: DataType,
    mantissa: u32,
    bias: i32,
    highest: u64,
    beyond: u64,
    nan: Option<u64>,
    saturates: bool,
}

#[rustfmt::skip]
const NARROW: [Narrow; 9] = [
    Narrow { dtype: Float16, mantissa: 10, bias: 15, highest: 0x7bff, beyond: 0x7c00, nan: Some(0x7e00), saturates: false },
    Narrow { dtype: Bfloat16, mantissa: 7, bias: 127, highest: 0x7f7f, beyond: 0x7f80, nan: Some(0x7fc0), saturates: false },
    Narrow { dtype: Float8E4M3Fn, mantissa: 3, bias: 7, highest: 0x7e, beyond: 0x7f, nan: Some(0x7f), saturates: true },
    Narrow { dtype: Float8E5M2, mantissa: 2, bias: 15, highest: 0x7b, beyond: 0x7c, nan: Some(0x7e), saturates: true },
    Narrow { dtype: Float8E4M3Fnuz, mantissa: 3, bias: 8, highest: 0x7f, beyond: 0x80, nan: Some(0x80), saturates: true },
    Narrow { dtype: Float8E5M2Fnuz, mantissa: 2, bias: 16, highest: 0x7f, beyond: 0x80, nan: Some(0x80), saturates: true },
    Narrow { dtype: Float4E2M1, mantissa: 1, bias: 1, highest: 7, beyond: 7, nan: None, saturates: false },
    Narrow { dtype: Float6E2M3, mantissa: 3, bias: 1, highest: 0x1f, beyond: 0x1f, nan: None, saturates: false },
    Narrow { dtype: Float6E3M2, mantissa: 2, bias: 3, highest: 0x1f, beyond: 0x1f, nan: None, saturates: false },
];

const INTEGERS: [DataType; 12] =
    [Int2, Int4, Int8, Int16, Int32, Int64, Uint2, Uint4, Uint8, Uint16, Uint32, Uint64];

fn narrow(dtype: DataType) -> Option<&'static Narrow> {
    NARROW.iter().find(|narrow| narrow.dtype == dtype)
}

fn width(dtype: DataType) -> u32 {
    u32::from(dtype.bit_width().unwrap())
}

/// An exact number: an integer, or a float and whether the number is a little more or less than it.
#[derive(Debug, Clone, Copy)]
enum Exact {
    Integer(i128),
    Float(f64, Ordering),
}

impl Exact {
    fn is_negative(self) -> bool {
        match self {
            Self::Integer(integer) => integer < 0,
            Self::Float(float, _) => float.is_sign_negative(),
        }
    }

    /// The absolute value compared with `other`, which is at least 0.
    fn cmp(self, other: f64) -> Ordering {
        match self {
            Self::Integer(integer) => {
                let whole = integer.abs().cmp(&(other.floor() as i128));
                whole.then(if other.fract() > 0.0 { Ordering::Less } else { Ordering::Equal })
            }
            Self::Float(float, more) => float.abs().partial_cmp(&other).unwrap().then(more),
        }
    }
}

impl Narrow {
    /// The value of the code of a number from 0 on, as if the type had no highest one.
    fn value(&self, code: u64) -> f64 {
        let (exponent, mantissa) = (code >> self.mantissa, code & ((1 << self.mantissa) - 1));
        let least = 1 - self.bias - self.mantissa.cast_signed();
        let scale = |exponent: i32| libm_exp2(exponent);
        match exponent as i32 {
            0 => mantissa as f64 * scale(least),
            exponent => (mantissa + (1 << self.mantissa)) as f64 * scale(exponent - 1 + least),
        }
    }

    /// The code of the nearest number, of two the even one.
    fn nearest(&self, exact: Exact, saturate: bool) -> u64 {
        if let (Exact::Float(float, _), Some(nan)) = (exact, self.nan)
            && float.is_nan()
        {
            return nan;
        }
        let sign = u64::from(exact.is_negative()) << (width(self.dtype) - 1);
        // The highest code whose value is not above the number.
        let (mut code, mut end) = (0, self.highest + 2);
        while end - code > 1 {
            let at = code.midpoint(end);
            match exact.cmp(self.value(at)) {
                Ordering::Less => end = at,
                _ => code = at,
            }
        }
        let middle = f64::midpoint(self.value(code), self.value(code + 1));
        let up = match exact.cmp(middle) {
            Ordering::Less => 0,
            Ordering::Equal => code & 1,
            Ordering::Greater => 1,
        };
        let too_large = code + up > self.highest;
        match (code + up, self.dtype) {
            _ if too_large && saturate && self.saturates => sign | self.highest,
            _ if too_large && self.nan == Some(self.beyond) => self.beyond,
            _ if too_large => sign | self.beyond,
            (0, Float8E4M3Fnuz | Float8E5M2Fnuz) => 0,
            (code, _) => sign | code,
        }
    }
}

fn libm_exp2(exponent: i32) -> f64 {
    (0..exponent.unsigned_abs()).fold(1.0, |x, _| if exponent > 0 { x * 2.0 } else { x / 2.0 })
}

/// The bits that `exact` has as `to`; `None` where the text leaves it undefined.
fn expected(exact: Exact, to: DataType, saturate: bool) -> Option<u64> {
    if let Some(narrow) = narrow(to) {
        let has_nan = !matches!(exact, Exact::Float(float, _) if float.is_nan());
        return (has_nan || narrow.nan.is_some()).then(|| narrow.nearest(exact, saturate));
    }
    let low_bits = |integer: i128| integer as u64 & (u64::MAX >> (64 - width(to)));
    Some(match (exact, to) {
        (Exact::Integer(integer), Float) => u64::from((integer as f32).to_bits()),
        (Exact::Integer(integer), Double) => (integer as f64).to_bits(),
        (Exact::Integer(integer), Bool) => u64::from(integer != 0),
        (Exact::Integer(integer), _) => low_bits(integer),
        (Exact::Float(float, _), Float) if float.is_nan() => 0x7fc0_0000,
        (Exact::Float(float, _), Double) if float.is_nan() => 0x7ff8 << 48,
        (Exact::Float(float, Ordering::Equal), Float) => u64::from((float as f32).to_bits()),
        (Exact::Float(float, Ordering::Equal), Double) => float.to_bits(),
        (Exact::Float(float, Ordering::Equal), Bool) => u64::from(float != 0.0),
        (Exact::Float(float, Ordering::Equal), _) => {
            let (bits, signed) =
                (width(to), matches!(to, Int2 | Int4 | Int8 | Int16 | Int32 | Int64));
            let most = libm_exp2(bits.cast_signed() - i32::from(signed));
            let fits = float.trunc() < most && float.trunc() >= if signed { -most } else { 0.0 };
            return fits.then(|| low_bits(float as i128));
        }
        _ => return None,
    })
}

/// Numbers that are hard to round to `to`: the middle of two neighbours, and what is beside it.
fn hard(to: DataType) -> Vec<f64> {
    let mut all = vec![0.0, 1.0, 2.5, 3.0, 127.0, 129.0, 255.5, f64::INFINITY, f64::NAN, 1e-300];
    all.extend([f64::from(f32::MAX), f64::MAX, f64::from(f32::from_bits(1)), 1e9, 4.2e18]);
    let Some(narrow) = narrow(to) else { return all };
    let step = (narrow.highest / 20).max(1) as usize;
    for code in (0..=narrow.highest).rev().step_by(step) {
        let (low, high) = (narrow.value(code), narrow.value(code + 1));
        let middle = f64::midpoint(low, high);
        all.extend([low, middle, middle.next_down(), middle.next_up()]);
    }
    all
}

/// The elements of a tensor, as bits, and the exact number of each.
fn inputs(from: DataType, to: DataType) -> (Value, Vec<Exact>) {
    let both = hard(to).into_iter().flat_map(|x| [x, -x]);
    let float = |x: f64| Exact::Float(x, Ordering::Equal);
    let all: Vec<(u64, Exact)> = match from {
        Double => both.map(|x| (x.to_bits(), float(x))).collect(),
        Float => {
            both.map(|x| x as f32).map(|x| (u64::from(x.to_bits()), float(f64::from(x)))).collect()
        }
        Bool => vec![(0, Exact::Integer(0)), (1, Exact::Integer(1))],
        _ if INTEGERS.contains(&from) => {
            let bits = width(from);
            let signed = matches!(from, Int2 | Int4 | Int8 | Int16 | Int32 | Int64);
            let ends = [-1, -2, -8, -1 << 33, i128::from(i64::MIN), i128::from(u64::MAX)];
            let beside = both.filter(|x| x.is_finite()).flat_map(|x| {
                let x = x as i128;
                [x.saturating_sub(1), x, x.saturating_add(1)]
            });
            let of = |x: i128| {
                let code = x as u64 & (u64::MAX >> (64 - bits));
                let wide = i128::from(code);
                let negative = signed && code >> (bits - 1) == 1;
                (code, Exact::Integer(if negative { wide - (1 << bits) } else { wide }))
            };
            beside.chain(ends).map(of).collect()
        }
        _ => {
            let narrow = narrow(from).unwrap();
            let step = (narrow.highest / 30).max(1) as usize;
            let codes = (0..=narrow.highest).step_by(step);
            let infinity = (narrow.beyond == narrow.highest + 1
                && narrow.nan != Some(narrow.beyond))
            .then_some((narrow.beyond, float(f64::INFINITY)));
            let finite = codes.map(|code| (code, float(narrow.value(code))));
            let sign = 1 << (width(from) - 1);
            let plain = finite.chain(infinity).flat_map(|(code, exact)| {
                let Exact::Float(value, _) = exact else { panic!() };
                [
                    Some((code, exact)),
                    Some((code | sign, float(-value)))
                        .filter(|(code, _)| narrow.nan != Some(*code)),
                ]
            });
            plain.flatten().chain(narrow.nan.map(|nan| (nan, float(f64::NAN)))).collect()
        }
    };
    let (codes, exact): (Vec<u64>, Vec<Exact>) = all.into_iter().unzip();
    (of_codes(from, &codes), exact)
}

fn of_codes(dtype: DataType, codes: &[u64]) -> Value {
    let dims = [i64::try_from(codes.len()).unwrap()];
    if width(dtype) < 8 {
        let codes: Vec<u8> = codes.iter().map(|code| *code as u8).collect();
        return Value::Tensor(Tensor::pack(dtype, dims, &codes).unwrap());
    }
    let bytes =
        codes.iter().flat_map(|code| code.to_le_bytes()[..width(dtype) as usize / 8].to_vec());
    Value::Tensor(Tensor::new(dtype, dims, Buffer::from(bytes.collect::<Vec<u8>>())).unwrap())
}

fn codes(value: &Value) -> Vec<u64> {
    let tensor = value.tensor().unwrap();
    if width(tensor.dtype()) < 8 {
        return tensor.unpack().unwrap().into_iter().map(u64::from).collect();
    }
    let wide = |bytes: &[u8]| bytes.iter().rev().fold(0, |code, byte| code << 8 | u64::from(*byte));
    let width = width(tensor.dtype()) as usize / 8;
    tensor.as_bytes().unwrap().chunks_exact(width).map(wide).collect()
}

fn types() -> impl Iterator<Item = DataType> {
    [Double, Float, Bool].into_iter().chain(INTEGERS).chain(NARROW.iter().map(|n| n.dtype))
}

fn to_attribute(to: DataType) -> AttributeProto {
    AttributeProto::int("to", i64::from(i32::from(to)))
}

/// Compares what was found for each element with its number.
fn compare(found: &[u64], exact: &[Exact], to: DataType, saturate: bool, what: &str) {
    assert_eq!(found.len(), exact.len());
    for (found, exact) in found.iter().zip(exact) {
        let Some(expected) = expected(*exact, to, saturate) else { continue };
        assert_eq!(*found, expected, "{what}: {exact:?}, found {found:#x}, not {expected:#x}");
    }
}

#[test]
fn every_cast_rounds_once() {
    for (from, to) in types().flat_map(|from| types().map(move |to| (from, to))) {
        let (input, exact) = inputs(from, to);
        let inputs = std::slice::from_ref(&input);
        for saturate in [true, false] {
            let attributes = [to_attribute(to), AttributeProto::int("saturate", saturate.into())];
            let has_saturate =
                matches!(to, Float8E4M3Fn | Float8E4M3Fnuz | Float8E5M2 | Float8E5M2Fnuz);
            if !saturate && !has_saturate {
                continue;
            }
            let what = format!("{from} to {to}, saturate {saturate}");
            let found = output(("Cast", 28), &attributes, inputs).unwrap();
            compare(&codes(&found), &exact, to, saturate, &what);
            // No version of CastLike takes these.
            if [from, to].iter().any(|t| matches!(t, DataType::Float6E2M3 | DataType::Float6E3M2)) {
                continue;
            }
            let like = [input.clone(), of_codes(to, &[0])];
            let found = output(("CastLike", 28), &attributes[1..], &like).unwrap();
            compare(&codes(&found), &exact, to, saturate, &format!("like: {what}"));
        }
    }
}

/// In profile `fast`, and where the node is folded as its input is an initializer.
#[test]
fn every_way_to_a_cast_gives_the_same() {
    for from in [Double, Int64, Int4] {
        for to in types() {
            let (input, exact) = inputs(from, to);
            for (fast, folded) in [(true, false), (false, true)] {
                let found = output_of(("Cast", 28), &[to_attribute(to)], &input, fast, folded);
                let what = format!("{from} to {to}, fast {fast}, folded {folded}");
                compare(&codes(&found.unwrap()), &exact, to, true, &what);
            }
        }
    }
}

/// Numbers written with all their digits, and a little above them.
#[test]
fn strings_round_once() {
    for to in NARROW.iter().map(|n| n.dtype).chain([Float, Double, Int64, Int4]) {
        let mut texts = Vec::new();
        let numbers = hard(to).into_iter().filter(|x| x.is_finite()).step_by(3);
        for x in numbers.flat_map(|x| [x, -x]) {
            let all = format!("{x:.766e}");
            let (mantissa, exponent) = all.split_once('e').unwrap();
            texts.push((all.clone(), Exact::Float(x, Ordering::Equal)));
            if narrow(to).is_some() && x != 0.0 {
                let more = format!("{mantissa}0001e{exponent}");
                texts.push((more, Exact::Float(x, Ordering::Greater)));
            }
        }
        let special = [("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY), ("nan", f64::NAN)];
        let special = special.map(|(text, x)| (text.to_owned(), Exact::Float(x, Ordering::Equal)));
        let (texts, exact): (Vec<_>, Vec<_>) = texts.into_iter().chain(special).unzip();
        let strings = texts.into_iter().map(|text| Buffer::from(text.into_bytes())).collect();
        let input = Tensor::from_strings([i64::try_from(exact.len()).unwrap()], strings).unwrap();
        let found = output(("Cast", 28), &[to_attribute(to)], &[Value::Tensor(input)]).unwrap();
        compare(&codes(&found), &exact, to, true, &format!("STRING to {to}"));
    }
    let strings = ["1.000488281250001", "1.00000005960464477539062500001"];
    let strings = strings.map(|text| Buffer::from(text.as_bytes().to_vec())).to_vec();
    let input = Value::Tensor(Tensor::from_strings([2], strings).unwrap());
    for (to, expected) in [
        (Float16, [0x3c01, 0x3c00]),
        (Bfloat16, [0x3f80, 0x3f80]),
        (Float, [0x3f80_1000, 0x3f80_0001]),
    ] {
        let found = output(("Cast", 28), &[to_attribute(to)], std::slice::from_ref(&input));
        assert_eq!(codes(&found.unwrap()), expected, "{to}");
    }
}

/// Integers of every width are written without a point.
#[test]
fn integers_are_written_as_such() {
    for (from, codes, expected) in [
        (Int4, [1, 0xe, 0], ["1", "-2", "0"]),
        (Uint4, [1, 0xf, 0], ["1", "15", "0"]),
        (Int2, [1, 2, 0], ["1", "-2", "0"]),
        (Uint2, [1, 3, 0], ["1", "3", "0"]),
        (Int8, [1, 0xfe, 0], ["1", "-2", "0"]),
    ] {
        let input = of_codes(from, &codes);
        let found = output(("Cast", 25), &[to_attribute(DataType::String)], &[input]).unwrap();
        let found = found.tensor().unwrap().strings().unwrap().to_vec();
        assert_eq!(found, expected.map(|text| Buffer::from(text.as_bytes().to_vec())), "{from}");
    }
}

/// Numbers as they were reported, worked out by hand.
#[test]
fn casts_that_were_rounded_twice() {
    let double = |x: f64| of_codes(Double, &[x.to_bits()]);
    let power = libm_exp2;
    let cases = [
        (double(1.0 + power(-11) + power(-40)), Float16, 0x3c01),
        (double(1.0 + power(-8) + power(-45)), Bfloat16, 0x3f81),
        (double(65_519.999_999_999_99), Float16, 0x7bff),
        (double(2_049.000_000_000_931_3), Float16, 0x6801),
        (double(1.125_000_000_000_909_5), Float8E5M2, 0x3d),
        (double(16_777_217.0), Uint4, 1),
        (of_codes(Int32, &[1_077_936_129]), Bfloat16, 0x4e81),
        (of_codes(Int4, &[0xf, 8, 7]), Uint8, 255),
        (of_codes(Int2, &[2]), Uint64, u64::MAX - 1),
        (of_codes(Float8E5M2, &[0x7c]), Float8E5M2, 0x7b),
    ];
    for (input, to, expected) in cases {
        let found =
            output(("Cast", 28), &[to_attribute(to)], std::slice::from_ref(&input)).unwrap();
        assert_eq!(codes(&found)[0], expected, "{input:?} to {to}");
    }
}
