//! `completions SHELL`: a completion script, from the declaration of the command line.

use std::io::Write;

use clap_complete::Shell;

use crate::args::CompletionsArgs;
use crate::commands::{Execute, declared};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

impl Execute for CompletionsArgs {
    fn name(&self) -> &'static str {
        "completions"
    }

    fn json(&self) -> bool {
        false
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Prints the script.
fn run(args: &CompletionsArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut declared(), "onnx-container", &mut script);
    if args.shell == Shell::Bash {
        script = named_alike(&String::from_utf8_lossy(&script)).into_bytes();
    }
    out.write_all(&script)?;
    Ok(Outcome::Done)
}

/// The script for bash with one name for each command: where its name has a hyphen, clap_complete
/// 4.6 sets `onnx__container__subcmd__pack` and compares it with
/// `onnx__subcmd__container__subcmd__pack`.
fn named_alike(script: &str) -> String {
    script.replace("onnx__subcmd__container", "onnx__container")
}
