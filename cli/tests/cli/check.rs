//! `check MODEL`.

use std::fs::{self, OpenOptions};

use onnx_container::proto::TensorProto;

use crate::support::{Folder, external, model};

#[test]
fn a_sound_model_is_ok() {
    let folder = Folder::packed();
    let run = folder.run(&["check", "p.onnx"]).done();
    assert_eq!(run.stdout(), "ok: p.onnx: no errors\n");
    let report = folder.run(&["check", "p.onnx", "--json", "--no-mmap"]).done().json();
    assert_eq!(report["ok"], true);
    assert_eq!(report["findings"].as_array().unwrap().len(), 0);
}

#[test]
fn all_findings_are_listed_errors_first() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["gone.bin", "../up.bin", "w.bin", "short.bin"]));
    fs::write(folder.path("w.bin"), [0; 20]).unwrap();
    fs::write(folder.path("short.bin"), [0; 15]).unwrap();
    let run = folder.run(&["check", "m.onnx"]).failed(&[]);
    let lines: Vec<_> = run.stdout().lines().map(str::to_owned).collect();
    let (verdict, findings) = lines.split_last().unwrap();
    let (errors, advice) = findings.split_at(3);
    for (line, name) in errors.iter().zip(["`gone.bin`", "`../up.bin`", "`short.bin`"]) {
        assert!(line.starts_with("error: ") && line.contains(name), "{lines:#?}");
    }
    assert!(advice.iter().all(|line| line.starts_with("advice: ")), "{lines:#?}");
    assert!(verdict.starts_with("not ok: m.onnx: 3 errors, "), "{verdict}");

    let report = folder.run(&["check", "m.onnx", "--json"]).failed(&[]).json();
    assert_eq!((&report["ok"], &report["errors"]), (&false.into(), &3.into()));
    assert_eq!(report["findings"][0]["tensor"], "w0");
    assert_eq!(report["findings"][0]["kind"], "MissingFile");
}

#[test]
fn advice_alone_does_not_fail() {
    let folder = Folder::packed();
    let mut data = OpenOptions::new().append(true).open(folder.path("p.onnx.data")).unwrap();
    std::io::Write::write_all(&mut data, &[0; 9]).unwrap();
    let run = folder.run(&["check", "p.onnx"]).done();
    run.says(&["advice: `p.onnx.data`: 9 of ", "ok: p.onnx: no errors, 1 advice"]);
}

#[test]
fn bytes_that_readers_take_differently_are_advice() {
    let folder = Folder::new();
    let mut model = external(&[]);
    let bools = TensorProto::new("b", TensorProto::BOOL, [3]).with_raw_data(vec![0, 2, 255]);
    let codes = TensorProto::new("q", TensorProto::INT4, [1]).with_raw_data(vec![0x21]);
    model.graph.as_mut().unwrap().initializer.extend([bools, codes]);
    folder.save("m.onnx", &model);
    let run = folder.run(&["check", "m.onnx"]).done();
    run.says(&["`b`", "a BOOL of 2", "`q`", "bits after the last element", "no errors"]);
}

#[cfg(feature = "machine")]
#[test]
fn nodes_that_cannot_run_are_errors_when_asked_for() {
    use onnx_container::proto::{NodeProto, OperatorSetIdProto};
    let folder = Folder::new();
    let mut model = crate::support::sums();
    folder.save("good.onnx", &model);
    for name in ["first", "second"] {
        let mut node = NodeProto::new("Frobnicate", ["x"], [name]);
        (node.name, node.domain) = (Some(name.into()), Some("my".into()));
        model.graph.as_mut().unwrap().node.push(node);
    }
    model.opset_import.push(OperatorSetIdProto::new("my", 1));
    folder.save("bad.onnx", &model);
    folder.run(&["check", "good.onnx", "--runnable"]).done();
    folder.run(&["check", "bad.onnx"]).done();
    let run = folder.run(&["check", "bad.onnx", "--runnable"]);
    assert_eq!(run.code(), 1, "{run:?}");
    run.says(&[
        "error: step 2: node `first` (my::Frobnicate): there is no kernel",
        "error: step 3: node `second` (my::Frobnicate): there is no kernel",
        "not ok: bad.onnx: 2 errors",
    ]);
    let json = folder.run(&["check", "bad.onnx", "--runnable", "--json"]).json();
    assert_eq!(
        (&json["errors"], &json["findings"][1]["kind"]),
        (&2.into(), &"UnsupportedOp".into())
    );
}

