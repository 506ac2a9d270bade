//! Adding and deleting an initializer: [`Container::add_initializer`],
//! [`Container::delete_initializer`].
//!
//! Both change the model and the handles together: no tensor is left without its bytes, and no
//! bytes without a tensor. The places where values are named are left to `value_names`.

use crate::container::{Container, Handle, HandleNames};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::handle_of;
use crate::graph::declared_types;
use crate::graph::traversal::{self, Body, BodyMut, Site};
use crate::graph::value_names::{Names, Role, defines, says};
use crate::proto::{GraphProto, ModelProto, TensorProto, ValueInfoProto};
use crate::tensor::initializer::Initializer;
use crate::wire::Str;

/// What [`Container::delete_initializer`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Deleted {
    /// The tensor, with its scope before the name.
    pub tensor: String,
    /// The handle whose initializer was removed too, because no other tensor names it.
    pub handle: Option<Handle>,
    /// The number of places that still use the value, which something else has to define now.
    pub uses: usize,
}

impl Container {
    /// Adds an initializer called `name` to the main graph, external, behind a new handle: `#name`,
    /// with a number where that is taken.
    ///
    /// In a model of IR version 3 or less, where every initializer has to be an input of the graph,
    /// the input is added as well.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto};
    ///
    /// let mut container = Container::new(ModelProto::new(GraphProto::new("g")));
    /// let handle = container.add_initializer("w", vec![1.0_f32, 2.0])?;
    /// assert_eq!(handle.as_str(), "#w");
    /// assert_eq!(container.tensor("w")?.dims(), [2]);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] when the main graph, or one of its subgraphs, has a value of
    /// this name; [`ErrorKind::InvalidArgument`] for an empty name; [`ErrorKind::Unsupported`] for
    /// strings, which cannot be external; [`ErrorKind::DataType`] and [`ErrorKind::Shape`] where
    /// the graph declares another type or shape for the value; the conversion's error. The
    /// container is then unchanged.
    pub fn add_initializer<I>(&mut self, name: &str, initializer: I) -> Result<Handle>
    where
        I: TryInto<Initializer>,
        I::Error: Into<Error>,
    {
        let of_this = |error: Error| error.with_tensor(name);
        let initializer = initializer.try_into().map_err(|error| of_this(error.into()))?;
        self.check_nesting()?;
        may_be_added(&self.model, name, &initializer).map_err(of_this)?;
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let handle = names.of(name);
        let (dtype, dims) = (initializer.dtype(), initializer.dims());
        let model: &mut ModelProto = &mut self.model;
        let graph = model.graph.get_or_insert_default();
        graph.initializer.push(TensorProto::external(name, dtype, dims, handle.as_str()));
        if model.ir_version.is_some_and(|version| version < 4) {
            graph.input.push(ValueInfoProto::tensor(name, dtype, dims.iter().copied()));
        }
        self.initializers.insert(handle.clone(), initializer);
        Ok(handle)
    }

    /// Deletes the unused initializer called `name`, dense or sparse, from its graph, with its
    /// declared type and quantization annotation, and its bytes from the container when no other
    /// tensor names its handle.
    ///
    /// `name` is as for [`tensor`](Self::tensor). A graph input of this name is kept, without a
    /// default value.
    ///
    /// ```
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto};
    /// use onnx_container::{Container, ErrorKind};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.node.push(NodeProto::new("Relu", ["used"], ["y"]));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.add_initializer("used", vec![1.0_f32])?;
    /// container.add_initializer("spare", vec![1.0_f32])?;
    /// let deleted = container.delete_initializer("spare")?;
    /// assert_eq!(deleted.handle.unwrap().as_str(), "#spare");
    /// assert_eq!(container.delete_initializer("used").unwrap_err().kind(), ErrorKind::InUse);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`TensorIndex::get`](crate::TensorIndex::get) for the name; [`ErrorKind::InUse`]
    /// when a node, an output of a graph or a quantization annotation uses it, also inside a
    /// subgraph; [`ErrorKind::Unsupported`] for a tensor in a node's attribute. The container is
    /// then unchanged.
    pub fn delete_initializer(&mut self, name: &str) -> Result<Deleted> {
        self.remove_initializer(name, false)
    }

    /// As [`delete_initializer`](Self::delete_initializer), also when the value is still used. The
    /// caller then has to define it in another way.
    ///
    /// # Errors
    /// Those of [`delete_initializer`](Self::delete_initializer), except [`ErrorKind::InUse`].
    pub fn delete_used_initializer(&mut self, name: &str) -> Result<Deleted> {
        self.remove_initializer(name, true)
    }

    fn remove_initializer(&mut self, name: &str, used: bool) -> Result<Deleted> {
        self.check_nesting()?;
        let found = self.find_initializer(name).map_err(|error| error.with_tensor(name))?;
        if found.uses > 0 && !used {
            let places = if found.uses == 1 { "place" } else { "places" };
            let reason = format!("it is still used in {} {places}", found.uses);
            return Err(Error::new(ErrorKind::InUse, reason).with_tensor(name));
        }
        let mut number = 0;
        traversal::graphs_mut(&mut self.model, |_, body| {
            if let BodyMut::Graph(graph) = body
                && number == found.graph
            {
                found.delete_from(graph);
            }
            number += 1;
            Ok(())
        })?;
        let handle = found.handle.filter(|handle| !names_handle(&self.model, handle));
        let handle = handle.filter(|handle| self.initializers.remove(handle).is_some());
        Ok(Deleted { tensor: found.qualified, handle, uses: found.uses })
    }

    fn find_initializer(&self, name: &str) -> Result<FoundInitializer> {
        let index = self.index();
        let tensor = index.get(name)?;
        let sparse = match tensor.place().site {
            Site::Initializer => false,
            Site::SparseValues | Site::SparseIndices => true,
            _ => {
                let reason = "it belongs to a node, not to a graph: delete or change the node";
                return Err(Error::new(ErrorKind::Unsupported, reason));
            }
        };
        let (mut found, mut number) = (None, 0);
        traversal::graphs(&self.model, |scope, body| {
            if let Body::Graph(graph) = body
                && let Some((at, value)) = place_in(graph, tensor.proto(), sparse)
            {
                let training =
                    if scope.is_main() { uses_in_training(&self.model, value) } else { 0 };
                found = Some(FoundInitializer {
                    graph: number,
                    at,
                    sparse,
                    name: value.clone(),
                    uses: uses(graph, value) + training,
                    qualified: tensor.qualified().to_owned(),
                    handle: tensor.handle(),
                });
            }
            number += 1;
            Ok(())
        })?;
        found.ok_or_else(|| Error::internal("an initializer without a graph"))
    }
}

