//! Initializers added, deleted, renamed and retyped: every place that names them follows.

use std::path::Path;

use onnx_container::edit::Tied;
use onnx_container::half::f16;
use onnx_container::proto::type_proto::Value;
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, ShardingSpecProto,
    StringStringEntryProto, TensorAnnotation, TensorProto, TrainingInfoProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, ErrorKind, MmapChoice, Tensor};

use crate::drivers::run_driver_with;
use crate::support::{
    branches, call, floats, function, graph, graph_of, model_of, node, tensors_everywhere,
};

fn annotation(tensor: &str, parameter: &str) -> TensorAnnotation {
    let mut annotation = TensorAnnotation::default();
    annotation.tensor_name = Some(tensor.into());
    let entry = StringStringEntryProto::new("SCALE_TENSOR", parameter);
    annotation.quant_parameter_tensor_names.push(entry);
    annotation
}

/// A model that says the name `w` in every place that there is: as the value of the main graph, and
/// as others of the same name, which are spelled `W` in what [`expected`] makes of it.
fn everywhere(ours: &str, other: &str) -> ModelProto {
    let uses = |name: &str, out: &str| node("Add", &["x", name], &[out], vec![]);
    // It is captured at two depths; a branch that defines the name means another value.
    let deep = branches(&["deep"], graph_of(&[], &["d"], vec![uses(ours, "d")]), shadowing(other));
    let then_branch =
        graph_of(&[], &["t"], vec![deep, node("Add", &[ours, "deep"], &["t"], vec![])]);
    let conditional = branches(&["c_out"], then_branch, shadowing(other));
    let mut sharded = uses(ours, "y1");
    let mut device = onnx_container::proto::NodeDeviceConfigurationProto::default();
    let mut spec = ShardingSpecProto::default();
    spec.tensor_name = Some(ours.into());
    device.sharding_spec.push(spec);
    sharded.device_configurations.push(device);
    let nodes = vec![sharded, conditional, call("F", &["x", ours], &["f"], vec![])];
    let mut main = graph_of(&["x", "c"], &["y1", "c_out", "f", ours], nodes);
    main.initializer.push(TensorProto::external(
        ours,
        TensorProto::FLOAT,
        [2],
        format!("#{ours}").as_str(),
    ));
    main.initializer.push(floats("scale", 0, 1));
    main.input.push(ValueInfoProto::tensor(ours, TensorProto::FLOAT, [2]));
    main.value_info.push(ValueInfoProto::tensor(ours, TensorProto::FLOAT, [2]));
    main.quantization_annotation.push(annotation(ours, "scale"));
    main.quantization_annotation.push(annotation("y1", ours));
    // The body of a function has names of its own.
    let body =
        function("F", &["a", other], &["b"], vec![node("Add", &["a", other], &["b"], vec![])]);
    let mut model = model_of(main, vec![body]);
    let mut training = TrainingInfoProto::default();
    training.algorithm = Some(Box::new(graph_of(&[], &["new"], vec![uses(ours, "new")])));
    training.initialization = Some(Box::new(shadowing(other)));
    training.update_binding.push(StringStringEntryProto::new(ours, "new"));
    training.initialization_binding.push(StringStringEntryProto::new(ours, "s"));
    model.training_info.push(training);
    model
}

/// A graph with a value `name` of its own.
fn shadowing(name: &str) -> GraphProto {
    let mut graph = graph_of(&[], &["s"], vec![node("Neg", &[name], &["s"], vec![])]);
    graph.initializer.push(floats(name, 7, 2));
    graph
}

#[test]
fn a_value_is_renamed_wherever_it_is_meant_and_nowhere_else() {
    let mut container = Container::new(everywhere("w", "w"));
    container.insert("#w", vec![1.0_f32, 2.0]).unwrap();
    let before = container.clone();
    let count = container.rename("w", "weight").unwrap();
    assert_eq!(*container.model(), everywhere("weight", "w"));
    assert_eq!(count, 14);
    assert!(container.get("#weight").is_some() && container.get("#w").is_none());
    container.check().unwrap();
    assert_eq!(container.rename("weight", "w").unwrap_err().kind(), ErrorKind::AlreadyExists);

    let mut container = Container::new(everywhere("weight", "w"));
    container.insert("#weight", vec![1.0_f32, 2.0]).unwrap();
    container.rename("weight", "q").unwrap();
    assert_eq!(*container.model(), everywhere("q", "w"));
    assert_eq!(before.get("#w").unwrap().byte_len(), 8);
}

