//! Jobs: many writers, one model, in place by one commit.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::thread;

use onnx_container::edit::ExternalizeOptions;
use onnx_container::external_data::PathPolicy;
use onnx_container::job::{
    Job, JobOptions, Recast, Receipt, SourceOptions, TensorSlice, abort_job, commit_job,
    committed_job, is_committed, jobs_in, jobs_of, remove_ended_jobs,
};
use onnx_container::load::Limit;
use onnx_container::proto::{GraphProto, Message, ModelProto, StringStringEntryProto, TensorProto};
use onnx_container::{
    Alignment, Container, DataType, ErrorKind, Initializer, Limits, LoadOptions, Result,
    SaveOptions, WeightFiles,
};

use crate::support::{self, container_of, external_everywhere};

/// The layouts that a job can have.
fn layouts() -> Vec<(&'static str, SaveOptions)> {
    let layouts = all_layouts().into_iter();
    layouts.map(|(name, options)| (name, options.sync(false))).collect()
}

fn all_layouts() -> Vec<(&'static str, SaveOptions)> {
    let mut layouts = vec![
        ("packed", SaveOptions::from(true)),
        ("page by page", SaveOptions::from(true).alignment(Alignment::PAGE)),
        ("per tensor", SaveOptions::from(WeightFiles::PerTensor)),
        ("shards", SaveOptions::from(WeightFiles::Sharded { max_bytes: 1500 })),
        ("named", SaveOptions::from(true).data_name("weights.bin")),
        ("with digests", SaveOptions::from(true).digests(true)),
        ("inline tensors too", SaveOptions::from(true).externalize(true)),
        ("deduplicated", SaveOptions::from(true).dedup(true)),
    ];
    #[cfg(feature = "safetensors")]
    layouts.push(("safetensors", SaveOptions::from(WeightFiles::Safetensors)));
    layouts
}

/// The weights of `container` by name, declared only.
fn declared(container: &Container) -> Container {
    let mut declared = container.clone();
    let weights: Vec<_> = container
        .iter()
        .map(|(handle, it)| (handle.clone(), Initializer::declared(it.dtype(), it.dims()).unwrap()))
        .collect();
    for (handle, weight) in weights {
        declared.insert(handle.as_str(), weight).unwrap();
    }
    declared
}

fn job_file(container: &Container, folder: &Path, options: impl Into<JobOptions>) -> Job {
    Job::plan(container, folder.join("m.onnx"), options).unwrap()
}

/// The files of a folder that readers of models see.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = support::contents(folder);
    files.retain(|name, _| !name.starts_with('.'));
    files
}

/// Whether no job is left in the folder.
fn is_clean(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    let left: Vec<_> = left.iter().filter(|it| it.to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty() && jobs_in(folder).unwrap().is_empty(), "{left:?}");
}

#[test]
fn the_files_are_those_of_a_save() {
    for (container, what) in [(container_of(7), "seven"), (external_everywhere(), "everywhere")] {
        for (layout, options) in layouts() {
            let saved = tempfile::tempdir().unwrap();
            container.save(saved.path().join("m.onnx"), options.clone()).unwrap();
            for parts in [1, 3, 100] {
                let folder = tempfile::tempdir().unwrap();
                let plan = JobOptions::from(parts).save(options.clone());
                // What a layout needs to know of the elements, declared weights do not have.
                let planned = match layout {
                    "inline tensors too" | "deduplicated" => container.clone(),
                    _ => declared(&container),
                };
                let mut weights = container.clone();
                if layout == "inline tensors too" {
                    let all = onnx_container::edit::ExternalizeOptions::new().min_bytes(0);
                    weights.externalize(all).unwrap();
                }
                let job = job_file(&planned, folder.path(), plan);
                assert!(
                    job.parts().len() <= parts && job.parts().len() <= job.tensors().len().max(1)
                );
                let job = Job::from_json(&job.to_json().unwrap()).unwrap();
                // From the last part to the first, and one twice.
                for part in job.parts().rev().chain([0]) {
                    job.write_from(part, &weights).unwrap();
                }
                assert!(contents(folder.path()).is_empty(), "nothing is visible before the commit");
                let committed = job.commit().unwrap();
                let what = format!("{what}, {layout}, {parts} parts");
                assert!(contents(folder.path()) == contents(saved.path()), "{what}");
                assert_eq!(committed.digest, Some(container.digest().unwrap()), "{what}");
                is_clean(folder.path());
            }
        }
    }
}

/// A model whose only weight is a matrix.
fn matrix(rows: i64, columns: i64) -> Container {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(TensorProto::external("w", TensorProto::FLOAT, [rows, columns], "#w"));
    graph.initializer.push(TensorProto::external("b", TensorProto::FLOAT, [columns], "#b"));
    let mut container = Container::new(ModelProto::new(graph));
    let elements = |count: i64| (0..count).map(|i| i as f32).collect::<Vec<_>>();
    let w = ndarray::Array2::from_shape_vec(
        (rows as usize, columns as usize),
        elements(rows * columns),
    );
    container.insert("#w", w.unwrap()).unwrap();
    container.insert("#b", elements(columns)).unwrap();
    container
}

/// The bytes of a slice of the matrix.
fn slice_of(columns: u64, slice: &TensorSlice) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in slice.offsets[0]..slice.offsets[0] + slice.shape[0] {
        for column in slice.offsets[1]..slice.offsets[1] + slice.shape[1] {
            bytes.extend(((row * columns + column) as f32).to_le_bytes());
        }
    }
    bytes
}

#[test]
fn ranks_write_slices_on_any_axis() {
    let container = matrix(6, 10);
    let saved = tempfile::tempdir().unwrap();
    container.save(saved.path().join("m.onnx"), true).unwrap();
    type Slices = Vec<([u64; 2], [u64; 2])>;
    let ways: [(&str, Slices); 4] = [
        ("rows", vec![([0, 0], [4, 10]), ([4, 0], [2, 10])]),
        ("columns", vec![([0, 0], [6, 3]), ([0, 3], [6, 7])]),
        ("both", vec![([0, 0], [3, 5]), ([0, 5], [3, 5]), ([3, 0], [3, 5]), ([3, 5], [3, 5])]),
        ("one has nothing", vec![([0, 0], [6, 10]), ([6, 0], [0, 10])]),
    ];
    for (way, slices) in ways {
        for digests in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let save = SaveOptions::from(true).digests(digests);
            let options = JobOptions::from(save).slices(true);
            let job = job_file(&declared(&container), folder.path(), options);
            for (rank, (offsets, shape)) in slices.iter().enumerate() {
                let writer = job.slice_writer(format!("rank-{rank}")).unwrap();
                let slice = TensorSlice::new(*offsets, *shape);
                writer.write("w", &slice, &slice_of(10, &slice)).unwrap();
                if rank == 0 {
                    let b = container.get("#b").unwrap().to_buffer().unwrap();
                    writer.write("b", &TensorSlice::new([0], [10]), &b).unwrap();
                }
                let receipt = writer.finish().unwrap();
                assert_eq!(Receipt::from_json(&receipt.to_json().unwrap()).unwrap(), receipt);
            }
            let committed = job.commit().unwrap();
            if digests {
                assert_eq!(committed.digest, Some(container.digest().unwrap()), "{way}");
                let verify = LoadOptions::new().verify_digests(true);
                Container::load(folder.path().join("m.onnx"), verify).unwrap();
            } else {
                assert!(contents(folder.path()) == contents(saved.path()), "{way}");
            }
        }
    }
}

#[test]
fn what_is_not_written_once_is_not_committed() {
    type Write = fn(&Job) -> Result<()>;
    const ALL: [u64; 2] = [6, 10];
    fn put(job: &Job, rank: &str, name: &str, slice: &TensorSlice, bytes: &[u8]) -> Result<()> {
        let writer = job.slice_writer(rank)?;
        writer.write(name, slice, bytes)?;
        writer.finish().map(drop)
    }
    fn w(job: &Job, rank: &str, offsets: [u64; 2], shape: [u64; 2]) -> Result<()> {
        let slice = TensorSlice::new(offsets, shape);
        put(job, rank, "w", &slice, &slice_of(10, &slice))
    }
    fn b(job: &Job, rank: &str, from: u64, count: u64) -> Result<()> {
        put(job, rank, "b", &TensorSlice::new([from], [count]), &vec![0; count as usize * 4])
    }
    let parts = JobOptions::from(2);
    let slices = JobOptions::new().slices(true);
    let cases: [(&str, &JobOptions, Write, ErrorKind, &[&str]); 7] = [
        ("nothing", &parts, |_| Ok(()), ErrorKind::MissingTensor, &["`w`", "`b`"]),
        ("nothing", &slices, |_| Ok(()), ErrorKind::MissingTensor, &["nobody has written it"]),
        (
            "one part",
            &parts,
            |job| job.write_from(0, &matrix(6, 10)).map(drop),
            ErrorKind::MissingTensor,
            &["part 1 of 2 is not written"],
        ),
        (
            "a part of a tensor",
            &slices,
            |job| w(job, "r", [0, 0], [5, 10]).and_then(|()| b(job, "s", 0, 10)),
            ErrorKind::MissingTensor,
            &["`w`", "50 of its 60 elements"],
        ),
        (
            "twice",
            &slices,
            |job| {
                w(job, "r", [0, 0], ALL)?;
                b(job, "s", 0, 10)?;
                b(job, "t", 3, 1)
            },
            ErrorKind::InvalidArgument,
            &["`b`", "written twice"],
        ),
        (
            "all and a part",
            &slices,
            |job| {
                w(job, "r", [0, 0], ALL)?;
                b(job, "s", 0, 10)?;
                w(job, "t", [5, 9], [1, 1])
            },
            ErrorKind::InvalidArgument,
            &["`w`", "written twice"],
        ),
        (
            "not finished",
            &slices,
            |job| {
                b(job, "s", 0, 10)?;
                let slice = TensorSlice::new([0, 0], ALL);
                job.slice_writer("r")?.write("w", &slice, &slice_of(10, &slice))
            },
            ErrorKind::MissingTensor,
            &["`w`"],
        ),
    ];
    for (case, options, write, kind, says) in cases {
        let folder = tempfile::tempdir().unwrap();
        container_of(2).save(folder.path().join("m.onnx"), true).unwrap();
        let old = contents(folder.path());
        let job = job_file(&declared(&matrix(6, 10)), folder.path(), options.clone());
        write(&job).unwrap();
        let error = job.commit().unwrap_err();
        assert_eq!(error.kind(), kind, "{case}: {error}");
        assert!(says.iter().all(|text| error.to_string().contains(text)), "{case}: {error}");
        assert!(contents(folder.path()) == old, "{case}");
    }
}

