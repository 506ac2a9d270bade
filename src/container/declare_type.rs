//! [`Container::declare_type`]: the type of a value that the model does not declare.
//!
//! Parts of a model need the types of the values between them, and exporters declare those of
//! inputs and outputs alone. The type is given as text, as people read it. It completes what the
//! model says, and never contradicts it.

use std::collections::BTreeMap;

use crate::container::Container;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::inferred_types::{InferredType, inferred_types, inferred_types_with};
use crate::proto::tensor_shape_proto::{Dimension, DimensionValue};
use crate::proto::type_proto::Value;
use crate::proto::{GraphProto, ModelProto, TypeProto, ValueInfoProto};
use crate::wire::Str;

impl Container {
    /// Declares that the value `name` of the main graph is a tensor of the type `text`, such as
    /// `FLOAT[N,128]`: an element type and the dimensions, which are numbers, names such as `N` and
    /// `2*s0`, or `?` where nothing is known. `FLOAT[]` is a scalar.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.node.push(NodeProto::new("Custom", ["x"], ["h"]));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.declare_type("h", "FLOAT[N,128]")?;
    /// assert_eq!(container.model().graph.as_ref().unwrap().value_info.len(), 1);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// Where the model declares a type without a shape, or with unknown dimensions, the text adds
    /// these. A given name replaces a name.
    ///
    /// # Errors
    /// Those of [`declare_types`](Self::declare_types).
    pub fn declare_type(&mut self, name: &str, text: &str) -> Result<()> {
        self.declare_types([(name, text)])
    }

    /// As [`declare_type`](Self::declare_type), for several values at once: each name with its
    /// type. What follows from other types is found once for all of them.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when no node of the main graph computes such a value;
    /// [`ErrorKind::DataType`] and [`ErrorKind::Shape`] when the model declares another type, or
    /// another one follows from declared or given ones; [`ErrorKind::InvalidArgument`] for a text
    /// that is no type. Nothing is declared then.
    pub fn declare_types<N: AsRef<str>, T: AsRef<str>>(
        &mut self,
        types: impl IntoIterator<Item = (N, T)>,
    ) -> Result<()> {
        self.check_nesting()?;
        let graph = self.model.graph.as_deref().ok_or_else(no_graph)?;
        let mut given = BTreeMap::new();
        for (name, text) in types {
            let name = name.as_ref();
            let mut own = parse(text.as_ref()).map_err(|error| error.with_tensor(name))?;
            refuse_mistyped(&own, graph).map_err(|error| error.with_tensor(name))?;
            if let Some(before) = given.get(&Str::from(name)) {
                own = completed(before, own).map_err(|error| error.with_tensor(name))?;
            }
            given.insert(Str::from(name), with_declared(graph, name, own)?);
        }
        let whole = with_inferred(&self.model, given)?;
        let graph = self.model_mut().graph.as_deref_mut().ok_or_else(no_graph)?;
        whole.iter().try_for_each(|(name, whole)| declare(graph, name, whole))
    }

    /// The type of a value of the main graph that is a tensor, where the model declares it or it
    /// follows from declared ones by common operators; without a shape where that is not known.
    pub fn value_type(&self, name: &str) -> Option<TypeProto> {
        inferred_types(&self.model).get(&Str::from(name)).map(InferredType::to_proto)
    }
}

/// The `given` type of the value `name` with what `graph` declares of it, which it must not
/// contradict.
fn with_declared(graph: &GraphProto, name: &str, given: InferredType) -> Result<InferredType> {
    let named = |error: Error| error.with_tensor(name);
    if !graph.node.iter().flat_map(|node| &node.output).any(|output| *output == name) {
        return Err(named(Error::new(ErrorKind::MissingTensor, not_computed(graph, name))));
    }
    refuse_other_kinds(graph, name)?;
    let infos = graph.output.iter().chain(&graph.value_info).filter(|info| is_of(info, name));
    let mut known = infos.filter_map(InferredType::declared);
    known.try_fold(given, |given, known| completed(&known, given).map_err(named))
}

/// The `given` types with what follows from others, which they must not contradict.
fn with_inferred(
    model: &ModelProto,
    mut given: BTreeMap<Str, InferredType>,
) -> Result<BTreeMap<Str, InferredType>> {
    inferred_types_with(model, |name, known| -> Result<_> {
        let Some(own) = given.get_mut(name) else { return Ok(None) };
        if let Some(known) = known {
            let whole = completed(known, own.clone());
            *own = whole.map_err(|error| error.with_tensor(name.to_string_lossy()))?;
        }
        Ok(Some(own.clone()))
    })?;
    Ok(given)
}

fn no_graph() -> Error {
    Error::new(ErrorKind::InvalidModel, "the model has no graph")
}

fn is_of(info: &ValueInfoProto, name: &str) -> bool {
    info.name.as_ref().is_some_and(|it| *it == name)
}

/// Why the value `name`, which no node of `graph` computes, gets no type.
fn not_computed(graph: &GraphProto, name: &str) -> &'static str {
    if graph.input.iter().any(|info| is_of(info, name)) {
        return "this is an input of the model: only values that nodes compute are given types";
    }
    let mut tensors = graph.initializer.iter().filter_map(|tensor| tensor.name.as_ref());
    match tensors.any(|it| *it == name) {
        true => "this is an initializer, which has a type",
        false => "no node of the main graph has an output of this name",
    }
}

/// Refuses a value that the model declares to be no tensor.
fn refuse_other_kinds(graph: &GraphProto, name: &str) -> Result<()> {
    let is_other = |info: &ValueInfoProto| {
        let value = info.r#type.as_deref().and_then(|it| it.value.as_ref());
        value.is_some_and(|value| !matches!(value, Value::TensorType(_)))
    };
    let mut infos = graph.value_info.iter().chain(&graph.output).filter(|info| is_of(info, name));
    if infos.any(is_other) {
        let reason = "the model declares that this value is no tensor";
        return Err(Error::new(ErrorKind::DataType, reason).with_tensor(name));
    }
    Ok(())
}

