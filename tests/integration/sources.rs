//! Sources of weights that the caller implements work wherever the built-in ones do, and are
//! checked.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onnx_container::proto::{Message, ModelProto, TensorProto};
use onnx_container::{
    Buffer, Container, DataType, Error, ErrorKind, Initializer, MmapChoice, Result, SaveOptions,
    WeightFiles, WeightSource,
};

use crate::support::{contents, graph, model};

/// Bytes that are made where they are read: byte `i` is `i * factor`.
#[derive(Default)]
struct Made {
    dims: Vec<i64>,
    len: u64,
    factor: u8,
    /// From which offset on a read fails.
    fails_from: Option<u64>,
    /// Whether the source now has a byte less than it said.
    shrunk: Arc<AtomicBool>,
    reads: Arc<AtomicUsize>,
}

impl Made {
    fn new(len: u64, factor: u8) -> Self {
        Self { dims: vec![len as i64], len, factor, ..Self::default() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.fill(0, &mut bytes);
        bytes
    }

    fn fill(&self, offset: u64, out: &mut [u8]) {
        let period: Vec<_> =
            (offset..offset + 256).map(|i| self.factor.wrapping_mul(i as u8)).collect();
        out.chunks_mut(256).for_each(|out| out.copy_from_slice(&period[..out.len()]));
    }
}

impl WeightSource for Made {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.len - u64::from(self.shrunk.load(Ordering::Relaxed))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        assert!(offset + out.len() as u64 <= self.len, "asked beyond its end");
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.fails_from.is_some_and(|from| offset + out.len() as u64 > from) {
            return Err(Error::other("the key has expired"));
        }
        self.fill(offset, out);
        Ok(())
    }
}

fn place(name: &str, len: u64) -> TensorProto {
    TensorProto::external(name, TensorProto::UINT8, [len as i64], format!("#{name}"))
}

/// A model with one tensor behind `#name` for each.
fn container(weights: Vec<(&str, Initializer)>) -> Container {
    let places = weights.iter().map(|(name, weight)| place(name, weight.byte_len())).collect();
    let mut container = Container::new(model(graph(places, vec![])));
    for (name, weight) in weights {
        container.insert(&format!("#{name}"), weight).unwrap();
    }
    container
}

/// Lengths around every limit of the copy engine.
const LENGTHS: [u64; 9] = [0, 1, 255, 4096, 65_535, 65_536, 1_048_575, 1_048_577, 33_600_001];

const LAYOUTS: &[WeightFiles] = &[
    WeightFiles::Packed,
    WeightFiles::PerTensor,
    WeightFiles::Sharded { max_bytes: 1000 },
    #[cfg(feature = "safetensors")]
    WeightFiles::Safetensors,
    WeightFiles::Embedded,
];

/// Every way out of a container, by name; each leaves its files in the folder.
type Way = (String, Box<dyn Fn(&Container, &Path) -> Result<()>>);

fn ways() -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    for layout in LAYOUTS {
        let save = move |container: &Container, folder: &Path| {
            container.save(folder.join("m.onnx"), *layout).map(drop)
        };
        ways.push((format!("save {layout:?}"), Box::new(save)));
        let save_once = move |container: &Container, folder: &Path| {
            let options = SaveOptions::from(*layout).dedup(true);
            container.save(folder.join("m.onnx"), options).map(drop)
        };
        ways.push((format!("dedup {layout:?}"), Box::new(save_once)));
        let with_digests = move |container: &Container, folder: &Path| {
            let options = SaveOptions::from(*layout).checksums(true).digests(true);
            container.save(folder.join("m.onnx"), options).map(drop)
        };
        ways.push((format!("digests {layout:?}"), Box::new(with_digests)));
        let parts = move |container: &Container, folder: &Path| {
            let parts = container.to_parts(*layout)?;
            for (name, bytes) in parts.files.iter().chain([&("m.onnx".into(), parts.model)]) {
                std::fs::write(folder.join(name), bytes).unwrap();
            }
            Ok(())
        };
        ways.push((format!("parts {layout:?}"), Box::new(parts)));
    }
    let embed = |container: &Container, folder: &Path| {
        std::fs::write(folder.join("m.onnx"), container.embed()?.encode_to_vec()?).unwrap();
        Ok(())
    };
    ways.push(("embed".into(), Box::new(embed)));
    #[cfg(feature = "safetensors")]
    ways.push(("export".into(), Box::new(export)));
    ways
}

