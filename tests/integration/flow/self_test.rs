//! The oracle finds every fault that is planted in a right result, and nothing in the right one.

use std::path::Path;

use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeDeviceConfigurationProto, NodeProto,
    OperatorSetIdProto, ShardingSpecProto, Str, StringStringEntryProto, TensorAnnotation,
    TensorProto, TrainingInfoProto, ValueInfoProto,
};

use super::{Flow, flow_of, inlining_faults, known_flow};
use crate::support::{
    branches, call, floats, function, graph_of, model_of, node, parameter, vectors,
};

fn alpha(value: f32) -> Vec<AttributeProto> {
    vec![AttributeProto::float("alpha", value)]
}

fn leaky(input: &str, output: &str) -> NodeProto {
    node("LeakyRelu", &[input], &[output], vec![parameter("alpha", AttributeProto::FLOAT, "alpha")])
}

fn remark(mut node: NodeProto, key: &str, value: &str) -> NodeProto {
    node.metadata_props.push(StringStringEntryProto::new(key, value));
    node
}

fn sharded(mut node: NodeProto, tensor: &str) -> NodeProto {
    let mut spec = ShardingSpecProto::default();
    spec.tensor_name = Some(tensor.into());
    let mut devices = NodeDeviceConfigurationProto::default();
    devices.sharding_spec.push(spec);
    node.device_configurations.push(devices);
    node
}

fn named(mut node: NodeProto, name: &str) -> NodeProto {
    node.name = Some(name.into());
    node
}

fn documented(mut node: NodeProto) -> NodeProto {
    node.doc_string = Some("of the body".into());
    node
}

fn symbolic(name: &str, dim: &str) -> ValueInfoProto {
    ValueInfoProto::tensor_with(name, TensorProto::FLOAT, [dim.into()])
}

/// `Loop` with the body `(i, go, a, b) => (go, o)`, where `o` is `a` or what `nodes` make.
fn repeat(outputs: &[&str], captured: &str, prefix: &str) -> NodeProto {
    let name = |short: &str| format!("{short}{prefix}");
    let [i, go, a, b, sum] = ["i", "go", "a", "b", "sum"].map(name);
    let mut body = graph_of(&[], &[], vec![]);
    body.input = vec![
        ValueInfoProto::tensor(i, TensorProto::INT64, []),
        ValueInfoProto::tensor(go.clone(), TensorProto::BOOL, []),
    ];
    body.input.extend(vectors(&[&a, &b]));
    body.node = vec![node("Sub", &[&a, captured], &[&sum], vec![])];
    body.output = vec![ValueInfoProto::tensor(go, TensorProto::BOOL, [])];
    body.output.extend(vectors(&[&b, &sum]));
    let attributes = vec![AttributeProto::graph("body", body)];
    node("Loop", &["", "c", "x", "x"], outputs, attributes)
}

fn annotated(mut graph: GraphProto, tensor: &str) -> GraphProto {
    let mut annotation = TensorAnnotation::default();
    annotation.tensor_name = Some(tensor.into());
    let scale = StringStringEntryProto::new("SCALE_TENSOR", "k");
    annotation.quant_parameter_tensor_names.push(scale);
    graph.quantization_annotation.push(annotation);
    graph
}

/// What is the same before and after: inputs, outputs, an initializer, a training graph.
fn framed(mut model: ModelProto, training: Vec<NodeProto>) -> ModelProto {
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(floats("k", 3, 2));
    let mut info = TrainingInfoProto::default();
    info.algorithm = Some(Box::new(graph_of(&[], &["trained"], training)));
    model.training_info.push(info);
    model
}

