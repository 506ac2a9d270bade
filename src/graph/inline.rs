//! Inlines local functions: the model then computes the same without [`ModelProto::functions`].
//!
//! Many tools read graphs and not functions. Each call is replaced by a copy of the function's
//! nodes, with names that nothing else in the model has. The steps: build the call graph and order
//! it; decide which function may move to which place; count how large the result gets; copy the
//! bodies in the place of the calls; remove the functions that nothing calls any more. Time is
//! linear in the size of the result. Weights are not copied: a copied tensor shares the original's
//! bytes, or its handle.

mod bodies;
mod body;
mod calls;
mod context;
mod copy;
mod functions;
mod graph;
mod growth;
mod identity;
mod names;
mod options;
mod place;
mod rename;
mod scope;
mod share;
mod splice;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::{iter, mem};

pub(crate) use calls::call_depth;
pub(crate) use functions::is_reference;
pub use options::{FunctionId, FunctionSelector, InlineOptions, Inlined, KeptFunction};

use self::bodies::Bodies;
use self::calls::Calls;
use self::copy::{Copier, Reserved};
use self::functions::{Functions, each_node, each_node_of, graphs};
use self::names::{Fresh, Numbers};
use self::place::{InlinePlace, check_growth, named_elsewhere, training};
use self::scope::{Binding, Scope, outputs_of};
use self::share::ParallelCopy;
use self::splice::Spliced;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::opset;
use crate::graph::stored_digests;
use crate::limits::{Counter, Limit};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Str,
};
use crate::util::did_you_mean::did_you_mean;
use crate::wire::Message;

/// Inlines the local functions of `model` into its graphs. On an error, the model is unchanged.
///
/// The graph's inputs, outputs, initializers and their names do not change. A name `t` that a body
/// defines becomes `t__n` in the copy for call number `n`, as in onnx's inliner; of a name of more
/// than 1024 bytes, only the beginning is repeated. Every function is removed, called or not,
/// except those that [`InlineOptions`] keep and those whose operators would mean something else at
/// the model's operator set versions ([`Inlined::kept`]). A value that a function passes through
/// unchanged gets an Identity node. Before version 16 of the operators, the first that has an
/// Identity for every type, one of the value's two names replaces the other where that is possible.
///
/// ```
/// use onnx_container::inline::inline_functions;
/// use onnx_container::proto::{FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
/// use onnx_container::inline::InlineOptions;
///
/// let mut double = FunctionProto::new("local", "double");
/// double.input.push("a".into());
/// double.output.push("b".into());
/// double.node.push(NodeProto::new("Add", ["a", "a"], ["b"]));
/// let mut graph = GraphProto::new("g");
/// let mut call = NodeProto::new("double", ["x"], ["y"]);
/// call.domain = Some("local".into());
/// graph.node.push(call);
/// let mut model = ModelProto::new(graph);
/// model.functions.push(double);
///
/// let inlined = inline_functions(&mut model, InlineOptions::new())?;
/// assert_eq!((inlined.calls, model.functions.len()), (1, 0));
/// assert_eq!(model.graph.unwrap().node, [NodeProto::new("Add", ["x", "x"], ["y"])]);
/// # Ok::<(), onnx_container::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidModel`]: functions that call themselves, with the cycle; two functions with
/// one id; a call with more inputs or outputs than its function; a body that uses a name it does
/// not define. [`ErrorKind::TooLarge`]: more nodes than [`InlineOptions::max_nodes`], copies of
/// more bytes than [`Limit::Calls`](crate::load::Limit::Calls), or graphs nested deeper than
/// readers accept. [`ErrorKind::Unsupported`]: a function that cannot be inlined, with
/// [`InlineOptions::refuse_conflicts`]; a value that is passed through to an output and whose type
/// the model's operators have no Identity for, or when it nests deeper than
/// [`InlineOptions::limits`] allow. [`ErrorKind::InvalidArgument`]: a selector that matches no
/// function.
pub fn inline_functions(
    model: &mut ModelProto,
    options: impl Into<InlineOptions>,
) -> Result<Inlined> {
    let options = options.into();
    model.check_nesting(&options.limits)?;
    if stored_digests::has_own_digest(model) {
        stored_digests::remove_digests(model);
    }
    if model.functions.is_empty() {
        return inline_none(&options);
    }
    let functions = mem::take(&mut model.functions);
    match make(model, &functions, &options) {
        Ok(made) => Ok(made.apply(model, functions)),
        Err(error) => {
            model.functions = functions;
            Err(error)
        }
    }
}

