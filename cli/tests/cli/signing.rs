//! `sign` and `verify-signature`: keys, files and shards, content, and what is refused.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use onnx_container::proto::TensorProto;
use p256::ecdsa::signature::Signer;
use p256::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Folder, Run, external, model};

const CURVES: [&str; 3] = ["P-256", "P-384", "P-521"];

/// Writes `CURVE.pem` and `CURVE.pub` into `keys/`.
pub fn make_keys(folder: &Folder) {
    fs::create_dir(folder.path("keys")).unwrap();
    let write = |curve: &str, secret: &str, public: &str| {
        fs::write(folder.path(&format!("keys/{curve}.pem")), secret).unwrap();
        fs::write(folder.path(&format!("keys/{curve}.pub")), public).unwrap();
    };
    macro_rules! write {
        ($curve:literal, $key:expr) => {{
            let key = $key.unwrap();
            let public = key.public_key().to_public_key_pem(LineEnding::LF).unwrap();
            write($curve, &key.to_pkcs8_pem(LineEnding::LF).unwrap(), &public);
        }};
    }
    write!("P-256", p256::SecretKey::from_slice(&[7; 32]));
    write!("P-384", p384::SecretKey::from_slice(&[7; 48]));
    write!("P-521", p521::SecretKey::from_slice(&[&[0; 2][..], &[7; 64]].concat()));
    write!("other", p256::SecretKey::from_slice(&[8; 32]));
    let sec1 = p256::SecretKey::from_slice(&[7; 32]).unwrap().to_sec1_pem(LineEnding::CRLF);
    // As `openssl ecparam -genkey` writes it.
    let parameters =
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    fs::write(folder.path("keys/sec1.pem"), format!("{parameters}{}", *sec1.unwrap())).unwrap();
}

/// A folder with keys, and in `m/` a packed model.
pub fn folder() -> Folder {
    let folder = Folder::with_model();
    make_keys(&folder);
    fs::create_dir(folder.path("m")).unwrap();
    folder.run(&["pack", "m.onnx", "m/m.onnx"]).done();
    folder
}

pub fn verify(folder: &Folder, options: &[&str]) -> Run {
    let command = ["verify-signature", "m/m.onnx", "--key", "keys/P-256.pub"];
    folder.run(&[&command[..], options].concat())
}

pub fn sign(folder: &Folder, options: &[&str]) -> Run {
    folder.run(&[&["sign", "m/m.onnx", "--key", "keys/P-256.pem"][..], options].concat())
}

/// The statement in the signature called `name`.
pub fn statement(folder: &Folder, name: &str) -> Value {
    let bundle: Value = serde_json::from_slice(&fs::read(folder.path(name)).unwrap()).unwrap();
    let payload = bundle["dsseEnvelope"]["payload"].as_str().unwrap();
    serde_json::from_slice(&STANDARD.decode(payload).unwrap()).unwrap()
}

/// Writes a signature of `payload` by the key for P-256, and after `change`.
pub fn write_bundle(folder: &Folder, name: &str, payload: &[u8], change: impl Fn(&mut Value)) {
    let key = p256::ecdsa::SigningKey::from_slice(&[7; 32]).unwrap();
    let head = format!("DSSEv1 28 application/vnd.in-toto+json {} ", payload.len());
    let signed = [head.as_bytes(), payload].concat();
    let signature: p256::ecdsa::DerSignature = key.sign(&signed);
    let public = p256::SecretKey::from_slice(&[7; 32]).unwrap().public_key();
    let pem = public.to_public_key_pem(LineEnding::LF).unwrap();
    let mut bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": format!("{:x}", Sha256::digest(pem))}},
        "dsseEnvelope": {
            "payload": STANDARD.encode(payload),
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": STANDARD.encode(signature.as_bytes())}],
        },
    });
    change(&mut bundle);
    fs::write(folder.path(name), bundle.to_string()).unwrap();
}

