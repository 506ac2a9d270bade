//! The canonical form of types: what a value may be, without what is said for people.
//!
//! A symbolic dimension says that sizes are equal, whatever it is called. So it is numbered, in the
//! order in which symbols appear. Denotations are left out.

use std::collections::HashMap;

use super::hash::Form;
use crate::proto::tensor_shape_proto::{Dimension, DimensionValue};
use crate::proto::type_proto::Value;
use crate::proto::{Str, TensorShapeProto, TypeProto};

/// The numbers of symbolic dimensions.
#[derive(Default)]
pub(super) struct Symbols<'m>(HashMap<&'m [u8], usize>);

impl<'m> Symbols<'m> {
    fn number(&mut self, name: &'m Str) -> usize {
        let next = self.0.len();
        *self.0.entry(name.as_bytes()).or_insert(next)
    }

    /// Writes a type that may be unset. Types nest no deeper than messages may.
    pub(super) fn write(&mut self, form: &mut Form, r#type: Option<&'m TypeProto>) {
        let Some(TypeProto { value, unknown, .. }) = r#type else { return form.tag(0) };
        match value {
            None => form.tag(1),
            Some(Value::TensorType(tensor)) => {
                form.tag(2);
                self.array(form, tensor.elem_type, tensor.shape.as_deref());
                form.unknown(&tensor.unknown);
            }
            Some(Value::SparseTensorType(tensor)) => {
                form.tag(3);
                self.array(form, tensor.elem_type, tensor.shape.as_deref());
                form.unknown(&tensor.unknown);
            }
            Some(Value::SequenceType(sequence)) => {
                form.tag(4);
                self.write(form, sequence.elem_type.as_deref());
                form.unknown(&sequence.unknown);
            }
            Some(Value::OptionalType(optional)) => {
                form.tag(5);
                self.write(form, optional.elem_type.as_deref());
                form.unknown(&optional.unknown);
            }
            Some(Value::MapType(map)) => {
                form.tag(6);
                form.number(map.key_type.unwrap_or(0).into());
                self.write(form, map.value_type.as_deref());
                form.unknown(&map.unknown);
            }
            Some(Value::OpaqueType(opaque)) => {
                form.tag(7);
                form.bytes(opaque.domain.as_ref().map_or(&[], Str::as_bytes));
                form.bytes(opaque.name.as_ref().map_or(&[], Str::as_bytes));
                form.unknown(&opaque.unknown);
            }
            Some(_) => form.tag(8),
        }
        form.unknown(unknown);
    }

    fn array(
        &mut self,
        form: &mut Form,
        elem_type: Option<i32>,
        shape: Option<&'m TensorShapeProto>,
    ) {
        form.number(elem_type.unwrap_or(0).into());
        form.tag(u8::from(shape.is_some()));
        let Some(TensorShapeProto { dim, unknown, .. }) = shape else { return };
        form.count(dim.len());
        dim.iter().for_each(|dim| self.dimension(form, dim));
        form.unknown(unknown);
    }

    fn dimension(&mut self, form: &mut Form, dim: &'m Dimension) {
        match &dim.value {
            Some(DimensionValue::DimValue(value)) => {
                form.tag(1);
                form.number(*value);
            }
            // `?` is what exporters call every dimension that has no name, whatever its size.
            Some(DimensionValue::DimParam(name)) if !name.is_empty() && *name != "?" => {
                form.tag(2);
                form.count(self.number(name));
            }
            _ => form.tag(0),
        }
        form.unknown(&dim.unknown);
    }
}
