//! A field that is seldom set.
//!
//! A model has millions of attributes and most of their eighteen fields are never set, so reading
//! one costs what its empty fields take: memory, and the page faults behind it. Such a field takes
//! one word.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A `T` that takes 8 bytes while it is empty, and is otherwise used as a `T`.
///
/// Reading an unset one shows an empty `T`; writing to it allocates.
///
/// ```
/// use onnx_container::proto::Rare;
///
/// let mut ints: Rare<Vec<i64>> = Rare::default();
/// assert!(ints.is_empty() && !ints.is_set());
/// ints.push(3);
/// assert_eq!(*ints, [3]);
/// ```
#[derive(Clone)]
pub struct Rare<T>(Option<Box<T>>);

/// A type with one empty value that everybody may look at.
pub trait Empty: Sized + 'static {
    #[doc(hidden)]
    const EMPTY: &'static Self;
}

impl<T: 'static> Empty for Vec<T> {
    const EMPTY: &'static Self = &Self::new();
}

impl<T> Rare<T> {
    /// An unset one.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Whether there is a `T`, be it empty.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// What is there, without a look at the empty one.
    pub fn as_deref(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// What is there, without making it.
    pub fn as_deref_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Unsets it.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl<T: Default> Rare<T> {
    /// Unsets it and gives what it was.
    pub fn take(&mut self) -> T {
        self.0.take().map_or_else(T::default, |value| *value)
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Self(Some(Box::new(value)))
    }
}

impl<T: Empty> Deref for Rare<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Empty + Default> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<'a, T: 'static> IntoIterator for &'a Rare<Vec<T>> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: 'static> IntoIterator for &'a mut Rare<Vec<T>> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    /// Allocates nothing for an unset one.
    fn into_iter(self) -> Self::IntoIter {
        self.0.as_deref_mut().map_or_else(Default::default, |list| list.iter_mut())
    }
}

impl<T: Empty + PartialEq> PartialEq for Rare<T> {
    /// An unset one equals an empty one: they are written alike.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Empty + Eq> Eq for Rare<T> {}

impl<T: Empty + fmt::Debug> fmt::Debug for Rare<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_is_empty() {
        assert_eq!(size_of::<Rare<Vec<u8>>>(), 8);
        let mut rare = Rare::<Vec<u8>>::default();
        assert_eq!(rare, Rare::from(vec![]));
        assert!((&mut rare).into_iter().next().is_none());
        assert!(!rare.is_set());
        rare.push(1);
        for byte in &mut rare {
            *byte += 1;
        }
        assert_eq!(rare.take(), [2]);
        assert!(!rare.is_set());
    }
}
