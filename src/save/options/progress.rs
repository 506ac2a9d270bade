//! What a save tells its caller while it runs: [`Progress`] and [`Waiting`].

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
pub use crate::util::cancel::Progress;

/// What a save waits for: the lock on a folder that another save or program holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// How long the save has been waiting for it.
    pub elapsed: Duration,
}

pub(in crate::save) type ProgressFn = Arc<dyn Fn(Progress) -> ControlFlow<()> + Send + Sync>;
pub(in crate::save) type WaitingFn = Arc<dyn Fn(Waiting<'_>) -> ControlFlow<()> + Send + Sync>;

/// The error of a save that a callback ended.
pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the save was cancelled")
}
