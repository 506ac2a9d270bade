//! `trace diff A B`: the first step at which two runs differ, and by how much.

use std::fmt::Display;
use std::io;
use std::path::Path;

use onnx_container_machine::compare::Tolerance;
use onnx_container_machine::trace::{Part, Step, Trace, TraceDiff, TracedValue};
use serde::Serialize;

use super::side::Side;
use super::tolerance;
use crate::args::TraceDiffArgs;
use crate::commands::evaluate::apart::Apart;
use crate::terminal::failure::{Failure, Outcome};
use crate::terminal::output::{Number, Output, count, lossy};

/// Compares and prints.
pub fn run(args: &TraceDiffArgs, out: &mut Output) -> Result<Outcome, Failure> {
    let [a, b] = Side::both(args)?;
    if a.model.is_none() && b.model.is_none() && args.has_options_of_runs() {
        return Err(Failure::Usage(
            "A and B are traces, which are not run: inputs, sizes and limits are for models"
                .to_owned(),
        ));
    }
    let mut diff = TraceDiff::new(&a.trace, &b.trace);
    if let (true, Some(of_a), Some(of_b)) = (args.has_tolerance(), &a.model, &b.model) {
        let tolerance = Tolerance { rtol: args.rtol, atol: args.atol };
        let traces = [&a.trace, &b.trace];
        tolerance::apply(&mut diff, traces, [of_a, of_b], tolerance, &args.limits)?;
    }
    let amount = match diff.first {
        Some(Part { a: Some(i), b: Some(j), output, .. }) => {
            let left = a.value(i, output, args.dump_a.as_deref(), args)?;
            let right = b.value(j, output, args.dump_b.as_deref(), args)?;
            left.zip(right).map(|(a, b)| Apart::of("", &b, &a)).transpose()?.flatten()
        }
        _ => None,
    };
    let report = TraceDiffReport::new(args, &a.trace, &b.trace, &diff, amount);
    if args.json {
        out.json(&report)?;
    } else {
        report.print(out)?;
    }
    Ok(Outcome::of(report.same))
}

/// How two runs compare, for people and as JSON.
#[derive(Serialize)]
struct TraceDiffReport<'a> {
    command: &'static str,
    #[serde(serialize_with = "lossy")]
    a: &'a Path,
    #[serde(serialize_with = "lossy")]
    b: &'a Path,
    same: bool,
    /// The tolerance of the comparison.
    rtol: f64,
    atol: f64,
    /// The numeric profile of each run.
    profiles: [&'a str; 2],
    /// The inputs of the graph, by name, that differ.
    inputs: Vec<&'a str>,
    /// The outputs of the graph, by name, that differ.
    outputs: Vec<&'a str>,
    /// The steps of each run.
    steps: [usize; 2],
    /// How many steps of each run differ from those of the other run.
    differing_steps: [usize; 2],
    first: Option<First<'a>>,
}

/// The first step that differs, of each run.
#[derive(Serialize)]
struct First<'a> {
    a: Option<StepInfo<'a>>,
    b: Option<StepInfo<'a>>,
    /// Whether both steps read the same values.
    same_inputs: bool,
    by: Option<Amount>,
}

#[derive(Serialize)]
struct StepInfo<'a> {
    i: u64,
    path: &'a str,
    node: &'a str,
    op: &'a str,
    /// The output that differs.
    output: Option<&'a str>,
    dtype: Option<&'a str>,
    shape: Option<&'a [u64]>,
}

/// How much two tensors of one shape differ.
#[derive(Serialize)]
struct Amount {
    elements: usize,
    differing: usize,
    max_abs: f64,
    /// Relative to the element of A; infinite ones are `null`.
    max_rel: f64,
}

impl From<Apart> for Amount {
    fn from(apart: Apart) -> Self {
        let Apart { elements, differing, max_abs, max_rel, .. } = apart;
        Self { elements, differing, max_abs, max_rel }
    }
}

