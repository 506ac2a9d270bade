//! Names that exporters make have hundreds of characters: lines for people stay within 80, and JSON
//! and CSV have the names in full.

use onnx_container::DataType;
use onnx_container::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};

use crate::support::Folder;

/// `y = op(exp(x))`, with `name` in every name.
fn model(op: &str, name: &str) -> ModelProto {
    let [x, h, y] = ["x", "h", "y"].map(|value| format!("{name}{value}"));
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor(x.as_str(), DataType::Float, [2, 3]));
    graph.node.push(NodeProto::new("Exp", [x.as_str()], [h.as_str()]));
    graph.node.push(NodeProto::new(op, [h.as_str()], [y.as_str()]));
    graph.output.push(ValueInfoProto::tensor(y.as_str(), DataType::Float, [2, 3]));
    for node in &mut graph.node {
        node.name = Some(format!("{name}node").into());
    }
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

#[test]
fn long_names_do_not_break_lines_for_people() {
    let folder = Folder::new();
    let name = "encoder.layers.".repeat(20);
    folder.save("a.onnx", &model("Neg", &name));
    folder.save("b.onnx", &model("Abs", &name));
    let cases: [&[&str]; 5] = [
        &["plan", "a.onnx"],
        &["run", "a.onnx"],
        &["verify", "a.onnx", "b.onnx"],
        &["diff", "--semantic", "a.onnx", "b.onnx"],
        &["trace", "diff", "a.onnx", "b.onnx"],
    ];
    for args in cases {
        let run = folder.run(args);
        let text = run.stdout();
        assert!(text.contains("encoder.layers."), "{run:?}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let json = folder.run(&[args, &["--json"]].concat());
        assert!(json.json().to_string().contains(&name), "{json:?}");
    }
    folder.run(&["plan", "a.onnx", "--csv"]).done().says(&[&name]);
}
