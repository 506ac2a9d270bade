//! Every tensor of a container by iteration, by name and by message, wherever it is stored.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{
    Container, DataType, ErrorKind, LoadOptions, SaveOptions, Tensor, TensorStorage, WeightFiles,
    traversal,
};

use crate::support::{
    EVERYWHERE, all_bytes, both_choices, branches, floats, graph, model, node, tensors_everywhere,
};

#[test]
fn every_tensor_is_found_by_a_name_of_its_own_inline_and_external() {
    let inline = Container::new(tensors_everywhere());
    let mut external = inline.clone();
    external.externalize(ExternalizeOptions::from(0).all_tensors(true)).unwrap();
    for container in [inline, external] {
        let index = container.index();
        assert_eq!(index.len(), EVERYWHERE.len());
        let expected = all_bytes(&container);
        let names: HashSet<_> = index.iter().map(|tensor| tensor.name().to_owned()).collect();
        assert_eq!(names.len(), EVERYWHERE.len(), "{names:?}");
        for (at, tensor) in container.tensors().enumerate() {
            assert_eq!(tensor.place().position.index(), at);
            assert!(tensor.name().starts_with(EVERYWHERE[at]), "{}", tensor.name());
            let elements = tensor.tensor().unwrap();
            assert_eq!(elements.as_bytes().unwrap(), expected[at]);
            assert_eq!(tensor.dtype().unwrap(), elements.dtype());
            assert_eq!(tensor.dims(), elements.dims());
            assert_eq!(tensor.byte_len().unwrap(), elements.byte_len() as u64);
            let found = index.get(tensor.name()).unwrap();
            assert_eq!(found.place().position, tensor.place().position);
            assert_eq!(index.at(tensor.place().position).unwrap().name(), tensor.name());
            assert_eq!(container.tensor(tensor.name()).unwrap(), elements);
            assert_eq!(container.resolve(tensor.proto()).unwrap(), elements);
        }
    }
}

#[test]
fn names_that_repeat_are_numbered_around_real_names() {
    let names = ["w", "w", "w[0]", "v", "w", "w[[0]]", "", "", "#w", "x]", "x]"];
    let tensors = names.iter().enumerate().map(|(i, name)| floats(name, i, 1)).collect();
    let container = Container::new(model(graph(tensors, vec![])));
    let index = container.index();
    let unique: Vec<_> = index.iter().map(|tensor| tensor.name()).collect();
    let expected = [
        "w[[[0]]]",
        "w[1]",
        "w[0]",
        "v",
        "w[2]",
        "w[[0]]",
        "tensor[0]",
        "tensor[1]",
        "#w",
        "x][0]",
        "x][1]",
    ];
    assert_eq!(unique, expected);
    for (at, name) in unique.iter().enumerate() {
        assert_eq!(index.get(name).unwrap().place().position.index(), at, "{name}");
    }
    let error = index.get("w").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("`w[[[0]]]` (FLOAT [1]), `w[1]` (FLOAT [1])"), "{error}");
}

/// Were each name compared with those before it, this would take minutes.
#[test]
fn a_hundred_thousand_names_that_are_nearly_equal_are_told_apart() {
    let stem = "n".repeat(250);
    let count = 100_000;
    let name = |i: usize| format!("{stem}{}", i / 2);
    let tensors = (0..count).map(|i| TensorProto::new(name(i), TensorProto::FLOAT, [1]));
    let container = Container::new(model(graph(tensors.collect(), vec![])));
    let names: HashSet<String> = container.tensors().map(|t| t.name().to_owned()).collect();
    assert_eq!(names.len(), count);
    assert!(names.contains(&format!("{stem}7[1]")));
}

