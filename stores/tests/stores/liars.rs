//! Stores that accept conditions and ignore them, so that two writers overwrite each other.

use onnx_container::{ErrorKind, LoadOptions};
use onnx_container_store::{IfPresent, PublishOptions, RemoteModel, probe, publish_in};

use crate::fake_store::{DIALECTS, FakeStore};
use crate::models::{assert_same, model};
use crate::servers::{self, Place};

/// What holds for a store that ignores the condition of a first put, or of the others.
fn hold(place: &Place, reads: bool) {
    let (store, url) = (place.store(), place.url("m.onnx"));
    let container = model(1, &[("w", 100)]);
    // Where there is no model yet, a store that refuses to overwrite is enough.
    let creates = probe(&store, &url).unwrap().create;
    let new = [IfPresent::Replace, IfPresent::Refuse].map(|if_present| (if_present, "new.onnx"));
    let there = [(IfPresent::Replace, "m.onnx")];
    let overwrite = || PublishOptions::new().if_present(IfPresent::Overwrite);
    publish_in(&store, &url, &container, overwrite()).unwrap();
    let refused = new.into_iter().filter(|_| !creates).chain(there);
    for (if_present, name) in refused {
        let options = PublishOptions::new().if_present(if_present);
        let error = publish_in(&store, &place.url(name), &container, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let text = error.to_string();
        for said in ["two writers do not notice each other", "Publish without conditions"] {
            assert!(text.contains(said), "{text}");
        }
    }
    if creates {
        let refuse = || PublishOptions::new().if_present(IfPresent::Refuse);
        let publish = || publish_in(&store, &place.url("new.onnx"), &container, refuse());
        publish().unwrap();
        assert_eq!(publish().unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    assert!(!probe(&store, &url).unwrap().publishes());
    for seed in [1, 2] {
        let container = model(seed, &[("w", 100), ("long", 9 << 20)]);
        publish_in(&store, &url, &container, overwrite()).unwrap();
        let opened = RemoteModel::open_in(&store, &url).unwrap();
        if reads {
            assert_same(&opened.load(LoadOptions::new()).unwrap(), &container);
            assert_same(&opened.fetch(LoadOptions::new()).unwrap(), &container);
        } else {
            let error = opened.load(LoadOptions::new()).unwrap_err();
            println!("{error}");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        }
    }
}

#[test]
fn on_the_server_of_these_tests() {
    for dialect in DIALECTS {
        for (create, matches) in [(true, true), (false, true), (true, false)] {
            let fake = FakeStore::ignoring(dialect, create, matches);
            hold(&Place::of(&fake), true);
            let left = fake.keys();
            assert!(left.iter().all(|key| !key.contains("probe")), "{left:?}");
        }
    }
}

#[test]
#[ignore = "needs servers: scripts/test.sh stores"]
fn on_rclone() {
    // It answers a question for a range with the whole object.
    if let Some(place) = servers::extra("rclone", servers::rclone) {
        hold(&place, false);
    }
}

#[test]
#[ignore = "needs servers: scripts/test.sh stores"]
fn on_nanio() {
    if let Some(place) = servers::extra("nanio", servers::nanio) {
        hold(&place, true);
    }
}

#[test]
#[ignore = "needs servers: scripts/test.sh stores"]
fn on_localbucket() {
    if let Some(place) = servers::extra("localbucket", servers::localbucket) {
        hold(&place, true);
    }
}
