//! The threads that requests run on.
//!
//! The library is synchronous: a call waits for its requests. They run on two threads of their own,
//! of which there is one set per process, and the caller's thread polls its own future. So a future
//! may borrow the slices that it fills, and a call works on a thread of another runtime too, which
//! it blocks.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::{Either, select};
use onnx_container::{Error, ErrorKind, Result, work};
use tokio::runtime::{Builder, Runtime};

const THREADS: usize = 2;
/// How soon a call notices that it was cancelled.
const TICK: Duration = Duration::from_millis(100);

fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<(u32, std::result::Result<Runtime, String>)> = OnceLock::new();
    let (process, made) = RUNTIME.get_or_init(|| {
        let made = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("onnx-store")
            .enable_io()
            .enable_time()
            .build();
        (std::process::id(), made.map_err(|error| error.to_string()))
    });
    // The threads and the connections are those of the other process: a call would wait forever.
    if *process != std::process::id() {
        let reason = "this process was forked from one that had used stores before: start it by \
                      `spawn` or `forkserver`, or use stores only after the fork";
        return Err(Error::new(ErrorKind::Unsupported, reason));
    }
    made.as_ref().map_err(|reason| {
        Error::new(ErrorKind::Io, format!("no thread for requests can be started: {reason}"))
    })
}

/// Waits for `future`.
///
/// # Errors
/// Those of the future; [`ErrorKind::Cancelled`] where the work of the calling thread is cancelled,
/// in which case its requests are dropped.
pub(crate) fn run<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    // A request may be answered before the first look at whether the work is cancelled.
    work::check()?;
    let _entered = runtime()?.enter();
    pollster::block_on(async {
        let (mut future, mut cancelled) = (std::pin::pin!(future), std::pin::pin!(cancelled()));
        match select(&mut future, &mut cancelled).await {
            Either::Left((result, _)) => result,
            Either::Right((error, _)) => Err(error),
        }
    })
}

/// Waits for `future`, also where the work of the calling thread is cancelled: for a request whose
/// answer has to be known.
pub(crate) fn run_to_end<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let _entered = runtime()?.enter();
    pollster::block_on(future)
}

/// Ends when the work of this thread is cancelled.
pub(crate) async fn cancelled() -> Error {
    loop {
        if let Err(error) = work::check() {
            return error;
        }
        tokio::time::sleep(TICK).await;
    }
}

#[cfg(test)]
mod tests {
    use onnx_container::Cancel;

    use super::*;

    #[test]
    fn a_future_borrows_and_runs_inside_another_runtime() {
        let other = Builder::new_current_thread().build().unwrap();
        let mut out = [0_u8; 2];
        other
            .block_on(async {
                run(async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    out.fill(3);
                    Ok(())
                })
            })
            .unwrap();
        assert_eq!(out, [3, 3]);
    }

    #[test]
    fn a_call_ends_when_it_is_cancelled() {
        let cancel = Cancel::new();
        let ended = std::thread::scope(|scope| {
            let cancelled = cancel.clone();
            let call =
                scope.spawn(move || cancelled.scope(|| run(std::future::pending::<Result<()>>())));
            std::thread::sleep(Duration::from_millis(10));
            cancel.cancel();
            call.join().unwrap()
        });
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
