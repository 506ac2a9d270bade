//! The command, killed at each of its calls that change a file system, and with one of them failing
//! at a time.
//!
//! Old and new files have one length, as those of two checkpoints of a model do, and in half of the
//! runs one time, as a file system with a coarse clock gives them.
//!
//! A tracer (`ptrace`) stops the command at the n-th such call, for every n. After each kill a copy
//! of the visible files, as other programs see them, holds one model with its own weights or none;
//! the next load finds the complete old model or the complete new one; and the next save, or
//! `recover`, leaves no trace. A program of its own, because the tracer waits for all children of
//! its thread.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// Only functions with `#[test]` are tests for clippy, and their helpers are not.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]

mod interrupted;
mod job;
mod model_files;
mod share;
mod signing;
mod tracer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use nix::errno::Errno;
use onnx_container::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use onnx_container::recovery::recover;
use onnx_container::{Container, ErrorKind, MmapChoice, SaveOptions, WeightFiles};
use tempfile::TempDir;

use crate::tracer::{At, Ending, Traced, trace_beside};

/// A model of three tensors whose elements all are `value`, in a file or in files of this layout.
fn save(path: &Path, value: f32, layout: WeightFiles) {
    let mut graph = GraphProto::new(format!("{value}"));
    for name in ["a", "b", "c"] {
        graph.initializer.push(TensorProto::external(
            name,
            TensorProto::FLOAT,
            [400],
            format!("#{name}"),
        ));
    }
    let mut model = ModelProto::new(graph);
    model.opset_import.push(OperatorSetIdProto::new("", 21));
    let mut container = Container::new(model);
    for name in ["#a", "#b", "#c"] {
        container.insert(name, ndarray::Array1::from_elem(400, value)).unwrap();
    }
    container.save(path, SaveOptions::from(layout).sync(false)).unwrap();
}

/// The value of the model at `path`: of its graph and all its weights.
fn value(path: &Path) -> Result<f32, onnx_container::Error> {
    let container = Container::load(path, MmapChoice::never())?;
    let graph = container.model().graph.as_deref().unwrap();
    let value: f32 = graph.name.as_ref().unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(graph.initializer.len(), 3);
    for (handle, weight) in container.iter() {
        let tensor = weight.to_tensor().unwrap();
        assert!(
            tensor.as_slice::<f32>().unwrap().iter().all(|x| *x == value),
            "{handle} of {value}"
        );
    }
    Ok(value)
}

/// A way to write a model, by the arguments after IN and OUT.
struct Way {
    name: &'static str,
    args: &'static [&'static str],
    /// How the replaced model is stored; `None` where there is none.
    old: Option<WeightFiles>,
}

const SHARDED: WeightFiles = WeightFiles::Sharded { max_bytes: 2000 };

const WAYS: [Way; 11] = [
    Way { name: "pack", args: &[], old: Some(WeightFiles::Packed) },
    Way { name: "pack", args: &[], old: None },
    Way { name: "pack", args: &[], old: Some(WeightFiles::PerTensor) },
    Way { name: "pack", args: &["--max-shard-size", "2000"], old: Some(SHARDED) },
    Way { name: "pack", args: &["--safetensors"], old: Some(WeightFiles::Safetensors) },
    Way { name: "split", args: &[], old: Some(WeightFiles::PerTensor) },
    Way { name: "split", args: &[], old: None },
    Way { name: "inline-functions", args: &[], old: Some(WeightFiles::Packed) },
    Way { name: "edit", args: &["--rename-tensor=a=d"], old: Some(WeightFiles::Packed) },
    Way { name: "embed", args: &[], old: Some(WeightFiles::Packed) },
    Way { name: "embed", args: &[], old: Some(WeightFiles::Embedded) },
];

/// The clock that gives files their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// That of the file system.
    Own,
    /// One that stands still.
    Stopped,
}

/// How the command is run.
#[derive(Debug, Clone)]
struct How {
    sync: bool,
    clock: Clock,
    /// Where the folder is made; `None` where the system has such folders.
    disk: Option<PathBuf>,
}

impl How {
    fn new(sync: bool, clock: Clock) -> Self {
        Self { sync, clock, disk: None }
    }
}