#[test]
fn names_that_would_mean_another_value_are_refused() {
    let inner = |uses: &str| {
        let then_branch = graph_of(&[], &["t"], vec![node("Neg", &[uses], &["t"], vec![])]);
        branches(&["y"], then_branch, shadowing("own"))
    };
    let mut main =
        graph_of(&["x", "c"], &["y"], vec![node("Neg", &["x"], &["n"], vec![]), inner("n")]);
    main.initializer.push(floats("w", 0, 2));
    // A declared type of no value would become that of the renamed one.
    main.value_info.push(ValueInfoProto::tensor("ghost", TensorProto::INT64, [3]));
    let body = function("F", &["a"], &["b"], vec![node("Neg", &["a"], &["b"], vec![])]);
    let mut model = model_of(main, vec![body]);
    let mut training = TrainingInfoProto::default();
    training.algorithm = Some(Box::new(graph_of(&[], &["trained"], vec![])));
    training.algorithm.as_mut().unwrap().initializer.push(floats("rate", 0, 1));
    model.training_info.push(training);

    let refused: &[(&str, &str, ErrorKind)] = &[
        ("w", "x", ErrorKind::AlreadyExists),
        ("w", "n", ErrorKind::AlreadyExists),
        ("w", "own", ErrorKind::AlreadyExists),
        ("w", "t", ErrorKind::AlreadyExists),
        ("w", "rate", ErrorKind::AlreadyExists),
        ("w", "ghost", ErrorKind::AlreadyExists),
        ("y.else_branch/own", "w", ErrorKind::AlreadyExists),
        ("y.else_branch/own", "s", ErrorKind::AlreadyExists),
        ("own", "c", ErrorKind::AlreadyExists),
        ("local::F/a", "b", ErrorKind::AlreadyExists),
        ("w", "", ErrorKind::InvalidArgument),
        ("", "v", ErrorKind::InvalidArgument),
        ("nothing", "v", ErrorKind::MissingTensor),
        ("y.then_branch/own", "v", ErrorKind::MissingTensor),
        ("rate", "v", ErrorKind::Unsupported),
    ];
    for (from, to, kind) in refused {
        let mut container = Container::new(model.clone());
        let error = container.rename(from, to).unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (*kind, Some(*from)), "{from} to {to}: {error}");
        assert_eq!(*container.model(), model, "{from} to {to}");
    }
    let renamed: &[(&str, &str, usize)] = &[
        ("w", "a", 1), // a function's names are its own
        ("n", "v", 2),
        ("y.else_branch/own", "t", 2), // a name of the other branch
        ("own", "v", 2),
        ("local::F/a", "x", 2),
        ("x", "v", 2),
    ];
    for (from, to, count) in renamed {
        let mut container = Container::new(model.clone());
        assert_eq!(container.rename(from, to).unwrap(), *count, "{from} to {to}");
        let plain = from.rsplit('/').next().unwrap();
        let back = match from.rsplit_once('/') {
            Some((scope, _)) => format!("{scope}/{to}"),
            None => (*to).to_owned(),
        };
        assert_eq!(container.rename(&back, plain).unwrap(), *count);
        assert_eq!(*container.model(), model, "{from} to {to} and back");
    }
}

#[test]
fn a_handle_is_renamed_with_the_only_tensor_that_has_its_name() {
    let external =
        |name: &str, handle: &str| TensorProto::external(name, TensorProto::FLOAT, [1], handle);
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("w", "#w")], "#v"),
        (&[("w", "#w"), ("u", "#w")], "#w"),
        (&[("w", "#other"), ("u", "#w")], "#other"),
        (&[("w", "#w"), ("u", "#v")], "#v_2"),
    ];
    for (tensors, expected) in cases {
        let tensors =
            tensors.iter().map(|(name, handle)| external(name, handle)).collect::<Vec<_>>();
        let mut container = Container::new(ModelProto::new(graph(tensors, vec![])));
        for (at, handle) in ["#w", "#v", "#other"].into_iter().enumerate() {
            let used = container
                .tensors()
                .any(|t| t.proto().external_data[0].value.as_ref().unwrap() == handle);
            if used {
                container.insert(handle, vec![at as f32]).unwrap();
            }
        }
        let before: Vec<_> = container.tensors().map(|t| t.tensor().unwrap()).collect();
        container.rename("w", "v").unwrap();
        let after: Vec<_> = container.tensors().map(|t| t.tensor().unwrap()).collect();
        assert_eq!(before, after);
        let tensor = &container.model().graph.as_ref().unwrap().initializer[0];
        assert_eq!(tensor.external_data[0].value.as_ref().unwrap(), expected);
    }
}

