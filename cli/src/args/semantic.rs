//! The arguments of `digest` and `diff`.
//!
//! There is one kind of digest so far, which `--semantic` names. A digest of the bytes of files is
//! what `sha256sum` prints.

use std::path::PathBuf;

use clap::Args;

use super::MapArgs;
use super::paths::model_to_read;

#[derive(Debug, Args)]
pub struct DigestArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// Digest what the model computes (required; there is no other kind yet): models with the same digest
    /// compute the same for all inputs
    #[arg(long, required = true)]
    pub semantic: bool,
    /// Print one line for each output, with its name
    #[arg(long)]
    pub outputs: bool,
    /// Print the digests as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub map: MapArgs,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// One model
    #[arg(value_name = "A", value_parser = model_to_read())]
    pub a: PathBuf,
    /// The other model
    #[arg(value_name = "B", value_parser = model_to_read())]
    pub b: PathBuf,
    /// Compare what the models compute, not how they are written
    #[arg(long, required = true)]
    pub semantic: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub map: MapArgs,
}
