//! [`Cancel`]: ends long calls of this crate from another thread, and tells how far they are.
//!
//! Whatever may take long looks at the token of its thread between pieces of its work: `check`. A
//! call that knows how many bytes it will read says so first, and then of each piece that it is
//! done: `begin`, `advance`. A thread that is started for a part of a call gets the token of the
//! one that starts it: [`Token`].

use std::cell::RefCell;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// Ends the calls in its [`scope`](Self::scope) early. Clones are one and the same.
///
/// Every call that reads, hashes, compares, converts or writes weights looks at it between pieces
/// of some MiB, and ends with [`ErrorKind::Cancelled`] as after any other error: what it was to
/// change is unchanged, and what it was to replace is there. Code of the caller, such as a
/// [source](crate::WeightSource), is not interrupted.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use std::thread;
/// use onnx_container::{Cancel, ErrorKind, MmapChoice};
///
/// let cancel = Cancel::new();
/// let other = cancel.clone();
/// thread::spawn(move || other.cancel()).join().unwrap();
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("w.bin");
/// # std::fs::write(&path, [1, 2, 3]).unwrap();
/// let read = cancel.scope(|| MmapChoice::never().buffer(&path));
/// assert_eq!(read.unwrap_err().kind(), ErrorKind::Cancelled);
/// ```
#[derive(Clone, Default)]
pub struct Cancel(Arc<State>);

#[derive(Default)]
struct State {
    is_cancelled: AtomicBool,
    watch: Option<Watch>,
}

/// What a caller wants to be told, and what it was told last.
struct Watch {
    report: Box<dyn Fn(Progress) -> ControlFlow<()> + Send + Sync>,
    /// Locked while the caller is called, so that the reported number never decreases.
    now: Mutex<Progress>,
}

/// How far a call is, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes that are done.
    pub done: u64,
    /// Bytes to do in all. A save knows them from the start; of other calls, the number grows when
    /// a further file or step begins.
    pub total: u64,
}

thread_local! {
    static CURRENT: RefCell<Option<Cancel>> = const { RefCell::new(None) };
}

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token whose `report` is called, by any thread of the calls in its scope, after each piece
    /// of weights that a load reads, a digest or a verification hashes, or a consolidation copies;
    /// [`ControlFlow::Break`] cancels. Mapped files are not read by a load, and a save has
    /// options of its own, `SaveOptions::progress`.
    ///
    /// ```no_run
    /// # use onnx_container_proto as onnx_container;
    /// use std::ops::ControlFlow;
    /// use onnx_container::{Cancel, MmapChoice};
    ///
    /// let shown = Cancel::with_progress(|progress| {
    ///     eprint!("\r{} of {} bytes", progress.done, progress.total);
    ///     ControlFlow::Continue(())
    /// });
    /// let bytes = shown.scope(|| MmapChoice::never().buffer("model.onnx"))?;
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    pub fn with_progress(
        report: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        let watch = Watch { report: Box::new(report), now: Mutex::default() };
        Self(Arc::new(State { watch: Some(watch), ..State::default() }))
    }

    /// Ends the calls in the scopes of this token, now and from here on.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called, or a report ended the calls.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// Reports `done` more bytes, of which `total` are new.
    fn tell(&self, done: u64, total: u64) {
        let Some(watch) = &self.0.watch else { return };
        let mut now = watch.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.total = now.total.saturating_add(total);
        if done == 0 || self.is_cancelled() {
            return;
        }
        now.done = now.done.saturating_add(done);
        // Calls of this crate in the report are not part of what is reported.
        if Token(None).scope(|| (watch.report)(*now)).is_break() {
            self.cancel();
        }
    }

    /// Runs `work`. The calls of this crate in it, with the threads that they start, end when the
    /// token is cancelled; those on threads that `work` itself starts do not. Of scopes inside each
    /// other, the inner one counts.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        Token(Some(self.clone())).scope(work)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}

/// The token of a thread, if it has one, for the threads that it starts.
#[derive(Debug, Clone)]
pub struct Token(Option<Cancel>);

impl Token {
    /// That of this thread.
    pub fn current() -> Self {
        Self(CURRENT.with_borrow(Clone::clone))
    }

    /// Runs `work` under this token.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        let _before = Restore(CURRENT.replace(self.0.clone()));
        work()
    }
}

/// Gives the thread its token again, also after a panic.
struct Restore(Option<Cancel>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Whether the work of this thread goes on.
///
/// # Errors
/// [`ErrorKind::Cancelled`] when its token is cancelled.
pub fn check() -> Result<()> {
    match CURRENT.with_borrow(|current| current.as_ref().is_some_and(Cancel::is_cancelled)) {
        true => Err(cancelled()),
        false => Ok(()),
    }
}

/// Says that `bytes` are going to be read, hashed or copied.
pub fn begin(bytes: u64) {
    tell(0, bytes);
}

/// Says that `bytes` of those that were begun are done.
///
/// # Errors
/// As [`check`].
pub fn advance(bytes: u64) -> Result<()> {
    tell(bytes, 0);
    check()
}

fn tell(done: u64, total: u64) {
    // Cloned, because the report may run calls of this crate.
    if let Some(current) = CURRENT.with_borrow(Clone::clone) {
        current.tell(done, total);
    }
}

#[cold]
fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the call was cancelled")
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_scope_counts_inside_and_ends() {
        let (outer, inner) = (Cancel::new(), Cancel::new());
        outer.cancel();
        assert!(check().is_ok());
        outer.scope(|| {
            assert_eq!(check().unwrap_err().kind(), ErrorKind::Cancelled);
            inner.scope(|| assert!(check().is_ok()));
            let token = Token::current();
            let found = std::thread::scope(|scope| {
                let plain = scope.spawn(check);
                let carried = scope.spawn(move || token.scope(check));
                (plain.join().unwrap().is_ok(), carried.join().unwrap().is_ok())
            });
            assert_eq!(found, (true, false));
        });
        let panics = || outer.scope(|| panic!("inside"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(check().is_ok());
    }
}