#[test]
fn an_initializer_is_added_behind_a_handle_of_its_own() {
    let mut container = Container::new(model_of(graph_of(&["x"], &["y"], vec![]), vec![]));
    container.insert("#w", vec![0.0_f32]).unwrap();
    assert_eq!(container.add_initializer("w", vec![1.0_f32, 2.0]).unwrap().as_str(), "#w_2");
    container.check().unwrap();
    assert_eq!(container.tensor("w").unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(container.model().graph.as_ref().unwrap().input.len(), 1);

    container.model_mut().ir_version = Some(3);
    container.add_initializer("v", vec![1_i64]).unwrap();
    let input = &container.model().graph.as_ref().unwrap().input[1];
    assert_eq!(*input, ValueInfoProto::tensor("v", TensorProto::INT64, [1]));

    // What is declared of a value that nothing defines.
    let strings = Tensor::from_strings([1], vec![b"s"[..].into()]).unwrap();
    let graph = container.model_mut().graph.get_or_insert_default();
    graph.value_info.push(ValueInfoProto::tensor("d", TensorProto::INT64, [2]));
    graph.output.push(ValueInfoProto::tensor("o", TensorProto::FLOAT, [1, 2]));
    let mut anything = ValueInfoProto::default();
    anything.name = Some("anything".into());
    graph.output.push(anything);
    let n = ValueInfoProto::tensor_with("n", TensorProto::FLOAT, ["batch".into(), 2.into()]);
    graph.value_info.push(n);
    let refused: Vec<(&str, Tensor, ErrorKind)> = vec![
        ("d", vec![1.0_f32, 2.0].into(), ErrorKind::DataType),
        ("d", vec![1_i64].into(), ErrorKind::Shape),
        ("o", vec![1.0_f32, 2.0].into(), ErrorKind::Shape),
        ("n", vec![1.0_f32, 2.0].into(), ErrorKind::Shape),
        ("w", vec![1.0_f32].into(), ErrorKind::AlreadyExists),
        ("x", vec![1.0_f32].into(), ErrorKind::AlreadyExists),
        ("", vec![1.0_f32].into(), ErrorKind::InvalidArgument),
        ("s", strings, ErrorKind::Unsupported),
    ];
    let before = container.model().clone();
    for (name, tensor, kind) in refused {
        assert_eq!(container.add_initializer(name, tensor).unwrap_err().kind(), kind, "{name}");
        assert_eq!((container.model(), container.len()), (&before, 3));
    }
    let rows = Tensor::from_vec([3, 2], vec![0.0_f32; 6]).unwrap();
    container.add_initializer("n", rows).unwrap();
    container.add_initializer("d", vec![1_i64, 2]).unwrap();
    container.add_initializer("anything", vec![1_u8]).unwrap();
}

#[test]
fn an_initializer_goes_with_all_that_was_said_of_it() {
    let mut main = graph_of(&["x", "c"], &["y"], vec![]);
    main.node.push(branches(
        &["y"],
        graph_of(&[], &["t"], vec![node("Neg", &["captured"], &["t"], vec![])]),
        shadowing("spare"),
    ));
    for name in ["spare", "captured", "output", "scale", "tied"] {
        let handle = if name == "tied" { "#spare".to_owned() } else { format!("#{name}") };
        main.initializer.push(TensorProto::external(
            name,
            TensorProto::FLOAT,
            [2],
            handle.as_str(),
        ));
        main.value_info.push(ValueInfoProto::tensor(name, TensorProto::FLOAT, [2]));
        main.quantization_annotation.push(annotation(name, "scale"));
    }
    main.output.push(ValueInfoProto::tensor("output", TensorProto::FLOAT, [2]));
    let mut container = Container::new(model_of(main, vec![]));
    for handle in ["#spare", "#captured", "#output", "#scale"] {
        container.insert(handle, vec![1.0_f32, 2.0]).unwrap();
    }
    let before = container.clone();
    for (name, uses) in [("captured", 1), ("output", 1), ("scale", 5)] {
        let error = container.delete_initializer(name).unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (ErrorKind::InUse, Some(name)));
        assert!(error.to_string().contains(&format!("in {uses} place")), "{error}");
        assert_eq!(container.model(), before.model());
    }
    // The branch has a `spare` of its own; the handle is also that of `tied`.
    let deleted = container.delete_initializer("spare").unwrap();
    assert_eq!((deleted.tensor.as_str(), deleted.handle, deleted.uses), ("spare", None, 0));
    let deleted = container.delete_initializer("tied").unwrap();
    assert_eq!(deleted.handle.unwrap().as_str(), "#spare");
    let deleted = container.delete_initializer("y.else_branch/spare").unwrap_err();
    assert_eq!(deleted.kind(), ErrorKind::InUse);
    assert_eq!(container.delete_used_initializer("captured").unwrap().uses, 1);
    container.check().unwrap();
    let main = container.model().graph.as_ref().unwrap();
    let names = |all: &[TensorProto]| -> Vec<String> {
        all.iter().map(|tensor| tensor.name.as_ref().unwrap().to_string()).collect()
    };
    assert_eq!(names(&main.initializer), ["output", "scale"]);
    let infos: Vec<_> =
        main.value_info.iter().map(|info| info.name.as_ref().unwrap().to_string()).collect();
    assert_eq!(infos, ["captured", "output", "scale"], "what is used keeps its declared type");
    assert_eq!(main.quantization_annotation.len(), 2);

    let mut container = Container::new(tensors_everywhere());
    for (name, kind) in
        [("value_out", ErrorKind::Unsupported), ("nothing", ErrorKind::MissingTensor)]
    {
        assert_eq!(container.delete_initializer(name).unwrap_err().kind(), kind);
    }
    container.delete_initializer("sparse[1]").unwrap();
    assert!(container.model().graph.as_ref().unwrap().sparse_initializer.is_empty());
    container.delete_initializer("if_node.then_branch/deep.body/w").unwrap();
    assert_eq!(container.tensors().count(), tensors_count() - 3);
}

