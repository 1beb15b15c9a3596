// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own nodes and their links in `/dev/char`: compared with the driver's live numbers, made and repaired. Every
//! name is looked up below one descriptor of the directory that stands for `/dev`.
//!
//! A node is made under another name and renamed, so that nobody ever finds none where there was one. Whatever is no node
//! stays as it is, with one exception: an empty regular file of mode 0000, which is what LXC's `create=file` leaves on a
//! host whose node was absent (lxc conf.c, `mount_entry_create_dir_file`).

use std::error::Error;
use std::fmt;
use std::os::fd::OwnedFd;

use gpuhook_core::device::DeviceId;
use gpuhook_core::plan::PlannedDevice;

use crate::sys::mount::{self, FileStatus, Follow};
use crate::sys::open;
use crate::sys::{Errno, SysError, SysResult};

/// Where links by number are (systemd-udevd makes them for devices in sysfs, which NVIDIA's are not).
const LINKS: &str = "char";

/// The directory that stands for `/dev`.
#[derive(Debug)]
pub struct Dev(OwnedFd);

/// What stands at one node's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The node as it should be, with its link.
    Right,
    /// Nothing.
    Missing,
    /// A node of another number.
    Stale(DeviceId),
    /// Another mode or owner than the driver's parameters say.
    Mode(u32),
    /// What `create=file` left.
    LeftOver,
    /// No node, and not ours to remove.
    Occupied(&'static str),
    /// The node is right, and the link in `/dev/char` is absent or leads elsewhere.
    Unlinked,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.write_str("right"),
            Self::Missing => f.write_str("missing"),
            Self::Stale(id) => write!(f, "stale: it is c {id}"),
            Self::Mode(mode) => write!(f, "has mode {mode:04o} or another owner than the driver's parameters say"),
            Self::LeftOver => f.write_str("an empty file that a bind with create=file left"),
            Self::Occupied(what) => write!(f, "{what}; hint: look at it, remove it, and run this again"),
            Self::Unlinked => f.write_str("right, but without its link in /dev/char"),
        }
    }
}

/// Why a node could not be made.
#[derive(Debug)]
pub struct NodesError {
    path: String,
    source: SysError,
}

impl fmt::Display for NodesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "make or repair {}", self.path)
    }
}

impl Error for NodesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

impl Dev {
    /// The host's `/dev`, or the directory that stands for it.
    ///
    /// # Errors
    /// It is no directory.
    pub fn open(path: Option<&str>) -> Result<Self, NodesError> {
        let path = path.unwrap_or("/dev");
        mount::open_directory(path).map(Self).map_err(|source| NodesError { path: path.to_owned(), source })
    }

    /// What stands at the node's path now.
    ///
    /// # Errors
    /// It could not be looked at.
    pub fn state(&self, node: &PlannedDevice) -> Result<State, NodesError> {
        self.look(node).map_err(|source| error(node, source))
    }

    /// Makes the node as it should be, and its link. What is occupied stays so.
    ///
    /// # Errors
    /// A call failed: no permission, or a read-only directory.
    pub fn repair(&self, node: &PlannedDevice) -> Result<(), NodesError> {
        let done = match self.look(node).map_err(|source| error(node, source))? {
            State::Right | State::Occupied(_) => Ok(()),
            State::Unlinked => self.link(node),
            State::Mode(_) => self.set_mode(node),
            State::Missing | State::Stale(_) | State::LeftOver => self.make(node).and_then(|()| self.link(node)),
        };
        done.map_err(|source| error(node, source))
    }

    /// Makes the links of those nodes that stand here under their live numbers, and removes those of earlier ones. A
    /// node that is absent or stale is left to [`Dev::repair`]: a link to it would promise what is not there.
    ///
    /// # Errors
    /// A link could not be made or removed.
    pub fn link_live(&self, nodes: &[PlannedDevice]) -> Result<(), NodesError> {
        for node in nodes {
            let here = mount::locate(&self.0, name(node), Follow::No).and_then(mount::status);
            if here.is_ok_and(|status| status.device == Some(node.id)) {
                self.link(node).map_err(|source| error(node, source))?;
            }
        }
        self.remove_stale_links(nodes).map(drop)
    }

