//! `Saved::statistics`: what became of the bytes of tensors, and which steps took time.

use std::time::{Duration, Instant};

use onnx_container::proto::TensorProto;
use onnx_container::save::Statistics;
use onnx_container::{Buffer, Container, DataType, Initializer, SaveOptions, Tensor, WeightFiles};

use crate::support::{LAYOUTS, both_choices, floats, graph, model};

/// Of 2048 bytes `a`, of which `tied` has all and `part` 512; `b` of 300 bytes; `none` without
/// elements; `inline` of 400 bytes in the model.
fn container() -> Container {
    let place = |name: &str, len: i64| {
        TensorProto::external(name, TensorProto::UINT8, [len], format!("#{name}"))
    };
    let names = [("a", 2048), ("tied", 2048), ("part", 512), ("b", 300), ("none", 0)];
    let mut tensors: Vec<_> = names.iter().map(|(name, len)| place(name, *len)).collect();
    tensors.push(floats("inline", 0, 100));
    let mut container = Container::new(model(graph(tensors, vec![])));
    let bytes = Buffer::from((0..2048).map(|i| (i / 8) as u8).collect::<Vec<_>>());
    let parts = [bytes.clone(), bytes.clone(), bytes.slice(512..1024).unwrap()];
    let others = [vec![7; 300].into(), Vec::new().into()];
    for ((name, len), bytes) in names.iter().zip(parts.into_iter().chain(others)) {
        let tensor = Tensor::new(DataType::Uint8, [*len], bytes).unwrap();
        container.insert(&format!("#{name}"), tensor).unwrap();
    }
    container
}

fn bytes(done: &Statistics) -> [u64; 3] {
    [done.copied_bytes, done.shared_bytes, done.kept_bytes]
}

#[test]
fn bytes_of_tensors_are_copied_shared_or_kept() {
    const SHARED: u64 = 2048 + 512;
    const DISTINCT: u64 = 2048 + 300;
    let original = container();
    let safetensors: &[WeightFiles] = &[
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors,
    ];
    for layout in LAYOUTS.iter().chain(safetensors) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        // A tensor that is inline has bytes of its own.
        let expected = match layout {
            WeightFiles::Embedded => [SHARED + DISTINCT, 0, 0],
            _ => [DISTINCT, SHARED, 0],
        };
        let options = || SaveOptions::from(*layout).sync(false);
        let plan = original.dry_run(&path, options()).unwrap();
        assert_eq!(bytes(&plan.statistics), expected, "{layout:?}");
        let saved = original.save(&path, options()).unwrap();
        assert_eq!(bytes(&saved.statistics), expected, "{layout:?}");
        let moved = original.dry_run(&path, options().externalize(true)).unwrap();
        // In the model all is as it was written.
        let moves = match layout {
            WeightFiles::Embedded => [0, 0, expected[0] + 400],
            _ => [expected[0] + 400, expected[1], 0],
        };
        assert_eq!(bytes(&moved.statistics), moves, "{layout:?}");
        for choice in both_choices() {
            let loaded = Container::load(&path, choice).unwrap();
            let kept = loaded.dry_run(&path, WeightFiles::AsLoaded).unwrap();
            // What is inline in the model that was loaded is no concern of the save.
            let expected = match layout {
                WeightFiles::Embedded => [0, 0, 0],
                _ => [0, SHARED, DISTINCT],
            };
            assert_eq!(bytes(&kept.statistics), expected, "{layout:?}");
        }
    }
}

#[test]
fn equal_weights_are_shared_where_that_is_asked_for() {
    let mut container = container();
    let graph = container.model_mut().graph.as_mut().unwrap();
    graph.initializer.push(TensorProto::external("c", TensorProto::UINT8, [300], "#c"));
    container.insert("#c", ndarray::Array1::from(vec![7_u8; 300])).unwrap();
    for (dedup, expected) in [(false, [2648, 2560, 0]), (true, [2348, 2860, 0])] {
        let saved = container.dry_run("m.onnx", SaveOptions::new().dedup(dedup)).unwrap();
        assert_eq!(bytes(&saved.statistics), expected);
    }
}

#[test]
fn a_step_that_is_not_done_takes_no_time_and_all_steps_take_no_more_than_the_save() {
    let is = |time: Duration| !time.is_zero();
    for layout in LAYOUTS {
        for sync in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("m.onnx");
            let options = SaveOptions::from(layout).sync(sync);
            let done = container().dry_run(&path, options.clone()).unwrap().statistics;
            let Statistics { planning, producing, writing, flushing, publishing, .. } = done;
            let took = [planning, producing, writing, flushing, publishing].map(is);
            assert_eq!(took, [true, false, false, false, false]);
            let start = Instant::now();
            let done = container().save(&path, options).unwrap().statistics;
            let whole = start.elapsed();
            let Statistics { planning, producing, writing, flushing, publishing, .. } = done;
            let took = [planning, producing, writing, flushing, publishing];
            assert_eq!(took.map(is), [true, false, true, sync, true], "{layout:?} {sync}");
            assert!(took.iter().sum::<Duration>() <= whole, "{took:?} {whole:?}");
        }
    }
}

#[test]
fn the_production_of_lazy_weights_is_told() {
    let place = TensorProto::external("w", TensorProto::UINT8, [9], "#w");
    let mut container = Container::new(model(graph(vec![place], vec![])));
    let lazy = Initializer::lazy(DataType::Uint8, [9], || Ok(vec![1_u8; 9])).unwrap();
    container.insert("#w", lazy).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let done = container.save(folder.path().join("m.onnx"), true).unwrap().statistics;
    assert!(!done.producing.is_zero());
    assert_eq!(bytes(&done), [9, 0, 0]);
}
