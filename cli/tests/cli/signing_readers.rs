//! Files whose content is as signed for one reader, and another model for another: none of them is
//! verified by its content.

use std::fs;

use onnx_container::proto::{
    AttributeProto, FunctionProto, Message, ModelProto, NodeProto, OperatorSetIdProto,
    StringStringEntryProto, TensorProto, ValueInfoProto,
};

use crate::signing::{make_keys, sign, verify};
use crate::support::{Folder, external};

/// A model with a weight of each kind, in `m/`.
fn signed() -> (Folder, ModelProto) {
    let folder = Folder::new();
    make_keys(&folder);
    fs::create_dir(folder.path("m")).unwrap();
    fs::write(folder.path("m/w.bin"), [1; 16]).unwrap();
    let mut model = external(&["w.bin"]);
    model.ir_version = Some(10);
    model.producer_name = Some("signed".into());
    model.metadata_props.push(StringStringEntryProto::new("key", "value"));
    let graph = model.graph.as_mut().unwrap();
    let raw = TensorProto::new("r", TensorProto::FLOAT, [1]).with_raw_data(vec![1; 4]);
    let mut typed = TensorProto::new("t", TensorProto::INT64, [2]);
    typed.int64_data = onnx_container::proto::Packed::from(vec![1_i64, 2]).into();
    graph.initializer.extend([raw, typed]);
    let mut node = NodeProto::new("Concat", ["r", "r"], ["y"]);
    node.attribute.push(AttributeProto::int("axis", 0));
    graph.node.push(node);
    graph.output.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [2]));
    let mut function = FunctionProto::new("local", "f");
    function.opset_import.push(OperatorSetIdProto::new("", 21));
    model.functions.push(function);
    folder.save("m/m.onnx", &model);
    sign(&folder, &[]).done();
    (folder, model)
}

/// What becomes of a file.
type Change = Box<dyn Fn(&[u8]) -> Vec<u8>>;

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(u8::try_from(value & 127).unwrap() | 128);
        value >>= 7;
    }
    bytes.push(u8::try_from(value).unwrap());
    bytes
}

fn delimited(number: usize, payload: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(payload.len()), payload.to_vec()].concat()
}

/// The first number in `bytes`, and how long it is.
fn read(bytes: &[u8]) -> (usize, usize) {
    let len = bytes.iter().position(|byte| *byte < 128).unwrap() + 1;
    let value = bytes[..len].iter().rev().fold(0, |all, byte| all << 7 | usize::from(byte & 127));
    (value, len)
}

/// The records of a message, each with its field's number.
fn records(mut bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (tag, at) = read(bytes);
        let len = match tag & 7 {
            0 => at + read(&bytes[at..]).1,
            1 => at + 8,
            5 => at + 4,
            _ => {
                let (len, digits) = read(&bytes[at..]);
                at + digits + len
            }
        };
        records.push((tag >> 3, &bytes[..len]));
        bytes = &bytes[len..];
    }
    records
}

/// `bytes` with the message changed that these fields lead to, the last one of each list.
fn changed(bytes: &[u8], way: &[usize], change: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let [first, rest @ ..] = way else { return change(bytes) };
    let all = records(bytes);
    let last = all.iter().rposition(|(number, _)| number == first).unwrap();
    let new = all.iter().enumerate().map(|(place, (number, record))| {
        if place != last {
            return record.to_vec();
        }
        let head = read(record).1;
        let payload = &record[head + read(&record[head..]).1..];
        delimited(*number, &changed(payload, rest, change))
    });
    new.collect::<Vec<_>>().concat()
}

/// The message with its records in another order.
fn reversed(bytes: &[u8]) -> Vec<u8> {
    // Those of a list stay in their order.
    let mut all = records(bytes);
    all.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    all.into_iter().flat_map(|(_, record)| record.to_vec()).collect()
}

/// Puts `record` before the others, or behind them.
fn front(way: &[usize], record: &[u8]) -> Change {
    let (way, record) = (way.to_vec(), record.to_vec());
    Box::new(move |bytes| changed(bytes, &way, &|inner| [&record[..], inner].concat()))
}

fn back(way: &[usize], record: &[u8]) -> Change {
    let (way, record) = (way.to_vec(), record.to_vec());
    Box::new(move |bytes| changed(bytes, &way, &|inner| [inner, &record[..]].concat()))
}

/// The message in two: what other readers replace is then gone.
fn in_two(number: usize) -> Change {
    Box::new(move |bytes| {
        let mut new = Vec::new();
        for (of, record) in records(bytes) {
            if of != number {
                new.extend(record);
                continue;
            }
            let head = read(record).1;
            let payload = &record[head + read(&record[head..]).1..];
            for part in records(payload) {
                new.extend(delimited(number, part.1));
            }
        }
        new
    })
}

