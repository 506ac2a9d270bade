//! `pack`, `split` and `embed`.

use std::fs;

use onnx_container::proto::{StringStringEntryProto, TensorProto};

use crate::support::{Folder, external, model, tensors};

#[test]
fn every_layout_keeps_every_tensor() {
    let folder = Folder::with_model();
    let before = tensors(&folder.path("m.onnx"));
    for command in ["pack", "split", "embed"] {
        for (input, output) in [("m.onnx", "a.onnx"), ("a.onnx", "b.onnx"), ("b.onnx", "b.onnx")] {
            for flags in [&["--no-sync"][..], &["--no-mmap"], &["--verify"]] {
                let args = [&[command, input, output][..], flags].concat();
                folder.run(&args).done();
                assert_eq!(tensors(&folder.path(output)), before, "{args:?}");
            }
        }
    }
}

#[test]
fn pack_writes_one_file_beside_the_model() {
    let folder = Folder::with_model();
    let run = folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    assert_eq!(folder.names(), ["m.onnx", "p.onnx", "p.onnx.data"]);
    // Out: w, typed, c, inner. In: the Split's sizes and the function's constant.
    run.says(&[
        "read      m.onnx: 7 tensors, 0 external",
        "moved     4 tensors (9.6 kB) out of the model",
        "kept      2 large tensors inline",
        "sizes: read by shape inference",
        "inside a function",
        "wrote     2 files",
        "p.onnx.data",
    ]);
}

#[test]
fn split_writes_a_file_for_each_tensor() {
    let folder = Folder::with_model();
    folder.run(&["split", "m.onnx", "s.onnx"]).done().says(&["wrote     5 files"]);
    let names =
        ["m.onnx", "s-c.weight", "s-inner.weight", "s-typed.weight", "s-w.weight", "s.onnx"];
    assert_eq!(folder.names(), names);
    // The model first, then the weights in graph order.
    let listed = folder.run(&["split", "m.onnx", "s.onnx", "--dry-run"]).done().stdout();
    let order = ["s.onnx\n", "s-w.weight", "s-typed.weight", "s-c.weight", "s-inner.weight"];
    let places: Vec<_> =
        order.iter().map(|name| listed.find(&format!("  {name}")).unwrap()).collect();
    assert!(places.is_sorted(), "{listed}");
}

#[test]
fn embed_of_a_canonical_model_writes_the_same_bytes() {
    let folder = Folder::with_model();
    folder.run(&["embed", "m.onnx", "e.onnx"]).done();
    let read = |name: &str| fs::read(folder.path(name)).unwrap();
    assert_eq!(read("m.onnx"), read("e.onnx"));
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    folder.run(&["embed", "p.onnx", "e1.onnx"]).done().says(&["4 tensors (9.6 kB) into the model"]);
    folder.run(&["embed", "e1.onnx", "e2.onnx"]).done();
    assert_eq!(read("e1.onnx"), read("e2.onnx"));
}

#[test]
fn embed_says_how_many_tied_tensors_it_copies() {
    let folder = Folder::new();
    // `a` and `b` are one range; `c` is the same range in another shape; `d` is not tied.
    let tensor = |name: &str, shape: &[i64], offset: &str| {
        let mut tensor = TensorProto::external(name, TensorProto::FLOAT, shape, "w.bin");
        tensor.external_data.push(StringStringEntryProto::new("offset", offset));
        tensor.external_data.push(StringStringEntryProto::new("length", "16384"));
        tensor
    };
    let mut tied = external(&[]);
    tied.graph.as_mut().unwrap().initializer = vec![
        tensor("a", &[4096], "0"),
        tensor("b", &[4096], "0"),
        tensor("c", &[64, 64], "0"),
        tensor("d", &[4096], "16384"),
    ];
    folder.save("m.onnx", &tied);
    fs::write(folder.path("w.bin"), [0; 32768]).unwrap();
    for flags in [&[][..], &["--no-mmap"]] {
        let run = folder.run(&[&["embed", "m.onnx", "e.onnx"], flags].concat()).done();
        run.says(&[
            "4 external (33 kB, 2 of them tied, ",
            "moved     4 tensors (66 kB) into the model\n",
            "copied    2 tied tensors (33 kB): inline tensors cannot share bytes\n",
        ]);
    }
    let said = folder.run(&["embed", "m.onnx", "e.onnx", "--json"]).done().json();
    assert_eq!(said["moved"]["bytes"], 65536);
    assert_eq!(said["untied"], serde_json::json!({"tensors": 2, "bytes": 32768}));
    // The file holds what the report counts, and little else.
    let len = fs::metadata(folder.path("e.onnx")).unwrap().len();
    assert!((65536..66536).contains(&len), "{len}");

    let said = folder.run(&["pack", "m.onnx", "p.onnx", "--json"]).done().json();
    assert_eq!(said["untied"]["tensors"], 0);
    assert_eq!(fs::metadata(folder.path("p.onnx.data")).unwrap().len(), 32768);
}

