//! `scan DIR...`, and `check` of several models and of folders.

use std::fs;

use crate::support::{Folder, external};

/// A folder with two models, of which one lacks a file, and with what no model needs.
fn tree() -> Folder {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("tree/lost")).unwrap();
    folder.save("tree/a.onnx", &external(&["a.onnx.data"]));
    folder.save("tree/b.onnx", &external(&["gone"]));
    for name in ["a.onnx.data", "a.onnx_data", "more", "lost/w.data"] {
        fs::write(folder.path("tree").join(name), [0; 16]).unwrap();
    }
    fs::write(folder.path("tree/notes.txt"), "notes").unwrap();
    fs::write(folder.path("tree/page.onnx"), "<!doctype html>").unwrap();
    folder
}

/// What Unix says of a file that is not there.
const NOT_THERE: &str = if cfg!(unix) { "No such file or directory (os error 2)" } else { "" };

#[test]
fn a_folder_is_told_in_rows() {
    let folder = tree();
    let before = folder.contents_of("tree");
    let run = folder.run(&["scan", "tree", "--equal", "--min-bytes", "8"]).done();
    let (a, b) = (len(&folder, "tree/a.onnx"), len(&folder, "tree/b.onnx"));
    let lines = [
        "   bytes     model  files  path".to_owned(),
        format!("{:>6} B  {a:>6} B      2  tree/a.onnx", a + 16),
        format!("{b:>6} B  {b:>6} B      2  tree/b.onnx  (1 of its files missing)"),
        format!("missing   tree/gone, which tree/b.onnx needs: {NOT_THERE}"),
        "no model  tree/page.onnx: a web page, not the file itself: the download failed".to_owned(),
        "possible  tree/a.onnx_data (16 B): named after `a.onnx`, which does not need it; another \
         file here is not whole or cannot be read, and may be a model that needs it"
            .to_owned(),
        "possible  tree/more (16 B): a binary file beside a model that does not need it".to_owned(),
        "weights   tree/lost (16 B): 1 weights file and no model, such as tree/lost/w.data"
            .to_owned(),
        "total     2 models; 8 files in 2 folders".to_owned(),
        "free      0 B of files that nobody needs, and 32 B of files that may be such".to_owned(),
        "share     0 B more by storing equal weights once".to_owned(),
    ];
    let text = run.stdout();
    let told: Vec<_> = text.lines().collect();
    assert_eq!(told.len(), lines.len(), "{text}");
    for (line, expected) in told.iter().zip(&lines) {
        assert!(line.starts_with(expected), "{line:?} is not {expected:?}");
    }
    assert_eq!(folder.contents_of("tree"), before);
    // Nothing is unknown without the download that failed.
    fs::remove_file(folder.path("tree/page.onnx")).unwrap();
    let run = folder.run(&["scan", "tree"]).done();
    run.says(&["orphan    tree/a.onnx_data (16 B)", "free      16 B of files that nobody needs"]);
    // Several folders, and what cannot be scanned.
    let run = folder.run(&["scan", "tree/lost", "tree"]).done();
    run.says(&["tree/lost:\nno models\n", "\ntree:\n"]);
    folder.run(&["scan", "tree/a.onnx"]).failed(&["not a folder"]);
    folder.run(&["scan", "trees"]).failed(&["did you mean `tree`?"]);
}

#[test]
fn weights_that_are_cut_off_are_told() {
    let folder = Folder::packed();
    fs::create_dir(folder.path("t")).unwrap();
    for name in ["p.onnx", "p.onnx.data"] {
        fs::rename(folder.path(name), folder.path("t").join(name)).unwrap();
    }
    let whole = len(&folder, "t/p.onnx.data");
    let told = |folder: &Folder| folder.run(&["scan", "t", "--json"]).done().json();
    assert_eq!(told(&folder)["scans"][0]["models"][0]["is_whole"], true);
    let file = fs::OpenOptions::new().write(true).open(folder.path("t/p.onnx.data")).unwrap();
    file.set_len(1).unwrap();
    folder.run(&["scan", "t"]).done().says(&[
        "t/p.onnx  (1 of its files cut off)",
        "\ncut off   t/p.onnx.data, which t/p.onnx needs: cut off: 1 bytes, its tensors need ",
    ]);
    let model = &told(&folder)["scans"][0]["models"][0];
    assert_eq!((&model["is_whole"], &model["is_damaged"]), (&false.into(), &false.into()));
    assert_eq!(
        (&model["files"][0]["state"], &model["files"][0]["bytes"]),
        (&"cut_off".into(), &1.into())
    );
    assert!(whole > 1);
}

fn len(folder: &Folder, name: &str) -> u64 {
    fs::metadata(folder.path(name)).unwrap().len()
}

