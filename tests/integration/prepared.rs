//! A prepared save has the files of a save, and weights that are only declared get places.

use std::collections::BTreeMap;

use ndarray::ArrayD;
use onnx_container::edit::FillOptions;
use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::save::Prepared;
use onnx_container::{
    Alignment, Container, DataType, ErrorKind, Initializer, LoadOptions, SaveOptions, WeightFiles,
};

use crate::support::{all_bytes, container_of, contents, external_everywhere, floats};

/// The layouts that a save can have.
fn layouts() -> Vec<(&'static str, SaveOptions)> {
    vec![
        ("packed", SaveOptions::from(WeightFiles::Packed)),
        ("page by page", SaveOptions::from(true).alignment(Alignment::PAGE)),
        ("per tensor", SaveOptions::from(WeightFiles::PerTensor)),
        ("shards", SaveOptions::from(WeightFiles::Sharded { max_bytes: 1500 })),
        ("balanced files", SaveOptions::from(WeightFiles::Balanced { files: 3 })),
        ("embedded", SaveOptions::from(WeightFiles::Embedded)),
        ("inline tensors too", SaveOptions::from(true).externalize(true)),
        ("deduplicated", SaveOptions::from(true).dedup(true)),
        ("with digests", SaveOptions::from(true).digests(true)),
        ("with checksums", SaveOptions::from(true).checksums(true)),
        #[cfg(feature = "safetensors")]
        ("safetensors", SaveOptions::from(WeightFiles::Safetensors)),
    ]
}

/// Every file of the save, read in ranges of `step` bytes.
fn files_of(prepared: &Prepared, step: usize) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (number, file) in prepared.files().iter().enumerate() {
        let mut bytes = vec![0xaa; usize::try_from(file.bytes).unwrap()];
        for (chunk, out) in bytes.chunks_mut(step).enumerate() {
            prepared.read_at(number, (chunk * step) as u64, out).unwrap();
        }
        files.insert(file.name.clone(), bytes);
    }
    let mut model = Vec::new();
    prepared.encode_model(&mut model).unwrap();
    assert_eq!(model.len() as u64, prepared.model_len());
    files.insert(prepared.model_name().to_owned(), model);
    files
}

#[test]
fn the_files_are_those_of_a_save() {
    for (container, what) in [(container_of(5), "five"), (external_everywhere(), "everywhere")] {
        for (layout, options) in layouts() {
            let folder = tempfile::tempdir().unwrap();
            container.save(folder.path().join("m.onnx"), options.clone()).unwrap();
            let prepared = container.prepare("m.onnx", options).unwrap();
            for step in [1 << 20, 4096, 999, 1] {
                let files = files_of(&prepared, step);
                assert!(files == contents(folder.path()), "{what} {layout} in {step} bytes");
            }
        }
    }
}

