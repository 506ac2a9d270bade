//! Models that are published, and what is held to be equal of them.

use std::collections::BTreeMap;

use onnx_container::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use onnx_container::{Container, Initializer, Result};

pub const MIB: usize = 1 << 20;

/// A model with these tensors of bytes, behind handles. The bytes follow from `seed`.
pub fn model(seed: u8, tensors: &[(&str, usize)]) -> Container {
    let mut graph = GraphProto::new("g");
    for (name, len) in tensors {
        let dims = [*len as i64];
        let handle = format!("#{name}");
        graph.initializer.push(TensorProto::external(*name, TensorProto::UINT8, dims, handle));
    }
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    let mut container = Container::new(model);
    for (name, len) in tensors {
        container.insert(&format!("#{name}"), Initializer::from(bytes(seed, *len))).unwrap();
    }
    container
}

/// Bytes that differ at every place from those of the seeds beside it.
pub fn bytes(seed: u8, len: usize) -> Vec<u8> {
    // Of an odd length, so that no two parts are equal.
    let block: Vec<u8> = (0..65_537).map(|at| (at as u8) ^ ((at >> 8) as u8) ^ seed).collect();
    let mut bytes = block.repeat(len.div_ceil(block.len()));
    bytes.truncate(len);
    bytes
}

/// A model with another graph and the same weights.
pub fn renamed(mut container: Container, producer: &str) -> Container {
    container.model_mut().producer_name = Some(producer.into());
    container
}

/// The bytes of every initializer, read now.
pub fn contents(container: &Container) -> Result<BTreeMap<String, Vec<u8>>> {
    let graph = container.model().graph.as_ref().unwrap();
    let names = graph.initializer.iter().map(|tensor| tensor.name.as_ref().unwrap().to_string());
    let bytes = |name: String| {
        let tensor = container.tensor(&name)?;
        Ok((name, tensor.as_bytes().unwrap().to_vec()))
    };
    names.map(bytes).collect()
}

/// Fails where the bytes of a tensor differ.
pub fn assert_same(found: &Container, expected: &Container) {
    let (found, expected) = (contents(found).unwrap(), contents(expected).unwrap());
    assert!(found.keys().eq(expected.keys()), "{:?} {:?}", found.keys(), expected.keys());
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "the bytes of {name} differ");
    }
}

pub fn is_same(found: &Container, expected: &Container) -> bool {
    contents(found).unwrap() == contents(expected).unwrap()
}
