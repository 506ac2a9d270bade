//! The command that compares what two models compute.

use std::path::PathBuf;

use clap::Args;

use super::ReadArgs;
use super::evaluate::{EngineArgs, LimitArgs, tolerance};
use super::paths::model_to_read;
use super::plan::dim;

#[derive(Debug, Args)]
#[command(after_help = "\
Models with the same semantic digest compute the same for all inputs. If the digests differ, both models \
are run on the same random inputs, and their outputs are compared: bit by bit, or with --rtol and --atol. \
Equal outputs are evidence, no proof: --runs 0 takes equal digests alone. Where a weight has other elements, \
equal outputs show nothing without --rtol or --atol. Inputs and outputs of the models are matched by name \
where both models have the same names, otherwise by order. Where one model has DOUBLE, FLOAT, FLOAT16 or BFLOAT16 \
and the other another of these, both get the same numbers, and their outputs are compared as numbers.\n\n\
Exit code: 1 when neither the digests nor the outputs show that the models compute the same.")]
#[command(override_usage = "onnx-container verify [OPTIONS] <A> <B>")]
pub struct VerifyArgs {
    /// One model
    #[arg(value_name = "A", value_parser = model_to_read())]
    pub a: PathBuf,
    /// The other model
    #[arg(value_name = "B", value_parser = model_to_read())]
    pub b: Option<PathBuf>,
    /// The seed of the first run's inputs, as of run --seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How often to run, each time with the next seed; 0 compares the digests alone
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub runs: u64,
    /// Set the dimension NAME of A to N. A dimension without a name is called by its input and
    /// position: 'image[0]=1'. May be given several times
    #[arg(long, value_name = "NAME=N", value_parser = dim)]
    pub dim: Vec<(String, usize)>,
    /// Allow this difference relative to the element of A. Integers and BOOL have to be equal
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = tolerance)]
    pub rtol: f64,
    /// Allow this absolute difference, which is added to the relative one. Integers and BOOL have
    /// to be equal
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = tolerance)]
    pub atol: f64,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

impl VerifyArgs {
    /// Whether differences are allowed.
    pub fn has_tolerance(&self) -> bool {
        self.rtol > 0.0 || self.atol > 0.0
    }
}
