//! The command with a signal that ends one of its calls on the files of a save: each is made again,
//! and nobody notices. And with too little memory for the thread that waits for signals: nothing is
//! left.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::unistd::Pid;

use crate::tracer::{At, Ending, trace};
use crate::{ALL, Case, Clock, How, WAYS};

/// The calls on a path, on a path in a folder, and on a file that a signal may end. `close` is
/// none: it must not be repeated.
const ON_PATHS: [(i64, &str); 10] = [
    (libc::SYS_open, "open"),
    (libc::SYS_stat, "stat"),
    (libc::SYS_lstat, "lstat"),
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_rmdir, "rmdir"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_readlink, "readlink"),
    (libc::SYS_lgetxattr, "lgetxattr"),
    (libc::SYS_statfs, "statfs"),
];
const IN_FOLDERS: [(i64, &str); 9] = [
    (libc::SYS_openat, "openat"),
    (libc::SYS_openat2, "openat2"),
    (libc::SYS_newfstatat, "newfstatat"),
    (libc::SYS_statx, "statx"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_readlinkat, "readlinkat"),
];
const ON_FILES: [(i64, &str); 20] = [
    (libc::SYS_read, "read"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_preadv, "preadv"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fstat, "fstat"),
    (libc::SYS_fstatfs, "fstatfs"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_fchown, "fchown"),
    (libc::SYS_lseek, "lseek"),
    (libc::SYS_fgetxattr, "fgetxattr"),
    (libc::SYS_fsetxattr, "fsetxattr"),
];

/// The text at an address in the memory of a process.
fn text(pid: Pid, address: u64) -> Option<PathBuf> {
    let mut bytes = vec![0; 4096];
    let len = File::open(format!("/proc/{pid}/mem")).ok()?.read_at(&mut bytes, address).ok()?;
    let end = bytes[..len].iter().position(|byte| *byte == 0)?;
    Some(PathBuf::from(std::str::from_utf8(&bytes[..end]).ok()?))
}

/// Where a descriptor of a process leads; the current folder for that of `AT_FDCWD`.
fn opened(pid: Pid, descriptor: u64) -> Option<PathBuf> {
    match descriptor as i32 {
        libc::AT_FDCWD => fs::read_link(format!("/proc/{pid}/cwd")).ok(),
        descriptor => fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok(),
    }
}

/// The name of the call that the registers are about to make, if it is on what is in `folder`.
fn call_in(folder: &Path, pid: Pid, registers: &user_regs_struct) -> Option<&'static str> {
    let number = i64::try_from(registers.orig_rax).ok()?;
    let named = |calls: &[(i64, &'static str)]| {
        calls.iter().find(|(call, _)| *call == number).map(|(_, name)| *name)
    };
    let (name, path) = if let Some(name) = named(&ON_PATHS) {
        (name, opened(pid, libc::AT_FDCWD as u64)?.join(text(pid, registers.rdi)?))
    } else if let Some(name) = named(&IN_FOLDERS) {
        (name, opened(pid, registers.rdi)?.join(text(pid, registers.rsi)?))
    } else {
        (named(&ON_FILES)?, opened(pid, registers.rdi)?)
    };
    path.starts_with(folder).then_some(name)
}

#[test]
fn a_call_that_a_signal_ends_is_made_again() {
    let all = std::env::var_os(ALL).is_some();
    let (mut calls, mut names, mut failed) = (0, std::collections::BTreeSet::new(), Vec::new());
    for way in WAYS.iter().take(if all { WAYS.len() } else { 1 }) {
        for number in (0..).step_by(if all { 1 } else { 3 }) {
            let case = Case::new(way, &How::new(true, Clock::Own));
            let folder = case.folder.path().canonicalize().unwrap();
            let call = |pid, registers: &_| call_in(&folder, pid, registers);
            let traced = trace(case.traced(), At::FailOf(number, Errno::EINTR, &call));
            let at = format!("{} {:?}, call {number}: {}", way.name, way.old, traced.call);
            let is_fine = traced.ending == Ending::Exited(0)
                && traced.stderr.is_empty()
                && case.loaded() == Some(2.0)
                && case.hidden().is_empty();
            if !is_fine {
                failed.push(format!("{at}: {:?} {}", traced.ending, traced.stderr));
            }
            if !traced.reached {
                break;
            }
            names.insert(traced.call);
            calls += 1;
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    println!("{calls} calls: {names:?}; all with {ALL}=1");
    assert!(calls > 50 && names.len() > 10, "{calls} {names:?}");
}

/// A thread that cannot start ends the process, in code of the standard library.
#[test]
fn a_thread_for_signals_that_cannot_start_leaves_nothing() {
    let mut calls = 0;
    for number in 0.. {
        let case = Case::new(&WAYS[0], &How::new(false, Clock::Own));
        // That for signals is the first that starts.
        let (main, signals) = (std::cell::Cell::new(None), std::cell::Cell::new(None));
        let call = |thread: Pid, registers: &user_regs_struct| {
            if main.get().is_none_or(|main| main == thread) {
                main.set(Some(thread));
                return None;
            }
            let is_its = signals.get().is_none_or(|signals| signals == thread);
            signals.set(signals.get().or(Some(thread)));
            let is_map = registers.orig_rax == libc::SYS_mmap as u64;
            (is_its && is_map).then_some("mmap")
        };
        let traced = trace(case.traced(), At::FailLate(number, Errno::ENOMEM, &call));
        let at = format!("call {number}: {}: {:?} {}", traced.call, traced.ending, traced.stderr);
        assert_eq!(case.hidden(), [""; 0], "{at}");
        let loaded = case.loaded();
        let is_done = traced.ending == Ending::Exited(0);
        assert_eq!(loaded, Some(if is_done { 2.0 } else { 1.0 }), "{at}");
        if !traced.reached {
            break;
        }
        calls += 1;
    }
    println!("{calls} calls");
    assert!(calls > 0);
}
