// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings nodes into a container: every lookup stays below the container's root and ends in a descriptor, and each
//! mount goes from descriptor to descriptor. Everything found there is hostile: links, FIFOs, swapped directories.

use std::error::Error;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use gpuhook_core::device::{ContainerPath, DeviceId};
use gpuhook_core::plan::{Plan, PlannedMount};

use super::nodes::{NodeError, ReadyMount};
use crate::failpoint;
use crate::sys::mount::{self, FileStatus, Follow};
use crate::sys::{Errno, SysError};
use crate::target::TargetError;

/// What was changed in the container, newest last; undone in reverse.
#[derive(Debug, Default)]
pub(super) struct Journal {
    changes: Vec<Change>,
    /// The directory of the last mount, by its path: most nodes lie in one.
    last: Option<(String, Rc<Directory>)>,
}

#[derive(Debug)]
enum Change {
    Made { parent: Rc<Directory>, name: String, is_directory: bool },
    Mounted { parent: Rc<Directory>, name: String },
}

/// A directory of the container.
#[derive(Debug)]
struct Directory {
    fd: OwnedFd,
    /// Whether it is on the file system of the host's `/dev`.
    is_hosts: bool,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why a mount could not be made.
#[derive(Debug)]
pub(super) enum MountError {
    /// Something stands at the target that nothing may be mounted on.
    Occupied { path: ContainerPath, what: &'static str },
    /// The directory is the host's own, so a file made in it would appear on the host.
    HostDirectory(ContainerPath),
    /// After the mount the target was not the node that we mounted.
    Swapped(ContainerPath),
    /// The file system of the container's directory is read-only.
    ReadOnly(ContainerPath),
    /// The nodes could not be made, before the container was entered.
    Nodes(NodeError),
    /// The host's /dev could not be looked at.
    HostDev(SysError),
    /// The container could not be entered.
    Enter(TargetError),
    /// A system call failed.
    Sys { path: ContainerPath, source: SysError },
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied { path, what } => {
                write!(
                    f,
                    "the container has {what} at {path}, and nothing is mounted on that; hint: remove it from the container"
                )
            }
            Self::HostDirectory(path) => write!(
                f,
                "{path} in the container is a directory of the host's /dev; hint: remove the mount that brings the \
                 whole directory in (lxc.mount.entry, --volume), gpuhook brings the nodes"
            ),
            Self::Swapped(path) => write!(f, "{path} was exchanged while it was being mounted"),
            Self::ReadOnly(path) => write!(
                f,
                "{path} cannot be made: its directory is read-only; hint: inject at container start, when it is not"
            ),
            // It says everything itself.
            Self::Nodes(error) => error.fmt(f),
            Self::HostDev(_) => f.write_str("look at the host's /dev"),
            Self::Enter(_) => f.write_str("enter the container"),
            Self::Sys { path, .. } => write!(f, "mount {path}"),
        }
    }
}

impl Error for MountError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Sys { source, .. } | Self::HostDev(source) => Some(source),
            Self::Nodes(error) => error.source(),
            Self::Enter(source) => Some(source),
            _ => None,
        }
    }
}

impl Journal {
    /// Attaches one mount below `root`, and returns false where the container has exactly that already.
    pub(super) fn attach(
        &mut self,
        root: &OwnedFd,
        host_dev: u64,
        plan: &Plan,
        ready: ReadyMount<'_>,
    ) -> Result<bool, MountError> {
        let ReadyMount { planned, mount } = ready;
        let path = &planned.target;
        let (parent, name) = self.parent(root, host_dev, path)?;
        let sys = |source| MountError::Sys { path: path.clone(), source };
        let wanted = device_at(plan, path);
        let target = match mount::locate(&*parent, name, Follow::No) {
            Ok(found) if is_there(&found, planned, plan).map_err(sys)? => return Ok(false),
            Ok(found) => usable(found, planned)?,
            Err(error) if error.errno() == Errno::NOENT => self.make(&parent, name, planned)?,
            Err(error) => return Err(sys(error)),
        };
        failpoint::reach("mounts.attach").map_err(sys)?;
        mount.attach(&target).map_err(sys)?;
        self.changes.push(Change::Mounted { parent: parent.clone(), name: name.to_owned() });
        failpoint::reach("mounts.attached").map_err(sys)?;
        // The kernel resolved no path for us, but the container may have moved the directory while we looked.
        let seen = mount::locate(&*parent, name, Follow::No).and_then(mount::status).map_err(sys)?;
        match wanted == seen.device {
            true => Ok(true),
            false => Err(MountError::Swapped(path.clone())),
        }
    }

    /// Takes back everything, newest first. What fails to go is left: the container dies with it.
    pub(super) fn undo(self) {
        for change in self.changes.into_iter().rev() {
            let result = match change {
                Change::Mounted { parent, name } => mount::detach(&*parent, &name),
                Change::Made { parent, name, is_directory } => mount::remove(&*parent, &name, is_directory),
            };
            if let Err(error) = result {
                log::warn!("undo: {error}");
            }
        }
    }

