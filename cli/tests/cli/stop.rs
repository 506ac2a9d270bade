//! Signals.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use onnx_container::proto::{GraphProto, ModelProto, TensorProto};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::leftovers::interrupt_switch;
use crate::support::Folder;

/// Starts `command` and waits until it is ready for signals, or has ended.
fn start(command: &mut Command) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until(|| {
        // A process that has ended, and was not waited for, has no such line.
        let caught = signals_of(&child.id().to_string(), "SigCgt:");
        caught.is_none_or(|caught| caught >> (Signal::TERM.as_raw() - 1) & 1 == 1)
    });
    child
}

/// The signals that `process` ignores or catches, by the line of its status: bit 0 is signal 1.
fn signals_of(process: &str, line: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let bits = status.lines().find_map(|text| text.strip_prefix(line))?;
    Some(u64::from_str_radix(bits.trim(), 16).unwrap())
}

fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn send(signal: Signal, mut child: Child) -> Output {
    // The number of a process that was waited for may be another's by now.
    if child.try_wait().unwrap().is_none() {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The signals that end the command, with its exit codes. What the tests were told to ignore, as
/// `nohup` does, the command ignores too.
fn signals() -> impl Iterator<Item = (Signal, i32)> + Clone {
    let ignored = signals_of("self", "SigIgn:").unwrap();
    let heeded = move |&(signal, _): &(Signal, i32)| {
        let heeded = ignored >> (signal.as_raw() - 1) & 1 == 0;
        if !heeded {
            eprintln!("!!! SKIPPED: {signal:?} is ignored by these tests");
        }
        heeded
    };
    [(Signal::HUP, 129), (Signal::INT, 130), (Signal::TERM, 143)].into_iter().filter(heeded)
}

/// A folder with a model, and a pipe that nobody writes to: who reads names from it does not go on.
fn with_pipe() -> Folder {
    let folder = Folder::with_model();
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    folder
}

const WAITS: [&str; 6] = ["extract", "m.onnx", "--names-from", "pipe", "-o", "out/"];

/// The length of the weights.
const LEN: u32 = 128 << 20;

/// A folder with a model whose weights take some time to write.
fn with_weights() -> Folder {
    let folder = Folder::new();
    let mut graph = GraphProto::new("main");
    graph.initializer.push(TensorProto::external("w", TensorProto::UINT8, [LEN.into()], "w.bin"));
    folder.save("m.onnx", &ModelProto::new(graph));
    // No hole, which a save would not have to write.
    fs::write(folder.path("w.bin"), vec![7; usize::try_from(LEN).unwrap()]).unwrap();
    folder
}

#[test]
fn before_anything_is_written_a_signal_ends_the_command_at_once() {
    let folder = with_pipe();
    for (signal, code) in signals() {
        let output = send(signal, start(&mut folder.command(&WAITS)));
        let said = format!("error: stopped by signal {}: nothing was changed\n", code - 128);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(code), said.as_str()));
        let mut command = folder.command(&WAITS);
        let output = send(signal, start(command.arg("--json")));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&json["command"], &json["error"]["kind"]),
            (&"extract".into(), &"Cancelled".into())
        );
        assert_eq!(output.status.code(), Some(code));
    }
    assert_eq!(folder.names(), ["m.onnx", "pipe"]);
}

#[test]
fn a_signal_after_a_recovery_says_that_there_was_one() {
    let folder = with_pipe();
    folder.run(&["pack", "m.onnx", "p.onnx"]).done();
    interrupt_switch(&folder);
    let args = WAITS.map(|arg| if arg == "m.onnx" { "p.onnx" } else { arg });
    let mut child = start(&mut folder.command(&args));
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("a save of `p.onnx` was interrupted"), "{said}");
    send(Signal::TERM, child);
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("an interrupted save was recovered"), "{said}");
}

/// Sends `signal` to the command while it writes. On a busy machine the write may be over before
/// the signal comes, and such a run shows nothing: the files become those of before, and it is run
/// again.
fn stopped_while_it_writes(folder: &Folder, args: &[&str], signal: Signal) -> Output {
    let (before, kept) = (folder.names(), tempfile::tempdir().unwrap());
    for name in &before {
        fs::copy(folder.path(name), kept.path().join(name)).unwrap();
    }
    for _ in 0..100 {
        let mut child = start(folder.command(args).arg("--no-sync"));
        until(|| {
            let writes = folder.names().iter().any(|name| name.starts_with('.'));
            writes || child.try_wait().unwrap().is_some()
        });
        let output = send(signal, child);
        if text(&output.stderr).contains("nothing was changed") {
            return output;
        }
        folder.names().iter().for_each(|name| fs::remove_file(folder.path(name)).unwrap());
        for name in &before {
            fs::copy(kept.path().join(name), folder.path(name)).unwrap();
        }
    }
    panic!("{args:?}: none of a hundred runs was stopped");
}

#[test]
fn a_signal_removes_partly_written_files() {
    let folder = with_weights();
    let before = folder.names();
    let cases: &[&[&str]] = &[
        &["pack", "m.onnx", "p.onnx"],
        &["pack", "m.onnx", "m.onnx", "--data-name", "w.bin"],
        &["export-safetensors", "m.onnx", "p.safetensors"],
        &["extract", "m.onnx", "w", "-o", "w.npy"],
        &["embed", "m.onnx", "p.onnx"],
    ];
    for (args, (signal, code)) in cases.iter().zip(signals().cycle()) {
        let output = stopped_while_it_writes(&folder, args, signal);
        let said = format!("error: stopped by signal {}: nothing was changed\n", code - 128);
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(code), said.as_str()),
            "{args:?}"
        );
        assert_eq!(folder.names(), before, "{args:?}");
    }
    assert_eq!(fs::metadata(folder.path("w.bin")).unwrap().len(), u64::from(LEN));
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let folder = with_pipe();
    let command = folder.command(&WAITS);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    let child = start(shell.current_dir(folder.path("")));
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    assert_eq!(send(Signal::TERM, child).status.code(), Some(143));
}

