//! `SaveOptions::dedup`: weights of equal bytes are stored once, in every layout, and nothing else
//! changes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onnx_container::check::check_model;
use onnx_container::edit::{FillOptions, Tied};
use onnx_container::proto::TensorProto;
use onnx_container::{
    Alignment, Buffer, Container, DataType, Error, ErrorKind, Initializer, LoadOptions, MmapChoice,
    Result, SaveOptions, Saved, Tensor, WeightFiles, WeightSource,
};
use proptest::prelude::*;

use crate::support::{LAYOUTS, all_bytes, assert_same, both_choices, contents, graph, model};

const SAFETENSORS: &[WeightFiles] = &[
    #[cfg(feature = "safetensors")]
    WeightFiles::Safetensors,
];

/// Every layout that has weights files.
fn layouts() -> impl Iterator<Item = WeightFiles> {
    let all = LAYOUTS.into_iter().chain(SAFETENSORS.iter().copied());
    all.filter(|layout| *layout != WeightFiles::Embedded)
}

fn dedup(layout: WeightFiles) -> SaveOptions {
    SaveOptions::from(layout).dedup(true).sync(false)
}

fn weight(dtype: DataType, bytes: Buffer) -> Initializer {
    let width = usize::from(dtype.bit_width().unwrap()) / 8;
    let len = (bytes.len() / width) as i64;
    Tensor::new(dtype, [len], bytes).unwrap().into()
}

/// A model with an initializer for each weight.
fn container(weights: Vec<(&str, Initializer)>) -> Container {
    let place = |(name, weight): &(&str, Initializer)| {
        TensorProto::external(*name, weight.dtype().number(), weight.dims(), format!("#{name}"))
    };
    let mut container = Container::new(model(graph(weights.iter().map(place).collect(), vec![])));
    for (name, weight) in weights {
        container.insert(&format!("#{name}"), weight).unwrap();
    }
    container
}

/// `len` bytes that differ by their `seed`.
fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let byte = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 11;
    (0..len).map(|i| byte(i) as u8).collect()
}

/// Location, offset and length of every initializer.
fn places(saved: &Saved) -> Vec<[String; 3]> {
    let model = saved.model().unwrap();
    let entry = |tensor: &TensorProto, key: usize| {
        tensor.external_data[key].value.as_ref().unwrap().to_str().unwrap().to_owned()
    };
    let initializers = &model.graph.as_ref().unwrap().initializer;
    initializers.iter().map(|tensor| [0, 1, 2].map(|key| entry(tensor, key))).collect()
}

/// Bytes of a source, which are read in parts and have no buffer.
struct Read(Vec<i64>, Vec<u8>, Arc<AtomicUsize>);

impl WeightSource for Read {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &self.0
    }

    fn byte_len(&self) -> u64 {
        self.0[0] as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.2.fetch_add(out.len(), Ordering::Relaxed);
        if self.1.is_empty() {
            return Err(Error::other("the key has expired"));
        }
        out.copy_from_slice(&self.1[offset as usize..offset as usize + out.len()]);
        Ok(())
    }
}

fn source(len: usize, bytes: Vec<u8>) -> (Initializer, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let source = Read(vec![len as i64], bytes, reads.clone());
    (Initializer::from_source(source).unwrap(), reads)
}

