//! `job`: a model that many processes write, and what other commands say of it.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use onnx_container::proto::{GraphProto, ModelProto};
use serde_json::Value;

use crate::support::{Folder, Run, assert_written_of_8, floats, tensors, weight};

/// `m.onnx` of eight weights and their file; of each the last one is the smallest.
pub fn folder() -> Folder {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    for number in 0..8 {
        graph.initializer.push(weight(&format!("w{number}"), &[8 - number, 300], number as f32));
    }
    graph.initializer.push(floats("small", 4));
    let mut model = ModelProto::new(graph).with_operator_set("", 17);
    model.ir_version = Some(8);
    folder.save("inline.onnx", &model);
    folder.run(&["pack", "inline.onnx", "m.onnx"]).done();
    folder
}

fn call(folder: &Folder, line: &str) -> Run {
    folder.run(&line.split(' ').collect::<Vec<_>>())
}

/// The names in the folder that begin with a dot.
fn hidden(folder: &Folder) -> Vec<String> {
    folder.names().into_iter().filter(|name| name.starts_with('.')).collect()
}

/// The folder of the only job.
fn job_folder(folder: &Folder) -> String {
    let hidden = hidden(folder);
    assert_eq!(hidden.len(), 1, "{hidden:?}");
    hidden.into_iter().next().unwrap()
}

#[test]
fn the_files_are_those_of_pack_and_of_cast() {
    let folder = folder();
    for (source, options, others) in [
        ("inline.onnx", "", &["pack inline.onnx x/o.onnx"][..]),
        ("inline.onnx", " --min-bytes 4", &["pack inline.onnx x/o.onnx --min-bytes 4"]),
        ("m.onnx", " --max-shard-size 10KB", &["pack m.onnx x/o.onnx --max-shard-size 10KB"]),
        ("m.onnx", " --safetensors", &["pack m.onnx x/o.onnx --safetensors"]),
        (
            "m.onnx",
            " --align 4096 --data-name w",
            &["pack m.onnx x/o.onnx --align 4096 --data-name w"],
        ),
        ("m.onnx", " --per-tensor", &["split m.onnx x/o.onnx"]),
        ("m.onnx", " --digests", &["pack m.onnx x/o.onnx --digests"]),
        (
            "m.onnx",
            " --cast float16 --keep-io --except w3",
            &[
                "cast m.onnx half.onnx --to float16 --keep-io --except w3",
                "pack half.onnx x/o.onnx",
            ],
        ),
    ] {
        for name in ["x", "y"] {
            let _ = fs::remove_dir_all(folder.path(name));
            fs::create_dir(folder.path(name)).unwrap();
        }
        others.iter().for_each(|line| drop(call(&folder, line).done()));
        let plan = format!("job rewrite {source} y/o.onnx --parts 3 -o m.job{options}");
        call(&folder, &plan).done();
        // From the last part on, and one twice.
        call(&folder, "job write m.job 2").done();
        let status = call(&folder, "job status m.job");
        assert_eq!(status.code(), 1, "{status:?}");
        status.says(&["1 of 3 parts", "parts 0-1", "`onnx-container job write m.job 0-1`"]);
        call(&folder, "job write m.job 0-1 2 1").done().says(&["job commit m.job"]);
        assert_eq!(call(&folder, "job status m.job").code(), 0);
        assert!(!folder.path("y/o.onnx").exists());
        call(&folder, "job commit m.job").done().says(&["wrote", "digest"]);
        let named = |name: &str| -> Vec<_> {
            let files = folder.contents_of(name).into_iter();
            files.map(|(path, bytes)| (path.file_name().unwrap().to_owned(), bytes)).collect()
        };
        assert!(named("x") == named("y"), "{plan}");
    }
}

