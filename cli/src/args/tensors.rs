//! The commands for single tensors.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use onnx_container::edit::Tied;

use super::paths::{file, model_to_read, model_to_write};
use super::{LayoutArgs, OutArgs, ReadArgs, TargetArgs};

/// A file that holds tensors and no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// NumPy's, one array (.npy)
    Npy,
    /// The elements' bytes and nothing else (.raw, .bin)
    Raw,
    /// A TensorProto, as the test data of ONNX (.pb)
    Pb,
    /// Hugging Face's, any number of tensors (.safetensors)
    Safetensors,
}

/// What to do with tensors that share the bytes of one that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TiedArg {
    /// All that share the bytes change, and stay tied
    All,
    /// Only this one changes; the others keep their elements
    This,
}

impl From<TiedArg> for Tied {
    fn from(tied: TiedArg) -> Self {
        match tied {
            TiedArg::All => Self::All,
            TiedArg::This => Self::This,
        }
    }
}

/// What a NAME is, for the end of the help.
const NAMES: &str = "A NAME is a tensor's name as inspect shows it, with its scope before it when it is not \
                     in the main graph (if_node.then_branch/w); the name alone is enough when only one tensor has \
                     it. Of several tensors with one name, NAME[0] is the first. Line breaks, other \
                     control characters and backslashes are shown as escapes (\\n, \\u{1b}, \\\\); if no \
                     tensor has NAME as given, it is unescaped.";

#[derive(Debug, Args)]
#[command(after_help = NAMES)]
pub struct ExtractArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// The tensors, or patterns such as 'layers.3.*': * is any text and ? one character, brackets
    /// stand for themselves
    #[arg(value_name = "NAME", required_unless_present = "names_from")]
    pub names: Vec<String>,
    /// Read the names from FILE, one per line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "names")]
    pub names_from: Option<PathBuf>,
    /// The file to write, which is replaced if it exists. DIR/ writes a file for each tensor, a
    /// name that ends in .safetensors one file for all, and - writes to standard output, unless it
    /// is a terminal
    #[arg(short, long, value_name = "OUT", value_parser = file())]
    pub output: PathBuf,
    /// The format [default: by the suffix of OUT; npy for DIR/ and -]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FileFormat>,
    /// Write elements of types that npy does not have as integers: INT4 and INT2 as signed
    /// integers, other types as the unsigned integers of the same bits. Types narrower than a byte
    /// take one byte for each element
    #[arg(long)]
    pub codes: bool,
    #[command(flatten)]
    pub out: OutArgs,
}

#[derive(Debug, Args)]
#[command(after_help = format!(
    "Inline tensors stay inline and external ones external. When an inline tensor is replaced, weights \
     stay in their files if these are in OUT's folder or below it. Otherwise, or with an option for \
     the weights file, all weights go to one file beside OUT; with --max-shard-size to several, with \
     --split to one for each tensor.\n\n{NAMES}"
))]
pub struct ReplaceArgs {
    /// The model to read
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    /// The tensor
    pub name: String,
    /// The file with the new elements, which must have the tensor's type and shape. In a
    /// safetensors file it is the entry NAME, or the only entry
    pub file: PathBuf,
    /// The model to write, which may be MODEL itself; an existing model is replaced
    #[arg(short, long, value_name = "OUT", value_parser = model_to_write())]
    pub output: PathBuf,
    /// The format of FILE [default: by its suffix]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FileFormat>,
    /// What to replace if other tensors share its bytes; without this option, such a tensor is
    /// refused
    #[arg(long, value_name = "WHICH")]
    pub tied: Option<TiedArg>,
    /// Read integers in an npy file as elements of a type that npy does not have: unsigned integers
    /// as their bits, signed ones as numbers of INT4 and INT2
    #[arg(long)]
    pub codes: bool,
    /// Write each external tensor to a file of its own
    #[arg(long, conflicts_with_all = ["safetensors", "align", "align_large", "data_name", "max_shard_size", "dedup"])]
    pub split: bool,
    #[command(flatten)]
    pub layout: LayoutArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}
