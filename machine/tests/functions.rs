//! Local functions that the inliner leaves, because their operators mean something else at the
//! model's versions.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use onnx_container::load::Limit;
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Str,
    ValueInfoProto,
};
use onnx_container::{Container, DataType, Limits};
use onnx_container_machine::{
    Call, ErrorKind, Kernel, Machine, OutSpec, Program, ProgramOptions, Registry, Result, RunCx,
    RunLimits, Value,
};

/// `name` of the domain `local`, whose nodes are those of ONNX at `version`.
fn function(
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    version: i64,
    nodes: Vec<NodeProto>,
) -> FunctionProto {
    let mut function = FunctionProto::new("local", name);
    function.input = inputs.iter().map(|name| Str::from(*name)).collect();
    function.output = outputs.iter().map(|name| Str::from(*name)).collect();
    function.opset_import =
        vec![OperatorSetIdProto::new("", version), OperatorSetIdProto::new("local", 1)];
    function.node = nodes;
    function
}

fn call(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let mut node = NodeProto::new(name, inputs.iter().copied(), outputs.iter().copied());
    node.domain = Some("local".into());
    node
}

fn op(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto::new(name, inputs.iter().copied(), outputs.iter().copied())
}

/// A model of ONNX 21 from x, FLOAT [2, 3, 4], to y.
fn model(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> Container {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [2, 3, 4]));
    let mut y = ValueInfoProto::default();
    y.name = Some("y".into());
    graph.output.push(y);
    graph.node = nodes;
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21), OperatorSetIdProto::new("local", 1)];
    model.functions = functions;
    Container::new(model)
}

fn x() -> Value {
    let elements: Vec<f32> = (0_u8..24).map(|i| f32::from(i) * 0.25 - 3.0).collect();
    Value::from_elements([2, 3, 4], &elements).unwrap()
}

fn machine(container: &Container, options: ProgramOptions, registry: Registry) -> Machine {
    let mut machine =
        Machine::new(Program::new(container, options).unwrap(), registry, RunLimits::new());
    machine.bind("x", x()).unwrap();
    machine
}

fn y(container: &Container) -> Value {
    let mut machine = machine(container, ProgramOptions::new(), Registry::new());
    machine.check_runnable().unwrap();
    machine.run().unwrap().remove(0).1
}

/// Softmax of version 11: over all dimensions from `axis` on, 1 unless the call says another.
fn softmax() -> FunctionProto {
    let mut node = op("Softmax", &["a"], &["b"]);
    let mut axis = AttributeProto::int("axis", 0);
    (axis.i, axis.ref_attr_name) = (None, Some("along".into()));
    node.attribute.push(axis);
    let mut softmax = function("softmax", &["a"], &["b"], 11, vec![node]);
    softmax.attribute_proto.push(AttributeProto::int("along", 1));
    softmax
}

/// The same by operators that mean the same in all versions.
fn flat_softmax(from: &str, to: &str, axis: i64) -> Vec<NodeProto> {
    let [flat, soft, shape] = ["flat", "soft", "shape"].map(|part| format!("{to}_{part}"));
    let mut flatten = op("Flatten", &[from], &[&flat]);
    flatten.attribute.push(AttributeProto::int("axis", axis));
    vec![
        flatten,
        op("Softmax", &[&flat], &[&soft]),
        op("Shape", &[from], &[&shape]),
        op("Reshape", &[&soft, &shape], &[to]),
    ]
}

fn with(mut node: NodeProto, attribute: AttributeProto) -> NodeProto {
    node.attribute.push(attribute);
    node
}

