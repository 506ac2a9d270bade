//! Windows that slide over one to three spatial axes: the geometry of convolutions and poolings.
//!
//! Every operator with a window has the attributes `strides`, `dilations`, `pads` and `auto_pad`,
//! which are read here, once. Elements are visited by rows of the output, tap by tap, so that a
//! kernel's innermost loop runs over neighbouring outputs; for each output, the taps come in
//! row-major order.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::call::Call;
use crate::numeric::broadcast::size;

/// One axis: the numbers of inputs, outputs and taps, and how the taps lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) dilation: usize,
    /// The padding in front of and behind the input.
    pub(super) begin: usize,
    pub(super) end: usize,
}

impl Axis {
    /// An axis that is not there.
    const NONE: Self =
        Self { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };

    /// The taps of output `o` that lie in the input.
    pub(super) fn taps(&self, o: usize) -> Range<usize> {
        let from = o * self.stride;
        let first = self.begin.saturating_sub(from).div_ceil(self.dilation);
        let end = (self.begin + self.input).saturating_sub(from).div_ceil(self.dilation);
        first.min(self.kernel)..end.min(self.kernel)
    }

    /// How many taps of output `o` lie in the input or its padding.
    pub(super) fn padded_taps(&self, o: usize) -> usize {
        let padded = self.begin + self.input + self.end;
        padded.saturating_sub(o * self.stride).div_ceil(self.dilation).min(self.kernel)
    }

    /// The outputs of which `tap` lies in the input.
    pub(super) fn outputs(&self, tap: usize) -> Range<usize> {
        let from = tap * self.dilation;
        let first = self.begin.saturating_sub(from).div_ceil(self.stride);
        let end = (self.begin + self.input).saturating_sub(from).div_ceil(self.stride);
        first.min(self.output)..end.min(self.output)
    }

    /// The input at `tap` of output `o`, which lies in the input.
    pub(super) fn at(&self, o: usize, tap: usize) -> usize {
        (o * self.stride + tap * self.dilation).saturating_sub(self.begin)
    }

    /// The number of inputs from the first to the last tap of one output.
    fn extent(&self) -> Option<usize> {
        self.kernel.checked_sub(1)?.checked_mul(self.dilation)?.checked_add(1)
    }
}

/// Neighbouring outputs with the input that each has at one tap.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) tap: usize,
    /// Where the outputs are in their plane.
    pub(super) output: Range<usize>,
    /// Where the input of the first output is in its plane, and how far apart the inputs are.
    pub(super) input: usize,
    pub(super) stride: usize,
}

impl Row {
    /// Calls `f` with each output of the row and its input.
    #[inline(always)]
    pub(super) fn zip<O, I>(&self, outputs: &mut [O], inputs: &[I], f: impl Fn(&mut O, &I)) {
        let outputs = outputs.debug_part_mut(self.output.clone());
        let inputs = inputs.debug_part(self.input..);
        match self.stride {
            1 => outputs.iter_mut().zip(inputs).for_each(|(o, i)| f(o, i)),
            stride => {
                let inputs = inputs.iter().step_by(stride);
                outputs.iter_mut().zip(inputs).for_each(|(o, i)| f(o, i));
            }
        }
    }

    /// As [`zip`](Self::zip), to change the inputs.
    pub(super) fn zip_back<O, I>(&self, outputs: &[O], inputs: &mut [I], f: impl Fn(&O, &mut I)) {
        let outputs = outputs.debug_part(self.output.clone());
        let inputs = inputs.debug_part_mut(self.input..);
        let inputs = inputs.iter_mut().step_by(self.stride.max(1));
        outputs.iter().zip(inputs).for_each(|(o, i)| f(o, i));
    }
}

/// The window of one node: three axes, of which the first ones are [`Axis::NONE`] where there are
/// fewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) axes: [Axis; 3],
    rank: usize,
}

impl Window {
    /// The window of `kernel` taps over `input`, by the attributes of the node.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] and [`ErrorKind::Shape`] when there is no such window, and
    /// [`ErrorKind::Unsupported`] for more than three axes.
    pub(super) fn new(call: &Call<'_>, input: &[usize], kernel: &[usize]) -> Result<Self> {
        let at_least_one = |axis| slide(axis, false).filter(|axis| axis.output > 0);
        Self::sliding(call, input, kernel, [&at_least_one, &at_least_one])
    }

