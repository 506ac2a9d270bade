//! Files, links and folders that are swapped while a model is loaded: no load gets bytes from
//! outside.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onnx_container::external_data::PathPolicy;
use onnx_container::proto::{Message, StringStringEntryProto, TensorProto};
use onnx_container::{Container, LoadOptions, MmapChoice};

use crate::support::{all_bytes, graph, model};

const ROUNDS: usize = 10_000;
const INSIDE: [u8; 16] = [1; 16];

/// Renames each of the names over `name`, in turn, until `stop`. A folder cannot replace another
/// kind of entry, so `name` is moved away first.
fn swap(folder: &Path, name: &str, sources: &[&str], stop: &AtomicBool) {
    let (at, away) = (folder.join(name), folder.join(format!("away_{name}")));
    while !stop.load(Ordering::Relaxed) {
        for source in sources {
            let source = folder.join(source);
            let _ = fs::rename(&at, &away);
            let _ = fs::rename(&source, &at);
            let _ = fs::rename(&at, &source);
            let _ = fs::rename(&away, &at);
        }
    }
}

#[test]
fn what_is_swapped_meanwhile_leads_nowhere() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for folder in ["model", "model/sub", "model/other", "secret"] {
        fs::create_dir(at(folder)).unwrap();
    }
    for inside in ["model/sub/w", "model/other/w", "model/file", "model/w"] {
        fs::write(at(inside), INSIDE).unwrap();
    }
    fs::write(at("secret/w"), [7; 16]).unwrap();
    for (target, link) in [
        ("../secret", "model/folder_out"),
        ("other", "model/folder_in"),
        ("../secret/w", "model/file_out"),
        ("sub/w", "model/file_in"),
        ("../model/sub/w", "model/out_and_in"),
    ] {
        symlink(target, at(link)).unwrap();
    }
    let of = |location: &str| {
        let mut tensor = TensorProto::external("w", TensorProto::UINT8, [16], location);
        tensor.external_data.push(StringStringEntryProto::new("length", "16"));
        let path = at(&format!("model/{}.onnx", location.replace('/', "_")));
        let model = model(graph(vec![tensor], vec![])).encode_to_vec().unwrap();
        fs::write(&path, model).unwrap();
        path
    };
    let models = [of("sub/w"), of("w"), of("out_and_in")];
    let (stop, loaded) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (folder, stop) = (at("model"), &stop);
        let swap = |name, sources| {
            let folder = folder.clone();
            scope.spawn(move || swap(&folder, name, sources, stop));
        };
        swap("sub", &["folder_out", "folder_in", "other"]);
        swap("w", &["file_out", "file_in", "file"]);
        for round in 0..ROUNDS {
            let path = &models[round % models.len()];
            let policy = [PathPolicy::Strict, PathPolicy::ModelDirs][round / 3 % 2];
            let options = LoadOptions::from(MmapChoice::never()).paths(policy);
            // What is away is an error.
            if let Ok(container) = Container::load(path, options) {
                assert_eq!(*all_bytes(&container)[0], INSIDE, "{path:?} {policy:?}");
                loaded.fetch_add(1, Ordering::Relaxed);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let loaded = loaded.into_inner();
    assert!(loaded > 0 && loaded < ROUNDS, "{loaded} of {ROUNDS} loads met the files");
}
