//! `verify-signature` with every combination of its options and statements: a model is verified
//! only if it and all its weights are among what was signed, or its content is, whatever is
//! ignored.

use std::fs;

use onnx_container::proto::{ModelProto, TensorProto};

use crate::signing::make_keys;
use crate::support::{Folder, external};

/// A model that is verified, in a folder whose `m.onnx`, with its weights in `w.bin`, was signed.
struct Case {
    what: &'static str,
    /// Puts it there; the file that is verified.
    make: fn(&Folder) -> &'static str,
    /// Whether all its files are among those that were signed, as they were.
    by_files: bool,
    /// Whether its content is that which was signed.
    by_content: bool,
}

/// The content that was signed, in one file.
fn embedded(bytes: u8) -> ModelProto {
    let mut model = external(&["w.bin"]);
    let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
    *tensor = TensorProto::new("w0", TensorProto::FLOAT, [4]).with_raw_data(vec![bytes; 16]);
    model
}

fn write(folder: &Folder, name: &str, model: &ModelProto) -> &'static str {
    folder.save(&format!("m/{name}"), model);
    ["evil.onnx", "m.onnx", "left.onnx"].into_iter().find(|known| *known == name).unwrap()
}

const CASES: [Case; 12] = [
    Case { what: "as it was signed", make: |_| "m.onnx", by_files: true, by_content: true },
    Case {
        what: "another, in one file",
        make: |folder| write(folder, "evil.onnx", &embedded(2)),
        by_files: false,
        by_content: false,
    },
    Case {
        what: "another, which was left out when the first was signed",
        make: |folder| write(folder, "left.onnx", &embedded(2)),
        by_files: false,
        by_content: false,
    },
    Case {
        what: "another, with unsigned weights",
        make: |folder| {
            fs::write(folder.path("m/evil.bin"), [2; 16]).unwrap();
            write(folder, "evil.onnx", &external(&["evil.bin"]))
        },
        by_files: false,
        by_content: false,
    },
    Case {
        what: "another, with weights that were left out",
        make: |folder| write(folder, "evil.onnx", &external(&["left.bin"])),
        by_files: false,
        by_content: false,
    },
    Case {
        what: "another, with the signed weights",
        make: |folder| {
            let mut model = external(&["w.bin"]);
            model.producer_name = Some("another".into());
            write(folder, "evil.onnx", &model)
        },
        by_files: false,
        by_content: false,
    },
    Case {
        what: "another, with signed weights and others",
        make: |folder| write(folder, "evil.onnx", &external(&["w.bin", "left.bin"])),
        by_files: false,
        by_content: false,
    },
    Case {
        what: "the signed content under another name",
        make: |folder| write(folder, "evil.onnx", &embedded(1)),
        by_files: false,
        by_content: true,
    },
    Case {
        what: "the signed content, embedded",
        make: |folder| write(folder, "m.onnx", &embedded(1)),
        by_files: false,
        by_content: true,
    },
    Case {
        what: "the signed content, with weights that were not signed",
        make: |folder| {
            fs::write(folder.path("m/evil.bin"), [1; 16]).unwrap();
            write(folder, "m.onnx", &external(&["evil.bin"]))
        },
        by_files: false,
        by_content: true,
    },
    Case {
        what: "the signed content, with weights that were left out",
        make: |folder| {
            fs::write(folder.path("m/left.bin"), [1; 16]).unwrap();
            write(folder, "m.onnx", &external(&["left.bin"]))
        },
        by_files: false,
        by_content: true,
    },
    Case {
        what: "with other weights",
        make: |folder| {
            fs::write(folder.path("m/w.bin"), [2; 16]).unwrap();
            "m.onnx"
        },
        by_files: false,
        by_content: false,
    },
];

/// The model that is signed, in a folder with files that are not its own.
fn signed(options: &[&str]) -> Folder {
    let folder = Folder::new();
    make_keys(&folder);
    fs::create_dir(folder.path("m")).unwrap();
    folder.save("m/m.onnx", &external(&["w.bin"]));
    fs::write(folder.path("m/w.bin"), [1; 16]).unwrap();
    fs::write(folder.path("m/left.bin"), [3; 16]).unwrap();
    fs::write(folder.path("m/README.md"), "read me").unwrap();
    folder.save("m/left.onnx", &embedded(3));
    let command = ["sign", "m/m.onnx", "--key", "keys/P-256.pem"];
    folder.run(&[&command[..], options].concat()).done();
    folder
}

const OPTIONS: [&[&str]; 6] = [
    &[],
    &["--ignore-unsigned-files"],
    &["--all-files"],
    &["--require-files"],
    &["--ignore-unsigned-files", "--require-files"],
    &["--all-files", "--require-files"],
];

/// What has to be said of a `case` that was signed alone, where `has` tells which statements are
/// there.
fn is_verified(case: &Case, options: &[&str], has: [bool; 2]) -> bool {
    let asked = |name: &str| options.contains(&name);
    let [has_files, has_content] = has;
    if has_content && !case.by_content {
        return false;
    }
    // Beside the signed files are others, which were left out.
    let nothing_else = !has_files || !asked("--all-files");
    let by_files = has_files && case.by_files;
    let by_content = has_content && case.by_content && !asked("--require-files");
    nothing_else && (by_files || by_content)
}

