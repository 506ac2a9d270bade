//! The `onnx-container` command, which `main.rs` and the Python package run.
//!
//! Reads the command line, runs one command and turns its outcome into an exit code: 0 done, 1
//! failure or finding, 2 wrong usage, 128 and more for a signal. Commands that compare fail with 2.
//! What a command does is in `commands`.

mod args;
mod commands;
mod files;
mod help;
mod model;
mod signing;
mod terminal;

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::commands::{Cli, leftovers, recover};
use crate::terminal::failure::{Failed, Failure};
pub use crate::terminal::memory::{Counted, fail_without_memory};
use crate::terminal::output::{Output, print_on_stderr};
use crate::terminal::{memory, progress, stop};

/// The number of bytes that `text` says, as options of the command do: `1024`, `16K`, `1.5 GB`.
///
/// # Errors
/// What a size looks like, where `text` is not one.
pub fn parse_size(text: &str) -> Result<u64, String> {
    args::size(text)
}

/// Runs the command line `args`, of which the first one is the name of the program, and returns the
/// exit code. A signal ends the process.
pub fn run_command(args: Vec<OsString>) -> u8 {
    let read = |declared: &mut Command| {
        let parsed = declared.try_get_matches_from_mut(&args);
        let cli = parsed.and_then(|parsed| Cli::from_arg_matches(&parsed));
        cli.map_err(|error| error.format(declared))
    };
    // Arranging the help takes longer than all else here, so it waits for what prints help.
    let cli = match read(&mut Cli::command()).or_else(|_| read(&mut commands::declared())) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, &args),
    };
    progress::set_quiet(cli.quiet);
    #[cfg(feature = "stores")]
    match cli.store_options.iter().cloned().collect::<Result<Vec<_>, _>>() {
        Ok(options) => model::place::set_options(&options),
        Err(reason) => {
            let reason = format!("--store-option: {reason}\n");
            let error = Cli::command().error(clap::error::ErrorKind::ValueValidation, reason);
            return usage(&error, &args);
        }
    }
    let given = cli.command.given();
    let (command, json, models) = (given.name(), given.json(), given.models());
    memory::prepare(command, json, given.code_of_failure());
    stop::watch(command, json);
    models.iter().for_each(|model| recover::before_reading(model));
    if let Some(warning) = args::shard_warning(given.max_shard_size()) {
        print_on_stderr(format_args!("warning: {warning}"));
    }
    let mut out = Output::stdout();
    let mut outcome = progress::during(|| given.run(&mut out));
    if let Err(failure) = &outcome
        && json
        && !failure.is_about_output()
        && let Err(error) = out.json(&Failed::new(command, failure))
    {
        outcome = Err(error.into());
    }
    model::mapped_leftovers::remove();
    let flushed = out.finish().map_err(Failure::from);
    let outcome = outcome.and_then(|outcome| flushed.map(|()| outcome));
    let code = match &outcome {
        Ok(outcome) => (*outcome).into(),
        Err(failure) => {
            failure.print(stop::changed().as_deref());
            failure.exit_code(given.code_of_failure())
        }
    };
    // A check that was completed has the leftovers among its findings.
    if (command != "check" || outcome.is_err()) && !progress::is_quiet() {
        let notes = models.iter().flat_map(|model| leftovers::notes(model));
        notes.for_each(|note| print_on_stderr(format_args!("note: {note}")));
    }
    code
}

/// The declaration of the command line.
pub fn declaration() -> Command {
    commands::declared()
}

/// Prints what is wrong with the arguments `given`, or the help or version that they ask for.
fn usage(error: &clap::Error, given: &[OsString]) -> u8 {
    if error.use_stderr() && given.iter().any(|arg| arg == "--json") {
        let mut out = Output::stdout();
        // Should this fail, the same message is still printed on stderr.
        let said = Failed::usage(commands::command_given(given), &sentence(&error.to_string()));
        let _ = out.json(&said).and_then(|()| out.finish());
    }
    // Nobody reads what cannot be printed.
    let _ = error.print();
    if error.use_stderr() { 2 } else { 0 }
}

/// What is wrong with the arguments, in one line: without the word `error`, tips and the usage.
fn sentence(error: &str) -> String {
    let first = error.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.split_whitespace().skip_while(|word| *word == "error:").collect();
    words.join(" ")
}
