//! A model whose weights files are opened by a source: all that works for a folder works the same.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onnx_container::buffer::Ownership;
use onnx_container::check::{CheckOptions, check_bytes, check_model};
use onnx_container::compare::compare;
use onnx_container::load::{FileSource, FolderFiles, Limit, PathPolicy, WeightFile};
use onnx_container::proto::{Message, StringStringEntryProto, TensorProto};
use onnx_container::{
    Alignment, Buffer, Container, Error, ErrorKind, Limits, LoadOptions, Outline, Result,
    SaveOptions, WeightFiles,
};

use crate::support::{assert_same, contents, graph, model};

const NESTED: &str = "w/sub dir/é#%.bin";

/// What is wrong with files in memory.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// The number of the read that fails, from zero on.
    failing_read: Option<usize>,
    /// How many bytes more, or fewer, a file says that it has.
    longer: i64,
    /// How many bytes fewer its buffer has.
    shorter_buffer: usize,
}

/// Files in memory by their locations, with counters that their owner keeps.
#[derive(Clone, Default)]
struct Files {
    bytes: Arc<HashMap<String, Vec<u8>>>,
    lends: bool,
    preferred: usize,
    faults: Faults,
    /// The locations that were asked for.
    opened: Arc<Mutex<Vec<String>>>,
    /// How many reads there were.
    reads: Arc<AtomicUsize>,
}

struct OneFile(Files, String);

impl OneFile {
    fn bytes(&self) -> &[u8] {
        &self.0.bytes[&self.1]
    }
}

impl FileSource for Files {
    fn open(&self, location: &str) -> Result<Arc<dyn WeightFile>> {
        self.opened.lock().unwrap().push(location.to_owned());
        if !self.bytes.contains_key(location) {
            return Err(Error::new(ErrorKind::MissingFile, "the store has no such key"));
        }
        Ok(Arc::new(OneFile(self.clone(), location.to_owned())))
    }
}

impl WeightFile for OneFile {
    fn len(&self) -> u64 {
        (self.bytes().len() as u64).saturating_add_signed(self.0.faults.longer)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let number = self.0.reads.fetch_add(1, Ordering::Relaxed);
        if self.0.faults.failing_read == Some(number) {
            // What was there before the line was cut.
            let half = out.len() / 2;
            out[..half].fill(0x77);
            return Err(Error::other("the line was cut"));
        }
        let start = offset as usize;
        let part = self.bytes().get(start..start + out.len());
        out.copy_from_slice(part.ok_or_else(|| Error::new(ErrorKind::Io, "a short answer"))?);
        Ok(())
    }

    fn preferred_read(&self) -> usize {
        self.0.preferred
    }

    fn as_buffer(&self) -> Option<Buffer> {
        let held = self.bytes().len() - self.0.faults.shorter_buffer;
        self.0.lends.then(|| self.bytes()[..held].to_vec().into())
    }

    fn describe(&self) -> PathBuf {
        format!("store://bucket/{}", self.1).into()
    }
}

fn external(name: &str, dtype: i32, dims: &[i64], location: &str, offset: u64) -> TensorProto {
    let mut tensor = TensorProto::external(name, dtype, dims, location);
    tensor.external_data.push(StringStringEntryProto::new("offset", offset.to_string()));
    tensor
}

/// A model, encoded, and its files: nested and spelled twice, ties, views, no elements, elements
/// below a byte, and one tensor that is longer than a read.
fn example() -> (Vec<u8>, HashMap<String, Vec<u8>>) {
    let tensors = vec![
        external("a", TensorProto::FLOAT, &[3, 4], NESTED, 0),
        external("tied", TensorProto::FLOAT, &[3, 4], NESTED, 0),
        external("flat", TensorProto::FLOAT, &[12], NESTED, 0),
        external("inside", TensorProto::FLOAT, &[2], NESTED, 16),
        external("empty", TensorProto::FLOAT, &[0, 7], NESTED, 48),
        external("int4", TensorProto::INT4, &[5], NESTED, 600),
        external("bool", TensorProto::BOOL, &[6], "./big.data", 0),
        external("long", TensorProto::UINT8, &[1_200_001], "big.data", 4096),
        TensorProto::new("inline", TensorProto::UINT8, [2]).with_raw_data(vec![5, 6]),
    ];
    let mut nested: Vec<u8> = (0..12).flat_map(|i| (i as f32 + 0.5).to_le_bytes()).collect();
    nested.resize(600, 0);
    nested.extend([0x21, 0x43, 0x05]);
    let mut big = vec![1, 0, 1, 1, 0, 0];
    big.resize(4096, 0);
    big.extend((0..1_200_001_u32).map(|i| (i % 251) as u8));
    let files = [(NESTED.to_owned(), nested), ("big.data".to_owned(), big)];
    (model(graph(tensors, vec![])).encode_to_vec().unwrap(), files.into())
}

