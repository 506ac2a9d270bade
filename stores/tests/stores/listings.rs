//! Stores that list more than they are asked for, page by page, without an end, and objects whose
//! names no URL has.

use std::collections::BTreeSet;
use std::time::Duration;

use onnx_container::{Error, ErrorKind, LoadOptions};
use onnx_container_store::job::{RemoteJob, jobs_in};
use onnx_container_store::{
    PublishOptions, RemoteModel, Store, StoreUrl, SweepOptions, publish_in, sweep, versions,
};

use crate::fake_store::{Answered, DIALECTS, FakeStore, Kind, kind_of, options};
use crate::http::{Answer, Request, Response, forward, serve};
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
    sweep(&store, &url("a"), &all()).unwrap();
    let left = fake.keys();
    assert!(left.is_superset(&others), "{:?}", others.difference(&left));
}

/// Whatever the age.
fn all() -> SweepOptions {
    SweepOptions::new().older_than(Duration::ZERO).delete(true)
}

/// Where a server says that a listing goes on, after the page of this number.
type Next = fn(usize) -> Option<usize>;

/// Lists one name on each page, and none on the first. `next` says where a listing goes on, which
/// counts its pages or not.
fn in_pages(fake: &FakeStore, next: Next, counts: bool) {
    let mut asked = 0;
    fake.fail(move |request, answered: Answered| {
        let answer = answered();
        if kind_of(request) != Kind::List {
            return Answer::Response(answer);
        }
        asked += 1;
        let body = String::from_utf8(answer.body.clone()).unwrap();
        let inner = body.strip_prefix("<ListBucketResult>").unwrap();
        let inner = inner.strip_suffix("</ListBucketResult>").unwrap();
        let names = inner.replace("<Contents>", "\n<Contents>");
        let names = names.replace("<CommonPrefixes>", "\n<CommonPrefixes>");
        let names: Vec<&str> = names.lines().collect();
        let place = request.query("continuation-token").map_or(0, |it| it.parse().unwrap());
        let goes_on = match counts {
            true => next(place).filter(|place| *place < names.len()),
            false => next(asked),
        };
        let name = names.get(if counts { place } else { 1 }).copied().unwrap_or_default();
        let token =
            goes_on.map(|at| format!("<NextContinuationToken>{at}</NextContinuationToken>"));
        let token = token.unwrap_or_default();
        let body = format!("<ListBucketResult>{name}{token}</ListBucketResult>");
        Answer::Response(Response { body: body.into_bytes(), ..answer })
    });
}

/// A server of the first version of S3's listing says in other words that there are more pages.
#[test]
fn a_listing_that_ends_early_deletes_nothing() {
    for dialect in DIALECTS {
        // Whether the server knows where it is to begin.
        for knows_begin in [true, false] {
            let fake = FakeStore::speaking(dialect);
            let (store, folder) = (fake.store(), fake.url("a"));
            for (seed, name) in [(1, "l"), (2, "m"), (3, "n")] {
                let container = model(seed, &[("w", 100)]);
                let url = fake.url(&format!("a/{name}.onnx"));
                publish_in(&store, &url, &container, PublishOptions::new()).unwrap();
            }
            let before = fake.keys();
            fake.fail(move |request, answered: Answered| {
                let begins = request.query("start-after").is_some() && knows_begin;
                let answer = answered();
                if kind_of(request) != Kind::List || begins {
                    return Answer::Response(answer);
                }
                let body = String::from_utf8(answer.body.clone()).unwrap();
                // The first three objects: the weights of two models, and one model.
                let end = body.match_indices("<Contents>").nth(3).map(|found| found.0);
                let first = end.map_or(body.as_str(), |end| &body[..end]);
                let first = first.trim_end_matches("</ListBucketResult>");
                let more = "<IsTruncated>true</IsTruncated><NextMarker>x</NextMarker>";
                let body = format!("{first}{more}</ListBucketResult>");
                Answer::Response(Response { body: body.into_bytes(), ..answer })
            });
            let error = sweep(&store, &folder, &all()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains("ended, and there are objects behind"), "{error}");
            fake.work();
            assert_eq!(fake.keys(), before);
            assert_eq!(sweep(&store, &folder, &all()).unwrap().models, 3);
            assert_eq!(fake.keys(), before);
        }
    }
}

