//! The ways in which bytes get into new files write the same: from memory, past the page cache,
//! copied by the system from a mapped file, read from a source, made lazily.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use onnx_container::external_data::ExternalData;
use onnx_container::model_files::{FileOptions, copy_model};
use onnx_container::proto::{Message, ModelProto, TensorProto};
use onnx_container::{
    Alignment, Buffer, Container, DataType, ErrorKind, Initializer, Result, SaveOptions, Tensor,
    WeightFiles, WeightSource,
};

use crate::support::{both_choices, few_or, graph, model};

/// Bytes that show where they are from.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mix = |i: u64| (i.wrapping_add(seed) ^ (i >> 9)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (0..len as u64).map(|i| mix(i) as u8 | 1).collect()
}

/// A source without a buffer.
struct InParts(Vec<i64>, Vec<u8>);

impl WeightSource for InParts {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &self.0
    }

    fn byte_len(&self) -> u64 {
        self.1.len() as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.1[offset as usize..][..out.len()]);
        Ok(())
    }
}

/// Maps the file at `path`.
fn map(path: &Path) -> Buffer {
    let [mapped, _] = both_choices();
    mapped.buffer(path).unwrap()
}

fn tensor(bytes: Buffer) -> Initializer {
    Tensor::new(DataType::Uint8, [bytes.len() as i64], bytes).unwrap().into()
}

/// A container of these initializers.
fn container(weights: Vec<Initializer>) -> Container {
    let external = |(i, weight): (usize, &Initializer)| {
        let len = weight.byte_len() as i64;
        TensorProto::external(format!("w{i}"), TensorProto::UINT8, [len], format!("#w{i}"))
    };
    let tensors = weights.iter().enumerate().map(external).collect();
    let mut container = Container::new(model(graph(tensors, Vec::new())));
    for (i, weight) in weights.into_iter().enumerate() {
        container.insert(&format!("#w{i}"), weight).unwrap();
    }
    container
}

/// Lengths around those at which the way changes: a page, 256 KiB, 1 MiB, a write of 8 MiB, a share
/// of 32 MiB.
const LENGTHS: [usize; 14] = [
    1,
    4096,
    70_000,
    0,
    (256 << 10) - 1,
    256 << 10,
    3,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 4097,
    (8 << 20) + 5,
    33 << 20,
    17,
    4095,
];

/// The ranges of the lengths in a file, each after `gap` bytes.
fn ranges(gap: usize) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |len: &usize| {
        let start = end + gap;
        end = start + len;
        start..end
    };
    LENGTHS.iter().map(next).collect()
}

/// Containers of weights of these lengths, from every kind of memory, and their bytes.
fn sources(folder: &Path) -> Vec<(String, Container, Vec<Vec<u8>>)> {
    let own: Vec<_> = LENGTHS.iter().enumerate().map(|(i, len)| pattern(*len, i as u64)).collect();
    let of = |make: &dyn Fn(&Vec<u8>) -> Initializer| container(own.iter().map(make).collect());
    let lazy = |bytes: &Vec<u8>| {
        let (bytes, len) = (bytes.clone(), bytes.len() as i64);
        Initializer::lazy(DataType::Uint8, [len], move || Ok(Buffer::from(bytes.clone()))).unwrap()
    };
    let in_parts = |bytes: &Vec<u8>| {
        Initializer::from_source(InParts(vec![bytes.len() as i64], bytes.clone())).unwrap()
    };
    let vector = |bytes: &Vec<u8>| tensor(bytes.clone().into());
    let mut all = vec![
        ("vectors".to_owned(), of(&vector), own.clone()),
        ("sources in parts".to_owned(), of(&in_parts), own.clone()),
        ("lazy sources".to_owned(), of(&lazy), own.clone()),
    ];
    // Of every kind, in turn: what is written later must not come before.
    let ranges = self::ranges(64);
    let mut file = vec![0; ranges.last().unwrap().end];
    ranges.iter().zip(&own).for_each(|(range, bytes)| file[range.clone()].copy_from_slice(bytes));
    fs::write(folder.join("all"), &file).unwrap();
    let mapped = map(&folder.join("all"));
    for first in 0..4 {
        let kinds = own.iter().zip(&ranges).enumerate();
        let weights = kinds.map(|(i, (bytes, range))| match (first + i) % 4 {
            0 => tensor(mapped.slice(range.clone()).unwrap()),
            1 => lazy(bytes),
            2 => vector(bytes),
            _ => in_parts(bytes),
        });
        all.push((format!("in turn from {first}"), container(weights.collect()), own.clone()));
    }
    // Mapped: bytes that follow each other, that have zeros between them, and that have other bytes
    // there.
    for (name, gap, filler) in
        [("close", 0, 0), ("zeros between", 64, 0), ("bytes between", 64, 7), ("far", 70_000, 0)]
    {
        let ranges = self::ranges(gap);
        let mut file = vec![filler; ranges.last().unwrap().end + 10];
        ranges.iter().zip(&own).for_each(|(range, bytes)| {
            file[range.clone()].copy_from_slice(bytes);
        });
        let path = folder.join(name);
        fs::write(&path, &file).unwrap();
        let mapped = map(&path);
        let weights = ranges.into_iter().map(|range| tensor(mapped.slice(range).unwrap()));
        all.push((format!("mapped, {name}"), container(weights.collect()), own.clone()));
    }
    all
}

