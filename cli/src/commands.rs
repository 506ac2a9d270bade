//! The commands, a module for each or for those that share what they do.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod digest;
#[cfg(feature = "machine")]
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod extract;
pub(crate) mod files;
pub(crate) mod inline;
pub(crate) mod inspect;
pub(crate) mod leftovers;
#[cfg(feature = "machine")]
pub(crate) mod plan;
pub(crate) mod recover;
pub(crate) mod replace;
#[cfg(feature = "machine")]
pub(crate) mod run;
#[cfg(feature = "machine")]
pub(crate) mod trace;
#[cfg(feature = "machine")]
pub(crate) mod verify;
pub(crate) mod write;

use crate::args::Command;
use crate::signing;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

/// Runs one command.
pub(crate) fn run(command: Command, out: &mut Output) -> Result<Outcome, Failure> {
    match command {
        Command::Pack(args) => write::pack(&args, out),
        Command::Split(args) => write::split(&args, out),
        Command::Embed(args) => write::embed(&args, out),
        Command::InlineFunctions(args) => inline::run(&args, out),
        Command::ImportSafetensors(args) => write::import(&args, out),
        Command::ExportSafetensors(args) => export::run(&args, out),
        Command::Check(args) => check::run(&args, out),
        Command::Inspect(args) => inspect::run(&args, out),
        Command::Files(args) => files::run(&args, out),
        Command::Recover(args) => recover::run(&args, out),
        Command::Digest(args) => digest::run(&args, out),
        Command::Diff(args) => diff::diff(&args, out),
        Command::Sign(args) => signing::sign(&args, out),
        Command::VerifySignature(args) => signing::verify(&args, out),
        Command::Extract(args) => extract::run(&args, out),
        Command::Replace(args) => replace::run(&args, out),
        #[cfg(feature = "machine")]
        Command::Plan(args) => plan::run(&args, out),
        #[cfg(feature = "machine")]
        Command::Run(args) => run::run(&args, out),
        #[cfg(feature = "machine")]
        Command::Trace(args) => trace::run(&args, out),
        #[cfg(feature = "machine")]
        Command::Verify(args) => verify::run(&args, out),
        Command::Completions(args) => completions::run(&args, out),
    }
}
