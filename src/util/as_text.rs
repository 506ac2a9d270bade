//! How values of reports are serialized: what has a text as this text, paths lossily, durations in
//! seconds.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serializer;

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

/// A duration in seconds.
pub(crate) fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}
