//! Random models with local functions that call each other, made to be hard to inline.
//!
//! Names are few and clash wherever the format lets them; inputs and outputs are left out;
//! attribute parameters go through calls and into subgraphs; calls stand at every depth. A model is
//! made of choices, numbers of which zero is always the simplest, so that a failing model shrinks
//! well. `body` knows which names may be used and given, `steps` makes nodes, `values` what is in
//! attributes.

mod body;
mod steps;
mod values;

use std::collections::BTreeSet;
use std::rc::Rc;

use onnx_container::proto::{
    FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Str,
    StringStringEntryProto, TrainingInfoProto, ValueInfoProto,
};

use self::body::{Body, Kind};
use self::values::{AttributeKind, Parameter};
use crate::flow::{domain, id_of_function, id_of_node, nodes_of, nodes_of_function, since, text};
use crate::support::model_of;

/// The numbers that a model is made of; after the last one they are zero.
#[derive(Debug, Clone)]
pub struct Choices {
    numbers: Vec<u16>,
    next: usize,
}

impl Choices {
    pub fn new(numbers: Vec<u16>) -> Self {
        Self { numbers, next: 0 }
    }

    /// As many choices as a model needs, by the generator SplitMix64.
    pub fn seeded(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) as u16
        };
        Self::new((0..3000).map(|_| next()).collect())
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let number = self.numbers.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        usize::from(number) % bound
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// What may be in a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// What engines run, and run right: no graph parameters, no outputs that are inputs.
    Runnable,
    /// All that the format allows.
    Anything,
}

/// A function as those who call it see it.
#[derive(Debug, Clone)]
struct Signature {
    function: FunctionProto,
    /// The kind of each input, and whether it may be left out.
    inputs: Vec<(Kind, bool)>,
    /// The kind of each output; `None` where there is none to be had.
    outputs: Vec<Option<Kind>>,
    parameters: Rc<[Parameter]>,
    /// Nodes, with those of the functions that it calls.
    size: usize,
}

pub struct Generator {
    choices: Choices,
    flavour: Flavour,
    callable: Vec<Signature>,
    /// Operators that would call the function that is being made.
    banned: Option<&'static str>,
    /// How many more nodes to make, roughly.
    steps: usize,
}

/// A model of these choices: valid, and small enough to be compared.
pub fn random_model(choices: Choices, flavour: Flavour) -> ModelProto {
    let (callable, banned) = (Vec::new(), None);
    Generator { choices, flavour, callable, banned, steps: 0 }.model()
}

impl Generator {
    fn anything(&self) -> bool {
        self.flavour == Flavour::Anything
    }

    /// A chance that only a model with everything has.
    fn odd(&mut self, percent: usize) -> bool {
        self.anything() && self.choices.chance(percent)
    }

    fn model(mut self) -> ModelProto {
        let version = *self.choices.pick(&[21, 22, 18, 20]);
        for index in 0..1 + self.choices.below(6) {
            self.steps = 10;
            let signature = self.function(index, version);
            self.callable.push(signature);
        }
        self.steps = 20;
        let mut main = Body::graph(!self.anything());
        let graph = self.main(&mut main);
        let mut model = model_of(graph, Vec::new());
        if self.odd(20) {
            model.training_info.push(self.training(&main));
        }
        model.functions = self.callable.iter().map(|s| s.function.clone()).collect();
        for i in (1..model.functions.len()).rev() {
            let j = self.choices.below(i + 1);
            model.functions.swap(i, j);
        }
        self.imports(&mut model, version);
        model
    }

    fn main(&mut self, body: &mut Body) -> GraphProto {
        let mut graph = GraphProto::new("main");
        for kind in [Kind::Vector, Kind::Vector, Kind::Bool] {
            let name = body.define(&mut self.choices, kind);
            graph.input.push(kind.info(&name));
        }
        for _ in 0..self.choices.below(3) {
            let name = body.define(&mut self.choices, Kind::Vector);
            graph.initializer.push(self.vector(&name));
            if self.odd(20) {
                graph.input.push(Kind::Vector.info(&name));
            }
        }
        for _ in 0..2 + self.choices.below(7) {
            self.step(body);
        }
        for _ in 0..1 + self.choices.below(3) {
            let name = self.computed(body, Kind::Vector, &graph.output);
            graph.output.push(Kind::Vector.info(&name));
        }
        graph.node = std::mem::take(&mut body.nodes);
        self.declare(&mut graph, body);
        graph
    }

