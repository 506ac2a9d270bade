//! Whatever a journal says, recovery touches nothing outside of the folder, nothing that the
//! journal does not know, and no folder with what is in it; a second one finds nothing to do.
#![no_main]

use std::collections::BTreeMap;
use std::fs::{File, create_dir_all, read, read_dir, remove_file, write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use libfuzzer_sys::fuzz_target;
use onnx_container::recovery::recover;

const STAGING: &str = ".m.onnx.saving-aB3xYz";

/// Makes a file of the length and the time that the journals of the corpus name: `4 1000000000` and
/// `5 1000000000`.
fn make(path: &Path, text: &str) {
    write(path, text).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1)).unwrap();
}

/// Makes a folder in the place of a file, of the time that the journals name. Its length is that of
/// most file systems, 4096.
fn make_folder(path: &Path) {
    let _ = remove_file(path);
    create_dir_all(path.join("inside")).unwrap();
    write(path.join("inside/kept"), "kept").unwrap();
    File::open(path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1)).unwrap();
}

/// How many files there are in folders that no save makes.
fn kept(folder: &Path) -> usize {
    let mut all = BTreeMap::new();
    contents(folder, &mut all);
    all.get(&b"kept"[..]).copied().unwrap_or_default()
}

/// The contents of all files beneath `folder`, counted.
fn contents(folder: &Path, all: &mut BTreeMap<Vec<u8>, usize>) {
    for entry in read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            contents(&entry.path(), all);
        } else {
            *all.entry(read(entry.path()).unwrap()).or_default() += 1;
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    for part in ["old", "new"] {
        create_dir_all(folder.join(STAGING).join(part)).unwrap();
    }
    write(root.path().join("outside"), "outside").unwrap();
    let choice = input.first().copied().unwrap_or_default();
    for (number, name) in ["w", "m.onnx", "other"].into_iter().enumerate() {
        let is_there = choice >> number & 1 == 0;
        let moved_away = choice >> (number + 3) & 1 == 1;
        if is_there || name == "other" {
            make(&folder.join(name), if moved_away { "newer" } else { "file" });
        }
        if moved_away {
            make(&folder.join(STAGING).join("old").join(name), "file");
        } else if choice >> 6 & 1 == 0 {
            make(&folder.join(STAGING).join("new").join(name), "newer");
        }
    }
    let mut journal = input.get(1..).unwrap_or_default();
    if let Some((folders, rest)) = journal.split_first().filter(|_| choice >> 7 == 1) {
        journal = rest;
        let parts = ["", STAGING, &format!("{STAGING}/new"), &format!("{STAGING}/old")];
        for (number, part) in parts.into_iter().enumerate() {
            for (more, name) in ["w", "m.onnx"].into_iter().enumerate() {
                if folders >> (2 * number + more) & 1 == 1 {
                    make_folder(&folder.join(part).join(name));
                }
            }
        }
    }
    write(folder.join(".m.onnx.switching"), journal).unwrap();
    let folders = kept(&folder);
    let _ = recover(&folder).unwrap();
    assert_eq!(kept(&folder), folders);
    assert_eq!(read(root.path().join("outside")).unwrap(), b"outside");
    assert_eq!(read_dir(root.path()).unwrap().count(), 2);
    assert!(folder.join("other").is_file());
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    contents(&folder, &mut before);
    let again = recover(&folder).unwrap();
    assert!(again.finished.is_empty() && again.undone.is_empty(), "{again:?}");
    contents(&folder, &mut after);
    assert_eq!(before, after);
});
