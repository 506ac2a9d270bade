//! What `mv`, `rm` and `--delete-old` never remove, and models that share files and go together.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use crate::model_files::{files, with_files};
use crate::support::{Folder, Run, external, model, tensors};

/// A model may name anything as its weights, even another model.
#[test]
fn a_model_is_not_removed_as_weights_of_another() {
    for (args, is_gone) in [
        (&["rm", "q.onnx"][..], true),
        (&["mv", "q.onnx", "d"], true),
        (&["embed", "q.onnx", "q.onnx", "--delete-old"], false),
        (&["pack", "q.onnx", "q.onnx", "--delete-old", "--data-name", "new.bin"], false),
    ] {
        let folder = Folder::new();
        fs::create_dir(folder.path("d")).unwrap();
        folder.save("p.onnx", &model());
        with_files(&folder, "q.onnx", &["p.onnx"]);
        let before = fs::read(folder.path("p.onnx")).unwrap();
        let run = folder.run(args);
        assert_eq!(run.code(), 0, "{run:?}");
        assert_eq!(fs::read(folder.path("p.onnx")).unwrap(), before, "{args:?}");
        assert_eq!(folder.path("q.onnx").exists(), !is_gone, "{args:?}");
        if is_gone {
            assert!(run.stderr().contains("p.onnx`: is a model itself"), "{run:?}");
        }
    }
}

/// A deduplicating tool may have made one file of two.
#[test]
fn a_file_with_two_names_stays_where_a_link_to_either_is_needed() {
    for args in [
        &["rm", "m.onnx"][..],
        &["mv", "m.onnx", "d"],
        &["pack", "m.onnx", "m.onnx", "--delete-old", "--data-name", "new.bin"],
    ] {
        for target in ["a.bin", "b.bin"] {
            let folder = Folder::new();
            fs::create_dir(folder.path("d")).unwrap();
            with_files(&folder, "m.onnx", &["a.bin", "b.bin"]);
            fs::remove_file(folder.path("b.bin")).unwrap();
            fs::hard_link(folder.path("a.bin"), folder.path("b.bin")).unwrap();
            symlink(target, folder.path("l.bin")).unwrap();
            folder.save("n.onnx", &external(&["l.bin"]));
            let before = tensors(&folder.path("n.onnx"));
            let run = folder.run(args);
            assert_eq!(run.code(), 0, "{run:?}");
            assert_eq!(tensors(&folder.path("n.onnx")), before, "{args:?} {target}");
        }
    }
}

#[test]
fn a_hard_link_of_the_model_in_another_case_is_another_model() {
    let folder = Folder::new();
    with_files(&folder, "m.onnx", &["m.onnx.data"]);
    fs::hard_link(folder.path("m.onnx"), folder.path("M.onnx")).unwrap();
    folder.run(&["rm", "m.onnx"]).done().says(&["m.onnx.data: `M.onnx` needs it"]);
    folder.run(&["check", "M.onnx"]).done();

    let folder = Folder::new();
    with_files(&folder, "m.onnx", &["m.onnx.data"]);
    folder.run(&["mv", "m.onnx", "M.onnx"]).done();
    assert_eq!(files(&folder), ["M.onnx", "M.onnx.data"]);
    folder.run(&["mv", "M.onnx", "m.onnx"]).done();
    assert_eq!(files(&folder), ["m.onnx", "m.onnx.data"]);
}

#[test]
fn what_a_model_below_needs_is_not_left_behind() {
    for options in [&["--keep-old"][..], &[], &["--dry-run"]] {
        let folder = Folder::new();
        fs::create_dir(folder.path("sub")).unwrap();
        with_files(&folder, "sub/s.onnx", &["s.bin"]);
        with_files(&folder, "m.onnx", &["own.bin", "sub/s.bin", "sub/own.bin"]);
        let args = [&["embed", "m.onnx", "m.onnx"][..], options].concat();
        let run = folder.run(&args).done();
        assert_eq!(run.stdout().matches("s.bin").count(), 1, "{run:?}");
        run.says(&["own.bin", "stays     sub/s.bin: needed by `sub/s.onnx`; share "]);
        folder.run(&["check", "sub/s.onnx"]).done();
        let own = folder.path("own.bin").exists();
        assert_eq!(own, !options.is_empty(), "{options:?}");
        assert!(folder.path("sub/own.bin").exists());
    }
}

#[test]
fn a_text_is_no_model_to_remove() {
    let folder = Folder::new();
    for text in ["0\n", "x\n", ""] {
        fs::write(folder.path("VERSION"), text).unwrap();
        for args in [&["rm", "VERSION"][..], &["mv", "VERSION", "v"], &["cp", "VERSION", "v"]] {
            assert_eq!(folder.run(args).code(), 1, "{args:?} {text:?}");
        }
        assert!(folder.path("VERSION").exists());
    }
}

