//! `mv`, `cp` and `rm`: a model with its weights files as one thing.
//!
//! Several models are looked at before the first one is changed, so that what is refused is refused
//! in time.

mod together;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use onnx_container::model_files::{
    FileOptions, KeptFile, Placed, PlacedFile, RemovedFile, RemovedModel, Transferred, copy_model,
    move_model, remove_model,
};
use onnx_container::work::fold_case;
use onnx_container::{ByteSize, Error, LoadOptions, SaveOptions};
use onnx_container_signing::signatures_of;
use serde::Serialize;

use crate::args::{CpArgs, MvArgs, PlaceArgs, RmArgs, TransferArgs};
use crate::commands::model_files::together::{Stayed, real, users_first};
use crate::commands::{Execute, leftovers};
use crate::model::reading;
use crate::model::save::print_warnings;
use crate::terminal::failure::{Failure, JsonError, Outcome};
use crate::terminal::output::{Output, count, lossy, lossy_or_null, tidy};
use crate::terminal::{progress, stop};

impl Execute for MvArgs {
    fn name(&self) -> &'static str {
        "mv"
    }

    fn json(&self) -> bool {
        self.transfer.place.json
    }

    fn models(&self) -> Vec<&Path> {
        self.transfer.from().iter().map(PathBuf::as_path).collect()
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        transfer("mv", &self.transfer, out)
    }
}

impl Execute for CpArgs {
    fn name(&self) -> &'static str {
        "cp"
    }

    fn json(&self) -> bool {
        self.transfer.place.json
    }

    fn models(&self) -> Vec<&Path> {
        self.transfer.from().iter().map(PathBuf::as_path).collect()
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        transfer("cp", &self.transfer, out)
    }
}

impl Execute for RmArgs {
    fn name(&self) -> &'static str {
        "rm"
    }

    fn json(&self) -> bool {
        self.place.json
    }

    fn models(&self) -> Vec<&Path> {
        self.models.iter().map(PathBuf::as_path).collect()
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        remove(self, out)
    }
}

/// Moves or copies the models, each after the other.
fn transfer(
    command: &'static str,
    args: &TransferArgs,
    out: &mut Output,
) -> Result<Outcome, Failure> {
    refuse_targets(args)?;
    let save = SaveOptions::new().overwrite(!args.no_clobber).remove_superseded(true);
    let save = save.remove_left_behind(!args.old.keep_old);
    let stayed = Stayed::because_of(args.from());
    let run = |path: &Path, options: FileOptions| match command {
        "mv" => {
            let others = args.from().iter().filter(|other| *other != path);
            let options = options.together_with(others).along(stayed.files());
            let moved = move_model(path, args.to(), options)?;
            stayed.add(&moved.kept);
            Ok(moved)
        }
        _ => copy_model(path, args.to(), options),
    };
    let said = if command == "mv" { "was moved" } else { "was copied" };
    let mut done = each(args.from(), &args.place, said, save, run, agree_on_places)?;
    if done.error.is_none() {
        // What stayed with the first models went with the last one.
        let moved: HashSet<_> = args.from().iter().map(|path| real(path)).collect();
        for one in &mut done.reports {
            one.kept.retain(|file| !moved.contains(&real(&file.needed_by)));
        }
    }
    report(command, &args.place, done, args.from(), out)
}

/// Several models go to a folder, where each has a name of its own.
fn refuse_targets(args: &TransferArgs) -> Result<(), Failure> {
    let to = args.to().display();
    if args.from().len() > 1 && !args.to().is_dir() {
        let reason = format!("`{to}` is not a folder, and several models go to a folder only");
        return Err(Failure::Usage(reason));
    }
    let mut names = HashSet::new();
    for path in args.from().iter().filter(|_| args.to().is_dir()) {
        let name = path.file_name().unwrap_or_default();
        if !names.insert(fold_case(&name.to_string_lossy())) {
            let name = name.display();
            let reason = format!("two models would have the name `{name}` in `{to}`");
            return Err(Failure::Usage(reason));
        }
    }
    Ok(())
}

