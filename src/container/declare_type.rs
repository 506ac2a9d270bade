//! [`Container::declare_type`]: the type of a value that the model does not declare.
//!
//! Parts of a model need the types of the values between them, and exporters declare those of
//! inputs and outputs alone. The type is given as text, as people read it.

use crate::container::Container;
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::proto::tensor_shape_proto::Dimension;
use crate::proto::{TypeProto, ValueInfoProto};

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
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when no node of the main graph computes such a value;
    /// [`ErrorKind::AlreadyExists`] when the model declares its type;
    /// [`ErrorKind::InvalidArgument`] for a text that is no type.
    pub fn declare_type(&mut self, name: &str, text: &str) -> Result<()> {
        self.check_nesting()?;
        let named = |error: Error| error.with_tensor(name);
        let declared = Some(Box::new(parse(text).map_err(named)?));
        let none = || Error::new(ErrorKind::InvalidModel, "the model has no graph");
        let graph = self.model.graph.as_deref().ok_or_else(none)?;
        if !graph.node.iter().flat_map(|node| &node.output).any(|output| *output == name) {
            let reason = "no node of the main graph has an output of this name";
            return Err(named(Error::new(ErrorKind::MissingTensor, reason)));
        }
        let is_it = |info: &ValueInfoProto| info.name.as_ref().is_some_and(|it| *it == name);
        let mut infos = graph.value_info.iter().chain(&graph.output).filter(|info| is_it(info));
        if infos.any(|info| info.r#type.is_some()) {
            let reason = "the model declares the type of this value already";
            return Err(named(Error::new(ErrorKind::AlreadyExists, reason)));
        }
        let graph = self.model_mut().graph.as_deref_mut().ok_or_else(none)?;
        let infos = graph.output.iter_mut().chain(&mut graph.value_info);
        let mut known = false;
        for info in infos.filter(|info| is_it(info)) {
            info.r#type.clone_from(&declared);
            known = true;
        }
        if !known {
            let mut info = ValueInfoProto::default();
            (info.name, info.r#type) = (Some(name.into()), declared);
            graph.value_info.push(info);
        }
        Ok(())
    }
}

/// The type that `text` says.
fn parse(text: &str) -> Result<TypeProto> {
    let wrong = |what: String| {
        let reason = format!("{what} in `{text}`, which is no type such as `FLOAT[N,128]`");
        Error::new(ErrorKind::InvalidArgument, reason)
    };
    let (dtype, rest) = text.split_once('[').ok_or_else(|| wrong("no `[`".to_owned()))?;
    let dims =
        rest.trim_end().strip_suffix(']').ok_or_else(|| wrong("no `]` at the end".into()))?;
    let known = DataType::ALL.iter().find(|known| known.to_string() == dtype.trim());
    let known = known.ok_or_else(|| wrong(format!("no element type `{}`", dtype.trim())))?;
    let dim = |dim: &str| match dim.trim() {
        "" => Err(wrong("an empty dimension".to_owned())),
        "?" => Ok(Dimension::default()),
        name => Ok(name.parse::<i64>().map_or_else(|_| Dimension::from(name), Dimension::from)),
    };
    let dims = match dims.trim() {
        "" => Vec::new(),
        dims => dims.split(',').map(dim).collect::<Result<_>>()?,
    };
    Ok(TypeProto::tensor_with(known.number(), dims))
}
