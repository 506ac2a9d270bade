//! Every call of `docs/questions.md` does what the page says: it ends well, on the models that the
//! page names.

use std::path::Path;

use crate::jobs::folder;
use crate::support::Folder;

/// The models of the page.
fn models() -> Folder {
    let folder = folder();
    std::fs::create_dir(folder.path("web")).unwrap();
    crate::signing::make_keys(&folder);
    for (from, to) in [("new", "model"), ("new", "encoder"), ("new", "decoder")] {
        folder.run(&["cp", &format!("{from}.onnx"), &format!("{to}.onnx")]).done();
    }
    folder.run(&["strip", "model.onnx", "structure.onnx"]).done();
    folder.run(&["export-safetensors", "model.onnx", "weights.safetensors"]).done();
    folder
}

#[test]
fn every_call_of_the_page_of_questions_works() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/questions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut calls = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        // The calls of a row follow each other.
        let folder = models();
        let spans = row.split('`').skip(1).step_by(2);
        for call in spans.filter_map(|span| span.strip_prefix("onnx-container ")) {
            let run = folder.run(&call.split_whitespace().collect::<Vec<_>>());
            // Models that differ are what `diff` is asked for.
            let expected = i32::from(call.starts_with("diff "));
            assert_eq!(run.code(), expected, "{call}: {run:?}");
            calls += 1;
        }
    }
    assert!(calls >= 28, "{calls}");
}
