//! `sign` and `verify-signature` in folders: what killed commands left there, whole folders,
//! several models, links, and where signatures are put.

use std::fs;

use crate::leftovers::{interrupt, interrupt_switch};
use crate::signing::{folder, sign, verify};
use crate::support::Folder;

/// A folder with keys and a packed model at its top, signed.
pub fn packed() -> Folder {
    let folder = Folder::packed();
    crate::signing::make_keys(&folder);
    fs::remove_dir_all(folder.path("m")).ok();
    folder.run(&["sign", "p.onnx", "--key", "keys/P-256.pem", "-o", "keys/p.sig"]).done();
    folder
}

/// Moves the private keys out of the folder: where they are, and the path of one.
pub fn keys_outside(folder: &Folder) -> (Folder, String) {
    let away = Folder::new();
    for name in fs::read_dir(folder.path("keys")).unwrap().map(|it| it.unwrap().file_name()) {
        let name = name.into_string().unwrap();
        if name.ends_with(".pem") {
            let from = folder.path(&format!("keys/{name}"));
            fs::copy(&from, away.path(&name)).unwrap();
            fs::remove_file(from).unwrap();
        }
    }
    let key = away.path("P-256.pem").display().to_string();
    (away, key)
}

const VERIFY: [&str; 7] = [
    "verify-signature",
    "p.onnx",
    "--key",
    "keys/P-256.pub",
    "-s",
    "keys/p.sig",
    "--ignore-unsigned-files",
];

#[test]
fn a_verification_completes_an_interrupted_save() {
    let folder = packed();
    interrupt_switch(&folder);
    let run = folder.run(&VERIFY);
    let said = "warning: a save of `p.onnx` was interrupted; it is complete now";
    assert_eq!((run.code(), run.stderr().contains(said)), (0, true), "{run:?}");
    folder.run(&VERIFY).done();
    assert!(!folder.path(".p.onnx.switching").exists());
}

#[test]
fn what_an_interrupted_save_left_is_neither_signed_nor_verified() {
    let folder = packed();
    let (_away, key) = keys_outside(&folder);
    let all = ["sign", "p.onnx", "--key", &key, "--all-files"];
    folder.run(&all).done();
    interrupt(&folder);
    folder
        .run(&all)
        .failed(&["has what an interrupted save left: run `onnx-container recover .`, then sign"]);
    let model = ["verify-signature", "p.onnx", "--key", "keys/P-256.pub"];
    folder.run(&model).failed(&[]).says(&[
        "unsigned `.p.onnx.saving-aB3xYz/new/p.onnx`",
        "an interrupted save left",
        "`onnx-container recover .` removes it",
    ]);
    let whole = ["verify-signature", ".", "--key", "keys/P-256.pub"];
    for options in [&[][..], &["--ignore-unsigned-files"]] {
        folder.run(&[&whole[..], options].concat()).failed(&[
            "has what an interrupted save left: run `onnx-container recover .`, then verify",
        ]);
    }
    folder.run(&["recover", "."]).done();
    folder.run(&all).done();
    folder.run(&model).done();
    folder.run(&whole).done();
    // So it is with a job that has ended and was not removed to its end.
    fs::create_dir_all(folder.path(".p.onnx.ended-aB3xYz/new")).unwrap();
    fs::write(folder.path(".p.onnx.ended-aB3xYz/new/p.onnx.data"), "old").unwrap();
    let said = "has what an interrupted save left: run `onnx-container recover .`, then sign";
    folder.run(&all).failed(&[said]);
    folder.run(&["recover", "."]).done();
    folder.run(&all).done();
}

#[test]
fn files_of_a_killed_signing_are_removed_unless_a_process_holds_them() {
    const LEFT: &str = "m/.onnx-container-signing-aB3xYz";
    let folder = folder();
    let bundle = "{\"mediaType\":\"application/vnd.dev.sigstore.bundle.v0.3+json\",\"verif";
    let left = |bytes: &str| fs::write(folder.path(LEFT), bytes).unwrap();
    sign(&folder, &["--all-files"]).done();
    for bytes in ["", &bundle[..9], bundle] {
        left(bytes);
        let run = verify(&folder, &[]).failed(&[]);
        run.says(&["unsigned `.onnx-container-signing-aB3xYz`: a `sign` that was killed"]);
        sign(&folder, &["--all-files"]).done();
        verify(&folder, &[]).done();
        assert!(!folder.path(LEFT).exists());

        left(bytes);
        let run = folder.run(&["recover", "m"]).done();
        run.says(&["removed   1 file of a `sign` that was killed"]);
    }
    // One that a process holds is left, and is not signed.
    left(bundle);
    let held = fs::File::open(folder.path(LEFT)).unwrap();
    held.lock().unwrap();
    folder.run(&["recover", "m"]).done().says(&["nothing to recover"]);
    sign(&folder, &["--all-files"]).done();
    assert!(folder.path(LEFT).exists());
    drop(held);
    let json = folder.run(&["recover", "m", "--json"]).done().json();
    assert_eq!(json["removed_signing"], 1);
    verify(&folder, &[]).done();
}

