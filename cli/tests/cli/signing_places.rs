//! `sign` and `verify-signature` in folders: what killed commands left there, whole folders, several models, links, and
//! where signatures are put.

use std::fs;

use crate::leftovers::{interrupt, interrupt_switch};
use crate::signing::{folder, sign, verify};
use crate::support::Folder;

/// A folder with keys and a packed model at its top, signed.
fn packed() -> Folder {
    let folder = Folder::packed();
    crate::signing::make_keys(&folder);
    fs::remove_dir_all(folder.path("m")).ok();
    folder.run(&["sign", "p.onnx", "--key", "keys/P-256.pem", "-o", "keys/p.sig"]).done();
    folder
}

const VERIFY: [&str; 7] = [
    "verify-signature",
    "p.onnx",
    "--key",
    "keys/P-256.pub",
    "-s",
    "keys/p.sig",
    "--ignore-unsigned-files",
];

#[test]
fn a_verification_completes_an_interrupted_save() {
    let folder = packed();
    interrupt_switch(&folder);
    let run = folder.run(&VERIFY);
    let said = "warning: a save of `p.onnx` was interrupted; it is complete now";
    assert_eq!((run.code(), run.stderr().contains(said)), (0, true), "{run:?}");
    folder.run(&VERIFY).done();
    assert!(!folder.path(".p.onnx.switching").exists());
}

#[test]
fn what_an_interrupted_save_left_is_neither_signed_nor_verified() {
    let folder = packed();
    let all = ["sign", "p.onnx", "--key", "keys/P-256.pem", "--all-files"];
    folder.run(&all).done();
    interrupt(&folder);
    folder
        .run(&all)
        .failed(&["has what an interrupted save left: run `onnx-container recover .`, then sign"]);
    let model = ["verify-signature", "p.onnx", "--key", "keys/P-256.pub"];
    folder.run(&model).failed(&[]).says(&[
        "unsigned `.p.onnx.saving-aB3xYz/new/p.onnx`",
        "an interrupted save left",
        "`onnx-container recover .` removes it",
    ]);
    let whole = ["verify-signature", ".", "--key", "keys/P-256.pub"];
    folder.run(&whole).failed(&[
        "has what an interrupted save left: run `onnx-container recover .`, then verify",
    ]);
    folder.run(&["recover", "."]).done();
    folder.run(&all).done();
    folder.run(&model).done();
    folder.run(&whole).done();
}

#[test]
fn files_of_a_killed_signing_are_removed_unless_a_process_holds_them() {
    let folder = folder();
    let left = |name: &str| fs::write(folder.path(name), "{}").unwrap();
    sign(&folder, &["--all-files"]).done();
    left("m/.signing-aB3xYz");
    let run = verify(&folder, &[]).failed(&[]);
    run.says(&["unsigned `.signing-aB3xYz`: a `sign` that was killed left it:", "recover m"]);
    sign(&folder, &["--all-files"]).done();
    verify(&folder, &[]).done();
    assert!(!folder.path("m/.signing-aB3xYz").exists());

    left("m/.signing-aB3xYz");
    left("m/.signing-other");
    folder.run(&["recover", "m"]).done().says(&["removed    1 file of a `sign` that was killed"]);
    let json = folder.run(&["recover", "m", "--json"]).done().json();
    assert_eq!(json["removed_signing"], 0);
    assert!(folder.path("m/.signing-other").exists());
    fs::remove_file(folder.path("m/.signing-other")).unwrap();

    // One that a process holds is left, and is not signed.
    left("m/.signing-aB3xYz");
    let held = fs::File::open(folder.path("m/.signing-aB3xYz")).unwrap();
    held.lock().unwrap();
    folder.run(&["recover", "m"]).done().says(&["nothing to recover"]);
    sign(&folder, &["--all-files"]).done();
    assert!(folder.path("m/.signing-aB3xYz").exists());
    drop(held);
    folder.run(&["recover", "m"]).done();
    verify(&folder, &[]).done();
}
