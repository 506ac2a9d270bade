//! `verify A B`: whether two models compute the same, and how that is known.
//!
//! Equal digests of what the models compute are a proof for all inputs. Equal outputs of both
//! models are evidence for the inputs of the runs. Otherwise the first differences are printed.

mod weights;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use onnx_container::Container;
use onnx_container_machine::compare::{Tolerance, difference};
use onnx_container_machine::{Declared, Profile, Value, random_inputs};
use serde::Serialize;

use crate::args::VerifyArgs;
use crate::commands::evaluate::apart::{Apart, as_declared, widened};
use crate::commands::evaluate::inputs::{Input, InputSource};
use crate::commands::evaluate::{Model, check_engine, sizes, sizes_of};
use crate::commands::{Execute, different};
use crate::model::{place, reading};
use crate::terminal::failure::{COULD_NOT, Failure, Outcome};
use crate::terminal::memory;
use crate::terminal::output::{Output, count, lossy};

/// What is said to who gives one model.
const ONE_MODEL: &str = "verify compares two models, and B is missing. To check that one model is unchanged, use \
                         check MODEL --digests, check MODEL --sha256 FILE=HEX or verify-signature MODEL";

impl Execute for VerifyArgs {
    fn name(&self) -> &'static str {
        "verify"
    }

    fn json(&self) -> bool {
        self.json
    }

    fn models(&self) -> Vec<&Path> {
        different(&self.a, self.b.as_deref())
    }

    fn code_of_failure(&self) -> u8 {
        COULD_NOT
    }

    fn run(&self, out: &mut Output) -> Result<Outcome, Failure> {
        run(self, out)
    }
}

/// Compares and prints.
fn run(args: &VerifyArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let other = args.b.as_deref().ok_or_else(|| Failure::Usage(ONE_MODEL.to_owned()))?;
    check_engine(&args.engine)?;
    let sizes = sizes(&args.dim)?;
    let reading = reading::of(&args.read);
    let a = place::load(&args.a, reading)?;
    let b = place::load(other, reading)?;
    let digests = Digests::new(&a, &b);
    let proof = digests.difference.is_none().then_some("semantic");
    let (seeds, outputs, differences) = (Vec::new(), Vec::new(), Vec::new());
    let mut report = VerifyReport {
        command: "verify",
        a: &args.a,
        b: other,
        proof,
        semantic_difference: digests.difference,
        other_elements: digests.other_elements,
        engine: None,
        seeds,
        outputs,
        differences,
    };
    // An engine that the user asked for runs even when the digests are the same.
    let runs = (report.proof.is_none() || args.engine.witness().is_some()) && args.runs > 0;
    if runs || !sizes.is_empty() {
        let (a, b) = (Model::new(&args.a, a, reading)?, Model::new(other, b, reading)?);
        let sizes = sizes_of(&a.program, sizes);
        a.program.check_sizes(&sizes)?;
        memory::bound(args.limits.max_memory);
        if runs {
            report.compare_runs(&a, &b, &sizes, args)?;
        }
    }
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(report.outcome(digests.are_known))
}

/// What the digests of what the models compute tell.
struct Digests {
    /// Whether both models have digests.
    are_known: bool,
    /// Why they do not show that both compute the same: where they first differ, or that a model
    /// has none.
    difference: Option<String>,
    /// Whether a weight has other elements in B: that at which the models part. `None` where that
    /// is no weight.
    other_elements: Option<bool>,
}

impl Digests {
    fn new(a: &Container, b: &Container) -> Self {
        let found = a.semantic_difference(b);
        let other_elements = match &found {
            Ok(None) => Some(false),
            Ok(Some(difference)) if difference.is_of_elements() => Some(true),
            _ => None,
        };
        let (are_known, difference) = match found {
            Ok(found) => (true, found.map(|difference| format!("they part at {difference}"))),
            Err(error) => (false, Some(format!("a model has none: {error}"))),
        };
        Self { are_known, difference, other_elements }
    }
}

/// What is known of two models, for people and as JSON.
#[derive(Serialize)]
struct VerifyReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    a: &'a Path,
    #[serde(serialize_with = "lossy")]
    b: &'a Path,
    /// `semantic`: for all inputs; `outputs`: on the inputs of the runs, bit by bit; `numbers`: on
    /// these, as numbers of other float types; `tolerance`: on these, within the tolerance. `null`:
    /// none.
    proof: Option<&'static str>,
    /// Why the digests of what the models compute do not show it.
    semantic_difference: Option<String>,
    /// Whether a weight has other elements in B. `None` where that was not looked for: it counts
    /// only where outputs are equal and no tolerance is given.
    other_elements: Option<bool>,
    /// What ran the models, if anything did.
    engine: Option<&'static str>,
    /// The seeds of the runs that were compared.
    seeds: Vec<u64>,
    /// How far each output of B is from that of A, in the run where it is farthest.
    outputs: Vec<Apart>,
    /// What differs in the runs.
    differences: Vec<String>,
}

