//! `strip` and `attach`.

use std::fs;

use onnx_container::proto::ModelProto;
use onnx_container::{Container, LoadOptions, traversal};

use crate::support::{Folder, external, floats, model, tensors};

const SAID: &str = "the weights of this model were stripped";

fn digest(folder: &Folder, name: &str) -> String {
    folder.run(&["digest", name]).done().stdout().split_whitespace().next().unwrap().to_owned()
}

/// Name, type and dims of each tensor of the model `name`, which may have no weights.
fn forms(folder: &Folder, name: &str) -> Vec<(String, Option<i32>, Vec<i64>)> {
    let options = LoadOptions::new().weights(false);
    let container = Container::load(folder.path(name), options).unwrap();
    let form = |(place, tensor): (traversal::Place<'_>, &onnx_container::proto::TensorProto)| {
        (place.qualified_name(tensor), tensor.data_type, tensor.dims.clone())
    };
    traversal::iter(container.model()).map(form).collect()
}

#[test]
fn what_was_stripped_comes_back_the_same() {
    for stored in ["pack", "split", "embed"] {
        let folder = Folder::with_model();
        folder.run(&[stored, "m.onnx", "w.onnx"]).done();
        let run = folder.run(&["strip", "w.onnx", "s.onnx"]).done();
        run.says(&["stripped  4 tensors of their elements (9.6 kB)", "wrote     1 file", "s.onnx"]);
        assert_eq!(forms(&folder, "s.onnx"), forms(&folder, "w.onnx"), "{stored}");
        let bytes = fs::read(folder.path("s.onnx")).unwrap().len();
        assert!(bytes < 6000, "{stored}: {bytes}");
        let run = folder.run(&["attach", "s.onnx", "w.onnx", "o.onnx", "--verify"]).done();
        run.says(&[
            "attached  the elements of 4 tensors (9.6 kB): names, types and shapes are the same",
            "checked   no errors",
        ]);
        assert_eq!(digest(&folder, "o.onnx"), digest(&folder, "w.onnx"), "{stored}");
        assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("m.onnx")));
    }
}

/// Who strips to hide weights must see what is still there.
#[test]
fn small_tensors_that_keep_their_elements_are_told() {
    let folder = Folder::with_model();
    let cases = [
        ("0", None, 0, 0),
        ("1K", Some("1 tensor with its elements (16 B): --min-bytes 0 strips it too"), 1, 16),
        (
            "3K",
            Some("4 tensors with their elements (5.6 kB): --min-bytes 0 strips them too"),
            4,
            5616,
        ),
    ];
    for (least, row, small, bytes) in cases {
        let args = ["strip", "m.onnx", "s.onnx", "--min-bytes", least];
        let run = folder.run(&args).done();
        let stdout = run.stdout();
        let rows = stdout.lines().filter_map(|line| line.strip_prefix("kept      "));
        let said = rows.filter(|row| row.contains("--min-bytes")).collect::<Vec<_>>();
        assert_eq!(said, row.as_slice(), "{run:?}");
        let json = folder.run(&[&args[..], &["--json"]].concat()).done().json();
        let said = (&json["stripped"]["small"], &json["stripped"]["small_bytes"]);
        assert_eq!(said, (&small.into(), &bytes.into()), "{json}");
    }
}

#[test]
fn weights_stay_in_their_files_on_request_and_no_weight_is_read_to_strip() {
    let folder = Folder::packed();
    let data = fs::read(folder.path("p.onnx.data")).unwrap();
    // Not even there.
    fs::rename(folder.path("p.onnx.data"), folder.path("away")).unwrap();
    folder.run(&["strip", "p.onnx", "s.onnx"]).done();
    fs::rename(folder.path("away"), folder.path("p.onnx.data")).unwrap();
    let run = folder.run(&["attach", "s.onnx", "p.onnx", "o.onnx", "--keep-files"]).done();
    run.says(&["wrote     1 file", "kept      1 file of weights"]);
    assert!(!folder.path("o.onnx.data").exists());
    assert_eq!(fs::read(folder.path("p.onnx.data")).unwrap(), data);
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("p.onnx")));
    fs::create_dir(folder.path("other")).unwrap();
    let args = ["attach", "s.onnx", "p.onnx", "other/o.onnx", "--keep-files"];
    folder.run(&args).failed(&["lies outside the folder of the model"]);
    assert_eq!(fs::read_dir(folder.path("other")).unwrap().count(), 0);
}

