//! Outlines: what they write is what a container writes, and what they do not decode is checked.

use std::path::Path;

use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, StringStringEntryProto, TensorProto,
    ValueInfoProto,
};
use onnx_container::{
    Alignment, Container, ErrorKind, LoadOptions, MmapChoice, Outline, Result, SaveOptions,
    WeightFiles, traversal,
};

use crate::random_models::{Choices, Flavour, random_model};
use crate::support::{
    both_choices, branches, constant, floats, graph, int64s, model, node, tensors_everywhere,
};

/// Nodes and types that hold no tensors, as many as `count` says, around what holds some.
fn surrounded(count: usize) -> ModelProto {
    let mut model = tensors_everywhere();
    let plain = |from: usize, count: usize| {
        (from..from + count).map(move |i| {
            let (input, output) = (format!("v{i}"), format!("v{}", i + 1));
            let axis = vec![AttributeProto::int("axis", 1), AttributeProto::ints("perm", [1, 0])];
            let mut node = node("Plain", &[&input], &[&output], axis);
            node.metadata_props.push(StringStringEntryProto::new("namespace", &*input));
            node
        })
    };
    let main = model.graph.as_mut().unwrap();
    let holders = std::mem::take(&mut main.node);
    for (i, holder) in holders.into_iter().enumerate() {
        main.node.extend(plain(i * count, count));
        main.node.push(holder);
    }
    main.node.extend(plain(900_000, 3));
    let inner = |value| graph(vec![], vec![node("Relu", &["x"], &[value], vec![])]);
    main.node.push(branches(&["none"], inner("a"), inner("b")));
    let infos = (0..count)
        .map(|i| ValueInfoProto::tensor(format!("v{i}"), TensorProto::FLOAT, [i as i64, 4]));
    main.value_info = infos.collect();
    let mut function = model.functions[0].clone();
    function.node = plain(0, 5).collect();
    function.attribute_proto.clear();
    function.name = Some("plain".into());
    model.functions.insert(0, function);
    model
}

/// Saves `model` with all its tensors in a data file.
fn save_packed(model: ModelProto, path: &Path) {
    let mut container = Container::new(model);
    container.externalize(ExternalizeOptions::new().all_tensors(true)).unwrap();
    container.save(path, WeightFiles::Packed).unwrap();
}

/// Holds what an outline of the model at `path` writes to what a container writes.
fn assert_alike(path: &Path, mmap: MmapChoice) {
    let [by_outline, by_container] = ["o", "c"].map(|name| path.with_extension(name));
    let container = Container::load(path, mmap).unwrap();
    container.save(&by_container, WeightFiles::Embedded).unwrap();

    let outline = Outline::load(path, mmap).unwrap();
    let names = |tensors: traversal::Tensors<'_>| -> Vec<_> {
        tensors.map(|(place, tensor)| (place.position, place.qualified_name(tensor))).collect()
    };
    assert_eq!(names(outline.tensors()), names(traversal::iter(container.model())));
    for (handle, _) in container.iter() {
        assert!(outline.get(handle.as_str()).is_some(), "{handle}");
    }
    let planned = outline.dry_run(&by_outline, true).unwrap();
    let saved = outline.embed(&by_outline, true).unwrap();
    let bytes = std::fs::read(&by_outline).unwrap();
    assert!(bytes == std::fs::read(&by_container).unwrap(), "the files differ");
    assert_eq!((planned.bytes, saved.bytes), (bytes.len() as u64, bytes.len() as u64));
    let mut again = Vec::new();
    saved.encode_model(&mut again).unwrap();
    assert!(again == bytes, "the bytes of the model are others the second time");
    assert!(saved.model().unwrap() == ModelProto::decode(&bytes.into()).unwrap());
}

#[test]
fn an_outline_writes_what_a_container_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    // 5,000 messages in a row are counted and written by several threads.
    for count in [0, 1, 3, 5000] {
        save_packed(surrounded(count), &path);
        both_choices().into_iter().for_each(|mmap| assert_alike(&path, mmap));
    }
    for seed in 0..20 {
        save_packed(random_model(Choices::seeded(seed), Flavour::Anything), &path);
        assert_alike(&path, MmapChoice::never());
    }
}