/// Weights that are equal in every way that they can be, and those that nearly are. The pairs are
/// the names of the weights that are spared, and of those whose bytes they have.
fn every_case() -> (Container, Vec<(&'static str, &'static str)>) {
    const LARGE: usize = (3 << 20) + 12;
    let changed = |len: usize, at: usize| {
        let mut bytes = bytes(len, 1);
        bytes[at] ^= 1;
        Buffer::from(bytes)
    };
    let small = || Buffer::from(bytes(1024, 1));
    let large = || Buffer::from(bytes(LARGE, 1));
    let shared = small();
    let tied = |bytes: &Buffer| weight(DataType::Float, bytes.clone());
    let weights = vec![
        ("small", tied(&shared)),
        ("tied", tied(&shared)),
        ("copy", weight(DataType::Float, small())),
        ("other_type", weight(DataType::Int16, small())),
        ("read", source(1024, bytes(1024, 1)).0),
        ("first_byte", weight(DataType::Uint8, changed(1024, 0))),
        ("last_byte", weight(DataType::Uint8, changed(1024, 1023))),
        ("longer", weight(DataType::Uint8, bytes(1025, 1).into())),
        ("empty", weight(DataType::Uint8, Vec::new().into())),
        ("empty_too", weight(DataType::Float, Vec::new().into())),
        ("large", weight(DataType::Uint8, large())),
        ("beyond_the_first", weight(DataType::Uint8, changed(LARGE, 5000))),
        ("large_copy", weight(DataType::Uint8, large())),
        ("last_of_large", weight(DataType::Uint8, changed(LARGE, LARGE - 1))),
    ];
    let spared = vec![
        ("copy", "small"),
        ("other_type", "small"),
        ("read", "small"),
        ("large_copy", "large"),
    ];
    (container(weights), spared)
}

#[test]
fn equal_weights_are_stored_once_in_every_layout_and_nothing_else_changes() {
    let (container, all) = every_case();
    let len = |name: &str| container.get(&format!("#{name}")).unwrap().byte_len();
    let form = |name: &str| {
        let weight = container.get(&format!("#{name}")).unwrap();
        (weight.dtype(), weight.dims().to_vec())
    };
    let names: Vec<_> = container.tensors().map(|tensor| tensor.name().to_owned()).collect();
    let number = |name: &str| names.iter().position(|other| other == name).unwrap();
    for layout in layouts() {
        // An entry of a safetensors file has one type and shape.
        let may =
            |(name, of): &&(&str, &str)| !SAFETENSORS.contains(&layout) || form(name) == form(of);
        let spared: Vec<_> = all.iter().filter(may).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let plain = container.dry_run(&path, SaveOptions::from(layout)).unwrap();
        assert_eq!(plain.deduplicated, None);
        let plan = container.dry_run(&path, dedup(layout)).unwrap();
        let saved = container.save(&path, dedup(layout)).unwrap();
        assert_eq!(plan.files, saved.files);
        let found = saved.deduplicated.unwrap();
        assert_eq!(plan.deduplicated, Some(found));
        let bytes: u64 = spared.iter().map(|(name, _)| len(name)).sum();
        let expected = (spared.len(), bytes, 0);
        assert_eq!((found.tensors, found.bytes, found.lazy), expected, "{layout:?}");
        assert!(saved.bytes + bytes <= plain.bytes + 1500, "{layout:?}");
        let places = places(&saved);
        for (name, of) in &spared {
            assert_eq!(places[number(name)], places[number(of)], "{layout:?}");
        }
        // The others, `tied` with them, have as many ranges as before; those without elements are
        // at 0.
        let own: BTreeSet<_> = places.iter().filter(|place| place[2] != "0").collect();
        assert_eq!(own.len(), names.len() - spared.len() - 1 - 2, "{layout:?}");
        let checked = check_model(&path, both_choices()[1]).unwrap();
        assert!(checked.is_ok() && checked.findings.is_empty(), "{:?}", checked.findings);
        for choice in both_choices() {
            let loaded = Container::load(&path, choice).unwrap();
            assert_same(&loaded, &container);
            // Saved again, as it is and in every layout, without being asked to compare.
            for again in layouts().chain([WeightFiles::Embedded]) {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("m.onnx");
                let options = SaveOptions::from(again).sync(false);
                loaded.save(&path, options).unwrap();
                assert_same(&Container::load(&path, choice).unwrap(), &container);
            }
        }
    }
}

