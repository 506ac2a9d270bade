//! The commands whose power is cut: a folder for each, and what it must hold afterwards.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use onnx_container::WeightFiles;
use p256::pkcs8::{EncodePrivateKey, LineEnding};

use crate::models::{LARGE, SMALL, Value, save};
use crate::names::{RULES, Rule};
use crate::tracer::{At, Ending, trace};

/// What a folder must hold after a cut.
#[derive(Debug, Clone, Copy)]
pub enum Promise {
    /// The model of this path is the old one or the new one.
    Model { path: &'static str, old: Option<Value>, new: Value },
    /// The model is at one of two places or at both, or it is removed.
    Moved { new: Option<&'static str>, replaces: bool, keeps_weights: bool },
    /// Three models are all old or all new ones.
    Shared,
    /// Never is one of two signatures old and the other new.
    Signed,
}

/// What runs with the arguments of a case.
enum Program {
    Command,
    /// `save.py`, by the Python of `ONNX_CONTAINER_PYTHON`, which has the package.
    Python,
}

impl Program {
    /// It, and the arguments before those of a case.
    fn words(&self) -> Vec<OsString> {
        match self {
            Self::Command => vec![assert_cmd::cargo::cargo_bin!("onnx-container").into()],
            Self::Python => {
                let python = env::var_os("ONNX_CONTAINER_PYTHON").unwrap();
                vec![python, "-B".into(), "-c".into(), include_str!("save.py").into()]
            }
        }
    }
}

/// A command and its folder.
pub struct Case {
    program: Program,
    pub name: String,
    pub args: String,
    pub promise: Promise,
    pub sync: bool,
    /// Whether all files have one time.
    pub is_stopped: bool,
    pub rules: &'static [Rule],
    make: Box<dyn Fn(&Path) + Sync>,
}

const OLD: Value = (1.0, 1.0);
const NEW: Value = (2.0, 2.0);
const SHARDED: WeightFiles = WeightFiles::Sharded { max_bytes: 4 * SMALL as u64 };
const SHARDS: &str = "--max-shard-size 20000";

impl Case {
    fn new(args: &str, promise: Promise, make: impl Fn(&Path) + Sync + 'static) -> Self {
        let sync = !args.contains("--no-sync");
        let (name, args) = (args.to_owned(), args.to_owned());
        let (program, rules, make) = (Program::Command, &RULES, Box::new(make));
        Self { program, name, args, promise, sync, is_stopped: false, rules, make }
    }

    fn named(mut self, note: &str) -> Self {
        self.name = format!("{} ({note})", self.name);
        self
    }

    fn stopped(mut self) -> Self {
        self.is_stopped = true;
        self.named("one time")
    }

    /// By the rules of file systems with a log alone: by the others, what is not flushed may be in
    /// too many states.
    fn logged(self) -> Self {
        Self { rules: &RULES[..4], ..self }
    }

    /// By all rules but that of any order, for the same reason; and where nothing is flushed, any
    /// order may mix two models.
    fn in_order(self) -> Self {
        Self { rules: &RULES[..5], ..self }
    }

    pub fn is_recovery(&self) -> bool {
        self.args == "recover out"
    }

    /// Makes the folder.
    pub fn make(&self, folder: &Path) {
        for name in ["in", "out"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        (self.make)(folder);
    }

    /// The command, behind a shell that stops, so that a tracer takes hold of it.
    pub fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
        command.args(self.program.words());
        command.args(self.args.split(' ')).current_dir(folder);
        command
    }
}

/// A command that writes the model in/new.onnx to out/m.onnx.
fn writes(args: &str, old: Option<WeightFiles>) -> Case {
    let promise = Promise::Model { path: "out/m.onnx", old: old.map(|_| OLD), new: NEW };
    let note = old.map_or("no old model".to_owned(), |old| format!("over {old:?}"));
    let args = match args.split_once(' ') {
        Some((command, args)) => format!("{command} in/new.onnx out/m.onnx {args}"),
        None => format!("{args} in/new.onnx out/m.onnx"),
    };
    Case::new(&args, promise, move |folder| {
        save(&folder.join("in/new.onnx"), NEW, SMALL, WeightFiles::PerTensor);
        if let Some(old) = old {
            save(&folder.join("out/m.onnx"), OLD, SMALL, old);
        }
    })
    .named(&note)
}

fn moves(args: &str, layout: WeightFiles, new: Option<&'static str>, replaces: bool) -> Case {
    let keeps_weights = layout == WeightFiles::Safetensors && new == Some("in/n.onnx");
    let promise = Promise::Moved { new, replaces, keeps_weights };
    Case::new(args, promise, move |folder| {
        save(&folder.join("in/m.onnx"), NEW, SMALL, layout);
        if let Some(new) = new.filter(|_| replaces) {
            save(&folder.join(new), OLD, SMALL, WeightFiles::Packed);
        }
    })
    .named(&format!("{layout:?}"))
}

fn shares(args: &str, layout: WeightFiles) -> Case {
    Case::new(args, Promise::Shared, move |folder| {
        for name in ["a", "b", "c"] {
            save(&folder.join(format!("in/{name}.onnx")), NEW, SMALL, layout);
        }
    })
    .named(&format!("{layout:?}"))
}

fn signs() -> Case {
    const SIGN: &str = "sign in/m.onnx --key key.pem --all-files";
    Case::new(SIGN, Promise::Signed, |folder| {
        let key = p256::SecretKey::from_slice(&[7; 32]).unwrap();
        fs::write(folder.join("key.pem"), &*key.to_pkcs8_pem(LineEnding::LF).unwrap()).unwrap();
        save(&folder.join("in/m.onnx"), OLD, SMALL, WeightFiles::Packed);
        run(&Program::Command, folder, SIGN);
        save(&folder.join("in/m.onnx"), NEW, SMALL, WeightFiles::Packed);
    })
}

fn commits(args: &'static str, old: Option<WeightFiles>) -> Case {
    let promise = Promise::Model { path: "out/m.onnx", old: old.map(|_| OLD), new: NEW };
    let case = Case::new("job commit m.job", promise, move |folder| {
        save(&folder.join("in/new.onnx"), NEW, SMALL, WeightFiles::PerTensor);
        if let Some(old) = old {
            save(&folder.join("out/m.onnx"), OLD, SMALL, old);
        }
        let plan = format!("job rewrite in/new.onnx out/m.onnx --parts 2 -o m.job {args}");
        for line in [plan.trim_end(), "job write m.job 0-1"] {
            run(&Program::Command, folder, line);
        }
    });
    let sync = !args.contains("--no-sync");
    Case { sync, ..case }.named(&format!("{args} over {old:?}"))
}

/// A `save_model` of Python in a way of `save.py`, over what the same way wrote.
fn python_saves(args: &str) -> Case {
    let (old, new) =
        (format!("in/old.onnx out/m.onnx {args}"), format!("in/new.onnx out/m.onnx {args}"));
    let promise = Promise::Model { path: "out/m.onnx", old: Some(OLD), new: NEW };
    let case = Case::new(&new, promise, move |folder| {
        fs::create_dir(folder.join("out/sub")).unwrap();
        save(&folder.join("in/old.onnx"), OLD, SMALL, WeightFiles::PerTensor);
        save(&folder.join("in/new.onnx"), NEW, SMALL, WeightFiles::PerTensor);
        run(&Program::Python, folder, &old);
    });
    Case { program: Program::Python, ..case }.named("Python")
}

/// Runs a program to its end.
fn run(program: &Program, folder: &Path, line: &str) {
    let words = program.words();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(line.split(' '));
    let output = command.current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

/// `recover` of a save that was killed at each of its calls after which there is a journal; the new
/// files are whole, or one is not, so that the old ones come back.
fn recoveries(is_whole: bool) -> Vec<Case> {
    let killed = move |folder: &Path, number: usize| {
        let case = writes("pack --no-sync", Some(WeightFiles::Packed));
        (case.make)(folder);
        let traced = trace(case.command(folder), At::Kill(number));
        let hidden = || fs::read_dir(folder.join("out")).unwrap().flatten().map(|e| e.path());
        let is_named =
            |path: &std::path::PathBuf, part: &str| path.to_str().unwrap().contains(part);
        let has_journal = hidden().any(|path| is_named(&path, ".switching"));
        let damaged = hidden().find(|path| is_named(path, ".saving-"));
        let damaged = damaged.map(|path| path.join("new/m.onnx")).filter(|path| path.is_file());
        if let Some(path) = damaged.as_ref().filter(|_| !is_whole) {
            fs::write(path, "cut off").unwrap();
        }
        (traced.ending == Ending::Killed, has_journal && (is_whole || damaged.is_some()))
    };
    let mut cases = Vec::new();
    for number in 0.. {
        let folder = crate::scratch();
        for name in ["in", "out"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let (was_killed, is_one) = killed(folder.path(), number);
        if !was_killed {
            return cases;
        }
        if is_one {
            let (path, end) = ("out/m.onnx", if is_whole { NEW } else { OLD });
            let old = if is_whole { OLD } else { NEW };
            let promise = Promise::Model { path, old: Some(old), new: end };
            let make = move |folder: &Path| assert!(killed(folder, number).1);
            let what = if is_whole { "finished" } else { "undone" };
            cases.push(Case::new("recover out", promise, make).named(&format!("{what}, {number}")));
        }
    }
    cases
}

/// All cases.
pub fn all() -> Vec<Case> {
    use WeightFiles::{Embedded, Packed, PerTensor, Safetensors};
    let large = |args: &str| {
        let promise = Promise::Model { path: "out/m.onnx", old: Some(OLD), new: NEW };
        let args = format!("pack in/new.onnx out/m.onnx {args}");
        Case::new(args.trim_end(), promise, |folder| {
            save(&folder.join("in/new.onnx"), NEW, LARGE, WeightFiles::PerTensor);
            save(&folder.join("out/m.onnx"), OLD, LARGE, WeightFiles::Packed);
        })
        .named("large")
    };
    let in_place = |args: &str| {
        let promise = Promise::Model { path: "in/m.onnx", old: Some(NEW), new: (3.0, 2.0) };
        Case::new(&format!("edit in/m.onnx in/m.onnx {args}"), promise, |folder| {
            save(&folder.join("in/m.onnx"), NEW, SMALL, WeightFiles::Packed);
        })
    };
    let mut cases = vec![
        writes("pack", Some(Packed)),
        writes("pack", Some(Packed)).stopped(),
        writes("pack", None),
        writes("pack", Some(PerTensor)),
        writes(&format!("pack {SHARDS}"), Some(SHARDED)).stopped(),
        writes("pack --safetensors", Some(Safetensors)),
        writes("split", Some(PerTensor)),
        writes("split", Some(PerTensor)).stopped(),
        writes("split", None),
        writes("inline-functions", Some(Packed)),
        writes("edit --rename-tensor=a=d", Some(Packed)).stopped(),
        writes("embed", Some(Packed)),
        writes("embed", Some(Embedded)),
        large("").logged(),
        large("--no-direct-io").logged(),
        in_place("--graph-name 3"),
        moves("mv in/m.onnx out", Packed, Some("out/m.onnx"), false),
        moves("mv in/m.onnx in/n.onnx", PerTensor, Some("in/n.onnx"), false),
        moves("mv in/m.onnx out/n.onnx", SHARDED, Some("out/n.onnx"), true),
        moves("mv in/m.onnx out/n.onnx", Embedded, Some("out/n.onnx"), true),
        moves("mv in/m.onnx in/n.onnx", Safetensors, Some("in/n.onnx"), false),
        moves("cp in/m.onnx in/n.onnx", Packed, Some("in/n.onnx"), false),
        moves("cp in/m.onnx out/n.onnx", PerTensor, Some("out/n.onnx"), true),
        moves("rm in/m.onnx", PerTensor, None, false),
        moves("rm in/m.onnx", Embedded, None, false),
        shares("share in/a.onnx in/b.onnx in/c.onnx", Packed),
        shares("share in/a.onnx in/b.onnx in/c.onnx --keep-old", Embedded).stopped().in_order(),
        signs(),
        commits("", Some(Packed)),
        commits("", None),
        commits("--per-tensor --digests", Some(Packed)).in_order(),
        writes("pack --no-sync", Some(Packed)).in_order(),
        writes("pack --no-sync --digests", Some(Packed)).logged(),
        writes("pack --no-sync", None).in_order(),
        writes("split --no-sync", Some(PerTensor)).stopped().logged(),
        writes("embed --no-sync", Some(Embedded)).in_order(),
        moves("mv in/m.onnx out --no-sync", Packed, Some("out/m.onnx"), false).logged(),
    ];
    cases.extend(recoveries(true));
    cases.extend(recoveries(false));
    cases
}

/// Those of the Python package that are no save of a container.
pub fn of_python() -> Vec<Case> {
    let mut cases: Vec<_> = ["location", "files", "alone"].map(python_saves).into();
    cases.push(python_saves("files --no-sync").logged());
    cases
}

/// Cases of which flushes are left out, with those that no rule needs: each is the path of what is
/// flushed, and the how manieth flush of it.
pub fn few() -> Vec<(Case, &'static [&'static str])> {
    use WeightFiles::{Packed, PerTensor};
    vec![
        (writes("pack", Some(Packed)), &["out/STAGING/new 1", "out 2"]),
        (writes("pack", None), &["out/STAGING/new 1", "out 4"]),
        (moves("rm in/m.onnx", PerTensor, None, false), &["in/STAGING/old 1", "in 2"]),
        (
            shares("share in/a.onnx in/b.onnx in/c.onnx", Packed),
            &["in/STAGING 2", "in/STAGING/new 1", "in/STAGING/old 1", "in 2"],
        ),
        (signs(), &[]),
        (recoveries(true).swap_remove(0), &["out 1", "out 2", "out 3"]),
    ]
}
