//! `WeightFiles::Sharded`: which tensor goes to which file, what the files are called, and what is
//! refused.

use std::path::{Path, PathBuf};

use ndarray::Array1;
use onnx_container::check::check_model;
use onnx_container::proto::TensorProto;
use onnx_container::save::ShardNames;
use onnx_container::{
    Alignment, Buffer, Container, DataType, ErrorKind, Initializer, LoadOptions, SaveOptions,
    Saved, Tensor, WeightFiles,
};

use crate::support::{assert_same, both_choices, contents, graph, model};

/// A model with a weight of bytes for each of `lengths`; their bytes differ.
fn container(lengths: &[usize]) -> Container {
    let place = |(i, len): (usize, &usize)| {
        TensorProto::external(format!("w{i}"), TensorProto::UINT8, [*len as i64], format!("#w{i}"))
    };
    let places = lengths.iter().enumerate().map(place).collect();
    let mut container = Container::new(model(graph(places, vec![])));
    for (i, len) in lengths.iter().enumerate() {
        let bytes = Array1::from_iter((0..*len).map(|j| (j * 7 + i * 31) as u8));
        container.insert(&format!("#w{i}"), bytes).unwrap();
    }
    container
}

fn shards(max_bytes: u64) -> SaveOptions {
    SaveOptions::from(WeightFiles::Sharded { max_bytes }).sync(false)
}

fn dense(max_bytes: u64) -> SaveOptions {
    shards(max_bytes).alignment(Alignment::DENSE).alignment_large(Alignment::DENSE)
}

/// The names of the weights files that were written.
fn names(saved: &Saved) -> Vec<&str> {
    let files = saved.files.split_last().unwrap().1;
    files.iter().map(|file| file.name.as_str()).collect()
}

/// The lengths of the weights files that were written.
fn lengths(saved: &Saved) -> Vec<u64> {
    saved.files.split_last().unwrap().1.iter().map(|file| file.bytes).collect()
}

#[test]
fn a_new_file_begins_where_a_tensor_would_not_fit() {
    // The lengths of the tensors, the options, and the lengths of the files.
    let cases: &[(&[usize], SaveOptions, &[u64])] = &[
        (&[], dense(100), &[]),
        (&[0, 0], dense(100), &[0]),
        (&[100], dense(100), &[100]),
        (&[40, 60, 1], dense(100), &[100, 1]),
        (&[60, 60, 40, 0], dense(100), &[60, 100]),
        // Longer than the limit: alone, between others, first and last.
        (&[10, 101, 10], dense(100), &[10, 101, 10]),
        (&[500, 0, 500, 0], dense(100), &[500, 500]),
        (&[1, 1, 1], dense(1), &[1, 1, 1]),
        (&[1, 2], dense(0), &[1, 2]),
        (&[40, 60, 1], dense(u64::MAX), &[101]),
        // Padding counts.
        (&[40, 60, 40], shards(256 + 60), &[256 + 60, 40]),
        (&[40, 60, 40], shards(256 + 59), &[40, 256 + 40]),
        (&[1, (1 << 20) + 1], shards((1 << 20) + 4096), &[1, (1 << 20) + 1]),
        (&[1, (1 << 20) + 1], shards((1 << 20) + 4097), &[4096 + (1 << 20) + 1]),
    ];
    for (tensors, options, files) in cases {
        let container = container(tensors);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let plan = container.dry_run(&path, options.clone()).unwrap();
        assert!(contents(folder.path()).is_empty());
        let saved = container.save(&path, options.clone()).unwrap();
        assert_eq!(lengths(&saved), *files, "{tensors:?}");
        assert_eq!(plan.files, saved.files, "{tensors:?}");
        assert_eq!(saved.bytes, saved.files.iter().map(|file| file.bytes).sum::<u64>());
        assert!(check_model(&path, both_choices()[1]).unwrap().is_ok(), "{tensors:?}");
        for choice in both_choices() {
            assert_same(&Container::load(&path, choice).unwrap(), &container);
        }
        let parts = container.to_parts(options.clone()).unwrap();
        assert_eq!(
            parts.files.iter().map(|(_, bytes)| bytes.len() as u64).collect::<Vec<_>>(),
            *files
        );
        let given = parts
            .files
            .into_iter()
            .fold(LoadOptions::new(), |options, (name, bytes)| options.file(name, bytes));
        assert_same(&Container::load_bytes(parts.model, given).unwrap(), &container);
    }
}

