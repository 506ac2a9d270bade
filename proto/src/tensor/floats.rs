//! Tensors from vectors, and every float type as `f32`.
//!
//! Code that computes a mean or a norm needs numbers, whichever of the twelve float types the
//! weights have. Every value of each of them but `DOUBLE` is an `f32` exactly. Quantized integers
//! are left out: their scale and zero point are known to the graph only.

use std::borrow::Cow;

use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};
use microfloat::{
    f4e2m1fn, f6e2m3fn, f6e3m2fn, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu,
};

use super::Tensor;
use super::storage::values_to_buffer;
use crate::dtype::{DataType, Element};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::rounding::{SmallFloat, to_bf16, to_f16};

impl Tensor {
    /// A tensor of `elements` in row-major order, without a copy.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::Tensor;
    ///
    /// let tensor = Tensor::from_vec([2, 2], vec![1.0_f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(tensor.view::<f32>()?[[1, 0]], 3.0);
    /// assert!(Tensor::from_vec([3], vec![1.0_f32]).is_err());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] when a dimension is negative, when the shape overflows, or when the
    /// number of elements is not what the dimensions need.
    pub fn from_vec<T: Element>(dims: impl Into<Vec<i64>>, elements: Vec<T>) -> Result<Self> {
        Self::new(T::DTYPE, dims, values_to_buffer(elements))
    }

    /// The elements of a float tensor as `f32`: `FLOAT` is borrowed where
    /// [`to_slice`](Self::to_slice) borrows, `DOUBLE` is rounded to the nearest `f32` (too large
    /// values become infinite), and every other float type converts exactly.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use half::f16;
    /// use onnx_container::{DataType, Tensor};
    ///
    /// let halves = Tensor::from_vec([2], vec![f16::from_f32(0.5), f16::ONE])?;
    /// assert_eq!(*halves.to_f32()?, [0.5, 1.0]);
    /// let fours = Tensor::pack(DataType::Float4E2M1, [3], &[0b0010, 0b0101, 0b1111])?;
    /// assert_eq!(*fours.to_f32()?, [1.0, 3.0, -6.0]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for types that are not floats: use [`to_slice`](Self::to_slice) for
    /// integers, [`unpack`](Self::unpack) for the codes of narrow integers.
    pub fn to_f32(&self) -> Result<Cow<'_, [f32]>> {
        let values = match self.dtype() {
            DataType::Float => return self.to_slice::<f32>(),
            DataType::Double => self.each(narrowed)?,
            DataType::Float16 => self.to_slice::<f16>()?.to_f32_vec(),
            DataType::Bfloat16 => self.to_slice::<bf16>()?.to_f32_vec(),
            DataType::Float8E4M3Fn => self.each(f8e4m3fn::to_f32)?,
            DataType::Float8E4M3Fnuz => self.each(f8e4m3fnuz::to_f32)?,
            DataType::Float8E5M2 => self.each(f8e5m2::to_f32)?,
            DataType::Float8E5M2Fnuz => self.each(f8e5m2fnuz::to_f32)?,
            DataType::Float8E8M0 => self.each(f8e8m0fnu::to_f32)?,
            DataType::Float4E2M1 => self.each_code(|code| f4e2m1fn::from_bits(code).to_f32())?,
            DataType::Float6E2M3 => self.each_code(|code| f6e2m3fn::from_bits(code).to_f32())?,
            DataType::Float6E3M2 => self.each_code(|code| f6e3m2fn::from_bits(code).to_f32())?,
            other => return Err(no_floats(other)),
        };
        Ok(Cow::Owned(values))
    }

    /// A tensor of `values`, each rounded to the float type `dtype` as numpy and `ml_dtypes` round
    /// it: to the nearest value, of two to the one with the even code (`FLOAT8E8M0`: to the larger
    /// one).
    ///
    /// What is too large becomes infinite in `FLOAT16`, `BFLOAT16` and `FLOAT8E5M2`, NaN in the
    /// other 8-bit types, and the largest value in those of 6 and 4 bits, which have no NaN either:
    /// it becomes zero. `FLOAT8E8M0` has positive numbers only; others become NaN. The inverse is
    /// [`to_f32`](Self::to_f32).
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::{DataType, Tensor};
    ///
    /// let eights = Tensor::from_f32(DataType::Float8E4M3Fn, [3], &[1.0, 0.3, 1000.0])?;
    /// let back = eights.to_f32()?;
    /// assert_eq!(back[..2], [1.0, 0.3125]);
    /// assert!(back[2].is_nan());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DataType`] for types that are not floats, and the errors of [`new`](Self::new)
    /// for the shape.
    pub fn from_f32(dtype: DataType, dims: impl Into<Vec<i64>>, values: &[f32]) -> Result<Self> {
        let values = values.iter().copied();
        match (dtype, SmallFloat::of(dtype)) {
            (DataType::Float, _) => Self::from_vec(dims, values.collect::<Vec<_>>()),
            (DataType::Double, _) => Self::from_vec(dims, values.map(f64::from).collect()),
            (DataType::Float16, _) => Self::from_vec(dims, values.map(to_f16).collect()),
            (DataType::Bfloat16, _) => Self::from_vec(dims, values.map(to_bf16).collect()),
            (_, Some(small)) => {
                let codes: Vec<u8> = values.map(|value| small.code(value)).collect();
                match dtype.bit_width() {
                    Some(8) => Self::new(dtype, dims, codes.into()),
                    _ => Self::pack(dtype, dims, &codes),
                }
            }
            (_, None) => Err(no_floats(dtype)),
        }
    }

    fn each<T: Element>(&self, to_f32: impl Fn(T) -> f32) -> Result<Vec<f32>> {
        Ok(self.to_slice::<T>()?.iter().map(|element| to_f32(*element)).collect())
    }

    fn each_code(&self, to_f32: impl Fn(u8) -> f32) -> Result<Vec<f32>> {
        Ok(self.unpack()?.into_iter().map(to_f32).collect())
    }
}

fn no_floats(dtype: DataType) -> Error {
    Error::new(ErrorKind::DataType, format!("{dtype} elements are not floats"))
}

#[allow(clippy::cast_possible_truncation)] // rounds, as `to_f32` documents
fn narrowed(value: f64) -> f32 {
    value as f32
}

impl<T: Element> From<Vec<T>> for Tensor {
    /// A tensor of one dimension, without a copy of the elements.
    fn from(elements: Vec<T>) -> Self {
        // The conversion never fails: a vector has at most `isize::MAX` elements.
        let dims = elements.len().try_into().map_or(i64::MAX, |len: i64| len);
        Self::of_array(T::DTYPE, vec![dims], values_to_buffer(elements))
    }
}
