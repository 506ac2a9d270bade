//! LinearAttention: attention by a state that every token changes, in place of products with all
//! keys.
//!
//! See <https://onnx.ai/onnx/operators/onnx__LinearAttention.html>. All is computed in `f32`, token
//! by token.

use super::normalization::reals;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::size;
use crate::numeric::{Number, Real, for_type, number};

pub(super) const KERNELS: &[Builtin] = &[Builtin::new("LinearAttention", infer, linear_attention)];

/// The sizes: keys have `key` elements, values `value` ones, and a state is a matrix of both.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: usize,
    tokens: usize,
    heads: usize,
    kv_heads: usize,
    key: usize,
    value: usize,
}

impl Sizes {
    fn new(call: &Call<'_>) -> Result<Self> {
        let (heads, kv_heads) = (size(call.int("q_num_heads")?)?, size(call.int("kv_num_heads")?)?);
        let [batch, tokens, key] = packed(call, 0, heads)?;
        let [.., value] = packed(call, 2, kv_heads)?;
        let sizes = Self { batch, tokens, heads, kv_heads, key, value };
        let fits = packed(call, 1, kv_heads)? == [batch, tokens, key]
            && packed(call, 2, kv_heads)? == [batch, tokens, value]
            && heads.checked_rem(kv_heads) == Some(0)
            && (!call.has_input(3) || call.shape(3)? == sizes.state());
        if fits {
            return Ok(sizes);
        }
        let shapes = call.shown_shapes(4);
        let reason =
            format!("{heads} heads of queries and {kv_heads} of keys with shapes {shapes:?}");
        Err(Error::new(ErrorKind::Shape, reason))
    }

    fn state(&self) -> [usize; 4] {
        [self.batch, self.kv_heads, self.key, self.value]
    }
}

