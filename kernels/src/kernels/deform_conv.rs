//! [DeformConv](https://onnx.ai/onnx/operators/onnx__DeformConv.html): a convolution whose taps are
//! moved by offsets of their own, and weighted by a mask.
//!
//! What a tap sees between the elements of the image is interpolated linearly along each axis; what
//! lies outside is zero. Otherwise it is Conv: a product of the weights and the windows as columns.

use std::ops::Range;

use super::conv::{Sizes, add_bias, spec};
use super::resize_scale::float;
use super::window::Axis;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, size};
use crate::numeric::gemm::{Matrix, Source, gemm, panels, terms};
use crate::numeric::profile::Profile;
use crate::numeric::{Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("DeformConv", |call| spec(call, [0, 1], call.dtype(0)?), deform_conv)];

/// The groups of channels that share offsets, after checking the offsets and the mask.
fn offset_groups(cx: &RunCx<'_>, sizes: &Sizes) -> Result<usize> {
    let groups = size(cx.int_or("offset_group", 1)?)?;
    let rank = sizes.window.output().count();
    let of_tap = groups.checked_mul(sizes.window.taps());
    let fits = |i: usize, each: usize| {
        let places = sizes.window.output();
        let channels = of_tap.and_then(|taps| taps.checked_mul(each));
        let shape = [sizes.batch, channels?].into_iter().chain(places).collect::<Vec<_>>();
        (cx.shape(i).ok()? == shape).then_some(())
    };
    let channels = sizes.groups * sizes.inputs;
    let mask = if cx.has_input(4) { fits(4, 1) } else { Some(()) };
    if groups == 0 || !channels.is_multiple_of(groups) || fits(2, rank).and(mask).is_none() {
        let reason =
            format!("offsets of shape {:?} for {groups} groups, or their mask", cx.shape(2)?);
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(groups)
}

fn deform_conv(cx: &mut RunCx<'_>) -> Result<()> {
    let sizes = Sizes::new(cx, [0, 1])?;
    let groups = offset_groups(cx, &sizes)?;
    let (window, inputs) = (&sizes.window, sizes.inputs);
    let (rank, taps, places) = (window.output().count(), window.taps(), window.output_len());
    let rows = inputs * taps;
    if count(cx.out_shape(0)?) == 0 {
        return Ok(());
    }
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, w, offsets) =
            (terms(cx.input::<T>(0)?), terms(cx.input::<T>(1)?), terms(cx.input::<T>(2)?));
        let mask = cx.input_if::<T>(4)?.map(terms);
        let bias = cx.input_if::<T>(3)?.map(terms);
        T::fill_sums(cx.output::<T>(0)?, |y| {
            if let Some(bias) = bias {
                add_bias(&bias, sizes.groups * sizes.outputs, places, y)?;
            }
            let outputs = y.chunks_exact_mut(sizes.outputs * places);
            for (i, y) in outputs.enumerate().filter(|_| rows > 0) {
                let (image, group) = (i / sizes.groups, i % sizes.groups);
                let len = sizes.outputs * rows;
                let w = w.part(group * len..(group + 1) * len)?;
                let moved = groups * taps * places;
                let mask = mask.as_ref().map(|mask| mask.part(image * moved..)).transpose()?;
                let source = Moved {
                    sizes: &sizes,
                    x: x.part(i * inputs * window.input_len()..)?,
                    offsets: offsets.part(image * moved * rank..)?,
                    mask,
                    rank,
                    first: group * inputs,
                    of_offset: sizes.groups * inputs / groups,
                };
                gemm(Profile::Strict, Matrix::new(w, sizes.outputs, rows)?, &source, y)?;
            }
            Ok(())
        })
    })
}

/// The moved windows of the channels of one group: a row for each channel and tap, a column for
/// each output.
struct Moved<'m, R> {
    sizes: &'m Sizes,
    x: &'m [R],
    offsets: &'m [R],
    mask: Option<&'m [R]>,
    rank: usize,
    /// The first channel of the group, and how many channels share their offsets.
    first: usize,
    of_offset: usize,
}

impl<R: Real> Moved<'_, R> {
    /// What `tap` of output `place` sees of a channel.
    fn sample(&self, channel: usize, tap: usize, place: usize) -> R {
        let window = &self.sizes.window;
        let (places, plane) = (window.output_len(), window.input_len());
        let moved = (self.first + channel) / self.of_offset.max(1) * window.taps() + tap;
        let offset = |axis: usize| match (axis + self.rank).checked_sub(3) {
            Some(axis) => {
                let at = (moved * self.rank + axis) * places + place;
                self.offsets.debug_at(at, R::ZERO)
            }
            // The axes that are not there come first, and have no offset.
            None => R::ZERO,
        };
        let [a, b, c] = &window.axes;
        let (line, k) = (place / c.output, place % c.output);
        let (taps, t) = (tap / c.kernel, tap % c.kernel);
        let at = |axis: &Axis, i: usize, o: usize, tap: usize| {
            let start = float(o * axis.stride + tap * axis.dilation) - float(axis.begin);
            between(R::of(start) + offset(i), axis.input)
        };
        let planes = at(a, 0, line / b.output, taps / b.kernel);
        let lines = at(b, 1, line % b.output, taps % b.kernel);
        let columns = at(c, 2, k, t);
        let x = self.x.debug_part(channel * plane..);
        let mut sum = R::ZERO;
        for (i, u) in planes.into_iter().flatten() {
            for (j, v) in lines.into_iter().flatten() {
                for (k, w) in columns.into_iter().flatten() {
                    sum += u * v * w * x.debug_at((i * b.input + j) * c.input + k, R::ZERO);
                }
            }
        }
        let mask = self.mask.map(|mask| mask.debug_at(moved * places + place, R::ZERO));
        mask.map_or(sum, |mask| sum * mask)
    }
}

/// The two elements of an axis around `place` with their weights, where they exist.
fn between<R: Real>(place: R, len: usize) -> [Option<(usize, R)>; 2] {
    let base = Real::floor(place);
    [R::ZERO, R::ONE].map(|next| {
        let weight = R::ONE - Number::abs(place - base - next);
        let index = base + next;
        let at = usize::try_from(<u64 as Number>::from_f64(index.to_f64())).ok();
        at.filter(|at| index >= R::ZERO && *at < len).map(|at| (at, weight))
    })
}

impl<R: Real> Source<R> for Moved<'_, R> {
    type Element = R;

    fn rows(&self) -> usize {
        self.sizes.inputs * self.sizes.window.taps()
    }

    fn columns(&self) -> usize {
        self.sizes.window.output_len()
    }

    fn pack<const N: usize>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &mut [[R; N]],
    ) {
        let taps = self.sizes.window.taps();
        for (columns, panel) in panels(packed, rows.len(), columns) {
            for (row, packed) in rows.clone().zip(panel) {
                for (to, place) in packed.iter_mut().zip(columns.clone()) {
                    *to = self.sample(row / taps, row % taps, place);
                }
            }
        }
    }
}
