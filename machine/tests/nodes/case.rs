//! A model of one node with the values of its inputs, and what becomes of it.

use onnx_container::proto::type_proto::{self, Value as TypeValue};
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto,
    ValueInfoProto,
};
use onnx_container::{Buffer, Container, DataType, Tensor};
use onnx_container_machine::plan::PlanOptions;
use onnx_container_machine::{
    Machine, Map, Program, ProgramOptions, Registry, Result, RunLimits, Type, Value,
};

use crate::schemas::Schema;

/// The most bytes and steps of a run.
const MEMORY: u64 = 1 << 20;
const STEPS: u64 = 500;

/// A node, with the values of its inputs.
#[derive(Debug, Clone)]
pub struct Case {
    pub domain: &'static str,
    pub name: &'static str,
    pub version: i64,
    pub attributes: Vec<AttributeProto>,
    /// `None` where one is left out.
    pub inputs: Vec<Option<Input>>,
    pub outputs: usize,
}

/// An input of a node: a constant of the model, or an input of it.
#[derive(Debug, Clone)]
pub struct Input {
    pub value: Value,
    pub is_constant: bool,
}

impl Case {
    pub fn new(schema: &Schema) -> Self {
        Self {
            domain: schema.domain,
            name: schema.name,
            version: schema.since,
            attributes: Vec::new(),
            inputs: Vec::new(),
            outputs: 1,
        }
    }

    /// The model.
    pub fn model(&self) -> ModelProto {
        let names: Vec<_> = (0..self.inputs.len()).map(|i| format!("x{i}")).collect();
        let is_there = |i: usize| self.inputs[i].is_some();
        let inputs = names.iter().enumerate();
        let inputs = inputs.map(|(i, name)| if is_there(i) { name.as_str() } else { "" });
        let outputs: Vec<_> = (0..self.outputs).map(|j| format!("y{j}")).collect();
        let mut node = NodeProto::new(self.name, inputs, outputs.iter().map(String::as_str));
        node.domain = Some(self.domain.into());
        node.attribute = self.attributes.clone();
        let mut graph = GraphProto::new("g");
        for (name, input) in names.iter().zip(&self.inputs) {
            match input {
                Some(Input { value: Value::Tensor(tensor), is_constant: true }) => {
                    graph.initializer.push(tensor.to_proto(name));
                }
                Some(Input { value, .. }) => graph.input.push(declared(name, value)),
                None => {}
            }
        }
        graph.output = outputs.iter().map(|name| named(name)).collect();
        graph.node = vec![node];
        let mut model = ModelProto::new(graph);
        model.ir_version = Some(10);
        model.opset_import = vec![OperatorSetIdProto::new(self.domain, self.version)];
        if !self.domain.is_empty() {
            model.opset_import.push(OperatorSetIdProto::new("", 21));
        }
        model
    }

    /// A machine for the model, before its first input is bound.
    pub fn machine(&self) -> Result<Machine> {
        let options = ProgramOptions::new().fold_bytes(1 << 14);
        let program = Program::new(&Container::new(self.model()), options)?;
        let limits = RunLimits::new().memory_bytes(MEMORY).steps(STEPS);
        Ok(Machine::new(program, Registry::new(), limits).planning(Some(PlanOptions::new())))
    }

    /// The outputs.
    pub fn run(&self) -> Result<Vec<(String, Value)>> {
        let mut machine = self.machine()?;
        for (i, input) in self.inputs.iter().enumerate() {
            let Some(Input { value, is_constant }) = input else { continue };
            if !is_constant || value.tensor().is_err() {
                machine.bind(&format!("x{i}"), value.clone())?;
            }
        }
        machine.run()
    }
}

fn named(name: &str) -> ValueInfoProto {
    let mut value = ValueInfoProto::default();
    value.name = Some(name.into());
    value
}

fn declared(name: &str, value: &Value) -> ValueInfoProto {
    let mut declared = named(name);
    declared.r#type = Some(Box::new(match value {
        Value::Tensor(tensor) => TypeProto::tensor(tensor.dtype(), tensor.dims().iter().copied()),
        value => proto(&value.ty()),
    }));
    declared
}

