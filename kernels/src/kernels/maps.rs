//! Maps: [ZipMap](https://onnx.ai/onnx/operators/onnx_aionnxml_ZipMap.html),
//! [DictVectorizer](https://onnx.ai/onnx/operators/onnx_aionnxml_DictVectorizer.html) and
//! [CastMap](https://onnx.ai/onnx/operators/onnx_aionnxml_CastMap.html).

use std::collections::BTreeMap;

use onnx_container_proto::{Buffer, DataType, Tensor};

use super::cast::parse_as;
use super::label_encoder::{Twice, by_key};
use super::scores::{Classes, check_len, row, sizes};
use super::words::one_of;
use crate::error::{Error, ErrorKind, Result};
use crate::exact::{Exact, OrBug};
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::broadcast::{count, saturated, size};
use crate::numeric::{Number, for_type};
use crate::value::{Map, Type, Value};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("CastMap", infer_cast, cast).domain("ai.onnx.ml"),
    Builtin::new("DictVectorizer", infer_vector, vectorize).domain("ai.onnx.ml"),
    Builtin::new("ZipMap", infer_maps, zip).domain("ai.onnx.ml"),
];

/// The keys of a ZipMap, one for each column.
fn labels<'a>(call: &Call<'a>) -> Result<Classes<'a>> {
    let ([_, columns], labels) =
        (sizes(call)?, Classes::of(call, "classlabels_strings", "classlabels_int64s")?);
    check_len("classlabels_*", labels.len(), Some(columns))?;
    Ok(labels)
}

fn infer_maps(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let map = Type::Map(labels(call)?.dtype(), DataType::Float);
    Ok(vec![OutSpec::Outside(Type::Sequence(Box::new(map)))])
}

/// The columns in the order of their keys, and these. Of a key that is there twice the last column
/// counts, as in onnxruntime.
fn sorted<K: Ord + Copy>(keys: &[K]) -> (Vec<usize>, Vec<K>) {
    let columns: BTreeMap<K, usize> = keys.iter().copied().zip(0..).collect();
    (columns.values().copied().collect(), columns.into_keys().collect())
}

/// A map from the keys to the elements of each row.
fn zip(cx: &mut RunCx<'_>) -> Result<()> {
    let ([rows, columns], input) = (sizes(cx)?, cx.input::<f32>(0)?);
    let (places, keys) = match labels(cx)? {
        Classes::Strings(strings) => {
            let (places, keys) = sorted(&strings.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let keys = keys.into_iter().map(|key| Buffer::from(key.to_vec())).collect::<Vec<_>>();
            (places, Tensor::from_strings([dim(keys.len())?], keys)?)
        }
        Classes::Ints(ints) => {
            let (places, keys) = sorted(ints);
            let keys = Value::from_elements([dim(keys.len())?], &keys)?;
            (places, keys.tensor()?.clone())
        }
    };
    let map = |row: &[f32]| {
        let values = places.iter().map(|place| row.at(*place).copied());
        let values = values.collect::<Result<Vec<_>>>()?;
        let values = Value::from_elements([dim(values.len())?], &values)?;
        Ok(Value::Map(Map::new(keys.clone(), values.tensor()?.clone())?))
    };
    let each = map(&vec![0.0; columns])?.held_bytes();
    let bytes = saturated(each).saturating_mul(rows);
    cx.check_sequence(rows, 0, bytes)?;
    let maps = (0..rows).map(|i| map(row(input, i, columns)?)).collect::<Result<_>>()?;
    cx.set(0, Value::Sequence(Type::Map(keys.dtype(), DataType::Float), maps))
}

fn dim(len: usize) -> Result<i64> {
    i64::try_from(len).map_err(Error::internal)
}

/// The key type and the value type of input 0.
fn map_type(call: &Call<'_>) -> Result<(DataType, DataType)> {
    match call.ty(0) {
        Some(Type::Map(key, value)) => Ok((key, value)),
        Some(other) => Err(call.wrong_type(0, &format!("{other}, not a map"))),
        None => Err(Error::new(ErrorKind::Input, "input 0 is missing")),
    }
}

fn map<'a>(call: &Call<'a>) -> Result<&'a Map> {
    match call.outside(0)? {
        Value::Map(map) => Ok(map),
        other => Err(call.wrong_type(0, &format!("{}, not a map", other.ty()))),
    }
}

/// The keys that a DictVectorizer looks for.
fn vocabulary<'a>(call: &Call<'a>) -> Result<Classes<'a>> {
    let (key, _) = map_type(call)?;
    let keys = Classes::of(call, "string_vocabulary", "int64_vocabulary")?;
    if keys.len() > 0 && keys.dtype() != key {
        let reason =
            format!("the vocabulary is of {}, the keys of the map are {key}", keys.dtype());
        return Err(super::scores::invalid(reason));
    }
    Ok(keys)
}

fn infer_vector(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let ((_, value), keys) = (map_type(call)?, vocabulary(call)?);
    Ok(vec![OutSpec::tensor(value, [1, keys.len()])])
}

