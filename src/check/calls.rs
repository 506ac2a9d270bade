//! Whether a node has as many inputs and outputs as the operator or function that it stands for,
//! and an If branches that fit.
//!
//! Of an operator only that is compared with its schema: types, shapes and attributes are left to
//! onnx.checker.

use super::attributes::Fault;
use super::finding::Severity;
use crate::graph::opset::{self, Formals, Misfit};
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, Str};

/// What is wrong with a `node` for which ONNX has a schema in this version of its domain.
pub(super) fn of_operator(node: &NodeProto, domain: &[u8], version: i64) -> Option<Fault> {
    let op_type = node.op_type.as_ref()?;
    if domain.is_empty()
        && *op_type == "If"
        && let Some(reason) = branches(node)
    {
        return Some((Severity::Error, reason));
    }
    let (inputs, outputs) = opset::arity(domain, op_type.as_bytes(), version)?;
    let of = |formals: Formals, names: &[Str], what| {
        let misfit = formals.misfit(names.iter().map(|name| name.is_empty()))?;
        Some(reason(misfit, names.len(), what))
    };
    let reason =
        of(inputs, &node.input, "input").or_else(|| of(outputs, &node.output, "output"))?;
    Some((Severity::Error, format!("{reason}, which onnx.checker and onnxruntime refuse")))
}

/// What is wrong with a call of `function`.
pub(super) fn of_call(node: &NodeProto, function: &FunctionProto) -> Option<Fault> {
    let says = |given: usize, has: usize, what: &str| {
        format!(
            "has {}, its function declares {has}, which onnxruntime refuses",
            counted(given, what)
        )
    };
    let sides = [
        (node.input.len(), function.input.len(), "input"),
        (node.output.len(), function.output.len(), "output"),
    ];
    let more = sides.into_iter().find(|(given, has, _)| given > has);
    if let Some((given, has, what)) = more {
        return Some((Severity::Error, says(given, has, what)));
    }
    let [_, (given, has, what)] = sides;
    (given < has).then(|| (Severity::Advice, says(given, has, what)))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn reason(misfit: Misfit, count: usize, what: &str) -> String {
    let has = counted(count, what);
    match misfit {
        Misfit::Fewer(least) => format!("has {has}, its operator needs at least {least}"),
        Misfit::More(most) => format!("has {has}, its operator takes at most {most}"),
        Misfit::Missing(index) => format!("leaves out {what} {index}, which its operator needs"),
    }
}

/// What is wrong with the branches of an If.
fn branches(node: &NodeProto) -> Option<String> {
    let branch = |name: &str| -> Option<&GraphProto> {
        let named = |attribute: &&AttributeProto| is_called(attribute, name);
        node.attribute.iter().find(named).and_then(|attribute| attribute.g.as_deref())
    };
    for name in ["then_branch", "else_branch"] {
        let Some(graph) = branch(name) else {
            // A function may pass one on.
            let is_there = node.attribute.iter().any(|attribute| is_called(attribute, name));
            let missing = format!("has no {name}, which onnx.checker and onnxruntime refuse");
            return (!is_there).then_some(missing);
        };
        let (given, wanted) = (graph.output.len(), node.output.len());
        if given != wanted {
            return Some(format!(
                "has {}, but its {name} has {given}, which onnxruntime refuses",
                counted(wanted, "output")
            ));
        }
        if !graph.input.is_empty() {
            return Some(format!("has a {name} with inputs, which onnxruntime refuses"));
        }
    }
    None
}

fn is_called(attribute: &AttributeProto, name: &str) -> bool {
    attribute.name.as_ref().is_some_and(|known| *known == name)
}
