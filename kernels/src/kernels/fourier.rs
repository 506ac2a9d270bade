//! The discrete Fourier transform of complex numbers with parts of `f64`.
//!
//! A length with a factor of 2 is divided by it as often as possible. What is left is summed by the
//! definition, in order, where it is short. Where it is long, that would take a time of its square:
//! by [Bluestein's
//! algorithm](https://en.wikipedia.org/wiki/Chirp_Z-transform#Bluestein's_algorithm) it is a
//! convolution with a chirp, which transforms of a power of 2 compute.

use onnx_container_proto::num_complex::Complex;

use super::resize_scale::float;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::numeric::Real;
use crate::numeric::broadcast::each_of;

pub(super) type C = Complex<f64>;

/// The longest odd length that is summed by the definition.
const SUMMED: usize = 512;

/// The longest transform: longer ones take more time and memory than anyone has.
const LONGEST: usize = 1 << 32;

/// The transforms of one length, in one direction.
#[derive(Debug)]
pub(super) struct Fourier {
    len: usize,
    roots: Vec<C>,
    /// For the odd factor of the length, where it is long.
    chirp: Option<Box<Chirp>>,
}

impl Fourier {
    /// The transform of `len` numbers, or the inverse one without its scale.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] when there are too many.
    pub(super) fn new(len: usize, inverse: bool) -> Result<Self> {
        if len > LONGEST {
            let reason =
                format!("a transform of {len} numbers is longer than any that is computed");
            return Err(Error::new(ErrorKind::Value, reason));
        }
        let odd = if len == 0 { 0 } else { len >> len.trailing_zeros() };
        let chirp = if odd > SUMMED { Some(Box::new(Chirp::new(odd, inverse)?)) } else { None };
        Ok(Self { len, roots: roots(len, inverse), chirp })
    }

    /// The transform of `x`, which has the length of this one.
    pub(super) fn transform(&self, x: &[C]) -> Vec<C> {
        debug_assert_eq!(x.len(), self.len);
        self.part(x)
    }

    /// The transform of `x`, whose length divides the whole one by a power of 2.
    fn part(&self, x: &[C]) -> Vec<C> {
        let (len, step) = (x.len(), each_of(self.len, x.len()));
        let root = |i: usize| self.roots.debug_at(i * step, C::default());
        if len < 2 || len % 2 == 1 {
            let sum = |k: usize| {
                let terms = x.iter().enumerate();
                terms.fold(C::default(), |sum, (j, x)| sum + root(j * k % len.max(1)) * x)
            };
            return match &self.chirp {
                Some(chirp) => chirp.transform(x),
                None => (0..len).map(sum).collect(),
            };
        }
        let half = |from| x.iter().skip(from).step_by(2).copied().collect::<Vec<_>>();
        let (even, odd) = (self.part(&half(0)), self.part(&half(1)));
        let turned: Vec<_> = odd.iter().enumerate().map(|(k, x)| root(k) * x).collect();
        let sums = even.iter().zip(&turned).map(|(a, b)| a + b);
        let differences = even.iter().zip(&turned).map(|(a, b)| a - b);
        sums.chain(differences).collect()
    }
}

/// The powers of the `len`-th root of one: clockwise, or the other way for the inverse.
fn roots(len: usize, inverse: bool) -> Vec<C> {
    let turn = if inverse { 2.0 } else { -2.0 } * std::f64::consts::PI;
    let root = |i| {
        let angle = turn * float(i) / float(len);
        C::new(Real::cos(angle), Real::sin(angle))
    };
    (0..len).map(root).collect()
}

/// A transform of any length as a convolution: as `2jk` is `j² + k² - (k - j)²`, number `k` of the
/// result is `chirp[k]` times the sum over `j` of `x[j] chirp[j]` times the conjugate of `chirp[k -
/// j]`.
#[derive(Debug)]
struct Chirp {
    /// Half the roots' powers of the squares of 0, 1, 2 and so on.
    powers: Vec<C>,
    /// The transform of the conjugates, which a convolution multiplies by.
    filter: Vec<C>,
    forward: Fourier,
    backward: Fourier,
}

impl Chirp {
    fn new(len: usize, inverse: bool) -> Result<Self> {
        // A circle that is long enough for the sums not to meet.
        let circle = (2 * len).next_power_of_two();
        let (forward, backward) = (Fourier::new(circle, false)?, Fourier::new(circle, true)?);
        let halves = roots(2 * len, inverse);
        let (mut powers, mut square) = (Vec::with_capacity(len), 0);
        for i in 0..len {
            powers.push(*halves.at(square)?);
            square = (square + 2 * i + 1) % (2 * len);
        }
        let mut filter = vec![C::default(); circle];
        for (i, power) in powers.iter().enumerate() {
            for at in [i, (circle - i) % circle] {
                *filter.at_mut(at)? = power.conj();
            }
        }
        let filter = forward.transform(&filter);
        Ok(Self { powers, filter, forward, backward })
    }

    fn transform(&self, x: &[C]) -> Vec<C> {
        let mut turned: Vec<C> = x.iter().zip(&self.powers).map(|(x, power)| x * power).collect();
        turned.resize(self.filter.len(), C::default());
        let mut spectrum = self.forward.transform(&turned);
        spectrum.iter_mut().zip(&self.filter).for_each(|(to, filter)| *to *= filter);
        let sums = self.backward.transform(&spectrum);
        let circle = float(self.filter.len());
        sums.iter().zip(&self.powers).map(|(sum, power)| sum * power / circle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize) -> Vec<C> {
        let part = |i: usize| float(i * 7919 % 1013) / 506.0 - 1.0;
        (0..len).map(|i| C::new(part(i), part(i + 500))).collect()
    }

    /// Number `k` of the transform, by the definition.
    fn defined(x: &[C], k: usize, inverse: bool) -> C {
        let turn = if inverse { 2.0 } else { -2.0 } * std::f64::consts::PI;
        let root = |j: usize| C::cis(turn * float(j * k % x.len()) / float(x.len()));
        x.iter().enumerate().map(|(j, x)| root(j) * x).sum()
    }

    #[test]
    fn every_length_is_transformed_in_a_time_of_about_its_own() {
        // The last one would take minutes by the definition.
        for len in [1, 2, 3, 12, 509, 521, 4 * 521, 10_007, 2 * 49_999] {
            let x = numbers(len);
            for inverse in [false, true] {
                let found = Fourier::new(len, inverse).unwrap().transform(&x);
                assert_eq!(found.len(), len);
                for k in [0, 1 % len, len / 3, len - 1] {
                    let apart = (found[k] - defined(&x, k, inverse)).norm();
                    assert!(apart < 1e-12 * float(len), "{k} of {len}: {apart}");
                }
            }
        }
    }

    #[test]
    fn a_length_that_nobody_can_compute_is_refused() {
        let error = Fourier::new(usize::MAX, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
    }
}
