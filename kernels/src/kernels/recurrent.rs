//! Recurrent layers: [RNN](https://onnx.ai/onnx/operators/onnx__RNN.html),
//! [GRU](https://onnx.ai/onnx/operators/onnx__GRU.html),
//! [LSTM](https://onnx.ai/onnx/operators/onnx__LSTM.html), and ONNX Runtime's
//! [DynamicQuantizeLSTM](https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DynamicQuantizeLSTM).
//!
//! Here is what they have in common: shapes, layouts, directions, lengths of sequences, and the
//! loop over the steps. A [`Cell`] computes one step; cells and the functions in them are in files
//! of their own. All is computed in `f32`, or in `f64` for DOUBLE, and rounded once for an output.

mod cell;
mod function;
mod weights;

use onnx_container_proto::Element;

use self::cell::{Cell, Gru, Lstm, Rnn};
use self::function::functions;
use self::weights::Weights;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::each_of;
use crate::numeric::{Float, Real, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("RNN", |call| infer(call, &RNN), |cx| run(cx, &RNN)),
    Builtin::new("GRU", |call| infer(call, &GRU), |cx| run(cx, &GRU)),
    Builtin::new("LSTM", |call| infer(call, &LSTM), |cx| run(cx, &LSTM)),
    Builtin::of_onnxruntime(
        "DynamicQuantizeLSTM",
        |call| infer(call, &QUANTIZED),
        |cx| run_as::<f32>(cx, &QUANTIZED),
    ),
];

