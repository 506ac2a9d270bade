//! What `check_model` finds in models with one fault each, and that it says nothing of sound ones.

use std::fs;
use std::path::Path;

use onnx_container::check::{CheckOptions, Checked, Checker, Finding, Severity, check_model};
use onnx_container::load::Limit;
use onnx_container::proto::type_proto::{self, Value};
use onnx_container::proto::{
    AttributeProto, GraphProto, Message, ModelProto, NodeProto, StringStringEntryProto,
    TensorProto, TypeProto, ValueInfoProto,
};
use onnx_container::{ErrorKind, Limits, LoadOptions, MmapChoice};

use crate::support::{
    both_choices, branches, call, floats, function, graph, graph_of, model, model_of, node,
};

fn copy(from: &str, to: &str) -> NodeProto {
    node("Identity", &[from], &[to], vec![])
}

fn labelled(name: &str, from: &str, to: &str) -> NodeProto {
    let mut node = copy(from, to);
    node.name = Some(name.into());
    node
}

/// A model of `nodes` from `x` and the condition `c` to `y`.
fn of(nodes: Vec<NodeProto>) -> ModelProto {
    model_of(graph_of(&["x", "c"], &["y"], nodes), vec![])
}

fn with_weights(nodes: Vec<NodeProto>, names: &[&str]) -> ModelProto {
    let mut model = of(nodes);
    let weights = names.iter().map(|name| floats(name, 0, 2));
    model.graph.as_mut().unwrap().initializer = weights.collect();
    model
}

/// An If whose first branch is `graph`.
fn choice(output: &str, graph: GraphProto) -> NodeProto {
    branches(&[output], graph, graph_of(&[], &["q"], vec![copy("x", "q")]))
}

fn inner(nodes: Vec<NodeProto>, output: &str) -> GraphProto {
    graph_of(&[], &[output], nodes)
}

/// A model that calls a function of `nodes` from `a` to `b`.
fn called(nodes: Vec<NodeProto>) -> ModelProto {
    let main = graph_of(&["x"], &["y"], vec![call("F", &["x"], &["y"], vec![])]);
    model_of(main, vec![function("F", &["a"], &["b"], nodes)])
}

fn saved(model: &ModelProto) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let raised = Limits::new().with(Limit::Nesting, 200);
    fs::write(&path, model.encode_to_vec_with(&raised).unwrap()).unwrap();
    (folder, path)
}

/// What a check says, in lines of severity and message.
fn said(checked: &Checked) -> Vec<String> {
    checked.findings.iter().map(|f| format!("{:?}: {}", f.severity, f.error)).collect()
}

