//! The lowest IR version that has what is in a model.
//!
//! A reader refuses a model of a later version than it knows, whatever is in it. So a model that is
//! made here states the version that its operator sets and messages came with, and not the newest.
//! The sources are the comments on `enum Version` in onnx.proto and the table of releases in
//! `onnx.helper`, which pairs operator sets with versions.

use super::type_proto::Value;
use super::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Str,
    TensorProto, TypeProto, ValueInfoProto,
};
use crate::dtype::DataType;

/// The version with which operator sets came; models have none before.
const OPERATOR_SETS: i64 = 3;
/// Initializers that are not inputs.
const FREE_INITIALIZERS: i64 = 4;
const QUANTIZATION: i64 = 5;
const SPARSE: i64 = 6;
const TRAINING: i64 = 7;
const FUNCTIONS: i64 = 8;
const ATTRIBUTE_DEFAULTS: i64 = 9;
/// Metadata of every message, overloads and types of values in functions.
const METADATA: i64 = 10;
const DEVICES: i64 = 11;

/// The last operator set of each IR version, and that version, from the oldest on.
type Sets = &'static [(i64, i64)];

/// By domain.
const BY_SET: [(&[u8], Sets); 3] = [
    (
        b"",
        &[
            (8, 3),
            (9, 4),
            (10, 5),
            (11, 6),
            (14, 7),
            (18, 8),
            (20, 9),
            (22, 10),
            (23, 11),
            (24, 12),
            (27, 13),
            (28, 14),
        ],
    ),
    (b"ai.onnx.ml", &[(1, 3), (2, 6), (3, 8), (4, 9), (5, 10)]),
    (b"ai.onnx.training", &[(1, 7)]),
];

impl ModelProto {
    /// The lowest IR version that has all that is in this model: its operator sets, as
    /// `onnx.helper.find_min_ir_version_for` says, its element types, functions, sparse tensors and
    /// metadata. Readers take a model that states a higher version only if they know that one.
    ///
    /// ```
    /// # use onnx_container_proto as onnx_container;
    /// use onnx_container::DataType;
    /// use onnx_container::proto::{GraphProto, ModelProto, ValueInfoProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.input.push(ValueInfoProto::tensor("x", DataType::Float8E4M3Fn, [2]));
    /// let model = ModelProto::new(graph).with_operator_set("", 17);
    /// assert_eq!(model.lowest_ir_version(), 9); // 8 for the operator set, 9 for the type
    /// assert_eq!(model.ir_version, Some(9));
    /// ```
    pub fn lowest_ir_version(&self) -> i64 {
        let mut lowest = Lowest(OPERATOR_SETS);
        lowest.sets(&self.opset_import);
        lowest.needs(TRAINING, self.training_info.is_set() && !self.training_info.is_empty());
        lowest.needs(DEVICES, self.configuration.is_set() && !self.configuration.is_empty());
        self.functions.iter().for_each(|function| lowest.function(function));
        let training = self.training_info.iter();
        let training = training.flat_map(|info| [&info.initialization, &info.algorithm]);
        for graph in training.chain([&self.graph]).filter_map(|graph| graph.as_deref()) {
            lowest.graph(graph);
        }
        lowest.0
    }

    /// With one more operator set for its nodes, and at least the IR version that this one came
    /// with.
    #[must_use]
    pub fn with_operator_set(mut self, domain: impl Into<Str>, version: i64) -> Self {
        self.opset_import.push(OperatorSetIdProto::new(domain, version));
        self.raise_ir_version();
        self
    }

    /// With one more local function, and at least the IR version that functions like it came with.
    #[must_use]
    pub fn with_function(mut self, function: FunctionProto) -> Self {
        self.functions.push(function);
        self.raise_ir_version();
        self
    }

    /// Raises `ir_version` to [`lowest_ir_version`](Self::lowest_ir_version), for a model that was
    /// changed since [`ModelProto::new`]. A higher version stays.
    pub fn raise_ir_version(&mut self) {
        self.ir_version = self.ir_version.max(Some(self.lowest_ir_version()));
    }
}

