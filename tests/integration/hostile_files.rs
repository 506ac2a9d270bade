//! Untrusted external data: the table of cases that readers treat differently, with what this
//! crate does, over every way to read a model. Nothing is written for a model that is refused.

use std::fs;
use std::path::{Path, PathBuf};

use onnx_container::check::{Severity, check_model};
use onnx_container::external_data::PathPolicy;
use onnx_container::proto::{AttributeProto, Message, Str, StringStringEntryProto, TensorProto};
use onnx_container::{Container, Error, ErrorKind, LoadOptions, MmapChoice, Outline, SaveOptions};

use crate::hostile_cases::{Case, POLICIES, cases};
#[cfg(unix)]
use crate::hostile_cases::{fifo, link, outside};
use crate::support::{LAYOUTS, all_bytes, both_choices, contents, graph, graph_of, model, node};

/// A folder with the files and the model of the case; returns it with the path of the model.
fn folder_of(case: &Case) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = case.make(root.path());
    (root, path)
}

/// Every way of the library to read a model with its weights.
fn loads(path: &Path, options: &LoadOptions) -> Vec<(&'static str, Result<Container, Error>)> {
    let attach = || {
        let mut container = Container::load(path, options.clone().weights(false))?;
        container.attach(path.parent().unwrap(), options.clone().model_path(path))?;
        Ok(container)
    };
    let bytes = fs::read(path).unwrap();
    vec![
        ("load", Container::load(path, options.clone())),
        ("load_bytes", Container::load_bytes(bytes, options.clone().model_path(path))),
        ("attach", attach()),
        ("outline", Outline::load(path, options.clone()).and_then(through_outline)),
    ]
}

fn through_outline(outline: Outline) -> Result<Container, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("o.onnx");
    outline.embed(&path, SaveOptions::new())?;
    Container::load(&path, MmapChoice::never())
}

#[test]
fn every_case_is_accepted_or_refused_by_name() {
    for case in cases() {
        for (policy, expect) in POLICIES.into_iter().zip(case.expect) {
            let (root, path) = folder_of(&case);
            let before = all_names(root.path());
            for mmap in both_choices() {
                let options = LoadOptions::from(mmap).paths(policy);
                let findings = check_model(&path, options.clone()).unwrap().findings;
                let errors: Vec<_> =
                    findings.iter().filter(|f| f.severity == Severity::Error).collect();
                match expect {
                    Ok(()) => assert!(errors.is_empty(), "{} {policy:?}: {errors:?}", case.name),
                    Err(reason) => {
                        assert_eq!(errors.len(), 1, "{} {policy:?}: {errors:?}", case.name);
                        let said = errors[0].error.to_string();
                        assert!(said.contains(reason), "{} {policy:?}: {said}", case.name);
                    }
                }
                for (way, loaded) in loads(&path, &options) {
                    let context = format!("{} by {way}, {policy:?}", case.name);
                    match (loaded, expect) {
                        (Ok(container), Ok(())) => assert_ones(&container, &context),
                        (Err(error), Err(reason)) => {
                            assert!(error.to_string().contains(reason), "{context}: {error}");
                            assert_eq!(error.tensor(), Some("w"), "{context}: {error}");
                        }
                        (loaded, expect) => panic!("{context}: {loaded:?}, expected {expect:?}"),
                    }
                }
            }
            assert_eq!(before, all_names(root.path()), "{}: something was written", case.name);
        }
    }
}

#[test]
fn a_save_takes_nothing_from_files_that_were_not_loaded() {
    for case in cases() {
        let (root, path) = folder_of(&case);
        let container = Container::load(&path, LoadOptions::new().weights(false)).unwrap();
        let other = root.path().join("other");
        fs::create_dir(&other).unwrap();
        for layout in LAYOUTS {
            let saved = container.save(other.join("m.onnx"), layout);
            let names = all_names(&other);
            assert!(names.iter().all(|name| name.ends_with("m.onnx")), "{}: {names:?}", case.name);
            // What is refused when it is read is no model to write either, unless only the disk
            // says so.
            assert!(saved.is_err() || saved.unwrap().warnings.len() == 1, "{}", case.name);
        }
    }
}

