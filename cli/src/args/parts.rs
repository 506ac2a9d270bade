//! The commands that take a model apart and put two together.

use std::path::PathBuf;

use clap::Args;

use super::paths::{model_to_read, model_to_write};
use super::{InOut, PackedArgs, WriteArgs, equation, typed};

#[derive(Debug, Args)]
#[command(after_help = "\
Values are those of the main graph: inputs, initializers, and outputs of nodes. What the outputs need is kept \
up to the inputs, with the local functions, declared types, operator sets and metadata. An input that no output \
needs is refused, and so is an output that needs an input of the model that is not among --inputs. \
A text with commas that the model allows to split in two ways is refused: double the commas of a name.\n\n\
The new inputs and outputs need types. Where the model does not declare one, it is taken from the values before \
it if common operators say enough; else --type gives it.\n\n\
Weights stay in their files when these are in OUT's folder or below it: then only the model is written. \
Otherwise, or with --align, --align-large or --data-name, they go to one file beside OUT.")]
pub struct ExtractModelArgs {
    #[command(flatten)]
    pub paths: InOut,
    /// The values that become the inputs, separated by commas; may be given several times
    /// [default: the inputs of the model that the outputs need]
    #[arg(long, value_name = "NAME,...")]
    pub inputs: Vec<String>,
    /// The values that become the outputs; as above [default: the outputs of the model]
    #[arg(long, value_name = "NAME,...")]
    pub outputs: Vec<String>,
    /// The type of a value to cut at, which the model does not declare, such as h=FLOAT[N,128]; may
    /// be given several times. Dimensions are numbers, names, or ? where nothing is known. A type
    /// that is known in part is completed
    #[arg(long = "type", value_name = "NAME=TYPE", value_parser = typed)]
    pub types: Vec<(String, String)>,
    #[command(flatten)]
    pub packed: PackedArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The result has the inputs and outputs of both models, except those that are connected; --same-input makes \
one input of two. Both have to use the same versions of operators. Functions and metadata of one name have to be equal, and no value of one may have \
the name of a value of the other, unless both are equal constants, which become one: a prefix keeps them apart. Connections and same inputs are by the names without prefixes; double the = of a name where there are two ways to split. An open \
dimension that both models name alike is one dimension in the result, of one size.\n\n\
Weights stay in their files when these are in OUT's folder or below it: then only the model is written. \
Otherwise, or with --align, --align-large or --data-name, they go to one file beside OUT.")]
pub struct MergeArgs {
    /// The model that comes first
    #[arg(value_parser = model_to_read())]
    pub a: PathBuf,
    /// The model that comes second
    #[arg(value_parser = model_to_read())]
    pub b: PathBuf,
    /// The model to write, which may be A or B itself; an existing model is replaced
    #[arg(value_name = "OUT", value_parser = model_to_write())]
    pub output: PathBuf,
    /// Make the output O of A the input I of B; may be given several times
    #[arg(long, value_name = "O=I", value_parser = equation)]
    pub connect: Vec<String>,
    /// Make the input X of A and the input Y of B one input, X; both have the same default or none;
    /// may be given several times
    #[arg(long, value_name = "X=Y", value_parser = equation)]
    pub same_input: Vec<String>,
    /// Put PREFIX before the names of all values and nodes of A
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub prefix_a: String,
    /// Put PREFIX before the names of all values and nodes of B
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub prefix_b: String,
    #[command(flatten)]
    pub packed: PackedArgs,
    #[command(flatten)]
    pub write: WriteArgs,
}
