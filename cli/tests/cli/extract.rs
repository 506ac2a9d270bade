//! `extract`.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto};

use crate::npy::{folder, named, tied};
use crate::support::{Folder, floats, tensors};

#[test]
fn a_tensor_is_extracted_wherever_it_is_stored() {
    let folder = folder();
    for model in ["m.onnx", "p.onnx"] {
        for (name, count, first) in
            [("w", 1000, 0), ("typed", 300, 0), ("k", 400, 0), ("z.then_branch/inner", 600, 0)]
        {
            for flags in [&[][..], &["--no-mmap", "--no-sync"]] {
                let args = [&["extract", model, name, "-o", "out.npy"][..], flags].concat();
                let dims = format!("out.npy: {name}, FLOAT [{count}]");
                folder.run(&args).done().says(&["wrote     ", &dims]);
                let values: Vec<f32> = (first..first + count).map(|i| i as f32).collect();
                let written = fs::read(folder.path("out.npy")).unwrap();
                let (header, elements) = written.split_at(written.len() - 4 * values.len());
                assert!(header.starts_with(b"\x93NUMPY\x01\x00") && header.len() % 64 == 0);
                assert_eq!(
                    elements,
                    values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()
                );
                fs::remove_file(folder.path("out.npy")).unwrap();
            }
        }
    }
    assert_eq!(folder.names(), ["m.onnx", "p.onnx", "p.onnx.data"]);
}

#[test]
fn patterns_are_all_tensors_that_match() {
    let folder = folder();
    let run = folder.run(&["extract", "p.onnx", "*inner", "t?ped", "-o", "new/"]).done();
    run.says(&["z.then_branch/inner, FLOAT [600]", "typed, FLOAT [300]"]);
    assert_eq!(fs::read_dir(folder.path("new")).unwrap().count(), 2);
    folder.run(&["extract", "p.onnx", "none*", "-o", "new/"]).failed(&["`none*`: no such tensor"]);
    folder.run(&["extract", "p.onnx", "*inner", "t*", "-o", "t.npy"]).misused(&["only one tensor"]);
    // Of several patterns and names each tensor is one file.
    let run = folder.run(&["extract", "p.onnx", "t?ped", "ty*", "typed", "-o", "once/"]).done();
    run.says(&["typed, FLOAT [300]"]);
    assert_eq!(fs::read_dir(folder.path("once")).unwrap().count(), 1);
    folder.run(&["extract", "p.onnx", "t?ped", "ty*", "-o", "t.npy"]).done();
}

/// A name may look like a pattern.
#[test]
fn a_tensor_that_is_called_like_a_pattern_is_that_tensor() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    graph.initializer =
        vec![floats("w?", 4), floats("w1", 5), floats("w*", 6), floats("l[1].w", 7)];
    folder.save("m.onnx", &ModelProto::new(graph));
    for (name, said) in [
        ("w?", "w?, FLOAT [4]"),
        ("w*", "w*, FLOAT [6]"),
        ("?1", "w1, FLOAT [5]"),
        ("l[1].*", "l[1].w, FLOAT [7]"),
    ] {
        folder.run(&["extract", "m.onnx", name, "-o", "w.npy"]).done().says(&[said]);
        folder.run(&["extract", "m.onnx", name, "-o", "-"]).done();
    }
    folder.run(&["extract", "m.onnx", "w[1?]", "-o", "w.npy"]).failed(&["`w[1?]`: no such tensor"]);
    folder.run(&["extract", "m.onnx", "w*", "w?", "?*", "-o", "all/"]).done();
    assert_eq!(fs::read_dir(folder.path("all")).unwrap().count(), 4);
}

