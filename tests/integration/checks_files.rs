//! What a check says of the files beside a model, and what it and every save say of tensors that
//! are not well formed.

use std::fs;
use std::path::Path;

use onnx_container::check::{Severity, check_model};
use onnx_container::inline::InlineOptions;
use onnx_container::proto::{Message, ModelProto, StringStringEntryProto, TensorProto};
use onnx_container::{Container, MmapChoice, SaveOptions, WeightFiles};

use crate::support::{LAYOUTS, floats, function, graph, graph_of, int64s, model, model_of, node};

fn write(path: &Path, model: &ModelProto) {
    fs::write(path, model.encode_to_vec().unwrap()).unwrap();
}

fn said(path: &Path) -> Vec<String> {
    let checked = check_model(path, MmapChoice::never()).unwrap();
    checked.findings.iter().map(|f| format!("{:?}: {}", f.severity, f.error)).collect()
}

/// A model of one external tensor.
fn external(location: &str, entries: &[(&str, &str)], len: i64) -> ModelProto {
    let mut tensor = TensorProto::external("w", TensorProto::UINT8, [len], location);
    let entries = entries.iter().map(|(key, value)| StringStringEntryProto::new(*key, *value));
    tensor.external_data.extend(entries);
    model(graph(vec![tensor], vec![]))
}

#[test]
fn weights_that_no_model_needs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write(&at("m.onnx"), &external("m.onnx.data", &[], 4));
    write(&at("other.onnx"), &external("other.bin", &[], 4));
    let needed = ["m.onnx.data", "other.bin"];
    let orphans = [
        "foo.data",
        "model.onnx_data",
        "model.onnx_data_9",
        "old_weights.bin",
        "m.safetensors",
        "UPPER.BIN",
        "x.weight",
        "m-w.weight",
        "y.weights",
        "other_data",
        "weights2.bin",
    ];
    let others = [
        "notes.txt",
        "config.json",
        "data",
        "bin",
        "data.txt",
        ".hidden.bin",
        "x_data_",
        "x_data_a",
        "tokenizer.model",
    ];
    for name in needed.iter().chain(&orphans).chain(&others) {
        fs::write(at(name), [0; 4]).unwrap();
    }
    fs::create_dir(at("folder.data")).unwrap();
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("sub/x.bin"), [0; 4]).unwrap();
    let mut found: Vec<_> = said(&at("m.onnx"));
    let mut expected: Vec<_> = orphans
        .iter()
        .map(|name| {
            format!("Advice: `{}`: no model of this folder refers to it", at(name).display())
        })
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    // A model in the folder above may need one.
    let above = tempfile::tempdir().unwrap();
    fs::create_dir(above.path().join("sub")).unwrap();
    write(&above.path().join("sub/m.onnx"), &model(graph(vec![], vec![])));
    fs::write(above.path().join("sub/x.bin"), [0; 4]).unwrap();
    assert_eq!(said(&above.path().join("sub/m.onnx")).len(), 1);
    write(&above.path().join("a.onnx"), &external("sub/x.bin", &[], 4));
    assert_eq!(said(&above.path().join("sub/m.onnx")).len(), 0);
}

#[test]
fn external_data_without_a_length_before_the_end_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(folder.path().join("w"), [0; 16]).unwrap();
    let reason = "its external data have no length, and the file is longer: onnx reads all";
    for (entries, len, is_told) in [
        (&[][..], 16, false),
        (&[("length", "16")], 16, false),
        (&[("length", "8"), ("offset", "0")], 8, false),
        (&[], 8, true),
        (&[("length", "0")], 8, true),
        (&[("offset", "4")], 8, true),
        (&[("offset", "8")], 8, false),
        (&[("offset", "8"), ("length", "0")], 8, false),
        (&[], 0, false),
        (&[("length", "0")], 0, false),
    ] {
        write(&path, &external("w", entries, len));
        let said = said(&path);
        let told = said.iter().any(|said| said.contains(reason) && said.starts_with("Advice"));
        assert_eq!(told, is_told, "{entries:?} {len}: {said:?}");
    }
}

/// Tensors that are no tensors: each is an error of a check.
fn malformed() -> Vec<(&'static str, TensorProto)> {
    let sound = || floats("w", 0, 600);
    let with = |mut tensor: TensorProto, change: &dyn Fn(&mut TensorProto)| {
        change(&mut tensor);
        tensor
    };
    vec![
        ("STRING in raw_data", with(sound(), &|t| t.data_type = Some(TensorProto::STRING))),
        ("no data", with(sound(), &|t| t.raw_data = None)),
        ("fewer bytes", with(sound(), &|t| t.raw_data = Some(vec![0; 2399].into()))),
        ("more bytes", with(sound(), &|t| t.raw_data = Some(vec![0; 2404].into()))),
        ("two fields", with(sound(), &|t| *t.float_data = vec![0.0; 600].into())),
        ("another field", {
            with(sound(), &|t| (t.raw_data, *t.int64_data) = (None, vec![0; 600].into()))
        }),
        ("a number too wide", {
            with(int64s("w", &[]), &|t| {
                (t.data_type, t.raw_data, t.dims) = (Some(TensorProto::INT8), None, vec![600]);
                *t.int32_data = vec![300; 600].into();
            })
        }),
        (
            "fewer entries",
            with(sound(), &|t| (t.raw_data, *t.float_data) = (None, vec![0.0].into())),
        ),
        ("the undefined type", with(sound(), &|t| t.data_type = Some(0))),
        ("an unknown type", with(sound(), &|t| t.data_type = Some(99))),
        ("a negative dimension", with(sound(), &|t| t.dims = vec![-600])),
        ("dimensions without end", with(sound(), &|t| t.dims = vec![1 << 40, 1 << 40])),
        ("fewer strings", {
            with(sound(), &|t| {
                (t.data_type, t.raw_data) = (Some(TensorProto::STRING), None);
                t.string_data.push(b"a".to_vec().into());
            })
        }),
        ("a segment", with(sound(), &|t| t.segment = Some(Box::default()))),
    ]
}