#[test]
fn names_that_do_not_fit_together_are_found_one_by_one() {
    let mut no_sets = of(vec![copy("x", "y")]);
    no_sets.opset_import.clear();
    let mut custom = node("Foo", &["x"], &["y"], vec![]);
    custom.domain = Some("custom".into());
    let mut long_name = copy("x", "y");
    long_name.domain = Some("ai.onnx".into());
    let mut old = with_weights(vec![node("Add", &["x", "w"], &["y"], vec![])], &["w"]);
    old.ir_version = Some(3);
    let mut new = of(vec![copy("x", "y")]);
    new.ir_version = Some(15);
    let mut bare_function = called(vec![copy("a", "b")]);
    bare_function.functions[0].opset_import.clear();
    let mut twice = called(vec![copy("a", "b")]);
    twice.functions.push(twice.functions[0].clone());
    let deep = inner(vec![choice("p", inner(vec![copy("nope", "r")], "r"))], "p");
    let mut hides = inner(vec![copy("w", "p")], "p");
    hides.initializer.push(floats("w", 0, 2));
    let cases: Vec<(ModelProto, &[&str])> = vec![
        (of(vec![copy("x", "y")]), &[]),
        (of(vec![long_name]), &[]),
        (
            of(vec![node("Add", &["x", "w"], &["y"], vec![])]),
            &["Error: tensor `w`: input of the node of `y` (Add), which nothing defines"],
        ),
        (of(vec![copy("x", "t")]), &["Error: tensor `y`: an output that nothing defines"]),
        (with_weights(vec![], &["y"]), &[]),
        (
            no_sets,
            &[
                "Error: no operator set is imported for domain `ai.onnx` of the node of `y`",
                "no operator set (opset_import)",
            ],
        ),
        (of(vec![custom]), &["Error: no operator set is imported for domain `custom` of"]),
        (
            with_weights(vec![node("Add", &["x", "w"], &["y"], vec![])], &["w", "w"]),
            &["Error: tensor `w`: two initializers have this name"],
        ),
        (with_weights(vec![copy("x", "y")], &[""]), &["Error: an initializer has no name"]),
        (old, &["Advice: tensor `w`: the initializer is not a graph input"]),
        (new, &["ir_version 15: onnxruntime 1.32 takes versions up to 14"]),
        (
            of(vec![copy("x", "y"), copy("x", "y")]),
            &["Error: tensor `y`: the node of `y` (Identity) defines this value, which is defined"],
        ),
        (
            with_weights(vec![copy("x", "y"), copy("x", "w")], &["w"]),
            &["Error: tensor `w`: the node of `w` (Identity) defines this value"],
        ),
        (
            of(vec![copy("t", "y"), copy("x", "t")]),
            &["Error: tensor `t`: input of the node of `y` (Identity), which stands before"],
        ),
        (of(vec![node("", &["x"], &["y"], vec![])]), &["Error: the node of `y` () has no op_type"]),
        (of(vec![copy("x", "t"), choice("y", inner(vec![copy("t", "p")], "p"))]), &[]),
        (
            of(vec![choice("y", inner(vec![copy("t", "p")], "p")), copy("x", "t")]),
            &[
                "Error: tensor `t`: input of the node of `p` (Identity) in `y.then_branch`, which st",
            ],
        ),
        (of(vec![choice("y", deep)]), &["in `y.then_branch/p.then_branch`, which nothing defines"]),
        (
            of(vec![copy("x", "t"), choice("y", inner(vec![], "t"))]),
            &["Error: tensor `t`: in `y.then_branch`: an outer graph defines this output"],
        ),
        (
            of(vec![copy("x", "t"), choice("y", inner(vec![copy("x", "t")], "t"))]),
            &[
                "Error: tensor `t`: in `y.then_branch`: the node of `t` (Identity) defines this value",
            ],
        ),
        (with_weights(vec![choice("y", hides)], &["w"]), &[]),
        (
            of(vec![choice("v", inner(vec![copy("x", "p")], "p")), copy("p", "y")]),
            &["Error: tensor `p`: input of the node of `y` (Identity), which nothing defines"],
        ),
        // Names of one branch are free again in the next.
        (
            of(vec![
                choice("v", inner(vec![copy("x", "p")], "p")),
                choice("y", inner(vec![copy("v", "p")], "p")),
            ]),
            &[],
        ),
        (called(vec![copy("a", "b")]), &[]),
        (
            bare_function,
            &["Error: in `local::F`: no operator set is imported for domain `ai.onnx`"],
        ),
        (twice, &["Error: another function has this domain, name and overload"]),
        (
            called(vec![copy("x", "b")]),
            &[
                "Error: tensor `x`: input of the node of `b` (Identity) in `local::F`, which nothing",
            ],
        ),
        (
            called(vec![copy("a", "t")]),
            &["Error: tensor `b`: in `local::F`: an output that nothing defines"],
        ),
        (
            called(vec![call("F", &["a"], &["b"], vec![])]),
            &["Error: functions call themselves: local::F -> local::F"],
        ),
        (of(vec![labelled("n", "x", "t"), labelled("m", "t", "y")]), &[]),
        (
            of(vec![labelled("n", "x", "t"), labelled("n", "t", "y")]),
            &["Advice: two nodes have the name `n`, which onnxruntime refuses"],
        ),
    ];
    for (model, expected) in cases {
        let (_folder, path) = saved(&model);
        for mmap in both_choices() {
            let said = said(&check_model(&path, mmap).unwrap());
            assert_eq!(said.len(), expected.len(), "{said:#?}, expected {expected:?}");
            for (said, expected) in said.iter().zip(expected) {
                assert!(said.contains(expected), "{said}, expected {expected}");
            }
        }
    }
}

