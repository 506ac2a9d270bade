//! The canonical form of a node that applies an operator, when its inputs and graphs have their
//! digests.
//!
//! The version of an operator is that of its last change, so that two versions in which it is the
//! same have one digest. Attributes that are left out have the operator's defaults. What a node
//! gives is part of its form: some operators compute something else when fewer outputs are asked
//! for.

use std::fmt;

use super::attributes;
use super::body::bytes;
use super::hash::{Digest, Form};
use super::scope::{Given, Value};
use super::weights::WeightDigests;
use super::window;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::opset::{self, Formals, Since};
use crate::proto::{NodeProto, Str};

/// The operator of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operator<'m> {
    /// That of ONNX is empty.
    pub(super) domain: &'m [u8],
    pub(super) op_type: &'m [u8],
    overload: &'m [u8],
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Unchanged since this version of its domain.
    Since(i64),
    /// Added to its domain later than the version that is imported.
    NotYet,
    /// Without a schema: the same in all versions, as for onnx's checker.
    Any,
    /// Of a version of its domain that is newer than the table of operators.
    Newer(i64),
    /// Of a domain that is not imported.
    NotImported,
}

impl<'m> Operator<'m> {
    /// The operator of `node`, where this version of its domain is imported.
    pub(super) fn new(node: &'m NodeProto, imported: Option<i64>) -> Self {
        let domain = domain(node);
        let op_type = bytes(node.op_type.as_ref());
        let version = match (opset::since_version(domain, op_type, imported.unwrap_or(0)), imported)
        {
            (Since::NoSchema, _) => Version::Any,
            (_, None) => Version::NotImported,
            (Since::Known(since), _) => Version::Since(since),
            (Since::NotYet, _) => Version::NotYet,
            (Since::NewerThanTable, Some(version)) => Version::Newer(version),
        };
        Self { domain, op_type, overload: bytes(node.overload.as_deref()), version }
    }

    /// Whether this is ONNX's operator of this name.
    pub(super) fn is(&self, op_type: &str) -> bool {
        self.domain.is_empty() && self.overload.is_empty() && self.op_type == op_type.as_bytes()
    }

    /// Its inputs and outputs, where they are known.
    fn arity(&self) -> Option<(Formals, Formals)> {
        let Version::Since(since) = self.version else { return None };
        if !self.overload.is_empty() {
            return None;
        }
        opset::arity_since(self.domain, self.op_type, since)
    }

    /// The inputs that count.
    pub(super) fn inputs<'v, T>(&self, values: &'v [Option<T>]) -> &'v [Option<T>] {
        counted(values, self.arity().map(|(inputs, _)| inputs))
    }

    /// Which of the outputs that count the node has.
    pub(super) fn outputs(&self, node: &NodeProto) -> Vec<bool> {
        let named = |name: &Str| (!name.is_empty()).then_some(());
        let outputs: Vec<_> = node.output.iter().map(named).collect();
        let counted = counted(&outputs, self.arity().map(|(_, outputs)| outputs));
        counted.iter().map(Option::is_some).collect()
    }

    /// Whether `node` has one output and nothing that is not known, as those have that only pass a
    /// value on.
    pub(super) fn passes_on_one(&self, node: &NodeProto) -> bool {
        self.outputs(node) == [true] && node.unknown.is_empty()
    }

    /// Refuses an operator that reads values which its inputs do not lead to.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for Gradient, whose attributes name values.
    pub(super) fn reads_its_inputs(&self) -> Result<()> {
        if (self.domain, self.op_type) != (b"ai.onnx.preview.training", b"Gradient") {
            return Ok(());
        }
        let reason = "it names the values that it differentiates in its attributes, and a semantic digest \
                      follows inputs only: so what depends on it has no digest";
        Err(Error::new(ErrorKind::Unsupported, reason))
    }

    /// Whether its outputs may be something else each time, for the same inputs. `inputs` tells
    /// which inputs the node has.
    pub(super) fn draws(&self, has_input: impl Fn(usize) -> bool) -> bool {
        let Version::Since(since) = self.version else { return true };
        match (self.domain, self.op_type) {
            (b"", b"Dropout") => since < 7 || (since >= 12 && has_input(2)),
            (b"", b"Bernoulli" | b"Multinomial") => true,
            (b"", op_type) => op_type.starts_with(b"Random"),
            _ => false,
        }
    }

    /// The names and digests of the attributes, with the operator's defaults, by name.
    pub(super) fn attributes(
        &self,
        given: &[Given<'m>],
        graphs: &[Digest],
        weights: &WeightDigests<'_>,
    ) -> Result<Vec<(&'m [u8], Digest)>> {
        let mut all = given_attributes(given, graphs, weights)?;
        if let Version::Since(since) = self.version {
            if self.domain.is_empty() && self.overload.is_empty() {
                let is_default =
                    |one: &Given<'_>| window::is_default(self.op_type, since, one, given);
                let mut written = given.iter();
                all.retain(|_| !written.next().is_some_and(is_default));
            }
            for (name, default) in opset::defaults(self.domain, self.op_type, since) {
                if given.binary_search_by_key(&name.as_bytes(), |given| given.name).is_err() {
                    all.push((name.as_bytes(), attributes::of_default(*default)));
                }
            }
            all.sort_by_key(|(name, _)| *name);
        }
        Ok(all)
    }

    fn write(&self, form: &mut Form) {
        form.bytes(self.domain);
        form.bytes(self.op_type);
        form.bytes(self.overload);
        match self.version {
            Version::Any => form.tag(0),
            Version::Since(since) => {
                form.tag(1);
                form.number(since);
            }
            Version::Newer(version) => {
                form.tag(2);
                form.number(version);
            }
            Version::NotYet => form.tag(3),
            Version::NotImported => form.tag(4),
        }
    }
}

