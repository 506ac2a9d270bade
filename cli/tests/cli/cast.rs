//! `cast`.

use std::collections::HashSet;

use onnx_container::proto::type_proto::Value;
use onnx_container::proto::{ModelProto, NodeProto, TensorProto, ValueInfoProto};
use onnx_container::{Container, DataType, MmapChoice};

use crate::support::{Folder, floats};

/// The names and types of the tensors in the model at `name`, and those of its first input.
fn types(folder: &Folder, name: &str) -> (Vec<(String, DataType)>, Vec<DataType>) {
    let container = Container::load(folder.path(name), MmapChoice::never()).unwrap();
    let tensors = container.tensors();
    let tensors = tensors.map(|tensor| (tensor.name().to_string(), tensor.dtype().unwrap()));
    let graph = container.model().graph.as_ref().unwrap();
    let input = |input: &ValueInfoProto| {
        let Some(Value::TensorType(tensor)) = &input.r#type.as_ref().unwrap().value else {
            panic!("no tensor")
        };
        DataType::try_from(tensor.elem_type.unwrap()).unwrap()
    };
    (tensors.collect(), graph.input.iter().map(input).collect())
}

/// A model that adds two weights: `y = x + w + norm.w`.
fn adds() -> ModelProto {
    let mut model = crate::support::sums();
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(floats("norm.w", 4));
    graph.node[1] = NodeProto::new("Add", ["x", "norm.w"], ["z"]);
    model
}

/// The options, the names and types of both weights, and the type of the input.
type Case<'a> = (&'a [&'a str], [(&'a str, DataType); 2], DataType);

#[test]
fn weights_are_cast_and_the_graph_computes_in_their_type() {
    use DataType::{Bfloat16, Float, Float16};

    let folder = Folder::new();
    folder.save("m.onnx", &adds());
    let cases: [Case<'_>; 5] = [
        (&["--to", "float16"], [("w_float16", Float16), ("norm.w_float16", Float16)], Float16),
        (
            &["--to", "float16", "--keep-io"],
            [("w_float16", Float16), ("norm.w_float16", Float16)],
            Float,
        ),
        (
            &["--to", "float16", "--weights-only"],
            [("w_float16", Float16), ("norm.w_float16", Float16)],
            Float,
        ),
        (
            &["--to", "bfloat16"],
            [("w_bfloat16", Bfloat16), ("norm.w_bfloat16", Bfloat16)],
            Bfloat16,
        ),
        (
            &["--to", "float16", "--except", "norm.*"],
            [("w_float16", Float16), ("norm.w", Float)],
            Float16,
        ),
    ];
    for (args, tensors, input) in cases {
        let args = [&["cast", "m.onnx", "o.onnx", "--min-bytes", "0"][..], args].concat();
        folder.run(&args).done().says(&["cast", "wrote     1 file"]);
        let expected: Vec<_> = tensors.map(|(name, dtype)| (name.to_owned(), dtype)).into();
        let (found, inputs) = types(&folder, "o.onnx");
        assert_eq!((found, inputs), (expected, vec![input]), "{args:?}");
        folder.run(&["check", "o.onnx"]).done();
    }
}

/// The layout is that of the options, and files stay as they are when nothing is cast.
#[test]
fn weights_go_to_the_files_that_are_asked_for() {
    let folder = Folder::packed();
    folder.run(&["cast", "p.onnx", "o.onnx", "--to", "float16"]).done().says(&["o.onnx.data"]);
    folder
        .run(&["cast", "p.onnx", "s.onnx", "--to", "bfloat16", "--safetensors"])
        .done()
        .says(&["s.safetensors"]);
    let before = folder.contents();
    folder
        .run(&["cast", "p.onnx", "d.onnx", "--to", "float16", "--dry-run"])
        .done()
        .says(&["casts"]);
    let nothing =
        "nothing is cast to FLOAT16: no weights of FLOAT or BFLOAT16 have at least 1048576 bytes";
    let args = ["cast", "p.onnx", "d.onnx", "--to", "float16", "--min-bytes", "1M"];
    folder.run(&[&args[..], &["--weights-only"]].concat()).failed(&[nothing]);
    assert!(folder.contents() == before);
}

