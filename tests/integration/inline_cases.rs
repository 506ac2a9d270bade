//! Inlining, rule by rule: small models with the expected operators of each; an oracle compares
//! what all of them compute.

use std::collections::HashSet;

use onnx_container::ErrorKind;
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::proto::tensor_shape_proto::DimensionValue;
use onnx_container::proto::type_proto::Value;
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, Message, ModelProto, NodeDeviceConfigurationProto,
    NodeProto, OperatorSetIdProto, ShardingSpecProto, Str, StringStringEntryProto,
    TensorAnnotation, TensorProto, TrainingInfoProto, ValueInfoProto,
};

use crate::dump::dump;
use crate::flow::{inlining_faults, known_flow, nodes_of, text};
use crate::support::{
    branches, call, floats, function, graph_of, int64s, model_of, node, parameter,
};

/// A call of `local.f` from `x`, `z` (and the condition `c`) to `y`, and the functions.
fn calling(call: NodeProto, functions: Vec<FunctionProto>) -> ModelProto {
    let outputs: Vec<String> =
        call.output.iter().filter(|name| !name.is_empty()).map(Str::to_string).collect();
    let outputs: Vec<_> = outputs.iter().map(String::as_str).collect();
    model_of(graph_of(&["x", "z", "c"], &outputs, vec![call]), functions)
}

fn op(op_type: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    node(op_type, inputs, outputs, vec![])
}

fn calls(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    call(name, inputs, outputs, vec![])
}

fn neg(name: &str) -> FunctionProto {
    function(name, &["a"], &["b"], vec![op("Neg", &["a"], &["b"])])
}

fn alpha(value: f32) -> AttributeProto {
    AttributeProto::float("alpha", value)
}

/// `b = LeakyRelu(a)` with the parameter `alpha`, whose default is 4.
fn leaky() -> FunctionProto {
    let reference = parameter("alpha", AttributeProto::FLOAT, "alpha");
    let mut f =
        function("f", &["a"], &["b"], vec![node("LeakyRelu", &["a"], &["b"], vec![reference])]);
    f.attribute_proto = vec![alpha(4.0)];
    f
}

fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

fn overloaded(mut node: NodeProto, overload: &str) -> NodeProto {
    node.overload = Some(Box::new(overload.into()));
    node
}

fn in_domain(mut node: NodeProto, domain: &str) -> NodeProto {
    node.domain = Some(domain.into());
    node
}

fn symbolic(name: &str, dim: &str) -> ValueInfoProto {
    ValueInfoProto::tensor_with(name, TensorProto::FLOAT, [dim.into()])
}

/// The names of the symbolic dimensions of a tensor.
fn dim_names(info: &ValueInfoProto) -> Vec<String> {
    let Some(Value::TensorType(tensor)) = &info.r#type.as_ref().unwrap().value else {
        return vec![];
    };
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    let names = dims.filter_map(|dim| match &dim.value {
        Some(DimensionValue::DimParam(name)) => Some(name.to_string()),
        _ => None,
    });
    names.collect()
}

/// The operators of the main graph with its subgraphs, in order.
fn operators(model: &ModelProto) -> String {
    let nodes = nodes_of(&model.graph.as_ref().unwrap().node);
    nodes.iter().map(|node| text(&node.op_type).to_string()).collect::<Vec<_>>().join(" ")
}

