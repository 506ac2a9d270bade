//! Floats that become narrower, held to a rule that does not look at bits.

use half::f16;
use onnx_container::{DataType, Tensor};

use crate::support::unhex;

/// What a type makes of a number that is too large, and of NaN, by the sign.
struct Special {
    too_large: [u16; 2],
    nan: [u16; 2],
}

/// The code of the negative zero, the special codes, and the finite magnitudes by their codes.
struct Type {
    dtype: DataType,
    sign: u16,
    special: Special,
    magnitudes: Vec<f64>,
}

/// The finite magnitudes of the type called `name`, from the table of `ml_dtypes`.
fn magnitudes(name: &str) -> Vec<f64> {
    let mut lines = include_str!("../data/small_floats.tsv").lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('\t')).unwrap();
    let bytes = unhex(line);
    let floats = bytes.as_chunks().0.iter().map(|float| f64::from(f32::from_le_bytes(*float)));
    floats.take_while(|float| float.is_finite() && !float.is_sign_negative()).collect()
}

fn types() -> Vec<Type> {
    let small = |dtype: DataType, sign, too_large, nan| {
        let magnitudes = magnitudes(dtype.name());
        Type { dtype, sign, special: Special { too_large, nan }, magnitudes }
    };
    let brain = (0..0x7f80_u32).map(|code| f64::from(f32::from_bits(code << 16))).collect();
    let special = Special { too_large: [0x7f80, 0xff80], nan: [0x7fc0, 0xffc0] };
    vec![
        Type { dtype: DataType::Bfloat16, sign: 0x8000, special, magnitudes: brain },
        small(DataType::Float8E4M3Fn, 0x80, [0x7f, 0xff], [0x7f, 0xff]),
        small(DataType::Float8E4M3Fnuz, 0x80, [0x80; 2], [0x80; 2]),
        small(DataType::Float8E5M2, 0x80, [0x7c, 0xfc], [0x7e, 0xfe]),
        small(DataType::Float8E5M2Fnuz, 0x80, [0x80; 2], [0x80; 2]),
        small(DataType::Float4E2M1, 0x8, [0x7, 0xf], [0x8, 0]),
        small(DataType::Float6E2M3, 0x20, [0x1f, 0x3f], [0x20, 0]),
        small(DataType::Float6E3M2, 0x20, [0x1f, 0x3f], [0x20, 0]),
    ]
}

impl Type {
    /// The code of the nearest value. Beyond the largest value stands one more, at the same
    /// distance as the one before it: what is nearer to that is too large.
    fn expected(&self, value: f64) -> u16 {
        let negative = usize::from(value.is_sign_negative());
        if value.is_nan() {
            return self.special.nan[negative];
        }
        let [.., before, largest] = self.magnitudes[..] else { panic!("no magnitudes") };
        let beyond = largest + (largest - before);
        let at = |code: usize| self.magnitudes.get(code).copied().unwrap_or(beyond);
        let above = self.magnitudes.partition_point(|magnitude| *magnitude < value.abs());
        let below = above.saturating_sub(1);
        let (up, down) = (at(above) - value.abs(), value.abs() - at(below));
        let code = match up.total_cmp(&down) {
            _ if value.abs() > beyond => self.magnitudes.len(),
            std::cmp::Ordering::Less => above,
            std::cmp::Ordering::Greater => below,
            std::cmp::Ordering::Equal if above % 2 == 0 => above,
            std::cmp::Ordering::Equal => below,
        };
        if code == self.magnitudes.len() {
            return self.special.too_large[negative];
        }
        let code = u16::try_from(code).unwrap();
        // Types whose only NaN is at the negative zero have no such zero.
        let zero = self.special.nan == [self.sign; 2] && code == 0;
        if negative == 1 && !zero { code | self.sign } else { code }
    }
}

/// FLOAT8E8M0 has the powers of two: the nearest one, of two the larger.
fn power(value: f64) -> u16 {
    if !value.is_finite() || value <= 0.0 {
        return 0xff;
    }
    let powers = (0..=254_u64).map(|code| f64::from_bits((code + 1023 - 127) << 52));
    let distances = powers.map(|power| (power - value).abs()).enumerate().collect::<Vec<_>>();
    let nearest = distances.into_iter().rev().min_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
    u16::try_from(nearest.0).unwrap()
}

fn codes(dtype: DataType, values: &[f32]) -> Vec<u16> {
    let tensor = Tensor::from_f32(dtype, [values.len() as i64], values).unwrap();
    match dtype.bit_width() {
        Some(16) => {
            let bytes = tensor.as_bytes().unwrap().as_chunks().0;
            bytes.iter().map(|code| u16::from_le_bytes(*code)).collect()
        }
        Some(8) => tensor.as_bytes().unwrap().iter().map(|code| u16::from(*code)).collect(),
        _ => tensor.unpack().unwrap().into_iter().map(u16::from).collect(),
    }
}

#[test]
fn every_f16_is_rounded_as_ml_dtypes_rounds_it() {
    let values: Vec<f32> = (0..=u16::MAX).map(|code| f16::from_bits(code).to_f32()).collect();
    for r#type in types() {
        let dtype = r#type.dtype;
        for (value, code) in values.iter().zip(codes(dtype, &values)) {
            assert_eq!(code, r#type.expected(f64::from(*value)), "{dtype} {value:e}");
        }
    }
    for (value, code) in values.iter().zip(codes(DataType::Float8E8M0, &values)) {
        assert_eq!(code, power(f64::from(*value)), "FLOAT8E8M0 {value:e}");
    }
    let own = codes(DataType::Float16, &values);
    for (code, value) in (0..=u16::MAX).zip(&values) {
        assert!(own[usize::from(code)] == code || value.is_nan(), "{code:#x}");
    }
}

#[test]
fn numbers_that_no_f16_is_are_rounded_too() {
    let ends = [f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1), f32::INFINITY, f32::NAN, 0.0];
    let spread = (0..1_u32 << 12).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)));
    let near = (0..=255).flat_map(|exponent: u32| {
        [0, 1, 0x3f_ffff, 0x40_0000, 0x40_0001, 0x7f_ffff]
            .map(|m| f32::from_bits(exponent << 23 | m))
    });
    let all = ends.into_iter().chain(spread).chain(near).flat_map(|value| [value, -value]);
    let values: Vec<f32> = all.collect();
    for r#type in types() {
        let dtype = r#type.dtype;
        for (value, code) in values.iter().zip(codes(dtype, &values)) {
            assert_eq!(code, r#type.expected(f64::from(*value)), "{dtype} {value:e}");
        }
    }
    for (value, code) in values.iter().zip(codes(DataType::Float8E8M0, &values)) {
        // Halfway between the largest power and the next one is too large.
        let expected =
            if *value >= 1.5 * 2_f32.powi(127) { 0xff } else { power(f64::from(*value)) };
        assert_eq!(code, expected, "FLOAT8E8M0 {value:e}");
    }
}

#[test]
fn only_floats_take_floats() {
    for dtype in DataType::ALL {
        let is_float = matches!(dtype, DataType::Double) || dtype.name().contains("FLOAT");
        assert_eq!(Tensor::from_f32(*dtype, [1], &[1.0]).is_ok(), is_float, "{dtype}");
    }
    assert!(Tensor::from_f32(DataType::Float4E2M1, [2], &[1.0]).is_err());
}
