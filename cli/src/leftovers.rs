//! What interrupted saves left beside a model.
//!
//! A save that was killed leaves its staging folder, with files that may be all that is left of a model.
//! The folder is hidden, so every command that reads the model names it.

use std::path::Path;

use onnx_container::interrupted_saves;

use crate::output::tidy;

/// What the folders are.
pub const INTERRUPTED: &str = "left by a save that was interrupted: its folder `old` holds the files that \
                               were moved away, `new` those that were to take their place";

/// A line for each folder that interrupted saves of `model` left.
pub fn notes(model: &Path) -> Vec<String> {
    let folders = interrupted_saves(model).into_iter();
    folders.map(|folder| format!("`{}`: {INTERRUPTED}", tidy(&folder).display())).collect()
}
