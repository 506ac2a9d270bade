//! Stores that answer wrongly: no wrong bytes are ever read, and an error says of which object, of
//! which range and why.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Mutex;
use std::time::Duration;

use onnx_container::check::{CheckOptions, check_bytes};
use onnx_container::{Container, Error, ErrorKind, LoadOptions, Result, SaveOptions, WeightFiles};
use onnx_container_store::{
    PublishOptions, Published, RemoteModel, Store, StoreUrl, SweepOptions, publish_in, sweep,
};

use crate::fake_store::{Answered, DIALECTS, Dialect, FakeStore, Kind, failed, kind_of};
use crate::http::{Answer, Request, Response};
use crate::models::{MIB, assert_same, contents, model};

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Status(u16),
    /// As a store does that is asked too often.
    RetryAfter,
    /// 200 and the whole object where a range was asked for.
    Whole,
    WrongRange,
    /// The connection ends in the middle of the body.
    Cut,
    HalfBody,
    LongerBody,
    OtherTag,
    NoTag,
    OtherTotal,
    Gzip,
    FlippedByte,
}

fn wrong(fault: Fault, request: &Request, fake: &FakeStore, answer: Response) -> Response {
    let body = answer.body.clone();
    match fault {
        Fault::Status(status) => failed(status, "AsTold"),
        Fault::RetryAfter => failed(503, "SlowDown").with("retry-after", "1"),
        Fault::Whole if request.range().is_some() => {
            let key = request.path();
            let whole = fake.objects()[key.strip_prefix("models/").unwrap()].bytes.to_vec();
            Response { status: 200, body: whole, ..answer }.without("content-range")
        }
        Fault::WrongRange if request.range().is_some() => {
            let (start, _) = request.range().unwrap();
            let last = start + body.len();
            answer.with("content-range", format!("bytes {}-{last}/99999999", start + 1))
        }
        Fault::OtherTotal if request.range().is_some() => {
            let (start, _) = request.range().unwrap();
            let last = start + body.len() - 1;
            answer.with("content-range", format!("bytes {start}-{last}/99999999"))
        }
        Fault::Whole | Fault::WrongRange | Fault::OtherTotal => answer,
        Fault::Cut => Response { cut_at: Some(body.len() / 2), ..answer },
        Fault::HalfBody => Response { body: body[..body.len() / 2].to_vec(), ..answer },
        Fault::LongerBody => Response { body: [&body[..], &body[..]].concat(), ..answer },
        Fault::OtherTag => answer.with("etag", "\"another\""),
        Fault::NoTag => answer.without("etag"),
        Fault::Gzip => answer.with("content-encoding", "gzip"),
        Fault::FlippedByte => {
            let mut body = body;
            let middle = body.len() / 2;
            body[middle] ^= 1;
            Response { body, ..answer }
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Graph,
    /// The first bytes of a weights file.
    FirstRange,
    LaterRange,
}

impl Stage {
    fn is(self, request: &Request) -> bool {
        let is_model = request.path().ends_with("m.onnx");
        match kind_of(request) {
            Kind::Whole => self == Self::Graph && is_model,
            Kind::Range if is_model => false,
            // The rest of it is asked for where it did not arrive.
            Kind::Range if request.range().unwrap().1 == 512 => self == Self::FirstRange,
            Kind::Range => self == Self::LaterRange,
            _ => false,
        }
    }
}

/// Answers the requests of a stage with these faults in turn, and then well.
fn fail(
    fake: &FakeStore,
    stage: Stage,
    faults: impl IntoIterator<Item = Fault, IntoIter: Send + 'static>,
) {
    let (other, mut faults) = (fake.clone(), faults.into_iter());
    fake.fail(move |request, answered: Answered| {
        let answer = answered();
        let fault = stage.is(request).then(|| faults.next()).flatten();
        Answer::Response(match fault {
            Some(fault) => wrong(fault, request, &other, answer),
            None => answer,
        })
    });
}

fn url(fake: &FakeStore) -> StoreUrl {
    fake.url("a/m.onnx")
}

fn published(fake: &FakeStore, len: usize) -> Container {
    let container = model(1, &[("w", len), ("b", 700)]);
    let options = SaveOptions::new().digests(true);
    publish_in(&fake.store(), &url(fake), &container, options).unwrap();
    container
}

type Read = fn(&RemoteModel) -> Result<BTreeMap<String, Vec<u8>>>;

/// Both ways to the bytes of a model.
const READS: [Read; 2] = [
    |model| contents(&model.load(LoadOptions::new())?),
    |model| contents(&model.fetch(LoadOptions::new())?),
];

/// What a read ends with where this is wrong with each answer of a stage: an error that says this,
/// or the right bytes.
fn ends(dialect: Dialect, fault: Fault, stage: Stage) -> Option<&'static str> {
    use Fault::*;
    use Stage::*;
    Some(match (fault, stage) {
        (Status(403), _) => "does not allow it",
        (Status(404), _) => "there is no such object",
        (Status(503) | RetryAfter, _) => "503",
        (Status(416), _) => "416",
        (Gzip, _) => "stored as `gzip`",
        (NoTag, _) if dialect == Dialect::Gcs => "ETag Header missing",
        // A question for a whole model has no range. What the store says that it is, is the model:
        // that is compared with what it says later. Bytes that do not arrive are asked for again.
        (_, Graph) => return None,
        (Whole, _) => "non-partial",
        (WrongRange, _) => "Requested",
        (Cut, _) => "end of file before message length reached",
        (HalfBody, FirstRange) => "sends 256 bytes of 512",
        (LongerBody, FirstRange) => "more than the 512 bytes",
        (HalfBody, LaterRange) => "bytes of",
        (LongerBody, LaterRange) => "more than the",
        (OtherTag | NoTag | OtherTotal, _) => "was replaced while it was read: it was",
        (FlippedByte | Status(_), _) => unreachable!("no fault of this test"),
    })
}

#[test]
fn no_wrong_bytes_are_read() {
    use Fault::*;
    let statuses = [Status(403), Status(404), Status(416), Status(503), RetryAfter];
    let bodies = [Whole, WrongRange, Cut, HalfBody, LongerBody, Gzip];
    let versions = [OtherTag, NoTag, OtherTotal];
    let faults: Vec<_> = [&statuses[..], &bodies, &versions].concat();
    at_once(on_both(faults), |(dialect, fault)| {
        let fake = &FakeStore::speaking(dialect);
        let expected = contents(&published(fake, 9 * MIB)).unwrap();
        for stage in [Stage::Graph, Stage::FirstRange, Stage::LaterRange] {
            // A graph of another length is another model, unless it is none.
            if stage == Stage::Graph && matches!(fault, HalfBody | LongerBody) {
                continue;
            }
            for read in READS {
                fail(fake, stage, iter::repeat(fault));
                let found = RemoteModel::open_in(&fake.store(), &url(fake));
                let found = found.and_then(|model| read(&model));
                match (found, ends(dialect, fault, stage)) {
                    (Ok(found), None) => assert!(found == expected, "{fault:?} {stage:?}"),
                    (Ok(_), Some(_)) => panic!("no error: {fault:?} {stage:?}"),
                    (Err(error), said) => names(fake, &error, stage, said.unwrap_or("no error")),
                }
            }
        }
    });
}

/// Fails where an error does not say of which object it is, of which bytes, and why.
fn names(fake: &FakeStore, error: &Error, stage: Stage, said: &str) {
    let text = error.to_string();
    let object = match stage {
        Stage::Graph => format!("`{}`: ", url(fake)),
        _ => format!("`{}/a/m-", fake.root()),
    };
    assert!(text.contains(&object) && text.contains(said), "{stage:?} {said}: {text}");
    if stage == Stage::LaterRange && error.kind() == ErrorKind::Io {
        assert!(text.contains("byte"), "{text}");
    }
}

/// Each case, for a server of S3 and for one of Google Cloud Storage.
fn on_both<T: Clone>(cases: impl IntoIterator<Item = T>) -> Vec<(Dialect, T)> {
    let both = |case: T| DIALECTS.map(|dialect| (dialect, case.clone()));
    cases.into_iter().flat_map(both).collect()
}

/// Runs each case in a thread, a few at once.
fn at_once<T: Send>(cases: Vec<T>, run: impl Fn(T) + Sync) {
    let left = Mutex::new(cases);
    let next = || left.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| iter::from_fn(next).for_each(&run));
        }
    });
}

