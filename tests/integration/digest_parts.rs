//! Models that several processes read together, each a part: digests, checks and statistics.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onnx_container::check::{CheckOptions, check_model};
use onnx_container::digest::PartialDigest;
use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{Message, ModelProto, StringStringEntryProto, TensorProto};
use onnx_container::{
    Buffer, Container, DataType, Error, ErrorKind, Initializer, LoadOptions, MmapChoice, Part,
    Result, SaveOptions, WeightFiles, WeightSource,
};

use crate::digests::everything;
use crate::random_models::{Choices, Flavour, random_model};
use crate::support::{
    LAYOUTS, add_w, both_choices, container_of, external_everywhere, few_or, floats, graph, model,
    tensors_everywhere,
};

const COUNTS: [usize; 5] = [1, 2, 3, 7, 100];

fn parts(of: usize) -> impl DoubleEndedIterator<Item = Part> {
    (0..of).map(move |number| Part::new(number, of).unwrap())
}

/// The digests of all parts, each by JSON, as from another process.
fn digests(container: &Container, of: usize) -> Vec<PartialDigest> {
    let by_json = |part| {
        let partial = container.partial_digest(part).unwrap();
        let found = PartialDigest::from_json(&partial.to_json().unwrap()).unwrap();
        assert_eq!((found.part(), &found), (part, &partial));
        found
    };
    parts(of).map(by_json).collect()
}

/// Holds the joined parts to the digest of the model, by all that there is of it.
fn assert_joins(container: &Container) {
    let expected = container.digest().unwrap();
    for of in COUNTS {
        let mut parts = digests(container, of);
        let tensors: usize = parts.iter().map(PartialDigest::len).sum();
        assert_eq!(tensors, expected.tensors().len(), "{of}");
        parts.reverse();
        let joined = container.digest_of_parts(parts).unwrap();
        assert_eq!((&joined, joined.tensors()), (&expected, expected.tensors()), "{of}");
    }
}

#[test]
fn parts_join_to_the_digest_of_the_model() {
    let mut mixed = Container::new(everything());
    mixed.externalize(ExternalizeOptions::new().min_bytes(30)).unwrap();
    let containers = [
        Container::new(model(graph(vec![], vec![]))),
        Container::new(tensors_everywhere()),
        Container::new(everything()),
        external_everywhere(),
        mixed,
        container_of(10),
    ];
    containers.iter().for_each(assert_joins);
    for seed in 0..few_or(5, 300) as u64 {
        for flavour in [Flavour::Runnable, Flavour::Anything] {
            assert_joins(&Container::new(random_model(Choices::seeded(seed), flavour)));
        }
    }
}

#[test]
fn every_layout_is_joined_without_weights() {
    let folder = tempfile::tempdir().unwrap();
    let mut container = Container::new(everything());
    let expected = container.digest().unwrap();
    container.externalize(ExternalizeOptions::new().min_bytes(1).all_tensors(true)).unwrap();
    for (i, layout) in LAYOUTS.into_iter().enumerate() {
        let path = folder.path().join(format!("{i}.onnx"));
        container.save(&path, SaveOptions::from(layout).digests(i % 2 == 0)).unwrap();
        let bare = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
        for of in COUNTS {
            // One process maps the weights, another reads them.
            let choices = both_choices().into_iter().cycle();
            let partial = |(part, choice): (Part, MmapChoice)| {
                Container::load(&path, choice).unwrap().partial_digest(part).unwrap()
            };
            let parts: Vec<_> = parts(of).zip(choices).map(partial).collect();
            assert_eq!(bare.digest_of_parts(parts).unwrap(), expected, "{layout:?} {of}");
        }
    }
}

/// Ones, which are counted when they are read.
#[derive(Debug)]
struct Counted {
    dims: [i64; 1],
    read: Arc<AtomicUsize>,
}

impl WeightSource for Counted {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.dims[0] as u64
    }

    fn read_at(&self, _: u64, out: &mut [u8]) -> Result<()> {
        self.read.fetch_add(out.len(), Ordering::Relaxed);
        out.fill(1);
        Ok(())
    }
}

