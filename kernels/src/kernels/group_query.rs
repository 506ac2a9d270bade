//! GroupQueryAttention: an attention of which several heads share keys and values, with a cache of
//! those, and with rotary positions.
//!
//! See <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Each sequence
//! has its own length. Scores are computed in 32 bits, for blocks of queries. Turned queries and
//! keys are rounded to the type of the input, as they are in the cache. What onnxruntime has on
//! other devices is refused.

use std::ops::Range;

use super::rotary::{Angles, row_at};
use super::softmax::highest;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{each_of, size};
use crate::numeric::gemm::{Matrix, gemm};
use crate::numeric::profile::Profile;
use crate::numeric::{Float, Number, Real, for_type, number};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("GroupQueryAttention", infer, |cx| run(cx, Profile::Strict))
        .domain("com.microsoft")];
pub(super) const FAST: &[Builtin] =
    &[Builtin::new("GroupQueryAttention", infer, |cx| run(cx, Profile::Fast))
        .domain("com.microsoft")];

/// How many queries are computed together.
const QUERIES: usize = 32;

// The numbers of the inputs.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
const PAST_KEY: usize = 3;
const PAST_VALUE: usize = 4;
const LENGTHS: usize = 5;
const TOTAL: usize = 6;
const COS: usize = 7;
const SIN: usize = 8;
const POSITIONS: usize = 9;
const BIAS: usize = 10;
const SINKS: usize = 11;
/// Inputs that only kernels of other devices take, or that this one does not.
const REFUSED: [(usize, &str); 5] = [
    (12, "k_scale"),
    (13, "v_scale"),
    (14, "q_norm_weight"),
    (15, "k_norm_weight"),
    (16, "query_seqlens"),
];

/// The sizes of an attention.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    /// The queries of each sequence, and as many new keys.
    sequence: usize,
    heads: usize,
    kv_heads: usize,
    head: usize,
    /// How many keys the cache has room for, before and after.
    past: usize,
    present: usize,
    /// The keys of the longest sequence.
    total: usize,
    /// Whether keys and values lie behind the queries, in input 0.
    packed: bool,
}

impl Sizes {
    fn new(call: &Call<'_>) -> Result<Self> {
        refuse(call)?;
        let [heads, kv_heads] = [size(call.int("num_heads")?)?, size(call.int("kv_num_heads")?)?];
        let packed = !call.has_input(KEY);
        let [batch, sequence, hidden] = *call.shape(QUERY)? else { return Err(unfit(call)) };
        let in_row = if packed { heads.saturating_add(kv_heads.saturating_mul(2)) } else { heads };
        if hidden.checked_rem(in_row) != Some(0) || heads.checked_rem(kv_heads) != Some(0) {
            return Err(unfit(call));
        }
        let past = match call.has_input(PAST_KEY) {
            true => call.shape(PAST_KEY)?.get(2).copied().unwrap_or(0),
            false => 0,
        };
        let total = match *call.integers(TOTAL)?.as_slice() {
            [total] => size(total)?,
            _ => return Err(unfit(call)),
        };
        let (head, present) = (hidden / in_row, past.max(total));
        let sizes = Self { batch, sequence, heads, kv_heads, head, past, present, total, packed };
        sizes.check(call)?;
        Ok(sizes)
    }

    /// The keys of a sequence whose last one is number `last`, if the cache has those before.
    fn span(&self, last: i64) -> Option<Span> {
        let total = usize::try_from(last.checked_add(1)?).ok()?;
        let total = Some(total).filter(|total| (1..=self.total).contains(total))?;
        let is_prompt = self.sequence == self.total;
        let past = if is_prompt { 0 } else { total.checked_sub(self.sequence)? };
        (past <= self.past).then_some(Span { past, total })
    }

