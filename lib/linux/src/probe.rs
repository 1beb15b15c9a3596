// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process in the container meets: opens of device nodes (rung L3), and cuInit of the container's own libcuda
//! (rung L5). Neither changes anything, and nothing of either is left when the functions return.
//!
//! A container that is frozen freezes whoever joins its cgroup: thaw it first.

use std::error::Error;
use std::fmt;

use gpuhook_core::device::ContainerPath;

use crate::sys::SysError;

/// One forked child and what it tells.
mod child;
/// cuInit in the guest.
mod cuinit;
/// Opens of device nodes.
mod open;

pub use cuinit::{CuInit, cuinit};
pub use open::{Opened, open_nodes};

/// Why the container's side could not be looked at. It says nothing of the container's GPUs.
#[derive(Debug)]
pub enum ProbeError {
    /// A system call on the host's side failed.
    Sys(SysError),
    /// The child could not take the container's place: the step that failed, in its words.
    Entering(String),
    /// The child ended without an answer: somebody killed it.
    Lost,
    /// The open of this node did not return in time.
    Hangs(ContainerPath),
    /// A process of ours does not die: it hangs in the kernel, in a driver most likely.
    Undying(SysError),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sys(_) => f.write_str("start the check inside the container"),
            Self::Entering(text) => write!(f, "enter the container for the check: {text}"),
            Self::Lost => f.write_str(
                "the check inside the container was killed before it answered (hint: see its memory and pids limits)",
            ),
            Self::Hangs(path) => write!(f, "open {path}: no answer in time (hint: see the host's kernel log)"),
            Self::Undying(_) => {
                f.write_str("a process of the check hangs in the kernel (hint: see the host's kernel log)")
            }
        }
    }
}

impl Error for ProbeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Sys(source) | Self::Undying(source) => Some(source),
            _ => None,
        }
    }
}

impl From<SysError> for ProbeError {
    fn from(source: SysError) -> Self {
        Self::Sys(source)
    }
}
