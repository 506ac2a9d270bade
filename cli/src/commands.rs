//! The command line: the commands, a module for each or for those that share what they do.

pub(crate) mod attach;
pub(crate) mod cast;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod digest;
pub(crate) mod each;
pub(crate) mod edit;
#[cfg(feature = "machine")]
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod extract;
pub(crate) mod files;
pub(crate) mod inline;
pub(crate) mod inspect;
pub(crate) mod job;
pub(crate) mod leftovers;
pub(crate) mod man;
pub(crate) mod model_files;
pub(crate) mod parts;
#[cfg(feature = "machine")]
pub(crate) mod plan;
#[cfg(feature = "stores")]
pub(crate) mod publish;
pub(crate) mod recover;
pub(crate) mod replace;
pub(crate) mod report;
#[cfg(feature = "machine")]
pub(crate) mod run;
pub(crate) mod scan;
pub(crate) mod semantic;
pub(crate) mod share;
pub(crate) mod signing;
pub(crate) mod stats;
#[cfg(feature = "stores")]
pub(crate) mod stores;
pub(crate) mod strip;
#[cfg(feature = "stores")]
pub(crate) mod sweep;
#[cfg(feature = "machine")]
pub(crate) mod trace;
#[cfg(feature = "machine")]
pub(crate) mod verify;
pub(crate) mod write;

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, Parser, Subcommand};

use crate::args::{AttachArgs, ExtractModelArgs, MergeArgs, ShareArgs, StripArgs};
use crate::args::{
    CastArgs, CheckArgs, CompletionsArgs, CpArgs, DiffArgs, DigestArgs, EditArgs, EmbedArgs,
    ExportArgs, ExtractArgs, FilesArgs, ImportArgs, InlineArgs, InspectArgs, JobArgs, ManArgs,
    MvArgs, PackArgs, RecoverArgs, ReplaceArgs, ReportArgs, RmArgs, ScanArgs, SignArgs, SplitArgs,
    StatsArgs, VerifySignatureArgs,
};
#[cfg(feature = "machine")]
use crate::args::{PlanArgs, RunArgs, TraceArgs, VerifyArgs};
#[cfg(feature = "stores")]
use crate::args::{
    PublishArgs, RollbackArgs, StoreOption, StoresArgs, SweepArgs, VersionsArgs, given_store_option,
};
use crate::help;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::Output;