#[test]
fn a_job_goes_through_a_pipe_a_file_or_its_folder() {
    let folder = folder();
    let json = call(&folder, "job rewrite m.onnx o.onnx --parts 2").done().stdout();
    fs::write(folder.path("job.json"), &json).unwrap();
    let printed: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(printed["format"], "onnx-container job");
    let by_folder = job_folder(&folder);
    let in_folder = format!("{by_folder}/job.json");
    call(&folder, "job write job.json 0").done();
    call(&folder, &format!("job write {by_folder} 1")).done();
    for job in ["job.json", &by_folder, &in_folder] {
        assert_eq!(call(&folder, &format!("job status {job}")).code(), 0);
    }
    // From another folder.
    fs::create_dir(folder.path("elsewhere")).unwrap();
    let mut run = folder.command(&["job", "status", "../job.json"]);
    assert!(run.current_dir(folder.path("elsewhere")).output().unwrap().status.success());
    call(&folder, &format!("job commit {by_folder}")).done();
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("m.onnx")));
    assert_eq!(hidden(&folder), [""; 0]);
    for job in ["job.json", &by_folder, &in_folder] {
        let again = call(&folder, &format!("job commit {job}"));
        if cfg!(target_os = "linux") {
            again.done().says(&["was committed already", "digest"]);
            let report = call(&folder, &format!("job commit {job} --json")).done().json();
            assert_eq!(report["already"], true, "{report}");
            assert_eq!(report["model"].as_str().map(|it| it.ends_with("o.onnx")), Some(true));
        } else {
            again.failed(&["was committed or aborted"]);
        }
        call(&folder, &format!("job abort {job}")).failed(&["was committed"]);
    }
}

#[test]
fn what_is_missing_is_named_with_the_call_that_writes_it() {
    let folder = folder();
    call(&folder, "job rewrite m.onnx o.onnx --parts 8 -o m.job").done().says(&[
        "8 parts of 8 tensors",
        "o.onnx.data",
        "`onnx-container job write m.job 0-7`",
    ]);
    call(&folder, "job write m.job 0-2 4-6").done().says(&["parts 3, 7"]);
    call(&folder, "job commit m.job")
        .failed(&["parts 3, 7 are not written", "`onnx-container job write m.job 3 7`"]);
    call(&folder, "job write m.job 8").failed(&["has the parts 0 to 7, not 8"]);
    call(&folder, "job write m.job 3 8").failed(&["has the parts 0 to 7, not 8"]);
    assert_eq!(call(&folder, "job write m.job").code(), 2);
    assert_eq!(call(&folder, "job write m.job 7-3").code(), 2);
    call(&folder, "job write m.job --all").done().says(&["part 3", "part 7"]);
    call(&folder, "job commit m.job").done();
    // An array of more tasks than tensors.
    call(&folder, "job rewrite m.onnx o.onnx --parts 64 -o m.job").done().says(&["8 parts"]);
    let empty = call(&folder, "job write m.job 8-63").done();
    let empty = empty.says(&["empty     56 parts without bytes: parts 8-63"]).stdout();
    assert!(!empty.contains("wrote") && !empty.contains("found"), "{empty}");
    call(&folder, "job write m.job 64").failed(&["has the parts 0 to 63, not 64"]);
    call(&folder, "job write m.job 3").done().says(&["wrote     part 3: 1 tensor (6.0 kB)"]);
    let again = call(&folder, "job write m.job 3").done();
    let again = again.says(&["found     part 3: 1 tensor (6.0 kB): was written already"]).stdout();
    assert!(!again.contains("wrote"), "{again}");
    let all = call(&folder, "job write m.job 0-63 --json").done().json();
    assert_written_of_8(&all, 3);
    call(&folder, "job commit m.job").done();
}

/// A commit over the source would leave nothing to plan the job again from.
#[test]
fn numbers_that_become_infinite_are_told_before_the_commit() {
    for (to, number) in [("float16", 1e9), ("bfloat16", f32::MAX)] {
        let folder = Folder::new();
        let mut graph = GraphProto::new("g");
        graph.initializer.push(weight("large", &[8, 300], number));
        graph.initializer.push(weight("small", &[8, 300], 1.0));
        let mut model = ModelProto::new(graph).with_operator_set("", 17);
        model.ir_version = Some(8);
        folder.save("m.onnx", &model);
        call(&folder, &format!("job rewrite m.onnx m.onnx --cast {to} --parts 2 -o m.job")).done();
        let written = call(&folder, "job write m.job --all").done();
        let said = written.says(&["infinite", "1 tensor with numbers beyond", "large", "--except"]);
        // Which type it was is not known here.
        assert!(!said.stdout().contains("cast to bfloat16"), "{said:?}");
        let again = call(&folder, "job write m.job 0-1 --json").json();
        assert_eq!(again["infinite"], serde_json::json!(["large"]), "{again}");
        call(&folder, "job commit m.job").done().says(&["infinite", "large"]);
    }
}

