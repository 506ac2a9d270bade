//! Pooling in regions of an image: [RoiAlign](https://onnx.ai/onnx/operators/onnx__RoiAlign.html),
//! which samples between the elements, and
//! [MaxRoiPool](https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html), which rounds.
//!
//! Regions and samples of RoiAlign are computed in the type that floats are computed in, the places
//! of samples as `f64`; regions of MaxRoiPool as `f64`.

use std::ops::Range;

use super::resize_scale::float;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{index, saturated, size};
use crate::numeric::{Float, Number, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("RoiAlign", align_infer, roi_align),
    Builtin::new("MaxRoiPool", max_infer, max_roi_pool),
];

/// The largest number of samples of one bin.
const MOST_SAMPLES: usize = 1 << 20;

/// The image, and the number of regions, each of `len` numbers.
fn regions(call: &Call<'_>, len: usize) -> Result<([usize; 4], usize)> {
    let (image, rois) = (call.shape(0)?, call.shape(1)?);
    match (<[usize; 4]>::try_from(image.as_slice()), rois.as_slice()) {
        (Ok(image), [count, numbers]) if *numbers == len => Ok((image, *count)),
        _ => {
            let reason = format!("regions of shape {rois:?} in an image of shape {image:?}");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}

/// The height and width of an output.
fn aligned(call: &Call<'_>) -> Result<[usize; 2]> {
    Ok([size(call.int_or("output_height", 1)?)?, size(call.int_or("output_width", 1)?)?])
}

fn align_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (([_, channels, ..], count), [height, width]) = (regions(call, 4)?, aligned(call)?);
    if call.shape(2)? != [count] {
        let reason = format!("batch indices of shape {:?} for {count} regions", call.shape(2)?);
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [count, channels, height, width])])
}

/// A sample on one axis: the two elements around it, and how far it is from the first; `None`
/// outside.
type Sample<R> = Option<(usize, usize, R)>;

/// The samples of each bin of an axis of `len` elements, from `start` on, by bins of `bin`.
fn samples<R: Real>(
    start: f64,
    bin: f64,
    bins: usize,
    of_bin: usize,
    len: usize,
) -> Vec<Vec<Sample<R>>> {
    let last = len.saturating_sub(1);
    let sample = |b: usize, i: usize| {
        let at = start + float(b) * bin + (float(i) + 0.5) * bin / float(of_bin);
        if len == 0 || !(-1.0..=float(len)).contains(&at) {
            return None;
        }
        let at = if at > 0.0 { at } else { 0.0 };
        let low = saturated(<u64 as Number>::from_f64(at));
        if low >= last {
            return Some((last, last, R::ZERO));
        }
        Some((low, low + 1, R::of(at - float(low))))
    };
    (0..bins).map(|b| (0..of_bin).map(|i| sample(b, i)).collect()).collect()
}

