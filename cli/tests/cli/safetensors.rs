//! `pack --safetensors`, `import-safetensors` and `export-safetensors`.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use onnx_container::{MmapChoice, safetensors};

use crate::support::{Folder, floats, tensors};

/// The names and bytes of a safetensors file or index in the folder.
fn entries(folder: &Folder, name: &str) -> Vec<(String, Vec<u8>)> {
    let weights = safetensors::load(folder.path(name), MmapChoice::never()).unwrap();
    let entry = |(name, tensor): (&str, &onnx_container::Tensor)| {
        (name.to_owned(), tensor.as_bytes().unwrap().to_vec())
    };
    weights.iter().map(entry).collect()
}

fn names(folder: &Folder, name: &str) -> Vec<String> {
    entries(folder, name).into_iter().map(|(name, _)| name).collect()
}

/// A model that declares these float tensors and has none of their data.
fn structure(tensors: &[(&str, i64)]) -> ModelProto {
    let mut graph = GraphProto::new("main");
    for (name, len) in tensors {
        let tensor = TensorProto::external(*name, TensorProto::FLOAT, [*len], "gone.bin");
        graph.initializer.push(tensor);
    }
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    model
}

#[test]
fn pack_writes_a_safetensors_file() {
    let folder = Folder::with_model();
    let before = tensors(&folder.path("m.onnx"));
    for flags in [&[][..], &["--verify"], &["--verify", "--no-mmap"], &["--align", "4K"]] {
        let args = [&["pack", "m.onnx", "p.onnx", "--safetensors"], flags].concat();
        folder.run(&args).done().says(&["moved     4 tensors", "p.safetensors", "p.onnx"]);
        assert_eq!(folder.names(), ["m.onnx", "p.onnx", "p.safetensors"]);
        assert_eq!(tensors(&folder.path("p.onnx")), before, "{args:?}");
        assert_eq!(names(&folder, "p.safetensors"), ["c", "typed", "w", "z.then_branch/inner"]);
        folder.run(&["check", "p.onnx"]).done().says(&["no errors"]);
    }
    let args = ["pack", "p.onnx", "q.onnx", "--safetensors", "--data-name", "q.bin", "--dry-run"];
    folder.run(&args).done().says(&["q.bin", "nothing was written"]);
    // A file of that name that the model does not have is a checkpoint of somebody's.
    fs::write(folder.path("m.safetensors"), "").unwrap();
    let run = folder.run(&["pack", "m.onnx", "m.onnx", "--safetensors"]);
    run.failed(&["m.safetensors", "no model here refers to it"]);
}

#[test]
fn exports_are_imported_again() {
    let folder = Folder::with_model();
    let before = tensors(&folder.path("m.onnx"));
    let run = folder.run(&["export-safetensors", "m.onnx", "w.safetensors"]).done();
    run.says(&["wrote     4 tensors to 1 file", "w.safetensors"]).says(&[
        "left out  ",
        "inline in the model",
        "--min-bytes",
        "small",
    ]);
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    fs::remove_file(folder.path("p.onnx.data")).unwrap();

    let run = folder.run(&["import-safetensors", "p.onnx", "w.safetensors", "i.onnx", "--verify"]);
    run.done().says(&[
        "filled    4 tensors (9.6 kB) from w.safetensors",
        "bit for bit",
        "i.onnx.data",
    ]);
    assert_eq!(tensors(&folder.path("i.onnx")), before);

    let args =
        ["export-safetensors", "m.onnx", "s.safetensors", "--max-shard-size", "4KB", "--json"];
    let report = folder.run(&args).done().json();
    assert_eq!((&report["tensors"], report["files"].as_array().unwrap().len()), (&4.into(), 4));
    let left_out = report["left_out"].as_array().unwrap();
    assert!(left_out.contains(&"small".into()) && !left_out.contains(&"w".into()), "{left_out:?}");
    let index = "s.safetensors.index.json";
    assert_eq!(names(&folder, index), names(&folder, "w.safetensors"));
    let args =
        ["import-safetensors", "p.onnx", index, "j.onnx", "--safetensors", "--json", "--strict"];
    let report = folder.run(&args).done().json();
    assert_eq!(report["imported"]["filled"], 4);
    assert_eq!(report["imported"]["missing"].as_array().unwrap().len(), 0);
    assert_eq!(tensors(&folder.path("j.onnx")), before);
    assert_eq!(entries(&folder, "j.safetensors"), entries(&folder, "w.safetensors"));
}

const IGNORED: [&str; 9] = [
    "--strict",
    "--ignore",
    "small",
    "--ignore",
    "c",
    "--ignore",
    "typed",
    "--ignore",
    "z.then_branch/inner",
];

