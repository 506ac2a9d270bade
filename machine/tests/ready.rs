//! Programs made ready: nodes of weights alone have no step, and every bit of a result is the same.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::HashMap;

use onnx_container::load::Limit;
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, Limits};
use onnx_container_machine::plan::{PlanOptions, plan_program};
use onnx_container_machine::{
    Entry, ErrorKind, Machine, Program, ProgramOptions, Registry, RunLimits, Value, WEIGHTS,
};

fn program(graph: &GraphProto, options: ProgramOptions) -> Program {
    let mut model = ModelProto::new(graph.clone());
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    Program::new(&Container::new(model), options).unwrap()
}

fn machine(program: Program, inputs: &[(&str, Value)]) -> Machine {
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    inputs.iter().for_each(|(name, value)| machine.bind(name, value.clone()).unwrap());
    machine
}

/// FLOAT elements whose sums depend on their order.
fn elements(count: usize) -> Vec<f32> {
    (0..count).map(|i| 1e4 / ((i * 7919 % 1013) as f32 - 500.3)).collect()
}

fn weight(name: &str, dims: &[i64]) -> TensorProto {
    let count = dims.iter().product::<i64>();
    let bytes = elements(usize::try_from(count).unwrap());
    let bytes = bytes.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    TensorProto::new(name, TensorProto::FLOAT, dims.to_vec()).with_raw_data(bytes)
}

fn value(dims: &[i64]) -> Value {
    let count = dims.iter().product::<i64>();
    Value::from_elements(dims.to_vec(), &elements(usize::try_from(count).unwrap())).unwrap()
}

fn long(name: &str, value: i64) -> TensorProto {
    TensorProto::new(name, TensorProto::INT64, [1_i64]).with_raw_data(value.to_le_bytes().to_vec())
}

/// A graph of `nodes` from x, of `dims`, and the weights w (4 x 6) and flat (-1) to `outputs`.
fn graph(nodes: Vec<NodeProto>, dims: &[i64], outputs: &[&str]) -> GraphProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, dims.to_vec()));
    graph.initializer = vec![weight("w", &[4, 6]), long("flat", -1)];
    graph.node = nodes;
    for name in outputs {
        let mut output = ValueInfoProto::default();
        output.name = Some((*name).into());
        graph.output.push(output);
    }
    graph
}

fn ops(program: &Program) -> Vec<String> {
    program.main.nodes.iter().map(|node| node.op()).collect()
}

fn folded(program: &Program) -> Vec<(&str, u64)> {
    program.folded().iter().map(|folded| (folded.op.as_str(), folded.bytes)).collect()
}

/// Runs `graph` as it is and made ready: the outputs are the same, and what was folded is no part
/// of the plan.
fn assert_computes_the_same(what: &str, graph: &GraphProto, inputs: &[(&str, Value)]) {
    let expected = machine(program(graph, ProgramOptions::new().unfolded()), inputs).run().unwrap();
    let ready = program(graph, ProgramOptions::new());
    let constants: Vec<_> = ready.folded().iter().flat_map(|f| f.outputs.clone()).collect();
    let plan = plan_program(&ready, &Registry::new(), &HashMap::new(), PlanOptions::new()).unwrap();
    assert!(plan.tensors.iter().all(|tensor| !constants.contains(&tensor.name)), "{what}");
    let mut machine = machine(ready, inputs);
    for name in constants.iter().filter(|name| machine.program().main.value(name).is_some()) {
        let id = machine.program().main.value(name).unwrap();
        let Some(Entry::Tensor(slot)) = machine.table().get(id) else { panic!("{what}: {name}") };
        assert!(slot.offset >= WEIGHTS, "{what}: {name}");
    }
    assert_eq!(machine.run().unwrap(), expected, "{what}");
}

