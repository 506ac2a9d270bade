//! `mv`, `cp` and `rm`: a model with its weights files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use onnx_container::proto::{Message, ModelProto, StringStringEntryProto};
use onnx_container::{Buffer, Container, MmapChoice};

use crate::support::{Folder, external, model, tensors};

/// The layouts of a model, by the arguments that write it.
const LAYOUTS: [&[&str]; 8] = [
    &["pack"],
    &["pack", "--max-shard-size", "3000"],
    &["pack", "--max-shard-size", "5000", "--shard-names", "transformers-js"],
    &["pack", "--data-name", "own name.bin"],
    &["pack", "--safetensors"],
    &["split"],
    &["embed"],
    &["pack", "--digests"],
];

/// A model of this layout at `path`, and nothing else.
fn written(layout: &[&str], path: &str) -> Folder {
    let folder = Folder::new();
    for below in ["from", "out"] {
        fs::create_dir(folder.path(below)).unwrap();
    }
    folder.save("m.onnx", &model());
    let args = [&layout[..1], &["m.onnx", path], &layout[1..]].concat();
    folder.run(&args).done();
    fs::remove_file(folder.path("m.onnx")).unwrap();
    folder
}

/// The files below a folder with their inodes, without the model at `except`.
fn inodes(folder: &Folder, except: &str) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    let mut folders = vec![folder.path("")];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                folders.push(entry.path());
            } else if entry.path() != folder.path(except) {
                inodes.insert(meta.ino());
            }
        }
    }
    inodes
}

/// The paths below a folder.
pub fn files(folder: &Folder) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.path("")];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let path = entry.path();
                    let path = path.strip_prefix(folder.path("")).unwrap();
                    files.push(path.to_str().unwrap().to_owned());
                }
            }
        }
    }
    files.sort();
    files
}

fn digest(folder: &Folder, path: &str) -> String {
    folder.run(&["digest", "--", path]).done().stdout().split(' ').next().unwrap().to_owned()
}

#[test]
fn a_model_of_each_layout_moves_with_its_files() {
    for layout in LAYOUTS {
        for (from, to, new) in [
            ("from/p.onnx", "out", "out/p.onnx"),
            ("from/p.onnx", "out/", "out/p.onnx"),
            ("from/p.onnx", "out/a new name \u{fc}.onnx", "out/a new name \u{fc}.onnx"),
            ("from/p.onnx", "from/q.onnx", "from/q.onnx"),
            ("-p q.onnx", "out", "out/-p q.onnx"),
            ("from/p q.onnx", "-r.onnx", "-r.onnx"),
        ] {
            let case = format!("{layout:?} {from} {to}");
            let folder = written(layout, &format!("./{from}"));
            let digest_before = digest(&folder, from);
            let (count, before) = (files(&folder).len(), inodes(&folder, from));
            let run = folder.run(&["mv", "--", from, to]).done();
            assert!(run.stdout().contains("moved") || count == 1, "{case}: {run:?}");
            assert!(!folder.path(from).exists(), "{case}");
            assert_eq!(digest(&folder, new), digest_before, "{case}");
            assert_eq!(files(&folder).len(), count, "{case}: {:?}", files(&folder));
            assert_eq!(inodes(&folder, new), before, "{case}");
            let (dir, name) = new.rsplit_once('/').unwrap_or(("", new));
            let all = files(&folder);
            let beside = all.iter().filter(|file| file.starts_with(dir));
            assert_eq!(beside.count(), count, "{case}: {all:?}");
            // What was named after the model is again.
            let follows =
                layout[0] == "split" || layout.len() == 1 || layout.contains(&"--max-shard-size");
            let stem = name.strip_suffix(".onnx").unwrap();
            let named = all.iter().all(|file| file.rsplit('/').next().unwrap().starts_with(stem));
            assert!(named || !follows || layout.contains(&"--safetensors"), "{case}: {all:?}");
            folder.run(&["check", "--", new]).done();
        }
    }
}

#[test]
fn a_model_of_each_layout_is_copied_and_removed() {
    for layout in LAYOUTS {
        for (to, new) in [("out", "out/p.onnx"), ("out/q.onnx", "out/q.onnx")] {
            let case = format!("{layout:?} {to}");
            let folder = written(layout, "from/p.onnx");
            let (before, count) = (folder_bytes(&folder, "from"), files(&folder).len());
            folder.run(&["cp", "from/p.onnx", to]).done();
            assert_eq!(folder_bytes(&folder, "from"), before, "{case}");
            assert_eq!(tensors(&folder.path(new)), tensors(&folder.path("from/p.onnx")), "{case}");
            assert_eq!(files(&folder).len(), 2 * count, "{case}");
            assert_eq!(inodes(&folder, "").len(), 2 * count, "{case}: no file is shared");
            let run = folder.run(&["rm", "from/p.onnx", new, "--dry-run"]).done();
            assert_eq!(files(&folder).len(), 2 * count, "{case}: {run:?}");
            folder.run(&["rm", "from/p.onnx", new]).done();
            assert_eq!(files(&folder), [""; 0], "{case}");
        }
    }
}