/// The element of each key; where the map has none, zero or an empty string.
fn vectorize(cx: &mut RunCx<'_>) -> Result<()> {
    let (map, keys) = (map(cx)?, vocabulary(cx)?);
    let places: Vec<Option<usize>> = match keys {
        Classes::Strings(keys) => {
            let own = map.keys().strings().or_bug("keys that are no strings")?;
            let own = by_key(own.iter().map(AsRef::as_ref), Twice::First);
            keys.iter().map(|key| own.get(key.as_slice()).copied()).collect()
        }
        Classes::Ints([]) => Vec::new(),
        Classes::Ints(keys) => {
            let own = by_key(map.keys().to_slice::<i64>()?.iter().copied(), Twice::First);
            keys.iter().map(|key| own.get(key).copied()).collect()
        }
    };
    if let Some(strings) = map.values().strings() {
        let string = |place: &Option<usize>| match place {
            Some(place) => strings.at(*place).cloned(),
            None => Ok(Buffer::default()),
        };
        return cx.set_strings(0, places.iter().map(string).collect::<Result<_>>()?);
    }
    for_type!(map.values().dtype(), numbers, T => {
        let values = map.values().to_slice::<T>()?;
        for (y, place) in cx.output::<T>(0)?.iter_mut().zip(places) {
            *y = match place {
                Some(place) => *values.at(place)?,
                None => T::ZERO,
            };
        }
        Ok(())
    })
}

/// What CastMap gives: the element type, and how many elements there are whatever the keys are.
fn cast_to(call: &Call<'_>) -> Result<(DataType, Option<usize>)> {
    let (key, value) = map_type(call)?;
    if key != DataType::Int64 || !matches!(value, DataType::Float | DataType::String) {
        return Err(call.wrong_type(0, &format!("a map from {key} to elements of {value}")));
    }
    let to = match one_of(call, "cast_to", &["TO_FLOAT", "TO_STRING", "TO_INT64"])? {
        "TO_FLOAT" => DataType::Float,
        "TO_STRING" => DataType::String,
        _ => DataType::Int64,
    };
    let is_dense = one_of(call, "map_form", &["DENSE", "SPARSE"])? == "DENSE";
    let most = size(call.int_or("max_map", 1)?)
        .map_err(|_| super::scores::invalid("`max_map`, a number of elements, is negative"))?;
    Ok((to, (!is_dense).then_some(most)))
}

fn infer_cast(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (to, len) = cast_to(call)?;
    let len = match len {
        Some(len) => len,
        None => map(call)?.keys().shape().iter().product(),
    };
    Ok(vec![OutSpec::tensor(to, [1, len])])
}

/// The elements in the order of their keys, or each at the place of its key.
fn cast(cx: &mut RunCx<'_>) -> Result<()> {
    let (map, (_, len)) = (map(cx)?, cast_to(cx)?);
    let places: Vec<usize> = match len {
        None => (0..map.keys().shape().iter().product()).collect(),
        Some(len) => {
            let place = |key: &i64| usize::try_from(*key).ok().filter(|place| *place < len);
            let keys = map.keys().to_slice::<i64>()?;
            let outside = |key: &i64| {
                let reason = format!("the map has the key {key}, not one of the {len} places");
                Error::new(ErrorKind::Value, reason)
            };
            keys.iter().map(|key| place(key).ok_or_else(|| outside(key))).collect::<Result<_>>()?
        }
    };
    match cx.out_dtype(0)? {
        DataType::String => cast_to_strings(cx, map, &places),
        DataType::Int64 => cast_to_numbers::<i64>(cx, map, &places),
        _ => cast_to_numbers::<f32>(cx, map, &places),
    }
}

/// Strings are read as by Cast, and a float becomes the nearest integer towards zero.
fn cast_to_numbers<T: Number>(cx: &mut RunCx<'_>, map: &Map, places: &[usize]) -> Result<()> {
    let values: Vec<T> = match map.values().strings() {
        Some(strings) => strings.iter().map(parse_as::<T>).collect::<Result<_>>()?,
        None => {
            let floats = map.values().to_slice::<f32>()?;
            floats.iter().map(|x| T::from_f64(f64::from(*x)).one_nan()).collect()
        }
    };
    let output = cx.output::<T>(0)?;
    output.fill(T::ZERO);
    for (place, value) in places.iter().zip(values) {
        *output.at_mut(*place)? = value;
    }
    Ok(())
}

/// In onnxruntime a float has six digits behind the point, and a place without a key the text
/// `0.f`.
fn cast_to_strings(cx: &mut RunCx<'_>, map: &Map, places: &[usize]) -> Result<()> {
    let values: Vec<Buffer> = match map.values().strings() {
        Some(strings) => strings.to_vec(),
        None => {
            let text = |x: &f32| format!("{:.6}", f64::from(*x)).to_ascii_lowercase();
            let floats = map.values().to_slice::<f32>()?;
            floats.iter().map(|x| Buffer::from(text(x).into_bytes())).collect()
        }
    };
    let mut strings = vec![Buffer::from(b"0.f".to_vec()); count(cx.out_shape(0)?)];
    for (place, value) in places.iter().zip(values) {
        *strings.at_mut(*place)? = value;
    }
    cx.set_strings(0, strings)
}
