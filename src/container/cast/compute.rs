//! A graph that computes in the new type.
//!
//! A value of the old type may be needed in both types: in the new one by nodes that are converted,
//! in the old one by the others. So each value has up to two forms, each with its own name. The old
//! form keeps the name, so nodes that are not converted, and declarations, stay valid unchanged.
//! The node that computes a value computes one form; one `Cast`, before the first node that needs
//! it, computes the other. `opset` knows which operators take which types, and `cast` converts the
//! weights.

use std::collections::{HashMap, HashSet};

use super::computed::Computed;
use super::convert::Float;
use super::graph::{Renamed, is_constant, is_standard, named, tensor_of};
use super::types::{attribute_type, bit, elem_type, retype, suffix_of};
use crate::dtype::DataType;
use crate::graph::opset::{Formal, Signature};
use crate::proto::{AttributeProto, GraphProto, NodeProto, Str, TensorProto, ValueInfoProto};
use crate::util::names::UniqueNames;

/// One value of a graph.
#[derive(Debug, Default)]
struct Value {
    /// The element type that it had, if that is known.
    dtype: Option<i32>,
    /// Its name as the old type, once something makes it.
    old: Option<Str>,
    /// Its name as the new type, once something makes it.
    new: Option<Str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Old,
    New,
}

/// A graph whose nodes are being converted.
#[derive(Default)]
struct Scope {
    values: HashMap<Str, Value>,
    /// The types that the graph declares.
    declared: HashMap<Str, i32>,
    /// The nodes so far.
    nodes: Vec<NodeProto>,
}

pub(super) struct Conversion<'o> {
    keep_io: bool,
    keep_ops: &'o HashSet<String>,
    from: Vec<i32>,
    to: Float,
    version: i64,
    /// Weights that were cast, by their new names.
    renamed: &'o Renamed,
    names: UniqueNames,
    /// Those of nodes.
    node_names: UniqueNames,
    /// Values of the main graph whose new form has the original name, with the name of their old
    /// form. A value of a subgraph may have the same name, and is another one.
    flipped: HashMap<Str, Str>,
    scopes: Vec<Scope>,
    done: Computed<'o>,
}

impl<'o> Conversion<'o> {
    pub(super) fn new(
        (keep_io, keep_ops): (bool, &'o HashSet<String>),
        from: Vec<Float>,
        to: Float,
        renamed: &'o Renamed,
        (names, node_names): (UniqueNames, UniqueNames),
        done: Computed<'o>,
    ) -> Self {
        let from = from.into_iter().filter(|from| *from != to);
        Self {
            keep_io,
            keep_ops,
            from: from.map(|from| from.dtype().number()).collect(),
            to,
            version: 0,
            renamed,
            names,
            node_names,
            flipped: HashMap::new(),
            scopes: Vec::new(),
            done,
        }
    }

    /// Converts the main graph and returns what was done.
    pub(super) fn convert(mut self, graph: &mut GraphProto, version: i64) -> Computed<'o> {
        self.version = version;
        if !self.keep_io {
            self.flip(graph);
        }
        self.graph(graph);
        self.done
    }

    /// Gives the inputs and outputs of the main graph the new type.
    fn flip(&mut self, graph: &mut GraphProto) {
        let mut fixed: HashSet<Str> = self.renamed.values().map(|(old, _)| old.clone()).collect();
        fixed.extend(graph.initializer.iter().filter_map(|tensor| tensor.name.clone()));
        let sparse = graph.sparse_initializer.iter().filter_map(|one| one.values.as_deref());
        fixed.extend(sparse.filter_map(|tensor| tensor.name.clone()));
        let constants = graph.node.iter().filter(|node| is_constant(node));
        fixed.extend(constants.flat_map(|node| node.output.iter().cloned()));
        for info in graph.input.iter_mut().chain(&mut graph.output) {
            let old = elem_type(info).filter(|dtype| self.from.contains(dtype));
            let (Some(old), Some(name)) = (old, info.name.clone()) else { continue };
            if !fixed.contains(&name) {
                let suffix = suffix_of(old);
                let other = self.names.name(&name.to_string_lossy(), &suffix);
                self.flipped.entry(name).or_insert_with(|| other.into());
            }
        }
    }

    /// Converts one graph and returns the types of its outputs.
    fn graph(&mut self, graph: &mut GraphProto) -> Vec<Option<i32>> {
        let scope = self.opened(graph);
        self.scopes.push(scope);
        for node in std::mem::take(&mut graph.node) {
            self.node(node);
        }
        let outputs = graph.output.iter().filter_map(|info| info.name.clone());
        let outputs: Vec<Str> = outputs.collect();
        let types = outputs.iter().map(|name| self.dtype(name)).collect();
        for name in &outputs {
            let form = if self.is_flipped(name) { Form::New } else { Form::Old };
            self.form(name, form);
        }
        let Some(scope) = self.scopes.pop() else { return types };
        graph.node = scope.nodes;
        self.declare(graph, &scope.values);
        types
    }

