//! The command line: the commands, a module for each or for those that share what they do.

pub(crate) mod cast;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod digest;
pub(crate) mod edit;
#[cfg(feature = "machine")]
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod extract;
pub(crate) mod files;
pub(crate) mod inline;
pub(crate) mod inspect;
pub(crate) mod leftovers;
pub(crate) mod model_files;
#[cfg(feature = "machine")]
pub(crate) mod plan;
pub(crate) mod recover;
pub(crate) mod replace;
#[cfg(feature = "machine")]
pub(crate) mod run;
pub(crate) mod semantic;
pub(crate) mod signing;
pub(crate) mod stats;
#[cfg(feature = "machine")]
pub(crate) mod trace;
#[cfg(feature = "machine")]
pub(crate) mod verify;
pub(crate) mod write;

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand};

use crate::args::{
    CastArgs, CheckArgs, CompletionsArgs, CpArgs, DiffArgs, DigestArgs, EditArgs, EmbedArgs,
    ExportArgs, ExtractArgs, FilesArgs, ImportArgs, InlineArgs, InspectArgs, MvArgs, PackArgs,
    RecoverArgs, ReplaceArgs, RmArgs, SignArgs, SplitArgs, StatsArgs, VerifySignatureArgs,
};
#[cfg(feature = "machine")]
use crate::args::{PlanArgs, RunArgs, TraceArgs, VerifyArgs};
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

/// Move the weights of large ONNX models out of the model file and back in, and check the result.
#[derive(Debug, Parser)]
#[command(name = "onnx-container", version, propagate_version = true, max_term_width = 80)]
#[command(after_help = "\
Exit code: 0 done, 1 failure or finding, 2 wrong usage, 128 + N stopped by signal N. Of diff and verify: 1 \
different, 2 not compared.\n\n\
With --json, standard output is one JSON object, which has \"error\" after a failure.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the model with its large tensors in one file beside it, or in several of limited
    /// length
    Pack(PackArgs),
    /// Write the model with each large tensor in a file of its own
    Split(SplitArgs),
    /// Write the model as one self-contained file
    Embed(EmbedArgs),
    /// Write the model without local functions: each call becomes the function's nodes
    #[command(visible_alias = "inline")]
    InlineFunctions(InlineArgs),
    /// Fill a model with the weights of safetensors files, by name, and write it
    ImportSafetensors(ImportArgs),
    /// Write the large tensors of a model to safetensors files
    ExportSafetensors(ExportArgs),
    /// Write the model with its weights in another float type, computing in it
    Cast(CastArgs),
    /// List everything that is wrong with the structure of a model and with its weights files
    #[command(after_help = "\
Operators are not compared with their schemas (inputs, attributes, types): \
onnx.checker.check_model(path, full_check=True) does that.")]
    Check(CheckArgs),
    /// Show what is in models or safetensors files, without reading weights
    Inspect(InspectArgs),
    /// Show what the elements of tensors are like: range, mean, deviation, NaN, a histogram
    Stats(StatsArgs),
    /// List the files that a model needs, the model first
    Files(FilesArgs),
    /// Move models with their weights files: to another name, or into a folder
    Mv(MvArgs),
    /// Copy models with their weights files: to another name, or into a folder
    Cp(CpArgs),
    /// Remove models with the weights files that no other model needs
    Rm(RmArgs),
    /// Complete or undo killed saves, of a folder or of one model, and remove what they left
    Recover(RecoverArgs),
    /// Print a digest of a model's content, however it is stored, or of what it computes
    Digest(DigestArgs),
    /// Show what differs between two models: structure, then tensors; or what they compute
    Diff(DiffArgs),
    /// Sign a model: its files, in the format of OpenSSF Model Signing, and its content
    Sign(SignArgs),
    /// Verify the signatures of a model
    VerifySignature(VerifySignatureArgs),
    /// Write single tensors to files that numpy and others read
    Extract(ExtractArgs),
    /// Write the model with other elements in one of its tensors
    Replace(ReplaceArgs),
    /// Write the model with other names and metadata
    Edit(EditArgs),
    /// Plan where every tensor of a run lies in memory, and how much that needs
    #[cfg(feature = "machine")]
    Plan(PlanArgs),
    /// Run a model, on given or random inputs, and show, write or compare its outputs
    #[cfg(feature = "machine")]
    Run(RunArgs),
    /// Run a model and write what every step read and wrote, with digests, as lines of JSON
    #[cfg(feature = "machine")]
    Trace(TraceArgs),
    /// Show that two models compute the same: by their semantic digests, or by running both
    #[cfg(feature = "machine")]
    Verify(VerifyArgs),
    /// Print a completion script for a shell, such as bash: . <(onnx-container completions bash)
    Completions(CompletionsArgs),
}