fn tensors_count() -> usize {
    Container::new(tensors_everywhere()).tensors().count()
}

fn declared(info: &ValueInfoProto) -> (i32, Vec<i64>) {
    let Some(Value::TensorType(tensor)) = &info.r#type.as_ref().unwrap().value else { panic!() };
    let dims = tensor.shape.as_ref().unwrap().dim.iter().map(|dim| match &dim.value {
        Some(onnx_container::proto::tensor_shape_proto::DimensionValue::DimValue(n)) => *n,
        _ => -1,
    });
    (tensor.elem_type.unwrap(), dims.collect())
}

#[test]
fn a_tensor_of_another_type_is_declared_so() {
    let halves = || vec![f16::ONE; 3];
    for inline in [true, false] {
        let mut main = graph_of(&["x", "c", "w"], &["w"], vec![]);
        let inner = {
            let mut inner = shadowing("w");
            inner.value_info.push(ValueInfoProto::tensor("w", TensorProto::FLOAT, [2]));
            inner
        };
        main.node.push(branches(&["y"], inner, graph(vec![], vec![])));
        main.value_info.push(ValueInfoProto::tensor("w", TensorProto::FLOAT, [2]));
        main.initializer.push(floats("w", 0, 2));
        let mut container = Container::new(model_of(main, vec![]));
        if !inline {
            container.externalize(8).unwrap();
        }
        let error = container.replace("w", halves(), Tied::Refuse).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DataType);
        let replaced = container.replace_retyped("w", halves(), Tied::Refuse).unwrap();
        assert_eq!((replaced.inline, replaced.bytes), (inline, 6));
        assert_eq!(container.tensor("w").unwrap().as_slice::<f16>().unwrap(), halves());
        container.check().unwrap();
        let main = container.model().graph.as_ref().unwrap();
        for info in [&main.input[2], &main.output[0], &main.value_info[0]] {
            assert_eq!(declared(info), (TensorProto::FLOAT16, vec![3]));
        }
        let NodeProto { attribute, .. } = &main.node[0];
        let inner: &AttributeProto = &attribute[0];
        let other = &inner.g.as_ref().unwrap().value_info[0];
        assert_eq!(declared(other), (TensorProto::FLOAT, vec![2]), "another `w`");
    }
}

