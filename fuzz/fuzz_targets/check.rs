//! Any bytes in the place of a model are checked, and where nothing is wrong the model loads.
#![no_main]

use std::fs::write;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use onnx_container::check::{CheckOptions, check_model};
use onnx_container::{Container, ErrorKind, MmapChoice};

/// A folder with files that models may name.
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for name in ["w", "w.bin", "m.onnx.data"] {
        write(folder.path().join(name), [1; 4096]).unwrap();
    }
    folder
});

fuzz_target!(|input: &[u8]| {
    let path = FOLDER.path().join("m.onnx");
    write(&path, input).unwrap();
    let options = CheckOptions::from(MmapChoice::never()).contents(true).digests(true);
    let (checked, loaded) =
        (check_model(&path, options), Container::load(&path, MmapChoice::never()));
    match (checked, loaded) {
        (Ok(checked), Err(error)) => assert!(!checked.is_ok(), "{error}"),
        (Err(checked), Ok(_)) => panic!("{checked}"),
        (Err(checked), Err(_)) => assert_ne!(checked.kind(), ErrorKind::Internal, "{checked}"),
        (Ok(_), Ok(_)) => {}
    }
});