fn write(folder: &Path, files: &HashMap<String, Vec<u8>>) {
    for (location, bytes) in files {
        let path = folder.join(location);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Files without faults, whose source says so of itself.
fn in_memory(bytes: &HashMap<String, Vec<u8>>, lends: bool, preferred: usize) -> Files {
    Files { bytes: Arc::new(bytes.clone()), lends, preferred, ..Files::default() }
}

/// Every way to give the `bytes` of files, which are also in `folder`.
fn ways(folder: &Path, bytes: &HashMap<String, Vec<u8>>) -> Vec<(&'static str, LoadOptions)> {
    let from = |source: Files| LoadOptions::new().files_from(source);
    let of_folder = FolderFiles::new(folder, PathPolicy::Strict).unwrap();
    let shared: Arc<dyn FileSource> = Arc::new(of_folder);
    vec![
        ("a folder", LoadOptions::new().base_dir(folder)),
        ("the files of a folder", LoadOptions::new().files_from(shared)),
        ("buffers in memory", from(in_memory(bytes, true, 1 << 20))),
        ("memory that is read", from(in_memory(bytes, false, 1 << 20))),
        ("short reads", from(in_memory(bytes, false, 1000))),
        ("a read of nothing", from(in_memory(bytes, false, 0))),
        ("long reads", from(in_memory(bytes, false, (1 << 20) + 1))),
    ]
}

#[test]
fn every_way_gives_the_same_model() {
    let (bytes, files) = example();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &files);
    let load = |options: LoadOptions| Container::load_bytes(bytes.clone(), options).unwrap();
    let expected = load(LoadOptions::new().base_dir(folder.path()));
    let mut changed = files.clone();
    changed.get_mut(NESTED).unwrap()[5] ^= 1;
    let other = load(LoadOptions::new().files_from(in_memory(&changed, true, 1)));
    let looked_at = |container: &Container| {
        let stats = container.stats(|_| true).unwrap();
        format!("{:?} {stats:?}", container.summary().unwrap().totals)
    };
    for (way, options) in ways(folder.path(), &files) {
        let found = load(options.clone());
        assert_eq!(found.model(), expected.model(), "{way}: handles and ties");
        assert_same(&found, &expected);
        assert_eq!(found.digest().unwrap(), expected.digest().unwrap(), "{way}");
        assert!(compare(&found, &expected).unwrap().same, "{way}");
        let differing = compare(&found, &other).unwrap().tensors.changed;
        let names: Vec<_> = differing.iter().map(|changed| changed.name.as_str()).collect();
        assert_eq!(names, ["a", "tied", "flat"], "{way}");
        assert!(looked_at(&found) == looked_at(&expected), "{way}: statistics and totals");
        assert_eq!(found.tensor("inside").unwrap().as_slice::<f32>().unwrap(), [4.5, 5.5], "{way}");
        assert_eq!(found.tensor("empty").unwrap().byte_len(), 0, "{way}");
        found.check().unwrap();
        assert_eq!(found.weights_files().is_empty(), way != "a folder", "{way}");

        let options = CheckOptions::from(options).contents(true);
        let checked = check_bytes(bytes.clone(), options).unwrap();
        let said = checked.findings.iter().map(|finding| finding.error.reason().to_owned());
        // The views and gaps of the example, whatever opens the files.
        let views = "bytes 16..24 lie inside those of another tensor, 0..48";
        assert_eq!(said.filter(|reason| reason == views).count(), 1, "{way}");
        assert!(checked.is_ok(), "{way}: {:?}", checked.findings);
    }
}

#[test]
fn every_way_is_saved_to_the_same_files() {
    let (bytes, files) = example();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &files);
    let layouts = [
        WeightFiles::Packed,
        WeightFiles::PerTensor,
        WeightFiles::Embedded,
        WeightFiles::AsLoaded,
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors,
    ];
    for layout in layouts {
        let mut expected = None;
        let of_files = |way: &str| layout == WeightFiles::AsLoaded && way == "a folder";
        // Those of another folder cannot be kept, and others need not be.
        let ways = ways(folder.path(), &files).into_iter().filter(|(way, _)| !of_files(way));
        for (way, options) in ways {
            let container = Container::load_bytes(bytes.clone(), options.clone()).unwrap();
            let to = tempfile::tempdir().unwrap();
            let options_of_save = SaveOptions::from(layout).sync(false);
            container.save(to.path().join("m.onnx"), options_of_save).unwrap();
            let saved = contents(to.path());
            assert!(*expected.get_or_insert_with(|| saved.clone()) == saved, "{way} {layout:?}");
            if layout == WeightFiles::Embedded {
                let outline = Outline::load_bytes(bytes.clone(), options).unwrap();
                let to = tempfile::tempdir().unwrap();
                outline.embed(to.path().join("m.onnx"), true).unwrap();
                assert!(contents(to.path()) == saved, "{way}: an outline");
            }
        }
    }
}

