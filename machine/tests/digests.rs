//! The digests of a trace: whatever a run does with its memory, they are those of the bytes at each
//! step.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "tests")]

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{Container, DataType};
use onnx_container_machine::trace::{Trace, TraceOptions, TraceWriter};
use onnx_container_machine::{
    Call, Kernel, Machine, Memory, OutSpec, Program, ProgramOptions, Registry, Result, RunCx,
    RunLimits, StepRecord, Touched, Value,
};
use sha2::{Digest as _, Sha256};

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A model of `nodes` from x to y.
fn model(nodes: Vec<NodeProto>) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, ["n".into()]));
    graph.output.push(ValueInfoProto::tensor_with("y", DataType::Float, ["n".into()]));
    let ints = |name: &str, value: i64| {
        let bytes = value.to_le_bytes().to_vec();
        TensorProto::new(name, TensorProto::INT64, [1_i64]).with_raw_data(bytes)
    };
    graph.initializer = vec![ints("trips", 3), ints("flat", -1)];
    graph.node = nodes;
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

/// y = 2 x, written over x where nothing else needs it.
#[derive(Debug)]
struct Twice;

impl Kernel for Twice {
    fn infer(&self, call: &Call<'_>) -> Result<Vec<OutSpec>> {
        Ok(vec![OutSpec::tensor(DataType::Float, call.shape(0)?)])
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<()> {
        let doubles: Vec<f32> = cx.input::<f32>(0)?.iter().map(|x| x + x).collect();
        cx.output::<f32>(0)?.copy_from_slice(&doubles);
        Ok(())
    }
}

/// A Loop of three iterations from `a` to `b`, which carries v and collects u.
fn looped() -> NodeProto {
    let mut body = GraphProto::new("body");
    let inputs = [("i", DataType::Int64), ("go", DataType::Bool), ("v", DataType::Float)];
    let outputs = [("go", DataType::Bool), ("t", DataType::Float), ("u", DataType::Float)];
    for (infos, names) in [(&mut body.input, inputs), (&mut body.output, outputs)] {
        infos.extend(names.map(|(name, dtype)| ValueInfoProto::tensor(name, dtype, None)));
    }
    body.node = vec![
        NodeProto::new("Add", ["v", "x"], ["s"]),
        NodeProto::new("Neg", ["s"], ["t"]),
        NodeProto::new("Abs", ["t"], ["u"]),
    ];
    let mut node = NodeProto::new("Loop", ["trips", "", "a"], ["b", "all"]);
    node.attribute.push(AttributeProto::graph("body", body));
    node
}

/// Models from x to y whose steps write over their inputs, share bytes, use a place again, and
/// more.
fn busy_models() -> Vec<Vec<NodeProto>> {
    let node = |op: &str, inputs: &[&str], output: &str| {
        NodeProto::new(op, inputs.iter().copied(), [output])
    };
    let in_place = vec![
        node("Add", &["x", "x"], "a"),
        node("Neg", &["a"], "b"),
        node("Abs", &["b"], "c"),
        node("Mul", &["c", "c"], "d"),
        node("Sub", &["d", "x"], "y"),
    ];
    let views = vec![
        node("Add", &["x", "x"], "a"),
        node("Flatten", &["a"], "b"),
        node("Identity", &["b"], "c"),
        node("Neg", &["c"], "d"),
        node("Flatten", &["d"], "e"),
        node("Abs", &["e"], "f"),
        node("Reshape", &["f", "flat"], "y"),
    ];
    let places = vec![
        node("Concat", &["x", "x"], "a"),
        node("Neg", &["x"], "b"),
        node("Concat", &["b", "a"], "c"),
        node("Concat", &["b", "b"], "d"),
        node("Exp", &["b"], "e"),
        node("ReduceSum", &["c"], "f"),
        node("ReduceSum", &["d"], "g"),
        node("Add", &["f", "g"], "h"),
        node("Add", &["h", "e"], "y"),
    ];
    let own =
        vec![node("Add", &["x", "x"], "a"), node("Relu", &["a"], "b"), node("Relu", &["b"], "y")];
    let loops = vec![
        node("Neg", &["x"], "a"),
        looped(),
        node("ReduceSum", &["all"], "sum"),
        node("Add", &["b", "a"], "c"),
        node("Add", &["c", "sum"], "y"),
    ];
    let late = vec![
        node("Neg", &["x"], "a"),
        node("NonZero", &["a"], "where"),
        node("Cast", &["where"], "floats"),
        node("ReduceSum", &["floats"], "sum"),
        node("Abs", &["a"], "b"),
        node("Add", &["b", "sum"], "c"),
        node("Add", &["c", "a"], "y"),
    ];
    vec![in_place, views, places, own, loops, late]
}

/// The digest of the bytes that a step read or wrote, which this test computes itself.
fn digests(record: &StepRecord, memory: &Memory) -> Vec<Option<String>> {
    let digest = |value: &Touched| value.bytes(memory).unwrap().map(sha);
    record.reads.iter().chain(&record.writes).map(digest).collect()
}

/// The trace of a run that does not keep what it writes over.
fn run(container: &Container, machine: &mut Machine) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut trace = TraceWriter::new(&mut lines, container, machine, TraceOptions::new()).unwrap();
    trace.run(machine).unwrap();
    trace.finish(machine).unwrap();
    lines
}

