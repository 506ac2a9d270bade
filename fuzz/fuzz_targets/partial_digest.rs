//! The JSON of a partial digest is read or refused; what is read is the same when it is written,
//! and beside all parts of a model it changes nothing of the digest of that.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onnx_container::digest::PartialDigest;
use onnx_container::proto::{GraphProto, ModelProto};
use onnx_container::{Container, ErrorKind, Part, Tensor};

/// More parts than the model has tensors.
const MOST: usize = 4;

/// The model that the seeds are parts of.
fn model() -> Container {
    let mut graph = GraphProto::new("g");
    for name in ["a", "b", "c"] {
        graph.initializer.push(Tensor::from(vec![1.0_f32, 3.0]).to_proto(name));
    }
    Container::new(ModelProto::new(graph))
}

fuzz_target!(|text: &str| {
    let partial = match PartialDigest::from_json(text) {
        Ok(partial) => partial,
        Err(error) => {
            assert!([ErrorKind::Decode, ErrorKind::Unsupported].contains(&error.kind()), "{error}");
            return;
        }
    };
    assert_eq!(PartialDigest::from_json(&partial.to_json().unwrap()).unwrap(), partial);
    assert!(partial.part().number() < partial.part().of());
    assert_eq!(partial.is_empty(), partial.len() == 0);
    let (container, of) = (model(), partial.part().of());
    let numbers = (0..of).take(MOST);
    let parts = numbers.map(|it| container.partial_digest(Part::new(it, of).unwrap()).unwrap());
    // Beside all parts of the model it says the same as they do, or is refused.
    if let Ok(digest) = container.digest_of_parts(parts.chain([partial])) {
        assert_eq!(digest, container.digest().unwrap());
    }
});
