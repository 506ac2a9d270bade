//! Aborts of which one request fails, and that are done again: nothing of the job is left, and what
//! a commit had done is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onnx_container::{ErrorKind, Result};
use onnx_container_store::job::RemoteJob;
use onnx_container_store::{PublishOptions, RemoteModel, Store, StoreUrl, publish_in};

use crate::fake_store::{FakeStore, Kind, failed, kind_of, options};
use crate::http::{Answer, Request, forward, serve};
use crate::models::{model, renamed};

const WAS: &str = "it was aborted";
const MAY: &str = "is published if that commit still runs";
const HAS: &str = "had published its model";
const UNSEEN: &str = "may have published it";

/// How far a commit came that was killed before the abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commit {
    None,
    Noted,
    Published,
}

impl Commit {
    /// The request of the commit that is not answered.
    fn ends_at(self, request: &Request) -> bool {
        match self {
            Self::None => false,
            Self::Noted => request.path().ends_with("models/m.onnx") && request.method == "PUT",
            Self::Published => request.path().ends_with("committed.json") && is(Kind::Put, request),
        }
    }

    /// What an abort says that sees all.
    fn told(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Noted => Some(MAY),
            Self::Published => Some(HAS),
        }
    }

    /// What is left in the folder of the job.
    fn left(self) -> &'static str {
        if self == Self::Published { "" } else { "aborted.json" }
    }
}

fn is(kind: Kind, request: &Request) -> bool {
    kind_of(request) == kind
}

fn is_read(request: &Request, of: &str) -> bool {
    is(Kind::Whole, request) && request.path().contains(of)
}

fn is_delete(request: &Request, of: &str) -> bool {
    is(Kind::Delete, request) && request.path().contains(of)
}

/// The requests of an abort, of which one is refused.
type IsStep = fn(&Request) -> bool;

const LOOK: &str = "look at the model";
const STEPS: [(&str, IsStep); 7] = [
    ("end of the description", |request| is_delete(request, "job.json")),
    ("list", |request| is(Kind::List, request)),
    ("read of the note", |request| is_read(request, "/committing-")),
    (LOOK, |request| is_read(request, "models/m.onnx")),
    ("put of what says so", |request| {
        request.path().ends_with("aborted.json") && is(Kind::Put, request)
    }),
    ("end of the planned model", |request| is_delete(request, "/model.onnx")),
    ("end of the note", |request| is_delete(request, "/committing-")),
];

fn url() -> StoreUrl {
    StoreUrl::parse("s3://models/m.onnx").unwrap()
}

/// A job of the new model whose part is written, in the place of the old one.
fn written(fake: &FakeStore) -> RemoteJob {
    let [old, new] = ["old", "new"].map(|name| renamed(model(1, &[("w", 100)]), name));
    publish_in(&fake.store(), &url(), &old, PublishOptions::new()).unwrap();
    let job = RemoteJob::plan(&new, &url(), fake.store(), 1).unwrap();
    job.write_from(0, &new).unwrap();
    job
}

/// Such a job, with what a commit leaves that was killed.
fn killed(fake: &FakeStore, commit: Commit) -> RemoteJob {
    let job = written(fake);
    if commit != Commit::None {
        fake.fail(move |request, answered| match commit.ends_at(request) {
            true => Answer::Cut,
            false => Answer::Response(answered()),
        });
        let trusting = fake.options().trust_conditions(true);
        let store = Store::open(&url(), &trusting).unwrap();
        let committed = RemoteJob::from_json(&job.to_json().unwrap(), &store).unwrap().commit();
        assert_eq!(committed.is_ok(), commit == Commit::Published, "{committed:?}");
        fake.work();
    }
    job
}

fn is_new(fake: &FakeStore) -> bool {
    let opened = RemoteModel::open_in(&fake.store(), &url()).unwrap();
    opened.bytes().windows(3).any(|bytes| bytes == b"new")
}

