//! [`Container::merge`]: two models one after the other, as one model.
//!
//! Outputs of the first become inputs of the second; all else stays as it is. What the two models
//! do not agree on is never decided here: versions of operators, functions, metadata, types and
//! names that would mean two things are errors that say what to do.

mod agreement;
mod connections;
mod constants;
mod defaults;

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::container::lookup::list;
use crate::container::merge::agreement::{check_models, domain};
use crate::container::merge::connections::check_connections;
use crate::container::merge::constants::{equal_constants, remove_constants};
use crate::container::merge::defaults::{check_defaults, name_of_sparse};
use crate::container::rename::renamed;
use crate::container::{Container, Handle, HandleNames};
use crate::error::{Error, ErrorKind, Errors, Result};
use crate::files::external_data::{self, handle_of};
use crate::graph::called_functions::key_of;
use crate::graph::stored_digests::remove_digests;
use crate::graph::traversal::{self, BodyMut};
use crate::graph::value_names::{Names, NamesMut, Role};
use crate::proto::{GraphProto, ModelProto, NodeProto, StringStringEntryProto, ValueInfoProto};
use crate::util::names::UniqueNames;
use crate::wire::Str;

/// How [`Container::merge`] joins two models.
///
/// ```
/// use onnx_container::edit::MergeOptions;
///
/// let options = MergeOptions::new().connect("hidden", "input").prefixes("encoder/", "");
/// ```
#[derive(Debug, Clone, Default)]
pub struct MergeOptions {
    /// Outputs of the first model, and inputs of the second.
    connections: Vec<(String, String)>,
    /// Inputs of the first model, and of the second, that are one input of the result.
    same_inputs: Vec<(String, String)>,
    prefixes: (String, String),
}

impl MergeOptions {
    /// No connections, no prefixes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the output `output` of the first model the input `input` of the second. Both are then
    /// values inside the result, which has the name of the output. One output may be several
    /// inputs.
    #[must_use]
    pub fn connect(mut self, output: impl Into<String>, input: impl Into<String>) -> Self {
        self.connections.push((output.into(), input.into()));
        self
    }

    /// Makes the input `first` of the first model and the input `second` of the second one input of
    /// the result, which has the name of the first. Both have the same default, or neither has one.
    #[must_use]
    pub fn same_input(mut self, first: impl Into<String>, second: impl Into<String>) -> Self {
        self.same_inputs.push((first.into(), second.into()));
        self
    }

    /// Puts `first` before the names of all values and nodes of the first model, and `second`
    /// before those of the second. Connections and same inputs are by the
    /// names without it. Default: none.
    #[must_use]
    pub fn prefixes(mut self, first: impl Into<String>, second: impl Into<String>) -> Self {
        self.prefixes = (first.into(), second.into());
        self
    }
}

impl Container {
    /// This model and `second` after it, as one model in a new container. It has the inputs of
    /// both, except those that are connected, and the outputs of both, except those that are
    /// connected. The weights are shared with the two containers.
    ///
    /// What the model says of itself is what this one says; metadata are those of both, and the IR
    /// version the greater one. A local function that both have is there once, and so is a constant
    /// of one name and equal elements. Open dimensions of one name are one dimension in the result,
    /// of one size.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::edit::MergeOptions;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
    ///
    /// let model = |op: &str, input: &str, output: &str| {
    ///     let mut graph = GraphProto::new(op);
    ///     graph.node.push(NodeProto::new(op, [input], [output]));
    ///     graph.input.push(ValueInfoProto::tensor(input, TensorProto::FLOAT, [2]));
    ///     graph.output.push(ValueInfoProto::tensor(output, TensorProto::FLOAT, [2]));
    ///     Container::new(ModelProto::new(graph).with_operator_set("", 21))
    /// };
    /// let (first, second) = (model("Neg", "x", "h"), model("Exp", "a", "y"));
    /// let both = first.merge(&second, MergeOptions::new().connect("h", "a"))?;
    /// assert_eq!(both.model().graph.as_ref().unwrap().node[1].input[0], "h");
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error for all that does not fit: [`ErrorKind::MissingTensor`] for what is no
    /// output or input; [`ErrorKind::DataType`] and [`ErrorKind::Shape`] for connections of values
    /// with different declared types; [`ErrorKind::AlreadyExists`] for names of values that both
    /// models have, unless they are equal constants; [`ErrorKind::InvalidArgument`] for operator
    /// sets of two versions, functions and metadata of one name with different contents, inputs
    /// that become one and have different defaults, and an input that is connected twice;
    /// [`ErrorKind::Unsupported`] for training graphs.
    pub fn merge(&self, second: &Self, options: MergeOptions) -> Result<Self> {
        self.clone().into_merged(second.clone(), options)
    }

