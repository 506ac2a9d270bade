//! The JSON of a job, or of a receipt, is read or refused; what is read is the same when it is
//! written, and has all tensors within its files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::job::{Job, Receipt};

fuzz_target!(|text: &str| {
    if let Ok(receipt) = Receipt::from_json(text) {
        assert_eq!(Receipt::from_json(&receipt.to_json().unwrap()).unwrap(), receipt);
    }
    let Ok(job) = Job::from_json(text) else { return };
    assert_eq!(Job::from_json(&job.to_json().unwrap()).unwrap(), job);
    let files = job.files();
    for tensor in job.tensors() {
        assert!(tensor.offset + tensor.byte_len().unwrap() <= files[tensor.file].bytes);
    }
    assert!(job.folder().parent() == job.path().parent());
});