#[test]
fn nodes_of_weights_alone_have_no_step() {
    let node =
        |op: &str, inputs: &[&str], output: &str| NodeProto::new(op, inputs.to_vec(), vec![output]);
    let mut random = node("RandomUniform", &[], "r");
    random.attribute = vec![AttributeProto::ints("shape", [4, 6])];
    type Case<'c> = (&'c str, Vec<NodeProto>, &'c [&'c str], &'c [&'c str], &'c [(&'c str, u64)]);
    let cases: [Case<'_>; 5] = [
        (
            "a chain",
            vec![
                node("Neg", &["w"], "a"),
                node("Reshape", &["a", "flat"], "b"),
                node("Shape", &["b"], "c"),
                node("Add", &["x", "a"], "y"),
            ],
            &["y", "c"],
            &["Add"],
            &[("Neg", 96), ("Reshape", 0), ("Shape", 8)],
        ),
        (
            "an output of the graph, and a view of a weight",
            vec![node("Reshape", &["w", "flat"], "y"), node("Abs", &["y"], "z")],
            &["y", "z"],
            &[],
            &[("Reshape", 0), ("Abs", 96)],
        ),
        (
            "random numbers",
            vec![random, node("Neg", &["r"], "y")],
            &["y"],
            &["RandomUniform", "Neg"],
            &[],
        ),
        ("an input", vec![node("Shape", &["x"], "y")], &["y"], &["Shape"], &[]),
        ("no nodes", vec![], &["x"], &[], &[]),
    ];
    for (what, nodes, outputs, steps, results) in cases {
        let graph = graph(nodes, &[4, 6], outputs);
        let ready = program(&graph, ProgramOptions::new());
        assert_eq!(ops(&ready), steps, "{what}");
        assert_eq!(folded(&ready), results, "{what}");
        assert_computes_the_same(what, &graph, &[("x", value(&[4, 6]))]);
    }
}

#[test]
fn what_exceeds_the_bytes_or_fails_stays_a_step() {
    let nodes = vec![
        NodeProto::new("Neg", ["w"], ["a"]),
        NodeProto::new("Abs", ["w"], ["b"]),
        NodeProto::new("ReduceSum", ["w"], ["c"]),
        NodeProto::new("Sum", ["x", "a", "b", "c"], ["y"]),
    ];
    let graph_of = |nodes| graph(nodes, &[4, 6], &["y"]);
    let bytes =
        |bytes| ops(&program(&graph_of(nodes.clone()), ProgramOptions::new().fold_bytes(bytes)));
    assert_eq!(bytes(96 + 96 + 4), ["Sum"]);
    assert_eq!(bytes(96 + 96 + 3), ["ReduceSum", "Sum"]);
    assert_eq!(bytes(96 + 4), ["Abs", "Sum"]);
    assert_eq!(bytes(0), ["Neg", "Abs", "ReduceSum", "Sum"]);
    let wrong =
        vec![NodeProto::new("MatMul", ["w", "w"], ["a"]), NodeProto::new("Add", ["x", "a"], ["y"])];
    let ready = program(&graph_of(wrong), ProgramOptions::new());
    let error = machine(ready, &[("x", value(&[4, 6]))]).run().unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::Shape, Some("0")));
}

#[test]
fn a_default_that_an_input_may_replace_is_no_constant() {
    let nodes = vec![NodeProto::new("Neg", ["w"], ["a"]), NodeProto::new("Add", ["x", "a"], ["y"])];
    let mut graph = graph(nodes, &[4, 6], &["y"]);
    graph.input.push(ValueInfoProto::tensor("w", DataType::Float, [4, 6]));
    let ready = program(&graph, ProgramOptions::new());
    assert_eq!(ops(&ready), ["Neg", "Add"]);
    assert_computes_the_same("default", &graph, &[("x", value(&[4, 6]))]);
    let inputs =
        [("x", value(&[4, 6])), ("w", Value::from_elements([4, 6], &[1.0_f32; 24]).unwrap())];
    assert_computes_the_same("given", &graph, &inputs);
}

