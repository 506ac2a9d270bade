//! One element as a number: integers are exact, also those that no float holds.

use std::fmt;

use crate::dtype::DataType;

/// An element as a number: integers are exact.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
pub enum Number {
    /// An integer of a signed type.
    Signed(i64),
    /// An integer of an unsigned type.
    Unsigned(u64),
    /// A float.
    Float(f64),
}

impl Number {
    /// The number as a float, which is rounded where it is a long integer.
    #[allow(clippy::cast_precision_loss)] // as it says
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Signed(number) => number as f64,
            Self::Unsigned(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    /// The smaller one of two numbers of one kind.
    pub(super) fn least(self, other: Self) -> Self {
        match (self, other) {
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.min(b)),
            (Self::Unsigned(a), Self::Unsigned(b)) => Self::Unsigned(a.min(b)),
            (a, b) => Self::Float(a.to_f64().min(b.to_f64())),
        }
    }

    /// The larger one of two numbers of one kind.
    pub(super) fn most(self, other: Self) -> Self {
        match (self, other) {
            (Self::Signed(a), Self::Signed(b)) => Self::Signed(a.max(b)),
            (Self::Unsigned(a), Self::Unsigned(b)) => Self::Unsigned(a.max(b)),
            (a, b) => Self::Float(a.to_f64().max(b.to_f64())),
        }
    }

    /// A finite element of this type.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // integers of at most 32 bits
    pub(super) fn of(number: f64, dtype: DataType) -> Self {
        match dtype {
            DataType::Bool => Self::Unsigned(number as u64),
            _ if !dtype.is_integer() => Self::Float(number),
            _ if dtype.name().starts_with('U') => Self::Unsigned(number as u64),
            _ => Self::Signed(number as i64),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(number) => number.fmt(f),
            Self::Unsigned(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
        }
    }
}