#[test]
fn several_tensors_go_to_a_directory() {
    let folder = folder();
    let args = ["extract", "p.onnx", "w", "z.then_branch/inner", "local::f/k", "w", "-o"];
    let run = folder.run(&[&args[..], &["new/deep/", "--json"]].concat()).done();
    let report = run.json();
    let paths: Vec<_> =
        report["tensors"].as_array().unwrap().iter().map(|t| t["path"].as_str().unwrap()).collect();
    let names = ["w.npy", "z.then_branch_inner.npy", "local__f_k.npy"];
    assert_eq!(paths, names.map(|name| format!("new/deep/{name}")));
    assert_eq!(
        (&report["tensors"][1]["dtype"], &report["tensors"][1]["shape"][0]),
        (&"FLOAT".into(), &600.into())
    );
    folder.run(&[&args[..], &["new/deep", "--format", "raw"]].concat()).done();
    assert_eq!(fs::read(folder.path("new/deep/w.raw")).unwrap().len(), 4000);
    assert_eq!(fs::read_dir(folder.path("new/deep")).unwrap().count(), 6);
}

#[test]
fn a_tensor_can_be_written_to_standard_output() {
    let folder = folder();
    for format in ["npy", "raw", "pb"] {
        let file = format!("w.{format}");
        folder.run(&["extract", "p.onnx", "w", "-o", &file]).done();
        let run = folder.run(&["extract", "p.onnx", "w", "-o", "-", "--format", format]).done();
        assert_eq!(run.bytes(), fs::read(folder.path(&file)).unwrap(), "{format}");
    }
    let run = folder.run(&["extract", "p.onnx", "w", "-o", "-"]).done();
    assert_eq!(run.bytes(), fs::read(folder.path("w.npy")).unwrap());
}

#[test]
fn an_extract_that_is_refused_writes_nothing() {
    let folder = folder();
    fs::write(folder.path("there.npy"), "mine").unwrap();
    folder.run(&["pack", "p.onnx", "other.onnx"]).done();
    let before = folder.contents();
    let misused: &[(&[&str], &[&str])] = &[
        (&["w", "-o", "w.txt"], &["the suffix of `w.txt`", "--format"]),
        (&["w", "-o", "w"], &["--format"]),
        (&["w", "typed", "-o", "w.npy"], &["only one tensor can be written to this file", "DIR/"]),
        (&["w", "typed", "-o", "-"], &["only one tensor can be written to standard output"]),
        (&["w", "-o", "-", "--json"], &["not both"]),
        (&["w", "-o", "w.raw", "--codes"], &["--codes is for npy"]),
        (&["w", "-o", "-", "--format", "safetensors"], &["-o NAME.safetensors"]),
        (&["w", "-o", "d/", "--format", "safetensors"], &["-o NAME.safetensors"]),
    ];
    for (args, texts) in misused {
        let args = [&["extract", "p.onnx"], *args].concat();
        folder.run(&args).misused(texts);
        assert_eq!(folder.contents(), before, "{args:?}");
    }
    let cases: &[(&[&str], &[&str])] = &[
        (&["w", "-o", "w.npy", "--format", "safetensors"], &["w.npy", ".safetensors"]),
        (
            &["wieghts", "smal", "-o", "d/"],
            &["2 problems", "`wieghts`: no such tensor", "did you mean `small`?"],
        ),
        (&["w", "-o", "there.npy", "--no-clobber"], &["there.npy", "exists already"]),
        (&["w", "-o", "p.onnx", "--format", "raw"], &["p.onnx", "belongs to the model or is read"]),
        (
            &["w", "-o", "./p.onnx.data", "--format", "raw"],
            &["p.onnx.data", "belongs to the model or is read"],
        ),
        (
            &["w", "-o", "other.onnx.data", "--format", "raw"],
            &["other.onnx.data", "other.onnx` refers to this file"],
        ),
        (
            &["w", "-o", "other.onnx", "--format", "raw"],
            &["other.onnx", "a model: it is not replaced"],
        ),
        (&["w", "-o", "no/such/w.npy"], &["`no/such`: no such folder"]),
    ];
    for (args, texts) in cases {
        let args = [&["extract", "p.onnx"], *args].concat();
        folder.run(&args).failed(texts);
        assert_eq!(folder.contents(), before, "{args:?}");
    }
    folder.run(&["extract", "p.onnx", "w", "-o", "there.npy"]).done();
}

