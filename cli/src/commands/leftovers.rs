//! What interrupted saves left beside a model.
//!
//! A save that was killed before it changed anything leaves its staging folder. It is hidden and
//! may be large, so every command that reads the model names it.

use std::path::Path;

use onnx_container::recovery::interrupted_saves;

use crate::args::is_url;
use crate::commands::recover;
use crate::terminal::output::tidy;

/// What the folders are.
pub const INTERRUPTED: &str = "left by a save that was interrupted before it changed anything; \
                               the next save of the model removes it, and so does `recover`";

/// What is said of the folder of a job whose commit was killed at its end.
pub const COMMITTED: &str = "committed: the model is in place; `job commit` again removes what is \
                             left, and so does `recover`";

/// The same in a store, which `recover` does not take.
pub const COMMITTED_IN_STORE: &str = "committed: the model is in place; `job commit` again removes \
                                      what is left";

/// A line for each folder that interrupted saves of `model` left.
pub fn notes(model: &Path) -> Vec<String> {
    // A publication to a store leaves nothing that a reader sees.
    let folders = (!is_url(model)).then(|| interrupted_saves(model));
    let folders = folders.into_iter().flatten();
    folders.map(|folder| format!("`{}`: {INTERRUPTED}", tidy(&folder).display())).collect()
}

/// What `--json` tells beside a result about the models that were read: the saves that were
/// completed first, and the folders that others left.
pub fn warnings<'m>(models: impl IntoIterator<Item = &'m Path>) -> Vec<String> {
    recover::said().into_iter().chain(models.into_iter().flat_map(notes)).collect()
}
