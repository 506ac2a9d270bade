//! [`unknown_operators`]: what was named to be kept, and is not in the model.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::graph::traversal;
use crate::proto::ModelProto;

/// Those of `names` that are neither a type of operators in `model` nor the name of a node, in the
/// order of their letters: [`CastOptions::keep_ops`](super::CastOptions::keep_ops) keeps nothing
/// for them, so that they were meant for others.
///
/// ```
/// use onnx_container::edit::unknown_operators;
/// use onnx_container::proto::{GraphProto, ModelProto, NodeProto};
///
/// let mut graph = GraphProto::new("g");
/// graph.node.push(NodeProto::new("Softmax", ["x"], ["y"]));
/// let unknown = unknown_operators(&ModelProto::new(graph), ["Softmax", "SoftMax"])?;
/// assert_eq!(unknown, ["SoftMax"]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// Those of [`traversal::graphs`], which has none of its own.
pub fn unknown_operators<'n>(
    model: &ModelProto,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<Vec<&'n str>> {
    let mut unknown: BTreeSet<&str> = names.into_iter().collect();
    traversal::graphs(model, |_, graph| {
        for name in graph.nodes().iter().flat_map(|node| [&node.op_type, &node.name]).flatten() {
            unknown.remove(&*name.to_string_lossy());
        }
        Ok(())
    })?;
    Ok(unknown.into_iter().collect())
}
