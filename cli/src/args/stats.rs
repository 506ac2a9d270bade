//! The arguments of `stats`.

use std::path::PathBuf;

use clap::Args;
use glob::Pattern;
use onnx_container::Part;

use super::ReadArgs;
use super::paths::model_to_read;

#[derive(Debug, Args)]
#[command(after_help = "\
Mean, deviation and histogram are of the finite elements; the deviation is that of all elements, not of a \
sample. Bins of the histogram have one width, which is a power of two; --json has it and the counts. Of a tensor with more than 2^20 elements, a part is counted in it. Complex \
elements count as their real and imaginary parts. Of strings, ZEROS are the empty ones.")]
pub struct StatsArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// Only the tensors whose names match one of these: 'layers.3.*'
    #[arg(value_name = "GLOB", value_parser = Pattern::new)]
    pub names: Vec<Pattern>,
    /// Only the tensors of part K of N, from 0 on. Any number of processes go through one model so,
    /// each through a part
    #[arg(long, value_name = "K/N")]
    pub part: Option<Part>,
    /// Print the statistics as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}
