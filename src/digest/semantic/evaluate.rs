//! [`Evaluator`]: computes the digest of every value that an output depends on.
//!
//! Work starts at the outputs and goes to what they need, inputs before attributes, so the order of
//! nodes in the model does not matter and what no output needs is not looked at. What waits for
//! other values is on a stack of its own: a chain of nodes may be longer than the thread's stack is
//! deep.
//!
//! A call is evaluated as if its function's body stood in its place. Where every operator of the
//! model is known to give the same for the same inputs, calls of one function with the same inputs
//! and attributes are evaluated once. Otherwise each is evaluated by itself, in the order in which
//! the nodes would be met after inlining: the draws of random operators are numbered in that order.

use std::collections::HashMap;
use std::mem;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::attributes;
use super::body::{Body, bytes};
use super::draws::draws_anywhere;
use super::hash::{Digest, Form};
use super::operator::{self, Operator};
use super::scope::{
    Around, Callee, Closure, Frame, Given, Imports, NodeState, ScopeId, ScopeKind, Value,
};
use super::store::{Call, CallOutput, FoundName, Store};
use super::types::Symbols;
use super::weights::WeightDigests;
use crate::container::Container;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::inline::Callable;
use crate::proto::{FunctionProto, GraphProto, Message, ModelProto, NodeProto};
use crate::util::cancel;

/// The scope of the main graph.
pub(super) const MAIN: ScopeId = 0;

/// A model whose outputs are computed.
pub(super) struct Evaluator<'m> {
    pub(super) store: Store<'m>,
    model: &'m ModelProto,
    functions: Callable<'m>,
    imports: Rc<Imports<'m>>,
    /// The graphs in attributes, by their addresses.
    bodies: HashMap<*const GraphProto, Rc<Body<'m>>, RandomState>,
    /// The functions that are called, by their indices.
    callees: HashMap<usize, Rc<Callee<'m>>, RandomState>,
    /// The calls by function, inputs and attributes; `None` where two calls of the same are not
    /// one.
    same_calls: Option<HashMap<Digest, usize, RandomState>>,
    /// How many nodes of one level draw that are otherwise the same.
    draws: HashMap<(Digest, usize), usize, RandomState>,
}

/// The digests of a model's outputs.
pub(super) struct Outputs {
    pub(super) model: Digest,
    pub(super) each: Vec<Digest>,
}

