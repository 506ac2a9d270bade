//! Random models with branches and loops whose values share names: cast, they pass the check, and
//! compute the same.
//!
//! All numbers are small integers, which FLOAT16 and BFLOAT16 have, so the same is equal.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::collections::BTreeSet;

use onnx_container::check::check_model;
use onnx_container::edit::CastOptions;
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{Container, DataType, MmapChoice};
use onnx_container_machine::{Machine, Program, ProgramOptions, Registry, RunLimits, Type, Value};
use proptest::prelude::*;

/// Names of values. Several are those that a cast would give.
const NAMES: [&str; 8] = ["y", "z", "a", "b", "x_float16", "a_float16", "y_float", "w_bfloat16"];

/// Makes a model of the numbers.
struct Maker {
    numbers: Vec<u16>,
    /// The values of each graph around the point, all vectors of FLOAT, and other names.
    scopes: Vec<Vec<String>>,
    used: BTreeSet<String>,
    count: usize,
}

impl Maker {
    fn below(&mut self, end: usize) -> usize {
        usize::from(self.numbers.pop().unwrap_or_default()) % end
    }

    /// A name that no node, or no input, has here.
    fn name(&mut self, may_hide: bool) -> String {
        let name = NAMES[self.below(NAMES.len())].to_owned();
        let here = self.scopes.len() - 1;
        let scopes = if may_hide { &self.scopes[here..] } else { &self.scopes[..] };
        self.count += 1;
        let is_free = scopes.iter().flatten().all(|other| *other != name);
        let name = if is_free { name } else { format!("v{}", self.count) };
        self.used.insert(name.clone());
        name
    }

    /// Some value.
    fn value(&mut self) -> String {
        let values: Vec<_> = self.scopes.iter().flatten().cloned().collect();
        values[self.below(values.len())].clone()
    }

    fn define(&mut self, name: &str) {
        self.scopes.last_mut().unwrap().push(name.to_owned());
    }

    /// Nodes, of which the last one gives the returned value.
    fn nodes(&mut self) -> (Vec<NodeProto>, String) {
        let count = 1 + self.below(3);
        let mut nodes: Vec<_> = (0..count).map(|_| self.node()).collect();
        let last = self.plain();
        let output = last.output[0].to_string();
        nodes.push(last);
        (nodes, output)
    }

    fn node(&mut self) -> NodeProto {
        match self.below(6) {
            0 | 1 if self.scopes.len() < 3 => self.branches(),
            2 | 3 if self.scopes.len() < 3 => self.looped(),
            _ => self.plain(),
        }
    }

    fn plain(&mut self) -> NodeProto {
        let op = ["Add", "Sub", "Max", "Neg", "Abs"][self.below(5)];
        let mut inputs = vec![self.value()];
        match op {
            "Add" | "Sub" => inputs.push("w".to_owned()),
            "Max" => inputs.push(self.value()),
            _ => {}
        }
        let output = self.name(false);
        self.define(&output);
        NodeProto::new(op, inputs.iter().map(String::as_str), [output.as_str()])
    }

    fn branches(&mut self) -> NodeProto {
        let graphs = ["then_branch", "else_branch"].map(|name| {
            self.scopes.push(Vec::new());
            let graph = self.filled(GraphProto::new("branch"));
            self.scopes.pop();
            AttributeProto::graph(name, graph)
        });
        let output = self.name(false);
        self.define(&output);
        let mut node = NodeProto::new("If", ["c"], [output.as_str()]);
        node.attribute = graphs.into();
        node
    }

    /// A loop of two turns.
    fn looped(&mut self) -> NodeProto {
        let first = self.value();
        self.scopes.push(Vec::new());
        let carried = self.name(true);
        self.define(&carried);
        let [turn, before, after] = ["i", "on", "go"].map(|name| format!("{name}{}", self.count));
        let mut body = GraphProto::new("body");
        let flag = |name: &str| ValueInfoProto::tensor(name, DataType::Bool, []);
        body.input = vec![
            ValueInfoProto::tensor(&*turn, DataType::Int64, []),
            flag(&before),
            float(&carried),
        ];
        let mut body = self.filled(body);
        self.scopes.pop();
        body.output.insert(0, flag(&after));
        body.node.push(NodeProto::new("Identity", [before.as_str()], [after.as_str()]));
        let output = self.name(false);
        self.define(&output);
        let mut node = NodeProto::new("Loop", ["two", "", first.as_str()], [output.as_str()]);
        node.attribute = vec![AttributeProto::graph("body", body)];
        node
    }

