//! `--dedup`: tensors of equal bytes are stored once; `--timings`: what became of the bytes.

use std::fs;

use crate::support::{Folder, external, tensors};

/// A folder with a model of four external tensors, three of them equal and one of these inline in `w.onnx`.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["a", "b", "c", "d"]));
    for (name, byte) in [("a", 1), ("b", 2), ("c", 1), ("d", 1)] {
        fs::write(folder.path(name), [byte; 16]).unwrap();
    }
    folder
}

#[test]
fn equal_tensors_are_stored_once_in_each_layout() {
    // The options, and the lengths of the weights files.
    let cases: &[(&[&str], &[u64])] = &[
        (&["--align=16"], &[32]),
        (&["--max-shard-size=16"], &[16, 16]),
        (&["--max-shard-size=16", "--shard-names=transformers-js"], &[16, 16]),
        (&["--safetensors"], &[]),
    ];
    for (options, files) in cases {
        let folder = folder();
        let before = tensors(&folder.path("m.onnx"));
        let pack = [&["pack", "m.onnx", "p.onnx", "--dedup"], *options].concat();
        let plan = folder.run(&[&pack[..], &["--dry-run"]].concat()).done();
        plan.says(&["shares    2 tensors (32 B) with equal ones"]);
        let json = folder.run(&[&pack[..], &["--verify", "--json"]].concat()).done().json();
        assert_eq!(json["deduplicated"], serde_json::json!({"tensors": 2, "bytes": 32}));
        assert_eq!(json["verified"]["ok"], true);
        let written = json["files"].as_array().unwrap();
        let lengths = written.iter().map(|file| file["bytes"].as_u64().unwrap());
        let lengths: Vec<_> = lengths.take(written.len() - 1).collect();
        assert!(files.is_empty() || lengths == *files, "{options:?} {lengths:?}");
        assert_eq!(tensors(&folder.path("p.onnx")), before);
        folder.run(&["check", "p.onnx"]).done();
        folder.run(&["pack", "p.onnx", "q.onnx"]).done().says(&["(32 B, 2 of them tied"]);
    }
}

#[test]
fn what_is_not_equal_is_said_too() {
    let folder = Folder::with_model();
    let run = folder.run(&["pack", "m.onnx", "p.onnx", "--dedup"]).done();
    run.says(&["shared    no tensors: none are equal"]);
    let json = folder.run(&["pack", "m.onnx", "q.onnx", "--json"]).done().json();
    assert!(json.get("deduplicated").is_none());
}

#[test]
fn a_deduplicated_tensor_is_replaced_as_a_tied_one() {
    let folder = folder();
    folder.run(&["pack", "m.onnx", "p.onnx", "--dedup"]).done();
    fs::write(folder.path("w.raw"), [9; 16]).unwrap();
    let replace = ["replace", "p.onnx", "w2", "w.raw", "--format=raw", "-o", "p.onnx"];
    folder.run(&replace).failed(&["w0", "w3", "--tied"]);
    folder.run(&[&replace[..], &["--tied=this", "--dedup"]].concat()).done().says(&["shared "]);
    let first: Vec<_> = tensors(&folder.path("p.onnx")).into_iter().map(|t| t.2[0]).collect();
    assert_eq!(first, [1, 2, 9, 1]);
}

#[test]
fn timings_tell_what_each_step_took_and_what_became_of_the_bytes() {
    let folder = folder();
    let pack = ["pack", "m.onnx", "p.onnx", "--dedup", "--timings"];
    let plan = folder.run(&[&pack[..], &["--dry-run"]].concat()).done().stdout();
    assert!(plan.contains(" ms to plan\n") && !plan.contains("to write"), "{plan}");
    let steps = [" ms to plan, ", " ms to write, ", " ms to flush, ", " ms to publish\n"];
    let run = folder.run(&pack).done().says(&steps);
    run.says(&["tensors   32 B copied, 32 B shared, 0 B kept\n"]);
    let silent = folder.run(&pack[..4]).done().stdout();
    assert!(!silent.contains(" ms "), "{silent}");
    let done = folder.run(&[&pack[..4], &["--json"]].concat()).done().json()["statistics"].clone();
    assert_eq!((&done["copied_bytes"], &done["shared_bytes"]), (&32.into(), &32.into()));
    folder
        .run(&["embed", "m.onnx", "e.onnx", "--timings"])
        .done()
        .says(&["64 B copied, 0 B shared"]);
}
