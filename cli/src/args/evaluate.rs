//! The commands that run models: `run`, `trace` and `verify`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use onnx_container_machine::Profile;

use super::paths::{file_to_write, model_to_read};
use super::plan::dim;
use super::{ReadArgs, pair, size};

/// What the inputs of a run are.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// Read the input NAME from FILE: .npy, .npz (the entry NAME, or the only one) or .pb (as the
    /// test data of ONNX). May be given several times
    #[arg(long, value_name = "NAME=FILE", value_parser = named_file)]
    pub input: Vec<(String, String)>,
    /// Read input i, from 0 on, from input_<i>.pb or input_<i>.npy in DIR, as in ONNX's test data,
    /// or by name from inputs.npz. An input that has an initializer needs none
    #[arg(long, value_name = "DIR")]
    pub input_dir: Option<PathBuf>,
    /// Make inputs that have no file from the seed N: the same N gives the same elements
    /// everywhere. Without --input, --input-dir and --seed, N is 0
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Set the dimension NAME of generated inputs to N. Write a dimension without a name as input
    /// and position: 'image[0]=1'. May be given several times
    #[arg(long, value_name = "NAME=N", value_parser = dim)]
    pub dim: Vec<(String, usize)>,
}

/// What a run may use.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Fail when the run needs more than N bytes of memory, without weights. The process may use
    /// 128 MiB more, and what the loaded model takes
    #[arg(long, value_name = "N", value_parser = size)]
    pub max_memory: Option<u64>,
    /// Fail after N steps; steps in branches, and iterations of loops, count too
    #[arg(long, value_name = "N")]
    pub max_steps: Option<u64>,
}

/// How the machine rounds.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// How numbers are computed
    #[arg(long, value_name = "PROFILE", default_value = "strict")]
    pub profile: ProfileName,
}

/// A numeric profile, as it is named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProfileName {
    /// The same bits on every machine: strict-1
    Strict,
    /// Faster; the rounding depends on the processor
    Fast,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Strict => Self::Strict,
            ProfileName::Fast => Self::Fast,
        }
    }
}

/// What computes the outputs.
#[derive(Debug, Args)]
pub struct EngineArgs {
    /// What computes the outputs. onnxruntime is an independent implementation; without
    /// --ort-library, ORT_DYLIB_PATH names its shared library
    #[cfg(feature = "ort")]
    #[arg(long, value_name = "ENGINE", default_value = "machine")]
    pub with: Engine,
    /// The shared library of onnxruntime; its Python wheel has one in onnxruntime/capi
    #[cfg(feature = "ort")]
    #[arg(long, value_name = "FILE")]
    pub ort_library: Option<PathBuf>,
    /// Turn off onnxruntime's graph optimizations, which change roundings
    #[cfg(feature = "ort")]
    #[arg(long)]
    pub ort_unoptimized: bool,
}

impl EngineArgs {
    /// The name of the engine that is to run the model in place of the machine.
    pub fn witness(&self) -> Option<&'static str> {
        #[cfg(feature = "ort")]
        if self.with == Engine::Ort {
            return Some("onnxruntime");
        }
        None
    }

    /// Whether options are given that belong to an engine that does not run.
    pub fn has_idle_options(&self) -> bool {
        #[cfg(feature = "ort")]
        return self.with != Engine::Ort && (self.ort_library.is_some() || self.ort_unoptimized);
        #[cfg(not(feature = "ort"))]
        false
    }

    /// The name of the engine that runs the model.
    pub fn name(&self) -> &'static str {
        self.witness().unwrap_or("machine")
    }
}

/// What computes the outputs of a model.
#[cfg(feature = "ort")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The machine of this command, which gives the same bits everywhere
    Machine,
    /// onnxruntime, on one thread
    Ort,
}

/// A file with a value that a run reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ValueFormat {
    /// NumPy's, one array: output_<i>.npy
    Npy,
    /// NumPy's, all arrays by name: outputs.npz
    Npz,
    /// As the test data of ONNX, sequences, optionals and maps too: output_<i>.pb
    Pb,
}

/// How types that npy does not have are stored, for the end of the help.
const CODES: &str = "In npy and npz files, elements of types that NumPy does not have are integers of the same bits: \
                     BFLOAT16 as uint16, FLOAT8 as uint8; types narrower than a byte take one byte for each element. \
                     Strings, sequences, optionals and maps need .pb.";

