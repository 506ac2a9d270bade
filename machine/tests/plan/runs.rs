//! Runs with a plan: they need what the plan says, and compute what a run without a plan does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{Container, DataType};
use onnx_container_machine::plan::PlanOptions;
use onnx_container_machine::{
    Call, Entry, Kernel, Machine, OutSpec, Program, ProgramOptions, Registry, Result, RunCx,
    RunLimits, Value,
};
use proptest::prelude::*;

use crate::programs::graph as graph_with_views;

fn machine(graph: GraphProto, inputs: &[(&str, Value)], planning: Option<PlanOptions>) -> Machine {
    limited(graph, inputs, planning, RunLimits::new())
}

fn limited(
    graph: GraphProto,
    inputs: &[(&str, Value)],
    planning: Option<PlanOptions>,
    limits: RunLimits,
) -> Machine {
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    let program = Program::new(&Container::new(model), ProgramOptions::new()).unwrap();
    let machine = Machine::new(program, Registry::new(), limits);
    let mut machine = machine.planning(planning);
    inputs.iter().for_each(|(name, value)| machine.bind(name, value.clone()).unwrap());
    machine
}

fn floats(n: usize) -> Value {
    let elements: Vec<_> = (0..n).map(|i| i as f32 - 2.5).collect();
    Value::from_elements([n as i64], &elements).unwrap()
}

/// A graph of `nodes` from x, of n FLOAT elements, to `outputs`.
fn chain(nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, ["n".into()]));
    graph.node = nodes;
    for name in outputs {
        graph.output.push(ValueInfoProto::tensor_with(*name, DataType::Float, [(-1).into()]));
    }
    graph
}

/// Four steps, then a Reshape to what the input `shape` says, and two more.
fn graph_with_barrier() -> GraphProto {
    let nodes = vec![
        NodeProto::new("Neg", ["x"], ["a"]),
        NodeProto::new("Concat", ["a", "x", "a"], ["wide"]),
        NodeProto::new("Abs", ["a"], ["b"]),
        NodeProto::new("Reshape", ["wide", "shape"], ["c"]),
        NodeProto::new("Neg", ["c"], ["d"]),
        NodeProto::new("Add", ["b", "a"], ["y"]),
    ];
    let mut graph = chain(nodes, &["y", "d"]);
    graph.node[1].attribute.push(AttributeProto::int("axis", 0));
    graph.input.push(ValueInfoProto::tensor("shape", DataType::Int64, [1]));
    graph
}

/// An If between other nodes, whose branches use what lies in planned places.
fn graph_with_if() -> GraphProto {
    let branch = |name: &str, op: &str| {
        let mut graph = GraphProto::new(name);
        graph.node.push(NodeProto::new("Add", ["a", "x"], ["inner"]));
        graph.node.push(NodeProto::new(op, ["inner"], [name]));
        graph.output.push(ValueInfoProto::tensor_with(name, DataType::Float, ["n".into()]));
        graph
    };
    let mut node = NodeProto::new("If", ["flag"], ["c"]);
    node.attribute.push(AttributeProto::graph("then_branch", branch("t", "Abs")));
    node.attribute.push(AttributeProto::graph("else_branch", branch("e", "Neg")));
    let nodes = vec![
        NodeProto::new("Neg", ["x"], ["a"]),
        NodeProto::new("Abs", ["a"], ["b"]),
        node,
        NodeProto::new("Add", ["b", "c"], ["y"]),
    ];
    let mut graph = chain(nodes, &["y"]);
    graph.input.push(ValueInfoProto::tensor_with("flag", DataType::Bool, []));
    graph
}

/// A Loop that adds x to a planned value three times.
fn graph_with_loop() -> GraphProto {
    let mut body = GraphProto::new("body");
    body.input.push(ValueInfoProto::tensor_with("i", DataType::Int64, []));
    body.input.push(ValueInfoProto::tensor_with("go", DataType::Bool, []));
    body.input.push(ValueInfoProto::tensor_with("v", DataType::Float, ["n".into()]));
    body.node.push(NodeProto::new("Add", ["v", "x"], ["w"]));
    body.output.push(ValueInfoProto::tensor_with("go", DataType::Bool, []));
    body.output.push(ValueInfoProto::tensor_with("w", DataType::Float, ["n".into()]));
    let mut node = NodeProto::new("Loop", ["trips", "", "a"], ["b"]);
    node.attribute.push(AttributeProto::graph("body", body));
    let nodes =
        vec![NodeProto::new("Neg", ["x"], ["a"]), node, NodeProto::new("Add", ["b", "a"], ["y"])];
    let mut graph = chain(nodes, &["y"]);
    let trips = TensorProto::new("trips", TensorProto::INT64, [1_i64])
        .with_raw_data(3_i64.to_le_bytes().to_vec());
    graph.initializer.push(trips);
    graph
}