#[test]
fn each_part_reads_its_own_and_tied_tensors_are_read_once() {
    let lens = [1000, 10, 200, 10];
    let read: Vec<_> = lens.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let mut main = graph(vec![], vec![]);
    for (i, len) in lens.iter().enumerate().chain(lens.iter().enumerate()) {
        let tensor = TensorProto::external("", TensorProto::UINT8, [*len], format!("#{i}"));
        main.initializer.push(tensor);
    }
    let mut container = Container::new(model(main));
    for (i, (len, read)) in lens.iter().zip(&read).enumerate() {
        let source = Counted { dims: [*len], read: Arc::clone(read) };
        container.insert(&format!("#{i}"), Initializer::from_source(source).unwrap()).unwrap();
    }
    let counts = || read.iter().map(|read| read.swap(0, Ordering::Relaxed)).collect::<Vec<_>>();
    let partial: Vec<_> =
        parts(2).map(|part| (container.partial_digest(part).unwrap(), counts())).collect();
    assert_eq!(partial[0].1, [1000, 0, 0, 0]);
    assert_eq!(partial[1].1, [0, 10, 200, 10]);
    assert_eq!((partial[0].0.len(), partial[1].0.len()), (2, 6));
    let joined = container.digest_of_parts(partial.into_iter().map(|(part, _)| part)).unwrap();
    assert_eq!(counts(), [0; 4]);
    assert_eq!(joined, container.digest().unwrap());
    counts();
    let stats = container.stats(Part::new(1, 2).unwrap().selects(&container)).unwrap();
    assert_eq!((stats.len(), counts()), (6, vec![0, 10, 200, 10]));
}

#[test]
fn statistics_of_parts_are_those_of_the_model() {
    let mut container = Container::new(everything());
    container.externalize(ExternalizeOptions::new().min_bytes(30)).unwrap();
    let by_name = |mut all: Vec<onnx_container::stats::TensorStats>| {
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    };
    let expected = by_name(container.stats(|_| true).unwrap());
    for of in COUNTS {
        let found = parts(of).map(|part| container.stats(part.selects(&container)).unwrap());
        assert_eq!(by_name(found.flatten().collect()), expected, "{of}");
    }
}

/// The first three tensors of `container_of`, with one element changed.
fn changed() -> Container {
    let mut main = container_of(3).model().clone();
    let graph = main.graph.as_mut().unwrap();
    graph.initializer = (0..3).map(|i| floats(&format!("w{i}"), i + i % 2, 300)).collect();
    let mut container = Container::new(main);
    container.externalize(ExternalizeOptions::new().min_bytes(1024)).unwrap();
    container
}

