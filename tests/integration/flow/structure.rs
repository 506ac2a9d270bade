//! Whether a model is well formed: definitions, uses, scopes, imports.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, Str,
};

use super::{domain, id_of_function, id_of_node, reference, text};

/// Every fault of a model after inlining: names defined twice, shadowed, used before their
/// definition; calls to nothing, references outside functions, imports that are missing or double.
pub fn structure_faults(model: &ModelProto) -> Vec<String> {
    let mut check = Check::default();
    check.model(model);
    check.faults
}

/// Every fault that inlining made: those of `after`, and what it should not have changed of
/// `before`.
pub fn inlining_faults(before: &ModelProto, after: &ModelProto) -> Vec<String> {
    let mut faults = structure_faults(after);
    let shadowed = |model| {
        let mut check = Check { strict: true, ..Check::default() };
        check.model(model);
        check.faults.into_iter().filter(|fault| fault.contains("shadows")).collect::<Vec<_>>()
    };
    if shadowed(before).is_empty() {
        faults.extend(shadowed(after));
    }
    dangling(before, after, &mut faults);
    node_names(before, after, &mut faults);
    let imports = |model: &ModelProto| model.opset_import.clone();
    if !imports(after).starts_with(&imports(before)) {
        faults.push("an opset import changed".into());
    }
    if interface(before) != interface(after) {
        faults.push("something else than nodes and types of values changed".into());
    }
    faults
}

/// Calls to functions that were there before.
fn dangling(before: &ModelProto, after: &ModelProto, faults: &mut Vec<String>) {
    let ids =
        |model: &ModelProto| model.functions.iter().map(id_of_function).collect::<HashSet<_>>();
    let (old, new) = (ids(before), ids(after));
    let nodes = graphs(after).flat_map(|graph| nodes_of(&graph.node));
    let nodes = nodes.chain(after.functions.iter().flat_map(nodes_of_function));
    for id in nodes.map(id_of_node).filter(|id| old.contains(id) && !new.contains(id)) {
        faults.push(format!("a call of `{}`.`{}` remains", id.0, id.1));
    }
    faults.extend(new.difference(&old).map(|id| format!("a new function `{}`.`{}`", id.0, id.1)));
}

/// Names of nodes that were given once and are now given twice.
fn node_names(before: &ModelProto, after: &ModelProto, faults: &mut Vec<String>) {
    let count = |model: &ModelProto| {
        let mut counts = BTreeMap::<Str, usize>::new();
        for node in graphs(model).flat_map(|graph| nodes_of(&graph.node)) {
            *counts.entry(text(&node.name)).or_default() += 1;
        }
        counts.remove(&Str::default());
        counts
    };
    let old = count(before);
    let twice = |name: &Str| old.get(name).is_some_and(|n| *n > 1);
    let new = count(after).into_iter().filter(|(name, n)| *n > 1 && !twice(name));
    faults.extend(new.map(|(name, n)| format!("{n} nodes are named `{name}`")));
}

/// The model without what inlining may change.
fn interface(model: &ModelProto) -> ModelProto {
    let mut bare = model.clone();
    bare.functions.clear();
    bare.opset_import.clear();
    let training = bare.training_info.iter_mut();
    let training = training.flat_map(|t| [&mut t.initialization, &mut t.algorithm]);
    for graph in training.chain([&mut bare.graph]).flatten() {
        graph.node.clear();
        graph.value_info.clear();
    }
    bare
}

fn graphs(model: &ModelProto) -> impl Iterator<Item = &GraphProto> {
    let training = model.training_info.iter().flat_map(|t| [&t.initialization, &t.algorithm]);
    [&model.graph].into_iter().chain(training).flatten().map(|graph| &**graph)
}

pub fn subgraphs_of(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    graphs_in(&node.attribute)
}

fn graphs_in(attributes: &[AttributeProto]) -> impl Iterator<Item = &GraphProto> {
    attributes.iter().flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs))
}

/// The nodes of a function: of its body, of graphs inside, and of graphs that are defaults.
pub fn nodes_of_function(function: &FunctionProto) -> Vec<&NodeProto> {
    let mut all = nodes_of(&function.node);
    graphs_in(&function.attribute_proto).for_each(|graph| all.extend(nodes_of(&graph.node)));
    all
}

/// The nodes with those of their subgraphs.
pub fn nodes_of(nodes: &[NodeProto]) -> Vec<&NodeProto> {
    let mut all = Vec::new();
    for node in nodes {
        all.push(node);
        subgraphs_of(node).for_each(|graph| all.extend(nodes_of(&graph.node)));
    }
    all
}

#[derive(Default)]
struct Check {
    faults: Vec<String>,
    /// Whether shadowing is a fault in functions too.
    strict: bool,
    in_function: bool,
    imports: BTreeSet<Str>,
}

impl Check {
    fn fault(&mut self, path: &str, what: String) {
        self.faults.push(format!("{path}: {what}"));
    }

