//! Constants that shape inference reads stay inline, also when they reach the operand indirectly.

use onnx_container::Container;
use onnx_container::edit::{ExternalizeOptions, KeepReason};
use onnx_container::proto::{AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto};

use crate::support::{constant, floats, graph, int64s, model, node};

/// The tensors that `--min-bytes 0` keeps inline because shape inference reads them.
fn kept(model: ModelProto) -> Vec<String> {
    let mut container = Container::new(model);
    let report = container.externalize(0).unwrap();
    let shape = report.kept.into_iter().filter(|kept| kept.reason == KeepReason::ShapeOperand);
    shape.map(|kept| kept.tensor).collect()
}

fn with_node(node: NodeProto) -> ModelProto {
    model(graph(vec![int64s("s", &[1, 2]), floats("w", 0, 4)], vec![node]))
}

/// Operator and input positions whose operand onnxruntime was measured to refuse when external.
const MEASURED: &[(&str, &[usize])] = &[
    ("Reshape", &[1]),
    ("Expand", &[1]),
    ("Tile", &[1]),
    ("Squeeze", &[1]),
    ("Unsqueeze", &[1]),
    ("Split", &[1]),
    ("SplitToSequence", &[1]),
    ("TopK", &[1]),
    ("CenterCropPad", &[1]),
    ("AffineGrid", &[1]),
    ("ReduceL1", &[1]),
    ("ReduceL2", &[1]),
    ("ReduceMax", &[1]),
    ("ReduceMean", &[1]),
    ("ReduceMin", &[1]),
    ("ReduceProd", &[1]),
    ("ReduceSum", &[1]),
    ("ReduceSumSquare", &[1]),
    ("ReduceLogSum", &[1]),
    ("ReduceLogSumExp", &[1]),
    ("Pad", &[1, 3]),
    ("Resize", &[1, 2, 3]),
    ("Upsample", &[1]),
    ("Col2Im", &[1, 2]),
    ("ConstantOfShape", &[0]),
    ("BlackmanWindow", &[0]),
    ("HammingWindow", &[0]),
    ("HannWindow", &[0]),
    ("DFT", &[1, 2]),
    ("STFT", &[1]),
    ("If", &[0]),
    ("Slice", &[1, 2, 3, 4]),
    ("Range", &[0, 1, 2]),
];

#[test]
fn measured_operands_stay_inline_as_initializers_and_constants() {
    for (op, positions) in MEASURED {
        for position in *positions {
            let mut inputs = vec!["x"; *position];
            inputs.push("s");
            let consumer = node(op, &inputs, &["y"], vec![]);
            assert_eq!(kept(with_node(consumer.clone())), ["s"], "{op} input {position}");
            let nodes = vec![constant("s", int64s("", &[1, 2])), consumer];
            assert_eq!(kept(model(graph(vec![], nodes))), ["s"], "{op} input {position}, Constant");
        }
    }
}

#[test]
fn other_operands_go_out_at_any_size() {
    for op in ["MatMul", "Add", "Conv", "ScatterND", "OneHot"] {
        let consumer = node(op, &["s", "x", "w"], &["y"], vec![]);
        assert_eq!(kept(with_node(consumer)), Vec::<String>::new(), "{op}");
    }
}

#[test]
fn operators_that_are_not_known_keep_small_integers() {
    let domain = |domain: &str| {
        let mut consumer = node("Mystery", &["s", "w"], &["y"], vec![]);
        consumer.domain = Some(domain.into());
        kept(with_node(consumer))
    };
    assert_eq!(domain("com.microsoft"), ["s"]);
    assert_eq!(domain(""), ["s"], "an operator of the future");
    let large =
        model(graph(vec![int64s("s", &[0; 1000])], vec![node("Mystery", &["s"], &["y"], vec![])]));
    assert_eq!(kept(large), Vec::<String>::new());
}

#[test]
fn values_flow_through_what_readers_fold() {
    for op in ["Identity", "Cast", "Concat", "Gather", "Slice", "Mul", "Squeeze"] {
        let nodes =
            vec![node(op, &["s"], &["t"], vec![]), node("Reshape", &["x", "t"], &["y"], vec![])];
        assert_eq!(
            kept(model(graph(vec![int64s("s", &[1]), floats("w", 0, 4)], nodes))),
            ["s"],
            "{op}"
        );
    }
    let nodes = vec![
        node("MatMul", &["w", "v"], &["t"], vec![]),
        node("Reshape", &["x", "t"], &["y"], vec![]),
    ];
    let weights = vec![floats("w", 0, 4), floats("v", 0, 4)];
    assert_eq!(kept(model(graph(weights, nodes))), Vec::<String>::new());
}

