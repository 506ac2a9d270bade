//! Private keys in the folder that is signed, and what `sign -q` prints.

use std::fs;

use crate::signing::folder;

/// A file of the folder, its bytes, and whether it is signed.
type Case = (&'static str, fn(&[u8]) -> Vec<u8>, bool);

fn between(key: &[u8], before: &str, after: &str) -> Vec<u8> {
    [before.as_bytes(), key, after.as_bytes()].concat()
}

/// A service account, whose key has these line breaks.
fn in_json(key: &[u8], end: &str) -> Vec<u8> {
    let key = String::from_utf8(key.to_vec()).unwrap().replace('\n', end);
    format!(r#"{{"type": "service_account", "private_key": "{key}", "client_email": "a@b"}}"#)
        .into_bytes()
}

const CASES: [Case; 15] = [
    ("key.pem", |key| key.to_vec(), false),
    ("tokenizer.json", |key| between(key, "", ""), false),
    ("a/b/.env", |key| between(key, "Bag Attributes\n    friendlyName: k\n", "\n"), false),
    (
        "id_rsa",
        |key| {
            let text = String::from_utf8(key.to_vec()).unwrap();
            text.replace("PRIVATE", "RSA PRIVATE").replace('\n', "\r\n").into_bytes()
        },
        false,
    ),
    (
        "encrypted",
        |_| {
            let head = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0011\n\n";
            let body = "MHcCAQEEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\n";
            format!("-----BEGIN EC PRIVATE KEY-----\n{head}{body}-----END EC PRIVATE KEY-----\n")
                .into_bytes()
        },
        false,
    ),
    ("credentials.json", |key| in_json(key, "\\n"), false),
    ("nested.json", |key| in_json(key, "\\\\r\\\\n"), false),
    (
        "config.py",
        |key| String::from_utf8(key.to_vec()).unwrap().replace('\n', "\\n\"\n  \"").into(),
        false,
    ),
    (
        "secring.asc",
        |_| {
            let head = "Version: GnuPG v2\nComment: mine\n\n";
            let body = "lQHYBGVtbW1tBBAAxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n=aB3x\n";
            let name = "PGP PRIVATE KEY BLOCK";
            format!("-----BEGIN {name}-----\n{head}{body}-----END {name}-----\n").into_bytes()
        },
        false,
    ),
    ("long.log", |key| [&[b'x'; 1000], key, &[b'y'; 100_000]].concat(), false),
    ("vocabulary.txt", |key| [&[b'x'; 64 << 10], key].concat(), true),
    ("notes.json", |_| br#"{"text": "-----BEGIN PRIVATE KEY-----\n...\n"}"#.to_vec(), true),
    ("README.md", |_| b"It begins with `-----BEGIN PRIVATE KEY-----`.\n".to_vec(), true),
    (
        "HOWTO.md",
        |_| b"-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n".to_vec(),
        true,
    ),
    ("key.pub", |_| b"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYI\n".to_vec(), true),
];

#[test]
fn a_private_key_in_the_folder_is_not_signed() {
    for (name, bytes, is_signed) in CASES {
        let folder = folder();
        let key = fs::read(folder.path("keys/P-256.pem")).unwrap();
        let path = folder.path(&format!("m/{name}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes(&key)).unwrap();
        let before = folder.contents_of("m");
        for line in ["m/m.onnx --all-files", "m"] {
            let line = format!("sign {line} --key keys/P-256.pem");
            let run = folder.run(&line.split(' ').collect::<Vec<_>>());
            if is_signed {
                run.done().says(&[name]);
                continue;
            }
            run.failed(&[&format!("`m/{name}`: holds a private key"), "move it out of the folder"]);
            assert!(folder.contents_of("m") == before, "{name}");
        }
        // What is not signed is no matter.
        folder.run(&["sign", "m/m.onnx", "--key", "keys/P-256.pem"]).done();
    }
}

/// The key that signs, by another path, and all of several.
#[test]
fn the_key_that_signs_is_not_signed() {
    let folder = folder();
    for name in ["own.pem", "other.pem"] {
        fs::copy(folder.path("keys/P-256.pem"), folder.path(&format!("m/{name}"))).unwrap();
    }
    let sign = ["sign", "m/m.onnx", "--all-files", "--key", "keys/../m/own.pem"];
    folder.run(&sign).failed(&["`m/own.pem`: holds a private key", "`m/other.pem`: holds a"]);
}

#[test]
fn a_quiet_signing_prints_its_results_alone() {
    let folder = folder();
    fs::write(folder.path("m/README.md"), "not signed").unwrap();
    for (line, has_content) in [("m/m.onnx", true), ("m", false)] {
        let line = format!("sign {line} --key keys/P-256.pem");
        let words: Vec<_> = line.split(' ').collect();
        let loud = folder.run(&words).done().stdout();
        let quiet = folder.run(&[&words[..], &["-q"]].concat()).done().stdout();
        assert!(loud.contains("\nnote      "), "{loud}");
        assert!(!quiet.contains("note ") && quiet.starts_with("key "), "{quiet}");
        assert_eq!(quiet.matches("\nwrote     ").count(), 1 + usize::from(has_content), "{quiet}");
        assert!(loud.starts_with(&quiet), "{loud}");
    }
}
