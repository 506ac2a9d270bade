//! What a user of the machine sees: steps, values, and errors that say where and why.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto,
    ValueInfoProto, type_proto,
};
use onnx_container::{Buffer, Container, DataType, Tensor};
use onnx_container_machine::plan::PlanOptions;
use onnx_container_machine::{
    Call, ErrorKind, Kernel, Machine, OutSpec, Program, ProgramOptions, Registry, Result, RunCx,
    RunLimits, Value,
};

/// A model of `nodes` from x, of n FLOAT elements, to y.
fn model(nodes: Vec<NodeProto>) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, ["n".into()]));
    graph.output.push(ValueInfoProto::tensor_with("y", DataType::Float, ["n".into()]));
    graph.node = nodes;
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21), OperatorSetIdProto::new("my", 1)];
    model
}

fn machine(model: ModelProto, registry: Registry, limits: RunLimits) -> Machine {
    let program = Program::new(&Container::new(model), ProgramOptions::new()).unwrap();
    Machine::new(program, registry, limits)
}

fn floats(elements: &[f32]) -> Value {
    Value::from_elements([i64::try_from(elements.len()).unwrap()], elements).unwrap()
}

fn in_domain(domain: &str, mut node: NodeProto) -> NodeProto {
    node.domain = Some(domain.into());
    node
}

/// A Loop from x to y whose condition is always true.
fn endless() -> NodeProto {
    let mut body = GraphProto::new("body");
    for (name, dtype) in [("i", DataType::Int64), ("go", DataType::Bool), ("v", DataType::Float)] {
        body.input.push(ValueInfoProto::tensor_with(name, dtype, []));
    }
    body.node.push(NodeProto::new("Abs", ["v"], ["w"]));
    for (name, dtype) in [("go", DataType::Bool), ("w", DataType::Float)] {
        body.output.push(ValueInfoProto::tensor_with(name, dtype, []));
    }
    let mut node = NodeProto::new("Loop", ["", "", "x"], ["y"]);
    node.attribute.push(AttributeProto::graph("body", body));
    node
}

#[test]
fn nodes_run_in_topological_order_whatever_the_order_of_the_graph() {
    let nodes = vec![NodeProto::new("Neg", ["a"], ["y"]), NodeProto::new("Abs", ["x"], ["a"])];
    let mut machine = machine(model(nodes), Registry::new(), RunLimits::new());
    for _ in 0..2 {
        machine.bind("x", floats(&[-1.0, 2.0])).unwrap();
        let ops: Vec<_> =
            std::iter::from_fn(|| machine.step().unwrap()).map(|step| step.op).collect();
        assert_eq!(ops, ["Abs", "Neg"]);
        assert_eq!(machine.value("y").unwrap(), floats(&[-1.0, -2.0]));
        // What nothing needs any more is not in memory.
        assert_eq!(machine.value("a").unwrap_err().kind(), ErrorKind::NoValue);
        assert_eq!(machine.memory().high_water(), 8);
        machine.reset();
    }
}

#[test]
fn inputs_are_held_to_what_the_graph_declares() {
    let mut graph = model(vec![NodeProto::new("Add", ["x", "z"], ["y"])]);
    let input = ValueInfoProto::tensor_with("z", DataType::Float, ["n".into()]);
    graph.graph.as_mut().unwrap().input.push(input);
    let mut machine = machine(graph, Registry::new(), RunLimits::new());
    machine.bind("x", floats(&[1.0, 2.0])).unwrap();
    let double = Value::from_elements([1], &[1.0_f64]).unwrap();
    let matrix = Value::from_elements([1, 2], &[1.0_f32, 2.0]).unwrap();
    let cases = [
        ("w", floats(&[]), ErrorKind::Input, "value `w`: the graph has no such input; it has x, z"),
        ("x", floats(&[]), ErrorKind::Input, "value `x`: the input is given twice"),
        (
            "z",
            double,
            ErrorKind::Type,
            "value `z`: the graph declares tensor(FLOAT), the value is tensor(DOUBLE)",
        ),
        (
            "z",
            matrix,
            ErrorKind::Shape,
            "value `z`: the graph declares 1 dimensions, the shape is [1, 2]",
        ),
        ("z", floats(&[1.0]), ErrorKind::Shape, "value `z`: dimension 0 (`n`) is 1 in [1], not 2"),
    ];
    for (name, value, kind, text) in cases {
        let error = machine.bind(name, value).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
    }
    let error = machine.run().unwrap_err();
    assert_eq!(error.to_string(), "value `z`: the input is missing");
}