#[test]
fn weights_that_do_not_fit_are_refused_before_a_byte_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&declared(&matrix(6, 10)), folder.path(), 1);
    let before = fs::read(job.staged_file(0).unwrap()).unwrap();
    let of =
        |w: Initializer, b: Initializer| HashMap::from([("w".to_owned(), w), ("b".to_owned(), b)]);
    let floats = |dims: &[i64]| Initializer::declared(DataType::Float, dims).unwrap();
    let cases = [
        (of(floats(&[10, 6]), floats(&[10])), ErrorKind::Shape),
        (
            of(floats(&[6, 10]), Initializer::declared(DataType::Float16, [10]).unwrap()),
            ErrorKind::DataType,
        ),
        (HashMap::from([("w".to_owned(), floats(&[6, 10]))]), ErrorKind::MissingHandle),
        // The elements are asked for after all weights are known to fit.
        (of(floats(&[6, 10]), floats(&[10])), ErrorKind::MissingHandle),
    ];
    for (weights, kind) in cases {
        let error = job.write_from(0, &weights).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(fs::read(job.staged_file(0).unwrap()).unwrap(), before);
        assert_eq!(job.status().unwrap().missing, [0]);
    }
    assert_eq!(job.slice_writer("r").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(job.write_from(1, &matrix(6, 10)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(job.write(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn slices_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = JobOptions::new().slices(true);
    let job = job_file(&declared(&matrix(6, 10)), folder.path(), options);
    let before = fs::read(job.staged_file(0).unwrap()).unwrap();
    let writer = job.slice_writer("r").unwrap();
    for (name, slice, bytes, kind) in [
        ("nope", TensorSlice::new([0], [1]), 4, ErrorKind::MissingTensor),
        ("w", TensorSlice::new([6, 0], [1, 10]), 40, ErrorKind::OutOfBounds),
        ("w", TensorSlice::new([0], [10]), 40, ErrorKind::OutOfBounds),
        ("w", TensorSlice::new([0, 0], [1, 10]), 39, ErrorKind::Shape),
        ("w", TensorSlice::new([0, 0], [1, 10]), 0, ErrorKind::Shape),
    ] {
        let error = writer.write(name, &slice, &vec![1; bytes]).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(fs::read(job.staged_file(0).unwrap()).unwrap(), before);
    for name in ["", "job", "part-00000", "a/b", "..", "é", &"x".repeat(101)] {
        assert_eq!(
            job.slice_writer(name).unwrap_err().kind(),
            ErrorKind::InvalidArgument,
            "{name}"
        );
    }
    assert_eq!(job.write_from(0, &matrix(6, 10)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(job.parts().len(), 0);
}

#[test]
fn a_part_is_written_once_and_its_receipt_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&declared(&matrix(6, 10)), folder.path(), 2);
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let weights = |name: &str| {
        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(matrix(6, 10).get(format!("#{name}").as_str()).unwrap().clone())
    };
    // Two processes and more at once.
    let receipts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| job.write_from(0, &weights).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(receipts.iter().all(|receipt| *receipt == receipts[0]));
    assert_eq!(asked.into_inner(), 1);
    let status = job.status().unwrap();
    assert_eq!(job.missing_parts().unwrap(), status.missing);
    assert!(!status.is_complete);
    assert_eq!((status.done, status.missing, status.bytes), (vec![0], vec![1], 280));
    assert_eq!(status.bytes_written, 240);
    job.abort().unwrap();
    is_clean(folder.path());
}

/// An engine counts to the number that it was given, also where there are fewer tensors.
#[test]
fn a_part_beyond_the_tensors_has_nothing_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&declared(&matrix(6, 10)), folder.path(), 8);
    let job = Job::from_json(&job.to_json().unwrap()).unwrap();
    assert_eq!(job.parts(), 0..2);
    let write = |part| job.write_from(part, &matrix(6, 10));
    let receipts: Vec<_> = (0..8).map(|part| write(part).unwrap()).collect();
    assert!(receipts[2..].iter().all(|receipt| receipt.tensors.is_empty() && receipt.bytes == 0));
    assert!(job.has_part(7) && !job.has_part(8));
    assert_eq!(write(8).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(job.status().unwrap().done, [0, 1]);
    job.commit_receipts(receipts).unwrap();
    assert_eq!(write(7).unwrap_err().kind(), ErrorKind::MissingFile);
}

/// A model of one tensor of 1100 dimensions, more than a load takes by default.
fn of_many_dims() -> Container {
    let dims = vec![1_i64; 1100];
    let mut graph = GraphProto::new("g");
    graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, dims.clone(), "#w"));
    let mut container = Container::new(ModelProto::new(graph));
    let weights = ndarray::ArrayD::from_shape_vec(vec![1; 1100], vec![7_u8]).unwrap();
    container.insert("#w", weights).unwrap();
    container
}

#[test]
fn every_process_opens_the_source_with_the_limits_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) = (folder.path().join("m.onnx"), folder.path().join("o.onnx"));
    of_many_dims().save(&source, true).unwrap();
    let limits = |limit, most| SourceOptions::new().limits(Limits::new().with(limit, most));
    for (refused, expected) in [
        (SourceOptions::new(), "1024 dimensions"),
        (limits(Limit::Dims, 1099), "1099 dimensions"),
        (limits(Limit::Tensors, 0), "0 tensors"),
    ] {
        let options = JobOptions::new().source(refused);
        let error = Job::rewrite(&source, &path, None, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    for digests in [false, true] {
        let options = JobOptions::from(SaveOptions::from(true).digests(digests));
        let options = options.source(limits(Limit::Dims, 1100));
        let job = Job::rewrite(&source, &path, None, options).unwrap();
        let job = Job::from_json(&job.to_json().unwrap()).unwrap();
        job.write(0).unwrap();
        assert_eq!(job.commit().unwrap().digest, Some(of_many_dims().digest().unwrap()));
    }
}

/// Weights that are a link out of the folder of the model.
#[cfg(unix)]
#[test]
fn every_process_follows_the_links_of_the_source_that_the_plan_does() {
    let folder = tempfile::tempdir().unwrap();
    let (model, away) = (folder.path().join("model"), folder.path().join("away"));
    fs::create_dir(&model).unwrap();
    fs::create_dir(&away).unwrap();
    let (source, path) = (model.join("m.onnx"), folder.path().join("o.onnx"));
    container_of(3).save(&source, true).unwrap();
    let rewrite = |policy| {
        let options = JobOptions::from(2).source(SourceOptions::new().paths(policy));
        Job::rewrite(&source, &path, None, options)
    };
    let moved = |to: &Path| {
        fs::rename(model.join("m.onnx.data"), to).unwrap();
        std::os::unix::fs::symlink(to, model.join("m.onnx.data")).unwrap();
    };
    for (to, policies) in [
        (model.join("w"), &[PathPolicy::ModelDirs, PathPolicy::Trusted][..]),
        (away.join("w"), &[PathPolicy::Trusted]),
    ] {
        moved(&to);
        for policy in [PathPolicy::Strict, PathPolicy::ModelDirs, PathPolicy::Trusted] {
            let planned = rewrite(policy);
            if !policies.contains(&policy) {
                let error = planned.unwrap_err();
                assert!(error.to_string().contains("`--paths "), "{policy:?}: {error}");
                continue;
            }
            let job = Job::from_json(&planned.unwrap().to_json().unwrap()).unwrap();
            job.parts().for_each(|part| drop(job.write(part).unwrap()));
            let digest = job.commit().unwrap().digest;
            assert_eq!(digest, Some(container_of(3).digest().unwrap()), "{policy:?}");
        }
        fs::remove_file(model.join("m.onnx.data")).unwrap();
        fs::rename(&to, model.join("m.onnx.data")).unwrap();
    }
}

#[test]
fn a_source_in_a_store_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for source in ["s3://b/m.onnx", "hf://o/r/m.onnx"] {
        let error = Job::rewrite(source, folder.path().join("m.onnx"), None, 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.reason().contains("`onnx-container pack URL OUT`"), "{error}");
    }
    let error = Job::rewrite("s3:/b/m.onnx", folder.path().join("m.onnx"), None, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
    is_clean(folder.path());
}

#[test]
fn a_rewrite_needs_no_weights_of_its_caller() {
    for recast in [None, Some(Recast::new(DataType::Float16))] {
        for parts in [1, 4] {
            let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let expected = tempfile::tempdir().unwrap();
            let source = from.path().join("m.onnx");
            container_of(6).save(&source, WeightFiles::PerTensor).unwrap();
            let mut container = Container::load(&source, LoadOptions::new()).unwrap();
            if recast.is_some() {
                let options = onnx_container::edit::CastOptions::new().compute(true).keep_io(false);
                container.cast(DataType::Float16, options).unwrap();
            }
            container.save(expected.path().join("n.onnx"), true).unwrap();
            let job =
                Job::rewrite(&source, to.path().join("n.onnx"), recast.clone(), parts).unwrap();
            let folder = job.folder();
            for part in job.parts() {
                // As another process does: by the path of the folder.
                Job::open(&folder).unwrap().write(part).unwrap();
            }
            let committed = Job::open(folder.join("job.json")).unwrap().commit().unwrap();
            assert!(contents(to.path()) == contents(expected.path()), "{recast:?} {parts}");
            assert_eq!(committed.digest, Some(container.digest().unwrap()));
        }
    }
}

#[test]
fn a_source_that_changes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("m.onnx");
    container_of(4).save(&source, true).unwrap();
    let job = Job::rewrite(&source, folder.path().join("n.onnx"), None, 2).unwrap();
    job.write(0).unwrap();
    let weights = folder.path().join("m.onnx.data");
    let mut bytes = fs::read(&weights).unwrap();
    bytes[0] ^= 1;
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&weights, bytes).unwrap();
    let error = job.write(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert_eq!(error.path(), Some(weights.as_path()));
    assert_eq!(job.commit().unwrap_err().kind(), ErrorKind::MissingTensor);
}

#[test]
fn another_model_that_came_between_stays() {
    let plan = |folder: &Path| {
        let job = job_file(&matrix(6, 10), folder, 1);
        job.write_from(0, &matrix(6, 10)).unwrap();
        job
    };
    // Where there was none, where there was one, and where it is gone.
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (plan(folder.path()), plan(folder.path()));
    let third = job_file(&matrix(6, 9), folder.path(), 1);
    third.write_from(0, &matrix(6, 9)).unwrap();
    assert_eq!(jobs_in(folder.path()).unwrap().len(), 3);
    first.commit().unwrap();
    let old = contents(folder.path());
    let error = third.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert!(contents(folder.path()) == old);
    third.abort().unwrap();
    // What is in place is what this one would put there.
    second.commit().unwrap();
    assert!(contents(folder.path()) == old);
    is_clean(folder.path());

    let over = plan(folder.path());
    container_of(1).save(folder.path().join("m.onnx"), true).unwrap();
    let old = contents(folder.path());
    assert_eq!(over.commit().unwrap_err().kind(), ErrorKind::Changed);
    fs::remove_file(folder.path().join("m.onnx")).unwrap();
    assert_eq!(over.commit().unwrap_err().kind(), ErrorKind::Changed);
    fs::write(folder.path().join("m.onnx"), &old["m.onnx"]).unwrap();
    over.abort().unwrap();
    assert!(contents(folder.path()) == old);

    // What the plan saw is replaced.
    let again = plan(folder.path());
    again.commit().unwrap();
    let loaded = Container::load(folder.path().join("m.onnx"), LoadOptions::new()).unwrap();
    assert_eq!(loaded.digest().unwrap(), matrix(6, 10).digest().unwrap());
    let error = again.write_from(0, &matrix(6, 10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile);
    // What is in place says that the job is committed, and whether it is as it was then.
    let at = |job: &Job| [job.committed().unwrap(), committed_job(job.folder()).unwrap()];
    if cfg!(target_os = "linux") {
        let files = again.files().len() + 1;
        for committed in at(&again).map(Option::unwrap) {
            let told = (committed.already, committed.replaced, committed.files.len());
            assert_eq!(told, (true, false, files));
        }
        let status = again.status().unwrap();
        assert!(status.is_committed && status.is_ended && !status.is_replaced, "{status:?}");
        assert_eq!((status.missing, status.bytes_written), (vec![], status.bytes));
        fs::write(folder.path().join("m.onnx"), &old["m.onnx"]).unwrap();
        let status = again.status().unwrap();
        assert!(status.is_committed && status.is_ended && status.is_replaced, "{status:?}");
        assert_eq!(again.missing_parts().unwrap(), [0; 0]);
        assert!(again.committed().unwrap().unwrap().replaced);
        let error = again.commit().unwrap_err();
        assert!(error.reason().contains("it was committed, and its model"), "{error}");
        // Without a file of the job nothing tells.
        fs::remove_file(folder.path().join("m.onnx.data")).unwrap();
    } else {
        println!("!!! SKIPPED: files have no marks of a commit here");
        fs::remove_file(folder.path().join("m.onnx")).unwrap();
    }
    assert_eq!(again.status().unwrap_err().kind(), ErrorKind::MissingFile);
    assert!(at(&again).iter().all(Option::is_none));
}

#[test]
fn what_a_job_cannot_do_is_refused_by_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let plan = |options: JobOptions| Job::plan(&container_of(3), &path, options).unwrap_err();
    for (options, kind) in [
        (JobOptions::from(0), ErrorKind::InvalidArgument),
        (JobOptions::from(JobOptions::MAX_PARTS + 1), ErrorKind::InvalidArgument),
        (WeightFiles::Embedded.into(), ErrorKind::InvalidArgument),
        (WeightFiles::AsLoaded.into(), ErrorKind::InvalidArgument),
        (SaveOptions::from(true).checksums(true).into(), ErrorKind::InvalidArgument),
        (SaveOptions::from(true).data_name("../x").into(), ErrorKind::InvalidArgument),
    ] {
        let error = plan(options);
        assert_eq!(error.kind(), kind, "{error}");
        is_clean(folder.path());
    }
    container_of(3).save(&path, true).unwrap();
    let error = plan(SaveOptions::from(true).overwrite(false).into());
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    // Another model needs the weights that this one would replace.
    fs::copy(&path, folder.path().join("other.onnx")).unwrap();
    assert_eq!(plan(1.into()).kind(), ErrorKind::AlreadyExists);
    is_clean(folder.path());
    let missing = Job::plan(&container_of(1), folder.path().join("none/m.onnx"), 1).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::MissingFile);
}

