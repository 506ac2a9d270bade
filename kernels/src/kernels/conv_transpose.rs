//! Sums of overlapping windows:
//! [ConvTranspose](https://onnx.ai/onnx/operators/onnx__ConvTranspose.html) and
//! [Col2Im](https://onnx.ai/onnx/operators/onnx__Col2Im.html).
//!
//! The window slides over the output here, and every input adds its taps to it. In ConvTranspose
//! the taps are the product of the transposed weights and the image, a few channels at a time. An
//! element of the output starts with the bias and gains what it gets from the inputs in row-major
//! order, and from each in the order of its taps.

use onnx_container_proto::DataType;
use onnx_container_proto::num_complex::Complex;

use super::conv::weights;
use super::window::{Axis, Window, attributes, image, list};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, size};
use crate::numeric::gemm::{Matrix, gemm, terms};
use crate::numeric::profile::Profile;
use crate::numeric::{Number, for_type, not_taken};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("ConvTranspose", conv_transpose_infer, conv_transpose),
    Builtin::new("Col2Im", col2im_infer, col2im),
];

/// The elements of taps that are computed at a time.
const SCRATCH: usize = 1 << 20;

/// The sizes of a transposed convolution; channels are those of one group.
struct Sizes {
    window: Window,
    batch: usize,
    groups: usize,
    inputs: usize,
    outputs: usize,
}

fn sizes(call: &Call<'_>) -> Result<Sizes> {
    let (inputs, outputs, kernel) = weights(call, 1)?;
    let (batch, channels, spatial) = image(call, 0)?;
    let groups = size(call.int_or("group", 1)?)?;
    if groups == 0 || inputs != channels || channels % groups != 0 {
        let reason = format!(
            "{channels} channels in {groups} groups, with weights of {inputs} by {outputs} channels"
        );
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let window = window(call, &spatial, &kernel)?;
    Ok(Sizes { window, batch, groups, inputs: inputs / groups, outputs })
}

/// The window over the output; each axis has as many outputs as the image has elements.
fn window(call: &Call<'_>, spatial: &[usize], kernel: &[usize]) -> Result<Window> {
    let rank = spatial.len();
    let more = list(call, "output_padding", rank, 0)?;
    let wanted = call.ints("output_shape")?.filter(|shape| !shape.is_empty());
    let last = |shape: &'_ [i64]| shape.len().saturating_sub(rank);
    let wanted = wanted.map(|shape| shape.part(last(shape)..)).transpose()?;
    let mode = call.str_or("auto_pad", "NOTSET")?;
    let axes = attributes(call, spatial, kernel)?.into_iter().zip(&more).enumerate();
    let axes = axes.map(|(i, (axis, more))| {
        let wanted = wanted.and_then(|shape| shape.get(i)).map(|dim| size(*dim)).transpose()?;
        unslide(axis, *more, mode, wanted).ok_or_else(|| {
            let reason = format!("a transposed window of {} taps over {}", axis.kernel, axis.input);
            Error::new(ErrorKind::Shape, reason)
        })
    });
    Window::from_axes(&axes.collect::<Result<Vec<_>>>()?)
}

/// The axis with what it has been given as its outputs, and the length that these cover as its
/// inputs.
fn unslide(axis: Axis, more: usize, mode: &str, wanted: Option<usize>) -> Option<Axis> {
    let span = axis.kernel.checked_sub(1)?.checked_mul(axis.dilation)?.checked_add(1)?;
    let covered = axis.input.checked_sub(1)?.checked_mul(axis.stride)?;
    let covered = covered.checked_add(span)?.checked_add(more)?;
    let wanted = match mode {
        "SAME_UPPER" | "SAME_LOWER" => wanted.or(Some(axis.input.checked_mul(axis.stride)?)),
        _ => wanted,
    };
    let (begin, end) = match wanted {
        Some(wanted) => {
            let total = covered.saturating_sub(wanted);
            let (less, rest) = (total / 2, total - total / 2);
            if mode == "SAME_UPPER" { (less, rest) } else { (rest, less) }
        }
        None if mode == "VALID" => (0, 0),
        None => (axis.begin, axis.end),
    };
    let kept = covered.checked_sub(begin)?.checked_sub(end)?;
    // Without a wanted length the image is what is kept.
    Some(Axis { input: wanted.unwrap_or(kept), output: axis.input, begin, end, ..axis })
}

/// The dimensions of the input of `window`, behind batch and channels.
fn spec(call: &Call<'_>, window: &Window, batch: usize, channels: usize) -> Result<Vec<OutSpec>> {
    let shape = [batch, channels].into_iter().chain(window.input());
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape.collect::<Vec<_>>())])
}

fn conv_transpose_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let sizes = sizes(call)?;
    let channels = sizes.groups.checked_mul(sizes.outputs);
    let channels = channels.ok_or_else(|| Error::new(ErrorKind::Shape, "too many channels"))?;
    spec(call, &sizes.window, sizes.batch, channels)
}

