//! Whether a weight of one model has other elements in another one. Outputs that are equal do not
//! tell: the inputs of a run may not reach these elements.
//!
//! Weights correspond by name, where both models have it once. Those of other names do not: nobody
//! can tell a changed weight from one that an optimizer made, by its type and shape.

use std::collections::{HashMap, HashSet};

use onnx_container::{Container, DataType, Tensor, TensorIndex, TensorRef};

use crate::commands::evaluate::apart::{converted, is_float};
use crate::terminal::failure::Failure;

/// Whether weights have other elements in `b`. Those of other float types are compared as numbers
/// that both types hold.
pub fn have_other_elements(a: &Container, b: &Container) -> Result<bool, Failure> {
    let (index_a, index_b) = (a.index(), b.index());
    let (a, b) = (weights(a, &index_a)?, weights(b, &index_b)?);
    if are_any_changed(&a, &b) {
        return Ok(true);
    }
    for (of_a, of_b) in retyped(&a, &b) {
        if are_other_numbers(of_a.tensor, of_b.tensor)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A weight of a model.
struct Weight<'i, 'c> {
    tensor: &'i TensorRef<'c>,
    /// The digest of its type, shape and elements.
    digest: [u8; 32],
}

impl Weight<'_, '_> {
    fn has_type_of(&self, other: &Self) -> bool {
        self.tensor.proto().data_type == other.tensor.proto().data_type
    }
}

/// The weights of `container` whose names no other one has, each read once.
fn weights<'i, 'c>(
    container: &'c Container,
    index: &'i TensorIndex<'c>,
) -> Result<Vec<Weight<'i, 'c>>, Failure> {
    let digests = container.digest()?;
    let (mut seen, mut repeated) = (HashSet::new(), HashSet::new());
    for tensor in index.iter() {
        let name = &tensor.proto().name;
        if !seen.insert(name) {
            repeated.insert(name);
        }
    }
    // Both lists have all tensors in graph order.
    let weights = index.iter().zip(digests.tensors());
    let weights = weights.filter(|(tensor, _)| !repeated.contains(&tensor.proto().name));
    Ok(weights.map(|(tensor, digest)| Weight { tensor, digest: *digest.as_bytes() }).collect())
}

fn by_name<'w, 'i, 'c>(weights: &'w [Weight<'i, 'c>]) -> HashMap<&'w str, &'w Weight<'i, 'c>> {
    weights.iter().map(|weight| (weight.tensor.name(), weight)).collect()
}

/// Whether weights of one name, type and shape have other elements.
fn are_any_changed(a: &[Weight<'_, '_>], b: &[Weight<'_, '_>]) -> bool {
    let named = by_name(b);
    let mut pairs = a.iter().filter_map(|of_a| Some((of_a, *named.get(of_a.tensor.name())?)));
    pairs.any(|(of_a, of_b)| {
        let has_form = of_a.has_type_of(of_b) && of_a.tensor.dims() == of_b.tensor.dims();
        has_form && of_a.digest != of_b.digest
    })
}

type Pair<'w, 'i, 'c> = (&'w Weight<'i, 'c>, &'w Weight<'i, 'c>);

/// The weights of one shape and another type, each of A with that of B: of one name, or with one
/// name that `cast` made of the other, such as `w_float16`.
fn retyped<'w, 'i, 'c>(a: &'w [Weight<'i, 'c>], b: &'w [Weight<'i, 'c>]) -> Vec<Pair<'w, 'i, 'c>> {
    let (names_a, names_b) = (by_name(a), by_name(b));
    let named = a.iter().filter_map(|of_a| Some((of_a, *names_b.get(of_a.tensor.name())?)));
    let cast_back = a.iter().filter_map(|of_a| Some((of_a, original(of_a.tensor, &names_b)?)));
    let cast = b.iter().filter_map(|of_b| Some((original(of_b.tensor, &names_a)?, of_b)));
    let is_retyped = |(of_a, of_b): &Pair<'_, '_, '_>| {
        !of_a.has_type_of(of_b) && of_a.tensor.dims() == of_b.tensor.dims()
    };
    named.chain(cast).chain(cast_back).filter(is_retyped).collect()
}

/// The weight in `named` that `cast` made `tensor` of. The new name has a number where the plain
/// one was taken.
fn original<'w, 'i, 'c>(
    tensor: &TensorRef<'_>,
    named: &HashMap<&str, &'w Weight<'i, 'c>>,
) -> Option<&'w Weight<'i, 'c>> {
    let suffix = format!("_{}", tensor.dtype().ok()?.to_string().to_ascii_lowercase());
    let plain = tensor.name().strip_suffix(suffix.as_str())?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let unnumbered = plain.rsplit_once('_').filter(|(_, number)| is_number(number));
    named.get(plain).or_else(|| named.get(unnumbered?.0)).copied()
}

/// Whether the tensors are floats, and other numbers even when those of the wider type are rounded.
fn are_other_numbers(a: &TensorRef<'_>, b: &TensorRef<'_>) -> Result<bool, Failure> {
    if ![a.dtype()?, b.dtype()?].into_iter().all(is_float) {
        return Ok(false);
    }
    let (a, b) = (a.tensor()?, b.tensor()?);
    Ok(!is_rounded(&a, &b)? && !is_rounded(&b, &a)?)
}

/// Whether `narrow` holds the numbers of `wide`, none of which became infinite.
fn is_rounded(wide: &Tensor, narrow: &Tensor) -> Result<bool, Failure> {
    Ok(converted(wide, narrow.dtype())? == *narrow && infinite(wide)? == infinite(narrow)?)
}

/// How many elements are infinite.
fn infinite(tensor: &Tensor) -> Result<usize, Failure> {
    Ok(match tensor.dtype() {
        DataType::Double => tensor.to_slice::<f64>()?.iter().filter(|x| x.is_infinite()).count(),
        _ => tensor.to_f32()?.iter().filter(|x| x.is_infinite()).count(),
    })
}
