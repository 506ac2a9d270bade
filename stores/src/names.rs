//! The names of objects: weights files are called by their content, versions of a model by their
//! time and content.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

/// Digits of a digest in a name: 64 bits, enough to tell the files of one folder apart.
const DIGITS: usize = 16;
/// Ends of names of weights files, the longest first.
const ENDS: [&str; 4] = [".onnx.data", ".safetensors", ".weight", ".data"];
/// The end that a name without one of these gets.
const OTHER: &str = ".data";
/// What is before digits that are no digest, so that no digest makes such a name of another one.
const RANDOM: char = 'r';
const VERSION: &str = ".version-";

/// `name` of a weights file with a part of the digest of its bytes in it:
/// `m-0123456789abcdef.onnx.data`.
pub(crate) fn content_name(name: &str, sum: &[u8; 32]) -> String {
    with_digits(name, &digits(sum))
}

/// `name` with digits that no object has yet, and which no digest has:
/// `m-0123456789abcdef-r0123456789abcdef.onnx.data`.
pub(crate) fn unique_name(name: &str) -> String {
    with_digits(name, &format!("{RANDOM}{:016x}", RandomState::new().build_hasher().finish()))
}

/// Whether `name` is one that [`unique_name`] makes of `of`.
pub(crate) fn is_unique_name_of(name: &str, of: &str) -> bool {
    let Some((stem, end)) = stem_and_end(of) else { return false };
    let digits = name.strip_suffix(end).and_then(|name| name.strip_prefix(stem)?.strip_prefix('-'));
    digits.and_then(|digits| digits.strip_prefix(RANDOM)).is_some_and(is_hex)
}

fn with_digits(name: &str, digits: &str) -> String {
    let (stem, end) = stem_and_end(name).unwrap_or((name, OTHER));
    format!("{stem}-{digits}{end}")
}

fn stem_and_end(name: &str) -> Option<(&str, &'static str)> {
    ENDS.iter().find_map(|end| Some((name.strip_suffix(end)?, *end)))
}

/// Whether `name` is one that [`content_name`] or [`unique_name`] makes. A sweep deletes no other
/// one. A number of 16 decimal digits is none: a time in microseconds has as many, and a digest
/// seldom no letter.
pub(crate) fn is_published_name(name: &str) -> bool {
    let digits = stem_and_end(name).and_then(|(stem, _)| stem.rsplit_once('-'));
    digits.is_some_and(|(start, digits)| {
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        let digits = digits.strip_prefix(RANDOM).unwrap_or(digits);
        !start.is_empty() && is_hex(digits) && !is_number
    })
}

/// The name of a version of the model `model`, which has these bytes:
/// `m.version-20261127T181530.123456Z-0123456789abcdef.onnx`.
pub(crate) fn version_name(model: &str, now: SystemTime, bytes: &[u8]) -> String {
    let stem = model.strip_suffix(".onnx").unwrap_or(model);
    let digits = digits(&Sha256::digest(bytes).into());
    format!("{stem}{VERSION}{}-{digits}.onnx", utc(now))
}

/// Whether two versions have the same bytes, by their names.
pub(crate) fn same_version(name: &str, other: &str) -> bool {
    let digits = |name: &str| name.rsplit_once('-').map(|(_, digits)| digits.to_owned());
    digits(name) == digits(other)
}

/// Whether `name` is one that [`version_name`] makes for the model `model`.
pub(crate) fn is_version_of(name: &str, model: &str) -> bool {
    let stem = model.strip_suffix(".onnx").unwrap_or(model);
    let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix(VERSION));
    let parts = rest.and_then(|rest| rest.strip_suffix(".onnx")?.split_once('-'));
    parts.is_some_and(|(time, digits)| time.len() == 23 && time.ends_with('Z') && is_hex(digits))
}

fn digits(sum: &[u8; 32]) -> String {
    hex(sum).chars().take(DIGITS).collect()
}

/// A digest in hexadecimal digits.
pub(crate) fn hex(sum: &[u8; 32]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_hex(digits: &str) -> bool {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    digits.len() == DIGITS && digits.bytes().all(is_digit)
}

/// `20261127T181530.123456Z`: versions that are made in one second have an order.
fn utc(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).format("%Y%m%dT%H%M%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn names_have_the_digest_before_their_end() {
        let sum = Sha256::digest(b"").into();
        // The name of a file, and that of its content.
        let cases = [
            ("m.onnx.data", "m-e3b0c44298fc1c14.onnx.data"),
            ("a b.weight", "a b-e3b0c44298fc1c14.weight"),
            ("m-00001-of-00002.safetensors", "m-00001-of-00002-e3b0c44298fc1c14.safetensors"),
            ("weights.bin", "weights.bin-e3b0c44298fc1c14.data"),
        ];
        for (name, named) in cases {
            assert_eq!(content_name(name, &sum), named);
            assert!(is_published_name(named) && !is_published_name(name), "{name}");
            let unique = unique_name(named);
            assert!(is_published_name(&unique) && is_unique_name_of(&unique, named), "{unique}");
            assert!(!is_unique_name_of(named, named) && !is_unique_name_of(name, named));
            // A file that is called like another one has other bytes.
            assert!(!is_unique_name_of(&content_name(named, &[1; 32]), named));
        }
        let others = [
            "-e3b0c44298fc1c14.data",
            "m-E3b0c44298fc1c14.data",
            "m-e3b0c44298fc1c1.data",
            "m-e3b0c44298fc1c14",
            "events-1700000000000000",
            "events-1700000000000000.data",
            "m-e3b0c44298fc1c14.onnx",
        ];
        for name in others {
            assert!(!is_published_name(name), "{name}");
        }
    }

    #[test]
    fn versions_sort_by_their_time() {
        // Seconds since 1970, and the time.
        let cases = [
            (0, "19700101T000000.000000Z"),
            (951_782_400, "20000229T000000.000000Z"),
            (1_709_251_199, "20240229T235959.000000Z"),
            (1_709_251_200, "20240301T000000.000000Z"),
            (1_795_803_330, "20261127T181530.000000Z"),
        ];
        for (seconds, time) in cases {
            let name = version_name("m.onnx", UNIX_EPOCH + Duration::from_secs(seconds), b"");
            assert_eq!(name, format!("m.version-{time}-e3b0c44298fc1c14.onnx"));
            assert!(is_version_of(&name, "m.onnx") && !is_version_of(&name, "n.onnx"));
        }
        assert!(
            !is_version_of("m.onnx", "m.onnx") && !is_version_of("m.version-x-y.onnx", "m.onnx")
        );
    }
}
