//! The SHA-256 of whole files, several at a time.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use onnx_container::{Error, Result};
use sha2::{Digest, Sha256};

use crate::model::needed::{Needed, NeededFile};

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// The hexadecimal digits of the digest of each of `files`: weights files of `needed`, or the model
/// itself for `None`.
pub fn of_files(
    model: &Path,
    needed: &Needed,
    files: &[Option<&NeededFile>],
) -> Vec<Result<String>> {
    each(files, |file| {
        let path = file.map_or(model, |file| &file.path);
        let opened = match file {
            Some(file) => needed.open(file)?,
            None => File::open(model).map_err(|error| Error::io(model, error))?,
        };
        of_reader(opened).map_err(|error| Error::io(path, error))
    })
}

/// What `work` makes of each item, in their order, on all cores.
pub fn each<I: Sync, R: Send + Sync>(items: &[I], work: impl Fn(&I) -> R + Sync) -> Vec<R> {
    let done: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some((item, done)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).zip(done.get(at))
        } {
            done.get_or_init(|| work(item));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            // With fewer threads than wished for, those that there are do the work.
            let _ = thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    let result = |(item, done): (&I, OnceLock<R>)| done.into_inner().unwrap_or_else(|| work(item));
    items.iter().zip(done).map(result).collect()
}

/// The hexadecimal digits of the digest of all that `reader` has.
pub fn of_reader(mut reader: impl Read) -> io::Result<String> {
    let (mut hasher, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match reader.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => hasher.update(chunk.get(..len).unwrap_or_default()),
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

/// The line for a file that `sha256sum --check` reads.
pub fn line(digits: &str, path: &Path) -> Vec<u8> {
    let name = path.as_os_str().as_encoded_bytes();
    let escaped: Vec<u8> = name
        .iter()
        .flat_map(|byte| match byte {
            b'\\' => br"\\".as_slice(),
            b'\n' => br"\n",
            b'\r' => br"\r",
            byte => std::slice::from_ref(byte),
        })
        .copied()
        .collect();
    let mark = if escaped.len() == name.len() { "" } else { "\\" };
    [mark.as_bytes(), digits.as_bytes(), b"  ", &escaped, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_sha256sum_does() {
        assert_eq!(line("00", Path::new("a b")), b"00  a b\n");
        assert_eq!(line("00", Path::new("a\\b\nc\rd")), b"\\00  a\\\\b\\nc\\rd\n");
    }
}
