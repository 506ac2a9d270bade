//! The interface of the crate: what `sign` writes and `verify` takes, what both refuse, and how
//! they end early. What signatures say is tested by the command, `cli/tests/cli/signing*.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests"
)]

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use onnx_container::ndarray::Array2;
use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use onnx_container::{Cancel, Container, ErrorKind, WeightFiles};
use onnx_container_signing::{
    PrivateKey, ProblemKind, PublicKey, ShardForm, SignOptions, Term, VerifyOptions, Warning,
    remove_abandoned, sign, verdict, verify,
};
use p256::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};
use tempfile::TempDir;

/// A folder with keys, and in `m/` a model with its weights in a file.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::create_dir(folder.path("m")).unwrap();
        for (name, byte) in [("key", 7), ("other", 8)] {
            let key = p256::SecretKey::from_slice(&[byte; 32]).unwrap();
            let public = key.public_key().to_public_key_pem(LineEnding::LF).unwrap();
            let secret = key.to_pkcs8_pem(LineEnding::LF).unwrap();
            fs::write(folder.path(&format!("{name}.pem")), &*secret).unwrap();
            fs::write(folder.path(&format!("{name}.pub")), public).unwrap();
        }
        folder.save("m/m.onnx", 1.0);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn save(&self, name: &str, value: f32) {
        let mut graph = GraphProto::new("g");
        let weight = TensorProto::external("w", TensorProto::FLOAT, [64, 64], "#w");
        graph.initializer.push(weight);
        let mut container = Container::new(ModelProto::new(graph));
        container.insert("#w", Array2::from_elem((64, 64), value)).unwrap();
        container.save(self.path(name), WeightFiles::Packed).unwrap();
    }

    fn signing(&self) -> SignOptions {
        SignOptions::new(PrivateKey::read(self.path("key.pem")).unwrap())
    }

    fn verifying(&self) -> VerifyOptions {
        VerifyOptions::new(PublicKey::read(self.path("key.pub")).unwrap())
    }

    fn model(&self) -> PathBuf {
        self.path("m/m.onnx")
    }

    /// What is in the folder of the model.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("m")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

const SIGNED: [&str; 4] = ["m.onnx", "m.onnx.data", "model.digest.sig", "model.sig"];

#[test]
fn a_signed_model_is_verified_by_files_and_content() {
    let folder = Folder::new();
    for options in [
        folder.signing(),
        folder.signing().shard_size(1000),
        folder.signing().shard_size(1000).shard_form(ShardForm::ModelSigning),
    ] {
        let signed = sign(folder.model(), &options).unwrap();
        assert_eq!(signed.files, ["m.onnx", "m.onnx.data"]);
        assert_eq!(signed.signature, folder.path("m/model.sig"));
        let content = signed.content.unwrap();
        assert_eq!(content.signature, folder.path("m/model.digest.sig"));
        assert_eq!((signed.unsigned_files, signed.warnings.len()), (0, 0));
        assert_eq!(folder.names(), SIGNED);

        let verified = verify(folder.model(), &folder.verifying()).unwrap();
        assert_eq!((verified.key, verified.curve), (signed.key, "P-256"));
        let files = verified.files.unwrap();
        assert_eq!((files.as_signed, files.shard_size), (true, signed.shard_size));
        let found = verified.content.unwrap();
        assert_eq!(found.digest, Some(content.digest.to_string()));
        assert_eq!(found.as_signed, Some(true));
        assert!(verify(folder.path("m"), &folder.verifying()).unwrap().content.is_none());
    }
}

#[test]
fn another_model_is_an_error_with_each_file() {
    let folder = Folder::new();
    sign(folder.model(), &folder.signing()).unwrap();
    folder.save("m/m.onnx", 2.0);
    let verdict = verdict(folder.model(), &folder.verifying()).unwrap();
    assert!(!verdict.is_verified());
    let problems = &verdict.files.as_ref().unwrap().problems;
    assert_eq!((&*problems[0].path, problems[0].kind), ("m.onnx.data", ProblemKind::Changed));
    assert_eq!(verdict.content.as_ref().unwrap().as_signed, Some(false));

    let error = verify(folder.model(), &folder.verifying()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotVerified);
    assert_eq!(error.path(), Some(&*folder.model()));
    assert!(error.reason().starts_with("not verified: `m.onnx.data` was changed"), "{error}");
    assert_eq!(error.related().len(), problems.len());
}