#[test]
fn other_commands_know_a_job() {
    let folder = folder();
    fs::remove_file(folder.path("inline.onnx")).unwrap();
    call(&folder, "job rewrite m.onnx m.onnx --cast float16 -o m.job").done();
    let job = job_folder(&folder);
    call(&folder, "job list").done().says(&[&job, "0 of 1 part"]);
    let found = call(&folder, "check m.onnx");
    assert_eq!(found.code(), 0, "{found:?}");
    found.says(&["job status", &job]);
    assert_eq!(call(&folder, "check m.onnx --strict").code(), 1);
    let scan = call(&folder, "scan . --json").json();
    let scan = &scan["scans"][0];
    assert_eq!(scan["models"].as_array().unwrap().len(), 1, "{scan}");
    assert_eq!((&scan["orphans"], &scan["reclaimable_bytes"]), (&serde_json::json!([]), &0.into()));
    assert_eq!(scan["left"][0]["kind"], "job");
    assert!(scan["left"][0]["bytes"].as_u64().unwrap() > 10_000, "{scan}");
    call(&folder, "scan .").done().says(&[&job, "job abort"]);
    // Nothing that is not asked for ends it.
    call(&folder, "recover .").done().says(&[&job, "recover --jobs"]);
    call(&folder, "recover m.onnx").done().says(&[&job]);
    call(&folder, "pack m.onnx m.onnx --align 512").done();
    assert_eq!(job_folder(&folder), job);
    // The model was replaced.
    call(&folder, "job write m.job 0").failed(&["changed after the job was planned"]);
    call(&folder, "recover . --jobs").done().says(&["removed", &job]);
    assert_eq!(hidden(&folder), [""; 0]);
    call(&folder, "job list").done().says(&["no jobs"]);
    for other in ["rewrite m.onnx o.onnx -o o.job", "rewrite m.onnx p.onnx -o p.job"] {
        call(&folder, &format!("job {other}")).done();
    }
    call(&folder, "recover o.onnx --jobs").failed(&["o.onnx"]);
    call(&folder, "job abort o.job").done();
    call(&folder, &format!("job abort {}", job_folder(&folder))).done();
    assert_eq!(hidden(&folder), [""; 0]);
}

#[test]
fn a_plan_that_was_killed_is_listed_and_removed() {
    let folder = folder();
    fs::create_dir(folder.path(".o.onnx.job-aB3xYz")).unwrap();
    let said = "the plan of this job did not end";
    call(&folder, "job list").done().says(&[said]);
    call(&folder, "job abort .o.onnx.job-aB3xYz").done();
    fs::create_dir(folder.path(".o.onnx.job-aB3xYz")).unwrap();
    fs::create_dir(folder.path(".o.onnx.ended-aB3xYz")).unwrap();
    call(&folder, "recover .").done().says(&["1 folder of jobs that had ended", ".job-aB3xYz"]);
    call(&folder, "recover . --jobs").done();
    assert_eq!(hidden(&folder), [""; 0]);
}

#[test]
fn what_is_not_to_be_replaced_stays() {
    let folder = folder();
    let before = folder.contents();
    for (line, said) in [
        ("job rewrite m.onnx m.onnx --no-clobber", "m.onnx"),
        ("job rewrite m.onnx o.onnx -o m.onnx.data", "m.onnx.data"),
        ("job rewrite m.onnx o.onnx -o m.onnx", "m.onnx"),
        ("job rewrite m.onnx o.onnx -o o.onnx", "name another file"),
        ("job rewrite m.onnx o.onnx -o ./o.onnx.data", "name another file"),
        ("job rewrite m.onnx w.safetensors", "OUT must be the model"),
        ("job rewrite m.onnx none/o.onnx", "none"),
        ("job rewrite m.onnx o.onnx --parts 0", "1 to 100000 parts"),
    ] {
        let run = call(&folder, line);
        assert_eq!(run.code(), 1, "{line}: {run:?}");
        run.failed(&[said]);
        assert!(folder.contents() == before, "{line}: {:?}", folder.names());
    }
    for line in [
        "job rewrite m.onnx o.onnx --keep-io",
        "job rewrite m.onnx o.onnx --cast float16 --except none*",
        "job rewrite m.onnx o.onnx --per-tensor --safetensors",
        "job",
    ] {
        assert_eq!(call(&folder, line).code(), 2, "{line}");
    }
    assert!(folder.contents() == before, "{:?}", folder.names());
}

/// Starts a writer of a part.
fn writer(folder: &Folder, part: usize) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("onnx-container"));
    command.args(["job", "write", "m.job", &part.to_string()]).current_dir(folder.path("."));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Eight at once, of which some are killed and started again, and some run twice.
