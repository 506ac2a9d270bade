//! A model that is loaded without weights, edited and saved keeps its external entries and their
//! files.

use std::fs;
use std::path::Path;

use ndarray::{Array1, array};
use onnx_container::check::{CheckOptions, check_model};
use onnx_container::edit::{ExternalizeOptions, KeepReason};
use onnx_container::proto::{
    ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use onnx_container::{
    Container, Error, ErrorKind, LoadOptions, MmapChoice, SaveOptions, WeightFiles,
};

use crate::support::{assert_same, contents, floats, graph, model};

/// What does not need the bytes of all weights.
const LAYOUTS: &[WeightFiles] = &[
    WeightFiles::Packed,
    WeightFiles::PerTensor,
    WeightFiles::Sharded { max_bytes: 1000 },
    #[cfg(feature = "safetensors")]
    WeightFiles::Safetensors,
    WeightFiles::AsLoaded,
];

fn with_weights(names: &[&str]) -> Container {
    let tensor =
        |name: &&str| TensorProto::external(*name, TensorProto::FLOAT, [300], format!("#{name}"));
    let mut container = Container::new(model(graph(names.iter().map(tensor).collect(), vec![])));
    for (i, name) in names.iter().enumerate() {
        container.insert(&format!("#{name}"), Array1::from_elem(300, i as f32)).unwrap();
    }
    container
}

/// The model at `path` without its weights, with another name.
fn edited(path: &Path) -> Container {
    let mut container = Container::load(path, LoadOptions::new().weights(false)).unwrap();
    container.model_mut().producer_name = Some("edited".into());
    container
}

#[test]
fn entries_and_files_stay_in_every_layout() {
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let original = with_weights(&["a", "b"]);
        original.save(&path, WeightFiles::PerTensor).unwrap();
        let before = contents(folder.path());
        let saved = edited(&path).save(&path, *layout).unwrap();
        assert_eq!((saved.files.len(), saved.kept.len()), (1, 0), "{layout:?}");
        assert_eq!(saved.left_behind, Vec::<std::path::PathBuf>::new(), "{layout:?}");
        let after = contents(folder.path());
        assert!(after.keys().eq(before.keys()), "{layout:?}");
        assert!(after.iter().all(|(name, bytes)| name == "m.onnx" || before[name] == *bytes));
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        assert_eq!(loaded.model().producer_name.as_ref().unwrap(), &"edited");
        assert_same(&loaded, &original);
    }
}

#[test]
fn new_weights_are_written_beside_those_that_were_not_loaded() {
    for layout in LAYOUTS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        with_weights(&["a", "b"]).save(&path, SaveOptions::new().data_name("w.bin")).unwrap();
        let mut container = edited(&path);
        let new = TensorProto::external("new", TensorProto::FLOAT, [400], "#new");
        container.model_mut().graph.as_mut().unwrap().initializer.push(new);
        container.insert("#new", Array1::<f32>::ones(400)).unwrap();
        let weights = fs::read(folder.path().join("w.bin")).unwrap();
        let saved = container.save(&path, *layout).unwrap();
        assert_eq!((saved.files.len(), saved.left_behind.len()), (2, 0), "{layout:?}");
        assert_eq!(fs::read(folder.path().join("w.bin")).unwrap(), weights);
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        let values = |name| loaded.get(name).unwrap().to_tensor().unwrap();
        assert_eq!(values("#b").as_slice::<f32>().unwrap(), [1.0; 300], "{layout:?}");
        assert_eq!(values("#new").as_slice::<f32>().unwrap(), [1.0; 400], "{layout:?}");
    }
}