#[test]
fn files_and_shards_are_signed_and_verified_with_each_curve() {
    let folder = folder();
    for curve in CURVES {
        // Those by another key are not replaced.
        for name in ["m/model.sig", "m/model.digest.sig"] {
            let _ = fs::remove_file(folder.path(name));
        }
        let [secret, public] = ["pem", "pub"].map(|suffix| format!("keys/{curve}.{suffix}"));
        let tool = "--shard-form=model-signing";
        for options in [&[][..], &["--shard-size", "1000"], &["--shard-size", "1000", tool]] {
            let command = [&["sign", "m/m.onnx", "--key", &secret], options].concat();
            let said = folder.run(&command).done().stdout();
            let first = fs::read(folder.path("m/model.sig")).unwrap();
            assert_eq!(folder.run(&command).done().stdout(), said);
            assert_eq!(fs::read(folder.path("m/model.sig")).unwrap(), first);
            let run = folder.run(&["verify-signature", "m/m.onnx", "--key", &public]).done();
            run.says(&[
                &format!("key       {curve} "),
                match options.is_empty() {
                    true => "files     as signed: 2 files (m/model.sig)\n",
                    false => "files     as signed: 2 files in shards of 1000 bytes (m/model.sig)\n",
                },
                "content   as signed (m/model.digest.sig)\n",
                "verified  by files and content\n",
            ]);
            let run = folder.run(&["verify-signature", "m", "--key", &public]).done();
            assert!(run.stdout().ends_with("verified  by files\n"), "{run:?}");
        }
        let run = verify(&folder, &[]);
        let expected = if curve == "P-256" { 0 } else { 1 };
        assert_eq!(run.code(), expected, "{run:?}");
    }
    assert_eq!(folder.names(), ["keys", "m", "m.onnx"]);
    // Another encoding of the same key, from another folder, with a signature elsewhere.
    folder.run(&["sign", "m/m.onnx", "--key", "keys/sec1.pem", "-o", "s.sig"]).done();
    fs::remove_file(folder.path("m/model.sig")).unwrap();
    fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
    verify(&folder, &["-s", "s.sig"]).done().says(&["(s.sig)", "(s.digest.sig)"]);
}

#[test]
fn the_statements_are_those_of_the_specification_and_of_the_page() {
    let folder = folder();
    sign(&folder, &["--shard-size", "4000"]).done();
    let digest = |bytes: &[u8]| format!("{:x}", Sha256::digest(bytes));
    let [model, data] = ["m/m.onnx", "m/m.onnx.data"].map(|n| fs::read(folder.path(n)).unwrap());
    let mut resources = Vec::new();
    for (name, bytes) in [("m.onnx", &model), ("m.onnx.data", &data)] {
        for (n, shard) in bytes.chunks(4000).enumerate() {
            let start = n * 4000;
            let name = format!("{name}:{start}:{}", start + shard.len());
            resources.push(json!({"name": name, "algorithm": "sha256", "digest": digest(shard)}));
        }
    }
    resources.sort_by_key(|resource| resource["name"].to_string());
    let raw: Vec<u8> = resources.iter().flat_map(|r| hex(r["digest"].as_str().unwrap())).collect();
    let ignored =
        [".git", ".gitattributes", ".github", ".gitignore", "model.sig", "model.digest.sig"];
    assert_eq!(
        statement(&folder, "m/model.sig"),
        json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "m", "digest": {"sha256": digest(&raw)}}],
            "predicateType": "https://model_signing/signature/v1.0",
            "predicate": {
                "resources": resources,
                "serialization": {"method": "shards", "hash_type": "sha256", "shard_size": 4000,
                    "allow_symlinks": false, "ignore_paths": ignored},
            },
        })
    );
    let content = folder.run(&["digest", "m/m.onnx"]).done().stdout();
    assert_eq!(
        statement(&folder, "m/model.digest.sig"),
        json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "m.onnx", "digest": {"onnxContainerContent1": content[7..71]}}],
            "predicateType": "https://onnx-container/content/v1",
            "predicate": {
                "scheme": "onnx-container/content/1", "files": ["m.onnx", "m.onnx.data"],
            },
        })
    );
}

