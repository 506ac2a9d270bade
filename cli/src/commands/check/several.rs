//! `check` of several models and of folders: a row for each model, and then what was found.
//!
//! A folder is scanned for its models. What is wrong with the folder itself is found too: files
//! that no model needs, weights without a model, links to nothing, and what saves left.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use onnx_container::check::{Checker, Severity};
use onnx_container::scan::{Certainty, LeftKind, Scan, ScanOptions, scan};
use onnx_container::{ByteSize, Error, ErrorKind};
use serde::Serialize;

use super::{Found, check, checker};
use crate::args::CheckArgs;
use crate::commands::recover;
use crate::model::findings::{Findings, PrintedFinding};
use crate::terminal::failure::{Failure, JsonError, Outcome, explained, print_error};
use crate::terminal::output::{LABEL, Output, count, lossy, tidy};
use crate::terminal::progress::is_quiet;

/// Checks everything below the paths and prints what was found.
pub fn run(args: &CheckArgs, out: &mut Output) -> Result<Outcome, Failure> {
    if !args.sha256.is_empty() {
        let reason = "--sha256 is for one model: give its path alone";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let mut all = Several::new(args);
    for path in &args.models {
        if path.is_dir() { all.folder(args, path) } else { all.model(args, path) }
    }
    all.say_where_no_model_is(args);
    if args.json {
        all.all().filter_map(|(_, found)| found.error.as_ref()).for_each(print_error);
        out.json(&all.report())?
    } else {
        all.print(out)?
    }
    Ok(all.outcome())
}

/// What was checked, and what checks it.
struct Several {
    checker: Checker,
    models: Vec<(PathBuf, Found)>,
    folders: Vec<(PathBuf, Found)>,
    /// The files that no model needs, each once: the checks of all models of a folder tell them.
    told: HashSet<String>,
    /// The models, each once whatever paths were given: one file in two folders is two models.
    seen: HashSet<(Option<PathBuf>, PathBuf)>,
}

impl Several {
    fn new(args: &CheckArgs) -> Self {
        Self {
            checker: checker(args),
            models: Vec::new(),
            folders: Vec::new(),
            told: HashSet::new(),
            seen: HashSet::new(),
        }
    }

    /// Checks the model at `path`, unless that was done.
    fn model(&mut self, args: &CheckArgs, path: &Path) {
        let folder = std::path::absolute(path).ok();
        let folder = folder.and_then(|path| path.parent()?.canonicalize().ok());
        let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if self.seen.insert((folder, file)) {
            let mut found = check(args, path, &mut self.checker);
            let unneeded = format!("{:?}", ErrorKind::Unneeded);
            found.findings.drop_advice(|advice| {
                let file = advice.path.as_ref().filter(|_| advice.kind == unneeded);
                file.is_some_and(|file| !self.told.insert(file.clone()))
            });
            found.findings = found.findings.strictly(args.strict);
            self.models.push((path.to_owned(), found));
        }
    }

    /// Checks every model below `folder`, and the folder.
    fn folder(&mut self, args: &CheckArgs, folder: &Path) {
        let found = match scan(folder, ScanOptions::new()) {
            Ok(scan) => {
                for model in &scan.models {
                    recover::before_reading(&model.path);
                    self.model(args, &model.path);
                }
                let findings = self.of_folder(&scan).strictly(args.strict);
                Found { findings, error: Error::join(scan.errors) }
            }
            Err(error) => {
                let error = explained(error);
                let findings = PrintedFinding::all(Severity::Error, &error).into_iter().collect();
                Found { findings, error: Some(error) }
            }
        };
        self.folders.push((folder.to_owned(), found));
    }

    /// Where no models were found at all, says so of each folder that could be looked through.
    fn say_where_no_model_is(&mut self, args: &CheckArgs) {
        if !self.models.is_empty() {
            return;
        }
        for (path, found) in self.folders.iter_mut().filter(|(_, found)| found.error.is_none()) {
            let none = Error::new(ErrorKind::MissingFile, "no models here").with_path(&*path);
            let before = std::mem::take(&mut found.findings.findings);
            let all = PrintedFinding::all(Severity::Error, &none).into_iter().chain(before);
            found.findings = all.collect::<Findings>().strictly(args.strict);
        }
    }

    /// What is wrong with a folder itself, and was not found at its models.
    fn of_folder(&self, scan: &Scan) -> Findings {
        let known = self.models.iter().flat_map(|(_, found)| &found.findings.findings);
        let known: HashSet<_> = known.filter_map(|finding| finding.path.as_deref()).collect();
        let is_new = |error: &Error| {
            error.path().is_none_or(|path| !known.contains(&*path.to_string_lossy()))
        };
        let all = errors(scan).chain(advice(scan)).filter(|(_, error)| is_new(error));
        all.flat_map(|(severity, error)| PrintedFinding::all(severity, &error)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &(PathBuf, Found)> {
        self.models.iter().chain(&self.folders)
    }

    /// Whether there are models, and all is well.
    fn is_ok(&self) -> bool {
        let is_ok = |found: &Found| found.error.is_none() && found.findings.ok;
        !self.models.is_empty() && self.all().all(|(_, found)| is_ok(found))
    }

    fn outcome(&self) -> Outcome {
        let is_unread = self.all().any(|(_, found)| found.error.is_some());
        if is_unread { Outcome::CouldNot } else { Outcome::of(self.is_ok()) }
    }

    /// A row for each model, and each folder of which there is something to say, and then what was
    /// found of each.
    fn print(&self, out: &mut Output) -> std::io::Result<()> {
        let is_shown = |(_, found): &&(PathBuf, Found)| !is_quiet() || verdict(found) != OK;
        let has_findings = |(_, found): &&(PathBuf, Found)| !found.findings.findings.is_empty();
        let folders = self.folders.iter().filter(has_findings);
        let rows: Vec<_> = self.models.iter().chain(folders).filter(is_shown).collect();
        for (path, found) in &rows {
            let (verdict, findings) = (verdict(found), &found.findings);
            let path = tidy(path).display();
            out.folded(format_args!("{verdict:<8}{path}: {findings}"), LABEL)?;
        }
        for (path, found) in self.all().filter(has_findings).filter(is_shown) {
            out.line("")?;
            out.line(format_args!("{}:", tidy(path).display()))?;
            for finding in &found.findings.findings {
                out.folded(format_args!("  {finding}"), LABEL)?;
            }
            if let Some(rest) = found.findings.rest() {
                out.line(format_args!("  {rest}"))?;
            }
        }
        if !rows.is_empty() {
            out.line("")?;
        }
        out.line(self.sum())
    }

    /// The verdict of all.
    fn sum(&self) -> String {
        let number = |of: fn(&Found) -> bool| self.models.iter().filter(|it| of(&it.1)).count();
        let unread = number(|found| found.error.is_some());
        let wrong = number(|found| found.error.is_none() && !found.findings.ok);
        let verdict = if self.is_ok() { OK } else { NOT_OK };
        let models = match self.models.len() {
            0 => "no models".to_owned(),
            some => count(some, "model"),
        };
        // Without models the errors of the folders are that there are none, and why.
        let of_folders = self.folders.iter().map(|(_, found)| found.findings.errors).sum();
        let of_folders = if self.models.is_empty() { 0 } else { of_folders };
        let folders = if self.folders.len() == 1 { "the folder" } else { "the folders" };
        let advice = self.all().map(|(_, found)| found.findings.advice).sum::<usize>();
        let parts = [
            (wrong, format!("{wrong} not ok")),
            (unread, format!("{unread} failed")),
            (of_folders, format!("{} of {folders}", count(of_folders, "error"))),
            (advice, format!("{advice} advice")),
        ];
        let parts = parts.into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<_> = [models].into_iter().chain(parts.map(|(_, text)| text)).collect();
        format!("{verdict}: {}", parts.join(", "))
    }

    fn report(&self) -> Report<'_> {
        fn one((path, found): &(PathBuf, Found)) -> One<'_> {
            let error = found.error.as_ref().map(JsonError::from);
            One { path, error, findings: &found.findings }
        }
        let sum = |of: fn(&Findings) -> usize| self.all().map(|it| of(&it.1.findings)).sum();
        Report {
            command: "check",
            ok: self.is_ok(),
            errors: sum(|findings| findings.errors),
            advice: sum(|findings| findings.advice),
            not_listed: sum(|findings| findings.not_listed),
            models: self.models.iter().map(one).collect(),
            folders: self.folders.iter().map(one).collect(),
            warnings: recover::said(),
        }
    }
}

const OK: &str = "ok";
const NOT_OK: &str = "not ok";

/// What the row of a model or a folder begins with.
fn verdict(found: &Found) -> &'static str {
    match (&found.error, found.findings.ok) {
        (Some(_), _) => "failed",
        (None, true) => OK,
        (None, false) => NOT_OK,
    }
}

