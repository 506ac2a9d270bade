//! Stores that list more than they are asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use onnx_container_store::job::RemoteJob;
use onnx_container_store::{PublishOptions, Store, StoreUrl, SweepOptions, publish_in, sweep};

use crate::fake_store::{FakeStore, Kind, kind_of, options};
use crate::http::{Answer, Request, forward, serve};
use crate::models::{model, renamed};

/// The store of a server that takes no notice of prefixes and delimiters.
fn lists_all(fake: &FakeStore) -> Store {
    let port = fake.port;
    let through = serve(move |request| {
        let mut request: Request = request.clone();
        if kind_of(&request) == Kind::List {
            let target = request.target.replace("prefix=", "x=").replace("delimiter=", "y=");
            request.target = target;
        }
        Answer::Raw(forward(port, &request).unwrap())
    });
    Store::open(&url("m.onnx"), &options(through)).unwrap()
}

fn url(key: &str) -> StoreUrl {
    StoreUrl::parse(&format!("s3://models/{key}")).unwrap()
}

#[test]
fn what_is_in_another_folder_stays() {
    let fake = FakeStore::new();
    let kept = || PublishOptions::new().keep(1);
    publish_in(&fake.store(), &url("b/m.onnx"), &model(1, &[("w", 100)]), kept()).unwrap();
    publish_in(&fake.store(), &url("ab/m.onnx"), &model(3, &[("w", 100)]), kept()).unwrap();
    // A weights file that no model names.
    let unnamed = model(2, &[("w", 100)]);
    publish_in(&fake.store(), &url("b/n.onnx"), &unnamed, PublishOptions::new()).unwrap();
    let mut objects = fake.objects();
    objects.remove("b/n.onnx");
    fake.restore(&objects);
    let others: BTreeSet<String> = fake.keys();

    let store = lists_all(&fake);
    let container = model(5, &[("w", 100)]);
    publish_in(&store, &url("a/m.onnx"), &container, kept()).unwrap();
    let next = renamed(container, "next");
    let published = publish_in(&store, &url("a/m.onnx"), &next, kept()).unwrap();
    assert_eq!(published.removed.len(), 1, "{published:?}");
    let job = RemoteJob::plan(&model(6, &[("w", 100)]), &url("a/m.onnx"), &store, 1).unwrap();
    job.write_from(0, &model(6, &[("w", 100)])).unwrap();
    assert_eq!(job.status().unwrap().done, [0]);
    job.commit().unwrap();
    let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
    sweep(&store, &url("a"), &all).unwrap();
    let left = fake.keys();
    assert!(left.is_superset(&others), "{:?}", others.difference(&left));
}