#[test]
fn one_short_type_becomes_the_other() {
    let folder = Folder::new();
    folder.save("m.onnx", &adds());
    let cast = |input, output, to| {
        folder.run(&["cast", input, output, "--to", to, "--min-bytes", "0", "--keep-io"]).done();
        types(&folder, output).0.into_iter().map(|(_, dtype)| dtype).collect::<HashSet<_>>()
    };
    assert_eq!(cast("m.onnx", "b.onnx", "bfloat16"), [DataType::Bfloat16].into());
    assert_eq!(cast("b.onnx", "h.onnx", "float16"), [DataType::Float16].into());
    assert_eq!(cast("h.onnx", "c.onnx", "bfloat16"), [DataType::Bfloat16].into());
    folder.run(&["check", "h.onnx", "--strict"]).done();
    folder.run(&["verify", "b.onnx", "h.onnx", "--rtol", "0.01", "--dim", "batch=3"]).done();
}

#[test]
fn weights_that_become_infinite_are_told() {
    let folder = Folder::new();
    let mut model = adds();
    for (name, value) in [("large", 1e6_f32), ("fits", 65_504.0), ("endless", f32::INFINITY)] {
        let bytes = [value; 300].map(f32::to_le_bytes).concat();
        let tensor = TensorProto::new(name, TensorProto::FLOAT, [300]).with_raw_data(bytes);
        model.graph.as_mut().unwrap().initializer.push(tensor);
    }
    folder.save("inline.onnx", &model);
    folder.run(&["pack", "inline.onnx", "m.onnx", "--min-bytes", "0"]).done();
    for input in ["inline.onnx", "m.onnx"] {
        let cast = ["cast", input, "o.onnx", "--weights-only", "--to"];
        let run = folder.run(&[&cast[..], &["float16"]].concat()).done();
        run.says(&[
            "infinite  1 tensor with numbers beyond the largest FLOAT16: leave them out with \
             --except, or cast to bfloat16",
            "          large",
        ]);
        let json = folder.run(&[&cast[..], &["float16", "--json"]].concat()).done().json();
        assert_eq!(json["infinite"], serde_json::json!(["large"]));
        let json = folder.run(&[&cast[..], &["bfloat16", "--json"]].concat()).done().json();
        assert_eq!(json["infinite"], serde_json::json!([]));
    }
    // Tied weights are listed one by one.
    let mut large = model.graph.as_ref().unwrap().initializer.clone();
    large.retain(|tensor| tensor.name.as_ref().is_some_and(|name| *name == "large"));
    large[0].name = Some("large_too".into());
    model.graph.as_mut().unwrap().initializer.extend(large);
    folder.save("twice.onnx", &model);
    folder.run(&["pack", "twice.onnx", "tied.onnx", "--min-bytes", "0", "--dedup"]).done();
    let cast = ["cast", "tied.onnx", "o.onnx", "--weights-only", "--to", "float16", "--json"];
    let json = folder.run(&cast).done().json();
    assert_eq!(json["infinite"], serde_json::json!(["large", "large_too"]));
}

/// A small constant is not cast, and a new node converts it all the same.
#[test]
fn a_small_constant_that_becomes_infinite_is_told() {
    let folder = Folder::new();
    let mut model = adds();
    let bytes = [1e9_f32; 4].map(f32::to_le_bytes).concat();
    model.graph.as_mut().unwrap().initializer[0] =
        TensorProto::new("w", TensorProto::FLOAT, [4]).with_raw_data(bytes);
    folder.save("m.onnx", &model);
    folder.run(&["cast", "m.onnx", "o.onnx", "--to", "float16"]).done().says(&[
        "infinite  1 tensor with numbers beyond the largest FLOAT16: leave them out with --except, \
         with their nodes in --keep-op, or cast to bfloat16\n          w\n",
    ]);
    let kept = ["cast", "m.onnx", "o.onnx", "--to", "float16", "--keep-op", "Add", "--json"];
    assert_eq!(folder.run(&kept).done().json()["infinite"], serde_json::json!([]));
}

#[test]
fn calls_that_stay_are_counted() {
    let folder = Folder::new();
    let mut model = adds();
    let mut body = onnx_container::proto::FunctionProto::new("local", "f");
    body.input = vec!["a".into()];
    body.output = vec!["b".into()];
    body.opset_import.push(onnx_container::proto::OperatorSetIdProto::new("", 21));
    body.node.push(NodeProto::new("Abs", ["a"], ["b"]));
    model.functions.push(body);
    model.opset_import.push(onnx_container::proto::OperatorSetIdProto::new("local", 1));
    let mut call = NodeProto::new("f", ["x"], ["z"]);
    call.domain = Some("local".into());
    model.graph.as_mut().unwrap().node[1] = call;
    folder.save("m.onnx", &model);
    let args = ["cast", "m.onnx", "o.onnx", "--to", "float16", "--min-bytes", "0"];
    let run = folder.run(&args).done();
    run.says(&["kept      1 node in the old type\n          f z_float\n", "inline-functions"]);
    assert_eq!(folder.run(&[&args[..], &["--json"]].concat()).done().json()["calls"], 1);
    folder.run(&["inline-functions", "m.onnx", "i.onnx"]).done();
    let args = ["cast", "i.onnx", "o.onnx", "--to", "float16", "--min-bytes", "0", "--json"];
    assert_eq!(folder.run(&args).done().json()["calls"], 0);
}

