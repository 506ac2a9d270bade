//! Every ONNX element type: its number, spec name, width and the Rust type that holds it.
//!
//! The numbers are those of `TensorProto.DataType` in onnx.proto. The packing of elements narrower
//! than a byte is left to `tensor::packed`.

use std::fmt;

use half::{bf16, f16};
use microfloat::{f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu};
use num_complex::Complex;

use crate::error::{Error, ErrorKind, Result};

macro_rules! data_types {
    ($($variant:ident = $number:literal, $name:literal, $bits:literal, $doc:literal;)*) => {
        /// The element type of a tensor (`TensorProto.DataType`).
        ///
        /// ```
        /// # use onnx_container_proto as onnx_container;
        /// use onnx_container::DataType;
        ///
        /// assert_eq!(DataType::try_from(16)?, DataType::Bfloat16);
        /// assert_eq!(DataType::Int4.byte_len(&[5])?, 3); // two elements a byte
        /// # Ok::<(), onnx_container::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DataType { $(#[doc = $doc] $variant = $number,)* }

        impl DataType {
            /// Every type of onnx 1.23 in the order of the numbers, including `Undefined`.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in onnx.proto, such as `FLOAT8E4M3FN`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The number in onnx.proto.
            pub const fn number(self) -> i32 {
                match self { $(Self::$variant => $number,)* }
            }

            /// The width of one element in bits, `None` for strings and the undefined type.
            pub const fn bit_width(self) -> Option<u8> {
                let bits: u8 = match self { $(Self::$variant => $bits,)* };
                if bits == 0 { None } else { Some(bits) }
            }
        }

        impl From<DataType> for i32 {
            /// The number in onnx.proto.
            fn from(dtype: DataType) -> Self {
                dtype.number()
            }
        }

        impl TryFrom<i32> for DataType {
            type Error = Error;

            /// The type with this number; an unknown number is an error that names it.
            fn try_from(number: i32) -> Result<Self> {
                match number {
                    $($number => Ok(Self::$variant),)*
                    _ => {
                        let reason = format!("data type {number} is not one of onnx 1.23");
                        Err(Error::new(ErrorKind::DataType, reason))
                    }
                }
            }
        }
    };
}

data_types! {
    Undefined = 0, "UNDEFINED", 0, "No type.";
    Float = 1, "FLOAT", 32, "IEEE 754 binary32.";
    Uint8 = 2, "UINT8", 8, "Unsigned 8-bit integer.";
    Int8 = 3, "INT8", 8, "Signed 8-bit integer.";
    Uint16 = 4, "UINT16", 16, "Unsigned 16-bit integer.";
    Int16 = 5, "INT16", 16, "Signed 16-bit integer.";
    Int32 = 6, "INT32", 32, "Signed 32-bit integer.";
    Int64 = 7, "INT64", 64, "Signed 64-bit integer.";
    String = 8, "STRING", 0, "A byte string, usually UTF-8; never raw, never external.";
    Bool = 9, "BOOL", 8, "One byte, 0 or 1.";
    Float16 = 10, "FLOAT16", 16, "IEEE 754 binary16.";
    Double = 11, "DOUBLE", 64, "IEEE 754 binary64.";
    Uint32 = 12, "UINT32", 32, "Unsigned 32-bit integer.";
    Uint64 = 13, "UINT64", 64, "Unsigned 64-bit integer.";
    Complex64 = 14, "COMPLEX64", 64, "Two binary32: real, imaginary.";
    Complex128 = 15, "COMPLEX128", 128, "Two binary64: real, imaginary.";
    Bfloat16 = 16, "BFLOAT16", 16, "The upper half of a binary32.";
    Float8E4M3Fn = 17, "FLOAT8E4M3FN", 8, "8-bit float: 4 exponent and 3 mantissa bits, finite.";
    Float8E4M3Fnuz = 18, "FLOAT8E4M3FNUZ", 8, "As E4M3FN, without a negative zero.";
    Float8E5M2 = 19, "FLOAT8E5M2", 8, "8-bit float: 5 exponent and 2 mantissa bits.";
    Float8E5M2Fnuz = 20, "FLOAT8E5M2FNUZ", 8, "As E5M2, finite, without a negative zero.";
    Uint4 = 21, "UINT4", 4, "Unsigned 4-bit integer, two a byte.";
    Int4 = 22, "INT4", 4, "Signed 4-bit integer, two a byte.";
    Float4E2M1 = 23, "FLOAT4E2M1", 4, "4-bit float: 2 exponent bits, 1 mantissa bit, two a byte.";
    Float8E8M0 = 24, "FLOAT8E8M0", 8, "8-bit power of two.";
    Uint2 = 25, "UINT2", 2, "Unsigned 2-bit integer, four a byte.";
    Int2 = 26, "INT2", 2, "Signed 2-bit integer, four a byte.";
    Float6E2M3 = 27, "FLOAT6E2M3", 6, "6-bit float: 2 exponent and 3 mantissa bits, four in 3 bytes.";
    Float6E3M2 = 28, "FLOAT6E3M2", 6, "6-bit float: 3 exponent and 2 mantissa bits, four in 3 bytes.";
}

