//! [`Container::extract_model`]: the part of a model between some of its values, as a model.
//!
//! The nodes that the outputs need are found from the outputs backwards, up to the inputs.
//! Subgraphs may use values from outside that no node names, so they are looked into. Whatever else
//! would have to be guessed, such as the type of a value that neither is declared nor follows, is
//! an error.

mod between;
mod hidden;
mod values;

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use crate::buffer::Buffer;
use crate::container::Container;
use crate::container::extract_model::between::Cuts;
use crate::container::extract_model::hidden::refuse_hidden_inputs;
use crate::container::extract_model::values::Values;
use crate::error::{Error, ErrorKind, Result};
use crate::files::external_data::handle_of;
use crate::graph::called_functions::called;
use crate::graph::outer_values::needed_by;
use crate::graph::stored_digests::remove_digests;
use crate::graph::traversal;
use crate::graph::value_names::{Names, NamesMut, Role};
use crate::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use crate::util::names::UniqueNames;
use crate::wire::Str;

/// From this IR version on an initializer need not be an input of the graph.
const INITIALIZERS_ALONE: i64 = 4;

impl Container {
    /// The part of the model that computes the values `outputs` from the values `inputs`, as a
    /// model of its own, in a new container. Values are those of the main graph: its inputs, its
    /// initializers, and outputs of its nodes.
    ///
    /// It has the nodes that the outputs need, with the initializers and the local functions that
    /// these use, declared types, operator sets, and metadata. Weights are shared with this
    /// container. An initializer among `inputs` becomes an input. Training graphs are left out.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};
    ///
    /// let mut graph = GraphProto::new("g");
    /// graph.node = vec![NodeProto::new("Mul", ["x", "w"], ["h"]), NodeProto::new("Neg", ["h"], ["y"])];
    /// graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "#w"));
    /// for (name, list) in [("x", &mut graph.input), ("h", &mut graph.value_info), ("y", &mut graph.output)] {
    ///     list.push(ValueInfoProto::tensor(name, TensorProto::FLOAT, [2]));
    /// }
    /// let mut container = Container::new(ModelProto::new(graph));
    /// container.insert("#w", vec![1.0_f32, 2.0])?;
    ///
    /// let head = container.extract_model(&["x"], &["h"])?;
    /// assert_eq!(head.model().graph.as_ref().unwrap().node.len(), 1);
    /// assert!(head.get("#w").is_some());
    /// assert!(container.extract_model(&["h"], &["y"])?.is_empty());
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::MissingTensor`] for a name that the main graph does not have;
    /// [`ErrorKind::InvalidArgument`] for outputs that need an input of the model that is not among
    /// `inputs`, for inputs that no output needs or that a subgraph of the part defines too,
    /// and for names that are given twice; [`ErrorKind::MissingType`] for values whose types the
    /// model does not declare, unless they follow from declared ones (see
    /// [`declare_type`](Self::declare_type)); [`ErrorKind::InvalidModel`] for values that nothing
    /// defines.
    pub fn extract_model(
        &self,
        inputs: &[impl AsRef<str>],
        outputs: &[impl AsRef<str>],
    ) -> Result<Self> {
        self.check_nesting()?;
        let none = || Error::new(ErrorKind::InvalidModel, "the model has no graph");
        let graph = self.model.graph.as_deref().ok_or_else(none)?;
        let values = Values::of(graph);
        let inputs = values.named(inputs)?;
        let outputs = values.named(outputs)?;
        if outputs.is_empty() {
            return Err(no_outputs());
        }
        let part = Part::of(&values, &inputs, &outputs)?;
        let has_inputs = self.model.ir_version.is_none_or(|version| version < INITIALIZERS_ALONE);
        self.part(&values, part, (&inputs, &outputs), has_inputs)
    }

    /// The model of `part` from these inputs to these outputs.
    fn part(
        &self,
        values: &Values<'_>,
        part: Part,
        (inputs, outputs): (&[Str], &[Str]),
        has_inputs: bool,
    ) -> Result<Self> {
        let declared = values.declarations(&self.model, inputs, outputs)?;
        let graph = part.graph(values, declared, inputs, has_inputs);
        // What is there from the start in the whole model hides nothing that it did not hide.
        let new = inputs.iter().filter(|name| values.producers.contains_key(name));
        refuse_hidden_inputs(&graph, new.collect())?;
        self.with_graph(graph)
    }

    /// As [`extract_model`](Self::extract_model), from those inputs of the model that the outputs
    /// need: the head of the model. Inputs with defaults keep these.
    ///
    /// # Errors
    /// As [`extract_model`](Self::extract_model).
    pub fn extract_model_for(&self, outputs: &[impl AsRef<str>]) -> Result<Self> {
        self.check_nesting()?;
        let none = || Error::new(ErrorKind::InvalidModel, "the model has no graph");
        let graph = self.model.graph.as_deref().ok_or_else(none)?;
        let values = Values::of(graph);
        let is_given = |info: &&ValueInfoProto| {
            info.name.as_ref().is_some_and(|name| !values.initializers.contains_key(name))
        };
        let all = graph.input.iter().filter(is_given).filter_map(|info| info.name.clone());
        let all: Vec<_> = all.collect();
        let outputs = values.named(outputs)?;
        if outputs.is_empty() {
            return Err(no_outputs());
        }
        let mut part = Part::reaching(&values, &all, &outputs)?;
        part.add_parameters(&values);
        let needed = all.iter().filter(|name| part.reached.contains(*name));
        let needed: Vec<_> = needed.cloned().collect();
        self.part(&values, part, (&needed, &outputs), true)
    }

    /// The model with another graph, the functions that this one calls, and its weights.
    fn with_graph(&self, graph: GraphProto) -> Result<Self> {
        let mut model = self.model_without_graph();
        let called = called(std::iter::once(&graph.node), &self.model.functions);
        model.functions = called.into_iter().cloned().collect();
        model.graph = Some(Box::new(graph));
        remove_digests(&mut model);
        let mut part = Self::new(model);
        for (_, tensor) in traversal::iter(&part.model) {
            let found = handle_of(tensor).and_then(|name| self.initializers.get_key_value(name));
            if let Some((handle, initializer)) = found {
                part.initializers.insert(handle.clone(), initializer.clone());
            }
        }
        (part.attached, part.limits) = (self.attached.clone(), self.limits);
        part.weights_files = self.weights_files_of(&part);
        Ok(part)
    }

    /// The weights files that weights of `part` are from; all, where a weight does not tell.
    fn weights_files_of(&self, part: &Self) -> Vec<PathBuf> {
        let mut used = HashSet::new();
        for initializer in part.initializers.values() {
            let buffer = initializer.as_buffer();
            let Some(path) = buffer.as_ref().and_then(Buffer::file_path) else {
                return self.weights_files.clone();
            };
            if !used.contains(path) {
                used.insert(path.to_path_buf());
            }
        }
        let files = self.weights_files.iter().filter(|file| used.contains(*file));
        files.cloned().collect()
    }

    /// A copy of what the model says of itself.
    fn model_without_graph(&self) -> ModelProto {
        let mut model = ModelProto::default();
        let of = &*self.model;
        model.ir_version = of.ir_version;
        model.producer_name.clone_from(&of.producer_name);
        model.producer_version.clone_from(&of.producer_version);
        model.domain.clone_from(&of.domain);
        model.model_version = of.model_version;
        model.doc_string.clone_from(&of.doc_string);
        model.opset_import.clone_from(&of.opset_import);
        model.metadata_props.clone_from(&of.metadata_props);
        model.configuration.clone_from(&of.configuration);
        model.unknown.clone_from(&of.unknown);
        model
    }
}

/// For how many inputs that are missing it is said what may be given instead: a walk of the graph
/// for each.
const HINTS: usize = 3;

/// The nodes and initializers of a part.
#[derive(Default)]
struct Part {
    nodes: BTreeSet<usize>,
    initializers: HashSet<Str>,
    /// The inputs that the outputs need.
    reached: HashSet<Str>,
}

impl Part {
    /// The part from the inputs to the outputs, which needs each of the inputs.
    fn of(values: &Values<'_>, inputs: &[Str], outputs: &[Str]) -> Result<Self> {
        let mut part = Self::reaching(values, inputs, outputs)?;
        let unused = inputs.iter().filter(|input| !part.reached.contains(*input));
        let error = |input: &Str| {
            let reason = "none of the outputs needs this input: leave it out";
            let error = Error::new(ErrorKind::InvalidArgument, reason);
            error.with_tensor(input.to_string_lossy())
        };
        if let Some(error) = Error::join(unused.map(error)) {
            return Err(error);
        }
        part.add_parameters(values);
        Ok(part)
    }

    /// The part that the outputs need, as far as the inputs.
    fn reaching(values: &Values<'_>, inputs: &[Str], outputs: &[Str]) -> Result<Self> {
        let ends: HashSet<_> = inputs.iter().collect();
        let (mut part, mut seen) = (Self::default(), HashSet::new());
        let mut missing = Vec::new();
        for output in outputs {
            let mut pending = vec![output.clone()];
            while let Some(name) = pending.pop() {
                if !seen.insert(name.clone()) {
                    continue;
                }
                if ends.contains(&name) {
                    part.reached.insert(name);
                } else if values.initializers.contains_key(&name) {
                    part.initializers.insert(name);
                } else if let Some(number) = values.producers.get(&name) {
                    let node = values.graph.node.get(*number);
                    if part.nodes.insert(*number) {
                        pending.extend(node.map(needed_by).unwrap_or_default());
                    }
                } else {
                    missing.push((output, name));
                }
            }
        }
        if missing.is_empty() {
            return Ok(part);
        }
        let cuts = Cuts::new(&values.graph.node, &part.nodes, (&ends, outputs));
        let errors = missing.iter().enumerate().map(|(number, (output, name))| {
            let instead = if number < HINTS { cuts.instead(name) } else { String::new() };
            missing_input(values, output, name, &instead)
        });
        Error::join(errors).map_or(Ok(part), Err)
    }

    /// Adds the parameters of quantized tensors: no node need use these.
    fn add_parameters(&mut self, values: &Values<'_>) {
        for annotation in values.graph.quantization_annotation.iter() {
            let tensor = annotation.tensor_name.as_ref();
            if !tensor.is_some_and(|name| self.initializers.contains(name)) {
                continue;
            }
            let parameters = annotation.quant_parameter_tensor_names.iter();
            let names = parameters.filter_map(|entry| entry.value.as_ref());
            // One that is an input of the part is given from outside.
            let is_own = |name: &&Str| {
                values.initializers.contains_key(name) && !self.reached.contains(*name)
            };
            let names: Vec<_> = names.filter(is_own).cloned().collect();
            self.initializers.extend(names);
        }
    }

    /// The graph of the part, with these inputs and outputs; the inputs have the names `ends`.
    /// `has_inputs` says whether initializers that are inputs of the graph
    /// have to stay such.
    fn graph(
        self,
        values: &Values<'_>,
        (inputs, outputs): (Vec<ValueInfoProto>, Vec<ValueInfoProto>),
        ends: &[Str],
        has_inputs: bool,
    ) -> GraphProto {
        let of = values.graph;
        let mut graph = GraphProto::default();
        graph.name.clone_from(&of.name);
        graph.doc_string.clone_from(&of.doc_string);
        graph.metadata_props.clone_from(&of.metadata_props);
        (graph.input, graph.output) = (inputs, outputs);
        graph.node = self.nodes.iter().filter_map(|number| of.node.get(*number)).cloned().collect();
        let is_kept = |tensor: &TensorProto| {
            tensor.name.as_ref().is_some_and(|name| self.initializers.contains(name))
        };
        graph.initializer =
            of.initializer.iter().filter(|tensor| is_kept(tensor)).cloned().collect();
        let sparse = of.sparse_initializer.iter();
        let sparse = sparse.filter(|one| one.values.as_deref().is_some_and(is_kept));
        graph.sparse_initializer.extend(sparse.cloned());
        if has_inputs {
            let defaults = of.input.iter().filter(|input| {
                input.name.as_ref().is_some_and(|name| self.initializers.contains(name))
            });
            graph.input.extend(defaults.cloned());
        }
        free_inputs(&mut graph, ends);
        keep_mentions(&mut graph, of);
        graph
    }
}

fn no_outputs() -> Error {
    let reason = "no outputs are given: nothing would be left of the model";
    Error::new(ErrorKind::InvalidArgument, reason)
}

/// The error for an `output` that needs the value `name`, and what may be given `instead`.
fn missing_input(values: &Values<'_>, output: &Str, name: &Str, instead: &str) -> Error {
    let needed = if output == name { "itself".to_owned() } else { format!("`{name}`") };
    let (kind, reason) = match values.inputs.contains_key(name) {
        true => {
            let of = "an input of the model that is not among the inputs: add it";
            (ErrorKind::InvalidArgument, format!("this output needs {needed}, {of}{instead}"))
        }
        false => {
            let reason = format!("this output needs `{name}`, which nothing in the model defines");
            (ErrorKind::InvalidModel, reason)
        }
    };
    Error::new(kind, reason).with_tensor(output.to_string_lossy())
}

/// Gives outputs of nodes that have the name of an input another name, which nothing uses: their
/// nodes are needed for other outputs.
fn free_inputs(graph: &mut GraphProto, inputs: &[Str]) {
    let inputs: HashSet<_> = inputs.iter().collect();
    let is_input = |name: &Str| inputs.contains(name);
    if !graph.node.iter().flat_map(|node| &node.output).any(is_input) {
        return;
    }
    let mut names = UniqueNames::default();
    let mut take = |_: Role, name: &mut Str| {
        names.take(&name.to_string_lossy());
    };
    NamesMut { visit: &mut take, skip: &|_| false }.graph(graph);
    for NodeProto { output, .. } in &mut graph.node {
        for name in output.iter_mut().filter(|name| is_input(name)) {
            *name = Str::from(names.name(&format!("{name}_unused"), ""));
        }
    }
}

/// Keeps what the graph `of` says of the types, the quantization and the shardings of values that
/// `graph` has.
fn keep_mentions(graph: &mut GraphProto, of: &GraphProto) {
    let mut defined = HashSet::new();
    let mut visit = |role: Role, name: &Str| {
        if role == Role::Definition {
            defined.insert(name.clone());
        }
    };
    Names { visit: &mut visit, skip: &|_| true }.graph(graph);
    let is_here = |name: Option<&Str>| name.is_some_and(|name| defined.contains(name));
    let annotations = of.quantization_annotation.iter();
    let annotations = annotations.filter(|annotation| {
        let parameters = annotation.quant_parameter_tensor_names.iter();
        is_here(annotation.tensor_name.as_ref())
            && parameters.map(|entry| entry.value.as_ref()).all(is_here)
    });
    graph.quantization_annotation.extend(annotations.cloned());
    let ends = graph.input.iter().chain(&graph.output).filter_map(|info| info.name.clone());
    let ends: HashSet<_> = ends.collect();
    let infos = of.value_info.iter().chain(&of.output).filter(|info| {
        is_here(info.name.as_ref()) && !info.name.as_ref().is_some_and(|name| ends.contains(name))
    });
    graph.value_info = infos.cloned().collect();
}
