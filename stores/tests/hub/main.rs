//! Models of the Hugging Face Hub, from a server that answers as the Hub does.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod stub;

use std::collections::BTreeMap;
use std::path::Path;

use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use onnx_container::proto::{GraphProto, Message, ModelProto, TensorProto};
use onnx_container::{Container, Error, ErrorKind, LoadOptions, Result};
use onnx_container_store::{
    PublishOptions, RemoteModel, Store, StoreOptions, StoreUrl, fetch, load, publish_in,
};
use stub::{Fault, Files, Stub, commit, sha256};
use tempfile::TempDir;

/// Longer than the first bytes that a load looks at.
const LEN: usize = 3000;
const URL: &str = "hf://o/r/m.onnx";

/// The weights of a number.
fn weights(seed: u8) -> Vec<u8> {
    (0..LEN).map(|at| u8::try_from(at % 251).unwrap().wrapping_add(seed)).collect()
}

/// A model of one tensor with these bytes, and its weights file.
fn model(folder: &str, data: Vec<u8>) -> Files {
    let mut graph = GraphProto::new("g");
    let dims = [i64::try_from(data.len()).unwrap()];
    graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, dims, "m.onnx.data"));
    let model = ModelProto::new(graph).encode_to_vec().unwrap();
    BTreeMap::from([(format!("{folder}m.onnx"), model), (format!("{folder}m.onnx.data"), data)])
}

fn stub() -> Stub {
    Stub::new(model("", weights(1)))
}

/// Options for a server, without anything of the machine: its token, its cache.
fn options(stub: &Stub, home: &Path) -> StoreOptions {
    with_token_of_home(stub, home).set("hf_token", "")
}

/// The same with the token that is in the folder.
fn with_token_of_home(stub: &Stub, home: &Path) -> StoreOptions {
    StoreOptions::new()
        .set("hf_endpoint", &stub.endpoint)
        .set("hf_home", home.to_str().unwrap())
        .set("hf_hub_cache", "")
        .set("hf_hub_offline", "")
}

/// A folder for the options of a test.
fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn bytes_of(model: &Container) -> Vec<u8> {
    model.tensor("w").unwrap().as_slice::<u8>().unwrap().to_vec()
}

fn failure<T>(result: Result<T>) -> Error {
    result.err().expect("it succeeded")
}

#[test]
fn a_model_is_read_at_the_commit_of_its_branch() {
    let (stub, home) = (stub(), home());
    let model = load(URL, &options(&stub, home.path()), LoadOptions::new()).unwrap();
    let data = format!("files GET /{}", sha256(&weights(1)));
    let lines = stub.lines();
    let files = format!("hub HEAD /o/r/resolve/{}", commit(1));
    assert_eq!(lines[..2], ["hub GET /api/models/o/r/revision/main", &format!("{files}/m.onnx")]);
    assert!(lines[2].starts_with("files GET /"));
    assert_eq!(lines[3..], [format!("{files}/m.onnx.data"), data.clone()]);
    assert_eq!(bytes_of(&model), weights(1));
    assert_eq!(stub.lines(), [data]);
}

#[test]
fn names_are_as_they_stand() {
    let folder = "a b#%é+[x]~?&=/";
    let (stub, home) = (Stub::new(model(folder, weights(1))), home());
    let url = format!("hf://o/r/{folder}m.onnx");
    let model = load(&url, &options(&stub, home.path()), LoadOptions::new()).unwrap();
    assert_eq!(bytes_of(&model), weights(1));
}

