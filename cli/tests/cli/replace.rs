//! `replace`.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto, TensorProto};

use crate::npy::{folder, named, npy, tied, vector};
use crate::support::{Folder, floats, model, tensors};

/// The first element of each tensor of the model.
fn firsts(folder: &Folder, name: &str) -> Vec<f32> {
    let first = |bytes: &[u8]| f32::from_le_bytes(bytes[..4].try_into().unwrap());
    tensors(&folder.path(name)).iter().map(|(_, _, bytes)| first(bytes)).collect()
}

#[test]
fn inline_tensors_stay_inline_and_external_ones_external() {
    let folder = folder();
    fs::write(folder.path("w.npy"), vector(&[5.0; 1000])).unwrap();
    for (model, files, how) in
        [("m.onnx", "wrote     1 file", "inline"), ("p.onnx", "wrote     2 files", "external")]
    {
        for (flags, files) in [
            (&[][..], files),
            (&["--no-mmap"], files),
            (&["--split"], if how == "inline" { files } else { "wrote     5 files" }),
        ] {
            // What is there already is not written again.
            for name in folder.names().iter().filter(|name| name.starts_with("out")) {
                fs::remove_file(folder.path(name)).unwrap();
            }
            let args = [&["replace", model, "w", "w.npy", "-o", "out.onnx"][..], flags].concat();
            let what = format!("replaced  w: FLOAT [1000] (4.0 kB, {how}) by w.npy");
            folder.run(&args).done().says(&[&what, files]);
            let mut expected = tensors(&folder.path(model));
            expected[0].2 = 5.0_f32.to_le_bytes().repeat(1000);
            assert_eq!(tensors(&folder.path("out.onnx")), expected, "{args:?}");
        }
    }
}

#[test]
fn every_format_that_is_extracted_can_be_read_back() {
    let folder = folder();
    for file in ["w.npy", "w.raw", "w.bin", "w.pb", "w.safetensors"] {
        folder.run(&["extract", "p.onnx", "w", "-o", file]).done();
        let args = ["replace", "m.onnx", "z.then_branch/inner", file, "-o", "out.onnx"];
        folder.run(&args).failed(&["tensor `z.then_branch/inner`", file, "600"]);
        let run = folder.run(&["replace", "p.onnx", "w", file, "-o", "out.onnx", "--json"]).done();
        assert_eq!(
            (&run.json()["inline"], &run.json()["tensor_bytes"]),
            (&false.into(), &4000.into())
        );
        assert_eq!(tensors(&folder.path("out.onnx")), tensors(&folder.path("p.onnx")), "{file}");
    }
}