impl DataType {
    /// The length in bytes of a tensor of this type and `dims`, packed as the spec says.
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for types without a fixed width; [`ErrorKind::Shape`] when a
    /// dimension is negative or the length does not fit 63 bits.
    pub fn byte_len(self, dims: &[i64]) -> Result<u64> {
        let Some(bits) = self.bit_width() else {
            let reason = format!("{self} has no length in bytes");
            return Err(Error::new(ErrorKind::DataType, reason));
        };
        let bytes = (u128::from(element_count(dims)?) * u128::from(bits)).div_ceil(8);
        u64::try_from(bytes).ok().filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(|| {
            let reason = format!("shape {dims:?} of {self} has more than 2^63 bytes");
            Error::new(ErrorKind::Shape, reason)
        })
    }

    /// Whether other weight formats may lack this type and hold its packed bytes as `UINT8`
    /// instead: true for types narrower than a byte, 8-bit floats and complex numbers.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::DataType;
    ///
    /// assert!(DataType::Int4.may_be_bytes());
    /// assert!(!DataType::Bfloat16.may_be_bytes());
    /// ```
    pub fn may_be_bytes(self) -> bool {
        use DataType::{
            Complex64, Complex128, Float8E4M3Fn, Float8E4M3Fnuz, Float8E5M2, Float8E5M2Fnuz,
            Float8E8M0,
        };
        self.bit_width().is_some_and(|bits| bits < 8)
            || matches!(self, Complex64 | Complex128 | Float8E8M0)
            || matches!(self, Float8E4M3Fn | Float8E4M3Fnuz | Float8E5M2 | Float8E5M2Fnuz)
    }

    /// Whether an array of bytes with the dimensions `bytes` can hold the elements of a tensor of
    /// this type with the dimensions `dims` in their order: it has one dimension, or it has `dims`
    /// with the last one counted in bytes. With one dimension, the lengths are not compared.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::DataType;
    ///
    /// assert!(DataType::Int4.fits_bytes(&[4, 6], &[12]));
    /// assert!(DataType::Int4.fits_bytes(&[4, 6], &[4, 3]));
    /// assert!(!DataType::Int4.fits_bytes(&[4, 6], &[3, 4])); // as many, and transposed
    /// ```
    pub fn fits_bytes(self, dims: &[i64], bytes: &[i64]) -> bool {
        let (Some((last, outer)), Some((last_bytes, outer_bytes))) =
            (dims.split_last(), bytes.split_last())
        else {
            return bytes.len() < 2;
        };
        let bits = self.bit_width().and_then(|bits| last.checked_mul(i64::from(bits)));
        let fits = bits.is_some_and(|bits| Some(bits) == last_bytes.checked_mul(8));
        bytes.len() == 1 || (outer == outer_bytes && fits)
    }

    /// Whether elements are real floats of any width.
    pub const fn is_float(self) -> bool {
        use DataType::{Bool, String, Undefined};
        let is_other = matches!(self, Undefined | Bool | String);
        !is_other && !self.is_integer() && !self.is_complex()
    }

    /// Whether elements are complex numbers.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::Complex64 | Self::Complex128)
    }

    /// Whether elements are integers (bool not included).
    pub const fn is_integer(self) -> bool {
        use DataType::{
            Int2, Int4, Int8, Int16, Int32, Int64, Uint2, Uint4, Uint8, Uint16, Uint32, Uint64,
        };
        matches!(
            self,
            Int2 | Int4
                | Int8
                | Int16
                | Int32
                | Int64
                | Uint2
                | Uint4
                | Uint8
                | Uint16
                | Uint32
                | Uint64
        )
    }
}

