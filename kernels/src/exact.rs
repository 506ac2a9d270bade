//! Elements, parts and values that our own code knows to be there.
//!
//! A kernel checks the shapes of its inputs once and then computes where elements are. An element
//! that is missing there is a bug of this crate: it is reported as an internal error with the place
//! in the sources, and never replaced by a default. Values of the model are checked before, with
//! errors of their own. The methods that begin with `debug_` are for loops that cannot fail, such
//! as those of a product of matrices: they are checked where debug assertions are.

use std::fmt::Debug;
use std::panic::Location;
use std::slice::SliceIndex;

use onnx_container_proto::Alignment;

use crate::error::{Error, Result};

/// Elements and parts of a slice, by positions that our own code has computed.
pub trait Exact<T> {
    /// Element `i`.
    fn at(&self, i: usize) -> Result<&T>;

    /// Element `i`, to be changed.
    fn at_mut(&mut self, i: usize) -> Result<&mut T>;

    /// The elements of `range`.
    fn part<R: SliceIndex<[T], Output = [T]> + Debug + Clone>(&self, range: R) -> Result<&[T]>;

    /// The elements of `range`, to be changed.
    fn part_mut<R>(&mut self, range: R) -> Result<&mut [T]>
    where
        R: SliceIndex<[T], Output = [T]> + Debug + Clone;

    /// Element `i` in a loop that has no way to fail: builds with debug assertions stop where it is
    /// missing, others go on with `filler`.
    fn debug_at(&self, i: usize, filler: T) -> T
    where
        T: Copy;

    /// The elements of `range` in a loop that has no way to fail: builds with debug assertions stop
    /// where they are missing, others go on without elements.
    fn debug_part<R: SliceIndex<[T], Output = [T]>>(&self, range: R) -> &[T];

    /// The elements of `range`, to be changed. Missing elements are treated as by
    /// [`debug_part`](Self::debug_part).
    fn debug_part_mut<R: SliceIndex<[T], Output = [T]>>(&mut self, range: R) -> &mut [T];

    /// Sets element `i` in a loop that has no way to fail: builds with debug assertions stop where
    /// it is missing, others set nothing.
    fn debug_set(&mut self, i: usize, value: T);
}

impl<T> Exact<T> for [T] {
    #[inline]
    #[track_caller]
    fn at(&self, i: usize) -> Result<&T> {
        let place = Location::caller();
        self.get(i).ok_or_else(|| missing(&i, self.len(), place))
    }

    #[inline]
    #[track_caller]
    fn at_mut(&mut self, i: usize) -> Result<&mut T> {
        let (len, place) = (self.len(), Location::caller());
        self.get_mut(i).ok_or_else(|| missing(&i, len, place))
    }

    #[inline]
    #[track_caller]
    fn part<R: SliceIndex<[T], Output = [T]> + Debug + Clone>(&self, range: R) -> Result<&[T]> {
        let place = Location::caller();
        self.get(range.clone()).ok_or_else(|| missing(&range, self.len(), place))
    }

    #[inline]
    #[track_caller]
    fn part_mut<R>(&mut self, range: R) -> Result<&mut [T]>
    where
        R: SliceIndex<[T], Output = [T]> + Debug + Clone,
    {
        let (len, place) = (self.len(), Location::caller());
        self.get_mut(range.clone()).ok_or_else(|| missing(&range, len, place))
    }

    #[inline(always)]
    #[track_caller]
    fn debug_at(&self, i: usize, filler: T) -> T
    where
        T: Copy,
    {
        debug_assert!(i < self.len(), "element {i} of {}", self.len());
        self.get(i).copied().unwrap_or(filler)
    }

    #[inline(always)]
    #[track_caller]
    fn debug_part<R: SliceIndex<[T], Output = [T]>>(&self, range: R) -> &[T] {
        let part = self.get(range);
        debug_assert!(part.is_some(), "a part that is missing");
        part.unwrap_or(&[])
    }

    #[inline(always)]
    #[track_caller]
    fn debug_part_mut<R: SliceIndex<[T], Output = [T]>>(&mut self, range: R) -> &mut [T] {
        let part = self.get_mut(range);
        debug_assert!(part.is_some(), "a part that is missing");
        part.unwrap_or(&mut [])
    }

    #[inline(always)]
    #[track_caller]
    fn debug_set(&mut self, i: usize, value: T) {
        debug_assert!(i < self.len(), "element {i} of {}", self.len());
        if let Some(element) = self.get_mut(i) {
            *element = value;
        }
    }
}

/// The smallest multiple of `alignment` that is at least `offset`. The caller has checked that it
/// fits: builds with debug assertions stop where it does not, others go on with the largest number.
pub fn debug_aligned(alignment: Alignment, offset: u64) -> u64 {
    let aligned = alignment.align_up(offset);
    debug_assert!(aligned.is_some(), "offset {offset} is too large");
    aligned.unwrap_or(u64::MAX)
}

/// A value that only a bug of this crate could leave out.
pub trait OrBug<T> {
    /// The value. `what` names what was found in its place, such as "a row without a strip".
    fn or_bug(self, what: &str) -> Result<T>;
}

impl<T> OrBug<T> for Option<T> {
    #[inline]
    #[track_caller]
    fn or_bug(self, what: &str) -> Result<T> {
        let place = Location::caller();
        self.ok_or_else(|| bug(what, place))
    }
}

impl<T, E: std::fmt::Display> OrBug<T> for std::result::Result<T, E> {
    #[inline]
    #[track_caller]
    fn or_bug(self, what: &str) -> Result<T> {
        let place = Location::caller();
        self.map_err(|error| bug(&format!("{what}: {error}"), place))
    }
}

#[cold]
fn missing(wanted: &dyn Debug, len: usize, place: &Location<'_>) -> Error {
    bug(&format!("element {wanted:?} of {len}"), place)
}

#[cold]
fn bug(what: &str, place: &Location<'_>) -> Error {
    Error::internal(format!("{what}, at {place}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_is_there_is_given_and_what_is_missing_is_an_internal_error() {
        let mut list = [1, 2, 3];
        *list.at_mut(0).unwrap() = 5;
        list.part_mut(1..).unwrap().fill(7);
        assert_eq!((list.at(0).unwrap(), list.part(1..3).unwrap()), (&5, &[7, 7][..]));
        assert_eq!(Some(4).or_bug("nothing").unwrap(), 4);
        let failures = [
            ("element 3 of 3", list.at(3).unwrap_err()),
            ("element 3 of 3", list.at_mut(3).unwrap_err()),
            ("element 2..4 of 3", list.part(2..4).unwrap_err()),
            ("element 4.. of 3", list.part_mut(4..).unwrap_err()),
            ("no value", None::<u8>.or_bug("no value").unwrap_err()),
            ("no number: invalid digit", "x".parse::<u8>().or_bug("no number").unwrap_err()),
        ];
        for (expected, error) in failures {
            assert_eq!(error.kind(), ErrorKind::Internal, "{expected}");
            let says = |words: &str| error.reason().contains(words);
            assert!(says(expected) && says("exact.rs"), "{expected}: {error}");
        }
    }
}
