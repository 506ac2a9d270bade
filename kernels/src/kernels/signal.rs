//! Fourier transforms: [DFT](https://onnx.ai/onnx/operators/onnx__DFT.html) and
//! [STFT](https://onnx.ai/onnx/operators/onnx__STFT.html).
//!
//! Numbers are complex with parts of `f64`, whatever the type of the elements, and rounded once.
//! The transform itself is in `fourier`.

use std::ops::Range;

use super::fourier::{C, Fourier};
use super::resize_scale::float;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{around, axis, size};
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("DFT", dft_infer, dft), Builtin::new("STFT", stft_infer, stft)];

/// What a DFT is asked for.
#[derive(Debug)]
struct Dft {
    axis: usize,
    len: usize,
    inverse: bool,
    onesided: bool,
    /// The parts of a number of the input: one or two.
    parts: usize,
    shape: Vec<usize>,
}

fn dft_of(call: &Call<'_>) -> Result<Dft> {
    let shape = call.shape(0)?;
    let (inverse, onesided) = (call.flag("inverse", false)?, call.flag("onesided", false)?);
    let at = match call.version() {
        ..20 => call.int_or("axis", 1)?,
        _ if call.has_input(2) => call.scalar::<i64>(2)?,
        _ => -2,
    };
    let at = axis(at, shape.len())?;
    let parts = *shape.last().or_bug("an axis of a scalar")?;
    if at + 1 == shape.len() || !(1..=2).contains(&parts) {
        let reason = format!("a transform along axis {at} of the shape {shape:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let dim = *shape.at(at)?;
    let len = match call.has_input(1) {
        true => length(call, 1)?,
        false if inverse && onesided => dim.saturating_sub(1) * 2,
        false => dim,
    };
    if len == 0 {
        return Err(Error::new(ErrorKind::Value, "a transform of no elements"));
    }
    Ok(Dft { axis: at, len, inverse, onesided, parts, shape })
}

/// The length in input `i`, a scalar.
pub(super) fn length(call: &Call<'_>, i: usize) -> Result<usize> {
    match call.integers(i)?.as_slice() {
        [len] => size(*len),
        list => {
            let reason = format!("input {i} has {} elements, not one", list.len());
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

impl Dft {
    /// The numbers of a line of the output, and their parts.
    fn output(&self) -> (usize, usize) {
        match (self.onesided, self.inverse) {
            (true, true) => (self.len, 1),
            (true, false) => (self.len / 2 + 1, 2),
            (false, _) => (self.len, 2),
        }
    }

    /// The numbers of a line of the input: extended by zeros, cut off, or completed by its other
    /// half.
    fn complete(&self, mut line: Vec<C>) -> Vec<C> {
        if !(self.onesided && self.inverse) {
            line.resize(self.len, C::default());
            return line;
        }
        line.resize(self.len / 2 + 1, C::default());
        let other = line.iter().skip(1).take((self.len - 1) / 2).rev().map(C::conj);
        let other: Vec<_> = other.collect();
        line.extend(other);
        line
    }
}

fn dft_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let dft = dft_of(call)?;
    let (len, parts) = dft.output();
    let mut shape = dft.shape.clone();
    *shape.at_mut(dft.axis)? = len;
    *shape.last_mut().or_bug("an axis of a scalar")? = parts;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// The number at `place`, which has one or two parts.
fn number<T: Number>(x: &[T], place: usize, parts: usize) -> C {
    let part = |i: usize| x.get(place + i).filter(|_| i < parts).map_or(0.0, |x| x.to_f64());
    C::new(part(0), part(1))
}

/// Writes the parts of `number` to `place`.
fn set_number<T: Number>(y: &mut [T], place: usize, parts: usize, number: C) -> Result<()> {
    let places = y.part_mut(place..place + parts)?.iter_mut();
    places.zip([number.re, number.im]).for_each(|(y, part)| *y = T::from_f64(part));
    Ok(())
}

fn dft(cx: &mut RunCx<'_>) -> Result<()> {
    let dft = dft_of(cx)?;
    let (out_len, out_parts) = dft.output();
    let (outer, dim, inner) = around(&dft.shape, dft.axis);
    let lines = inner / dft.parts;
    if outer == 0 || lines == 0 {
        return Ok(());
    }
    let fourier = Fourier::new(dft.len, dft.inverse)?;
    let scale = if dft.inverse { float(dft.len) } else { 1.0 };
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, y) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        for (o, i) in (0..outer).flat_map(|o| (0..lines).map(move |i| (o, i))) {
            let at = |k: usize| (o * dim + k) * inner + i * dft.parts;
            let line = (0..dim.min(dft.len)).map(|k| number(x, at(k), dft.parts)).collect();
            let numbers = fourier.transform(&dft.complete(line));
            for (k, number) in numbers.into_iter().take(out_len).enumerate() {
                let place = ((o * out_len + k) * lines + i) * out_parts;
                set_number(y, place, out_parts, number / scale)?;
            }
        }
        Ok(())
    })
}

/// The parts of a number, the numbers of a frame, the step between frames, and how many there are.
fn frames(call: &Call<'_>) -> Result<(usize, usize, usize, usize)> {
    let shape = call.shape(0)?;
    let [_, len, parts @ 1..=2] = shape.as_slice() else {
        let reason = format!("a signal of shape {shape:?}, not [batch, length, 1 or 2]");
        return Err(Error::new(ErrorKind::Shape, reason));
    };
    let window = if call.has_input(2) { Some(call.shape(2)?) } else { None };
    let frame = match &window {
        _ if call.has_input(3) => length(call, 3)?,
        Some(shape) => shape.iter().product(),
        None => *len,
    };
    let step = length(call, 1)?;
    let fits = window.is_none_or(|shape| shape == [frame]);
    match len.checked_sub(frame).and_then(|room| room.checked_div(step)) {
        Some(steps) if fits && frame > 0 => Ok((*parts, frame, step, steps + 1)),
        _ => {
            let reason = format!("frames of {frame} in steps of {step} over {len} elements");
            Err(Error::new(ErrorKind::Value, reason))
        }
    }
}

/// The numbers of a frame that are wanted.
fn kept(call: &Call<'_>, frame: usize) -> Result<Range<usize>> {
    Ok(if call.flag("onesided", true)? { 0..frame / 2 + 1 } else { 0..frame })
}

fn stft_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (_, frame, _, frames) = frames(call)?;
    let shape = [*call.shape(0)?.at(0)?, frames, kept(call, frame)?.len(), 2];
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

fn stft(cx: &mut RunCx<'_>) -> Result<()> {
    let (parts, frame, step, _) = frames(cx)?;
    let kept = kept(cx, frame)?.len();
    let len = *cx.shape(0)?.at(1)?;
    if cx.out_shape(0)?.contains(&0) {
        return Ok(());
    }
    let fourier = Fourier::new(frame, false)?;
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, window) = (cx.input::<T>(0)?, cx.input_if::<T>(2)?);
        let signals = x.chunks_exact((len * parts).max(1));
        let starts = signals.flat_map(|signal| (0..=len - frame).step_by(step).map(move |at| (signal, at)));
        for (y, (signal, start)) in cx.output::<T>(0)?.chunks_exact_mut(kept * 2).zip(starts) {
            let weight = |i: usize| match window {
                Some(window) => window.debug_at(i, T::ZERO).to_f64(),
                None => 1.0,
            };
            let line = (0..frame).map(|i| number(signal, (start + i) * parts, parts) * weight(i));
            let numbers = fourier.transform(&line.collect::<Vec<_>>());
            for (k, number) in numbers.into_iter().take(kept).enumerate() {
                set_number(y, k * 2, 2, number)?;
            }
        }
        Ok(())
    })
}
