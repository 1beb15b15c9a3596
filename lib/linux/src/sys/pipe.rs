// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes, and waiting for several descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Errno, SysError, SysResult};

/// A pipe: its end to read from, and its end to write to.
pub fn pipe() -> SysResult<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|errno| SysError::new("pipe2", "O_CLOEXEC", errno))
}

/// Reads what is there, at most `buffer`; 0 at the end.
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> SysResult<usize> {
    loop {
        match rustix::io::read(&fd, &mut *buffer) {
            Err(Errno::INTR) => {}
            result => return result.map_err(|errno| SysError::new("read", "[pipe]", errno)),
        }
    }
}

/// Writes `bytes` at once; a pipe takes up to 4096 whole.
pub fn write(fd: impl AsFd, bytes: &[u8]) -> SysResult<()> {
    match rustix::io::write(fd, bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(SysError::new("write", "[pipe]", Errno::AGAIN)),
        Err(errno) => Err(SysError::new("write", "[pipe]", errno)),
    }
}

/// Waits at most `limit` (`None`: for ever) until one of `fds` can be read, has ended, or, as the writing end of a pipe,
/// has lost its reader. Says which; a signal can end it early with none.
pub fn wait_any<const N: usize>(fds: [BorrowedFd<'_>; N], limit: Option<Duration>) -> SysResult<[bool; N]> {
    // A limit that no timespec holds is none.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut polled: [PollFd<'_>; N] = std::array::from_fn(|index| PollFd::from_borrowed_fd(fds[index], PollFlags::IN));
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(std::array::from_fn(|index| !polled[index].revents().is_empty())),
        Err(errno) => Err(SysError::new("poll", format!("[{N} files], {limit:?}"), errno)),
    }
}

/// Waits at most `limit` for one descriptor, and says whether it is ready.
pub fn wait_one(fd: impl AsFd, limit: Duration) -> SysResult<bool> {
    let deadline = std::time::Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        match wait_any([fd.as_fd()], Some(left))? {
            [true] => return Ok(true),
            [false] if left.is_zero() => return Ok(false),
            [false] => {}
        }
    }
}
