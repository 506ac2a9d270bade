//! What is printed of a value: type, shape, range and first elements.

use std::fmt;

use onnx_container::Tensor;
use onnx_container_machine::compare::{chunks, integers, text, to_f64};
use onnx_container_machine::{Map, Result, Value};
use serde::Serialize;

use crate::terminal::output::Number;

/// How many elements are shown.
const FIRST: usize = 6;

/// Type and shape of a value.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// The element type of a tensor, or another type as `seq(tensor(FLOAT))`.
    dtype: String,
    /// The dimensions of a tensor.
    shape: Option<Vec<i64>>,
}

impl Summary {
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Tensor(tensor) => {
                Self { dtype: tensor.dtype().to_string(), shape: Some(tensor.dims().to_vec()) }
            }
            other => Self { dtype: other.ty().to_string(), shape: None },
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{} {shape:?}", self.dtype),
            None => f.write_str(&self.dtype),
        }
    }
}

/// A number in its own type: no `f64` holds every integer of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
enum Exact {
    Integer(i128),
    Float(f64),
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(f),
            Self::Float(float) => Number(*float).fmt(f),
        }
    }
}

/// The elements of a value in short. The range and the mean are those of the finite elements.
#[derive(Debug, Default, Serialize)]
pub struct Numbers {
    min: Option<Exact>,
    max: Option<Exact>,
    mean: Option<f64>,
    /// How many elements are not a number.
    nan: u64,
    /// How many elements are infinite.
    inf: u64,
    /// The first elements of a tensor, as text; of a sequence or optional, what each is.
    first: Vec<String>,
    /// How many there are.
    elements: usize,
}

impl Numbers {
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Tensor(tensor) => Self::of_tensor(tensor),
            Value::Sequence(_, values) => Self::of_list(values.iter()),
            Value::Optional(_, value) => Self::of_list(value.iter().map(|value| &**value)),
            Value::Map(map) => Self::of_map(map),
            other => Self { first: vec![other.ty().to_string()], elements: 1, ..Self::default() },
        }
    }

    /// The first keys with their elements.
    fn of_map(map: &Map) -> Self {
        let (keys, values) = (Self::of_tensor(map.keys()), Self::of_tensor(map.values()));
        let pairs = keys.first.iter().zip(values.first);
        let first = pairs.map(|(key, value)| format!("{key}: {value}")).collect();
        Self { first, elements: keys.elements, ..Self::default() }
    }

    /// The first elements, and whether there are more.
    fn listed(&self) -> String {
        let more = if self.elements > self.first.len() { ", .." } else { "" };
        format!("{}{more}", self.first.join(", "))
    }

    fn of_list<'v>(values: impl Iterator<Item = &'v Value>) -> Self {
        let (mut first, mut elements) = (Vec::new(), 0);
        for value in values {
            if elements < FIRST {
                first.push(match value {
                    Value::Map(map) => format!("{{{}}}", Self::of_map(map).listed()),
                    value => Summary::of(value).to_string(),
                });
            }
            elements += 1;
        }
        Self { first, elements, ..Self::default() }
    }

    fn of_tensor(tensor: &Tensor) -> Self {
        if let Some(strings) = tensor.strings() {
            let text = |string: &[u8]| format!("{:?}", String::from_utf8_lossy(string));
            let first = strings.iter().take(FIRST).map(|string| text(string)).collect();
            return Self { first, elements: strings.len(), ..Self::default() };
        }
        Self::of_numbers(tensor).unwrap_or_default()
    }

    /// Of a tensor of numbers, some thousands of them at a time.
    fn of_numbers(tensor: &Tensor) -> Result<Self> {
        let (mut integral, mut floats) = (Integers::default(), Floats::default());
        let mut numbers = Self::default();
        for part in chunks(tensor) {
            let part = part?;
            let left = FIRST.saturating_sub(numbers.first.len());
            match integers(&part)? {
                Some(all) => {
                    numbers.first.extend(all.iter().take(left).map(i128::to_string));
                    integral.add(&all);
                    numbers.elements += all.len();
                }
                None => {
                    let all = to_f64(&part)?;
                    let shown = |element: &f64| text(tensor.dtype(), *element);
                    numbers.first.extend(all.iter().take(left).map(shown));
                    floats.add(&all);
                    numbers.elements += all.len();
                }
            }
        }
        integral.state(&mut numbers);
        floats.state(&mut numbers);
        Ok(numbers)
    }

    /// The lines that people see.
    pub fn lines(&self) -> Vec<String> {
        let mut range = Vec::new();
        range.extend(self.min.map(|min| format!("min {min}")));
        range.extend(self.max.map(|max| format!("max {max}")));
        range.extend(self.mean.map(|mean| format!("mean {}", Number(mean))));
        range.extend((self.nan > 0).then(|| format!("{} NaN", self.nan)));
        range.extend((self.inf > 0).then(|| format!("{} infinite", self.inf)));
        let mut lines = Vec::new();
        if !range.is_empty() {
            lines.push(range.join(", "));
        }
        if !self.first.is_empty() {
            lines.push(format!("[{}]", self.listed()));
        }
        lines
    }
}

