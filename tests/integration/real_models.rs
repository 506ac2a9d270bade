//! Models of other projects: those in Python wheels and in the shared data, where they are
//! installed.

use std::fs;

use onnx_container::proto::{Message, ModelProto};
use onnx_container::{Buffer, Container, ErrorKind, SaveOptions, WeightFiles};

use crate::support::{all_bytes, assert_same_meaning, both_choices, real_models};

#[test]
fn every_file_is_written_as_it_was_read() {
    for path in real_models() {
        let bytes = fs::read(&path).unwrap();
        let model = ModelProto::decode(&Buffer::from(bytes.clone())).unwrap();
        assert!(model.encode_to_vec().unwrap() == bytes, "{} is not the same", path.display());
    }
}

/// Models of the shared data whose weights files are kept elsewhere, and structures of PyTorch
/// modules.
const WITHOUT_FILES: [&str; 4] = [
    "yobx_phi4_one_file.onnx",
    "yobx_layernorm_weight_files.onnx",
    "structure.onnx",
    "optimized.onnx",
];
/// Models whose initializers were emptied.
const WITHOUT_WEIGHTS: [&str; 2] =
    ["dynamo_resnet18_functions.onnx", "dynamo_speech2text2_functions.onnx"];

#[test]
fn every_layout_holds_the_same_tensors() {
    let mmap = both_choices()[0];
    // The wheels' test data repeat themselves: a node model is a few hundred bytes.
    for path in real_models().iter().filter(|path| !path.ends_with("model.onnx") || large(path)) {
        let name = path.file_name().unwrap().to_string_lossy();
        let mut container = match Container::load(path, mmap) {
            Ok(container) => container,
            Err(error) => {
                assert!(
                    WITHOUT_FILES.contains(&&*name),
                    "{} does not load: {error}",
                    path.display()
                );
                assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
                continue;
            }
        };
        let moved = container.externalize(1024);
        if WITHOUT_WEIGHTS.contains(&&*name) {
            assert_eq!(moved.unwrap_err().kind(), ErrorKind::Shape);
            continue;
        }
        moved.unwrap();
        let bytes = all_bytes(&container);
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("m.onnx");
        for weight_files in [
            WeightFiles::Packed,
            WeightFiles::PerTensor,
            WeightFiles::Sharded { max_bytes: 1000 },
            #[cfg(feature = "safetensors")]
            WeightFiles::Safetensors,
            WeightFiles::Embedded,
        ] {
            let options = SaveOptions::from(weight_files).data_name("w.bin").sync(false);
            container.save(&target, options).unwrap();
            let loaded = Container::load(&target, mmap).unwrap();
            assert!(all_bytes(&loaded) == bytes, "{} {weight_files:?}", path.display());
            assert_same_meaning(&loaded, &container);
        }
    }
}

fn large(path: &std::path::Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() > 8192)
}
