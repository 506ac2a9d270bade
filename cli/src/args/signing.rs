//! The arguments of `sign` and `verify-signature`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::paths::model_on_disk;
use super::sizes::shard_size;
use super::{OutArgs, ReadArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
The signature has the format of OpenSSF Model Signing v1.0: other tools verify it too, over the model's folder. \
It covers the bytes of files. A second signature, NAME.digest.sig, covers the model's content: it stays valid \
after pack, split or embed.")]
pub struct SignArgs {
    /// The model, or a folder to sign with all its files
    #[arg(value_parser = model_on_disk())]
    pub model: PathBuf,
    /// The private key, in PEM and not encrypted: P-256, P-384 or P-521
    #[arg(long, value_name = "PEM")]
    pub key: PathBuf,
    /// The signature to write, NAME.sig; an existing one of this model by this key is replaced
    /// [default: model.sig beside the model]
    #[arg(short, long, value_name = "SIG")]
    pub output: Option<PathBuf>,
    /// Sign every file of the model's folder, not only those of the model
    #[arg(long)]
    pub all_files: bool,
    /// Sign files in pieces of N bytes, which are hashed by all cores; 1GB is 10^9, 1GiB is 2^30
    #[arg(long, value_name = "N", value_parser = shard_size)]
    pub shard_size: Option<u64>,
    /// How the digests of shards are named
    #[arg(long, value_enum, value_name = "FORM", default_value_t, requires = "shard_size")]
    pub shard_form: ShardForm,
    /// Sign a model even if it does not match its stored digests
    #[arg(long)]
    pub ignore_stored_digests: bool,
    #[command(flatten)]
    pub out: OutArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0 means that the model is the signed one: by its files, or by its content while all else that \
was signed is unchanged. The output says which.")]
pub struct VerifySignatureArgs {
    /// The model, or the folder that was signed
    #[arg(value_parser = model_on_disk())]
    pub model: PathBuf,
    /// The public key of the signer, in PEM
    #[arg(long, value_name = "PUB")]
    pub key: PathBuf,
    /// The signature; NAME.digest.sig beside it is verified too [default: model.sig beside the
    /// model, or the model's name with .sig]
    #[arg(short, long, value_name = "SIG")]
    pub signature: Option<PathBuf>,
    /// Ignore files of the folder that were not signed, unless the model needs them
    #[arg(long)]
    pub ignore_unsigned_files: bool,
    /// Fail for every unsigned file of the folder, even one that the signature lists as left out
    #[arg(long, conflicts_with = "ignore_unsigned_files")]
    pub all_files: bool,
    /// Require every file to match byte for byte; a matching content signature is not enough
    #[arg(long)]
    pub require_files: bool,
    /// Print the verdict as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

/// The name of the algorithm of the digests of shards. It is for the reader alone: `method`
/// decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ShardForm {
    /// The specification's form: sha256
    #[default]
    Spec,
    /// The only form that the Python package model-signing 1.1 reads: sha256-sharded-N
    ModelSigning,
}

impl From<ShardForm> for onnx_container_signing::ShardForm {
    fn from(form: ShardForm) -> Self {
        match form {
            ShardForm::Spec => Self::Spec,
            ShardForm::ModelSigning => Self::ModelSigning,
        }
    }
}
