// SPDX-License-Identifier: MIT OR Apache-2.0
//! A container's cgroup as descriptors of directories: opened once, from the leaf up to the root of the hierarchy.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use gpuhook_core::facts::CgroupLocation;

use crate::sys::{self, SysError};

/// Which device controller the hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Lists in `devices.allow`.
    V1,
    /// Programs.
    V2,
}

/// The cgroups on the path from a container's leaf to the root of the hierarchy.
#[derive(Debug)]
pub struct CgroupPath {
    /// Which controller.
    pub version: Version,
    /// The container's own, from the leaf to its top.
    pub own: Vec<Level>,
    /// Those of the operator, from the top's parent to the root. Never changed.
    pub above: Vec<Level>,
}

/// One cgroup.
#[derive(Clone, Debug)]
pub struct Level {
    /// Its path in the hierarchy, `/lxc/129/ns`.
    pub name: String,
    fd: Arc<OwnedFd>,
}

impl AsFd for Level {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why a cgroup cannot be opened or entered.
#[derive(Debug)]
pub enum CgroupError {
    /// It is not known where the container is.
    Unknown,
    /// `top` is not the leaf or an ancestor of it.
    NotAbove {
        /// The leaf.
        leaf: String,
        /// The supposed top.
        top: String,
    },
    /// A directory could not be opened.
    Open {
        /// Which.
        cgroup: String,
        /// Why.
        source: SysError,
    },
    /// A process could not be moved.
    Enter {
        /// Into which cgroup.
        cgroup: String,
        /// Why.
        source: SysError,
    },
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("cannot tell the container's cgroup (hint: is /sys/fs/cgroup mounted?)"),
            Self::NotAbove { leaf, top } => write!(f, "cgroup {top} is not above {leaf}"),
            Self::Open { cgroup, .. } => write!(f, "cannot open cgroup {cgroup} (hint: is the container still there?)"),
            Self::Enter { cgroup, .. } => write!(f, "cannot enter cgroup {cgroup}"),
        }
    }
}

impl std::error::Error for CgroupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unknown | Self::NotAbove { .. } => None,
            Self::Open { source, .. } | Self::Enter { source, .. } => Some(source),
        }
    }
}

impl CgroupPath {
    /// The cgroups from the leaf of `location` up, of which those up to and with `top` are the container's own
    /// (see [`gpuhook_core::cgroup_top::container_top`]).
    ///
    /// # Errors
    /// An unknown location, a `top` that is not on the path, a directory that is gone.
    pub fn open(location: &CgroupLocation, top: &str) -> Result<Self, CgroupError> {
        let (version, mount, leaf) = match location {
            CgroupLocation::V1 { mount, path } => (Version::V1, mount, path),
            CgroupLocation::V2 { mount, path } => (Version::V2, mount, path),
            CgroupLocation::Unknown => return Err(CgroupError::Unknown),
        };
        let split = |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let (names, top_names) = (split(leaf), split(top));
        if !names.starts_with(&top_names) || names.iter().any(|name| name == "..") {
            return Err(CgroupError::NotAbove { leaf: leaf.clone(), top: top.to_owned() });
        }
        let opened = |name: &str, fd: Result<OwnedFd, SysError>| match fd {
            Ok(fd) => Ok(Level { name: name.to_owned(), fd: Arc::new(fd) }),
            Err(source) => Err(CgroupError::Open { cgroup: name.to_owned(), source }),
        };
        let mut levels = vec![opened("/", sys::cgroup::open_mount(mount))?];
        for name in &names {
            let parent = &levels[levels.len() - 1];
            let path = format!("{}/{name}", parent.name.trim_end_matches('/'));
            levels.push(opened(&path, sys::cgroup::open_child(parent, name))?);
        }
        let mut own = levels.split_off(top_names.len());
        own.reverse();
        levels.reverse();
        Ok(Self { version, own, above: levels })
    }

    /// Moves the calling process into the hierarchy's root: a child that outlives its hook must not keep alive the cgroup
    /// that the hook was in (LXC removes its monitor's when the container stops).
    ///
    /// # Errors
    /// [`CgroupError::Unknown`], or the root takes no process.
    pub fn leave(location: &CgroupLocation) -> Result<(), CgroupError> {
        let (CgroupLocation::V1 { mount, .. } | CgroupLocation::V2 { mount, .. }) = location else {
            return Err(CgroupError::Unknown);
        };
        sys::cgroup::open_mount(mount)
            .and_then(|root| sys::cgroup::write(&root, "cgroup.procs", "0"))
            .map_err(|source| CgroupError::Enter { cgroup: "/".to_owned(), source })
    }

    /// The cgroup in which the container's init is.
    pub fn leaf(&self) -> &Level {
        &self.own[0]
    }

    /// Moves the calling process into the leaf.
    ///
    /// # Errors
    /// EOPNOTSUPP where the leaf has controllers and processes below it, ENODEV where it is gone.
    pub fn enter(&self) -> Result<(), CgroupError> {
        self.enter_process(0)
    }

    /// Moves the process `pid` (0: the caller) into the leaf.
    ///
    /// # Errors
    /// As [`Self::enter`]; ESRCH where the process is gone.
    pub fn enter_process(&self, pid: u32) -> Result<(), CgroupError> {
        let leaf = self.leaf();
        sys::cgroup::write(leaf, "cgroup.procs", &pid.to_string())
            .map_err(|source| CgroupError::Enter { cgroup: leaf.name.clone(), source })
    }
}
