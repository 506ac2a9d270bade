//! The command that inlines functions.

use clap::Args;
use onnx_container::inline::InlineOptions;

use super::{InOut, PackedArgs, WriteArgs};

#[derive(Debug, Args)]
#[command(after_help = "\
A FUNCTION is domain::name, with all its overloads, domain::name:overload, or domain:: for every \
function of a domain.\n\n\
Weights stay in their files when these are in OUT's folder or below it: then only the model is written. \
Otherwise, or with --align, --align-large or --data-name, they go to one file beside OUT. Inline tensors \
stay inline, unless the model file would then be over 2 GiB.")]
pub struct InlineArgs {
    #[command(flatten)]
    pub paths: InOut,
    /// Inline FUNCTION and no other; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    pub only: Vec<String>,
    /// Keep FUNCTION and the calls to it; may be given several times
    #[arg(long, value_name = "FUNCTION")]
    pub except: Vec<String>,
    /// Fail when the result would have more than N nodes
    #[arg(long, value_name = "N", default_value_t = InlineOptions::MAX_NODES)]
    pub max_nodes: u64,
    /// Fail when a function cannot be inlined, for instance because its operators mean something
    /// else in the model's operator set versions; without --strict such a function is kept, with a
    /// warning
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub packed: PackedArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}