/// What the operators differ in, besides their cells.
#[derive(Debug)]
struct Layer {
    kind: Kind,
    /// The number of matrices in the weights.
    gates: usize,
    /// Whether there is a state C beside H: one more input and output.
    memory: bool,
    /// Whether weights are integers with scales, and transposed.
    quantized: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

const RNN: Layer = Layer { kind: Kind::Rnn, gates: 1, memory: false, quantized: false };
const GRU: Layer = Layer { kind: Kind::Gru, gates: 3, memory: false, quantized: false };
const LSTM: Layer = Layer { kind: Kind::Lstm, gates: 4, memory: true, quantized: false };
const QUANTIZED: Layer = Layer { quantized: true, ..LSTM };

/// The functions of a cell where a node names none.
const RNN_FUNCTIONS: &[&str; 1] = &["Tanh"];
const GRU_FUNCTIONS: &[&str; 2] = &["Sigmoid", "Tanh"];
const LSTM_FUNCTIONS: &[&str; 3] = &["Sigmoid", "Tanh", "Tanh"];

/// The directions in which a sequence is read.
fn directions(call: &Call<'_>) -> Result<&'static [bool]> {
    match call.str_or("direction", "forward")? {
        "forward" => Ok(&[false]),
        // The default in the text of GRU-1.
        "foward" if call.node().op_type == "GRU" && call.version() < 3 => Ok(&[false]),
        "reverse" => Ok(&[true]),
        "bidirectional" => Ok(&[false, true]),
        other => {
            let reason = format!("the direction `{other}` is not known");
            Err(Error::new(ErrorKind::InvalidModel, reason))
        }
    }
}

/// The sizes of a layer.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    directions: usize,
    /// Whether the batch is the first dimension, as attribute `layout` says.
    batch_first: bool,
}

impl Sizes {
    /// The sizes that the shapes of X and R give; other inputs have to fit them.
    fn of(call: &Call<'_>, layer: &Layer) -> Result<Self> {
        let batch_first = call.flag("layout", false)?;
        let (x, r) = (call.shape(0)?, call.shape(2)?);
        let (&[first, second, input], &[directions, rows, columns]) = (&*x, &*r) else {
            return Err(Error::new(ErrorKind::Shape, "X or R has not three dimensions"));
        };
        let (steps, batch) = if batch_first { (second, first) } else { (first, second) };
        let hidden = if layer.quantized { rows } else { columns };
        let stated = call.node().attributes.int("hidden_size")?;
        if let Some(stated) = stated.filter(|stated| usize::try_from(*stated) != Ok(hidden)) {
            let reason = format!("hidden_size is {stated}, but R has shape {r:?}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        let sizes = Self { steps, batch, input, hidden, directions, batch_first };
        sizes.check(call, layer)?;
        Ok(sizes)
    }

    fn check(&self, call: &Call<'_>, layer: &Layer) -> Result<()> {
        let (d, h) = (self.directions, self.hidden);
        let all = h.saturating_mul(layer.gates);
        let oriented = |k| if layer.quantized { vec![d, k, all] } else { vec![d, all, k] };
        let mut expected = vec![
            (1, oriented(self.input)),
            (2, oriented(h)),
            (3, vec![d, all.saturating_mul(2)]),
            (4, vec![self.batch]),
            (5, self.state()),
        ];
        if layer.memory {
            expected.extend([(6, self.state()), (7, vec![d, h.saturating_mul(3)])]);
        }
        for (i, expected) in expected {
            if call.has_input(i) && call.shape(i)? != expected {
                let reason =
                    format!("input {i} has the shape {:?}, not {expected:?}", call.shape(i)?);
                return Err(Error::new(ErrorKind::Shape, reason));
            }
        }
        if directions(call)?.len() != d {
            let reason = format!("there are weights for {d} directions");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
        Ok(())
    }

    /// The shape of Y.
    fn outputs(&self) -> Vec<usize> {
        let Self { steps, batch, hidden, directions, .. } = *self;
        match self.batch_first {
            false => vec![steps, directions, batch, hidden],
            true => vec![batch, steps, directions, hidden],
        }
    }

    /// The shape of a state.
    fn state(&self) -> Vec<usize> {
        let Self { batch, hidden, directions, .. } = *self;
        match self.batch_first {
            false => vec![directions, batch, hidden],
            true => vec![batch, directions, hidden],
        }
    }

    /// Which vector of X belongs to a step of an entry of the batch.
    fn input_row(&self, step: usize, entry: usize) -> usize {
        if self.batch_first { entry * self.steps + step } else { step * self.batch + entry }
    }

    /// Which vector of Y.
    fn output_row(&self, step: usize, direction: usize, entry: usize) -> usize {
        match self.batch_first {
            false => (step * self.directions + direction) * self.batch + entry,
            true => (entry * self.steps + step) * self.directions + direction,
        }
    }

    /// Which vector of a state.
    fn state_row(&self, direction: usize, entry: usize) -> usize {
        match self.batch_first {
            false => direction * self.batch + entry,
            true => entry * self.directions + direction,
        }
    }
}

fn infer(call: &Call<'_>, layer: &Layer) -> Result<Vec<OutSpec>> {
    for direction in 0..directions(call)?.len() {
        match layer.kind {
            Kind::Rnn => drop(functions(call, direction, RNN_FUNCTIONS)?),
            Kind::Gru => drop(functions(call, direction, GRU_FUNCTIONS)?),
            Kind::Lstm => drop(functions(call, direction, LSTM_FUNCTIONS)?),
        }
    }
    let (sizes, dtype) = (Sizes::of(call, layer)?, call.dtype(0)?);
    let states = if layer.memory { 2 } else { 1 };
    let state = OutSpec::tensor(dtype, sizes.state());
    let outputs = OutSpec::tensor(dtype, sizes.outputs());
    Ok(std::iter::once(outputs).chain(std::iter::repeat_n(state, states)).collect())
}

fn run(cx: &mut RunCx<'_>, layer: &Layer) -> Result<()> {
    for_type!(cx.dtype(0)?, floats, T => run_as::<T>(cx, layer))
}

/// The elements of input `i` in the type in which they are computed; none where it is left out.
fn wide<T: Float>(call: &Call<'_>, i: usize) -> Result<Vec<T::Real>> {
    let input = call.input_or::<T>(i, &[])?;
    Ok(input.iter().map(|x| x.widen()).collect())
}

/// Part `i` of `len` elements.
fn part<T>(elements: &[T], i: usize, len: usize) -> Result<&[T]> {
    let end = i.saturating_add(1).saturating_mul(len);
    elements.part(i.saturating_mul(len)..end)
}

/// As [`part`], of an input that may be left out; then there are no elements.
fn part_if<T>(elements: &[T], i: usize, len: usize) -> Result<&[T]> {
    if elements.is_empty() { Ok(&[]) } else { part(elements, i, len) }
}

fn part_mut<T>(elements: &mut [T], i: usize, len: usize) -> Result<&mut [T]> {
    let end = i.saturating_add(1).saturating_mul(len);
    elements.part_mut(i.saturating_mul(len)..end)
}

/// The cell of one direction.
fn cell<'a, T: Float>(
    call: &Call<'a>,
    layer: &Layer,
    sizes: Sizes,
    direction: usize,
) -> Result<Box<dyn Cell<T::Real> + 'a>> {
    let recurrent = Weights::of::<T>(call, layer, 2, sizes.hidden, direction)?;
    let bias = wide::<T>(call, 3)?;
    let bias = part_if(&bias, direction, sizes.hidden * layer.gates * 2)?;
    Ok(match layer.kind {
        Kind::Rnn => {
            Box::new(Rnn::new(recurrent, bias, functions(call, direction, RNN_FUNCTIONS)?))
        }
        Kind::Gru => {
            let functions = functions(call, direction, GRU_FUNCTIONS)?;
            let after = call.flag("linear_before_reset", false)?;
            Box::new(Gru::new(recurrent, bias, functions, after, sizes.hidden)?)
        }
        Kind::Lstm => {
            let functions = functions(call, direction, LSTM_FUNCTIONS)?;
            let peepholes = wide::<T>(call, 7)?;
            let peepholes = part_if(&peepholes, direction, sizes.hidden * 3)?;
            let coupled = call.flag("input_forget", false)?;
            Box::new(Lstm::new(recurrent, bias, functions, peepholes, coupled))
        }
    })
}

fn run_as<T: Float>(cx: &mut RunCx<'_>, layer: &Layer) -> Result<()> {
    let sizes = Sizes::of(cx, layer)?;
    let lengths = lengths(cx, sizes)?;
    let (x, mut outputs) = (wide::<T>(cx, 0)?, Outputs::<T>::of(cx, layer)?);
    for (direction, reverse) in directions(cx)?.iter().enumerate() {
        let cell = cell::<T>(cx, layer, sizes, direction)?;
        let mut products = zeros([sizes.steps, sizes.batch, sizes.hidden, layer.gates])?;
        Weights::of::<T>(cx, layer, 1, sizes.input, direction)?.add_product(&x, &mut products)?;
        let mut states = State::first::<T>(cx, layer, sizes, direction)?;
        for step in 0..sizes.steps {
            states.step(&*cell, &products, (sizes, *reverse, step, &lengths))?;
            outputs.write_step(&states, (sizes, *reverse, step, &lengths), direction)?;
        }
        outputs.write_last(&states, sizes, direction)?;
    }
    Ok(())
}

/// As many zeros as the product of `sizes`.
fn zeros<R: Real>(sizes: [usize; 4]) -> Result<Vec<R>> {
    let too_large = || Error::new(ErrorKind::OutOfMemory, "the gates do not fit in memory");
    let len = sizes.iter().try_fold(1_usize, |len, size| len.checked_mul(*size));
    let (len, mut zeros) = (len.ok_or_else(too_large)?, Vec::new());
    zeros.try_reserve_exact(len).map_err(|_| too_large())?;
    zeros.resize(len, R::ZERO);
    Ok(zeros)
}

/// How many steps each entry of the batch has.
fn lengths(call: &Call<'_>, sizes: Sizes) -> Result<Vec<usize>> {
    if !call.has_input(4) {
        return Ok(vec![sizes.steps; sizes.batch]);
    }
    let length = |len: &i64| usize::try_from(*len).ok().filter(|len| *len <= sizes.steps);
    let lengths = call.integers(4)?;
    lengths.iter().map(length).collect::<Option<_>>().ok_or_else(|| {
        let reason = format!("the lengths {lengths:?} are not between 0 and {}", sizes.steps);
        Error::new(ErrorKind::Value, reason)
    })
}

/// A step of the loop: the sizes, whether sequences are read from their ends, the number of the
/// step, and the lengths.
type Step<'s> = (Sizes, bool, usize, &'s [usize]);

/// Every entry of the batch that still has a step, with its place in the sequence.
fn active<'s>((_, reverse, step, lengths): Step<'s>) -> impl Iterator<Item = (usize, usize)> + 's {
    let place = move |(entry, len): (usize, &usize)| {
        let at = if reverse { len.checked_sub(step + 1) } else { Some(step) };
        at.filter(|at| at < len).map(|at| (entry, at))
    };
    lengths.iter().enumerate().filter_map(place)
}