fn original() -> ModelProto {
    let f_nodes = vec![
        named(node("Sub", &["a", "b"], &["t"], vec![]), "n"),
        documented(node("Neg", &["a"], &["dead"], vec![])),
        leaky("t", "r"),
    ];
    let mut f = function("f", &["a", "b"], &["r", "unused"], f_nodes);
    f.attribute_proto = alpha(4.0);
    f.value_info = vec![symbolic("t", "N"), symbolic("r", "N"), symbolic("dead", "N")];
    let branch = |nodes| annotated(graph_of(&[], &["r"], nodes), "r");
    let then_branch = branch(vec![sharded(node("Sub", &["x", "s"], &["r"], vec![]), "r")]);
    let else_branch = branch(vec![call("f", &["s", "x"], &["r"], vec![])]);
    let g = function(
        "g",
        &["c", "x", "k"],
        &["y", "z"],
        vec![
            call("f", &["x", "x"], &["s"], vec![parameter("alpha", AttributeProto::FLOAT, "p")]),
            branches(&["y"], then_branch, else_branch),
            repeat(&["first", "z"], "s", ""),
        ],
    );
    let nodes = vec![
        remark(call("f", &["x", "y"], &["t"], alpha(0.5)), "from", "the call"),
        call("g", &["c", "t", "k"], &["u", "v"], vec![]),
    ];
    let mut main = graph_of(&["x", "y", "c"], &["t", "u", "v"], nodes);
    main.input[0] = symbolic("x", "N");
    framed(model_of(main, vec![g, f]), vec![call("f", &["u", "k"], &["trained"], alpha(1.0))])
}

/// The nodes that a call of `f` becomes.
fn f_nodes(inputs: [&str; 2], output: &str, value: f32, suffix: &str) -> [NodeProto; 3] {
    let [t, dead, n] = ["t", "dead", "n"].map(|name| format!("{name}{suffix}"));
    [
        named(node("Sub", &inputs, &[&t], vec![]), &n),
        documented(node("Neg", &inputs[..1], &[&dead], vec![])),
        node("LeakyRelu", &[&t], &[output], alpha(value)),
    ]
}

fn inlined() -> ModelProto {
    let mut nodes: Vec<_> = f_nodes(["x", "y"], "t", 0.5, "__1").into();
    for node in &mut nodes {
        *node = remark(node.clone(), "from", "the call");
    }
    nodes.extend(f_nodes(["t", "t"], "s__2", 4.0, "__3"));
    let then_branch = sharded(node("Sub", &["t", "s__2"], &["r__2"], vec![]), "r__2");
    let then_branch = annotated(graph_of(&[], &["r__2"], vec![then_branch]), "r__2");
    let in_else = f_nodes(["s__2", "t"], "r__2_1", 4.0, "__4").into();
    let mut else_branch = annotated(graph_of(&[], &["r__2_1"], in_else), "r__2_1");
    else_branch.value_info = vec![symbolic("t__4", "N__4"), symbolic("dead__4", "N__4")];
    nodes.push(branches(&["u"], then_branch, else_branch));
    let mut repeated = repeat(&["first__2", "v"], "s__2", "__2");
    (repeated.input[2], repeated.input[3]) = ("t".into(), "t".into());
    nodes.push(repeated);
    let mut main = graph_of(&["x", "y", "c"], &["t", "u", "v"], nodes);
    main.input[0] = symbolic("x", "N");
    for call in ["__1", "__3"] {
        for name in ["t", "dead"] {
            main.value_info.push(symbolic(&format!("{name}{call}"), &format!("N{call}")));
        }
    }
    let training: Vec<_> = f_nodes(["u", "k"], "trained", 1.0, "__5").into();
    let mut model = framed(model_of(main, vec![]), training);
    let info = &mut model.training_info[0].algorithm.as_mut().unwrap().value_info;
    *info = vec![symbolic("t__5", "N__5"), symbolic("dead__5", "N__5")];
    model
}

#[test]
fn the_right_result_has_no_fault() {
    let (before, after) = (original(), inlined());
    assert_eq!(known_flow(&before).differences(&known_flow(&after)), Vec::<String>::new());
    assert_eq!(inlining_faults(&before, &after), Vec::<String>::new());
    assert_eq!(known_flow(&after).leaves(), 16);
}

/// What is wrong with the model: where in the graph, what, and a word of the complaint that is due.
type Fault = (&'static str, fn(&mut GraphProto), &'static str);

fn inner(graph: &mut GraphProto, node: usize, attribute: usize) -> &mut GraphProto {
    graph.node[node].attribute[attribute].g.as_mut().unwrap()
}

fn rename(names: &mut [Str], from: &str, to: &str) {
    names.iter_mut().filter(|name| **name == from).for_each(|name| *name = to.into());
}