#[test]
fn one_missing_value_is_reported_once_and_long_names_are_shortened() {
    let long = "w".repeat(10_000);
    let add = |i: usize| node("Add", &["x", &long], &[&format!("t{i}")], vec![]);
    let mut nodes: Vec<_> = (0..1000).map(add).collect();
    nodes.push(copy("x", "y"));
    let (_folder, path) = saved(&of(nodes));
    let checked = check_model(&path, MmapChoice::never()).unwrap();
    let said = said(&checked);
    assert_eq!((said.len(), checked.nodes), (1, 1001));
    assert!(said[0].len() < 300, "{} bytes", said[0].len());
}

#[test]
fn a_model_without_operator_sets_is_an_error() {
    let mut model = of(vec![copy("x", "y")]);
    model.opset_import.clear();
    model.graph.as_mut().unwrap().node.clear();
    let (_folder, path) = saved(&model);
    let found = said(&check_model(&path, MmapChoice::never()).unwrap());
    assert!(found.iter().any(|line| line.contains("imports no operator set")), "{found:?}");
}

#[test]
fn a_check_says_what_it_looked_at() {
    let mut model = called(vec![copy("a", "b")]);
    let graph = model.graph.as_mut().unwrap();
    graph.initializer.push(floats("inline", 0, 2));
    graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [2], "w.bin"));
    let (folder, path) = saved(&model);
    fs::write(folder.path().join("w.bin"), [0; 8]).unwrap();
    let checked = check_model(&path, CheckOptions::new().contents(true)).unwrap();
    assert!(checked.is_ok(), "{:?}", checked.findings);
    assert_eq!(
        checked.to_string(),
        "2 nodes in 1 graph and 1 function; 2 tensors, 1 of them in 1 file of 8 bytes; the bytes of \
         weights too"
    );
}

#[test]
fn the_options_of_a_load_count() {
    let weight = TensorProto::external("w", TensorProto::FLOAT, [2], "w.bin");
    let (folder, path) = saved(&model(graph(vec![weight], vec![])));
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("w.bin"), [0; 8]).unwrap();
    let plain = check_model(&path, LoadOptions::new()).unwrap();
    assert_eq!(
        plain.errors().map(|f| f.error.kind()).collect::<Vec<_>>(),
        [ErrorKind::MissingFile]
    );
    for (options, files) in [
        (LoadOptions::new().weights(false), 0),
        (LoadOptions::new().base_dir(elsewhere.path()), 1),
        (LoadOptions::new().files([("./w.bin", vec![0; 8])]), 1),
    ] {
        let checked = check_model(&path, options).unwrap();
        assert!(checked.is_ok() && checked.files == files, "{checked:?}");
    }
    drop(folder);

    let mut deep = inner(vec![copy("x", "p")], "p");
    for _ in 0..40 {
        deep = inner(vec![choice("p", deep)], "p");
    }
    let (_folder, path) = saved(&of(vec![choice("y", deep)]));
    assert_eq!(check_model(&path, LoadOptions::new()).unwrap_err().kind(), ErrorKind::Decode);
    // Inner values are called like outer ones later on: both are defined after the subgraph.
    let checked =
        check_model(&path, LoadOptions::new().limits(Limits::new().with(Limit::Nesting, 200)))
            .unwrap();
    assert!(checked.is_ok() && checked.graphs == 83, "{checked:?}");
}

/// The message with a record behind it.
fn and<M: Message>(message: &M, record: &[u8]) -> M {
    M::decode(&[&message.encode_to_vec().unwrap(), record].concat().into()).unwrap()
}