/// Makes the functions between element types and their names in another format. A type that is not
/// listed has no name there.
macro_rules! names_elsewhere {
    ($doc_to:literal, $to:ident, $doc_from:literal, $from:ident: $($variant:ident = $name:literal;)*) => {
        impl DataType {
            #[doc = $doc_to]
            pub const fn $to(self) -> Option<&'static str> {
                match self {
                    $(Self::$variant => Some($name),)*
                    _ => None,
                }
            }

            #[doc = $doc_from]
            pub fn $from(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

names_elsewhere! {
    "The name in the header of a safetensors file, such as `F8_E4M3`; `None` for strings, \
     `COMPLEX128` and the integers narrower than a byte.",
    safetensors_name,
    "The type that safetensors calls `name`.",
    from_safetensors_name:
    Float = "F32";
    Uint8 = "U8";
    Int8 = "I8";
    Uint16 = "U16";
    Int16 = "I16";
    Int32 = "I32";
    Int64 = "I64";
    Bool = "BOOL";
    Float16 = "F16";
    Double = "F64";
    Uint32 = "U32";
    Uint64 = "U64";
    Complex64 = "C64";
    Bfloat16 = "BF16";
    Float8E4M3Fn = "F8_E4M3";
    Float8E4M3Fnuz = "F8_E4M3FNUZ";
    Float8E5M2 = "F8_E5M2";
    Float8E5M2Fnuz = "F8_E5M2FNUZ";
    Float8E8M0 = "F8_E8M0";
    Float4E2M1 = "F4";
    Float6E2M3 = "F6_E2M3";
    Float6E3M2 = "F6_E3M2";
}

names_elsewhere! {
    "The name of the `torch.dtype`, such as `float8_e4m3fn`; `None` for strings and for all types \
     narrower than a byte, because torch has no such type with one element per item.",
    torch_name,
    "The type that torch calls `name` (without `torch.`).",
    from_torch_name:
    Float = "float32";
    Uint8 = "uint8";
    Int8 = "int8";
    Uint16 = "uint16";
    Int16 = "int16";
    Int32 = "int32";
    Int64 = "int64";
    Bool = "bool";
    Float16 = "float16";
    Double = "float64";
    Uint32 = "uint32";
    Uint64 = "uint64";
    Complex64 = "complex64";
    Complex128 = "complex128";
    Bfloat16 = "bfloat16";
    Float8E4M3Fn = "float8_e4m3fn";
    Float8E4M3Fnuz = "float8_e4m3fnuz";
    Float8E5M2 = "float8_e5m2";
    Float8E5M2Fnuz = "float8_e5m2fnuz";
    Float8E8M0 = "float8_e8m0fnu";
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The number of elements of a tensor with `dims`: 1 for a scalar, 0 when a dimension is 0.
///
/// # Errors
/// [`ErrorKind::Shape`] when a dimension is negative or the product of the dimensions that are not
/// zero does not fit 63 bits: `[2^62, 4, 0]` is refused too.
pub fn element_count(dims: &[i64]) -> Result<u64> {
    let mut count = 1_u64;
    let mut empty = false;
    for dim in dims {
        let Ok(dim) = u64::try_from(*dim) else {
            let reason = format!("shape {dims:?} has a negative dimension");
            return Err(Error::new(ErrorKind::Shape, reason));
        };
        empty |= dim == 0;
        count = count
            .checked_mul(dim.max(1))
            .filter(|count| i64::try_from(*count).is_ok())
            .ok_or_else(|| {
                let reason = format!("shape {dims:?} has more than 2^63 elements");
                Error::new(ErrorKind::Shape, reason)
            })?;
    }
    Ok(if empty { 0 } else { count })
}

mod sealed {
    /// Seals `Element`: its implementations guarantee a memory layout.
    pub trait Sealed {}
}

/// A Rust type whose little-endian memory is that of an ONNX element type.
///
/// Every ONNX type of at least 8 bits, except strings, has one: Rust's integers and floats,
/// [`bool`], [`half::f16`] and [`half::bf16`], [`num_complex::Complex`], and `f8e4m3fn`,
/// `f8e4m3fnuz`, `f8e5m2`, `f8e5m2fnuz` and `f8e8m0fnu` of the crate `microfloat`.
///
/// The trait is sealed, because the implementations guarantee that layout.
///
/// ```
/// # use onnx_container_proto as onnx_container;
/// use microfloat::f8e4m3fn;
/// use onnx_container::{Buffer, DataType, Tensor};
///
/// let tensor = Tensor::new(DataType::Float8E4M3Fn, [2], Buffer::from(vec![0x38_u8, 0x7e]))?;
/// let values: Vec<f32> = tensor.as_slice::<f8e4m3fn>()?.iter().map(|x| x.to_f32()).collect();
/// assert_eq!(values, [1.0, 448.0]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
pub trait Element:
    sealed::Sealed + bytemuck::CheckedBitPattern + bytemuck::NoUninit + Send + Sync + 'static
{
    /// The ONNX element type.
    const DTYPE: DataType;

    /// The size in bytes of one scalar, whose bytes a big-endian host must reverse: 4 for
    /// `Complex<f32>`.
    const SCALAR_BYTES: usize;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident, $scalar:ty;)*) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DataType = DataType::$dtype;
            const SCALAR_BYTES: usize = size_of::<$scalar>();
        }
    )*};
}

