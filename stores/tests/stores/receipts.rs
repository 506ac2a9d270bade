//! Receipts of jobs that are there and of no use.

use onnx_container::LoadOptions;
use onnx_container_store::RemoteModel;
use onnx_container_store::job::RemoteJob;
use onnx_container_store::object_store::{ObjectStoreExt, path::Path};

use crate::behaviour::wait;
use crate::models::{assert_same, model};
use crate::servers::Place;

#[test]
fn a_part_whose_receipt_is_of_no_use_is_written_again() {
    let place = Place::memory();
    let (store, url) = (place.store(), place.url("a/m.onnx"));
    let container = model(1, &[("w", 1000)]);
    let path = |key: &str| Path::parse(key).unwrap();
    for what in ["file gone", "file short", "length", "no file", "other name", "no text"] {
        let job = RemoteJob::plan(&container, &url, &store, 1).unwrap();
        let receipt = job.write_from(0, &container).unwrap();
        let name = receipt.file.as_ref().unwrap().name.clone();
        let file = path(url.beside(&name).unwrap().key());
        let text = receipt.to_json().unwrap();
        let text = match what {
            "length" => text.replacen("1000", "999", 1),
            "no file" => format!("{{\"job\":\"{}\",\"part\":0}}", job.id()),
            "other name" => text.replacen(&name, "../b.data", 1),
            _ => text,
        };
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