#[cfg(unix)]
#[test]
fn a_save_over_links_writes_through_none() {
    // The model and its weights are links into a cache, by which other users read them.
    for case in cases().into_iter().filter(|case| case.expect[2].is_ok()) {
        for name in ["m.onnx.data", "l", "w.bin"] {
            let (root, path) = folder_of(&case);
            let elsewhere = ["outside.bin", "blobs/m", "blobs/w", "blobs/l"];
            let elsewhere = || elsewhere.map(|name| fs::read(root.path().join(name)).ok());
            let before = elsewhere();
            let trusted = LoadOptions::new().paths(PathPolicy::Trusted);
            let container = Container::load(&path, trusted).unwrap();
            let options = SaveOptions::new().keep_placement(false).sync(false).data_name(name);
            if container.save(&path, options).is_ok() {
                let strict = LoadOptions::new().paths(PathPolicy::Strict);
                assert_ones(&Container::load(&path, strict).unwrap(), case.name);
            }
            assert_eq!(elsewhere(), before, "{} over {name}", case.name);
        }
    }
}

fn assert_ones(container: &Container, context: &str) {
    assert!(all_bytes(container)[0].iter().all(|byte| *byte == 1), "{context}");
}

/// The names of all files beneath `folder`.
fn all_names(folder: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        names.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            names.extend(all_names(&entry.path()));
        }
    }
    names.sort();
    names
}

#[test]
fn external_and_inline_at_once_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("w.bin"), [1; 16]).unwrap();
    let tensor =
        TensorProto::external("w", TensorProto::FLOAT, [4], "w.bin").with_raw_data(vec![2; 16]);
    let path = root.path().join("m.onnx");
    fs::write(&path, model(graph(vec![tensor], vec![])).encode_to_vec().unwrap()).unwrap();
    for mmap in both_choices() {
        let error = Container::load(&path, mmap).unwrap_err();
        assert!(error.reason().contains("both external and inline"), "{error}");
    }
}

#[test]
fn a_segment_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("w.bin"), [1; 16]).unwrap();
    let mut tensor = TensorProto::external("w", TensorProto::FLOAT, [4], "w.bin");
    tensor.segment = Some(Box::default());
    let path = root.path().join("m.onnx");
    fs::write(&path, model(graph(vec![tensor], vec![])).encode_to_vec().unwrap()).unwrap();
    for mmap in both_choices() {
        assert_eq!(Container::load(&path, mmap).unwrap_err().kind(), ErrorKind::Unsupported);
        let findings = check_model(&path, mmap).unwrap().findings;
        assert_eq!(findings.iter().filter(|f| f.severity == Severity::Error).count(), 1);
    }
}

#[test]
fn a_string_that_is_not_utf8_is_kept_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("m.onnx");
    let mut bad = node("Relu", &["x"], &["y"], vec![AttributeProto::string("bytes", [0xff])]);
    bad.name = Some(Str::from(&b"n\xff"[..]));
    let inner = bad.clone();
    for expect in
        ["a string is not UTF-8: `n\u{fffd}`", "2 strings are not UTF-8, the first is `n\u{fffd}`"]
    {
        let main = graph_of(&["x"], &["y"], vec![bad.clone()]);
        let bytes = model(main).encode_to_vec().unwrap();
        fs::write(&path, &bytes).unwrap();
        for mmap in both_choices() {
            let container = Container::load(&path, mmap).unwrap();
            assert!(container.embed().unwrap().encode_to_vec().unwrap() == bytes);
            let findings = check_model(&path, mmap).unwrap().findings;
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!(findings[0].severity, Severity::Advice);
            assert_eq!(findings[0].error.kind(), ErrorKind::InvalidModel);
            assert_eq!(findings[0].error.path(), Some(path.as_path()));
            assert_eq!(findings[0].error.reason(), expect);
        }
        // Then with one more, in a subgraph.
        let branches = [graph(vec![], vec![inner.clone()])];
        bad.attribute.push(AttributeProto::graphs("branches", branches));
    }
}

