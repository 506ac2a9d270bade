//! [`Container::rename`]: a new name for a value, in every place that names it.
//!
//! A name is valid in the graph that defines it and in subgraphs that do not define it anew. So the
//! graph that defines the name is found, and the name is changed there; `value_names` visits the
//! places. A new name that another value has is refused before anything is changed.

use crate::container::lookup::list;
use crate::container::{Container, Handle, HandleNames};
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::{self, handle_of};
use crate::graph::traversal::{self, Body, BodyMut, Scope};
use crate::graph::value_names::{Names, NamesMut, Role, defines, says};
use crate::proto::{GraphProto, ModelProto, ValueInfoProto};
use crate::util::did_you_mean::did_you_mean;
use crate::wire::Str;

/// A graph, or function, that defines a value of the requested name.
#[derive(Debug)]
struct DefiningGraph {
    /// Its index in the order of `traversal::graphs`.
    number: usize,
    /// The path of its scope.
    path: String,
    /// The name in that graph.
    name: String,
    is_main: bool,
    is_training: bool,
    /// Whether `to` is in use there, or defined in a graph around it.
    taken: bool,
}

impl Container {
    /// Renames the value `from` to `to`: an initializer, an input of the graph or an output of a
    /// node. Returns the number of places that were changed.
    ///
    /// The places are inputs and outputs of nodes and of the graph, initializers, declared types,
    /// quantization annotations, sharding specifications, bindings of training, and all of these in
    /// subgraphs that use the value. A subgraph that defines `from` itself has another value of
    /// that name and is not changed, nor are the bodies of functions. A handle `#from` that only
    /// this tensor names becomes `#to`.
    ///
    /// `from` is a name in the main graph, or one with its scope before it
    /// (`if_node.then_branch/w`), or the name of a value in a single other graph.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.node.push(NodeProto::new("Add", ["x", "w"], ["y"]));
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", vec![1.0_f32, 2.0])?;
    ///
    /// assert_eq!(container.rename("w", "bias")?, 2);
    /// assert_eq!(container.model().graph.as_ref().unwrap().node[0].input[1], "bias");
    /// assert!(container.get("#bias").is_some());
    /// assert!(container.rename("bias", "x").is_err()); // there is an `x`
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when no graph defines a value of this name;
    /// [`ErrorKind::InvalidArgument`] when several do, or a name is empty;
    /// [`ErrorKind::AlreadyExists`] when that graph, one around it or one of its subgraphs has a
    /// value `to`, or that graph or a subgraph declares a type of this name;
    /// [`ErrorKind::Unsupported`] for a value of a training graph. The model is then unchanged.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<usize> {
        self.check_nesting()?;
        let found = find(&self.model, from, to).map_err(|error| error.with_tensor(from))?;
        let mut count = 0;
        let mut number = 0;
        traversal::graphs_mut(&mut self.model, |_, body| {
            if number == found.number {
                count = renamed(body, &found.name, to);
            }
            number += 1;
            Ok(())
        })?;
        if found.is_main {
            count += renamed_in_training(&mut self.model, &found.name, to);
        }
        self.rename_handle(&found.name, to)?;
        Ok(count)
    }

    /// Renames the input `from` of the main graph to `to`, as [`rename`](Self::rename) does.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when the main graph has no input of this name; the errors of
    /// [`rename`](Self::rename).
    pub fn rename_input(&mut self, from: &str, to: &str) -> Result<usize> {
        self.check_nesting()?;
        check_listed(&self.model, "input", |graph| &graph.input, from)?;
        self.rename(from, to)
    }

    /// Renames the output `from` of the main graph to `to`, as [`rename`](Self::rename) does.
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] when the main graph has no output of this name; the errors of
    /// [`rename`](Self::rename).
    pub fn rename_output(&mut self, from: &str, to: &str) -> Result<usize> {
        self.check_nesting()?;
        check_listed(&self.model, "output", |graph| &graph.output, from)?;
        self.rename(from, to)
    }

    /// Renames the handle `#from` to `#to`, when a single tensor, which is already called `to`,
    /// names it.
    fn rename_handle(&mut self, from: &str, to: &str) -> Result<()> {
        let old = format!("#{from}");
        let tensors = traversal::iter(&self.model);
        let users = tensors.filter(|(_, tensor)| handle_of(tensor) == Some(old.as_str()));
        let named: Vec<_> = users.map(|(place, tensor)| (place.position, &tensor.name)).collect();
        let [(position, Some(name))] = named.as_slice() else { return Ok(()) };
        if *name != to || !self.initializers.contains_key(old.as_str()) {
            return Ok(());
        }
        let mut names = HandleNames::with(self.initializers.keys());
        names.avoid(&self.model)?;
        let (position, handle) = (*position, names.of(to));
        if let Some(initializer) = self.initializers.remove(old.as_str()) {
            self.initializers.insert(handle.clone(), initializer);
        }
        set_handle_at(&mut self.model, position, &handle)
    }
}

