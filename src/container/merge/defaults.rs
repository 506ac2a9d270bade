//! The defaults of two inputs that become one: it has one default, so the two must be equal, or
//! neither may have one.

use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{GraphProto, SparseTensorProto, TensorProto};
use crate::wire::Str;

/// The initializer of an input.
enum OfInput<'g> {
    Dense(&'g TensorProto),
    Sparse(&'g SparseTensorProto),
}

impl<'g> OfInput<'g> {
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
        let reason = match (OfInput::of(a, x), OfInput::of(b, y)) {
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

/// Whether two defaults have the same type, dimensions and elements, wherever these are.
fn are_equal(
    (first, one): (&Container, OfInput<'_>),
    (second, other): (&Container, OfInput<'_>),
) -> Result<bool> {
    let parts_equal = |a: Option<&TensorProto>, b: Option<&TensorProto>| match (a, b) {
        (Some(a), Some(b)) => Ok(first.resolve(a)? == second.resolve(b)?),
        (a, b) => Ok(a.is_none() && b.is_none()),
    };
    match (one, other) {
        (OfInput::Dense(a), OfInput::Dense(b)) => parts_equal(Some(a), Some(b)),
        (OfInput::Sparse(a), OfInput::Sparse(b)) => Ok(a.dims == b.dims
            && parts_equal(a.values.as_deref(), b.values.as_deref())?
            && parts_equal(a.indices.as_deref(), b.indices.as_deref())?),
        _ => Ok(false),
    }
}

/// The name of a sparse initializer.
pub(super) fn name_of_sparse(sparse: &SparseTensorProto) -> Option<&Str> {
    sparse.values.as_deref()?.name.as_ref()
}