#[test]
fn names_are_mapped() {
    let folder = Folder::with_model();
    folder.run(&["export-safetensors", "m.onnx", "w.safetensors", "--min-bytes", "1"]).done();
    type Declared = &'static [(&'static str, i64)];
    let cases: &[(Declared, &[&str], i32, &str)] = &[
        (&[("w", 1000)], &[], 0, "left over"),
        (&[("w", 1000)], &["--strict"], 1, ""),
        (&[("w", 1000)], &["--strict", "--ignore", "small", "--ignore", "c"], 1, ""),
        (&[("w", 1000)], &IGNORED, 0, "filled    1 tensor "),
        (&[("w", 1000)], &["--ignore", "typo"], 0, "no effect --ignore \"typo\""),
        (&[("v", 1000)], &["--rename", "w=v"], 0, "filled    1 tensor "),
        (&[("eight", 1000)], &["--strip-prefix", "w"], 1, ""),
        (
            &[("e.w", 1000), ("e.small", 4)],
            &["--replace-prefix", "w=e.w", "--replace-prefix", "s=e.s"],
            0,
            "filled    2 tensors",
        ),
        (&[("w", 1000), ("x", 3), ("y", 3)], &[], 1, "missing   2 tensors"),
        (&[("w", 999)], &[], 1, ""),
    ];
    for (declared, flags, code, text) in cases {
        folder.save("s.onnx", &structure(declared));
        let args = [&["import-safetensors", "s.onnx", "w.safetensors", "o.onnx"], *flags].concat();
        let run = folder.run(&args);
        assert_eq!(run.code(), *code, "{args:?}: {run:?}");
        assert_eq!(folder.path("o.onnx").exists(), *code == 0, "{args:?}");
        run.says(&[text]);
        let _ = fs::remove_file(folder.path("o.onnx"));
        let _ = fs::remove_file(folder.path("o.onnx.data"));
    }
    folder.save("s.onnx", &structure(&[("w", 1000), ("x", 3)]));
    let args = ["import-safetensors", "s.onnx", "w.safetensors", "o.onnx", "--json"];
    let run = folder.run(&args).failed(&["gone.bin"]);
    assert_eq!(run.json()["imported"]["missing"], serde_json::json!(["x"]));
    for wrong in ["=b", "a", ""] {
        let args = ["import-safetensors", "s.onnx", "w.safetensors", "o.onnx", "--rename", wrong];
        assert_eq!(folder.run(&args).code(), 2, "{wrong:?}");
    }
}

#[test]
fn an_import_that_fills_nothing_says_how_names_could_fit() {
    let folder = Folder::packed();
    folder.run(&["export-safetensors", "p.onnx", "w.safetensors"]).done();
    let cases: &[(&str, &[&str], &str)] = &[
        ("m.w", &[], "--replace-prefix =m. makes `m.w` of `w`"),
        ("m.w", &["--replace-prefix", "=m."], ""),
        ("m.w", &["--replace-prefix", "=a.m."], "--replace-prefix =m. makes `m.w` of `w`"),
        ("other", &[], "--strip-prefix, --replace-prefix and --rename change the names of weights"),
        ("inner", &[], "--strip-prefix z.then_branch/ makes `inner` of `z.then_branch/inner`"),
    ];
    for (name, flags, text) in cases {
        let len = if *name == "inner" { 600 } else { 1000 };
        folder.save("s.onnx", &structure(&[(name, len)]));
        let args = [&["import-safetensors", "s.onnx", "w.safetensors", "o.onnx"], *flags].concat();
        let run = folder.run(&args);
        assert_eq!(folder.path("o.onnx").exists(), text.is_empty(), "{args:?}");
        if text.is_empty() {
            run.done().says(&["filled    1 tensor"]);
            fs::remove_file(folder.path("o.onnx")).unwrap();
        } else {
            run.failed(&[text]).says(&["filled    0 tensors", "nothing was written"]);
        }
    }
    // Also where the model has all its weights: they are not what was asked for.
    let mut other = structure(&[]);
    if let Some(graph) = &mut other.graph {
        graph.initializer.push(floats("model.w", 1000));
    }
    folder.save("other.onnx", &other);
    folder.run(&["export-safetensors", "other.onnx", "v.safetensors"]).done();
    let before = folder.contents();
    let run = folder.run(&["import-safetensors", "p.onnx", "v.safetensors", "p.onnx"]);
    run.failed(&["--strip-prefix model. makes `w` of `model.w`"]);
    assert_eq!(folder.contents(), before);
}

