//! Records what a command does to the files of a folder: each of its calls that changes a file
//! system, in order, with its effect, and each flush.
//!
//! The command runs under `ptrace`. Only one such call is in flight at a time: a thread that begins
//! another one waits. After each call the whole folder is compared with what it was before, so an
//! effect is what happened and not what the call should do: names that were added, removed or moved
//! (all those of a call are one change), and the content and the time of each file. What a map of a
//! file writes is no call: it counts as an effect of the next one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, RwLock};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::tracer::call_of;

/// An inode of the folder, by the order in which it was first seen. The folder itself is the first.
pub type Id = usize;
/// The number of a content.
pub type Bytes = usize;
/// Seconds and nanoseconds.
pub type Time = (i64, i64);
/// What is called how in which folder.
pub type Names = BTreeMap<(Id, Arc<str>), Id>;

/// All contents of files, each once.
#[derive(Default)]
struct Contents {
    all: Vec<Arc<[u8]>>,
    numbers: HashMap<Arc<[u8]>, Bytes>,
}

impl Contents {
    fn number(&mut self, bytes: &[u8]) -> Bytes {
        if let Some(number) = self.numbers.get(bytes) {
            return *number;
        }
        let bytes: Arc<[u8]> = bytes.into();
        self.all.push(bytes.clone());
        self.numbers.insert(bytes, self.all.len() - 1);
        self.all.len() - 1
    }
}

/// What a file was after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// How many calls were done.
    pub after: usize,
    pub bytes: Bytes,
    pub time: Time,
    /// Whether its length was set before its bytes were written.
    pub is_reserved: bool,
}

/// A name of a folder, which leads to another inode or to none.
#[derive(Debug, Clone)]
pub struct NameChange {
    pub folder: Id,
    pub name: Arc<str>,
    pub before: Option<Id>,
    pub after: Option<Id>,
}

/// A call of the command.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: &'static str,
    /// What it changed of names, all at once.
    pub names: Vec<NameChange>,
    /// The file or folder that it flushed.
    pub flushed: Option<Id>,
}

/// What a command did.
pub struct Record {
    pub start: Names,
    pub end: Names,
    pub calls: Vec<Call>,
    /// The inodes as the system numbered them.
    pub inodes: Vec<u64>,
    /// Of each file, what it was; nothing of a folder.
    pub versions: Vec<Vec<Version>>,
    /// The path of each inode when it was first seen.
    pub first_paths: Vec<String>,
    contents: RwLock<Contents>,
    pub code: i32,
    pub stderr: String,
}

impl Record {
    pub fn is_folder(&self, id: Id) -> bool {
        self.versions[id].is_empty()
    }

    /// The content of a number.
    pub fn bytes(&self, number: Bytes) -> Arc<[u8]> {
        self.contents.read().unwrap().all[number].clone()
    }

    /// The number of a content.
    pub fn number(&self, bytes: &[u8]) -> Bytes {
        self.contents.write().unwrap().number(bytes)
    }
}

/// The calls that a disk is told of: those of a record, or some other ones.
pub struct Disk<'r> {
    pub record: &'r Record,
    pub calls: Vec<Call>,
}

impl<'r> Disk<'r> {
    pub fn new(record: &'r Record) -> Self {
        Self { record, calls: record.calls.clone() }
    }

    /// Without the flush of a call.
    pub fn without(mut self, call: usize) -> Self {
        self.calls[call].flushed = None;
        self
    }

    /// With the changes of names of two calls in the other order.
    pub fn swapped(mut self, one: usize, other: usize) -> Self {
        let names = std::mem::take(&mut self.calls[one].names);
        self.calls[one].names = std::mem::replace(&mut self.calls[other].names, names);
        self
    }
}

/// Runs `command` and records what it does in `folder`.
pub fn record(folder: &Path, command: Command) -> Record {
    record_with(folder, command, &mut |_| {})
}

/// The same, and calls `after` with the number of calls that were done after each.
#[expect(clippy::zombie_processes, reason = "its end is waited for by `follow`")]
pub fn record_with(folder: &Path, mut command: Command, after: &mut dyn FnMut(usize)) -> Record {
    let mut recorder = Recorder::new(folder, after);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    assert!(matches!(waitpid(pid, Some(WaitPidFlag::WUNTRACED)), Ok(WaitStatus::Stopped(..))));
    let options =
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    let code = follow(pid, &mut recorder);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    Record { code, stderr, end: recorder.names, ..recorder.record }
}

/// A call that a thread is in.
struct Flight {
    thread: Pid,
    name: &'static str,
    flushed: Option<Id>,
}

impl Flight {
    /// The counted call that a thread begins.
    fn of(thread: Pid, recorder: &Recorder<'_>) -> Option<Self> {
        let registers = ptrace::getregs(thread).ok()?;
        let name = call_of(&registers)?;
        let is_flush = name == "fsync" || name == "fdatasync";
        let opened = || fs::metadata(format!("/proc/{thread}/fd/{}", registers.rdi)).ok();
        let inode = is_flush.then(opened).flatten().map(|metadata| metadata.ino());
        let flushed = inode.and_then(|inode| recorder.live.get(&inode).copied());
        Some(Self { thread, name, flushed })
    }
}

