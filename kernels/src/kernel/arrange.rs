//! Moving elements without looking at them: one function for every element type.
//!
//! An output is a list of [`Run`]s of elements of inputs. Elements narrower than a byte and strings
//! are moved like others, so a kernel that only moves says where from, and nothing else.

use onnx_container_proto::{Buffer, DataType};

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::run_cx::RunCx;

/// Neighbouring elements of an input, which are the next ones of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// `len` elements of input `input`, from element `from` on.
    Copy { input: usize, from: usize, len: usize },
    #[allow(dead_code, reason = "Pad and others need it")]
    /// `len` elements that are zero, false or empty.
    Zero { len: usize },
}

impl Run {
    /// One element.
    pub(crate) fn one(input: usize, from: usize) -> Self {
        Self::Copy { input, from, len: 1 }
    }
}

/// Fills output `j` with `runs`. Every input that they name has the type of the output.
///
/// # Errors
/// [`ErrorKind::Value`] when a run does not lie in its input, [`ErrorKind::Type`] when an input has
/// another type, [`ErrorKind::Internal`] when the runs are more or less than the output.
pub(crate) fn arrange(
    cx: &mut RunCx<'_>,
    j: usize,
    runs: impl IntoIterator<Item = Run>,
) -> Result<()> {
    let mut runs = runs.into_iter().fuse();
    arrange_in_parts(cx, j, &mut |part| part.extend(runs.by_ref().take(PART)))
}

/// How many runs are collected before they are copied. Every kernel makes runs in its own way; the
/// copying is compiled once for each width.
const PART: usize = 256;

/// Adds the next runs to a list, or none after the last one.
type Next<'r> = &'r mut dyn FnMut(&mut Vec<Run>);

fn arrange_in_parts(cx: &mut RunCx<'_>, j: usize, runs: Next<'_>) -> Result<()> {
    let dtype = cx.out_dtype(j)?;
    if cx.out_shape(j)?.contains(&0) {
        return nothing(cx, j);
    }
    match dtype.bit_width() {
        None => {
            let sources = sources(cx, dtype, |i| cx.strings(i))?;
            let strings = collect(&sources, runs, &Buffer::default())?;
            cx.set_strings(j, strings)
        }
        Some(bits) if bits < 8 => {
            let codes = sources(cx, dtype, |i| cx.codes(i))?;
            let codes = collect(&codes, runs, &0)?;
            cx.set_codes(j, &codes)
        }
        Some(8) => copy::<1>(cx, j, runs),
        Some(16) => copy::<2>(cx, j, runs),
        Some(32) => copy::<4>(cx, j, runs),
        Some(64) => copy::<8>(cx, j, runs),
        Some(128) => copy::<16>(cx, j, runs),
        Some(bits) => Err(Error::internal(format!("elements of {bits} bits"))),
    }
}

/// Writes an output without elements. However many runs there are, they are all empty.
fn nothing(cx: &mut RunCx<'_>, j: usize) -> Result<()> {
    match cx.out_dtype(j)? {
        DataType::String => cx.set_strings(j, Vec::new()),
        _ => cx.out_bytes(j).map(drop),
    }
}

/// What `read` gives for each input of type `dtype`, `None` for others.
fn sources<S>(
    cx: &RunCx<'_>,
    dtype: DataType,
    read: impl Fn(usize) -> Result<S>,
) -> Result<Vec<Option<S>>> {
    let source = |i| match cx.dtype(i) {
        Ok(found) if found == dtype => read(i).map(Some),
        _ => Ok(None),
    };
    (0..cx.input_count()).map(source).collect()
}

/// The elements of `runs`, in a list of their own.
fn collect<S: AsRef<[T]>, T: Clone>(
    sources: &[Option<S>],
    runs: Next<'_>,
    zero: &T,
) -> Result<Vec<T>> {
    let (mut elements, mut part) = (Vec::new(), Vec::with_capacity(PART));
    while next(runs, &mut part) {
        for run in &part {
            match *run {
                Run::Zero { len } => elements.extend(std::iter::repeat_n(zero, len).cloned()),
                Run::Copy { input, from, len } => {
                    let source = sources.get(input).and_then(Option::as_ref);
                    let source = source.ok_or_else(|| other_type(input))?.as_ref();
                    let end = from.checked_add(len).ok_or_else(|| outside(from))?;
                    elements.extend_from_slice(source.get(from..end).ok_or_else(|| outside(from))?);
                }
            }
        }
    }
    Ok(elements)
}

/// Replaces `part` by the next runs, and returns whether there are any.
fn next(runs: Next<'_>, part: &mut Vec<Run>) -> bool {
    part.clear();
    runs(part);
    !part.is_empty()
}

/// Copies runs of elements of `WIDTH` bytes.
fn copy<const WIDTH: usize>(cx: &mut RunCx<'_>, j: usize, runs: Next<'_>) -> Result<()> {
    let dtype = cx.out_dtype(j)?;
    let inputs = sources(cx, dtype, |i| Ok(cx.bytes(i)?.as_chunks::<WIDTH>().0))?;
    let mut rest = cx.out_bytes(j)?.as_chunks_mut::<WIDTH>().0;
    let mut part = Vec::with_capacity(PART);
    while next(runs, &mut part) {
        rest = copy_part(&inputs, rest, &part)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(wrong_length()) }
}

/// Copies `runs` to the first of the elements in `rest`, and returns the elements that are left.
fn copy_part<'y, const WIDTH: usize>(
    inputs: &[Option<&[[u8; WIDTH]]>],
    mut rest: &'y mut [[u8; WIDTH]],
    runs: &[Run],
) -> Result<&'y mut [[u8; WIDTH]]> {
    for run in runs.iter().copied() {
        let len = match run {
            Run::Zero { len } | Run::Copy { len, .. } => len,
        };
        let (target, after) = rest.split_at_mut_checked(len).ok_or_else(wrong_length)?;
        match run {
            Run::Zero { .. } => target.fill([0; WIDTH]),
            Run::Copy { input, from, .. } => {
                let source = inputs.get(input).copied().flatten();
                let source = source.ok_or_else(|| other_type(input))?.get(from..);
                let source = source.and_then(|source| source.get(..len));
                target.copy_from_slice(source.ok_or_else(|| outside(from))?);
            }
        }
        rest = after;
    }
    Ok(rest)
}

fn wrong_length() -> Error {
    Error::internal("an output is filled with more or fewer elements than it has")
}

fn other_type(input: usize) -> Error {
    Error::new(ErrorKind::Type, format!("input {input} has not the type of the output"))
}

fn outside(from: usize) -> Error {
    Error::new(ErrorKind::Value, format!("element {from} is not in its tensor"))
}