    fn training(&mut self, main: &Body) -> TrainingInfoProto {
        let mut info = TrainingInfoProto::default();
        for (part, mut body) in [Body::graph(false), main.inside()].into_iter().enumerate() {
            self.steps = 4;
            let mut graph = GraphProto::new("training");
            let name = body.define(&mut self.choices, Kind::Vector);
            graph.initializer.push(self.vector(&name));
            for _ in 0..1 + self.choices.below(3) {
                self.step(&mut body);
            }
            let name = self.computed(&mut body, Kind::Vector, &[]);
            graph.output.push(Kind::Vector.info(&name));
            graph.node = std::mem::take(&mut body.nodes);
            let field = [&mut info.initialization, &mut info.algorithm];
            *field.into_iter().nth(part).unwrap() = Some(Box::new(graph));
        }
        info
    }

    /// A name for an output, of a value that the body itself defines, and not one of `taken`.
    fn computed(&mut self, body: &mut Body, kind: Kind, taken: &[ValueInfoProto]) -> String {
        let free = |name: &String| taken.iter().all(|info| text(&info.name) != *name.as_str());
        let own: Vec<_> = body.computed(kind).into_iter().filter(free).collect();
        if own.is_empty() { self.fresh(body, kind) } else { self.choices.pick(&own).clone() }
    }

    /// Types of some of the values of a graph, and an annotation.
    fn declare(&mut self, graph: &mut GraphProto, body: &Body) {
        let outputs: BTreeSet<_> = graph.output.iter().map(|output| text(&output.name)).collect();
        for (name, kind) in body.all_computed() {
            if self.choices.chance(20) && !outputs.contains(&Str::from(&name)) {
                graph.value_info.push(self.info(&name, kind));
            }
        }
        let names = body.names();
        if !names.is_empty() && self.odd(10) {
            let mut annotation = onnx_container::proto::TensorAnnotation::default();
            annotation.tensor_name = Some(self.choices.pick(&names).into());
            let scale = self.choices.pick(&names);
            let scale = StringStringEntryProto::new("SCALE_TENSOR", scale.as_str());
            annotation.quant_parameter_tensor_names.push(scale);
            graph.quantization_annotation.push(annotation);
        }
    }

    fn info(&mut self, name: &str, kind: Kind) -> ValueInfoProto {
        if kind == Kind::Vector && self.choices.chance(50) {
            let dim = *self.choices.pick(&["N", "M", "N__1"]);
            return ValueInfoProto::tensor_with(name, 1, [dim.into()]);
        }
        kind.info(name)
    }

    fn function(&mut self, index: usize, version: i64) -> Signature {
        let shadowing = index == 0 && self.odd(20);
        self.banned = shadowing.then_some("Neg");
        let parameters: Rc<[Parameter]> =
            if shadowing { [].into() } else { self.parameters().into() };
        let mut body = Body::function(parameters.clone(), self.odd(50), !self.anything());
        let mut function = self.named(shadowing);
        let mut inputs = Vec::new();
        for i in 0..if shadowing { 1 } else { self.choices.below(5) } {
            let kinds = [Kind::Vector, Kind::Scalar, Kind::Vector, Kind::Bool, Kind::Count];
            let kind = if shadowing { Kind::Vector } else { *self.choices.pick(&kinds) };
            let may_be_absent = !shadowing
                && (kind == Kind::Scalar || self.anything() && i > 0)
                && self.choices.chance(60);
            let name = body.define_formal(&mut self.choices, kind, may_be_absent);
            function.input.push(name.into());
            inputs.push((kind, may_be_absent));
        }
        for _ in 0..1 + self.choices.below(6) {
            self.step(&mut body);
        }
        let outputs = self.outputs(&mut body, &mut function, shadowing);
        let size = body.size.max(1);
        function.node = std::mem::take(&mut body.nodes);
        self.describe(&mut function, &body, &parameters);
        self.imports_of_function(&mut function, version);
        self.banned = None;
        Signature { function, inputs, outputs, parameters, size }
    }