#[test]
fn the_same_in_memory() {
    let (container, _) = every_case();
    for layout in layouts() {
        let folder = tempfile::tempdir().unwrap();
        container.save(folder.path().join("model.onnx"), dedup(layout)).unwrap();
        let mut files = contents(folder.path());
        let parts = container.to_parts(dedup(layout)).unwrap();
        assert_eq!(files.remove("model.onnx").unwrap(), parts.model.to_vec());
        let found = parts.files.into_iter().map(|(name, bytes)| (name, bytes.to_vec()));
        assert!(files == found.collect(), "{layout:?}");
    }
    // Inline tensors cannot share bytes.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = container.save(&path, dedup(WeightFiles::Embedded)).unwrap();
    assert_eq!(saved.deduplicated.unwrap().tensors, 0);
    assert_same(&Container::load(&path, both_choices()[1]).unwrap(), &container);
}

#[test]
fn a_weight_that_is_equal_to_a_part_of_another_is_that_part_where_one_is_known() {
    let whole = Buffer::from(bytes(4096, 7));
    let part = || weight(DataType::Uint8, whole.slice(1024..2048).unwrap());
    let copy = || weight(DataType::Uint8, bytes(4096, 7)[1024..2048].to_vec().into());
    let inside = |copies: &[usize]| {
        // In any order: the part is what the copies become.
        let names = ["a", "b", "c"];
        let weights = names
            .iter()
            .enumerate()
            .map(|(i, name)| (*name, if copies.contains(&i) { copy() } else { part() }));
        let mut weights: Vec<_> = weights.collect();
        weights.push(("whole", weight(DataType::Uint8, whole.clone())));
        container(weights)
    };
    for copies in [&[0][..], &[1], &[2], &[0, 1], &[1, 2], &[0, 2]] {
        let container = inside(copies);
        for layout in [WeightFiles::Packed, WeightFiles::PerTensor] {
            let folder = tempfile::tempdir().unwrap();
            let saved = container.save(folder.path().join("m.onnx"), dedup(layout)).unwrap();
            let found = saved.deduplicated.unwrap();
            assert_eq!((found.tensors, found.bytes), (copies.len(), copies.len() as u64 * 1024));
            assert_eq!((saved.files.len(), saved.files[0].bytes), (2, 4096));
            assert!(
                places(&saved)[..3]
                    .iter()
                    .all(|[_, offset, len]| offset == "1024" && len == "1024")
            );
        }
    }
    // No part is known: comparing finds whole weights only.
    let container = inside(&[0, 1, 2]);
    let saved = container.to_parts(dedup(WeightFiles::Packed)).unwrap();
    assert_eq!(saved.files[0].1.len(), 1024 + 4096);
}

