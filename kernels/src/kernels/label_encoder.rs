//! [LabelEncoder](https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html): a value for
//! every key.
//!
//! Keys and values are strings or numbers, in attributes of their types or, since version 4, in
//! tensors. In version 1, strings become their numbers in one attribute, and numbers these strings.

use std::collections::HashMap;
use std::hash::Hash;

use onnx_container_proto::{Buffer, DataType, Element, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Number, for_type};
use crate::program::Attributes;

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("LabelEncoder", infer_classes, encode_classes).domain("ai.onnx.ml"),
    Builtin::new("LabelEncoder", infer, encode).domain("ai.onnx.ml").since(2),
];

/// Keys or values.
pub(super) enum Labels {
    Strings(Vec<Buffer>),
    Numbers(DataType, Vec<Number128>),
}

/// A number of any element type that labels have, in a form in which equal numbers have equal bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Number128 {
    Int(i128),
    Float(u64),
}

fn exact<T: Number>(x: T) -> Number128 {
    match T::DTYPE.is_integer() {
        true => Number128::Int(x.to_i128()),
        // Zeros are equal, and so are all that are not numbers.
        false if x == T::ZERO => Number128::Float(0),
        false if x.is_nan() => Number128::Float(f64::NAN.to_bits()),
        false => Number128::Float(x.to_f64().to_bits()),
    }
}

fn value_of<T: Number>(number: Number128) -> T {
    match number {
        Number128::Int(value) => T::from_i128(value),
        Number128::Float(bits) => T::from_f64(f64::from_bits(bits)),
    }
}

impl Labels {
    /// Those of byte strings in an attribute.
    pub(super) fn of_strings(strings: &[Vec<u8>]) -> Self {
        Self::Strings(strings.iter().map(|s| Buffer::from(s.clone())).collect())
    }

    pub(super) fn dtype(&self) -> DataType {
        match self {
            Self::Strings(_) => DataType::String,
            Self::Numbers(dtype, _) => *dtype,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Strings(strings) => strings.len(),
            Self::Numbers(_, numbers) => numbers.len(),
        }
    }

    fn of_tensor(tensor: &Tensor) -> Result<Self> {
        if let Some(strings) = tensor.strings() {
            return Ok(Self::Strings(strings.to_vec()));
        }
        for_type!(tensor.dtype(), numbers, T => {
            let numbers = tensor.to_slice::<T>()?.iter().map(|x| exact(*x)).collect();
            Ok(Self::Numbers(T::DTYPE, numbers))
        })
    }

    pub(super) fn of_numbers<T: Number>(numbers: &[T]) -> Self {
        Self::Numbers(T::DTYPE, numbers.iter().map(|x| exact(*x)).collect())
    }

    /// The labels in the attributes whose names begin with `keys` or `values`.
    fn of(attributes: &Attributes, prefix: &str) -> Result<Self> {
        if let Some(tensor) = attributes.tensor(&format!("{prefix}_tensor"))? {
            Self::of_tensor(tensor)
        } else if let Some(strings) = attributes.strings(&format!("{prefix}_strings"))? {
            Ok(Self::of_strings(strings))
        } else if let Some(ints) = attributes.ints(&format!("{prefix}_int64s"))? {
            Ok(Self::of_numbers(ints))
        } else if let Some(floats) = attributes.floats(&format!("{prefix}_floats"))? {
            Ok(Self::of_numbers(floats))
        } else {
            Err(Error::new(
                ErrorKind::InvalidModel,
                format!("there are no attributes `{prefix}_*`"),
            ))
        }
    }

    /// The value for a key that is not among the keys: a list of one label of type `dtype`.
    pub(super) fn default_of(attributes: &Attributes, dtype: DataType) -> Result<Self> {
        if let Some(tensor) = attributes.tensor("default_tensor")? {
            return Self::of_tensor(tensor);
        }
        Ok(match dtype {
            DataType::String => {
                let text = attributes.bytes_or("default_string", b"_Unused")?;
                Self::Strings(vec![Buffer::from(text.to_vec())])
            }
            DataType::Int64 => Self::of_numbers(&[attributes.int_or("default_int64", -1)?]),
            DataType::Float => Self::of_numbers(&[attributes.float_or("default_float", -0.0)?]),
            other => Self::Numbers(other, vec![Number128::Int(0)]),
        })
    }
}

fn infer(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let attributes = &call.node().attributes;
    let (keys, values) = (Labels::of(attributes, "keys")?, Labels::of(attributes, "values")?);
    let default = Labels::default_of(attributes, values.dtype())?;
    if keys.len() != values.len() || default.len() != 1 || default.dtype() != values.dtype() {
        let (keys, values, default) = (keys.len(), values.len(), default.len());
        let reason = format!(
            "there are {keys} keys for {values} values, with {default} defaults, or these are of other types"
        );
        return Err(Error::new(ErrorKind::InvalidModel, reason));
    }
    if keys.dtype() != call.dtype(0)? {
        return Err(
            call.wrong_type(0, &format!("{}, the keys are {}", call.dtype(0)?, keys.dtype()))
        );
    }
    Ok(vec![OutSpec::tensor(values.dtype(), call.shape(0)?)])
}

