//! Operators on one element at a time, of one input or of several that
//! [broadcast](https://github.com/onnx/onnx/blob/main/docs/Broadcasting.md).
//!
//! Operator `Abs` is specified at <https://onnx.ai/onnx/operators/onnx__Abs.html>, and the others
//! likewise. The activation functions are in `activation`.

use half::{bf16, f16};
use onnx_container_proto::{DataType, Element};

use super::loops::{self, map};
use super::power;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::narrow::{codes, decode};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{broadcast, broadcast_strides, offsets};
use crate::numeric::nan::OneNan;
use crate::numeric::{Float, Number, Real, for_type, not_taken};

/// A kernel of one input of a number type: `unary!("Abs", x => x.abs())`. The expression is generic
/// over [`Number`], as `T`.
macro_rules! unary {
    ($name:literal, $x:ident => $f:expr) => {{
        fn apply<T: $crate::numeric::Number>($x: T) -> T {
            $f
        }
        $crate::kernel::Builtin::new($name, $crate::kernels::elementwise::same, |cx| {
            $crate::numeric::for_type!(cx.dtype(0)?, numbers, T => {
                $crate::kernels::loops::map(cx, apply::<T>)
            })
        })
    }};
}

/// A kernel of one float input, computed in `f32` or `f64`: `float!("Exp", x => x.exp())`. The
/// expression is generic over [`Real`], so its functions are those of `libm` and never the standard
/// library's.
macro_rules! float {
    ($name:literal, $x:ident => $f:expr) => {{
        fn apply<R: $crate::numeric::Real>($x: R) -> R {
            $f
        }
        $crate::kernel::Builtin::new($name, $crate::kernels::elementwise::same, |cx| {
            $crate::numeric::for_type!(cx.dtype(0)?, floats, T => {
                $crate::kernels::loops::map(cx, |x: T| $crate::numeric::Float::map(x, apply))
            })
        })
    }};
}

/// A kernel of two inputs of one number type that gives `$R`, which is `T` or `bool`. The
/// expression is generic over [`Number`], as `T`.
macro_rules! binary {
    ($name:literal, $infer:ident, |$a:ident, $b:ident| -> $R:ty { $f:expr }) => {{
        fn apply<T: Number>($a: T, $b: T) -> $R {
            $f
        }
        Builtin::new($name, $infer, |cx| {
            for_type!(cx.dtype(0)?, numbers, T => zip(cx, apply::<T>))
        })
    }};
    ($name:literal, $a:ident, $b:ident => $f:expr) => {
        binary!($name, broadcast_same, |$a, $b| -> T { $f })
    };
}

/// A kernel of two inputs of one integer type.
macro_rules! bitwise {
    ($name:literal, $a:ident, $b:ident => $f:expr) => {
        Builtin::new($name, broadcast_same, |cx| {
            for_type!(cx.dtype(0)?, integers, T => zip(cx, |$a: T, $b: T| $f))
        })
    };
}

/// A kernel of any number of inputs of one type, which are combined from the first to the last.
macro_rules! variadic {
    ($name:literal, $a:ident, $b:ident => $f:expr) => {{
        fn apply<T: Number>($a: T, $b: T) -> T {
            $f
        }
        Builtin::new($name, broadcast_same, |cx| {
            for_type!(cx.dtype(0)?, numbers, T => fold(cx, apply::<T>).map(|_| ()))
        })
    }};
}

/// A kernel of two BOOL inputs.
const fn logic(name: &'static str, run: fn(&mut RunCx<'_>) -> Result<()>) -> Builtin {
    Builtin::new(name, broadcast_bool, run)
}

