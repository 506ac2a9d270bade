//! `--max-shard-size` and `--shard-names`: weights files of limited length.

use std::fs;

use crate::support::{Folder, external, tensors};

/// `m.onnx` has external tensors of 4000, 1200, 2000 and 2400 bytes.
const TWO: [&str; 2] = ["p-00001-of-00002.onnx.data", "p-00002-of-00002.onnx.data"];

#[test]
fn weights_go_to_files_of_at_most_that_length() {
    let folder = Folder::with_model();
    let before = tensors(&folder.path("m.onnx"));
    let pack = ["pack", "m.onnx", "p.onnx", "--max-shard-size", "6KB"];
    let plan = folder.run(&[&pack[..], &["--dry-run"]].concat()).done();
    plan.says(&["writes    3 files", "p.onnx\n", TWO[0], TWO[1], "nothing was written"]);
    assert_eq!(folder.names(), ["m.onnx"]);
    let run = folder.run(&[&pack[..], &["--verify", "--json"]].concat()).done();
    assert_eq!(folder.names(), ["m.onnx", TWO[0], TWO[1], "p.onnx"]);
    assert_eq!(run.json()["verified"]["ok"], true);
    for name in TWO {
        assert!(fs::metadata(folder.path(name)).unwrap().len() <= 6000, "{name}");
    }
    assert_eq!(tensors(&folder.path("p.onnx")), before);
    folder.run(&["check", "p.onnx"]).done();
    assert_eq!(
        folder.run(&["files", "p.onnx"]).done().stdout(),
        format!("p.onnx\n{}\n{}\n", TWO[0], TWO[1])
    );
    folder.run(&["inspect", "p.onnx"]).done().says(&TWO);
    // Without leave nothing is replaced.
    let files = folder.contents();
    folder.run(&[&pack[..], &["--no-clobber"]].concat()).failed(&["exists already", TWO[1]]);
    assert!(folder.contents() == files);
    // Another limit: the old files are removed, and named.
    let run = folder.run(&["pack", "p.onnx", "p.onnx", "--max-shard-size", "1GiB"]).done();
    run.says(&["removed   2 files that only the replaced model needed", TWO[0], TWO[1]]);
    assert_eq!(tensors(&folder.path("p.onnx")), before);
    folder.run(&["files", "p.onnx"]).done().says(&["p.onnx\np.onnx.data\n"]);
}

