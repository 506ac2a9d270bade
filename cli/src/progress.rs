//! Progress on stderr, for long work on a terminal.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;

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

/// `options` that move `bar`.
pub fn shown(options: SaveOptions, bar: &ProgressBar) -> SaveOptions {
    let bar = bar.clone();
    options.progress(move |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        ControlFlow::Continue(())
    })
}
