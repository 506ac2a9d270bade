//! Saves to places that fail half way: files that may not grow, a disk that is full, folders that
//! vanish.

#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onnx_container::recovery::recover;

use crate::support::{Folder, Run, floats, model};

/// A folder with `new.onnx` and, in `out`, the pair `m.onnx` and `m.onnx.data`; returns it with
/// their digests.
fn with_pair() -> (Folder, [String; 2]) {
    let folder = Folder::new();
    folder.save("old.onnx", &model());
    let mut new = model();
    new.graph.as_mut().unwrap().initializer.push(floats("more", 2000));
    folder.save("new.onnx", &new);
    fs::create_dir(folder.path("out")).unwrap();
    folder.run(&["pack", "old.onnx", "out/m.onnx"]).done();
    let digests = ["old.onnx", "new.onnx"].map(|name| digest(&folder, name).unwrap());
    (folder, digests)
}

fn digest(folder: &Folder, name: &str) -> Option<String> {
    let run = folder.run(&["digest", name]);
    (run.code() == 0).then(|| run.stdout().split_whitespace().next().unwrap().to_owned())
}

fn hidden(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with('.')).collect()
}

/// Packs `new.onnx` to `out/m.onnx` in a process whose files grow to `blocks` of 512 bytes, where a
/// write ends in the middle, and no further.
fn pack_up_to(folder: &Folder, blocks: usize) -> Run {
    let binary = assert_cmd::cargo::cargo_bin!("onnx-container");
    let mut command = Command::new("/bin/sh");
    let line = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    command.args(["-c", &line]).arg(binary).args(["pack", "new.onnx", "out/m.onnx"]);
    Run::of(command.current_dir(folder.path("")).output().unwrap())
}

#[test]
fn a_file_that_may_not_grow_leaves_the_old_model() {
    let (folder, [old, new]) = with_pair();
    let mut failures = 0;
    for blocks in 0.. {
        let run = pack_up_to(&folder, blocks);
        assert_eq!(hidden(&folder.path("out")), [""; 0], "{blocks}: {run:?}");
        if run.code() == 0 {
            assert_eq!(digest(&folder, "out/m.onnx"), Some(new));
            break;
        }
        assert!(run.code() == 1 && !run.stderr().is_empty(), "{blocks}: {run:?}");
        assert_eq!(digest(&folder, "out/m.onnx").as_ref(), Some(&old), "{blocks}: {run:?}");
        failures += 1;
    }
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_folder_that_vanishes_has_the_old_model_or_the_new_one() {
    let (folder, [old, new]) = with_pair();
    let stop = AtomicBool::new(false);
    // The folder stays longer and longer, so that a save is done on a slow machine too.
    let stays = AtomicU64::new(2);
    let (mut failures, mut saves) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs::rename(folder.path("out"), folder.path("away")).unwrap();
                std::thread::sleep(Duration::from_micros(200));
                fs::rename(folder.path("away"), folder.path("out")).unwrap();
                std::thread::sleep(Duration::from_millis(stays.load(Ordering::Relaxed)));
            }
        });
        for round in 0..60 {
            stays.store(2 + round, Ordering::Relaxed);
            match folder.run(&["pack", "new.onnx", "out/m.onnx", "--no-sync"]).code() {
                0 => saves += 1,
                _ => failures += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let found = digest(&folder, "out/m.onnx");
    assert!(found.as_ref() == Some(&new) || found == Some(old), "{found:?}");
    let recovery = recover(folder.path("out")).unwrap();
    assert!(recovery.errors.is_empty(), "{recovery:?}");
    assert_eq!(hidden(&folder.path("out")), [""; 0]);
    assert!(saves > 0, "{failures} failures");
}

/// A file system that is full, as `scripts/test.sh` mounts one.
#[test]
fn a_disk_that_is_full_keeps_the_old_model() {
    let Some(disk) = std::env::var_os("ONNX_CONTAINER_SMALL_DISK") else {
        println!("!!! SKIPPED: no small disk in ONNX_CONTAINER_SMALL_DISK");
        return;
    };
    let (folder, [old, new]) = with_pair();
    let target = Path::new(&disk).join("m.onnx");
    let target = target.to_str().unwrap();
    let filler = Path::new(&disk).join("filler");
    removal_needs_no_room(&folder, target, &filler);
    folder.run(&["pack", "old.onnx", target]).done();
    // From no space at all to enough of it.
    for free in (0..64).map(|pages| pages * 4096) {
        let _ = fs::remove_file(&filler);
        fill(&filler, free);
        let run = folder.run(&["pack", "new.onnx", target]);
        assert_eq!(hidden(Path::new(&disk)), [""; 0], "{free} free: {run:?}");
        let expected = if run.code() == 0 { &new } else { &old };
        assert_eq!(digest(&folder, target).as_ref(), Some(expected), "{free} free: {run:?}");
        if run.code() == 0 {
            assert!(free > 0, "the disk was not full");
            return;
        }
    }
    panic!("a save to a disk with space does not work");
}

/// A model is removed where there is no room at all: that is when people remove one.
fn removal_needs_no_room(folder: &Folder, target: &str, filler: &Path) {
    folder.run(&["pack", "old.onnx", target]).done();
    fill(filler, 0);
    let run = folder.run(&["rm", target]);
    assert_eq!(run.code(), 0, "{run:?}");
    let left = fs::read_dir(filler.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "{run:?}");
    fs::remove_file(filler).unwrap();
}

/// Fills the disk of `path` up to about `free` bytes.
fn fill(path: &Path, free: u64) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    while file.write(&[0; 4096]).is_ok_and(|count| count > 0) {}
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(free)).unwrap();
}
