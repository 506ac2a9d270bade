//! What a job tells whose store does not answer all that is asked, and while a commit ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onnx_container::job::Recast;
use onnx_container::proto::TensorProto;
use onnx_container::{Container, DataType, Error, Initializer, Result};
use onnx_container_store::job::{RemoteCommitted, RemoteJob};
use onnx_container_store::{PublishOptions, publish_in};

use crate::fake_store::{Answered, DIALECTS, Dialect, FakeStore, Kind, failed, kind_of};
use crate::http::{Answer, Response, forward, serve};
use crate::models::model;

/// Makes another answer of the one to a request for the head of the model.
type Change = fn(Response) -> Response;

/// Changes the tag in an answer.
fn tagged(answer: Response, change: impl Fn(&str) -> String) -> Response {
    let tag = change(answer.header("etag").unwrap());
    answer.without("etag").with("etag", tag)
}

/// What is answered, and whether the model was replaced, or what the error says.
const HEADS: [(&str, Change, std::result::Result<bool, &str>); 8] = [
    ("as it is", |answer| answer, Ok(false)),
    ("refused", |_| failed(403, "AccessDenied"), Err("does not allow it")),
    ("failing", |_| failed(503, "SlowDown"), Err("503")),
    ("gone", |_| failed(404, "NoSuchKey"), Ok(true)),
    ("without a tag", |answer| answer.without("etag"), Ok(false)),
    ("with a weak tag", |answer| tagged(answer, |tag| format!("W/{tag}")), Ok(false)),
    ("with another tag", |answer| tagged(answer, |_| "\"x\"".into()), Ok(true)),
    ("with another weak tag", |answer| tagged(answer, |_| "W/\"x\"".into()), Ok(true)),
];

#[test]
fn a_commit_is_told_as_far_as_the_store_answers() {
    for dialect in DIALECTS {
        let fake = FakeStore::speaking(dialect);
        let (store, url) = (fake.store(), fake.url("a/m.onnx"));
        let container = model(1, &[("w", 100)]);
        let job = RemoteJob::plan(&container, &url, &store, 1).unwrap();
        job.write_from(0, &container).unwrap();
        let digest = job.commit().unwrap().digest;
        for (name, change, expected) in HEADS {
            if name == "without a tag" && dialect == Dialect::Gcs {
                continue; // object_store takes no object without one from Google.
            }
            fake.fail(move |request, answered: Answered| {
                let is_model =
                    kind_of(request) == Kind::Head && request.path().ends_with("/m.onnx");
                let answer = answered();
                Answer::Response(if is_model { change(answer) } else { answer })
            });
            let replaced = |told: Result<Option<RemoteCommitted>>| Ok(told?.unwrap().replaced);
            let told: [Result<bool>; 3] = [
                replaced(job.committed()),
                replaced(RemoteJob::committed_at(&job.folder(), &store)),
                job.status().map(|status| status.is_replaced),
            ];
            for told in told {
                match (told, expected) {
                    (Ok(told), Ok(expected)) => assert_eq!(told, expected, "{name}"),
                    (Err(error), Err(said)) => is_of_model(&error, said, name),
                    other => panic!("{name}: {other:?}"),
                }
            }
            assert_eq!(job.missing_parts().unwrap(), [0; 0], "{name}");
            // What the job has done is known.
            for again in [job.commit(), RemoteJob::commit_at(&job.folder(), &store)] {
                let again = again.unwrap();
                assert!(again.already && again.digest == digest, "{name}");
                assert_eq!(again.replaced, expected.unwrap_or(false), "{name}");
                let warnings = again.published.warnings;
                assert_eq!(warnings.len(), usize::from(expected.is_err()), "{name}: {warnings:?}");
                for warning in warnings {
                    is_of_model(&warning, expected.unwrap_err(), name);
                    assert!(warning.to_string().contains("still there"), "{name}: {warning}");
                }
            }
        }
    }
}

fn is_of_model(error: &Error, said: &str, name: &str) {
    let text = error.to_string();
    assert!(text.contains(said) && text.contains("/a/m.onnx`"), "{name}: {text}");
}

/// A model with a weight `f` that float16 cannot hold.
fn large() -> Container {
    let mut container = model(1, &[("small", 100)]);
    let floats = TensorProto::external("f", TensorProto::FLOAT, [1000], "#f");
    container.model_mut().graph.as_mut().unwrap().initializer.push(floats);
    container.insert("#f", Initializer::from(vec![1e30_f32; 1000])).unwrap();
    container
}

#[test]
fn a_status_while_a_commit_ends_is_of_before_or_after() {
    for dialect in DIALECTS {
        let fake = FakeStore::speaking(dialect);
        let (source, url) = (fake.url("a/source.onnx"), fake.url("a/m.onnx"));
        publish_in(&fake.store(), &source, &large(), PublishOptions::new()).unwrap();
        let recast = Some(Recast::new(DataType::Float16));
        let job = RemoteJob::rewrite(&source.to_string(), &url, fake.options(), recast, 2);
        let job = job.unwrap();
        job.parts().for_each(|part| drop(job.write(part).unwrap()));
        let (text, written) = (job.to_json().unwrap(), fake.objects());
        let mut told = [0; 2];
        for at in 0.. {
            fake.restore(&written);
            // A commit comes before the request of this number.
            let asked = Arc::new(AtomicUsize::new(0));
            let (counted, committing, port) = (Arc::clone(&asked), job.clone(), fake.port);
            let through = serve(move |request| {
                if counted.fetch_add(1, Ordering::SeqCst) == at {
                    committing.commit().unwrap();
                }
                Answer::Raw(forward(port, request).unwrap())
            });
            let options = fake.options_through(through);
            let status = RemoteJob::from_json(&text, &options).unwrap().status();
            let status = status.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(status.infinite, ["f"], "{at}: {status:?}");
            assert_eq!((&*status.done, status.is_complete), (&[0, 1][..], true), "{at}");
            told[usize::from(status.is_committed)] += 1;
            if asked.load(Ordering::SeqCst) <= at {
                break;
            }
        }
        assert!(told.iter().all(|times| *times > 0), "{told:?}");
    }
}
