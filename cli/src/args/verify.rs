//! The command that compares what two models compute.

use std::path::PathBuf;

use clap::Args;

use super::MapArgs;
use super::evaluate::{EngineArgs, LimitArgs, tolerance};
use super::paths::model_to_read;
use super::plan::dim;

#[derive(Debug, Args)]
#[command(after_help = "\
Models with the same semantic digest compute the same for all inputs. Without that, both are run on the \
same random inputs, and their outputs are compared: bit by bit, or with --rtol and --atol. Inputs and \
outputs of both models are taken by their order, or by their names where both models have the same names.\n\n\
Exit code: 1 when neither shows that the models compute the same.")]
pub struct VerifyArgs {
    /// One model
    #[arg(value_name = "A", value_parser = model_to_read())]
    pub a: PathBuf,
    /// The other model
    #[arg(value_name = "B", value_parser = model_to_read())]
    pub b: PathBuf,
    /// The inputs of the first run are those of run --seed N
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How often to run, each time with the next seed; 0 compares the digests alone
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub runs: u64,
    /// Dimensions called NAME in A have the size N; one without a name is that of its place, as in
    /// 'image[0]=1'. May be given several times
    #[arg(long, value_name = "NAME=N", value_parser = dim)]
    pub dim: Vec<(String, usize)>,
    /// Allow this difference relative to the element of A, but of no integer and BOOL
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = tolerance)]
    pub rtol: f64,
    /// Allow this difference in absolute terms, which is added, but of no integer and BOOL
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = tolerance)]
    pub atol: f64,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub map: MapArgs,
}