/// Nodes that call functions, the functions, and nodes that compute the same without them.
type Case = (&'static str, Vec<NodeProto>, Vec<FunctionProto>, Vec<NodeProto>);

fn cases() -> Vec<Case> {
    let nested = function(
        "twice",
        &["p"],
        &["r"],
        13,
        vec![call("softmax", &["p"], &["q"]), op("Softmax", &["q"], &["r"])],
    );
    let optional = function(
        "clipped",
        &["p", "low", "high"],
        &["s", "r"],
        11,
        vec![op("Softmax", &["p"], &["s"]), op("Clip", &["s", "low", "high"], &["r"])],
    );
    let same = function(
        "same",
        &["p", "q"],
        &["r"],
        11,
        vec![op("Softmax", &["p"], &["s"]), op("Add", &["s", "q"], &["r"])],
    );
    let branch = |nodes: Vec<NodeProto>| {
        let mut graph = GraphProto::new("branch");
        graph.node = nodes;
        let mut output = ValueInfoProto::default();
        output.name = Some("z".into());
        graph.output.push(output);
        graph
    };
    let chosen = |nodes: Vec<NodeProto>| {
        let condition = op("ReduceMax", &["x"], &["most"]);
        let condition = with(condition, AttributeProto::int("keepdims", 0));
        let cast = with(
            op("Cast", &["most"], &["if"]),
            AttributeProto::int("to", DataType::Bool.number().into()),
        );
        let choice = with(
            op("If", &["if"], &["y"]),
            AttributeProto::graph("then_branch", branch(nodes.clone())),
        );
        let choice = with(choice, AttributeProto::graph("else_branch", branch(nodes)));
        vec![condition, cast, choice]
    };
    // Its value `t` is not the one that the graph of the call captures.
    let mut body = op("If", &["if"], &["r"]);
    for name in ["then_branch", "else_branch"] {
        let mut given = AttributeProto::graph(name, GraphProto::default());
        (given.g, given.ref_attr_name) = (None, Some("given".into()));
        body.attribute.push(given);
    }
    let cast = with(
        op("Cast", &["u"], &["if"]),
        AttributeProto::int("to", DataType::Bool.number().into()),
    );
    let most = with(op("ReduceMax", &["t"], &["u"]), AttributeProto::int("keepdims", 0));
    let mut applied = function(
        "applied",
        &["p"],
        &["r"],
        11,
        vec![op("Softmax", &["p"], &["t"]), most, cast, body],
    );
    applied.attribute.push("given".into());
    let graph = || AttributeProto::graph("given", branch(vec![op("Neg", &["t"], &["z"])]));
    let joined = |mut nodes: Vec<NodeProto>, last: NodeProto| {
        nodes.push(last);
        nodes
    };
    vec![
        (
            "a default",
            vec![call("softmax", &["x"], &["y"])],
            vec![softmax()],
            flat_softmax("x", "y", 1),
        ),
        (
            "an attribute of the call",
            vec![with(call("softmax", &["x"], &["y"]), AttributeProto::int("along", 2))],
            vec![softmax()],
            flat_softmax("x", "y", 2),
        ),
        (
            "a function that calls one of another version",
            vec![call("twice", &["x"], &["y"])],
            vec![nested, softmax()],
            joined(flat_softmax("x", "q", 1), op("Softmax", &["q"], &["y"])),
        ),
        (
            "left out inputs and outputs",
            vec![call("clipped", &["x", "", ""], &["", "y"])],
            vec![optional.clone()],
            flat_softmax("x", "y", 1),
        ),
        (
            "only the first output",
            vec![call("clipped", &["x"], &["y"])],
            vec![optional],
            flat_softmax("x", "y", 1),
        ),
        (
            "one value twice",
            vec![call("same", &["x", "x"], &["y"])],
            vec![same.clone()],
            joined(flat_softmax("x", "s", 1), op("Add", &["s", "x"], &["y"])),
        ),
        (
            "a graph in an attribute",
            vec![op("Abs", &["x"], &["t"]), with(call("applied", &["x"], &["y"]), graph())],
            vec![applied],
            vec![op("Abs", &["x"], &["t"]), op("Neg", &["t"], &["y"])],
        ),
        (
            "two calls, one in a branch that captures",
            chosen(vec![call("softmax", &["x"], &["s"]), call("same", &["s", "x"], &["z"])]),
            vec![softmax(), same],
            chosen(joined(
                [flat_softmax("x", "s", 1), flat_softmax("s", "t", 1)].concat(),
                op("Add", &["t", "x"], &["z"]),
            )),
        ),
    ]
}

#[test]
fn calls_that_stay_compute_what_their_functions_do() {
    for (what, calls, functions, plain) in cases() {
        let container = model(calls, functions);
        let inlined = onnx_container::inline::inline_functions(
            &mut container.model().clone(),
            onnx_container::inline::InlineOptions::new(),
        );
        assert!(!inlined.unwrap().kept.is_empty(), "{what}: every function was inlined");
        assert_eq!(y(&container), y(&model(plain, Vec::new())), "{what}");
    }
}

/// A kernel whose output is 3 everywhere.
#[derive(Debug)]
struct Three;

impl Kernel for Three {
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>> {
        Ok(vec![OutSpec::tensor(call.dtype(0)?, call.shape(0)?)])
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<()> {
        cx.output::<f32>(0)?.fill(3.0);
        Ok(())
    }
}

#[test]
fn a_kernel_of_the_user_comes_before_the_function() {
    // Its body cannot run, which does not matter where it has a kernel.
    let nodes = vec![op("Softmax", &["a"], &["c"]), op("NoSuchOperator", &["c"], &["b"])];
    let container =
        model(vec![call("f", &["x"], &["y"])], vec![function("f", &["a"], &["b"], 11, nodes)]);
    let unknown = machine(&container, ProgramOptions::new(), Registry::new());
    let error = unknown.check_runnable().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOp);
    assert_eq!(error.op(), Some("NoSuchOperator"));
    let mut registry = Registry::new();
    registry.register("local", "f", 1, Three);
    let mut known = machine(&container, ProgramOptions::new(), registry);
    known.check_runnable().unwrap();
    let threes = Value::from_elements([2, 3, 4], &[3.0_f32; 24]).unwrap();
    assert_eq!(known.run().unwrap(), [("y".to_owned(), threes)]);
}

/// A function that could be inlined stays for a kernel, and has its body where no kernel is.
#[test]
fn a_call_that_is_kept_has_its_function_where_it_has_no_kernel() {
    let nodes = vec![op("Abs", &["a"], &["c"]), op("Neg", &["c"], &["b"])];
    let functions = vec![function("f", &["a"], &["b"], 21, nodes)];
    let container = model(vec![call("f", &["x"], &["y"])], functions);
    let options = || ProgramOptions::new().keep("local", "f");
    let mut kept = machine(&container, options(), Registry::new());
    kept.check_runnable().unwrap();
    let mut steps = Vec::new();
    let outputs = kept.run_with(&mut |step, _| {
        steps.push((step.path.clone(), step.op.clone()));
        Ok(())
    });
    let expected = [("0/f/0", "Abs"), ("0/f/1", "Neg"), ("0", "local::f")];
    assert_eq!(steps, expected.map(|(path, op)| (path.to_owned(), op.to_owned())));
    assert_eq!(outputs.unwrap().remove(0).1, y(&container));
    let mut registry = Registry::new();
    registry.register("local", "f", 1, Three);
    let mut known = machine(&container, options(), registry);
    let threes = Value::from_elements([2, 3, 4], &[3.0_f32; 24]).unwrap();
    assert_eq!(known.run().unwrap()[0].1, threes);
}

/// A graph in an attribute of any name is not the body of a call.
#[test]
fn a_model_cannot_give_a_node_the_body_of_a_call() {
    let mut graph = GraphProto::new("body");
    graph.node.push(op("Neg", &["x"], &["z"]));
    let mut output = ValueInfoProto::default();
    output.name = Some("z".into());
    graph.output.push(output);
    let node = with(op("Abs", &["x"], &["y"]), AttributeProto::graph("function body", graph));
    let error = Program::new(&model(vec![node], Vec::new()), ProgramOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidModel);
    assert!(error.to_string().contains("no operator has an attribute"), "{error}");
}

/// Each function calls the one before it twice, with versions in turn, so that no call is inlined.
#[test]
fn functions_that_multiply_are_refused() {
    let function_of = |i: usize| {
        let (name, callee) = (format!("f{i}"), format!("f{}", i.saturating_sub(1)));
        let step = |from: &str, to: &str| match i {
            0 => op("Softmax", &[from], &[to]),
            _ => call(&callee, &[from], &[to]),
        };
        let mut nodes = vec![step("a", "c"), step("c", "d"), op("Softmax", &["d"], &["e0"])];
        nodes.extend((0..200).map(|j| op("Abs", &[&format!("e{j}")], &[&format!("e{}", j + 1)])));
        let version = if i.is_multiple_of(2) { 11 } else { 13 };
        function(&name, &["a"], &["e200"], version, nodes)
    };
    let container = model(vec![call("f59", &["x"], &["y"])], (0..60).map(function_of).collect());
    let error = Program::new(&container, ProgramOptions::new()).unwrap_err();
    assert!(error.to_string().contains("the limit `program` can be raised"), "{error}");
}

/// An attribute of a call is there once more for each node that refers to it, whether the call is
/// inlined or stays.
#[test]
fn what_calls_give_is_counted_before_there_is_a_copy() {
    let reading = |i: usize| {
        let mut list = AttributeProto::ints("list", []);
        list.ref_attr_name = Some("list".into());
        let output = if i == 0 { "b".to_owned() } else { format!("b{i}") };
        with(op("Softmax", &["a"], &[&output]), list)
    };
    for version in [21, 11] {
        let reads = (0..2_000).map(reading).collect();
        let f = function("f", &["a"], &["b"], version, reads);
        let list = AttributeProto::ints("list", vec![1; 50_000]);
        let container = model(vec![with(call("f", &["x"], &["y"]), list)], vec![f]);
        let limits = Limits::new();
        for (limits, named) in [
            (limits, "program"),
            (limits.with(Limit::Program, 300 << 20), "program"),
            (limits.with(Limit::Program, u64::MAX).with(Limit::Calls, 100 << 20), "calls"),
        ] {
            let error = Program::new(&container, ProgramOptions::new().limits(limits)).unwrap_err();
            let source = error.container_error().unwrap();
            assert_eq!(source.kind(), onnx_container::ErrorKind::TooLarge, "{version}: {error}");
            let named = format!("the limit `{named}` can be raised");
            assert!(error.to_string().contains(&named), "{version}: {error}");
        }
    }
}