/// What is known of integers, or truth values, so far.
#[derive(Default)]
struct Integers {
    range: Option<(i128, i128)>,
    /// Elements have 64 bits at most, and no memory has 2^64 of them.
    sum: i128,
    count: usize,
}

impl Integers {
    fn add(&mut self, all: &[i128]) {
        for x in all {
            let (min, max) = self.range.unwrap_or((*x, *x));
            self.range = Some((min.min(*x), max.max(*x)));
            self.sum = self.sum.saturating_add(*x);
        }
        self.count += all.len();
    }

    #[allow(clippy::cast_precision_loss, reason = "a mean is rounded")]
    fn state(&self, numbers: &mut Numbers) {
        let Some((min, max)) = self.range else { return };
        numbers.min = Some(Exact::Integer(min));
        numbers.max = Some(Exact::Integer(max));
        numbers.mean = Some(self.sum as f64 / self.count as f64);
    }
}

/// What is known of floats so far. The range and the sum are those of the finite ones.
#[derive(Default)]
struct Floats {
    range: Option<(f64, f64)>,
    sum: f64,
    finite: usize,
    nan: u64,
    inf: u64,
}

impl Floats {
    fn add(&mut self, all: &[f64]) {
        for x in all {
            self.nan += u64::from(x.is_nan());
            self.inf += u64::from(x.is_infinite());
            if x.is_finite() {
                let (min, max) = self.range.unwrap_or((*x, *x));
                self.range = Some((min.min(*x), max.max(*x)));
                self.sum += x;
                self.finite += 1;
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "the number of elements for their mean")]
    fn state(&self, numbers: &mut Numbers) {
        (numbers.nan, numbers.inf) = (self.nan, self.inf);
        let Some((min, max)) = self.range else { return };
        (numbers.min, numbers.max) = (Some(Exact::Float(min)), Some(Exact::Float(max)));
        numbers.mean = Some(self.sum / self.finite as f64).filter(|mean| mean.is_finite());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_shown_as_what_they_are() {
        macro_rules! value {
            ($($element:expr),*) => {
                { let all = [$($element),*]; Value::from_elements(vec![i64::try_from(all.len()).unwrap()], &all).unwrap() }
            };
        }
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let large = "min -9223372036854775808, max 9223372036854775807, mean -0.5";
        let unsigned = "min 18446744073709551615, max 18446744073709551615, mean 1.84467e19";
        let cases = [
            (value![i64::MAX, i64::MIN], large, "[9223372036854775807, -9223372036854775808]"),
            (value![u64::MAX], unsigned, "[18446744073709551615]"),
            (value![-3_i8, 2], "min -3, max 2, mean -0.5", "[-3, 2]"),
            (value![true, false], "min 0, max 1, mean 0.5", "[1, 0]"),
            (value![0.5_f32, -1.5], "min -1.5, max 0.5, mean -0.5", "[0.5, -1.5]"),
            (
                value![nan, inf, 2.0, -inf],
                "min 2, max 2, mean 2, 1 NaN, 2 infinite",
                "[NaN, inf, 2, -inf]",
            ),
            (value![inf], "1 infinite", "[inf]"),
        ];
        for (value, range, first) in cases {
            assert_eq!(Numbers::of(&value).lines(), [range, first]);
        }
        let json = serde_json::to_string(&Numbers::of(&value![u64::MAX, 1])).unwrap();
        assert!(json.contains(r#""min":1,"max":18446744073709551615,"#), "{json}");
        let json = serde_json::to_string(&Numbers::of(&value![nan, inf, 2.0, -inf])).unwrap();
        assert!(json.contains(r#""min":2.0,"max":2.0,"mean":2.0,"nan":1,"inf":2,"#), "{json}");
        assert!(Numbers::of(&Value::from_elements::<f32>([0], &[]).unwrap()).lines().is_empty());
    }
}