/// What every command says of itself. Its arguments implement this, in the module of its name.
pub(crate) trait Execute {
    /// The command as it is called.
    fn name(&self) -> &'static str;

    /// Whether it prints its result as JSON.
    fn json(&self) -> bool;

    /// The models that it reads: killed saves of these are completed or undone before.
    fn models(&self) -> Vec<&Path> {
        Vec::new()
    }

    /// How many bytes a shard may have, where that is given.
    fn max_shard_size(&self) -> Option<u64> {
        None
    }

    /// Whether it compares, as POSIX diff does: its exit code is 1 where it found something, and 2
    /// where it failed.
    fn compares(&self) -> bool {
        false
    }

    /// Runs it.
    fn run(&self, out: &mut Output) -> Result<Outcome, Failure>;
}

impl Command {
    /// The command that was given.
    pub(crate) fn given(&self) -> &dyn Execute {
        match self {
            Self::Pack(args) => args,
            Self::Split(args) => args,
            Self::Embed(args) => args,
            Self::InlineFunctions(args) => args,
            Self::ImportSafetensors(args) => args,
            Self::ExportSafetensors(args) => args,
            Self::Cast(args) => args,
            Self::Check(args) => args,
            Self::Inspect(args) => args,
            Self::Stats(args) => args,
            Self::Files(args) => args,
            Self::Mv(args) => args,
            Self::Cp(args) => args,
            Self::Rm(args) => args,
            Self::Recover(args) => args,
            Self::Digest(args) => args,
            Self::Diff(args) => args,
            Self::Sign(args) => args,
            Self::VerifySignature(args) => args,
            Self::Extract(args) => args,
            Self::Replace(args) => args,
            Self::Edit(args) => args,
            #[cfg(feature = "machine")]
            Self::Plan(args) => args,
            #[cfg(feature = "machine")]
            Self::Run(args) => args,
            #[cfg(feature = "machine")]
            Self::Trace(args) => args,
            #[cfg(feature = "machine")]
            Self::Verify(args) => args,
            Self::Completions(args) => args,
        }
    }
}

/// The paths of two models, once where they are the same.
fn different<'a>(a: &'a Path, b: Option<&'a Path>) -> Vec<&'a Path> {
    std::iter::once(a).chain(b.filter(|b| *b != a)).collect()
}

/// The name of the command in the arguments of this process, even when other arguments are wrong.
/// The command is the first word that is not an option, because no option before it takes a value.
pub(crate) fn command_given(args: &[OsString]) -> Option<String> {
    let is_word = |arg: &&OsString| !arg.as_encoded_bytes().starts_with(b"-");
    let mut words = args.iter().skip(1).filter(is_word);
    let cli = Cli::command();
    let command = cli.find_subcommand(words.next()?)?;
    let name = command.get_name();
    Some(match words.next().and_then(|word| command.find_subcommand(word)) {
        Some(part) => format!("{name} {}", part.get_name()),
        None => name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        Cli::command().debug_assert();
    }
}
