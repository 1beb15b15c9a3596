// SPDX-License-Identifier: MIT OR Apache-2.0
//! fork, execute, wait, kill. The hook is single-threaded by rule, so a forked child may use the heap.

use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

use super::{Errno, SysError, SysResult};

/// A forked child that its parent has not yet waited for.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
}

impl Child {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it has ended; `Ok(code)` for an exit, `Err(signal)` for a death by signal.
    pub fn wait(self) -> SysResult<Result<i32, i32>> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Ok(Some((_, status))) => return Ok(outcome(status)),
                Ok(None) | Err(Errno::INTR) => {}
                Err(errno) => return Err(SysError::new("waitpid", self.pid.to_string(), errno)),
            }
        }
    }

    /// Waits at most `grace` for its end, then kills it and waits as long again.
    ///
    /// # Errors
    /// `ETIMEDOUT` where it survives both: it hangs in the kernel, in a driver's open for example.
    pub fn end(self, grace: Duration) -> SysResult<Result<i32, i32>> {
        let pidfd = super::ns::pidfd_open(self.pid())?;
        if !super::pipe::wait_one(&pidfd, grace)? {
            // ESRCH cannot be: the child is ours and not yet waited for.
            rustix::process::kill_process(self.pid, rustix::process::Signal::KILL)
                .map_err(|errno| SysError::new("kill", self.pid.to_string(), errno))?;
            if !super::pipe::wait_one(&pidfd, grace)? {
                return Err(SysError::new("waitpid", self.pid.to_string(), Errno::TIMEDOUT));
            }
        }
        self.wait()
    }

    /// Kills it and waits for its end.
    pub fn kill(self) -> SysResult<Result<i32, i32>> {
        // ESRCH cannot be: the child is ours and not yet waited for.
        rustix::process::kill_process(self.pid, rustix::process::Signal::KILL)
            .map_err(|errno| SysError::new("kill", self.pid.to_string(), errno))?;
        self.wait()
    }
}

fn outcome(status: WaitStatus) -> Result<i32, i32> {
    match status.exit_status() {
        Some(code) => Ok(code),
        None => Err(status.terminating_signal().unwrap_or(0)),
    }
}

/// The user and group that own what this process makes.
pub fn ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Ends this process as a kill from outside would.
#[cfg(feature = "failpoints")]
pub fn kill_self() {
    // It can only fail for a process that is not there.
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).ok();
}

/// Runs `body` in a child process; the child ends with the code that `body` returns, without running destructors or
/// exit handlers of the parent.
pub fn fork(body: impl FnOnce() -> u8) -> SysResult<Child> {
    // SAFETY: the process has one thread (rule of this program), so no lock is held by a thread that the child lacks.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => {
            let code = body();
            // SAFETY: ends the child at once and touches no memory.
            unsafe { libc::_exit(i32::from(code)) }
        }
        -1 => Err(SysError::last("fork", "")),
        pid => match Pid::from_raw(pid) {
            Some(pid) => Ok(Child { pid }),
            None => Err(SysError::new("fork", "", Errno::INVAL)),
        },
    }
}

/// Becomes the program at `path`, with its path as its name, `arguments`, and the environment as it is. What this
/// process inherited it hands on: descriptors, signal mask, working directory. SIGPIPE, which Rust's start-up ignores,
/// kills again. Returns only where that failed.
pub fn execute(path: &str, arguments: &[OsString]) -> SysError {
    let failed = |errno| SysError::new("execv", format!("{path:?}"), errno);
    let words = std::iter::once(path.as_bytes()).chain(arguments.iter().map(|word| word.as_bytes()));
    let Ok(words) = words.map(CString::new).collect::<Result<Vec<_>, _>>() else { return failed(Errno::INVAL) };
    let Some(program) = words.first() else { return failed(Errno::INVAL) };
    let pointers: Vec<*const libc::c_char> =
        words.iter().map(|word| word.as_ptr()).chain(std::iter::once(std::ptr::null())).collect();
    // SAFETY: changes what a signal does, and no code of this process waits for it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: the path and all words are C strings, and the array ends with a null pointer; all outlive the call.
    unsafe { libc::execv(program.as_ptr(), pointers.as_ptr()) };
    SysError::last("execv", format!("{path:?}"))
}