    /// As [`new`](Self::new), of a pooling: attribute `ceil_mode` is about windows that are not
    /// within the input, but by the text not where `auto_pad` is VALID. There may be no output.
    pub(super) fn pooling(call: &Call<'_>, input: &[usize], kernel: &[usize]) -> Result<Self> {
        let ceil = call.flag("ceil_mode", false)?;
        let by_mode = |axis| slide(axis, ceil);
        Self::sliding(call, input, kernel, [&by_mode, &|axis| slide(axis, false)])
    }

    /// The window whose outputs are given by `slide`: with the padding of the attributes, and where
    /// there is none by VALID.
    fn sliding(
        call: &Call<'_>,
        input: &[usize],
        kernel: &[usize],
        [slide, slide_valid]: [&dyn Fn(Axis) -> Option<Axis>; 2],
    ) -> Result<Self> {
        let axes = attributes(call, input, kernel)?;
        let mode = call.str_or("auto_pad", "NOTSET")?;
        let axes = axes.into_iter().map(|axis| {
            let padded = match mode {
                "SAME_UPPER" | "SAME_LOWER" => pad_same(axis, mode == "SAME_UPPER"),
                "VALID" => slide_valid(Axis { begin: 0, end: 0, ..axis }),
                _ => slide(axis),
            };
            padded.ok_or_else(|| no_window(&axis))
        });
        Self::from_axes(&axes.collect::<Result<Vec<_>>>()?)
    }

    /// The window with these axes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn from_axes(list: &[Axis]) -> Result<Self> {
        let mut axes = [Axis::NONE; 3];
        let (rank, missing) = (list.len(), axes.len().checked_sub(list.len()));
        let Some(own) = missing.and_then(|missing| axes.get_mut(missing..)) else {
            let reason = format!("a window over {rank} axes; three is the most");
            return Err(Error::new(ErrorKind::Unsupported, reason));
        };
        own.copy_from_slice(list);
        let product = |f: fn(&Axis) -> usize| {
            axes.iter().try_fold(1_usize, |product, axis| product.checked_mul(f(axis)))
        };
        match (product(|a| a.kernel), product(|a| a.output), product(|a| a.input)) {
            (Some(_), Some(_), Some(_)) => Ok(Self { axes, rank }),
            _ => Err(Error::new(ErrorKind::Shape, "a window with too many elements")),
        }
    }

    /// The dimensions of the output.
    pub(super) fn output(&self) -> impl Iterator<Item = usize> {
        self.axes.iter().skip(3 - self.rank).map(|axis| axis.output)
    }

    /// The dimensions of the input.
    pub(super) fn input(&self) -> impl Iterator<Item = usize> {
        self.axes.iter().skip(3 - self.rank).map(|axis| axis.input)
    }

    /// The number of elements of a plane of the input.
    pub(super) fn input_len(&self) -> usize {
        self.axes.iter().map(|axis| axis.input).product()
    }

    /// The number of elements of a plane of the output.
    pub(super) fn output_len(&self) -> usize {
        self.axes.iter().map(|axis| axis.output).product()
    }

    /// The number of taps.
    pub(super) fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }

    /// Whether every output is the input at the same place.
    pub(super) fn is_pointwise(&self) -> bool {
        self.taps() == 1
            && self.axes.iter().all(|a| a.stride == 1 && a.begin == 0 && a.input == a.output)
    }

    /// Calls `f` with every row of outputs and every tap that lies in the input.
    #[inline(always)]
    pub(super) fn rows(&self, mut f: impl FnMut(Row)) {
        let [a, b, c] = &self.axes;
        let Some(last) = c.output.checked_sub(1) else { return };
        let last_taps = c.taps(last).start..c.taps(0).end;
        for (i, j) in (0..a.output).flat_map(|i| (0..b.output).map(move |j| (i, j))) {
            let start = (i * b.output + j) * c.output;
            for (s, t) in a.taps(i).flat_map(|s| b.taps(j).map(move |t| (s, t))) {
                let line = (a.at(i, s) * b.input + b.at(j, t)) * c.input;
                for u in last_taps.clone() {
                    let outputs = c.outputs(u);
                    f(Row {
                        tap: (s * b.kernel + t) * c.kernel + u,
                        input: line + c.at(outputs.start, u),
                        output: start + outputs.start..start + outputs.end,
                        stride: c.stride,
                    });
                }
            }
        }
    }
}

