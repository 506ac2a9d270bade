//! RotaryEmbedding: pairs of elements of every head, turned by the angle of their position.
//!
//! See <https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html>, and for the operator of
//! onnxruntime <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>.

use super::elementwise::same;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{each_of, index, size};
use crate::numeric::{Float, for_type, number};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new(
        "RotaryEmbedding",
        same,
        |cx| for_type!(cx.dtype(0)?, floats, T => rotary::<T>(cx)),
    ),
    Builtin::of_onnxruntime(
        "RotaryEmbedding",
        infer_of_onnxruntime,
        |cx| for_type!(cx.dtype(0)?, floats, T => rotary_of_onnxruntime::<T>(cx)),
    ),
];

/// How the input lies: heads of `head` elements, of which the first `turned` are turned.
#[derive(Debug, Clone, Copy)]
struct Layout {
    batch: usize,
    sequence: usize,
    heads: usize,
    head: usize,
    turned: usize,
    /// Whether the heads lie before the sequence: an input with four dimensions.
    heads_first: bool,
}

impl Layout {
    fn new(call: &Call<'_>) -> Result<Self> {
        let (shape, turned) = (call.shape(0)?, size(call.int_or("rotary_embedding_dim", 0)?)?);
        let given = size(call.int_or("num_heads", 0)?)?;
        let wrong = |reason: String| Error::new(ErrorKind::Shape, reason);
        let (batch, sequence, heads, head) = match *shape.as_slice() {
            [batch, heads, sequence, head] => (batch, sequence, heads, head),
            [batch, sequence, hidden] if hidden.checked_rem(given) == Some(0) => {
                (batch, sequence, given, hidden / given)
            }
            _ => return Err(wrong(format!("an input of shape {shape:?} with {given} heads"))),
        };
        let turned = if turned == 0 { head } else { turned };
        if turned > head || turned % 2 == 1 {
            return Err(wrong(format!("pairs of the first {turned} of {head} elements of a head")));
        }
        Ok(Self { batch, sequence, heads, head, turned, heads_first: shape.len() == 4 })
    }

    /// The batch and the place in the sequence of each head, in the order in which heads lie.
    fn places(self) -> impl Iterator<Item = (usize, usize)> {
        let (outer, inner) = match self.heads_first {
            true => (self.heads, self.sequence),
            false => (self.sequence, self.heads),
        };
        let heads = (0..self.batch).flat_map(move |b| (0..outer).map(move |o| (b, o)));
        let places = heads.flat_map(move |(b, o)| (0..inner).map(move |i| (b, o, i)));
        places.map(move |(b, o, i)| (b, if self.heads_first { i } else { o }))
    }
}

/// For each batch and place in the sequence, the row of the caches: the position, or the place
/// itself.
fn rows(call: &Call<'_>, layout: Layout, cached: usize) -> Result<Vec<usize>> {
    let needed = layout.batch.saturating_mul(layout.sequence);
    let rows = match call.has_input(3) {
        true => {
            call.integers(3)?.iter().map(|at| index(*at, cached)).collect::<Result<Vec<_>>>()?
        }
        false => (0..cached).collect(),
    };
    if rows.len() == needed {
        return Ok(rows);
    }
    let reason = format!("{} positions for {needed} places of the sequences", rows.len());
    Err(Error::new(ErrorKind::Shape, reason))
}

/// The angles of the pairs of a head: a row of cosines and of sines for each position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Angles<'a, T> {
    cos: &'a [T],
    sin: &'a [T],
    half: usize,
    /// Whether the elements of a pair are neighbours. Else the first ones of all pairs are.
    interleaved: bool,
}

impl<'a, T: Float> Angles<'a, T> {
    /// Those in the inputs `cos` and `sin`, for heads of which `half` pairs are turned.
    pub(super) fn new(
        call: &Call<'a>,
        [cos, sin]: [usize; 2],
        half: usize,
        interleaved: bool,
    ) -> Result<Self> {
        let shape = call.shape(cos)?;
        let (cos, sin) = (call.input::<T>(cos)?, call.input::<T>(sin)?);
        if cos.len() != sin.len() || shape.last() != Some(&half) {
            let reason = format!("caches of shape {shape:?} for {half} pairs of elements");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(Self { cos, sin, half, interleaved })
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        each_of(self.cos.len(), self.half)
    }

    /// Turns the pairs at the beginning of `head` by the angles of `row`.
    pub(super) fn turn(&self, head: &mut [T], row: usize) -> Result<()> {
        let row = row * self.half..(row + 1) * self.half;
        let angles = self.cos.part(row.clone())?.iter().zip(self.sin.part(row)?);
        let turned = head.part_mut(..2 * self.half)?;
        if self.interleaved {
            for ([x, y], angle) in turned.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                turn((x, y), angle);
            }
        } else {
            let (first, second) = turned.split_at_mut(self.half);
            first.iter_mut().zip(second).zip(angles).for_each(|(pair, angle)| turn(pair, angle));
        }
        Ok(())
    }
}

