//! Finds the constants that a reader must see to infer shapes.
//!
//! onnxruntime reads some operands while it builds a session: the target of a Reshape, the axes of
//! a Squeeze, the sizes of a Split. Shape inference does not read external files, so a model whose
//! 16-byte shape operand is external is refused. This module finds those constants: the operands
//! themselves, and what flows into them through the operators that readers fold, across subgraphs
//! and function calls. Using the answer is left to `Container::externalize` and `check`.

mod operators;

use std::iter;
use std::num::NonZeroUsize;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use crate::graph::opset::normalized;
use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use crate::wire::{Str, walk};
use operators::{FOLDED, MEASURED, inferred_inputs, required_inputs};

/// How a constant is used by shape inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ShapeUse {
    /// It feeds an operator whose shape inference is not known here, or flows into a shape operand
    /// together with values that are only known at run time: readers may read it if it is a few
    /// integers.
    Unknown,
    /// It flows into a shape operand through operators that readers fold, or it is an operand that
    /// shape inference reads if it can and does not require.
    Derived,
    /// It is a shape operand that onnxruntime must see to build a session.
    Operand,
}

/// The constants of a model that shape inference reads.
///
/// ```
/// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto};
/// use onnx_container::graph::{ShapeOperands, ShapeUse};
///
/// let mut graph = GraphProto::new("g");
/// graph.initializer.push(TensorProto::new("w", TensorProto::FLOAT, [6]));
/// graph.initializer.push(TensorProto::new("shape", TensorProto::INT64, [2]));
/// graph.node.push(NodeProto::new("Reshape", ["w", "shape"], ["y"]));
/// let model = ModelProto::new(graph);
///
/// let operands = ShapeOperands::of(&model);
/// let tensors = &model.graph.as_ref().unwrap().initializer;
/// assert_eq!(operands.shape_use(&tensors[0]), None);
/// assert_eq!(operands.shape_use(&tensors[1]), Some(ShapeUse::Operand));
/// ```
#[derive(Debug, Default)]
pub struct ShapeOperands {
    /// By the address of the tensor, because names repeat across scopes.
    uses: HashMap<usize, ShapeUse>,
}

impl ShapeOperands {
    /// Analyses every graph of `model`. The answers hold until the model is changed or moved.
    pub fn of(model: &ModelProto) -> Self {
        let mut flow = Flow::new(model);
        for (index, function) in model.functions.iter().enumerate() {
            flow.function(index, &function.input, &function.node, &function.output);
        }
        if let Some(graph) = &model.graph {
            flow.graph(graph);
        }
        for info in model.training_info.iter() {
            for graph in [&info.initialization, &info.algorithm].into_iter().flatten() {
                flow.graph(graph);
            }
        }
        flow.solve()
    }

    /// How shape inference uses `tensor`, a tensor of the analysed model.
    pub fn shape_use(&self, tensor: &TensorProto) -> Option<ShapeUse> {
        self.uses.get(&address(tensor)).copied()
    }
}

fn address(tensor: &TensorProto) -> usize {
    std::ptr::from_ref(tensor).addr()
}

/// A value of some graph.
type Value = usize;

/// The values of one graph, by name.
type Frame<'m> = HashMap<&'m [u8], Value>;

/// A local function's values, as its callers see them.
#[derive(Default)]
struct Signature {
    inputs: Vec<Value>,
    outputs: Vec<Value>,
}

/// A call, linked once every function is known.
struct Call {
    function: usize,
    inputs: Vec<Option<Value>>,
    outputs: Vec<Option<Value>>,
}

/// A value that another value is computed from.
#[derive(Clone, Copy)]
struct ValueSource {
    value: Value,
    /// Whether the other value is known whenever this one is, because it is computed from constants
    /// only.
    exact: bool,
}

/// A source of a value, and the one that was found before it.
struct Edge {
    source: ValueSource,
    before: LastEdge,
}

/// The number of an edge plus one, so that it takes no more space than a number.
type LastEdge = Option<NonZeroUsize>;

/// The flow of values through a model.
struct Flow<'m> {
    /// For each value, the last of the edges to the values that it is computed from. Lists in one
    /// vector: most values have one source, and very many small allocations take several times the
    /// space.
    sources: Vec<LastEdge>,
    edges: Vec<Edge>,
    constants: HashSet<Value>,
    seeds: Vec<(Value, ShapeUse)>,
    /// Values that feed operators which are not known here, and through which nothing is followed.
    unknown: HashSet<Value>,
    /// The address of each tensor, with its value.
    tensors: Vec<(usize, Value)>,
    /// The names in scope: one frame for each graph around, the innermost last.
    frames: Vec<Frame<'m>>,
    functions: HashMap<[&'m [u8]; 3], usize>,
    signatures: Vec<Signature>,
    calls: Vec<Call>,
    measured: HashSet<&'static [u8]>,
}

