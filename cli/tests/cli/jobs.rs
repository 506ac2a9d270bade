//! What people do with large models, job by job, with the calls that they would type. Each job has
//! a folder of its own with the same models.

use onnx_container::DataType;
use onnx_container::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use crate::support::{Folder, Run, tensors, weight};

/// A value of FLOAT `[N, width]`.
fn rows(name: &str, width: i64) -> ValueInfoProto {
    ValueInfoProto::tensor_with(name, DataType::Float, ["N".into(), width.into()])
}

/// x `[N, 4]`, twice multiplied by a weight: y `[N, 2]`.
fn network(first: f32) -> ModelProto {
    let mut graph = GraphProto::new("network");
    graph.initializer =
        vec![weight("fc1.weight", &[4, 400], first), weight("fc2.weight", &[400, 2], 0.5)];
    graph.node = vec![
        NodeProto::new("MatMul", ["x", "fc1.weight"], ["h"]),
        NodeProto::new("MatMul", ["h", "fc2.weight"], ["y"]),
    ];
    graph.input.push(rows("x", 4));
    graph.value_info.push(rows("h", 400));
    graph.output.push(rows("y", 2));
    let mut model = ModelProto::new(graph).with_operator_set("", 17);
    model.ir_version = Some(8);
    model
}

/// `old.onnx` with its weights in `old.onnx.data`, and `new.onnx`, of which one weight is other.
pub fn folder() -> Folder {
    let folder = Folder::new();
    for (name, first) in [("old", 0.0), ("new", 0.25)] {
        folder.save("inline.onnx", &network(first));
        folder.run(&["pack", "inline.onnx", &format!("{name}.onnx")]).done();
    }
    std::fs::remove_file(folder.path("inline.onnx")).unwrap();
    folder
}

/// Runs the call, whose words have no spaces, and expects the code and the texts.
pub fn call(folder: &Folder, code: i32, call: &str, texts: &[&str]) -> Run {
    let run = folder.run(&call.split_whitespace().collect::<Vec<_>>());
    assert_eq!(run.code(), code, "{call}: {run:?}");
    let said = run.stdout() + &run.stderr();
    for text in texts {
        assert!(said.contains(text), "{call}: no {text:?} in {said}");
    }
    run
}

#[test]
fn job_01_look_at_a_model() {
    let folder = folder();
    folder.run(&["edit", "old.onnx", "old.onnx", "--set-metadata", "license=MIT"]).done();
    let texts = ["[N,4]", "x", "2400", "FLOAT", "license", "old.onnx.data", "digests    none"];
    call(&folder, 0, "inspect old.onnx", &texts);
}

#[test]
fn job_02_the_largest_weights() {
    let folder = folder();
    let said = call(&folder, 0, "inspect old.onnx --top 1", &["NAME", "fc1.weight"]).stdout();
    assert!(!said.contains("fc2.weight"), "{said}");
    let said = call(&folder, 0, "inspect old.onnx --name fc2.* --top 0", &["fc2.weight"]).stdout();
    assert!(!said.contains("fc1.weight"), "{said}");
    call(&folder, 0, "inspect old.onnx --tree", &["fc1", "fc2", "1600"]);
}

#[test]
fn job_03_what_changed_between_two_versions() {
    let folder = folder();
    call(&folder, 1, "diff old.onnx new.onnx", &["changed", "fc1.weight", "different"]);
    call(&folder, 1, "diff old.onnx new.onnx --stats", &["fc1.weight", "0.25"]);
    call(&folder, 0, "diff old.onnx old.onnx", &["the same"]);
    call(&folder, 2, "diff old.onnx gone.onnx", &["gone.onnx"]);
}

#[test]
fn job_04_pack_into_one_file() {
    let folder = folder();
    call(&folder, 1, "pack old.onnx out/m.onnx", &["`mkdir -p out` makes it"]);
    call(&folder, 0, "pack old.onnx m.onnx --verify", &["m.onnx.data"]);
    assert_eq!(tensors(&folder.path("m.onnx")), tensors(&folder.path("old.onnx")));
}

#[test]
fn job_05_split_into_a_file_for_each_tensor() {
    let folder = folder();
    call(&folder, 0, "split old.onnx m.onnx", &[]);
    for name in ["m-fc1.weight", "m-fc2.weight"] {
        assert!(folder.path(name).exists(), "{:?}", folder.names());
    }
}

#[test]
fn job_06_embed_into_the_model() {
    let folder = folder();
    call(&folder, 0, "embed old.onnx single.onnx", &[]);
    call(&folder, 0, "files single.onnx", &["single.onnx"]);
    assert_eq!(tensors(&folder.path("single.onnx")), tensors(&folder.path("old.onnx")));
}

