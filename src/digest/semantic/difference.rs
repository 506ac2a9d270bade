//! [`SemanticDifference`]: the first place where two models part.
//!
//! From the first output whose digests differ, the search goes back through the first input, or
//! graph, that differs, until there is a node whose inputs are the same in both models and which is
//! another itself, or a weight or input that is another. Digests guide the search, so it looks at
//! one path and not at the whole models.

use std::fmt;

use super::attributes;
use super::body::{Constant, bytes};
use super::evaluate::{Evaluator, MAIN};
use super::hash::Digest;
use super::operator::Operator;
use super::scope::{Around, Given, ScopeId, Value};
use super::store::Origin;
use crate::dtype::DataType;
use crate::error::{Error, Result};
use crate::proto::NodeProto;

/// Where two models that do not compute the same part first: see
/// [`Container::semantic_difference`](crate::Container::semantic_difference).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SemanticDifference {
    output: Option<usize>,
    names: [Option<String>; 2],
    places: [String; 2],
    reason: String,
    is_of_elements: bool,
}

impl SemanticDifference {
    /// The index of the first output whose digests differ; `None` when all outputs are the same,
    /// and the models differ in an input that no output depends on.
    pub fn output(&self) -> Option<usize> {
        self.output
    }

    /// The name of that output in each model, where the model has it.
    pub fn output_names(&self) -> [Option<&str>; 2] {
        self.names.each_ref().map(Option::as_deref)
    }

    /// What differs, in each model: a node, an initializer, an input.
    pub fn places(&self) -> [&str; 2] {
        self.places.each_ref().map(String::as_str)
    }

    /// How they differ: one clause.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether they differ in the elements of two weights of one type and shape.
    pub fn is_of_elements(&self) -> bool {
        self.is_of_elements
    }
}

impl fmt::Display for SemanticDifference {
    /// One line: the output, the places, the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(output) = self.output {
            let [a, b] = self.names.each_ref().map(|name| name.as_deref().unwrap_or_default());
            write!(f, "output {output} (`{a}`")?;
            if a != b {
                write!(f, ", `{b}`")?;
            }
            f.write_str("): ")?;
        }
        let [a, b] = &self.places;
        match (a == b, a.is_empty()) {
            (true, true) => {}
            (true, false) => write!(f, "{a}: ")?,
            (false, _) => write!(f, "{a} and {b}: ")?,
        }
        f.write_str(&self.reason)
    }
}

/// What differs in each model, and how.
struct Parted {
    places: [String; 2],
    reason: String,
    is_of_elements: bool,
}

impl Parted {
    fn new(places: [String; 2], reason: String) -> Self {
        Self { places, reason, is_of_elements: false }
    }

    /// Models that differ as a whole.
    fn nowhere(reason: String) -> Self {
        Self::new(Default::default(), reason)
    }
}

/// A value of each model: its scope and name.
type Names<'m> = [(ScopeId, &'m [u8]); 2];

/// A node, and which of its outputs is meant.
#[derive(Clone, Copy)]
struct Node<'m> {
    scope: ScopeId,
    node: usize,
    index: usize,
    proto: &'m NodeProto,
}

/// Two models whose outputs are computed.
pub(super) struct Search<'m>(pub(super) [Evaluator<'m>; 2]);