    /// A function under a name of its own; `shadowing` an operator of ONNX.
    fn named(&mut self, shadowing: bool) -> FunctionProto {
        if shadowing {
            return FunctionProto::new(*self.choices.pick(&["", "ai.onnx"]), "Neg");
        }
        let domain = *self.choices.pick(&["local", "other", "local.f"]);
        let mut function = FunctionProto::new(domain, *self.choices.pick(&["f", "g", "f.f"]));
        let overload = *self.choices.pick(&["", "", "", "a", "b"]);
        function.overload = (!overload.is_empty()).then(|| Box::new(overload.into()));
        let id = id_of_function(&function);
        if self.callable.iter().any(|s| id_of_function(&s.function) == id) {
            let overload = format!("a{}", self.callable.len());
            function.overload = Some(Box::new(overload.into()));
        }
        function
    }

    fn outputs(
        &mut self,
        body: &mut Body,
        function: &mut FunctionProto,
        shadowing: bool,
    ) -> Vec<Option<Kind>> {
        let mut kinds = Vec::new();
        for _ in 0..if shadowing { 1 } else { 1 + self.choices.below(3) } {
            let kinds_of_outputs = [Kind::Vector, Kind::Vector, Kind::Scalar, Kind::Count];
            let kind = if shadowing { Kind::Vector } else { *self.choices.pick(&kinds_of_outputs) };
            if !shadowing && self.odd(10) {
                let absent = body.may_be_absent();
                let name = if absent.is_empty() { "ghost" } else { self.choices.pick(&absent) };
                function.output.push(name.into());
                kinds.push(None);
                continue;
            }
            let name = if self.odd(40) {
                // An input, or one that is listed already.
                self.own(body, kind)
            } else {
                let listed: Vec<_> = function.output.iter().map(|name| kind.info(name)).collect();
                self.computed(body, kind, &listed)
            };
            function.output.push(name.into());
            kinds.push(Some(kind));
        }
        kinds
    }

    /// A value of the body, be it an input.
    fn own(&mut self, body: &mut Body, kind: Kind) -> String {
        let own = body.own(kind);
        if own.is_empty() { self.fresh(body, kind) } else { self.choices.pick(&own).clone() }
    }

    fn describe(&mut self, function: &mut FunctionProto, body: &Body, parameters: &[Parameter]) {
        for parameter in parameters {
            match &parameter.default {
                Some(default) => function.attribute_proto.push(default.clone()),
                None if parameter.declared => function.attribute.push(parameter.name.into()),
                None => {}
            }
        }
        for (name, kind) in body.all_computed() {
            if self.choices.chance(40) {
                function.value_info.push(self.info(&name, kind));
            }
        }
        if self.odd(10) {
            function.value_info.push(Kind::Vector.info("stale"));
        }
        if self.odd(10)
            && let Some(formal) = function.input.first()
        {
            function.value_info.push(Kind::Vector.info(&formal.to_string()));
        }
        if self.choices.chance(20) {
            function.doc_string = Some(Box::new("what the function does".into()));
            function.metadata_props.push(StringStringEntryProto::new("k1", "of the function"));
        }
    }

    /// Any version in which the operators of the body are those of the model; the other domains are
    /// added when it is known which of them the model imports.
    fn imports_of_function(&mut self, function: &mut FunctionProto, version: i64) {
        let nodes = nodes_of_function(function);
        let same = |candidate: &i64| {
            nodes.iter().map(|node| id_of_node(node)).all(|(domain, op_type, _)| {
                since(&domain, &op_type, *candidate) == since(&domain, &op_type, version)
            })
        };
        let versions: Vec<_> = [version].into_iter().chain(13..=23).filter(same).collect();
        let version = *self.choices.pick(&versions);
        function.opset_import.push(OperatorSetIdProto::new("", version));
        if self.odd(5) {
            function.opset_import[0].domain = Some("ai.onnx".into());
        }
    }

    /// Imports of every domain in use: those of the main graph by the model, those of a body by its
    /// function, or by the model alone.
    fn imports(&mut self, model: &mut ModelProto, version: i64) {
        let spelling = if self.odd(10) { "ai.onnx" } else { "" };
        model.opset_import = vec![OperatorSetIdProto::new(spelling, version)];
        let training = model.training_info.iter();
        let graphs = training.flat_map(|t| [&t.initialization, &t.algorithm]).chain([&model.graph]);
        let mut used: BTreeSet<Str> = BTreeSet::new();
        graphs.flatten().for_each(|graph| used.extend(domains(nodes_of(&graph.node))));
        for function in &model.functions {
            let others = domains(nodes_of_function(function)).into_iter();
            used.extend(others.filter(|_| self.choices.chance(50)));
        }
        used.remove(&Str::default());
        for domain in &used {
            let version = 1 + self.choices.below(3) as i64;
            model.opset_import.push(OperatorSetIdProto::new(domain, version));
        }
        for function in &mut model.functions {
            for domain in domains(nodes_of_function(function)) {
                let imported = domain.is_empty() || used.contains(&domain) && self.odd(15);
                if !imported {
                    let version = 1 + self.choices.below(3) as i64;
                    function.opset_import.push(OperatorSetIdProto::new(domain, version));
                }
            }
        }
    }
}

