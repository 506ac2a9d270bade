//! What a verification finds, what follows from it, and how it is told.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::output::{Output, count, lossy};

/// Why files are not as they were signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Other bytes than those that were signed.
    Changed,
    /// Signed, and not there.
    Missing,
    /// There, or needed by the model, and not signed.
    Unsigned,
    /// Not opened: a link, or no regular file.
    Refused,
}

/// A file that is not as it was signed.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// Beneath the folder of the model.
    pub path: String,
    #[serde(rename = "problem")]
    pub kind: Kind,
    pub reason: String,
}

/// What was found about the files.
#[derive(Debug, Serialize)]
pub struct Files<'a> {
    #[serde(serialize_with = "lossy")]
    pub signature: &'a Path,
    pub as_signed: bool,
    pub method: &'static str,
    pub shard_size: Option<u64>,
    pub signed_files: usize,
    pub problems: Vec<Problem>,
    /// The files that the model has now.
    #[serde(skip)]
    pub own: BTreeSet<String>,
}

/// What was found about the content.
#[derive(Debug, Serialize)]
pub struct Content<'a> {
    #[serde(serialize_with = "lossy")]
    pub signature: &'a Path,
    pub as_signed: bool,
    pub signed_digest: String,
    /// That of the model, unless it has none.
    pub digest: Option<String>,
    pub reason: Option<String>,
}

/// The whole verdict, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Verdict<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    ok: bool,
    key: String,
    curve: &'static str,
    files: Option<Files<'a>>,
    content: Option<Content<'a>>,
}

impl<'a> Verdict<'a> {
    /// What follows. Files that hold need no more, and neither does content, unless `files_required`. Both statements
    /// are about the model: one that does not hold is a contradiction, except that files of the model may differ,
    /// and signed ones may be gone, where its content is as signed.
    pub fn new(
        model: &'a Path,
        (key, curve): (String, &'static str),
        files: Option<Files<'a>>,
        content: Option<Content<'a>>,
        files_required: bool,
    ) -> Self {
        let content_holds = content.as_ref().map(|content| content.as_signed);
        let files_ok = files.as_ref().map(|files| {
            let may_differ = content_holds == Some(true) && !files_required;
            files.as_signed || (may_differ && files.only_written_anew())
        });
        let ok = match (files_ok, content_holds) {
            (None, held) => held == Some(true) && !files_required,
            (Some(files_ok), held) => files_ok && held != Some(false),
        };
        Self { command: "verify-signature", model, ok, key, curve, files, content }
    }

    pub fn ok(&self) -> bool {
        self.ok
    }

    /// Prints the verdict for people.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        out.line(format_args!("key       {} {}", self.curve, self.key))?;
        if let Some(files) = &self.files {
            files.print(out)?;
        }
        if let Some(content) = &self.content {
            content.print(out)?;
        }
        let files = self.files.as_ref().is_some_and(|files| files.as_signed);
        let content = self.content.as_ref().is_some_and(|content| content.as_signed);
        match (self.ok, files, content) {
            (false, ..) => out.line("NOT VERIFIED"),
            (_, true, true) => out.line("verified  by files and content"),
            (_, true, false) => out.line("verified  by files"),
            (_, false, _) if self.files.is_none() => out.line("verified  by content"),
            _ => out.prose("verified  ", "by content alone: its files were written anew"),
        }
    }
}

impl Files<'_> {
    /// Whether all that differs are files of the model, and files that are gone.
    fn only_written_anew(&self) -> bool {
        self.problems.iter().all(|problem| match problem.kind {
            Kind::Missing => true,
            Kind::Changed | Kind::Unsigned => self.own.contains(&problem.path),
            Kind::Refused => false,
        })
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let (signed, path) = (count(self.signed_files, "file"), self.signature.display());
        if self.as_signed {
            return out.prose("files     ", format_args!("as signed: {signed} ({path})"));
        }
        let problems = count(self.problems.len(), "problem");
        out.prose(
            "files     ",
            format_args!("NOT as signed: {problems}, {signed} signed ({path})"),
        )?;
        for Problem { path, kind, reason } in self.problems.iter().take(MOST_LINES) {
            out.prose("          ", format_args!("{} `{path}`: {reason}", kind.name()))?;
        }
        match self.problems.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
            Some(more) => out.line(format_args!("          and {more} more, see --json")),
            None => Ok(()),
        }
    }
}

/// The most problems that are printed; `--json` has all.
const MOST_LINES: usize = 100;

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Unsigned => "unsigned",
            Self::Refused => "refused",
        }
    }
}

impl Content<'_> {
    fn print(&self, out: &mut Output) -> io::Result<()> {
        let path = self.signature.display();
        match &self.reason {
            None => out.prose("content   ", format_args!("as signed ({path})")),
            Some(reason) => {
                out.prose("content   ", format_args!("NOT as signed ({path}): {reason}"))
            }
        }
    }
}