    /// Whether all inputs have these sizes.
    fn check(&self, call: &Call<'_>) -> Result<()> {
        let Self { batch, sequence, heads, kv_heads, head, past, total, packed, .. } = *self;
        let of_keys = vec![batch, sequence, kv_heads.saturating_mul(head)];
        let of_cache = vec![batch, kv_heads, past, head];
        let fits = |i: usize, shape: &Vec<usize>| Ok::<_, Error>(call.shape(i)? == *shape);
        let are_there = |i: usize, j: usize| call.has_input(i) == call.has_input(j);
        let mut all = are_there(KEY, VALUE)
            && are_there(PAST_KEY, PAST_VALUE)
            && are_there(COS, SIN)
            && (sequence..=past.saturating_add(sequence)).contains(&total)
            && (packed || (fits(KEY, &of_keys)? && fits(VALUE, &of_keys)?))
            && call.shape(LENGTHS)?.iter().product::<usize>() == batch;
        for i in [PAST_KEY, PAST_VALUE].into_iter().filter(|i| call.has_input(*i)) {
            all &= fits(i, &of_cache)?;
        }
        if call.has_input(POSITIONS) {
            all &= fits(POSITIONS, &vec![batch, sequence])?;
        }
        if call.has_input(SINKS) {
            all &= fits(SINKS, &vec![heads])?;
        }
        if call.has_input(BIAS) {
            let shape = call.shape(BIAS)?;
            all &= matches!(*shape, [b, h, s, t] if (b == 1 || b == batch)
                && (h == 1 || h == heads) && s == sequence && t == total);
        }
        if all { Ok(()) } else { Err(unfit(call)) }
    }
}

/// The error of shapes that do not belong together.
fn unfit(call: &Call<'_>) -> Error {
    let shapes = call.shown_shapes(call.input_count());
    let reason = format!("the shapes {shapes:?} are not those of a group query attention");
    Error::new(ErrorKind::Shape, reason)
}

/// Refuses what has no kernel here.
fn refuse(call: &Call<'_>) -> Result<()> {
    refused(call)?.map_or(Ok(()), |what| Err(call.no_kernel(&what)))
}

/// The first that has no kernel here.
fn refused(call: &Call<'_>) -> Result<Option<String>> {
    if let Some((_, name)) = REFUSED.iter().find(|(i, _)| call.has_input(*i)) {
        return Ok(Some(format!("`{name}`")));
    }
    for name in ["kv_cache_bit_width", "sliding_window_cache", "qk_output"] {
        if call.flag(name, false)? {
            return Ok(Some(format!("`{name}`")));
        }
    }
    for name in ["k_quant_type", "v_quant_type"] {
        let kind = call.str_or(name, "NONE")?;
        if kind != "NONE" {
            return Ok(Some(format!("`{name}` {kind}")));
        }
    }
    for i in [PAST_KEY, PAST_VALUE] {
        if call.has_input(i) && call.dtype(i)? != call.dtype(QUERY)? {
            let [cache, queries] = [call.dtype(i)?, call.dtype(QUERY)?];
            return Ok(Some(format!("a cache of {cache} and queries of {queries}")));
        }
    }
    let window = call.int_or("local_window_size", -1)?;
    let what = match window {
        0 => Some("`local_window_size` 0"),
        1.. if !call.flag("causal", true)? => Some("`local_window_size` and `causal` 0"),
        _ => call.has_output(3).then_some("`output_qk`"),
    };
    Ok(what.map(str::to_owned))
}

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

/// The keys of one sequence.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// Those that were in the cache.
    past: usize,
    /// Those that are attended to: behind them there is padding.
    total: usize,
}

