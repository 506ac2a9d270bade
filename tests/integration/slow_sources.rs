//! Sources that ask for long reads: a save makes several reads at once, ahead of the writer, and
//! within its bound. What counts is how many there are and how long, not the time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use onnx_container::edit::CastOptions;
use onnx_container::proto::TensorProto;
use onnx_container::{
    Buffer, Container, DataType, Error, ErrorKind, Initializer, Result, SaveOptions, WeightFiles,
    WeightSource,
};

use crate::support::{contents, graph, model};

const MIB: u64 = 1 << 20;

/// What the reads of all sources of a model were.
#[derive(Default)]
struct Seen {
    lengths: Mutex<Vec<u64>>,
    now: AtomicUsize,
    most_at_once: AtomicUsize,
    /// How many reads at once each read waits for, until there were so many or after ten seconds.
    wanted_at_once: AtomicUsize,
    /// Bytes of reads that were begun.
    begun: AtomicU64,
    /// Bytes that the save has reported as written.
    written: AtomicU64,
    /// The most bytes that were read, or being read, and not yet reported as written.
    most_unwritten: AtomicU64,
}

impl Seen {
    /// Of reads of which `wanted` are to be made at once.
    fn wanting(wanted: usize) -> Arc<Self> {
        Arc::new(Self { wanted_at_once: AtomicUsize::new(wanted), ..Self::default() })
    }

    /// Whether there were so many.
    fn were_at_once(&self) -> bool {
        self.most_at_once.load(Ordering::SeqCst) >= self.wanted_at_once.load(Ordering::SeqCst)
    }

    fn wait(&self) {
        let start = Instant::now();
        while !self.were_at_once() && start.elapsed() < Duration::from_secs(10) {
            sleep(Duration::from_millis(1));
        }
    }
}

/// Bytes that depend on their place; each read takes 20 ms.
struct Slow {
    dtype: DataType,
    dims: Vec<i64>,
    preferred: usize,
    seed: u8,
    fails_at: Option<u64>,
    seen: Arc<Seen>,
    /// Whether the bytes are in memory by now, and how often that is denied before.
    denied: AtomicUsize,
}

impl Slow {
    fn fill(&self, offset: u64, out: &mut [u8]) {
        let byte = |at: u64| self.seed.wrapping_add((at % 251) as u8);
        let period: Vec<_> = (offset..offset + 251).map(byte).collect();
        out.chunks_mut(251).for_each(|out| out.copy_from_slice(&period[..out.len()]));
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.byte_len() as usize];
        self.fill(0, &mut bytes);
        bytes
    }
}

impl WeightSource for Slow {
    fn dtype(&self) -> DataType {
        self.dtype
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        self.dtype.byte_len(&self.dims).unwrap()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let (seen, len) = (&self.seen, out.len() as u64);
        seen.lengths.lock().unwrap().push(len);
        let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_at_once.fetch_max(now, Ordering::SeqCst);
        let begun = seen.begun.fetch_add(len, Ordering::SeqCst) + len;
        let unwritten = begun.saturating_sub(seen.written.load(Ordering::SeqCst));
        seen.most_unwritten.fetch_max(unwritten, Ordering::SeqCst);
        sleep(Duration::from_millis(20));
        seen.wait();
        seen.now.fetch_sub(1, Ordering::SeqCst);
        if self.fails_at.is_some_and(|at| (offset..offset + len).contains(&at)) {
            return Err(Error::other("the line was cut"));
        }
        self.fill(offset, out);
        Ok(())
    }

    fn preferred_read(&self) -> usize {
        self.preferred
    }

    fn as_buffer(&self) -> Option<Buffer> {
        let denied = |left: usize| left.checked_sub(1);
        let is_denied = self.denied.fetch_update(Ordering::SeqCst, Ordering::SeqCst, denied);
        is_denied.is_err().then(|| self.bytes().into())
    }
}

/// The lengths of the weights in bytes: some are shorter than a read, some cross the 32 MiB that a
/// thread writes.
const LENGTHS: [u64; 5] = [3 * MIB + 5, 20 * MIB, 100, 17 * MIB + 1, 9];

fn slow(number: u8, len: u64, preferred: usize, seen: &Arc<Seen>) -> Slow {
    let (dims, seen) = (vec![len as i64], Arc::clone(seen));
    let denied = AtomicUsize::new(usize::MAX);
    Slow { dtype: DataType::Uint8, dims, preferred, seed: number, fails_at: None, seen, denied }
}

