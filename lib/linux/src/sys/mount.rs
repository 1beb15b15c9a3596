// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts and nodes as file descriptors: open_tree, move_mount, mknodat, and lookups that stay below a root.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gpuhook_core::device::DeviceId;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use super::{SysError, SysResult};

/// A mount that is in no namespace yet: it vanishes with its descriptor.
#[derive(Debug)]
pub struct DetachedMount(OwnedFd);

/// A fresh tmpfs for device nodes: `nosuid,noexec`, root alone may enter. Minimum kernel 5.2.
pub fn device_tmpfs() -> SysResult<DetachedMount> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| SysError::new("fsopen", "tmpfs", errno))?;
    for (key, value) in [("mode", "0700"), ("size", "64k"), ("nr_inodes", "0")] {
        fsconfig_set_string(&fs, key, value)
            .map_err(|errno| SysError::new("fsconfig", format!("{key}={value}"), errno))?;
    }
    fsconfig_create(&fs).map_err(|errno| SysError::new("fsconfig", "FSCONFIG_CMD_CREATE", errno))?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map(DetachedMount)
        .map_err(|errno| SysError::new("fsmount", "tmpfs", errno))
}

/// A mount of the file or directory `name` below `directory`, detached. Minimum kernel 5.2.
pub fn clone_tree(directory: impl AsFd, name: &str) -> SysResult<DetachedMount> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(directory, name, flags)
        .map(DetachedMount)
        .map_err(|errno| SysError::new("open_tree", format!("[directory], {name:?}"), errno))
}

/// A mount of exactly the file or directory behind `fd`, detached. Minimum kernel 5.2.
pub fn clone_file(fd: OwnedFd) -> SysResult<DetachedMount> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(fd, "", flags).map(DetachedMount).map_err(|errno| SysError::new("open_tree", "[file]", errno))
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl DetachedMount {
    /// Mounts it over the directory `path` of our own namespace and returns its root; only with
    /// [`private_mounts`](super::ns::private_mounts), since whoever looks at `path` sees it from then on.
    pub fn attach_over(self, path: &str) -> SysResult<Self> {
        let directory = open_directory(path)?;
        let root = self.0.try_clone().map_err(|error| SysError::of_io("dup", "[mount]", &error))?;
        self.attach(directory)?;
        Ok(Self(root))
    }

    /// Mounts it on what `target` refers to: descriptor to descriptor, no path is resolved again. Minimum kernel 5.2.
    pub fn attach(self, target: impl AsFd) -> SysResult<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.0, "", target, "", flags)
            .map_err(|errno| SysError::new("move_mount", "[mount], [target]", errno))
    }
}

/// Unmounts the topmost mount on the current directory's `name`, lazily, without following a link.
pub fn detach(directory: impl AsFd, name: &str) -> SysResult<()> {
    rustix::process::fchdir(directory).map_err(|errno| SysError::new("fchdir", "[directory]", errno))?;
    unmount(name, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(|errno| SysError::new("umount2", format!("{name:?}, MNT_DETACH | UMOUNT_NOFOLLOW"), errno))
}

/// Lets files and nodes be made with exactly the mode that is said: for a forked child, which has a umask of its own.
pub fn clear_umask() {
    rustix::process::umask(Mode::empty());
}

/// A character node `name` of number `id` in `directory`, of a mode less the umask, and owned by this process: one call,
/// since there can be thousands. See [`clear_umask`].
pub fn make_own_node(directory: impl AsFd, name: &str, id: DeviceId, mode: u32) -> SysResult<()> {
    let number = rustix::fs::makedev(id.major.0, id.minor.0);
    rustix::fs::mknodat(directory, name, FileType::CharacterDevice, Mode::from_raw_mode(mode), number)
        .map_err(|errno| SysError::new("mknodat", format!("[directory], {name:?}, c {id}"), errno))
}

/// A character node `name` of number `id` in `directory`, with exactly this mode and owner.
pub fn make_node(directory: impl AsFd, name: &str, id: DeviceId, mode: u32, uid: u32, gid: u32) -> SysResult<()> {
    make_own_node(&directory, name, id, mode)?;
    // The umask took bits away from mknod's mode; mode after owner, since chown clears bits.
    set_owner(&directory, name, uid, gid)?;
    set_mode(directory, name, mode)
}

/// Gives `name` in `directory` these permission bits; a link is followed, so look first.
pub fn set_mode(directory: impl AsFd, name: &str, mode: u32) -> SysResult<()> {
    rustix::fs::chmodat(directory, name, Mode::from_raw_mode(mode), AtFlags::empty())
        .map_err(|errno| SysError::new("fchmodat", format!("[directory], {name:?}, {mode:04o}"), errno))
}

/// The symbolic link `name` in `directory`, which leads to `target`.
pub fn make_link(directory: impl AsFd, name: &str, target: &str) -> SysResult<()> {
    rustix::fs::symlinkat(target, directory, name)
        .map_err(|errno| SysError::new("symlinkat", format!("{target:?}, [directory], {name:?}"), errno))
}

/// What the symbolic link `name` in `directory` holds; bytes that are not UTF-8 are replaced.
pub fn link_target(directory: impl AsFd, name: &str) -> SysResult<String> {
    rustix::fs::readlinkat(directory, name, Vec::new())
        .map(|target| target.to_string_lossy().into_owned())
        .map_err(|errno| SysError::new("readlinkat", format!("[directory], {name:?}"), errno))
}

/// Renames `old` in `directory` to `new`, over whatever file is there.
pub fn rename(directory: impl AsFd, old: &str, new: &str) -> SysResult<()> {
    rustix::fs::renameat(&directory, old, &directory, new)
        .map_err(|errno| SysError::new("renameat", format!("[directory], {old:?}, {new:?}"), errno))
}

/// Gives `name` in `directory` to `uid` and `gid`, without following a link.
pub fn set_owner(directory: impl AsFd, name: &str, uid: u32, gid: u32) -> SysResult<()> {
    let (user, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| SysError::new("fchownat", format!("[directory], {name:?}, {uid}:{gid}"), errno))
}

/// Opens `path` below `root` without acting on it (`O_PATH`): symbolic links stay below `root`, magic links are
/// refused. Minimum kernel 5.6 (openat2).
pub fn locate(root: impl AsFd, path: &str, flags: Follow) -> SysResult<OwnedFd> {
    let mut how = OFlags::PATH | OFlags::CLOEXEC;
    if flags == Follow::No {
        how |= OFlags::NOFOLLOW;
    }
    openat2(root, path, how, Mode::empty())
}

/// Opens the device node `path` below `root` as CUDA does: for reading, with `write` for writing as well, and without
/// waiting for a device that can be opened later; links stay below `root`. Minimum kernel 5.6 (openat2).
pub fn open_node(root: impl AsFd, path: &str, write: bool) -> SysResult<OwnedFd> {
    let how = if write { OFlags::RDWR } else { OFlags::RDONLY };
    openat2(root, path, how | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

/// Whether the last component of a path may be a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Open the link itself.
    No,
    /// Open what it points to, still below the root.
    Yes,
}

/// Makes the directory `name` in `directory`, mode 0755, and fails where something is there already.
pub fn make_directory(directory: impl AsFd, name: &str) -> SysResult<()> {
    rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o755))
        .map_err(|errno| SysError::new("mkdirat", format!("[directory], {name:?}"), errno))
}