#[test]
fn a_dimension_that_is_called_a_question_mark_has_any_size() {
    for (name, fits) in [("n", false), ("?", true)] {
        let mut proto = model(vec![NodeProto::new("Abs", ["x"], ["y"])]);
        let dims = [name.into(), name.into()];
        proto.graph.as_mut().unwrap().input[0] =
            ValueInfoProto::tensor_with("x", DataType::Float, dims);
        let mut machine = machine(proto, Registry::new(), RunLimits::new());
        let value = Value::from_elements([1, 2], &[1.0_f32, 2.0]).unwrap();
        assert_eq!(machine.bind("x", value).is_ok(), fits, "{name}");
    }
}

#[test]
fn an_error_says_which_step_and_node_of_which_operator() {
    let mut reshape = NodeProto::new("Gather", ["x", "x"], ["y"]);
    reshape.name = Some("pick".into());
    let mut machine = machine(model(vec![reshape]), Registry::new(), RunLimits::new());
    machine.bind("x", floats(&[1.0])).unwrap();
    let error = machine.run().unwrap_err();
    let text = "step 0: node `pick` (Gather): the operator does not take elements of type FLOAT as input 1 (`indices`)";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Type, text));
}

#[test]
fn a_loop_that_does_not_end_reaches_the_limit_of_steps() {
    let mut machine = machine(model(vec![endless()]), Registry::new(), RunLimits::new().steps(10));
    machine.bind("x", floats(&[1.0])).unwrap();
    let error = machine.run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSteps);
    assert_eq!((error.step(), error.op()), (Some("0/Loop[4]/0"), Some("Abs")));
}

#[test]
fn a_run_does_not_exceed_its_memory() {
    let nodes = vec![NodeProto::new("Softmax", ["x"], ["y"])];
    let mut machine =
        machine(model(nodes), Registry::new(), RunLimits::new().memory_bytes(1 << 20));
    let mib = vec![0.0; 200_000];
    machine.bind("x", floats(&mib)).unwrap();
    let error = machine.run().unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::OutOfMemory, Some("0")));
}

/// A bound value lies outside of M until the first step places it, with or without a plan.
#[test]
fn an_input_that_the_memory_has_no_room_for_is_an_error_of_the_first_step() {
    for planning in [None, Some(PlanOptions::new())] {
        let nodes = vec![NodeProto::new("Abs", ["x"], ["y"])];
        let limits = RunLimits::new().memory_bytes(1 << 10);
        let machine = machine(model(nodes), Registry::new(), limits);
        let mut machine = machine.planning(planning);
        machine.bind("x", floats(&[0.0; 300])).unwrap();
        assert_eq!(machine.memory().live_bytes(), 0);
        assert_eq!(machine.value("x").unwrap(), floats(&[0.0; 300]));
        // The value is still bound, so that the error stays the same.
        for _ in 0..2 {
            let error = machine.step().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{planning:?}");
            assert!(error.to_string().starts_with("value `x`: the memory would need"), "{error}");
        }
    }
}

/// A Loop whose body makes `w` of `v` by `op`, endlessly; `w` is carried, or else collected.
fn endless_with(op: &str, inputs: &[&str], ty: &ValueInfoProto, is_carried: bool) -> NodeProto {
    let named = |name: &str, ty: &ValueInfoProto| {
        let mut info = ty.clone();
        info.name = Some(name.into());
        info
    };
    let mut body = GraphProto::new("body");
    body.input.push(ValueInfoProto::tensor_with("i", DataType::Int64, []));
    body.input.push(ValueInfoProto::tensor_with("go", DataType::Bool, []));
    body.input.push(named("v", ty));
    body.node.push(NodeProto::new(op, inputs.to_vec(), ["w"]));
    body.output.push(ValueInfoProto::tensor_with("go", DataType::Bool, []));
    body.output.push(named(if is_carried { "w" } else { "v" }, ty));
    let mut outputs = vec!["last"];
    if !is_carried {
        body.output.push(named("w", ty));
        outputs.push("all");
    }
    let mut node = NodeProto::new("Loop", ["", "", "start"], outputs);
    node.attribute.push(AttributeProto::graph("body", body));
    node
}