fn container(weights: Vec<Initializer>) -> Container {
    let external = |(number, weight): (usize, &Initializer)| {
        let name = format!("w{number}");
        TensorProto::external(&name, weight.dtype().number(), weight.dims(), format!("#{name}"))
    };
    let tensors = weights.iter().enumerate().map(external).collect();
    let mut container = Container::new(model(graph(tensors, vec![])));
    for (number, weight) in weights.into_iter().enumerate() {
        container.insert(&format!("#w{number}"), weight).unwrap();
    }
    container
}

fn of_slow(preferred: usize, seen: &Arc<Seen>) -> Container {
    let weights = (0..).zip(LENGTHS).map(|(number, len)| slow(number, len, preferred, seen));
    container(weights.map(|weight| Initializer::from_source(weight).unwrap()).collect())
}

/// The files of a save of the same weights in memory.
fn expected(layout: WeightFiles) -> BTreeMap<String, Vec<u8>> {
    let seen = Arc::default();
    let weights = (0..).zip(LENGTHS).map(|(number, len)| slow(number, len, 1, &seen).bytes());
    let folder = tempfile::tempdir().unwrap();
    container(weights.map(Initializer::from).collect())
        .save(folder.path().join("m.onnx"), layout)
        .unwrap();
    contents(folder.path())
}

/// A save that does not wait for the disk.
fn unsynced(layout: WeightFiles) -> SaveOptions {
    SaveOptions::from(layout).sync(false)
}

fn counting(options: SaveOptions, seen: &Arc<Seen>) -> SaveOptions {
    let seen = Arc::clone(seen);
    options.progress(move |progress| {
        seen.written.fetch_max(progress.done, Ordering::SeqCst);
        ControlFlow::Continue(())
    })
}

#[test]
fn reads_are_as_long_as_a_source_prefers_and_within_the_bound() {
    // What a source prefers, the bound, the longest read, and whether several are made ahead.
    let cases = [
        (MIB / 2, 256 * MIB, MIB / 2, false),
        (MIB, 256 * MIB, MIB, false),
        (MIB, 0, MIB, false),
        (8 * MIB, 256 * MIB, 8 * MIB, true),
        (8 * MIB, 24 * MIB, 8 * MIB, true),
        (8 * MIB, 4 * MIB, 4 * MIB, true),
        (8 * MIB, 0, MIB, true),
        (64 * MIB, 256 * MIB, 20 * MIB, true),
        (u64::MAX >> 1, 21 * MIB, 20 * MIB, true),
    ];
    for layout in [WeightFiles::Packed, WeightFiles::PerTensor] {
        let expected = expected(layout);
        for (preferred, bound, longest, ahead) in cases {
            let seen = Seen::wanting(if ahead && bound == 256 * MIB { 4 } else { 1 });
            let container = of_slow(preferred as usize, &seen);
            let folder = tempfile::tempdir().unwrap();
            let options = unsynced(layout).max_bytes_in_flight(bound);
            container.save(folder.path().join("m.onnx"), counting(options, &seen)).unwrap();
            let case = format!("{preferred} {bound} {layout:?}");
            assert!(expected == contents(folder.path()), "{case}");

            let lengths = seen.lengths.lock().unwrap();
            assert_eq!(lengths.iter().max(), Some(&longest), "{case}");
            let [read, all] = [&lengths[..], &LENGTHS].map(|lengths| lengths.iter().sum::<u64>());
            assert_eq!(read, all, "{case}: each byte once");
            let parts = LENGTHS.iter().map(|len| len.div_ceil(longest)).sum::<u64>();
            let most_at_once = seen.most_at_once.load(Ordering::SeqCst);
            if ahead {
                assert_eq!(lengths.len() as u64, parts, "{case}");
                let most = seen.most_unwritten.load(Ordering::SeqCst);
                assert!(most <= bound.max(longest), "{case}: {most}");
            } else {
                assert!(most_at_once <= 4, "{case}: the threads that write");
            }
            assert!(seen.were_at_once(), "{case}: {most_at_once} reads at once");
        }
    }
}

