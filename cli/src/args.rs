//! The arguments of the commands. The texts of their help are the manual of the command.

mod cast;
mod diff;
mod edit;
#[cfg(feature = "machine")]
mod evaluate;
mod inline;
mod inspect;
mod job;
mod layout;
mod model_files;
mod parts;
mod paths;
#[cfg(feature = "machine")]
mod plan;
mod reading;
mod report;
mod scan;
mod semantic;
mod signing;
mod sizes;
mod stats;
#[cfg(feature = "stores")]
mod stores;
mod strip;
mod tensors;
mod values;
#[cfg(feature = "machine")]
mod verify;

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, FromArgMatches};
use onnx_container::Part;

pub use cast::CastArgs;
pub use diff::DiffArgs;
pub use edit::EditArgs;
#[cfg(feature = "machine")]
pub use evaluate::{
    EngineArgs, InputArgs, LimitArgs, RunArgs, TraceArgs, TraceCommand, TraceDiffArgs, ValueFormat,
};
pub use inline::InlineArgs;
pub use inspect::{InspectArgs, SortKey};
pub use job::{GivenJob, JobArgs, JobCommand, JobListArgs, JobRewriteArgs, JobWriteArgs};
pub use layout::{LayoutArgs, PackedArgs, ShardNameArg};
pub use model_files::{CpArgs, MvArgs, PlaceArgs, RmArgs, ShareArgs, TransferArgs};
pub use parts::{ExtractModelArgs, MergeArgs};
pub use paths::is_url;
use paths::{file, model_or_folder_to_write, model_to_read, model_to_write};
#[cfg(feature = "machine")]
pub use plan::PlanArgs;
pub use reading::{ReadArgs, TrustArgs};
pub use report::ReportArgs;
pub use scan::ScanArgs;
pub use semantic::DigestArgs;
pub use signing::{SignArgs, VerifySignatureArgs};
use sizes::shard_size;
pub use sizes::{shard_warning, size};
pub use stats::StatsArgs;
#[cfg(feature = "stores")]
pub use stores::{
    ProbeArgs, PublicationArgs, PublishArgs, ReplacingArgs, RollbackArgs, StoreOption, StoresArgs,
    StoresCommand, SweepArgs, VersionsArgs, given_store_option,
};
pub use strip::{AttachArgs, StripArgs};
pub use tensors::{ExtractArgs, FileFormat, ReplaceArgs, TiedArg};
use values::{equation, expected, pair, prefixes, setting, typed};
#[cfg(feature = "machine")]
pub use verify::VerifyArgs;

/// The model to read and the one to write.
#[derive(Debug)]
pub struct InOut {
    pub input: PathBuf,
    /// Never a folder that is there.
    pub output: PathBuf,
}

/// [`InOut`] as it is written on the command line.
#[derive(Debug, Args)]
struct GivenInOut {
    /// The model to read
    #[arg(value_name = "IN", value_parser = model_to_read())]
    input: PathBuf,
    /// The model to write, which may be IN itself; an existing model is replaced. In a folder that
    /// is there, it gets the name of IN
    #[arg(value_name = "OUT", value_parser = model_or_folder_to_write())]
    output: PathBuf,
}

impl InOut {
    /// A folder takes the name of IN. IN itself is replaced only where it is named.
    fn new(GivenInOut { input, output }: GivenInOut) -> Result<Self, clap::Error> {
        let Some(name) = input.file_name().filter(|_| output.is_dir()) else {
            return Ok(Self { input, output });
        };
        let output = output.join(name);
        let is_input = input
            .canonicalize()
            .ok()
            .is_some_and(|real| output.canonicalize().is_ok_and(|other| other == real));
        if is_input {
            let (folder, name) = (directory(&output).display(), input.display());
            let reason = format!(
                "`{folder}` is the folder of IN: to replace IN, name it as OUT too (`{name}`)\n"
            );
            return Err(clap::Error::raw(ErrorKind::ValueValidation, reason));
        }
        Ok(Self { input, output })
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

impl Args for InOut {
    fn augment_args(command: clap::Command) -> clap::Command {
        GivenInOut::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        GivenInOut::augment_args_for_update(command)
    }
}

impl FromArgMatches for InOut {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        GivenInOut::from_arg_matches(matches).and_then(Self::new)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct PackArgs {
    #[command(flatten)]
    pub paths: InOut,
    #[command(flatten)]
    pub moving: MovingArgs,
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Write the number of weights files into FILE. FILE is the config.json of the model, where
    /// transformers.js looks for it; its other entries stay. Needs --shard-names transformers-js
    #[arg(long, value_name = "FILE", requires = "shard_names")]
    pub config: Option<PathBuf>,
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
    #[arg(value_parser = file())]
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
    #[arg(value_name = "OUT", value_parser = file())]
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

/// What becomes of the weights files of a model that is replaced.
#[derive(Debug, Default, Args)]
pub struct OldFiles {
    /// Keep old weights files that no model needs any more
    #[arg(long, conflicts_with = "delete_old")]
    pub keep_old: bool,
    /// Remove old weights files that no model needs any more [default]. They are beside a model
    /// that is replaced, and only it needed them; their names do not matter
    #[arg(long)]
    pub delete_old: bool,
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
    #[command(flatten)]
    pub old: OldFiles,
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
    /// Store digests of the model and of its tensors. check --digests compares them. Reads the
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
    /// Models, and folders: of a folder every model below it, as scan finds them
    #[arg(value_name = "PATH", required = true, value_parser = model_to_read())]
    pub models: Vec<PathBuf>,
    /// Fail on advice too
    #[arg(long)]
    pub strict: bool,
    /// Also list the nodes that run refuses
    #[cfg(feature = "machine")]
    #[arg(long)]
    pub runnable: bool,
    /// Also compare the model and its tensors with their stored digests, weights files with their
    /// checksums, and blobs of the Hugging Face cache with their names. Reads every byte
    #[arg(long)]
    pub digests: bool,
    /// Also list the tensors with elements that are infinite or not a number. Reads every byte of
    /// tensors of floats
    #[arg(long)]
    pub finite: bool,
    /// With --digests and --finite, read only the tensors of part K of N, from 0 on. Any number of
    /// processes check one model so, each a part
    #[arg(long, value_name = "K/N", conflicts_with = "sha256")]
    pub part: Option<Part>,
    /// Also compare the SHA-256 of FILE, the model or one of its weights files, with HEX. May be
    /// given several times, for one model
    #[arg(long, value_name = "FILE=HEX", value_parser = expected)]
    pub sha256: Vec<(String, String)>,
    /// Print the findings as JSON
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
    #[arg(value_parser = file())]
    pub path: PathBuf,
    /// Also end the jobs of these models, and remove what was written of them. A job has no
    /// process: only you know that nobody goes on with it
    #[arg(long)]
    pub jobs: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder, which is made if it does not exist; pages in it are replaced
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell. bash looks for the script in ~/.local/share/bash-completion/completions as
    /// onnx-container, fish in ~/.config/fish/completions as onnx-container.fish, zsh in a folder
    /// of $fpath as _onnx-container; packages put it into /usr/share/bash-completion/completions,
    /// /usr/share/fish/vendor_completions.d and /usr/share/zsh/site-functions
    pub shell: clap_complete::Shell,
}
