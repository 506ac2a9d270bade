//! The semantic digest: what leaves it as it is, what changes it, and what has none.

mod bounds;
mod empty_names;
mod mutations;
mod shadows;

use std::collections::HashMap;

use ndarray::Array1;
use onnx_container::digest::SemanticDigest;
use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto,
    Packed, SparseTensorProto, StringStringEntryProto, TensorProto, TypeProto, ValueInfoProto,
};
use onnx_container::{
    Buffer, Container, DataType, Error, ErrorKind, Initializer, Result, Tensor, WeightSource,
};

use crate::support::{
    branches, call, constant, floats, function, graph, graph_of, int64s, model, model_of, node,
    parameter, tensors_everywhere, vectors,
};

fn digest(model: &ModelProto) -> SemanticDigest {
    let text = || crate::dump::dump(model);
    Container::new(model.clone()).semantic_digest().unwrap_or_else(|e| panic!("{e}\n{}", text()))
}

fn main_of(model: &mut ModelProto) -> &mut GraphProto {
    model.graph.as_mut().unwrap()
}

/// `y = Gemm(Relu(x), w) + k`, where `k` is a Constant; `u` is not used.
fn small() -> ModelProto {
    let gemm = node("Gemm", &["r", "w"], &["g"], vec![AttributeProto::float("alpha", 0.5)]);
    let nodes = vec![
        node("Relu", &["x"], &["r"], vec![]),
        constant("k", floats("", 3, 2)),
        gemm,
        node("Add", &["g", "k"], &["y"], vec![]),
        node("Neg", &["r"], &["u"], vec![]),
    ];
    let mut graph = graph_of(&["x"], &["y"], nodes);
    graph.initializer.push(floats("w", 0, 2));
    model(graph)
}

/// A model with one node between the inputs `a`, `b` and the output `y`.
fn single(one: NodeProto) -> ModelProto {
    model(graph_of(&["a", "b"], &["y"], vec![one]))
}

fn with(mut model: ModelProto, change: impl FnOnce(&mut ModelProto)) -> ModelProto {
    change(&mut model);
    model
}