/// The version of an element type.
fn of_type(number: i32) -> i64 {
    match DataType::try_from(number) {
        Ok(DataType::Bfloat16) => 4,
        Ok(
            DataType::Float8E4M3Fn
            | DataType::Float8E4M3Fnuz
            | DataType::Float8E5M2
            | DataType::Float8E5M2Fnuz,
        ) => 9,
        Ok(DataType::Uint4 | DataType::Int4) => 10,
        Ok(DataType::Float4E2M1) => 11,
        Ok(DataType::Float8E8M0) => 12,
        Ok(DataType::Uint2 | DataType::Int2) => 13,
        Ok(DataType::Float6E2M3 | DataType::Float6E3M2) => 14,
        _ => OPERATOR_SETS,
    }
}

/// The version of an operator set; of a domain that onnx does not have, the first with sets.
fn of_set(set: &OperatorSetIdProto) -> i64 {
    let domain = set.domain.as_ref().map_or(&b""[..], Str::as_bytes);
    let domain = if domain == b"ai.onnx" { b"" } else { domain };
    let version = set.version.unwrap_or_default();
    let Some((_, sets)) = BY_SET.iter().find(|(known, _)| *known == domain) else {
        return OPERATOR_SETS;
    };
    let newest = sets.last().map_or(OPERATOR_SETS, |(_, ir_version)| *ir_version);
    sets.iter().find(|(last, _)| version <= *last).map_or(newest, |(_, ir_version)| *ir_version)
}

/// The highest version that was needed so far.
struct Lowest(i64);

impl Lowest {
    fn needs(&mut self, version: i64, if_so: bool) {
        if if_so {
            self.0 = self.0.max(version);
        }
    }

    fn sets(&mut self, sets: &[OperatorSetIdProto]) {
        sets.iter().for_each(|set| self.needs(of_set(set), true));
    }

    fn function(&mut self, function: &FunctionProto) {
        self.needs(FUNCTIONS, true);
        self.needs(ATTRIBUTE_DEFAULTS, !function.attribute_proto.is_empty());
        let metadata = !function.metadata_props.is_empty() || !function.value_info.is_empty();
        self.needs(METADATA, metadata || function.overload.is_some());
        self.sets(&function.opset_import);
        self.values(&function.value_info);
        let mut inner = Vec::new();
        self.attributes(&function.attribute_proto, &mut inner);
        self.nodes(&function.node, &mut inner);
        self.graphs(inner);
    }

    fn graph(&mut self, graph: &GraphProto) {
        self.graphs(vec![graph]);
    }

    /// Graphs, and those inside them: a list, so that no nesting is too deep.
    fn graphs(&mut self, mut graphs: Vec<&GraphProto>) {
        while let Some(graph) = graphs.pop() {
            self.needs(QUANTIZATION, !graph.quantization_annotation.is_empty());
            self.needs(SPARSE, !graph.sparse_initializer.is_empty());
            self.needs(METADATA, !graph.metadata_props.is_empty());
            // Whether they are inputs as well takes longer to find out than it saves.
            self.needs(FREE_INITIALIZERS, !graph.initializer.is_empty());
            graph.initializer.iter().for_each(|tensor| self.tensor(tensor));
            for sparse in &graph.sparse_initializer {
                let parts = [&sparse.values, &sparse.indices];
                parts.into_iter().flatten().for_each(|tensor| self.tensor(tensor));
            }
            self.values(&graph.input);
            self.values(&graph.output);
            self.values(&graph.value_info);
            self.nodes(&graph.node, &mut graphs);
        }
    }

