//! `job`, killed at each of its calls and with one of them failing: a copy of the visible files
//! holds the old model or the new one, receipts are whole, the same call again goes on, and what a
//! killed plan left is removed by `recover --jobs`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use onnx_container::job::Receipt;
use onnx_container::{ErrorKind, WeightFiles};
use tempfile::TempDir;

use crate::tracer::{At, Ending, Traced, trace_beside};
use crate::{Clock, SHARDED, each_fault, save, stop_clock, value};

/// How the models are stored, and how files have their times.
struct Way {
    args: &'static [&'static str],
    /// `None` where no model is replaced.
    old: Option<WeightFiles>,
    clock: Clock,
}

const WAYS: [Way; 4] = [
    Way { args: &["--no-sync"], old: Some(WeightFiles::Packed), clock: Clock::Stopped },
    Way { args: &[], old: None, clock: Clock::Own },
    Way { args: &["--no-sync", "--max-shard-size", "2000"], old: Some(SHARDED), clock: Clock::Own },
    Way { args: &["--per-tensor", "--digests"], old: Some(WeightFiles::Packed), clock: Clock::Own },
];

const PLAN: &str = "job rewrite in/new.onnx out/m.onnx --parts 2 -o m.job";

struct Case {
    folder: TempDir,
    way: &'static Way,
}

impl Case {
    fn new(way: &'static Way) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["in", "out"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        save(&folder.path().join("in/new.onnx"), 2.0, WeightFiles::PerTensor);
        if let Some(layout) = way.old {
            save(&folder.path().join("out/m.onnx"), 1.0, layout);
        }
        let case = Self { folder, way };
        case.stop_clock();
        case
    }

    /// With the job planned, and these parts written.
    fn planned(way: &'static Way, parts: &[&str]) -> Self {
        let case = Self::new(way);
        case.done(PLAN, "the plan");
        for part in parts {
            case.done(&format!("job write m.job {part}"), "a part");
        }
        case.stop_clock();
        case
    }

    fn stop_clock(&self) {
        if self.way.clock == Clock::Stopped {
            stop_clock(self.folder.path());
        }
    }

    fn with_args(&self, mut command: Command, line: &str) -> Command {
        command.args(line.split(' ')).current_dir(self.folder.path());
        if line == PLAN {
            command.args(self.way.args);
        }
        command
    }

    fn run(&self, line: &str) -> Output {
        let command = Command::new(assert_cmd::cargo::cargo_bin!("onnx-container"));
        self.with_args(command, line).output().unwrap()
    }

    /// Runs a call that succeeds.
    fn done(&self, line: &str, at: &str) {
        let output = self.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{at}: {line}: {said}");
    }

    /// Runs a call of a job that may have ended. Whether it had not.
    fn done_or_gone(&self, line: &str, at: &str) -> bool {
        let output = self.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        let is_gone = said.contains("the job is not there: it was ");
        assert!(output.status.success() || is_gone, "{at}: {line}: {said}");
        output.status.success()
    }

    /// Commits a job of which a commit was killed. What that has put in place says so on Linux.
    fn committed_again(&self, is_new: bool, at: &str) {
        match cfg!(target_os = "linux") {
            true => self.done("job commit m.job", at),
            false => assert!(self.done_or_gone("job commit m.job", at) || is_new, "{at}"),
        }
    }

    /// Ends a job of which a commit was killed. Whether that commit had put its model in place;
    /// `None` where the job had ended.
    fn aborted(&self, at: &str) -> Option<bool> {
        let output = self.beside_a_save(|| self.run("job abort m.job"));
        let said = String::from_utf8_lossy(&output.stderr);
        let is_in_place = said.contains("had put its model in place");
        let is_gone = said.contains("the job is not there");
        assert!(output.status.success() || is_in_place || is_gone, "{at}: {said}");
        (!is_gone).then_some(is_in_place)
    }