impl<'a> TraceDiffReport<'a> {
    fn new(
        args: &'a TraceDiffArgs,
        a: &'a Trace,
        b: &'a Trace,
        diff: &TraceDiff,
        amount: Option<Apart>,
    ) -> Self {
        let first = diff.first.map(|part| {
            let info = |trace: &'a Trace, step: Option<usize>| {
                trace.steps.get(step?).map(|step| StepInfo::new(step, part.output))
            };
            let (a, b) = (info(a, part.a), info(b, part.b));
            First { a, b, same_inputs: part.same_inputs, by: amount.clone().map(Amount::from) }
        });
        Self {
            command: "trace diff",
            a: &args.a,
            b: &args.b,
            same: diff.is_same(),
            rtol: args.rtol,
            atol: args.atol,
            profiles: [&a.head.profile, &b.head.profile],
            inputs: names(&diff.inputs, &a.head.inputs, &b.head.inputs),
            outputs: names(&diff.outputs, &a.end.outputs, &b.end.outputs),
            steps: [a.steps.len(), b.steps.len()],
            differing_steps: diff.steps,
            first,
        }
    }

    fn print(&self, out: &mut Output) -> io::Result<()> {
        let [a, b] = self.steps.map(|steps| count(steps, "step"));
        if self.same {
            let within = match self.rtol > 0.0 || self.atol > 0.0 {
                true => format!(", within the tolerance (rtol {}, atol {})", self.rtol, self.atol),
                false => String::new(),
            };
            return out.row("same", format_args!("all values of {a} and {b}{within}"));
        }
        let [of_a, of_b] = self.profiles;
        if of_a != of_b {
            out.row("profiles", format_args!("{of_a} for A, {of_b} for B, which round otherwise"))?;
        }
        for name in &self.inputs {
            out.prose_row("input", format_args!("{name} differs"))?;
        }
        if let Some(First { a, b, same_inputs, by }) = &self.first {
            for (start, step, other) in [("first A   ", a, "B"), ("first B   ", b, "A")] {
                match step {
                    Some(step) => out.prose(start, step)?,
                    None => {
                        out.prose(start, format_args!("the step of {other} has no counterpart"))?
                    }
                }
            }
            if a.is_some() && b.is_some() {
                let reads = if *same_inputs { "the same values" } else { "other values" };
                out.row("reads", format_args!("{reads}"))?;
            }
            if let Some(Amount { elements, differing, max_abs, max_rel }) = by {
                out.row(
                    "values",
                    format_args!(
                        "{differing} of {elements} elements differ, by at most {} (relative: {})",
                        Number(*max_abs),
                        Number(*max_rel)
                    ),
                )?;
            }
        }
        let [in_a, in_b] = self.differing_steps;
        out.row("steps", format_args!("{in_a} of {a} differ in A, {in_b} of {b} in B"))?;
        match self.outputs.as_slice() {
            [] => out.row("outputs", "are the same"),
            names => out.prose_row("outputs", format_args!("differ: {}", names.join(", "))),
        }
    }
}

/// The names of the values with these numbers.
fn names<'a>(numbers: &[usize], a: &'a [TracedValue], b: &'a [TracedValue]) -> Vec<&'a str> {
    let name = |i: &usize| a.get(*i).or(b.get(*i)).map(|value| value.name.as_str());
    numbers.iter().filter_map(name).collect()
}

impl<'a> StepInfo<'a> {
    fn new(step: &'a Step, output: usize) -> Self {
        let Step { i, path, node, op, outputs, .. } = step;
        let output = outputs.get(output);
        Self {
            i: *i,
            path,
            node,
            op,
            output: output.map(|value| value.name.as_str()),
            dtype: output.map(|value| value.dtype.as_str()),
            shape: output.and_then(|value| value.shape.as_deref()),
        }
    }
}

impl Display for StepInfo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, node, op, output, dtype, shape, .. } = self;
        let node = if node.is_empty() { String::new() } else { format!(" `{node}`") };
        write!(f, "step {path}, node{node} ({op}): {}", output.unwrap_or("no output"))?;
        match (dtype, shape) {
            (Some(dtype), Some(shape)) => write!(f, ", {dtype} {shape:?}"),
            _ => Ok(()),
        }
    }
}
