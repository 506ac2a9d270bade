//! `stats MODEL [GLOB...]`.

use onnx_container::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use serde_json::json;

use crate::support::Folder;

fn folder() -> Folder {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    let values = [1.0_f32, -1.0, f32::NAN, f32::INFINITY, 0.0, 2.0];
    let bytes: Vec<_> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    graph.initializer = vec![
        TensorProto::new("layers.0.w", TensorProto::FLOAT, [6]).with_raw_data(bytes),
        TensorProto::new("layers.1.w", TensorProto::INT4, [3]).with_raw_data(vec![0x21, 0x0f]),
        TensorProto::new("ones", TensorProto::INT64, [2])
            .with_raw_data([1_i64, 1].iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>()),
        TensorProto::new("none", TensorProto::FLOAT, [0]),
    ];
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    folder.save("m.onnx", &model);
    folder
}

#[test]
fn elements_are_described_in_a_table() {
    let folder = folder();
    folder.run(&["stats", "m.onnx"]).done().says(&[
        "         MIN           MAX          MEAN           STD       NAN       INF     ZEROS  HISTOGRAM         TYPE SHAPE  NAME\n",
        "          -1             2           0.5       1.11803         1         1         1  ",
        "          -1             2      0.666667       1.24722         0         0         0  ",
        "           1             1             1             0         0         0         0  █                 INT64 [2]  ones  (all equal)\n",
        "           -             -             -             -         0         0         0                    FLOAT [0]  none\n",
    ]);
    folder.run(&["stats", "m.onnx", "--no-mmap"]).done();
}

#[test]
fn json_has_every_number_and_globs_choose() {
    let folder = folder();
    let json = folder.run(&["stats", "m.onnx", "layers.*", "none", "--json"]).done().json();
    let names: Vec<_> = json["tensors"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    assert_eq!(names, ["layers.0.w", "layers.1.w", "none"]);
    let counts = json["tensors"][0]["histogram"]["counts"].as_array().unwrap().iter();
    assert_eq!(counts.map(|count| count.as_u64().unwrap()).sum::<u64>(), 4);
    let mut four = json["tensors"][1].clone();
    let mut number = |key| four.as_object_mut().unwrap().remove(key).unwrap().as_f64().unwrap();
    assert!((number("mean") - 2.0 / 3.0).abs() < 1e-15);
    assert!((number("std") - (14.0_f64 / 9.0).sqrt()).abs() < 1e-15);
    four.as_object_mut().unwrap().remove("histogram");
    let expected = json!({"name": "layers.1.w", "dtype": "INT4", "shape": [3], "elements": 3,
        "bytes": 2, "min": -1, "max": 2, "nan": 0, "infinite": 0, "zeros": 0, "all_equal": false});
    assert_eq!(four, expected);
    assert_eq!(json["tensors"][2]["min"], json!(null));
    folder.run(&["stats", "m.onnx", "layer.*"]).failed(&["no tensor has a name like `layer.*`"]);
    let run = folder.run(&["stats", "m.onnx", "m.onnx"]);
    run.failed(&["no tensor has a name like `m.onnx`: stats takes one model, and patterns "]);
    folder.run(&["stats", "gone.onnx"]).failed(&["gone.onnx"]);
    folder.run(&["stats", "m.onnx", "["]).misused(&[]);
}

#[test]
fn processes_describe_a_model_together() {
    let folder = folder();
    for globs in [&[][..], &["layers.*"]] {
        let names = |options: &[&str]| {
            let args = [&["stats", "m.onnx"], globs, &["--json"], options].concat();
            let json = folder.run(&args).done().json();
            let names = json["tensors"].as_array().unwrap().iter();
            names.map(|tensor| tensor["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let parts = ["0/3", "1/3", "2/3"].map(|part| names(&["--part", part]));
        assert!(parts.iter().all(|names| names.len() < 4), "{parts:?}");
        let mut all = parts.concat();
        all.sort();
        let mut expected = names(&[]);
        expected.sort();
        assert_eq!(all, expected);
    }
    folder.run(&["stats", "m.onnx", "--part", "x"]).misused(&["not a part"]);
}
