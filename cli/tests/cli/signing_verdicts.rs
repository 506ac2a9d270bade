//! What `verify-signature` says of files and content that are not as they were signed, and why.

use std::fs;

use onnx_container::proto::TensorProto;
use serde_json::json;

use crate::signing::{folder, sign, verify};
use crate::support::{external, model};

/// The last line, and what is wrapped of it.
fn conclusion(text: &str) -> String {
    let from = text.rfind("NOT VERIFIED").or_else(|| text.rfind("verified  ")).unwrap();
    text[from..].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_model_that_cannot_be_read_is_no_verdict_on_its_content() {
    let folder = folder();
    sign(&folder, &[]).done();
    fs::remove_file(folder.path("m/m.onnx.data")).unwrap();
    let run = verify(&folder, &[]).failed(&[]);
    run.says(&["content   NOT COMPARED (m/model.digest.sig): ", "m.onnx.data`: no\n"]);
    let json = verify(&folder, &["--json"]).failed(&[]).json();
    assert_eq!(json["content"]["error"]["kind"], "MissingFile", "{json}");
    assert!(json["content"]["as_signed"].is_null() && json["content"]["digest"].is_null());
    let reason = "`m.onnx.data` was signed and is gone; the content was not compared";
    assert_eq!((&json["ok"], &json["reason"]), (&json!(false), &json!(reason)));
    // Without a statement on files too.
    fs::remove_file(folder.path("m/model.sig")).unwrap();
    let run = verify(&folder, &[]).failed(&[]);
    assert_eq!(conclusion(&run.stdout()), "NOT VERIFIED: the content was not compared");
    fs::write(folder.path("m/m.onnx"), [0xff; 9]).unwrap();
    verify(&folder, &[]).failed(&[]).says(&["content   NOT COMPARED"]);
}

#[test]
fn content_excuses_only_files_that_were_the_models() {
    let folder = folder();
    fs::write(folder.path("m/config.json"), "{}").unwrap();
    fs::write(folder.path("m/other.data"), [1; 16]).unwrap();
    sign(&folder, &["--all-files"]).done();
    for name in ["config.json", "other.data"] {
        let bytes = fs::read(folder.path(&format!("m/{name}"))).unwrap();
        fs::remove_file(folder.path(&format!("m/{name}"))).unwrap();
        let said = format!("NOT VERIFIED: `{name}` was signed and is gone");
        assert_eq!(conclusion(&verify(&folder, &[]).failed(&[]).stdout()), said);
        fs::write(folder.path(&format!("m/{name}")), bytes).unwrap();
    }
    folder.run(&["embed", "m/m.onnx", "m/m.onnx"]).done();
    fs::remove_file(folder.path("m/m.onnx.data")).ok();
    let run = verify(&folder, &[]).done();
    let said = "verified by content alone: its files were written anew, and 1 signed file is gone (m.onnx.data)";
    assert_eq!(conclusion(&run.stdout()), said);
    fs::remove_file(folder.path("m/config.json")).unwrap();
    let run = verify(&folder, &[]).failed(&[]);
    assert_eq!(conclusion(&run.stdout()), "NOT VERIFIED: `config.json` was signed and is gone");
    // Elsewhere, a folder of which no file is there.
    fs::create_dir(folder.path("n")).unwrap();
    folder.run(&["embed", "m/m.onnx", "n/m.onnx"]).done();
    let elsewhere =
        ["verify-signature", "n/m.onnx", "--key", "keys/P-256.pub", "-s", "m/model.sig"];
    let run = folder.run(&elsewhere).failed(&[]);
    assert_eq!(conclusion(&run.stdout()), "NOT VERIFIED: 2 files were signed and are gone");
}

#[test]
fn a_signed_file_that_was_not_the_models_is_not_excused_when_the_model_takes_it() {
    let folder = folder();
    fs::write(folder.path("m/a.bin"), [1; 16]).unwrap();
    fs::write(folder.path("m/config.json"), [2; 16]).unwrap();
    folder.save("m/m.onnx", &external(&["a.bin"]));
    fs::remove_file(folder.path("m/m.onnx.data")).unwrap();
    sign(&folder, &["--all-files"]).done();
    // The same content, with its weights in a file that was signed as another one.
    folder.save("m/m.onnx", &external(&["config.json"]));
    fs::write(folder.path("m/config.json"), [1; 16]).unwrap();
    let run = verify(&folder, &[]).failed(&[]).says(&["content   as signed"]);
    assert_eq!(conclusion(&run.stdout()), "NOT VERIFIED: `config.json` was changed");
}

#[test]
fn an_unsigned_file_is_excused_if_it_holds_nothing_but_weights() {
    let folder = folder();
    fs::write(folder.path("m/a.bin"), [1; 16]).unwrap();
    folder.save("m/m.onnx", &external(&["a.bin"]));
    fs::remove_file(folder.path("m/m.onnx.data")).unwrap();
    sign(&folder, &["--all-files"]).done();
    folder.save("m/m.onnx", &external(&["b.py"]));
    fs::write(folder.path("m/b.py"), [1; 16]).unwrap();
    verify(&folder, &[]).done();
    fs::write(folder.path("m/b.py"), [[1; 16], [0; 16]].concat()).unwrap();
    verify(&folder, &[]).done();
    fs::write(folder.path("m/b.py"), [&[1; 16][..], b"\nimport os"].concat()).unwrap();
    let run = verify(&folder, &[]).failed(&[]).says(&["content   as signed"]);
    let said = "NOT VERIFIED: `b.py` was not signed (--ignore-unsigned-files ignores it)";
    assert_eq!(conclusion(&run.stdout()), said);
    // A tensor of no elements covers nothing, wherever it says that it is.
    fs::remove_file(folder.path("m/b.py")).unwrap();
    let empty_at = |location| {
        let mut model = external(&["a.bin", location]);
        let tensor = &mut model.graph.as_mut().unwrap().initializer[1];
        tensor.dims = vec![0];
        tensor.external_data.retain(|entry| *entry.key.as_ref().unwrap() == "location");
        folder.save("m/m.onnx", &model);
    };
    empty_at("a.bin");
    sign(&folder, &["--all-files"]).done();
    empty_at("c.py");
    fs::write(folder.path("m/c.py"), "import os").unwrap();
    let ignoring = verify(&folder, &["--ignore-unsigned-files"]).failed(&[]);
    ignoring.says(&["content   as signed", "unsigned `c.py`"]);
}

#[test]
fn the_last_line_says_why_a_model_is_not_verified() {
    let folder = folder();
    sign(&folder, &[]).done();
    let said = |options: &[&str]| {
        let run = verify(&folder, options).failed(&[]);
        let json = verify(&folder, &[options, &["--json"]].concat()).failed(&[]).json();
        let line = conclusion(&run.stdout());
        assert_eq!(line, format!("NOT VERIFIED: {}", json["reason"].as_str().unwrap()));
        line["NOT VERIFIED: ".len()..].to_owned()
    };
    fs::write(folder.path("m/a"), "a").unwrap();
    assert_eq!(said(&[]), "`a` was not signed (--ignore-unsigned-files ignores it)");
    fs::write(folder.path("m/b"), "b").unwrap();
    assert_eq!(said(&[]), "2 files were not signed (--ignore-unsigned-files ignores them)");
    let strict = ["--require-files", "--ignore-unsigned-files"];
    folder.run(&["pack", "m/m.onnx", "m/m.onnx", "--align", "128", "--min-bytes", "0"]).done();
    verify(&folder, &strict[1..]).done();
    assert_eq!(said(&strict), "--require-files, and 2 files were changed");
    let run = folder.run(&["verify-signature", "m", "--key", "keys/P-256.pub", strict[1]]);
    let line = conclusion(&run.failed(&[]).stdout());
    let folder_has_none = "2 files were changed; the content was not compared: give the model";
    assert_eq!(line, format!("NOT VERIFIED: {folder_has_none}"));
    fs::rename(folder.path("m/model.sig"), folder.path("away.sig")).unwrap();
    assert_eq!(said(&strict), "--require-files needs a signature on files, and there is none");
    fs::rename(folder.path("away.sig"), folder.path("m/model.sig")).unwrap();
    let mut other = model();
    let zeros = TensorProto::new("more", TensorProto::FLOAT, [1]).with_raw_data(vec![0; 4]);
    other.graph.as_mut().unwrap().initializer.push(zeros);
    folder.save("m/m.onnx", &other);
    let reason = said(&["--ignore-unsigned-files"]);
    assert!(reason.ends_with("; the content is not as signed"), "{reason}");
    // Digests are compared by people too.
    let text = verify(&folder, &[]).stdout();
    let digits = |word: &&str| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    assert_eq!(words.filter(digits).count(), 1 + 2 + 2 + 2, "{text}");
    assert!(!text.contains("..."), "{text}");
}