fn main_graph(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

/// A name, a model, and the operators of what it becomes.
type Case = (&'static str, ModelProto, &'static str);

fn cases_of_calls() -> Vec<Case> {
    let overload = with(neg("f"), |f| f.overload = Some(Box::new("o".into())));
    let shadowing = with(neg("Relu"), |f| f.domain = Some("ai.onnx".into()));
    let separators = ["a", "a::b"].into_iter().zip(["b::c", "c"]);
    let separators: Vec<_> = separators
        .zip(["Neg", "Abs"])
        .map(|((domain, name), body)| {
            let f = function(name, &["a"], &["b"], vec![op(body, &["a"], &["b"])]);
            with(f, |f| f.domain = Some(domain.into()))
        })
        .collect();
    let mut joined = calling(in_domain(op("b::c", &["x"], &["y"]), "a"), separators);
    joined.opset_import.push(OperatorSetIdProto::new("a", 1));
    let inner = branches(
        &["b"],
        graph_of(&[], &["t"], vec![calls("g", &["a"], &["t"])]),
        graph_of(&[], &["t"], vec![op("Abs", &["a"], &["t"])]),
    );
    let nested = function("f", &["a", "c"], &["b"], vec![inner]);
    let mut trained = calling(op("Abs", &["x"], &["y"]), vec![neg("f")]);
    let mut info = TrainingInfoProto::default();
    info.algorithm = Some(Box::new(graph_of(&[], &["t"], vec![calls("f", &["y"], &["t"])])));
    trained.training_info.push(info);
    vec![
        ("C1 ids are triples", joined, "Neg"),
        (
            "C2 another overload is another function",
            calling(
                overloaded(calls("f", &["x"], &["y"]), "none"),
                vec![neg("f"), overload.clone()],
            ),
            "f",
        ),
        (
            "C2 an overload",
            calling(overloaded(calls("f", &["x"], &["y"]), "o"), vec![overload]),
            "Neg",
        ),
        (
            "C2 in a subgraph of a body",
            calling(calls("f", &["x", "c"], &["y"]), vec![nested, neg("g")]),
            "If Neg Abs",
        ),
        (
            "C3 a function in place of an operator",
            calling(op("Relu", &["x"], &["y"]), vec![shadowing]),
            "Neg",
        ),
        ("T6 in training", trained, "Abs"),
        ("R1 unused functions go", calling(op("Abs", &["x"], &["y"]), vec![neg("f")]), "Abs"),
    ]
}

fn cases_of_inputs() -> Vec<Case> {
    let clip = |body| function("f", &["a", "low", "high"], &["b"], vec![body]);
    let clips = || clip(op("Clip", &["a", "low", "high"], &["b"]));
    let inner = clip(calls("g", &["a", "low", "high"], &["b"]));
    let g = with(clips(), |g| g.name = Some("g".into()));
    let two = |nodes| function("f", &["a", "b"], &["p", "q"], nodes);
    let computed = || two(vec![op("Neg", &["a"], &["p"]), op("Abs", &["b"], &["q"])]);
    let swapped = function("f", &["x", "z"], &["r"], vec![op("Sub", &["x", "z"], &["r"])]);
    let passing = || with(two(vec![]), |f| f.output = vec!["b".into(), "a".into()]);
    let doubled = with(computed(), |f| f.output = vec!["p".into(), "p".into()]);
    let undefined = with(computed(), |f| f.output[1] = "nowhere".into());
    vec![
        ("I2 too few inputs", calling(calls("f", &["x"], &["y"]), vec![clips()]), "Clip"),
        (
            "I2 an input left out",
            calling(calls("f", &["x", "", "z"], &["y"]), vec![clips()]),
            "Clip",
        ),
        ("I2 left out again", calling(calls("f", &["x", "", "z"], &["y"]), vec![inner, g]), "Clip"),
        ("I3 at once", calling(calls("f", &["z", "x"], &["y"]), vec![swapped]), "Sub"),
        ("I3 one twice", calling(calls("f", &["x", "x"], &["y"]), vec![computed()]), "Neg Abs"),
        ("I4 fewer outputs", calling(calls("f", &["x", "z"], &["y"]), vec![computed()]), "Neg Abs"),
        (
            "I4 the first is skipped",
            calling(calls("f", &["x", "z"], &["", "y"]), vec![computed()]),
            "Neg Abs",
        ),
        (
            "I4 outputs that are inputs",
            calling(calls("f", &["x", "z"], &["y", "w"]), vec![passing()]),
            "Identity Identity",
        ),
        (
            "I4 listed twice",
            calling(calls("f", &["x", "z"], &["y", "w"]), vec![doubled]),
            "Neg Abs Identity",
        ),
        (
            "I4 not computed, not taken",
            calling(calls("f", &["x", "z"], &["y"]), vec![undefined]),
            "Neg Abs",
        ),
        (
            "I5 dead nodes stay",
            calling(calls("f", &["x", "z"], &["", "y"]), vec![computed()]),
            "Neg Abs",
        ),
    ]
}

fn cases_of_attributes() -> Vec<Case> {
    let given = |attributes| calling(call("f", &["x"], &["y"], attributes), vec![leaky()]);
    let none = with(leaky(), |f| f.attribute_proto.clear());
    let reference = parameter("alpha", AttributeProto::FLOAT, "p");
    let through = function("g", &["a"], &["b"], vec![call("f", &["a"], &["b"], vec![reference])]);
    let bare = function("g", &["a"], &["b"], vec![calls("f", &["a"], &["b"])]);
    let empty = parameter("axes", AttributeProto::INTS, "axes");
    let empty = function("f", &["a"], &["b"], vec![node("Op", &["a"], &["b"], vec![empty])]);
    let empty = with(empty, |f| f.attribute_proto = vec![AttributeProto::ints("axes", [])]);
    let text = parameter("s", AttributeProto::STRING, "s");
    let text = function("f", &["a"], &["b"], vec![node("Op", &["a"], &["b"], vec![text])]);
    let bytes = AttributeProto::string("s", [0xff, 0xfe]);
    // The argument's `t` is the caller's, not the callee's.
    let captured = graph_of(&[], &["r"], vec![op("Abs", &["t"], &["r"])]);
    let choose = [("then_branch", "g"), ("else_branch", "g")]
        .map(|(name, of)| parameter(name, AttributeProto::GRAPH, of));
    let choose = node("If", &["c"], &["b"], choose.to_vec());
    let body = vec![op("Neg", &["a"], &["t"]), choose];
    let chooser = function("f", &["a", "c"], &["b"], body);
    let call_with_graph =
        call("f", &["x", "c"], &["y"], vec![AttributeProto::graph("g", captured)]);
    let mut capturing = calling(call_with_graph, vec![chooser]);
    main_graph(&mut capturing).node.insert(0, op("Relu", &["z"], &["t"]));
    vec![
        ("A1 given", given(vec![alpha(0.5)]), "LeakyRelu"),
        ("A1 zero is a value", given(vec![alpha(0.0)]), "LeakyRelu"),
        ("A1 the default", given(vec![]), "LeakyRelu"),
        ("A1 neither", calling(calls("f", &["x"], &["y"]), vec![none]), "LeakyRelu"),
        (
            "A1 absent, then the inner default",
            calling(calls("g", &["x"], &["y"]), vec![through, leaky()]),
            "LeakyRelu",
        ),
        (
            "A2 not inherited",
            calling(call("g", &["x"], &["y"], vec![alpha(0.5)]), vec![bare, leaky()]),
            "LeakyRelu",
        ),
        ("A3 an empty list is a value", calling(calls("f", &["x"], &["y"]), vec![empty]), "Op"),
        ("A3 bytes", calling(call("f", &["x"], &["y"], vec![bytes]), vec![text]), "Op"),
        ("A4 a graph sees the caller's names", capturing, "Relu Neg If Abs Abs"),
        (
            "A5 what is required and absent is left so",
            calling(
                calls("f", &[], &["y"]),
                vec![function(
                    "f",
                    &[],
                    &["b"],
                    vec![node(
                        "Constant",
                        &[],
                        &["b"],
                        vec![parameter("value_float", AttributeProto::FLOAT, "p")],
                    )],
                )],
            ),
            "Constant",
        ),
    ]
}

/// A function whose `If` defines `t` in both branches, with an initializer as the output of one.
fn branching() -> FunctionProto {
    let then_branch = graph_of(&[], &["t"], vec![op("Neg", &["a"], &["t"])]);
    let mut else_branch = graph_of(&[], &["w"], vec![op("Abs", &["a"], &["t"])]);
    else_branch.initializer.push(floats("w", 1, 2));
    function("f", &["a", "c"], &["b"], vec![branches(&["b"], then_branch, else_branch)])
}

fn cases_of_names() -> Vec<Case> {
    let f = || {
        let nodes = vec![op("Neg", &["a"], &["t"]), op("Abs", &["t"], &["b"])];
        function("f", &["a"], &["b"], nodes)
    };
    let mut clash = calling(calls("f", &["x"], &["y"]), vec![f()]);
    main_graph(&mut clash).node.insert(0, op("Relu", &["z"], &["t__1"]));
    main_graph(&mut clash).node.push(op("Relu", &["z"], &["t__1_0"]));
    let later = graph_of(&[], &["t__1_1"], vec![op("Relu", &["z"], &["t__1_1"])]);
    main_graph(&mut clash).node.push(branches(&["t"], later.clone(), later));
    let sparse = graph_of(&[], &["t"], vec![op("Add", &["a", "x"], &["t"])]);
    let sparse = with(sparse, |g| {
        let (values, indices) = (floats("x", 1, 1), int64s("", &[0]));
        let tensor = onnx_container::proto::SparseTensorProto::new(values, indices, [2]);
        g.sparse_initializer.push(tensor);
    });
    let sparse = branches(&["b"], sparse.clone(), sparse);
    let sparse = function("f", &["a", "c"], &["b"], vec![sparse]);
    let node_named = |mut node: NodeProto, name: &str| {
        node.name = Some(name.into());
        node
    };
    let named = function("f", &["a"], &["b"], vec![node_named(op("Neg", &["a"], &["b"]), "n")]);
    let mut named = calling(node_named(calls("f", &["x"], &["y"]), "n"), vec![named]);
    main_graph(&mut named).node.push(node_named(calls("f", &["x"], &["w"]), "n__1"));
    vec![
        ("N2 names that are taken, before and later", clash, "Relu Neg Abs Relu If Relu Relu"),
        (
            "N2 sparse initializers",
            calling(calls("f", &["x", "c"], &["y"]), vec![sparse]),
            "If Add Add",
        ),
        (
            "N1, N3 branches",
            calling(calls("f", &["x", "c"], &["y"]), vec![branching()]),
            "If Neg Abs",
        ),
        ("N5 names of nodes", named, "Neg Neg"),
    ]
}

fn cases_of_the_rest() -> Vec<Case> {
    let typed = |infos: &[(&str, &str)]| {
        let nodes =
            vec![op("Neg", &["a"], &["t"]), op("Abs", &["t"], &["u"]), op("Abs", &["u"], &["b"])];
        let mut f = function("f", &["a"], &["b"], nodes);
        f.value_info = infos.iter().map(|(name, dim)| symbolic(name, dim)).collect();
        f
    };
    let types = typed(&[("t", "N"), ("u", "M"), ("a", "N"), ("b", "N"), ("stale", "N")]);
    let mut twice = calling(calls("f", &["x"], &["y"]), vec![types]);
    main_graph(&mut twice).node.push(calls("f", &["z"], &["w"]));
    main_graph(&mut twice).input[0] = symbolic("x", "N");
    let mut annotated = graph_of(&[], &["t"], vec![op("Neg", &["a"], &["t"])]);
    annotated.value_info = vec![symbolic("t", "N")];
    let mut annotation = TensorAnnotation::default();
    annotation.tensor_name = Some("t".into());
    annotated.quantization_annotation.push(annotation);
    let annotated = branches(&["b"], annotated.clone(), annotated);
    let annotated = function("f", &["a", "c"], &["b"], vec![annotated]);
    let remarks = |mut node: NodeProto, pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(key, value)| StringStringEntryProto::new(*key, *value));
        node.metadata_props = pairs.collect();
        node
    };
    let noted = with(remarks(op("Neg", &["a"], &["t"]), &[("k", "node")]), |node| {
        node.doc_string = Some("why".into());
        let mut spec = ShardingSpecProto::default();
        spec.tensor_name = Some("t".into());
        let mut devices = NodeDeviceConfigurationProto::default();
        devices.sharding_spec.push(spec);
        node.device_configurations.push(devices);
    });
    let noted = function("f", &["a"], &["b"], vec![noted, op("Abs", &["t"], &["b"])]);
    let noting = remarks(calls("f", &["x"], &["y"]), &[("k", "call"), ("l", "call")]);
    let external = TensorProto::external("", TensorProto::FLOAT, [2], "#w");
    let external = AttributeProto::tensor("value", external);
    let external = function("f", &[], &["b"], vec![node("Constant", &[], &["b"], vec![external])]);
    let opset = |versions: &[(&str, i64)], body: NodeProto| {
        let versions = versions.iter().map(|(domain, v)| OperatorSetIdProto::new(*domain, *v));
        with(function("f", &["a"], &["b"], vec![body]), |f| f.opset_import = versions.collect())
    };
    let only_there = in_domain(op("Op", &["a"], &["b"]), "custom");
    vec![
        ("T1, T2 types of values", twice, "Neg Abs Abs Neg Abs Abs"),
        (
            "T1 in subgraphs",
            calling(calls("f", &["x", "c"], &["y"]), vec![annotated]),
            "If Neg Neg",
        ),
        ("T3 remarks and devices", calling(noting, vec![noted]), "Neg Abs"),
        ("T4 external data", calling(calls("f", &[], &["y"]), vec![external]), "Constant"),
        (
            "O1 one operator in two versions",
            calling(
                calls("f", &["x"], &["y"]),
                vec![opset(&[("", 15)], op("Neg", &["a"], &["b"]))],
            ),
            "Neg",
        ),
        (
            "O2 a domain of functions alone",
            calling(calls("f", &["x"], &["y"]), vec![opset(&[("custom", 3)], only_there)]),
            "Op",
        ),
        (
            "O2 a domain of the model alone",
            calling(calls("f", &["x"], &["y"]), vec![opset(&[], op("Neg", &["a"], &["b"]))]),
            "Neg",
        ),
    ]
}

