//! Copies graphs and the attributes that hold them, in the order in which their names were
//! resolved.

use super::copy::{Copied, Copier, check_names};
use super::functions::{graphs, is_reference};
use super::names::Name;
use super::rename::{self, renamed};
use super::scope::{Closure, Names, Scope, Slots, Value, is_plain};
use crate::error::{Error, ErrorKind, Result};
use crate::proto::{
    AttributeProto, GraphProto, Rare, SparseTensorProto, Str, TensorAnnotation, TensorProto,
    ValueInfoProto,
};

/// How deep graphs may nest. Readers accept 100 nested messages, and each graph inside another adds
/// three levels.
const MAX_DEPTH: usize = 31;

impl<'m> Copier<'m> {
    pub(super) fn attributes(
        &mut self,
        attributes: &'m [AttributeProto],
        scope: &mut Scope<'m>,
        depth: usize,
    ) -> Result<Vec<AttributeProto>> {
        let mut copies = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            if is_plain(attribute) {
                copies.push(attribute.clone());
            } else if is_reference(attribute) {
                let value = scope.binding.value(attribute, self.bodies, scope.call)?;
                let copy = value.map(|value| self.value(attribute, &value, depth)).transpose()?;
                copies.extend(copy);
            } else {
                copies.push(self.attribute(attribute, scope, depth)?);
            }
        }
        Ok(copies)
    }

    /// Copies an attribute that holds graphs.
    pub(super) fn attribute(
        &mut self,
        attribute: &'m AttributeProto,
        scope: &mut Scope<'m>,
        depth: usize,
    ) -> Result<AttributeProto> {
        let inner = graphs(attribute).map(|graph| self.graph(graph, scope, depth + 1));
        Ok(with_graphs(attribute, attribute, inner.collect::<Result<_>>()?))
    }

    /// `attribute` with the value that its reference stands for.
    fn value(
        &mut self,
        attribute: &'m AttributeProto,
        value: &Value<'m>,
        depth: usize,
    ) -> Result<AttributeProto> {
        Ok(match value {
            Value::Plain(value) => named(AttributeProto::clone(value), attribute),
            Value::Open(name, outer) => {
                let mut copy = AttributeProto::default();
                copy.r#type = outer.r#type;
                copy.ref_attr_name = Some(Str::clone(name));
                named(copy, attribute)
            }
            Value::Graphs(value, closures) => {
                let copies = closures.iter().map(|closure| self.paste(closure, depth + 1));
                with_graphs(attribute, value, copies.collect::<Result<_>>()?)
            }
        })
    }

    /// Copies a graph that a call passed. The names that it defines are fresh each time, as in a
    /// call.
    fn paste(&mut self, closure: &Closure<'m>, depth: usize) -> Result<GraphProto> {
        self.spend(closure.body.size)?;
        let mut names = vec![Name::Absent];
        names.extend_from_slice(&closure.inputs);
        self.fresh.next(closure.body, &[], &mut names);
        check_names(closure.body, &names)?;
        let mut scope = Scope {
            names: Names::Slots(Slots::new(closure.body, names)),
            binding: closure.binding.clone(),
            call: closure.call,
        };
        let graph = self.graph(closure.graph, &mut scope, depth)?;
        match scope.names {
            Names::Slots(slots) => slots.check_end().map(|()| graph),
            Names::Written(_) => Ok(graph),
        }
    }

    /// Copies a graph, in the order in which its names were resolved.
    pub(super) fn graph(
        &mut self,
        graph: &'m GraphProto,
        scope: &mut Scope<'m>,
        depth: usize,
    ) -> Result<GraphProto> {
        if depth > MAX_DEPTH {
            let reason =
                format!("graphs would nest more than {MAX_DEPTH} deep: readers refuse that");
            return Err(Error::new(ErrorKind::TooLarge, reason));
        }
        let around = scope.enter(graph);
        let input = graph.input.iter().map(|info| self.info(info, scope)).collect();
        let initializer =
            graph.initializer.iter().map(|tensor| self.tensor(tensor, scope)).collect();
        let sparse: Vec<_> =
            graph.sparse_initializer.iter().map(|tensor| self.sparse(tensor, scope)).collect();
        let mut inner = Copied { nodes: Vec::with_capacity(graph.node.len()), ..Copied::default() };
        self.nodes(&graph.node, scope, &mut inner, depth)?;
        if !inner.renames.is_empty() {
            let computed = inner.nodes.iter().flat_map(|node| &node.output);
            rename::check(&inner.renames, computed, &scope.outputs())?;
            rename::apply(&inner.renames, &mut inner.nodes);
        }
        let output = graph.output.iter().map(|info| self.info(info, scope)).collect();
        let mut value_info: Vec<_> =
            graph.value_info.iter().filter_map(|info| self.known_info(info, scope)).collect();
        value_info.append(&mut inner.value_info);
        let annotations = graph.quantization_annotation.iter();
        let quantization: Vec<_> =
            annotations.filter_map(|annotation| self.annotation(annotation, scope)).collect();
        scope.leave(around);
        let mut copy = GraphProto::default();
        (copy.node, copy.name) = (inner.nodes, graph.name.clone());
        (copy.input, copy.output) = (input, output);
        (copy.initializer, copy.sparse_initializer) = (initializer, rare(sparse));
        (copy.value_info, copy.quantization_annotation) = (value_info, rare(quantization));
        copy.doc_string.clone_from(&graph.doc_string);
        copy.metadata_props.clone_from(&graph.metadata_props);
        copy.unknown.clone_from(&graph.unknown);
        Ok(copy)
    }

    pub(super) fn optional(&self, written: Option<&'m Str>, scope: &mut Scope<'m>) -> Option<Str> {
        scope.optional(written).map(|name| self.fresh.text(name))
    }

    fn info(&self, info: &'m ValueInfoProto, scope: &mut Scope<'m>) -> ValueInfoProto {
        let name = self.optional(info.name.as_ref(), scope);
        renamed(info, name, scope.call, &self.reserved.dimensions)
    }

    /// The type of a value, if the graph still has that value.
    fn known_info(
        &self,
        info: &'m ValueInfoProto,
        scope: &mut Scope<'m>,
    ) -> Option<ValueInfoProto> {
        let name = self.fresh.text(scope.typed(info.name.as_ref())?);
        Some(renamed(info, Some(name), scope.call, &self.reserved.dimensions))
    }

    fn tensor(&self, tensor: &'m TensorProto, scope: &mut Scope<'m>) -> TensorProto {
        let mut copy = tensor.clone();
        copy.name = self.optional(tensor.name.as_ref(), scope);
        copy
    }

    fn sparse(&self, tensor: &'m SparseTensorProto, scope: &mut Scope<'m>) -> SparseTensorProto {
        let mut copy = tensor.clone();
        let written = tensor.values.as_ref().and_then(|values| values.name.as_ref());
        let name = self.optional(written, scope);
        if let Some(values) = &mut copy.values {
            values.name = name;
        }
        copy
    }

    /// The quantization annotation of a tensor, if the tensor is known here.
    fn annotation(
        &self,
        annotation: &'m TensorAnnotation,
        scope: &mut Scope<'m>,
    ) -> Option<TensorAnnotation> {
        let mut known = |name: Option<&'m Str>| scope.known(name).map(|name| self.fresh.text(name));
        let mut copy = annotation.clone();
        copy.tensor_name = known(annotation.tensor_name.as_ref());
        let written = &annotation.quant_parameter_tensor_names;
        for (entry, written) in copy.quant_parameter_tensor_names.iter_mut().zip(written) {
            entry.value = known(written.value.as_ref());
        }
        copy.quant_parameter_tensor_names.retain(|entry| entry.value.is_some());
        copy.tensor_name.is_some().then_some(copy)
    }
}

fn rare<T>(list: Vec<T>) -> Rare<Vec<T>> {
    if list.is_empty() { Rare::new() } else { Rare::from(list) }
}

/// The value of an attribute under the name of another.
fn named(mut value: AttributeProto, target: &AttributeProto) -> AttributeProto {
    value.name.clone_from(&target.name);
    if value.doc_string != target.doc_string {
        value.doc_string.clone_from(&target.doc_string);
    }
    value
}

/// The attribute `value` with `graphs` in the place of its own, under the name of `target`.
fn with_graphs(
    target: &AttributeProto,
    value: &AttributeProto,
    mut graphs: Vec<GraphProto>,
) -> AttributeProto {
    let rest = graphs.split_off(usize::from(value.g.is_some()).min(graphs.len()));
    let mut copy = AttributeProto::default();
    (copy.g, copy.r#type) = (graphs.pop().map(Box::new), value.r#type);
    if !rest.is_empty() {
        copy.graphs = rest;
    }
    if !value.unknown.is_empty() {
        copy.unknown = value.unknown.clone();
    }
    named(copy, target)
}