pub fn hex(digits: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[test]
fn files_that_are_not_as_signed_are_named() {
    for options in [&[][..], &["--shard-size=4000"]] {
        let folder = folder();
        sign(&folder, options).done();
        fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
        let data = fs::read(folder.path("m/m.onnx.data")).unwrap();
        let mut changed = data.clone();
        changed[4097] ^= 1;
        fs::write(folder.path("m/m.onnx.data"), &changed).unwrap();
        let run = verify(&folder, &[]).failed(&[]);
        let place = if options.is_empty() {
            "its SHA-256 is"
        } else {
            "its SHA-256 in bytes 4000..8000 is"
        };
        run.says(&[
            "NOT as signed: 1 problem, 2 files signed",
            "changed `m.onnx.data`: ",
            place,
            "NOT VERIFIED",
        ]);
        verify(&folder, &["--ignore-unsigned-files"]).failed(&[]).says(&["changed `m.onnx.data`"]);
        fs::write(folder.path("m/m.onnx.data"), [&data[..], &[0]].concat()).unwrap();
        verify(&folder, &[]).failed(&[]).says(&["changed `m.onnx.data`: "]);
        fs::remove_file(folder.path("m/m.onnx.data")).unwrap();
        verify(&folder, &[])
            .failed(&[])
            .says(&["missing `m.onnx.data`: it was signed and is not there"]);
        fs::write(folder.path("m/m.onnx.data"), &data).unwrap();
        verify(&folder, &[]).done();

        fs::create_dir(folder.path("m/sub")).unwrap();
        fs::write(folder.path("m/sub/x"), [1]).unwrap();
        let json = verify(&folder, &["--json"]).failed(&[]).json();
        let problem = &json["files"]["problems"][0];
        assert_eq!((&problem["path"], &problem["problem"]), (&json!("sub/x"), &json!("unsigned")));
        verify(&folder, &["--ignore-unsigned-files"]).done();
        fs::rename(folder.path("m/sub"), folder.path("m/.git")).unwrap();
        verify(&folder, &[]).done();
    }
}

#[test]
fn what_the_model_needs_has_to_be_signed_whatever_else_is_ignored() {
    let folder = folder();
    fs::write(folder.path("m/a.bin"), [1; 16]).unwrap();
    fs::write(folder.path("m/b.bin"), [1; 16]).unwrap();
    folder.save("m/m.onnx", &external(&["a.bin"]));
    fs::remove_file(folder.path("m/m.onnx.data")).unwrap();
    sign(&folder, &[]).done().says(&["note      1 other file of the folder is not signed"]);
    let mut signed = statement(&folder, "m/model.sig");
    // The same statement, for a model that needs the other file.
    folder.save("m/m.onnx", &external(&["b.bin"]));
    let model = format!("{:x}", Sha256::digest(fs::read(folder.path("m/m.onnx")).unwrap()));
    let resources = signed["predicate"]["resources"].as_array_mut().unwrap();
    resources[1]["digest"] = json!(model);
    let raw: Vec<u8> = resources.iter().flat_map(|r| hex(r["digest"].as_str().unwrap())).collect();
    signed["subject"][0]["digest"]["sha256"] = json!(format!("{:x}", Sha256::digest(raw)));
    write_bundle(&folder, "m/model.sig", signed.to_string().as_bytes(), |_| ());
    fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
    let run = verify(&folder, &["--ignore-unsigned-files"]).failed(&[]);
    run.says(&["unsigned `b.bin`: the model needs it, and it was not signed"]);
}

#[test]
fn content_still_holds_when_the_model_is_written_anew() {
    let folder = folder();
    sign(&folder, &[]).done();
    let signed =
        ["m/m.onnx", "m/m.onnx.data"].map(|name| (name, fs::read(folder.path(name)).unwrap()));
    let gone = "anew, and 1 signed file is\n          gone (m.onnx.data)";
    for (command, written) in [
        (&["pack", "m/m.onnx", "m/m.onnx", "--align", "128", "--min-bytes", "0"][..], "anew\n"),
        (&["embed", "m/m.onnx", "m/m.onnx"], gone),
        (&["embed", "m/m.onnx", "m/m.onnx", "--keep-old"], "anew\n"),
        (&["split", "m/m.onnx", "m/m.onnx"], gone),
    ] {
        signed.iter().for_each(|(name, bytes)| fs::write(folder.path(name), bytes).unwrap());
        folder.run(command).done();
        verify(&folder, &[]).done().says(&[
            "files     NOT as signed",
            "verified  by content alone: its files were written ",
            written,
        ]);
        let json = verify(&folder, &["--json"]).done().json();
        let held = ["files", "content"].map(|statement| json[statement]["as_signed"].as_bool());
        assert_eq!((&json["ok"], held), (&json!(true), [Some(false), Some(true)]), "{json}");
        verify(&folder, &["--require-files"]).failed(&[]).says(&["NOT VERIFIED"]);
    }
    // Elsewhere, under another name.
    fs::create_dir(folder.path("n")).unwrap();
    folder.run(&["pack", "m/m.onnx", "n/n.onnx"]).done();
    let elsewhere =
        ["verify-signature", "n/n.onnx", "--key", "keys/P-256.pub", "-s", "m/model.sig"];
    folder.run(&elsewhere).done().says(&[
        "missing `m.onnx`",
        "unsigned `n.onnx`",
        "by content alone",
    ]);
    // A file that does not belong to the model is not excused by its content.
    fs::write(folder.path("n/strange.py"), "1").unwrap();
    folder.run(&elsewhere).failed(&[]).says(&["unsigned `strange.py`", "NOT VERIFIED"]);
    // Neither is a file that was signed with the model.
    let mut other = model();
    other
        .graph
        .as_mut()
        .unwrap()
        .initializer
        .push(TensorProto::new("more", TensorProto::FLOAT, [1]).with_raw_data(vec![0; 4]));
    folder.save("m/m.onnx", &other);
    verify(&folder, &[]).failed(&[]).says(&[
        "content   NOT as signed",
        "its digest is",
        "NOT VERIFIED",
    ]);
}

#[test]
fn all_files_of_the_folder_are_signed_on_request() {
    let folder = folder();
    fs::create_dir_all(folder.path("m/.git/x")).unwrap();
    fs::create_dir_all(folder.path("m/sub/.git")).unwrap();
    // On Windows a colon is before the name of a stream.
    let odd = if cfg!(windows) { "m/sub/a-0-1" } else { "m/sub/a:0:1" };
    for name in ["m/.git/x/y", "m/.gitignore", "m/sub/.git/z", odd, "m/tokenizer.json"] {
        fs::write(folder.path(name), name).unwrap();
    }
    sign(&folder, &[]).done().says(&["note      3 other files"]);
    verify(&folder, &["--all-files"]).failed(&[]).says(&["unsigned `tokenizer.json`"]);
    for options in [&["--all-files"][..], &["--all-files", "--shard-size=3"]] {
        sign(&folder, options).done();
        verify(&folder, &[]).done().says(&["as signed: 5 files"]);
    }
    fs::write(folder.path("m/tokenizer.json"), "x").unwrap();
    // The content of the model says nothing about this file.
    let run = verify(&folder, &[]).failed(&[]);
    run.says(&["changed `tokenizer.json`", "content   as signed", "NOT VERIFIED"]);
}

#[test]
#[cfg(unix)]
fn links_are_not_signed_and_verified_as_the_policy_has_it() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    sign(&folder, &[]).done();
    fs::rename(folder.path("m/m.onnx.data"), folder.path("m/moved")).unwrap();
    symlink("moved", folder.path("m/m.onnx.data")).unwrap();
    verify(&folder, &["--ignore-unsigned-files"]).done().says(&["verified  by files and content"]);
    verify(&folder, &[]).failed(&[]).says(&["unsigned `moved`", "NOT VERIFIED: `moved` was not"]);
    let run = verify(&folder, &["--paths=strict", "--ignore-unsigned-files"]).failed(&[]);
    run.says(&[
        "refused `m.onnx.data`: a symbolic link",
        "NOT VERIFIED: `m.onnx.data` was refused",
    ]);
    sign(&folder, &[]).failed(&["`m/m.onnx.data`: a symbolic link, and only regular files"]);
    fs::remove_file(folder.path("m/m.onnx.data")).unwrap();
    fs::rename(folder.path("m/moved"), folder.path("m/m.onnx.data")).unwrap();
    symlink("/", folder.path("m/root")).unwrap();
    verify(&folder, &[]).failed(&[]).says(&["refused `root`: a link to a folder"]);
    sign(&folder, &["--all-files"]).failed(&["root", "a symbolic link"]);
}

