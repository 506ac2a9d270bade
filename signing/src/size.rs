//! How large a signature file becomes: shards may be so small that nobody could read it.

use onnx_container::{Error, ErrorKind};

use crate::bundle::MOST_BYTES;
use crate::hashing::Method;
use crate::terms::{Term, Terms};

/// The bytes of a resource besides its name: other keys, digits of the digest, punctuation.
const RESOURCE: u64 = 120;

/// The bytes of a signature besides the resources, and those that it may have more because of
/// escapes.
const REST: u64 = 1 << 20;

/// The factors that sizes are proposed with.
const SCALES: [u64; 5] = [1, 1_000, 1_000_000, 1_000_000_000, 1_000_000_000_000];

/// Refuses a signature that would be too large to be read, of files with names and lengths of so
/// many bytes.
pub fn check(files: &[(&str, u64)], method: Method, terms: Terms) -> Result<(), Error> {
    if fits(files, method) {
        return Ok(());
    }
    let Method::Shards(size) = method else {
        let reason = format!("too many files for one signature, of at most {MOST_BYTES} bytes");
        return Err(Error::new(ErrorKind::TooLarge, reason));
    };
    let sizes = SCALES.iter().flat_map(|scale| {
        let digits = (1..10).flat_map(|digit| [digit, digit * 10, digit * 100]);
        digits.map(move |digits| digits * scale)
    });
    let enough = sizes.filter(|bytes| *bytes > size && fits(files, Method::Shards(*bytes))).min();
    let count: u64 = files.iter().map(|(_, len)| len.div_ceil(size)).fold(0, u64::saturating_add);
    let reason = match enough {
        Some(enough) => format!(
            "this needs {count} shards, too many for one signature: at least {}",
            terms(&Term::ShardSize(enough))
        ),
        None => "too many files for one signature".to_owned(),
    };
    Err(Error::new(ErrorKind::TooLarge, reason))
}

fn fits(files: &[(&str, u64)], method: Method) -> bool {
    let of_file = |(name, len): &(&str, u64)| {
        let name = u64::try_from(name.len()).unwrap_or(u64::MAX);
        let (count, range) = match method {
            Method::Files => (1, 0),
            Method::Shards(size) => {
                // The name is followed by its first byte and its end.
                let digits = u64::from(len.checked_ilog10().unwrap_or_default()) + 2;
                (len.div_ceil(size), 2 * digits + 24)
            }
        };
        count.saturating_mul(name.saturating_add(RESOURCE + range))
    };
    let payload = files.iter().map(of_file).fold(REST, u64::saturating_add);
    // Base64.
    payload.div_ceil(3).saturating_mul(4) <= MOST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(files: &[(&str, u64)], method: Method) -> String {
        let terms = |term: &Term<'_>| format!("{term:?}");
        check(files, method, terms).unwrap_err().to_string()
    }

    #[test]
    fn shards_that_are_too_small_are_refused_with_a_size_that_is_not() {
        let files = [("m.onnx", 5_000), ("m.onnx.data", 839_000_000)];
        for method in [Method::Files, Method::Shards(1_000_000), Method::Shards(4_000)] {
            check(&files, method, |term| term.to_string()).unwrap();
        }
        for (files, size, end) in [
            (
                &files[..],
                1000,
                "needs 839005 shards, too many for one signature: at least ShardSize(3000)",
            ),
            (&files, 1, "at least ShardSize(3000)"),
            (&[("m", u64::MAX)], 1, "at least ShardSize(70000000000000)"),
        ] {
            let said = said(files, Method::Shards(size));
            assert!(said.ends_with(end), "{said}");
        }
        let many = vec![("", 1); 1_000_000];
        for method in [Method::Files, Method::Shards(1)] {
            assert!(said(&many, method).starts_with("too many files"), "{method:?}");
        }
    }
}
