//! [Resize](https://onnx.ai/onnx/operators/onnx__Resize.html) and its predecessor
//! [Upsample](https://onnx.ai/onnx/operators/onnx__Upsample.html): an axis at a time, every output
//! is a weighted sum of neighbouring inputs.
//!
//! Places and weights are computed as `f64`. Elements are interpolated in the type that floats are
//! computed in, and integers as `f64`, rounded to the nearest and saturated. Where every output is
//! one input, elements are moved as they are, of any type.

use onnx_container_proto::num_complex::Complex;
use onnx_container_proto::{DataType, Element};

use super::resize_scale::{Scale, scales};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::arrange::{Run, arrange};
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, strides};
use crate::numeric::{Float, Number, Real, for_type, larger, smaller};

pub(super) const KERNELS: &[Builtin] =
    &[Builtin::new("Resize", infer, resize), Builtin::new("Upsample", infer, resize)];

/// The largest number of inputs that have a weight in one output, by antialiasing.
const MOST_TAPS: f64 = 1e7;

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    check_modes(call)?;
    let shape: Vec<_> = scales(call)?.iter().map(|scale| scale.output).collect();
    Ok(vec![OutSpec::tensor(call.dtype(0)?, shape)])
}

/// The values of `coordinate_transformation_mode`; [`FOR_NEAREST`] is one of versions 11 and 12
/// besides.
const COORDINATES: [&str; 6] = [
    "half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_crop_and_resize",
];
const FOR_NEAREST: &str = "tf_half_pixel_for_nn";

