//! Attention: the softmax of the products of queries and keys, with caps, masks and caches,
//! multiplied by the values.
//!
//! See <https://onnx.ai/onnx/operators/onnx__Attention.html>. Queries are taken in blocks, so that
//! the memory beside the inputs and outputs grows with the number of keys alone. What enters and
//! leaves the softmax is rounded to the type that `softmax_precision` names; without it, to that of
//! the queries and keys.

use onnx_container_proto::Element as _;

use super::attention_bias::Bias;
use super::cast::dtype_of;
use super::softmax::softmax;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{each_of, size};
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("Attention", infer, |cx| {
    for_type!(cx.dtype(0)?, floats, T => {
        for_type!(cx.dtype(2)?, floats, V => attention::<T, V>(cx))
    })
})];

/// How many queries are computed together.
const QUERIES: usize = 32;

/// The sizes of an attention. The length of a query and of a key is `head`, that of a value
/// `value`.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    /// The keys of the input, without those of the cache.
    keys: usize,
    /// The keys of the cache.
    past: usize,
    head: usize,
    value: usize,
    /// Whether heads lie in the last dimension: inputs with three dimensions.
    flat: bool,
}

impl Sizes {
    fn new(call: &Call<'_>) -> Result<Self> {
        let flat = call.rank(0)? == 3;
        let [batch, heads, queries, head] = heads_of(call, 0, "q_num_heads")?;
        let [_, kv_heads, keys, _] = heads_of(call, 1, "kv_num_heads")?;
        let [.., value] = heads_of(call, 2, "kv_num_heads")?;
        let past = match (call.has_input(4), call.has_input(5)) {
            (true, true) => match *call.shape(4)? {
                [_, _, past, _] => past,
                _ => return Err(unfit(call)),
            },
            (false, false) => 0,
            _ => {
                let reason = "a cache has both keys and values";
                return Err(Error::new(ErrorKind::Input, reason));
            }
        };
        let sizes = Self { batch, heads, kv_heads, queries, keys, past, head, value, flat };
        sizes.check(call)?;
        Ok(sizes)
    }

    /// Whether all inputs have these sizes.
    fn check(&self, call: &Call<'_>) -> Result<()> {
        let (key, value) = (heads_of(call, 1, "kv_num_heads")?, heads_of(call, 2, "kv_num_heads")?);
        let fits = key == [self.batch, self.kv_heads, self.keys, self.head]
            && value == [self.batch, self.kv_heads, self.keys, self.value]
            && call.rank(1)? == call.rank(0)?
            && call.rank(2)? == call.rank(0)?
            && self.heads.checked_rem(self.kv_heads) == Some(0)
            && (!call.has_input(4) || call.shape(4)? == self.cache(self.past, self.head))
            && (!call.has_input(5) || call.shape(5)? == self.cache(self.past, self.value));
        if fits { Ok(()) } else { Err(unfit(call)) }
    }

    /// All keys: those of the cache and those of the input.
    fn total(&self) -> usize {
        self.past.saturating_add(self.keys)
    }

    /// The shape of the scores.
    fn scores(&self) -> [usize; 4] {
        [self.batch, self.heads, self.queries, self.total()]
    }

    fn cache(&self, keys: usize, len: usize) -> [usize; 4] {
        [self.batch, self.kv_heads, keys, len]
    }
}

/// The error of shapes that do not belong together.
fn unfit(call: &Call<'_>) -> Error {
    let shapes = call.shown_shapes(call.input_count());
    Error::new(ErrorKind::Shape, format!("the shapes {shapes:?} are not those of an attention"))
}

