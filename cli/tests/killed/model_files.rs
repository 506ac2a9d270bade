//! `mv`, `cp` and `rm`, killed at each of their calls and with one of them failing: the model is
//! complete at the old place or at the new one, and the next one to look leaves no trace.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use onnx_container::proto::Message;
use onnx_container::recovery::recover;
use onnx_container::{ErrorKind, WeightFiles};
use tempfile::TempDir;

use crate::tracer::{At, Ending, Traced, trace};
use crate::{ALL, SHARDED, each_fault, save, value};

/// A way to call one of the commands.
struct Way {
    args: &'static [&'static str],
    layout: WeightFiles,
    /// The model's place before, and after it unless it is gone.
    old: &'static str,
    new: Option<&'static str>,
    /// Whether there is another model at the new place.
    replaces: bool,
}

const fn way(
    args: &'static [&'static str],
    layout: WeightFiles,
    new: Option<&'static str>,
    replaces: bool,
) -> Way {
    Way { args, layout, old: "in/m.onnx", new, replaces }
}

const WAYS: [Way; 9] = [
    way(&["mv", "in/m.onnx", "out"], WeightFiles::Packed, Some("out/m.onnx"), false),
    way(&["mv", "in/m.onnx", "in/n.onnx"], WeightFiles::PerTensor, Some("in/n.onnx"), false),
    way(&["mv", "in/m.onnx", "out/n.onnx"], SHARDED, Some("out/n.onnx"), true),
    way(&["mv", "in/m.onnx", "out/n.onnx"], WeightFiles::Embedded, Some("out/n.onnx"), true),
    way(&["mv", "in/m.onnx", "out/n.onnx"], WeightFiles::Safetensors, Some("out/n.onnx"), false),
    way(&["cp", "in/m.onnx", "in/n.onnx"], WeightFiles::Packed, Some("in/n.onnx"), false),
    way(&["cp", "in/m.onnx", "out/n.onnx"], WeightFiles::PerTensor, Some("out/n.onnx"), true),
    way(&["rm", "in/m.onnx"], WeightFiles::PerTensor, None, false),
    way(&["rm", "in/m.onnx"], WeightFiles::Embedded, None, false),
];

struct Case {
    folder: TempDir,
    way: &'static Way,
    sync: bool,
}

impl Case {
    fn new(way: &'static Way, sync: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for below in ["in", "out"] {
            fs::create_dir(folder.path().join(below)).unwrap();
        }
        save(&folder.path().join(way.old), 2.0, way.layout);
        if way.replaces {
            save(&folder.path().join(way.new.unwrap()), 1.0, WeightFiles::Packed);
        }
        Self { folder, way, sync }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn trace(&self, at: At<'_>) -> Traced {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
        command.arg(assert_cmd::cargo::cargo_bin!("onnx-container")).args(self.way.args);
        if !self.sync {
            command.arg("--no-sync");
        }
        command.current_dir(self.folder.path());
        trace(command, at)
    }

    /// All names in the two folders.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for below in ["in", "out"] {
            let entries = fs::read_dir(self.path(below)).unwrap().map(Result::unwrap);
            names.extend(
                entries.map(|entry| format!("{below}/{}", entry.file_name().to_str().unwrap())),
            );
        }
        names.sort();
        names
    }

    /// The value of the model at `name`; none where there is none.
    fn loaded(&self, name: &str, at: &str) -> Option<f32> {
        match value(&self.path(name)) {
            Ok(value) => Some(value),
            Err(error) => {
                let is_missing = error.path().unwrap().ends_with(name);
                assert!(error.kind() == ErrorKind::MissingFile && is_missing, "{at}: {error}");
                None
            }
        }
    }

    /// Checks what a program sees that knows nothing of recovery, and then the next load.
    fn check(&self, at: &str) {
        let seen = self.copy_of_visible();
        let (old, new) = (self.way.old, self.way.new);
        if new.is_some() {
            let whole = [Some(old), new]
                .into_iter()
                .flatten()
                .any(|name| value(&seen.path().join(name)).is_ok_and(|value| value == 2.0));
            assert!(whole, "{at}: nobody sees a whole model in {:?}", self.names());
        }
        let (old, new) = (self.loaded(old, at), new.and_then(|new| self.loaded(new, at)));
        assert!(old.is_none_or(|value| value == 2.0), "{at}: {old:?}");
        let replaced = self.way.replaces.then_some(1.0);
        assert!(new == Some(2.0) || new == replaced, "{at}: {new:?}");
        assert!(old.is_some() || self.way.new.is_none() || new == Some(2.0), "{at}");
        for below in ["in", "out"] {
            let recovery = recover(self.path(below)).unwrap();
            assert!(recovery.errors.is_empty(), "{at}: {recovery:?}");
        }
        let hidden = |name: &String| name.contains("/.");
        assert!(!self.names().iter().any(hidden), "{at}: {:?}", self.names());
        assert_eq!(self.loaded(self.way.old, at), old, "{at}: after recovery");
        if old.is_none() {
            let left: Vec<_> = self.names().into_iter().filter(|n| n.starts_with("in/m")).collect();
            let stays =
                self.way.layout == WeightFiles::Safetensors && self.way.new == Some("in/n.onnx");
            assert!(left.is_empty() || stays, "{at}: {left:?} are left");
        }
    }

    fn copy_of_visible(&self) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        for below in ["in", "out"] {
            fs::create_dir(copy.path().join(below)).unwrap();
        }
        for name in self.names().iter().filter(|name| !name.contains("/.")) {
            fs::copy(self.path(name), copy.path().join(name)).unwrap();
        }
        copy
    }

    /// Runs the command to its end, where the old model still is.
    fn finish(&self, at: &str) {
        if self.loaded(self.way.old, at).is_some() {
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("onnx-container"));
            let output = command.args(self.way.args).current_dir(self.folder.path()).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{at}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let is_copy = self.way.args[0] == "cp";
        assert_eq!(self.loaded(self.way.old, at), is_copy.then_some(2.0), "{at}");
        assert_eq!(self.way.new.map(|new| self.loaded(new, at)), self.way.new.map(|_| Some(2.0)));
    }
}

