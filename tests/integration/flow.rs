//! What a model computes, whatever its names: the oracle that inlined models are held to.
//!
//! A model is read symbolically with the semantics of local functions: a call opens a scope of its
//! own, an attribute parameter is a closure over the names of the caller, and nothing is ever
//! renamed, copied or substituted. Each value becomes a digest of the expression that computes it;
//! an Identity is its input. So a model and its inlined form are equal here exactly when they mean
//! the same. `structure` says whether a model is well formed; `self_test` holds this oracle to
//! planted faults.

mod parts;
mod self_test;
mod structure;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::thread;

use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Str,
    ValueInfoProto,
};

use self::parts::{Digest, constants, digest, encoded};
pub use self::parts::{
    Id, digest_of_type, domain, id_of_function, id_of_node, reference, since, text,
};
pub use self::structure::{
    inlining_faults, nodes_of, nodes_of_function, structure_faults, subgraphs_of,
};

type Result<T> = std::result::Result<T, String>;

/// Leaf nodes that one model may have, so that a bomb ends.
const BUDGET: usize = 1_000_000;
/// Deep call chains recurse; only the pages in use are ever there.
const STACK: usize = 1 << 30;

/// What a model computes, in a form that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The outputs of the main graph and of the training graphs: name and what computes it.
    outputs: Vec<(Str, Option<Digest>)>,
    /// All else that is there, and how often: leaf nodes, dead ones too, initializers, types of
    /// values, remarks on nodes, annotations, symbolic dimensions by the places they stand at.
    facts: BTreeMap<(String, Digest), usize>,
}

impl Flow {
    /// The number of nodes that are no calls and no Identity.
    pub fn leaves(&self) -> usize {
        self.facts.iter().filter(|((kind, _), _)| kind.starts_with("node ")).map(|(_, n)| n).sum()
    }

    /// Whether the outputs of both are the same expressions, whatever their names.
    pub fn has_outputs_of(&self, other: &Self) -> bool {
        let [mine, theirs] = [self, other].map(|flow| flow.outputs.iter().map(|(_, value)| value));
        mine.eq(theirs)
    }

    /// In what `other` is another model; empty when it is the same.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.outputs.len() != other.outputs.len() {
            all.push(format!("{} outputs became {}", self.outputs.len(), other.outputs.len()));
        }
        for (mine, theirs) in self.outputs.iter().zip(&other.outputs) {
            if mine != theirs {
                all.push(format!("output `{}` is another expression or name", mine.0));
            }
        }
        let keys: BTreeSet<_> = self.facts.keys().chain(other.facts.keys()).collect();
        for key in keys {
            let count = |flow: &Self| flow.facts.get(key).copied().unwrap_or_default();
            if count(self) != count(other) {
                all.push(format!("{} {:x}: {} became {}", key.0, key.1, count(self), count(other)));
            }
        }
        all
    }
}

/// What `model` computes.
///
/// # Errors
/// When it means nothing: a name that is not defined, an output that is not computed.
pub fn flow_of(model: &ModelProto) -> Result<Flow> {
    flow_known_as(model, None)
}

/// As [`flow_of`], where inputs, initializers and outputs of the first name are known by the
/// second.
///
/// # Errors
/// As [`flow_of`].
pub fn flow_known_as(model: &ModelProto, known_as: Option<(&str, &str)>) -> Result<Flow> {
    thread::scope(|threads| {
        let read = || Evaluator { known_as, ..Evaluator::new(model) }.model();
        let thread = thread::Builder::new().stack_size(STACK).spawn_scoped(threads, read).unwrap();
        thread.join().unwrap()
    })
}

/// The flow of a model that means something.
pub fn known_flow(model: &ModelProto) -> Flow {
    flow_of(model).unwrap_or_else(|e| panic!("{e}\n{}", crate::dump::dump(model)))
}

/// An attribute that a call gives, with the names that a graph in it sees.
#[derive(Clone, Copy)]
struct Argument<'a> {
    attribute: &'a AttributeProto,
    scope: &'a Scope<'a>,
}

/// What all graphs of one call have in common.
#[derive(Clone)]
struct Frame<'a> {
    arguments: HashMap<Str, Argument<'a>>,
    opsets: HashMap<Str, i64>,
    /// Tells apart the symbolic dimensions of two calls.
    call: usize,
    /// The `metadata_props` of the calls around.
    remarks: BTreeMap<Str, Str>,
}

/// The names of one graph; `None` is an input that the call leaves out.
struct Scope<'a> {
    frame: &'a Frame<'a>,
    outer: Option<&'a Scope<'a>>,
    values: HashMap<Str, Option<Digest>>,
}

impl<'a> Scope<'a> {
    fn new(frame: &'a Frame<'a>, outer: Option<&'a Scope<'a>>) -> Self {
        Self { frame, outer, values: HashMap::new() }
    }