#[test]
fn what_is_no_job_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 2);
    let json = job.to_json().unwrap();
    assert_eq!(Job::from_json(&json).unwrap(), job);
    // A path begins with a drive on Windows.
    let shown = folder.path().display().to_string();
    let root = if cfg!(windows) { &shown[..2] } else { "/" };
    let changed = |from: &str, to: &str| {
        assert!(json.contains(from), "{from} in {json}");
        json.replacen(from, to, 1)
    };
    for (text, kind) in [
        (String::new(), ErrorKind::Decode),
        ("{}".into(), ErrorKind::Decode),
        (changed("onnx-container job", "other"), ErrorKind::Decode),
        (changed("\"version\":1", "\"version\":2"), ErrorKind::Unsupported),
        (changed(job.id(), "../../x"), ErrorKind::InvalidModel),
        (changed("\"name\":\"m.onnx\"", "\"name\":\"../m.onnx\""), ErrorKind::InvalidModel),
        (changed("\"m.onnx.data\"", "\"../w\""), ErrorKind::InvalidModel),
        (changed(&format!("\"directory\":\"{root}"), "\"directory\":\""), ErrorKind::InvalidModel),
        (changed("\"offset\":0", "\"offset\":18446744073709551615"), ErrorKind::InvalidModel),
        (changed("\"file\":0", "\"file\":7"), ErrorKind::InvalidModel),
        (changed("\"part\":0", "\"part\":2"), ErrorKind::InvalidModel),
        (changed("\"FLOAT\"", "\"FLOAT17\""), ErrorKind::Decode),
        (changed("\"parts\":2", "\"parts\":2,\"more\":1"), ErrorKind::Decode),
    ] {
        let error = Job::from_json(&text).unwrap_err();
        assert_eq!(error.kind(), kind, "{text}: {error}");
    }
    assert_eq!(Job::open(folder.path()).unwrap_err().kind(), ErrorKind::MissingFile);
}

#[test]
fn the_json_of_a_receipt_says_what_it_is() {
    let receipt = r#"{"job":"a1B2c3","writer":"part-00000","bytes":4,"tensors":[{"name":"w"}]}"#;
    let stamped = |format: &str, version: u32| {
        format!(r#"{{"format":"{format}","version":{version},"receipt":{receipt}}}"#)
    };
    for (text, expected) in [
        (stamped("onnx-container job receipt", 1), None),
        (stamped("onnx-container job receipt", 2), Some(ErrorKind::Unsupported)),
        (stamped("onnx-container store job receipt", 1), Some(ErrorKind::Decode)),
        (stamped("onnx-container job", 1), Some(ErrorKind::Decode)),
        (receipt.to_owned(), Some(ErrorKind::Decode)),
        (
            stamped("onnx-container job receipt", 1).replace("4", "4,\"more\":1"),
            Some(ErrorKind::Decode),
        ),
        (String::new(), Some(ErrorKind::Decode)),
        ("{}".to_owned(), Some(ErrorKind::Decode)),
        ("[]".to_owned(), Some(ErrorKind::Decode)),
    ] {
        match (Receipt::from_json(&text), expected) {
            (Ok(read), None) => assert_eq!(read.to_json().unwrap(), text),
            (Err(error), Some(kind)) => assert_eq!(error.kind(), kind, "{text}: {error}"),
            (read, _) => panic!("{text}: {read:?}"),
        }
    }
}

#[test]
fn receipts_of_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 2);
    let other = job_file(&matrix(6, 10), folder.path(), 2);
    let of = |job: &Job| -> Vec<_> {
        job.parts().map(|part| job.write_from(part, &matrix(6, 10)).unwrap()).collect()
    };
    let (own, foreign) = (of(&job), of(&other));
    let error = job.commit_receipts(foreign).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    let mut odd = own.clone();
    odd[0].writer = "part-00007".into();
    assert_eq!(job.commit_receipts(odd).unwrap_err().kind(), ErrorKind::Changed);
    let error = job.commit_receipts(own[..1].to_vec()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingTensor);
    // A part that was run twice is one.
    let twice = [own.clone(), own].concat();
    job.commit_receipts(twice).unwrap();
}

