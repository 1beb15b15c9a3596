// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories and files of a cgroup hierarchy, by descriptor.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::{Errno, SysError, SysResult};

/// The directory where a hierarchy is mounted.
///
/// # Errors
/// As open(2).
pub fn open_mount(path: &str) -> SysResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(|errno| SysError::new("openat", format!("{path:?}"), errno))
}

/// The cgroup `name` below `parent`.
///
/// # Errors
/// ENOENT where it is gone.
pub fn open_child(parent: impl AsFd, name: &str) -> SysResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(&parent, name, flags, Mode::empty()).map_err(|errno| failed("openat", &parent, name, errno))
}

/// The whole text of a cgroup's file.
///
/// # Errors
/// ENOENT for a file that this kind of cgroup lacks, ENODEV for a cgroup that is gone.
pub fn read(cgroup: impl AsFd, file: &str) -> SysResult<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(&cgroup, file, flags, Mode::empty()).map_err(|errno| failed("openat", &cgroup, file, errno))?;
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(&fd, &mut chunk) {
            Ok(0) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("read", &cgroup, file, errno)),
        }
    }
}

/// Writes `text` to a cgroup's file in one call.
///
/// # Errors
/// What the kernel answers to this very text.
pub fn write(cgroup: impl AsFd, file: &str, text: &str) -> SysResult<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(&cgroup, file, flags, Mode::empty()).map_err(|errno| failed("openat", &cgroup, file, errno))?;
    loop {
        match rustix::io::write(&fd, text.as_bytes()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("write", &cgroup, &format!("{file}, {text:?}"), errno)),
        }
    }
}

/// Removes the file `path`.
///
/// # Errors
/// As unlink(2).
pub fn unlink(path: &std::path::Path) -> SysResult<()> {
    rustix::fs::unlink(path).map_err(|errno| SysError::new("unlink", format!("{path:?}"), errno))
}

fn failed(call: &'static str, directory: &impl AsFd, rest: &str, errno: Errno) -> SysError {
    SysError::new(call, format!("[{}], {rest}", directory.as_fd().as_raw_fd()), errno)
}
