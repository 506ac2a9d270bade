//! Models of one node, and their outputs.

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto,
    ValueInfoProto, type_proto,
};
use onnx_container::{Container, Element};
use onnx_container_machine::{
    Machine, Map, Profile, Program, ProgramOptions, Registry, Result, RunLimits, Value,
};

pub fn tensor<T: Element>(dims: impl Into<Vec<i64>>, elements: &[T]) -> Value {
    Value::from_elements(dims, elements).unwrap()
}

fn map_input(name: &str, map: &Map) -> ValueInfoProto {
    let mut of = type_proto::Map::default();
    of.key_type = Some(map.keys().dtype().number());
    of.value_type = Some(Box::new(TypeProto::tensor(map.values().dtype(), [])));
    let mut ty = TypeProto::default();
    ty.value = Some(type_proto::Value::MapType(Box::new(of)));
    let mut input = ValueInfoProto::default();
    (input.name, input.r#type) = (Some(name.into()), Some(Box::new(ty)));
    input
}

/// The outputs of one node of operator `op` at version `version`. A domain is written in front:
/// `my::Op`.
pub fn outputs(
    op: (&str, i64),
    attributes: &[AttributeProto],
    inputs: &[Value],
    count: usize,
) -> Result<Vec<Value>> {
    outputs_within(RunLimits::new(), op, attributes, inputs, count)
}

/// As [`outputs`], within limits.
pub fn outputs_within(
    limits: RunLimits,
    op: (&str, i64),
    attributes: &[AttributeProto],
    inputs: &[Value],
    count: usize,
) -> Result<Vec<Value>> {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    outputs_of((limits, Profile::Strict), op, attributes, &inputs, count)
}

/// As [`outputs`], within limits and in a profile, of inputs that may be left out.
pub fn outputs_of(
    (limits, profile): (RunLimits, Profile),
    (op, version): (&str, i64),
    attributes: &[AttributeProto],
    inputs: &[Option<Value>],
    count: usize,
) -> Result<Vec<Value>> {
    let (domain, op) = op.split_once("::").unwrap_or(("", op));
    let name = |(i, value): (usize, &Option<Value>)| match value {
        Some(_) => format!("x{i}"),
        None => String::new(),
    };
    let ins: Vec<_> = inputs.iter().enumerate().map(name).collect();
    let outs: Vec<_> = (0..count).map(|i| format!("y{i}")).collect();
    let mut node =
        NodeProto::new(op, ins.iter().map(String::as_str), outs.iter().map(String::as_str));
    node.domain = Some(domain.into());
    node.attribute = attributes.to_vec();
    let mut graph = GraphProto::new("g");
    let given = || ins.iter().zip(inputs).filter_map(|(name, value)| Some((name, value.as_ref()?)));
    for (name, value) in given() {
        let tensor = match value {
            Value::Map(map) => {
                graph.input.push(map_input(name, map));
                continue;
            }
            value => value.tensor().unwrap(),
        };
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
    let mut machine = Machine::new(program, Registry::of(profile), limits);
    for (name, value) in given() {
        machine.bind(name, value.clone())?;
    }
    machine.run()?;
    outs.iter().map(|name| machine.value(name)).collect()
}

/// The output of a node with one input, which is an initializer if it is to be `folded`, in profile
/// `fast` or strict.
pub fn output_of(
    (op, version): (&str, i64),
    attributes: &[AttributeProto],
    input: &Value,
    fast: bool,
    folded: bool,
) -> Result<Value> {
    let mut node = NodeProto::new(op, ["x"], ["y"]);
    node.attribute = attributes.to_vec();
    let mut graph = GraphProto::new("g");
    let tensor = input.tensor().unwrap();
    let dims: Vec<i64> = tensor.shape().into_iter().map(|dim| dim.try_into().unwrap()).collect();
    if folded {
        let bytes = tensor.as_bytes().unwrap().to_vec();
        let number = i32::from(tensor.dtype());
        graph.initializer.push(TensorProto::new("x", number, dims).with_raw_data(bytes));
    } else {
        let dims: Vec<_> = dims.into_iter().map(Into::into).collect();
        graph.input.push(ValueInfoProto::tensor_with("x", tensor.dtype(), dims));
    }
    let mut output = ValueInfoProto::default();
    output.name = Some("y".into());
    graph.output.push(output);
    graph.node = vec![node];
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", version)];
    let program = Program::new(&Container::new(model), ProgramOptions::new())?;
    assert_eq!(program.folded().len(), usize::from(folded));
    let profile = if fast { Profile::Fast } else { Profile::Strict };
    let mut machine = Machine::new(program, Registry::of(profile), RunLimits::new());
    if !folded {
        machine.bind("x", input.clone())?;
    }
    machine.run()?;
    machine.value("y")
}

/// The output of a node that has one.
pub fn output(op: (&str, i64), attributes: &[AttributeProto], inputs: &[Value]) -> Result<Value> {
    Ok(outputs(op, attributes, inputs, 1)?.remove(0))
}
