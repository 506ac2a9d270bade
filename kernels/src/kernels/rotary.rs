//! RotaryEmbedding: pairs of elements of every head, turned by the angle of their position.
//!
//! See <https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html>.

use super::elementwise::same;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::Call;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{each_of, index, size};
use crate::numeric::{Float, for_type};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new(
    "RotaryEmbedding",
    same,
    |cx| for_type!(cx.dtype(0)?, floats, T => rotary::<T>(cx)),
)];

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

fn rotary<T: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let layout = Layout::new(cx)?;
    let half = layout.turned / 2;
    let (cos, sin) = (cx.input::<T>(1)?, cx.input::<T>(2)?);
    if cos.len() != sin.len() || cx.shape(1)?.last() != Some(&half) {
        let reason = format!("caches of shape {:?} for {half} pairs of elements", cx.shape(1)?);
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let rows = rows(cx, layout, each_of(cos.len(), half))?;
    let interleaved = cx.flag("interleaved", false)?;
    let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
    output.copy_from_slice(input);
    for ((b, s), head) in layout.places().zip(output.chunks_exact_mut(layout.head.max(1))) {
        let row = rows.at(b * layout.sequence + s)? * half;
        let angles = cos.iter().zip(sin).skip(row).take(half);
        let turned = head.part_mut(..layout.turned)?;
        if interleaved {
            for ([x, y], angle) in turned.as_chunks_mut::<2>().0.iter_mut().zip(angles) {
                turn((x, y), angle);
            }
        } else {
            let (first, second) = turned.split_at_mut(half);
            first.iter_mut().zip(second).zip(angles).for_each(|(pair, angle)| turn(pair, angle));
        }
    }
    Ok(())
}

/// Turns the pair by the angle of this cosine and sine.
fn turn<T: Float>((x, y): (&mut T, &mut T), (cos, sin): (&T, &T)) {
    let (a, b, cos, sin) = (x.widen(), y.widen(), cos.widen(), sin.widen());
    *x = T::round_from(cos * a - sin * b);
    *y = T::round_from(sin * a + cos * b);
}