fn conv_transpose(cx: &mut RunCx<'_>) -> Result<()> {
    let sizes = sizes(cx)?;
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, w) = (terms(cx.input::<T>(0)?), terms(cx.input::<T>(1)?));
        let bias = cx.input_if::<T>(2)?.map(terms);
        T::fill_sums(cx.output::<T>(0)?, |y| transposed(&sizes, &x, &w, bias.as_deref(), y))
    })
}

fn transposed<T: Number<Sum = T>>(
    sizes: &Sizes,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) -> Result<()> {
    let Sizes { window, groups, inputs, outputs, .. } = sizes;
    if let Some(bias) = bias {
        super::conv::add_bias(bias, groups * outputs, window.input_len(), y)?;
    }
    let (from, to, taps) = (window.output_len(), window.input_len(), window.taps());
    if from == 0 || to == 0 || *inputs == 0 || *outputs == 0 {
        return Ok(());
    }
    let at_once = (SCRATCH / taps.saturating_mul(from)).clamp(1, *outputs);
    let (mut turned, mut cols) = (Vec::new(), Vec::new());
    let images = x.chunks_exact(inputs * from).zip(y.chunks_exact_mut(outputs * to));
    for ((x, y), w) in images.zip(w.chunks_exact(inputs * outputs * taps).cycle()) {
        for (part, y) in y.chunks_mut(at_once * to).enumerate() {
            let rows = y.len() / to * taps;
            let lines = w.chunks_exact(outputs * taps);
            let first = part * at_once * taps;
            turned.clear();
            for line in lines {
                turned.extend_from_slice(line.part(first..first + rows)?);
            }
            cols.clear();
            cols.resize(rows * from, T::ZERO);
            let weights = Matrix::new(&turned, *inputs, rows)?.transposed();
            gemm(Profile::Strict, weights, &Matrix::new(x, *inputs, from)?, &mut cols)?;
            let channels = y.chunks_exact_mut(to).zip(cols.chunks_exact(taps * from));
            channels.for_each(|(y, cols)| add_windows(window, cols, y));
        }
    }
    Ok(())
}

/// Adds to the plane `y` what `cols` has for each tap and each place of the window.
fn add_windows<T: Number>(window: &Window, cols: &[T], y: &mut [T]) {
    add_columns(window, cols, y, |col, y| *y = y.add(col));
}

/// As [`add_windows`], of elements that `add` adds.
fn add_columns<T: Copy>(window: &Window, cols: &[T], y: &mut [T], add: impl Fn(T, &mut T)) {
    let plane = window.output_len();
    window.rows(|row| {
        if let Some(cols) = cols.get(row.tap * plane..(row.tap + 1) * plane) {
            row.zip_back(cols, y, |col, y| add(*col, y));
        }
    });
}

/// The window of Col2Im over the image of shape input 1, with the batch and the channels.
fn blocks(call: &Call<'_>) -> Result<(Window, usize, usize)> {
    let sizes = |i| call.integers(i)?.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>();
    let window = Window::new(call, &sizes(1)?, &sizes(2)?)?;
    let shape = call.shape(0)?;
    match shape.as_slice() {
        [batch, rows, columns] if rows % window.taps() == 0 && *columns == window.output_len() => {
            let channels = rows / window.taps();
            Ok((window, *batch, channels))
        }
        _ => {
            let (taps, places) = (window.taps(), window.output_len());
            let reason =
                format!("columns of shape {shape:?} for {places} blocks of {taps} elements");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

fn col2im_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    if call.dtype(0)? == DataType::String {
        return Err(not_taken(DataType::String));
    }
    let rank = count(&call.shape(1)?);
    for (name, len) in [("dilations", rank), ("strides", rank), ("pads", rank.saturating_mul(2))] {
        list(call, name, len, 0)?;
    }
    let (window, batch, channels) = blocks(call)?;
    spec(call, &window, batch, channels)
}

fn col2im(cx: &mut RunCx<'_>) -> Result<()> {
    let (window, _, _) = blocks(cx)?;
    let length = (window.taps() * window.output_len()).max(1);
    macro_rules! each_plane {
        ($type:ty, $zero:expr, $add:expr) => {{
            let (x, y) = (cx.input::<$type>(0)?, cx.output::<$type>(0)?);
            y.fill($zero);
            let planes = y.chunks_exact_mut(window.input_len().max(1));
            planes.zip(x.chunks_exact(length)).for_each(|(y, x)| add_columns(&window, x, y, $add));
            return Ok(());
        }};
    }
    match cx.dtype(0)? {
        // The sum of truth values is true where one of them is.
        DataType::Bool => each_plane!(bool, false, |col: bool, y: &mut bool| *y |= col),
        DataType::Complex64 => each_plane!(Complex<f32>, Complex::ZERO, |col, y: &mut _| *y += col),
        DataType::Complex128 => {
            each_plane!(Complex<f64>, Complex::ZERO, |col, y: &mut _| *y += col)
        }
        _ => {}
    }
    for_type!(cx.dtype(0)?, numbers, T => {
        let x = terms(cx.input::<T>(0)?);
        T::fill_sums(cx.output::<T>(0)?, |y| {
            let planes = y.chunks_exact_mut(window.input_len().max(1));
            planes.zip(x.chunks_exact(length)).for_each(|(y, cols)| add_windows(&window, cols, y));
            Ok(())
        })
    })
}