/// Refuses different files of two models that would have one name: the second model could not
/// follow. One file that both share is there for the second.
fn agree_on_places(plans: &mut [Transferred]) -> Result<(), Failure> {
    let mut taken: HashMap<String, PathBuf> = HashMap::new();
    for file in plans.iter_mut().flat_map(|plan| &mut plan.files) {
        let real = file.from.canonicalize().unwrap_or_else(|_| file.from.clone());
        match taken.entry(fold_case(&file.to.to_string_lossy())) {
            Entry::Vacant(free) => drop(free.insert(real)),
            Entry::Occupied(other) if *other.get() == real => file.placed = Placed::Kept,
            Entry::Occupied(_) => {
                let to = file.to.display();
                return Err(Failure::Refused(format!(
                    "two of the models would have the file `{to}`: choose another place for one of them"
                )));
            }
        }
    }
    Ok(())
}

/// Removes the models, each after the other.
fn remove(args: &RmArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let models = users_first(without_repeats(&args.models));
    let stayed = Stayed::because_of(&models);
    let run = |path: &Path, options: FileOptions| {
        let removed = remove_model(path, options.along(stayed.files()))?;
        stayed.add(&removed.kept);
        Ok(removed)
    };
    let mut done = each(&models, &args.place, "was removed", SaveOptions::new(), run, |_| Ok(()))?;
    forget_removed(&mut done.reports);
    report("rm", &args.place, done, &models, out)
}

/// The models, each once.
fn without_repeats(models: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    models.iter().filter(|path| seen.insert(real(path))).cloned().collect()
}

/// A file that stayed with the first models may go with a later one, and may be one.
fn forget_removed(reports: &mut [RemovedModel]) {
    let removed: HashSet<_> =
        reports.iter().flat_map(|report| &report.removed).map(|file| real(&file.path)).collect();
    for report in reports {
        report.kept.retain(|file| !removed.contains(&real(&file.path)));
        let is_of_removed =
            |warning: &Error| warning.path().is_some_and(|path| removed.contains(&real(path)));
        report.warnings.retain(|warning| !is_of_removed(warning));
    }
}

/// What was done with the first models, and why that is not all of them.
struct Done<T> {
    reports: Vec<T>,
    error: Option<Failure>,
}

/// Calls `run` for each of the models `paths`, first without a change where there are several;
/// `agree` looks at what that plans, and may refuse it.
fn each<T>(
    paths: &[PathBuf],
    args: &PlaceArgs,
    said: &str,
    save: SaveOptions,
    run: impl Fn(&Path, FileOptions) -> Result<T, Error>,
    agree: impl Fn(&mut [T]) -> Result<(), Failure>,
) -> Result<Done<T>, Failure> {
    let load = || LoadOptions::from(reading::of(&args.read));
    let options = |save| FileOptions::new().load(load()).save(save);
    let save = save.sync(!args.no_sync);
    if args.dry_run || paths.len() > 1 {
        let plan = |(number, path): (usize, &PathBuf)| {
            let save = progress::reporting_waits(save.clone());
            let before = paths.iter().take(number);
            run(path, options(save).dry_run(true).as_without(before))
        };
        let mut plans = paths.iter().enumerate().map(plan).collect::<Result<Vec<_>, _>>()?;
        agree(&mut plans)?;
        if args.dry_run {
            return Ok(Done { reports: plans, error: None });
        }
    }
    let mut done = Done { reports: Vec::new(), error: None };
    for path in paths {
        let changed = format!("`{}` {said}", path.display());
        let one = progress::shown_as(save.clone(), changed, |save| match stop::goes_on() {
            true => run(path, options(save)),
            false => Err(stop::cancelled()),
        });
        match one {
            Ok(report) => done.reports.push(report),
            Err(error) if done.reports.is_empty() => return Err(error.into()),
            Err(error) => {
                done.error = Some(error.into());
                break;
            }
        }
    }
    Ok(done)
}

