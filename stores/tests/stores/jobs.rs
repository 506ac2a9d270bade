//! Models that many processes write together: what holds for every store, and jobs that no plan
//! makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onnx_container::check::{CheckOptions, check_bytes};
use onnx_container::job::{Recast, Weights};
use onnx_container::proto::TensorProto;
use onnx_container::{
    Container, DataType, ErrorKind, Initializer, LoadOptions, Result, SaveOptions, Tensor,
    WeightFiles,
};
use onnx_container_store::job::{
    PartReceipt, RemoteCommitted, RemoteJob, RemoteJobOptions, Stores, jobs_in,
};
use onnx_container_store::object_store::memory::InMemory;
use onnx_container_store::object_store::prefix::PrefixStore;
use onnx_container_store::object_store::{ObjectStore, ObjectStoreExt, path::Path};
use onnx_container_store::{
    IfPresent, PublishOptions, Store, StoreUrl, Sweep, SweepOptions, sweep,
};

use crate::behaviour::{Behaviour, Case, wait};
use crate::models::{MIB, assert_same, bytes, model};

/// What holds for every store.
pub const BEHAVIOURS: [(&str, Behaviour); 12] = [
    ("a job of parts", a_job_of_parts),
    ("a rewrite of a model in the store", a_rewrite_in_the_store),
    ("a rewrite of a model in a folder", a_rewrite_of_a_folder),
    ("weights that are made once", weights_that_are_made_once),
    ("tied and shared weights", tied_and_shared_weights),
    ("a part again", a_part_again),
    ("a commit again", a_commit_again),
    ("another publication meanwhile", another_publication_meanwhile),
    ("an abort", an_abort),
    ("the end of a job", the_end_of_a_job),
    ("a sweep beside jobs", a_sweep_beside_jobs),
    ("a sweep of a commit that was killed", a_sweep_of_a_commit_that_was_killed),
];

/// The weights as a producer without a container has them: each is made when it is asked for.
pub fn made(container: &Container) -> impl Weights + use<'_> {
    |name: &str| Ok(container.get(&format!("#{name}")).unwrap().clone())
}

fn plan(case: &Case, container: &Container, options: impl Into<RemoteJobOptions>) -> RemoteJob {
    RemoteJob::plan(container, &case.url, &case.store, options).unwrap()
}

/// The job as another process has it.
fn elsewhere(case: &Case, job: &RemoteJob) -> RemoteJob {
    RemoteJob::from_json(&job.to_json().unwrap(), &case.store).unwrap()
}

fn folder_of(case: &Case) -> StoreUrl {
    case.place.url(case.url.key().rsplit_once('/').unwrap().0)
}

fn jobs(case: &Case) -> Vec<StoreUrl> {
    jobs_in(&case.store, &folder_of(case)).unwrap()
}

const TENSORS: [(&str, usize); 6] =
    [("a", 3000), ("big", 9 * MIB), ("b", 2 * MIB), ("c", 5), ("empty", 0), ("d", 700)];

