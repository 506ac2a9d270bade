//! GroupQueryAttention: an attention of which several heads share keys and values, with a cache of
//! those, and with rotary positions.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Each sequence
//! has its own length. Scores are computed in 32 bits, for blocks of queries. Turned queries and
//! keys are rounded to the type of the input, as they are in the cache. What onnxruntime has on
//! other devices is refused.

mod sizes;

use std::ops::Range;

use self::sizes::{
    BIAS, COS, KEY, PAST_KEY, PAST_VALUE, POSITIONS, QUERY, SIN, SINKS, Sizes, Span, VALUE, spans,
    unfit,
};
use super::rotary::{Angles, row_at};
use super::softmax::highest;
use crate::error::{Error, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::each_of;
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Float, Number, Real, for_type, number};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::of_onnxruntime("GroupQueryAttention", infer, |cx| run(cx, Profile::Strict))];
pub(super) const FAST: &[Builtin] =
    &[Builtin::of_onnxruntime("GroupQueryAttention", infer, |cx| run(cx, Profile::Fast))];

/// How many queries are computed together.
const QUERIES: usize = 32;

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (sizes, dtype) = (Sizes::new(call)?, call.dtype(QUERY)?);
    let Sizes { batch, sequence, heads, kv_heads, head, present, .. } = sizes;
    let cache = OutSpec::tensor(dtype, [batch, kv_heads, present, head]);
    let y = OutSpec::tensor(dtype, [batch, sequence, heads.saturating_mul(head)]);
    Ok(vec![y, cache.clone(), cache])
}

fn run(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    for_type!(cx.dtype(QUERY)?, floats, T => attention::<T>(cx, profile))
}

/// The heads of one input: in each row of it, `heads` of them from head `first` on.
#[derive(Debug, Clone, Copy)]
struct Heads<'a, T> {
    elements: &'a [T],
    in_row: usize,
    first: usize,
    head: usize,
}

impl<'a, T> Heads<'a, T> {
    /// Head `h` of `row`.
    fn at(&self, row: usize, h: usize) -> Result<&'a [T]> {
        let start = (row * self.in_row + self.first + h) * self.head;
        self.elements.part(start..start + self.head)
    }
}

/// The queries, the new keys and the new values.
fn inputs<'a, T: Float>(cx: &RunCx<'a>, sizes: &Sizes) -> Result<[Heads<'a, T>; 3]> {
    let Sizes { heads, kv_heads, head, packed, .. } = *sizes;
    if packed {
        let elements = cx.input::<T>(QUERY)?;
        let of = |first| Heads { elements, in_row: heads + 2 * kv_heads, first, head };
        return Ok([of(0), of(heads), of(heads + kv_heads)]);
    }
    let of =
        |i, in_row| cx.input::<T>(i).map(|elements| Heads { elements, in_row, first: 0, head });
    Ok([of(QUERY, heads)?, of(KEY, kv_heads)?, of(VALUE, kv_heads)?])
}

/// The angles by which queries and keys are turned, if they are, and the row of each place of each
/// sequence.
struct Turns<'a, T> {
    angles: Angles<'a, T>,
    rows: Vec<usize>,
}

impl<'a, T: Float> Turns<'a, T> {
    fn new(cx: &RunCx<'a>, sizes: &Sizes, spans: &[Span]) -> Result<Option<Self>> {
        if !cx.flag("do_rotary", false)? {
            return Ok(None);
        }
        let half = cx.shape(COS)?.last().copied().unwrap_or(0);
        if half.saturating_mul(2) > sizes.head {
            return Err(unfit(cx));
        }
        let angles = Angles::new(cx, [COS, SIN], half, cx.flag("rotary_interleaved", false)?)?;
        let positions = positions(cx, sizes, spans)?;
        let row = |at: i64| row_at(at, angles.rows());
        Ok(Some(Self { angles, rows: positions.into_iter().map(row).collect::<Result<_>>()? }))
    }
}

/// The position of each place of each sequence. Of the positions that are given for prompts, the
/// first one counts, from which all sequences go on.
fn positions(call: &Call<'_>, sizes: &Sizes, spans: &[Span]) -> Result<Vec<i64>> {
    let given = if call.has_input(POSITIONS) { Some(call.integers(POSITIONS)?) } else { None };
    let first = |given: &[i64]| given.first().copied().unwrap_or(0);
    Ok(match given {
        Some(given) if !sizes.is_prompt() => given,
        Some(given) => {
            let row = (0..sizes.sequence).map(|s| first(&given).saturating_add(number::<i64>(s)));
            let row: Vec<_> = row.collect();
            row.repeat(sizes.batch)
        }
        None => {
            let places = |span: &Span| span.past..span.past + sizes.sequence;
            spans.iter().flat_map(places).map(number::<i64>).collect()
        }
    })
}

