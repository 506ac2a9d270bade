//! `extract-model` and `merge`.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};

use crate::support::{Folder, floats, tensors};

/// `h = x * w`, `y = h + v`.
pub fn chain() -> ModelProto {
    let vector = |name: &str| ValueInfoProto::tensor(name, TensorProto::FLOAT, [400]);
    let mut graph = GraphProto::new("chain");
    graph.node =
        vec![NodeProto::new("Mul", ["x", "w"], ["h"]), NodeProto::new("Add", ["h", "v"], ["y"])];
    graph.initializer = vec![floats("w", 400), floats("v", 400)];
    graph.input.push(vector("x"));
    graph.value_info.push(vector("h"));
    graph.output.push(vector("y"));
    ModelProto::new(graph).with_operator_set("", 21)
}

/// A folder with the model packed as `p.onnx`.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &chain());
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    folder
}

#[test]
fn the_halves_of_a_model_make_it_whole_again() {
    let folder = folder();
    let data = fs::read(folder.path("p.onnx.data")).unwrap();
    let args = ["extract-model", "p.onnx", "a.onnx", "--inputs", "x", "--outputs", "h", "--verify"];
    folder.run(&args).done().says(&[
        "extract   1 of 2 nodes, 1 of 2 tensors, 0 of 0 functions",
        "inputs    x",
        "outputs   h",
        "wrote     1 file",
        "kept      1 file of weights, unchanged",
        "checked   no errors",
    ]);
    folder.run(&["extract-model", "p.onnx", "b.onnx", "--inputs=h"]).done().says(&["outputs   y"]);
    let head = folder.run(&["extract-model", "p.onnx", "c.onnx", "--outputs=h"]).done();
    head.says(&["inputs    x"]);
    assert_eq!(fs::read(folder.path("a.onnx")).unwrap(), fs::read(folder.path("c.onnx")).unwrap());
    // With a weights file of its own, which has just its weights.
    let args = ["extract-model", "p.onnx", "d.onnx", "--inputs=h", "--data-name=d.data"];
    folder.run(&args).done().says(&["wrote     2 files"]);
    assert_eq!(fs::metadata(folder.path("d.data")).unwrap().len(), 1600);

    let args = ["merge", "a.onnx", "b.onnx", "o.onnx", "--connect=h=h", "--verify"];
    folder.run(&args).done().says(&[
        "merge     2 nodes, 2 tensors, 0 functions",
        "inputs    x",
        "outputs   y",
        "kept      1 file of weights",
    ]);
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("p.onnx")));
    folder.run(&["diff", "--semantic", "o.onnx", "p.onnx"]).done();
    assert_eq!(fs::read(folder.path("p.onnx.data")).unwrap(), data);
    // Weights of two folders go to one new file.
    fs::create_dir(folder.path("sub")).unwrap();
    let args = ["merge", "a.onnx", "d.onnx", "sub/o.onnx", "--connect=h=h"];
    folder.run(&args).done().says(&["wrote     2 files"]);
    folder.run(&["diff", "--semantic", "sub/o.onnx", "p.onnx"]).done();
}

#[test]
fn what_cannot_be_done_is_said_and_nothing_is_written() {
    let folder = folder();
    let before = folder.names();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["extract-model", "p.onnx", "o.onnx", "--outputs=yy"], &["`yy`", "did you mean `y`?"]),
        (
            &["extract-model", "p.onnx", "o.onnx", "--inputs=v", "--outputs=y"],
            &["`y`", "needs `x`, an input of the model"],
        ),
        (
            &["extract-model", "p.onnx", "o.onnx", "--inputs=x,v", "--outputs=h"],
            &["`v`", "leave it out"],
        ),
        (&["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=y=x"], &["`h`", "--prefix-b b/"]),
        (&["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=h=x"], &["`h`", "no output"]),
        (&["merge", "p.onnx", "gone.onnx", "o.onnx"], &["gone.onnx"]),
    ];
    for (args, texts) in cases {
        folder.run(args).failed(texts);
    }
    folder.run(&["extract-model", "p.onnx", "o.onnx"]).misused(&["--outputs"]);
    folder.run(&["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=y"]).misused(&["A=B"]);
    let args =
        ["merge", "p.onnx", "p.onnx", "o.onnx", "--connect=y=x", "--prefix-b=b/", "--dry-run"];
    folder.run(&args).done().says(&["outputs   b/y", "nothing was written"]);
    let json = folder.run(&[&args[..6], &["--json"]].concat()).done().json();
    assert_eq!(json["graph"]["outputs"], serde_json::json!(["b/y"]));
    fs::remove_file(folder.path("o.onnx")).unwrap();
    assert_eq!(folder.names(), before);
}