#[test]
fn every_rule_computes_the_same() {
    let cases = [
        cases_of_calls(),
        cases_of_inputs(),
        cases_of_attributes(),
        cases_of_names(),
        cases_of_the_rest(),
    ];
    for (what, before, expected) in cases.into_iter().flatten() {
        let mut after = before.clone();
        let inlined = inline_functions(&mut after, InlineOptions::new());
        assert!(inlined.is_ok(), "{what}: {inlined:?}");
        let both = format!("{what}: {}became\n{}", dump(&before), dump(&after));
        assert!(after.functions.is_empty(), "{both}");
        assert_eq!(operators(&after), expected, "{both}");
        assert_eq!(inlining_faults(&before, &after), Vec::<String>::new(), "{both}");
        let differences = known_flow(&before).differences(&known_flow(&after));
        assert_eq!(differences, Vec::<String>::new(), "{both}");
    }
}

fn chain(names: &[(&str, &str)]) -> Vec<FunctionProto> {
    let one = |(name, callee): &(&str, &str)| {
        function(name, &["a"], &["b"], vec![calls(callee, &["a"], &["b"])])
    };
    names.iter().map(one).collect()
}

#[test]
fn invalid_models_are_refused_and_unchanged() {
    use ErrorKind::{InvalidModel, TooLarge, Unsupported};
    let call = |inputs: &[&str], outputs: &[&str], f: FunctionProto| {
        calling(calls("f", inputs, outputs), vec![f])
    };
    let doubling: Vec<_> = (0..60)
        .map(|i| {
            let next = format!("f{}", i + 1);
            let nodes = vec![calls(&next, &["a"], &["t"]), calls(&next, &["t"], &["b"])];
            function(&format!("f{i}"), &["a"], &["b"], nodes)
        })
        .chain([neg("f60")])
        .collect();
    let unused = |functions| calling(op("Abs", &["x"], &["y"]), functions);
    let identity = with(neg("f"), |f| f.output = vec!["a".into()]);
    let undefined = function("f", &["a"], &["b"], vec![op("Add", &["a", "x"], &["b"])]);
    let softmax = function("f", &["a"], &["b"], vec![op("Softmax", &["a"], &["b"])]);
    let softmax = with(softmax, |f| f.opset_import = vec![OperatorSetIdProto::new("", 12)]);
    let cases = [
        ("C1 one id twice", unused(vec![neg("f"), neg("f")]), InvalidModel, "f"),
        ("C4 itself", unused(chain(&[("f", "f")])), InvalidModel, "f"),
        ("C4 in a circle", unused(chain(&[("f", "g"), ("g", "h"), ("h", "f")])), InvalidModel, "h"),
        ("C5 a bomb", calling(calls("f0", &["x"], &["y"]), doubling), TooLarge, "nodes"),
        ("C6 a name of the graph in a body", call(&["x"], &["y"], undefined), InvalidModel, "`x`"),
        ("I1 too many inputs", call(&["x", "z"], &["y"], neg("f")), InvalidModel, "f"),
        ("I1 too many outputs", call(&["x"], &["y", "w"], neg("f")), InvalidModel, "f"),
        ("I4 an output that is an absent input", call(&[], &["y"], identity), InvalidModel, "a"),
        (
            "I4 not computed",
            call(&["x"], &["y"], with(neg("f"), |f| f.output[0] = "q".into())),
            InvalidModel,
            "q",
        ),
        ("O3 another meaning", call(&["x"], &["y"], softmax), Unsupported, "Softmax"),
    ];
    for (what, before, kind, word) in cases {
        let mut model = before.clone();
        let options = InlineOptions::new().refuse_conflicts(true);
        let error = inline_functions(&mut model, options).unwrap_err();
        assert_eq!(error.kind(), kind, "{what}: {error}");
        assert!(error.to_string().contains(word), "{what}: no {word} in `{error}`");
        assert_eq!(model, before, "{what}");
    }
}

