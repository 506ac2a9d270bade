//! Old weights files that a save cannot delete because the command has them mapped, on Windows:
//! they go when the command has let go of them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use onnx_container::Error;
use onnx_container::recovery::{is_left_by_saves, recover};

use crate::terminal::output::print_on_stderr;

/// The models whose saves left such files.
static MODELS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Takes those of `warnings` about a save to `path` that are of such files, until [`remove`].
pub fn put_off(path: &Path, warnings: &mut Vec<Error>) {
    if cfg!(not(windows)) {
        return;
    }
    let before = warnings.len();
    warnings.retain(|warning| !warning.path().is_some_and(is_in_staging));
    if warnings.len() < before {
        MODELS.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_path_buf());
    }
}

fn is_in_staging(path: &Path) -> bool {
    path.iter().any(|part| part.to_str().is_some_and(is_left_by_saves))
}

/// Removes what was put off, or warns where that is not possible: another program may have it
/// mapped too.
pub fn remove() {
    let models = std::mem::take(&mut *MODELS.lock().unwrap_or_else(PoisonError::into_inner));
    for model in models {
        let errors = recover(model).map_or_else(|error| vec![error], |done| done.errors);
        errors.iter().for_each(|error| print_on_stderr(format_args!("warning: {error}")));
    }
}
