//! Any tensor message is a tensor or an error, and a tensor is the same when it has been written
//! and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::proto::{Message, TensorProto};
use onnx_container::{Buffer, Tensor};

fuzz_target!(|input: &[u8]| {
    let Ok(message) = TensorProto::decode(&Buffer::from(input)) else { return };
    let Ok(tensor) = Tensor::try_from(&message) else { return };
    assert_eq!(tensor.dims(), message.dims);
    let elements: usize = tensor.shape().iter().product();
    assert_eq!(tensor.element_count(), elements);
    // No declared shape makes more of a message than its fields hold, up to the eight bytes of an
    // element that takes one byte of a field.
    assert!(tensor.byte_len() <= 8 * input.len(), "{} bytes", tensor.byte_len());
    let again = Tensor::try_from(&tensor.to_proto("w")).expect("what was written is read");
    assert_eq!((again.dtype(), again.dims()), (tensor.dtype(), tensor.dims()));
    assert_eq!((again.as_bytes(), again.strings()), (tensor.as_bytes(), tensor.strings()));
    let _ = (tensor.unpack(), tensor.unpack_signed(), tensor.padding_is_zero());
});
