//! Progress on stderr, for long work on a terminal.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use onnx_container::{ByteSize, Cancel, Error, SaveOptions};

use crate::terminal::output::print_on_stderr;
use crate::terminal::stop;

/// Work on fewer bytes than this is done before anybody could read a progress bar.
const LONG: u64 = 100_000_000;

/// A bar for `total` bytes of work; a hidden one where nobody would see it.
pub fn bar(work: &'static str, total: u64) -> ProgressBar {
    if total < LONG || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let size = |bytes: fn(&ProgressState) -> u64| {
        move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            // A failure to draw the bar is ignored.
            let _ = write!(text, "{}", ByteSize(bytes(state)));
        }
    };
    let template = ProgressStyle::with_template("{msg} {bar:40} {done} of {all} {eta}");
    let style = template
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("done", size(ProgressState::pos))
        .with_key("all", size(|state| state.len().unwrap_or_default()));
    ProgressBar::new(total).with_style(style).with_message(work)
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
    }
    let result = result.map_err(stop::unwritten)?;
    stop::written(changed);
    Ok(result)
}

/// Calls `read`, which goes through weights, and returns its result. Its progress is shown.
pub fn reading<T>(read: impl FnOnce() -> T) -> T {
    let shown = Arc::new(OnceLock::<ProgressBar>::new());
    let drawn = Arc::clone(&shown);
    let watched = Cancel::with_progress(move |progress| {
        let bar = drawn.get_or_init(|| bar("reading", progress.total));
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        ControlFlow::Continue(())
    });
    let result = watched.scope(read);
    if let Some(bar) = shown.get() {
        bar.finish_and_clear();
    }
    result
}
