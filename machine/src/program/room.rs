//! How much memory a program and its plan may take.
//!
//! A node of 13 bytes becomes a step with a lifetime and a place, which is fifty times as much.
//! What the nodes, values and attributes of a model become is added up while they are read, so that
//! an untrusted model of very small nodes, or of calls that multiply, is refused before it fills
//! the memory. The sums are estimates of what is held at once while the program is planned, with
//! what allocators add; `cli/tests/bounds` measures processes.

use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::load::Limit;
use onnx_container::proto::{AttributeProto, Message, ModelProto, NodeProto, Str};
use onnx_container::{ErrorKind, Limits};

use crate::error::Result;

/// What the program of any model may take, in bytes: with 8 MiB for the messages, less than the 64
/// MiB that `cli/tests/bounds` allows to a process.
const BASE: u64 = 36 << 20;
/// What each byte of the model's messages may take more. A node of a real model takes 100 bytes and
/// more, most of them names, so that ten allow any number of nodes that are a little longer than
/// that.
const PER_BYTE: u64 = 10;

/// A node, without its operands.
const NODE: u64 = 600;
/// An input or output of a node.
const OPERAND: u64 = 8;
/// A result of a node, with its type, shape, lifetime and place.
const RESULT: u64 = 900;
/// Another value, with its type and shape.
const VALUE: u64 = 400;
/// A graph, a constant, or a tensor in an attribute.
const OBJECT: u64 = 400;
/// The first attributes of a node, up to eleven.
const ATTRIBUTES: u64 = 1_200;
/// An attribute more.
const ATTRIBUTE: u64 = 200;
/// An element of a list in an attribute.
const ELEMENT: u64 = 48;

/// What may be taken, and what is.
#[derive(Default)]
pub(super) struct Room {
    limits: Limits,
    /// The memory that the program may take.
    most: u64,
    taken: u64,
}

impl Room {
    /// The memory that the program of `model` may take: what `limits` say, or what its length
    /// allows.
    pub(super) fn of(model: &ModelProto, limits: Limits) -> Self {
        let by_len = || model.encoded_len().saturating_mul(PER_BYTE).saturating_add(BASE);
        let most = limits.get(Limit::Program).unwrap_or_else(by_len);
        Self { limits: limits.with(Limit::Program, most), most, taken: 0 }
    }

    /// Inlines functions while there is room for the nodes, and for what calls give to them.
    pub(super) fn inline(&self, model: &mut ModelProto, options: InlineOptions) -> Result<()> {
        let calls = self.limits.get(Limit::Calls);
        // Half of the program by default: what is inlined is there beside the model.
        let most = calls.unwrap_or(self.most / 2);
        let options = options.limits(self.limits.with(Limit::Calls, most));
        let most = (self.most / NODE).min(InlineOptions::MAX_NODES);
        match inline_functions(model, options.max_nodes(most)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                let reason = with_limit(error.reason(), calls.is_some());
                Err(onnx_container::Error::new(ErrorKind::TooLarge, reason).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        self.taken = self.taken.saturating_add(bytes);
        Ok(self.limits.allow(Limit::Program, self.taken)?)
    }

    /// Takes what a node and its results become.
    pub(super) fn node(&mut self, node: &NodeProto) -> Result<()> {
        let operands = (node.input.len() + node.output.len()) as u64;
        let results = node.output.iter().map(|name| RESULT + named(Some(name)));
        let attributes = node.attribute.iter().map(attribute).sum::<u64>();
        let first = if node.attribute.is_empty() { 0 } else { ATTRIBUTES };
        let own = NODE + text(node.name.as_ref()) + operands * OPERAND;
        self.take(own + results.sum::<u64>() + first + attributes)
    }

    /// Takes what a value becomes that is no result: an input, a constant, or one that is captured.
    pub(super) fn value(&mut self, name: &str) -> Result<()> {
        self.take(VALUE + 3 * name.len() as u64)
    }

    /// Takes what a graph becomes, without what is in it.
    pub(super) fn graph(&mut self) -> Result<()> {
        self.take(OBJECT)
    }
}

/// The reason of an inlining, with the limit that can be raised: that of calls only where it was
/// `given`.
fn with_limit(reason: &str, given: bool) -> String {
    let raise = |limit: Limit| format!("the limit `{limit}` can be raised");
    match reason.contains(&raise(Limit::Calls)) {
        true if given => reason.to_owned(),
        true => reason.replace(&raise(Limit::Calls), &raise(Limit::Program)),
        false => format!("{reason}; {}", raise(Limit::Program)),
    }
}

fn text(text: Option<&Str>) -> u64 {
    text.map_or(0, |text| text.as_bytes().len() as u64)
}

/// A name of a value is kept as such, to be looked up, and in the plan.
fn named(name: Option<&Str>) -> u64 {
    3 * text(name)
}

fn attribute(proto: &AttributeProto) -> u64 {
    let numbers = 8 * (proto.ints.len() + proto.floats.len()) as u64;
    let bytes = proto.s.iter().chain(&proto.strings).map(|bytes| bytes.len() as u64).sum::<u64>();
    let objects = proto.t.iter().len() + proto.tensors.len() + proto.graphs.len();
    let lists = proto.strings.len() as u64 * ELEMENT + objects as u64 * OBJECT;
    ATTRIBUTE + text(proto.name.as_ref()) + numbers + bytes + lists
}
