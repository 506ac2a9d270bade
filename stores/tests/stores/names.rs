//! Weights files whose names look like those of a publication, and models that name files in odd
//! ways.

use std::time::Duration;

use onnx_container::proto::{Message, ModelProto, StringStringEntryProto};
use onnx_container::{LoadOptions, SaveOptions};
use onnx_container_store::object_store::{ObjectStoreExt, path::Path};
use onnx_container_store::{
    PublishOptions, RemoteModel, Store, StoreUrl, SweepOptions, publish_in, sweep,
};

use crate::behaviour::wait;
use crate::models::{assert_same, model};
use crate::servers::Place;

const LEN: usize = 1000;

fn put(store: &Store, key: &str, bytes: Vec<u8>) {
    let path = Path::parse(key).unwrap();
    wait(store.objects().put(&path, bytes.into())).unwrap();
}

/// Whatever the age.
fn all() -> SweepOptions {
    SweepOptions::new().older_than(Duration::ZERO).delete(true)
}

fn keys_swept(store: &Store, folder: &StoreUrl) -> Vec<String> {
    let swept = sweep(store, folder, &all()).unwrap().swept;
    swept.into_iter().map(|object| object.url.key().to_owned()).collect()
}

#[test]
fn a_file_that_is_called_as_another_one_of_a_publication_is_not_taken_for_it() {
    let place = Place::memory();
    let (store, url) = (place.store(), place.url("m.onnx"));
    let (first, second) = (model(1, &[("w", LEN)]), model(2, &[("w", LEN)]));
    let published = publish_in(&store, &url, &first, PublishOptions::new()).unwrap();
    let name = published.files[0].name.clone();
    let named = PublishOptions::from(SaveOptions::new().data_name(name));
    publish_in(&store, &url, &second, named).unwrap();
    for container in [&first, &second] {
        publish_in(&store, &url, container, PublishOptions::new()).unwrap();
        let loaded = RemoteModel::open_in(&store, &url).unwrap().load(LoadOptions::new()).unwrap();
        assert_same(&loaded, container);
    }
}

#[test]
fn a_sweep_takes_no_number_for_a_digest() {
    let place = Place::memory();
    let (store, folder) = (place.store(), place.url("a"));
    // The name, and whether it is swept: 16 decimal digits are a time in microseconds.
    let cases = [
        ("log-1700000000000000.data", false),
        ("m-1700000000000000.safetensors", false),
        ("m-170000000000000a.safetensors", true),
        ("m-0123456789abcdef.onnx.data", true),
    ];
    for (name, _) in cases {
        put(&store, &format!("a/{name}"), vec![1]);
    }
    let swept = cases.iter().filter(|(_, is_swept)| *is_swept);
    let mut swept: Vec<_> = swept.map(|(name, _)| format!("a/{name}")).collect();
    swept.sort();
    let mut found = keys_swept(&store, &folder);
    found.sort();
    assert_eq!(found, swept);
}

#[test]
fn a_sweep_takes_no_object_of_another_tool_for_one_of_a_job() {
    let place = Place::memory();
    let (store, folder) = (place.store(), place.url("a"));
    // The name, and whether it is swept: a job that has ended left it.
    let cases = [
        (".m.onnx.job-a1B2c3/committed.json", true),
        (".m.onnx.job-a1B2c3/model.onnx", true),
        (".m.onnx.job-a1B2c3/notes.txt", false),
        (".m.onnx.job-a1B2c3/receipts/notes.txt", false),
        (".m.onnx.job-a1B2c3/receipts/part-00000.json", true),
        (".nightly.job-a1B2c3/committed.json", false),
        (".nightly.job-a1B2c3/receipts/part-00000.json", false),
    ];
    for (name, _) in cases {
        put(&store, &format!("a/{name}"), vec![1]);
    }
    let swept = cases.iter().filter(|(_, is_swept)| *is_swept);
    let swept: Vec<_> = swept.map(|(name, _)| format!("a/{name}")).collect();
    let mut found = keys_swept(&store, &folder);
    found.sort();
    assert_eq!(found, swept);
}

#[test]
fn nothing_is_swept_beside_a_model_whose_files_are_not_known() {
    let place = Place::memory();
    let (store, url, folder) = (place.store(), place.url("a/m.onnx"), place.url("a"));
    let container = model(1, &[("w", LEN)]);
    publish_in(&store, &url, &container, PublishOptions::new()).unwrap();
    let bytes = RemoteModel::open_in(&store, &url).unwrap().bytes().clone();
    // What is added to the entries of the tensor.
    let cases = [("length", "1000"), ("location", "m.onnx.data"), ("", "+1"), ("offset", "+0")];
    for added in cases {
        let mut changed = ModelProto::decode(&bytes).unwrap();
        let tensor = &mut changed.graph.as_mut().unwrap().initializer[0];
        for _ in 0..2 {
            tensor.external_data.push(StringStringEntryProto::new(added.0, added.1));
        }
        put(&store, "a/m.onnx", changed.encode_to_vec().unwrap());
        let error = sweep(&store, &folder, &all()).unwrap_err().to_string();
        assert!(error.contains("nothing is swept"), "{added:?}: {error}");
    }
    put(&store, "a/m.onnx", bytes.to_vec());
    assert_eq!(keys_swept(&store, &folder), Vec::<String>::new());
}