/// Whether every attribute that names a way has a value that the version of the operator has.
fn check_modes(call: &Call<'_>) -> Result<()> {
    let mut modes = vec![
        ("mode", vec!["nearest", "linear", "bilinear", "cubic"]),
        ("nearest_mode", vec!["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
        ("keep_aspect_ratio_policy", vec!["stretch", "not_larger", "not_smaller"]),
        ("coordinate_transformation_mode", COORDINATES.to_vec()),
    ];
    if (11..13).contains(&call.version()) {
        modes.iter_mut().skip(3).for_each(|(_, known)| known.push(FOR_NEAREST));
    }
    for (name, known) in modes {
        let mode = call.str_or(name, known.at(0)?)?;
        if !known.contains(&mode) {
            let reason = format!("there is no {name} `{mode}` at version {}", call.version());
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    }
    Ok(())
}

/// How an output is made of the inputs around its place.
#[derive(Debug, Clone, Copy)]
enum Mode<'a> {
    /// The nearest, by the attribute `nearest_mode`; empty before there was one.
    Nearest(&'a str),
    Linear,
    Cubic(f64),
}

/// The inputs of one output with their weights; none where it is outside and has the extrapolation
/// value.
type Taps = Vec<(usize, f64)>;

fn resize(cx: &mut RunCx<'_>) -> Result<()> {
    if count(cx.out_shape(0)?) == 0 {
        return arrange(cx, 0, []);
    }
    let axes = scales(cx)?
        .into_iter()
        .map(|scale| Ok(if scale.is_same() { None } else { Some(axis_taps(cx, &scale)?) }));
    let axes: Vec<Option<Vec<Taps>>> = axes.collect::<Result<_>>()?;
    let moved = axes.iter().flatten().flatten().all(|taps| matches!(taps.as_slice(), [(_, 1.0)]));
    if moved {
        return move_elements(cx, &axes);
    }
    let outside = f64::from(cx.float_or("extrapolation_value", 0.0)?);
    let shape = cx.shape(0)?;
    let dtype = cx.dtype(0)?;
    match dtype {
        DataType::Bool => return resize_bool(cx, &axes, outside),
        DataType::Complex64 => return resize_complex::<f32>(cx, &axes, outside),
        DataType::Complex128 => return resize_complex::<f64>(cx, &axes, outside),
        _ => {}
    }
    if dtype.is_integer() {
        for_type!(dtype, integers, T => {
            let x = cx.input::<T>(0)?.iter().map(|x| x.to_f64()).collect();
            let wide: Vec<f64> = interpolate(x, &shape, &axes, outside)?;
            let rounded = wide.into_iter().map(|y| T::from_f64(y.round_even()));
            cx.output::<T>(0)?.iter_mut().zip(rounded).for_each(|(to, from)| *to = from);
            Ok(())
        })
    } else {
        for_type!(dtype, floats, T => {
            let x = cx.input::<T>(0)?.iter().map(|x| x.widen()).collect();
            let wide: Vec<<T as Float>::Real> = interpolate(x, &shape, &axes, Real::of(outside))?;
            cx.output::<T>(0)?.iter_mut().zip(wide).for_each(|(to, y)| *to = T::round_from(y));
            Ok(())
        })
    }
}

/// A mixture of truth values is true from one half on.
fn resize_bool(cx: &mut RunCx<'_>, axes: &[Option<Vec<Taps>>], outside: f64) -> Result<()> {
    let x = cx.input::<bool>(0)?.iter().map(|x| f64::from(u8::from(*x))).collect();
    let wide: Vec<f64> = interpolate(x, &cx.shape(0)?, axes, outside)?;
    cx.output::<bool>(0)?.iter_mut().zip(wide).for_each(|(to, y)| *to = y.round_even() != 0.0);
    Ok(())
}

/// Real and imaginary parts are interpolated one by one. The extrapolation value is real.
fn resize_complex<R: Real>(
    cx: &mut RunCx<'_>,
    axes: &[Option<Vec<Taps>>],
    outside: f64,
) -> Result<()>
where
    Complex<R>: Element,
{
    let (x, shape) = (cx.input::<Complex<R>>(0)?, cx.shape(0)?);
    let real = interpolate(x.iter().map(|x| x.re).collect(), &shape, axes, R::of(outside))?;
    let imaginary = interpolate(x.iter().map(|x| x.im).collect(), &shape, axes, R::ZERO)?;
    let wide = real.into_iter().zip(imaginary).map(|(re, im)| Complex::new(re, im));
    cx.output::<Complex<R>>(0)?.iter_mut().zip(wide).for_each(|(to, y)| *to = y);
    Ok(())
}

/// The taps of every output of an axis.
fn axis_taps(call: &Call<'_>, scale: &Scale) -> Result<Vec<Taps>> {
    let mode = match call.str_or("mode", "nearest")? {
        "nearest" if call.version() < 11 => Mode::Nearest(""),
        "nearest" => Mode::Nearest(call.str_or("nearest_mode", "round_prefer_floor")?),
        "linear" | "bilinear" => Mode::Linear,
        "cubic" => Mode::Cubic(f64::from(call.float_or("cubic_coeff_a", -0.75)?)),
        other => {
            let reason = format!("there is no mode `{other}` of interpolation");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    };
    let coordinates = match call.version() {
        ..11 => "asymmetric",
        _ => call.str_or("coordinate_transformation_mode", "half_pixel")?,
    };
    let crop = coordinates == "tf_crop_and_resize";
    let squeeze = if call.flag("antialias", false)? { smaller(scale.factor, 1.0) } else { 1.0 };
    if 4.0 / squeeze > MOST_TAPS {
        let reason = format!("a scale of {squeeze} needs too many inputs for each output");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    let exclude = call.flag("exclude_outside", false)?;
    let taps = (0..scale.output).map(|output| {
        let place = scale.place(output, coordinates)?;
        match mode {
            _ if crop && !(0.0..=scale.last()).contains(&place) => Ok(Vec::new()),
            Mode::Nearest(rule) => {
                Ok(vec![(scale.clamp(nearest(place, rule, scale.factor)?), 1.0)])
            }
            _ => Ok(weights(scale, place, mode, squeeze, exclude)),
        }
    });
    taps.collect()
}

/// The index nearest to `place`; `rule` says which one if it lies between two.
fn nearest(place: f64, rule: &str, factor: f64) -> Result<f64> {
    Ok(match rule {
        "round_prefer_floor" => Real::ceil(place - 0.5),
        "round_prefer_ceil" => Real::floor(place + 0.5),
        "floor" => Real::floor(place),
        "ceil" => Real::ceil(place),
        "" if factor < 1.0 => Real::ceil(place),
        "" => Real::trunc(place),
        other => {
            let reason = format!("there is no nearest_mode `{other}`");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    })
}

/// The taps around `place`: two of Linear and four of Cubic, and more where `squeeze` is less
/// than 1.
fn weights(scale: &Scale, place: f64, mode: Mode<'_>, squeeze: f64, exclude: bool) -> Taps {
    let reach = if matches!(mode, Mode::Linear) { 1.0 } else { 2.0 };
    let base = Real::floor(place);
    let first = Real::floor(-reach / squeeze) + 1.0;
    let mut taps = Vec::new();
    let (mut offset, mut sum) = (first, 0.0);
    while offset <= 1.0 - first {
        let distance = squeeze * Number::abs(offset - (place - base));
        let weight = match mode {
            Mode::Cubic(a) => cubic(distance, a),
            _ => larger(1.0 - distance, 0.0),
        };
        let inside = (0.0..=scale.last()).contains(&(base + offset));
        let weight = if exclude && !inside { 0.0 } else { weight };
        taps.push((scale.clamp(base + offset), weight));
        sum += weight;
        offset += 1.0;
    }
    if (exclude || squeeze < 1.0) && sum != 0.0 {
        taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
    }
    taps
}

/// Keys' kernel of cubic convolution at `x`, from 0 on, with its parameter `a`.
pub(super) fn cubic<R: Real>(x: R, a: R) -> R {
    let of = R::of;
    if x <= R::ONE {
        ((a + of(2.0)) * x - (a + of(3.0))) * x * x + R::ONE
    } else if x < of(2.0) {
        ((a * x - of(5.0) * a) * x + of(8.0) * a) * x - of(4.0) * a
    } else {
        R::ZERO
    }
}

/// Every output is one input.
fn move_elements(cx: &mut RunCx<'_>, axes: &[Option<Vec<Taps>>]) -> Result<()> {
    let shape = cx.shape(0)?;
    let lists =
        axes.iter().zip(&shape).zip(strides(&shape)).map(|((taps, dim), stride)| match taps {
            None => (0..*dim).map(|i| i * stride).collect(),
            Some(taps) => taps.iter().flatten().map(|(i, _)| i * stride).collect::<Vec<_>>(),
        });
    let mut lists: Vec<Vec<usize>> = lists.collect();
    let last = lists.pop().unwrap_or_else(|| vec![0]);
    let starts = lists.iter().fold(vec![0], |starts: Vec<usize>, list| {
        starts.iter().flat_map(|start| list.iter().map(move |place| start + place)).collect()
    });
    let line = |start: usize| last.iter().map(move |place| Run::one(0, start + place));
    arrange(cx, 0, starts.into_iter().flat_map(line))
}

/// Interpolates one axis after the other.
fn interpolate<R: Real>(
    mut x: Vec<R>,
    shape: &[usize],
    axes: &[Option<Vec<Taps>>],
    outside: R,
) -> Result<Vec<R>> {
    let mut shape = shape.to_vec();
    for (i, outputs) in axes.iter().enumerate() {
        let Some(outputs) = outputs else { continue };
        let (outer, dim, inner) = crate::numeric::broadcast::around(&shape, i);
        let len = outer.checked_mul(outputs.len()).and_then(|len| len.checked_mul(inner));
        let len = len.ok_or_else(|| Error::new(ErrorKind::Shape, "a tensor that is too large"))?;
        let mut y = vec![R::ZERO; len];
        let blocks = x.chunks_exact((dim * inner).max(1));
        for (x, y) in blocks.zip(y.chunks_exact_mut((outputs.len() * inner).max(1))) {
            for (taps, y) in outputs.iter().zip(y.chunks_exact_mut(inner.max(1))) {
                blend(x, taps, y, outside)?;
            }
        }
        *shape.at_mut(i)? = outputs.len();
        x = y;
    }
    Ok(x)
}

/// `y`, which is zero, gets the weighted sum of the lines of `x` that `taps` name.
fn blend<R: Real>(x: &[R], taps: &Taps, y: &mut [R], outside: R) -> Result<()> {
    if taps.is_empty() {
        y.fill(outside);
    }
    let inner = y.len();
    for (at, weight) in taps {
        let (line, weight) = (x.part(at * inner..(at + 1) * inner)?, R::of(*weight));
        y.iter_mut().zip(line).for_each(|(y, x)| *y += weight * *x);
    }
    Ok(())
}
