//! `cast --verify`: the written model is checked, and both models run on the same random inputs.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use onnx_container::check::check_model;
use onnx_container::{Container, DataType};
use onnx_container_machine::{Profile, Value, random_inputs};
use serde::Serialize;

use crate::args::{CastArgs, LimitArgs};
use crate::commands::evaluate::apart::{Apart, as_declared};
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
    /// Open dimensions that were given no size.
    #[serde(skip)]
    taken_as_one: Vec<String>,
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
    /// Open dimensions that were given no size.
    taken_as_one: Vec<String>,
}

impl Original {
    /// The model in `container`, before it is cast, with the sizes of `--dim`.
    pub fn new(container: Container, args: &CastArgs, reading: Reading) -> Result<Self, Failure> {
        let model = Model::new(&args.paths.input, container, reading)?;
        let mut sizes = sizes_of(&model.program, sizes(&args.dim)?);
        model.program.check_sizes(&sizes)?;
        let open = model.program.open_dimensions().into_iter();
        let taken_as_one: Vec<_> = open.filter(|name| !sizes.contains_key(name)).collect();
        sizes.extend(taken_as_one.iter().map(|name| (name.clone(), 1)));
        Ok(Self { model, sizes, taken_as_one })
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
    let taken_as_one = original.taken_as_one.clone();
    Ok(Compared { ok, check, errors, seed: SEED, outputs, not_compared, taken_as_one })
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
    let widened = values.iter().map(|(name, value)| {
        Ok::<_, Failure>((name.clone(), as_declared(other, name, value.clone())?))
    });
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

/// How far `found` is from `expected`, as numbers of 32 bits where their types differ.
fn difference(
    output: String,
    found: &Value,
    expected: &Value,
) -> Result<OutputDifference, Failure> {
    let Some(apart) = Apart::of(&output, found, expected)? else {
        return without_numbers(output, found, expected);
    };
    let finite = |number: f64| number.is_finite().then_some(number);
    let Apart { elements, differing, max_abs, max_rel, .. } = apart;
    let (max_abs, max_rel) = (finite(max_abs), finite(max_rel));
    Ok(OutputDifference { output, elements, differing, max_abs, max_rel })
}

/// How many texts differ; equal values of other kinds do not.
fn without_numbers(
    output: String,
    found: &Value,
    expected: &Value,
) -> Result<OutputDifference, Failure> {
    let same = |elements, differing| {
        let (max_abs, max_rel) = (Some(0.0), Some(0.0));
        Ok(OutputDifference { output: output.clone(), elements, differing, max_abs, max_rel })
    };
    if let (Value::Tensor(found), Value::Tensor(expected)) = (found, expected)
        && let (Some(texts), Some(others)) = (found.strings(), expected.strings())
        && found.dims() == expected.dims()
    {
        return same(texts.len(), texts.iter().zip(others).filter(|(a, b)| a != b).count());
    }
    if found == expected {
        return same(0, 0);
    }
    let reason =
        format!("output `{output}` has another shape, or other values that are no numbers");
    Err(Failure::Refused(reason))
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
        if !self.taken_as_one.is_empty() {
            let names = self.taken_as_one.join(", ");
            out.prose_row("ran", format_args!("with {names} = 1; --dim NAME=N sets another size"))?;
        }
        for one in &self.outputs {
            let OutputDifference { output, elements, differing, max_abs, max_rel } = one;
            let elements = count(*elements, "element");
            let relative = match max_rel {
                Some(max_rel) => format!(", relative {max_rel:.3e}"),
                None => String::new(),
            };
            match max_abs {
                Some(max_abs) => out.prose_row(
                    "differs",
                    format_args!(
                        "output `{output}` by at most {max_abs:.3e}{relative} ({differing} of {elements})"
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
