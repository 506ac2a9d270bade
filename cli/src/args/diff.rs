//! The arguments of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::ReadArgs;
use super::paths::model_to_read;

#[derive(Debug, Args)]
#[command(after_help = "\
Weights are read only where nothing else tells: not those that are the same bytes of the same file, nor those \
with digests that pack --digests stored in both models. Models whose weights are at other places and equal \
are the same.\n\n\
Exit code: 0 the same, 1 different, 2 not compared.")]
pub struct DiffArgs {
    /// One model
    #[arg(value_name = "A", value_parser = model_to_read())]
    pub a: PathBuf,
    /// The other model
    #[arg(value_name = "B", value_parser = model_to_read())]
    pub b: PathBuf,
    /// Also find by how much the elements of changed tensors differ
    #[arg(long)]
    pub stats: bool,
    /// Read weights whose digests are stored in both models too, in place of believing these
    #[arg(long, conflicts_with = "semantic")]
    pub ignore_stored_digests: bool,
    /// Compare what the models compute, not how they are written
    #[arg(long, conflicts_with = "stats")]
    pub semantic: bool,
    /// Show N of each list; 0 shows all [default: 20, all with --json]
    #[arg(long, value_name = "N", conflicts_with = "semantic")]
    pub top: Option<usize>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}
