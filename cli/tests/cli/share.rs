//! `share`.

use std::fs;

use onnx_container::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use onnx_container::{Container, SaveOptions};

use crate::support::{Folder, tensors};

/// Saves a model with weights of these names and values, packed.
fn save(folder: &Folder, name: &str, weights: &[(&str, f32)]) {
    let mut graph = GraphProto::new("g");
    for (weight, _) in weights {
        let handle = format!("#{weight}");
        graph.initializer.push(TensorProto::external(*weight, TensorProto::FLOAT, [400], handle));
    }
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    let mut container = Container::new(model);
    for (weight, value) in weights {
        container.insert(&format!("#{weight}"), vec![*value; 400]).unwrap();
    }
    container.save(folder.path(name), SaveOptions::new().sync(false)).unwrap();
}

/// An encoder and a decoder with one embedding.
fn pair() -> Folder {
    let folder = Folder::new();
    save(&folder, "enc.onnx", &[("embed", 1.0), ("own", 2.0)]);
    save(&folder, "dec.onnx", &[("tokens", 1.0), ("head", 3.0)]);
    folder
}

#[test]
fn equal_weights_go_to_one_file_that_all_models_use() {
    let folder = pair();
    let before = ["enc.onnx", "dec.onnx"].map(|name| tensors(&folder.path(name)));
    let dry = folder.run(&["share", "enc.onnx", "dec.onnx", "--dry-run"]).done();
    dry.says(&["shares    1 tensor (1.6 kB)", "shared.onnx.data", "nothing was written"]);
    assert_eq!(folder.names().len(), 4);

    let run = folder.run(&["share", "enc.onnx", "dec.onnx"]).done();
    run.says(&[
        "shared    1 tensor (1.6 kB) with equal ones, which are stored once",
        "wrote     3 files",
        "removed   dec.onnx.data, which no model needs",
        "removed   enc.onnx.data",
    ]);
    assert!(fs::metadata(folder.path("shared.onnx.data")).unwrap().len() < 3 * 1600 + 512);
    assert_eq!(folder.names(), ["dec.onnx", "enc.onnx", "shared.onnx.data"]);
    for (name, before) in ["enc.onnx", "dec.onnx"].iter().zip(&before) {
        assert_eq!(&tensors(&folder.path(name)), before);
        folder.run(&["check", name]).done();
    }
    // Once more there is nothing to do.
    let run = folder.run(&["share", "enc.onnx", "dec.onnx"]);
    run.failed(&["share one weights file already"]);
    // A third model joins, the file has another name, and the old one goes.
    save(&folder, "draft.onnx", &[("t", 1.0)]);
    let args = ["share", "enc.onnx", "dec.onnx", "draft.onnx", "--data-name=all.bin"];
    let run = folder.run(&args).done();
    run.says(&["removed   draft.onnx.data", "removed   shared.onnx.data, which no model needs"]);
    assert_eq!(folder.names(), ["all.bin", "dec.onnx", "draft.onnx", "enc.onnx"]);
    assert_eq!(tensors(&folder.path("enc.onnx")), before[0]);
}

#[test]
fn old_files_that_another_model_needs_stay() {
    let folder = pair();
    fs::copy(folder.path("enc.onnx"), folder.path("copy.onnx")).unwrap();
    let run = folder.run(&["share", "enc.onnx", "dec.onnx"]).done();
    run.says(&["removed   dec.onnx.data"]);
    assert!(folder.path("enc.onnx.data").is_file() && !folder.path("dec.onnx.data").exists());
    folder.run(&["check", "copy.onnx"]).done();
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let folder = pair();
    save(&folder, "other.onnx", &[("w", 9.0)]);
    fs::create_dir(folder.path("sub")).unwrap();
    fs::copy(folder.path("dec.onnx"), folder.path("sub/dec.onnx")).unwrap();
    fs::write(folder.path("taken.data"), "precious").unwrap();
    let before = folder.contents_of_files();
    let cases: [(&[&str], &[&str]); 6] = [
        (&["enc.onnx", "sub/dec.onnx"], &["in different folders", "`sub`"]),
        (&["enc.onnx", "enc.onnx"], &["`enc.onnx`", "is given twice"]),
        (&["enc.onnx", "other.onnx"], &["no equal weights"]),
        (&["enc.onnx", "gone.onnx"], &["gone.onnx"]),
        (&["enc.onnx", "dec.onnx", "--data-name=taken.data"], &["taken.data", "exists already"]),
        (&["enc.onnx", "dec.onnx", "--data-name=dec.onnx"], &["dec.onnx"]),
    ];
    for (args, texts) in cases {
        folder.run(&[&["share"], args].concat()).failed(texts);
        assert_eq!(folder.contents_of_files(), before, "{args:?}");
    }
    folder.run(&["share", "enc.onnx"]).misused(&[]);
    let json = folder.run(&["share", "enc.onnx", "other.onnx", "--json"]).json();
    assert_eq!(json["error"]["kind"], "InvalidArgument");
    let json = folder.run(&["share", "enc.onnx", "dec.onnx", "--json", "--dry-run"]).done().json();
    assert_eq!((&json["deduplicated"]["bytes"], &json["dry_run"]), (&1600.into(), &true.into()));
    assert_eq!(folder.contents_of_files(), before);
}