/// Declares the type of the value `name` wherever the graph lists the value.
fn declare(graph: &mut GraphProto, name: &Str, whole: &InferredType) -> Result<()> {
    let whole = whole.whole().ok_or_else(|| Error::internal("a given type without a shape"))?;
    let infos = graph.output.iter_mut().chain(&mut graph.value_info);
    let mut is_listed = false;
    for info in infos.filter(|info| info.name.as_ref() == Some(name)) {
        let denotation = info.r#type.take().and_then(|old| old.denotation);
        let mut own = whole.clone();
        own.denotation = denotation;
        info.r#type = Some(Box::new(own));
        is_listed = true;
    }
    if !is_listed {
        let mut info = ValueInfoProto::default();
        (info.name, info.r#type) = (Some(name.clone()), Some(Box::new(whole)));
        graph.value_info.push(info);
    }
    Ok(())
}

/// The `known` type with what the `given` one adds to it.
fn completed(known: &InferredType, given: InferredType) -> Result<InferredType> {
    let contradicts = |kind| {
        let (given, known) = (given.text(), known.text());
        let reason = format!("`{given}` contradicts what the model says of this value, `{known}`");
        Err(Error::new(kind, reason))
    };
    if known.dtype != given.dtype {
        return contradicts(ErrorKind::DataType);
    }
    let (Some(of_known), Some(of_given)) = (&known.dims, &given.dims) else { return Ok(given) };
    let pairs = || of_known.iter().zip(of_given);
    let differ = |(known, given): (&Dimension, &Dimension)| {
        is_size(known) && given.value.is_some() && known.value != given.value
    };
    if of_known.len() != of_given.len() || pairs().any(differ) {
        return contradicts(ErrorKind::Shape);
    }
    let dims = pairs().map(|(known, given)| completed_dim(known, given)).collect();
    Ok(InferredType { dtype: known.dtype, dims: Some(dims) })
}

/// What is given, or what is known where nothing is given.
fn completed_dim(known: &Dimension, given: &Dimension) -> Dimension {
    let mut dim = known.clone();
    if given.value.is_some() {
        dim.value.clone_from(&given.value);
    }
    dim
}

fn is_size(dim: &Dimension) -> bool {
    matches!(dim.value, Some(DimensionValue::DimValue(_)))
}

/// The type that `text` says.
fn parse(text: &str) -> Result<InferredType> {
    let wrong = |what: String| {
        let reason = format!("{what} in `{text}`, which is no type such as `FLOAT[N,128]`");
        Error::new(ErrorKind::InvalidArgument, reason)
    };
    let (dtype, rest) = text.split_once('[').ok_or_else(|| wrong("no `[`".to_owned()))?;
    let dims =
        rest.trim_end().strip_suffix(']').ok_or_else(|| wrong("no `]` at the end".into()))?;
    let mut known = DataType::ALL.iter().filter(|known| **known != DataType::Undefined);
    let known = known.find(|known| known.to_string() == dtype.trim());
    let known = known.ok_or_else(|| wrong(format!("no element type `{}`", dtype.trim())))?;
    let dims = match dims.trim() {
        "" => Vec::new(),
        dims => dims.split(',').map(dimension).collect::<Result<_, _>>().map_err(wrong)?,
    };
    Ok(InferredType { dtype: known.number(), dims: Some(dims) })
}

/// Refuses a dimension such as `3x4`, which begins as a number and is none, unless `graph` has a
/// dimension of this name.
fn refuse_mistyped(given: &InferredType, graph: &GraphProto) -> Result<()> {
    let names = given.dims.iter().flatten().filter_map(name_of);
    let is_known = |name: &Str| {
        let infos = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
        let dims = infos.filter_map(InferredType::declared).filter_map(|it| it.dims);
        dims.flatten().any(|dim| name_of(&dim) == Some(name))
    };
    let Some(name) = names.into_iter().find(|name| is_mistyped(name) && !is_known(name)) else {
        return Ok(());
    };
    let reason = format!(
        "`{name}` is no dimension: a name does not begin with a digit, and dimensions are separated \
         by commas, such as `FLOAT[N,128]`"
    );
    Err(Error::new(ErrorKind::InvalidArgument, reason))
}

fn name_of(dim: &Dimension) -> Option<&Str> {
    match &dim.value {
        Some(DimensionValue::DimParam(name)) => Some(name),
        _ => None,
    }
}

/// Whether a text begins with digits that go on as a name: not a number of an expression, such as
/// that of `2*s0`.
fn is_mistyped(name: &Str) -> bool {
    let name = name.to_string_lossy();
    let after = name.trim_start_matches(|c: char| c.is_ascii_digit());
    after.len() < name.len() && after.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// The dimension that `text` says, or what is wrong with it.
fn dimension(text: &str) -> Result<Dimension, String> {
    let text = text.trim();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = unsigned.starts_with(|first: char| first.is_ascii_digit())
        && unsigned.chars().all(|c| c.is_ascii_digit() || c == '.');
    match text {
        "" => Err("an empty dimension".to_owned()),
        "?" => Ok(Dimension::default()),
        number if number.bytes().all(|digit| digit.is_ascii_digit()) => {
            let size = number.parse::<i64>();
            size.map(Dimension::from).map_err(|_| format!("the dimension `{number}` is too large"))
        }
        name if !is_number && !name.contains(['[', ']']) => Ok(Dimension::from(name)),
        other => Err(format!("`{other}` is no dimension (a number, a name, or `?`)")),
    }
}