fn a_job_of_parts(case: &Case) {
    let container = model(1, &TENSORS);
    let digest = container.digest().unwrap();
    // The parts that are asked for, and those that there are.
    for (asked, parts) in [(1, 1), (3, 3), (9, 5)] {
        let options = RemoteJobOptions::from(asked)
            .publish(PublishOptions::from(SaveOptions::new().digests(true)).keep(1));
        let job = plan(case, &container, options);
        assert_eq!(job.parts(), 0..parts);
        assert_eq!(jobs(case), [job.folder()]);
        let opened = RemoteJob::open(&job.folder(), &case.store).unwrap();
        assert_eq!(opened.to_json().unwrap(), job.to_json().unwrap());
        let tensors: Vec<_> = job.parts().flat_map(|part| job.tensors(part)).collect();
        assert_eq!(tensors.len(), 5, "the empty one has no bytes: {tensors:?}");

        let status = job.status().unwrap();
        assert_eq!(
            (status.done.len(), status.missing.len(), status.is_complete),
            (0, parts, false)
        );
        let error = job.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingTensor, "{error}");
        // In any order, by any process, and numbers that have nothing to write.
        let mut receipts: Vec<_> = (0..asked)
            .rev()
            .map(|part| {
                let text = elsewhere(case, &job).write_from(part, &container).unwrap().to_json();
                PartReceipt::from_json(&text.unwrap()).unwrap()
            })
            .collect();
        assert_eq!(
            job.write_from(asked, &container).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        let status = job.status().unwrap();
        assert!(status.is_complete && status.missing.is_empty());
        assert_eq!((status.bytes_written, status.bytes), (job.bytes(), job.bytes()));

        // Carried by an engine, or those in the store.
        let committed = match asked {
            3 => {
                let last = receipts.pop().unwrap();
                let error = job.commit_receipts(receipts.clone()).unwrap_err();
                assert!(error.to_string().contains("part 0 of 3 is not written"), "{error}");
                receipts.push(last);
                job.commit_receipts(receipts).unwrap()
            }
            _ => elsewhere(case, &job).commit().unwrap(),
        };
        assert_eq!(committed.digest, digest);
        assert_eq!(committed.published.files.len(), parts);
        assert!(committed.published.version.is_some());
        assert_eq!(jobs(case), []);
        let loaded = case.load();
        assert_same(&loaded, &container);
        assert_eq!(loaded.digest().unwrap(), digest);
        let opened = case.open();
        let checked = CheckOptions::from(opened.load_options(LoadOptions::new()).unwrap());
        let checked = check_bytes(opened.bytes().clone(), checked.digests(true)).unwrap();
        assert!(checked.is_ok(), "{checked}");
        assert_eq!(checked.compared.unwrap().tensors, 6);
        let again = elsewhere(case, &job).commit().unwrap();
        let at = RemoteJob::commit_at(&job.folder(), &case.store).unwrap();
        for again in [again, at] {
            assert_eq!((committed.already, again.already), (false, true));
            assert_eq!(again.digest, committed.digest);
            let told = |RemoteCommitted { published: it, .. }: &RemoteCommitted| {
                let version = it.version.as_ref().map(ToString::to_string);
                (it.url.to_string(), it.e_tag.clone(), it.model_bytes, it.files.clone(), version)
            };
            assert_eq!(told(&again), told(&committed));
        }
    }
}

