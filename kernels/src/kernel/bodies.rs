//! The operators that run graphs in the place of a kernel, and the bodies of those that ONNX
//! defines by other operators.
//!
//! A body is a graph over the inputs and outputs that the node has: those that the node leaves out
//! are no inputs and outputs of the graph. Bodies that depend on types, shapes or attributes get
//! them from the call. The graph's nodes are those of ONNX at [`Body::version`].

use onnx_container_proto::proto::{AttributeProto, GraphProto, NodeProto, ValueInfoProto};

use crate::error::{Error, ErrorKind, Result};
use crate::kernel::call::Call;
use crate::program::{FUNCTION_BODY, Node};

/// A graph that computes an operator.
#[derive(Debug)]
pub struct Body {
    /// The graph.
    pub graph: GraphProto,
    /// The version of ONNX's operators that its nodes have.
    pub version: i64,
}

/// Makes the body for one call.
pub type Build = fn(&Call<'_>) -> Result<Body>;

/// An operator without a kernel: it runs graphs, those of its node or one that ONNX defines.
#[derive(Debug, Clone, Copy)]
pub enum Composite {
    /// It has graphs that change the scores.
    FlexAttention,
    /// A call of a local function, whose graph it has.
    FunctionCall,
    /// One of its two graphs runs.
    If,
    /// Its graph runs while a condition holds.
    Loop,
    /// Its graph runs for each slice of its inputs.
    Scan,
    /// Its graph runs for each element of a sequence.
    SequenceMap,
    /// An operator whose body this function makes.
    Body(Build),
}

/// What the operator of `node` is, if it runs graphs.
pub fn of(node: &Node) -> Option<Composite> {
    if node.attributes.get(FUNCTION_BODY).is_some() {
        return Some(Composite::FunctionCall);
    }
    Some(match (node.domain.as_str(), node.op_type.as_str()) {
        ("ai.onnx.preview", "FlexAttention") => Composite::FlexAttention,
        ("", "If") => Composite::If,
        ("", "Loop") => Composite::Loop,
        ("", "Scan") => Composite::Scan,
        ("", "SequenceMap") => Composite::SequenceMap,
        ("", "Mish") => Composite::Body(mish),
        ("", "SwiGLU") => Composite::Body(swiglu),
        _ => return None,
    })
}

/// A body of nodes between values of these names.
pub fn body(version: i64, inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> Body {
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
    Ok(body(22, &["X"], &["Y"], nodes))
}

/// [SwiGLU](https://onnx.ai/onnx/operators/onnx__SwiGLU.html), whose inputs do not broadcast
fn swiglu(call: &Call<'_>) -> Result<Body> {
    let (gate, linear) = (call.shape(0)?, call.shape(1)?);
    if gate != linear {
        let reason = format!("inputs of shapes {gate:?} and {linear:?}, which have to be the same");
        return Err(Error::new(ErrorKind::Shape, reason));
    }
    let mut swish = NodeProto::new("Swish", ["A"], ["gate"]);
    swish.attribute = vec![AttributeProto::float("alpha", call.float_or("alpha", 1.0)?)];
    let product = NodeProto::new("Mul", ["gate", "B"], ["Y"]);
    Ok(body(28, &["A", "B"], &["Y"], vec![swish, product]))
}
