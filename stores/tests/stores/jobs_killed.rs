//! Jobs whose connection ends at every request in turn: of the plan, of each part, of the commit,
//! of an abort.
//!
//! Each phase is done again after that, by a process that knows the job alone.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onnx_container::{Container, ErrorKind, Result};
use onnx_container_store::job::{RemoteJob, RemoteJobOptions, jobs_in};
use onnx_container_store::{PublishOptions, Store, SweepOptions, publish_in, sweep};

use crate::fake_store::{Dialect, FakeStore, Stored};
use crate::jobs::made;
use crate::killed::{Ends, Proxy, fetched, url};
use crate::models::{assert_same, is_same, model};

const PARTS: usize = 2;

/// What a process does with a job of a store that it reaches through a proxy.
type Phase = fn(&Jobs, &Store, &str) -> Result<()>;

/// A model that is replaced by a job.
struct Jobs {
    fake: FakeStore,
    old: Container,
    new: Container,
}

impl Jobs {
    fn new(dialect: Dialect, len: usize) -> Self {
        let tensors = [("w", len), ("b", 300), ("c", 200)];
        let (old, new) = (model(1, &tensors), model(2, &tensors));
        let fake = FakeStore::speaking(dialect);
        publish_in(&fake.store(), &fake.url("m.onnx"), &old, PublishOptions::new()).unwrap();
        Self { fake, old, new }
    }

    fn plan(&self, store: &Store) -> Result<RemoteJob> {
        let options = RemoteJobOptions::from(PARTS).publish(PublishOptions::new().keep(1));
        RemoteJob::plan(&self.new, &url(store), store, options)
    }

    /// What is there before each phase, and the job.
    fn phases(&self) -> Vec<(&'static str, BTreeMap<String, Stored>, String, Phase)> {
        let store = self.fake.store();
        let planned: Phase = |jobs, store, _| jobs.plan(store).map(|_| ());
        let written: Phase = |jobs, store, job| {
            RemoteJob::from_json(job, store)?.write_from(0, &jobs.new).map(|_| ())
        };
        let streamed: Phase = |jobs, store, job| {
            RemoteJob::from_json(job, store)?.write_from(0, &made(&jobs.new)).map(|_| ())
        };
        let committed: Phase =
            |_, store, job| RemoteJob::from_json(job, store)?.commit().map(|_| ());
        let aborted: Phase = |_, store, job| RemoteJob::from_json(job, store)?.abort();
        let nothing = self.fake.objects();
        let job = self.plan(&store).unwrap();
        let text = job.to_json().unwrap();
        let begun = self.fake.objects();
        (0..PARTS).for_each(|part| drop(job.write_from(part, &self.new).unwrap()));
        let complete = self.fake.objects();
        vec![
            ("plan", nothing, text.clone(), planned),
            ("write", begun.clone(), text.clone(), written),
            ("stream", begun, text.clone(), streamed),
            ("abort", complete.clone(), text.clone(), aborted),
            ("commit", complete, text, committed),
        ]
    }

    /// Does one phase, whose connection ends at request `at`; returns how many requests it takes.
    fn cut(
        &self,
        (name, before, job, phase): &(&str, BTreeMap<String, Stored>, String, Phase),
        (at, ends): (usize, Ends),
    ) -> usize {
        let said = format!("{name}: request {at}, {ends:?}");
        self.fake.restore(before);
        let proxy = Proxy::new(self.fake.port, at, ends);
        let through = self.fake.options_through(proxy.port).trust_conditions(true);
        let store = Store::open(&self.fake.url("m.onnx"), &through).unwrap();
        let result = phase(self, &store, job);
        let direct = self.fake.store();
        let found = fetched(&direct).unwrap();
        let is_new = is_same(&found, &self.new);
        assert!(is_new || is_same(&found, &self.old), "{said}: a mix");
        assert!(!is_new || *name == "commit", "{said}: too early");
        assert!(result.is_err() || is_new || *name != "commit", "{said}: not published");
        self.ends_well(name, job, &said);
        proxy.requests.load(Ordering::Relaxed)
    }

    /// The phase again, the phases after it, and a sweep.
    fn ends_well(&self, name: &str, job: &str, said: &str) {
        let direct = self.fake.store();
        let folder = self.fake.url("");
        if name == "abort" {
            let job = RemoteJob::from_json(job, &direct).unwrap();
            let (key, again) = (format!("{}/", job.folder().key()), job.abort());
            let is_ended =
                again.as_ref().is_err_and(|error| error.kind() == ErrorKind::MissingFile);
            assert!(again.is_ok() || is_ended, "{said}: {again:?}");
            let left: Vec<_> =
                self.fake.keys().into_iter().filter(|it| it.starts_with(&key)).collect();
            assert_eq!(left, [format!("{key}aborted.json")], "{said}");
        }
        let job = match name {
            "plan" | "abort" => {
                // A plan that was cut is ended by the folder of the job.
                for left in jobs_in(&direct, &folder).unwrap() {
                    RemoteJob::abort_at(&direct, &left).unwrap();
                }
                self.plan(&direct).unwrap()
            }
            _ => RemoteJob::from_json(job, &direct).unwrap(),
        };
        match job.status() {
            Ok(status) if !status.is_ended => {
                (0..PARTS).for_each(|part| drop(job.write_from(part, &self.new).unwrap()));
                let committed = job.commit().unwrap();
                assert_eq!(committed.digest, self.new.digest().unwrap(), "{said}");
            }
            // The commit came so far that its job is removed, at least in part.
            ended => {
                assert!(name == "commit", "{said}: {ended:?}");
                let committed = job.commit().unwrap_or_else(|error| panic!("{said}: {error}"));
                assert!(committed.already, "{said}");
                assert_eq!(committed.digest, self.new.digest().unwrap(), "{said}");
            }
        }
        assert_same(&fetched(&direct).unwrap(), &self.new);
        assert_eq!(jobs_in(&direct, &folder).unwrap(), [], "{said}");
        let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
        let swept = sweep(&direct, &folder, &all).unwrap();
        // The model, its version, and their files.
        let left = (swept.models, swept.named, self.fake.keys().len());
        assert_eq!(left, (2, PARTS, 2 + PARTS), "{said} {:?}", self.fake.keys());
        assert_same(&fetched(&direct).unwrap(), &self.new);
    }
}

#[test]
fn a_job_that_is_cut_ends_with_the_old_model_or_the_new() {
    const SHORT: usize = 1000;
    /// Two requests to send.
    const LONG: usize = (8 << 20) + 9;
    std::thread::scope(|scope| {
        for (dialect, len) in
            [(Dialect::S3, SHORT), (Dialect::S3, LONG), (Dialect::Gcs, SHORT), (Dialect::Gcs, LONG)]
        {
            scope.spawn(move || {
                let jobs = Jobs::new(dialect, len);
                // How long a part is matters where one is written.
                let is_told = |name: &str| len == SHORT || ["write", "stream"].contains(&name);
                for phase in jobs.phases().into_iter().filter(|phase| is_told(phase.0)) {
                    let count = jobs.cut(&phase, (usize::MAX, Ends::BeforeTheStore));
                    assert!(count >= 3, "{}: {count}", phase.0);
                    for at in 0..count {
                        jobs.cut(&phase, (at, Ends::BeforeTheStore));
                        jobs.cut(&phase, (at, Ends::BeforeTheAnswer));
                    }
                }
            });
        }
    });
}