/// Two nodes whose shapes depend on data, with views, constants and results in place around them;
/// what the second segment needs is more than what the first one does.
fn graph_with_two_barriers() -> GraphProto {
    let nodes = vec![
        NodeProto::new("Abs", ["x"], ["a"]),
        NodeProto::new("NonZero", ["a"], ["where"]),
        NodeProto::new("Shape", ["where"], ["dims"]),
        NodeProto::new("Cast", ["where"], ["floats"]),
        NodeProto::new("Concat", ["floats", "floats", "floats"], ["wide"]),
        NodeProto::new("Flatten", ["wide"], ["flat"]),
        NodeProto::new("ReduceSum", ["flat"], ["sum"]),
        NodeProto::new("Compress", ["x", "bits"], ["some"]),
        NodeProto::new("Expand", ["some", "dims"], ["b"]),
        NodeProto::new("Neg", ["b"], ["c"]),
        NodeProto::new("Add", ["c", "sum"], ["y"]),
        NodeProto::new("Sub", ["a", "x"], ["z"]),
    ];
    let mut graph = chain(nodes, &["y", "z"]);
    graph.node[3].attribute.push(AttributeProto::int("to", i64::from(TensorProto::FLOAT)));
    graph.node[4].attribute.push(AttributeProto::int("axis", 0));
    graph.input.push(ValueInfoProto::tensor_with("bits", DataType::Bool, ["n".into()]));
    graph
}

/// A node whose shape depends on data behind an If.
fn graph_with_if_and_barrier() -> GraphProto {
    let mut graph = graph_with_if();
    graph.node.push(NodeProto::new("NonZero", ["y"], ["where"]));
    graph.node.push(NodeProto::new("Shape", ["where"], ["dims"]));
    graph.node.push(NodeProto::new("Softmax", ["y"], ["z"]));
    graph.output.push(ValueInfoProto::tensor_with("z", DataType::Float, [(-1).into()]));
    graph.output.push(ValueInfoProto::tensor_with("dims", DataType::Int64, [(-1).into()]));
    graph
}

/// Sizes that are computed from how many elements there are, and nodes of those sizes behind them.
fn graph_with_computed_range() -> GraphProto {
    let nodes = vec![
        NodeProto::new("Unique", ["x"], ["some"]),
        NodeProto::new("Size", ["some"], ["count"]),
        NodeProto::new("Range", ["zero", "count", "one"], ["numbers"]),
        NodeProto::new("Cast", ["numbers"], ["floats"]),
        NodeProto::new("Add", ["floats", "some"], ["a"]),
        NodeProto::new("Mul", ["a", "a"], ["b"]),
        NodeProto::new("Softmax", ["b"], ["y"]),
        NodeProto::new("Sub", ["b", "floats"], ["z"]),
    ];
    let mut graph = chain(nodes, &["y", "z", "numbers"]);
    graph.node[3].attribute.push(AttributeProto::int("to", i64::from(TensorProto::FLOAT)));
    let long = |name: &str, value: i64| {
        TensorProto::new(name, TensorProto::INT64, [] as [i64; 0])
            .with_raw_data(value.to_le_bytes().to_vec())
    };
    graph.initializer = vec![long("zero", 0), long("one", 1)];
    graph
}

/// Views behind a barrier, of which some are outputs, and results that would lie in their place.
fn graph_with_views_behind_a_barrier() -> GraphProto {
    let nodes = vec![
        NodeProto::new("NonZero", ["x"], ["where"]),
        NodeProto::new("Identity", ["where"], ["view"]),
        NodeProto::new("Neg", ["view"], ["n"]),
        NodeProto::new("Flatten", ["n"], ["flat"]),
        NodeProto::new("Abs", ["flat"], ["a"]),
        NodeProto::new("Add", ["view", "where"], ["s"]),
        NodeProto::new("Neg", ["s"], ["t"]),
    ];
    chain(nodes, &["a", "view", "t", "n"])
}

