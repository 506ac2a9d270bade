//! Inputs by a seed: the same values everywhere, for every type and shape that a graph declares.
//!
//! The generator is [SplitMix64](https://prng.di.unimi.it/splitmix64.c). Input `i` of the graph,
//! from 0, has a stream of its own whose state begins with `mix(seed) + i`, where `mix(s)` is the
//! first output from state `s`; names play no part. Each element takes one output `u`: a float is
//! `(u >> 40) / 2^23 - 1`, which lies in `[-1, 1)`, rounded to its type; an integer is `u >> 63`, 0
//! or 1, which is an index into any table with two rows; a string is `a` or `b` in the same way. A
//! complex number takes two.

use std::collections::{HashMap, HashSet};

use half::{bf16, f16};
use onnx_container::{Buffer, ByteSize, DataType, Tensor};

use crate::error::{Error, ErrorKind, Errors, Result};
use crate::memory::table::{byte_len, dims};
use crate::program::Program;
use crate::program::sizes::shape_of;
use crate::value::{Type, Value};

/// A value for every input of the graph that has no initializer, in its order, by name.
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, ValueInfoProto};
/// use onnx_container::{Container, DataType};
/// use onnx_container_machine::{Program, ProgramOptions, random_inputs};
///
/// let mut graph = GraphProto::new("g");
/// graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, ["n".into()]));
/// let program = Program::new(&Container::new(ModelProto::new(graph)), ProgramOptions::new())?;
/// let inputs = random_inputs::all(&program, 0, &[("n".to_owned(), 2)].into())?;
/// assert_eq!(inputs[0].0, "x");
/// assert_eq!(inputs[0].1.tensor()?.dims(), [2]);
/// # Ok::<(), onnx_container_machine::Error>(())
/// ```
///
/// # Errors
/// As [`one`], for all inputs.
pub fn all(
    program: &Program,
    seed: u64,
    sizes: &HashMap<String, usize>,
) -> Result<Vec<(String, Value)>> {
    all_within(program, seed, sizes, u64::MAX)
}

/// As [`all`], of values that take at most `most` bytes together, their strings and the lists of
/// them included.
///
/// # Errors
/// As [`all`], and [`ErrorKind::OutOfMemory`] before the first value is made that takes more than
/// is left.
pub fn all_within(
    program: &Program,
    seed: u64,
    sizes: &HashMap<String, usize>,
    most: u64,
) -> Result<Vec<(String, Value)>> {
    program.check_sizes(sizes)?;
    let main = &program.main;
    let defaults: HashSet<_> = main.constants.iter().map(|(id, _)| *id).collect();
    let numbered = main.inputs.iter().enumerate();
    let numbered = numbered.filter(|(_, input)| !defaults.contains(&input.value));
    let (mut values, mut errors, mut left) = (Vec::new(), Errors::default(), most);
    for (i, input) in numbered {
        match one_within(program, i, seed, sizes, left) {
            Ok(value) => {
                left = left.saturating_sub(value.held_bytes());
                values.push((main.name(input.value).to_owned(), value));
            }
            Err(error) => errors.push(error.with_value(main.name(input.value))),
        }
    }
    errors.join().map_or(Ok(values), Err)
}

/// A value for input `i` of the graph, whose open dimensions have these `sizes`: by name, or by
/// place as `image[0]`.
///
/// # Errors
/// [`ErrorKind::Input`] when the graph declares no shape, a dimension has no size, or the input is
/// no tensor or of a type that random values are not defined for. [`ErrorKind::OutOfMemory`] when
/// there is no memory for it.
pub fn one(
    program: &Program,
    i: usize,
    seed: u64,
    sizes: &HashMap<String, usize>,
) -> Result<Value> {
    one_within(program, i, seed, sizes, u64::MAX)
}

/// As [`one`], of a value that takes at most `most` bytes, its strings and the list of them
/// included.
///
/// # Errors
/// As [`one`], and [`ErrorKind::OutOfMemory`] before a value is made that takes more.
pub fn one_within(
    program: &Program,
    i: usize,
    seed: u64,
    sizes: &HashMap<String, usize>,
    most: u64,
) -> Result<Value> {
    let input = program.main.inputs.get(i);
    let input = input.ok_or_else(|| refused(format_args!("the graph has no input {i}")))?;
    let Some(Type::Tensor(dtype)) = input.ty else {
        let ty = input.ty.as_ref().map_or("no type".to_owned(), ToString::to_string);
        return Err(refused(format_args!("it is declared as {ty}: there are random tensors only")));
    };
    let shape = shape_of(input, program.main.name(input.value), sizes)?;
    check_size(dtype, &shape, most)?;
    let stream = Stream(Stream(seed).next().wrapping_add(i as u64));
    Ok(Value::Tensor(tensor(dtype, &shape, stream)?))
}