impl VerifyReport<'_> {
    /// What the exit code tells: `is_known` says whether the digests were compared.
    fn outcome(&self, is_known: bool) -> Outcome {
        let is_compared = is_known || !self.seeds.is_empty() || !self.differences.is_empty();
        if is_compared { Outcome::of(self.proof.is_some()) } else { Outcome::CouldNot }
    }

    /// Runs both models until an output differs.
    fn compare_runs(
        &mut self,
        a: &Model,
        b: &Model,
        sizes: &HashMap<String, usize>,
        args: &VerifyArgs,
    ) -> Result<(), Failure> {
        let interface = Interface::of(a, b);
        match interface {
            Ok(interface) => {
                let mut exact = true;
                for run in 0..args.runs {
                    let seed = args.seed.wrapping_add(run);
                    exact &= self.compare_run(a, b, &interface, sizes, seed, args)?;
                    if !self.differences.is_empty() {
                        self.proof = None;
                        return Ok(());
                    }
                }
                if self.proof.is_none() {
                    self.proof = self.proof_of_runs(exact, [a, b], args)?;
                }
            }
            Err(reason) => {
                self.proof = None;
                self.differences.push(reason);
            }
        }
        Ok(())
    }

    /// What runs prove whose outputs are the same, and `exact` ones bit by bit.
    fn proof_of_runs(
        &mut self,
        exact: bool,
        models: [&Model; 2],
        args: &VerifyArgs,
    ) -> Result<Option<&'static str>, Failure> {
        Ok(match (exact, args.has_tolerance()) {
            // Inputs that do not reach a weight prove nothing of it.
            (_, false) if self.has_other_elements(models)? => None,
            (true, _) => Some("outputs"),
            (false, true) => Some("tolerance"),
            (false, false) => Some("numbers"),
        })
    }

    /// Whether a weight has other elements in B. All weights are read, where it is not known yet.
    fn has_other_elements(&mut self, [a, b]: [&Model; 2]) -> Result<bool, Failure> {
        let found = match self.other_elements {
            Some(known) => known,
            None => weights::have_other_elements(&a.container, &b.container)?,
        };
        self.other_elements = Some(found);
        Ok(found)
    }

    /// Runs both models on the inputs of `seed`, and returns whether all outputs are the same bit
    /// by bit.
    fn compare_run(
        &mut self,
        a: &Model,
        b: &Model,
        interface: &Interface,
        sizes: &HashMap<String, usize>,
        seed: u64,
        args: &VerifyArgs,
    ) -> Result<bool, Failure> {
        let most = args.limits.max_memory.unwrap_or(u64::MAX);
        let values = random_inputs::all_within(&a.program, seed, sizes, most)
            .map_err(|error| Failure::from(error).about(&args.a))?;
        let (in_a, in_b) = interface.inputs(a, b, values, seed)?;
        let outputs = |model: &Model, inputs: Vec<Input>| -> Result<_, Failure> {
            Ok(model.run(inputs, 1, (&args.engine, Profile::Strict), &args.limits)?.outputs)
        };
        let found = outputs(a, in_a).map_err(|failure| failure.about(&args.a))?;
        let other = outputs(b, in_b).map_err(|failure| failure.about(&b.path))?;
        self.seeds.push(seed);
        self.engine = Some(args.engine.name());
        let mut exact = true;
        let tolerance = Tolerance { rtol: args.rtol, atol: args.atol };
        for (i, (name, expected)) in found.iter().enumerate() {
            let Some((_, value)) = interface.output(i).and_then(|j| other.get(j)) else { continue };
            let same = value == expected;
            exact &= same;
            self.note(Apart::of(name, value, expected)?);
            if same {
                continue;
            }
            let wide = widened(value, expected)?;
            let found = match &wide {
                Some((value, expected)) => difference(value, expected, tolerance)?,
                None => difference(value, expected, tolerance)?,
            };
            let reason = match found {
                Some(reason) => reason,
                // Numbers of other types have no bits in common.
                None if args.has_tolerance() || wide.is_some() => continue,
                None => "equal numbers have other bits: the sign of a zero, or a NaN".to_owned(),
            };
            self.differences.push(format!("output `{name}`, seed {seed}: {reason}"));
        }
        Ok(exact)
    }

    /// Keeps how far an output is apart where it is farther than in the runs before.
    fn note(&mut self, apart: Option<Apart>) {
        let Some(apart) = apart else { return };
        match self.outputs.iter_mut().find(|known| known.output == apart.output) {
            Some(known) if known.max_abs < apart.max_abs => *known = apart,
            Some(_) => {}
            None => self.outputs.push(apart),
        }
    }

    /// Prints how the outputs of the runs were the same, and what ran the models if it was not the
    /// machine.
    fn print_runs(&self, how: &str, out: &mut Output) -> io::Result<()> {
        let runs = count(self.seeds.len(), "run");
        let by = match self.engine {
            None | Some("machine") => String::new(),
            Some(engine) => format!(" by {engine}"),
        };
        out.row("same", format_args!("{how} in {runs}{by} on random inputs"))?;
        let apart = self.outputs.iter().filter(|output| output.differing > 0);
        apart.into_iter().try_for_each(|output| output.print(out))
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        match self.proof {
            Some("semantic") => {
                out.row("same", "for all inputs: the semantic digests are the same")?;
                if !self.seeds.is_empty() {
                    self.print_runs("the outputs too", out)?;
                }
                return Ok(());
            }
            Some("outputs") => self.print_runs("bit by bit", out)?,
            Some("numbers") => self.print_runs("equal as numbers", out)?,
            Some(_) => self.print_runs("within the tolerance", out)?,
            None if self.differences.is_empty() && self.seeds.is_empty() => {
                out.row("not shown", "that the models compute the same")?;
            }
            None if self.differences.is_empty() => {
                let runs = count(self.seeds.len(), "run");
                let text = format_args!(
                    "that the models compute the same: a weight may have other elements, and {runs} on \
                     random inputs did not reach them; --rtol or --atol accepts that"
                );
                out.prose_row("not shown", text)?;
            }
            None => out.line("the models do not compute the same")?,
        }
        if let Some(place) = &self.semantic_difference {
            out.prose_row("digests", place)?;
        }
        for difference in &self.differences {
            out.prose_row("differs", difference)?;
        }
        let is_told = self.proof.is_none();
        let apart = self.outputs.iter().filter(|output| is_told && output.differing > 0);
        apart.into_iter().try_for_each(|output| output.print(out))
    }
}

