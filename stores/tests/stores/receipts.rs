//! Receipts of jobs that are there and of no use.

use std::time::Duration;

use onnx_container::{ErrorKind, LoadOptions};
use onnx_container_store::job::{PartReceipt, RemoteJob};
use onnx_container_store::object_store::{ObjectStoreExt, path::Path};
use onnx_container_store::{RemoteModel, SweepOptions, sweep};

use crate::behaviour::wait;
use crate::models::{assert_same, model};
use crate::servers::Place;

#[test]
fn a_part_whose_receipt_is_of_no_use_is_written_again() {
    let place = Place::memory();
    let (store, url) = (place.store(), place.url("a/m.onnx"));
    let container = model(1, &[("w", 1000)]);
    let path = |key: &str| Path::parse(key).unwrap();
    for what in [
        "file gone",
        "file short",
        "length",
        "no file",
        "other name",
        "no text",
        "other format",
        "no format",
    ] {
        let job = RemoteJob::plan(&container, &url, &store, 1).unwrap();
        let receipt = job.write_from(0, &container).unwrap();
        let name = receipt.file.as_ref().unwrap().name.clone();
        let file = path(url.beside(&name).unwrap().key());
        let text = receipt.to_json().unwrap();
        let text = match what {
            "length" => text.replacen("1000", "999", 1),
            "no file" => {
                let (start, end) = text.split_once(",\"file\":").unwrap();
                assert!(end.ends_with("}}"), "{text}");
                format!("{start}}}}}")
            }
            "other format" => text.replacen("store job", "job", 1),
            "no format" => text.replacen("format", "form", 1),
            "other name" => text.replacen(&name, "../b.data", 1),
            _ => text,
        };
        let is_receipt = PartReceipt::from_json(&text).is_ok();
        assert_eq!(is_receipt, !what.ends_with("format"), "{what}: {text}");
        let mut text = text.into_bytes();
        match what {
            "file gone" => wait(store.objects().delete(&file)).unwrap(),
            "file short" => drop(wait(store.objects().put(&file, "short".into())).unwrap()),
            "no text" => text = vec![0xff],
            _ => {}
        }
        let stored = path(&format!("{}/receipts/part-00000.json", job.folder().key()));
        wait(store.objects().put(&stored, text.into())).unwrap();
        assert!(job.commit().is_err(), "{what}");
        job.write_from(0, &container).unwrap_or_else(|error| panic!("{what}: {error}"));
        job.commit().unwrap_or_else(|error| panic!("{what}: {error}"));
        let loaded = RemoteModel::open_in(&store, &url).unwrap().load(LoadOptions::new()).unwrap();
        assert_same(&loaded, &container);
    }
}

/// A later program has written it: what it names is not known, so nobody goes on as if it named
/// nothing.
#[test]
fn a_receipt_of_a_later_version_is_refused() {
    let place = Place::memory();
    let (store, url) = (place.store(), place.url("a/m.onnx"));
    let container = model(1, &[("w", 1000)]);
    let job = RemoteJob::plan(&container, &url, &store, 1).unwrap();
    let text = job.write_from(0, &container).unwrap().to_json().unwrap();
    let later = text.replacen("\"version\":1", "\"version\":2", 1);
    let stored = format!("{}/receipts/part-00000.json", job.folder().key());
    let put = |text: &str| {
        let path = Path::parse(&stored).unwrap();
        wait(store.objects().put(&path, text.to_owned().into())).unwrap();
    };
    put(&later);
    let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
    for (what, error) in [
        ("read", PartReceipt::from_json(&later).unwrap_err()),
        ("write", job.write_from(0, &container).unwrap_err()),
        ("commit", job.commit().unwrap_err()),
        ("sweep", sweep(&store, &place.url("a"), &all).unwrap_err()),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error}");
        assert!(error.to_string().contains("version 2 of a receipt"), "{what}: {error}");
    }
    put(&text);
    job.commit().unwrap();
}