/// The keys of each sequence. A prompt begins with an empty cache, and shorter sequences end in
/// padding.
fn spans(call: &Call<'_>, sizes: &Sizes) -> Result<Vec<Span>> {
    let span = |last: &i64| {
        sizes.span(*last).ok_or_else(|| {
            let Sizes { sequence, past, total, .. } = sizes;
            let keys = format!("{total} keys, {sequence} of them new, and a cache of {past}");
            Error::new(ErrorKind::Value, format!("`seqlens_k` has {last} for {keys}"))
        })
    };
    call.integers(LENGTHS)?.iter().map(span).collect()
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
        let positions = match cx.has_input(POSITIONS) {
            true => cx.integers(POSITIONS)?,
            false => {
                let places = |span: &Span| span.past..span.past + sizes.sequence;
                spans.iter().flat_map(places).map(number::<i64>).collect()
            }
        };
        let row = |at: i64| row_at(at, angles.rows());
        Ok(Some(Self { angles, rows: positions.into_iter().map(row).collect::<Result<_>>()? }))
    }
}

/// Writes the cache of a batch and head: `past`, the new rows behind it, and zeros.
fn fill_cache<T: Float>(
    cache: &mut [T],
    past: &[T],
    (new, turns): (Heads<'_, T>, Option<&Turns<'_, T>>),
    (rows, h): (Range<usize>, usize),
) -> Result<()> {
    cache.fill(T::ZERO);
    cache.part_mut(..past.len())?.copy_from_slice(past);
    let places = cache.part_mut(past.len()..)?.chunks_exact_mut(new.head.max(1));
    for (row, place) in rows.zip(places) {
        place.copy_from_slice(new.at(row, h)?);
        if let Some(turns) = turns {
            turns.angles.turn(place, *turns.rows.at(row)?)?;
        }
    }
    Ok(())
}

/// The keys or the values of all sequences: the input `past` and `new`, turned or not.
fn present<T: Float>(
    cx: &RunCx<'_>,
    sizes: &Sizes,
    spans: &[Span],
    past: usize,
    new: (Heads<'_, T>, Option<&Turns<'_, T>>),
) -> Result<Vec<T>> {
    let Sizes { batch, kv_heads, sequence, head, .. } = *sizes;
    let past = cx.input_or::<T>(past, &[])?;
    let (before, after) = (sizes.past * head, sizes.present * head);
    let mut present = vec![T::ZERO; batch * kv_heads * after];
    for (at, cache) in present.chunks_exact_mut(after.max(1)).enumerate() {
        let (b, h) = (at / kv_heads, at % kv_heads);
        let start = at * before;
        let old = past.part(start..start + spans.at(b)?.past * head)?;
        fill_cache(cache, old, new, (b * sequence..(b + 1) * sequence, h))?;
    }
    Ok(present)
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
    let Sizes { heads, kv_heads, head, .. } = sizes;
    let spans = spans(cx, &sizes)?;
    let [queries, keys, values] = inputs::<T>(cx, &sizes)?;
    let turns = Turns::new(cx, &sizes, &spans)?;
    let keys = present(cx, &sizes, &spans, PAST_KEY, (keys, turns.as_ref()))?;
    let values = present(cx, &sizes, &spans, PAST_VALUE, (values, None))?;
    for (j, cache) in [(1, &keys), (2, &values)] {
        if let Some(output) = cx.output_if::<T>(j)? {
            output.copy_from_slice(cache);
        }
    }
    let run = Run::new(cx, sizes, (queries, turns), profile)?;
    let y = cx.output::<T>(0)?;
    let len = (sizes.present * head).max(1);
    for (at, (keys, values)) in keys.chunks_exact(len).zip(values.chunks_exact(len)).enumerate() {
        let (b, kv_head) = (at / kv_heads, at % kv_heads);
        let span = *spans.at(b)?;
        let attended = ..span.total * head;
        let widened = |all: &[T]| {
            Ok::<Vec<_>, Error>(all.part(attended)?.iter().map(|x| x.widen()).collect())
        };
        let (keys, values) = (widened(keys)?, widened(values)?);
        let group = each_of(heads, kv_heads);
        for h in kv_head * group..(kv_head + 1) * group {
            run.head((b, h), span, (&keys, &values), y)?;
        }
    }
    Ok(())
}
