//! What a job tells whose store does not answer all that is asked.

use onnx_container::{Error, Result};
use onnx_container_store::job::{RemoteCommitted, RemoteJob};

use crate::fake_store::{Answered, DIALECTS, Dialect, FakeStore, Kind, failed, kind_of};
use crate::http::{Answer, Response};
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