fn rotary<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let layout = Layout::new(cx)?;
    let angles = Angles::<T>::new(cx, [1, 2], layout.turned / 2, cx.flag("interleaved", false)?)?;
    let rows = rows(cx, layout, angles.rows())?;
    turn_all(cx, layout, angles, &rows)
}

/// Turns every head of input 0 by the angles of its row, which there is for each batch and place in
/// the sequence.
fn turn_all<T: Float>(
    cx: &mut RunCx<'_>,
    layout: Layout,
    angles: Angles<'_, T>,
    rows: &[usize],
) -> Result<()> {
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    output.copy_from_slice(input);
    for ((b, s), head) in layout.places().zip(output.chunks_exact_mut(layout.head.max(1))) {
        angles.turn(head, *rows.at(b * layout.sequence + s)?)?;
    }
    Ok(())
}

/// Turns the pair by the angle of this cosine and sine.
fn turn<T: Float>((x, y): (&mut T, &mut T), (cos, sin): (&T, &T)) {
    let (a, b, cos, sin) = (x.widen(), y.widen(), cos.widen(), sin.widen());
    *x = T::round_from(cos * a - sin * b);
    *y = T::round_from(sin * a + cos * b);
}

/// The layout of onnxruntime's operator: the caches tell how long a head is, unless the number of
/// heads is given.
fn layout_of_onnxruntime(call: &Call<'_>) -> Result<Layout> {
    let (shape, turned) = (call.shape(0)?, size(call.int_or("rotary_embedding_dim", 0)?)?);
    let (given, cached) = (size(call.int_or("num_heads", 0)?)?, call.shape(2)?);
    let wrong = |reason: String| Error::new(ErrorKind::Shape, reason);
    let (batch, sequence, heads, head) = match *shape.as_slice() {
        [batch, heads, sequence, head] => (batch, sequence, heads, head),
        [batch, sequence, hidden] => {
            let head = match (given, turned) {
                (0, 0) => cached.last().map_or(0, |half| half.saturating_mul(2)),
                _ => hidden.checked_div(given).unwrap_or(0),
            };
            if hidden.checked_rem(head) != Some(0) {
                let reason = format!("an input of shape {shape:?} with {given} heads");
                return Err(wrong(format!("{reason} and caches of shape {cached:?}")));
            }
            (batch, sequence, hidden / head, head)
        }
        _ => return Err(wrong(format!("an input of shape {shape:?}"))),
    };
    let turned = if turned == 0 { head } else { turned };
    if turned > head || turned % 2 == 1 {
        return Err(wrong(format!("pairs of the first {turned} of {head} elements of a head")));
    }
    Ok(Layout { batch, sequence, heads, head, turned, heads_first: shape.len() == 4 })
}

fn infer_of_onnxruntime(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    layout_of_onnxruntime(call)?;
    let scale = call.float_or("scale", 1.0)?;
    if scale.total_cmp(&1.0).is_ne() {
        // The text has it as a scale, and onnxruntime does not read it.
        return Err(call.no_kernel(&format!("`scale` {scale}")));
    }
    same(call)
}

/// Input 1 has a position for each place, or the position of the first place of each sequence.
fn rotary_of_onnxruntime<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let layout = layout_of_onnxruntime(cx)?;
    let angles = Angles::<T>::new(cx, [2, 3], layout.turned / 2, cx.flag("interleaved", false)?)?;
    let (batch, sequence) = (layout.batch, layout.sequence);
    let given = cx.integers(1)?;
    let positions = match (given.as_slice(), cx.shape(1)?.as_slice()) {
        ([first], [1]) => {
            let place = |s: usize| first.saturating_add(number(s));
            (0..batch).flat_map(|_| (0..sequence).map(place)).collect()
        }
        (_, shape) if shape == [batch, sequence] => given,
        (_, shape) => {
            let reason =
                format!("positions of shape {shape:?} for {batch} sequences of {sequence}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    };
    let row = |at: &i64| row_at(*at, angles.rows());
    let rows = positions.iter().map(row).collect::<Result<Vec<_>>>()?;
    turn_all(cx, layout, angles, &rows)
}

/// The row of position `at` in caches of so many rows.
pub(super) fn row_at(at: i64, rows: usize) -> Result<usize> {
    usize::try_from(at).ok().filter(|row| *row < rows).ok_or_else(|| {
        Error::new(ErrorKind::Value, format!("position {at} in caches of {rows} positions"))
    })
}
