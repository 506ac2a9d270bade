//! The nodes of a body: operators that engines run, one that takes anything, and calls.

use onnx_container::proto::{
    AttributeProto, GraphProto, NodeDeviceConfigurationProto, NodeProto, ShardingSpecProto, Str,
    StringStringEntryProto, TensorProto,
};

use super::body::{Body, Kind};
use super::{AttributeKind, Generator, Signature};
use crate::support::node;

/// Nodes that one body may become.
const MAX_SIZE: usize = 300;
/// Graphs that may lie in one another.
const MAX_DEPTH: usize = 3;

impl Generator {
    /// Adds a node or two.
    pub fn step(&mut self, body: &mut Body) {
        if self.steps == 0 {
            return self.unary(body, Kind::Vector);
        }
        self.steps -= 1;
        match self.choices.below(20) {
            0 | 1 => self.unary(body, Kind::Vector),
            2 | 3 => self.binary(body),
            4 => self.leaky(body),
            5 => self.clip(body),
            6 => self.concat_and_split(body),
            7 => drop(self.constant(body, Kind::Vector)),
            8 => self.dead_constant(body),
            9 | 10 => self.conditional(body),
            11 => self.repeat(body),
            12 => self.scan(body),
            13 if self.anything() => self.any(body),
            _ => self.call(body),
        }
    }

    /// Adds a node; where an output has no kind, its name is left out. Gives the names.
    fn emit(
        &mut self,
        body: &mut Body,
        op_type: &str,
        inputs: &[String],
        outputs: &[Option<Kind>],
        attributes: Vec<AttributeProto>,
    ) -> Vec<String> {
        let inputs: Vec<_> = inputs.iter().map(String::as_str).collect();
        let mut node = node(op_type, &inputs, &[], attributes);
        self.decorate(&mut node);
        self.push(body, node, outputs)
    }

    fn push(
        &mut self,
        body: &mut Body,
        mut node: NodeProto,
        outputs: &[Option<Kind>],
    ) -> Vec<String> {
        let mut names = Vec::new();
        for kind in outputs {
            let name = kind.map(|kind| body.compute(&mut self.choices, kind)).unwrap_or_default();
            node.output.push(Str::from(&name));
            names.push(name);
        }
        if self.odd(5) {
            let values: Vec<_> = node.input.iter().chain(&node.output).cloned().collect();
            let values: Vec<_> = values.into_iter().filter(|name| !name.is_empty()).collect();
            let mut spec = ShardingSpecProto::default();
            spec.tensor_name = (!values.is_empty()).then(|| self.choices.pick(&values).clone());
            let mut devices = NodeDeviceConfigurationProto::default();
            devices.sharding_spec =
                spec.tensor_name.is_some().then_some(spec).into_iter().collect();
            node.device_configurations.push(devices);
        }
        body.size += 1;
        body.nodes.push(node);
        names
    }

    /// A name for a node: any, and the same twice if it comes so; engines want them all different.
    fn node_name(&mut self) -> String {
        let name = Body::node_name(&mut self.choices);
        let number = self.choices.next;
        if self.anything() { name } else { format!("{name} {number}") }
    }

    fn decorate(&mut self, node: &mut NodeProto) {
        if self.choices.chance(40) {
            node.name = Some(self.node_name().into());
        }
        if self.choices.chance(10) {
            node.doc_string = Some("why it is there".into());
        }
        if self.choices.chance(20) {
            let (key, value) = (*self.choices.pick(&["k1", "k2"]), *self.choices.pick(&["u", "v"]));
            node.metadata_props.push(StringStringEntryProto::new(key, value));
        }
        if node.domain.is_none() && self.odd(5) {
            node.domain = Some("ai.onnx".into());
        }
    }

    /// A value of this kind; a constant where there is none.
    fn value(&mut self, body: &mut Body, kind: Kind) -> String {
        let known = body.take(&mut self.choices, kind, false);
        known.unwrap_or_else(|| self.constant(body, kind))
    }

    /// A value that is left out, or may be.
    fn optional(&mut self, body: &mut Body, kind: Kind) -> String {
        if self.choices.chance(70) {
            body.take(&mut self.choices, kind, true).unwrap_or_default()
        } else {
            String::new()
        }
    }

    /// A value of this kind that a new node of this graph computes.
    pub fn fresh(&mut self, body: &mut Body, kind: Kind) -> String {
        match kind {
            Kind::Vector => {
                self.unary(body, kind);
                body.computed(kind).pop().unwrap()
            }
            _ => self.constant(body, kind),
        }
    }

    fn unary(&mut self, body: &mut Body, kind: Kind) {
        let operators = ["Abs", "Neg", "Relu", "Identity"];
        let operators: Vec<_> =
            operators.into_iter().filter(|op| self.banned != Some(*op)).collect();
        let input = self.value(body, kind);
        let op_type = *self.choices.pick(&operators);
        self.emit(body, op_type, &[input], &[Some(kind)], vec![]);
    }

