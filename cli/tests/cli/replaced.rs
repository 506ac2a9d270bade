//! A model that is saved again and again while commands read it: what they see is one save's.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use onnx_container::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto,
};
use onnx_container::{Container, DataType, MmapChoice, SaveOptions};

use crate::support::Folder;

/// `y = w + c`, which is zero: `w`, in a file, is `number`, and `c`, in the model, its negative.
fn zero(folder: &Folder, number: f32) -> Container {
    let tensor = |name: &str, number: f32, count: usize| {
        let dims = [i64::try_from(count).unwrap()];
        let bytes = number.to_le_bytes().repeat(count);
        TensorProto::new(name, TensorProto::FLOAT, dims).with_raw_data(bytes)
    };
    let mut graph = GraphProto::new("g");
    graph.initializer.extend([tensor("w", number, 64), tensor("c", -number, 1)]);
    graph.node.push(NodeProto::new("Add", ["w", "c"], ["y"]));
    graph.output.push(ValueInfoProto::tensor("y", DataType::Float, [64]));
    let mut model = ModelProto::new(graph);
    model.ir_version = Some(10);
    model.opset_import = vec![OperatorSetIdProto::new("", 21)];
    folder.save("inline.onnx", &model);
    folder.run(&["pack", "inline.onnx", "p.onnx", "--min-bytes", "64"]).done();
    Container::load(folder.path("p.onnx"), MmapChoice::never()).unwrap()
}

/// Ends the saves also when an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_command_never_pairs_one_models_graph_with_anothers_weights() {
    let folder = Folder::new();
    let models = [3.0, 5.0].map(|number| zero(&folder, number));
    let save = |model: &Container| {
        model.save(folder.path("m.onnx"), SaveOptions::new().sync(false)).unwrap();
    };
    save(&models[0]);
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stopped);
        scope.spawn(|| {
            while !stopped.load(Ordering::Relaxed) {
                models.iter().for_each(save);
            }
        });
        for _ in 0..40 {
            folder.run(&["extract", "m.onnx", "w", "c", "-o", "out/"]).done();
            let last = |name: &str| {
                let bytes = fs::read(folder.path(name)).unwrap();
                f32::from_le_bytes(*bytes.last_chunk().unwrap())
            };
            assert_eq!(last("out/w.npy"), -last("out/c.npy"));
            #[cfg(feature = "machine")]
            {
                let json = folder.run(&["run", "m.onnx", "--json"]).done().json();
                let output = &json["outputs"][0];
                assert_eq!([&output["min"], &output["max"]], [0.0, 0.0]);
            }
        }
    });
}