#[test]
fn values_that_an_enum_does_not_have_are_errors() {
    let plain = floats("w", 0, 2);
    let mut external = plain.clone();
    external.external_data.push(StringStringEntryProto::new("location", "w.bin"));
    let attribute = AttributeProto::int("axis", 1);
    let with = |tensor: &TensorProto, attribute: &AttributeProto| {
        let nodes = vec![node("Concat", &["x", "w"], &["y"], vec![attribute.clone()])];
        let mut model = with_weights(nodes, &[]);
        model.graph.as_mut().unwrap().initializer.push(tensor.clone());
        let (_folder, path) = saved(&model);
        let mut checked = check_model(path, MmapChoice::never()).unwrap();
        // That a record is there again, or padded, is said as well.
        checked.findings.retain(|found| found.error.kind() != ErrorKind::Ambiguous);
        said(&checked)
    };
    assert_eq!(with(&plain, &attribute), Vec::<String>::new());
    let location = "Error: tensor `w`: a data_location that ONNX does not have: readers disagree on where its elements are";
    assert_eq!(with(&and(&plain, &[0x70, 2]), &attribute), [location]);
    assert_eq!(with(&and(&plain, &[0xf0, 0, 0x82, 0]), &attribute), [location]);
    assert_eq!(with(&and(&external, &[0x70, 1, 0x70, 2]), &attribute)[0], location);
    let leftover =
        "Advice: tensor `w`: it has external_data and is not external: readers ignore the entries";
    assert_eq!(with(&external, &attribute), [leftover]);
    let [kind] = &with(&plain, &and(&attribute, &[0xa0, 1, 99]))[..] else { panic!("one error") };
    assert!(kind.contains("attribute `axis` of the node of `y` (Concat) has a type"), "{kind}");
    // Other records are left to later versions of onnx.proto.
    assert_eq!(with(&and(&plain, &[0xf8, 0x3f, 1]), &attribute), Vec::<String>::new());
}

#[test]
fn wrong_entries_count_as_references_to_their_file() {
    let entry = |key: &str, value: &str| StringStringEntryProto::new(key, value);
    for (key, value) in [("length", "12"), ("length", "x"), ("offset", "-1")] {
        let mut weight = TensorProto::external("w", TensorProto::FLOAT, [2], "m.onnx.data");
        weight.external_data.push(entry(key, value));
        let (folder, path) = saved(&model(graph(vec![weight], vec![])));
        fs::write(folder.path().join("m.onnx.data"), [0; 100]).unwrap();
        let said = said(&check_model(&path, MmapChoice::never()).unwrap());
        assert_eq!(said.len(), 1, "no word of a file or bytes that nothing uses: {said:?}");
    }
}

#[test]
fn a_hole_in_a_data_file_is_reported_with_its_bytes() {
    let entry = |name: &str, offset: usize| {
        let mut tensor = TensorProto::external(name, TensorProto::FLOAT, [2], "w.bin");
        tensor.external_data.push(StringStringEntryProto::new("offset", offset.to_string()));
        tensor.external_data.push(StringStringEntryProto::new("length", "8"));
        tensor
    };
    let tensors = vec![entry("a", 0), entry("b", 64), entry("c", 131_072), entry("d", 131_136)];
    let (folder, path) = saved(&model(graph(tensors, vec![])));
    fs::write(folder.path().join("w.bin"), vec![0; 131_144]).unwrap();
    let said = said(&check_model(&path, MmapChoice::never()).unwrap());
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with("131000 of 131144 bytes are used by no tensor of this model"));
}

/// A tensor of eight bytes in the file `w.bin`.
fn eight_bytes(offset: u64) -> TensorProto {
    let mut tensor = TensorProto::external("w", TensorProto::FLOAT, [2], "w.bin");
    tensor.external_data.push(StringStringEntryProto::new("offset", offset.to_string()));
    tensor.external_data.push(StringStringEntryProto::new("length", "8"));
    tensor
}

