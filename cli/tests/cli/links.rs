//! Links that a command replaces by files, which it says.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::Folder;

/// A Hugging Face cache with a packed model, as `hub/snapshots/1/m.onnx`.
fn cache() -> Folder {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "m.onnx", "--data-name", "m.onnx_data"]).done();
    fs::create_dir_all(folder.path("hub/blobs")).unwrap();
    fs::create_dir_all(folder.path("hub/snapshots/1")).unwrap();
    for (name, blob) in [("m.onnx", "b1"), ("m.onnx_data", "b2")] {
        fs::rename(folder.path(name), folder.path("hub/blobs").join(blob)).unwrap();
        let link = folder.path("hub/snapshots/1").join(name);
        symlink(format!("../../blobs/{blob}"), link).unwrap();
    }
    folder
}

/// The command, its options, and the names of the links that it replaces.
const CASES: [(&[&str], &[&str]); 4] = [
    (&["edit", "--set-metadata", "a=b"], &["m.onnx", "m.onnx_data"]),
    (&["pack", "--align-large", "65536", "--align", "512"], &["m.onnx", "m.onnx_data"]),
    (&["cast", "--to", "float16"], &["m.onnx", "m.onnx_data"]),
    (&["embed"], &["m.onnx"]),
];

#[test]
fn a_link_of_a_cache_that_becomes_a_file_is_told() {
    let said = "a link of a Hugging Face cache, which became a file of its own: the blob in the \
                cache is not changed";
    for (args, names) in CASES {
        let folder = cache();
        let blobs = folder.contents_of("hub/blobs");
        let model = "hub/snapshots/1/m.onnx";
        let args = [&args[..1], &[model, model], &args[1..]].concat();
        let dry = folder.run(&[&args[..], &["--dry-run"]].concat());
        assert_eq!(
            dry.stderr().matches("which would become a file").count(),
            names.len(),
            "{dry:?}"
        );
        let run = folder.run(&[&args[..], &["--json"]].concat());
        assert_eq!(run.code(), 0, "{run:?}");
        let warnings = run.json()["warnings"].clone();
        let warnings: Vec<_> =
            warnings.as_array().unwrap().iter().map(ToString::to_string).collect();
        for name in names {
            let text = format!("`hub/snapshots/1/{name}`: {said}");
            assert!(run.stderr().contains(&text), "{run:?}");
            assert!(warnings.iter().any(|warning| warning.contains(&text)), "{warnings:?}");
            assert!(folder.path("hub/snapshots/1").join(name).metadata().unwrap().is_file());
        }
        assert_eq!(run.stderr().matches("Hugging Face").count(), names.len(), "{run:?}");
        assert!(folder.contents_of("hub/blobs") == blobs, "{args:?}");
    }
}

#[test]
fn a_link_in_another_case_is_the_model_itself() {
    let folder = Folder::with_model();
    symlink("m.onnx", folder.path("M.onnx")).unwrap();
    for command in ["mv", "cp"] {
        let run = folder.run(&[command, "m.onnx", "M.onnx"]);
        run.failed(&["is the model itself: there is nothing to do"]);
    }
}

#[test]
fn other_links_are_told_too_and_links_that_stay_are_not() {
    let folder = Folder::with_model();
    symlink("m.onnx", folder.path("link.onnx")).unwrap();
    let run = folder.run(&["edit", "m.onnx", "link.onnx", "--set-metadata", "a=b"]);
    assert_eq!(run.code(), 0, "{run:?}");
    let said = "`link.onnx`: a link to `";
    assert!(run.stderr().contains(said) && run.stderr().contains("not changed"), "{run:?}");
    symlink("m.onnx", folder.path("other.onnx")).unwrap();
    folder.run(&["edit", "m.onnx", "o.onnx", "--set-metadata", "a=b"]).done();
    folder.run(&["edit", "other.onnx", "o.onnx", "--set-metadata", "a=b"]).done();
    assert!(folder.path("other.onnx").is_symlink());
}

#[test]
fn a_job_tells_of_the_links_that_its_commit_replaces() {
    let folder = cache();
    let blobs = folder.contents_of("hub/blobs");
    let model = "hub/snapshots/1/m.onnx";
    folder.run(&["job", "rewrite", model, model, "--cast", "float16", "-o", "m.job"]).done();
    folder.run(&["job", "write", "m.job", "--all"]).done();
    let run = folder.run(&["job", "commit", "m.job", "--json"]);
    assert_eq!(run.code(), 0, "{run:?}");
    assert_eq!(run.stderr().matches("a link of a Hugging Face cache").count(), 2, "{run:?}");
    assert_eq!(run.json()["warnings"].as_array().unwrap().len(), 2, "{run:?}");
    assert!(folder.contents_of("hub/blobs") == blobs);
}