/// What `run` refuses before there are values, `check --runnable` names in the same words, and the
/// other way round.
#[cfg(feature = "machine")]
#[test]
fn run_refuses_what_check_runnable_names() {
    use onnx_container::proto::{AttributeProto, ModelProto, NodeProto};
    use onnx_container::{DataType, Tensor};
    type Change = fn(&mut ModelProto);
    fn add(model: &mut ModelProto, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) {
        let mut node = NodeProto::new(op, inputs.iter().copied(), ["added"]);
        node.attribute = attributes;
        model.graph.as_mut().unwrap().node.push(node);
    }
    let cases: [(Change, &str); 8] = [
        (
            |model| add(model, "LeakyRelu", &["x"], vec![AttributeProto::float("aplha", 0.5)]),
            "step 2: LeakyRelu: the operator has no attribute `aplha` at version 21",
        ),
        (
            |model| add(model, "Squeeze", &["x"], vec![AttributeProto::ints("axes", [0])]),
            "step 2: Squeeze: the operator has no attribute `axes` at version 21: it was one at version 11",
        ),
        (
            |model| add(model, "Relu", &["x"], vec![AttributeProto::int("a", 1); 2]),
            "Relu: the node has attribute `a` twice",
        ),
        (
            |model| add(model, "Softmax", &["x"], vec![AttributeProto::float("axis", 1.0)]),
            "step 2: Softmax: attribute `axis` is a float, not an integer",
        ),
        (
            |model| add(model, "Swish", &["x"], vec![]),
            "step 2: Swish: there is no such operator at version 21: it came with version 24",
        ),
        (
            |model| add(model, "And", &["x", "w"], vec![]),
            "step 2: And: the operator does not take elements of type FLOAT as input 0 (`A`)",
        ),
        (
            |model| model.opset_import[0].version = Some(99),
            "the model imports version 99 of `ai.onnx`, the newest that is known is 28",
        ),
        (
            |model| {
                let value = Tensor::from_f32(DataType::Float, [0], &[]).unwrap().to_proto("");
                add(
                    model,
                    "ConstantOfShape",
                    &["dims"],
                    vec![AttributeProto::tensor("value", value)],
                );
                let dims =
                    Tensor::new(DataType::Int64, [1], 2_i64.to_le_bytes().to_vec().into()).unwrap();
                model.graph.as_mut().unwrap().initializer.push(dims.to_proto("dims"));
            },
            "step 2: ConstantOfShape: attribute `value` has 0 elements, not one",
        ),
    ];
    let folder = Folder::new();
    folder.save("m.onnx", &crate::support::sums());
    folder.run(&["check", "m.onnx", "--runnable"]).done();
    folder.run(&["run", "m.onnx", "--seed", "1", "--dim", "batch=2"]).done();
    for (change, expected) in cases {
        let mut model = crate::support::sums();
        change(&mut model);
        folder.save("m.onnx", &model);
        folder.run(&["check", "m.onnx", "--runnable"]).failed(&[]).says(&[expected]);
        folder.run(&["run", "m.onnx", "--seed", "1", "--dim", "batch=2"]).failed(&[expected]);
    }
}

#[test]
fn a_truncated_weights_file_is_found() {
    let folder = Folder::packed();
    let data = OpenOptions::new().write(true).open(folder.path("p.onnx.data")).unwrap();
    data.set_len(100).unwrap();
    folder.run(&["check", "p.onnx"]).failed(&[]).says(&["the file has 100", "not ok: "]);
    folder.run(&["embed", "p.onnx", "e.onnx"]).failed(&["the file has 100"]);
}

