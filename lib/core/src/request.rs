// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one container asks for, whoever asked, in NVIDIA's words (`NVIDIA_VISIBLE_DEVICES` and its neighbours).

use std::fmt;

use crate::facts::PciAddress;
use crate::quoted::Quoted;

pub use self::error::RequestError;
pub use self::require::{Judgement, Offer, Requirement};
pub use self::source::Arguments;

mod error;
mod lxc;
mod oci;
mod require;
mod select;
mod source;

/// The variable that tells every injector of NVIDIA devices to do nothing; whoever has injected sets it.
pub const VOID: (&str, &str) = ("NVIDIA_VISIBLE_DEVICES", "void");

/// One container's wish. It names devices in the user's words; [`crate::plan::Plan::make`] meets the host with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `NVIDIA_VISIBLE_DEVICES`.
    pub devices: DeviceSelection,
    /// `NVIDIA_DRIVER_CAPABILITIES`.
    pub capabilities: DriverCapabilities,
    /// `NVIDIA_MIG_CONFIG_DEVICES` asks to configure MIG.
    pub mig_config: bool,
    /// `NVIDIA_MIG_MONITOR_DEVICES` asks to monitor MIG.
    pub mig_monitor: bool,
    /// `NVIDIA_IMEX_CHANNELS`, sorted and without doubles.
    pub imex_channels: Vec<u32>,
    /// `NVIDIA_NVSWITCH=enabled` asks for the NVSwitches.
    pub nvswitch: bool,
    /// `management.nvidia.com/gpu=all` asks for whatever the host has of MIG's rights and NVSwitches.
    pub management: bool,
    /// `NVIDIA_REQUIRE_*`: what the image needs.
    pub requirements: Vec<Requirement>,
    /// Who chose the devices.
    pub origin: Origin,
    /// What was asked for and is not given, as sentences for the report.
    pub left_out: Vec<String>,
}

impl Request {
    /// Whether a plan needs to know the GPUs' MIG devices.
    pub fn needs_mig_devices(&self) -> bool {
        match &self.devices {
            DeviceSelection::All => true,
            DeviceSelection::List(names) => names.iter().any(|name| matches!(name, DeviceName::Mig(_))),
            DeviceSelection::Nothing | DeviceSelection::ControlOnly => false,
        }
    }

    /// Whether a plan needs to know which MIG device has which UUID.
    pub fn names_mig_uuids(&self) -> bool {
        let is_uuid = |name: &DeviceName| matches!(name, DeviceName::Mig(MigName::Uuid(_)));
        matches!(&self.devices, DeviceSelection::List(names) if names.iter().any(is_uuid))
    }

    /// Whether gpuhook has nothing to do for this container, whatever else was asked.
    pub fn is_nothing(&self) -> bool {
        self.devices == DeviceSelection::Nothing
    }
}

/// Who wrote an argument or a variable. What comes from an image never widens rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// An administrator of the host: a container's config, a hook's arguments, the command line.
    Operator,
    /// Possibly the author of the image, or nobody: `process.env` of an OCI spec does not tell image and operator apart.
    #[default]
    Image,
}

/// Which GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceSelection {
    /// Unset, empty or `void`: gpuhook has nothing to do here.
    #[default]
    Nothing,
    /// `none`: the control devices without a GPU.
    ControlOnly,
    /// `all`.
    All,
    /// A list, in the order in which it was written, without doubles.
    List(Vec<DeviceName>),
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceName {
    /// NVML's index: the position in bus order, not the minor.
    Index(u32),
    /// `GPU-...`, whole or a unique beginning; hexadecimal digits in lower case, as the driver prints them.
    Uuid(String),
    /// A bus id, `00000000:07:00.0` or `0000:07:00.0` or `07:00.0`.
    Bus(PciAddress),
    /// A MIG device.
    Mig(MigName),
}

/// The names of a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigName {
    /// `MIG-<uuid>`, as written.
    Uuid(String),
    /// `MIG-GPU-<uuid>/<gi>/<ci>`, the form of drivers before R470: by its instances.
    Instances {
        /// The GPU's UUID or its beginning, with `GPU-`.
        gpu: String,
        /// The GPU instance's id.
        gpu_instance: u32,
        /// The compute instance's id.
        compute_instance: u32,
    },
    /// `GPU:MIG`: by its position among its GPU's MIG devices.
    Position {
        /// The GPU, by index or UUID.
        gpu: Box<DeviceName>,
        /// Counted from 0.
        position: u32,
    },
}

impl fmt::Display for DeviceName {
    /// As a person would write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "with index {index}"),
            Self::Uuid(word) => write!(f, "{}", Quoted(word)),
            Self::Bus(address) => write!(f, "at {address}"),
            Self::Mig(name) => name.fmt(f),
        }
    }
}

impl fmt::Display for MigName {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(word) => write!(f, "{}", Quoted(word)),
            Self::Instances { gpu, gpu_instance, compute_instance } => {
                write!(f, "MIG-{gpu}/{gpu_instance}/{compute_instance}")
            }
            Self::Position { gpu, position } => match &**gpu {
                DeviceName::Index(index) => write!(f, "{index}:{position}"),
                gpu => write!(f, "{gpu}:{position}"),
            },
        }
    }
}

bitflags::bitflags! {
    /// `NVIDIA_DRIVER_CAPABILITIES`: what the container does with its GPUs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DriverCapabilities: u32 {
        /// CUDA, OpenCL.
        const COMPUTE = 1;
        /// 32-bit libraries.
        const COMPAT32 = 2;
        /// OpenGL, Vulkan.
        const GRAPHICS = 4;
        /// nvidia-smi, NVML.
        const UTILITY = 8;
        /// Video codec.
        const VIDEO = 16;
        /// X11.
        const DISPLAY = 32;
        /// NGX.
        const NGX = 64;
    }
}

impl Default for DriverCapabilities {
    /// `utility,compute`, as in NVIDIA's toolkit (internal/config/image/capabilities.go).
    fn default() -> Self {
        Self::UTILITY | Self::COMPUTE
    }
}