#[test]
fn nodes_in_graphs_of_nodes_are_folded() {
    let branch = |op: &str| {
        let mut graph = GraphProto::new(op);
        graph.node.push(NodeProto::new(op, ["negative"], ["inner"]));
        graph.node.push(NodeProto::new("Add", ["inner", "x"], ["sum"]));
        let mut output = ValueInfoProto::default();
        output.name = Some("sum".into());
        graph.output.push(output);
        graph
    };
    let mut node = NodeProto::new("If", ["flag"], ["y"]);
    node.attribute.push(AttributeProto::graph("then_branch", branch("Abs")));
    node.attribute.push(AttributeProto::graph("else_branch", branch("Exp")));
    let nodes = vec![NodeProto::new("Neg", ["w"], ["negative"]), node];
    let mut graph = graph(nodes, &[4, 6], &["y"]);
    graph.input.push(ValueInfoProto::tensor_with("flag", DataType::Bool, []));
    let ready = program(&graph, ProgramOptions::new());
    let paths: Vec<_> = ready.folded().iter().map(|f| (f.path.as_str(), f.op.as_str())).collect();
    assert_eq!(paths, [("", "Neg"), ("0/else_branch/", "Exp"), ("0/then_branch/", "Abs")]);
    for flag in [true, false] {
        let flag = Value::from_elements([], &[flag]).unwrap();
        assert_computes_the_same("If", &graph, &[("x", value(&[4, 6])), ("flag", flag)]);
    }
}

#[test]
fn a_transposed_weight_is_read_where_it_lies() {
    let gemm = |inputs: [&str; 2], flags: [i64; 2]| {
        let mut node = NodeProto::new("Gemm", inputs.to_vec(), vec!["y"]);
        let [a, b] = flags;
        node.attribute = vec![AttributeProto::int("transA", a), AttributeProto::int("transB", b)];
        node
    };
    let matmul = |inputs: [&str; 2]| NodeProto::new("MatMul", inputs.to_vec(), vec!["y"]);
    let fused = "onnx_container::TransposedMatMul";
    let cases: [(&str, NodeProto, &[i64], &str); 11] = [
        ("second factor", matmul(["x", "t"]), &[5, 6], fused),
        ("a vector", matmul(["x", "t"]), &[6], fused),
        ("a stack", matmul(["x", "t"]), &[2, 3, 5, 6], fused),
        ("no rows", matmul(["x", "t"]), &[0, 6], fused),
        ("first factor", matmul(["t", "x"]), &[4, 5], fused),
        ("by a vector", matmul(["t", "x"]), &[4], fused),
        ("by a stack", matmul(["t", "x"]), &[3, 2, 4, 5], fused),
        ("Gemm", gemm(["x", "t"], [0, 0]), &[5, 6], "Gemm"),
        ("Gemm, transposed again", gemm(["x", "t"], [0, 1]), &[5, 4], "Gemm"),
        ("Gemm, both", gemm(["x", "t"], [1, 0]), &[6, 5], "Gemm"),
        ("Gemm, first", gemm(["t", "x"], [0, 0]), &[4, 5], "Gemm"),
    ];
    for (what, node, dims, op) in cases {
        let graph = graph(vec![NodeProto::new("Transpose", ["w"], ["t"]), node], dims, &["y"]);
        let ready = program(&graph, ProgramOptions::new().fold_bytes(0));
        assert_eq!(
            (ops(&ready), folded(&ready)),
            (vec![op.to_owned()], vec![("Transpose", 0)]),
            "{what}"
        );
        assert_computes_the_same(what, &graph, &[("x", value(dims))]);
    }
}