    fn find(&self, name: &Str) -> Option<Option<Digest>> {
        let own = self.values.get(name).copied();
        own.or_else(|| self.outer.and_then(|outer| outer.find(name)))
    }

    fn get(&self, name: &Str) -> Result<Option<Digest>> {
        if name.is_empty() {
            return Ok(None);
        }
        self.find(name).ok_or_else(|| format!("`{name}` is not defined"))
    }
}

/// A node with everything that its scope says of it.
struct Bound<'a> {
    node: &'a NodeProto,
    inputs: Vec<Option<Digest>>,
    arguments: Vec<(Str, Argument<'a>)>,
    remarks: BTreeMap<Str, Str>,
}

impl<'a> Bound<'a> {
    fn new(node: &'a NodeProto, scope: &'a Scope<'a>) -> Result<Self> {
        let inputs = node.input.iter().map(|name| scope.get(name)).collect::<Result<_>>()?;
        let mut arguments = Vec::new();
        for attribute in &node.attribute {
            let argument = match reference(attribute) {
                Some(name) => scope.frame.arguments.get(name).copied(),
                None => Some(Argument { attribute, scope }),
            };
            arguments.extend(argument.map(|argument| (text(&attribute.name), argument)));
        }
        let mut remarks = scope.frame.remarks.clone();
        remarks.extend(node.metadata_props.iter().map(|p| (text(&p.key), text(&p.value))));
        Ok(Self { node, inputs, arguments, remarks })
    }

    fn takes(&self, output: usize) -> bool {
        self.node.output.get(output).is_some_and(|name| !name.is_empty())
    }

    /// The spread over devices, with what its tensors are: an input's value or an output's place.
    /// Of an input that is left out nothing can be said.
    fn devices(&self) -> Vec<Vec<u8>> {
        let place = |names: &[Str], name| names.iter().position(|n| *n == name);
        let mut configurations = self.node.device_configurations.clone();
        for configuration in &mut configurations {
            configuration.sharding_spec.retain_mut(|spec| {
                let input = place(&self.node.input, text(&spec.tensor_name));
                let input = input.and_then(|i| self.inputs.get(i).copied().flatten());
                let output = place(&self.node.output, text(&spec.tensor_name));
                spec.tensor_name = Some(format!("{input:?} {output:?}").into());
                input.is_some() || output.is_some()
            });
        }
        configurations.iter().map(encoded).collect()
    }
}

struct Evaluator<'m> {
    model: &'m ModelProto,
    /// A name of the interface and what it counts as.
    known_as: Option<(&'m str, &'m str)>,
    functions: HashMap<Id, &'m FunctionProto>,
    facts: BTreeMap<(String, Digest), usize>,
    /// Where each symbolic dimension of each call stands.
    dimensions: BTreeMap<(usize, Str), Vec<Digest>>,
    calls: usize,
    nodes: usize,
}

impl<'m> Evaluator<'m> {
    fn new(model: &'m ModelProto) -> Self {
        let functions = model.functions.iter().map(|f| (id_of_function(f), f)).collect();
        let (facts, dimensions) = (BTreeMap::new(), BTreeMap::new());
        Self { model, known_as: None, functions, facts, dimensions, calls: 0, nodes: 0 }
    }

    fn fact(&mut self, kind: &str, value: Digest) {
        *self.facts.entry((kind.to_owned(), value)).or_default() += 1;
    }

    fn model(mut self) -> Result<Flow> {
        let opsets = opsets(&self.model.opset_import).collect();
        let (arguments, remarks) = (HashMap::new(), BTreeMap::new());
        let frame = Frame { arguments, opsets, call: 0, remarks };
        let mut main = Scope::new(&frame, None);
        let mut outputs = Vec::new();
        if let Some(graph) = &self.model.graph {
            self.named_graph("main", graph, &mut main, &mut outputs)?;
        }
        for (i, info) in self.model.training_info.iter().enumerate() {
            let parts = [(&info.initialization, None), (&info.algorithm, Some(&main))];
            for (part, (graph, outer)) in parts.into_iter().enumerate() {
                let Some(graph) = graph else { continue };
                let mut scope = Scope::new(&frame, outer);
                self.named_graph(&format!("training {i}.{part}"), graph, &mut scope, &mut outputs)?;
            }
        }
        for mut places in std::mem::take(&mut self.dimensions).into_values() {
            places.sort_unstable();
            self.fact("symbolic dimension", digest(&places));
        }
        Ok(Flow { outputs, facts: self.facts })
    }

    fn known(&self, name: &Str) -> Str {
        let (_, known) = self.known_as.filter(|(new, _)| *name == *new).unzip();
        known.map_or_else(|| name.clone(), Str::from)
    }

