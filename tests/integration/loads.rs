//! What a load makes of external entries, however these are ordered: handles, names, files.

use std::collections::HashMap;
use std::fs;

use onnx_container::edit::MergeOptions;
use onnx_container::proto::{
    Message, ModelProto, NodeProto, Str, StringStringEntryProto, TensorProto, ValueInfoProto,
};
use onnx_container::{
    Alignment, Buffer, Container, ErrorKind, LoadOptions, MmapChoice, WeightFiles,
};

use crate::support::{graph, model};

/// A UINT8 tensor of `dims` at `offset` of `w.bin`, its entries in an unusual order.
fn at(name: &str, offset: usize, dims: &[i64]) -> TensorProto {
    let mut tensor = TensorProto::external(name, TensorProto::UINT8, dims, "w.bin");
    tensor.external_data.insert(0, StringStringEntryProto::new("offset", offset.to_string()));
    tensor
}

fn load(weights: Vec<TensorProto>) -> Container {
    let bytes = model(graph(weights, vec![])).encode_to_vec().unwrap();
    let file: Vec<u8> = (0..=255).collect();
    Container::load_bytes(bytes, LoadOptions::new().file("w.bin", file)).unwrap()
}

/// The only entry of each tensor: its handle.
fn handles(model: &ModelProto) -> Vec<Str> {
    let tensors = &model.graph.as_ref().unwrap().initializer;
    let handle = |tensor: &TensorProto| {
        let [entry] = &tensor.external_data[..] else { panic!("one entry") };
        assert_eq!(entry.key.as_ref().unwrap(), "location");
        entry.value.clone().unwrap()
    };
    tensors.iter().map(handle).collect()
}

/// Ranges that ascend, descend, repeat and overlap, each with several shapes; every name is used
/// twice.
#[test]
fn tensors_share_a_handle_where_range_and_shape_are_equal_in_any_order() {
    let mut random = 1_u32;
    let mut next = |below: usize| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) as usize % below
    };
    let weights: Vec<_> = (0..600)
        .map(|i| {
            // The first hundred ascend, as in most models.
            let offset = if i < 100 { 2 * i } else { next(200) };
            let dims = [&[4][..], &[2, 2], &[1, 4], &[6], &[0, 5], &[5, 0]][next(6)];
            at(&format!("w{}", i / 2), offset, dims)
        })
        .collect();
    let entry = |tensor: &TensorProto| (tensor.external_data[0].value.clone(), tensor.dims.clone());
    let entries: Vec<_> = weights.iter().map(entry).collect();
    let container = load(weights);

    let mut first = HashMap::new();
    let mut taken = HashMap::new();
    for (entry, handle) in entries.iter().zip(handles(container.model())) {
        let shared = first.entry(entry).or_insert_with(|| handle.clone());
        assert_eq!(*shared, handle, "{entry:?}");
        let owner = taken.entry(handle.clone()).or_insert(entry);
        assert_eq!(*owner, entry, "{handle} is used for two ranges or shapes");
        let offset: usize = entry.0.as_ref().unwrap().to_string().parse().unwrap();
        let len: i64 = entry.1.iter().product();
        let bytes = container.get(handle.to_str().unwrap()).unwrap().as_buffer().unwrap();
        let expected: Vec<u8> = (offset..offset + len as usize).map(|byte| byte as u8).collect();
        assert_eq!(*bytes, expected);
    }
    assert_eq!(container.len(), first.len());
    container.check().unwrap();
}

#[test]
fn a_name_that_repeats_gets_a_number_once_it_repeats() {
    let container = load(vec![at("a", 0, &[1]), at("a_2", 1, &[1]), at("a", 2, &[1])]);
    assert_eq!(handles(container.model()), ["#a", "#a_2", "#a_3"]);
}

#[test]
fn handles_that_are_there_are_avoided() {
    let mut container = load(vec![at("a", 0, &[1]), at("b", 1, &[1])]);
    let more = [at("a", 2, &[1]), at("c", 3, &[1])];
    container.model_mut().graph.as_mut().unwrap().initializer.extend(more);
    container.attach(".", LoadOptions::new().file("w.bin", vec![7; 4])).unwrap();
    assert_eq!(handles(container.model()), ["#a", "#b", "#a_2", "#c"]);
    container.check().unwrap();
}