#[test]
fn what_passes_is_asked_for_again() {
    use Fault::*;
    let cases: [&[Fault]; 8] = [
        &[Status(503)],
        &[RetryAfter],
        &[Cut],
        &[Cut, Cut],
        // The rest of a body that was cut, of another object.
        &[Cut, OtherTag],
        &[Cut, NoTag],
        &[Cut, WrongRange],
        &[HalfBody],
    ];
    at_once(on_both(cases), |(dialect, faults)| {
        let fake = &FakeStore::speaking(dialect);
        // One range, so that the faults come to it in turn.
        let expected = contents(&published(fake, MIB)).unwrap();
        let store = Store::open(&url(fake), &fake.options().max_retries(3)).unwrap();
        for stage in [Stage::Graph, Stage::FirstRange, Stage::LaterRange] {
            if stage == Stage::Graph && faults == [HalfBody] {
                continue;
            }
            for read in READS {
                fail(fake, stage, faults.to_vec());
                let found = read(&RemoteModel::open_in(&store, &url(fake)).unwrap()).unwrap();
                assert!(found == expected, "{faults:?} {stage:?}");
            }
        }
    });
}

#[test]
fn a_flipped_bit_is_found_by_digests() {
    let fake = &FakeStore::new();
    published(fake, MIB);
    fail(fake, Stage::LaterRange, iter::repeat(Fault::FlippedByte));
    let opened = RemoteModel::open_in(&fake.store(), &url(fake)).unwrap();
    let options = CheckOptions::from(opened.load_options(LoadOptions::new()).unwrap());
    let checked = check_bytes(opened.bytes().clone(), options.digests(true)).unwrap();
    let found: Vec<ErrorKind> = checked.errors().map(|found| found.error.kind()).collect();
    assert_eq!(found, [ErrorKind::WrongDigest; 2]);
    let verifying = LoadOptions::new().verify_digests(true);
    let error = opened.load(verifying).and_then(|loaded| contents(&loaded)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongDigest, "{error}");
}

