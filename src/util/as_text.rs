//! How values of reports are serialized: what has a text as this text, paths lossily, durations in
//! seconds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Serializes values of `$Type` as their `Display`.
macro_rules! serialize_as_text {
    ($($Type:ty),* $(,)?) => {
        $(
            impl serde::Serialize for $Type {
                fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    to.collect_str(self)
                }
            }
        )*
    };
}

pub(crate) use serialize_as_text;

/// Paths as texts, in which bytes that are not UTF-8 are `U+FFFD`.
pub(crate) fn paths<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// A path as [`paths`] has them.
pub(crate) fn path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.to_string_lossy())
}

/// As [`path`], where there may be none.
pub(crate) fn path_or_none<S: Serializer>(
    path: &Option<PathBuf>,
    to: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(to)
}

/// A duration in seconds.
pub(crate) fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}
