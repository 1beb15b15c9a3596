// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only room with `unsafe`, and the only one that names `libc` and `rustix`: one wrapper per call, no policy, no
//! parsing, no logging. File descriptors go in as `impl AsFd` and come out as `OwnedFd`, always close-on-exec.
#![allow(unsafe_code, reason = "system calls are unsafe to the compiler; every block says why it is sound")]

/// bpf(2): load, attach and read device filters.
pub mod bpf;
/// Directories and files of a cgroup hierarchy.
pub mod cgroup;
/// Powers that a process gives up for good.
pub mod confine;
/// A failed system call with its arguments and errno.
pub mod error;
/// A program in memory, sealed.
pub mod memfd;
/// Mounts and nodes as file descriptors.
pub mod mount;
/// Processes as file descriptors, namespaces, roots and ids.
pub mod ns;
/// Opening to read below a directory.
pub mod open;
/// Pipes, and waiting for several descriptors.
pub mod pipe;
/// fork, execute, wait, kill.
pub mod process;
/// Stops a process at its exec.
pub mod ptrace;

pub use error::{Errno, SysError, SysResult};
