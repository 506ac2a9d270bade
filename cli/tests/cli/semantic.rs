//! `digest --semantic` and `diff --semantic`.

use onnx_container::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    ValueInfoProto,
};
use serde_json::json;

use crate::support::{Folder, floats};

/// `y = LeakyRelu(x) + w` and `z = Neg(x)`; the first by way of a function.
fn model(alpha: f32) -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(floats("w", 300));
    graph.input.push(ValueInfoProto::tensor("x", 1, [300]));
    graph.output = ["z", "y"].map(|name| ValueInfoProto::tensor(name, 1, [300])).into();
    let mut call = NodeProto::new("f", ["x", "w"], ["y"]);
    call.domain = Some("local".into());
    graph.node = vec![NodeProto::new("Neg", ["x"], ["z"]), call];
    let mut function = FunctionProto::new("local", "f");
    function.input = ["a", "b"].map(Into::into).into();
    function.output = vec!["c".into()];
    let mut relu = NodeProto::new("LeakyRelu", ["a"], ["t"]);
    relu.attribute.push(AttributeProto::float("alpha", alpha));
    function.node = vec![relu, NodeProto::new("Add", ["t", "b"], ["c"])];
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21), OperatorSetIdProto::new("local", 1)];
    function.opset_import = model.opset_import.clone();
    model.functions.push(function);
    model
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("a.onnx", &model(0.5));
    folder.save("b.onnx", &model(0.25));
    folder
}

fn digest(folder: &Folder, name: &str) -> String {
    folder.run(&["digest", "--semantic", name]).done().stdout()
}

#[test]
fn every_command_that_writes_a_model_keeps_its_digest() {
    let folder = folder();
    let expected = digest(&folder, "a.onnx");
    assert!(expected.starts_with("sha256:") && expected.len() == 7 + 64 + 1, "{expected}");
    assert_ne!(digest(&folder, "b.onnx"), expected);
    for command in [
        &["pack", "a.onnx", "o.onnx", "--min-bytes=0", "--all-tensors"][..],
        &["pack", "a.onnx", "o.onnx", "--min-bytes=0", "--safetensors"],
        &["split", "a.onnx", "o.onnx", "--min-bytes=0"],
        &["embed", "o.onnx", "o.onnx"],
        &["inline", "o.onnx", "o.onnx"],
    ] {
        folder.run(command);
        assert_eq!(digest(&folder, "o.onnx"), expected, "{command:?}");
        let diff = folder.run(&["diff", "--semantic", "a.onnx", "o.onnx", "--no-mmap"]).done();
        assert_eq!(diff.stdout(), "the models compute the same\n");
    }
}

#[test]
fn each_output_has_a_digest() {
    let folder = folder();
    let lines = |name| {
        let run = folder.run(&["digest", "--semantic", "--outputs", name]).done();
        run.stdout().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (a, b) = (lines("a.onnx"), lines("b.onnx"));
    assert!(a[0].ends_with("  z") && a[1].ends_with("  y") && a.len() == 2, "{a:?}");
    assert!(a[0] == b[0] && a[1] != b[1], "{a:?} {b:?}");
    let run = folder.run(&["digest", "--semantic", "a.onnx", "--json"]).done().json();
    let one = |i: usize| json!({"name": &a[i][73..], "semantic": &a[i][..71]});
    let whole = digest(&folder, "a.onnx");
    let expected = json!({"command": "digest", "model": "a.onnx", "semantic": whole.trim(),
        "outputs": [one(0), one(1)], "warnings": []});
    assert_eq!(run, expected);
}

#[test]
fn models_part_at_an_output_and_a_node() {
    let folder = folder();
    let run = folder.run(&["diff", "--semantic", "a.onnx", "b.onnx"]);
    let place = "node `t` (LeakyRelu) of function `local::f`";
    let expected =
        format!("the models part at output 1 (`y`): {place}:\nattribute `alpha` differs\n");
    assert_eq!((run.code(), run.stdout(), run.stderr()), (1, expected, String::new()));
    let run = folder.run(&["diff", "--semantic", "a.onnx", "b.onnx", "--json"]);
    let difference = json!({"output": 1, "output_names": ["y", "y"], "places": [place, place],
        "reason": "attribute `alpha` differs"});
    let expected = json!({"command": "diff", "a": "a.onnx", "b": "b.onnx", "same": false,
        "difference": difference, "warnings": []});
    assert_eq!((run.code(), run.json()), (1, expected));
    let run = folder.run(&["diff", "--semantic", "a.onnx", "a.onnx", "--json"]).done().json();
    assert_eq!((&run["same"], &run["difference"]), (&json!(true), &json!(null)));
}

#[test]
fn what_is_wrong_is_reported() {
    let folder = folder();
    for args in [
        &["digest", "--semantic"][..],
        &["digest", "a.onnx", "--outputs"],
        &["digest", "a.onnx", "--semantic", "--tensors"],
        &["diff", "--semantic", "a.onnx"],
        &["diff", "--semantic", "--stats", "a.onnx", "b.onnx"],
        &["diff", "--semantic", "a.onnx", "b.onnx", "--outputs"],
    ] {
        folder.run(args).misused(&[]);
    }
    let mut broken = model(0.5);
    broken.graph.as_mut().unwrap().node[0].input[0] = "nobody".into();
    folder.save("broken.onnx", &broken);
    let texts = ["node `z` (Neg)", "nothing defines the value `nobody`"];
    folder.run(&["digest", "--semantic", "broken.onnx"]).failed(&texts);
    let run = folder.run(&["diff", "--semantic", "a.onnx", "broken.onnx", "--json"]);
    assert_eq!((run.code(), &run.json()["error"]["kind"]), (2, &json!("InvalidModel")));
    folder.run(&["diff", "--semantic", "a.onnx", "gone.onnx"]).misused(&["error: `gone.onnx`"]);
}