#[test]
fn shards_are_called_as_their_readers_want() {
    // The options, and the weights files.
    let cases: &[(&[&str], &[&str])] = &[
        (&["--max-shard-size=6KB", "--shard-names=numbered"], &TWO),
        (
            &["--max-shard-size=6KB", "--data-name=w.bin"],
            &["w-00001-of-00002.bin", "w-00002-of-00002.bin"],
        ),
        (
            &["--max-shard-size=6KB", "--shard-names=transformers-js"],
            &["p.onnx_data", "p.onnx_data_1"],
        ),
        (&["--max-shard-size=1GB", "--shard-names=transformers-js"], &["p.onnx_data"]),
    ];
    for (options, files) in cases {
        let folder = Folder::with_model();
        let run =
            folder.run(&[&["pack", "m.onnx", "p.onnx", "--verify"], *options].concat()).done();
        run.says(files).says(&["checked   no errors"]);
        let listed = folder.run(&["files", "p.onnx"]).done().stdout();
        assert_eq!(listed.lines().skip(1).collect::<Vec<_>>(), *files);
        let again = folder.run(&[&["pack", "m.onnx", "p.onnx"], *options].concat()).done().stdout();
        let config = format!(
            "config    transformers.js finds the weights by this in config.json:\n          \
             \"transformers.js_config\": {{\"use_external_data_format\": {{\"p.onnx\": {}}}}}\n",
            files.len()
        );
        let is_for_it = files[0] == "p.onnx_data";
        assert_eq!(again.contains(&config), is_for_it, "{again}");
        let json = [&["pack", "m.onnx", "p.onnx", "--json"], *options].concat();
        let json = folder.run(&json).done().json();
        let count = is_for_it.then_some(files.len()).map(serde_json::Value::from);
        assert_eq!(json.get("use_external_data_format"), count.as_ref());
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let folder = Folder::with_model();
    let pack = ["pack", "m.onnx", "p.onnx"];
    let browser = ["--max-shard-size=3000", "--shard-names=transformers-js"];
    let misused: &[(&[&str], &str)] = &[
        (&["--shard-names=numbered"], "--max-shard-size"),
        (&["--max-shard-size=1KB", "--safetensors"], "cannot be used with"),
        (&["--max-shard-size=0"], "at least one byte"),
        (&["--max-shard-size=2XB"], "such as 1024, 16K, 1.5MB or 2GiB"),
        (&["--max-shard-size=1.5"], "not a whole number of bytes"),
        (&["--max-shard-size=2GB", "--shard-names=other"], "transformers-js"),
    ];
    for (options, text) in misused {
        folder.run(&[&pack[..], options].concat()).misused(&[text]);
    }
    folder.run(&[&pack[..], &browser].concat()).failed(&["tensor `w`", "4000 bytes"]);
    let named = [&pack[..], &["--max-shard-size=6KB", browser[1], "--data-name=w"]].concat();
    folder.run(&named).failed(&["`w`", "transformers.js looks for"]);
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn replace_writes_shards_where_they_are_asked_for() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["a", "b"]));
    fs::write(folder.path("a"), [1; 16]).unwrap();
    fs::write(folder.path("b"), [2; 16]).unwrap();
    fs::write(folder.path("w.raw"), [0; 16]).unwrap();
    let replace = ["replace", "m.onnx", "w1", "w.raw", "--format=raw", "-o", "p.onnx"];
    folder.run(&[&replace[..], &["--max-shard-size=16"]].concat()).done().says(&TWO);
    assert_eq!(fs::read(folder.path(TWO[0])).unwrap(), [1; 16]);
    assert_eq!(fs::read(folder.path(TWO[1])).unwrap(), [0; 16]);
    let both = [&replace[..], &["--max-shard-size=16", "--split"]].concat();
    folder.run(&both).misused(&["cannot be used with"]);
}

#[test]
fn commands_that_leave_weights_alone_keep_the_shards() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx", "--max-shard-size", "6KB"]).done();
    let shards = TWO.map(|name| fs::read(folder.path(name)).unwrap());
    let before = tensors(&folder.path("p.onnx"));
    fs::write(folder.path("small.raw"), [0; 16]).unwrap();
    let cases: &[&[&str]] = &[
        &["inline-functions", "p.onnx", "p.onnx"],
        &["inline-functions", "p.onnx", "beside.onnx"],
        &["replace", "p.onnx", "small", "small.raw", "--format=raw", "-o", "p.onnx"],
    ];
    for args in cases {
        folder.run(args).done().says(&["kept      2 files of weights, unchanged", TWO[0], TWO[1]]);
        assert_eq!(TWO.map(|name| fs::read(folder.path(name)).unwrap()), shards, "{args:?}");
    }
    // Both models need the shards now: neither may replace or leave them behind.
    let refused = ["pack", "m.onnx", "p.onnx", "--max-shard-size", "6KB"];
    folder.run(&refused).failed(&["beside.onnx", TWO[0], TWO[1]]);
    let after = tensors(&folder.path("p.onnx"));
    let others = |all: &[(String, String, Vec<u8>)]| {
        let others = all.iter().filter(|(name, ..)| name != "small" && !name.starts_with("local"));
        others.cloned().collect::<Vec<_>>()
    };
    assert_eq!(others(&after), others(&before));
}

