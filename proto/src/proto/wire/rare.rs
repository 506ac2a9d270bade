//! [`Rare`]: a field that is rarely set.
//!
//! A model has millions of attributes, and most of their eighteen fields are never set. The memory
//! of empty fields, and its page faults, would dominate the cost of reading an attribute. A rare
//! field takes one word.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A `T` that takes 8 bytes while it is unset, and dereferences to a `T`.
///
/// Reading an unset one shows a shared empty `T`; writing to it allocates.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::proto::Rare;
///
/// let mut ints: Rare<Vec<i64>> = Rare::default();
/// assert!(ints.is_empty() && !ints.is_set());
/// ints.push(3);
/// assert_eq!(*ints, [3]);
/// ```
#[derive(Clone)]
pub struct Rare<T>(Option<Box<T>>);

/// A message of which some fields may be seldom set.
pub trait RareFields {
    /// The memory that these fields have, in bytes; 0 while none of them is set.
    #[doc(hidden)]
    fn rare_size(&self) -> usize {
        0
    }
}

/// A type with a shared static empty value.
pub trait Empty: Sized + 'static {
    #[doc(hidden)]
    const EMPTY: &'static Self;
}

impl<T: 'static> Empty for Vec<T> {
    const EMPTY: &'static Self = &Self::new();
}

impl<T> Rare<T> {
    /// An unset field.
    pub const fn new() -> Self {
        Self(None)
    }

    /// Whether the field is set; the `T` in it may be empty.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The `T`, if the field is set.
    pub fn as_deref(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// The `T`, if the field is set; allocates nothing.
    pub fn as_deref_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Unsets the field.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl<T: Default> Rare<T> {
    /// Unsets the field and returns its value, or an empty `T` if it was unset.
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

    /// Allocates nothing for an unset field.
    fn into_iter(self) -> Self::IntoIter {
        self.0.as_deref_mut().map_or_else(Default::default, |list| list.iter_mut())
    }
}

impl<T: Empty + PartialEq> PartialEq for Rare<T> {
    /// An unset field equals an empty one: both are encoded alike.
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
        assert_eq!(size_of::<Rare<Vec<u8>>>(), size_of::<usize>());
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