#[test]
fn one_type_alone_is_cast() {
    let folder = Folder::new();
    folder.save("m.onnx", &adds());
    let all = ["--min-bytes", "0", "--weights-only", "--to"];
    let cast = |args: &[&str]| folder.run(&[&["cast"], args].concat());
    cast(&[&["m.onnx", "b.onnx", "--except", "norm.w"], &all[..], &["bfloat16"]].concat()).done();
    let only = [&["b.onnx", "o.onnx"], &all[..], &["float16", "--from"]].concat();
    for (from, expected) in [
        ("float", [("w_bfloat16", DataType::Bfloat16), ("norm.w_float16", DataType::Float16)]),
        ("bf16", [("w_bfloat16_float16", DataType::Float16), ("norm.w", DataType::Float)]),
    ] {
        cast(&[&only[..], &[from]].concat()).done();
        assert_eq!(types(&folder, "o.onnx").0, expected.map(|(name, ty)| (name.to_owned(), ty)));
    }
    cast(&[&only[..], &["fp16"]].concat()).misused(&["--from and --to are the same type"]);
}

#[test]
fn what_is_not_cast_is_told() {
    let folder = Folder::new();
    folder.save("m.onnx", &resized());
    let run = folder.run(&["cast", "m.onnx", "o.onnx", "--to", "float16", "--min-bytes", "0"]);
    run.done().says(&["kept      1 tensor\n", "scales: read by shape inference"]);

    folder.save("m.onnx", &adds());
    let args = ["cast", "m.onnx", "o.onnx", "--to", "float16", "--min-bytes", "0"];
    // The pattern, what is cast, what is kept and what computes.
    for (pattern, said, count) in [
        ("norm.*", &["cast      1 tensor to FLOAT16: 16 B", "kept      1 tensor by --except\n"], 1),
        (
            "*",
            &["cast      no tensors to FLOAT16: all stay", "kept      2 tensors by --except\n"],
            2,
        ),
    ] {
        let args = [&args[..], &["--except", pattern]].concat();
        folder.run(&args).done().says(&[&said[..], &["          norm.w\n", "computes  "]].concat());
        let uncast = &folder.run(&[&args[..], &["--json"]].concat()).done().json()["uncast"];
        let uncast = uncast.as_array().unwrap();
        assert_eq!(uncast.len(), count);
        assert!(uncast.iter().all(|one| one["reason"] == "excepted"), "{uncast:?}");
        assert!(uncast.iter().any(|one| one["tensor"] == "norm.w"), "{uncast:?}");
    }
    let nothing =
        "nothing is cast to FLOAT16: 2 weights of FLOAT or BFLOAT16 stay, such as `w`: excepted";
    folder.run(&[&args[..], &["--except", "*", "--weights-only"]].concat()).failed(&[nothing]);
    folder.run(&["cast", "m.onnx", "o.onnx", "--to", "float16"]).done().says(&[
        "cast      no tensors to FLOAT16: none of the old type has 1024 bytes",
        "computes  2 nodes",
    ]);
}

#[test]
fn patterns_that_match_nothing_are_refused() {
    let folder = Folder::new();
    folder.save("m.onnx", &adds());
    let args = ["cast", "m.onnx", "o.onnx", "--to", "float16", "--except"];
    folder.run(&[&args[..], &["layer.*"]].concat()).misused(&["`layer.*` matches no tensor"]);
    folder.run(&[&args[..], &["a[b"]].concat()).misused(&["a[b"]);
    folder.run(&["cast", "m.onnx", "o.onnx", "--to", "int8"]).misused(&["float16"]);
    assert_eq!(folder.names(), ["m.onnx"]);
}

