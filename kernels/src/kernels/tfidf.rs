//! [TfIdfVectorizer](https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html): how often each
//! n-gram of a pool is in a row of words or integers, weighted.
//!
//! An n-gram is found with every distance between its items from 1 to `max_skip_count` + 1; one of
//! a single item has no distance and is counted once.

use std::collections::HashMap;
use std::hash::Hash;

use onnx_container_proto::DataType;

use super::words::one_of;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::size;

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("TfIdfVectorizer", infer, run)];

fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidModel, reason.into())
}

/// What counts become.
const MODES: [&str; 3] = ["TF", "IDF", "TFIDF"];

/// The coordinate in the output of each n-gram of the pool, and the number of coordinates.
fn coordinates(call: &Call<'_>) -> Result<(Vec<usize>, usize)> {
    let indexes = call.ints_or("ngram_indexes", &[])?;
    let indexes = indexes.iter().map(|index| size(*index)).collect::<Result<Vec<_>>>()?;
    let width = indexes.iter().max().map_or(0, |highest| highest.saturating_add(1));
    Ok((indexes, width))
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (_, width) = coordinates(call)?;
    Window::of(call)?;
    one_of(call, "mode", &MODES)?;
    let weights = call.node().attributes.floats("weights")?;
    if let Some(weights) = weights.filter(|weights| weights.len() < width) {
        return Err(invalid(format!("{} weights for {width} coordinates", weights.len())));
    }
    let shape = match *call.shape(0)? {
        [] | [_] => vec![width],
        [rows, _] => vec![rows, width],
        _ => return Err(Error::new(ErrorKind::Shape, "the input has more than two dimensions")),
    };
    Ok(vec![OutSpec::tensor(DataType::Float, shape)])
}

fn run(cx: &mut RunCx<'_>) -> Result<()> {
    if cx.dtype(0)? == DataType::String {
        let pool = cx.node().attributes.strings_or("pool_strings", &[])?;
        let pool: Vec<&[u8]> = pool.iter().map(Vec::as_slice).collect();
        let words: Vec<&[u8]> = cx.strings(0)?.iter().map(|word| word.as_ref()).collect();
        return vectorize(cx, &pool, &words);
    }
    let (pool, words) = (cx.ints_or("pool_int64s", &[])?, cx.integers(0)?);
    vectorize(cx, pool, &words)
}

/// The n-grams of the pool, each with its number.
fn grams<'p, T: Eq + Hash>(call: &Call<'_>, pool: &'p [T]) -> Result<HashMap<&'p [T], usize>> {
    let starts = call.ints_or("ngram_counts", &[])?;
    let starts = starts.iter().map(|start| size(*start)).collect::<Result<Vec<_>>>()?;
    let ends = starts.iter().skip(1).copied().chain([pool.len()]);
    let mut grams = HashMap::new();
    let mut number = 0;
    for (n, (start, end)) in (1..).zip(starts.iter().zip(ends)) {
        let of_size = pool.get(*start..end).ok_or_else(|| {
            invalid(format!("attribute `ngram_counts` is {starts:?}, the pool has {}", pool.len()))
        })?;
        for gram in of_size.chunks_exact(n) {
            grams.insert(gram, number);
            number += 1;
        }
    }
    Ok(grams)
}

/// What is counted: lengths of n-grams, and how many items may be skipped.
struct Window {
    min: usize,
    max: usize,
    skips: usize,
}

impl Window {
    fn of(call: &Call<'_>) -> Result<Self> {
        let number = |name| size(call.int(name)?);
        let window = Self {
            min: number("min_gram_length")?,
            max: number("max_gram_length")?,
            skips: number("max_skip_count")?,
        };
        if window.min == 0 || window.max < window.min {
            let reason = format!("n-grams of {} to {} items", window.min, window.max);
            return Err(invalid(reason));
        }
        Ok(window)
    }

    /// Calls `found` with the number of each n-gram of `grams` in `row`.
    fn search<T: Eq + Hash + Copy>(
        &self,
        row: &[T],
        grams: &HashMap<&[T], usize>,
        mut found: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let longest = grams.keys().map(|gram| gram.len()).fold(0, usize::max);
        let mut gram = Vec::new();
        // A distance of more than the row has nothing but n-grams of one item.
        for distance in 1..=self.skips.saturating_add(1).min(row.len()) {
            for start in 0..row.len() {
                gram.clear();
                for item in row.iter().skip(start).step_by(distance).take(self.max.min(longest)) {
                    gram.push(*item);
                    let is_counted = gram.len() >= self.min && (gram.len() > 1 || distance == 1);
                    if let Some(number) = grams.get(gram.as_slice()).filter(|_| is_counted) {
                        found(*number)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn vectorize<T: Eq + Hash + Copy>(cx: &mut RunCx<'_>, pool: &[T], words: &[T]) -> Result<()> {
    let ((coordinates, width), grams) = (coordinates(cx)?, grams(cx, pool)?);
    let window = Window::of(cx)?;
    let output = cx.output::<f32>(0)?;
    output.fill(0.0);
    let len = match *cx.shape(0)? {
        [_, len] => len,
        _ => words.len(),
    };
    let rows = words.chunks_exact(len.max(1)).zip(output.chunks_exact_mut(width.max(1)));
    for (row, counts) in rows {
        window.search(row, &grams, |number| {
            // An n-gram without a coordinate is not counted.
            let Some(at) = coordinates.get(number) else { return Ok(()) };
            *counts.at_mut(*at)? += 1.0;
            Ok(())
        })?;
    }
    weigh(cx, output, width)
}

/// Counts become what attribute `mode` says; weights are those of the coordinates.
fn weigh(call: &Call<'_>, counts: &mut [f32], width: usize) -> Result<()> {
    let weights = match call.node().attributes.floats("weights")? {
        Some(weights) => weights.part(..width)?,
        None => &vec![1.0; width],
    };
    let f: fn(f32, f32) -> f32 = match one_of(call, "mode", &MODES)? {
        "IDF" => |count, weight| if count > 0.0 { weight } else { 0.0 },
        "TFIDF" => |count, weight| count * weight,
        _ => |count, _| count,
    };
    for row in counts.chunks_exact_mut(width.max(1)) {
        row.iter_mut().zip(weights).for_each(|(count, weight)| *count = f(*count, *weight));
    }
    Ok(())
}
