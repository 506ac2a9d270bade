//! Blocks of pixels as channels, and back:
//! [SpaceToDepth](https://onnx.ai/onnx/operators/onnx__SpaceToDepth.html) and
//! [DepthToSpace](https://onnx.ai/onnx/operators/onnx__DepthToSpace.html).
//!
//! Both are a transpose of the image seen with six axes.

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{offsets, size, strides};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("DepthToSpace", depth_to_space_infer, depth_to_space),
    Builtin::new("SpaceToDepth", space_to_depth_infer, space_to_depth),
];

/// The length of a block, and whether channels are the slowest axis of a block's elements (mode
/// CRD).
fn block(call: &Call<'_>) -> Result<(usize, bool)> {
    let block = size(call.int("blocksize")?)?;
    let channels_first = match call.str_or("mode", "DCR")? {
        "DCR" => false,
        "CRD" => true,
        other => {
            let reason = format!("the mode `{other}` is neither DCR nor CRD");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    };
    Ok((block, channels_first))
}

/// The dimensions of the image; the error if it has not four.
fn image(call: &Call<'_>) -> Result<[usize; 4]> {
    let shape = call.shape(0)?;
    <[usize; 4]>::try_from(shape.as_slice()).map_err(|_| {
        Error::new(ErrorKind::Shape, format!("an image of shape {shape:?}, not of four dimensions"))
    })
}

/// `dim` in parts of `len`.
fn divide(dim: usize, len: usize) -> Result<usize> {
    if len == 0 || !dim.is_multiple_of(len) {
        let reason = format!("a dimension of {dim} elements in blocks of {len}");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(dim / len)
}

/// The channels, height and width of an image whose depth becomes blocks of `len` by `len`.
fn spread(call: &Call<'_>, len: usize) -> Result<[usize; 4]> {
    let [n, c, h, w] = image(call)?;
    Ok([n, divide(divide(c, len)?, len)?, h, w])
}

fn depth_to_space_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (len, _) = block(call)?;
    let [n, c, h, w] = spread(call, len)?;
    let dims = h.checked_mul(len).zip(w.checked_mul(len));
    let (h, w) = dims.ok_or_else(|| Error::new(ErrorKind::Shape, "an image that is too large"))?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [n, c, h, w])])
}

fn depth_to_space(cx: &mut RunCx<'_>) -> Result<()> {
    let (len, channels_first) = block(cx)?;
    let [n, c, h, w] = spread(cx, len)?;
    match channels_first {
        true => transpose(cx, [n, c, len, len, h, w], [0, 1, 4, 2, 5, 3]),
        false => transpose(cx, [n, len, len, c, h, w], [0, 3, 4, 1, 5, 2]),
    }
}

fn space_to_depth_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let ((len, _), [n, c, h, w]) = (block(call)?, image(call)?);
    let depth = len.checked_mul(len).and_then(|area| area.checked_mul(c));
    let depth = depth.ok_or_else(|| Error::new(ErrorKind::Shape, "an image that is too deep"))?;
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [n, depth, divide(h, len)?, divide(w, len)?])])
}

fn space_to_depth(cx: &mut RunCx<'_>) -> Result<()> {
    let ((len, channels_first), [n, c, h, w]) = (block(cx)?, image(cx)?);
    let dims = [n, c, divide(h, len)?, len, divide(w, len)?, len];
    match channels_first {
        true => transpose(cx, dims, [0, 1, 3, 5, 2, 4]),
        false => transpose(cx, dims, [0, 3, 5, 1, 2, 4]),
    }
}

/// Input 0, seen with the dimensions `dims`, with its axes in the order `perm`.
fn transpose(cx: &mut RunCx<'_>, dims: [usize; 6], perm: [usize; 6]) -> Result<()> {
    let of_input = strides(&dims);
    let permuted =
        |of: &[usize]| perm.iter().map(|i| of.at(*i).copied()).collect::<Result<Vec<_>>>();
    let (shape, strides) = (permuted(&dims)?, permuted(&of_input)?);
    arrange(cx, 0, offsets(&shape, &strides).map(|from| Run::one(0, from)))
}