#[test]
fn job_07_shards_for_a_browser() {
    let folder = folder();
    std::fs::write(folder.path("config.json"), r#"{"model_type": "net"}"#).unwrap();
    let pack = "pack old.onnx model.onnx --max-shard-size 8KB --shard-names transformers-js --config config.json";
    call(&folder, 0, pack, &["model.onnx_data", "model.onnx_data_1"]);
    let config = std::fs::read_to_string(folder.path("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["model_type"], "net");
    assert_eq!(config["transformers.js_config"]["use_external_data_format"]["model.onnx"], 2);
}

#[test]
fn job_08_move_copy_and_remove_with_the_weights() {
    let folder = folder();
    call(&folder, 0, "mv old.onnx moved.onnx", &[]);
    call(&folder, 0, "cp moved.onnx copy.onnx", &[]);
    call(&folder, 0, "rm moved.onnx", &[]);
    assert_eq!(folder.names(), ["copy.onnx", "copy.onnx.data", "new.onnx", "new.onnx.data"]);
    call(&folder, 0, "share copy.onnx new.onnx --data-name shared.data", &[]);
    call(&folder, 0, "files copy.onnx", &["also needed by `new.onnx`"]);
    call(&folder, 0, "rm copy.onnx", &["shared.data"]);
    call(&folder, 0, "check new.onnx", &["ok"]);
}

#[test]
fn job_09_structure_alone_for_a_viewer() {
    let folder = folder();
    call(&folder, 0, "strip old.onnx structure.onnx", &[]);
    let length = std::fs::metadata(folder.path("structure.onnx")).unwrap().len();
    assert!(length < 1000, "{length}");
    call(&folder, 0, "inspect structure.onnx", &["[4,400]", "fc1.weight"]);
}

#[test]
fn job_10_the_weights_put_back() {
    let folder = folder();
    call(&folder, 0, "strip old.onnx structure.onnx", &[]);
    call(&folder, 0, "attach structure.onnx old.onnx whole.onnx", &[]);
    call(&folder, 0, "diff old.onnx whole.onnx", &["the same"]);
}

#[test]
fn job_11_set_and_show_metadata() {
    let folder = folder();
    let data = std::fs::read(folder.path("old.onnx.data")).unwrap();
    call(&folder, 0, "edit old.onnx old.onnx --set-metadata version=2 --producer us", &[]);
    call(&folder, 0, "inspect old.onnx", &["version", "2", "us"]);
    call(&folder, 0, "edit old.onnx old.onnx --remove-metadata version", &[]);
    assert_eq!(std::fs::read(folder.path("old.onnx.data")).unwrap(), data);
}

#[test]
fn job_12_rename_inputs_and_outputs() {
    let folder = folder();
    call(&folder, 0, "edit old.onnx m.onnx --rename-input x=tokens --rename-output y=logits", &[]);
    let said = call(&folder, 0, "inspect m.onnx", &["tokens", "logits"]).stdout();
    assert!(!said.lines().any(|line| line.ends_with("  x")), "{said}");
    call(&folder, 0, "check m.onnx", &["ok"]);
}

#[test]
fn job_13_cut_a_part_out() {
    let folder = folder();
    call(&folder, 0, "extract-model old.onnx front.onnx --outputs h", &[]);
    let said = call(&folder, 0, "inspect front.onnx", &["fc1.weight", "h"]).stdout();
    assert!(!said.contains("fc2.weight"), "{said}");
}

#[test]
fn job_14_join_two_models() {
    let folder = folder();
    call(&folder, 0, "extract-model old.onnx front.onnx --outputs h", &[]);
    call(&folder, 0, "extract-model old.onnx back.onnx --inputs h --outputs y", &[]);
    call(&folder, 0, "merge front.onnx back.onnx whole.onnx --connect h=h", &[]);
    call(&folder, 0, "check whole.onnx", &["ok"]);
    call(&folder, 0, "diff old.onnx whole.onnx --semantic", &["the same"]);
}

#[test]
fn job_15_convert_to_float16() {
    let folder = folder();
    call(&folder, 0, "cast old.onnx half.onnx --to float16 --keep-io", &[]);
    call(&folder, 0, "inspect half.onnx", &["FLOAT16"]);
    call(&folder, 0, "check half.onnx", &["ok"]);
}

#[test]
fn job_16_verify_a_download() {
    let folder = folder();
    call(&folder, 0, "pack old.onnx m.onnx --digests", &[]);
    call(&folder, 0, "check m.onnx --digests", &["ok"]);
    let mut data = std::fs::read(folder.path("m.onnx.data")).unwrap();
    data[17] ^= 1;
    std::fs::write(folder.path("m.onnx.data"), &data).unwrap();
    call(&folder, 1, "check m.onnx --digests", &["fc1.weight", "digest"]);
    std::fs::write(folder.path("m.onnx.data"), &data[..100]).unwrap();
    call(&folder, 1, "check m.onnx", &["m.onnx.data", "100"]);
}

#[test]
fn job_17_sign_and_verify() {
    let folder = folder();
    std::fs::write(folder.path("README.md"), "a file beside the model").unwrap();
    crate::signing::make_keys(&folder);
    call(&folder, 0, "sign old.onnx --key keys/P-256.pem", &[]);
    call(&folder, 0, "verify-signature old.onnx --key keys/P-256.pub", &["verified"]);
    call(
        &folder,
        1,
        "verify-signature new.onnx --key keys/P-256.pub --signature old.onnx.sig",
        &[],
    );
}

#[test]
fn job_18_broken_and_orphaned_files_in_a_tree() {
    let folder = folder();
    std::fs::create_dir_all(folder.path("a/b")).unwrap();
    call(&folder, 0, "mv old.onnx a/b/old.onnx", &[]);
    std::fs::write(folder.path("a/cut.onnx"), b"\x08\x08\x3a\xff\xff\x01").unwrap();
    std::fs::write(folder.path("a/orphan.bin"), [7; 5000]).unwrap();
    std::fs::remove_file(folder.path("new.onnx")).unwrap();
    call(&folder, 2, "check .", &["a/b/old.onnx", "a/cut.onnx"]);
    call(&folder, 0, "scan .", &["(cut off or damaged)", "a/orphan.bin", "new.onnx.data"]);
}

#[test]
fn job_19_one_copy_of_weights_for_two_models() {
    let folder = folder();
    let before = [tensors(&folder.path("old.onnx")), tensors(&folder.path("new.onnx"))];
    call(&folder, 0, "share old.onnx new.onnx --data-name shared.data", &[]);
    assert_eq!(folder.names(), ["new.onnx", "old.onnx", "shared.data"]);
    // Two weights of 6,400 bytes that differ, and one of 3,200 that is equal.
    let length = std::fs::metadata(folder.path("shared.data")).unwrap().len();
    assert!((16_000..17_000).contains(&length), "{length}");
    assert_eq!([tensors(&folder.path("old.onnx")), tensors(&folder.path("new.onnx"))], before);
}

#[test]
fn job_20_weights_that_are_not_finite() {
    let folder = folder();
    folder.save("nan.onnx", &network(f32::NAN));
    call(&folder, 1, "check . --finite", &["nan.onnx", "fc1.weight", "not a number"]);
    call(&folder, 0, "stats nan.onnx", &["fc1.weight", "1600"]);
}

#[cfg(feature = "machine")]
#[test]
fn job_21_plan_memory() {
    let folder = folder();
    call(&folder, 0, "plan old.onnx --dim N=8", &["h"]);
    call(&folder, 1, "plan old.onnx", &["--dim"]);
}

#[cfg(feature = "machine")]
#[test]
fn job_22_run_and_compare() {
    let folder = folder();
    call(&folder, 0, "run old.onnx --dim N=3 --seed 7 -o expected/", &["y"]);
    call(
        &folder,
        0,
        "run old.onnx --dim N=3 --seed 7 --expect expected/",
        &["all elements are equal"],
    );
    let told = ["largest   y: "];
    call(&folder, 1, "run new.onnx --dim N=3 --seed 7 --expect expected/", &told);
}

#[cfg(feature = "machine")]
#[test]
fn job_23_where_two_runs_part() {
    let folder = folder();
    call(&folder, 1, "trace diff old.onnx new.onnx --dim N=3 --seed 7", &["MatMul", "h"]);
}

#[test]
fn job_24_json_also_after_a_failure() {
    let folder = folder();
    for (line, code, kind) in [
        ("inspect old.onnx --json", 0, None),
        ("inspect gone.onnx --json", 1, Some("MissingFile")),
        ("pack old.onnx --json", 2, Some("Usage")),
        ("diff old.onnx gone.onnx --json", 2, Some("MissingFile")),
    ] {
        let said = call(&folder, code, line, &[]).json();
        assert_eq!(said["error"]["kind"].as_str(), kind, "{said}");
    }
}

#[test]
fn job_25_completion_in_the_shell() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        call(&folder, 0, &format!("completions {shell}"), &["shard-names", "extract-model"]);
    }
    call(&folder, 0, "--help", &["completions", "man"]);
}