/// Files of people whose names are like those that `sign` makes, or whose contents are.
#[test]
fn files_that_sign_did_not_make_stay_and_are_signed_as_all_others() {
    let folder = folder();
    let bundle = "{\"mediaType\":\"application/vnd.dev.sigstore.bundle.v0.3+json\",";
    let files = [
        (".signing-config", "my notes"),
        (".signing-aB3xYz", ""),
        (".signing-secret", "{}"),
        (".signing-backup", bundle),
        (".onnx-container-signing-notes", bundle),
        (".onnx-container-signing-aB3xYz1", bundle),
        ("signing-policy", bundle),
    ];
    files
        .iter()
        .for_each(|(name, text)| fs::write(folder.path(&format!("m/{name}")), text).unwrap());
    let are_there = || {
        for (name, text) in files {
            assert_eq!(fs::read_to_string(folder.path(&format!("m/{name}"))).unwrap(), text);
        }
    };
    sign(&folder, &["--all-files"]).done().says(&["9 files"]);
    are_there();
    verify(&folder, &["--all-files"]).done().says(&["as signed: 9 files"]);
    folder.run(&["recover", "m"]).done();
    are_there();
    // Neither is one of the very name that does not hold a signature.
    fs::write(folder.path("m/.onnx-container-signing-aB3xYz"), "my notes").unwrap();
    sign(&folder, &[]).done();
    folder.run(&["recover", "m"]).done();
    are_there();
    let notes = fs::read_to_string(folder.path("m/.onnx-container-signing-aB3xYz")).unwrap();
    assert_eq!(notes, "my notes");
}

