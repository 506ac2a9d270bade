//! The dtype and shape that a graph declares for a tensor's value.
//!
//! A tensor says its own type, and the graph may say it again: in `value_info`, and where the value
//! is an input or output of the graph. When a tensor gets another type, what is said elsewhere has
//! to follow.

use std::collections::HashSet;

use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::traversal::{self, Body, BodyMut, Position};
use crate::proto::tensor_shape_proto::{Dimension, DimensionValue};
use crate::proto::type_proto::Value;
use crate::proto::{
    GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto,
};
use crate::wire::Str;

/// Gives the tensors at `positions`, and what the graphs declare of their values, this type and
/// shape.
pub(crate) fn retype(
    model: &mut ModelProto,
    positions: &HashSet<Position>,
    dtype: DataType,
    dims: &[i64],
) -> Result<()> {
    if positions.is_empty() {
        return Ok(());
    }
    let values = values_of(model, positions)?;
    for (place, proto) in traversal::iter_mut(model) {
        if positions.contains(&place.position) {
            proto.data_type = Some(dtype.number());
            proto.dims = dims.to_vec();
        }
    }
    let mut number = 0;
    traversal::graphs_mut(model, |_, body| {
        let here = |info: &ValueInfoProto| {
            info.name.as_ref().is_some_and(|name| values.contains(&(number, name.clone())))
        };
        let infos = match body {
            BodyMut::Graph(graph) => [
                graph.value_info.as_mut_slice(),
                graph.input.as_mut_slice(),
                graph.output.as_mut_slice(),
            ],
            BodyMut::Function(function) => [function.value_info.as_mut_slice(), &mut [], &mut []],
        };
        for info in infos.into_iter().flatten().filter(|info| here(info)) {
            declare(info, dtype, dims);
        }
        number += 1;
        Ok(())
    })
}

/// Refuses a type and shape of the value `name` of `graph` that are not the ones declared for it. A
/// dimension that is declared by a name may be any.
pub(crate) fn check(graph: &GraphProto, name: &str, dtype: DataType, dims: &[i64]) -> Result<()> {
    let infos = graph.value_info.iter().chain(&graph.output);
    for info in infos.filter(|info| info.name.as_ref().is_some_and(|it| *it == *name)) {
        let Some(Value::TensorType(tensor)) =
            info.r#type.as_deref().and_then(|it| it.value.as_ref())
        else {
            continue;
        };
        if let Some(declared) = tensor.elem_type.filter(|it| ![0, dtype.number()].contains(it)) {
            let declared = DataType::try_from(declared)
                .map_or_else(|_| format!("type {declared}"), |declared| declared.to_string());
            let reason = format!("the graph declares this value as {declared}, not {dtype}");
            return Err(Error::new(ErrorKind::DataType, reason));
        }
        let Some(shape) = tensor.shape.as_deref() else { continue };
        let mut pairs = shape.dim.iter().zip(dims);
        let fits = |(declared, dim): (&Dimension, &i64)| match &declared.value {
            Some(DimensionValue::DimValue(value)) => value == dim,
            _ => true,
        };
        if shape.dim.len() != dims.len() || !pairs.all(fits) {
            let reason = format!("the graph declares another shape for this value than {dims:?}");
            return Err(Error::new(ErrorKind::Shape, reason));
        }
    }
    Ok(())
}

fn declare(info: &mut ValueInfoProto, dtype: DataType, dims: &[i64]) {
    let declared = info.r#type.get_or_insert_default();
    if let Some(Value::TensorType(tensor)) = &mut declared.value {
        tensor.elem_type = Some(dtype.number());
        tensor.shape = Some(Box::new(TensorShapeProto::new(dims.iter().copied())));
    } else {
        **declared = TypeProto::tensor(dtype, dims.iter().copied());
    }
}

/// The values that the tensors at `positions` are: the number of the graph in the order of
/// `traversal::graphs`, and the name.
fn values_of(model: &ModelProto, positions: &HashSet<Position>) -> Result<HashSet<(usize, Str)>> {
    let tensors = traversal::iter(model).filter(|(place, _)| positions.contains(&place.position));
    // Names and paths repeat; an address does not.
    let tensors: HashSet<*const TensorProto> =
        tensors.map(|(_, tensor)| std::ptr::from_ref(tensor)).collect();
    let wanted = |tensor: &TensorProto| tensors.contains(&std::ptr::from_ref(tensor));
    let (mut values, mut number) = (HashSet::new(), 0);
    traversal::graphs(model, |_, body| {
        if let Body::Graph(graph) = body {
            let found = graph.initializer.iter().filter(|tensor| wanted(tensor));
            values.extend(found.filter_map(|tensor| Some((number, tensor.name.clone()?))));
        }
        let constants = body.nodes().iter().filter(|node| is_constant(node, wanted));
        values.extend(constants.filter_map(|node| Some((number, node.output.first()?.clone()))));
        number += 1;
        Ok(())
    })?;
    Ok(values)
}

fn is_constant(node: &NodeProto, wanted: impl Fn(&TensorProto) -> bool) -> bool {
    node.op_type.as_ref().is_some_and(|op| *op == "Constant")
        && node.attribute.iter().any(|attribute| attribute.t.as_deref().is_some_and(&wanted))
}
