//! Where two runs first differ: each step of one has a counterpart in the other, and the first pair
//! that wrote different values is named.
//!
//! The counterpart of a step is the step of the same operator that read the same values, wherever
//! it is and whatever it is called, so inlined, renamed and reordered models are aligned as they
//! are. Everything before the step that is named is the same in both runs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use onnx_container::MmapChoice;

use super::digest::tensor_type;
use super::write::file_name;
use super::{Step, Trace, TracedValue};
use crate::error::Result;
use crate::exact::Exact;
use crate::value::Value;
use crate::value::data;

/// The differences of two traces, A and B.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TraceDiff {
    /// The inputs of the graph, by their number, that are not the same. Inputs that only one has
    /// are among them.
    pub inputs: Vec<usize>,
    /// The outputs of the graph, by their number, that are not the same.
    pub outputs: Vec<usize>,
    /// How many steps of A and of B differ.
    pub steps: [usize; 2],
    /// Every step that differs: those of A in their order, then those of B without a counterpart.
    pub parts: Vec<Part>,
    /// The first of these.
    pub first: Option<Part>,
}

/// A step at which two runs differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The step of A, by its number; `None` where only B has a step that differs.
    pub a: Option<usize>,
    /// Its counterpart in B; `None` where it has none.
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
        let new_a: Vec<_> = a.steps.iter().map(|step| new_output(step, &known_b)).collect();
        let new_b: Vec<_> = b.steps.iter().map(|step| new_output(step, &known_a)).collect();
        let pairs = counterparts([a, b], [&new_a, &new_b]);
        let of_a = |(i, pair): (usize, &Option<usize>)| {
            let new = new_a.get(i).copied().flatten();
            match pair {
                Some(j) => {
                    let any_new = new.is_some() || new_b.get(*j).copied().flatten().is_some();
                    part([a, b], i, *j, any_new)
                }
                None => new.map(|output| Part { a: Some(i), b: None, output, same_inputs: false }),
            }
        };
        let mut parts: Vec<_> = pairs.iter().enumerate().filter_map(of_a).collect();
        let paired: HashSet<_> = pairs.iter().flatten().copied().collect();
        let alone = new_b.iter().enumerate().filter(|(j, _)| !paired.contains(j));
        let only_b = alone.filter_map(|(j, new)| {
            Some(Part { a: None, b: Some(j), output: (*new)?, same_inputs: false })
        });
        let of_a = parts.len();
        parts.extend(only_b);
        let of_b = parts.iter().filter(|part| part.b.is_some()).count();
        Self {
            inputs: unequal(&a.head.inputs, &b.head.inputs),
            outputs: unequal(&a.end.outputs, &b.end.outputs),
            steps: [of_a, of_b],
            first: parts.first().copied(),
            parts,
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

/// The first output of `step` that is not `known`, by its number.
fn new_output(step: &Step, known: &HashSet<Identity<'_>>) -> Option<usize> {
    step.outputs.iter().position(|output| !known.contains(&output.identity()))
}

/// Steps `i` and `j`, if they differ. Steps of the same operator that read the same values differ
/// when they wrote different values. Other steps differ only with `any_new`: one of them wrote a
/// value that the other run does not have.
fn part([a, b]: [&Trace; 2], i: usize, j: usize, any_new: bool) -> Option<Part> {
    let (left, right) = (a.steps.get(i)?, b.steps.get(j)?);
    let output = unequal(&left.outputs, &right.outputs).first().copied()?;
    let same_inputs = unequal(&left.inputs, &right.inputs).is_empty();
    let must_agree = same_inputs && operator(left) == operator(right);
    (must_agree || any_new).then_some(Part { a: Some(i), b: Some(j), output, same_inputs })
}

/// What counterparts have in common.
#[derive(Debug, Clone, Copy)]
enum By {
    Path,
    Name,
    Operator,
    Inputs,
    Outputs,
}

/// What counterparts have in common, the best first. The second part of an entry says whether it is
/// only for steps that wrote a value that the other run does not have.
const ALIGNMENTS: [(&[By], bool); 12] = {
    use By::{Inputs, Name, Operator, Outputs, Path};
    [
        (&[Path, Name, Operator, Inputs, Outputs], false),
        (&[Operator, Inputs, Outputs], false),
        (&[Path, Name, Operator, Inputs], false),
        (&[Name, Operator, Inputs], false),
        (&[Operator, Inputs], false),
        (&[Path, Name, Inputs], false),
        (&[Name, Inputs], true),
        (&[Inputs], true),
        (&[Path, Name, Operator], true),
        (&[Name, Operator], true),
        (&[Operator], true),
        (&[], true),
    ]
};

/// For each step of A its counterpart in B, which is that of no other step. `new` has for each step
/// of A and B its first output that the other run does not have.
fn counterparts(traces: [&Trace; 2], new: [&[Option<usize>]; 2]) -> Vec<Option<usize>> {
    let [a, b] = traces;
    let mut left: [Vec<(usize, &Step)>; 2] = traces.map(|t| t.steps.iter().enumerate().collect());
    let mut found = vec![None; a.steps.len()];
    for (by, only_new) in ALIGNMENTS {
        let [left_a, left_b] = &mut left;
        let is_new = |of: &[Option<usize>], i: usize| of.get(i).copied().flatten().is_some();
        let [new_a, new_b] = new;
        let mut free: HashMap<_, VecDeque<usize>> = HashMap::new();
        for (j, step) in left_b.iter().filter(|(j, _)| !only_new || is_new(new_b, *j)) {
            free.entry(key(step, by)).or_default().push_back(*j);
        }
        let mut taken = vec![false; b.steps.len()];
        left_a.retain(|(i, step)| {
            if only_new && !is_new(new_a, *i) {
                return true;
            }
            let pair = free.get_mut(&key(step, by)).and_then(VecDeque::pop_front);
            if let Some(j) = pair {
                taken.debug_set(j, true);
            }
            found.debug_set(*i, pair);
            pair.is_none()
        });
        left_b.retain(|(j, _)| taken.get(*j) != Some(&true));
    }
    found
}

#[derive(PartialEq, Eq, Hash)]
enum Key<'t> {
    Text(&'t str),
    Values(Vec<Identity<'t>>),
}

fn key<'t>(step: &'t Step, by: &[By]) -> Vec<Key<'t>> {
    let values =
        |of: &'t [TracedValue]| Key::Values(of.iter().map(TracedValue::identity).collect());
    let part = |by: &By| match by {
        By::Path => Key::Text(&step.path),
        By::Name => Key::Text(&step.node),
        By::Operator => Key::Text(operator(step)),
        By::Inputs => values(&step.inputs),
        By::Outputs => values(&step.outputs),
    };
    by.iter().map(part).collect()
}

/// The operator of a step without its version.
fn operator(step: &Step) -> &str {
    step.op.rsplit_once('-').map_or(&step.op, |(op, _)| op)
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
    /// Output `output` of step `step`, from the files in `folder` that have what
    /// [`TraceWriter::dump`](super::TraceWriter::dump) gave; `None` for values that are no tensors.
    ///
    /// # Errors
    /// When the file is missing, holds no tensor of the type that the trace states, or is not the
    /// one whose digest the trace has.
    pub fn dumped(&self, folder: &Path, step: usize, output: usize) -> Result<Option<Value>> {
        let traced = self.steps.get(step).and_then(|step| step.outputs.get(output));
        let Some((traced, ty)) = traced.and_then(|t| Some((t, tensor_type(&t.dtype)?))) else {
            return Ok(None);
        };
        let path = folder.join(file_name(step as u64, output));
        let value = data::decode(&MmapChoice::never().buffer(&path)?, &ty)?;
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
