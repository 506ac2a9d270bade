//! Exit codes, messages, help and JSON of all commands.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::support::{Folder, external, tensors};

#[test]
fn wrong_usage_is_exit_code_2() {
    let folder = Folder::with_model();
    let cases: &[&[&str]] = &[
        &[],
        &["no-such-command"],
        &["pack", "m.onnx"],
        &["pack", "m.onnx", "a.onnx", "b.onnx"],
        &["pack", "m.onnx", "a.onnx", "--min-bytes", "1X"],
        &["pack", "m.onnx", "a.onnx", "--min-bytes", "-1"],
        &["pack", "m.onnx", "a.onnx", "--align", "3"],
        &["pack", "m.onnx", "a.onnx", "--align", "0"],
        &["pack", "m.onnx", "a.onnx", "--align-large", "4095"],
        &["pack", "m.onnx", "a.onnx", "--verify", "--dry-run"],
        &["extract", "m.onnx"],
        &["extract", "m.onnx", "w"],
        &["extract", "m.onnx", "w", "-o", "w.npy", "--format", "npz"],
        &["replace", "m.onnx", "w", "w.npy"],
        &["replace", "m.onnx", "w", "w.npy", "-o", "a.onnx", "--tied", "maybe"],
        &["check"],
        &["check", "m.onnx", "--top", "1"],
        &["inspect", "m.onnx", "--top", "x"],
        &["files", "m.onnx", "--null", "--json"],
        &["sign", "m.onnx"],
        &["sign", "m.onnx", "--key", "k", "--shard-size", "0"],
        &["sign", "m.onnx", "--key", "k", "--shard-form", "spec"],
        &["verify-signature", "m.onnx"],
    ];
    for args in cases {
        assert_eq!(folder.run(args).code(), 2, "{args:?}");
    }
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn each_command_has_its_own_options_and_ignores_none() {
    let folder = Folder::with_model();
    let common = [
        "--no-sync",
        "--no-direct-io",
        "--no-mmap",
        "--no-clobber",
        "--allow-over-2gib",
        "--verify",
        "--json",
        "--timings",
    ];
    let moving = ["--min-bytes=0", "--all-tensors"];
    let packed = [
        "--align=64",
        "--align-large=128",
        "--data-name=w",
        "--safetensors",
        "--max-shard-size=1GB",
        "--dedup",
    ];
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("pack", &[&common[..], &moving, &packed].concat(), &["--top=1"]),
        ("split", &[&common[..], &moving].concat(), &packed),
        ("embed", &common, &[&packed[..], &moving].concat()),
        (
            "inline-functions",
            &[&common[..], &packed[..3]].concat(),
            &["--safetensors", "--min-bytes=0"],
        ),
        ("inline", &common, &["--all-tensors"]),
    ];
    for (command, own, others) in cases {
        let paths = [*command, "m.onnx", "out.onnx"];
        let help = folder.run(&[command, "--help"]).done().stdout();
        for option in *own {
            let name = option.split('=').next().unwrap();
            assert!(
                help.contains(&format!("{name} ")) || help.contains(&format!("{name}\n")),
                "{name}"
            );
            let out = format!("{command}{name}.onnx");
            // That readers may refuse the result is a warning.
            let code = folder.run(&[command, "m.onnx", &out, option]).code();
            assert_eq!(code, 0, "{command} {option}");
        }
        for option in *others {
            let run = folder.run(&[&paths[..], &[option]].concat());
            run.misused(&["unexpected argument", option.split('=').next().unwrap()]);
        }
    }
    let split = ["replace", "m.onnx", "w", "w.npy", "-o", "out.onnx", "--split"];
    for option in packed {
        folder.run(&[&split[..], &[option]].concat()).misused(&["cannot be used with"]);
    }
}

