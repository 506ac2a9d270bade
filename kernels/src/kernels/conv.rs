//! Convolutions: [Conv](https://onnx.ai/onnx/operators/onnx__Conv.html),
//! [ConvInteger](https://onnx.ai/onnx/operators/onnx__ConvInteger.html) and
//! [QLinearConv](https://onnx.ai/onnx/operators/onnx__QLinearConv.html).
//!
//! A group is a product of matrices: its weights, and the windows of the image as columns, which
//! are packed from the image when they are needed and never lie in memory as a whole. Where each
//! group has one channel (depthwise), a sum over the taps by rows of the output is faster. A sum
//! starts with the bias and goes over the channels and taps in row-major order. What lies in the
//! padding adds zeros, or nothing.

use std::ops::Range;

use onnx_container_proto::DataType;

use super::window::{Window, image};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::gemm::{Matrix, Source, gemm, panels, terms};
use crate::numeric::nan::settle_elements;
use crate::numeric::profile::Profile;
use crate::numeric::{Number, Real, for_type, not_taken};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("Conv", conv_spec, |cx| conv(cx, Profile::Strict)),
    Builtin::new("ConvInteger", |call| spec(call, [0, 1], DataType::Int32), conv_integer),
    Builtin::new("QLinearConv", |call| spec(call, [0, 3], call.dtype(7)?), qlinear_conv),
];

/// Those of profile `fast`.
pub(super) const FAST: &[Builtin] =
    &[Builtin::new("Conv", conv_spec, |cx| conv(cx, Profile::Fast))];

/// The sizes of a convolution; channels are those of one group.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) window: Window,
    pub(super) batch: usize,
    pub(super) groups: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl Sizes {
    /// Those of the node with the image `x` and the weights `w`.
    pub(super) fn new(call: &Call<'_>, [x, w]: [usize; 2]) -> Result<Self> {
        let (outputs, inputs, kernel) = weights(call, w)?;
        let (batch, channels, spatial) = image(call, x)?;
        let groups = crate::numeric::broadcast::size(call.int_or("group", 1)?)?;
        if groups == 0 || inputs.checked_mul(groups) != Some(channels) || outputs % groups != 0 {
            let reason = format!(
                "{channels} channels in {groups} groups, with weights of {outputs} by {inputs} channels"
            );
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let window = Window::new(call, &spatial, &kernel)?;
        Ok(Self { window, batch, groups, inputs, outputs: outputs / groups })
    }

    fn all_outputs(&self) -> usize {
        self.groups * self.outputs
    }
}

/// The first dimensions of the weights in input `w`, and their window, which `kernel_shape` has to
/// be if it is stated.
pub(super) fn weights(call: &Call<'_>, w: usize) -> Result<(usize, usize, Vec<usize>)> {
    let (outputs, inputs, kernel) = image(call, w)?;
    let stated = call.ints_or("kernel_shape", &[])?;
    if !stated.is_empty()
        && !stated.iter().map(|dim| usize::try_from(*dim).ok()).eq(kernel.iter().copied().map(Some))
    {
        let reason =
            format!("kernel_shape is {stated:?}, but the weights have windows of {kernel:?}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok((outputs, inputs, kernel))
}

/// One output of type `dtype` with the shape of the convolution.
pub(super) fn spec(call: &Call<'_>, [x, w]: [usize; 2], dtype: DataType) -> Result<Vec<OutSpec>> {
    let sizes = Sizes::new(call, [x, w])?;
    let mut shape = vec![sizes.batch, sizes.all_outputs()];
    shape.extend(sizes.window.output());
    Ok(vec![OutSpec::tensor(dtype, shape)])
}

fn conv_spec(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    spec(call, [0, 1], call.dtype(0)?)
}

fn conv(cx: &mut RunCx<'_>, profile: Profile) -> Result<()> {
    let sizes = Sizes::new(cx, [0, 1])?;
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, w, bias) = (cx.input::<T>(0)?, cx.input::<T>(1)?, cx.input_if::<T>(2)?);
        T::fill_sums(cx.output::<T>(0)?, |y| convolve(profile, &sizes, x, w, bias, y))
    })
}

