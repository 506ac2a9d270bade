//! `plan`: where tensors lie, of models and of lists of blocks.

use std::fs;

use onnx_container::DataType;
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    ValueInfoProto,
};

use crate::support::{Folder, floats};

/// The example of MiniMalloc's documentation.
const LIST: &str = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

/// Blocks that no greedy order puts into 20 bytes, where they fit.
const HARD: &str = "id,lower,upper,size\nb0,0,4,4\nb1,4,7,5\nb2,3,8,4\nb3,0,4,3\nb4,1,4,4\n\
                    b5,0,4,5\nb6,0,1,6\n";

/// `y = (x + w) reshaped`, with a batch of symbolic size.
fn model() -> ModelProto {
    let mut graph = GraphProto::new("g");
    let dims = ["batch".into(), 1024.into()];
    graph.input.push(ValueInfoProto::tensor_with("x", DataType::Float, dims));
    graph.initializer.push(floats("w", 1024));
    let shape = [2_i64, -1].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>();
    graph.initializer.push(TensorProto::new("shape", TensorProto::INT64, [2]).with_raw_data(shape));
    graph.node.push(NodeProto::new("Add", ["x", "w"], ["sum"]));
    graph.node.push(NodeProto::new("Reshape", ["sum", "shape"], ["halves"]));
    graph.node.push(NodeProto::new("Neg", ["halves"], ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [2, -1]));
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

#[test]
fn a_model_is_planned_with_the_sizes_of_its_dimensions() {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    let plan = ["plan", "m.onnx", "--dim", "batch=4"];
    folder.run(&[&plan[..], &["--dim", "batch=5"]].concat()).misused(&["`batch` twice"]);
    let json = folder.run(&[&plan[..], &["--json"]].concat()).done().json();
    assert_eq!((&json["command"], &json["model"]), (&"plan".into(), &"m.onnx".into()));
    // The sum is written over x, halves shows it, and y is written over that; w is a weight.
    for key in ["arena_bytes", "lower_bound", "naive_sum"] {
        assert_eq!(json[key], 16384, "{json}");
    }
    assert_eq!(json["peak_step"], 0);
    let tensor = |i: usize| {
        let t = &json["tensors"][i];
        let keys = ["name", "bytes", "dtype", "shape", "first_step", "last_step", "shares"];
        serde_json::Value::from(keys.map(|key| t[key].clone()).to_vec())
    };
    let expected = [
        serde_json::json!(["x", 16384, "FLOAT", [4, 1024], 0, 0, null]),
        serde_json::json!(["sum", 16384, "FLOAT", [4, 1024], 0, 1, "x"]),
        serde_json::json!(["halves", 16384, "FLOAT", [2, 2048], 1, 2, "x"]),
        serde_json::json!(["y", 16384, "FLOAT", [2, 2048], 2, 2, "x"]),
    ];
    for (i, expected) in expected.iter().enumerate() {
        assert_eq!(&tensor(i), expected);
    }
    assert_eq!(json["tensors"][1]["offset"], json["tensors"][2]["offset"]);
    folder.run(&plan).done().says(&[
        "memory      16 kB (16384 bytes), the least possible",
        "peak        step 0 (Add)",
        "4 tensors, 3 of them sharing the bytes of another",
        "x  FLOAT [4, 1024]",
    ]);
    folder
        .run(&[&plan[..], &["--csv"]].concat())
        .done()
        .says(&["id,lower,upper,size,alignment,offset\n", "x,0,3,16384,64,"]);
}

#[test]
fn nodes_of_weights_alone_are_counted() {
    let folder = Folder::new();
    let mut model = model();
    let graph = model.graph.as_mut().unwrap();
    graph.node.insert(0, NodeProto::new("Neg", ["v"], ["w"]));
    graph.initializer[0].name = Some("v".into());
    folder.save("m.onnx", &model);
    let plan = ["plan", "m.onnx", "--dim", "batch=4"];
    let run = ["run", "m.onnx", "--dim", "batch=4", "--seed", "0"];
    for args in [plan.as_slice(), &run] {
        let json = folder.run(&[args, &["--json"]].concat()).done().json();
        assert_eq!(json["folded"], serde_json::json!({ "nodes": 1, "bytes": 4096 }), "{json}");
        folder
            .run(args)
            .done()
            .says(&["1 node (computed from weights, or left out), 4.1 kB of results"]);
    }
}

#[test]
fn missing_and_unused_sizes_are_reported() {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    let cases: [(&[&str], &[&str]); 2] = [
        (&["plan", "m.onnx"], &["value `x`", "its dimension `batch` has no size"]),
        (
            &["plan", "m.onnx", "--dim", "batch=4", "--dim", "seq=1"],
            &["no input has an open dimension `seq`; open are batch"],
        ),
    ];
    for (args, texts) in cases {
        folder.run(args).failed(texts);
        let json = folder.run(&[args, &["--json"]].concat()).json();
        assert_eq!(json["error"]["kind"], "Input", "{json}");
    }
    for dim in ["batch", "=4", "batch=x", "batch=-1", "batch="] {
        folder.run(&["plan", "m.onnx", "--dim", dim]).misused(&["--dim"]);
    }
}

/// A plan that ends at a subgraph says nothing of the steps from there.
/// A model whose plan ends before its step 1, where the batch is known.
pub fn with_a_barrier() -> ModelProto {
    let mut then = GraphProto::new("then");
    then.node.push(NodeProto::new("Neg", ["sum"], ["a"]));
    then.output.push(ValueInfoProto::tensor("a", DataType::Float, [-1, 1024]));
    let mut other = then.clone();
    other.node[0].op_type = Some("Abs".into());
    let mut branch = NodeProto::new("If", ["flag"], ["y"]);
    branch.attribute.push(AttributeProto::graph("then_branch", then));
    branch.attribute.push(AttributeProto::graph("else_branch", other));
    let mut model = model();
    let graph = model.graph.as_mut().unwrap();
    graph.input.push(ValueInfoProto::tensor("flag", DataType::Bool, [0_i64; 0]));
    graph.node.truncate(1);
    graph.node.push(branch);
    model
}

#[test]
fn a_part_of_a_plan_is_not_said_to_fit() {
    let folder = Folder::new();
    folder.save("m.onnx", &with_a_barrier());
    let plan = ["plan", "m.onnx", "--dim", "batch=1"];
    let run = folder.run(&plan);
    assert_eq!(run.code(), 0);
    assert!(run.stdout().contains("at least: of the steps before step 1"), "{run:?}");
    for (capacity, fits, said) in
        [("1MB", serde_json::Value::Null, "is not known"), ("1", false.into(), "the plan needs")]
    {
        let run = folder.run(&[&plan[..], &["--capacity", capacity, "--json"]].concat());
        assert_eq!((run.code(), &run.json()["fits"]), (1, &fits), "{run:?}");
        assert!(run.stderr().contains(said), "{run:?}");
        assert_eq!(run.json()["optimal"], false);
    }
}

#[test]
fn all_missing_sizes_are_named_at_once() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    let open =
        [("x", ["a".into(), "?".into(), "?".into()]), ("y", ["c\nd".into(), "a".into(), 1.into()])];
    for (name, dims) in open {
        graph.input.push(ValueInfoProto::tensor_with(name, DataType::Float, dims));
        graph.node.push(NodeProto::new("Neg", [name], [format!("-{name}").as_str()]));
        graph.output.push(ValueInfoProto::tensor_with(
            format!("-{name}"),
            DataType::Float,
            [1.into(), 2.into(), 3.into()],
        ));
    }
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    folder.save("m.onnx", &model);
    // Names are given as they are shown, and dimensions without a name may have different sizes.
    let sizes = ["a=1", "x[1]=2", "x[2]=3", "c\\nd=4"].map(|size| ["--dim", size]).concat();
    for command in ["plan", "run", "trace"] {
        folder.run(&[command, "m.onnx"]).failed(&[
            "value `x`: its dimensions `a`, `x[1]`, `x[2]` have no sizes: give them, as in `--dim a=1 \
             --dim x[1]=1 --dim x[2]=1`",
            "value `y`: its dimensions `a`, `c\\nd` have no sizes",
        ]);
        folder.run(&[&[command, "m.onnx"], &sizes[..]].concat()).done();
    }
    folder.run(&[&["verify", "m.onnx", "m.onnx"], &sizes[..]].concat()).done();
}