#[test]
fn a_model_is_a_file_and_neither_a_stream_nor_a_folder() {
    let folder = Folder::with_model();
    for command in ["pack", "split", "embed", "inline-functions"] {
        for (out, reason) in [
            ("-", "a model must be a file"),
            ("new/", "there is no such folder: `mkdir -p new` makes it"),
            ("my new/", "`mkdir -p 'my new'` makes it"),
            ("m.onnx/", "this is a file, and no folder"),
            ("new/.", "there is no such folder"),
            ("", "empty"),
        ] {
            folder.run(&[command, "m.onnx", out]).misused(&[reason]);
        }
        folder.run(&[command, "-", "out.onnx"]).misused(&["a model must be a file"]);
    }
    for command in ["check", "inspect", "files"] {
        folder.run(&[command, "-"]).misused(&["a model must be a file"]);
    }
    let written: [&[&str]; 3] = [
        &["report", "m.onnx", "-o", "-"],
        &["trace", "m.onnx", "-o", "-"],
        &["plan", "m.onnx", "--svg", "-"],
    ];
    for args in written {
        folder.run(args).misused(&["this is written to a file; for a file called `-` give ./-"]);
    }
    assert_eq!(folder.names(), ["m.onnx"]);
}

/// As with `mv` and `cp`.
#[test]
fn a_folder_that_is_there_takes_the_name_of_the_model() {
    let folder = Folder::with_model();
    std::fs::create_dir(folder.path("out")).unwrap();
    for (command, options) in [
        ("pack", &["--verify"][..]),
        ("embed", &[]),
        ("edit", &["--producer", "p"]),
        ("cast", &["--to", "half", "--dry-run"]),
        ("inline", &[]),
    ] {
        for out in ["out", "out/", "out/."] {
            let args = [&[command, "m.onnx", out], options].concat();
            let said = folder.run(&[&args[..], &["--json"]].concat()).done().json();
            assert_eq!(said["output"], format!("{}/m.onnx", out.trim_end_matches('/')), "{args:?}");
            assert!(folder.path("out/m.onnx").is_file());
        }
    }
    // IN is replaced only by its name.
    let before = std::fs::read(folder.path("m.onnx")).unwrap();
    for out in [".", "out/.."] {
        let run = folder.run(&["cast", "m.onnx", out, "--to", "half"]);
        run.misused(&["is the folder of IN", "(`m.onnx`)"]);
    }
    assert!(std::fs::read(folder.path("m.onnx")).unwrap() == before);
    for args in [&["strip", "m.onnx", "out"][..], &["merge", "m.onnx", "m.onnx", "out"]] {
        folder.run(args).misused(&["this is a folder: give the name of the model in it"]);
    }
}

