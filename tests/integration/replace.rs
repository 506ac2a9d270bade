//! `Container::tensor` and `Container::replace`: one tensor is read, or replaced, by its name.

use ndarray::array;
use onnx_container::edit::Tied;
use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::{
    Buffer, Container, DataType, ErrorKind, Initializer, LoadOptions, MmapChoice, Tensor, traversal,
};

use crate::support::{EVERYWHERE, all_bytes, assert_same, floats, tensors_everywhere};

/// A float tensor of `dims` whose elements are all `value`.
fn filled(value: f32, dims: &[i64]) -> Tensor {
    let count: i64 = dims.iter().product();
    let bytes: Vec<u8> = (0..count).flat_map(|_| value.to_le_bytes()).collect();
    Tensor::new(DataType::Float, dims, bytes.into()).unwrap()
}

/// External FLOAT tensors with their dims and handles, and what is behind the handles.
fn container(tensors: &[(&str, &[i64], &str)], behind: Vec<(&str, Tensor)>) -> Container {
    let mut graph = GraphProto::new("g");
    for (name, dims, handle) in tensors {
        graph.initializer.push(TensorProto::external(*name, TensorProto::FLOAT, *dims, *handle));
    }
    let mut container = Container::new(ModelProto::new(graph));
    for (handle, tensor) in behind {
        container.insert(handle, tensor).unwrap();
    }
    container.check().unwrap();
    container
}

/// The first elements of the tensors, as an embedded model has them.
fn firsts(container: &Container) -> Vec<f32> {
    let bytes = all_bytes(container);
    bytes.iter().map(|b| f32::from_le_bytes(b[..4].try_into().unwrap())).collect()
}

/// A name for each tensor of [`EVERYWHERE`] that means it alone.
fn names_of_everywhere() -> Vec<String> {
    let mut names = Vec::new();
    for (i, name) in EVERYWHERE.iter().enumerate() {
        let before = EVERYWHERE[..i].iter().filter(|other| *other == name).count();
        let alone = EVERYWHERE.iter().filter(|other| *other == name).count() == 1;
        names.push(if alone { (*name).to_owned() } else { format!("{name}[{before}]") });
    }
    names
}

#[test]
fn every_tensor_comes_out_inline_and_external() {
    let inline = Container::new(tensors_everywhere());
    let mut external = inline.clone();
    let options = onnx_container::edit::ExternalizeOptions::new().min_bytes(0).all_tensors(true);
    assert_eq!(external.externalize(options).unwrap().moved, EVERYWHERE.len());
    let expected = all_bytes(&inline);
    for (name, bytes) in names_of_everywhere().iter().zip(expected) {
        for container in [&inline, &external] {
            assert_eq!(container.tensor(name).unwrap().as_bytes(), Some(&bytes[..]), "{name}");
        }
    }
}

#[test]
fn every_tensor_is_replaced_where_it_lies() {
    let inline = Container::new(tensors_everywhere());
    let mut external = inline.clone();
    let options = onnx_container::edit::ExternalizeOptions::new().min_bytes(0).all_tensors(true);
    external.externalize(options).unwrap();
    for (number, name) in names_of_everywhere().iter().enumerate() {
        for (before, is_inline) in [(&inline, true), (&external, false)] {
            let old = before.tensor(name).unwrap();
            let bytes = vec![7; old.byte_len()];
            let new = Tensor::new(old.dtype(), old.dims(), bytes.clone().into()).unwrap();
            let mut container = before.clone();
            let replaced = container.replace(name, new, Tied::Refuse).unwrap();
            assert_eq!(
                (replaced.tensor.as_str(), replaced.inline),
                (EVERYWHERE[number], is_inline)
            );
            assert_eq!((replaced.bytes, replaced.tied.len()), (bytes.len() as u64, 0));
            let mut expected = all_bytes(before);
            expected[number] = bytes;
            assert_eq!(all_bytes(&container), expected, "{name}");
            assert_eq!(container.len(), before.len());
        }
    }
}

#[test]
fn typed_fields_become_raw_and_other_fields_stay() {
    let mut tensor = TensorProto::new("w", TensorProto::FLOAT, [2]);
    tensor.doc_string = Some(Box::new("kept".into()));
    *tensor.float_data = vec![1.0_f32, 2.0].into();
    let mut graph = GraphProto::new("g");
    graph.initializer.push(tensor);
    let mut container = Container::new(ModelProto::new(graph));
    container.replace("w", array![3.0_f32, 4.0], Tied::Refuse).unwrap();
    let tensor = &container.model().graph.as_ref().unwrap().initializer[0];
    assert!(tensor.float_data.is_empty());
    assert_eq!(tensor.raw_data.as_deref(), Some(&[0, 0, 64, 64, 0, 0, 128, 64][..]));
    assert_eq!(tensor.doc_string, Some(Box::new("kept".into())));
}