#[test]
fn a_list_is_planned_and_written_as_minimalloc_does() {
    let folder = Folder::new();
    fs::write(folder.path("l.csv"), LIST).unwrap();
    let plan = ["plan", "--csv-in", "l.csv"];
    let csv = folder.run(&[&plan[..], &["--csv"]].concat()).done().stdout();
    assert!(csv.starts_with("id,lower,upper,size,offset\nb1,0,3,4,"), "{csv}");
    assert_eq!(csv.lines().count(), 6);
    fs::write(folder.path("planned.csv"), &csv).unwrap();
    let again = folder.run(&["plan", "--csv-in", "planned.csv", "--csv"]).done().stdout();
    assert_eq!(again, csv, "blocks with an offset stay there");
    let json = folder.run(&[&plan[..], &["--json"]].concat()).done().json();
    assert_eq!((&json["arena_bytes"], &json["optimal"]), (&12.into(), &true.into()));
    assert_eq!(json["tensors"][1]["last_step"], 8);
    folder.run(&[&plan[..], &["--svg", "l.svg"]].concat()).done().says(&["5 blocks"]);
    let drawing = fs::read_to_string(folder.path("l.svg")).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("<title>b4: "), "{drawing}");
}

#[test]
fn a_plan_that_does_not_fit_is_exit_code_1() {
    let folder = Folder::new();
    fs::write(folder.path("l.csv"), LIST).unwrap();
    let plan = ["plan", "--csv-in", "l.csv", "--capacity"];
    folder.run(&[&plan[..], &["12"]].concat()).done();
    let small = [&plan[..], &["11", "--search", "60"]].concat();
    folder.run(&small).failed(&["needs 12 B (12 bytes), the capacity is 11 B"]);
    let json = folder.run(&[&small[..], &["--json"]].concat());
    assert_eq!((json.code(), &json.json()["fits"]), (1, &false.into()));
    fs::write(folder.path("hard.csv"), HARD).unwrap();
    let hard = ["plan", "--csv-in", "hard.csv", "--capacity", "20"];
    folder.run(&hard).failed(&["needs 22 B", "--search SECONDS may help"]);
    folder.run(&[&hard[..], &["--search", "60"]].concat()).done();
}

#[test]
fn wrong_lists_are_reported_with_their_line() {
    let folder = Folder::new();
    let cases = [
        ("id,lower,upper,size\na,0,1,x\n", "`l.csv`: line 2: size `x` is no whole number"),
        ("a,b\n", "line 1: unknown column `a`"),
        ("id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,4,2\n", "blocks 0 and 1 share bytes"),
        ("", "the file is empty"),
    ];
    for (list, reason) in cases {
        fs::write(folder.path("l.csv"), list).unwrap();
        folder.run(&["plan", "--csv-in", "l.csv"]).failed(&["l.csv", reason]);
        let json = folder.run(&["plan", "--csv-in", "l.csv", "--json"]).json();
        assert_eq!(json["error"]["kind"], "Plan", "{json}");
    }
    let json = folder.run(&["plan", "--csv-in", "gone.csv", "--json"]).json();
    assert_eq!(json["error"]["kind"], "MissingFile", "{json}");
    folder.run(&["plan"]).misused(&["MODEL"]);
    folder.run(&["plan", "m.onnx", "--csv-in", "l.csv"]).misused(&["cannot be used with"]);
    folder.run(&["plan", "--csv-in", "l.csv", "--search=-1"]).misused(&["--search"]);
}
