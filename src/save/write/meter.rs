//! Counts what a save writes, tells the caller, and ends the save where the caller says so.
//!
//! [`Meter`] is shared by all threads of a save; [`Metered`] puts it around the model file.

use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::save::options::SaveOptions;
use crate::save::options::progress::{Progress, cancelled};
use crate::util::cancel;

/// Counts bytes and reports them to the caller of the save, who may cancel.
pub(crate) struct Meter<'o> {
    options: &'o SaveOptions,
    /// Locked while the caller is called, so that the reported number never decreases.
    done: Mutex<u64>,
    total: u64,
    cancelled: AtomicBool,
}

impl<'o> Meter<'o> {
    pub(crate) fn new(options: &'o SaveOptions, total: u64) -> Self {
        Self { options, done: Mutex::new(0), total, cancelled: AtomicBool::new(false) }
    }

    pub(crate) fn add(&self, bytes: u64) -> Result<()> {
        if bytes > 0 { self.tell(bytes) } else { Ok(()) }
    }

    /// Reports `bytes` more to the caller.
    fn tell(&self, bytes: u64) -> Result<()> {
        if let Err(error) = cancel::check() {
            self.cancelled.store(true, Ordering::Relaxed);
            return Err(error);
        }
        let Some(report) = &self.options.progress else { return Ok(()) };
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(cancelled());
        }
        *done = done.saturating_add(bytes);
        let mut progress = Progress::default();
        (progress.done, progress.total) = (*done, self.total);
        match report(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                self.cancelled.store(true, Ordering::Relaxed);
                Err(cancelled())
            }
        }
    }

    /// Reports the progress without new bytes, so that the caller can cancel before the first file
    /// is created, and when all files are complete and about to be renamed.
    pub(crate) fn step(&self) -> Result<()> {
        self.tell(0)
    }

    /// The error of a cancellation if the save was cancelled, which the `io::Error` in `error` does
    /// not show; otherwise `error`.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.cancelled.load(Ordering::Relaxed) { cancelled() } else { error }
    }
}

/// A writer that reports to the meter, for the model file.
pub(crate) struct Metered<'m, 'o> {
    file: &'m File,
    meter: &'m Meter<'o>,
}

impl<'m, 'o> Metered<'m, 'o> {
    pub(crate) fn new(file: &'m File, meter: &'m Meter<'o>) -> Self {
        Self { file, meter }
    }
}

impl Write for Metered<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Bounded, so that an embedded tensor of gigabytes shows progress and can be cancelled.
        let (first, _) = bytes.split_at_checked(8 << 20).unwrap_or((bytes, &[]));
        let n = self.file.write(first)?;
        self.meter.add(n as u64).map_err(io::Error::other)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