type Attack = (&'static str, Change);

/// What leaves the digest as it is.
fn attacks() -> Vec<Attack> {
    let graph = 7;
    let (node, tensor, output) = ([graph, 1], [graph, 5], [graph, 12]);
    let entry = [&delimited(2, b"ORTM")[..], &delimited(1, b"onnx_container.sha256")].concat();
    vec![
        ("a producer that does not count", front(&[], &delimited(2, b"evil"))),
        ("a version that does not count", front(&[], b"\x08\x07")),
        ("the same again", back(&[], b"\x08\x0a")),
        (
            "an .ort file in front, in a text that does not count",
            front(&[], &delimited(2, b"\0\0ORTM and a model")),
        ),
        ("an .ort file in front, in a stored digest", front(&[], &delimited(14, &entry))),
        ("a graph that is merged", front(&[], &delimited(graph, &delimited(2, b"g")))),
        ("a graph in pieces", in_two(graph)),
        ("an empty graph behind", back(&[], &delimited(graph, b""))),
        ("the name of a node", front(&node, &delimited(4, b"Evil"))),
        ("a value of an attribute", front(&[graph, 1, 5], b"\x18\x07")),
        ("a type of an attribute", front(&[graph, 1, 5], b"\xa0\x01\x01")),
        ("a tensor's name", front(&tensor, &delimited(8, b"evil"))),
        ("a tensor's type", front(&tensor, b"\x10\x01")),
        ("a version of an operator set", front(&[8], b"\x10\x01")),
        ("a name of a function", front(&[25], &delimited(1, b"Evil"))),
        ("a value of metadata", front(&[14], &delimited(2, b"evil"))),
        ("an output's type, merged", front(&output, &delimited(2, b""))),
        ("another alternative of a type", front(&[graph, 12, 2], &delimited(4, b""))),
        ("another alternative of a dimension", {
            front(&[graph, 12, 2, 1, 2, 1], &delimited(2, b"N"))
        }),
        ("numbers in two pieces", {
            Box::new(|bytes: &[u8]| {
                let two = [delimited(7, &[1]), delimited(7, &[2])].concat();
                changed(bytes, &[7, 5], &|tensor| {
                    let keep = records(tensor).into_iter().filter(|(number, _)| *number != 7);
                    let keep: Vec<u8> = keep.flat_map(|(_, record)| record.to_vec()).collect();
                    [&keep[..], &two].concat()
                })
            })
        }),
        ("packed dimensions", {
            Box::new(|bytes: &[u8]| {
                changed(bytes, &[7, 5], &|tensor| {
                    let keep = records(tensor).into_iter().filter(|(number, _)| *number != 1);
                    let keep: Vec<u8> = keep.flat_map(|(_, record)| record.to_vec()).collect();
                    [&delimited(1, &[2])[..], &keep].concat()
                })
            })
        }),
        ("padded numbers", {
            Box::new(|bytes: &[u8]| {
                let keep = records(bytes).into_iter().filter(|(number, _)| *number != 1);
                let keep: Vec<u8> = keep.flat_map(|(_, record)| record.to_vec()).collect();
                [b"\x08\x8a\x00", &keep[..]].concat()
            })
        }),
        ("a field of no version in an entry of weights", {
            Box::new(|bytes: &[u8]| {
                let model = ModelProto::decode(&bytes.to_vec().into()).unwrap();
                let mut graph = *model.graph.clone().unwrap();
                let tensor = graph.initializer.remove(0);
                let tensor = changed(&tensor.encode_to_vec().unwrap(), &[13], &|entry| {
                    [entry, &delimited(9, b"evil")].concat()
                });
                let rest = graph.encode_to_vec().unwrap();
                let graph = [delimited(5, &tensor), rest].concat();
                let mut model = model;
                model.graph = None;
                [&model.encode_to_vec().unwrap()[..], &delimited(7, &graph)].concat()
            })
        }),
    ]
}

/// What is another content, or none.
fn others() -> Vec<Attack> {
    let graph = 7;
    vec![
        ("a group", back(&[], b"\xa3\x06\xa4\x06")),
        ("a group of a known field", back(&[], b"\x3b\x3c")),
        ("another wire type", back(&[], b"\x38\x01")),
        ("a field of no version", back(&[], &delimited(100, b"evil"))),
        ("a field of no version, in front", front(&[], &delimited(100, b"evil"))),
        ("an initializer twice", {
            let twice = TensorProto::new("t", TensorProto::FLOAT, [1]).with_raw_data(vec![9; 4]);
            front(&[graph], &delimited(5, &twice.encode_to_vec().unwrap()))
        }),
        ("a function twice", {
            let twice = FunctionProto::new("local", "f").encode_to_vec().unwrap();
            front(&[], &delimited(25, &twice))
        }),
        ("a key of metadata twice", {
            let twice = StringStringEntryProto::new("key", "evil").encode_to_vec().unwrap();
            front(&[], &delimited(14, &twice))
        }),
        ("an operator set twice", {
            let twice = OperatorSetIdProto::new("", 7).encode_to_vec().unwrap();
            front(&[], &delimited(8, &twice))
        }),
        ("an attribute twice", {
            let twice = AttributeProto::int("axis", 7).encode_to_vec().unwrap();
            front(&[graph, 1], &delimited(5, &twice))
        }),
        ("a place of weights twice", {
            Box::new(|bytes: &[u8]| {
                let mut model = ModelProto::decode(&bytes.to_vec().into()).unwrap();
                let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
                tensor.external_data.push(StringStringEntryProto::new("location", "evil.bin"));
                model.encode_to_vec().unwrap()
            })
        }),
        ("bytes behind", Box::new(|bytes: &[u8]| [bytes, &[0; 8]].concat())),
        ("an archive in front", Box::new(|bytes: &[u8]| [b"PK\x03\x04", bytes].concat())),
        ("text in front", Box::new(|bytes: &[u8]| [b"{}", bytes].concat())),
        ("gzip in front", Box::new(|bytes: &[u8]| [b"\x1f\x8b\x08", bytes].concat())),
    ]
}

/// Verifies the model once by both statements and once by its content alone.
fn each_way(folder: &Folder, mut judge: impl FnMut(&[&str])) {
    judge(&[]);
    judge(&["--ignore-unsigned-files"]);
    fs::rename(folder.path("m/model.sig"), folder.path("away")).unwrap();
    judge(&[]);
    fs::rename(folder.path("away"), folder.path("m/model.sig")).unwrap();
}

#[test]
fn a_file_that_another_reader_takes_for_another_model_is_not_verified_by_its_content() {
    let (folder, model) = signed();
    let bytes = model.encode_to_vec().unwrap();
    for (what, attack) in attacks() {
        fs::write(folder.path("m/m.onnx"), attack(&bytes)).unwrap();
        each_way(&folder, |options| {
            let run = verify(&folder, options);
            let said = run.stdout();
            assert!(said.contains("content   as signed"), "{what} is no other content: {run:?}");
            assert!(said.contains("not for every reader"), "{what}: {said}");
            assert!(said.contains("NOT VERIFIED: "), "{what}: {said}");
            assert_eq!(run.code(), 1, "{what}");
        });
        let json = verify(&folder, &["--json"]).failed(&[]).json();
        assert!(json["content"]["ambiguous"].is_string() && json["ok"] == false, "{what}: {json}");
        // The same is told of a model that nobody signed.
        let check = folder.run(&["check", "m/m.onnx", "--json"]).json();
        let findings = check["findings"].as_array().unwrap();
        assert!(findings.iter().any(|found| found["kind"] == "Ambiguous"), "{what}: {check}");
    }
    for (what, attack) in others() {
        fs::write(folder.path("m/m.onnx"), attack(&bytes)).unwrap();
        each_way(&folder, |options| {
            let run = verify(&folder, options);
            assert!(
                run.code() == 1 && !run.stdout().contains("content   as signed"),
                "{what}: {run:?}"
            );
        });
    }
}

#[test]
fn a_file_that_was_written_anew_in_any_usual_way_is_verified_by_its_content() {
    let (folder, model) = signed();
    let bytes = model.encode_to_vec().unwrap();
    let usual: [Attack; 3] = [
        ("as it was", Box::new(<[u8]>::to_vec)),
        ("fields in another order", Box::new(reversed)),
        ("fields of a graph in another order", Box::new(|bytes| changed(bytes, &[7], &reversed))),
    ];
    for (what, write) in usual {
        fs::write(folder.path("m/m.onnx"), write(&bytes)).unwrap();
        each_way(&folder, |options| {
            let run = verify(&folder, options);
            assert_eq!(run.code(), 0, "{what}: {run:?}");
        });
    }
    // Of files that are as signed every byte was signed.
    let ambiguous = [b"\x08\x07", &bytes[..]].concat();
    fs::write(folder.path("m/m.onnx"), ambiguous).unwrap();
    let run = sign(&folder, &[]);
    assert!(run.code() == 0 && run.stderr().contains("warning: "), "{run:?}");
    let warnings = sign(&folder, &["--json"]).json()["warnings"].clone();
    assert!(warnings[0].as_str().unwrap().contains("is verified by its content"), "{warnings}");
    verify(&folder, &[]).done().says(&["not for every reader", "verified  by files and content"]);
}
