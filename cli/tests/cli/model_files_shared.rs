//! `mv`, `cp` and `rm` where files belong to more than one model, or are links.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use onnx_container::proto::Message;

use crate::model_files::{files, folder_bytes, with_files};
use crate::support::{Folder, external, tensors};

#[test]
fn what_another_model_needs_stays() {
    let shared = |command: &[&str]| {
        let folder = Folder::new();
        fs::create_dir(folder.path("out")).unwrap();
        with_files(&folder, "a.onnx", &["shared", "a.onnx.data"]);
        folder.save("b.onnx", &external(&["shared"]));
        folder.save("c.onnx", &external(&["a.onnx.data"]));
        let before = tensors(&folder.path("a.onnx"));
        let run = folder.run(command).done();
        (folder, run, before)
    };
    let (folder, run, before) = shared(&["mv", "a.onnx", "out/n.onnx"]);
    let run = run.says(&["shared: `b.onnx` needs it", "a.onnx.data: `c.onnx` needs it"]);
    assert!(run.stdout().contains("stays"), "{run:?}");
    assert_eq!(
        files(&folder),
        [
            "a.onnx.data",
            "b.onnx",
            "c.onnx",
            "out/n.onnx",
            "out/n.onnx.data",
            "out/shared",
            "shared"
        ]
    );
    assert_eq!(tensors(&folder.path("out/n.onnx")), before);
    for other in ["b.onnx", "c.onnx"] {
        folder.run(&["check", other]).done();
    }
    let (folder, run, _) = shared(&["rm", "a.onnx", "--json"]);
    assert_eq!(files(&folder), ["a.onnx.data", "b.onnx", "c.onnx", "shared"]);
    let kept = &run.json()["models"][0]["kept"];
    assert_eq!(kept[0]["path"], "a.onnx.data");
    assert_eq!(kept[1]["needed_by"], "b.onnx");
    // The last one takes the file along.
    folder.run(&["rm", "c.onnx", "b.onnx"]).done();
    assert_eq!(files(&folder), [""; 0]);
}

#[test]
fn a_model_that_another_one_takes_for_weights_is_not_removed() {
    let folder = Folder::new();
    with_files(&folder, "a.onnx", &["x"]);
    folder.save("b.onnx", &external(&["a.onnx"]));
    folder.run(&["rm", "a.onnx"]).failed(&["b.onnx` refers to this file: it is not removed"]);
    assert_eq!(files(&folder), ["a.onnx", "b.onnx", "x"]);
}

#[test]
fn names_that_a_caller_chose_stay_where_both_models_are_in_one_folder() {
    let folder = Folder::new();
    with_files(&folder, "a.onnx", &["own", "a.onnx.data"]);
    let inode = fs::metadata(folder.path("own")).unwrap().ino();
    folder.run(&["cp", "a.onnx", "b.onnx"]).done().says(&["kept"]);
    assert_eq!(files(&folder), ["a.onnx", "a.onnx.data", "b.onnx", "b.onnx.data", "own"]);
    // Only the copy needs it now, and then nobody.
    folder.run(&["rm", "a.onnx"]).done().says(&["own: `b.onnx` needs it"]);
    folder.run(&["mv", "b.onnx", "c.onnx"]).done();
    assert_eq!(files(&folder), ["c.onnx", "c.onnx.data", "own"]);
    assert_eq!(fs::metadata(folder.path("own")).unwrap().ino(), inode);
    folder.run(&["rm", "c.onnx"]).done();
    assert_eq!(files(&folder), [""; 0]);
}

/// What a model of one call needs goes with it, however it needs it and whatever the order is.
#[test]
fn models_of_one_call_go_together() {
    type Make = fn(&Folder);
    let shared: Make = |folder| {
        with_files(folder, "t/a.onnx", &["w"]);
        folder.save("t/b.onnx", &external(&["w"]));
    };
    let linked: Make = |folder| {
        with_files(folder, "t/a.onnx", &["w"]);
        folder.save("t/b.onnx", &external(&["v"]));
        symlink("w", folder.path("t/v")).unwrap();
    };
    let model: Make = |folder| {
        with_files(folder, "t/a.onnx", &["w"]);
        folder.save("t/b.onnx", &external(&["a.onnx"]));
    };
    for (number, make) in [shared, linked, model].into_iter().enumerate() {
        for order in
            [["t/a.onnx", "t/b.onnx"], ["t/b.onnx", "t/a.onnx"], ["t/a.onnx", "./t/b.onnx"]]
        {
            for command in ["rm", "mv"] {
                let moves = command == "mv";
                if moves && number == 2 {
                    continue;
                }
                let folder = Folder::new();
                for name in ["t", "to"] {
                    fs::create_dir(folder.path(name)).unwrap();
                }
                make(&folder);
                let args = [&[command][..], &order, if moves { &["to"] } else { &[] }].concat();
                let case = format!("{number} {args:?}");
                let dry = folder.run(&[&args[..], &["--dry-run"]].concat()).done();
                assert!(!dry.stdout().contains("stays"), "{case}: {dry:?}");
                let run = folder.run(&args).done();
                assert!(!run.stdout().contains("stays"), "{case}: {run:?}");
                assert_eq!(fs::read_dir(folder.path("t")).unwrap().count(), 0, "{case}: {run:?}");
                if moves {
                    folder.run(&["check", "to/a.onnx", "to/b.onnx"]).done();
                }
            }
        }
    }
}

