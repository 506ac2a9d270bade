//! Messages written by hand, byte by byte: what they are once they are decoded and encoded again.

use Expected::{Becomes, Fails, Same};
use onnx_container::load::Limit;
use onnx_container::proto::{
    AttributeProto, DecodeOptions, GraphProto, Message, ModelProto, NodeProto, TensorProto,
    TypeProto, tensor_shape_proto::Dimension,
};
use onnx_container::{Buffer, ErrorKind, Limits, Result};

enum Expected {
    /// The same bytes.
    Same,
    Becomes(&'static str),
    /// An error about the byte at this offset.
    Fails(u64),
}

type Case = (&'static str, &'static str, Expected);

/// Bytes from hexadecimal digits; `xx*3` stands for three times `xx`.
fn bytes(text: &str) -> Vec<u8> {
    let item = |item: &str| {
        let (digits, times) = item.split_once('*').unwrap_or((item, "1"));
        vec![u8::from_str_radix(digits, 16).unwrap(); times.parse().unwrap()]
    };
    text.split_whitespace().flat_map(item).collect()
}

fn again<M: Message>(input: Vec<u8>) -> Result<Vec<u8>> {
    M::decode(&Buffer::from(input))?.encode_to_vec()
}

fn check<M: Message>(cases: &[Case]) {
    for (name, input, expected) in cases {
        let output = again::<M>(bytes(input));
        let wanted = match expected {
            Same => input,
            Becomes(wanted) => wanted,
            Fails(offset) => {
                let error = output.expect_err(name);
                assert_eq!(error.kind(), ErrorKind::Decode, "{name}");
                assert_eq!(error.offset(), Some(*offset), "{name}: {error}");
                continue;
            }
        };
        assert_eq!(output.expect(name), bytes(wanted), "{name}");
    }
}

#[test]
fn numbers() {
    check::<TensorProto>(&[
        ("nothing at all", "", Same),
        ("a value that is the default", "10 00", Same),
        ("the last of two wins", "10 01 10 07", Becomes("10 07")),
        ("a negative int64", "08 ff*9 01", Same),
        ("a negative int32 in ten bytes", "10 ff*9 01", Same),
        ("a negative int32 in five bytes", "10 ff*4 0f", Becomes("10 ff*9 01")),
        ("an int32 with bits above the 32nd", "10 81 80 80 80 10", Becomes("10 01")),
        ("a varint that is not the shortest", "10 81 00", Becomes("10 01")),
        ("a varint of ten bytes for zero", "10 80*9 00", Becomes("10 00")),
        ("bits of the tenth byte that do not fit", "08 ff*9 7f", Becomes("08 ff*9 01")),
        ("a varint of eleven bytes", "08 80*10 00", Fails(1)),
        ("a varint without an end", "08 80", Fails(1)),
        ("ten bytes without an end", "08 80*10", Fails(1)),
        ("a tag without a value", "08", Fails(1)),
    ]);
    check::<AttributeProto>(&[
        ("a negative zero", "15 00 00 00 80", Same),
        ("a signalling NaN", "15 01 00 a0 7f", Same),
        ("a float cut off", "15 00 00 00", Fails(1)),
    ]);
}

/// What the official parsers make of these, in C++ and in Python; `wire_differential.py` compares
/// with them.
const LOCATIONS: &[(&str, &str, Option<i32>, Expected)] = &[
    ("a value", "70 01", Some(1), Same),
    ("the default", "70 00", Some(0), Same),
    ("the last of two values wins", "70 01 70 00", Some(0), Becomes("70 00")),
    ("no value", "70 02", None, Same),
    ("no value after one", "70 01 70 02", Some(1), Same),
    ("no value before one", "70 02 70 01", Some(1), Becomes("70 01 70 02")),
    ("several that are none", "70 02 70 01 70 03", Some(1), Becomes("70 01 70 02 70 03")),
    ("one behind the known fields", "70 02 80 01 01", None, Same),
    ("a value with bits above the 32nd", "70 81 80 80 80 10", Some(1), Becomes("70 01")),
    ("none with bits above the 32nd", "70 82 80 80 80 10", None, Same),
    ("a value that is not the shortest", "70 81 00", Some(1), Becomes("70 01")),
    ("none that is not the shortest", "70 82 00", None, Same),
    ("none in ten bytes", "70 82 80*8 00", None, Same),
    ("a negative one", "70 ff*9 01", None, Same),
    ("a negative one in five bytes", "70 ff*4 0f", None, Same),
    ("the least one", "70 80*4 08", None, Same),
    ("one with a long tag", "f0 00 02", None, Same),
    ("a value with a long tag", "f0 00 01", Some(1), Becomes("70 01")),
    ("a varint without an end", "70 82", None, Fails(1)),
    ("a varint of eleven bytes", "70 80*10 00", None, Fails(1)),
    ("another wire type", "72 01 01", None, Same),
];

#[test]
fn a_value_that_an_enum_does_not_have_is_an_unknown_record() {
    for (name, input, value, expected) in LOCATIONS {
        let decoded = TensorProto::decode(&Buffer::from(bytes(input)));
        if let Fails(offset) = expected {
            assert_eq!(decoded.unwrap_err().offset(), Some(*offset), "{name}");
            continue;
        }
        let decoded = decoded.unwrap();
        assert_eq!(decoded.data_location, *value, "{name}");
        let wanted = if let Becomes(wanted) = expected { wanted } else { input };
        assert_eq!(decoded.encode_to_vec().unwrap(), bytes(wanted), "{name}");
    }
    for (input, value) in [
        ("a0 01 0e", Some(14)),
        ("a0 01 0f", None),
        ("a0 01 63", None),
        ("a0 01 02 a0 01 63", Some(2)),
        ("a0 01 63 a0 01 02", Some(2)),
        ("a0 01 ff*9 01", None),
    ] {
        let decoded = AttributeProto::decode(&Buffer::from(bytes(input))).unwrap();
        assert_eq!(decoded.r#type, value, "{input}");
        assert_eq!(decoded.encoded_len(), bytes(input).len() as u64, "{input}");
    }
}

#[test]
fn an_enum_is_closed_where_a_message_is_merged_from_several_parts() {
    let node = "2a 07 0a 01 61 2a 02 70 01"; // an attribute `a` with an external tensor
    let merged = "2a 0d 0a 01 61 2a 02 70 01 2a 04 70 02 70 03";
    for (input, unknown) in [(node, 0), (merged, 2)] {
        let node = NodeProto::decode(&Buffer::from(bytes(input))).unwrap();
        let tensor = node.attribute[0].t.as_ref().unwrap();
        assert_eq!(tensor.data_location, Some(TensorProto::EXTERNAL));
        assert_eq!(tensor.unknown.records().len(), unknown);
    }
}

#[test]
fn tags() {
    check::<TensorProto>(&[
        ("field 0", "00 00", Fails(0)),
        ("field 0 with a length", "02 00", Fails(0)),
        ("wire type 6", "0e 00", Fails(0)),
        ("wire type 7", "10 01 0f 00", Fails(2)),
        ("a tag without an end", "80", Fails(0)),
        ("a tag in five bytes", "88 80 80 80 00 01", Becomes("08 01")),
        ("a tag in six bytes", "88 80 80 80 80 00 01", Fails(0)),
        ("a tag of more than 32 bits", "88 80 80 80 10 01", Fails(0)),
        ("the highest field number", "f8 ff ff ff 0f 01", Same),
        ("fields out of order", "42 01 41 08 01", Becomes("08 01 42 01 41")),
    ]);
}

#[test]
fn payloads() {
    check::<TensorProto>(&[
        ("an empty name", "42 00", Same),
        ("a name that is not UTF-8", "42 02 ff fe", Same),
        ("empty raw data", "4a 00", Same),
        ("strings, some of them empty", "32 00 32 01 41 32 00", Same),
        ("an empty entry", "6a 00 6a 03 0a 01 41", Same),
        ("a length past the end", "4a 05 01", Fails(1)),
        ("a length of 2^63", "4a 80*9 01 00", Fails(1)),
        ("a length of 2^64 - 1", "4a ff*9 01 00", Fails(1)),
        ("a length of 2^35", "4a 80*5 01 00", Fails(1)),
        ("a length in two bytes", "4a 81 00 41", Becomes("4a 01 41")),
        ("a length in five bytes", "4a 81 80 80 80 00 41", Becomes("4a 01 41")),
        ("a length in six bytes", "4a 81 80 80 80 80 00 41", Fails(1)),
        ("a length without an end", "4a 80", Fails(1)),
        ("no length", "4a", Fails(1)),
    ]);
}

#[test]
fn packed_and_unpacked() {
    check::<TensorProto>(&[
        ("dims, unpacked", "08 01 08 02", Same),
        ("dims, packed", "0a 02 01 02", Becomes("08 01 08 02")),
        ("dims, mixed", "08 01 0a 02 02 03 08 04", Becomes("08 01 08 02 08 03 08 04")),
        ("dims, an empty chunk", "0a 00", Becomes("")),
        ("dims, a chunk that ends inside a number", "0a 02 01 80 08 01", Fails(3)),
        ("floats, packed", "22 08 00 00 80 3f 00 00 c0 7f", Same),
        ("floats, unpacked", "25 00 00 80 3f", Becomes("22 04 00 00 80 3f")),
        (
            "floats, two chunks and one alone",
            "22 04 01 00 00 00 25 02 00 00 00 22 04 03 00 00 00",
            Becomes("22 0c 01 00 00 00 02 00 00 00 03 00 00 00"),
        ),
        ("floats, an empty chunk", "22 00", Becomes("")),
        ("floats, three bytes", "22 03 00 00 80", Fails(2)),
        ("doubles, packed", "52 08 01*8", Same),
        ("doubles, unpacked", "51 01*8 51 02*8", Becomes("52 10 01*8 02*8")),
        ("doubles, twelve bytes", "52 0c 01*12", Fails(2)),
        ("int32, unpacked", "28 05 28 06", Becomes("2a 02 05 06")),
        ("int32, bits above the 32nd", "2a 06 81 80 80 80 10 05", Same),
        ("int32, not the shortest", "2a 02 85 00", Same),
        ("int32, cut off", "2a 02 05 80", Fails(3)),
        ("int32, eleven bytes", "2a 0c 05 80*10 00", Fails(3)),
        ("int64, two chunks", "3a 01 01 3a 01 02", Becomes("3a 02 01 02")),
        ("int64, bits of the tenth byte that do not fit", "3a 0a ff*9 7f", Same),
        ("uint64, unpacked", "58 ff*9 01", Becomes("5a 0a ff*9 01")),
    ]);
    check::<AttributeProto>(&[
        ("floats, unpacked", "3d 00 00 80 3f 3d 00*4", Same),
        ("floats, packed", "3a 08 00 00 80 3f 00*4", Becomes("3d 00 00 80 3f 3d 00*4")),
        ("floats, six bytes", "3a 06 00*6", Fails(6)),
        ("ints, packed twice", "42 01 01 42 02 02 03", Becomes("40 01 40 02 40 03")),
    ]);
}

#[test]
fn unknown_records() {
    check::<TensorProto>(&[
        ("a varint", "a8 06 05", Same),
        ("a varint that is not the shortest", "a8 06 85 00", Same),
        ("fixed widths", "ad 06 01*4 a9 06 02*8", Same),
        ("bytes", "aa 06 02 ff fe", Same),
        ("among known ones", "a8 06 05 10 01 a8 06 06", Becomes("10 01 a8 06 05 a8 06 06")),
        ("bytes cut off", "aa 06 02 ff", Fails(2)),
        ("a fixed width cut off", "a9 06 02*7", Fails(2)),
        ("an empty group", "ab 06 ac 06", Same),
        ("a group in a group", "ab 06 08 01 13 1a 01 41 14 ac 06", Same),
        ("a group without an end", "ab 06 08 01", Fails(4)),
        ("a group with another's end", "ab 06 b4 06", Fails(2)),
        ("an end without a group", "10 01 ac 06", Fails(2)),
        ("a group with field 0", "ab 06 00 00 ac 06", Same),
        ("a group with wire type 6", "ab 06 0e ac 06", Fails(2)),
        ("field 0 as a group", "03 04", Fails(0)),
        ("a group that passes the end", "ab 06 12 05 ac 06", Fails(3)),
        ("a known field as a group", "0b 0c", Same),
        ("a number where a string belongs", "40 05", Same),
        ("a fixed width where a varint belongs", "15 01*4", Same),
        ("another fixed width where a list belongs", "09 01*8 08 01", Becomes("08 01 09 01*8")),
        ("a varint where floats belong", "20 01", Same),
        ("a fixed width where a message belongs", "1d 01*4", Same),
    ]);
    check::<ModelProto>(&[
        ("in a message inside", "3a 06 12 01 41 a8 06 05", Same),
        ("a string where a number belongs", "0a 01 41", Same),
    ]);
}

#[test]
fn messages_in_messages() {
    check::<TensorProto>(&[
        ("an empty one", "1a 00", Same),
        ("two of a singular one", "1a 02 08 01 1a 02 10 02", Becomes("1a 04 08 01 10 02")),
    ]);
    check::<AttributeProto>(&[
        ("lists of two singular ones", "32 02 0a 00 32 02 0a 00", Becomes("32 04 0a 00 0a 00")),
        ("the later of two strings", "32 03 12 01 41 32 03 12 01 42", Becomes("32 03 12 01 42")),
        ("dims of two tensors", "2a 02 08 01 2a 02 08 02", Becomes("2a 04 08 01 08 02")),
    ]);
    check::<ModelProto>(&[
        ("one that passes the end of its parent", "3a 02 0a 01 00", Fails(3)),
        ("a number that does", "3a 03 0a 01 80 00", Fails(4)),
        ("a number at its end", "42 02 10 80 42 00", Fails(3)),
        ("an end of a group", "3a 02 ac 06", Fails(2)),
        ("an operator set, and one without domain", "42 02 10 15 42 04 0a 00 10 01", Same),
    ]);
}

#[test]
fn one_of_several() {
    check::<TypeProto>(&[
        ("the later of two", "0a 02 08 01 22 00", Becomes("22 00")),
        ("two of the same", "0a 02 08 01 0a 02 12 00", Becomes("0a 04 08 01 12 00")),
        ("back to the first", "0a 02 08 01 22 00 0a 02 12 00", Becomes("0a 02 12 00")),
        ("one before a plain field", "22 00 32 01 41", Same),
        ("one behind a plain field", "32 01 41 3a 00", Same),
        ("out of order", "3a 00 32 01 41", Becomes("32 01 41 3a 00")),
        ("one with another wire type", "0a 00 20 01", Same),
        ("a list of maps", "22 08 0a 06 2a 04 08 07 12 00", Same),
    ]);
    check::<Dimension>(&[
        ("zero", "08 00", Same),
        ("a name after a number", "08 03 12 01 4e", Becomes("12 01 4e")),
        ("a number after a name", "12 01 4e 08 03", Becomes("08 03")),
        ("neither", "1a 01 43", Same),
    ]);
}

/// A model with `levels` messages in one another: a graph, then a sequence of nodes' subgraphs.
fn nested(levels: usize) -> Vec<u8> {
    let tags = [0x32, 0x0a, 0x2a];
    let mut inner = Vec::new();
    for level in (0..levels).rev() {
        let tag = if level == 0 { 0x3a } else { tags[level % 3] };
        let mut outer = vec![tag];
        let mut len = inner.len();
        while len >= 0x80 {
            outer.push(len as u8 | 0x80);
            len >>= 7;
        }
        outer.push(len as u8);
        outer.append(&mut inner);
        inner = outer;
    }
    inner
}

#[test]
fn nesting_is_limited() {
    let deep = |levels| Buffer::from(nested(levels));
    assert_eq!(again::<ModelProto>(nested(100)).unwrap(), nested(100));
    assert!(ModelProto::decode(&deep(101)).is_err());
    let options = DecodeOptions::new().limits(Limits::new().with(Limit::Nesting, 3));
    assert!(ModelProto::decode_with(&deep(3), &options).is_ok());
    let error = ModelProto::decode_with(&deep(4), &options).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Decode, Some(7)));
    let options = DecodeOptions::new().limits(Limits::new().with(Limit::Nesting, 300));
    assert_eq!(
        ModelProto::decode_with(&deep(300), &options).unwrap().encoded_len(),
        deep(300).len() as u64
    );