/// A folder with the new model in a folder of its own, and the old one where it is to be replaced.
struct Case {
    folder: TempDir,
    way: &'static Way,
    how: How,
    /// The lengths of the old files, by their names.
    old: BTreeMap<String, u64>,
}

impl Case {
    fn new(way: &'static Way, how: &How) -> Self {
        let folder = match &how.disk {
            Some(disk) => tempfile::tempdir_in(disk).unwrap(),
            None => tempfile::tempdir().unwrap(),
        };
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        save(&folder.path().join("in/new.onnx"), 2.0, WeightFiles::PerTensor);
        let mut case = Self { folder, way, how: how.clone(), old: BTreeMap::new() };
        if let Some(layout) = way.old {
            save(&case.target(), 1.0, layout);
        }
        case.old = case.lengths();
        case
    }

    /// The lengths of all visible files.
    fn lengths(&self) -> BTreeMap<String, u64> {
        let names = self.names().into_iter().filter(|name| !name.starts_with('.'));
        names
            .map(|name| (name.clone(), fs::metadata(self.out().join(name)).unwrap().len()))
            .collect()
    }

    /// Runs the command, and stops the clock where that is asked for.
    fn trace(&self, at: At<'_>) -> Traced {
        self.trace_command(self.traced(), at)
    }

    fn trace_command(&self, command: Command, at: At<'_>) -> Traced {
        trace_beside(command, at, || {
            if self.how.clock == Clock::Stopped {
                stop_clock(&self.out());
            }
        })
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("out/m.onnx")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// A shell that stops, so that the tracer takes hold of it, and then becomes the command.
    fn traced(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
        command.arg(assert_cmd::cargo::cargo_bin!("onnx-container"));
        self.with_args(command)
    }

    fn untraced(&self) -> Command {
        self.with_args(Command::new(assert_cmd::cargo::cargo_bin!("onnx-container")))
    }

    /// `recover`, traced.
    fn recovery(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
        command.arg(assert_cmd::cargo::cargo_bin!("onnx-container")).args(["recover", "out"]);
        command.current_dir(self.folder.path());
        command
    }

    fn with_args(&self, mut command: Command) -> Command {
        command.args([self.way.name, "in/new.onnx", "out/m.onnx"]).args(self.way.args);
        if !self.how.sync {
            command.arg("--no-sync");
        }
        command.current_dir(self.folder.path());
        command
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.out()).unwrap().map(Result::unwrap);
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    fn hidden(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with('.')).collect()
    }

    /// What a program sees that knows nothing of recovery: the value of the model, or that there is
    /// none.
    fn seen_by_others(&self) -> Option<f32> {
        let copy = tempfile::tempdir().unwrap();
        for name in self.names().iter().filter(|name| !name.starts_with('.')) {
            fs::copy(self.out().join(name), copy.path().join(name)).unwrap();
        }
        match value(&copy.path().join("m.onnx")) {
            Ok(value) => Some(value),
            Err(error) => {
                let path = error.path().unwrap();
                assert!(
                    error.kind() == ErrorKind::MissingFile && path.ends_with("m.onnx"),
                    "{error}"
                );
                None
            }
        }
    }

    /// What the next load finds; a model that was not there before may not be there now.
    fn loaded(&self) -> Option<f32> {
        match value(&self.target()) {
            Ok(value) => Some(value),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
                assert!(self.way.old.is_none(), "{error}");
                None
            }
        }
    }

    fn is_old(&self, value: Option<f32>) -> bool {
        value == self.way.old.map(|_| 1.0)
    }
}

/// Checks what is left after the command was ended in the middle; `at` says where.
fn check_what_is_left(case: &Case, number: usize, at: &str) {
    let seen = case.seen_by_others();
    let loaded = case.loaded();
    assert!(case.is_old(loaded) || loaded == Some(2.0), "{at}: {loaded:?}");
    assert!(
        seen.is_none() || seen == loaded || case.is_old(seen),
        "{at}: {seen:?}, then {loaded:?}"
    );
    assert_eq!(case.loaded(), loaded, "{at}: another load");
    // The next program that opens the model finds no trace, or removes it.
    if number.is_multiple_of(2) {
        let recovery = recover(case.out()).unwrap();
        assert!(recovery.errors.is_empty(), "{at}: {recovery:?}");
        assert_eq!(case.loaded(), loaded, "{at}: after recovery");
    } else {
        let output = case.untraced().output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.is_empty(), "{at}: the next save: {text}");
        assert_eq!(case.loaded(), Some(2.0), "{at}");
    }
    assert_eq!(case.hidden(), [""; 0], "{at}");
}