    /// As [`merge`](Self::merge), of containers that are not needed any more: their graphs are not
    /// copied.
    ///
    /// # Errors
    /// As [`merge`](Self::merge).
    pub fn into_merged(self, second: Self, options: MergeOptions) -> Result<Self> {
        self.check_nesting()?;
        second.check_nesting()?;
        let (a, b) = (graph_of(&self)?, graph_of(&second)?);
        let mut errors = Errors::default();
        errors.extend(check_connections(a, b, &options.connections, &options.same_inputs));
        errors.extend(check_defaults((&self, &second), (a, b), &options.same_inputs));
        errors.extend(check_models(&self.model, &second.model));
        if let Some(error) = errors.join() {
            return Err(error);
        }
        let (before, after) = &options.prefixes;
        let full = |(output, input): &(String, String)| {
            (format!("{before}{output}"), format!("{after}{input}"))
        };
        let connections: Vec<_> = options.connections.iter().map(full).collect();
        let same: Vec<_> = options.same_inputs.iter().map(full).collect();
        joined(self.prefixed(before), second.prefixed(after), after, [&connections, &same])
    }

    /// The same with names of values and nodes that begin with `prefix`, without stored digests.
    fn prefixed(self, prefix: &str) -> Self {
        let Self { model, initializers, weights_files, attached, limits, .. } = self;
        let mut model = model.into_inner();
        remove_digests(&mut model);
        if !prefix.is_empty()
            && let Some(graph) = model.graph.as_deref_mut()
        {
            put_before(graph, prefix);
        }
        let model = model.into();
        Self { model, initializers, weights_files, attached, limits, ..Self::default() }
    }
}

fn graph_of(container: &Container) -> Result<&GraphProto> {
    let none = || Error::new(ErrorKind::InvalidModel, "the model has no graph");
    container.model.graph.as_deref().ok_or_else(none)
}

/// Puts `prefix` before the names of all values and nodes of `graph` and its subgraphs.
fn put_before(graph: &mut GraphProto, prefix: &str) {
    let long = |name: &Str| Str::from(format!("{prefix}{name}"));
    // One text for all uses of a name.
    let mut known: HashMap<Str, Str> = HashMap::new();
    let mut rename = |_: Role, name: &mut Str| {
        let new = known.entry(name.clone()).or_insert_with_key(&long);
        *name = new.clone();
    };
    NamesMut { visit: &mut rename, skip: &|_| false }.graph(graph);
    let nodes = |body: BodyMut<'_>| {
        for node in body.nodes() {
            if let Some(name) = node.name.as_mut().filter(|name| !name.is_empty()) {
                *name = long(name);
            }
        }
    };
    // A model of this graph alone: bodies of functions keep their names.
    let mut model = ModelProto::new(std::mem::take(graph));
    let walked = traversal::graphs_mut(&mut model, |_, body| {
        nodes(body);
        Ok(())
    });
    debug_assert!(walked.is_ok());
    *graph = model.graph.map(|graph| *graph).unwrap_or_default();
}

/// The first model with the second after it.
fn joined(
    mut first: Container,
    mut second: Container,
    prefix: &str,
    [connections, same]: [&[(String, String)]; 2],
) -> Result<Container> {
    take_handles(&mut first, &mut second, prefix)?;
    let used = used_handles(&second.model);
    first.attached.append(&mut second.attached);
    second.weights_files.retain(|file| !first.weights_files.contains(file));
    first.weights_files.append(&mut second.weights_files);
    let mut model = second.model.into_inner();
    let of_second = model.graph.take().ok_or_else(|| Error::internal("a graph is gone"))?;
    let mut of_second = connected(*of_second, &[connections, same].concat());
    let equal = equal_constants(&first, graph_of(&first)?, &of_second);
    remove_constants(&mut of_second, &equal);
    forget_strangers(&mut of_second);
    let of_first = first.model.graph.as_deref_mut();
    let of_first = of_first.ok_or_else(|| Error::internal("a graph is gone"))?;
    forget_strangers(of_first);
    refuse_collisions(of_first, &of_second)?;
    append_graph(of_first, of_second, connections);
    append_model(&mut first.model, model);
    let left = used_handles(&first.model);
    first
        .initializers
        .retain(|handle, _| !used.contains(handle.as_str()) || left.contains(handle.as_str()));
    Ok(first)
}

