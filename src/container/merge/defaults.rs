//! The defaults of two inputs that become one: it has one default, so the two must be equal, or
//! neither may have one.

use std::collections::BTreeMap;

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{AttributeProto, GraphProto, SparseTensorProto, TensorProto};
use crate::tensor::Tensor;
use crate::wire::Str;

/// A value that does not depend on inputs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Constant<'g> {
    Dense(&'g TensorProto),
    Sparse(&'g SparseTensorProto),
    /// Numbers or texts in an attribute of a `Constant` node.
    Attribute(&'g AttributeProto),
}

impl<'g> Constant<'g> {
    /// The initializer of an input.
    fn of(graph: &'g GraphProto, input: &str) -> Option<Self> {
        let dense = graph.initializer.iter();
        let dense = dense.rev().find(|it| it.name.as_ref().is_some_and(|name| *name == input));
        let sparse = graph.sparse_initializer.iter();
        let mut sparse = sparse.filter(|it| name_of_sparse(it).is_some_and(|name| *name == input));
        dense.map(Self::Dense).or_else(|| sparse.next().map(Self::Sparse))
    }
}

const TO_DO: &str = "give both the same default, or neither, or keep two inputs";

/// What is wrong with the defaults of inputs that become one: each pair of `same`, of the first
/// model and of the second.
pub(super) fn check_defaults(
    (first, second): (&Container, &Container),
    (a, b): (&GraphProto, &GraphProto),
    same: &[(String, String)],
) -> Vec<Error> {
    let wrong = |(x, y): &(String, String)| {
        let reason = match (Constant::of(a, x), Constant::of(b, y)) {
            (None, None) => return None,
            (Some(one), Some(other)) => match are_equal((first, one), (second, other)) {
                Ok(true) => return None,
                Ok(false) => "the two have different defaults",
                Err(error) => return Some(error.with_tensor(y.as_str())),
            },
            (Some(_), None) => "only the input of the first model has a default",
            (None, Some(_)) => "only the input of the second model has a default",
        };
        let reason =
            format!("cannot be one input with `{x}` of the first model: {reason}; {TO_DO}");
        Some(Error::new(ErrorKind::InvalidArgument, reason).with_tensor(y.as_str()))
    };
    same.iter().filter_map(wrong).collect()
}

/// Whether two constants have the same type, dimensions and elements, wherever these are, dense or
/// sparse.
pub(super) fn are_equal(
    (first, one): (&Container, Constant<'_>),
    (second, other): (&Container, Constant<'_>),
) -> Result<bool> {
    match (one, other) {
        (Constant::Dense(a), Constant::Dense(b)) => Ok(first.resolve(a)? == second.resolve(b)?),
        (Constant::Sparse(a), Constant::Sparse(b)) => {
            let (a, b) = (Stored::of(first, a)?, Stored::of(second, b)?);
            Ok(a.zip(b).is_some_and(|(a, b)| a.is_of(&b.values, &b.dims) && a.rest().eq(b.rest())))
        }
        (Constant::Dense(dense), Constant::Sparse(sparse)) => {
            is_dense(&first.resolve(dense)?, second, sparse)
        }
        (Constant::Sparse(sparse), Constant::Dense(dense)) => {
            is_dense(&second.resolve(dense)?, first, sparse)
        }
        (Constant::Attribute(a), Constant::Attribute(b)) => Ok(a == b),
        _ => Ok(false),
    }
}

/// Whether `dense` has the elements of `sparse`.
fn is_dense(dense: &Tensor, container: &Container, sparse: &SparseTensorProto) -> Result<bool> {
    let Some(stored) = Stored::of(container, sparse)? else { return Ok(false) };
    let Some(bytes) = dense.as_bytes().filter(|_| stored.is_of(dense, dense.dims())) else {
        return Ok(false);
    };
    let elements = (0_u64..).zip(bytes.chunks_exact(stored.width));
    Ok(elements.filter(|(_, element)| is_not_zero(element)).eq(stored.rest()))
}

fn is_not_zero(element: &[u8]) -> bool {
    element.iter().any(|byte| *byte != 0)
}

/// What a sparse tensor stores.
struct Stored {
    dims: Vec<i64>,
    values: Tensor,
    /// The length of an element in bytes.
    width: usize,
    /// The number of each value, by its position in the dense tensor.
    places: BTreeMap<u64, usize>,
}

impl Stored {
    /// `None` where elements are not whole bytes, or where the tensor is not valid.
    fn of(container: &Container, sparse: &SparseTensorProto) -> Result<Option<Self>> {
        let (Some(values), Some(indices)) = (&sparse.values, &sparse.indices) else {
            return Ok(None);
        };
        let (values, indices) = (container.resolve(values)?, container.resolve(indices)?);
        let width = values.dtype().bit_width().filter(|bits| bits % 8 == 0);
        let Some(width) = width.map(|bits| usize::from(bits / 8)) else { return Ok(None) };
        let places = positions(&indices, &sparse.dims).map(|all| all.into_iter().zip(0..));
        let Some(places) = places.map(BTreeMap::from_iter) else { return Ok(None) };
        let is_valid = places.len() == values.element_count();
        let dims = sparse.dims.clone();
        Ok(is_valid.then_some(Self { dims, values, width, places }))
    }

    /// Whether a tensor of the type of `values` and of dimensions `dims` could be equal.
    fn is_of(&self, values: &Tensor, dims: &[i64]) -> bool {
        self.values.dtype() == values.dtype() && self.dims == dims
    }

    /// The elements that are not zero, by position.
    fn rest(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let all = self.places.iter().filter_map(|(place, number)| {
            let start = number.checked_mul(self.width)?;
            let element = self.values.as_bytes()?.get(start..start.checked_add(self.width)?)?;
            Some((*place, element))
        });
        all.filter(|(_, element)| is_not_zero(element))
    }
}

/// The position of each value in a dense tensor of these dimensions, where all are valid.
fn positions(indices: &Tensor, dims: &[i64]) -> Option<Vec<u64>> {
    let numbers = indices.to_slice::<i64>().ok()?;
    let number = |index: &i64| u64::try_from(*index).ok();
    match indices.dims() {
        [_] => numbers.iter().map(number).collect(),
        [_, rank] if usize::try_from(*rank).ok()? == dims.len() && !dims.is_empty() => {
            let position = |row: &[i64]| {
                row.iter().zip(dims).try_fold(0_u64, |at, (index, dim)| {
                    let (index, dim) = (number(index)?, number(dim)?);
                    at.checked_mul(dim)?.checked_add(index).filter(|_| index < dim)
                })
            };
            numbers.chunks_exact(dims.len()).map(position).collect()
        }
        _ => None,
    }
}

/// The name of a sparse initializer.
pub(super) fn name_of_sparse(sparse: &SparseTensorProto) -> Option<&Str> {
    sparse.values.as_deref()?.name.as_ref()
}