/// A third model is asked too.
#[test]
fn what_a_model_outside_of_the_call_needs_stays() {
    let folder = Folder::new();
    with_files(&folder, "a.onnx", &["w"]);
    folder.save("b.onnx", &external(&["w"]));
    folder.save("c.onnx", &external(&["w"]));
    let run = folder.run(&["rm", "a.onnx", "./b.onnx"]).done().says(&["w: `c.onnx` needs it"]);
    assert_eq!(files(&folder), ["c.onnx", "w"], "{run:?}");
}

/// A folder in the form of the Hugging Face cache, with links into `blobs`.
fn hub() -> Folder {
    let folder = Folder::new();
    for below in ["blobs", "snapshots", "out"] {
        fs::create_dir(folder.path(below)).unwrap();
    }
    folder.save("blobs/1", &external(&["m.onnx.data"]));
    fs::write(folder.path("blobs/2"), [7; 16]).unwrap();
    symlink("../blobs/1", folder.path("snapshots/m.onnx")).unwrap();
    symlink("../blobs/2", folder.path("snapshots/m.onnx.data")).unwrap();
    folder
}

#[test]
fn links_of_the_hub_are_followed_and_never_written_through() {
    for (command, args, left) in [
        ("cp", &["out/n.onnx"][..], &["snapshots/m.onnx", "snapshots/m.onnx.data"][..]),
        ("mv", &["out/n.onnx"], &[]),
        ("rm", &[], &[]),
    ] {
        let folder = hub();
        let blobs = folder_bytes(&folder, "blobs");
        let args = [&[command, "snapshots/m.onnx"], args].concat();
        folder.run(&args).done();
        assert_eq!(folder_bytes(&folder, "blobs"), blobs, "{command}");
        let all = files(&folder);
        let found: Vec<_> = all.iter().filter(|file| file.starts_with("snap")).collect();
        assert_eq!(found, left, "{command}");
        if command != "rm" {
            assert_eq!(fs::read(folder.path("out/n.onnx.data")).unwrap(), [7; 16]);
            assert!(!folder.path("out/n.onnx.data").is_symlink());
            folder.run(&["check", "out/n.onnx"]).done();
        }
    }
    // A link at the target is replaced, and what it leads to stays.
    for name in ["out/n.onnx", "out/n.onnx.data"] {
        let folder = hub();
        fs::write(folder.path("victim"), "precious").unwrap();
        symlink("../victim", folder.path(name)).unwrap();
        folder.run(&["cp", "snapshots/m.onnx", "out/n.onnx"]).done();
        assert_eq!(fs::read(folder.path("victim")).unwrap(), b"precious");
        assert!(!folder.path(name).is_symlink());
    }
    // A folder of weights that is a link is not written through either.
    let folder = Folder::new();
    for below in ["from", "out", "elsewhere"] {
        fs::create_dir(folder.path(below)).unwrap();
    }
    with_files(&folder, "from/m.onnx", &["w/x"]);
    symlink("../elsewhere", folder.path("out/w")).unwrap();
    for command in ["mv", "cp"] {
        folder.run(&[command, "from/m.onnx", "out"]).failed(&["a link"]);
    }
    assert_eq!(fs::read_dir(folder.path("elsewhere")).unwrap().count(), 0);
    assert_eq!(files(&folder).len(), 3);
}

/// The number of names that the file at `path` has.
fn names_of(folder: &Folder, path: &str) -> u64 {
    fs::metadata(folder.path(path)).unwrap().nlink()
}

/// A second name would make a write in place change the other model, and onnx refuses files that
/// have one.
#[test]
fn a_file_that_stays_gets_no_second_name() {
    let folder = Folder::new();
    fs::create_dir(folder.path("out")).unwrap();
    with_files(&folder, "a.onnx", &["shared", "a.onnx.data"]);
    folder.save("b.onnx", &external(&["shared"]));
    let dry = folder.run(&["mv", "a.onnx", "out", "--dry-run", "--json"]).done().json();
    let run = folder.run(&["mv", "a.onnx", "out", "--json"]).done().json();
    for json in [dry, run] {
        let placed = |name: &str| {
            let all = json["models"][0]["files"].as_array().unwrap();
            let file = all.iter().find(|file| file["path"].as_str().unwrap().ends_with(name));
            file.unwrap()["placed"].clone()
        };
        assert!(["copied", "shared"].contains(&placed("shared").as_str().unwrap()), "{json}");
        assert_eq!((placed("a.onnx"), placed("a.onnx.data")), ("linked".into(), "linked".into()));
    }
    assert_eq!((names_of(&folder, "shared"), names_of(&folder, "out/shared")), (1, 1));
    folder.run(&["check", "b.onnx", "--paths", "strict"]).done();

    let folder = hub();
    folder.run(&["mv", "snapshots/m.onnx", "out"]).done();
    for path in ["blobs/1", "blobs/2", "out/m.onnx", "out/m.onnx.data"] {
        assert_eq!(names_of(&folder, path), 1, "{path}");
    }
}

