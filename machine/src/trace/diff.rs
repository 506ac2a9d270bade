//! Where two runs part: their values are aligned by digest, whatever they are called.
//!
//! A step of one run that writes a value which no step of the other run has is a step that differs. The first
//! such step whose inputs the other run does have is where the results come from: everything before it is
//! the same in both. Names, paths and the order of steps do not matter, so inlined, renamed and reordered
//! models are aligned as they are.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use onnx_container::{Buffer, Error as ContainerError};

use super::digest::tensor_type;
use super::write::file_name;
use super::{Step, Trace, TracedValue};
use crate::data;
use crate::error::Result;
use crate::value::Value;

/// The differences of two traces, A and B.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceDiff {
    /// The inputs of the graph, by their number, that are not the same. Inputs that only one has are among them.
    pub inputs: Vec<usize>,
    /// The outputs of the graph, by their number, that are not the same.
    pub outputs: Vec<usize>,
    /// How many steps of A and of B write a value that the other run does not have.
    pub steps: [usize; 2],
    /// The first step that differs.
    pub first: Option<Part>,
}

/// A step at which two runs part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The step of A, by its number; `None` where only B has a step that differs.
    pub a: Option<usize>,
    /// The step of B in its place.
    pub b: Option<usize>,
    /// The first output of these steps that differs, by its number.
    pub output: usize,
    /// Whether both steps read the same values.
    pub same_inputs: bool,
}

impl TraceDiff {
    /// Compares two traces.
    ///
    /// Time and memory are linear in the number of values.
    pub fn new(a: &Trace, b: &Trace) -> Self {
        let (known_a, known_b) = (values(a), values(b));
        let differing_a = differing(a, &known_b);
        let differing_b = differing(b, &known_a);
        let first = first(a, &differing_a, &known_b)
            .map(|step| pair(a, step, b, &differing_b))
            .or_else(|| first(b, &differing_b, &known_a).map(only_b));
        Self {
            inputs: unequal(&a.head.inputs, &b.head.inputs),
            outputs: unequal(&a.end.outputs, &b.end.outputs),
            steps: [differing_a.len(), differing_b.len()],
            first,
        }
    }

    /// Whether the runs have the same inputs, the same values in their steps and the same outputs.
    pub fn is_same(&self) -> bool {
        self.inputs.is_empty() && self.outputs.is_empty() && self.first.is_none()
    }
}

type Identity<'t> = (&'t str, Option<&'t [u64]>, &'t str);

/// Every value that a run has: inputs of the graph, and what steps read and wrote.
fn values(trace: &Trace) -> HashSet<Identity<'_>> {
    let steps = trace.steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs));
    trace.head.inputs.iter().chain(steps).map(TracedValue::identity).collect()
}

/// The steps that write a value which is not `known`.
fn differing(trace: &Trace, known: &HashSet<Identity<'_>>) -> Vec<usize> {
    let differs = |step: &Step| step.outputs.iter().any(|out| !known.contains(&out.identity()));
    let numbered = trace.steps.iter().enumerate();
    numbered.filter(|(_, step)| differs(step)).map(|(i, _)| i).collect()
}

/// The first of the steps `differing` whose inputs are `known`, or else the first.
fn first(trace: &Trace, differing: &[usize], known: &HashSet<Identity<'_>>) -> Option<usize> {
    let inputs_known = |i: &&usize| {
        let step = trace.steps.get(**i);
        step.is_some_and(|step| step.inputs.iter().all(|v| known.contains(&v.identity())))
    };
    differing.iter().find(inputs_known).or(differing.first()).copied()
}

fn only_b(step: usize) -> Part {
    Part { a: None, b: Some(step), output: 0, same_inputs: false }
}

/// Step `i` of `a` with the step of `b` that stands in its place: the one of the same operator with the same
/// inputs, or else with the same node, or else the first that differs.
fn pair(a: &Trace, i: usize, b: &Trace, differing: &[usize]) -> Part {
    let alone = Part { a: Some(i), b: None, output: 0, same_inputs: false };
    let Some(step) = a.steps.get(i) else { return alone };
    let candidates: Vec<_> =
        differing.iter().filter_map(|j| Some((*j, b.steps.get(*j)?))).collect();
    let op = |step: &Step| step.op.rsplit_once('-').map(|(op, _)| op.to_owned());
    let same_op = |other: &Step| op(other) == op(step);
    let same_inputs = |other: &Step| unequal(&step.inputs, &other.inputs).is_empty();
    let found = candidates
        .iter()
        .find(|(_, other)| same_op(other) && same_inputs(other))
        .or_else(|| candidates.iter().find(|(_, other)| same_inputs(other)))
        .or_else(|| candidates.iter().find(|(_, other)| same_op(other) && other.node == step.node))
        .or_else(|| candidates.iter().find(|(_, other)| same_op(other)))
        .or(candidates.first());
    let Some((j, other)) = found else { return alone };
    let output = unequal(&step.outputs, &other.outputs).first().copied().unwrap_or_default();
    Part { a: Some(i), b: Some(*j), output, same_inputs: same_inputs(other) }
}

/// The numbers of the values that are not the same.
fn unequal(a: &[TracedValue], b: &[TracedValue]) -> Vec<usize> {
    let same = |i: &usize| match (a.get(*i), b.get(*i)) {
        (Some(a), Some(b)) => a.is_same(b),
        _ => false,
    };
    (0..a.len().max(b.len())).filter(|i| !same(i)).collect()
}

impl Trace {
    /// Output `output` of step `step`, from the files that [`TraceOptions::dump`](super::TraceOptions::dump) had
    /// written to `folder`; `None` for values that are no tensors.
    ///
    /// # Errors
    /// When the file is missing, holds no tensor of the type that the trace states, or is not the one whose
    /// digest the trace has.
    pub fn dumped(&self, folder: &Path, step: usize, output: usize) -> Result<Option<Value>> {
        let traced = self.steps.get(step).and_then(|step| step.outputs.get(output));
        let Some((traced, ty)) = traced.and_then(|t| Some((t, tensor_type(&t.dtype)?))) else {
            return Ok(None);
        };
        let path = folder.join(file_name(step as u64, output));
        let bytes = fs::read(&path).map_err(|error| ContainerError::io(&path, error))?;
        let value = data::decode(&Buffer::from(bytes), &ty)?;
        let found = super::digest::of_value(String::new(), &value)?;
        if found.is_same(traced) {
            return Ok(Some(value));
        }
        let path = path.display();
        Err(super::failed(format_args!(
            "`{path}` is not the value that the trace has at step {step}"
        )))
    }
}
