//! [`Store`]: the scopes of a model and what is known of their values so far.
//!
//! Finding what a name stands for leads through graphs, calls and their inputs, until there is a
//! value, or a node that has to be computed first. Computing it is left to `evaluate`. The store
//! keeps every scope, so that `difference` can go back from an output to what it was computed from.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::RandomState;

use super::body::{Body, Constant, Definition, bytes};
use super::hash::{Digest, Form};
use super::operator;
use super::scope::{Around, Frame, NodeState, Scope, ScopeId, ScopeKind, Value};
use super::weights::WeightDigests;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::inline::FunctionId;
use crate::limits::{Counter, Limit, Limits};
use crate::proto::{NodeProto, Str};

/// How many bytes bodies that are used more than once may take in any model.
const BASE: u64 = 16 << 20;
/// And for each byte of the model's messages.
const PER_BYTE: u64 = 5;

/// What a name stands for, as far as it is known.
pub(super) enum FoundName {
    Value(Value),
    /// It is an output of a node that has to be computed first.
    Pending {
        scope: ScopeId,
        node: usize,
        index: usize,
    },
}

/// Where a value comes from.
pub(super) enum Origin<'m> {
    Absent,
    /// An input of the main graph.
    Input(usize),
    /// An input of a graph in an attribute.
    Bound(usize),
    Constant(Constant<'m>),
    /// An output of a node.
    Node {
        scope: ScopeId,
        node: usize,
        index: usize,
    },
}

/// A call that is evaluated, or several that are the same.
pub(super) struct Call {
    pub(super) scope: ScopeId,
}

/// How far an output of a call has got.
#[derive(Clone, Copy)]
pub(super) enum CallOutput {
    Open,
    Done(Value),
}

pub(super) struct Store<'m> {
    pub(super) weights: WeightDigests<'m>,
    /// The digests of the main graph's inputs.
    pub(super) inputs: Vec<Digest>,
    pub(super) calls: Vec<Call>,
    /// The graphs in the attributes of a node, in the order of the attributes' names.
    pub(super) graphs: HashMap<(ScopeId, usize), Vec<(ScopeId, Digest)>, RandomState>,
    scopes: Vec<Scope<'m>>,
    /// The outputs of calls that something needs, by the call and their index.
    outputs: HashMap<(usize, usize), CallOutput, RandomState>,
    /// The bytes of bodies that are used again.
    again: Counter,
}

impl<'m> Store<'m> {
    /// The store of a model of this length, whose inputs have these digests.
    pub(super) fn new(
        weights: WeightDigests<'m>,
        inputs: Vec<Digest>,
        len: u64,
        limits: &Limits,
    ) -> Self {
        let default = len.saturating_mul(PER_BYTE).saturating_add(BASE);
        let again = Counter::new(limits, Limit::Calls, default);
        let (calls, graphs, scopes) = (Vec::new(), HashMap::default(), Vec::new());
        let outputs = HashMap::default();
        Self { weights, inputs, calls, graphs, scopes, outputs, again }
    }

    /// Opens a scope of `body`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] when calls multiply beyond all bounds.
    pub(super) fn open(
        &mut self,
        body: Rc<Body<'m>>,
        kind: ScopeKind,
        level: usize,
        frame: Rc<Frame<'m>>,
    ) -> Result<ScopeId> {
        self.again.take(body.take()).map_err(or_inlined)?;
        let nodes = vec![NodeState::New; body.nodes.len()];
        self.scopes.push(Scope { body, kind, level, frame, nodes });
        Ok(self.scopes.len() - 1)
    }

