//! Work of the library that a signal such as Ctrl-C ends.
//!
//! The interpreter handles signals on its main thread alone, between steps of Python code. So a
//! call from there does its work on a thread of its own, and the main thread waits for that and
//! looks for signals meanwhile.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Duration;

use onnx_container::scan::explained;
use onnx_container::{Cancel, Error, ErrorKind, Result};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::exception;

/// How often signals are looked for.
const TURN: Duration = Duration::from_millis(50);
/// As much stack as a main thread has: messages nest deep.
const STACK: usize = 8 << 20;

/// Does `work` while other threads run Python. Where a signal raises meanwhile, the work is
/// cancelled, and what was raised goes on; its cause is the error of work that ended early. The
/// error of a path that is no model says what is there.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    interruptible(py, || work().map_err(explained))?.map_err(|error| exception(&error))
}

/// As [`detached`], for a caller that looks at the library's error itself.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<Result<T>> {
    interruptible_by(py, &Cancel::new(), work)
}

/// As [`interruptible`], for work under a token that others use too.
pub fn interruptible_by<T: Send>(
    py: Python<'_>,
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<Result<T>> {
    if !is_main_thread(py)? {
        return Ok(py.detach(|| cancel.scope(work)));
    }
    let (result, raised) = py.detach(|| watched(cancel, work));
    let Some(raised) = raised else { return Ok(result) };
    let cancelled = result.err().filter(|error| error.has(ErrorKind::Cancelled));
    raised.set_cause(py, cancelled.map(|error| exception(&error)));
    Err(raised)
}

/// What `work` comes to on another thread, and what a signal raised meanwhile.
fn watched<T: Send>(
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T> + Send,
) -> (Result<T>, Option<PyErr>) {
    let work = Mutex::new(Some(work));
    let run = || {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let work = work.ok_or_else(|| Error::other("the work was taken by another thread"))?;
        cancel.scope(work)
    };
    let (sender, done) = channel::<()>();
    thread::scope(|scope| {
        let start = || {
            let _done = sender;
            run()
        };
        // If the system refuses a thread, signals are handled when the work is done.
        let Ok(worker) = Builder::new().stack_size(STACK).spawn_scoped(scope, start) else {
            return (run(), None);
        };
        let mut raised = None;
        while done.recv_timeout(TURN) == Err(RecvTimeoutError::Timeout) {
            let found = Python::try_attach(|py| py.check_signals());
            if let Some(Err(error)) = found {
                cancel.cancel();
                raised.get_or_insert(error);
            }
        }
        (worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), raised)
    })
}

/// Whether this thread is the one that handles signals.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    static THREADING: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let threading =
        THREADING.get_or_try_init(py, || Ok::<_, PyErr>(py.import("threading")?.unbind()))?;
    let threading = threading.bind(py);
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    threading.call_method0("get_ident")?.eq(main)
}