/// The keys or the values of all batches and heads: the input `past` and `new` behind it, turned or
/// not.
struct Cache<'a, T> {
    past: &'a [T],
    new: Heads<'a, T>,
    /// Output `j`, where it is asked for, and else room for one batch and head.
    present: &'a mut [T],
    room: Vec<T>,
}

impl<'a, T: Float> Cache<'a, T> {
    fn new(
        cx: &mut RunCx<'a>,
        sizes: &Sizes,
        (past, present): (usize, usize),
        new: Heads<'a, T>,
    ) -> Result<Self> {
        let (past, len) = (cx.input_or::<T>(past, &[])?, sizes.present * sizes.head);
        Ok(match cx.output_if::<T>(present)? {
            Some(present) => Self { past, new, present, room: Vec::new() },
            None => Self { past, new, present: &mut [], room: vec![T::ZERO; len] },
        })
    }

    /// Writes and returns the cache of head `h` of batch `b`: what was in it, the new rows behind
    /// that, and zeros.
    fn fill(
        &mut self,
        sizes: &Sizes,
        (b, h): (usize, usize),
        (span, turns): (Span, Option<&Turns<'_, T>>),
    ) -> Result<&[T]> {
        let Sizes { kv_heads, sequence, head, past, present, .. } = *sizes;
        let at = b * kv_heads + h;
        let cache = match self.room.is_empty() {
            true => self.present.part_mut(at * present * head..(at + 1) * present * head)?,
            false => &mut self.room,
        };
        let old = self.past.part(at * past * head..)?.part(..span.past * head)?;
        let (before, places) = cache.split_at_mut(old.len());
        before.copy_from_slice(old);
        let (new, behind) = places.split_at_mut((sequence * head).min(places.len()));
        for (row, place) in (b * sequence..).zip(new.chunks_exact_mut(head)) {
            place.copy_from_slice(self.new.at(row, h)?);
            if let Some(turns) = turns {
                turns.angles.turn(place, *turns.rows.at(row)?)?;
            }
        }
        behind.fill(T::ZERO);
        Ok(cache)
    }
}

/// An attention that runs.
struct Run<'a, T: Float> {
    sizes: Sizes,
    profile: Profile,
    queries: Heads<'a, T>,
    turns: Option<Turns<'a, T>>,
    scale: T::Real,
    /// The cap of the scores; 0 for none.
    cap: T::Real,
    /// Whether a query attends to no key behind it.
    is_causal: bool,
    /// How many keys a query attends to at most.
    window: usize,
    /// What is added to the scores, by batch and head, or the same for all of either.
    bias: Option<(&'a [T], [usize; 2])>,
    /// For each head, the score of a key without a value.
    sinks: Option<Vec<T::Real>>,
}

impl<'a, T: Float> Run<'a, T> {
    fn new(
        cx: &RunCx<'a>,
        sizes: Sizes,
        (queries, turns): (Heads<'a, T>, Option<Turns<'a, T>>),
        profile: Profile,
    ) -> Result<Self> {
        let scale = match cx.float_or("scale", 0.0)? {
            0.0 => 1.0 / Real::sqrt(number::<f64>(sizes.head)),
            scale => f64::from(scale),
        };
        let window = usize::try_from(cx.int_or("local_window_size", -1)?).unwrap_or(usize::MAX);
        let bias = match cx.has_input(BIAS) {
            true => Some((cx.input::<T>(BIAS)?, bias_dims(&cx.shape(BIAS)?))),
            false => None,
        };
        let smooth = cx.int_or("smooth_softmax", 0)? > 0;
        let sinks = match cx.has_input(SINKS) {
            true => Some(cx.input::<T>(SINKS)?.iter().map(|x| x.widen()).collect()),
            false => smooth.then(|| vec![<T::Real as Number>::ZERO; sizes.heads]),
        };
        let cap = T::Real::of(f64::from(cx.float_or("softcap", 0.0)?));
        let (scale, is_causal) = (T::Real::of(scale), cx.flag("causal", true)?);
        Ok(Self { sizes, profile, queries, turns, scale, cap, is_causal, window, bias, sinks })
    }

    /// All queries of one head.
    fn head(
        &self,
        (b, h): (usize, usize),
        span: Span,
        (keys, values): (&[T::Real], &[T::Real]),
        y: &mut [T],
    ) -> Result<()> {
        let Sizes { sequence, heads, head, .. } = self.sizes;
        for first in (0..sequence).step_by(QUERIES) {
            let block = first..sequence.min(first + QUERIES);
            let queries = self.queries((b, h), block.clone())?;
            let mut scores = vec![<T::Real as Number>::ZERO; block.len() * span.total];
            let keys = Matrix::new(keys, span.total, head)?.transposed();
            let queries = Matrix::new(&queries, block.len(), head)?;
            gemm(self.profile, queries, &keys, &mut scores)?;
            for (row, i) in scores.chunks_exact_mut(span.total.max(1)).zip(block.clone()) {
                self.probabilities((b, h, i), span, row)?;
            }
            let mut results = vec![<T::Real as Number>::ZERO; block.len() * head];
            let scores = Matrix::new(&scores, block.len(), span.total)?;
            gemm(self.profile, scores, &Matrix::new(values, span.total, head)?, &mut results)?;
            for (row, i) in results.chunks_exact(head.max(1)).zip(block) {
                let start = ((b * sequence + i) * heads + h) * head;
                let target = y.part_mut(start..start + head)?;
                target.iter_mut().zip(row).for_each(|(y, x)| *y = T::round_from(*x));
            }
        }
        Ok(())
    }

