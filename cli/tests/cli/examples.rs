//! The examples of the help, run in a shell on models that have the names in them.

use std::process::Command;

use onnx_container::DataType;
use onnx_container::proto::{
    FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};

use crate::store_server::Server;
use crate::support::{Folder, Run, weight};

/// x `[batch, 4]` and mask `[1, 4]` to y `[batch, 4]`, by a call of a function.
fn model(first: f32) -> ModelProto {
    let mut graph = GraphProto::new("graph");
    graph.initializer = vec![
        weight("w", &[4, 300], first),
        weight("embedding", &[300, 4], 0.5),
        weight("b", &[4], 0.25),
        weight("layers.3.bias", &[4], 0.75),
        // What the input is unless the caller gives it.
        weight("mask", &[1, 4], 0.0),
    ];
    let mut call = NodeProto::new("Block", ["h"], ["g"]);
    call.domain = Some("pkg.nn".into());
    graph.node = vec![
        NodeProto::new("MatMul", ["x", "w"], ["h"]),
        call,
        NodeProto::new("MatMul", ["g", "embedding"], ["m"]),
        NodeProto::new("Sum", ["m", "b", "layers.3.bias", "mask"], ["y"]),
    ];
    let value = |name: &str, width: i64| {
        ValueInfoProto::tensor_with(name, DataType::Float, ["batch".into(), width.into()])
    };
    graph.input = vec![value("x", 4), ValueInfoProto::tensor("mask", TensorProto::FLOAT, [1, 4])];
    graph.value_info = vec![value("h", 300)];
    graph.output = vec![value("y", 4)];
    let mut block = FunctionProto::new("pkg.nn", "Block");
    (block.input, block.output) = (vec!["a".into()], vec!["r".into()]);
    block.opset_import.push(OperatorSetIdProto::new("", 17));
    block.node.push(NodeProto::new("Relu", ["a"], ["r"]));
    let mut model = ModelProto::new(graph).with_operator_set("", 17).with_operator_set("pkg.nn", 1);
    model.functions.push(block);
    model.ir_version = Some(8);
    model
}

/// A folder with every file that an example reads, and a job in `jobs`.
fn folder(jobs: &Folder) -> Folder {
    let folder = Folder::new();
    for name in ["models", "web", "split", "release", "old", "snapshots/main"] {
        std::fs::create_dir_all(folder.path(name)).unwrap();
    }
    crate::signing::make_keys(&folder);
    for (key, name) in [("keys/P-256.pem", "key.pem"), ("keys/P-256.pub", "key.pub")] {
        std::fs::copy(folder.path(key), folder.path(name)).unwrap();
    }
    folder.save("one.onnx", &model(0.0));
    folder.save("two.onnx", &model(1.0));
    folder.run(&["pack", "one.onnx", "model.onnx", "--digests", "--min-bytes", "16"]).done();
    let copies = "new a b encoder decoder old/a old/b snapshots/main/model models/m";
    for name in copies.split(' ') {
        folder.run(&["cp", "model.onnx", &format!("{name}.onnx")]).done();
    }
    folder.run(&["pack", "two.onnx", "old.onnx"]).done();
    folder.run(&["pack", "two.onnx", "tuned.onnx", "--min-bytes", "16"]).done();
    for model in ["tuned", "w"] {
        let file = format!("{model}.safetensors");
        folder.run(&["export-safetensors", "tuned.onnx", &file, "--min-bytes", "16"]);
    }
    folder.run(&["strip", "model.onnx", "structure.onnx"]).done();
    folder.run(&["pack", "model.onnx", "packed.onnx"]).done();
    folder.run(&["cast", "model.onnx", "half.onnx", "--to", "float16", "--keep-io"]).done();
    // Elsewhere: what is signed later is the whole folder.
    let new = jobs.path("new.onnx").display().to_string();
    folder.run(&["job", "rewrite", "model.onnx", &new, "-o", "new.job"]).done();
    folder.run(&["extract", "model.onnx", "embedding", "-o", "new.npy"]).done();
    folder.run(&["extract", "model.onnx", "w", "-o", "w.npy"]).done();
    folder.run(&["run", "model.onnx", "--seed", "1", "--dim", "batch=2", "-o", "out"]).done();
    std::fs::copy(folder.path("out/output_0.npy"), folder.path("x.npy")).unwrap();
    for (part, inputs, outputs) in [("front", "x", "h"), ("back", "h,mask", "y")] {
        let part = format!("{part}.onnx");
        let args = ["extract-model", "one.onnx", &part, "--inputs", inputs, "--outputs", outputs];
        folder.run(&args).done();
    }
    folder.run(&["sign", "model.onnx", "--key", "key.pem"]);
    folder
}

/// A copy of the folder.
fn copy(folder: &Folder) -> Folder {
    let copy = Folder::new();
    let mut cp = Command::new("cp");
    cp.arg("-r").arg(folder.path(".")).arg(copy.path(""));
    assert!(cp.status().unwrap().success());
    copy
}

/// What is right to find.
fn expected(call: &str) -> i32 {
    // Models that differ.
    i32::from(call.starts_with("diff ") || call.starts_with("trace diff "))
}

#[test]
fn every_example_of_the_help_does_what_it_says() {
    let binary = assert_cmd::cargo::cargo_bin!("onnx-container");
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let commands = onnx_container_cli::declaration();
    let mut failed = Vec::new();
    let jobs = Folder::new();
    let base = folder(&jobs);
    let store = Server::of_examples(&base, "model.onnx");
    std::fs::create_dir(base.path(".zfunc")).unwrap();
    for command in commands.get_subcommands().filter(|it| it.get_name() != "help") {
        let help = command.clone().render_help().to_string();
        for line in help.lines().filter_map(|line| line.strip_prefix("  onnx-container ")) {
            let folder = copy(&base);
            let mut shell = Command::new("bash");
            shell.args(["-o", "pipefail", "-c", &format!("onnx-container {line}")]);
            shell.env("PATH", &path).env("HOME", folder.path("")).current_dir(folder.path(""));
            store.is_known_to(&mut shell);
            let run = Run::of(shell.output().unwrap());
            if run.code() != expected(line) || run.stderr().contains("error: ") {
                failed.push(format!("{line}: {run:?}"));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