#[cfg(unix)]
#[test]
fn the_shared_file_is_no_more_accessible_than_any_of_the_models() {
    use std::os::unix::fs::PermissionsExt;
    let set = |folder: &Folder, name: &str, mode| {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for (enc, dec, shared) in [(0o600, 0o644, 0o600), (0o644, 0o600, 0o600), (0o664, 0o646, 0o644)]
    {
        let folder = pair();
        set(&folder, "enc.onnx", enc);
        set(&folder, "dec.onnx", dec);
        folder.run(&["share", "enc.onnx", "dec.onnx"]).done();
        let mode = |name| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("shared.onnx.data"), shared, "{enc:o} {dec:o}");
        assert_eq!((mode("enc.onnx"), mode("dec.onnx")), (enc, dec));
    }
}

/// A command that is killed behind the switch leaves some. A name is no proof of it.
#[test]
fn old_files_that_were_left_are_named_by_another_call_and_stay() {
    let folder = pair();
    let args = ["share", "enc.onnx", "dec.onnx"];
    folder.run(&args).done();
    fs::write(folder.path("enc.onnx.data"), "left").unwrap();
    fs::write(folder.path("dec.onnx_data"), "left").unwrap();
    fs::write(folder.path("notes.data"), "mine").unwrap();
    let before = folder.contents_of_files();
    let nothing = "share one weights file already: there is nothing to do";
    for more in [&[][..], &["--keep-old"], &["--dry-run"], &["--json"]] {
        let left = "no model needs `dec.onnx_data`, `enc.onnx.data` beside them";
        folder.run(&[&args[..], more].concat()).failed(&[nothing, left]);
        assert_eq!(folder.contents_of_files(), before);
    }
    folder.save("user.onnx", &crate::support::external(&["enc.onnx.data"]));
    folder.run(&args).failed(&["no model needs `dec.onnx_data` beside them"]);
}

/// A model may name another one as its weights.
#[test]
fn a_model_is_not_removed_as_old_weights() {
    let folder = Folder::new();
    folder.save("c.onnx", &crate::support::model());
    folder.save("a.onnx", &crate::support::external(&["c.onnx", "x.bin"]));
    folder.save("b.onnx", &crate::support::external(&["y.bin"]));
    for name in ["x.bin", "y.bin"] {
        fs::write(folder.path(name), [2; 16]).unwrap();
    }
    let before = fs::read(folder.path("c.onnx")).unwrap();
    let run = folder.run(&["share", "a.onnx", "b.onnx"]).done();
    assert_eq!(fs::read(folder.path("c.onnx")).unwrap(), before, "{run:?}");
    assert!(!folder.path("x.bin").exists() && !folder.path("y.bin").exists(), "{run:?}");
}

/// Only weights that two models have are shared.
#[test]
fn models_with_nothing_in_common_are_not_coupled() {
    let folder = Folder::new();
    save(&folder, "a.onnx", &[("one", 1.0), ("two", 1.0)]);
    save(&folder, "b.onnx", &[("three", 3.0)]);
    folder.run(&["share", "a.onnx", "b.onnx"]).failed(&["no equal weights"]);
    assert_eq!(folder.names().len(), 4);
    // Nor is a model with others that share their weights already.
    save(&folder, "c.onnx", &[("three", 3.0), ("four", 3.0), ("five", 5.0)]);
    folder.run(&["share", "b.onnx", "c.onnx"]).done();
    let before = folder.contents_of_files();
    let run = folder.run(&["share", "b.onnx", "c.onnx", "a.onnx"]);
    run.failed(&["share their equal weights already"]);
    assert_eq!(folder.contents_of_files(), before);
}

/// What is one range of one file already is nothing that is saved, and stored digests go aloud.
#[test]
fn what_was_shared_before_does_not_count() {
    let folder = pair();
    folder.run(&["share", "enc.onnx", "dec.onnx"]).done();
    save(&folder, "third.onnx", &[("own", 3.0)]);
    folder.run(&["pack", "third.onnx", "third.onnx", "--digests"]).done();
    let models = ["enc.onnx", "dec.onnx", "third.onnx"];
    let args = [&["share"][..], &models, &["--json", "--data-name", "all.data"]].concat();
    let json = folder.run(&args).json();
    assert_eq!(json["deduplicated"]["tensors"], 1, "{json}");
    assert!(json["warnings"].to_string().contains("digests"), "{json}");
}
