//! Constants that keep the old type, and that new `Cast` nodes convert when the model runs: small
//! weights, and those that an option leaves out. They become infinite as cast weights do.

use std::collections::HashSet;

use super::convert::{Float, becomes_infinite};
use super::graph::{initializers, is_constant, tensor_of};
use super::overflow::{Overflow, Overflows};
use crate::container::Container;
use crate::container::pieces::Pieces;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::files::external_data::is_external;
use crate::graph::traversal::{self, Body};
use crate::proto::{NodeProto, Str, TensorProto};

/// How many bytes are read at a time.
const PIECE: u64 = 1 << 20;

/// Lists in `overflows` the constants that become infinite in nodes with the outputs `casts`.
pub(super) fn list(
    container: &Container,
    casts: &HashSet<Str>,
    to: Float,
    overflows: &mut Overflows,
) -> Result<()> {
    traversal::graphs(container.model(), |scope, body| {
        for name in infinite(container, body, casts, to) {
            let overflow = Overflow::default();
            overflow.note();
            overflows.push(scope.qualify(&name.to_string_lossy()), overflow);
        }
        Ok(())
    })
}

/// The names of such constants of one graph.
fn infinite<'m>(
    container: &Container,
    body: Body<'m>,
    casts: &HashSet<Str>,
    to: Float,
) -> Vec<&'m Str> {
    let is_new = |node: &&NodeProto| node.output.first().is_some_and(|name| casts.contains(name));
    let sources = body.nodes().iter().filter(is_new).filter_map(|node| node.input.first());
    let sources: HashSet<&Str> = sources.collect();
    let is_infinite = |tensor: &TensorProto| {
        // An error here is one of the save too, which reads the same bytes.
        tensor_is_infinite(container, tensor, to).unwrap_or(false)
    };
    let named = |tensor: &'m TensorProto| tensor.name.as_ref().filter(|name| !name.is_empty());
    let mut found = Vec::new();
    if let Body::Graph(graph) = body {
        let all = initializers(graph).filter_map(|tensor| Some((named(tensor)?, tensor)));
        let read = all.filter(|(name, _)| sources.contains(name));
        found.extend(read.filter(|(_, tensor)| is_infinite(tensor)).map(|(name, _)| name));
    }
    for node in body.nodes().iter().filter(|node| is_constant(node)) {
        let Some(output) = node.output.first().filter(|name| sources.contains(name)) else {
            continue;
        };
        let tensor = node.attribute.iter().find_map(tensor_of);
        if tensor.map_or_else(|| numbers_are_infinite(node, to), is_infinite) {
            found.push(tensor.and_then(named).unwrap_or(output));
        }
    }
    found
}

/// Whether a finite number of `tensor` is infinite as `to`. What a closure makes is not asked for.
fn tensor_is_infinite(container: &Container, tensor: &TensorProto, to: Float) -> Result<bool> {
    let from = DataType::try_from(tensor.data_type.unwrap_or(0))?;
    let Some(from) = Float::of(from) else { return Ok(false) };
    if is_external(tensor) && container.initializer_of(tensor)?.1.is_lazy() {
        return Ok(false);
    }
    let pieces = Pieces::of(container, tensor)?;
    for range in pieces.ranges(PIECE) {
        let piece = pieces.piece(&range)?;
        let bytes = piece.as_bytes().ok_or_else(|| Error::internal("floats without bytes"))?;
        if becomes_infinite(from, to, bytes) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a finite number in an attribute of a `Constant` is infinite as `to`.
fn numbers_are_infinite(node: &NodeProto, to: Float) -> bool {
    let numbers = node.attribute.iter().flat_map(|one| one.f.iter().chain(one.floats.iter()));
    let bytes: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
    becomes_infinite(Float::F32, to, &bytes)
}
