//! Whether two values are the same, within a tolerance: how onnx's own tests compare.
//!
//! Types and shapes have to be equal. Integers, truth values and strings have to be equal too,
//! whatever the tolerance is: they are not rounded, so any difference is an error. All other
//! elements are to be within `atol + rtol * |expected|`, and a NaN is equal to a NaN.
//!
//! Elements are widened some thousands at a time: a comparison needs no memory beside its tensors.

use std::borrow::Borrow;
use std::ops::Range;

use onnx_container_proto::{Buffer, DataType, Tensor};

use crate::error::{Error, Result};
use crate::numeric::larger;
use crate::value::Value;

/// How far an element may be from the expected one. Integers and truth values have to be equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Relative to the expected element.
    pub rtol: f64,
    /// In absolute terms.
    pub atol: f64,
}

impl Tolerance {
    /// That of onnx's node tests.
    pub const ONNX: Self = Self { rtol: 1e-3, atol: 1e-7 };

    const NONE: Self = Self { rtol: 0.0, atol: 0.0 };

    fn allows<E: Comparable>(self, found: E, expected: E) -> bool {
        let size = expected.size();
        // The difference of equal infinities is not a number; that of others is infinite.
        let near = found.apart(expected) <= self.atol + self.rtol * size;
        found.same(expected) || (near && size.is_finite())
    }
}

/// How far the elements of two tensors are from each other.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Distance {
    /// How many elements each has.
    pub elements: usize,
    /// How many of them are not equal. A NaN is equal to a NaN.
    pub differing: usize,
    /// The largest difference; infinite where only one of two elements is finite.
    pub max_abs: f64,
    /// The largest difference relative to the expected element.
    pub max_rel: f64,
}

/// How far two tensors of one type and shape are from each other; `None` for other values.
///
/// # Errors
/// When the elements of a tensor cannot be read.
pub fn distance(found: &Value, expected: &Value) -> Result<Option<Distance>> {
    let (Value::Tensor(found), Value::Tensor(expected)) = (found, expected) else {
        return Ok(None);
    };
    let comparable = found.dims() == expected.dims() && found.dtype() == expected.dtype();
    if !comparable || found.strings().is_some() {
        return Ok(None);
    }
    let mut distance = Distance::default();
    for (found, expected) in chunks(found).zip(chunks(expected)) {
        let (found, expected) = (found?, expected?);
        match (integers(&found)?, integers(&expected)?) {
            (Some(found), Some(expected)) => distance.add(&found, &expected),
            _ => distance.add(&to_f64(&found)?, &to_f64(&expected)?),
        }
    }
    Ok(Some(distance))
}

impl Distance {
    /// Counts these elements, which are at the same places, too.
    fn add<E: Comparable>(&mut self, found: &[E], expected: &[E]) {
        self.elements += expected.len();
        for (found, expected) in found.iter().zip(expected) {
            if found.same(*expected) {
                continue;
            }
            let apart = found.apart(*expected);
            let apart = if apart.is_nan() { f64::INFINITY } else { apart };
            self.differing += 1;
            self.max_abs = larger(self.max_abs, apart);
            self.max_rel = larger(self.max_rel, apart / expected.size());
        }
    }
}

/// How many elements are widened at a time: a multiple of those in a byte.
const CHUNK: usize = 1 << 13;

/// The elements of `tensor` in parts of some thousands, which share its bytes: each a tensor of one
/// dimension. A scalar is one element. A tensor of strings has none.
pub fn chunks(tensor: &Tensor) -> impl Iterator<Item = Result<Tensor>> {
    let dtype = tensor.dtype();
    let parts = tensor.buffer().map(|bytes| (bytes, parts(dtype, tensor.element_count())));
    parts.into_iter().flat_map(move |(bytes, parts)| {
        parts.map(move |(range, len)| part(dtype, len, bytes.slice(range)))
    })
}

/// As [`chunks`], of `count` elements in `bytes`, with copies of them.
#[doc(hidden)]
pub fn chunks_of(
    dtype: DataType,
    count: usize,
    bytes: &[u8],
) -> impl Iterator<Item = Result<Tensor>> {
    let copy = |range: Range<usize>| Some(Buffer::from(bytes.get(range)?.to_vec()));
    parts(dtype, count).map(move |(range, len)| part(dtype, len, copy(range)))
}

/// Where the parts of `count` elements lie, in bytes, and how many elements are in each.
fn parts(dtype: DataType, count: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    debug_assert!(dtype.bit_width().is_some(), "{dtype} has no bytes");
    let bits = dtype.bit_width().map_or(0, usize::from);
    (0..count).step_by(CHUNK).map(move |start| {
        let end = count.min(start + CHUNK);
        // The parts before the last one end where a byte ends.
        (start / 8 * bits..(end * bits).div_ceil(8), end - start)
    })
}

