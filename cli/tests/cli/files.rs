//! `files MODEL`.

use std::fs;
use std::process::Command;

use crate::support::{Folder, external, tensors};

#[test]
fn the_list_is_exact() {
    let folder = Folder::with_model();
    folder.run(&["split", "m.onnx", "s.onnx"]).done();
    let run = folder.run(&["files", "s.onnx"]).done();
    let expected = "s.onnx\ns-w.weight\ns-typed.weight\ns-c.weight\ns-inner.weight\n";
    assert_eq!(run.stdout(), expected);
    let run = folder.run(&["files", "s.onnx", "-0"]).done();
    assert_eq!(run.bytes(), expected.replace('\n', "\0").as_bytes());
    assert_eq!(folder.run(&["files", "m.onnx"]).done().stdout(), "m.onnx\n");
}

#[cfg(unix)]
#[test]
fn a_script_can_copy_a_model() {
    let folder = Folder::packed();
    let away = Folder::new();
    let model = folder.path("p.onnx");
    let list = away.run(&["files", model.to_str().unwrap()]).done().stdout();
    let copied = Command::new("cp").args(list.lines()).arg(away.path("")).status().unwrap();
    assert!(copied.success());
    assert_eq!(tensors(&away.path("p.onnx")), tensors(&model));
}

#[test]
fn every_missing_file_is_named_and_listed() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["a.bin", "sub/b.bin", "c.bin", "./a.bin"]));
    fs::write(folder.path("c.bin"), [0; 16]).unwrap();
    let run = folder.run(&["files", "m.onnx"]).failed(&["2 problems", "`a.bin`", "`sub/b.bin`"]);
    assert_eq!(run.stdout(), "m.onnx\na.bin\nsub/b.bin\nc.bin\n");
    let list = folder.run(&["files", "m.onnx", "--json"]).failed(&["a.bin"]).json();
    assert_eq!(list["files"][0]["state"], "missing");
    assert_eq!(list["files"][2]["bytes"], 16);
}

#[test]
fn a_file_that_is_cut_off_is_a_failure() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["a.bin", "b.bin"]));
    fs::write(folder.path("a.bin"), [0; 16]).unwrap();
    fs::write(folder.path("b.bin"), [0; 3]).unwrap();
    let run =
        folder.run(&["files", "m.onnx"]).failed(&["`b.bin`", "cut off: 3 bytes, its tensors need"]);
    assert_eq!(run.stdout(), "m.onnx\na.bin\nb.bin\n");
    let list = folder.run(&["files", "m.onnx", "--json"]).failed(&["cut off"]).json();
    assert_eq!(
        (&list["files"][1]["state"], &list["error"]["kind"]),
        (&"cut_off".into(), &"OutOfBounds".into())
    );
}

#[test]
fn of_very_many_files_that_cannot_be_used_the_first_have_a_reason_of_their_own() {
    let folder = Folder::new();
    let names: Vec<_> = (0..10_002)
        .map(|i| if i == 10_001 { "../up".to_owned() } else { format!("{i}.bin") })
        .collect();
    folder.save("m.onnx", &external(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    let list = folder.run(&["files", "m.onnx", "--json"]).failed(&["10002 problems"]).json();
    let said = |i: usize| (list["files"][i]["state"].clone(), list["files"][i]["reason"].clone());
    let own = "no such file";
    let shared = "one of more than 10000 files that cannot be used";
    for (i, state, reason) in [
        (0, "missing", own),
        (9_999, "missing", own),
        (10_000, "missing", shared),
        (10_001, "refused", shared),
    ] {
        assert_eq!(said(i), (state.into(), reason.into()), "{i}");
    }
}

#[test]
fn locations_outside_the_folder_are_not_listed() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["../up.bin", "/etc/passwd", "#handle"]));
    let texts = ["3 problems", "../up.bin", "/etc/passwd", "#handle"];
    assert_eq!(folder.run(&["files", "m.onnx"]).failed(&texts).stdout(), "m.onnx\n");
}

#[cfg(unix)]
#[test]
fn names_do_not_mislead_scripts() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["-rf", "two\nlines"]));
    for name in ["-rf", "two\nlines"] {
        fs::write(folder.path(name), [0; 16]).unwrap();
    }
    let run = folder.run(&["files", "m.onnx"]).failed(&["--null"]);
    assert_eq!(run.stdout(), "");
    let run = folder.run(&["files", "m.onnx", "--null"]).done();
    assert_eq!(run.bytes(), b"m.onnx\0./-rf\0two\nlines\0");
}

#[test]
fn other_models_that_need_a_file_are_named() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    folder.save("sub/a.onnx", &external(&["shared", "own", "deep/x"]));
    folder.save("sub/b.onnx", &external(&["./shared", "shared"]));
    folder.save("sub/notes.txt", &external(&["deep/x"]));
    folder.save("c.onnx", &external(&["sub/shared"]));
    fs::create_dir(folder.path("sub/deep")).unwrap();
    for name in ["shared", "own", "deep/x"] {
        fs::write(folder.path("sub").join(name), [0; 16]).unwrap();
    }
    let run = folder.run(&["files", "sub/a.onnx"]);
    assert_eq!(run.stdout(), "sub/a.onnx\nsub/shared\nsub/own\nsub/deep/x\n");
    assert_eq!(run.code(), 0);
    let notes = run.stderr();
    assert_eq!(notes.lines().count(), 2, "{notes}");
    assert!(notes.contains("note: `sub/shared` is also needed by `sub/b.onnx`, "), "{notes}");
    assert!(notes.contains("c.onnx`"), "{notes}");
    assert!(notes.contains("`sub/deep/x` is also needed by "), "{notes}");
    let json = folder.run(&["files", "sub/a.onnx", "--json"]).done().json();
    let counts: Vec<_> = json["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["also_needed_by"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [2, 0, 1]);
}
