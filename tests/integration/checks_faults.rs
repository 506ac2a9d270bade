//! Faults of single messages that a check tells of. Each expectation is what onnx.checker and
//! onnxruntime do with such a model, see tests/interop/checks.py: an error where onnxruntime
//! refuses it, advice where only onnx.checker does.

use std::fs;

use onnx_container::check::check_model;
use onnx_container::proto::type_proto::{self, Value};
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, SparseTensorProto,
    StringStringEntryProto, TensorProto, TypeProto, ValueInfoProto,
};
use onnx_container::{DataType, MmapChoice};

use crate::support::{
    branches, call, floats, function, graph_of, int64s, model_of, node, parameter, vectors,
};

/// A model, and what is said of it: `E` for an error, `A` for advice, with a part of the reason.
pub type Case = (&'static str, ModelProto, &'static [&'static str]);

/// The name of a field of an attribute, and how it gets a value.
type Fill = (&'static str, fn(&mut AttributeProto));

/// Compares what is said of each model.
pub fn check(cases: Vec<Case>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for (what, model, expected) in cases {
        fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
        let checked = check_model(&path, MmapChoice::never()).unwrap();
        let said: Vec<_> =
            checked.findings.iter().map(|f| format!("{:?}: {}", f.severity, f.error)).collect();
        assert_eq!(said.len(), expected.len(), "{what}: {said:#?}");
        for (said, expected) in said.iter().zip(expected) {
            let (severity, reason) = expected.split_once(' ').unwrap();
            assert!(
                said.starts_with(severity) && said.contains(reason),
                "{what}: {said}, not {expected}"
            );
        }
    }
}

fn copy(from: &str, to: &str) -> NodeProto {
    node("Identity", &[from], &[to], vec![])
}

fn of(nodes: Vec<NodeProto>) -> ModelProto {
    model_of(graph_of(&["x", "c"], &["y"], nodes), vec![])
}

/// A model of one node with these attributes.
fn leaky(attributes: Vec<AttributeProto>) -> ModelProto {
    of(vec![node("LeakyRelu", &["x"], &["y"], attributes)])
}

/// A call of a function whose only node has these attributes.
fn in_body(attributes: Vec<AttributeProto>) -> ModelProto {
    called(vec![node("LeakyRelu", &["a"], &["b"], attributes)])
}

fn called(nodes: Vec<NodeProto>) -> ModelProto {
    let main = graph_of(&["x"], &["y"], vec![call("F", &["x"], &["y"], vec![])]);
    model_of(main, vec![function("F", &["a"], &["b"], nodes)])
}

/// A call of a function whose attribute has this default.
fn with_default(default: AttributeProto) -> ModelProto {
    let slope = parameter("alpha", AttributeProto::FLOAT, "slope");
    let mut model = in_body(vec![slope]);
    model.functions[0].attribute_proto.push(default);
    model
}

fn changed<T>(mut message: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut message);
    message
}

fn graph(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

#[test]
fn attributes_that_readers_refuse() {
    let alpha = || AttributeProto::float("alpha", 0.5);
    let nameless = || changed(alpha(), |a| a.name = None);
    let typeless = || changed(alpha(), |a| a.r#type = None);
    let wrong = || changed(alpha(), |a| a.r#type = Some(AttributeProto::INT));
    let mut cases: Vec<Case> = vec![
        ("sound", leaky(vec![alpha()]), &[]),
        (
            "no name",
            leaky(vec![nameless()]),
            &["E attribute `` of the node of `y` (LeakyRelu) has no name"],
        ),
        (
            "an empty name",
            leaky(vec![changed(alpha(), |a| a.name = Some("".into()))]),
            &["E has no name"],
        ),
        (
            "no type",
            leaky(vec![typeless()]),
            &["E attribute `alpha` of the node of `y` (LeakyRelu) has no type"],
        ),
        ("undefined", leaky(vec![changed(alpha(), |a| a.r#type = Some(0))]), &["E has no type"]),
        ("an INT with f", leaky(vec![wrong()]), &["E has its value in `f`, and its type says `i`"]),
        ("no value", leaky(vec![changed(alpha(), |a| a.f = None)]), &[]),
        (
            "twice",
            leaky(vec![alpha(), alpha()]),
            &["E attribute `alpha` of the node of `y` (LeakyRelu) occurs twice"],
        ),
        ("in a body", in_body(vec![alpha()]), &[]),
        ("in a body, no name", in_body(vec![nameless()]), &["E in `local::F`: attribute `` of"]),
        ("in a body, no type", in_body(vec![typeless()]), &["E has no type"]),
        ("in a body, an INT with f", in_body(vec![wrong()]), &["E has its value in `f`"]),
        ("in a body, twice", in_body(vec![alpha(), alpha()]), &["E occurs twice"]),
        ("a default", with_default(changed(alpha(), |a| a.name = Some("slope".into()))), &[]),
        ("a default, no name", with_default(nameless()), &[]),
        (
            "a default, no type",
            with_default(typeless()),
            &["E the default of attribute `alpha` has no type"],
        ),
        ("a default, an INT with f", with_default(wrong()), &["E has its value in `f`"]),
        (
            "a reference without a type",
            in_body(vec![changed(parameter("alpha", 1, "s"), |a| a.r#type = None)]),
            &["A has no type, which onnx.checker refuses"],
        ),
        (
            "a reference with a value",
            in_body(vec![changed(parameter("alpha", 1, "s"), |a| a.f = Some(1.0))]),
            &[],
        ),
    ];
    // Each field of values beside `f`, whose type is right.
    let fills: [Fill; 13] = [
        ("i", |a| a.i = Some(0)),
        ("s", |a| a.s = Some(b"s".to_vec().into())),
        ("t", |a| a.t = Some(Box::default())),
        ("g", |a| a.g = Some(Box::default())),
        ("floats", |a| a.floats.push(1.0)),
        ("ints", |a| a.ints.push(1)),
        ("strings", |a| a.strings.push(b"s".to_vec().into())),
        ("tensors", |a| a.tensors.push(TensorProto::default())),
        ("graphs", |a| a.graphs.push(GraphProto::default())),
        ("sparse_tensor", |a| a.sparse_tensor = Some(Box::default())),
        ("sparse_tensors", |a| a.sparse_tensors.push(SparseTensorProto::default())),
        ("tp", |a| a.tp = Some(Box::default())),
        ("type_protos", |a| a.type_protos.push(TypeProto::default())),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for (field, fill) in fills {
        let model = leaky(vec![changed(alpha(), fill)]);
        fs::write(&path, model.encode_to_vec().unwrap()).unwrap();
        let checked = check_model(&path, MmapChoice::never()).unwrap();
        let said: Vec<_> = checked.errors().map(|found| found.error.to_string()).collect();
        let expected = format!("has values in both `f` and `{field}`");
        assert!(said.iter().any(|said| said.contains(&expected)), "{said:?}");
    }
    cases.push((
        "two",
        leaky(vec![changed(alpha(), |a| a.i = Some(1))]),
        &["E has values in both `f` and `i`"],
    ));
    check(cases);
}

/// The type with elements of this number, in a tensor or in what holds one.
fn holding(number: i32) -> Vec<TypeProto> {
    let tensor = || TypeProto::tensor(number, [2]);
    let nested = |value| {
        let mut outer = TypeProto::default();
        outer.value = Some(value);
        outer
    };
    let mut sequence = type_proto::Sequence::default();
    sequence.elem_type = Some(Box::new(tensor()));
    let mut optional = type_proto::Optional::default();
    optional.elem_type = Some(Box::new(nested(Value::SequenceType(Box::new(sequence.clone())))));
    let mut values = type_proto::Map::default();
    (values.key_type, values.value_type) = (Some(7), Some(Box::new(tensor())));
    let mut keys = values.clone();
    // Keys cannot have each type, which is another fault.
    let is_there = DataType::try_from(number).is_ok_and(|of| of != DataType::Undefined);
    let key = if is_there { TensorProto::INT64 } else { number };
    (keys.key_type, keys.value_type) = (Some(key), Some(Box::new(TypeProto::tensor(1, [2]))));
    let mut sparse = type_proto::SparseTensor::default();
    (sparse.elem_type, sparse.shape) = (Some(number), Some(Box::default()));
    vec![
        tensor(),
        nested(Value::SequenceType(Box::new(sequence))),
        nested(Value::OptionalType(Box::new(optional))),
        nested(Value::MapType(Box::new(values))),
        nested(Value::MapType(Box::new(keys))),
        nested(Value::SparseTensorType(Box::new(sparse))),
    ]
}

#[test]
fn values_of_types_that_there_are_not() {
    let value = |of: TypeProto| {
        let mut value = ValueInfoProto::default();
        (value.name, value.r#type) = (Some("v".into()), Some(Box::new(of)));
        value
    };
    let mut cases: Vec<Case> = Vec::new();
    let sound: &[&str] = &[];
    for (number, expected) in [
        (0, &["E tensor `v`: has the element type 0, which ONNX does not have"][..]),
        (99, &["E tensor `v`: has the element type 99"]),
        (-1, &["E tensor `v`: has the element type -1"]),
        (1, sound),
        (27, sound),
    ] {
        for declared in holding(number) {
            let copied = || of(vec![copy("x", "y"), copy("x", "v")]);
            let mut input = of(vec![copy("x", "y")]);
            graph(&mut input).input.push(value(declared.clone()));
            let (mut output, mut inner) = (copied(), copied());
            graph(&mut output).output.push(value(declared.clone()));
            graph(&mut inner).value_info.push(value(declared.clone()));
            cases.extend([("input", input, expected), ("output", output, expected)]);
            cases.push(("value", inner, expected));
        }
    }
    check(cases);
    let mut branch = graph_of(&[], &["p"], vec![copy("x", "p")]);
    branch.output = vec![value(TypeProto::tensor(99, [2]))];
    branch.output[0].name = Some("p".into());
    let other = graph_of(&[], &["q"], vec![copy("x", "q")]);
    let mut body = called(vec![copy("a", "b")]);
    body.functions[0].value_info.push(value(TypeProto::tensor(99, [2])));
    check(vec![
        (
            "a branch",
            of(vec![branches(&["y"], branch, other)]),
            &["E in `y.then_branch`: has the element type 99"],
        ),
        ("a body", body, &["E in `local::F`: has the element type 99"]),
    ]);
}

/// What onnx.proto says of `TypeProto.Map.key_type`.
#[test]
fn keys_of_maps_are_integers_or_strings() {
    let map = |key: i32| {
        let mut map = type_proto::Map::default();
        (map.key_type, map.value_type) = (Some(key), Some(Box::new(TypeProto::tensor(1, [2]))));
        let mut of = TypeProto::default();
        of.value = Some(Value::MapType(Box::new(map)));
        of
    };
    let sequence = |inner: TypeProto| {
        let mut sequence = type_proto::Sequence::default();
        sequence.elem_type = Some(Box::new(inner));
        let mut of = TypeProto::default();
        of.value = Some(Value::SequenceType(Box::new(sequence)));
        of
    };
    let with_input = |of_type: TypeProto| {
        let mut model = of(vec![copy("x", "y")]);
        let mut value = ValueInfoProto::default();
        (value.name, value.r#type) = (Some("v".into()), Some(Box::new(of_type)));
        graph(&mut model).input.push(value);
        model
    };
    let mut cases: Vec<Case> = Vec::new();
    for key in [2, 3, 4, 5, 6, 7, 8, 12, 13] {
        cases.push(("a key", with_input(map(key)), &[]));
    }
    let of_float = &["E tensor `v`: is a map with keys of FLOAT, and keys are"][..];
    cases.push(("FLOAT", with_input(map(1)), of_float));
    cases.push(("BOOL", with_input(map(9)), &["E tensor `v`: is a map with keys of BOOL"]));
    cases.push(("a sequence of maps", with_input(sequence(map(1))), of_float));
    check(cases);
}

#[test]
fn names_and_versions_that_are_not_there() {
    let sound = || of(vec![copy("x", "y")]);
    let version = |number: Option<i64>| changed(sound(), |m| m.opset_import[0].version = number);
    let of_body = |number: Option<i64>| {
        changed(called(vec![copy("a", "b")]), |m| m.functions[0].opset_import[0].version = number)
    };
    let mut branch = graph_of(&[], &["p"], vec![copy("x", "p")]);
    branch.output[0].name = None;
    let unnamed = of(vec![branches(&["y"], branch, graph_of(&[], &["q"], vec![copy("x", "q")]))]);
    check(vec![
        (
            "set 0",
            version(Some(0)),
            &["E operator set 0 is imported, and the operators of ONNX begin with version 1"],
        ),
        ("set -1", version(Some(-1)), &["E operator set -1 is imported"]),
        ("no set", version(None), &["E an operator set without a version is imported"]),
        ("a body's", of_body(Some(0)), &["E in `local::F`: operator set 0 is imported"]),
        ("a body's -1", of_body(Some(-1)), &["E in `local::F`: operator set -1 is imported"]),
        ("a body's none", of_body(None), &["E in `local::F`: an operator set without a version"]),
        ("another domain's", changed(sound(), |m| m.opset_import[1].version = Some(0)), &[]),
        (
            "a domain twice",
            changed(sound(), |m| {
                let mut again = m.opset_import[0].clone();
                (again.domain, again.version) = (Some("ai.onnx".into()), Some(20));
                m.opset_import.push(again);
            }),
            &["A domain `ai.onnx` is imported twice, with versions 21 and 20"],
        ),
        (
            "IR 0",
            changed(sound(), |m| m.ir_version = Some(0)),
            &["A ir_version 0, which onnx.checker refuses"],
        ),
        ("IR -1", changed(sound(), |m| m.ir_version = Some(-1)), &["A ir_version -1"]),
        (
            "an output",
            changed(sound(), |m| graph(m).output[0].name = None),
            &["E an output has no name"],
        ),
        (
            "an empty one",
            changed(sound(), |m| graph(m).output[0].name = Some("".into())),
            &["E an output has"],
        ),
        ("an output of a branch", unnamed, &["E in `y.then_branch`: an output has no name"]),
        (
            "an input",
            changed(sound(), |m| {
                let mut input = vectors(&[""]);
                graph(m).input.append(&mut input);
            }),
            &["E an input has no name"],
        ),
        (
            "a function's",
            changed(called(vec![copy("a", "b")]), |m| {
                m.functions[0].input.push("".into());
                m.functions[0].output.push("".into());
            }),
            &[
                "E an input has no name",
                "E an output has no name",
                "A has 1 output, its function declares 2",
            ],
        ),
        (
            "a function without a name",
            changed(sound(), |m| {
                let mut nameless = function("", &["a"], &["b"], vec![copy("a", "b")]);
                nameless.name = None;
                m.functions.push(nameless);
            }),
            &["A the function has no name, which onnx.checker refuses"],
        ),
        (
            "a function without a domain",
            changed(sound(), |m| {
                m.functions.push(function("F", &["a"], &["b"], vec![copy("a", "b")]));
                m.functions[0].domain = None;
            }),
            &["A the function has no domain"],
        ),
    ]);
}

/// A model with a sparse initializer of four elements, or of two by two.
fn sparse(dims: &[i64], indices: TensorProto, values: usize) -> ModelProto {
    let mut sparse = SparseTensorProto::default();
    sparse.dims = dims.to_vec();
    sparse.indices = Some(Box::new(indices));
    sparse.values = Some(Box::new(floats("w", 1, values)));
    changed(of(vec![node("Add", &["x", "w"], &["y"], vec![])]), |model| {
        graph(model).sparse_initializer.push(sparse);
    })
}

fn in_constant(mut model: ModelProto) -> ModelProto {
    let sparse = graph(&mut model).sparse_initializer.remove(0);
    let mut value = AttributeProto::default();
    (value.name, value.r#type) = (Some("sparse_value".into()), Some(AttributeProto::SPARSE_TENSOR));
    value.sparse_tensor = Some(Box::new(sparse));
    graph(&mut model).node.insert(0, node("Constant", &[], &["w"], vec![value]));
    model
}

fn rows(values: &[i64], dims: [i64; 2]) -> TensorProto {
    let mut tensor = int64s("i", values);
    tensor.dims = dims.to_vec();
    tensor
}

#[test]
fn sparse_tensors_whose_indices_do_not_fit() {
    const OUT: &str = "E with an index that none of its elements has";
    const ORDER: &str = "A whose indices do not ascend";
    const FIT: &str = "E whose indices do not fit its values and dimensions";
    let list = |indices: &[i64]| sparse(&[4], int64s("i", indices), indices.len());
    let grid = |indices: &[i64]| sparse(&[2, 2], rows(indices, [2, 2]), 2);
    let short = changed(list(&[0, 2]), |m| {
        graph(m).sparse_initializer[0].indices.as_mut().unwrap().data_type =
            Some(TensorProto::INT32);
        graph(m).sparse_initializer[0].indices.as_mut().unwrap().raw_data = Some(vec![0; 8].into());
    });
    let cases: Vec<Case> = vec![
        ("sound", list(&[0, 3]), &[]),
        ("9 of 4", list(&[0, 9]), &[OUT]),
        ("4 of 4", list(&[0, 4]), &[OUT]),
        ("-1", list(&[-1, 0]), &[OUT]),
        ("not in order", list(&[3, 0]), &[ORDER]),
        ("twice", list(&[2, 2]), &[ORDER]),
        ("fewer values", sparse(&[4], int64s("i", &[0, 2]), 1), &[FIT]),
        ("rows", grid(&[0, 1, 1, 0]), &[]),
        ("rows not in order", grid(&[1, 0, 0, 1]), &[ORDER]),
        ("a row out of range", grid(&[0, 1, 1, 2]), &[OUT]),
        ("a row below", grid(&[0, 1, -1, 0]), &[OUT]),
        ("rows of another rank", sparse(&[2, 2], rows(&[0; 6], [2, 3]), 2), &[FIT]),
        ("rows of one", sparse(&[4], rows(&[0, 1], [2, 1]), 2), &[]),
        ("no dimensions", sparse(&[], int64s("i", &[0]), 1), &["A without dimensions"]),
        ("not INT64", short, &["A whose indices are not INT64"]),
        (
            "no indices",
            changed(list(&[0]), |m| graph(m).sparse_initializer[0].indices = None),
            &["E without values or indices"],
        ),
    ];
    let constants: Vec<Case> = cases
        .iter()
        .map(|(what, model, said)| (*what, in_constant(model.clone()), *said))
        .collect();
    check(cases);
    check(constants);
}

/// A call of `F`, whose inputs are `a` and `b`, with these inputs and outputs.
fn calling(inputs: &[&str], outputs: &[&str]) -> ModelProto {
    let main = graph_of(&["x"], &["y"], vec![call("F", inputs, outputs, vec![])]);
    model_of(
        main,
        vec![function("F", &["a", "b"], &["r", "s"], vec![copy("a", "r"), copy("a", "s")])],
    )
}

/// A function of operator set `version` in a model of operator set 21.
fn of_set(version: i64, nodes: Vec<NodeProto>) -> ModelProto {
    changed(called(nodes), |m| m.functions[0].opset_import[0].version = Some(version))
}

fn relu(from: &str, to: &str) -> NodeProto {
    node("Relu", &[from], &[to], vec![])
}

#[test]
fn nodes_that_do_not_fit_what_they_stand_for() {
    let one =
        |op: &str, inputs: &[&str], outputs: &[&str]| of(vec![node(op, inputs, outputs, vec![])]);
    let inner = |outputs: &[&str]| {
        graph_of(&[], outputs, outputs.iter().map(|name| copy("x", name)).collect())
    };
    let choice = |outputs: &[&str], a: GraphProto, b: GraphProto| of(vec![branches(outputs, a, b)]);
    let mut missing = choice(&["y"], inner(&["p"]), inner(&["q"]));
    graph(&mut missing).node[0].attribute.pop();
    let given = graph_of(&["g"], &["p"], vec![copy("g", "p")]);
    let nested = branches(
        &["b"],
        graph_of(&[], &["p"], vec![relu("a", "p")]),
        graph_of(&[], &["q"], vec![copy("a", "q")]),
    );
    let mut custom = node("Add", &["x", ""], &["y"], vec![]);
    custom.domain = Some("custom".into());
    let custom = changed(of(vec![custom]), |m| {
        m.opset_import.push(onnx_container::proto::OperatorSetIdProto::new("custom", 1));
    });
    check(vec![
        ("sound", one("Add", &["x", "x"], &["y"]), &[]),
        (
            "left out",
            one("Add", &["x", ""], &["y"]),
            &["E the node of `y` (Add) leaves out input 1, which its operator needs"],
        ),
        ("one", one("Add", &["x"], &["y"]), &["E has 1 input, its operator needs at least 2"]),
        (
            "three",
            one("Add", &["x", "x", "x"], &["y"]),
            &["E has 3 inputs, its operator takes at most 2"],
        ),
        (
            "two outputs",
            one("Relu", &["x"], &["y", "z"]),
            &["E has 2 outputs, its operator takes at most 1"],
        ),
        ("optional", one("Clip", &["x", "", "x"], &["y"]), &[]),
        ("of many", one("Max", &["x", ""], &["y"]), &[]),
        ("an unknown operator", one("Foo", &[""], &["y"]), &[]),
        ("another domain's", custom, &[]),
        ("a call", calling(&["x", "x"], &["y", "z"]), &[]),
        ("with an input left out", calling(&["x", ""], &["y", "z"]), &[]),
        ("with fewer inputs", calling(&["x"], &["y", "z"]), &[]),
        (
            "with more inputs",
            calling(&["x", "x", "x"], &["y", "z"]),
            &[
                "E the node of `y` (F) has 3 inputs, its function declares 2, which onnxruntime refuses",
            ],
        ),
        (
            "with an empty one more",
            calling(&["x", "x", ""], &["y", "z"]),
            &["E has 3 inputs, its function declares 2"],
        ),
        (
            "with more outputs",
            calling(&["x"], &["y", "z", "u"]),
            &["E has 3 outputs, its function declares 2"],
        ),
        (
            "with fewer outputs",
            calling(&["x"], &["y"]),
            &["A has 1 output, its function declares 2"],
        ),
        ("a choice", choice(&["y"], inner(&["p"]), inner(&["q"])), &[]),
        (
            "branches of other numbers",
            choice(&["y"], inner(&["p", "r"]), inner(&["q"])),
            &[
                "E the node of `y` (If) has 1 output, but its then_branch has 2, which onnxruntime refuses",
            ],
        ),
        (
            "no output",
            choice(&["y"], inner(&["p"]), inner(&[])),
            &["E has 1 output, but its else_branch has 0"],
        ),
        (
            "more outputs",
            choice(&["y", "z"], inner(&["p"]), inner(&["q"])),
            &["E has 2 outputs, but its then_branch has 1"],
        ),
        (
            "a branch with an input",
            choice(&["y"], given, inner(&["q"])),
            &["E has a then_branch with inputs"],
        ),
        ("one branch", missing, &["E has no else_branch"]),
        ("the same set", of_set(21, vec![relu("a", "b")]), &[]),
        ("the same operator", of_set(14, vec![relu("a", "b")]), &[]),
        (
            "another operator",
            of_set(12, vec![copy("a", "t"), relu("t", "b")]),
            &[
                "A in `local::F`: the node of `t` (Identity) is another operator in the model's version",
            ],
        ),
        (
            "in a branch",
            of_set(16, vec![relu("a", "t"), copy("t", "u"), nested_of(nested)]),
            &["A is another operator"],
        ),
    ]);
}

fn nested_of(mut nested: NodeProto) -> NodeProto {
    nested.input[0] = "a".into();
    nested
}

#[test]
fn functions_that_readers_take_for_operators() {
    const SHADOWS: &str =
        "A the function has the name of an operator of ONNX: onnxruntime and onnx's reference";
    let named = |domain: &str, name: &str, in_node: &str| {
        let mut body = function(name, &["a"], &["b"], vec![node("Neg", &["a"], &["b"], vec![])]);
        body.domain = Some(domain.into());
        let mut call = node(name, &["x"], &["y"], vec![]);
        call.domain = Some(in_node.into());
        let mut model = model_of(graph_of(&["x"], &["y"], vec![call]), vec![body]);
        let set = onnx_container::proto::OperatorSetIdProto::new(domain, 1);
        model.opset_import.extend((!matches!(domain, "" | "ai.onnx" | "local")).then_some(set));
        model
    };
    check(vec![
        ("Relu", named("", "Relu", ""), &[SHADOWS]),
        ("ai.onnx.Relu", named("ai.onnx", "Relu", ""), &[SHADOWS]),
        ("Relu of ai.onnx", named("", "Relu", "ai.onnx"), &[SHADOWS]),
        ("a later one", named("", "Swish", ""), &[SHADOWS]),
        ("of machine learning", named("ai.onnx.ml", "Scaler", "ai.onnx.ml"), &[SHADOWS]),
        (
            "of onnxruntime",
            named("com.microsoft", "Gelu", "com.microsoft"),
            &["A is in a domain of onnxruntime's own"],
        ),
        ("one's own", named("local", "Relu", "local"), &[]),
        ("an unknown one", named("", "Foo", ""), &["E calls a function in the domain of ONNX"]),
    ]);
}

#[test]
fn values_that_are_not_there_or_are_other_ones() {
    let empty = |kind| {
        changed(AttributeProto::default(), |a| {
            (a.name, a.r#type) = (Some("value".into()), Some(kind));
        })
    };
    let constant = |kind| of(vec![node("Constant", &[], &["y"], vec![empty(kind)])]);
    let initialized = |tensor: TensorProto| {
        changed(of(vec![copy("x", "y")]), |model| graph(model).initializer.push(tensor))
    };
    let body = |change: fn(&mut onnx_container::proto::FunctionProto)| {
        changed(in_body(vec![]), |model| change(&mut model.functions[0]))
    };
    check(vec![
        ("no tensor", constant(AttributeProto::TENSOR), &["E has no value, and its type says `t`"]),
        ("no graph", constant(AttributeProto::GRAPH), &["E its type says `g`"]),
        ("no sparse tensor", constant(AttributeProto::SPARSE_TENSOR), &["E `sparse_tensor`"]),
        ("no type", constant(AttributeProto::TYPE_PROTO), &["E its type says `tp`"]),
        ("no numbers", constant(AttributeProto::INTS), &[]),
        ("as declared", initialized(floats("x", 0, 2)), &[]),
        ("another shape", initialized(floats("x", 0, 3)), &["E an initializer of another shape"]),
        (
            "another rank",
            initialized(changed(floats("x", 0, 2), |x| x.dims = vec![2, 1])),
            &["E an initializer of another shape"],
        ),
        (
            "another type",
            initialized(int64s("x", &[1, 2])),
            &["E an initializer of another element type than the input of this name"],
        ),
        (
            "a key of the metadata twice",
            changed(of(vec![copy("x", "y")]), |model| {
                let entry = StringStringEntryProto::new("k", "v");
                model.metadata_props = vec![entry.clone(), entry];
            }),
            &["A two entries of `metadata_props` have the key `k`"],
        ),
        (
            "a reference in no function",
            leaky(vec![parameter("alpha", AttributeProto::FLOAT, "slope")]),
            &[
                "A attribute `alpha` of the node of `y` (LeakyRelu) refers to a function's attribute",
            ],
        ),
        (
            "an attribute twice",
            body(|f| f.attribute = vec!["k".into(), "k".into()]),
            &["A lists the attribute `k` twice"],
        ),
        (
            "an output that is an input",
            body(|f| (f.output, f.node) = (vec!["a".into()], vec![])),
            &["E has `a` as an input and an output"],
        ),
    ]);
}
