//! `inspect MODEL`.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto, TensorProto};

use crate::support::{Folder, external};

#[test]
fn a_model_is_described() {
    let folder = Folder::packed();
    folder.run(&["inspect", "p.onnx"]).done().says(&[
        "IR         10",
        "opsets     ai.onnx 21, local 1",
        "producer   a test",
        "graph      main",
        "nodes      3 and 2 inside",
        "functions  1",
        "subgraphs  1, depth 1",
        "        2  Constant",
        "        1  Split",
        "tensors    7: 3 inline (3.2 kB), 4 external (9.6 kB), 0 invalid",
        "        4000  FLOAT     [1000]    w  p.onnx.data@0",
        "z.then_branch/inner  p.onnx.data@",
        "local::f/k  (raw_data)",
        "files      1 (",
        "present   4 tensors",
    ]);
}

#[test]
fn json_holds_every_tensor() {
    let folder = Folder::packed();
    let summary = folder.run(&["inspect", "p.onnx", "--json"]).done().json();
    assert_eq!((&summary["ir_version"], &summary["functions"]), (&10.into(), &1.into()));
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
    folder.run(&["inspect", "p.onnx"]).done().says(&["1 missing", "missing   4 tensors"]);
    let hostile = ["../up.bin", "/dev/zero", "#handle", "a.bin", "./a.bin"];
    folder.save("h.onnx", &external(&hostile));
    let files = folder.run(&["inspect", "h.onnx", "--json"]).done().json()["files"].clone();
    let states: Vec<_> = files.as_array().unwrap().iter().map(|file| &file["state"]).collect();
    assert_eq!(states, ["refused", "refused", "refused", "missing"]);
    assert_eq!(files[3]["tensors"], 2);
}

#[test]
fn weights_that_are_not_all_there_are_told_apart() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["whole", "short", "short", "away", "../up"]));
    fs::write(folder.path("whole"), [0; 16]).unwrap();
    fs::write(folder.path("short"), [0; 10]).unwrap();
    folder.run(&["inspect", "m.onnx"]).done().says(&[
        "files      4 (26 B): 1 present, 1 cut off, 1 missing, 1 refused",
        "          10  cut off   2 tensors     short (cut off: 10 of 16 bytes)",
        "           -  missing   1 tensor      away",
    ]);
    let said = folder.run(&["inspect", "m.onnx", "--json"]).done().json();
    let states: Vec<_> = said["files"].as_array().unwrap().iter().map(|f| &f["state"]).collect();
    assert_eq!(states, ["present", "cut_off", "missing", "refused"]);
    assert_eq!(said["files"][1]["needed_bytes"], 16);
    assert_eq!(said["file_totals"]["cut_off"], 1);

    let mut bare = crate::support::model();
    for tensor in &mut bare.graph.as_mut().unwrap().initializer {
        tensor.raw_data = None;
    }
    folder.save("bare.onnx", &bare);
    folder.run(&["inspect", "bare.onnx"]).done().says(&[
        "tensors    7: 4 inline (7.2 kB), 0 external (0 B), 3 without data, 0 invalid",
        "w  (no data)",
    ]);
}

#[test]
fn tied_tensors_are_counted_once() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["w", "./w", "v"]));
    for name in ["w", "v"] {
        fs::write(folder.path(name), [0; 16]).unwrap();
    }
    let text = "3 external (32 B, 1 of them tied to others and counted once)";
    folder.run(&["inspect", "m.onnx"]).done().says(&[text]);
    let totals = folder.run(&["inspect", "m.onnx", "--json"]).done().json()["totals"].clone();
    assert_eq!((&totals["external_bytes"], &totals["tied"]), (&32.into(), &1.into()));
    folder
        .run(&["pack", "m.onnx", "p.onnx", "--verify"])
        .done()
        .says(&["3 external (32 B, 1 of them tied, mapped)", "verified  3 tensors (32 B, mapped)"]);
}

#[test]
fn files_are_listed_in_order_and_no_more_than_asked_for() {
    let folder = Folder::new();
    let locations: Vec<_> = (0..30).map(|i| format!("w{i}.bin")).collect();
    folder.save("m.onnx", &external(&locations.iter().map(String::as_str).collect::<Vec<_>>()));
    for (args, listed) in [(&[][..], 20), (&["--top", "5"], 5), (&["--top", "0"], 30)] {
        let args = [&["inspect", "m.onnx"], args].concat();
        let text = folder.run(&args).done().stdout();
        let files = text.split_once("\nfiles ").unwrap().1;
        let names: Vec<_> = files
            .lines()
            .filter_map(|line| line.split_once("1 tensor      "))
            .map(|f| f.1)
            .collect();
        assert_eq!(names, locations[..listed], "{args:?}");
        assert_eq!(files.contains("more: --top 0"), listed < 30, "{args:?}");
    }
    let said = folder.run(&["inspect", "m.onnx", "--json", "--top", "5"]).done().json();
    assert_eq!(
        (said["files"].as_array().unwrap().len(), &said["file_totals"]["files"]),
        (5, &30.into())
    );
}

#[test]
fn long_names_of_types_do_not_break_columns() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("main");
    for (name, dtype) in [("a", TensorProto::FLOAT8E4M3FNUZ), ("b", TensorProto::INT8)] {
        graph.initializer.push(TensorProto::new(name, dtype, [2]).with_raw_data(vec![0, 0]));
    }
    folder.save("m.onnx", &ModelProto::new(graph));
    folder.run(&["inspect", "m.onnx"]).done().says(&[
        "           2  FLOAT8E4M3FNUZ  [2]       a  (raw_data)",
        "           2  INT8            [2]       b  (raw_data)",
    ]);
}
