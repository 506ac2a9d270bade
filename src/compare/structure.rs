//! What the messages of two models say, without the elements of tensors.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::others::{self, OtherChange};
use crate::container::Container;
use crate::digest::{Bare, Digest, digest_of_function, digest_of_node};
use crate::error::Result;
use crate::proto::{FunctionProto, ModelProto, NodeProto, Str};
use crate::summary::{OperatorCount, Summary, ValueSummary};
use crate::util::cancel;

/// Something that a model says of itself, and what the other one says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Property {
    /// What it is: `ir_version`, `opset`, `metadata`, `input`, `output`, `function` and others.
    pub what: &'static str,
    /// The domain of the operator set, the key of the metadata, the name of the value or function.
    pub name: Option<String>,
    /// What A says; `None` where it says nothing.
    pub a: Option<String>,
    /// What B says.
    pub b: Option<String>,
}

/// An operator of which the number of nodes, or some nodes, differ.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OperatorChange {
    /// Its name, with `domain::` before it where that is not ONNX's own.
    pub operator: String,
    /// How many nodes A has, in all graphs.
    pub a: usize,
    /// How many nodes B has.
    pub b: usize,
    /// How many nodes of A, beside those that B has fewer, have other inputs, outputs or attributes
    /// in B. A node with a graph counts where something in the graph differs.
    pub changed: usize,
}

/// What differs in the messages.
#[derive(Default)]
pub(super) struct Changes {
    /// Nothing does.
    pub(super) is_same: bool,
    pub(super) properties: Vec<Property>,
    pub(super) operators: Vec<OperatorChange>,
    pub(super) others: Vec<OtherChange>,
}

/// Finds what differs in the messages.
pub(super) fn compare(a: &Container, b: &Container) -> Result<Changes> {
    let (bare_a, bare_b) = (Bare::of(a.model()), Bare::of(b.model()));
    if bare_a.digest(bare_a.model())? == bare_b.digest(bare_b.model())? {
        return Ok(Changes { is_same: true, ..Changes::default() });
    }
    let (summary_a, summary_b) = (a.summary()?, b.summary()?);
    let mut properties = Properties::default();
    properties.of_models(&summary_a, &summary_b);
    let Functions { named: [of_a, of_b], reordered } = Functions::of([&bare_a, &bare_b])?;
    properties.each("function", of_a, of_b);
    let operators = operators([&summary_a, &summary_b], [&bare_a, &bare_b])?;
    let others =
        others::find(&bare_a, &bare_b, operators.is_empty().then_some(reordered.as_slice()))?;
    Ok(Changes { is_same: false, properties: properties.0, operators, others })
}

#[derive(Default)]
struct Properties(Vec<Property>);

impl Properties {
    fn add(&mut self, what: &'static str, a: Option<String>, b: Option<String>) {
        if a != b {
            self.0.push(Property { what, name: None, a, b });
        }
    }

    /// Adds those of `a` and `b` that differ, each by its name.
    fn each(&mut self, what: &'static str, a: Named, b: Named) {
        let mut values: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
        a.into_iter().for_each(|(name, value)| values.entry(name).or_default()[0] = Some(value));
        b.into_iter().for_each(|(name, value)| values.entry(name).or_default()[1] = Some(value));
        let differ = values.into_iter().filter(|(_, [a, b])| a != b);
        self.0.extend(differ.map(|(name, [a, b])| Property { what, name: Some(name), a, b }));
    }

    fn of_models(&mut self, a: &Summary, b: &Summary) {
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        self.add("ir_version", number(a.ir_version), number(b.ir_version));
        self.each("opset", opsets(a), opsets(b));
        self.add("producer", a.producer.clone(), b.producer.clone());
        self.add("producer_version", a.producer_version.clone(), b.producer_version.clone());
        self.add("domain", a.domain.clone(), b.domain.clone());
        self.add("model_version", number(a.model_version), number(b.model_version));
        self.add("doc_string", a.doc_string.clone(), b.doc_string.clone());
        self.add("graph", a.graph.clone(), b.graph.clone());
        let entries = |of: &Summary| -> Named {
            of.metadata.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect()
        };
        self.each("metadata", entries(a), entries(b));
        self.each("input", values(&a.inputs), values(&b.inputs));
        self.each("output", values(&a.outputs), values(&b.outputs));
    }
}

/// Values by their names.
type Named = Vec<(String, String)>;

fn opsets(of: &Summary) -> Named {
    let version = |version: Option<i64>| version.map_or("no version".to_owned(), |n| n.to_string());
    of.opsets.iter().map(|opset| (opset.domain.clone(), version(opset.version))).collect()
}

fn values(values: &[ValueSummary]) -> Named {
    values.iter().map(|value| (value.name.clone(), value.declaration())).collect()
}

/// The functions of both models.
struct Functions<'m> {
    /// By their names, each with how many nodes it has and a part of its digest. Those that differ
    /// in the order of attributes alone have one digest.
    named: [Named; 2],
    /// Those that do, of A and of B.
    reordered: Vec<(&'m FunctionProto, &'m FunctionProto)>,
}