#[test]
fn leftover_entries_of_an_inline_tensor_are_ignored() {
    let root = tempfile::tempdir().unwrap();
    let mut tensor =
        TensorProto::external("w", TensorProto::FLOAT, [4], "gone.bin").with_raw_data(vec![1; 16]);
    tensor.data_location = Some(0);
    let path = root.path().join("m.onnx");
    fs::write(&path, model(graph(vec![tensor], vec![])).encode_to_vec().unwrap()).unwrap();
    for mmap in both_choices() {
        assert!(Container::load(&path, mmap).unwrap().is_empty());
    }
}

#[test]
fn files_that_are_not_models_are_named() {
    let root = tempfile::tempdir().unwrap();
    let cases: &[(&str, &[u8], &str)] = &[
        (
            "lfs.onnx",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "Git LFS pointer",
        ),
        (
            "weights.onnx",
            b"\x08\x02\0\0\0\0\0\0{\"w\":{}}",
            "a safetensors file, not an ONNX model",
        ),
        ("m.gguf", b"GGUF\x03\0\0\0", "a GGUF file, not an ONNX model"),
        ("m.ort", b"\x1c\0\0\0ORTM\0\0", "an ONNX Runtime .ort file"),
        ("m.npz", b"PK\x03\x04\0\0\0\0", "a zip archive, not an ONNX model"),
        ("page.onnx", b"\n <!DOCTYPE html>\n<html>", "web page"),
        ("empty.onnx", b"", "empty"),
        ("noise.onnx", b"\xff\xff\xff\xff", ""),
    ];
    for (name, bytes, reason) in cases {
        let path = root.path().join(name);
        fs::write(&path, bytes).unwrap();
        for mmap in both_choices() {
            let error = Container::load(&path, mmap).unwrap_err();
            let is_download = ["lfs.onnx", "page.onnx"].contains(name);
            let kind = if is_download { ErrorKind::NotDownloaded } else { ErrorKind::Decode };
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.reason().contains(reason), "{error}");
            assert_eq!(error.path(), Some(path.as_path()));
            assert!(check_model(&path, mmap).is_err());
        }
    }
    for mmap in both_choices() {
        let directory = Container::load(root.path(), mmap).unwrap_err();
        assert_eq!(directory.kind(), ErrorKind::InvalidArgument);
        let missing = Container::load(root.path().join("no.onnx"), mmap).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::MissingFile);
    }
    #[cfg(unix)]
    {
        fifo(&root.path().join("pipe"));
        for mmap in both_choices() {
            let error = Container::load(root.path().join("pipe"), mmap).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }
}

#[test]
fn a_model_that_is_cut_off_says_how_many_bytes_it_needs() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("m.onnx");
    let weights = TensorProto::new("w", TensorProto::UINT8, [1000]).with_raw_data(vec![1; 1000]);
    let mut whole = model(graph(vec![weights], vec![]));
    let bytes = whole.encode_to_vec().unwrap();
    // The imports of operator sets come behind the graph.
    whole.opset_import.clear();
    let graph_end = whole.encode_to_vec().unwrap().len();
    for (len, needed) in [(100, Some(graph_end)), (graph_end - 1, Some(graph_end)), (2, None)] {
        fs::write(&path, &bytes[..len]).unwrap();
        for mmap in both_choices() {
            let Err(error) = Container::load(&path, mmap) else {
                assert_eq!(needed, None, "cut off between two fields it is another model");
                continue;
            };
            let needed = needed.unwrap();
            let start = format!("cut off: {len} bytes, at least {needed} needed: ");
            assert!(error.reason().starts_with(&start), "{error}");
            assert_eq!(error.kind(), ErrorKind::Decode);
        }
    }
}

