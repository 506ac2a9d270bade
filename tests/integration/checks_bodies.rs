//! Element types that bodies declare and that do not fit, as a check tells of them. onnxruntime
//! refuses each model of an error here, see tests/interop/checks.py.

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};

use crate::checks_faults::{Case, check};
use crate::support::{call, function, model_of, node};

const FLOAT: i32 = TensorProto::FLOAT;
const HALF: i32 = TensorProto::FLOAT16;
/// No declared type.
const NONE: i32 = 0;

fn info(name: &str, of: i32) -> ValueInfoProto {
    let mut info = ValueInfoProto::tensor(name, of, [2]);
    info.r#type = info.r#type.filter(|_| of != NONE);
    info
}

fn infos(values: &[(&str, i32)]) -> Vec<ValueInfoProto> {
    values.iter().map(|(name, of)| info(name, *of)).collect()
}

/// A body that copies what it takes last to all that it gives.
fn body(inputs: &[(&str, i32)], outputs: &[(&str, i32)]) -> GraphProto {
    let from = inputs.last().map_or("x", |(name, _)| *name);
    let copies = outputs.iter().map(|(name, _)| node("Identity", &[from], &[name], vec![]));
    let mut graph = GraphProto::new("body");
    graph.node = copies.collect();
    graph.input = infos(inputs);
    graph.output = infos(outputs);
    graph
}

fn branches(then_type: i32, else_type: i32) -> NodeProto {
    let of = |name, of| AttributeProto::graph(name, body(&[], &[("t", of)]));
    node("If", &["c"], &["y"], vec![of("then_branch", then_type), of("else_branch", else_type)])
}

/// A Loop from `x` to `l` that collects `y`.
fn looped(taken: i32, given: i32, collected: i32) -> NodeProto {
    let mut body = body(&[("a", taken)], &[("b", given), ("s", collected)]);
    let number = ValueInfoProto::tensor("i", TensorProto::INT64, []);
    let go = |name: &str| ValueInfoProto::tensor(name, TensorProto::BOOL, []);
    body.input.splice(0..0, [number, go("before")]);
    body.output.insert(0, go("after"));
    body.node.push(node("Identity", &["before"], &["after"], vec![]));
    node("Loop", &["", "c", "x"], &["l", "y"], vec![AttributeProto::graph("body", body)])
}

/// A Scan over `x` from `x` to `l` that collects `y`.
fn scanned(taken: [i32; 2], given: [i32; 2]) -> NodeProto {
    let ins = [("a", taken[0]), ("e", taken[1])];
    let body = body(&ins, &[("b", given[0]), ("s", given[1])]);
    let count = AttributeProto::int("num_scan_inputs", 1);
    node("Scan", &["x", "x"], &["l", "y"], vec![AttributeProto::graph("body", body), count])
}

/// A model from `x` to `y`, both of FLOAT, where `l` is declared as FLOAT.
fn of(node: NodeProto) -> ModelProto {
    let mut main = GraphProto::new("main");
    main.input = infos(&[("x", FLOAT)]);
    main.input.push(ValueInfoProto::tensor("c", TensorProto::BOOL, []));
    main.output = infos(&[("y", FLOAT)]);
    main.value_info = infos(&[("l", FLOAT)]);
    main.node = vec![node];
    model_of(main, vec![])
}

#[test]
fn types_that_bodies_declare_fit_their_nodes() {
    let nested = || {
        let mut inner = body(&[], &[("t", FLOAT)]);
        inner.node = vec![branches(FLOAT, HALF)];
        inner.node[0].output = vec!["t".into()];
        let of = |name| AttributeProto::graph(name, inner.clone());
        node("If", &["c"], &["y"], vec![of("then_branch"), of("else_branch")])
    };
    let in_function = || {
        let mut model = of(call("F", &["c", "x"], &["y"], vec![]));
        model.functions = vec![function("F", &["c", "x"], &["y"], vec![branches(FLOAT, HALF)])];
        model
    };
    let old_scan = || {
        let mut scan = scanned([HALF, HALF], [HALF, HALF]);
        scan.input.insert(0, "".into());
        let mut model = of(scan);
        model.opset_import[0].version = Some(8);
        model
    };
    let cases: Vec<Case> = vec![
        ("branches", of(branches(FLOAT, FLOAT)), &[]),
        ("branches without types", of(branches(NONE, NONE)), &[]),
        (
            "branches of two types",
            of(branches(FLOAT, HALF)),
            &[
                "E the node of `y` (If) has two element types for one value: `t` in its then_branch \
               is FLOAT, `t` in its else_branch is FLOAT16; onnxruntime refuses it",
            ],
        ),
        (
            "branches of another type",
            of(branches(HALF, NONE)),
            &["E `t` in its then_branch is FLOAT16, `y` outside is FLOAT;"],
        ),
        (
            "an else branch of another type",
            of(branches(NONE, HALF)),
            &["E `t` in its else_branch is FLOAT16, `y` outside is FLOAT;"],
        ),
        ("a loop", of(looped(FLOAT, FLOAT, FLOAT)), &[]),
        ("a loop without types", of(looped(NONE, NONE, NONE)), &[]),
        (
            "another type for the next turn",
            of(looped(FLOAT, HALF, FLOAT)),
            &["E the node of `l` (Loop) has two element types for one value: `a` in its body is \
               FLOAT, `b` in its body is FLOAT16;"],
        ),
        (
            "another type for the first turn",
            of(looped(HALF, HALF, FLOAT)),
            &["E `x` outside is FLOAT, `a` in its body is FLOAT16;"],
        ),
        (
            "another type after the last turn",
            of(looped(NONE, HALF, FLOAT)),
            &["E `b` in its body is FLOAT16, `l` outside is FLOAT;"],
        ),
        (
            "another type that is collected",
            of(looped(FLOAT, FLOAT, HALF)),
            &["E `s` in its body is FLOAT16, `y` outside is FLOAT;"],
        ),
        ("a scan", of(scanned([FLOAT; 2], [FLOAT; 2])), &[]),
        (
            "another state",
            of(scanned([FLOAT; 2], [HALF, FLOAT])),
            &[
                "E (Scan) has two element types for one value: `a` in its body is FLOAT, `b` in its \
               body is FLOAT16;",
            ],
        ),
        (
            "another element",
            of(scanned([FLOAT, HALF], [FLOAT; 2])),
            &["E `x` outside is FLOAT, `e` in its body is FLOAT16;"],
        ),
        (
            "another result of a scan",
            of(scanned([FLOAT; 2], [FLOAT, HALF])),
            &["E `s` in its body is FLOAT16, `y` outside is FLOAT;"],
        ),
        ("a scan of version 8", old_scan(), &[]),
        (
            "in a branch",
            of(nested()),
            &[
                "E in `y.then_branch`: the node of `t` (If) has two element types",
                "E in `y.else_branch`: the node of `t` (If) has two element types",
            ],
        ),
        ("in a function", in_function(), &["E in `local::F`: the node of `y` (If) has two"]),
    ];
    check(cases);
}