#[test]
fn processes_that_are_killed_and_started_again_write_the_files_of_pack() {
    let folder = Folder::new();
    let mut graph = GraphProto::new("g");
    for number in 0..24 {
        graph.initializer.push(weight(&format!("w{number}"), &[64, 1024 + number], number as f32));
    }
    let mut model = ModelProto::new(graph).with_operator_set("", 17);
    model.ir_version = Some(8);
    folder.save("inline.onnx", &model);
    fs::create_dir(folder.path("expected")).unwrap();
    call(&folder, "pack inline.onnx expected/o.onnx").done();
    call(&folder, "job rewrite inline.onnx o.onnx --parts 12 -o m.job").done();
    let (mut killed, mut turn) = (0, 0_u64);
    let mut waiting: Vec<usize> = (0..12).chain([3, 3, 7]).rev().collect();
    let mut running: Vec<(usize, Child)> = Vec::new();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < 8 {
            let Some(part) = waiting.pop() else { break };
            running.push((part, writer(&folder, part)));
        }
        turn += 1;
        std::thread::sleep(std::time::Duration::from_millis(turn * 7 % 30));
        let (part, mut child) = running.remove(usize::try_from(turn).unwrap() % running.len());
        if killed < 10 && turn.is_multiple_of(2) {
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
    assert_eq!(call(&folder, "job status m.job").code(), 0);
    call(&folder, "job commit m.job").done();
    for name in ["o.onnx", "o.onnx.data"] {
        let expected = fs::read(folder.path(&format!("expected/{name}"))).unwrap();
        assert!(fs::read(folder.path(name)).unwrap() == expected, "{name}");
    }
    assert_eq!(hidden(&folder), [""; 0]);
}

/// A job that was planned where its folder has another path, as another machine has it.
#[cfg(unix)]
#[test]
fn a_folder_behind_a_link_is_the_same_one() {
    let folder = folder();
    fs::create_dir(folder.path("real")).unwrap();
    std::os::unix::fs::symlink("real", folder.path("link")).unwrap();
    call(&folder, "job rewrite m.onnx link/o.onnx --parts 2 -o m.job").done();
    let name = fs::read_dir(folder.path("real")).unwrap().next().unwrap().unwrap().file_name();
    let name = PathBuf::from(name).display().to_string();
    call(&folder, &format!("job write real/{name} 0")).done();
    fs::remove_file(folder.path("link")).unwrap();
    call(&folder, &format!("job write real/{name} 1")).done();
    call(&folder, &format!("job commit real/{name}")).done();
    assert_eq!(tensors(&folder.path("real/o.onnx")), tensors(&folder.path("m.onnx")));
}

/// Runs the call where files may have `blocks` of 512 bytes and no more.
#[cfg(unix)]
fn call_up_to(folder: &Folder, blocks: usize, line: &str) -> Run {
    let mut shell = Command::new("/bin/sh");
    let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    shell.args(["-c", &limited]).arg(assert_cmd::cargo::cargo_bin!("onnx-container"));
    Run::of(shell.args(line.split(' ')).current_dir(folder.path("")).output().unwrap())
}

#[cfg(unix)]
#[test]
fn where_files_may_not_grow_there_is_no_receipt_and_no_job() {
    let folder = folder();
    let before = folder.names();
    for blocks in [0, 1, 4] {
        call_up_to(&folder, blocks, "job rewrite m.onnx o.onnx -o m.job")
            .failed(&["File too large"]);
        assert_eq!(folder.names(), before, "{blocks}");
    }
    call(&folder, "job rewrite m.onnx o.onnx --parts 2 -o m.job").done();
    for blocks in [0, 1, 4] {
        call_up_to(&folder, blocks, "job write m.job 0").failed(&["File too large"]);
        call(&folder, "job status m.job").says(&["0 of 2 parts"]);
    }
    call(&folder, "job write m.job --all").done();
    let job = job_folder(&folder);
    let left = folder.contents_of(&job).into_iter().map(|(path, _)| path);
    let left: Vec<_> = left.filter(|path| path.extension().is_some_and(|it| it == "new")).collect();
    assert!(left.is_empty(), "{left:?}");
    call(&folder, "job commit m.job").done();
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("m.onnx")));
}

/// A folder that another user may not enter is there all the same.
#[cfg(unix)]
#[test]
fn a_job_of_another_user_is_not_one_that_has_ended() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    call(&folder, "job rewrite m.onnx o.onnx -o m.job").done();
    let job = folder.path(&job_folder(&folder));
    let set = |mode| fs::set_permissions(&job, fs::Permissions::from_mode(mode)).unwrap();
    set(0o000);
    if fs::read_dir(&job).is_ok() {
        println!("!!! SKIPPED: this user may enter every folder");
        return;
    }
    for line in ["job status m.job", "job write m.job 0", "job commit m.job", "job abort m.job"] {
        call(&folder, line).failed(&["ermission denied"]);
    }
    call(&folder, "job list").done().says(&["ermission denied"]);
    set(0o700);
    call(&folder, "job abort m.job").done();
}