#[test]
fn shards_have_the_names_that_their_readers_look_for() {
    let browser = || dense(2).shard_names(ShardNames::TransformersJs);
    // Two tensors of two bytes: two files, or one where the limit allows that.
    let cases: &[(&str, SaveOptions, &[&str])] = &[
        ("m.onnx", dense(2), &["m-00001-of-00002.onnx.data", "m-00002-of-00002.onnx.data"]),
        ("m.onnx", dense(4), &["m.onnx.data"]),
        ("m", dense(2), &["m-00001-of-00002.data", "m-00002-of-00002.data"]),
        (".onnx", dense(2), &[".onnx-00001-of-00002.data", ".onnx-00002-of-00002.data"]),
        (
            "a.b..onnx",
            dense(2),
            &["a.b__onnx-00001-of-00002.data", "a.b__onnx-00002-of-00002.data"],
        ),
        ("#m.onnx", dense(2), &["_m-00001-of-00002.onnx.data", "_m-00002-of-00002.onnx.data"]),
        ("m.onnx", dense(2).data_name("w.bin"), &["w-00001-of-00002.bin", "w-00002-of-00002.bin"]),
        ("m.onnx", dense(2).data_name("w"), &["w-00001-of-00002", "w-00002-of-00002"]),
        ("m.onnx", dense(2).data_name(".w"), &[".w-00001-of-00002", ".w-00002-of-00002"]),
        ("m.onnx", dense(4).data_name("w.bin"), &["w.bin"]),
        ("model.onnx", browser(), &["model.onnx_data", "model.onnx_data_1"]),
        (
            "model_q4.onnx",
            dense(4).shard_names(ShardNames::TransformersJs),
            &["model_q4.onnx_data"],
        ),
        // Names of shards have no meaning in the other layouts.
        ("m.onnx", browser().weight_files(WeightFiles::Packed), &["m.onnx.data"]),
    ];
    for (model, options, expected) in cases {
        are_called(model, options, expected);
    }
}

#[test]
fn shards_of_the_longest_names_of_models() {
    let cut = |number| format!("{}-0000{number}-of-00002.onnx.data", "n".repeat(230));
    are_called(&format!("{}.onnx", "n".repeat(245)), &dense(2), &[&cut(1), &cut(2)]);
}

