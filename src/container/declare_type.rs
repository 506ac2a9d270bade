//! [`Container::declare_type`]: the type of a value that the model does not declare.
//!
//! Parts of a model need the types of the values between them, and exporters declare those of
//! inputs and outputs alone. The type is given as text, as people read it. It completes what the
//! model says, and never contradicts it.

use crate::container::Container;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::inferred_types::{InferredType, inferred_types};
use crate::proto::tensor_shape_proto::{Dimension, DimensionValue};
use crate::proto::type_proto::Value;
use crate::proto::{GraphProto, ValueInfoProto};
use crate::wire::Str;

impl Container {
    /// Declares that the value `name` of the main graph is a tensor of the type `text`, such as
    /// `FLOAT[N,128]`: an element type and the dimensions, which are numbers, names, or `?` where
    /// nothing is known. `FLOAT[]` is a scalar.
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
    /// these.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when no node of the main graph computes such a value;
    /// [`ErrorKind::DataType`] and [`ErrorKind::Shape`] when the model declares another type, or
    /// another one follows from declared ones; [`ErrorKind::InvalidArgument`] for a text that is no
    /// type.
    pub fn declare_type(&mut self, name: &str, text: &str) -> Result<()> {
        self.check_nesting()?;
        let named = |error: Error| error.with_tensor(name);
        let given = parse(text).map_err(named)?;
        let graph = self.model.graph.as_deref().ok_or_else(no_graph)?;
        if !graph.node.iter().flat_map(|node| &node.output).any(|output| *output == name) {
            return Err(named(Error::new(ErrorKind::MissingTensor, not_computed(graph, name))));
        }
        refuse_other_kinds(graph, name)?;
        let known = inferred_types(&self.model).get(&Str::from(name)).cloned();
        let whole = match &known {
            Some(known) => completed(known, given).map_err(named)?,
            None => given,
        };
        let graph = self.model_mut().graph.as_deref_mut().ok_or_else(no_graph)?;
        declare(graph, name, &whole)
    }

    /// The element type of a value of the main graph, where the model declares it or it follows
    /// from declared ones.
    pub fn element_type(&self, name: &str) -> Option<DataType> {
        let known = inferred_types(&self.model).get(&Str::from(name))?.dtype;
        DataType::try_from(known).ok()
    }
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
fn declare(graph: &mut GraphProto, name: &str, whole: &InferredType) -> Result<()> {
    let whole = whole.whole().ok_or_else(|| Error::internal("a given type without a shape"))?;
    let infos = graph.output.iter_mut().chain(&mut graph.value_info);
    let mut is_listed = false;
    for info in infos.filter(|info| is_of(info, name)) {
        let denotation = info.r#type.take().and_then(|old| old.denotation);
        let mut own = whole.clone();
        own.denotation = denotation;
        info.r#type = Some(Box::new(own));
        is_listed = true;
    }
    if !is_listed {
        let mut info = ValueInfoProto::default();
        (info.name, info.r#type) = (Some(name.into()), Some(Box::new(whole)));
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
    let differ = |(a, b): (&Dimension, &Dimension)| is_size(a) && is_size(b) && a.value != b.value;
    if of_known.len() != of_given.len() || pairs().any(differ) {
        return contradicts(ErrorKind::Shape);
    }
    let dims = pairs().map(|(known, given)| completed_dim(known, given)).collect();
    Ok(InferredType { dtype: known.dtype, dims: Some(dims) })
}

/// A number before a name, and a name before nothing.
fn completed_dim(known: &Dimension, given: &Dimension) -> Dimension {
    let is_more = is_size(given) || known.value.is_none();
    let value = if is_size(known) || !is_more { &known.value } else { &given.value };
    let mut dim = known.clone();
    dim.value.clone_from(value);
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

/// The dimension that `text` says, or what is wrong with it.
fn dimension(text: &str) -> Result<Dimension, String> {
    let text = text.trim();
    let is_name = text.starts_with(|first: char| first.is_alphabetic() || first == '_')
        && !text.contains(['[', ']', '?']);
    match text {
        "" => Err("an empty dimension".to_owned()),
        "?" => Ok(Dimension::default()),
        name if is_name => Ok(Dimension::from(name)),
        number if number.bytes().all(|digit| digit.is_ascii_digit()) => {
            let size = number.parse::<i64>();
            size.map(Dimension::from).map_err(|_| format!("the dimension `{number}` is too large"))
        }
        other => Err(format!("`{other}` is no dimension (a number, a name, or `?`)")),
    }
}
