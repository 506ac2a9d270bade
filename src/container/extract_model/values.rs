//! The values of the main graph: what there is of a name, and the types of those that become inputs
//! and outputs of a part.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::{Error, ErrorKind, Errors, Result};
use crate::graph::inferred_types::{InferredType, inferred_types};
use crate::graph::value_names::{Names, Role};
use crate::proto::type_proto::Value;
use crate::proto::{GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto};
use crate::util::did_you_mean::did_you_mean;
use crate::wire::Str;

/// What the main graph has.
pub(super) struct Values<'g> {
    pub(super) graph: &'g GraphProto,
    /// The number of the node that computes each value.
    pub(super) producers: HashMap<&'g Str, usize>,
    pub(super) inputs: HashMap<&'g Str, &'g ValueInfoProto>,
    /// Dense and sparse initializers: those of the latter by their values.
    pub(super) initializers: HashMap<&'g Str, &'g TensorProto>,
    /// The dimensions of the sparse ones.
    sparse_dims: HashMap<&'g Str, &'g Vec<i64>>,
    /// What the graph says of the types of values.
    declared: HashMap<&'g Str, &'g ValueInfoProto>,
}

impl<'g> Values<'g> {
    pub(super) fn of(graph: &'g GraphProto) -> Self {
        let by_name = |list: &'g [ValueInfoProto]| {
            list.iter().filter_map(|info| Some((info.name.as_ref()?, info)))
        };
        let mut producers = HashMap::new();
        for (number, node) in graph.node.iter().enumerate() {
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            producers.extend(outputs.map(|name| (name, number)));
        }
        let sparse_dims = graph
            .sparse_initializer
            .iter()
            .filter_map(|one| Some((one.values.as_deref()?.name.as_ref()?, &one.dims)));
        let sparse = graph.sparse_initializer.iter().filter_map(|one| one.values.as_deref());
        let tensors = graph.initializer.iter().chain(sparse);
        let initializers = tensors.filter_map(|tensor| Some((tensor.name.as_ref()?, tensor)));
        let declared = by_name(&graph.value_info).chain(by_name(&graph.output));
        Self {
            graph,
            producers,
            inputs: by_name(&graph.input).collect(),
            initializers: initializers.collect(),
            sparse_dims: sparse_dims.collect(),
            declared: declared.chain(by_name(&graph.input)).collect(),
        }
    }

    fn has(&self, name: &Str) -> bool {
        self.producers.contains_key(name)
            || self.inputs.contains_key(name)
            || self.initializers.contains_key(name)
    }

    /// The values of these names, each once.
    pub(super) fn named(&self, names: &[impl AsRef<str>]) -> Result<Vec<Str>> {
        let (mut named, mut seen, mut errors) = (Vec::new(), HashSet::new(), Errors::default());
        for name in names.iter().map(AsRef::as_ref) {
            let value = Str::from(name);
            if !self.has(&value) {
                errors.push(self.unknown(name));
            } else if !seen.insert(value.clone()) {
                let reason = "is given twice";
                errors.push(Error::new(ErrorKind::InvalidArgument, reason).with_tensor(name));
            }
            named.push(value);
        }
        errors.join().map_or(Ok(named), Err)
    }

    fn unknown(&self, name: &str) -> Error {
        let all = self.producers.keys().chain(self.inputs.keys()).chain(self.initializers.keys());
        let all: BTreeSet<_> = all.map(|name| name.to_string_lossy()).collect();
        let hint = match did_you_mean(name, all.iter().map(AsRef::as_ref)) {
            Some(meant) => format!("; {meant}"),
            None if self.is_inner(name) => "; values of subgraphs cannot be cut at".to_owned(),
            None => String::new(),
        };
        let reason = format!("the main graph has no value of this name{hint}");
        Error::new(ErrorKind::MissingTensor, reason).with_tensor(name)
    }

    /// Whether a subgraph defines a value of this name.
    fn is_inner(&self, name: &str) -> bool {
        let mut found = false;
        let mut visit = |role: Role, other: &Str| {
            found |= role == Role::Definition && *other == name;
        };
        Names { visit: &mut visit, skip: &|_| false }.graph(self.graph);
        found
    }

    /// The inputs and outputs of a part with their types: declared ones, or those that follow.
    pub(super) fn declarations(
        &self,
        model: &ModelProto,
        inputs: &[Str],
        outputs: &[Str],
    ) -> Result<(Vec<ValueInfoProto>, Vec<ValueInfoProto>)> {
        let inferred = std::cell::OnceCell::new();
        let mut errors = Errors::default();
        let mut all = |names: &[Str]| {
            let inferred = || inferred.get_or_init(|| inferred_types(model));
            let infos = names.iter().map(|name| match self.declared(name) {
                Some(info) => Ok(info),
                None => self.inferred(name, inferred().get(name)),
            });
            infos.filter_map(|info| info.map_err(|error| errors.push(error)).ok()).collect()
        };
        let both = (all(inputs), all(outputs));
        errors.join().map_or(Ok(both), Err)
    }

    /// The value with the whole type that the model declares, as an input or output of a graph.
    fn declared(&self, name: &Str) -> Option<ValueInfoProto> {
        if let Some(info) = self.declared.get(name).filter(|info| is_whole(info)) {
            return Some((*info).clone());
        }
        let tensor = self.initializers.get(name)?;
        let dims = self.sparse_dims.get(name).copied().unwrap_or(&tensor.dims);
        let dtype = tensor.data_type.unwrap_or(0);
        Some(typed(name, TypeProto::tensor(dtype, dims.iter().copied())))
    }

    /// The value with the type that follows from others, if it does. An input or output of the
    /// model may be declared without a shape, and stays so.
    fn inferred(&self, name: &Str, inferred: Option<&InferredType>) -> Result<ValueInfoProto> {
        if let Some(whole) = inferred.and_then(InferredType::whole) {
            return Ok(typed(name, whole));
        }
        let ends = self.graph.input.iter().chain(&self.graph.output);
        let mut ends = ends.filter(|info| info.name.as_ref() == Some(name));
        match ends.find(|info| info.r#type.is_some()) {
            Some(info) => Ok(info.clone()),
            None => Err(untyped(name, inferred)),
        }
    }
}

/// Whether a value is declared with the elements and the shape, or is no tensor.
fn is_whole(info: &ValueInfoProto) -> bool {
    match info.r#type.as_deref().and_then(|it| it.value.as_ref()) {
        Some(Value::TensorType(tensor)) => {
            tensor.shape.is_some() && tensor.elem_type.is_some_and(|dtype| dtype != 0)
        }
        other => other.is_some(),
    }
}

fn typed(name: &Str, of: TypeProto) -> ValueInfoProto {
    let mut info = ValueInfoProto::default();
    (info.name, info.r#type) = (Some(name.clone()), Some(Box::new(of)));
    info
}

fn untyped(name: &Str, inferred: Option<&InferredType>) -> Error {
    let known =
        inferred.map(|known| format!(", of which only the elements are known, {}", known.text()));
    let reason = format!(
        "the model does not declare the type of this value{}: declare it, or let \
         `onnx.shape_inference.infer_shapes_path` add all types that it can infer",
        known.unwrap_or_default()
    );
    Error::new(ErrorKind::MissingType, reason).with_tensor(name.to_string_lossy())
}
