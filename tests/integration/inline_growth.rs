//! What calls become is counted before there is a copy: everything that a call gives, whichever way
//! it goes.

use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::load::Limit;
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, Message, ModelProto, StringStringEntryProto,
};
use onnx_container::{Container, ErrorKind, Limits};

use crate::random_models::{Choices, Flavour, random_model};
use crate::support::{branches, call, function, graph_of, model_of, node, parameter};

/// How long what a call gives is, in bytes, and how often it is asked for.
const LONG: usize = 20_000;
const OFTEN: usize = 500;

fn limited(most: u64) -> InlineOptions {
    InlineOptions::new().limits(Limits::new().with(Limit::Calls, most))
}

fn name(i: usize) -> String {
    format!("v{i}")
}

/// `f(a, c) -> b`, in which `OFTEN` nodes have this attribute.
fn asking(attribute: Option<AttributeProto>) -> FunctionProto {
    let read = |i| node("Mine", &["a"], &[&name(i)], attribute.iter().cloned().collect());
    let nodes = (0..OFTEN).map(read).chain([node("Neg", &["a"], &["b"], vec![])]);
    function("f", &["a", "c"], &["b"], nodes.collect())
}

/// A call of `callee` from `x` to `y` with this attribute, and the functions.
fn calling(
    callee: &str,
    attribute: Option<AttributeProto>,
    functions: Vec<FunctionProto>,
) -> ModelProto {
    let call = call(callee, &["x", "c"], &["y"], attribute.into_iter().collect());
    model_of(graph_of(&["x", "c"], &["y"], vec![call]), functions)
}

/// A function that gives `p` of its own to `f`.
fn through(kind: i32, callee: &str) -> FunctionProto {
    let inner = call(callee, &["a", "c"], &["b"], vec![parameter("p", kind, "p")]);
    function("g", &["a", "c"], &["b"], vec![inner])
}

/// A graph of many nodes, of which each has a name.
fn long_graph() -> GraphProto {
    let neg = |i| node("Neg", &["x"], &[&name(i)], vec![]);
    graph_of(&[], &["v0"], (0..LONG / 100).map(neg).collect())
}

fn long_values() -> Vec<(&'static str, AttributeProto)> {
    let text = || "n".repeat(LONG);
    let mut strings = AttributeProto::strings("p", vec![text()]);
    strings.name = Some("p".into());
    vec![
        ("ints", AttributeProto::ints("p", vec![1; LONG / 8])),
        ("floats", AttributeProto::floats("p", vec![1.0; LONG / 4])),
        ("a string", AttributeProto::string("p", text())),
        ("strings", strings),
        ("many strings", AttributeProto::strings("p", vec!["s"; LONG / 24])),
        ("a graph", AttributeProto::graph("p", long_graph())),
    ]
}

/// Models whose calls give something long that is asked for often.
fn cases() -> Vec<(String, ModelProto)> {
    let mut cases = Vec::new();
    for (what, value) in long_values() {
        let kind = value.r#type.unwrap();
        let reference = || Some(parameter("p", kind, "p"));
        let mut add = |way: &str, model| cases.push((format!("{what}, {way}"), model));
        let given = || Some(value.clone());
        add("given", calling("f", given(), vec![asking(reference())]));
        let both = vec![through(kind, "f"), asking(reference())];
        add("handed on", calling("g", given(), both));
        let mut default = asking(reference());
        default.attribute_proto = vec![value.clone()];
        add("a default", calling("f", None, vec![default.clone()]));
        add("a default of a callee", calling("g", None, vec![through(kind, "f"), default]));
        let branch = |nodes| graph_of(&[], &["b"], nodes);
        let inner = branch(asking(reference()).node);
        let nested = vec![branches(&["b"], inner.clone(), inner)];
        let nested = function("f", &["a", "c"], &["b"], nested);
        add("in branches", calling("f", given(), vec![nested]));
        // A graph that asks for it, and that is asked for.
        let passed = branch(vec![node("Mine", &["a"], &["b"], vec![parameter("p", kind, "p")])]);
        let passing =
            vec![call("f", &["a", "c"], &["b"], vec![AttributeProto::graph("q", passed)])];
        let passing = function("h", &["a", "c"], &["b"], passing);
        let asked = asking(Some(parameter("q", AttributeProto::GRAPH, "q")));
        add("in a graph that is passed", calling("h", given(), vec![passing, asked]));
    }
    let mut metadata = calling("f", None, vec![asking(None)]);
    let all = (0..LONG / 40).map(|i| StringStringEntryProto::new(name(i).as_str(), ""));
    metadata.graph.as_mut().unwrap().node[0].metadata_props = all.collect();
    cases.push(("metadata".to_owned(), metadata));
    for from in ["x", "y"] {
        let mut model = calling("f", None, vec![asking(None)]);
        if from == "y" {
            let body = &mut model.functions[0];
            body.node.insert(0, node("Neg", &["a"], &["b"], vec![]));
            body.node.pop();
            body.node.iter_mut().skip(1).for_each(|node| node.input[0] = "b".into());
        }
        let mut container = Container::new(model);
        container.rename(from, &"n".repeat(LONG)).unwrap();
        cases.push((format!("the name of `{from}`"), container.model().clone()));
    }
    cases
}