#[test]
fn options_reach_the_save() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "a.onnx", "--min-bytes", "4K"]).done().says(&["moved     0 t"]);
    folder
        .run(&["pack", "m.onnx", "a.onnx", "--min-bytes", "4000"])
        .done()
        .says(&["moved     1 t"]);
    folder.run(&["pack", "m.onnx", "b.onnx", "--data-name", "w.bin"]).done();
    assert!(folder.path("w.bin").is_file());
    let run = folder.run(&["pack", "m.onnx", "c.onnx", "--all-tensors", "--align", "4K", "--json"]);
    let report = run.json();
    assert_eq!((run.code(), &report["moved"]["tensors"]), (0, &6.into()));
    let warnings = report["warnings"].as_array().unwrap();
    let refused = "tensor `sizes`: an external shape operand, which onnxruntime refuses";
    assert_eq!(warnings[0], refused, "{warnings:?}");
    assert!(run.stderr().starts_with(&format!("warning: {refused}\n")), "{}", run.stderr());
    assert_eq!(report["kept"].as_array().unwrap().len(), 0);
    let inspected = folder.run(&["inspect", "c.onnx", "--json"]).done().json();
    let offsets = inspected["tensors"].as_array().unwrap().iter();
    let offsets = offsets.filter_map(|tensor| tensor["stored"]["offset"].as_u64());
    assert!(offsets.inspect(|offset| assert_eq!(offset % 4096, 0)).count() == 6);
}

#[test]
fn the_same_path_in_and_out_is_safe() {
    let folder = Folder::with_model();
    let before = tensors(&folder.path("m.onnx"));
    folder.run(&["pack", "m.onnx", "m.onnx", "--verify"]).done();
    folder.run(&["pack", "m.onnx", "./m.onnx", "--align", "4K", "--verify"]).done();
    let run = folder.run(&["split", "m.onnx", "m.onnx", "--verify"]).done();
    run.says(&["removed   1 file", "m.onnx.data"]);
    let run = folder.run(&["embed", "m.onnx", "m.onnx", "--verify"]).done();
    run.says(&["removed   4 files", "m-w.weight"]);
    assert_eq!(folder.names(), ["m.onnx"]);
    assert_eq!(tensors(&folder.path("m.onnx")), before);
}

#[test]
fn a_verified_embed_writes_what_another_does() {
    let folder = Folder::with_model();
    // A node with its fields in another order than they are usually written in.
    let node = [&b"\x22\x04Relu"[..], b"\x0a\x01w", b"\x12\x01r"].concat();
    let graph = [&[0x0a, u8::try_from(node.len()).unwrap()][..], &node].concat();
    let more = [&[0x3a, u8::try_from(graph.len()).unwrap()][..], &graph].concat();
    let path = folder.path("m.onnx");
    std::fs::write(&path, [std::fs::read(&path).unwrap(), more].concat()).unwrap();
    folder.run(&["embed", "m.onnx", "plain.onnx"]).done();
    folder.run(&["embed", "m.onnx", "verified.onnx", "--verify"]).done();
    let [plain, verified] =
        ["plain.onnx", "verified.onnx"].map(|name| std::fs::read(folder.path(name)).unwrap());
    assert!(plain == verified);
}

#[test]
fn verify_says_what_it_did() {
    let folder = Folder::with_model();
    let run = folder.run(&["pack", "m.onnx", "p.onnx", "--verify"]).done();
    run.says(&["verified  7 tensors", "mapped) are the same bit for bit", "checked   no errors"]);
    let run = folder.run(&["split", "m.onnx", "s.onnx", "--verify", "--no-mmap", "--json"]).done();
    let verified = &run.json()["verified"];
    assert_eq!((&verified["ok"], &verified["mapped"]), (&true.into(), &false.into()));
    assert_eq!(verified["tensors"], 7);
    // An external shape operand was asked for, and is what readers refuse.
    let args = ["pack", "m.onnx", "a.onnx", "--verify", "--all-tensors"];
    let run = folder.run(&args).failed(&[]);
    run.says(&["verified  7 tensors", "checked   1 error", "shape operand"]);
}

