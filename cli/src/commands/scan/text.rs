//! What `scan` says to people: a row for each model, what is wrong with it, what nobody needs, and
//! sums.

use std::fmt::Display;
use std::io;
use std::path::Path;

use onnx_container::ByteSize;
use onnx_container::scan::{
    Certainty, EqualWeights, FileState, LeftFile, LeftKind, Orphan, Scan, ScannedFile,
    ScannedModel, WeightsPlace,
};

use super::found::Scanned;
use crate::commands::leftovers::COMMITTED;
use crate::terminal::output::{Output, count, short_name, tidy};

/// The most equal weights that are listed; `--json` has all.
const MOST_EQUAL: usize = 20;
/// The most tensors that are named for equal weights.
const MOST_TENSORS: usize = 3;

/// Prints what is in each folder.
pub fn print(all: &[Scanned], out: &mut Output) -> io::Result<()> {
    for (number, scanned) in all.iter().enumerate() {
        if number > 0 {
            out.line("")?;
        }
        if all.len() > 1 {
            out.line(format_args!("{}:", scanned.scan.folder.display()))?;
        }
        one(scanned, out)?;
    }
    Ok(())
}

fn one(scanned: &Scanned, out: &mut Output) -> io::Result<()> {
    let scan = &scanned.scan;
    models(&scan.models, out)?;
    faults(scan, out)?;
    unneeded(scanned, out)?;
    equal(scan, out)?;
    sums(scanned, out)
}

/// A row for each model, under the names of the columns.
fn models(models: &[ScannedModel], out: &mut Output) -> io::Result<()> {
    if models.is_empty() {
        return out.line("no models");
    }
    out.line(format_args!("{:>8}  {:>8}  {:>5}  path", "bytes", "model", "files"))?;
    for model in models {
        let (all, own) = (ByteSize(model.all_bytes()), ByteSize(model.bytes));
        let files = model.files.len().saturating_add(1);
        let path = tidy(&model.path).display();
        let columns = format!("{all:>8}  {own:>8}  {files:>5}  ");
        let indent = columns.len();
        out.folded(format_args!("{columns}{path}{}", note(model)), indent)?;
    }
    Ok(())
}

/// What is to be known of a model, after its path.
fn note(model: &ScannedModel) -> String {
    let mut note = String::new();
    if let Some(target) = &model.link_to {
        note += &format!(" -> {}", target.display());
    }
    if let Some(other) = &model.same_file_as {
        note += &format!("  (the same file as {})", tidy(other).display());
    }
    let is_cut_off = |file: &&ScannedFile| file.state == FileState::CutOff;
    let (cut_off, missing): (Vec<_>, Vec<_>) = model.missing().partition(is_cut_off);
    for (files, what) in [(missing, "missing"), (cut_off, "cut off")] {
        if !files.is_empty() {
            note += &format!("  ({} of its files {what})", files.len());
        }
    }
    if model.files.iter().any(|file| file.state == FileState::Stripped) {
        note += "  (its weights were stripped)";
    }
    if model.is_damaged {
        note += "  (cut off or damaged)";
    }
    note
}

/// What is wrong with models, and with files that should be some.
fn faults(scan: &Scan, out: &mut Output) -> io::Result<()> {
    for model in &scan.models {
        for file in model.missing() {
            let reason = file.reason.as_deref().unwrap_or("cannot be used");
            let (path, model) = (tidy(&file.path).display(), tidy(&model.path).display());
            let label = if file.state == FileState::CutOff { "cut off" } else { "missing" };
            row(label, format_args!("{path}, which {model} needs: {reason}"), out)?;
        }
    }
    for error in &scan.not_models {
        row("no model", said(error), out)?;
    }
    for error in &scan.dangling {
        row("dangling", said(error), out)?;
    }
    Ok(())
}

