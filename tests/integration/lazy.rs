//! Lazy weights: made once, ahead of the writer, within a bound, and dropped when they are written.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onnx_container::proto::TensorProto;
use onnx_container::{
    Buffer, Container, DataType, Error, ErrorKind, Initializer, Result, SaveOptions, WeightFiles,
};

use crate::support::{contents, graph, model};

const LAYOUTS: &[WeightFiles] = &[
    WeightFiles::Packed,
    WeightFiles::PerTensor,
    WeightFiles::Sharded { max_bytes: 1000 },
    #[cfg(feature = "safetensors")]
    WeightFiles::Safetensors,
];

/// How many bytes of the elements that were made are alive, and the most that ever were.
#[derive(Default)]
struct Alive {
    now: AtomicU64,
    most: AtomicU64,
    made: AtomicUsize,
    /// The first byte of each, in the order in which they were asked for.
    order: Mutex<Vec<u8>>,
}

/// Elements that count while they are alive.
struct Counted(Vec<u8>, Arc<Alive>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.now.fetch_sub(self.0.len() as u64, Ordering::SeqCst);
    }
}

impl Alive {
    fn make(self: &Arc<Self>, len: usize, byte: u8) -> Buffer {
        self.order.lock().unwrap().push(byte);
        let now = self.now.fetch_add(len as u64, Ordering::SeqCst) + len as u64;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.made.fetch_add(1, Ordering::SeqCst);
        Buffer::from_owner(Counted(vec![byte; len], self.clone()))
    }
}

fn lazy(alive: &Arc<Alive>, len: usize, byte: u8) -> Initializer {
    let alive = alive.clone();
    Initializer::lazy(DataType::Uint8, [len as i64], move || Ok(alive.make(len, byte))).unwrap()
}

fn container(weights: Vec<Initializer>) -> Container {
    let place = |(i, weight): (usize, &Initializer)| {
        TensorProto::external(format!("w{i}"), TensorProto::UINT8, weight.dims(), format!("#w{i}"))
    };
    let places = weights.iter().enumerate().map(place).collect();
    let mut container = Container::new(model(graph(places, vec![])));
    for (i, weight) in weights.into_iter().enumerate() {
        container.insert(&format!("#w{i}"), weight).unwrap();
    }
    container
}

#[test]
fn a_lazy_save_is_byte_for_byte_the_eager_one() {
    let lengths = [5_000_000, 1, 70_000, 0, 300, 34_000_000, 65_536, 12];
    let alive = Arc::new(Alive::default());
    let lazy = lengths.iter().zip(1_u8..).map(|(len, byte)| lazy(&alive, *len, byte));
    let eager = lengths
        .iter()
        .zip(1_u8..)
        .map(|(len, byte)| ndarray::Array1::from(vec![byte; *len]).into());
    let (lazy, eager) = (container(lazy.collect()), container(eager.collect()));
    for layout in LAYOUTS.iter().chain([&WeightFiles::Embedded]) {
        for max in [0, 1 << 20, u64::MAX] {
            let save = |container: &Container| {
                let folder = tempfile::tempdir().unwrap();
                let options = SaveOptions::from(*layout).max_bytes_in_flight(max).sync(false);
                container.save(folder.path().join("m.onnx"), options).unwrap();
                contents(folder.path())
            };
            assert!(save(&lazy) == save(&eager), "{layout:?} {max}");
        }
    }
    assert_eq!(alive.now.load(Ordering::SeqCst), 0);
}

#[test]
fn what_is_in_flight_is_bounded_and_freed_when_it_is_written() {
    const LEN: usize = 1 << 20;
    for layout in LAYOUTS {
        // The bound in weights, and the most that may be alive: one that is longer goes alone.
        for (bound, most) in [(0, 1), (1, 1), (4, 4), (64, 16)] {
            let alive = Arc::new(Alive::default());
            let container = container((0..16).map(|byte| lazy(&alive, LEN, byte)).collect());
            let max = bound * LEN as u64;
            let options = SaveOptions::from(*layout).max_bytes_in_flight(max).sync(false);
            let folder = tempfile::tempdir().unwrap();
            container.save(folder.path().join("m.onnx"), options).unwrap();
            let seen = alive.most.load(Ordering::SeqCst);
            assert!(seen <= most * LEN as u64, "{layout:?} {bound}: {seen}");
            assert_eq!(alive.now.load(Ordering::SeqCst), 0, "{layout:?} {bound}");
            assert_eq!(alive.made.load(Ordering::SeqCst), 16, "{layout:?} {bound}");
        }
    }
}