    /// `graph` with a weight, nodes and an output.
    fn filled(&mut self, mut graph: GraphProto) -> GraphProto {
        if self.below(3) == 0 {
            let name = self.name(true);
            self.define(&name);
            graph.initializer.push(weight(&name, [2.0, 1.0]));
        }
        let (nodes, output) = self.nodes();
        graph.node = nodes;
        graph.output.push(float(&output));
        graph
    }

    fn model(mut self) -> ModelProto {
        self.scopes.push(["x", "w"].map(str::to_owned).into());
        let mut graph = GraphProto::new("main");
        graph.input = vec![float("x"), ValueInfoProto::tensor("c", DataType::Bool, [])];
        let two = TensorProto::new("two", TensorProto::INT64, []);
        let two = two.with_raw_data(2_i64.to_le_bytes().to_vec());
        graph.initializer = vec![weight("w", [1.0, -1.0]), two];
        let mut graph = self.filled(graph);
        // Another output, and declared types, some of which are of no value.
        let made: Vec<_> = graph.node.iter().map(|node| node.output[0].to_string()).collect();
        let other = &made[self.below(made.len())];
        if *graph.output[0].name.as_ref().unwrap() != **other {
            graph.output.push(float(other));
        }
        for name in made.iter().filter(|_| self.below(2) == 0).collect::<Vec<_>>() {
            graph.value_info.push(float(name));
        }
        let unused = NAMES.iter().filter(|name| !self.used.contains(**name));
        graph
            .value_info
            .extend(unused.map(|name| ValueInfoProto::tensor(*name, DataType::Int64, [3])));
        let mut model = ModelProto::new(graph);
        model.ir_version = Some(10);
        model.opset_import = vec![OperatorSetIdProto::new("", 21)];
        model
    }
}

fn float(name: &str) -> ValueInfoProto {
    ValueInfoProto::tensor(name, DataType::Float, [2])
}

fn weight(name: &str, elements: [f32; 2]) -> TensorProto {
    let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
    TensorProto::new(name, TensorProto::FLOAT, [2]).with_raw_data(bytes)
}

/// What the model gives for a condition, as FLOAT.
fn run(model: &ModelProto, condition: bool) -> Vec<(String, Vec<f32>)> {
    let program = Program::new(&Container::new(model.clone()), ProgramOptions::new()).unwrap();
    let mut machine = Machine::new(program, Registry::new(), RunLimits::new());
    machine.bind("c", Value::from_elements([], &[condition]).unwrap()).unwrap();
    machine.bind("x", input(model)).unwrap();
    let outputs = machine.run().unwrap();
    outputs.into_iter().map(|(name, value)| (name, floats(&value))).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    let tensor = value.tensor().unwrap();
    match tensor.dtype() {
        DataType::Float16 => {
            tensor.to_slice::<half::f16>().unwrap().iter().map(|one| one.to_f32()).collect()
        }
        DataType::Bfloat16 => {
            tensor.to_slice::<half::bf16>().unwrap().iter().map(|one| one.to_f32()).collect()
        }
        _ => tensor.to_slice::<f32>().unwrap().to_vec(),
    }
}

/// The input `x` of the type that the model declares.
fn input(model: &ModelProto) -> Value {
    let declared = model.graph.as_ref().unwrap().input[0].r#type.as_ref().unwrap();
    let all = [1.0_f32, -2.0];
    match Type::from_proto(declared).unwrap() {
        Type::Tensor(DataType::Float16) => {
            Value::from_elements([2], &all.map(half::f16::from_f32)).unwrap()
        }
        Type::Tensor(DataType::Bfloat16) => {
            Value::from_elements([2], &all.map(half::bf16::from_f32)).unwrap()
        }
        _ => Value::from_elements([2], &all).unwrap(),
    }
}

/// What a check finds.
fn errors(model: &ModelProto) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
    let checked = check_model(&path, MmapChoice::never()).unwrap();
    checked.errors().map(|finding| finding.error.to_string()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn cast_models_compute_the_same(
        numbers in prop::collection::vec(any::<u16>(), 0..120),
        to in prop::sample::select(vec![DataType::Float16, DataType::Bfloat16]),
        (compute, keep_io, keep_abs) in any::<(bool, bool, bool)>(),
    ) {
        let scopes = Vec::new();
        let model = Maker { numbers, scopes, used: BTreeSet::new(), count: 0 }.model();
        prop_assert_eq!(errors(&model), Vec::<String>::new());
        let mut container = Container::new(model.clone());
        let options = CastOptions::new().min_bytes(0).compute(compute).keep_io(keep_io);
        let options = if keep_abs { options.keep_ops(["Abs"]) } else { options };
        container.cast(to, options).unwrap();
        let cast = container.model();
        prop_assert_eq!(errors(cast), Vec::<String>::new());
        for condition in [true, false] {
            prop_assert_eq!(run(&model, condition), run(cast, condition));
        }
    }
}