    fn nodes<'m>(&mut self, nodes: &'m [NodeProto], graphs: &mut Vec<&'m GraphProto>) {
        for node in nodes {
            self.needs(METADATA, !node.metadata_props.is_empty());
            if node.more.is_set() {
                self.needs(METADATA, node.overload.is_some());
                self.needs(DEVICES, !node.device_configurations.is_empty());
            }
            self.attributes(&node.attribute, graphs);
        }
    }

    fn attributes<'m>(
        &mut self,
        attributes: &'m [AttributeProto],
        graphs: &mut Vec<&'m GraphProto>,
    ) {
        for attribute in attributes {
            attribute.t.iter().for_each(|tensor| self.tensor(tensor));
            graphs.extend(attribute.g.as_deref());
            let Some(more) = attribute.more.as_deref() else { continue };
            graphs.extend(&more.graphs);
            more.tensors.iter().for_each(|tensor| self.tensor(tensor));
            more.tp.as_deref().into_iter().chain(&more.type_protos).for_each(|one| self.of(one));
            for sparse in more.sparse_tensor.as_deref().into_iter().chain(&more.sparse_tensors) {
                self.needs(SPARSE, true);
                sparse.values.iter().for_each(|tensor| self.tensor(tensor));
            }
        }
    }

    fn tensor(&mut self, tensor: &TensorProto) {
        self.needs(of_type(tensor.data_type.unwrap_or_default()), true);
        self.needs(METADATA, !tensor.metadata_props.is_empty());
    }

    fn values(&mut self, values: &[ValueInfoProto]) {
        for value in values {
            self.needs(METADATA, !value.metadata_props.is_empty());
            value.r#type.iter().for_each(|of| self.of(of));
        }
    }

    fn of(&mut self, outer: &TypeProto) {
        let mut next = Some(outer);
        while let Some(value) = next.and_then(|of| of.value.as_ref()) {
            let element = match value {
                Value::TensorType(tensor) => tensor.elem_type,
                Value::SparseTensorType(tensor) => {
                    self.needs(FUNCTIONS, true);
                    tensor.elem_type
                }
                Value::MapType(map) => map.key_type,
                Value::OptionalType(_) => {
                    self.needs(FUNCTIONS, true);
                    None
                }
                Value::SequenceType(_) | Value::OpaqueType(_) => None,
            };
            self.needs(of_type(element.unwrap_or_default()), true);
            next = match value {
                Value::SequenceType(sequence) => sequence.elem_type.as_deref(),
                Value::OptionalType(optional) => optional.elem_type.as_deref(),
                Value::MapType(map) => map.value_type.as_deref(),
                _ => None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        DeviceConfigurationProto, NodeDeviceConfigurationProto, SparseTensorProto,
        StringStringEntryProto, TensorAnnotation, TrainingInfoProto,
    };
    use super::*;

    #[test]
    fn operator_sets_have_the_versions_of_their_releases() {
        let cases: [(&str, &[i64]); 4] = [
            (
                "",
                &[
                    3, 3, 3, 3, 3, 3, 3, 3, 4, 5, 6, 7, 7, 7, 8, 8, 8, 8, 9, 9, 10, 10, 11, 12, 13,
                    13, 13, 14, 14,
                ],
            ),
            ("ai.onnx.ml", &[3, 6, 8, 9, 10, 10]),
            ("ai.onnx.training", &[7]),
            ("com.example", &[3, 3]),
        ];
        for (domain, versions) in cases {
            for (set, version) in (1..).zip(versions) {
                let model = ModelProto::new(GraphProto::new("g")).with_operator_set(domain, set);
                assert_eq!(model.ir_version, Some(*version), "{domain} {set}");
            }
        }
        let model = ModelProto::new(GraphProto::new("g")).with_operator_set("ai.onnx", 24);
        assert_eq!(model.ir_version, Some(12));
    }

    fn graph(change: impl FnOnce(&mut GraphProto)) -> ModelProto {
        let mut graph = GraphProto::new("g");
        change(&mut graph);
        ModelProto::new(graph)
    }

    fn attribute(attribute: AttributeProto) -> ModelProto {
        let mut node = NodeProto::new("Op", ["x"], ["y"]);
        node.attribute.push(attribute);
        graph(|graph| graph.node.push(node))
    }

    fn node(change: impl FnOnce(&mut NodeProto)) -> ModelProto {
        let mut node = NodeProto::new("Op", ["x"], ["y"]);
        change(&mut node);
        graph(|graph| graph.node.push(node))
    }

    fn function(change: impl FnOnce(&mut FunctionProto)) -> ModelProto {
        let mut function = FunctionProto::new("d", "f");
        change(&mut function);
        ModelProto::new(GraphProto::new("g")).with_function(function)
    }

    fn value(value: Value) -> ModelProto {
        let of = TypeProto { value: Some(value), ..TypeProto::default() };
        let info = ValueInfoProto { r#type: Some(Box::new(of)), ..ValueInfoProto::default() };
        graph(|graph| graph.value_info.push(info))
    }

    /// What came with each version, alone in a model.
    fn cases() -> Vec<(i64, ModelProto)> {
        let note = || StringStringEntryProto::new("key", "value");
        let tensor = |of: i32| TensorProto::new("w", of, [1]);
        let sparse = || SparseTensorProto::new(tensor(1), tensor(7), [4]);
        let noted = || TensorProto { metadata_props: vec![note()].into(), ..tensor(1) };
        let info = || ValueInfoProto { metadata_props: vec![note()].into(), ..Default::default() };
        let float8 = || tensor(TensorProto::FLOAT8E5M2);
        let mut training = ModelProto::new(GraphProto::new("g"));
        training.training_info.push(TrainingInfoProto::default());
        let mut devices = ModelProto::new(GraphProto::new("g"));
        devices.configuration.push(DeviceConfigurationProto::default());
        [&mut training, &mut devices].into_iter().for_each(ModelProto::raise_ir_version);
        let branch = graph(|graph| graph.initializer.push(float8())).graph;
        let mut tp = AttributeProto::int("tp", 1);
        tp.tp = Some(Box::new(TypeProto::tensor(TensorProto::INT4, [1])));
        vec![
            (3, graph(|_| ())),
            (3, graph(|g| g.input.push(ValueInfoProto::tensor("x", DataType::Double, [1])))),
            (4, graph(|g| g.initializer.push(tensor(TensorProto::FLOAT)))),
            (4, graph(|g| g.input.push(ValueInfoProto::tensor("x", DataType::Bfloat16, [1])))),
            (5, graph(|g| g.quantization_annotation.push(TensorAnnotation::default()))),
            (6, graph(|g| g.sparse_initializer.push(sparse()))),
            (6, attribute(AttributeProto::sparse_tensor("value", sparse()))),
            (7, training),
            (8, value(Value::OptionalType(Box::default()))),
            (8, value(Value::SparseTensorType(Box::default()))),
            (8, function(|_| ())),
            (9, function(|f| f.attribute_proto.push(AttributeProto::int("i", 1)))),
            (9, function(|f| f.opset_import.push(OperatorSetIdProto::new("", 20)))),
            (9, attribute(AttributeProto::graph("body", *branch.unwrap_or_default()))),
            (9, attribute(AttributeProto::tensor("value", float8()))),
            (9, attribute(AttributeProto::tensors("values", [float8()]))),
            (10, function(|f| f.overload = Some(Box::new("o".into())))),
            (10, function(|f| f.metadata_props.push(note()))),
            (10, function(|f| f.value_info.push(ValueInfoProto::default()))),
            (10, graph(|g| g.metadata_props.push(note()))),
            (10, graph(|g| g.initializer.push(noted()))),
            (10, graph(|g| g.output.push(info()))),
            (10, node(|n| n.metadata_props.push(note()))),
            (10, node(|n| n.overload = Some(Box::new("o".into())))),
            (10, attribute(tp)),
            (11, node(|n| n.device_configurations.push(NodeDeviceConfigurationProto::default()))),
            (11, devices),
        ]
    }

    #[test]
    fn each_part_of_a_model_has_the_version_that_it_came_with() {
        for (number, (version, model)) in cases().into_iter().enumerate() {
            assert_eq!(model.ir_version, Some(version), "case {number}");
        }
    }

    #[test]
    fn element_types_have_the_versions_that_they_came_with() {
        let versions = DataType::ALL.iter().map(|of| {
            let model = graph(|g| g.input.push(ValueInfoProto::tensor("x", *of, [1])));
            (*of, model.ir_version.unwrap_or_default())
        });
        let later: Vec<_> = versions.filter(|(_, version)| *version > 3).collect();
        use DataType as D;
        let expected = [
            (D::Bfloat16, 4),
            (D::Float8E4M3Fn, 9),
            (D::Float8E4M3Fnuz, 9),
            (D::Float8E5M2, 9),
            (D::Float8E5M2Fnuz, 9),
            (D::Uint4, 10),
            (D::Int4, 10),
            (D::Float4E2M1, 11),
            (D::Float8E8M0, 12),
            (D::Uint2, 13),
            (D::Int2, 13),
            (D::Float6E2M3, 14),
            (D::Float6E3M2, 14),
        ];
        assert_eq!(later, expected);
    }
}