/// What is done for a model without functions, which may have very many nodes: they are not gone
/// through.
fn inline_none(options: &InlineOptions) -> Result<Inlined> {
    select(&Functions::new(&[])?, options)?;
    Ok(Inlined::default())
}

/// The local functions of a model, none of which calls itself.
pub(crate) struct Callable<'m>(Functions<'m>);

impl<'m> Callable<'m> {
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when two functions have one id, or when functions call
    /// themselves.
    pub(crate) fn new(list: &'m [FunctionProto]) -> Result<Self> {
        let functions = Functions::new(list)?;
        Calls::new(&functions).order(&functions)?;
        Ok(Self(functions))
    }

    /// The function that `node` calls, and its index, if it is a call.
    pub(crate) fn callee(&self, node: &NodeProto) -> Option<(usize, &'m FunctionProto)> {
        let index = self.0.callee(node)?;
        Some((index, self.0.get(index)?))
    }
}

/// Everything that will change, computed before the model is touched.
struct Made {
    graph: Spliced,
    training: Vec<Trained>,
    imports: Vec<OperatorSetIdProto>,
    /// The functions that are kept, each with its new body if the body changes.
    stay: BTreeMap<usize, Option<Rewritten>>,
    inlined: Inlined,
}

/// A training graph without its calls: the index of its training information, whether it is the
/// algorithm (otherwise the initialization), and the graph.
type Trained = (usize, bool, GraphProto);

/// The new body of a function that is kept, in which calls were replaced.
struct Rewritten {
    nodes: Spliced,
    /// Attributes whose default is a graph with calls, by their index.
    defaults: Vec<(usize, AttributeProto)>,
    imports: Vec<OperatorSetIdProto>,
}

fn make(model: &ModelProto, list: &[FunctionProto], options: &InlineOptions) -> Result<Made> {
    let functions = Functions::new(list)?;
    let calls = Calls::new(&functions);
    let order = calls.order(&functions)?;
    let selected = select(&functions, options)?;

    let mut place = InlinePlace::of_model(model, &functions, &calls, &selected);
    let unselected = functions.iter().filter(|(i, _)| selected.get(*i) == Some(&false));
    let unselected_places = unselected.map(|(i, function)| {
        let around = &model.opset_import;
        (i, function, InlinePlace::of_function(function, around, &functions, &calls, &selected))
    });
    let mut rewritten: Vec<_> = unselected_places.filter(|(_, _, place)| place.changes()).collect();
    let conflicts =
        conflicts(iter::once(&place).chain(rewritten.iter().map(|(_, _, place)| place)));
    if let Some(error) = refusal(&functions, &conflicts).filter(|_| options.refuse_conflicts) {
        return Err(error);
    }
    let places = iter::once(&mut place).chain(rewritten.iter_mut().map(|(_, _, place)| place));
    check_growth(places, &calls, &order, options.max_nodes, &mut counter(model, list, options))?;

    let mut work =
        Work { numbers: Numbers::default(), calls: 0, devices: 0, max_nodes: options.max_nodes };
    let (graph, training) = work.model(model, list, &place)?;
    let mut stay = staying(&functions, &calls, &selected, &place, &rewritten);
    for (i, function, place) in &rewritten {
        stay.insert(*i, Some(work.function(function, list, place)?));
    }
    let imports = place.imports.added.clone();
    let gone = functions.iter().filter(|(i, _)| !stay.contains_key(i));
    let kept = conflicts.into_iter().filter_map(|(i, reason)| {
        Some(KeptFunction { function: FunctionId::from(functions.get(i)?), reason })
    });
    let mut inlined = Inlined {
        calls: work.calls,
        removed: gone.map(|(_, function)| FunctionId::from(function)).collect(),
        kept: kept.collect(),
        imported: imports.iter().map(shown).collect(),
        warnings: work.warnings(),
    };
    inlined.warnings.extend(taken_for_operators(model, &functions, &stay));
    Ok(Made { graph, training, imports, stay, inlined })
}