/// The handles that tensors of `model` name.
fn used_handles(model: &ModelProto) -> HashSet<String> {
    let handles = traversal::iter(model).filter_map(|(_, tensor)| handle_of(tensor));
    handles.map(str::to_owned).collect()
}

/// Moves the initializers of `second` to `first`, under handles that are free there and begin with
/// `prefix`.
fn take_handles(first: &mut Container, second: &mut Container, prefix: &str) -> Result<()> {
    let mut names = HandleNames::with(first.initializers.keys());
    names.avoid(&first.model)?;
    let mut renamed: HashMap<Handle, Handle> = HashMap::new();
    let mut all: Vec<_> = second.initializers.drain().collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (old, initializer) in all {
        let new = names.of(&format!("{prefix}{}", old.name()));
        first.initializers.insert(new.clone(), initializer);
        renamed.insert(old, new);
    }
    for (_, tensor) in traversal::iter_mut(&mut second.model) {
        let new = handle_of(tensor).and_then(|name| renamed.get(name));
        if let Some(new) = new.cloned() {
            external_data::move_to_handle(tensor, new.as_str().into());
        }
    }
    Ok(())
}

/// The second graph, where inputs are the values of the first that they are connected to.
fn connected(mut graph: GraphProto, connections: &[(String, String)]) -> GraphProto {
    let is_connected = |name: Option<&Str>| {
        name.is_some_and(|name| connections.iter().any(|(_, input)| *name == input.as_str()))
    };
    graph.input.retain(|info| !is_connected(info.name.as_ref()));
    graph.value_info.retain(|info| !is_connected(info.name.as_ref()));
    // An input that is given now has no default; two that become one have the same.
    graph.initializer.retain(|tensor| !is_connected(tensor.name.as_ref()));
    if graph.sparse_initializer.iter().any(|one| is_connected(name_of_sparse(one))) {
        graph.sparse_initializer.retain(|one| !is_connected(name_of_sparse(one)));
    }
    // By way of names that nothing has: an output may have the name of another input.
    let renames = || connections.iter().filter(|(output, input)| output != input);
    let between = free_names(&mut graph, renames().count());
    for ((_, input), name) in renames().zip(&between) {
        renamed(BodyMut::Graph(&mut graph), input, name);
    }
    for ((output, _), name) in renames().zip(&between) {
        renamed(BodyMut::Graph(&mut graph), name, output);
    }
    graph
}

/// Removes what `graph` says of values that it does not define: in the merged graph it would be
/// said of those of the other one.
fn forget_strangers(graph: &mut GraphProto) {
    let known = defined(graph);
    let is_known = |name: Option<&Str>| name.is_some_and(|name| known.contains(name));
    graph.value_info.retain(|info| is_known(info.name.as_ref()));
    if graph.quantization_annotation.iter().any(|one| !is_known(one.tensor_name.as_ref())) {
        graph.quantization_annotation.retain(|one| is_known(one.tensor_name.as_ref()));
    }
}

/// As many names as `count` that no value of `graph` or of its subgraphs has.
fn free_names(graph: &mut GraphProto, count: usize) -> Vec<String> {
    if count == 0 {
        return Vec::new();
    }
    let mut names = UniqueNames::default();
    let mut take = |_: Role, name: &mut Str| {
        names.take(&name.to_string_lossy());
    };
    NamesMut { visit: &mut take, skip: &|_| false }.graph(graph);
    (0..count).map(|number| names.name(&format!("merged_{number}"), "").to_string()).collect()
}

/// Refuses names of values that both graphs define, at any depth: in one graph they would be one
/// value, and in a subgraph they would hide another.
fn refuse_collisions(first: &GraphProto, second: &GraphProto) -> Result<()> {
    let (one, other) = (defined(first), defined(second));
    let both: BTreeSet<_> = one.intersection(&other).map(|name| format!("`{name}`")).collect();
    if both.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "both models have values of these names: {}; a prefix for the names of one of them keeps \
         them apart",
        list(both.into_iter().collect::<Vec<_>>().into_iter())
    );
    Err(Error::new(ErrorKind::AlreadyExists, reason))
}