#[test]
fn what_does_not_belong_together_is_not_joined() {
    let container = container_of(3);
    let good = digests(&container, 3);
    let of_changed = digests(&changed(), 3);
    let of_other = digests(&container_of(4), 3);
    let halves = digests(&container, 2);
    let many: Vec<_> = digests(&container_of(30), 30).into_iter().take(3).collect();
    let with = |extra: &PartialDigest| [&good[..], std::slice::from_ref(extra)].concat();
    type Case = (Vec<PartialDigest>, Result<(), (ErrorKind, &'static str)>);
    let cases: [Case; 11] = [
        (good.clone(), Ok(())),
        (with(&good[1]), Ok(())),
        (vec![], Err((ErrorKind::MissingTensor, "no parts to join"))),
        (vec![good[1].clone()], Err((ErrorKind::MissingTensor, "are missing: 0/3, 2/3"))),
        (good[..2].to_vec(), Err((ErrorKind::MissingTensor, "are missing: 2/3"))),
        (of_other.clone(), Err((ErrorKind::Changed, "part 0/3 is of another model"))),
        (with(&of_other[2]), Err((ErrorKind::Changed, "part 2/3 is of another model"))),
        (with(&of_changed[1]), Err((ErrorKind::Changed, "w1`: part 1/3 has another digest"))),
        (with(&of_changed[2]), Ok(())),
        (with(&halves[0]), Err((ErrorKind::InvalidArgument, "parts 0/3 and 0/2 are of two"))),
        (many.clone(), Err((ErrorKind::Changed, "another model"))),
    ];
    for (parts, expected) in cases {
        let found = container.digest_of_parts(parts);
        match (&found, expected) {
            (Ok(found), Ok(())) => assert_eq!(*found, container.digest().unwrap()),
            (Err(error), Err((kind, reason))) => {
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(reason), "{reason}: {error}");
            }
            (found, expected) => panic!("{found:?} {expected:?}"),
        }
    }
    let error = container_of(30).digest_of_parts(many).unwrap_err().to_string();
    assert!(error.contains("3/30, 4/30") && error.ends_with("22/30 and 7 more"), "{error}");
}

#[test]
fn hostile_texts_are_refused() {
    let container = container_of(2);
    let text = container.partial_digest(Part::new(0, 1).unwrap()).unwrap().to_json().unwrap();
    let position = "\"position\":1";
    let cases = [
        ("", "", ErrorKind::Decode),
        ("onnx-container partial digest", "onnx-container job", ErrorKind::Decode),
        ("\"version\":1", "\"version\":2", ErrorKind::Unsupported),
        ("\"version\":1", "\"version\":-1", ErrorKind::Decode),
        ("0/1", "1/1", ErrorKind::Decode),
        ("0/1", "0/0", ErrorKind::Decode),
        ("\"0/1\"", "0", ErrorKind::Decode),
        (position, "\"position\":0", ErrorKind::Decode),
        (position, "\"position\":-1", ErrorKind::Decode),
        (position, "\"position\":1e99", ErrorKind::Decode),
        (position, "\"position\":1,\"position\":1", ErrorKind::Decode),
        (position, "\"position\":1,\"more\":1", ErrorKind::Decode),
        ("sha256:", "sha1:", ErrorKind::Decode),
        ("\"tensors\":[", "\"tensors\":[[", ErrorKind::Decode),
        ("}", "", ErrorKind::Decode),
    ];
    for (from, to, kind) in cases {
        let other = if from.is_empty() { String::new() } else { text.replace(from, to) };
        assert_ne!(other, text, "{from}");
        let error = PartialDigest::from_json(&other).unwrap_err();
        assert_eq!(error.kind(), kind, "{from} {to}: {error}");
    }
    let deep = "[".repeat(1 << 20);
    assert_eq!(PartialDigest::from_json(&deep).unwrap_err().kind(), ErrorKind::Decode);
    // These are well-formed, and of no model.
    for (to, kind) in [
        ("\"position\":2", ErrorKind::Changed),
        (&*format!("\"position\":{}", usize::MAX), ErrorKind::Changed),
    ] {
        let other = PartialDigest::from_json(&text.replace(position, to)).unwrap();
        assert_eq!(container.digest_of_parts([other]).unwrap_err().kind(), kind, "{to}");
    }
    // As many parts as there are numbers take no more time and memory than few.
    let many =
        text.replace("0/1", &format!("0/{}", usize::MAX)).replace(position, "\"position\":0");
    let many = many.replacen("\"position\":0", "\"position\":1", 1);
    assert!(PartialDigest::from_json(&many).is_err());
    let last = container.partial_digest(Part::new(0, usize::MAX).unwrap()).unwrap();
    let error = container.digest_of_parts([last]).unwrap_err().to_string();
    assert!(error.contains(&format!("are missing: 1/{}", usize::MAX)), "{error}");
}

/// What the checks of all parts of the model find, each with its number.
fn checks(path: &Path, of: usize) -> Vec<(usize, Error)> {
    let check = |part: Part| {
        let options = CheckOptions::from(MmapChoice::never()).digests(true).contents(true);
        let checked = check_model(path, options.part(part)).unwrap();
        let errors = checked.findings.into_iter().map(|finding| finding.error);
        errors.map(move |error| (part.number(), error)).collect::<Vec<_>>()
    };
    parts(of).flat_map(check).collect()
}

fn whole(path: &Path) -> Vec<Error> {
    let options = CheckOptions::from(MmapChoice::never()).digests(true).contents(true);
    let findings = check_model(path, options).unwrap().findings;
    findings.into_iter().map(|finding| finding.error).collect()
}

fn texts<'e>(errors: impl Iterator<Item = &'e Error>) -> BTreeSet<String> {
    errors.map(Error::to_string).collect()
}

#[test]
fn a_changed_weight_is_found_by_the_part_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let container = external_everywhere();
    for layout in [WeightFiles::Packed, WeightFiles::PerTensor] {
        container.save(&path, SaveOptions::from(layout).digests(true)).unwrap();
        let is_of_digests = |error: &Error| error.kind() == ErrorKind::WrongDigest;
        let checks = |of| {
            let found = checks(&path, of);
            found.into_iter().filter(|(_, error)| is_of_digests(error)).collect::<Vec<_>>()
        };
        assert!(checks(3).is_empty());
        let files = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
        for tensor in files.tensors() {
            let Some((file, range)) = tensor.file_range().unwrap() else { continue };
            let file = folder.path().join(file);
            let good = fs::read(&file).unwrap();
            let mut bad = good.clone();
            bad[range.start as usize] ^= 1;
            fs::write(&file, &bad).unwrap();
            for of in [1, 3, 50] {
                let found = checks(of);
                assert_eq!(found.len(), 1, "{found:?}");
                let part = Part::new(found[0].0, of).unwrap();
                assert!(part.selects(&files)(&tensor), "{part} {}", tensor.name());
                let whole = whole(&path);
                let whole = whole.iter().filter(|error| is_of_digests(error));
                assert_eq!(texts(whole), texts([&found[0].1].into_iter()));
            }
            fs::write(&file, &good).unwrap();
        }
    }
}

/// Changes the model at `path`, as an editor that leaves digests does.
fn edit(path: &Path, change: impl FnOnce(&mut ModelProto)) {
    let mut message = ModelProto::decode(&Buffer::from(fs::read(path).unwrap())).unwrap();
    change(&mut message);
    fs::write(path, message.encode_to_vec().unwrap()).unwrap();
}