/// Look at, move, change, check, sign and run large ONNX models and their weights.
#[derive(Debug, Parser)]
#[command(name = "onnx-container", version, propagate_version = true, max_term_width = 80)]
#[command(after_help = "\
Exit code: 0 done, 1 failure or finding, 2 wrong usage, 128 + N stopped by signal N. check, \
diff, verify, trace diff and run --expect tell more: 0 nothing wrong or the same, 1 findings or a difference, 2 could \
not check or compare.\n\n\
With --json, standard output is one JSON object, which has \"error\" after a failure.")]
pub(crate) struct Cli {
    /// Show no progress and no notes
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    /// Set an option of stores that is no secret, such as aws_region=eu-west-1; may be given
    /// several times. Secrets come from the environment
    #[cfg(feature = "stores")]
    #[arg(long = "store-option", value_name = "NAME=VALUE", value_parser = given_store_option, global = true, hide_short_help = true, help_heading = "Common options")]
    pub(crate) store_options: Vec<StoreOption>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put large tensors in one file, or shards, beside the model
    Pack(PackArgs),
    /// Put each large tensor in a file of its own
    Split(SplitArgs),
    /// Write the model as one self-contained file
    Embed(EmbedArgs),
    /// Replace calls of functions by their nodes
    #[command(visible_alias = "inline")]
    InlineFunctions(InlineArgs),
    /// Fill a model with the weights of safetensors files
    ImportSafetensors(ImportArgs),
    /// Write the large tensors to safetensors files
    ExportSafetensors(ExportArgs),
    /// Write the model in another float type
    #[command(alias = "convert")]
    Cast(CastArgs),
    /// List everything that is wrong with models and their files
    #[command(after_help = "\
Operators are not compared with their schemas (inputs, attributes, types): \
onnx.checker.check_model(path, full_check=True) does that.")]
    #[command(alias = "validate")]
    Check(CheckArgs),
    /// Show what is in models, without reading their weights
    #[command(aliases = ["info", "show"])]
    Inspect(InspectArgs),
    /// Show range, mean, deviation and NaN of tensors
    Stats(StatsArgs),
    /// Write one page for a browser: weights, files, findings
    Report(ReportArgs),
    /// List the files that a model needs, the model first
    Files(FilesArgs),
    /// Move models with their weights files
    Mv(MvArgs),
    /// Copy models with their weights files
    Cp(CpArgs),
    /// Remove models with the weights files that only they need
    Rm(RmArgs),
    /// List every model below folders, and what no model needs
    Scan(ScanArgs),
    /// Put the weights of several models into one file
    Share(ShareArgs),
    /// Write a model with many processes, part by part
    Job(JobArgs),
    /// Publish a model in a store, as readers see it whole
    #[cfg(feature = "stores")]
    Publish(Box<PublishArgs>),
    /// Publish an earlier version of a model in a store again
    #[cfg(feature = "stores")]
    Rollback(RollbackArgs),
    /// List the versions of a model in a store
    #[cfg(feature = "stores")]
    Versions(VersionsArgs),
    /// Find weights files in a store that no model needs
    #[cfg(feature = "stores")]
    Sweep(SweepArgs),
    /// Tell what a store can do
    #[cfg(feature = "stores")]
    Stores(StoresArgs),
    /// Complete or undo saves that were killed
    Recover(RecoverArgs),
    /// Print a digest of what a model contains or computes
    Digest(DigestArgs),
    /// Tell where two models differ
    #[command(alias = "compare")]
    Diff(DiffArgs),
    /// Sign a model: its files and its content
    Sign(SignArgs),
    /// Verify the signatures of a model
    VerifySignature(VerifySignatureArgs),
    /// Write single tensors to files that numpy and others read
    Extract(ExtractArgs),
    /// Write the model with other elements in one tensor
    Replace(ReplaceArgs),
    /// Write the model with other names and metadata
    #[command(aliases = ["metadata", "rename"])]
    Edit(EditArgs),
    /// Write the model without the elements of its weights
    Strip(StripArgs),
    /// Put weights back into a model that was stripped of them
    Attach(AttachArgs),
    /// Write the part of a model between some of its values
    ExtractModel(ExtractModelArgs),
    /// Write two models as one
    Merge(MergeArgs),
    /// Plan where every tensor of a run lies in memory
    #[cfg(feature = "machine")]
    Plan(PlanArgs),
    /// Run a model; show, write or compare its outputs
    #[cfg(feature = "machine")]
    Run(RunArgs),
    /// Write what every step of a run read and wrote
    #[cfg(feature = "machine")]
    Trace(TraceArgs),
    /// Show that two models compute the same
    #[cfg(feature = "machine")]
    Verify(VerifyArgs),
    /// Print a completion script for bash, zsh or fish
    Completions(CompletionsArgs),
    /// Write the manual pages of all commands to a folder
    Man(ManArgs),
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

    /// The exit code when it cannot do what it was asked. A command that tells by its exit code
    /// what it found has another one for that.
    fn code_of_failure(&self) -> u8 {
        1
    }

    /// How many bytes a shard may have, where that is given.
    fn max_shard_size(&self) -> Option<u64> {
        None
    }

    /// Runs it.
    fn run(&self, out: &mut Output) -> Result<Outcome, Failure>;
}

/// The declaration of the command line, with its help arranged.
pub(crate) fn declared() -> clap::Command {
    help::arrange(Cli::command())
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
            Self::Report(args) => args,
            Self::Files(args) => args,
            Self::Mv(args) => args,
            Self::Cp(args) => args,
            Self::Rm(args) => args,
            Self::Share(args) => args,
            Self::Scan(args) => args,
            Self::Job(args) => args,
            #[cfg(feature = "stores")]
            Self::Publish(args) => &**args,
            #[cfg(feature = "stores")]
            Self::Rollback(args) => args,
            #[cfg(feature = "stores")]
            Self::Versions(args) => args,
            #[cfg(feature = "stores")]
            Self::Sweep(args) => args,
            #[cfg(feature = "stores")]
            Self::Stores(args) => args,
            Self::Recover(args) => args,
            Self::Digest(args) => args,
            Self::Diff(args) => args,
            Self::Sign(args) => args,
            Self::VerifySignature(args) => args,
            Self::Extract(args) => args,
            Self::Replace(args) => args,
            Self::Edit(args) => args,
            Self::Strip(args) => args,
            Self::Attach(args) => args,
            Self::ExtractModel(args) => args,
            Self::Merge(args) => args,
            #[cfg(feature = "machine")]
            Self::Plan(args) => args,
            #[cfg(feature = "machine")]
            Self::Run(args) => args,
            #[cfg(feature = "machine")]
            Self::Trace(args) => args,
            #[cfg(feature = "machine")]
            Self::Verify(args) => args,
            Self::Completions(args) => args,
            Self::Man(args) => args,
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
    let cli = declared();
    let command = cli.find_subcommand(words.next()?)?;
    let name = command.get_name();
    Some(match words.next().and_then(|word| command.find_subcommand(word)) {
        Some(part) => format!("{name} {}", part.get_name()),
        None => name.to_owned(),
    })
}
