//! The command that stores and computes in another float type.

use clap::{Args, ValueEnum};
use glob::Pattern;
use onnx_container::DataType;

#[cfg(feature = "machine")]
use super::plan::dim;
use super::{InOut, LayoutArgs, ReadArgs, TargetArgs, size};

#[derive(Debug, Args)]
#[command(after_help = "\
FLOAT, FLOAT16 and BFLOAT16 become TYPE. Operators that do not take \
the new type keep the old one, with Cast nodes around them. Numbers over 65504 become infinite in FLOAT16: \
the report lists such weights, and --verify finds such outputs. Norms stay in FLOAT by both of --keep-op \
LayerNormalization and --except '*norm*'.\n\n\
Weights are converted a piece at a time while they are written, so a model may be larger than the memory. \
They go to one file beside OUT, or to the files of --max-shard-size or --safetensors.")]
pub struct CastArgs {
    #[command(flatten)]
    pub paths: InOut,
    /// The new type
    #[arg(long, value_name = "TYPE")]
    pub to: FloatType,
    /// Cast this type alone: float, float16 or bfloat16
    #[arg(long, value_name = "TYPE", hide_possible_values = true)]
    pub from: Option<FloatType>,
    /// Store the weights in the new type, and compute in the old one
    #[arg(long, conflicts_with_all = ["keep_io", "keep_op"])]
    pub weights_only: bool,
    /// Keep the types of the model's inputs and outputs
    #[arg(long)]
    pub keep_io: bool,
    /// Compute in the old type in NAME. It is a type of operators (Softmax), or the name of a node;
    /// their weights are cast all the same: see --except. May be given several times
    #[arg(long, value_name = "NAME")]
    pub keep_op: Vec<String>,
    /// Keep the weights whose names match GLOB ('*.norm.*'); their operators compute in the new
    /// type all the same: see --keep-op. May be given several times
    #[arg(long, value_name = "GLOB", value_parser = Pattern::new)]
    pub except: Vec<Pattern>,
    /// Cast weights of N bytes or more; K, M and G are powers of 1024
    #[arg(long, value_name = "N", default_value = "1024", value_parser = size)]
    pub min_bytes: u64,
    /// Check OUT, and compare what it computes with IN
    ///
    /// Both models run on the same random inputs, and the largest difference of each output is
    /// printed. OUT may not be IN then.
    #[cfg(feature = "machine")]
    #[arg(long, conflicts_with = "dry_run")]
    pub verify: bool,
    /// With --verify, set the dimension NAME to N [default: 1]. A dimension without a name is
    /// called by its input and position: 'image[0]=1'. May be given several times
    #[cfg(feature = "machine")]
    #[arg(long, value_name = "NAME=N", value_parser = dim, requires = "verify")]
    pub dim: Vec<(String, usize)>,
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

/// The types that weights are cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FloatType {
    /// 32 bits
    #[value(aliases = ["float32", "fp32", "f32"])]
    Float,
    /// 16 bits: 10 of fraction, numbers up to 65504
    #[value(aliases = ["fp16", "f16", "half"])]
    Float16,
    /// 16 bits: 7 of fraction, the range of FLOAT
    #[value(alias = "bf16")]
    Bfloat16,
}

impl From<FloatType> for DataType {
    fn from(name: FloatType) -> Self {
        match name {
            FloatType::Float => Self::Float,
            FloatType::Float16 => Self::Float16,
            FloatType::Bfloat16 => Self::Bfloat16,
        }
    }
}