elements! {
    f32 => Float, f32;
    f64 => Double, f64;
    f16 => Float16, f16;
    bf16 => Bfloat16, bf16;
    u8 => Uint8, u8;
    u16 => Uint16, u16;
    u32 => Uint32, u32;
    u64 => Uint64, u64;
    i8 => Int8, i8;
    i16 => Int16, i16;
    i32 => Int32, i32;
    i64 => Int64, i64;
    bool => Bool, bool;
    Complex<f32> => Complex64, f32;
    Complex<f64> => Complex128, f64;
    f8e4m3fn => Float8E4M3Fn, f8e4m3fn;
    f8e4m3fnuz => Float8E4M3Fnuz, f8e4m3fnuz;
    f8e5m2 => Float8E5M2, f8e5m2;
    f8e5m2fnuz => Float8E5M2Fnuz, f8e5m2fnuz;
    f8e8m0fnu => Float8E8M0, f8e8m0fnu;
}

/// As its name in onnx.proto.
#[cfg(feature = "serde")]
impl serde::Serialize for DataType {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// By its name in onnx.proto.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for DataType {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(from)?;
        let found = Self::ALL.iter().find(|dtype| dtype.to_string() == name);
        found.copied().ok_or_else(|| {
            serde::de::Error::custom(format!("`{name}` is no element type of onnx.proto"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_and_its_number_convert_both_ways() {
        for (number, dtype) in (0_i32..).zip(DataType::ALL) {
            assert_eq!(dtype.number(), number);
            assert_eq!(DataType::try_from(number).unwrap(), *dtype);
        }
        for number in [-1, 29, i32::MAX] {
            let error = DataType::try_from(number).unwrap_err();
            assert!(error.to_string().contains(&number.to_string()));
        }
    }

    #[test]
    fn floats_and_complex_types_are_called_so() {
        for dtype in DataType::ALL {
            let is_float = dtype.name().contains("FLOAT") || *dtype == DataType::Double;
            assert_eq!(dtype.is_float(), is_float, "{dtype}");
            assert_eq!(dtype.is_complex(), dtype.name().starts_with("COMPLEX"), "{dtype}");
        }
    }

    #[test]
    fn a_type_and_its_names_in_other_formats_convert_both_ways() {
        for dtype in DataType::ALL {
            if let Some(name) = dtype.safetensors_name() {
                assert_eq!(DataType::from_safetensors_name(name), Some(*dtype));
            }
            if let Some(name) = dtype.torch_name() {
                assert_eq!(DataType::from_torch_name(name), Some(*dtype));
            }
        }
        let without = |name: fn(DataType) -> Option<&'static str>| -> Vec<DataType> {
            DataType::ALL.iter().copied().filter(|dtype| name(*dtype).is_none()).collect()
        };
        use DataType::*;
        assert_eq!(
            without(DataType::safetensors_name),
            [Undefined, String, Complex128, Uint4, Int4, Uint2, Int2]
        );
        assert_eq!(
            without(DataType::torch_name),
            [Undefined, String, Uint4, Int4, Float4E2M1, Uint2, Int2, Float6E2M3, Float6E3M2]
        );
        assert_eq!(DataType::from_safetensors_name("f32"), None);
        assert_eq!(DataType::from_torch_name("torch.float32"), None);
    }

    #[test]
    fn byte_lengths() {
        let cases: &[(DataType, &[i64], u64)] = &[
            (DataType::Float, &[], 4),
            (DataType::Float, &[2, 3], 24),
            (DataType::Float, &[2, 0], 0),
            (DataType::Bool, &[3], 3),
            (DataType::Complex128, &[2], 32),
            (DataType::Uint4, &[5], 3),
            (DataType::Int2, &[5], 2),
            (DataType::Float6E2M3, &[5], 4),
            (DataType::Float6E3M2, &[4], 3),
        ];
        for (dtype, dims, len) in cases {
            assert_eq!(dtype.byte_len(dims).unwrap(), *len, "{dtype} {dims:?}");
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let shapes: &[&[i64]] =
            &[&[-1], &[0, -1], &[1 << 62, 4], &[1 << 62, 4, 0], &[i64::MAX], &[i64::MIN]];
        for dims in shapes {
            let error = DataType::Float.byte_len(dims).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Shape, "{dims:?}");
        }
        assert_eq!(DataType::String.byte_len(&[1]).unwrap_err().kind(), ErrorKind::DataType);
    }
}