pub(super) const KERNELS: &[Builtin] = &[
    unary!("Abs", x => x.abs()),
    unary!("Neg", x => x.neg()),
    unary!("Sign", x => sign(x)),
    unary!("Reciprocal", x => T::ONE.div(x)),
    Builtin::new(
        "BitwiseNot",
        same,
        |cx| for_type!(cx.dtype(0)?, integers, T => map(cx, |x: T| !x)),
    ),
    Builtin::new("Not", same, |cx| map(cx, |x: bool| !x)),
    float!("Sqrt", x => x.sqrt()),
    float!("Exp", x => x.exp()),
    float!("Log", x => x.ln()),
    float!("Sin", x => x.sin()),
    float!("Cos", x => x.cos()),
    float!("Tan", x => x.tan()),
    float!("Asin", x => x.asin()),
    float!("Acos", x => x.acos()),
    float!("Atan", x => x.atan()),
    float!("Sinh", x => x.sinh()),
    float!("Cosh", x => x.cosh()),
    float!("Tanh", x => x.tanh()),
    float!("Asinh", x => x.asinh()),
    // For numbers far below 1, the function of libm cancels to anything.
    float!("Acosh", x => if x < R::ONE { R::of(f64::NAN) } else { x.acosh() }),
    float!("Atanh", x => x.atanh()),
    Builtin::new("Erf", same, erf),
    float!("Ceil", x => x.ceil()),
    float!("Floor", x => x.floor()),
    float!("Round", x => x.round_even()),
    Builtin::new("IsNaN", same_bool, |cx| match decode(cx.dtype(0)?) {
        Some(decode) => test_codes(cx, |code| decode(code).is_nan()),
        None => for_type!(cx.dtype(0)?, floats, T => map(cx, |x: T| Number::is_nan(x))),
    }),
    Builtin::new("IsInf", same_bool, is_inf),
    binary!("Add", a, b => a.add(b)),
    binary!("Sub", a, b => a.sub(b)),
    binary!("Mul", a, b => a.mul(b)),
    binary!("Div", a, b => a.div(b)),
    bitwise!("BitwiseAnd", a, b => a & b),
    bitwise!("BitwiseOr", a, b => a | b),
    bitwise!("BitwiseXor", a, b => a ^ b),
    binary!("PRelu", x, slope => if x < T::ZERO { x.mul(slope) } else { x }),
    Builtin::new("Pow", broadcast_same, |cx| power::pow(cx, &shapes(cx)?)),
    Builtin::new("Mod", broadcast_same, modulo),
    Builtin::new("BitShift", broadcast_same, bit_shift),
    Builtin::new("Equal", broadcast_bool, equal),
    binary!("Less", broadcast_bool, |a, b| -> bool { a < b }),
    binary!("LessOrEqual", broadcast_bool, |a, b| -> bool { a <= b }),
    binary!("Greater", broadcast_bool, |a, b| -> bool { a > b }),
    binary!("GreaterOrEqual", broadcast_bool, |a, b| -> bool { a >= b }),
    logic("And", |cx| zip(cx, |a: bool, b: bool| a && b)),
    logic("Or", |cx| zip(cx, |a: bool, b: bool| a || b)),
    logic("Xor", |cx| zip(cx, |a: bool, b: bool| a != b)),
    variadic!("Sum", a, b => a.add(b)),
    variadic!("Max", a, b => if a.is_nan() || a > b { a } else { b }),
    variadic!("Min", a, b => if a.is_nan() || a < b { a } else { b }),
    Builtin::new("Mean", broadcast_same, mean),
    Builtin::new("Clip", same, clip),
];

/// One output with the type and shape of input 0.
pub(super) fn same(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(0)?, call.shape(0)?)])
}

/// One BOOL output with the shape of input 0.
fn same_bool(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(DataType::Bool, call.shape(0)?)])
}

/// One output with the type of input 0 and the shape to which all inputs broadcast.
fn broadcast_same(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(call.dtype(0)?, broadcast(&shapes(call)?)?)])
}

fn broadcast_bool(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    Ok(vec![OutSpec::tensor(DataType::Bool, broadcast(&shapes(call)?)?)])
}

