//! Progress on stderr, for long work on a terminal.
//!
//! A save knows its length and has a bar from its first byte, where it is long. What reads or
//! computes gets a line when half a second has passed: with a bar where the library says how many
//! bytes it reads.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use onnx_container::save::Progress;
use onnx_container::{ByteSize, Cancel, Error, SaveOptions};

use crate::terminal::output::{has_begun, print_on_stderr};
use crate::terminal::stop;

/// Whether nothing is shown.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Whether a bar of a save is shown.
static BAR: AtomicBool = AtomicBool::new(false);

/// Shows no progress and no notes from now on, where `quiet` says so.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether notes and progress are left out.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

fn is_shown() -> bool {
    !is_quiet() && stderr().is_terminal()
}

/// How long work may take before a line says that it goes on.
const SHORT: Duration = Duration::from_millis(500);

/// How often the line changes.
const TICK: Duration = Duration::from_millis(100);

/// Calls `work`. When it takes longer than half a second, a line on a terminal says how far it is.
pub fn during<T>(work: impl FnOnce() -> T) -> T {
    if !is_shown() {
        return work();
    }
    let read = Mutex::new(Progress::default());
    let read = &Arc::new(read);
    let (end, ended) = mpsc::channel::<()>();
    let told = Arc::clone(read);
    let cancel = Cancel::with_progress(move |progress| {
        *told.lock().unwrap_or_else(PoisonError::into_inner) = progress;
        ControlFlow::Continue(())
    });
    std::thread::scope(|scope| {
        scope.spawn(move || show_until(&ended, read));
        let result = cancel.scope(work);
        // Also where the work panics: the closure owns this end.
        drop(end);
        result
    })
}

/// Shows how far the work is, from half a second on, until it `ended`.
fn show_until(ended: &Receiver<()>, read: &Mutex<Progress>) {
    let mut pause = SHORT;
    let mut line: Option<ProgressBar> = None;
    while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        pause = TICK;
        // The bar of a save, and what the command prints, have the terminal.
        if BAR.load(Ordering::Relaxed) || has_begun() {
            line.take().inspect(ProgressBar::finish_and_clear);
            continue;
        }
        let now = *read.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line.get_or_insert_with(|| styled(ProgressBar::no_length(), now.total > 0));
        if now.total > 0 && line.length() != Some(now.total) {
            line.set_style(style(true));
            line.set_length(now.total);
        }
        line.set_position(now.done);
        line.tick();
    }
    line.inspect(ProgressBar::finish_and_clear);
}

fn styled(bar: ProgressBar, is_known: bool) -> ProgressBar {
    bar.with_style(style(is_known)).with_message("reading")
}

/// A bar where the length is known, else the time.
fn style(is_known: bool) -> ProgressStyle {
    let size = |bytes: fn(&ProgressState) -> u64| {
        move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            // A failure to draw the bar is ignored.
            let _ = write!(text, "{}", ByteSize(bytes(state)));
        }
    };
    let template = match is_known {
        true => "{msg} {bar:40} {done} of {all} {eta}",
        false => "working {spinner} {elapsed}",
    };
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style
        .with_key("done", size(ProgressState::pos))
        .with_key("all", size(|state| state.len().unwrap_or_default()))
}

/// Work on fewer bytes than this is done before anybody could read a progress bar.
const LONG: u64 = 100_000_000;

/// A bar for `total` bytes of work; a hidden one where nobody would see it.
pub fn bar(work: &'static str, total: u64) -> ProgressBar {
    if total < LONG || !is_shown() {
        return ProgressBar::hidden();
    }
    BAR.store(true, Ordering::Relaxed);
    ProgressBar::new(total).with_style(style(true)).with_message(work)
}

/// How long a save waits for a folder before this is reported.
const SILENT: Duration = Duration::from_secs(1);

/// `options`, with a word on stderr when the save waits for a folder, also where that is no
/// terminal: a log has to say why nothing happens. A signal ends the wait.
pub fn reporting_waits(options: SaveOptions) -> SaveOptions {
    let said = AtomicBool::new(false);
    options.waiting(move |waiting| {
        if waiting.elapsed >= SILENT && !said.swap(true, Ordering::Relaxed) {
            let folder = waiting.folder.display();
            print_on_stderr(format_args!("waiting for `{folder}`: another save holds its lock"));
        }
        if stop::is_due() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// Calls `save`, which writes the model or weights at `path`, and returns its result. Its progress
/// is shown, and a signal stops it.
pub fn shown<T>(
    options: SaveOptions,
    path: &Path,
    save: impl FnOnce(SaveOptions) -> Result<T, Error>,
) -> Result<T, Error> {
    shown_as(options, format!("`{}` was written", path.display()), save)
}

/// As [`shown`], for work of which `changed` says afterwards what it did.
pub fn shown_as<T>(
    options: SaveOptions,
    changed: String,
    save: impl FnOnce(SaveOptions) -> Result<T, Error>,
) -> Result<T, Error> {
    let shown = Arc::new(OnceLock::<ProgressBar>::new());
    let writing = Arc::clone(&shown);
    let result = save(reporting_waits(options).progress(move |progress| {
        let bar = writing.get_or_init(|| bar("writing", progress.total));
        bar.set_position(progress.done);
        if stop::goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }));
    if let Some(bar) = shown.get() {
        bar.finish_and_clear();
        BAR.store(false, Ordering::Relaxed);
    }
    let result = result.map_err(stop::unwritten)?;
    stop::written(changed);
    Ok(result)
}