#[test]
fn strings_are_replaced_by_strings() {
    let strings = |texts: &[&'static str]| {
        let strings = texts.iter().map(|text| Buffer::from(text.as_bytes())).collect();
        Tensor::from_strings([texts.len() as i64], strings).unwrap()
    };
    let mut graph = GraphProto::new("g");
    graph.initializer.push(strings(&["a", "bc"]).to_proto("words"));
    let mut container = Container::new(ModelProto::new(graph));
    let new = strings(&["", "xyz"]);
    container.replace("words", new.clone(), Tied::Refuse).unwrap();
    assert_eq!(container.tensor("words").unwrap(), new);
    let error = container.replace("words", array![1_u8, 2], Tied::Refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DataType);
}

#[test]
fn names_that_mean_none_or_several_are_refused_with_those_there_are() {
    let mut container = Container::new(tensors_everywhere());
    let main = &mut container.model_mut().graph.as_mut().unwrap().initializer;
    main[0].name = Some("encoder.weight".into());
    main.push(floats("[1]", 0, 1));
    let cases: &[(&str, ErrorKind, &[&str])] = &[
        ("encoder.wieght", ErrorKind::MissingTensor, &["did you mean `encoder.weight`?"]),
        ("model.encoder.weight", ErrorKind::MissingTensor, &["did you mean `encoder.weight`?"]),
        ("weight", ErrorKind::MissingTensor, &["did you mean `encoder.weight`?"]),
        ("coder.wei", ErrorKind::MissingTensor, &["did you mean `encoder.weight`?"]),
        ("", ErrorKind::MissingTensor, &["none of the 20 tensors has a similar name"]),
        ("#no", ErrorKind::MissingTensor, &["no such tensor"]),
        ("list_out[2]", ErrorKind::MissingTensor, &["`list_out`"]),
        ("list_out[-1]", ErrorKind::MissingTensor, &["`list_out`"]),
        ("w", ErrorKind::InvalidArgument, &["6 tensors have this name: `if_node.then_branch/w`"]),
        (
            "sparse",
            ErrorKind::InvalidArgument,
            &["2 tensors have this name: `sparse[0]` (FLOAT [4]), `sparse[1]` (INT64 [4])"],
        ),
    ];
    for (name, kind, reasons) in cases {
        let found = container.tensor(name).unwrap_err();
        let replaced = container.replace(name, array![0_u8], Tied::All).unwrap_err();
        for error in [found, replaced] {
            assert_eq!((error.kind(), error.tensor()), (*kind, Some(*name)), "{error}");
            assert!(reasons.iter().all(|reason| error.reason().contains(reason)), "{error}");
        }
    }
    assert_eq!(container.tensor("[1]").unwrap().element_count(), 1);
}

#[test]
fn another_type_or_shape_is_refused_and_changes_nothing() {
    let tensors: &[(&str, &[i64], &str)] = &[("w", &[2, 3], "#w"), ("v", &[6], "#v")];
    let behind = || vec![("#w", filled(1.0, &[2, 3])), ("#v", filled(1.0, &[6]))];
    let mut inline = container(tensors, behind());
    *inline.model_mut() = inline.embed().unwrap();
    let cases: Vec<(&str, Initializer, ErrorKind, &str)> = vec![
        ("w", filled(2.0, &[3, 2]).into(), ErrorKind::Shape, "the new elements are transposed"),
        ("w", filled(2.0, &[6]).into(), ErrorKind::Shape, "dims are [2, 3]"),
        ("w", filled(2.0, &[2, 3, 1]).into(), ErrorKind::Shape, "[2, 3, 1]"),
        ("w", filled(2.0, &[2, 2]).into(), ErrorKind::Shape, "[2, 2]"),
        ("v", filled(2.0, &[2, 3]).into(), ErrorKind::Shape, "dims are [6]"),
        ("v", array![1_i32, 2, 3, 4, 5, 6].into(), ErrorKind::DataType, "it is FLOAT"),
    ];
    for (name, new, kind, reason) in cases {
        for before in [&container(tensors, behind()), &inline] {
            for tied in [Tied::Refuse, Tied::All, Tied::This] {
                let mut container = before.clone();
                let error = container.replace(name, new.clone(), tied).unwrap_err();
                assert_eq!((error.kind(), error.tensor()), (kind, Some(name)), "{error}");
                assert!(error.reason().contains(reason), "{error}");
                assert_same(&container, before);
            }
        }
    }
}

