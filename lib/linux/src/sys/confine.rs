// SPDX-License-Identifier: MIT OR Apache-2.0
//! Powers that a process gives up for good: capabilities, privileges by exec, descriptors, writable mounts, resources.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use caps::{CapSet, Capability, CapsHashSet};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, UnshareFlags};

use super::{Errno, SysError, SysResult};

/// Moves this process into the cgroup of the directory `leaf`, in either version of the hierarchy. To be called before
/// any namespace is joined: the kernel asks whether the opener may write there (commit e57457641613).
pub fn join_cgroup(leaf: impl AsFd) -> SysResult<()> {
    let procs = rustix::fs::openat(leaf, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| SysError::new("openat", "[cgroup], \"cgroup.procs\"", errno))?;
    rustix::io::write(procs, b"0")
        .map(drop)
        .map_err(|errno| SysError::new("write", "[cgroup], \"cgroup.procs\", 0", errno))
}

/// Becomes `uid`, `gid` and `groups` without a capability that counts now: for a process that executes nothing.
pub fn become_unprivileged(uid: u32, gid: u32, groups: &[u32]) -> SysResult<()> {
    super::ns::become_user(uid, gid, groups)?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, none).map_err(|errno| SysError::new("capset", "none", errno))?;
    no_new_privileges()
}

/// Becomes `uid`, `gid` and `groups`, and gives up every capability, in all five sets and across exec, but
/// `CAP_SYS_ADMIN`, permitted and effective: enough to make a namespace, until [`drop_kept`].
pub fn become_powerless(uid: u32, gid: u32, groups: &[u32]) -> SysResult<()> {
    // Root gains nothing at exec, also no capability that is too new for `caps` to know. Without the fixup the kept one
    // survives the change of ids; what else survives is dropped below.
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits)
        .map_err(|errno| SysError::new("prctl", "PR_SET_SECUREBITS", errno))?;
    change_capabilities("bounding", || caps::clear(None, CapSet::Bounding))?;
    change_capabilities("ambient", || caps::clear(None, CapSet::Ambient))?;
    super::ns::become_user(uid, gid, groups)?;
    let kept: CapsHashSet = [Capability::CAP_SYS_ADMIN].into();
    change_capabilities("effective", || caps::set(None, CapSet::Effective, &kept))?;
    change_capabilities("permitted", || caps::set(None, CapSet::Permitted, &kept))?;
    change_capabilities("inheritable", || caps::clear(None, CapSet::Inheritable))?;
    no_new_privileges()
}

fn no_new_privileges() -> SysResult<()> {
    rustix::thread::set_no_new_privs(true).map_err(|errno| SysError::new("prctl", "PR_SET_NO_NEW_PRIVS", errno))?;
    // The change of ids made the process dumpable again where sysctl fs.suid_dumpable is 1.
    super::ns::set_undumpable()
}

/// Gives up what [`become_powerless`] kept.
pub fn drop_kept() -> SysResult<()> {
    change_capabilities("effective", || caps::clear(None, CapSet::Effective))?;
    change_capabilities("permitted", || caps::clear(None, CapSet::Permitted))
}

fn change_capabilities(set: &str, change: impl FnOnce() -> Result<(), caps::errors::CapsError>) -> SysResult<()> {
    // `caps` keeps the errno in its text only; the C library still has it.
    change().map_err(|_error| SysError::last("capset", set.to_owned()))
}

/// The children that this process forks from now on are in a fresh pid namespace below its own; the first is its init,
/// and the kernel kills all others at that one's end.
pub fn unshare_pids() -> SysResult<()> {
    // SAFETY: concerns children that are forked later; neither memory nor descriptors of this process change.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }
        .map_err(|errno| SysError::new("unshare", "CLONE_NEWPID", errno))
}

/// Leaves the mount namespace for a private copy in which nothing below `/` can be written: no file, no sysctl, no
/// cgroup. Device nodes can still be opened for writing. Minimum kernel 5.12 (mount_setattr).
pub fn read_only_mounts() -> SysResult<()> {
    /// `struct mount_attr` (include/uapi/linux/mount.h).
    #[repr(C)]
    struct MountAttr {
        attr_set: u64,
        attr_clr: u64,
        propagation: u64,
        userns_fd: u64,
    }
    const _: () = assert!(size_of::<MountAttr>() == 32, "MOUNT_ATTR_SIZE_VER0");
    const MOUNT_ATTR_RDONLY: u64 = 1;
    const AT_RECURSIVE: libc::c_int = 0x8000;

    super::ns::private_mounts()?;
    let attributes = MountAttr { attr_set: MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is a C string, and the kernel reads as many bytes of `attributes` as its size says.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            AT_RECURSIVE,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(SysError::last("mount_setattr", "\"/\", AT_RECURSIVE, MOUNT_ATTR_RDONLY")),
    }
}

