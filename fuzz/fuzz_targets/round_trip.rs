//! What is read is written so that it reads the same, and then stays as it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::Buffer;
use onnx_container::proto::{Message, ModelProto};

fuzz_target!(|input: &[u8]| {
    let Ok(model) = ModelProto::decode(&Buffer::from(input)) else { return };
    let written = model.encode_to_vec().unwrap();
    assert_eq!(model.encoded_len(), written.len() as u64);
    let mut streamed = Vec::new();
    model.encode(&mut streamed).unwrap();
    assert_eq!(streamed, written);
    let again = ModelProto::decode(&Buffer::from(written.clone())).unwrap();
    assert_eq!(again.encode_to_vec().unwrap(), written);
});