fn a_rewrite_in_the_store(case: &Case) {
    let mut container = model(1, &[("small", 100)]);
    let floats: Vec<f32> = (0..100_000_u32).map(|it| it as f32 / 3.0).chain([1e30]).collect();
    container.model_mut().graph.as_mut().unwrap().initializer.push(TensorProto::external(
        "f",
        TensorProto::FLOAT,
        [floats.len() as i64],
        "#f",
    ));
    container.insert("#f", Initializer::from(floats)).unwrap();
    let source = case.url.beside("source.onnx").unwrap();
    onnx_container_store::publish_in(&case.store, &source, &container, SaveOptions::new()).unwrap();
    if case.place.opened.is_some() {
        return; // No URL leads to this store.
    }
    let stores = Stores::from(&case.place.options);
    let rewrite = |recast| {
        RemoteJob::rewrite(&source.to_string(), &case.url, stores.clone(), recast, 2).unwrap()
    };
    let recast = Recast::new(DataType::Float16);
    let job = rewrite(Some(recast.clone()));
    let text = job.to_json().unwrap();
    assert!(!text.contains("skip_signature"), "{text}");
    for part in job.parts() {
        RemoteJob::from_json(&text, stores.clone()).unwrap().write(part).unwrap();
    }
    let committed = job.commit().unwrap();
    assert_eq!(committed.infinite, ["f"]);
    let mut expected = container.clone();
    recast.apply(&mut expected).unwrap();
    assert_eq!(committed.digest, expected.digest().unwrap());
    assert_eq!(case.load().digest().unwrap(), expected.digest().unwrap());

    // A source that is another one now.
    let job = rewrite(None);
    job.write(0).unwrap();
    let other = model(2, &[("small", 100)]);
    onnx_container_store::publish_in(&case.store, &source, &other, SaveOptions::new()).unwrap();
    let error = job.write(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert!(error.to_string().contains("source.onnx"), "{error}");
    job.abort().unwrap();
}

fn a_rewrite_of_a_folder(case: &Case) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.onnx");
    let container = model(1, &TENSORS);
    container.save(&path, WeightFiles::PerTensor).unwrap();
    let source = path.to_str().unwrap();
    let job = RemoteJob::rewrite(source, &case.url, &case.store, None, 4).unwrap();
    for part in job.parts() {
        elsewhere(case, &job).write(part).unwrap();
    }
    assert_eq!(job.commit().unwrap().digest, container.digest().unwrap());
    assert_same(&case.load(), &container);

    // What is in the model, and what the save moves out of it.
    let embedded = folder.path().join("embedded.onnx");
    container.save(&embedded, WeightFiles::Embedded).unwrap();
    let moving = PublishOptions::from(SaveOptions::new().externalize(true));
    let options = RemoteJobOptions::from(3).publish(moving);
    let source_of = embedded.to_str().unwrap();
    let job = RemoteJob::rewrite(source_of, &case.url, &case.store, None, options).unwrap();
    assert_eq!(job.parts(), 0..3);
    job.parts().for_each(|part| drop(elsewhere(case, &job).write(part).unwrap()));
    job.commit().unwrap();
    assert_same(&case.load(), &container);

    let job = RemoteJob::rewrite(source, &case.url, &case.store, None, 4).unwrap();
    model(2, &TENSORS).save(&path, WeightFiles::PerTensor).unwrap();
    let error = job.write(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    job.abort().unwrap();
}

/// A producer that gives each weight once, and another one each time.
fn weights_that_are_made_once(case: &Case) {
    let declared = |name: &str, len: usize| (name.to_owned(), len);
    let lengths = [declared("a", 17 * MIB + 1), declared("b", MIB), declared("c", 10)];
    let names: Vec<_> = lengths.iter().map(|(name, len)| (name.as_str(), *len)).collect();
    let mut container = model(0, &names);
    for (name, len) in &lengths {
        let slot = Initializer::declared(DataType::Uint8, [*len as i64]).unwrap();
        container.insert(&format!("#{name}"), slot).unwrap();
    }
    let job = plan(case, &container, 2);
    let asked = AtomicUsize::new(0);
    let make = |name: &str| {
        let len = names.iter().find(|(known, _)| *known == name).unwrap().1;
        let seed = asked.fetch_add(1, Ordering::Relaxed) as u8;
        Ok::<Initializer, onnx_container::Error>(match name {
            "b" => Initializer::lazy(DataType::Uint8, [len as i64], move || Ok(bytes(seed, len)))?,
            _ => bytes(seed, len).into(),
        })
    };
    let first = job.write_from(0, &make).unwrap();
    assert_eq!(job.write_from(0, &make).unwrap(), first, "it is written");
    job.write_from(1, &make).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    let committed = job.commit().unwrap();
    assert_eq!(case.load().digest().unwrap(), committed.digest);

    // Of two runs at once the receipt of the first counts, for both.
    let job = plan(case, &container, 2);
    let inner = elsewhere(case, &job);
    let first = std::sync::Mutex::new(None);
    let late = |name: &str| {
        let mut first = first.lock().unwrap();
        if first.is_none() {
            *first = Some(inner.write_from(0, &make).unwrap());
        }
        make(name)
    };
    let second = job.write_from(0, &late).unwrap();
    assert_eq!(Some(second), first.into_inner().unwrap());
    job.write_from(1, &make).unwrap();
    assert_eq!(job.commit().unwrap().digest, case.load().digest().unwrap());

    // Weights of another type or shape, and a producer that fails.
    let job = plan(case, &container, 2);
    let wrong: [(&(dyn Fn() -> Result<Initializer> + Sync), _); 3] = [
        (&|| Ok(vec![1_u8].into()), ErrorKind::Shape),
        (&|| Ok(vec![1_i8; 17 * MIB + 1].into()), ErrorKind::DataType),
        (&|| Err(onnx_container::Error::other("no")), ErrorKind::Other),
    ];
    for (make, kind) in wrong {
        let error = job.write_from(0, &|_: &str| make()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains('a'), "{error}");
    }
    let mut at_hand = model(1, &names);
    at_hand.insert("#b", vec![1_u8; 3]).unwrap();
    let error = job.write_from(1, &at_hand).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
    job.abort().unwrap();
}

fn tied_and_shared_weights(case: &Case) {
    let mut container = model(1, &[("w", 4000), ("v", 2000)]);
    let whole = container.get("#w").unwrap().as_buffer().unwrap();
    let graph = container.model_mut().graph.as_mut().unwrap();
    graph.initializer.push(TensorProto::external("tied", TensorProto::UINT8, [4000], "#w"));
    graph.initializer.push(TensorProto::external("part", TensorProto::UINT8, [500], "#part"));
    let part = whole.slice(1024..1524).unwrap();
    container
        .insert("#part", Initializer::from(Tensor::new(DataType::Uint8, [500], part).unwrap()))
        .unwrap();
    let job = plan(case, &container, 2);
    let digest = container.digest().unwrap();
    for part in job.parts() {
        job.write_from(part, &container).unwrap();
    }
    // The bytes of 500 are in those of 4000, and are hashed with them.
    assert!(job.bytes() < 6500, "{}", job.bytes());
    assert_eq!(job.commit().unwrap().digest, digest);
    assert_eq!(case.load().digest().unwrap(), digest);
    assert_same(&case.load(), &container);
}

fn a_part_again(case: &Case) {
    let container = model(1, &TENSORS);
    let job = plan(case, &container, 2);
    let first = job.write_from(0, &container).unwrap();
    let names = case.names();
    // A receipt that is lost: the file is there, and is not sent again.
    let receipt = format!("{}/receipts/part-00000.json", job.folder().key());
    wait(case.store.objects().delete(&Path::parse(&receipt).unwrap())).unwrap();
    assert_eq!(job.status().unwrap().missing, [0, 1]);
    assert_eq!(elsewhere(case, &job).write_from(0, &container).unwrap(), first);
    assert_eq!(case.names(), names);
    // What is no receipt stands for nothing.
    for text in ["", "{", "{}", "\u{0}"] {
        let path = Path::parse(&receipt).unwrap();
        wait(case.store.objects().put(&path, text.into())).unwrap();
        let error = job.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingTensor, "{error}");
        assert_eq!(job.write_from(0, &container).unwrap(), first);
    }
    // A file that is gone is sent again.
    let file = case.url.beside(&first.file.as_ref().unwrap().name).unwrap();
    wait(case.store.objects().delete(&Path::parse(file.key()).unwrap())).unwrap();
    assert_eq!(
        job.commit_receipts([first.clone(), first.clone()]).unwrap_err().kind(),
        ErrorKind::MissingTensor
    );
    assert_eq!(job.write_from(0, &container).unwrap(), first);
    assert_eq!(case.names(), names);
    // Two that write at once leave one file.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| elsewhere(case, &job).write_from(1, &container).unwrap());
        }
    });
    assert_eq!(case.names().len(), names.len() + 1);
    assert_eq!(job.commit().unwrap().digest, container.digest().unwrap());
}