#[test]
fn the_model_may_be_replaced_by_itself() {
    let folder = folder();
    fs::write(folder.path("small.npy"), vector(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    for model in ["m.onnx", "p.onnx"] {
        folder.run(&["replace", model, "small", "small.npy", "-o", model]).done();
        let after = tensors(&folder.path(model));
        let small = after.iter().find(|(name, _, _)| name == "small").unwrap();
        assert_eq!(small.2, [1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
        folder.run(&["check", model]).done();
    }
}

#[test]
fn weights_stay_as_they_are_when_an_inline_tensor_is_replaced() {
    let folder = folder();
    fs::write(folder.path("small.npy"), vector(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let data = folder.path("p.onnx.data");
    let state = || (fs::metadata(&data).unwrap().modified().unwrap(), fs::read(&data).unwrap());
    let before = state();
    let args = ["replace", "p.onnx", "small", "small.npy", "-o", "p.onnx"];
    folder.run(&args).done().says(&["wrote     1 file", "kept      1 file", "p.onnx.data"]);
    let report = folder.run(&[&args[..], &["--json"]].concat()).done().json();
    let file = &report["kept_files"][0];
    assert_eq!((&file["path"], &file["bytes"]), (&"p.onnx.data".into(), &before.1.len().into()));
    assert_eq!(state(), before);
    // An alignment that the file does not have, and the command that is about placement.
    let aligned = folder.run(&[&args[..], &["--align", "64K", "--json"]].concat()).done().json();
    assert_eq!(aligned["kept_files"], serde_json::json!([]));
    let packed = folder.run(&["pack", "p.onnx", "p.onnx", "--json"]).done().json();
    assert_eq!(
        (&packed["kept_files"], packed["files"].as_array().unwrap().len()),
        (&serde_json::json!([]), 2)
    );
    assert_eq!(fs::read(&data).unwrap(), before.1);
    assert_ne!(state().0, before.0);
}

/// The weights of the model lie in four files: none of them is written for a tensor of 16 bytes.
#[test]
fn files_of_a_tensor_each_stay_when_an_inline_tensor_is_replaced() {
    let folder = Folder::with_model();
    folder.run(&["split", "m.onnx", "s.onnx"]).done();
    fs::write(folder.path("small.npy"), vector(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let before = folder.names();
    for flags in [&[][..], &["--no-mmap"]] {
        // What was just written may be written again within one tick of the clock.
        let args = [&["replace", "s.onnx", "small", "small.npy", "-o", "s.onnx"], flags].concat();
        let run = folder.run(&args).done();
        if flags.is_empty() {
            run.says(&["wrote     1 file", "kept      4 files of weights"]);
            assert_eq!(folder.names(), before);
        }
    }
    folder.run(&["check", "s.onnx"]).done();
    let values = tensors(&folder.path("s.onnx"));
    let small = values.iter().find(|(name, _, _)| name == "small").unwrap();
    assert_eq!(small.2, [1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat());
}

#[test]
fn a_dry_run_and_no_clobber_leave_everything() {
    let folder = folder();
    fs::write(folder.path("w.npy"), vector(&[5.0; 1000])).unwrap();
    let before = folder.contents();
    let args = ["replace", "p.onnx", "w", "w.npy", "-o"];
    let run = folder.run(&[&args[..], &["out.onnx", "--dry-run"]].concat()).done();
    run.says(&["replaces  w", "writes    2 files", "out.onnx.data", "nothing was written"]);
    folder.run(&[&args[..], &["p.onnx", "--no-clobber"]].concat()).failed(&["exists already"]);
    assert_eq!(folder.contents(), before);
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let folder = folder();
    let header = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}")
    };
    let plain = |shape: &str| header("'<f4'", "False", shape);
    let deep = format!("{}1{}", "(".repeat(5000), ",)".repeat(2400));
    let with_len = |len: u32| [&b"\x93NUMPY\x02\x00"[..], &len.to_le_bytes(), b"{}"].concat();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("small", npy(&plain("(5,)"), &[0; 20]), "dims are [4], those of the new elements [5]"),
        ("small", npy(&plain("(2, 2)"), &[0; 16]), "those of the new elements [2, 2]"),
        ("small", npy(&plain("()"), &[0; 4]), "those of the new elements []"),
        ("small", npy(&plain("(4,)"), &[0; 15]), "needs 16 bytes, the npy file has 15"),
        ("small", npy(&plain("(4,)"), &[0; 17]), "needs 16 bytes, the npy file has 17"),
        ("small", npy(&plain("(4611686018427387904, 4)"), &[]), "2^63"),
        ("small", npy(&plain("(4611686018427387904,)"), &[]), "a huge shape"),
        ("small", npy(&plain("(99999999999999999999999,)"), &[]), "illegal value"),
        ("small", npy(&plain("(-4,)"), &[]), "illegal value"),
        ("small", npy(&plain(&format!("({})", "1,".repeat(65))), &[0; 4]), "65 dimensions"),
        ("small", npy(&plain("(1.5,)"), &[]), "illegal value"),
        (
            "small",
            npy(&header("'<f8'", "False", "(4,)"), &[0; 32]),
            "`<f8` (DOUBLE), FLOAT elements are `f4`",
        ),
        ("small", npy(&header("'<V4'", "False", "(4,)"), &[0; 16]), "`<V4`"),
        ("small", npy(&header("'|O'", "False", "(4,)"), &[0; 16]), "`|O` (pickled Python objects"),
        ("small", npy(&header("'=f4'", "False", "(4,)"), &[0; 16]), "`=f4`"),
        ("small", npy(&header("''", "False", "(4,)"), &[0; 16]), "``"),
        ("small", npy(&header("[('a', '<f4')]", "False", "(4,)"), &[0; 16]), "structured"),
        ("small", npy(&header("'<f4'", "0", "(4,)"), &[0; 16]), "illegal value"),
        ("small", npy("{'descr': '<f4', 'shape': (4,)}", &[0; 16]), "missing"),
        ("small", npy("[1]", &[0; 16]), "not a dict"),
        ("small", npy(&plain(&deep), &[]), "nested"),
        ("small", with_len(3), "ends within its header"),
        ("small", with_len(u32::MAX), "a header of 4294967295 bytes"),
        ("small", b"\x93NUMPY\x01\x00\x02".to_vec(), "ends within its header"),
        ("small", b"\x93NUMPY\x09\x00\x02\x00\x00\x00{}".to_vec(), "version"),
        ("small", b"PK\x03\x04 an npz file".to_vec(), "does not begin with the npy magic number"),
        ("small", Vec::new(), "does not begin with the npy magic number"),
    ];
    let before = (folder.names(), tensors(&folder.path("m.onnx")));
    for (name, bytes, reason) in cases {
        fs::write(folder.path("bad.npy"), &bytes).unwrap();
        let args = ["replace", "m.onnx", name, "bad.npy", "-o", "m.onnx"];
        folder.run(&args).failed(&["bad.npy", &format!("tensor `{name}`"), reason]);
        fs::remove_file(folder.path("bad.npy")).unwrap();
        assert_eq!((folder.names(), tensors(&folder.path("m.onnx"))), before, "{reason}");
    }
    let args = ["replace", "m.onnx", "small", "w.txt", "-o", "out.onnx"];
    folder.run(&args).misused(&["w.txt", "--format"]);
    for (file, bytes, reason) in [("w.raw", &[0; 15][..], "16"), ("w.pb", b"\xff", "byte")] {
        fs::write(folder.path(file), bytes).unwrap();
        folder.run(&["replace", "m.onnx", "small", file, "-o", "out.onnx"]).failed(&[file, reason]);
    }
    let args = ["replace", "m.onnx", "small", "absent.npy", "-o", "out.onnx"];
    folder.run(&args).failed(&["absent.npy"]);
}

#[test]
fn bytes_that_are_not_valid_elements_are_refused() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("main");
    let flags = TensorProto::new("flags", TensorProto::BOOL, [2]).with_raw_data(&[0, 1][..]);
    let codes = TensorProto::new("codes", TensorProto::UINT4, [3]).with_raw_data(&[0x21, 3][..]);
    let signed = TensorProto::new("signed", TensorProto::INT4, [3]).with_raw_data(&[0x21, 3][..]);
    graph.initializer = vec![flags, codes, floats("f", 2), signed];
    folder.save("m.onnx", &ModelProto::new(graph).with_operator_set("", 21));
    let header = |code: &str, shape: &str| {
        format!("{{'descr': '|{code}', 'fortran_order': False, 'shape': {shape}, }}")
    };
    let cases = [
        ("flags", "b1", "(2,)", &[0, 2][..], &[][..], "neither 0 nor 1"),
        ("codes", "u1", "(3,)", &[1, 2, 3], &[], "--codes"),
        ("codes", "u1", "(3,)", &[1, 16, 3], &["--codes"], "code 1 has more than the 4 bits"),
        ("codes", "i1", "(3,)", &[1, 2, 3], &["--codes"], "UINT4 elements are `u1`"),
        ("signed", "u1", "(3,)", &[1, 16, 3], &["--codes"], "code 1 has more than the 4 bits"),
        ("signed", "i1", "(3,)", &[1, 9, 3], &["--codes"], "element 1 is 9: INT4 has the numbers"),
        ("f", "u1", "(2,)", &[1, 2], &["--codes"], "FLOAT elements are `f4`"),
    ];
    for (name, code, shape, elements, flags, reason) in cases {
        fs::write(folder.path("w.npy"), npy(&header(code, shape), elements)).unwrap();
        let args = [&["replace", "m.onnx", name, "w.npy", "-o", "out.onnx"], flags].concat();
        folder.run(&args).failed(&["w.npy", reason]);
    }
    fs::write(folder.path("w.npy"), npy(&header("u1", "(3,)"), &[1, 15, 3])).unwrap();
    folder.run(&["replace", "m.onnx", "codes", "w.npy", "-o", "out.onnx", "--codes"]).done();
    assert_eq!(tensors(&folder.path("out.onnx"))[1].2, [0xf1, 3]);
    folder
        .run(&["extract", "out.onnx", "codes", "-o", "again.npy"])
        .failed(&["npy has no type UINT4", "--codes"]);
    folder.run(&["extract", "out.onnx", "codes", "-o", "again.npy", "--codes"]).done();
    assert!(fs::read(folder.path("again.npy")).unwrap().ends_with(&[b'\n', 1, 15, 3]));
    for (code, elements) in [("u1", [1, 9, 3]), ("i1", [1, 0xf9, 3]), ("V1", [1, 0xf9, 3])] {
        fs::write(folder.path("w.npy"), npy(&header(code, "(3,)"), &elements)).unwrap();
        folder.run(&["replace", "m.onnx", "signed", "w.npy", "-o", "out.onnx", "--codes"]).done();
        assert_eq!(tensors(&folder.path("out.onnx"))[3].2, [0x91, 3], "{code}");
    }
}

#[test]
fn tied_weights_change_only_as_the_option_says() {
    let folder = tied();
    let args = ["replace", "t.onnx", "a", "nines.npy", "-o", "out.onnx"];
    let run = folder.run(&args).failed(&[
        "tensor `a`: it is tied",
        "`b`, `c`",
        "--tied all",
        "--tied this",
    ]);
    assert!(!run.stderr().contains("problems"));
    folder.run(&[&args[..], &["--tied", "all"]].concat()).failed(&["only a part", "`c`"]);
    assert_eq!(folder.names(), ["nines.npy", "t.onnx", "w.data"]);
    let run = folder.run(&[&args[..], &["--tied", "this"]].concat()).done();
    run.says(&["replaced  a", "tied      b: not replaced", "tied      c: not replaced"]);
    assert_eq!(firsts(&folder, "out.onnx"), [9.0, 0.0, 0.0]);

    // Without the part, all can be replaced, and stay tied.
    let mut graph = GraphProto::new("tied");
    for name in ["a", "b"] {
        graph.initializer.push(TensorProto::external(name, TensorProto::FLOAT, [512], "w.data"));
    }
    folder.save("t.onnx", &ModelProto::new(graph).with_operator_set("", 21));
    let run = folder.run(&[&args[..], &["--tied", "all", "--json"]].concat()).done();
    assert_eq!((&run.json()["tied"][0], &run.json()["tied_replaced"]), (&"b".into(), &true.into()));
    assert_eq!(firsts(&folder, "out.onnx"), [9.0, 9.0]);
    assert_eq!(folder.path("out.onnx.data").metadata().unwrap().len(), 2048);
}

#[test]
fn ambiguous_names_are_listed() {
    let folder = folder();
    let mut model = model();
    model.graph.as_mut().unwrap().initializer.push(floats("w", 3));
    folder.save("m.onnx", &model);
    let texts = ["tensor `w`: 2 tensors have this name: `w[0]` (FLOAT [1000]), `w[1]` (FLOAT [3])"];
    folder.run(&["extract", "m.onnx", "w", "-o", "w.npy"]).failed(&texts);
    folder.run(&["extract", "m.onnx", "w[1]", "-o", "w.npy"]).done();
    folder.run(&["replace", "m.onnx", "w", "w.npy", "-o", "out.onnx"]).failed(&texts);
    folder.run(&["replace", "m.onnx", "w[1]", "w.npy", "-o", "out.onnx"]).done();
}

#[test]
fn a_name_can_be_given_as_it_is_shown() {
    let folder = Folder::new();
    let names = ["two\nlines", "back\\slash", "with space", "ü\u{1b}[2J"];
    folder.save("m.onnx", &named(&names));
    let shown: Vec<_> = ["two\\nlines", "back\\\\slash", "with space", "ü\\u{1b}[2J"].into();
    let listed = folder.run(&["inspect", "m.onnx"]).done();
    let listed = std::str::from_utf8(listed.bytes()).unwrap();
    fs::write(folder.path("names"), shown.join("\n") + "\n").unwrap();
    let run = folder.run(&["extract", "m.onnx", "--names-from", "names", "-o", "out/"]).done();
    assert_eq!(run.stdout().lines().count(), names.len());
    for (shown, name) in shown.iter().zip(names) {
        assert!(listed.contains(&format!("  {shown}  ")), "{shown} in {listed}");
        for given in [shown, name] {
            folder.run(&["extract", "m.onnx", given, "-o", "one.raw"]).done();
            let args = ["replace", "m.onnx", given, "one.raw", "-o", "o.onnx", "--json"];
            let run = folder.run(&args).done();
            let json: serde_json::Value = serde_json::from_slice(run.bytes()).unwrap();
            assert_eq!(json["tensor"], name);
        }
    }
    let run = folder.run(&["extract", "m.onnx", "two\nlinse", "-o", "one.raw"]);
    run.failed(&["did you mean `two\\nlines`?"]);
    fs::write(folder.path("none"), "\n").unwrap();
    folder.run(&["extract", "m.onnx", "--names-from", "none", "-o", "o/"]).failed(&["no names"]);
    folder
        .run(&["extract", "m.onnx", "w", "--names-from", "none", "-o", "o/"])
        .misused(&["cannot be"]);
}