/// The files of a folder with their bytes.
pub fn folder_bytes(folder: &Folder, below: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder.path(below)).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    all.sort();
    all
}

/// A model whose tensors are in files of these locations, which have 16 bytes each.
pub fn with_files(folder: &Folder, name: &str, locations: &[&str]) {
    folder.save(name, &external(locations));
    let below = Path::new(name).parent().unwrap();
    for (number, location) in locations.iter().enumerate() {
        let path = folder.path("").join(below).join(location);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(path, [u8::try_from(number).unwrap() + 1; 16]).unwrap();
        }
    }
}

#[test]
fn folders_below_move_with_the_model() {
    for (command, left) in [("mv", 0), ("cp", 3)] {
        let folder = Folder::new();
        fs::create_dir(folder.path("out")).unwrap();
        fs::create_dir(folder.path("from")).unwrap();
        with_files(&folder, "from/m.onnx", &["weights/x", "./weights/deep/y"]);
        let before = tensors(&folder.path("from/m.onnx"));
        folder.run(&[command, "from/m.onnx", "out/n.onnx"]).done();
        let moved = ["out/n.onnx", "out/weights/deep/y", "out/weights/x"];
        let all = files(&folder);
        assert!(moved.iter().all(|path| all.contains(&(*path).to_owned())), "{all:?}");
        assert_eq!(all.len(), 3 + left);
        assert_eq!(folder.path("from/weights").exists(), command == "cp");
        assert_eq!(tensors(&folder.path("out/n.onnx")), before);
        folder.run(&["rm", "out/n.onnx"]).done();
        assert!(!folder.path("out/weights").exists());
    }
}

#[test]
fn nothing_is_replaced_that_a_save_would_not_replace() {
    /// What is at the target, and what is said; nothing where it may be replaced.
    type Case = (&'static str, fn(&Folder), &'static str);
    let cases: [Case; 6] = [
        (
            "out/n.onnx.data",
            |folder| fs::write(folder.path("out/n.onnx.data"), "x").unwrap(),
            "no model",
        ),
        (
            "out/n.onnx.data",
            |folder| {
                with_files(folder, "out/other.onnx", &["n.onnx.data"]);
                fs::write(folder.path("out/n.onnx.data"), [7; 16]).unwrap();
            },
            "refers to this file",
        ),
        ("out/n.onnx.data", |folder| folder.save("out/n.onnx.data", &model()), "another model"),
        ("out/n.onnx", |folder| with_files(folder, "out/n.onnx", &["n.onnx.data"]), ""),
        ("out/n.onnx", |folder| folder.save("out/n.onnx", &model()), ""),
        ("out/n.onnx", |folder| fs::write(folder.path("out/n.onnx"), "notes").unwrap(), ""),
    ];
    for command in ["mv", "cp"] {
        for (number, (name, put, said)) in cases.iter().enumerate() {
            let folder = Folder::new();
            fs::create_dir(folder.path("out")).unwrap();
            with_files(&folder, "m.onnx", &["m.onnx.data"]);
            put(&folder);
            let before = files(&folder);
            let kept = fs::read(folder.path(name)).ok();
            folder.run(&[command, "m.onnx", "out/n.onnx", "--no-clobber"]).failed(&[]);
            let run = folder.run(&[command, "m.onnx", "out/n.onnx", "--dry-run"]);
            let again = folder.run(&[command, "m.onnx", "out/n.onnx"]);
            let case = format!("{command} {number}: {run:?} {again:?}");
            if said.is_empty() {
                assert_eq!((run.code(), again.code()), (0, 0), "{case}");
            } else {
                run.failed(&[said]);
                again.failed(&[said]);
                assert_eq!(files(&folder), before, "{case}");
                assert_eq!(fs::read(folder.path(name)).ok(), kept, "{case}");
            }
        }
    }
}

#[test]
fn what_the_replaced_model_alone_needed_is_removed_with_it() {
    let folder = Folder::new();
    folder.save("m.onnx", &model());
    folder.run(&["split", "m.onnx", "n.onnx"]).done();
    folder.run(&["mv", "m.onnx", "n.onnx"]).done().says(&["removed", "n-w.weight"]);
    assert_eq!(files(&folder), ["n.onnx"]);
}