    fn model(&mut self, model: &ModelProto) {
        for import in &model.opset_import {
            if !self.imports.insert(domain(&import.domain)) {
                self.fault("model", format!("two imports of `{}`", text(&import.domain)));
            }
        }
        let mut main = HashSet::new();
        if let Some(graph) = &model.graph {
            main = self.graph(graph, &HashSet::new(), "main");
        }
        for info in model.training_info.iter() {
            let parts = [(&info.initialization, &HashSet::new()), (&info.algorithm, &main)];
            for (graph, outer) in parts {
                graph.iter().for_each(|graph| drop(self.graph(graph, outer, "training")));
            }
        }
        self.in_function = true;
        model.functions.iter().for_each(|function| self.function(function));
    }

    fn function(&mut self, function: &FunctionProto) {
        let path = format!("function {}", text(&function.name));
        let own = function.opset_import.iter().map(|import| domain(&import.domain));
        let imports = self.imports.iter().cloned().chain(own).collect();
        let outer = std::mem::replace(&mut self.imports, imports);
        let (mut own, nothing) = (HashSet::new(), HashSet::new());
        for name in &function.input {
            self.define(name, &mut own, &nothing, &path);
        }
        self.nodes(&function.node, &mut own, &nothing, &path);
        self.imports = outer;
    }

    fn graph(&mut self, graph: &GraphProto, outer: &HashSet<Str>, path: &str) -> HashSet<Str> {
        let mut own = HashSet::new();
        for input in &graph.input {
            self.define(&text(&input.name), &mut own, outer, path);
        }
        let inputs = own.clone();
        let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_deref());
        for tensor in graph.initializer.iter().chain(sparse) {
            let name = text(&tensor.name);
            // An input may have a value that is taken when none is given.
            if !inputs.contains(&name) {
                self.define(&name, &mut own, outer, path);
            }
        }
        self.nodes(&graph.node, &mut own, outer, path);
        self.declarations(graph, &own, outer, path);
        own
    }

    fn declarations(
        &mut self,
        graph: &GraphProto,
        own: &HashSet<Str>,
        outer: &HashSet<Str>,
        path: &str,
    ) {
        for name in graph.output.iter().map(|output| text(&output.name)) {
            if !own.contains(&name) {
                self.fault(path, format!("output `{name}` is not defined here"));
            }
        }
        let mut seen = HashSet::new();
        for name in graph.value_info.iter().map(|info| text(&info.name)) {
            if !own.contains(&name) || !seen.insert(name.clone()) {
                self.fault(path, format!("type of `{name}`, which is not defined or has one"));
            }
        }
        for annotation in graph.quantization_annotation.iter() {
            let values = annotation.quant_parameter_tensor_names.iter().map(|p| text(&p.value));
            for name in values.chain([text(&annotation.tensor_name)]) {
                if !own.contains(&name) && !outer.contains(&name) {
                    self.fault(path, format!("quantization of `{name}`, which is not defined"));
                }
            }
        }
    }

    fn define(&mut self, name: &Str, own: &mut HashSet<Str>, outer: &HashSet<Str>, path: &str) {
        if name.is_empty() {
            return;
        }
        if outer.contains(name) && (self.strict || !self.in_function) {
            self.fault(path, format!("`{name}` shadows an outer name"));
        }
        if !own.insert(name.clone()) {
            self.fault(path, format!("`{name}` is defined twice"));
        }
    }

    fn nodes(
        &mut self,
        nodes: &[NodeProto],
        own: &mut HashSet<Str>,
        outer: &HashSet<Str>,
        path: &str,
    ) {
        for (i, node) in nodes.iter().enumerate() {
            let path = format!("{path}/{}[{i}]", text(&node.op_type));
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                if !own.contains(name) && !outer.contains(name) {
                    self.fault(&path, format!("`{name}` is not defined"));
                }
            }
            self.node(node, &path);
            let mut visible = None;
            for graph in subgraphs_of(node) {
                let visible = visible.get_or_insert_with(|| outer.union(own).cloned().collect());
                self.graph(graph, visible, &path);
            }
            for name in &node.output {
                self.define(name, own, outer, &path);
            }
        }
    }

    fn node(&mut self, node: &NodeProto, path: &str) {
        if !self.imports.contains(&domain(&node.domain)) {
            self.fault(path, format!("`{}` is not imported", text(&node.domain)));
        }
        for name in node.attribute.iter().filter(|_| !self.in_function).filter_map(reference) {
            self.faults.push(format!("{path}: reference to `{name}` outside a function"));
        }
        for spec in node.device_configurations.iter().flat_map(|c| &c.sharding_spec) {
            let name = text(&spec.tensor_name);
            if !node.input.contains(&name) && !node.output.contains(&name) {
                self.fault(path, format!("sharding of `{name}`, which is no value of the node"));
            }
        }
    }
}