/// A report of the library, for people and as JSON.
trait Report {
    fn warnings(&self) -> &[Error];
    fn print(&self, dry_run: bool, out: &mut Output) -> Result<(), Failure>;
    fn listed(&self) -> Listed<'_>;
}

/// Prints what was done.
fn report<T: Report>(
    command: &'static str,
    args: &PlaceArgs,
    done: Done<T>,
    models: &[PathBuf],
    out: &mut Output,
) -> Result<Outcome, Failure> {
    for report in &done.reports {
        print_warnings(report.warnings());
        if !args.json {
            report.print(args.dry_run, out)?;
        }
    }
    let signatures = signatures(command, models);
    if !args.json {
        for note in &signatures {
            out.row("left", note)?;
        }
    }
    if args.json {
        let left = leftovers::warnings(models.iter().map(PathBuf::as_path));
        let said = done.reports.iter().flat_map(|report| report.warnings());
        let warnings = said.map(ToString::to_string).chain(left).chain(signatures).collect();
        let models = done.reports.iter().map(Report::listed).collect();
        let error = done.error.as_ref().map(JsonError::from);
        out.json(&Listing { command, dry_run: args.dry_run, models, warnings, error })?;
    }
    let Some(error) = done.error else { return Ok(Outcome::Done) };
    error.print(None);
    Ok(Outcome::Findings)
}

/// What is said of the signatures of `models`, which no command takes along: they have the names of
/// files in them.
fn signatures(command: &str, models: &[PathBuf]) -> Vec<String> {
    let next = match command {
        "rm" => "remove it too where nothing else needs it",
        _ => "`sign` signs the model in its new place",
    };
    let mut seen = HashSet::new();
    let found = models.iter().flat_map(|model| {
        let model_name = model.file_name().unwrap_or_default().display();
        let of_it =
            signatures_of(model).into_iter().map(move |path| (path, model_name.to_string()));
        of_it.collect::<Vec<_>>()
    });
    let found = found.filter(|(path, _)| seen.insert(path.clone()));
    found
        .map(|(path, model)| {
            format!("{}: the signature of `{model}` stays; {next}", tidy(&path).display())
        })
        .collect()
}

impl Report for Transferred {
    fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    fn print(&self, dry_run: bool, out: &mut Output) -> Result<(), Failure> {
        for run in self.files.chunk_by(|a, b| how(a) == how(b) && a.replaces == b.replaces) {
            for file in run.iter().take(SHORT) {
                let replaces = if file.replaces { " (replaces a file)" } else { "" };
                let path = format_args!("{}{replaces}", tidy(&file.to).display());
                row(label(how(file), dry_run), file.bytes, path, out)?;
            }
            let more = run.get(SHORT..).unwrap_or_default();
            if let Some(first) = more.first() {
                let bytes =
                    ByteSize(more.iter().map(|file| file.bytes).fold(0, u64::saturating_add));
                let what = format_args!("{} more ({bytes})", count(more.len(), "file"));
                out.row(label(how(first), dry_run), what)?;
            }
        }
        for path in &self.superseded {
            out.row(label("removed", dry_run), tidy(path).display())?;
        }
        for path in &self.left_behind {
            let reason = "only the replaced model needed it";
            out.row("left", format_args!("{}: {reason}", tidy(path).display()))?;
        }
        if !self.links_removed.is_empty() {
            let links = count(self.links_removed.len(), "link");
            let what = format_args!("{links}; the files that they led to stay");
            out.row(label("removed", dry_run), what)?;
        }
        print_kept(&self.kept, out)
    }

