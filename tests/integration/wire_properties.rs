//! Properties of decoding and encoding that hold for every message.
//!
//! Messages are made from the table itself: random records of random fields, in any order, in
//! either form where there are two, with unknown ones among them.

use onnx_container::Buffer;
use onnx_container::proto::{
    AttributeProto, DecodeOptions, FunctionProto, GraphProto, MESSAGES, Message, ModelProto,
    NodeProto, TensorProto, TypeProto,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// What one record is made from; what it means depends on the message.
type Seed = (usize, u64, Vec<u8>, Vec<usize>);

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    let numbers = prop_oneof![0..300_u64, any::<u64>(), Just(u64::MAX)];
    let bytes = vec(any::<u8>(), 0..20);
    vec((any::<usize>(), numbers, bytes, vec(any::<usize>(), 0..4)), 0..24)
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn delimited(out: &mut Vec<u8>, number: u32, payload: &[u8]) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, payload.len() as u64);
    out.extend(payload);
}

/// A value in its wire type and form; a NaN would not equal itself.
fn scalar(out: &mut Vec<u8>, kind: &str, value: u64) -> Option<u64> {
    match kind {
        "float" => out.extend((value as f32).to_le_bytes()),
        "double" => out.extend((value as f64).to_le_bytes()),
        "int32" => varint(out, i64::from(value as i32).cast_unsigned()),
        "int64" | "uint64" => varint(out, value),
        _ => return None,
    }
    Some(match kind {
        "float" => 5,
        "double" => 1,
        _ => 0,
    })
}

/// The bytes of a `message` made from `seeds`, which it uses up.
fn message(name: &str, seeds: &mut Vec<Seed>, depth: usize) -> Vec<u8> {
    let (_, fields) = MESSAGES.iter().find(|(message, _)| *message == name).unwrap();
    let mut out = Vec::new();
    while let Some((choice, value, bytes, more)) = seeds.pop() {
        let Some(field) = fields.get(choice % (fields.len() + 2)) else {
            if choice % 5 == 0 {
                return out;
            }
            delimited(&mut out, 150 + (choice % 50) as u32, &bytes);
            continue;
        };
        let mut one = Vec::new();
        if let Some(wire) = scalar(&mut one, field.kind, value) {
            if more.len() > 1 && format!("{:?}", field.label) == "Repeated" {
                for value in more {
                    scalar(&mut one, field.kind, value as u64);
                }
                delimited(&mut out, field.number, &one);
            } else {
                varint(&mut out, u64::from(field.number) << 3 | wire);
                out.extend(one);
            }
        } else if matches!(field.kind, "string" | "bytes") {
            delimited(&mut out, field.number, &bytes);
        } else if depth < 12 {
            let inner = message(field.kind, seeds, depth + 1);
            delimited(&mut out, field.number, &inner);
        }
    }
    out
}

fn decode<M: Message>(bytes: &[u8]) -> onnx_container::Result<M> {
    M::decode(&Buffer::from(bytes))
}

fn round_trip<M: Message>(name: &str, mut seeds: Vec<Seed>) {
    let input = message(name, &mut seeds, 0);
    let read = decode::<M>(&input).unwrap();
    let written = read.encode_to_vec().unwrap();
    assert_eq!(read.encoded_len(), written.len() as u64);
    let mut streamed = Vec::new();
    read.encode(&mut streamed).unwrap();
    assert_eq!(streamed, written);
    let again = decode::<M>(&written).unwrap();
    assert_eq!(again, read);
    assert_eq!(again.encode_to_vec().unwrap(), written);
    assert_eq!(read.clone(), read);
}

