//! Sparse tensors of a model, which become dense ones: a machine has no others.
//!
//! A [SparseTensorProto](https://onnx.ai/onnx/repo-docs/IR.html#sparse-tensors) has the elements
//! that are not zero, and where they are: by position, or by one index for each dimension.

use onnx_container::proto::SparseTensorProto;
use onnx_container::{ByteSize, Container, Tensor};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::elements::Elements;
use crate::memory::table::byte_len;
use crate::numeric::broadcast::{count, size};
use crate::value::Value;

/// How many bytes all sparse tensors of a model may become: few bytes of a file can stand for many.
pub(super) const LIMIT: u64 = 1 << 31;

/// The dense tensor of `proto`, whose bytes are taken from those that are `left`.
///
/// # Errors
/// [`ErrorKind::InvalidModel`] when values and indices do not fit each other or the shape,
/// [`ErrorKind::Unsupported`] when the tensor is longer than what is left.
pub(super) fn dense(
    container: &Container,
    proto: &SparseTensorProto,
    left: &mut u64,
) -> Result<Tensor> {
    let missing = || Error::new(ErrorKind::InvalidModel, "a sparse tensor has no values");
    let values = container.resolve(proto.values.as_deref().ok_or_else(missing)?)?;
    let shape = proto.dims.iter().map(|dim| size(*dim)).collect::<Result<Vec<_>>>()?;
    let rest = left.checked_sub(byte_len(values.dtype(), &shape)?);
    *left = rest.ok_or_else(|| {
        let most = ByteSize(LIMIT);
        let reason =
            format!("with shape {shape:?}, the sparse tensors of the model have more than {most}");
        Error::new(ErrorKind::Unsupported, reason)
    })?;
    let given = Elements::of(&values)?;
    let positions = match proto.indices.as_deref() {
        Some(indices) => positions(&container.resolve(indices)?, &shape)?,
        None => Vec::new(),
    };
    let invalid = || {
        let found = (values.shape(), positions.len());
        let reason =
            format!("values of shape {:?} for {} indices in the shape {shape:?}", found.0, found.1);
        Error::new(ErrorKind::InvalidModel, reason)
    };
    if values.shape() != [positions.len()] {
        return Err(invalid());
    }
    let mut dense = given.none();
    let mut filled = 0;
    for (i, position) in positions.iter().enumerate() {
        // Positions are sorted, so each is behind what is filled.
        dense.extend_zeros(position.checked_sub(filled).ok_or_else(invalid)?);
        dense.extend(&given, i, 1)?;
        filled = position + 1;
    }
    dense.extend_zeros(count(&shape).checked_sub(filled).ok_or_else(invalid)?);
    match dense.into_value(values.dtype(), &shape)? {
        Value::Tensor(tensor) => Ok(tensor),
        _ => Err(Error::internal("elements that are no tensor")),
    }
}

/// The position of each element in a dense tensor of `shape`.
fn positions(indices: &Tensor, shape: &[usize]) -> Result<Vec<usize>> {
    let invalid = |reason: String| Error::new(ErrorKind::InvalidModel, reason);
    let numbers = indices.to_slice::<i64>()?;
    let width = match indices.shape().as_slice() {
        [_] => 1,
        [_, width] if *width == shape.len() => *width,
        other => {
            return Err(invalid(format!("indices of shape {other:?} into the shape {shape:?}")));
        }
    };
    let linear = [count(shape)];
    let dims = if indices.shape().len() == 1 { linear.as_slice() } else { shape };
    let position = |tuple: &[i64]| {
        tuple.iter().zip(dims).try_fold(0, |at, (index, dim)| {
            let inside = usize::try_from(*index).ok().filter(|index| index < dim);
            let inside = inside.ok_or_else(|| invalid(format!("index {index} among {dim}")))?;
            Ok(at * dim + inside)
        })
    };
    numbers.chunks_exact(width.max(1)).map(position).collect()
}

#[cfg(test)]
mod tests {
    use onnx_container::proto::TensorProto;

    use super::*;

    #[test]
    fn all_sparse_tensors_of_a_model_have_one_limit() {
        let (container, mut left) = (Container::new(Default::default()), 100);
        let mut zeros = |dims: [i64; 2]| {
            let values =
                TensorProto::new("w", TensorProto::FLOAT, [0_i64]).with_raw_data(Vec::new());
            let indices =
                TensorProto::new("", TensorProto::INT64, [0_i64]).with_raw_data(Vec::new());
            dense(&container, &SparseTensorProto::new(values, indices, dims), &mut left)
        };
        assert_eq!(zeros([4, 5]).unwrap().byte_len(), 80);
        assert_eq!(zeros([1, 5]).unwrap().byte_len(), 20);
        assert_eq!(zeros([1, 1]).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(zeros([i64::MAX, 1]).unwrap_err().kind(), ErrorKind::Container);
    }
}