/// Shards, others, and the first again: those of the first save are nobody's by then.
#[test]
fn shards_of_an_earlier_save_are_all_named_with_what_replaces_them() {
    let folder = Folder::with_model();
    let pack = |size: &str, more: &[&str]| {
        let size = format!("--max-shard-size={size}");
        folder.run(&[&["pack", "m.onnx", "p.onnx", "--keep-old", size.as_str()], more].concat())
    };
    pack("6KB", &[]).done();
    pack("1GB", &[]).done();
    let refused =
        pack("6KB", &[]).failed(&["2 files exist already", TWO[0], TWO[1], "delete them"]);
    refused.failed(&["or replaced by --data-name p.onnx.data"]);
    let errors = pack("6KB", &["--json"]).failed(&[]).json()["error"]["errors"].clone();
    let named = errors.as_array().unwrap().iter().map(|error| error["path"].as_str().unwrap());
    let named: Vec<_> = named.map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(named, TWO, "every single one");
    let kept = pack("6KB", &["--no-clobber"]).failed(&["exists already"]);
    assert!(!kept.stderr().contains("replaced by"), "{kept:?}");
    pack("6KB", &["--data-name=p.onnx.data"]).done().says(&TWO);

    let browser = "--shard-names=transformers-js";
    pack("6KB", &[browser]).done();
    fs::remove_file(folder.path("p.onnx.data")).unwrap();
    pack("1GB", &[]).done();
    pack("6KB", &[browser]).failed(&["p.onnx_data", "p.onnx_data_1", "these names alone: delete"]);
}

#[cfg(unix)]
#[test]
fn a_name_that_transformers_js_could_not_ask_for_is_explained() {
    let folder = Folder::with_model();
    for name in ["a\\b.onnx", "C:m.onnx"] {
        let pack = ["pack", "m.onnx", name, "--max-shard-size=6KB"];
        folder.run(&pack).done();
        let run = folder.run(&[&pack[..], &["--shard-names=transformers-js"]].concat());
        run.failed(&[
            "not a valid file name; rename the model (transformers.js derives this name from it)",
        ]);
    }
}

/// Random bytes can begin as a model does; a file of the model's own is replaced all the same.
#[test]
fn a_model_is_split_over_itself_whatever_its_weights_are() {
    let folder = Folder::new();
    folder.save("m.onnx", &external(&["a"]));
    fs::write(folder.path("a"), b"\x08\x07\x3a\xff\xff\x03\x0a\x01nnnnnnnn").unwrap();
    folder.run(&["split", "m.onnx", "o.onnx"]).done();
    folder.run(&["split", "o.onnx", "o.onnx"]).done();
}

#[test]
fn a_replaced_tensor_that_joins_shards_says_so() {
    let folder = Folder::with_model();
    folder.run(&["pack", "m.onnx", "p.onnx", "--max-shard-size=6KB"]).done();
    fs::write(folder.path("w.raw"), [0; 4000]).unwrap();
    let replace = ["replace", "p.onnx", "w", "w.raw", "--format=raw", "-o"];
    let joined =
        "the weights of 2 files are in one now: --max-shard-size N or --split writes several";
    let run = folder.run(&[&replace[..], &["q.onnx"]].concat()).done();
    run.says(&["q.onnx.data", &format!("joined    {joined}\n")]);
    let json = folder.run(&[&replace[..], &["q.onnx", "--json"]].concat()).done().json();
    assert_eq!(json["warnings"], serde_json::json!([joined]));
    for asked in ["--max-shard-size=6KB", "--split", "--align=16"] {
        let run = folder.run(&[&replace[..], &["r.onnx", asked]].concat()).done().stdout();
        assert!(!run.contains("joined"), "{run}");
        fs::remove_file(folder.path("r.onnx")).unwrap();
    }
}

