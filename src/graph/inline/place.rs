//! The places where calls are replaced: the model's own graphs, or the body of a kept function.

use std::collections::{HashMap, HashSet};
use std::iter;

use foldhash::fast::RandomState;

use super::calls::{Calls, Size};
use super::context::{Context, Imports, decide, lost};
use super::copy::{Reserved, too_many};
use super::functions::{Functions, graphs};
use super::growth::Growth;
use super::rename::dimensions;
use super::splice::Steps;
use crate::error::Result;
use crate::limits::Counter;
use crate::proto::{
    FunctionProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto, Str,
    ValueInfoProto,
};

/// A place, with what is known of it before anything is copied.
pub(super) struct InlinePlace<'m> {
    /// Its lists of nodes: those of the main graph and the training graphs, or those of the
    /// function and of the graphs in its attribute defaults.
    pub(super) lists: Vec<(&'m [NodeProto], Steps)>,
    pub(super) context: Context<'m>,
    pub(super) imports: Imports,
    /// For each function that is inlined here, the size of what replaces one call.
    sizes: HashMap<usize, Size, RandomState>,
}

/// The training graphs of a model: the index of the training information, whether the graph is its
/// algorithm (otherwise its initialization), and the graph.
pub(super) fn training(model: &ModelProto) -> impl Iterator<Item = (usize, bool, &GraphProto)> {
    model.training_info.iter().enumerate().flat_map(|(i, info)| {
        let initialization = info.initialization.as_deref().map(|graph| (i, false, graph));
        let algorithm = info.algorithm.as_deref().map(|graph| (i, true, graph));
        initialization.into_iter().chain(algorithm)
    })
}

/// Names of values that are used outside of the main graph's nodes: in training graphs and in
/// quantization annotations.
pub(super) fn named_elsewhere(model: &ModelProto) -> HashSet<Str> {
    let mut names = HashSet::new();
    let mut add = |name: &Str| names.extend([name.clone()]);
    training(model).for_each(|(_, _, graph)| graph.strings(&mut add));
    let annotations = model.graph.iter().flat_map(|graph| graph.quantization_annotation.iter());
    annotations.for_each(|annotation| annotation.strings(&mut add));
    names
}

impl<'m> InlinePlace<'m> {
    pub(super) fn of_model(
        model: &'m ModelProto,
        functions: &'m Functions<'m>,
        calls: &Calls,
        selected: &[bool],
    ) -> Self {
        let main = model.graph.as_deref().map(|graph| graph.node.as_slice()).unwrap_or_default();
        let training = training(model).map(|(_, _, graph)| graph.node.as_slice());
        let lists = iter::once(main).chain(training);
        let imports = Imports::new(&model.opset_import, &[]);
        Self::new(lists, imports, functions, calls, selected, &HashSet::new())
    }

    /// The body of `function`. Operator sets that it does not import come from the model, `around`.
    pub(super) fn of_function(
        function: &'m FunctionProto,
        around: &[OperatorSetIdProto],
        functions: &'m Functions<'m>,
        calls: &Calls,
        selected: &[bool],
    ) -> Self {
        let imports = Imports::new(&function.opset_import, around);
        let defaults = function.attribute_proto.iter().flat_map(graphs);
        let lists =
            iter::once(function.node.as_slice()).chain(defaults.map(|graph| graph.node.as_slice()));
        Self::new(lists, imports, functions, calls, selected, &lost(functions, function))
    }

    fn new(
        lists: impl Iterator<Item = &'m [NodeProto]>,
        mut imports: Imports,
        functions: &'m Functions<'m>,
        calls: &Calls,
        selected: &[bool],
        lost: &HashSet<usize>,
    ) -> Self {
        let lists: Vec<_> = lists.map(|nodes| (nodes, Steps::new(nodes, functions))).collect();
        let roots = lists.iter().flat_map(|(_, steps)| &steps.callees).copied().collect();
        let decision = decide(functions, calls, roots, selected, lost, &mut imports);
        Self { lists, context: Context { functions, decision }, imports, sizes: HashMap::default() }
    }

    /// Whether a function moves here, or is kept because of a conflict.
    pub(super) fn changes(&self) -> bool {
        let decision = &self.context.decision;
        !decision.moved.is_empty() || !decision.conflicts.is_empty()
    }

    /// How large the place will be, or only the `list` of that index.
    fn size(&self, list: Option<usize>) -> Size {
        let lists =
            self.lists.iter().enumerate().filter(|(i, _)| list.is_none_or(|list| list == *i));
        lists.fold(Size::default(), |sum, (_, (_, steps))| {
            let own = sum.plus(steps.size);
            steps.callees.iter().map(|callee| self.size_of(*callee)).fold(own, Size::plus)
        })
    }