/// The shapes of all inputs. Before version 7, input 1 broadcasts from the attribute `axis` on, and
/// the slopes of PRelu are those of the channels.
fn shapes(call: &Call<'_>) -> Result<Vec<Vec<usize>>> {
    let mut shapes = (0..call.input_count()).map(|i| call.shape(i)).collect::<Result<Vec<_>>>()?;
    let of_channels = match shapes.as_slice() {
        [x, slope] => call.node().op_type == "PRelu" && x.len() > 1 && *slope != [1],
        _ => false,
    };
    let axis = call.node().attributes.int("axis")?.or(of_channels.then_some(1));
    if let (true, Some(axis), [first, second]) = (call.version() < 7, axis, shapes.as_mut_slice()) {
        let axis = crate::numeric::broadcast::axis(axis, first.len())?;
        let len = first.len().saturating_sub(axis);
        if second.iter().skip(len).any(|dim| *dim != 1) {
            let reason = format!("the shape {second:?} does not fit {first:?} from axis {axis} on");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        second.resize(len, 1);
    }
    Ok(shapes)
}

/// `f` of each pair of elements of inputs 0 and 1, which broadcast.
fn zip<A: Element, B: Element, C: OneNan>(cx: &mut RunCx<'_>, f: impl Fn(A, B) -> C) -> Result<()> {
    let shapes = shapes(cx)?;
    loops::zip(cx, &shapes, f)
}

/// All inputs, which broadcast, combined by `f` from the first to the last; the output.
fn fold<'a, T: OneNan>(cx: &mut RunCx<'a>, f: impl Fn(T, T) -> T) -> Result<&'a mut [T]> {
    let shapes = shapes(cx)?;
    loops::fold(cx, &shapes, f)
}

fn two_inputs() -> Error {
    Error::new(ErrorKind::Input, "the operator has two inputs")
}

fn mean(cx: &mut RunCx<'_>) -> Result<()> {
    let inputs = i32::try_from(cx.input_count()).map_err(|_| two_inputs())?;
    for_type!(cx.dtype(0)?, floats, T => {
        let sum = fold(cx, <T as Number>::add)?;
        let inputs = <T as Number>::from_f64(f64::from(inputs));
        sum.iter_mut().for_each(|y| *y = Number::div(*y, inputs).one_nan());
        Ok(())
    })
}

fn sign<T: Number>(x: T) -> T {
    if x > T::ZERO {
        T::ONE
    } else if x < T::ZERO {
        T::ONE.neg()
    } else {
        x // zero, or not a number
    }
}

fn is_inf(cx: &mut RunCx<'_>) -> Result<()> {
    let (up, down) = (cx.flag("detect_positive", true)?, cx.flag("detect_negative", true)?);
    if let Some(decode) = decode(cx.dtype(0)?) {
        return test_codes(cx, |code| {
            let x = decode(code);
            x.is_infinite() && if x > 0.0 { up } else { down }
        });
    }
    for_type!(cx.dtype(0)?, floats, T => {
        map(cx, |x: T| (up && x == T::HIGHEST) || (down && x == T::LOWEST))
    })
}

/// What `test` says of each code of input 0.
fn test_codes(cx: &mut RunCx<'_>, test: impl Fn(u8) -> bool) -> Result<()> {
    let (codes, output) = (codes(cx, 0)?, cx.output::<bool>(0)?);
    output.iter_mut().zip(codes.iter()).for_each(|(y, code)| *y = test(*code));
    Ok(())
}

/// Of an integer, the integer part of the function.
fn erf(cx: &mut RunCx<'_>) -> Result<()> {
    if cx.dtype(0)?.is_integer() {
        return for_type!(cx.dtype(0)?, integers, T => {
            map(cx, |x: T| T::from_f64(Real::erf(x.to_f64())))
        });
    }
    for_type!(cx.dtype(0)?, floats, T => map(cx, |x: T| Float::map(x, erf_of)))
}

fn erf_of<R: Real>(x: R) -> R {
    Real::erf(x)
}

fn equal(cx: &mut RunCx<'_>) -> Result<()> {
    if cx.dtype(0)? == DataType::String {
        return equal_strings(cx);
    }
    for_type!(cx.dtype(0)?, elements, T => zip(cx, |a: T, b: T| a == b))
}

fn equal_strings(cx: &mut RunCx<'_>) -> Result<()> {
    let (a, b) = (cx.strings(0)?, cx.strings(1)?);
    let (shape, output) = (cx.out_shape(0)?, cx.output::<bool>(0)?);
    let strides = |i| Ok::<_, Error>(broadcast_strides(&cx.shape(i)?, shape));
    let (of_a, of_b) = (strides(0)?, strides(1)?);
    for (y, (i, j)) in output.iter_mut().zip(offsets(shape, &of_a).zip(offsets(shape, &of_b))) {
        *y = a.get(i) == b.get(j);
    }
    Ok(())
}