/// Input `i` as batch, tokens and the length of each of its heads.
fn packed(call: &Call<'_>, i: usize, heads: usize) -> Result<[usize; 3]> {
    let shape = call.shape(i)?;
    match *shape.as_slice() {
        [batch, tokens, hidden] if hidden.checked_rem(heads) == Some(0) => {
            Ok([batch, tokens, hidden / heads])
        }
        _ => {
            let reason = format!("{heads} heads of input {i} of shape {shape:?}");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

/// The output, and the state, which has the type of the given one, or else of the queries.
fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let sizes = Sizes::new(call)?;
    let hidden = sizes.heads.saturating_mul(sizes.value);
    let state = call.dtype(if call.has_input(3) { 3 } else { 0 })?;
    Ok(vec![
        OutSpec::tensor(call.dtype(0)?, [sizes.batch, sizes.tokens, hidden]),
        OutSpec::tensor(state, sizes.state()),
    ])
}

/// A factor for each token, in rows of as many elements as there are heads, keys of heads, or one.
#[derive(Debug)]
struct Gate {
    elements: Vec<f32>,
    /// The length of a row, and of what belongs to one head in it.
    row: usize,
    head: usize,
}

impl Gate {
    /// Input `i`, which is there when the rule has such a gate, and has one of the lengths
    /// `of_head` for a head; 0 means that all heads share one element.
    fn new(cx: &RunCx<'_>, i: usize, is_used: bool, of_head: [usize; 2]) -> Result<Option<Self>> {
        if is_used != cx.has_input(i) {
            let reason = format!("input {i} and the update rule do not fit");
            return Err(Error::new(ErrorKind::Input, reason));
        }
        if !is_used {
            return Ok(None);
        }
        let (sizes, shape) = (Sizes::new(cx)?, cx.shape(i)?);
        let head =
            |len: usize| of_head.into_iter().find(|head| (head * sizes.kv_heads).max(1) == len);
        match *shape.as_slice() {
            [batch, tokens, row] if (batch, tokens) == (sizes.batch, sizes.tokens) => {
                head(row).map(|head| (row, head))
            }
            _ => None,
        }
        .map(|(row, head)| Ok(Some(Self { elements: reals(cx, i)?, row, head })))
        .unwrap_or_else(|| {
            let reason = format!("input {i} of shape {shape:?} for {} heads", sizes.kv_heads);
            Err(Error::new(ErrorKind::Shape, reason))
        })
    }

    /// The factors of one head of a token; the last one is repeated without end.
    fn of(&self, token: usize, head: usize) -> Result<impl Iterator<Item = f32> + '_> {
        let start = token * self.row + head * self.head;
        let own = self.elements.part(start..start + self.head.max(1))?;
        let last = own.last().or_bug("a head without factors")?;
        Ok(own.iter().chain(std::iter::repeat(last)).copied())
    }

    /// The first factor of one head of a token.
    fn first(&self, token: usize, head: usize) -> Result<f32> {
        self.elements.at(token * self.row + head * self.head).copied()
    }
}

fn linear_attention(cx: &mut RunCx<'_>) -> Result<()> {
    let sizes = Sizes::new(cx)?;
    let (gated, corrected) = match cx.str_or("update_rule", "gated_delta")? {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => {
            let reason = format!("the update rule `{other}` is not known");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    };
    let scale = match cx.float_or("scale", 0.0)? {
        0.0 => 1.0 / Real::sqrt(number::<f32>(sizes.key)),
        scale => scale,
    };
    let [query, key, value] = [reals::<f32>(cx, 0)?, reals(cx, 1)?, reals(cx, 2)?];
    let decay = Gate::new(cx, 4, gated, [1, sizes.key])?;
    let beta = Gate::new(cx, 5, corrected, [1, 0])?;
    let area = sizes.key.saturating_mul(sizes.value);
    let mut states = match cx.has_input(3) {
        true => reals(cx, 3)?,
        false => vec![0.0; sizes.state().iter().product()],
    };
    let mut outputs = vec![0.0; cx.out_shape(0)?.iter().product()];
    let group = sizes.heads / sizes.kv_heads.max(1);
    for (at, state) in states.chunks_exact_mut(area.max(1)).enumerate() {
        let (b, h) = (at / sizes.kv_heads, at % sizes.kv_heads);
        for token in b * sizes.tokens..(b + 1) * sizes.tokens {
            let head = token * sizes.kv_heads + h;
            let key = part(&key, head, sizes.key)?;
            if let Some(decay) = &decay {
                fade(state, sizes.value, decay.of(token, h)?);
            }
            let mut change = part(&value, head, sizes.value)?.to_vec();
            if let Some(beta) = &beta {
                correct(&mut change, state, key, beta.first(token, h)?);
            }
            write(state, key, &change);
            for query_head in h * group..(h + 1) * group {
                let head = token * sizes.heads + query_head;
                let start = head * sizes.value;
                let output = outputs.part_mut(start..start + sizes.value)?;
                read(output, state, part(&query, head, sizes.key)?);
                output.iter_mut().for_each(|y| *y *= scale);
            }
        }
    }
    write_output(cx, 0, &outputs)?;
    write_output(cx, 1, &states)
}

/// Part `i` of parts of `len` elements.
fn part(elements: &[f32], i: usize, len: usize) -> Result<&[f32]> {
    elements.part(i * len..(i + 1) * len)
}

/// Multiplies each row of the state by the exponential of its decay.
fn fade(state: &mut [f32], len: usize, decay: impl Iterator<Item = f32>) {
    for (row, decay) in state.chunks_exact_mut(len.max(1)).zip(decay) {
        let factor = Real::exp(decay);
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

/// Adds to `sum` the rows of the state, each multiplied by an element of `by`.
fn read(sum: &mut [f32], state: &[f32], by: &[f32]) {
    for (row, by) in state.chunks_exact(sum.len().max(1)).zip(by) {
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += by * x);
    }
}

/// Replaces the value by `beta` times its difference from what the state has for the key.
fn correct(value: &mut [f32], state: &[f32], key: &[f32], beta: f32) {
    let mut found = vec![0.0; value.len()];
    read(&mut found, state, key);
    value.iter_mut().zip(found).for_each(|(value, found)| *value = beta * (*value - found));
}

/// Adds to the state the outer product of the key and the value.
fn write(state: &mut [f32], key: &[f32], value: &[f32]) {
    for (row, key) in state.chunks_exact_mut(value.len().max(1)).zip(key) {
        row.iter_mut().zip(value).for_each(|(x, value)| *x += key * value);
    }
}

/// Output `j`, where it is asked for, rounded to its type.
fn write_output(cx: &mut RunCx<'_>, j: usize, elements: &[f32]) -> Result<()> {
    if !cx.has_output(j) {
        return Ok(());
    }
    for_type!(cx.out_dtype(j)?, floats, T => {
        let output = cx.output::<T>(j)?;
        output.iter_mut().zip(elements).for_each(|(y, x)| *y = Number::from_f64(f64::from(*x)));
        Ok(())
    })
}