/// Leaves the session: no terminal, no process group, and no session keyring of the caller remains.
pub fn new_session() -> SysResult<()> {
    rustix::process::setsid().map_err(|errno| SysError::new("setsid", "", errno))?;
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a null name asks for a fresh anonymous keyring; no memory is read or written.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0 as libc::c_ulong) };
    match result {
        0.. => Ok(()),
        _ => match SysError::last("keyctl", "KEYCTL_JOIN_SESSION_KEYRING") {
            // A kernel without keys has none to hide.
            error if error.errno() == Errno::NOSYS => Ok(()),
            error => Err(error),
        },
    }
}

/// Bounds this process and each child of it: `cpu_seconds` of processor time, 8 GiB of private writable memory, 64 MiB
/// per file in memory (no other can be written), and no core dump.
pub fn limit_resources(cpu_seconds: u64) -> SysResult<()> {
    // CUDA reserves huge address ranges that it does not touch: RLIMIT_AS would forbid them, RLIMIT_DATA does not.
    // One byte and not none: only 1 also stops a core_pattern that is a pipe (fs/coredump.c, core_pipe_limit).
    let limits =
        [(Resource::Cpu, cpu_seconds), (Resource::Data, 8 << 30), (Resource::Fsize, 64 << 20), (Resource::Core, 1)];
    for (resource, value) in limits {
        let old = rustix::process::getrlimit(resource);
        let value = value.min(old.maximum.unwrap_or(u64::MAX));
        rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
            .map_err(|errno| SysError::new("setrlimit", format!("{resource:?}, {value}"), errno))?;
    }
    Ok(())
}

/// Asks the kernel to kill this process when its parent ends. A change of ids or capabilities undoes it.
pub fn die_with_parent() -> SysResult<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| SysError::new("prctl", "PR_SET_PDEATHSIG, SIGKILL", errno))
}

/// Gives every signal the meaning that a fresh program expects, but for SIGXFSZ: a file over its limit is an error of
/// the write, not a death.
pub fn reset_signals() -> SysResult<()> {
    for signal in 1..=libc::SIGRTMAX() {
        let meaning = if signal == libc::SIGXFSZ { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: both meanings are the kernel's own, so no handler of ours can be called. SIGKILL and the like answer
        // EINVAL, and keep their meaning.
        unsafe { libc::signal(signal, meaning) };
    }
    // SAFETY: all bits zero is the empty set.
    let none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `none` outlives the call, and the old mask is not asked for.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(SysError::last("sigprocmask", "SIG_SETMASK, none")),
    }
}

/// Closes every descriptor but these: `kept` becomes 3 and survives exec; `closing` become 4 and 5, are returned, and
/// end with exec. For a forked child that is about to exec: whatever else owned a descriptor owns nothing afterwards.
pub fn keep_descriptors<A: AsFd, B: AsFd>(kept: impl AsFd, closing: (A, B)) -> SysResult<(OwnedFd, OwnedFd)> {
    // First out of the way of each other.
    let kept = move_above(kept)?;
    let closing = (move_above(closing.0)?, move_above(closing.1)?);
    place(&kept, 3, 0)?;
    place(&closing.0, 4, libc::O_CLOEXEC)?;
    place(&closing.1, 5, libc::O_CLOEXEC)?;
    super::process::close_range(0, 2)?;
    super::process::close_range(6, libc::c_uint::MAX)?;
    // These went with the others; their numbers may be given to someone else.
    std::mem::forget((kept, closing));
    // SAFETY: 4 was just made, and no other object of this process owns it.
    let first = unsafe { OwnedFd::from_raw_fd(4) };
    // SAFETY: likewise 5.
    let second = unsafe { OwnedFd::from_raw_fd(5) };
    Ok((first, second))
}

fn move_above(fd: impl AsFd) -> SysResult<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 16).map_err(|errno| SysError::new("fcntl", "F_DUPFD_CLOEXEC, 16", errno))
}

fn place(fd: &OwnedFd, number: RawFd, flags: libc::c_int) -> SysResult<()> {
    // SAFETY: closes whatever `number` was, which nothing uses any more in a child that is about to exec.
    match unsafe { libc::dup3(fd.as_raw_fd(), number, flags) } {
        -1 => Err(SysError::last("dup3", format!("[file], {number}"))),
        _ => Ok(()),
    }
}
