//! Runs a command under `ptrace`, and kills it at one of its calls that change a file system, or
//! has that call fail.

use std::collections::HashSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Says the name of a call of a thread, if it is one that counts.
pub type Counted<'a> = &'a dyn Fn(Pid, &libc::user_regs_struct) -> Option<&'static str>;

/// What is done at the call of this number, counted from 0 on, that changes a file system.
#[derive(Clone, Copy)]
pub enum At<'a> {
    Kill(usize),
    Fail(usize, Errno),
    /// At one of other calls.
    FailOf(usize, Errno, Counted<'a>),
    /// As `FailOf`, when the first thread begins to rename, or all others wait.
    FailLate(usize, Errno, Counted<'a>),
}

impl At<'_> {
    fn number(self) -> usize {
        match self {
            Self::Kill(number) | Self::Fail(number, _) => number,
            Self::FailOf(number, ..) | Self::FailLate(number, ..) => number,
        }
    }

    fn errno(self) -> Option<Errno> {
        match self {
            Self::Kill(_) => None,
            Self::Fail(_, errno) | Self::FailOf(_, errno, _) | Self::FailLate(_, errno, _) => {
                Some(errno)
            }
        }
    }

    fn call_of(self, thread: Pid, registers: &libc::user_regs_struct) -> Option<&'static str> {
        match self {
            Self::FailOf(_, _, counted) | Self::FailLate(_, _, counted) => {
                counted(thread, registers)
            }
            _ => call_of(registers),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    Killed,
}

pub struct Traced {
    pub ending: Ending,
    /// The name of the call.
    pub call: &'static str,
    /// Whether the command made so many calls.
    pub reached: bool,
    pub stderr: String,
}

/// The calls that change a file system or its locks.
const CALLS: [(i64, &str); 27] = [
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_rmdir, "rmdir"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_chmod, "chmod"),
    (libc::SYS_fchown, "fchown"),
    (libc::SYS_fsetxattr, "fsetxattr"),
    (libc::SYS_fremovexattr, "fremovexattr"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_link, "link"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_utimensat, "utimensat"),
    (libc::SYS_ioctl, "ioctl"),
];

/// The name of the call that the registers are about to make, if it changes a file system.
pub fn call_of(registers: &libc::user_regs_struct) -> Option<&'static str> {
    let number = i64::try_from(registers.orig_rax).ok()?;
    let creates = |flags: u64| flags & (libc::O_CREAT as u64) != 0;
    match number {
        libc::SYS_openat if creates(registers.rdx) => return Some("openat, creating"),
        libc::SYS_open if creates(registers.rsi) => return Some("open, creating"),
        // To stdout, stderr and the wakers of threads.
        libc::SYS_write if registers.rdi < 3 || registers.rdx == 8 => return None,
        _ => {}
    }
    CALLS.iter().find(|(call, _)| *call == number).map(|(_, name)| *name)
}

/// Runs `command`, which stops itself at its beginning.
pub fn trace(command: Command, at: At<'_>) -> Traced {
    trace_beside(command, at, || ())
}

#[expect(clippy::zombie_processes, reason = "its end is waited for by `follow`")]
/// As [`trace`], with a call of `beside` before each call of the command that changes a file
/// system.
pub fn trace_beside(mut command: Command, at: At<'_>, mut beside: impl FnMut()) -> Traced {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    assert!(matches!(waitpid(pid, Some(WaitPidFlag::WUNTRACED)), Ok(WaitStatus::Stopped(..))));
    let options =
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    let (ending, call, reached) = follow(pid, at, &mut beside);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    Traced { ending, call, reached, stderr }
}

/// After so many milliseconds without a call all threads wait for the one that is held.
const IDLE: usize = 200;

/// Follows all threads of `pid` until it ends.
fn follow(pid: Pid, at: At<'_>, beside: &mut dyn FnMut()) -> (Ending, &'static str, bool) {
    let (mut made, mut found, mut reached) = (0, "none", false);
    // Threads in a call, and those whose call is to fail.
    let (mut inside, mut failing) = (HashSet::new(), HashSet::new());
    let (mut held, mut idle) = (None, 0);
    loop {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let now = if held.is_some() { WaitPidFlag::WNOHANG } else { WaitPidFlag::empty() };
        let status = match waitpid(None, Some(flags | now)) {
            Err(Errno::EINTR) => continue,
            status => status.unwrap(),
        };
        idle = if status == WaitStatus::StillAlive { idle + 1 } else { 0 };
        if idle > 0 {
            std::thread::sleep(Duration::from_millis(1));
            if idle == IDLE {
                held.take().map(|held| ptrace::syscall(held, None));
            }
            continue;
        }
        let thread = match status {
            WaitStatus::Exited(one, code) if one == pid => {
                return (Ending::Exited(code), found, reached);
            }
            WaitStatus::Signaled(one, ..) if one == pid => return (Ending::Killed, found, reached),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => continue,
            WaitStatus::PtraceSyscall(thread) => thread,
            WaitStatus::PtraceEvent(thread, signal, _) => {
                // A stop of the whole group goes on; a clone or the like has no signal to deliver.
                let _ = signal;
                let _ = ptrace::syscall(thread, None);
                continue;
            }
            WaitStatus::Stopped(thread, signal) => {
                let _ = ptrace::syscall(thread, Some(signal).filter(|s| *s != Signal::SIGTRAP));
                continue;
            }
            _ => continue,
        };
        let enters = inside.insert(thread);
        if !enters {
            inside.remove(&thread);
        }
        if let Ok(mut registers) = ptrace::getregs(thread) {
            // Now the first thread is held, until the other one is done.
            if thread == pid && enters && registers.orig_rax == libc::SYS_renameat2 as u64 {
                held = held.map(|held| {
                    let _ = ptrace::syscall(held, None);
                    pid
                });
            }
            if !enters && failing.remove(&thread) {
                if let Some(errno) = at.errno() {
                    registers.rax = (-i64::from(errno as i32)) as u64;
                    ptrace::setregs(thread, registers).unwrap();
                }
            } else if enters && let Some(name) = at.call_of(thread, &registers) {
                beside();
                if made == at.number() {
                    (found, reached) = (name, true);
                    match at {
                        At::Kill(_) => {
                            kill(pid, Signal::SIGKILL).unwrap();
                        }
                        At::Fail(..) | At::FailOf(..) | At::FailLate(..) => {
                            registers.orig_rax = u64::MAX;
                            ptrace::setregs(thread, registers).unwrap();
                            failing.insert(thread);
                        }
                    }
                    if matches!(at, At::FailLate(..)) {
                        held = Some(thread);
                    }
                }
                made += 1;
            }
        }
        if held != Some(thread) {
            let _ = ptrace::syscall(thread, None);
        }
    }
}
