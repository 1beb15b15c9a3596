// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of the host, run with nothing of our caller's environment and for a bounded time.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::sys::{ns, pipe};

/// What `program` with `arguments` said, and how it ended: killed, where it had not after `limit`.
///
/// # Errors
/// It could not be started, or not be waited for.
pub(crate) fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A], limit: Duration) -> io::Result<Output> {
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let ended = ns::pidfd_open(child.id()).and_then(|pidfd| pipe::wait_one(pidfd, limit));
    if !matches!(ended, Ok(true)) {
        child.kill()?;
    }
    child.wait_with_output()
}
