// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exact steps for one container: a value that can be printed and cannot act. Equal inputs give equal bytes.

use std::fmt;

use serde::Serialize;

use crate::device::{Access, ContainerPath, DeviceId, DeviceRule};
use crate::facts::majors::{self, Majors};
use crate::facts::{CgroupLocation, ContainerFacts, HostFacts};
use crate::request::{DriverCapabilities, Request};

pub use self::error::PlanError;

mod devices;
mod error;

/// What will be done to one container. Made by [`Plan::make`] alone and not changed afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    devices: Vec<PlannedDevice>,
    mounts: Vec<PlannedMount>,
    filter: PlannedFilter,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip)]
    driver: String,
    #[serde(skip)]
    root_on_host: (u32, u32),
}

/// One node that the container gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedDevice {
    /// Where the container sees it; always below `/dev/`.
    pub path: ContainerPath,
    /// Its live number.
    #[serde(flatten, serialize_with = "major_and_minor")]
    pub id: DeviceId,
    /// The name of its driver in `/proc/devices`, where its major is dynamic.
    #[serde(skip)]
    pub dynamic: Option<&'static str>,
    /// How it may be opened.
    pub access: Access,
    /// Permission bits.
    #[serde(serialize_with = "octal")]
    pub mode: u32,
    /// Owner in the host's ids, so that the container's id map shows the one it should.
    pub uid: u32,
    /// Group in the host's ids.
    pub gid: u32,
}

/// One mount into the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedMount {
    /// Where it goes: the path of one planned device, or of the directory that holds several.
    pub target: ContainerPath,
    /// Whether the target is a directory, bound whole: many IMEX channels cost one mount.
    pub directory: bool,
}

/// What the device filter must allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlannedFilter {
    /// Which mechanism governs the container.
    pub kind: FilterKind,
    /// One exact rule per device.
    pub rules: Vec<DeviceRule>,
}

/// The mechanism that filters a container's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilterKind {
    /// Not known where the container runs; cgroup2 is assumed.
    #[default]
    AssumedCgroup2,
    /// eBPF programs on the container's cgroups.
    Cgroup2,
    /// The v1 devices controller.
    CgroupV1,
}

impl Plan {
    /// What `request` means on this host now, for `container` where it is known.
    ///
    /// # Errors
    /// [`PlanError`] says what the host lacks, and what it has instead. Nothing was changed.
    pub fn make(host: &HostFacts, container: &ContainerFacts, request: &Request) -> Result<Self, PlanError> {
        let mut chosen = devices::Chosen::new(host, container);
        chosen.fulfil(request)?;
        let devices::Chosen { devices, left_out, .. } = chosen;
        let rules = devices.iter().map(|device| DeviceRule { id: device.id, access: device.access }).collect();
        let kind = match container.cgroup {
            CgroupLocation::Unknown => FilterKind::AssumedCgroup2,
            CgroupLocation::V2 { .. } => FilterKind::Cgroup2,
            CgroupLocation::V1 { .. } => FilterKind::CgroupV1,
        };
        let left_out = left_out.into_iter().chain(request.left_out.iter().cloned()).collect();
        Ok(Self {
            mounts: mounts_for(&devices),
            devices,
            filter: PlannedFilter { kind, rules },
            left_out,
            warnings: host.warnings.clone(),
            driver: host.driver_name(),
            root_on_host: devices::root_on_host(container),
        })
    }

    /// The nodes, in a fixed order.
    pub fn devices(&self) -> &[PlannedDevice] {
        &self.devices
    }

    /// The mounts that bring the nodes in, in a fixed order.
    pub fn mounts(&self) -> &[PlannedMount] {
        &self.mounts
    }

    /// What the device filter must allow.
    pub fn filter(&self) -> &PlannedFilter {
        &self.filter
    }

    /// What was left out on purpose, each with its reason.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// What could not be read of the host, and did not matter for this container.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The values of systemd's `DeviceAllow=` (systemd.resource-control(5)) that allow the same: dynamic majors by their
    /// driver's name, which systemd looks up whenever it builds the filter; NVIDIA's fixed one by number and exactly.
    pub fn device_allow(&self) -> Vec<String> {
        let value = |device: &PlannedDevice| match device.dynamic {
            Some(name) => format!("char-{name} {}", device.access),
            None => format!("/dev/char/{} {}", device.id, device.access),
        };
        let mut values: Vec<String> = self.devices.iter().map(value).collect();
        values.sort();
        values.dedup();
        values
    }

    /// The driver whose numbers these are: `driver 590.48.01`.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The container's root user and group, in the host's ids.
    pub fn root_on_host(&self) -> (u32, u32) {
        self.root_on_host
    }

    /// Whether the container is to run CUDA: it gets the unified memory device.
    pub fn needs_cuda(&self) -> bool {
        self.devices.iter().any(|device| device.path.as_str() == devices::UVM)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

/// The kernel modules that `request` needs and that have registered no name, in the order in which to load them.
pub fn missing_modules(majors: &Majors, request: &Request) -> Vec<&'static str> {
    let display = request.capabilities.intersects(DriverCapabilities::DISPLAY | DriverCapabilities::GRAPHICS);
    let needs = [
        ("nvidia", true, majors.primary().is_ok()),
        ("nvidia-uvm", request.capabilities.contains(DriverCapabilities::COMPUTE), has(majors, majors::NVIDIA_UVM)),
        ("nvidia-modeset", display, has(majors, majors::NVIDIA_MODESET) || has(majors, majors::NVIDIA_FRONTEND)),
    ];
    needs.into_iter().filter(|(_, needed, there)| *needed && !there).map(|(module, ..)| module).collect()
}

fn has(majors: &Majors, name: &str) -> bool {
    majors.by_name.contains_key(name)
}

/// One mount per node, but one for all IMEX channels: there can be thousands, and their cost must not grow.
fn mounts_for(devices: &[PlannedDevice]) -> Vec<PlannedMount> {
    let mut mounts: Vec<PlannedMount> = Vec::new();
    for device in devices {
        let mount = match ContainerPath::new(devices::IMEX_DIRECTORY) {
            Some(directory) if device.path.is_below(&directory) => PlannedMount { target: directory, directory: true },
            _ => PlannedMount { target: device.path.clone(), directory: false },
        };
        if mounts.last() != Some(&mount) {
            mounts.push(mount);
        }
    }
    mounts
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            writeln!(f, "nothing to do: no GPU was asked for")?;
        }
        for device in &self.devices {
            writeln!(f, "node   {:<44} c {:<9} {:04o}", device.path.as_str(), device.id.to_string(), device.mode)?;
        }
        for mount in &self.mounts {
            let kind = if mount.directory { " (directory)" } else { "" };
            writeln!(f, "mount  {}{kind}", mount.target)?;
        }
        for rule in &self.filter.rules {
            writeln!(f, "allow  {rule}")?;
        }
        for (title, sentences) in [("left out", &self.left_out), ("warning", &self.warnings)] {
            for sentence in sentences {
                writeln!(f, "{title}: {sentence}")?;
            }
        }
        Ok(())
    }
}

fn major_and_minor<S: serde::Serializer>(id: &DeviceId, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("major", &id.major)?;
    map.serialize_entry("minor", &id.minor)?;
    map.end()
}

fn octal<S: serde::Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{mode:04o}"))
}