#[test]
fn what_lies_outside_of_the_memory_is_bounded_too() {
    let mut inner = type_proto::Sequence::default();
    inner.elem_type = ValueInfoProto::tensor("", DataType::Float, [-1]).r#type;
    let mut ty = TypeProto::default();
    ty.value = Some(type_proto::Value::SequenceType(Box::new(inner)));
    let mut sequence = ValueInfoProto::default();
    sequence.r#type = Some(Box::new(ty));
    let string = ValueInfoProto::tensor("", DataType::String, [1]);
    let float = ValueInfoProto::tensor_with("", DataType::Float, ["n".into()]);
    let start = |op: &str, input: &str| NodeProto::new(op, [input], ["start"]);
    let many = {
        let mut node = NodeProto::new("Constant", [""; 0], ["shape"]);
        node.attribute.push(AttributeProto::ints("value_ints", vec![1_i64 << 40]));
        vec![node, NodeProto::new("Expand", ["text", "shape"], ["y"])]
    };
    let cases = [
        ("more strings than fit", many, RunLimits::new()),
        (
            "a string that doubles",
            vec![
                start("Identity", "text"),
                endless_with("StringConcat", &["v", "v"], &string, true),
            ],
            RunLimits::new().memory_bytes(1 << 16),
        ),
        (
            "a sequence that grows",
            vec![
                start("SequenceConstruct", "x"),
                endless_with("SequenceInsert", &["v", "x"], &sequence, true),
            ],
            RunLimits::new().memory_bytes(1 << 16),
        ),
        (
            "what a loop collects",
            vec![start("Identity", "x"), endless_with("Neg", &["v"], &float, false)],
            RunLimits::new().memory_bytes(1 << 16),
        ),
    ];
    for (what, nodes, limits) in cases {
        let mut proto = model(nodes);
        let graph = proto.graph.as_mut().unwrap();
        graph.input.push(ValueInfoProto::tensor("text", DataType::String, [1]));
        graph.output.clear();
        let limits = limits.steps(5000);
        let mut machine = machine(proto, Registry::new(), limits);
        machine.bind("x", floats(&[1.0; 16])).unwrap();
        let text = Tensor::from_strings([1], vec![Buffer::from(&b"text"[..])]).unwrap();
        machine.bind("text", text.into()).unwrap();
        let error = machine.run().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{what}: {error}");
    }
}

/// y = 3, of the shape of x.
#[derive(Debug)]
struct Three;