/// Checks that `list` of the main graph, its inputs or outputs, has `name`.
fn check_listed(
    model: &ModelProto,
    what: &str,
    list: impl Fn(&GraphProto) -> &Vec<ValueInfoProto>,
    name: &str,
) -> Result<()> {
    let infos = model.graph.iter().flat_map(|graph| list(graph));
    let names: Vec<_> = infos.filter_map(|info| info.name.as_ref()).collect();
    if names.iter().any(|known| **known == *name) {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    let is_other = |infos: &[ValueInfoProto]| {
        infos.iter().any(|info| info.name.as_ref().is_some_and(|known| *known == *name))
    };
    let others = model.graph.iter().map(|graph| match what {
        "input" => is_other(&graph.output).then_some("; it is an output"),
        _ => is_other(&graph.input).then_some("; it is an input"),
    });
    let meant = did_you_mean(name, names.iter().map(AsRef::as_ref));
    let hint = match others.flatten().next() {
        Some(other) => other.to_owned(),
        None => meant.map(|meant| format!("; {meant}")).unwrap_or_default(),
    };
    let reason = format!("the graph has no {what} of this name{hint}");
    Err(Error::new(ErrorKind::MissingTensor, reason).with_tensor(name))
}

fn set_handle_at(
    model: &mut ModelProto,
    position: traversal::Position,
    handle: &Handle,
) -> Result<()> {
    let tensor = traversal::iter_mut(model).nth(position.index());
    let (_, tensor) = tensor.ok_or_else(|| Error::internal("a tensor is gone"))?;
    external_data::set_handle(tensor, handle.as_str());
    Ok(())
}

/// The roles in which a name is taken. What is declared of a name would hold for its new value.
const SAID: &[Role] = &[Role::Definition, Role::Use, Role::Mention];

/// The graph that defines the value `from`, after checking that the name `to` is free there.
fn find(model: &ModelProto, from: &str, to: &str) -> Result<DefiningGraph> {
    let invalid = |reason: String| Err(Error::new(ErrorKind::InvalidArgument, reason));
    if to.is_empty() || from.is_empty() {
        return invalid("a value cannot have an empty name".to_owned());
    }
    if to == from {
        return invalid("this is its name already".to_owned());
    }
    let (mut exact, mut plain) = (Vec::new(), Vec::new());
    let mut around = Around::default();
    let mut number = 0;
    traversal::graphs(model, |scope, body| {
        let taken = around.enter(scope.depth(), body, to) || says(body, to, SAID);
        let within = match scope.is_main() {
            true => Some(from),
            false => from.strip_prefix(scope.path()).and_then(|rest| rest.strip_prefix('/')),
        };
        for (name, list) in [(within, &mut exact), (Some(from), &mut plain)] {
            if let Some(name) = name.filter(|name| defines(body, name.as_bytes())) {
                let path = scope.path().to_owned();
                let is_training = is_training(scope);
                let (name, is_main) = (name.to_owned(), scope.is_main());
                list.push(DefiningGraph { number, path, name, is_main, is_training, taken });
            }
        }
        number += 1;
        Ok(())
    })?;
    let found = if exact.is_empty() { &mut plain } else { &mut exact };
    let several = found.len() > 1;
    let each = found.iter().map(|found| format!("`{}/{}`", found.path, found.name));
    let paths = list(each.collect::<Vec<_>>().into_iter());
    match found.pop() {
        None => Err(unknown_value(model, from)),
        Some(_) if several => invalid(format!("several graphs have a value of this name: {paths}")),
        Some(found) if found.is_training => {
            let reason = "values of training graphs cannot be renamed";
            Err(Error::new(ErrorKind::Unsupported, reason))
        }
        Some(found) if found.taken || (found.is_main && said_in_training(model, to)) => {
            let reason = format!("another value is called `{to}`: choose a name that none has");
            Err(Error::new(ErrorKind::AlreadyExists, reason))
        }
        Some(found) => Ok(found),
    }
}

/// The error about a value `name` that no graph defines, with names that may have been meant.
fn unknown_value(model: &ModelProto, name: &str) -> Error {
    let mut names = Vec::new();
    let walked = traversal::graphs(model, |scope, body| {
        if !is_training(scope) {
            names.extend(defined_in(body).into_iter().map(|name| in_scope(scope, name)));
        }
        Ok(())
    });
    if let Err(error) = walked {
        return error;
    }
    let meant = did_you_mean(name, names.iter().map(String::as_str));
    let hint = meant.map(|meant| format!("; {meant}")).unwrap_or_default();
    let reason = format!("no graph has a value of this name{hint}");
    Error::new(ErrorKind::MissingTensor, reason)
}

/// The names of the values that `body` itself defines.
fn defined_in(body: Body<'_>) -> Vec<String> {
    let mut defined = Vec::new();
    let mut visit = |role: Role, name: &Str| {
        if role == Role::Definition {
            defined.push(name.to_string_lossy().into_owned());
        }
    };
    let mut names = Names { visit: &mut visit, skip: &|_| true };
    match body {
        Body::Graph(graph) => names.graph(graph),
        Body::Function(function) => names.function(function),
    }
    defined
}

fn in_scope(scope: &Scope, name: String) -> String {
    if scope.is_main() { name } else { format!("{}/{name}", scope.path()) }
}

fn is_training(scope: &Scope) -> bool {
    scope.path().starts_with("training_info[") && !scope.in_function()
}

/// For the current graph of a walk and the graphs around it: the depth, and whether the graph
/// defines a name.
#[derive(Default)]
struct Around(Vec<(usize, bool)>);

impl Around {
    /// Enters `body` at `depth`, and returns whether a graph around it defines `name`.
    fn enter(&mut self, depth: usize, body: Body<'_>, name: &str) -> bool {
        // The main graph has depth 0 and is around everything but functions, which see no value
        // from outside.
        let is_function = matches!(body, Body::Function(_));
        self.0.retain(|(outer, _)| *outer < depth && !is_function);
        let taken = self.0.iter().any(|(_, defines)| *defines);
        self.0.push((depth, defines(body, name.as_bytes())));
        taken
    }
}

fn said_in_training(model: &ModelProto, name: &str) -> bool {
    let infos = model.training_info.iter();
    let graphs = infos.flat_map(|info| [&info.initialization, &info.algorithm]).flatten();
    graphs.into_iter().any(|graph| says(Body::Graph(graph), name, SAID))
}

/// Renames `from` in `body` and in its subgraphs that do not define it anew.
pub(super) fn renamed(body: BodyMut<'_>, from: &str, to: &str) -> usize {
    renaming(from, to, |names| match body {
        BodyMut::Graph(graph) => names.graph(graph),
        BodyMut::Function(function) => names.function(function),
    })
}

/// Renames the value `from` of the main graph in training graphs, which see it, and in bindings.
fn renamed_in_training(model: &mut ModelProto, from: &str, to: &str) -> usize {
    let Some(infos) = model.training_info.as_deref_mut() else { return 0 };
    renaming(from, to, |names| {
        for info in infos {
            for graph in [&mut info.initialization, &mut info.algorithm].into_iter().flatten() {
                if !defines(Body::Graph(graph), from.as_bytes()) {
                    names.graph(graph);
                }
            }
            let bindings = info.initialization_binding.iter_mut().chain(&mut info.update_binding);
            bindings.for_each(|binding| names.name(Role::Use, binding.key.as_mut()));
        }
    })
}

/// Changes every `from` that `visit` visits to `to`, and returns their number.
fn renaming(from: &str, to: &str, visit: impl FnOnce(&mut NamesMut<'_>)) -> usize {
    let (mut count, to) = (0, Str::from(to));
    let mut rename = |_: Role, name: &mut Str| {
        if *name == from {
            *name = to.clone();
            count += 1;
        }
    };
    let skip = |graph: &GraphProto| defines(Body::Graph(graph), from.as_bytes());
    visit(&mut NamesMut { visit: &mut rename, skip: &skip });
    count
}