/// How many bytes the copies of any model may take.
const BASE: u64 = 1 << 30;
/// And for each byte of the model's messages.
const PER_BYTE: u64 = 32;

/// Counts the bytes of copies in `model`, whose functions are in `list`.
fn counter(model: &ModelProto, list: &[FunctionProto], options: &InlineOptions) -> Counter {
    let functions = list.iter().map(Message::encoded_len);
    let len = functions.fold(model.encoded_len(), u64::saturating_add);
    let default = len.saturating_mul(PER_BYTE).saturating_add(BASE);
    Counter::new(&options.limits, Limit::Calls, default)
}

/// A warning for each function that has the name of an operator, is called, and does not stay:
/// readers ran the operator.
fn taken_for_operators(
    model: &ModelProto,
    functions: &Functions<'_>,
    stay: &BTreeMap<usize, Option<Rewritten>>,
) -> Vec<Error> {
    let named = functions.iter().filter(|(i, function)| {
        let domain = function.domain.as_ref().map_or(&b""[..], Str::as_bytes);
        let name = function.name.as_ref().map_or(&b""[..], Str::as_bytes);
        !stay.contains_key(i) && opset::has_operator(domain, name)
    });
    let named: BTreeMap<usize, &FunctionProto> = named.collect();
    if named.is_empty() {
        return Vec::new();
    }
    let mut called = BTreeSet::new();
    let mut visit = |node: &NodeProto| called.extend(functions.callee(node));
    let graphs = model.graph.as_deref().into_iter();
    for graph in graphs.chain(training(model).map(|(_, _, graph)| graph)) {
        each_node(&graph.node, &mut visit);
    }
    functions.iter().for_each(|(_, function)| each_node_of(function, &mut visit));
    let called = named.into_iter().filter(|(i, _)| called.contains(i));
    let warning = |(_, function): (usize, &FunctionProto)| {
        let reason = format!(
            "function `{}` has the name of an operator of ONNX: onnxruntime and onnx's reference evaluator ran the \
             operator instead; after inlining they run the function's nodes",
            FunctionId::from(function)
        );
        Error::new(ErrorKind::Unsupported, reason)
    };
    called.map(warning).collect()
}

fn shown(import: &OperatorSetIdProto) -> (String, i64) {
    let domain = import.domain.clone().unwrap_or_default();
    (domain.to_string_lossy().into_owned(), import.version.unwrap_or_default())
}

/// For each function, whether it is to be inlined.
fn select(functions: &Functions<'_>, options: &InlineOptions) -> Result<Vec<bool>> {
    let ids: Vec<_> = functions.iter().map(|(_, function)| FunctionId::from(function)).collect();
    options.select(&ids).map_err(|unknown| {
        let errors = unknown.into_iter().map(|selector| no_such_function(selector, &ids));
        Error::join(errors).unwrap_or_else(|| Error::internal("no selector is unknown"))
    })
}

/// The error of a `selector` that matches none of `ids`, with a suggestion where one is close.
fn no_such_function(selector: &FunctionSelector, ids: &[FunctionId]) -> Error {
    let asked = selector.to_string();
    let names: BTreeSet<_> = ids.iter().flat_map(names_of).collect();
    // A domain is only suggested for a domain, a function only for a function.
    let alike = names.iter().filter(|name| name.ends_with("::") == asked.ends_with("::"));
    let hint = did_you_mean(&asked, alike.map(String::as_str))
        .map(|hint| format!("; {hint}"))
        .unwrap_or_default();
    Error::new(ErrorKind::InvalidArgument, format!("the model has no function `{asked}`{hint}"))
}

/// Every text that selects `id`.
fn names_of(id: &FunctionId) -> [String; 3] {
    let any_overload = FunctionId { overload: String::new(), ..id.clone() };
    [format!("{}::", id.domain), any_overload.to_string(), id.to_string()]
}