#[test]
fn a_listing_in_pages_has_all() {
    for dialect in DIALECTS {
        let fake = FakeStore::speaking(dialect);
        let (store, url) = (fake.store(), fake.url("a/m.onnx"));
        in_pages(&fake, |place| Some(place + 1), true);
        for seed in 0..4 {
            let container = model(seed, &[("w", 100)]);
            publish_in(&store, &url, &container, PublishOptions::new().keep(3)).unwrap();
        }
        assert_eq!(versions(&store, &url).unwrap().len(), 3);
        let container = model(5, &[("w", 100), ("v", 100)]);
        let job = RemoteJob::plan(&container, &url, &store, 2).unwrap();
        let folder = fake.url("a");
        assert_eq!(jobs_in(&store, &folder).unwrap(), [job.folder()]);
        job.write_from(1, &container).unwrap();
        assert_eq!(job.status().unwrap().done, [1]);
        // The model and its versions: one weights file is of none of them.
        let swept = sweep(&store, &folder, &all()).unwrap();
        assert_eq!((swept.models, swept.named, swept.swept.len()), (4, 3, 1), "{swept:?}");
        job.abort().unwrap();
        assert_eq!(jobs_in(&store, &folder).unwrap(), []);
    }
}

#[test]
fn a_listing_without_an_end_is_an_error() {
    // Where the server goes on, and whether it has more names.
    let cases: [(&str, Next, bool); 4] = [
        ("the same page, called the same", |_| Some(7), false),
        ("the same page, called otherwise each time", Some, false),
        ("the same pages in turn", |asked| Some(asked % 3), false),
        ("back to the start", |place| Some(place.max(2) - 1), true),
    ];
    for (name, next, counts) in cases {
        for dialect in DIALECTS {
            let fake = FakeStore::speaking(dialect);
            let (store, url) = (fake.store(), fake.url("a/m.onnx"));
            let container = model(1, &[("w", 100)]);
            publish_in(&store, &url, &container, PublishOptions::new().keep(1)).unwrap();
            let job = RemoteJob::plan(&container, &url, &store, 1).unwrap();
            let before = fake.keys();
            in_pages(&fake, next, counts);
            let folder = fake.url("a");
            let never_ends = |error: Error| {
                let said = error.to_string();
                assert!(said.contains("listing of the store never ends"), "{name}: {said}");
                assert!(said.contains(&folder.to_string()), "{name}: {said}");
            };
            never_ends(versions(&store, &url).unwrap_err());
            never_ends(sweep(&store, &folder, &all()).unwrap_err());
            never_ends(jobs_in(&store, &folder).unwrap_err());
            never_ends(job.status().unwrap_err());
            let kept = PublishOptions::new().keep(1);
            let mut published = publish_in(&store, &url, &container, kept).unwrap();
            never_ends(published.warnings.remove(0));
            fake.work();
            assert_eq!(fake.keys(), before, "{name}");
        }
    }
}

/// Other tools put objects there whose names have empty parts.
#[test]
fn an_object_that_no_url_names_is_told_and_taken_for_no_other() {
    for dialect in DIALECTS {
        let fake = FakeStore::speaking(dialect);
        let (store, url) = (fake.store(), fake.url("a/m.onnx"));
        let [old, new] = [1, 2].map(|seed| model(seed, &[("w", 100)]));
        let file = publish_in(&store, &url, &old, PublishOptions::new()).unwrap().files.remove(0);
        publish_in(&store, &url, &new, PublishOptions::new().keep(1)).unwrap();
        let objects = fake.objects();
        let added = |keys: &[&str]| {
            let mut with = objects.clone();
            let weights = objects[&format!("a/{}", file.name)].clone();
            let stays = (*keys).iter().map(|key| ((*key).to_owned(), weights.clone()));
            with.extend(stays);
            fake.restore(&with);
        };
        let name = format!("m-{}.onnx.data", "0".repeat(15) + "a");

        added(&["a//m.onnx", &format!("a//{name}")]);
        let before = fake.keys();
        for folder in ["a", ""] {
            let error = sweep(&store, &fake.url(folder), &all()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let said = error.to_string();
            assert!(said.contains("no URL names") && said.contains("\"a//"), "{said}");
        }
        for error in [versions(&store, &url).err(), jobs_in(&store, &fake.url("a")).err()] {
            let said = error.unwrap().to_string();
            assert!(said.contains("no URL names") && said.contains("\"a//"), "{said}");
        }
        assert_eq!(fake.keys(), before);
        let loaded = RemoteModel::open_in(&store, &url).unwrap().load(LoadOptions::new()).unwrap();
        crate::models::assert_same(&loaded, &new);

        // object_store lists these as if they had no slash at their start or end.
        let others = [format!("/a/{name}"), format!("a/{name}/"), format!("/{name}"), "a/".into()];
        added(&others.each_ref().map(String::as_str));
        let all_of_them = fake.keys();
        sweep(&store, &fake.url(""), &all()).unwrap();
        let mut expected = all_of_them;
        expected.remove(&format!("a/{}", file.name));
        assert_eq!(fake.keys(), expected);
    }
}