#[test]
fn small_and_empty_files_are_at_the_hub() {
    let files = [("a/small", &b"0123456789"[..]), ("empty", b"")];
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes.to_owned()));
    let (stub, home) = (Stub::new(files.into()), home());
    let store = Store::open(&StoreUrl::parse("hf://o/r").unwrap(), &options(&stub, home.path()));
    let objects = store.unwrap().objects().clone();
    run(async {
        let small = Key::parse("a/small").unwrap();
        assert_eq!(objects.get_range(&small, 2..5).await.unwrap(), "234");
        assert_eq!(objects.get_range(&small, 8..50).await.unwrap(), "89");
        assert!(objects.get_range(&small, 10..11).await.is_err());
        let all = objects.get(&small).await.unwrap();
        assert_eq!(all.meta.e_tag.as_deref(), Some("\"git\""));
        assert_eq!(all.meta.version, Some(commit(1)));
        assert_eq!(all.bytes().await.unwrap(), "0123456789");
        let empty = Key::parse("empty").unwrap();
        assert_eq!(objects.head(&empty).await.unwrap().size, 0);
        assert_eq!(objects.get(&empty).await.unwrap().bytes().await.unwrap(), "");
    });
}

#[test]
fn a_load_stays_at_one_commit_while_the_branch_moves() {
    let (stub, home) = (stub(), home());
    stub.commit(2, model("", weights(2)));
    let options = options(&stub, home.path());
    let old = RemoteModel::open(URL, &options).unwrap();
    stub.branch("main", 2);
    assert_eq!(bytes_of(&old.load(LoadOptions::new()).unwrap()), weights(1));
    // The old one is in use, and does not hold a new one back.
    let new = load(URL, &options, LoadOptions::new()).unwrap();
    assert_eq!(bytes_of(&new), weights(2));
    assert_eq!(bytes_of(&old.fetch(LoadOptions::new()).unwrap()), weights(1));
}

#[test]
fn a_revision_is_a_branch_a_tag_or_a_commit() {
    let (stub, home) = (stub(), home());
    stub.commit(2, model("", weights(2)));
    stub.branch("refs/pr/1", 2);
    stub.branch("v1.0", 1);
    // The revision, the weights, and whether the Hub is asked for its commit.
    let pinned = commit(2);
    let cases = [("v1.0", 1, true), ("refs%2Fpr%2F1", 2, true), (pinned.as_str(), 2, false)];
    for (revision, seed, asked) in cases {
        let url = format!("hf://o/r@{revision}/m.onnx");
        let model = load(&url, &options(&stub, home.path()), LoadOptions::new()).unwrap();
        assert_eq!(bytes_of(&model), weights(seed), "{revision}");
        assert_eq!(stub.lines()[0].contains("/revision/"), asked, "{revision}");
    }
}

#[test]
fn the_token_is_for_the_hub_alone() {
    let (stub, home) = (stub(), home());
    std::fs::write(home.path().join("token"), "from-file\n").unwrap();
    let without = options(&stub, home.path());
    let set = without.clone().set("hf_token", "from-option");
    let of_home = with_token_of_home(&stub, home.path());
    // The variable comes before the file.
    let of_home_is = std::env::var("HF_TOKEN").unwrap_or_else(|_| "from-file".to_owned());
    let of_home_is = format!("Bearer {of_home_is}");
    // The options, and the token of each request to the Hub.
    let cases =
        [(without, None), (set, Some("Bearer from-option")), (of_home, Some(of_home_is.as_str()))];
    for (options, token) in cases {
        assert!(!format!("{options:?}").contains("from-option"));
        let store = Store::open(&StoreUrl::parse(URL).unwrap(), &options).unwrap();
        assert!(!format!("{store:?} {:?}", store.objects()).contains("from-option"));
        let model = RemoteModel::open_in(&store, &StoreUrl::parse(URL).unwrap()).unwrap();
        assert_eq!(bytes_of(&model.fetch(LoadOptions::new()).unwrap()), weights(1));
        assert!(!format!("{:?}", store.objects()).contains("signature"));
        let requests = stub.requests();
        assert!(requests.iter().any(|request| request.line.starts_with("files")));
        for request in requests {
            let expected = token.filter(|_| request.line.starts_with("hub"));
            assert_eq!(request.token.as_deref(), expected, "{}", request.line);
        }
    }
}