#[test]
fn what_no_job_put_there_keeps_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    for note in ["notes", "new/notes", "receipts/notes"] {
        let job = job_file(&matrix(6, 10), folder.path(), 1);
        job.write_from(0, &matrix(6, 10)).unwrap();
        let (kept, path) = (job.folder().join(note), job.folder());
        fs::write(&kept, "the user's").unwrap();
        let error = job.clone().abort().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "the user's");
        fs::remove_dir_all(path).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn the_new_files_have_the_access_of_the_old_ones() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    container_of(2).save(&path, true).unwrap();
    for name in ["m.onnx", "m.onnx.data"] {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let job = job_file(&matrix(6, 10), folder.path(), SaveOptions::from(WeightFiles::PerTensor));
    assert_eq!(job.folder().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    for part in job.parts() {
        job.write_from(part, &matrix(6, 10)).unwrap();
    }
    for file in job.commit().unwrap().files {
        let mode = folder.path().join(&file.name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.name);
    }
}

#[test]
fn a_save_leaves_the_folder_of_a_job_alone() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 1);
    job.write_from(0, &matrix(6, 10)).unwrap();
    container_of(1).save(folder.path().join("other.onnx"), true).unwrap();
    onnx_container::recovery::recover(folder.path()).unwrap();
    job.commit().unwrap();
}

#[test]
fn weights_without_elements_need_nobody() {
    let mut graph = GraphProto::new("g");
    graph.initializer.push(TensorProto::external("e", TensorProto::FLOAT, [0, 3], "#e"));
    graph.initializer.push(TensorProto::external("s", TensorProto::FLOAT, [], "#s"));
    let mut container = Container::new(ModelProto::new(graph));
    container.insert("#e", Initializer::declared(DataType::Float, [0, 3]).unwrap()).unwrap();
    container.insert("#s", Initializer::declared(DataType::Float, []).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&container, folder.path(), JobOptions::new().slices(true));
    let writer = job.slice_writer("r").unwrap();
    writer.write("s", &TensorSlice::new([], []), &1.0_f32.to_le_bytes()).unwrap();
    writer.finish().unwrap();
    job.commit().unwrap();
    let loaded = Container::load(folder.path().join("m.onnx"), LoadOptions::new()).unwrap();
    assert_eq!(loaded.get("#s").unwrap().to_tensor().unwrap().as_slice::<f32>().unwrap(), [1.0]);
    assert_eq!(loaded.get("#e").unwrap().byte_len(), 0);
}

#[test]
fn a_plan_that_was_killed_is_no_job_and_can_be_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let made = |left: &[&str]| {
        let job = job_file(&matrix(6, 10), folder.path(), 2);
        for name in ["model.onnx", "new", "receipts", "job.json"] {
            let path = job.folder().join(name);
            match left.contains(&name) {
                true => {}
                false if path.is_dir() => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        job
    };
    for left in [&["job.json", "new", "receipts"][..], &["job.json", "new"], &["job.json"], &[]] {
        let job = made(left);
        assert_eq!(jobs_in(folder.path()).unwrap(), [job.folder()]);
        for said in [
            job.status().map(drop),
            job.write_from(0, &matrix(6, 10)).map(drop),
            job.commit().map(drop),
        ] {
            let error = said.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MissingFile, "{left:?}: {error}");
            assert!(error.reason().contains("the plan of this job did not end"), "{error}");
        }
        fs::write(job.folder().join("job.Ab12Cd.new"), "half").unwrap();
        abort_job(job.folder()).unwrap();
        is_clean(folder.path());
    }
    // What no job put there.
    let job = made(&[]);
    fs::write(job.folder().join("notes"), "mine").unwrap();
    assert_eq!(abort_job(job.folder()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(job.folder().join("notes").is_file());
}

/// What a commit of a job that has ended is to say.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    Committed,
    /// Committed, and other files are there since.
    Replaced,
    Aborted,
    Either,
}

/// Whether files in `folder` keep the mark of a commit. Where they do not, what was committed is
/// not told.
fn keeps_marks(folder: &Path) -> bool {
    #[cfg(target_os = "linux")]
    let kept = {
        use rustix::fs::{XattrFlags, setxattr};
        let path = folder.join("probe");
        fs::write(&path, "x").unwrap();
        let kept = setxattr(&path, "user.onnx-container.test", b"x", XattrFlags::empty()).is_ok();
        fs::remove_file(&path).unwrap();
        kept
    };
    #[cfg(not(target_os = "linux"))]
    let kept = false;
    if !kept {
        eprintln!("SKIPPED: {} has no extended attributes of users", folder.display());
    }
    kept
}

#[test]
fn a_commit_after_the_end_says_how_the_job_ended() {
    /// Plans a job of a model that is at `m.onnx` in the folder, or is not.
    type Plan = fn(&Path) -> Job;
    /// Ends the job, and perhaps goes on.
    type End = fn(&Job, &Path);
    let made: Plan = |folder| job_file(&matrix(6, 10), folder, 2);
    let replacing: Plan = |folder| {
        matrix(3, 5).save(folder.join("m.onnx"), true).unwrap();
        job_file(&matrix(6, 10), folder, SaveOptions::new().digests(true))
    };
    // Of the same layout: the model file is the same.
    let same_layout: Plan = |folder| {
        matrix(6, 10).save(folder.join("m.onnx"), true).unwrap();
        job_file(&matrix(6, 10), folder, 1)
    };
    let commit: End = |job, _| {
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        assert!(!job.commit().unwrap().already);
    };
    let abort: End = |job, _| job.clone().abort().unwrap();
    let commit_and_save: End = |job, folder| {
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        job.commit().unwrap();
        matrix(2, 2).save(folder.join("m.onnx"), true).unwrap();
    };
    let abort_and_save: End = |job, folder| {
        job.clone().abort().unwrap();
        matrix(6, 10).save(folder.join("m.onnx"), true).unwrap();
    };
    let abort_and_commit_another: End = |job, folder| {
        job.clone().abort().unwrap();
        let other = job_file(&matrix(6, 10), folder, 2);
        other.parts().for_each(|part| drop(other.write_from(part, &matrix(6, 10)).unwrap()));
        other.commit().unwrap();
    };
    let commit_and_remove: End = |job, folder| {
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        job.commit().unwrap();
        fs::remove_file(folder.join("m.onnx")).unwrap();
        fs::write(folder.join("m.onnx"), "no model").unwrap();
    };
    // Another content under the same inode, which keeps its attributes.
    let commit_and_change_weights: End = |job, folder| {
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        job.commit().unwrap();
        let weights = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut weights = weights.filter(|path| path.extension().is_some_and(|it| it == "data"));
        let path = weights.next().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::write(&path, bytes).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
        fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
    };
    // Backups keep the times of files.
    let commit_and_restore: End = |job, folder| {
        let old: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| {
                let modified = path.metadata().unwrap().modified().unwrap();
                (fs::read(&path).unwrap(), modified, path)
            })
            .collect();
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        job.commit().unwrap();
        for (bytes, modified, path) in old {
            fs::write(&path, bytes).unwrap();
            let file = fs::File::options().append(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
        }
    };
    // Its weights stay, and no model names them.
    let commit_and_put_another: End = |job, folder| {
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        job.commit().unwrap();
        let other = ModelProto::new(GraphProto::new("other")).encode_to_vec().unwrap();
        fs::write(folder.join("m.onnx"), other).unwrap();
    };
    let commit_and_make_a_folder: End = |job, folder| {
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        job.commit().unwrap();
        fs::remove_file(folder.join("m.onnx")).unwrap();
        fs::create_dir(folder.join("m.onnx")).unwrap();
    };
    for (name, plan, end, expected) in [
        ("made", made, commit, Told::Committed),
        ("made, and another one copied there", made, commit_and_put_another, Told::Replaced),
        ("made, and a folder", made, commit_and_make_a_folder, Told::Replaced),
        ("replaced, and restored", replacing, commit_and_restore, Told::Replaced),
        ("replaced", replacing, commit, Told::Committed),
        ("equal", same_layout, commit, Told::Committed),
        ("not made", made, abort, Told::Aborted),
        ("not replaced", replacing, abort, Told::Aborted),
        ("aborted beside an equal model", same_layout, abort, Told::Either),
        ("made, and replaced", made, commit_and_save, Told::Either),
        ("not made, but saved", made, abort_and_save, Told::Either),
        ("not made, but by another job", made, abort_and_commit_another, Told::Either),
        ("made, and overwritten", made, commit_and_remove, Told::Replaced),
        ("made, and other weights", made, commit_and_change_weights, Told::Replaced),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let can_tell = keeps_marks(folder.path());
        let job = plan(folder.path());
        end(&job, folder.path());
        let expected = match expected {
            Told::Replaced if !can_tell && name.contains("restored") => Told::Aborted,
            Told::Committed | Told::Replaced if !can_tell => Told::Either,
            expected => expected,
        };
        let before = contents(folder.path());
        let again = Job::from_json(&job.to_json().unwrap()).unwrap().commit();
        let found = match &again {
            Ok(_) => Told::Committed,
            Err(error) if error.reason().contains("committed or aborted") => Told::Either,
            Err(error) if error.reason().contains("committed, and its model") => Told::Replaced,
            Err(error) => {
                assert!(error.reason().contains("it was aborted, "), "{name}: {error}");
                Told::Aborted
            }
        };
        assert_eq!(found, expected, "{name}: {again:?}");
        match again {
            Ok(again) => {
                assert!(again.already, "{name}");
                assert_eq!(again.digest, Some(matrix(6, 10).digest().unwrap()), "{name}");
                let model = fs::metadata(job.path()).unwrap().len();
                let mut files: Vec<_> =
                    job.files().into_iter().map(|file| (file.name, file.bytes)).collect();
                files.push(("m.onnx".to_owned(), model));
                let found = again.files.into_iter().map(|file| (file.name, file.bytes));
                assert_eq!(found.collect::<Vec<_>>(), files, "{name}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::MissingFile, "{name}: {error}");
                let which = format!("`onnx-container digest {}` says", job.path().display());
                let is_open = matches!(expected, Told::Either | Told::Replaced);
                assert_eq!(error.reason().contains(&which), is_open, "{name}: {error}");
            }
        }
        // By the folder that is gone, as far as the files that are there say it.
        for path in [job.folder(), job.folder().join("job.json")] {
            match (expected, commit_job(path)) {
                (Told::Committed, again) => assert!(again.unwrap().already, "{name}"),
                (Told::Replaced, again) => {
                    let error = again.unwrap_err();
                    assert!(error.reason().contains("committed, and its model"), "{name}: {error}");
                    assert!(error.reason().contains(&format!("{}`", job.path().display())));
                }
                (Told::Aborted | Told::Either, again) => {
                    let error = again.unwrap_err();
                    assert!(error.reason().contains("committed or aborted"), "{name}: {error}");
                }
            }
        }
        assert!(contents(folder.path()) == before, "{name}");
        is_clean(folder.path());
    }
}

/// A status has all parts, or says that the job is not there, while a commit ends it.
#[test]
fn a_status_beside_a_commit_misses_nothing_that_is_written() {
    for _ in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let job = job_file(&matrix(6, 10), folder.path(), 3);
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        thread::scope(|scope| {
            let commit = scope.spawn(|| job.commit().unwrap());
            while !commit.is_finished() {
                match job.status() {
                    Ok(status) => assert_eq!(status.missing, [0; 0], "{status:?}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}"),
                }
                match job.missing_parts() {
                    Ok(missing) => assert_eq!(missing, [0; 0]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}"),
                }
            }
        });
    }
}

/// What a commit has put in place may be unreadable: why the job is not there is what counts.
#[cfg(unix)]
#[test]
fn why_a_job_is_not_there_is_said_also_where_its_model_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 1);
    job.write_from(0, &matrix(6, 10)).unwrap();
    job.commit().unwrap();
    fs::remove_file(job.path()).unwrap();
    std::os::unix::fs::symlink(job.path(), job.path()).unwrap();
    if keeps_marks(folder.path()) {
        assert_eq!(job.committed().unwrap_err().kind(), ErrorKind::Io);
    }
    for error in [job.status().unwrap_err(), job.missing_parts().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
    }
}

