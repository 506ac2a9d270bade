//! Signatures beside jobs: what a commit says of them, and which files of a job are signed.

use std::fs;

use crate::signing_places::{keys_outside, packed};

#[test]
fn a_commit_over_a_signed_model_says_so_of_its_signatures() {
    let said = |name: &str| {
        format!("{name}`: signs the model that was replaced: `sign` signs the new one")
    };
    let folder = packed();
    let rewrite = |output: &str| {
        folder
            .run(&["job", "rewrite", "p.onnx", output, "--cast", "float16", "-o", "p.job"])
            .done();
        folder.run(&["job", "write", "p.job", "--all"]).done();
    };
    folder.run(&["sign", "p.onnx", "--key", "keys/P-256.pem"]).done();
    let signatures = ["model.sig", "model.digest.sig"];
    let before = signatures.map(|name| fs::read(folder.path(name)).unwrap());
    rewrite("other.onnx");
    folder.run(&["job", "commit", "p.job"]).done();
    rewrite("p.onnx");
    let committed = folder.run(&["job", "commit", "p.job", "--json"]);
    let warnings = committed.json()["warnings"].clone();
    for (number, name) in signatures.into_iter().enumerate() {
        assert!(committed.stderr().contains(&said(name)), "{committed:?}");
        assert!(warnings[number].as_str().unwrap().contains(&said(name)), "{warnings}");
        assert_eq!(fs::read(folder.path(name)).unwrap(), before[number]);
    }
    let verify = ["verify-signature", "p.onnx", "--key", "keys/P-256.pub"];
    folder.run(&verify).failed(&[]).says(&["files     NOT as signed", "content   NOT as signed"]);
    // Where an earlier commit has done so, nothing is written. Its marks are those of Linux.
    if cfg!(target_os = "linux") {
        let again = folder.run(&["job", "commit", "p.job"]);
        assert_eq!((again.code(), again.stderr().contains("signature")), (0, false), "{again:?}");
    }
}

/// The content is as signed where only its files are other ones.
#[test]
fn a_commit_says_so_of_no_signature_that_holds() {
    let outdated = |name: &str| format!("{name}`: signs the model that was replaced");
    for (options, files, content) in [
        ("--align 4096", true, false),
        ("--max-shard-size 4KB", true, false),
        ("--digests", true, false),
        ("--cast float16", true, true),
    ] {
        let folder = packed();
        folder.run(&["sign", "p.onnx", "--key", "keys/P-256.pem"]).done();
        let plan = format!("job rewrite p.onnx p.onnx {options} -o keys/p.job");
        assert_eq!(folder.run(&plan.split(' ').collect::<Vec<_>>()).code(), 0, "{options}");
        folder.run(&["job", "write", "keys/p.job", "--all"]).done();
        let said = folder.run(&["job", "commit", "keys/p.job"]).stderr();
        let told = ["model.sig", "model.digest.sig"].map(|name| said.contains(&outdated(name)));
        assert_eq!(told, [files, content], "{options}: {said}");
        let verify = ["verify-signature", "p.onnx", "--key", "keys/P-256.pub"];
        let verified = folder.run(&[&verify[..], &["--ignore-unsigned-files"]].concat());
        assert_eq!(verified.code() == 0, !content, "{options}: {verified:?}");
    }
}

/// A commit is killed when the model is in place, and the model is signed before it is made again.
#[test]
fn a_signature_that_is_newer_than_the_model_is_of_its_files() {
    let folder = packed();
    folder.run(&["job", "rewrite", "p.onnx", "q.onnx", "--cast", "float16", "-o", "q.job"]).done();
    folder.run(&["job", "write", "q.job", "--all"]).done();
    let job = folder.names().into_iter().find(|name| name.starts_with(".q.onnx.job-")).unwrap();
    // What no job put there keeps the folder, as a kill does.
    let kept = folder.path(&job).join("kept");
    fs::write(&kept, "").unwrap();
    let run = folder.run(&["job", "commit", "q.job"]);
    assert!(run.code() == 0 && run.stderr().contains("holds what no job put there"), "{run:?}");
    fs::remove_file(kept).unwrap();
    folder.run(&["sign", "q.onnx", "--key", "keys/P-256.pem"]).done();
    folder.run(&["job", "commit", "q.job"]).done();
    assert!(!folder.path(&job).exists());
    folder.run(&["verify-signature", "q.onnx", "--key", "keys/P-256.pub"]).done();
}

#[test]
fn the_files_of_a_job_are_not_signed() {
    let folder = packed();
    let (_away, key) = keys_outside(&folder);
    let all = ["sign", "p.onnx", "--key", &key, "--all-files"];
    let verify = ["verify-signature", "p.onnx", "--key", "keys/P-256.pub"];
    folder.run(&all).done();
    folder.run(&["job", "rewrite", "p.onnx", "p.onnx", "-o", "keys/p.job"]).done();
    folder.run(&all).failed(&["is a job, whose files go at its end: commit it or abort it"]);
    folder.run(&["sign", ".", "--key", &key]).failed(&["is a job"]);
    folder.run(&verify).failed(&[]).says(&["it is a file of a job"]);
    folder.run(&["job", "write", "keys/p.job", "--all"]).done();
    assert_eq!(folder.run(&["job", "commit", "keys/p.job"]).code(), 0);
    folder.run(&all).done();
    folder.run(&verify).done();
}