#[test]
fn a_dry_run_writes_nothing_and_says_what_would_be() {
    let folder = Folder::packed();
    folder.save("m.onnx", &model());
    let before = folder.contents();
    for command in ["pack", "split", "embed"] {
        for input in ["m.onnx", "p.onnx"] {
            let run = folder.run(&[command, input, "out.onnx", "--dry-run"]).done();
            run.says(&["writes", "out.onnx", "nothing was written"]);
        }
        let plan =
            folder.run(&[command, "m.onnx", "out.onnx", "--dry-run", "--json"]).done().json();
        assert_eq!(folder.contents(), before);
        let written = folder.run(&[command, "m.onnx", "out.onnx", "--json"]).done().json();
        assert_eq!(plan["files"], written["files"]);
        for file in written["files"].as_array().unwrap() {
            let path = folder.path(file["path"].as_str().unwrap());
            assert_eq!(file["bytes"].as_u64(), Some(path.metadata().unwrap().len()));
            fs::remove_file(path).unwrap();
        }
    }
    let run = folder.run(&["pack", "m.onnx", "out.onnx", "--dry-run"]).done();
    run.says(&["sizes: read by shape inference", "k: inside a function", "out.onnx.data"]);
}

#[test]
fn no_clobber_replaces_nothing() {
    let folder = Folder::packed();
    folder.save("m.onnx", &model());
    let before = folder.contents();
    for command in ["pack", "split", "embed"] {
        let run = folder.run(&[command, "m.onnx", "p.onnx", "--no-clobber"]);
        let run = run.failed(&["p.onnx", "exists already"]);
        assert!(!run.stderr().contains("--data-name"), "another name would not help: {run:?}");
    }
    fs::rename(folder.path("p.onnx"), folder.path("q.onnx")).unwrap();
    let hint = "  --data-name NAME puts the weights into another file\n";
    folder.run(&["pack", "m.onnx", "p.onnx", "--no-clobber"]).failed(&["p.onnx.data", hint]);
    fs::rename(folder.path("q.onnx"), folder.path("p.onnx")).unwrap();
    assert_eq!(folder.contents(), before);
    folder.run(&["pack", "m.onnx", "new.onnx", "--no-clobber"]).done();
}

#[test]
fn another_model_is_replaced_whole() {
    let folder = Folder::packed();
    folder.save("m.onnx", &external(&[]));
    let run = folder.run(&["pack", "m.onnx", "p.onnx", "--verify"]).done();
    run.says(&["wrote     1 file", "removed   1 file", "p.onnx.data"]);
    assert!(tensors(&folder.path("p.onnx")).is_empty());
}

#[test]
fn files_of_other_models_are_not_touched() {
    let folder = Folder::packed();
    folder.save("m.onnx", &model());
    let before = folder.contents();
    let args = ["pack", "m.onnx", "q.onnx", "--data-name", "p.onnx.data"];
    folder.run(&args).failed(&["p.onnx` refers to this file"]);
    folder.run(&["pack", "m.onnx", "p.onnx.data"]).failed(&["p.onnx` refers to this file"]);
    folder.run(&["pack", "m.onnx", "q.onnx", "--data-name", "p.onnx"]).failed(&["as models do"]);
    folder.run(&["pack", "m.onnx", "m.onnx", "--data-name", "m.onnx"]).failed(&["model's name"]);
    folder.run(&["pack", "m.onnx", "q.onnx", "--data-name", "../w"]).failed(&["no directory"]);
    folder.run(&["pack", "m.onnx", "nowhere/q.onnx"]).failed(&["nowhere"]);
    assert_eq!(folder.contents(), before);
}

#[test]
fn every_missing_or_hostile_file_is_named_before_anything_is_written() {
    let folder = Folder::new();
    let hostile =
        ["a.bin", "sub/b.bin", "../up.bin", "/etc/passwd", "#handle", "*/_ORT_MEM_ADDR_/*"];
    folder.save("m.onnx", &external(&hostile));
    for command in ["pack", "split", "embed"] {
        let run = folder.run(&[command, "m.onnx", "out.onnx"]).failed(&hostile);
        run.failed(&["6 problems\n", "  tensor `w0`: ", "  tensor `w5`: "]);
        assert_eq!(folder.names(), ["m.onnx"]);
    }
}

#[test]
fn names_cannot_forge_lines() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["a\nerror: forged\u{1b}[2J"]));
    let run = folder.run(&["embed", "m.onnx", "out.onnx"]).failed(&["error: forged"]);
    assert_eq!(run.stderr().lines().count(), 1);
    assert!(!run.stderr().contains('\u{1b}'));
}