/// The states of all entries of the batch.
struct State<R> {
    h: Vec<R>,
    c: Vec<R>,
}

impl<R: Real> State<R> {
    fn first<T: Float<Real = R>>(
        call: &Call<'_>,
        layer: &Layer,
        sizes: Sizes,
        direction: usize,
    ) -> Result<Self> {
        let read = |i: usize| -> Result<Vec<R>> {
            let mut state = vec![R::ZERO; sizes.batch * sizes.hidden];
            let given = wide::<T>(call, i)?;
            for (entry, state) in state.chunks_mut(sizes.hidden.max(1)).enumerate() {
                let given = part_if(&given, sizes.state_row(direction, entry), sizes.hidden)?;
                state.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
            }
            Ok(state)
        };
        Ok(Self { h: read(5)?, c: if layer.memory { read(6)? } else { Vec::new() } })
    }

    /// One step of `cell`; `products` are those of all inputs with W.
    fn step(&mut self, cell: &dyn Cell<R>, products: &[R], step: Step<'_>) -> Result<()> {
        let (sizes, hidden) = (step.0, step.0.hidden);
        let width = each_of(products.len(), sizes.steps * sizes.batch);
        let mut gates = vec![R::ZERO; sizes.batch * width];
        for (entry, at) in active(step) {
            let from = part(products, sizes.input_row(at, entry), width)?;
            part_mut(&mut gates, entry, width)?.copy_from_slice(from);
        }
        cell.add_recurrent(&self.h, &mut gates)?;
        for (entry, _) in active(step) {
            let gates = part_mut(&mut gates, entry, width)?;
            let h = part_mut(&mut self.h, entry, hidden)?;
            let c = match self.c.as_mut_slice() {
                [] => &mut [], // a layer without memory
                c => part_mut(c, entry, hidden)?,
            };
            cell.step(gates, h, c)?;
        }
        Ok(())
    }
}