#[test]
fn a_signed_address_that_expired_is_asked_for_again() {
    let (stub, home) = (Stub::new(model("", vec![7; 20 << 20])), home());
    let options = options(&stub, home.path()).max_retries(0);
    let model = RemoteModel::open(URL, &options).unwrap();
    let loaded = model.load(LoadOptions::new()).unwrap();
    stub.requests();
    stub.fault(Fault::Expired { all: false });
    // Three parts are read at once, and one of them asks.
    assert!(bytes_of(&loaded).iter().all(|byte| *byte == 7));
    let lines = stub.lines();
    assert_eq!(lines.iter().filter(|line| line.starts_with("hub")).count(), 1, "{lines:?}");
    stub.fault(Fault::Expired { all: true });
    let error = failure(loaded.tensor("w")).to_string();
    assert!(error.contains("the server of the file answers `403 Forbidden`"), "{error}");
    assert!(!error.contains("signature"), "{error}");
}

#[test]
fn what_is_sent_is_never_wrong() {
    let cases: &[(Fault, Option<(ErrorKind, &str)>)] = &[
        (Fault::Redirected, None),
        (Fault::Longer, Some((ErrorKind::Io, "has 3000 bytes, and its server has one of 3001"))),
        (Fault::Whole, Some((ErrorKind::Io, "was asked for bytes"))),
        (Fault::Beside, Some((ErrorKind::Io, "was asked for bytes"))),
        (Fault::Unsaid, Some((ErrorKind::Io, "does not say which bytes it sends"))),
        (Fault::Half, Some((ErrorKind::Io, ""))),
        (Fault::Gzip, Some((ErrorKind::Unsupported, "it is stored as `gzip`"))),
        (Fault::Flipped, Some((ErrorKind::WrongDigest, "the Hub states the SHA-256"))),
        (Fault::OtherCommit, Some((ErrorKind::Io, "has another"))),
    ];
    for (fault, failed) in cases {
        let (stub, home) = (stub(), home());
        let model = RemoteModel::open(URL, &options(&stub, home.path()).max_retries(0)).unwrap();
        stub.fault(*fault);
        match (model.fetch(LoadOptions::new()), failed) {
            (Ok(model), None) => assert_eq!(bytes_of(&model), weights(1), "{fault:?}"),
            (Err(error), Some((kind, said))) => {
                assert!(error.has(*kind), "{fault:?}: {error}");
                let text = error.to_string();
                assert!(text.contains(said) && text.contains("m.onnx.data"), "{fault:?}: {text}");
            }
            (result, _) => panic!("{fault:?}: {result:?}"),
        }
    }
}

#[test]
fn the_model_is_held_to_its_digest() {
    let (stub, home) = (stub(), home());
    stub.fault(Fault::Flipped);
    let error = failure(RemoteModel::open(URL, &options(&stub, home.path())));
    assert_eq!(error.kind(), ErrorKind::WrongDigest, "{error}");
    assert!(error.to_string().contains("hf://o/r/m.onnx"), "{error}");
}

#[test]
fn a_commit_has_one_file_of_a_name() {
    let (stub, home) = (stub(), home());
    let model = load(URL, &options(&stub, home.path()), LoadOptions::new()).unwrap();
    stub.fault(Fault::OtherFile);
    stub.fault(Fault::Expired { all: false });
    let error = failure(model.tensor("w")).to_string();
    assert!(error.contains("another one than before"), "{error}");
}