#[test]
fn a_function_that_cannot_be_inlined_is_kept_with_its_callees() {
    let body = vec![op("Softmax", &["a"], &["t"]), calls("g", &["t"], &["b"])];
    let softmax = function("f", &["a"], &["b"], body);
    let softmax = with(softmax, |f| f.opset_import = vec![OperatorSetIdProto::new("", 12)]);
    let before = calling(calls("f", &["x"], &["y"]), vec![softmax, neg("g"), neg("h")]);
    let mut after = before.clone();
    let inlined = inline_functions(&mut after, InlineOptions::new()).unwrap();
    assert_eq!(inlined.kept[0].function.name, "f");
    assert!(inlined.kept[0].reason.contains("Softmax"), "{}", inlined.kept[0].reason);
    assert_eq!(operators(&after), "f");
    assert!(after.functions.iter().all(|f| text(&f.name) != "h"), "{}", dump(&after));
    assert_eq!(inlining_faults(&before, &after), Vec::<String>::new());
    assert_eq!(known_flow(&before), known_flow(&after));
}

#[test]
fn only_selected_functions_are_inlined_and_names_in_kept_ones_are_unique() {
    // The names that a copy of `g` would take are those of `f` already.
    let g =
        function("g", &["a"], &["b"], vec![op("Neg", &["a"], &["t"]), op("Abs", &["t"], &["b"])]);
    let nodes = vec![
        op("Relu", &["a"], &["t__1"]),
        calls("g", &["t__1"], &["t"]),
        calls("g", &["t"], &["b"]),
    ];
    let f = function("f", &["a"], &["b"], nodes);
    let mut before = calling(calls("f", &["x"], &["y"]), vec![f, g]);
    main_graph(&mut before).node.push(calls("g", &["z"], &["w"]));
    for options in
        [InlineOptions::new().only(["local::g"]), InlineOptions::new().except(["local::f"])]
    {
        let mut after = before.clone();
        inline_functions(&mut after, options).unwrap();
        assert_eq!(operators(&after), "f Neg Abs", "{}", dump(&after));
        let names: Vec<_> = after.functions.iter().map(|f| text(&f.name)).collect();
        assert_eq!(names, ["f"]);
        assert_eq!(after.functions[0].node.len(), 5, "{}", dump(&after));
        assert_eq!(inlining_faults(&before, &after), Vec::<String>::new(), "{}", dump(&after));
        assert_eq!(known_flow(&before), known_flow(&after), "{}", dump(&after));
    }
}

