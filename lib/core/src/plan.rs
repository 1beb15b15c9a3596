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
mod needs;

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
        let devices::Chosen { devices, gpus, left_out, .. } = chosen;
        let undecided = needs::check(host, &gpus, &request.requirements)?;
        let kind = match container.cgroup {
            CgroupLocation::Unknown => FilterKind::AssumedCgroup2,
            CgroupLocation::V2 { .. } => FilterKind::Cgroup2,
            CgroupLocation::V1 { .. } => FilterKind::CgroupV1,
        };
        let left_out = left_out.into_iter().chain(request.left_out.iter().cloned()).collect();
        Ok(Self {
            mounts: mounts_for(&devices),
            filter: PlannedFilter { kind, rules: rules_for(&devices) },
            devices,
            left_out,
            warnings: host.warnings.iter().cloned().chain(undecided).collect(),
            driver: host.driver_name(),
            root_on_host: devices::root_on_host(container),
        })
    }

    /// The same for a container into which `injector` brings the nodes already: there is nothing to do but to look at
    /// them. `paths` are the nodes that the injector names; where it names none, all are looked at.
    #[must_use]
    pub fn verify_only(mut self, injector: &str, paths: &[&str]) -> Self {
        self.devices.retain(|device| paths.is_empty() || paths.contains(&device.path.as_str()));
        self.filter.rules = rules_for(&self.devices);
        self.mounts.clear();
        self.warnings.push(format!("duplicate-injection: {injector} injects already, so gpuhook only looks"));
        self
    }

    /// The nodes, in a fixed order.
    pub fn devices(&self) -> &[PlannedDevice] {
        &self.devices
    }

    /// The nodes that stand for all once they were brought in: each that is a mount of its own, and the first and the
    /// last of each directory that is one mount, together with the number of nodes between these two.
    pub fn samples(&self) -> Vec<(&PlannedDevice, usize)> {
        let whole = |device: &PlannedDevice| {
            self.mounts.iter().position(|mount| mount.directory && device.path.is_below(&mount.target))
        };
        let mut samples: Vec<(&PlannedDevice, usize)> = Vec::new();
        for devices in self.devices.chunk_by(|a, b| whole(a).is_some_and(|mount| whole(b) == Some(mount))) {
            let (first, rest) = devices.split_at(1);
            samples.extend(first.iter().map(|device| (device, 0)));
            samples.extend(rest.last().map(|device| (device, rest.len() - 1)));
        }
        samples
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
        self.device_allow_beyond(&[])
    }

    /// The same without what a unit's `known` entries allow already, by name or by number.
    pub fn device_allow_beyond(&self, known: &[String]) -> Vec<String> {
        let by_number = |device: &PlannedDevice| format!("/dev/char/{} {}", device.id, device.access);
        let value = |device: &PlannedDevice| match device.dynamic {
            Some(name) => format!("char-{name} {}", device.access),
            None => by_number(device),
        };
        let is_new =
            |device: &&PlannedDevice| !known.iter().any(|known| [by_number(device), value(device)].contains(known));
        let mut values: Vec<String> = self.devices.iter().filter(is_new).map(value).collect();
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

fn rules_for(devices: &[PlannedDevice]) -> Vec<DeviceRule> {
    devices.iter().map(|device| DeviceRule { id: device.id, access: device.access }).collect()
}

/// Of the driver's capabilities so many are mounted one by one, beside whatever else the container has in their directory.
const SINGLE_CAPABILITIES_MAX: usize = 8;

/// One mount per node, but one for all IMEX channels, and one for many capabilities: there can be thousands of the ones
/// and hundreds of the others, and their cost must not grow.
fn mounts_for(devices: &[PlannedDevice]) -> Vec<PlannedMount> {
    let directory = |path: &str, more_than: usize| {
        let below = |directory: &ContainerPath| devices.iter().filter(|device| device.path.is_below(directory)).count();
        ContainerPath::new(path).filter(|directory| below(directory) > more_than)
    };
    let whole =
        [directory(devices::IMEX_DIRECTORY, 0), directory(devices::CAPABILITY_DIRECTORY, SINGLE_CAPABILITIES_MAX)];
    let mut mounts: Vec<PlannedMount> = Vec::new();
    for device in devices {
        let mount = match whole.iter().flatten().find(|directory| device.path.is_below(directory)) {
            Some(directory) => PlannedMount { target: directory.clone(), directory: true },
            None => PlannedMount { target: device.path.clone(), directory: false },
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

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &str) -> PlannedDevice {
        let path = ContainerPath::new(path).expect("a plain path");
        let (id, access) = (DeviceId::new(237, 1), Access::READ);
        PlannedDevice { path, id, dynamic: None, access, mode: 0o400, uid: 0, gid: 0 }
    }

    fn plan(directory: &str, nodes: usize) -> Plan {
        let devices: Vec<_> = (0..nodes).map(|at| device(&format!("/dev/{directory}/{at}"))).collect();
        let devices = [vec![device("/dev/nvidia0")], devices, vec![device("/dev/nvidia-uvm")]].concat();
        Plan { mounts: mounts_for(&devices), devices, ..Plan::default() }
    }

    #[test]
    fn many_nodes_of_one_directory_are_one_mount_and_two_stand_for_them() {
        for (directory, nodes, whole) in [
            ("nvidia-caps", 8, false),
            ("nvidia-caps", 9, true),
            ("nvidia-caps-imex-channels", 1, true),
            ("nvidia-caps-imex-channels", 2048, true),
            ("elsewhere", 100, false),
        ] {
            let plan = plan(directory, nodes);
            assert_eq!(plan.mounts().len(), if whole { 3 } else { nodes + 2 }, "{directory} {nodes}");
            assert_eq!(plan.mounts().iter().any(|mount| mount.directory), whole, "{directory} {nodes}");
            let samples = plan.samples();
            assert_eq!(samples.len(), if whole { nodes.min(2) + 2 } else { nodes + 2 }, "{directory} {nodes}");
            let more: usize = samples.iter().map(|(_, more)| more).sum();
            assert_eq!(more + samples.len(), nodes + 2, "{directory} {nodes}");
        }
    }

    #[test]
    fn nodes_that_were_not_mounted_stand_for_themselves() {
        let plan = Plan { mounts: Vec::new(), ..plan("nvidia-caps-imex-channels", 10) };
        assert_eq!(plan.samples().len(), 12);
    }
}
