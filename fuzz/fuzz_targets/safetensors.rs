//! Any bytes are weights or an error, and weights are what the official parser sees too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::{Buffer, safetensors::load_bytes};
use safetensors::SafeTensors;

fuzz_target!(|input: &[u8]| {
    let Ok(weights) = load_bytes(Buffer::from(input)) else { return };
    let official = SafeTensors::deserialize(input).expect("taken here, refused there");
    for (name, tensor) in weights.iter() {
        let entry = official.tensor(name).expect("an entry of the file");
        assert_eq!(tensor.as_bytes(), Some(entry.data()));
        assert_eq!(tensor.shape(), entry.shape());
    }
    assert!(weights.len() <= official.len());
});
