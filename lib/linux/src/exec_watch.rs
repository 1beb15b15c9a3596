// SPDX-License-Identifier: MIT OR Apache-2.0
//! For LXC containers that register pre-start alone: finds the container's first process among the monitor's children
//! and holds it at its exec of init. At that moment the cgroup, the device filter and the pivoted root are all there
//! (lxc start.c: devices_activate before the last sync, exec after it) and no instruction of init has run.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::failpoint;
use crate::sys::ptrace::{Stop, Traced};
use crate::sys::{SysError, ns, process};

/// How often the monitor's children are looked at until the container's process is among them. Between its clone and
/// its exec lie the container's mounts, several milliseconds.
const INTERVAL: Duration = Duration::from_micros(500);

/// The container's first process, held before the first instruction of its init. It runs on when this is dropped, and
/// dies where this process dies before: then the start is refused.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    // Dropping it lets the process go.
    _traced: Traced,
}

/// Why init is not held.
#[derive(Debug)]
pub enum WatchError {
    /// The monitor ended before it had started a container.
    MonitorEnded(u32),
    /// The container's process ended before it executed init.
    NoInit(u32),
    /// The monitor started nothing in time.
    TimedOut(Duration),
    /// The container's process could not be held, and was ended.
    CannotHold(SysError),
    /// `/proc` could not be read.
    Proc(io::Error),
    /// A system call failed.
    Sys(SysError),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MonitorEnded(pid) => write!(f, "the monitor (process {pid}) ended before it started the container"),
            Self::NoInit(pid) => write!(f, "the container's process {pid} ended before it executed init"),
            Self::TimedOut(limit) => write!(f, "the monitor started no container within {} s", limit.as_secs()),
            Self::CannotHold(_) => f.write_str(
                "the container was ended, since its init cannot be held (hint: sysctl kernel.yama.ptrace_scope must be \
                 below 3 for pre-start alone; with lxc.include it need not be)",
            ),
            Self::Proc(_) => f.write_str("look for the container's process"),
            Self::Sys(_) => f.write_str("hold the container's process"),
        }
    }
}

impl Error for WatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Proc(source) => Some(source),
            Self::Sys(source) | Self::CannotHold(source) => Some(source),
            _ => None,
        }
    }
}

impl From<SysError> for WatchError {
    fn from(source: SysError) -> Self {
        Self::Sys(source)
    }
}

impl Held {
    /// Waits until the process `monitor` has started a container and its first process stands at init's first
    /// instruction. For a process that is prompt until then: else, on a machine that is busy, init can run some
    /// milliseconds before it is held.
    ///
    /// # Errors
    /// [`WatchError`]. A process that cannot be held is ended, since LXC can no longer be told to refuse the start.
    pub fn at_init(monitor: u32, limit: Duration) -> Result<Self, WatchError> {
        let held = Self::find_and_hold(monitor, limit);
        process::be_prompt(false).ok();
        held
    }

    fn find_and_hold(monitor: u32, limit: Duration) -> Result<Self, WatchError> {
        let pid = first_process(monitor, limit)?;
        // Opened before anything can fail: the number alone could come to mean another process.
        let pidfd = ns::pidfd_open(pid)?;
        match Self::hold(pid, monitor) {
            Err(WatchError::Sys(source)) => {
                // Not before: a monitor whose child dies while they still speak with each other waits for ever.
                while ns::is_alive(&pidfd)? && executable(pid) == executable(monitor) {
                    sleep(INTERVAL);
                }
                ns::kill(pidfd)?;
                Err(WatchError::CannotHold(source))
            }
            held => held,
        }
    }

    fn hold(pid: u32, monitor: u32) -> Result<Self, WatchError> {
        failpoint::reach("watch.seize")?;
        let mut traced = Traced::seize(pid)?;
        failpoint::reach("watch.wait")?;
        if executable(pid) != executable(monitor) {
            // We came too late to see the exec; stop it where it is.
            traced.interrupt()?;
        }
        loop {
            match traced.wait()? {
                Stop::Exec => break,
                Stop::Ended => return Err(WatchError::NoInit(pid)),
                // The stop that we asked for, after the exec.
                Stop::Signal(0) if executable(pid) != executable(monitor) => break,
                stop => traced.go_on(stop)?,
            }
        }
        traced.bind()?;
        failpoint::reach("watch.held")?;
        Ok(Self { pid, _traced: traced })
    }

    /// Ends it before its first instruction: the start is refused after all.
    ///
    /// # Errors
    /// The signal could not be sent; the process runs on.
    pub fn kill(self) -> Result<(), WatchError> {
        Ok(ns::kill(ns::pidfd_open(self.pid)?)?)
    }

    /// The held process.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// The child of `monitor` that has a mount namespace of its own. Hooks are its children too: they share its namespaces,
/// or, where one makes a mount namespace for itself, run another program than the monitor in its pid namespace.
fn first_process(monitor: u32, limit: Duration) -> Result<u32, WatchError> {
    let own = namespace(monitor, "mnt").map_err(|_ended| WatchError::MonitorEnded(monitor))?;
    let is_container = |child: u32| {
        namespace(child, "mnt").is_ok_and(|inode| inode != own)
            && (executable(child) == executable(monitor)
                || namespace(child, "pid").ok() != namespace(monitor, "pid").ok())
    };
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        let children = children(monitor).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => WatchError::MonitorEnded(monitor),
            _ => WatchError::Proc(error),
        })?;
        match children.into_iter().find(|child| is_container(*child)) {
            Some(pid) => return Ok(pid),
            None => sleep(INTERVAL),
        }
    }
    Err(WatchError::TimedOut(limit))
}

fn namespace(pid: u32, name: &str) -> io::Result<u64> {
    fs::metadata(format!("/proc/{pid}/ns/{name}")).map(|namespace| namespace.ino())
}

fn executable(pid: u32) -> Option<(u64, u64)> {
    fs::metadata(format!("/proc/{pid}/exe")).ok().map(|file| (file.dev(), file.ino()))
}

/// The children of every thread of `pid` (proc(5): `children` is per thread; CONFIG_PROC_CHILDREN, Linux 4.2).
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("children"))?;
        found.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(found)
}