/// A Loop (or an If) that gives the bytes of an outer value, which is needed behind it.
fn graph_with_inner_view(op: &str) -> GraphProto {
    let mut graph = if op == "Loop" { graph_with_loop() } else { graph_with_if() };
    for attribute in graph.node.iter_mut().flat_map(|node| &mut node.attribute) {
        let body = attribute.g.as_mut().unwrap();
        let output = body.output.last().unwrap().name.clone().unwrap();
        body.node = vec![NodeProto::new("Identity", ["a"], [output])];
    }
    let inner = if op == "Loop" { "b" } else { "c" };
    graph.node.pop();
    graph.node.push(NodeProto::new("Neg", [inner], ["d"]));
    graph.node.push(NodeProto::new("Exp", ["d"], ["e"]));
    graph.node.push(NodeProto::new("Add", ["e", "a"], ["y"]));
    graph
}

/// The outputs of `graph` when nothing is written over, shared, folded or planned: every result is
/// kept.
fn reference(graph: &GraphProto, inputs: &[(&str, Value)]) -> Vec<(String, Value)> {
    let mut kept = graph.clone();
    for name in graph
        .node
        .iter()
        .flat_map(|node| &node.output)
        .chain(graph.input.iter().flat_map(|x| &x.name))
    {
        let mut output = ValueInfoProto::default();
        output.name = Some(name.clone());
        kept.output.push(output);
    }
    let mut model = ModelProto::new(kept);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    let program = Program::new(&Container::new(model), ProgramOptions::new().unfolded()).unwrap();
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new()).planning(None);
    inputs.iter().for_each(|(name, value)| machine.bind(name, value.clone()).unwrap());
    let mut outputs = machine.run().unwrap();
    outputs.truncate(graph.output.len());
    outputs
}

/// Runs `graph` with and without a plan; whether its plan reaches to its end.
fn assert_keeps_to_its_plan(what: &str, graph: &GraphProto, inputs: &[(&str, Value)]) -> bool {
    let expected = reference(graph, inputs);
    assert_eq!(machine(graph.clone(), inputs, None).run().unwrap(), expected, "{what}");
    let mut machine = machine(graph.clone(), inputs, Some(PlanOptions::new()));
    // The second run uses the memory of the first.
    for _ in 0..2 {
        let mut written = Vec::new();
        while let Some(step) = machine.step().unwrap() {
            written.extend(step.writes);
        }
        assert_eq!(machine.outputs().unwrap(), expected, "{what}");
        let mut planned = 0;
        for tensor in machine.plans().flat_map(|plan| &plan.tensors) {
            let Some(write) = written.iter().find(|w| w.name == tensor.name) else { continue };
            let Entry::Tensor(slot) = &write.entry else { panic!("{what}: {write:?}") };
            assert_eq!(slot.offset, tensor.offset, "{what}: {}", tensor.name);
            planned += 1;
        }
        let nodes = &machine.program().main.nodes;
        let has_graphs = nodes.iter().any(|node| node.attributes.graphs().next().is_some());
        let used = machine.memory().high_water();
        let n = machine.plans().map(|plan| plan.plan.arena_bytes).max().unwrap();
        if !has_graphs {
            assert_eq!(used, n, "{what}");
            assert!(planned >= written.len(), "{what}: {planned} of {}", written.len());
        }
        assert!(used >= n, "{what}: {used} of {n}");
        // Where one plan ends, the next begins, or the one behind a node with graphs inside.
        let ends = machine.plans().map(|plan| plan.barrier.as_ref().map(|barrier| barrier.step));
        let starts: Vec<_> = machine.plans().map(|plan| plan.first_step).skip(1).collect();
        for (end, start) in ends.zip(&starts) {
            let behind = u64::from(has_graphs && end != Some(*start));
            assert_eq!(end.map(|end| end + behind), Some(*start), "{what}");
        }
        machine.reset();
        inputs.iter().for_each(|(name, value)| machine.bind(name, value.clone()).unwrap());
    }
    machine.place_inputs().unwrap();
    machine.plan().unwrap().barrier.is_none()
}

