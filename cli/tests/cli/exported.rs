//! Real models, where they are present beside the repository.

use std::fs;
use std::path::PathBuf;

use crate::support::{Folder, tensors};

/// The models under `shared/data/exported`; none, said loudly, where that is absent.
fn exported() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/exported");
    if !folder.is_dir() {
        eprintln!("SKIPPED: no ../shared/data/exported beside the repository: real models not run");
        return Vec::new();
    }
    let entries =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("model.onnx"));
    entries.filter(|model| model.is_file()).collect()
}

#[test]
fn real_models_survive_every_layout() {
    for path in exported() {
        let folder = Folder::new();
        let (model, before) = (path.to_str().unwrap(), tensors(&path));
        for (command, output) in [("pack", "p.onnx"), ("split", "s.onnx"), ("embed", "e.onnx")] {
            let args = [command, model, output, "--verify", "--no-sync"];
            folder.run(&args).done().says(&["are the same bit for bit", "checked   no errors"]);
            assert_eq!(tensors(&folder.path(output)), before, "{args:?}");
            folder.run(&["check", output]).done();
            let listed = folder.run(&["inspect", output, "--json"]).done().json();
            assert_eq!(listed["tensors"].as_array().unwrap().len(), before.len());
        }
        folder.run(&["embed", "e.onnx", "again.onnx", "--no-sync"]).done();
        let read = |name| fs::read(folder.path(name)).unwrap();
        assert_eq!(read("e.onnx"), read("again.onnx"), "{model}");
    }
}