#[test]
fn lazy_weights_are_made_once_and_not_compared() {
    let made = Arc::new(AtomicUsize::new(0));
    let lazy = || {
        let made = made.clone();
        let make = move || {
            made.fetch_add(1, Ordering::Relaxed);
            Ok(vec![5_u8; 100])
        };
        Initializer::lazy(DataType::Uint8, [100], make).unwrap()
    };
    let one = lazy();
    let container = container(vec![
        ("a", one.clone()),
        ("a_too", one),
        ("b", lazy()),
        ("c", weight(DataType::Uint8, vec![5; 100].into())),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let options = dedup(WeightFiles::Packed).alignment(Alignment::DENSE);
    let plan = container.dry_run(&path, options.clone()).unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 0);
    let saved = container.save(&path, options).unwrap();
    assert_eq!(saved.deduplicated, plan.deduplicated);
    assert_eq!(made.load(Ordering::Relaxed), 2);
    let found = saved.deduplicated.unwrap();
    assert_eq!((found.tensors, found.bytes, found.lazy), (0, 0, 3));
    assert_eq!(saved.files[0].bytes, 300, "one lazy weight behind two handles is one");
}

#[test]
fn only_weights_of_equal_length_are_read_and_only_probably_equal_ones_as_a_whole() {
    const LEN: usize = 5 << 20;
    let other_length = source(LEN + 1, bytes(LEN + 1, 1));
    let other_bytes = source(LEN, bytes(LEN, 2));
    let equal = [source(LEN, bytes(LEN, 1)), source(LEN, bytes(LEN, 1))];
    let reads = [&other_length, &other_bytes, &equal[0], &equal[1]].map(|(_, reads)| reads.clone());
    let [a, b] = equal;
    let container =
        container(vec![("a", other_length.0), ("b", other_bytes.0), ("c", a.0), ("d", b.0)]);
    let saved = container.dry_run("m.onnx", dedup(WeightFiles::Packed)).unwrap();
    assert_eq!(saved.deduplicated.unwrap().bytes, LEN as u64);
    let reads = reads.map(|reads| reads.load(Ordering::Relaxed));
    assert_eq!(reads[0], 0);
    assert!(reads[1] < 1 << 20, "{reads:?}");
    assert!(
        reads[2..].iter().all(|read| (2 * LEN..2 * LEN + (1 << 20)).contains(read)),
        "{reads:?}"
    );
}

#[test]
fn a_weight_that_cannot_be_read_is_named() {
    let container =
        container(vec![("fine", source(10, vec![1; 10]).0), ("broken", source(10, Vec::new()).0)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for outcome in [
        container.save(&path, dedup(WeightFiles::Packed)),
        container.dry_run(&path, dedup(WeightFiles::Packed)),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (ErrorKind::Other, Some("broken")));
        assert!(contents(folder.path()).is_empty());
    }
}

/// A packed model at `path` with the weights `a` and `b`, which are equal and have ranges of their
/// own.
fn two_copies(path: &Path) -> Container {
    let copy = || weight(DataType::Uint8, bytes(2000, 3).into());
    let container = container(vec![("a", copy()), ("b", copy())]);
    let saved = container.save(path, true).unwrap();
    assert_eq!(saved.files[0].bytes, 2048 + 2000);
    container
}

#[test]
fn a_kept_file_is_packed_anew_only_where_it_may_be() {
    for choice in both_choices() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let original = two_copies(&path);
        let loaded = Container::load(&path, choice).unwrap();
        let plan = loaded.dry_run(&path, dedup(WeightFiles::Packed)).unwrap();
        assert_eq!((plan.files[0].bytes, plan.kept.len()), (2000, 0));
        // What stays in its file is not compared.
        let mut more = loaded.clone();
        let graph = more.model_mut().graph.as_mut().unwrap();
        for name in ["c", "d"] {
            let place = TensorProto::external(name, TensorProto::UINT8, [2000], format!("#{name}"));
            graph.initializer.push(place);
        }
        for name in ["#c", "#d"] {
            more.insert(name, weight(DataType::Uint8, bytes(2000, 3).into())).unwrap();
        }
        let path = folder.path().join("more.onnx");
        let saved = more.save(&path, dedup(WeightFiles::AsLoaded)).unwrap();
        assert_eq!((saved.files[0].bytes, saved.kept.len()), (2000, 1));
        assert_eq!(saved.deduplicated.unwrap().tensors, 1);
        assert_same(&Container::load(&path, choice).unwrap(), &more);
        assert_same(&loaded, &original);
    }
}

#[test]
fn deduplicated_tensors_are_tied_when_they_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let original = two_copies(&path);
    original.save(&path, dedup(WeightFiles::Packed)).unwrap();
    let mut loaded = Container::load(&path, both_choices()[0]).unwrap();
    let new = || weight(DataType::Uint8, bytes(2000, 4).into());
    let error = loaded.replace("b", new(), Tied::Refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tied);
    let replaced = loaded.replace("b", new(), Tied::This).unwrap();
    assert_eq!(replaced.tied, ["a"]);
    loaded.save(&path, dedup(WeightFiles::Packed)).unwrap();
    let again = all_bytes(&Container::load(&path, both_choices()[1]).unwrap());
    assert_eq!(again, [bytes(2000, 3), bytes(2000, 4)]);
}

