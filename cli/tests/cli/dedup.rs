//! `--dedup`: tensors of equal bytes are stored once; `--timings`: what became of the bytes.

use std::fs;

use onnx_container::proto::TensorProto;

use crate::support::{Folder, external, tensors};

/// A folder with a model of four external tensors, three of them equal and one of these inline in
/// `w.onnx`.
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
        assert_eq!(
            json["deduplicated"],
            serde_json::json!({"tensors": 2, "bytes": 32, "lazy": 0, "overlapping": 0})
        );
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
    run.says(&["shared    no others: none are equal"]);
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
    assert!(plan.contains("tensors   32 B to copy, 32 B to share, 0 B to keep\n"), "{plan}");
    let steps = [" ms to plan,", " ms to write,", " ms to flush,", " ms to publish\n"];
    let run = folder.run(&pack).done().says(&steps);
    run.says(&["tensors   32 B copied, 32 B shared, 0 B kept\n"]);
    let silent = folder.run(&pack[..4]).done().stdout();
    assert!(!silent.contains(" ms "), "{silent}");
    // What is there already is kept.
    let json = || folder.run(&[&pack[..4], &["--json"]].concat()).done().json();
    assert_eq!(json()["statistics"]["kept_bytes"], 32);
    fs::remove_file(folder.path("p.onnx")).unwrap();
    fs::remove_file(folder.path("p.onnx.data")).unwrap();
    let done = json()["statistics"].clone();
    assert_eq!((&done["copied_bytes"], &done["shared_bytes"]), (&32.into(), &32.into()));
    folder
        .run(&["embed", "m.onnx", "e.onnx", "--timings"])
        .done()
        .says(&["64 B copied, 0 B shared"]);
}

/// Weights of one tensor are not those of another one whose bytes were equal to its old ones.
#[test]
fn weights_are_imported_into_a_deduplicated_model() {
    let folder = folder();
    let mut model = external(&["a", "b", "c", "d"]);
    let other = &mut model.graph.as_mut().unwrap().initializer[3];
    (other.data_type, other.dims) = (Some(TensorProto::COMPLEX64), vec![2]);
    folder.save("m.onnx", &model);
    folder.run(&["pack", "m.onnx", "p.onnx", "--dedup"]).done();
    fs::write(folder.path("new.raw"), [9; 16]).unwrap();
    let replace = ["replace", "m.onnx", "w0", "new.raw", "--format=raw", "-o", "n.onnx"];
    folder.run(&replace).done();
    folder.run(&["extract", "n.onnx", "w0", "-o", "one.safetensors"]).done();
    folder.run(&["extract", "n.onnx", "w0", "w2", "-o", "both.safetensors"]).done();
    // The weights, the option, what is said, and the first bytes of the tensors.
    let tied = "tied      1 tensor not in WEIGHTS, changed with one on the same bytes\n              w2, with w0";
    let untied = |n: &str| format!("untied    {n} that shared the bytes of one in WEIGHTS\n");
    let cases = [
        ("one", None, vec![tied.to_owned(), untied("1 tensor")], [9, 2, 9, 1]),
        ("one", Some("--tied=this"), vec![untied("2 tensors")], [9, 2, 1, 1]),
        ("one", Some("--tied=all"), vec!["tied      2 tensors".to_owned()], [9, 2, 9, 9]),
        ("both", None, vec![untied("2 tensors")], [9, 2, 1, 1]),
    ];
    for (weights, option, said, first) in cases {
        let weights = format!("{weights}.safetensors");
        let import = ["import-safetensors", "p.onnx", &weights, "q.onnx", "--verify"];
        let args: Vec<_> = import.into_iter().chain(option).collect();
        let said: Vec<_> = said.iter().map(String::as_str).collect();
        folder.run(&args).done().says(&said);
        let bytes = tensors(&folder.path("q.onnx")).into_iter().map(|tensor| tensor.2[0]);
        assert_eq!(bytes.collect::<Vec<_>>(), first, "{args:?}");
    }
    let both = ["import-safetensors", "p.onnx", "both.safetensors", "q.onnx"];
    folder.run(&[&both[..], &["--tied=all"]].concat()).failed(&["tied to `w0` in the model"]);
    let imported = folder.run(&[&both[..], &["--json"]].concat()).done().json()["imported"].clone();
    let untied =
        serde_json::json!([{"tensor": "w2", "with": "w0"}, {"tensor": "w3", "with": "w0"}]);
    assert_eq!((&imported["tied"], &imported["untied"]), (&serde_json::json!([]), &untied));
}