    /// Whether the new form of the value has the original name, which only values of the main graph
    /// can.
    fn is_flipped(&self, name: &Str) -> bool {
        self.scopes.len() == 1 && self.flipped.contains_key(name)
    }

    /// The values that exist before the first node.
    fn opened(&self, graph: &GraphProto) -> Scope {
        let mut scope = Scope::default();
        for info in graph.input.iter().chain(&graph.output).chain(&graph.value_info) {
            if let (Some(name), Some(dtype)) = (&info.name, elem_type(info)) {
                scope.declared.insert(name.clone(), dtype);
            }
        }
        for info in &graph.input {
            let Some(name) = info.name.clone() else { continue };
            let old_type = elem_type(info).is_some_and(|dtype| self.from.contains(&dtype));
            let flipped = self.scopes.is_empty() && self.flipped.contains_key(&name) && old_type;
            let (old, new) =
                if flipped { (None, Some(name.clone())) } else { (Some(name.clone()), None) };
            scope.values.insert(name, Value { dtype: elem_type(info), old, new });
        }
        let sparse = graph.sparse_initializer.iter().filter_map(|one| one.values.as_deref());
        for tensor in graph.initializer.iter().chain(sparse) {
            if let Some((name, value)) = self.weight(tensor) {
                scope.values.insert(name, value);
            }
        }
        scope
    }

    fn weight(&self, tensor: &TensorProto) -> Option<(Str, Value)> {
        let name = tensor.name.clone()?;
        Some(match self.renamed.get(&name) {
            Some((old, dtype)) => {
                let dtype = Some(dtype.number());
                (old.clone(), Value { dtype, old: None, new: Some(name) })
            }
            None => (name.clone(), Value { dtype: tensor.data_type, old: Some(name), new: None }),
        })
    }

    fn node(&mut self, mut node: NodeProto) {
        let tensor = node.attribute.iter().find_map(tensor_of).filter(|_| is_constant(&node));
        if let Some((old, value)) = tensor.and_then(|tensor| self.weight(tensor))
            && let Some(new) = value.new.clone()
        {
            node.output = vec![new];
            self.define(old, value);
            return self.push(node);
        }
        let signature = self.signature(&node);
        let variables = signature.map(|signature| self.bind(signature, &node)).unwrap_or_default();
        if self.is_kept(&node) {
            return self.keep(node, signature, &variables);
        }
        if let Some(signature) = signature
            && let Some(converted) = self.converted(signature, &node, &variables)
        {
            return self.change(node, signature, &variables, &converted);
        }
        if self.is_cast(&node) {
            return self.cast(node);
        }
        self.keep(node, signature, &variables);
    }

