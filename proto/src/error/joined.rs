//! Errors that are joined to one: of this crate, and of the crates above it with a type of error of
//! their own.
//!
//! A model from a stranger may have millions of faults, so the first errors are kept and the others
//! are counted. What is said of a single error is left to its type.

use std::fmt::{self, Display};

/// How many errors one error lists.
const MOST: usize = 1000;
/// How many of the errors that one error lists its message has.
const MOST_SHOWN: usize = 100;

/// An error that may list several.
pub trait Several: Sized {
    /// The class of an error.
    type Kind;

    /// The class of this one.
    fn kind(&self) -> Self::Kind;

    /// One error for all of `errors`, with a reason that holds for each.
    fn joined(kind: Self::Kind, reason: String, errors: Vec<Self>) -> Self;
}

/// Errors that are joined to one: the first of them, and how many there are.
#[derive(Debug)]
pub struct Joined<E> {
    kept: Vec<E>,
    more: usize,
}

impl<E> Joined<E> {
    /// Adds one.
    pub fn push(&mut self, error: E) {
        self.push_with(|| error);
    }

    /// As [`push`](Self::push), for an error that is made only where it is kept: names may be long.
    pub fn push_with(&mut self, error: impl FnOnce() -> E) {
        if self.kept.len() < MOST { self.kept.push(error()) } else { self.more += 1 }
    }
}

impl<E: Several> Joined<E> {
    /// One error for all of them: `None` when there are none, the error itself when it is alone,
    /// otherwise one of the first one's kind that lists them.
    pub fn join(self) -> Option<E> {
        let Self { kept, more } = self;
        let kind = match kept.as_slice() {
            [] | [_] => return kept.into_iter().next(),
            [first, ..] => first.kind(),
        };
        let reason = match more {
            0 => format!("{} problems", kept.len()),
            more => format!("{} problems, of which {} are listed", kept.len() + more, kept.len()),
        };
        Some(E::joined(kind, reason, kept))
    }
}

impl<E> Default for Joined<E> {
    fn default() -> Self {
        Self { kept: Vec::new(), more: 0 }
    }
}

impl<E> Extend<E> for Joined<E> {
    fn extend<I: IntoIterator<Item = E>>(&mut self, errors: I) {
        errors.into_iter().for_each(|error| self.push(error));
    }
}

impl<E> FromIterator<E> for Joined<E> {
    fn from_iter<I: IntoIterator<Item = E>>(errors: I) -> Self {
        let mut all = Self::default();
        all.extend(errors);
        all
    }
}

/// Writes the errors that one error lists behind its reason: of many the first ones.
pub fn write_listed(errors: &[impl Display], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (i, error) in errors.iter().enumerate().take(MOST_SHOWN) {
        write!(f, "{} {error}", if i == 0 { ":" } else { ";" })?;
    }
    match errors.len().saturating_sub(MOST_SHOWN) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}
