//! Whatever the entries of an external tensor are, no policy but `Trusted` opens a file outside of
//! the model's folder.
#![no_main]

use std::fs::{create_dir, write};
use std::io::Read;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use onnx_container::Buffer;
use onnx_container::external_data::{Directory, ExternalData, PathPolicy, check_location};
use onnx_container::proto::{Message, TensorProto};

const INSIDE: &[u8] = b"inside";

/// A folder with files and links, and a file outside of the folder of the model.
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    create_dir(at("model")).unwrap();
    create_dir(at("model/s")).unwrap();
    write(at("w"), "outside").unwrap();
    write(at("model/w"), INSIDE).unwrap();
    write(at("model/s/w"), INSIDE).unwrap();
    for (target, link) in [("../w", "l"), ("s", "f"), ("..", "u"), ("w", "i"), ("/", "r")] {
        std::os::unix::fs::symlink(target, at("model").join(link)).unwrap();
    }
    folder
});

fuzz_target!(|input: &[u8]| {
    let (text, message) = (str::from_utf8(input), TensorProto::decode(&Buffer::from(input)));
    let data = message.ok().and_then(|tensor| {
        let data = ExternalData::parse(&tensor).ok()?;
        for len in [0, 6, u64::MAX] {
            if let Ok(range) = data.range(len) {
                assert_eq!((range.start, range.end - range.start), (data.offset, len));
            }
        }
        Some(data)
    });
    let named = data.map(|data| data.location);
    for location in text.into_iter().map(str::to_owned).chain(named) {
        for policy in [PathPolicy::Strict, PathPolicy::ModelDirs] {
            let directory = Directory::with_policy(FOLDER.path().join("model"), policy).unwrap();
            let Ok(mut file) = directory.open_file(&location) else { continue };
            assert!(check_location(&location).is_ok());
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, INSIDE, "{location:?}");
        }
    }
});
