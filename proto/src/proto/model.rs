//! Messages for the model, its functions, operator sets and training information.

use super::{AttributeProto, DeviceConfigurationProto, GraphProto, NodeProto, ValueInfoProto};
use crate::proto::wire::{Rare, Str, messages};

messages! {
    /// A model: a graph, functions, the operator sets that they use, and metadata.
    message ModelProto {
        /// The version of the format, see [`IR_VERSION`](super::IR_VERSION).
        1 ir_version: Option<i64>,
        /// The tool that wrote the model.
        2 producer_name: Option<Str>,
        /// The version of that tool.
        3 producer_version: Option<Str>,
        /// The namespace of the model, as a reverse DNS name.
        4 domain: Option<Str>,
        /// The version of the model itself.
        5 model_version: Option<i64>,
        /// A description for people.
        6 doc_string: Option<Box<Str>>,
        /// The main graph.
        7 graph: Option<Box<GraphProto>>,
        /// The operator sets that its nodes use.
        8 opset_import: Vec<OperatorSetIdProto>,
        /// Metadata: keys and values.
        14 metadata_props: Vec<StringStringEntryProto>,
        /// How to train the model.
        20 training_info: Rare<Vec<TrainingInfoProto>>,
        /// Local functions, which nodes call like operators.
        25 functions: Vec<FunctionProto>,
        /// The groups of devices that nodes may be distributed over.
        26 configuration: Rare<Vec<DeviceConfigurationProto>>,
    }

    /// A function: the nodes that a call of it stands for.
    message FunctionProto (outlined) {
        /// Its name. Domain, name and overload together are unique.
        1 name: Option<Str>,
        /// The names of its inputs.
        4 input: Vec<Str>,
        /// The names of its outputs.
        5 output: Vec<Str>,
        /// The names of the required attributes of a call.
        6 attribute: Vec<Str>,
        /// The nodes of its body.
        7 node: Vec<NodeProto>,
        /// A description for people.
        8 doc_string: Option<Box<Str>>,
        /// The operator sets that its nodes use.
        9 opset_import: Vec<OperatorSetIdProto>,
        /// Its domain, which calls have as theirs.
        10 domain: Option<Str>,
        /// The optional attributes of a call, with their defaults.
        11 attribute_proto: Vec<AttributeProto>,
        /// Types and shapes of the values in its body.
        12 value_info: Vec<ValueInfoProto>,
        /// Distinguishes functions with the same domain and name.
        13 overload: Option<Box<Str>>,
        /// Metadata: keys and values.
        14 metadata_props: Vec<StringStringEntryProto>,
    }

    /// How a model is trained.
    message TrainingInfoProto {
        /// The graph that computes the state before the first step.
        1 initialization: Option<Box<GraphProto>>,
        /// The graph of one step.
        2 algorithm: Option<Box<GraphProto>>,
        /// The initializer that each output of the initialization is assigned to.
        3 initialization_binding: Vec<StringStringEntryProto>,
        /// The initializer that each output of a step is assigned to.
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
