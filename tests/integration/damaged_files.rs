//! A model that was cut off anywhere, or has any one bit changed: an error or a model, by every way
//! to read one, and never a bug of ours.

use std::fs;
use std::path::Path;

use onnx_container::check::{CheckOptions, check_model};
use onnx_container::edit::ExternalizeOptions;
use onnx_container::inline::InlineOptions;
use onnx_container::proto::{
    AttributeProto, FunctionProto, Message, ModelProto, OperatorSetIdProto, Packed,
    SparseTensorProto, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Container, Error, ErrorKind, LoadOptions, MmapChoice, SaveOptions};

use crate::support::{few_or, graph, model, node};

fn external(name: &str, dtype: i32, dims: &[i64], offset: u64) -> TensorProto {
    let mut tensor = TensorProto::external(name, dtype, dims, "w.bin");
    tensor.external_data.push(StringStringEntryProto::new("offset", offset.to_string()));
    tensor
}

/// A model with what can go wrong: external tensors in a graph, a subgraph and a function, typed
/// fields, packed and sparse tensors, strings.
fn valuable() -> ModelProto {
    let mut inner = graph(vec![external("z", TensorProto::FLOAT, &[2], 8)], vec![]);
    inner.output.push(ValueInfoProto::tensor("z", TensorProto::FLOAT, [2]));
    let constant = |name: &str, tensor| {
        node("Constant", &[], &[name], vec![AttributeProto::tensor("value", tensor)])
    };
    let nodes = vec![
        constant("c", external("k", TensorProto::INT4, &[3], 4)),
        node("If", &["b"], &["y"], vec![AttributeProto::graph("then_branch", inner)]),
        node("f", &["c"], &["d"], vec![]),
    ];
    let mut typed = TensorProto::new("t", TensorProto::FLOAT, [2]);
    typed.float_data = Packed::from(vec![1.0_f32, 2.0]).into();
    let mut strings = TensorProto::new("s", TensorProto::STRING, [1]);
    strings.string_data = vec![b"x".to_vec().into()].into();
    let mut main = graph(vec![external("w", TensorProto::FLOAT, &[4], 0), typed, strings], nodes);
    let mut sparse = SparseTensorProto::default();
    sparse.values = Some(Box::new(external("p", TensorProto::FLOAT, &[1], 0)));
    let indices = TensorProto::new("i", TensorProto::INT64, [1]).with_raw_data(vec![0; 8]);
    sparse.indices = Some(Box::new(indices));
    sparse.dims = vec![4];
    main.sparse_initializer.push(sparse);
    let mut function = FunctionProto::new("local", "f");
    function.input = vec!["a".into()];
    function.output = vec!["r".into()];
    function.node = vec![constant("r", external("v", TensorProto::FLOAT, &[4], 0))];
    function.opset_import = vec![OperatorSetIdProto::new("", 21)];
    let mut model = model(main);
    model.functions = vec![function];
    model.opset_import.push(OperatorSetIdProto::new("local", 1));
    model
}

/// Whether the library blames itself for what is in a file.
fn is_ours(error: &Error) -> bool {
    error.each().any(|error| error.kind() == ErrorKind::Internal)
}

/// Reads the model at `path` in every way; returns whether it was one.
fn read(path: &Path, at: &str) -> bool {
    let options = CheckOptions::from(MmapChoice::never()).contents(true).digests(true);
    let checked = check_model(path, options);
    let container = match (Container::load(path, MmapChoice::never()), &checked) {
        (Ok(container), Ok(_)) => container,
        (Err(error), Ok(checked)) => {
            assert!(!is_ours(&error) && !checked.is_ok(), "{at}: {error}");
            return false;
        }
        (Err(error), Err(_)) => {
            assert!(!is_ours(&error), "{at}: {error}");
            return false;
        }
        (Ok(_), Err(error)) => panic!("{at}: loaded, and not checked: {error}"),
    };
    let mut inlined = container.clone();
    let results = [
        inlined.externalize(ExternalizeOptions::from(1).all_tensors(true)).map(|_| ()),
        inlined.inline_functions(InlineOptions::new().max_nodes(1000)).map(|_| ()),
        container.digest().map(|_| ()),
        container.semantic_digest().map(|_| ()),
        container.to_parts(SaveOptions::new()).map(|parts| {
            let options = LoadOptions::new().files(parts.files);
            Container::load_bytes(parts.model, options).expect("what was saved is loaded");
        }),
    ];
    for error in results.into_iter().filter_map(Result::err) {
        assert!(!is_ours(&error), "{at}: {error}");
    }
    true
}

#[test]
fn every_cut_and_changed_bits_of_every_byte_are_an_error_or_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(folder.path().join("w.bin"), [1; 16]).unwrap();
    let bytes = valuable().encode_to_vec().unwrap();
    let read = |bytes: &[u8], at: &str| {
        fs::write(&path, bytes).unwrap();
        read(&path, at)
    };
    assert!(read(&bytes, "whole"));
    for end in 0..bytes.len() {
        read(&bytes[..end], &format!("cut off at {end}"));
    }
    let (mut models, mut changed) = (0, bytes.clone());
    // By default, two or three bits of each byte.
    let bits = (0..8 * bytes.len()).step_by(few_or(3, 1));
    for bit in bits.clone() {
        changed[bit / 8] ^= 1 << (bit % 8);
        models += usize::from(read(&changed, &format!("bit {bit}")));
        changed[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(models > 0 && models < bits.len(), "{models} of {} bits", bits.len());
}

#[test]
fn every_cut_of_the_weights_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(&path, valuable().encode_to_vec().unwrap()).unwrap();
    for length in 0..=16 {
        fs::write(folder.path().join("w.bin"), vec![1; length]).unwrap();
        assert_eq!(read(&path, &format!("{length} bytes")), length == 16);
    }
}