/// Every option that names a file to be read: none of them waits for a pipe or reads without an
/// end.
#[test]
#[cfg(unix)]
fn what_is_no_regular_file_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let folder = folder();
    sign(&folder, &[]).done();
    mknodat(CWD, folder.path("pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    mknodat(CWD, folder.path("m/pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    fs::create_dir(folder.path("dir")).unwrap();
    let (public, private) = ("keys/P-256.pub", "keys/P-256.pem");
    for (no_file, reason) in
        [("pipe", "not a regular file"), ("/dev/zero", "not a regular file"), ("dir", "folder")]
    {
        for args in [
            &["verify-signature", "m/m.onnx", "--key", no_file][..],
            &["verify-signature", "m/m.onnx", "--key", public, "-s", no_file],
            &["sign", "m/m.onnx", "--key", no_file],
        ] {
            folder.run(args).failed(&[&format!("`{no_file}`"), reason]);
        }
        folder.run(&["sign", "m/m.onnx", "--key", private, "-o", no_file]).failed(&[no_file]);
    }
    for no_model in ["pipe", "/dev/zero"] {
        for command in
            [["sign", no_model, "--key", private], ["verify-signature", no_model, "--key", public]]
        {
            folder.run(&command).failed(&[]);
        }
    }
    // One that lies in the folder is no file that could be signed, and not the model's.
    sign(&folder, &["--all-files"]).failed(&["m/pipe"]);
    sign(&folder, &[]).done();
    verify(&folder, &[]).done().says(&["1 other file here is not signed", "`pipe`"]);
    verify(&folder, &["--all-files"]).failed(&[]).says(&["refused `pipe`"]);
}

#[test]
fn a_folder_is_signed_as_it_is_verified() {
    let folder = folder();
    fs::create_dir(folder.path("m/sub")).unwrap();
    fs::write(folder.path("m/sub/tokenizer.json"), "{}").unwrap();
    let whole = ["sign", "m", "--key", "keys/P-256.pem"];
    for options in [&[][..], &["--all-files"], &["--shard-size", "1000"]] {
        let run = folder.run(&[&whole[..], options].concat()).done();
        run.says(&["wrote     m/model.sig: 3 files", "a folder has no content"]);
        for what in ["m", "m/m.onnx"] {
            let run = folder.run(&["verify-signature", what, "--key", "keys/P-256.pub"]).done();
            run.says(&["as signed: 3 files", "verified  by files\n"]);
        }
    }
    assert!(!folder.path("m/model.digest.sig").exists());
    let json = folder.run(&[&whole[..], &["--json"]].concat()).done().json();
    assert!(json["digest"].is_null() && json["content_signature"].is_null(), "{json}");
    fs::write(folder.path("m/sub/tokenizer.json"), "[]").unwrap();
    let run = folder.run(&["verify-signature", "m", "--key", "keys/P-256.pub"]).failed(&[]);
    run.says(&["NOT VERIFIED: `sub/tokenizer.json` was changed\n"]);
    fs::create_dir(folder.path("empty")).unwrap();
    let empty = ["sign", "empty", "--key", "keys/P-256.pem"];
    folder.run(&empty).failed(&["`empty`: no file is in this folder"]);
}

#[test]
fn a_signature_is_not_put_where_it_would_be_taken_for_another() {
    let folder = folder();
    fs::create_dir_all(folder.path("pub")).unwrap();
    fs::rename(folder.path("m"), folder.path("pub/onnx")).unwrap();
    let sign = |target: &str| {
        let model = "pub/onnx/m.onnx";
        folder.run(&["sign", model, "--key", "keys/P-256.pem", "--all-files", "-o", target])
    };
    let above = ["names files beneath `pub/onnx`", "`sign FOLDER` signs the whole folder"];
    sign("pub/model.sig").failed(&above);
    sign("model.sig").failed(&above);
    sign("pub/onnx.sig").done();
    sign("pub/onnx/model.sig").done();
    sign("x.digest.sig").failed(&["is the name of the content signature: give NAME.sig"]);
    let run = sign("none/x.sig").failed(&["error: `none`: no such folder"]);
    assert_eq!(run.stderr().matches("no such folder").count(), 1, "{run:?}");
}

#[test]
fn a_signature_that_stays_behind_is_named() {
    let folder = folder();
    let sign = ["sign", "m/m.onnx", "--key", "keys/P-256.pem"];
    folder.run(&sign).done();
    fs::create_dir(folder.path("to")).unwrap();
    let stays = |of: &str, next: &str| {
        ["sig", "digest.sig"]
            .map(|end| format!("left      m/model.{end}: the signature of `{of}` stays; {next}"))
    };
    let signs = stays("m.onnx", "`sign` signs the model in its new place");
    let removes = stays("m.onnx", "remove it too where nothing else needs it");
    for (args, said) in [
        (&["cp", "m/m.onnx", "to/c.onnx"][..], &signs),
        (&["mv", "m/m.onnx", "to/n.onnx", "--dry-run"], &signs),
        (&["rm", "m/m.onnx", "--dry-run"], &removes),
    ] {
        folder.run(args).done().says(&[&said[0], &said[1]]);
    }
    let json = folder.run(&["rm", "m/m.onnx", "--json"]).done().json();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2, "{json}");
    // Those of another model are not spoken of.
    folder.save("m/other.onnx", &crate::support::model());
    let run = folder.run(&["rm", "m/other.onnx"]).done();
    assert!(!run.stdout().contains("signature"), "{run:?}");
}

/// `sign` proposes a name for a second model of a folder, where `verify-signature` finds it.
#[test]
fn the_signature_of_a_second_model_is_found() {
    let folder = folder();
    fs::create_dir(folder.path("two")).unwrap();
    let sign = |model: &str, options: &[&str]| {
        folder.run(&[&["sign", model, "--key", "keys/P-256.pem"], options].concat())
    };
    let verify = |model: &str| folder.run(&["verify-signature", model, "--key", "keys/P-256.pub"]);
    for name in ["encoder", "decoder"] {
        let mut model = crate::support::model();
        model.producer_name = Some(name.into());
        folder.save(&format!("two/{name}.onnx"), &model);
    }
    sign("two/encoder.onnx", &[]).done();
    let verified = "verified  by files and content";
    verify("two/encoder.onnx").says(&[verified]);
    verify("two/decoder.onnx").failed(&[]).says(&["was not signed"]);
    sign("two/decoder.onnx", &[]).failed(&["such as -o two/decoder.sig"]);
    sign("two/decoder.onnx", &["-o", "two/decoder.sig"]).done();
    verify("two/decoder.onnx").done().says(&[verified]);
    verify("two/encoder.onnx").done().says(&[verified]);
    // Also once the other model is gone, whose signature stays.
    folder.run(&["rm", "two/encoder.onnx"]).done();
    verify("two/decoder.onnx").done().says(&[verified]);
    fs::remove_file(folder.path("two/decoder.sig")).unwrap();
    verify("two/decoder.onnx").done().says(&["verified  by content"]);
    // A model without that of another beside it, too.
    fs::create_dir(folder.path("one")).unwrap();
    folder.save("one/decoder.onnx", &crate::support::model());
    sign("one/decoder.onnx", &["-o", "one/decoder.sig"]).done();
    verify("one/decoder.onnx").done().says(&[verified]);
}

