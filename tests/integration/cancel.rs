//! [`Cancel`]: every call that may take long ends early, and leaves what was there.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onnx_container::check::{CheckOptions, check_model};
use onnx_container::edit::{CastOptions, ConsolidateOptions, FillOptions, MatchOptions};
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::load::VerifyDigests;
use onnx_container::proto::{
    GraphProto, Message, ModelProto, NodeProto, OperatorSetIdProto, Packed, TensorProto,
    ValueInfoProto,
};
use onnx_container::save::Progress;
use onnx_container::{
    Buffer, Cancel, Container, DataType, ErrorKind, Initializer, LoadOptions, MmapChoice, Result,
    SaveOptions, Tensor, WeightFiles, WeightSource, safetensors,
};

use crate::support::{self, call, function, graph, node};

/// How many weights there are, and how long each is: half of the pieces that are read at a time.
const WEIGHTS: usize = 64;
const LEN: usize = 512 << 10;
/// The read in which the call is cancelled.
const AT: usize = 5;

/// Weights that count the reads of all, and cancel the call in one of them.
struct Counted {
    number: u8,
    dims: [i64; 1],
    lazy: bool,
    reads: Arc<AtomicUsize>,
    cancel: Cancel,
}

impl WeightSource for Counted {
    fn dtype(&self) -> DataType {
        DataType::Float
    }

    fn dims(&self) -> &[i64] {
        &self.dims
    }

    fn byte_len(&self) -> u64 {
        LEN as u64
    }

    fn is_lazy(&self) -> bool {
        self.lazy
    }

    fn read_at(&self, _: u64, out: &mut [u8]) -> Result<()> {
        if self.reads.fetch_add(1, Ordering::Relaxed) + 1 == AT {
            self.cancel.cancel();
        }
        out.fill(self.number);
        Ok(())
    }
}

/// A sum of weights that are behind handles.
fn model() -> ModelProto {
    let mut graph = GraphProto::new("g");
    graph.input.push(ValueInfoProto::tensor("x0", TensorProto::FLOAT, [1]));
    for number in 0..WEIGHTS {
        let (name, handle) = (format!("w{number}"), format!("#w{number}"));
        let dims = [(LEN / 4) as i64];
        graph.initializer.push(TensorProto::external(&name, TensorProto::FLOAT, dims, &handle));
        let (x, y) = (format!("x{number}"), format!("x{}", number + 1));
        graph.node.push(NodeProto::new("Add", [x, name], [y]));
    }
    graph.output.push(ValueInfoProto::tensor(
        format!("x{WEIGHTS}"),
        TensorProto::FLOAT,
        [(LEN / 4) as i64],
    ));
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    model
}

fn container(lazy: bool, cancel: &Cancel, reads: &Arc<AtomicUsize>) -> Container {
    let mut container = Container::new(model());
    for number in 0..WEIGHTS {
        let (dims, cancel, reads) = ([(LEN / 4) as i64], cancel.clone(), reads.clone());
        let source = Counted { number: number as u8, dims, lazy, reads, cancel };
        let weights = Initializer::from_source(source).unwrap();
        container.insert(&format!("#w{number}"), weights).unwrap();
    }
    container
}

/// The weights of `container` by the names of their handles, with `prefix` before them.
fn named(container: &Container, prefix: &str) -> Vec<(String, Initializer)> {
    let named = container.iter();
    named.map(|(handle, w)| (format!("{prefix}{}", handle.name()), w.clone())).collect()
}

fn unit<T>(result: Result<T>) -> Result<()> {
    result.map(drop)
}

