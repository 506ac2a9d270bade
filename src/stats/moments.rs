//! Mean and variance of very many numbers, of which parts are added up apart.
//!
//! A sum of squares loses all digits where the mean is large beside the deviation. So a part is
//! added up about a number that is close to its mean, and parts are joined by their means and
//! squared deviations, as Chan, Golub and LeVeque do (1979).

/// How many numbers there are, their mean, and the sum of their squared deviations from it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moments {
    pub(super) count: u64,
    pub(super) mean: f64,
    squares: f64,
}

impl Moments {
    /// Those of `count` numbers whose differences from `pivot` have this sum, and squares with this
    /// sum.
    #[allow(clippy::cast_precision_loss)] // exact below 2^53
    pub(super) fn about(pivot: f64, count: u64, sum: f64, squares: f64) -> Self {
        if count == 0 {
            return Self::default();
        }
        let shift = sum / count as f64;
        let rest = if squares.is_finite() { (squares - sum * shift).max(0.0) } else { squares };
        Self { count, mean: pivot + shift, squares: rest }
    }

    /// Those of `count` integers with this sum, and squares with this sum.
    #[allow(clippy::cast_precision_loss)] // rounds the results
    pub(super) fn exact(count: u64, sum: i64, squares: i64) -> Self {
        if count == 0 {
            return Self::default();
        }
        let (all, sum_of) = (i128::from(count), i128::from(sum));
        let squares = (i128::from(squares) * all - sum_of * sum_of) as f64 / count as f64;
        Self { count, mean: sum as f64 / count as f64, squares }
    }

    /// Those of `count` numbers that are all `number`.
    pub(super) fn equal(number: f64, count: u64) -> Self {
        Self { count, mean: number, squares: 0.0 }
    }

    /// Adds those of other numbers.
    #[allow(clippy::cast_precision_loss)] // exact below 2^53
    pub(super) fn merge(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = other;
            return;
        }
        let (before, more) = (self.count as f64, other.count as f64);
        let (all, apart) = (before + more, other.mean - self.mean);
        self.mean += apart * (more / all);
        self.squares += other.squares + apart * apart * (before * more / all);
        self.count += other.count;
    }

    /// The standard deviation of the numbers, as of all there are and not of a sample.
    #[allow(clippy::cast_precision_loss)] // exact below 2^53
    pub(super) fn deviation(&self) -> f64 {
        (self.squares / self.count as f64).sqrt()
    }
}
