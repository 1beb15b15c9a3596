// SPDX-License-Identifier: MIT OR Apache-2.0
//! One snapshot of what the host says now, and of what a decision needs to know of one container. Data only: the
//! parsers are in the modules below, and `gpuhook-linux` reads the files.
//!
//! Whatever was not found is `None` or empty, which means "not known", never "missing".

use std::error::Error;
use std::fmt;

use crate::device::{DeviceId, Minor};

pub use self::majors::{MajorError, Majors};
pub use self::mig::MigDevice;
pub use self::mig_uuid::MigUuid;
pub use self::support::{Version, VersionRange};

/// Text of a file below `/proc/driver/nvidia/capabilities` -> a capability device.
mod capability;
/// Text of a CDI file -> the nodes and files that it names.
pub mod cdi;
/// Text of `/proc/PID/cgroup` and `/proc/self/mountinfo` -> which device filter governs a process.
mod cgroup;
/// Links by number in `/dev/char`.
pub mod char_links;
/// Text of `/proc/PID/{uid_map,gid_map}` -> id maps.
mod container;
/// Text of `/proc/driver/nvidia/{version,params}` -> the loaded driver and its parameters.
mod driver;
/// Text of `/proc/driver/nvidia/gpus/BUS/information` -> a GPU and its PCI address.
mod gpu;
/// Text of `/etc/group` -> names of group ids.
pub mod groups;
/// Text of the kernel log -> what the GPU drivers said in it.
pub mod kernel_log;
/// Text of `ls -l` -> nodes, for hosts that are known from a report only.
mod listing;
/// Text of `/proc/devices` -> character majors by name.
pub mod majors;
/// Capability files of single GPUs -> their MIG devices.
mod mig;
mod mig_uuid;
/// Text of `/proc/modules` and `modules.dep` -> which modules there are.
pub mod modules;
/// Files of `hooks.d`.
pub mod oci_hook;
/// Driver version -> which CUDA it supports; model -> compute capability.
mod support;
/// What only a diagnosis asks of a host.
pub mod surroundings;
/// udev rules that make nodes.
pub mod udev;

/// What the host says of its NVIDIA driver at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// `/proc/devices`; `None` where the file was not there to read.
    pub majors: Option<Majors>,
    /// `/proc/driver/nvidia/version`.
    pub driver: Option<Driver>,
    /// `/proc/driver/nvidia/params`.
    pub params: Params,
    /// The driver's GPUs, in PCI bus order, which is the order of NVML's indices.
    pub gpus: Vec<Gpu>,
    /// The capability files below `/proc/driver/nvidia/capabilities`, sorted by name.
    pub capabilities: Vec<Capability>,
    /// The UUIDs of MIG devices, or why they are not known; empty where nobody asked.
    pub mig_uuids: MigUuids,
    /// The GPU nodes in the host's `/dev`, sorted by path: compared, never a source of numbers.
    pub nodes: Vec<HostNode>,
    /// What could not be read, as sentences that name file and line. They go into the report.
    pub warnings: Vec<String>,
}

/// What `nvidia-smi -L` says of MIG devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigUuids {
    /// The devices that it lists.
    pub devices: Vec<MigUuid>,
    /// Why it could not be asked, as a sentence.
    pub problem: Option<String>,
}

impl HostFacts {
    /// The driver as a person calls it: `driver 590.48.01`.
    pub fn driver_name(&self) -> String {
        match self.driver.as_ref().and_then(|driver| driver.version.as_ref()) {
            Some(version) => format!("driver {version}"),
            None => "driver".to_owned(),
        }
    }
}

/// The loaded kernel module's version text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Two or three numbers, `580.76.05`; `None` where the text has no number (`TempVersion`).
    pub version: Option<String>,
    /// Whether it is the open flavour of the kernel modules.
    pub open: bool,
}

/// What gpuhook needs of the driver's parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// `DeviceFileMode`, printed in decimal (438 is 0666).
    pub device_file_mode: Option<u32>,
    /// `DeviceFileUID`.
    pub device_file_uid: Option<u32>,
    /// `DeviceFileGID`.
    pub device_file_gid: Option<u32>,
    /// `ImexChannelCount`: how many channel minors the driver registered.
    pub imex_channel_count: Option<u32>,
}

