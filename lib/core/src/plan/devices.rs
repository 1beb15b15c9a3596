// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which nodes a request means on this host: one rule per function. Minors of GPUs and capabilities are read from the
//! driver's files, never computed; the few fixed ones are the driver's own constants.

use std::collections::BTreeSet;

use crate::device::{Access, ContainerPath, DeviceId, Major, Minor};
use crate::facts::majors::{self, Majors};
use crate::facts::{Capability, ContainerFacts, Gpu, HostFacts, IdMap, MigDevice, MigUuid, NodeKind};
use crate::request::{DeviceName, DeviceSelection, DriverCapabilities, MigName, Request};

use super::{PlanError, PlannedDevice};

/// Where the driver's capabilities live.
pub(super) const CAPABILITY_DIRECTORY: &str = "/dev/nvidia-caps";

/// Where IMEX channels live.
pub(super) const IMEX_DIRECTORY: &str = "/dev/nvidia-caps-imex-channels";

/// The unified memory device, without which there is no CUDA.
pub(super) const UVM: &str = "/dev/nvidia-uvm";

/// `NV_CONTROL_DEVICE_MINOR` (kernel-open/common/inc/nv-chardev-numbers.h).
const CONTROL_MINOR: Minor = Minor(255);
/// `NV_MODESET_DEVICE_MINOR`, likewise.
const MODESET_MINOR: Minor = Minor(254);
/// `NVIDIA_UVM_PRIMARY_MINOR_NUMBER` (kernel-open/nvidia-uvm/uvm_common.h).
const UVM_MINOR: Minor = Minor(0);
/// `NVIDIA_UVM_TOOLS_MINOR_NUMBER`, likewise.
const UVM_TOOLS_MINOR: Minor = Minor(1);
/// `NVSWITCH_CTL_MINOR` (kernel-open/nvidia/linux_nvswitch.c).
const NVSWITCH_CONTROL_MINOR: Minor = Minor(255);
/// The driver's own default, `NVreg_DeviceFileMode`.
const DEFAULT_MODE: u32 = 0o666;

/// The nodes chosen so far, and what was left out.
pub(super) struct Chosen<'a> {
    host: &'a HostFacts,
    container: &'a ContainerFacts,
    pub(super) devices: Vec<PlannedDevice>,
    /// The GPUs that the devices belong to.
    pub(super) gpus: Vec<&'a Gpu>,
    pub(super) left_out: Vec<String>,
}

/// What a selection means on this host.
#[derive(Default)]
struct Selected<'a> {
    gpus: Vec<&'a Gpu>,
    mig: Vec<MigDevice<'a>>,
}

impl<'a> Chosen<'a> {
    pub(super) fn new(host: &'a HostFacts, container: &'a ContainerFacts) -> Self {
        Self { host, container, devices: Vec::new(), gpus: Vec::new(), left_out: Vec::new() }
    }

    /// Chooses everything that `request` asks for, in a fixed order.
    pub(super) fn fulfil(&mut self, request: &Request) -> Result<(), PlanError> {
        if request.devices == DeviceSelection::Nothing {
            return Ok(());
        }
        let majors = self.majors()?;
        let nvidia = Numbered { dynamic: None, major: majors.primary()? };
        let owner = self.driver_owner();
        self.add("/dev/nvidiactl", nvidia, CONTROL_MINOR, owner);
        let selected = self.selected(&request.devices)?;
        for minor in selected.gpus.iter().map(|gpu| gpu.minor).collect::<BTreeSet<_>>() {
            self.add(&format!("/dev/nvidia{minor}"), nvidia, minor, owner);
        }
        if request.capabilities.contains(DriverCapabilities::COMPUTE) {
            let uvm = Numbered::dynamic(majors, majors::NVIDIA_UVM)?;
            self.add(UVM, uvm, UVM_MINOR, owner);
            self.add("/dev/nvidia-uvm-tools", uvm, UVM_TOOLS_MINOR, owner);
        }
        if request.capabilities.intersects(DriverCapabilities::DISPLAY | DriverCapabilities::GRAPHICS) {
            self.add_modeset(majors, nvidia, owner);
        }
        self.add_capabilities(majors, request, &selected)?;
        self.add_nvswitch(majors, request)?;
        self.add_imex(majors, &request.imex_channels)?;
        self.gpus = selected.gpus;
        Ok(())
    }