#[test]
fn what_is_not_a_model_is_refused_with_what_it_is() {
    let folder = Folder::packed();
    fs::create_dir(folder.path("folder")).unwrap();
    for (path, said) in [
        ("p.onnx.data", "a weights file of `p.onnx`, which is beside it, not a model"),
        ("folder", "a folder, not a model"),
        ("gone.onnx", "No such file"),
    ] {
        for args in [&["mv", path, "q.onnx"][..], &["cp", path, "q.onnx"], &["rm", path]] {
            let run = folder.run(args).failed(&[said]);
            assert_eq!(run.stdout(), "", "{args:?}");
            let args = [args, &["--json"]].concat();
            let json = folder.run(&args).failed(&[said]).json();
            assert!(json["error"]["message"].is_string(), "{json}");
        }
    }
    folder.run(&["mv", "p.onnx", "./p.onnx"]).failed(&["the model itself"]);
    folder.run(&["cp", "p.onnx", "p.onnx"]).failed(&["the model itself"]);
    folder.run(&["mv", "p.onnx", "none/q.onnx"]).failed(&["mkdir -p none"]);
    folder.run(&["mv", "p.onnx", "none/"]).failed(&["is a folder, or one that is not there"]);
    folder.run(&["mv", "p.onnx", "p.onnx", "q.onnx"]).misused(&["is not a folder"]);
    folder.run(&["cp", "p.onnx", "./p.onnx", "folder"]).misused(&["two models"]);
    folder.run(&["mv", "p.onnx"]).misused(&["<PATH>", "<FROM>... <TO>"]);
    folder.run(&["rm"]).misused(&["<MODEL>"]);
    assert_eq!(files(&folder), ["p.onnx", "p.onnx.data"]);
    // A weights file that is missing: only a removal goes on.
    folder.save("cut.onnx", &external(&["gone", "../up"]));
    folder.run(&["mv", "cut.onnx", "q.onnx"]).failed(&["gone"]);
    let run = folder.run(&["rm", "cut.onnx"]);
    assert_eq!(run.code(), 0);
    assert!(run.stderr().contains("not removed"), "{run:?}");
    assert_eq!(files(&folder), ["p.onnx", "p.onnx.data"]);
}