#[test]
fn json_is_one_object_with_its_command_also_on_failure() {
    let folder = Folder::with_model();
    folder.save("bad.onnx", &external(&["gone.bin", "../up.bin"]));
    std::fs::write(folder.path("w.safetensors"), [0xff; 9]).unwrap();
    let none = &[][..];
    let cases: &[(&[&str], i32, &str, &[&str])] = &[
        (&["pack", "none.onnx", "o.onnx"], 1, "MissingFile", none),
        (&["split", "bad.onnx", "o.onnx"], 1, "MissingFile", &["MissingFile", "UnsafePath"]),
        (&["embed", "m.onnx", "m.onnx", "--no-clobber"], 1, "AlreadyExists", none),
        (&["inline-functions", "m.onnx", "o.onnx", "--only", "a::f"], 1, "InvalidArgument", none),
        (&["inspect", "none.onnx"], 1, "MissingFile", none),
        (&["files", "none.onnx"], 1, "MissingFile", none),
        (&["export-safetensors", "none.onnx", "o.safetensors"], 1, "MissingFile", none),
        (&["import-safetensors", "m.onnx", "w.safetensors", "o.onnx"], 1, "Decode", none),
        (&["pack", "m.onnx", "w.safetensors"], 1, "Refused", none),
        (&["extract", "m.onnx", "w", "-o", "w"], 2, "Usage", none),
        (&["extract", "m.onnx", "wieght", "-o", "w.npy"], 1, "MissingTensor", none),
        (&["replace", "m.onnx", "w", "gone.npy", "-o", "o.onnx"], 1, "MissingFile", none),
        (&["sign", "m.onnx", "--key", "none.pem"], 1, "MissingFile", none),
        (&["verify-signature", "none.onnx", "--key", "k"], 1, "MissingFile", none),
        #[cfg(feature = "machine")]
        (&["plan", "none.onnx"], 1, "MissingFile", none),
        #[cfg(feature = "machine")]
        (&["run", "none.onnx"], 1, "MissingFile", none),
        #[cfg(feature = "machine")]
        (&["trace", "diff", "none.onnx", "m.onnx"], 2, "MissingFile", none),
        #[cfg(feature = "machine")]
        (&["run", "none.onnx", "--expect", "d"], 2, "MissingFile", none),
    ];
    for (args, code, kind, kinds) in cases {
        let run = folder.run(&[args, &["--json"][..]].concat());
        assert_eq!(run.code(), *code, "{run:?}");
        let said = run.json();
        let name = if args[0] == "trace" { "trace diff" } else { args[0] };
        assert_eq!(said["command"], name, "{said}");
        let error = &said["error"];
        assert_eq!(error["kind"], *kind, "{said}");
        let found: Vec<_> =
            error["errors"].as_array().unwrap().iter().map(|e| &e["kind"]).collect();
        assert_eq!(found, *kinds, "{said}");
        assert!(run.stderr().contains(error["message"].as_str().unwrap()), "{run:?}");
    }
    for (args, code) in [(["files", "bad.onnx"], 1), (["check", "none.onnx"], 2)] {
        let run = folder.run(&[&args[..], &["--json"]].concat());
        assert_eq!(run.code(), code, "{run:?}");
        assert_eq!(run.json()["error"]["kind"], "MissingFile", "{run:?}");
    }
    let error = folder.run(&["split", "bad.onnx", "o.onnx", "--json"]).json()["error"].clone();
    assert_eq!(
        (&error["errors"][0]["tensor"], &error["errors"][0]["path"]),
        (&"w0".into(), &"gone.bin".into())
    );
    let missing = "the following required arguments were not provided: ";
    for (args, command, message) in [
        (&["pack", "m.onnx", "--json"][..], "pack".into(), format!("{missing}<OUT>")),
        (
            &["--json", "inline", "m.onnx"],
            "inline-functions".into(),
            "unexpected argument '--json' found".to_owned(),
        ),
        (
            &["check", "m.onnx", "--top", "1", "--json"],
            "check".into(),
            "unexpected argument '--top' found".to_owned(),
        ),
        #[cfg(feature = "machine")]
        (&["trace", "diff", "m.onnx", "--json"], "trace diff".into(), format!("{missing}<B>")),
        (
            &["unpack", "--json"],
            serde_json::Value::Null,
            "unrecognized subcommand 'unpack'".to_owned(),
        ),
        (&["--json"], serde_json::Value::Null, String::new()),
    ] {
        let said = folder.run(args).misused(&["error: "]).json();
        assert_eq!((&said["command"], &said["error"]["kind"]), (&command, &"Usage".into()));
        let found = said["error"]["message"].as_str().unwrap();
        assert!(message.is_empty() || found == message, "{found}");
        assert!(!found.starts_with("error") && !found.contains('\n'), "{found}");
    }
    for args in [
        &["check", "m.onnx"][..],
        &["inspect", "m.onnx"],
        &["files", "m.onnx"],
        &["extract", "m.onnx", "w", "-o", "w.npy"],
        &["replace", "m.onnx", "w", "w.npy", "-o", "o.onnx"],
        &["export-safetensors", "m.onnx", "e.safetensors"],
        &["import-safetensors", "m.onnx", "e.safetensors", "o.onnx"],
        &["inline", "m.onnx", "o.onnx"],
    ] {
        let said = folder.run(&[args, &["--json"]].concat()).json();
        let name = if args[0] == "inline" { "inline-functions" } else { args[0] };
        assert_eq!((&said["command"], &said["error"]), (&name.into(), &serde_json::Value::Null));
    }
}

