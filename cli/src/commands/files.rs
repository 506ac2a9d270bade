//! `files MODEL`: the exact list of the files that a model needs, for scripts.
//!
//! A missing file is listed, because the model needs it. A location outside the model's
//! directory is not listed, because a script would copy the file there. Other models that need a
//! file are named on standard error.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use onnx_container::Error;
use onnx_container::model_files::other_models_that_need;
use serde::Serialize;

use crate::args::{FilesArgs, is_url};
use crate::commands::Execute;
use crate::commands::leftovers;
use crate::model::needed::{Needed, NeededFile, State, needed};
use crate::model::reading;
use crate::terminal::failure::{Failure, JsonError, Outcome, print_error};
use crate::terminal::output::{Output, lossy, print_on_stderr, tidy};
use crate::terminal::progress::is_quiet;

impl Execute for FilesArgs {
    fn name(&self) -> &'static str {
        "files"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        vec![&self.model]
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Prints the list, and on stderr what is wrong with the files.
fn run(args: &FilesArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let (_, needed) = needed(&args.model, reading::of(&args.read))?;
    let users = users(&args.model, &needed);
    if args.json {
        out.json(&listing(args, &needed, &users))?;
    } else {
        print(args, &needed, out)?;
        print_users(&needed, &users);
    }
    let problems = needed.problems();
    if let Some(error) = &problems {
        print_error(error);
    }
    Ok(Outcome::of(problems.is_none()))
}

/// The other models that need a file, by its location, or why that is not known.
type Users = Result<BTreeMap<String, Vec<PathBuf>>, Error>;

fn users(model: &Path, needed: &Needed) -> Users {
    // Which models of a store name a file is only known after reading all of them.
    if is_url(model) {
        return Ok(BTreeMap::new());
    }
    let usable = needed.files.iter().filter(|file| file.state() != State::Refused);
    other_models_that_need(model, usable.map(|file| file.location.clone()))
}

/// Says on stderr which files other models need too: the list is for scripts.
fn print_users(needed: &Needed, users: &Users) {
    match users {
        Ok(users) => {
            let noted = needed.files.iter().filter(|_| !is_quiet());
            for file in noted {
                if let Some(models) = users.get(&file.location) {
                    let path = tidy(&file.path).display();
                    print_on_stderr(format_args!(
                        "note: `{path}` is also needed by {}",
                        listed(models)
                    ));
                }
            }
        }
        Err(error) => print_on_stderr(format_args!("warning: {}", unknown(error))),
    }
}

/// The most models that are named in a note.
const MOST_NAMED: usize = 5;

fn listed(models: &[PathBuf]) -> String {
    let first = models.iter().take(MOST_NAMED);
    let names: Vec<_> = first.map(|path| format!("`{}`", tidy(path).display())).collect();
    match models.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
        Some(more) => format!("{} and {more} more", names.join(", ")),
        None => names.join(", "),
    }
}

fn unknown(error: &Error) -> String {
    format!("which other models need these files is not known: {error}")
}

fn print(args: &FilesArgs, needed: &Needed, out: &mut Output) -> Result<(), Failure> {
    let end = if args.null { b'\0' } else { b'\n' };
    let usable = needed.files.iter().filter(|file| file.state() != State::Refused);
    let paths: Vec<_> = [&args.model]
        .into_iter()
        .chain(usable.map(|file| &file.path))
        .map(|path| not_an_option(path))
        .collect();
    if let Some(path) = paths.iter().find(|path| bytes(path).contains(&end)) {
        let reason = format!(
            "`{}` has a line break in its name: use --null to separate the names",
            path.display()
        );
        return Err(Failure::Refused(reason));
    }
    for path in &paths {
        out.write_all(bytes(path))?;
        out.write_all(&[end])?;
    }
    Ok(())
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// `path`, written so that no command takes it for an option.
pub fn not_an_option(path: &Path) -> PathBuf {
    if bytes(path).starts_with(b"-") { Path::new(".").join(path) } else { path.to_owned() }
}

#[derive(Serialize)]
struct Listing<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    model: &'a Path,
    files: Vec<ListedFile<'a>>,
    problems: Vec<String>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonError>,
}

/// A weights file, and the other models that need it.
#[derive(Serialize)]
struct ListedFile<'a> {
    #[serde(flatten)]
    file: Listed<'a>,
    also_needed_by: Vec<String>,
}

/// A weights file as `--json` shows it.
#[derive(Debug, Serialize)]
pub struct Listed<'a> {
    #[serde(serialize_with = "lossy")]
    pub path: &'a Path,
    pub location: &'a str,
    pub state: State,
    /// The length of the file.
    pub bytes: Option<u64>,
    /// Where the last of its tensors ends.
    pub needed_bytes: u64,
    pub tensors: usize,
    pub reason: Option<String>,
}

impl<'a> From<&'a NeededFile> for Listed<'a> {
    fn from(file: &'a NeededFile) -> Self {
        let (bytes, reason) = match &file.len {
            Ok(len) => (*len, None),
            Err(error) => (None, Some(error.reason().to_owned())),
        };
        let NeededFile { location, path, tensors, end, .. } = file;
        let (state, tensors, needed_bytes) = (file.state(), *tensors, *end);
        Self { path, location, state, bytes, needed_bytes, tensors, reason }
    }
}

fn listing<'a>(args: &'a FilesArgs, needed: &'a Needed, users: &Users) -> Listing<'a> {
    let of = |file: &NeededFile| {
        let models = users.as_ref().ok().and_then(|users| users.get(&file.location));
        let models = models.into_iter().flatten();
        models.map(|path| tidy(path).display().to_string()).collect()
    };
    let files = needed.files.iter();
    let files = files.map(|file| ListedFile { file: file.into(), also_needed_by: of(file) });
    let problems = needed.errors.iter().map(ToString::to_string).collect();
    let error = needed.problems().as_ref().map(JsonError::from);
    let mut warnings = leftovers::warnings([args.model.as_path()]);
    warnings.extend(users.as_ref().err().map(unknown));
    let files = files.collect();
    Listing { command: "files", model: &args.model, files, problems, warnings, error }
}
