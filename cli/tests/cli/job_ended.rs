//! Jobs that have ended: what `job status`, `job write` and `job commit` say of them.

use onnx_container::job::{Job, JobOptions};
use onnx_container::{Container, LoadOptions, SaveOptions};

use crate::job::folder;
use crate::job_places::{Place, places};
use crate::support::{Folder, Run};

/// The places where it can be told that a job was committed.
fn telling() -> Vec<Box<dyn Place>> {
    let all = places();
    if cfg!(target_os = "linux") {
        return all;
    }
    println!("!!! SKIPPED: files have no marks of a commit here, so that folders cannot tell");
    all.into_iter().filter(|place| place.out().contains("://")).collect()
}

/// Plans a job of two parts; returns JOB as a file and as a folder.
fn planned(place: &dyn Place, folder: &Folder) -> [String; 2] {
    let plan = "job rewrite m.onnx OUT --parts 2 -o m.job --json";
    let planned = place.run(folder, plan);
    assert_eq!(planned.code(), 0, "{planned:?}");
    ["m.job".to_owned(), planned.json()["folder"].as_str().unwrap().to_owned()]
}

fn run(place: &dyn Place, folder: &Folder, line: &str) -> Run {
    place.run(folder, line)
}

#[test]
fn a_job_that_is_committed_says_so_and_whether_its_model_is_still_there() {
    let folder = folder();
    folder.run(&["embed", "m.onnx", "other.onnx"]).done();
    for place in telling() {
        let run = |line: &str| run(&*place, &folder, line);
        let jobs = planned(&*place, &folder);
        run("job write m.job --all").done();
        run("job commit m.job").done();
        for (replaced, said) in [
            (false, "committed: the model is in place"),
            (true, "committed: the model was replaced or changed since"),
        ] {
            if replaced {
                place.replace(&folder, "other.onnx");
            }
            for job in &jobs {
                let status = run(&format!("job status {job}")).done().says(&[said]).stdout();
                assert!(!status.contains("next"), "{status}");
                let json = run(&format!("job status {job} --json")).done().json();
                for key in ["committed", "ended", "complete"] {
                    assert_eq!(json[key], true, "{json}");
                }
                assert_eq!(json["replaced"], replaced, "{json}");
                assert_eq!(json["missing"], serde_json::json!([]), "{json}");
                for parts in ["0", "0-1", "--all"] {
                    let line = format!("job write {job} {parts}");
                    run(&line).done().says(&[
                        "found     the job was ",
                        said,
                        "nothing is left to write",
                    ]);
                    let json = run(&format!("{line} --json")).done().json();
                    assert_eq!(
                        (&json["committed"], &json["replaced"]),
                        (&true.into(), &replaced.into())
                    );
                    assert_eq!(
                        (&json["written"], &json["bytes"]),
                        (&serde_json::json!([]), &0.into())
                    );
                }
            }
            run("job write m.job 2").failed(&["has the parts 0 to 1, not 2"]);
            let commit = run("job commit m.job");
            match (replaced, place.out()) {
                (false, _) => drop(commit.done().says(&["was committed already"])),
                (true, "o.onnx") => drop(commit.failed(&["it was committed, and its model"])),
                (true, _) => drop(commit.done().says(&["was committed already", "was replaced"])),
            }
        }
    }
}

#[test]
fn a_job_that_was_aborted_is_an_error() {
    let folder = folder();
    for place in places() {
        let jobs = planned(&*place, &folder);
        run(&*place, &folder, "job abort m.job").done();
        for job in &jobs {
            for line in ["status JOB", "write JOB 0", "write JOB --all", "commit JOB"] {
                let line = format!("job {}", line.replace("JOB", job));
                run(&*place, &folder, &line).failed(&["aborted"]);
            }
        }
    }
}

#[test]
fn a_part_whose_receipt_was_damaged_is_written_again() {
    let folder = folder();
    for place in places() {
        let [file, job] = planned(&*place, &folder);
        place.run(&folder, "job write m.job --all").done();
        place.damage_receipt(&folder, &job);
        let next = "next      `onnx-container job write m.job 1`";
        let status = place.run(&folder, &format!("job status {file}"));
        assert_eq!(status.code(), 1, "{status:?}");
        status.says(&["missing   part 1", next]);
        let call = "`onnx-container job write m.job 1`";
        place.run(&folder, "job commit m.job").failed(&["part 1 is not written", call]);
        place.run(&folder, "job write m.job --all").done().says(&["wrote     part 1"]);
        place.run(&folder, "job commit m.job").done();
        // Beside a part that has none.
        let [_, job] = planned(&*place, &folder);
        place.run(&folder, "job write m.job 1").done();
        place.damage_receipt(&folder, &job);
        place.run(&folder, "job commit m.job").failed(&["parts 0-1 are not written"]);
        let all = place.run(&folder, "job write m.job --all");
        all.done().says(&["wrote     part 0", "wrote     part 1", "next      "]);
        place.run(&folder, "job commit m.job").done();
    }
}