#[test]
fn a_model_is_not_written_over_weights() {
    let folder = Folder::packed();
    folder.run(&["export-safetensors", "p.onnx", "w.safetensors"]).done();
    fs::copy(folder.path("w.safetensors"), folder.path("w.st")).unwrap();
    let before = folder.contents();
    let cases: &[(&[&str], &str)] = &[
        (
            &["import-safetensors", "p.onnx", "w.safetensors", "w.safetensors"],
            "is read by this command",
        ),
        (&["import-safetensors", "p.onnx", "w.st", "./w.st"], "is read by this command"),
        (&["import-safetensors", "p.onnx", "w.st", "w.safetensors"], "OUT must be the model"),
        (&["pack", "p.onnx", "new.safetensors", "--safetensors"], "OUT must be the model"),
        (&["split", "p.onnx", "new.safetensors.index.json"], "OUT must be the model"),
        (&["embed", "p.onnx", "w.safetensors"], "OUT must be the model"),
        (
            &["replace", "p.onnx", "w", "w.safetensors", "-o", "w.safetensors"],
            "is read by this command",
        ),
        (&["replace", "p.onnx", "w", "w.st", "-o", "new.safetensors"], "OUT must be the model"),
    ];
    for (args, text) in cases {
        folder.run(args).failed(&[text]);
        assert_eq!(folder.contents(), before, "{args:?}");
    }
}

#[test]
fn tensors_that_are_not_imported_are_unchanged() {
    let folder = Folder::packed();
    let mut other = GraphProto::new("main");
    other.initializer.push(floats("w", 1000));
    if let Some(raw) = &mut other.initializer[0].raw_data {
        *raw = vec![7; 4000].into();
    }
    folder.save("other.onnx", &ModelProto::new(other));
    folder.run(&["export-safetensors", "other.onnx", "w.safetensors"]).done();
    let before = tensors(&folder.path("p.onnx"));
    let run = folder.run(&["import-safetensors", "p.onnx", "w.safetensors", "p.onnx"]).done();
    run.says(&[
        "filled    1 tensor (4.0 kB)",
        "own       3 tensors not in WEIGHTS",
        "unchanged 2 tensors inline in the model, not in WEIGHTS",
    ]);
    for ((name, what, bytes), (old_name, old_what, old)) in
        tensors(&folder.path("p.onnx")).into_iter().zip(before)
    {
        assert_eq!((&name, what), (&old_name, old_what));
        assert_eq!(bytes == old, name != "w", "{name}");
    }
}

#[test]
fn only_tensors_without_weights_anywhere_are_missing() {
    let folder = Folder::new();
    let mut model = structure(&[("here", 2), ("gone", 2), ("given", 2)]);
    let tensors = &mut model.graph.as_mut().unwrap().initializer;
    tensors[0] = TensorProto::external("here", TensorProto::FLOAT, [2], "here.bin");
    // In a file of its own: tensors of one range are tied, and filled together.
    tensors[2] = TensorProto::external("given", TensorProto::FLOAT, [2], "given.bin");
    folder.save("s.onnx", &model);
    fs::write(folder.path("here.bin"), [0; 8]).unwrap();
    let entry = r#"{"given":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let length = u64::try_from(entry.len()).unwrap().to_le_bytes();
    let file = [&length, entry.as_bytes(), &[0; 8]].concat();
    fs::write(folder.path("w.safetensors"), file).unwrap();
    let args = ["import-safetensors", "s.onnx", "w.safetensors", "o.onnx", "--json"];
    let run = folder.run(&args).failed(&["gone.bin"]);
    assert_eq!(run.json()["imported"]["missing"], serde_json::json!(["gone"]));
}

#[test]
fn targets_of_exports_are_safe() {
    let folder = Folder::packed();
    let before = folder.contents();
    let export = |output: &str, flags: &[&str]| {
        folder.run(&[&["export-safetensors", "p.onnx", output], flags].concat())
    };
    export("p.onnx", &[]).failed(&["does not end in `.safetensors`"]);
    export("gone/w.safetensors", &[]).failed(&["gone"]);
    for size in ["0", "x", "5PB", "-1"] {
        assert_eq!(export("w.safetensors", &["--max-shard-size", size]).code(), 2, "{size}");
    }
    assert_eq!(folder.contents(), before);
    export("w.safetensors", &[]).done();
    export("w.safetensors", &["--no-clobber"]).failed(&["exists already"]);
    let run = export("w.safetensors", &["--max-shard-size", "4KB"]).done();
    run.says(&["left      1 file of an earlier export", "w.safetensors"]);
}

#[test]
fn a_tensor_larger_than_a_shard_is_reported() {
    let folder = Folder::packed();
    let cases = [
        ("4KB", ""),
        (
            "3999",
            "1 tensor is larger than the maximum shard size of 3999 bytes and alone in a shard: `w` (4000 bytes)",
        ),
        (
            "2K",
            "2 tensors are larger than the maximum shard size of 2048 bytes and alone in a shard: `w` (4000 bytes), `z.then_branch/inner` (2400 bytes)",
        ),
    ];
    for (size, said) in cases {
        let args = ["export-safetensors", "p.onnx", "w.safetensors", "--max-shard-size", size];
        let expected = if said.is_empty() { String::new() } else { format!("warning: {said}\n") };
        let run = folder.run(&args);
        assert_eq!((run.code(), run.stderr()), (0, expected), "{size}");
        let report = folder.run(&[&args[..], &["--json"]].concat()).json();
        let warnings: &[&str] = if said.is_empty() { &[] } else { &[said] };
        assert_eq!(report["warnings"], serde_json::json!(warnings));
    }
}

