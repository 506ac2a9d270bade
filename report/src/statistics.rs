//! The statistics of the tensors as columns, in the order of the rows.

use std::collections::HashMap;

use onnx_container::Result;
use onnx_container::stats::{Histogram, Number, TensorStats};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::rows::Row;
use crate::values::{Exact, Object, float};

/// The columns. Each is written from the statistics directly: of very many tensors they would take
/// much more memory as values.
#[derive(Serialize)]
struct Columns<'s> {
    min: Column<'s, Value>,
    max: Column<'s, Value>,
    mean: Column<'s, Value>,
    std: Column<'s, Value>,
    nan: Column<'s, Exact>,
    infinite: Column<'s, Exact>,
    zeros: Column<'s, Exact>,
    all_equal: Column<'s, bool>,
    histogram: Column<'s, Bins>,
}

/// One statistic of each row; null where there is none.
struct Column<'s, T> {
    found: &'s [Option<&'s TensorStats>],
    cell: fn(&TensorStats) -> Option<T>,
}

impl<T: Serialize> Serialize for Column<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.found.iter().map(|of| of.and_then(self.cell)))
    }
}

/// Where the first bin begins, the width of each, and their heights.
#[derive(Serialize)]
struct Bins(Value, Value, String);

/// Writes the statistics of `rows`, if they were asked for.
pub(crate) fn statistics(
    to: &mut Object<'_>,
    stats: Option<&[TensorStats]>,
    rows: &[Row],
) -> Result<()> {
    let Some(stats) = stats else { return to.add("stats", &None::<()>) };
    let by_name: HashMap<&str, &TensorStats> =
        stats.iter().map(|of| (of.name.as_str(), of)).collect();
    let found: Vec<_> = rows.iter().map(|row| by_name.get(row.name.as_str()).copied()).collect();
    let found = found.as_slice();
    let columns = Columns {
        min: Column { found, cell: |of| of.min.map(number) },
        max: Column { found, cell: |of| of.max.map(number) },
        mean: Column { found, cell: |of| of.mean.map(float) },
        std: Column { found, cell: |of| of.std.map(float) },
        nan: Column { found, cell: |of| Some(Exact(of.nan.into())) },
        infinite: Column { found, cell: |of| Some(Exact(of.infinite.into())) },
        zeros: Column { found, cell: |of| Some(Exact(of.zeros.into())) },
        all_equal: Column { found, cell: |of| Some(of.all_equal) },
        histogram: Column { found, cell: |of| of.histogram.as_ref().map(bins) },
    };
    to.add("stats", &columns)
}

/// An element; an integer that JavaScript would round as a text.
fn number(number: Number) -> Value {
    match number {
        Number::Signed(number) => Exact(number.into()).value(),
        Number::Unsigned(number) => Exact(number.into()).value(),
        Number::Float(number) => float(number),
    }
}

fn bins(of: &Histogram) -> Bins {
    Bins(float(of.start), float(of.width), heights(&of.counts))
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
