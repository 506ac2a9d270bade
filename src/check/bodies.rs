//! Whether the element types that a body of an If, Loop or Scan declares fit its node.
//!
//! A value that a body takes or gives is also a value of the node, and one that a loop carries is
//! taken and given: the declared types have to be equal. What is compared are the declarations, of
//! tensors alone, in the body and in the graph of the node. Whether the nodes of a body compute
//! what it declares is left to onnx.checker.

use foldhash::HashMap;

use super::described::{described, short, text, value_name};
use super::finding::{Finding, Severity};
use crate::dtype::DataType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::opset::normalized;
use crate::graph::traversal::{self, Body, Scope};
use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, type_proto};
use crate::wire::Str;

/// The declared element types of values, by their names.
type Types<'m> = HashMap<&'m [u8], DataType>;

/// A value with the element type that is declared of it.
#[derive(Clone, Copy)]
struct Declared<'m> {
    name: &'m [u8],
    /// Where: in a body, or beside the node.
    place: &'static str,
    elem_type: DataType,
}

/// Two declarations of one value, where both are there.
type Pair<'m> = Option<(Declared<'m>, Declared<'m>)>;

/// The findings for the main graph, the functions and their subgraphs.
pub(super) fn check(model: &ModelProto) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    traversal::graphs(model, |scope, body| {
        let nodes = || body.nodes().iter().filter(|node| has_bodies(node));
        if !is_training(scope) && nodes().next().is_some() {
            let types = types_of(body);
            let faults = nodes().filter_map(|node| Some((node, fault(node, &types)?)));
            findings.extend(faults.map(|(node, fault)| finding(scope, node, &fault)));
        }
        Ok(())
    })?;
    Ok(findings)
}

fn is_training(scope: &Scope) -> bool {
    scope.path().starts_with("training_info[") && !scope.in_function()
}

fn has_bodies(node: &NodeProto) -> bool {
    normalized(text(&node.domain)).is_empty()
        && matches!(text(&node.op_type), b"If" | b"Loop" | b"Scan")
}

fn finding(
    scope: &Scope,
    node: &NodeProto,
    (one, other): &(Declared<'_>, Declared<'_>),
) -> Finding {
    let of = |declared: &Declared<'_>| {
        let Declared { name, place, elem_type } = declared;
        format!("`{}` {place} is {elem_type}", short(name))
    };
    let within = match scope.is_main() {
        true => String::new(),
        false => format!("in `{}`: ", short(scope.path().as_bytes())),
    };
    let (node, one, other) = (described(node), of(one), of(other));
    let reason = format!(
        "{within}{node} has two element types for one value: {one}, {other}; onnxruntime refuses it"
    );
    Finding { severity: Severity::Error, error: Error::new(ErrorKind::InvalidModel, reason) }
}

/// What `body` declares of its values.
fn types_of(body: Body<'_>) -> Types<'_> {
    match body {
        Body::Graph(graph) => {
            let tensors = graph.initializer.iter();
            let tensors =
                tensors.filter_map(|tensor| Some((text(&tensor.name), known(tensor.data_type)?)));
            let infos = graph.value_info.iter().chain(&graph.input).chain(&graph.output);
            infos.filter_map(typed).chain(tensors).collect()
        }
        Body::Function(function) => function.value_info.iter().filter_map(typed).collect(),
    }
}

/// The name and the declared element type of a tensor.
fn typed(info: &ValueInfoProto) -> Option<(&[u8], DataType)> {
    let type_proto::Value::TensorType(tensor) = info.r#type.as_deref()?.value.as_ref()? else {
        return None;
    };
    known(tensor.elem_type).map(|elem_type| (value_name(info), elem_type))
}

/// An element type that ONNX has.
fn known(number: Option<i32>) -> Option<DataType> {
    let elem_type = number.and_then(|number| DataType::try_from(number).ok());
    elem_type.filter(|elem_type| *elem_type != DataType::Undefined)
}

/// The first value of `node` that has two types.
fn fault<'m>(node: &'m NodeProto, types: &Types<'m>) -> Option<(Declared<'m>, Declared<'m>)> {
    let pairs = match text(&node.op_type) {
        b"If" => branches(node, types),
        b"Loop" => looped(node, types),
        _ => scanned(node, types),
    };
    pairs.into_iter().flatten().find(|(one, other)| one.elem_type != other.elem_type)
}