#[test]
fn tied_tensors_get_another_type_together_or_apart() {
    let tied = |dims: [i64; 2]| {
        let mut graph = graph(vec![], vec![]);
        for (name, dim) in [("a", dims[0]), ("b", dims[1])] {
            let dims = if dim == 4 { vec![4] } else { vec![2, 2] };
            graph.initializer.push(TensorProto::external(name, TensorProto::FLOAT, dims, "#t"));
        }
        let mut container = Container::new(ModelProto::new(graph));
        container.insert("#t", vec![0.0_f32; 4]).unwrap();
        container
    };
    let halves = || Tensor::from_vec([2], vec![f16::ONE; 2]).unwrap();
    let cases = [
        ([4, 4], Tied::Refuse, Err(ErrorKind::Tied)),
        ([4, 4], Tied::All, Ok([DataType::Float16, DataType::Float16])),
        ([4, 4], Tied::This, Ok([DataType::Float16, DataType::Float])),
        ([4, 2], Tied::All, Err(ErrorKind::Unsupported)),
        ([4, 2], Tied::This, Ok([DataType::Float16, DataType::Float])),
    ];
    for (dims, how, expected) in cases {
        let mut container = tied(dims);
        let result = container.replace_retyped("a", halves(), how);
        let types = || ["a", "b"].map(|name| container.tensor(name).unwrap().dtype());
        match expected {
            Ok(expected) => {
                result.unwrap();
                assert_eq!(types(), expected);
                container.check().unwrap();
            }
            Err(kind) => {
                assert_eq!(result.unwrap_err().kind(), kind);
                assert_eq!(types(), [DataType::Float; 2]);
            }
        }
    }
    let mut sparse = Container::new(tensors_everywhere());
    let error = sparse.replace_retyped("sparse[1]", vec![1_i32], Tied::Refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// The encoder of the tests with every value of its main graph renamed that can be, and
/// initializers that came and went, as onnxruntime and the checker see it.
#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn edited_models_compute_the_same() {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/encoder/encoder.onnx");
    let mut container = Container::load(&original, MmapChoice::never()).unwrap();
    let graph = container.model().graph.as_ref().unwrap();
    let outputs = graph.node.iter().flat_map(|node| &node.output);
    let inputs = graph.input.iter().filter_map(|input| input.name.as_ref());
    let tensors = graph.initializer.iter().filter_map(|tensor| tensor.name.as_ref());
    let names: Vec<_> = outputs.chain(inputs).chain(tensors).map(|name| name.to_string()).collect();
    assert!(names.len() > 50);
    for (at, name) in names.iter().enumerate() {
        assert!(container.rename(name, &format!("renamed.{at}")).unwrap() > 0, "{name}");
    }
    container.add_initializer("spare", vec![1.0_f32; 300]).unwrap();
    container.add_initializer("another", vec![1_i64; 300]).unwrap();
    container.delete_initializer("spare").unwrap();
    let values = container.tensor("another").unwrap();
    container
        .replace_retyped(
            "another",
            values.to_array::<i64>().unwrap().mapv(|v| v as i32),
            Tied::Refuse,
        )
        .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let edited = folder.path().join("edited.onnx");
    container.save(&edited, true).unwrap();
    run_driver_with("edits.py", &[original.to_str().unwrap(), edited.to_str().unwrap()]);
}

#[test]
fn the_error_for_an_unknown_value_suggests_names() {
    let then = graph_of(&[], &["t"], vec![node("Neg", &["weight"], &["inner_sum"], vec![])]);
    let other = graph_of(&[], &["t"], vec![]);
    let mut main = graph_of(&["input"], &["y"], vec![branches(&["y"], then, other)]);
    main.initializer.push(floats("weight", 0, 2));
    let mut container = Container::new(model_of(main, vec![]));
    for (from, suggestion) in [
        ("wieght", "; did you mean `weight`?"),
        ("inptu", "; did you mean `input`?"),
        ("y.then_branch/inner_sun", "; did you mean `y.then_branch/inner_sum`?"),
        ("something else", "no graph has a value of this name"),
    ] {
        let error = container.rename(from, "new").unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (ErrorKind::MissingTensor, Some(from)));
        assert!(error.to_string().ends_with(suggestion), "{error}");
    }
}