#[test]
fn a_stripped_model_says_what_it_is() {
    let folder = Folder::packed();
    folder.run(&["strip", "p.onnx", "s.onnx"]).done();
    let check = folder.run(&["check", "s.onnx"]);
    assert_eq!(check.code(), 1);
    check.says(&[SAID, "attach"]);
    for args in [
        &["pack", "s.onnx", "o.onnx"][..],
        &["digest", "s.onnx"],
        &["edit", "s.onnx", "o.onnx", "--producer=p"],
        &["files", "s.onnx"],
    ] {
        folder.run(args).failed(&["stripped"]);
    }
    folder.run(&["inspect", "s.onnx"]);
    // It moves and is copied without weights.
    folder.run(&["cp", "s.onnx", "t.onnx"]).done();
    folder.run(&["mv", "t.onnx", "u.onnx"]).done();
    folder.run(&["attach", "u.onnx", "p.onnx", "o.onnx"]).done();
    // And is stripped again as it is.
    folder.run(&["strip", "u.onnx", "v.onnx"]).done();
    assert_eq!(fs::read(folder.path("u.onnx")).unwrap(), fs::read(folder.path("v.onnx")).unwrap());
    folder.run(&["rm", "u.onnx"]).done();
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let change = |change: &dyn Fn(&mut ModelProto)| {
        let mut model = model();
        change(&mut model);
        model
    };
    let initializer = |model: &mut ModelProto, number: usize, name: &str, count: i64| {
        model.graph.as_mut().unwrap().initializer[number] = floats(name, count);
    };
    let mut others = floats("small", 4);
    others.raw_data = Some(vec![7; 16].into());
    let cases = [
        (
            "a name",
            change(&|model| initializer(model, 0, "v", 1000)),
            &["`w`", "no tensor of this name"][..],
        ),
        (
            "dims",
            change(&|model| model.graph.as_mut().unwrap().initializer[0].dims = vec![10, 100]),
            &["`w`", "[1000], the one with weights is [10, 100]"],
        ),
        (
            "a type",
            change(&|model| model.graph.as_mut().unwrap().initializer[0].data_type = Some(6)),
            &["`w`", "FLOAT, the one with weights is INT32"],
        ),
        (
            "a tensor that was not stripped",
            change(&|model| model.graph.as_mut().unwrap().initializer[1] = others.clone()),
            &["`small`", "they are of two models"],
        ),
        (
            "a tensor more",
            change(&|model| model.graph.as_mut().unwrap().initializer.push(floats("more", 2))),
            &["`more`", "the stripped model does not"],
        ),
    ];
    for (what, other, texts) in cases {
        let folder = Folder::with_model();
        folder.run(&["strip", "m.onnx", "s.onnx"]).done();
        folder.save("other.onnx", &other);
        folder.run(&["attach", "s.onnx", "other.onnx", "o.onnx"]).failed(texts);
        assert!(!folder.path("o.onnx").exists(), "{what}");
        let edited = folder.run(&["attach", "s.onnx", "other.onnx", "o.onnx", "--edited"]);
        let passes = what.ends_with("stripped") || what.ends_with("more");
        assert_eq!(edited.code(), i32::from(!passes), "{what}: {edited:?}");
    }
    let folder = Folder::with_model();
    folder.run(&["strip", "m.onnx", "s.onnx"]).done();
    let run = folder.run(&["attach", "m.onnx", "m.onnx", "o.onnx"]);
    run.failed(&["this model was not stripped"]);
    folder.run(&["attach", "s.onnx", "s.onnx", "o.onnx"]).failed(&[SAID]);
}