#[cfg(unix)]
#[test]
fn a_file_has_the_mode_of_a_new_one_and_devices_stay() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    folder.run(&["extract", "p.onnx", "w", "-o", "w.npy"]).done();
    let fresh = fs::File::create(folder.path("fresh")).unwrap();
    let mode = |meta: fs::Metadata| meta.permissions().mode();
    let extracted = folder.path("w.npy").metadata().unwrap();
    assert_eq!(mode(extracted), mode(fresh.metadata().unwrap()));
    std::os::unix::fs::symlink("/dev/null", folder.path("null.npy")).unwrap();
    for device in ["/dev/null", "null.npy"] {
        let args = ["extract", "p.onnx", "w", "-o", device, "--format", "npy"];
        folder.run(&args).failed(&[device, "not a regular file"]);
    }
}

#[test]
fn several_tensors_are_extracted_to_one_safetensors_file() {
    let folder = folder();
    let names = ["small", "z.then_branch/inner", "local::f/k", "w"];
    let args = [&["extract", "m.onnx"][..], &names, &["-o", "w.safetensors"]].concat();
    folder.run(&args).done().says(&["w.safetensors: local::f/k, FLOAT [400] (1.6 kB)"]);
    folder.run(&[&args[..], &["--no-clobber"]].concat()).failed(&["exists already"]);
    let before = tensors(&folder.path("p.onnx"));
    for name in names {
        for (out, flag) in
            [("a.onnx", "--no-sync"), ("a.onnx", "--no-mmap"), ("st.onnx", "--safetensors")]
        {
            let args = ["replace", "p.onnx", name, "w.safetensors", "-o", out, flag];
            folder.run(&args).done().says(&[name]);
            assert_eq!(tensors(&folder.path(out)), before, "{args:?}");
            // The next model may keep all weights where they are: nobody refers to these files
            // then.
            for left in [out, "a.onnx.data", "st.safetensors"] {
                let _ = fs::remove_file(folder.path(left));
            }
        }
    }
    let args = ["replace", "p.onnx", "typed", "w.safetensors", "-o", "out.onnx"];
    folder.run(&args).failed(&["`typed`", "w.safetensors", "no such entry", "small"]);
    // The only entry needs no name, and has to fit all the same.
    folder.run(&["extract", "m.onnx", "small", "-o", "one.safetensors"]).done();
    let args = ["replace", "p.onnx", "typed", "one.safetensors", "-o", "out.onnx"];
    folder.run(&args).failed(&["dims are [300]", "[4]"]);
    fs::write(folder.path("bad.safetensors"), [0xff; 9]).unwrap();
    let args = ["replace", "p.onnx", "w", "bad.safetensors", "-o", "out.onnx"];
    folder.run(&args).failed(&["bad.safetensors"]);
}

#[test]
fn tied_tensors_have_one_entry_and_come_back_by_either_name() {
    let folder = tied();
    let run = folder.run(&["extract", "t.onnx", "a", "b", "-o", "ab.safetensors"]).done();
    run.says(&["tied      b: its bytes are those of a"]);
    for name in ["a", "b"] {
        let args = ["replace", "t.onnx", name, "ab.safetensors", "-o", "out.onnx"];
        folder.run(&[&args[..], &["--tied", "this"]].concat()).done();
    }
}

#[cfg(unix)]
#[test]
fn more_tensors_are_written_than_files_may_be_open() {
    let folder = Folder::new();
    let names: Vec<_> = (0..200).map(|i| format!("w{i}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    folder.save("m.onnx", &named(&names));
    fs::write(folder.path("names"), names.join("\n")).unwrap();
    fs::create_dir(folder.path("split")).unwrap();
    let split = ["split", "m.onnx", "split/m.onnx", "--min-bytes=0"];
    for (command, written, count) in [
        (
            &["extract", "m.onnx", "--names-from", "names", "-o", "out/", "--no-sync"][..],
            "out",
            200,
        ),
        (&split, "split", 201),
        (&["split", "split/m.onnx", "split/again.onnx"], "split", 402),
    ] {
        let command = folder.command(command);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -n 32; exec \"$0\" \"$@\""]).current_dir(folder.path(""));
        let output = shell.arg(command.get_program()).args(command.get_args()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_dir(folder.path(written)).unwrap().count(), count);
    }
}
