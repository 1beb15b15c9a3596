// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens of device nodes by a child that stands where a process of the container stands. It is our own code: nothing of
//! the container runs.

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use gpuhook_core::device::{ContainerPath, DeviceId};

use super::ProbeError;
use super::child::{self, End, Limit, Report};
use crate::sys::mount::{self, Follow};
use crate::sys::ns::Namespaces;
use crate::sys::{Errno, SysError, confine, pipe};
use crate::target::Target;

/// How long one open may take: the first open of a GPU brings it up, which takes seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(20);

/// What the open of one node gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The node's path in the container.
    pub path: ContainerPath,
    /// Whether it could be opened for reading and writing. What is no device answers too: see `device`.
    pub result: Result<(), Errno>,
    /// Its number; `None` where nothing is there that could be looked at, or no character device.
    pub device: Option<DeviceId>,
    /// Permission bits.
    pub mode: u32,
    /// Owner, in the container's ids.
    pub uid: u32,
    /// Group, in the container's ids.
    pub gid: u32,
}

/// Opens each of `paths` as the container's process would: in its user, mount and cgroup namespaces, its cgroup `leaf`,
/// below its root, with its ids and without any capability. `leaf` is the directory of that cgroup, in the hierarchy
/// that filters devices; without it the device filter is not asked.
///
/// # Errors
/// [`ProbeError::Hangs`] where an open does not return in 20 s; otherwise see [`ProbeError`].
///
/// # Minimum kernel
/// 5.8 (setns with a pidfd).
pub fn open_nodes(
    target: &Target,
    leaf: Option<BorrowedFd<'_>>,
    paths: &[ContainerPath],
) -> Result<Vec<Opened>, ProbeError> {
    let said = child::run(leaf, Limit::Silence(OPEN_LIMIT), paths.len() * RECORD, |outlets| {
        child::enter(target, Namespaces::USER | Namespaces::MOUNT | Namespaces::CGROUP)?;
        let user = target.user();
        confine::become_unprivileged(user.uid, user.gid, &user.groups)?;
        open_each(&outlets.data, paths)
    })?;
    if let Some(Report::Failed(text)) = said.report {
        return Err(ProbeError::Entering(text));
    }
    let (records, rest) = said.data.as_chunks::<RECORD>();
    let opened: Vec<Opened> = paths.iter().zip(records).map(|(path, record)| decode(path, record)).collect();
    match (said.end, paths.get(opened.len())) {
        (End::TimedOut, Some(path)) => Err(ProbeError::Hangs(path.clone())),
        (End::Ended, None) if rest.is_empty() => Ok(opened),
        _ => Err(ProbeError::Lost),
    }
}

fn open_each(outlet: impl AsFd, paths: &[ContainerPath]) -> Result<(), Box<dyn Error>> {
    let root = child::root()?;
    for path in paths {
        // Looked at apart from the open, since a refused node's number and owner explain the refusal.
        let status = mount::locate(&root, path.as_str(), Follow::Yes).and_then(mount::status);
        // A capability's node is 0400 and only ever read; any other node is useless without writing.
        let write = status.as_ref().map_or(true, |status| status.mode & 0o222 != 0);
        let result = mount::open_node(&root, path.as_str(), write);
        let errno = result.as_ref().err().map_or(0, |error: &SysError| error.errno().raw_os_error().cast_unsigned());
        let mut record = [errno, 0, 0, 0, 0, 0, 0];
        if let Ok(status) = status {
            let device = status.device.map_or([0; 3], |id| [1, id.major.0, id.minor.0]);
            record = [errno, device[0], device[1], device[2], status.mode, status.uid, status.gid];
        }
        pipe::write(&outlet, record.map(u32::to_le_bytes).as_flattened())?;
    }
    Ok(())
}

/// Bytes of one answer: errno, whether it is a character device, major, minor, mode, uid, gid.
const RECORD: usize = 28;

fn decode(path: &ContainerPath, record: &[u8; RECORD]) -> Opened {
    let word = |index: usize| {
        let at = index * 4;
        u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
    };
    Opened {
        path: path.clone(),
        result: match word(0).cast_signed() {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        },
        device: (word(1) == 1).then(|| DeviceId::new(word(2), word(3))),
        mode: word(4),
        uid: word(5),
        gid: word(6),
    }
}
