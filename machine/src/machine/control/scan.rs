//! [Scan](https://onnx.ai/onnx/operators/onnx__Scan.html): a graph that runs on each slice of its
//! inputs.
//!
//! The body has the inputs (state, slices) and the outputs (state, results); the results are put
//! together along an axis. In version 8 there is an axis in front of all others, the batch: each of
//! its elements is a scan of its own, with a length of its own.

use super::{Frame, stack};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::memory::elements::Elements;
use crate::memory::table::Entry;
use crate::numeric::broadcast::{around, axis, count, size};
use crate::program::Block;
use crate::value::Value;

pub(super) fn run(frame: &mut Frame<'_>) -> Result<Vec<Option<Entry>>> {
    let scan = Scan::of(frame)?;
    let values = if frame.node.version < 9 {
        batches(frame, &scan)?
    } else {
        let inputs = (0..frame.node.inputs.len()).map(|i| required(frame, i));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        scan.run(frame, inputs, None, "")?
    };
    values.into_iter().map(|value| frame.runner.put(value).map(Some)).collect()
}

fn required(frame: &Frame<'_>, i: usize) -> Result<Value> {
    let missing = || Error::new(ErrorKind::Input, format!("input {i} is missing"));
    frame.value(i)?.ok_or_else(missing)
}

/// What the attributes say, the same for every batch.
struct Scan<'f> {
    body: &'f Block,
    states: usize,
    input_axes: &'f [i64],
    input_directions: &'f [i64],
    output_axes: &'f [i64],
    output_directions: &'f [i64],
}

impl<'f> Scan<'f> {
    fn of(frame: &Frame<'f>) -> Result<Self> {
        let attributes = &frame.node.attributes;
        let ints = |name| attributes.ints_or(name, &[]);
        let is_first = frame.node.version < 9;
        let inputs = frame.node.inputs.len().saturating_sub(usize::from(is_first));
        let scanned = size(attributes.int_or("num_scan_inputs", 0)?)?;
        let body = frame.block("body")?;
        let states = inputs.checked_sub(scanned).filter(|states| *states <= body.outputs.len());
        let states = states.filter(|_| scanned > 0).ok_or_else(|| {
            let reason = format!("{scanned} of {inputs} inputs are scanned");
            Error::new(ErrorKind::InvalidModel, reason)
        })?;
        let directions = if is_first { "directions" } else { "scan_input_directions" };
        Ok(Self {
            body,
            states,
            input_axes: ints("scan_input_axes")?,
            input_directions: ints(directions)?,
            output_axes: ints("scan_output_axes")?,
            output_directions: ints("scan_output_directions")?,
        })
    }

