//! The probabilities of classes, from those of one class against another.
//!
//! This is the second method of Wu, Lin and Weng, [Probability Estimates for Multi-class
//! Classification by Pairwise Coupling](https://www.jmlr.org/papers/v5/wu04a.html), section 4.2 and
//! its algorithm 2, as LIBSVM uses it: at most 100 rounds in FLOAT.

use crate::error::Result;
use crate::exact::Exact;
use crate::numeric::larger;

/// The most rounds.
const ROUNDS: usize = 100;

/// A matrix with as many rows as columns.
struct Square {
    size: usize,
    elements: Vec<f32>,
}

impl Square {
    fn new(size: usize) -> Self {
        Self { size, elements: vec![0.0; size.saturating_mul(size)] }
    }

    fn row(&self, i: usize) -> Result<&[f32]> {
        super::row(&self.elements, i, self.size)
    }

    fn at(&self, i: usize, j: usize) -> Result<f32> {
        self.row(i)?.at(j).copied()
    }

    fn set(&mut self, i: usize, j: usize, value: f32) -> Result<()> {
        *self.elements.at_mut(i * self.size + j)? = value;
        Ok(())
    }
}

/// The probability of each of `classes` classes, where for each pair (i, j) of `first` that is how
/// probable i is if it is one of both.
pub(super) fn couple(
    classes: usize,
    first: impl Iterator<Item = ((usize, usize), f32)>,
) -> Result<Vec<f32>> {
    let mut of_pairs = Square::new(classes);
    for ((i, j), p) in first {
        of_pairs.set(i, j, p)?;
        of_pairs.set(j, i, 1.0 - p)?;
    }
    solve(&matrix(&of_pairs)?)
}

/// Q of the problem: to minimize pQp over probabilities p.
fn matrix(of_pairs: &Square) -> Result<Square> {
    let size = of_pairs.size;
    let mut q = Square::new(size);
    for i in 0..size {
        let mut squares = 0.0;
        for j in (0..size).filter(|j| *j != i) {
            let lost = of_pairs.at(j, i)?;
            squares += lost * lost;
            q.set(i, j, -lost * of_pairs.at(i, j)?)?;
        }
        q.set(i, i, squares)?;
    }
    Ok(q)
}

#[allow(clippy::cast_precision_loss, reason = "a number of classes, whose square is in memory")]
fn solve(q: &Square) -> Result<Vec<f32>> {
    let classes = q.size as f32;
    let mut p = vec![1.0 / classes; q.size];
    let enough = 0.005 / classes;
    for _ in 0..ROUNDS {
        let row = |i| Ok(super::dot(q.row(i)?, &p));
        let mut qp = (0..q.size).map(row).collect::<Result<Vec<_>>>()?;
        let mut pqp = super::dot(&p, &qp);
        let error = qp.iter().fold(0.0_f32, |most, x| larger(most, (x - pqp).abs()));
        if error < enough {
            break;
        }
        for i in 0..q.size {
            let (own, own_qp) = (q.at(i, i)?, *qp.at(i)?);
            let step = (pqp - own_qp) / own;
            let total = 1.0 + step;
            *p.at_mut(i)? += step;
            pqp = (pqp + step * (step * own + 2.0 * own_qp)) / total / total;
            for ((qp, p), q) in qp.iter_mut().zip(&mut p).zip(q.row(i)?) {
                *qp = (*qp + step * q) / total;
                *p /= total;
            }
        }
    }
    Ok(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs that do not contradict each other have the probabilities that they come from.
    #[test]
    fn what_pairs_agree_on_is_found() {
        for expected in [vec![0.25, 0.75], vec![0.5, 0.3, 0.2], vec![0.1, 0.2, 0.3, 0.4]] {
            let pairs = super::super::all_pairs(expected.len());
            let first = pairs.map(|(i, j)| ((i, j), expected[i] / (expected[i] + expected[j])));
            let found = couple(expected.len(), first).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 5e-3, "{found} is not {expected}");
            }
        }
    }
}
