//! What an interrupted save left is named by every command that reads the model.

use std::fs;

use crate::support::{Folder, Run};

/// Leaves what a killed save leaves: `p.onnx` and its weights are staged and not renamed.
pub fn interrupt(folder: &Folder) -> &'static str {
    let name = ".p.onnx.saving-aB3xYz";
    for part in ["old", "new"] {
        fs::create_dir_all(folder.path(name).join(part)).unwrap();
    }
    for file in FILES {
        fs::copy(folder.path(file), folder.path(name).join("new").join(file)).unwrap();
    }
    name
}

const FILES: [&str; 2] = ["p.onnx.data", "p.onnx"];

/// Leaves what a save leaves that was killed when it had moved the old model away.
pub fn interrupt_switch(folder: &Folder) {
    let staging = interrupt(folder);
    let mark = |path: std::path::PathBuf| {
        let metadata = path.metadata().unwrap();
        let modified = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        format!("{} {}", metadata.len(), modified.as_nanos())
    };
    let files = FILES.map(|name| {
        let new = mark(folder.path(staging).join("new").join(name));
        format!("file\0{name}\0{new}\0{}\0", mark(folder.path(name)))
    });
    let journal = format!("onnx-container switch 1\0{staging}\0{}end\0", files.concat());
    fs::write(folder.path(".p.onnx.switching"), journal).unwrap();
    fs::rename(folder.path("p.onnx"), folder.path(staging).join("old/p.onnx")).unwrap();
}

#[test]
fn every_command_completes_an_interrupted_save_and_says_so() {
    let folder = with_inputs();
    for args in
        READ.into_iter().chain([&["check", "p.onnx"][..], &["digest", "p.onnx", "--semantic"]])
    {
        interrupt_switch(&folder);
        let ran = run(&folder, args);
        let said = "warning: a save of `p.onnx` was interrupted; it is complete now";
        assert_eq!(ran.code(), 0, "{ran:?}");
        assert_eq!(ran.stderr().matches(said).count(), 1, "{ran:?}");
        assert!(!folder.names().iter().any(|name| name.starts_with('.')), "{:?}", folder.names());
        run(&folder, args).done();
    }
}

#[test]
fn recover_completes_and_removes() {
    let folder = with_inputs();
    folder.run(&["recover", "."]).done().says(&["nothing to recover"]);
    interrupt_switch(&folder);
    folder.run(&["recover", "."]).done().says(&["completed", "p.onnx"]);
    interrupt(&folder);
    folder.run(&["recover", "."]).done().says(&["removed", "1 staging folder"]);
    interrupt_switch(&folder);
    let json = folder.run(&["recover", ".", "--json"]).done().json();
    assert_eq!(json["finished"][0], "p.onnx");
    interrupt_switch(&folder);
    fs::write(folder.path("p.onnx.data"), "somebody's").unwrap();
    folder.run(&["recover", "."]).failed(&["was interrupted", ".p.onnx.saving-aB3xYz"]);
    folder.run(&["inspect", "p.onnx"]).failed(&["was interrupted"]);
    folder.run(&["recover", "missing"]).failed(&["missing"]);
}

const READ: [&[&str]; 10] = [
    &["inspect", "p.onnx"],
    &["files", "p.onnx"],
    &["pack", "p.onnx", "o.onnx"],
    &["split", "p.onnx", "o.onnx"],
    &["embed", "p.onnx", "o.onnx"],
    &["inline-functions", "p.onnx", "o.onnx"],
    &["export-safetensors", "p.onnx", "o.safetensors"],
    &["import-safetensors", "p.onnx", "w.safetensors", "o.onnx"],
    &["extract", "p.onnx", "w", "-o", "o.npy"],
    &["replace", "p.onnx", "w", "w.npy", "-o", "o.onnx"],
];

fn with_inputs() -> Folder {
    let folder = Folder::packed();
    folder.run(&["extract", "p.onnx", "w", "-o", "w.npy"]).done();
    folder.run(&["export-safetensors", "p.onnx", "w.safetensors"]).done();
    folder
}

/// Runs the command, and removes the files that it wrote.
fn run(folder: &Folder, args: &[&str]) -> Run {
    let run = folder.run(args);
    for name in folder.names().into_iter().filter(|name| name.starts_with('o')) {
        fs::remove_file(folder.path(&name)).unwrap();
    }
    run
}

#[test]
fn every_command_names_the_folder_of_an_interrupted_save() {
    let folder = with_inputs();
    for args in READ {
        run(&folder, args).done();
    }
    let left = interrupt(&folder);
    let start = format!("note: `{left}`: left by a save that was interrupted before it");
    for args in READ {
        let ran = run(&folder, args);
        assert_eq!(ran.code(), 0, "{ran:?}");
        assert!(ran.stderr().starts_with(&start) && ran.stderr().lines().count() == 1, "{ran:?}");
        let said = run(&folder, &[args, &["--json"]].concat()).json();
        if let Some(warnings) = said["warnings"].as_array() {
            let named = |text: &serde_json::Value| text.as_str().unwrap().contains(left);
            assert_eq!(warnings.iter().filter(|text| named(text)).count(), 1, "{args:?}: {said}");
        } else {
            assert!(matches!(args[0], "inspect" | "files"), "{args:?}: {said}");
        }
    }
    folder.run(&["check", "p.onnx"]).done().says(&[left, "1 advice"]);

    // The same where there is no model.
    fs::remove_file(folder.path("p.onnx")).unwrap();
    for args in READ.into_iter().chain([&["check", "p.onnx"][..]]) {
        let run = folder.run(args).failed(&["p.onnx"]);
        assert_eq!(run.stderr().matches(&start).count(), 1, "{run:?}");
    }
}

#[test]
fn a_save_that_removes_the_folder_does_not_name_it() {
    let folder = Folder::packed();
    let left = interrupt(&folder);
    folder.run(&["pack", "p.onnx", "p.onnx"]).done();
    assert!(!folder.path(left).exists());
}