#[test]
fn long_chains_are_inlined() {
    let names: Vec<_> = (0..301).map(|i| format!("f{i}")).collect();
    let pairs: Vec<_> = names.windows(2).map(|w| (w[0].as_str(), w[1].as_str())).collect();
    let functions = chain(&pairs).into_iter().chain([neg("f300")]).collect();
    let before = calling(calls("f0", &["x"], &["y"]), functions);
    let mut after = before.clone();
    inline_functions(&mut after, InlineOptions::new()).unwrap();
    assert_eq!(operators(&after), "Neg");
    assert_eq!(known_flow(&before), known_flow(&after));
}

#[test]
fn fresh_names_do_not_repeat_a_very_long_name_in_full() {
    const CALLS: usize = 300;
    // Characters of three bytes: a name is not cut inside of one.
    let long = "\u{20ac}".repeat(8_000);
    let named = |end: &str| format!("{long}{end}");
    let (t, u, v) = (&named("t"), &named("u"), &named("v"));
    let chain = |names: &[&str]| {
        let nodes = names.windows(2).map(|pair| op("Neg", &pair[..1], &pair[1..]));
        function("f", &["a"], &["b"], nodes.collect())
    };
    let typed = with(chain(&["a", "m", "b"]), |f| {
        let dims = [t.as_str().into(), u.as_str().into()];
        f.value_info = vec![ValueInfoProto::tensor_with("m", TensorProto::FLOAT, dims)];
    });
    let of_nodes = with(chain(&["a", "m", "b"]), |f| {
        (f.node[0].name, f.node[1].name) = (Some(t.as_str().into()), Some(u.as_str().into()));
    });
    let of_graph = || graph_of(&[], &[t], vec![op("Neg", &["a"], &[t])]);
    let branching = branches(&["b"], of_graph(), of_graph());
    let branch = function("f", &["a", "c"], &["b"], vec![branching]);
    // The call uses the second output, and so names it; the first and the others get fresh names.
    let outputs = with(chain(&["a", t, u, v, "b"]), |f| {
        f.output = vec![t.as_str().into(), u.as_str().into(), "b".into()];
    });
    let cases = [
        ("a value", chain(&["a", t, "b"]), false),
        ("values that begin alike", chain(&["a", t, u, v, "b"]), false),
        ("names of nodes", of_nodes, false),
        ("dimensions that begin alike", typed, false),
        ("a value of a graph", branch, false),
        ("outputs that begin alike", outputs, true),
    ];
    for (what, f, second) in cases {
        let inputs = f.input.len();
        let mut before = calling(op("Abs", &["x"], &["y"]), vec![f]);
        let names: Vec<_> = (0..=CALLS).map(|i| format!("x{i}")).collect();
        let mut nodes = vec![op("Abs", &["x"], &["x0"])];
        nodes.extend(names.windows(2).map(|pair| match second {
            true => calls("f", &[&pair[0]], &["", &pair[1]]),
            false => calls("f", &[&pair[0], "c"][..inputs], &[&pair[1]]),
        }));
        nodes.push(op("Abs", &[&names[CALLS]], &["y"]));
        main_graph(&mut before).node = nodes;
        let mut after = before.clone();
        inline_functions(&mut after, InlineOptions::new()).unwrap();
        let len = after.encoded_len() as usize;
        assert!(len < CALLS * 16 * 1024, "{what}: {len} bytes");
        assert_eq!(inlining_faults(&before, &after), Vec::<String>::new(), "{what}");
        assert!(known_flow(&before) == known_flow(&after), "{what}");
        let graph = main_graph(&mut after);
        let dims: HashSet<_> = graph.value_info.iter().flat_map(dim_names).collect();
        let expected = if what.starts_with("dim") { 2 * CALLS } else { 0 };
        assert_eq!(dims.len(), expected, "{what}");
    }
}

