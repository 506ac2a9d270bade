//! Every tensor, and every graph, of a model, in graph order.
//!
//! Tensors are in more places than initializers: node attributes, subgraphs at any depth, function
//! bodies and the defaults of function attributes, sparse tensors, training graphs. A tool that
//! misses one of them loses weights. This module covers all of them: `walk` goes from tensor to
//! tensor, `graphs` from graph to graph; `place` says where a tensor is. What is done with a tensor
//! or graph is left to the caller.

mod graphs;
mod place;
mod walk;

use crate::error::Result;
use crate::proto::{ModelProto, TensorProto};
use crate::util::cancel;

pub use graphs::{Body, BodyMut, graphs, graphs_mut};
pub use place::{Place, Position, Scope, Site};
pub use walk::{Tensors, TensorsMut};

/// Every tensor of `model` with its place, in graph order: a graph's initializers, its sparse
/// initializers, then its nodes with their subgraphs; after the main graph the functions, then the
/// training graphs.
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::traversal;
///
/// let mut graph = GraphProto::new("g");
/// for name in ["a", "b"] {
///     graph.initializer.push(TensorProto::new(name, TensorProto::FLOAT, [2]));
/// }
/// let model = ModelProto::new(graph);
/// // As any iterator, it can be left early.
/// let second = traversal::iter(&model).nth(1).map(|(place, tensor)| place.name_of(tensor));
/// assert_eq!(second.as_deref(), Some("b"));
/// ```
pub fn iter(model: &ModelProto) -> Tensors<'_> {
    Tensors::new(model)
}

/// As [`iter`], with mutable tensors.
pub fn iter_mut(model: &mut ModelProto) -> TensorsMut<'_> {
    TensorsMut::new(model)
}

/// Calls `visit` for every tensor of `model`, in the order of [`iter`].
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
/// use onnx_container::{DataType, traversal};
///
/// let mut graph = GraphProto::default();
/// graph.initializer.push(TensorProto::new("w", DataType::Float.number(), &[2]));
/// let mut model = ModelProto::default();
/// model.graph = Some(Box::new(graph));
///
/// let mut names = Vec::new();
/// traversal::tensors(&model, |place, tensor| {
///     names.push(place.name_of(tensor));
///     Ok(())
/// })?;
/// assert_eq!(names, ["w"]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// The first error of `visit`, which ends the walk;
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
pub fn tensors(
    model: &ModelProto,
    mut visit: impl FnMut(&Place<'_>, &TensorProto) -> Result<()>,
) -> Result<()> {
    iter(model).try_for_each(|(place, tensor)| cancel::check().and_then(|()| visit(&place, tensor)))
}

/// As [`tensors`], with mutable tensors.
///
/// # Errors
/// The first error of `visit`, which ends the walk.
pub fn tensors_mut(
    model: &mut ModelProto,
    mut visit: impl FnMut(&Place<'_>, &mut TensorProto) -> Result<()>,
) -> Result<()> {
    iter_mut(model).try_for_each(|(place, tensor)| visit(&place, tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, GraphProto, NodeProto};

    #[test]
    fn a_walk_that_may_change_tensors_makes_no_rare_fields() {
        let mut node = NodeProto::default();
        node.attribute.push(AttributeProto::tensor("value", TensorProto::default()));
        node.attribute.push(AttributeProto::tensors("values", [TensorProto::default()]));
        let mut graph = GraphProto::new("g");
        graph.node.push(node);
        let mut model = ModelProto::new(graph);
        let mut seen = 0;
        tensors_mut(&mut model, |_, tensor| {
            tensor.data_type = Some(TensorProto::FLOAT);
            seen += 1;
            Ok(())
        })
        .unwrap();
        let set = |a: &AttributeProto| a.more.is_set();
        let attributes = &model.graph.unwrap().node[0].attribute;
        assert_eq!((seen, attributes.iter().map(set).collect()), (2, vec![false, true]));
        assert_eq!(attributes[1].tensors[0].data_type, Some(TensorProto::FLOAT));
    }
}