impl<'m> Search<'m> {
    /// Where the models part; `digests` are those of their outputs.
    pub(super) fn run(&mut self, digests: [&[Digest]; 2]) -> Result<SemanticDifference> {
        let [a, b] = digests;
        let first = a.iter().zip(b).position(|(a, b)| a != b);
        let output = first.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())));
        let outputs = self.bodies()?.map(|body| body.outputs.clone());
        let names = outputs.each_ref().map(|outputs| outputs.get(output?).copied());
        let parted = match (first, names) {
            (Some(_), [Some(a), Some(b)]) => self.value([(MAIN, a), (MAIN, b)])?,
            (None, _) if output.is_some() => {
                let reason = format!("{} outputs became {}", a.len(), b.len());
                Parted::nowhere(reason)
            }
            _ => self.inputs()?,
        };
        let names = names.map(|name| name.map(text));
        let Parted { places, reason, is_of_elements } = parted;
        Ok(SemanticDifference { output, names, places, reason, is_of_elements })
    }

    fn bodies(&self) -> Result<[std::rc::Rc<super::body::Body<'m>>; 2]> {
        let [a, b] = &self.0;
        Ok([a.store.scope(MAIN)?.body.clone(), b.store.scope(MAIN)?.body.clone()])
    }

    /// The first input that differs, where no output does.
    fn inputs(&self) -> Result<Parted> {
        let [a, b] = self.0.each_ref().map(|model| &model.store.inputs);
        if a.len() != b.len() {
            let reason = format!("{} inputs became {}", a.len(), b.len());
            return Ok(Parted::nowhere(reason));
        }
        let names = self.bodies()?;
        let Some(first) = a.iter().zip(b).position(|(a, b)| a != b) else {
            let reason = "a field that is not known differs".to_owned();
            return Ok(Parted::nowhere(reason));
        };
        let places = names.map(|body| input(first, &body.inputs));
        Ok(Parted::new(places, INPUT.to_owned()))
    }

    /// Where the values of these names, which differ, part.
    fn value(&mut self, names: Names<'m>) -> Result<Parted> {
        let mut names = names;
        loop {
            let [a, b] = self.origins(names)?;
            let weights = self.weights([&a, &b])?;
            let parted = match (a, b) {
                (Ok(a), Ok(b)) if weights.is_none() => self.nodes([a, b])?,
                (a, b) => Err(self.leaves([&a, &b], weights)?),
            };
            match parted {
                Ok(next) => names = next,
                Err(parted) => return Ok(parted),
            }
        }
    }

    /// The node that each value is from, or what else it is.
    fn origins(&self, names: Names<'m>) -> Result<[Result<Node<'m>, Origin<'m>>; 2]> {
        let one = |model: &Evaluator<'m>, (scope, name)| {
            Ok::<_, Error>(match model.store.origin(scope, name)? {
                Origin::Node { scope, node, index } => {
                    Ok(Node { scope, node, index, proto: model.store.node(scope, node)? })
                }
                other => Err(other),
            })
        };
        let ([a, b], [for_a, for_b]) = (&self.0, names);
        Ok([one(a, for_a)?, one(b, for_b)?])
    }

    /// The weights that both values are.
    fn weights(
        &self,
        leaves: [&Result<Node<'m>, Origin<'m>>; 2],
    ) -> Result<Option<[Constant<'m>; 2]>> {
        let ([a, b], [of_a, of_b]) = (&self.0, leaves);
        Ok(weight(a, of_a)?.zip(weight(b, of_b)?).map(<[_; 2]>::from))
    }

    /// What differs when both values are `weights`, or at least one of them is from no node.
    fn leaves(
        &self,
        leaves: [&Result<Node<'m>, Origin<'m>>; 2],
        weights: Option<[Constant<'m>; 2]>,
    ) -> Result<Parted> {
        let (reason, is_of_elements) = match (leaves, weights) {
            (_, Some([a, b])) => constants(a, b),
            ([Err(Origin::Input(a)), Err(Origin::Input(b))], _) if a == b => (INPUT, false),
            _ => ("these are different things", false),
        };
        let bodies = self.bodies()?;
        let [a, b] = leaves;
        let places = [(a, 0), (b, 1)].map(|(leaf, model)| match leaf {
            Ok(node) => self.describe(model, *node),
            Err(Origin::Input(i)) => input(*i, bodies.get(model).map_or(&[], |body| &body.inputs)),
            Err(Origin::Bound(i)) => format!("input {i} of a graph in an attribute"),
            Err(Origin::Constant(constant)) => shown(*constant),
            Err(Origin::Absent | Origin::Node { .. }) => "a value that is left out".to_owned(),
        });
        Ok(Parted { places, reason: reason.to_owned(), is_of_elements })
    }

    fn describe(&self, model: usize, node: Node<'_>) -> String {
        let model = self.0.get(model);
        model.map(|model| model.store.describe(node.scope, node.node)).unwrap_or_default()
    }

    /// Where two nodes that differ part: the values to look at next, or the nodes themselves.
    fn nodes(&mut self, nodes: [Node<'m>; 2]) -> Result<Result<Names<'m>, Parted>> {
        let [a, b] = nodes;
        let parted = |search: &Self, reason: String| {
            let places = [search.describe(0, a), search.describe(1, b)];
            Ok(Err(Parted::new(places, reason)))
        };
        let [x, y] = &self.0;
        let operators = [x.operator(a.scope, a.proto)?, y.operator(b.scope, b.proto)?];
        let [of_a, of_b] = operators.map(|operator| (operator.domain, operator.op_type));
        if of_a != of_b {
            return parted(self, "the operator is another".to_owned());
        }
        let inputs = self.node_inputs(nodes)?;
        let ([x, y], [of_a, of_b]) = (&operators, &inputs);
        let (of_a, of_b) = (x.inputs(of_a), y.inputs(of_b));
        if let Some(i) = of_a.iter().zip(of_b).position(|(a, b)| a != b) {
            if let [Some(Some(_)), Some(Some(_))] = [of_a.get(i), of_b.get(i)] {
                return Ok(Ok([a, b].map(|node| (node.scope, bytes(node.proto.input.get(i))))));
            }
            return parted(self, format!("input {i} is left out in one of them"));
        }
        if of_a.len() != of_b.len() {
            return parted(self, format!("{} inputs became {}", of_a.len(), of_b.len()));
        }
        let [of_a, of_b] = operators;
        if of_a != of_b {
            let reason = format!("the operator is of another version or overload: {of_a}, {of_b}");
            return parted(self, reason);
        }
        if of_a.outputs(a.proto) != of_b.outputs(b.proto) {
            return parted(self, "they have other outputs".to_owned());
        }
        if let Some(next) = self.attributes(nodes, operators)? {
            return match next {
                Ok(names) => Ok(Ok(names)),
                Err(reason) => parted(self, reason),
            };
        }
        if a.index != b.index {
            return parted(self, format!("output {} became {}", a.index, b.index));
        }
        parted(self, "another draw, or a field that is not known".to_owned())
    }

    fn node_inputs(&mut self, nodes: [Node<'m>; 2]) -> Result<[Vec<Value>; 2]> {
        let [a, b] = &mut self.0;
        let [of_a, of_b] = nodes;
        let all = |model: &mut Evaluator<'m>, node: Node<'m>| {
            let names = node.proto.input.iter();
            names.map(|name| model.store.value(node.scope, name.as_bytes())).collect::<Result<_>>()
        };
        Ok([all(a, of_a)?, all(b, of_b)?])
    }

    /// The first attribute that differs: the values in its graphs to look at next, or the reason.
    fn attributes(
        &mut self,
        nodes: [Node<'m>; 2],
        operators: [Operator<'m>; 2],
    ) -> Result<Option<Result<Names<'m>, String>>> {
        let [a, b] = nodes;
        let [x, y] = operators;
        let [model_a, model_b] = &self.0;
        let given = [attributes_of(model_a, a)?, attributes_of(model_b, b)?];
        let [given_a, given_b] = &given;
        let all = [digests_of(model_a, a, x, given_a)?, digests_of(model_b, b, y, given_b)?];
        let [of_a, of_b] = &all;
        let mut pairs = of_a.iter().zip(of_b);
        let Some((first, second)) = pairs.find(|(a, b)| a != b) else {
            let longer = if of_a.len() > of_b.len() { of_a } else { of_b };
            let more = longer.get(of_a.len().min(of_b.len()));
            return Ok(more.map(|(name, _)| Err(only_in_one(name))));
        };
        if first.0 != second.0 {
            return Ok(Some(Err(only_in_one(first.0.min(second.0)))));
        }
        let name = first.0;
        if let [Some(i), Some(j)] = given.each_ref().map(|given| first_graph(given, name))
            && let Some(names) = self.graphs([(a, i), (b, j)])?
        {
            return Ok(Some(Ok(names)));
        }
        Ok(Some(Err(format!("attribute `{}` differs", text(name)))))
    }

    /// The first output that differs of the first graph that differs, from the graphs of these
    /// indices on.
    fn graphs(&mut self, from: [(Node<'m>, usize); 2]) -> Result<Option<Names<'m>>> {
        let [(a, i), (b, j)] = from;
        let [model_a, model_b] = &mut self.0;
        let graphs = |model: &Evaluator<'m>, node: Node<'m>, first: usize| {
            let all = model.store.graphs.get(&(node.scope, node.node));
            all.and_then(|all| all.get(first..)).unwrap_or_default().to_vec()
        };
        let (of_a, of_b) = (graphs(model_a, a, i), graphs(model_b, b, j));
        let mut pairs = of_a.into_iter().zip(of_b);
        let Some(((a, _), (b, _))) = pairs.find(|((_, a), (_, b))| a != b) else { return Ok(None) };
        let outputs = [model_a.store.scope(a)?.body.clone(), model_b.store.scope(b)?.body.clone()];
        let [of_a, of_b] = outputs.each_ref().map(|body| &body.outputs);
        for (x, y) in of_a.iter().zip(of_b) {
            if model_a.store.value(a, x)? != model_b.store.value(b, y)? {
                return Ok(Some([(a, x), (b, y)]));
            }
        }
        Ok(None)
    }
}

const INPUT: &str = "the input has another type, shape or default";

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn input(index: usize, names: &[&[u8]]) -> String {
    let name = names.get(index).copied().unwrap_or_default();
    format!("input {index} (`{}`)", text(name))
}

fn only_in_one(name: &[u8]) -> String {
    format!("only one of them has the attribute `{}`", text(name))
}

fn attributes_of<'m>(model: &Evaluator<'m>, node: Node<'m>) -> Result<Vec<Given<'m>>> {
    model
        .store
        .scope(node.scope)?
        .frame
        .attributes(node.proto, Around { scope: node.scope, node: node.node })
}

fn digests_of<'m>(
    model: &Evaluator<'m>,
    node: Node<'m>,
    operator: Operator<'m>,
    given: &[Given<'m>],
) -> Result<Vec<(&'m [u8], Digest)>> {
    let graphs = model.store.graphs.get(&(node.scope, node.node));
    let graphs: Vec<_> = graphs.into_iter().flatten().map(|(_, digest)| *digest).collect();
    operator.attributes(given, &graphs, &model.store.weights)
}

/// The index of the first graph in the attribute of this name, among all graphs of a node.
fn first_graph(given: &[Given<'_>], name: &[u8]) -> Option<usize> {
    let place = given.iter().position(|given| given.name == name && given.has_graphs())?;
    let before = given.iter().take(place);
    Some(before.map(|given| attributes::graphs(given.value).count()).sum())
}

/// The weight that a value is: an initializer, or the tensor of a Constant.
fn weight<'m>(
    model: &Evaluator<'m>,
    leaf: &Result<Node<'m>, Origin<'m>>,
) -> Result<Option<Constant<'m>>> {
    let node = match leaf {
        Err(Origin::Constant(constant)) => return Ok(Some(*constant)),
        Err(_) => return Ok(None),
        Ok(node) => node,
    };
    let operator = model.operator(node.scope, node.proto)?;
    if !operator.is("Constant") || !operator.passes_on_one(node.proto) {
        return Ok(None);
    }
    let given = attributes_of(model, *node)?;
    let [one] = given.as_slice() else { return Ok(None) };
    let sparse = one.value.sparse_tensor.as_deref().map(Constant::Sparse);
    Ok(one.value.t.as_deref().map(Constant::Dense).or(sparse))
}

/// How two weights differ, and whether it is in their elements.
fn constants(a: Constant<'_>, b: Constant<'_>) -> (&'static str, bool) {
    if form(a) != form(b) {
        return ("the weights have another type or shape", false);
    }
    match (a, b) {
        (Constant::Dense(_), Constant::Dense(_)) | (Constant::Sparse(_), Constant::Sparse(_)) => {
            ("the weights have other elements", true)
        }
        _ => ("one of the weights is sparse", false),
    }
}

/// The type and the dimensions of a constant.
fn form(constant: Constant<'_>) -> (Option<i32>, &[i64]) {
    match constant {
        Constant::Dense(tensor) => (tensor.data_type, &tensor.dims),
        Constant::Sparse(tensor) => {
            (tensor.values.as_deref().and_then(|values| values.data_type), &tensor.dims)
        }
    }
}

/// An initializer as messages say it.
fn shown(constant: Constant<'_>) -> String {
    let (kind, tensor) = match constant {
        Constant::Dense(tensor) => ("initializer", Some(tensor)),
        Constant::Sparse(tensor) => ("sparse initializer", tensor.values.as_deref()),
    };
    let (dtype, dims) = form(constant);
    let name = tensor.and_then(|tensor| tensor.name.as_ref());
    let dtype = DataType::try_from(dtype.unwrap_or_default()).map_or("?", DataType::name);
    format!("{kind} `{}` ({dtype} {dims:?})", text(bytes(name)))
}