#[test]
fn a_folder_says_whether_its_job_is_committed_without_its_receipts() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 1);
    let mark = job.folder().join("committing");
    assert!(!is_committed(job.folder()).unwrap());
    job.write_from(0, &matrix(6, 10)).unwrap();
    assert!(!is_committed(job.folder()).unwrap());
    fs::write(job.folder().join("kept"), "").unwrap();
    assert_eq!(job.commit().unwrap().warnings.len(), 1);
    assert!(mark.exists() && is_committed(job.folder()).unwrap());
    let receipt = job.folder().join("receipts/part-00000.json");
    fs::remove_file(&receipt).unwrap();
    fs::create_dir(&receipt).unwrap();
    assert!(job.status().is_err() && is_committed(job.folder()).unwrap());
    fs::write(job.folder().join("job.json"), "no job").unwrap();
    assert_eq!(is_committed(job.folder()).unwrap_err().kind(), ErrorKind::Decode);
    fs::remove_dir_all(job.folder()).unwrap();
    assert!(!is_committed(job.folder()).unwrap());
}

#[test]
fn a_folder_of_a_job_is_committed_once() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 1);
    assert_eq!(commit_job(job.folder()).unwrap_err().kind(), ErrorKind::MissingTensor);
    job.write_from(0, &matrix(6, 10)).unwrap();
    assert!(!commit_job(job.folder()).unwrap().already);
    is_clean(folder.path());
}

#[test]
fn what_is_left_of_a_job_that_has_ended_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 1);
    job.write_from(0, &matrix(6, 10)).unwrap();
    let ended = folder.path().join(format!(".m.onnx.ended-{}", job.id()));
    fs::rename(job.folder(), &ended).unwrap();
    let error = job.commit().unwrap_err();
    assert!(
        error.reason().contains("it was aborted, its folder was moved, or its model was removed"),
        "{error}"
    );
    let error = Job::open(job.folder()).unwrap_err();
    assert!(error.reason().contains("committed or aborted"), "{error}");
    assert!(jobs_in(folder.path()).unwrap().is_empty());
    let (removed, errors) = remove_ended_jobs(folder.path());
    assert_eq!((removed, errors.len(), ended.exists()), (1, 0, false));
    let error = job.clone().abort().unwrap_err();
    assert!(error.reason().contains("it was aborted"), "{error}");
    let other = Job::plan(&matrix(2, 3), folder.path().join("o.onnx"), 1).unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 1);
    assert_eq!(jobs_of(folder.path().join("m.onnx")).unwrap(), [job.folder()]);
    assert_eq!(jobs_of(other.path()).unwrap(), [other.folder()]);
    assert_eq!(jobs_in(folder.path()).unwrap().len(), 2);
    for job in [job, other] {
        job.abort().unwrap();
    }
    // The next plan does so too.
    fs::create_dir_all(ended.join("new")).unwrap();
    job_file(&matrix(6, 10), folder.path(), 1).abort().unwrap();
    is_clean(folder.path());
}

#[test]
fn a_job_that_is_opened_by_its_folder_is_where_that_is() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    fs::create_dir(&first).unwrap();
    let job = job_file(&matrix(6, 10), &first, 1);
    let name = job.folder().file_name().unwrap().to_owned();
    assert_eq!(Job::open(job.folder()).unwrap(), job);
    fs::rename(&first, &second).unwrap();
    for path in [second.join(&name), second.join(&name).join("job.json")] {
        let moved = Job::open(path).unwrap();
        assert_eq!(moved.path(), second.canonicalize().unwrap().join("m.onnx"));
        moved.write_from(0, &matrix(6, 10)).unwrap();
    }
    assert_eq!(job.status().unwrap_err().kind(), ErrorKind::MissingFile);
    // The description of one job in the folder of another.
    let other = job_file(&matrix(6, 10), &second, 1);
    fs::copy(other.folder().join("job.json"), second.join(&name).join("job.json")).unwrap();
    assert_eq!(Job::open(second.join(&name)).unwrap_err().kind(), ErrorKind::Changed);
}

#[test]
fn descriptions_that_no_plan_makes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&container_of(3), folder.path(), 2);
    let json: serde_json::Value = serde_json::from_str(&job.to_json().unwrap()).unwrap();
    type Change = fn(&mut serde_json::Value);
    let changes: [(&str, Change); 6] = [
        ("as many parts as there are numbers", |job| job["parts"] = usize::MAX.into()),
        ("no parts", |job| job["parts"] = 0.into()),
        ("more parts than tensors", |job| job["parts"] = 4.into()),
        ("one name twice", |job| job["tensors"][1]["name"] = job["tensors"][0]["name"].clone()),
        ("one place twice", |job| {
            job["tensors"][1]["offset"] = job["tensors"][0]["offset"].clone();
        }),
        ("the model as weights", |job| job["files"][0]["name"] = job["name"].clone()),
    ];
    for (what, change) in changes {
        let mut json = json.clone();
        change(&mut json["job"]);
        let error = Job::from_json(&json.to_string()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidModel, "{what}: {error}");
    }
}

#[test]
fn a_commit_waits_for_nobody_and_needs_few_files() {
    let folder = tempfile::tempdir().unwrap();
    let container = declared(&container_of(300));
    let job = job_file(&container, folder.path(), JobOptions::new().slices(true));
    let writer = job.slice_writer("r").unwrap();
    let error = job.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    drop(writer);
    assert_eq!(job.commit().unwrap_err().kind(), ErrorKind::MissingTensor);
    job.abort().unwrap();
}

#[cfg(unix)]
#[test]
fn links_in_place_of_files_of_a_job_are_not_followed() {
    use std::os::unix::fs::symlink;
    let outside = tempfile::tempdir().unwrap();
    let cases: [(&str, bool); 6] = [
        ("new", true),
        ("receipts", true),
        ("model.onnx", false),
        ("new/m.onnx.data", false),
        ("receipts/part-00000.lock", false),
        ("receipts/part-00000.json", false),
    ];
    for (name, is_folder) in cases {
        let folder = tempfile::tempdir().unwrap();
        let job = job_file(&matrix(6, 10), folder.path(), 1);
        let (path, target) = (job.folder().join(name), outside.path().join("target"));
        if is_folder {
            fs::create_dir(&target).unwrap();
            fs::write(target.join("m.onnx.data"), [7; 280]).unwrap();
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::write(&target, [7; 280]).unwrap();
            let _ = fs::remove_file(&path);
        }
        symlink(&target, &path).unwrap();
        assert!(job.write_from(0, &matrix(6, 10)).is_err(), "{name}");
        let _ = job.abort();
        let kept = if is_folder { target.join("m.onnx.data") } else { target.clone() };
        assert!(fs::read(kept).unwrap() == [7; 280], "{name}");
        assert!(!is_folder || fs::read_dir(&target).unwrap().count() == 1, "{name}");
        let _ = fs::remove_file(&target).or_else(|_| fs::remove_dir_all(&target));
    }
}