/// Gives all files beneath `folder` one time.
fn stop_clock(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => stop_clock(&entry.path()),
            Ok(kind) if kind.is_file() => {
                let file = fs::File::open(entry.path()).unwrap();
                file.set_modified(UNIX_EPOCH + Duration::from_secs(1 << 30)).unwrap();
            }
            _ => {}
        }
    }
}

fn kill_everywhere(way: &'static Way, how: &How) -> usize {
    for number in 0.. {
        let case = Case::new(way, how);
        let traced = case.trace(At::Kill(number));
        let at =
            format!("{} {:?} {how:?}, killed at call {number}: {}", way.name, way.old, traced.call);
        match traced.ending {
            Ending::Killed => check_what_is_left(&case, number, &at),
            Ending::Exited(code) => {
                assert_eq!((code, case.loaded()), (0, Some(2.0)), "{at}: {}", traced.stderr);
                assert_eq!(case.hidden(), [""; 0], "{at}");
                let new = case.lengths();
                let differ =
                    |(name, len): &(&String, &u64)| new.get(*name).is_some_and(|n| n != *len);
                let is_same_layout = way.name != "embed" && new.keys().eq(case.old.keys());
                assert!(!is_same_layout || !case.old.iter().any(|file| differ(&file)), "{at}");
                return number;
            }
        }
    }
    unreachable!()
}

/// Errors that a call of the system may end with at any time.
const ERRORS: [Errno; 7] = [
    Errno::ENOSPC,
    Errno::EIO,
    Errno::EACCES,
    Errno::EINTR,
    Errno::EDQUOT,
    Errno::EROFS,
    Errno::EPERM,
];

fn fail_everywhere(way: &'static Way, how: &How, errno: Errno) -> usize {
    for number in 0.. {
        let case = Case::new(way, how);
        let traced = case.trace(At::Fail(number, errno));
        let at = format!(
            "{} {:?} {how:?}, {errno} in call {number}: {}",
            way.name, way.old, traced.call
        );
        let Ending::Exited(code) = traced.ending else { panic!("{at}: killed") };
        let (seen, text) = (case.seen_by_others(), &traced.stderr);
        // What cannot be removed is named; a journal goes with its folder.
        let hidden = case.hidden();
        let is_named = |name: &String| text.contains(name.as_str());
        let folders = hidden.iter().filter(|name| name.contains(".saving-"));
        let is_told =
            folders.clone().all(is_named) && (hidden.is_empty() || hidden.iter().any(is_named));
        assert!(is_told, "{at}: {hidden:?} is left, and not in {text:?}");
        let loaded = case.loaded();
        assert!(case.is_old(loaded) || loaded == Some(2.0), "{at}: {loaded:?}: {text}");
        assert!(seen.is_none() || seen == loaded, "{at}: {seen:?}, then {loaded:?}");
        if code == 0 {
            assert_eq!(loaded, Some(2.0), "{at}: {text}");
        }
        let recovery = recover(case.out()).unwrap();
        assert!(recovery.errors.is_empty(), "{at}: {recovery:?}");
        assert_eq!((case.loaded(), case.hidden().len()), (loaded, 0), "{at}");
        if !traced.reached {
            return number;
        }
    }
    unreachable!()
}

