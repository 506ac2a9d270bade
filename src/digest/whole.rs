//! SHA-1 and SHA-256 of whole files, both in one reading.

use std::fmt::Write as _;
use std::io::{self, Read};

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::sha256::Digest;
use crate::error::Result;
use crate::util::cancel;

/// How much is read at a time.
const CHUNK: usize = 1 << 20;

/// What is made of the bytes of one file.
pub(crate) struct Whole {
    sha1: Option<Sha1>,
    sha256: Option<Sha256>,
}

impl Whole {
    /// Makes those of the two digests that are wanted.
    pub(crate) fn new(sha1: bool, sha256: bool) -> Self {
        Self { sha1: sha1.then(Sha1::new), sha256: sha256.then(Sha256::new) }
    }

    /// Adds the next bytes of the file.
    ///
    /// # Errors
    /// The call was cancelled.
    pub(crate) fn update(&mut self, bytes: &[u8]) -> Result<()> {
        // In parts, so that the second digest finds them in the cache of the processor.
        for part in bytes.chunks(CHUNK) {
            cancel::check()?;
            if let Some(sha1) = &mut self.sha1 {
                sha1.update(part);
            }
            if let Some(sha256) = &mut self.sha256 {
                sha256.update(part);
            }
        }
        Ok(())
    }

    /// Adds `count` zeros.
    pub(crate) fn zeros(&mut self, mut count: u64) -> Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while count > 0 {
            let part = usize::try_from(count).map_or(ZEROS.len(), |count| count.min(ZEROS.len()));
            self.update(ZEROS.get(..part).unwrap_or_default())?;
            count = count.saturating_sub(part as u64);
        }
        Ok(())
    }

    /// Adds all bytes of `file`.
    pub(crate) fn read(&mut self, mut file: impl Read) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    let read = self.update(chunk.get(..len).unwrap_or_default());
                    read.map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The 40 hexadecimal digits of the SHA-1 and the SHA-256, where they were wanted.
    pub(crate) fn finish(self) -> (Option<String>, Option<Digest>) {
        let digits = |sha1: Sha1| {
            sha1.finalize().iter().fold(String::with_capacity(40), |mut digits, byte| {
                // Writing to a string does not fail.
                let _ = write!(digits, "{byte:02x}");
                digits
            })
        };
        (self.sha1.map(digits), self.sha256.map(Digest::of_bytes))
    }
}
