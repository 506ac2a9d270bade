//! How a command ends: done, with findings, or with an error.
//!
//! The error is printed on stderr. With `--json` it is also in the object on standard output.

use std::error::Error as _;
use std::io;

use onnx_container::load::Limit;
pub use onnx_container::scan::explained;
use onnx_container::{Error, ErrorKind, LoadOptions, safetensors};
use serde::Serialize;

use crate::terminal::output::print_on_stderr;
use crate::terminal::safetensors_names::is_safetensors;
use crate::terminal::shell::quoted;

/// The end of a command that did what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// Something is wrong with the model, and was reported.
    Findings,
    /// Some of what was to be compared or checked could not be, and that was reported.
    CouldNot,
}

/// The exit code of a comparison or a check that could not be made: it is told from what was found.
pub const COULD_NOT: u8 = 2;

impl Outcome {
    /// [`Done`](Self::Done) when nothing was found to be wrong.
    pub fn of(well: bool) -> Self {
        if well { Self::Done } else { Self::Findings }
    }
}

impl From<Outcome> for u8 {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => 0,
            Outcome::Findings => 1,
            Outcome::CouldNot => COULD_NOT,
        }
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The library's error.
    Model(Error),
    /// The library's error, and what to do, in some lines.
    Hinted(Error, String),
    /// The machine's error: its kind, and what it says.
    #[cfg(feature = "machine")]
    Machine { kind: String, message: String },
    /// Standard output does not take what was to be printed.
    Output(io::Error),
    /// A refusal by the command itself: the reason, and what to do.
    Refused(String),
    /// Arguments that contradict each other.
    Usage(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of_explained(explained(error))
    }
}

/// What shows the file that `error` is about, where that is no model and a safetensors file.
fn shown(error: &Error) -> Option<String> {
    let path = error.path().filter(|_| error.kind() == ErrorKind::Decode)?;
    let is_shown = is_safetensors(path) && safetensors::inspect(path, LoadOptions::new()).is_ok();
    let path = quoted(&path.display().to_string());
    is_shown.then(|| format!("`inspect {path}` shows what is in it"))
}

/// How a limit is raised, where `error` says that there is more than it allows.
fn raise(error: &Error) -> Option<String> {
    let is_named = |limit: &Limit| {
        let named = format!("the limit `{limit}` can be raised");
        error.each().any(|one| one.reason().contains(&named))
    };
    let limit = Limit::ALL.into_iter().find(is_named)?;
    let such = if limit.is_bytes() { ", such as 1GB" } else { "" };
    Some(format!("`--limit {limit}=N` raises it to N{such}"))
}