#[test]
fn two_models_of_a_folder_have_signatures_of_their_own() {
    let folder = folder();
    fs::create_dir(folder.path("two")).unwrap();
    for name in ["encoder", "decoder"] {
        folder.run(&["pack", "m.onnx", &format!("two/{name}.onnx")]).done();
    }
    folder.run(&["embed", "two/decoder.onnx", "two/decoder.onnx", "--allow-over-2gib"]).done();
    let mut other = crate::support::model();
    other.producer_name = Some("another".into());
    folder.save("two/decoder.onnx", &other);
    let sign = |name: &str, options: &[&str]| {
        let model = format!("two/{name}.onnx");
        let command = ["sign", &model, "--key", "keys/P-256.pem", "--all-files"];
        folder.run(&[&command[..], options].concat())
    };
    let verify = |name: &str, options: &[&str]| {
        let model = format!("two/{name}.onnx");
        folder.run(&[&["verify-signature", &model, "--key", "keys/P-256.pub"], options].concat())
    };
    sign("encoder", &[]).done();
    // The files that were signed are those of both; the content is that of one.
    verify("decoder", &[]).done().says(&[
        "content   not signed (two/model.digest.sig): this is about `encoder.onnx`\n",
        "verified  by files\n",
    ]);
    let json = verify("decoder", &["--json"]).done().json();
    assert_eq!(json["content"]["model"], "encoder.onnx");
    assert!(json["content"]["as_signed"].is_null(), "{json}");
    sign("decoder", &[]).failed(&[
        "`two/model.digest.sig`: this is the signature of `encoder.onnx`, and is not replaced by one of",
        "such as -o two/decoder.sig",
    ]);
    sign("decoder", &["-o", "two/decoder.sig"]).done();
    sign("encoder", &[]).done();
    verify("encoder", &[]).done().says(&["verified  by files and content"]);
    verify("decoder", &["-s", "two/decoder.sig"]).done().says(&["verified  by files and content"]);
    // What is only called a signature is a file as any other, and so is one by somebody else.
    fs::write(folder.path("two/x.sig"), "{}").unwrap();
    verify("encoder", &[]).failed(&[]).says(&["unsigned `x.sig`"]);
    let other = ["sign", "m/m.onnx", "--key", "keys/other.pem", "-o", "two/x.sig"];
    folder.run(&other).failed(&["`two/x.sig`: this is no signature", "remove it, or give another"]);
    assert_eq!(fs::read(folder.path("two/x.sig")).unwrap(), b"{}");
    fs::remove_file(folder.path("two/x.sig")).unwrap();
    folder.run(&other).done();
    verify("encoder", &[]).failed(&[]).says(&["unsigned `x.digest.sig`", "unsigned `x.sig`"]);
    // The signatures of somebody else stay too.
    let own = ["sign", "m/m.onnx", "--key", "keys/P-256.pem", "-o", "two/x.sig"];
    folder.run(&own).failed(&[
        "`two/x.sig`: this is a signature by another key, and is not replaced",
        "`two/x.digest.sig`: this is a signature by another key",
    ]);
    fs::remove_file(folder.path("two/x.sig")).unwrap();
    fs::remove_file(folder.path("two/x.digest.sig")).unwrap();

    // Without a statement on its files, the content of another model is that of another.
    fs::remove_file(folder.path("two/model.sig")).unwrap();
    for own in ["decoder.sig", "decoder.digest.sig"] {
        fs::remove_file(folder.path("two").join(own)).unwrap();
    }
    verify("decoder", &[]).failed(&[]).says(&[
        "content   NOT as signed (two/model.digest.sig): this is about `encoder.onnx`;\n",
        "NOT VERIFIED: the content is not as signed: its signature is about\n",
    ]);
    // A model that was renamed takes its signature with it.
    fs::remove_file(folder.path("two/encoder.onnx")).unwrap();
    sign("decoder", &[]).done();
}

