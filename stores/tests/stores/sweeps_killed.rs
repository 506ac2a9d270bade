//! Sweeps whose connection ends at one request, and at another one when they are done again: what
//! something names stays, and in the end nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use onnx_container::{Container, LoadOptions, Result};
use onnx_container_store::job::RemoteJob;
use onnx_container_store::{
    PublishOptions, RemoteModel, Store, Sweep, SweepOptions, publish_in, sweep,
};

use crate::fake_store::{Dialect, FakeStore, Stored};
use crate::killed::{Ends, Proxy};
use crate::models::{assert_same, model};

/// A store with models, jobs, and what is left of others.
struct Swept {
    fake: FakeStore,
    /// Whether all of it is older than a sweep asks for, or the sweep asks for no age.
    is_old: bool,
    before: BTreeMap<String, Stored>,
    /// A job that goes on, of which one part is written.
    job: String,
    /// What is there when nothing is left to sweep.
    after: BTreeSet<String>,
}

fn numbered(seed: u8) -> Container {
    model(seed, &[("w", 100), ("v", 50)])
}

impl Swept {
    fn new(dialect: Dialect, is_old: bool) -> Self {
        let fake = FakeStore::speaking(dialect);
        let store = fake.store();
        let kept = || PublishOptions::new().keep(1);
        for seed in [1, 2] {
            publish_in(&store, &fake.url("m.onnx"), &numbered(seed), kept()).unwrap();
        }
        publish_in(&store, &fake.url("b/gone.onnx"), &numbered(3), kept()).unwrap();
        let planned = |name, seed| RemoteJob::plan(&numbered(seed), &fake.url(name), &store, 2);
        let open = planned("m.onnx", 4).unwrap();
        open.write_from(0, &numbered(4)).unwrap();
        // A commit is killed when it has published its model, and an abort beside a writer.
        let [committed, aborted] = [("b/n.onnx", 5), ("m.onnx", 6)].map(|(name, seed)| {
            let job = planned(name, seed).unwrap();
            (0..2).for_each(|part| drop(job.write_from(part, &numbered(seed)).unwrap()));
            job
        });
        let written = fake.objects();
        let of = |job: &RemoteJob| format!("{}/", job.folder().key());
        let (of_committed, of_aborted) = (of(&committed), of(&aborted));
        committed.commit().unwrap();
        aborted.abort().unwrap();
        let mut before = fake.objects();
        before.retain(|key, _| !key.starts_with("b/gone."));
        let is_left = |key: &str| {
            let is_late = key.starts_with(&of_aborted) && !key.ends_with("/job.json");
            is_late || key.starts_with(&of_committed)
        };
        before.extend(written.into_iter().filter(|(key, _)| is_left(key)));
        fake.restore(&before);
        if is_old {
            fake.age(Duration::from_secs(14 * 24 * 3600));
        }
        let before = fake.objects();
        let job = open.to_json().unwrap();
        let mut this = Self { fake, is_old, before, job, after: BTreeSet::new() };
        this.to_the_end();
        this.after = this.fake.keys();
        this
    }

    fn sweep(&self, store: &Store) -> Result<Sweep> {
        let options = SweepOptions::new().delete(true);
        let options = if self.is_old { options } else { options.older_than(Duration::ZERO) };
        sweep(store, &self.fake.url(""), &options)
    }

    /// Sweeps once, with a connection that ends at request `at`; returns how many requests that is.
    fn cut(&self, (at, ends): (usize, Ends)) -> usize {
        let proxy = Proxy::new(self.fake.port, at, ends);
        let through = self.fake.options_through(proxy.port);
        let store = Store::open(&self.fake.url(""), &through).unwrap();
        // It goes on where it can: what it says then is what it did.
        if let Ok(swept) = self.sweep(&store) {
            let left = self.fake.keys();
            let is_there = swept.swept.iter().find(|object| left.contains(object.url.key()));
            assert_eq!(is_there, None);
        }
        proxy.requests.load(Ordering::Relaxed)
    }

    /// Sweeps until nothing is left to sweep: what says that a job was committed goes after the
    /// rest of it.
    fn to_the_end(&self) {
        let store = self.fake.store();
        let runs = (0..4).take_while(|_| !self.sweep(&store).unwrap().swept.is_empty());
        assert!(runs.count() < 3);
    }

    fn has(&self, name: &str, seed: u8, said: &str) {
        let opened = RemoteModel::open_in(&self.fake.store(), &self.fake.url(name));
        let found = opened.and_then(|opened| opened.fetch(LoadOptions::new()));
        assert_same(&found.unwrap_or_else(|error| panic!("{said}: {error}")), &numbered(seed));
    }

    /// What has to be there whenever a sweep ends.
    fn holds(&self, said: &str) {
        let keys = self.fake.keys();
        let lost: Vec<_> = self.after.difference(&keys).collect();
        assert!(lost.is_empty(), "{said}: {lost:?}");
    }

    fn killed_twice(&self, first: (usize, Ends), second: (usize, Ends)) {
        let said = format!("{first:?}, {second:?}");
        self.fake.restore(&self.before);
        self.cut(first);
        self.holds(&said);
        self.cut(second);
        self.holds(&said);
        self.to_the_end();
        assert_eq!(self.fake.keys(), self.after, "{said}");
        self.has("m.onnx", 2, &said);
        self.has("b/n.onnx", 5, &said);
        let job = RemoteJob::from_json(&self.job, self.fake.store()).unwrap();
        job.write_from(1, &numbered(4)).unwrap();
        job.commit().unwrap();
        self.has("m.onnx", 4, &said);
    }

    /// A model is published between two sweeps whose weights the first one may have deleted.
    fn killed_beside_a_publication(&self, first: (usize, Ends), second: (usize, Ends)) {
        let said = format!("{first:?}, a publication, {second:?}");
        self.fake.restore(&self.before);
        self.cut(first);
        let store = self.fake.store();
        publish_in(&store, &self.fake.url("m.onnx"), &numbered(1), PublishOptions::new()).unwrap();
        self.cut(second);
        self.has("m.onnx", 1, &said);
        self.to_the_end();
        self.has("m.onnx", 1, &said);
        self.has("b/n.onnx", 5, &said);
    }
}

#[test]
fn a_sweep_that_is_killed_twice_ends_with_what_is_named() {
    const ENDS: [Ends; 2] = [Ends::BeforeTheStore, Ends::BeforeTheAnswer];
    /// The second time is that many requests after the first, and at the start again.
    const STEP: usize = 7;
    std::thread::scope(|scope| {
        for (dialect, is_old) in [(Dialect::S3, false), (Dialect::Gcs, true)] {
            scope.spawn(move || {
                let swept = Swept::new(dialect, is_old);
                swept.fake.restore(&swept.before);
                let count = swept.cut((usize::MAX, Ends::BeforeTheStore));
                assert!(count >= 20, "{count}");
                for at in 0..count {
                    for (number, ends) in ENDS.into_iter().enumerate() {
                        let again = ((at + STEP) % count, ENDS[1 - number]);
                        swept.killed_twice((at, ends), again);
                        if ends == Ends::BeforeTheAnswer {
                            swept.killed_beside_a_publication((at, ends), again);
                        }
                    }
                }
            });
        }
    });
}