#[test]
fn a_file_that_was_not_loaded_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    with_weights(&["a", "b"]).save(&path, true).unwrap();
    let mut container = edited(&path);
    let new = TensorProto::external("new", TensorProto::FLOAT, [2], "#new");
    container.model_mut().graph.as_mut().unwrap().initializer.push(new);
    container.insert("#new", array![1.0_f32, 2.0]).unwrap();
    let before = contents(folder.path());
    for name in ["m.onnx.data", "M.ONNX.DATA"] {
        let error = container.save(&path, SaveOptions::new().data_name(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert_eq!(contents(folder.path()), before);
    }
    let error = container.save(&path, true).unwrap_err();
    assert_eq!(error.path(), Some(folder.path().join("m.onnx.data").as_path()), "{error}");
}

#[test]
fn an_entry_that_no_load_would_take_is_refused() {
    let entry = |key: &str, value: &str| StringStringEntryProto::new(key, value);
    let cases = [
        ("../w.bin", vec![], ErrorKind::UnsafePath),
        ("/w.bin", vec![], ErrorKind::UnsafePath),
        ("w.bin", vec![entry("length", "3")], ErrorKind::Shape),
        ("w.bin", vec![entry("offset", "-1")], ErrorKind::InvalidModel),
        ("#w", vec![], ErrorKind::MissingHandle),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (location, entries, kind) in cases {
        let mut tensor = TensorProto::external("w", TensorProto::FLOAT, [1], location);
        tensor.external_data.extend(entries);
        let container = Container::new(model(graph(vec![tensor], vec![])));
        let error = container.save(folder.path().join("m.onnx"), true).unwrap_err();
        assert_eq!((error.kind(), error.tensor()), (kind, Some("w")), "{location}: {error}");
    }
    assert!(contents(folder.path()).is_empty());
}

#[test]
fn files_that_the_new_model_lacks_are_reported() {
    for layout in LAYOUTS {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = old.path().join("m.onnx");
        with_weights(&["a", "b"]).save(&path, WeightFiles::PerTensor).unwrap();
        let saved = edited(&path).save(&path, *layout).unwrap();
        assert_eq!(saved.warnings.len(), 0, "{layout:?}: all are there");
        let saved = edited(&path).save(new.path().join("m.onnx"), *layout).unwrap();
        let kinds: Vec<_> = saved.warnings.iter().map(onnx_container::Error::kind).collect();
        assert_eq!(kinds, [ErrorKind::MissingFile; 2], "{layout:?}");
        assert!(saved.warnings[0].path().unwrap().ends_with("m-a.weight"), "{layout:?}");
    }
}

/// A model whose shape operand and weights are external, for `Reshape(w, shape)`.
fn with_shape() -> Container {
    let external = |name: &str, dtype, dims: &[i64]| {
        TensorProto::external(name, dtype, dims, format!("#{name}"))
    };
    let tensors = vec![
        external("w", TensorProto::FLOAT, &[300]),
        external("shape", TensorProto::INT64, &[2]),
    ];
    let reshape = NodeProto::new("Reshape", ["w", "shape"], ["y"]);
    let mut container = Container::new(model(graph(tensors, vec![reshape])));
    container.insert("#w", Array1::from_elem(300, 1.0_f32)).unwrap();
    container.insert("#shape", array![3_i64, 100]).unwrap();
    container
}

#[test]
fn a_shape_that_readers_need_inline_is_reported_in_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let inline = with_shape().save(folder.path().join("e.onnx"), WeightFiles::Embedded).unwrap();
    assert_eq!(inline.warnings.len(), 0, "{:?}", inline.warnings);
    for layout in LAYOUTS {
        // Small weights that are in no file go into the model.
        let expected = usize::from(*layout != WeightFiles::AsLoaded);
        let planned = with_shape().dry_run(&path, *layout).unwrap();
        let saved = with_shape().save(&path, *layout).unwrap();
        for warnings in [planned.warnings, saved.warnings] {
            let told: Vec<_> = warnings.iter().map(|e| (e.kind(), e.tensor().unwrap())).collect();
            let all = [(ErrorKind::Unsupported, "shape")];
            assert_eq!(told, all[..expected], "{layout:?}");
        }
        if expected == 0 {
            continue;
        }
        let loaded = Container::load(&path, MmapChoice::never()).unwrap();
        for container in [&loaded, &edited(&path)] {
            let kept = container.save(&path, WeightFiles::AsLoaded).unwrap();
            let told: Vec<_> = kept.warnings.iter().filter_map(|error| error.tensor()).collect();
            assert_eq!(told, ["shape"], "{layout:?}");
        }
        fs::remove_dir_all(folder.path()).unwrap();
        fs::create_dir(folder.path()).unwrap();
    }
}

#[test]
#[cfg(unix)]
fn files_that_onnx_does_not_open_are_reported_when_the_model_goes_on_to_refer_to_them() {
    let rename = |folder: &Path, name: &str| fs::rename(folder.join("w"), folder.join(name));
    type Case = (&'static str, fn(&Path), &'static str);
    let cases: [Case; 3] = [
        ("w..bin", |_| {}, "`..`"),
        ("w.bin", |path| std::os::unix::fs::symlink("w", path).unwrap(), "link"),
        ("w.bin", |path| fs::hard_link(path.with_file_name("w"), path).unwrap(), "hard links"),
    ];
    for (location, make, reason) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        fs::write(folder.path().join("w"), [0; 16]).unwrap();
        make(&folder.path().join(location));
        if !folder.path().join(location).exists() {
            rename(folder.path(), location).unwrap();
        }
        let tensor = TensorProto::external("w", TensorProto::FLOAT, [4], location);
        let container = Container::new(model(graph(vec![tensor], vec![])));
        let saved = container.save(&path, true).unwrap();
        let told: Vec<_> = saved.warnings.iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].contains(reason), "{location}: {told:?}");
    }
}