/// The message of a type, without shapes.
pub fn proto(ty: &Type) -> TypeProto {
    let mut message = TypeProto::default();
    message.value = Some(match ty {
        Type::Tensor(dtype) => {
            let mut tensor = type_proto::Tensor::default();
            tensor.elem_type = Some(dtype.number());
            TypeValue::TensorType(Box::new(tensor))
        }
        Type::Sequence(element) => {
            let mut sequence = type_proto::Sequence::default();
            sequence.elem_type = Some(Box::new(proto(element)));
            TypeValue::SequenceType(Box::new(sequence))
        }
        Type::Optional(element) => {
            let mut optional = type_proto::Optional::default();
            optional.elem_type = Some(Box::new(proto(element)));
            TypeValue::OptionalType(Box::new(optional))
        }
        Type::Map(key, value) => {
            let mut map = type_proto::Map::default();
            map.key_type = Some(key.number());
            map.value_type = Some(Box::new(proto(&Type::Tensor(*value))));
            TypeValue::MapType(Box::new(map))
        }
        other => panic!("no message for {other}"),
    });
    message
}

/// A tensor of these numbers, the last of which repeats; of strings, letters. `None` where `dims`
/// are too many.
pub fn tensor(dtype: DataType, dims: &[i64], numbers: &[f64]) -> Option<Tensor> {
    let count = onnx_container::element_count(dims).ok().filter(|count| *count <= 1 << 12)?;
    let count = usize::try_from(count).ok()?;
    let number = |i: usize| numbers.get(i).or(numbers.last()).copied().unwrap_or(0.0);
    let numbers = (0..count).map(number);
    if dtype == DataType::String {
        let letter = |number: f64| Buffer::from(vec![b'0' + (number.abs() % 10.0) as u8]);
        return Tensor::from_strings(dims, numbers.map(letter).collect()).ok();
    }
    let Some(bits @ 8..) = dtype.bit_width() else {
        let codes: Vec<_> = numbers.map(|number| number as i64 as u8).collect();
        let mask = (1_u16 << dtype.bit_width()?) - 1;
        let codes: Vec<_> = codes.into_iter().map(|code| code & mask as u8).collect();
        return Tensor::pack(dtype, dims, &codes).ok();
    };
    let floats: Vec<_> = numbers.clone().map(|number| number as f32).collect();
    if let Ok(tensor) = Tensor::from_f32(dtype, dims, &floats) {
        return Some(tensor);
    }
    let bytes = |number: f64| match dtype {
        DataType::Double => number.to_le_bytes().to_vec(),
        DataType::Complex64 => [(number as f32).to_le_bytes(), [0; 4]].concat(),
        DataType::Complex128 => [number.to_le_bytes(), [0; 8]].concat(),
        DataType::Bool => vec![u8::from(number != 0.0)],
        DataType::Uint64 => (number as u64).to_le_bytes().to_vec(),
        _ => (number as i64).to_le_bytes()[..usize::from(bits / 8)].to_vec(),
    };
    Tensor::new(dtype, dims, Buffer::from(numbers.flat_map(bytes).collect::<Vec<_>>())).ok()
}

/// A value of type `ty`, whose tensors are this one's.
pub fn value(ty: &Type, dims: &[i64], numbers: &[f64]) -> Option<Value> {
    Some(match ty {
        Type::Tensor(dtype) => Value::Tensor(tensor(*dtype, dims, numbers)?),
        Type::Sequence(element) => {
            let one = value(element, dims, numbers)?;
            Value::Sequence((**element).clone(), vec![one.clone(), one])
        }
        Type::Optional(element) => {
            Value::Optional((**element).clone(), value(element, dims, numbers).map(Box::new))
        }
        Type::Map(key, of) => {
            let count = i64::try_from(numbers.len()).ok()?;
            let [keys, values] = [key, of].map(|dtype| tensor(*dtype, &[count], numbers));
            Value::Map(Map::new(keys?, values?).ok()?)
        }
        _ => return None,
    })
}

/// A tensor attribute's message.
pub fn tensor_proto(dtype: DataType, dims: &[i64], numbers: &[f64]) -> Option<TensorProto> {
    Some(tensor(dtype, dims, numbers)?.to_proto(""))
}

/// A graph for an attribute of a node with as many `inputs`: `constant` computes one value,
/// `identity` gives its inputs, `loop` all except the first, and `scan` has one input less.
pub fn graph(kind: &str, inputs: usize) -> GraphProto {
    let mut graph = GraphProto::new(kind);
    let names: Vec<_> = (0..inputs).map(|i| format!("in{i}")).collect();
    if kind == "constant" {
        let mut node = NodeProto::new("Constant", [""; 0], ["out0"]);
        let value = tensor_proto(DataType::Float, &[2, 3], &[1.0]).unwrap();
        node.attribute = vec![AttributeProto::tensor("value", value)];
        graph.node = vec![node];
        graph.output = vec![named("out0")];
        return graph;
    }
    graph.input = names.iter().skip(usize::from(kind == "scan")).map(|name| named(name)).collect();
    graph.output = graph.input.iter().skip(usize::from(kind == "loop")).cloned().collect();
    graph
}
