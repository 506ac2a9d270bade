//! Results in the place of an input: when they lie there, and that they are the same.

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{Container, DataType};
use onnx_container_machine::plan::PlanOptions;
use onnx_container_machine::trace::{Trace, TraceOptions, TraceWriter};
use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits, Value};

type Node<'c> = (&'c str, &'c [&'c str], &'c str);

/// A graph of `nodes` from x and z of `dims`, in which column has the rows of x and row its
/// columns.
fn graph(nodes: &[Node<'_>], dims: [i64; 2], outputs: &[&str]) -> GraphProto {
    let mut graph = GraphProto::new("g");
    let inputs = [("x", dims), ("z", dims), ("column", [dims[0], 1]), ("bits", dims)];
    for (name, dims) in inputs {
        let dtype = if name == "bits" { DataType::Bool } else { DataType::Float };
        graph.input.push(ValueInfoProto::tensor(name, dtype, dims));
    }
    let floats = |count: i64| (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect::<Vec<_>>();
    graph.initializer = vec![
        TensorProto::new("row", TensorProto::FLOAT, [1, dims[1]]).with_raw_data(floats(dims[1])),
        TensorProto::new("one", TensorProto::FLOAT, [1_i64, 1, 1]).with_raw_data(floats(1)),
        TensorProto::new("two", TensorProto::FLOAT, [] as [i64; 0])
            .with_raw_data(2.0_f32.to_le_bytes().to_vec()),
        TensorProto::new("shape", TensorProto::INT64, [1_i64])
            .with_raw_data((-1_i64).to_le_bytes().to_vec()),
    ];
    for (op, inputs, output) in nodes {
        let mut node = NodeProto::new(*op, inputs.to_vec(), vec![*output]);
        if *op == "Cast" {
            let to = if *output == "wide" { TensorProto::DOUBLE } else { TensorProto::INT32 };
            node.attribute.push(AttributeProto::int("to", i64::from(to)));
        }
        graph.node.push(node);
    }
    for name in outputs {
        let mut output = ValueInfoProto::default();
        output.name = Some((*name).into());
        graph.output.push(output);
    }
    graph
}

fn container(graph: GraphProto) -> Container {
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    Container::new(model)
}

fn machine(container: &Container, dims: [i64; 2], planning: Option<PlanOptions>) -> Machine {
    let program = Program::new(container, ProgramOptions::new()).unwrap();
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new()).planning(planning);
    let count = |dims: [i64; 2]| dims[0] * dims[1];
    let floats = |dims: [i64; 2], from: f32| {
        let elements: Vec<_> = (0..count(dims)).map(|i| (i % 97) as f32 / 8.0 - from).collect();
        Value::from_elements(dims, &elements).unwrap()
    };
    let bits: Vec<_> = (0..count(dims)).map(|i| i % 3 == 0).collect();
    machine.bind("x", floats(dims, 5.0)).unwrap();
    machine.bind("z", floats(dims, -0.5)).unwrap();
    machine.bind("column", floats([dims[0], 1], 1.0)).unwrap();
    machine.bind("bits", Value::from_elements(dims, &bits).unwrap()).unwrap();
    machine
}

/// What each tensor with bytes of others shares them with.
fn shares(machine: &Machine) -> Vec<(&str, &str)> {
    let tensors = machine.plan().unwrap().tensors.iter();
    tensors.filter_map(|t| Some((t.name.as_str(), t.shares.as_deref()?))).collect()
}

/// The same nodes, with every value kept to the end, so that nothing is written over.
fn kept(nodes: &[Node<'_>], dims: [i64; 2], outputs: &[&str]) -> GraphProto {
    let names = nodes.iter().map(|(_, _, output)| *output).filter(|name| !outputs.contains(name));
    let all: Vec<_> = outputs.iter().copied().chain(["x", "z", "bits"]).chain(names).collect();
    graph(nodes, dims, &all)
}

#[test]
fn results_lie_in_the_place_of_an_input_that_dies() {
    type Case<'c> = (&'c str, &'c [Node<'c>], &'c [&'c str], &'c [(&'c str, &'c str)]);
    let cases: [Case<'_>; 18] = [
        ("unary", &[("Neg", &["x"], "y")], &["y"], &[("y", "x")]),
        (
            "a chain",
            &[("Neg", &["x"], "a"), ("Exp", &["a"], "y")],
            &["y"],
            &[("a", "x"), ("y", "x")],
        ),
        ("needed later", &[("Neg", &["x"], "a"), ("Add", &["a", "x"], "y")], &["y"], &[("y", "a")]),
        ("an output", &[("Neg", &["x"], "y")], &["x", "y"], &[]),
        ("the second one", &[("Sub", &["x", "z"], "y")], &["x", "y"], &[("y", "z")]),
        ("twice", &[("Mul", &["x", "x"], "y")], &["y"], &[("y", "x")]),
        ("a row", &[("Sub", &["x", "row"], "y")], &["y"], &[("y", "x")]),
        ("a row first", &[("Sub", &["row", "x"], "y")], &["y"], &[("y", "x")]),
        ("a scalar", &[("Div", &["x", "two"], "y")], &["y"], &[("y", "x")]),
        ("a column", &[("Sub", &["x", "column"], "y")], &["y"], &[]),
        ("more dimensions", &[("Add", &["x", "one"], "y")], &["y"], &[]),
        ("a type as wide", &[("Cast", &["x"], "y")], &["y"], &[("y", "x")]),
        ("a wider type", &[("Cast", &["x"], "wide")], &["wide"], &[]),
        ("Clip", &[("Clip", &["x", "", "two"], "y")], &["y"], &[("y", "x")]),
        ("Where", &[("Where", &["bits", "x", "z"], "y")], &["y"], &[("y", "x")]),
        ("not elementwise", &[("Softmax", &["x"], "y")], &["y"], &[]),
        (
            "through a view",
            &[("Reshape", &["x", "shape"], "a"), ("Neg", &["a"], "y")],
            &["y"],
            &[("a", "x"), ("y", "x")],
        ),
        (
            "beside a view",
            &[("Identity", &["x"], "a"), ("Add", &["a", "x"], "y")],
            &["y"],
            &[("a", "x")],
        ),
    ];
    // Of one part, of several, and with rows that do not divide a part.
    for dims in [[3, 5], [300, 200], [7, 30_000]] {
        for (what, nodes, outputs, expected) in &cases {
            let container = container(graph(nodes, dims, outputs));
            let reference = self::container(kept(nodes, dims, outputs));
            let mut reference = machine(&reference, dims, None);
            let computed = reference.run().unwrap();
            let computed = &computed[..outputs.len()];
            let mut planned = machine(&container, dims, Some(PlanOptions::new()));
            planned.place_inputs().unwrap();
            assert_eq!(shares(&planned), *expected, "{what}");
            assert_eq!(planned.run().unwrap(), computed, "{what}, {dims:?}");
            let plan = planned.plan().unwrap();
            assert!(plan.barrier.is_none(), "{what}");
            assert_eq!(planned.memory().high_water(), plan.plan.arena_bytes, "{what}");
            let mut unplanned = machine(&container, dims, None);
            assert_eq!(unplanned.run().unwrap(), computed, "{what}, {dims:?}");
        }
    }
}

