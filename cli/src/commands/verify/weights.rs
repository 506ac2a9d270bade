//! Whether a weight of one model has other elements in another one. Outputs that are equal do not
//! tell: the inputs of a run may not reach these elements.

use std::collections::HashMap;

use onnx_container::compare::{CompareOptions, OneTensor, TensorChanges, compare_with};
use onnx_container::{Container, Tensor, TensorRef};

use crate::commands::evaluate::apart::{converted, is_float};
use crate::terminal::failure::Failure;

/// Whether weights of one name and shape have other elements in `b`. Those of other float types are
/// compared as numbers that both types hold.
pub fn have_other_elements(a: &Container, b: &Container) -> Result<bool, Failure> {
    let changes = compare_with(a, b, &CompareOptions::new().ignore_stored_digests(true))?.tensors;
    if changes.changed.iter().any(|tensor| tensor.a == tensor.b) {
        return Ok(true);
    }
    let (a, b) = (a.index(), b.index());
    for (of_a, of_b) in retyped(&changes) {
        if are_other_numbers(a.get(of_a)?, b.get(of_b)?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names in A and in B of weights of one shape and another type: equal ones, or one that
/// `cast` made of the other, such as `w_float16`.
fn retyped(changes: &TensorChanges) -> Vec<(&str, &str)> {
    let named = changes.changed.iter().filter(|tensor| tensor.a.shape == tensor.b.shape);
    let named = named.map(|tensor| (tensor.name.as_str(), tensor.name.as_str()));
    let (removed, added) = (by_name(&changes.removed), by_name(&changes.added));
    let cast = changes.added.iter().filter_map(|of_b| {
        let of_a = removed.get(original(of_b)?)?;
        (of_a.form.shape == of_b.form.shape).then_some((of_a.name.as_str(), of_b.name.as_str()))
    });
    let cast_back = changes.removed.iter().filter_map(|of_a| {
        let of_b = added.get(original(of_a)?)?;
        (of_a.form.shape == of_b.form.shape).then_some((of_a.name.as_str(), of_b.name.as_str()))
    });
    named.chain(cast).chain(cast_back).collect()
}

fn by_name(tensors: &[OneTensor]) -> HashMap<&str, &OneTensor> {
    tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect()
}

/// The name of the weight that `cast` made `tensor` of.
fn original(tensor: &OneTensor) -> Option<&str> {
    let suffix = format!("_{}", tensor.form.dtype.to_ascii_lowercase());
    tensor.name.strip_suffix(suffix.as_str())
}

/// Whether the tensors are floats, and other numbers even when those of the wider type are rounded.
fn are_other_numbers(a: &TensorRef<'_>, b: &TensorRef<'_>) -> Result<bool, Failure> {
    if ![a.dtype()?, b.dtype()?].into_iter().all(is_float) {
        return Ok(false);
    }
    let (a, b) = (a.tensor()?, b.tensor()?);
    Ok(!is_rounded(&a, &b)? && !is_rounded(&b, &a)?)
}

/// Whether `narrow` holds the numbers of `wide`.
fn is_rounded(wide: &Tensor, narrow: &Tensor) -> Result<bool, Failure> {
    Ok(converted(wide, narrow.dtype())? == *narrow)
}