#[test]
fn a_rewrite_moves_inline_tensors_out() {
    let moving = ExternalizeOptions::new().min_bytes(0);
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, expected) = (from.path().join("s.onnx"), from.path().join("m.onnx"));
    container_of(5).save(&source, WeightFiles::Embedded).unwrap();
    let mut container = Container::load(&source, LoadOptions::new()).unwrap();
    container.externalize(moving).unwrap();
    container.save(&expected, true).unwrap();
    let options = JobOptions::from(3).externalize(moving);
    // A save can move them too.
    let by_save = SaveOptions::new().externalize(true).raw_data_threshold(0);
    for options in [options.clone(), JobOptions::from(3).save(by_save)] {
        let job = Job::rewrite(&source, to.path().join("m.onnx"), None, options).unwrap();
        assert_eq!(job.parts(), 0..3);
        for part in job.parts() {
            Job::from_json(&job.to_json().unwrap()).unwrap().write(part).unwrap();
        }
        job.commit().unwrap();
        for name in ["m.onnx", "m.onnx.data"] {
            let [written, expected] = [&to, &from].map(|it| fs::read(it.path().join(name)));
            assert!(written.unwrap() == expected.unwrap(), "{name}");
        }
    }
    // Weights of a plan come from its caller, who moves them.
    let error = Job::plan(&container, to.path().join("o.onnx"), options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_model_that_was_replaced_after_a_killed_commit_may_be_the_jobs() {
    let folder = tempfile::tempdir().unwrap();
    for had_begun in [false, true] {
        let path = folder.path().join(format!("{had_begun}.onnx"));
        let job = Job::plan(&container_of(3), &path, 1).unwrap();
        job.write_from(0, &container_of(3)).unwrap();
        if had_begun {
            fs::write(job.folder().join("committing"), "").unwrap();
        }
        container_of(2).save(&path, true).unwrap();
        let error = job.commit().unwrap_err();
        assert_eq!(error.reason().contains("commit of this job was killed"), had_begun, "{error}");
        job.abort().unwrap();
    }
}

/// A file of a terabyte, of which a tensor at each end is all that there is.
#[cfg(unix)]
#[test]
fn a_rewrite_reads_only_what_it_writes() {
    const TERABYTE: u64 = 1 << 40;
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("s.onnx");
    let file = fs::File::create(folder.path().join("s.data")).unwrap();
    if file.set_len(TERABYTE).is_err() {
        eprintln!("SKIPPED: no files of a terabyte here");
        return;
    }
    let mut graph = GraphProto::new("g");
    for (name, offset) in [("a", 0), ("tied", 0), ("b", TERABYTE - 8), ("b_too", TERABYTE - 8)] {
        let dims = if name == "b_too" { [1] } else { [2] };
        let mut tensor = TensorProto::external(name, TensorProto::FLOAT, dims, "s.data");
        let entry = |key, value: u64| StringStringEntryProto::new(key, value.to_string());
        tensor.external_data.push(entry("offset", offset));
        tensor.external_data.push(entry("length", 4 * dims[0] as u64));
        graph.initializer.push(tensor);
    }
    fs::write(&source, ModelProto::new(graph).encode_to_vec().unwrap()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 8], TERABYTE - 8).unwrap();
    // Where addresses have 32 bits, it is too large for memory, mapped or read.
    #[cfg(target_pointer_width = "32")]
    for mmap in support::both_choices() {
        let error = Container::load(&source, LoadOptions::new().mmap(mmap)).unwrap_err();
        assert!(error.each().all(|it| it.kind() == ErrorKind::TooLarge), "{error}");
    }
    let job = Job::rewrite(&source, folder.path().join("m.onnx"), None, 3).unwrap();
    // Tensors on the same bytes are one.
    let names: Vec<_> = job.tensors().iter().map(|tensor| &*tensor.name).collect();
    assert_eq!(names, ["a", "b"]);
    for part in job.parts() {
        job.write(part).unwrap();
    }
    job.commit().unwrap();
    let model = Container::load(folder.path().join("m.onnx"), LoadOptions::new()).unwrap();
    assert_eq!(model.get("#b").unwrap().to_buffer().unwrap()[..], [7; 8]);
    assert_eq!(model.get("#b_too").unwrap().to_buffer().unwrap()[..], [7; 4]);
    // What is cut off is said of the tensor.
    file.set_len(TERABYTE - 1).unwrap();
    let error = Job::rewrite(&source, folder.path().join("n.onnx"), None, 1).unwrap_err();
    assert!(error.each().all(|it| it.kind() == ErrorKind::OutOfBounds), "{error}");
    assert!(error.each().any(|it| it.tensor() == Some("b")), "{error}");
}

/// A job of two weights in slices, `w` of 6 rows and 10 columns.
fn sliced(folder: &Path, digests: bool) -> Job {
    let save = SaveOptions::from(true).sync(false).digests(digests);
    job_file(&declared(&matrix(6, 10)), folder, JobOptions::from(save).slices(true))
}

/// Writes rows of `w`, and `b` with the first.
fn write_rows(job: &Job, writer: &str, from: u64, count: u64) -> Result<Receipt> {
    let writer = job.slice_writer(writer)?;
    let slice = TensorSlice::new([from, 0], [count, 10]);
    writer.write("w", &slice, &slice_of(10, &slice))?;
    if from == 0 {
        writer.write_from("b", [0], matrix(6, 10).get("#b").unwrap())?;
    }
    writer.finish()
}

#[test]
fn bytes_of_a_run_that_did_not_end_are_not_committed() {
    type Case = (&'static str, fn(&Job), bool);
    let cases: [Case; 5] = [
        // The same slices again.
        ("again", |job| drop(write_rows(job, "s", 3, 3).unwrap()), true),
        // Over the rows of the other, first by mistake.
        ("mistake", |job| drop(write_rows(job, "s", 2, 3).unwrap()), false),
        // Killed before its end.
        (
            "killed",
            |job| {
                let writer = job.slice_writer("s").unwrap();
                let slice = TensorSlice::new([2, 0], [1, 10]);
                writer.write("w", &slice, &[9; 40]).unwrap();
            },
            false,
        ),
        // Killed while it noted what it was about to write.
        (
            "half a note",
            |job| {
                let note = job.folder().join("receipts/s.slices");
                fs::write(note, "{\"name\":\"w\",\"sl").unwrap();
            },
            true,
        ),
        // One that is refused writes nothing.
        (
            "refused",
            |job| {
                let writer = job.slice_writer("s").unwrap();
                let slice = TensorSlice::new([2, 0], [1, 10]);
                assert!(writer.write("w", &slice, &[9; 39]).is_err());
            },
            true,
        ),
    ];
    for (case, first, is_well) in cases {
        let folder = tempfile::tempdir().unwrap();
        let job = sliced(folder.path(), false);
        write_rows(&job, "r", 0, 3).unwrap();
        first(&job);
        write_rows(&job, "s", 3, 3).unwrap();
        match job.commit() {
            Ok(_) => assert!(is_well, "{case}"),
            Err(error) => {
                assert!(!is_well, "{case}: {error}");
                assert_eq!(error.kind(), ErrorKind::Changed, "{case}: {error}");
                assert!(contents(folder.path()).is_empty());
            }
        }
    }
    // A writer that began and never ended, though others have written all.
    let folder = tempfile::tempdir().unwrap();
    let job = sliced(folder.path(), false);
    write_rows(&job, "r", 0, 6).unwrap();
    let other = job.slice_writer("s").unwrap();
    other.write("w", &TensorSlice::new([2, 0], [1, 10]), &[9; 40]).unwrap();
    drop(other);
    assert!(!job.status().unwrap().is_complete);
    let error = job.commit().unwrap_err();
    assert!(error.to_string().contains("s began to write elements that others"), "{error}");
    // Writers that have written nothing are in nobody's way, with a receipt or without.
    let folder = tempfile::tempdir().unwrap();
    let job = sliced(folder.path(), false);
    let all = write_rows(&job, "r", 0, 6).unwrap();
    let refused = job.slice_writer("typo").unwrap();
    refused.write("nope", &TensorSlice::new([0], [1]), &[0; 4]).unwrap_err();
    drop(refused);
    job.slice_writer("idle").unwrap().finish().unwrap();
    assert!(job.status().unwrap().is_complete);
    job.commit_receipts([all]).unwrap();
    // A receipt that is there and was not given.
    let folder = tempfile::tempdir().unwrap();
    let job = sliced(folder.path(), false);
    let all = write_rows(&job, "r", 0, 6).unwrap();
    write_rows(&job, "s", 3, 1).unwrap();
    let error = job.commit_receipts([all]).unwrap_err();
    assert!(error.to_string().contains("was not given"), "{error}");
}

#[test]
fn a_name_is_that_of_one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let job = sliced(folder.path(), false);
    let first = job.slice_writer("r").unwrap();
    let error = job.slice_writer("r").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    let _other = job.slice_writer("s").unwrap();
    drop(first);
    job.slice_writer("r").unwrap();
}

#[test]
fn a_receipt_that_its_writer_has_left_is_refused() {
    for digests in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let job = sliced(folder.path(), digests);
        let old = write_rows(&job, "r", 0, 6).unwrap();
        let writer = job.slice_writer("r").unwrap();
        writer.write("w", &TensorSlice::new([0, 0], [6, 10]), &[9; 240]).unwrap();
        drop(writer);
        let error = job.commit_receipts([old.clone()]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        write_rows(&job, "r", 0, 5).unwrap();
        assert_eq!(job.commit_receipts([old]).unwrap_err().kind(), ErrorKind::Changed);
        let last = write_rows(&job, "r", 0, 6).unwrap();
        let error = job.commit_receipts([last]).unwrap_err();
        assert!(error.to_string().contains("other slices"), "{error}");
    }
}

#[test]
fn nobody_writes_once_a_commit_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let job = sliced(folder.path(), false);
    write_rows(&job, "r", 0, 6).unwrap();
    // A commit that was killed leaves this.
    fs::write(job.folder().join("committing"), "").unwrap();
    assert_eq!(job.slice_writer("r").unwrap_err().kind(), ErrorKind::Changed);
    // What no job put there keeps the folder, whose files are those of the model.
    fs::write(job.folder().join("slurm-1.out"), "the user's").unwrap();
    let committed = job.commit().unwrap();
    assert_eq!(committed.warnings.len(), 1, "{:?}", committed.warnings);
    assert_eq!(job.slice_writer("r").unwrap_err().kind(), ErrorKind::Changed);
    fs::remove_file(job.folder().join("slurm-1.out")).unwrap();
    assert!(job.status().unwrap().is_committed);
    assert!(job.abort().is_err_and(|error| error.to_string().contains("in place")));
    is_clean(folder.path());
    Container::load(folder.path().join("m.onnx"), LoadOptions::new()).unwrap();

    let parts = job_file(&declared(&matrix(6, 10)), folder.path(), 2);
    fs::write(parts.folder().join("committing"), "").unwrap();
    let error = parts.write_from(0, &matrix(6, 10)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    // A commit that cannot begin leaves the job as it was.
    fs::remove_file(parts.folder().join("committing")).unwrap();
    parts.commit().unwrap_err();
    parts.parts().for_each(|part| drop(parts.write_from(part, &matrix(6, 10)).unwrap()));
    container_of(1).save(folder.path().join("m.onnx"), true).unwrap();
    parts.commit().unwrap_err();
    assert!(!parts.folder().join("committing").exists());
    // The mark of an earlier commit stays: its files may be anywhere.
    fs::write(parts.folder().join("committing"), "").unwrap();
    parts.commit().unwrap_err();
    assert!(parts.folder().join("committing").exists());
    parts.abort().unwrap();
    is_clean(folder.path());
}

