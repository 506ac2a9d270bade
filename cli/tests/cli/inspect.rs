//! `inspect MODEL`.

use std::fs;

use crate::support::{Folder, external};

#[test]
fn a_model_is_described() {
    let folder = Folder::packed();
    folder.run(&["inspect", "p.onnx"]).done().says(&[
        "IR         14",
        "opsets     ai.onnx 21, local 1",
        "producer   a test",
        "graph      main",
        "nodes      3 and 2 inside",
        "functions  1",
        "subgraphs  1, depth 1",
        "        2  Constant",
        "        1  Split",
        "tensors    7: 3 inline (3.2 kB), 4 external (9.6 kB), 0 invalid",
        "        4000  FLOAT    [1000]           w  p.onnx.data@0",
        "z.then_branch/inner  p.onnx.data@",
        "local::f/k  (raw_data)",
        "files      1 (",
        "present  4 tensors",
    ]);
}

#[test]
fn json_holds_every_tensor() {
    let folder = Folder::packed();
    let summary = folder.run(&["inspect", "p.onnx", "--json"]).done().json();
    assert_eq!((&summary["ir_version"], &summary["functions"]), (&14.into(), &1.into()));
    assert_eq!(summary["opsets"][0]["domain"], "ai.onnx");
    assert_eq!(summary["operators"][0]["operator"], "Constant");
    let tensors = summary["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 7);
    assert_eq!((&tensors[0]["name"], &tensors[0]["bytes"]), (&"w".into(), &4000.into()));
    assert_eq!(tensors[0]["stored"]["where"], "external");
    assert_eq!(tensors[0]["stored"]["location"], "p.onnx.data");
    assert_eq!(tensors[0]["shape"][0], 1000);
    let small = tensors.iter().find(|tensor| tensor["name"] == "small").unwrap();
    assert_eq!(small["stored"]["field"], "raw_data");
    assert_eq!(summary["files"][0]["state"], "present");
    let top = folder.run(&["inspect", "p.onnx", "--json", "--top", "2"]).done().json();
    assert_eq!(top["tensors"].as_array().unwrap().len(), 2);
    assert_eq!(top["totals"]["tensors"], 7);
}

#[test]
fn the_list_is_as_long_as_asked_for() {
    let folder = Folder::packed();
    folder.run(&["inspect", "p.onnx", "--top", "3"]).done().says(&["and 4 more"]);
    let all = folder.run(&["inspect", "p.onnx", "--top", "0"]).done();
    assert!(!all.stdout().contains("more"));
}

#[test]
fn weights_need_not_be_there() {
    let folder = Folder::packed();
    fs::remove_file(folder.path("p.onnx.data")).unwrap();
    folder.run(&["inspect", "p.onnx"]).done().says(&["1 missing", "missing  4 tensors"]);
    let hostile = ["../up.bin", "/dev/zero", "#handle", "a.bin", "./a.bin"];
    folder.save("h.onnx", &external(&hostile));
    let files = folder.run(&["inspect", "h.onnx", "--json"]).done().json()["files"].clone();
    let states: Vec<_> = files.as_array().unwrap().iter().map(|file| &file["state"]).collect();
    assert_eq!(states, ["refused", "refused", "refused", "missing"]);
    assert_eq!(files[3]["tensors"], 2);
}