    fn majors(&self) -> Result<&'a Majors, PlanError> {
        self.host.majors.as_ref().ok_or(PlanError::MajorsUnknown)
    }

    /// The GPUs and MIG devices of a selection. `all` means all of both, a GPU means itself alone, and a MIG device brings
    /// its GPU in (libnvidia-container, src/cli/common.c).
    fn selected(&self, selection: &DeviceSelection) -> Result<Selected<'a>, PlanError> {
        // NVML does not count a GPU that the administrator excluded, so indices skip it.
        let visible: Vec<&'a Gpu> = self.host.gpus.iter().filter(|gpu| !gpu.excluded).collect();
        match selection {
            DeviceSelection::Nothing | DeviceSelection::ControlOnly => Ok(Selected::default()),
            DeviceSelection::All if visible.is_empty() => Err(PlanError::NoGpu),
            DeviceSelection::All => {
                let mig = visible.iter().flat_map(|gpu| self.host.mig_devices(gpu.minor)).collect();
                Ok(Selected { gpus: visible, mig })
            }
            DeviceSelection::List(names) => {
                let mut selected = Selected::default();
                for name in names {
                    let (gpu, mig) = match name {
                        DeviceName::Mig(name) => self.mig_device(&visible, name)?,
                        name => (find(&visible, name)?, None),
                    };
                    selected.gpus.push(gpu);
                    selected.mig.extend(mig);
                }
                Ok(selected)
            }
        }
    }

    /// The MIG device of that name, with its GPU.
    fn mig_device(&self, visible: &[&'a Gpu], name: &MigName) -> Result<(&'a Gpu, Option<MigDevice<'a>>), PlanError> {
        let gpu = match name {
            MigName::Uuid(uuid) => return self.mig_device(visible, &self.position_of(uuid)?),
            MigName::Instances { gpu, .. } => find(visible, &DeviceName::Uuid(gpu.clone()))?,
            MigName::Position { gpu, .. } => find(visible, gpu)?,
        };
        let devices = self.host.mig_devices(gpu.minor);
        let at = match name {
            MigName::Instances { gpu_instance, compute_instance, .. } => devices.iter().position(|device| {
                (device.gpu_instance, device.compute_instance) == (*gpu_instance, *compute_instance)
            }),
            MigName::Position { position, .. } => usize::try_from(*position).ok(),
            MigName::Uuid(_) => None,
        };
        match at.and_then(|at| devices.get(at)) {
            Some(device) => Ok((gpu, Some(*device))),
            None => {
                let index = visible.iter().position(|other| other.minor == gpu.minor).unwrap_or_default();
                let exist = devices.iter().enumerate().map(|(at, MigDevice { gpu_instance, compute_instance, .. })| {
                    format!("{index}:{at} (gi {gpu_instance}, ci {compute_instance})")
                });
                Err(PlanError::NoMigDevice { asked: name.to_string(), gpu: index, exist: exist.collect() })
            }
        }
    }

    /// Where the MIG device with that UUID is.
    fn position_of(&self, uuid: &str) -> Result<MigName, PlanError> {
        let known = &self.host.mig_uuids;
        match known.devices.iter().find(|device| device.uuid.eq_ignore_ascii_case(uuid)) {
            Some(MigUuid { gpu, position, .. }) => {
                Ok(MigName::Position { gpu: Box::new(DeviceName::Uuid(gpu.clone())), position: *position })
            }
            None => Err(PlanError::NoMigUuid {
                asked: uuid.to_owned(),
                exist: known.devices.iter().map(|device| device.uuid.clone()).collect(),
                problem: known.problem.clone(),
            }),
        }
    }

    /// The modeset node, for display and graphics: before 545 the frontend's one region holds its minor too.
    fn add_modeset(&mut self, majors: &Majors, nvidia: Numbered, owner: Owner) {
        if majors.by_name.contains_key(majors::NVIDIA_MODESET) || majors.by_name.contains_key(majors::NVIDIA_FRONTEND) {
            self.add("/dev/nvidia-modeset", nvidia, MODESET_MINOR, owner);
        } else {
            let why = "/dev/nvidia-modeset: its module is not loaded; hint: modprobe nvidia-modeset";
            self.left_out.push(why.to_owned());
        }
    }

    /// Capability nodes: the rights over MIG, then the MIG devices', each once.
    fn add_capabilities(&mut self, majors: &Majors, request: &Request, mig: &Selected<'_>) -> Result<(), PlanError> {
        let find = |name: &'static str| self.host.capabilities.iter().find(|capability| capability.name == name);
        let rights = [("mig/config", request.mig_config), ("mig/monitor", request.mig_monitor)];
        let mut wanted: Vec<&Capability> = Vec::new();
        for (name, asked) in rights {
            match find(name) {
                Some(capability) if asked || request.management => wanted.push(capability),
                None if asked => return Err(PlanError::NoCapability(name)),
                _ => {}
            }
        }
        wanted.extend(mig.mig.iter().flat_map(|device| device.access));
        let mut seen = BTreeSet::new();
        for capability in wanted {
            let caps = Numbered::dynamic(majors, majors::NVIDIA_CAPS)?;
            if seen.insert(capability.minor) {
                let Capability { minor, mode, .. } = *capability;
                self.add(
                    &format!("{CAPABILITY_DIRECTORY}/nvidia-cap{minor}"),
                    caps,
                    minor,
                    Owner { mode, uid: 0, gid: 0 },
                );
            }
        }
        Ok(())
    }

    /// The NVSwitches' nodes: the driver's files do not say their minors, so they are those of the host's own nodes that
    /// have the live major.
    fn add_nvswitch(&mut self, majors: &Majors, request: &Request) -> Result<(), PlanError> {
        let is_there = majors.by_name.contains_key(majors::NVIDIA_NVSWITCH);
        if !(request.nvswitch || request.management && is_there) {
            return Ok(());
        }
        let switch = Numbered::dynamic(majors, majors::NVIDIA_NVSWITCH)?;
        let owner = Owner { mode: DEFAULT_MODE, uid: 0, gid: 0 };
        self.add("/dev/nvidia-nvswitchctl", switch, NVSWITCH_CONTROL_MINOR, owner);
        let host = self.host;
        for node in &host.nodes {
            if let NodeKind::Character(id) = node.kind
                && id.major == switch.major
                && node.path == format!("/dev/nvidia-nvswitch{}", id.minor)
            {
                self.add(&node.path, switch, id.minor, owner);
            }
        }
        Ok(())
    }

    /// Channel nodes are made by whoever needs them: the driver registers numbers, no nodes.
    fn add_imex(&mut self, majors: &Majors, channels: &[u32]) -> Result<(), PlanError> {
        if channels.is_empty() {
            return Ok(());
        }
        let imex = Numbered::dynamic(majors, majors::NVIDIA_CAPS_IMEX_CHANNELS)?;
        for channel in channels {
            if let Some(count) = self.host.params.imex_channel_count
                && *channel >= count
            {
                return Err(PlanError::NoImexChannel { channel: *channel, count });
            }
            let owner = Owner { mode: DEFAULT_MODE, uid: 0, gid: 0 };
            self.add(&format!("{IMEX_DIRECTORY}/channel{channel}"), imex, Minor(*channel), owner);
        }
        Ok(())
    }

    /// What the driver's parameters say of its nodes.
    fn driver_owner(&self) -> Owner {
        let params = &self.host.params;
        Owner {
            mode: params.device_file_mode.unwrap_or(DEFAULT_MODE),
            uid: params.device_file_uid.unwrap_or(0),
            gid: params.device_file_gid.unwrap_or(0),
        }
    }

    fn add(&mut self, path: &str, driver: Numbered, minor: Minor, owner: Owner) {
        let Some(path) = ContainerPath::new(path) else { return };
        self.devices.push(PlannedDevice {
            path,
            id: DeviceId { major: driver.major, minor },
            dynamic: driver.dynamic,
            access: Access::READ | Access::WRITE,
            mode: owner.mode & 0o777,
            uid: on_host(&self.container.uid_map, owner.uid),
            gid: on_host(&self.container.gid_map, owner.gid),
        });
    }
}

