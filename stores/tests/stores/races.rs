//! Publishers, readers and sweeps of one model at the same time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

use onnx_container::{Container, ErrorKind, LoadOptions, Result, SaveOptions, WeightFiles};
use onnx_container_store::job::RemoteJob;
use onnx_container_store::{
    IfPresent, PublishOptions, RemoteModel, Store, StoreUrl, SweepOptions, publish_in, sweep,
};

use crate::fake_store::{Dialect, FakeStore, Kind, kind_of, options};
use crate::http::{Answer, Request, forward, serve};
use crate::models::{bytes, contents, model, renamed};
use crate::servers::{self, Place};

const LEN: usize = 1000;
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A model that says of which seed its weights are, with two files, and which number it has.
fn numbered(seed: u8, number: usize) -> Container {
    renamed(model(seed, &[("w", LEN), ("b", LEN + 1)]), &format!("{seed} {number}"))
}

/// The number of a model, all of which has to be of one publication.
fn number_of(container: &Container) -> Result<usize> {
    let said = container.model().producer_name.as_ref().unwrap().to_string();
    let (seed, number) = said.split_once(' ').unwrap();
    let found = contents(container)?;
    for (name, len) in [("w", LEN), ("b", LEN + 1)] {
        assert!(found[name] == bytes(seed.parse().unwrap(), len), "{name} is not of {said}");
    }
    Ok(number.parse().unwrap())
}

fn read(store: &Store, url: &StoreUrl) -> Result<(Option<String>, usize)> {
    let opened = RemoteModel::open_in(store, url)?;
    let number = number_of(&opened.load(LoadOptions::new())?)?;
    Ok((opened.e_tag().map(str::to_owned), number))
}

fn publish(store: &Store, url: &StoreUrl, model: &Container, if_present: IfPresent) -> Result<()> {
    let files = SaveOptions::new().weight_files(WeightFiles::PerTensor);
    let options = PublishOptions::new().save(files).if_present(if_present);
    publish_in(store, url, model, options).map(|_| ())
}

/// Eight publishers raise the number of one model, each `times`, while readers load it at least
/// `loads` times. No number is lost, and no model is mixed.
fn count_up(place: &Place, times: usize, loads: usize) {
    let (store, url) = (&place.store(), &place.url("races/m.onnx"));
    publish(store, url, &numbered(0, 0), IfPresent::Refuse).unwrap();
    let (refused, loaded, ended) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let raise = |seed: u8| loop {
        let (tag, number) = read(store, url).unwrap();
        let version = IfPresent::ReplaceVersion(tag.unwrap());
        match publish(store, url, &numbered(seed, number + 1), version) {
            Ok(()) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Changed, "{error}"),
        }
        refused.fetch_add(1, Ordering::Relaxed);
    };
    let load = || {
        let mut last = 0;
        while !ended.load(Ordering::Relaxed) || loaded.load(Ordering::Relaxed) < loads {
            let (_, number) = read(store, url).unwrap();
            assert!(number >= last, "{number} after {last}");
            last = number;
            loaded.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let publishers: Vec<_> =
            (1..=8).map(|seed| scope.spawn(move || (0..times).for_each(|_| raise(seed)))).collect();
        let readers = [scope.spawn(load), scope.spawn(load)];
        let published: Vec<_> = publishers.into_iter().map(|publisher| publisher.join()).collect();
        ended.store(true, Ordering::Relaxed);
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        assert!(published.iter().chain(&read).all(|result| result.is_ok()));
    });
    assert_eq!(read(store, url).unwrap().1, 8 * times);
    let (refused, loaded) = (refused.into_inner(), loaded.into_inner());
    eprintln!("{}: {refused} publications refused, {loaded} loads", place.name);
}

/// How many loads: many in the section with every server.
fn loads(few: usize) -> usize {
    if servers::all_wanted() { 10_000 } else { few }
}

#[test]
fn no_publication_is_lost_in_memory() {
    count_up(&Place::memory(), 20, loads(2000));
}

#[test]
fn no_publication_is_lost_on_the_server_of_these_tests() {
    count_up(&Place::fake(Dialect::S3), 4, loads(200));
}

#[test]
#[ignore = "needs servers: scripts/test.sh stores"]
fn no_publication_is_lost_on_servers() {
    for place in servers::default_places() {
        // moto takes long.
        let few = if place.name == "moto" { 20 } else { loads(200) };
        count_up(&place, 2, few);
    }
}

