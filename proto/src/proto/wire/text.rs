//! [`Str`]: a string with the bytes of the input.
//!
//! The official parsers accept a proto2 string that is not UTF-8, and such models exist. Rejecting
//! such a string would make the model unreadable, and repairing it would change the model. So a
//! string keeps its bytes, and only the conversion to text is an error.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::{self, Utf8Error};

use crate::buffer::Buffer;

/// A string of a message: exactly the bytes of the file, which are nearly always UTF-8.
///
/// It compares and hashes by its bytes. `Display` shows bytes that are not UTF-8 as `U+FFFD`.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use onnx_container::proto::Str;
///
/// let name = Str::from("encoder.w");
/// assert_eq!(name, "encoder.w");
/// assert_eq!(name.to_str(), Ok("encoder.w"));
/// assert!(Str::from(&[0xff][..]).to_str().is_err());
/// ```
#[derive(Clone, Default)]
pub struct Str(Buffer);

impl Str {
    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text.
    ///
    /// # Errors
    /// When the bytes are not UTF-8.
    pub fn to_str(&self) -> Result<&str, Utf8Error> {
        str::from_utf8(self.as_bytes())
    }

    /// The text, with `U+FFFD` for bytes that are not UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.as_bytes())
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// The length in bytes, by [`Buffer::span`].
    #[doc(hidden)]
    #[inline]
    pub fn span(&self) -> usize {
        self.0.span()
    }

    /// The bytes as a buffer that shares them.
    #[inline]
    pub fn as_buffer(&self) -> &Buffer {
        &self.0
    }
}

impl From<Buffer> for Str {
    #[inline]
    fn from(bytes: Buffer) -> Self {
        Self(bytes)
    }
}

impl From<&str> for Str {
    fn from(text: &str) -> Self {
        Self(Buffer::from(text.as_bytes()))
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(Buffer::from(text.into_bytes()))
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&[u8]> for Str {
    fn from(bytes: &[u8]) -> Self {
        Self(Buffer::from(bytes))
    }
}

impl From<&Str> for Str {
    /// Shares the bytes.
    fn from(text: &Str) -> Self {
        text.clone()
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Str {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Str {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_string_lossy())
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.to_string_lossy(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn strings_compare_and_hash_by_their_bytes() {
        assert_eq!(size_of::<Option<Str>>(), 3 * size_of::<usize>());
        let map = HashMap::from([(Str::from("a"), 1), (Str::from(&[0xfe][..]), 2)]);
        assert_eq!(map.get(b"a".as_slice()), Some(&1));
        assert_eq!(map.get([0xfe].as_slice()), Some(&2));
        assert_eq!(Str::from("a").cmp(&Str::from(String::from("b"))), Ordering::Less);
        assert_eq!(
            format!("{:?} {}", Str::from("x\n"), Str::from(&[0xfe][..])),
            "\"x\\n\" \u{fffd}"
        );
        assert!(Str::default().is_empty());
    }
}