/// A driver's number, with its name where the number is dynamic.
#[derive(Clone, Copy)]
struct Numbered {
    dynamic: Option<&'static str>,
    major: Major,
}

impl Numbered {
    fn dynamic(majors: &Majors, name: &'static str) -> Result<Self, PlanError> {
        Ok(Self { dynamic: Some(name), major: majors.only(name)? })
    }
}

/// Mode and owner of a node, in the container's ids.
#[derive(Clone, Copy)]
struct Owner {
    mode: u32,
    uid: u32,
    gid: u32,
}

/// The container's root user and group, in the host's ids.
pub(super) fn root_on_host(container: &ContainerFacts) -> (u32, u32) {
    (on_host(&container.uid_map, 0), on_host(&container.gid_map, 0))
}

/// The host id that the container shows as `inside`, or as its root where it maps no such id: a node owned by an
/// unmapped id shows as 65534 and is closed to everyone at mode 0660.
fn on_host(map: &IdMap, inside: u32) -> u32 {
    map.to_host(inside).or_else(|| map.to_host(0)).unwrap_or(inside)
}

fn find<'a>(gpus: &[&'a Gpu], name: &DeviceName) -> Result<&'a Gpu, PlanError> {
    let matches: Vec<&Gpu> = match name {
        DeviceName::Index(index) => {
            usize::try_from(*index).ok().and_then(|index| gpus.get(index)).copied().into_iter().collect()
        }
        DeviceName::Uuid(wanted) => gpus.iter().copied().filter(|gpu| has_uuid(gpu, wanted)).collect(),
        DeviceName::Bus(address) => gpus.iter().copied().filter(|gpu| gpu.address == *address).collect(),
        // A MIG device is no GPU: its own name says which one holds it.
        DeviceName::Mig(_) => Vec::new(),
    };
    match matches.as_slice() {
        [one] => Ok(one),
        [] => Err(PlanError::UnknownGpu {
            asked: name.to_string(),
            exist: gpus.iter().map(|gpu| describe(gpu)).collect(),
        }),
        many => Err(PlanError::AmbiguousGpu {
            asked: name.to_string(),
            matches: many.iter().map(|gpu| describe(gpu)).collect(),
        }),
    }
}

fn has_uuid(gpu: &Gpu, wanted: &str) -> bool {
    let Some(uuid) = &gpu.uuid else { return false };
    uuid.get(..wanted.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(wanted))
}

/// `GPU-1b2c... at 0000:07:00.0 (/dev/nvidia2)`.
fn describe(gpu: &Gpu) -> String {
    let uuid = gpu.uuid.as_deref().unwrap_or("GPU without a UUID yet");
    format!("{uuid} at {} (/dev/nvidia{})", gpu.address, gpu.minor)
}
