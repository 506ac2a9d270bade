//! `share`, killed at each of its calls and with one of them failing: all models are the old ones
//! or all the new ones, each with its weights, and the next one to look leaves no trace.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use onnx_container::external_data::ExternalData;
use onnx_container::proto::Message;
use onnx_container::recovery::recover;
use onnx_container::{Container, LoadOptions, WeightFiles};
use tempfile::TempDir;

use crate::tracer::{At, Ending, Traced, trace_beside};
use crate::{Clock, each_fault, save, stop_clock, value};

const MODELS: [&str; 3] = ["a.onnx", "b.onnx", "c.onnx"];

/// How the models are stored, whether old files go, and how the files have their times.
struct Way {
    layout: WeightFiles,
    delete_old: bool,
    sync: bool,
    clock: Clock,
}

const WAYS: [Way; 3] = [
    Way { layout: WeightFiles::Packed, delete_old: false, sync: false, clock: Clock::Own },
    Way { layout: WeightFiles::Packed, delete_old: true, sync: true, clock: Clock::Stopped },
    Way { layout: WeightFiles::Embedded, delete_old: false, sync: true, clock: Clock::Stopped },
];

struct Case {
    folder: TempDir,
    way: &'static Way,
}

impl Case {
    fn new(way: &'static Way) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in MODELS {
            save(&folder.path().join(name), 2.0, way.layout);
        }
        // While the command runs, these times do not change.
        if way.clock == Clock::Stopped {
            stop_clock(folder.path());
        }
        Self { folder, way }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn with_args(&self, mut command: Command) -> Command {
        command.arg("share").args(MODELS).current_dir(self.folder.path());
        if !self.way.sync {
            command.arg("--no-sync");
        }
        if !self.way.delete_old {
            command.arg("--keep-old");
        }
        command
    }

    fn trace(&self, at: At<'_>) -> Traced {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
        command.arg(assert_cmd::cargo::cargo_bin!("onnx-container"));
        trace_beside(self.with_args(command), at, || {
            if self.way.clock == Clock::Stopped {
                stop_clock(self.folder.path());
            }
        })
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(Result::unwrap);
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Whether the model has its weights in the shared file.
    fn is_new(&self, name: &str) -> bool {
        let options = LoadOptions::new().weights(false);
        let container = Container::load(self.path(name), options).unwrap();
        let tensor = &container.model().graph.as_ref().unwrap().initializer[0];
        ExternalData::parse(tensor).is_ok_and(|entry| entry.location == "shared.onnx.data")
    }

    /// Whether the models are the new ones, after checking that all are and that each is whole. One
    /// of them, by `first`, is opened first.
    fn are_new(&self, first: usize, at: &str) -> bool {
        let mut models = MODELS;
        models.rotate_left(first % MODELS.len());
        for name in models {
            let value = value(&self.path(name)).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(value, 2.0, "{at}: {name}");
        }
        let new = models.map(|name| self.is_new(name));
        assert!(new.iter().all(|is_new| *is_new == new[0]), "{at}: {models:?} {new:?}");
        new[0]
    }

    /// Checks that a model that is in place has its weights, for programs that know nothing of
    /// recovery.
    fn check_visible(&self, at: &str) {
        let names = self.names();
        for name in MODELS.iter().filter(|name| names.iter().any(|there| there == *name)) {
            let model = fs::read(self.path(name)).unwrap();
            let model = onnx_container::proto::ModelProto::decode(&model.into()).unwrap();
            let tensor = &model.graph.as_ref().unwrap().initializer[0];
            if let Ok(entry) = ExternalData::parse(tensor) {
                assert!(
                    self.path(&entry.location).exists(),
                    "{at}: {name} has no weights: {names:?}"
                );
            }
        }
    }

    /// Checks what is left after the command was ended in the middle.
    fn check(&self, number: usize, at: &str) -> bool {
        self.check_visible(at);
        if number.is_multiple_of(4) {
            let recovery = recover(self.folder.path()).unwrap();
            assert!(recovery.errors.is_empty(), "{at}: {recovery:?}");
        }
        let new = self.are_new(number, at);
        let recovery = recover(self.folder.path()).unwrap();
        assert!(recovery.errors.is_empty(), "{at}: {recovery:?}");
        assert_eq!(self.are_new(0, at), new, "{at}: after recovery");
        assert!(!self.names().iter().any(|name| name.starts_with('.')), "{at}: {:?}", self.names());
        new
    }

    /// Runs the command to its end, where it did not get there.
    fn finish(&self, is_new: bool, at: &str) {
        if !is_new {
            let command = Command::new(assert_cmd::cargo::cargo_bin!("onnx-container"));
            let output = self.with_args(command).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{at}: the next one: {said}");
        }
        assert!(self.are_new(1, at), "{at}");
    }
}

#[test]
fn models_that_share_are_all_old_or_all_new_wherever_the_command_is_killed() {
    let mut kills = 0;
    for way in &WAYS {
        for number in 0.. {
            let case = Case::new(way);
            let traced = case.trace(At::Kill(number));
            let at = format!("{:?}, killed at {number}: {}", way.layout, traced.call);
            let is_new = case.check(number, &at);
            case.finish(is_new, &at);
            match traced.ending {
                Ending::Killed => kills += 1,
                Ending::Exited(code) => {
                    assert_eq!((code, is_new), (0, true), "{at}: {}", traced.stderr);
                    let old =
                        case.names().iter().filter(|name| name.ends_with(".onnx.data")).count();
                    let left =
                        if way.layout == WeightFiles::Packed && !way.delete_old { 4 } else { 1 };
                    assert_eq!(old, left, "{at}: {:?}", case.names());
                    break;
                }
            }
        }
    }
    println!("{kills} kills");
    assert!(kills > 60, "{kills}");
}

#[test]
fn models_that_share_are_all_old_or_all_new_whichever_call_fails() {
    let faults = each_fault(&WAYS, |_, way, number, errno| {
        let case = Case::new(way);
        let traced = case.trace(At::Fail(number, errno));
        let (layout, call) = (way.layout, traced.call);
        let at = format!("{layout:?}, {errno} at {number}: {call}: {}", traced.stderr);
        let Ending::Exited(code) = traced.ending else { panic!("{at}: killed") };
        let is_new = case.check(number, &at);
        assert!(is_new || code != 0, "{at}");
        traced.reached
    });
    assert!(faults > 60, "{faults}");
}
