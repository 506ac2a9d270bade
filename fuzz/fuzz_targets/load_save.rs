//! A model that is loaded contains the same after it was saved in any layout.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::edit::ExternalizeOptions;
use onnx_container::save::Parts;
use onnx_container::{Buffer, Container, Error, ErrorKind, LoadOptions, SaveOptions, WeightFiles};

const LAYOUTS: [WeightFiles; 5] = [
    WeightFiles::Packed,
    WeightFiles::Balanced { files: 3 },
    WeightFiles::PerTensor,
    WeightFiles::Safetensors,
    WeightFiles::Embedded,
];

fn is_ours(error: &Error) {
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
}

fuzz_target!(|input: &[u8]| {
    let files = ["w", "w.bin", "m.onnx.data"].map(|name| (name, Buffer::from(vec![1_u8; 4096])));
    let options = LoadOptions::new().files(files);
    let mut container = match Container::load_bytes(Buffer::from(input), options) {
        Ok(container) => container,
        Err(error) => return is_ours(&error),
    };
    let digest = container.digest().inspect_err(is_ours).ok();
    let options = ExternalizeOptions::from(u64::from(input.first().copied().unwrap_or(0)) % 64);
    if let Err(error) = container.externalize(options.all_tensors(input.len() % 2 == 0)) {
        is_ours(&error);
    }
    for layout in LAYOUTS {
        let Parts { model, files, .. } = match container.to_parts(SaveOptions::from(layout)) {
            Ok(parts) => parts,
            Err(error) => {
                is_ours(&error);
                continue;
            }
        };
        let again = Container::load_bytes(model, LoadOptions::new().files(files));
        let again = again.expect("what was saved is loaded");
        if let Some(digest) = &digest {
            assert_eq!(again.digest().unwrap().to_string(), digest.to_string());
        }
    }
});
