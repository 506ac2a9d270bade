//! The SHA-256 of files, several at a time. [`Cancel`](onnx_container::Cancel) ends the work
//! between pieces, and tells how far it is.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::sync::OnceLock;

use onnx_container::work;
use sha2::{Digest, Sha256};

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// What `digest` makes of each item, in their order, on all cores. Of work that is cancelled the
/// rest is done by this thread, so that each `digest` says by itself that it ended.
pub fn each<I: Sync, R: Send + Sync>(items: &[I], digest: impl Fn(&I) -> R + Sync) -> Vec<R> {
    let done: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let threads = work::cores(items.len());
    // Only the end of cancelled work is an error here.
    let _ = work::for_each(threads, items.iter().zip(&done), |(item, done)| {
        done.get_or_init(|| digest(item));
        Ok(())
    });
    let result =
        |(item, done): (&I, OnceLock<R>)| done.into_inner().unwrap_or_else(|| digest(item));
    items.iter().zip(done).map(result).collect()
}

/// The hexadecimal digits of the digest of all that `reader` has, whose bytes were begun
/// ([`work::begin`]) where somebody is told how far the work is.
///
/// # Errors
/// Those of the reader; that of work which was cancelled.
pub fn of_reader(mut reader: impl Read) -> io::Result<String> {
    let (mut hasher, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => {
                hasher.update(chunk.get(..len).unwrap_or_default());
                let len = u64::try_from(len).unwrap_or(u64::MAX);
                work::advance(len).map_err(io::Error::other)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hex(&hasher.finalize()))
}

/// The hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
