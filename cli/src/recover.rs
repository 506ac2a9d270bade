//! `recover FOLDER`, and what every command does first: completes the saves that were killed.

use std::path::{Path, PathBuf};

use onnx_container::{Recovery, recover, recover_model};
use serde::Serialize;

use crate::args::RecoverArgs;
use crate::failure::{Failure, JsonError, Outcome, print_error};
use crate::output::{Output, count, lossy, print_on_stderr, tidy};
use crate::signing;

/// Completes or undoes the interrupted saves in the folder, and says which.
pub fn run(args: &RecoverArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let mut recovery = recover(&args.folder)?;
    let (signing, errors) = signing::remove_abandoned(&args.folder);
    recovery.errors.extend(errors);
    if args.json {
        out.json(&Report::new(&args.folder, &recovery, signing))?;
    } else {
        print(&recovery, signing, out)?;
    }
    recovery.errors.iter().for_each(print_error);
    Ok(Outcome::of(recovery.errors.is_empty()))
}

/// `signing` is how many files of killed runs of `sign` were removed.
fn print(recovery: &Recovery, signing: usize, out: &mut Output) -> Result<(), Failure> {
    for path in &recovery.finished {
        out.line(format_args!("completed  {}: the new files are in place", tidy(path).display()))?;
    }
    for path in &recovery.undone {
        out.line(format_args!("undone     {}: the old files are in place", tidy(path).display()))?;
    }
    if recovery.removed > 0 {
        let folders = count(recovery.removed, "staging folder");
        out.line(format_args!("removed    {folders} of saves that had changed nothing"))?;
    }
    if signing > 0 {
        out.line(format_args!(
            "removed    {} of a `sign` that was killed",
            count(signing, "file")
        ))?;
    }
    let nothing = recovery.finished.is_empty() && recovery.undone.is_empty() && signing == 0;
    if nothing && recovery.removed == 0 && recovery.errors.is_empty() {
        out.line("nothing to recover")?;
    }
    Ok(())
}

/// Completes or undoes an interrupted save of `model`, and tells the user. What is not possible is told by
/// the command itself, when it reads the model.
pub fn before_reading(model: &Path) {
    let Ok(recovery) = recover_model(model) else { return };
    for path in &recovery.finished {
        print_on_stderr(format_args!(
            "warning: a save of `{}` was interrupted; it is complete now, with the new files",
            tidy(path).display()
        ));
    }
    for path in &recovery.undone {
        print_on_stderr(format_args!(
            "warning: a save of `{}` was interrupted; it is undone now, with the old files",
            tidy(path).display()
        ));
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    folder: &'a Path,
    /// The models with their new files in place.
    finished: Vec<String>,
    /// The models with their old files in place.
    undone: Vec<String>,
    /// How many staging folders were removed.
    removed: usize,
    /// How many files of killed runs of `sign` were removed.
    removed_signing: usize,
    errors: Vec<JsonError>,
}

impl<'a> Report<'a> {
    fn new(folder: &'a Path, recovery: &Recovery, removed_signing: usize) -> Self {
        let names =
            |paths: &[PathBuf]| paths.iter().map(|path| tidy(path).display().to_string()).collect();
        Self {
            command: "recover",
            folder,
            finished: names(&recovery.finished),
            undone: names(&recovery.undone),
            removed: recovery.removed,
            removed_signing,
            errors: recovery.errors.iter().map(JsonError::from).collect(),
        }
    }
}
