//! `cast --verify`: the written model is checked, and both models run on the same random inputs.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use onnx_container::check::check_model;
use onnx_container::{Container, DataType, Tensor};
use onnx_container_machine::compare::{Distance, distance};
use onnx_container_machine::{Profile, Value, random_inputs};
use serde::Serialize;

use crate::args::{CastArgs, LimitArgs};
use crate::commands::evaluate::inputs::{Input, InputSource};
use crate::commands::evaluate::{Model, sizes, sizes_of};
use crate::model::findings::Findings;
use crate::model::reading::Reading;
use crate::terminal::failure::Failure;
use crate::terminal::output::{Output, count};

/// The seed of the inputs.
const SEED: u64 = 0;

/// What `--verify` found.
#[derive(Debug, Serialize)]
pub struct Compared {
    ok: bool,
    /// What the check of the written model found, for people.
    #[serde(skip)]
    check: Findings,
    /// Its errors.
    errors: Vec<String>,
    seed: u64,
    outputs: Vec<OutputDifference>,
    /// Why the outputs are not compared.
    not_compared: Option<String>,
}

/// How far an output of the written model is from that of the model that was read.
#[derive(Debug, Serialize)]
struct OutputDifference {
    output: String,
    elements: usize,
    differing: usize,
    /// `None` where only one of two elements is finite: JSON has no infinity.
    max_abs: Option<f64>,
    max_rel: Option<f64>,
}

/// The model that was read, and the sizes of its open dimensions.
pub struct Original {
    model: Model,
    sizes: HashMap<String, usize>,
}

impl Original {
    /// The model in `container`, before it is cast, with the sizes of `--dim`.
    pub fn new(container: Container, args: &CastArgs, reading: Reading) -> Result<Self, Failure> {
        let model = Model::new(&args.paths.input, container, reading)?;
        let mut sizes = sizes_of(&model.program, sizes(&args.dim)?);
        model.program.check_sizes(&sizes)?;
        for open in model.program.open_dimensions() {
            sizes.entry(open).or_insert(1);
        }
        Ok(Self { model, sizes })
    }
}

/// Checks the written model, and compares what it computes with what `original` does.
///
/// A model that cannot run here is not compared: its report says why.
pub fn verify(original: &Original, args: &CastArgs, reading: Reading) -> Result<Compared, Failure> {
    let written = &args.paths.output;
    let check = Findings::of([], &check_model(written, reading)?);
    let (outputs, not_compared) = match compare(original, written, args, reading) {
        Ok(outputs) => (outputs, None),
        Err(Failure::Machine { message, .. }) => (Vec::new(), Some(message)),
        Err(failure) => return Err(failure),
    };
    let is_finite = outputs.iter().all(|output| output.max_abs.is_some());
    let errors = check.by_severity().0.iter().map(ToString::to_string).collect();
    let ok = check.ok && is_finite;
    Ok(Compared { ok, check, errors, seed: SEED, outputs, not_compared })
}

/// How far the outputs of both models are from each other, in the order of the outputs.
fn compare(
    original: &Original,
    written: &Path,
    args: &CastArgs,
    reading: Reading,
) -> Result<Vec<OutputDifference>, Failure> {
    let (old, new) = (&original.model, &Model::load(written, reading)?);
    // From the model with fewer bits in a number: its inputs are exact in the other one.
    let (from, other) = match DataType::from(args.to) {
        DataType::Float => (old, new),
        _ => (new, old),
    };
    let values = random_inputs::all_within(&from.program, SEED, &original.sizes, u64::MAX)?;
    let widened = values
        .iter()
        .map(|(name, value)| Ok::<_, Failure>((name.clone(), as_declared(other, name, value)?)));
    let widened = widened.collect::<Result<Vec<_>, _>>()?;
    let (found, expected) = match DataType::from(args.to) {
        DataType::Float => (run(new, widened)?, run(old, values)?),
        _ => (run(new, values)?, run(old, widened)?),
    };
    let pairs = found.into_iter().zip(expected);
    pairs.map(|((output, found), (_, expected))| difference(output, &found, &expected)).collect()
}

/// The outputs of a run of `model`.
fn run(model: &Model, values: Vec<(String, Value)>) -> Result<Vec<(String, Value)>, Failure> {
    let input = |(name, value)| Input { name, value, source: InputSource::Seed(SEED) };
    let limits = LimitArgs { max_memory: None, max_steps: None };
    let mut machine =
        model.machine(values.into_iter().map(input).collect(), Profile::Strict, &limits)?;
    machine.run()?;
    Ok(machine.into_outputs()?)
}

/// `value` in the type that `model` declares for the input `name`.
fn as_declared(model: &Model, name: &str, value: &Value) -> Result<Value, Failure> {
    let main = &model.program.main;
    let declared = main.inputs.iter().find(|input| main.name(input.value) == name);
    let wanted = declared.and_then(|input| input.ty.as_ref());
    match (value, wanted) {
        (Value::Tensor(tensor), Some(onnx_container_machine::Type::Tensor(wanted)))
            if *wanted != tensor.dtype() =>
        {
            Ok(Value::Tensor(converted(tensor, *wanted)?))
        }
        _ => Ok(value.clone()),
    }
}

fn converted(tensor: &Tensor, to: DataType) -> Result<Tensor, Failure> {
    Ok(Tensor::from_f32(to, tensor.dims(), &tensor.to_f32()?)?)
}

/// How far `found` is from `expected`, as numbers of 32 bits where their types differ.
fn difference(
    output: String,
    found: &Value,
    expected: &Value,
) -> Result<OutputDifference, Failure> {
    let apart = match (found, expected) {
        (Value::Tensor(a), Value::Tensor(b)) if a.dtype() != b.dtype() => {
            let wide =
                |tensor| Ok::<_, Failure>(Value::Tensor(converted(tensor, DataType::Float)?));
            distance(&wide(a)?, &wide(b)?)?
        }
        _ => distance(found, expected)?,
    };
    let Some(Distance { elements, differing, max_abs, max_rel, .. }) = apart else {
        let reason = format!("output `{output}` has another shape, or no numbers");
        return Err(Failure::Refused(reason));
    };
    let finite = |number: f64| number.is_finite().then_some(number);
    let (max_abs, max_rel) = (finite(max_abs), finite(max_rel));
    Ok(OutputDifference { output, elements, differing, max_abs, max_rel })
}

impl Compared {
    /// Whether the check found no error, and no number became infinite.
    pub fn is_well(&self) -> bool {
        self.ok
    }

    /// Prints the lines of a report.
    pub fn print(&self, out: &mut Output) -> io::Result<()> {
        out.row("checked", format_args!("{}", self.check))?;
        if let Some(reason) = &self.not_compared {
            return out.prose_row("not run", reason);
        }
        for one in &self.outputs {
            let OutputDifference { output, elements, differing, max_abs, .. } = one;
            let elements = count(*elements, "element");
            match max_abs {
                Some(max_abs) => out.row(
                    "differs",
                    format_args!(
                        "output `{output}` by at most {max_abs:.3e} ({differing} of {elements})"
                    ),
                )?,
                None => out.row(
                    "problem",
                    format_args!(
                        "output `{output}` is infinite or no number where it was a number: try \
                         --to bfloat16, or --keep-op and --except for what is too large"
                    ),
                )?,
            }
        }
        Ok(())
    }
}
