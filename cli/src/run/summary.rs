//! What is printed of a value: type, shape, range and first elements.

use std::fmt;

use onnx_container::Tensor;
use onnx_container_machine::Value;
use onnx_container_machine::compare::{text, to_f64};
use serde::Serialize;

use crate::output::Number;

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

/// The elements of a value in short. The range is that of the finite elements.
#[derive(Debug, Default, Serialize)]
pub struct Numbers {
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    /// How many elements are not a number.
    nan: u64,
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
        }
    }

    fn of_list<'v>(values: impl Iterator<Item = &'v Value>) -> Self {
        let all: Vec<_> = values.map(|value| Summary::of(value).to_string()).collect();
        let elements = all.len();
        Self { first: all.into_iter().take(FIRST).collect(), elements, ..Self::default() }
    }

    fn of_tensor(tensor: &Tensor) -> Self {
        if let Some(strings) = tensor.strings() {
            let text = |string: &[u8]| format!("{:?}", String::from_utf8_lossy(string));
            let first = strings.iter().take(FIRST).map(|string| text(string)).collect();
            return Self { first, elements: strings.len(), ..Self::default() };
        }
        let Ok(all) = to_f64(tensor) else { return Self::default() };
        let shown = |element: &f64| text(tensor.dtype(), *element);
        let mut numbers = Self {
            first: all.iter().take(FIRST).map(shown).collect(),
            elements: all.len(),
            ..Self::default()
        };
        numbers.range(&all);
        numbers
    }

    #[allow(clippy::cast_precision_loss, reason = "the number of elements for their mean")]
    fn range(&mut self, all: &[f64]) {
        let (mut sum, mut finite) = (0.0, 0_u64);
        for element in all {
            self.nan += u64::from(element.is_nan());
            if element.is_finite() {
                self.min = Some(self.min.map_or(*element, |min| min.min(*element)));
                self.max = Some(self.max.map_or(*element, |max| max.max(*element)));
                (sum, finite) = (sum + element, finite + 1);
            }
        }
        self.mean = (finite > 0).then(|| sum / finite as f64).filter(|mean| mean.is_finite());
    }

    /// The lines that people see.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(min), Some(max), Some(mean)) = (self.min, self.max, self.mean) {
            let nan = if self.nan > 0 { format!(", {} NaN", self.nan) } else { String::new() };
            let [min, max, mean] = [min, max, mean].map(Number);
            lines.push(format!("min {min}, max {max}, mean {mean}{nan}"));
        }
        if !self.first.is_empty() {
            let more = if self.elements > self.first.len() { ", .." } else { "" };
            lines.push(format!("[{}{more}]", self.first.join(", ")));
        }
        lines
    }
}