#[test]
fn a_run_needs_what_its_plan_says_and_computes_the_same() {
    let matrix = Value::from_elements([4, 6], &[1.5_f32; 24]).unwrap();
    let unused = Value::from_elements([3], &[0.0_f32; 3]).unwrap();
    let flag = |flag: bool| Value::from_elements([], &[flag]).unwrap();
    // One of them: what it picks is expanded.
    let bits = |n: i64| {
        let bits: Vec<_> = (0..n).map(|i| i == 4).collect();
        Value::from_elements([n], &bits).unwrap()
    };
    let to = Value::from_elements([1], &[-1_i64]).unwrap();
    let neg = || chain(vec![NodeProto::new("Neg", ["x"], ["y"])], &["y"]);
    let cases = [
        ("views", graph_with_views(), vec![("x", matrix), ("unused", unused)], true),
        ("a symbolic dimension", neg(), vec![("x", floats(1000))], true),
        ("no elements", neg(), vec![("x", floats(0))], true),
        ("more than a segment", neg(), vec![("x", floats(400_000))], true),
        ("a barrier", graph_with_barrier(), vec![("x", floats(100)), ("shape", to)], false),
        (
            "two barriers",
            graph_with_two_barriers(),
            vec![("x", floats(9)), ("bits", bits(9))],
            false,
        ),
        (
            "two barriers, more than a segment",
            graph_with_two_barriers(),
            vec![("x", floats(90_000)), ("bits", bits(90_000))],
            false,
        ),
        ("If", graph_with_if(), vec![("x", floats(70)), ("flag", flag(true))], false),
        (
            "a barrier behind an If",
            graph_with_if_and_barrier(),
            vec![("x", floats(300_000)), ("flag", flag(true))],
            false,
        ),
        ("a computed range", graph_with_computed_range(), vec![("x", floats(50))], false),
        (
            "views behind a barrier",
            graph_with_views_behind_a_barrier(),
            vec![("x", floats(60_000))],
            false,
        ),
        ("a view out of a Loop", graph_with_inner_view("Loop"), vec![("x", floats(33))], false),
        (
            "a view out of an If",
            graph_with_inner_view("If"),
            vec![("x", floats(33)), ("flag", flag(true))],
            false,
        ),
        ("else", graph_with_if(), vec![("flag", flag(false)), ("x", floats(70))], false),
        ("Loop", graph_with_loop(), vec![("x", floats(33))], false),
    ];
    for (what, graph, inputs, is_planned_to_its_end) in cases {
        assert_eq!(assert_keeps_to_its_plan(what, &graph, &inputs), is_planned_to_its_end);
    }
}

#[test]
fn a_plan_that_exceeds_the_memory_is_not_used() {
    let graph = chain(vec![NodeProto::new("Softmax", ["x"], ["y"])], &["y"]);
    let (inputs, options) = ([("x", floats(1000))], Some(PlanOptions::new()));
    let limits = RunLimits::new();
    for (bytes, is_planned) in [(4096, false), (8192, true)] {
        let mut machine = limited(graph.clone(), &inputs, options, limits.memory_bytes(bytes));
        machine.place_inputs().unwrap();
        assert_eq!(machine.plan().is_some(), is_planned, "{bytes}");
    }
}

#[test]
fn an_input_in_the_place_of_an_initializer_is_planned() {
    let mut graph = chain(vec![NodeProto::new("Add", ["x", "w"], ["y"])], &["y"]);
    graph.input.push(ValueInfoProto::tensor("w", DataType::Float, [2]));
    let zeros = TensorProto::new("w", TensorProto::FLOAT, [2_i64]).with_raw_data(vec![0_u8; 8]);
    graph.initializer.push(zeros);
    for inputs in [vec![("x", floats(2))], vec![("x", floats(2)), ("w", floats(2))]] {
        assert!(assert_keeps_to_its_plan("a default", &graph, &inputs));
    }
}

/// Add, which counts how often its shapes are inferred.
#[derive(Debug, Clone, Default)]
struct CountedAdd(Arc<AtomicUsize>);

impl Kernel for CountedAdd {
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(vec![OutSpec::tensor(DataType::Float, call.shape(0)?)])
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<()> {
        let (a, b) = (cx.input::<f32>(0)?, cx.input::<f32>(1)?);
        let sums: Vec<_> = a.iter().zip(b).map(|(a, b)| a + b).collect();
        cx.output::<f32>(0)?.copy_from_slice(&sums);
        Ok(())
    }
}

