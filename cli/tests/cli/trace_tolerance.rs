//! `trace diff --rtol --atol`: models whose numbers are nearly the same.

use onnx_container::DataType;
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use serde_json::json;

use crate::support::{Folder, weight};

/// `y = exp((x + w) * v)`, of FLOAT, where `v` starts at `start`.
fn chain(start: f32) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [2, 400]));
    graph.initializer = vec![weight("w", &[400], 0.0), weight("v", &[400], start)];
    graph.node = vec![
        NodeProto::new("Add", ["x", "w"], ["h"]),
        NodeProto::new("Mul", ["h", "v"], ["m"]),
        NodeProto::new("Exp", ["m"], ["y"]),
    ];
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [2, 400]));
    ModelProto::new(graph).with_operator_set("", 21)
}

/// The model, its cast ones and one with other weights.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &chain(1.1));
    folder.save("other.onnx", &chain(1.6));
    for (name, options) in
        [("half.onnx", &[][..]), ("io.onnx", &["--keep-io"]), ("stored.onnx", &["--weights-only"])]
    {
        let cast = ["cast", "m.onnx", name, "--to", "float16"];
        folder.run(&[&cast[..], options].concat()).done();
    }
    folder
}

#[test]
fn a_cast_model_is_the_same_within_a_tolerance() {
    let folder = folder();
    for cast in ["half.onnx", "io.onnx", "stored.onnx"] {
        for models in [["m.onnx", cast], [cast, "m.onnx"]] {
            let diff =
                |options: &[&str]| folder.run(&[&["trace", "diff"], &models[..], options].concat());
            assert_eq!(diff(&[]).code(), 1, "{models:?}");
            let same = ["--rtol", "0.02", "--atol", "0.001"];
            let run = diff(&same).done();
            run.says(&["same      all values of", "within the tolerance (rtol 0.02, atol 0.001)"]);
            let json = diff(&[&same[..], &["--json"]].concat()).done().json();
            assert_eq!((&json["same"], &json["rtol"]), (&true.into(), &0.02.into()), "{json}");
            assert_eq!((&json["first"], &json["outputs"]), (&json!(null), &json!([])), "{json}");
            // What verify says of the same models.
            let verify = [&["verify"][..], &models, &same].concat();
            folder.run(&verify).done();
        }
    }
    // No two numbers are so near.
    let run = folder.run(&["trace", "diff", "m.onnx", "half.onnx", "--rtol", "1e-9"]);
    assert_eq!(run.code(), 1, "{run:?}");
    run.says(&["first A   step 0, node (ai.onnx.Add-21): h, FLOAT", "elements differ, by at most"]);
}

#[test]
fn the_first_step_beyond_the_tolerance_is_named() {
    let folder = folder();
    for other in ["other.onnx", "other_half.onnx"] {
        let cast = ["cast", "other.onnx", "other_half.onnx", "--to", "float16"];
        folder.run(&cast).done();
        let diff = ["trace", "diff", "m.onnx", other, "--rtol", "0.02", "--atol", "0.001"];
        let run = folder.run(&diff);
        assert_eq!(run.code(), 1, "{run:?}");
        run.says(&["first A   step 1, node (ai.onnx.Mul-21): m, FLOAT", "outputs   differ: y"]);
        let json = folder.run(&[&diff[..], &["--json"]].concat()).json();
        assert_eq!(json["differing_steps"], json!([2, 2]), "{json}");
        assert!(json["first"]["by"]["max_abs"].as_f64().unwrap() > 0.1, "{json}");
    }
}

#[test]
fn traces_have_no_values_to_compare() {
    let folder = folder();
    folder.run(&["trace", "m.onnx", "-o", "t.jsonl"]).done();
    for models in [["t.jsonl", "m.onnx"], ["m.onnx", "t.jsonl"], ["t.jsonl", "t.jsonl"]] {
        let diff = [&["trace", "diff"], &models[..], &["--rtol", "0.1"]].concat();
        folder.run(&diff).misused(&["a trace has digests alone"]);
    }
    folder.run(&["trace", "diff", "m.onnx", "m.onnx", "--rtol", "-1"]).misused(&["tolerance"]);
}
