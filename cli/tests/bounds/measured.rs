//! The peak of the memory of a process, by `ptrace`: it is asked for when the process is about to
//! end.
//!
//! What the system reports of a child that has ended includes the memory of this process, from
//! which it was forked.

use std::fs;
use std::process::Command;
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

pub struct Measured {
    /// The most memory that was resident, in bytes.
    pub peak: u64,
    pub seconds: f64,
    pub code: i32,
}

/// Runs `command`, which stops itself at its beginning.
#[expect(clippy::zombie_processes, reason = "its end is waited for by `follow`")]
pub fn measure(mut command: Command) -> Measured {
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    assert!(matches!(waitpid(pid, Some(WaitPidFlag::WUNTRACED)), Ok(WaitStatus::Stopped(..))));
    ptrace::seize(pid, Options::PTRACE_O_TRACEEXIT | Options::PTRACE_O_EXITKILL).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    follow(pid)
}

fn follow(pid: Pid) -> Measured {
    let (start, mut peak) = (Instant::now(), None);
    loop {
        let status = match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) => continue,
            status => status.unwrap(),
        };
        match status {
            WaitStatus::Exited(_, code) => {
                let peak = peak.expect("the peak is known before the end");
                return Measured { peak, seconds: start.elapsed().as_secs_f64(), code };
            }
            WaitStatus::Signaled(_, signal, _) => panic!("ended by {signal}"),
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXIT) => {
                peak = Some(high_water(pid));
                ptrace::cont(pid, None).unwrap();
            }
            // The stop by which it began, and its end.
            WaitStatus::PtraceEvent(..)
            | WaitStatus::Stopped(_, Signal::SIGTRAP | Signal::SIGCONT) => {
                ptrace::cont(pid, None).unwrap();
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

/// The peak of the resident memory of `pid`, in bytes.
fn high_water(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}