#[test]
fn inputs_and_outputs_are_renamed_and_nothing_else_passes_for_one() {
    let original = Container::new(everywhere("weight", "w"));
    let inputs = |container: &mut Container, from: &str| container.rename_input(from, "fresh");
    let outputs = |container: &mut Container, from: &str| container.rename_output(from, "fresh");
    type Rename = fn(&mut Container, &str) -> onnx_container::Result<usize>;
    // The call, the name, and how the error ends; none where the name is there.
    let cases: [(Rename, &str, &str); 6] = [
        (inputs, "x", ""),
        (outputs, "y1", ""),
        (inputs, "weight", ""),
        (outputs, "x", "the graph has no output of this name; it is an input"),
        (inputs, "scale", "the graph has no input of this name"),
        (outputs, "c_ou", "the graph has no output of this name; did you mean `c_out`?"),
    ];
    for (rename, from, ending) in cases {
        let mut container = original.clone();
        match rename(&mut container, from) {
            Ok(places) => {
                assert!(ending.is_empty() && places > 1, "{from}");
                container.rename("fresh", from).unwrap();
            }
            Err(error) => {
                assert_eq!((error.kind(), error.tensor()), (ErrorKind::MissingTensor, Some(from)));
                assert!(!ending.is_empty() && error.to_string().ends_with(ending), "{error}");
            }
        }
        let bytes = |container: &Container| container.model().encode_to_vec().unwrap();
        assert_eq!(bytes(&container), bytes(&original), "{from}: there and back");
    }
}

#[test]
fn a_key_of_metadata_has_one_value_and_a_stored_digest_is_none() {
    let mut model = everywhere("w", "w");
    for (key, value) in [("a", "1"), ("onnx_container.sha256", "0"), ("b", "2"), ("a", "3")] {
        model.metadata_props.push(StringStringEntryProto::new(key, value));
    }
    let mut container = Container::new(model);
    let all = |container: &Container| {
        let each = container.metadata().map(|(key, value)| format!("{key}={value}"));
        each.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(all(&container), "a=1 b=2 a=3");
    assert_eq!(container.set_metadata("a", "4").unwrap().as_deref(), Some("1"));
    assert_eq!(container.set_metadata("task", "").unwrap(), None);
    assert_eq!(all(&container), "a=4 b=2 task=");
    assert_eq!(container.remove_metadata("b").unwrap(), "2");
    assert_eq!(all(&container), "a=4 task=");
    for (refused, reason) in [
        (container.set_metadata("", "x").unwrap_err(), "cannot be empty"),
        (container.set_metadata("onnx_container.sha256", "x").unwrap_err(), "a stored digest"),
        (container.remove_metadata("onnx_container.sha256").unwrap_err(), "has no metadata"),
        (container.remove_metadata("tsak").unwrap_err(), "did you mean `task`?"),
    ] {
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    assert_eq!(all(&container), "a=4 task=");
}

/// Values that subgraphs capture, an input and an output renamed, as onnxruntime and the checker
/// see them.
#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn renamed_models_with_subgraphs_compute_the_same() {
    let uses = |name: &str, out: &str| {
        graph_of(&[], &[out], vec![node("Add", &["x", name], &[out], vec![])])
    };
    let inner = branches(&["t"], uses("n", "deep_t"), uses("w", "deep_e"));
    let then_branch = graph_of(&[], &["t"], vec![inner]);
    let nodes =
        vec![node("Neg", &["x"], &["n"], vec![]), branches(&["y"], then_branch, uses("w", "e"))];
    let mut main = graph_of(&[], &[], nodes);
    main.input.push(ValueInfoProto::tensor("x", TensorProto::FLOAT, [2]));
    main.input.push(ValueInfoProto::tensor("c", TensorProto::BOOL, []));
    main.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [2]));
    main.initializer.push(floats("w", 3, 2));
    let folder = tempfile::tempdir().unwrap();
    let [original, edited] = ["original.onnx", "edited.onnx"].map(|name| folder.path().join(name));
    let mut container = Container::new(model_of(main, vec![]));
    container.save(&original, true).unwrap();
    container.rename_input("x", "tokens").unwrap();
    container.rename_output("y", "logits").unwrap();
    for (from, to) in [("n", "negated"), ("w", "weight"), ("logits.then_branch/t", "inner")] {
        container.rename(from, to).unwrap();
    }
    container.set_metadata("task", "speech").unwrap();
    container.save(&edited, true).unwrap();
    run_driver_with("edits.py", &[original.to_str().unwrap(), edited.to_str().unwrap()]);
}
