//! What an interrupted save left is named by every command that reads the model.

use std::fs;

use crate::support::{Folder, Run};

/// Leaves what a killed save leaves: `p.onnx` and its weights are staged and not renamed.
fn interrupt(folder: &Folder) -> &'static str {
    let name = ".p.onnx.saving-aB3xYz";
    for part in ["old", "new"] {
        let path = folder.path(name).join(part);
        fs::create_dir_all(&path).unwrap();
        for file in ["p.onnx", "p.onnx.data"] {
            fs::copy(folder.path(file), path.join(file)).unwrap();
        }
    }
    name
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
    let start = format!("note: `{left}`: left by a save that was interrupted: ");
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

    // The model itself is gone: what the folder holds may be all that is left of it.
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