#[test]
fn a_file_that_is_not_a_model_is_named() {
    let folder = Folder::new();
    let mut page = std::fs::File::create(folder.path("page.onnx")).unwrap();
    page.write_all(b"<!DOCTYPE html><html>404</html>").unwrap();
    std::fs::write(folder.path("text.onnx"), "hello there").unwrap();
    std::fs::write(folder.path("empty.onnx"), "").unwrap();
    std::fs::create_dir(folder.path("dir.onnx")).unwrap();
    std::fs::write(folder.path("lfs.onnx"), POINTER).unwrap();
    let cases = [
        ("absent.onnx", "absent.onnx"),
        ("page.onnx", "web page"),
        ("text.onnx", "a text file, not an ONNX model"),
        ("empty.onnx", "empty"),
        ("dir.onnx", "a folder, not a model"),
        ("lfs.onnx", "git lfs pull"),
    ];
    for (model, reason) in cases {
        for command in ["inspect", "files"] {
            folder.run(&[command, model]).failed(&[model, reason]);
        }
        for command in ["pack", "split", "embed"] {
            folder.run(&[command, model, "out.onnx"]).failed(&[model, reason]);
        }
        // Of a folder, the models in it are checked.
        if model != "dir.onnx" {
            folder.run(&["check", model]).misused(&[model, reason]);
            let json = folder.run(&["check", model, "--json"]);
            assert_eq!((json.code(), json.json()["errors"].as_u64()), (2, Some(1)));
        }
    }
}

/// What a clone without Git LFS has in place of a large file.
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";

