//! Plans of programs: what is planned is what a run does.

use std::collections::HashMap;

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{Container, DataType};
use onnx_container_machine::plan::{PlanOptions, ProgramPlan, plan_program};
use onnx_container_machine::{
    Entry, ErrorKind, Machine, Program, ProgramOptions, Registry, RunLimits, Value, WEIGHTS,
};

fn longs(name: &str, values: &[i64]) -> TensorProto {
    let bytes: Vec<_> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    TensorProto::new(name, TensorProto::INT64, [values.len() as i64]).with_raw_data(bytes)
}

fn program(graph: GraphProto) -> Program {
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    Program::new(&Container::new(model), ProgramOptions::new()).unwrap()
}

fn planned(program: &Program) -> ProgramPlan {
    plan_program(program, &Registry::new(), &HashMap::new(), PlanOptions::new()).unwrap()
}

/// A graph with views of views, of an input and of a weight, results that nobody reads, an output
/// that others read, and a target shape that comes from shapes.
pub(crate) fn graph() -> GraphProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [4, 6]));
    graph.input.push(ValueInfoProto::tensor("unused", DataType::Float, [3]));
    graph.initializer.push(longs("flat", &[-1]));
    graph.initializer.push(longs("last", &[1]));
    graph.initializer.push(longs("weight", &[7; 64]));
    let nodes: [(&str, &[&str], &[&str]); 11] = [
        ("Reshape", &["x", "flat"], &["x_flat"]),
        ("Neg", &["x_flat"], &["a"]),
        ("Shape", &["x"], &["dims"]),
        ("Gather", &["dims", "last"], &["width"]),
        ("Concat", &["flat", "width"], &["target"]),
        ("Reshape", &["a", "target"], &["a2"]),
        ("Identity", &["a2"], &["a3"]),
        ("Abs", &["x"], &["not_read"]),
        ("Reshape", &["weight", "flat"], &["weight_flat"]),
        ("Add", &["a3", "x"], &["y"]),
        ("Mul", &["y", "y"], &["z"]),
    ];
    for (op, inputs, outputs) in nodes {
        let mut node = NodeProto::new(op, inputs.to_vec(), outputs.to_vec());
        if op == "Concat" {
            node.attribute.push(AttributeProto::int("axis", 0));
        }
        graph.node.push(node);
    }
    for (name, dims) in [("y", [4, 6]), ("z", [4, 6])] {
        graph.output.push(ValueInfoProto::tensor(name, DataType::Float, dims));
    }
    graph
}

#[test]
fn a_plan_has_the_tensors_of_a_run_at_every_step() {
    let program = program(graph());
    let plan = planned(&program);
    assert!(plan.barrier.is_none());
    let steps = plan.steps;
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    machine.bind("x", Value::from_elements([4, 6], &[1.5_f32; 24]).unwrap()).unwrap();
    machine.bind("unused", Value::from_elements([3], &[0.0_f32; 3]).unwrap()).unwrap();
    for step in 0..steps {
        machine.step().unwrap().unwrap();
        let mut in_run: Vec<_> = machine
            .table()
            .iter()
            .filter_map(|(_, name, entry)| match entry {
                Entry::Tensor(slot) if slot.offset < WEIGHTS => {
                    Some((name.to_owned(), slot.dtype, slot.shape.clone()))
                }
                _ => None,
            })
            .collect();
        // What a step needs last is gone after it, except what is left at the end.
        let is_left = |end: u64| end > step + 1 || end == steps && step + 1 == steps;
        let live = plan.tensors.iter().filter(|t| t.steps.start <= step && is_left(t.steps.end));
        let at_end = step + 1 == steps;
        let mut in_plan: Vec<_> =
            live.map(|t| (t.name.clone(), t.dtype, t.shape.clone())).collect();
        if at_end {
            in_plan.retain(|(name, ..)| ["unused", "y", "z"].contains(&name.as_str()));
        }
        in_run.sort_by(|a, b| a.0.cmp(&b.0));
        in_plan.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(in_run, in_plan, "after step {step}");
    }
}