#[test]
fn a_read_that_fails_ends_the_save_and_names_the_tensor() {
    for fails_at in [0, 9 * MIB, 20 * MIB - 1] {
        for bound in [0, 8 * MIB, 256 * MIB] {
            let seen = Arc::default();
            let weights = (0..).zip(LENGTHS).map(|(number, len)| {
                let fails_at = Some(fails_at).filter(|_| number == 1);
                Slow { fails_at, ..slow(number, len, 8 << 20, &seen) }
            });
            let weights = weights.map(|weight| Initializer::from_source(weight).unwrap());
            let folder = tempfile::tempdir().unwrap();
            let options = SaveOptions::new().max_bytes_in_flight(bound);
            let error = container(weights.collect())
                .save(folder.path().join("m.onnx"), options)
                .unwrap_err();
            assert_eq!((error.kind(), error.tensor()), (ErrorKind::Other, Some("w1")), "{error}");
            assert!(contents(folder.path()).is_empty());
        }
    }
}

#[test]
fn a_save_of_slow_sources_can_be_cancelled() {
    let seen = Arc::default();
    let folder = tempfile::tempdir().unwrap();
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_cancelled);
    let options = SaveOptions::new().max_bytes_in_flight(8 * MIB).progress(move |_| {
        told.store(true, Ordering::SeqCst);
        ControlFlow::Break(())
    });
    let error = of_slow(8 << 20, &seen).save(folder.path().join("m.onnx"), options).unwrap_err();
    assert!(error.kind() == ErrorKind::Cancelled && is_cancelled.load(Ordering::SeqCst));
    assert!(contents(folder.path()).is_empty());
}

/// A store may keep what it has read: the bytes are then in memory while a save goes on.
#[test]
fn a_source_whose_bytes_come_into_memory_meanwhile_is_saved() {
    let expected = expected(WeightFiles::Packed);
    for denied in 0..8 {
        let seen = Arc::default();
        let weights = (0..).zip(LENGTHS).map(|(number, len)| {
            let denied = AtomicUsize::new(denied);
            Slow { denied, ..slow(number, len, 8 << 20, &seen) }
        });
        let weights = weights.map(|weight| Initializer::from_source(weight).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let options = unsynced(WeightFiles::Packed).max_bytes_in_flight(8 * MIB);
        container(weights.collect()).save(folder.path().join("m.onnx"), options).unwrap();
        assert!(expected == contents(folder.path()), "{denied}");
    }
}

/// Lazy weights and slow sources share the bound, and each is written in its turn.
#[test]
fn lazy_weights_and_slow_sources_are_saved_together() {
    let expected = expected(WeightFiles::Packed);
    for bound in [0, MIB, 20 * MIB, 256 * MIB] {
        let seen = Arc::<Seen>::default();
        let weights = (0..).zip(LENGTHS).map(|(number, len)| {
            let weight = slow(number, len, 8 << 20, &seen);
            if number % 2 == 0 {
                return Initializer::from_source(weight).unwrap();
            }
            let dims = weight.dims.clone();
            Initializer::lazy(DataType::Uint8, dims, move || Ok(weight.bytes())).unwrap()
        });
        let folder = tempfile::tempdir().unwrap();
        let options = unsynced(WeightFiles::Packed).max_bytes_in_flight(bound);
        container(weights.collect())
            .save(folder.path().join("m.onnx"), counting(options, &seen))
            .unwrap();
        assert!(expected == contents(folder.path()), "{bound}");
    }
}

/// What converts a slow source reads it as it asks for, and is read ahead itself.
#[test]
fn a_cast_of_a_slow_source_makes_long_reads() {
    let count = 5 * MIB + 3;
    let of_type = |from, preferred, seen: &Arc<Seen>| Slow {
        dtype: from,
        dims: vec![count as i64],
        ..slow(1, 0, preferred, seen)
    };
    let (float, half) = (DataType::Float, DataType::Float16);
    let cases = [(float, half, 4), (half, float, 2)];
    for (from, to, width) in cases {
        let save = |weight: Initializer| {
            let mut container = container(vec![weight]);
            container.cast(to, CastOptions::new().from_dtype(from)).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let options = unsynced(WeightFiles::Packed);
            container.save(folder.path().join("m.onnx"), options).unwrap();
            contents(folder.path())
        };
        let seen = Seen::wanting(2);
        let source = of_type(from, 8 << 20, &seen);
        let eager =
            onnx_container::Tensor::new(from, [count as i64], source.bytes().into()).unwrap();
        let found = save(Initializer::from_source(source).unwrap());
        assert!(found == save(eager.into()), "{from} {to}");
        let lengths = seen.lengths.lock().unwrap();
        assert_eq!(lengths.len() as u64, (count * width).div_ceil(8 * MIB), "{from} {to}");
        assert!(seen.were_at_once(), "{from} {to}");
    }
}
