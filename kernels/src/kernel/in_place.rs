//! Results in the place of an input: whether one can lie there, and how its kernel then runs.
//!
//! The kernel of an elementwise operator may write over an input that nothing needs any more. The
//! kernel never gets one range both to read and to write: part by part, the machine gives it a copy
//! of a part of the input, and the same part of the output to write. So such a step needs no
//! further memory than that of one part.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::exact::Exact;
use crate::kernel::Kernel;
use crate::kernel::call::{Call, Operand, OutSpec};
use crate::kernel::run_cx::{Output, RunCx};
use crate::numeric::nan::settle;

/// The bytes of a part, unless the rows to which an input broadcasts are longer.
const PART: usize = 1 << 16;
/// The most bytes of a part.
const LONGEST_PART: usize = 1 << 20;

/// How the operands of an elementwise operator are cut into parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The dimensions of one row: those of the longest input that each row uses as a whole.
    row: Vec<usize>,
    /// The elements of one row.
    row_len: usize,
    /// The elements of the result.
    len: usize,
    /// The bytes of an element of the result, and of the input in whose place it is written.
    element: usize,
}

/// The input that the result of `call` can be written over, of those whose bytes nothing else needs
/// (`dies`), and how the result is then computed.
pub fn place(
    kernel: &dyn Kernel,
    call: &Call<'_>,
    specs: &[OutSpec],
    dies: impl Fn(usize) -> bool,
) -> Option<(usize, Parts)> {
    if !kernel.is_elementwise() {
        return None;
    }
    let dying = (0..call.input_count()).filter(|i| dies(*i));
    dying.into_iter().find_map(|i| Some((i, Parts::of(call, specs, i)?)))
}

/// What an input gives to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// The same rows.
    Rows,
    /// All of it: a scalar, or what every row uses.
    Whole,
}

impl Parts {
    /// How `call` is computed in parts, when its result, of `spec`, can be written over input `i`.
    fn of(call: &Call<'_>, specs: &[OutSpec], i: usize) -> Option<Self> {
        let [OutSpec::Tensor(dtype, shape)] = specs else { return None };
        // Before version 7 an attribute said along which axes an input broadcasts.
        let is_plain = call.input_count() == 1 || call.version() >= 7;
        let element = width(*dtype)?;
        let Operand::Tensor { dtype: of_input, shape: input, .. } = call.operand(i) else {
            return None;
        };
        if !is_plain || width(of_input)? != element || input != shape.as_slice() {
            return None;
        }
        let mut row: &[usize] = &[];
        for operand in (0..call.input_count()).map(|j| call.operand(j)) {
            let (shape_of_row, share) = share(operand, shape)?;
            if share == Share::Whole && shape_of_row.len() > row.len() {
                row = shape_of_row;
            }
        }
        let (row_len, len) = (count(row)?, count(shape)?);
        let fits = row_len > 0 && len > 0 && row_len.checked_mul(element)? <= LONGEST_PART;
        fits.then(|| Self { row: row.to_vec(), row_len, len, element })
    }

    /// Runs `kernel` on `call` and writes the result over `bytes`, which are those of input `i` and
    /// of every input for which `is_same`.
    pub fn run(
        &self,
        kernel: &dyn Kernel,
        call: &Call<'_>,
        specs: &[OutSpec],
        is_same: &dyn Fn(usize) -> bool,
        bytes: &mut [u8],
    ) -> Result<()> {
        let [OutSpec::Tensor(dtype, shape)] = specs else {
            return Err(Error::internal("a result in place that is no tensor"));
        };
        let rows = (PART / self.element / self.row_len).max(1) * self.row_len;
        let mut copy = vec![0_u64; (rows * self.element).div_ceil(8)];
        for start in (0..self.len).step_by(rows) {
            let part = start..self.len.min(start + rows);
            let target = bytes.get_mut(part.start * self.element..part.end * self.element);
            let target = target.ok_or_else(|| Error::internal("a part beyond its tensor"))?;
            let copied: &mut [u8] = bytemuck::cast_slice_mut(&mut copy);
            let copied = copied.get_mut(..target.len());
            let copied = copied.ok_or_else(|| Error::internal("a part that is too long"))?;
            copied.copy_from_slice(target);
            let part_shape = [&[part.len() / self.row_len], self.row.as_slice()].concat();
            let spec = OutSpec::Tensor(*dtype, part_shape.clone());
            let operand = |i| {
                let known = if is_same(i) { Some(&*copied) } else { None };
                part_of(call.operand(i), shape, &part, &part_shape, known)
            };
            let operands = (0..call.input_count()).map(operand).collect::<Result<_>>()?;
            let output = Output { spec: &spec, bytes: Some(&mut *target), value: None };
            kernel.run(&mut RunCx::new(Call::new(call.node(), operands), vec![output]))?;
            if kernel.leaves_nans() {
                settle(*dtype, target)?;
            }
        }
        Ok(())
    }
}

/// The part of `operand` that belongs to the elements in `part` of a result of `shape`. `known` are
/// its bytes, if they were copied.
fn part_of<'a>(
    operand: Operand<'a>,
    shape: &[usize],
    part: &Range<usize>,
    part_shape: &'a [usize],
    known: Option<&'a [u8]>,
) -> Result<Operand<'a>> {
    let internal = || Error::internal("an operand that has no parts");
    let Operand::Tensor { dtype, bytes, .. } = operand else { return Ok(operand) };
    let (row, share) = share(operand, shape).ok_or_else(internal)?;
    let bytes = match (share, known) {
        (Share::Whole, _) => return Ok(Operand::Tensor { dtype, shape: row, bytes }),
        (Share::Rows, Some(known)) => known,
        (Share::Rows, None) => {
            let element = width(dtype).ok_or_else(internal)?;
            let bytes = bytes.and_then(|b| b.get(part.start * element..part.end * element));
            bytes.ok_or_else(internal)?
        }
    };
    Ok(Operand::Tensor { dtype, shape: part_shape, bytes: Some(bytes) })
}

/// What `operand` gives to each part of a result of `shape`, and its own shape without leading
/// ones; `None` where it broadcasts otherwise.
fn share<'a>(operand: Operand<'a>, shape: &[usize]) -> Option<(&'a [usize], Share)> {
    let own = match operand {
        Operand::Absent => return Some((&[], Share::Whole)),
        Operand::Tensor { shape, dtype, .. } if width(dtype).is_some() => shape,
        _ => return None,
    };
    let ones = own.iter().take_while(|dim| **dim == 1).count();
    let row = own.debug_part(ones..);
    if own == shape {
        return Some((row, Share::Rows));
    }
    (own.len() <= shape.len() && shape.ends_with(row)).then_some((row, Share::Whole))
}

/// The bytes of an element, if they are whole ones.
fn width(dtype: onnx_container_proto::DataType) -> Option<usize> {
    let bits = usize::from(dtype.bit_width()?);
    (bits % 8 == 0).then_some(bits / 8)
}

fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |count, dim| count.checked_mul(*dim))
}
