//! The options of every command that opens a model.

use clap::{Args, ValueEnum};
use onnx_container::Error;
use onnx_container::external_data::PathPolicy;
use onnx_container::load::Limit;

use super::size;

/// The options of every command that opens a model.
#[derive(Debug, Args)]
pub struct ReadArgs {
    /// Read files instead of mapping them: for network disks, and for files that may change.
    /// Commands that need weights then load them all, except check
    #[arg(long)]
    pub no_mmap: bool,
    #[command(flatten)]
    pub trust: TrustArgs,
}

/// How far a model is trusted that somebody else has made.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// Which symbolic links to weights files are followed
    #[arg(long, value_enum, value_name = "POLICY", default_value_t)]
    pub paths: Paths,
    /// Refuse a model with more than N of NAME: nesting, memory (bytes), nodes, tensors,
    /// attributes, functions, call-depth, name-bytes, dims, ties, findings, program (bytes), calls
    /// (bytes); may be given several times. Bytes may have a unit: program=1GB
    #[arg(long = "limit", value_name = "NAME=N", value_parser = limit)]
    pub limits: Vec<(Limit, u64)>,
}

/// Which links are followed.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Paths {
    /// None: no symbolic link on the way to a file, and no hard link, as in onnx
    Strict,
    /// Those to files beneath the directory of MODEL, or of the file it links to, as in onnxruntime
    /// and the Hugging Face cache
    #[default]
    ModelDirs,
    /// All
    Trusted,
}

impl From<Paths> for PathPolicy {
    fn from(paths: Paths) -> Self {
        match paths {
            Paths::Strict => Self::Strict,
            Paths::ModelDirs => Self::ModelDirs,
            Paths::Trusted => Self::Trusted,
        }
    }
}

/// A limit and its value: `nodes=20000000`.
fn limit(text: &str) -> Result<(Limit, u64), String> {
    let (name, most) = text.split_once('=').ok_or("not NAME=N, such as nodes=20000000")?;
    let limit: Limit = name.parse().map_err(|error: Error| error.reason().to_owned())?;
    let most = match limit.is_bytes() {
        true => size(most).map_err(|reason| format!("`{most}` is {reason}"))?,
        false => most.parse().map_err(|_| format!("`{most}` is no whole number"))?,
    };
    Ok((limit, most))
}