    /// Does `run` while another process replaces files in the folder, at its beginning, if a commit
    /// was killed while it did.
    fn beside_a_save<T>(&self, run: impl FnOnce() -> T) -> T {
        if !self.hidden().iter().any(|name| name.ends_with(".switching")) {
            return run();
        }
        let lock = fs::File::open(self.folder.path().join("out")).unwrap();
        lock.try_lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(150));
                lock.unlock().unwrap();
            });
            run()
        })
    }

    fn trace(&self, line: &str, at: At<'_>) -> Traced {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
        command.arg(assert_cmd::cargo::cargo_bin!("onnx-container"));
        trace_beside(self.with_args(command, line), at, || self.stop_clock())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("out")).unwrap().map(Result::unwrap);
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn hidden(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with('.')).collect()
    }

    fn has_job(&self) -> bool {
        self.hidden().iter().any(|name| name.contains(".job-"))
    }

    /// The value of the model in `folder`; none where there is no model.
    fn value_in(&self, folder: PathBuf, at: &str) -> Option<f32> {
        match value(&folder.join("m.onnx")) {
            Ok(value) => Some(value),
            Err(error) => {
                let is_model = error.path().is_some_and(|path| path.ends_with("m.onnx"));
                assert!(error.kind() == ErrorKind::MissingFile && is_model, "{at}: {error}");
                None
            }
        }
    }

    fn old(&self) -> Option<f32> {
        self.way.old.map(|_| 1.0)
    }

    /// Checks what other programs see, and what the next load finds: whether that is the new model.
    fn is_new(&self, at: &str) -> bool {
        let copy = tempfile::tempdir().unwrap();
        for name in self.names().iter().filter(|name| !name.starts_with('.')) {
            let file = self.folder.path().join("out").join(name);
            fs::copy(file, copy.path().join(name)).unwrap();
        }
        let seen = self.value_in(copy.path().to_path_buf(), at);
        let loaded = self.value_in(self.folder.path().join("out"), at);
        assert!(loaded == self.old() || loaded == Some(2.0), "{at}: {loaded:?}");
        assert!(seen.is_none() || seen == loaded || seen == self.old(), "{at}: {seen:?}");
        loaded == Some(2.0)
    }

    /// Checks that `recover` removes all that is hidden, and the model stays.
    fn recover(&self, line: &str, at: &str) {
        let before = self.is_new(at);
        self.done(line, at);
        assert_eq!(self.is_new(at), before, "{at}: after recovery");
        assert!(self.hidden().is_empty(), "{at}: {:?}", self.hidden());
    }

    /// Checks that each receipt is one.
    fn check_receipts(&self, at: &str) -> usize {
        let job = self.hidden().into_iter().find(|name| name.contains(".job-")).unwrap();
        let receipts = self.folder.path().join("out").join(job).join("receipts");
        let mut count = 0;
        for entry in fs::read_dir(receipts).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.extension().is_some_and(|it| it == "json") {
                let text = fs::read_to_string(&entry).unwrap();
                Receipt::from_json(&text).unwrap_or_else(|error| panic!("{at}: {error}"));
                count += 1;
            }
        }
        count
    }
}

/// Traces `line` in a case of each way, killed at each call; `check` sees what is left and whether
/// it was killed. Returns how often it was.
fn kill_everywhere(line: &str, parts: &[&str], check: impl Fn(&Case, usize, bool, &str)) -> usize {
    let mut kills = 0;
    // The layouts differ in what a commit does, and little in the rest.
    let ways = if line.contains("commit") { &WAYS[..] } else { &WAYS[..2] };
    for (index, way) in ways.iter().enumerate() {
        for number in 0.. {
            let case = match line {
                PLAN => Case::new(way),
                _ => Case::planned(way, parts),
            };
            let traced = case.trace(line, At::Kill(number));
            let at = format!("way {index}, {line}, killed at {number}: {}", traced.call);
            let is_killed = traced.ending == Ending::Killed;
            assert!(is_killed || traced.ending == Ending::Exited(0), "{at}: {}", traced.stderr);
            check(&case, number, is_killed, &at);
            if !is_killed {
                break;
            }
            kills += 1;
        }
    }
    println!("{line}: {kills} kills");
    kills
}

/// As [`kill_everywhere`], with a call that fails; `check` sees whether the command succeeded.
fn fail_everywhere(line: &str, parts: &[&str], check: impl Fn(&Case, bool, &str)) -> usize {
    each_fault(&WAYS, |index, way, number, errno| {
        let case = match line {
            PLAN => Case::new(way),
            _ => Case::planned(way, parts),
        };
        let traced = case.trace(line, At::Fail(number, errno));
        let call = traced.call;
        let at = format!("way {index}, {line}, {errno} at {number}: {call}: {}", traced.stderr);
        let Ending::Exited(code) = traced.ending else { panic!("{at}: killed") };
        check(&case, code == 0, &at);
        traced.reached
    })
}

