//! Going through messages that hold themselves: a graph in a node of a graph, a sequence of
//! sequences.
//!
//! A decoded message is as deep as [`Limit::Nesting`](crate::Limit::Nesting) allows. One that
//! was made in memory may be of any depth, and clones and comparisons of it cannot return an error.
//! So these calls go on a few levels on the stack that they were called on, and then on stacks of
//! threads of their own.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

use super::Message;
use super::text::Str;
use crate::util::cancel::Token;

/// How many messages deep a call goes on the stack of its caller. Less than half of the levels that
/// [`Limit::Nesting`](crate::Limit::Nesting) allows by default are messages that may hold
/// themselves.
const HERE: u32 = 50;
/// How many messages deep it goes on each further stack, and the length of that: 16 KiB for each
/// message. The system provides the memory only as it is used.
const ELSEWHERE: u32 = 4096;
const STACK: usize = 64 << 20;

thread_local! {
    /// How many messages deeper a call may go on this stack.
    static LEFT: Cell<u32> = const { Cell::new(HERE) };
}

/// One level, until it is dropped.
struct Level(u32);

impl Level {
    fn enter() -> Option<Self> {
        let left = LEFT.get();
        LEFT.set(left.checked_sub(1)?);
        Some(Self(left))
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        LEFT.set(self.0);
    }
}

/// Does `work` with a message of type `M`, on a stack that has room for it.
#[inline]
pub fn walk<M: Message, T: Default + Send>(work: impl FnOnce() -> T + Send) -> T {
    if !M::RECURSIVE {
        return work();
    }
    match Level::enter() {
        Some(_level) => work(),
        None => elsewhere(work),
    }
}

/// Does `work` on a stack of its own; here if the system refuses a thread.
#[cold]
fn elsewhere<T: Default + Send>(work: impl FnOnce() -> T + Send) -> T {
    let (work, token) = (Mutex::new(Some(work)), Token::current());
    let run = || {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        LEFT.set(ELSEWHERE);
        // It is there, because it is taken once.
        token.scope(|| work.map_or_else(T::default, |work| work()))
    };
    thread::scope(|scope| match Builder::new().stack_size(STACK).spawn_scoped(scope, run) {
        Ok(thread) => thread
            .join()
            .unwrap_or_else(|panic: Box<dyn Any + Send>| std::panic::resume_unwind(panic)),
        Err(_) => run(),
    })
}

/// Shows a message of type `M` with `show`; without what is in it where that is deeper than a
/// decoded one.
pub(crate) fn show<M: Message>(
    f: &mut fmt::Formatter<'_>,
    show: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    if !M::RECURSIVE {
        return show(f);
    }
    match Level::enter() {
        Some(_level) => show(f),
        None => write!(f, "{} {{ .. }}", M::NAME),
    }
}

/// Calls `visit` with every string of `message`.
pub(crate) fn visit_strings<'m, M: Message>(message: &'m M, visit: &mut dyn FnMut(&'m Str)) {
    if !M::RECURSIVE {
        return message.strings_of_fields(visit);
    }
    if let Some(_level) = Level::enter() {
        return message.strings_of_fields(visit);
    }
    // What visits them need not be allowed on another thread.
    let strings = elsewhere(|| {
        let mut strings = Vec::new();
        message.strings_of_fields(&mut |string| strings.push(string));
        strings
    });
    strings.into_iter().for_each(visit);
}