#[test]
#[cfg(unix)]
fn a_snapshot_in_the_cache_of_hugging_face_is_verified_through_its_links() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    fs::write(folder.path("m/config.json"), "{}").unwrap();
    sign(&folder, &["--all-files"]).done();
    fs::create_dir_all(folder.path("cache/blobs")).unwrap();
    fs::create_dir_all(folder.path("cache/snapshots/main")).unwrap();
    for name in ["m.onnx", "m.onnx.data", "config.json", "model.sig", "model.digest.sig"] {
        let blob = format!("cache/blobs/{name}-blob");
        fs::copy(folder.path(&format!("m/{name}")), folder.path(&blob)).unwrap();
        let link = folder.path(&format!("cache/snapshots/main/{name}"));
        symlink(format!("../../blobs/{name}-blob"), link).unwrap();
    }
    let verify = |what: &str, policy: &str| {
        let command = ["verify-signature", what, "--key", "keys/P-256.pub", "--paths", policy];
        folder.run(&command)
    };
    let model = "cache/snapshots/main/m.onnx";
    for policy in ["model-dirs", "trusted"] {
        verify(model, policy).done().says(&["verified  by files and content\n"]);
    }
    let run = verify(model, "strict").failed(&[]);
    run.says(&["refused `m.onnx`: a symbolic link", "`--paths model-dirs`", "NOT VERIFIED"]);
    verify("cache/snapshots/main", "trusted").done().says(&["verified  by files\n"]);
    let run = verify("cache/snapshots/main", "model-dirs").failed(&[]);
    run.says(&[
        "refused `m.onnx`: a symbolic link that leads out of",
        "(`--paths trusted`) allows it",
    ]);
    // A link to a file that was not signed is an unsigned file, and the bytes behind links count.
    symlink("../../blobs/config.json-blob", folder.path("cache/snapshots/main/more")).unwrap();
    verify(model, "model-dirs").failed(&[]).says(&["unsigned `more`"]);
    fs::remove_file(folder.path("cache/snapshots/main/more")).unwrap();
    fs::write(folder.path("cache/blobs/config.json-blob"), "[]").unwrap();
    verify(model, "model-dirs").failed(&[]).says(&["changed `config.json`"]);
}

#[test]
fn too_many_shards_are_refused_before_a_file_is_hashed() {
    let folder = folder();
    fs::File::create(folder.path("m/large")).unwrap().set_len(1 << 40).unwrap();
    let run = sign(&folder, &["--all-files", "--shard-size", "1000"]);
    run.failed(&["this needs 1099511642 shards", "at least --shard-size 4MB"]);
    assert!(!folder.path("m/model.sig").exists());
    // A file that grew is not taken apart either.
    fs::File::create(folder.path("m/large")).unwrap().set_len(10).unwrap();
    sign(&folder, &["--all-files", "--shard-size", "10"]).done();
    fs::File::create(folder.path("m/large")).unwrap().set_len(1 << 40).unwrap();
    let run = verify(&folder, &[]).failed(&[]);
    run.says(&["changed `large`: it has 1099511627776 bytes, not 10"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_link_to_a_stream_of_a_process_is_not_replaced() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    // As /dev/stdout is one, and standard output a file.
    symlink("/proc/self/fd/1", folder.path("stdout")).unwrap();
    let mut command =
        folder.command(&["sign", "m/m.onnx", "--key", "keys/P-256.pem", "-o", "stdout"]);
    let file = fs::File::create(folder.path("out.txt")).unwrap();
    let output = command.stdout(file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("`stdout`: a link to something that is not a regular file"), "{said}");
    assert!(folder.path("stdout").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn long_lists_of_signed_files_are_cut() {
    let folder = folder();
    (0..40).for_each(|n| fs::write(folder.path(&format!("m/{n}")), "x").unwrap());
    let run = sign(&folder, &["--all-files"]).done();
    run.says(&["wrote     m/model.sig: 42 files\n", "          and 22 more, see --json\n"]);
    let json = sign(&folder, &["--all-files", "--json"]).done().json();
    assert_eq!(json["files"].as_array().unwrap().len(), 42);
}