/// One GPU, from `/proc/driver/nvidia/gpus/BUS/information`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Where it sits; also the name of its directory.
    pub address: PciAddress,
    /// `Device Minor`: it is `/dev/nvidia<minor>`. Not in bus order, and with gaps.
    pub minor: Minor,
    /// `GPU UUID`, as printed (`GPU-...`); older drivers print question marks until first use, then this is `None`.
    pub uuid: Option<String>,
    /// `Model`, for people.
    pub model: Option<String>,
    /// `GPU Excluded: Yes` (older: `Blacklisted`).
    pub excluded: bool,
}

/// A PCI address `domain:bus:device.function`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// PCI domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device (slot).
    pub device: u8,
    /// Function.
    pub function: u8,
}

/// One capability device, from `/proc/driver/nvidia/capabilities/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Path below `capabilities/` without the final `access`: `mig/config`, `gpu0/mig/gi1`, `gpu0/mig/gi1/ci0`,
    /// `fabric-imex-mgmt`.
    pub name: String,
    /// `DeviceFileMinor`: it is `/dev/nvidia-caps/nvidia-cap<minor>`. Read, never computed.
    pub minor: Minor,
    /// `DeviceFileMode`, printed in decimal (256 is 0400).
    pub mode: u32,
}

/// A node in the host's `/dev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNode {
    /// Its path, `/dev/nvidia-uvm`.
    pub path: String,
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits, without the file type.
    pub mode: u32,
    /// Owner; `None` where a listing gives a name that is not the same number everywhere.
    pub uid: Option<u32>,
    /// Group; `None` as above.
    pub gid: Option<u32>,
}

/// What stands at a node's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A character device of this number.
    Character(DeviceId),
    /// Anything else: an empty regular file left by a failed bind mount, say.
    NotADevice,
}

/// What a decision needs to know of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerFacts {
    /// `/proc/PID/uid_map`.
    pub uid_map: IdMap,
    /// `/proc/PID/gid_map`.
    pub gid_map: IdMap,
    /// Where the kernel filters its devices.
    pub cgroup: CgroupLocation,
}

/// A user namespace's id map: `(first id inside, first id outside, count)` per line. Empty means "not known" and maps
/// every id to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap(pub Vec<(u32, u32, u32)>);

/// Which device filter governs a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CgroupLocation {
    /// Not known; cgroup2 is assumed.
    #[default]
    Unknown,
    /// cgroup2: device programs on the path from the leaf to the root.
    V2 {
        /// Where the hierarchy is mounted on the host.
        mount: String,
        /// The leaf, relative to the root of the hierarchy: `/lxc.payload.c1`.
        path: String,
    },
    /// The v1 devices controller: lists in `devices.allow`.
    V1 {
        /// Where the devices hierarchy is mounted on the host.
        mount: String,
        /// The leaf, relative to the root of the hierarchy.
        path: String,
    },
}

/// Text of the kernel or of the driver that does not read as it always did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    expected: &'static str,
    line: Option<String>,
}

impl Malformed {
    fn line(expected: &'static str, line: &str) -> Self {
        Self { expected, line: Some(line.to_owned()) }
    }

    fn absent(expected: &'static str) -> Self {
        Self { expected, line: None }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => write!(f, "expected {}, found {line:?}", self.expected),
            None => write!(f, "expected {}, found none", self.expected),
        }
    }
}

impl Error for Malformed {}

/// The lines `Key: value` of a file of the driver: key, value, whole line. Blanks and tabs around the value are not
/// part of it.
fn fields(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        Some((key.trim(), value.trim(), line))
    })
}

/// A number as the kernel prints it with `%u`: no sign, no blanks, at most `max`.
fn decimal(text: &str, max: u32) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|number| *number <= max)
}

/// The kernel's device numbers have 12 bits of major and 20 bits of minor (include/linux/kdev_t.h).
const MAJOR_MAX: u32 = (1 << 12) - 1;
const MINOR_MAX: u32 = (1 << 20) - 1;