fn kill_everywhere(way: &'static Way, sync: bool) -> usize {
    for number in 0.. {
        let case = Case::new(way, sync);
        let traced = case.trace(At::Kill(number));
        let at = format!("{:?} {:?}, killed at {number}: {}", way.args, way.layout, traced.call);
        match traced.ending {
            Ending::Killed => {
                case.check(&at);
                case.finish(&at);
            }
            Ending::Exited(code) => {
                assert_eq!(code, 0, "{at}: {}", traced.stderr);
                case.check(&at);
                case.finish(&at);
                return number;
            }
        }
    }
    unreachable!()
}

#[test]
fn a_model_that_moves_is_whole_wherever_the_command_is_killed() {
    let kills: usize =
        WAYS.iter().enumerate().map(|(n, way)| kill_everywhere(way, n.is_multiple_of(2))).sum();
    println!("{kills} kills");
    assert!(kills > 150, "{kills}");
}

#[test]
fn a_model_that_moves_is_whole_whichever_call_fails() {
    let faults = each_fault(&WAYS, |n, way, number, errno| {
        let case = Case::new(way, n.is_multiple_of(2));
        let traced = case.trace(At::Fail(number, errno));
        let (args, layout, call) = (way.args, way.layout, traced.call);
        let at = format!("{args:?} {layout:?}, {errno} at {number}: {call}: {}", traced.stderr);
        let Ending::Exited(code) = traced.ending else { panic!("{at}: killed") };
        if code == 0 {
            let new = way.new.map(|new| case.loaded(new, &at));
            assert_eq!(new, way.new.map(|_| Some(2.0)), "{at}");
        }
        case.check(&at);
        traced.reached
    });
    assert!(faults > 150, "{faults}");
}

/// The calls that look at files.
fn look(_: nix::unistd::Pid, registers: &libc::user_regs_struct) -> Option<&'static str> {
    match i64::try_from(registers.orig_rax).ok()? {
        libc::SYS_statx => Some("statx"),
        libc::SYS_newfstatat => Some("newfstatat"),
        libc::SYS_fstat => Some("fstat"),
        libc::SYS_readlink => Some("readlink"),
        libc::SYS_readlinkat => Some("readlinkat"),
        libc::SYS_getdents64 => Some("getdents64"),
        libc::SYS_openat => Some("openat"),
        libc::SYS_faccessat => Some("faccessat"),
        _ => None,
    }
}

/// A folder `in` with m.onnx, whose weights n.onnx needs by name, o.onnx by way of a link and
/// above.onnx in the folder above.
fn shared_weights() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for below in ["in", "out"] {
        fs::create_dir(at(below)).unwrap();
    }
    save(&at("in/m.onnx"), 2.0, WeightFiles::Packed);
    let model = fs::read(at("in/m.onnx")).unwrap();
    fs::copy(at("in/m.onnx"), at("in/n.onnx")).unwrap();
    std::os::unix::fs::symlink("m.onnx.data", at("in/l.onnx.data")).unwrap();
    std::os::unix::fs::symlink("in", at("way")).unwrap();
    let replaced = |old: &[u8], new: &str| {
        let mut model = onnx_container::proto::ModelProto::decode(&model.clone().into()).unwrap();
        for (_, tensor) in onnx_container::traversal::iter_mut(&mut model) {
            for entry in &mut tensor.external_data {
                if entry.value.as_ref().is_some_and(|value| value.as_bytes() == old) {
                    entry.value = Some(new.into());
                }
            }
        }
        model.encode_to_vec().unwrap()
    };
    fs::write(at("in/o.onnx"), replaced(b"m.onnx.data", "l.onnx.data")).unwrap();
    fs::write(at("above.onnx"), replaced(b"m.onnx.data", "way/m.onnx.data")).unwrap();
    folder
}

/// What cannot be looked at may need the weights.
#[test]
fn no_failing_look_removes_weights_that_another_model_needs() {
    let all = std::env::var_os(ALL).is_some();
    let mut faults = 0;
    for args in [&["rm", "in/m.onnx"][..], &["mv", "in/m.onnx", "out"]] {
        for errno in [Errno::EIO, Errno::EACCES].into_iter().take(1 + usize::from(all)) {
            for number in 0.. {
                let folder = shared_weights();
                let mut command = Command::new("/bin/sh");
                command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
                command.arg(assert_cmd::cargo::cargo_bin!("onnx-container")).args(args);
                command.arg("--no-sync").current_dir(folder.path());
                let traced = trace(command, At::FailOf(number, errno, &look));
                let at =
                    format!("{args:?}: {errno} at {number}, {}: {}", traced.call, traced.stderr);
                for user in ["in/n.onnx", "in/o.onnx"] {
                    let value = value(&folder.path().join(user));
                    assert_eq!(value.as_ref().ok(), Some(&2.0), "{user}, {at}");
                }
                let weights = folder.path().join("in/m.onnx.data");
                assert!(weights.exists(), "{at}");
                if !traced.reached {
                    break;
                }
                faults += 1;
            }
        }
    }
    println!("{faults} failing looks; those without access too with {ALL}=1");
    assert!(faults > 100, "{faults}");
}