fn each_way(how: &How, run: impl Fn(&'static Way, &How) -> usize) -> usize {
    WAYS.iter().map(|way| run(way, how)).sum()
}

#[test]
fn a_save_that_is_killed_leaves_the_old_model_or_the_new_one() {
    let kills = each_way(&How::new(false, Clock::Stopped), kill_everywhere);
    println!("{kills} kills");
    assert!(kills > 200, "{kills}");
}

#[test]
fn a_durable_save_that_is_killed_leaves_the_old_model_or_the_new_one() {
    let kills = each_way(&How::new(true, Clock::Own), kill_everywhere);
    println!("{kills} kills");
    assert!(kills > 200, "{kills}");
}

/// Folders on other file systems, such as ones with coarse clocks, separated by colons.
const DISKS: &str = "ONNX_CONTAINER_KILL_FOLDERS";

#[test]
fn a_save_that_is_killed_on_another_disk_leaves_the_old_model_or_the_new_one() {
    let Some(disks) = std::env::var_os(DISKS) else {
        eprintln!("SKIPPED: {DISKS} names no folders on other file systems");
        return;
    };
    let kill_on = |disk: PathBuf| {
        let how = How { disk: Some(disk.clone()), ..How::new(false, Clock::Own) };
        let kills = each_way(&how, kill_everywhere);
        println!("{}: {kills} kills", disk.display());
        assert!(kills > 200, "{kills}");
    };
    std::thread::scope(|scope| {
        for disk in std::env::split_paths(&disks) {
            scope.spawn(move || kill_on(disk));
        }
    });
}

/// Copies a folder and what is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A save is killed at each call, and what recovers it at each of its own.
#[test]
fn a_recovery_that_is_killed_is_gone_on_with() {
    let how = How::new(false, Clock::Stopped);
    let mut kills = 0;
    for number in 0.. {
        let killed = Case::new(&WAYS[0], &how);
        let traced = killed.trace(At::Kill(number));
        if traced.ending != Ending::Killed {
            break;
        }
        if !killed.hidden().contains(&".m.onnx.switching".to_owned()) {
            continue;
        }
        let mut changes = Vec::new();
        for second in 0.. {
            let mut case = Case::new(&WAYS[1], &how);
            case.way = &WAYS[0];
            copy(&killed.out(), &case.out());
            let again = case.trace_command(case.recovery(), At::Kill(second));
            let at = format!("{number}: {}, then {second}: {}", traced.call, again.call);
            if again.ending != Ending::Killed {
                assert_eq!((again.ending, case.loaded()), (Ending::Exited(0), Some(2.0)), "{at}");
                break;
            }
            check_what_is_left(&case, second, &at);
            kills += 1;
            changes.extend((!["ioctl", "flock"].contains(&again.call)).then_some(again.call));
        }
        // The killed save may not have flushed its journal.
        assert_eq!(changes.first(), Some(&"fsync"), "{number}: {changes:?}");
    }
    println!("{kills} kills of recoveries");
    assert!(kills > 50, "{kills}");
}

/// Every error at every call of every way is 4,000 runs; without this variable most of them are
/// left out.
/// Calls `run` for each of the `ways` with one error, with `ALL` with every one, and with the
/// number of the call that fails, until it says that there are not so many calls. Returns how many
/// failed.
fn each_fault<W>(
    ways: &'static [W],
    mut run: impl FnMut(usize, &'static W, usize, Errno) -> bool,
) -> usize {
    let all = std::env::var_os(ALL).is_some();
    let mut faults = 0;
    for (n, way) in ways.iter().enumerate() {
        for (index, errno) in ERRORS.into_iter().enumerate() {
            if all || index == n % ERRORS.len() {
                faults += (0..).take_while(|number| run(n, way, *number, errno)).count();
            }
        }
    }
    println!("{faults} faults; all with {ALL}=1");
    faults
}

const ALL: &str = "ONNX_CONTAINER_ALL_FAULTS";

#[test]
fn a_save_with_one_failing_call_leaves_the_old_model_or_the_new_one() {
    let all = std::env::var_os(ALL).is_some();
    let mut faults = 0;
    for (number, errno) in ERRORS.into_iter().enumerate() {
        for (index, way) in WAYS.iter().enumerate() {
            // One way for each error, durable or not.
            let is_its = index == number;
            for sync in [true, false] {
                if all || is_its && sync == number.is_multiple_of(2) {
                    faults += fail_everywhere(way, &How::new(sync, Clock::Own), errno);
                }
            }
        }
    }
    println!("{faults} faults; all with {ALL}=1");
    assert!(faults > 150, "{faults}");
}
