//! How much a model may hold: each limit is exceeded by one, wherever in a model that is.

use std::fs;

use onnx_container::check::{CheckOptions, Severity, check_model};
use onnx_container::load::Limit;
use onnx_container::proto::tensor_shape_proto::Dimension;
use onnx_container::proto::{AttributeProto, Message, ModelProto, NodeProto, TensorProto};
use onnx_container::{Buffer, Container, ErrorKind, Limits, LoadOptions, Outline, traversal};

use crate::support::{
    branches, call, constant, floats, function, graph, graph_of, model, model_of, node,
    tensors_everywhere,
};

fn ones(rank: usize) -> TensorProto {
    TensorProto::new("w", TensorProto::FLOAT, vec![1; rank]).with_raw_data(vec![0; 4])
}

/// An `If` in an `If` in a function: a node at each place.
fn nodes_everywhere() -> ModelProto {
    let relu = || node("Relu", &["x"], &["y"], vec![]);
    let inner = || graph_of(&[], &["y"], vec![relu()]);
    let deep = || graph_of(&[], &["y"], vec![branches(&["y"], inner(), inner())]);
    let body = vec![branches(&["y"], deep(), deep())];
    model_of(
        graph_of(&["x", "c"], &["y"], vec![call("f", &["x"], &["y"], vec![])]),
        vec![function("f", &["x", "c"], &["y"], body)],
    )
}

/// Functions of which each calls the next one.
fn chain(len: usize) -> ModelProto {
    let name = |i: usize| format!("f{i}");
    let functions = (0..len).map(|i| {
        let inner = match i + 1 {
            next if next < len => call(&name(next), &["x"], &["y"], vec![]),
            _ => node("Relu", &["x"], &["y"], vec![]),
        };
        function(&name(i), &["x"], &["y"], vec![inner])
    });
    model_of(
        graph_of(&["x"], &["y"], vec![call("f0", &["x"], &["y"], vec![])]),
        functions.collect(),
    )
}

fn with_shape(rank: usize) -> ModelProto {
    let mut model = model(graph_of(&["x"], &["y"], vec![node("Relu", &["x"], &["y"], vec![])]));
    let input = &mut model.graph.as_mut().unwrap().input[0];
    let declared = input.r#type.as_mut().unwrap().value.as_mut().unwrap();
    let onnx_container::proto::type_proto::Value::TensorType(tensor) = declared else { panic!() };
    tensor.shape.as_mut().unwrap().dim = vec![Dimension::default(); rank];
    model
}

/// The number of tensors of [`tensors_everywhere`].
fn everywhere() -> u64 {
    traversal::iter(&tensors_everywhere()).count() as u64
}

/// Models, and what each has of one thing.
fn cases() -> Vec<(&'static str, Limit, u64, ModelProto)> {
    let long = || "n".repeat(300);
    let named = |change: fn(&mut NodeProto, String)| {
        let mut relu = node("Relu", &["x"], &["y"], vec![]);
        change(&mut relu, "n".repeat(300));
        model(graph(vec![], vec![relu]))
    };
    let attribute = AttributeProto::int(&*long(), 1);
    let mut of_graph = model(graph(vec![], vec![]));
    of_graph.graph.as_mut().unwrap().name = Some(long().into());
    let of_function = function(&long(), &[], &[], vec![]);
    vec![
        ("nodes", Limit::Nodes, 8, nodes_everywhere()),
        ("tensors", Limit::Tensors, everywhere(), tensors_everywhere()),
        ("attributes", Limit::Attributes, 6, nodes_everywhere()),
        ("functions", Limit::Functions, 5, chain(5)),
        ("calls", Limit::CallDepth, 5, chain(5)),
        ("rank", Limit::Dims, 9, model(graph(vec![ones(9)], vec![]))),
        ("rank in a node", Limit::Dims, 9, model(graph(vec![], vec![constant("k", ones(9))]))),
        ("rank of a value", Limit::Dims, 9, with_shape(9)),
        ("tensor", Limit::NameBytes, 300, model(graph(vec![floats(&long(), 0, 1)], vec![]))),
        ("node", Limit::NameBytes, 300, named(|node, name| node.name = Some(name.into()))),
        ("operator", Limit::NameBytes, 300, named(|node, name| node.op_type = Some(name.into()))),
        ("domain", Limit::NameBytes, 300, named(|node, name| node.domain = Some(name.into()))),
        ("input", Limit::NameBytes, 300, named(|node, name| node.input.push(name.into()))),
        ("output", Limit::NameBytes, 300, named(|node, name| node.output.push(name.into()))),
        (
            "attribute",
            Limit::NameBytes,
            300,
            model(graph(vec![], vec![node("A", &[], &[], vec![attribute])])),
        ),
        ("value", Limit::NameBytes, 300, model(graph_of(&[&long()], &[], vec![]))),
        ("graph", Limit::NameBytes, 300, of_graph),
        ("function", Limit::NameBytes, 300, model_of(graph(vec![], vec![]), vec![of_function])),
    ]
}