impl<'m> Functions<'m> {
    /// Every digest is made once: that of another order of attributes takes longer, and is made
    /// only where the other one differs.
    fn of([a, b]: [&'m Bare<'_>; 2]) -> Result<Self> {
        let (of_a, of_b) = (digested(a)?, digested(b)?);
        let known: HashMap<_, _> = of_a.iter().map(|one| (one.name.as_str(), one)).collect();
        let (mut in_b, mut reordered) = (Vec::new(), Vec::new());
        for one in &of_b {
            let mut digest = &one.digest;
            if let Some(other) = known.get(one.name.as_str())
                && other.digest != one.digest
                && digest_of_function(other.function)? == digest_of_function(one.function)?
            {
                digest = &other.digest;
                reordered.push((other.function, one.function));
            }
            in_b.push((one.name.clone(), described(one.function, digest)));
        }
        let in_a = of_a.iter().map(|one| (one.name.clone(), described(one.function, &one.digest)));
        Ok(Self { named: [in_a.collect(), in_b], reordered })
    }
}

/// A function with its name, and the digest that depends on the order of attributes.
struct Digested<'m> {
    name: String,
    function: &'m FunctionProto,
    digest: Digest,
}

/// The functions of a model with their names and digests.
fn digested<'m>(bare: &'m Bare<'_>) -> Result<Vec<Digested<'m>>> {
    let function = |function: &'m FunctionProto| {
        Ok(Digested { name: name_of(function), function, digest: bare.digest(function)? })
    };
    bare.model().functions.iter().map(function).collect()
}

/// `domain::name`, with the overload where there is one.
fn name_of(function: &FunctionProto) -> String {
    let (domain, name) = (text(function.domain.as_ref()), text(function.name.as_ref()));
    match text(function.overload.as_deref()) {
        overload if overload.is_empty() => format!("{domain}::{name}"),
        overload => format!("{domain}::{name}:{overload}"),
    }
}

fn described(function: &FunctionProto, digest: &Digest) -> String {
    let digest = digest.to_string();
    let digest = digest.get(..DIGITS).unwrap_or_default();
    match function.node.len() {
        1 => format!("1 node, digest {digest}"),
        nodes => format!("{nodes} nodes, digest {digest}"),
    }
}

fn text(text: Option<&Str>) -> Cow<'_, str> {
    text.map(Str::to_string_lossy).unwrap_or_default()
}

/// The digits of a digest that tell two functions apart for people.
const DIGITS: usize = 12;

/// The operators of which the number or the nodes differ.
fn operators(summaries: [&Summary; 2], bares: [&Bare<'_>; 2]) -> Result<Vec<OperatorChange>> {
    let mut all: BTreeMap<String, OperatorChange> = BTreeMap::new();
    for (side, summary) in summaries.into_iter().enumerate() {
        for OperatorCount { operator, nodes, .. } in &summary.graphs.operators {
            let of = change_of(&mut all, operator);
            *(if side == 0 { &mut of.a } else { &mut of.b }) = *nodes;
        }
    }
    for (operator, [only_a, only_b]) in unmatched(bares)? {
        change_of(&mut all, &operator).changed = only_a.min(only_b);
    }
    let mut all: Vec<_> = all.into_values().filter(|of| of.a != of.b || of.changed > 0).collect();
    all.sort_by_key(|of| std::cmp::Reverse(of.a.abs_diff(of.b).saturating_add(of.changed)));
    Ok(all)
}

fn change_of<'m>(
    all: &'m mut BTreeMap<String, OperatorChange>,
    operator: &str,
) -> &'m mut OperatorChange {
    let new = || OperatorChange { operator: operator.to_owned(), a: 0, b: 0, changed: 0 };
    all.entry(operator.to_owned()).or_insert_with(new)
}

/// How many nodes of each operator are in one of the models alone, in the main graph and in those
/// of functions.
fn unmatched(bares: [&Bare<'_>; 2]) -> Result<BTreeMap<String, [usize; 2]>> {
    let mut nodes: HashMap<Digest, (&NodeProto, [usize; 2])> = HashMap::new();
    for (side, bare) in bares.into_iter().enumerate() {
        for node in nodes_of(bare.model()) {
            cancel::check()?;
            let (_, counts) = nodes.entry(bare.digest(node)?).or_insert((node, [0, 0]));
            if let Some(count) = counts.get_mut(side) {
                *count += 1;
            }
        }
    }
    // Attributes have no order. This digest takes longer, and few nodes are left.
    let mut left: HashMap<Digest, (&NodeProto, [usize; 2])> = HashMap::new();
    for (node, counts) in nodes.into_values().filter(|(_, [a, b])| a != b) {
        cancel::check()?;
        let (_, [all_a, all_b]) = left.entry(digest_of_node(node)?).or_insert((node, [0, 0]));
        let [only_a, only_b] = alone(counts);
        *all_a += only_a;
        *all_b += only_b;
    }
    let mut by_operator: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (node, counts) in left.into_values().filter(|(_, [a, b])| a != b) {
        let [all_a, all_b] = by_operator.entry(name(node)).or_default();
        let [only_a, only_b] = alone(counts);
        *all_a += only_a;
        *all_b += only_b;
    }
    Ok(by_operator)
}

/// How many of `a` and `b` equal nodes have no counterpart.
fn alone([a, b]: [usize; 2]) -> [usize; 2] {
    [a.saturating_sub(b), b.saturating_sub(a)]
}

fn nodes_of(model: &ModelProto) -> impl Iterator<Item = &NodeProto> {
    let functions = model.functions.iter().flat_map(|function| &function.node);
    model.graph.iter().flat_map(|graph| &graph.node).chain(functions)
}

fn name(node: &NodeProto) -> String {
    crate::summary::operator(node)
}