/// A commit that is killed when the model is in place leaves the folder of its job.
#[test]
fn a_job_whose_commit_was_killed_at_its_end_is_ended() {
    // What is done after the kill, and whether the job has ended then.
    type Then = fn(&Job);
    let nothing: Then = |_| {};
    let other_model: Then = |job| drop(matrix(2, 2).save(job.path(), true).unwrap());
    let other_weights: Then = |job| {
        let path = job.path().with_file_name("m.onnx.data");
        fs::remove_file(&path).unwrap();
        fs::write(path, [0; 240]).unwrap();
    };
    let is_committing: Then = |job| {
        let path = job.folder().join("receipts/job.lock");
        // Kept to the end of the process.
        let lock = Box::leak(Box::new(fs::File::create(path).unwrap()));
        lock.lock().unwrap();
    };
    for (name, then, is_ended) in [
        ("at once", nothing, true),
        ("another model", other_model, false),
        ("other weights", other_weights, false),
        ("a commit that runs", is_committing, false),
    ] {
        for digests in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            matrix(3, 5).save(folder.path().join("m.onnx"), true).unwrap();
            let job = job_file(&matrix(6, 10), folder.path(), SaveOptions::new().digests(digests));
            job.write_from(0, &matrix(6, 10)).unwrap();
            assert!(!job.status().unwrap().is_committed);
            // What no job put there keeps the folder, as a kill does.
            let kept = job.folder().join("kept");
            fs::write(&kept, "").unwrap();
            assert_eq!(job.commit().unwrap().warnings.len(), 1);
            fs::remove_file(kept).unwrap();
            then(&job);
            let (removed, errors) = remove_ended_jobs(folder.path());
            assert_eq!((removed, errors.len()), (usize::from(is_ended), 0), "{name}");
            assert_eq!(job.folder().exists(), !is_ended, "{name}");
            if is_ended {
                is_clean(folder.path());
                let told = job.commit().is_ok_and(|again| again.already);
                assert_eq!(told, keeps_marks(folder.path()), "{name}");
            }
        }
    }
}

/// Without marks nothing but the folder of a committed job tells a commit again that it is
/// committed.
#[test]
#[cfg(target_os = "linux")]
fn a_plan_ends_a_committed_job_where_the_marks_are_there() {
    for has_marks in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let has_marks = has_marks && keeps_marks(folder.path());
        let job = job_file(&matrix(6, 10), folder.path(), 1);
        job.write_from(0, &matrix(6, 10)).unwrap();
        // What no job put there keeps the folder, as a kill does.
        let kept = job.folder().join("kept");
        fs::write(&kept, "").unwrap();
        job.commit().unwrap();
        fs::remove_file(kept).unwrap();
        if !has_marks {
            let data = folder.path().join("m.onnx.data");
            let _ = rustix::fs::removexattr(data, "user.onnx-container.job");
        }
        let other = Job::plan(&matrix(2, 2), folder.path().join("other.onnx"), 1).unwrap();
        assert_eq!(job.folder().exists(), !has_marks);
        assert!(job.commit().unwrap().already);
        assert!(!job.folder().exists());
        other.abort().unwrap();
        is_clean(folder.path());
    }
}

/// A commit that finds everything in place marks no file that may be another model's.
#[test]
#[cfg(unix)]
fn a_commit_marks_no_file_that_another_model_has() {
    let folder = tempfile::tempdir().unwrap();
    matrix(6, 10).save(folder.path().join("m.onnx"), true).unwrap();
    let data = folder.path().join("m.onnx.data");
    fs::hard_link(&data, folder.path().join("other.onnx.data")).unwrap();
    let job = job_file(&matrix(6, 10), folder.path(), 1);
    job.write_from(0, &matrix(6, 10)).unwrap();
    assert!(!job.commit().unwrap().already);
    let error = job.commit().unwrap_err();
    assert!(error.reason().contains("committed or aborted"), "{error}");
    #[cfg(target_os = "linux")]
    {
        let mut mark = [0_u8; 512];
        let found = rustix::fs::getxattr(&data, "user.onnx-container.job", &mut mark[..]);
        assert!(found.is_err(), "{found:?}");
    }
}

#[test]
fn weights_of_a_function_are_made_when_they_are_written() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Counted {
        fn new() -> Self {
            MOST.fetch_max(ALIVE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Self
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    impl onnx_container::WeightSource for Counted {
        fn dtype(&self) -> DataType {
            DataType::Float
        }
        fn dims(&self) -> &[i64] {
            &[300]
        }
        fn byte_len(&self) -> u64 {
            1200
        }
        fn read_at(&self, _: u64, out: &mut [u8]) -> Result<()> {
            out.fill(1);
            Ok(())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let job = job_file(&declared(&container_of(50)), folder.path(), 1);
    job.write_from(0, &|_: &str| Initializer::from_source(Counted::new())).unwrap();
    let most = MOST.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most} at once");
    job.commit().unwrap();
}

#[test]
fn protected_files_stay_as_in_a_save() {
    for protects in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        container_of(2).save(folder.path().join("m.onnx"), WeightFiles::PerTensor).unwrap();
        let old = folder.path().join("m-w0.weight");
        let save = SaveOptions::from(true).remove_left_behind(true).sync(false);
        let save = if protects { save.protect([&old]) } else { save };
        let job = job_file(&declared(&matrix(6, 10)), folder.path(), save);
        job.write_from(0, &matrix(6, 10)).unwrap();
        let removed = job.commit().unwrap().removed;
        assert_eq!((removed.len(), old.exists()), (2 - usize::from(protects), protects));
    }
}

/// Writes the receipt of part 1 again as `change` has it.
fn rewrite_receipt(job: &Job, change: impl Fn(&str) -> String) {
    let path = job.folder().join("receipts/part-00001.json");
    let text = fs::read_to_string(&path).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text);
    fs::write(path, changed).unwrap();
}

/// A job that is written, of a model that is there, which is cast to another type.
fn cast_in_place(folder: &Path) -> Job {
    let path = folder.join("m.onnx");
    container_of(4).save(&path, SaveOptions::from(true).sync(false)).unwrap();
    let options = JobOptions::from(SaveOptions::from(true).sync(false)).parts(2);
    let job = Job::rewrite(&path, &path, Some(Recast::new(DataType::Float16)), options).unwrap();
    job.parts().for_each(|part| drop(job.write(part).unwrap()));
    job
}

#[test]
fn a_part_whose_receipt_was_damaged_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let job = cast_in_place(folder.path());
    rewrite_receipt(&job, |_| String::new());
    let status = job.status().unwrap();
    assert!(status.missing == [1] && !status.is_complete, "{status:?}");
    assert!(job.commit().is_err());
    job.write(1).unwrap();
    assert!(job.status().unwrap().is_complete);
    job.commit().unwrap();
}

#[test]
fn a_job_that_was_damaged_replaces_nothing() {
    type Damage = fn(&Job, &Path);
    let cases: [(&str, Damage, ErrorKind); 9] = [
        (
            "no model",
            |job, _| fs::write(job.folder().join("model.onnx"), "").unwrap(),
            ErrorKind::Changed,
        ),
        (
            "half a model",
            |job, _| {
                let path = job.folder().join("model.onnx");
                let model = fs::read(&path).unwrap();
                fs::write(&path, &model[..model.len() / 2]).unwrap();
            },
            ErrorKind::Changed,
        ),
        (
            "weights of the model that is replaced",
            |_, folder| {
                let path = folder.join("m.onnx.data");
                let mut bytes = fs::read(&path).unwrap();
                bytes[0] ^= 1;
                std::thread::sleep(std::time::Duration::from_millis(20));
                fs::write(path, bytes).unwrap();
            },
            ErrorKind::Changed,
        ),
        (
            "a receipt that is no text",
            |job, _| {
                fs::write(job.folder().join("receipts/part-00001.json"), [255, 254]).unwrap();
            },
            ErrorKind::MissingTensor,
        ),
        (
            "half a receipt",
            |job, _| fs::write(job.folder().join("receipts/part-00001.json"), "{\"job\"").unwrap(),
            ErrorKind::MissingTensor,
        ),
        (
            "a receipt without a format",
            |job, _| rewrite_receipt(job, |text| text.replace("\"format\"", "\"form\"")),
            ErrorKind::MissingTensor,
        ),
        (
            "a receipt of a later version",
            |job, _| rewrite_receipt(job, |text| text.replace("\"version\":1", "\"version\":2")),
            ErrorKind::Unsupported,
        ),
        (
            "a receipt of no part",
            |job, _| {
                let receipts = job.folder().join("receipts");
                let text = fs::read_to_string(receipts.join("part-00001.json")).unwrap();
                let text = text.replace("part-00001", "part-00099");
                fs::write(receipts.join("part-00099.json"), text).unwrap();
            },
            ErrorKind::InvalidArgument,
        ),
        (
            "weights cut off",
            |job, _| fs::write(job.staged_file(0).unwrap(), "x").unwrap(),
            ErrorKind::Changed,
        ),
    ];
    for (case, damage, kind) in cases {
        let folder = tempfile::tempdir().unwrap();
        let job = cast_in_place(folder.path());
        damage(&job, folder.path());
        let before = contents(folder.path());
        let error = job.commit().unwrap_err();
        assert_eq!(error.kind(), kind, "{case}: {error}");
        assert!(contents(folder.path()) == before, "{case}");
        match case {
            "half a receipt" | "a receipt that is no text" | "a receipt without a format" => {
                assert_eq!(job.status().unwrap().missing, [1]);
                job.write(1).unwrap();
                job.commit().unwrap();
            }
            "a receipt of no part" => assert_eq!(job.status().unwrap_err().kind(), kind),
            _ => {}
        }
    }
}

