//! What a model holds, compared with its [`Limits`].
//!
//! Messages are nested as deep as the limit of nesting allows, so these functions may recurse.

use crate::error::Result;
use crate::graph::inline::call_depth;
use crate::limits::{Limit, Limits};
use crate::proto::type_proto::Value;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, Str,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto,
};

/// Compares what `model` holds with `limits`.
///
/// # Errors
/// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge), for the first limit that is exceeded.
pub(crate) fn within(limits: &Limits, model: &ModelProto) -> Result<()> {
    let mut counts = Counts { limits, nodes: 0, tensors: 0, attributes: 0 };
    let functions = len(&model.functions);
    limits.allow(Limit::Functions, functions)?;
    let training = model.training_info.iter();
    let training =
        training.flat_map(|info| [info.initialization.as_deref(), info.algorithm.as_deref()]);
    for graph in training.flatten().chain(model.graph.as_deref()) {
        counts.graph(graph)?;
    }
    model.functions.iter().try_for_each(|function| counts.function(function))?;
    if functions > limits.get(Limit::CallDepth).unwrap_or(u64::MAX) {
        limits.allow(Limit::CallDepth, call_depth(&model.functions))?;
    }
    Ok(())
}

/// The number of elements of a list.
fn len<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}

/// What was counted so far.
struct Counts<'l> {
    limits: &'l Limits,
    nodes: u64,
    tensors: u64,
    attributes: u64,
}

impl Counts<'_> {
    fn graph(&mut self, graph: &GraphProto) -> Result<()> {
        self.names(&graph.name)?;
        let values = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
        values.into_iter().try_for_each(|value| self.value(value))?;
        graph.initializer.iter().try_for_each(|tensor| self.tensor(tensor))?;
        graph.sparse_initializer.iter().try_for_each(|sparse| self.sparse(sparse))?;
        self.nodes(&graph.node)
    }

    fn function(&mut self, function: &FunctionProto) -> Result<()> {
        self.names(function.name.iter().chain(&function.domain))?;
        self.names(function.input.iter().chain(&function.output).chain(&function.attribute))?;
        function.value_info.iter().try_for_each(|value| self.value(value))?;
        self.attributes(&function.attribute_proto)?;
        self.nodes(&function.node)
    }

    fn nodes(&mut self, nodes: &[NodeProto]) -> Result<()> {
        self.nodes = self.nodes.saturating_add(len(nodes));
        self.limits.allow(Limit::Nodes, self.nodes)?;
        for node in nodes {
            self.names(node.name.iter().chain(&node.op_type).chain(&node.domain))?;
            self.names(node.input.iter().chain(&node.output))?;
            self.attributes(&node.attribute)?;
        }
        Ok(())
    }

    fn attributes(&mut self, attributes: &[AttributeProto]) -> Result<()> {
        self.attributes = self.attributes.saturating_add(len(attributes));
        self.limits.allow(Limit::Attributes, self.attributes)?;
        attributes.iter().try_for_each(|attribute| self.attribute(attribute))
    }

    fn attribute(&mut self, attribute: &AttributeProto) -> Result<()> {
        self.names(&attribute.name)?;
        attribute.t.iter().try_for_each(|tensor| self.tensor(tensor))?;
        attribute.g.iter().try_for_each(|graph| self.graph(graph))?;
        let Some(more) = attribute.more.as_deref() else { return Ok(()) };
        more.tensors.iter().try_for_each(|tensor| self.tensor(tensor))?;
        more.graphs.iter().try_for_each(|graph| self.graph(graph))?;
        more.sparse_tensor.iter().try_for_each(|sparse| self.sparse(sparse))?;
        more.sparse_tensors.iter().try_for_each(|sparse| self.sparse(sparse))?;
        more.tp.iter().try_for_each(|declared| self.declared(declared))?;
        more.type_protos.iter().try_for_each(|declared| self.declared(declared))
    }

    fn sparse(&mut self, sparse: &SparseTensorProto) -> Result<()> {
        self.limits.allow(Limit::Dims, len(&sparse.dims))?;
        let parts = sparse.values.iter().chain(&sparse.indices);
        parts.into_iter().try_for_each(|tensor| self.tensor(tensor))
    }

    fn tensor(&mut self, tensor: &TensorProto) -> Result<()> {
        self.tensors = self.tensors.saturating_add(1);
        self.limits.allow(Limit::Tensors, self.tensors)?;
        self.limits.allow(Limit::Dims, len(&tensor.dims))?;
        self.names(&tensor.name)
    }

    fn value(&mut self, value: &ValueInfoProto) -> Result<()> {
        self.names(&value.name)?;
        value.r#type.iter().try_for_each(|declared| self.declared(declared))
    }

    fn declared(&mut self, declared: &TypeProto) -> Result<()> {
        match &declared.value {
            Some(Value::TensorType(tensor)) => self.shape(tensor.shape.as_deref()),
            Some(Value::SparseTensorType(tensor)) => self.shape(tensor.shape.as_deref()),
            Some(Value::SequenceType(sequence)) => self.inner(sequence.elem_type.as_deref()),
            Some(Value::OptionalType(optional)) => self.inner(optional.elem_type.as_deref()),
            Some(Value::MapType(map)) => self.inner(map.value_type.as_deref()),
            _ => Ok(()),
        }
    }

    fn inner(&mut self, declared: Option<&TypeProto>) -> Result<()> {
        declared.map_or(Ok(()), |declared| self.declared(declared))
    }

    fn shape(&self, shape: Option<&TensorShapeProto>) -> Result<()> {
        self.limits.allow(Limit::Dims, shape.map_or(0, |shape| len(&shape.dim)))
    }

    fn names<'n>(&self, names: impl IntoIterator<Item = &'n Str>) -> Result<()> {
        let mut names = names.into_iter();
        names.try_for_each(|name| self.limits.allow(Limit::NameBytes, len(name.as_bytes())))
    }
}