    /// The directory of `path` below `root`, made where it is missing, and the last component.
    fn parent<'p>(
        &mut self,
        root: &OwnedFd,
        host_dev: u64,
        path: &'p ContainerPath,
    ) -> Result<(Rc<Directory>, &'p str), MountError> {
        let (above, name) = path.as_str().rsplit_once('/').unwrap_or_default();
        if let Some((_, directory)) = self.last.as_ref().filter(|(last, _)| last == above) {
            return Ok((directory.clone(), name));
        }
        let sys = |source| MountError::Sys { path: path.clone(), source };
        let mut directory = looked_at(duplicate(root).map_err(sys)?, host_dev, path)?;
        let mut so_far = String::new();
        for name in above.split('/').filter(|name| !name.is_empty()) {
            so_far.push('/');
            so_far.push_str(name);
            let found = match mount::locate(root, &so_far, Follow::Yes) {
                Err(error) if error.errno() == Errno::NOENT => {
                    self.make_directory(&directory, name, path)?;
                    mount::locate(root, &so_far, Follow::Yes)
                }
                found => found,
            };
            directory = looked_at(found.map_err(sys)?, host_dev, path)?;
        }
        self.last = Some((above.to_owned(), directory.clone()));
        Ok((directory, name))
    }

    fn make_directory(&mut self, parent: &Rc<Directory>, name: &str, path: &ContainerPath) -> Result<(), MountError> {
        not_on_host(parent, path)?;
        mount::make_directory(&**parent, name).map_err(|error| making(path, error))?;
        self.changes.push(Change::Made { parent: parent.clone(), name: name.to_owned(), is_directory: true });
        failpoint::reach("mounts.made-directory").map_err(|source| making(path, source))
    }

    fn make(&mut self, parent: &Rc<Directory>, name: &str, planned: &PlannedMount) -> Result<OwnedFd, MountError> {
        let path = &planned.target;
        if planned.directory {
            self.make_directory(parent, name, path)?;
            let found = mount::locate(&**parent, name, Follow::No);
            return usable(found.map_err(|source| MountError::Sys { path: path.clone(), source })?, planned);
        }
        not_on_host(parent, path)?;
        let file = mount::make_file(&**parent, name).map_err(|error| making(path, error))?;
        self.changes.push(Change::Made { parent: parent.clone(), name: name.to_owned(), is_directory: false });
        failpoint::reach("mounts.made-file").map_err(|source| making(path, source))?;
        Ok(file)
    }
}

/// The directory behind `fd`, on the way to `path`.
fn looked_at(fd: OwnedFd, host_dev: u64, path: &ContainerPath) -> Result<Rc<Directory>, MountError> {
    let status = mount::status(&fd).map_err(|source| MountError::Sys { path: path.clone(), source })?;
    match status.is_directory {
        true => Ok(Rc::new(Directory { fd, is_hosts: status.file_system == host_dev })),
        false => Err(MountError::Occupied { path: path.clone(), what: "no directory above what is to stand" }),
    }
}

/// A file made in a bind mount of the host's /dev would appear on the host (tteck/Proxmox#3758).
fn not_on_host(parent: &Directory, path: &ContainerPath) -> Result<(), MountError> {
    match parent.is_hosts {
        true => Err(MountError::HostDirectory(path.clone())),
        false => Ok(()),
    }
}

fn making(path: &ContainerPath, source: SysError) -> MountError {
    match source.errno() {
        Errno::ROFS => MountError::ReadOnly(path.clone()),
        _ => MountError::Sys { path: path.clone(), source },
    }
}

/// The number that the node at `path` must have; nothing for a directory.
fn device_at(plan: &Plan, path: &ContainerPath) -> Option<DeviceId> {
    plan.devices().iter().find(|device| device.path == *path).map(|device| device.id)
}

/// Whether what stands there is already what is planned, so that a second run changes nothing.
fn is_there(found: &OwnedFd, planned: &PlannedMount, plan: &Plan) -> Result<bool, SysError> {
    let status = mount::status(found)?;
    if !planned.directory {
        return Ok(status.device.is_some() && status.device == device_at(plan, &planned.target));
    }
    let mut inside = plan.devices().iter().filter(|device| device.path.is_below(&planned.target));
    Ok(status.is_directory
        && inside.all(|device| {
            let name = device.path.names().last().unwrap_or_default();
            let there: Result<FileStatus, SysError> = mount::locate(found, name, Follow::No).and_then(mount::status);
            there.is_ok_and(|node| node.device == Some(device.id))
        }))
}

/// What stands there, if a mount may cover it: a file or another node for a node, a directory for a directory.
fn usable(found: OwnedFd, planned: &PlannedMount) -> Result<OwnedFd, MountError> {
    let occupied = |what| Err(MountError::Occupied { path: planned.target.clone(), what });
    let status = mount::status(&found).map_err(|source| MountError::Sys { path: planned.target.clone(), source })?;
    match status {
        FileStatus { is_link: true, .. } => occupied("a symbolic link"),
        FileStatus { is_directory: true, .. } if !planned.directory => occupied("a directory"),
        FileStatus { is_directory: false, .. } if planned.directory => occupied("a file"),
        FileStatus { is_directory: true, .. }
        | FileStatus { is_file: true, .. }
        | FileStatus { device: Some(_), .. } => Ok(found),
        _ => occupied("a FIFO, socket or block device"),
    }
}

fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, SysError> {
    fd.as_fd().try_clone_to_owned().map_err(|error| SysError::of_io("dup", "[directory]", &error))
}