    /// Removes the links of numbers that these nodes had at an earlier boot, and returns their names.
    ///
    /// # Errors
    /// A link could not be removed.
    pub fn remove_stale_links(&self, nodes: &[PlannedDevice]) -> Result<Vec<String>, NodesError> {
        let failed = |source| NodesError { path: format!("/dev/{LINKS}"), source };
        let links = match open::directory_below(&self.0, LINKS) {
            Ok(links) => links,
            Err(error) if error.errno() == Errno::NOENT => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut removed = Vec::new();
        for entry in open::entries(&links).map_err(failed)? {
            let Ok(target) = mount::link_target(&links, &entry.name) else { continue };
            let ours = nodes.iter().find(|node| target_of(node) == target);
            if ours.is_some_and(|node| node.id.to_string() != entry.name) {
                mount::remove(&links, &entry.name, false).map_err(failed)?;
                removed.push(entry.name);
            }
        }
        Ok(removed)
    }

    fn look(&self, node: &PlannedDevice) -> SysResult<State> {
        let file = match mount::locate(&self.0, name(node), Follow::No) {
            Ok(file) => file,
            Err(error) if matches!(error.errno(), Errno::NOENT) => return Ok(State::Missing),
            Err(error) => return Err(error),
        };
        let status = mount::status(file)?;
        Ok(match status.device {
            Some(id) if id != node.id => State::Stale(id),
            Some(_) if (status.mode, status.uid, status.gid) != (node.mode, node.uid, node.gid) => {
                State::Mode(status.mode)
            }
            Some(_) if !self.is_linked(node) => State::Unlinked,
            Some(_) => State::Right,
            None => no_device(&status),
        })
    }

    fn is_linked(&self, node: &PlannedDevice) -> bool {
        mount::link_target(&self.0, &format!("{LINKS}/{}", node.id)).is_ok_and(|target| target == target_of(node))
    }

    fn make(&self, node: &PlannedDevice) -> SysResult<()> {
        let name = name(node);
        if let Some((directory, _)) = name.rsplit_once('/') {
            self.directory(directory)?;
        }
        let fresh = format!("{name}.gpuhook");
        // Left by one who was killed between the two calls.
        match mount::remove(&self.0, &fresh, false) {
            Err(error) if error.errno() != Errno::NOENT => return Err(error),
            _ => {}
        }
        mount::make_node(&self.0, &fresh, node.id, node.mode, node.uid, node.gid)?;
        mount::rename(&self.0, &fresh, name)
    }

    fn set_mode(&self, node: &PlannedDevice) -> SysResult<()> {
        mount::set_owner(&self.0, name(node), node.uid, node.gid)?;
        mount::set_mode(&self.0, name(node), node.mode)?;
        self.link(node)
    }

    fn link(&self, node: &PlannedDevice) -> SysResult<()> {
        if self.is_linked(node) {
            return Ok(());
        }
        self.directory(LINKS)?;
        let (link, fresh) = (format!("{LINKS}/{}", node.id), format!("{LINKS}/{}.gpuhook", node.id));
        match mount::remove(&self.0, &fresh, false) {
            Err(error) if error.errno() != Errno::NOENT => return Err(error),
            _ => {}
        }
        mount::make_link(&self.0, &fresh, &target_of(node))?;
        mount::rename(&self.0, &fresh, &link)
    }

    fn directory(&self, name: &str) -> SysResult<()> {
        match mount::make_directory(&self.0, name) {
            Err(error) if error.errno() != Errno::EXIST => Err(error),
            _ => Ok(()),
        }
    }
}

fn no_device(status: &FileStatus) -> State {
    match status {
        FileStatus { is_file: true, size: 0, mode: 0, .. } => State::LeftOver,
        FileStatus { is_file: true, .. } => State::Occupied("a regular file stands there"),
        FileStatus { is_directory: true, .. } => State::Occupied("a directory stands there"),
        FileStatus { is_link: true, .. } => State::Occupied("a symbolic link stands there"),
        _ => State::Occupied("something that is no character device stands there"),
    }
}

/// A planned path always lies below `/dev/`.
fn name(node: &PlannedDevice) -> &str {
    node.path.as_str().strip_prefix("/dev/").unwrap_or(node.path.as_str())
}

/// What the link in `/dev/char` holds.
fn target_of(node: &PlannedDevice) -> String {
    format!("../{}", name(node))
}

fn error(node: &PlannedDevice, source: SysError) -> NodesError {
    NodesError { path: node.path.to_string(), source }
}