/// Something that waits for a value.
enum Task<'m> {
    Node(Box<NodeTask<'m>>),
    Output(Box<OutputTask<'m>>),
}

/// An operator whose inputs and graphs are computed.
struct NodeTask<'m> {
    scope: ScopeId,
    node: usize,
    proto: &'m NodeProto,
    inputs: Vec<Value>,
    /// The attributes, when the inputs are done.
    given: Option<Vec<Given<'m>>>,
    /// The graphs in the attributes, those that are done.
    graphs: Vec<(ScopeId, Digest)>,
    /// The graph that is being computed, with its outputs so far.
    open: Option<(&'m GraphProto, ScopeId, Vec<Value>)>,
    /// The graphs that come after it.
    left: std::vec::IntoIter<(&'m GraphProto, Closure<'m>)>,
}

/// An output of a call that is computed.
struct OutputTask<'m> {
    scope: ScopeId,
    node: usize,
    index: usize,
    proto: &'m NodeProto,
    function: (usize, &'m FunctionProto),
    inputs: Vec<Value>,
    given: Option<Vec<Given<'m>>>,
    opened: bool,
}

/// What a task has come to.
enum Step<'m> {
    Done,
    Wait(Task<'m>),
}

impl<'m> Evaluator<'m> {
    /// # Errors
    /// Those of the functions' call graph, and of the default values of inputs.
    pub(super) fn new(container: &'m Container) -> Result<Self> {
        let model: &'m ModelProto = &container.model;
        let functions = Callable::new(&model.functions)?;
        let weights = WeightDigests::of(container);
        let graph = main_graph(model)?;
        let body = Body::of_graph(graph)?;
        let mut symbols = Symbols::default();
        let mut inputs = Vec::with_capacity(graph.input.len());
        for (i, input) in graph.input.iter().enumerate() {
            let mut form = Form::new("input");
            form.count(i);
            symbols.write(&mut form, input.r#type.as_deref());
            let default = body.defaults.get(&i).map(|default| weights.constant(*default));
            form.optional(default.transpose()?.as_ref());
            inputs.push(form.end());
        }
        let mut evaluator = Self {
            store: Store::new(weights, inputs, model.encoded_len(), &container.limits),
            model,
            functions,
            imports: Rc::new(Imports::new(&model.opset_import, None)),
            bodies: HashMap::default(),
            callees: HashMap::default(),
            same_calls: None,
            draws: HashMap::default(),
        };
        if !draws_anywhere(container.model(), &evaluator.functions, &evaluator.imports) {
            evaluator.same_calls = Some(HashMap::default());
        }
        let frame = Rc::new(Frame::of_model(evaluator.imports.clone()));
        evaluator.store.open(Rc::new(body), ScopeKind::Main, 0, frame)?;
        Ok(evaluator)
    }

    /// The digests of all outputs.
    ///
    /// # Errors
    /// What keeps a value from having a meaning, with the node.
    pub(super) fn run(&mut self) -> Result<Outputs> {
        let graph = main_graph(self.model)?;
        let mut each = Vec::with_capacity(graph.output.len());
        for output in &graph.output {
            let name = bytes(output.name.as_ref());
            let value = self.demand(MAIN, name).and_then(|value| value.ok_or_else(not_computed));
            each.push(value.map_err(|error| {
                error.because(&format!("output `{}`", String::from_utf8_lossy(name)))
            })?);
        }
        let mut form = Form::new("model");
        for digests in [&self.store.inputs, &each] {
            form.count(digests.len());
            digests.iter().for_each(|digest| form.digest(digest));
        }
        form.unknown(&graph.unknown);
        form.unknown(&self.model.unknown);
        Ok(Outputs { model: form.end(), each })
    }

    /// The value of `name` in `scope`.
    fn demand(&mut self, scope: ScopeId, name: &'m [u8]) -> Result<Value> {
        loop {
            let mut stack = match self.find(scope, name)? {
                Ok(value) => return Ok(value),
                Err(task) => vec![task],
            };
            while let Some(mut task) = stack.pop() {
                cancel::check()?;
                if let Step::Wait(next) = self.step(&mut task)? {
                    stack.extend([task, next]);
                }
            }
        }
    }

    /// The value of `name` in `scope`, or what has to be done first.
    fn find(&mut self, scope: ScopeId, name: &'m [u8]) -> Result<Result<Value, Task<'m>>> {
        let (scope, node, index) = match self.store.find(scope, name)? {
            FoundName::Value(value) => return Ok(Ok(value)),
            FoundName::Pending { scope, node, index } => (scope, node, index),
        };
        let proto = self.store.node(scope, node)?;
        let (inputs, given) = (Vec::new(), None);
        Ok(Err(match self.functions.callee(proto) {
            Some(function) => Task::Output(Box::new(OutputTask {
                scope,
                node,
                index,
                proto,
                function,
                inputs,
                given,
                opened: false,
            })),
            None => {
                let (graphs, open, left) = (Vec::new(), None, Vec::new().into_iter());
                let task = NodeTask { scope, node, proto, inputs, given, graphs, open, left };
                Task::Node(Box::new(task))
            }
        }))
    }

    fn step(&mut self, task: &mut Task<'m>) -> Result<Step<'m>> {
        let (scope, node, step) = match task {
            Task::Node(task) => (task.scope, task.node, self.step_node(task)),
            Task::Output(task) => (task.scope, task.node, self.step_output(task)),
        };
        step.map_err(|error| error.because(&self.store.describe(scope, node)))
    }

    /// Adds the values of a node's inputs to `inputs`, those that are not there yet, up to the
    /// first that has to be computed.
    fn inputs(
        &mut self,
        scope: ScopeId,
        node: &'m NodeProto,
        inputs: &mut Vec<Value>,
    ) -> Result<Option<Task<'m>>> {
        while let Some(name) = node.input.get(inputs.len()) {
            match self.find(scope, name.as_bytes())? {
                Ok(value) => inputs.push(value),
                Err(task) => return Ok(Some(task)),
            }
        }
        Ok(None)
    }

    fn step_node(&mut self, task: &mut NodeTask<'m>) -> Result<Step<'m>> {
        self.store.set(task.scope, task.node, NodeState::Open);
        if let Some(first) = self.inputs(task.scope, task.proto, &mut task.inputs)? {
            return Ok(Step::Wait(first));
        }
        let given = match task.given.take() {
            Some(given) => given,
            None => {
                let frame = self.store.scope(task.scope)?.frame.clone();
                let here = Around { scope: task.scope, node: task.node };
                let given = frame.attributes(task.proto, here)?;
                task.left = graphs_of(&given).into_iter();
                given
            }
        };
        while let Some((graph, scope, mut outputs)) = self.next_graph(task)? {
            if let Some(first) = self.outputs(scope, &mut outputs)? {
                task.open = Some((graph, scope, outputs));
                task.given = Some(given);
                return Ok(Step::Wait(first));
            }
            task.graphs.push((scope, digest_of_graph(graph, &outputs)));
        }
        self.finish(task, &given)?;
        Ok(Step::Done)
    }

    /// The graph in an attribute that is being computed, or the next one, with its scope and its
    /// outputs so far.
    fn next_graph(
        &mut self,
        task: &mut NodeTask<'m>,
    ) -> Result<Option<(&'m GraphProto, ScopeId, Vec<Value>)>> {
        if let Some(open) = task.open.take() {
            return Ok(Some(open));
        }
        let Some((graph, closure)) = task.left.next() else { return Ok(None) };
        let level = self.store.scope(task.scope)?.level + 1;
        let kind = ScopeKind::Graph { around: closure.around };
        let body = self.body_of_graph(graph)?;
        let scope = self.store.open(body, kind, level, closure.frame)?;
        Ok(Some((graph, scope, Vec::new())))
    }

    /// As [`inputs`](Self::inputs), for the outputs of a graph.
    fn outputs(&mut self, scope: ScopeId, outputs: &mut Vec<Value>) -> Result<Option<Task<'m>>> {
        let body = self.store.scope(scope)?.body.clone();
        while let Some(name) = body.outputs.get(outputs.len()) {
            match self.find(scope, name)? {
                Ok(value) => outputs.push(value),
                Err(task) => return Ok(Some(task)),
            }
        }
        Ok(None)
    }

    /// Computes a node whose inputs and graphs are there.
    fn finish(&mut self, task: &mut NodeTask<'m>, given: &[Given<'m>]) -> Result<()> {
        let NodeTask { scope, node, proto, inputs, graphs, .. } = task;
        let operator = self.operator(*scope, proto)?;
        operator.reads_its_inputs()?;
        let state = match self.passed(&operator, proto, inputs, given)? {
            Some(value) => NodeState::Value(Some(value)),
            None => {
                let digests: Vec<_> = graphs.iter().map(|(_, digest)| *digest).collect();
                let attributes = operator.attributes(given, &digests, &self.store.weights)?;
                let digest = operator::digest(&operator, proto, inputs, &attributes);
                let has_input = |input: usize| inputs.get(input).is_some_and(Option::is_some);
                NodeState::Node(match operator.draws(has_input) {
                    true => self.draw(digest, self.store.scope(*scope)?.level),
                    false => digest,
                })
            }
        };
        if !graphs.is_empty() {
            self.store.graphs.insert((*scope, *node), mem::take(graphs));
        }
        self.store.set(*scope, *node, state);
        Ok(())
    }

    /// The operator of a node in `scope`.
    pub(super) fn operator(&self, scope: ScopeId, node: &'m NodeProto) -> Result<Operator<'m>> {
        let version = self.store.scope(scope)?.frame.version(operator::domain(node))?;
        Ok(Operator::new(node, version))
    }

    /// The value that a Constant or an Identity only passes on.
    fn passed(
        &self,
        operator: &Operator<'_>,
        node: &NodeProto,
        inputs: &[Value],
        given: &[Given<'_>],
    ) -> Result<Option<Digest>> {
        if !operator.passes_on_one(node) {
            return Ok(None);
        }
        match (inputs, given) {
            ([Some(input)], []) if operator.is("Identity") => Ok(Some(*input)),
            ([], [one]) if operator.is("Constant") => {
                attributes::of_constant(one.name, one.value, &self.store.weights)
            }
            _ => Ok(None),
        }
    }

    fn draw(&mut self, node: Digest, level: usize) -> Digest {
        let number = self.draws.entry((node, level)).or_default();
        *number += 1;
        operator::draw(&node, level, *number - 1)
    }

    fn step_output(&mut self, task: &mut OutputTask<'m>) -> Result<Step<'m>> {
        let call = match self.store.state(task.scope, task.node)? {
            NodeState::Call(call) => call,
            _ => {
                if let Some(first) = self.open_call(task)? {
                    return Ok(Step::Wait(first));
                }
                match self.store.state(task.scope, task.node)? {
                    NodeState::Call(call) => call,
                    _ => return Err(Error::internal("a call that was not opened")),
                }
            }
        };
        match self.store.output(call, task.index) {
            Some(CallOutput::Done(_)) => return Ok(Step::Done),
            Some(CallOutput::Open) if !task.opened => {
                return Err(invalid("it is computed from itself"));
            }
            _ => {}
        }
        task.opened = true;
        self.store.set_output(call, task.index, CallOutput::Open);
        let unknown = || Error::internal("an output of a call that is not known");
        let scope = self.store.calls.get(call).ok_or_else(unknown)?.scope;
        let Some(name) = self.store.scope(scope)?.body.outputs.get(task.index).copied() else {
            return Err(invalid("the call has more outputs than the function"));
        };
        match self.find(scope, name)? {
            Err(first) => Ok(Step::Wait(first)),
            Ok(None) => Err(not_computed()),
            Ok(value) => {
                self.store.set_output(call, task.index, CallOutput::Done(value));
                Ok(Step::Done)
            }
        }
    }

    /// Opens the scope of a call, or finds that of the same call; what has to be computed first is
    /// returned.
    fn open_call(&mut self, task: &mut OutputTask<'m>) -> Result<Option<Task<'m>>> {
        let (index, function) = task.function;
        if task.proto.input.len() > function.input.len() {
            return Err(invalid("the call has more inputs than the function"));
        }
        if !task.proto.unknown.is_empty() || !function.unknown.is_empty() {
            let reason = "a call or function has a field that is not known";
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        let here = self.store.scope(task.scope)?;
        let (level, frame) = (here.level, here.frame.clone());
        let given = match task.given.take() {
            Some(given) => given,
            None => frame.attributes(task.proto, Around { scope: task.scope, node: task.node })?,
        };
        let mut key = None;
        if self.same_calls.is_some() && !given.iter().any(Given::has_graphs) {
            self.store.set(task.scope, task.node, NodeState::Open);
            if let Some(first) = self.inputs(task.scope, task.proto, &mut task.inputs)? {
                task.given = Some(given);
                return Ok(Some(first));
            }
            let new = self.key(index, level, &task.inputs, &given)?;
            let same = self.same_calls.as_ref().and_then(|calls| calls.get(&new));
            if let Some(call) = same {
                self.store.set(task.scope, task.node, NodeState::Call(*call));
                return Ok(None);
            }
            key = Some(new);
        }
        let callee = self.callee(index, function)?;
        let frame = Rc::new(Frame::of_call(&callee, given));
        let mut inputs: Vec<_> = task.inputs.iter().copied().map(Some).collect();
        inputs.resize(function.input.len(), None);
        let kind = ScopeKind::Call { caller: task.scope, node: task.node, inputs };
        let scope = self.store.open(callee.body.clone(), kind, level, frame)?;
        let call = self.store.calls.len();
        self.store.calls.push(Call { scope });
        self.store.set(task.scope, task.node, NodeState::Call(call));
        if let (Some(key), Some(calls)) = (key, &mut self.same_calls) {
            calls.insert(key, call);
        }
        Ok(None)
    }

    /// What calls have in common that compute the same.
    fn key(
        &self,
        function: usize,
        level: usize,
        inputs: &[Value],
        given: &[Given<'m>],
    ) -> Result<Digest> {
        let mut form = Form::new("call");
        form.count(function);
        form.count(level);
        let inputs = operator::trimmed(inputs);
        form.count(inputs.len());
        inputs.iter().for_each(|input| form.optional(input.as_ref()));
        for (name, digest) in operator::given_attributes(given, &[], &self.store.weights)? {
            form.bytes(name);
            form.digest(&digest);
        }
        Ok(form.end())
    }

    fn body_of_graph(&mut self, graph: &'m GraphProto) -> Result<Rc<Body<'m>>> {
        let place = std::ptr::from_ref(graph);
        if let Some(body) = self.bodies.get(&place) {
            return Ok(body.clone());
        }
        let body = Rc::new(Body::of_graph(graph)?);
        self.bodies.insert(place, body.clone());
        Ok(body)
    }

    fn callee(&mut self, index: usize, function: &'m FunctionProto) -> Result<Rc<Callee<'m>>> {
        if let Some(callee) = self.callees.get(&index) {
            return Ok(callee.clone());
        }
        let callee = Rc::new(Callee::new(function, &self.imports)?);
        self.callees.insert(index, callee.clone());
        Ok(callee)
    }
}

/// The graphs in attributes, and what the names in them see.
fn graphs_of<'m>(given: &[Given<'m>]) -> Vec<(&'m GraphProto, Closure<'m>)> {
    let each = given.iter().flat_map(|given| {
        attributes::graphs(given.value).map(|graph| (graph, given.closure.clone()))
    });
    each.collect()
}

fn digest_of_graph(graph: &GraphProto, outputs: &[Value]) -> Digest {
    let mut form = Form::new("graph");
    form.count(graph.input.len());
    form.count(outputs.len());
    outputs.iter().for_each(|output| form.optional(output.as_ref()));
    form.unknown(&graph.unknown);
    form.end()
}

fn main_graph(model: &ModelProto) -> Result<&GraphProto> {
    model.graph.as_deref().ok_or_else(|| invalid("the model has no graph"))
}

fn not_computed() -> Error {
    invalid("nothing computes it")
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidModel, reason)
}