    let groups = |n: usize| [[0xab, 6].repeat(n), [0xac, 6].repeat(n)].concat();
    assert_eq!(again::<GraphProto>(groups(100)).unwrap(), groups(100));
    assert!(again::<GraphProto>(groups(101)).is_err());
    assert!(again::<GraphProto>(groups(50_000)).is_err());
}

#[test]
fn every_truncation_of_a_model_is_an_error_or_a_model() {
    let tensor = TensorProto::new("w", TensorProto::FLOAT, [2, 3]).with_raw_data(vec![7; 24]);
    let mut graph = GraphProto::new("g");
    graph.initializer.push(tensor.clone());
    graph.node.push(onnx_container::proto::NodeProto::new("Relu", ["a"], ["b"]));
    graph.node[0].attribute.push(AttributeProto::tensor("t", tensor));
    let whole = ModelProto::new(graph).encode_to_vec().unwrap();
    for end in 0..whole.len() {
        if let Err(error) = again::<ModelProto>(whole[..end].to_vec()) {
            assert!(error.offset().is_some_and(|at| at <= end as u64), "{error}");
        }
    }
}

#[test]
fn payloads_are_slices_of_the_input() {
    let tensor = TensorProto::new("w", TensorProto::FLOAT, [2]).with_raw_data(vec![1; 8]);
    let input = Buffer::from(tensor.encode_to_vec().unwrap());
    let tensor = TensorProto::decode(&input).unwrap();
    let inside = |bytes: &[u8]| input.as_ptr_range().contains(&bytes.as_ptr());
    assert!(inside(tensor.raw_data.as_ref().unwrap()));
    assert!(inside(tensor.name.as_ref().unwrap().as_bytes()));

    let input = Buffer::from(bytes("22 08 00 00 80 3f 00 00 00 40"));
    let tensor = TensorProto::decode(&input).unwrap();
    let floats = tensor.float_data.wire_buffer().unwrap();
    assert_eq!(floats.as_ptr(), input[2..].as_ptr());
    assert_eq!(*tensor.float_data.values().unwrap(), [1.0, 2.0]);
    let input = Buffer::from(bytes("2a 06 81 80 80 80 10 05"));
    let tensor = TensorProto::decode(&input).unwrap();
    assert_eq!(*tensor.int32_data.values().unwrap(), [1, 5]);
    assert_eq!((tensor.int32_data.len(), tensor.int32_data.as_wire_bytes()), (2, None));
}