#[test]
fn a_default_that_would_be_lost_keeps_its_function() {
    // `bar` stays, and hands on an attribute that its own call may not give.
    let handing = |default: Option<f32>| {
        let reference = parameter("alpha", AttributeProto::FLOAT, "p");
        let body = vec![call("f", &["a"], &["b"], vec![reference])];
        with(function("bar", &["a"], &["b"], body), |bar| {
            let default = default.map(|default| AttributeProto::float("p", default));
            bar.attribute = if default.is_none() { vec!["p".into()] } else { vec![] };
            bar.attribute_proto.extend(default);
        })
    };
    for (default, kept, body) in [(None, 1, "f"), (Some(2.0), 0, "LeakyRelu")] {
        let before = calling(calls("bar", &["x"], &["y"]), vec![handing(default), leaky()]);
        let mut after = before.clone();
        let only = InlineOptions::new().only(["local::f"]);
        let inlined = inline_functions(&mut after, only.clone()).unwrap();
        assert_eq!((inlined.kept.len(), after.functions.len()), (kept, 1 + kept));
        assert_eq!(text(&after.functions[0].node[0].op_type), body, "{}", dump(&after));
        assert_eq!(known_flow(&before), known_flow(&after));
        let strict = inline_functions(&mut before.clone(), only.refuse_conflicts(true));
        assert_eq!(strict.is_err(), kept == 1);
    }
}

