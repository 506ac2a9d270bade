//! The arguments of `scan`.

use std::path::PathBuf;

use clap::Args;

use super::ReadArgs;
use super::paths::file;
use super::sizes::size;

/// Models are told by their content. Links to folders are not followed, folders called .git are not
/// entered, and a file with several names counts once. Nothing is changed, and no weight is read
/// without --equal.
///
/// A file beside a model that no model needs is sure to be left over when it is named after the
/// model, likely when its name ends as those of weights do, and possible when it is a binary file
/// or a checkpoint that other programs read.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// The folders
    #[arg(value_name = "DIR", required = true, value_parser = file())]
    pub folders: Vec<PathBuf>,
    /// Also find weights of equal bytes in different models, and how much it saves to store them
    /// once. Reads weights of which another model has some of the same length
    #[arg(long)]
    pub equal: bool,
    /// With --equal, compare weights of N bytes or more; K, M and G are powers of 1024
    #[arg(long, value_name = "N", default_value = "1024", value_parser = size)]
    pub min_bytes: u64,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}
