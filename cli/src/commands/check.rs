//! `check PATH...`: lists all findings of a model, errors first; of several models and of folders
//! see `several`.

mod several;

mod finite;

use std::path::{Path, PathBuf};

use onnx_container::check::{CheckOptions, Checker, Severity};
use onnx_container::job::{is_committed, jobs_of};
use onnx_container::recovery::interrupted_saves;
use onnx_container::{Error, ErrorKind, LoadOptions};
use onnx_container_files::locations::plain;
use onnx_container_files::{targets, unfinished};
use serde::Serialize;

use crate::args::{CheckArgs, is_url};
use crate::commands::Execute;
use crate::commands::leftovers::{COMMITTED, INTERRUPTED};
use crate::commands::recover;
use crate::files::sha256;
use crate::model::findings::{Findings, PrintedFinding};
use crate::model::needed::{NeededFile, needed};
use crate::model::{place, reading};
use crate::terminal::failure::{COULD_NOT, Failure, JsonError, Outcome, explained, print_error};
use crate::terminal::output::{LABEL, Output, lossy};

impl Execute for CheckArgs {
    fn name(&self) -> &'static str {
        "check"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        let models = self.models.iter().map(PathBuf::as_path);
        models.filter(|path| !path.is_dir()).collect()
    }

    fn code_of_failure(&self) -> u8 {
        COULD_NOT
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        if self.part.is_some() && !self.digests && !self.finite {
            let reason = "--part divides what --digests and --finite read: give one of these too";
            return Err(Failure::Usage(reason.to_owned()));
        }
        match &self.models[..] {
            [model] if !model.is_dir() => one_model(self, model, out),
            _ => several::run(self, out),
        }
    }
}

/// What a check of a model found, and why it could not be read, if it could not.
pub struct Found {
    pub findings: Findings,
    pub error: Option<Error>,
}

/// What checks models as `args` say.
pub fn checker(args: &CheckArgs) -> Checker {
    Checker::new(options(args, reading::of(&args.read).into()))
}

fn options(args: &CheckArgs, load: LoadOptions) -> CheckOptions {
    // This reads few bytes: those of BOOL tensors, and the last byte of tensors with narrower
    // elements.
    let options = CheckOptions::from(load).contents(true).digests(args.digests);
    match args.part {
        Some(part) => options.part(part),
        None => options,
    }
}

/// Checks the model at `path`.
pub fn check(args: &CheckArgs, path: &Path, checker: &mut Checker) -> Found {
    let reading = reading::of(&args.read);
    match place::check(checker, path, reading, |load| options(args, load)) {
        Ok(checked) => {
            let found = not_runnable(args, path).into_iter().chain(other_files(args, path));
            let is_wrong = checked.errors().next().is_some();
            let found = found.chain(finite::not_finite(args, path, is_wrong));
            let mut findings = Findings::of(found, &checked);
            if !is_url(path) {
                findings.extend(unfinished_files(path));
                findings.extend(jobs(path));
            }
            Found { findings: findings.strictly(args.strict), error: None }
        }
        Err(error) => {
            let error = explained(error);
            Found { findings: unreadable(&error, path), error: Some(error) }
        }
    }
}

/// Checks the one model that was given and prints what was found.
fn one_model(args: &CheckArgs, model: &Path, out: &mut Output) -> Result<Outcome, Failure> {
    let found = check(args, model, &mut checker(args));
    if !args.json {
        if let Some(error) = found.error {
            return Err(Failure::of_explained(error));
        }
        print(model, &found.findings, out)?;
        return Ok(Outcome::of(found.findings.ok));
    }
    // The findings are printed also when the model cannot be read.
    found.error.as_ref().into_iter().for_each(print_error);
    let report = CheckReport {
        command: "check",
        model,
        error: found.error.as_ref().map(JsonError::from),
        findings: &found.findings,
        warnings: recover::said(),
    };
    out.json(&report)?;
    Ok(if found.error.is_some() { Outcome::CouldNot } else { Outcome::of(found.findings.ok) })
}

/// The nodes that cannot run, if the options ask for them.
#[cfg(feature = "machine")]
fn not_runnable(args: &CheckArgs, model: &Path) -> Vec<PrintedFinding> {
    use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits};
    if !args.runnable {
        return Vec::new();
    }
    // A model that cannot be loaded is a finding of the check itself.
    let reading = reading::of(&args.read);
    let Ok(container) = place::load(model, reading) else {
        return Vec::new();
    };
    let checked = Program::new(&container, ProgramOptions::new().limits(reading.limits)).and_then(
        |program| Machine::new(program, Registry::new(), RunLimits::new()).check_runnable(),
    );
    checked.err().map(|error| PrintedFinding::of_machine(&error)).unwrap_or_default()
}

#[cfg(not(feature = "machine"))]
fn not_runnable(_: &CheckArgs, _: &Path) -> Vec<PrintedFinding> {
    Vec::new()
}

