//! How a verdict is told to people.

use std::io;

use onnx_container_signing::{ContentVerdict, FilesVerdict, Problem, ProblemKind, Verdict};

use crate::terminal::output::{Output, count};

/// The most problems that are printed; `--json` has all.
const MOST_LINES: usize = 100;

/// The most files whose names are in the last line.
const MOST_NAMES: usize = 3;

/// What is said of files that are hashed in shards of so many bytes.
pub fn pieces(shard_size: Option<u64>) -> String {
    shard_size.map_or_else(String::new, |size| format!(" in shards of {size} bytes"))
}

/// Prints the verdict.
pub fn print(verdict: &Verdict, out: &mut Output) -> io::Result<()> {
    out.line(format_args!("key       {} {}", verdict.curve, verdict.key))?;
    if let Some(files) = &verdict.files {
        print_files(files, out)?;
    }
    if let Some(content) = &verdict.content {
        print_content(content, out)?;
    }
    if let Some(reason) = &verdict.reason {
        return out.prose("NOT VERIFIED: ", reason);
    }
    let content_holds =
        verdict.content.as_ref().is_some_and(|content| content.as_signed == Some(true));
    match &verdict.files {
        None => out.line("verified  by content"),
        Some(files) if files.as_signed && content_holds => {
            out.line("verified  by files and content")
        }
        Some(files) if files.as_signed => out.line("verified  by files"),
        Some(files) => {
            out.prose("verified  ", format_args!("by content alone: {}", written(files)))
        }
    }
}

/// What became of the files of a model whose content is as signed.
fn written(files: &FilesVerdict) -> String {
    let gone = files.problems.iter().filter(|problem| problem.kind == ProblemKind::Missing);
    let gone: Vec<_> = gone.map(|problem| problem.path.as_str()).collect();
    let mut texts = Vec::new();
    if gone.len() < files.problems.len() {
        texts.push("its files were written anew".to_owned());
    }
    if !gone.is_empty() {
        let verb = if gone.len() == 1 { "is" } else { "are" };
        let more = if gone.len() > MOST_NAMES { ", ..." } else { "" };
        let names = gone.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
        texts.push(format!("{} {verb} gone ({names}{more})", count(gone.len(), "signed file")));
    }
    texts.join(", and ")
}

fn print_files(files: &FilesVerdict, out: &mut Output) -> io::Result<()> {
    let (signed, path) = (count(files.signed_files, "file"), files.signature.display());
    let pieces = pieces(files.shard_size);
    if files.as_signed {
        out.prose("files     ", format_args!("as signed: {signed}{pieces} ({path})"))?;
        return print_left_out(&files.left_out, out);
    }
    let problems = count(files.problems.len(), "problem");
    out.prose(
        "files     ",
        format_args!("NOT as signed: {problems}, {signed} signed{pieces} ({path})"),
    )?;
    for Problem { path, kind, reason, .. } in files.problems.iter().take(MOST_LINES) {
        out.prose("          ", format_args!("{} `{path}`: {reason}", kind.name()))?;
    }
    if let Some(more) = files.problems.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        out.line(format_args!("          and {more} more, see --json"))?;
    }
    print_left_out(&files.left_out, out)
}

/// Says of what the statement says nothing.
fn print_left_out(paths: &[String], out: &mut Output) -> io::Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let names = paths.iter().take(MOST_NAMES).map(|path| format!("`{path}`"));
    let more = if paths.len() > MOST_NAMES { ", ..." } else { "" };
    let (files, names) = (count(paths.len(), "other file"), names.collect::<Vec<_>>().join(", "));
    let verb = if paths.len() == 1 { "is" } else { "are" };
    out.prose(
        "          ",
        format_args!("{files} here {verb} not signed, as the signature says: {names}{more}"),
    )
}

fn print_content(content: &ContentVerdict, out: &mut Output) -> io::Result<()> {
    let path = content.signature.display();
    let what = match content.as_signed {
        Some(true) => {
            out.prose("content   ", format_args!("as signed ({path})"))?;
            let Some(why) = &content.ambiguous else { return Ok(()) };
            return out.prose("          ", format_args!("not for every reader: {why}"));
        }
        Some(false) => "NOT as signed",
        None if content.is_of_another() => "not signed",
        None => "NOT COMPARED",
    };
    let reason = content.reason.as_deref().unwrap_or_default();
    out.prose("content   ", format_args!("{what} ({path}): {reason}"))
}
