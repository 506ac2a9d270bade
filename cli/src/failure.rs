//! How a command ends: done, with findings, or with an error on stderr.

use std::error::Error as _;
use std::io;
use std::process::ExitCode;

use onnx_container::Error;

use crate::output::complain;

/// The end of a command that did what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Done,
    /// Something is wrong with the model, and was said.
    Findings,
}

impl Outcome {
    /// [`Done`](Self::Done) when all is well.
    pub fn of(well: bool) -> Self {
        if well { Self::Done } else { Self::Findings }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Findings => Self::FAILURE,
        }
    }
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The library's error.
    Model(Error),
    /// Standard output does not take what was to be printed.
    Output(io::Error),
    /// The command's own refusal: what, and what to do.
    Refused(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// Prints the failure on stderr: one line for each error and each cause.
    pub fn print(&self) {
        match self {
            Self::Model(error) => print_error(error),
            Self::Output(error) => complain(format_args!("error: standard output: {error}")),
            Self::Refused(reason) => complain(format_args!("error: {reason}")),
        }
    }
}

/// Prints `error`, what it joins and what caused it.
pub fn print_error(error: &Error) {
    if error.related().is_empty() {
        complain(format_args!("error: {error}"));
    } else {
        let path = error.path().map(|path| format!("`{}`: ", path.display())).unwrap_or_default();
        complain(format_args!("error: {path}{}", error.reason()));
        error.related().iter().for_each(|error| complain(format_args!("  {error}")));
    }
    // The message repeats the text of its own source.
    let mut source = error.source().and_then(std::error::Error::source);
    while let Some(cause) = source {
        complain(format_args!("  caused by: {cause}"));
        source = cause.source();
    }
}