#[test]
fn a_data_file_that_is_cut_off_or_of_another_format_is_reported_once() {
    let root = tempfile::tempdir().unwrap();
    let entry = |name: &str, offset: u64| {
        let mut tensor = TensorProto::external(name, TensorProto::UINT8, [10], "w.bin");
        tensor.external_data.push(StringStringEntryProto::new("offset", offset.to_string()));
        tensor
    };
    let tensors = [entry("a", 0), entry("b", 20), entry("c", 40), entry("d", 30)];
    let path = root.path().join("m.onnx");
    fs::write(&path, model(graph(tensors.into(), vec![])).encode_to_vec().unwrap()).unwrap();
    for (bytes, what) in [(vec![0; 25], ""), (b"GGUF".repeat(5), "a GGUF file, not raw data, or ")]
    {
        fs::write(root.path().join("w.bin"), &bytes).unwrap();
        let expected = format!(
            "{what}cut off: the file has {} bytes, 50 are needed; the data of this tensor are bytes \
             20 to 30, and those of 2 more end beyond the file",
            bytes.len()
        );
        for mmap in both_choices() {
            let loaded = Container::load(&path, mmap).unwrap_err();
            let checked = check_model(&path, mmap).unwrap();
            let errors: Vec<_> = checked.errors().collect();
            assert_eq!(errors.len(), 1, "{errors:?}");
            for error in [&loaded, &errors[0].error] {
                assert_eq!((error.reason(), error.tensor()), (expected.as_str(), Some("b")));
                assert_eq!((error.kind(), error.offset()), (ErrorKind::OutOfBounds, Some(20)));
            }
        }
    }
}

#[test]
fn data_that_begin_as_a_file_of_another_format_are_reported() {
    let root = tempfile::tempdir().unwrap();
    let mut tensors = vec![TensorProto::external("w", TensorProto::UINT8, [4], "w.bin")];
    let path = root.path().join("m.onnx");
    for (bytes, told) in [(&b"GGUF\x03\0\0\0"[..], true), (b"\x01\x02\x03\x04", false)] {
        fs::write(root.path().join("w.bin"), bytes).unwrap();
        fs::write(&path, model(graph(tensors.clone(), vec![])).encode_to_vec().unwrap()).unwrap();
        let container = Container::load(&path, MmapChoice::never()).unwrap();
        let begins = "its data begin as a GGUF file does";
        let warned = container.warnings().iter().any(|w| w.reason().starts_with(begins));
        assert_eq!(warned, told);
    }
    // Data after a header are no mistake: some writers put them there.
    fs::write(root.path().join("w.bin"), b"GGUF\x03\0\0\0").unwrap();
    tensors[0].external_data.push(StringStringEntryProto::new("offset", "4"));
    fs::write(&path, model(graph(tensors, vec![])).encode_to_vec().unwrap()).unwrap();
    assert!(Container::load(&path, MmapChoice::never()).unwrap().warnings().is_empty());
}

#[test]
#[cfg(unix)]
fn links_to_devices_and_streams_are_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    fifo(&root.path().join("pipe"));
    let mut container = Container::new(crate::support::add_w(1));
    container.insert("#w", ndarray::array![1.0_f32]).unwrap();
    for target in ["/dev/null", "/proc/self/fd/1", "pipe"] {
        let path = root.path().join("m.onnx");
        link(target, &path);
        let error = container.save(&path, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsafePath, "{target}");
        assert!(path.is_symlink(), "{target}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_planted_link_is_not_followed_by_a_save() {
    #[cfg(unix)]
    {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("model");
        fs::create_dir(&dir).unwrap();
        let victim = outside(&dir);
        link(&victim, dir.join("m.onnx.data"));
        link(&victim, dir.join("m.onnx"));
        let mut container = Container::new(crate::support::add_w(4));
        container.insert("#w", ndarray::array![1.0_f32, 2.0, 3.0, 4.0]).unwrap();
        container.save(dir.join("m.onnx"), true).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), [1; 16]);
        assert_eq!(contents(&dir).len(), 2);
    }
}