/// Makes the empty file `name` in `directory` as a mount point, and fails where something is there already.
pub fn make_file(directory: impl AsFd, name: &str) -> SysResult<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
    rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))
        .map_err(|errno| SysError::new("openat", format!("[directory], {name:?}, O_CREAT | O_EXCL"), errno))
}

/// Removes the file or empty directory `name` from `directory`.
pub fn remove(directory: impl AsFd, name: &str, is_directory: bool) -> SysResult<()> {
    let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(directory, name, flags)
        .map_err(|errno| SysError::new("unlinkat", format!("[directory], {name:?}"), errno))
}

/// What stands behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The number, where it is a character device.
    pub device: Option<DeviceId>,
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it is a symbolic link.
    pub is_link: bool,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner, as this process's user namespace shows it.
    pub uid: u32,
    /// Group, likewise.
    pub gid: u32,
    /// The number of the file system that it is on (`st_dev`).
    pub file_system: u64,
}

/// Looks at what `fd` refers to.
pub fn status(fd: impl AsFd) -> SysResult<FileStatus> {
    rustix::fs::fstat(fd).map(of_stat).map_err(|errno| SysError::new("fstat", "[file]", errno))
}

fn of_stat(stat: Stat) -> FileStatus {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let number = DeviceId::new(rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    FileStatus {
        device: (kind == FileType::CharacterDevice).then_some(number),
        is_file: kind == FileType::RegularFile,
        is_directory: kind == FileType::Directory,
        is_link: kind == FileType::Symlink,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        file_system: stat.st_dev,
    }
}

fn openat2(root: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> SysResult<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: a rename beside the lookup made the kernel unsure; it says to try again (openat2(2)).
    for _ in 0..64 {
        match rustix::fs::openat2(&root, path, flags, mode, resolve) {
            Err(super::Errno::AGAIN | super::Errno::INTR) => {}
            result => return result.map_err(|errno| SysError::new("openat2", format!("[root], {path:?}"), errno)),
        }
    }
    Err(SysError::new("openat2", format!("[root], {path:?}"), super::Errno::AGAIN))
}

/// Whether `directory` is the root of a mount. Minimum kernel 5.8 (STATX_ATTR_MOUNT_ROOT).
pub fn is_mount_root(directory: impl AsFd) -> SysResult<bool> {
    use rustix::fs::{StatxAttributes, StatxFlags, statx};
    let status = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .map_err(|errno| SysError::new("statx", "[directory]", errno))?;
    Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The root directory of this process.
pub fn open_root() -> SysResult<OwnedFd> {
    open_directory("/")
}

/// The host's `/dev`.
pub fn open_dev() -> SysResult<OwnedFd> {
    open_directory("/dev")
}

/// The directory `/proc/PID`.
pub fn open_process(pid: u32) -> SysResult<OwnedFd> {
    open_directory(&format!("/proc/{pid}"))
}

/// The directory `path` of our own mount namespace.
pub fn open_directory(path: &str) -> SysResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| SysError::new("open", format!("{path:?}"), errno))
}

/// Whether `directory` is on a bpffs (include/uapi/linux/magic.h, `BPF_FS_MAGIC`).
pub fn is_bpffs(directory: impl AsFd) -> SysResult<bool> {
    let status = rustix::fs::fstatfs(directory).map_err(|errno| SysError::new("fstatfs", "[directory]", errno))?;
    Ok(i128::from(status.f_type) == 0xcafe_4a11)
}