    fn binary(&mut self, body: &mut Body) {
        let left = self.value(body, Kind::Vector);
        let kind = *self.choices.pick(&[Kind::Vector, Kind::Vector, Kind::Scalar]);
        let right = self.value(body, kind);
        let op_type = *self.choices.pick(&["Add", "Mul", "Sub"]);
        self.emit(body, op_type, &[left, right], &[Some(Kind::Vector)], vec![]);
    }

    fn leaky(&mut self, body: &mut Body) {
        let input = self.value(body, Kind::Vector);
        let mut attributes = Vec::new();
        if self.choices.chance(80) {
            attributes.push(self.attribute("alpha", AttributeKind::Float, true, body));
        }
        self.emit(body, "LeakyRelu", &[input], &[Some(Kind::Vector)], attributes);
    }

    fn clip(&mut self, body: &mut Body) {
        let input = self.value(body, Kind::Vector);
        let bounds = [self.optional(body, Kind::Scalar), self.optional(body, Kind::Scalar)];
        let [low, high] = bounds;
        self.emit(body, "Clip", &[input, low, high], &[Some(Kind::Vector)], vec![]);
    }

    fn concat_and_split(&mut self, body: &mut Body) {
        let inputs = [self.value(body, Kind::Vector), self.value(body, Kind::Vector)];
        let axis = self.attribute("axis", AttributeKind::Axis, false, body);
        let joined = self.emit(body, "Concat", &inputs, &[Some(Kind::Other)], vec![axis]);
        let skipped = if self.odd(30) { None } else { Some(Kind::Vector) };
        let halves = AttributeProto::int("num_outputs", 2);
        self.emit(body, "Split", &joined, &[skipped, Some(Kind::Vector)], vec![halves]);
    }

    fn constant(&mut self, body: &mut Body, kind: Kind) -> String {
        let value = match kind {
            Kind::Vector if self.choices.chance(30) => {
                self.attribute("value_floats", AttributeKind::Floats, false, body)
            }
            Kind::Scalar => self.attribute("value_float", AttributeKind::Float, false, body),
            Kind::Count => self.attribute("value_int", AttributeKind::Int, false, body),
            Kind::Bool => {
                let value = vec![self.choices.below(2) as u8];
                let tensor = TensorProto::new("", TensorProto::BOOL, vec![]).with_raw_data(value);
                AttributeProto::tensor("value", tensor)
            }
            Kind::Vector | Kind::Other => {
                self.attribute("value", AttributeKind::Tensor, false, body)
            }
        };
        self.emit(body, "Constant", &[], &[Some(kind)], vec![value]).remove(0)
    }

    fn dead_constant(&mut self, body: &mut Body) {
        let value = self.attribute("value_string", AttributeKind::String, false, body);
        self.emit(body, "Constant", &[], &[Some(Kind::Other)], vec![value]);
    }

    fn conditional(&mut self, body: &mut Body) {
        if body.depth >= MAX_DEPTH {
            return self.binary(body);
        }
        let condition = self.value(body, Kind::Bool);
        let mut outputs = vec![Some(Kind::Vector)];
        let mut attributes = Vec::new();
        if self.choices.chance(30) {
            outputs.push(Some(Kind::Vector));
        }
        for name in ["then_branch", "else_branch"] {
            let kinds = vec![Kind::Vector; outputs.len()];
            attributes.push(if outputs.len() == 1 {
                self.attribute(name, AttributeKind::Graph, false, body)
            } else {
                AttributeProto::graph(name, self.subgraph(body, &[], &kinds, false))
            });
        }
        self.emit(body, "If", &[condition], &outputs, attributes);
    }

    fn repeat(&mut self, body: &mut Body) {
        if body.depth >= MAX_DEPTH {
            return self.binary(body);
        }
        let trips = self.value(body, Kind::Count);
        let condition =
            if self.choices.chance(50) { self.value(body, Kind::Bool) } else { String::new() };
        let mut inputs = vec![trips, condition];
        let states = vec![Kind::Vector; 1 + self.choices.below(2)];
        for kind in &states {
            inputs.push(self.value(body, *kind));
        }
        let inner: Vec<_> = [Kind::Count, Kind::Bool].into_iter().chain(states.clone()).collect();
        let graph = self.subgraph(body, &inner, &inner[1..], true);
        let outputs: Vec<_> = states.into_iter().map(Some).collect();
        self.emit(body, "Loop", &inputs, &outputs, vec![AttributeProto::graph("body", graph)]);
    }

    fn scan(&mut self, body: &mut Body) {
        if body.depth >= MAX_DEPTH {
            return self.binary(body);
        }
        let inputs = [self.value(body, Kind::Vector), self.value(body, Kind::Vector)];
        let pass = self.anything();
        let graph = self.subgraph(body, &[Kind::Vector, Kind::Scalar], &[Kind::Vector], pass);
        let graph = AttributeProto::graph("body", graph);
        let attributes = vec![AttributeProto::int("num_scan_inputs", 1), graph];
        self.emit(body, "Scan", &inputs, &[Some(Kind::Vector)], attributes);
    }

