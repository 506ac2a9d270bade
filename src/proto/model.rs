//! The model, its functions, and what is said about it.

use super::{AttributeProto, DeviceConfigurationProto, GraphProto, NodeProto, ValueInfoProto};
use crate::wire::{Rare, Str, messages};

messages! {
    /// A model: a graph, the operator sets it is written in, and where it comes from.
    message ModelProto {
        /// The version of the format, see [`IR_VERSION`](super::IR_VERSION).
        1 ir_version: Option<i64>,
        /// The tool that wrote the model.
        2 producer_name: Option<Str>,
        /// The version of that tool.
        3 producer_version: Option<Str>,
        /// Whose model it is, as a reverse DNS name.
        4 domain: Option<Str>,
        /// The version of the model itself.
        5 model_version: Option<i64>,
        /// A description for people.
        6 doc_string: Option<Box<Str>>,
        /// What the model computes.
        7 graph: Option<Box<GraphProto>>,
        /// The operator sets that its nodes are from.
        8 opset_import: Vec<OperatorSetIdProto>,
        /// Named remarks.
        14 metadata_props: Vec<StringStringEntryProto>,
        /// How to train it.
        20 training_info: Rare<Vec<TrainingInfoProto>>,
        /// Functions that nodes call like operators.
        25 functions: Vec<FunctionProto>,
        /// The groups of devices that nodes may be spread over.
        26 configuration: Rare<Vec<DeviceConfigurationProto>>,
    }

    /// A function: nodes that take the place of a node that calls it.
    message FunctionProto {
        /// Its name, which is unique with the domain and the overload.
        1 name: Option<Str>,
        /// The names of its inputs.
        4 input: Vec<Str>,
        /// The names of its outputs.
        5 output: Vec<Str>,
        /// The names of the attributes that a call must give.
        6 attribute: Vec<Str>,
        /// What it computes.
        7 node: Vec<NodeProto>,
        /// A description for people.
        8 doc_string: Option<Box<Str>>,
        /// The operator sets that its nodes are from.
        9 opset_import: Vec<OperatorSetIdProto>,
        /// The domain that calls name it by.
        10 domain: Option<Str>,
        /// The attributes that a call may give, with the values they have otherwise.
        11 attribute_proto: Vec<AttributeProto>,
        /// Types and shapes of values inside it.
        12 value_info: Vec<ValueInfoProto>,
        /// Tells functions with the same domain and name apart.
        13 overload: Option<Box<Str>>,
        /// Named remarks.
        14 metadata_props: Vec<StringStringEntryProto>,
    }

    /// How a model is trained.
    message TrainingInfoProto {
        /// Gives the state before the first step.
        1 initialization: Option<Box<GraphProto>>,
        /// One step.
        2 algorithm: Option<Box<GraphProto>>,
        /// Which initializer takes which output of the initialization.
        3 initialization_binding: Vec<StringStringEntryProto>,
        /// Which initializer takes which output of a step.
        4 update_binding: Vec<StringStringEntryProto>,
    }

    /// An operator set: a domain and a version.
    message OperatorSetIdProto {
        /// The domain; unset and empty both mean ONNX itself.
        1 domain: Option<Str>,
        /// The version.
        2 version: Option<i64>,
    }

    /// A key and a value.
    message StringStringEntryProto {
        /// The key.
        1 key: Option<Str>,
        /// The value.
        2 value: Option<Str>,
    }
}
