//! The arguments of `inspect`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use glob::Pattern;

use super::ReadArgs;
use super::paths::model_to_read;

#[derive(Debug, Args)]
#[command(after_help = "\
A .safetensors file, or the .safetensors.index.json of several, is shown as a model without a graph.\n\n\
The tree adds tensors up by the parts of their names, which . and / separate, as du does with folders.")]
pub struct InspectArgs {
    /// The models
    #[arg(value_name = "MODEL", required = true, value_parser = model_to_read())]
    pub models: Vec<PathBuf>,
    /// List N tensors and N files; 0 lists all [default: 20, all with --json]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// List the tensors whose names match GLOB ('*.norm.*'), and add up these in the tree; may be
    /// given several times
    #[arg(long, value_name = "GLOB", value_parser = Pattern::new)]
    pub name: Vec<Pattern>,
    /// The order of the tensors
    #[arg(long, value_enum, value_name = "KEY", default_value_t)]
    pub sort: SortKey,
    /// Show bytes and parameters by module in place of the other lists
    #[arg(long)]
    pub tree: bool,
    /// With --tree, show modules of at most N parts [default: 2]
    #[arg(long, value_name = "N", requires = "tree")]
    pub depth: Option<usize>,
    /// Print everything as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

/// The order of tensors in a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// The largest first
    #[default]
    Bytes,
    /// By name
    Name,
    /// By element type, the largest of each type first
    Dtype,
    /// Inline ones first, then by file and offset
    Place,
}