fn encode(cx: &mut RunCx<'_>) -> Result<()> {
    let attributes = &cx.node().attributes;
    let (keys, values) = (Labels::of(attributes, "keys")?, Labels::of(attributes, "values")?);
    let default = Labels::default_of(attributes, values.dtype())?;
    let mut places = places(cx, &keys, Twice::First)?;
    if cx.version() < 4 {
        leave_out_nans(cx, &mut places)?;
    }
    write(cx, &places, &values, &default)
}

/// Before version 4, what is not a number is no key in onnxruntime.
fn leave_out_nans(cx: &RunCx<'_>, places: &mut [Option<usize>]) -> Result<()> {
    if cx.dtype(0)? == DataType::Float {
        let nans = places.iter_mut().zip(cx.input::<f32>(0)?).filter(|(_, x)| x.is_nan());
        nans.for_each(|(place, _)| *place = None);
    }
    Ok(())
}

/// Which of several equal keys counts. ONNX does not say it, and in onnxruntime that depends on the
/// operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Twice {
    First,
    Last,
}

/// The place of each key.
pub(super) fn by_key<K: Eq + Hash>(
    keys: impl Iterator<Item = K>,
    twice: Twice,
) -> HashMap<K, usize> {
    let mut places = HashMap::new();
    for (i, key) in keys.enumerate() {
        let place = places.entry(key).or_insert(i);
        if twice == Twice::Last {
            *place = i;
        }
    }
    places
}

/// For every element of input 0, which key it is.
pub(super) fn places(cx: &RunCx<'_>, keys: &Labels, twice: Twice) -> Result<Vec<Option<usize>>> {
    match keys {
        Labels::Strings(keys) => {
            let places: HashMap<&[u8], usize> = by_key(keys.iter().map(AsRef::as_ref), twice);
            Ok(cx.strings(0)?.iter().map(|x| places.get(x.as_ref()).copied()).collect())
        }
        Labels::Numbers(_, keys) => {
            let places = by_key(keys.iter().copied(), twice);
            for_type!(cx.dtype(0)?, numbers, T => {
                let input = cx.input::<T>(0)?;
                Ok(input.iter().map(|x| places.get(&exact(*x)).copied()).collect())
            })
        }
    }
}

/// The value at `place`, or the one that stands for keys that are not there.
fn label<'v, T>(values: &'v [T], default: &'v [T], place: Option<usize>) -> Result<&'v T> {
    match place {
        Some(place) => values.at(place),
        None => default.at(0),
    }
}

/// Writes the value at each place, or the default.
pub(super) fn write(
    cx: &mut RunCx<'_>,
    places: &[Option<usize>],
    values: &Labels,
    default: &Labels,
) -> Result<()> {
    match (values, default) {
        (Labels::Strings(values), Labels::Strings(default)) => {
            let labels = places.iter().map(|place| label(values, default, *place).cloned());
            cx.set_strings(0, labels.collect::<Result<_>>()?)
        }
        (Labels::Numbers(dtype, values), Labels::Numbers(_, default)) => {
            for_type!(*dtype, numbers, T => {
                for (y, place) in cx.output::<T>(0)?.iter_mut().zip(places) {
                    *y = value_of(*label(values, default, *place)?);
                }
                Ok(())
            })
        }
        _ => Err(Error::new(ErrorKind::InvalidModel, "the default has not the type of the values")),
    }
}

/// Version 1: between strings and their places in attribute `classes_strings`.
fn infer_classes(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let to = match call.dtype(0)? {
        DataType::String => DataType::Int64,
        _ => DataType::String,
    };
    Ok(vec![OutSpec::tensor(to, call.shape(0)?)])
}

fn encode_classes(cx: &mut RunCx<'_>) -> Result<()> {
    let attributes = &cx.node().attributes;
    let classes = attributes.strings_or("classes_strings", &[])?;
    let classes = Labels::of_strings(classes);
    let default = Labels::default_of(attributes, cx.out_dtype(0)?)?;
    if cx.dtype(0)? == DataType::String {
        let places = places(cx, &classes, Twice::Last)?;
        let highest = places.iter().flatten().max().map_or(0, |highest| highest + 1);
        let numbers: Vec<i64> = (0_i64..).take(highest).collect();
        return write(cx, &places, &Labels::of_numbers(&numbers), &default);
    }
    let place = |x: &i64| usize::try_from(*x).ok().filter(|place| *place < classes.len());
    let places: Vec<_> = cx.input::<i64>(0)?.iter().map(place).collect();
    write(cx, &places, &classes, &default)
}