#[test]
fn several_models_go_to_a_folder_or_none() {
    for command in ["mv", "cp"] {
        let folder = Folder::new();
        fs::create_dir(folder.path("out")).unwrap();
        with_files(&folder, "a.onnx", &["a.onnx.data"]);
        with_files(&folder, "b.onnx", &["b.onnx.data"]);
        folder.save("c.onnx", &external(&["gone"]));
        folder.run(&[command, "a.onnx", "c.onnx", "out"]).failed(&["gone"]);
        assert_eq!(fs::read_dir(folder.path("out")).unwrap().count(), 0);
        let json = folder.run(&[command, "a.onnx", "b.onnx", "out", "--json"]).done().json();
        assert_eq!(json["models"].as_array().unwrap().len(), 2);
        assert_eq!(fs::read_dir(folder.path("out")).unwrap().count(), 4);
        assert_eq!(folder.path("a.onnx").exists(), command == "cp");
    }
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_happen() {
    let folder = Folder::new();
    fs::create_dir(folder.path("out")).unwrap();
    with_files(&folder, "m.onnx", &["m.onnx.data", "w/x"]);
    let before = files(&folder);
    for (args, placed) in [
        (&["mv", "m.onnx", "out/m.onnx"][..], ["linked", "linked", "linked"]),
        (&["mv", "m.onnx", "n.onnx"], ["written", "linked", "kept"]),
        (&["cp", "m.onnx", "out/n.onnx"], ["written", "copied", "copied"]),
    ] {
        let args = [args, &["--dry-run", "--json"]].concat();
        let json = folder.run(&args).done().json();
        let files_listed = json["models"][0]["files"].as_array().unwrap();
        let found: Vec<_> =
            files_listed.iter().map(|file| file["placed"].as_str().unwrap()).collect();
        assert_eq!(found, placed, "{args:?}");
        assert_eq!(json["dry_run"], true);
    }
    folder.run(&["rm", "m.onnx", "--dry-run"]).done().says(&["removes", "w/x"]);
    assert_eq!(files(&folder), before);
    assert!(!folder.path("out/w").exists());
}

#[test]
fn only_the_names_in_the_model_change() {
    let folder = Folder::new();
    let mut model = external(&["./m.onnx.data", "own"]);
    let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
    tensor.external_data.push(StringStringEntryProto::new("vendor", "m.onnx.data"));
    // A field that no version of ONNX has.
    let unknown = b"\xf2\x7f\x03abc";
    let bytes = [&model.encode_to_vec().unwrap()[..], unknown].concat();
    fs::write(folder.path("m.onnx"), &bytes).unwrap();
    fs::write(folder.path("m.onnx.data"), [1; 16]).unwrap();
    fs::write(folder.path("own"), [2; 16]).unwrap();
    folder.run(&["mv", "m.onnx", "n.onnx"]).done();
    let moved = fs::read(folder.path("n.onnx")).unwrap();
    assert!(moved.ends_with(unknown));
    let mut again = ModelProto::decode(&Buffer::from(moved)).unwrap();
    let tensor = &mut again.graph.as_mut().unwrap().initializer[0];
    assert_eq!(tensor.external_data[0].value, Some("n.onnx.data".into()));
    tensor.external_data[0].value = Some("./m.onnx.data".into());
    assert!(again.encode_to_vec().unwrap() == bytes);
    // Where no name changes, no byte does: it is the same file.
    let inode = fs::metadata(folder.path("n.onnx")).unwrap().ino();
    fs::create_dir(folder.path("out")).unwrap();
    folder.run(&["mv", "n.onnx", "out"]).done();
    assert_eq!(fs::metadata(folder.path("out/n.onnx")).unwrap().ino(), inode);
}

#[test]
fn holes_stay_holes() {
    const LEN: u64 = 64 << 20;
    let folder = Folder::new();
    fs::create_dir(folder.path("out")).unwrap();
    with_files(&folder, "m.onnx", &["m.onnx.data"]);
    let data = fs::File::options().write(true).open(folder.path("m.onnx.data")).unwrap();
    data.set_len(LEN).unwrap();
    let stored = |name: &str| fs::metadata(folder.path(name)).unwrap().blocks() * 512;
    if stored("m.onnx.data") > LEN / 2 {
        eprintln!("SKIPPED: this file system has no holes");
        return;
    }
    folder.run(&["cp", "m.onnx", "out"]).done();
    assert_eq!(fs::metadata(folder.path("out/m.onnx.data")).unwrap().len(), LEN);
    assert!(stored("out/m.onnx.data") <= stored("m.onnx.data") + 65536);
    assert_eq!(fs::read(folder.path("out/m.onnx.data")).unwrap()[..16], [1; 16]);
}

#[test]
fn a_copy_is_no_more_accessible_than_the_original() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    fs::create_dir(folder.path("out")).unwrap();
    with_files(&folder, "m.onnx", &["m.onnx.data"]);
    for name in ["m.onnx", "m.onnx.data"] {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().mode() & 0o777;
    folder.run(&["cp", "m.onnx", "out/m.onnx"]).done();
    folder.run(&["cp", "m.onnx", "out/n.onnx"]).done();
    folder.run(&["mv", "m.onnx", "o.onnx"]).done();
    for name in
        ["out/m.onnx", "out/m.onnx.data", "out/n.onnx", "out/n.onnx.data", "o.onnx", "o.onnx.data"]
    {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    Container::load(folder.path("o.onnx"), MmapChoice::never()).unwrap();
}

/// The model is written, because a name in it changes, and its weights are copied.
#[test]
fn a_copy_obeys_the_umask() {
    let folder = Folder::new();
    with_files(&folder, "m.onnx", &["m.onnx.data"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 077 && exec \"$0\" cp m.onnx n.onnx"]);
    shell.arg(env!("CARGO_BIN_EXE_onnx-container")).current_dir(folder.path(""));
    assert!(shell.output().unwrap().status.success());
    for name in ["n.onnx", "n.onnx.data"] {
        assert_eq!(fs::metadata(folder.path(name)).unwrap().mode() & 0o077, 0, "{name}");
    }
}

/// Another file system than that of temporary files, where there is one.
fn other_disk() -> Option<tempfile::TempDir> {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let here = device(&std::env::temp_dir())?;
    let shm = Path::new("/dev/shm");
    let other = device(shm).filter(|device| *device != here)?;
    let folder = tempfile::tempdir_in(shm).ok()?;
    (device(folder.path()) == Some(other)).then_some(folder)
}

#[test]
fn a_model_moves_to_another_file_system() {
    let Some(other) = other_disk() else {
        eprintln!("SKIPPED: there is no other file system");
        return;
    };
    let folder = Folder::new();
    with_files(&folder, "m.onnx", &["m.onnx.data", "w/x"]);
    let before = tensors(&folder.path("m.onnx"));
    let modified = fs::metadata(folder.path("w/x")).unwrap().modified().unwrap();
    folder.run(&["mv", "m.onnx", other.path().to_str().unwrap()]).done().says(&["copied"]);
    assert_eq!(files(&folder), [""; 0]);
    assert_eq!(tensors(&other.path().join("m.onnx")), before);
    assert_eq!(fs::metadata(other.path().join("w/x")).unwrap().modified().unwrap(), modified);
}