#[test]
fn an_outline_may_be_copied_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let [path, out] = ["m.onnx", "out.onnx"].map(|name| folder.path().join(name));
    save_packed(surrounded(40), &path);
    let outline = Outline::load(&path, LoadOptions::new().no_copy(false)).unwrap();
    Container::load(&path, MmapChoice::never()).unwrap().save(&out, WeightFiles::Embedded).unwrap();
    let expected = std::fs::read(&out).unwrap();
    outline.embed(&out, true).unwrap();
    assert!(std::fs::read(&out).unwrap() == expected);
}

#[test]
fn an_outline_aligns_elements_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    // Elements come right before types of values, which are longer and at any address.
    let mut plain = graph(vec![int64s("axis", &[1])], vec![]);
    let info = |i| ValueInfoProto::tensor(format!("v{i}"), TensorProto::FLOAT, [i]);
    plain.value_info = (0..200).map(info).collect();
    std::fs::write(&path, model(plain).encode_to_vec().unwrap()).unwrap();
    for no_copy in [true, false] {
        let options = LoadOptions::new().alignment(Alignment::CACHE_LINE).no_copy(no_copy);
        let container = Container::load(&path, options.clone()).map(drop).map_err(|e| e.kind());
        let outline = Outline::load(&path, options).map(drop).map_err(|e| e.kind());
        assert_eq!(outline, container, "{no_copy}");
    }
}

#[test]
fn only_what_holds_tensors_is_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    save_packed(surrounded(100), &path);
    let outline = Outline::load(&path, MmapChoice::never()).unwrap();
    let saved = outline.dry_run(folder.path().join("o.onnx"), true).unwrap();
    let main: &GraphProto = saved.structure().graph.as_ref().unwrap();
    assert_eq!(main.node.len(), tensors_everywhere().graph.unwrap().node.len());
    assert!(main.value_info.is_empty());
    assert_eq!(saved.structure().functions.len(), 2);
}

/// The canonical bytes of the model that was embedded by `embed`.
fn embedded(path: &Path, embed: impl FnOnce(&Path) -> Result<()>) -> Result<Vec<u8>> {
    let out = path.with_extension("out");
    embed(&out)?;
    ModelProto::decode(&std::fs::read(out).unwrap().into())?.encode_to_vec()
}

#[test]
fn what_is_passed_over_is_read_as_strictly() {
    let inner = graph(vec![], vec![node("Relu", &["x"], &["z"], vec![])]);
    let attributes = vec![
        AttributeProto::ints("perm", [1, 300]),
        AttributeProto::floats("scales", [1.0, 2.0]),
        AttributeProto::graph("body", inner),
    ];
    let nodes = vec![
        node("Plain", &["x"], &["y"], attributes),
        constant("k", floats("", 0, 2)),
        node("Last", &["y", "k"], &["z"], vec![]),
    ];
    let mut plain = graph(vec![], nodes);
    plain.value_info.push(ValueInfoProto::tensor("y", TensorProto::FLOAT, [2]));
    let bytes = model(plain).encode_to_vec().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut refused = 0;
    for at in 0..bytes.len() {
        for byte in [bytes[at] ^ 1, bytes[at] | 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] = byte;
            std::fs::write(&path, &damaged).unwrap();
            let options = || SaveOptions::from(WeightFiles::Embedded).sync(false);
            let by_outline = embedded(&path, |out| {
                Outline::load(&path, MmapChoice::never())?.embed(out, options()).map(drop)
            });
            let by_container = embedded(&path, |out| {
                Container::load(&path, MmapChoice::never())?.save(out, options()).map(drop)
            });
            refused += usize::from(by_container.is_err());
            let kinds = (by_outline.map_err(|e| e.kind()), by_container.map_err(|e| e.kind()));
            assert!(kinds.0 == kinds.1, "{byte} at {at}: {kinds:?}");
        }
    }
    assert!(refused > 20, "{refused} of {} bytes", bytes.len());
}

#[test]
fn what_needs_the_operators_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    save_packed(surrounded(1), &path);
    let outline = Outline::load(&path, MmapChoice::never()).unwrap();
    let out = folder.path().join("out.onnx");
    let options = [SaveOptions::new().externalize(true), SaveOptions::new().inline_functions(true)];
    for options in options {
        let error = outline.embed(&out, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    assert!(!out.exists());
}