#[test]
fn views_share_bytes_that_live_as_long_as_they() {
    let plan = planned(&program(graph()));
    let tensor = |name: &str| plan.tensors.iter().find(|tensor| tensor.name == name).unwrap();
    // y is written over a3, which is needed no longer.
    for (view, owner) in [("x_flat", "x"), ("a2", "a"), ("a3", "a"), ("y", "a")] {
        assert_eq!(tensor(view).shares.as_deref(), Some(owner));
        assert_eq!(tensor(view).offset, tensor(owner).offset);
    }
    assert_eq!((tensor("a").steps.clone(), tensor("a").block.steps.clone()), (1..6, 1..10));
    assert_eq!(tensor("x").block.steps, 0..9);
    assert_eq!(tensor("not_read").block.steps, 7..8);
    assert_eq!(tensor("y").steps, 8..10);
    let is_planned = |name: &str| plan.tensors.iter().any(|tensor| tensor.name == name);
    assert!(
        !is_planned("weight_flat") && !is_planned("weight"),
        "weights lie outside of the arena"
    );
    assert_eq!(plan.rows().len(), plan.tensors.len() - 4);
    assert!(plan.tensors.iter().all(|tensor| tensor.offset % 64 == 0));
}

#[test]
fn a_plan_ends_before_a_node_whose_shape_depends_on_data() {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [4]));
    graph.input.push(ValueInfoProto::tensor("shape", DataType::Int64, [2]));
    graph.node.push(NodeProto::new("Neg", ["x"], ["a"]));
    let mut reshape = NodeProto::new("Reshape", ["a", "shape"], ["b"]);
    reshape.name = Some("to".into());
    graph.node.push(reshape);
    graph.node.push(NodeProto::new("Neg", ["b"], ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [-1, -1]));
    let plan = planned(&program(graph));
    let barrier = plan.barrier.unwrap();
    assert_eq!((barrier.step, barrier.node.as_str(), barrier.op.as_str()), (1, "to", "Reshape"));
    assert_eq!(barrier.reason, "the elements of input 1 are not known yet");
    let steps: Vec<_> = plan.tensors.iter().map(|t| (t.name.as_str(), t.steps.clone())).collect();
    assert_eq!(steps, [("x", 0..1), ("shape", 0..2), ("a", 0..2)]);
}

#[test]
fn what_cannot_run_has_no_plan() {
    let of_sizes = |op: &str, dims: [i64; 2], sizes: &[(&str, usize)]| {
        let mut graph = GraphProto::new("g");
        graph.input.push(ValueInfoProto::tensor("x", DataType::Float, dims));
        graph.node.push(NodeProto::new(op, ["x", "x"], ["y"]));
        graph.output.push(ValueInfoProto::tensor("y", DataType::Float, dims));
        let program = program(graph);
        let sizes = sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        plan_program(&program, &Registry::new(), &sizes, PlanOptions::new())
    };
    let of = |op: &str, dims: [i64; 2]| of_sizes(op, dims, &[]).unwrap_err();
    let error = of("NoSuchOperator", [2, 2]);
    assert_eq!((error.kind(), error.step()), (ErrorKind::UnsupportedOp, Some("0")));
    let error = of("Add", [2, -1]);
    assert_eq!((error.kind(), error.value()), (ErrorKind::Input, Some("x")));
    let reason = error.reason();
    assert!(
        reason.starts_with("its dimension `x[1]` has no size: give one, as in `--dim x[1]=1`"),
        "{reason}"
    );
    let by_place = of_sizes("Add", [2, -1], &[("x[1]", 3)]).unwrap();
    assert_eq!(by_place.tensors[0].shape, [2, 3]);
    for wrong in ["x[0]", "x[2]", "x", "y[1]"] {
        let error = of_sizes("Add", [2, -1], &[(wrong, 3)]).unwrap_err();
        let reason = format!("no input has an open dimension `{wrong}`; open are x[1]");
        assert_eq!(error.reason(), reason);
    }
}
