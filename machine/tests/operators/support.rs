//! Models of one node, and their outputs.

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};
use onnx_container::{Container, Element};
use onnx_container_machine::{Limits, Machine, Program, ProgramOptions, Registry, Result, Value};

pub fn tensor<T: Element>(dims: impl Into<Vec<i64>>, elements: &[T]) -> Value {
    Value::from_elements(dims, elements).unwrap()
}

/// The outputs of one node of operator `op` at version `version`. A domain is written in front: `my::Op`.
pub fn outputs(
    (op, version): (&str, i64),
    attributes: &[AttributeProto],
    inputs: &[Value],
    count: usize,
) -> Result<Vec<Value>> {
    let (domain, op) = op.split_once("::").unwrap_or(("", op));
    let names = |prefix: &str, n: usize| (0..n).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let (ins, outs) = (names("x", inputs.len()), names("y", count));
    let mut node =
        NodeProto::new(op, ins.iter().map(String::as_str), outs.iter().map(String::as_str));
    node.domain = Some(domain.into());
    node.attribute = attributes.to_vec();
    let mut graph = GraphProto::new("g");
    for (name, value) in ins.iter().zip(inputs) {
        let tensor = value.tensor().unwrap();
        let dims = tensor.shape().into_iter().map(|dim| i64::try_from(dim).unwrap().into());
        let dims: Vec<_> = dims.collect();
        graph.input.push(ValueInfoProto::tensor_with(name.as_str(), tensor.dtype(), dims));
    }
    for name in &outs {
        let mut output = ValueInfoProto::default();
        output.name = Some(name.as_str().into());
        graph.output.push(output);
    }
    graph.node = vec![node];
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new(domain, version)];
    let program = Program::new(&Container::new(model), ProgramOptions::new())?;
    let mut machine = Machine::new(program, Registry::new(), Limits::new());
    for (name, value) in ins.iter().zip(inputs) {
        machine.bind(name, value.clone())?;
    }
    machine.run()?;
    outs.iter().map(|name| machine.value(name)).collect()
}

/// The output of a node that has one.
pub fn output(op: (&str, i64), attributes: &[AttributeProto], inputs: &[Value]) -> Result<Value> {
    Ok(outputs(op, attributes, inputs, 1)?.remove(0))
}
