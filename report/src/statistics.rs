//! The statistics of the tensors as columns, in the order of the rows.

use std::collections::HashMap;

use onnx_container::stats::{Histogram, Number, TensorStats};
use onnx_container::{Container, Result};
use serde_json::{Map, Value, json};

use crate::rows::Row;
use crate::values::{float, or_null, tidy};

/// The statistics of `rows`, which are the tensors of `container`.
pub(crate) fn statistics(container: &Container, rows: &[Row]) -> Result<Value> {
    let stats = container.stats(|_| true)?;
    let by_name: HashMap<&str, &TensorStats> =
        stats.iter().map(|of| (of.name.as_str(), of)).collect();
    let found: Vec<_> = rows.iter().map(|row| by_name.get(row.name.as_str()).copied()).collect();
    let column = |cell: &dyn Fn(&TensorStats) -> Value| -> Value {
        found.iter().map(|of| of.map_or(Value::Null, cell)).collect()
    };
    let mut columns = Map::new();
    let mut add = |name: &str, cell: &dyn Fn(&TensorStats) -> Value| {
        columns.insert(name.to_owned(), column(cell));
    };
    add("min", &|of| or_null(of.min.map(number)));
    add("max", &|of| or_null(of.max.map(number)));
    add("mean", &|of| or_null(of.mean.map(float)));
    add("std", &|of| or_null(of.std.map(float)));
    add("nan", &|of| of.nan.into());
    add("infinite", &|of| of.infinite.into());
    add("zeros", &|of| of.zeros.into());
    add("all_equal", &|of| of.all_equal.into());
    add("histogram", &|of| or_null(of.histogram.as_ref().map(histogram)));
    let mut columns = Value::Object(columns);
    tidy(&mut columns);
    Ok(columns)
}

fn number(number: Number) -> Value {
    match number {
        Number::Signed(number) => number.into(),
        Number::Unsigned(number) => number.into(),
        Number::Float(number) => float(number),
    }
}

/// Where the first bin begins, the width of each, and their heights.
fn histogram(of: &Histogram) -> Value {
    json!([float(of.start), float(of.width), heights(&of.counts)])
}

/// A hexadecimal digit for each bin: 0 for an empty one, f for the fullest.
fn heights(counts: &[u64]) -> String {
    let most = u128::from(counts.iter().copied().max().unwrap_or_default().max(1));
    let digit = |count: &u64| {
        let height = (u128::from(*count) * 15).div_ceil(most);
        let height = u32::try_from(height).ok();
        height.and_then(|height| char::from_digit(height, 16)).unwrap_or('f')
    };
    counts.iter().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_a_height_when_they_have_an_element() {
        for (counts, expected) in
            [(&[0][..], "0"), (&[1], "f"), (&[1, 0, 15], "10f"), (&[1, u64::MAX], "1f"), (&[], "")]
        {
            assert_eq!(heights(counts), expected, "{counts:?}");
        }
    }
}