fn part(dtype: DataType, len: usize, bytes: Option<Buffer>) -> Result<Tensor> {
    let bytes = bytes.ok_or_else(|| Error::internal("elements behind the end of a tensor"))?;
    Ok(Tensor::new(dtype, [i64::try_from(len).map_err(Error::internal)?], bytes)?)
}

/// The first difference between two values; `None` when there is none.
///
/// ```
/// # use onnx_container_kernels as onnx_container_machine;
/// use onnx_container_machine::{Value, compare};
///
/// let [a, b] = [1.0_f32, 1.1].map(|x| Value::from_elements([1], &[x]).unwrap());
/// let difference = compare::difference(&a, &b, compare::Tolerance::ONNX)?;
/// assert_eq!(difference.as_deref(), Some("element 0 is 1, not 1.1 (1 of 1 differ)"));
/// # Ok::<(), onnx_container_machine::Error>(())
/// ```
///
/// # Errors
/// When the elements of a tensor cannot be read.
pub fn difference(found: &Value, expected: &Value, tolerance: Tolerance) -> Result<Option<String>> {
    if found.ty() != expected.ty() {
        return Ok(Some(format!("the type is {}, not {}", found.ty(), expected.ty())));
    }
    match (found, expected) {
        (Value::Tensor(found), Value::Tensor(expected)) => tensors(found, expected, tolerance),
        (Value::Sequence(_, found), Value::Sequence(_, expected)) => {
            lists(found, expected, tolerance)
        }
        (Value::Optional(_, found), Value::Optional(_, expected)) => {
            let (found, expected) = (found.as_deref(), expected.as_deref());
            lists(found.as_slice(), expected.as_slice(), tolerance)
        }
        (Value::Map(found), Value::Map(expected)) => match found.keys() == expected.keys() {
            true => tensors(found.values(), expected.values(), tolerance),
            false => Ok(Some("the keys differ".to_owned())),
        },
        _ => Ok(Some("the kinds differ".to_owned())),
    }
}

fn lists<V: Borrow<Value>>(
    found: &[V],
    expected: &[V],
    tolerance: Tolerance,
) -> Result<Option<String>> {
    if found.len() != expected.len() {
        return Ok(Some(format!("it has {} elements, not {}", found.len(), expected.len())));
    }
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        if let Some(difference) = difference(found.borrow(), expected.borrow(), tolerance)? {
            return Ok(Some(format!("[{i}]: {difference}")));
        }
    }
    Ok(None)
}

