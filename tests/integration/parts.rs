//! `extract_model` and `merge`: the part between some values, and two models as one.

use onnx_container::edit::{ExternalizeOptions, MergeOptions};
use onnx_container::proto::tensor_shape_proto::Dimension;
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    StringStringEntryProto, TensorProto, TypeProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, Error, ErrorKind};

use crate::support::{call, floats, function, graph_of, int64s, model, model_of, node, vectors};

/// `x` and `z` are inputs; `w`, `v` and the unused `u` are weights. An If uses `h` and `w` from
/// outside.
fn whole() -> Container {
    let mut inner = graph_of(&[], &["deep"], vec![node("Mul", &["h", "w"], &["deep"], vec![])]);
    inner.initializer.push(floats("own", 0, 2));
    let other = graph_of(&[], &["flat"], vec![node("Neg", &["h"], &["flat"], vec![])]);
    let branches = vec![
        AttributeProto::graph("then_branch", inner),
        AttributeProto::graph("else_branch", other),
    ];
    let nodes = vec![
        node("Add", &["x", "v"], &["h"], vec![]),
        node("Split", &["h"], &["left", "right"], vec![]),
        node("If", &["c"], &["y"], branches),
        call("f", &["y"], &["g"], vec![]),
        node("Add", &["g", "z"], &["out"], vec![]),
        node("Mul", &["left", "right"], &["product"], vec![]),
    ];
    let mut main = graph_of(&["x", "z"], &["out"], nodes);
    main.value_info = vectors(&["h", "y", "g", "left", "right", "product"]);
    main.initializer = vec![floats("w", 0, 2), floats("v", 2, 2), floats("u", 4, 2)];
    main.initializer.push(TensorProto::new("c", TensorProto::BOOL, [0; 0]).with_raw_data(vec![1]));
    let functions = vec![
        function("f", &["a"], &["b"], vec![call("k", &["a"], &["b"], vec![])]),
        function("unused", &["a"], &["b"], vec![node("Neg", &["a"], &["b"], vec![])]),
        function("k", &["a"], &["b"], vec![node("Neg", &["a"], &["b"], vec![])]),
    ];
    let mut container = Container::new(model_of(main, functions));
    container.externalize(1).unwrap();
    container
}

fn names<'n>(
    list: impl IntoIterator<Item = &'n Option<onnx_container::proto::Str>>,
) -> Vec<String> {
    list.into_iter().map(|name| name.as_ref().unwrap().to_string()).collect()
}

fn infos(list: &[ValueInfoProto]) -> Vec<String> {
    names(list.iter().map(|info| &info.name))
}

fn ops(container: &Container) -> Vec<String> {
    names(container.model().graph.as_ref().unwrap().node.iter().map(|node| &node.op_type))
}

fn weights(container: &Container) -> Vec<String> {
    let graph = container.model().graph.as_ref().unwrap();
    names(graph.initializer.iter().map(|tensor| &tensor.name))
}

#[test]
fn a_part_has_what_its_outputs_need() {
    let all = whole();
    // Inputs, outputs, operators, weights, functions, value_info.
    type Case<'c> =
        (&'c [&'c str], &'c [&'c str], &'c [&'c str], &'c [&'c str], &'c [&'c str], &'c [&'c str]);
    let cases: [Case<'_>; 7] = [
        (&["x"], &["h"], &["Add"], &["v"], &[], &[]),
        (&["x"], &["y"], &["Add", "If"], &["w", "v", "c"], &[], &["h"]),
        (&["h"], &["y"], &["If"], &["w", "c"], &[], &[]),
        (&["y"], &["g"], &["f"], &[], &["f", "k"], &[]),
        (&["h", "z"], &["out", "y"], &["If", "f", "Add"], &["w", "c"], &["f", "k"], &["g"]),
        // An initializer that becomes an input.
        (&["x", "v"], &["h"], &["Add"], &[], &[], &[]),
        // A node that computes an input and another value.
        (&["x", "left"], &["product"], &["Add", "Split", "Mul"], &["v"], &[], &["h", "right"]),
    ];
    for (inputs, outputs, operators, initializers, functions, declared) in cases {
        let part = all.extract_model(inputs, outputs).unwrap();
        let graph = part.model().graph.as_ref().unwrap();
        assert_eq!(infos(&graph.input), inputs, "{outputs:?}");
        assert_eq!(infos(&graph.output), outputs, "{inputs:?}");
        assert_eq!(ops(&part), operators, "{inputs:?} {outputs:?}");
        assert_eq!(weights(&part), initializers, "{inputs:?} {outputs:?}");
        let called = part.model().functions.iter().map(|function| &function.name);
        assert_eq!(names(called), functions, "{inputs:?} {outputs:?}");
        assert_eq!(infos(&graph.value_info), declared, "{inputs:?} {outputs:?}");
        assert_eq!(part.model().opset_import, all.model().opset_import);
        part.check().unwrap();
        let defined = graph.node.iter().flat_map(|node| &node.output);
        assert!(!defined.into_iter().any(|name| inputs.iter().any(|input| *name == *input)));
        for (handle, initializer) in part.iter() {
            let of = all.get(handle.as_str()).unwrap().to_tensor().unwrap();
            assert_eq!(initializer.to_tensor().unwrap().as_bytes(), of.as_bytes());
        }
    }
    let head = all.extract_model_for(&["h"]).unwrap();
    assert_eq!(infos(&head.model().graph.as_ref().unwrap().input), ["x"]);
    let whole = all.extract_model_for(&["out"]).unwrap();
    assert_eq!(ops(&whole), ["Add", "If", "f", "Add"]);
    assert_eq!(infos(&whole.model().graph.as_ref().unwrap().input), ["x", "z"]);
}

/// The declared type leaves open what follows from the input.
#[test]
fn a_given_type_contradicts_no_type_that_follows() {
    for open in ["FLOAT[?,4]", "FLOAT[A,B]", "FLOAT[?,?]"] {
        let mut graph = GraphProto::new("g");
        graph.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [3, 4]));
        for (from, to) in [("x", "v"), ("v", "w"), ("w", "y")] {
            graph.node.push(NodeProto::new("Relu", [from], [to]));
        }
        graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [3, 4]));
        let dims = open.trim_start_matches("FLOAT[").trim_end_matches(']').split(',');
        let dims = dims.map(|dim| match dim {
            "?" => Dimension::default(),
            "4" => 4.into(),
            name => name.into(),
        });
        graph.value_info.push(ValueInfoProto::tensor_with("v", DataType::Float, dims));
        let mut model = ModelProto::new(graph);
        model.opset_import.push(OperatorSetIdProto::new("", 21));
        let container = Container::new(model);
        for (name, text, is_right) in
            [("v", "FLOAT[3,4]", true), ("v", "FLOAT[5,4]", false), ("v", "FLOAT[3,5]", false)]
        {
            let given = container.clone().declare_type(name, text);
            assert_eq!(given.is_ok(), is_right, "{open} {name} {text}: {given:?}");
        }
    }
}