/// A Resize whose scales have to stay, and an operator that the machine does not have.
pub fn resized() -> ModelProto {
    use onnx_container::proto::{GraphProto, OperatorSetIdProto};

    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [1, 1, 2, 2]));
    graph.initializer.push(floats("scales", 4));
    graph.node.push(NodeProto::new("Resize", ["x", "", "scales"], ["r"]));
    let mut own = NodeProto::new("Own", ["r"], ["y"]);
    own.domain = Some("custom".into());
    graph.node.push(own);
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [-1, -1, -1, -1]));
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(9);
    model.opset_import =
        vec![OperatorSetIdProto::new("", 18), OperatorSetIdProto::new("custom", 1)];
    model
}

#[cfg(feature = "machine")]
mod verified {
    use super::*;

    /// A model whose weights are `values`.
    fn with(values: [f32; 4]) -> ModelProto {
        let mut model = adds();
        let mut w = TensorProto::new("w", TensorProto::FLOAT, [4]);
        w.raw_data = Some(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>().into());
        model.graph.as_mut().unwrap().initializer[0] = w;
        model
    }

    #[test]
    fn the_largest_difference_of_each_output_is_told() {
        let folder = Folder::new();
        folder.save("m.onnx", &with([0.1, 2.0, 3.0, 4.0]));
        let args = ["cast", "m.onnx", "o.onnx", "--min-bytes", "0", "--verify"];
        for (to, least, most) in [("float16", 1e-6, 1e-2), ("bfloat16", 1e-5, 1e-1)] {
            let args = [&args[..], &["--to", to, "--dim", "batch=3", "--json"]].concat();
            let found = &folder.run(&args).done().json()["compared"];
            assert_eq!(
                (&found["ok"], &found["outputs"][0]["elements"]),
                (&true.into(), &12.into())
            );
            let apart = found["outputs"][0]["max_abs"].as_f64().unwrap();
            assert!((least..most).contains(&apart), "{to}: {apart}");
        }
        folder
            .run(&["cast", "o.onnx", "b.onnx", "--min-bytes", "0", "--to", "float", "--verify"])
            .done()
            .says(&["cast      2 tensors to FLOAT: 16 B become 32 B", "output `y` by at most"]);
        folder
            .run(&[&args[..], &["--to", "float16", "--dim", "bach=3"]].concat())
            .failed(&["no input has an open dimension `bach`"]);
    }

    #[test]
    fn numbers_that_become_infinite_are_a_finding() {
        let folder = Folder::new();
        folder.save("m.onnx", &with([1e6, 2.0, 3.0, 4.0]));
        let args = ["cast", "m.onnx", "o.onnx", "--min-bytes", "0", "--verify", "--to"];
        let run = folder.run(&[&args[..], &["float16"]].concat());
        assert_eq!(run.code(), 1);
        run.says(&["problem   output `y` is infinite or no number where it was a number"]);
        folder.run(&[&args[..], &["bfloat16"]].concat()).done();
    }

    #[test]
    fn a_model_that_does_not_run_here_is_not_compared() {
        let folder = Folder::new();
        folder.save("m.onnx", &resized());
        let args = ["cast", "m.onnx", "o.onnx", "--to", "float16", "--min-bytes", "0", "--verify"];
        folder.run(&args).done().says(&["not run", "custom::Own: there is no kernel"]);
    }
}

/// A cast that turns out to be bad would be all that is left.
#[cfg(feature = "machine")]
#[test]
fn the_model_that_is_compared_with_is_not_replaced() {
    let folder = Folder::new();
    folder.save("m.onnx", &adds());
    let before = std::fs::read(folder.path("m.onnx")).unwrap();
    for out in ["m.onnx", "./m.onnx"] {
        folder
            .run(&["cast", "m.onnx", out, "--min-bytes", "0", "--to", "float16", "--verify"])
            .misused(&["OUT is IN", "onnx-container mv"]);
        assert_eq!(std::fs::read(folder.path("m.onnx")).unwrap(), before);
    }
    folder.run(&["cast", "m.onnx", "m.onnx", "--min-bytes", "0", "--to", "float16"]).done();
}

#[test]
fn an_operator_that_no_node_is_of_is_refused() {
    let folder = Folder::new();
    folder.save("m.onnx", &adds());
    let args = ["cast", "m.onnx", "o.onnx", "--min-bytes", "0", "--to", "float16", "--keep-op"];
    folder.run(&[&args[..], &["Softmax"]].concat()).misused(&["--keep-op `Softmax`"]);
    folder.run(&[&args[..], &["Add"]].concat()).done();
}