/// What is in the folder of a job.
fn left(fake: &FakeStore, job: &RemoteJob) -> String {
    let folder = format!("{}/", job.folder().key());
    let keys = fake.keys();
    let found: Vec<_> = keys.iter().filter_map(|key| key.strip_prefix(&folder)).collect();
    found.join(" ")
}

fn assert_says(result: Result<()>, said: Option<&str>, name: &str) {
    match (said, result) {
        (None, Ok(())) => {}
        (Some(said), Err(error)) => {
            let kind = if said == WAS { ErrorKind::MissingFile } else { ErrorKind::Changed };
            assert_eq!(error.kind(), kind, "{name}: {error}");
            assert!(error.to_string().contains(said), "{name}: {error}");
        }
        (_, result) => panic!("{name}: {result:?}"),
    }
}

#[test]
fn an_abort_that_fails_halfway_is_done_again() {
    for commit in [Commit::None, Commit::Noted, Commit::Published] {
        for (step, is_step) in STEPS {
            let name = format!("{commit:?}, {step}");
            let fake = FakeStore::new();
            let job = killed(&fake, commit);
            let is_hit = Arc::new(AtomicBool::new(false));
            let hit = Arc::clone(&is_hit);
            fake.fail(move |request, answered| {
                let is_refused = is_step(request);
                hit.fetch_or(is_refused, Ordering::Relaxed);
                let answer = if is_refused { failed(403, "AccessDenied") } else { answered() };
                Answer::Response(answer)
            });
            let first = job.clone().abort();
            fake.work();
            let expected = match (is_hit.load(Ordering::Relaxed), step) {
                // Nothing else is asked of the model, and the job is ended.
                (true, LOOK) => {
                    assert_says(first, Some(UNSEEN), &name);
                    assert_says(job.clone().abort(), Some(WAS), &name);
                    "aborted.json"
                }
                (true, _) => {
                    assert_eq!(first.unwrap_err().kind(), ErrorKind::Io, "{name}");
                    assert_says(
                        RemoteJob::abort_at(&fake.store(), &job.folder()),
                        commit.told(),
                        &name,
                    );
                    commit.left()
                }
                (false, _) => {
                    assert_says(first, commit.told(), &name);
                    commit.left()
                }
            };
            assert_eq!(left(&fake, &job), expected, "{name}");
            assert_eq!(is_new(&fake), commit == Commit::Published, "{name}");
        }
    }
}

/// The receipt of a writer that came late is no abort that has to be done again.
#[test]
fn a_late_receipt_does_not_open_a_job_again() {
    let fake = FakeStore::new();
    let job = written(&fake);
    let before = fake.objects();
    job.clone().abort().unwrap();
    let receipt = "/receipts/part-00000.json";
    let ended =
        before.into_iter().filter(|(key, _)| !key.contains(".job-") || key.ends_with(receipt));
    fake.restore(&ended.collect());
    let error = job.abort().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
    assert!(error.to_string().contains("committed or aborted"), "{error}");
}

/// The whole of a commit is between two requests of an abort.
#[test]
fn an_abort_tells_of_a_commit_that_was_meanwhile() {
    let fake = FakeStore::new();
    let job = written(&fake);
    let (committed, is_first, port) = (job.clone(), Arc::new(AtomicBool::new(true)), fake.port);
    let port = serve(move |request| {
        if is_delete(request, "job.json") && is_first.swap(false, Ordering::Relaxed) {
            committed.commit().unwrap();
        }
        Answer::Raw(forward(port, request).unwrap())
    });
    let store = Store::open(&url(), &options(port)).unwrap();
    assert_says(RemoteJob::abort_at(&store, &job.folder()), Some(HAS), "a commit meanwhile");
    assert_eq!(left(&fake, &job), "committed.json");
    assert!(is_new(&fake) && job.commit().unwrap().already);
}