/// Fails unless the files of the model at `path` hold `weights`, and zeros where they hold none of
/// them.
fn assert_holds(path: &Path, weights: &[Vec<u8>], what: &str) {
    let model = ModelProto::decode(&fs::read(path).unwrap().into()).unwrap();
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for (tensor, weight) in model.graph.as_ref().unwrap().initializer.iter().zip(weights) {
        let place = ExternalData::parse(tensor).unwrap();
        let read = || fs::read(path.with_file_name(&place.location)).unwrap();
        let file = files.entry(place.location.clone()).or_insert_with(read);
        let start = place.offset as usize;
        let found = &mut file[start..start + weight.len()];
        assert!(found == &weight[..], "{what}: {} differs", tensor.name.as_ref().unwrap());
        found.fill(0);
    }
    for (name, rest) in files {
        let is_zero = |page: &[u8]| *page == [0; 4096][..page.len()];
        assert!(rest.chunks(4096).all(is_zero), "{what}: {name} has bytes of nothing");
    }
}

fn options() -> Vec<(String, SaveOptions)> {
    let sharded = WeightFiles::Sharded { max_bytes: 20 << 20 };
    let cases = [
        (WeightFiles::Packed, 1),
        (WeightFiles::Packed, 64),
        (WeightFiles::Packed, 4096),
        (WeightFiles::PerTensor, 64),
        (sharded, 64),
    ];
    let ways = [(false, true), (true, false), (true, true)];
    let with = |(files, alignment)| {
        ways.map(|(sync, direct)| {
            let options = SaveOptions::from(files).alignment(Alignment::new(alignment).unwrap());
            let name = format!("{files:?}, alignment {alignment}, sync {sync}, direct {direct}");
            (name, options.sync(sync).direct_io(direct))
        })
    };
    cases.into_iter().flat_map(with).collect()
}

fn every_way_writes_the_same(folder: &Path) {
    let inputs = tempfile::tempdir_in(folder).unwrap();
    for (number, (source, container, weights)) in sources(inputs.path()).into_iter().enumerate() {
        // By default a quarter of the options for each source, with every way.
        let part = few_or(4, 1);
        for (name, options) in options().into_iter().skip(number % part).step_by(part) {
            let out = tempfile::tempdir_in(folder).unwrap();
            let path = out.path().join("m.onnx");
            let saved = container.save(&path, options).unwrap();
            assert!(saved.warnings.is_empty(), "{:?}", saved.warnings);
            assert_holds(&path, &weights, &format!("{source}; {name}"));
        }
    }
}

#[test]
fn every_way_writes_the_same_bytes() {
    // Not in memory, where many systems have their folder for temporary files: that has no direct
    // I/O.
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR"));
    every_way_writes_the_same(beside);
}