/// A folder with a model of one small file for each tensor, and the bytes of the files.
fn folder_of_files(count: usize) -> (tempfile::TempDir, Vec<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8; 37 * i % 5000]).collect();
    for (i, bytes) in bytes.iter().enumerate() {
        fs::write(folder.path().join(format!("{i}.bin")), bytes).unwrap();
    }
    let weights = bytes.iter().enumerate().map(|(i, bytes)| {
        let dims = [i64::try_from(bytes.len()).unwrap()];
        TensorProto::external(format!("w{i}"), TensorProto::UINT8, dims, format!("./{i}.bin"))
    });
    let model = model(graph(weights.collect(), vec![]));
    fs::write(folder.path().join("m.onnx"), model.encode_to_vec().unwrap()).unwrap();
    (folder, bytes)
}

#[test]
fn many_small_files_share_memory_and_each_tensor_knows_its_file() {
    let (folder, bytes) = folder_of_files(3000);
    let path = folder.path().join("m.onnx");
    let container = Container::load(&path, MmapChoice::never()).unwrap();
    let buffer = |i: usize| container.get(&format!("#w{i}")).unwrap().as_buffer().unwrap();
    for (i, bytes) in bytes.iter().enumerate() {
        assert_eq!(*buffer(i), bytes[..], "{i}");
        assert_eq!(buffer(i).as_ptr().addr() % 256, 0);
    }
    let mut owners: Vec<Buffer> = Vec::new();
    for i in (0..3000).filter(|i| !bytes[*i].is_empty()) {
        if !owners.iter().any(|owner| owner.same_owner(&buffer(i))) {
            owners.push(buffer(i));
        }
    }
    assert!(owners.len() < 10, "{} pieces of memory", owners.len());
    for (i, tensor) in container.tensors().enumerate() {
        let (file, range) = tensor.file_range().unwrap().unwrap();
        assert_eq!(file.file_name().unwrap(), format!("{i}.bin").as_str());
        assert_eq!(range, 0..bytes[i].len() as u64);
    }
    container.save(folder.path().join("n.onnx"), WeightFiles::AsLoaded).unwrap();
    let again = Container::load(folder.path().join("n.onnx"), MmapChoice::never()).unwrap();
    assert_eq!(again.get("#w7").unwrap().as_buffer().unwrap(), buffer(7));
    let page = LoadOptions::new().no_copy(true).raw_data_threshold(1).alignment(Alignment::PAGE);
    let aligned = Container::load(&path, page).unwrap();
    let bytes = aligned.get("#w7").unwrap().as_buffer().unwrap();
    assert_eq!((bytes.as_ptr().addr() % 4096, bytes), (0, buffer(7)));
}

#[test]
#[cfg(unix)]
fn small_files_are_refused_as_others_are() {
    let (folder, bytes) = folder_of_files(100);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), &bytes[10]).unwrap();
    let at = |i: usize| folder.path().join(format!("{i}.bin"));
    for i in [10, 20, 30, 40, 60] {
        fs::remove_file(at(i)).unwrap();
    }
    std::os::unix::fs::symlink(outside.path().join("secret"), at(10)).unwrap();
    fs::create_dir(at(30)).unwrap();
    fs::write(at(40), &bytes[40][1..]).unwrap();
    fs::write(at(50), [&bytes[50][..], b"and more"].concat()).unwrap();
    std::os::unix::fs::symlink("61.bin", at(60)).unwrap();
    fs::write(at(61), b"version https://git-lfs.github.com/spec/v1\n").unwrap();
    let error = Container::load(folder.path().join("m.onnx"), MmapChoice::never()).unwrap_err();
    let found: Vec<_> = error.related().iter().map(|e| (e.tensor().unwrap(), e.kind())).collect();
    let expected = [
        ("w10", ErrorKind::UnsafePath),
        ("w20", ErrorKind::MissingFile),
        ("w30", ErrorKind::UnsafePath),
        ("w60", ErrorKind::NotDownloaded),
        ("w61", ErrorKind::NotDownloaded),
        ("w40", ErrorKind::OutOfBounds),
    ];
    assert_eq!(found, expected, "{error}");
}