    pub(super) fn scope(&self, id: ScopeId) -> Result<&Scope<'m>> {
        self.scopes.get(id).ok_or_else(|| Error::internal("a scope that was not opened"))
    }

    pub(super) fn node(&self, scope: ScopeId, node: usize) -> Result<&'m NodeProto> {
        let nodes = self.scope(scope)?.body.nodes;
        nodes.get(node).ok_or_else(|| Error::internal("a node that is not in its graph"))
    }

    pub(super) fn state(&self, scope: ScopeId, node: usize) -> Result<NodeState> {
        let state = self.scope(scope)?.nodes.get(node).copied();
        state.ok_or_else(|| Error::internal("a node without a state"))
    }

    pub(super) fn set(&mut self, scope: ScopeId, node: usize, state: NodeState) {
        let nodes = self.scopes.get_mut(scope).map(|scope| &mut scope.nodes);
        let place = nodes.and_then(|nodes| nodes.get_mut(node));
        debug_assert!(place.is_some(), "a node is set in the scope that has it");
        if let Some(place) = place {
            *place = state;
        }
    }

    pub(super) fn set_output(&mut self, call: usize, index: usize, output: CallOutput) {
        self.outputs.insert((call, index), output);
    }

    /// An output of a call; `None` where nothing has needed it yet.
    pub(super) fn output(&self, call: usize, index: usize) -> Option<CallOutput> {
        self.outputs.get(&(call, index)).copied()
    }

    /// What `name` stands for in `scope`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`] when nothing defines it, or when it is computed from itself; the
    /// error of its weights.
    pub(super) fn find(&mut self, scope: ScopeId, name: &'m [u8]) -> Result<FoundName> {
        // The inputs of calls on the way, which are then known too.
        let mut passed = Vec::new();
        let (mut scope, mut name) = (scope, name);
        let value = loop {
            if name.is_empty() {
                break None;
            }
            let here = self.scope(scope)?;
            match (here.body.find(name), &here.kind) {
                (Some(Definition::Constant(constant)), _) => {
                    break Some(self.weights.constant(constant)?);
                }
                (Some(Definition::Output { node, index }), kind) => {
                    if let ScopeKind::Graph { around: Some(around) } = kind
                        && here.body.is_read_early(name)
                    {
                        self.refuse_shadow(*around, name)?;
                    }
                    match self.computed(scope, node, index)? {
                        FoundName::Value(value) => break value,
                        pending => return Ok(pending),
                    }
                }
                (Some(Definition::Input(input)), ScopeKind::Main) => {
                    break self.inputs.get(input).copied();
                }
                (Some(Definition::Input(input)), ScopeKind::Graph { .. }) => {
                    break Some(self.bound(here, input)?);
                }
                (Some(Definition::Input(input)), ScopeKind::Call { caller, node, inputs }) => {
                    if let Some(known) = inputs.get(input).copied().flatten() {
                        break known;
                    }
                    let (caller, node) = (*caller, *node);
                    passed.push((scope, input));
                    name = bytes(self.node(caller, node)?.input.get(input));
                    scope = caller;
                }
                (None, ScopeKind::Graph { around: Some(around) }) => scope = around.scope,
                (None, _) => return Err(undefined(name)),
            }
        };
        for (scope, input) in passed {
            self.set_input(scope, input, value);
        }
        Ok(FoundName::Value(value))
    }

    /// Fails when `name`, which a node reads before a node gives it, stands for a value before the
    /// graph at `around` too: a reader that goes through the nodes in their order takes that one.
    fn refuse_shadow(&self, around: Around, name: &[u8]) -> Result<()> {
        let mut next = Some(around);
        while let Some(Around { scope, node: holder }) = next {
            let here = self.scope(scope)?;
            let defined = here.body.find(name);
            let is_later =
                matches!(defined, Some(Definition::Output { node, .. }) if node >= holder);
            if defined.is_some() && !is_later {
                let name = String::from_utf8_lossy(name);
                let reason =
                    format!("the value `{name}` is defined twice, in a graph and around it");
                return Err(Error::new(ErrorKind::InvalidModel, reason));
            }
            next = match here.kind {
                ScopeKind::Graph { around } => around,
                _ => None,
            };
        }
        Ok(())
    }

    fn set_input(&mut self, scope: ScopeId, input: usize, value: Value) {
        if let Some(Scope { kind: ScopeKind::Call { inputs, .. }, .. }) = self.scopes.get_mut(scope)
            && let Some(place) = inputs.get_mut(input)
        {
            *place = Some(value);
        }
    }

    fn computed(&self, scope: ScopeId, node: usize, index: usize) -> Result<FoundName> {
        match self.state(scope, node)? {
            NodeState::New => Ok(FoundName::Pending { scope, node, index }),
            NodeState::Open => Err(cycle()),
            NodeState::Node(digest) => Ok(FoundName::Value(Some(operator::output(&digest, index)))),
            NodeState::Value(value) => Ok(FoundName::Value(value)),
            NodeState::Call(call) => match self.output(call, index) {
                Some(CallOutput::Done(value)) => Ok(FoundName::Value(value)),
                Some(CallOutput::Open) => Err(cycle()),
                None => Ok(FoundName::Pending { scope, node, index }),
            },
        }
    }

    /// The digest of an input of a graph in an attribute: its number, and how deep the graph is
    /// nested.
    fn bound(&self, scope: &Scope<'m>, input: usize) -> Result<Digest> {
        let default =
            scope.body.defaults.get(&input).map(|default| self.weights.constant(*default));
        let mut form = Form::new("bound");
        form.count(scope.level);
        form.count(input);
        form.optional(default.transpose()?.as_ref());
        Ok(form.end())
    }

    /// The value of `name`, when everything was computed.
    pub(super) fn value(&mut self, scope: ScopeId, name: &'m [u8]) -> Result<Value> {
        match self.find(scope, name)? {
            FoundName::Value(value) => Ok(value),
            _ => Err(Error::internal("a value that was not computed")),
        }
    }

    /// Where the value of `name` in `scope` comes from: nodes that only pass a value on are left
    /// out.
    pub(super) fn origin(&self, scope: ScopeId, name: &'m [u8]) -> Result<Origin<'m>> {
        let (mut scope, mut name) = (scope, name);
        loop {
            if name.is_empty() {
                return Ok(Origin::Absent);
            }
            let here = self.scope(scope)?;
            match (here.body.find(name), &here.kind) {
                (Some(Definition::Constant(constant)), _) => return Ok(Origin::Constant(constant)),
                (Some(Definition::Input(input)), ScopeKind::Main) => {
                    return Ok(Origin::Input(input));
                }
                (Some(Definition::Input(input)), ScopeKind::Graph { .. }) => {
                    return Ok(Origin::Bound(input));
                }
                (Some(Definition::Input(input)), ScopeKind::Call { caller, node, .. }) => {
                    let call = self.node(*caller, *node)?;
                    (scope, name) = (*caller, bytes(call.input.get(input)));
                }
                (None, ScopeKind::Graph { around: Some(around) }) => scope = around.scope,
                (None, _) => return Err(undefined(name)),
                (Some(Definition::Output { node, index }), _) => {
                    match (self.state(scope, node)?, self.node(scope, node)?.input.first()) {
                        (NodeState::Value(_), Some(input)) => name = input.as_bytes(),
                        (NodeState::Call(call), _) => {
                            let Some(call) = self.calls.get(call) else {
                                return Err(Error::internal("a call that was not opened"));
                            };
                            let outputs = &self.scope(call.scope)?.body.outputs;
                            name = outputs.get(index).copied().unwrap_or_default();
                            scope = call.scope;
                        }
                        _ => return Ok(Origin::Node { scope, node, index }),
                    }
                }
            }
        }
    }

    /// A node as messages say it: its name or first output, its operator, and the function that it
    /// is in.
    pub(super) fn describe(&self, scope: ScopeId, node: usize) -> String {
        let named = |name: &&Str| !name.is_empty();
        let Ok(proto) = self.node(scope, node) else { return String::new() };
        let given = proto.name.as_ref().filter(named).or(proto.output.iter().find(named));
        let name = given.map(|name| format!("`{name}` ")).unwrap_or_default();
        let op_type = String::from_utf8_lossy(bytes(proto.op_type.as_ref())).into_owned();
        let function = self.scope(scope).ok().and_then(|scope| scope.frame.function);
        let place = function.map(|f| format!(" of function `{}`", FunctionId::from(f)));
        format!("node {name}({op_type}){}", place.unwrap_or_default())
    }
}

/// The error of a model whose calls multiply beyond all bounds, with another way out: a model
/// without functions.
fn or_inlined(error: Error) -> Error {
    Error::new(error.kind(), format!("{}; or inline them first", error.reason()))
}

fn undefined(name: &[u8]) -> Error {
    let name = String::from_utf8_lossy(name);
    Error::new(ErrorKind::InvalidModel, format!("nothing defines the value `{name}`"))
}

fn cycle() -> Error {
    Error::new(ErrorKind::InvalidModel, "it is computed from itself")
}