/// Input `i` as batch, heads, sequence, and the length of a head. With three dimensions, the number
/// of heads is the attribute `name`.
fn heads_of(call: &Call<'_>, i: usize, name: &str) -> Result<[usize; 4]> {
    let shape = call.shape(i)?;
    match *shape.as_slice() {
        [batch, heads, sequence, len] => Ok([batch, heads, sequence, len]),
        [batch, sequence, hidden] => {
            let heads = size(call.int(name)?)?;
            match hidden.checked_rem(heads) {
                Some(0) => Ok([batch, heads, sequence, hidden / heads]),
                _ => {
                    let reason = format!("{heads} heads of input {i} of shape {shape:?}");
                    Err(Error::new(ErrorKind::Shape, reason))
                }
            }
        }
        _ => {
            let reason = format!("input {i} has {} dimensions, not 3 or 4", shape.len());
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    softmax_of::<f32>(call)?;
    let sizes = Sizes::new(call)?;
    let Sizes { batch, heads, queries, head, value, .. } = sizes;
    let shape = match sizes.flat {
        true => vec![batch, queries, heads.saturating_mul(value)],
        false => vec![batch, heads, queries, value],
    };
    Ok(vec![
        OutSpec::tensor(call.dtype(0)?, shape),
        OutSpec::tensor(call.dtype(1)?, sizes.cache(sizes.total(), head)),
        OutSpec::tensor(call.dtype(2)?, sizes.cache(sizes.total(), value)),
        OutSpec::tensor(call.dtype(0)?, sizes.scores()),
    ])
}

/// Rows of `len` elements by batch, head and place in the sequence.
#[derive(Debug, Clone, Copy)]
struct Rows {
    heads: usize,
    sequence: usize,
    len: usize,
    flat: bool,
}

impl Rows {
    /// Which elements a row has.
    fn range(self, batch: usize, head: usize, at: usize) -> std::ops::Range<usize> {
        let row = match self.flat {
            true => (batch * self.sequence + at) * self.heads + head,
            false => (batch * self.heads + head) * self.sequence + at,
        };
        row * self.len..(row + 1) * self.len
    }

    fn row<T>(self, elements: &[T], batch: usize, head: usize, at: usize) -> Result<&[T]> {
        elements.part(self.range(batch, head, at))
    }
}

/// Input `cache` and behind it, head by head, input `i`: rows of `len` elements.
fn present<T: Float>(
    cx: &RunCx<'_>,
    sizes: &Sizes,
    (i, cache, len): (usize, usize, usize),
) -> Result<Vec<T>> {
    let (input, past) = (cx.input::<T>(i)?, cx.input_or::<T>(cache, &[])?);
    let Sizes { kv_heads: heads, flat, .. } = *sizes;
    let rows = Rows { heads, sequence: sizes.keys, len, flat };
    let old = sizes.past.saturating_mul(len);
    let mut present = Vec::with_capacity(input.len() + past.len());
    for b in 0..sizes.batch {
        for h in 0..heads {
            let start = (b * heads + h) * old;
            present.extend_from_slice(past.part(start..start + old)?);
            for at in 0..sizes.keys {
                present.extend_from_slice(rows.row(input, b, h, at)?);
            }
        }
    }
    Ok(present)
}

/// The steps from scores to probabilities, by the attributes.
#[derive(Debug, Clone, Copy)]
struct Steps<R> {
    /// The square root of the scale: queries and keys are each multiplied by it.
    scale: R,
    /// The cap of the scores; 0 for none.
    cap: R,
    /// After which step the scores are output 3: 0 the product, 1 the cap, 2 the mask, 3 the
    /// softmax.
    shown: i64,
    /// The softmax, in its precision.
    softmax: fn(&mut [R]),
}

impl<R: Real> Steps<R> {
    fn new<T: Float<Real = R>>(cx: &RunCx<'_>, head: usize) -> Result<Self> {
        let scale = match cx.node().attributes.float("scale")? {
            Some(scale) => f64::from(scale),
            None => 1.0 / Real::sqrt(crate::numeric::number::<f64>(head)),
        };
        Ok(Self {
            scale: R::of(Real::sqrt(scale)),
            cap: R::of(f64::from(cx.float_or("softcap", 0.0)?)),
            shown: cx.int_or("qk_matmul_output_mode", 0)?,
            softmax: softmax_of::<T>(cx)?,
        })
    }

    fn capped(&self, score: R) -> R {
        if self.cap > R::ZERO { (score / self.cap).tanh() * self.cap } else { score }
    }

    /// Scores become probabilities. `shown` gets the scores as they are after the step that output
    /// 3 shows.
    fn apply(
        &self,
        scores: &mut [R],
        mut shown: Option<&mut [R]>,
        bias: &mut [R],
        add: impl FnOnce(&mut [R]) -> Result<()>,
    ) -> Result<()> {
        let mut show = |step: i64, scores: &[R]| {
            if let Some(shown) = shown.as_deref_mut().filter(|_| step == self.shown) {
                shown.copy_from_slice(scores);
            }
        };
        show(0, scores);
        scores.iter_mut().for_each(|score| *score = self.capped(*score));
        show(1, scores);
        bias.fill(R::ZERO);
        add(bias)?;
        let is_masked = bias.iter().all(|bias| *bias == R::LOWEST);
        scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += *bias);
        show(2, scores);
        if is_masked {
            scores.fill(R::ZERO)
        } else {
            (self.softmax)(scores)
        }
        show(3, scores);
        Ok(())
    }
}

/// The softmax of a row, in the precision of the attribute, which is `T`, the type of queries and
/// keys, without one.
fn softmax_of<T: Float>(call: &Call<'_>) -> Result<fn(&mut [T::Real])> {
    let precision = match call.node().attributes.get("softmax_precision") {
        Some(_) => dtype_of(call, "softmax_precision")?,
        None => T::DTYPE,
    };
    if precision == T::Real::DTYPE {
        return Ok(softmax);
    }
    for_type!(precision, floats, S => Ok(softmax_in::<T::Real, S>))
}

/// The softmax of a row whose elements are rounded to `S` before and after it.
fn softmax_in<R: Real, S: Float>(row: &mut [R]) {
    let mut own: Vec<S::Real> = row.iter().map(|x| S::from_f64(x.to_f64()).widen()).collect();
    softmax(&mut own);
    row.iter_mut().zip(own).for_each(|(x, own)| *x = R::of(S::round_from(own).to_f64()));
}

fn attention<T: Float, V: Float>(cx: &mut RunCx<'_>) -> Result<()> {
    let sizes = Sizes::new(cx)?;
    let keys = present::<T>(cx, &sizes, (1, 4, sizes.head))?;
    let values = present::<V>(cx, &sizes, (2, 5, sizes.value))?;
    if let Some(output) = cx.output_if::<T>(1)? {
        output.copy_from_slice(&keys);
    }
    if let Some(output) = cx.output_if::<V>(2)? {
        output.copy_from_slice(&values);
    }
    let steps = Steps::new::<T>(cx, sizes.head)?;
    let bias = Bias::new(cx, sizes.scores(), sizes.past)?;
    let run = Run { sizes, steps, bias, query: cx.input::<T>(0)? };
    let (y, shown) = (cx.output::<T>(0)?, cx.output_or_empty::<T>(3)?);
    y.fill(T::ZERO); // where there are no keys
    shown.fill(T::ZERO);
    let keys = keys.chunks_exact((sizes.total() * sizes.head).max(1));
    let values = values.chunks_exact((sizes.total() * sizes.value).max(1));
    let group = sizes.heads / sizes.kv_heads.max(1);
    for (at, (key, value)) in keys.zip(values).enumerate() {
        let key: Vec<_> = key.iter().map(|x| x.widen() * steps.scale).collect();
        let value: Vec<_> =
            value.iter().map(|x| <T::Real as Number>::from_f64(x.to_f64())).collect();
        for head in at * group..(at + 1) * group {
            run.head((head / sizes.heads, head % sizes.heads), (&key, &value), y, shown)?;
        }
    }
    Ok(())
}

/// An attention that runs.
struct Run<'a, T: Float> {
    sizes: Sizes,
    steps: Steps<T::Real>,
    bias: Bias<T::Real>,
    query: &'a [T],
}

