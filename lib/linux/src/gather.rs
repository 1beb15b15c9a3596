// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what the host and one container say now, below a `Root`, and hands the text to the parsers of
//! `gpuhook_core::facts`. It reads only.

use std::error::Error;
use std::fmt;

use gpuhook_core::facts::{
    Capability, CgroupLocation, ContainerFacts, Driver, Gpu, HostFacts, HostNode, IdMap, Majors, Malformed, MigUuid,
    MigUuids, NodeKind, Params, PciAddress,
};

use crate::nvidia_smi;
use crate::root::{Root, RootError};
use crate::sys::mount::{self, Follow};
use crate::sys::open::{Entry, EntryKind};

pub use self::raw::raw;
pub use self::surroundings::surroundings;

mod raw;
mod surroundings;

/// What to read beyond majors, driver and GPUs, which every request needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The capability files of the whole driver: `mig/config`, `mig/monitor`, `fabric-imex-mgmt`.
    pub capabilities: bool,
    /// Those of single GPUs, `gpu0/mig/gi1`, of which there can be hundreds.
    pub instances: bool,
    /// Which MIG device has which UUID: the one fact that takes a program, and a second or more.
    pub mig_uuids: bool,
    /// The nodes in the host's `/dev`.
    pub nodes: bool,
}

/// Where another machine's `nvidia-smi -L` is.
const LISTING: &str = "nvidia-smi-L.txt";

/// Channel nodes beyond this many are not looked at: a driver registers 2048 by default, and nodes are only compared.
const CHANNELS_MAX: usize = 64;

/// Directories below `capabilities/` lie at most this deep: `gpu0/mig/gi1/ci0` is 4.
const CAPABILITY_DEPTH: usize = 8;

/// mountinfo has a line per mount, and a line of an overlay can be 4 KiB; in bytes.
const MOUNTINFO_MAX: u64 = 32 << 20;

