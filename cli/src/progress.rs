//! Progress on stderr, for long work on a terminal.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use indicatif::{ProgressBar, ProgressStyle};
use onnx_container::SaveOptions;

/// Work on fewer bytes than this is over before a bar is read.
const LONG: u64 = 100_000_000;

/// A bar for `total` bytes of work; a hidden one where nobody would see it.
pub fn bar(work: &'static str, total: u64) -> ProgressBar {
    if total < LONG || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template =
        "{msg} {bar:40} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(total)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(work)
}

/// What `save` gives, whose progress is shown.
pub fn shown<T>(options: SaveOptions, save: impl FnOnce(SaveOptions) -> T) -> T {
    let shown = Arc::new(OnceLock::<ProgressBar>::new());
    let writing = Arc::clone(&shown);
    let result = save(options.progress(move |progress| {
        let bar = writing.get_or_init(|| bar("writing", progress.total));
        bar.set_position(progress.done);
        ControlFlow::Continue(())
    }));
    if let Some(bar) = shown.get() {
        bar.finish_and_clear();
    }
    result
}