const FAULTS: &[Fault] = &[
    ("two inputs swapped", |g| g.node[0].input.swap(0, 1), "output `t`"),
    ("another input", |g| g.node[3].input[0] = "x".into(), "output `u`"),
    ("an input left out", |g| g.node[0].input[1] = "".into(), "output `t`"),
    ("an input lost", |g| drop(g.node[0].input.pop()), "output `t`"),
    ("an attribute lost", |g| g.node[2].attribute.clear(), "output `t`"),
    ("a default lost", |g| g.node[5].attribute.clear(), "output `u`"),
    ("another value", |g| g.node[2].attribute = alpha(0.25), "output `t`"),
    ("another name of an attribute", |g| g.node[2].attribute[0].name = Some("a".into()), "`t`"),
    ("a dead node lost", |g| drop(g.node.remove(1)), "node Neg"),
    ("a dead node too many", |g| g.node.push(node("Neg", &["x"], &["q"], vec![])), "node Neg"),
    ("a dead node of another value", |g| g.node[1].input[0] = "y".into(), "node Neg"),
    ("another operator", |g| g.node[0].op_type = Some("Add".into()), "output `t`"),
    ("another overload", |g| g.node[0].overload = Some(Box::new("o".into())), "output `t`"),
    ("another domain", |g| g.node[0].domain = Some("local".into()), "output `t`"),
    ("a lost output", |g| g.node[7].output[0] = "".into(), "output `v`"),
    (
        "an input of the graph renamed",
        |g| {
            g.input[1].name = Some("yy".into());
            rename(&mut g.node[0].input, "y", "yy");
        },
        "output `t`",
    ),
    (
        "an output of the graph renamed",
        |g| {
            g.output[2].name = Some("vv".into());
            g.node[7].output[1] = "vv".into();
        },
        "another expression or name",
    ),
    ("outputs of the graph swapped", |g| g.output.swap(0, 1), "another expression or name"),
    ("a type of an input", |g| g.input[1] = symbolic("y", "N"), "input"),
    ("another initializer", |g| g.initializer[0] = floats("k", 4, 2), "initializer"),
    ("an initializer lost", |g| g.initializer.clear(), "`k`"),
    (
        "branches swapped",
        |g| {
            let (then_branch, else_branch) = (inner(g, 6, 0).clone(), inner(g, 6, 1).clone());
            (*inner(g, 6, 0), *inner(g, 6, 1)) = (else_branch, then_branch);
        },
        "output `u`",
    ),
    ("another captured name", |g| inner(g, 6, 0).node[0].input[1] = "x".into(), "output `u`"),
    ("a captured name in a loop", |g| inner(g, 7, 0).node[0].input[1] = "t".into(), "output `v`"),
    (
        "an inner name instead of an outer",
        |g| {
            inner(g, 7, 0).node[0].input[1] = "b__2".into();
        },
        "output `v`",
    ),
    ("states of a loop swapped", |g| inner(g, 7, 0).output.swap(1, 2), "output `v`"),
    ("an input of a loop lost", |g| drop(g.node[7].input.pop()), "output `v`"),
    (
        "an output of a branch that is an outer value",
        |g| {
            inner(g, 6, 0).output[0].name = Some("s__2".into());
        },
        "not defined here",
    ),
    ("a call", |g| g.node.push(call("f", &["x", "x"], &["q"], vec![])), "a call of"),
    (
        "a reference",
        |g| {
            g.node[0].attribute.push(parameter("alpha", AttributeProto::FLOAT, "alpha"));
        },
        "reference to `alpha`",
    ),
    ("a name defined twice", |g| rename(&mut g.node[4].output, "dead__3", "dead__1"), "twice"),
    (
        "an outer name shadowed",
        |g| {
            let branch = inner(g, 6, 1);
            rename(&mut branch.node[1].output, "dead__4", "dead__1");
        },
        "shadows",
    ),
    (
        "an outer name shadowed by an input",
        |g| {
            inner(g, 7, 0).input[0].name = Some("dead__1".into());
        },
        "shadows",
    ),
    (
        "an outer name shadowed by an initializer",
        |g| {
            inner(g, 6, 0).initializer.push(floats("x", 0, 2));
        },
        "shadows",
    ),
    ("a use before the definition", |g| g.node.swap(0, 2), "is not defined"),
    ("a branch before what it captures", |g| g.node.swap(5, 6), "is not defined"),
    ("a name that is not defined", |g| g.node[4].input[0] = "q".into(), "is not defined"),
    ("the type of nothing", |g| g.value_info.push(symbolic("q", "M")), "type of `q`"),
    ("a type without a name", |g| g.value_info.push(symbolic("", "M")), "type of ``"),
    ("a second type", |g| g.value_info.push(g.value_info[0].clone()), "type of `t__1`"),
    ("a type lost", |g| drop(g.value_info.pop()), "value_info"),
    ("a type lost in a branch", |g| drop(inner(g, 6, 1).value_info.pop()), "value_info"),
    ("a type of another value", |g| g.value_info[0].name = Some("s__2".into()), "value_info"),
    (
        "a dimension shared by two calls",
        |g| {
            g.value_info[2] = symbolic("t__3", "N__1");
            g.value_info[3] = symbolic("dead__3", "N__1");
        },
        "symbolic dimension",
    ),
    (
        "a dimension shared with the graph",
        |g| {
            g.value_info[0] = symbolic("t__1", "N");
            g.value_info[1] = symbolic("dead__1", "N");
        },
        "symbolic dimension",
    ),
    ("a dimension torn apart", |g| g.value_info[0] = symbolic("t__1", "Q"), "symbolic dimension"),
    ("two nodes of one name", |g| g.node[3].name = Some("n__1".into()), "nodes are named"),
    ("a remark lost", |g| g.node[0].metadata_props.clear(), "remarks on Sub"),
    ("a doc string lost", |g| g.node[4].doc_string = None, "remarks on Neg"),
    (
        "a device configuration lost",
        |g| {
            inner(g, 6, 0).node[0].device_configurations.clear();
        },
        "remarks on Sub",
    ),
    (
        "the sharding of another value",
        |g| {
            let node = &mut inner(g, 6, 0).node[0];
            node.device_configurations[0].sharding_spec[0].tensor_name = Some("r".into());
        },
        "sharding of `r`",
    ),
    (
        "an annotation lost",
        |g| {
            inner(g, 6, 0).quantization_annotation.clear();
        },
        "quantization",
    ),
    (
        "an annotation of another value",
        |g| {
            inner(g, 6, 0).quantization_annotation[0].tensor_name = Some("r".into());
        },
        "quantization of `r`",
    ),
    (
        "an annotation with another parameter",
        |g| {
            let annotation = &mut inner(g, 6, 0).quantization_annotation[0];
            annotation.quant_parameter_tensor_names[0].value = Some("x".into());
        },
        "quantization",
    ),
];