impl<T: Float> Run<'_, T> {
    /// All queries of one head.
    fn head(
        &self,
        (b, h): (usize, usize),
        (key, value): (&[T::Real], &[T::Real]),
        y: &mut [T],
        shown: &mut [T],
    ) -> Result<()> {
        let Sizes { heads, queries: sequence, head, value: len, flat, .. } = self.sizes;
        let rows = Rows { heads, sequence, len: head, flat };
        let out_rows = Rows { heads, sequence, len, flat };
        let shown_rows = Rows { heads, sequence, len: self.sizes.total(), flat: false };
        for first in (0..sequence).step_by(QUERIES) {
            let block = first..sequence.min(first + QUERIES);
            let mut query = Vec::with_capacity(block.len() * head);
            for i in block.clone() {
                let row = rows.row(self.query, b, h, i)?;
                query.extend(row.iter().map(|x| x.widen() * self.steps.scale));
            }
            let total = self.sizes.total();
            let len_shown = if shown.is_empty() { 0 } else { block.len() * total };
            let mut visible = vec![<T::Real as Number>::ZERO; len_shown];
            let scores = self.scores((b, h, first), &query, key, &mut visible)?;
            for (row, i) in visible.chunks_exact(shown_rows.len.max(1)).zip(block.clone()) {
                let target = shown.part_mut(shown_rows.range(b, h, i))?;
                target.iter_mut().zip(row).for_each(|(y, x)| *y = T::round_from(*x));
            }
            let mut results = vec![<T::Real as Number>::ZERO; block.len() * len];
            let scores = Matrix::new(&scores, block.len(), total)?;
            gemm(Profile::Strict, scores, &Matrix::new(value, total, len)?, &mut results)?;
            for (row, i) in results.chunks_exact(len.max(1)).zip(block) {
                let target = y.part_mut(out_rows.range(b, h, i))?;
                target.iter_mut().zip(row).for_each(|(y, x)| *y = T::round_from(*x));
            }
        }
        Ok(())
    }

    /// The probabilities of a block of queries, rounded to the type of the queries. What output 3
    /// shows of them is written to `shown`.
    fn scores(
        &self,
        (b, h, first): (usize, usize, usize),
        query: &[T::Real],
        key: &[T::Real],
        shown: &mut [T::Real],
    ) -> Result<Vec<T::Real>> {
        let total = self.sizes.total();
        let zero = <T::Real as Number>::ZERO;
        let queries = each_of(query.len(), self.sizes.head);
        let (mut scores, mut bias) = (vec![zero; queries * total], vec![zero; total]);
        let query = Matrix::new(query, queries, self.sizes.head)?;
        let key = Matrix::new(key, total, self.sizes.head)?;
        gemm(Profile::Strict, query, &key.transposed(), &mut scores)?;
        let mut shown_rows = shown.chunks_exact_mut(total.max(1));
        for (row, i) in scores.chunks_exact_mut(total.max(1)).zip(first..) {
            let shown = shown_rows.next(); // none where output 3 is left out
            self.steps.apply(row, shown, &mut bias, |bias| self.bias.add((b, h, i), bias))?;
            row.iter_mut().for_each(|x| *x = T::round_from(*x).widen());
        }
        Ok(scores)
    }
}