#[test]
fn a_trace_has_what_was_read_before_it_was_written_over() {
    let nodes: &[Node<'_>] =
        &[("Neg", &["x"], "a"), ("Mul", &["a", "a"], "b"), ("Add", &["b", "row"], "y")];
    let trace = |graph| {
        let container = container(graph);
        let mut machine = machine(&container, [4, 6], Some(PlanOptions::new()));
        let mut lines = Vec::new();
        let options = TraceOptions::new();
        let mut writer = TraceWriter::new(&mut lines, &container, &mut machine, options).unwrap();
        machine.run_with(&mut |step, memory| writer.step(step, memory)).unwrap();
        writer.finish(&machine).unwrap();
        Trace::read(&lines[..]).unwrap()
    };
    let (over, kept) = (trace(graph(nodes, [4, 6], &["y"])), trace(kept(nodes, [4, 6], &["y"])));
    for (over, kept) in over.steps.iter().zip(&kept.steps) {
        let pairs =
            over.inputs.iter().chain(&over.outputs).zip(kept.inputs.iter().chain(&kept.outputs));
        for (over, kept) in pairs {
            assert!(over.is_same(kept), "{over:?} {kept:?}");
        }
        assert_eq!(over.inputs[0].offset, over.outputs[0].offset);
    }
    assert_eq!(over.steps.len(), 3);
}