#[test]
fn a_publication_that_fails_changes_nothing() {
    // What is asked of the store, the name of its object, and the answers that fail.
    let cases = [
        (Kind::Whole, "m.onnx"),
        (Kind::Head, "m-"),
        (Kind::Put, "m-"),
        (Kind::Begin, "m-"),
        (Kind::Part, "m-"),
        (Kind::Complete, "m-"),
        (Kind::Update, "m.onnx"),
    ];
    // In place of an answer that all is well, S3 may send an error with the status 200.
    let failed_late = || Response { status: 200, ..failed(500, "InternalError") };
    let answers = [(403, failed(403, "No")), (500, failed(500, "No")), (200, failed_late())];
    let all =
        cases.iter().flat_map(|case| answers.iter().map(move |answer| (*case, answer.clone())));
    let is_possible = |(kind, status): (Kind, u16)| status != 200 || kind == Kind::Complete;
    let all = all.filter(|((kind, _), (status, _))| is_possible((*kind, *status)));
    at_once(on_both(all), |(dialect, ((kind, object), (status, answer)))| {
        let fake = &FakeStore::speaking(dialect);
        let options = || PublishOptions::new().save(WeightFiles::PerTensor);
        let (store, tensors) = (fake.store(), [("w", 9 * MIB), ("b", 700)]);
        let (old, new) = (model(1, &tensors), model(2, &tensors));
        publish_in(&store, &url(fake), &old, options()).unwrap();
        fake.fail(move |request, answered: Answered| match kind_of(request) == kind {
            true => Answer::Response(answer.clone()),
            false => Answer::Response(answered()),
        });
        let error = publish_in(&store, &url(fake), &new, options()).unwrap_err();
        let text = error.to_string();
        let said = if status == 403 { "does not allow it" } else { "error" };
        let object = format!("`{}/a/{object}", fake.root());
        assert!(text.contains(&object) && text.contains(said), "{kind:?} {status}: {text}");
        fake.work();
        assert_same(&fetched(fake), &old);
        publish_in(&store, &url(fake), &new, options()).unwrap();
        assert_same(&fetched(fake), &new);
        only_what_is_named(fake);
    });
}

#[test]
fn a_file_that_is_about_to_be_swept_is_not_taken_for_sent() {
    let fake = &FakeStore::new();
    let publish = |seed| {
        let container = model(seed, &[("w", 9)]);
        publish_in(&fake.store(), &url(fake), &container, PublishOptions::new())
    };
    publish(1).unwrap();
    publish(2).unwrap();
    fake.age(Duration::from_secs(14 * 24 * 3600));
    fake.fail(|request, answered: Answered| match kind_of(request) {
        Kind::Put if request.path().ends_with(".data") => Answer::Response(failed(500, "No")),
        _ => Answer::Response(answered()),
    });
    let error = publish(1).unwrap_err();
    assert!(error.to_string().contains("500"), "{error}");
    fake.work();
    let name = |published: Published| published.files[0].name.clone();
    let named = name(publish(1).unwrap());
    // It stays what it is while the model names it.
    fake.age(Duration::from_secs(14 * 24 * 3600));
    let again = publish(1).unwrap();
    assert!(!again.files[0].sent);
    assert_eq!(name(again), named);
    only_what_is_named(fake);
}

fn fetched(fake: &FakeStore) -> Container {
    RemoteModel::open_in(&fake.store(), &url(fake)).unwrap().fetch(LoadOptions::new()).unwrap()
}

/// Sweeps, and fails where more is left than one model and the files that it names.
fn only_what_is_named(fake: &FakeStore) {
    let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
    let swept = sweep(&fake.store(), &fake.url(""), &all).unwrap();
    assert_eq!((swept.models, swept.named + 1), (1, fake.keys().len()), "{:?}", fake.keys());
    contents(&fetched(fake)).unwrap();
}
