//! Files of test data are of the declared kind or refused: a tensor, a sequence and an optional are
//! messages whose fields have the same numbers.

use std::fs;

use onnx_container::proto::{
    GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto, TypeProto, ValueInfoProto,
    type_proto,
};
use onnx_container::{DataType, Tensor};

use crate::support::Folder;

fn tensor_type() -> TypeProto {
    let value = ValueInfoProto::tensor("x", DataType::Float, [3]);
    *value.r#type.unwrap()
}

fn sequence_of(element: TypeProto) -> TypeProto {
    let mut sequence = type_proto::Sequence::default();
    sequence.elem_type = Some(Box::new(element));
    let mut ty = TypeProto::default();
    ty.value = Some(type_proto::Value::SequenceType(Box::new(sequence)));
    ty
}

fn optional_of(element: TypeProto) -> TypeProto {
    let mut optional = type_proto::Optional::default();
    optional.elem_type = Some(Box::new(element));
    let mut ty = TypeProto::default();
    ty.value = Some(type_proto::Value::OptionalType(Box::new(optional)));
    ty
}

/// A model that gives its input.
fn identity(ty: &TypeProto) -> ModelProto {
    let mut graph = GraphProto::new("g");
    for (name, list) in [("x", &mut graph.input), ("y", &mut graph.output)] {
        let mut value = ValueInfoProto::default();
        (value.name, value.r#type) = (Some(name.into()), Some(Box::new(ty.clone())));
        list.push(value);
    }
    graph.node.push(NodeProto::new("Identity", ["x"], ["y"]));
    let mut model = ModelProto::new(graph);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    model
}

fn tensor() -> Vec<u8> {
    Tensor::from_vec([3], vec![1.0_f32, 2.0, 3.0]).unwrap().to_proto("").encode_to_vec().unwrap()
}

/// A SequenceProto or OptionalProto of elements in `field`, which are of `kind`.
fn list(kind: u8, field: u8, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![2 << 3, kind];
    for element in elements {
        bytes.extend([field << 3 | 2, u8::try_from(element.len()).unwrap()]);
        bytes.extend(element);
    }
    bytes
}

/// Kinds of files, each with the declared types that it is good for: T a tensor, S a sequence of
/// them, O an optional tensor, Q an optional sequence. A sequence of one element and the optional
/// of it are the same bytes.
fn files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let tensors = |count| list(1, 3, &vec![tensor(); count]);
    vec![
        ("a tensor", tensor(), "T"),
        ("a sequence of two tensors", tensors(2), "S"),
        ("a sequence of one tensor", tensors(1), "SO"),
        ("a sequence of no tensors", tensors(0), "SO"),
        ("an optional sequence", list(3, 5, &[tensors(2)]), "Q"),
        ("an optional sequence that is not there", list(3, 5, &[]), "Q"),
        ("sequences", list(3, 5, &[tensors(2), tensors(1)]), ""),
        ("a kind that is not that of its elements", list(3, 3, &[tensor()]), ""),
        ("elements of two kinds", [tensors(1), list(1, 5, &[tensors(1)])].concat(), ""),
        ("sparse tensors", list(2, 4, &[vec![]]), ""),
        ("maps", list(4, 6, &[vec![]]), ""),
        ("an unknown kind", list(9, 3, &[]), ""),
        ("an unknown field", [tensors(1), vec![9 << 3 | 2, 0]].concat(), ""),
        ("a part of a message", tensor()[..9].to_vec(), ""),
    ]
}

#[test]
fn a_file_is_of_the_declared_kind_or_refused() {
    let declared = [
        ('T', tensor_type(), tensor()),
        ('S', sequence_of(tensor_type()), list(1, 3, &vec![tensor(); 2])),
        ('O', optional_of(tensor_type()), list(1, 3, &[tensor()])),
        ('Q', optional_of(sequence_of(tensor_type())), list(3, 5, &[list(1, 3, &[tensor()])])),
    ];
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    for (letter, ty, own) in &declared {
        folder.save("m.onnx", &identity(ty));
        fs::write(folder.path("own.pb"), own).unwrap();
        for (name, bytes, good) in files() {
            for file in ["x.pb", "d/input_0.pb", "d/output_0.pb"] {
                fs::write(folder.path(file), &bytes).unwrap();
            }
            let is_good = good.contains(*letter);
            for input in [["--input", "x=x.pb"], ["--input-dir", "d"]] {
                let run = folder.run(&[&["run", "m.onnx"][..], &input].concat());
                let said = format!("{name} for {letter}, {input:?}: {run:?}");
                assert_eq!(run.code(), i32::from(!is_good), "{said}");
                assert!(is_good || run.stderr().contains(".pb`: "), "{said}");
            }
            let compare = ["run", "m.onnx", "--input", "x=own.pb", "--expect", "d"];
            let run = folder.run(&compare);
            let said = format!("{name} expected of {letter}: {run:?}");
            assert_eq!(run.code() == 0, bytes == *own, "{said}");
            assert!(!run.stdout().contains("compared  1 output") || bytes == *own, "{said}");
        }
    }
}