fn domains(nodes: Vec<&NodeProto>) -> BTreeSet<Str> {
    nodes.into_iter().map(|node| domain(&node.domain)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::dump::dump;
    use crate::flow::{flow_of, structure_faults, subgraphs_of};
    use crate::support::few_or;

    /// What is in a model, in words.
    fn features(model: &ModelProto) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        let functions: BTreeMap<_, _> =
            model.functions.iter().map(|f| (id_of_function(f), f)).collect();
        let main = &model.graph.as_ref().unwrap().node;
        let bodies = model.functions.iter().map(|function| (&function.node, true));
        for (nodes, in_function) in bodies.chain([(main, false)]) {
            for node in nodes_of(nodes) {
                let top = nodes.iter().any(|other| std::ptr::eq(other, node));
                let Some(function) = functions.get(&id_of_node(node)) else { continue };
                found.insert(match (in_function, top) {
                    (true, true) => "a call in a body",
                    (true, false) => "a call in a subgraph of a body",
                    (false, true) => "a call",
                    (false, false) => "a call in a subgraph",
                });
                let mut note = |what, holds: bool| found.extend(holds.then_some(what));
                let skipped = |names: &[Str]| names.iter().any(Str::is_empty);
                let passed = |name| function.output.contains(name);
                note("an absent input", skipped(&node.input));
                note("too few inputs", node.input.len() < function.input.len());
                note("a skipped output", skipped(&node.output));
                note("too few outputs", node.output.len() < function.output.len());
                note("an output that is an input", function.input.iter().any(passed));
                note("an overload", function.overload.is_some());
                note("a shadowed operator", domain(&function.domain).is_empty());
                note("a graph parameter", node.attribute.iter().any(|a| a.g.is_some()));
                note("a default", !function.attribute_proto.is_empty());
                note("a reference", node.attribute.iter().any(|a| a.ref_attr_name.is_some()));
                note("another version", function.opset_import[0] != model.opset_import[0]);
                note("remarks", !node.metadata_props.is_empty());
            }
        }
        for node in nodes_of(main).into_iter().filter(|_| !model.training_info.is_empty()) {
            found.insert("training");
            let sparse = |g: &GraphProto| !g.sparse_initializer.is_empty();
            if subgraphs_of(node).any(sparse) {
                found.insert("a sparse initializer");
            }
        }
        found
    }

    const FEATURES: [&str; 18] = [
        "a call",
        "a call in a body",
        "a call in a subgraph",
        "a call in a subgraph of a body",
        "a default",
        "a graph parameter",
        "a reference",
        "a shadowed operator",
        "a skipped output",
        "a sparse initializer",
        "an absent input",
        "an output that is an input",
        "an overload",
        "another version",
        "remarks",
        "too few inputs",
        "too few outputs",
        "training",
    ];

    #[test]
    fn models_are_valid_and_have_everything() {
        let mut counts = BTreeMap::new();
        let seeds = few_or(120, 400);
        for seed in 0..seeds {
            for flavour in [Flavour::Runnable, Flavour::Anything] {
                let model = random_model(Choices::seeded(seed as u64), flavour);
                let faults = structure_faults(&model);
                assert!(faults.is_empty(), "seed {seed}: {faults:#?}\n{}", dump(&model));
                if let Err(error) = flow_of(&model) {
                    panic!("seed {seed}, {flavour:?}: {error}\n{}", dump(&model));
                }
                for feature in features(&model) {
                    *counts.entry(feature).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), FEATURES);
        assert!(counts.values().all(|count| *count >= seeds / 40), "{counts:?}");
    }

    #[test]
    fn no_choices_make_the_simplest_model() {
        let model = random_model(Choices::new(vec![]), Flavour::Anything);
        assert_eq!((model.functions.len(), model.graph.unwrap().node.len()), (1, 2));
    }
}