fn bytes(name: &Option<Str>) -> &[u8] {
    name.as_ref().map(Str::as_bytes).unwrap_or_default()
}

fn rare(name: &Option<Box<Str>>) -> &[u8] {
    name.as_ref().map(|name| name.as_bytes()).unwrap_or_default()
}

impl<'m> Flow<'m> {
    fn new(model: &'m ModelProto) -> Self {
        let named = model.functions.iter().enumerate();
        Self {
            sources: Vec::new(),
            edges: Vec::new(),
            constants: HashSet::new(),
            seeds: Vec::new(),
            unknown: HashSet::new(),
            tensors: Vec::new(),
            frames: Vec::new(),
            functions: named
                .map(|(i, f)| {
                    ([normalized(bytes(&f.domain)), bytes(&f.name), rare(&f.overload)], i)
                })
                .collect(),
            signatures: model.functions.iter().map(|_| Signature::default()).collect(),
            calls: Vec::new(),
            measured: MEASURED.split_whitespace().map(str::as_bytes).collect(),
        }
    }

    fn value(&mut self) -> Value {
        self.sources.push(None);
        self.sources.len() - 1
    }

    fn flows(&mut self, from: Option<Value>, to: Option<Value>, exact: bool) {
        if let Some((value, to)) = from.zip(to)
            && let Some(last) = self.sources.get_mut(to)
        {
            self.edges.push(Edge { source: ValueSource { value, exact }, before: *last });
            *last = NonZeroUsize::new(self.edges.len());
        }
    }

    /// The values that `value` is computed from.
    fn sources(&self, value: Value) -> impl Iterator<Item = ValueSource> {
        let edge = |last: NonZeroUsize| self.edges.get(last.get() - 1);
        let last = self.sources.get(value).copied().flatten();
        let edges = iter::successors(last.and_then(edge), move |now| now.before.and_then(edge));
        edges.map(|edge| edge.source)
    }

    /// Notes that `value` is `tensor`.
    fn is(&mut self, value: Value, tensor: &TensorProto) {
        self.tensors.push((address(tensor), value));
        self.constants.insert(value);
    }

    fn define(&mut self, name: &'m [u8]) -> Option<Value> {
        if name.is_empty() {
            return None;
        }
        let value = self.value();
        self.frames.last_mut()?.insert(name, value);
        Some(value)
    }

    /// The value called `name` in the innermost graph that has it.
    fn resolve(&mut self, name: &'m [u8]) -> Option<Value> {
        if name.is_empty() {
            return None;
        }
        let found = self.frames.iter().rev().find_map(|frame| frame.get(name).copied());
        found.or_else(|| self.define(name))
    }

    fn function(
        &mut self,
        index: usize,
        inputs: &'m [Str],
        nodes: &'m [NodeProto],
        outputs: &'m [Str],
    ) {
        self.frames.push(Frame::new());
        let formals = inputs.iter().filter_map(|name| self.define(name.as_bytes())).collect();
        nodes.iter().for_each(|node| self.node(node));
        let results = outputs.iter().filter_map(|name| self.resolve(name.as_bytes())).collect();
        self.frames.pop();
        if let Some(signature) = self.signatures.get_mut(index) {
            *signature = Signature { inputs: formals, outputs: results };
        }
    }

    /// Walks a graph in the scope of the frames around it. Returns its inputs and outputs.
    fn graph(&mut self, graph: &'m GraphProto) -> Signature {
        walk::<GraphProto, _>(|| self.graph_here(graph))
    }

    fn graph_here(&mut self, graph: &'m GraphProto) -> Signature {
        self.frames.push(Frame::new());
        let inputs = graph.input.iter().filter_map(|i| self.define(bytes(&i.name))).collect();
        for tensor in &graph.initializer {
            // An initializer may repeat an input: both are one value.
            let name = bytes(&tensor.name);
            let known = self.frames.last().and_then(|frame| frame.get(name).copied());
            if let Some(value) = known.or_else(|| self.define(name)) {
                self.is(value, tensor);
            }
        }
        graph.node.iter().for_each(|node| self.node(node));
        let outputs = graph.output.iter().filter_map(|o| self.resolve(bytes(&o.name))).collect();
        self.frames.pop();
        Signature { inputs, outputs }
    }

    fn node(&mut self, node: &'m NodeProto) {
        let inputs: Vec<_> = node.input.iter().map(|name| self.resolve(name.as_bytes())).collect();
        let subgraphs: Vec<_> = node
            .attribute
            .iter()
            .flat_map(|a| a.g.as_deref().into_iter().chain(a.graphs.iter()))
            .map(|graph| self.graph(graph))
            .collect();
        let outputs: Vec<_> = node.output.iter().map(|name| self.define(name.as_bytes())).collect();
        let (domain, op) = (normalized(bytes(&node.domain)), bytes(&node.op_type));
        if let Some(function) = self.functions.get(&[domain, op, rare(&node.overload)]).copied() {
            self.calls.push(Call { function, inputs, outputs });
        } else if domain.is_empty() {
            self.operator(op, node, &inputs, &outputs, &subgraphs);
        } else {
            self.unknown.extend(inputs.into_iter().flatten());
        }
    }