/// The host below `root`. What is absent is "not known"; what cannot be read is a sentence in `warnings`.
///
/// # Errors
/// The kernel lacks what a safe lookup needs, so nothing can be read.
pub fn host(root: &Root, wanted: Wanted) -> Result<HostFacts, GatherError> {
    let mut facts = HostFacts::default();
    let mut warnings = Warnings::default();
    if let Some(text) = warnings.text(root, "proc/devices")? {
        let majors = Majors::parse(&text);
        let path = root.path_of("proc/devices");
        warnings.0.extend(majors.odd_lines.iter().map(|line| format!("cannot read the line {line:?} of {path}")));
        facts.majors = Some(majors);
    }
    if let Some(driver) = warnings.keep(root.directory("proc/driver/nvidia"))?.flatten() {
        facts.driver = warnings.parsed(&driver, "version", Driver::parse)?;
        facts.params = warnings.parsed(&driver, "params", Params::parse)?.unwrap_or_default();
        facts.gpus = warnings.gpus(&driver)?;
        if (wanted.capabilities || wanted.instances)
            && let Some((top, entries)) = warnings.keep(driver.list("capabilities"))?.flatten()
        {
            for entry in entries {
                let is_wanted = if entry.name.starts_with("gpu") { wanted.instances } else { wanted.capabilities };
                if is_wanted {
                    let path = entry.name.clone();
                    warnings.capabilities(&top, &entry, path, CAPABILITY_DEPTH, &mut facts.capabilities)?;
                }
            }
            facts.capabilities.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
    if wanted.mig_uuids {
        facts.mig_uuids = warnings.mig_uuids(root)?;
    }
    if wanted.nodes {
        facts.nodes = warnings.nodes(root)?;
    }
    facts.warnings = warnings.0;
    Ok(facts)
}

/// What a decision needs to know of the container of the process whose `/proc` directory is `process`, with the mounts
/// of our own mount namespace from `host`.
///
/// # Errors
/// Something could not be read or understood. Unlike a host's facts, a wrong guess here would give a node to the wrong
/// owner or open the wrong filter.
pub fn container(host: &Root, process: &Root) -> Result<ContainerFacts, GatherError> {
    let mountinfo = needed(host, "proc/self/mountinfo", MOUNTINFO_MAX)?;
    let cgroup = needed(process, "cgroup", Root::FILE_MAX)?;
    let id_map = |name| {
        let text = needed(process, name, Root::FILE_MAX)?;
        IdMap::parse(&text).map_err(|source| GatherError::Malformed { path: process.path_of(name), source })
    };
    Ok(ContainerFacts {
        uid_map: id_map("uid_map")?,
        gid_map: id_map("gid_map")?,
        cgroup: CgroupLocation::parse(&cgroup, &mountinfo),
    })
}

/// The text of `/proc/self/mountinfo`; nothing where it cannot be read.
pub fn mountinfo(root: &Root) -> String {
    root.text_at_most("proc/self/mountinfo", MOUNTINFO_MAX).ok().flatten().unwrap_or_default()
}

fn needed(root: &Root, path: &str, limit: u64) -> Result<String, GatherError> {
    match root.text_at_most(path, limit) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(GatherError::Absent { path: root.path_of(path) }),
        Err(source) => Err(GatherError::Unreadable { source }),
    }
}

/// What could not be read of a host.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Warnings {
    /// What was read; where it could not be, a warning instead.
    fn keep<T>(&mut self, read: Result<T, RootError>) -> Result<Option<T>, GatherError> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(source @ RootError::Unsupported { .. }) => Err(GatherError::Unreadable { source }),
            // Ours and not the file's: what is there would be taken for absent.
            Err(source @ RootError::Failed { .. }) if source.is_lack() => Err(GatherError::Unreadable { source }),
            Err(error) => {
                self.0.push(match error.source() {
                    Some(source) => format!("{error}: {source}"),
                    None => error.to_string(),
                });
                Ok(None)
            }
        }
    }

    fn text(&mut self, root: &Root, path: &str) -> Result<Option<String>, GatherError> {
        Ok(self.keep(root.text(path))?.flatten())
    }

    /// What `parse` makes of the file; a warning where it makes nothing.
    fn parsed<T>(
        &mut self,
        root: &Root,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, Malformed>,
    ) -> Result<Option<T>, GatherError> {
        let Some(text) = self.text(root, path)? else { return Ok(None) };
        let value = parse(&text);
        if let Err(error) = &value {
            self.0.push(format!("cannot understand {}: {error}", root.path_of(path)));
        }
        Ok(value.ok())
    }

    fn gpus(&mut self, driver: &Root) -> Result<Vec<Gpu>, GatherError> {
        let Some((directory, entries)) = self.keep(driver.list("gpus"))?.flatten() else { return Ok(Vec::new()) };
        let mut gpus = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(address) = PciAddress::parse(&entry.name) else {
                self.0.push(format!("{} is not named by a PCI address", directory.path_of(&entry.name)));
                continue;
            };
            let file = format!("{}/information", entry.name);
            gpus.extend(self.parsed(&directory, &file, |text| Gpu::parse(address, text))?);
        }
        gpus.sort_by_key(|gpu| gpu.address);
        Ok(gpus)
    }

    /// Adds the capability file `entry` of `directory`, or every one below it; `path` is its path below
    /// `capabilities/`.
    fn capabilities(
        &mut self,
        directory: &Root,
        entry: &Entry,
        path: String,
        depth: usize,
        found: &mut Vec<Capability>,
    ) -> Result<(), GatherError> {
        if !is_directory(directory, entry) {
            found.extend(self.parsed(directory, &entry.name, |text| Capability::parse(&path, text))?);
            return Ok(());
        }
        let Some((directory, entries)) = self.keep(directory.list(&entry.name))?.flatten() else { return Ok(()) };
        for entry in entries.iter().filter(|_| depth > 0) {
            self.capabilities(&directory, entry, format!("{path}/{}", entry.name), depth - 1, found)?;
        }
        Ok(())
    }

    /// Of this machine by its program, of another by what that printed there: `nvidia-smi-L.txt`.
    fn mig_uuids(&mut self, root: &Root) -> Result<MigUuids, GatherError> {
        let listing = match root.is_live() {
            true => nvidia_smi::list(),
            false => self.text(root, LISTING)?.ok_or_else(|| format!("there is no {LISTING}")),
        };
        Ok(match listing {
            Ok(text) => MigUuids { devices: MigUuid::parse_listing(&text), problem: None },
            Err(problem) => MigUuids { devices: Vec::new(), problem: Some(problem) },
        })
    }

    fn nodes(&mut self, root: &Root) -> Result<Vec<HostNode>, GatherError> {
        // What people can post of another machine; the machine itself has the nodes.
        if !root.is_live()
            && let Some(text) = self.text(root, "dev.list")?
        {
            return Ok(HostNode::parse_listing(&text));
        }
        let Some((dev, entries)) = self.keep(root.list("dev"))?.flatten() else { return Ok(Vec::new()) };
        let mut nodes = Vec::new();
        for entry in entries.into_iter().filter(|entry| HostNode::is_gpu_name(&entry.name)) {
            let name = entry.name.as_str();
            if !HostNode::DIRECTORIES.contains(&name) || !is_directory(&dev, &entry) {
                nodes.extend(node(&dev, name, format!("/dev/{name}")));
                continue;
            }
            let Some((directory, below)) = self.keep(dev.list(name))?.flatten() else { continue };
            if name == "nvidia-caps-imex-channels" && below.len() > CHANNELS_MAX {
                continue;
            }
            nodes.extend(
                below.iter().filter_map(|entry| node(&directory, &entry.name, format!("/dev/{name}/{}", entry.name))),
            );
        }
        nodes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(nodes)
    }
}

/// What stands at `name` in `directory`, called `path`; nothing where it went away meanwhile.
fn node(directory: &Root, name: &str, path: String) -> Option<HostNode> {
    let file = mount::locate(directory, name, Follow::No).ok()?;
    let status = mount::status(file).ok()?;
    let kind = status.device.map_or(NodeKind::NotADevice, NodeKind::Character);
    Some(HostNode { path, kind, mode: status.mode, uid: Some(status.uid), gid: Some(status.gid) })
}

fn is_directory(directory: &Root, entry: &Entry) -> bool {
    match entry.kind {
        EntryKind::Directory => true,
        EntryKind::Other => false,
        EntryKind::Unknown => mount::locate(directory, &entry.name, Follow::No)
            .and_then(mount::status)
            .is_ok_and(|status| status.is_directory),
    }
}

/// Why there are no facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatherError {
    /// Something could not be read.
    Unreadable {
        /// What, and why.
        source: RootError,
    },
    /// A file that every process has is not there: the process is gone.
    Absent {
        /// The file.
        path: String,
    },
    /// The kernel's text does not read as it always did.
    Malformed {
        /// The file.
        path: String,
        /// What was expected.
        source: Malformed,
    },
}

impl fmt::Display for GatherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { .. } => f.write_str("cannot gather facts"),
            Self::Absent { path } => write!(f, "{path} is not there: the process is gone"),
            Self::Malformed { path, .. } => write!(f, "cannot understand {path}"),
        }
    }
}

impl Error for GatherError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreadable { source } => Some(source),
            Self::Absent { .. } => None,
            Self::Malformed { source, .. } => Some(source),
        }
    }
}