/// Tensors of four floats, how they share bytes, and what becomes of them when the one called
/// `name` is replaced by nines: for `All` and for `This`, their first elements, or none for an
/// error.
struct Sharing {
    what: &'static str,
    container: Container,
    name: &'static str,
    others: &'static [&'static str],
    all: Option<&'static [f32]>,
    this: Option<&'static [f32]>,
}

fn sharings() -> Vec<Sharing> {
    let one = filled(1.0, &[4]);
    let parts =
        Buffer::from([1.0_f32, 1.0, 1.0, 1.0, 2.0, 2.0].map(f32::to_le_bytes).as_flattened());
    let part = |range: std::ops::Range<usize>| {
        let count = (range.len() / 4) as i64;
        Tensor::new(DataType::Float, [count], parts.slice(range).unwrap()).unwrap()
    };
    let other_type = Tensor::new(DataType::Float, [2, 2], one.buffer().unwrap().clone()).unwrap();
    let handle: &[(&str, &[i64], &str)] = &[("a", &[4], "#x"), ("b", &[4], "#x")];
    let memory: &[(&str, &[i64], &str)] = &[("a", &[4], "#a"), ("b", &[4], "#b")];
    let shapes: &[(&str, &[i64], &str)] = &[("a", &[4], "#a"), ("b", &[2, 2], "#b")];
    let views: &[(&str, &[i64], &str)] = &[("a", &[2, 2], "#x"), ("b", &[4, 1], "#x")];
    let within: &[(&str, &[i64], &str)] = &[("a", &[4], "#a"), ("b", &[6], "#b")];
    let next: &[(&str, &[i64], &str)] = &[("a", &[4], "#a"), ("b", &[2], "#b")];
    let twice = || vec![("#a", one.clone()), ("#b", one.clone())];
    let sharing = |what, container, name, others, all, this| Sharing {
        what,
        container,
        name,
        others,
        all,
        this,
    };
    let (b, a): (&[&str], &[&str]) = (&["b"], &["a"]);
    vec![
        sharing(
            "alone",
            container(&memory[..1], vec![("#a", one.clone())]),
            "a",
            &[],
            Some(&[9.0]),
            Some(&[9.0]),
        ),
        sharing(
            "one handle",
            container(handle, vec![("#x", one.clone())]),
            "a",
            b,
            Some(&[9.0, 9.0]),
            Some(&[9.0, 1.0]),
        ),
        sharing(
            "one handle, the second",
            container(handle, vec![("#x", one.clone())]),
            "b",
            a,
            Some(&[9.0, 9.0]),
            Some(&[1.0, 9.0]),
        ),
        sharing(
            "by the handle",
            container(handle, vec![("#x", one.clone())]),
            "#x",
            b,
            Some(&[9.0, 9.0]),
            None,
        ),
        sharing(
            "one memory",
            container(memory, twice()),
            "a",
            b,
            Some(&[9.0, 9.0]),
            Some(&[9.0, 1.0]),
        ),
        sharing(
            "two shapes",
            container(shapes, vec![("#a", one.clone()), ("#b", other_type)]),
            "a",
            b,
            Some(&[9.0, 9.0]),
            Some(&[9.0, 1.0]),
        ),
        sharing(
            "two shapes of a vector",
            container(views, vec![("#x", one.clone())]),
            "b",
            a,
            Some(&[9.0, 9.0]),
            Some(&[1.0, 9.0]),
        ),
        sharing(
            "a part",
            container(within, vec![("#a", part(0..16)), ("#b", part(0..24))]),
            "a",
            b,
            None,
            Some(&[9.0, 1.0]),
        ),
        sharing(
            "the whole of a part",
            container(within, vec![("#a", part(0..16)), ("#b", part(0..24))]),
            "b",
            a,
            None,
            Some(&[1.0, 9.0]),
        ),
        sharing(
            "neighbours",
            container(next, vec![("#a", part(0..16)), ("#b", part(16..24))]),
            "a",
            &[],
            Some(&[9.0, 2.0]),
            Some(&[9.0, 2.0]),
        ),
        sharing(
            "the neighbour before",
            container(next, vec![("#a", part(0..16)), ("#b", part(16..24))]),
            "b",
            &[],
            Some(&[1.0, 9.0]),
            Some(&[1.0, 9.0]),
        ),
    ]
}