/// As [`fork`], with the child in the cgroup of the directory `cgroup` from its first moment: moving it there afterwards
/// waits until no process of the machine forks or ends (kernel/cgroup/cgroup.c, `cgroup_threadgroup_rwsem`), which takes
/// milliseconds. `false` says that the child is still where its parent is: the directory is one of a v1 hierarchy, the
/// kernel is older than 5.7 (`CLONE_INTO_CGROUP`), or the cgroup takes no process.
pub fn fork_into(cgroup: Option<BorrowedFd<'_>>, body: impl FnOnce(bool) -> u8) -> SysResult<Child> {
    let Some(cgroup) = cgroup else { return fork(|| body(false)) };
    // SAFETY: all zeros is a `clone_args` that asks for nothing.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    arguments.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    // SAFETY: no memory and no descriptor table is shared, so this is fork(2) but for the C library's handlers, of which
    // a process with one thread (rule of this program) needs none.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) } {
        0 => {
            let code = body(true);
            // SAFETY: ends the child at once and touches no memory.
            unsafe { libc::_exit(i32::from(code)) }
        }
        -1 => fork(|| body(false)),
        pid => match i32::try_from(pid).ok().and_then(Pid::from_raw) {
            Some(pid) => Ok(Child { pid }),
            None => Err(SysError::new("clone3", "", Errno::INVAL)),
        },
    }
}

/// include/uapi/linux/sched.h.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Leaves an AppArmor profile that lets us (`change_profile -> unconfined`); without AppArmor nothing happens.
/// A refusal shows at the call that the profile then denies, which can say more than this one.
pub fn leave_apparmor_profile() {
    for path in ["/proc/thread-self/attr/apparmor/current", "/proc/thread-self/attr/current"] {
        let opened = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        if let Ok(attribute) = opened
            && rustix::io::write(&attribute, b"changeprofile unconfined").is_ok()
        {
            return;
        }
    }
}

/// Lets this process, and none that it forks, run before all others as soon as it has something to do; with `false` as
/// any other again. For one that waits for a moment that it may not miss on a busy machine, and sleeps between.
///
/// # Errors
/// EPERM without CAP_SYS_NICE, or in a v1 cpu cgroup without real-time budget.
pub fn be_prompt(prompt: bool) -> SysResult<()> {
    let (policy, priority) = match prompt {
        true => (libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1),
        false => (libc::SCHED_OTHER, 0),
    };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one sched_param, which outlives the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        -1 => Err(SysError::last("sched_setscheduler", format!("{policy:#x}, {priority}"))),
        _ => Ok(()),
    }
}

/// Leaves the session, closes every descriptor but `kept`, which is returned, and puts `/dev/null` in the place of the
/// standard three. For a child that will outlive its parent and whose inherited values are never dropped.
pub fn detach(kept: OwnedFd) -> SysResult<OwnedFd> {
    rustix::process::setsid().map_err(|errno| SysError::new("setsid", "", errno))?;
    // SAFETY: closes whatever 3 was: the values that own descriptors belong to the parent's frames, to which this child
    // never returns (`fork` ends it with `_exit`).
    let placed = unsafe { libc::dup2(kept.into_raw_fd(), 3) };
    if placed == -1 {
        return Err(SysError::last("dup2", "[pipe], 3"));
    }
    // SAFETY: 3 was just made, and no other object of this process owns it.
    let kept = unsafe { OwnedFd::from_raw_fd(3) };
    close_range(0, 2)?;
    close_range(4, libc::c_uint::MAX)?;
    for number in 0..=2 {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())
            .map_err(|errno| SysError::new("open", "\"/dev/null\"", errno))?;
        // The lowest free number is given, so this is 0, then 1, then 2.
        if null.into_raw_fd() != number {
            return Err(SysError::new("open", "\"/dev/null\"", Errno::BADF));
        }
    }
    Ok(kept)
}

/// Closes the descriptors from `first` to `last`: for a forked child in which nothing uses them any more. Before Linux
/// 5.9 (close_range) one by one, as far as the limit for this process goes.
pub fn close_range(first: libc::c_uint, last: libc::c_uint) -> SysResult<()> {
    // SAFETY: closes numbers only, whose owners this child never comes back to (rule of this function).
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return Ok(());
    }
    let error = SysError::last("close_range", format!("{first}, {last}"));
    if error.errno() != Errno::NOSYS {
        return Err(error);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(DESCRIPTORS_MAX);
    let end = last.min(u32::try_from(limit.min(DESCRIPTORS_MAX)).unwrap_or(last));
    for number in (first..=end).filter_map(|number| i32::try_from(number).ok()) {
        // SAFETY: as above; EBADF where there is none is no error here.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// More descriptors than any hook is started with: the kernel's default upper limit (fs.nr_open).
const DESCRIPTORS_MAX: u64 = 1 << 20;
