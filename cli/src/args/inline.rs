//! The command that inlines.

use std::path::PathBuf;

use clap::Args;
use onnx_container::InlineOptions;

use super::{MapArgs, PackedArgs, TargetArgs, VerifyArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
A FUNCTION is domain::name, with all its overloads, domain::name:overload, or domain:: for every \
function of a domain.\n\n\
Weights stay where they are when they lie beneath OUT's folder: then only the model is written, and \
refers to the same files. Elsewhere, or with --data-name, they go to one file beside OUT. What is inline \
stays inline, unless that made a model file over 2 GiB.")]
pub struct InlineArgs {
    /// The model to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The model to write, which may be IN itself; a model that is there is replaced
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Inline FUNCTION and no other; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    pub only: Vec<String>,
    /// Keep FUNCTION and the calls to it; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    pub except: Vec<String>,
    /// Refuse a result of more than N nodes, before one is made
    #[arg(long, value_name = "N", default_value_t = InlineOptions::MAX_NODES)]
    pub max_nodes: u64,
    /// Fail when a function has to stay, for instance because its operators mean something else in the
    /// model's versions; without it such a function stays, with a warning
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub verify: VerifyArgs,
    #[command(flatten)]
    pub packed: PackedArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub map: MapArgs,
}
