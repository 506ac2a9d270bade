//! The operators that ONNX defines by other operators, and that have no kernel of their own here.
//!
//! A body is a graph over the inputs that the node has: an input that is left out is no input of the graph,
//! and neither is such an output. Bodies that depend on types, shapes or attributes get them from the
//! call. The graph's nodes are those of ONNX at [`Body::version`].

use onnx_container::proto::{GraphProto, NodeProto, ValueInfoProto};

use crate::call::Call;
use crate::error::Result;
use crate::program::Node;

/// A graph that computes an operator.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) graph: GraphProto,
    /// The version of ONNX's operators that its nodes have.
    pub(crate) version: i64,
}

/// Makes the body for one call.
pub(crate) type Build = fn(&Call<'_>) -> Result<Body>;

/// What makes the body of the operator of `node`, if there is one.
pub(crate) fn of(node: &Node) -> Option<Build> {
    match (node.domain.as_str(), node.op_type.as_str()) {
        ("", "Mish") => Some(mish),
        _ => None,
    }
}

/// A body of nodes between values of these names.
pub(crate) fn body(version: i64, inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> Body {
    let value = |name: &&str| {
        let mut value = ValueInfoProto::default();
        value.name = Some((*name).into());
        value
    };
    let mut graph = GraphProto::new("body");
    graph.input = inputs.iter().map(value).collect();
    graph.output = outputs.iter().map(value).collect();
    graph.node = nodes;
    Body { graph, version }
}

/// [Mish](https://onnx.ai/onnx/operators/onnx__Mish.html)
fn mish(_: &Call<'_>) -> Result<Body> {
    let nodes = vec![
        NodeProto::new("Softplus", ["X"], ["softplus"]),
        NodeProto::new("Tanh", ["softplus"], ["tanh"]),
        NodeProto::new("Mul", ["X", "tanh"], ["Y"]),
    ];
    Ok(body(18, &["X"], &["Y"], nodes))
}