#[test]
fn what_was_not_signed_is_verified_by_no_combination_of_options() {
    let mut verified = 0;
    for case in &CASES {
        let folder = signed(&[]);
        let name = (case.make)(&folder);
        for has in [[true, true], [true, false], [false, true]] {
            for (file, has) in ["m/model.sig", "m/model.digest.sig"].into_iter().zip(has) {
                let [here, away] = [folder.path(file), folder.path(&file.replace('/', "-"))];
                let (from, to) = if has { (away, here) } else { (here, away) };
                if from.exists() {
                    fs::rename(from, to).unwrap();
                }
            }
            for options in OPTIONS {
                let model = format!("m/{name}");
                let command = ["verify-signature", &model, "--key", "keys/P-256.pub"];
                let run = folder.run(&[&command[..], options].concat());
                let expected = is_verified(case, options, has);
                let what = format!("{}, {options:?}, {has:?}: {}", case.what, run.stdout());
                assert_eq!(run.code() == 0, expected, "{what}");
                verified += usize::from(expected);
            }
        }
    }
    assert!(verified > 20, "{verified}");
}

/// The paths policy changes which files are opened, and nothing of this.
#[test]
fn a_model_beside_a_signed_one_is_not_verified_by_any_policy_or_form_of_signature() {
    for form in
        [&[][..], &["--all-files"], &["--shard-size", "7"], &["--shard-size=7", "--all-files"]]
    {
        let folder = signed(form);
        fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
        let verify = |name: &str, options: &[&str]| {
            let model = format!("m/{name}");
            let command = ["verify-signature", &model, "--key", "keys/P-256.pub"];
            folder.run(&[&command[..], options].concat())
        };
        folder.save("m/evil.onnx", &embedded(2));
        for paths in ["strict", "model-dirs", "trusted"] {
            let options = ["--ignore-unsigned-files", "--paths", paths];
            verify("m.onnx", &options).done();
            let run = verify("evil.onnx", &options).failed(&[]);
            run.says(&["unsigned `evil.onnx`: this is the model, and it was not signed"])
                .says(&["NOT VERIFIED: `evil.onnx` is the model, and was not signed\n"]);
            let json = verify("evil.onnx", &[&options[..], &["--json"]].concat()).json();
            assert_eq!(json["ok"], false, "{json}");
        }
        fs::remove_file(folder.path("m/evil.onnx")).unwrap();
        let left = verify("left.onnx", &["--ignore-unsigned-files"]);
        assert_eq!(left.code() == 0, form.contains(&"--all-files"), "{}", left.stdout());
    }
}

#[test]
fn what_is_signed_by_default_is_verified_by_default() {
    let folder = signed(&[]);
    fs::create_dir(folder.path("m/sub")).unwrap();
    fs::write(folder.path("m/sub/tokenizer.json"), "{}").unwrap();
    let sign = |options: &[&str]| {
        let command = ["sign", "m/m.onnx", "--key", "keys/P-256.pem"];
        folder.run(&[&command[..], options].concat())
    };
    let verify = |what: &str, options: &[&str]| {
        let command = ["verify-signature", what, "--key", "keys/P-256.pub"];
        folder.run(&[&command[..], options].concat())
    };
    let others = "4 other files of the folder are not signed, and the signature says so";
    let said = sign(&[]).done().stdout();
    assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(others), "{said}");
    let run = verify("m/m.onnx", &[]).done();
    run.says(&[
        "as signed: 2 files (m/model.sig)",
        "4 other files here are not signed, as the signature says: `README.md`,",
        "verified  by files and content\n",
    ]);
    let json = verify("m/m.onnx", &["--json"]).done().json();
    let left_out = ["README.md", "left.bin", "left.onnx", "sub/tokenizer.json"];
    assert_eq!(json["files"]["left_out"], serde_json::json!(left_out));
    // All files may be asked for, and what came since was not left out.
    let run = verify("m/m.onnx", &["--all-files"]).failed(&[]);
    run.says(&["unsigned `README.md`: it is in the folder and was not signed"]);
    verify("m/m.onnx", &["--all-files", "--ignore-unsigned-files"])
        .misused(&["cannot be used with"]);
    fs::write(folder.path("m/new.py"), "1").unwrap();
    verify("m/m.onnx", &[]).failed(&[]).says(&["unsigned `new.py`", "NOT VERIFIED"]);
    verify("m/m.onnx", &["--ignore-unsigned-files"]).done();
    // A name that other tools would take for a pattern cannot be left out.
    fs::rename(folder.path("m/new.py"), folder.path("m/new[1].py")).unwrap();
    sign(&[]).done().says(&["1 of these cannot be left out by name"]);
    assert_eq!(sign(&["--json"]).done().json()["nameless_files"], 1);
    verify("m/m.onnx", &[]).failed(&[]).says(&["unsigned `new[1].py`"]);
    sign(&["--all-files"]).done();
    for what in ["m/m.onnx", "m"] {
        let run = verify(what, &["--all-files"]).done();
        assert!(!run.stdout().contains("other file"), "{run:?}");
    }
}