#[test]
fn beyond_a_limit_findings_are_counted_and_models_refused() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["a.bin", "b.bin", "c.bin"]));
    let whole = folder.run(&["check", "m.onnx", "--json"]).failed(&[]).json();
    assert_eq!((&whole["errors"], &whole["not_listed"]), (&3.into(), &0.into()));
    let some = ["check", "m.onnx", "--limit", "findings=1"];
    let run = folder.run(&some).failed(&[]);
    let lines: Vec<_> = run.stdout().lines().map(str::to_owned).collect();
    assert!(lines[0].contains("`a.bin`"), "{lines:#?}");
    let rest = &lines[lines.len() - 2];
    assert!(rest.ends_with(" more; `--limit findings=N` lists N of a severity"), "{lines:#?}");
    assert!(lines.last().unwrap().starts_with("not ok: m.onnx: 3 errors"), "{lines:#?}");
    let report = folder.run(&[&some[..], &["--json"]].concat()).failed(&[]).json();
    let listed = report["findings"].as_array().unwrap().len() as u64;
    let all = whole["findings"].as_array().unwrap().len() as u64;
    assert_eq!((report["errors"].as_u64(), report["advice"] == whole["advice"]), (Some(3), true));
    assert_eq!(report["not_listed"].as_u64(), Some(all - listed));

    for command in ["check", "inspect", "digest", "files"] {
        let refused = folder.run(&[command, "m.onnx", "--limit", "tensors=2"]);
        let refused = refused.could_not(command, &[]);
        let said = refused.stderr();
        assert!(said.contains("more than 2 tensors: the limit `tensors`"), "{command}: {said}");
        assert!(said.contains("`--limit tensors=N` raises it to N\n"), "{command}: {said}");
    }
    let bytes = ["check", "m.onnx", "--limit", "name-bytes=0K"];
    let said = folder.run(&bytes).could_not("check", &[]).stderr().to_owned();
    assert!(said.contains("a name of more than 0 bytes"), "{said}");
    assert!(said.contains("`--limit name-bytes=N` raises it to N, such as 1GB\n"), "{said}");
    for (given, said) in [
        ("tensor=2", "the limits are nesting"),
        ("tensors", "NAME=N"),
        ("tensors=2K", "`2K` is no whole number"),
        ("program=1XB", "`1XB` is not a number of bytes such as 1024, 16K"),
    ] {
        let run = folder.run(&["check", "m.onnx", "--limit", given]);
        assert!(run.code() == 2 && run.stderr().contains(said), "{}", run.stderr());
    }
}

#[test]
fn weights_in_place_of_a_model_are_called_what_they_are() {
    let folder = Folder::packed();
    let text = "`p.onnx.data`: a weights file of `p.onnx`, which is beside it, not a model";
    for args in [
        &["inspect", "p.onnx.data"][..],
        &["check", "p.onnx.data"],
        &["files", "p.onnx.data"],
        &["digest", "p.onnx.data"],
        &["pack", "p.onnx.data", "o.onnx"],
        &["embed", "p.onnx.data", "o.onnx"],
        &["diff", "--semantic", "p.onnx", "p.onnx.data"],
    ] {
        let code =
            if args[0] == "diff" || args[0] == "check" || args[0] == "verify" { 2 } else { 1 };
        let run = folder.run(args);
        assert!(run.code() == code && run.stderr().contains(text), "{args:?}: {run:?}");
    }
    let json = folder.run(&["check", "p.onnx.data", "--json"]).misused(&[]).json();
    assert!(
        json["error"]["message"].as_str().unwrap().contains("a weights file of `p.onnx`"),
        "{json}"
    );
    // A file that nobody needs belongs to no model.
    fs::write(folder.path("x.data"), [0xff; 99]).unwrap();
    let run = folder.run(&["inspect", "x.data"]);
    assert!(run.code() == 1 && !run.stderr().contains("weights file of"), "{run:?}");
}

#[test]
#[cfg(unix)]
fn a_link_to_nothing_says_where_it_leads() {
    use std::os::unix::fs::symlink;
    let folder = Folder::packed();
    fs::create_dir(folder.path("copy")).unwrap();
    symlink("../../blobs/9e5d", folder.path("copy/m.onnx")).unwrap();
    let text = "`copy/m.onnx`: a link to `../../blobs/9e5d`, which is not there";
    for command in ["inspect", "check", "files", "digest"] {
        folder.run(&[command, "copy/m.onnx"]).could_not(command, &[text]);
    }
    folder.run(&["pack", "copy/m.onnx", "o.onnx"]).failed(&[text]);
    // Weights, within the folder and out of it.
    fs::copy(folder.path("p.onnx"), folder.path("copy/p.onnx")).unwrap();
    for target in ["gone", "../../blobs/9e5d"] {
        symlink(target, folder.path("copy/p.onnx.data")).unwrap();
        let run = folder.run(&["check", "copy/p.onnx"]).failed(&[]);
        run.says(&[&format!("a link to `{target}`, which is not there")]);
        let text = format!("a link to `{target}`, which is not there");
        folder.run(&["digest", "copy/p.onnx"]).failed(&["copy/p.onnx.data", &text]);
        fs::remove_file(folder.path("copy/p.onnx.data")).unwrap();
    }
}

