// SPDX-License-Identifier: MIT OR Apache-2.0
//! gpuhook's own nodes: a tmpfs that no other process ever sees, with the live numbers and the owner and mode that the
//! container's id map needs. Each node leaves it as a detached mount.

use std::error::Error;
use std::fmt;

use gpuhook_core::device::{ContainerPath, DeviceId};
use gpuhook_core::plan::{Plan, PlannedMount};

use crate::failpoint;
use crate::sys::mount::{self, DetachedMount, Follow};
use crate::sys::{Errno, SysError, SysResult, ns, process};

/// A mount that is ready to be attached, and where it goes.
#[derive(Debug)]
pub(super) struct ReadyMount<'a> {
    pub(super) planned: &'a PlannedMount,
    pub(super) mount: DetachedMount,
}

/// Why a node cannot be brought in.
#[derive(Debug)]
pub(super) enum NodeError {
    /// Without the right to make nodes the host's are bound, and this one is not what the driver has now.
    Host { path: ContainerPath, found: Option<DeviceId>, live: DeviceId },
    /// A system call failed.
    Sys(SysError),
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { path, found, live } => {
                write!(f, "without CAP_MKNOD the host's nodes are used, and its {path} is ")?;
                match found {
                    Some(found) => write!(f, "c {found}")?,
                    None => f.write_str("absent or no device")?,
                }
                write!(f, ", not c {live}; hint: as root on the host: nvidia-modprobe -u -c 0")
            }
            Self::Sys(_) => f.write_str("make device nodes"),
        }
    }
}

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Host { .. } => None,
            Self::Sys(source) => Some(source),
        }
    }
}

impl From<SysError> for NodeError {
    fn from(source: SysError) -> Self {
        Self::Sys(source)
    }
}

/// For a forked child only: makes every planned node and returns the planned mounts, detached.
pub(super) fn make(plan: &Plan) -> Result<Vec<ReadyMount<'_>>, NodeError> {
    failpoint::reach("nodes.make")?;
    // LXC's monitor hands its profile on to hooks. It denies move_mount of a tmpfs, and of anything below the
    // container's /dev (measured on 6.12), and allows this change.
    process::leave_apparmor_profile();
    match own(plan) {
        // A rootless manager: its user namespace can mount, but nobody in it can make a device node.
        Err(error) if error.errno() == Errno::PERM => hosts(plan),
        made => Ok(made?),
    }
}

/// The tmpfs is mounted nowhere, or before 6.15, where open_tree(OPEN_TREE_CLONE) takes only mounts of the caller's
/// namespace, in one of this child alone. Nothing shows in the host's mount table, so nothing can be left behind there:
/// the tmpfs lives as long as a container holds one of its nodes.
fn own(plan: &Plan) -> SysResult<Vec<ReadyMount<'_>>> {
    let root = mount::device_tmpfs()?;
    mount::clear_umask();
    // There can be 2048 IMEX channels in one directory.
    let (owner, mut made) = (process::ids(), None);
    for device in plan.devices() {
        let name = below_dev(device.path.as_str());
        if let Some((directory, _)) = name.rsplit_once('/').filter(|(directory, _)| made != Some(*directory)) {
            make_directory(&root, directory, plan)?;
            made = Some(directory);
        }
        mount::make_own_node(&root, name, device.id, device.mode)?;
        if (device.uid, device.gid) != owner {
            mount::set_owner(&root, name, device.uid, device.gid)?;
        }
    }
    match clones(&root, plan) {
        Err(error) if error.errno() == Errno::INVAL => {
            ns::private_mounts()?;
            clones(&root.attach_over("/run")?, plan)
        }
        cloned => cloned,
    }
}

fn clones<'a>(root: &DetachedMount, plan: &'a Plan) -> SysResult<Vec<ReadyMount<'a>>> {
    let ready = |planned: &'_ PlannedMount| mount::clone_tree(root, below_dev(planned.target.as_str()));
    plan.mounts().iter().map(|planned| Ok(ReadyMount { planned, mount: ready(planned)? })).collect()
}

/// The host's own nodes, each with the number that the driver has now.
fn hosts(plan: &Plan) -> Result<Vec<ReadyMount<'_>>, NodeError> {
    // A clone must not belong to the peer group of the host's mount.
    ns::private_mounts()?;
    let root = mount::open_root()?;
    for device in plan.devices() {
        let found = mount::locate(&root, device.path.as_str(), Follow::No).and_then(mount::status);
        let found = found.ok().and_then(|status| status.device);
        if found != Some(device.id) {
            return Err(NodeError::Host { path: device.path.clone(), found, live: device.id });
        }
    }
    let ready = |planned: &'_ PlannedMount| {
        mount::locate(&root, planned.target.as_str(), Follow::No).and_then(mount::clone_file)
    };
    plan.mounts().iter().map(|planned| Ok(ReadyMount { planned, mount: ready(planned)? })).collect()
}

/// Our directories belong to the container's root, as the directories of devtmpfs do.
fn make_directory(root: &DetachedMount, name: &str, plan: &Plan) -> SysResult<()> {
    match mount::make_directory(root, name) {
        Err(error) if error.errno() == Errno::EXIST => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            let (uid, gid) = plan.root_on_host();
            mount::set_owner(root, name, uid, gid)
        }
    }
}

/// A planned path always lies below `/dev/`; its name in our tmpfs is the rest.
fn below_dev(path: &str) -> &str {
    path.strip_prefix("/dev/").unwrap_or(path)
}