/// Models of one folder may have their weights in one file.
#[test]
fn bytes_that_other_models_use_are_not_unused() {
    let cases: [(&[u64], usize, &str); 5] = [
        (&[], 24, "16 of 24 bytes are used by no tensor of this model"),
        (&[8], 24, "8 of 24 bytes are used by no tensor of this model or of `FOLDER/1.onnx`"),
        (
            &[0, 8],
            24,
            "8 of 24 bytes are used by no tensor of this model or of `FOLDER/1.onnx` and 1 more",
        ),
        (&[8], 16, ""),
        (&[16, 8], 24, ""),
    ];
    for (others, len, expected) in cases {
        let (folder, path) = saved(&model(graph(vec![eight_bytes(0)], vec![])));
        fs::write(folder.path().join("w.bin"), vec![0; len]).unwrap();
        for (number, offset) in (1..).zip(others) {
            let other = model(graph(vec![eight_bytes(*offset)], vec![]));
            let name = format!("{number}.onnx");
            fs::write(folder.path().join(name), other.encode_to_vec().unwrap()).unwrap();
        }
        let folder_name = folder.path().display().to_string();
        let said = said(&check_model(&path, MmapChoice::never()).unwrap());
        match expected {
            "" => assert_eq!(said, Vec::<String>::new(), "{others:?}"),
            _ => {
                let expected = expected.replace('/', std::path::MAIN_SEPARATOR_STR);
                let expected = expected.replace("FOLDER", &folder_name);
                assert!(said.len() == 1 && said[0].ends_with(&expected), "{others:?}: {said:?}");
            }
        }
    }
}

/// Models that are checked together are found the same as each alone, in whatever order.
#[test]
fn a_checker_finds_what_a_check_of_each_model_finds() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    for (file, len) in [("w.bin", 32), ("sub/w.bin", 24), ("v.bin", 16)] {
        fs::write(folder.path().join(file), vec![0; len]).unwrap();
    }
    let at = |offset: u64, location: &str| {
        let mut tensor = TensorProto::external("w", TensorProto::FLOAT, [2], location);
        tensor.external_data.push(StringStringEntryProto::new("offset", offset.to_string()));
        tensor.external_data.push(StringStringEntryProto::new("length", "8"));
        tensor
    };
    let models = [
        ("a.onnx", vec![at(0, "w.bin"), at(0, "sub/w.bin")]),
        ("b.onnx", vec![at(8, "w.bin"), at(8, "v.bin")]),
        ("c.onnx", vec![at(24, "./w.bin")]),
        ("sub/d.onnx", vec![at(8, "w.bin")]),
        ("e.onnx", vec![]),
    ];
    for (name, tensors) in &models {
        let tensors = tensors.iter().zip(["w", "v"]).map(|(tensor, name)| {
            let mut tensor = tensor.clone();
            tensor.name = Some(name.into());
            tensor
        });
        let bytes = model(graph(tensors.collect(), vec![])).encode_to_vec().unwrap();
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let said = |checked: Checked| format!("{checked}: {:#?}", checked.findings);
    for digests in [false, true] {
        let options = CheckOptions::new().digests(digests);
        let mut checker = Checker::new(options.clone());
        for (name, _) in models.iter().chain(models.iter().rev()) {
            let path = folder.path().join(name);
            let alone = said(check_model(&path, options.clone()).unwrap());
            assert_eq!(said(checker.check(&path).unwrap()), alone, "{name}");
        }
    }
    let unused = said(check_model(folder.path().join("a.onnx"), CheckOptions::new()).unwrap());
    for text in ["8 of 32 bytes", "b.onnx` and 1 more", "8 of 24 bytes", "d.onnx`"] {
        assert!(unused.contains(text), "{text}: {unused}");
    }
}

