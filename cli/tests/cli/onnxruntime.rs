//! `--with ort`: onnxruntime as a witness. Built with the feature `ort` alone; `scripts/test.sh`
//! names its shared library, without which these tests fail.

use std::process::Command;

use onnx_container::proto::OperatorSetIdProto;
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use onnx_container::{DataType, Tensor};
use serde_json::json;

use crate::support::sums as model;
use crate::support::{Folder, Run};

const LIBRARY: &str = "ORT_DYLIB_PATH";

/// Runs the command in `folder` without the variable that names the library.
fn without_library(folder: &Folder, args: &[&str]) -> Run {
    let mut command: Command = folder.command(args);
    Run::of(command.env_remove(LIBRARY).output().unwrap())
}

/// Every element type that both sides pass on.
const TYPES: [(DataType, i64); 14] = [
    (DataType::Float, 5),
    (DataType::Double, 5),
    (DataType::Float16, 5),
    (DataType::Bfloat16, 5),
    (DataType::Int8, 3),
    (DataType::Int16, 3),
    (DataType::Int32, 3),
    (DataType::Int64, 3),
    (DataType::Uint8, 3),
    (DataType::Uint16, 3),
    (DataType::Uint32, 3),
    (DataType::Uint64, 3),
    (DataType::Bool, 4),
    (DataType::String, 2),
];

/// Reshapes, which onnxruntime has for every type: one input and output for each, with and without
/// elements.
fn every_type() -> ModelProto {
    let mut graph = GraphProto::new("types");
    for (dtype, len) in TYPES {
        for dims in [vec![len], vec![0, len]] {
            let [x, y, shape] =
                ["x", "y", "s"].map(|letter| format!("{letter}_{dtype}_{}", dims.len()));
            let tensor = |name: &str, dims: &[i64]| {
                ValueInfoProto::tensor_with(name, dtype, dims.iter().map(|dim| (*dim).into()))
            };
            graph.input.push(tensor(&x, &dims));
            graph.output.push(tensor(&y, &[&[1], &dims[..]].concat()));
            graph.node.push(NodeProto::new("Unsqueeze", [&x, &shape], [&y]));
            let axes = Tensor::from_vec([1], vec![0_i64]).unwrap();
            graph.initializer.push(axes.to_proto(&shape));
        }
    }
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 13)];
    model
}

#[test]
fn values_of_every_type_go_to_onnxruntime_and_back() {
    let folder = Folder::new();
    folder.save("t.onnx", &every_type());
    folder.run(&["run", "t.onnx", "-o", "ours", "--format", "pb"]).done();
    let args = ["run", "t.onnx", "--with", "ort", "--expect", "ours", "--rtol", "0", "--atol", "0"];
    let run = folder.run(&args).done();
    run.says(&["ran       by onnxruntime", "compared  28 outputs are as expected"]);
    let json = folder.run(&[&args[..], &["--json"]].concat()).done().json();
    assert_eq!((&json["engine"], &json["steps"]), (&json!("onnxruntime"), &json!(null)));
}

#[test]
fn a_witness_is_asked_whatever_the_digests_say() {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    folder.run(&["pack", "m.onnx", "packed.onnx", "--min-bytes", "0"]).done();
    let args =
        ["verify", "m.onnx", "packed.onnx", "--with", "ort", "--dim", "batch=2", "--runs", "2"];
    let run = folder.run(&args).done();
    run.says(&["same      for all inputs", "same      the outputs too in 2 runs by onnxruntime"]);
    let json = folder.run(&[&args[..], &["--json"]].concat()).done().json();
    assert_eq!((&json["proof"], &json["engine"]), (&json!("semantic"), &json!("onnxruntime")));
    assert_eq!(json["seeds"], json!([0, 1]));

    let mut negated = model();
    negated.graph.as_mut().unwrap().node[1] = NodeProto::new("Neg", ["x"], ["z"]);
    folder.save("neg.onnx", &negated);
    let run = folder.run(&["verify", "m.onnx", "neg.onnx", "--with", "ort", "--dim", "batch=2"]);
    assert_eq!(run.code(), 1, "{run:?}");
    run.says(&["the models do not compute the same", "differs   output `z`, seed 0: element "]);
}

#[test]
fn what_onnxruntime_refuses_is_an_error_that_names_it() {
    let folder = Folder::new();
    let mut unknown = model();
    unknown.graph.as_mut().unwrap().node[1] = NodeProto::new("NoSuchOperator", ["x"], ["z"]);
    folder.save("unknown.onnx", &unknown);
    let run = folder.run(&["run", "unknown.onnx", "--with", "ort", "--dim", "batch=2"]);
    run.failed(&["unknown.onnx", "onnxruntime: ", "NoSuchOperator"]);
    folder.save("m.onnx", &model());
    let run = ["run", "m.onnx", "--with", "ort", "--dim", "batch=2"];
    folder.run(&[&run[..], &["--max-steps", "3"]].concat()).misused(&["--max-steps"]);
    without_library(&folder, &run).failed(&["ORT_DYLIB_PATH", "--ort-library"]);
    for idle in [&["--ort-library", "m.onnx"][..], &["--ort-unoptimized"]] {
        for command in [&["run", "m.onnx"][..], &["verify", "m.onnx", "m.onnx"]] {
            let args = [command, &["--dim", "batch=2"], idle].concat();
            folder.run(&args).misused(&["--with ort"]);
        }
    }
    let run = [&run[..], &["--ort-library", "m.onnx"]].concat();
    without_library(&folder, &run).failed(&["m.onnx`: not a shared library of onnxruntime"]);
}

#[test]
fn a_failure_of_onnxruntime_is_one_line_without_colours() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x", DataType::Float, [4]));
    // Index 7 of 4 elements.
    graph.initializer.push(Tensor::from_vec([1], vec![7_i64]).unwrap().to_proto("at"));
    graph.node.push(NodeProto::new("Gather", ["x", "at"], ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [1]));
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    folder.save("m.onnx", &model);
    let run = folder.run(&["run", "m.onnx", "--with", "ort"]).failed(&["onnxruntime: ", "Gather"]);
    let said = run.stderr();
    assert!(!said.contains('\u{1b}') && said.lines().count() == 1, "{said}");
}