    /// A graph in an attribute; `pass`: its outputs may be its inputs.
    pub fn subgraph(
        &mut self,
        outer: &mut Body,
        inputs: &[Kind],
        outputs: &[Kind],
        pass: bool,
    ) -> GraphProto {
        let mut body = outer.inside();
        let mut graph = GraphProto::new("inner");
        for kind in inputs {
            let name = body.define(&mut self.choices, *kind);
            graph.input.push(self.info(&name, *kind));
        }
        if self.choices.chance(30) {
            let name = body.define(&mut self.choices, Kind::Vector);
            graph.initializer.push(self.vector(&name));
        }
        if self.odd(15) {
            let name = body.define(&mut self.choices, Kind::Vector);
            graph.sparse_initializer.push(self.sparse(&name));
        }
        for _ in 0..self.choices.below(4) {
            self.step(&mut body);
        }
        for kind in outputs {
            let listed = |name: &String| graph.output.iter().any(|o| *o == kind.info(name));
            let own: Vec<_> = body.own(*kind).into_iter().filter(|name| !listed(name)).collect();
            let name = if pass && !own.is_empty() && self.choices.chance(60) {
                self.choices.pick(&own).clone()
            } else {
                self.computed(&mut body, *kind, &graph.output)
            };
            graph.output.push(kind.info(&name));
        }
        graph.node = std::mem::take(&mut body.nodes);
        self.declare(&mut graph, &body);
        outer.leave(&body);
        graph
    }

    /// An operator that is in no schema, with any inputs, outputs and attributes.
    fn any(&mut self, body: &mut Body) {
        let kinds = [Kind::Vector, Kind::Scalar, Kind::Bool, Kind::Count];
        let mut node = NodeProto::default();
        // The second has the name of a function, and an overload that no function has.
        let names = [("custom", "Any", ""), ("local", "f", "none"), ("custom", "Other", "a")];
        let (domain, op_type, overload) = *self.choices.pick(&names);
        (node.domain, node.op_type) = (Some(domain.into()), Some(op_type.into()));
        node.overload = (!overload.is_empty()).then(|| Box::new(overload.into()));
        for _ in 0..self.choices.below(4) {
            let kind = *self.choices.pick(&kinds);
            node.input.push(self.optional(body, kind).into());
        }
        for name in ["p", "q", "alpha", "value"].iter().take(self.choices.below(5)) {
            if body.depth < MAX_DEPTH {
                node.attribute.push(self.any_attribute(name, body));
            }
        }
        let count = self.choices.below(4);
        let outputs: Vec<_> =
            (0..count).map(|_| self.choices.chance(80).then_some(Kind::Vector)).collect();
        self.decorate(&mut node);
        self.push(body, node, &outputs);
    }

    fn call(&mut self, body: &mut Body) {
        let fits = |s: &&Signature| body.size + s.size <= MAX_SIZE;
        let fitting: Vec<_> = self.callable.iter().filter(fits).cloned().collect();
        if fitting.is_empty() {
            return self.binary(body);
        }
        let signature = self.choices.pick(&fitting).clone();
        let mut node = NodeProto::default();
        node.domain = signature.function.domain.clone();
        node.op_type = signature.function.name.clone();
        node.overload = signature.function.overload.clone();
        node.input = self.actuals(body, &signature);
        for parameter in signature.parameters.iter() {
            let deep = matches!(parameter.kind, AttributeKind::Graph | AttributeKind::Graphs)
                && body.depth > MAX_DEPTH;
            if parameter.required || !deep && self.choices.chance(50) {
                let (name, kind) = (parameter.name, parameter.kind);
                node.attribute.push(self.attribute(name, kind, !parameter.required, body));
            }
        }
        if self.odd(10) {
            node.attribute.push(AttributeProto::string("nobody asks", "why"));
        }
        self.decorate(&mut node);
        let outputs = self.taken(&signature);
        self.push(body, node, &outputs);
        body.size += signature.size;
    }

    fn actuals(&mut self, body: &mut Body, signature: &Signature) -> Vec<Str> {
        let mut names = Vec::new();
        for (kind, may_be_absent) in &signature.inputs {
            names.push(match may_be_absent {
                true => self.optional(body, *kind),
                false => self.value(body, *kind),
            });
        }
        while names.last().is_some_and(String::is_empty) && self.choices.chance(50) {
            names.pop();
        }
        names.into_iter().map(Str::from).collect()
    }

    /// The outputs that a call names: some of the first ones.
    fn taken(&mut self, signature: &Signature) -> Vec<Option<Kind>> {
        let all = signature.outputs.len();
        let count = if self.odd(30) { self.choices.below(all + 1) } else { all };
        let skip = |kind: &Option<Kind>| kind.filter(|_| !self.choices.chance(15));
        signature.outputs[..count].iter().map(skip).collect()
    }
}