/// `before` and `after`, changed by each function of a table.
type Changes = Vec<(&'static str, Box<dyn Fn(&mut ModelProto)>)>;

fn change(name: &'static str, f: impl Fn(&mut ModelProto) + 'static) -> Changes {
    vec![(name, Box::new(f))]
}

/// Sets the element type and elements of the tensor `w`.
fn weights(model: &mut ModelProto, change: impl FnOnce(&mut TensorProto)) {
    change(&mut main_of(model).initializer[0]);
}

fn neutral() -> Changes {
    [
        change("values are renamed", |m| {
            let g = main_of(m);
            for name in g.node.iter_mut().flat_map(|n| n.input.iter_mut().chain(&mut n.output)) {
                *name = format!("{name}'").into();
            }
            g.input[0].name = Some("x'".into());
            g.output[0].name = Some("y'".into());
            g.initializer[0].name = Some("w'".into());
        }),
        change("nodes have another order", |m| main_of(m).node.rotate_right(2)),
        change("the model is described", |m| {
            m.doc_string = Some(Box::new("doc".into()));
            m.producer_name = Some("p".into());
            (m.model_version, m.domain) = (Some(7), Some("d".into()));
            m.ir_version = Some(9);
            m.metadata_props.push(StringStringEntryProto::new("k", "v"));
            let g = main_of(m);
            g.name = Some("other".into());
            g.node[0].name = Some("n".into());
            g.node[0].doc_string = Some("doc".into());
            g.node[0].metadata_props.push(StringStringEntryProto::new("k", "v"));
            g.node[2].attribute[0].doc_string = Some("doc".into());
            g.initializer[0].doc_string = Some(Box::new("doc".into()));
            g.input[0].doc_string = Some(Box::new("doc".into()));
            g.value_info = vectors(&["r"]);
        }),
        change("outputs have no types", |m| main_of(m).output[0].r#type = None),
        change("defaults are written", |m| {
            let more = [AttributeProto::int("transA", 0), AttributeProto::float("beta", 1.0)];
            main_of(m).node[2].attribute.splice(0..0, more);
        }),
        change("what is not used is gone", |m| drop(main_of(m).node.pop())),
        change("what is not used is wrong", |m| {
            main_of(m).node[4].input[0] = "nobody".into();
            main_of(m).initializer.push(TensorProto::external("t", 1, [9], "#none"));
        }),
        change("a value goes through Identity", |m| {
            main_of(m).node[3].input[0] = "i".into();
            main_of(m).node.push(node("Identity", &["g"], &["i"], vec![]));
        }),
        change("a Constant is an initializer", |m| {
            main_of(m).node.remove(1);
            main_of(m).initializer.push(floats("k", 3, 2));
        }),
        change("a Constant has its elements as a list", |m| {
            let list = AttributeProto::floats("value_floats", vec![3.0, 4.0]);
            main_of(m).node[1].attribute = vec![list];
        }),
        change("an initializer is a Constant", |m| {
            main_of(m).initializer.clear();
            main_of(m).node.push(constant("w", floats("ignored", 0, 2)));
        }),
        change("elements are in a typed field", |m| {
            weights(m, |w| {
                (w.raw_data, *w.float_data) = (None, Packed::from(vec![0.0_f32, 1.0]));
            });
        }),
        change("optional inputs are written as left out", |m| {
            main_of(m).node[2].input.push("".into());
        }),
        change("the domain of ONNX is written", |m| {
            main_of(m).node[0].domain = Some("ai.onnx".into());
            m.opset_import[0].domain = Some("ai.onnx".into());
        }),
        change("operators are the same in another version", |m| {
            m.opset_import[0].version = Some(20);
        }),
        change("sets of other operators are imported", |m| {
            m.opset_import.push(OperatorSetIdProto::new("com.other", 3));
        }),
        change("there is a function that nothing calls", |m| {
            m.functions.push(function("f", &["a"], &["b"], vec![]));
        }),
        change("there is a training graph", |m| {
            m.training_info = tensors_everywhere().training_info;
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn telling() -> Changes {
    [
        change("another operator", |m| main_of(m).node[0].op_type = Some("Abs".into())),
        change("an operator of another domain", |m| main_of(m).node[0].domain = Some("d".into())),
        change("an overload", |m| main_of(m).node[0].overload = Some(Box::new("o".into()))),
        change("another version of an operator", |m| m.opset_import[0].version = Some(12)),
        change("a version that is newer than the table", |m| {
            m.opset_import[0].version = Some(1000);
        }),
        change("another value of an attribute", |m| {
            main_of(m).node[2].attribute[0].f = Some(0.25);
        }),
        change("an attribute less", |m| main_of(m).node[2].attribute.clear()),
        change("an attribute more", |m| {
            main_of(m).node[2].attribute.push(AttributeProto::int("transB", 1));
        }),
        change("an attribute that nobody knows", |m| {
            main_of(m).node[2].attribute.push(AttributeProto::int("mine", 0));
        }),
        change("another type of an attribute", |m| {
            main_of(m).node[2].attribute[0] = AttributeProto::int("alpha", 0);
        }),
        change("another edge", |m| main_of(m).node[3].input[0] = "r".into()),
        change("inputs the other way round", |m| main_of(m).node[3].input.reverse()),
        change("an input more", |m| main_of(m).node[2].input.push("x".into())),
        change("an output more", |m| main_of(m).node[0].output.push("more".into())),
        change("a bit of a weight", |m| {
            weights(m, |w| w.raw_data = Some(vec![1, 0, 0, 0, 0, 0, 128, 63].into()));
        }),
        change("a sign of zero", |m| {
            weights(m, |w| w.raw_data = Some(vec![0, 0, 0, 128, 0, 0, 128, 63].into()));
        }),
        change("another shape of a weight", |m| weights(m, |w| w.dims = vec![1, 2])),
        change("another type of a weight", |m| weights(m, |w| w.data_type = Some(6))),
        change("another type of an input", |m| {
            main_of(m).input[0] = ValueInfoProto::tensor("x", TensorProto::FLOAT16, [2]);
        }),
        change("another shape of an input", |m| {
            main_of(m).input[0] = ValueInfoProto::tensor("x", TensorProto::FLOAT, [3]);
        }),
        change("an input without a type", |m| main_of(m).input[0].r#type = None),
        change("an input more that nothing uses", |m| {
            main_of(m).input.push(ValueInfoProto::tensor("z", TensorProto::FLOAT, [2]));
        }),
        change("an initializer that may be given", |m| {
            main_of(m).input.extend(vectors(&["w"]));
        }),
        change("another output", |m| main_of(m).output[0].name = Some("g".into())),
        change("an output twice", |m| {
            let output = main_of(m).output[0].clone();
            main_of(m).output.push(output);
        }),
        change("a field of a node that is not known", |m| {
            let mut bytes = main_of(m).node[0].encode_to_vec().unwrap();
            bytes.extend(b"\xf8\x07\x01");
            main_of(m).node[0] = NodeProto::decode(&bytes.into()).unwrap();
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn what_is_not_computed_with_does_not_matter() {
    let expected = digest(&small());
    for (name, change) in neutral() {
        assert_eq!(digest(&with(small(), change)), expected, "{name}");
    }
}

#[test]
fn what_is_computed_with_matters() {
    let mut seen = HashMap::from([(digest(&small()).to_string(), "nothing")]);
    for (name, change) in telling() {
        let digest = digest(&with(small(), change));
        if let Some(other) = seen.insert(digest.to_string(), name) {
            panic!("{name} and {other}: the same digest");
        }
    }
}

#[test]
fn attributes_of_every_type_matter() {
    let t = |value: f32| {
        TensorProto::new("n", TensorProto::FLOAT, []).with_raw_data(value.to_le_bytes().to_vec())
    };
    let sparse = |dim| SparseTensorProto::new(floats("v", 0, 1), int64s("", &[0]), vec![dim]);
    let typed = |dims: &[i64]| TypeProto::tensor(1, dims.iter().copied());
    let tp = |value: TypeProto| {
        let mut attribute = AttributeProto::default();
        (attribute.name, attribute.r#type) = (Some("a".into()), Some(AttributeProto::TYPE_PROTO));
        attribute.tp = Some(Box::new(value));
        attribute
    };
    let tps = |values: Vec<TypeProto>| {
        let mut attribute = AttributeProto::default();
        (attribute.name, attribute.r#type) = (Some("a".into()), Some(AttributeProto::TYPE_PROTOS));
        attribute.type_protos = values;
        attribute
    };
    let g = |op: &str| graph_of(&[], &["o"], vec![node(op, &["a"], &["o"], vec![])]);
    let nan = |bits: u32| f32::from_bits(0x7fc0_0000 | bits);
    let all = [
        AttributeProto::int("a", 0),
        AttributeProto::int("a", -1),
        AttributeProto::float("a", 0.0),
        AttributeProto::float("a", -0.0),
        AttributeProto::float("a", nan(0)),
        AttributeProto::float("a", nan(1)),
        AttributeProto::string("a", ""),
        AttributeProto::string("a", "s"),
        AttributeProto::ints("a", vec![]),
        AttributeProto::ints("a", vec![1, 2]),
        AttributeProto::ints("a", vec![2, 1]),
        AttributeProto::floats("a", vec![]),
        AttributeProto::floats("a", vec![1.0]),
        AttributeProto::strings("a", ["ab", "c"]),
        AttributeProto::strings("a", ["a", "bc"]),
        AttributeProto::strings("a", ["abc"]),
        AttributeProto::tensor("a", t(1.0)),
        AttributeProto::tensor("a", t(2.0)),
        AttributeProto::tensors("a", vec![t(1.0)]),
        AttributeProto::tensors("a", vec![t(1.0), t(1.0)]),
        AttributeProto::sparse_tensor("a", sparse(8)),
        AttributeProto::sparse_tensor("a", sparse(9)),
        AttributeProto::sparse_tensors("a", vec![sparse(8)]),
        AttributeProto::graph("a", g("Abs")),
        AttributeProto::graph("a", g("Neg")),
        AttributeProto::graphs("a", vec![g("Neg")]),
        tp(typed(&[1])),
        tp(typed(&[2])),
        tps(vec![typed(&[1])]),
        tps(vec![typed(&[1]), typed(&[1])]),
        AttributeProto::int("b", 0),
    ];
    let mut seen = HashMap::new();
    for (i, attribute) in all.into_iter().enumerate() {
        for op in ["Mine", "Relu"] {
            let model = single(node(op, &["a"], &["y"], vec![attribute.clone()]));
            let other = seen.insert(digest(&model).to_string(), (op, i));
            assert_eq!(other, None, "{op} {i}");
        }
    }
}

#[test]
fn an_attribute_without_a_type_has_that_of_its_field() {
    let typed = AttributeProto::int("axis", 0);
    let untyped = with_attribute(typed.clone(), |a| a.r#type = None);
    let model = |attribute| single(node("Softmax", &["a"], &["y"], vec![attribute]));
    assert_eq!(digest(&model(untyped)), digest(&model(typed)));
}

fn with_attribute(mut a: AttributeProto, f: impl FnOnce(&mut AttributeProto)) -> AttributeProto {
    f(&mut a);
    a
}

/// An `If` that gives `op(value)` or the input.
fn conditional(op: &str, value: &str, inner: &str) -> ModelProto {
    let then = graph_of(&[], &[inner], vec![node(op, &[value], &[inner], vec![])]);
    let otherwise = graph_of(&[], &["e"], vec![node("Identity", &["x"], &["e"], vec![])]);
    let nodes = vec![node("Abs", &["x"], &["t"], vec![]), branches(&["y"], then, otherwise)];
    model_of(graph_of(&["c", "x"], &["y"], nodes), vec![])
}

#[test]
fn graphs_in_attributes_see_the_graph_around_them() {
    let expected = digest(&conditional("Neg", "t", "o"));
    assert_eq!(digest(&conditional("Neg", "t", "renamed")), expected);
    assert_ne!(digest(&conditional("Neg", "x", "o")), expected);
    assert_ne!(digest(&conditional("Relu", "t", "o")), expected);
    let mut moved = conditional("Neg", "t", "o");
    main_of(&mut moved).node.reverse();
    assert_eq!(digest(&moved), expected);
}

/// A Loop in a Loop, each with the inputs `i`, `go` and `v` under other names; the inner one gives
/// `value`.
fn nested(names: [&str; 6], value: usize) -> ModelProto {
    let body = |names: &[&str], nodes: Vec<NodeProto>, outputs: [&str; 2]| {
        let mut body = graph_of(&[], &[], nodes);
        body.input = names.iter().map(|n| ValueInfoProto::tensor(*n, 1, [2])).collect();
        body.output = vectors(&outputs);
        AttributeProto::graph("body", body)
    };
    let inner_nodes = vec![node("Neg", &[names[value]], &["inner_o"], vec![])];
    let inner = body(&names[3..], inner_nodes, [names[4], "inner_o"]);
    let outer_nodes = vec![node("Loop", &["", names[1], names[2]], &["o"], vec![inner])];
    let outer = body(&names[..3], outer_nodes, [names[1], "o"]);
    let main = vec![node("Loop", &["", "c", "x"], &["y"], vec![outer])];
    model_of(graph_of(&["c", "x"], &["y"], main), vec![])
}

#[test]
fn inputs_of_graphs_are_told_by_depth_and_place() {
    let names = ["i", "go", "v", "j", "on", "u"];
    let mut seen = HashMap::new();
    for value in 0..names.len() {
        let digest = digest(&nested(names, value));
        assert_eq!(digest, self::digest(&nested(["a", "b", "d", "e", "f", "g"], value)));
        assert_eq!(seen.insert(digest.to_string(), value), None);
    }
    // The inner graph hides the outer one's names where it has the same.
    assert_eq!(digest(&nested(["i", "go", "v", "i", "go", "v"], 5)), digest(&nested(names, 5)));
}

#[test]
fn symbolic_dimensions_are_numbered() {
    let symbols = |names: [&str; 3]| {
        let mut model = single(node("Add", &["a", "b"], &["y"], vec![]));
        for (input, pair) in main_of(&mut model).input.iter_mut().zip([[0, 1], [1, 2]]) {
            let dims = pair.map(|i| names[i].trim_matches('?').into());
            let name = input.name.clone().unwrap();
            *input = ValueInfoProto::tensor_with(name, TensorProto::FLOAT, dims);
        }
        digest(&model).to_string()
    };
    assert_eq!(symbols(["n", "m", "k"]), symbols(["batch", "rows", "columns"]));
    let all = ["n m k", "n n k", "n m m", "n m n", "n n n", "? m k", "n ? k", "? ? ?"];
    let parts = |text: &'static str| text.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let found: std::collections::HashSet<_> = all.map(|text| symbols(parts(text))).into();
    assert_eq!(found.len(), all.len());
    // What exporters call every dimension without a name is no name.
    let of_dimension = |name: &str| {
        let mut model = single(node("Add", &["a", "b"], &["y"], vec![]));
        for input in &mut main_of(&mut model).input {
            let value = input.name.clone().unwrap();
            *input = ValueInfoProto::tensor_with(value, TensorProto::FLOAT, [name.into()]);
        }
        digest(&model)
    };
    assert_eq!(of_dimension("?"), of_dimension(""));
    assert_ne!(of_dimension("?"), of_dimension("n"));
}

/// Each tensor would be read in full, and there can be a million of them in a small file.
#[test]
fn tensors_that_overlap_in_part_are_read_a_few_times_at_most() {
    let file = Buffer::from(vec![0_u8; 16 << 20]);
    let container = |count: usize| {
        let mut container = Container::new(model(graph_of(&[], &["y"], Vec::new())));
        let graph = main_of(container.model_mut());
        let names: Vec<_> = (0..count).map(|i| format!("w{i}")).collect();
        let inputs: Vec<_> = names.iter().map(String::as_str).collect();
        graph.node.push(node("Max", &inputs, &["y"], vec![]));
        let dims = [(16 << 20) - 64];
        for (i, name) in names.iter().enumerate() {
            let handle = format!("#{name}");
            let bytes = file.slice(i..i + (16 << 20) - 64).unwrap();
            let tensor = Tensor::new(DataType::Uint8, dims, bytes).unwrap();
            container.insert(handle.as_str(), Initializer::from(tensor)).unwrap();
            let tensor = TensorProto::external(name.as_str(), TensorProto::UINT8, dims, handle);
            main_of(container.model_mut()).initializer.push(tensor);
        }
        container
    };
    container(3).semantic_digest().unwrap();
    let error = container(60).semantic_digest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("overlap in part"), "{error}");
}

fn leaky() -> FunctionProto {
    let body = vec![
        node("LeakyRelu", &["a"], &["t"], vec![parameter("alpha", AttributeProto::FLOAT, "slope")]),
        node("Add", &["t", "b"], &["o"], vec![]),
        node("Neg", &["t"], &["unused"], vec![]),
    ];
    let mut function = function("leaky", &["a", "b"], &["o", "unused"], body);
    function.attribute_proto.push(AttributeProto::float("slope", 0.3));
    function
}

fn leaky_calls(slope: Option<f32>) -> ModelProto {
    let slope: Vec<_> =
        slope.map(|slope| AttributeProto::float("slope", slope)).into_iter().collect();
    let nodes = vec![
        call("leaky", &["x", "z"], &["t"], slope.clone()),
        call("leaky", &["t", "x"], &["y"], slope),
    ];
    model_of(graph_of(&["x", "z"], &["y"], nodes), vec![leaky()])
}

#[test]
fn calls_are_what_their_functions_do() {
    let inlined = |slope| {
        let relu = |input: &str, output: &str| {
            let alpha = AttributeProto::float("alpha", slope);
            node("LeakyRelu", &[input], &[output], vec![alpha])
        };
        let add = |inputs: [&str; 2], output: &str| node("Add", &inputs, &[output], vec![]);
        let nodes =
            vec![relu("x", "1"), add(["1", "z"], "2"), relu("2", "3"), add(["3", "x"], "y")];
        digest(&model(graph_of(&["x", "z"], &["y"], nodes)))
    };
    assert_eq!(digest(&leaky_calls(None)), inlined(0.3));
    assert_eq!(digest(&leaky_calls(Some(0.7))), inlined(0.7));
    assert_eq!(digest(&leaky_calls(Some(0.3))), inlined(0.3));
    assert_ne!(inlined(0.7), inlined(0.3));
    let mut default = leaky_calls(Some(0.01));
    default.functions[0].attribute_proto.clear();
    // LeakyRelu's own default.
    assert_eq!(digest(&default), inlined(0.01));
    main_of(&mut default).node.iter_mut().for_each(|call| call.attribute.clear());
    assert_eq!(digest(&default), inlined(0.01));
}

#[test]
fn a_function_has_its_own_operator_sets() {
    let of = |version, model_version| {
        let mut model = leaky_calls(None);
        model.functions[0].opset_import[0].version = Some(version);
        model.opset_import[0].version = Some(model_version);
        digest(&model)
    };
    assert_eq!(of(21, 21), of(17, 12));
    // LeakyRelu changed in 16.
    assert_ne!(of(15, 15), of(16, 15));
    let mut none = leaky_calls(None);
    none.functions[0].opset_import.clear();
    assert_eq!(digest(&none), of(21, 21));
}

/// `y = twice_n(x)`, where each function calls the next one twice.
fn doubling(depth: usize, op: &str) -> ModelProto {
    let level = |n: usize| {
        let name = format!("f{n}");
        if n == 0 {
            return function(&name, &["a"], &["b"], vec![node(op, &["a"], &["b"], vec![])]);
        }
        let inner = format!("f{}", n - 1);
        let nodes =
            vec![call(&inner, &["a"], &["l"], vec![]), call(&inner, &["a"], &["r"], vec![])];
        let add = node("Add", &["l", "r"], &["b"], vec![]);
        function(&name, &["a"], &["b"], [nodes, vec![add]].concat())
    };
    let last = format!("f{depth}");
    let main = graph_of(&["x"], &["y"], vec![call(&last, &["x"], &["y"], vec![])]);
    model_of(main, (0..=depth).map(level).collect())
}

#[test]
fn calls_of_the_same_are_evaluated_once() {
    let deep = digest(&doubling(60, "Neg"));
    let mut nodes = vec![node("Neg", &["x"], &["v0"], vec![])];
    for i in 0..60 {
        let [from, to] = [format!("v{i}"), format!("v{}", i + 1)];
        nodes.push(node("Add", &[&from, &from], &[&to], vec![]));
    }
    assert_eq!(deep, digest(&model(graph_of(&["x"], &["v60"], nodes))));
    // Every call of an operator that may draw is its own.
    let error = Container::new(doubling(60, "RandomNormalLike")).semantic_digest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}

#[test]
fn chains_may_be_long() {
    let name = |i: usize| format!("v{i}");
    let link = |i: usize| node("Neg", &[&name(i)], &[&name(i + 1)], vec![]);
    let count = 20_000;
    let mut nodes: Vec<_> = (0..count).map(link).collect();
    let last = name(count);
    let sorted = model(graph_of(&["v0"], &[&last], nodes.clone()));
    nodes.reverse();
    assert_eq!(digest(&sorted), digest(&model(graph_of(&["v0"], &[&last], nodes))));

    let level = |i: usize| {
        let body = match i {
            0 => node("Neg", &["a"], &["b"], vec![]),
            _ => call(&format!("f{}", i - 1), &["a"], &["b"], vec![]),
        };
        function(&format!("f{i}"), &["a"], &["b"], vec![body])
    };
    for op in ["Neg", "RandomNormalLike"] {
        let mut functions: Vec<_> = (0..2000).map(level).collect();
        functions[0].node[0].op_type = Some(op.into());
        let main = graph_of(&["x"], &["y"], vec![call("f1999", &["x"], &["y"], vec![])]);
        let flat = single(node(op, &["a"], &["y"], vec![]));
        let flat = with(flat, |m| drop(main_of(m).input.pop()));
        assert_eq!(digest(&model_of(main, functions)), digest(&flat), "{op}");
    }
}

/// Two draws of `op` and what is made of them.
fn draws(op: &str, inputs: [&str; 2], shared: bool, attributes: &[AttributeProto]) -> ModelProto {
    let draw = |output: &str| node(op, &["a"], &[output], attributes.to_vec());
    let second = if shared { node("Identity", &["r"], &["s"], vec![]) } else { draw("s") };
    let nodes = vec![draw("r"), second, node("Sub", &inputs, &["y"], vec![])];
    model(graph_of(&["a", "b"], &["y"], nodes))
}

#[test]
fn two_draws_are_not_one() {
    let seed = AttributeProto::float("seed", 3.0);
    for (op, attributes) in [
        ("RandomNormalLike", vec![]),
        ("RandomUniformLike", vec![seed]),
        ("Bernoulli", vec![]),
        ("Multinomial", vec![]),
        // Nobody knows what these do.
        ("Mine", vec![]),
        ("Gelu2", vec![]),
    ] {
        let two = digest(&draws(op, ["r", "s"], false, &attributes));
        assert_ne!(two, digest(&draws(op, ["r", "s"], true, &attributes)), "{op}");
        // Which of the two is which cannot be told, whatever their order.
        assert_eq!(two, digest(&draws(op, ["s", "r"], false, &attributes)), "{op}");
    }
    for op in ["Neg", "Dropout"] {
        let two = digest(&draws(op, ["r", "s"], false, &[]));
        assert_eq!(two, digest(&draws(op, ["r", "s"], true, &[])), "{op}");
    }
}

/// A Loop that adds a draw to its value in each turn: made in the body, or before the loop.
fn looped_draw(op: &str, inside: bool) -> ModelProto {
    let draw = node(op, &["a"], &["r"], vec![]);
    let add = node("Add", &["v", "r"], &["w"], vec![]);
    let go = node("Identity", &["go"], &["on"], vec![]);
    let (body, outer) =
        if inside { (vec![draw, add, go], vec![]) } else { (vec![add, go], vec![draw]) };
    let body = graph_of(&["i", "go", "v"], &["on", "w"], body);
    let turn = node("Loop", &["n", "", "a"], &["y"], vec![AttributeProto::graph("body", body)]);
    model(graph_of(&["a", "n"], &["y"], [outer, vec![turn]].concat()))
}

#[test]
fn a_draw_in_a_loop_is_not_one_before_it() {
    for (op, same) in
        [("RandomUniformLike", false), ("Bernoulli", false), ("Mine", false), ("Neg", true)]
    {
        let [inside, before] = [true, false].map(|inside| digest(&looped_draw(op, inside)));
        assert_eq!(inside == before, same, "{op}");
    }
}

/// A Conv or another operator over an image, with these lists.
fn window(
    op: &str,
    version: i64,
    lists: &[(&str, &[i64])],
    auto_pad: Option<&str>,
) -> SemanticDigest {
    let ints = |(name, list): &(&str, &[i64])| AttributeProto::ints(*name, list.to_vec());
    let mut attributes: Vec<_> = lists.iter().map(ints).collect();
    attributes.extend(auto_pad.map(|text| AttributeProto::string("auto_pad", text)));
    let mut proto = single(node(op, &["a", "b"], &["y"], attributes));
    proto.opset_import[0].version = Some(version);
    digest(&proto)
}

#[test]
fn lists_that_say_what_a_window_is_without_them_do_not_matter() {
    const KERNEL: (&str, &[i64]) = ("kernel_shape", &[3, 3]);
    let cases: [(&str, i64, &[i64], &str, bool); 16] = [
        ("Conv", 22, &[1, 1], "strides", true),
        ("Conv", 11, &[1, 1], "dilations", true),
        ("Conv", 22, &[0, 0, 0, 0], "pads", true),
        ("ConvInteger", 10, &[1, 1], "strides", true),
        ("QLinearConv", 10, &[0, 0, 0, 0], "pads", true),
        ("ConvTranspose", 22, &[1, 1], "dilations", true),
        ("MaxPool", 12, &[1, 1], "strides", true),
        ("AveragePool", 19, &[1, 1], "dilations", true),
        ("LpPool", 18, &[1, 1], "strides", true),
        ("MaxUnpool", 11, &[1, 1], "strides", true),
        ("DeformConv", 19, &[1, 1], "strides", true),
        // What has another rank than the window is no default, and neither is another number.
        ("Conv", 22, &[1, 1, 1], "strides", false),
        ("Conv", 22, &[0, 0], "pads", false),
        ("Conv", 22, &[1, 2], "strides", false),
        // This version does not say what is left out, and this operator has no such list.
        ("Conv", 1, &[1, 1], "strides", false),
        ("Gemm", 13, &[1, 1], "strides", false),
    ];
    for (op, version, list, name, same) in cases {
        let bare = window(op, version, &[KERNEL], None);
        let written = window(op, version, &[(name, list), KERNEL], None);
        assert_eq!(written == bare, same, "{op} {version} {name} {list:?}");
        // Without the rank of the window nobody knows how many numbers there have to be.
        assert_ne!(window(op, version, &[(name, list)], None), window(op, version, &[], None));
    }
    let pads: (&str, &[i64]) = ("pads", &[0, 0, 0, 0]);
    for (auto_pad, same) in [("NOTSET", true), ("SAME_UPPER", false), ("VALID", false)] {
        let [bare, written] =
            [&[KERNEL][..], &[KERNEL, pads]].map(|lists| window("Conv", 22, lists, Some(auto_pad)));
        assert_eq!(written == bare, same, "{auto_pad}");
    }
}

#[test]
fn a_dropout_draws_when_it_trains() {
    let dropout = |training: &str, shared: bool| {
        let mut model = draws("Dropout", ["r", "s"], shared, &[]);
        let nodes = main_of(&mut model).node.iter_mut();
        for node in nodes.filter(|node| *node.op_type.as_ref().unwrap() == "Dropout") {
            node.input = ["a", "", training].map(Into::into).into();
        }
        digest(&model)
    };
    assert_eq!(dropout("", false), dropout("", true));
    assert_ne!(dropout("b", false), dropout("b", true));
}

#[test]
fn draws_in_functions_are_those_of_the_inlined_model() {
    // The function uses its inputs in another order than the call gives them.
    let body = vec![
        node("RandomNormalLike", &["q"], &["own"], vec![]),
        node("Concat", &["q", "own", "p"], &["o"], vec![AttributeProto::int("axis", 0)]),
    ];
    let draw = |output: &str| node("RandomNormalLike", &["x"], &[output], vec![]);
    let nodes = vec![draw("r"), draw("s"), call("f", &["r", "s"], &["t"], vec![])];
    let nodes = [nodes, vec![call("f", &["s", "t"], &["y"], vec![])]].concat();
    let functions = vec![function("f", &["p", "q"], &["o"], body)];
    let called = model_of(graph_of(&["x"], &["y"], nodes), functions);
    let mut inlined = called.clone();
    onnx_container::inline::inline_functions(
        &mut inlined,
        onnx_container::inline::InlineOptions::new(),
    )
    .unwrap();
    assert!(inlined.functions.is_empty());
    assert_eq!(digest(&called), digest(&inlined));
}

/// Every storage that elements can have, for one tensor.
fn stored(dtype: DataType, dims: &[i64], bytes: &[u8]) -> Vec<Container> {
    let model_of = |tensor: TensorProto| {
        let mut graph = graph_of(&[], &["y"], vec![node("Abs", &["w"], &["y"], vec![])]);
        graph.initializer.push(tensor);
        model(graph)
    };
    let proto = TensorProto::new("w", dtype.number(), dims);
    let inline = Container::new(model_of(proto.clone().with_raw_data(bytes.to_vec())));
    let mut external = inline.clone();
    external.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
    let handle = TensorProto::external("w", dtype.number(), dims, "#w");
    let mut read = Container::new(model_of(handle.clone()));
    read.insert("#w", Initializer::from_source(Slow::new(dtype, dims, bytes)).unwrap()).unwrap();
    let mut lazy = Container::new(model_of(handle));
    let owned = bytes.to_vec();
    let produce = move || Ok::<Vec<u8>, Error>(owned.clone());
    lazy.insert("#w", Initializer::lazy(dtype, dims, produce).unwrap()).unwrap();
    let node = model(graph_of(
        &[],
        &["y"],
        vec![
            constant("w", proto.with_raw_data(bytes.to_vec())),
            node("Abs", &["w"], &["y"], vec![]),
        ],
    ));
    vec![inline, external, read, lazy, Container::new(node)]
}

/// A source that has no memory to show.
struct Slow {
    dtype: DataType,
    dims: Vec<i64>,
    bytes: Vec<u8>,
}

impl Slow {
    fn new(dtype: DataType, dims: &[i64], bytes: &[u8]) -> Self {
        Self { dtype, dims: dims.to_vec(), bytes: bytes.to_vec() }
    }
}

impl WeightSource for Slow {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        assert!(out.len() <= 1 << 20, "as much as a source is asked for at a time");
        out.copy_from_slice(&self.bytes[offset as usize..][..out.len()]);
        Ok(())
    }
}

#[test]
fn where_elements_are_does_not_matter() {
    let long: Vec<u8> = (0..(5 << 18)).map(|i: u32| (i % 251) as u8).collect();
    for (dtype, dims, bytes) in [
        (DataType::Float, vec![2, 1], vec![1, 2, 3, 4, 5, 6, 7, 8]),
        (DataType::Uint8, vec![long.len() as i64], long.clone()),
        (DataType::Int4, vec![3], vec![0x21, 0x03]),
        (DataType::Float6E2M3, vec![3], vec![1, 2, 1]),
        (DataType::Bool, vec![], vec![1]),
        (DataType::Double, vec![0, 7], vec![]),
    ] {
        let all = stored(dtype, &dims, &bytes);
        let digests: Vec<_> = all.iter().map(|one| one.semantic_digest().unwrap()).collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{dtype} {dims:?} {digests:?}");
    }
}

#[test]
fn bits_behind_the_last_element_do_not_matter() {
    let of = |dims: i64, bytes: Vec<u8>| {
        let tensor = TensorProto::new("w", TensorProto::INT4, [dims]).with_raw_data(bytes);
        let mut graph = graph_of(&[], &["w"], vec![]);
        graph.initializer.push(tensor);
        digest(&model(graph))
    };
    assert_eq!(of(3, vec![0x21, 0x03]), of(3, vec![0x21, 0xf3]));
    assert_ne!(of(4, vec![0x21, 0x03]), of(4, vec![0x21, 0xf3]));
}

#[test]
fn strings_are_elements() {
    let of = |texts: &[&str]| {
        let mut tensor = TensorProto::new("w", TensorProto::STRING, [texts.len() as i64]);
        *tensor.string_data = texts.iter().map(|text| text.as_bytes().into()).collect();
        let mut graph = graph_of(&[], &["w"], vec![]);
        graph.initializer.push(tensor);
        digest(&model(graph))
    };
    let constant = |texts: &[&str]| {
        let value = AttributeProto::strings("value_strings", texts.iter().copied());
        digest(&model(graph_of(&[], &["w"], vec![node("Constant", &[], &["w"], vec![value])])))
    };
    assert_eq!(of(&["ab", "c"]), constant(&["ab", "c"]));
    assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
}

#[test]
fn the_digest_of_an_output_covers_what_it_needs() {
    let model = |op: &str| {
        let nodes = vec![node("Neg", &["a"], &["p"], vec![]), node(op, &["b"], &["q"], vec![])];
        digest(&model(graph_of(&["a", "b"], &["p", "q"], nodes)))
    };
    let (a, b) = (model("Abs"), model("Relu"));
    assert_eq!(a.outputs()[0].as_bytes(), b.outputs()[0].as_bytes());
    assert_ne!(a.outputs()[1].as_bytes(), b.outputs()[1].as_bytes());
    assert_eq!([a.outputs()[0].name(), a.outputs()[1].name()], ["p", "q"]);
    assert!(a.to_string().len() == 71 && a.outputs()[0].to_string().starts_with("sha256:"));
}

/// `small`, which imports another version of the standard operators too.
fn imported(domain: &str, version: i64) -> ModelProto {
    let import = OperatorSetIdProto::new(domain, version);
    with(small(), |m| m.opset_import.push(import))
}

/// A branch that reads a name before its node gives it, and the graph around has that name: `t`,
/// which is an output of `op`, or an input.
fn shadowing(op: &str, which: usize) -> ModelProto {
    let name = ["t", "x", "c"][which];
    let inner = vec![node("Abs", &[name], &["i"], vec![]), node("Neg", &["x"], &[name], vec![])];
    let deep = |nodes| graph_of(&[], &["i"], nodes);
    let other = graph_of(&[], &["x"], vec![]);
    let outer = vec![branches(&["i"], deep(inner), other.clone())];
    let nodes = vec![node(op, &["x"], &["t"], vec![]), branches(&["y"], deep(outer), other)];
    model_of(graph_of(&["c", "x"], &["y"], nodes), vec![])
}

/// A name may be used again where nothing sees both values: in the other branch, and after the
/// node.
#[test]
fn a_name_of_a_branch_may_be_used_again_elsewhere() {
    let model = |inner: &str, later: &str| {
        let branch = |op: &str| {
            let nodes = vec![node(op, &["x"], &[inner], vec![])];
            graph_of(&[], &[inner], nodes)
        };
        let nodes = vec![
            branches(&["i"], branch("Neg"), branch("Abs")),
            node("Relu", &["i"], &[later], vec![]),
            node("Neg", &[later], &["y"], vec![]),
        ];
        digest(&model_of(graph_of(&["c", "x"], &["y"], nodes), vec![]))
    };
    let expected = model("a", "b");
    assert_eq!(model("a", "a"), expected);
    assert_eq!(model("i", "a"), expected);
}

/// Versions that are the same, or that nothing needs, do no harm.
#[test]
fn a_domain_may_be_imported_twice_in_one_version() {
    let expected = digest(&small());
    assert_eq!(digest(&imported("ai.onnx", 21)), expected);
    assert_eq!(
        digest(&with(imported("mine", 1), |m| {
            m.opset_import.push(OperatorSetIdProto::new("mine", 2));
        })),
        expected
    );
}

#[test]
fn what_has_no_meaning_has_no_digest() {
    let two = |nodes: Vec<NodeProto>| model(graph_of(&["a", "b"], &["y"], nodes));
    let attributes = |all: Vec<AttributeProto>| single(node("Mine", &["a"], &["y"], all));
    let mut missing = small();
    main_of(&mut missing).initializer[0] = TensorProto::external("w", 1, [2], "#w");
    let mut short = small();
    weights(&mut short, |w| w.dims = vec![3]);
    let mut twice = small();
    main_of(&mut twice).initializer.push(floats("r", 0, 2));
    let recursive = function("f", &["a"], &["b"], vec![call("f", &["a"], &["b"], vec![])]);
    let called = |functions| {
        model_of(graph_of(&["x"], &["y"], vec![call("f", &["x", "x"], &["y"], vec![])]), functions)
    };
    let open = function("f", &["a", "c"], &["b"], vec![node("Neg", &["x"], &["b"], vec![])]);
    let nothing = function("f", &["a", "c"], &["b"], vec![]);
    let few = function("f", &["a"], &["b"], vec![node("Neg", &["a"], &["b"], vec![])]);
    let several = with_attribute(AttributeProto::int("i", 1), |a| a.f = Some(1.0));
    let neither = with_attribute(AttributeProto::int("i", 1), |a| (a.i, a.r#type) = (None, None));
    let strange =
        with_attribute(AttributeProto::int("i", 1), |a| (a.i, a.r#type) = (None, Some(99)));
    let mut imported_by_function = leaky_calls(None);
    let second = OperatorSetIdProto::new("ai.onnx", 15);
    imported_by_function.functions[0].opset_import.push(second);
    let value = with_attribute(parameter("i", 2, "p"), |a| a.i = Some(1));
    let body = vec![node("Mine", &["a"], &["b"], vec![value])];
    let referring = called(vec![function("f", &["a", "c"], &["b"], body)]);
    let cases = [
        (two(vec![]), ErrorKind::InvalidModel, "nothing defines the value `y`"),
        (two(vec![node("Neg", &["q"], &["y"], vec![])]), ErrorKind::InvalidModel, "node `y` (Neg)"),
        (
            two(vec![node("Neg", &["p"], &["y"], vec![]), node("Abs", &["y"], &["p"], vec![])]),
            ErrorKind::InvalidModel,
            "it is computed from itself",
        ),
        (twice, ErrorKind::InvalidModel, "the value `r` is defined twice"),
        (ModelProto::default(), ErrorKind::InvalidModel, "the model has no graph"),
        (missing, ErrorKind::MissingHandle, "tensor `w`"),
        (short, ErrorKind::Shape, "tensor `w`"),
        (called(vec![recursive]), ErrorKind::InvalidModel, "call themselves"),
        (called(vec![open]), ErrorKind::InvalidModel, "of function `local::f`"),
        (called(vec![nothing]), ErrorKind::InvalidModel, "nothing defines the value `b`"),
        (called(vec![few]), ErrorKind::InvalidModel, "more inputs than the function"),
        (attributes(vec![several]), ErrorKind::InvalidModel, "attribute `i`"),
        (attributes(vec![neither]), ErrorKind::InvalidModel, "neither a type nor a value"),
        (attributes(vec![strange]), ErrorKind::Unsupported, "type 99"),
        (
            attributes(vec![AttributeProto::int("i", 1), AttributeProto::int("i", 1)]),
            ErrorKind::InvalidModel,
            "the attribute `i` is there twice",
        ),
        (attributes(vec![parameter("i", 2, "p")]), ErrorKind::InvalidModel, "refers to `p`"),
        (referring, ErrorKind::InvalidModel, "the attribute `i` is a reference and a value"),
        (imported("ai.onnx", 20), ErrorKind::InvalidModel, "two versions of the operator set ``"),
        (imported_by_function, ErrorKind::InvalidModel, "two versions of the operator set ``"),
        (
            shadowing("Abs", 0),
            ErrorKind::InvalidModel,
            "`t` is defined twice, in a graph and around",
        ),
        (shadowing("Identity", 0), ErrorKind::InvalidModel, "`t` is defined twice, in a graph"),
        (
            shadowing("Abs", 2),
            ErrorKind::InvalidModel,
            "`c` is defined twice, in a graph and around",
        ),
    ];
    for (model, kind, text) in cases {
        let error = Container::new(model).semantic_digest().unwrap_err();
        assert!(
            error.kind() == kind && error.to_string().contains(text),
            "{kind:?} {text}: {error}"
        );
    }
}

fn parted(a: &ModelProto, b: &ModelProto) -> (String, String) {
    let [a, b] = [a, b].map(|model| Container::new(model.clone()));
    let difference = a.semantic_difference(&b).unwrap().expect("two models");
    let back = b.semantic_difference(&a).unwrap().expect("two models");
    let [one, two] = difference.places();
    assert_eq!((back.places(), back.output()), ([two, one], difference.output()));
    (format!("{one} | {two}"), difference.reason().to_owned())
}

#[test]
fn models_part_at_the_first_node_that_differs() {
    let changed = |change: &dyn Fn(&mut ModelProto)| with(small(), change);
    let cases: Vec<(ModelProto, &str, &str)> = vec![
        (
            changed(&|m| main_of(m).node[0].op_type = Some("Abs".into())),
            "node `r` (Relu) | node `r` (Abs)",
            "the operator is another",
        ),
        (
            changed(&|m| main_of(m).node[2].attribute[0].f = Some(0.25)),
            "node `g` (Gemm) | node `g` (Gemm)",
            "attribute `alpha` differs",
        ),
        (
            changed(&|m| main_of(m).node[2].attribute[0].name = Some("other".into())),
            "node `g` (Gemm) | node `g` (Gemm)",
            "attribute `alpha` differs",
        ),
        (
            changed(&|m| weights(m, |w| w.raw_data = Some(vec![7; 8].into()))),
            "initializer `w` (FLOAT [2]) | initializer `w` (FLOAT [2])",
            "the weights have other elements",
        ),
        (
            changed(&|m| weights(m, |w| w.dims = vec![1, 2])),
            "initializer `w` (FLOAT [2]) | initializer `w` (FLOAT [1, 2])",
            "the weights have another type or shape",
        ),
        (
            changed(&|m| main_of(m).node[3].input[0] = "x".into()),
            "node `g` (Gemm) | input 0 (`x`)",
            "these are different things",
        ),
        (
            changed(&|m| main_of(m).node[3].input[0] = "".into()),
            "node `y` (Add) | node `y` (Add)",
            "input 0 is left out in one of them",
        ),
        (
            changed(&|m| main_of(m).input[0].r#type = None),
            "input 0 (`x`) | input 0 (`x`)",
            "the input has another type, shape or default",
        ),
        (
            changed(&|m| main_of(m).node[0].output.push("more".into())),
            "node `r` (Relu) | node `r` (Relu)",
            "they have other outputs",
        ),
        (
            changed(&|m| m.opset_import[0].version = Some(12)),
            "node `r` (Relu) | node `r` (Relu)",
            "the operator is of another version or overload: Relu of version 14, Relu of version 6",
        ),
        (changed(&|m| main_of(m).input.extend(vectors(&["z"]))), " | ", "1 inputs became 2"),
    ];
    for (other, places, reason) in cases {
        let found = parted(&small(), &other);
        assert_eq!(found.0, places);
        // Either way round for those that have two sides.
        assert_eq!(found.1, reason, "{places}");
    }
}

/// A dense and a sparse weight of one type and shape are not said to have other elements.
#[test]
fn a_sparse_weight_is_another_thing_than_a_dense_one() {
    let sparse = with(small(), |model| {
        let graph = main_of(model);
        let mut values = graph.initializer.remove(0);
        values.dims = vec![2];
        let mut sparse = SparseTensorProto::default();
        (sparse.values, sparse.dims) = (Some(Box::new(values)), vec![2]);
        sparse.indices = Some(Box::new(int64s("", &[0, 1])));
        graph.sparse_initializer.push(sparse);
    });
    let (a, b) = (Container::new(small()), Container::new(sparse));
    let found = a.semantic_difference(&b).unwrap().unwrap();
    assert_eq!((found.reason(), found.is_of_elements()), ("one of the weights is sparse", false));
}

/// The tensor of a Constant is a weight as an initializer is, whatever the two are called.
#[test]
fn weights_of_constants_have_other_elements() {
    let with_constant = |dims: &[i64], first: usize| {
        with(small(), |model| {
            let graph = main_of(model);
            graph.initializer.clear();
            graph.node[2].input[1] = "c".into();
            let mut tensor = floats("", first, 2);
            tensor.dims = dims.to_vec();
            graph.node.insert(0, constant("c", tensor));
        })
    };
    let of = |a: &ModelProto, b: &ModelProto| {
        let [a, b] = [a, b].map(|model| Container::new(model.clone()));
        let found = a.semantic_difference(&b).unwrap();
        found.map(|found| {
            let places = found.places().join(" | ");
            format!("{places}: {} {}", found.reason(), found.is_of_elements())
        })
    };
    let [same, other, reshaped] =
        [(&[2][..], 0), (&[2], 5), (&[1, 2], 5)].map(|(dims, first)| with_constant(dims, first));
    let elements = "the weights have other elements true";
    let form = "the weights have another type or shape false";
    let (node, initializer) = ("node `c` (Constant)", "initializer `w` (FLOAT [2])");
    let cases = [
        (&small(), &same, None),
        (&same, &other, Some(format!("{node} | {node}: {elements}"))),
        (&small(), &other, Some(format!("{initializer} | {node}: {elements}"))),
        (&other, &small(), Some(format!("{node} | {initializer}: {elements}"))),
        (&small(), &reshaped, Some(format!("{initializer} | {node}: {form}"))),
    ];
    for (a, b, said) in cases {
        assert_eq!(of(a, b), said);
    }
}

#[test]
fn models_part_inside_graphs_and_functions() {
    let found = parted(&conditional("Neg", "t", "o"), &conditional("Abs", "t", "p"));
    assert_eq!(found.0, "node `o` (Neg) | node `p` (Abs)");
    let mut other = leaky_calls(None);
    other.functions[0].node[1].op_type = Some("Sub".into());
    let found = parted(&leaky_calls(None), &other);
    let place = |op| format!("node `o` ({op}) of function `local::leaky`");
    assert_eq!(found.0, format!("{} | {}", place("Add"), place("Sub")));
    let found = parted(&leaky_calls(None), &leaky_calls(Some(0.1)));
    assert_eq!(found.1, "attribute `alpha` differs");
    let found = parted(
        &nested(["i", "go", "v", "j", "on", "u"], 2),
        &nested(["i", "go", "v", "j", "on", "u"], 5),
    );
    assert_eq!(found.0, "input 2 of a graph in an attribute | input 2 of a graph in an attribute");
    let found = parted(
        &draws("RandomNormalLike", ["r", "s"], false, &[]),
        &draws("RandomNormalLike", ["r", "s"], true, &[]),
    );
    assert_eq!(found.1, "another draw, or a field that is not known");
}

#[test]
fn the_output_that_differs_first_is_named() {
    let three = |ops: [&str; 3], names: &[&str]| {
        let nodes = ops.iter().zip(names).map(|(op, name)| node(op, &["a"], &[name], vec![]));
        let nodes = nodes.collect();
        Container::new(model(graph_of(&["a"], names, nodes)))
    };
    let a = three(["Neg", "Abs", "Exp"], &["p", "q", "r"]);
    let b = three(["Neg", "Relu", "Log"], &["x", "y", "z"]);
    let difference = a.semantic_difference(&b).unwrap().unwrap();
    assert_eq!((difference.output(), difference.output_names()), (Some(1), [Some("q"), Some("y")]));
    assert_eq!(
        difference.to_string(),
        "output 1 (`q`, `y`): node `q` (Abs) and node `y` (Relu): the operator is another"
    );
    let fewer = three(["Neg", "Abs", "Exp"], &["p", "q"]);
    let difference = a.semantic_difference(&fewer).unwrap().unwrap();
    assert_eq!((difference.output(), difference.reason()), (Some(2), "3 outputs became 2"));
    assert_eq!(difference.output_names(), [Some("r"), None]);
    assert_eq!(a.semantic_difference(&a.clone()).unwrap(), None);
}

#[test]
fn tied_weights_of_many_tensors_are_the_same_as_copies() {
    let of = |tied: bool| {
        let mut graph = graph(vec![], vec![]);
        for name in ["a", "b"] {
            let handle = if tied { "#a".to_owned() } else { format!("#{name}") };
            graph.initializer.push(TensorProto::external(name, 1, [300], handle));
        }
        graph.node = vec![node("Add", &["a", "b"], &["y"], vec![])];
        graph.output = vectors(&["y"]);
        let mut container = Container::new(model(graph));
        container.insert("#a", Array1::<f32>::ones(300)).unwrap();
        container.insert("#b", Array1::<f32>::ones(300)).unwrap();
        container
    };
    assert_eq!(of(true).semantic_digest().unwrap(), of(false).semantic_digest().unwrap());
}
