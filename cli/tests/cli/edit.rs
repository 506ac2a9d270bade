//! `edit`.

use std::fs;

use onnx_container::proto::{Message, ModelProto, Str};
use onnx_container::{Container, MmapChoice};

use crate::support::{Folder, model};

/// The model in the file `name`, with handles.
fn read(folder: &Folder, name: &str) -> ModelProto {
    Container::load(folder.path(name), MmapChoice::never()).unwrap().model().clone()
}

/// Every name and text that `model` has, counted where it is `of`.
fn count(model: &ModelProto, of: &str) -> usize {
    let mut count = 0;
    model.strings(&mut |text| count += usize::from(*text == of));
    count
}

#[test]
fn names_metadata_and_descriptions_are_changed_and_weights_stay() {
    let folder = Folder::packed();
    let weights = fs::read(folder.path("p.onnx.data")).unwrap();
    let before = read(&folder, "p.onnx");
    let edits = [
        "--set-metadata=task=a=b",
        "--producer=mine",
        "--doc-string=About",
        "--graph-name=net",
        "--rename-input=x=tokens",
        "--rename-tensor=y=hidden",
        "--rename-tensor=z.then_branch/inner=deep",
    ];
    let run = folder.run(&[&["edit", "p.onnx", "o.onnx", "--verify"], &edits[..]].concat()).done();
    run.says(&[
        "set       metadata task",
        "set       the producer",
        "renamed   x to tokens, in 2 places",
        "renamed   y to hidden, in 3 places",
        "wrote     1 file",
        "kept      1 file of weights",
        "checked   no errors",
    ]);
    assert_eq!(fs::read(folder.path("p.onnx.data")).unwrap(), weights);
    assert!(!folder.path("o.onnx.data").exists());
    let after = read(&folder, "o.onnx");
    for (old, new) in [("x", "tokens"), ("y", "hidden"), ("inner", "deep")] {
        assert_eq!(count(&before, old), count(&after, new), "{old}");
        assert_eq!((count(&after, old), count(&before, new)), (0, 0), "{old}");
    }
    let entry = &after.metadata_props[0];
    let text = |text: &Option<Str>| text.as_ref().unwrap().to_string();
    assert_eq!((text(&entry.key), text(&entry.value)), ("task".into(), "a=b".into()));
    assert_eq!(text(&after.producer_name), "mine");
    assert_eq!(after.doc_string.as_ref().unwrap().to_string(), "About");
    assert_eq!(text(&after.graph.as_ref().unwrap().name), "net");

    // There and back, over itself: the bytes are those of the model that was read.
    folder.run(&["edit", "p.onnx", "a.onnx", "--set-metadata=k=v"]).done();
    folder.run(&["edit", "a.onnx", "b.onnx", "--rename-input=x=t", "--rename-tensor=y=h"]).done();
    folder.run(&["edit", "b.onnx", "b.onnx", "--rename-input=t=x", "--rename-tensor=h=y"]).done();
    assert_eq!(fs::read(folder.path("a.onnx")).unwrap(), fs::read(folder.path("b.onnx")).unwrap());
    folder.run(&["edit", "b.onnx", "b.onnx", "--remove-metadata=k", "--doc-string="]).done();
    assert_eq!(read(&folder, "b.onnx"), before);
}

#[test]
fn what_cannot_be_done_is_said_and_nothing_is_written() {
    let folder = Folder::with_model();
    let cases: &[(&str, &[&str])] = &[
        ("--rename-tensor=w=x", &["`w`", "another value is called `x`"]),
        ("--rename-tensor=y=z_then", &["`y`", "another value is called `z_then`"]),
        ("--rename-tensor=smal=v", &["did you mean `small`?"]),
        ("--rename-input=w=v", &["the graph has no input of this name"]),
        ("--rename-input=flg=v", &["did you mean `flag`?"]),
        ("--rename-output=x=v", &["the graph has no output of this name"]),
        ("--rename-tensor=w=", &["empty name"]),
        ("--rename-tensor=w=w", &["its name already"]),
        ("--rename-input=z=v", &["no input of this name"]),
        ("--remove-metadata=k", &["the model has no metadata `k`"]),
        ("--set-metadata=onnx_container.sha256=0", &["a stored digest"]),
    ];
    for (edit, texts) in cases {
        folder.run(&["edit", "m.onnx", "o.onnx", edit]).failed(texts);
    }
    for (args, text) in [
        (&[][..], "--set-metadata"),
        (&["--set-metadata=k"], "not a key and a value such as K=V"),
        (&["--rename-tensor=w"], "not two names such as A=B"),
        (&["--graph-name="], "a graph needs a name"),
        (&["--rename-tensor=s.then/y=s.then/b"], "--rename-tensor s.then/y=b"),
    ] {
        folder.run(&[&["edit", "m.onnx", "o.onnx"], args].concat()).misused(&[text]);
    }
    let run = folder.run(&["edit", "m.onnx", "o.onnx", "--rename-tensor=w=v", "--dry-run"]).done();
    run.says(&["renames   w to v, in 1 place", "nothing was written"]);
    assert_eq!(folder.names(), ["m.onnx"]);
    assert_eq!(read(&folder, "m.onnx").functions, model().functions);
}

#[test]
fn json_has_what_was_changed() {
    let folder = Folder::with_model();
    let args = ["edit", "m.onnx", "o.onnx", "--json", "--rename-tensor=w=v", "--producer=p"];
    let said = folder.run(&args).done().json();
    assert_eq!(said["renamed"], serde_json::json!([{"from": "w", "to": "v", "places": 1}]));
    assert_eq!((&said["producer"], &said["graph_name"]), (&"p".into(), &serde_json::Value::Null));
    let args = ["edit", "m.onnx", "o.onnx", "--json", "--rename-tensor=none=v"];
    assert_eq!(folder.run(&args).json()["error"]["kind"], "MissingTensor");
}
