//! Traces: what every step of a run read and wrote, as lines of JSON that can be kept and compared.
//!
//! A trace has a line for the run ([`Head`]), one for each step ([`Step`]) and one for the end
//! ([`End`]). Every value is stated with its SHA-256, and every line with a digest that is chained
//! to those of the lines before it. Nothing in a trace depends on time, on names of files or on the
//! processor. `docs/machine.md` states the format; `write` makes a trace of a run, `read` reads one
//! that a stranger may have made, and `diff` finds where two runs first differ.

mod diff;
mod digest;
mod hasher;
mod known;
mod read;
mod weights;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::diff::{Part, TraceDiff};
pub use self::digest::hex;
pub use self::write::{Dumped, TraceOptions, TraceWriter};
use crate::error::{Error, ErrorKind, Result};

/// The version of the format.
pub const VERSION: u32 = 1;

/// A value of a run: its name, its type and shape, and the digest of its elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TracedValue {
    /// Its name.
    #[serde(rename = "n")]
    pub name: String,
    /// The address of its first byte; `None` outside of M.
    #[serde(rename = "off")]
    pub offset: Option<u64>,
    /// The element type of a tensor, as `FLOAT`; another type as `seq(tensor(FLOAT))`.
    #[serde(rename = "dt")]
    pub dtype: String,
    /// The dimensions of a tensor.
    #[serde(rename = "sh")]
    pub shape: Option<Vec<u64>>,
    /// The SHA-256 of its elements, in lower-case hexadecimal digits.
    pub sha: String,
}

impl TracedValue {
    /// Whether `other` has the same type, shape and elements, whatever its name and place.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// What two values that are the same have in common.
    fn identity(&self) -> (&str, Option<&[u64]>, &str) {
        (&self.dtype, self.shape.as_deref(), &self.sha)
    }
}

/// A constant of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TracedWeight {
    /// Its name, behind the path of its graph: `3/then_branch/w`.
    pub name: String,
    /// The address of its first byte; `None` outside of M.
    pub off: Option<u64>,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its elements.
    pub sha: String,
}

/// The first line: what is run, and on what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Head {
    /// The version of the format.
    pub v: u32,
    /// The numeric profile.
    pub profile: String,
    /// The SHA-256 of the model file, where there is one.
    pub model: Option<String>,
    /// The semantic digest: of what the model computes. `None` when the model has none.
    pub semantic: Option<String>,
    /// The operator set versions that the model imports, by domain.
    pub opset: BTreeMap<String, i64>,
    /// The size of each symbolic dimension.
    pub dims: BTreeMap<String, u64>,
    /// The length of the planned arena in bytes; `None` when shapes depend on data.
    #[serde(rename = "N")]
    pub n: Option<u64>,
    /// What no plan can be shorter than, in bytes.
    pub lb: Option<u64>,
    /// The constants.
    pub weights: Vec<TracedWeight>,
    /// The inputs of the graph.
    #[serde(rename = "in")]
    pub inputs: Vec<TracedValue>,
    /// The chained digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// One step. `stats`, which is written on request, is not part of the digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// Its number, from 0. Steps of inner graphs count, and come before that of their node.
    pub i: u64,
    /// Where the node is: `17/Loop[3]/4`.
    pub path: String,
    /// The name of the node.
    pub node: String,
    /// Domain, operator and the version of the operator set that the node means:
    /// `ai.onnx.MatMul-13`.
    pub op: String,
    /// What it read.
    #[serde(rename = "in")]
    pub inputs: Vec<TracedValue>,
    /// What it wrote.
    #[serde(rename = "out")]
    pub outputs: Vec<TracedValue>,
    /// For each output, its range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Vec<Stats>>,
    /// The chained digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// The range of the elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// The least one that is a finite number.
    pub min: Option<f64>,
    /// The greatest one that is a finite number.
    pub max: Option<f64>,
    /// How many are not a number.
    pub nan: u64,
    /// How many are infinite.
    pub inf: u64,
}

/// The last line: what the run gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct End {
    /// How many steps there are.
    pub steps: u64,
    /// The outputs of the graph, in its order.
    #[serde(rename = "out")]
    pub outputs: Vec<TracedValue>,
    /// The largest address of the arena that was in use, plus one.
    pub high_water: u64,
    /// The chained digest: that of the whole trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// A trace that was read, whose chain is intact.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The first line.
    pub head: Head,
    /// The steps.
    pub steps: Vec<Step>,
    /// The last line.
    pub end: End,
}

/// A line of a trace. `t` comes first in it, and the other keys in the order of the fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "lowercase")]
enum Line {
    Head(Head),
    Step(Step),
    End(End),
}

impl Line {
    /// Takes out of the line its chained digest, and the statistics, which are not part of the
    /// digest.
    fn take_chain(&mut self) -> (Option<String>, Option<Vec<Stats>>) {
        match self {
            Self::Head(head) => (head.chain.take(), None),
            Self::Step(step) => (step.chain.take(), step.stats.take()),
            Self::End(end) => (end.chain.take(), None),
        }
    }

    /// Puts back what [`take_chain`](Self::take_chain) took.
    fn put_chain(&mut self, chain: String, stats: Option<Vec<Stats>>) {
        match self {
            Self::Head(head) => head.chain = Some(chain),
            Self::Step(step) => (step.chain, step.stats) = (Some(chain), stats),
            Self::End(end) => end.chain = Some(chain),
        }
    }
}

/// The chain of digests, up to one line.
#[derive(Debug, Clone, Default)]
struct Chain([u8; 32]);

impl Chain {
    /// The digest of a line, without what [`Line::take_chain`] takes out of it, chained to the
    /// lines before it.
    fn next(&mut self, canonical: &[u8]) -> String {
        self.0 = Sha256::new().chain_update(self.0).chain_update(canonical).finalize().into();
        hex(&self.0)
    }
}

fn json(part: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(part).map_err(|error| Error::internal(format!("a line of a trace: {error}")))
}

fn failed(reason: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Trace, reason.to_string())
}