#[test]
fn what_exceeds_a_limit_is_refused_by_each_reader_and_the_limit_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for (case, limit, number, model) in cases() {
        let bytes = model.encode_to_vec().unwrap();
        fs::write(&path, &bytes).unwrap();
        let options = |most| LoadOptions::new().limits(Limits::new().with(limit, most));
        Container::load(&path, options(number)).unwrap();
        check_model(&path, options(number)).unwrap();
        let refused = [
            Container::load(&path, options(number - 1)).unwrap_err(),
            Container::load_bytes(Buffer::from(bytes), options(number - 1)).unwrap_err(),
            check_model(&path, options(number - 1)).unwrap_err(),
        ];
        for error in refused {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{case}: {text}");
            assert!(text.contains(&format!("the limit `{limit}`")), "{case}: {text}");
        }
    }
    // An outline holds what has tensors.
    fs::write(&path, tensors_everywhere().encode_to_vec().unwrap()).unwrap();
    let options = LoadOptions::new().limits(Limits::new().with(Limit::Tensors, everywhere() - 1));
    assert_eq!(Outline::load(&path, options).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn functions_that_call_in_a_circle_have_no_depth() {
    let bodies = [("f", "g"), ("g", "f")];
    let functions = bodies.map(|(name, other)| {
        function(name, &["x"], &["y"], vec![call(other, &["x"], &["y"], vec![])])
    });
    let bytes = model_of(graph(vec![], vec![]), functions.into()).encode_to_vec().unwrap();
    let limits = Limits::new().with(Limit::CallDepth, 1);
    Container::load_bytes(Buffer::from(bytes), LoadOptions::new().limits(limits)).unwrap();
}

#[test]
fn tensors_that_share_the_bytes_of_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w"), [0; 8]).unwrap();
    let mut initializers = Vec::new();
    for (name, count) in [("a", 2), ("b", 1), ("c", 2), ("d", 2)] {
        initializers.push(TensorProto::external(name, TensorProto::FLOAT, [count], "w"));
    }
    let path = folder.path().join("m.onnx");
    fs::write(&path, model(graph(initializers, vec![])).encode_to_vec().unwrap()).unwrap();
    let load = |most| {
        Container::load(&path, LoadOptions::new().limits(Limits::new().with(Limit::Ties, most)))
    };
    load(2).unwrap();
    let error = load(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("the limit `ties`"), "{error}");
}

#[test]
fn a_check_keeps_some_findings_and_counts_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    // 50 inputs that nothing defines, and 50 values that are defined twice, in graphs without
    // names.
    let nodes = (0..50).map(|i| node("Relu", &[&format!("x{i}")], &["y"], vec![]));
    let inner = || {
        let mut inner = graph(vec![], vec![]);
        inner.name = None;
        inner
    };
    let nested = (0..50).map(|_| branches(&[], inner(), inner()));
    let all = model(graph(vec![], nodes.chain(nested).collect()));
    fs::write(&path, all.encode_to_vec().unwrap()).unwrap();
    let check = |most| {
        let limits = Limits::new().with(Limit::Findings, most);
        check_model(&path, CheckOptions::from(LoadOptions::new().limits(limits))).unwrap()
    };
    let number = |checked: &onnx_container::check::Checked, severity| {
        checked.findings.iter().filter(|finding| finding.severity == severity).count()
    };
    let whole = check(10_000);
    let (errors, advice) = (number(&whole, Severity::Error), number(&whole, Severity::Advice));
    assert!(errors >= 99 && advice >= 100, "{errors} errors, {advice} advice");
    assert_eq!((whole.more_errors, whole.more_advice), (0, 0));
    for most in [0, 1, 7, 60] {
        let some = check(most as u64);
        assert!(number(&some, Severity::Error) <= most && number(&some, Severity::Advice) <= most);
        assert_eq!(number(&some, Severity::Error) + some.more_errors, errors);
        assert_eq!(number(&some, Severity::Advice) + some.more_advice, advice);
        assert!(!some.is_ok());
        let kept = some.findings.iter().map(|finding| finding.error.to_string());
        let first = whole.errors().take(most).map(|finding| finding.error.to_string());
        assert!(first.eq(kept.take(most)), "the first errors of {most}");
    }
}