#[test]
fn keys_that_do_not_fit_are_refused_with_what_to_do() {
    let folder = folder();
    sign(&folder, &[]).done();
    let pem = |label: &str| format!("-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n");
    for (text, secret, public) in [
        (pem("ENCRYPTED PRIVATE KEY"), "is encrypted: `openssl pkey", "is encrypted"),
        (pem("OPENSSH PRIVATE KEY"), "`ssh-keygen -p -m PKCS8", "a key of OpenSSH"),
        (pem("PUBLIC KEY"), "is a public key", "is no key for P-256, P-384 or P-521"),
        (pem("PRIVATE KEY"), "is no key for P-256", "`openssl pkey -in KEY -pubout"),
        (pem("CERTIFICATE"), "is a certificate", "is a certificate"),
        (
            pem("EC PRIVATE KEY").replace("MAA", "Proc-Type: 4,ENCRYPTED\n\nMAA"),
            "is encrypted",
            "-pubout",
        ),
        (String::new(), "holds no private key", "holds no public key"),
        ("-".repeat(70_000), "is not a PEM file", "is not a PEM file"),
    ] {
        fs::write(folder.path("k"), text).unwrap();
        folder.run(&["sign", "m/m.onnx", "--key", "k"]).failed(&["error: `k`: this ", secret]);
        let command = ["verify-signature", "m/m.onnx", "--key", "k"];
        folder.run(&command).failed(&["error: `k`: this ", public]);
    }
    folder.run(&["sign", "m/m.onnx", "--key", "none"]).failed(&["`none`"]);
    folder.run(&["sign", "m/m.onnx", "--key", "keys"]).failed(&["`keys`: a folder, not a file"]);
    let other = ["verify-signature", "m/m.onnx", "--key", "keys/other.pub"];
    folder.run(&other).failed(&["`m/model.sig`: signed by another key: the SHA-256 of its PEM is"]);
    let json = folder.run(&[&other[..], &["--json"]].concat()).json();
    assert_eq!(json["error"]["kind"], "OtherKey");
}