/// `f` hands its input on twice by way of `g`, which hands it on once.
fn passing_through() -> Vec<FunctionProto> {
    let f = function("f", &["a"], &["b", "b"], vec![calls("g", &["a"], &["b"])]);
    vec![f, function("g", &["a"], &["a"], vec![])]
}

#[test]
fn old_operator_sets_pass_values_through_without_identity() {
    let sequence = |name: &str| {
        let mut info = ValueInfoProto::tensor(name, TensorProto::FLOAT, [2]);
        let mut list = onnx_container::proto::type_proto::Sequence::default();
        list.elem_type = info.r#type.take();
        let mut r#type = onnx_container::proto::TypeProto::default();
        r#type.value = Some(onnx_container::proto::type_proto::Value::SequenceType(Box::new(list)));
        info.r#type = Some(Box::new(r#type));
        info
    };
    // (the version, the first outputs that are sequences, the operators afterwards)
    let cases: [(i64, &[&str], Result<&str, &str>); 5] = [
        // No output is handed on: users take the value.
        (13, &[], Ok("SequenceConstruct SequenceLength SequenceLength")),
        // The value is called as the output where it is computed.
        (13, &["t"], Ok("SequenceConstruct SequenceLength SequenceLength")),
        (14, &["t"], Ok("SequenceConstruct Identity SequenceLength SequenceLength")),
        (18, &["t"], Ok("SequenceConstruct Identity Identity SequenceLength SequenceLength")),
        // One value cannot have two names.
        (13, &["t", "u"], Err("Identity")),
    ];
    for (version, outputs, expected) in cases {
        let nodes = vec![
            op("SequenceConstruct", &["x", "z"], &["s"]),
            calls("f", &["s"], &["t", "u"]),
            op("SequenceLength", &["t"], &["n"]),
            op("SequenceLength", &["u"], &["m"]),
        ];
        let mut before = model_of(graph_of(&["x", "z"], &["n", "m"], nodes), passing_through());
        before.opset_import[0] = OperatorSetIdProto::new("", version);
        for f in &mut before.functions {
            f.opset_import[0] = OperatorSetIdProto::new("", version);
        }
        main_graph(&mut before).output.extend(outputs.iter().copied().map(sequence));
        let mut after = before.clone();
        match (inline_functions(&mut after, InlineOptions::new()), expected) {
            (Ok(_), Ok(operators_after)) => {
                assert_eq!(operators(&after), operators_after, "{version} {outputs:?}");
                assert_eq!(inlining_faults(&before, &after), Vec::<String>::new());
                assert_eq!(known_flow(&before), known_flow(&after), "{}", dump(&after));
            }
            (Err(error), Err(reason)) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.reason().contains(reason), "{error}");
                assert!(after == before);
            }
            (result, _) => panic!("{version} {outputs:?}: {result:?}"),
        }
    }
}