impl fmt::Display for Operator<'_> {
    /// The name with its version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.op_type))?;
        if !self.overload.is_empty() {
            write!(f, ":{}", String::from_utf8_lossy(self.overload))?;
        }
        match self.version {
            Version::Any => Ok(()),
            Version::Since(version) | Version::Newer(version) => write!(f, " of version {version}"),
            Version::NotYet => f.write_str(" of a version that has no such operator"),
            Version::NotImported => f.write_str(" of no version"),
        }
    }
}

/// The domain of a node's operator; that of ONNX is empty.
pub(super) fn domain(node: &NodeProto) -> &[u8] {
    opset::normalized(bytes(node.domain.as_ref()))
}

/// The names and digests of attributes whose graphs, in their order, have the digests `graphs`.
pub(super) fn given_attributes<'m>(
    given: &[Given<'m>],
    graphs: &[Digest],
    weights: &WeightDigests<'_>,
) -> Result<Vec<(&'m [u8], Digest)>> {
    let mut rest = graphs;
    let each = given.iter().map(|given| {
        let count = attributes::graphs(given.value).count();
        let (own, after) = rest
            .split_at_checked(count)
            .ok_or_else(|| Error::internal("a graph of an attribute has no digest"))?;
        rest = after;
        let digest = attributes::digest(given.value, own, weights).map_err(|error| {
            let name = String::from_utf8_lossy(given.name);
            error.because(&format!("attribute `{name}`"))
        })?;
        Ok((given.name, digest))
    });
    each.collect()
}

/// Those of a node's inputs or outputs that count: without those at the end that are left out,
/// where each of them has a meaning of its own. In a list each one counts, and so does each where
/// nothing is known of the operator.
fn counted<T>(values: &[Option<T>], formals: Option<Formals>) -> &[Option<T>] {
    match formals {
        Some(formals) if values.len() <= formals.single() => trimmed(values),
        _ => values,
    }
}

/// The inputs without those at the end that are left out.
pub(super) fn trimmed<T>(values: &[Option<T>]) -> &[Option<T>] {
    let len = values.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    values.get(..len).unwrap_or_default()
}

/// The digest of a node.
pub(super) fn digest(
    operator: &Operator<'_>,
    node: &NodeProto,
    inputs: &[Value],
    attributes: &[(&[u8], Digest)],
) -> Digest {
    let mut form = Form::new("node");
    operator.write(&mut form);
    let (inputs, outputs) = (operator.inputs(inputs), operator.outputs(node));
    form.count(inputs.len());
    inputs.iter().for_each(|input| form.optional(input.as_ref()));
    form.count(outputs.len());
    outputs.iter().for_each(|given| form.tag(u8::from(*given)));
    form.count(attributes.len());
    for (name, digest) in attributes {
        form.bytes(name);
        form.digest(digest);
    }
    form.unknown(&node.unknown);
    form.end()
}

/// The digest of a node that draws: the one of this number among those that are otherwise the same,
/// in a graph of this level. A draw inside of a loop is made in each turn, one outside of it once.
pub(super) fn draw(node: &Digest, level: usize, number: usize) -> Digest {
    let mut form = Form::new("draw");
    form.digest(node);
    form.count(level);
    form.count(number);
    form.end()
}

/// The digest of an output of the node with the digest `node`.
pub(super) fn output(node: &Digest, index: usize) -> Digest {
    let mut form = Form::new("output");
    form.digest(node);
    form.count(index);
    form.end()
}