#[test]
fn stored_digests_stay_and_other_weights_are_found_by_them() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx", "--digests"]).done();
    folder.run(&["strip", "p.onnx", "s.onnx"]).done();
    let run = folder.run(&["attach", "s.onnx", "p.onnx", "o.onnx"]).done();
    run.says(&["compared  7 tensors with the stored digests: the same"]);
    // The same names and shapes with other weights: another training.
    let mut other = model();
    other.graph.as_mut().unwrap().initializer[0].raw_data = Some(vec![1; 4000].into());
    folder.save("other.onnx", &other);
    let run = folder.run(&["attach", "s.onnx", "other.onnx", "x.onnx"]);
    run.failed(&["`w`", "these are not the weights that were stripped"]);
    assert!(!folder.path("x.onnx").exists());
    // Without stored digests they fit.
    folder.run(&["strip", "m.onnx", "t.onnx"]).done();
    folder.run(&["attach", "t.onnx", "other.onnx", "x.onnx"]).done();
}

#[test]
fn tied_tensors_stay_tied() {
    let folder = Folder::new();
    let mut tied = external(&["data", "./data", "other"]);
    for tensor in &mut tied.graph.as_mut().unwrap().initializer {
        tensor.dims = vec![4];
    }
    folder.save("m.onnx", &tied);
    fs::write(folder.path("data"), [1; 16]).unwrap();
    fs::write(folder.path("other"), [2; 16]).unwrap();
    folder.run(&["strip", "m.onnx", "s.onnx"]).done().says(&["3 tensors of their elements (32 B)"]);
    let run = folder.run(&["attach", "s.onnx", "m.onnx", "o.onnx"]).done();
    run.says(&["the elements of 3 tensors (32 B)"]);
    assert!(fs::metadata(folder.path("o.onnx.data")).unwrap().len() < 512);
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("m.onnx")));
}

#[test]
fn a_dry_run_writes_nothing_and_json_tells_the_rest() {
    let folder = Folder::with_model();
    let run = folder.run(&["strip", "m.onnx", "s.onnx", "--dry-run"]).done();
    run.says(&["strips    4 tensors", "nothing was written"]);
    assert_eq!(folder.names(), ["m.onnx"]);
    let said = folder.run(&["strip", "m.onnx", "s.onnx", "--json"]).done().json();
    assert_eq!(
        (&said["stripped"]["stripped"], &said["stripped"]["bytes"]),
        (&4.into(), &9600.into())
    );
    let args = ["attach", "s.onnx", "m.onnx", "o.onnx", "--dry-run", "--json"];
    let said = folder.run(&args).done().json();
    assert_eq!((&said["attached"]["attached"], &said["dry_run"]), (&4.into(), &true.into()));
    let said = folder.run(&["attach", "m.onnx", "m.onnx", "o.onnx", "--json"]).json();
    assert_eq!(said["error"]["kind"], "InvalidArgument");
    assert_eq!(folder.names(), ["m.onnx", "s.onnx"]);
}

/// Where the weights are in their files is said by the model alone.
#[test]
fn a_model_is_not_stripped_in_place() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    let before = fs::read(folder.path("p.onnx")).unwrap();
    for options in [&[][..], &["--dry-run"]] {
        let args = [&["strip", "p.onnx", "./p.onnx"][..], options].concat();
        folder.run(&args).failed(&["OUT is IN"]);
        assert_eq!(fs::read(folder.path("p.onnx")).unwrap(), before);
    }
}

/// A scan takes nothing for missing that was taken away on purpose.
#[test]
fn a_scan_says_of_a_stripped_model_what_it_is() {
    let folder = Folder::with_model();
    folder.run(&["strip", "m.onnx", "s.onnx"]).done();
    let json = folder.run(&["scan", ".", "--json"]).done().json();
    let models = json["scans"][0]["models"].as_array().unwrap();
    let files = models.iter().flat_map(|model| model["files"].as_array().unwrap());
    let states: Vec<_> = files.map(|file| file["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["stripped"], "{json}");
    folder.run(&["scan", "."]).done().says(&["s.onnx  (its weights were stripped)"]);
}
