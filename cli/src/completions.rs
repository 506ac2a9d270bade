//! `completions SHELL`: a completion script, from the declaration of the command line.

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Prints the script.
pub fn run(args: &CompletionsArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "onnx-container", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Done)
}