#[test]
fn a_model_that_is_stored_otherwise_is_verified_by_its_content() {
    let folder = Folder::new();
    sign(folder.model(), &folder.signing()).unwrap();
    let container = Container::load(folder.model(), onnx_container::MmapChoice::never()).unwrap();
    container.save(folder.model(), WeightFiles::Embedded).unwrap();
    fs::remove_file(folder.path("m/m.onnx.data")).unwrap();
    let verified = verify(folder.model(), &folder.verifying()).unwrap();
    assert!(!verified.files.unwrap().as_signed);
    let error = verify(folder.model(), &folder.verifying().require_files(true)).unwrap_err();
    assert!(error.reason().contains("`VerifyOptions::require_files`"), "{error}");
    let terms = |_: &Term<'_>| "--strict".to_owned();
    let options = folder.verifying().require_files(true).terms(terms);
    let error = verify(folder.model(), &options).unwrap_err();
    assert!(error.reason().contains("not verified: --strict, and"), "{error}");
}

#[test]
fn what_cannot_be_signed_or_verified_is_refused() {
    let folder = Folder::new();
    let other = || PrivateKey::read(folder.path("other.pem")).unwrap();
    sign(folder.model(), &folder.signing()).unwrap();
    let before = SIGNED.map(|name| fs::read(folder.path("m").join(name)).unwrap());
    for (options, kind, reason) in [
        (folder.signing().overwrite(false), ErrorKind::AlreadyExists, "exists already"),
        (folder.signing().shard_size(0), ErrorKind::InvalidArgument, "at least one byte"),
        (folder.signing().shard_form(ShardForm::Spec), ErrorKind::InvalidArgument, "no effect"),
        (SignOptions::new(other()), ErrorKind::AlreadyExists, "`SignOptions::signature`"),
        (
            folder.signing().signature(folder.path("key.pem")),
            ErrorKind::AlreadyExists,
            "belongs to the model or is read",
        ),
        (
            folder.signing().signature(folder.path("m/m.onnx.data")),
            ErrorKind::AlreadyExists,
            "belongs to the model",
        ),
    ] {
        let error = sign(folder.model(), &options).unwrap_err();
        assert!(error.each().any(|error| error.kind() == kind), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let public = || other().public_key();
    for (options, kind) in [
        (VerifyOptions::new(public()), ErrorKind::OtherKey),
        (folder.verifying().signature(folder.path("none.sig")), ErrorKind::MissingFile),
        (folder.verifying().signature(folder.model()), ErrorKind::Decode),
        (
            folder.verifying().all_files(true).ignore_unsigned_files(true),
            ErrorKind::InvalidArgument,
        ),
    ] {
        let error = verify(folder.model(), &options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(before, SIGNED.map(|name| fs::read(folder.path("m").join(name)).unwrap()));
    assert_eq!(folder.names(), SIGNED);
}

#[test]
fn keys_are_texts_or_files_and_are_not_shown() {
    let folder = Folder::new();
    let text = fs::read_to_string(folder.path("key.pem")).unwrap();
    let key = PrivateKey::from_pem(&text).unwrap();
    let public = PublicKey::from_pem(&fs::read_to_string(folder.path("key.pub")).unwrap()).unwrap();
    assert_eq!(key.public_key().fingerprint().unwrap(), public.fingerprint().unwrap());
    let shown = format!("{:?}", SignOptions::new(key));
    assert!(shown.contains("PrivateKey(\"P-256\""), "{shown}");
    for text in ["", "-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n"] {
        assert_eq!(PrivateKey::from_pem(text).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(PublicKey::from_pem(text).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let error = PublicKey::read(folder.path("key.pem")).unwrap_err();
    assert_eq!(error.path(), Some(&*folder.path("key.pem")));
    assert!(error.reason().starts_with("this is a private key"), "{error}");
}

#[test]
fn the_caller_ends_the_work_and_nothing_is_changed() {
    let folder = Folder::new();
    sign(folder.model(), &folder.signing()).unwrap();
    let before = fs::read(folder.path("m/model.sig")).unwrap();
    folder.save("m/m.onnx", 2.0);
    let asked = Arc::new(AtomicUsize::new(0));
    // Before the first file is made, and before each of its pieces is written.
    for goes_on in 0..4 {
        asked.store(0, Ordering::Relaxed);
        let count = Arc::clone(&asked);
        let options = folder.signing().writing(move || {
            if count.fetch_add(1, Ordering::Relaxed) < goes_on {
                return ControlFlow::Continue(());
            }
            ControlFlow::Break(())
        });
        let error = sign(folder.model(), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), goes_on + 1);
        assert_eq!(folder.names(), SIGNED);
    }
    for end in [1, 5000] {
        let cancel = Cancel::with_progress(move |progress| {
            if progress.done >= end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let error = cancel.scope(|| sign(folder.model(), &folder.signing())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        let error = cancel.scope(|| verdict(folder.model(), &folder.verifying())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    }
    assert_eq!(fs::read(folder.path("m/model.sig")).unwrap(), before);
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let cancel = Cancel::with_progress(move |progress| {
        list.lock().unwrap().push((progress.done, progress.total));
        ControlFlow::Continue(())
    });
    cancel.scope(|| sign(folder.model(), &folder.signing())).unwrap();
    let told = told.lock().unwrap();
    let (done, total) = *told.last().unwrap();
    assert!(done == total && done > 2 * 64 * 64 * 4, "{told:?}");
}

#[test]
fn warnings_are_told_at_once_and_returned() {
    let folder = Folder::new();
    let mut bytes = fs::read(folder.model()).unwrap();
    // A producer before another one, which counts.
    bytes.splice(0..0, *b"\x12\x01a\x12\x01b");
    fs::write(folder.model(), &bytes).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let options =
        folder.signing().on_warning(move |warning| list.lock().unwrap().push(warning.to_string()));
    let signed = sign(folder.model(), &options).unwrap();
    assert!(matches!(*signed.warnings, [Warning::Ambiguous(_)]), "{:?}", signed.warnings);
    assert_eq!(*told.lock().unwrap(), [signed.warnings[0].to_string()]);
    assert!(told.lock().unwrap()[0].ends_with("is verified by its content alone"));
    assert!(
        verify(folder.model(), &folder.verifying()).unwrap().content.unwrap().ambiguous.is_some()
    );
}

#[test]
fn what_a_killed_signing_left_is_removed() {
    let folder = Folder::new();
    let left = ".onnx-container-signing-aB3xYz";
    let begun = "{\"mediaType\":\"application/vnd.dev.sigstore.bundle.v0.3+json\",";
    for (text, removed) in [("", 1), (begun, 1), ("my notes", 0)] {
        fs::write(folder.path("m").join(left), text).unwrap();
        let (count, errors) = remove_abandoned(folder.path("m"));
        assert_eq!((count, errors.len()), (removed, 0), "{text}");
        assert_eq!(folder.path("m").join(left).exists(), removed == 0, "{text}");
    }
    sign(folder.model(), &folder.signing()).unwrap();
    assert!(folder.path("m").join(left).exists());
}

/// Leaves what a save leaves that was killed when it had moved the old model away.
fn interrupt(folder: &Folder) {
    const FILES: [&str; 2] = ["m.onnx.data", "m.onnx"];
    let staging = ".m.onnx.saving-aB3xYz";
    let at = |name: &str| folder.path("m").join(name);
    for part in ["old", "new"] {
        fs::create_dir_all(at(staging).join(part)).unwrap();
    }
    let list = FILES.map(|file| format!("{file}\0")).concat();
    fs::write(at(staging).join("files"), format!("onnx-container save 1\0{list}")).unwrap();
    let mark = |path: PathBuf| {
        let metadata = path.metadata().unwrap();
        let modified = metadata.modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
        format!("{} {}", metadata.len(), modified.as_nanos())
    };
    let files = FILES.map(|name| {
        fs::copy(at(name), at(staging).join("new").join(name)).unwrap();
        let new = mark(at(staging).join("new").join(name));
        format!("file\0{name}\0{new}\0{}\0", mark(at(name)))
    });
    let journal = format!("onnx-container switch 1\0{staging}\0{}end\0", files.concat());
    fs::write(at(".m.onnx.switching"), journal).unwrap();
    fs::rename(at("m.onnx"), at(staging).join("old/m.onnx")).unwrap();
}

#[test]
fn a_save_that_was_interrupted_is_completed_first() {
    let folder = Folder::new();
    interrupt(&folder);
    sign(folder.model(), &folder.signing()).unwrap();
    assert_eq!(folder.names(), SIGNED);
    interrupt(&folder);
    let error = verify(folder.path("m"), &folder.verifying()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    verify(folder.model(), &folder.verifying()).unwrap();
    assert_eq!(folder.names(), SIGNED);
}