/// Two models with a shared file and one of their own each, and a third that only shares.
fn sharing() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for name in ["a.onnx", "b.onnx"] {
        with_files(&folder, name, &["shared.bin", &format!("{name}.data")]);
    }
    folder.save("c.onnx", &external(&["shared.bin"]));
    folder
}

const MOVED: [&str; 6] =
    ["d/a.onnx", "d/a.onnx.data", "d/b.onnx", "d/b.onnx.data", "d/c.onnx", "d/shared.bin"];

#[test]
fn models_that_share_a_file_move_together_or_one_after_the_other() {
    let names = ["a.onnx", "b.onnx", "c.onnx"];
    for together in [true, false] {
        let folder = sharing();
        let inode = |name: &str| fs::metadata(folder.path(name)).unwrap().ino();
        let (before, shared) = (names.map(|name| tensors(&folder.path(name))), inode("shared.bin"));
        if together {
            let args = [&["mv"][..], &names, &["d"]].concat();
            let plan = folder.run(&[&args[..], &["--dry-run"]].concat()).done();
            assert!(!plan.stdout().contains("stays"), "{plan:?}");
            let done = folder.run(&args).done();
            assert!(!done.stdout().contains("copied"), "{done:?}");
            assert_eq!(inode("d/shared.bin"), shared);
        } else {
            for name in names {
                folder.run(&["mv", name, "d"]).done();
            }
        }
        assert_eq!(files(&folder), MOVED, "{together}");
        assert_eq!(names.map(|name| tensors(&folder.path(&format!("d/{name}")))), before);
        assert_eq!(fs::metadata(folder.path("d/shared.bin")).unwrap().nlink(), 1);
    }
}

#[test]
fn models_that_share_a_file_are_copied_together_or_one_after_the_other() {
    let names = ["a.onnx", "b.onnx", "c.onnx"];
    for together in [true, false] {
        let folder = sharing();
        let before = names.map(|name| tensors(&folder.path(name)));
        match together {
            true => drop(folder.run(&[&["cp"][..], &names, &["d"]].concat()).done()),
            false => names.iter().for_each(|name| drop(folder.run(&["cp", name, "d"]).done())),
        }
        assert_eq!(names.map(|name| tensors(&folder.path(&format!("d/{name}")))), before);
        let inode = |name: &str| fs::metadata(folder.path(name)).unwrap().ino();
        assert_ne!(inode("d/shared.bin"), inode("shared.bin"));
    }
    // Another file of this name that a model needs is not replaced.
    let folder = sharing();
    folder.run(&["cp", "a.onnx", "d"]).done();
    fs::write(folder.path("shared.bin"), [9; 16]).unwrap();
    let before = fs::read(folder.path("d/shared.bin")).unwrap();
    for command in ["mv", "cp"] {
        folder.run(&[command, "b.onnx", "d"]).failed(&["a.onnx` refers to this file"]);
        assert_eq!(fs::read(folder.path("d/shared.bin")).unwrap(), before);
    }
}

/// What is replaced, and what is left of it, is said before and after.
#[test]
fn a_replaced_model_is_named_with_what_is_left_of_it() {
    for options in [&["--dry-run", "--keep-old"][..], &["--keep-old"], &[]] {
        let folder = Folder::new();
        with_files(&folder, "new.onnx", &["new.onnx.data"]);
        with_files(&folder, "old.onnx", &["old.bin"]);
        let args = [&["mv", "new.onnx", "old.onnx"][..], options].concat();
        let run = folder.run(&args).done().says(&["old.onnx (replaces a file)", "old.bin"]);
        let is_left = run.stdout().contains("left ");
        assert_eq!(is_left, !options.is_empty(), "{run:?}");
        assert_eq!(folder.path("old.bin").exists(), is_left, "{options:?}");
    }
}

