//! The arguments of `digest`.
//!
//! A digest is that of the content, unless an option names another kind.

use std::path::PathBuf;

use clap::Args;

use onnx_container::Part;

use super::ReadArgs;
use super::paths::{file, model_to_read};

#[derive(Debug, Args)]
#[command(after_help = "\
The digest is the same for a model however it is stored: packed, split, embedded, sharded, in safetensors \
files. Names, documentation and metadata count; with --semantic they do not.")]
pub struct DigestArgs {
    /// The models
    #[arg(required = true, value_name = "MODEL", value_parser = model_to_read())]
    pub models: Vec<PathBuf>,
    /// Print one line for each tensor: a digest of its type, shape and elements, and its name
    #[arg(long)]
    pub tensors: bool,
    /// Print the SHA-256 of the model file and of each weights file, as sha256sum --check reads
    /// them
    #[arg(long, conflicts_with = "tensors")]
    pub files: bool,
    /// Digest what the model computes: models with the same digest compute the same for all inputs
    #[arg(long, conflicts_with_all = ["tensors", "files"])]
    pub semantic: bool,
    /// With --semantic, print one line for each output, with its name
    #[arg(long, requires = "semantic")]
    pub outputs: bool,
    /// Hash part K of N of the tensors, from 0 on, and print what --join joins, as JSON. Any number
    /// of processes digest one model so, each a part
    #[arg(long, value_name = "K/N", conflicts_with_all = ["tensors", "files", "semantic", "join", "json"])]
    pub part: Option<Part>,
    /// Make the digest of what --part has printed for each part; no weight is read
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["files", "semantic"],
        value_parser = file())]
    pub join: Vec<PathBuf>,
    /// Print the digests as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}