#[test]
fn calls_that_read_weights_end_early() {
    type Work = fn(&mut Container, &Path) -> Result<()>;
    let calls: [(&str, Work); 13] = [
        ("digest", |c, _| unit(c.digest())),
        ("semantic_digest", |c, _| unit(c.semantic_digest())),
        ("semantic_difference", |c, _| unit(c.semantic_difference(&c.clone()))),
        ("embed", |c, _| unit(c.embed())),
        ("consolidate", |c, _| unit(c.consolidate(ConsolidateOptions::new()))),
        ("to_parts", |c, _| unit(c.to_parts(true))),
        ("match_weights", |c, _| unit(c.match_weights(named(c, ""), MatchOptions::new()))),
        ("fill that compares", |c, _| {
            // The same bytes twice for each tensor.
            let other = container(false, &Cancel::new(), &Arc::default());
            let given = [named(c, ""), named(&other, "#")].concat();
            unit(c.fill(given, FillOptions::new()))
        }),
        ("save", |c, path| unit(c.save(path, true))),
        ("save per tensor", |c, path| unit(c.save(path, WeightFiles::PerTensor))),
        ("save embedded", |c, path| unit(c.save(path, WeightFiles::Embedded))),
        ("save with digests", |c, path| unit(c.save(path, SaveOptions::new().digests(true)))),
        ("export", |c, path| {
            unit(c.export_safetensors(
                path.with_extension("safetensors"),
                safetensors::ExportOptions::new(),
            ))
        }),
    ];
    for (name, work) in calls {
        for lazy in [false, true] {
            let (cancel, reads) = (Cancel::new(), Arc::default());
            let mut container = container(lazy, &cancel, &reads);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let before = container.clone();
            let error = cancel.scope(|| work(&mut container, &path)).unwrap_err();
            assert!(error.has(ErrorKind::Cancelled), "{name}: {error}");
            let reads = reads.load(Ordering::Relaxed);
            assert!((AT..WEIGHTS).contains(&reads), "{name}: {reads} reads");
            assert_eq!(container.model(), before.model(), "{name}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
        }
    }
}

/// What reads files, and what computes: it ends before it has done anything.
#[test]
fn calls_on_files_and_graphs_end() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let model = at("m.onnx");
    let saved = container(false, &Cancel::new(), &Arc::default());
    saved.save(&model, SaveOptions::new().digests(true).checksums(true)).unwrap();
    saved.export_safetensors(at("w.safetensors"), safetensors::ExportOptions::new()).unwrap();
    let bytes = Buffer::from(fs::read(&model).unwrap());
    let bare = Container::load(&model, LoadOptions::new().weights(false)).unwrap();
    let embedded = Container::new(saved.embed().unwrap());
    let twice = || {
        let body = function("f", &["a"], &["b"], vec![node("Neg", &["a"], &["b"], vec![])]);
        let mut graph = GraphProto::new("g");
        graph.node.push(call("f", &["x"], &["y"], vec![]));
        let mut model = ModelProto::new(graph);
        model.functions.push(body);
        model.opset_import.push(OperatorSetIdProto::new("", 21));
        model
    };
    let never = MmapChoice::never;
    let verify = || LoadOptions::new().verify_digests(VerifyDigests::Always);
    let every = || CheckOptions::new().contents(true).digests(true);
    let calls: [(&str, &dyn Fn() -> Result<()>); 11] = [
        ("load", &|| unit(Container::load(&model, never()))),
        ("load, verified", &|| unit(Container::load(&model, verify()))),
        ("load_bytes", &|| {
            unit(Container::load_bytes(bytes.clone(), LoadOptions::new().model_path(&model)))
        }),
        ("attach", &|| bare.clone().attach(folder.path(), never())),
        ("attach_safetensors", &|| {
            unit(bare.clone().attach_safetensors_with(
                at("w.safetensors"),
                never(),
                FillOptions::new(),
            ))
        }),
        ("safetensors::load", &|| unit(safetensors::load(at("w.safetensors"), never()))),
        ("check_model", &|| unit(check_model(&model, CheckOptions::new()))),
        ("check_model, all", &|| unit(check_model(&model, every()))),
        ("cast", &|| unit(embedded.clone().cast(DataType::Float16, CastOptions::new()))),
        ("inline_functions", &|| unit(inline_functions(&mut twice(), InlineOptions::new()))),
        ("decode", &|| unit(Container::load(at("many.onnx"), never()))),
    ];
    let mut many = ModelProto::new(GraphProto::new("g"));
    let input = "x".repeat(300);
    let nodes = (0..10_000).map(|_| NodeProto::new("Neg", [input.as_str()], ["y"]));
    many.graph.as_mut().unwrap().node.extend(nodes);
    fs::write(at("many.onnx"), many.encode_to_vec().unwrap()).unwrap();
    for (name, work) in calls {
        work().unwrap_or_else(|error| panic!("{name}: {error}"));
        let cancel = Cancel::new();
        cancel.cancel();
        let error = cancel.scope(work).unwrap_err();
        assert!(error.has(ErrorKind::Cancelled), "{name}: {error}");
    }
}

