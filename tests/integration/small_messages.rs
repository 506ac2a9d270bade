//! Many empty messages, which take two bytes each of a file and a hundred times as much of memory.

use onnx_container::load::Limit;
use onnx_container::proto::{
    DecodeOptions, Message, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Buffer, Container, ErrorKind, Limits, LoadOptions};

use crate::support::{graph, model, node};

/// A record with a length prefix.
fn record(field: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![field << 3 | 2];
    let mut len = payload.len();
    while len > 0x7f {
        bytes.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes.extend(payload);
    bytes
}

/// The empty message in this field, as often as it fits into 4 MiB.
fn many(field: u8) -> Vec<u8> {
    record(field, &[]).repeat(2 << 20)
}

/// Empty messages wherever there are lists of messages: fields of the model, the graph, a node, an
/// attribute.
fn cases() -> Vec<Vec<u8>> {
    let of_graph = |payload: &[u8]| record(7, payload);
    let of_node = |payload: &[u8]| of_graph(&record(1, payload));
    let of_attribute = |payload: &[u8]| of_node(&record(5, payload));
    let model = [8, 14].map(many);
    let graph = [1, 5, 11, 12, 13, 14, 15].map(|field| of_graph(&many(field)));
    let node = [5, 9].map(|field| of_node(&many(field)));
    let attribute = [10, 11].map(|field| of_attribute(&many(field)));
    // A record of an unknown field in each of many nodes.
    let unknown = of_graph(&record(1, &record(15, &[])).repeat(1 << 20));
    model.into_iter().chain(graph).chain(node).chain(attribute).chain([unknown]).collect()
}

#[test]
fn they_are_refused_unless_more_memory_is_allowed() {
    for (number, bytes) in cases().into_iter().enumerate() {
        let bytes = Buffer::from(bytes);
        let options = DecodeOptions::new().threads(1 + number % 2);
        let error = ModelProto::decode_with(&bytes, &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "case {number}: {error}");
        assert!(error.offset().is_some_and(|at| at <= bytes.len() as u64), "case {number}");
    }
    // One of them is enough to see that the limit can be raised.
    let bytes = Buffer::from(record(7, &many(13)));
    let load = |options| Container::load_bytes(bytes.clone(), options);
    assert_eq!(load(LoadOptions::new()).unwrap_err().kind(), ErrorKind::TooLarge);
    assert!(load(LoadOptions::new().limits(Limits::new().with(Limit::Memory, 1 << 30))).is_ok());
}

#[test]
fn graphs_of_small_nodes_tensors_and_values_are_not_too_large() {
    let nodes: Vec<NodeProto> = (0..200_000)
        .map(|i| node("Relu", &[&format!("h.{i}")], &[&format!("h.{}", i + 1)], vec![]))
        .collect();
    let tensors: Vec<_> = (0..50_000)
        .map(|i| {
            TensorProto::new(&*format!("w{i}"), TensorProto::FLOAT, [1]).with_raw_data(vec![0; 4])
        })
        .collect();
    let bytes = model(graph(tensors, nodes)).encode_to_vec().unwrap();
    assert!(bytes.len() < 7 << 20, "{} bytes", bytes.len());
    // As old exporters call values, with the shapes that shape inference writes.
    let mut inferred = graph(vec![], vec![]);
    let dims = [1, 3, 224, 224];
    inferred.value_info = (0..500_000)
        .map(|i| ValueInfoProto::tensor(&*i.to_string(), TensorProto::FLOAT, dims))
        .collect();
    let inferred = model(inferred).encode_to_vec().unwrap();
    for bytes in [bytes, inferred].map(Buffer::from) {
        for threads in [1, 2] {
            let options = DecodeOptions::new().threads(threads);
            ModelProto::decode_with(&bytes, &options).unwrap();
        }
    }
}