/// A sparse weights file of a little more than 2 GiB: embedding it is refused, unless asked for.
#[cfg(target_os = "linux")]
#[test]
fn a_model_file_over_2_gib_is_refused() {
    use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
    let folder = Folder::new();
    let mut graph = GraphProto::new("main");
    let bytes = (1_i64 << 31) + 16;
    graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [bytes], "w.bin"));
    folder.save("m.onnx", &ModelProto::new(graph));
    let weights = fs::File::create(folder.path("w.bin")).unwrap();
    weights.set_len(u64::try_from(bytes).unwrap()).unwrap();
    let texts = ["2147483647 bytes (2 GiB)", "2.1 GB", "--allow-over-2gib"];
    folder.run(&["embed", "m.onnx", "out.onnx"]).failed(&texts);
    folder.run(&["embed", "m.onnx", "out.onnx", "--dry-run"]).failed(&texts);
    assert_eq!(folder.names(), ["m.onnx", "w.bin"]);
    let args = ["embed", "m.onnx", "out.onnx", "--dry-run", "--allow-over-2gib"];
    let run = folder.run(&args).says(&["writes    1 file (2.1 GB)"]);
    assert_eq!(run.code(), 0);
    assert!(run.stderr().contains("onnx and onnxruntime refuse more than"), "{}", run.stderr());
}

/// A folder with `m.onnx`, whose weights are in the file `name`.
fn with_data(name: &str) -> Folder {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "m.onnx", "--data-name", name]).done();
    assert_eq!(folder.names(), ["m.onnx", name]);
    folder
}

#[test]
fn the_only_weights_file_of_a_replaced_model_keeps_its_name() {
    for (args, name, kept) in [
        (&["pack", "m.onnx", "m.onnx"][..], "m.onnx_data", true),
        (&["pack", "m.onnx", "m.onnx"], "own name.bin", true),
        (&["pack", "m.onnx", "m.onnx", "--align", "64"], "m.onnx_data", true),
        (&["replace", "m.onnx", "w", "w.npy", "-o", "m.onnx"], "m.onnx_data", true),
        (&["inline", "m.onnx", "m.onnx", "--align", "64"], "m.onnx_data", true),
        (&["pack", "m.onnx", "m.onnx", "--data-name", "m.onnx.data"], "m.onnx_data", false),
        (&["pack", "m.onnx", "m.onnx", "--max-shard-size", "1GB"], "m.onnx_data", false),
        (&["pack", "m.onnx", "m.onnx", "--dry-run"], "m.onnx_data", true),
        (&["cast", "m.onnx", "m.onnx", "--to", "float16", "--weights-only"], "m.onnx_data", true),
        (&["cast", "m.onnx", "m.onnx", "--to=float16", "--min-bytes=0"], "own name.bin", true),
        (&["cast", "m.onnx", "m.onnx", "--to", "float16", "--safetensors"], "m.onnx_data", false),
    ] {
        let folder = with_data(name);
        folder.run(&["extract", "m.onnx", "w", "-o", "w.npy"]).done();
        let before = tensors(&folder.path("m.onnx"));
        folder.run(args).done();
        let is_safetensors = args.contains(&"--safetensors");
        let new = if is_safetensors { "m.safetensors" } else { "m.onnx.data" };
        let expected = if kept { name } else { new };
        assert_eq!(folder.names(), ["m.onnx", expected, "w.npy"], "{args:?} {name}");
        let same = tensors(&folder.path("m.onnx")) == before;
        assert!(same || ["inline", "cast"].contains(&args[0]), "{args:?} {name}");
    }
    // Not one that another model needs, nor one of a layout of its own.
    let folder = with_data("shared");
    fs::copy(folder.path("m.onnx"), folder.path("n.onnx")).unwrap();
    folder.run(&["pack", "m.onnx", "m.onnx"]).done();
    assert_eq!(folder.names(), ["m.onnx", "m.onnx.data", "n.onnx", "shared"]);
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "m.onnx", "--safetensors"]).done();
    let args = ["pack", "m.onnx", "m.onnx"];
    let plan = folder.run(&[&args[..], &["--dry-run"]].concat()).done();
    plan.says(&["removes   1 file"]);
    let keep = [&args[..], &["--keep-old"]].concat();
    let plan = folder.run(&[&keep[..], &["--dry-run"]].concat()).done();
    plan.says(&["left      1 file", "without --keep-old"]);
    folder.run(&keep).done().says(&["left      1 file", "delete them yourself"]);
    assert_eq!(folder.names(), ["m.onnx", "m.onnx.data", "m.safetensors"]);
    folder.run(&["embed", "m.onnx", "m.onnx"]).done();
    assert_eq!(folder.names(), ["m.onnx", "m.safetensors"]);
}