#[test]
fn a_part_has_more_files_than_are_open_at_once() {
    let container = container_of(150);
    for slices in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let save = SaveOptions::from(WeightFiles::PerTensor).sync(slices);
        let options = JobOptions::from(save).slices(slices);
        let job = job_file(&declared(&container), folder.path(), options);
        if slices {
            let writer = job.slice_writer("r").unwrap();
            // All first halves, then all second ones: files are opened again.
            for half in [0_usize, 600] {
                for tensor in job.tensors() {
                    let bytes = container.get(format!("#{}", tensor.name).as_str()).unwrap();
                    let bytes = bytes.to_buffer().unwrap();
                    let slice = TensorSlice::new([half as u64 / 4], [150]);
                    writer.write(&tensor.name, &slice, &bytes[half..half + 600]).unwrap();
                }
            }
            writer.finish().unwrap();
        } else {
            job.write_from(0, &container).unwrap();
        }
        job.commit().unwrap();
        let loaded = Container::load(folder.path().join("m.onnx"), LoadOptions::new()).unwrap();
        assert_eq!(loaded.digest().unwrap(), container.digest().unwrap());
    }
}

/// A writer that notes what it has noted before adds nothing to its list.
#[test]
fn the_list_of_begun_slices_does_not_grow_with_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let job = sliced(folder.path(), false);
    let len = || fs::read(job.folder().join("receipts/r.slices")).unwrap().len();
    write_rows(&job, "r", 0, 6).unwrap();
    let first = len();
    for _ in 0..3 {
        write_rows(&job, "r", 0, 6).unwrap();
    }
    assert_eq!(len(), first);
    job.commit().unwrap();
}

#[cfg(unix)]
#[test]
fn a_source_in_the_folder_that_is_written_to_is_known_by_any_path() {
    for way in ["real", "link", "real/../real"] {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
        let target = folder.path().join("real/m.onnx");
        container_of(4).save(&target, SaveOptions::from(true).sync(false)).unwrap();
        let source = folder.path().join(way).join("m.onnx");
        let job = Job::rewrite(&source, &target, None, WeightFiles::PerTensor).unwrap();
        job.parts().for_each(|part| drop(job.write(part).unwrap()));
        let weights = folder.path().join("real/m.onnx.data");
        let mut bytes = fs::read(&weights).unwrap();
        bytes[0] ^= 1;
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&weights, bytes).unwrap();
        assert_eq!(job.commit().unwrap_err().kind(), ErrorKind::Changed, "{way}");
    }
}

/// What a killed commit has published is said, and stays.
#[cfg(unix)]
#[test]
fn an_abort_after_a_commit_says_that_the_model_is_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let job = sliced(folder.path(), false);
    write_rows(&job, "r", 0, 6).unwrap();
    // A foreign file keeps the folder, as a kill before its end does.
    fs::write(job.folder().join("slurm-1.out"), "").unwrap();
    job.commit().unwrap();
    fs::remove_file(job.folder().join("slurm-1.out")).unwrap();
    let files = contents(folder.path());
    let error = job.abort().unwrap_err();
    assert!(error.to_string().contains("had put its model in place"), "{error}");
    is_clean(folder.path());
    assert!(contents(folder.path()) == files);
}

/// What another save left is no reason to keep a job of which no commit has begun.
#[test]
fn a_job_is_aborted_beside_a_save_that_cannot_be_completed() {
    let folder = tempfile::tempdir().unwrap();
    let [other, job] = [(); 2].map(|()| job_file(&matrix(6, 10), folder.path(), 2));
    let journal = folder.path().join(".m.onnx.switching");
    fs::write(&journal, "no journal").unwrap();
    other.clone().abort().unwrap();
    assert!(!other.folder().exists());
    // The commit may have left it.
    fs::write(job.folder().join("committing"), "").unwrap();
    assert_eq!(job.clone().abort().unwrap_err().path(), Some(&*journal));
    // Also where the model was replaced by a folder.
    fs::create_dir(job.path()).unwrap();
    assert_eq!(job.clone().abort().unwrap_err().path(), Some(&*journal));
    fs::remove_dir(job.path()).unwrap();
    assert!(job.folder().exists());
    fs::remove_file(journal).unwrap();
    job.abort().unwrap();
    is_clean(folder.path());
}

/// A job that is written, and of which a commit has begun.
fn begun(folder: &Path) -> Job {
    let job = job_file(&matrix(6, 10), folder, 2);
    job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
    fs::write(job.folder().join("committing"), "").unwrap();
    job
}

/// What the folder of a job is called from its end on.
fn ended(job: &Job) -> std::path::PathBuf {
    job.folder().to_str().unwrap().replace(".job-", ".ended-").into()
}

/// A commit and an abort that were killed when the job had ended, before its files were removed.
#[cfg(target_os = "linux")]
#[test]
fn what_the_end_of_a_job_has_left_is_removed_by_the_next_call() {
    type Call = (&'static str, fn(&Job) -> Result<()>);
    let calls: [Call; 4] = [
        ("commit", |job| job.commit().map(|done| assert!(done.already))),
        ("commit_job", |job| commit_job(job.folder()).map(|done| assert!(done.already))),
        ("abort", |job| job.clone().abort()),
        ("abort_job", |job| abort_job(job.folder())),
    ];
    for (name, again) in calls {
        let folder = tempfile::tempdir().unwrap();
        let job = job_file(&matrix(6, 10), folder.path(), 2);
        job.parts().for_each(|part| drop(job.write_from(part, &matrix(6, 10)).unwrap()));
        if name.starts_with("commit") {
            job.commit().unwrap();
            let new = ended(&job).join("new");
            fs::create_dir_all(&new).unwrap();
            let data = &job.files()[0].name;
            fs::hard_link(folder.path().join(data), new.join(data)).unwrap();
        } else {
            fs::rename(job.folder(), ended(&job)).unwrap();
        }
        again(&job).unwrap();
        is_clean(folder.path());
        assert_eq!(again(&job).is_ok(), name.starts_with("commit"), "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_commit_begins_while_a_job_is_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let job = begun(folder.path());
    // As a save that replaces files: the abort waits for it.
    let save = fs::File::open(folder.path()).unwrap();
    save.lock().unwrap();
    thread::scope(|scope| {
        let abort = scope.spawn(|| job.clone().abort());
        thread::sleep(std::time::Duration::from_millis(200));
        assert!(!abort.is_finished());
        let error = job.commit().unwrap_err();
        assert!(error.reason().contains("is being written or committed"), "{error}");
        save.unlock().unwrap();
        abort.join().unwrap().unwrap();
    });
    is_clean(folder.path());
    assert!(!job.path().exists());
}

/// Where a file has one name, a commit puts copies in place.
#[test]
fn an_abort_knows_the_copies_of_a_commit_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let job = begun(folder.path());
    for file in job.files() {
        let staged = job.folder().join("new").join(&file.name);
        fs::copy(staged, folder.path().join(&file.name)).unwrap();
    }
    fs::copy(job.folder().join("model.onnx"), job.path()).unwrap();
    let error = job.clone().abort().unwrap_err();
    assert!(error.reason().contains("had put its model in place"), "{error}");
    is_clean(folder.path());
    assert_eq!(
        Container::load(job.path(), LoadOptions::new()).unwrap().digest().unwrap(),
        matrix(6, 10).digest().unwrap()
    );
}

/// The one that is later finds no job, at whatever call.
#[test]
fn of_two_aborts_at_once_one_says_that_the_job_was_aborted() {
    for _ in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let job = job_file(&matrix(6, 10), folder.path(), 2);
        let ended = thread::scope(|scope| {
            let aborts = [(); 2].map(|()| scope.spawn(|| job.clone().abort()));
            aborts.map(|abort| abort.join().unwrap())
        });
        assert!(ended.iter().any(Result::is_ok), "{ended:?}");
        for error in ended.into_iter().filter_map(Result::err) {
            assert!(error.reason().contains("the job is not there: it was aborted"), "{error}");
        }
        is_clean(folder.path());
    }
}

#[test]
fn a_job_whose_folder_was_moved_is_not_said_to_be_aborted_alone() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    for old in [false, true] {
        if old {
            matrix(3, 5).save(folder.path().join("m.onnx"), true).unwrap();
        }
        let job = job_file(&matrix(6, 10), folder.path(), 1);
        fs::rename(job.folder(), elsewhere.path().join(job.id())).unwrap();
        for error in [
            job.status().map(drop).unwrap_err(),
            job.missing_parts().map(drop).unwrap_err(),
            job.write_from(0, &matrix(6, 10)).map(drop).unwrap_err(),
            job.commit().map(drop).unwrap_err(),
            job.abort().unwrap_err(),
        ] {
            assert!(error.reason().contains("its folder was moved"), "{error}");
        }
    }
}

/// Nothing has to be written, so nothing is missing.
#[test]
fn a_job_without_weights_in_files_misses_no_part() {
    let folder = tempfile::tempdir().unwrap();
    let model = Container::new(ModelProto::new(GraphProto::new("g")));
    let job = Job::plan(&model, folder.path().join("m.onnx"), JobOptions::new()).unwrap();
    let status = job.status().unwrap();
    assert!(status.missing.is_empty() && status.is_complete, "{status:?}");
    assert!(job.missing_parts().unwrap().is_empty());
    job.commit().unwrap();
}

#[test]
fn numbers_that_a_cast_makes_infinite_are_told_by_the_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    let mut container = container_of(3);
    let mut large = vec![1.0_f32; 300];
    large[7] = 1e6;
    container.insert("#w1", large).unwrap();
    container.save(&path, SaveOptions::from(true).sync(false)).unwrap();
    for (to, infinite) in [(DataType::Float16, vec!["w1"]), (DataType::Bfloat16, vec![])] {
        let to = Some(Recast::new(to));
        let job = Job::rewrite(&path, folder.path().join("n.onnx"), to, 3).unwrap();
        job.parts().for_each(|part| drop(job.write(part).unwrap()));
        assert_eq!(job.commit().unwrap().infinite, infinite);
    }
}