#[test]
fn where_the_bytes_are_is_known_loaded_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut then_branch = graph(vec![floats("t", 0, 300)], vec![]);
    then_branch.node.push(node("Identity", &["t"], &["y1"], vec![]));
    let conditional = branches(&["y"], then_branch, graph(vec![], vec![]));
    let main = graph(vec![floats("a", 5, 2), floats("b", 9, 400)], vec![conditional]);
    let mut container = Container::new(model(main));
    container.externalize(1000).unwrap();
    for files in
        [WeightFiles::Packed, WeightFiles::PerTensor, WeightFiles::Sharded { max_bytes: 1000 }]
    {
        container.save(&path, SaveOptions::from(files)).unwrap();
        // Bytes that were written just now are not known to be those of the file.
        let old = SystemTime::now() - Duration::from_secs(60);
        for entry in fs::read_dir(folder.path()).unwrap() {
            File::options()
                .write(true)
                .open(entry.unwrap().path())
                .unwrap()
                .set_modified(old)
                .unwrap();
        }
        let expected: HashMap<_, _> =
            container.tensors().map(|t| (t.name().to_owned(), t.tensor().unwrap())).collect();
        for mmap in both_choices() {
            for weights in [true, false] {
                let options = LoadOptions::from(mmap).weights(weights);
                let loaded = Container::load(&path, options).unwrap();
                assert_eq!(loaded.tensors().count(), 3);
                for tensor in loaded.tensors() {
                    let storage = tensor.storage().unwrap();
                    let small = tensor.name() == "a";
                    match storage {
                        TensorStorage::Inline => assert!(small),
                        TensorStorage::Handle { handle, .. } => {
                            assert!(weights && !small);
                            assert_eq!(handle.name(), tensor.name().rsplit('/').next().unwrap());
                        }
                        TensorStorage::File { .. } => assert!(!weights && !small),
                        _ => panic!("{storage:?}"),
                    }
                    let (file, range) = tensor.file_range().unwrap().unwrap();
                    let bytes = fs::read(folder.path().join(file)).unwrap();
                    let range = range.start as usize..range.end as usize;
                    let expected = &expected[tensor.name()];
                    assert_eq!(Some(&bytes[range]), expected.as_bytes(), "{}", tensor.name());
                    assert_eq!(tensor.byte_len().unwrap(), expected.byte_len() as u64);
                    let kind = tensor.tensor().err().map(|error| error.kind());
                    let missing = (!weights && !small).then_some(ErrorKind::MissingHandle);
                    assert_eq!(kind, missing);
                }
            }
        }
    }
}

#[test]
fn what_is_malformed_concerns_its_own_tensor() {
    let mut no_type = floats("no_type", 0, 1);
    no_type.data_type = None;
    let mut unknown = floats("unknown", 0, 1);
    unknown.data_type = Some(99);
    let negative = TensorProto::new("negative", TensorProto::FLOAT, [-1]);
    let short = TensorProto::new("short", TensorProto::FLOAT, [9]).with_raw_data(&[0; 4][..]);
    let dangling = TensorProto::external("dangling", TensorProto::FLOAT, [1], "#nothing");
    let no_location = TensorProto::external("no_location", TensorProto::FLOAT, [1], "");
    let good = floats("good", 3, 1);
    let tensors = vec![no_type, unknown, negative, short, dangling, no_location, good];
    let container = Container::new(model(graph(tensors, vec![])));
    use ErrorKind::{DataType, InvalidModel, MissingHandle, Shape};
    let expected: &[(&str, [Option<ErrorKind>; 4])] = &[
        ("no_type", [Some(DataType), Some(DataType), None, Some(DataType)]),
        ("unknown", [Some(DataType), Some(DataType), None, Some(DataType)]),
        ("negative", [None, Some(Shape), None, Some(Shape)]),
        ("short", [None, None, None, Some(Shape)]),
        ("dangling", [None, None, Some(MissingHandle), Some(MissingHandle)]),
        ("no_location", [None, None, Some(InvalidModel), Some(InvalidModel)]),
        ("good", [None; 4]),
    ];
    let found: Vec<_> = container.tensors().collect();
    assert_eq!(found.len(), expected.len());
    for (tensor, (name, kinds)) in found.iter().zip(expected) {
        let errors = [
            tensor.dtype().err(),
            tensor.byte_len().err(),
            tensor.storage().err(),
            tensor.tensor().err(),
        ];
        for error in errors.iter().flatten() {
            assert_eq!(error.tensor(), Some(*name));
        }
        assert_eq!(errors.map(|error| error.map(|error| error.kind())), *kinds, "{name}");
    }
}