/// The selected functions that may not move to a place that calls them, each with the reason.
fn conflicts<'p, 'm: 'p>(
    places: impl Iterator<Item = &'p InlinePlace<'m>>,
) -> BTreeMap<usize, String> {
    places.flat_map(|place| &place.context.decision.conflicts).cloned().collect()
}

fn refusal(functions: &Functions<'_>, conflicts: &BTreeMap<usize, String>) -> Option<Error> {
    let errors = conflicts.iter().filter_map(|(i, reason)| {
        let id = FunctionId::from(functions.get(*i)?);
        let reason = format!("function `{id}` cannot be inlined: {reason}");
        Some(Error::new(ErrorKind::Unsupported, reason))
    });
    Error::join(errors)
}

/// A function that is kept, and whose body calls functions that are inlined.
type Staying<'m> = (usize, &'m FunctionProto, InlinePlace<'m>);

/// The functions that are kept: those that were not selected, and those that they and the graphs
/// still call.
fn staying(
    functions: &Functions<'_>,
    calls: &Calls,
    selected: &[bool],
    place: &InlinePlace<'_>,
    kept: &[Staying<'_>],
) -> BTreeMap<usize, Option<Rewritten>> {
    let rewritten: HashMap<_, _> = kept.iter().map(|(i, _, place)| (*i, place)).collect();
    let unselected = functions.iter().map(|(i, _)| i).filter(|i| selected.get(*i) == Some(&false));
    let mut next: Vec<usize> = unselected.chain(place.context.decision.called.clone()).collect();
    let mut stay = BTreeMap::new();
    while let Some(function) = next.pop() {
        if stay.insert(function, None).is_none() {
            let place = rewritten.get(&function);
            let still = place.map(|place| place.context.decision.called.as_slice());
            next.extend(still.unwrap_or_else(|| calls.callees(function)));
        }
    }
    stay
}

/// The counters that the copies to all places share.
struct Work {
    numbers: Numbers,
    calls: u64,
    devices: u64,
    max_nodes: u64,
}

impl Work {
    fn model(
        &mut self,
        model: &ModelProto,
        list: &[FunctionProto],
        place: &InlinePlace<'_>,
    ) -> Result<(Spliced, Vec<Trained>)> {
        let bodies = Bodies::new(&place.context, place.lists.iter().map(|(nodes, _)| *nodes))?;
        let reserved = Reserved::of_model(model, list);
        let mut graph = Spliced::default();
        let parallel = ParallelCopy {
            place,
            bodies: &bodies,
            reserved: &reserved,
            numbers: self.numbers.clone(),
            max_nodes: self.max_nodes,
        };
        let shared = Self::are_uniform(&bodies, &reserved) && parallel.is_worthwhile(list);
        if shared {
            let (made, numbers) = parallel.run(list)?;
            (graph, self.numbers) = (made.spliced, numbers);
            (self.calls, self.devices) = (self.calls + made.calls, self.devices + made.devices);
        }
        // Where not every type has an Identity, the value's own name replaces that of the output,
        // unless the output's name is also used outside of the main graph's nodes.
        let mut elsewhere = HashSet::new();
        let mut copier = self.copier(place, &bodies, &reserved, usize::from(shared));
        if !copier.has_identity() {
            elsewhere = named_elsewhere(model);
        }
        let mut lists = place.lists.iter();
        if let (Some((nodes, steps)), Some(main), false) = (lists.next(), &model.graph, shared) {
            let outputs = elsewhere.iter().map(|name| (name, 1)).chain(outputs_of(main));
            let mut scope = Scope::written(Binding::default(), outputs);
            let len = place.size_of_list(0).nodes;
            graph = Spliced::new(nodes, &steps.list, &mut scope, &mut copier, len)?;
        }
        let mut trained = Vec::new();
        let training = training(model).zip(lists).filter(|(_, (_, steps))| !steps.is_empty());
        for ((info, algorithm, graph), _) in training {
            let mut scope = Scope::written(Binding::default(), iter::empty());
            trained.push((info, algorithm, copier.graph(graph, &mut scope, 0)?));
        }
        self.note(copier);
        Ok((graph, trained))
    }

    fn function(
        &mut self,
        function: &FunctionProto,
        functions: &[FunctionProto],
        place: &InlinePlace<'_>,
    ) -> Result<Rewritten> {
        let bodies = Bodies::new(&place.context, place.lists.iter().map(|(nodes, _)| *nodes))?;
        let reserved = Reserved::of_function(function, functions);
        let mut copier = self.copier(place, &bodies, &reserved, 0);
        let mut nodes = Spliced::default();
        let mut lists = place.lists.iter();
        if let Some((list, steps)) = lists.next() {
            let outputs = function.output.iter().map(|output| (output, 1));
            let mut scope = Scope::written(Binding::open(), outputs);
            let len = place.size_of_list(0).nodes;
            nodes = Spliced::new(list, &steps.list, &mut scope, &mut copier, len)?;
        }
        let mut defaults = Vec::new();
        for (i, attribute) in function.attribute_proto.iter().enumerate() {
            let own = lists.by_ref().take(graphs(attribute).count());
            if own.filter(|(_, steps)| !steps.is_empty()).count() > 0 {
                let mut scope = Scope::written(Binding::open(), iter::empty());
                defaults.push((i, copier.attribute(attribute, &mut scope, 0)?));
            }
        }
        self.note(copier);
        Ok(Rewritten { nodes, defaults, imports: place.imports.added.clone() })
    }

    fn copier<'p>(
        &self,
        place: &'p InlinePlace<'p>,
        bodies: &'p Bodies<'p>,
        reserved: &'p Reserved,
        done: usize,
    ) -> Copier<'p> {
        let opset = place.imports.version(b"");
        let mut fresh = Fresh::new(&reserved.names, self.numbers.clone());
        if Self::are_uniform(bodies, reserved) {
            let roots =
                place.lists.iter().skip(done).flat_map(|(_, steps)| &steps.callees).copied();
            fresh = fresh.ahead(roots.collect(), bodies);
        }
        Copier::new(&place.context, bodies, reserved, fresh, self.max_nodes, opset)
    }

    /// Whether the names in a call's copy depend only on the call's number, and not on earlier
    /// names.
    fn are_uniform(bodies: &Bodies<'_>, reserved: &Reserved) -> bool {
        bodies.are_uniform() && reserved.names.is_empty()
    }

    fn note(&mut self, copier: Copier<'_>) {
        self.calls += copier.calls;
        self.devices += copier.devices;
        self.numbers = copier.fresh.into_numbers();
    }

    fn warnings(&self) -> Vec<Error> {
        let reason = format!(
            "{} calls had device configurations, which the nodes in their place do not have",
            self.devices
        );
        let warning = Error::new(ErrorKind::Unsupported, reason);
        Some(warning).filter(|_| self.devices > 0).into_iter().collect()
    }
}

