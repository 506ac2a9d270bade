//! Whether the indices of a sparse tensor are those of elements that it has, each once and in
//! order.
//!
//! Indices and values that are external are left to the check of their files.

use super::attributes::Fault;
use super::finding::Severity;
use crate::dtype::{DataType, element_count};
use crate::files::external_data::is_external;
use crate::proto::{SparseTensorProto, TensorProto};
use crate::tensor::Tensor;

/// What is wrong with `sparse`.
pub(super) fn fault(sparse: &SparseTensorProto) -> Option<Fault> {
    let error = |reason: &str| Some((Severity::Error, format!("a sparse tensor {reason}")));
    let advice = |reason: &str| Some((Severity::Advice, format!("a sparse tensor {reason}")));
    let (Some(values), Some(indices)) = (&sparse.values, &sparse.indices) else {
        return error("without values or indices, which onnx.checker and onnxruntime refuse");
    };
    let [count] = values.dims[..] else {
        return error("whose values are not in one dimension, which onnx.checker refuses");
    };
    if sparse.dims.is_empty() {
        return advice("without dimensions, which onnx.checker refuses");
    }
    let Ok(elements) = element_count(&sparse.dims) else {
        return error("whose dimensions no tensor can have");
    };
    let row = match indices.dims[..] {
        [rows] if rows == count => None,
        [rows, rank] if rows == count && usize::try_from(rank) == Ok(sparse.dims.len()) => {
            usize::try_from(rank).ok()
        }
        _ => {
            return error(
                "whose indices do not fit its values and dimensions, which readers refuse",
            );
        }
    };
    if indices.data_type != Some(TensorProto::INT64) {
        return advice("whose indices are not INT64, which onnx.checker refuses");
    }
    if is_external(indices) {
        return None;
    }
    // One that has no such elements is an error of its own.
    let indices =
        Tensor::try_from(&**indices).ok().filter(|found| found.dtype() == DataType::Int64)?;
    let indices = indices.to_slice::<i64>().ok()?;
    match row {
        None => of_list(&indices, elements),
        Some(rank) => of_rows(&indices, rank, &sparse.dims),
    }
}

const OUT: &str = "a sparse tensor with an index that none of its elements has, which onnx.checker and onnxruntime refuse";
const ORDER: &str = "a sparse tensor whose indices do not ascend, which onnx.checker refuses";

fn of_list(indices: &[i64], elements: u64) -> Option<Fault> {
    let is_in = |index: &i64| u64::try_from(*index).is_ok_and(|index| index < elements);
    if !indices.iter().all(is_in) {
        return Some((Severity::Error, OUT.to_owned()));
    }
    (!indices.is_sorted_by(|a, b| a < b)).then(|| (Severity::Advice, ORDER.to_owned()))
}

fn of_rows(indices: &[i64], rank: usize, dims: &[i64]) -> Option<Fault> {
    let mut rows = indices.chunks_exact(rank);
    let is_in = |row: &[i64]| row.iter().zip(dims).all(|(index, dim)| (0..*dim).contains(index));
    if !rows.clone().all(is_in) {
        return Some((Severity::Error, OUT.to_owned()));
    }
    let ascend = rows.clone().zip(rows.by_ref().skip(1)).all(|(a, b)| a < b);
    (!ascend).then(|| (Severity::Advice, ORDER.to_owned()))
}