/// What is there and nobody needs.
fn unneeded(scanned: &Scanned, out: &mut Output) -> io::Result<()> {
    let scan = &scanned.scan;
    for Orphan { path, bytes, certainty, reason, .. } in &scan.orphans {
        let label = match certainty {
            Certainty::Sure => "orphan",
            Certainty::Likely => "likely",
            _ => "possible",
        };
        row(label, sized(path, *bytes, reason), out)?;
    }
    for folder in &scan.without_model {
        let files = count(folder.files, "weights file");
        let text =
            format_args!("{files} and no model, such as {}", tidy(&folder.example).display());
        row("weights", sized(&folder.path, folder.bytes, text), out)?;
    }
    for LeftFile { path, bytes, kind, .. } in &scan.left {
        let text = match kind {
            LeftKind::Unneeded => {
                "left by an interrupted save, or by a job that ended: recover removes it"
            }
            LeftKind::Job => {
                "a job: `job status` shows how far it is, `job abort` ends it and frees these bytes"
            }
            LeftKind::Committed => COMMITTED,
            LeftKind::InUse => "a save is running, or this file system has no locks to tell",
            _ => "a save was interrupted while it put files in place: recover completes it",
        };
        let is_job = matches!(kind, LeftKind::Job | LeftKind::Committed);
        let label = if is_job { "job" } else { "left" };
        row(label, sized(path, *bytes, text), out)?;
    }
    for file in &scanned.unfinished {
        let text = "left by a command that was killed: recover of its folder removes it";
        row("left", sized(&file.path, file.bytes, text), out)?;
    }
    Ok(())
}

/// The weights that several models have, those that save most first.
fn equal(scan: &Scan, out: &mut Output) -> io::Result<()> {
    let Some(equal) = &scan.equal else { return Ok(()) };
    for EqualWeights { bytes, copies, places, .. } in equal.iter().take(MOST_EQUAL) {
        let first = places.iter().take(MOST_TENSORS);
        let named = |place: &WeightsPlace| {
            format!("{} `{}`", tidy(&place.model).display(), short_name(&place.tensor))
        };
        let mut names: Vec<_> = first.map(named).collect();
        if let Some(more) = places.len().checked_sub(MOST_TENSORS).filter(|more| *more > 0) {
            names.push(format!("and {more} more"));
        }
        let text = format!("{} stored {copies} times: {}", ByteSize(*bytes), names.join(", "));
        row("equal", text, out)?;
    }
    match equal.len().checked_sub(MOST_EQUAL).filter(|more| *more > 0) {
        Some(more) => row("equal", format_args!("and {more} more, see --json"), out),
        None => Ok(()),
    }
}

fn sums(scanned: &Scanned, out: &mut Output) -> io::Result<()> {
    let scan = &scanned.scan;
    let models = count(scan.models.len(), "model");
    let (files, folders) = (count(scan.files, "file"), count(scan.folders.len(), "folder"));
    let bytes = ByteSize(scan.bytes);
    row("total", format_args!("{models}; {files} in {folders} ({bytes})"), out)?;
    let sure = ByteSize(scanned.reclaimable_bytes());
    let mut text = format!("{sure} of files that nobody needs");
    if scan.perhaps_reclaimable() > 0 {
        let more = ByteSize(scan.perhaps_reclaimable());
        text += &format!(", and {more} of files that may be such");
    }
    row("free", text, out)?;
    let Some(bytes) = scan.shareable() else { return Ok(()) };
    let mut text = format!("{} more by storing equal weights once", ByteSize(bytes));
    if let Some(more) = scan.shareable_in_one_folder().filter(|more| *more > 0) {
        let more = ByteSize(more);
        text += &format!(", and {more} of models in different folders: share needs one folder");
    }
    row("share", text, out)
}

fn row(label: &str, text: impl Display, out: &mut Output) -> io::Result<()> {
    out.folded_row(label, text)
}

/// A path with its length and `text`.
fn sized(path: &Path, bytes: u64, text: impl Display) -> String {
    format!("{} ({}): {text}", tidy(path).display(), ByteSize(bytes))
}

/// An error with its path as the other rows have theirs.
fn said(error: &onnx_container::Error) -> String {
    match error.path() {
        Some(path) => format!("{}: {}", tidy(path).display(), error.reason()),
        None => error.to_string(),
    }
}
