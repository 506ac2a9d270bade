//! `trace diff` with a tolerance: of the steps that differ, those whose numbers are too far apart.
//!
//! Steps are paired by their values and names first. Then both models run once more, side by side,
//! because a trace has the digests of values alone.

use std::collections::{HashMap, HashSet};

use onnx_container_machine::compare::{Tolerance, difference};
use onnx_container_machine::trace::{Part, Trace, TraceDiff};
use onnx_container_machine::{Machine, Profile, Value};

use super::side::Running;
use crate::args::LimitArgs;
use crate::commands::evaluate::apart::widened;
use crate::terminal::failure::Failure;

/// Removes from `diff` what is within the tolerance.
pub fn apply(
    diff: &mut TraceDiff,
    traces: [&Trace; 2],
    models: [&Running; 2],
    tolerance: Tolerance,
    limits: &LimitArgs,
) -> Result<(), Failure> {
    let [a, b] = models;
    let mut runs = [
        Run::new(a, diff.parts.iter().filter_map(|part| part.a), limits)?,
        Run::new(b, diff.parts.iter().filter_map(|part| part.b), limits)?,
    ];
    let mut parts = Vec::new();
    for part in &diff.parts {
        parts.extend(judged(part, traces, &mut runs, tolerance)?);
    }
    let outputs = runs.map(Run::outputs);
    let [of_a, of_b] = outputs;
    diff.outputs = unequal(&diff.outputs, &of_a?, &of_b?, tolerance)?;
    diff.inputs = unequal(&diff.inputs, &a.values(), &b.values(), tolerance)?;
    let of = |side: fn(&Part) -> Option<usize>| parts.iter().filter_map(side).count();
    diff.steps = [of(|part| part.a), of(|part| part.b)];
    diff.first = parts.first().copied();
    diff.parts = parts;
    Ok(())
}

/// The part where it differs by more than the tolerance, with the first output that does.
fn judged(
    part: &Part,
    traces: [&Trace; 2],
    [a, b]: &mut [Run<'_>; 2],
    tolerance: Tolerance,
) -> Result<Option<Part>, Failure> {
    let (Some(i), Some(j)) = (part.a, part.b) else {
        let [of_a, of_b] = traces;
        let step =
            part.a.map_or_else(|| part.b.and_then(|j| of_b.steps.get(j)), |i| of_a.steps.get(i));
        let is_cast = step.is_some_and(|step| step.op.starts_with("ai.onnx.Cast-"));
        return Ok((!is_cast).then_some(*part));
    };
    let (found, expected) = (b.written(j)?, a.written(i)?);
    if found.len() != expected.len() {
        return Ok(Some(*part));
    }
    for (output, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if !is_within(found, expected, tolerance)? {
            return Ok(Some(Part { output, ..*part }));
        }
    }
    Ok(None)
}

/// Those of the values with these `numbers` that differ by more than the tolerance.
fn unequal(
    numbers: &[usize],
    expected: &[Value],
    found: &[Value],
    tolerance: Tolerance,
) -> Result<Vec<usize>, Failure> {
    let mut left = Vec::new();
    for number in numbers {
        let is_same = match (found.get(*number), expected.get(*number)) {
            (Some(found), Some(expected)) => is_within(found, expected, tolerance)?,
            _ => false,
        };
        left.extend((!is_same).then_some(*number));
    }
    Ok(left)
}

fn is_within(found: &Value, expected: &Value, tolerance: Tolerance) -> Result<bool, Failure> {
    let reason = match widened(found, expected)? {
        Some((found, expected)) => difference(&found, &expected, tolerance)?,
        None => difference(found, expected, tolerance)?,
    };
    Ok(reason.is_none())
}

/// A run that goes on to the steps that are asked for.
struct Run<'r> {
    machine: Machine,
    /// How many steps were shown.
    done: usize,
    /// The steps that will be asked for.
    wanted: HashSet<usize>,
    /// What those of them wrote that were passed and not asked for yet.
    passed: HashMap<usize, Vec<Value>>,
    model: &'r Running,
}

impl<'r> Run<'r> {
    fn new(
        model: &'r Running,
        wanted: impl Iterator<Item = usize>,
        limits: &LimitArgs,
    ) -> Result<Self, Failure> {
        let machine = model.model.machine(model.inputs.clone(), Profile::Strict, limits)?;
        let (wanted, passed) = (wanted.collect(), HashMap::new());
        Ok(Self { machine, done: 0, wanted, passed, model })
    }

    /// What step number `step` wrote.
    fn written(&mut self, step: usize) -> Result<Vec<Value>, Failure> {
        loop {
            if let Some(values) = self.passed.remove(&step) {
                return Ok(values);
            }
            if !self.go_on()? {
                let reason = format!("a second run of `{}` has no step {step}", self.model.shown());
                return Err(Failure::Refused(reason));
            }
        }
    }

    /// Takes one step of the main graph, with those inside of it; `false` at the end.
    fn go_on(&mut self) -> Result<bool, Failure> {
        let Self { machine, done, wanted, passed, .. } = self;
        let went_on = machine.step_with(&mut |record, memory| {
            if wanted.contains(done) {
                let values = record.writes.iter().map(|value| value.entry.to_value(memory));
                passed.insert(*done, values.collect::<Result<_, _>>()?);
            }
            *done += 1;
            Ok(())
        })?;
        Ok(went_on.is_some())
    }

    /// The outputs of the graph, after the steps that are left.
    fn outputs(mut self) -> Result<Vec<Value>, Failure> {
        self.wanted.clear();
        while self.go_on()? {}
        Ok(self.machine.into_outputs()?.into_iter().map(|(_, value)| value).collect())
    }
}