#[test]
fn what_the_hub_refuses_is_said() {
    // What is asked for, what goes wrong, and what is said.
    let cases = [
        ("hf://o/r/n.onnx", None, "`o/r` has no such file at commit 0000"),
        ("hf://o/r@v9/m.onnx", None, "`o/r` has no revision `v9`"),
        ("hf://o/other/m.onnx", None, "no repository `o/other`"),
        (URL, Some(Fault::Refused(401, "RepoNotFound")), "set HF_TOKEN"),
        (URL, Some(Fault::Refused(401, "GatedRepo")), "is gated: ask for access"),
        (URL, Some(Fault::Refused(403, "")), "set HF_TOKEN"),
        (URL, Some(Fault::Refused(500, "")), "answers `500 Internal Server Error`"),
        (URL, Some(Fault::Refused(204, "")), "no JSON"),
    ];
    for (url, fault, said) in cases {
        let (stub, home) = (stub(), home());
        fault.into_iter().for_each(|fault| stub.fault(fault));
        let error = failure(RemoteModel::open(url, &options(&stub, home.path()).max_retries(1)));
        let kind = if fault.is_none() { ErrorKind::MissingFile } else { ErrorKind::Io };
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(text.contains(said) && text.contains(url), "{text}");
    }
    let home = home();
    let (closed, reach) = (stub(), "the Hub is not reached");
    let nowhere = options(&closed, home.path()).set("hf_endpoint", "http://127.0.0.1:1");
    let error = failure(RemoteModel::open(URL, &nowhere.max_retries(1))).to_string();
    assert!(error.contains(reach), "{error}");
}

#[test]
fn failures_that_pass_are_asked_again() {
    // What goes wrong, how often a request is repeated, and whether it ends well.
    let cases = [
        (Fault::Once(503), 1, true),
        (Fault::Once(503), 0, false),
        (Fault::Once(429), 1, true),
        (Fault::Once(404), 1, false),
        (Fault::Cut, 1, true),
        (Fault::Wait, 1, true),
    ];
    for (fault, retries, succeeds) in cases {
        let (stub, home) = (stub(), home());
        stub.fault(fault);
        let opened = RemoteModel::open(URL, &options(&stub, home.path()).max_retries(retries));
        assert_eq!(opened.is_ok(), succeeds, "{fault:?}: {opened:?}");
    }
}

