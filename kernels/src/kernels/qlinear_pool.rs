//! Averages of quantized planes, as onnxruntime has them: QLinearAveragePool and
//! QLinearGlobalAveragePool.
//!
//! Each operator is specified at
//! <https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>. Planes are
//! dequantized, averaged in 32 bits, and quantized. With `channels_last` the channels are the last
//! dimension. With `count_include_pad` onnxruntime divides every sum by the size of the kernel,
//! where AveragePool leaves out what `ceil_mode` adds behind the padding.

use onnx_container_proto::DataType;

use super::pool::{Counted, averages};
use super::qlinear::{Linear, for_codes};
use super::window::{Window, list};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{broadcast_strides, count, offsets};
use crate::numeric::{not_taken, number};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::of_onnxruntime("QLinearAveragePool", infer_windows, windows),
    Builtin::of_onnxruntime("QLinearGlobalAveragePool", infer_planes, planes),
];

/// A batch of images.
struct Images {
    batch: usize,
    channels: usize,
    spatial: Vec<usize>,
    channels_last: bool,
}

impl Images {
    fn new(call: &Call<'_>) -> Result<Self> {
        let (shape, channels_last) = (call.shape(0)?, call.flag("channels_last", false)?);
        let (batch, channels, spatial) = match (shape.as_slice(), channels_last) {
            ([batch, spatial @ .., channels], true) => (batch, channels, spatial),
            ([batch, channels, spatial @ ..], false) => (batch, channels, spatial),
            _ => {
                let reason = format!("an input of shape {shape:?} has no batch and channels");
                return Err(Error::new(ErrorKind::Shape, reason));
            }
        };
        let spatial = spatial.to_vec();
        Ok(Self { batch: *batch, channels: *channels, spatial, channels_last })
    }

    /// The shape of images of these planes.
    fn shape(&self, spatial: &[usize]) -> Vec<usize> {
        match self.channels_last {
            true => [&[self.batch], spatial, &[self.channels]].concat(),
            false => [&[self.batch, self.channels], spatial].concat(),
        }
    }

    /// Where each element of planes of `spatial`, plane by plane, lies in a tensor.
    fn places(&self, spatial: &[usize]) -> Vec<usize> {
        let planes = [&[self.batch, self.channels], spatial].concat();
        let mut strides = broadcast_strides(&self.shape(spatial), &self.shape(spatial));
        if let (true, [_, behind @ ..]) = (self.channels_last, strides.as_mut_slice()) {
            behind.rotate_right(1);
        }
        // An axis of one element has no stride, and needs none.
        offsets(&planes, &strides).collect()
    }

    /// The window of the attributes over a plane.
    fn window(&self, call: &Call<'_>) -> Result<Window> {
        let kernel = list(call, "kernel_shape", self.spatial.len(), 0)?;
        Window::pooling(call, &self.spatial, &kernel)
    }

    /// The numbers of input 0, plane by plane.
    fn numbers(&self, cx: &RunCx<'_>, from: Linear) -> Result<Vec<f32>> {
        for_codes!(cx.dtype(0)?, Q => {
            let codes = cx.input::<Q>(0)?;
            let number = |at: usize| Ok(from.number(*codes.at(at)?));
            self.places(&self.spatial).into_iter().map(number).collect()
        })
    }

    /// Writes the output, of planes of `spatial`, from its numbers plane by plane.
    fn write(&self, cx: &mut RunCx<'_>, to: Linear, spatial: &[usize], all: &[f32]) -> Result<()> {
        for_codes!(cx.dtype(0)?, Q => {
            let output = cx.output::<Q>(0)?;
            let places = self.places(spatial).into_iter().zip(all);
            for (at, number) in places {
                *output.at_mut(at)? = to.code(*number);
            }
            Ok(())
        })
    }
}

fn infer_windows(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let images = Images::new(call)?;
    let spatial: Vec<_> = images.window(call)?.output().collect();
    Ok(vec![OutSpec::tensor(call.dtype(0)?, images.shape(&spatial))])
}

fn windows(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, to, images) = (Linear::new(cx, 1, 2)?, Linear::new(cx, 3, 4)?, Images::new(cx)?);
    let window = images.window(cx)?;
    let spatial: Vec<_> = window.output().collect();
    let mut results = vec![0.0; count(&images.shape(&spatial))];
    let counted = if cx.flag("count_include_pad", false)? { Counted::All } else { Counted::Inputs };
    averages(&window, counted, &images.numbers(cx, from)?, &mut results);
    images.write(cx, to, &spatial, &results)
}

fn infer_planes(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let images = Images::new(call)?;
    if count(&images.spatial) == 0 {
        return Err(Error::new(ErrorKind::Shape, "planes without elements have no average"));
    }
    let shape = images.shape(&vec![1; images.spatial.len()]);
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

fn planes(cx: &mut RunCx<'_>) -> Result<()> {
    let (from, to, images) = (Linear::new(cx, 1, 2)?, Linear::new(cx, 3, 4)?, Images::new(cx)?);
    let len = count(&images.spatial);
    let all = images.numbers(cx, from)?;
    let means = all
        .chunks_exact(len.max(1))
        .map(|plane| plane.iter().fold(0.0_f32, |sum, x| sum + x) / number::<f32>(len));
    let means: Vec<_> = means.collect();
    images.write(cx, to, &vec![1; images.spatial.len()], &means)
}
