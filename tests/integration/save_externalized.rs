//! A save that moves inline tensors out writes what `externalize` and a save write, from the same
//! graph.

use onnx_container::edit::ExternalizeOptions;
use onnx_container::proto::{ModelProto, TensorProto};
use onnx_container::{Alignment, Container, SaveOptions, WeightFiles};

use crate::support::{
    EVERYWHERE, call, constant, contents, floats, function, graph, int64s, model, model_of, node,
    tensors_everywhere,
};

/// Elements in a typed field, with fields before and after them in the order of the message.
fn typed(name: &str) -> TensorProto {
    let mut tensor = TensorProto::new(name, TensorProto::FLOAT, [40]);
    *tensor.float_data = vec![1.5; 40].into();
    tensor.doc_string = Some(Box::new("a description".into()));
    tensor
}

/// A model with a function that has a tensor, called twice.
fn with_functions() -> ModelProto {
    let body = vec![constant("k", floats("", 9, 50)), node("Add", &["a", "k"], &["b"], vec![])];
    let calls = vec![call("add", &["x"], &["p"], vec![]), call("add", &["p"], &["y"], vec![])];
    let main = graph(vec![floats("w", 0, 60), floats("k", 5, 60)], calls);
    model_of(main, vec![function("add", &["a"], &["b"], body)])
}

/// Models whose tensors are inline, and one in which some are behind handles.
fn containers() -> Vec<Container> {
    let shape = node("Reshape", &["a", "shape"], &["y"], vec![]);
    let operand = vec![floats("a", 0, 100), int64s("shape", &[5, 20])];
    let same = vec![floats("w", 0, 100), floats("w", 3, 100), typed("typed")];
    let models = vec![
        tensors_everywhere(),
        model(graph(operand, vec![shape])),
        model(graph(same, vec![constant("w", floats("", 1, 99))])),
        with_functions(),
        model(graph(vec![], vec![])),
    ];
    let mut containers: Vec<_> = models.into_iter().map(Container::new).collect();
    let mut mixed = Container::new(tensors_everywhere());
    mixed.externalize(ExternalizeOptions::from(32).all_tensors(true)).unwrap();
    mixed.model_mut().graph.as_mut().unwrap().initializer.push(floats("w", 7, 70));
    mixed.insert("#unused", ndarray::array![1_u8]).unwrap();
    containers.push(mixed);
    containers
}

/// Every layout, threshold and further change that a save can be asked for.
fn options() -> Vec<SaveOptions> {
    let layouts = [
        WeightFiles::Packed,
        WeightFiles::PerTensor,
        WeightFiles::Sharded { max_bytes: 1000 },
        #[cfg(feature = "safetensors")]
        WeightFiles::Safetensors,
        WeightFiles::Embedded,
        WeightFiles::AsLoaded,
    ];
    let of = |layout: WeightFiles| {
        let options = SaveOptions::from(layout).sync(false);
        [
            options.clone(),
            options.clone().raw_data_threshold(1).alignment(Alignment::CACHE_LINE),
            options.clone().raw_data_threshold(1 << 20),
            options.clone().raw_data_threshold(1).dedup(true),
            options.raw_data_threshold(1).inline_functions(true),
        ]
    };
    layouts.into_iter().flat_map(of).collect()
}

#[test]
fn a_save_that_externalizes_writes_what_externalize_and_a_save_write() {
    let mut moved = 0;
    for (case, container) in containers().into_iter().enumerate() {
        for options in options() {
            let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let [path, other] = folders.each_ref().map(|folder| folder.path().join("m.onnx"));
            let mut first = container.clone();
            let threshold = onnx_container::buffer::TensorBufferOptions::from(options.clone());
            moved += first.externalize(threshold).unwrap().moved;
            let expected = first.save(&path, options.clone()).unwrap();
            let externalizing = options.clone().externalize(true);
            let planned = container.dry_run(&other, externalizing.clone()).unwrap();
            let saved = container.save(&other, externalizing.clone()).unwrap();

            let at = format!("{case}: {options:?}");
            assert_eq!(contents(folders[1].path()), contents(folders[0].path()), "{at}");
            assert_eq!((&planned.files, &saved.files), (&expected.files, &expected.files), "{at}");
            assert_eq!(saved.model().unwrap(), expected.model().unwrap(), "{at}");
            assert_eq!(saved.unused, expected.unused, "{at}");
            let inlined = [&saved, &expected].map(|saved| format!("{:?}", saved.inlined));
            assert_eq!(inlined[0], inlined[1], "{at}");
            let texts = |errors: &[onnx_container::Error]| {
                errors.iter().map(ToString::to_string).collect::<Vec<_>>()
            };
            assert_eq!(texts(&saved.warnings), texts(&expected.warnings), "{at}");
            let parts = [first.to_parts(options), container.to_parts(externalizing)];
            match parts {
                [Ok(expected), Ok(parts)] => {
                    assert_eq!(
                        (parts.model, parts.files),
                        (expected.model, expected.files),
                        "{at}"
                    );
                }
                [expected, parts] => {
                    assert_eq!(parts.unwrap_err().to_string(), expected.unwrap_err().to_string());
                }
            }
        }
    }
    assert!(moved > 10 * EVERYWHERE.len(), "{moved}");
}

#[test]
fn a_save_that_externalizes_copies_neither_graph_nor_weights() {
    let container = Container::new(model(graph(vec![floats("w", 0, 100)], vec![])));
    let options = SaveOptions::from(WeightFiles::PerTensor).externalize(true);
    let plan = container.dry_run("m.onnx", options.clone()).unwrap();
    assert!(std::ptr::eq(plan.structure(), container.model()));
    let parts = container.to_parts(options).unwrap();
    let inline = container.model().graph.as_ref().unwrap().initializer[0].raw_data.clone();
    assert!(parts.files[0].1.same_owner(&inline.unwrap()));
}

#[test]
fn tensors_of_attributes_stay_where_that_is_asked_for() {
    let mut container = Container::new(tensors_everywhere());
    let options = ExternalizeOptions::from(1).all_tensors(true).attributes(false);
    assert!(container.externalize(options).unwrap().moved > 0);
    for (place, tensor) in onnx_container::traversal::iter(container.model()) {
        let is_external = onnx_container::external_data::is_external(tensor);
        assert_eq!(is_external, !place.site.is_attribute(), "{}", place.qualified_name(tensor));
    }
}

#[test]
fn sparse_tensors_stay_where_that_is_asked_for() {
    let mut container = Container::new(tensors_everywhere());
    let options = ExternalizeOptions::from(1).all_tensors(true).sparse(false);
    assert!(container.externalize(options).unwrap().moved > 0);
    for (place, tensor) in onnx_container::traversal::iter(container.model()) {
        let is_external = onnx_container::external_data::is_external(tensor);
        assert_eq!(is_external, !place.site.is_sparse(), "{}", place.qualified_name(tensor));
    }
}