/// The whole of a publication is between the last look of a sweep at a file and its end.
#[test]
fn a_file_that_is_about_to_be_deleted_is_not_named() {
    let fake = FakeStore::new();
    let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
    for seed in [0, 1] {
        publish(&fake.store(), &url, &numbered(seed, 0), IfPresent::Replace).unwrap();
    }
    fake.age(2 * WEEK);
    let (store, of, is_first) = (fake.store(), url.clone(), Arc::new(AtomicBool::new(true)));
    let port = serve(move |request| {
        if kind_of(request) == Kind::Delete && is_first.swap(false, Ordering::Relaxed) {
            publish(&store, &of, &numbered(0, 2), IfPresent::Replace).unwrap();
        }
        Answer::Raw(forward(fake.port, request).unwrap())
    });
    let store = Store::open(&url, &options(port)).unwrap();
    let folder = StoreUrl::parse("s3://models").unwrap();
    let swept = sweep(&store, &folder, &SweepOptions::new().delete(true)).unwrap();
    assert_eq!(swept.swept.len(), 2);
    assert_eq!(read(&store, &url).unwrap().1, 2);
}

/// Publishers go back and forth between a few models, so that each names files again that no model
/// named meanwhile, while a week passes again and again and sweeps delete what is older.
#[test]
fn a_sweep_deletes_nothing_that_a_model_names() {
    let fake = FakeStore::new();
    let (store, folder) = (&fake.store(), &StoreUrl::parse("s3://models/races").unwrap());
    // No publication and no sweep takes a week.
    let (time, ended) = (RwLock::new(()), AtomicBool::new(false));
    let swept = AtomicUsize::new(0);
    let url = |publisher: u8| folder.beside(&format!("races/{publisher}.onnx")).unwrap();
    let publish = |publisher: u8| {
        for number in 0..40 {
            let _now = time.read().unwrap();
            let container = numbered(number % 3, number.into());
            publish(store, &url(publisher), &container, IfPresent::Replace).unwrap();
            assert_eq!(read(store, &url(publisher)).unwrap().1, usize::from(number));
        }
    };
    let sweep_all = || {
        while !ended.load(Ordering::Relaxed) {
            let _now = time.read().unwrap();
            let options = SweepOptions::new().delete(true);
            swept.fetch_add(sweep(store, folder, &options).unwrap().swept.len(), Ordering::Relaxed);
        }
    };
    let pass_time = || {
        while !ended.load(Ordering::Relaxed) {
            let _now = time.write().unwrap();
            fake.age(WEEK);
            thread::sleep(Duration::from_millis(1));
        }
    };
    thread::scope(|scope| {
        let publishers: Vec<_> =
            (0..3).map(|publisher| scope.spawn(move || publish(publisher))).collect();
        let others = [scope.spawn(sweep_all), scope.spawn(sweep_all), scope.spawn(pass_time)];
        let published: Vec<_> = publishers.into_iter().map(|publisher| publisher.join()).collect();
        ended.store(true, Ordering::Relaxed);
        let swept: Vec<_> = others.into_iter().map(|other| other.join()).collect();
        assert!(published.iter().chain(&swept).all(|result| result.is_ok()));
    });
    for publisher in 0..3 {
        assert_eq!(read(store, &url(publisher)).unwrap().1, 39);
    }
    let swept = swept.into_inner();
    eprintln!("{swept} files deleted");
    assert!(swept > 0);
}

/// The whole of an abort is between the looks of a commit at its parts and the publication.
#[test]
fn a_job_that_is_aborted_is_not_published() {
    let fake = FakeStore::new();
    let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
    publish(&fake.store(), &url, &numbered(1, 1), IfPresent::Replace).unwrap();
    // Whether a file, or the model of the plan, is looked at when the job is aborted.
    for kind in [Kind::Whole, Kind::Head] {
        let job = RemoteJob::plan(&numbered(2, 2), &url, fake.store(), 1).unwrap();
        job.write_from(0, &numbered(2, 2)).unwrap();
        let (aborted, is_first) = (job.clone(), Arc::new(AtomicBool::new(true)));
        let port = serve(move |request| {
            let answer = forward(fake.port, request).unwrap();
            let is_of_plan = request.path().ends_with("model.onnx");
            let is_looked_at = is_of_plan || request.path().ends_with(".data");
            if is_looked_at && kind_of(request) == kind && is_first.swap(false, Ordering::Relaxed) {
                aborted.clone().abort().unwrap();
            }
            Answer::Raw(answer)
        });
        let store = Store::open(&url, &options(port)).unwrap();
        let committed = RemoteJob::from_json(&job.to_json().unwrap(), &store).unwrap().commit();
        let error = committed.unwrap_err();
        assert!(error.to_string().contains("was aborted"), "{kind:?}: {error}");
        assert_eq!(read(&fake.store(), &url).unwrap().1, 1);
    }
}

/// A request at the end of a commit, told by it and by whether the commit has noted itself before.
type IsStep = fn(&Request, bool) -> bool;

/// A request, and whether an abort is before it or after it.
type Turn = (IsStep, bool);

fn is_note(request: &Request, _: bool) -> bool {
    request.path().contains("/committing-") && kind_of(request) == Kind::Put
}

fn is_last_look(request: &Request, is_noted: bool) -> bool {
    is_noted && request.path().ends_with("job.json") && kind_of(request) == Kind::Head
}