type ModelFault = (&'static str, fn(&mut ModelProto), &'static str);

const FAULTS_OF_THE_MODEL: &[ModelFault] = &[
    ("an import lost", |m| drop(m.opset_import.pop()), "an opset import changed"),
    ("an import of what is used lost", |m| drop(m.opset_import.remove(0)), "not imported"),
    ("an import of another version", |m| m.opset_import[0].version = Some(13), "output `u`"),
    (
        "an import twice",
        |m| {
            m.opset_import.push(OperatorSetIdProto::new("ai.onnx", 21));
        },
        "two imports",
    ),
    ("a new function", |m| m.functions.push(function("new", &[], &[], vec![])), "a new function"),
    ("training lost", |m| m.training_info.clear(), "outputs became"),
    (
        "training of another value",
        |m| {
            m.training_info[0].algorithm.as_mut().unwrap().node[0].input[0] = "t".into();
        },
        "output `trained`",
    ),
    (
        "a call in training",
        |m| {
            let node = call("f", &["x", "x"], &["q"], vec![]);
            m.training_info[0].algorithm.as_mut().unwrap().node.push(node);
        },
        "a call of",
    ),
    (
        "a name of the graph again in training",
        |m| {
            let graph = m.training_info[0].algorithm.as_mut().unwrap();
            rename(&mut graph.node[1].output, "dead__5", "dead__1");
        },
        "shadows",
    ),
    ("another format version", |m| m.ir_version = Some(4), "something else"),
    (
        "another name of the graph",
        |m| {
            m.graph.as_mut().unwrap().name = Some("other".into());
        },
        "something else",
    ),
];

fn complaints(before: &ModelProto, flow: &Flow, after: &ModelProto) -> String {
    let mut all = inlining_faults(before, after);
    match flow_of(after) {
        Ok(after) => all.extend(flow.differences(&after)),
        Err(error) => all.push(error),
    }
    all.join("\n")
}