#[test]
fn a_transposed_weight_that_others_use_is_made() {
    let transpose = || NodeProto::new("Transpose", ["w"], ["t"]);
    let product = || NodeProto::new("MatMul", ["x", "t"], ["y"]);
    let mut identical = transpose();
    identical.attribute = vec![AttributeProto::ints("perm", [0, 1])];
    let mut third = NodeProto::new("Gemm", ["x", "w", "t"], ["y"]);
    third.attribute = vec![AttributeProto::int("transB", 1)];
    type Case<'c> = (&'c str, Vec<NodeProto>, &'c [i64], &'c [&'c str], &'c [&'c str]);
    let cases: [Case<'_>; 4] = [
        (
            "another use",
            vec![transpose(), product(), NodeProto::new("Neg", ["t"], ["z"])],
            &[5, 6],
            &["y", "z"],
            &["Transpose", "MatMul", "Neg"],
        ),
        ("an output", vec![transpose(), product()], &[5, 6], &["y", "t"], &["Transpose", "MatMul"]),
        ("no transposition", vec![identical, product()], &[5, 4], &["y"], &["Transpose", "MatMul"]),
        (
            "both factors",
            vec![transpose(), NodeProto::new("MatMul", ["v", "t"], ["a"])],
            &[1],
            &["a"],
            &["Transpose", "MatMul"],
        ),
    ];
    for (what, mut nodes, dims, outputs, steps) in cases {
        let is_both = what == "both factors";
        if is_both {
            nodes.insert(1, NodeProto::new("Transpose", ["s"], ["v"]));
        }
        let mut graph = graph(nodes, dims, outputs);
        graph.initializer.push(weight("s", &[6, 6]));
        let ready = program(&graph, ProgramOptions::new().fold_bytes(0));
        let mut expected = steps.to_vec();
        if is_both {
            expected.insert(1, "Transpose");
        }
        assert_eq!(ops(&ready), expected, "{what}");
        assert_computes_the_same(what, &graph, &[("x", value(dims))]);
    }
    let graph = graph(vec![transpose(), third], &[6, 6], &["y"]);
    assert_eq!(ops(&program(&graph, ProgramOptions::new().fold_bytes(0))), ["Transpose", "Gemm"]);
}

/// A chain of `nodes` nodes, or of calls of a function of one node.
fn chain(nodes: usize, calls: bool) -> Container {
    let (op, domain) = if calls { ("f", "local") } else { ("Neg", "") };
    let node = |i: usize| {
        let mut node = NodeProto::new(op, [format!("v{i}")], [format!("v{}", i + 1)]);
        node.domain = Some(domain.into());
        node
    };
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("v0", DataType::Float, [2]));
    graph.output.push(ValueInfoProto::tensor(format!("v{nodes}"), DataType::Float, [2]));
    graph.node = (0..nodes).map(node).collect();
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    let imports = [("", 21), ("local", 1)];
    model.opset_import = imports.map(|(name, at)| OperatorSetIdProto::new(name, at)).into();
    if calls {
        let mut function = FunctionProto::default();
        (function.name, function.domain) = (Some("f".into()), Some("local".into()));
        (function.input, function.output) = (vec!["x".into()], vec!["y".into()]);
        function.node = vec![NodeProto::new("Neg", ["x"], ["y"])];
        function.opset_import = vec![OperatorSetIdProto::new("", 21)];
        model.functions = vec![function];
    }
    Container::new(model)
}

#[test]
fn a_program_takes_no_more_memory_than_its_limit() {
    for calls in [false, true] {
        let allowed = |nodes: usize, limits| {
            Program::new(&chain(nodes, calls), ProgramOptions::new().limits(limits))
        };
        let limit = |most| Limits::new().with(Limit::Program, most);
        assert_eq!(allowed(20_000, Limits::new()).unwrap().main.nodes.len(), 20_000);
        assert_eq!(allowed(20_000, limit(40 << 20)).unwrap().main.nodes.len(), 20_000);
        // Fewer nodes than are inlined, and fewer than fit a program.
        for (nodes, limits) in
            [(20_000, limit(1 << 20)), (20_000, limit(12 << 20)), (60_000, Limits::new())]
        {
            let error = allowed(nodes, limits).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Container);
            let source = error.container_error().unwrap();
            assert_eq!(source.kind(), onnx_container::ErrorKind::TooLarge, "{error}");
            assert!(error.to_string().contains("the limit `program` can be raised"), "{error}");
        }
    }
}

#[test]
fn a_model_that_nests_too_deep_is_refused_and_overflows_no_stack() {
    for calls in [false, true] {
        let mut inner = GraphProto::new("g");
        for _ in 0..10_000 {
            let mut node = NodeProto::new("If", ["c"], [""; 0]);
            node.attribute.push(AttributeProto::graph("then_branch", inner));
            inner = GraphProto::new("g");
            inner.node.push(node);
        }
        let mut container = chain(1, calls);
        container.model_mut().graph.as_mut().unwrap().node.append(&mut inner.node);
        let error = Program::new(&container, ProgramOptions::new()).unwrap_err();
        assert!(error.to_string().contains("the limit `nesting`"), "{error}");
    }
}
