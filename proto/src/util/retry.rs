//! Calls of the system that a signal interrupted are made again.
//!
//! The standard library does so for most of its calls, but not for those on names and metadata,
//! which some network and user-space file systems let a signal end.

use std::io;
use std::path::Path;

/// How often a call is made before its error counts: more often no signal comes in time.
const MOST: usize = 10_000;

/// An error of the system.
pub trait SystemError {
    /// Whether a signal ended the call.
    fn is_interrupted(&self) -> bool;
}

impl SystemError for io::Error {
    fn is_interrupted(&self) -> bool {
        self.kind() == io::ErrorKind::Interrupted
    }
}

#[cfg(unix)]
impl SystemError for rustix::io::Errno {
    fn is_interrupted(&self) -> bool {
        *self == Self::INTR
    }
}

/// The result of `call`, which is made again while a signal ends it.
pub fn retried<T, E: SystemError>(mut call: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..MOST {
        match call() {
            Err(error) if error.is_interrupted() => {}
            result => return result,
        }
    }
    call()
}

/// Whether there is something at `path`, where links lead from there.
pub fn exists(path: &Path) -> bool {
    retried(|| path.metadata()).is_ok()
}

/// Whether a symbolic link is at `path`.
pub fn is_link(path: &Path) -> bool {
    retried(|| path.symlink_metadata()).is_ok_and(|metadata| metadata.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_made_again_while_a_signal_ends_it() {
        for (interrupted, kind) in [(0, None), (3, None), (2, Some(io::ErrorKind::NotFound))] {
            let mut calls = 0;
            let result = retried(|| {
                calls += 1;
                match (calls <= interrupted, kind) {
                    (true, _) => Err(io::Error::from(io::ErrorKind::Interrupted)),
                    (false, Some(kind)) => Err(kind.into()),
                    (false, None) => Ok(calls),
                }
            });
            assert_eq!(result.as_ref().err().map(io::Error::kind), kind);
            assert_eq!(calls, interrupted + 1, "{result:?}");
        }
    }

    #[test]
    fn a_call_that_always_fails_ends() {
        let result = retried(|| Err::<(), _>(io::Error::from(io::ErrorKind::Interrupted)));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
