// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening to read: lookups that stay below a directory, and the names in one.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, PROC_SUPER_MAGIC, RawDir, ResolveFlags};

use super::{Errno, SysError, SysResult};

/// The directory `path` of our own mount namespace, to look below.
pub fn directory(path: &str) -> SysResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| SysError::new("open", format!("{path:?}"), errno))
}

/// The directory `path` below `root`, to read its names. Symbolic links stay below `root`, magic links are refused.
/// Minimum kernel 5.6 (openat2).
pub fn directory_below(root: impl AsFd, path: &str) -> SysResult<OwnedFd> {
    below(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// The file `path` below `root`, to read it; likewise. The open never waits, not even for the writer of a FIFO.
pub fn file_below(root: impl AsFd, path: &str) -> SysResult<OwnedFd> {
    below(root, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

fn below(root: impl AsFd, path: &str, flags: OFlags) -> SysResult<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: a rename beside the lookup made the kernel unsure; it says to try again (openat2(2)).
    for _ in 0..64 {
        match rustix::fs::openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result.map_err(|errno| SysError::new("openat2", format!("[root], {path:?}"), errno)),
        }
    }
    Err(SysError::new("openat2", format!("[root], {path:?}"), Errno::AGAIN))
}

/// Whether `directory` is on procfs (`PROC_SUPER_MAGIC`, include/uapi/linux/magic.h).
pub fn is_procfs(directory: impl AsFd) -> SysResult<bool> {
    rustix::fs::fstatfs(directory)
        .map(|status| status.f_type == PROC_SUPER_MAGIC)
        .map_err(|errno| SysError::new("fstatfs", "[directory]", errno))
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name; bytes that are not UTF-8 are replaced, so that it then names nothing.
    pub name: String,
    /// What the directory says it is.
    pub kind: EntryKind,
}

/// What a directory says of a name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// Anything else.
    Other,
    /// Nothing (`DT_UNKNOWN`): some file systems do not say.
    Unknown,
}

/// The names in `directory` but `.` and `..`, sorted.
pub fn entries(directory: impl AsFd) -> SysResult<Vec<Entry>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut names = RawDir::new(directory, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = names.next() {
        let entry = entry.map_err(|errno| SysError::new("getdents64", "[directory]", errno))?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Directory => EntryKind::Directory,
            FileType::Unknown => EntryKind::Unknown,
            _ => EntryKind::Other,
        };
        entries.push(Entry { name: name.into_owned(), kind });
    }
    entries.sort();
    Ok(entries)
}
