//! Names that a graph inside has too: what it defines itself is its own, and is no early read of
//! the graph around.

use onnx_container::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto};
use onnx_container::{Container, ErrorKind};

use super::digest;
use crate::support::{branches, floats, graph_of, int64s, model_of, node, vectors};

/// What a graph inside does with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Input,
    Initializer,
    Sparse,
    Output,
    /// It reads it and leaves it to the graphs around.
    Nothing,
}

/// Who reads the name in the graph inside.
#[derive(Debug, Clone, Copy)]
enum Reader {
    Node,
    Graph,
    Deeper,
}

fn op(name: &str, input: &str, output: &str) -> NodeProto {
    node(name, &[input], &[output], vec![])
}

/// A graph that defines `name` and reads it.
fn inner(inside: Inside, reader: Reader, name: &str) -> GraphProto {
    let mut graph = graph_of(&[], &["r"], vec![]);
    match inside {
        Inside::Input => graph.input = vectors(&[name]),
        Inside::Initializer => graph.initializer.push(floats(name, 0, 2)),
        Inside::Sparse => {
            let sparse = SparseTensorProto::new(floats(name, 1, 1), int64s("", &[0]), [2]);
            graph.sparse_initializer.push(sparse);
        }
        Inside::Output => graph.node.push(op("Neg", "x", name)),
        Inside::Nothing => {}
    }
    match reader {
        Reader::Node => graph.node.push(op("Abs", name, "r")),
        Reader::Graph => graph.output = vectors(&[name]),
        Reader::Deeper => {
            let deeper = graph_of(&[], &["d"], vec![op("Abs", name, "d")]);
            graph.node.push(branches(&["r"], deeper.clone(), deeper));
        }
    }
    graph
}

/// A branch that gives `t` after a node with the graph inside; the graph around the branch has a
/// `t` of its own.
fn model(inside: Inside, reader: Reader, depth: usize, name: &str) -> ModelProto {
    let holder = |graph| node("Mine", &[], &["i"], vec![AttributeProto::graph("g", graph)]);
    let deep = (1..depth)
        .fold(inner(inside, reader, name), |graph, _| graph_of(&[], &["i"], vec![holder(graph)]));
    let nodes = vec![holder(deep), op("Neg", "x", "t"), node("Add", &["t", "i"], &["o"], vec![])];
    let nodes = vec![branches(
        &["y"],
        graph_of(&[], &["o"], nodes),
        graph_of(&[], &["q"], vec![op("Abs", "t", "q")]),
    )];
    model_of(graph_of(&["c", "x", "t"], &["y"], nodes), vec![])
}

#[test]
fn a_name_that_a_graph_inside_defines_is_no_early_read() {
    use Inside::{Initializer, Input, Nothing, Output, Sparse};
    for inside in [Input, Initializer, Sparse, Output, Nothing] {
        for reader in [Reader::Node, Reader::Graph, Reader::Deeper] {
            for depth in [1, 2, 3] {
                let what = format!("{inside:?}, read by {reader:?}, {depth} deep");
                let same = model(inside, reader, depth, "t");
                if inside == Nothing {
                    let error = Container::new(same).semantic_digest().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidModel, "{what}");
                    let text = error.to_string();
                    assert!(text.contains("`t` is defined twice, in a graph"), "{what}: {text}");
                } else {
                    let other = model(inside, reader, depth, "another");
                    assert_eq!(digest(&same), digest(&other), "{what}");
                }
            }
        }
    }
}