#[test]
fn what_killed_commands_left_is_told_and_stays() {
    let folder = tree();
    let staging = folder.path("tree/.a.onnx.saving-aB3xYz");
    fs::create_dir_all(staging.join("new")).unwrap();
    fs::create_dir_all(staging.join("old")).unwrap();
    let unfinished = folder.path("tree/.writing-000rJB");
    fs::write(&unfinished, "").unwrap();
    let run = folder.run(&["scan", "tree"]).done();
    run.says(&["left      tree/.a.onnx.saving-aB3xYz", "left      tree/.writing-000rJB"]);
    assert!(staging.exists() && unfinished.exists());
    let json = folder.run(&["scan", "tree", "--json"]).done().json();
    let kinds: Vec<_> = json["scans"][0]["left"].as_array().unwrap().iter().collect();
    assert_eq!((kinds.len(), &kinds[0]["kind"]), (2, &"unneeded".into()));
    folder.run(&["check", "tree"]).says(&["tree/.a.onnx.saving-aB3xYz"]);
}

#[test]
fn models_and_folders_are_checked_in_one_process() {
    let folder = tree();
    let run = folder.run(&["check", "tree"]);
    assert_eq!(run.code(), 1, "{run:?}");
    let run = run.says(&[
        "ok      tree/a.onnx: no errors, ",
        "not ok  tree/b.onnx: 1 error",
        "not ok  tree: 1 error, ",
        "\ntree/b.onnx:\n  error: ",
        "`tree/page.onnx`: a web page",
        "`tree/lost`: 1 weights file (16 B) and no model",
        "\nnot ok: 2 models, 1 not ok, 1 error of the folder, ",
    ]);
    // An orphan that the check of the model names is not named again.
    assert_eq!(run.stdout().matches("a.onnx_data").count(), 1, "{run:?}");
    let json = folder.run(&["check", "tree", "tree/a.onnx", "--json"]);
    assert_eq!(json.code(), 1);
    let json = json.json();
    assert_eq!((json["models"].as_array().unwrap().len(), &json["ok"]), (2, &false.into()));
    assert_eq!(json["models"][0]["path"], "tree/a.onnx");
    // A folder without models is not ok in its row, its findings and the sum.
    let run = folder.run(&["check", "tree/lost"]);
    run.says(&[
        "not ok  tree/lost: 1 error, 1 advice\n",
        "  error: `tree/lost`: no models here\n",
        "\nnot ok: no models, 1 advice\n",
    ]);
    let json = folder.run(&["check", "tree/lost", "--json"]).json();
    assert_eq!(
        (&json["ok"], &json["errors"], &json["advice"]),
        (&false.into(), &1.into(), &1.into())
    );
    folder.run(&["check", "tree", "--sha256", "a=00"]).misused(&["error: "]);
}

#[test]
fn a_quiet_check_of_a_folder_has_rows_of_what_is_not_ok() {
    let folder = tree();
    for (option, is_there) in [(None, true), (Some("-q"), false)] {
        let run = folder.run(&["check", "tree"].into_iter().chain(option).collect::<Vec<_>>());
        let run =
            run.says(&["not ok  tree/b.onnx: 1 error", "not ok  tree: ", "\nnot ok: 2 models"]);
        assert_eq!(run.stdout().contains("ok      tree/a.onnx"), is_there, "{run:?}");
    }
    let sound = Folder::packed();
    assert_eq!(sound.run(&["check", ".", "-q"]).done().stdout(), "ok: 1 model\n");
}

/// 0 nothing is wrong, 1 something is, 2 it could not be looked at.
#[test]
fn exit_codes_tell_findings_from_what_could_not_be_checked() {
    let folder = Folder::packed();
    fs::create_dir(folder.path("sub")).unwrap();
    folder.save("broken.onnx", &external(&["gone"]));
    fs::create_dir(folder.path("more")).unwrap();
    folder.save("more/advice.onnx", &external(&[]));
    fs::write(folder.path("more/advice.onnx.data"), [0; 8]).unwrap();
    fs::write(folder.path("noise.onnx"), [0xff; 9]).unwrap();
    fs::write(folder.path("sub/noise.onnx"), [0xff; 9]).unwrap();
    let mut cases = vec![
        ("check p.onnx", 0),
        ("check p.onnx --strict", 0),
        ("check more/advice.onnx", 0),
        ("check more/advice.onnx --strict", 1),
        ("check more/advice.onnx p.onnx --strict", 1),
        ("check broken.onnx", 1),
        ("check noise.onnx", 2),
        ("check none.onnx", 2),
        ("check p.onnx broken.onnx", 1),
        ("check p.onnx broken.onnx none.onnx", 2),
        ("check sub", 1),
        ("check none", 2),
        ("check p.onnx --no-such-option", 2),
    ];
    if cfg!(feature = "machine") {
        folder.save("other.onnx", &external(&[]));
        cases.extend([
            ("verify p.onnx p.onnx", 0),
            ("verify p.onnx other.onnx --runs 0", 1),
            ("verify p.onnx none.onnx", 2),
            ("verify p.onnx noise.onnx", 2),
            ("verify p.onnx broken.onnx", 2),
            ("verify p.onnx", 2),
        ]);
    }
    for (case, code) in cases {
        for json in [false, true] {
            let json = json.then_some("--json");
            let args: Vec<_> = case.split(' ').chain(json).collect();
            let run = folder.run(&args);
            assert_eq!(run.code(), code, "{case} {json:?}: {run:?}");
        }
    }
    folder.run(&["--help"]).done().says(&["2 could not check or"]);
}
