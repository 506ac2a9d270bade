//! Numbers in decimal text, rounded once to any type.
//!
//! The standard library reads the nearest `f64`. Its exact decimal digits, compared with those of
//! the text, tell on which side of it the number is, and so how the number is [rounded to
//! odd](crate::numeric::rounding), for a narrower type to be rounded from it.

use std::cmp::Ordering;

use crate::numeric::rounding::towards;

/// A number that a text states: decimal, or an infinity, or not a number, or True or False.
pub(crate) struct Stated<'t> {
    text: &'t str,
    near: f64,
}

impl<'t> Stated<'t> {
    /// The number in `text`, with any white space around it.
    pub(crate) fn of(text: &'t str) -> Option<Self> {
        let text = match text.trim() {
            word if word.eq_ignore_ascii_case("true") => "1",
            word if word.eq_ignore_ascii_case("false") => "0",
            number => number,
        };
        Some(Self { text, near: text.parse().ok()? })
    }

    /// The nearest `f64`.
    pub(crate) fn near(&self) -> f64 {
        self.near
    }

    /// The number as `f64`, rounded to odd.
    pub(crate) fn odd(&self) -> f64 {
        match Decimal::of(self.text) {
            None => self.near, // an infinity, or not a number
            Some(_) if self.near.is_infinite() => towards(self.near, Ordering::Greater),
            Some(number) => towards(self.near, Decimal::of_f64(self.near).cmp(&number)),
        }
    }

    /// The number, where it is written as an integer.
    pub(crate) fn as_integer(&self) -> Option<i128> {
        self.text.parse().ok()
    }

    /// The number without its fraction; `None` for more than 38 digits.
    pub(crate) fn integer_part(&self) -> Option<i128> {
        let Decimal { point, digits } = Decimal::of(self.text)?;
        let places = usize::try_from(point.max(0)).ok().filter(|places| *places <= 38)?;
        let digits = digits.into_iter().chain(std::iter::repeat(0)).take(places);
        let magnitude = digits.fold(0_i128, |number, digit| number * 10 + i128::from(digit));
        Some(if self.text.starts_with('-') { -magnitude } else { magnitude })
    }
}

/// The absolute value of a decimal number: `0.d1d2d3.. * 10^point`, without zeros at either end.
/// That of zero has no digits. Numbers are compared in the order of the fields.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Decimal {
    point: i64,
    digits: Vec<u8>,
}

impl Decimal {
    /// That of `text`, which the standard library reads as a float; `None` for a word.
    fn of(text: &str) -> Option<Self> {
        let unsigned = text.trim_start_matches(['+', '-']);
        // A part that is not written is 0.
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = whole.bytes().chain(fraction.bytes());
        let mut digits = digits
            .map(|byte| byte.is_ascii_digit().then(|| byte - b'0'))
            .collect::<Option<Vec<u8>>>()?;
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        while digits.last() == Some(&0) {
            digits.pop();
        }
        if digits.is_empty() {
            return Some(Self { point: i64::MIN, digits });
        }
        // So far from 0 that no digit matters, and so is every exponent that does not fit.
        const FAR: i64 = i64::MAX / 4;
        let far = if exponent.starts_with('-') { -FAR } else { FAR };
        let exponent = exponent.parse::<i64>().unwrap_or(far).clamp(-FAR, FAR);
        let len = |len: usize| i64::try_from(len).ok();
        Some(Self { point: exponent + len(whole.len())? - len(zeros)?, digits })
    }

    /// That of a finite number, whose decimal digits are at most 767.
    fn of_f64(value: f64) -> Self {
        let decimal = Self::of(&format!("{value:.766e}"));
        debug_assert!(decimal.is_some(), "{value} is not finite");
        decimal.unwrap_or(Self { point: i64::MIN, digits: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbers() {
        let read = |text: &str| Stated::of(text).map(|stated| stated.near());
        assert_eq!(read(" 1e-5 "), Some(1e-5));
        assert_eq!(read("+INF"), Some(f64::INFINITY));
        assert_eq!(read("-inf"), Some(f64::NEG_INFINITY));
        assert!(read("NaN").unwrap().is_nan());
        assert_eq!(read("True"), Some(1.0));
        assert_eq!(read("one"), None);
    }

    #[test]
    fn texts_beside_a_float_are_rounded_to_odd() {
        let large = (1_u64 << 53) as f64;
        let bits = |x: f64, by: i64| f64::from_bits(x.to_bits().wrapping_add_signed(by));
        let cases = [
            ("1", 1.0),
            ("-1.50", -1.5),
            ("1.00000000000000000000000000001", bits(1.0, 1)),
            ("0.99999999999999999999999999999", bits(1.0, -1)),
            ("-0.99999999999999999999999999999e0", -bits(1.0, -1)),
            ("9007199254740993", bits(large, 1)),
            ("900719925474099.2e1", large),
            ("1e400", f64::MAX),
            ("-1e99999999999999999999", f64::MIN),
            ("1e-99999999999999999999", f64::from_bits(1)),
            ("0e99999999999999999999", 0.0),
            ("-0.000", -0.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("infinity", f64::INFINITY),
        ];
        for (text, expected) in cases {
            let found = Stated::of(text).unwrap().odd();
            assert_eq!(found.to_bits(), expected.to_bits(), "{text}: {found:e}");
        }
    }

    #[test]
    fn fractions_are_dropped_from_exact_integers() {
        let part = |text: &str| Stated::of(text).unwrap().integer_part();
        assert_eq!(part("9007199254740993.7"), Some(9_007_199_254_740_993));
        assert_eq!(part("-9007199254740993e0"), Some(-9_007_199_254_740_993));
        assert_eq!(part("-0.9"), Some(0));
        assert_eq!(part("1.25e2"), Some(125));
        assert_eq!(part("1e39"), None);
        assert_eq!(part("inf"), None);
    }
}