/// The number of samples of a bin: `ratio`, or by default one for each element.
fn samples_of_bin(ratio: i64, bin: f64) -> Result<usize> {
    let samples = match ratio {
        1.. => size(ratio)?,
        _ => saturated(<u64 as Number>::from_f64(Real::ceil(bin))),
    };
    if samples > MOST_SAMPLES {
        let reason = format!("{samples} samples along a bin of a region");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    Ok(samples)
}

/// Whether a bin has a number of samples that can be taken.
fn check_samples<R>(lines: &[Vec<Sample<R>>], places: &[Vec<Sample<R>>]) -> Result<()> {
    let [lines, places] = [lines, places].map(|bins| bins.first().map_or(0, Vec::len));
    if lines.saturating_mul(places) > MOST_SAMPLES {
        let reason = format!("{lines} by {places} samples in a bin of a region");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    Ok(())
}

fn roi_align(cx: &mut RunCx<'_>) -> Result<()> {
    let ([batch, channels, height, width], _) = regions(cx, 4)?;
    let (pooled @ [rows, columns], ratio) = (aligned(cx)?, cx.int_or("sampling_ratio", 0)?);
    let scale = f64::from(cx.float_or("spatial_scale", 1.0)?);
    let default = if cx.version() < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = cx.str_or("coordinate_transformation_mode", default)? == "half_pixel";
    let (max, batches) = (cx.str_or("mode", "avg")? == "max", cx.integers(2)?);
    for_type!(cx.dtype(0)?, floats, T => {
        type R = <T as Float>::Real;
        let (x, rois, y) = (cx.input::<T>(0)?, cx.input::<T>(1)?, cx.output::<T>(0)?);
        let outputs = y.chunks_exact_mut((channels * rows * columns).max(1));
        for ((roi, image), y) in rois.as_chunks::<4>().0.iter().zip(&batches).zip(outputs) {
            let shift = R::of(if half { 0.5 } else { 0.0 });
            let [x1, y1, x2, y2] = roi.map(|edge| edge.widen() * R::of(scale) - shift);
            let axis = |start: R, end: R, bins: usize, len: usize| {
                let span = end - start;
                let span = if half || span > R::ONE { span } else { R::ONE };
                let bin = (span / R::of(float(bins))).to_f64();
                let of_bin = samples_of_bin(ratio, bin)?;
                Ok::<_, Error>(samples::<R>(start.to_f64(), bin, bins, of_bin, len))
            };
            let [rows, columns] = pooled;
            let (lines, places) = (axis(y1, y2, rows, height)?, axis(x1, x2, columns, width)?);
            check_samples(&lines, &places)?;
            let x = x.part(index(*image, batch)? * channels * height * width..)?;
            let planes = x.chunks_exact((height * width).max(1));
            for (x, y) in planes.zip(y.chunks_exact_mut((rows * columns).max(1))) {
                let bins = lines.iter().flat_map(|l| places.iter().map(move |p| (l, p)));
                for (y, (lines, places)) in y.iter_mut().zip(bins) {
                    *y = T::round_from(bin(x, width, lines, places, max)?);
                }
            }
        }
        Ok(())
    })
}

/// The mean of the samples of a bin, or the maximum of their weighted elements.
fn bin<T: Float>(
    x: &[T],
    width: usize,
    lines: &[Sample<T::Real>],
    places: &[Sample<T::Real>],
    max: bool,
) -> Result<T::Real> {
    let (one, zero) = (T::Real::ONE, T::Real::ZERO);
    let element = |i: usize, j: usize| Ok::<_, Error>(x.at(i * width + j)?.widen());
    let (mut sum, mut greatest) = (zero, None);
    for (line, place) in lines.iter().flat_map(|l| places.iter().map(move |p| (l, p))) {
        let terms = match line.zip(*place) {
            Some(((y1, y2, v), (x1, x2, u))) => [
                (one - v) * (one - u) * element(y1, x1)?,
                (one - v) * u * element(y1, x2)?,
                v * (one - u) * element(y2, x1)?,
                v * u * element(y2, x2)?,
            ],
            None => [zero; 4],
        };
        let [a, b, c, d] = terms;
        sum += a + b + c + d;
        let most = terms.into_iter().fold(a, |most, term| if term > most { term } else { most });
        greatest = Some(match greatest {
            Some(greatest) if greatest > most => greatest,
            _ => most,
        });
    }
    let count = (lines.len() * places.len()).max(1);
    // A bin without samples is 0.
    Ok(if max { greatest.unwrap_or(zero) } else { sum / T::Real::of(float(count)) })
}

fn pooled(call: &Call<'_>) -> Result<[usize; 2]> {
    match call.ints("pooled_shape")? {
        Some([height, width]) => Ok([size(*height)?, size(*width)?]),
        _ => Err(Error::new(ErrorKind::InvalidModel, "`pooled_shape` is not a height and a width")),
    }
}

fn max_infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (([_, channels, ..], count), [height, width]) = (regions(call, 5)?, pooled(call)?);
    Ok(vec![OutSpec::tensor(call.dtype(0)?, [count, channels, height, width])])
}

/// The elements of bin `i` of `bins` between two edges of a region, of an axis of `len` elements.
fn bin_range(i: usize, bins: usize, start: f64, end: f64, len: usize) -> Range<usize> {
    let span = end - start + 1.0;
    let bin = if span > 1.0 { span } else { 1.0 } / float(bins);
    let clamp = |at: f64| saturated(<u64 as Number>::from_f64(at)).min(len);
    let first = start + Real::floor(float(i) * bin);
    clamp(first)..clamp(start + Real::ceil(float(i + 1) * bin))
}

fn max_roi_pool(cx: &mut RunCx<'_>) -> Result<()> {
    let (([batch, channels, height, width], _), [rows, columns]) = (regions(cx, 5)?, pooled(cx)?);
    let scale = f64::from(cx.float_or("spatial_scale", 1.0)?);
    for_type!(cx.dtype(0)?, floats, T => {
        let (x, rois, y) = (cx.input::<T>(0)?, cx.input::<T>(1)?, cx.output::<T>(0)?);
        let outputs = y.chunks_exact_mut((channels * rows * columns).max(1));
        for ([image, edges @ ..], y) in rois.as_chunks::<5>().0.iter().zip(outputs) {
            let image = index(<i64 as Number>::from_f64(image.to_f64()), batch)?;
            let [x1, y1, x2, y2] = edges.map(|edge| (edge.to_f64() * scale).round());
            let x = x.part(image * channels * height * width..)?;
            let planes = x.chunks_exact((height * width).max(1));
            for (x, y) in planes.zip(y.chunks_exact_mut((rows * columns).max(1))) {
                for (at, y) in y.iter_mut().enumerate() {
                    let lines = bin_range(at / columns, rows, y1, y2, height);
                    let places = bin_range(at % columns, columns, x1, x2, width);
                    let elements = x.chunks_exact(width.max(1)).take(lines.end).skip(lines.start);
                    let elements = elements
                        .flat_map(|line| line.iter().take(places.end).skip(places.start));
                    let greatest = elements.copied().reduce(|a, b| if b > a { b } else { a });
                    *y = greatest.unwrap_or(T::ZERO); // of an empty bin
                }
            }
        }
        Ok(())
    })
}
