// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes as file descriptors, namespaces, roots and ids.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::ThreadNameSpaceType;

use super::{Errno, SysError, SysResult};

bitflags::bitflags! {
    /// Kinds of namespaces, with the kernel's values (`CLONE_NEW*`, include/uapi/linux/sched.h).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Namespaces: u32 {
        /// Mounts.
        const MOUNT = 0x0002_0000;
        /// cgroup root.
        const CGROUP = 0x0200_0000;
        /// Host name.
        const UTS = 0x0400_0000;
        /// System V IPC.
        const IPC = 0x0800_0000;
        /// Ids and capabilities.
        const USER = 0x1000_0000;
        /// Process ids, of children.
        const PID = 0x2000_0000;
        /// Network.
        const NET = 0x4000_0000;
    }
}

impl Namespaces {
    /// Each kind with its name in `/proc/PID/ns`.
    pub const NAMES: [(Self, &'static str); 7] = [
        (Self::USER, "user"),
        (Self::MOUNT, "mnt"),
        (Self::PID, "pid"),
        (Self::NET, "net"),
        (Self::IPC, "ipc"),
        (Self::UTS, "uts"),
        (Self::CGROUP, "cgroup"),
    ];
}

/// A descriptor of process `pid`, which the kernel never gives to a later process of that number. Minimum kernel 5.3.
pub fn pidfd_open(pid: u32) -> SysResult<OwnedFd> {
    let error = |errno| SysError::new("pidfd_open", pid.to_string(), errno);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| error(Errno::SRCH))?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(error)
}

/// Whether the process still runs: its descriptor becomes readable at its end.
pub fn is_alive(pidfd: impl AsFd) -> SysResult<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let ready = poll(&mut fds, Some(&Timespec::default())).map_err(|errno| SysError::new("poll", "[pidfd]", errno))?;
    Ok(ready == 0)
}

/// Joins `namespaces` of the process behind `pidfd`, all or none. A pid namespace counts for children only.
/// Minimum kernel 5.8 (setns with a pidfd).
pub fn join(pidfd: impl AsFd, namespaces: Namespaces) -> SysResult<()> {
    rustix::thread::move_into_thread_name_spaces(
        pidfd.as_fd(),
        ThreadNameSpaceType::from_bits_retain(namespaces.bits()),
    )
    .map_err(|errno| SysError::new("setns", format!("[pidfd], {namespaces:?}"), errno))
}

/// Leaves the mount namespace for a private copy of it, in which nothing that is mounted later reaches the host.
pub fn private_mounts() -> SysResult<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: only the mount namespace (and with it root and working directory) is unshared, not the descriptor
    // table, so no descriptor that other code owns changes its meaning.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(|errno| SysError::new("unshare", "CLONE_NEWNS", errno))?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(|errno| SysError::new("mount", "\"/\", MS_SLAVE | MS_REC", errno))
}

/// What names namespace `name` of the process whose `/proc` directory is `process`, `mnt:[4026531841]`: equal names are the
/// same namespace. Read from the link, since to follow it makes an inode.
pub fn namespace(process: impl AsFd, name: &str) -> SysResult<CString> {
    let path = format!("ns/{name}");
    rustix::fs::readlinkat(process, path.as_str(), Vec::new())
        .map_err(|errno| SysError::new("readlinkat", format!("[/proc/PID], {path:?}"), errno))
}

/// The root directory of the process whose `/proc` directory is `process`, as a descriptor to resolve below.
pub fn process_root(process: impl AsFd) -> SysResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(process, "root", flags, Mode::empty())
        .map_err(|errno| SysError::new("openat", "[/proc/PID], \"root\"", errno))
}

/// Makes `directory` the root and working directory of this process.
pub fn change_root(directory: impl AsFd) -> SysResult<()> {
    rustix::process::fchdir(directory).map_err(|errno| SysError::new("fchdir", "[root]", errno))?;
    rustix::process::chroot(".").map_err(|errno| SysError::new("chroot", "\".\"", errno))?;
    rustix::process::chdir("/").map_err(|errno| SysError::new("chdir", "\"/\"", errno))
}

/// Makes this process run as `uid`, `gid` and `groups` of its user namespace, for good.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> SysResult<()> {
    use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    match set_thread_groups(&groups) {
        // With CAP_SETGID this means that the namespace denies setgroups to everyone (user_namespaces(7)): a rootless
        // manager's, whose user keeps the groups that it has.
        Err(Errno::PERM) if may_set_groups()? => {}
        result => result.map_err(|errno| SysError::new("setgroups", format!("{groups:?}"), errno))?,
    }
    let id = Gid::from_raw(gid);
    set_thread_res_gid(id, id, id).map_err(|errno| SysError::new("setresgid", gid.to_string(), errno))?;
    let id = Uid::from_raw(uid);
    set_thread_res_uid(id, id, id).map_err(|errno| SysError::new("setresuid", uid.to_string(), errno))
}

fn may_set_groups() -> SysResult<bool> {
    let sets = rustix::thread::capabilities(None).map_err(|errno| SysError::new("capget", "", errno))?;
    Ok(sets.effective.contains(rustix::thread::CapabilitySet::SETGID))
}

/// Makes this process undumpable: no process of the container can trace it or read its memory (CVE-2019-5736's class).
pub fn set_undumpable() -> SysResult<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|errno| SysError::new("prctl", "PR_SET_DUMPABLE, 0", errno))
}

/// Kills the process behind `pidfd`.
pub fn kill(pidfd: impl AsFd) -> SysResult<()> {
    rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL)
        .map_err(|errno| SysError::new("pidfd_send_signal", "[pidfd], SIGKILL", errno))
}
