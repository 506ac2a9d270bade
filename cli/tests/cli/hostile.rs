//! Untrusted external data through every command that reads a model: what the library accepts or
//! refuses, each command does.

use std::fs;

use crate::hostile_cases::{Case, POLICIES, cases};
use crate::signing;
use crate::support::Folder;

/// Commands that read the weights of `model/m.onnx`, and need nothing else of it.
const READ: [&[&str]; 10] = [
    &["check"],
    &["digest"],
    &["digest", "--tensors"],
    &["extract", "w", "-o", "out/w.raw"],
    &["report", "-o", "out/r.html", "--stats"],
    &["pack", "out/m.onnx"],
    &["split", "out/m.onnx"],
    &["embed", "out/m.onnx"],
    &["inline-functions", "out/m.onnx"],
    &["export-safetensors", "out/m.safetensors"],
];

/// Commands that read them, and refuse some models for other reasons.
const READ_MORE: [&[&str]; 5] = [
    CHECK_DIGESTS,
    &["sign", "--key", "keys/P-256.pem", "-o", "out/m.sig"],
    &["import-safetensors", "v.safetensors", "out/m.onnx"],
    &["replace", "v", "v.npy", "-o", "out/m.onnx"],
    &["digest", "--semantic"],
];

/// It finds fault with each model, as none of them stores digests.
const CHECK_DIGESTS: &[&str] = &["check", "--digests"];

/// Commands that look at the files.
const LOOK: [&[&str]; 3] = [&["inspect"], &["files"], &["digest", "--files"]];

const POLICY_NAMES: [&str; 3] = ["strict", "model-dirs", "trusted"];

fn folder_of(case: &Case) -> Folder {
    let folder = Folder::new();
    case.make(&folder.path(""));
    fs::create_dir(folder.path("out")).unwrap();
    let header = r#"{"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}      "#;
    let length = u64::try_from(header.len()).unwrap().to_le_bytes();
    let bytes = [&length[..], header.as_bytes(), &[1; 4]].concat();
    fs::write(folder.path("v.safetensors"), bytes).unwrap();
    let header = format!("{:<117}\n", "{'descr':'<f4','fortran_order':False,'shape':(1,)}");
    let bytes = [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), &[1; 4]].concat();
    fs::write(folder.path("v.npy"), bytes).unwrap();
    signing::make_keys(&folder);
    folder
}

/// What entries mean that the specification does not name is not in a digest, so there is none, and
/// there are no statistics either.
fn has_no_digest(case: &Case) -> bool {
    matches!(case.name, "unknown key" | "basepath")
}

#[test]
fn every_command_refuses_what_a_load_refuses() {
    for case in cases() {
        let folder = folder_of(&case);
        let before = folder.names();
        for (policy, expect) in POLICY_NAMES.into_iter().zip(case.expect) {
            // Most cases have nothing to do with the policy.
            if policy != "model-dirs" && case.expect[0] == case.expect[2] {
                continue;
            }
            let run = |command: &[&str]| {
                let (name, rest) = command.split_first().unwrap();
                folder.run(&[&[*name, "model/m.onnx"][..], rest, &["--paths", policy]].concat())
            };
            for command in READ.into_iter().chain(READ_MORE).chain(LOOK) {
                let ran = run(command);
                let context = format!("{} {policy} {command:?}: {ran:?}", case.name);
                assert!(matches!(ran.code(), 0 | 1), "{context}");
                let said = ran.stdout() + &ran.stderr();
                match expect {
                    Err(reason) if !LOOK.contains(&command) => {
                        assert!(ran.code() == 1 && said.contains(reason), "{context}");
                        let made = fs::read_dir(folder.path("out")).unwrap().count();
                        assert_eq!((made, folder.names()), (0, before.clone()), "{context}");
                    }
                    Err(reason) => {
                        let is_link = case.expect[0] != case.expect[2];
                        assert!(!is_link || said.contains(reason), "{context}");
                    }
                    Ok(()) => {
                        let may_fail = READ_MORE.contains(&command) && case.name != "plain"
                            || command == CHECK_DIGESTS
                            || has_no_digest(&case) && matches!(command[0], "digest" | "report");
                        assert!(ran.code() == 0 || may_fail, "{context}");
                    }
                }
                fs::remove_dir_all(folder.path("out")).unwrap();
                fs::create_dir(folder.path("out")).unwrap();
            }
        }
    }
    assert_eq!(POLICIES.len(), POLICY_NAMES.len());
}