#[test]
fn a_plan_tells_of_another_job_of_the_model() {
    let folder = Folder::with_model();
    let first = folder.run(&["job", "rewrite", "m.onnx", "n.onnx", "-o", "a.job", "--json"]);
    assert_eq!(first.json()["warnings"].as_array().unwrap().len(), 0, "{first:?}");
    let second = folder.run(&["job", "rewrite", "m.onnx", "n.onnx", "-o", "b.job", "--json"]);
    assert!(second.stderr().contains("is another job of this model"), "{second:?}");
    assert_eq!(second.json()["warnings"].as_array().unwrap().len(), 1, "{second:?}");
    for job in ["a.job", "b.job"] {
        folder.run(&["job", "write", job, "--all"]).done();
    }
    folder.run(&["job", "commit", "a.job"]).done();
    folder.run(&["job", "commit", "b.job"]).done(); // the same bytes are there
}

/// Its processes would find it locked.
#[test]
fn a_job_that_goes_on_is_not_touched_by_a_recovery_or_another_plan() {
    let folder = Folder::with_model();
    call(&folder, "job rewrite m.onnx n.onnx -o a.job").done();
    let lock = folder.path(&job_folder(&folder)).join("receipts/job.lock");
    call(&folder, "recover .").done();
    call(&folder, "job rewrite m.onnx o.onnx -o b.job").done();
    assert!(!lock.exists());
    call(&folder, "job write a.job --all").done();
    assert!(lock.exists());
}

#[test]
fn a_source_is_opened_as_the_plan_was_told() {
    let folder = folder();
    let rewrite = |options: &str| call(&folder, &format!("job rewrite m.onnx o.onnx {options}"));
    for options in ["--limit tensors=8", "--limit tensors=8 --paths strict"] {
        let run = rewrite(options);
        assert_eq!(run.code(), 1, "{run:?}");
        run.failed(&["more than 8 tensors", "`--limit tensors=N` raises it"]);
    }
    assert_eq!(hidden(&folder), [""; 0]);
    // A pattern, and the file of `-o`, are looked for by the same rules.
    for options in ["--cast float16 --except w1 --limit tensors=8", "-o m.job --limit tensors=8"] {
        assert_eq!(rewrite(options).code(), 1, "{options}");
    }
    rewrite("-o m.job --limit tensors=9 --limit name-bytes=1K --paths strict").done();
    let job: Value =
        serde_json::from_str(&fs::read_to_string(folder.path("m.job")).unwrap()).unwrap();
    let expected =
        serde_json::json!({"paths": "strict", "limits": {"name-bytes": 1024, "tensors": 9}});
    assert_eq!(job["job"]["source"]["options"], expected);
    call(&folder, "job write m.job --all").done();
    call(&folder, "job commit m.job").done();
    assert_eq!(tensors(&folder.path("o.onnx")), tensors(&folder.path("m.onnx")));
}

#[cfg(unix)]
#[test]
fn a_link_that_the_plan_does_not_follow_is_followed_by_no_part() {
    let folder = folder();
    fs::create_dir(folder.path("away")).unwrap();
    fs::rename(folder.path("m.onnx.data"), folder.path("away/w")).unwrap();
    std::os::unix::fs::symlink("away/w", folder.path("m.onnx.data")).unwrap();
    let rewrite =
        |policy| call(&folder, &format!("job rewrite m.onnx o.onnx -o m.job --paths {policy}"));
    assert_eq!(rewrite("strict").code(), 1);
    assert_eq!(hidden(&folder), [""; 0]);
    rewrite("model-dirs").done();
    call(&folder, "job write m.job 0").done();
    call(&folder, "job abort m.job").done();
    // The job says how its source is opened, so that a writer follows no link either.
    rewrite("model-dirs").done();
    let text = fs::read_to_string(folder.path("m.job")).unwrap();
    let strict =
        text.replacen("\"source\":{", "\"source\":{\"options\":{\"paths\":\"strict\"},", 1);
    assert_ne!(strict, text);
    fs::write(folder.path("m.job"), strict).unwrap();
    let run = call(&folder, "job write m.job 0");
    assert_eq!(run.code(), 1, "{run:?}");
    run.failed(&["`--paths"]);
}