fn is_model(request: &Request, _: bool) -> bool {
    request.path().ends_with("models/m.onnx") && request.method == "PUT"
}

/// The end of a commit of `job` and an abort before or after one of its requests: what came of
/// both.
fn ended_at(
    fake: &FakeStore,
    job: &RemoteJob,
    (is_step, is_before): Turn,
) -> (Result<()>, Result<()>) {
    let (aborted, is_noted) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let (kept, to_abort, port) = (Arc::clone(&aborted), job.clone(), fake.port);
    let abort = move || {
        kept.lock().unwrap().get_or_insert_with(|| to_abort.clone().abort());
    };
    let port = serve(move |request| {
        let is_now = is_step(request, is_noted.load(Ordering::Relaxed));
        is_noted.fetch_or(is_note(request, false), Ordering::Relaxed);
        if is_now && is_before {
            abort();
        }
        let answer = forward(port, request).unwrap();
        if is_now && !is_before {
            abort();
        }
        Answer::Raw(answer)
    });
    let store = Store::open(job.url(), &options(port).trust_conditions(true)).unwrap();
    let other = RemoteJob::from_json(&job.to_json().unwrap(), &store).unwrap();
    let committed = other.commit().map(|_| ());
    let aborted = aborted.lock().unwrap().take().expect("nobody has aborted");
    (committed, aborted)
}

/// What is published after an abort, the abort tells.
#[test]
fn an_abort_beside_the_end_of_a_commit_tells_of_it() {
    const MAY: &str = "is published if that commit still runs";
    const HAS: &str = "had published its model";
    // The request and whether the abort is before it, what the abort says, whether the model is
    // published, and what is left in the folder of the job.
    let cases: [(&str, Turn, Option<&str>, bool, &str); 6] = [
        ("before the note", (is_note, true), None, false, "aborted.json"),
        ("after the note", (is_note, false), Some(MAY), false, "aborted.json"),
        ("before the last look", (is_last_look, true), Some(MAY), false, "aborted.json"),
        ("after the last look", (is_last_look, false), Some(MAY), true, "both"),
        ("before the model", (is_model, true), Some(MAY), true, "both"),
        ("after the model", (is_model, false), Some(HAS), true, "committed.json"),
    ];
    for (name, step, said, is_published, left) in cases {
        let fake = FakeStore::new();
        let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
        publish(&fake.store(), &url, &numbered(1, 1), IfPresent::Replace).unwrap();
        let job = RemoteJob::plan(&numbered(2, 2), &url, fake.store(), 1).unwrap();
        job.write_from(0, &numbered(2, 2)).unwrap();
        let (committed, aborted) = ended_at(&fake, &job, step);
        assert_eq!(committed.is_ok(), is_published, "{name}: {committed:?}");
        assert_eq!(read(&fake.store(), &url).unwrap().1, 1 + usize::from(is_published), "{name}");
        match (said, aborted) {
            (None, Ok(())) => {}
            (Some(said), Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Changed, "{name}: {error}");
                assert!(error.to_string().contains(said), "{name}: {error}");
            }
            (_, aborted) => panic!("{name}: {aborted:?}"),
        }
        if let Err(error) = committed {
            assert!(error.to_string().contains("was aborted"), "{name}: {error}");
        }
        let folder = format!("{}/", job.folder().key());
        let keys = fake.keys();
        let found: Vec<_> = keys.iter().filter_map(|key| key.strip_prefix(&folder)).collect();
        let expected = if left == "both" { "aborted.json committed.json" } else { left };
        assert_eq!(found.join(" "), expected, "{name}");
        // What the commit says again.
        assert_eq!(job.commit().is_ok(), is_published, "{name}");
    }
}

/// What a commit that is killed when it has noted itself leaves: an abort cannot tell, and a commit
/// again ends the job.
#[test]
fn a_commit_that_is_killed_behind_its_note_is_told_by_an_abort() {
    for is_committed_again in [false, true] {
        let fake = FakeStore::new();
        let url = StoreUrl::parse("s3://models/m.onnx").unwrap();
        let job = RemoteJob::plan(&numbered(2, 2), &url, fake.store(), 1).unwrap();
        job.write_from(0, &numbered(2, 2)).unwrap();
        let port = fake.port;
        let port = serve(move |request| match is_model(request, true) {
            true => Answer::Cut,
            false => Answer::Raw(forward(port, request).unwrap()),
        });
        let store = Store::open(&url, &options(port).trust_conditions(true)).unwrap();
        RemoteJob::from_json(&job.to_json().unwrap(), &store).unwrap().commit().unwrap_err();
        if is_committed_again {
            assert!(!job.commit().unwrap().already);
            continue;
        }
        let error = job.clone().abort().unwrap_err();
        assert!(error.to_string().contains("if that commit still runs"), "{error}");
        let error = job.clone().abort().unwrap_err();
        assert!(error.to_string().contains("was aborted"), "{error}");
    }
}