/// Saves two tensors of two bytes under the name `model`, whose weights files are to have these
/// names.
fn are_called(model: &str, options: &SaveOptions, expected: &[&str]) {
    let container = container(&[2, 2]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(model);
    let saved = container.save(&path, options.clone()).unwrap();
    assert_eq!(names(&saved), *expected, "{model}");
    assert!(check_model(&path, both_choices()[1]).unwrap().is_ok(), "{model}");
    assert_same(&Container::load(&path, both_choices()[1]).unwrap(), &container);
}

/// The tensors, the model, the options, the kind, and the tensors or words that the error has.
type Refused<'a> = (&'a [usize], &'a str, SaveOptions, ErrorKind, &'a [&'a str]);

#[test]
fn what_cannot_be_named_or_cannot_fit_is_refused_before_anything_is_written() {
    let browser = |max| dense(max).shard_names(ShardNames::TransformersJs);
    let long = "w".repeat(250);
    let longer = "m".repeat(251);
    let cases: &[Refused<'_>] = &[
        (
            &[2, 11, 2, 12],
            "m.onnx",
            browser(10),
            ErrorKind::TooLarge,
            &["`w1`", "`w3`", "11 bytes"],
        ),
        (&[1; 101], "m.onnx", browser(1), ErrorKind::TooLarge, &["101 files", "100"]),
        (
            &[2, 2],
            "m.onnx",
            browser(2).data_name("w"),
            ErrorKind::InvalidArgument,
            &["transformers.js"],
        ),
        (&[2, 2], "#m.onnx", browser(2), ErrorKind::InvalidArgument, &["`#m.onnx_data`"]),
        (&[2, 2], &longer, browser(2), ErrorKind::InvalidArgument, &["255"]),
        (&[2, 2], "m.onnx", dense(2).data_name(&long), ErrorKind::InvalidArgument, &["255"]),
        (&[2, 2], "m.onnx", dense(2).data_name("a/w"), ErrorKind::InvalidArgument, &["directory"]),
        (
            &[2, 2],
            "w-00001-of-00002",
            dense(2).data_name("w"),
            ErrorKind::InvalidArgument,
            &["model's name"],
        ),
        (&[], "m.onnx", dense(2).data_name("a/w"), ErrorKind::InvalidArgument, &["directory"]),
    ];
    for (tensors, model, options, kind, words) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(model);
        for outcome in [
            container(tensors).save(&path, options.clone()),
            container(tensors).dry_run(&path, options.clone()),
        ] {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), *kind, "{error}");
            let text: String = error.each().map(|error| format!("{error}\n")).collect();
            words.iter().for_each(|word| assert!(text.contains(word), "{word}: {text}"));
            assert!(contents(folder.path()).is_empty(), "{text}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let saved = container(&[1; 100]).save(folder.path().join("m.onnx"), browser(1)).unwrap();
    assert_eq!(names(&saved).last(), Some(&"m.onnx_data_99"));
}

#[test]
fn shards_of_the_replaced_model_are_replaced_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let paths = |names: &[&str]| {
        names.iter().map(|name| folder.path().join(name)).collect::<Vec<PathBuf>>()
    };
    let old = ["m-00001-of-00002.onnx.data", "m-00002-of-00002.onnx.data"];
    let save =
        |lengths: &[usize], options: SaveOptions| container(lengths).save(&path, options).unwrap();
    assert_eq!(names(&save(&[2, 2], dense(2))), old);
    // As many shards as before: the files are replaced.
    let saved = save(&[3, 3], dense(3));
    assert_eq!((names(&saved), saved.left_behind.len()), (old.to_vec(), 0));
    // Another number of shards, or another layout: those of the old model are left and named.
    let saved = save(&[3, 3, 3], dense(3));
    assert_eq!(saved.left_behind, paths(&old));
    let saved = save(&[3, 3, 3], SaveOptions::from(WeightFiles::Embedded).sync(false));
    let three = [1, 2, 3].map(|number| format!("m-0000{number}-of-00003.onnx.data"));
    assert_eq!(saved.left_behind, paths(&three.each_ref().map(String::as_str)));
    // Nobody's files now: not replaced, unless they are named.
    let before = contents(folder.path());
    let error = container(&[2, 2]).save(&path, dense(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("2 files exist already"), "{error}");
    assert_eq!(contents(folder.path()), before);
    let saved = save(&[2, 2], dense(2).data_name("m.onnx.data"));
    assert_eq!(names(&saved), old);
    // Nor is any file replaced without leave.
    let error = container(&[2, 2]).save(&path, dense(2).overwrite(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_shard_that_another_model_needs_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container(&[2, 2]).save(&path, dense(2)).unwrap();
    std::fs::copy(&path, folder.path().join("copy.onnx")).unwrap();
    for options in [dense(3), dense(3).data_name("m.onnx.data")] {
        let error = container(&[3, 3]).save(&path, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert!(error.to_string().contains("copy.onnx"), "{error}");
    }
}

#[test]
fn tensors_that_share_bytes_share_them_across_shards() {
    let tensors = ["a", "b", "part", "a2"].map(|name| {
        let len = if name == "part" { 256 } else { 1024 };
        TensorProto::external(name, TensorProto::UINT8, [len], format!("#{name}"))
    });
    let mut container = Container::new(model(graph(tensors.to_vec(), vec![])));
    let bytes = |start: usize| {
        Buffer::from((start..start + 1024).map(|i| (i / 3) as u8).collect::<Vec<_>>())
    };
    let weight = |bytes: Buffer| {
        let len = bytes.len() as i64;
        Initializer::from(Tensor::new(DataType::Uint8, [len], bytes).unwrap())
    };
    let (a, b) = (bytes(0), bytes(99));
    container.insert("#a", weight(a.clone())).unwrap();
    container.insert("#b", weight(b)).unwrap();
    container.insert("#part", weight(a.slice(512..768).unwrap())).unwrap();
    container.insert("#a2", weight(a)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = container.save(&path, shards(1024)).unwrap();
    assert_eq!(lengths(&saved), [1024, 1024]);
    let places = places(&saved);
    let first = "m-00001-of-00002.onnx.data";
    assert_eq!(places[0], (first.to_owned(), 0, 1024));
    assert_eq!(places[2], (first.to_owned(), 512, 256));
    assert_eq!(places[3], places[0]);
    assert_same(&Container::load(&path, both_choices()[0]).unwrap(), &container);
}

/// Location, offset and length of every initializer.
fn places(saved: &Saved) -> Vec<(String, u64, u64)> {
    let model = saved.model().unwrap();
    let entry = |tensor: &TensorProto, key: usize| {
        tensor.external_data[key].value.as_ref().unwrap().to_str().unwrap().to_owned()
    };
    let initializers = &model.graph.as_ref().unwrap().initializer;
    let number = |text: String| text.parse().unwrap();
    let place = |t: &TensorProto| (entry(t, 0), number(entry(t, 1)), number(entry(t, 2)));
    initializers.iter().map(place).collect()
}

#[test]
fn a_model_that_reads_its_own_shards_is_saved_over_itself() {
    for choice in both_choices() {
        let folder = tempfile::tempdir().unwrap();
        let path: &Path = &folder.path().join("m.onnx");
        let original = container(&[700, 700, 700]);
        original.save(path, shards(1000)).unwrap();
        let loaded = Container::load(path, choice).unwrap();
        for max in [1000, 1000, 1, 2000] {
            loaded.save(path, shards(max)).unwrap();
            assert_same(&Container::load(path, choice).unwrap(), &original);
            assert_same(&loaded, &original);
        }
    }
}
