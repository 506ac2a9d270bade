//! Small models, whose traces are the same everywhere.

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{Container, DataType};
use onnx_container_machine::trace::{Trace, TraceOptions, TraceWriter};
use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits, Value};

/// A line for each model: its name and the last link of the chain of its trace.
pub fn lines() -> impl Iterator<Item = String> {
    [
        ("a perceptron whose logarithm is no number", perceptron()),
        ("a loop whose state overflows", overflow()),
    ]
    .into_iter()
    .map(|(name, model)| format!("{name}\t{}", chain(&model)))
}

fn weights(name: &str, dims: &[i64]) -> TensorProto {
    let count: i64 = dims.iter().product();
    let number = |i: i64| ((i * 7919 % 1013) as f32 / 337.0 - 1.5).to_le_bytes();
    let bytes: Vec<u8> = (0..count).flat_map(number).collect();
    TensorProto::new(name, TensorProto::FLOAT, dims.to_vec()).with_raw_data(bytes)
}

fn graph(nodes: Vec<NodeProto>, initializers: Vec<TensorProto>) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, [3.into(), 16.into()]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, None));
    graph.initializer = initializers;
    graph.node = nodes;
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

fn perceptron() -> ModelProto {
    let mut to_half = NodeProto::new("Cast", ["h"], ["half"]);
    to_half.attribute.push(AttributeProto::int("to", 10));
    let mut to_float = NodeProto::new("Cast", ["soft"], ["wide"]);
    to_float.attribute.push(AttributeProto::int("to", 1));
    let nodes = vec![
        NodeProto::new("MatMul", ["x", "w"], ["a"]),
        NodeProto::new("Log", ["a"], ["h"]),
        to_half,
        NodeProto::new("Softmax", ["half"], ["soft"]),
        to_float,
        NodeProto::new("Gelu", ["a"], ["g"]),
        NodeProto::new("LayerNormalization", ["g", "scale"], ["n"]),
        NodeProto::new("Add", ["n", "wide"], ["y"]),
    ];
    graph(nodes, vec![weights("w", &[16, 32]), weights("scale", &[32])])
}

fn overflow() -> ModelProto {
    let mut body = GraphProto::new("body");
    let inputs = [("i", DataType::Int64), ("go", DataType::Bool), ("v", DataType::Float)];
    let outputs = [("go", DataType::Bool), ("t", DataType::Float)];
    for (infos, names) in [(&mut body.input, &inputs[..]), (&mut body.output, &outputs[..])] {
        infos.extend(names.iter().map(|(name, dtype)| ValueInfoProto::tensor(*name, *dtype, None)));
    }
    body.node =
        vec![NodeProto::new("Mul", ["v", "v"], ["u"]), NodeProto::new("Sub", ["u", "v"], ["t"])];
    let mut node = NodeProto::new("Loop", ["trips", "", "x"], ["y"]);
    node.attribute.push(AttributeProto::graph("body", body));
    let bytes = 9_i64.to_le_bytes().to_vec();
    let trips = TensorProto::new("trips", TensorProto::INT64, [1_i64]).with_raw_data(bytes);
    graph(vec![node], vec![trips])
}

fn chain(model: &ModelProto) -> String {
    let container = Container::new(model.clone());
    let program = Program::new(&container, ProgramOptions::new()).unwrap();
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    let x: Vec<f32> = (0..48_u16).map(|i| f32::from(i * 37 % 101) / 25.0 - 2.0).collect();
    machine.bind("x", Value::from_elements([3, 16], &x).unwrap()).unwrap();
    let mut lines = Vec::new();
    let mut trace =
        TraceWriter::new(&mut lines, &container, &mut machine, TraceOptions::new()).unwrap();
    trace.run(&mut machine).unwrap();
    trace.finish(&machine).unwrap();
    Trace::read(&lines[..]).unwrap().end.chain.unwrap()
}
