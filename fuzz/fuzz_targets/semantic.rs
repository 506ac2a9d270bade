//! Any model has a digest or none, and the same one when it has been written and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::Container;
use onnx_container::proto::Message;
use onnx_container_fuzz::{decode, mutate_models};

mutate_models!();

fuzz_target!(|input: &[u8]| {
    let Some(model) = decode(input) else { return };
    let written = model.encode_to_vec().unwrap();
    let first = Container::new(model);
    let again = Container::new(decode(&written).expect("what was written is read"));
    match (first.semantic_digest(), again.semantic_digest()) {
        (Ok(first_digest), Ok(digest)) => {
            assert_eq!(first_digest.as_bytes(), digest.as_bytes());
            assert!(first.semantic_difference(&again).unwrap().is_none());
        }
        (Err(first), Err(again)) => assert_eq!(first.to_string(), again.to_string()),
        (first, again) => panic!("{first:?} and then {again:?}"),
    }
});