    /// The queries of a block, turned.
    fn queries(&self, (b, h): (usize, usize), block: Range<usize>) -> Result<Vec<T::Real>> {
        let mut queries = Vec::with_capacity(block.len() * self.sizes.head);
        for i in block {
            let row = b * self.sizes.sequence + i;
            let mut query = self.queries.at(row, h)?.to_vec();
            if let Some(turns) = &self.turns {
                turns.angles.turn(&mut query, *turns.rows.at(row)?)?;
            }
            queries.extend(query.iter().map(|x| x.widen()));
        }
        Ok(queries)
    }

    /// The products of one query become probabilities: 0 for keys that it does not attend to.
    fn probabilities(
        &self,
        (b, h, i): (usize, usize, usize),
        span: Span,
        row: &mut [T::Real],
    ) -> Result<()> {
        let zero = <T::Real as Number>::ZERO;
        let next = if self.is_causal { span.past + i + 1 } else { span.total };
        let end = next.min(span.total);
        let start = next.saturating_sub(self.window).min(end);
        let (front, rest) = row.split_at_mut(start);
        let (seen, behind) = rest.split_at_mut(end - start);
        front.fill(zero);
        behind.fill(zero);
        seen.iter_mut().for_each(|score| *score = self.capped(*score * self.scale));
        if let Some((bias, dims)) = self.bias {
            let [by_batch, by_head] = dims;
            let line = ((b * by_batch) + h * by_head) * self.sizes.sequence + i;
            let own = bias.part(line * self.sizes.total..(line + 1) * self.sizes.total)?;
            let own = own.part(start..end)?;
            seen.iter_mut().zip(own).for_each(|(score, bias)| *score += bias.widen());
        }
        let sink = match &self.sinks {
            Some(sinks) => Some(*sinks.at(h)?),
            None => None,
        };
        softmax(seen, sink);
        Ok(())
    }

    fn capped(&self, score: T::Real) -> T::Real {
        let zero = <T::Real as Number>::ZERO;
        if self.cap > zero { (score / self.cap).tanh() * self.cap } else { score }
    }
}

/// How many matrices of the bias are passed over by the next batch, and by the next head.
fn bias_dims(shape: &[usize]) -> [usize; 2] {
    match *shape {
        [batch, heads, ..] => [if batch > 1 { heads } else { 0 }, if heads > 1 { 1 } else { 0 }],
        _ => [0, 0],
    }
}

/// The softmax of a row and of one more score, whose probability is left out.
fn softmax<R: Real>(row: &mut [R], sink: Option<R>) {
    let max = highest(row);
    let max = sink.filter(|sink| *sink > max).unwrap_or(max);
    row.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum = row.iter().fold(R::ZERO, |sum, x| sum + *x);
    let sum = sink.map_or(sum, |sink| sum + (sink - max).exp());
    row.iter_mut().for_each(|x| *x = *x / sum);
}

fn attention<T: Float>(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    let sizes = Sizes::new(cx)?;
    let Sizes { batch, heads, kv_heads, head, .. } = sizes;
    let spans = spans(cx, &sizes)?;
    let [queries, keys, values] = inputs::<T>(cx, &sizes)?;
    let turns = Turns::new(cx, &sizes, &spans)?;
    let mut keys = Cache::new(cx, &sizes, (PAST_KEY, 1), keys)?;
    let mut values = Cache::new(cx, &sizes, (PAST_VALUE, 2), values)?;
    let run = Run::new(cx, sizes, (queries, turns), profile)?;
    let y = cx.output::<T>(0)?;
    if head == 0 {
        return Ok(());
    }
    let group = each_of(heads, kv_heads);
    for (b, kv_head) in (0..batch).flat_map(|b| (0..kv_heads).map(move |h| (b, h))) {
        let span = *spans.at(b)?;
        let keys = keys.fill(&sizes, (b, kv_head), (span, run.turns.as_ref()))?;
        let values = values.fill(&sizes, (b, kv_head), (span, None))?;
        let widened = |all: &[T]| {
            let attended = all.part(..span.total * head)?;
            Ok::<Vec<_>, Error>(attended.iter().map(|x| x.widen()).collect())
        };
        let (keys, values) = (widened(keys)?, widened(values)?);
        for h in kv_head * group..(kv_head + 1) * group {
            run.head((b, h), span, (&keys, &values), y)?;
        }
    }
    Ok(())
}