/// What another model says of bytes is not covered by the digests of this one.
#[test]
fn bytes_that_only_another_model_uses_are_not_covered() {
    const UNCOVERED: &str =
        "bytes that no tensor of this model uses are not zero, and its digests do not cover them";
    const UNUSED: &str = "of 24 bytes are used by no tensor of this model";
    let claims = |elements: i64| {
        let mut claim = TensorProto::external("w", TensorProto::UINT8, [elements], "w.bin");
        claim.external_data.push(StringStringEntryProto::new("length", elements.to_string()));
        claim
    };
    let cases: [(Option<i64>, &[u8], &[&str]); 5] = [
        (None, &[1; 24], &[UNCOVERED, UNUSED]),
        (Some(24), &[1; 24], &[UNCOVERED]),
        (Some(1 << 60), &[1; 24], &[UNCOVERED, UNUSED]),
        (Some(24), &[0; 24], &[]),
        (None, &[1; 8], &[]),
    ];
    for (claimed, bytes, expected) in cases {
        let (folder, path) = saved(&model(graph(vec![eight_bytes(0)], vec![])));
        fs::write(folder.path().join("w.bin"), bytes).unwrap();
        if let Some(elements) = claimed {
            let other = model(graph(vec![claims(elements)], vec![]));
            fs::write(folder.path().join("x.onnx"), other.encode_to_vec().unwrap()).unwrap();
        }
        let checked = check_model(&path, CheckOptions::new().digests(true)).unwrap();
        let advice = |finding: &&Finding| finding.severity == Severity::Advice;
        let said: Vec<_> =
            checked.findings.iter().filter(advice).map(|it| it.error.to_string()).collect();
        assert_eq!(said.len(), expected.len(), "{claimed:?} {said:?}");
        let says = |text: &&str| said.iter().any(|said| said.contains(*text));
        assert!(expected.iter().all(says), "{claimed:?} {said:?}");
    }
}

#[test]
#[cfg(unix)]
fn files_that_onnx_refuses_get_advice() {
    let link = |from: &str, to: &Path| std::os::unix::fs::symlink(from, to).unwrap();
    type Setup<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Setup<'_>, &[&str]); 5] = [
        ("w.bin", &|dir| fs::write(dir.join("w.bin"), [0; 8]).unwrap(), &[]),
        ("w..bin", &|dir| fs::write(dir.join("w..bin"), [0; 8]).unwrap(), &["`..` in it"]),
        (
            "w.bin",
            &|dir| {
                fs::write(dir.join("real"), [0; 8]).unwrap();
                link("real", &dir.join("w.bin"));
            },
            &["a symbolic link"],
        ),
        (
            "sub/w.bin",
            &|dir| {
                fs::create_dir(dir.join("real")).unwrap();
                fs::write(dir.join("real/w.bin"), [0; 8]).unwrap();
                link("real", &dir.join("sub"));
            },
            &["a folder that is one"],
        ),
        (
            "w.bin",
            &|dir| {
                fs::write(dir.join("w.bin"), [0; 8]).unwrap();
                fs::hard_link(dir.join("w.bin"), dir.join("other")).unwrap();
            },
            &["hard links"],
        ),
    ];
    for (location, setup, expected) in cases {
        let weight = TensorProto::external("w", TensorProto::FLOAT, [2], location);
        let (folder, path) = saved(&model(graph(vec![weight], vec![])));
        setup(folder.path());
        let checked = check_model(&path, MmapChoice::never()).unwrap();
        let said = said(&checked);
        assert_eq!((said.len(), checked.is_ok()), (expected.len(), true), "{said:?}");
        assert!(said.iter().zip(expected).all(|(said, text)| said.contains(text)), "{said:?}");
    }
}

