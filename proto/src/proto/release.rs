//! Messages that hold themselves are dropped from a list, so that the stack does not grow with
//! their depth.

use super::type_proto::{Map, Optional, Sequence, Value};
use super::{AttributeProto, GraphProto, TypeProto};

impl Drop for AttributeProto {
    fn drop(&mut self) {
        let more = self.more.as_deref();
        if self.g.is_none() && more.is_none_or(|more| more.graphs.is_empty()) {
            return;
        }
        let mut graphs = Vec::new();
        take_graphs(self, &mut graphs);
        while let Some(mut graph) = graphs.pop() {
            let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
            attributes.for_each(|attribute| take_graphs(attribute, &mut graphs));
        }
    }
}

/// Moves the graphs of `attribute` to `graphs`.
fn take_graphs(attribute: &mut AttributeProto, graphs: &mut Vec<GraphProto>) {
    graphs.extend(attribute.g.take().map(|graph| *graph));
    if let Some(more) = attribute.more.as_deref_mut() {
        graphs.append(&mut more.graphs);
    }
}

macro_rules! release {
    ($($Message:ident $field:ident;)*) => {$(
        impl Drop for $Message {
            fn drop(&mut self) {
                let mut next = self.$field.take();
                while let Some(mut of) = next {
                    next = take_type(&mut of);
                }
            }
        }
    )*};
}

release! {
    Sequence elem_type;
    Optional elem_type;
    Map value_type;
}

/// The type inside a type.
fn take_type(of: &mut TypeProto) -> Option<Box<TypeProto>> {
    match &mut of.value {
        Some(Value::SequenceType(sequence)) => sequence.elem_type.take(),
        Some(Value::OptionalType(optional)) => optional.elem_type.take(),
        Some(Value::MapType(map)) => map.value_type.take(),
        _ => None,
    }
}
