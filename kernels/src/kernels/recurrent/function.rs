//! The functions f, g and h of recurrent layers: attributes `activations`, `activation_alpha`,
//! `activation_beta` and `clip`.

use super::super::activation::{sigmoid, softplus, softsign, unit};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::call::Call;
use crate::numeric::Real;

/// A function with its parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    name: Name,
    alpha: f32,
    beta: f32,
    /// The bounds of what the function is applied to.
    clip: Option<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Affine,
    Elu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    ScaledTanh,
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
}

/// Every function with the values of alpha and beta that it has by default, where it uses them.
const NAMES: [(&str, Name, Option<f32>, Option<f32>); 11] = [
    ("Affine", Name::Affine, Some(1.0), Some(0.0)),
    ("Elu", Name::Elu, Some(1.0), None),
    ("HardSigmoid", Name::HardSigmoid, Some(0.2), Some(0.5)),
    ("LeakyRelu", Name::LeakyRelu, Some(0.01), None),
    ("Relu", Name::Relu, None, None),
    ("ScaledTanh", Name::ScaledTanh, Some(1.0), Some(1.0)),
    ("Sigmoid", Name::Sigmoid, None, None),
    ("Softplus", Name::Softplus, None, None),
    ("Softsign", Name::Softsign, None, None),
    ("Tanh", Name::Tanh, None, None),
    ("ThresholdedRelu", Name::ThresholdedRelu, Some(1.0), None),
];

/// The functions of one direction: as many as `defaults`. Values of alpha and beta are taken in
/// turn by the functions that use them, over all directions.
pub(super) fn functions<const N: usize>(
    call: &Call<'_>,
    direction: usize,
    defaults: &[&str; N],
) -> Result<[Function; N]> {
    let attributes = &call.node().attributes;
    let mut alphas = attributes.floats_or("activation_alpha", &[])?.iter();
    let mut betas = attributes.floats_or("activation_beta", &[])?.iter();
    let clip = attributes.float("clip")?;
    let given = attributes.strings_or("activations", &[])?;
    let names: Vec<&[u8]> = match given {
        [] => defaults.repeat(direction + 1).into_iter().map(str::as_bytes).collect(),
        given => given.iter().map(Vec::as_slice).collect(),
    };
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let known = NAMES.iter().find(|(known, ..)| known.as_bytes().eq_ignore_ascii_case(name));
        let (_, name, alpha, beta) = *known.ok_or_else(|| unknown(name))?;
        let (alpha, beta) = (taken(&mut alphas, alpha), taken(&mut betas, beta));
        found.push(Function { name, alpha, beta, clip });
    }
    let (all, _) = found.as_chunks::<N>();
    all.get(direction).copied().ok_or_else(|| {
        let reason = format!("there are {} activations, not {N} for each direction", found.len());
        Error::new(ErrorKind::InvalidModel, reason)
    })
}

/// The next of the values for a parameter with this default; 0, which nothing reads, for a function
/// without the parameter.
fn taken(values: &mut std::slice::Iter<'_, f32>, default: Option<f32>) -> f32 {
    match default {
        Some(default) => values.next().copied().unwrap_or(default),
        None => 0.0,
    }
}

fn unknown(name: &[u8]) -> Error {
    let reason = format!("the activation `{}` is not known", String::from_utf8_lossy(name));
    Error::new(ErrorKind::InvalidModel, reason)
}

impl Function {
    pub(super) fn of<R: Real>(&self, x: R) -> R {
        let (alpha, beta) = (R::of(f64::from(self.alpha)), R::of(f64::from(self.beta)));
        let x = self.clip.map_or(x, |clip| clamp(x, R::of(f64::from(clip))));
        match self.name {
            Name::Affine => alpha * x + beta,
            Name::Elu if x < R::ZERO => alpha * (x.exp() - R::ONE),
            Name::LeakyRelu if x < R::ZERO => alpha * x,
            Name::Relu if x < R::ZERO => R::ZERO,
            Name::Elu | Name::LeakyRelu | Name::Relu => x,
            Name::HardSigmoid => unit(alpha * x + beta),
            Name::ScaledTanh => alpha * (beta * x).tanh(),
            Name::Sigmoid => sigmoid(x),
            Name::Softplus => softplus(x),
            Name::Softsign => softsign(x),
            Name::Tanh => x.tanh(),
            Name::ThresholdedRelu if x > alpha => x,
            Name::ThresholdedRelu => R::ZERO,
        }
    }

    /// The function without its bounds.
    pub(super) fn unclipped(self) -> Self {
        Self { clip: None, ..self }
    }

    /// Replaces every element.
    pub(super) fn apply<R: Real>(&self, elements: &mut [R]) {
        elements.iter_mut().for_each(|x| *x = self.of(*x));
    }
}

/// Between minus `bound` and `bound`.
fn clamp<R: Real>(x: R, bound: R) -> R {
    if x > bound {
        bound
    } else if x < -bound {
        -bound
    } else {
        x
    }
}