#[test]
fn bytes_without_a_meaning_are_found_when_weights_are_read() {
    let raw = |name: &str, dtype: i32, bytes: &[u8]| {
        TensorProto::new(name, dtype, [3]).with_raw_data(bytes.to_vec())
    };
    let external = |name: &str, dtype: i32| TensorProto::external(name, dtype, [3], name);
    let tensors = vec![
        raw("good", TensorProto::BOOL, &[0, 1, 1]),
        raw("bad", TensorProto::BOOL, &[0, 2, 255]),
        raw("padding", TensorProto::INT4, &[0x21, 0xf3]),
        external("outside", TensorProto::BOOL),
        external("narrow", TensorProto::UINT4),
    ];
    let (folder, path) = saved(&model(graph(tensors, vec![])));
    fs::write(folder.path().join("outside"), [1, 0, 7]).unwrap();
    fs::write(folder.path().join("narrow"), [0, 0x10]).unwrap();
    for mmap in both_choices() {
        // What is about bytes has an offset.
        let bytes_of = |checked: Checked| -> Vec<_> {
            let about_bytes = |f: &Finding| f.error.offset().is_some();
            checked.findings.into_iter().filter(about_bytes).collect()
        };
        assert!(bytes_of(check_model(&path, mmap).unwrap()).is_empty(), "nothing is read");
        let options = CheckOptions::from(mmap).contents(true);
        let findings = bytes_of(check_model(&path, options).unwrap());
        let found: Vec<_> = findings.iter().map(|f| (f.error.tensor(), f.error.offset())).collect();
        let expected = [("bad", 1), ("outside", 2), ("narrow", 1), ("padding", 1)];
        for (name, offset) in expected {
            assert!(found.contains(&(Some(name), Some(offset))), "{name}: {found:?}");
        }
        assert_eq!(found.len(), expected.len());
        assert!(findings.iter().all(|f| f.severity == Severity::Advice));
    }
}

#[test]
fn what_an_interrupted_save_left_is_named_where_the_model_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let reason = || check_model(&path, MmapChoice::never()).unwrap_err();
    assert!(!reason().reason().contains("interrupted"));
    let staging = folder.path().join(".m.onnx.saving-aB3xY1");
    fs::create_dir_all(staging.join("new")).unwrap();
    let error = reason();
    assert_eq!((error.kind(), error.path()), (ErrorKind::MissingFile, Some(path.as_path())));
    assert!(error.reason().contains("left the folder"), "{error}");
    assert!(error.reason().contains(".m.onnx.saving-aB3xY1`"), "{error}");
    // What was moved away may be all that is left of the model, and is not called needless.
    fs::create_dir(staging.join("old")).unwrap();
    fs::write(staging.join("old/m.onnx"), "the model").unwrap();
    assert!(!reason().reason().contains("left the folder"));
}

#[test]
fn tensors_without_elements_belong_at_offset_0() {
    for (offset, errors) in [("0", 0), ("8", 1)] {
        let mut weight = TensorProto::external("w", TensorProto::FLOAT, [0], "w.bin");
        weight.external_data.push(StringStringEntryProto::new("offset", offset));
        let (folder, path) = saved(&model(graph(vec![weight], vec![])));
        fs::write(folder.path().join("w.bin"), [0; 8]).unwrap();
        let checked = check_model(&path, MmapChoice::never()).unwrap();
        assert_eq!(
            checked
                .findings
                .iter()
                .filter(|f| f.error.reason().contains("without elements"))
                .count(),
            errors,
            "{checked:?}"
        );
    }
}

#[test]
fn attributes_of_lists_of_graphs_are_walked() {
    let graphs = AttributeProto::graphs("branches", [inner(vec![copy("nope", "p")], "p")]);
    let nodes = vec![node("Switch", &["x"], &["y"], vec![graphs])];
    let (_folder, path) = saved(&of(nodes));
    assert_eq!(check_model(&path, MmapChoice::never()).unwrap().errors().count(), 1);
}

/// A message that `set` fills.
fn with<T: Default>(set: impl FnOnce(&mut T)) -> T {
    let mut message = T::default();
    set(&mut message);
    message
}

fn named(name: &str) -> ValueInfoProto {
    with(|value: &mut ValueInfoProto| value.name = Some(name.into()))
}

fn typed(value: Option<Value>) -> ValueInfoProto {
    let declared = with(|declared: &mut TypeProto| declared.value = value);
    let mut typed = named("v");
    typed.r#type = Some(Box::new(declared));
    typed
}

fn tensor_type(elem_type: Option<i32>, shape: bool) -> Value {
    let shape = shape.then(Box::default);
    Value::TensorType(Box::new(with(|tensor: &mut type_proto::Tensor| {
        (tensor.elem_type, tensor.shape) = (elem_type, shape);
    })))
}

