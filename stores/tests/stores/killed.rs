//! Publications whose connection ends at every request in turn, before the store has it or before
//! its answer is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onnx_container::{Container, LoadOptions, Result, WeightFiles};
use onnx_container_store::{
    PublishOptions, Published, RemoteModel, Store, StoreUrl, SweepOptions, publish_in, sweep,
};

use crate::fake_store::{Dialect, FakeStore, Stored};
use crate::http::{Answer, forward, serve};
use crate::models::{assert_same, is_same, model};

/// When a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    BeforeTheStore,
    BeforeTheAnswer,
}

/// Stands before a server, and ends the connection at one request.
pub struct Proxy {
    pub port: u16,
    pub requests: Arc<AtomicUsize>,
}

impl Proxy {
    /// Before the server at `port`; `at` counts from zero.
    pub fn new(port: u16, at: usize, ends: Ends) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let port = serve(move |request| {
            let is_it = counted.fetch_add(1, Ordering::Relaxed) == at;
            if is_it && ends == Ends::BeforeTheStore {
                return Answer::Cut;
            }
            match forward(port, request) {
                Ok(answer) if !is_it => Answer::Raw(answer),
                _ => Answer::Cut,
            }
        });
        Self { port, requests }
    }
}

/// One publication that is cut at every request.
struct Publications {
    fake: FakeStore,
    old: Option<Container>,
    new: Container,
    /// What is there before.
    before: BTreeMap<String, Stored>,
    /// Whether the store is tried first.
    tried: bool,
}

pub fn url(store: &Store) -> StoreUrl {
    StoreUrl::parse(&format!("{}/m.onnx", store.root())).unwrap()
}

fn publish(store: &Store, container: &Container) -> Result<Published> {
    let options = PublishOptions::new().save(WeightFiles::PerTensor).keep(1);
    publish_in(store, &url(store), container, options)
}

pub fn fetched(store: &Store) -> Result<Container> {
    RemoteModel::open_in(store, &url(store))?.fetch(LoadOptions::new())
}

impl Publications {
    fn new(dialect: Dialect, has_old: bool, tried: bool, len: usize) -> Self {
        let tensors = [("w", len), ("b", 300)];
        let fake = FakeStore::speaking(dialect);
        let old = has_old.then(|| model(1, &tensors));
        if let Some(old) = &old {
            publish(&fake.store(), old).unwrap();
        }
        Self { before: fake.objects(), fake, old, new: model(2, &tensors), tried }
    }

    /// Publishes once, and returns how many requests that took.
    fn publish(&self, at: usize, ends: Ends, retries: usize) -> usize {
        let said = format!("request {at}, {ends:?}, {retries} retries");
        self.fake.restore(&self.before);
        let proxy = Proxy::new(self.fake.port, at, ends);
        let through = self.fake.options_through(proxy.port).max_retries(retries);
        let through = through.trust_conditions(!self.tried);
        let url = self.fake.url("m.onnx");
        let published = publish(&Store::open(&url, &through).unwrap(), &self.new);
        if let (Err(error), true) = (&published, retries > 0) {
            panic!("{said}: {error}");
        }
        // A reader has the old model or the new one, and the new one where the publication says so.
        let direct = self.fake.store();
        match (fetched(&direct), &self.old) {
            (Ok(found), None) => assert_same(&found, &self.new),
            (Ok(found), Some(old)) => match published.is_ok() || is_same(&found, &self.new) {
                true => assert_same(&found, &self.new),
                false => assert_same(&found, old),
            },
            (Err(error), old) => assert!(old.is_none() && published.is_err(), "{said}: {error}"),
        }
        self.ends_well(&said);
        proxy.requests.load(Ordering::Relaxed)
    }

    /// Publishes again, and sweeps.
    fn ends_well(&self, said: &str) {
        let direct = self.fake.store();
        publish(&direct, &self.new).unwrap();
        let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
        let swept = sweep(&direct, &self.fake.url(""), &all).unwrap();
        // The model, its version, and their files.
        assert_eq!((swept.models, swept.named, self.fake.keys().len()), (2, 2, 4), "{said}");
        assert_same(&fetched(&direct).unwrap(), &self.new);
    }

    fn cut_everywhere(&self, retries: usize) {
        let count = self.publish(usize::MAX, Ends::BeforeTheStore, retries);
        assert!(count >= 8, "{count}");
        for at in 0..count {
            self.publish(at, Ends::BeforeTheStore, retries);
            self.publish(at, Ends::BeforeTheAnswer, retries);
        }
    }
}

#[test]
fn a_publication_that_is_cut_leaves_a_whole_model() {
    const SHORT: usize = 1000;
    /// Two parts.
    const LONG: usize = (8 << 20) + 9;
    let cases = [
        // How the store is spoken to, whether there is an old model, whether the store is tried
        // first, the bytes of a tensor, and retries.
        (Dialect::S3, false, true, SHORT, 0),
        (Dialect::S3, true, true, SHORT, 3),
        (Dialect::S3, false, false, LONG, 0),
        (Dialect::S3, true, false, LONG, 3),
        (Dialect::Gcs, false, true, SHORT, 0),
        (Dialect::Gcs, true, true, SHORT, 3),
        (Dialect::Gcs, false, false, LONG, 0),
    ];
    std::thread::scope(|scope| {
        for (dialect, has_old, tried, len, retries) in cases {
            let publications = move || Publications::new(dialect, has_old, tried, len);
            scope.spawn(move || publications().cut_everywhere(retries));
        }
    });
}