#[test]
fn files_are_listed() {
    let names = ["a.onnx", "b/c.onnx", "b/d/e", "bb/f"];
    let files = names.map(|name| (name.to_owned(), name.repeat(4).into_bytes()));
    let (stub, home) = (Stub::new(files.into()), home());
    let store = Store::open(&StoreUrl::parse("hf://o/r").unwrap(), &options(&stub, home.path()));
    let objects = store.unwrap().objects().clone();
    type Names<'a> = &'a [&'a str];
    // The folder, what is below it, the folders in it, and the files in it.
    let cases: [(Option<&str>, Names<'_>, Names<'_>, Names<'_>); 4] = [
        (None, &names, &["b", "bb"], &["a.onnx"]),
        (Some("b"), &["b/c.onnx", "b/d/e"], &["b/d"], &["b/c.onnx"]),
        (Some("bb"), &["bb/f"], &[], &["bb/f"]),
        (Some("x"), &[], &[], &[]),
    ];
    for (folder, below, folders, files) in cases {
        let folder = folder.map(|folder| Key::parse(folder).unwrap());
        run(async {
            use futures_util::TryStreamExt;
            let listed: Vec<_> = objects.list(folder.as_ref()).try_collect().await.unwrap();
            let paths: Vec<_> = listed.iter().map(|file| file.location.as_ref()).collect();
            assert_eq!(paths, below);
            for file in listed {
                let head = objects.head(&file.location).await.unwrap();
                assert_eq!((head.size, head.e_tag), (file.size, file.e_tag));
            }
            let listed = objects.list_with_delimiter(folder.as_ref()).await.unwrap();
            let paths = |paths: Vec<Key>| paths.iter().map(Key::to_string).collect::<Vec<_>>();
            assert_eq!(paths(listed.common_prefixes), folders);
            let of = listed.objects.into_iter().map(|file| file.location).collect();
            assert_eq!(paths(of), files);
        });
    }
}

#[test]
fn a_repository_is_only_read() {
    let (stub, home) = (stub(), home());
    let options = options(&stub, home.path());
    let model = load(URL, &options, LoadOptions::new()).unwrap();
    let url = StoreUrl::parse("hf://o/r/n.onnx").unwrap();
    let store = Store::open(&url, &options).unwrap();
    let error = failure(publish_in(&store, &url, &model, PublishOptions::new()));
    assert!(error.has(ErrorKind::Unsupported), "{error}");
    assert!(error.to_string().contains("the Hub is for reading only"), "{error}");
}

#[test]
fn options_are_those_of_the_hub() {
    let (stub, home) = (stub(), home());
    // A name, a value, and what is said.
    let cases = [
        ("aws_region", "x", "has no option `aws_region`"),
        ("http2_only", "true", "has no option `http2_only`"),
        ("connect_timeout", "soon", "takes a time such as"),
        ("proxy_url", "", "no address of a proxy"),
        ("hf_endpoint", "ftp://h", "HF_ENDPOINT is no address"),
        ("hf_endpoint", "https://me:secret@h", "HF_ENDPOINT is no address"),
        ("hf_token", "secret\nsecret", "HF_TOKEN has letters"),
        ("read_timeout", "5 seconds", ""),
        ("allow_http", "true", ""),
        ("hf_endpoint", "http://h/mirror/", ""),
    ];
    for (name, value, said) in cases {
        let options = options(&stub, home.path()).set(name, value);
        match Store::open(&StoreUrl::parse(URL).unwrap(), &options) {
            Ok(_) => assert_eq!(said, "", "{name} {value}"),
            Err(error) => {
                let text = error.to_string();
                assert!(!said.is_empty() && text.contains(said), "{name}: {text}");
                assert!(!text.contains("secret"), "{text}");
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            }
        }
    }
}

/// The cache of the Hub's own tools: links of a snapshot to blobs, and to what is shared.
#[cfg(unix)]
mod cache {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Puts files of a commit into the cache, and the branch `main` at it.
    fn cached(home: &Path, number: u8, files: &Files) {
        let folder = home.join("hub/models--o--r");
        let snapshot = folder.join("snapshots").join(commit(number));
        for folder in [&snapshot, &folder.join("blobs"), &folder.join("refs")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(folder.join("refs/main"), commit(number)).unwrap();
        for (name, bytes) in files {
            fs::write(folder.join("blobs").join(sha256(bytes)), bytes).unwrap();
            let link = snapshot.join(name);
            let _ = fs::remove_file(&link);
            symlink(format!("../../blobs/{}", sha256(bytes)), link).unwrap();
        }
    }

    /// The blob of some bytes.
    fn blob(home: &Path, bytes: &[u8]) -> std::path::PathBuf {
        home.join("hub/models--o--r/blobs").join(sha256(bytes))
    }

    #[test]
    fn files_of_the_very_commit_are_read_from_disk() {
        let (stub, home) = (stub(), home());
        cached(home.path(), 1, &model("", weights(1)));
        let options = options(&stub, home.path());
        let loaded = fetch(URL, &options, LoadOptions::new()).unwrap();
        assert_eq!(bytes_of(&loaded), weights(1));
        let by_range = load(URL, &options, LoadOptions::new()).unwrap();
        assert_eq!(bytes_of(&by_range), weights(1));
        assert_eq!(stub.lines(), ["hub GET /api/models/o/r/revision/main"; 2]);
        // The cache has an older commit.
        stub.commit(2, model("", weights(2)));
        stub.branch("main", 2);
        let loaded = fetch(URL, &options, LoadOptions::new()).unwrap();
        assert_eq!(bytes_of(&loaded), weights(2));
    }

    #[test]
    fn the_tag_of_a_file_is_the_same_on_disk_and_at_the_hub() {
        let (stub, home) = (stub(), home());
        let options = options(&stub, home.path());
        let at_hub = RemoteModel::open(URL, &options).unwrap();
        cached(home.path(), 1, &model("", weights(1)));
        let on_disk = RemoteModel::open(URL, &options).unwrap();
        assert_eq!(at_hub.e_tag(), on_disk.e_tag());
        assert_eq!(at_hub.bytes()[..], on_disk.bytes()[..]);
        assert!(at_hub.e_tag().is_some());
    }

    #[test]
    fn nothing_is_asked_offline() {
        let (stub, home) = (stub(), home());
        let options = options(&stub, home.path()).set("hf_hub_offline", "1");
        // What is in the cache, the model, and what is said.
        let files = model("", weights(1));
        let mut graph = files.clone();
        graph.remove("m.onnx.data");
        let pinned = format!("hf://o/r@{}/m.onnx", commit(1));
        let cases = [
            (None, URL, Some("has no revision `main` of `o/r`")),
            (None, pinned.as_str(), Some("has no such file at commit 0000")),
            (Some(&graph), URL, Some("m.onnx.data")),
            (Some(&files), URL, None),
            (Some(&files), pinned.as_str(), None),
            (Some(&files), "hf://o/r@dev/m.onnx", Some("has no revision `dev`")),
        ];
        for (files, url, said) in cases {
            files.into_iter().for_each(|files| cached(home.path(), 1, files));
            match (fetch(url, &options, LoadOptions::new()), said) {
                (Ok(model), None) => assert_eq!(bytes_of(&model), weights(1)),
                (Err(error), Some(said)) => {
                    let text = error.to_string();
                    assert!(text.contains(said) && text.contains("HF_HUB_OFFLINE"), "{text}");
                    assert!(error.has(ErrorKind::MissingFile), "{text}");
                }
                (result, said) => panic!("{url}: {result:?}, not {said:?}"),
            }
        }
        let store = Store::open(&StoreUrl::parse(URL).unwrap(), &options).unwrap();
        let listed = run(async { store.objects().list_with_delimiter(None).await });
        assert!(listed.unwrap_err().to_string().contains("HF_HUB_OFFLINE"));
        assert_eq!(stub.lines(), Vec::<String>::new());
    }

    #[test]
    fn a_blob_that_repositories_share_is_read() {
        let (stub, home) = (stub(), home());
        cached(home.path(), 1, &model("", weights(1)));
        let own = blob(home.path(), &weights(1));
        // Its name is the hash of its chunks, which is no SHA-256.
        let (folder, name) = (home.path().join("hub/blobs/ab"), "ab".repeat(32));
        fs::create_dir_all(&folder).unwrap();
        fs::rename(&own, folder.join(&name)).unwrap();
        symlink(format!("../../blobs/ab/{name}"), &own).unwrap();
        let model = fetch(URL, &options(&stub, home.path()), LoadOptions::new()).unwrap();
        assert_eq!(bytes_of(&model), weights(1));
        assert_eq!(stub.lines().len(), 1);
    }

    #[test]
    fn a_link_out_of_the_cache_is_not_followed() {
        let (stub, home) = (stub(), home());
        cached(home.path(), 1, &model("", weights(1)));
        let own = blob(home.path(), &weights(1));
        let secret = home.path().join("secret");
        fs::write(&secret, weights(9)).unwrap();
        fs::remove_file(&own).unwrap();
        symlink(&secret, &own).unwrap();
        let model = load(URL, &options(&stub, home.path()), LoadOptions::new()).unwrap();
        assert_eq!(bytes_of(&model), weights(1));
        assert!(stub.lines().iter().any(|line| line.starts_with("files")));
    }

    #[test]
    fn a_blob_that_was_damaged_is_found() {
        let (stub, home) = (stub(), home());
        cached(home.path(), 1, &model("", weights(1)));
        fs::write(blob(home.path(), &weights(1)), weights(9)).unwrap();
        let error = failure(fetch(URL, &options(&stub, home.path()), LoadOptions::new()));
        assert!(error.has(ErrorKind::WrongDigest), "{error}");
        // It is cut while it is read.
        let pinned = RemoteModel::open(URL, &options(&stub, home.path())).unwrap();
        let model = pinned.load(LoadOptions::new()).unwrap();
        fs::write(blob(home.path(), &weights(1)), &weights(9)[..LEN / 2]).unwrap();
        let error = failure(model.tensor("w")).to_string();
        assert!(error.contains("sends 1500 bytes of 3000"), "{error}");
    }
}

/// Waits for requests that are made by object_store's own calls.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
