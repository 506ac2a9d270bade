//! What strangers give to `verify-signature`: bundles and statements that are not what was signed,
//! and the vectors of the specification.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::signing::{folder, hex, sign, statement, verify, write_bundle};
use crate::support::Folder;

/// A change of the bundle, and what is said of it.
type Malformed = (fn(&mut Value), &'static str);

#[test]
fn bundles_that_are_not_what_was_signed_are_refused() {
    let folder = folder();
    sign(&folder, &[]).done();
    fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
    let path = folder.path("m/model.sig");
    let good: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let flip = |field: &mut Value, at: usize| {
        let mut bytes = STANDARD.decode(field.as_str().unwrap()).unwrap();
        bytes[at] ^= 1;
        *field = json!(STANDARD.encode(bytes));
    };
    let payload = STANDARD.decode(good["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
    for at in (0..payload.len()).step_by(29).chain([payload.len() - 1]) {
        let mut bad = good.clone();
        flip(&mut bad["dsseEnvelope"]["payload"], at);
        fs::write(&path, bad.to_string()).unwrap();
        verify(&folder, &[]).failed(&["`m/model.sig`: the signature is not one of this payload"]);
    }
    for at in [0, 1, 3, 20, 60] {
        let mut bad = good.clone();
        flip(&mut bad["dsseEnvelope"]["signatures"][0]["sig"], at);
        fs::write(&path, bad.to_string()).unwrap();
        verify(&folder, &[]).failed(&["the signature is not one of this payload"]);
    }
    let cases: [Malformed; 12] = [
        (|b| b["mediaType"] = json!("x"), "the bundle is of the type \"x\""),
        (|b| b["dsseEnvelope"]["payloadType"] = json!("x"), "the payload is of the type \"x\""),
        (|b| b["dsseEnvelope"]["signatures"] = json!([]), "0 signatures"),
        (|b| b["dsseEnvelope"]["signatures"] = json!([{"sig": ""}, {"sig": ""}]), "2 signatures"),
        (|b| b["dsseEnvelope"]["signatures"][0]["sig"] = json!(""), "not one of this payload"),
        (|b| b["dsseEnvelope"]["payload"] = json!("*"), "the payload: "),
        (|b| b["dsseEnvelope"] = Value::Null, "not a signature bundle"),
        (|b| b["verificationMaterial"] = json!({}), "signed by no key"),
        (
            |b| b["verificationMaterial"] = json!({"x509CertificateChain": {}}),
            "signed by a certificate",
        ),
        (|b| b["verificationMaterial"]["certificate"] = json!({}), "both a key and a certificate"),
        (|b| b["verificationMaterial"]["publicKey"]["hint"] = json!("00"), "signed by another key"),
        (|b| *b = json!([]), "not a signature bundle"),
    ];
    for (change, reason) in cases {
        let mut bad = good.clone();
        change(&mut bad);
        fs::write(&path, bad.to_string()).unwrap();
        verify(&folder, &[]).failed(&["`m/model.sig`: ", reason]);
    }
    // What other tools write or leave out.
    let fine: [fn(&mut Value); 4] = [
        |b| b["dsseEnvelope"]["signatures"][0]["keyid"] = Value::Null,
        |b| drop(b["verificationMaterial"].as_object_mut().unwrap().remove("tlogEntries")),
        |b| b["verificationMaterial"]["publicKey"] = json!({"rawBytes": "eA==", "keyDetails": "x"}),
        |b| b["unknown"] = json!({"more": [1]}),
    ];
    for change in fine {
        let mut other = good.clone();
        change(&mut other);
        fs::write(&path, other.to_string()).unwrap();
        verify(&folder, &[]).done();
    }
    fs::write(&path, b"").unwrap();
    verify(&folder, &[]).failed(&["not a signature bundle"]);
    fs::write(&path, "[".repeat(100_000)).unwrap();
    verify(&folder, &[]).failed(&["not a signature bundle"]);
    fs::File::create(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    verify(&folder, &[]).failed(&["longer than 67108864 bytes"]);
}

/// Puts an array of these values in the place of the object at `place`.
fn as_array(whole: &Value, place: &str, keys: &[&str]) -> Value {
    let mut other = whole.clone();
    let object = other.pointer_mut(place).unwrap();
    *object = keys.iter().map(|key| object[*key].clone()).collect();
    other
}

#[test]
fn arrays_are_no_objects() {
    let folder = folder();
    sign(&folder, &[]).done();
    let [files, content] =
        ["m/model.sig", "m/model.digest.sig"].map(|name| statement(&folder, name));
    let path = folder.path("m/model.sig");
    let bundle: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
    let refused = || {
        verify(&folder, &[])
            .failed(&["`m/model.sig`: ", "invalid type: sequence, expected an object"])
    };
    for (place, keys) in [
        ("", &["mediaType", "verificationMaterial", "dsseEnvelope"][..]),
        ("/verificationMaterial", &["publicKey", "none", "none"]),
        ("/verificationMaterial/publicKey", &["hint"]),
        ("/dsseEnvelope", &["payload", "payloadType", "signatures"]),
        ("/dsseEnvelope/signatures/0", &["sig"]),
    ] {
        fs::write(&path, as_array(&bundle, place, keys).to_string()).unwrap();
        refused();
    }
    let common = [
        ("", &["_type", "subject", "predicateType", "predicate"][..]),
        ("/subject/0", &["name", "digest"]),
    ];
    let of_files = [
        ("/subject/0/digest", &["sha256"][..]),
        ("/predicate", &["serialization", "resources"]),
        (
            "/predicate/serialization",
            &["method", "hash_type", "none", "allow_symlinks", "ignore_paths"],
        ),
        ("/predicate/resources/0", &["name", "algorithm", "digest"]),
    ];
    let of_content = [
        ("/subject/0/digest", &["onnxContainerContent1"][..]),
        ("/predicate", &["scheme", "files"]),
    ];
    let of_files = common.iter().chain(&of_files).map(|case| (&files, case));
    let of_content = common.iter().chain(&of_content).map(|case| (&content, case));
    for (statement, (place, keys)) in of_files.chain(of_content) {
        let bad = as_array(statement, place, keys);
        write_bundle(&folder, "m/model.sig", bad.to_string().as_bytes(), |_| ());
        refused();
    }
}

#[test]
fn signed_statements_that_are_not_well_formed_are_refused() {
    let folder = folder();
    sign(&folder, &["--shard-size", "4000"]).done();
    let shards = statement(&folder, "m/model.sig");
    let content = statement(&folder, "m/model.digest.sig");
    sign(&folder, &[]).done();
    let files = statement(&folder, "m/model.sig");
    fs::remove_file(folder.path("m/model.digest.sig")).unwrap();
    let root = |statement: &mut Value| {
        let resources = statement["predicate"]["resources"].as_array().unwrap();
        let raw = resources.iter().filter_map(|r| r["digest"].as_str()).flat_map(hex);
        let raw: Vec<u8> = raw.collect();
        statement["subject"][0]["digest"]["sha256"] = json!(format!("{:x}", Sha256::digest(raw)));
    };
    let refused = |statement: &Value, reason: &str| {
        write_bundle(&folder, "m/model.sig", statement.to_string().as_bytes(), |_| ());
        verify(&folder, &[]).failed(&["`m/model.sig`: ", reason]);
    };
    let cases: [Malformed; 14] = [
        (
            |s| s["_type"] = json!("https://in-toto.io/Statement/v0.1"),
            "the statement is of the type",
        ),
        (
            |s| s["predicateType"] = json!("https://model_signing/Digests/v0.1"),
            "of an unknown type",
        ),
        (|s| s["subject"] = json!([]), "0 subjects"),
        (|s| s["subject"][0]["name"] = json!(""), "the subject has no name"),
        (|s| s["subject"][0]["digest"]["sha256"] = json!("00"), "the digest of all files is"),
        (|s| s["predicate"]["resources"] = json!([]), "no file is signed"),
        (|s| s["predicate"]["more"] = json!(1), "unknown field `more`"),
        (|s| s["predicate"]["serialization"] = Value::Null, "the signed statement: "),
        (|s| s["predicate"]["serialization"]["method"] = json!("x"), "an unknown method: \"x\""),
        (
            |s| s["predicate"]["serialization"]["method"] = json!("shards"),
            "no shard size is stated",
        ),
        (|s| s["predicate"]["serialization"]["shard_size"] = json!(1), "a shard size is stated"),
        (
            |s| s["predicate"]["serialization"]["hash_type"] = json!("blake3"),
            "only sha256 is verified",
        ),
        (
            |s| s["predicate"]["resources"][0]["algorithm"] = json!("blake3"),
            "\"m.onnx\" has a digest by",
        ),
        (|s| s["predicate"]["resources"][0]["digest"] = json!("00"), "\"m.onnx\" has no digest"),
    ];
    for (change, reason) in cases {
        let mut bad = files.clone();
        change(&mut bad);
        refused(&bad, reason);
    }
    for (name, reason) in [
        ("../m.onnx", "leads out of the folder"),
        ("a/../m.onnx", "leads out of the folder"),
        ("/m.onnx", "is an absolute path"),
        ("./m.onnx", "is not in its shortest form"),
        ("a//m.onnx", "is not in its shortest form"),
        ("a/", "is not in its shortest form"),
        ("", "is not in its shortest form"),
        ("a\0", "NUL"),
        ("z", "not in order"),
        ("m.onnx.data", "or some are there twice"),
    ] {
        let mut bad = files.clone();
        bad["predicate"]["resources"][0]["name"] = json!(name);
        refused(&bad, reason);
    }
    for (name, reason) in [
        ("m.onnx", "is not the name of a shard"),
        ("m.onnx:00:4000", "is not the name of a shard"),
        ("m.onnx.data:0:3999", "the shards do not cover a whole file"),
        ("m.onnx.data:1:4000", "the shards do not cover a whole file"),
        ("m.onnx.data:0:18446744073709551615", "the shards do not cover a whole file"),
    ] {
        let mut bad = shards.clone();
        bad["predicate"]["resources"][0]["name"] = json!(name);
        refused(&bad, reason);
    }
    for size in [json!(0), json!(-1), json!(0.5), json!(1e300)] {
        let mut bad = shards.clone();
        bad["predicate"]["serialization"]["shard_size"] = size;
        refused(&bad, "the shard size ");
    }
    // As the reference tool has shards: in the order of numbers, where the specification orders the
    // texts of names.
    let mut other = shards.clone();
    let resources = other["predicate"]["resources"].as_array_mut().unwrap();
    let key = |resource: &Value| {
        let name = resource["name"].as_str().unwrap();
        let mut parts = name.rsplitn(3, ':').map(str::to_owned);
        let (_, start) = (parts.next(), parts.next().unwrap().parse::<u64>().unwrap());
        (parts.next().unwrap(), start)
    };
    resources.sort_by_key(key);
    resources.iter_mut().for_each(|r| r["algorithm"] = json!("sha256-sharded-4000"));
    other["predicate"]["serialization"]["shard_size"] = json!(4000.0);
    assert_ne!(other, shards, "there are enough shards for the orders to differ");
    root(&mut other);
    write_bundle(&folder, "m/model.sig", other.to_string().as_bytes(), |_| ());
    verify(&folder, &[]).done();
    for algorithm in ["sha256", "sha256-sharded-400"] {
        let mut bad = other.clone();
        bad["predicate"]["resources"][1]["algorithm"] = json!(algorithm);
        refused(&bad, "and not sha256-sharded-4000");
    }

    for (change, reason) in [
        ((|s| s["predicate"]["scheme"] = json!("x")) as fn(&mut Value), "an unknown scheme"),
        (|s| s["predicate"]["more"] = json!(1), "unknown field"),
        (|s| s["subject"][0]["digest"]["onnxContainerContent1"] = json!("x"), "no digest"),
        (|s| s["subject"][0]["digest"] = json!({"sha256": "00"}), "the signed statement"),
    ] {
        let mut bad = content.clone();
        change(&mut bad);
        refused(&bad, reason);
    }
    write_bundle(&folder, "m/model.sig", content.to_string().as_bytes(), |_| ());
    verify(&folder, &[]).done().says(&["verified  by content\n"]);
    folder.run(&["verify-signature", "m", "--key", "keys/P-256.pub"]).failed(&["give the model"]);
    fs::copy(folder.path("m/model.sig"), folder.path("m/model.digest.sig")).unwrap();
    verify(&folder, &[]).failed(&["makes the same statement"]);
}

/// The vectors of the specification: see tests/data/signing/README.md.
#[test]
fn the_vectors_of_the_specification_are_judged_as_it_has_it() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/signing");
    let key = vectors.join("p384.pub.pem");
    let folder = Folder::new();
    let write = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(folder.path(name).parent().unwrap()).unwrap();
        fs::write(folder.path(name), bytes).unwrap();
    };
    write("simple/signme-1", b"signme-1\n");
    write("simple/signme-2", b"signme-2");
    write("multi-file/config.json", br#"{"model": "test", "version": "1.0"}"#);
    write("multi-file/weights.bin", &[0xab; 1024]);
    write("multi-file/subdir/adapter.bin", &[0xcd; 512]);
    write("single-file/model.bin", &[0xef; 256]);
    let run = |vector: &str, model: &str, options: &[&str]| {
        let signature = vectors.join(format!("{vector}.bundle.json"));
        let [key, signature] = [&key, &signature].map(|path| path.to_str().unwrap());
        let command = ["verify-signature", model, "--key", key, "--signature", signature];
        folder.run(&[&command[..], options].concat())
    };
    for (vector, model) in [
        ("key", "simple"),
        ("key-go", "simple"),
        ("key-multi-file", "multi-file"),
        ("key-single-file", "single-file"),
    ] {
        run(vector, model, &[]).done().says(&["P-384", "verified  by files\n"]);
    }
    for (vector, reason) in [
        ("missing-envelope", "missing field `dsseEnvelope`"),
        ("wrong-predicate", "the signature is not one of this payload"),
        ("wrong-statement-type", "the statement is of the type"),
        ("certificate", "signed by a certificate"),
    ] {
        run(vector, "simple", &[]).failed(&[reason]);
    }
    // One path is ignored by the signature itself.
    write("simple/ignore-me", b"");
    run("key", "simple", &[]).done();
    write("simple/injected.bin", b"injected after signing\n");
    run("key", "simple", &[]).failed(&[]).says(&["unsigned `injected.bin`"]);
    run("key", "simple", &["--ignore-unsigned-files"]).done();
    write("simple/signme-1", b"TAMPERED CONTENT\n");
    run("key", "simple", &["--ignore-unsigned-files"]).failed(&[]).says(&["changed `signme-1`"]);
    fs::remove_file(folder.path("simple/signme-2")).unwrap();
    run("key", "simple", &["--ignore-unsigned-files"]).failed(&[]).says(&["missing `signme-2`"]);
}