#[test]
fn stored_digests_are_verified_through_every_way() {
    let (bytes, files) = example();
    let options = LoadOptions::new().files_from(in_memory(&files, true, 1));
    let container = Container::load_bytes(bytes, options).unwrap();
    let parts = container.to_parts(SaveOptions::new().digests(true).checksums(true)).unwrap();
    let whole: HashMap<String, Vec<u8>> =
        parts.files.into_iter().map(|(name, bytes)| (name, bytes.to_vec())).collect();
    let mut damaged = whole.clone();
    *damaged.values_mut().next().unwrap().last_mut().unwrap() ^= 1;
    for (files, is_whole) in [(whole, true), (damaged, false)] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &files);
        for (way, options) in ways(folder.path(), &files) {
            let model = parts.model.clone();
            let loaded = Container::load_bytes(model.clone(), options.clone().verify_digests(true));
            let checked = check_bytes(model, CheckOptions::from(options).digests(true)).unwrap();
            assert_eq!(checked.is_ok(), is_whole, "{way}: {:?}", checked.findings);
            let compared = checked.compared.unwrap();
            assert_eq!(compared.files, 1, "{way}");
            match loaded {
                Ok(_) => assert!(is_whole, "{way}"),
                Err(error) => assert!(!is_whole && error.has(ErrorKind::WrongDigest), "{error}"),
            }
        }
    }
}

#[test]
fn a_file_is_opened_once_and_only_when_it_is_needed() {
    let (bytes, files) = example();
    let source = in_memory(&files, false, 1 << 20);
    let options = LoadOptions::new().files_from(source.clone());
    let opened = || std::mem::take(&mut *source.opened.lock().unwrap());
    let bare = options.clone().weights(false);
    let mut container = Container::load_bytes(bytes.clone(), bare.clone()).unwrap();
    check_bytes(bytes.clone(), bare).unwrap();
    assert!(opened().is_empty());
    container.attach("/there is no such folder", options.clone()).unwrap();
    assert_eq!(opened(), [NESTED, "big.data"]);
    // The beginning of each file, which tells that it is no web page.
    assert_eq!(source.reads.swap(0, Ordering::Relaxed), 2);
    container.tensor("a").unwrap();
    assert_eq!(source.reads.swap(0, Ordering::Relaxed), 1);
    let one = &files[NESTED];
    Container::load_bytes(bytes, options.file(NESTED, one.clone())).unwrap();
    assert_eq!(opened(), ["big.data"]);
}

#[test]
fn copies_are_read_by_the_load_and_aligned() {
    let (bytes, files) = example();
    let source = in_memory(&files, false, 1 << 20);
    let options = LoadOptions::new().files_from(source.clone()).alignment(Alignment::PAGE);
    let lazy = Container::load_bytes(bytes.clone(), options.clone()).unwrap();
    assert!(lazy.iter().filter(|(_, weight)| weight.as_buffer().is_some()).count() == 1);
    let read = lazy.get("#long").unwrap().to_buffer().unwrap();
    assert!(Alignment::PAGE.is_aligned(read.as_ptr().addr() as u64));

    let loaded = Container::load_bytes(bytes, options.no_copy(false)).unwrap();
    source.reads.store(0, Ordering::Relaxed);
    let count = loaded.len();
    let copies =
        loaded.iter().map(|(handle, weight)| (handle.clone(), weight.as_buffer().unwrap()));
    let copies: Vec<_> = copies.collect();
    drop(loaded);
    for (handle, bytes) in copies.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
        assert_eq!(bytes.ownership(), Ownership::Owned, "{handle}");
        assert_eq!(bytes, lazy.get(handle.as_str()).unwrap().to_buffer().unwrap(), "{handle}");
    }
    // The long one in two parts, the empty one not at all: those of `lazy`.
    assert_eq!(source.reads.load(Ordering::Relaxed), count - 2 + 2);
}

