//! Which weights files a command writes.

use clap::{Args, ValueEnum};
use onnx_container::save::ShardNames;
use onnx_container::{Alignment, WeightFiles};

use super::sizes::{alignment, shard_size};

/// The options of commands that write packed weights.
#[derive(Debug, Args)]
pub struct LayoutArgs {
    #[command(flatten)]
    pub packed: PackedArgs,
    /// Write the weights as a safetensors file. Safetensors readers can open it too [default name:
    /// <OUT's stem>.safetensors]
    #[arg(long, conflicts_with = "max_shard_size")]
    pub safetensors: bool,
    /// Write weights files of at most N bytes. Padding is included; 2GB is 2 * 10^9, 2GiB and 2G
    /// are 2 * 2^30. A larger tensor has a file of its own [names: <OUT's
    /// stem>-00001-of-00003.onnx.data; one file: as without this option]
    #[arg(long, value_name = "N", value_parser = shard_size)]
    pub max_shard_size: Option<u64>,
    /// How the files of --max-shard-size are named
    #[arg(long, value_name = "NAMES", requires = "max_shard_size")]
    pub shard_names: Option<ShardNameArg>,
    /// Store tensors of equal bytes once; with --safetensors, only those of equal type and shape.
    /// Of tensors of equal length it reads the first bytes, and the rest if these agree. To change
    /// one later, see --tied of replace and import-safetensors
    #[arg(long)]
    pub dedup: bool,
}

impl LayoutArgs {
    /// Whether an option was given that requires new weights files.
    pub fn is_given(&self) -> bool {
        self.safetensors || self.max_shard_size.is_some() || self.dedup || self.packed.is_given()
    }

    /// The files that were asked for.
    pub fn weight_files(&self) -> WeightFiles {
        match self.max_shard_size {
            Some(max_bytes) => WeightFiles::Sharded { max_bytes },
            None if self.safetensors => WeightFiles::Safetensors,
            None => WeightFiles::Packed,
        }
    }
}

/// [`ShardNames`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShardNameArg {
    /// <OUT's stem>-00001-of-00003.onnx.data [default]
    Numbered,
    /// <OUT>_data, <OUT>_data_1, <OUT>_data_2, as transformers.js looks for them: at most 100, and
    /// no tensor may be larger than N. pack --config writes their number into config.json. Files of
    /// these names that no model needs are not replaced: delete them first
    TransformersJs,
}

impl From<ShardNameArg> for ShardNames {
    fn from(names: ShardNameArg) -> Self {
        match names {
            ShardNameArg::Numbered => Self::Numbered,
            ShardNameArg::TransformersJs => Self::TransformersJs,
        }
    }
}

/// The layout and the name of one weights file.
#[derive(Debug, Args)]
pub struct PackedArgs {
    /// Alignment of every tensor in the weights file [default: 256]
    #[arg(long, value_name = "N", value_parser = alignment)]
    pub align: Option<Alignment>,
    /// Alignment of tensors over 1 MiB, if greater than --align [default: 4096]
    #[arg(long, value_name = "N", value_parser = alignment)]
    pub align_large: Option<Alignment>,
    /// Name of the weights file beside OUT; shards are numbered before its extension [default: that
    /// of the only weights file of the model that is replaced, else <OUT>.data]
    #[arg(long, value_name = "NAME")]
    pub data_name: Option<String>,
}

impl PackedArgs {
    /// Whether an option was given that requires a new weights file.
    pub fn is_given(&self) -> bool {
        self.align.is_some() || self.align_large.is_some() || self.data_name.is_some()
    }
}