#[cfg(feature = "safetensors")]
fn export(container: &Container, folder: &Path) -> Result<()> {
    use onnx_container::safetensors::ExportOptions;
    let path = folder.join("m.safetensors");
    container.export_safetensors(path, ExportOptions::new().max_shard_bytes(2 << 20)).map(drop)
}

#[test]
fn a_source_is_written_as_a_tensor_is() {
    let sources = LENGTHS.map(|len| Made::new(len, (len % 251) as u8 | 1));
    let names = LENGTHS.map(|len| format!("w{len}"));
    let tensor = |made: &Made| Initializer::from(ndarray::Array1::from(made.bytes()));
    let name = |i: usize| names[i].as_str();
    let plain = sources.iter().enumerate().map(|(i, made)| (name(i), tensor(made))).collect();
    let plain = container(plain);
    let own = sources.into_iter().map(|made| Initializer::from_source(made).unwrap());
    let own = container(own.enumerate().map(|(i, source)| (name(i), source)).collect());
    own.check().unwrap();
    for (way, go) in ways() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        go(&plain, folders[0].path()).unwrap();
        go(&own, folders[1].path()).unwrap();
        let [expected, found] = folders.map(|folder| contents(folder.path()));
        assert!(expected == found && !found.is_empty(), "{way}");
    }
}

#[test]
fn a_read_that_fails_names_the_tensor_and_publishes_nothing() {
    for len in [100, 300_000, 5_000_000] {
        for (way, go) in ways() {
            let failing = Made { fails_from: Some(len / 2), ..Made::new(len, 3) };
            let weights = [Made::new(len, 1), failing, Made::new(len, 5)];
            let weights = weights.map(|made| Initializer::from_source(made).unwrap());
            let weights = ["a", "broken", "c"].into_iter().zip(weights).collect();
            let folder = tempfile::tempdir().unwrap();
            let error = go(&container(weights), folder.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Other, "{way}: {error}");
            assert!(error.tensor().unwrap().ends_with("broken"), "{way}: {error}");
            assert!(error.reason().contains("the key has expired"), "{way}: {error}");
            assert!(contents(folder.path()).is_empty(), "{way}");
        }
    }
}

#[test]
fn a_source_that_shrinks_is_an_error() {
    for (way, go) in ways() {
        let shrunk = Arc::new(AtomicBool::new(false));
        let made = Made { shrunk: shrunk.clone(), ..Made::new(300_000, 3) };
        let container = container(vec![("w", Initializer::from_source(made).unwrap())]);
        shrunk.store(true, Ordering::Relaxed);
        let folder = tempfile::tempdir().unwrap();
        let error = go(&container, folder.path()).unwrap_err();
        assert!(error.reason().contains("became shorter"), "{way}: {error}");
        assert!(error.tensor().unwrap().ends_with('w'), "{way}: {error}");
        assert!(contents(folder.path()).is_empty(), "{way}");
    }
}

/// An owner whose bytes can be taken away.
#[derive(Clone)]
struct Shrinks(Arc<AtomicBool>, Arc<Vec<u8>>);

impl AsRef<[u8]> for Shrinks {
    fn as_ref(&self) -> &[u8] {
        if self.0.load(Ordering::Relaxed) { &[] } else { &self.1 }
    }
}