#[test]
fn weights_are_made_in_the_order_in_which_they_are_written() {
    for layout in LAYOUTS {
        let alive = Arc::new(Alive::default());
        let container = container((0..16).map(|byte| lazy(&alive, 1 << 16, byte)).collect());
        let options = SaveOptions::from(*layout).max_bytes_in_flight(1).sync(false);
        let folder = tempfile::tempdir().unwrap();
        container.save(folder.path().join("m.onnx"), options).unwrap();
        assert_eq!(*alive.order.lock().unwrap(), (0..16).collect::<Vec<_>>(), "{layout:?}");
    }
}

#[test]
fn several_are_made_at_the_same_time() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    for layout in LAYOUTS {
        // Each waits until another one is being made too, which one thread alone would never do.
        let (now, met) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let weight = |_| {
            let (now, met) = (now.clone(), met.clone());
            let make = move || {
                now.fetch_add(1, Ordering::SeqCst);
                for _ in 0..2000 {
                    if now.load(Ordering::SeqCst) > 1 || met.load(Ordering::SeqCst) > 0 {
                        met.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(vec![7_u8; 1000])
            };
            Initializer::lazy(DataType::Uint8, [1000], make).unwrap()
        };
        let container = container((0..4).map(weight).collect());
        let folder = tempfile::tempdir().unwrap();
        let options = SaveOptions::from(*layout).sync(false);
        container.save(folder.path().join("m.onnx"), options).unwrap();
        assert!(met.load(Ordering::SeqCst) > 0, "{layout:?}");
    }
}

#[test]
fn a_tied_weight_is_made_once() {
    for layout in LAYOUTS {
        let alive = Arc::new(Alive::default());
        let tied = lazy(&alive, 70_000, 7);
        let mut container = container(vec![tied.clone(), lazy(&alive, 12, 1), tied]);
        let graph = container.model_mut().graph.as_mut().unwrap();
        graph.initializer.push(TensorProto::external("again", TensorProto::UINT8, [70_000], "#w0"));
        let folder = tempfile::tempdir().unwrap();
        let options = SaveOptions::from(*layout).max_bytes_in_flight(1).sync(false);
        container.save(folder.path().join("m.onnx"), options).unwrap();
        assert_eq!(alive.made.load(Ordering::SeqCst), 2, "{layout:?}");
        assert_eq!(alive.now.load(Ordering::SeqCst), 0, "{layout:?}");
    }
}

#[cfg(feature = "safetensors")]
#[test]
fn an_export_makes_a_weight_once_for_all_its_shapes() {
    use onnx_container::safetensors::ExportOptions;
    let alive = Arc::new(Alive::default());
    let weights = [lazy(&alive, 6000, 7), lazy(&alive, 5000, 1), lazy(&alive, 5000, 2)];
    let mut container = container(weights.into());
    let graph = container.model_mut().graph.as_mut().unwrap();
    graph.initializer.push(TensorProto::external("wide", TensorProto::UINT8, [60, 100], "#w0"));
    let folder = tempfile::tempdir().unwrap();
    let save = SaveOptions::new().max_bytes_in_flight(1).sync(false);
    let options = ExportOptions::from(save).max_shard_bytes(6000);
    container.export_safetensors(folder.path().join("m.safetensors"), options).unwrap();
    assert_eq!(alive.made.load(Ordering::SeqCst), 3);
    assert_eq!(alive.now.load(Ordering::SeqCst), 0);
}

/// What a closure does.
type Make = fn() -> Result<Vec<u8>>;

#[test]
fn a_closure_that_does_not_give_its_elements_names_the_tensor() {
    let cases: [(Make, ErrorKind, &str); 4] = [
        (|| Err(Error::other("no such key")), ErrorKind::Other, "no such key"),
        (|| panic!("at the disco"), ErrorKind::Other, "at the disco"),
        (|| Ok(vec![0; 99_999]), ErrorKind::Shape, "99999 bytes"),
        (|| Ok(vec![0; 100_001]), ErrorKind::Shape, "100001 bytes"),
    ];
    for layout in LAYOUTS.iter().chain([&WeightFiles::Embedded]) {
        for (make, kind, text) in cases {
            let alive = Arc::new(Alive::default());
            let mut weights: Vec<_> = (0..8).map(|byte| lazy(&alive, 100_000, byte)).collect();
            weights[5] = Initializer::lazy(DataType::Uint8, [100_000], make).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let options = SaveOptions::from(*layout).max_bytes_in_flight(200_000).sync(false);
            let error = container(weights).save(folder.path().join("m.onnx"), options).unwrap_err();
            assert_eq!(error.kind(), kind, "{layout:?} {error}");
            assert!(error.tensor().unwrap().ends_with("w5"), "{layout:?} {error}");
            assert!(error.reason().contains(text), "{layout:?} {error}");
            assert!(contents(folder.path()).is_empty(), "{layout:?}");
            assert_eq!(alive.now.load(Ordering::SeqCst), 0, "{layout:?}");
        }
    }
}

#[test]
fn a_save_that_is_cancelled_makes_no_more() {
    for layout in LAYOUTS {
        let alive = Arc::new(Alive::default());
        let container = container((0..100).map(|byte| lazy(&alive, 100_000, byte)).collect());
        let options = SaveOptions::from(*layout).max_bytes_in_flight(200_000);
        let options = options.progress(|_| ControlFlow::Break(()));
        let folder = tempfile::tempdir().unwrap();
        let error = container.save(folder.path().join("m.onnx"), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{layout:?}");
        assert!(alive.made.load(Ordering::SeqCst) < 20, "{layout:?}");
        assert_eq!(alive.now.load(Ordering::SeqCst), 0, "{layout:?}");
    }
}

/// Saves lazy weights whose threads wait for each other, with a callback of the progress in bytes,
/// and returns what became of it, within a time in which only a save that waits forever does not
/// end.
fn save_of_waiting_threads(
    layout: WeightFiles,
    progress: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static,
) -> std::thread::Result<Error> {
    let alive = Arc::new(Alive::default());
    let container = container((0..12).map(|byte| lazy(&alive, 1 << 20, byte)).collect());
    let options = SaveOptions::from(layout).sync(false).max_bytes_in_flight(1);
    let options = options.progress(move |now| progress(now.done));
    let (done, ended) = std::sync::mpsc::channel();
    let save = AssertUnwindSafe(move || {
        let folder = tempfile::tempdir().unwrap();
        container.save(folder.path().join("m.onnx"), options).unwrap_err()
    });
    std::thread::spawn(move || done.send(catch_unwind(save)));
    ended.recv_timeout(Duration::from_secs(100)).expect("the save ends")
}

#[test]
fn a_save_that_is_cancelled_at_any_point_ends() {
    for (layout, after) in LAYOUTS.iter().flat_map(|layout| (1..9).map(move |n| (*layout, n))) {
        let ended = save_of_waiting_threads(layout, move |done| match done >= after << 20 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        assert_eq!(ended.unwrap().kind(), ErrorKind::Cancelled, "{layout:?} {after}");
        let panics = save_of_waiting_threads(layout, move |done| {
            assert!(done < after << 20, "the caller panics");
            ControlFlow::Continue(())
        });
        assert!(panics.is_err(), "{layout:?} {after}");
    }
}

#[test]
fn a_check_and_a_dry_run_make_nothing() {
    let alive = Arc::new(Alive::default());
    let container = container(vec![lazy(&alive, 100, 1)]);
    let folder = tempfile::tempdir().unwrap();
    container.check().unwrap();
    for layout in LAYOUTS {
        container.dry_run(folder.path().join("m.onnx"), *layout).unwrap();
    }
    assert_eq!(alive.made.load(Ordering::SeqCst), 0);
    assert!(Initializer::lazy(DataType::String, [1], || Ok(vec![])).is_err());
    assert!(Initializer::lazy(DataType::Uint8, [-1], || Ok(vec![])).is_err());
}