#[test]
fn many_files_take_few_lines() {
    let folder = Folder::new();
    let names: Vec<_> = (0..40).map(|number| format!("w{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    with_files(&folder, "m.onnx", &names);
    let run = folder.run(&["mv", "m.onnx", "n.onnx"]).done().says(&["35 files more (560 B)"]);
    assert!(run.stdout().lines().count() < 10, "{run:?}");
}

#[test]
fn removals_of_several_models_agree() {
    let folder = sharing();
    for options in [&["--dry-run"][..], &[]] {
        let args = [&["rm", "a.onnx", "./a.onnx", "b.onnx", "c.onnx"][..], options].concat();
        let run = folder.run(&args).done();
        assert!(!run.stdout().contains("stays"), "{run:?}");
        assert_eq!(run.stdout().matches("shared.bin").count(), 1, "{run:?}");
    }
    assert_eq!(files(&folder), [""; 0]);
}

#[test]
fn links_that_go_are_said_with_what_stays() {
    let folder = Folder::new();
    for below in ["blobs", "snapshot", "out"] {
        fs::create_dir(folder.path(below)).unwrap();
    }
    folder.save("blobs/1", &external(&["m.onnx_data"]));
    fs::write(folder.path("blobs/2"), [1; 16]).unwrap();
    symlink("../blobs/1", folder.path("snapshot/m.onnx")).unwrap();
    symlink("../blobs/2", folder.path("snapshot/m.onnx_data")).unwrap();
    let run = folder.run(&["mv", "snapshot/m.onnx", "out"]).done();
    run.says(&["2 links; the files that they led to stay"]);
    assert_eq!(files(&folder), ["blobs/1", "blobs/2", "out/m.onnx", "out/m.onnx_data"]);
}

/// One of two moves of a model wins. The other finds no model, and places nothing.
#[test]
fn of_two_moves_at_once_one_is_done() {
    for round in 0..20 {
        let folder = Folder::new();
        with_files(&folder, "m.onnx", &["m.onnx.data"]);
        let begin = |name: &str| {
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("onnx-container"));
            let command = command.args(["mv", "m.onnx", name]).current_dir(folder.path(""));
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        };
        let both = ["j.onnx", "k.onnx"].map(begin);
        let both = both.map(|child| Run::of(child.wait_with_output().unwrap()));
        let done = both.iter().filter(|run| run.code() == 0).count();
        assert_eq!((done, files(&folder).len()), (1, 2), "{round}: {both:?} {:?}", files(&folder));
    }
}

/// The folder that all users share is searched where the model itself is in it.
#[test]
fn weights_below_a_shared_folder_stay_for_the_models_in_it() {
    use std::os::unix::fs::PermissionsExt;
    for args in [&["rm", "m.onnx"][..], &["mv", "m.onnx", "d"]] {
        let folder = Folder::new();
        fs::create_dir(folder.path("d")).unwrap();
        with_files(&folder, "m.onnx", &["w/base", "w/deep/own"]);
        folder.save("n.onnx", &external(&["w/base", "w/deep/own"]));
        fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o1777)).unwrap();
        folder.run(args).done().says(&["w/base: `", "n.onnx` needs it"]);
        folder.run(&["check", "n.onnx"]).done();
    }
}

/// A checkpoint that the model refers to is more than its weights: a file of another name goes only
/// where it holds nothing else.
#[test]
fn old_files_that_hold_more_than_the_model_stay() {
    let names = |folder: &Folder| -> Vec<String> {
        folder.names().into_iter().filter(|name| !name.starts_with("old")).collect()
    };
    let commands: [&[&str]; 3] = [
        &["embed", "m.onnx", "m.onnx"],
        &["pack", "m.onnx", "m.onnx", "--data-name", "new.data", "--delete-old"],
        &["share", "m.onnx", "other.onnx"],
    ];
    for command in commands {
        for (data, extra, goes) in [
            ("checkpoint.safetensors", false, true),
            ("checkpoint.safetensors", true, false),
            ("own.bin", false, true),
            ("own.bin", true, false),
            ("array.npy", true, false),
        ] {
            let folder = crate::jobs::folder();
            folder.run(&["mv", "new.onnx", "other.onnx"]).done();
            let layout = if data.ends_with("safetensors") { "--safetensors" } else { "--dedup" };
            folder.run(&["pack", "old.onnx", "whole.onnx", layout, "--data-name", data]).done();
            let path = folder.path(data);
            if layout == "--safetensors" && extra {
                // The model of half of the tensors.
                let part =
                    ["extract-model", "whole.onnx", "m.onnx", "--inputs", "h", "--outputs", "y"];
                folder.run(&part).done();
                fs::remove_file(folder.path("whole.onnx")).unwrap();
            } else {
                fs::rename(folder.path("whole.onnx"), folder.path("m.onnx")).unwrap();
            }
            if data == "own.bin" && extra {
                let bytes = [fs::read(&path).unwrap(), vec![7; 100_000]].concat();
                fs::write(&path, bytes).unwrap();
            }
            if data == "array.npy" {
                // As where the tensors were an array: another program reads it by its head.
                let mut bytes = fs::read(&path).unwrap();
                bytes[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
                fs::write(&path, bytes).unwrap();
            }
            let run = folder.run(command);
            assert_eq!(run.code(), 0, "{run:?}");
            assert_eq!(path.exists(), !goes, "{command:?} {data} {extra}: {:?}", names(&folder));
        }
    }
}