#[cfg(feature = "machine")]
impl From<onnx_container_machine::Error> for Failure {
    /// The library's error, where the machine passes one on.
    fn from(error: onnx_container_machine::Error) -> Self {
        match error.container_error() {
            Some(source) => source.clone().into(),
            None => {
                Self::Machine { kind: format!("{:?}", error.kind()), message: error.to_string() }
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// The failure by an error that [`explained`] has been asked about.
    pub fn of_explained(error: Error) -> Self {
        match raise(&error).or_else(|| shown(&error)) {
            Some(hint) => Self::Hinted(error, hint),
            None => Self::Model(error),
        }
    }

    /// Prints the failure on stderr: one line for each error and each cause. If the command did its
    /// work and only the report of it failed, also prints what was `changed`.
    pub fn print(&self, changed: Option<&str>) {
        match (self, changed) {
            (Self::Output(_), Some(changed)) => {
                let message = self.message();
                print_on_stderr(format_args!(
                    "error: {message}; {changed}, only the report could not be printed"
                ));
            }
            (Self::Model(error), _) => print_error(error),
            (Self::Hinted(error, hint), _) => {
                print_error(error);
                hint.lines().for_each(|line| print_on_stderr(format_args!("  {line}")));
            }
            _ => {
                print_on_stderr(format_args!("error: {}", self.message()));
            }
        }
    }

    /// The exit code: 2 for wrong usage, else the `code` of this command's failures.
    pub fn exit_code(&self, code: u8) -> u8 {
        if matches!(self, Self::Usage(_)) { 2 } else { code }
    }

    /// Whether standard output does not take what was to be printed.
    pub fn is_about_output(&self) -> bool {
        matches!(self, Self::Output(_))
    }

    /// The failure with the file that it is about.
    #[cfg(feature = "machine")]
    pub fn about(self, path: &std::path::Path) -> Self {
        match self {
            Self::Model(error) => Self::Model(error.with_path(path)),
            Self::Machine { kind, message } => {
                Self::Machine { kind, message: format!("`{}`: {message}", path.display()) }
            }
            Self::Output(error) => Self::Model(Error::io(path, error)),
            other => other,
        }
    }

    /// Whether a file holds a value of another type or shape than is expected.
    #[cfg(feature = "machine")]
    pub fn is_about_type(&self) -> bool {
        match self {
            Self::Model(error) => error.kind() == onnx_container::ErrorKind::DataType,
            Self::Machine { kind, .. } => kind == "Type",
            _ => false,
        }
    }

    /// What happened, in words.
    pub fn message(&self) -> String {
        match self {
            Self::Model(error) => error.to_string(),
            Self::Hinted(error, hint) => {
                format!("{error}: {}", hint.lines().collect::<Vec<_>>().join(" "))
            }
            #[cfg(feature = "machine")]
            Self::Machine { message, .. } => message.clone(),
            Self::Output(error) => format!("standard output: {error}"),
            Self::Refused(reason) | Self::Usage(reason) => reason.clone(),
        }
    }
}

/// The most errors that are printed on stderr; `--json` has all.
const MOST_LINES: usize = 100;

/// Prints `error`, what it joins and what caused it.
pub fn print_error(error: &Error) {
    if error.related().is_empty() {
        print_on_stderr(format_args!("error: {error}"));
    } else {
        let path = error.path().map(|path| format!("`{}`: ", path.display())).unwrap_or_default();
        print_on_stderr(format_args!("error: {path}{}", error.reason()));
        let shown = error.related().iter().take(MOST_LINES);
        shown.for_each(|error| print_on_stderr(format_args!("  {error}")));
        if let Some(more) = error.related().len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
            print_on_stderr(format_args!("  and {more} more, see --json"));
        }
    }
    let mut source = error.source();
    while let Some(cause) = source {
        print_on_stderr(format_args!("  caused by: {cause}"));
        source = cause.source();
    }
}

/// A failure as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// `None` where the arguments name no command.
    command: Option<String>,
    error: JsonError,
}

impl Failed {
    /// Why `command` failed.
    pub fn new(command: &'static str, failure: &Failure) -> Self {
        Self { command: Some(command.to_owned()), error: JsonError::from(failure) }
    }

    /// `command` was stopped, and what `message` says was changed.
    pub fn stopped(command: &'static str, message: String) -> Self {
        let error = JsonError::plain("Cancelled", message);
        Self { command: Some(command.to_owned()), error }
    }

    /// `command` needs more memory than there is, or than it may have.
    pub fn out_of_memory(command: &'static str, message: String) -> Self {
        let error = JsonError::plain("OutOfMemory", message);
        Self { command: Some(command.to_owned()), error }
    }

    /// The arguments are wrong for the reason in `message`; `command` is `None` when they name no
    /// command.
    pub fn usage(command: Option<String>, message: &str) -> Self {
        Self { command, error: JsonError::plain("Usage", message.to_owned()) }
    }
}

/// An error as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct JsonError {
    /// The library's kind of error, or `Refused` or `Usage`, which are the command's own.
    kind: String,
    tensor: Option<String>,
    path: Option<String>,
    offset: Option<u64>,
    /// The message, as on stderr.
    message: String,
    /// Every single error, where there are several.
    errors: Vec<JsonError>,
}

impl JsonError {
    fn plain(kind: &str, message: String) -> Self {
        let (tensor, path, offset, errors) = (None, None, None, Vec::new());
        Self { kind: kind.to_owned(), tensor, path, offset, message, errors }
    }
}

impl From<&Error> for JsonError {
    fn from(error: &Error) -> Self {
        let joins = !error.related().is_empty();
        let message = if joins { error.reason().to_owned() } else { error.to_string() };
        let errors = error.each().filter(|_| joins);
        Self {
            kind: format!("{:?}", error.kind()),
            tensor: error.tensor().map(str::to_owned),
            path: error.path().map(|path| path.display().to_string()),
            offset: error.offset(),
            message,
            errors: errors.map(Self::from).collect(),
        }
    }
}

impl From<&Failure> for JsonError {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Model(error) => Self::from(error),
            Failure::Hinted(error, _) => Self { message: failure.message(), ..Self::from(error) },
            #[cfg(feature = "machine")]
            Failure::Machine { kind, message } => Self::plain(kind, message.clone()),
            Failure::Output(_) => Self::plain("Io", failure.message()),
            Failure::Refused(_) => Self::plain("Refused", failure.message()),
            Failure::Usage(_) => Self::plain("Usage", failure.message()),
        }
    }
}