#[test]
fn pieces_are_the_bytes_of_the_files() {
    for (layout, options) in layouts() {
        let prepared = container_of(5).prepare("m.onnx", options).unwrap();
        let files = files_of(&prepared, 1 << 20);
        let saved = prepared.files();
        let mut rebuilt: BTreeMap<_, _> =
            saved.iter().map(|file| (file.name.clone(), vec![0; file.bytes as usize])).collect();
        for piece in prepared.pieces() {
            let file = rebuilt.get_mut(&saved[piece.file].name).unwrap();
            let bytes = piece.initializer.to_buffer().unwrap();
            let start = piece.offset as usize;
            file[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        rebuilt.insert("m.onnx".into(), files["m.onnx"].clone());
        assert!(rebuilt == files, "{layout}");
    }
}

#[test]
fn a_prepared_save_borrows_nothing() {
    let prepared = container_of(3).prepare("m.onnx", WeightFiles::PerTensor).unwrap();
    let files = std::thread::spawn(move || files_of(&prepared, 4096)).join().unwrap();
    assert_eq!(files.len(), 4);
}

#[test]
fn balanced_files_are_of_about_the_same_length() {
    let lengths = [100_usize, 900, 0, 500, 400, 300];
    let mut graph = GraphProto::new("g");
    for (number, len) in lengths.iter().enumerate() {
        let (name, dims) = (format!("t{number}"), [*len as i64]);
        let handle = format!("#{name}");
        graph.initializer.push(TensorProto::external(name, TensorProto::UINT8, dims, handle));
    }
    let mut container = Container::new(ModelProto::new(graph));
    for (number, len) in lengths.iter().enumerate() {
        container.insert(&format!("#t{number}"), vec![number as u8; *len]).unwrap();
    }
    // How many files are asked for, and the tensors of each, in graph order.
    let cases: [(usize, &[&[&str]]); 4] = [
        (0, &[&["#t0", "#t1", "#t3", "#t4", "#t5"]]),
        (1, &[&["#t0", "#t1", "#t3", "#t4", "#t5"]]),
        (2, &[&["#t1", "#t5"], &["#t0", "#t3", "#t4"]]),
        (9, &[&["#t1"], &["#t3"], &["#t4"], &["#t5"], &["#t0"]]),
    ];
    for (files, expected) in cases {
        let prepared = container.prepare("m.onnx", WeightFiles::Balanced { files }).unwrap();
        assert_eq!(prepared.files().len(), expected.len());
        let mut found = vec![Vec::new(); expected.len()];
        prepared.pieces().for_each(|it| found[it.file].push(it.handle.unwrap().as_str()));
        assert_eq!(found, expected, "{files}");
        let named = prepared.files()[0].name.clone();
        let numbered = format!("m-00001-of-{:05}.onnx.data", expected.len());
        assert_eq!(named, if expected.len() == 1 { "m.onnx.data" } else { &numbered });
    }
}

#[test]
fn another_name_of_a_file_is_in_the_model() {
    for layout in [WeightFiles::Packed, WeightFiles::Sharded { max_bytes: 1500 }] {
        let container = container_of(4);
        let mut prepared = container.prepare("m.onnx", layout).unwrap();
        for number in 0..prepared.files().len() {
            prepared.rename(number, format!("m-{number}é #.bin")).unwrap();
        }
        let mut files = files_of(&prepared, 1 << 20);
        let model = files.remove("m.onnx").unwrap();
        let options = files.into_iter().fold(LoadOptions::new(), |options, (name, bytes)| {
            assert!(name.ends_with("é #.bin"), "{name}");
            options.file(name, bytes)
        });
        let loaded = Container::load_bytes(model, options).unwrap();
        assert_eq!(all_bytes(&loaded), all_bytes(&container));
    }
}

#[test]
fn names_that_no_file_can_have_are_refused() {
    let mut prepared = container_of(4).prepare("m.onnx", WeightFiles::PerTensor).unwrap();
    let (before, other) = (files_of(&prepared, 4096), prepared.files()[1].name.clone());
    for name in
        ["m.onnx", "M.ONNX", "n.onnx", "#w", "../w", "a/b", "", &other, &other.to_uppercase()]
    {
        let error = prepared.rename(0, name).unwrap_err();
        let expected = [ErrorKind::InvalidArgument, ErrorKind::UnsafePath];
        assert!(expected.contains(&error.kind()), "{name}: {error}");
    }
    assert_eq!(prepared.rename(9, "w").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(prepared.read_at(9, 0, &mut []).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(files_of(&prepared, 4096) == before);
    let own = prepared.files()[0].name.clone();
    prepared.rename(0, own).unwrap();
    assert!(files_of(&prepared, 4096) == before);
    for name in ["", "a/m.onnx", "..", "m\0", "a\\m.onnx"] {
        let error = container_of(1).prepare(name, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name:?}: {error}");
    }
}

#[test]
fn ranges_outside_a_file_are_refused() {
    let prepared = container_of(2).prepare("m.onnx", true).unwrap();
    let len = prepared.files()[0].bytes;
    for (offset, bytes) in [(len, 1), (len - 1, 2), (u64::MAX, 1), (len + 1, 0)] {
        let error = prepared.read_at(0, offset, &mut vec![0; bytes]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{offset} {bytes}");
    }
    prepared.read_at(0, len, &mut []).unwrap();
}

/// A model of two weights with handles and one inline tensor, all of whose elements are elsewhere.
fn declared() -> Container {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2, 3], "#w"));
    graph.initializer.push(TensorProto::external("q", TensorProto::INT4, [3], "elsewhere.bin"));
    graph.initializer.push(floats("b", 0, 3));
    let mut container = Container::new(ModelProto::new(graph));
    let weight = |name: &str, dtype, dims: &[i64]| {
        (name.to_owned(), Initializer::declared(dtype, dims).unwrap())
    };
    let weights = [
        weight("w", DataType::Float, &[2, 3]),
        weight("q", DataType::Int4, &[3]),
        weight("b", DataType::Float, &[3]),
    ];
    let filled = container.fill(weights, FillOptions::new()).unwrap();
    assert_eq!(filled.filled, 3);
    container
}

#[test]
fn declared_weights_have_the_places_of_real_ones() {
    let container = declared();
    let mut real = container.clone();
    real.insert("#w", ArrayD::<f32>::ones(vec![2, 3])).unwrap();
    real.insert("#q", Initializer::lazy(DataType::Int4, [3], || Ok(vec![1_u8, 2])).unwrap())
        .unwrap();
    real.insert("#b", ArrayD::<f32>::ones(vec![3])).unwrap();
    for (layout, options) in layouts() {
        let wants_bytes = ["embedded", "deduplicated", "with digests", "with checksums"];
        let prepared = container.prepare("m.onnx", options.clone());
        if wants_bytes.contains(&layout) && layout != "deduplicated" {
            assert_eq!(prepared.unwrap_err().kind(), ErrorKind::MissingHandle, "{layout}");
            continue;
        }
        let (prepared, real) = (prepared.unwrap(), real.prepare("m.onnx", options).unwrap());
        assert_eq!(prepared.files(), real.files(), "{layout}");
        assert_eq!(prepared.model().unwrap(), real.model().unwrap(), "{layout}");
        let error = prepared.read_at(0, 0, &mut vec![0; prepared.files()[0].bytes as usize]);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::MissingHandle, "{layout}");
    }
}

#[test]
fn what_is_only_declared_is_not_saved() {
    let container = declared();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let errors = [
        container.save(&path, true).unwrap_err(),
        container.save(&path, WeightFiles::Embedded).unwrap_err(),
        container.dry_run(&path, true).unwrap_err(),
        container.to_parts(true).unwrap_err(),
        container.digest().unwrap_err(),
        #[cfg(feature = "safetensors")]
        container
            .export_safetensors(folder.path().join("m.safetensors"), SaveOptions::new())
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::MissingHandle, "{error}");
        assert!(["w", "q", "b"].iter().all(|name| error.to_string().contains(name)), "{error}");
    }
    assert!(contents(folder.path()).is_empty());
    assert_eq!(container.clone().embed().unwrap_err().kind(), ErrorKind::MissingHandle);
}
