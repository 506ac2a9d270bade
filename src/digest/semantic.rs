//! What a model computes, as one digest: [`Container::semantic_digest`].
//!
//! Two models with one digest compute the same for all inputs, however they are stored, named,
//! ordered and divided into functions. Nothing is executed. `hash` writes canonical forms, `types`,
//! `attributes`, `window`, `weights` and `operator` say what is in them, `body`, `scope` and
//! `store` know what a name stands for, `evaluate` goes through the graph, and `difference` finds
//! where two models part.
//!
//! The forms are written down in `docs/semantic-digest.md`. A change of one is another scheme, with
//! another tag.

mod attributes;
mod body;
mod difference;
mod draws;
mod evaluate;
mod hash;
mod operator;
mod scope;
mod store;
mod types;
mod weights;
mod window;

use std::fmt;

pub use self::difference::SemanticDifference;

use self::difference::Search;
use self::evaluate::{Evaluator, Outputs};
use self::hash::Digest;
use crate::container::Container;
use crate::digest::sha256::of_a_model;
use crate::error::Result;

/// A comparison does not hash this many bytes of weights twice.
const MANY_WEIGHTS: u64 = 64 << 20;

/// A digest of what a model computes: see [`Container::semantic_digest`].
///
/// It is displayed as `sha256:` and 64 hexadecimal digits, and parsed from them. Two are equal when
/// the models compute the same; the names of outputs may differ.
#[derive(Debug, Clone)]
pub struct SemanticDigest {
    model: Digest,
    outputs: Vec<OutputDigest>,
}

/// A digest of what one output of a model is computed from. Two are equal when their names and
/// digests are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OutputDigest {
    name: String,
    digest: Digest,
}

impl SemanticDigest {
    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.model.as_bytes()
    }

    /// The digests of the outputs, in their order; none where this was parsed.
    ///
    /// That of an output covers the inputs that it depends on. The digest of the model covers all
    /// inputs.
    pub fn outputs(&self) -> &[OutputDigest] {
        &self.outputs
    }
}

of_a_model!(SemanticDigest, outputs);

impl OutputDigest {
    /// The name of the output, which is no part of the digest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.digest.as_bytes()
    }
}

impl fmt::Display for OutputDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.digest)
    }
}

impl Container {
    /// A digest of what the model computes. Containers with the same one compute the same for all
    /// inputs.
    ///
    /// It does not change with names, the order of nodes, documentation and metadata, nodes that no
    /// output needs, attributes written as their defaults, the place and form of weights, and
    /// whether local functions are inlined. It changes with operators, attributes, edges, weights,
    /// and with number, order and types of the inputs. `docs/semantic-digest.md` says what is
    /// hashed, and which models of equal meaning have different digests.
    ///
    /// Time is that of reading the weights once, on all cores, and the graph once.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto};
    ///
    /// let model = |value: &str, op: &str| {
    ///     let mut graph = GraphProto::new("g");
    ///     graph.input.push(ValueInfoProto::tensor("x", 1, [2]));
    ///     graph.output.push(ValueInfoProto::tensor("y", 1, [2]));
    ///     graph.node.push(NodeProto::new(op, ["x"], [value]));
    ///     graph.node.push(NodeProto::new("Neg", [value], ["y"]));
    ///     let mut model = ModelProto::new(graph);
    ///     model.opset_import.push(OperatorSetIdProto::new("", 21));
    ///     Container::new(model)
    /// };
    /// let digest = model("a", "Abs").semantic_digest()?;
    /// assert!(digest.to_string().starts_with("sha256:"));
    /// assert_eq!(model("renamed", "Abs").semantic_digest()?, digest);
    /// assert_ne!(model("a", "Relu").semantic_digest()?, digest);
    /// # Ok::<(), onnx_container::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidModel`](crate::ErrorKind::InvalidModel) when an output has no meaning: a
    /// value that nothing defines, or that is defined twice or computed from itself; functions that
    /// call themselves; attributes with several values; two versions of an operator set. The errors
    /// of weights that an output depends on, with the tensor.
    /// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge) when calls multiply, each evaluated by
    /// itself, to more than [`Limit::Calls`](crate::load::Limit::Calls), or tensors overlap in part
    /// so often that each byte of the weights would be read many times.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for fields of calls and types of
    /// attributes that this crate does not know, and for `Gradient`, which names values in its
    /// attributes.
    pub fn semantic_digest(&self) -> Result<SemanticDigest> {
        let (_, found) = self.evaluated()?;
        let graph = self.model.graph.as_deref();
        let names = graph.into_iter().flat_map(|graph| &graph.output).map(|output| {
            output.name.as_ref().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        });
        let outputs = names.zip(found.each).map(|(name, digest)| OutputDigest { name, digest });
        Ok(SemanticDigest { model: found.model, outputs: outputs.collect() })
    }
    /// Where this container and `other` part, if they do not compute the same: the first output
    /// whose digests differ, and the first node, weight or input on the way to it that is another.
    /// `None` when the digests of the containers are the same.
    ///
    /// ```
    /// use onnx_container::Container;
    /// use onnx_container::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
    ///
    /// let model = |op: &str| {
    ///     let mut graph = GraphProto::new("g");
    ///     graph.input.push(ValueInfoProto::tensor("x", 1, [2]));
    ///     graph.output.push(ValueInfoProto::tensor("y", 1, [2]));
    ///     graph.node.push(NodeProto::new(op, ["x"], ["t"]));
    ///     graph.node.push(NodeProto::new("Neg", ["t"], ["y"]));
    ///     Container::new(ModelProto::new(graph))
    /// };
    /// let difference = model("Abs").semantic_difference(&model("Relu"))?.ok_or("they are the same")?;
    /// assert_eq!(difference.places(), ["node `t` (Abs)", "node `t` (Relu)"]);
    /// assert_eq!(difference.reason(), "the operator is another");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`semantic_digest`](Self::semantic_digest), for each container.
    pub fn semantic_difference(&self, other: &Self) -> Result<Option<SemanticDifference>> {
        let (a, in_a) = self.evaluated()?;
        // Two evaluated graphs take twice the memory, and models are mostly the same: the first one
        // is made again where they are not, unless that would read many weights again.
        let many_weights = a.store.weights.jobs().bytes() > MANY_WEIGHTS;
        let held = many_weights.then_some(a);
        let (b, in_b) = other.evaluated()?;
        if in_a.model == in_b.model {
            return Ok(None);
        }
        let a = match held {
            Some(a) => a,
            None => self.evaluated()?.0,
        };
        Search([a, b]).run([&in_a.each, &in_b.each]).map(Some)
    }

    fn evaluated(&self) -> Result<(Evaluator<'_>, Outputs)> {
        self.check_nesting()?;
        let mut evaluator = Evaluator::new(self)?;
        let weights = evaluator.store.weights.jobs();
        let outputs = weights.alongside(|| evaluator.run())?;
        Ok((evaluator, outputs))
    }
}