    /// A graph whose inputs, initializers and outputs are known by their names.
    fn named_graph<'a>(
        &mut self,
        label: &str,
        graph: &'a GraphProto,
        scope: &mut Scope<'a>,
        outputs: &mut Vec<(Str, Option<Digest>)>,
    ) -> Result<()> {
        for (name, value) in constants(graph) {
            let value = digest(&(label, self.known(&name), value));
            self.fact("initializer", value);
            scope.values.insert(name, Some(value));
        }
        for input in &graph.input {
            let name = text(&input.name);
            let value = digest(&(label, "input", self.known(&name)));
            self.typed("input", input, value, scope.frame.call);
            scope.values.entry(name).or_insert(Some(value));
        }
        self.nodes(&graph.node, scope, 0)?;
        for output in &graph.output {
            let name = text(&output.name);
            let value = scope.get(&name)?;
            let name = self.known(&name);
            self.typed("output", output, digest(&(&name, value)), scope.frame.call);
            outputs.push((name, value));
        }
        self.annotations(graph, scope);
        Ok(())
    }

    /// A graph in an attribute, whose inputs and outputs are known by their places.
    fn subgraph<'a>(
        &mut self,
        graph: &'a GraphProto,
        outer: &'a Scope<'a>,
        depth: usize,
    ) -> Result<Digest> {
        let mut scope = Scope::new(outer.frame, Some(outer));
        for (name, value) in constants(graph) {
            self.fact("initializer of a subgraph", value);
            scope.values.insert(name, Some(value));
        }
        for (i, input) in graph.input.iter().enumerate() {
            let value = digest(&("input of a subgraph", depth, i));
            self.typed("input of a subgraph", input, value, scope.frame.call);
            scope.values.entry(text(&input.name)).or_insert(Some(value));
        }
        self.nodes(&graph.node, &mut scope, depth)?;
        let mut outputs = Vec::new();
        for output in &graph.output {
            let value = scope.get(&text(&output.name))?;
            let place = digest(&("output", value));
            self.typed("output of a subgraph", output, place, scope.frame.call);
            outputs.push(value);
        }
        self.annotations(graph, &scope);
        Ok(digest(&("graph", graph.input.len(), outputs)))
    }

    fn nodes<'a>(
        &mut self,
        nodes: &'a [NodeProto],
        scope: &mut Scope<'a>,
        depth: usize,
    ) -> Result<()> {
        for node in nodes {
            let values = self.node(node, scope, depth)?;
            for (i, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                let value = values.get(i).copied().flatten();
                let value = value.ok_or_else(|| format!("`{name}` is not computed"))?;
                scope.values.insert(name.clone(), Some(value));
            }
        }
        Ok(())
    }

    fn node(
        &mut self,
        node: &NodeProto,
        scope: &Scope<'_>,
        depth: usize,
    ) -> Result<Vec<Option<Digest>>> {
        self.nodes += 1;
        if self.nodes > BUDGET {
            return Err("more nodes than anybody will compare".into());
        }
        let bound = Bound::new(node, scope)?;
        match self.functions.get(&id_of_node(node)) {
            Some(function) => self.call(function, bound, depth),
            None => self.leaf(bound, scope.frame, depth),
        }
    }

    fn leaf(
        &mut self,
        mut bound: Bound<'_>,
        frame: &Frame<'_>,
        depth: usize,
    ) -> Result<Vec<Option<Digest>>> {
        let id = id_of_node(bound.node);
        if id.0.is_empty() && id.1 == "Identity" {
            return Ok(bound.inputs);
        }
        let trailing = bound.inputs.iter().rev().take_while(|input| input.is_none()).count();
        bound.inputs.truncate(bound.inputs.len() - trailing);
        let version = *frame.opsets.get(&id.0).ok_or_else(|| format!("`{}` not imported", id.0))?;
        let mut attributes = Vec::new();
        for (name, argument) in &bound.arguments {
            attributes.push((name, self.attribute(*argument, depth)?));
        }
        attributes.sort();
        let taken: Vec<bool> = (0..bound.node.output.len()).map(|i| bound.takes(i)).collect();
        let since = since(&id.0, &id.1, version);
        let value = digest(&(&id, since, &bound.inputs, attributes, &taken));
        self.fact(&format!("node {}", id.1), value);
        let (doc, devices) = (&bound.node.doc_string, bound.devices());
        if doc.is_some() || !bound.remarks.is_empty() || !devices.is_empty() {
            let remarks = digest(&(value, doc, &bound.remarks, devices));
            self.fact(&format!("remarks on {}", id.1), remarks);
        }
        Ok((0..taken.len()).map(|i| Some(digest(&(value, i)))).collect())
    }

    fn attribute(&mut self, argument: Argument<'_>, depth: usize) -> Result<Digest> {
        let Argument { attribute, scope } = argument;
        let mut graphs = Vec::new();
        for graph in attribute.g.as_deref().into_iter().chain(&attribute.graphs) {
            graphs.push(self.subgraph(graph, scope, depth + 1)?);
        }
        let types = attribute.tp.as_deref().into_iter().chain(&attribute.type_protos);
        let types: Vec<_> = types.map(|r#type| digest_of_type(r#type, &mut Vec::new())).collect();
        let mut rest = attribute.clone();
        // A zero may be written or left out.
        match attribute.r#type {
            Some(AttributeProto::INT) => drop(rest.i.get_or_insert_default()),
            Some(AttributeProto::FLOAT) => drop(rest.f.get_or_insert_default()),
            Some(AttributeProto::STRING) => drop(rest.s.get_or_insert_default()),
            _ => {}
        }
        (rest.name, rest.g, rest.ref_attr_name) = (None, None, None);
        (rest.doc_string, rest.tp) = (None, None);
        rest.graphs.clear();
        rest.type_protos.clear();
        Ok(digest(&(graphs, types, encoded(&rest))))
    }

    fn call(
        &mut self,
        function: &FunctionProto,
        bound: Bound<'_>,
        depth: usize,
    ) -> Result<Vec<Option<Digest>>> {
        let Bound { node, inputs, remarks, .. } = &bound;
        if inputs.len() > function.input.len() || node.output.len() > function.output.len() {
            return Err(format!("`{}` takes or gives less", text(&function.name)));
        }
        self.calls += 1;
        let mut opsets: HashMap<_, _> = opsets(&self.model.opset_import).collect();
        opsets.extend(self::opsets(&function.opset_import));
        let (arguments, remarks) = (HashMap::new(), remarks.clone());
        let closed = Frame { arguments, opsets, call: self.calls, remarks };
        // A default graph is part of the function, and sees no names.
        let nowhere = Scope::new(&closed, None);
        let mut frame = closed.clone();
        frame.arguments = bound.arguments.iter().cloned().collect();
        for attribute in &function.attribute_proto {
            let default = Argument { attribute, scope: &nowhere };
            frame.arguments.entry(text(&attribute.name)).or_insert(default);
        }
        let mut scope = Scope::new(&frame, None);
        let actuals = inputs.iter().copied().chain(std::iter::repeat(None));
        scope.values = function.input.iter().cloned().zip(actuals).collect();
        self.nodes(&function.node, &mut scope, depth)?;
        self.types_of_body(function, &bound, &scope);
        let output = |name| scope.values.get(name).copied().flatten();
        Ok(function.output.iter().map(output).collect())
    }

    /// The types of what a body computes and the caller does not name.
    fn types_of_body(&mut self, function: &FunctionProto, bound: &Bound<'_>, scope: &Scope<'_>) {
        let computed: BTreeSet<_> = function.node.iter().flat_map(|node| &node.output).collect();
        for info in &function.value_info {
            let name = text(&info.name);
            let mut outputs = function.output.iter().enumerate();
            let named_by_caller = outputs.any(|(i, output)| *output == name && bound.takes(i));
            if let Some(Some(value)) = scope.values.get(&name)
                && computed.contains(&name)
                && !named_by_caller
            {
                self.typed("value_info", info, *value, scope.frame.call);
            }
        }
    }

    fn annotations(&mut self, graph: &GraphProto, scope: &Scope<'_>) {
        for info in &graph.value_info {
            if let Some(Some(value)) = scope.values.get(&text(&info.name)) {
                self.typed("value_info", info, *value, scope.frame.call);
            }
        }
        for annotation in graph.quantization_annotation.iter() {
            let parameters = annotation.quant_parameter_tensor_names.iter();
            let parameters: Vec<_> =
                parameters.map(|p| (text(&p.key), scope.find(&text(&p.value)))).collect();
            let tensor = scope.find(&text(&annotation.tensor_name));
            self.fact("quantization", digest(&(tensor, parameters)));
        }
    }

    fn typed(&mut self, kind: &str, info: &ValueInfoProto, value: Digest, call: usize) {
        let r#type = self.type_of(info, value, call);
        self.fact(kind, digest(&(value, r#type)));
    }

    /// The type of a value without the names of its dimensions, which are noted with their places.
    fn type_of(&mut self, info: &ValueInfoProto, value: Digest, call: usize) -> Option<Digest> {
        let mut names = Vec::new();
        let r#type = digest_of_type(info.r#type.as_deref()?, &mut names);
        for (i, name) in names.into_iter().enumerate() {
            self.dimensions.entry((call, name)).or_default().push(digest(&(value, i)));
        }
        Some(r#type)
    }
}

fn opsets(imports: &[OperatorSetIdProto]) -> impl Iterator<Item = (Str, i64)> {
    imports.iter().map(|import| (domain(&import.domain), import.version.unwrap_or_default()))
}