#[test]
fn no_save_is_silent_on_a_tensor_that_a_check_calls_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for (what, tensor) in malformed() {
        let of = |tensor: TensorProto| model(graph(vec![tensor], vec![]));
        write(&path, &of(tensor.clone()));
        let errors = |path: &Path| {
            let checked = check_model(path, MmapChoice::never()).unwrap();
            checked.errors().map(|found| found.error.to_string()).collect::<Vec<_>>()
        };
        let [error] = &errors(&path)[..] else { panic!("{what}: {:?}", errors(&path)) };
        for externalize in [false, true] {
            for layout in LAYOUTS {
                let container = Container::new(of(tensor.clone()));
                let options = SaveOptions::from(layout);
                let options = if externalize { options.externalize(true) } else { options };
                let target = folder.path().join("saved/m.onnx");
                fs::create_dir_all(target.parent().unwrap()).unwrap();
                match container.save(&target, options) {
                    Err(refused) => {
                        assert!(refused.to_string().contains("`w`"), "{what}: {refused}")
                    }
                    Ok(saved) => {
                        let warnings: Vec<_> =
                            saved.warnings.iter().map(ToString::to_string).collect();
                        assert_eq!(
                            &warnings[..],
                            std::slice::from_ref(error),
                            "{what}, {layout:?}"
                        );
                        assert_eq!(
                            &errors(&target)[..],
                            std::slice::from_ref(error),
                            "{what}, {layout:?}"
                        );
                    }
                }
                fs::remove_dir_all(target.parent().unwrap()).unwrap();
            }
        }
    }
    let sound = Container::new(model(graph(vec![floats("w", 0, 600)], vec![])));
    assert!(sound.save(&path, WeightFiles::Embedded).unwrap().warnings.is_empty());
}

#[test]
fn inlining_warns_where_readers_ran_an_operator() {
    let named = |domain: &str, name: &str, is_called: bool| {
        let mut body = function(name, &["a"], &["b"], vec![node("Neg", &["a"], &["b"], vec![])]);
        body.domain = Some(domain.into());
        let mut call = node(if is_called { name } else { "Neg" }, &["x"], &["y"], vec![]);
        call.domain = is_called.then(|| domain.into());
        model_of(graph_of(&["x"], &["y"], vec![call]), vec![body])
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    for (domain, name, is_called, warns) in [
        ("", "Relu", true, true),
        ("ai.onnx", "Relu", true, true),
        ("", "Relu", false, false),
        ("local", "Relu", true, false),
        ("ai.onnx.ml", "Scaler", true, true),
    ] {
        let mut model = named(domain, name, is_called);
        let ml = onnx_container::proto::OperatorSetIdProto::new("ai.onnx.ml", 3);
        model.opset_import.push(ml);
        let container = Container::new(model.clone());
        let options = SaveOptions::from(WeightFiles::Embedded).inline_functions(true);
        let saved = container.save(&path, options).unwrap();
        let inlined =
            onnx_container::inline::inline_functions(&mut model, InlineOptions::new()).unwrap();
        let reason = format!("{name}` has the name of an operator of ONNX: onnxruntime");
        for warnings in [&saved.warnings, &inlined.warnings, &saved.inlined.unwrap().warnings] {
            let told = warnings.iter().filter(|w| w.to_string().contains(&reason)).count();
            assert_eq!((told, warnings.len()), (usize::from(warns), told), "{domain} {name}");
        }
        let severities = check_model(&path, MmapChoice::never()).unwrap().findings;
        assert!(severities.iter().all(|found| found.severity != Severity::Error), "{severities:?}");
    }
}

/// A load refuses it too.
#[test]
fn a_location_that_is_refused_is_told_also_where_it_leads_to_a_file_that_is_named_rightly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    fs::write(folder.path().join("w.bin"), [1, 2]).unwrap();
    for refused in ["/w.bin", "w.bin/", "//w.bin"] {
        for first in [true, false] {
            let mut names = [("good", "./w.bin"), ("a", refused), ("b", refused)];
            names.rotate_left(usize::from(first));
            let external = |(name, path): (&str, &str)| {
                TensorProto::external(name, TensorProto::UINT8, [2], path)
            };
            write(&path, &model(graph(names.into_iter().map(external).collect(), vec![])));
            let said = said(&path);
            let told = said.iter().filter(|said| said.contains(&format!(": {refused:?}")));
            assert_eq!(told.count(), 1, "{refused} {first}: {said:?}");
        }
    }
}
