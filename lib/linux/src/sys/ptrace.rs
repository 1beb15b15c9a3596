// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops a process at its exec. When the tracer dies, at any point and for any reason, the kernel lets the traced process
//! go on, or kills it where it is bound: that is why this is ptrace and not the cgroup freezer, which would leave a
//! container standing for ever.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::{SysError, SysResult};

/// A process that this process traces; it goes on when this value is dropped, or when this process dies.
#[derive(Debug)]
pub struct Traced {
    pid: i32,
    ended: bool,
}

/// What a traced process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It has executed a new program and stands before its first instruction.
    Exec,
    /// A signal, or a stop that is not ours to keep, with the signal to hand on (0 for none).
    Signal(c_int),
    /// It stopped as a group (SIGSTOP); it must be left standing.
    Group,
    /// It ended.
    Ended,
}

impl Traced {
    /// Traces `pid` without stopping it; it will stop at its next exec. Minimum kernel 3.4 (PTRACE_SEIZE).
    pub fn seize(pid: u32) -> SysResult<Self> {
        let error = || SysError::last("ptrace", format!("PTRACE_SEIZE, {pid}, PTRACE_O_TRACEEXEC"));
        let raw = i32::try_from(pid).map_err(|_large| SysError::new("ptrace", pid.to_string(), super::Errno::SRCH))?;
        // ptrace takes the options as a pointer-sized number.
        let options = ptr::without_provenance_mut::<c_void>(libc::PTRACE_O_TRACEEXEC.unsigned_abs() as usize);
        // SAFETY: PTRACE_SEIZE reads no memory of ours: address is null and data is a number.
        let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, raw, ptr::null_mut::<c_void>(), options) };
        if result == -1 { Err(error()) } else { Ok(Self { pid: raw, ended: false }) }
    }

    /// From now on it dies when this process does. It must stand still. Minimum kernel 3.8 (PTRACE_O_EXITKILL).
    pub fn bind(&self) -> SysResult<()> {
        let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
        self.request(libc::PTRACE_SETOPTIONS, "PTRACE_SETOPTIONS, PTRACE_O_EXITKILL", options)
    }

    /// Stops it as soon as it can stop; [`Traced::wait`] then tells.
    pub fn interrupt(&self) -> SysResult<()> {
        self.request(libc::PTRACE_INTERRUPT, "PTRACE_INTERRUPT", 0)
    }

    /// Waits until it stops.
    pub fn wait(&mut self) -> SysResult<Stop> {
        let mut status: c_int = 0;
        loop {
            // SAFETY: the kernel writes one c_int to `status`, which outlives the call.
            let result = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
            match result {
                -1 if SysError::last("waitpid", "").errno() == super::Errno::INTR => {}
                -1 => return Err(SysError::last("waitpid", self.pid.to_string())),
                _ => break,
            }
        }
        if !libc::WIFSTOPPED(status) {
            self.ended = true;
            return Ok(Stop::Ended);
        }
        Ok(match status >> 16 {
            libc::PTRACE_EVENT_EXEC => Stop::Exec,
            libc::PTRACE_EVENT_STOP if libc::WSTOPSIG(status) != libc::SIGTRAP => Stop::Group,
            0 => Stop::Signal(libc::WSTOPSIG(status)),
            _ => Stop::Signal(0),
        })
    }

    /// Lets it go on after `stop`, still traced.
    pub fn go_on(&self, stop: Stop) -> SysResult<()> {
        match stop {
            Stop::Signal(signal) => self.request(libc::PTRACE_CONT, "PTRACE_CONT", signal),
            Stop::Group => self.request(libc::PTRACE_LISTEN, "PTRACE_LISTEN", 0),
            Stop::Exec => self.request(libc::PTRACE_CONT, "PTRACE_CONT", 0),
            Stop::Ended => Ok(()),
        }
    }

    fn request(&self, request: libc::c_uint, name: &'static str, data: c_int) -> SysResult<()> {
        let data = ptr::without_provenance_mut::<c_void>(data.unsigned_abs() as usize);
        // SAFETY: these requests read and write no memory of ours: address is null and data is a signal number.
        let result = unsafe { libc::ptrace(request, self.pid, ptr::null_mut::<c_void>(), data) };
        if result == -1 { Err(SysError::last("ptrace", format!("{name}, {}", self.pid))) } else { Ok(()) }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // ESRCH: it was killed meanwhile. Either way it does not stand still because of us.
        if !self.ended {
            self.request(libc::PTRACE_DETACH, "PTRACE_DETACH", 0).ok();
        }
    }
}
