//! Any model is inlined or refused, within its limit; what is refused is left as it was, and what
//! was inlined is still a model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::Buffer;
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::proto::{Message, ModelProto};

/// Few, so that growth is met soon.
const NODES: u64 = 2000;

fuzz_target!(|input: &[u8]| {
    let Ok(model) = ModelProto::decode(&Buffer::from(input)) else { return };
    let functions = model.functions.len();
    let mut inlined = model.clone();
    let options = InlineOptions::new().max_nodes(NODES);
    match inline_functions(&mut inlined, options) {
        Ok(done) => {
            assert_eq!(done.removed.len() + inlined.functions.len(), functions);
            let bytes = inlined.encode_to_vec().unwrap();
            ModelProto::decode(&bytes.into()).unwrap();
        }
        Err(_) => assert!(inlined.encode_to_vec().unwrap() == model.encode_to_vec().unwrap()),
    }
    let _ = inline_functions(&mut model.clone(), InlineOptions::new().only(["f"]).max_nodes(NODES));
});
