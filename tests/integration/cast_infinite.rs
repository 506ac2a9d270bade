//! `CastReport::infinite`: weights that stay in the old type, and that a new `Cast` node makes
//! infinite when the model runs.

use onnx_container::edit::CastOptions;
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, Error, ErrorKind, Result};

use crate::support::{call, constant, function, graph, model, model_of, node};

/// One number.
fn number(name: &str, value: f32) -> TensorProto {
    TensorProto::new(name, TensorProto::FLOAT, [1]).with_raw_data(value.to_le_bytes().to_vec())
}

fn with_io(mut graph: GraphProto) -> GraphProto {
    graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [1]));
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [1]));
    graph
}

/// `y = x + c` and `z = |x|`, where `c` is an initializer or what `nodes` make of it.
fn adds(initializers: Vec<TensorProto>, mut nodes: Vec<NodeProto>) -> ModelProto {
    nodes.push(node("Add", &["x", "c"], &["y"], vec![]));
    nodes.push(node("Abs", &["x"], &["z"], vec![]));
    model(with_io(graph(initializers, nodes)))
}

fn of_float(value: AttributeProto) -> Vec<NodeProto> {
    vec![node("Constant", &[], &["c"], vec![value])]
}

#[test]
fn constants_that_a_new_node_makes_infinite_are_listed() {
    let small = || CastOptions::new().compute(true);
    let branch = |name: &str| {
        let mut inner =
            graph(vec![number("c", -1e9)], vec![node("Add", &["x", "c"], &["t"], vec![])]);
        inner.output.push(ValueInfoProto::tensor("t", TensorProto::FLOAT, [1]));
        AttributeProto::graph(name, inner)
    };
    let mut branched =
        with_io(graph(vec![], vec![node("If", &["flag"], &["y"], vec![branch("then_branch")])]));
    branched.input.push(ValueInfoProto::tensor("flag", TensorProto::BOOL, [1]));
    let in_function = with_io(graph(vec![], vec![call("f", &["x"], &["y"], vec![])]));
    let body = vec![constant("c", number("", 1e9)), node("Add", &["a", "c"], &["b"], vec![])];
    let in_function = model_of(in_function, vec![function("f", &["a"], &["b"], body)]);
    let float16 = DataType::Float16;
    // The model, the options, the new type and what is listed.
    let cases: [(ModelProto, CastOptions, DataType, &[&str]); 10] = [
        (adds(vec![number("c", -1e9)], vec![]), small(), float16, &["c"]),
        (adds(vec![number("c", 65_504.0)], vec![]), small(), float16, &[]),
        (adds(vec![number("c", f32::INFINITY)], vec![]), small(), float16, &[]),
        (adds(vec![number("c", -1e9)], vec![]), small(), DataType::Bfloat16, &[]),
        (adds(vec![number("c", -1e9)], vec![]), small().keep_ops(["Add"]), float16, &[]),
        (
            adds(vec![number("c", -1e9)], vec![]),
            small().min_bytes(0).except(["c"]),
            float16,
            &["c"],
        ),
        (adds(vec![], vec![constant("c", number("", 1e9))]), small(), float16, &["c"]),
        (
            adds(vec![], of_float(AttributeProto::float("value_float", 1e9))),
            small(),
            float16,
            &["c"],
        ),
        (model(branched), small(), float16, &["y.then_branch/c"]),
        (in_function, small().min_bytes(0), float16, &["local::f/c"]),
    ];
    for (number, (model, options, to, expected)) in cases.into_iter().enumerate() {
        let report = Container::new(model).cast(to, options).unwrap();
        assert_eq!(report.infinite(), expected, "case {number}");
    }
}

#[test]
fn external_constants_are_looked_at_too() {
    let external = TensorProto::external("c", TensorProto::FLOAT, [1], "#c");
    let mut container = Container::new(adds(vec![external], vec![]));
    container.insert("#c", vec![1e9_f32]).unwrap();
    let report = container.cast(DataType::Float16, CastOptions::new().compute(true)).unwrap();
    assert_eq!((report.cast, report.infinite()), (0, vec!["c"]));
}

#[test]
fn an_operator_set_without_the_node_is_told_with_what_needs_it() {
    let old = |version: i64| {
        let mut model = adds(vec![number("c", 1.0)], vec![]);
        model.opset_import[0].version = Some(version);
        model
    };
    let in_function = || {
        let mut old = function("f", &["a"], &["b"], vec![node("Abs", &["a"], &["b"], vec![])]);
        old.opset_import[0].version = Some(12);
        model_of(with_io(graph(vec![number("c", 1.0)], vec![])), vec![old])
    };
    let all = || CastOptions::new().min_bytes(0);
    let cases: [(ModelProto, CastOptions, DataType, &str); 4] = [
        (
            old(12),
            all(),
            DataType::Bfloat16,
            "tensor `c`: operator set 12 has no Cast with BFLOAT16: convert the model to 13 or \
             later, such as by onnx.version_converter, or cast to FLOAT16",
        ),
        (old(5), all(), DataType::Float16, "tensor `c`: operator set 5 has no Cast between"),
        (in_function(), all(), DataType::Bfloat16, "operator set 12 of function `f` has no Cast"),
        (
            old(12),
            CastOptions::new().compute(true),
            DataType::Bfloat16,
            "operator set 12 has no Cast with BFLOAT16",
        ),
    ];
    for (model, options, to, expected) in cases {
        let refused: Result<_, Error> = Container::new(model).cast(to, options);
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