#[test]
fn elements_are_shared_not_copied() {
    let mut container = Container::new(model(graph(vec![floats("inline", 0, 4)], vec![])));
    let values = vec![1.0_f32; 8];
    let address = values.as_ptr().addr();
    container.add_initializer("vector", values).unwrap();
    let vector = container.tensor("vector").unwrap();
    assert_eq!(vector.as_bytes().unwrap().as_ptr().addr(), address);
    assert_eq!(vector.to_f32().unwrap().as_ptr().addr(), address);
    let inline =
        container.model().graph.as_ref().unwrap().initializer[0].raw_data.as_ref().unwrap();
    let tensor = container.tensor("inline").unwrap();
    assert_eq!(tensor.as_bytes().unwrap().as_ptr(), inline.as_ptr());
}

#[test]
fn every_float_type_is_read_as_numbers() {
    use onnx_container::half::{bf16, f16};
    use onnx_container::microfloat::{f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu};
    let values = [0.5_f32, 1.0, 2.0, 4.0];
    let floats: Vec<Tensor> = vec![
        values.to_vec().into(),
        values.map(f64::from).to_vec().into(),
        values.map(f16::from_f32).to_vec().into(),
        values.map(bf16::from_f32).to_vec().into(),
        values.map(f8e4m3fn::from_f32).to_vec().into(),
        values.map(f8e4m3fnuz::from_f32).to_vec().into(),
        values.map(f8e5m2::from_f32).to_vec().into(),
        values.map(f8e5m2fnuz::from_f32).to_vec().into(),
        values.map(f8e8m0fnu::from_f32).to_vec().into(),
        Tensor::pack(DataType::Float4E2M1, [4], &[1, 2, 4, 6]).unwrap(),
        Tensor::pack(DataType::Float6E2M3, [4], &[4, 8, 16, 24]).unwrap(),
        Tensor::pack(DataType::Float6E3M2, [4], &[8, 12, 16, 20]).unwrap(),
    ];
    for tensor in &floats {
        assert_eq!(*tensor.to_f32().unwrap(), values, "{}", tensor.dtype());
    }
    let of_kinds: HashSet<_> = floats.iter().map(Tensor::dtype).collect();
    let others = DataType::ALL.iter().filter(|dtype| !of_kinds.contains(dtype));
    let name = |dtype: &&DataType| !dtype.name().contains("FLOAT") && **dtype != DataType::Double;
    assert!(others.clone().all(|dtype| name(&dtype)), "a float type is not read");
    for dtype in others.filter(|dtype| dtype.bit_width().is_some()) {
        let len = dtype.byte_len(&[1]).unwrap() as usize;
        let tensor = Tensor::new(*dtype, [1], vec![0; len].into()).unwrap();
        assert_eq!(tensor.to_f32().unwrap_err().kind(), ErrorKind::DataType);
    }
    let wide = Tensor::from_vec([3], vec![1e300_f64, -1e300, f64::NAN]).unwrap();
    let narrowed = wide.to_f32().unwrap();
    assert!(
        narrowed[0] == f32::INFINITY && narrowed[1] == f32::NEG_INFINITY && narrowed[2].is_nan()
    );
}

#[test]
fn handles_are_found_with_and_without_their_sign() {
    let mut container = Container::default();
    container.insert("#w", vec![1.0_f32]).unwrap();
    container.insert("##v", vec![1.0_f32]).unwrap();
    for (name, found) in [("#w", true), ("w", true), ("##v", true), ("#v", false), ("v", false)] {
        assert_eq!(container.get(name).is_some(), found, "{name}");
    }
    assert!(container.remove("w").is_some());
    assert_eq!(container.len(), 1);
}

#[test]
fn a_container_is_taken_apart_and_embedded_without_a_copy() {
    let mut container = Container::new(ModelProto::default());
    container.add_initializer("w", vec![1.0_f32, 2.0]).unwrap();
    let address = container.get("#w").unwrap().as_buffer().unwrap().as_ptr();
    let embedded = container.clone().into_embedded().unwrap();
    let tensor = &embedded.graph.as_ref().unwrap().initializer[0];
    assert_eq!(tensor.raw_data.as_ref().unwrap().as_ptr(), address);
    assert_eq!(embedded, container.embed().unwrap());
    assert_eq!(container.clone().into_model(), *container.model());
    let (model, initializers) = container.clone().into_parts();
    assert_eq!(&model, container.model());
    assert_eq!(initializers.keys().map(|handle| handle.as_str()).collect::<Vec<_>>(), ["#w"]);
    container.remove("#w");
    let error = container.clone().into_embedded().unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::MissingHandle, Some("w")));
    assert_eq!(traversal::iter(container.model()).count(), 1);
}
