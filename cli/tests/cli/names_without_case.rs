//! Models on file systems that take names for one that differ in case: no file is that of two
//! tensors or models. `scripts/test.sh` mounts such file systems.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use onnx_container::proto::ModelProto;

use crate::support::{Folder, floats, model, weight};

/// Names of tensors that are one name where case does not count, or how a letter with a mark is
/// written.
const NAMES: [&str; 8] =
    ["weight", "Weight", "WEIGHT", "\u{e9}", "e\u{301}", "E\u{301}", "stra\u{df}e", "STRASSE"];

fn disks() -> Vec<PathBuf> {
    let Some(disks) = env::var_os("ONNX_CONTAINER_CASELESS_FOLDERS") else {
        println!("!!! SKIPPED: no file systems in ONNX_CONTAINER_CASELESS_FOLDERS");
        return Vec::new();
    };
    let disks: Vec<_> = env::split_paths(&disks).collect();
    for disk in &disks {
        fs::write(disk.join("Probe"), "").unwrap();
        assert!(disk.join("pROBE").exists(), "case counts in {}", disk.display());
    }
    disks
}

fn named_alike() -> ModelProto {
    let mut model = model();
    let weights = NAMES.iter().enumerate().map(|(i, name)| weight(name, &[600], i as f32));
    model.graph.as_mut().unwrap().initializer.extend(weights);
    model
}

fn digest(folder: &Folder, path: &Path) -> Option<String> {
    let run = folder.run(&["digest", path.to_str().unwrap()]);
    (run.code() == 0).then(|| run.stdout().split_whitespace().next().unwrap().to_owned())
}

/// The files of a model in `folder`, by their lengths.
fn lengths(folder: &Path) -> Vec<u64> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    files.collect()
}

#[test]
fn tensors_whose_names_differ_in_case_have_files_of_their_own() {
    for disk in disks() {
        let (folder, to) = (Folder::new(), tempfile::tempdir_in(&disk).unwrap());
        folder.save("m.onnx", &named_alike());
        let expected = digest(&folder, &folder.path("m.onnx"));
        let layouts: [&[&str]; 4] =
            [&["split"], &["pack"], &["embed"], &["pack", "--max-shard-size", "4k"]];
        for layout in layouts {
            let model = to.path().join("s.onnx");
            let place = [&[layout[0], "m.onnx", model.to_str().unwrap()], &layout[1..]].concat();
            let run = folder.run(&place).done();
            assert_eq!(digest(&folder, &model), expected, "{layout:?}: {run:?}");
            folder.run(&["check", model.to_str().unwrap()]).done();
            folder.run(&["rm", model.to_str().unwrap()]).done();
            assert_eq!(lengths(to.path()), [0; 0], "{layout:?}");
        }
    }
}

/// The same name in another case is that of the same model: each command ends with the old model or
/// the new one under both names, and another model keeps its weights.
#[test]
fn a_model_is_the_same_by_its_name_in_another_case() {
    for disk in disks() {
        let (folder, to) = (Folder::new(), tempfile::tempdir_in(&disk).unwrap());
        folder.save("old.onnx", &named_alike());
        let mut new = named_alike();
        new.graph.as_mut().unwrap().initializer.push(floats("more", 2000));
        folder.save("new.onnx", &new);
        let [old, new] = ["old.onnx", "new.onnx"].map(|name| digest(&folder, &folder.path(name)));
        let [model, alike, other] =
            ["m.onnx", "M.ONNX", "other.onnx"].map(|name| to.path().join(name));
        let at = |path: &PathBuf| path.to_str().unwrap().to_owned();
        folder.run(&["pack", "old.onnx", &at(&other)]).done();
        let data = at(&to.path().join("OTHER.onnx.DATA"));
        let commands: [&[&str]; 6] = [
            &["pack", "new.onnx", &at(&alike)],
            &["split", "new.onnx", &at(&alike)],
            &["pack", "new.onnx", &at(&alike), "--data-name", "OTHER.onnx.DATA"],
            &["mv", &at(&model), &at(&alike)],
            &["cp", &at(&model), &at(&alike)],
            &["strip", &at(&model), &at(&alike)],
        ];
        for command in commands {
            folder.run(&["pack", "old.onnx", &at(&model)]).done();
            let run = folder.run(command);
            let is_told = run.stderr().contains("does not tell the two names apart");
            assert_eq!(is_told, matches!(command[0], "mv" | "cp"), "{command:?}: {run:?}");
            let found: HashSet<_> =
                [&model, &alike].into_iter().map(|path| digest(&folder, path)).collect();
            let stripped = command[0] == "strip" && run.code() == 0;
            let is_one = found.len() == 1 && [&old, &new].iter().any(|it| found.contains(it));
            assert!(is_one || stripped, "{}: {command:?}: {run:?}: {found:?}", disk.display());
            assert!(run.code() == 1 || !found.contains(&old), "{command:?}: {run:?}");
            assert_eq!(digest(&folder, &other), old, "{command:?}: {data}: {run:?}");
        }
    }
}
