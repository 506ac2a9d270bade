//! [`Digest`]: a SHA-256, and its 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::error::{Error, ErrorKind, Result};

/// What digests of whole models have in common: they are compared, hashed, displayed and parsed as
/// their field `model`. A parsed one has none of its `$parts`.
macro_rules! of_a_model {
    ($Digest:ident, $parts:ident) => {
        impl PartialEq for $Digest {
            fn eq(&self, other: &Self) -> bool {
                self.model == other.model
            }
        }

        impl Eq for $Digest {}

        impl std::hash::Hash for $Digest {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.model.hash(state);
            }
        }

        impl std::fmt::Display for $Digest {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "sha256:{}", self.model)
            }
        }

        #[cfg(feature = "serde")]
        $crate::util::as_text::serialize_as_text!($Digest);

        impl std::str::FromStr for $Digest {
            type Err = $crate::error::Error;

            /// # Errors
            /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for any other text
            /// than `sha256:` and 64 hexadecimal digits.
            fn from_str(text: &str) -> $crate::error::Result<Self> {
                Ok(Self { model: text.parse()?, $parts: Vec::new() })
            }
        }
    };
}

pub(crate) use of_a_model;

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    /// These 32 bytes.
    #[cfg(feature = "jobs")]
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest of a file or tensor as any tool computes it: of the bytes alone.
    pub(crate) fn of_bytes(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// The digest of these 64 hexadecimal digits, in lower case.
    pub(crate) fn from_digits(digits: &str) -> Option<Self> {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = value(*high)? << 4 | value(*low)?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = Error;

    /// That of `sha256:` and 64 hexadecimal digits in any case.
    fn from_str(text: &str) -> Result<Self> {
        let digits = text.strip_prefix("sha256:").map(str::to_ascii_lowercase);
        digits.as_deref().and_then(Self::from_digits).ok_or_else(|| {
            let reason =
                format!("not a digest, which is `sha256:` and 64 hexadecimal digits: {text:?}");
            Error::new(ErrorKind::InvalidArgument, reason)
        })
    }
}

impl fmt::Display for Digest {
    /// 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As `sha256:` and the digits.
#[cfg(feature = "serde")]
impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("sha256:{self}"))
    }
}

#[cfg(feature = "jobs")]
impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
