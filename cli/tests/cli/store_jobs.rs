//! `job` on models in stores.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::job::folder;
use crate::store_server::Server;
use crate::support::{Folder, Run, assert_written_of_8, tensors};

/// Where the models are.
const HALF: &str = "s3://b/models/m16.onnx";

/// A store that has `m.onnx` of the folder.
fn store(folder: &Folder) -> Server {
    let server = Server::new();
    for name in ["m.onnx", "m.onnx.data"] {
        server.put(&format!("models/{name}"), fs::read(folder.path(name)).unwrap());
    }
    server
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Plans a job and returns the URL of its folder.
fn planned(server: &Server, folder: &Folder, line: &str) -> String {
    let line = format!("job rewrite {line} -o given.job --json");
    let run = server.run(folder, &words(&line));
    assert_eq!(run.code(), 0, "{run:?}");
    run.json()["folder"].as_str().unwrap().to_owned()
}

/// The names of the objects that are of jobs which go on.
fn of_jobs(server: &Server) -> Vec<String> {
    let is_of_job = |name: &String| name.contains(".job-");
    let says_end =
        |name: &String| ["/committed.json", "/aborted.json"].iter().any(|it| name.ends_with(it));
    server.names().into_iter().filter(|name| is_of_job(name) && !says_end(name)).collect()
}

/// The tensors of a model in the store.
fn stored(server: &Server, folder: &Folder, url: &str) -> Vec<(String, String, Vec<u8>)> {
    fs::create_dir_all(folder.path("fetched")).unwrap();
    server.run(folder, &["pack", url, "fetched/o.onnx"]).done();
    tensors(&folder.path("fetched/o.onnx"))
}

#[test]
fn the_tensors_are_those_of_pack_and_of_cast() {
    let folder = folder();
    let server = store(&folder);
    for (number, (source, options, other)) in [
        ("m.onnx", "", "pack m.onnx o.onnx"),
        ("inline.onnx", " --min-bytes 4", "pack inline.onnx o.onnx --min-bytes 4"),
        ("s3://b/models/m.onnx", " --align 4096 --data-name w", "pack m.onnx o.onnx"),
        ("s3://b/models/m.onnx", " --digests", "pack m.onnx o.onnx --digests"),
        (
            "s3://b/models/m.onnx",
            " --cast float16 --keep-io --except w3",
            "cast m.onnx o.onnx --to float16 --keep-io --except w3",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        folder.run(&words(other)).done();
        let url = format!("s3://b/models/{number}.onnx");
        let job = planned(&server, &folder, &format!("{source} {url} --parts 3{options}"));
        let run = |line: &str| server.run(&folder, &words(&line.replace("JOB", &job)));
        // From the last part on, and one twice.
        run("job write JOB 2").done().says(&["part 2"]);
        let status = run("job status JOB");
        assert_eq!(status.code(), 1, "{status:?}");
        status.says(&[
            "1 of 3 parts",
            "parts 0-1",
            &format!("`onnx-container job write {job} 0-1`"),
        ]);
        run("job write JOB 0-1 2 1").done().says(&[&format!("`onnx-container job commit {job}`")]);
        assert_eq!(run("job status JOB").code(), 0);
        assert!(!server.names().contains(&format!("models/{number}.onnx")));
        let committed = run("job commit JOB").done().says(&["wrote", &url, "digest", "tag"]);
        assert_eq!(stored(&server, &folder, &url), tensors(&folder.path("o.onnx")), "{options}");
        let digest = server.run(&folder, &["digest", &url]).done().stdout();
        committed.says(&[digest.split_whitespace().next().unwrap()]);
        if options.contains("digests") {
            server.run(&folder, &["check", &url, "--digests"]).done();
        }
        assert_eq!(of_jobs(&server), [""; 0]);
    }
}

#[test]
fn a_job_is_named_by_its_folder_its_description_or_a_copy() {
    let folder = folder();
    let server = store(&folder);
    let line = format!("job rewrite m.onnx {HALF} --parts 3");
    let json = server.run(&folder, &words(&line)).done().stdout();
    fs::write(folder.path("copy.json"), &json).unwrap();
    let printed: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(printed["format"], "onnx-container store job");
    let id = printed["job"]["id"].as_str().unwrap();
    let by_folder = format!("s3://b/models/.m16.onnx.job-{id}");
    let names = [
        by_folder.clone(),
        format!("{by_folder}/"),
        format!("{by_folder}/job.json"),
        "copy.json".to_owned(),
    ];
    for (part, job) in names.iter().take(3).enumerate() {
        let done = server.run(&folder, &["job", "write", job, &part.to_string()]).done();
        let report = server.run(&folder, &["job", "status", job, "--json"]).json();
        assert_eq!(report["folder"], by_folder.as_str(), "{done:?}");
        assert_eq!(report["model"], HALF);
    }
    // From another folder, with the path that IN has there.
    fs::create_dir(folder.path("elsewhere")).unwrap();
    let mut write = server.command(&folder, &["job", "write", "../copy.json", "0-2"]);
    assert!(write.current_dir(folder.path("elsewhere")).output().unwrap().status.success());
    server.run(&folder, &["job", "commit", &names[3]]).done();
    assert_eq!(stored(&server, &folder, HALF), tensors(&folder.path("m.onnx")));
    for job in &names {
        server.run(&folder, &["job", "commit", job]).done().says(&["was committed already", HALF]);
        let report = server.run(&folder, &["job", "commit", job, "--json"]).done().json();
        assert_eq!((&report["already"], &report["model"]), (&true.into(), &HALF.into()));
        let abort = server.run(&folder, &["job", "abort", job]);
        abort.failed(&["the job is not there: it was committed"]);
    }
}

#[test]
fn what_is_missing_is_named_with_the_call_that_writes_it() {
    let folder = folder();
    let server = store(&folder);
    let job = planned(&server, &folder, &format!("m.onnx {HALF} --parts 8"));
    let run = |line: &str| server.run(&folder, &words(&line.replace("JOB", &job)));
    run("job write JOB 0-2 4-6").done().says(&["parts 3, 7"]);
    let call = format!("`onnx-container job write {job} 3 7`");
    // How often receipts were read since the last call.
    let reads = || {
        let is_read = |asked: &&String| asked.starts_with("GET ") && asked.contains("/receipts/");
        server.asked().iter().filter(is_read).count()
    };
    reads();
    run("job commit JOB").failed(&["parts 3, 7 are not written", &call]);
    assert_eq!(reads(), 6 + 6, "by the commit, and for the numbers of what is missing");
    run("job write JOB 8").failed(&["has the parts 0 to 7, not 8"]);
    run("job write JOB 3 8").failed(&["has the parts 0 to 7, not 8"]);
    run("job status JOB").says(&["6 of 8 parts", &call]);
    for wrong in ["job write JOB", "job write JOB 7-3", "job write JOB 3 --all"] {
        assert_eq!(run(wrong).code(), 2, "{wrong}");
    }
    reads();
    run("job write JOB --all").done().says(&["part 3", "part 7"]);
    // All receipts are read before and after, and for each part its own is looked for.
    assert!(reads() <= 6 + 2 + 8);
    run("job write JOB 0").done().says(&["found"]);
    assert_eq!(reads(), 1);
    run("job commit JOB").done();
    // An array of more tasks than tensors.
    let job = planned(&server, &folder, &format!("m.onnx {HALF} --parts 64"));
    let run = |line: &str| server.run(&folder, &words(&line.replace("JOB", &job)));
    let empty = run("job write JOB 8-63").done();
    let empty = empty.says(&["empty     56 parts without bytes: parts 8-63"]).stdout();
    assert!(!empty.contains("wrote") && !empty.contains("found"), "{empty}");
    run("job write JOB 3").done().says(&["wrote     part 3: 1 tensor"]);
    let again = run("job write JOB 3").done().says(&["found     part 3: 1 tensor"]).stdout();
    assert!(again.contains("was written already") && !again.contains("wrote"), "{again}");
    let all = run("job write JOB 0-63 --json").done().json();
    assert_written_of_8(&all, 3);
    run("job commit JOB").done();
}

#[test]
fn a_part_that_is_written_is_not_sent_again() {
    let folder = folder();
    let server = store(&folder);
    let job = planned(&server, &folder, &format!("m.onnx {HALF} --parts 2"));
    server.run(&folder, &["job", "write", &job, "1"]).done();
    server.asked();
    let again = server.run(&folder, &["job", "write", &job, "1", "--json"]).done().json();
    assert!(server.asked().iter().all(|it| !it.starts_with('P')));
    assert_eq!((&again["written"][0]["part"], &again["missing"][0]), (&1.into(), &0.into()));
}

#[test]
fn a_source_that_has_changed_is_not_written() {
    let folder = folder();
    let server = store(&folder);
    let changed = ["changed after the job was planned"];
    for source in ["s3://b/models/m.onnx", "m.onnx"] {
        let job = planned(&server, &folder, &format!("{source} {HALF} --parts 2"));
        server.run(&folder, &["job", "write", &job, "0"]).done();
        match source {
            "m.onnx" => drop(folder.run(&["pack", "m.onnx", "m.onnx", "--align", "512"]).done()),
            _ => server.put("models/m.onnx.data", fs::read(folder.path("m.onnx.data")).unwrap()),
        }
        server.run(&folder, &["job", "write", &job, "1"]).failed(&changed);
        let status = server.run(&folder, &["job", "status", &job, "--json"]);
        assert_eq!((status.code(), &status.json()["missing"][0]), (1, &1.into()));
        server.run(&folder, &["job", "abort", &job]).done().says(&["removed", &job]);
    }
    assert_eq!(of_jobs(&server), [""; 0]);
}

#[test]
fn jobs_are_listed_and_ended() {
    let folder = folder();
    let server = store(&folder);
    let list = |at: &str| server.run(&folder, &["job", "list", at]);
    list("s3://b/models/").done().says(&["no jobs"]);
    let first = planned(&server, &folder, &format!("m.onnx {HALF} --parts 2"));
    let plan =
        |url: &str, job: &str| server.run(&folder, &["job", "rewrite", "m.onnx", url, "-o", job]);
    plan("s3://b/models/m1.onnx", "other.job").done();
    // Each plan tells of the jobs of its model.
    for (number, job) in ["second.job", "third.job"].into_iter().enumerate() {
        let run = plan(HALF, job);
        assert_eq!(run.code(), 0, "{run:?}");
        let told = run.stderr().matches("is another job of this model").count();
        assert_eq!(told, number + 1, "{run:?}");
    }
    server.run(&folder, &["job", "abort", "third.job"]).done();
    server.run(&folder, &["job", "write", &first, "0"]).done();
    for at in ["s3://b/models/", "s3://b/models"] {
        list(at).done().says(&[&format!("{first}: 1 of 2 parts"), ".m1.onnx.job-"]);
    }
    // A description that cannot be read.
    let key = format!("{}/job.json", first.strip_prefix("s3://b/").unwrap());
    server.put(&key, b"{".to_vec());
    let json = server.run(&folder, &["job", "list", "s3://b/models", "--json"]).done().json();
    assert_eq!(json["folder"], "s3://b/models");
    assert!(json["jobs"].as_array().unwrap().iter().any(|job| {
        job["folder"] == first.as_str()
            && job["model"].is_null()
            && job["reason"].as_str().unwrap().contains("not a job")
    }));
    for job in [&first, "second.job", "other.job"] {
        server.run(&folder, &["job", "abort", job]).done();
    }
    assert_eq!(of_jobs(&server), [""; 0]);
    list("s3://b").done().says(&["no jobs"]);
    server.state().folders.insert("models/.m16.onnx.job-a1B2c3/".to_owned());
    list("s3://b/models").done().says(&["no jobs"]);
    plan(HALF, "last.job").done();
}

#[test]
fn options_of_the_other_kind_of_place_are_refused() {
    let folder = folder();
    let server = store(&folder);
    let (before, files) = (server.names(), folder.contents());
    let one = "each part is a weights file: --parts says how many";
    let store = "this is for a model in a store: give the URL of one as OUT";
    for (line, said) in [
        ("m.onnx URL --safetensors", one),
        ("m.onnx URL --max-shard-size 10KB", one),
        ("m.onnx URL --per-tensor", one),
        ("m.onnx URL --no-clobber", "--create fails where there is a model"),
        ("m.onnx URL --keep-old", "until `sweep` removes them"),
        ("m.onnx URL --delete-old", "until `sweep` removes them"),
        ("m.onnx URL --no-sync", "no files to flush"),
        ("m.onnx URL --allow-over-2gib", "at most 2 GiB"),
        ("m.onnx URL --create --unconditional", "cannot be used with"),
        ("m.onnx o.onnx --create", "in a folder --no-clobber fails"),
        ("m.onnx o.onnx --keep 2", store),
        ("m.onnx o.onnx --expect a", store),
        ("m.onnx o.onnx --unconditional", store),
        (
            "s3://b/models/m.onnx o.onnx",
            "give a URL as OUT, or copy the model to a folder first, by `onnx-container pack",
        ),
        ("m.onnx URL --store-option aws_secret_access_key=hidden", "is a secret"),
        ("m.onnx s3://me:secret@b/m.onnx", "a user or a password"),
    ] {
        let line = format!("job rewrite {}", line.replace("URL", HALF));
        let run = server.run(&folder, &words(&line)).misused(&[said]);
        let all = run.stdout() + &run.stderr();
        assert!(!all.contains("hidden") && !all.contains("secret@"), "{all}");
    }
    for (line, said) in [
        ("job rewrite m.onnx s3://b/models/", "call the model *.onnx"),
        ("job rewrite m.onnx https://h/m16.onnx", "a web server is for reading only"),
        ("job rewrite m.onnx s3://b/models/m.onnx --create", "there is a model already"),
        ("job rewrite m.onnx s3://b/models/m.onnx --expect a", "its tag is"),
        ("job rewrite m.onnx s3://b/m16.onnx --parts 0", "1 to 100000 parts"),
        ("job status s3://b/models/m.onnx", "this is no job of a model"),
        ("job abort s3://b/models/.m.onnx.job-a1B2c3", "was committed or aborted"),
    ] {
        let run = server.run(&folder, &words(line));
        assert_eq!(run.code(), 1, "{line}: {run:?}");
        run.failed(&[said]);
    }
    assert_eq!(server.names(), before);
    assert!(folder.contents() == files);
}

#[test]
fn the_model_that_was_there_is_replaced_and_no_other() {
    let folder = folder();
    let server = store(&folder);
    let url = "s3://b/models/m.onnx";
    let late = planned(&server, &folder, &format!("m.onnx {url} --cast float16"));
    let job = planned(&server, &folder, &format!("{url} {url} --keep 2"));
    for job in [&job, &late] {
        server.run(&folder, &["job", "write", job, "0"]).done();
    }
    let committed = server.run(&folder, &["job", "commit", &job, "--json"]).done().json();
    let version = committed["version"].as_str().unwrap();
    server.run(&folder, &["versions", url]).done().says(&[version]);
    let files = committed["files"].as_array().unwrap();
    assert_eq!(files.last().unwrap()["path"], url);
    let weights = files[0]["path"].as_str().unwrap().strip_prefix("s3://b/").unwrap();
    assert!(server.names().iter().any(|name| name == weights), "{weights}");
    server.run(&folder, &["job", "commit", &late]).failed(&[url]);
    assert_eq!(stored(&server, &folder, url), tensors(&folder.path("m.onnx")));
    server.run(&folder, &["job", "abort", &late]).done();
    // By its tag.
    let tag = committed["e_tag"].as_str().unwrap();
    let job = planned(&server, &folder, &format!("m.onnx {url} --expect {tag}"));
    server.run(&folder, &["job", "write", &job, "--all"]).done();
    server.run(&folder, &["job", "commit", &job]).done();
    // A store that ignores conditions.
    let server = store(&folder);
    server.state().lies = true;
    let plan = ["job", "rewrite", "m.onnx", HALF, "-o", "lies.job"];
    server.run(&folder, &plan).failed(&["two writers", "--unconditional"]);
    assert_eq!(of_jobs(&server), [""; 0]);
    server.run(&folder, &[&plan[..], &["--unconditional"]].concat()).done();
    server.run(&folder, &["job", "write", "lies.job", "0"]).done();
    server.run(&folder, &["job", "commit", "lies.job"]).done();
}

#[test]
fn what_a_job_stores_has_no_credentials() {
    let folder = folder();
    let server = store(&folder);
    let secrets = [
        ("AWS_SKIP_SIGNATURE", "false"),
        ("AWS_ACCESS_KEY_ID", "KEYOFTHETEST"),
        ("AWS_SECRET_ACCESS_KEY", "SECRETOFTHETEST"),
        ("AWS_SESSION_TOKEN", "TOKENOFTHETEST"),
    ];
    let run = |line: &str| {
        let mut command = server.command(&folder, &words(line));
        let run = Run::of(command.envs(secrets).output().unwrap()).done();
        run.stdout() + &run.stderr()
    };
    let option = "--store-option aws_region=eu-west-1";
    let said = [
        run(&format!("job rewrite s3://b/models/m.onnx {HALF} --parts 2 -o m.job {option}")),
        run(&format!("job write m.job 0-1 {option}")),
    ];
    let stored = server.state().objects.values().flat_map(|(bytes, _)| bytes.clone()).collect();
    let files = [stored, fs::read(folder.path("m.job")).unwrap()];
    let files = files.map(|bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned());
    for text in said.iter().chain(&files) {
        assert!(!text.contains("OFTHETEST") && !text.contains("eu-west-1"));
    }
    run("job commit m.job");
}

/// Starts a writer of a part.
fn writer(server: &Server, folder: &Folder, part: usize) -> Child {
    let mut command = server.command(folder, &["job", "write", "m.job", &part.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Eight at once, of which some are killed and started again, and some run twice.
#[test]
fn processes_that_are_killed_and_started_again_write_one_model() {
    let folder = folder();
    let server = store(&folder);
    let plan = format!("job rewrite s3://b/models/m.onnx {HALF} --parts 8 -o m.job");
    server.run(&folder, &words(&plan)).done();
    let mut waiting: Vec<usize> = (0..8).chain([3, 3, 7]).rev().collect();
    let (mut running, mut turn, mut killed) = (Vec::new(), 0_usize, 0);
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < 8 {
            let Some(part) = waiting.pop() else { break };
            running.push((part, writer(&server, &folder, part)));
        }
        turn += 1;
        std::thread::sleep(std::time::Duration::from_millis(turn as u64 * 7 % 30));
        let (part, mut child) = running.remove(turn % running.len());
        if killed < 6 && turn.is_multiple_of(2) {
            // It may have ended before.
            let _ = child.kill();
            child.wait().unwrap();
            killed += 1;
            waiting.insert(0, part);
        } else {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    server.run(&folder, &["job", "commit", "m.job"]).done();
    assert_eq!(stored(&server, &folder, HALF), tensors(&folder.path("m.onnx")));
    assert_eq!(of_jobs(&server), [""; 0]);
}

#[cfg(unix)]
#[test]
fn xargs_writes_the_parts() {
    let folder = folder();
    let server = store(&folder);
    let job = planned(&server, &folder, &format!("m.onnx {HALF} --parts 8"));
    let mut shell = Command::new("sh");
    let script = "seq 0 7 | xargs -P 8 -n 1 \"$0\" job write \"$1\" && \"$0\" job commit \"$1\"";
    shell.args(["-c", script]).arg(assert_cmd::cargo::cargo_bin!("onnx-container")).arg(&job);
    server.is_known_to(&mut shell);
    Run::of(shell.current_dir(folder.path("")).output().unwrap()).done();
    assert_eq!(stored(&server, &folder, HALF), tensors(&folder.path("m.onnx")));
}

/// The model is there after any of the commits: one publishes it, or finds it published.
#[test]
fn a_commit_of_several_at_once_publishes_one_model() {
    let folder = folder();
    let server = store(&folder);
    let job = planned(&server, &folder, &format!("m.onnx {HALF} --parts 2"));
    server.run(&folder, &["job", "write", &job, "--all"]).done();
    let mut commits: Vec<_> = (0..4)
        .map(|_| {
            let mut command = server.command(&folder, &["job", "commit", &job]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let codes: Vec<_> = commits.iter_mut().map(|it| it.wait().unwrap().success()).collect();
    assert!(codes.contains(&true), "{codes:?}");
    assert_eq!(stored(&server, &folder, HALF), tensors(&folder.path("m.onnx")));
    assert_eq!(of_jobs(&server), [""; 0]);
}

#[test]
fn a_sweep_names_the_jobs_that_nobody_has_ended() {
    let folder = folder();
    let server = store(&folder);
    let sweep = |args: &[&str]| server.run(&folder, &[&["sweep", "s3://b/"], args].concat()).done();
    assert!(!sweep(&[]).stdout().contains("open"));
    let job = planned(&server, &folder, &format!("m.onnx {HALF} --parts 3"));
    server.run(&folder, &["job", "write", &job, "1"]).done();
    let other = planned(&server, &folder, "m.onnx s3://b/other/o.onnx");
    sweep(&[]).says(&["open      2 jobs", "`job abort`", &job, "old, 1 part written", &other]);
    let told = sweep(&["--delete", "--older-than", "0s", "--json"]).json()["jobs"].clone();
    let mut expected = [(&*job, HALF, 1), (&*other, "s3://b/other/o.onnx", 0)];
    expected.sort();
    assert_eq!(told.as_array().unwrap().len(), expected.len(), "{told}");
    for (told, (folder, model, written)) in told.as_array().unwrap().iter().zip(expected) {
        let same = (told["folder"] == folder, told["model"] == model, told["written"] == written);
        assert_eq!(same, (true, true, true), "{told}");
        assert!(told["age_seconds"].as_u64().is_some(), "{told}");
    }
    for job in [job, other] {
        server.run(&folder, &["job", "abort", &job]).done();
    }
    assert_eq!(sweep(&["--json"]).json()["jobs"], Value::Array(Vec::new()));
}

#[test]
fn a_source_in_a_store_is_opened_within_the_limits_of_the_plan() {
    let folder = folder();
    let server = store(&folder);
    for source in ["m.onnx", "s3://b/models/m.onnx"] {
        let line = format!("job rewrite {source} {HALF} -o m.job");
        let run = server.run(&folder, &words(&format!("{line} --limit tensors=8")));
        assert_eq!(run.code(), 1, "{run:?}");
        run.failed(&["more than 8 tensors"]);
        assert_eq!(of_jobs(&server), [""; 0]);
        server.run(&folder, &words(&format!("{line} --limit tensors=9"))).done();
        assert!(fs::read_to_string(folder.path("m.job")).unwrap().contains("\"tensors\":9"));
        server.run(&folder, &words("job write m.job --all")).done();
        server.run(&folder, &words("job commit m.job")).done();
        assert_eq!(stored(&server, &folder, HALF), tensors(&folder.path("m.onnx")));
    }
}

#[test]
fn a_model_that_nobody_may_ask_of_is_not_said_to_be_in_place() {
    let folder = folder();
    let server = store(&folder);
    let job = planned(&server, &folder, &format!("m.onnx {HALF} --parts 2"));
    let run = |line: &str| server.run(&folder, &words(&line.replace("JOB", &job)));
    run("job write JOB --all").done();
    run("job commit JOB").done();
    server.state().refused = Some("models/m16.onnx".to_owned());
    let refused = "does not allow it";
    for line in ["job status JOB", "job write JOB --all", "job write JOB 0"] {
        run(line).failed(&[HALF, refused]);
    }
    let again = run("job commit JOB --json");
    assert_eq!(again.code(), 0, "{again:?}");
    let warnings = again.json()["warnings"].to_string();
    for said in [HALF, refused, "not known to be still there"] {
        assert!(warnings.contains(said), "{warnings}");
    }
}