/// The outputs that are asked for: Y, and the last states.
struct Outputs<'a, T> {
    y: Option<&'a mut [T]>,
    last: [Option<&'a mut [T]>; 2],
}

impl<'a, T: Float + Element> Outputs<'a, T> {
    fn of(cx: &mut RunCx<'a>, layer: &Layer) -> Result<Self> {
        let mut y = cx.output_if::<T>(0)?;
        if let Some(y) = &mut y {
            y.fill(T::ZERO); // what lies behind the end of a sequence
        }
        let c = if layer.memory { cx.output_if::<T>(2)? } else { None };
        Ok(Self { y, last: [cx.output_if::<T>(1)?, c] })
    }

    fn write_step(
        &mut self,
        states: &State<T::Real>,
        step: Step<'_>,
        direction: usize,
    ) -> Result<()> {
        let Some(y) = &mut self.y else { return Ok(()) };
        let sizes = step.0;
        for (entry, at) in active(step) {
            let row = part_mut(y, sizes.output_row(at, direction, entry), sizes.hidden)?;
            round(part(&states.h, entry, sizes.hidden)?, row);
        }
        Ok(())
    }

    fn write_last(
        &mut self,
        states: &State<T::Real>,
        sizes: Sizes,
        direction: usize,
    ) -> Result<()> {
        for (state, last) in [&states.h, &states.c].into_iter().zip(&mut self.last) {
            let Some(last) = last else { continue };
            for entry in 0..sizes.batch {
                let row = part_mut(last, sizes.state_row(direction, entry), sizes.hidden)?;
                round(part(state, entry, sizes.hidden)?, row);
            }
        }
        Ok(())
    }
}

fn round<T: Float>(from: &[T::Real], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = T::round_from(*from));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sequence that is read from its end begins with its own last step, not with that of the
    /// longest one.
    #[test]
    fn each_sequence_is_read_in_its_own_length() {
        let sizes =
            Sizes { steps: 3, batch: 3, input: 1, hidden: 1, directions: 1, batch_first: false };
        let places = |reverse, step| active((sizes, reverse, step, &[3, 0, 2])).collect::<Vec<_>>();
        assert_eq!(places(false, 0), [(0, 0), (2, 0)]);
        assert_eq!(places(false, 2), [(0, 2)]);
        assert_eq!(places(true, 0), [(0, 2), (2, 1)]);
        assert_eq!(places(true, 2), [(0, 0)]);
    }
}