/// Refuses a tensor that would take more than `most` bytes, or more than any random one may.
fn check_size(dtype: DataType, shape: &[usize], most: u64) -> Result<()> {
    let len = match dtype {
        // Each is one byte, and there is a list of them.
        DataType::String => {
            let count = byte_len(DataType::Uint8, shape)?;
            count.saturating_mul(size_of::<Buffer>() as u64 + 1)
        }
        _ => byte_len(dtype, shape)?,
    };
    if len > MAX_BYTES {
        let (len, most) = (ByteSize(len), ByteSize(MAX_BYTES));
        return Err(refused(format_args!("{len}: random inputs have at most {most}")));
    }
    if len > most {
        let (len, most) = (ByteSize(len), ByteSize(most));
        let reason = format!("{len}: {most} are left of the memory that the run may use");
        return Err(Error::new(ErrorKind::OutOfMemory, reason));
    }
    Ok(())
}

/// A list that has room for `len` elements.
fn list<T>(len: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| {
        let bytes = ByteSize(len.saturating_mul(size_of::<T>()) as u64);
        Error::new(ErrorKind::OutOfMemory, format!("there is no memory for its {bytes}"))
    })?;
    Ok(list)
}

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Input, reason.to_string())
}

/// The longest random tensor: models that are not trusted declare any shape.
const MAX_BYTES: u64 = 1 << 30;

struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 or 1.
    fn bit(&mut self) -> u8 {
        u8::from(self.next() >> 63 == 1)
    }

    /// In `[-1, 1)`, a multiple of 2^-23.
    #[allow(clippy::cast_precision_loss, reason = "24 bits fit a float")]
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 8_388_608.0 - 1.0
    }
}

fn tensor(dtype: DataType, shape: &[usize], mut stream: Stream) -> Result<Tensor> {
    use DataType as D;
    let count = shape.iter().product::<usize>();
    let dims = dims(shape)?;
    if dtype == D::String {
        let [a, b] = [b"a", b"b"].map(|letter| Buffer::from(letter.to_vec()));
        let mut strings = list(count)?;
        strings.extend((0..count).map(|_| if stream.bit() == 0 { a.clone() } else { b.clone() }));
        return Ok(Tensor::from_strings(dims, strings)?);
    }
    // Elements narrower than a byte take one until they are packed.
    let width = dtype.bit_width().map_or(1, |bits| usize::from(bits.div_ceil(8)));
    let mut out = list(count.saturating_mul(width))?;
    for _ in 0..count {
        match dtype {
            D::Float => out.extend(stream.float().to_le_bytes()),
            D::Double => out.extend(f64::from(stream.float()).to_le_bytes()),
            D::Float16 => out.extend(f16::from_f32(stream.float()).to_le_bytes()),
            D::Bfloat16 => out.extend(bf16::from_f32(stream.float()).to_le_bytes()),
            D::Complex64 => (0..2).for_each(|_| out.extend(stream.float().to_le_bytes())),
            D::Complex128 => {
                (0..2).for_each(|_| out.extend(f64::from(stream.float()).to_le_bytes()));
            }
            D::Int64 | D::Uint64 => out.extend(u64::from(stream.bit()).to_le_bytes()),
            D::Int32 | D::Uint32 => out.extend(u32::from(stream.bit()).to_le_bytes()),
            D::Int16 | D::Uint16 => out.extend(u16::from(stream.bit()).to_le_bytes()),
            D::Int8 | D::Uint8 | D::Bool | D::Int4 | D::Uint4 | D::Int2 | D::Uint2 => {
                out.push(stream.bit());
            }
            other => {
                return Err(refused(format_args!("there are no random values of type {other}")));
            }
        }
    }
    Ok(match dtype {
        D::Int4 | D::Uint4 | D::Int2 | D::Uint2 => Tensor::pack(dtype, dims, &out)?,
        _ => Tensor::new(dtype, dims, Buffer::from(out))?,
    })
}
