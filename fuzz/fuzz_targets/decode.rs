//! Any bytes are a model or an error, and what is read of them can be looked at.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::Buffer;
use onnx_container::proto::{Message, ModelProto, TensorProto};

fuzz_target!(|input: &[u8]| {
    let input = Buffer::from(input);
    if let Err(error) = ModelProto::decode(&input) {
        assert!(error.offset().is_some_and(|at| at <= input.len() as u64), "{error}");
    }
    if let Ok(tensor) = TensorProto::decode(&input) {
        assert_eq!(tensor.int32_data.values().unwrap().len(), tensor.int32_data.len());
        assert_eq!(tensor.int64_data.values().unwrap().len(), tensor.int64_data.len());
        assert_eq!(tensor.uint64_data.values().unwrap().len(), tensor.uint64_data.len());
        assert_eq!(tensor.float_data.values().unwrap().len(), tensor.float_data.len());
        assert_eq!(tensor.double_data.values().unwrap().len(), tensor.double_data.len());
        assert!(!format!("{tensor:?}").is_empty());
    }
});