#[test]
fn what_a_call_gives_is_counted_as_often_as_it_is_asked_for() {
    // A part of the whole, and more than the model and all nodes take.
    let most = (LONG * OFTEN / 4) as u64;
    for (what, model) in cases() {
        let mut refused = model.clone();
        let error = inline_functions(&mut refused, limited(most)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{what}: {error}");
        assert!(error.to_string().contains("the limit `calls`"), "{what}: {error}");
        assert!(refused == model, "{what}: the model changed");
    }
    // The same without the long value, or without the calls.
    let short = Some(AttributeProto::ints("p", [1]));
    let reference = parameter("p", AttributeProto::INTS, "p");
    let long = Some(AttributeProto::ints("p", vec![1; LONG / 8]));
    for mut model in
        [calling("f", short, vec![asking(Some(reference))]), calling("f", long, vec![asking(None)])]
    {
        inline_functions(&mut model, limited(most)).unwrap();
    }
}

/// What is kept is not counted, and what moves into it is.
#[test]
fn a_function_that_is_kept_takes_nothing() {
    let value = AttributeProto::ints("p", vec![1; LONG / 8]);
    let reference = parameter("p", AttributeProto::INTS, "p");
    let most = (LONG * OFTEN / 4) as u64;
    let inner = call("f", &["a", "c"], &["b"], vec![value.clone()]);
    let kept = function("g", &["a", "c"], &["b"], vec![inner]);
    let before = calling("g", None, vec![kept, asking(Some(reference))]);
    for (options, fits) in [
        (limited(most), false),
        (limited(most).except(["local::g"]), false),
        (limited(most).except(["local::f"]), true),
    ] {
        assert_eq!(inline_functions(&mut before.clone(), options).is_ok(), fits);
    }
}

/// Calls that double: the count is exact enough to be far from any limit, or over all of them, and
/// takes no time.
#[test]
fn calls_that_multiply_are_counted_at_once() {
    let level = |n: usize| {
        let given = parameter("p", AttributeProto::INTS, "p");
        let next = format!("f{}", n + 1);
        let calls = ["a", "t"].into_iter().zip(["t", "b"]);
        let calls = calls.map(|(from, to)| call(&next, &[from], &[to], vec![given.clone()]));
        function(&format!("f{n}"), &["a"], &["b"], calls.collect())
    };
    for (depth, fits) in [(4, true), (30, false), (200, false)] {
        let last = node("Mine", &["a"], &["b"], vec![parameter("p", AttributeProto::INTS, "p")]);
        let last = function(&format!("f{depth}"), &["a"], &["b"], vec![last]);
        let functions = (0..depth).map(level).chain([last]).collect();
        let value = AttributeProto::ints("p", vec![1; 1000]);
        let first = call("f0", &["x"], &["y"], vec![value]);
        let mut model = model_of(graph_of(&["x"], &["y"], vec![first]), functions);
        let options = limited(1 << 20).max_nodes(u64::MAX);
        assert_eq!(inline_functions(&mut model, options).is_ok(), fits, "{depth}");
    }
}

/// A count is never less than what is written: nothing of any model is forgotten.
#[test]
fn no_model_grows_by_more_than_was_counted() {
    let len = |model: &ModelProto| model.encoded_len();
    let mut grown = 0;
    for seed in 0..60 {
        let before = random_model(Choices::seeded(seed), Flavour::Anything);
        let mut after = before.clone();
        inline_functions(&mut after, InlineOptions::new()).unwrap();
        let mut bare = before.clone();
        bare.functions.clear();
        let more = len(&after).saturating_sub(len(&bare));
        if more > 0 {
            let error = inline_functions(&mut before.clone(), limited(more - 1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge, "seed {seed}: {error}");
            grown += 1;
        }
        let ample = limited(more * 200 + 100_000);
        inline_functions(&mut before.clone(), ample).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(grown > 30, "{grown}");
}