    /// Scans `inputs`, which are the states and then the scanned inputs, and returns the last
    /// states and the results. `limit` is the number of slices to scan; `None` scans all.
    fn run(
        &self,
        frame: &mut Frame<'_>,
        mut inputs: Vec<Value>,
        limit: Option<usize>,
        label: &str,
    ) -> Result<Vec<Value>> {
        let scanned = inputs.split_off(self.states.min(inputs.len()));
        let scanned: Vec<_> = scanned
            .iter()
            .enumerate()
            .map(|(i, value)| self.slices(i, value, limit))
            .collect::<Result<_>>()?;
        let len = scanned.first().map_or(0, Vec::len);
        if scanned.iter().any(|slices| slices.len() != len) {
            let lens: Vec<_> = scanned.iter().map(Vec::len).collect();
            let reason = format!("the scanned inputs have {lens:?} slices");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let mut results: Vec<Vec<Value>> = vec![Vec::new(); self.body.outputs.len() - self.states];
        let (mut states, mut held) = (inputs, 0);
        for step in 0..len {
            frame.runner.count_step()?;
            let slices = scanned.iter().map(|slices| slices.at(step).cloned());
            let slices = slices.collect::<Result<Vec<_>>>()?;
            let values = states.into_iter().chain(slices);
            let label = format!("{}{label}[{step}]", frame.node.op_type);
            let mut outputs = frame.run_on_values(self.body, values, &label)?;
            let of_step = outputs.split_off(self.states.min(outputs.len()));
            for (result, value) in results.iter_mut().zip(of_step) {
                frame.collect(&mut held, &value)?;
                result.push(value);
            }
            states = outputs;
        }
        for (i, mut result) in results.into_iter().enumerate() {
            if self.output_directions.get(i) == Some(&1) {
                result.reverse();
            }
            let declared = self.body.outputs.get(self.states + i);
            let declared = declared.ok_or_else(|| Error::internal("a result without an output"))?;
            let stacked = stack(&result, declared)?;
            states.push(self.along_output(i, stacked)?);
        }
        Ok(states)
    }

    /// The slices of scanned input `i` in the order in which they are scanned: the first `limit`,
    /// all without one. What lies behind these is no part of the sequence.
    fn slices(&self, i: usize, value: &Value, limit: Option<usize>) -> Result<Vec<Value>> {
        let rank = value.tensor()?.shape().len();
        let at = axis(stated(self.input_axes, i), rank)?;
        let mut slices = unstack(&moved(value, at, 0)?)?;
        if let Some(limit) = limit {
            slices.truncate(limit);
        }
        if self.input_directions.get(i) == Some(&1) {
            slices.reverse();
        }
        Ok(slices)
    }

    /// Result `i`, whose slices are along the first axis, with the slices moved to the axis that
    /// the attributes give.
    fn along_output(&self, i: usize, stacked: Value) -> Result<Value> {
        let rank = stacked.tensor()?.shape().len();
        let at = axis(stated(self.output_axes, i), rank)?;
        moved(&stacked, 0, at)
    }
}

/// The axis that the list states for `i`, by default the first one.
fn stated(axes: &[i64], i: usize) -> i64 {
    axes.get(i).copied().unwrap_or(0)
}

/// Version 8: input 0 has the length of each batch, and the first axis of all others is the batch.
fn batches(frame: &mut Frame<'_>, scan: &Scan<'_>) -> Result<Vec<Value>> {
    let count = frame.node.inputs.len();
    let inputs = (1..count).map(|i| unstack(&required(frame, i)?));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let batches = inputs.first().map_or(0, Vec::len);
    let lens = match frame.value(0)? {
        None => vec![None; batches],
        Some(lens) => {
            let lens = lens.tensor()?.to_slice::<i64>()?;
            lens.iter().map(|len| size(*len).map(Some)).collect::<Result<_>>()?
        }
    };
    if lens.len() != batches || inputs.iter().any(|values| values.len() != batches) {
        return Err(Error::new(ErrorKind::Shape, "the inputs have different numbers of batches"));
    }
    let mut results: Vec<Vec<Value>> = vec![Vec::new(); scan.body.outputs.len()];
    for (batch, len) in lens.into_iter().enumerate() {
        let own = inputs.iter().filter_map(|values| values.get(batch)).cloned().collect();
        let longest = own_len(&inputs, scan.states)?;
        let values = scan.run(frame, own, len, &format!("[{batch}]"))?;
        for (i, (result, value)) in results.iter_mut().zip(values).enumerate() {
            let is_state = i < scan.states;
            result.push(if is_state { value } else { padded(&value, longest)? });
        }
    }
    let declared = scan.body.outputs.iter();
    results.iter().zip(declared).map(|(result, declared)| stack(result, declared)).collect()
}

/// The number of slices of the scanned inputs, along the axis behind the batch.
fn own_len(inputs: &[Vec<Value>], states: usize) -> Result<usize> {
    match inputs.get(states).and_then(|values| values.first()) {
        Some(value) => Ok(value.tensor()?.shape().first().map_or(0, |first| *first)),
        None => Ok(0),
    }
}

/// `value` with zeros behind it, so that its first axis has `len` elements.
fn padded(value: &Value, len: usize) -> Result<Value> {
    let tensor = value.tensor()?;
    let mut shape = tensor.shape();
    let [first, inner @ ..] = shape.as_mut_slice() else { return Ok(value.clone()) };
    let Some(missing) = len.checked_sub(*first) else { return Ok(value.clone()) };
    let mut elements = Elements::of(tensor)?;
    elements.extend_zeros(missing * count(inner));
    *first = len;
    elements.into_value(tensor.dtype(), &shape)
}

/// The slices along the first axis.
fn unstack(value: &Value) -> Result<Vec<Value>> {
    let tensor = value.tensor()?;
    let shape = tensor.shape();
    let Some((slices, inner)) = shape.split_first() else {
        return Err(Error::new(ErrorKind::Shape, "a scalar cannot be scanned"));
    };
    let (elements, len) = (Elements::of(tensor)?, count(inner));
    let slice = |i: usize| {
        let mut slice = elements.none();
        slice.extend(&elements, i * len, len)?;
        slice.into_value(tensor.dtype(), inner)
    };
    (0..*slices).map(slice).collect()
}

/// `value` with axis `from` at position `to`; one of them is 0.
fn moved(value: &Value, from: usize, to: usize) -> Result<Value> {
    let tensor = value.tensor()?;
    let mut shape = tensor.shape();
    if from == to {
        return Ok(value.clone());
    }
    // The axis changes places with all that it passes, taken as one.
    let passed = if to == 0 { from } else { to };
    let (outer, dim, inner) = around(&shape, passed);
    let (rows, columns) =
        if to == 0 { (outer, dim) } else { (*shape.at(0)?, count(shape.part(1..=to)?)) };
    let elements = Elements::of(tensor)?;
    let mut moved = elements.none();
    for column in 0..if shape.contains(&0) { 0 } else { columns } {
        for row in 0..rows {
            moved.extend(&elements, (row * columns + column) * inner, inner)?;
        }
    }
    let own = shape.remove(from);
    shape.insert(to, own);
    moved.into_value(tensor.dtype(), &shape)
}