/// The metadata of the initializer of this number, where its digest is stored.
fn stored(model: &mut ModelProto, number: usize) -> &mut Vec<StringStringEntryProto> {
    &mut model.graph.as_mut().unwrap().initializer[number].metadata_props
}

/// The bytes of a weights file, with another first byte.
fn damaged(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    bytes[0] ^= 1;
    Some(bytes)
}

#[test]
fn checks_of_all_parts_find_what_the_whole_check_finds() {
    // What is done to the model and to its weights file, and how many of three parts find it.
    type Case = (fn(&mut ModelProto), fn(Vec<u8>) -> Option<Vec<u8>>, usize);
    let cases: [Case; 11] = [
        (|_| {}, Some, 0),
        (|_| {}, damaged, 1),
        (|model| model.domain = Some("other".into()), Some, 3),
        (|model| *stored(model, 2) = stored(model, 1).clone(), Some, 3),
        // The part of the tensor cannot read its digest; all find that no digest covers it.
        (|model| stored(model, 1)[0].value = Some("0".into()), Some, 3),
        // Every part reads the tensor, to compare the model.
        (|model| stored(model, 0).clear(), Some, 0),
        (|model| stored(model, 0).clear(), damaged, 3),
        (|model| model.metadata_props.clear(), Some, 3),
        (|_| {}, |bytes| Some([bytes, vec![7]].concat()), 3),
        (|_| {}, |bytes| Some(bytes[..6000].to_vec()), 3),
        (|_| {}, |_| None, 3),
    ];
    for (number, (change, damage, finders)) in cases.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        container_of(5).save(&path, SaveOptions::new().digests(true)).unwrap();
        edit(&path, change);
        let data = path.with_extension("onnx.data");
        match damage(fs::read(&data).unwrap()) {
            Some(bytes) => fs::write(data, bytes).unwrap(),
            None => fs::remove_file(data).unwrap(),
        }
        let (whole, found) = (whole(&path), checks(&path, 3));
        let parts: BTreeSet<_> = found.iter().map(|(part, _)| part).collect();
        assert_eq!(parts.len(), finders, "{number}: {found:?}");
        assert_eq!(texts(found.iter().map(|it| &it.1)), texts(whole.iter()), "{number}");
    }
}

#[test]
fn a_file_with_a_checksum_is_read_by_one_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = SaveOptions::from(WeightFiles::PerTensor).checksums(true);
    let saved = container_of(5).save(&path, options).unwrap();
    let files = saved.files.iter().filter(|file| file.name.ends_with(".weight"));
    let mut finders = Vec::new();
    for file in files {
        let file = folder.path().join(&file.name);
        let good = fs::read(&file).unwrap();
        fs::write(&file, damaged(good.clone()).unwrap()).unwrap();
        let mut found = checks(&path, 3);
        found.retain(|(_, error)| error.to_string().contains("SHA-1 of the file"));
        assert_eq!(found.len(), 1, "{found:?}");
        finders.push(found[0].0);
        fs::write(&file, good).unwrap();
    }
    finders.sort_unstable();
    assert_eq!(finders, [0, 0, 1, 1, 2]);
}

#[test]
fn contents_are_read_by_the_part_that_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut main = graph(vec![], vec![]);
    for (name, dtype, dims, bytes) in [
        ("bool", TensorProto::BOOL, [3], vec![0, 1, 2]),
        ("four", TensorProto::INT4, [3], vec![0x21, 0xf3]),
        ("good", TensorProto::BOOL, [3], vec![0, 1, 1]),
    ] {
        main.initializer.push(TensorProto::new(name, dtype, dims).with_raw_data(bytes));
    }
    for layout in [WeightFiles::Embedded, WeightFiles::Packed] {
        let mut container = Container::new(model(main.clone()));
        container.externalize(ExternalizeOptions::new().min_bytes(1).all_tensors(true)).unwrap();
        container.save(&path, SaveOptions::from(layout).digests(true)).unwrap();
        let found = checks(&path, 3);
        let found = found.iter().filter(|(_, error)| {
            let reason = error.to_string();
            reason.contains("neither 0 nor 1") || reason.contains("after the last element")
        });
        let found: Vec<_> = found.map(|(part, it)| (*part, it.tensor().unwrap())).collect();
        assert_eq!(found, [(0, "bool"), (2, "four")], "{layout:?}");
    }
}

#[test]
fn a_part_says_which_of_its_tensors_cannot_be_read() {
    let mut container = container_of(3);
    container.remove("#w1");
    let found: Vec<_> = parts(3).map(|part| container.partial_digest(part)).collect();
    let error = found[1].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.tensor()), (ErrorKind::MissingHandle, Some("w1")));
    assert!(found[0].is_ok() && found[2].is_ok());
    assert_eq!(Container::new(add_w(3).clone()).digest().unwrap_err().kind(), error.kind());
}