fn tensors(found: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<Option<String>> {
    if found.dims() != expected.dims() {
        return Ok(Some(format!("the shape is {:?}, not {:?}", found.dims(), expected.dims())));
    }
    if let (Some(found), Some(expected)) = (found.strings(), expected.strings()) {
        let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
        return Ok(differs.map(|i| format!("string {i} differs")));
    }
    let mut differing = Differing::default();
    for (found, expected) in chunks(found).zip(chunks(expected)) {
        let (found, expected) = (found?, expected?);
        match (integers(&found)?, integers(&expected)?) {
            (Some(found), Some(expected)) => {
                differing.add(&found, &expected, Tolerance::NONE, i128::to_string);
            }
            _ => {
                let shown = |element: &f64| text(found.dtype(), *element);
                differing.add(&to_f64(&found)?, &to_f64(&expected)?, tolerance, shown);
            }
        }
    }
    Ok(differing.reason())
}

/// The elements of two tensors that differ.
#[derive(Default)]
struct Differing {
    /// The number of elements that were compared.
    elements: usize,
    count: usize,
    /// Where the first one is, and what both have there.
    first: Option<(usize, String, String)>,
}

impl Differing {
    /// Compares the next elements.
    fn add<E: Comparable>(
        &mut self,
        found: &[E],
        expected: &[E],
        tolerance: Tolerance,
        shown: impl Fn(&E) -> String,
    ) {
        for (i, (a, b)) in found.iter().zip(expected).enumerate() {
            if tolerance.allows(*a, *b) {
                continue;
            }
            self.count += 1;
            self.first.get_or_insert_with(|| (self.elements + i, shown(a), shown(b)));
        }
        self.elements += found.len();
    }

    fn reason(self) -> Option<String> {
        let Self { elements, count, first } = self;
        let (i, a, b) = first?;
        Some(format!("element {i} is {a}, not {b} ({count} of {elements} differ)"))
    }
}

/// An element that can be compared with another one.
trait Comparable: Copy {
    /// Whether it is equal to `other`, or neither is a number.
    fn same(self, other: Self) -> bool;
    /// How far it is from `other`.
    fn apart(self, other: Self) -> f64;
    /// How far it is from 0.
    fn size(self) -> f64;
}

impl Comparable for f64 {
    fn same(self, other: Self) -> bool {
        self == other || (self.is_nan() && other.is_nan())
    }

    fn apart(self, other: Self) -> f64 {
        (self - other).abs()
    }

    fn size(self) -> f64 {
        self.abs()
    }
}

#[allow(clippy::cast_precision_loss, reason = "a difference that is not 0 does not become 0")]
impl Comparable for i128 {
    fn same(self, other: Self) -> bool {
        self == other
    }

    fn apart(self, other: Self) -> f64 {
        self.abs_diff(other) as f64
    }

    fn size(self) -> f64 {
        self.unsigned_abs() as f64
    }
}

/// The elements of a tensor of integers or truth values, exactly: an `f64` cannot hold every
/// integer of 64 bits. `None` for other tensors.
///
/// # Errors
/// When the elements cannot be read.
pub fn integers(tensor: &Tensor) -> Result<Option<Vec<i128>>> {
    use DataType as D;

    macro_rules! widen {
        ($elements:expr) => {
            $elements?.iter().map(|element| i128::from(*element)).collect()
        };
    }
    Ok(Some(match tensor.dtype() {
        D::Int8 => widen!(tensor.to_slice::<i8>()),
        D::Int16 => widen!(tensor.to_slice::<i16>()),
        D::Int32 => widen!(tensor.to_slice::<i32>()),
        D::Int64 => widen!(tensor.to_slice::<i64>()),
        D::Uint8 => widen!(tensor.to_slice::<u8>()),
        D::Uint16 => widen!(tensor.to_slice::<u16>()),
        D::Uint32 => widen!(tensor.to_slice::<u32>()),
        D::Uint64 => widen!(tensor.to_slice::<u64>()),
        D::Bool => widen!(tensor.to_slice::<bool>()),
        D::Int4 | D::Int2 => widen!(tensor.unpack_signed()),
        D::Uint4 | D::Uint2 => widen!(tensor.unpack()),
        _ => return Ok(None),
    }))
}

/// The shortest text that stands for `element`, which a tensor of type `dtype` holds, and for none
/// of its other values.
#[allow(clippy::cast_possible_truncation, reason = "all types but these fit a FLOAT")]
pub fn text(dtype: DataType, element: f64) -> String {
    use DataType as D;
    match dtype {
        D::Double | D::Complex128 | D::Int32 | D::Uint32 | D::Int64 | D::Uint64 => {
            element.to_string()
        }
        _ => (element as f32).to_string(),
    }
}

/// The elements as `f64`; of complex numbers, the real and imaginary parts. Integers of 64 bits
/// become the nearest `f64`.
///
/// # Errors
/// [`ErrorKind::Container`](crate::ErrorKind::Container) for tensors of strings.
#[allow(
    clippy::cast_precision_loss,
    reason = "what compares numbers of 64 bits takes them as they are"
)]
pub fn to_f64(tensor: &Tensor) -> Result<Vec<f64>> {
    use onnx_container_proto::num_complex::Complex;

    macro_rules! widen {
        ($type:ty) => {
            tensor.to_slice::<$type>()?.iter().map(|element| *element as f64).collect()
        };
    }
    Ok(match tensor.dtype() {
        DataType::Double => widen!(f64),
        DataType::Int8 => widen!(i8),
        DataType::Int16 => widen!(i16),
        DataType::Int32 => widen!(i32),
        DataType::Int64 => widen!(i64),
        DataType::Uint8 => widen!(u8),
        DataType::Uint16 => widen!(u16),
        DataType::Uint32 => widen!(u32),
        DataType::Uint64 => widen!(u64),
        DataType::Bool => {
            tensor.to_slice::<bool>()?.iter().map(|b| f64::from(u8::from(*b))).collect()
        }
        DataType::Int4 | DataType::Int2 => {
            tensor.unpack_signed()?.iter().map(|code| f64::from(*code)).collect()
        }
        DataType::Uint4 | DataType::Uint2 => {
            tensor.unpack()?.iter().map(|code| f64::from(*code)).collect()
        }
        DataType::Complex64 => {
            let parts = tensor.to_slice::<Complex<f32>>()?;
            parts.iter().flat_map(|c| [f64::from(c.re), f64::from(c.im)]).collect()
        }
        DataType::Complex128 => {
            tensor.to_slice::<Complex<f64>>()?.iter().flat_map(|c| [c.re, c.im]).collect()
        }
        _ => tensor.to_f32()?.iter().map(|element| f64::from(*element)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_beyond_the_floats_are_compared_exactly() {
        let signed = |x: i64| Value::from_elements([1], &[x]).unwrap();
        let unsigned = |x: u64| Value::from_elements([1], &[x]).unwrap();
        let large = 1_i64 << 53;
        let cases = [
            (signed(large + 1), signed(large), "9007199254740993, not 9007199254740992"),
            (signed(-large), signed(-large - 1), "-9007199254740992, not -9007199254740993"),
            (
                unsigned(u64::MAX),
                unsigned(u64::MAX - 1),
                "18446744073709551615, not 18446744073709551614",
            ),
        ];
        for (found, expected, text) in cases {
            let difference = difference(&found, &expected, Tolerance::NONE).unwrap();
            assert_eq!(difference, Some(format!("element 0 is {text} (1 of 1 differ)")));
            let distance = distance(&found, &expected).unwrap().unwrap();
            assert_eq!((distance.differing, distance.max_abs), (1, 1.0), "{text}");
        }
    }

    /// Elements in the last part of a tensor of several, of types of one byte and of half of one.
    #[test]
    fn all_parts_are_compared() {
        let count = CHUNK * 2 + 3;
        let dims = [i64::try_from(count).unwrap()];
        let bytes = |last: u8| {
            let mut bytes = vec![1_u8; count];
            bytes[count - 1] = last;
            bytes
        };
        let wide =
            |last| Value::Tensor(Tensor::new(DataType::Uint8, dims, bytes(last).into()).unwrap());
        let narrow =
            |last| Value::Tensor(Tensor::pack(DataType::Uint4, dims, &bytes(last)).unwrap());
        let floats = |last: u8| {
            let bytes: Vec<u8> =
                bytes(last).iter().flat_map(|x| f32::from(*x).to_le_bytes()).collect();
            Value::Tensor(Tensor::new(DataType::Float, dims, bytes.into()).unwrap())
        };
        for [a, b] in [[wide(7), wide(1)], [narrow(7), narrow(1)], [floats(7), floats(1)]] {
            let found = difference(&a, &b, Tolerance::NONE).unwrap();
            let expected = format!("element {} is 7, not 1 (1 of {count} differ)", count - 1);
            assert_eq!(found, Some(expected), "{}", a.ty());
            let distance = distance(&a, &b).unwrap().unwrap();
            let found = (distance.elements, distance.differing, distance.max_abs);
            assert_eq!(found, (count, 1, 6.0), "{}", a.ty());
            assert_eq!(chunks(a.tensor().unwrap()).count(), 3);
        }
        assert_eq!(chunks(Value::from_elements([], &[1_u8]).unwrap().tensor().unwrap()).count(), 1);
    }

    /// Elements that are near each other, of each type: a tolerance is for what is rounded.
    #[test]
    fn a_tolerance_does_not_count_for_integers() {
        let wide = Tolerance { rtol: 1.0, atol: 100.0 };
        let codes = |dtype, code: u8| Value::Tensor(Tensor::pack(dtype, [1], &[code]).unwrap());
        macro_rules! pair {
            ($of:ty: $a:expr, $b:expr) => {
                [$a, $b].map(|x: $of| Value::from_elements([1], &[x]).unwrap())
            };
        }
        let exact = [
            pair!(i8: 100, 101),
            pair!(i16: 100, 101),
            pair!(i32: 50_000, 50_001),
            pair!(i64: 50_000, 50_001),
            pair!(u8: 100, 101),
            pair!(u16: 100, 101),
            pair!(u32: 100, 101),
            pair!(u64: 100, 101),
            pair!(bool: false, true),
            [1, 2].map(|code| codes(DataType::Int4, code)),
            [1, 2].map(|code| codes(DataType::Uint4, code)),
            [0, 1].map(|code| codes(DataType::Int2, code)),
            [1, 2].map(|code| codes(DataType::Uint2, code)),
        ];
        for [a, b] in exact {
            assert!(difference(&a, &b, wide).unwrap().is_some(), "{}", a.ty());
            assert_eq!(difference(&a, &a, Tolerance::NONE).unwrap(), None, "{}", a.ty());
        }
        for [a, b] in [pair!(f32: 100.0, 101.0), pair!(f64: 100.0, 101.0)] {
            assert_eq!(difference(&a, &b, wide).unwrap(), None, "{}", a.ty());
        }
    }
}
