//! `sign`, killed at each of its calls that change a file system, or with each of them failing:
//! never is one of its two files old and the other new.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nix::errno::Errno;
use p256::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use tempfile::TempDir;

use crate::tracer::{At, Ending, Traced, trace};

const SIGN: [&str; 5] = ["sign", "m/m.onnx", "--key", "key.pem", "--all-files"];

/// A folder with keys and, in `m/`, a model that was replaced after it was signed.
fn signed() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let key = p256::SecretKey::from_slice(&[7; 32]).unwrap();
    let public = key.public_key().to_public_key_pem(LineEnding::LF).unwrap();
    fs::write(folder.path().join("key.pem"), &*key.to_pkcs8_pem(LineEnding::LF).unwrap()).unwrap();
    fs::write(folder.path().join("key.pub"), public).unwrap();
    fs::create_dir(folder.path().join("m")).unwrap();
    let save = |value| {
        crate::save(&folder.path().join("m/m.onnx"), value, onnx_container::WeightFiles::Packed);
    };
    save(1.0);
    assert!(run(folder.path(), &SIGN).status.success());
    save(2.0);
    folder
}

fn command(folder: &Path, mut command: Command, args: &[&str]) -> Command {
    command.args(args).current_dir(folder);
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let binary = Command::new(assert_cmd::cargo::cargo_bin!("onnx-container"));
    command(folder, binary, args).output().unwrap()
}

/// Checks what is left, `old` being the two files before.
fn check(folder: &Path, old: &[Vec<u8>; 2], at: &str) {
    let read = |name: &str| fs::read(folder.join("m").join(name)).ok();
    let is_new = ["model.sig", "model.digest.sig"].map(read);
    let is_new = [0, 1].map(|n| is_new[n].as_ref().map(|bytes| *bytes != old[n]));
    let fine = [[Some(false); 2], [Some(false), None], [Some(true), None], [Some(true); 2]];
    assert!(fine.contains(&is_new), "{at}: {is_new:?}");
    let verify = ["verify-signature", "m/m.onnx", "--key", "key.pub", "--ignore-unsigned-files"];
    let verified = run(folder, &verify);
    assert_eq!(verified.status.success(), is_new[0] == Some(true), "{at}: {verified:?}");
    assert!(run(folder, &SIGN).status.success(), "{at}");
    let verified = run(folder, &verify[..4]);
    assert!(verified.status.success(), "{at}: {verified:?}");
}

const SIGNATURES: [&str; 2] = ["model.sig", "model.digest.sig"];

/// Signs, and kills the command or fails a call: what that came to, and the signatures before.
fn traced(folder: &Path, at: At<'_>) -> (Traced, [Vec<u8>; 2]) {
    let old = SIGNATURES.map(|name| fs::read(folder.join("m").join(name)).unwrap());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
    shell.arg(assert_cmd::cargo::cargo_bin!("onnx-container"));
    (trace(command(folder, shell, &SIGN), at), old)
}

#[test]
fn a_signing_of_which_a_call_fails_leaves_no_old_signature_beside_a_new_one() {
    for number in 0.. {
        let folder = signed();
        let (traced, old) = traced(folder.path(), At::Fail(number, Errno::EIO));
        let at = format!("call {number}, {}, fails: {}", traced.call, traced.stderr);
        let Ending::Exited(code) = traced.ending else { panic!("{at}: killed") };
        let now = SIGNATURES.map(|name| fs::read(folder.path().join("m").join(name)).ok());
        let is_new = now[0].as_ref().is_some_and(|now| *now != old[0]);
        if code == 0 {
            let verified =
                run(folder.path(), &["verify-signature", "m/m.onnx", "--key", "key.pub"]);
            assert!(verified.status.success(), "{at}: {verified:?}");
        } else if !is_new {
            // What was there is there.
            assert_eq!(now, old.clone().map(Some), "{at}");
        }
        check(folder.path(), &old, &at);
        if !traced.reached {
            assert!(number > 12, "{number} calls");
            return;
        }
    }
}

#[test]
fn a_signing_that_is_killed_leaves_no_old_signature_beside_a_new_one() {
    for number in 0.. {
        let folder = signed();
        let (traced, old) = traced(folder.path(), At::Kill(number));
        let at = format!("killed at call {number}: {}", traced.call);
        check(folder.path(), &old, &at);
        if let Ending::Exited(code) = traced.ending {
            assert_eq!(code, 0, "{at}: {}", traced.stderr);
            assert!(number > 8, "{number} calls");
            return;
        }
    }
}