/// Which inputs and outputs of two models belong together.
struct Interface {
    /// The name in B of each input of A.
    inputs: HashMap<String, String>,
    /// For each output of A, the number of that of B.
    outputs: Vec<usize>,
}

impl Interface {
    /// By names, where both models have the same ones, else by order. An error says why there is
    /// none.
    fn of(a: &Model, b: &Model) -> Result<Self, String> {
        let (of_a, of_b) = (&a.program.main, &b.program.main);
        let names = |model: &Model, declared: &[Declared]| -> Vec<String> {
            declared.iter().map(|one| model.program.main.name(one.value).to_owned()).collect()
        };
        let required = |model: &Model| -> Vec<String> {
            let main = &model.program.main;
            let defaults: HashSet<_> = main.constants.iter().map(|(id, _)| *id).collect();
            let required = main.inputs.iter().filter(|one| !defaults.contains(&one.value));
            required.map(|one| main.name(one.value).to_owned()).collect()
        };
        let (in_a, in_b) = (required(a), required(b));
        let (out_a, out_b) = (names(a, &of_a.outputs), names(b, &of_b.outputs));
        let all = |what: &str, a: &[String], b: &[String]| {
            pairs(a, b).ok_or_else(|| format!("A has {}, B {}", count(a.len(), what), b.len()))
        };
        let (inputs, outputs) = (all("input", &in_a, &in_b)?, all("output", &out_a, &out_b)?);
        let named = in_a.iter().zip(inputs).filter_map(|(name, j)| {
            // An index that `pairs` gives is one of `in_b`.
            Some((name.clone(), in_b.get(j)?.clone()))
        });
        Ok(Self { inputs: named.collect(), outputs })
    }

    /// The inputs of A and those of B for the same `values`, which both models hold exactly: where
    /// one of them takes fewer bits, the values are rounded to those.
    fn inputs(
        &self,
        a: &Model,
        b: &Model,
        values: Vec<(String, Value)>,
        seed: u64,
    ) -> Result<(Vec<Input>, Vec<Input>), Failure> {
        let pair = |(name, value): (String, Value)| {
            let of_b = self.inputs.get(&name).unwrap_or(&name).clone();
            let input = |name, value| Input { name, value, source: InputSource::Seed(seed) };
            let in_b = as_declared(b, &of_b, value)?;
            let in_a = as_declared(a, &name, in_b.clone())?;
            // Back again, should A have fewer bits.
            let in_b = as_declared(b, &of_b, in_a.clone())?;
            Ok::<_, Failure>((input(name, in_a), input(of_b, in_b)))
        };
        let pairs = values.into_iter().map(pair).collect::<Result<Vec<_>, _>>()?;
        Ok(pairs.into_iter().unzip())
    }

    fn output(&self, i: usize) -> Option<usize> {
        self.outputs.get(i).copied()
    }
}

/// For each of `a`, the place of its counterpart in `b`: by name, where both have the same names,
/// else by order.
fn pairs(a: &[String], b: &[String]) -> Option<Vec<usize>> {
    if a.len() != b.len() {
        return None;
    }
    let places: HashMap<_, _> = b.iter().enumerate().map(|(j, name)| (name, j)).collect();
    let by_name: Option<Vec<_>> = a.iter().map(|name| places.get(name).copied()).collect();
    Some(by_name.unwrap_or_else(|| (0..a.len()).collect()))
}