#[test]
fn a_file_that_took_the_place_of_a_mapped_one_is_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("w"), folder.path().join("other"));
    let (old, new) = (pattern(3 << 20, 1), pattern(3 << 20, 2));
    fs::write(&path, &old).unwrap();
    let container = container(vec![tensor(map(&path))]);
    fs::write(&other, &new).unwrap();
    for replaced in [true, false] {
        if replaced {
            if cfg!(windows) {
                // No file is replaced that is mapped.
                fs::rename(&path, folder.path().join("away")).unwrap();
            }
            fs::rename(&other, &path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        for sync in [false, true] {
            let saved = folder.path().join("m.onnx");
            container.save(&saved, SaveOptions::new().sync(sync)).unwrap();
            assert_holds(&saved, std::slice::from_ref(&old), &format!("{replaced} {sync}"));
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_mapped_file_that_was_cut_off_is_an_error() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (start, sync) in [(0, false), (0, true), (4096, true), (100, false), (100, true)] {
        let path = folder.path().join("w");
        fs::write(&path, pattern(6 << 20, 1)).unwrap();
        let container = container(vec![tensor(map(&path).slice(start..5 << 20).unwrap())]);
        fs::File::options().write(true).open(&path).unwrap().set_len(3 << 20).unwrap();
        let saved = container.save(folder.path().join("m.onnx"), SaveOptions::new().sync(sync));
        let error = saved.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{start} {sync}: {error}");
        drop(container);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{start} {sync}");
    }
}

/// The folders of `ONNX_CONTAINER_SHARING_FOLDERS`, on file systems that share extents between
/// files.
fn sharing_folders() -> Vec<PathBuf> {
    let folders = std::env::var_os("ONNX_CONTAINER_SHARING_FOLDERS");
    folders.iter().flat_map(std::env::split_paths).collect()
}

/// The free bytes of the file system, once all that was written is on it.
fn free_bytes(container: &Container, folder: &Path) -> u64 {
    assert!(Command::new("sync").arg("--file-system").arg(folder).status().unwrap().success());
    container.dry_run(folder.join("free.onnx"), true).unwrap().free_bytes.unwrap()
}

#[test]
fn a_repacked_model_shares_extents_where_the_file_system_can() {
    let folders = sharing_folders();
    if folders.is_empty() {
        println!("!!! SKIPPED: ONNX_CONTAINER_SHARING_FOLDERS names no folder");
    }
    std::thread::scope(|scope| {
        for folder in &folders {
            scope.spawn(|| repacks_share_extents(folder));
        }
    });
}

fn repacks_share_extents(folder: &Path) {
    every_way_writes_the_same(folder);
    let weights: Vec<_> = (0..4).map(|i| pattern(16 << 20, i)).collect();
    let own = weights.iter().map(|bytes| tensor(bytes.clone().into())).collect();
    let first = folder.join("first.onnx");
    container(own).save(&first, true).unwrap();
    let [mapped, _] = both_choices();
    let loaded = Container::load(&first, mapped).unwrap();
    for (sync, files) in [
        (false, WeightFiles::Packed),
        (true, WeightFiles::Packed),
        (true, WeightFiles::PerTensor),
        (true, WeightFiles::Sharded { max_bytes: 40 << 20 }),
    ] {
        let path =
            folder.join(format!("second-{sync}-{files:?}").replace(' ', "")).with_extension("onnx");
        let before = free_bytes(&loaded, folder);
        loaded.save(&path, SaveOptions::from(files).sync(sync)).unwrap();
        let taken = before.saturating_sub(free_bytes(&loaded, folder));
        println!("{}: {taken} bytes for {} MiB", path.display(), 64);
        assert!(taken < 2 << 20, "{}: {taken} bytes were written", path.display());
        assert_holds(&path, &weights, "shared");
    }
    let path = folder.join("copied.onnx");
    let before = free_bytes(&loaded, folder);
    copy_model(&first, &path, FileOptions::new()).unwrap();
    let taken = before.saturating_sub(free_bytes(&loaded, folder));
    assert!(taken < 2 << 20, "a copy of the model's files took {taken} bytes");
    assert_holds(&path, &weights, "copied");
}

/// Weights of zeros that were never written take no room, and none after a save.
#[cfg(target_os = "linux")]
#[test]
fn holes_of_mapped_weights_stay_holes() {
    use std::os::unix::fs::{FileExt, MetadataExt};

    let folder = tempfile::tempdir().unwrap();
    let stored = |path: &Path| path.metadata().unwrap().blocks() * 512;
    let source = folder.path().join("source");
    let file = fs::File::create(&source).unwrap();
    // Two tensors of which only these bytes are data; the second begins in no block.
    let len = 48_usize << 20;
    file.set_len(2 * len as u64).unwrap();
    let data = [
        (0, 5),
        (20 << 20, 70_000),
        (len - 3, 9),
        (len + (30 << 20) + 11, 300_000),
        (2 * len - 1, 1),
    ];
    for (at, len) in data {
        file.write_all_at(&pattern(len, at as u64), at as u64).unwrap();
    }
    file.sync_all().unwrap();
    if stored(&source) > 8 << 20 {
        println!("!!! SKIPPED: this file system has no holes");
        return;
    }
    let mapped = map(&source);
    let split = len + 1;
    let weights = [mapped.slice(..split).unwrap(), mapped.slice(split..).unwrap()];
    let own: Vec<_> = weights.iter().map(|weight| weight.to_vec()).collect();
    let container = container(weights.into_iter().map(tensor).collect());
    for (name, options) in options() {
        let path = folder.path().join("m.onnx");
        let saved = container.save(&path, options).unwrap();
        assert_holds(&path, &own, &name);
        let files = saved.files.iter().map(|file| stored(&folder.path().join(&file.name)));
        let all: u64 = files.sum();
        assert!(all < 8 << 20, "{name}: {all} bytes of the disk");
    }
}
