//! How many requests are made.

use onnx_container::LoadOptions;
use onnx_container::WeightFiles;
use onnx_container::external_data::ExternalData;
use onnx_container::proto::{Message, ModelProto, TensorProto};
use onnx_container_store::job::{RemoteJob, jobs_in};
use onnx_container_store::object_store::{ObjectStoreExt, path::Path};
use onnx_container_store::{PublishOptions, RemoteModel, StoreOptions, StoreUrl, publish_in};

use crate::behaviour::wait;
use crate::fake_store::{FakeStore, Kind};
use crate::models::{MIB, contents, model, renamed};

/// What was asked for since the last call, by kinds in order.
fn kinds(fake: &FakeStore) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = fake.log().into_iter().map(|(kind, _)| kind).collect();
    kinds.sort();
    kinds
}

fn trusting(fake: &FakeStore) -> StoreOptions {
    fake.options().trust_conditions(true)
}

#[test]
fn a_model_is_read_by_few_requests() {
    let fake = FakeStore::new();
    let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
    let store = fake.store();
    let container = model(1, &[("a", 9 * MIB), ("b", 7 * MIB), ("c", 5)]);
    let cases = [
        // The files, and how many parts of 8 MiB these have.
        (WeightFiles::Packed, 1, 3),
        (WeightFiles::PerTensor, 3, 2 + 1 + 1),
    ];
    for (files, count, parts) in cases {
        let options = PublishOptions::new().save(files);
        publish_in(&store, &url, &container, options).unwrap();
        fake.log();
        let opened = RemoteModel::open_in(&store, &url).unwrap();
        assert_eq!(kinds(&fake), [Kind::Whole]);
        let loaded = opened.load(LoadOptions::new()).unwrap();
        assert_eq!(kinds(&fake), vec![Kind::Range; count]);
        // Its bytes came with the head of the file, or are asked for.
        loaded.tensor("c").unwrap();
        assert!(kinds(&fake).len() <= 1);
        opened.load(LoadOptions::new().weights(false)).unwrap();
        assert_eq!(kinds(&fake), []);
        let fetched = opened.fetch(LoadOptions::new()).unwrap();
        assert_eq!(kinds(&fake).len(), count + parts);
        contents(&fetched).unwrap();
        assert_eq!(kinds(&fake), []);
    }
}

#[test]
fn what_is_there_is_not_sent() {
    let fake = FakeStore::new();
    let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
    let store = onnx_container_store::Store::open(&url, &trusting(&fake)).unwrap();
    let container = model(1, &[("a", 9 * MIB), ("b", 5)]);
    let options = || PublishOptions::new().save(WeightFiles::PerTensor);
    publish_in(&store, &url, &container, options()).unwrap();
    let first = [
        Kind::Head,
        Kind::Head,
        Kind::Whole,
        Kind::Put,
        Kind::Create,
        Kind::Begin,
        Kind::Part,
        Kind::Part,
        Kind::Complete,
    ];
    assert_eq!(kinds(&fake), first);

    publish_in(&store, &url, &renamed(container, "another"), options()).unwrap();
    assert_eq!(kinds(&fake), [Kind::Head, Kind::Head, Kind::Whole, Kind::Update]);
}

/// Other tools give a tensor without elements no length.
#[test]
fn a_tensor_without_a_length_needs_no_rest_of_its_file() {
    let fake = FakeStore::new();
    let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
    let container = model(1, &[("a", 5), ("b", 20 * MIB)]);
    publish_in(&fake.store(), &url, &container, PublishOptions::new()).unwrap();
    let opened = RemoteModel::open_in(&fake.store(), &url).unwrap();
    let mut model = ModelProto::decode(opened.bytes()).unwrap();
    let tensor = model.graph.as_mut().unwrap().initializer.pop().unwrap();
    let place = ExternalData::parse(&tensor).unwrap().location;
    let empty = TensorProto::external("empty", TensorProto::UINT8, [0], place);
    model.graph.as_mut().unwrap().initializer.push(empty);
    let path = Path::parse("m.onnx").unwrap();
    let bytes = model.encode_to_vec().unwrap();
    wait(fake.store().objects().put(&path, bytes.into())).unwrap();
    let opened = RemoteModel::open_in(&fake.store(), &url).unwrap();
    fake.log();
    opened.fetch(LoadOptions::new()).unwrap();
    assert_eq!(kinds(&fake), [Kind::Range]);
}

#[test]
fn a_job_makes_few_requests() {
    let fake = FakeStore::new();
    let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
    let store = onnx_container_store::Store::open(&url, &trusting(&fake)).unwrap();
    let container = model(1, &[("a", 9 * MIB), ("b", 5), ("c", 5)]);
    let job = RemoteJob::plan(&container, &url, &store, 3).unwrap();
    // The model that is there; the job, and its model.
    assert_eq!(kinds(&fake), [Kind::Whole, Kind::Put, Kind::Put]);
    let receipts: Vec<_> = job
        .parts()
        .map(|part| {
            let receipt = job.write_from(part, &container).unwrap();
            let found = kinds(&fake);
            // The job and its model, the file, and the job after that; the receipt.
            assert_eq!(found[..5], [[Kind::Head; 4].as_slice(), &[Kind::Whole]].concat());
            // The file and the receipt; of a long one the parts.
            assert_eq!(found.len(), if part == 0 { 5 + 5 } else { 5 + 2 }, "{part} {found:?}");
            receipt
        })
        .collect();
    job.commit_receipts(receipts).unwrap();
    let found = kinds(&fake);
    let count = |kind| found.iter().filter(|found| **found == kind).count();
    // The job and the files, the mark of a commit and the model of the plan; then its note and the
    // model, and the end of the job.
    assert_eq!((count(Kind::Head), count(Kind::Whole)), (3 + 2, 2), "{found:?}");
    assert_eq!((count(Kind::Create), count(Kind::Put), count(Kind::List)), (1, 2, 1), "{found:?}");
}

#[test]
fn a_listing_of_jobs_makes_one_request_for_each() {
    let fake = FakeStore::new();
    let folder = StoreUrl::parse("s3://models/a").unwrap();
    let (store, container) = (fake.store(), model(1, &[("a", 5)]));
    let planned = |name: &str| {
        let url = StoreUrl::parse(&format!("s3://models/a/{name}.onnx")).unwrap();
        RemoteJob::plan(&container, &url, &store, 1).unwrap()
    };
    let committed = |name: &str| {
        let job = planned(name);
        job.write_from(0, &container).unwrap();
        job.commit().unwrap();
    };
    committed("committed");
    planned("aborted").abort().unwrap();
    let open = planned("open").folder();
    fake.log();
    assert_eq!(jobs_in(&store, &folder).unwrap(), [open]);
    assert_eq!(kinds(&fake), [Kind::List; 1 + 3]);
}
