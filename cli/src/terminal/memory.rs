//! The memory of the process: what `--max-memory` lets it have, and how the command ends when there
//! is no more.
//!
//! Whatever runs a model allocates, and an allocation that fails ends a process with SIGABRT. So
//! the allocator of the program counts, refuses what would be more than a command may have, and
//! where that, or a lack of memory, ends the process, this is an error of the command as any other:
//! a message, and the exit code of its failures.

#![allow(unsafe_code)] // an allocator, and a signal handler

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

#[cfg(feature = "machine")]
use onnx_container::ByteSize;
use onnx_container::process_memory;

use crate::terminal::failure::Failed;

/// What a command may have beside `--max-memory`: its own buffers, and copies that wait to be
/// hashed, 64 MiB at most.
#[cfg(feature = "machine")]
const BESIDE: u64 = 128 << 20;

/// Whether an allocation failed.
static FAILED: AtomicBool = AtomicBool::new(false);

/// The exit code of a failure of the command.
static CODE: AtomicU8 = AtomicU8::new(1);

/// The command that runs, if it prints JSON.
static COMMAND: OnceLock<Option<&str>> = OnceLock::new();

/// What is printed when there is no memory, and when it would be more than `--max-memory` allows.
/// It is made beforehand.
static NO_MEMORY: OnceLock<Said> = OnceLock::new();
static TOO_MUCH: OnceLock<Said> = OnceLock::new();

#[derive(Debug)]
#[cfg_attr(not(unix), expect(dead_code, reason = "there the system ends the process"))]
struct Said {
    on_stderr: String,
    /// Nothing, for a command that does not print JSON.
    on_stdout: Vec<u8>,
}

/// An allocator that counts, by another one.
#[derive(Debug)]
pub struct Counted<A>(pub A);

// SAFETY: every call is passed on with the layout that it came with, or answered by a null pointer.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise for `layout`.
        granted(layout.size(), || unsafe { self.0.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise for `layout`.
        granted(layout.size(), || unsafe { self.0.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        process_memory::give_back(layout.size());
        // SAFETY: the caller's promise: `memory` is from here, and so from the allocator below,
        // with this layout.
        unsafe { self.0.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the caller's promise: as in `dealloc`, and for the new length.
        let moved = granted(len, || unsafe { self.0.realloc(memory, layout, len) });
        if !moved.is_null() {
            process_memory::give_back(layout.size());
        }
        moved
    }
}

/// The memory of `len` bytes that `allocate` gives, if so many may be taken.
fn granted(len: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    let memory = if process_memory::take(len) { allocate() } else { null_mut() };
    if memory.is_null() {
        FAILED.store(true, Relaxed);
        process_memory::give_back(len);
    }
    memory
}

/// From here on the process may have `most` bytes more, and some beside them.
#[cfg(feature = "machine")]
pub fn bound(most: Option<u64>) {
    let Some(most) = most else { return };
    let message = format!(
        "the command would need more memory than the {} of --max-memory and {} beside it",
        ByteSize(most),
        ByteSize(BESIDE)
    );
    let _ = TOO_MUCH.set(Said::new(COMMAND.get().copied().flatten(), message));
    let more = usize::try_from(most.saturating_add(BESIDE)).unwrap_or(usize::MAX);
    process_memory::bound(more);
}

/// Prepares what is said when there is no memory, for a command that prints JSON when `json` says
/// so, and fails with the exit code `code`.
pub fn prepare(command: &'static str, json: bool, code: u8) {
    CODE.store(code, Relaxed);
    let command = json.then_some(command);
    let _ = COMMAND.set(command);
    let _ = NO_MEMORY.set(Said::new(command, "there is not enough memory".to_owned()));
}

impl Said {
    fn new(command: Option<&'static str>, message: String) -> Self {
        let on_stderr = format!("error: {message}\n");
        let json = command.map(|command| Failed::out_of_memory(command, message));
        let mut on_stdout = json.and_then(|json| serde_json::to_vec_pretty(&json).ok());
        on_stdout.iter_mut().for_each(|json| json.push(b'\n'));
        Self { on_stderr, on_stdout: on_stdout.unwrap_or_default() }
    }
}

/// From here on an allocation that fails ends the process as an error of the command. A program
/// calls it whose allocator is [`Counted`].
pub fn fail_without_memory() {
    #[cfg(unix)]
    unix::watch();
}

#[cfg(unix)]
mod unix {
    use std::io::{stderr, stdout};
    use std::os::fd::AsFd;

    use signal_hook::consts::SIGABRT;
    use signal_hook::low_level;

    use super::{CODE, FAILED, NO_MEMORY, Relaxed, TOO_MUCH};
    use crate::terminal::output::has_begun;

    pub fn watch() {
        // SAFETY: the handler reads atomics and what is set once, writes to descriptors and ends
        // the process, all of which a signal handler may do; it takes no lock and allocates
        // nothing.
        let _ = unsafe { low_level::register(SIGABRT, on_abort) };
    }

    /// The process is about to end. Where that is not for want of memory, it does.
    fn on_abort() {
        if !FAILED.load(Relaxed) {
            return;
        }
        if let Some(said) = TOO_MUCH.get().or(NO_MEMORY.get()) {
            let _ = rustix::io::write(stderr().as_fd(), said.on_stderr.as_bytes());
            if !has_begun() {
                let _ = rustix::io::write(stdout().as_fd(), &said.on_stdout);
            }
        }
        low_level::exit(CODE.load(Relaxed).into());
    }
}