impl Made {
    /// Changes the model, from which these `functions` were taken.
    fn apply(mut self, model: &mut ModelProto, functions: Vec<FunctionProto>) -> Inlined {
        if let Some(graph) = &mut model.graph {
            self.graph.apply(&mut graph.node, &mut graph.value_info);
        }
        for (info, algorithm, graph) in self.training {
            let info = model.training_info.get_mut(info);
            assert!(info.is_some(), "a rewritten training graph has its place");
            if let Some(info) = info {
                let place = if algorithm { &mut info.algorithm } else { &mut info.initialization };
                *place = Some(Box::new(graph));
            }
        }
        model.opset_import.extend(self.imports);
        for (i, mut function) in functions.into_iter().enumerate() {
            let Some(rewritten) = self.stay.remove(&i) else { continue };
            if let Some(Rewritten { nodes, defaults, imports }) = rewritten {
                nodes.apply(&mut function.node, &mut function.value_info);
                for (i, default) in defaults {
                    let old = function.attribute_proto.get_mut(i);
                    assert!(old.is_some(), "a rewritten default has its place");
                    if let Some(old) = old {
                        *old = default;
                    }
                }
                function.opset_import.extend(imports);
            }
            model.functions.push(function);
        }
        assert!(self.stay.is_empty(), "every function that stays is one of the model's");
        self.inlined
    }
}