/// The names that `graph` or one of its subgraphs defines.
fn defined(graph: &GraphProto) -> HashSet<Str> {
    let mut defined = HashSet::new();
    let mut visit = |role: Role, name: &Str| {
        if role == Role::Definition {
            defined.insert(name.clone());
        }
    };
    Names { visit: &mut visit, skip: &|_| false }.graph(graph);
    defined
}

/// Gives nodes of the second graph that have the name of one of the first another name:
/// onnxruntime refuses two nodes of one name. Nothing refers to nodes by name.
fn separate_nodes(first: &[NodeProto], second: &mut [NodeProto]) {
    let named = |node: &NodeProto| node.name.clone().filter(|name| !name.is_empty());
    let taken: HashSet<_> = first.iter().filter_map(named).collect();
    let mut names = UniqueNames::default();
    for name in taken.iter().cloned().chain(second.iter().filter_map(named)) {
        names.take(&name.to_string_lossy());
    }
    for name in second.iter_mut().filter_map(|node| node.name.as_mut()) {
        if taken.contains(name) {
            *name = names.name(&name.to_string_lossy(), "").to_string().into();
        }
    }
}

fn append_graph(first: &mut GraphProto, mut second: GraphProto, connections: &[(String, String)]) {
    let is_connected = |info: &ValueInfoProto| {
        let is = |name: &Str| connections.iter().any(|(output, _)| *name == output.as_str());
        info.name.as_ref().is_some_and(is)
    };
    let (inside, outputs) = std::mem::take(&mut first.output).into_iter().partition(is_connected);
    first.output = outputs;
    let inside: Vec<_> = inside;
    let said: HashSet<_> = first.value_info.iter().filter_map(|info| info.name.clone()).collect();
    let is_new =
        |info: &ValueInfoProto| info.name.as_ref().is_some_and(|name| !said.contains(name));
    first.value_info.extend(inside.into_iter().filter(is_new));
    let name = |graph: &GraphProto| graph.name.clone().unwrap_or_default();
    first.name = Some(Str::from(format!("{}_{}", name(first), name(&second))));
    separate_nodes(&first.node, &mut second.node);
    first.node.append(&mut second.node);
    first.initializer.append(&mut second.initializer);
    first.input.append(&mut second.input);
    first.output.append(&mut second.output);
    first.value_info.append(&mut second.value_info);
    append_new(&mut first.metadata_props, &second.metadata_props);
    if !second.sparse_initializer.is_empty() {
        first.sparse_initializer.append(&mut second.sparse_initializer);
    }
    if !second.quantization_annotation.is_empty() {
        first.quantization_annotation.append(&mut second.quantization_annotation);
    }
}

/// Adds what the second model has besides its graph, and the first has not.
fn append_model(first: &mut ModelProto, second: ModelProto) {
    first.ir_version = first.ir_version.max(second.ir_version);
    append_new(&mut first.metadata_props, &second.metadata_props);
    let known: HashSet<_> = first.opset_import.iter().map(|set| domain(set).to_vec()).collect();
    let new = second.opset_import.iter().filter(|set| !known.contains(domain(set)));
    first.opset_import.extend(new.cloned());
    let known: HashSet<_> = first.functions.iter().map(key_of).collect();
    let is_new: Vec<_> = second.functions.iter().map(|one| !known.contains(&key_of(one))).collect();
    let functions = second.functions.into_iter().zip(is_new);
    first.functions.extend(functions.filter(|(_, is_new)| *is_new).map(|(one, _)| one));
    let known: HashSet<_> = first.configuration.iter().map(|one| one.name.clone()).collect();
    let new = second.configuration.iter().filter(|one| !known.contains(&one.name));
    let new: Vec<_> = new.cloned().collect();
    if !new.is_empty() {
        first.configuration.extend(new);
    }
}

/// Adds the entries of `second` that `first` does not have.
fn append_new(first: &mut Vec<StringStringEntryProto>, second: &[StringStringEntryProto]) {
    let text = |entry: &StringStringEntryProto| (entry.key.clone(), entry.value.clone());
    let known: HashSet<_> = first.iter().map(text).collect();
    first.extend(second.iter().filter(|entry| !known.contains(&text(entry))).cloned());
}
