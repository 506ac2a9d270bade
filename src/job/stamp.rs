//! Whether a file is still the one that was there when a job was planned, asked by processes on
//! other machines: by its length and its time, which all of them see. And the digest of bytes.

use std::fs::Metadata;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::util::retry::retried;

/// The length and the time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileStamp {
    bytes: u64,
    /// The time of the last change of the file in nanoseconds since 1970; `None` where the system
    /// has none.
    modified: Option<u64>,
}

impl FileStamp {
    /// The length of the file.
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// That of the file at `path`, links followed; `None` where there is none.
    pub(super) fn of(path: &Path) -> Result<Option<Self>> {
        match retried(|| path.metadata()) {
            Ok(metadata) => Ok(Some(Self::new(&metadata))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path, error)),
        }
    }

    /// Both as one word.
    pub(super) fn text(self) -> String {
        let modified = self.modified.map(|time| time.to_string()).unwrap_or_default();
        format!("{}/{modified}", self.bytes)
    }

    pub(super) fn new(metadata: &Metadata) -> Self {
        let time = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = time.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self { bytes: metadata.len(), modified }
    }

    /// Refuses where `was` is not what is at `path` now: a file, or none.
    pub(super) fn check(path: &Path, was: Option<Self>) -> Result<()> {
        let reason = match (was, Self::of(path)?) {
            (was, now) if was == now => return Ok(()),
            (None, _) => {
                "was not there when the job was planned: another process has made it: plan the job again"
            }
            (Some(_), None) => {
                "was there when the job was planned, and is gone: plan the job again"
            }
            (Some(_), Some(_)) => "was changed after the job was planned: plan it again",
        };
        Err(Error::new(ErrorKind::Changed, reason).with_path(path))
    }
}

/// The SHA-256 of `bytes`, 64 hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Digest::of_bytes(Sha256::new_with_prefix(bytes)).to_string()
}