#[test]
fn a_location_is_judged_before_the_source_is_asked() {
    let cases = [
        ("../w", ErrorKind::UnsafePath),
        ("a/../../w", ErrorKind::UnsafePath),
        ("/etc/hostname", ErrorKind::UnsafePath),
        ("C:\\w", ErrorKind::UnsafePath),
        ("\\\\host\\w", ErrorKind::UnsafePath),
        ("w/", ErrorKind::UnsafePath),
        (".", ErrorKind::UnsafePath),
        ("w\0", ErrorKind::UnsafePath),
        ("*/_ORT_MEM_ADDR_/*", ErrorKind::UnsafePath),
        ("#handle", ErrorKind::MissingHandle),
        ("weights-were-stripped", ErrorKind::MissingHandle),
    ];
    for (location, kind) in cases {
        // With a checksum, by which a whole file is read.
        let mut tensor = external("w", TensorProto::UINT8, &[1], location, 0);
        tensor.external_data.push(StringStringEntryProto::new("checksum", "00"));
        let bytes = model(graph(vec![tensor], vec![])).encode_to_vec().unwrap();
        let source = Files::default();
        let options = LoadOptions::new().files_from(source.clone());
        for verify in [false, true] {
            let options = options.clone().verify_digests(verify);
            let error = Container::load_bytes(bytes.clone(), options).unwrap_err();
            assert_eq!(error.kind(), kind, "{location:?}: {error}");
        }
        let checked = check_bytes(bytes, CheckOptions::from(options).digests(true)).unwrap();
        assert!(checked.findings.iter().any(|found| found.error.kind() == kind), "{location:?}");
        assert!(source.opened.lock().unwrap().is_empty(), "{location:?}");
    }
}

#[test]
fn a_read_that_fails_is_an_error_and_never_other_bytes() {
    let (bytes, files) = example();
    let expected = Container::load_bytes(
        bytes.clone(),
        LoadOptions::new().files_from(in_memory(&files, true, 1)),
    );
    let expected = expected.unwrap();
    for preferred in [1 << 20, 1 << 21] {
        let mut failed = 0;
        for number in 0..40 {
            let faults = Faults { failing_read: Some(number), ..Faults::default() };
            let source = Files { faults, ..in_memory(&files, false, preferred) };
            let options = LoadOptions::new().files_from(source);
            let to = tempfile::tempdir().unwrap();
            let path = to.path().join("m.onnx");
            let load = |options| Container::load_bytes(bytes.clone(), options);
            let outcome = load(options).and_then(|container| {
                container.digest()?;
                let saved =
                    container.save(&path, SaveOptions::from(WeightFiles::Packed).sync(false));
                if saved.is_err() {
                    assert!(contents(to.path()).is_empty(), "read {number}");
                }
                saved?;
                Container::load(&path, LoadOptions::new())
            });
            match outcome {
                Ok(container) => assert_same(&container, &expected),
                Err(error) => {
                    failed += 1;
                    for error in error.each() {
                        let text = error.to_string();
                        let is_named = text.contains(NESTED) || text.contains("big.data");
                        let is_ranged = text.contains("bytes ") && text.contains(" cannot be read");
                        assert!(is_named && is_ranged, "read {number}: {text}");
                        assert!(text.contains("the line was cut"), "read {number}: {text}");
                        assert!(error.offset().is_some() && error.kind() == ErrorKind::Other);
                    }
                }
            }
        }
        assert!((10..40).contains(&failed), "{failed} of 40 reads are needed");
    }
}