/// The axes by the attributes, without their outputs.
pub(super) fn attributes(call: &Call<'_>, input: &[usize], kernel: &[usize]) -> Result<Vec<Axis>> {
    let rank = input.len();
    let (strides, dilations) = (list(call, "strides", rank, 1)?, list(call, "dilations", rank, 1)?);
    let pads = list(call, "pads", 2 * rank, 0)?;
    let (begins, ends) = pads.split_at(rank);
    if kernel.len() != rank || strides.contains(&0) || dilations.contains(&0) || kernel.contains(&0)
    {
        let reason = format!(
            "a window of {kernel:?} with strides {strides:?} and dilations {dilations:?} over {input:?}"
        );
        return Err(Error::new(ErrorKind::Value, reason));
    }
    let sizes = input.iter().zip(kernel).zip(strides.iter().zip(&dilations));
    let axes = sizes.zip(begins.iter().zip(ends)).map(
        |(((input, kernel), (stride, dilation)), (begin, end))| Axis {
            input: *input,
            output: 0,
            kernel: *kernel,
            stride: *stride,
            dilation: *dilation,
            begin: *begin,
            end: *end,
        },
    );
    Ok(axes.collect())
}

/// The attribute `name`, of `len` sizes, which are `default` where it is not set.
pub(super) fn list(call: &Call<'_>, name: &str, len: usize, default: usize) -> Result<Vec<usize>> {
    let Some(list) = call.ints(name)?.filter(|list| !list.is_empty()) else {
        return Ok(vec![default; len]);
    };
    if list.len() != len {
        let reason = format!("attribute `{name}` has {} numbers, not {len}", list.len());
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    list.iter().map(|dim| size(*dim)).collect()
}

/// As many outputs as windows fit: `floor(room / stride) + 1`, where the room is what the input is
/// longer than a window. It is negative for a shorter input, and the outputs are then none, or
/// fewer, which is `None`. With `ceil`, one more if inputs would be left over and its window does
/// not start behind them.
fn slide(axis: Axis, ceil: bool) -> Option<Axis> {
    let padded = axis.input.checked_add(axis.begin)?.checked_add(axis.end)?;
    let room = i128::try_from(padded).ok()? - i128::try_from(axis.extent()?).ok()?;
    let stride = i128::try_from(axis.stride).ok()?;
    let fitting = room.checked_div_euclid(stride)?.checked_add(1)?;
    let mut output = usize::try_from(fitting).ok()?;
    let is_left_over = room.checked_rem_euclid(stride)? != 0;
    if ceil && is_left_over && output.checked_mul(axis.stride)? < axis.input + axis.begin {
        output += 1;
    }
    Some(Axis { output, ..axis })
}

/// One output for every `stride` inputs, and as much padding as they need; if that is odd, the
/// extra element is behind (`upper`) or in front.
fn pad_same(axis: Axis, upper: bool) -> Option<Axis> {
    let output = axis.input.div_ceil(axis.stride);
    let needed = output.saturating_sub(1).checked_mul(axis.stride)?.checked_add(axis.extent()?)?;
    let total = needed.saturating_sub(axis.input);
    let (less, more) = (total / 2, total - total / 2);
    let (begin, end) = if upper { (less, more) } else { (more, less) };
    Some(Axis { output, begin, end, ..axis })
}

fn no_window(axis: &Axis) -> Error {
    let Axis { input, kernel, dilation, begin, end, .. } = axis;
    let reason = format!(
        "a window of {kernel} taps, {dilation} apart, over {input} elements with {begin} and {end} of padding"
    );
    Error::new(ErrorKind::Shape, reason)
}

/// The dimensions of input `i` as batch, channels and the spatial ones.
///
/// # Errors
/// [`ErrorKind::Shape`] when there are less than three.
pub(super) fn image(call: &Call<'_>, i: usize) -> Result<(usize, usize, Vec<usize>)> {
    let shape = call.shape(i)?;
    match shape.as_slice() {
        [batch, channels, spatial @ ..] if !spatial.is_empty() => {
            Ok((*batch, *channels, spatial.to_vec()))
        }
        _ => {
            let reason = format!("the shape {shape:?} has no spatial dimensions behind channels");
            Err(Error::new(ErrorKind::Shape, reason))
        }
    }
}