#[test]
fn a_git_lfs_pointer_in_place_of_weights_is_named_by_every_command() {
    let folder = Folder::packed();
    folder.run(&["split", "p.onnx", "s.onnx"]).done();
    std::fs::write(folder.path("p.onnx.data"), POINTER).unwrap();
    let hint = "git lfs pull";
    let commands: &[&[&str]] = &[
        &["pack", "p.onnx", "o.onnx"],
        &["split", "p.onnx", "o.onnx"],
        &["embed", "p.onnx", "o.onnx"],
        &["inline-functions", "p.onnx", "o.onnx"],
        &["cast", "p.onnx", "o.onnx", "--to", "float16"],
        &["export-safetensors", "p.onnx", "o.safetensors"],
        &["extract", "p.onnx", "w", "-o", "w.npy"],
        &["files", "p.onnx"],
    ];
    for args in commands {
        folder.run(args).failed(&["p.onnx.data", hint]);
    }
    folder.run(&["check", "p.onnx"]).failed(&[]).says(&["p.onnx.data", hint]);
    let run = folder.run(&["inspect", "p.onnx"]).done();
    run.says(&["1 wrong", "wrong     4 tensors", "p.onnx.data (", hint]);
    let said = folder.run(&["inspect", "p.onnx", "--json"]).done().json();
    assert_eq!(
        (&said["files"][0]["state"], &said["file_totals"]["wrong"]),
        (&"wrong".into(), &1.into())
    );

    // In place of the file that a command reads besides the model.
    for name in ["w.npy", "w.raw", "w.pb", "w.safetensors", "w.safetensors.index.json"] {
        std::fs::write(folder.path(name), POINTER).unwrap();
        let args = ["replace", "s.onnx", "w", name, "-o", "o.onnx"];
        folder.run(&args).failed(&[name, hint]);
    }
    for name in ["w.safetensors", "w.safetensors.index.json"] {
        folder.run(&["import-safetensors", "s.onnx", name, "o.onnx"]).failed(&[name, hint]);
    }
    assert!(!folder.path("o.onnx").exists() && !folder.path("o.safetensors").exists());
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let folder = Folder::new();
    let locations: Vec<_> = (0..20_000).map(|i| format!("weights-{i}.bin")).collect();
    let locations: Vec<_> = locations.iter().map(String::as_str).collect();
    folder.save("m.onnx", &external(&locations));
    for (args, code) in [
        (&["inspect", "m.onnx", "--top", "0"][..], 0),
        (&["inspect", "m.onnx", "--json"], 0),
        (&["check", "m.onnx"], 1),
    ] {
        let mut command = folder.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut start = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut start).unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(code), ""), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_is_full_is_an_error() {
    let folder = Folder::with_model();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = folder.command(&["inspect", "m.onnx"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with("error: standard output: "), "{stderr}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let args = ["extract", "m.onnx", "w", "-o", "-"];
    let output = folder.command(&args).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("standard output") && stderr.contains("No space"), "{stderr}");
}

/// A report larger than the output's buffer fails while it is written, a short one when it is
/// flushed.
#[cfg(target_os = "linux")]
#[test]
fn a_save_whose_report_cannot_be_printed_is_said_to_be_done() {
    let folder = Folder::with_model();
    let mut many = onnx_container::proto::GraphProto::new("main");
    many.initializer =
        (0..500).map(|i| crate::support::floats(&format!("weight{i}"), 300)).collect();
    folder
        .save("many.onnx", &onnx_container::proto::ModelProto::new(many).with_operator_set("", 21));
    let cases: &[(&[&str], &str)] = &[
        (&["pack", "m.onnx", "a.onnx"], "`a.onnx` was written"),
        (&["pack", "m.onnx", "b.onnx", "--json"], "`b.onnx` was written"),
        (&["split", "many.onnx", "c.onnx", "--json"], "`c.onnx` was written"),
        (&["export-safetensors", "m.onnx", "d.safetensors"], "`d.safetensors` was written"),
        (&["report", "m.onnx", "-o", "g.html"], "`g.html` was written"),
        (&["extract", "m.onnx", "w", "-o", "e.npy"], "1 file was written"),
        (&["extract", "m.onnx", "w", "small", "-o", "f/"], "2 files were written"),
    ];
    for (args, done) in cases {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = folder.command(args).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let expected = format!(
            "error: standard output: No space left on device (os error 28); {done}, only the report could not be printed\n"
        );
        assert_eq!(stderr, expected, "{args:?}");
    }
    for name in ["a.onnx", "b.onnx", "c.onnx"] {
        assert!(!tensors(&folder.path(name)).is_empty());
    }
    // Nothing was written by a dry run.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = folder.command(&["pack", "m.onnx", "g.onnx", "--dry-run"]);
    let stderr = command.stdout(full).output().unwrap().stderr;
    let expected = "error: standard output: No space left on device (os error 28)\n";
    assert_eq!(String::from_utf8(stderr).unwrap(), expected);
}

#[test]
#[cfg(unix)]
fn json_survives_a_folder_that_is_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with_model();
    let odd = folder.path("").join(std::ffi::OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&odd).unwrap();
    let model = odd.join("m.onnx");
    let run = |args: &[&std::ffi::OsStr]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_onnx-container"));
        let output = command.args(args).arg("--json").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(parsed.to_string().contains('\u{FFFD}'), "{parsed}");
    };
    run(&["pack".as_ref(), folder.path("m.onnx").as_os_str(), model.as_os_str()]);
    run(&["inspect".as_ref(), model.as_os_str()]);
    run(&["files".as_ref(), model.as_os_str()]);
}

#[cfg(unix)]
#[test]
fn a_tensor_is_not_written_to_a_terminal() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let folder = Folder::with_model();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let screen = std::fs::OpenOptions::new().write(true).open(name.to_str().unwrap()).unwrap();
    let output = folder.command(&["extract", "m.onnx", "w", "-o", "-"]).stdout(screen).output();
    let output = output.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("not written to a terminal"), "{stderr}");
}