fn a_commit_again(case: &Case) {
    let container = model(1, &TENSORS);
    let job = plan(case, &container, 2);
    job.parts().for_each(|part| drop(job.write_from(part, &container).unwrap()));
    // Two at once, and one later: each says what is there.
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..2).map(|_| scope.spawn(|| elsewhere(case, &job).commit())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for committed in results.into_iter().chain([elsewhere(case, &job).commit()]) {
        assert_eq!(committed.unwrap().digest, container.digest().unwrap());
    }
    assert_eq!(jobs(case), []);
    assert_same(&case.load(), &container);
    // A writer that comes late leaves nothing.
    let names = case.names();
    let error = job.write_from(0, &container).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
    assert_eq!((case.names(), jobs(case)), (names, Vec::new()));
}

fn another_publication_meanwhile(case: &Case) {
    let container = model(1, &TENSORS);
    for is_there in [false, true] {
        let other = model(if is_there { 3 } else { 2 }, &[("w", 100)]);
        let job = plan(case, &container, 2);
        job.parts().for_each(|part| drop(job.write_from(part, &container).unwrap()));
        case.publish(&other, PublishOptions::new());
        let error = job.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{is_there} {error}");
        assert!(error.to_string().ends_with("Abort the job and plan it again"), "{error}");
        assert_same(&case.load(), &other);
        job.abort().unwrap();
    }
    let refuse = PublishOptions::new().if_present(IfPresent::Refuse);
    let refused = RemoteJob::plan(
        &container,
        &case.url,
        &case.store,
        RemoteJobOptions::from(2).publish(refuse),
    );
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let overwrite = PublishOptions::new().if_present(IfPresent::Overwrite);
    let job = plan(case, &container, RemoteJobOptions::from(2).publish(overwrite));
    job.parts().for_each(|part| drop(job.write_from(part, &container).unwrap()));
    case.publish(&model(4, &[("w", 100)]), PublishOptions::new());
    job.commit().unwrap();
    assert_same(&case.load(), &container);
    assert_eq!(jobs(case), []);
}