/// It has the name of the model that is removed, and is not that model.
#[test]
fn a_link_above_is_another_model_where_it_leads_to_one() {
    for command in [&["rm", "repo/onnx/m.onnx"][..], &["mv", "repo/onnx/m.onnx", "out"]] {
        let folder = Folder::new();
        for below in ["blobs", "repo/onnx", "out"] {
            fs::create_dir_all(folder.path(below)).unwrap();
        }
        with_files(&folder, "repo/onnx/m.onnx", &["m.onnx_data"]);
        folder.save("blobs/1", &external(&["onnx/m.onnx_data"]));
        symlink("../blobs/1", folder.path("repo/m.onnx")).unwrap();
        folder.run(command).done().says(&["m.onnx` needs it"]);
        assert!(folder.path("repo/onnx/m.onnx_data").exists(), "{command:?}");
    }
}

/// Nothing is changed by a refusal, and nothing is hidden by a dry run.
#[test]
fn several_models_with_one_file_are_refused_before_the_first_moves() {
    for command in ["mv", "cp"] {
        let folder = Folder::new();
        for below in ["out", "x", "y"] {
            fs::create_dir(folder.path(below)).unwrap();
        }
        with_files(&folder, "x/c.onnx", &["weights.bin"]);
        with_files(&folder, "y/d.onnx", &["Weights.bin"]);
        let before = files(&folder);
        for options in [&[][..], &["--dry-run"], &["--json"]] {
            let args = [&[command, "x/c.onnx", "y/d.onnx", "out"][..], options].concat();
            folder.run(&args).failed(&["two of the models would have"]);
        }
        assert_eq!(files(&folder), before, "{command}");
    }
}

#[test]
fn a_dry_run_lists_all_files_that_are_removed() {
    let folder = Folder::new();
    with_files(&folder, "b.onnx", &["b.onnx.data"]);
    folder.save("a.onnx", &crate::support::model());
    let before = files(&folder);
    let args = ["mv", "a.onnx", "b.onnx"];
    folder.run(&[&args[..], &["--dry-run"]].concat()).done().says(&["removes", "b.onnx.data"]);
    let json = folder.run(&[&args[..], &["--dry-run", "--json"]].concat()).done().json();
    assert_eq!(json["models"][0]["superseded"][0], "b.onnx.data");
    assert_eq!(files(&folder), before);
    folder.run(&args).done().says(&["removed", "b.onnx.data"]);

    let folder = Folder::new();
    with_files(&folder, "a.onnx", &["w.bin"]);
    folder.save("b.onnx", &external(&["w.bin"]));
    for options in [&["--dry-run"][..], &[]] {
        let json = folder.run(&[&["rm", "a.onnx", "b.onnx", "--json"], options].concat());
        let json = json.done().json();
        let models = json["models"].as_array().unwrap();
        assert_eq!(models[0]["kept"].as_array().unwrap().len(), 0, "{options:?}");
        assert_eq!(models[1]["kept"].as_array().unwrap().len(), 0, "{options:?}");
        let removed = models[1]["files"].as_array().unwrap();
        assert!(removed.iter().any(|file| file["path"] == "w.bin"), "{options:?}: {removed:?}");
    }
    assert_eq!(files(&folder), [""; 0]);
}

/// The files of a model are moved away in one step, which two file systems do not have together.
/// `scripts/test.sh` mounts the second one.
#[test]
fn weights_on_another_file_system_are_refused_before_anything_changes() {
    let Some(disk) = std::env::var_os("ONNX_CONTAINER_SMALL_DISK") else {
        println!("!!! SKIPPED: no small disk in ONNX_CONTAINER_SMALL_DISK");
        return;
    };
    let disk = Path::new(&disk);
    let (folder, below) = (disk.parent().unwrap(), disk.file_name().unwrap().to_str().unwrap());
    let shell = Folder::new();
    let [model, moved] = [folder.join("other.onnx"), shell.path("moved.onnx")];
    let [model, moved] = [&model, &moved].map(|path| path.to_str().unwrap());
    fs::write(disk.join("w"), [1; 16]).unwrap();
    fs::write(model, external(&[&format!("{below}/w")]).encode_to_vec().unwrap()).unwrap();
    for args in [&["rm", model][..], &["rm", model, "--dry-run"], &["mv", model, moved]] {
        shell.run(args).failed(&["on another file system than the model", "small/w"]);
        assert!(disk.join("w").exists() && !Path::new(moved).exists(), "{args:?}");
        shell.run(&["check", model]).done();
    }
    fs::remove_file(disk.join("w")).unwrap();
    fs::remove_file(model).unwrap();
}