/// Fills `y` with the convolution of `x` by `w`, plus `bias`. `y` is zero before.
fn convolve<T: Number>(
    profile: Profile,
    sizes: &Sizes,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T::Sum],
) -> Result<()> {
    let window = &sizes.window;
    let plane = window.output_len();
    let taps = sizes.inputs * window.taps();
    if plane == 0 || sizes.all_outputs() == 0 {
        return Ok(());
    }
    if let Some(bias) = bias {
        add_bias(bias, sizes.all_outputs(), plane, y)?;
    }
    if taps == 0 {
        settle_elements(y);
        return Ok(());
    }
    let inputs = x.chunks_exact((sizes.inputs * window.input_len()).max(1));
    let outputs = y.chunks_exact_mut(sizes.outputs * plane);
    let weights = w.chunks_exact(sizes.outputs * taps).cycle();
    for ((x, w), y) in inputs.zip(weights).zip(outputs) {
        if window.is_pointwise() {
            gemm(profile, Matrix::new(w, sizes.outputs, taps)?, &Matrix::new(x, taps, plane)?, y)?;
        } else if sizes.inputs == 1 && sizes.outputs < 8 {
            let (x, w) = (terms(x), terms(w));
            let channels = y.chunks_exact_mut(plane).zip(w.chunks_exact(taps));
            for (y, w) in channels {
                depthwise(window, &x, w, y);
                settle_elements(y);
            }
        } else {
            gemm(
                profile,
                Matrix::new(w, sizes.outputs, taps)?,
                &Patches { window, x: &terms(x), rows: taps },
                y,
            )?;
        }
    }
    Ok(())
}

/// Fills each plane with the bias of its channel.
pub(super) fn add_bias<T: Number>(
    bias: &[T],
    channels: usize,
    plane: usize,
    y: &mut [T::Sum],
) -> Result<()> {
    if bias.len() != channels {
        let reason = format!("a bias of {} elements for {channels} channels", bias.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    y.chunks_exact_mut(plane.max(1))
        .zip(bias.iter().cycle())
        .for_each(|(y, bias)| y.fill(bias.to_sum()));
    Ok(())
}

/// Adds the convolution of one channel.
fn depthwise<T: Number>(window: &Window, x: &[T], w: &[T], y: &mut [T]) {
    window.rows(|row| {
        if let Some(w) = w.get(row.tap) {
            row.zip(y, x, |y, x| *y = y.add(w.mul(*x)));
        }
    });
}

/// The windows of an image as a matrix: a row for each channel and tap, a column for each output.
struct Patches<'x, T> {
    window: &'x Window,
    x: &'x [T],
    rows: usize,
}

/// Columns of one line of outputs: which line, which outputs of it, and where in the panel.
struct Segment {
    plane: usize,
    line: usize,
    outputs: Range<usize>,
    at: usize,
}

impl<T: Number> Patches<'_, T> {
    /// `columns`, divided by lines.
    fn segments(&self, columns: Range<usize>) -> Vec<Segment> {
        let [_, b, c] = &self.window.axes;
        let (mut segments, mut column) = (Vec::new(), columns.start);
        while column < columns.end {
            let (line, first) = (column / c.output, column % c.output);
            let len = (c.output - first).min(columns.end - column);
            let outputs = first..first + len;
            let at = column - columns.start;
            segments.push(Segment { plane: line / b.output, line: line % b.output, outputs, at });
            column += len;
        }
        segments
    }

    /// Copies one segment of the row of `channel` and a tap on each axis.
    #[inline(always)]
    fn copy(&self, channel: usize, [s, t, u]: [usize; 3], segment: &Segment, packed: &mut [T]) {
        let [a, b, c] = &self.window.axes;
        let Segment { plane, line, outputs, at } = segment;
        let packed = packed.debug_part_mut(*at..at + outputs.len());
        let inside = c.outputs(u);
        let (first, end) = (inside.start.max(outputs.start), inside.end.min(outputs.end));
        if !a.taps(*plane).contains(&s) || !b.taps(*line).contains(&t) || first >= end {
            packed.fill(T::ZERO);
            return;
        }
        let (front, rest) = packed.split_at_mut(first - outputs.start);
        let (middle, behind) = rest.split_at_mut(end - first);
        front.fill(T::ZERO);
        behind.fill(T::ZERO);
        let line = (channel * a.input + a.at(*plane, s)) * b.input + b.at(*line, t);
        let x = self.x.debug_part(line * c.input + c.at(first, u)..);
        match c.stride {
            1 => middle.iter_mut().zip(x).for_each(|(to, from)| *to = *from),
            n => middle.iter_mut().zip(x.iter().step_by(n)).for_each(|(to, from)| *to = *from),
        }
    }
}

