//! Untrusted external data: the table of cases that readers treat differently, with what this
//! crate does, over loading and checking. Nothing is written for a model that is refused.

use std::fs;
use std::path::Path;

use onnx_container::proto::{AttributeProto, Message, Str, StringStringEntryProto, TensorProto};
use onnx_container::{Container, ErrorKind, MmapChoice, Severity, check_model};

use crate::support::{all_bytes, both_choices, contents, graph, graph_of, model, node};

struct Case {
    name: &'static str,
    entries: &'static [(&'static str, &'static str)],
    dims: &'static [i64],
    dtype: i32,
    /// Makes the files, other than `w.bin`.
    prepare: fn(&Path),
    expect: Result<(), &'static str>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            name: "",
            entries: &[("location", "w.bin")],
            dims: &[4],
            dtype: TensorProto::FLOAT,
            prepare: |_| {},
            expect: Ok(()),
        }
    }
}

fn case(
    name: &'static str,
    entries: &'static [(&'static str, &'static str)],
    expect: Result<(), &'static str>,
) -> Case {
    Case { name, entries, expect, ..Case::default() }
}

fn at(
    location: &'static str,
    entries: &'static [(&'static str, &'static str)],
    prepare: fn(&Path),
    expect: Result<(), &'static str>,
) -> Case {
    Case { name: location, entries, prepare, expect, ..Case::default() }
}

fn sub(dir: &Path) {
    fs::create_dir(dir.join("sub")).unwrap();
    fs::copy(dir.join("w.bin"), dir.join("sub/w.bin")).unwrap();
}

fn outside(dir: &Path) -> std::path::PathBuf {
    let outside = dir.parent().unwrap().join("outside.bin");
    fs::write(&outside, [7; 16]).unwrap();
    outside
}

#[cfg(unix)]
fn link(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    std::os::unix::fs::symlink(from, to).unwrap();
}