/// What is accepted is written so that it is accepted again and stays as it is.
fn settles<M: Message>(input: &[u8]) {
    if let Ok(read) = decode::<M>(input) {
        let written = read.encode_to_vec().unwrap();
        let again = decode::<M>(&written).unwrap();
        assert_eq!(again.encode_to_vec().unwrap(), written);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(seeds in seeds()) {
        round_trip::<ModelProto>("ModelProto", seeds.clone());
        round_trip::<GraphProto>("GraphProto", seeds.clone());
        round_trip::<FunctionProto>("FunctionProto", seeds.clone());
        round_trip::<NodeProto>("NodeProto", seeds.clone());
        round_trip::<AttributeProto>("AttributeProto", seeds.clone());
        round_trip::<TensorProto>("TensorProto", seeds.clone());
        round_trip::<TypeProto>("TypeProto", seeds);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..64)) {
        settles::<ModelProto>(&bytes);
        settles::<TensorProto>(&bytes);
        settles::<TypeProto>(&bytes);
    }

    #[test]
    fn changed_bytes_are_read_or_refused(
        seeds in seeds(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = message("ModelProto", &mut seeds.clone(), 0);
        bytes.push(0);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        settles::<ModelProto>(&bytes);
        settles::<GraphProto>(&bytes);
    }
}

/// A graph large enough for several threads.
fn large_graph() -> Vec<u8> {
    let mut graph = GraphProto::new("large");
    for i in 0..12_000 {
        let mut node = NodeProto::new("Conv", [format!("in_{i}")], [format!("out_{i}")]);
        node.name = Some(format!("{i}{}", "/layer".repeat(200)).into());
        node.attribute.push(AttributeProto::ints("kernel", [i, i + 1]));
        graph.node.push(node);
    }
    graph.input.push(onnx_container::proto::ValueInfoProto::tensor("in_0", 1, [1, -1]));
    ModelProto::new(graph).encode_to_vec().unwrap()
}

/// Long lists are written by several threads, and those with large payloads among them not.
#[test]
fn long_lists_are_written_as_short_ones() {
    let mut graph = GraphProto::new("long");
    for i in 0..5_000_usize {
        let bytes = if i % 700 == 3 { 3 << 20 } else { i % 50 };
        let tensor = TensorProto::new(format!("w{i}"), TensorProto::UINT8, [bytes as i64]);
        graph.initializer.push(tensor.with_raw_data(vec![i as u8; bytes]));
        graph.node.push(NodeProto::new("Relu", [format!("w{i}")], ["y"]));
    }
    let mut short = Vec::new();
    for node in &graph.node {
        delimited(&mut short, 1, &node.encode_to_vec().unwrap());
    }
    delimited(&mut short, 2, b"long");
    for tensor in &graph.initializer {
        delimited(&mut short, 5, &tensor.encode_to_vec().unwrap());
    }
    assert!(graph.encode_to_vec().unwrap() == short);
    let mut streamed = Vec::new();
    graph.encode(&mut streamed).unwrap();
    assert!(streamed == short);
    assert_eq!(graph.encoded_len(), short.len() as u64);
}

#[test]
fn threads_change_nothing() {
    let whole = large_graph();
    let read = |bytes: &[u8], threads| {
        let options = DecodeOptions::new().threads(threads);
        ModelProto::decode_with(&Buffer::from(bytes), &options)
    };
    let one = read(&whole, 1).unwrap();
    assert_eq!(read(&whole, 4).unwrap(), one);
    assert_eq!(read(&whole, 4).unwrap().encode_to_vec().unwrap(), whole);

    // Faults in several places: the first one is reported, whichever thread meets it.
    let mut state = 1_u64;
    for _ in 0..40 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 20) as usize % bytes.len();
            bytes[at] = (state >> 56) as u8;
        }
        match (read(&bytes, 1), read(&bytes, 4)) {
            (Ok(one), Ok(many)) => assert_eq!(one, many),
            (Err(one), Err(many)) => {
                assert_eq!((one.offset(), one.reason()), (many.offset(), many.reason()));
            }
            (one, many) => panic!("{:?} {:?}", one.err(), many.err()),
        }
    }
}