impl<T: Number<Sum = T>> Source<T> for Patches<'_, T> {
    type Element = T;

    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.window.output_len()
    }

    fn pack<const N: usize>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        packed: &mut [[T; N]],
    ) {
        let [_, b, c] = &self.window.axes;
        for (columns, panel) in panels(packed, rows.len(), columns) {
            let segments = self.segments(columns);
            for (row, packed) in rows.clone().zip(panel) {
                let (channel, tap) = (row / self.window.taps(), row % self.window.taps());
                let (line, u) = (tap / c.kernel, tap % c.kernel);
                let taps = [line / b.kernel, line % b.kernel, u];
                segments.iter().for_each(|segment| self.copy(channel, taps, segment, packed));
            }
        }
    }
}

/// The elements of input `i`, of 8 bits, less its zero point, which is input `zero`: one for all,
/// or one for each of the first dimension.
fn centred(cx: &RunCx<'_>, i: usize, zero: usize) -> Result<Vec<i32>> {
    match cx.dtype(i)? {
        DataType::Uint8 => centred_of::<u8>(cx, i, zero),
        DataType::Int8 => centred_of::<i8>(cx, i, zero),
        other => Err(not_taken(other)),
    }
}

fn centred_of<T: Number + Into<i32>>(cx: &RunCx<'_>, i: usize, zero: usize) -> Result<Vec<i32>> {
    let elements = cx.input::<T>(i)?;
    let none = [T::ZERO];
    let zeros = cx.input_or::<T>(zero, &none)?;
    let first = *cx.shape(i)?.at(0)?;
    if zeros.len() != 1 && zeros.len() != first {
        let reason = format!("{} zero points for a first dimension of {first}", zeros.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let parts = elements.chunks((elements.len() / zeros.len().max(1)).max(1));
    let parts = parts.zip(zeros.iter().cycle());
    Ok(parts.flat_map(|(part, zero)| part.iter().map(|x| (*x).into() - (*zero).into())).collect())
}

fn conv_integer(cx: &mut RunCx<'_>) -> Result<()> {
    let sizes = Sizes::new(cx, [0, 1])?;
    let (x, w) = (centred(cx, 0, 2)?, centred(cx, 1, 3)?);
    i32::fill_sums(cx.output::<i32>(0)?, |y| convolve(Profile::Strict, &sizes, &x, &w, None, y))
}

/// The convolution of integers, scaled and rounded to the nearest integer, ties to even.
fn qlinear_conv(cx: &mut RunCx<'_>) -> Result<()> {
    let sizes = Sizes::new(cx, [0, 3])?;
    let (x, w) = (centred(cx, 0, 2)?, centred(cx, 3, 5)?);
    let channels = sizes.all_outputs();
    let (plane, len) =
        (sizes.window.output_len(), crate::numeric::broadcast::count(cx.out_shape(0)?));
    let mut sums = vec![0; len];
    convolve(Profile::Strict, &sizes, &x, &w, cx.input_if::<i32>(8)?, &mut sums)?;
    let (x_scale, w_scales, y_scale) =
        (cx.scalar::<f32>(1)?, cx.input::<f32>(4)?, cx.scalar::<f32>(6)?);
    if w_scales.len() != 1 && w_scales.len() != channels {
        let reason = format!("{} scales for {channels} channels", w_scales.len());
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let scales: Vec<f32> = w_scales.iter().map(|w| x_scale * w / y_scale).collect();
    match cx.out_dtype(0)? {
        DataType::Uint8 => requantise::<u8>(cx, &sums, plane, &scales),
        DataType::Int8 => requantise::<i8>(cx, &sums, plane, &scales),
        other => Err(not_taken(other)),
    }
}

#[allow(clippy::cast_precision_loss, reason = "sums are scaled as FLOAT")]
fn requantise<T: Number>(
    cx: &mut RunCx<'_>,
    sums: &[i32],
    plane: usize,
    scales: &[f32],
) -> Result<()> {
    let zero = cx.scalar::<T>(7)?.to_f64();
    let outputs = cx.output::<T>(0)?.chunks_mut(plane.max(1));
    let planes = outputs.zip(sums.chunks(plane.max(1))).zip(scales.iter().cycle());
    for ((y, sums), scale) in planes {
        for (y, sum) in y.iter_mut().zip(sums) {
            *y = T::from_f64(f64::from(Real::round_even(*sum as f32 * scale)) + zero);
        }
    }
    Ok(())
}