#[derive(Debug, Args)]
#[command(after_help = format!("{CODES}\n\nExit code with --expect: 0 as expected, 1 an output is not the expected one, \
2 could not run or compare."))]
pub struct RunArgs {
    /// The model
    #[arg(value_parser = model_to_read())]
    pub model: PathBuf,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Write the outputs to files in DIR, which is made if it does not exist; existing files of
    /// these names are replaced
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// The format of these files
    #[arg(long, value_name = "FORMAT", default_value = "npy", requires = "output")]
    pub format: ValueFormat,
    /// Compare the outputs with the files output_<i>.pb or output_<i>.npy in DIR, those with the
    /// names of the outputs (y.npy, y.pb), or outputs.npz; of a model with one output DIR may be a
    /// file. Print the largest difference of each
    #[arg(long, value_name = "DIR")]
    pub expect: Option<PathBuf>,
    /// The tolerance relative to the expected element. Integers and BOOL have to be equal
    #[arg(long, value_name = "X", default_value_t = 1e-3, allow_negative_numbers = true, value_parser = tolerance, requires = "expect")]
    pub rtol: f64,
    /// The absolute tolerance, which is added to the relative one. Integers and BOOL have to be
    /// equal
    #[arg(long, value_name = "X", default_value_t = 1e-7, allow_negative_numbers = true, value_parser = tolerance, requires = "expect")]
    pub atol: f64,
    /// Print how long the run took (loading the model is not counted), and the share of each
    /// operator
    #[arg(long)]
    pub timings: bool,
    /// Run N times, write the outputs of the last run, and print the --timings of all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,
    #[command(flatten)]
    pub profile: ProfileArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Print the outputs as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

impl RunArgs {
    /// Whether times are asked for.
    pub fn is_timed(&self) -> bool {
        self.timings || self.repeat.is_some()
    }
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "To trace a model file that is called diff, write ./diff. docs/machine.md states the format."
)]
pub struct TraceArgs {
    #[command(subcommand)]
    pub diff: Option<TraceCommand>,
    /// The model
    #[arg(required = true, value_parser = model_to_read())]
    pub model: Option<PathBuf>,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// The file to write, which is replaced if it exists [default: standard output]
    #[arg(short, long, value_name = "FILE", value_parser = file_to_write())]
    pub output: Option<PathBuf>,
    /// Also state min and max of every output, and how many elements are not finite
    #[arg(long)]
    pub stats: bool,
    /// Also write every output of every step to a file in DIR: output 0 of step 12 to 12_0.pb
    #[arg(long, value_name = "DIR")]
    pub dump: Option<PathBuf>,
    #[command(flatten)]
    pub profile: ProfileArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub read: ReadArgs,
}

impl TraceDiffArgs {
    /// Whether options are given that only a model that is run needs.
    pub fn has_options_of_runs(&self) -> bool {
        let InputArgs { input, input_dir, seed, dim } = &self.inputs;
        let of_inputs = input.is_empty() && input_dir.is_none() && seed.is_none() && dim.is_empty();
        !of_inputs || self.limits.max_memory.is_some() || self.limits.max_steps.is_some()
    }
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Compare two runs: name the first step whose values differ, and by how much
    Diff(TraceDiffArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Values are matched by content, not by name: models that are renamed, reordered or inlined have \
the same values. How much values differ is printed for models, which are run again, and for traces \
with --dump-a and --dump-b. With --rtol or --atol both have to be models: B gets the inputs of A, in its own types, \
and a step differs where its counterpart wrote numbers that are farther apart. A Cast without a counterpart is none.\n\n\
Exit code: 0 the same, 1 the runs differ, 2 could not compare.")]
pub struct TraceDiffArgs {
    /// One trace, or a model to trace
    #[arg(value_name = "A", value_parser = model_to_read())]
    pub a: PathBuf,
    /// The other trace or model
    #[arg(value_name = "B", value_parser = model_to_read())]
    pub b: PathBuf,
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Allow this difference relative to the element of A, between models, also of other float
    /// types. Integers and BOOL have to be equal
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = tolerance)]
    pub rtol: f64,
    /// Allow this absolute difference, which is added to the relative one. Integers and BOOL have
    /// to be equal
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true, value_parser = tolerance)]
    pub atol: f64,
    /// The folder that trace --dump wrote for A
    #[arg(long, value_name = "DIR")]
    pub dump_a: Option<PathBuf>,
    /// The folder that trace --dump wrote for B
    #[arg(long, value_name = "DIR")]
    pub dump_b: Option<PathBuf>,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub read: ReadArgs,
}

impl TraceDiffArgs {
    /// Whether differences are allowed.
    pub fn has_tolerance(&self) -> bool {
        self.rtol > 0.0 || self.atol > 0.0
    }
}

/// A name and a file: `x=in/x.npy`. The name may not contain `=`.
fn named_file(text: &str) -> Result<(String, String), String> {
    pair(text).map_err(|_| format!("not the name of an input and a file, such as x={text}"))
}

/// A tolerance: not negative, and a number.
pub fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    number.ok_or_else(|| "not a tolerance such as 1e-3 or 0".to_owned())
}
