//! Sampling an image at any places:
//! [GridSample](https://onnx.ai/onnx/operators/onnx__GridSample.html), and
//! [AffineGrid](https://onnx.ai/onnx/operators/onnx__AffineGrid.html), which makes such places.
//!
//! The last dimension of a grid has the coordinates of a place from the last axis to the first,
//! between -1 and 1.

use onnx_container_proto::DataType;

use super::resize::cubic;
use super::resize_scale::float;
use super::window::image;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{size, strides};
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("GridSample", sample_infer, grid_sample),
    Builtin::new("AffineGrid", affine_infer, affine_grid),
];

fn sample_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let dtype = call.dtype(0)?;
    if !rules(call)?.nearest && !is_float(dtype) {
        let reason = format!(
            "elements of type {dtype} cannot be interpolated: only mode nearest takes them"
        );
        return Err(Error::new(ErrorKind::Type, reason));
    }
    let ((batch, channels, spatial), grid) = (image(call, 0)?, call.shape(1)?);
    match grid.as_slice() {
        [of_grid, places @ .., axes]
            if *of_grid == batch && *axes == spatial.len() && places.len() == spatial.len() =>
        {
            let shape = [&[batch, channels], places].concat();
            Ok(vec![OutSpec::tensor(dtype, shape)])
        }
        _ => {
            let reason = format!("a grid of shape {grid:?} for {batch} images of {spatial:?}");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

/// How elements between the pixels and outside of the image are computed.
#[derive(Debug, Clone, Copy)]
struct Rules {
    nearest: bool,
    cubic: bool,
    padding: Padding,
    align_corners: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

fn rules(call: &Call<'_>) -> Result<Rules> {
    let unknown = |what: &str, other: &str| {
        Error::new(ErrorKind::InvalidModel, format!("there is no {what} `{other}`"))
    };
    let mode = call.str_or("mode", "linear")?;
    if !["linear", "bilinear", "nearest", "cubic", "bicubic"].contains(&mode) {
        return Err(unknown("mode", mode));
    }
    let padding = match call.str_or("padding_mode", "zeros")? {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => return Err(unknown("padding_mode", other)),
    };
    Ok(Rules {
        nearest: mode == "nearest",
        cubic: mode == "cubic" || mode == "bicubic",
        padding,
        align_corners: call.flag("align_corners", false)?,
    })
}

impl Rules {
    /// The place among `len` pixels of a coordinate from -1 to 1.
    fn place<R: Real>(self, x: R, len: usize) -> R {
        let (len, two) = (R::of(float(len)), R::of(2.0));
        let place = match self.align_corners {
            true => (x + R::ONE) / two * (len - R::ONE),
            false => ((x + R::ONE) * len - R::ONE) / two,
        };
        let place = if self.nearest { place.round_even() } else { place };
        let (low, high) = self.border(len);
        match self.padding {
            Padding::Border if place < low || place > high => {
                if place < R::ZERO {
                    R::ZERO
                } else {
                    len - R::ONE
                }
            }
            Padding::Reflection => reflect(place, low, high),
            _ => place,
        }
    }

    /// Where an axis of `len` pixels begins and ends.
    fn border<R: Real>(self, len: R) -> (R, R) {
        let half = R::of(0.5);
        if self.align_corners { (R::ZERO, len - R::ONE) } else { (-half, len - half) }
    }

    /// The pixel at `index` of `len`; `None` where it counts as zero.
    fn pixel<R: Real>(self, index: R, len: usize) -> Option<usize> {
        let last = R::of(float(len) - 1.0);
        let inside = match self.padding {
            Padding::Zeros if index < R::ZERO || index > last => return None,
            Padding::Reflection => {
                let (low, high) = self.border(last + R::ONE);
                reflect(index, low, high)
            }
            _ => index,
        };
        let index = if inside > last { last } else { inside };
        usize::try_from(<u64 as Number>::from_f64(index.to_f64())).ok().filter(|i| *i < len)
    }

    /// The pixels around `place` on an axis with their weights, where they do not count as zero.
    fn taps<R: Real>(self, place: R, len: usize) -> Vec<(usize, R)> {
        let base = if self.nearest { place } else { Real::floor(place) };
        let (before, behind) = match (self.nearest, self.cubic) {
            (true, _) => (0, 0),
            (_, true) => (-1, 2),
            _ => (0, 1),
        };
        let taps = (before..=behind).filter_map(|offset| {
            let offset = R::of(f64::from(offset));
            let distance = Number::abs(place - base - offset);
            let weight = match self.cubic {
                _ if self.nearest => R::ONE,
                true => cubic(distance, R::of(-0.75)),
                false => R::ONE - distance,
            };
            self.pixel(base + offset, len).map(|at| (at, weight))
        });
        taps.collect()
    }
}

/// `place`, mirrored at the ends until it is between them.
fn reflect<R: Real>(place: R, low: R, high: R) -> R {
    let range = high - low;
    let beyond = if place < low { low - place } else { place - high };
    if (place >= low && place <= high) || range <= R::ZERO {
        return if range <= R::ZERO { low } else { place };
    }
    let times = Real::trunc(beyond / range);
    let rest = beyond - times * range;
    let even = times.rem(R::of(2.0)) == R::ZERO;
    if (place < low) == even { low + rest } else { high - rest }
}

fn is_float(dtype: DataType) -> bool {
    use DataType::{Bfloat16, Double, Float, Float16};
    matches!(dtype, Float | Double | Float16 | Bfloat16)
}

/// Every element of the output is one of the image, or zero: of any type. Places are computed as
/// the grid has them, those of 16 bits as `f32`.
fn move_nearest(cx: &mut RunCx<'_>, rules: Rules) -> Result<()> {
    let (_, channels, spatial) = image(cx, 0)?;
    let (plane, of_axes): (usize, _) = (spatial.iter().product(), strides(&spatial));
    let count: usize = cx.out_shape(0)?.iter().skip(2).product();
    let (grid, is_wide) = (grid_elements(cx)?, cx.dtype(1)? == DataType::Double);
    let nearest = |x: f64, len: usize| match is_wide {
        true => rules.taps(rules.place(x, len), len).first().map(|(at, _)| *at),
        false => rules.taps(rules.place(f32::of(x), len), len).first().map(|(at, _)| *at),
    };
    let at = |place: &[f64]| {
        let axes = spatial.iter().zip(&of_axes).zip(place.iter().rev());
        axes.map(|((len, stride), x)| Some(nearest(*x, *len)? * stride)).sum::<Option<usize>>()
    };
    let places: Vec<_> = grid.chunks_exact(spatial.len().max(1)).map(at).collect();
    let run = |(image, at): (usize, Option<usize>)| match at.filter(|_| plane > 0) {
        Some(at) => Run::one(0, image * plane + at),
        None => Run::Zero { len: 1 },
    };
    let of_image = |(batch, places): (usize, &[Option<usize>])| {
        let planes =
            (batch * channels..(batch + 1) * channels).map(move |image| (image, places.to_vec()));
        planes
            .flat_map(|(image, places)| places.into_iter().map(move |at| (image, at)))
            .collect::<Vec<_>>()
    };
    let batches = places.chunks_exact(count.max(1)).enumerate();
    arrange(cx, 0, batches.flat_map(of_image).map(run))
}

fn grid_sample(cx: &mut RunCx<'_>) -> Result<()> {
    if !is_float(cx.dtype(0)?) {
        return move_nearest(cx, rules(cx)?);
    }
    let (rules, (_, channels, spatial)) = (rules(cx)?, image(cx, 0)?);
    let plane: usize = spatial.iter().product();
    let of_axes = strides(&spatial);
    let count: usize = cx.out_shape(0)?.iter().skip(2).product();
    let grid = grid_elements(cx)?;
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, y) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        if plane == 0 {
            y.fill(T::ZERO);
            return Ok(());
        }
        let grids = grid.chunks_exact((count * spatial.len()).max(1));
        let images = x.chunks_exact((channels * plane).max(1));
        let outputs = y.chunks_exact_mut((channels * count).max(1));
        for ((grid, x), y) in grids.zip(images).zip(outputs) {
            for (i, place) in grid.chunks_exact(spatial.len()).enumerate() {
                let axes = spatial.iter().zip(&of_axes).zip(place.iter().rev());
                let axes = axes.map(|((len, stride), place)| {
                    let place = <T as Float>::Real::of(*place);
                    let taps = rules.taps(rules.place(place, *len), *len).into_iter();
                    taps.map(|(at, weight)| (at * stride, weight)).collect()
                });
                let axes: Vec<Vec<_>> = axes.collect();
                for (x, y) in x.chunks_exact(plane).zip(y.chunks_exact_mut(count)) {
                    let value = T::round_from(weighted(x, &axes));
                    *y.at_mut(i)? = value;
                }
            }
        }
        Ok(())
    })
}