impl Kernel for Three {
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>> {
        Ok(vec![OutSpec::tensor(DataType::Float, call.shape(0)?)])
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<()> {
        cx.output::<f32>(0)?.fill(3.0);
        Ok(())
    }
}

#[test]
fn a_kernel_of_the_user_comes_before_a_built_in_one() {
    let nodes = vec![NodeProto::new("Abs", ["x"], ["a"]), NodeProto::new("Neg", ["a"], ["y"])];
    for (since, expected) in [(13, -3.0), (22, -1.0)] {
        let mut registry = Registry::new();
        registry.register("ai.onnx", "Abs", since, Three);
        let mut machine = machine(model(nodes.clone()), registry, RunLimits::new());
        machine.bind("x", floats(&[1.0])).unwrap();
        assert_eq!(machine.run().unwrap(), [("y".to_owned(), floats(&[expected]))]);
    }
}

#[test]
fn every_node_without_a_kernel_is_named_before_a_run() {
    let nodes = vec![
        in_domain("my", NodeProto::new("First", ["x"], ["a"])),
        NodeProto::new("Abs", ["a"], ["b"]),
        in_domain("my", NodeProto::new("Second", ["b"], ["y"])),
    ];
    let machine = machine(model(nodes), Registry::new(), RunLimits::new());
    let error = machine.check_runnable().unwrap_err();
    let found: Vec<_> = error.related().iter().map(|error| (error.step(), error.op())).collect();
    let expected = [(Some("0"), Some("my::First")), (Some("2"), Some("my::Second"))];
    assert_eq!((error.kind(), found.as_slice()), (ErrorKind::UnsupportedOp, expected.as_slice()));
}

#[test]
fn a_graph_that_cannot_run_is_refused() {
    let cases = [
        (vec![NodeProto::new("Abs", ["q"], ["y"])], "value `q`: nothing computes the value"),
        (
            vec![NodeProto::new("Add", ["x", "b"], ["a"]), NodeProto::new("Abs", ["a"], ["b"])],
            "the node depends on its own output",
        ),
        (
            vec![NodeProto::new("Abs", ["x"], ["y"]), NodeProto::new("Neg", ["x"], ["y"])],
            "value `y`: two nodes compute the value",
        ),
        (
            vec![in_domain("other", NodeProto::new("Abs", ["x"], ["y"]))],
            "the model imports no version of domain `other`",
        ),
    ];
    for (nodes, text) in cases {
        let error = Program::new(&Container::new(model(nodes)), ProgramOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModel);
        assert!(error.to_string().ends_with(text), "{error}");
    }
}

#[test]
fn weights_are_borrowed_from_the_container() {
    use onnx_container::proto::TensorProto;

    let mut model = model(vec![NodeProto::new("Identity", ["w"], ["y"])]);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    let mut container = Container::new(model);
    container.insert("#w", vec![1.0_f32, 2.0]).unwrap();
    let bytes = container.get("#w").unwrap().as_buffer().unwrap();
    let program = Program::new(&container, ProgramOptions::new()).unwrap();
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    machine.bind("x", floats(&[])).unwrap();
    assert!(machine.step().unwrap().is_none());
    let y = machine.program().main.value("y").unwrap();
    let Some(onnx_container_machine::Entry::Tensor(slot)) = machine.table().get(y) else {
        panic!()
    };
    let read = machine.memory().read(slot.span().unwrap()).unwrap();
    assert_eq!(read.as_ptr(), bytes.as_ptr());
    assert_eq!(machine.memory().high_water(), 0);
}

/// Of version 8: what lies behind the length of a sequence is no part of it, and a reversed scan
/// begins at its end.
#[test]
fn a_reversed_scan_begins_at_the_end_of_each_sequence() {
    let info = |name: &str, dtype, dims: &[i64]| {
        let dims: Vec<_> = dims.iter().map(|dim| (*dim).into()).collect();
        ValueInfoProto::tensor_with(name, dtype, dims)
    };
    let mut body = GraphProto::new("body");
    body.input = vec![info("s", DataType::Float, &[]), info("e", DataType::Float, &[])];
    body.output = vec![info("t", DataType::Float, &[]), info("r", DataType::Float, &[])];
    body.node =
        vec![NodeProto::new("Sub", ["e", "s"], ["t"]), NodeProto::new("Identity", ["e"], ["r"])];
    let x = Value::from_elements([2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let cases = [
        (0, [1, 3], [1.0_f32, 5.0], [1.0_f32, 0.0, 0.0, 4.0, 5.0, 6.0]),
        (1, [1, 3], [1.0, 5.0], [1.0, 0.0, 0.0, 6.0, 5.0, 4.0]),
        (1, [2, 0], [-1.0, 0.0], [2.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
    ];
    for (direction, lens, states, results) in cases {
        let mut node = NodeProto::new("Scan", ["lens", "first", "x"], ["last", "all"]);
        node.attribute = vec![
            AttributeProto::graph("body", body.clone()),
            AttributeProto::int("num_scan_inputs", 1),
            AttributeProto::ints("directions", [direction]),
        ];
        let mut graph = GraphProto::new("g");
        graph.input = vec![
            info("lens", DataType::Int64, &[2]),
            info("first", DataType::Float, &[2]),
            info("x", DataType::Float, &[2, 3]),
        ];
        graph.output =
            vec![info("last", DataType::Float, &[2]), info("all", DataType::Float, &[2, 3])];
        graph.node = vec![node];
        let mut model = ModelProto::new(graph);
        model.opset_import = vec![OperatorSetIdProto::new("", 8)];
        let mut machine = machine(model, Registry::new(), RunLimits::new());
        machine.bind("lens", Value::from_elements([2], &lens.map(i64::from)).unwrap()).unwrap();
        machine.bind("first", floats(&[0.0, 0.0])).unwrap();
        machine.bind("x", x.clone()).unwrap();
        machine.run().unwrap();
        assert_eq!(machine.value("last").unwrap(), floats(&states), "{direction} {lens:?}");
        let all = Value::from_elements([2, 3], &results).unwrap();
        assert_eq!(machine.value("all").unwrap(), all, "{direction} {lens:?}");
    }
}