/// What a token reports of `work`, and the result.
fn reported<T>(work: impl FnOnce() -> Result<T>) -> (Vec<Progress>, Result<T>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = told.clone();
    let cancel = Cancel::with_progress(move |progress| {
        list.lock().unwrap().push(progress);
        ControlFlow::Continue(())
    });
    let done = cancel.scope(work);
    (std::mem::take(&mut *told.lock().unwrap()), done)
}

#[test]
fn loads_digests_verifications_and_consolidations_report_how_far_they_are() {
    const LEN: u64 = 5 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let names =
        ["a", "b"].map(|name| TensorProto::external(name, 2, [LEN as i64], format!("#{name}")));
    let mut typed = TensorProto::new("t", 7, [300]);
    typed.int64_data = Packed::from(vec![1_i64 << 40; 300]).into();
    let mut container =
        Container::new(support::model(graph(names.into_iter().chain([typed]).collect(), vec![])));
    for name in ["#a", "#b"] {
        let byte = name.as_bytes()[1];
        container.insert(name, Initializer::from(tensor_of(byte, LEN))).unwrap();
    }
    container.save(&path, SaveOptions::new().digests(true)).unwrap();
    let files = LEN * 2 + std::fs::metadata(&path).unwrap().len();

    let never = MmapChoice::never();
    let verifying = || Container::load(&path, LoadOptions::from(never).verify_digests(true));
    let cases: [(&str, Vec<Progress>, u64); 4] = [
        ("load", reported(|| Container::load(&path, never)).0, files),
        ("verification", reported(verifying).0, files + 2 * LEN),
        ("digest", reported(|| container.digest()).0, 2 * LEN),
        (
            "consolidation",
            reported(|| container.clone().consolidate(ConsolidateOptions::new())).0,
            2 * LEN,
        ),
    ];
    for (name, told, least) in cases {
        assert!(told.len() > 1, "{name}: {told:?}");
        assert!(
            told.windows(2).all(|two| two[0].done < two[1].done && two[0].total <= two[1].total),
            "{name}"
        );
        let last = told.last().unwrap();
        assert_eq!(last.done, last.total, "{name}");
        assert!((least..least + 8192).contains(&last.total), "{name}: {last:?}, not {least}");
    }

    // A report that breaks ends the call, and is not called again. It may call this crate.
    let calls = Arc::new(AtomicUsize::new(0));
    let (counted, inner) = (calls.clone(), container.clone());
    let cancel = Cancel::with_progress(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        inner.digest().unwrap();
        ControlFlow::Break(())
    });
    let ended = cancel.scope(|| container.digest()).unwrap_err();
    assert_eq!((ended.kind(), calls.load(Ordering::Relaxed)), (ErrorKind::Cancelled, 1));
    assert!(cancel.is_cancelled());
}

fn tensor_of(byte: u8, len: u64) -> Tensor {
    let bytes = vec![byte; usize::try_from(len).unwrap()];
    Tensor::new(DataType::Uint8, [i64::try_from(len).unwrap()], Buffer::from(bytes)).unwrap()
}
