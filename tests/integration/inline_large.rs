//! Large models: several threads give the same result as one.

use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    ValueInfoProto,
};
use onnx_container::{DataType, ErrorKind};

/// Enough calls for every core to get its part.
const CALLS: usize = 9000;

fn call(name: &str, input: &str, output: &str) -> NodeProto {
    let mut node = NodeProto::new(name, [input], [output]);
    node.domain = Some("local".into());
    node
}

fn named(op_type: &str, input: &str, output: &str, name: &str) -> NodeProto {
    let mut node = NodeProto::new(op_type, [input], [output]);
    node.name = Some(name.into());
    node
}

fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    let mut function = FunctionProto::new("local", name);
    function.input.push("x".into());
    function.output.push("y".into());
    function.node = nodes;
    function.opset_import.push(OperatorSetIdProto::new("", 18));
    function
}

/// Every third node is a Neg, the others call `outer`, which calls `inner`.
fn model(calls: usize, opset: i64) -> ModelProto {
    let mut graph = GraphProto::new("g");
    for i in 0..calls {
        let (input, output) = (format!("v{i}"), format!("v{}", i + 1));
        let node = match i % 3 {
            2 => NodeProto::new("Neg", [&input], [&output]),
            _ => call("outer", &input, &output),
        };
        graph.node.push(node);
    }
    graph.input.push(ValueInfoProto::tensor("v0", DataType::Float, [2]));
    graph.output.push(ValueInfoProto::tensor(format!("v{calls}"), DataType::Float, [2]));
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", opset));
    let inner = vec![named("Abs", "x", "t", "first"), named("Exp", "t", "y", "second")];
    let mut outer = vec![call("inner", "x", "t"), named("Tanh", "t", "y", "last")];
    outer.push(named("Cos", "t", "dead", "cos"));
    model.functions.push(function("outer", outer));
    model.functions.push(function("inner", inner));
    model.functions[0].value_info.push(ValueInfoProto::tensor("t", DataType::Float, [2]));
    model
}

/// What becomes of it, written out.
fn expected(calls: usize) -> (Vec<NodeProto>, Vec<String>) {
    let (mut nodes, mut types, mut number) = (Vec::new(), Vec::new(), 0);
    for i in 0..calls {
        let (input, output) = (format!("v{i}"), format!("v{}", i + 1));
        if i % 3 == 2 {
            nodes.push(NodeProto::new("Neg", [&input], [&output]));
            continue;
        }
        let (outer, inner) = (number + 1, number + 2);
        number += 2;
        let name = |base: &str, number: usize| format!("{base}__{number}");
        let node = |op_type, input: &str, output: &str, base, number| {
            named(op_type, input, output, &name(base, number))
        };
        let (t, inside) = (name("t", outer), name("t", inner));
        nodes.push(node("Abs", &input, &inside, "first", inner));
        nodes.push(node("Exp", &inside, &t, "second", inner));
        nodes.push(node("Tanh", &t, &output, "last", outer));
        nodes.push(node("Cos", &t, &name("dead", outer), "cos", outer));
        types.push(t);
    }
    (nodes, types)
}

fn types(graph: &GraphProto) -> Vec<String> {
    graph.value_info.iter().map(|info| info.name.as_ref().unwrap().to_string()).collect()
}

#[test]
fn several_threads_give_the_result_of_one() {
    // Few, which one thread copies; many; and many in the old way, without Identity for all types.
    for (calls, opset) in [(30, 18), (CALLS, 18), (CALLS, 14)] {
        let mut model = model(calls, opset);
        let inlined = inline_functions(&mut model, InlineOptions::new()).unwrap();
        assert_eq!(inlined.calls as usize, (calls - calls / 3) * 2, "{calls} at {opset}");
        let graph = model.graph.as_ref().unwrap();
        let (nodes, expected_types) = expected(calls);
        let differs = graph.node.iter().zip(&nodes).position(|(a, b)| a != b);
        assert_eq!((graph.node.len(), differs), (nodes.len(), None), "{calls} at {opset}");
        assert_eq!(types(graph), expected_types);
    }
}

/// A node with two graphs, which compute `names` from `v`.
fn branches(output: &str, names: [&str; 2]) -> NodeProto {
    let branch = |name: &str| {
        let mut graph = GraphProto::new("branch");
        graph.node.push(NodeProto::new("Abs", ["v"], [name]));
        graph.output.push(ValueInfoProto::tensor(name, DataType::Float, [2]));
        graph
    };
    let mut node = NodeProto::new("If", ["c"], [output]);
    let branches = ["then_branch", "else_branch"].into_iter().zip(names);
    let attributes = branches.map(|(name, value)| AttributeProto::graph(name, branch(value)));
    node.attribute = attributes.collect();
    node
}

#[test]
fn names_that_need_a_second_attempt_are_those_of_one_thread() {
    for calls in [30, CALLS] {
        let mut graph = GraphProto::new("g");
        graph.input.push(ValueInfoProto::tensor("v", DataType::Float, [2]));
        graph.input.push(ValueInfoProto::tensor("c", DataType::Bool, []));
        for i in 0..calls {
            let mut node = NodeProto::new("outer", ["c", "v"], [format!("o{i}")]);
            node.domain = Some("local".into());
            graph.node.push(node);
        }
        let mut inner = function("inner", vec![branches("y", ["b", "b"])]);
        inner.input = vec!["c".into(), "v".into()];
        let mut call = NodeProto::new("inner", ["c", "v"], ["y"]);
        call.domain = Some("local".into());
        let mut outer = function("outer", vec![branches("d", ["e", "e"]), call]);
        outer.input.clone_from(&inner.input);
        let mut model = ModelProto::new(graph);
        model.opset_import.push(OperatorSetIdProto::new("", 18));
        model.functions = vec![inner, outer];
        inline_functions(&mut model, InlineOptions::new()).unwrap();

        // The calls have the numbers 1, 2 and so on, the second attempts 0, 1 and so on.
        let expected = (0..calls).flat_map(|i| {
            let (outer, inner) = (2 * i + 1, 2 * i + 2);
            let names = |base: &str, call: usize| {
                [format!("{base}__{call}"), format!("{base}__{call}_{}", call - 1)]
            };
            let [first, second] = [names("e", outer), names("b", inner)];
            let own = branches(&format!("d__{outer}"), [&first[0], &first[1]]);
            [own, branches(&format!("o{i}"), [&second[0], &second[1]])]
        });
        let nodes = &model.graph.as_ref().unwrap().node;
        let differs = nodes.iter().zip(expected).position(|(a, b)| *a != b);
        assert_eq!(
            (nodes.len(), differs),
            (2 * calls, None),
            "{:?}",
            nodes.get(differs.unwrap_or(0))
        );
    }
}

#[test]
fn an_error_in_any_part_leaves_the_model_as_it_was() {
    for place in [0, CALLS - 3] {
        let mut model = model(CALLS, 18);
        let graph = model.graph.as_mut().unwrap();
        graph.node[place].input.push("v0".into());
        let before = model.clone();
        let error = inline_functions(&mut model, InlineOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModel);
        assert!(error.reason().contains("is called with 2"), "{error}");
        assert!(model == before);
    }
}

#[test]
fn growth_is_counted_before_anything_is_made() {
    let mut model = model(CALLS, 18);
    let most = expected(CALLS).0.len() as u64;
    let before = model.clone();
    let error = inline_functions(&mut model, InlineOptions::new().max_nodes(most - 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.reason().contains(&format!("{most} nodes")), "{error}");
    assert!(model == before);
    inline_functions(&mut model, InlineOptions::new().max_nodes(most)).unwrap();
}
