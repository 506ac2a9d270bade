//! Activation functions: operators on one element at a time, with attributes for parameters.
//!
//! Operator `Sigmoid` is specified at <https://onnx.ai/onnx/operators/onnx__Sigmoid.html>, and the
//! others likewise.

use super::elementwise::same;
use super::loops::map;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::Builtin;
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Float, Number, Real, for_type};

/// A kernel of one float input `x` with two float attributes, of which the second may not exist,
/// and their defaults. The expression is generic over [`Real`], as `R`.
macro_rules! with {
    ($name:literal, $a:literal = $alpha:expr, $b:literal = $beta:expr, $R:ident => |$x:ident, $p:pat_param, $q:pat_param| $f:expr) => {{
        fn apply<$R: Real>($x: $R, $p: $R, $q: $R) -> $R {
            $f
        }
        Builtin::new($name, same, |cx| {
            let (alpha, beta) = (cx.float_or($a, $alpha)?, cx.float_or($b, $beta)?);
            for_type!(cx.dtype(0)?, floats, T => {
                let of = <T as Float>::Real::of;
                let (alpha, beta) = (of(f64::from(alpha)), of(f64::from(beta)));
                map(cx, |x: T| Float::map(x, |x| apply(x, alpha, beta)))
            })
        })
    }};
}

pub(super) const KERNELS: &[Builtin] = &[
    unary!("Relu", x => if x < T::ZERO { T::ZERO } else { x }),
    float!("Sigmoid", x => sigmoid(x)),
    float!("Softplus", x => softplus(x)),
    float!("Softsign", x => softsign(x)),
    float!("HardSwish", x => hard_swish(x)),
    with!("LeakyRelu", "alpha" = 0.01, "" = 0.0, R => |x, a, _| if x < R::ZERO { a * x } else { x }),
    with!("ThresholdedRelu", "alpha" = 1.0, "" = 0.0, R => |x, a, _| if x > a { x } else { R::ZERO }),
    with!("Elu", "alpha" = 1.0, "" = 0.0, R => |x, a, _| {
        if x < R::ZERO { a * (x.exp() - R::ONE) } else { x }
    }),
    Builtin::new("Selu", same, |cx| match cx.version() {
        ..6 => selu(cx, [1.6732, 1.0507]),
        _ => selu(cx, [1.673_263_2, 1.050_701]),
    }),
    Builtin::new("Celu", same, celu),
    with!("HardSigmoid", "alpha" = 0.2, "beta" = 0.5, R => |x, a, b| unit(a * x + b)),
    with!("Swish", "alpha" = 1.0, "" = 0.0, R => |x, a, _| x * sigmoid(a * x)),
    Builtin::new("Shrink", same, shrink),
    Builtin::new("Gelu", same, gelu),
];

/// An integer is shrunk as a number and becomes the nearest integer towards zero.
fn shrink(cx: &mut RunCx<'_>) -> Result<()> {
    let (lambda, bias) = (cx.float_or("lambd", 0.5)?, cx.float_or("bias", 0.0)?);
    let (lambda, bias) = (f64::from(lambda), f64::from(bias));
    if cx.dtype(0)?.is_integer() {
        return for_type!(cx.dtype(0)?, integers, T => map(cx, |x: T| shrunk_integer(x, lambda, bias)));
    }
    for_type!(cx.dtype(0)?, floats, T => {
        let of = <T as Float>::Real::of;
        let (lambda, bias) = (of(lambda), of(bias));
        map(cx, |x: T| Float::map(x, |x| shrunk(x, lambda, bias)))
    })
}

fn shrunk<R: Real>(x: R, lambda: R, bias: R) -> R {
    if x < -lambda {
        x + bias
    } else if x > lambda {
        x - bias
    } else {
        R::ZERO
    }
}

