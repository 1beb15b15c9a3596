// SPDX-License-Identifier: MIT OR Apache-2.0
//! One container, held by descriptors that were opened once: its process, its namespaces and its root. A process id
//! that dies or is given to another process cannot redirect anything afterwards.

use std::error::Error;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::root::Root as Directory;
use crate::sys::mount::{self, Follow};
use crate::sys::ns::{self, Namespaces};
use crate::sys::{Errno, SysError, SysResult};

/// A container that lives, or at least did when it was opened.
#[derive(Debug)]
pub struct Target {
    pid: u32,
    pidfd: OwnedFd,
    process: OwnedFd,
    namespaces: Namespaces,
    root: Root,
    user: User,
}

/// Where the container's root directory is.
#[derive(Debug)]
enum Root {
    /// The process's own root: it has pivoted already (LXC start-host, a running container).
    OfProcess(OwnedFd),
    /// A path in the container's mount namespace: before pivot_root (OCI prestart, createRuntime).
    Path(String),
}

/// Who the container's process is, in the ids of its own user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

/// Why a process cannot be worked on.
#[derive(Debug)]
pub enum TargetError {
    /// No process of this id, or it ended meanwhile.
    Gone(u32),
    /// The process shares our mount namespace: not a container, or the id was recycled.
    NotAContainer(u32),
    /// The directory is not the root of a mount in the container's mount namespace.
    NotItsRoot(String),
    /// A system call failed.
    Sys(SysError),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(pid) => write!(f, "process {pid} does not exist or has ended"),
            Self::NotAContainer(pid) => {
                write!(f, "process {pid} shares the host's mount namespace, so it is not a container's process")
            }
            Self::NotItsRoot(path) => write!(f, "{path} is not mounted in the container's mount namespace"),
            Self::Sys(source) if matches!(source.errno(), Errno::ACCESS | Errno::PERM) => {
                f.write_str("open the container's process; hint: run it as root")
            }
            Self::Sys(_) => f.write_str("open the container's process"),
        }
    }
}

impl Error for TargetError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Sys(source) => Some(source),
            _ => None,
        }
    }
}

impl From<SysError> for TargetError {
    fn from(source: SysError) -> Self {
        Self::Sys(source)
    }
}

impl Target {
    /// The container of process `pid`.
    ///
    /// # Errors
    /// [`TargetError::Gone`] where the process ended, also while it was being opened;
    /// [`TargetError::NotAContainer`] where it shares our mount namespace.
    pub fn open(pid: u32) -> Result<Self, TargetError> {
        let gone = |error: SysError| match error.errno() {
            Errno::SRCH | Errno::NOENT => TargetError::Gone(pid),
            _ => TargetError::Sys(error),
        };
        let pidfd = ns::pidfd_open(pid).map_err(gone)?;
        let process = mount::open_process(pid).map_err(gone)?;
        let own = mount::open_process(std::process::id())?;
        let mut namespaces = Namespaces::empty();
        for (kind, name) in Namespaces::NAMES {
            if ns::namespace(&process, name).map_err(gone)? != ns::namespace(&own, name)? {
                namespaces |= kind;
            }
        }
        let root = ns::process_root(&process).map_err(gone)?;
        // Alive now means that the number meant the same process all along: /proc/PID was opened after the pidfd.
        if !ns::is_alive(&pidfd)? {
            return Err(TargetError::Gone(pid));
        }
        if !namespaces.contains(Namespaces::MOUNT) {
            return Err(TargetError::NotAContainer(pid));
        }
        Ok(Self { pid, pidfd, process, namespaces, root: Root::OfProcess(root), user: User::default() })
    }

    /// The host itself, to climb the same ladder there.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn host() -> Result<Self, TargetError> {
        let pid = std::process::id();
        let process = mount::open_process(pid)?;
        let root = Root::OfProcess(ns::process_root(&process)?);
        let pidfd = ns::pidfd_open(pid)?;
        Ok(Self { pid, pidfd, process, namespaces: Namespaces::empty(), root, user: User::default() })
    }

    /// The same container before pivot_root, with its root at `path` of its mount namespace.
    #[must_use]
    pub fn with_rootfs(self, path: String) -> Self {
        Self { root: Root::Path(path), ..self }
    }

    /// The same container with a process of these ids.
    #[must_use]
    pub fn with_user(self, user: User) -> Self {
        Self { user, ..self }
    }

    /// Whether this is the host itself, and not a container on it.
    pub fn is_host(&self) -> bool {
        !self.namespaces.contains(Namespaces::MOUNT)
    }

    /// The process id it was opened by.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its `/proc/PID` directory.
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Its `/proc/PID` directory, to read below.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn process_directory(&self) -> Result<Directory, TargetError> {
        let process = self.process.try_clone().map_err(|error| SysError::of_io("dup", "[/proc/PID]", &error))?;
        Ok(Directory::from_fd(process, &format!("/proc/{}", self.pid)))
    }

    /// Its root directory, to read below; the host's mount namespace stays ours.
    ///
    /// # Errors
    /// The process has ended.
    pub fn root_directory(&self) -> Result<Directory, TargetError> {
        Ok(Directory::from_fd(ns::process_root(&self.process)?, &format!("/proc/{}/root", self.pid)))
    }

    /// The process as a descriptor.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The namespaces that are not ours.
    pub fn namespaces(&self) -> Namespaces {
        self.namespaces
    }

    /// The ids of the container's process.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Whether the process still runs.
    pub fn is_alive(&self) -> SysResult<bool> {
        ns::is_alive(&self.pidfd)
    }

    /// Does nothing while the process runs.
    ///
    /// # Errors
    /// [`TargetError::Gone`] where it has ended, or is on its way: the first process of a pid namespace gives up its own
    /// namespaces, then kills all others there and waits for them, and only then counts as dead (kernel/exit.c,
    /// `do_exit`).
    pub fn check_alive(&self) -> Result<(), TargetError> {
        match self.is_alive()? && ns::namespace(&self.process, "mnt").is_ok() {
            true => Ok(()),
            false => Err(TargetError::Gone(self.pid)),
        }
    }

    /// For a forked child only: joins `namespaces` as far as they are not ours already, as root of the container's
    /// user namespace, and returns the container's root directory.
    ///
    /// # Errors
    /// [`TargetError::NotItsRoot`] where the root that the spec names is not mounted there.
    pub fn enter(&self, namespaces: Namespaces) -> Result<OwnedFd, TargetError> {
        ns::set_undumpable()?;
        let joined = self.namespaces & namespaces;
        if !joined.is_empty() {
            ns::join(&self.pidfd, joined)?;
        }
        if joined.contains(Namespaces::USER) {
            // Files made in the container must be owned by an id that it maps (EOVERFLOW otherwise).
            ns::become_user(0, 0, &[])?;
        }
        match &self.root {
            Root::OfProcess(root) => Ok(root.try_clone().map_err(|error| SysError::of_io("dup", "[root]", &error))?),
            Root::Path(path) => {
                let root = mount::locate(mount::open_root()?, path, Follow::Yes)?;
                match mount::is_mount_root(&root)? {
                    true => Ok(root),
                    false => Err(TargetError::NotItsRoot(path.clone())),
                }
            }
        }
    }
}