    fn operator(
        &mut self,
        op: &'m [u8],
        node: &'m NodeProto,
        inputs: &[Option<Value>],
        outputs: &[Option<Value>],
        subgraphs: &[Signature],
    ) {
        let required = required_inputs(op).iter().map(|i| (i, ShapeUse::Operand));
        let inferred = inferred_inputs(op).iter().map(|i| (i, ShapeUse::Derived));
        let operands =
            required.chain(inferred).filter_map(|(i, used)| Some(((*inputs.get(*i)?)?, used)));
        self.seeds.extend(operands);
        match op {
            b"Constant" => self.constant(&node.attribute, outputs),
            b"Gather" => self.gather(inputs),
            b"If" | b"Loop" | b"Scan" => self.control_flow(op, inputs, outputs, subgraphs),
            _ => {}
        }
        if !self.measured.contains(op) {
            self.unknown.extend(inputs.iter().flatten());
        }
        if FOLDED.binary_search(&op).is_ok() {
            self.fold(inputs, outputs);
        }
    }

    fn constant(&mut self, attributes: &'m [AttributeProto], outputs: &[Option<Value>]) {
        let output = outputs.first().copied().flatten();
        let tensor = attributes.iter().find_map(|attribute| attribute.t.as_deref());
        if let Some((tensor, output)) = tensor.zip(output) {
            self.is(output, tensor);
        }
    }

    /// The outputs are known if all inputs are. Otherwise readers may know parts of them, such as
    /// the last two dimensions of `[batch, 2, 3]`.
    fn fold(&mut self, inputs: &[Option<Value>], outputs: &[Option<Value>]) {
        let exact = inputs.iter().flatten().all(|input| self.constants.contains(input));
        match (inputs, outputs) {
            (_, [output]) => inputs.iter().for_each(|input| self.flows(*input, *output, exact)),
            // All inputs flow into one value, and it into all outputs: a node may have very many of
            // both, and edges between each pair would be quadratic.
            _ => {
                let all = Some(self.value());
                inputs.iter().for_each(|input| self.flows(*input, all, exact));
                outputs.iter().for_each(|output| self.flows(all, *output, true));
            }
        }
        if exact {
            self.constants.extend(outputs.iter().flatten());
        }
    }

    /// The indices of a Gather are sometimes read when they are small.
    fn gather(&mut self, inputs: &[Option<Value>]) {
        self.unknown.extend(inputs.get(1).copied().flatten());
    }

    fn control_flow(
        &mut self,
        op: &[u8],
        inputs: &[Option<Value>],
        outputs: &[Option<Value>],
        subgraphs: &[Signature],
    ) {
        // A Loop's body also takes the iteration number and returns the condition.
        let (skip, first) = if op == b"Loop" { (1, 1) } else { (0, 0) };
        for subgraph in subgraphs {
            for (actual, formal) in inputs.iter().zip(&subgraph.inputs).skip(skip) {
                self.flows(*actual, Some(*formal), true);
            }
            for (output, result) in outputs.iter().zip(subgraph.outputs.iter().skip(first)) {
                self.flows(Some(*result), *output, true);
            }
        }
    }

    /// Links calls to functions, then follows every shape operand back to its constants.
    fn solve(mut self) -> ShapeOperands {
        for call in std::mem::take(&mut self.calls) {
            let Some(signature) = self.signatures.get(call.function) else { continue };
            let (formals, results) = (signature.inputs.clone(), signature.outputs.clone());
            for (actual, formal) in call.inputs.into_iter().zip(formals) {
                self.flows(actual, Some(formal), true);
            }
            for (output, result) in call.outputs.into_iter().zip(results) {
                self.flows(Some(result), output, true);
            }
        }
        let marks = self.follow();
        let unknown = |value| self.unknown.contains(value).then_some(ShapeUse::Unknown);
        let uses = self.tensors.iter().filter_map(|(address, value)| {
            let mark = marks.get(*value).copied().flatten();
            Some((*address, mark.or_else(|| unknown(value))?))
        });
        ShapeOperands { uses: uses.collect() }
    }

    /// Follows the operands back to what they are computed from. The result is the use of each
    /// value.
    fn follow(&self) -> Vec<Option<ShapeUse>> {
        let mut marks = vec![None; self.sources.len()];
        let mut work = self.seeds.clone();
        while let Some((value, mark)) = work.pop() {
            let lower = marks.get_mut(value).filter(|slot| **slot < Some(mark));
            let Some(slot) = lower else { continue };
            *slot = Some(mark);
            for source in self.sources(value) {
                let most = if source.exact { ShapeUse::Derived } else { ShapeUse::Unknown };
                work.push((source.value, most.min(mark)));
            }
        }
        marks
    }
}