    fn push(&mut self, node: NodeProto) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.nodes.push(node);
        }
    }

    fn define(&mut self, name: Str, value: Value) {
        if let Some(scope) = self.scopes.last_mut().filter(|_| !name.is_empty()) {
            scope.values.insert(name, value);
        }
    }

    fn value_mut(&mut self, name: &Str) -> Option<&mut Value> {
        self.scopes.iter_mut().rev().find_map(|scope| scope.values.get_mut(name))
    }

    fn value(&self, name: &Str) -> Option<&Value> {
        self.scopes.iter().rev().find_map(|scope| scope.values.get(name))
    }

    fn dtype(&self, name: &Str) -> Option<i32> {
        self.value(name).and_then(|value| value.dtype)
    }

    fn declared(&self, name: &Str) -> Option<i32> {
        self.scopes.last().and_then(|scope| scope.declared.get(name)).copied()
    }

    fn signature(&self, node: &NodeProto) -> Option<&'static Signature> {
        let op_type = node.op_type.as_ref().filter(|_| is_standard(node.domain.as_ref()))?;
        Signature::of(op_type.as_bytes(), self.version)
    }

    fn is_kept(&self, node: &NodeProto) -> bool {
        let named = |name: &Option<Str>| {
            name.as_ref().is_some_and(|name| self.keep_ops.contains(&*name.to_string_lossy()))
        };
        !self.keep_ops.is_empty() && (named(&node.op_type) || named(&node.name))
    }

    /// The type that each type variable of the operator has in this node, where it is known.
    fn bind(&self, signature: &Signature, node: &NodeProto) -> HashMap<usize, i32> {
        let mut bound = HashMap::new();
        for (index, name) in node.input.iter().enumerate() {
            if let (Formal::Variable(variable), Some(dtype)) =
                (signature.input(index), self.dtype(name))
            {
                bound.entry(variable).or_insert(dtype);
            }
        }
        for (index, name) in node.output.iter().enumerate() {
            if let (Formal::Variable(variable), Some(dtype)) =
                (signature.output(index), self.declared(name))
            {
                bound.entry(variable).or_insert(dtype);
            }
        }
        bound
    }

    /// The type variables that become the new type; `None` for a node that is not converted.
    fn converted(
        &self,
        signature: &Signature,
        node: &NodeProto,
        bound: &HashMap<usize, i32>,
    ) -> Option<HashSet<usize>> {
        let bit = bit(self.to);
        let old = |variable: &usize| {
            bound.get(variable).is_some_and(|dtype| self.from.contains(dtype))
                && signature.takes(*variable, bit)
        };
        let converted: HashSet<usize> = bound.keys().copied().filter(old).collect();
        let inputs = || named(&node.input).map(|(index, name)| (signature.input(index), name));
        let outputs = || named(&node.output).map(|(index, _)| signature.output(index));
        let is_converted = |formal: Formal| matches!(formal, Formal::Variable(variable) if converted.contains(&variable));
        let unclear = inputs().any(|(formal, _)| formal == Formal::Unclear)
            || outputs().any(|formal| formal == Formal::Unclear);
        let unknown =
            inputs().any(|(formal, name)| is_converted(formal) && self.value(name).is_none());
        let makes = outputs().any(is_converted);
        let has_old = |name: &Str| self.value(name).is_some_and(|value| value.old.is_some());
        let needs = inputs().any(|(formal, name)| is_converted(formal) && !has_old(name));
        (!converted.is_empty() && !unclear && !unknown && (makes || needs)).then_some(converted)
    }

    /// The node with its inputs and outputs of these variables in the new type.
    fn change(
        &mut self,
        mut node: NodeProto,
        signature: &Signature,
        bound: &HashMap<usize, i32>,
        converted: &HashSet<usize>,
    ) {
        let is_converted = |formal: Formal| matches!(formal, Formal::Variable(variable) if converted.contains(&variable));
        for (index, name) in node.input.iter_mut().enumerate() {
            let formal = signature.input(index);
            if is_converted(formal) {
                if let Formal::Variable(variable) = formal
                    && let Some(value) = self.value_mut(name)
                {
                    value.dtype = value.dtype.or(bound.get(&variable).copied());
                }
                *name = self.form(name, Form::New);
            } else {
                *name = self.form(name, Form::Old);
            }
        }
        for (index, name) in node.output.iter_mut().enumerate() {
            let formal = signature.output(index);
            let form = if is_converted(formal) { Form::New } else { Form::Old };
            let dtype = self.output_type(name, formal, bound);
            *name = self.made(name, dtype, form);
        }
        self.done.nodes += 1;
        self.push(node);
    }

    /// The type of an output of a node that is not changed.
    fn output_type(&self, name: &Str, formal: Formal, bound: &HashMap<usize, i32>) -> Option<i32> {
        let told = match formal {
            Formal::Float => Some(DataType::Float.number()),
            Formal::Variable(variable) => bound.get(&variable).copied(),
            Formal::Other | Formal::Unclear => None,
        };
        told.or_else(|| self.declared(name))
    }

    /// The name of a value that a node makes in this form.
    fn made(&mut self, name: &Str, dtype: Option<i32>, form: Form) -> Str {
        if name.is_empty() {
            return name.clone();
        }
        let is_main = self.scopes.len() == 1;
        let made = self.name_of(name, dtype, form, is_main);
        let (old, new) = match form {
            Form::Old => (Some(made.clone()), None),
            Form::New => (None, Some(made.clone())),
        };
        self.define(name.clone(), Value { dtype, old, new });
        made
    }

    /// A name for this form of a value. `is_main` is whether the main graph defines the value.
    fn name_of(&mut self, name: &Str, dtype: Option<i32>, form: Form, is_main: bool) -> Str {
        let old_type = dtype.is_some_and(|dtype| self.from.contains(&dtype));
        let flipped = self.flipped.get(name).filter(|_| old_type && is_main);
        match (form, flipped) {
            (Form::Old, Some(other)) => other.clone(),
            (Form::Old, None) | (Form::New, Some(_)) => name.clone(),
            (Form::New, None) => {
                let suffix = suffix_of(self.to.dtype().number());
                self.names.name(&name.to_string_lossy(), &suffix).into()
            }
        }
    }

    /// The name of a value in this form, which a `Cast` makes where nothing did.
    fn form(&mut self, name: &Str, form: Form) -> Str {
        let found = self.scopes.iter().rposition(|scope| scope.values.contains_key(name));
        let Some(value) = found.and_then(|_| self.value(name)) else { return name.clone() };
        let (has, other) = match form {
            Form::Old => (value.old.clone(), value.new.clone()),
            Form::New => (value.new.clone(), value.old.clone()),
        };
        let (dtype, other) = match (has, value.dtype, other) {
            (None, Some(dtype), Some(other)) => (dtype, other),
            (has, ..) => return has.unwrap_or_else(|| name.clone()),
        };
        let made = self.name_of(name, Some(dtype), form, found == Some(0));
        let to = if form == Form::New { self.to.dtype().number() } else { dtype };
        if form == Form::New {
            self.done.casts.insert(made.clone());
        }
        let mut cast = NodeProto::new("Cast", [other], [made.clone()]);
        cast.name = Some(self.node_names.name(&made.to_string_lossy(), "_cast").into());
        cast.attribute = vec![AttributeProto::int("to", i64::from(to))];
        if let Some(scope) = found.and_then(|index| self.scopes.get_mut(index)) {
            scope.nodes.push(cast);
            if let Some(value) = scope.values.get_mut(name) {
                let place = if form == Form::New { &mut value.new } else { &mut value.old };
                *place = Some(made.clone());
            }
        }
        made
    }

    /// Whether a node casts to a type that is converted.
    fn is_cast(&self, node: &NodeProto) -> bool {
        let is_cast = is_standard(node.domain.as_ref())
            && node.op_type.as_ref().is_some_and(|op_type| *op_type == "Cast");
        is_cast && attribute_type(node).is_some_and(|dtype| self.from.contains(&dtype))
    }

    /// A `Cast` to the old type casts to the new one.
    fn cast(&mut self, mut node: NodeProto) {
        let dtype = attribute_type(&node);
        let to = i64::from(self.to.dtype().number());
        node.attribute.iter_mut().for_each(|attribute| {
            if attribute.name.as_ref().is_some_and(|name| *name == "to") {
                attribute.i = Some(to);
            }
        });
        for name in &mut node.input {
            *name = self.any_form(name);
        }
        for name in &mut node.output {
            *name = self.made(name, dtype, Form::New);
        }
        self.done.nodes += 1;
        self.push(node);
    }

    fn any_form(&self, name: &Str) -> Str {
        let value = self.value(name);
        let any = value.and_then(|value| value.old.clone().or(value.new.clone()));
        any.unwrap_or_else(|| name.clone())
    }

    /// The node with its own types unchanged and the nodes of its subgraphs converted.
    fn keep(
        &mut self,
        mut node: NodeProto,
        signature: Option<&Signature>,
        bound: &HashMap<usize, i32>,
    ) {
        let is_old = |dtype: Option<i32>| dtype.is_some_and(|dtype| self.from.contains(&dtype));
        let mut old = node.input.iter().any(|name| is_old(self.dtype(name)));
        for name in &mut node.input {
            *name = self.form(name, Form::Old);
        }
        let inner = self.subgraphs(&mut node);
        let attribute = attribute_type(&node);
        for (index, name) in node.output.iter_mut().enumerate() {
            let formal = signature.map_or(Formal::Unclear, |signature| signature.output(index));
            let told = self.output_type(name, formal, bound);
            let dtype = told.or(attribute).or_else(|| inner.get(index).copied().flatten());
            old |= dtype.is_some_and(|dtype| self.from.contains(&dtype));
            *name = self.made(name, dtype, Form::Old);
        }
        if old && !is_constant(&node) {
            self.done.keep(&node);
        }
        self.push(node);
    }

    /// Converts the subgraphs of a node and returns the types of the node's outputs, which follow
    /// from theirs.
    fn subgraphs(&mut self, node: &mut NodeProto) -> Vec<Option<i32>> {
        let mut types = Vec::new();
        for attribute in &mut node.attribute {
            if let Some(graph) = attribute.g.as_deref_mut() {
                types = self.graph(graph);
            }
            if attribute.more.is_set() {
                attribute.graphs.iter_mut().for_each(|graph| {
                    self.graph(graph);
                });
            }
        }
        let op_type = node.op_type.as_ref().filter(|_| is_standard(node.domain.as_ref()));
        match op_type.map(Str::as_bytes) {
            Some(b"If" | b"Scan") => types,
            Some(b"Loop") => types.into_iter().skip(1).collect(),
            _ => Vec::new(),
        }
    }

    /// Corrects the declarations of the graph for values that have another type now.
    fn declare(&self, graph: &mut GraphProto, values: &HashMap<Str, Value>) {
        let to = self.to.dtype().number();
        let form = |info: &mut ValueInfoProto| {
            let value = info.name.as_ref().and_then(|name| values.get(name))?;
            let is_old = info.name.is_some() && value.old == info.name;
            (!is_old).then(|| value.new.clone()).flatten()
        };
        for info in &mut graph.value_info {
            if let Some(new) = form(info) {
                info.name = Some(new);
                retype(info, to);
            }
        }
        for info in graph.input.iter_mut().chain(&mut graph.output) {
            if info.name.is_some() && form(info) == info.name {
                retype(info, to);
            }
        }
    }
}