    fn listed(&self) -> Listed<'_> {
        let place = |file: &PlacedFile| match how(file) {
            "moved" => "linked",
            how => how,
        };
        let files = self.files.iter().map(|file| ListedFile {
            from: Some(&file.from),
            path: tidy(&file.to),
            bytes: file.bytes,
            placed: Some(place(file)),
            replaces: Some(file.replaces),
            is_link: None,
        });
        let texts = |paths: &[PathBuf]| Some(paths.iter().map(|path| text(path)).collect());
        Listed {
            files: files.collect(),
            kept: kept(&self.kept),
            superseded: texts(&self.superseded),
            left_behind: texts(&self.left_behind),
            links_removed: texts(&self.links_removed),
        }
    }
}

impl Report for RemovedModel {
    fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    fn print(&self, dry_run: bool, out: &mut Output) -> Result<(), Failure> {
        for RemovedFile { path, bytes, is_link, .. } in &self.removed {
            let what = if *is_link { " (the link, not what it leads to)" } else { "" };
            let path = format_args!("{}{what}", tidy(path).display());
            row(label("removed", dry_run), *bytes, path, out)?;
        }
        let bytes = self.removed.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let files = count(self.removed.len(), "file");
        out.row("total", format_args!("{files} ({})", ByteSize(bytes)))?;
        print_kept(&self.kept, out)
    }

    fn listed(&self) -> Listed<'_> {
        let files = self.removed.iter().map(|file| ListedFile {
            from: None,
            path: tidy(&file.path),
            bytes: file.bytes,
            placed: None,
            replaces: None,
            is_link: Some(file.is_link),
        });
        Listed { files: files.collect(), kept: kept(&self.kept), ..Listed::default() }
    }
}

/// How a file got to its place, as a word.
fn how(file: &PlacedFile) -> &'static str {
    match file.placed {
        Placed::Linked => "moved",
        Placed::Shared => "shared",
        Placed::Copied => "copied",
        Placed::Written => "written",
        _ => "kept",
    }
}

/// How many files in a row are named that got there in one way.
const SHORT: usize = 5;

/// The label of a row: what was done, or what would be.
fn label(done: &'static str, dry_run: bool) -> &'static str {
    match (done, dry_run) {
        ("moved", true) => "moves",
        ("copied" | "shared", true) => "copies",
        ("written", true) => "writes",
        ("removed", true) => "removes",
        (done, _) => done,
    }
}

fn row(label: &str, bytes: u64, path: impl Display, out: &mut Output) -> Result<(), Failure> {
    Ok(out.row(label, format_args!("{bytes:>12}  {path}"))?)
}

fn print_kept(kept: &[KeptFile], out: &mut Output) -> Result<(), Failure> {
    for KeptFile { path, needed_by, .. } in kept {
        let (path, user) = (tidy(path).display(), tidy(needed_by).display());
        out.row("stays", format_args!("{path}: `{user}` needs it"))?;
    }
    Ok(())
}

/// What `--json` prints.
#[derive(Serialize)]
struct Listing<'a> {
    command: &'static str,
    dry_run: bool,
    models: Vec<Listed<'a>>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonError>,
}

/// A model as `--json` shows it.
#[derive(Default, Serialize)]
struct Listed<'a> {
    /// The model first.
    files: Vec<ListedFile<'a>>,
    kept: Vec<ListedKept>,
    #[serde(skip_serializing_if = "Option::is_none")]
    superseded: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_behind: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    links_removed: Option<Vec<String>>,
}

#[derive(Serialize)]
struct ListedFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lossy_or_null")]
    from: Option<&'a PathBuf>,
    #[serde(serialize_with = "lossy")]
    path: &'a Path,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    placed: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_link: Option<bool>,
}

#[derive(Serialize)]
struct ListedKept {
    path: String,
    needed_by: String,
}

fn kept(kept: &[KeptFile]) -> Vec<ListedKept> {
    let listed =
        |file: &KeptFile| ListedKept { path: text(&file.path), needed_by: text(&file.needed_by) };
    kept.iter().map(listed).collect()
}

fn text(path: &Path) -> String {
    tidy(path).display().to_string()
}