#[test]
#[cfg(feature = "safetensors")]
fn tensors_of_one_entry_are_found_by_their_names() {
    let same = || weight(DataType::Float, bytes(64, 1).into());
    let container = container(vec![
        ("a", same()),
        ("b", same()),
        ("codes", weight(DataType::Uint32, bytes(64, 1).into())),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = container.save(&path, dedup(WeightFiles::Safetensors)).unwrap();
    assert_eq!(saved.deduplicated.unwrap().bytes, 64);
    let file = std::fs::read(folder.path().join("m.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&file).unwrap();
    let entries = header.tensors().into_keys().filter(|name| !name.starts_with("__padding__"));
    let names: BTreeSet<_> = entries.collect();
    assert_eq!(names, BTreeSet::from(["a", "codes"].map(str::to_owned)));
    assert_eq!(header.metadata().as_ref().unwrap()["b"], "a");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Weights of few lengths and fewer contents: every content is there once, whatever is equal to
    /// what.
    #[test]
    fn every_content_is_stored_once(
        weights in prop::collection::vec((prop::sample::select(vec![1_usize, 16, 5000]), 0_u32..3), 1..12),
    ) {
        let names: Vec<_> = (0..weights.len()).map(|i| format!("w{i}")).collect();
        let make = |(i, (len, seed)): (usize, &(usize, u32))| {
            (names[i].as_str(), weight(DataType::Uint8, bytes(*len, seed << 11).into()))
        };
        let container = container(weights.iter().enumerate().map(make).collect());
        let distinct: BTreeSet<_> = weights.iter().map(|(len, seed)| bytes(*len, seed << 11)).collect();
        let total: usize = distinct.iter().map(Vec::len).sum();
        for layout in [WeightFiles::Packed, WeightFiles::PerTensor, WeightFiles::Sharded { max_bytes: 5000 }] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let saved = container.save(&path, dedup(layout).alignment(Alignment::DENSE)).unwrap();
            let (_, files) = saved.files.split_last().unwrap();
            prop_assert_eq!(files.iter().map(|file| file.bytes).sum::<u64>(), total as u64);
            let found = saved.deduplicated.unwrap();
            prop_assert_eq!(found.tensors, weights.len() - distinct.len());
            assert_same(&Container::load(&path, both_choices()[1]).unwrap(), &container);
        }
    }

    /// Views of a memory that repeats itself: nested, crossing and equal in any mixture.
    #[test]
    fn views_and_equal_weights_mix(
        views in prop::collection::vec((0..12_usize, 1..6_usize), 1..16),
        period in 1..7_usize,
        layout in prop::sample::select(layouts().collect::<Vec<_>>()),
        shift in 0..10_u32,
    ) {
        const BLOCK: usize = 128;
        let block = |i: usize| bytes(BLOCK, ((i % period) as u32) << 11);
        let memory = Buffer::from((0..18).flat_map(block).collect::<Vec<_>>());
        let names: Vec<_> = (0..views.len()).map(|i| format!("w{i}")).collect();
        let view = |(i, (start, len)): (usize, &(usize, usize))| {
            let bytes = memory.slice(start * BLOCK..(start + len) * BLOCK).unwrap();
            (names[i].as_str(), weight(DataType::Uint8, bytes))
        };
        let container = container(views.iter().enumerate().map(view).collect());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let align = |options: SaveOptions| options.alignment(Alignment::new(1 << shift).unwrap());
        let plain = container.dry_run(&path, align(SaveOptions::from(layout))).unwrap();
        let saved = container.save(&path, align(dedup(layout))).unwrap();
        let spared = saved.deduplicated.unwrap().bytes;
        // A safetensors header records the names of equal tensors, which may take more than these.
        let is_plain = !SAFETENSORS.contains(&layout);
        prop_assert!(!is_plain || saved.bytes <= plain.bytes + 100);
        prop_assert_eq!(saved.statistics.copied_bytes + spared, plain.statistics.copied_bytes);
        let loaded = Container::load(&path, both_choices()[1]).unwrap();
        assert_same(&loaded, &container);
        let again = loaded.dry_run(&path, align(SaveOptions::from(layout)).keep_placement(false)).unwrap();
        // Where the files are as they would be written, they are kept.
        let written = again.statistics.copied_bytes + again.statistics.kept_bytes;
        prop_assert_eq!(written, saved.statistics.copied_bytes);
    }
}

/// What a model had apart stays apart: weights for one of the tensors that are stored once are not
/// weights for those of another type, and different weights for two of them are taken.
#[test]
fn weights_fill_a_deduplicated_model_as_they_fill_the_original() {
    let zeros = || Buffer::from(vec![0; 64]);
    let made = container(vec![
        ("bias", weight(DataType::Float, zeros())),
        ("index", weight(DataType::Int32, zeros())),
        ("norm", weight(DataType::Float, zeros())),
    ]);
    let ones = |value: f32| weight(DataType::Float, value.to_le_bytes().repeat(16).into());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let saved = made.save(&path, dedup(WeightFiles::Packed)).unwrap();
    assert_eq!(saved.deduplicated.unwrap().tensors, 2);
    for weights in [true, false] {
        let given = [("bias".to_owned(), ones(1.0)), ("norm".to_owned(), ones(2.0))];
        let mut loaded = Container::load(&path, LoadOptions::new().weights(weights)).unwrap();
        let filled = loaded.fill(given, FillOptions::new().partial(true)).unwrap();
        assert_eq!(filled.filled, 2);
        if !weights {
            loaded.attach(folder.path(), MmapChoice::never()).unwrap();
        }
        let first = |name: &str| loaded.tensor(name).unwrap().as_bytes().unwrap()[..4].to_vec();
        assert_eq!(first("bias"), 1_f32.to_le_bytes());
        assert_eq!(first("index"), [0; 4]);
        assert_eq!(first("norm"), 2_f32.to_le_bytes());
    }
}

#[cfg(feature = "safetensors")]
#[test]
fn every_name_is_in_the_header_of_a_safetensors_file() {
    let whole = Buffer::from(bytes(4096, 7));
    let part = whole.slice(1024..2048).unwrap();
    let (container, _) = every_case();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let named = |container: &Container| {
        container.save(&path, dedup(WeightFiles::Safetensors)).unwrap();
        let file = folder.path().join("m.safetensors");
        let weights = onnx_container::safetensors::load(file, both_choices()[1]).unwrap();
        let tied = weights.tied().keys().cloned().collect::<Vec<_>>();
        weights.iter().map(|(name, _)| name.to_owned()).chain(tied).collect::<BTreeSet<_>>()
    };
    let names: BTreeSet<_> = container.tensors().map(|tensor| tensor.name().to_owned()).collect();
    assert_eq!(named(&container), names);
    // What lies inside another weight has no entry; what is equal to it has one.
    let container = self::container(vec![
        ("part", weight(DataType::Uint8, part)),
        ("copy", weight(DataType::Uint8, bytes(4096, 7)[1024..2048].to_vec().into())),
        ("whole", weight(DataType::Uint8, whole)),
    ]);
    assert_eq!(named(&container), BTreeSet::from(["copy", "whole"].map(str::to_owned)));
}

/// To read each of them would take hours in a file that is some times as large.
#[test]
fn weights_that_overlap_in_part_very_often_are_left_out() {
    let whole = Buffer::from(vec![0; 12 << 20]);
    let names: Vec<_> = (0..33).map(|i| format!("w{i}")).collect();
    let shifted = |i: usize| weight(DataType::Uint8, whole.slice(i..i + (8 << 20)).unwrap());
    let mut weights: Vec<_> =
        names.iter().enumerate().map(|(i, name)| (name.as_str(), shifted(i))).collect();
    // So much that is written once that all of it may be written.
    let zeros = || weight(DataType::Uint8, vec![0; 30 << 20].into());
    weights.extend([("a", zeros()), ("b", zeros())]);
    let container = container(weights);
    let folder = tempfile::tempdir().unwrap();
    let plan = container.dry_run(folder.path().join("m.onnx"), dedup(WeightFiles::Packed)).unwrap();
    let found = plan.deduplicated.unwrap();
    assert_eq!((found.tensors, found.overlapping), (1, 33));
}