    /// How large the list at `index` will be.
    pub(super) fn size_of_list(&self, index: usize) -> Size {
        self.size(Some(index))
    }

    /// The size of what replaces a call of `function` here.
    pub(super) fn size_of(&self, function: usize) -> Size {
        self.sizes.get(&function).copied().unwrap_or(Size::KEPT)
    }

    /// The functions that are inlined here, each after those that it calls: a function's `rank` is
    /// higher than theirs.
    fn moved(&self, rank: &[usize]) -> Vec<usize> {
        let mut moved = self.context.decision.moved.clone();
        moved.sort_by_key(|function| rank.get(*function));
        moved
    }

    /// Computes the size of what replaces a call, for each of the functions `moved`.
    fn measure(&mut self, calls: &Calls, moved: &[usize]) {
        for function in moved.iter().copied() {
            let own = calls.size(function);
            let inner = calls.callees(function).iter().map(|callee| self.size_of(*callee));
            let whole = inner.fold(own, Size::plus);
            self.sizes.insert(function, whole);
        }
    }

    /// Counts the bytes of what calls become.
    fn count(&self, moved: &[usize], counter: &mut Counter) -> Result<()> {
        let growth = Growth::new(&self.context, moved);
        self.lists.iter().try_for_each(|(nodes, _)| growth.count(nodes, counter))
    }
}

/// Counts how large all `places` will be together: their nodes, of which there may be `max`, and
/// the bytes of copies.
///
/// # Errors
/// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) when that is too much.
pub(super) fn check_growth<'p, 'm: 'p>(
    places: impl Iterator<Item = &'p mut InlinePlace<'m>>,
    calls: &Calls,
    order: &[usize],
    max: u64,
    counter: &mut Counter,
) -> Result<()> {
    let mut rank = vec![0; order.len()];
    for (place, function) in order.iter().enumerate() {
        if let Some(rank) = rank.get_mut(*function) {
            *rank = place;
        }
    }
    let mut size = Size::default();
    let mut measured = Vec::new();
    for place in places {
        let moved = place.moved(&rank);
        place.measure(calls, &moved);
        size = size.plus(place.size(None));
        measured.push((&*place, moved));
    }
    if size.in_nodes() > max {
        return Err(too_many(Some(size), max));
    }
    measured.iter().try_for_each(|(place, moved)| place.count(moved, counter))
}

impl Reserved {
    /// The names in the graphs of a model, to which `functions` may move.
    pub(super) fn of_model(model: &ModelProto, functions: &[FunctionProto]) -> Self {
        let mut reserved = Self::default();
        reserved.dimensions.prepare(functions);
        let graphs = model.graph.as_deref().into_iter();
        for graph in graphs.chain(training(model).map(|(_, _, graph)| graph)) {
            reserved.graph(graph);
        }
        reserved
    }

    /// The names in a kept function, to which other `functions` may move.
    pub(super) fn of_function(function: &FunctionProto, functions: &[FunctionProto]) -> Self {
        let mut reserved = Self::default();
        reserved.dimensions.prepare(functions);
        reserved.names.extend(function.input.iter().chain(&function.output));
        reserved.infos(&function.value_info);
        reserved.nodes(&function.node);
        function.attribute_proto.iter().flat_map(graphs).for_each(|graph| reserved.graph(graph));
        reserved
    }

    fn graph(&mut self, graph: &GraphProto) {
        for infos in [&graph.input, &graph.output, &graph.value_info] {
            self.infos(infos);
        }
        let sparse = graph.sparse_initializer.iter().filter_map(|tensor| tensor.values.as_deref());
        let tensors = graph.initializer.iter().chain(sparse);
        self.names.extend(tensors.filter_map(|tensor| tensor.name.as_ref()));
        for annotation in &graph.quantization_annotation {
            let entries = annotation.quant_parameter_tensor_names.iter();
            let parameters = entries.filter_map(|entry| entry.value.as_ref());
            self.names.extend(annotation.tensor_name.iter().chain(parameters));
        }
        self.nodes(&graph.node);
    }

    fn nodes(&mut self, nodes: &[NodeProto]) {
        for node in nodes {
            self.names.extend(node.input.iter().chain(&node.output).chain(&node.name));
            for graph in node.attribute.iter().flat_map(graphs) {
                self.graph(graph);
            }
        }
    }

    fn infos(&mut self, infos: &[ValueInfoProto]) {
        for info in infos {
            self.names.extend(&info.name);
            if let Some(r#type) = &info.r#type {
                dimensions(&mut r#type.clone(), &mut |name| self.dimensions.add(name));
            }
        }
    }
}
