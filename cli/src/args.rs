//! The command line. The texts of its help are the manual of the command.

#[cfg(feature = "machine")]
mod evaluate;
mod inline;
mod layout;
mod paths;
#[cfg(feature = "machine")]
mod plan;
mod reading;
mod semantic;
mod signing;
mod sizes;
mod tensors;
mod values;
#[cfg(feature = "machine")]
mod verify;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};

#[cfg(feature = "machine")]
pub use evaluate::{
    EngineArgs, InputArgs, LimitArgs, RunArgs, TraceArgs, TraceCommand, TraceDiffArgs, ValueFormat,
};
pub use inline::InlineArgs;
pub use layout::{LayoutArgs, PackedArgs};
use paths::{model_to_read, model_to_write};
#[cfg(feature = "machine")]
pub use plan::PlanArgs;
pub use reading::ReadArgs;
pub use semantic::{DiffArgs, DigestArgs};
pub use signing::{SignArgs, VerifySignatureArgs};
pub use sizes::shard_warning;
use sizes::{shard_size, size};
pub use tensors::{ExtractArgs, FileFormat, ReplaceArgs, TiedArg};
use values::{expected, pair, prefixes};
#[cfg(feature = "machine")]
pub use verify::VerifyArgs;

/// Move the weights of large ONNX models out of the model file and back in, and check the result.
#[derive(Debug, Parser)]
#[command(name = "onnx-container", version, propagate_version = true, max_term_width = 80)]
#[command(after_help = "\
Exit code: 0 done, 1 failure or finding, 2 wrong usage, 128 + N stopped by signal N.\n\n\
With --json, standard output is one JSON object, which has \"error\" after a failure.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
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
    /// List everything that is wrong with the structure of a model and with its weights files
    #[command(after_help = "\
Operators are not compared with their schemas (inputs, attributes, types): \
onnx.checker.check_model(path, full_check=True) does that.")]
    Check(CheckArgs),
    /// Show what is in a model, without reading its weights
    Inspect(InspectArgs),
    /// List the files that a model needs, the model first
    Files(FilesArgs),
    /// Complete or undo killed saves, of a folder or of one model, and remove what they left
    Recover(RecoverArgs),
    /// Print a digest of a model's content, however it is stored, or of what it computes
    Digest(DigestArgs),
    /// Tell whether two models compute the same, and where they first differ
    Diff(DiffArgs),
    /// Sign a model: its files, in the format of OpenSSF Model Signing, and its content
    Sign(SignArgs),
    /// Verify the signatures of a model
    VerifySignature(VerifySignatureArgs),
    /// Write single tensors to files that numpy and others read
    Extract(ExtractArgs),
    /// Write the model with other elements in one of its tensors
    Replace(ReplaceArgs),
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