fn an_abort(case: &Case) {
    let container = model(1, &TENSORS);
    let job = plan(case, &container, 2);
    job.write_from(0, &container).unwrap();
    let other = elsewhere(case, &job);
    job.abort().unwrap();
    assert_eq!(jobs(case), []);
    let error = other.write_from(1, &container).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
    let told = || {
        [
            other.commit().unwrap_err(),
            other.status().unwrap_err(),
            RemoteJob::open(&other.folder(), &case.store).unwrap_err(),
            RemoteJob::commit_at(&other.folder(), &case.store).unwrap_err(),
            other.clone().abort().unwrap_err(),
        ]
    };
    for (error, expected) in told().into_iter().map(|error| (error, "it was aborted")) {
        assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    // A sweep removes what says so.
    let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
    sweep(&case.store, &folder_of(case), &all).unwrap();
    for error in told() {
        assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
        assert!(error.to_string().contains("committed or aborted"), "{error}");
    }
}

fn the_end_of_a_job(case: &Case) {
    let container = model(1, &TENSORS);
    let job = plan(case, &container, 2);
    job.parts().for_each(|part| drop(job.write_from(part, &container).unwrap()));
    let digest = job.commit().unwrap().digest;
    let ended = |is_replaced: bool| {
        let status = elsewhere(case, &job).status().unwrap();
        let told = (status.is_committed, status.is_ended, status.is_replaced);
        assert_eq!(told, (true, true, is_replaced), "{status:?}");
        assert_eq!((status.missing, status.bytes_written), (vec![], status.bytes));
        assert_eq!(job.missing_parts().unwrap(), [0; 0]);
        let at = RemoteJob::committed_at(&job.folder(), &case.store).unwrap();
        for committed in [at, job.committed().unwrap()].map(Option::unwrap) {
            assert_eq!((committed.digest, committed.replaced), (digest.clone(), is_replaced));
        }
    };
    ended(false);
    // Another model in its place does not change what the job has done.
    case.publish(&model(2, &[("w", 100)]), PublishOptions::new());
    ended(true);
    assert_eq!(elsewhere(case, &job).commit().unwrap().digest, digest);
    for error in [
        job.write_from(0, &container).unwrap_err(),
        RemoteJob::open(&job.folder(), &case.store).unwrap_err(),
        job.clone().abort().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
        assert!(error.to_string().ends_with("it was committed"), "{error}");
    }
    assert!(job.commit().unwrap().already && jobs(case).is_empty());
    let key = format!("{}/committed.json", job.folder().key());
    let path = Path::parse(key).unwrap();
    let text = wait(async { case.store.objects().get(&path).await?.bytes().await }).unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    // What it says, and the error of a commit.
    for (changed, kind) in [
        (text.replace("\"version\":1", "\"version\":2"), ErrorKind::Unsupported),
        (text.replace("job end", "job"), ErrorKind::Decode),
        (text.replace("\"committed\"", "\"other\""), ErrorKind::Decode),
        ("{}".to_owned(), ErrorKind::Decode),
    ] {
        wait(case.store.objects().put(&path, changed.clone().into())).unwrap();
        let error = job.commit().unwrap_err();
        assert_eq!(error.kind(), kind, "{changed}: {error}");
    }
    wait(case.store.objects().delete(&path)).unwrap();
    let error = job.commit().unwrap_err();
    assert!(error.to_string().contains("committed or aborted"), "{error}");
}

/// The folder and the model of each open job, and how many parts are written.
fn open_jobs(swept: &Sweep) -> Vec<(StoreUrl, StoreUrl, usize)> {
    let told = swept.jobs.iter().map(|job| (job.url.clone(), job.model.clone(), job.written));
    told.collect()
}

fn a_sweep_beside_jobs(case: &Case) {
    let container = model(1, &TENSORS);
    let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
    let run = || sweep(&case.store, &folder_of(case), &all).unwrap();
    let job = plan(case, &container, 2);
    job.write_from(0, &container).unwrap();
    let error = sweep(&case.store, &job.folder(), &all).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    // What a receipt names stays, and so do the objects of the job, which is named.
    let swept = run();
    assert_eq!((swept.models, swept.swept.len()), (0, 0), "{swept:?}");
    assert_eq!(open_jobs(&swept), [(job.folder(), case.url.clone(), 1)]);
    let other = plan(case, &container, 3);
    let mut both = [(job.folder(), case.url.clone(), 1), (other.folder(), case.url.clone(), 0)];
    both.sort_by(|a, b| a.0.key().cmp(b.0.key()));
    assert_eq!(open_jobs(&run()), both);
    other.abort().unwrap();
    job.write_from(1, &container).unwrap();
    job.commit().unwrap();
    // What says how two jobs have ended is all that goes.
    let swept = run();
    assert_eq!((swept.swept.len(), open_jobs(&swept)), (2, Vec::new()), "{swept:?}");
    assert_eq!(run().swept.len(), 0);
    assert_same(&case.load(), &container);

    let job = plan(case, &model(2, &TENSORS), 2);
    job.write_from(0, &model(2, &TENSORS)).unwrap();
    let late = format!("{}/receipts/part-00001.json", job.folder().key());
    job.abort().unwrap();
    wait(case.store.objects().put(&Path::parse(late).unwrap(), "{}".into())).unwrap();
    // The file of the job that was aborted, what says so, and the receipt of a writer that came
    // late.
    assert_eq!(run().swept.len(), 3);
    assert_eq!((jobs(case), run().swept.len()), (Vec::new(), 0));
    assert_same(&case.load(), &container);
}

/// A commit that was killed when its model was published leaves the description: the job is no open
/// one, and goes with sweeps.
fn a_sweep_of_a_commit_that_was_killed(case: &Case) {
    let container = model(1, &TENSORS);
    let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
    let job = plan(case, &container, 2);
    job.parts().for_each(|part| drop(job.write_from(part, &container).unwrap()));
    let objects = case.store.objects();
    let path = |name: &str| Path::parse(format!("{}/{name}", job.folder().key())).unwrap();
    let names = ["job.json", "model.onnx", "receipts/part-00000.json"];
    let kept = names.map(|name| {
        let bytes = wait(async { objects.get(&path(name)).await?.bytes().await }).unwrap();
        (name, bytes)
    });
    assert!(!job.status().unwrap().is_committed);
    job.commit().unwrap();
    for (name, bytes) in kept {
        wait(objects.put(&path(name), bytes.into())).unwrap();
    }
    assert_eq!(jobs(case), []);
    // Also where more of it is gone.
    let model = wait(async { objects.get(&path("model.onnx")).await?.bytes().await }).unwrap();
    wait(objects.delete(&path("model.onnx"))).unwrap();
    let status = job.status().unwrap();
    assert!(status.is_committed && status.is_complete && status.missing.is_empty(), "{status:?}");
    assert!(!status.is_ended && !status.is_replaced, "{status:?}");
    let error = job.write_from(1, &container).unwrap_err();
    assert!(error.reason().contains("it was committed"), "{error}");
    wait(objects.put(&path("model.onnx"), model.into())).unwrap();
    // What says that it was committed goes last.
    let gone = |swept: &Sweep| {
        let names = swept.swept.iter().map(|object| object.url.name().to_owned());
        names.collect::<Vec<_>>()
    };
    let swept = sweep(&case.store, &folder_of(case), &all).unwrap();
    assert_eq!(open_jobs(&swept), [], "{swept:?}");
    assert_eq!(gone(&swept), ["job.json", "model.onnx", "part-00000.json"]);
    assert!(job.commit().unwrap().already);
    let swept = sweep(&case.store, &folder_of(case), &all).unwrap();
    assert_eq!(gone(&swept), ["committed.json"]);
    assert_same(&case.load(), &container);
}

fn in_memory(key: &str) -> Case {
    let place = crate::servers::Place::memory();
    let url = place.url(key);
    Case { store: place.store(), url, place }
}

#[test]
fn what_a_job_cannot_do_is_refused() {
    let case = in_memory("m.onnx");
    let container = model(1, &[("w", 100)]);
    let publish = |options: PublishOptions| RemoteJobOptions::from(2).publish(options);
    let cases = [
        (RemoteJobOptions::from(0), "1 to 100000 parts"),
        (RemoteJobOptions::from(100_001), "1 to 100000 parts"),
        (publish(WeightFiles::PerTensor.into_options()), "one weights file for each part"),
        (publish(SaveOptions::new().checksums(true).into()), "checksums"),
        (publish(PublishOptions::new().dry_run(true)), "abort it"),
        (RemoteJobOptions::from(1).externalize(Some(Default::default())), "externalize"),
    ];
    for (options, said) in cases {
        let error = RemoteJob::plan(&container, &case.url, &case.store, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    for url in ["https://host/m.onnx", "hf://a/b/m.onnx", "s3://memory/m.bin", "s3://memory"] {
        let url = StoreUrl::parse(url).unwrap();
        RemoteJob::plan(&container, &url, &case.store, 1).unwrap_err();
    }
    assert_eq!(case.store.root(), "s3://memory");
    let job = plan(&case, &container, 1);
    assert_eq!(job.write(0).unwrap_err().kind(), ErrorKind::InvalidArgument, "no rewrite");
}

trait IntoOptions {
    fn into_options(self) -> PublishOptions;
}

impl IntoOptions for WeightFiles {
    fn into_options(self) -> PublishOptions {
        PublishOptions::new().save(self)
    }
}

/// Descriptions that no plan makes.
#[test]
fn a_description_that_no_plan_makes_is_refused() {
    let case = in_memory("m.onnx");
    let job = plan(&case, &model(1, &[("w", 100), ("v", 5)]), 1);
    let text = job.to_json().unwrap();
    let changed = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} {text}");
        text.replacen(from, to, 1)
    };
    let cases = [
        (String::new(), ErrorKind::Decode),
        ("{}".to_owned(), ErrorKind::Decode),
        (changed("store job", "job"), ErrorKind::Decode),
        (changed("\"version\":1", "\"version\":2"), ErrorKind::Unsupported),
        (changed("\"keep\"", "\"kept\""), ErrorKind::Decode),
        (changed("m.onnx.data", "../m.data"), ErrorKind::InvalidModel),
        (changed("m.onnx.data", "a/m.data"), ErrorKind::InvalidModel),
        (changed("\"key\":\"m.onnx\"", "\"key\":\"m.bin\""), ErrorKind::InvalidModel),
        (changed("\"dims\":[100]", "\"dims\":[-1]"), ErrorKind::Shape),
        (changed("\"dims\":[100]", "\"dims\":[9000000]"), ErrorKind::InvalidModel),
        (changed("\"offset\":0", "\"offset\":1000"), ErrorKind::InvalidModel),
        (changed("\"bytes\":", "\"bytes\":1844674407370955"), ErrorKind::TooLarge),
        (changed("\"asked_parts\":1", "\"asked_parts\":100001"), ErrorKind::InvalidModel),
        (changed(job.id(), "../../../x"), ErrorKind::InvalidModel),
    ];
    for (text, kind) in cases {
        let error = RemoteJob::from_json(&text, &case.store).unwrap_err();
        assert_eq!(error.kind(), kind, "{text}: {error}");
    }
    // A description in the folder of another job, and a model that is not that of the plan.
    let put = |name: &str, bytes: Vec<u8>| {
        let path = Path::parse(format!("{}/{name}", job.folder().key())).unwrap();
        wait(case.store.objects().put(&path, bytes.into())).unwrap();
    };
    put("job.json", changed(job.id(), "aaaaaa").into());
    let error = RemoteJob::open(&job.folder(), &case.store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    put("job.json", text.clone().into());
    job.write_from(0, &model(1, &[("w", 100), ("v", 5)])).unwrap();
    let path = Path::parse(format!("{}/model.onnx", job.folder().key())).unwrap();
    wait(case.store.objects().delete(&path)).unwrap();
    let errors = [
        job.status().unwrap_err(),
        job.write_from(0, &model(1, &[])).unwrap_err(),
        job.commit().unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("the plan of this job did not end"), "{error}");
    }
    put("model.onnx", b"other".to_vec());
    let error = job.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

#[test]
fn parts_that_no_object_can_be_are_refused() {
    let case = in_memory("m.onnx");
    let mut container = model(1, &[("w", 100)]);
    let huge = Initializer::declared(DataType::Uint8, [6 << 40]).unwrap();
    container.model_mut().graph.as_mut().unwrap().initializer[0].dims = vec![6 << 40];
    container.insert("#w", huge).unwrap();
    let error = RemoteJob::plan(&container, &case.url, &case.store, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(case.place.name, "memory");
}

/// A store whose root is a folder of the bucket has other keys.
#[test]
fn a_job_is_opened_from_a_store_with_another_root() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let bucket = Store::new(memory.clone(), "s3://memory");
    let folder = Store::new(Arc::new(PrefixStore::new(memory, "a")), "s3://memory/a");
    let container = model(1, &[("w", 100)]);
    let roots =
        [(&bucket, "a/m.onnx", &folder, "m.onnx"), (&folder, "m.onnx", &bucket, "a/m.onnx")];
    for (planned, key, opened, other) in roots {
        let url = StoreUrl::of(planned.root(), key).unwrap();
        let job = RemoteJob::plan(&container, &url, planned, 1).unwrap();
        let there = StoreUrl::of(opened.root(), other).unwrap();
        let there = there.beside(job.folder().name()).unwrap();
        let found = RemoteJob::open(&there, opened).unwrap();
        found.write_from(0, &container).unwrap();
        found.commit().unwrap();
        assert_same(&fetched(planned, &url), &container);
    }
}

/// Receipts that name what is not there.
#[test]
fn a_receipt_is_held_to_the_store() {
    let case = in_memory("a/m.onnx");
    let container = model(1, &[("w", 100)]);
    let job = plan(&case, &container, 1);
    let receipt = job.write_from(0, &container).unwrap();
    let text = receipt.to_json().unwrap();
    let name = receipt.file.as_ref().unwrap().name.clone();
    let cases = [
        (text.replace(&name, "../b.data"), ErrorKind::UnsafePath),
        (text.replace(&name, "none.data"), ErrorKind::MissingFile),
        (text.replace("\"part\":0", "\"part\":7"), ErrorKind::InvalidArgument),
        (text.replace(job.id(), "aaaaaa"), ErrorKind::InvalidArgument),
        (text.replace("\"bytes\":100", "\"bytes\":99"), ErrorKind::InvalidArgument),
        (text.replace("\"offset\":0", "\"offset\":1"), ErrorKind::MissingTensor),
    ];
    for (text, kind) in cases {
        let receipt = PartReceipt::from_json(&text).unwrap();
        let error = job.commit_receipts([receipt]).unwrap_err();
        assert_eq!(error.kind(), kind, "{text}: {error}");
    }
    // Another length than that of the receipt.
    let path = Path::parse(case.url.beside(&name).unwrap().key()).unwrap();
    wait(case.store.objects().put(&path, "short".into())).unwrap();
    let error = job.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

/// Eight writers, each part by two of them, beside readers and a sweep.
#[test]
fn writers_beside_readers_and_a_sweep() {
    let case = in_memory("m.onnx");
    let tensors: Vec<_> = (0..24).map(|it| (format!("t{it}"), 10_000 + it)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, len)| (name.as_str(), *len)).collect();
    let (old, new) = (model(1, &tensors), model(2, &tensors));
    case.publish(&old, PublishOptions::new());
    let job = plan(&case, &new, 12);
    let all = SweepOptions::new().older_than(Duration::from_secs(3600)).delete(true);
    let (left, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let next = left.fetch_add(1, Ordering::Relaxed);
                    if next >= 24 {
                        done.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    elsewhere(&case, &job).write_from(next % 12, &made(&new)).unwrap();
                }
            });
        }
        scope.spawn(|| {
            while done.load(Ordering::Relaxed) < 8 {
                assert_same(&fetched(&case.store, &case.url), &old);
                sweep(&case.store, &case.place.url(""), &all).unwrap();
            }
        });
    });
    assert_eq!(job.commit().unwrap().digest, new.digest().unwrap());
    assert_same(&fetched(&case.store, &case.url), &new);
}

fn fetched(store: &Store, url: &StoreUrl) -> Container {
    let model = onnx_container_store::RemoteModel::open_in(store, url).unwrap();
    model.fetch(LoadOptions::new()).unwrap()
}