/// A checkpoint of two weights, of which a model has one transposed and one as FLOAT16 under other
/// names.
fn checkpoint(folder: &Folder, name: &str, seed: u32) {
    let values =
        |first: u32| (0..600).map(move |i| ((i * 7919 + first) % 1009) as f32 - seed as f32);
    let weight = |name: &str, dims: [i64; 2], first| {
        let bytes: Vec<u8> = values(first).flat_map(f32::to_le_bytes).collect();
        TensorProto::new(name, TensorProto::FLOAT, dims).with_raw_data(bytes)
    };
    let mut graph = GraphProto::new("weights");
    graph.initializer.push(weight("a.weight", [20, 30], 1));
    graph.initializer.push(weight("b.weight", [30, 20], 5));
    let model = ModelProto::new(graph).with_operator_set("", 21);
    let mut container = onnx_container::Container::new(model);
    container.externalize(0).unwrap();
    let options = safetensors::ExportOptions::new();
    container.export_safetensors(folder.path(name), options).unwrap();
    let turned: Vec<_> = (0..600).map(|n| values(1).nth(n % 20 * 30 + n / 20).unwrap()).collect();
    let turned: Vec<u8> = turned.into_iter().flat_map(f32::to_le_bytes).collect();
    let halves = values(5)
        .flat_map(|x| onnx_container::half::f16::from_f32(x).to_le_bytes())
        .collect::<Vec<u8>>();
    let tensor = |name: &str, of, dims: [i64; 2], bytes: Vec<u8>| {
        TensorProto::new(name, of, dims).with_raw_data(bytes)
    };
    let mut graph = GraphProto::new("exported");
    graph.initializer.push(tensor("val_1", TensorProto::FLOAT, [30, 20], turned));
    graph.initializer.push(tensor("val_2", TensorProto::FLOAT16, [30, 20], halves));
    graph.initializer.push(floats("table", 9));
    let model = ModelProto::new(graph).with_operator_set("", 21);
    let bytes = onnx_container::proto::Message::encode_to_vec(&model).unwrap();
    fs::write(folder.path(name).with_extension("onnx"), bytes).unwrap();
}

#[test]
fn weights_are_put_where_those_of_another_checkpoint_were() {
    let folder = Folder::new();
    for (name, seed) in [("old.safetensors", 1), ("new.safetensors", 2), ("newer.safetensors", 3)] {
        checkpoint(&folder, name, seed);
    }
    let import = ["import-safetensors", "old.onnx", "new.safetensors", "o.onnx"];
    // Names do not lead there.
    folder.run(&import).failed(&["no tensor of the model has the name"]);
    let found = [&import[..], &["--match", "old.safetensors", "--mapping", "map.json", "--verify"]];
    folder.run(&found.concat()).done().says(&[
        "filled    2 tensors",
        "unchanged 1 tensor of floats that the mapping has no weights for",
        "table",
    ]);
    let same = |out: &str, expected: &str| {
        let (found, wanted) = (tensors(&folder.path(out)), tensors(&folder.path(expected)));
        assert_eq!(found, wanted, "{out}");
    };
    same("o.onnx", "new.onnx");
    let again =
        ["import-safetensors", "o.onnx", "newer.safetensors", "p.onnx", "--mapping", "map.json"];
    folder.run(&again).done().says(&["filled    2 tensors"]);
    same("p.onnx", "newer.onnx");

    let refused: [(&[&str], &str); 4] = [
        (&["--match", "newer.safetensors"], "it is not the checkpoint"),
        (&["--match", "old.safetensors", "--strict"], "table"),
        (&["--match", "old.safetensors", "--mapping", "old.onnx"], "it is not replaced"),
        (&["--mapping", "old.safetensors"], "old.safetensors"),
    ];
    let before = folder.names();
    for (flags, text) in refused {
        folder.run(&[&import[..3], &["q.onnx"], flags].concat()).failed(&[text]);
    }
    folder
        .run(&[&import[..3], &["q.onnx", "--match", "old.safetensors", "--rename", "a=b"]].concat())
        .misused(&[]);
    folder
        .run(
            &[
                &import[..3],
                &["q.onnx", "--match", "old.safetensors", "--mapping", "q.json", "--dry-run"],
            ]
            .concat(),
        )
        .done();
    assert_eq!(folder.names(), before);
}