/// What commands that were killed left in the folder of the model.
fn unfinished_files(model: &Path) -> impl Iterator<Item = PrintedFinding> {
    let left = unfinished::abandoned(targets::folder(model));
    left.into_iter().flat_map(|path| {
        let reason = "left by a command that was killed: `recover` of this folder removes it";
        let error = Error::new(ErrorKind::Changed, reason).with_path(path);
        PrintedFinding::all(Severity::Advice, &error)
    })
}

const OPEN_JOB: &str = "a job that writes this model: `job status` of this folder shows how far it \
                        is, `job abort` ends it";

/// The jobs of the model, which will replace it or were given up.
fn jobs(model: &Path) -> impl Iterator<Item = PrintedFinding> {
    // A folder that cannot be listed is a finding of the check itself.
    let jobs = jobs_of(model).unwrap_or_default();
    jobs.into_iter().flat_map(|path| {
        let (reason, error) = match is_committed(&path) {
            Ok(true) => (format!("a job, {COMMITTED}"), None),
            goes_on => (OPEN_JOB.to_owned(), goes_on.err()),
        };
        let found = Error::new(ErrorKind::Changed, reason).with_path(path);
        let all = error.into_iter().chain([found]);
        all.flat_map(|error| PrintedFinding::all(Severity::Advice, &error)).collect::<Vec<_>>()
    })
}

/// The files that do not have the digests that the options state.
fn other_files(args: &CheckArgs, model: &Path) -> Vec<PrintedFinding> {
    if args.sha256.is_empty() {
        return Vec::new();
    }
    let reading = reading::of(&args.read);
    let needed = match needed(model, reading) {
        Ok((_, needed)) => needed,
        Err(error) => return PrintedFinding::all(Severity::Error, &error),
    };
    let usable = needed.files.iter().filter(|file| file.len.is_ok()).map(Some);
    let own: Vec<_> = [None].into_iter().chain(usable).collect();
    let (mut errors, mut found, mut digests) = (Vec::new(), Vec::new(), Vec::new());
    for (file, expected) in &args.sha256 {
        match called(&own, file, model) {
            Some(file) => {
                found.push(file);
                digests.push(expected);
            }
            None => {
                let reason = "not a file of the model: `files` lists them";
                errors.push(Error::new(ErrorKind::InvalidArgument, reason).with_path(file));
            }
        }
    }
    let hashed = sha256::of_files(model, &needed, &found);
    for ((file, expected), digest) in found.iter().zip(digests).zip(hashed) {
        match digest {
            Ok(digest) if digest == *expected => {}
            Ok(digest) => {
                let reason = format!("its SHA-256 is {digest}, not {expected}");
                let path = path_of(*file, model);
                errors.push(Error::new(ErrorKind::WrongDigest, reason).with_path(path));
            }
            Err(error) => errors.push(error),
        }
    }
    errors.iter().flat_map(|error| PrintedFinding::all(Severity::Error, error)).collect()
}

/// The one of `files`, where `None` is the model, that `name` means: a path from here, or else from
/// the folder of `model`.
fn called<'f>(
    files: &[Option<&'f NeededFile>],
    name: &str,
    model: &Path,
) -> Option<Option<&'f NeededFile>> {
    if is_url(model) {
        let named = |file: &&Option<&NeededFile>| match file {
            Some(file) => plain(&file.location) == plain(name) || file.path == Path::new(name),
            None => model == Path::new(name) || model.file_name() == Some(name.as_ref()),
        };
        return files.iter().find(named).copied();
    }
    let from_model = model.parent().map(|folder| folder.join(name));
    [Some(PathBuf::from(name)), from_model].into_iter().flatten().find_map(|path| {
        let real = path.canonicalize().ok()?;
        let is_it = |file: &&Option<&NeededFile>| {
            path_of(**file, model).canonicalize().is_ok_and(|path| path == real)
        };
        files.iter().find(is_it).copied()
    })
}

fn path_of<'p>(file: Option<&'p NeededFile>, model: &'p Path) -> &'p Path {
    file.map_or(model, |file| &file.path)
}

/// The findings for a `model` that cannot be read: the error, and what interrupted saves left
/// beside it.
fn unreadable(error: &Error, model: &Path) -> Findings {
    let left = interrupted_saves(model).into_iter().flat_map(|path| {
        let error = Error::new(ErrorKind::Changed, INTERRUPTED).with_path(path);
        PrintedFinding::all(Severity::Advice, &error)
    });
    PrintedFinding::all(Severity::Error, error).into_iter().chain(left).collect()
}

/// What `--json` prints.
#[derive(Serialize)]
struct CheckReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    /// Why the model cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonError>,
    #[serde(flatten)]
    findings: &'a Findings,
    /// What was done before the model was read.
    warnings: Vec<String>,
}

fn print(model: &Path, findings: &Findings, out: &mut Output) -> Result<(), Failure> {
    for found in &findings.findings {
        out.folded(found, LABEL)?;
    }
    if let Some(rest) = findings.rest() {
        out.line(rest)?;
    }
    if let Some(compared) = &findings.compared {
        out.line(format_args!("compared {compared}"))?;
    }
    let verdict = if findings.ok { "ok" } else { "not ok" };
    out.folded(format_args!("{verdict}: {}: {findings}", model.display()), LABEL)?;
    Ok(())
}