/// The remainder: with `fmod` it has the sign of the dividend, otherwise that of the divisor, a
/// zero too.
fn modulo(cx: &mut RunCx<'_>) -> Result<()> {
    let fmod = cx.flag("fmod", false)?;
    for_type!(cx.dtype(0)?, numbers, T => zip(cx, if fmod { T::rem } else { floor_mod::<T> }))
}

fn floor_mod<T: Number>(a: T, b: T) -> T {
    let remainder = a.rem(b);
    if remainder == T::ZERO {
        return if b < T::ZERO { T::ZERO.neg() } else { T::ZERO };
    }
    let other_sign = (remainder < T::ZERO) != (b < T::ZERO);
    if other_sign { remainder.add(b) } else { remainder }
}

fn bit_shift(cx: &mut RunCx<'_>) -> Result<()> {
    let left = match cx.str_or("direction", "")? {
        "LEFT" => true,
        "RIGHT" => false,
        other => {
            let reason = format!("the direction `{other}` is neither LEFT nor RIGHT");
            return Err(Error::new(ErrorKind::InvalidModel, reason));
        }
    };
    macro_rules! shift {
        ($type:ty, $x:ident => $fill:expr) => {
            zip(cx, |$x: $type, by: $type| {
                let shift = |by| if left { $x.checked_shl(by) } else { $x.checked_shr(by) };
                // A shift by all bits or more leaves nothing.
                let shifted = u32::try_from(by).ok().and_then(shift);
                shifted.unwrap_or(if left { 0 } else { $fill })
            })
        };
    }
    // A negative number is filled with its sign.
    match cx.dtype(0)? {
        DataType::Uint8 => shift!(u8, x => 0),
        DataType::Uint16 => shift!(u16, x => 0),
        DataType::Uint32 => shift!(u32, x => 0),
        DataType::Uint64 => shift!(u64, x => 0),
        DataType::Int8 => shift!(i8, x => x.signum().min(0)),
        DataType::Int16 => shift!(i16, x => x.signum().min(0)),
        DataType::Int32 => shift!(i32, x => x.signum().min(0)),
        DataType::Int64 => shift!(i64, x => x.signum().min(0)),
        other => Err(not_taken(other)),
    }
}

/// The `max` of Clip where a node leaves it out, for types of floats: the largest finite number of
/// the type. From version 6 to 10 it is that of FLOAT, the default of an attribute. Version 1 has
/// none.
fn largest_number(cx: &RunCx<'_>) -> Option<f64> {
    match (cx.version(), cx.dtype(0).ok()?) {
        (..6, _) => None,
        (6..11, DataType::Float | DataType::Double | DataType::Float16) | (_, DataType::Float) => {
            Some(f64::from(f32::MAX))
        }
        (_, DataType::Double) => Some(f64::MAX),
        (_, DataType::Float16) => Some(f64::from(f16::MAX)),
        (_, DataType::Bfloat16) => Some(f64::from(bf16::MAX)),
        _ => None,
    }
}

/// Bounds are attributes before version 11, and inputs later.
fn clip(cx: &mut RunCx<'_>) -> Result<()> {
    for_type!(cx.dtype(0)?, numbers, T => {
        let bound = |name: &str, i: usize, default: T| match cx.node().attributes.float(name)? {
            Some(value) => Ok(<T as Number>::from_f64(f64::from(value))),
            None if cx.has_input(i) => cx.scalar(i),
            None => Ok(default),
        };
        let largest = largest_number(cx);
        let default = |sign: f64, extreme: T| largest.map_or(extreme, |x| T::from_f64(sign * x));
        let low = bound("min", 1, default(-1.0, T::LOWEST))?;
        let high = bound("max", 2, default(1.0, T::HIGHEST))?;
        map(cx, |x: T| {
            let raised = if x < low { low } else { x };
            if raised > high { high } else { raised }
        })
    })
}