#[test]
fn a_commit_that_is_killed_leaves_the_old_model_or_the_new_one() {
    let kills = kill_everywhere("job commit m.job", &["0-1"], |case, number, is_killed, at| {
        if number % 3 == 1 {
            // Before any load, which would complete what the commit left.
            let is_in_place = case.aborted(at);
            assert!(!case.has_job(), "{at}");
            if is_in_place.is_some() {
                assert!(case.hidden().is_empty(), "{at}: after abort: {:?}", case.hidden());
            }
            let is_new = case.is_new(at);
            assert!(is_in_place.is_none_or(|it| it == is_new), "{at}: after abort");
            return case.recover("recover out", at);
        }
        let is_new = case.is_new(at);
        assert!(is_killed || is_new && case.hidden().is_empty(), "{at}: {:?}", case.hidden());
        match number % 3 {
            0 => case.committed_again(is_new, at),
            _ => {
                case.done("recover out", at);
                assert_eq!(case.is_new(at), is_new, "{at}: after recovery");
                // What is in place is no job any more.
                assert!(!is_new || case.hidden().is_empty(), "{at}: {:?}", case.hidden());
                case.committed_again(is_new, at);
            }
        }
        assert!(case.is_new(at), "{at}: after another commit");
        case.recover("recover out", at);
    });
    assert!(kills > 100, "{kills}");
}

#[test]
fn a_commit_with_one_failing_call_leaves_the_old_model_or_the_new_one() {
    let faults = fail_everywhere("job commit m.job", &["0-1"], |case, is_done, at| {
        let is_new = case.is_new(at);
        assert!(is_new || !is_done, "{at}");
        assert!(case.done_or_gone("job commit m.job", at) || is_new, "{at}");
        assert!(case.is_new(at), "{at}: after another commit");
        case.recover("recover out", at);
    });
    assert!(faults > 100, "{faults}");
}

#[test]
fn a_part_whose_writer_is_killed_is_written_by_the_next_one() {
    let kills = kill_everywhere("job write m.job 0", &[], |case, _, is_killed, at| {
        assert!(!case.is_new(at), "{at}");
        let receipts = case.check_receipts(at);
        assert!(is_killed || receipts == 1, "{at}");
        case.done("job write m.job 0", at);
        case.done("job write m.job 1", at);
        assert_eq!(case.check_receipts(at), 2, "{at}");
        case.done("job commit m.job", at);
        assert!(case.is_new(at) && case.hidden().is_empty(), "{at}: {:?}", case.hidden());
    });
    assert!(kills > 20, "{kills}");
}

#[test]
fn a_part_with_one_failing_call_is_written_or_not() {
    let faults = fail_everywhere("job write m.job 0", &["1"], |case, is_done, at| {
        let receipts = case.check_receipts(at);
        assert!(receipts == 2 || !is_done, "{at}");
        case.done("job write m.job 0", at);
        case.done("job commit m.job", at);
        assert!(case.is_new(at) && case.hidden().is_empty(), "{at}: {:?}", case.hidden());
    });
    assert!(faults > 20, "{faults}");
}

#[test]
fn a_plan_that_is_killed_changes_nothing_and_can_be_removed() {
    let kills = kill_everywhere(PLAN, &[], |case, number, is_killed, at| {
        assert!(!case.is_new(at), "{at}");
        let path = case.folder.path().join("m.job");
        match fs::read_to_string(&path) {
            Ok(text) => drop(onnx_container::job::Job::from_json(&text).unwrap()),
            Err(_) => assert!(is_killed, "{at}"),
        }
        let hidden = case.hidden();
        let are_jobs = hidden.iter().all(|name| name.contains(".job-"));
        assert!(hidden.len() < 2 && are_jobs, "{at}: {hidden:?}");
        if number.is_multiple_of(2) {
            return case.recover("recover out --jobs", at);
        }
        for name in hidden {
            case.done(&format!("job abort out/{name}"), at);
        }
        case.recover("recover out", at);
    });
    assert!(kills > 30, "{kills}");
}

#[test]
fn a_plan_with_one_failing_call_changes_nothing_and_can_be_removed() {
    let faults = fail_everywhere(PLAN, &[], |case, is_done, at| {
        assert!(!case.is_new(at), "{at}");
        assert!(case.has_job() || !is_done, "{at}");
        case.recover("recover out --jobs", at);
    });
    assert!(faults > 30, "{faults}");
}

#[test]
fn an_abort_that_is_killed_leaves_a_job_or_none() {
    let kills = kill_everywhere("job abort m.job", &["0"], |case, number, is_killed, at| {
        assert!(!case.is_new(at), "{at}");
        assert!(is_killed || case.hidden().is_empty(), "{at}");
        if case.has_job() && number.is_multiple_of(2) {
            // It is whole.
            case.done("job write m.job 1", at);
            case.done("job commit m.job", at);
            assert!(case.is_new(at), "{at}");
        } else {
            case.done_or_gone("job abort m.job", at);
        }
        case.recover("recover out", at);
    });
    assert!(kills > 20, "{kills}");
}
