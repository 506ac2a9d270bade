//! Categories: [OneHotEncoder](https://onnx.ai/onnx/operators/onnx_aionnxml_OneHotEncoder.html) and
//! [CategoryMapper](https://onnx.ai/onnx/operators/onnx_aionnxml_CategoryMapper.html).
//!
//! Of a category that is there twice, the last one counts, as in onnxruntime.

use onnx_container_proto::{DataType, Element};

use super::label_encoder::{Labels, Twice, by_key, places, write};
use super::scores::{check_len, invalid};
use crate::error::{Error, ErrorKind, Result};
use crate::exact::Exact;
use crate::kernel::Builtin;
use crate::kernel::call::{Call, OutSpec};
use crate::kernel::run_cx::RunCx;
use crate::numeric::{Number, for_type};

pub(super) const KERNELS: &[Builtin] = &[
    Builtin::new("CategoryMapper", infer_mapped, map_categories).domain("ai.onnx.ml"),
    Builtin::new("OneHotEncoder", infer_one_hot, one_hot).domain("ai.onnx.ml"),
];

/// The categories of a OneHotEncoder: strings for strings, integers for numbers.
enum Categories<'a> {
    Strings(&'a [Vec<u8>]),
    Ints(&'a [i64]),
}

impl<'a> Categories<'a> {
    fn of(call: &Call<'a>) -> Result<Self> {
        let strings = call.node().attributes.strings_or("cats_strings", &[])?;
        let ints = call.ints_or("cats_int64s", &[])?;
        let dtype = call.dtype(0)?;
        match (strings, ints, dtype == DataType::String) {
            ([], [], _) => Err(invalid("neither `cats_strings` nor `cats_int64s` has a category")),
            (strings, [], true) => Ok(Self::Strings(strings)),
            ([], ints, false) => Ok(Self::Ints(ints)),
            (_, [], _) => Err(invalid(format!("the categories are strings, the input is {dtype}"))),
            ([], ..) => Err(invalid("the categories are integers, the input is STRING")),
            _ => Err(invalid("`cats_strings` and `cats_int64s` have categories, and one may")),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Strings(strings) => strings.len(),
            Self::Ints(ints) => ints.len(),
        }
    }

    /// Which category each element of input 0 is. Numbers become integers as by Cast.
    fn places(&self, cx: &RunCx<'_>) -> Result<Vec<Option<usize>>> {
        let ints = match self {
            Self::Strings(strings) => {
                return places(cx, &Labels::of_strings(strings), Twice::Last);
            }
            Self::Ints(ints) => ints,
        };
        let places = by_key(ints.iter().copied(), Twice::Last);
        for_type!(cx.dtype(0)?, numbers, T => {
            let integer = |x: &T| match T::DTYPE.is_integer() {
                true => i64::from_i128(x.to_i128()),
                false => i64::from_f64(x.to_f64()),
            };
            Ok(cx.input::<T>(0)?.iter().map(|x| places.get(&integer(x)).copied()).collect())
        })
    }
}

/// A dimension is added, as long as there are categories.
fn infer_one_hot(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    let (mut shape, categories) = (call.shape(0)?, Categories::of(call)?);
    shape.push(categories.len());
    Ok(vec![OutSpec::tensor(DataType::Float, shape)])
}

/// 1 for the category of an element, else 0.
fn one_hot(cx: &mut RunCx<'_>) -> Result<()> {
    let categories = Categories::of(cx)?;
    let allows_others = cx.flag("zeros", true)?;
    let (places, output) = (categories.places(cx)?, cx.output::<f32>(0)?);
    output.fill(0.0);
    for (i, (row, place)) in output.chunks_mut(categories.len().max(1)).zip(places).enumerate() {
        match place {
            Some(place) => *row.at_mut(place)? = 1.0,
            None if allows_others => {}
            None => {
                let reason = format!("element {i} is not one of the categories, and `zeros` is 0");
                return Err(Error::new(ErrorKind::Value, reason));
            }
        }
    }
    Ok(())
}

/// The strings and the integers of a CategoryMapper.
fn pairs<'a>(call: &Call<'a>) -> Result<(&'a [Vec<u8>], &'a [i64])> {
    let strings = call.node().attributes.strings_or("cats_strings", &[])?;
    let ints = call.ints_or("cats_int64s", &[])?;
    check_len("cats_int64s", ints.len(), Some(strings.len()))?;
    Ok((strings, ints))
}

fn infer_mapped(call: &Call<'_>) -> Result<Vec<OutSpec>> {
    pairs(call)?;
    let to = match call.dtype(0)? {
        DataType::String => DataType::Int64,
        _ => DataType::String,
    };
    Ok(vec![OutSpec::tensor(to, call.shape(0)?)])
}

/// The integer of each string, or the string of each integer.
fn map_categories(cx: &mut RunCx<'_>) -> Result<()> {
    let (strings, ints) = pairs(cx)?;
    let (strings, ints) = (Labels::of_strings(strings), Labels::of_numbers(ints));
    let default = Labels::default_of(&cx.node().attributes, cx.out_dtype(0)?)?;
    let (from, to) = match cx.dtype(0)? {
        DataType::String => (strings, ints),
        _ => (ints, strings),
    };
    write(cx, &places(cx, &from, Twice::Last)?, &to, &default)
}
