//! Runs a command under `ptrace`, and kills it at one of its calls that change a file system, or has that call fail.

use std::collections::HashSet;
use std::io::Read;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// What is done at the call of this number, counted from 0 on.
#[derive(Clone, Copy)]
pub enum At {
    Kill(usize),
    Fail(usize, Errno),
}

impl At {
    fn number(self) -> usize {
        match self {
            Self::Kill(number) | Self::Fail(number, _) => number,
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
const CALLS: [(i64, &str); 24] = [
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
];

/// The name of the call that the registers are about to make, if it changes a file system.
fn call_of(registers: &libc::user_regs_struct) -> Option<&'static str> {
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
pub fn trace(command: Command, at: At) -> Traced {
    trace_beside(command, at, || ())
}

#[expect(clippy::zombie_processes, reason = "its end is waited for by `follow`")]
/// As [`trace`], with a call of `beside` before each call of the command that changes a file system.
pub fn trace_beside(mut command: Command, at: At, mut beside: impl FnMut()) -> Traced {
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

/// Follows all threads of `pid` until it ends.
fn follow(pid: Pid, at: At, beside: &mut dyn FnMut()) -> (Ending, &'static str, bool) {
    let (mut made, mut found, mut reached) = (0, "none", false);
    // Threads in a call, and those whose call is to fail.
    let (mut inside, mut failing) = (HashSet::new(), HashSet::new());
    loop {
        let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
            Err(Errno::EINTR) => continue,
            status => status.unwrap(),
        };
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
            if !enters && failing.remove(&thread) {
                if let At::Fail(_, errno) = at {
                    registers.rax = (-i64::from(errno as i32)) as u64;
                    ptrace::setregs(thread, registers).unwrap();
                }
            } else if enters && let Some(name) = call_of(&registers) {
                beside();
                if made == at.number() {
                    (found, reached) = (name, true);
                    match at {
                        At::Kill(_) => {
                            kill(pid, Signal::SIGKILL).unwrap();
                        }
                        At::Fail(..) => {
                            registers.orig_rax = u64::MAX;
                            ptrace::setregs(thread, registers).unwrap();
                            failing.insert(thread);
                        }
                    }
                }
                made += 1;
            }
        }
        let _ = ptrace::syscall(thread, None);
    }
}
