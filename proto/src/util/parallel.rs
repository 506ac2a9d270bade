//! Work shared by a few threads: one loop for all that divide a list of items among the cores.
//!
//! Threads live as long as the call, so items and work may borrow. What an item is, how large and
//! in which order, is the caller's choice; results that have to come back in order are left to it
//! too.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

use crate::error::Result;
use crate::util::cancel::{self, Token};

/// How many threads this machine runs at a time, and at most `most`.
pub fn cores(most: usize) -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(most).max(1)
}

/// Does `work` with each of `items` on up to `threads` threads, the calling one among them.
///
/// Items are taken in their order, one at a time by any thread that is free, also from an iterator
/// that makes them while it is asked. After an error, and when the call is cancelled, no further
/// item is taken, and the first error that was met is returned once every thread is done. A panic
/// in `work` goes on in the calling thread.
pub fn for_each<I>(
    threads: usize,
    items: I,
    work: impl Fn(I::Item) -> Result<()> + Sync,
) -> Result<()>
where
    I: Iterator<Item: Send> + Send,
{
    let items = Mutex::new(items.fuse());
    let first_error = Mutex::new(None);
    let stopped = AtomicBool::new(false);
    let next = || match stopped.load(Ordering::Relaxed) {
        true => None,
        false => items.lock().unwrap_or_else(PoisonError::into_inner).next(),
    };
    let until_done = || {
        let _stop = StopOnPanic(&stopped);
        while let Some(item) = next() {
            if let Err(error) = cancel::check().and_then(|()| work(item)) {
                stopped.store(true, Ordering::Relaxed);
                let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(error);
            }
        }
    };
    let token = Token::current();
    let in_scope = || token.scope(until_done);
    thread::scope(|scope| {
        let start = |_| Builder::new().stack_size(STACK).spawn_scoped(scope, in_scope);
        // With fewer threads than wished for, those that there are do the work.
        let others: Vec<_> = (1..threads).map_while(|number| start(number).ok()).collect();
        until_done();
        for other in others {
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Calls `work` on up to `threads - 1` other threads again and again while `run` runs in the
/// calling one, until it returns `false` or `run` is done, and returns what `run` does. A panic in
/// either goes on in the calling thread.
pub fn alongside<T>(threads: usize, work: impl Fn() -> bool + Sync, run: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    let until_done = || {
        while !is_done.load(Ordering::Relaxed) {
            if !work() {
                break;
            }
        }
    };
    let token = Token::current();
    let in_scope = || token.scope(until_done);
    thread::scope(|scope| {
        let start = |_| Builder::new().stack_size(STACK).spawn_scoped(scope, in_scope);
        let others: Vec<_> = (1..threads).map_while(|number| start(number).ok()).collect();
        let stop = StopOnDrop(&is_done);
        let result = run();
        drop(stop);
        for other in others {
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        result
    })
}

/// Tells the other threads to stop, also when this one panics.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As much stack as a main thread has: messages nest deep. It costs address space, not memory.
const STACK: usize = 8 << 20;

/// Tells the other threads to stop when this one panics.
struct StopOnPanic<'s>(&'s AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::util::cancel::Cancel;

    #[test]
    fn each_item_is_worked_on_once() {
        for threads in [0, 1, 2, 7] {
            for len in [0_usize, 1, 3, 1000] {
                let seen: Vec<_> = (0..len).map(|_| AtomicUsize::new(0)).collect();
                let work = |item: &AtomicUsize| {
                    item.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                };
                for_each(threads, seen.iter(), work).unwrap();
                assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1), "{threads} {len}");
            }
        }
    }

    #[test]
    fn threads_work_at_the_same_time() {
        // Every item waits for the others, so one thread alone would never end.
        let (all, ids) = (Barrier::new(3), Mutex::new(HashSet::new()));
        let work = |_| {
            all.wait();
            ids.lock().unwrap().insert(thread::current().id());
            Ok(())
        };
        for_each(3, 0..3, work).unwrap();
        assert_eq!(ids.into_inner().unwrap().len(), 3);
    }

    #[test]
    fn work_goes_on_beside_a_run_and_ends_with_it() {
        // The run waits for the work, and the work has no end of its own.
        let (turns, met) = (AtomicUsize::new(0), Barrier::new(2));
        let work = || {
            if turns.fetch_add(1, Ordering::Relaxed) == 3 {
                met.wait();
            }
            true
        };
        let run = || {
            met.wait();
            7
        };
        assert_eq!(alongside(2, work, run), 7);
        assert!(turns.into_inner() > 3);
        let panics = || alongside(2, || true, || panic!("at once"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(alongside(1, || panic!("there is no other thread"), || 8), 8);
    }

    #[test]
    fn an_error_ends_the_work() {
        for threads in [1, 4] {
            let taken = AtomicUsize::new(0);
            let items = (0..100_000).inspect(|_| {
                taken.fetch_add(1, Ordering::Relaxed);
            });
            let work = |item| if item == 10 { Err(Error::other("ten")) } else { Ok(()) };
            assert_eq!(for_each(threads, items, work).unwrap_err().reason(), "ten");
            assert!(taken.into_inner() < 100_000, "{threads}");
        }
    }

    #[test]
    fn a_cancelled_call_ends_the_work_of_all_threads() {
        for threads in [1, 4] {
            let (taken, cancel) = (AtomicUsize::new(0), Cancel::new());
            let work = |item| {
                taken.fetch_add(1, Ordering::Relaxed);
                if item == 10 {
                    cancel.cancel();
                }
                Ok(())
            };
            let error = cancel.scope(|| for_each(threads, 0..100_000, work)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            assert!(taken.into_inner() < 100_000, "{threads}");
        }
    }

    #[test]
    fn a_panic_ends_the_work_and_reaches_the_caller() {
        for threads in [1, 4] {
            let taken = AtomicUsize::new(0);
            let items = (0..100_000).inspect(|_| {
                taken.fetch_add(1, Ordering::Relaxed);
            });
            let work = |item| if item == 10 { panic!("at ten") } else { Ok(()) };
            let caught = catch_unwind(AssertUnwindSafe(|| for_each(threads, items, work)));
            let message = caught.unwrap_err();
            assert_eq!(message.downcast_ref::<&str>(), Some(&"at ten"), "{threads}");
            assert!(taken.into_inner() < 100_000, "{threads}");
        }
    }
}
