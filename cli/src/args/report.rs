//! The arguments of `report`.

use std::path::PathBuf;

use clap::Args;

use super::ReadArgs;
use super::paths::{file_to_write, model_on_disk};

#[derive(Debug, Args)]
#[command(after_help = "\
The page is one file, shows everything offline and asks for nothing on the network. It has a map of the \
weights, a table of all tensors, the places in the weights files, operators, inputs and outputs, and what \
check finds. Weights are read with --stats, and as far as diff reads them with OTHER. The same model and \
options give the same bytes.")]
pub struct ReportArgs {
    /// The model
    #[arg(value_parser = model_on_disk())]
    pub model: PathBuf,
    /// Also show what differs in this model, and what check finds in it
    #[arg(value_name = "OTHER", value_parser = model_on_disk())]
    pub other: Option<PathBuf>,
    /// The page to write. A report that is there is replaced
    #[arg(short, long, value_name = "FILE", value_parser = file_to_write())]
    pub output: PathBuf,
    /// Show range, mean, deviation, NaN and a histogram of each tensor, and with OTHER how far
    /// changed tensors are apart; reads all weights
    #[arg(long)]
    pub stats: bool,
    /// Draw where every tensor of a run lies in memory
    #[cfg(feature = "machine")]
    #[arg(long)]
    pub plan: bool,
    /// With --plan, set the dimension NAME to N. A dimension without a name is called by its input
    /// and position: 'image[0]=1'. May be given several times
    #[cfg(feature = "machine")]
    #[arg(long, value_name = "NAME=N", value_parser = super::plan::dim, requires = "plan")]
    pub dim: Vec<(String, usize)>,
    /// Replace a file that is no report. Models and their weights are never replaced
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}