#[cfg(unix)]
fn fifo(dir: &Path) {
    let path = dir.join("pipe");
    let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("plain", &[("location", "w.bin")], Ok(())),
        case("unknown key", &[("location", "w.bin"), ("foo", "1")], Ok(())),
        case("basepath", &[("location", "w.bin"), ("basepath", "/x")], Ok(())),
        case("wrong checksum", &[("location", "w.bin"), ("checksum", "00")], Ok(())),
        case("location twice", &[("location", "w.bin"), ("location", "w.bin")], Err("twice")),
        case("missing file", &[("location", "no.bin")], Err("no such file")),
        case("no location", &[], Err("no location")),
        case("empty location", &[("location", "")], Err("no location")),
        case("length short", &[("location", "w.bin"), ("length", "8")], Err("length is 8")),
        case("length long", &[("location", "w.bin"), ("length", "32")], Err("length is 32")),
        case("length 0", &[("location", "w.bin"), ("length", "0")], Ok(())),
        case(
            "length 10^15",
            &[("location", "w.bin"), ("length", "1000000000000000")],
            Err("length"),
        ),
        case("offset beyond", &[("location", "w.bin"), ("offset", "16")], Err("file has 16")),
        case("offset -1", &[("location", "w.bin"), ("offset", "-1")], Err("decimal")),
        case("offset space", &[("location", "w.bin"), ("offset", " 0")], Err("decimal")),
        case("offset plus", &[("location", "w.bin"), ("offset", "+0")], Err("decimal")),
        case("offset underscore", &[("location", "w.bin"), ("offset", "1_6")], Err("decimal")),
        case("offset hex", &[("location", "w.bin"), ("offset", "0x0")], Err("decimal")),
        case("offset empty", &[("location", "w.bin"), ("offset", "")], Err("decimal")),
        case("2^63", &[("location", "w.bin"), ("offset", "9223372036854775808")], Err("decimal")),
        case(
            "2^64-16",
            &[("location", "w.bin"), ("offset", "18446744073709551600")],
            Err("decimal"),
        ),
        case(
            "2^63-1",
            &[("location", "w.bin"), ("offset", "9223372036854775807")],
            Err("overflows"),
        ),
        case("dot", &[("location", "./w.bin")], Ok(())),
        case("backslash", &[("location", "sub\\w.bin")], Err("backslash")),
        case("up and down", &[("location", "a/../w.bin")], Err("`..`")),
        case("slash at the end", &[("location", "w.bin/")], Err("directory")),
        case("NUL", &[("location", "w.bin\0x")], Err("NUL")),
        case("parent", &[("location", "../w.bin")], Err("`..`")),
        case("absolute", &[("location", "/etc/hostname")], Err("absolute")),
        case("drive", &[("location", "C:\\w.bin")], Err("absolute")),
        case("directory", &[("location", ".")], Err("directory")),
        case("handle", &[("location", "#w")], Err("unresolved handle")),
        case(
            "tag",
            &[("location", "*/_ORT_MEM_ADDR_/*"), ("offset", "140000")],
            Err("in-memory tag"),
        ),
        case(
            "native tag",
            &[("location", "*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*")],
            Err("in-memory tag"),
        ),
        Case { name: "dims -1", dims: &[-1], expect: Err("negative"), ..Case::default() },
        Case { name: "dims overflow", dims: &[1 << 62, 4], expect: Err("2^63"), ..Case::default() },
        Case { name: "file short", dims: &[5], expect: Err("file has 16"), ..Case::default() },
        Case {
            name: "string",
            dtype: TensorProto::STRING,
            expect: Err("STRING"),
            ..Case::default()
        },
        Case { name: "no dtype", dtype: 0, expect: Err("UNDEFINED"), ..Case::default() },
        Case { name: "dtype 99", dtype: 99, expect: Err("99"), ..Case::default() },
        at("sub/w.bin", &[("location", "sub/w.bin")], sub, Ok(())),
        at(
            "w..bin",
            &[("location", "w..bin")],
            |dir| fs::write(dir.join("w..bin"), [1; 16]).unwrap(),
            Ok(()),
        ),
        at(
            "longer",
            &[("location", "l.bin")],
            |dir| fs::write(dir.join("l.bin"), [1; 99]).unwrap(),
            Ok(()),
        ),
        at(
            "offset 1",
            &[("location", "l.bin"), ("offset", "1")],
            |dir| fs::write(dir.join("l.bin"), [1; 17]).unwrap(),
            Ok(()),
        ),
        at(
            "handle, file exists",
            &[("location", "#w")],
            |dir| fs::write(dir.join("#w"), [1; 16]).unwrap(),
            Err("unresolved handle"),
        ),
        at("sub", &[("location", "sub")], sub, Err("a directory")),
        at(
            "git lfs",
            &[("location", "lfs")],
            |dir| {
                let pointer =
                    "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 16\n";
                fs::write(dir.join("lfs"), pointer).unwrap();
            },
            Err("Git LFS pointer"),
        ),
        at(
            "web page",
            &[("location", "page")],
            |dir| {
                fs::write(dir.join("page"), "<!DOCTYPE html><html><body>404</body></html>")
                    .unwrap();
            },
            Err("web page"),
        ),
        Case { name: "empty tensor", dims: &[0, 3], ..Case::default() },
        Case { name: "scalar", dims: &[], ..Case::default() },
    ];
    #[cfg(unix)]
    cases.extend([
        at("link inside", &[("location", "l")], |dir| link("w.bin", dir.join("l")), Ok(())),
        at(
            "absolute link inside",
            &[("location", "l")],
            |dir| link(dir.join("w.bin"), dir.join("l")),
            Ok(()),
        ),
        at(
            "link outside",
            &[("location", "l")],
            |dir| link(outside(dir), dir.join("l")),
            Err("leads out"),
        ),
        at(
            "relative link outside",
            &[("location", "l")],
            |dir| {
                outside(dir);
                link("../outside.bin", dir.join("l"));
            },
            Err("leads out"),
        ),
        at(
            "linked folder outside",
            &[("location", "l/outside.bin")],
            |dir| {
                outside(dir);
                link("..", dir.join("l"));
            },
            Err("leads out"),
        ),
        at(
            "linked folder inside",
            &[("location", "l/w.bin")],
            |dir| {
                sub(dir);
                link("sub", dir.join("l"));
            },
            Ok(()),
        ),
        at("link to itself", &[("location", "l")], |dir| link("l", dir.join("l")), Err("")),
        at("fifo", &[("location", "pipe")], fifo, Err("device, pipe")),
        at(
            "link to a device",
            &[("location", "null")],
            |dir| link("/dev/null", dir.join("null")),
            Err(""),
        ),
        at(
            "hard link",
            &[("location", "h")],
            |dir| fs::hard_link(dir.join("w.bin"), dir.join("h")).unwrap(),
            Ok(()),
        ),
    ]);
    cases
}

#[test]
fn every_case_is_accepted_or_refused_by_name() {
    for case in cases() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("model");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("w.bin"), [1; 16]).unwrap();
        (case.prepare)(&dir);
        let mut tensor = TensorProto::external("w", case.dtype, case.dims, "");
        tensor.external_data =
            case.entries.iter().map(|(k, v)| StringStringEntryProto::new(*k, *v)).collect();
        let path = dir.join("m.onnx");
        fs::write(&path, model(graph(vec![tensor], vec![])).encode_to_vec().unwrap()).unwrap();
        let before: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();

        for mmap in both_choices() {
            let findings = check_model(&path, mmap).unwrap().findings;
            let errors: Vec<_> =
                findings.iter().filter(|f| f.severity == Severity::Error).collect();
            match (Container::load(&path, mmap), case.expect) {
                (Ok(container), Ok(())) => {
                    assert!(errors.is_empty(), "{}: {errors:?}", case.name);
                    assert!(
                        all_bytes(&container)[0].iter().all(|byte| *byte == 1),
                        "{}",
                        case.name
                    );
                }
                (Err(error), Err(reason)) => {
                    assert!(error.to_string().contains(reason), "{}: {error}", case.name);
                    assert_eq!(error.tensor(), Some("w"), "{}: {error}", case.name);
                    assert_eq!(errors.len(), 1, "{}: {errors:?}", case.name);
                    assert!(errors[0].error.to_string().contains(reason), "{}", case.name);
                }
                (result, expect) => panic!("{}: {result:?}, expected {expect:?}", case.name),
            }
        }
        let after: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(before, after, "{}: something was written", case.name);
    }
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
            assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
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
        fifo(root.path());
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
    fifo(root.path());
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
        assert_eq!(fs::read(&victim).unwrap(), [7; 16]);
        assert_eq!(contents(&dir).len(), 2);
    }
}