#[test]
fn tied_tensors_change_as_they_are_meant_to() {
    for Sharing { what, container, name, others, all, this } in sharings() {
        let dims = container.tensor(name).unwrap().dims().to_vec();
        let cases = [
            (Tied::Refuse, others.is_empty().then_some(all).flatten()),
            (Tied::All, all),
            (Tied::This, this),
        ];
        for (tied, expected) in cases {
            let mut changed = container.clone();
            let result = changed.replace(name, filled(9.0, &dims), tied);
            let Some(expected) = expected else {
                let error = result.unwrap_err();
                if tied == Tied::Refuse {
                    assert_eq!(error.kind(), ErrorKind::Tied, "{what}");
                    let named =
                        others.iter().all(|other| error.reason().contains(&format!("`{other}`")));
                    assert!(named, "{what}: {error}");
                }
                assert_eq!(firsts(&changed), firsts(&container), "{what}, {tied:?}");
                continue;
            };
            assert_eq!(result.unwrap().tied, others, "{what}, {tied:?}");
            assert_eq!(firsts(&changed), expected, "{what}, {tied:?}");
            changed.check().unwrap();
        }
    }
}

#[test]
fn a_change_of_all_leaves_them_tied_and_of_one_does_not() {
    let tensors: &[(&str, &[i64], &str)] = &[("a", &[4], "#a"), ("b", &[4], "#b")];
    let one = filled(1.0, &[4]);
    for (tied, bytes) in [(Tied::All, 16), (Tied::This, 256 + 16)] {
        let mut container = container(tensors, vec![("#a", one.clone()), ("#b", one.clone())]);
        container.replace("a", filled(9.0, &[4]), tied).unwrap();
        let parts = container.to_parts(true).unwrap();
        assert_eq!(parts.files[0].1.len(), bytes, "{tied:?}");
    }
}

#[test]
fn an_initializer_of_several_nodes_is_not_tied() {
    let mut model = crate::support::add_w(4);
    let graph = model.graph.as_mut().unwrap();
    graph.node.push(crate::support::node("Mul", &["y", "w"], &["z"], vec![]));
    let mut container = Container::new(model);
    container.insert("#w", filled(1.0, &[4])).unwrap();
    assert_eq!(container.replace("w", filled(2.0, &[4]), Tied::Refuse).unwrap().tied, [""; 0]);
}

#[test]
fn weights_that_were_not_loaded_cannot_be_replaced_one_by_one() {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [4], "w.bin"));
    let mut container = Container::new(ModelProto::new(graph));
    let found = container.tensor("w").unwrap_err();
    let replaced = container.replace("w", filled(1.0, &[4]), Tied::Refuse).unwrap_err();
    for error in [found, replaced] {
        assert_eq!(
            (error.kind(), error.tensor()),
            (ErrorKind::MissingHandle, Some("w")),
            "{error}"
        );
    }
}

#[test]
fn a_file_is_a_buffer_mapped_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.bin");
    std::fs::write(&path, [1, 2, 3]).unwrap();
    for map in crate::support::both_choices() {
        assert_eq!(*map.buffer(&path).unwrap(), [1, 2, 3]);
        let error = map.buffer(folder.path()).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(folder.path())));
        let missing = folder.path().join("absent");
        assert_eq!(map.buffer(&missing).unwrap_err().kind(), ErrorKind::MissingFile);
    }
}

#[test]
fn a_tied_model_on_disk_is_tied_in_the_container() {
    let tensors: &[(&str, &[i64], &str)] = &[("wte", &[4], "#wte"), ("head", &[4], "#wte")];
    let mut container = container(tensors, vec![("#wte", filled(1.0, &[4]))]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container.save(&path, true).unwrap();
    container = Container::load(&path, LoadOptions::from(MmapChoice::never())).unwrap();
    let error = container.replace("head", filled(2.0, &[4]), Tied::default()).unwrap_err();
    assert_eq!(error.to_string(), "tensor `head`: it is tied: its bytes are also those of `wte`");
    container.replace("head", filled(2.0, &[4]), Tied::This).unwrap();
    container.save(&path, true).unwrap();
    let again = Container::load(&path, MmapChoice::never()).unwrap();
    assert_eq!(firsts(&again), [1.0, 2.0]);
    let mut handles = Vec::new();
    traversal::tensors(again.model(), |place, tensor| {
        handles.push((place.name_of(tensor), tensor.external_data[0].value.clone().unwrap()));
        Ok(())
    })
    .unwrap();
    assert_ne!(handles[0].1, handles[1].1);
}