#[test]
fn what_cannot_be_cut_is_said_by_name() {
    let all = whole();
    type Case<'c> = (&'c [&'c str], &'c [&'c str], ErrorKind, &'c [&'c str]);
    let cases: [Case<'_>; 9] = [
        (&["x"], &["hh"], ErrorKind::MissingTensor, &["`hh`"]),
        (&["x"], &["produc"], ErrorKind::MissingTensor, &["did you mean `product`?"]),
        (&["x"], &["deep"], ErrorKind::MissingTensor, &["values of subgraphs cannot be cut at"]),
        (
            &["y"],
            &["out"],
            ErrorKind::InvalidArgument,
            &["`out`", "needs `z`, an input of the model"],
        ),
        (&["h"], &["z", "h"], ErrorKind::InvalidArgument, &["`z`", "needs itself"]),
        (&["x", "z"], &["h"], ErrorKind::InvalidArgument, &["`z`", "none of the outputs needs"]),
        (&["x", "x"], &["h"], ErrorKind::InvalidArgument, &["`x`", "is given twice"]),
        (&["x"], &[], ErrorKind::InvalidArgument, &["no outputs"]),
        (&[], &["h"], ErrorKind::InvalidArgument, &["needs `x`"]),
    ];
    for (inputs, outputs, kind, texts) in cases {
        let error = all.extract_model(inputs, outputs).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for text in texts {
            assert!(error.to_string().contains(text), "no {text:?} in {error}");
        }
    }
    let mut untyped = whole();
    untyped.model_mut().graph.as_mut().unwrap().value_info.clear();
    let error = untyped.extract_model_for(&["y"]).unwrap_err();
    assert!(error.to_string().contains("does not declare the type"), "{error}");
    assert!(Container::default().extract_model(&["x"], &["y"]).is_err());
}

/// A branch may define what is computed outside of it only later. An input is there before it.
#[test]
fn an_input_that_a_branch_hides_is_refused() {
    let branch = |name: &str| {
        let nodes = vec![node("Neg", &["x"], &["late"], vec![])];
        AttributeProto::graph(name, graph_of(&[], &["late"], nodes))
    };
    let branches = vec![branch("then_branch"), branch("else_branch")];
    let nodes = vec![
        node("If", &["c"], &["p"], branches),
        node("Neg", &["p"], &["late"], vec![]),
        node("Add", &["late", "p"], &["y"], vec![]),
    ];
    let mut main = graph_of(&["x"], &["y"], nodes);
    main.value_info = vectors(&["p", "late"]);
    main.input.push(ValueInfoProto::tensor("c", TensorProto::BOOL, []));
    let container = Container::new(model(main));
    let error = container.extract_model(&["late", "x", "c"], &["y"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("`late`: a subgraph of the part"), "{error}");
    container.extract_model(&["x", "c"], &["y"]).unwrap();
}

#[test]
fn inputs_with_defaults_keep_them() {
    let mut main = graph_of(&["x", "w"], &["y"], vec![node("Mul", &["x", "w"], &["y"], vec![])]);
    main.initializer.push(floats("w", 0, 2));
    let part = Container::new(model(main)).extract_model_for(&["y"]).unwrap();
    let graph = part.model().graph.as_ref().unwrap();
    assert_eq!(
        (infos(&graph.input), weights(&part)),
        (vec!["x".into(), "w".into()], vec!["w".into()])
    );
}

#[test]
fn an_old_model_keeps_its_initializers_among_the_inputs() {
    for (version, inputs) in [(3, &["x", "v"][..]), (4, &["x"])] {
        let mut old = whole();
        let message = old.model_mut();
        message.ir_version = Some(version);
        let graph = message.graph.as_mut().unwrap();
        graph.input.extend(vectors(&["w", "v"]));
        let part = old.extract_model(&["x"], &["h"]).unwrap();
        assert_eq!(infos(&part.model().graph.as_ref().unwrap().input), inputs);
        assert_eq!(weights(&part), ["v"]);
    }
}

/// `h = a * w` between `a` and `h`, with names that begin with `prefix`.
fn simple(prefix: &str, start: usize) -> Container {
    let name = |name: &str| format!("{prefix}{name}");
    let (a, w, h) = (name("a"), name("w"), name("h"));
    let mut graph = graph_of(&[&a], &[&h], vec![node("Mul", &[&a, &w], &[&h], vec![])]);
    graph.initializer.push(floats(&w, start, 2));
    let mut container = Container::new(model(graph));
    container.externalize(1).unwrap();
    container
}

#[test]
fn two_models_become_one() {
    let (first, second) = (simple("", 0), simple("", 10));
    let options = MergeOptions::new().connect("h", "a").prefixes("", "b/");
    let both = first.merge(&second, options).unwrap();
    let graph = both.model().graph.as_ref().unwrap();
    assert_eq!((infos(&graph.input), infos(&graph.output)), (vec!["a".into()], vec!["b/h".into()]));
    assert_eq!(weights(&both), ["w", "b/w"]);
    assert_eq!(graph.node[1].input, ["h", "b/w"]);
    assert_eq!(infos(&graph.value_info), ["h"]);
    let value = |name: &str| both.tensor(name).unwrap().as_slice::<f32>().unwrap().to_vec();
    assert_eq!((value("w"), value("b/w")), (vec![0.0, 1.0], vec![10.0, 11.0]));
    both.check().unwrap();
    // One output for two inputs, and models that are not connected.
    let twice = |container: &Container| {
        let mut container = container.clone();
        let graph = container.model_mut().graph.as_mut().unwrap();
        graph.input.extend(vectors(&["second"]));
        graph.node.push(node("Neg", &["second"], &["n"], vec![]));
        graph.output.extend(vectors(&["n"]));
        container
    };
    let options = MergeOptions::new().connect("h", "a").connect("h", "second");
    let both = first.merge(&twice(&second), options.prefixes("", "b/")).unwrap();
    let graph = both.model().graph.as_ref().unwrap();
    assert_eq!((&graph.node[1].input[0], &graph.node[2].input[0]), (&"h".into(), &"h".into()));
    assert_eq!(infos(&graph.output), ["b/h", "b/n"]);
    let side = first.merge(&simple("o", 4), MergeOptions::new()).unwrap();
    let graph = side.model().graph.as_ref().unwrap();
    assert_eq!(
        (infos(&graph.input), infos(&graph.output)),
        (vec!["a".into(), "oa".into()], vec!["h".into(), "oh".into()])
    );
}

#[test]
fn subgraphs_functions_and_metadata_are_merged() {
    let (mut first, second) = (simple("", 0), whole());
    let entry = |key: &str, value: &str| StringStringEntryProto::new(key, value);
    first.model_mut().metadata_props = vec![entry("k", "v"), entry("only", "first")];
    let mut second = second.clone();
    second.model_mut().metadata_props = vec![entry("k", "v"), entry("other", "second")];
    second.model_mut().ir_version = Some(11);
    let options = MergeOptions::new().connect("h", "x").prefixes("a/", "b/");
    let both = first.merge(&second, options).unwrap();
    let message = both.model();
    assert_eq!(names(message.functions.iter().map(|f| &f.name)), ["f", "unused", "k"]);
    assert_eq!(
        names(message.metadata_props.iter().map(|entry| &entry.key)),
        ["k", "only", "other"]
    );
    assert_eq!(message.ir_version, Some(11));
    let graph = message.graph.as_ref().unwrap();
    let branch = graph.node[3].attribute[0].g.as_ref().unwrap();
    assert_eq!(branch.node[0].input, ["b/h", "b/w"]);
    assert_eq!(graph.node[1].input[0], "a/h");
    assert_eq!(graph.node[4].op_type.as_ref().unwrap(), &"f");
    both.check().unwrap();
    // The function is there in both.
    let again = second.merge(&second, MergeOptions::new().prefixes("a/", "b/")).unwrap();
    assert_eq!(again.model().functions, second.model().functions);
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    type Change = fn(&mut ModelProto);
    let none: Change = |_| ();
    type Case<'c> = (Change, Change, &'c [(&'c str, &'c str)], ErrorKind, &'c [&'c str]);
    let cases: [Case<'_>; 12] = [
        (
            none,
            none,
            &[("h", "b")],
            ErrorKind::MissingTensor,
            &["`b`", "the second model has no input"],
        ),
        (
            none,
            none,
            &[("g", "oa")],
            ErrorKind::MissingTensor,
            &["`g`", "the first model has no output"],
        ),
        (
            none,
            none,
            &[("h", "oa"), ("h", "oa")],
            ErrorKind::InvalidArgument,
            &["is given two values"],
        ),
        (
            none,
            |m| {
                m.graph.as_mut().unwrap().input =
                    vec![ValueInfoProto::tensor("oa", TensorProto::INT64, [2])]
            },
            &[("h", "oa")],
            ErrorKind::DataType,
            &["different element types"],
        ),
        (
            none,
            |m| {
                m.graph.as_mut().unwrap().input =
                    vec![ValueInfoProto::tensor("oa", TensorProto::FLOAT, [3])]
            },
            &[("h", "oa")],
            ErrorKind::Shape,
            &["different shapes, ["],
        ),
        (
            none,
            |m| m.opset_import = vec![OperatorSetIdProto::new("ai.onnx", 20)],
            &[],
            ErrorKind::InvalidArgument,
            &["version 21 of the operators of ai.onnx, the second version 20", "convert one"],
        ),
        (
            |m| {
                m.functions.push(function(
                    "f",
                    &["a"],
                    &["b"],
                    vec![node("Neg", &["a"], &["b"], vec![])],
                ))
            },
            |m| {
                m.functions.push(function(
                    "f",
                    &["a"],
                    &["b"],
                    vec![node("Abs", &["a"], &["b"], vec![])],
                ))
            },
            &[],
            ErrorKind::InvalidArgument,
            &["`local::f`", "inline the functions"],
        ),
        (
            |m| m.metadata_props = vec![StringStringEntryProto::new("k", "1")],
            |m| m.metadata_props = vec![StringStringEntryProto::new("k", "2")],
            &[],
            ErrorKind::InvalidArgument,
            &["`k`", "edit --remove-metadata"],
        ),
        (
            none,
            |m| m.graph.as_mut().unwrap().node.push(node("Neg", &["oa"], &["w"], vec![])),
            &[],
            ErrorKind::AlreadyExists,
            &["`w`", "a prefix for the names of one of them keeps them apart"],
        ),
        (
            none,
            |m| {
                let inner = graph_of(&[], &["h"], vec![node("Neg", &["oa"], &["h"], vec![])]);
                let branch = vec![AttributeProto::graph("then_branch", inner)];
                m.graph.as_mut().unwrap().node.push(node("If", &["oa"], &["q"], branch));
            },
            &[],
            ErrorKind::AlreadyExists,
            &["`h`"],
        ),
        (
            none,
            |m| m.training_info.push(Default::default()),
            &[],
            ErrorKind::Unsupported,
            &["training graphs"],
        ),
        (none, |m| m.graph = None, &[], ErrorKind::InvalidModel, &["no graph"]),
    ];
    for (one, other, connections, kind, texts) in cases {
        let (mut first, mut second) = (simple("", 0), simple("o", 4));
        one(first.model_mut());
        other(second.model_mut());
        let options =
            connections.iter().fold(MergeOptions::new(), |options, (a, b)| options.connect(*a, *b));
        let error: Error = first.merge(&second, options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for text in texts {
            assert!(error.to_string().contains(text), "no {text:?} in {error}");
        }
    }
}

#[test]
fn a_default_of_a_connected_input_goes() {
    let mut second = simple("o", 4);
    let graph = second.model_mut().graph.as_mut().unwrap();
    graph.initializer.push(int64s("oa", &[1, 2]));
    let both = simple("", 0).merge(&second, MergeOptions::new().connect("h", "oa")).unwrap();
    assert_eq!(weights(&both), ["w", "ow"]);
    let nodes: &[NodeProto] = &both.model().graph.as_ref().unwrap().node;
    assert_eq!(nodes[1].input, ["h", "ow"]);
}

/// A model that computes `out` from `inputs` by one node.
fn one_node(op: &str, inputs: &[&str], outputs: &[&str]) -> Container {
    Container::new(model(graph_of(inputs, outputs, vec![node(op, inputs, outputs, vec![])])))
}

#[test]
fn no_two_nodes_have_one_name() {
    let named = |op: &str, inputs: &[&str], outputs: &[&str]| {
        let mut container = one_node(op, inputs, outputs);
        container.model_mut().graph.as_mut().unwrap().node[0].name = Some("n".into());
        container
    };
    let (a, b) = (named("Neg", &["x"], &["h"]), named("Exp", &["a"], &["y"]));
    let both = a.merge(&b, MergeOptions::new().connect("h", "a")).unwrap();
    let nodes = &both.model().graph.as_ref().unwrap().node;
    assert_eq!(names(nodes.iter().map(|node| &node.name)), ["n", "n_2"]);
}

/// An output of the first model may have the name of another input of the second.
#[test]
fn inputs_are_renamed_at_once() {
    for (outputs, inputs, connections, read) in [
        (["x", "y"], ["x", "y"], [("x", "y"), ("y", "x")], ["y", "x"]),
        (["a", "h"], ["b", "a"], [("a", "b"), ("h", "a")], ["a", "h"]),
        (["a", "h"], ["b", "a"], [("h", "a"), ("a", "b")], ["a", "h"]),
    ] {
        let (first, second) =
            (one_node("Split", &["in"], &outputs), one_node("Sub", &inputs, &["out"]));
        let mut options = MergeOptions::new();
        for (output, input) in connections {
            options = options.connect(output, input);
        }
        let both = first.merge(&second, options).unwrap();
        let graph = both.model().graph.as_ref().unwrap();
        assert_eq!(graph.node[1].input, read, "{connections:?}");
    }
}

/// An operator of one model would become a call of the other's function.
#[test]
fn functions_do_not_take_operators_of_the_other_model() {
    let calls = || {
        let graph = graph_of(&["in"], &["of"], vec![call("unused", &["in"], &["of"], vec![])]);
        Container::new(model_of(graph, vec![]))
    };
    let pairs =
        [(calls(), whole(), "the first one calls"), (whole(), calls(), "the second one calls")];
    for (first, second, text) in pairs {
        let error = first.merge(&second, MergeOptions::new().prefixes("a/", "b/")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

/// An undeclared sparse weight has the shape of the whole tensor, not that of its values.
#[test]
fn a_sparse_weight_is_an_input_of_its_own_shape() {
    let mut main = graph_of(&["x"], &["y"], vec![node("Add", &["x", "s"], &["y"], vec![])]);
    let mut values = floats("s", 1, 2);
    values.dims = vec![2];
    let mut sparse = onnx_container::proto::SparseTensorProto::default();
    sparse.values = Some(Box::new(values));
    sparse.dims = vec![5];
    main.sparse_initializer.push(sparse);
    let part = Container::new(model(main)).extract_model(&["x", "s"], &["y"]).unwrap();
    let input = &part.model().graph.as_ref().unwrap().input[1];
    assert_eq!(*input, ValueInfoProto::tensor("s", TensorProto::FLOAT, [5]));
}

/// What a model says of values that it does not have is not said of those of the other one.
#[test]
fn stale_declarations_are_left_out() {
    let (mut first, mut second) =
        (one_node("Neg", &["x"], &["h"]), one_node("Exp", &["b"], &["y"]));
    let stale = |name: &str| ValueInfoProto::tensor(name, TensorProto::INT64, [9]);
    first.model_mut().graph.as_mut().unwrap().value_info = vec![stale("y")];
    second.model_mut().graph.as_mut().unwrap().value_info = vec![stale("x")];
    let both = first.merge(&second, MergeOptions::new().connect("h", "b")).unwrap();
    let graph = both.model().graph.as_ref().unwrap();
    assert_eq!(infos(&graph.value_info), ["h"]);
}

#[test]
fn sequences_of_other_elements_are_not_connected() {
    let with = |mut container: Container, is_output: bool, element: i32| {
        use onnx_container::proto::type_proto::{Sequence, Value};
        let mut ty = onnx_container::proto::TypeProto::default();
        let mut sequence = Sequence::default();
        sequence.elem_type = Some(Box::new(onnx_container::proto::TypeProto::tensor(element, [2])));
        ty.value = Some(Value::SequenceType(Box::new(sequence)));
        let graph = container.model_mut().graph.as_mut().unwrap();
        let info = if is_output { &mut graph.output[0] } else { &mut graph.input[0] };
        info.r#type = Some(Box::new(ty));
        container
    };
    let first = with(one_node("SequenceMap", &["x"], &["h"]), true, TensorProto::FLOAT);
    for (element, fits) in [(TensorProto::FLOAT, true), (TensorProto::INT64, false)] {
        let second = with(one_node("SequenceAt", &["b"], &["y"]), false, element);
        let merged = first.merge(&second, MergeOptions::new().connect("h", "b"));
        assert_eq!(merged.is_ok(), fits, "{element}");
        assert!(fits || merged.unwrap_err().kind() == ErrorKind::DataType);
    }
}

#[test]
fn one_input_of_both_models_is_one() {
    let half = |op: &str, inputs: &[&str], output: &str| {
        let main = graph_of(inputs, &[output], vec![node(op, inputs, &[output], vec![])]);
        Container::new(model(main))
    };
    let (first, second) = (half("Mul", &["ids", "w"], "h"), half("Add", &["a", "tokens"], "y"));
    let options = || MergeOptions::new().connect("h", "a");
    for (options, inputs) in [
        (options(), &["ids", "w", "tokens"][..]),
        (options().same_input("ids", "tokens"), &["ids", "w"]),
        (options().same_input("w", "tokens").prefixes("1/", "2/"), &["1/ids", "1/w"]),
        (MergeOptions::new().same_input("w", "tokens").same_input("w", "a"), &["ids", "w"]),
    ] {
        let both = first.merge(&second, options).unwrap();
        let graph = both.model().graph.clone().unwrap();
        assert_eq!(infos(&graph.input), inputs);
        let used = graph.node.iter().flat_map(|node| &node.input).map(ToString::to_string);
        let used =
            used.filter(|name| !name.ends_with('h')).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(used, inputs.iter().map(ToString::to_string).collect());
    }
    for (options, said) in [
        (options().same_input("ids", "a"), "`a`: is given two values: connect it once"),
        (options().same_input("id", "tokens"), "the first model has no input of this name"),
        (options().same_input("ids", "token"), "the second model has no input of this name"),
    ] {
        let error = first.merge(&second, options).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let mut other = second.clone();
    other.model_mut().graph.as_mut().unwrap().input[1] =
        ValueInfoProto::tensor_with("tokens", TensorProto::FLOAT, ["N".into(), 3.into()]);
    let error = first.merge(&other, options().same_input("ids", "tokens")).unwrap_err();
    assert!(error.to_string().contains("have different shapes, [2] and [N,3]"), "{error}");
}

/// One input has one default: neither model's is lost, and none gets that of the other.
#[test]
fn inputs_that_become_one_have_one_default() {
    type Elements = Option<&'static [i64]>;
    let half = |input: &str, output: &str, default: Elements, handle: bool| {
        let mut main =
            graph_of(&[input], &[output], vec![node("Neg", &[input], &[output], vec![])]);
        main.initializer.extend(default.map(|values| int64s(input, values)));
        let mut container = Container::new(model(main));
        if handle {
            container.externalize(ExternalizeOptions::new().min_bytes(1)).unwrap();
        }
        container
    };
    let (one, two): (&[_], &[_]) = (&[1, 1], &[2, 2]);
    let different = "the two have different defaults; give both the same default";
    let cases: [(Elements, Elements, &str); 6] = [
        (None, None, ""),
        (Some(one), Some(one), ""),
        (Some(one), Some(two), different),
        (Some(one), Some(&[1]), different),
        (Some(one), None, "only the input of the first model has a default"),
        (None, Some(one), "only the input of the second model has a default"),
    ];
    for ((of_first, of_second, said), handles) in
        cases.iter().flat_map(|case| [(*case, [false, false]), (*case, [false, true])])
    {
        let first = half("x", "y", of_first, handles[0]);
        let second = half("a", "b", of_second, handles[1]);
        let merged = first.merge(&second, MergeOptions::new().same_input("x", "a"));
        match merged {
            Ok(both) => {
                assert_eq!(said, "", "{of_first:?} {of_second:?}");
                assert_eq!(weights(&both), of_first.map_or(vec![], |_| vec!["x"]));
                assert_eq!(both.len(), usize::from(handles[0] && of_first.is_some()));
            }
            Err(error) => {
                let error = error.to_string();
                assert!(!said.is_empty() && error.contains(said), "{error}");
            }
        }
    }
}

/// A default may be stored sparse or dense: what counts is the elements.
#[test]
fn sparse_defaults_are_compared_by_their_elements() {
    let half = |input: &str, output: &str, default: Elements| {
        let nodes = vec![node("Neg", &[input], &[output], vec![])];
        let mut main = graph_of(&[input], &[output], nodes);
        main.input[0] = ValueInfoProto::tensor(input, TensorProto::INT64, [2, 2]);
        match default {
            Elements::Dense(values) => {
                let mut dense = int64s(input, values);
                dense.dims = vec![2, 2];
                main.initializer.push(dense);
            }
            Elements::Sparse(values, indices, width) => {
                let mut indices = int64s("", indices);
                if width > 1 {
                    indices.dims = vec![i64::try_from(values.len()).unwrap(), width];
                }
                let sparse = SparseTensorProto::new(int64s(input, values), indices, [2, 2]);
                main.sparse_initializer.push(sparse);
            }
        }
        Container::new(model(main))
    };
    use Elements::{Dense, Sparse};
    let dense = Dense(&[0, 5, 0, 7]);
    for (one, other, is_equal) in [
        (dense, Sparse(&[5, 7], &[1, 3], 1), true),
        (dense, Sparse(&[5, 7], &[0, 1, 1, 1], 2), true),
        (dense, Sparse(&[0, 5, 7], &[0, 1, 3], 1), true),
        (Sparse(&[5, 7], &[1, 3], 1), Sparse(&[5, 7], &[0, 1, 1, 1], 2), true),
        (dense, Sparse(&[5], &[1], 1), false),
        (dense, Sparse(&[5, 7], &[1, 2], 1), false),
        (dense, Sparse(&[5, 7, 1], &[1, 3, 2], 1), false),
        (dense, Sparse(&[5, 7], &[1, 9], 1), false),
        (Sparse(&[5], &[1], 1), Sparse(&[5], &[2], 1), false),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            let options = MergeOptions::new().same_input("x", "a");
            let merged = half("x", "y", one).merge(&half("a", "b", other), options);
            assert_eq!(merged.is_ok(), is_equal, "{one:?} {other:?}");
        }
    }
}

/// The elements of a default: all, or values, their indices, and how many indices each has.
#[derive(Debug, Clone, Copy)]
enum Elements {
    Dense(&'static [i64]),
    Sparse(&'static [i64], &'static [i64], i64),
}

/// Both models have `w`, and what `nodes` and `initializers` say.
#[test]
fn equal_constants_of_one_name_are_there_once() {
    type Fill = fn(&mut GraphProto);
    let half = |input: &str, output: &str, fill: Fill, handles: bool| {
        let nodes = vec![node("Add", &[input, "w"], &[output], vec![])];
        let mut main = graph_of(&[input], &[output], nodes);
        fill(&mut main);
        let mut container = Container::new(model(main));
        if handles {
            container.externalize(ExternalizeOptions::new().min_bytes(1)).unwrap();
        }
        container
    };
    let dense: Fill = |graph| graph.initializer.push(floats("w", 0, 2));
    let other: Fill = |graph| graph.initializer.push(floats("w", 1, 2));
    let constant: Fill = |graph| {
        let value = AttributeProto::tensor("value", floats("", 0, 2));
        graph.node.insert(0, node("Constant", &[], &["w"], vec![value]));
    };
    let number: Fill = |graph| {
        let value = AttributeProto::float("value_float", 2.0);
        graph.node.insert(0, node("Constant", &[], &["w"], vec![value]));
    };
    let output: Fill = |graph| {
        graph.initializer.push(floats("w", 0, 2));
        graph.output.push(ValueInfoProto::tensor("w", TensorProto::FLOAT, [2]));
    };
    let input: Fill = |graph| {
        graph.initializer.push(floats("w", 0, 2));
        graph.input.push(ValueInfoProto::tensor("w", TensorProto::FLOAT, [2]));
    };
    for (one, two, is_merged) in [
        (dense, dense, true),
        (dense, constant, true),
        (constant, constant, true),
        (number, number, true),
        (dense, output, true),
        (dense, other, false),
        (dense, number, false),
        (output, output, false),
        (input, dense, false),
        (input, input, false),
    ] {
        for handles in [[false, false], [true, true], [false, true]] {
            let first = half("x", "h", one, handles[0]);
            let second = half("g", "y", two, handles[1]);
            let merged = first.merge(&second, MergeOptions::new().connect("h", "g"));
            match merged {
                Ok(both) => {
                    assert!(is_merged);
                    let graph = both.model().graph.as_ref().unwrap();
                    let nodes = graph.node.iter().filter(|node| node.output[0] == "w").count();
                    assert_eq!(graph.initializer.len() + nodes, 1);
                    let used = graph.initializer.iter().filter(|it| it.raw_data.is_none()).count();
                    assert!(both.len() <= 1 && used <= both.len(), "no weights of what is gone");
                    both.check().unwrap();
                }
                Err(error) => assert!(!is_merged && error.to_string().contains("`w`"), "{error}"),
            }
        }
    }
}

/// Values that lie on all ways from a missing input to the outputs are named.
#[test]
fn where_the_model_can_be_cut_is_said() {
    let op = |inputs: &[&str], output: &str| node("Add", inputs, &[output], vec![]);
    // x -> a -> b, c -> d -> e -> y; the mask goes from x to e.
    let nodes = |mask: &'static str| {
        vec![
            op(&["x", "x"], "a"),
            op(&["a", "a"], "b"),
            op(&["a", "z"], "c"),
            op(&["b", "c"], "d"),
            op(&["d", mask], "e"),
            op(&["e", "e"], "f"),
            op(&["f", "f"], "y"),
        ]
    };
    let cases: [(&str, &[&str], &str); 4] = [
        ("z", &["z"], "between the two: `a`, `d`, `e` without `z`, `f` without `z`"),
        ("x", &["z"], "between the two: `e` without `z`, `f` without `z`"),
        (
            "b",
            &["z", "c"],
            "`a` without `z`, `b` without `z`, `e` without `c`, `z`, `f` without `c`, `z`",
        ),
        ("a", &["x", "b"], "`c`, `d` without `b`, `e` without `b`, `x`, `f` without `b`, `x`"),
    ];
    for (mask, inputs, text) in cases {
        let model = Container::new(model(graph_of(&["x", "z"], &["y"], nodes(mask))));
        let said = model.extract_model(inputs, &["y"]).map_err(|error| error.to_string());
        let said = said.err().unwrap_or_default();
        assert!(said.contains("add it, or a value between the two: "), "{inputs:?}: {said}");
        assert!(said.ends_with(text), "{inputs:?}: {said}");
    }
    // Two ways that do not meet again: both are needed.
    let nodes = vec![
        op(&["x", "x"], "a"),
        op(&["x", "z"], "b"),
        op(&["a", "a"], "c"),
        op(&["b", "c"], "y"),
    ];
    let model = Container::new(model(graph_of(&["x", "z"], &["y"], nodes)));
    let error = model.extract_model(&["z"], &["y"]).unwrap_err().to_string();
    let text = "add it, or all of `a`, `b` without `z`, which lie between the two";
    assert!(error.ends_with(text), "{error}");
}

/// What may be given instead is looked for a few times, not for each of very many inputs.
#[test]
fn very_many_missing_inputs_are_said_soon() {
    let many = 20_000;
    let names: Vec<_> = (0..many).map(|i| format!("x{i}")).collect();
    let nodes = names
        .iter()
        .enumerate()
        .map(|(i, name)| node("Add", &[&format!("h{i}"), name], &[&format!("h{}", i + 1)], vec![]));
    let nodes = nodes.collect();
    let inputs = names.iter().map(String::as_str).chain(["h0"]).collect::<Vec<_>>();
    let container = Container::new(model(graph_of(&inputs, &[&format!("h{many}")], nodes)));
    let error = container.extract_model(&["h0"], &[&format!("h{many}")]).unwrap_err();
    assert!(error.related().len() > 3);
    let hinted = error.related().iter().filter(|one| one.reason().contains("between the two"));
    // There is nothing between the output and the first one.
    assert_eq!(hinted.count(), 2);
}

/// A type that is given completes what is known, and does not contradict it.
#[test]
fn a_given_type_completes_the_known_one() {
    let declared = |text: &str, given: &str| {
        let half = TensorProto::FLOAT16;
        let mut info =
            ValueInfoProto::tensor_with("h", half, ["N".into(), 4.into(), Dimension::default()]);
        if let Some(onnx_container::proto::type_proto::Value::TensorType(tensor)) =
            &mut info.r#type.as_mut().unwrap().value
        {
            match text {
                "none" => info.r#type = None,
                "elements" => tensor.shape = None,
                "nothing" => (tensor.elem_type, tensor.shape) = (Some(0), None),
                _ => {}
            }
        }
        let mut graph = graph_of(
            &["x"],
            &["y"],
            vec![node("Custom", &["x"], &["h"], vec![]), node("Relu", &["h"], &["y"], vec![])],
        );
        graph.value_info.push(info);
        let mut container = Container::new(model(graph));
        container.declare_type("h", given)?;
        let part = container.extract_model(&["h"], &["y"])?;
        Ok::<_, Error>(part.model().graph.as_ref().unwrap().input[0].r#type.as_deref().cloned())
    };
    let full = TypeProto::tensor_with(TensorProto::FLOAT16, ["N".into(), 4.into(), 2.into()]);
    for (text, given) in [
        ("none", "FLOAT16[N,4,2]"),
        ("elements", "FLOAT16[N,4,2]"),
        ("nothing", "FLOAT16[N,4,2]"),
        ("whole", "FLOAT16[N,4,2]"),
        ("whole", "FLOAT16[?,4,2]"),
        ("whole", "FLOAT16[N,?,2]"),
    ] {
        assert_eq!(declared(text, given).unwrap(), Some(full.clone()), "{text} {given}");
    }
    // A name that is given replaces another one.
    let renamed = TypeProto::tensor_with(TensorProto::FLOAT16, ["2*s0".into(), 4.into(), 2.into()]);
    assert_eq!(declared("whole", "FLOAT16[2*s0,?,2]").unwrap(), Some(renamed));
    for (text, given, kind) in [
        ("whole", "FLOAT[N,4,2]", ErrorKind::DataType),
        ("elements", "FLOAT[N,4,2]", ErrorKind::DataType),
        ("whole", "FLOAT16[N,4]", ErrorKind::Shape),
        ("whole", "FLOAT16[N,5,2]", ErrorKind::Shape),
        ("whole", "FLOAT16[N,M,2]", ErrorKind::Shape),
    ] {
        let error = declared(text, given).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("contradicts what the model says"), "{error}");
    }
    // What follows from declared types is known too.
    let mut follows = Container::new(model(graph_of(
        &["x"],
        &["y"],
        vec![node("Relu", &["x"], &["h"], vec![]), node("Custom", &["h"], &["y"], vec![])],
    )));
    assert_eq!(follows.value_type("h"), Some(TypeProto::tensor(TensorProto::FLOAT, [2])));
    assert_eq!(follows.value_type("none"), None);
    let error = follows.declare_type("h", "INT64[7]").unwrap_err().to_string();
    assert!(
        error.contains("`INT64[7]` contradicts what the model says of this value, `FLOAT[2]`"),
        "{error}"
    );
}

/// A graph may list a value twice: as an output and in `value_info`.
#[test]
fn a_given_type_is_held_to_every_declaration() {
    let declared = |given: &str| {
        let nodes = vec![node("Custom", &["x"], &["y"], vec![])];
        let mut graph = graph_of(&["x"], &["y"], nodes);
        let dims = || ["N".into(), 8.into()];
        graph.value_info.push(ValueInfoProto::tensor_with("y", TensorProto::FLOAT, dims()));
        graph.output = vec![ValueInfoProto::tensor("y", TensorProto::FLOAT, [4, 8])];
        let mut container = Container::new(model(graph));
        container.declare_type("y", given)?;
        let graph = container.model().graph.as_deref().unwrap();
        let infos = graph.output.iter().chain(&graph.value_info);
        Ok::<_, Error>(infos.map(|info| info.r#type.as_deref().cloned()).collect::<Vec<_>>())
    };
    let whole = Some(TypeProto::tensor(TensorProto::FLOAT, [4, 8]));
    for given in ["FLOAT[4,8]", "FLOAT[?,8]", "FLOAT[?,?]"] {
        assert_eq!(declared(given).unwrap(), [whole.clone(), whole.clone()], "{given}");
    }
    for (given, against) in
        [("FLOAT[5,8]", "FLOAT[4,8]"), ("FLOAT[N,8]", "FLOAT[4,8]"), ("FLOAT[4,7]", "FLOAT[4,8]")]
    {
        let error = declared(given).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
        let said = format!("contradicts what the model says of this value, `{against}`");
        assert!(error.to_string().contains(&said), "{error}");
    }
}

/// Types that are given together are held to each other, and none is declared with a wrong one.
#[test]
fn several_types_are_declared_at_once() {
    let container = || {
        let nodes = vec![
            node("Custom", &["x"], &["a"], vec![]),
            node("Relu", &["a"], &["b"], vec![]),
            node("Custom", &["b"], &["y"], vec![]),
        ];
        Container::new(model(graph_of(&["x"], &["y"], nodes)))
    };
    let mut both = container();
    both.declare_types([("b", "FLOAT[?,?]"), ("a", "FLOAT[N,3]")]).unwrap();
    let whole = TypeProto::tensor_with(TensorProto::FLOAT, ["N".into(), 3.into()]);
    for name in ["a", "b"] {
        assert_eq!(both.value_type(name), Some(whole.clone()), "{name}");
    }
    for (second, said) in [
        (("b", "INT64[N,3]"), "`INT64[N,3]` contradicts what the model says"),
        (("b", "FLOAT[N,4]"), "`FLOAT[N,4]` contradicts what the model says"),
        (("a", "FLOAT[N,4]"), "`FLOAT[N,4]` contradicts what the model says"),
        (("none", "FLOAT[4]"), "no node of the main graph has an output"),
    ] {
        let mut one = container();
        let error = one.declare_types([("a", "FLOAT[N,3]"), second]).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(one.model().graph.as_ref().unwrap().value_info.len(), 0, "{error}");
    }
}

/// A value that is declared without a shape is completed, or is an error.
#[test]
fn a_type_without_a_shape_is_completed() {
    let part = |op: &str| {
        let mut graph = graph_of(
            &["x"],
            &["y"],
            vec![node(op, &["x"], &["h"], vec![]), node("Neg", &["h"], &["y"], vec![])],
        );
        let mut info = ValueInfoProto::tensor("h", TensorProto::FLOAT, [2]);
        if let Some(onnx_container::proto::type_proto::Value::TensorType(tensor)) =
            &mut info.r#type.as_mut().unwrap().value
        {
            tensor.shape = None;
        }
        graph.value_info.push(info);
        let part = Container::new(model(graph)).extract_model(&["x"], &["h"])?;
        Ok::<_, Error>(part.model().graph.as_ref().unwrap().output[0].r#type.as_deref().cloned())
    };
    assert_eq!(part("Relu").unwrap(), Some(TypeProto::tensor(TensorProto::FLOAT, [2])));
    let error = part("Custom").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingType);
    assert!(error.to_string().contains("only the elements are known, FLOAT:"), "{error}");
}

#[test]
fn texts_that_are_no_types_are_refused() {
    for text in [
        "FLOAT",
        "FLOAT[4",
        "FLOATS[4]",
        "UNDEFINED[2]",
        "FLOAT[4,,4]",
        "FLOAT[N]]",
        "FLOAT[[N]",
        "FLOAT[99999999999999999999]",
        "FLOAT[-1,2]",
        "FLOAT[+1]",
        "FLOAT[1.5]",
    ] {
        let graph = graph_of(&["x"], &["y"], vec![node("Custom", &["x"], &["h"], vec![])]);
        let error = Container::new(model(graph)).declare_type("h", text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}: {error}");
    }
}

/// Exporters name dimensions by expressions.
#[test]
fn dimensions_have_names_of_any_characters() {
    for name in ["N", "2*s0", "s0 + 1", "-N", "?N", "a2", "2 * a", "s1//2", "(s0)", "batch size"] {
        let graph = graph_of(&["x"], &["y"], vec![node("Custom", &["x"], &["h"], vec![])]);
        let mut container = Container::new(model(graph));
        container.declare_type("h", &format!("FLOAT[ {name} , 3]")).unwrap();
        let whole = TypeProto::tensor_with(TensorProto::FLOAT, [name.into(), 3.into()]);
        assert_eq!(container.value_type("h"), Some(whole));
    }
}

/// `3x4` was meant for `3,4`, unless the model has a dimension of that name.
#[test]
fn dimensions_do_not_begin_as_numbers() {
    for (declared, name, is_taken) in [
        (None, "3x4", false),
        (None, "2a", false),
        (None, "1_batch", false),
        (Some("3x4"), "3x4", true),
        (Some("3x4"), "2a", false),
        (None, "2*s0", true),
        (None, "2 * s0", true),
        (None, "x3", true),
    ] {
        let mut graph = graph_of(&["x"], &["y"], vec![node("Custom", &["x"], &["h"], vec![])]);
        if let Some(declared) = declared {
            let dims = [declared.into(), 3.into()];
            graph.input[0] = ValueInfoProto::tensor_with("x", DataType::Float, dims);
        }
        let given = Container::new(model(graph)).declare_type("h", &format!("FLOAT[{name}]"));
        assert_eq!(given.is_ok(), is_taken, "{declared:?} {name}");
        if let Err(error) = given {
            let said = format!("`{name}` is no dimension: a name does not begin with a digit");
            assert!(error.to_string().contains(&said), "{error}");
        }
    }
}

/// The type of the value `h` in a part that ends with it, or nothing where it is not known.
fn inferred(op: NodeProto) -> Option<TypeProto> {
    let mut main = graph_of(&[], &["y"], vec![op, node("Custom", &["h"], &["y"], vec![])]);
    let dims = |dims: &[&str]| {
        let dim =
            |dim: &&str| dim.parse::<i64>().map_or_else(|_| Dimension::from(*dim), Into::into);
        dims.iter().map(dim).collect::<Vec<_>>()
    };
    main.input = [("x", &["N", "3", "4"][..]), ("one", &["1", "4"]), ("square", &["4", "4"])]
        .map(|(name, shape)| ValueInfoProto::tensor_with(name, TensorProto::FLOAT, dims(shape)))
        .into();
    main.input.push(ValueInfoProto::tensor("ids", TensorProto::INT64, [5]));
    main.initializer
        .push(TensorProto::new("w", TensorProto::FLOAT, [4, 7]).with_raw_data(vec![0; 112]));
    main.initializer
        .push(TensorProto::new("half", TensorProto::FLOAT16, [4]).with_raw_data(vec![0; 8]));
    main.initializer.push(floats("slope", 0, 3));
    let part = Container::new(model(main)).extract_model_for(&["h"]).ok()?;
    let graph = part.model().graph.clone().unwrap();
    graph.output[0].r#type.as_deref().cloned()
}

#[test]
fn the_types_of_cut_values_follow_from_declared_ones() {
    let int = AttributeProto::int;
    let cases = [
        (node("Relu", &["x"], &["h"], vec![]), Some("FLOAT[N,3,4]")),
        (node("Cast", &["x"], &["h"], vec![int("to", 10)]), Some("FLOAT16[N,3,4]")),
        (node("IsNaN", &["x"], &["h"], vec![]), Some("BOOL[N,3,4]")),
        (node("LayerNormalization", &["x", "half"], &["h"], vec![]), Some("FLOAT[N,3,4]")),
        (node("RMSNormalization", &["x", "half"], &["h"], vec![]), Some("FLOAT16[N,3,4]")),
        (node("RMSNormalization", &["x", "none"], &["h"], vec![]), None),
        // Below version 7 the slope is for dimension 1; x is never broadcast.
        (node("PRelu", &["x", "slope"], &["h"], vec![]), Some("FLOAT[N,3,4]")),
        (node("PRelu", &["one", "x"], &["h"], vec![]), Some("FLOAT[1,4]")),
        (node("Add", &["one", "x"], &["h"], vec![]), Some("FLOAT[N,3,4]")),
        (node("Add", &["square", "one"], &["h"], vec![]), Some("FLOAT[4,4]")),
        (node("Add", &["x", "w"], &["h"], vec![int("broadcast", 1)]), None),
        (node("Less", &["x", "one"], &["h"], vec![]), Some("BOOL[N,3,4]")),
        (node("MatMul", &["x", "w"], &["h"], vec![]), Some("FLOAT[N,3,7]")),
        (node("Gemm", &["one", "w"], &["h"], vec![]), Some("FLOAT[1,7]")),
        (node("Gemm", &["w", "w"], &["h"], vec![int("transA", 1)]), Some("FLOAT[7,7]")),
        (node("Gemm", &["one", "square"], &["h"], vec![int("transB", 1)]), Some("FLOAT[1,4]")),
        (node("Transpose", &["x"], &["h"], vec![]), Some("FLOAT[4,3,N]")),
        (
            node("Transpose", &["x"], &["h"], vec![AttributeProto::ints("perm", [1, 0, 2])]),
            Some("FLOAT[3,N,4]"),
        ),
        (node("Gather", &["w", "ids"], &["h"], vec![]), Some("FLOAT[5,7]")),
        (node("Gather", &["w", "ids"], &["h"], vec![int("axis", -1)]), Some("FLOAT[4,5]")),
        (node("Gather", &["w", "ids"], &["h"], vec![int("axis", 2)]), None),
        (node("Shape", &["x"], &["h"], vec![]), Some("INT64[3]")),
        (node("Shape", &["x"], &["h"], vec![int("start", 1)]), None),
        (node("Constant", &[], &["h"], vec![int("value_int", 1)]), Some("INT64[]")),
        (node("Conv", &["x", "w"], &["h"], vec![]), None),
        (node("Custom", &["x"], &["h"], vec![]), None),
        (node("Relu", &["gone"], &["h"], vec![]), None),
    ];
    for (op, text) in cases {
        let said = format!("{op:?}");
        let mut declared =
            Container::new(model(graph_of(&[], &[], vec![node("Custom", &[], &["h"], vec![])])));
        let wanted = text.map(|text| {
            declared.declare_type("h", text).unwrap();
            let infos = &declared.model().graph.as_deref().unwrap().value_info;
            infos[0].r#type.as_deref().cloned().unwrap()
        });
        assert_eq!(inferred(op), wanted, "{said}");
    }
    // What is known of the type is said.
    let mut main = graph_of(&["x"], &["y"], vec![node("Reshape", &["x", "s"], &["h"], vec![])]);
    main.initializer.push(int64s("s", &[1]));
    let error = Container::new(model(main)).extract_model_for(&["h"]).unwrap_err();
    assert!(error.to_string().contains("of which only the elements are known, FLOAT"), "{error}");
}