#[test]
fn an_owner_that_shrinks_is_an_error_and_never_zeros() {
    for (way, go) in ways() {
        for len in [100, 100_000, 3_000_000] {
            let owner = Shrinks(Arc::default(), Arc::new(vec![7; len]));
            let bytes = Buffer::from_owner(owner.clone());
            let tensor = onnx_container::Tensor::new(DataType::Uint8, [len as i64], bytes);
            let container = container(vec![("w", tensor.unwrap().into())]);
            owner.0.store(true, Ordering::Relaxed);
            let folder = tempfile::tempdir().unwrap();
            let error = go(&container, folder.path()).unwrap_err();
            assert!(error.reason().contains("became shorter"), "{way} {len}: {error}");
            assert!(error.tensor().unwrap().ends_with('w'), "{way} {len}: {error}");
            assert!(contents(folder.path()).is_empty(), "{way} {len}");
        }
    }
}

#[test]
fn an_owner_that_shrinks_while_it_is_saved_is_an_error_and_never_zeros() {
    for layout in LAYOUTS.iter().filter(|layout| **layout != WeightFiles::Embedded) {
        let owner = Shrinks(Arc::default(), Arc::new(vec![7; 34_000_000]));
        let bytes = Buffer::from_owner(owner.clone());
        let tensor = onnx_container::Tensor::new(DataType::Uint8, [34_000_000], bytes).unwrap();
        let first = Initializer::from(ndarray::Array1::from(vec![1_u8; 4_000_000]));
        let container = container(vec![("first", first), ("w", tensor.into())]);
        let folder = tempfile::tempdir().unwrap();
        let shrink = owner.0.clone();
        let options = SaveOptions::from(*layout).progress(move |_| {
            shrink.store(true, Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        let error = container.save(folder.path().join("m.onnx"), options).unwrap_err();
        assert!(error.reason().contains("became shorter"), "{layout:?}: {error}");
        assert_eq!(error.tensor(), Some("w"), "{layout:?}");
        assert!(contents(folder.path()).is_empty(), "{layout:?}");
    }
}

#[test]
fn what_a_source_says_is_held_to_its_type_and_dimensions() {
    struct Says(DataType, Vec<i64>, u64);
    impl WeightSource for Says {
        fn dtype(&self) -> DataType {
            self.0
        }
        fn dims(&self) -> &[i64] {
            &self.1
        }
        fn byte_len(&self) -> u64 {
            self.2
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
            Ok(())
        }
    }
    let cases = [
        (Says(DataType::Float, vec![2, 3], 24), None),
        (Says(DataType::Float, vec![], 4), None),
        (Says(DataType::Int4, vec![3], 2), None),
        (Says(DataType::Float, vec![0, 7], 0), None),
        (Says(DataType::Float, vec![2, 3], 23), Some(ErrorKind::Shape)),
        (Says(DataType::Float, vec![2, 3], u64::MAX), Some(ErrorKind::Shape)),
        (Says(DataType::Float, vec![-1], 4), Some(ErrorKind::Shape)),
        (Says(DataType::Float, vec![i64::MAX, i64::MAX], 4), Some(ErrorKind::Shape)),
        (Says(DataType::String, vec![1], 1), Some(ErrorKind::DataType)),
        (Says(DataType::Undefined, vec![1], 1), Some(ErrorKind::DataType)),
    ];
    for (says, expected) in cases {
        let case = format!("{} {:?} {}", says.0, says.1, says.2);
        let kind = Initializer::from_source(says).map_err(|error| error.kind()).err();
        assert_eq!(kind, expected, "{case}");
    }
}

#[test]
fn clones_of_a_source_are_one_weight_and_equal_sources_are_two() {
    let (reads, len) = (Arc::new(AtomicUsize::new(0)), 100_000_u64);
    let made = || Made { reads: reads.clone(), ..Made::new(len, 3) };
    let one = Initializer::from_source(made()).unwrap();
    let shared: Arc<dyn WeightSource> = Arc::new(made());
    let again = || Initializer::from_shared(shared.clone()).unwrap();
    let all = vec![
        ("a", one.clone()),
        ("b", one),
        ("c", again()),
        ("d", again()),
        ("e", Initializer::from_source(made()).unwrap()),
    ];
    let container = container(all);
    let cases =
        [(WeightFiles::Packed, 3 * len.next_multiple_of(256)), (WeightFiles::PerTensor, 3 * len)];
    for (layout, bytes) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let saved = container.save(&path, layout).unwrap();
        let (_, weights) = saved.files.split_last().unwrap();
        let written: u64 = weights.iter().map(|file| file.bytes).sum();
        assert!(written.abs_diff(bytes) < 256, "{layout:?}: {written}");
        assert_eq!(reads.swap(0, Ordering::Relaxed), 3, "{layout:?}");
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        for tensor in loaded.embed().unwrap().graph.unwrap().initializer {
            assert_eq!(**tensor.raw_data.as_ref().unwrap(), *made().bytes(), "{layout:?}");
        }
    }
}

/// A source that lends a new copy for each call, whose memory the next one gets.
struct Fresh(u8);

impl WeightSource for Fresh {
    fn dtype(&self) -> DataType {
        DataType::Uint8
    }
    fn dims(&self) -> &[i64] {
        &[100_000]
    }
    fn byte_len(&self) -> u64 {
        100_000
    }
    fn read_at(&self, _: u64, out: &mut [u8]) -> Result<()> {
        out.fill(self.0);
        Ok(())
    }
    fn as_buffer(&self) -> Option<Buffer> {
        Some(vec![self.0; 100_000].into())
    }
}

#[test]
fn sources_whose_buffers_get_the_same_memory_are_not_taken_for_one() {
    let names = ["a", "b", "c"];
    let weights =
        names.iter().zip(1..).map(|(n, i)| (*n, Initializer::from_source(Fresh(i)).unwrap()));
    let container = container(weights.collect());
    for (way, go) in ways().into_iter().filter(|(way, _)| way.starts_with("save")) {
        let folder = tempfile::tempdir().unwrap();
        go(&container, folder.path()).unwrap();
        let model = Container::load(folder.path().join("m.onnx"), MmapChoice::never());
        let model: ModelProto = model.unwrap().embed().unwrap();
        for (tensor, expected) in model.graph.unwrap().initializer.iter().zip(1..) {
            assert_eq!(**tensor.raw_data.as_ref().unwrap(), [expected; 100_000], "{way}");
        }
    }
}

#[test]
fn progress_reaches_its_total_and_never_goes_backwards() {
    // Odd lengths below, at and above what is gathered, so that there is padding before each kind.
    let lengths = [1, 100_001, 3, 5_000_001, 70_001, 7, 34_000_001, 9, 2_000_003, 11];
    for layout in LAYOUTS {
        for own in [false, true] {
            let names: Vec<_> = (0..lengths.len()).map(|i| format!("w{i}")).collect();
            let weight = |len: u64| match own {
                true => Initializer::from_source(Made::new(len, 1)).unwrap(),
                false => Initializer::from(ndarray::Array1::from(vec![1_u8; len as usize])),
            };
            let weights = names.iter().zip(lengths).map(|(name, len)| (name.as_str(), weight(len)));
            let container = container(weights.collect());
            let seen: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
            let keep = seen.clone();
            let options = SaveOptions::from(*layout).progress(move |progress| {
                keep.lock().unwrap().push((progress.done, progress.total));
                ControlFlow::Continue(())
            });
            let folder = tempfile::tempdir().unwrap();
            let saved = container.save(folder.path().join("m.onnx"), options).unwrap();
            let seen = seen.lock().unwrap();
            assert!(seen.windows(2).all(|two| two[0].0 <= two[1].0), "{layout:?}");
            assert!(seen.iter().all(|(_, total)| *total == saved.bytes), "{layout:?}");
            assert_eq!(seen.last().unwrap().0, saved.bytes, "{layout:?} {own}");
        }
    }
}

#[test]
fn a_save_of_a_source_can_be_cancelled() {
    for layout in LAYOUTS {
        let made = Made::new(4_000_000, 1);
        let container = container(vec![("w", Initializer::from_source(made).unwrap())]);
        let folder = tempfile::tempdir().unwrap();
        let cancel = SaveOptions::from(*layout).progress(|_| ControlFlow::Break(()));
        let error = container.save(folder.path().join("m.onnx"), cancel).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{layout:?}");
        assert!(contents(folder.path()).is_empty(), "{layout:?}");
    }
}