/// Follows all threads of `pid` until it ends; returns its exit code.
fn follow(pid: Pid, recorder: &mut Recorder<'_>) -> i32 {
    let (mut inside, mut waiting) = (HashSet::new(), VecDeque::new());
    let mut flight: Option<Flight> = None;
    loop {
        let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Err(Errno::EINTR) => continue,
            status => status.unwrap(),
        };
        let thread = match status {
            WaitStatus::Exited(one, code) if one == pid => return code,
            WaitStatus::Signaled(one, signal, _) if one == pid => panic!("ended by {signal}"),
            WaitStatus::PtraceSyscall(thread) => thread,
            WaitStatus::PtraceEvent(thread, ..) => {
                let _ = ptrace::syscall(thread, None);
                continue;
            }
            WaitStatus::Stopped(thread, signal) => {
                let _ = ptrace::syscall(thread, Some(signal).filter(|s| *s != Signal::SIGTRAP));
                continue;
            }
            _ => continue,
        };
        if inside.insert(thread) {
            if let Some(begun) = Flight::of(thread, recorder) {
                if flight.is_some() {
                    waiting.push_back(thread);
                    continue;
                }
                flight = Some(begun);
            }
        } else {
            inside.remove(&thread);
            if let Some(done) = flight.take_if(|flight| flight.thread == thread) {
                let result = ptrace::getregs(thread).map_or(-1, |registers| registers.rax as i64);
                recorder.add(done.name, done.flushed.filter(|_| result == 0));
                if let Some(next) = waiting.pop_front() {
                    flight = Flight::of(next, recorder);
                    let _ = ptrace::syscall(next, None);
                }
            }
        }
        let _ = ptrace::syscall(thread, None);
    }
}

struct Recorder<'f> {
    folder: &'f Path,
    after: &'f mut dyn FnMut(usize),
    record: Record,
    /// The inodes that have a name now.
    live: HashMap<u64, Id>,
    names: Names,
}

/// What is found in the folder.
#[derive(Default)]
struct Found {
    names: Names,
    live: HashMap<u64, Id>,
}

impl<'f> Recorder<'f> {
    fn new(folder: &'f Path, after: &'f mut dyn FnMut(usize)) -> Self {
        let record = Record {
            start: Names::new(),
            end: Names::new(),
            calls: Vec::new(),
            inodes: Vec::new(),
            versions: Vec::new(),
            first_paths: Vec::new(),
            contents: RwLock::default(),
            code: 0,
            stderr: String::new(),
        };
        let mut recorder =
            Self { folder, after, record, live: HashMap::new(), names: Names::new() };
        let found = recorder.look("");
        (recorder.live, recorder.names) = (found.live, found.names.clone());
        recorder.record.start = found.names;
        recorder
    }

    /// The inode of a number: the one that had it before and has a name still, or a new one.
    fn id(&mut self, inode: u64, path: &str, found: &mut Found) -> Id {
        let known = found.live.get(&inode).or_else(|| self.live.get(&inode)).copied();
        let id = known.unwrap_or_else(|| {
            self.record.inodes.push(inode);
            self.record.versions.push(Vec::new());
            self.record.first_paths.push(path.to_owned());
            self.record.inodes.len() - 1
        });
        found.live.insert(inode, id);
        id
    }

    /// Looks at all that is in the folder after the call `name`.
    fn look(&mut self, name: &str) -> Found {
        let mut found = Found::default();
        let inode = fs::metadata(self.folder).unwrap().ino();
        let root = self.id(inode, "", &mut found);
        let mut folders = vec![(root, String::new())];
        while let Some((folder, path)) = folders.pop() {
            let mut entries: Vec<_> =
                fs::read_dir(self.folder.join(&path)).unwrap().map(Result::unwrap).collect();
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let own = entry.file_name().into_string().unwrap();
                let metadata = entry.metadata().unwrap();
                let path = if path.is_empty() { own.clone() } else { format!("{path}/{own}") };
                let id = self.id(metadata.ino(), &path, &mut found);
                found.names.insert((folder, own.into()), id);
                if metadata.is_dir() {
                    folders.push((id, path));
                } else {
                    assert!(metadata.is_file(), "{path} is no file");
                    self.look_at(id, &path, &metadata, name);
                }
            }
        }
        found
    }

    /// Adds a version of a file where it has changed.
    fn look_at(&mut self, id: Id, path: &str, metadata: &fs::Metadata, call: &str) {
        let bytes = fs::read(self.folder.join(path)).unwrap();
        let number = self.record.number(&bytes);
        let time = (metadata.mtime(), metadata.mtime_nsec());
        let after = self.record.calls.len();
        let last = self.record.versions[id].last().copied();
        if last.is_some_and(|last| (last.bytes, last.time) == (number, time)) {
            return;
        }
        let was = last.map_or(0, |last| self.record.bytes(last.bytes).len());
        let sets = (call == "ftruncate" || call == "fallocate") && was != bytes.len();
        let is_reserved = sets || last.is_some_and(|last| last.is_reserved);
        self.record.versions[id].push(Version { after, bytes: number, time, is_reserved });
    }

    /// Adds a call that is done.
    fn add(&mut self, name: &'static str, flushed: Option<Id>) {
        self.record.calls.push(Call { name, names: Vec::new(), flushed });
        let found = self.look(name);
        let mut changes = Vec::new();
        let keys: std::collections::BTreeSet<_> =
            self.names.keys().chain(found.names.keys()).collect();
        for key in keys {
            let (before, after) = (self.names.get(key).copied(), found.names.get(key).copied());
            if before != after {
                changes.push(NameChange { folder: key.0, name: key.1.clone(), before, after });
            }
        }
        (self.live, self.names) = (found.live, found.names);
        self.record.calls.last_mut().unwrap().names = changes;
        (self.after)(self.record.calls.len());
    }
}
