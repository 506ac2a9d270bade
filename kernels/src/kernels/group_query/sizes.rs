//! The inputs of a GroupQueryAttention, their sizes, and what of them has no kernel here.

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::call::Call;
use crate::numeric::broadcast::size;

// The numbers of the inputs.
pub(super) const QUERY: usize = 0;
pub(super) const KEY: usize = 1;
pub(super) const VALUE: usize = 2;
pub(super) const PAST_KEY: usize = 3;
pub(super) const PAST_VALUE: usize = 4;
pub(super) const LENGTHS: usize = 5;
pub(super) const TOTAL: usize = 6;
pub(super) const COS: usize = 7;
pub(super) const SIN: usize = 8;
pub(super) const POSITIONS: usize = 9;
pub(super) const BIAS: usize = 10;
pub(super) const SINKS: usize = 11;
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
pub(super) struct Sizes {
    pub(super) batch: usize,
    /// The queries of each sequence, and as many new keys.
    pub(super) sequence: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head: usize,
    /// How many keys the cache has room for, before and after.
    pub(super) past: usize,
    pub(super) present: usize,
    /// The keys of the longest sequence.
    pub(super) total: usize,
    /// Whether keys and values lie behind the queries, in input 0.
    pub(super) packed: bool,
}

impl Sizes {
    pub(super) fn new(call: &Call<'_>) -> Result<Self> {
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
        let past = if self.is_prompt() { 0 } else { total.checked_sub(self.sequence)? };
        (past <= self.past).then_some(Span { past, total })
    }

    /// Whether the sequences begin here, with an empty cache.
    pub(super) fn is_prompt(&self) -> bool {
        self.sequence == self.total
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
pub(super) fn unfit(call: &Call<'_>) -> Error {
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

/// The keys of one sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// Those that were in the cache.
    pub(super) past: usize,
    /// Those that are attended to: behind them there is padding.
    pub(super) total: usize,
}

/// The keys of each sequence. A prompt begins with an empty cache, and shorter sequences end in
/// padding.
pub(super) fn spans(call: &Call<'_>, sizes: &Sizes) -> Result<Vec<Span>> {
    let span = |last: &i64| {
        sizes.span(*last).ok_or_else(|| {
            let Sizes { sequence, past, total, .. } = sizes;
            let keys = format!("{total} keys, {sequence} of them new, and a cache of {past}");
            Error::new(ErrorKind::Value, format!("`seqlens_k` has {last} for {keys}"))
        })
    };
    call.integers(LENGTHS)?.iter().map(span).collect()
}
