//! Ctrl-C, `kill` and a terminal that closes: files that are partly written are removed, and a
//! message says what was changed.
//!
//! A thread waits for SIGINT, SIGTERM and SIGHUP. While nothing is being written, it ends the
//! process at once. While files are being written, the save is asked to stop at its next step and
//! removes what it staged; then the process ends. A second signal ends it at once, whatever is left
//! behind. The exit code is 128 plus the signal's number, as in a shell.
//!
//! Elsewhere than on Unix there is no such thread: the system ends the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use onnx_container::{Error, ErrorKind};

use crate::terminal::failure::Failed;
use crate::terminal::output::{self, Output, print_on_stderr};

/// What the command is doing, and the signal that it got.
static STATE: Mutex<State> =
    Mutex::new(State { command: None, writing: false, changed: None, signal: None });

struct State {
    /// The command's name, when it prints JSON.
    command: Option<&'static str>,
    /// Whether there are files that have to be removed before the process ends.
    writing: bool,
    /// What was changed so far.
    changed: Option<String>,
    /// The first signal.
    signal: Option<i32>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch for signals, for a command that prints JSON when `json` says so.
pub fn watch(command: &'static str, json: bool) {
    state().command = json.then_some(command);
    #[cfg(unix)]
    unix::watch();
}

/// Whether the work goes on, called before the first file is made and at every step from there.
pub fn goes_on() -> bool {
    let mut state = state();
    state.writing |= state.signal.is_none();
    state.signal.is_none()
}

/// Whether a signal came and the process has not ended yet.
pub fn is_due() -> bool {
    state().signal.is_some()
}

/// The error of work that ends because [`goes_on`] said so.
pub fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "stopped by a signal")
}

/// Says that no file is left that has to be removed, and what was `changed`. Does not return when a
/// signal came meanwhile.
pub fn written(changed: String) {
    let mut state = state();
    state.writing = false;
    state.changed = Some(changed);
    if let Some(signal) = state.signal {
        end(&state, signal);
    }
}

/// Does `work`, which a signal ends wherever it is: its message then says what is `unknown`, and
/// after the work what was `changed`.
pub fn interruptible<T, E>(
    unknown: &str,
    work: impl FnOnce() -> Result<T, E>,
    changed: impl FnOnce(&T) -> Option<String>,
) -> Result<T, E> {
    let before = state().changed.replace(unknown.to_owned());
    let done = work();
    let changed = done.as_ref().ok().and_then(changed);
    state().changed = changed.or(before);
    done
}

/// What was changed so far, in words.
pub fn changed() -> Option<String> {
    state().changed.clone()
}

/// The `error` of work that removed what it had staged. Does not return when a signal was its
/// cause.
pub fn unwritten(error: Error) -> Error {
    let mut state = state();
    state.writing = false;
    if let Some(signal) = state.signal.filter(|_| error.kind() == ErrorKind::Cancelled) {
        end(&state, signal);
    }
    error
}

/// Ends the process for `signal`, with a word on what was changed.
fn end(state: &State, signal: i32) -> ! {
    let changed = state.changed.as_deref().unwrap_or("nothing was changed");
    let message = format!("stopped by signal {signal}: {changed}");
    print_on_stderr(format_args!("error: {message}"));
    if let Some(command) = state.command.filter(|_| !output::has_begun()) {
        let mut out = Output::stdout();
        // Should this fail, the same message is still printed on stderr.
        let _ = out.json(&Failed::stopped(command, message)).and_then(|()| out.finish());
    }
    exit(128 + signal)
}

#[cfg(unix)]
fn exit(code: i32) -> ! {
    // Other threads are still at work: nothing is torn down beneath them.
    signal_hook::low_level::exit(code)
}

#[cfg(not(unix))]
fn exit(code: i32) -> ! {
    std::process::exit(code)
}

#[cfg(unix)]
mod unix {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    use super::{end, exit, print_on_stderr, state};

    pub fn watch() {
        let ignored = ignored();
        let signals = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|n| ignored >> (n - 1) & 1 == 0);
        // Without the thread, a signal ends the process as it does any other.
        let Ok(mut signals) = Signals::new(signals) else { return };
        let (ready, started) = std::sync::mpsc::channel();
        let wait = move || {
            let pending = signals.forever();
            let _ = ready.send(());
            pending.for_each(on_signal);
        };
        // A thread for which there is no memory ends the process, which must not have begun
        // anything by then.
        if std::thread::Builder::new().name("signals".to_owned()).spawn(wait).is_ok() {
            let _ = started.recv();
        }
    }

    /// The signals that are ignored, as `nohup` and the background jobs of a shell do: bit 0 is
    /// signal 1.
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
    }

    fn on_signal(signal: i32) {
        let mut state = state();
        if state.signal.is_some() {
            print_on_stderr(
                "stopped at once: a staging folder may be left; the next save removes it",
            );
            exit(128 + signal);
        }
        state.signal = Some(signal);
        if !state.writing {
            end(&state, signal);
        }
    }
}