/// Commands that wait for the folder of `p.onnx`: to look at it, to rename files, and for nothing
/// but a plan.
const LOCKED: [&[&str]; 3] = [
    &["pack", "p.onnx", "p.onnx"],
    &["pack", "p.onnx", "new.onnx"],
    &["pack", "p.onnx", "p.onnx", "--dry-run"],
];

/// Starts the command in a folder that is locked, and reads what it says first.
fn start_locked(folder: &Folder, args: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = start(&mut folder.command(args));
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.starts_with("waiting for `"), "{said}");
    assert!(said.ends_with("`: another save holds its lock\n"), "{said}");
    (child, stderr)
}

#[test]
fn waiting_for_a_folder_is_reported_once() {
    for args in LOCKED {
        let folder = Folder::packed();
        let held = File::open(folder.path("")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let (child, mut stderr) = start_locked(&folder, args);
        drop(held);
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0), "{args:?}");
        let mut more = String::new();
        stderr.read_line(&mut more).unwrap();
        assert_eq!(more, "", "{args:?}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_folder() {
    for args in LOCKED {
        let folder = Folder::packed();
        let before = folder.contents();
        let held = File::open(folder.path("")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let (child, _stderr) = start_locked(&folder, args);
        assert_eq!(send(Signal::TERM, child).status.code(), Some(143), "{args:?}");
        assert_eq!(folder.contents(), before, "{args:?}");
    }
}

/// They are ended wherever they are: an abort may just have completed a commit that was killed.
#[test]
fn a_signal_to_the_end_of_a_job_does_not_say_that_nothing_was_changed() {
    for (call, done) in [("abort", "aborted"), ("commit", "committed")] {
        let folder = with_pipe();
        let child = start(&mut folder.command(&["job", call, "pipe"]));
        // Waits until the command opens it too.
        let _writer = File::options().write(true).open(folder.path("pipe")).unwrap();
        let output = send(Signal::TERM, child);
        assert_eq!(output.status.code(), Some(143));
        let unknown = format!("whether the job was {done} is not known: run `job {call}` again");
        assert_eq!(text(&output.stderr), format!("error: stopped by signal 15: {unknown}\n"));
    }
}

#[test]
fn a_signal_to_a_recovery_does_not_say_that_nothing_was_changed() {
    let folder = Folder::with_model();
    let held = File::open(folder.path("")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let mut child = start(&mut folder.command(&["recover", "."]));
    // Only the recovery opens the folder, and it waits for its lock.
    let (files, place) = (format!("/proc/{}/fd", child.id()), folder.path(""));
    let place = fs::canonicalize(place).unwrap();
    until(|| {
        let open = fs::read_dir(&files).into_iter().flatten().flatten();
        let mut open = open.filter_map(|file| fs::read_link(file.path()).ok());
        open.any(|file| file == place) || child.try_wait().unwrap().is_some()
    });
    let output = send(Signal::TERM, child);
    let said = "what was recovered is not known: run `recover` again";
    assert_eq!(text(&output.stderr), format!("error: stopped by signal 15: {said}\n"));
    assert_eq!(output.status.code(), Some(143));
}

/// A server that never answers: what it did by the time of the signal is not known.
#[cfg(feature = "stores")]
#[test]
fn a_signal_to_work_in_a_store_says_what_is_not_known() {
    const URL: &str = "s3://models/m.onnx";
    const VERSION: &str = "s3://models/m.version-20261127T181530.123456Z-0123456789abcdef.onnx";
    let folder = Folder::with_model();
    let is_there = "is not known: `digest` tells which model is there";
    let cases: [(&[&str], String); 6] = [
        (&["publish", "m.onnx", URL], format!("whether `{URL}` was published {is_there}")),
        (&["publish", "m.onnx", URL, "--dry-run"], "nothing was changed".to_owned()),
        (&["rollback", URL, VERSION], format!("whether `{URL}` was rolled back {is_there}")),
        (
            &["sweep", "s3://models/", "--delete"],
            "files may have been deleted: run `sweep --delete` again".to_owned(),
        ),
        (&["sweep", "s3://models/"], "nothing was changed".to_owned()),
        (
            &["job", "rewrite", "m.onnx", URL],
            "whether a job was planned is not known: `job list` shows the jobs of a folder, and \
             `job abort` ends one"
                .to_owned(),
        ),
    ];
    for (args, said) in cases {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let address = format!("http://{}", server.local_addr().unwrap());
        let mut command = folder.command(args);
        command.env("AWS_ENDPOINT_URL", &address).env("AWS_SKIP_SIGNATURE", "true");
        let mut child = start(command.env("no_proxy", "127.0.0.1"));
        let mut asked = None;
        until(|| {
            asked = server.accept().ok();
            asked.is_some() || child.try_wait().unwrap().is_some()
        });
        let output = send(Signal::TERM, child);
        let said = format!("error: stopped by signal 15: {said}\n");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(143), &*said), "{args:?}");
    }
}