/// The grid, whose type need not be that of the image.
fn grid_elements(cx: &RunCx<'_>) -> Result<Vec<f64>> {
    for_type!(cx.dtype(1)?, floats, T => {
        Ok(cx.input::<T>(1)?.iter().map(|x| x.to_f64()).collect())
    })
}

/// The sum of the elements that `axes` name, weighted along the last axis first.
fn weighted<T: Float>(x: &[T], axes: &[Vec<(usize, T::Real)>]) -> T::Real {
    let Some((taps, axes)) = axes.split_first() else {
        return x.first().map_or(Number::ZERO, |x| x.widen());
    };
    taps.iter().fold(Number::ZERO, |sum: T::Real, (at, weight)| {
        sum + *weight * weighted(x.debug_part(*at..), axes)
    })
}

/// The batch, and the spatial dimensions of the image that the grid is for.
fn grid_size(call: &Call<'_>) -> Result<(usize, Vec<usize>)> {
    let sizes = call.integers(1)?.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>()?;
    let theta = call.shape(0)?;
    match sizes.as_slice() {
        [batch, _, spatial @ ..]
            if (2..=3).contains(&spatial.len())
                && theta == [*batch, spatial.len(), spatial.len() + 1] =>
        {
            Ok((*batch, spatial.to_vec()))
        }
        _ => {
            let reason = format!("matrices of shape {theta:?} for an image of shape {sizes:?}");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

fn affine_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (batch, spatial) = grid_size(call)?;
    let shape = [vec![batch], spatial.clone(), vec![spatial.len()]].concat();
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// Where pixel `i` of `len` is, from -1 to 1.
fn position<R: Real>(i: usize, len: usize, align_corners: bool) -> R {
    let (i, len) = (float(i), float(len));
    R::of(match align_corners {
        true if len <= 1.0 => -1.0,
        true => 2.0 * i / (len - 1.0) - 1.0,
        false => (2.0 * i + 1.0) / len - 1.0,
    })
}

/// Every place of the image, from its last axis to its first, by the matrix of its image.
fn affine_grid(cx: &mut RunCx<'_>) -> Result<()> {
    let (_, spatial) = grid_size(cx)?;
    let (axes, align) = (spatial.len(), cx.flag("align_corners", false)?);
    let places: usize = spatial.iter().product();
    let of_axes = strides(&spatial);
    for_type!(cx.dtype(0)?, floats, T => {
        type R = <T as Float>::Real;
        let (theta, grid) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
        let grids = grid.chunks_exact_mut((places * axes).max(1));
        for (theta, grid) in theta.chunks_exact(axes * (axes + 1)).zip(grids) {
            for (i, grid) in grid.chunks_exact_mut(axes).enumerate() {
                let place = spatial.iter().zip(&of_axes).rev();
                let place = place.map(|(len, stride)| position(i / stride % len, *len, align));
                let place: Vec<R> = place.chain([Number::ONE]).collect();
                for (y, row) in grid.iter_mut().zip(theta.chunks_exact(axes + 1)) {
                    let terms = row.iter().zip(&place);
                    *y = T::round_from(terms.fold(Number::ZERO, |sum: R, (a, b)| sum + a.widen() * *b));
                }
            }
        }
        Ok(())
    })
}