/// Each expectation is what onnx.checker and onnxruntime do with such a model:
/// tests/interop/checks.py.
#[test]
fn inputs_and_outputs_of_the_main_graph_without_complete_types_are_found() {
    let bare = named("v");
    let float = || Some(TensorProto::FLOAT);
    let shapeless = || typed(Some(tensor_type(float(), false))).r#type;
    let sequence = |elem_type| {
        Value::SequenceType(Box::new(with(|t: &mut type_proto::Sequence| t.elem_type = elem_type)))
    };
    let optional = |elem_type| {
        Value::OptionalType(Box::new(with(|t: &mut type_proto::Optional| t.elem_type = elem_type)))
    };
    let map = |key_type, value_type| {
        Value::MapType(Box::new(with(|map: &mut type_proto::Map| {
            (map.key_type, map.value_type) = (key_type, value_type);
        })))
    };
    let undefined = || typed(Some(tensor_type(None, true))).r#type;
    let of_undefined = typed(Some(sequence(undefined()))).r#type;
    let sparse = with(|tensor: &mut type_proto::SparseTensor| tensor.elem_type = float());
    let cases = [
        (bare, Some("declares no type"), "Error", "Advice"),
        (typed(None), Some("declares no type"), "Error", "Advice"),
        (typed(Some(tensor_type(None, true))), Some("no element type"), "Error", "Error"),
        (typed(Some(tensor_type(float(), false))), Some("no shape"), "Advice", "Advice"),
        (typed(Some(tensor_type(float(), true))), None, "", ""),
        (typed(Some(sequence(None))), Some("no element type"), "Error", "Error"),
        (typed(Some(sequence(shapeless()))), None, "", ""),
        (typed(Some(sequence(Some(Box::default())))), Some("no element type"), "Error", "Error"),
        (typed(Some(sequence(undefined()))), Some("no element type"), "Error", "Error"),
        (typed(Some(optional(None))), Some("no element type"), "Error", "Error"),
        (typed(Some(optional(shapeless()))), None, "", ""),
        (typed(Some(optional(undefined()))), Some("no element type"), "Error", "Error"),
        (typed(Some(optional(of_undefined))), Some("no element type"), "Error", "Error"),
        (typed(Some(map(None, None))), Some("for the keys"), "Error", "Error"),
        (typed(Some(map(Some(7), None))), Some("for the values"), "Error", "Error"),
        (typed(Some(map(Some(7), undefined()))), Some("for the values"), "Error", "Error"),
        (typed(Some(map(Some(7), shapeless()))), None, "", ""),
        (
            typed(Some(Value::SparseTensorType(Box::new(sparse)))),
            Some("no shape"),
            "Advice",
            "Advice",
        ),
        (typed(Some(Value::OpaqueType(Box::default()))), Some("no name"), "Advice", "Advice"),
    ];
    for (value, reason, for_input, for_output) in cases {
        for (is_input, severity) in [(true, for_input), (false, for_output)] {
            let mut model = of(vec![copy("x", "y"), copy("x", "v")]);
            let graph = model.graph.as_mut().unwrap();
            if is_input {
                graph.node.pop();
                graph.input.push(value.clone());
            } else {
                graph.output.push(value.clone());
            }
            let (_folder, path) = saved(&model);
            let found = said(&check_model(&path, MmapChoice::never()).unwrap());
            match reason {
                None => assert_eq!(found, [""; 0]),
                Some(reason) => {
                    let start = format!("{severity}: tensor `v`: this graph ");
                    assert_eq!(found.len(), 1, "{value:?}: {found:?}");
                    assert!(found[0].starts_with(&start) && found[0].contains(reason), "{found:?}");
                }
            }
        }
    }
    // Subgraphs, and values inside the graph, need none.
    let untyped = named("p");
    let mut branch = inner(vec![copy("x", "p")], "p");
    branch.output = vec![untyped.clone()];
    let mut model = of(vec![choice("y", branch)]);
    model.graph.as_mut().unwrap().value_info.push(untyped);
    let (_folder, path) = saved(&model);
    assert_eq!(said(&check_model(&path, MmapChoice::never()).unwrap()), [""; 0]);
}