#[test]
fn what_cannot_be_read_is_told_on_stderr_with_json_too() {
    let folder = Folder::packed();
    for args in [&["nosuch.onnx"][..], &["p.onnx", "nosuch.onnx"]] {
        let run = folder.run(&[&["check"], args, &["--json"]].concat());
        assert_eq!((run.code(), &run.json()["ok"]), (2, &false.into()), "{run:?}");
        assert!(
            run.stderr().contains("error: ") && run.stderr().contains("nosuch.onnx"),
            "{run:?}"
        );
    }
}

#[test]
fn elements_that_are_not_finite_are_found() {
    let folder = Folder::new();
    let holding = |values: &[f32]| {
        let mut model = model();
        let bytes: Vec<_> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let w = &mut model.graph.as_mut().unwrap().initializer[0];
        w.dims = vec![i64::try_from(values.len()).unwrap()];
        w.raw_data = Some(bytes.into());
        model
    };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for (values, reason) in [
        (&[1.0, 0.0][..], None),
        (&[1.0, nan], Some("of 2 elements, 1 is not a number")),
        (&[inf, -inf, 2.0], Some("of 3 elements, 2 are infinite")),
        (&[nan, inf, nan], Some("of 3 elements, 2 are not a number, 1 is infinite")),
    ] {
        folder.save("m.onnx", &holding(values));
        folder.run(&["pack", "m.onnx", "p.onnx", "--min-bytes", "0"]);
        for model in ["m.onnx", "p.onnx"] {
            let run = folder.run(&["check", model, "--finite"]);
            assert_eq!(run.code(), i32::from(reason.is_some()), "{run:?}");
            if let Some(reason) = reason {
                let line = format!("tensor `w`: {reason}");
                assert!(run.stdout().contains(&line), "no {line:?} in {run:?}");
            }
            assert_eq!(folder.run(&["check", model]).code(), 0);
            let json = folder.run(&["check", model, "--finite", "--json"]).json();
            assert_eq!(json["errors"], i32::from(reason.is_some()), "{json}");
        }
    }
    // Complex elements have two parts.
    let mut complex = holding(&[nan, nan, 1.0, inf]);
    let w = &mut complex.graph.as_mut().unwrap().initializer[0];
    (w.data_type, w.dims) = (Some(TensorProto::COMPLEX64), vec![2]);
    folder.save("c.onnx", &complex);
    let run = folder.run(&["check", "c.onnx", "--finite"]).failed(&[]);
    run.says(&["tensor `w`: of the parts of 2 elements, 2 are not a number, 1 is infinite"]);
    fs::remove_file(folder.path("p.onnx.data")).unwrap();
    folder.run(&["check", "p.onnx", "--finite"]).failed(&[]).says(&["p.onnx.data"]);
}

/// What is said of a file that several models use is said of each of them.
#[test]
fn several_models_are_told_what_each_is_told_alone() {
    let folder = Folder::new();
    fs::write(folder.path("w.bin"), [7; 64]).unwrap();
    fs::write(folder.path("other.bin"), [7; 64]).unwrap();
    folder.save("a.onnx", &external(&["w.bin"]));
    folder.save("b.onnx", &external(&["w.bin", "other.bin"]));
    fs::write(folder.path("a.onnx.data"), [7; 64]).unwrap();
    let findings = |json: &serde_json::Value| {
        let mut found: Vec<_> = json["findings"].as_array().unwrap().clone();
        found.retain(|finding| finding["kind"] != "Unneeded");
        (found, json["ok"].clone())
    };
    let alone = ["a.onnx", "b.onnx"]
        .map(|model| findings(&folder.run(&["check", model, "--strict", "--json"]).json()));
    assert!(alone.iter().all(|(found, ok)| !found.is_empty() && *ok == false), "{alone:?}");
    for order in [[0, 1], [1, 0]] {
        let names = order.map(|at| ["a.onnx", "b.onnx"][at]);
        let run = folder.run(&["check", names[0], names[1], "--strict", "--json"]).json();
        for (model, at) in run["models"].as_array().unwrap().iter().zip(order) {
            assert_eq!(findings(model), alone[at], "{names:?}");
        }
        let unneeded = run.to_string().matches("no model of this folder refers to it").count();
        assert_eq!(unneeded, 1, "{run}");
    }
}
