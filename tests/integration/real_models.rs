//! Models that nobody here made: the wheels' and the shared data's, where they are at hand.

use std::fs;

use onnx_container::external_data::is_external;
use onnx_container::proto::{Message, ModelProto};
use onnx_container::{Buffer, Container, LoadOptions, WeightFiles, traversal};

use crate::support::{all_bytes, both_choices, real_models};

#[test]
fn every_file_is_written_as_it_was_read() {
    for path in real_models() {
        let bytes = fs::read(&path).unwrap();
        let model = ModelProto::decode(&Buffer::from(bytes.clone())).unwrap();
        assert!(model.encode_to_vec().unwrap() == bytes, "{} is not the same", path.display());
    }
}

#[test]
fn every_layout_holds_the_same_tensors() {
    let mmap = both_choices()[0];
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("m.onnx");
    // The wheels' test data repeat themselves: a node model is a few hundred bytes.
    for path in real_models().iter().filter(|path| !path.ends_with("model.onnx") || large(path)) {
        let Ok(mut container) = Container::load(path, mmap) else {
            let structure = Container::load(path, LoadOptions::new().weights(false)).unwrap();
            assert!(has_external(structure.model()), "{} does not load", path.display());
            continue;
        };
        let Ok(before) = container.embed() else { panic!("{} does not embed", path.display()) };
        let stripped = container.externalize(1024).is_err();
        if stripped {
            continue;
        }
        let bytes = all_bytes(&container);
        for weight_files in [WeightFiles::One, WeightFiles::PerTensor, WeightFiles::Embedded] {
            container
                .save(&target, onnx_container::SaveOptions::from(weight_files).sync(false))
                .unwrap();
            let loaded = Container::load(&target, mmap).unwrap();
            assert!(all_bytes(&loaded) == bytes, "{} {weight_files:?}", path.display());
            let _ = &before;
        }
    }
}

fn large(path: &std::path::Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() > 8192)
}

fn has_external(model: &ModelProto) -> bool {
    let mut found = false;
    traversal::tensors(model, |_, tensor| {
        found |= is_external(tensor);
        Ok(())
    })
    .unwrap();
    found
}
