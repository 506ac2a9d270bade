//! The commands for a save that many processes write together.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use glob::Pattern;

use super::cast::FloatType;
use super::paths::{file_or_url, file_to_write, model_folder_or_url_to_write};
#[cfg(feature = "stores")]
use super::stores::PublicationArgs;
use super::{InOut, LayoutArgs, MovingArgs, OldFiles, TrustArgs};

#[derive(Debug, Args)]
#[command(
    after_help = "docs/jobs.md has the protocol, and scripts for Slurm, Kubernetes, xargs, Dask and Spark."
)]
pub struct JobArgs {
    #[command(subcommand)]
    pub command: JobCommand,
}

#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Plan a rewrite of a model, and print the job
    Rewrite(Box<JobRewriteArgs>),
    /// Write parts of a job
    Write(JobWriteArgs),
    /// Show which parts are written
    Status(JobStatusArgs),
    /// Put the written model in place
    Commit(JobCommitArgs),
    /// End a job, and remove what was written
    Abort(JobAbortArgs),
    /// List the jobs of the models in a folder
    List(JobListArgs),
}

#[derive(Debug, Args)]
#[command(mut_arg("output", |arg| arg.value_parser(model_folder_or_url_to_write()).help(OUT)))]
#[command(after_help = "\
The job is printed as JSON where standard output is a file or a pipe, or written to the FILE of -o. Its folder is \
made beside OUT, with the weights files in their full length; nothing else changes before job commit. IN must stay \
as it is until then, and every process that writes must reach IN and OUT by the same paths. Each opens IN with the \
--paths and --limit of the plan.\n\n\
OUT may be in a store, and then IN too. Each part is then one weights file, which is sent by the process that \
writes it, and job commit publishes the model as publish does. Credentials come from the environment of each \
process: the job has none.")]
pub struct JobRewriteArgs {
    #[command(flatten)]
    pub paths: InOut,
    /// Divide the weights into N parts of about one size. Where the model has fewer tensors, the
    /// last parts have nothing to write
    #[arg(long, value_name = "N", default_value = "1")]
    pub parts: usize,
    /// Write the job as JSON to FILE, which is replaced if it exists
    #[arg(short = 'o', long = "output", value_name = "FILE", value_parser = file_to_write())]
    pub job: Option<PathBuf>,
    /// Store weights and compute in this type, as the command cast does
    #[arg(long, value_name = "TYPE")]
    pub cast: Option<FloatType>,
    /// With --cast, keep the types of the model's inputs and outputs
    #[arg(long, requires = "cast")]
    pub keep_io: bool,
    /// With --cast, compute in the old type in NAME. It is a type of operators (Softmax), or the
    /// name of a node; their weights are cast all the same: see --except. May be given several
    /// times
    #[arg(long, value_name = "NAME", requires = "cast")]
    pub keep_op: Vec<String>,
    /// With --cast, keep the weights whose names match GLOB ('*.norm.*'); their operators compute
    /// in the new type all the same: see --keep-op. May be given several times
    #[arg(long, value_name = "GLOB", value_parser = Pattern::new, requires = "cast")]
    pub except: Vec<Pattern>,
    #[command(flatten)]
    pub moving: MovingArgs,
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Write each tensor to a file of its own
    #[arg(long, conflicts_with_all = ["safetensors", "max_shard_size", "dedup", "data_name", "align", "align_large"])]
    pub per_tensor: bool,
    /// Store digests of the model and of its tensors; the receipts of the parts have them
    #[arg(long)]
    pub digests: bool,
    /// Fail when a file would be replaced
    #[arg(long)]
    pub no_clobber: bool,
    #[command(flatten)]
    pub old: OldFiles,
    /// Do not wait until all files are flushed to the disk
    #[arg(long)]
    pub no_sync: bool,
    /// Write an .onnx file over 2 GiB, which onnx and onnxruntime refuse
    #[arg(long)]
    pub allow_over_2gib: bool,
    /// Print the result as JSON, and not the job
    #[arg(long)]
    pub json: bool,
    /// Read IN whole instead of mapping it: for network disks, and for a file that may change.
    /// Weights that are in IN are then all in memory
    #[arg(long)]
    pub no_mmap: bool,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[cfg(feature = "stores")]
    #[command(flatten, next_help_heading = "Where OUT is in a store")]
    pub publication: PublicationArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Any number of processes may write, in any order. A part that is written is not written again, so \
a task that is run twice does no harm; one that was killed is written from its beginning. Where \
the job is committed, the call writes nothing, says so, and ends with 0; where that cannot be \
told, it fails: see docs/jobs.md.")]
pub struct JobWriteArgs {
    /// The job: the FILE of job rewrite, or the folder beside the model, a path or a URL
    #[arg(value_name = "JOB", value_parser = file_or_url())]
    pub job: PathBuf,
    /// The parts: numbers from 0 on, and ranges such as 0-7
    #[arg(value_name = "K", value_parser = parts, required_unless_present = "all")]
    pub parts: Vec<RangeInclusive<usize>>,
    /// Write all parts that are not written
    #[arg(long, conflicts_with = "parts")]
    pub all: bool,
    /// Read the model whole instead of mapping it: for network disks, and for a file that may
    /// change. Weights that are in the model are then all in memory
    #[arg(long)]
    pub no_mmap: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code: 0 when all parts are written or the job is committed, 1 when some are not, and after a \
commit that cannot be told: see docs/jobs.md.")]
pub struct JobStatusArgs {
    #[command(flatten)]
    pub job: GivenJob,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The model that was there when the job was planned is replaced, and no other. Where this is killed, \
the model is the old one or the new one; call it again. A job that is committed already is no \
error, as far as what is left says so: in a folder the weights files on Linux, in a store an \
object that the next sweep removes.")]
pub struct JobCommitArgs {
    #[command(flatten)]
    pub job: GivenJob,
}

#[derive(Debug, Args)]
pub struct JobAbortArgs {
    #[command(flatten)]
    pub job: GivenJob,
}

/// A job, and how it is told about.
#[derive(Debug, Args)]
pub struct GivenJob {
    /// The job: the FILE of job rewrite, or the folder beside the model, a path or a URL
    #[arg(value_name = "JOB", value_parser = file_or_url())]
    pub path: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct JobListArgs {
    /// The folder that the models are in, a path or a URL
    #[arg(value_name = "FOLDER", default_value = ".", value_parser = file_or_url())]
    pub folder: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

const OUT: &str = "The model to write, a path or a URL; a path may be IN itself. An existing model is \
                   replaced. In a folder that is there, it gets the name of IN";

/// A number, or a range `0-7` with both of its ends.
fn parts(text: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |text: &str| text.parse::<usize>().ok();
    let range = match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(text).map(|part| (part, part)),
    };
    let range = range.filter(|(first, last)| first <= last);
    let (first, last) = range.ok_or("not a part such as 3, or parts such as 0-7")?;
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_numbers_and_ranges() {
        for (text, expected) in [
            ("0", Some(0..=0)),
            ("12", Some(12..=12)),
            ("0-7", Some(0..=7)),
            ("3-3", Some(3..=3)),
            ("7-0", None),
            ("-1", None),
            ("1-", None),
            ("", None),
            ("all", None),
            ("0-7-9", None),
        ] {
            assert_eq!(parts(text).ok(), expected, "{text}");
        }
    }
}