/// A whole bias is subtracted exactly, from numbers that no `f64` is equal to, too.
fn shrunk_integer<T: Number>(x: T, lambda: f64, bias: f64) -> T {
    let sign = if x.to_f64() < -lambda {
        1
    } else if x.to_f64() > lambda {
        -1
    } else {
        return T::ZERO;
    };
    if bias.trunc().total_cmp(&bias).is_ne() {
        return T::from_f64(x.to_f64() + f64::from(sign) * bias);
    }
    let sum = x.to_i128().saturating_add(i128::from(sign).saturating_mul(bias.to_i128()));
    T::from_i128(sum.clamp(T::LOWEST.to_i128(), T::HIGHEST.to_i128()))
}

pub(super) fn softsign<R: Real>(x: R) -> R {
    x / (R::ONE + x.abs())
}

fn hard_swish<R: Real>(x: R) -> R {
    x * unit(x / R::of(6.0) + R::of(0.5))
}

/// `log(1 + exp(x))`, with an exponential that is never infinite.
pub(super) fn softplus<R: Real>(x: R) -> R {
    let above = if x > R::ZERO { x } else { R::ZERO };
    above + (-x.abs()).exp().ln_1p()
}

/// `1 / (1 + exp(-x))`, for negative `x` as `exp(x) / (1 + exp(x))`.
pub(super) fn sigmoid<R: Real>(x: R) -> R {
    if x < R::ZERO {
        let e = x.exp();
        e / (R::ONE + e)
    } else {
        R::ONE / (R::ONE + (-x).exp())
    }
}

/// Between 0 and 1.
pub(super) fn unit<R: Real>(x: R) -> R {
    if x < R::ZERO {
        R::ZERO
    } else if x > R::ONE {
        R::ONE
    } else {
        x
    }
}

fn selu(cx: &mut RunCx<'_>, [alpha, gamma]: [f32; 2]) -> Result<()> {
    fn apply<R: Real>(x: R, a: R, g: R) -> R {
        g * if x > R::ZERO { x } else { a * x.exp() - a }
    }
    let (alpha, gamma) = (cx.float_or("alpha", alpha)?, cx.float_or("gamma", gamma)?);
    for_type!(cx.dtype(0)?, floats, T => {
        let [alpha, gamma] = [alpha, gamma].map(|x| <T as Float>::Real::of(f64::from(x)));
        map(cx, |x: T| Float::map(x, |x| apply(x, alpha, gamma)))
    })
}

fn celu(cx: &mut RunCx<'_>) -> Result<()> {
    let alpha = cx.float_or("alpha", 1.0)?;
    if alpha == 0.0 || !alpha.is_finite() {
        let reason = format!("with alpha {alpha}, alpha * (exp(x / alpha) - 1) is not a number");
        return Err(Error::new(ErrorKind::Value, reason));
    }
    fn apply<R: Real>(x: R, a: R) -> R {
        if x > R::ZERO { x } else { a * ((x / a).exp() - R::ONE) }
    }
    for_type!(cx.dtype(0)?, floats, T => {
        let alpha = <T as Float>::Real::of(f64::from(alpha));
        map(cx, |x: T| Float::map(x, |x| apply(x, alpha)))
    })
}

pub(super) fn gelu(cx: &mut RunCx<'_>) -> Result<()> {
    let by_tanh = cx.str_or("approximate", "none")? == "tanh";
    for_type!(cx.dtype(0)?, floats, T => match by_tanh {
        true => map(cx, |x: T| Float::map(x, gelu_tanh)),
        false => map(cx, |x: T| Float::map(x, gelu_erf)),
    })
}

pub(super) fn gelu_erf<R: Real>(x: R) -> R {
    R::of(0.5) * x * (R::ONE + Real::erf(x / R::of(2.0).sqrt()))
}

pub(super) fn gelu_tanh<R: Real>(x: R) -> R {
    let inner = R::of(2.0 / std::f64::consts::PI).sqrt() * (x + R::of(0.044_715) * x * x * x);
    R::of(0.5) * x * (R::ONE + inner.tanh())
}