/// x plus each of `count` inputs that have defaults.
fn graph_with_defaults(count: usize) -> GraphProto {
    let value = |i: usize| if i == 0 { "x".to_owned() } else { format!("v{i}") };
    let nodes = (0..count).map(|i| {
        let mut node = NodeProto::new("Add", [value(i), format!("w{i}")], [value(i + 1)]);
        node.domain = Some("my".into());
        node
    });
    let mut graph = chain(nodes.collect(), &[&value(count)]);
    for name in (0..count).map(|i| format!("w{i}")) {
        graph.input.push(ValueInfoProto::tensor(&name, DataType::Float, [2]));
        let zeros = TensorProto::new(&name, TensorProto::FLOAT, [2_i64]);
        graph.initializer.push(zeros.with_raw_data(vec![0_u8; 8]));
    }
    graph
}

#[test]
fn a_run_is_planned_once_however_many_inputs_are_bound() {
    let count = 8;
    let mut model = ModelProto::new(graph_with_defaults(count));
    model.ir_version = Some(3);
    model.opset_import = vec![OperatorSetIdProto::new("", 21), OperatorSetIdProto::new("my", 1)];
    let program = Program::new(&Container::new(model), ProgramOptions::new()).unwrap();
    let add = CountedAdd::default();
    let mut registry = Registry::new();
    registry.register("my", "Add", 1, add.clone());
    let mut machine = Machine::new(program, registry, RunLimits::new());
    let inferred = || add.0.load(Ordering::Relaxed);
    for given in [0, count] {
        let before = inferred();
        machine.bind("x", floats(2)).unwrap();
        (0..given).for_each(|i| machine.bind(&format!("w{i}"), floats(2)).unwrap());
        assert_eq!(inferred() - before, 0, "{given}");
        // What places the inputs first, places them for the first step too.
        (0..2).for_each(|_| machine.place_inputs().unwrap());
        assert_eq!(inferred() - before, count, "{given}");
        let sum = 1.0 + given as f32;
        let expected = Value::from_elements([2], &[-2.5 * sum, -1.5 * sum]).unwrap();
        assert_eq!(machine.run().unwrap()[0].1, expected, "{given}");
        machine.reset();
    }
}

#[test]
fn an_input_that_is_bound_when_others_are_placed_is_placed_too() {
    let mut graph = chain(vec![NodeProto::new("Sub", ["x", "w"], ["y"])], &["y"]);
    graph.input.push(ValueInfoProto::tensor("w", DataType::Float, [2]));
    let zeros = TensorProto::new("w", TensorProto::FLOAT, [2_i64]).with_raw_data(vec![0_u8; 8]);
    graph.initializer.push(zeros);
    for planning in [None, Some(PlanOptions::new())] {
        let mut machine = machine(graph.clone(), &[("x", floats(2))], planning);
        machine.place_inputs().unwrap();
        machine.bind("w", Value::from_elements([2], &[1.0_f32, 2.0]).unwrap()).unwrap();
        let expected = Value::from_elements([2], &[-3.5_f32, -3.5]).unwrap();
        assert_eq!(machine.run().unwrap()[0].1, expected, "{planning:?}");
    }
}

proptest! {
    #[test]
    fn random_programs_keep_to_their_plans(
        picks in prop::collection::vec((0..4_usize, 0..8_usize, 0..8_usize), 1..12),
        n in 1..40_usize,
    ) {
        let mut values = vec!["x".to_owned()];
        let mut nodes = Vec::new();
        for (i, (op, a, b)) in picks.into_iter().enumerate() {
            let pick = |k: usize| values[values.len() - 1 - k % values.len()].clone();
            let name = format!("v{i}");
            nodes.push(match op {
                0 => NodeProto::new("Neg", [pick(a)], [name.clone()]),
                1 => NodeProto::new("Identity", [pick(a)], [name.clone()]),
                _ => NodeProto::new("Add", [pick(a), pick(b)], [name.clone()]),
            });
            values.push(name);
        }
        let graph = chain(nodes, &[&values[values.len() - 1], &values[values.len() / 2]]);
        prop_assert!(assert_keeps_to_its_plan("random", &graph, &[("x", floats(n))]));
    }
}
