//! A save that inlines local functions: what is written, what stays, what is refused beforehand.

use std::path::Path;

use onnx_container::edit::ExternalizeOptions;
use onnx_container::external_data::ExternalData;
use onnx_container::inline::{InlineOptions, inline_functions};
use onnx_container::proto::{FunctionProto, ModelProto, NodeProto, TensorProto};
use onnx_container::{Container, ErrorKind, MmapChoice, SaveOptions, WeightFiles, traversal};

use crate::support::{
    LAYOUTS, assert_same, both_choices, constant, contents, floats, graph, model, node,
};

fn call(name: &str, input: &str, output: &str) -> NodeProto {
    let mut call = node(name, &[input], &[output], vec![]);
    call.domain = Some("local".into());
    call
}

/// Three calls of `add`, which has a tensor of its own, one of them by way of `outer`.
fn container() -> Container {
    let calls = vec![call("add", "x", "p"), call("add", "p", "q"), call("outer", "q", "y")];
    let mut model = model(graph(vec![floats("w", 0, 300)], calls));
    let bodies = [
        ("add", vec![constant("k", floats("", 9, 300)), node("Add", &["a", "k"], &["b"], vec![])]),
        ("outer", vec![call("add", "a", "b")]),
    ];
    for (name, body) in bodies {
        let mut function = FunctionProto::new("local", name);
        function.input.push("a".into());
        function.output.push("b".into());
        function.node = body;
        function.opset_import = model.opset_import.clone();
        model.functions.push(function);
    }
    let mut container = Container::new(model);
    container.externalize(ExternalizeOptions::new().all_tensors(true)).unwrap();
    container
}

fn functions(model: &ModelProto) -> Vec<String> {
    model.functions.iter().map(|f| f.name.as_ref().unwrap().to_string()).collect()
}

/// Where the external tensors of the model at `path` lie, the same place once.
fn places(path: &Path) -> (usize, Vec<(String, u64)>) {
    let (mut count, mut places) = (0, Vec::new());
    let loaded = Container::load(path, onnx_container::LoadOptions::new().weights(false)).unwrap();
    traversal::tensors(loaded.model(), |_, tensor| {
        if tensor.data_location == Some(TensorProto::EXTERNAL) {
            let data = ExternalData::parse(tensor)?;
            (count, places) =
                (count + 1, [places.clone(), vec![(data.location, data.offset)]].concat());
        }
        Ok(())
    })
    .unwrap();
    places.sort();
    places.dedup();
    (count, places)
}

#[test]
fn the_saved_model_has_no_functions_and_the_container_keeps_them() {
    let container = container();
    let before = container.model().clone();
    let mut inlined = container.clone();
    inline_functions(inlined.model_mut(), InlineOptions::new()).unwrap();
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let options = SaveOptions::from(layout).inline_functions(true);
        let plan = container.dry_run(&path, options.clone()).unwrap();
        let saved = container.save(&path, options.clone()).unwrap();
        assert_eq!(
            (plan.model().unwrap(), plan.bytes),
            (saved.model().unwrap(), saved.bytes),
            "{layout:?}"
        );
        let report = saved.inlined.unwrap();
        assert_eq!((report.calls, report.removed.len(), report.kept.len()), (4, 2, 0));
        assert!(*container.model() == before);

        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        assert!(loaded.model().functions.is_empty());
        assert_same(&loaded, &inlined);
        let parts = container.to_parts(options).unwrap();
        assert!(*parts.model == contents(folder.path())["model.onnx"], "{layout:?}");
    }
}

#[test]
fn copies_of_a_tensor_share_the_range_that_was_there() {
    for mmap in both_choices() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        container().save(&path, true).unwrap();
        let (before, there) = (places(&path), contents(folder.path()));
        assert_eq!((before.0, before.1.len()), (2, 2));
        // A file that was read right after it was written is never taken for the same.
        let layout =
            if mmap == MmapChoice::never() { WeightFiles::Packed } else { WeightFiles::AsLoaded };
        let loaded = Container::load(&path, mmap).unwrap();
        loaded.save(&path, SaveOptions::from(layout).inline_functions(true)).unwrap();
        assert_eq!(places(&path), (4, before.1), "{layout:?}");
        assert!(contents(folder.path())["m.onnx.data"] == there["m.onnx.data"], "{layout:?}");
    }
}

#[test]
fn a_selection_counts_and_its_faults_are_found_before_anything_is_written() {
    let container = container();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let with = |options: InlineOptions| SaveOptions::new().inline_with(options);
    let cases = [
        (with(InlineOptions::new().only(["local::none"])), ErrorKind::InvalidArgument),
        (with(InlineOptions::new().max_nodes(5)), ErrorKind::TooLarge),
        (SaveOptions::new().max_model_bytes(100), ErrorKind::ModelTooLarge),
    ];
    for (options, kind) in cases {
        assert_eq!(container.save(&path, options.clone()).unwrap_err().kind(), kind, "{options:?}");
        assert_eq!(container.dry_run(&path, options).unwrap_err().kind(), kind);
        assert!(contents(folder.path()).is_empty());
    }
    let only = with(InlineOptions::new().only(["local::outer"]));
    let saved = container.save(&path, only.clone()).unwrap();
    assert_eq!(
        (saved.inlined.as_ref().unwrap().calls, functions(&saved.model().unwrap())),
        (1, vec!["add".to_owned()])
    );
    let len = saved.files.last().unwrap().bytes;
    container.save(&path, only.clone().max_model_bytes(len)).unwrap();
    let error = container.save(&path, only.max_model_bytes(len - 1)).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::ModelTooLarge, Some(path.as_path())));
}