#[test]
fn every_planted_fault_is_found() {
    let (before, right) = (original(), inlined());
    let flow = known_flow(&before);
    let found = |what: &str, after: &ModelProto, due: &str| {
        assert_ne!(after, &right, "{what} changes nothing");
        let complaints = complaints(&before, &flow, after);
        assert!(complaints.contains(due), "{what}: no `{due}` in {complaints:?}");
    };
    for (what, change, due) in FAULTS {
        let mut after = right.clone();
        change(after.graph.as_mut().unwrap());
        found(what, &after, due);
    }
    for (what, change, due) in FAULTS_OF_THE_MODEL {
        let mut after = right.clone();
        change(&mut after);
        found(what, &after, due);
    }
}

/// Faults of the function itself, which the model as it was has to show as another meaning.
#[test]
fn models_that_mean_nothing_are_refused() {
    let refused = |nodes, call: NodeProto, due: &str| {
        let outputs: Vec<_> = call.output.iter().map(|name| name.to_string()).collect();
        let outputs: Vec<_> = outputs.iter().map(String::as_str).collect();
        let main = graph_of(&["x"], &outputs, vec![call]);
        let model = model_of(main, vec![function("f", &["a", "b"], &["r", "s"], nodes)]);
        let error = flow_of(&model).unwrap_err();
        assert!(error.contains(due), "{error}");
    };
    let neg = |input: &str| vec![node("Neg", &[input], &["r"], vec![])];
    refused(neg("q"), call("f", &["x"], &["y"], vec![]), "`q` is not defined");
    refused(neg("x"), call("f", &["x"], &["y"], vec![]), "`x` is not defined");
    refused(neg("a"), call("f", &["x"], &["y", "z"], vec![]), "`z` is not computed");
    refused(neg("a"), call("f", &["x", "x", "x"], &["y"], vec![]), "takes or gives less");
    refused(neg("a"), call("f", &["q"], &["y"], vec![]), "`q` is not defined");
    let mut other = node("Op", &["a"], &["r"], vec![]);
    other.domain = Some("other".into());
    refused(vec![other], call("f", &["x"], &["y"], vec![]), "not imported");
}

#[test]
fn call_chains_may_be_deep() {
    let inner = |i: usize| call(&format!("f{}", i + 1), &["a"], &["r"], vec![]);
    let mut chain: Vec<_> =
        (0..600).map(|i| function(&format!("f{i}"), &["a"], &["r"], vec![inner(i)])).collect();
    chain[599].node = vec![node("Neg", &["a"], &["r"], vec![])];
    let calling = |op: NodeProto| model_of(graph_of(&["x"], &["y"], vec![op]), chain.clone());
    let called = known_flow(&calling(call("f0", &["x"], &["y"], vec![])));
    assert_eq!(called, known_flow(&calling(node("Neg", &["x"], &["y"], vec![]))));
}

/// Models with a known right result, where they are at hand. What else they say of types and
/// remarks is not held against them: there the tools that made them are known to be wrong.
#[test]
fn known_results_have_the_same_flow() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/inlining");
    let mut seen = 0;
    let mut wrong = Vec::new();
    for group in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        for entry in std::fs::read_dir(group.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(stem) = path.to_str().and_then(|p| p.strip_suffix(".ref.onnx")) else {
                continue;
            };
            let read = |name: &str| {
                let bytes = std::fs::read(format!("{stem}{name}")).unwrap();
                ModelProto::decode(&bytes.into()).unwrap()
            };
            let (before, after) = (read(".onnx"), read(".ref.onnx"));
            seen += 1;
            // Where versions differ, the tools that made the results converted operators.
            if versions_differ(&before) {
                continue;
            }
            let (before, after) = (known_flow(&before), known_flow(&after));
            if before.outputs != after.outputs || leaves(&before) != leaves(&after) {
                wrong.push(stem.to_owned());
            }
        }
    }
    if seen == 0 {
        eprintln!("SKIPPED: no {}", folder.display());
    }
    assert_eq!(wrong, Vec::<String>::new(), "of {seen}");
}

fn versions_differ(model: &ModelProto) -> bool {
    let mut versions = model.functions.iter().flat_map(|function| &function.opset_import);
    !versions.all(|version| model.opset_import.contains(version))
}

fn leaves(flow: &Flow) -> Vec<(&(String, u64), &usize)> {
    flow.facts.iter().filter(|((kind, _), _)| kind.starts_with("node ")).collect()
}