/// The name of the command in the arguments of this process, even when other arguments are wrong.
/// The command is the first word that is not an option, because no option before it takes a value.
pub fn command_given(args: &[OsString]) -> Option<String> {
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

impl Command {
    /// The command as it is called, and whether it prints JSON.
    pub fn name_and_json(&self) -> (&'static str, bool) {
        match self {
            Self::Pack(args) => ("pack", args.write.json),
            Self::Split(args) => ("split", args.write.json),
            Self::Embed(args) => ("embed", args.write.json),
            Self::InlineFunctions(args) => ("inline-functions", args.write.json),
            Self::ImportSafetensors(args) => ("import-safetensors", args.write.json),
            Self::ExportSafetensors(args) => ("export-safetensors", args.out.json),
            Self::Check(args) => ("check", args.json),
            Self::Inspect(args) => ("inspect", args.json),
            Self::Files(args) => ("files", args.json),
            Self::Recover(args) => ("recover", args.json),
            Self::Digest(args) => ("digest", args.json),
            Self::Diff(args) => ("diff", args.json),
            Self::Sign(args) => ("sign", args.out.json),
            Self::VerifySignature(args) => ("verify-signature", args.json),
            Self::Extract(args) => ("extract", args.out.json),
            Self::Replace(args) => ("replace", args.json),
            #[cfg(feature = "machine")]
            Self::Plan(args) => ("plan", args.json),
            #[cfg(feature = "machine")]
            Self::Run(args) => ("run", args.json),
            #[cfg(feature = "machine")]
            Self::Trace(args) => args.name_and_json(),
            #[cfg(feature = "machine")]
            Self::Verify(args) => ("verify", args.json),
            Self::Completions(_) => ("completions", false),
        }
    }

    /// How many bytes a shard may have, where that is given.
    pub fn max_shard_size(&self) -> Option<u64> {
        match self {
            Self::Pack(args) => args.layout.max_shard_size,
            Self::ImportSafetensors(args) => args.layout.max_shard_size,
            Self::Replace(args) => args.layout.max_shard_size,
            Self::ExportSafetensors(args) => args.max_shard_size,
            _ => None,
        }
    }

    /// The models that the command reads.
    pub fn models(&self) -> Vec<&Path> {
        match self {
            Self::Diff(args) if args.a != args.b => vec![&args.a, &args.b],
            Self::Diff(args) => vec![&args.a],
            #[cfg(feature = "machine")]
            Self::Verify(args) => {
                let other = args.b.as_ref().filter(|b| **b != args.a);
                std::iter::once(&args.a).chain(other).map(PathBuf::as_path).collect()
            }
            other => other.model().into_iter().collect(),
        }
    }

    /// The model that the command reads, where it is one.
    fn model(&self) -> Option<&Path> {
        match self {
            Self::Pack(args) => Some(&args.paths.input),
            Self::Split(args) => Some(&args.paths.input),
            Self::Embed(args) => Some(&args.paths.input),
            Self::InlineFunctions(args) => Some(&args.paths.input),
            Self::ImportSafetensors(args) => Some(&args.model),
            Self::ExportSafetensors(args) => Some(&args.model),
            Self::Check(args) => Some(&args.model),
            Self::Inspect(args) => Some(&args.model),
            Self::Files(args) => Some(&args.model),
            Self::Digest(args) => Some(&args.model),
            Self::Recover(_) | Self::Diff(_) => None,
            // They may be folders. A model that is not there may be one that an interrupted save
            // moved away.
            Self::Sign(args) => (!args.model.is_dir()).then_some(&args.model),
            Self::VerifySignature(args) => (!args.model.is_dir()).then_some(&args.model),
            Self::Extract(args) => Some(&args.model),
            Self::Replace(args) => Some(&args.model),
            #[cfg(feature = "machine")]
            Self::Plan(args) => args.model.as_deref(),
            #[cfg(feature = "machine")]
            Self::Run(args) => Some(&args.model),
            #[cfg(feature = "machine")]
            Self::Trace(args) => args.model.as_deref(),
            #[cfg(feature = "machine")]
            Self::Verify(_) => None,
            Self::Completions(_) => None,
        }
    }
}

/// The model to read and the one to write.
#[derive(Debug, Args)]
pub struct InOut {
    /// The model to read
    #[arg(value_name = "IN", value_parser = model_to_read())]
    pub input: PathBuf,
    /// The model to write, which may be IN itself; an existing model is replaced
    #[arg(value_name = "OUT", value_parser = model_to_write())]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct PackArgs {
    #[command(flatten)]
    pub paths: InOut,
    #[command(flatten)]
    pub moving: MovingArgs,
    #[command(flatten)]
    pub layout: LayoutArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}

#[derive(Debug, Args)]
pub struct SplitArgs {
    #[command(flatten)]
    pub paths: InOut,
    #[command(flatten)]
    pub moving: MovingArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}

#[derive(Debug, Args)]
pub struct EmbedArgs {
    #[command(flatten)]
    pub paths: InOut,
    #[command(flatten)]
    pub write: WriteArgs,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The model, with its weights files or without them. Weights that are not in WEIGHTS are taken
    /// from the model's own files
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// The weights: a .safetensors file, or the .safetensors.index.json of several
    pub weights: PathBuf,
    /// The model to write, which may be MODEL itself; an existing model is replaced
    #[arg(value_name = "OUT", value_parser = model_to_write())]
    pub output: PathBuf,
    /// Use the weights called A for the tensor B; may be given several times. Tensors that use the
    /// same weights are tied
    #[arg(long, value_name = "A=B", value_parser = pair)]
    pub rename: Vec<(String, String)>,
    /// Remove PREFIX from the names of weights that begin with it; may be given several times
    #[arg(long, value_name = "PREFIX")]
    pub strip_prefix: Vec<String>,
    /// Replace A by B in the names of weights that begin with A; =B puts B before every name; may
    /// be given several times
    #[arg(long, value_name = "A=B", value_parser = prefixes)]
    pub replace_prefix: Vec<(String, String)>,
    /// Ignore the weights called NAME in WEIGHTS; may be given several times
    #[arg(long, value_name = "NAME")]
    pub ignore: Vec<String>,
    /// Fail when WEIGHTS has weights that no tensor of the model uses
    #[arg(long)]
    pub strict: bool,
    /// Which tensors that WEIGHTS lacks change with one on the same bytes that it has [default:
    /// those of its type and shape]
    #[arg(long, value_name = "WHICH")]
    pub tied: Option<TiedArg>,
    /// Match by content: OLD is the checkpoint that MODEL was exported from. Tensors that the
    /// exporter renamed, transposed, cast, joined or cut get the same parts of WEIGHTS. Names do
    /// not count
    #[arg(long = "match", value_name = "OLD", conflicts_with_all = ["rename", "strip_prefix", "replace_prefix", "ignore"])]
    pub matched: Option<PathBuf>,
    /// With --match, write the mapping that it finds to FILE, as JSON; without, read it from FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rename", "strip_prefix", "replace_prefix", "ignore"])]
    pub mapping: Option<PathBuf>,
    #[command(flatten)]
    pub moving: MovingArgs,
    #[command(flatten)]
    pub layout: LayoutArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// The file to write, whose name ends in .safetensors; an existing one is replaced
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Write shards of at most N bytes of tensors, and an index; 2GB is 2 * 10^9, 2GiB and 2G are
    /// 2 * 2^30. A larger tensor has a shard of its own
    #[arg(long, value_name = "N", value_parser = shard_size)]
    pub max_shard_size: Option<u64>,
    /// Also export inline tensors of N bytes or more; K is 1024 bytes, KB 1000
    #[arg(long, value_name = "N", default_value = "1024", value_parser = size)]
    pub min_bytes: u64,
    /// Also export tensors that some readers require inline: shape operands, sparse indices,
    /// tensors in function bodies
    #[arg(long)]
    pub all_tensors: bool,
    /// Align every tensor to 256 bytes by additional entries of zeros; some readers refuse these
    /// entries
    #[arg(long)]
    pub padding: bool,
    /// Write large tensors through the page cache, then wait for the disk: slower, but the first
    /// reader of the new files finds them in memory
    #[arg(long, conflicts_with = "no_sync")]
    pub no_direct_io: bool,
    #[command(flatten)]
    pub out: OutArgs,
}

/// The options of every command that writes files and no model.
#[derive(Debug, Args)]
pub struct OutArgs {
    /// Fail when a file would be replaced
    #[arg(long)]
    pub no_clobber: bool,
    /// Do not wait until all files are flushed to the disk
    #[arg(long)]
    pub no_sync: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

/// Which tensors are moved out of the model.
#[derive(Debug, Args)]
pub struct MovingArgs {
    /// Move inline tensors of N bytes or more out of the model; K, M and G are powers of 1024
    #[arg(long, value_name = "N", default_value = "1024", value_parser = size)]
    pub min_bytes: u64,
    /// Also move tensors that some readers require inline: shape operands, sparse indices, tensors
    /// in function bodies. These readers refuse the result
    #[arg(long)]
    pub all_tensors: bool,
}

/// The options of every command that writes a model and can compare it with the one that was read.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// Load the written model and check it; compare its tensors, bit for bit, and its semantic
    /// digest with those of the model that was read
    #[arg(long, conflicts_with = "dry_run")]
    pub verify: bool,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

/// The options of every command that writes a model.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Print the plan and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Fail when a file would be replaced
    #[arg(long)]
    pub no_clobber: bool,
    /// Do not wait until all files are flushed to the disk
    #[arg(long)]
    pub no_sync: bool,
    /// Write large tensors through the page cache, then wait for the disk: slower, but the first
    /// reader of the new files finds them in memory
    #[arg(long, conflicts_with = "no_sync")]
    pub no_direct_io: bool,
    /// Print how long each step of the save took, and how many bytes of tensors were copied, shared
    /// or kept
    #[arg(long)]
    pub timings: bool,
    /// Store the digest of the model and of each tensor, which check --digests compares. Reads the
    /// weights twice (three times if the input has digests, which are verified). Without this
    /// option stored digests are dropped
    #[arg(long)]
    pub digests: bool,
    /// Continue with --digests even if the input does not match its stored digests
    #[arg(long, requires = "digests")]
    pub ignore_stored_digests: bool,
    /// Write the SHA-1 of each weights file as the checksum of its tensors, as the specification
    /// says. Reads the weights twice
    #[arg(long)]
    pub checksums: bool,
    /// Write an .onnx file over 2 GiB, which onnx and onnxruntime refuse
    #[arg(long)]
    pub allow_over_2gib: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// Also list the nodes that run refuses
    #[cfg(feature = "machine")]
    #[arg(long)]
    pub runnable: bool,
    /// Also compare the model and its tensors with their stored digests, weights files with their
    /// checksums, and blobs of the Hugging Face cache with their names. Reads every byte
    #[arg(long)]
    pub digests: bool,
    /// Also compare the SHA-256 of FILE, the model or one of its weights files, with HEX. May be
    /// given several times
    #[arg(long, value_name = "FILE=HEX", value_parser = expected)]
    pub sha256: Vec<(String, String)>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// List N tensors, the largest first, and N files; 0 lists all [default: 20, all with --json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

#[derive(Debug, Args)]
pub struct FilesArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// End each name with a NUL byte instead of a newline
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// Print the files as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// The folder that models are in, or one model
    pub path: PathBuf,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        Cli::command().debug_assert();
    }
}