#[test]
fn a_signature_replaces_nothing_that_is_read() {
    let folder = folder();
    let before = folder.names();
    for (target, reason) in [
        ("keys/P-256.pem", "belongs to the model or is read"),
        ("m/m.onnx.data", "belongs to the model"),
        ("m.onnx", "this is a model"),
        ("none/x.sig", "no such folder"),
        ("m", "a folder: give the name of the file"),
    ] {
        sign(&folder, &["-o", target]).failed(&[reason]);
    }
    assert_eq!(folder.names(), before);
    sign(&folder, &[]).done();
    sign(&folder, &["--no-clobber"]).failed(&["model.sig", "exists already"]);
    fs::remove_file(folder.path("m/model.sig")).unwrap();
    sign(&folder, &["--no-clobber"]).failed(&["model.digest.sig", "exists already"]);
    assert!(!folder.path("m/model.sig").exists());
    verify(&folder, &[]).done().says(&["verified  by content\n"]);
    verify(&folder, &["--require-files"]).failed(&[]).says(&["NOT VERIFIED"]);
    fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
    let said = "`m/model.sig`: no signature is here, nor at `m/model.digest.sig`, `m/m.sig`, \
                `m/m.digest.sig`\n";
    verify(&folder, &[]).failed(&[said]);
}