/// What cannot be read in the folder of a scan: also what has the name of a model and is not one.
fn errors(scan: &Scan) -> impl Iterator<Item = (Severity, Error)> {
    let dangling = scan.dangling.iter().filter(|error| is_model(error));
    scan.errors
        .iter()
        .chain(&scan.not_models)
        .chain(dangling)
        .map(|error| (Severity::Error, error.clone()))
}

/// Whether `error` is about a file that has the name of a model.
fn is_model(error: &Error) -> bool {
    let extension = error.path().and_then(Path::extension);
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"))
}

/// What is in the folder of a scan and nobody needs, and what is to be done there.
fn advice(scan: &Scan) -> impl Iterator<Item = (Severity, Error)> {
    let orphans = scan.orphans.iter().filter(|it| it.certainty != Certainty::Possible);
    let orphans = orphans.map(|it| {
        let reason = format!("{} of weights: {}", ByteSize(it.bytes), it.reason);
        Error::new(ErrorKind::InvalidModel, reason).with_path(&it.path)
    });
    let lost = scan.without_model.iter().map(|it| {
        let reason =
            format!("{} ({}) and no model", count(it.files, "weights file"), ByteSize(it.bytes));
        Error::new(ErrorKind::InvalidModel, reason).with_path(&it.path)
    });
    let left = scan.left.iter().filter_map(|it| {
        let reason = match it.kind {
            LeftKind::Needed => "left by a save that was interrupted while it put files in place: `recover` completes it",
            LeftKind::Unneeded => "left by an interrupted save, or by a job that ended: `recover` removes it",
            _ => return None,
        };
        Some(Error::new(ErrorKind::Changed, reason).with_path(&it.path))
    });
    let links = scan.dangling.iter().filter(|error| !is_model(error)).cloned();
    orphans.chain(lost).chain(left).chain(links).map(|error| (Severity::Advice, error))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    command: &'static str,
    ok: bool,
    errors: usize,
    advice: usize,
    not_listed: usize,
    models: Vec<One<'a>>,
    folders: Vec<One<'a>>,
    warnings: Vec<String>,
}

/// A model or a folder, and what was found.
#[derive(Serialize)]
struct One<'a> {
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    /// Why it, or a part of it, could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonError>,
    #[serde(flatten)]
    findings: &'a Findings,
}
