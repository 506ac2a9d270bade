//! The commands that take weights out of a model and put them back.

use std::path::PathBuf;

use clap::Args;

use super::paths::{model_to_read, model_to_write};
use super::{LayoutArgs, OldFiles, ReadArgs, TargetArgs, WriteArgs, size};

#[derive(Debug, Args)]
#[command(after_help = "\
Every tensor keeps its name, type and shape. Tensors that shape inference reads keep their elements, and so do \
inline tensors below --min-bytes. No weights file is read, unless it has tensors that shape inference reads.\n\n\
Viewers open the result, and onnx.load(path, load_external_data=False) does. Digests that are stored with IN \
stay: attach compares the weights with them.")]
pub struct StripArgs {
    #[command(flatten)]
    pub paths: FromTo,
    /// Also strip inline tensors of N bytes or more; K, M and G are powers of 1024
    #[arg(long, value_name = "N", default_value = "1024", value_parser = size)]
    pub min_bytes: u64,
    /// Print the plan and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Fail when a file would be replaced
    #[arg(long)]
    pub no_clobber: bool,
    /// Do not wait until the file is flushed to the disk
    #[arg(long)]
    pub no_sync: bool,
    /// Write an .onnx file over 2 GiB, which onnx and onnxruntime refuse
    #[arg(long)]
    pub allow_over_2gib: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

impl StripArgs {
    /// The options of its save. It writes one file and removes none.
    pub fn target(&self) -> TargetArgs {
        TargetArgs {
            dry_run: self.dry_run,
            no_clobber: self.no_clobber,
            old: OldFiles { keep_old: true, ..OldFiles::default() },
            no_sync: self.no_sync,
            no_direct_io: false,
            timings: false,
            digests: false,
            ignore_stored_digests: false,
            checksums: false,
            allow_over_2gib: self.allow_over_2gib,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
The two models have to have the same tensors: names, types and shapes are compared, and the elements of tensors \
that were not stripped. Where digests are stored with MODEL, all weights are compared with these, which reads \
them.\n\n\
Weights go to one file beside OUT, or to the files of --max-shard-size or --safetensors. With --keep-files they \
stay where they are.")]
pub struct AttachArgs {
    /// The model that was stripped
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// The model that has the weights
    #[arg(value_parser = model_to_read())]
    pub weights: PathBuf,
    /// The model to write, which may be MODEL itself; an existing model is replaced
    #[arg(value_name = "OUT", value_parser = model_to_write())]
    pub output: PathBuf,
    /// MODEL was edited since it was stripped: small tensors that differ are its own, and weights
    /// that it does not use are left out
    #[arg(long)]
    pub edited: bool,
    /// Let OUT use the weights files of WEIGHTS, which have to be in OUT's folder or below it
    #[arg(long, conflicts_with_all = ["safetensors", "max_shard_size", "dedup", "align", "align_large", "data_name"])]
    pub keep_files: bool,
    #[command(flatten)]
    pub layout: LayoutArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}

/// The model to read, and another one to write.
#[derive(Debug, Args)]
pub struct FromTo {
    /// The model to read
    #[arg(value_name = "IN", value_parser = model_to_read())]
    pub input: PathBuf,
    /// The model to write, another one than IN; an existing model is replaced
    #[arg(value_name = "OUT", value_parser = model_to_write())]
    pub output: PathBuf,
}
