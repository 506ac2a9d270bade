//! Messages for the graph, its nodes and their attributes.

use super::{
    NodeDeviceConfigurationProto, SparseTensorProto, StringStringEntryProto, TensorProto, TypeProto,
};
use crate::buffer::Buffer;
use crate::proto::wire::{Rare, Str, messages};

messages! {
    /// A graph: nodes in topological order, with its inputs, outputs and initializers.
    message GraphProto (outlined, recursive) {
        /// The nodes, in topological order.
        1 node: Vec<NodeProto>,
        /// The name of the graph.
        2 name: Option<Str>,
        /// Named tensors: weights, or the default values of inputs.
        5 initializer: Vec<TensorProto>,
        /// A description for people.
        10 doc_string: Option<Box<Str>>,
        /// The inputs.
        11 input: Vec<ValueInfoProto>,
        /// The outputs.
        12 output: Vec<ValueInfoProto>,
        /// Types and shapes of intermediate values.
        13 value_info: Vec<ValueInfoProto>,
        /// The quantization parameters of tensors.
        14 quantization_annotation: Rare<Vec<TensorAnnotation>>,
        /// Initializers that are stored as sparse tensors.
        15 sparse_initializer: Rare<Vec<SparseTensorProto>>,
        /// Metadata: keys and values.
        16 metadata_props: Vec<StringStringEntryProto>,
    }

    /// A node: an operator, or a function, applied to named values.
    message NodeProto {
        /// The names of its inputs; an empty name is an optional input that is left out.
        1 input: Vec<Str>,
        /// The names of its outputs; an empty name is an optional output that is left out.
        2 output: Vec<Str>,
        /// Its name, if it has one.
        3 name: Option<Str>,
        /// The name of the operator or function.
        4 op_type: Option<Str>,
        /// The attributes.
        5 attribute: Vec<AttributeProto>,
        rare more: NodeMore {
            /// A description for people.
            6 doc_string: Option<Str>,
        }
        /// The domain of the operator or function.
        7 domain: Option<Str>,
        and {
            /// Which overload of the function of that name.
            8 overload: Option<Box<Str>>,
        }
        /// Metadata: keys and values.
        9 metadata_props: Vec<StringStringEntryProto>,
        and {
            /// How it is distributed over devices.
            10 device_configurations: Vec<NodeDeviceConfigurationProto>,
        }
    }

    /// An attribute of a node: a name, and a value in the field that `type` selects.
    message AttributeProto enum r#type 0..=14 {
        /// The name.
        1 name: Option<Str>,
        /// A float.
        2 f: Option<f32>,
        /// An integer.
        3 i: Option<i64>,
        /// A byte string, usually UTF-8.
        4 s: Option<Buffer>,
        /// A tensor.
        5 t: Option<Box<TensorProto>>,
        /// A graph, such as the branch of an If.
        6 g: Option<Box<GraphProto>>,
        /// Floats.
        7 floats: Rare<Vec<f32>>,
        /// Integers.
        8 ints: Rare<Vec<i64>>,
        rare more: AttributeMore {
            /// Byte strings.
            9 strings: Vec<Buffer>,
            /// Tensors.
            10 tensors: Vec<TensorProto>,
            /// Graphs.
            11 graphs: Vec<GraphProto>,
            /// A description for people.
            13 doc_string: Option<Str>,
            /// A type.
            14 tp: Option<Box<TypeProto>>,
            /// Types.
            15 type_protos: Vec<TypeProto>,
        }
        /// The kind of the value, such as [`AttributeProto::FLOAT`].
        20 r#type: Option<i32>,
        and {
            /// In a function body: the name of the function's attribute whose value this one has.
            21 ref_attr_name: Option<Str>,
            /// A sparse tensor.
            22 sparse_tensor: Option<Box<SparseTensorProto>>,
            /// Sparse tensors.
            23 sparse_tensors: Vec<SparseTensorProto>,
        }
    }

    /// The type and shape of a named value.
    message ValueInfoProto {
        /// The name.
        1 name: Option<Str>,
        /// The type, with the shape.
        2 r#type: Option<Box<TypeProto>>,
        /// A description for people.
        3 doc_string: Option<Box<Str>>,
        /// Metadata: keys and values.
        4 metadata_props: Rare<Vec<StringStringEntryProto>>,
    }

    /// The quantization parameters of a tensor.
    message TensorAnnotation {
        /// The tensor.
        1 tensor_name: Option<Str>,
        /// The tensor that holds each parameter, such as `SCALE_TENSOR`.
        2 quant_parameter_tensor_names: Vec<StringStringEntryProto>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::tensor_shape_proto::DimensionValue;
    use crate::proto::type_proto::Value;
    use crate::proto::{Message, ModelProto};

    #[test]
    fn rare_fields_are_fields_of_the_attribute() {
        let small = if cfg!(target_pointer_width = "64") { 120 } else { 72 };
        assert_eq!(size_of::<AttributeProto>(), small);
        let mut attribute = AttributeProto::int("axis", 1);
        assert!(attribute.tensors.is_empty() && attribute.doc_string.is_none());
        assert!(!attribute.more.is_set());
        attribute.doc_string = Some("d".into());
        attribute.sparse_tensors.push(SparseTensorProto::default());
        let bytes = attribute.encode_to_vec().unwrap();
        assert_eq!(bytes, b"\x0a\x04axis\x18\x01\x6a\x01d\xa0\x01\x02\xba\x01\x00");
        assert_eq!(AttributeProto::decode(&bytes.into()).unwrap(), attribute);
        assert!(format!("{attribute:?}").contains(r#"doc_string: Some("d"), tp: None"#));
    }

    #[test]
    fn strings_are_visited_wherever_they_lie() {
        let mut attribute = AttributeProto::string("name", "bytes");
        attribute.doc_string = Some("doc".into());
        attribute.tp = Some(Box::new(TypeProto::tensor(TensorProto::FLOAT, [1])));
        let Some(Value::TensorType(tensor)) = &mut attribute.tp.as_mut().unwrap().value else {
            panic!("a tensor")
        };
        let dimension = &mut tensor.shape.as_mut().unwrap().dim[0];
        dimension.value = Some(DimensionValue::DimParam("batch".into()));
        dimension.denotation = Some(Box::new("DATA_BATCH".into()));
        let mut node = NodeProto::new("Op", ["x", ""], ["y"]);
        node.attribute.push(attribute);
        let mut graph = GraphProto { node: vec![node], ..GraphProto::default() };
        let annotation = TensorAnnotation { tensor_name: Some("q".into()), ..Default::default() };
        graph.quantization_annotation.push(annotation);
        let mut found = Vec::new();
        ModelProto::new(graph).strings(&mut |string| found.push(string.to_string()));
        found.sort();
        assert_eq!(found, ["", "DATA_BATCH", "Op", "batch", "doc", "name", "q", "x", "y"]);
    }

    #[test]
    fn set_but_empty_rare_fields_are_as_unset_ones() {
        let plain = AttributeProto::int("axis", 1);
        let mut set = plain.clone();
        set.tensors.clear();
        assert!(set.more.is_set());
        assert_eq!(set, plain);
        assert_eq!(format!("{set:?}"), format!("{plain:?}"));
        set.tp = Some(Box::default());
        assert_ne!(set, plain);
    }
}
