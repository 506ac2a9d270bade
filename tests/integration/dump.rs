//! Models as text, for the messages of failing tests.

use std::fmt::Write;

use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, Str, ValueInfoProto,
};

use crate::flow::{digest_of_type, reference, text};

/// The whole model, one line for each node.
pub fn dump(model: &ModelProto) -> String {
    let mut out = format!("model {}\n", opsets(&model.opset_import));
    model.graph.iter().for_each(|g| graph(&mut out, "main", g, 0));
    for info in model.training_info.iter() {
        info.initialization.iter().for_each(|g| graph(&mut out, "initialization", g, 0));
        info.algorithm.iter().for_each(|g| graph(&mut out, "algorithm", g, 0));
    }
    for function in &model.functions {
        let overload = function.overload.as_deref().map(|o| format!(":{o}")).unwrap_or_default();
        let (domain, name) = (text(&function.domain), text(&function.name));
        let formals = (list(&function.input), list(&function.output), list(&function.attribute));
        let (inputs, outputs, parameters) = formals;
        let imports = opsets(&function.opset_import);
        writeln!(
            out,
            "{domain}.{name}{overload} {imports} <{parameters}>({inputs}) => ({outputs})"
        )
        .unwrap();
        attributes(&mut out, &function.attribute_proto, 1);
        infos(&mut out, &function.value_info, 1);
        nodes(&mut out, &function.node, 1);
    }
    out
}

fn opsets(imports: &[OperatorSetIdProto]) -> String {
    let one = |i: &OperatorSetIdProto| format!("{:?}:{}", text(&i.domain), i.version.unwrap_or(0));
    format!("[{}]", imports.iter().map(one).collect::<Vec<_>>().join(" "))
}

fn list(names: &[Str]) -> String {
    let quoted = |name: &Str| if name.is_empty() { "\"\"".into() } else { name.to_string() };
    names.iter().map(quoted).collect::<Vec<_>>().join(", ")
}

fn infos(out: &mut String, infos: &[ValueInfoProto], depth: usize) {
    if !infos.is_empty() {
        writeln!(out, "{:1$}value_info {2}", "", depth * 2, typed(infos)).unwrap();
    }
}

/// Names with the dimensions that are names.
fn typed(infos: &[ValueInfoProto]) -> String {
    let one = |info: &ValueInfoProto| {
        let mut dims = Vec::new();
        info.r#type.iter().for_each(|t| _ = digest_of_type(t, &mut dims));
        let dims = if dims.is_empty() { String::new() } else { format!("[{}]", list(&dims)) };
        format!("{}{dims}", list(&[text(&info.name)]))
    };
    infos.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn graph(out: &mut String, label: &str, graph: &GraphProto, depth: usize) {
    let (inputs, outputs) = (typed(&graph.input), typed(&graph.output));
    let indent = depth * 2;
    writeln!(out, "{:indent$}{label} ({inputs}) => ({outputs})", "").unwrap();
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_deref());
    let initializers = graph.initializer.iter().chain(sparse);
    let initializers: Vec<_> = initializers.map(|tensor| text(&tensor.name)).collect();
    if !initializers.is_empty() {
        writeln!(out, "{:indent$}  initializers {}", "", list(&initializers)).unwrap();
    }
    infos(out, &graph.value_info, depth + 1);
    nodes(out, &graph.node, depth + 1);
}

fn nodes(out: &mut String, nodes: &[NodeProto], depth: usize) {
    for node in nodes {
        let overload = node.overload.as_deref().map(|o| format!(":{o}")).unwrap_or_default();
        let domain = Some(text(&node.domain)).filter(|d| !d.is_empty()).map(|d| format!("{d}."));
        let op = format!("{}{}{overload}", domain.unwrap_or_default(), text(&node.op_type));
        let name = node.name.as_ref().map(|name| format!("  # {name}")).unwrap_or_default();
        let remarks = node.metadata_props.iter().map(|p| [text(&p.key), text(&p.value)]);
        let sharding = node.device_configurations.iter().flat_map(|c| &c.sharding_spec);
        let sharding = sharding.map(|spec| ["sharding of".into(), text(&spec.tensor_name)]);
        let remarks: Vec<_> =
            remarks.chain(sharding).map(|pair| format!(" {{{}}}", list(&pair))).collect();
        let remarks = remarks.concat();
        let (outputs, inputs) = (list(&node.output), list(&node.input));
        writeln!(out, "{:1$}{outputs} = {op}({inputs}){name}{remarks}", "", depth * 2).unwrap();
        attributes(out, &node.attribute, depth + 1);
    }
}

fn attributes(out: &mut String, attributes: &[AttributeProto], depth: usize) {
    for attribute in attributes {
        let name = text(&attribute.name);
        let indent = depth * 2;
        let graphs = attribute.g.as_deref().into_iter().chain(&attribute.graphs);
        graphs.for_each(|g| graph(out, &format!("{name} = graph"), g, depth));
        if let Some(parameter) = reference(attribute) {
            writeln!(out, "{:indent$}{name} = @{parameter}", "").unwrap();
        } else if attribute.g.is_none() && attribute.graphs.is_empty() {
            let AttributeProto { f, i, s, floats, ints, .. } = attribute;
            let kind = attribute.r#type.unwrap_or_default();
            writeln!(
                out,
                "{:indent$}{name} = type {kind} {f:?} {i:?} {s:?} {floats:?} {ints:?}",
                ""
            )
            .unwrap();
        }
    }
}