#[test]
fn a_refused_location_is_refused_also_where_it_leads_to_an_open_file() {
    for (good, refused) in [("w.bin", "/w.bin"), ("w.bin", "w.bin/"), ("./w.bin", "//w.bin")] {
        for first in [true, false] {
            let mut names = [("good", good), ("a", refused), ("b", refused)];
            names.rotate_left(usize::from(first));
            let external = |(name, path): (&str, &str)| {
                TensorProto::external(name, TensorProto::UINT8, [2], path)
            };
            let bytes = model(graph(names.into_iter().map(external).collect(), vec![]));
            let options = LoadOptions::new().file("w.bin", vec![1, 2]);
            let loaded = Container::load_bytes(bytes.encode_to_vec().unwrap(), options);
            let error = loaded.unwrap_err();
            // Reported once.
            assert_eq!(error.kind(), ErrorKind::UnsafePath, "{refused} {first}: {error}");
            assert!(error.related().len() <= 1, "{error}");
        }
    }
}

/// A part has the files of its weights, and two models of one file have it once.
#[test]
fn a_part_and_a_merged_model_have_the_files_of_their_weights() {
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, locations: &[&str]| {
        let weights = locations.iter().enumerate().map(|(n, location)| {
            fs::write(folder.path().join(location), [1; 16]).unwrap();
            TensorProto::external(format!("w{n}"), TensorProto::UINT8, [16], *location)
        });
        let mut graph = graph(weights.collect(), vec![]);
        for n in 0..locations.len() {
            let (weight, output) = (format!("w{n}"), format!("y{n}"));
            graph.node.push(NodeProto::new("Identity", [weight], [output.clone()]));
            graph.output.push(ValueInfoProto::tensor(output, TensorProto::UINT8, [16]));
        }
        let path = folder.path().join(name);
        fs::write(&path, model(graph).encode_to_vec().unwrap()).unwrap();
        path
    };
    let first = save("m.onnx", &["b.bin", "a.bin", "b.bin"]);
    let second = save("n.onnx", &["c.bin", "b.bin"]);
    let files = |names: &[&str]| names.iter().map(|it| folder.path().join(it)).collect::<Vec<_>>();
    let read = || LoadOptions::new().mmap(MmapChoice::never());
    // How weights are read, and whether they are copies that do not tell their files.
    let all = [(LoadOptions::new(), false), (read(), false), (read().no_copy(false), true)];
    for (options, are_copies) in all {
        let [one, other] =
            [&first, &second].map(|path| Container::load(path, options.clone()).unwrap());
        for (outputs, expected) in [
            (&["y1"][..], &["a.bin"][..]),
            (&["y2"], &["b.bin"]),
            (&["y1", "y0"], &["b.bin", "a.bin"]),
        ] {
            let part = one.extract_model_for(outputs).unwrap();
            let expected = if are_copies { &["b.bin", "a.bin"] } else { expected };
            assert_eq!(part.weights_files(), files(expected), "{outputs:?} {options:?}");
        }
        let none = one.extract_model(&["w1"], &["y1"]).unwrap();
        assert_eq!(none.weights_files(), files(&[]));
        let merged =
            |of: &Container| one.merge(of, MergeOptions::new().prefixes("", "b/")).unwrap();
        assert_eq!(merged(&one).weights_files(), files(&["b.bin", "a.bin"]));
        assert_eq!(merged(&other).weights_files(), files(&["b.bin", "a.bin", "c.bin"]));
    }
}

#[test]
fn a_container_knows_the_files_of_its_weights_mapped_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, tensor: &str| {
        fs::write(folder.path().join(name), [1; 16]).unwrap();
        TensorProto::external(tensor, TensorProto::UINT8, [16], name)
    };
    let weights = vec![file("b.bin", "x"), file("a.bin", "y"), file("./b.bin", "z")];
    let path = folder.path().join("m.onnx");
    fs::write(&path, model(graph(weights, vec![])).encode_to_vec().unwrap()).unwrap();
    let files = ["b.bin", "a.bin"].map(|name| folder.path().join(name));
    let options = || LoadOptions::new().mmap(MmapChoice::never());
    let cases = [
        (options(), &files[..]),
        (options().no_copy(false), &files[..]),
        (options().alignment(Alignment::new(1 << 20).unwrap()), &files[..]),
        (options().weights(false), &[]),
        (options().file("b.bin", vec![0; 16]), &files[1..]),
    ];
    for (options, expected) in cases {
        let mut container = Container::load(&path, options).unwrap();
        container.remove("#x");
        assert_eq!(container.weights_files(), expected);
    }
    let mut attached = Container::load(&path, options().weights(false)).unwrap();
    attached.attach(folder.path(), options()).unwrap();
    assert_eq!(attached.weights_files(), files);
}