#[test]
fn weights_on_the_way_to_a_shape_that_a_run_decides_go_out() {
    let nodes = vec![
        node("Gather", &["embedding", "ids"], &["rows"], vec![]),
        node("ReduceMax", &["rows"], &["largest"], vec![]),
        node("Greater", &["largest", "s"], &["c"], vec![]),
        node("If", &["c"], &["y"], vec![]),
        node("Concat", &["ids", "s"], &["shape"], vec![]),
        node("Reshape", &["x", "shape"], &["z"], vec![]),
    ];
    let weights = vec![floats("embedding", 0, 1000), int64s("s", &[0; 20])];
    assert_eq!(kept(model(graph(weights, nodes))), ["s"], "a few integers stay, weights do not");
}

#[test]
fn values_flow_into_subgraphs_and_functions() {
    let inner = graph(vec![], vec![node("Reshape", &["x", "s"], &["z"], vec![])]);
    let outer = node("Loop", &["", "c"], &["y"], vec![AttributeProto::graph("body", inner)]);
    assert_eq!(kept(with_node(outer)), ["s"], "captured by a subgraph");

    let mut shadow =
        graph(vec![floats("s", 0, 300)], vec![node("Reshape", &["x", "s"], &["z"], vec![])]);
    shadow.name = Some("shadow".into());
    let mut outer = node("If", &["c"], &["y"], vec![AttributeProto::graph("then_branch", shadow)]);
    outer.name = Some("if".into());
    assert_eq!(kept(with_node(outer)), ["if.then_branch/s"], "a name of the subgraph's own");

    let mut function = FunctionProto::new("local", "F");
    function.input = vec!["a".into(), "b".into()];
    function.output = vec!["r".into()];
    function.node = vec![node("Reshape", &["a", "b"], &["r"], vec![])];
    let mut call = node("F", &["w", "s"], &["y"], vec![]);
    call.domain = Some("local".into());
    let mut calling = with_node(call);
    calling.functions.push(function);
    assert_eq!(kept(calling), ["s"], "through a function's input");

    let mut function = FunctionProto::new("local", "G");
    function.input = vec!["b".into()];
    function.output = vec!["r".into()];
    function.node = vec![node("Identity", &["b"], &["r"], vec![])];
    let mut call = node("G", &["s"], &["t"], vec![]);
    call.domain = Some("local".into());
    let nodes = vec![call, node("Reshape", &["x", "t"], &["y"], vec![])];
    let mut calling = model(graph(vec![int64s("s", &[1]), floats("w", 0, 4)], nodes));
    calling.functions.push(function);
    assert_eq!(kept(calling), ["s"], "through a function's output");
}

#[test]
fn both_names_of_the_default_domain_are_one() {
    for domain in ["", "ai.onnx"] {
        let mut reshape = node("Reshape", &["w", "s"], &["y"], vec![]);
        reshape.domain = Some(domain.into());
        assert_eq!(kept(with_node(reshape)), ["s"]);
        for of_call in ["", "ai.onnx"] {
            let mut function = FunctionProto::new(domain, "F");
            function.input = vec!["a".into(), "b".into()];
            function.output = vec!["r".into()];
            function.node = vec![node("Reshape", &["a", "b"], &["r"], vec![])];
            let mut call = node("F", &["w", "big"], &["y"], vec![]);
            call.domain = Some(of_call.into());
            let tensors = vec![int64s("big", &[1; 300]), floats("w", 0, 300)];
            let mut calling = model(graph(tensors, vec![call]));
            calling.functions.push(function);
            assert_eq!(kept(calling), ["big"], "function of `{domain}`, called in `{of_call}`");
        }
    }
}

#[test]
fn other_reasons_to_keep() {
    let mut container = Container::new(crate::support::tensors_everywhere());
    let mut strings = TensorProto::new("strings", TensorProto::STRING, vec![2]);
    *strings.string_data = vec![b"a".to_vec().into(), b"b".to_vec().into()];
    let empty = TensorProto::new("empty", TensorProto::FLOAT, vec![0]);
    let graph = container.model_mut().graph.as_mut().unwrap();
    graph.initializer.extend([strings, empty]);
    let report = container.externalize(0).unwrap();
    let with = |reason| {
        let kept = report.kept.iter().filter(|kept| kept.reason == reason);
        kept.map(|kept| kept.tensor.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(with(KeepReason::Strings), ["strings"]);
    assert_eq!(with(KeepReason::Empty), ["empty"]);
    assert_eq!(with(KeepReason::SparseIndices), ["sparse", "sparse_out", "sparse_list_out"]);
    assert_eq!(with(KeepReason::FunctionBody).len(), 3);

    let all = ExternalizeOptions::from(0).all_tensors(true);
    let report = container.externalize(all).unwrap();
    let kept: Vec<_> = report.kept.iter().map(|kept| kept.tensor.as_str()).collect();
    assert_eq!(kept, ["strings", "empty"], "never out");
}