/// What a load says of files that a fault makes wrong, and of the same files in a folder.
#[test]
fn a_length_that_is_wrong_is_an_error() {
    let (bytes, files) = example();
    let load = |source| Container::load_bytes(bytes.clone(), LoadOptions::new().files_from(source));
    // The file is said to be shorter: as a folder with files that are cut off says it.
    let folder = tempfile::tempdir().unwrap();
    let cut = files.iter().map(|(name, of)| (name.clone(), of[..of.len() - 2].to_vec()));
    write(folder.path(), &cut.collect());
    let in_folder = LoadOptions::new().base_dir(folder.path());
    let expected = Container::load_bytes(bytes.clone(), in_folder).unwrap_err();
    for lends in [false, true] {
        let faults = Faults { longer: -2, ..Faults::default() };
        let faults = Faults { shorter_buffer: 2, ..faults };
        let error = load(Files { faults, ..in_memory(&files, lends, 1 << 20) }).unwrap_err();
        let said = |error: &Error| {
            let each = error.each();
            each.map(|one| (one.kind(), one.reason().to_owned(), one.offset())).collect::<Vec<_>>()
        };
        assert_eq!(said(&error), said(&expected));
        assert_eq!(error.kind(), ErrorKind::OutOfBounds);
        assert_eq!(said(&error).len(), 2);
        assert!(error.to_string().contains("store://bucket/big.data"), "{error}");
    }
    // It is said to be longer, and a tensor ends where nothing is.
    let mut short = files.clone();
    short.get_mut("big.data").unwrap().truncate(1_200_000);
    let faults = Faults { longer: 1_000_000, ..Faults::default() };
    let container = load(Files { faults, ..in_memory(&short, false, 1 << 20) }).unwrap();
    let error = container.tensor("long").unwrap_err();
    assert!(error.to_string().contains("cannot be read: a short answer"), "{error}");
    container.tensor("bool").unwrap();
    // The buffer has another length than the file.
    for faults in [
        Faults { longer: 1, ..Faults::default() },
        Faults { longer: -1, ..Faults::default() },
        Faults { shorter_buffer: 1, ..Faults::default() },
    ] {
        let error = load(Files { faults, ..in_memory(&files, true, 1) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{error}");
        assert!(error.to_string().contains("in memory"), "{error}");
    }
}

#[test]
fn files_that_are_missing_or_no_weights_are_said_once() {
    let (bytes, files) = example();
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n".repeat(60_000);
    let without = |name: &str| {
        let mut files = files.clone();
        files.remove(name);
        files
    };
    let mut with_pointer = files.clone();
    with_pointer.insert("big.data".to_owned(), pointer);
    let cases = [
        (without("big.data"), ErrorKind::MissingFile, "`./big.data`: the store has no such key"),
        (without(NESTED), ErrorKind::MissingFile, "the store has no such key"),
        (with_pointer, ErrorKind::NotDownloaded, "`store://bucket/big.data`: a Git LFS pointer"),
    ];
    for (files, kind, text) in cases {
        for lends in [false, true] {
            let options = LoadOptions::new().files_from(in_memory(&files, lends, 1 << 20));
            let error = Container::load_bytes(bytes.clone(), options.clone()).unwrap_err();
            assert_eq!((error.kind(), error.each().count()), (kind, 1), "{error}");
            assert!(error.to_string().contains(text), "{error}");
            let checked = check_bytes(bytes.clone(), options).unwrap();
            let of_kind = checked.findings.iter().filter(|found| found.error.kind() == kind);
            assert_eq!(of_kind.count(), 1, "{:?}", checked.findings);
        }
    }
}

#[test]
fn limits_hold_and_a_model_on_disk_takes_its_files_from_the_source_alone() {
    let (bytes, files) = example();
    let options = LoadOptions::new().files_from(in_memory(&files, false, 1 << 20));
    let limited = options.clone().limits(Limits::new().with(Limit::Ties, 0));
    let error = Container::load_bytes(bytes.clone(), limited).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");

    // The folder has other files of these names, and one that no tensor names.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(&path, &bytes).unwrap();
    fs::write(folder.path().join("big.data"), b"wrong").unwrap();
    fs::write(folder.path().join("m.onnx.data"), b"unneeded").unwrap();
    let container = Container::load(&path, options.clone()).unwrap();
    let expected = Container::load_bytes(bytes, options.clone()).unwrap();
    assert_same(&container, &expected);
    let checked = check_model(&path, options).unwrap();
    assert!(checked.is_ok(), "{:?}", checked.findings);
    let unneeded = checked.findings.iter().filter(|it| it.error.kind() == ErrorKind::Unneeded);
    assert_eq!(unneeded.count(), 0, "the folder is not that of the files");
}