#[test]
fn a_job_of_slices_is_complete_when_they_are_written() {
    let folder = folder();
    let container = Container::load(folder.path("m.onnx"), LoadOptions::new()).unwrap();
    let options = JobOptions::from(SaveOptions::new()).slices(true);
    let job = Job::plan(&container, folder.path("o.onnx"), options).unwrap();
    let path = job.folder().display().to_string();
    let write = |is_complete: bool| {
        let written = folder.run(&["job", "write", &path, "--all", "--json"]).done().json();
        assert_eq!(written["complete"], is_complete, "{written}");
        let said = folder.run(&["job", "write", &path, "--all"]).done().stdout();
        assert_eq!(said.contains("job commit"), is_complete, "{said}");
        assert_eq!(said.contains("missing   slices"), !is_complete, "{said}");
    };
    write(false);
    let writer = job.slice_writer("r").unwrap();
    for tensor in job.tensors() {
        let start = vec![0; tensor.dims.len()];
        let handle = format!("#{}", tensor.name);
        writer.write_from(&tensor.name, start, container.get(&handle).unwrap()).unwrap();
    }
    writer.finish().unwrap();
    write(true);
}

/// In a folder `recover` removes it too, which takes no URL.
#[test]
fn what_a_commit_left_is_called_so_by_every_command() {
    let folder = folder();
    for place in places() {
        let is_stored = place.out().contains("://");
        let [file, job] = planned(&*place, &folder);
        place.run(&folder, "job write m.job --all").done();
        place.commit_but_for_the_end(&folder, &job);
        let status = [format!("job status {file}"), format!("job status {job}")];
        let others = ["job list .", "check o.onnx", "scan ."].map(str::to_owned);
        let lines = status.into_iter().chain(others.into_iter().filter(|_| !is_stored));
        for line in lines {
            let said = "committed: the model is in place; `job commit` again removes what is left";
            let run = place.run(&folder, &line).done().says(&[said]);
            assert_eq!(run.stdout().contains("recover"), !is_stored, "{line}: {run:?}");
        }
        place.run(&folder, &format!("job commit {file}")).done();
        let status = place.run(&folder, "job status m.job").stdout();
        assert!(!status.contains("what is left"), "{status}");
    }
}

/// A job of which nobody can tell it is a finding, and none that is dropped.
#[test]
fn a_check_says_why_it_is_not_known_whether_a_job_is_committed() {
    let folder = folder();
    let job = folder.path(".m.onnx.job-aB3xYz");
    std::fs::create_dir(&job).unwrap();
    std::fs::write(job.join("job.json"), "no job").unwrap();
    let check = || folder.run(&["check", "m.onnx"]).done();
    let open = "a job that writes this model";
    assert!(!check().says(&[open]).stdout().contains("not a job"));
    std::fs::write(job.join("committing"), "").unwrap();
    check().says(&[open, "job.json", "not a job"]);
    let scan = folder.run(&["scan", "."]);
    assert!(scan.code() == 1 && scan.stderr().contains("not a job"), "{scan:?}");
}

#[test]
fn what_a_commit_left_counts_once() {
    let folder = folder();
    let place = &places()[0];
    let [_, job] = planned(&**place, &folder);
    let job = job.rsplit('/').next().unwrap();
    folder.run(&["job", "write", "m.job", "--all"]).done();
    place.commit_but_for_the_end(&folder, job);
    folder.run(&["scan", "."]).done().says(&[job]);
    let scan = || folder.run(&["scan", ".", "--json"]).done().json()["scans"][0].clone();
    let found = scan();
    let left = &found["left"][0];
    assert_eq!((&left["kind"], found["left"].as_array().unwrap().len()), (&"committed".into(), 1));
    // The files of the model have another name there, and are those of the model.
    let bytes = left["bytes"].as_u64().unwrap();
    let own = std::fs::read_dir(folder.path(job)).unwrap().map(|it| it.unwrap());
    let own = own.filter(|it| it.file_type().unwrap().is_file());
    let own: u64 = own.map(|it| it.metadata().unwrap().len()).sum();
    assert!((own..own + 5000).contains(&bytes), "{bytes} {own}");
    assert_eq!(found["reclaimable_bytes"], bytes, "{found}");
    folder.run(&["recover", "."]).done().says(&["1 folder of jobs that had ended"]);
    let after = scan();
    let total = |scan: &serde_json::Value| scan["bytes"].as_u64().unwrap();
    assert_eq!(total(&found) - bytes, total(&after), "{found}");
    assert_eq!(after["left"], serde_json::json!([]));
    folder.run(&["job", "list", "."]).done().says(&["no jobs"]);
}
