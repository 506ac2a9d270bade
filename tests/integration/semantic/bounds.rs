//! Models whose calls multiply: what they take is counted, and what is not used takes nothing.

use onnx_container::proto::{AttributeProto, FunctionProto, ModelProto, NodeProto};
use onnx_container::{Container, ErrorKind};

use super::{digest, main_of};
use crate::support::{branches, call, function, graph_of, model, model_of, node, parameter};

/// A chain of `count` calls of `body`, each with the first output of the one before.
fn chain(count: usize, body: FunctionProto, attributes: &[AttributeProto]) -> ModelProto {
    let name = |i: usize| if i == 0 { "x".to_owned() } else { format!("v{i}") };
    let link = |i: usize| call("f", &[&name(i)], &[&name(i + 1)], attributes.to_vec());
    let nodes = (0..count).map(link).collect();
    model_of(graph_of(&["x"], &[&name(count)], nodes), vec![body])
}

/// Functions that call the next one twice, with different inputs, `depth` deep; each call has
/// `attributes`.
fn doubling(depth: usize, attributes: &[AttributeProto], last: NodeProto) -> ModelProto {
    let level = |n: usize| {
        let calls = |input: &str, output: &str| {
            call(&format!("f{}", n + 1), &[input], &[output], attributes.to_vec())
        };
        let nodes = match n == depth {
            true => vec![last.clone()],
            false => vec![calls("a", "l"), calls("l", "b")],
        };
        function(&format!("f{n}"), &["a"], &["b"], nodes)
    };
    let main = graph_of(&["x"], &["y"], vec![call("f0", &["x"], &["y"], attributes.to_vec())]);
    model_of(main, (0..=depth).map(level).collect())
}

/// A thousand calls of a function with a thousand outputs, defaults or unused nodes are a thousand
/// nodes.
#[test]
fn what_a_function_has_and_a_call_does_not_use_takes_nothing() {
    let count = 1000;
    let neg = || vec![node("Neg", &["a"], &["b"], vec![])];
    let names: Vec<_> = (0..1000).map(|i| format!("o{i}")).collect();
    let mut outputs = function("f", &["a"], &["b"], neg());
    outputs.output.extend(names.iter().map(|name| name.as_str().into()));
    let mut defaults = function("f", &["a"], &["b"], neg());
    defaults.attribute_proto = names.iter().map(|name| AttributeProto::int(name, 1)).collect();
    let name = |i: usize| if i == 0 { "x".to_owned() } else { format!("v{i}") };
    let flat = (0..count).map(|i| node("Neg", &[&name(i)], &[&name(i + 1)], vec![])).collect();
    let flat = digest(&model(graph_of(&["x"], &[&name(count)], flat)));
    for function in [outputs, defaults] {
        assert_eq!(digest(&chain(count, function, &[])), flat);
    }
}

/// What each call takes again is added up; the error says what to do.
#[test]
fn calls_that_multiply_are_refused() {
    let neg = || node("Neg", &["a"], &["b"], vec![]);
    let graph = AttributeProto::graph("g", graph_of(&[], &["x"], vec![]));
    let numbers = |count| (0..count).map(|i| AttributeProto::int(format!("a{i}"), i));
    let many: Vec<_> = numbers(300).chain([graph.clone()]).collect();
    let mut inputs = function("f", &["a"], &["b"], vec![neg()]);
    inputs.input.extend(vec!["".into(); 3000]);
    let nodes = (0..2000).map(|i| node("Neg", &["a"], &[&format!("b{i}")], vec![])).collect();
    let cases = [
        ("deep", doubling(20, &[], neg())),
        ("graphs", doubling(20, std::slice::from_ref(&graph), neg())),
        ("attributes and a graph", doubling(12, &many, neg())),
        ("draws", doubling(20, &[], node("RandomNormalLike", &["a"], &["b"], vec![]))),
        ("inputs", chain(1000, inputs, &[])),
        ("nodes", chain(1000, function("f", &["a"], &["b0"], nodes), &[])),
    ];
    for (name, model) in cases {
        let error = Container::new(model.clone()).semantic_digest().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{name}: {error}");
        assert!(error.to_string().contains("inline them first"), "{name}: {error}");
    }
}

/// Long values that many calls and nodes read are hashed once, and are still told apart.
#[test]
fn long_attributes_are_read_once() {
    let body = || {
        let read = |i: usize| {
            let perm = parameter("list", AttributeProto::INTS, "list");
            node("Mine", &["a"], &[&format!("o{i}")], vec![perm])
        };
        let sum: Vec<_> = (0..20).map(|i| format!("o{i}")).collect();
        let sum: Vec<_> = sum.iter().map(String::as_str).collect();
        let nodes = (0..20).map(read).chain([node("Sum", &sum, &["b"], vec![])]).collect();
        function("f", &["a"], &["b"], nodes)
    };
    let of = |last: i64| {
        let list = (0..50_000).chain([last]).collect::<Vec<_>>();
        digest(&chain(30, body(), &[AttributeProto::ints("list", list)]))
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

/// A node whose graphs each wait for another value: each graph is looked at once.
#[test]
fn many_graphs_of_a_node_are_gone_through_in_order() {
    let count = 3000;
    let name = |i: usize| format!("v{i}");
    let nodes = (0..count).map(|i| node("Neg", &["x"], &[&name(i)], vec![]));
    let mut graphs = AttributeProto::graph("g", graph_of(&[], &["x"], vec![]));
    graphs.g = None;
    graphs.r#type = Some(AttributeProto::GRAPHS);
    graphs.graphs = (0..count).map(|i| graph_of(&[], &[&name(i)], vec![])).collect();
    let nodes = nodes.chain([node("Mine", &["x"], &["y"], vec![graphs])]).collect();
    let first = model(graph_of(&["x"], &["y"], nodes));
    let mut other = first.clone();
    main_of(&mut other).node[count - 1].op_type = Some("Abs".into());
    assert_ne!(digest(&first), digest(&other));
    let branch = |name: &str| graph_of(&[], &[name], vec![]);
    let nodes = vec![branches(&["y"], branch("x"), branch("x"))];
    digest(&model_of(graph_of(&["c", "x"], &["y"], nodes), vec![]));
}