/// Tensors that are hashed at once and some that take a thread; twice, as the memory of a run is
/// used again.
#[test]
fn every_digest_is_that_of_the_bytes_at_that_step() {
    for mut nodes in busy_models() {
        for node in nodes.iter_mut().filter(|node| *node.op_type.as_ref().unwrap() == *"Cast") {
            node.attribute.push(AttributeProto::int("to", DataType::Float.number().into()));
        }
        for node in nodes.iter_mut().filter(|node| *node.op_type.as_ref().unwrap() == *"Concat") {
            node.attribute.push(AttributeProto::int("axis", 0));
        }
        let container = Container::new(model(nodes));
        let mut registry = Registry::new();
        registry.register("ai.onnx", "Relu", 6, Twice);
        let program = Program::new(&container, ProgramOptions::new()).unwrap();
        let mut machine = Machine::new(program, registry, RunLimits::new());
        for len in [3_usize, 5000, 5000, 40_000] {
            let x: Vec<f32> = (0..len).map(|i| (i % 91) as f32 - len as f32).collect();
            let x = Value::from_elements([i64::try_from(len).unwrap()], &x).unwrap();
            machine.reset();
            machine.bind("x", x.clone()).unwrap();
            let (mut lines, mut expected) = (Vec::new(), Vec::new());
            let options = TraceOptions::new();
            let mut trace =
                TraceWriter::new(&mut lines, &container, &mut machine, options).unwrap();
            machine
                .run_with(&mut |step, memory| {
                    expected.push(digests(step, memory));
                    trace.step(step, memory)
                })
                .unwrap();
            trace.finish(&machine).unwrap();
            machine.reset();
            machine.bind("x", x).unwrap();
            assert_eq!(
                String::from_utf8(run(&container, &mut machine)),
                String::from_utf8(lines.clone())
            );
            let trace = Trace::read(&lines[..]).unwrap();
            assert_eq!(trace.steps.len(), expected.len());
            for (step, expected) in trace.steps.iter().zip(expected) {
                let values = step.inputs.iter().chain(&step.outputs);
                for (value, expected) in values.zip(expected) {
                    let expected = expected.unwrap_or_else(|| value.sha.clone());
                    assert_eq!(
                        value.sha, expected,
                        "{} of {} at {}",
                        value.name, step.op, step.path
                    );
                }
            }
            let y = machine.value("y").unwrap();
            assert_eq!(trace.end.outputs[0].sha, sha(y.tensor().unwrap().as_bytes().unwrap()));
        }
    }
}
