//! `Container::cast` with `compute`, where names of subgraphs are those of other values.

use onnx_container::edit::NotCastReason;
use onnx_container::proto::type_proto::Value;
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};
use onnx_container::traversal::{self, Body};
use onnx_container::{Container, DataType};

use crate::cast::{all, computing};
use crate::support::{branches, floats, graph_of, model, node};

/// A model `x -> y` with a weight `w`, of these nodes.
fn main_graph(nodes: Vec<NodeProto>) -> GraphProto {
    let mut graph = graph_of(&["x"], &["y"], nodes);
    graph.initializer = vec![floats("w", 0, 2)];
    graph.input.push(ValueInfoProto::tensor("c", TensorProto::BOOL, []));
    graph.input.push(ValueInfoProto::tensor("n", TensorProto::INT64, []));
    graph
}

/// The body of a loop that carries `carried`, which `nodes` make `next` from.
fn body(carried: &str, next: &str, mut nodes: Vec<NodeProto>) -> AttributeProto {
    nodes.insert(0, node("Identity", &["again"], &["go"], vec![]));
    let mut body = graph_of(&[carried], &[next], nodes);
    let inputs = [("i", TensorProto::INT64), ("again", TensorProto::BOOL)];
    body.input.splice(0..0, inputs.map(|(name, of)| ValueInfoProto::tensor(name, of, [])));
    body.output.insert(0, ValueInfoProto::tensor("go", TensorProto::BOOL, []));
    AttributeProto::graph("body", body)
}

fn looped(output: &str, body: AttributeProto) -> NodeProto {
    node("Loop", &["n", "c", "x"], &[output], vec![body])
}

/// An `If` whose branches compute `inner` from `x`.
fn branched(inner: &str, output: &str) -> NodeProto {
    let branch = |op| graph_of(&[], &[inner], vec![node(op, &["x", "w"], &[inner], vec![])]);
    branches(&[output], branch("Add"), branch("Mul"))
}

/// The declared types of the inputs and outputs of all subgraphs.
fn inner_types(model: &ModelProto) -> Vec<(String, i32)> {
    let mut types = Vec::new();
    traversal::graphs(model, |scope, body| {
        let Body::Graph(graph) = body else { return Ok(()) };
        for info in graph.input.iter().chain(&graph.output).filter(|_| !scope.is_main()) {
            let Some(Value::TensorType(of)) = &info.r#type.as_ref().unwrap().value else {
                panic!("no tensor")
            };
            types.push((info.name.as_ref().unwrap().to_string(), of.elem_type.unwrap()));
        }
        Ok(())
    })
    .unwrap();
    types
}

/// Only values of the main graph are inputs and outputs of the model.
#[test]
fn values_of_subgraphs_keep_their_type_when_they_are_called_like_one_of_the_model() {
    let neg = |input| node("Neg", &[input], &["y"], vec![]);
    let add = |input, output| node("Add", &[input, "w"], &[output], vec![]);
    let scan = || {
        let mut scan = node(
            "Scan",
            &["x", "x"],
            &["s", "y"],
            vec![AttributeProto::graph(
                "body",
                graph_of(&["a", "b"], &["fin", "y"], vec![add("a", "fin"), add("b", "y")]),
            )],
        );
        scan.attribute.push(AttributeProto::int("num_scan_inputs", 1));
        scan
    };
    let nested = || {
        let outer = |inner| graph_of(&[], &["y"], vec![branched("deep", "m"), inner]);
        branches(&["l"], outer(neg("m")), outer(neg("m")))
    };
    let cases: Vec<(&str, Vec<NodeProto>, &[&str])> = vec![
        (
            "an output of a loop's body",
            vec![looped("l", body("a", "y", vec![add("a", "y")])), neg("l")],
            &[
                "Cast(x) x_float",
                "Loop(n,c,x_float) l",
                "Cast(l) l_float16",
                "Neg(l_float16) y",
                "Identity(again) go",
                "Cast(a) a_float16",
                "Add(a_float16,w_float16) y_float16",
                "Cast(y_float16) y",
            ],
        ),
        (
            "the output of the node itself",
            vec![looped("y", body("a", "y", vec![add("a", "y")]))],
            &[
                "Cast(x) x_float",
                "Loop(n,c,x_float) y_float",
                "Cast(y_float) y",
                "Identity(again) go",
                "Cast(a) a_float16",
                "Add(a_float16,w_float16) y_float16",
                "Cast(y_float16) y",
            ],
        ),
        (
            "an input of a loop's body",
            vec![looped("l", body("x", "b", vec![add("x", "b")])), neg("l")],
            &[
                "Cast(x) x_float",
                "Loop(n,c,x_float) l",
                "Cast(l) l_float16",
                "Neg(l_float16) y",
                "Identity(again) go",
                "Cast(x) x_float16",
                "Add(x_float16,w_float16) b_float16",
                "Cast(b_float16) b",
            ],
        ),
        (
            "an output of a scan's body",
            vec![scan()],
            &[
                "Cast(x) x_float",
                "Scan(x_float,x_float) s,y_float",
                "Cast(y_float) y",
                "Cast(a) a_float16",
                "Add(a_float16,w_float16) fin_float16",
                "Cast(b) b_float16",
                "Add(b_float16,w_float16) y_float16",
                "Cast(fin_float16) fin",
                "Cast(y_float16) y",
            ],
        ),
        (
            "outputs of branches in branches",
            vec![nested(), neg("l")],
            &[
                "If(c) l",
                "Cast(l) l_float16",
                "Neg(l_float16) y",
                "If(c) m",
                "Cast(m) m_float16",
                "Neg(m_float16) y_float16",
                "Cast(y_float16) y",
                "Add(x,w_float16) deep_float16",
                "Cast(deep_float16) deep",
                "Mul(x,w_float16) deep_2_float16",
                "Cast(deep_2_float16) deep",
                "If(c) m",
                "Cast(m) m_2_float16",
                "Neg(m_2_float16) y_2_float16",
                "Cast(y_2_float16) y",
                "Add(x,w_float16) deep_3_float16",
                "Cast(deep_3_float16) deep",
                "Mul(x,w_float16) deep_4_float16",
                "Cast(deep_4_float16) deep",
            ],
        ),
    ];
    for (name, given, expected) in cases {
        let (nodes, _, model) = computing(main_graph(given), all().keep_io(false));
        assert_eq!(nodes, expected, "{name}");
        let wrong = inner_types(&model).into_iter().filter(|(_, of)| *of == TensorProto::FLOAT16);
        assert_eq!(wrong.collect::<Vec<_>>(), [], "{name}");
    }
}