#[test]
fn an_external_tensor_whose_name_is_not_text_is_reported_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &[u8]| {
        let mut tensor = floats("w", 0, 600);
        tensor.name = Some(name.into());
        tensor
    };
    let models = [named(b"w\xff"), named("w\u{e4}".as_bytes())];
    for (tensor, refused) in models.into_iter().zip([true, false]) {
        let inline = Container::new(model(graph(vec![tensor], vec![])));
        let mut moved = inline.clone();
        let options = ExternalizeOptions::from(1).all_tensors(true);
        let report = moved.externalize(options).unwrap();
        assert_eq!(report.moved, usize::from(!refused));
        let reasons: Vec<_> = report.kept.iter().map(|kept| kept.reason).collect();
        assert_eq!(reasons, vec![KeepReason::NameNotText; usize::from(refused)]);

        let path = folder.path().join("m.onnx");
        let saved = inline.save(&path, SaveOptions::new().externalize(true)).unwrap();
        assert_eq!((saved.files.len(), saved.warnings.len()), (2 - usize::from(refused), 0));

        // A model that has such a tensor outside is saved, with a warning, and `check` finds it.
        let mut outside = inline.clone();
        let tensor = &mut outside.model_mut().graph.as_mut().unwrap().initializer[0];
        let name = tensor.name.take();
        *tensor = TensorProto::external("", TensorProto::FLOAT, [600], "#w");
        tensor.name = name;
        outside.insert("#w", Array1::<f32>::zeros(600)).unwrap();
        let saved = outside.save(&path, true).unwrap();
        let checked = check_model(&path, CheckOptions::new()).unwrap();
        let found = checked.findings.iter().map(|finding| &finding.error);
        let told = |error: &&Error| error.reason().contains("its name is not UTF-8");
        let numbers = (saved.warnings.iter().filter(told).count(), found.filter(told).count());
        assert_eq!(numbers, (usize::from(refused), usize::from(refused)), "{:?}", saved.warnings);
    }
}

#[test]
fn what_onnxruntime_refuses_in_the_versions_of_a_model_is_a_warning_and_an_advice() {
    let sets = |sets: &[(&str, i64)]| {
        let sets = sets.iter().map(|(domain, version)| OperatorSetIdProto::new(*domain, *version));
        let mut model = model(graph(vec![floats("w", 0, 4)], vec![]));
        model.opset_import = sets.collect();
        model
    };
    let version = |version: Option<i64>| {
        let mut model = sets(&[("", 21)]);
        model.ir_version = version;
        model
    };
    let cases: [(ModelProto, &[&str]); 10] = [
        (version(Some(14)), &[]),
        (version(Some(15)), &["ir_version 15: onnxruntime 1.32 takes versions up to 14"]),
        (version(None), &["no ir_version"]),
        (sets(&[]), &["no operator set (opset_import)"]),
        (sets(&[("", 28), ("ai.onnx.ml", 5), ("com.example", 99)]), &[]),
        (sets(&[("", 29)]), &["operator set 29 of ai.onnx: onnxruntime 1.32 takes sets up to 28"]),
        (sets(&[("ai.onnx", 29)]), &["operator set 29 of ai.onnx"]),
        (sets(&[("", 21), ("ai.onnx.ml", 6)]), &["operator set 6 of ai.onnx.ml"]),
        (
            sets(&[("ai.onnx.training", 2), ("ai.onnx.preview.training", 2)]),
            &["operator set 2 of ai.onnx.training", "operator set 2 of ai.onnx.preview.training"],
        ),
        (sets(&[("com.microsoft", 2)]), &["operator set 2 of com.microsoft"]),
    ];
    for (model, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let container = Container::new(model);
        let planned = container.dry_run(&path, true).unwrap().warnings;
        let saved = container.save(&path, true).unwrap().warnings;
        let found = check_model(&path, MmapChoice::never()).unwrap().findings;
        let found = found.into_iter().map(|finding| finding.error.to_string());
        let found =
            found.filter(|text| text.contains("ir_version") || text.contains("operator set "));
        let texts = [&planned, &saved].map(|all| all.iter().map(ToString::to_string).collect());
        for texts in texts.into_iter().chain([found.collect::<Vec<_>>()]) {
            assert_eq!(texts.len(), expected.len(), "{texts:?}, expected {expected:?}");
            for (text, expected) in texts.iter().zip(expected) {
                assert!(text.contains(expected), "{text}, expected {expected}");
            }
        }
    }
}