fn branches<'m>(node: &'m NodeProto, types: &Types<'m>) -> Vec<Pair<'m>> {
    let outputs = |name, place| {
        let outputs = body(node, name).map_or(&[][..], |graph| &graph.output);
        outputs.iter().map(move |info| inner(info, place))
    };
    let then_branch = || outputs("then_branch", "in its then_branch");
    let else_branch = || outputs("else_branch", "in its else_branch");
    let own = || node.output.iter().map(|name| outer(name, types));
    let both = then_branch().zip(else_branch());
    let pairs = both.chain(then_branch().zip(own())).chain(else_branch().zip(own()));
    pairs.map(|(one, other)| one.zip(other)).collect()
}

/// The values of a Loop: its body takes the number of the turn and a condition before those that it
/// carries, and gives the condition before them.
fn looped<'m>(node: &'m NodeProto, types: &Types<'m>) -> Vec<Pair<'m>> {
    let Some(body) = body(node, "body") else { return Vec::new() };
    let (taken, given) = (body.input.get(2..), body.output.get(1..));
    let (Some(taken), Some(given)) = (taken, given) else { return Vec::new() };
    let inputs = node.input.get(2..).unwrap_or_default();
    around(inputs, taken, given, taken.len(), (&node.output, types))
}

/// The values of a Scan since version 9: its body takes the values that it carries before the
/// elements that it scans.
fn scanned<'m>(node: &'m NodeProto, types: &Types<'m>) -> Vec<Pair<'m>> {
    let Some(body) = body(node, "body") else { return Vec::new() };
    let scanned = attribute(node, "num_scan_inputs").and_then(|scanned| scanned.i);
    let scanned = scanned.and_then(|scanned| usize::try_from(scanned).ok());
    let carried = scanned.and_then(|scanned| body.input.len().checked_sub(scanned));
    match carried.filter(|_| node.input.len() == body.input.len()) {
        Some(carried) => {
            around(&node.input, &body.input, &body.output, carried, (&node.output, types))
        }
        None => Vec::new(),
    }
}

/// The pairs of a body that takes `inputs` of the node as `taken` and gives `given` as `outputs` of
/// the node. The first `carried` of those given are taken in the next turn.
fn around<'m>(
    inputs: &'m [Str],
    taken: &'m [ValueInfoProto],
    given: &'m [ValueInfoProto],
    carried: usize,
    (outputs, types): (&'m [Str], &Types<'m>),
) -> Vec<Pair<'m>> {
    let inner = |info| inner(info, "in its body");
    let outer = |name| outer(name, types);
    let next = taken.iter().zip(given).take(carried);
    let next = next.map(|(before, after)| inner(before).zip(inner(after)));
    let first = inputs.iter().zip(taken).map(|(name, info)| outer(name).zip(inner(info)));
    let last = given.iter().zip(outputs).map(|(info, name)| inner(info).zip(outer(name)));
    next.chain(first).chain(last).collect()
}

/// What a body declares of one of its inputs or outputs.
fn inner<'m>(info: &'m ValueInfoProto, place: &'static str) -> Option<Declared<'m>> {
    typed(info).map(|(name, elem_type)| Declared { name, place, elem_type })
}

/// What the graph of the node declares of one of the node's values.
fn outer<'m>(name: &'m Str, types: &Types<'m>) -> Option<Declared<'m>> {
    let name = Some(name.as_bytes()).filter(|name| !name.is_empty())?;
    types.get(name).map(|of| Declared { name, place: "outside", elem_type: *of })
}

fn body<'m>(node: &'m NodeProto, name: &str) -> Option<&'m GraphProto> {
    attribute(node, name).and_then(|attribute| attribute.g.as_deref())
}

fn attribute<'m>(node: &'m NodeProto, name: &str) -> Option<&'m AttributeProto> {
    let mut attributes = node.attribute.iter();
    attributes.find(|attribute| attribute.name.as_ref().is_some_and(|known| *known == name))
}