/// A declared type of no value would become that of the new value.
#[test]
fn a_new_name_is_not_one_that_has_a_declared_type() {
    let taken = |name| ValueInfoProto::tensor(name, TensorProto::INT64, [3]);
    let nodes =
        || vec![node("Add", &["x", "w"], &["a"], vec![]), node("Neg", &["a"], &["y"], vec![])];
    for compute in [true, false] {
        let mut main = main_graph(nodes());
        main.value_info = ["x_float16", "w_float16", "y_float"].map(taken).into();
        let before = main.value_info.clone();
        let mut inner = looped("l", body("a", "b", vec![node("Neg", &["a"], &["b"], vec![])]));
        inner.attribute[0].g.as_mut().unwrap().value_info = vec![taken("l_float16")];
        main.node.splice(0..0, [inner, node("Neg", &["l"], &["m"], vec![])]);
        let mut container = Container::new(model(main));
        container.cast(DataType::Float16, all().compute(compute)).unwrap();
        let graph = container.model().graph.as_ref().unwrap();
        assert_eq!(graph.value_info, before);
        let weights = graph.initializer.iter().filter_map(|tensor| tensor.name.as_ref());
        let made = graph.node.iter().flat_map(|node| &node.output).chain(weights);
        let made: Vec<_> = made.map(ToString::to_string).collect();
        let (new, not): (&[_], _) = match compute {
            true => (&["x_2_float16", "w_2_float16", "l_2_float16"], ["x_float16", "l_float16"]),
            false => (&["w_2_float16"], ["w_float16", "l_float16"]),
        };
        assert!(new.iter().all(|name| made.contains(&(*name).to_owned())), "{made:?}");
        assert!(not.iter().all(|name| !made.contains(&(*name).to_owned())), "{made:?}");
    }
}

/// An output of a node may not have the name of a value of an outer graph, an initializer may.
#[test]
fn an_initializer_that_hides_a_value_is_not_cast() {
    let hiding = |name: &str| {
        let branch = |op| {
            let mut graph = graph_of(&[], &["t"], vec![node(op, &["x", name], &["t"], vec![])]);
            graph.initializer.push(floats(name, 0, 2));
            graph
        };
        branches(&["b"], branch("Add"), branch("Mul"))
    };
    let neg = || node("Neg", &["b"], &["y"], vec![]);
    // The names of both initializers, and how many tensors stay. A later name is one around, too.
    for (name, stay) in [("own", 0), ("w", 2), ("y", 2)] {
        for compute in [true, false] {
            let mut container = Container::new(model(main_graph(vec![hiding(name), neg()])));
            let report = container.cast(DataType::Float16, all().compute(compute)).unwrap();
            assert_eq!((report.cast, report.uncast.len()), (3 - stay, stay), "{name} {compute}");
            assert!(report.uncast.iter().all(|one| one.reason == NotCastReason::HidesValue));
        }
    }
}
