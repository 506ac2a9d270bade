//! Publications that are cancelled, or of which something fails beside the model: what is there is
//! told, and parts of uploads are given up.

use std::time::Duration;

use onnx_container::{Cancel, ErrorKind, WeightFiles};
use onnx_container_store::{PublishOptions, RemoteModel, StoreUrl, publish_in, versions};

use crate::fake_store::{Answered, FakeStore, Kind, kind_of};
use crate::http::Answer;
use crate::models::{MIB, assert_same, model};

fn url() -> StoreUrl {
    StoreUrl::parse("s3://models/a/m.onnx").unwrap()
}

/// A call notices that it was cancelled within this time.
const NOTICED: Duration = Duration::from_millis(500);

#[test]
fn a_model_that_is_being_replaced_is_told_as_it_is() {
    let (fake, tensors) = (FakeStore::new(), [("w", 100)]);
    let store = fake.store();
    publish_in(&store, &url(), &model(1, &tensors), PublishOptions::new()).unwrap();
    let cancel = Cancel::new();
    let cancelled = cancel.clone();
    fake.fail(move |request, answered: Answered| {
        let answer = answered();
        if kind_of(request) == Kind::Update {
            // The model is there, and the answer is on its way.
            cancelled.cancel();
            std::thread::sleep(NOTICED);
        }
        Answer::Response(answer)
    });
    let new = model(2, &tensors);
    let publish = || publish_in(&store, &url(), &new, PublishOptions::new().keep(2));
    let published = cancel.scope(publish).unwrap();
    assert!(published.e_tag.is_some());
    // What comes after it was cancelled.
    assert_eq!(published.warnings.len(), 1);
    assert_eq!(published.warnings[0].kind(), ErrorKind::Cancelled);
    fake.work();
    let opened = RemoteModel::open_in(&store, &url()).unwrap();
    assert_eq!(opened.e_tag(), published.e_tag.as_deref());
    assert_same(&opened.fetch(onnx_container::LoadOptions::new()).unwrap(), &new);
}

#[test]
fn parts_of_an_upload_that_is_cancelled_are_given_up() {
    let fake = FakeStore::new();
    let store = fake.store();
    let cancel = Cancel::new();
    let cancelled = cancel.clone();
    fake.fail(move |request, answered: Answered| {
        let answer = answered();
        if kind_of(request) == Kind::Part {
            cancelled.cancel();
            std::thread::sleep(NOTICED);
        }
        Answer::Response(answer)
    });
    let container = model(1, &[("w", 17 * MIB)]);
    let options = || PublishOptions::new().save(WeightFiles::Packed);
    let error = cancel.scope(|| publish_in(&store, &url(), &container, options())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert!(fake.log().iter().any(|(kind, _)| *kind == Kind::Abort));
    assert_eq!((fake.uploads(), fake.keys().len()), (0, 0));
}

#[test]
fn a_model_that_is_published_is_no_failure_where_versions_cannot_be_kept() {
    let fake = FakeStore::new();
    let store = fake.store();
    fake.fail(|request, answered: Answered| match kind_of(request) {
        Kind::List => Answer::Response(crate::fake_store::failed(403, "AccessDenied")),
        _ => Answer::Response(answered()),
    });
    let container = model(1, &[("w", 100)]);
    let published = publish_in(&store, &url(), &container, PublishOptions::new().keep(2)).unwrap();
    assert!(published.e_tag.is_some() && published.version.is_none());
    let said: Vec<String> = published.warnings.iter().map(ToString::to_string).collect();
    let is_told = |said: &str| said.contains("does not allow it") && said.contains("AccessDenied");
    assert!(said.len() == 1 && is_told(&said[0]), "{said:?}");
    fake.work();
    assert_eq!(versions(&store, &url()).unwrap(), []);
}

#[test]
fn what_is_no_model_is_replaced_as_it_is() {
    let fake = FakeStore::new();
    let store = fake.store();
    let container = model(1, &[("w", 100)]);
    publish_in(&store, &url(), &model(2, &[("w", 9)]), PublishOptions::new()).unwrap();
    fake.fail(|request, answered: Answered| {
        let answer = answered();
        Answer::Response(match kind_of(request) {
            Kind::Whole => answer.with("content-encoding", "gzip"),
            _ => answer,
        })
    });
    publish_in(&store, &url(), &container, PublishOptions::new()).unwrap();
    fake.work();
    let opened = RemoteModel::open_in(&store, &url()).unwrap();
    assert_same(&opened.fetch(onnx_container::LoadOptions::new()).unwrap(), &container);
}