#[test]
fn old_weights_files_are_removed_as_asked() {
    for (option, names, left) in [
        (Some("--keep-old"), &["own"][..], &["own"][..]),
        (Some("--delete-old"), &["own"], &[]),
        (Some("--keep-old"), &["m.onnx_data"], &["m.onnx_data"]),
        (None, &["m.onnx_data"], &[]),
    ] {
        for dry_run in [true, false] {
            let folder = with_data(names[0]);
            let mut args = vec!["embed", "m.onnx", "m.onnx", "--json"];
            args.extend(option);
            args.extend(dry_run.then_some("--dry-run"));
            let json = folder.run(&args).done().json();
            let count = |key: &str| json[key].as_array().unwrap().len();
            assert_eq!(count("left_behind"), left.len(), "{args:?} {names:?}");
            assert_eq!(count("removed"), names.len() - left.len(), "{args:?} {names:?}");
            let there = if dry_run { names } else { left };
            assert_eq!(folder.names(), [&["m.onnx"], there].concat(), "{args:?} {names:?}");
        }
    }
    // What another model needs stays, and is told.
    for dry_run in [true, false] {
        let folder = with_data("m.onnx_data");
        fs::copy(folder.path("m.onnx"), folder.path("n.onnx")).unwrap();
        let run = |args: &[&str]| {
            let option = dry_run.then_some("--dry-run");
            folder.run(&args.iter().copied().chain(option).collect::<Vec<_>>()).done()
        };
        let json = run(&["pack", "n.onnx", "m.onnx", "--data-name", "d", "--json"]).json();
        assert_eq!(json["still_needed"][0]["path"], "m.onnx_data");
        assert_eq!(json["still_needed"][0]["needed_by"], serde_json::json!(["n.onnx"]));
        fs::copy(folder.path("n.onnx"), folder.path("m.onnx")).unwrap();
        run(&["embed", "m.onnx", "m.onnx"]).says(&[
            "stays     m.onnx_data: needed by `n.onnx`; share stores the weights of several models once",
        ]);
        assert!(folder.path("m.onnx_data").exists());
    }
    let folder = with_data("m.onnx_data");
    folder
        .run(&["embed", "m.onnx", "m.onnx", "--delete-old", "--keep-old"])
        .misused(&["--keep-old"]);
}

#[cfg(unix)]
#[test]
fn an_old_file_that_another_folder_links_to_stays() {
    for command in
        [&["embed", "in/m.onnx", "m.onnx", "--delete-old"][..], &["cp", "in/n.onnx", "m.onnx"]]
    {
        let folder = Folder::with_model();
        fs::create_dir(folder.path("in")).unwrap();
        folder.run(&["pack", "m.onnx", "m.onnx", "--data-name", "m.onnx_data"]).done();
        for name in ["in/m.onnx", "in/n.onnx"] {
            fs::copy(folder.path("m.onnx"), folder.path(name)).unwrap();
        }
        let linked = "in/m.onnx_data";
        std::os::unix::fs::symlink("../m.onnx_data", folder.path(linked)).unwrap();
        let before = fs::read(folder.path(linked)).unwrap();
        let run = folder.run(&[command, &["--paths", "trusted"]].concat());
        assert!(run.code() == 0 || command[0] == "cp", "{run:?}");
        assert!(fs::read(folder.path(linked)).unwrap() == before, "{run:?}");
    }
}

/// Packing a packed model in place changes nothing, and neither does embedding a whole one.
#[test]
fn what_is_there_as_it_would_be_written_is_not_written_again() {
    let folder = Folder::packed();
    folder.run(&["embed", "p.onnx", "e.onnx"]).done();
    let said = "wrote     nothing: what would be written is there: ";
    for (args, model) in
        [(["pack", "p.onnx", "p.onnx"], "p.onnx"), (["embed", "e.onnx", "e.onnx"], "e.onnx")]
    {
        let modified = || fs::metadata(folder.path(model)).unwrap().modified().unwrap();
        let before = modified();
        folder.run(&args).done().says(&[said]);
        let json = folder.run(&[&args[..], &["--json"]].concat()).done().json();
        assert_eq!(json["unchanged"], true, "{json}");
        folder.run(&[&args[..], &["--dry-run"]].concat()).done().says(&["writes    nothing: "]);
        folder.run(&[&args[..], &["--verify"]].concat()).done().says(&["verified"]);
        assert_eq!(modified(), before, "{args:?}");
    }
    let json = folder.run(&["pack", "p.onnx", "q.onnx", "--json"]).done().json();
    assert_eq!(json["unchanged"], false);
}
