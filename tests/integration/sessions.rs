//! What onnxruntime takes from memory, and tensors without elements in every layout.

use std::fs;
use std::path::Path;

use ndarray::Array1;
use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, SparseTensorProto, TensorProto, ValueInfoProto,
};
use onnx_container::save::ShardNames;
use onnx_container::traversal::{self, Site};
use onnx_container::{Container, MmapChoice, SaveOptions, WeightFiles};

use crate::drivers::run_driver_with;
use crate::support::{constant, floats, function, graph, int64s, model_of, node};

const LAYOUTS: &[WeightFiles] = &[
    WeightFiles::Packed,
    WeightFiles::PerTensor,
    WeightFiles::Sharded { max_bytes: 1000 },
    #[cfg(feature = "safetensors")]
    WeightFiles::Safetensors,
];

fn value(name: &str, dtype: i32, dims: &[i64]) -> ValueInfoProto {
    ValueInfoProto::tensor(name, dtype, dims.iter().copied())
}

/// A branch of an If: the sum of an initializer and of a Constant.
fn branch(name: &str, start: usize) -> GraphProto {
    let (w, k, out) = (format!("{name}_w"), format!("{name}_k"), format!("{name}_out"));
    let nodes = vec![
        constant(&k, floats("value", start + 1, 600)),
        node("Add", &[&w, &k], &[&out], vec![]),
    ];
    let mut branch = graph(vec![floats(&w, start, 600)], nodes);
    branch.name = Some(name.into());
    branch.output = vec![value(&out, TensorProto::FLOAT, &[600])];
    branch
}

/// A model with weights wherever a graph can have some, all of them out of the model: `x` of 600
/// numbers and the choice `c` go in, the sum of everything comes out.
fn everywhere() -> Container {
    let indices = int64s("", &(0..600).collect::<Vec<_>>());
    let sparse = SparseTensorProto::new(floats("sparse", 5, 600), indices, [600]);
    let branches = vec![
        AttributeProto::graph("then_branch", branch("t", 10)),
        AttributeProto::graph("else_branch", branch("e", 20)),
    ];
    let filled = AttributeProto::tensor("value", floats("one", 3, 1));
    let nodes = vec![
        constant("k", floats("value", 7, 600)),
        node("If", &["c"], &["chosen"], branches),
        node("ConstantOfShape", &["shape"], &["filled"], vec![filled]),
        node("Concat", &["w", "e"], &["longer"], vec![AttributeProto::int("axis", 0)]),
        {
            let mut call = node("add", &["x"], &["called"], vec![]);
            call.domain = Some("local".into());
            call
        },
        node("Sum", &["longer", "k", "chosen", "filled", "called", "sparse"], &["y"], vec![]),
    ];
    let mut main = graph(vec![floats("w", 1, 600), int64s("shape", &[600])], nodes);
    main.initializer.push(TensorProto::external("e", TensorProto::FLOAT, [0], "#e"));
    main.sparse_initializer.push(sparse);
    main.input = vec![value("x", TensorProto::FLOAT, &[600]), value("c", TensorProto::BOOL, &[])];
    main.output = vec![value("y", TensorProto::FLOAT, &[600])];
    let body =
        vec![constant("b", floats("value", 9, 600)), node("Add", &["a", "b"], &["sum"], vec![])];
    let model = model_of(main, vec![function("add", &["a"], &["sum"], body)]);
    let mut container = Container::new(model);
    container.insert("#e", Array1::<f32>::zeros(0)).unwrap();
    container.externalize(ExternalizeOptions::from(4)).unwrap();
    container
}

/// The names of external tensors, and whether onnxruntime takes them from memory.
fn external(model: &ModelProto) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    traversal::tensors(model, |place, tensor| {
        if tensor.data_location == Some(TensorProto::EXTERNAL) {
            let main = place.scope.is_main();
            let taken = main && (place.site == Site::Initializer || place.is_constant());
            found.push((place.qualified_name(tensor), taken));
        }
        Ok(())
    })
    .unwrap();
    found
}

#[test]
fn parts_have_nothing_external_that_onnxruntime_looks_for_in_files() {
    let container = everywhere();
    let all = external(container.model());
    assert!(all.iter().filter(|(_, taken)| !taken).count() >= 6, "{all:?}");
    for layout in LAYOUTS {
        let parts = container.to_parts(*layout).unwrap();
        let found = external(&ModelProto::decode(&parts.model).unwrap());
        let expected: Vec<_> = all.iter().filter(|(_, taken)| *taken).cloned().collect();
        assert_eq!(found, expected, "{layout:?}");
        let whole = Container::load_bytes(
            parts.model,
            parts
                .files
                .into_iter()
                .fold(onnx_container::LoadOptions::new(), |options, (name, bytes)| {
                    options.file(name, bytes)
                }),
        );
        assert_eq!(whole.unwrap().embed().unwrap(), container.embed().unwrap(), "{layout:?}");
    }
    assert!(container.to_parts(WeightFiles::Embedded).unwrap().files.is_empty());
}

#[test]
#[ignore = "needs Python readers; scripts/test.sh runs it"]
fn sessions_from_memory_and_from_files_compute_the_same() {
    let root = tempfile::tempdir().unwrap();
    let container = everywhere();
    let embedded = container.embed().unwrap().encode_to_vec().unwrap();
    fs::write(root.path().join("embedded.onnx"), embedded).unwrap();
    let plain = LAYOUTS.iter().map(|layout| (format!("{layout:?}"), SaveOptions::from(*layout)));
    // What a session in a browser is made from.
    let browser = SaveOptions::from(WeightFiles::Sharded { max_bytes: 3000 });
    let browser = browser.shard_names(ShardNames::TransformersJs).dedup(true);
    for (name, options) in plain.chain([("browser".to_owned(), browser)]) {
        let folder = |what: &str| root.path().join(format!("{what}-{name}"));
        let parts = container.to_parts(options.clone()).unwrap();
        write_parts(&folder("parts"), &parts.model, &parts.files);
        let saved = folder("saved");
        fs::create_dir(&saved).unwrap();
        container.save(saved.join("model.onnx"), options).unwrap();
        // What stays where it lies has no elements at offset 0 either.
        let loaded = Container::load(saved.join("model.onnx"), MmapChoice::never()).unwrap();
        loaded.save(saved.join("model.onnx"), WeightFiles::AsLoaded).unwrap();
    }
    run_driver_with("sessions.py", &[root.path().to_str().unwrap()]);
}

fn write_parts(folder: &Path, model: &[u8], files: &[(String, onnx_container::Buffer)]) {
    fs::create_dir(folder).unwrap();
    fs::write(folder.join("model.onnx"), model).unwrap();
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).unwrap();
    }
}