/// An initializer in its graph.
struct FoundInitializer {
    /// The index of the graph in the order of `traversal::graphs`.
    graph: usize,
    /// Its index among the graph's initializers, or sparse initializers.
    at: usize,
    sparse: bool,
    name: Str,
    uses: usize,
    qualified: String,
    handle: Option<Handle>,
}

impl FoundInitializer {
    fn delete_from(&self, graph: &mut GraphProto) {
        if self.sparse {
            graph.sparse_initializer.remove(self.at);
        } else {
            graph.initializer.remove(self.at);
        }
        if let Some(annotations) = graph.quantization_annotation.as_deref_mut() {
            annotations.retain(|annotation| annotation.tensor_name.as_ref() != Some(&self.name));
        }
        let input = graph.input.iter().any(|input| input.name.as_ref() == Some(&self.name));
        if !input && self.uses == 0 {
            graph.value_info.retain(|info| info.name.as_ref() != Some(&self.name));
        }
    }
}

/// The index of the initializer of `graph` that is `tensor` (or has it as a part, when it is
/// `sparse`), and its name.
fn place_in<'g>(
    graph: &'g GraphProto,
    tensor: &TensorProto,
    sparse: bool,
) -> Option<(usize, &'g Str)> {
    let same = |other: &TensorProto| std::ptr::eq(other, tensor);
    if sparse {
        let all = graph.sparse_initializer.iter();
        let mut parts = all.map(|all| (all.values.as_deref(), all.indices.as_deref()));
        let at = parts
            .position(|(values, indices)| [values, indices].into_iter().flatten().any(same))?;
        let name = graph.sparse_initializer.get(at)?.values.as_ref()?.name.as_ref()?;
        return Some((at, name));
    }
    let at = graph.initializer.iter().position(same)?;
    Some((at, graph.initializer.get(at)?.name.as_ref()?))
}

/// The number of uses of `name` in `graph`, and in its subgraphs that do not define the name anew.
fn uses(graph: &GraphProto, name: &Str) -> usize {
    let mut uses = 0;
    let mut visit =
        |role: Role, other: &Str| uses += usize::from(role == Role::Use && other == name);
    let skip = |inner: &GraphProto| defines(Body::Graph(inner), name.as_bytes());
    Names { visit: &mut visit, skip: &skip }.graph(graph);
    uses
}

/// The number of uses of the value `name` of the main graph in training graphs and bindings.
fn uses_in_training(model: &ModelProto, name: &Str) -> usize {
    let infos = model.training_info.iter();
    let each = infos.map(|info| {
        let graphs = [&info.initialization, &info.algorithm].into_iter().flatten();
        let users = graphs.filter(|graph| !defines(Body::Graph(graph), name.as_bytes()));
        let bindings = info.initialization_binding.iter().chain(&info.update_binding);
        let bound = bindings.filter(|binding| binding.key.as_ref() == Some(name)).count();
        users.map(|graph| uses(graph, name)).sum::<usize>() + bound
    });
    each.sum()
}

/// Whether a tensor of `model` names `handle`.
fn names_handle(model: &ModelProto, handle: &Handle) -> bool {
    traversal::iter(model).any(|(_, tensor)| handle_of(tensor) == Some(handle.as_str()))
}

fn may_be_added(model: &ModelProto, name: &str, initializer: &Initializer) -> Result<()> {
    if name.is_empty() {
        let reason = "an initializer cannot have an empty name";
        return Err(Error::new(ErrorKind::InvalidArgument, reason));
    }
    if initializer.dtype() == DataType::String {
        return Err(Error::new(ErrorKind::Unsupported, "strings cannot be external"));
    }
    let main = model.graph.as_deref().map(Body::Graph);
    if main.is_some_and(|main| says(main, name, &[Role::Definition])) {
        let reason = "the graph, or one inside, has a value of this name";
        return Err(Error::new(ErrorKind::AlreadyExists, reason));
    }
    let graph = model.graph.as_deref();
    let (dtype, dims) = (initializer.dtype(), initializer.dims());
    graph.map_or(Ok(()), |graph| declared_types::check(graph, name, dtype, dims))
}