/// The entry that transformers.js reads goes to config.json on request; all else there stays.
#[test]
fn the_number_of_files_is_written_to_the_configuration() {
    let folder = Folder::with_model();
    let pack =
        ["pack", "m.onnx", "p.onnx", "--max-shard-size=6KB", "--shard-names=transformers-js"];
    let with = |options: &[&str]| folder.run(&[&pack[..], options].concat());
    let config = || -> serde_json::Value {
        serde_json::from_slice(&fs::read(folder.path("config.json")).unwrap()).unwrap()
    };
    with(&["--config=config.json", "--dry-run"]).done();
    assert!(!folder.path("config.json").exists());
    let count = with(&["--config=config.json"]).done().stdout().matches("p.onnx_data").count();
    let entry = |count: usize| serde_json::json!({"use_external_data_format": {"p.onnx": count}});
    assert_eq!(config(), serde_json::json!({"transformers.js_config": entry(count)}));
    let before = r#"{"model_type": "bert", "eps": 1e-12, "transformers.js_config":
        {"dtype": "q4", "use_external_data_format": {"p.onnx": 9, "other.onnx": 1}}}"#;
    fs::write(folder.path("config.json"), before).unwrap();
    with(&["--config=config.json"]).done();
    let mut expected: serde_json::Value = serde_json::from_str(before).unwrap();
    expected["transformers.js_config"]["use_external_data_format"]["p.onnx"] = count.into();
    assert_eq!(config(), expected);
    for (text, said) in [
        ("[1]", "not a JSON object"),
        ("{", "not a JSON object"),
        (r#"{"transformers.js_config": {"use_external_data_format": 3}}"#, "of another kind"),
    ] {
        fs::write(folder.path("config.json"), text).unwrap();
        with(&["--config=config.json"]).failed(&["config.json", said]);
        assert_eq!(fs::read_to_string(folder.path("config.json")).unwrap(), text);
    }
    let numbered = [
        "pack",
        "m.onnx",
        "n.onnx",
        "--max-shard-size=3000",
        "--shard-names=numbered",
        "--config=c",
    ];
    folder.run(&numbered).misused(&["--shard-names transformers-js"]);
}

/// What is in the way of the entry is refused before the model is written, and stays.
#[cfg(unix)]
#[test]
fn a_configuration_replaces_no_file_of_the_model_and_no_link() {
    // The configuration, and what is said.
    let cases: &[(&str, &str)] = &[
        ("p.onnx", "is a file of the model that is written"),
        ("./p.onnx", "is a file of the model that is written"),
        ("p.onnx_data", "is a file of the model that is written"),
        ("p.onnx_data_1", "is a file of the model that is written"),
        ("link.json", "is a link"),
        ("dangling.json", "is a link"),
        ("m.onnx.data", "belongs to the model or is read"),
    ];
    for (config, said) in cases {
        let folder = Folder::with_model();
        folder.run(&["pack", "m.onnx", "m.onnx"]).done();
        fs::write(folder.path("real.json"), r#"{"model_type": "net"}"#).unwrap();
        std::os::unix::fs::symlink("real.json", folder.path("link.json")).unwrap();
        std::os::unix::fs::symlink("none.json", folder.path("dangling.json")).unwrap();
        let names = folder.names();
        let files = folder.contents_of_files();
        let config = format!("--config={config}");
        let pack = ["pack", "m.onnx", "p.onnx", "--max-shard-size=6KB"];
        let pack = [&pack[..], &["--shard-names=transformers-js", config.as_str()]].concat();
        for pack in [pack.clone(), [&pack[..], &["--dry-run"]].concat()] {
            folder.run(&pack).failed(&[said]);
            assert_eq!(folder.names(), names, "{config}");
            assert!(folder.contents_of_files() == files, "{config}");
        }
    }
}

/// The values of other entries are as they were, to the last digit.
#[test]
fn the_configuration_says_that_it_was_written_and_keeps_what_else_is_there() {
    let folder = Folder::with_model();
    let numbers = r#"[12345678901234567890123, 1e-12, 1.10, -0.0, 1E400]"#;
    let before = format!(
        r#"{{"numbers": {numbers}, "transformers.js_config": {{"kv": {numbers}}}, "z": "\u00e9"}}"#
    );
    fs::write(folder.path("c.json"), before).unwrap();
    let pack = ["pack", "m.onnx", "p.onnx", "--max-shard-size=6KB"];
    let pack = [&pack[..], &["--shard-names=transformers-js", "--config=c.json"]].concat();
    let plan = folder.run(&[&pack[..], &["--dry-run"]].concat()).done();
    plan.says(&["config    c.json would say that p.onnx has 2 files of weights\n"]);
    let run = folder.run(&pack).done();
    let run = run.says(&["config    c.json says that p.onnx has 2 files of weights\n"]).stdout();
    assert!(!run.contains("transformers.js finds"), "{run}");
    let after = fs::read_to_string(folder.path("c.json")).unwrap();
    assert_eq!(after.matches(numbers).count(), 2, "{after}");
    assert!(after.contains(r#""z": "\u00e9""#), "{after}");
    let json = folder.run(&[&pack[..], &["--json"]].concat()).done().json();
    assert_eq!(json["config"], "c.json");
}
