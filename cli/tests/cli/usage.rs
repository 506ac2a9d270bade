//! Exit codes and what is said with them.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::support::{Folder, external};

#[test]
fn wrong_usage_is_exit_code_2() {
    let folder = Folder::with_model();
    let cases: &[&[&str]] = &[
        &[],
        &["no-such-command"],
        &["pack", "m.onnx"],
        &["pack", "m.onnx", "a.onnx", "b.onnx"],
        &["pack", "m.onnx", "a.onnx", "--min-bytes", "1T"],
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
    ];
    for args in cases {
        assert_eq!(folder.run(args).code(), 2, "{args:?}");
    }
    assert_eq!(folder.names(), ["m.onnx"]);
}

#[test]
fn the_three_that_write_take_the_same_options() {
    let folder = Folder::with_model();
    let options = "--min-bytes 0 --align 64 --align-large 128 --data-name w --all-tensors --no-sync \
                   --no-mmap --no-clobber --allow-over-2gib";
    for command in ["pack", "split", "embed"] {
        let out = format!("{command}.onnx");
        let args = [command, "m.onnx", &out].into_iter().chain(options.split_whitespace());
        folder.run(&args.collect::<Vec<_>>()).done();
    }
}

#[test]
fn help_and_version_are_exit_code_0() {
    let folder = Folder::new();
    folder.run(&["--version"]).done().says(&["onnx-container 0."]);
    folder.run(&["--help"]).done().says(&["pack", "split", "embed", "check", "inspect", "files"]);
    folder.run(&["--help"]).done().says(&["inline"]);
    folder.run(&["--help"]).done().says(&["extract", "replace"]);
    folder.run(&["extract", "--help"]).done().says(&["--codes", "then_branch/w", "NAME[0]"]);
    folder.run(&["replace", "--help"]).done().says(&["--tied", "stays inline", "NAME[0]"]);
    folder.run(&["pack", "--help"]).done().says(&["--min-bytes", "--no-mmap", "--verify"]);
    folder.run(&["completions", "bash"]).done().says(&["onnx-container"]);
}

#[test]
fn what_is_no_model_is_named() {
    let folder = Folder::new();
    let mut page = std::fs::File::create(folder.path("page.onnx")).unwrap();
    page.write_all(b"<!DOCTYPE html><html>404</html>").unwrap();
    std::fs::write(folder.path("text.onnx"), "hello there").unwrap();
    std::fs::write(folder.path("empty.onnx"), "").unwrap();
    std::fs::create_dir(folder.path("dir.onnx")).unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    std::fs::write(folder.path("lfs.onnx"), pointer).unwrap();
    let cases = [
        ("absent.onnx", "absent.onnx"),
        ("page.onnx", "web page"),
        ("text.onnx", "byte"),
        ("empty.onnx", "empty"),
        ("dir.onnx", "directory"),
        ("lfs.onnx", "git lfs pull"),
    ];
    for (model, reason) in cases {
        for command in ["check", "inspect", "files"] {
            folder.run(&[command, model]).failed(&[model, reason]);
        }
        for command in ["pack", "split", "embed"] {
            folder.run(&[command, model, "out.onnx"]).failed(&[model, reason]);
        }
        let json = folder.run(&["check", model, "--json"]);
        assert_eq!((json.code(), json.json()["errors"].as_u64()), (1, Some(1)));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
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
